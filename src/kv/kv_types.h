/* What a model caches, layer by layer: the contract between families, the page pool and the attention op. */
#ifndef QP_KV_TYPES_H
#define QP_KV_TYPES_H

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

#endif
