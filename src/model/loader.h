/* Binding: from names in a checkpoint to weights of a family. Used only while a model is opened. */
#ifndef QP_MODEL_LOADER_H
#define QP_MODEL_LOADER_H

#include "base/arena.h"
#include "io/safetensors.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/model.h"

#include <stddef.h>

typedef struct qp_loader {
    const qp_checkpoint *ckpt;
    qp_config cfg;
    qp_arena *arena;    /* the model's */
    const char *prefix; /* "model.", "model.language_model.", ...: found by its embed_tokens */
    qp_exl3_arith arith;
    qp_tensor_use *use; /* [n_tensors] */
    size_t weight_bytes;
    uint64_t n_weights;
} qp_loader;

/* Names of sizes in bind tables; a family sets those it has. */
typedef enum qp_dim {
    QP_DIM_ONE,
    QP_DIM_MODEL,
    QP_DIM_FF,
    QP_DIM_Q,     /* n_heads * head_dim */
    QP_DIM_QGATE, /* twice that: query and gate */
    QP_DIM_KV,    /* n_kv_heads * head_dim */
    QP_DIM_HEAD,
    QP_DIM_CONV,    /* channels of a convolution */
    QP_DIM_WIDTH,   /* its taps */
    QP_DIM_V,       /* delta net: n_v_heads * dv */
    QP_DIM_V_HEADS, /* delta net: n_v_heads */
    QP_DIM_V_HEAD,  /* delta net: dv */
    QP_N_DIMS
} qp_dim;

typedef enum qp_bind_kind {
    QP_LINEAR, /* qp_linear: NAME.trellis (EXL3) or NAME.weight [rows, cols], NAME.bias [rows] if it is there */
    QP_VECTOR, /* const float *: the whole name, [rows], widened to fp32 */
    QP_VECTOR_PLUS_ONE, /* the same with 1 added: a zero-centred norm weight */
    QP_CONV             /* const float *: the whole name, [rows, 1, cols] */
} qp_bind_kind;

typedef struct qp_bind {
    const char *name; /* after "<prefix>layers.N." */
    size_t offset;    /* in the layer's struct */
    qp_dim rows, cols;
    qp_bind_kind kind;
} qp_bind;

/* Binds n entries for layer il into the struct at `layer`. name_prefix is "<prefix>layers.<il>.". */
qp_status qp_load_table(qp_loader *ld, const qp_bind *table, size_t n, const uint32_t dims[QP_N_DIMS], uint32_t il,
                        void *layer, qp_err *err);

/* One tensor each, by its whole name. */
qp_status qp_load_vector(qp_loader *ld, const char *name, uint32_t n, float add, const float **out, qp_err *err);
qp_status qp_load_linear(qp_loader *ld, const char *name, uint32_t n_out, uint32_t n_in, qp_linear *out, qp_err *err);

/* <prefix>embed_tokens: dense or trellis rows. */
qp_status qp_load_embedding(qp_loader *ld, qp_embedding *out, qp_err *err);

/* The output head: lm_head as EXL3 or dense, under any of its prefixes, else the embedding table itself. */
qp_status qp_load_head(qp_loader *ld, const qp_embedding *embed, qp_linear *out, qp_err *err);

/* When the config's flag `key` (attention_bias, mlp_bias) is true, each of the n linears of layer il must have a bias.
 */
qp_status qp_load_want_bias(const qp_loader *ld, const char *key, uint32_t il, const qp_linear *const *l, size_t n,
                            qp_err *err);

/* n zeroed elements of size bytes from the model's arena. */
qp_status qp_load_alloc(qp_loader *ld, size_t n, size_t size, void *out, qp_err *err);
#endif
