/* What a model caches, layer by layer: the contract between families, the page pool and the attention op. */
#ifndef QP_KV_TYPES_H
#define QP_KV_TYPES_H

#include "kernels/kernel_types.h"

#include <stddef.h>
#include <stdint.h>

typedef enum qp_cache_kind { QP_CACHE_NONE, QP_CACHE_ATTENTION, QP_CACHE_STATE } qp_cache_kind;

typedef struct qp_cache_layer {
    qp_cache_kind kind;
    uint32_t n_kv_heads, head_dim; /* attention */
    uint32_t window;               /* attention: tokens kept, the newest included; 0: all */
    uint32_t n_state_floats;       /* state: fp32 values a sequence */
} qp_cache_layer;

typedef struct qp_cache_spec {
    uint32_t n_layers;
    const qp_cache_layer *layers; /* [n_layers] */
} qp_cache_spec;

/* Layers with the same window form a group: they share page tables, and a page of the group holds page_size tokens of
 * all its layers. In a page each layer has K [n_kv_heads, page_size, head_dim], then V of the same shape, elements of
 * `type`. */
enum { QP_MAX_KV_GROUPS = 4 };

typedef struct qp_kv_place {
    uint32_t group;
    size_t k_offset, v_offset; /* bytes from the page's start; attention */
    size_t state_offset;       /* floats from the slot's start; state */
} qp_kv_place;

typedef struct qp_kv_view {
    const qp_cache_layer *layers;
    const qp_kv_place *places; /* [n_layers] */
    uint32_t n_groups, page_size;
    qp_wtype type;
    unsigned char *base[QP_MAX_KV_GROUPS]; /* page i of group g: base[g] + i * page_bytes[g] */
    size_t page_bytes[QP_MAX_KV_GROUPS];
    float *state; /* slot i: state + i * slot_floats */
    size_t slot_floats;
} qp_kv_view;

#endif
