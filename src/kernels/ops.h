/* The op list: what a model family is written in. Each op runs on the step's backend.
 *
 * Ops cannot fail: shapes were checked when the model was loaded and scratch was sized by a dry pass. Results are new
 * vectors in the step's scratch unless the text says "in place". Rows are tokens of the batch; every row's result
 * depends on its own sequence alone. */
#ifndef QP_KERNELS_OPS_H
#define QP_KERNELS_OPS_H

#include "kernels/step.h"
#include "quant/exl3_types.h"

/* A linear: y[n_out] = x[n_in] W (+ bias). Bound by model/loader.h; immutable. */
typedef struct qp_linear {
    enum { QP_LINEAR_DENSE, QP_LINEAR_EXL3 } kind;
    uint32_t n_in, n_out;
    qp_wtype wtype;    /* dense */
    const void *w;     /* dense: [n_out, n_in] */
    const float *bias; /* dense: [n_out] or NULL */
    qp_exl3 exl3;
    qp_exl3_arith arith;
} qp_linear;

/* A token embedding: row i is the vector of token i. */
typedef struct qp_embedding {
    uint32_t n_rows, n_cols;
    qp_wtype wtype;
    const void *table; /* dense [n_rows, n_cols]; NULL: rows come from decode_row */
    void (*decode_row)(const void *codec, uint32_t row, float *out); /* out: [n_cols] */
    const void *codec;
} qp_embedding;

/* Rotation angles: the first 2 * n_half channels of a head rotate with frequencies freq[n_half] (radians a position);
 * cos and sin are multiplied by magnitude (1 but for yarn). */
typedef struct qp_rope {
    const double *freq;
    uint32_t n_half;
    double magnitude;
} qp_rope;

typedef struct qp_attention {
    uint32_t n_heads, n_kv_heads, head_dim;
    float scale, softcap; /* softcap 0: none */
    const float *sinks;   /* [n_heads] or NULL */
} qp_attention;

typedef struct qp_gated_delta {
    uint32_t n_k_heads, n_v_heads, dk, dv, conv_width;
    const float *conv_w;          /* [2 n_k_heads dk + n_v_heads dv, conv_width] */
    const float *a_log, *dt_bias; /* [n_v_heads] */
} qp_gated_delta;

/* Scratch that was taken since the mark is free again after the rewind. */
static inline size_t qp_step_mark(const qp_step *s)
{
    return s->used;
}

static inline void qp_step_rewind(qp_step *s, size_t mark)
{
    s->used = mark;
}

/* Uninitialized rows x cols; rows are 64-byte aligned. */
qp_vec qp_step_vec(qp_step *s, uint32_t rows, uint32_t cols);

/* Columns [col0, col0 + n) of x: a view. */
static inline qp_vec qp_vec_cols(qp_vec x, uint32_t col0, uint32_t n)
{
    return (qp_vec){x.data + col0, x.rows, n, x.ld};
}

/* [n_tokens, n_cols]: the embeddings of the batch's tokens, times scale. */
qp_vec qp_op_embed(qp_step *s, const qp_embedding *e, float scale);

/* x / rms(x) * w; w [cols]. */
qp_vec qp_op_rms_norm(qp_step *s, qp_vec x, const float *w, float eps);

/* In place, each head of head_dim channels by itself; w [head_dim]. */
void qp_op_head_norm(qp_step *s, qp_vec x, uint32_t head_dim, const float *w, float eps);

/* In place: rotates every head of head_dim channels by its row's position. */
void qp_op_rope(qp_step *s, qp_vec x, uint32_t head_dim, const qp_rope *r);

qp_vec qp_op_linear(qp_step *s, qp_vec x, const qp_linear *l);

/* n <= 8 linears of the same input in one go: y[i] = x l[i]. */
enum { QP_MAX_LINEAR_GROUP = 8 };
void qp_op_linear_group(qp_step *s, qp_vec x, const qp_linear *const *l, uint32_t n, qp_vec *y);

/* Appends k and v [n_tokens, n_kv_heads * head_dim] to layer il's cache, then attends: [n_tokens, n_heads * head_dim].
 */
qp_vec qp_op_attention(qp_step *s, uint32_t il, qp_vec q, qp_vec k, qp_vec v, const qp_attention *a);

/* In place on x: x += y; x *= a; x = cap tanh(x / cap). */
void qp_op_add(qp_step *s, qp_vec x, qp_vec y);
void qp_op_scale(qp_step *s, qp_vec x, float a);
void qp_op_softcap(qp_step *s, qp_vec x, float cap);

/* In place on gate: silu(gate) * up; gelu_tanh(gate) * up. In place on x: x * sigmoid(gate). */
void qp_op_silu_mul(qp_step *s, qp_vec gate, qp_vec up);
void qp_op_gelu_tanh_mul(qp_step *s, qp_vec gate, qp_vec up);
void qp_op_sigmoid_mul(qp_step *s, qp_vec x, qp_vec gate);

/* x [n_tokens, n_heads * 2 * head_dim], per head a then b: split into a and b, each [n_tokens, n_heads * head_dim]. */
void qp_op_split_heads(qp_step *s, qp_vec x, uint32_t n_heads, uint32_t head_dim, qp_vec *a, qp_vec *b);

/* Gated delta net of layer il: qkv [n_tokens, 2 Hk dk + Hv dv] before the convolution, a and b [n_tokens, Hv] before
 * their gates; updates the layer's state (floats: convolution window [(conv_width - 1), channels], then S [Hv, dk,
 * dv]). Result [n_tokens, Hv * dv]. */
qp_vec qp_op_gated_delta(qp_step *s, uint32_t il, qp_vec qkv, qp_vec a, qp_vec b, const qp_gated_delta *g);

/* The batch's logit rows of x. */
qp_vec qp_op_logit_rows(qp_step *s, qp_vec x);

static inline void qp_op_trace(qp_step *s, const char *what, uint32_t il, qp_vec x)
{
    if (s->trace && !s->dry) s->trace(s->trace_arg, what, il, x);
}

/* What a backend implements; vectors are allocated by ops.c. In a dry pass only `dry`-aware entries are called: those
 * that need scratch of their own (linear_group, attention, gated_delta). */
typedef struct qp_backend {
    const char *name;
    void (*embed)(qp_step *s, qp_vec y, const qp_embedding *e, float scale);
    void (*rms_norm)(qp_step *s, qp_vec y, qp_vec x, uint32_t head_dim, const float *w, float eps);
    void (*rope)(qp_step *s, qp_vec x, uint32_t head_dim, const qp_rope *r);
    void (*linear_group)(qp_step *s, qp_vec x, const qp_linear *const *l, uint32_t n, const qp_vec *y);
    void (*attention)(qp_step *s, uint32_t il, qp_vec y, qp_vec q, qp_vec k, qp_vec v, const qp_attention *a);
    void (*add)(qp_step *s, qp_vec x, qp_vec y);
    void (*scale)(qp_step *s, qp_vec x, float a);
    void (*softcap)(qp_step *s, qp_vec x, float cap);
    void (*silu_mul)(qp_step *s, qp_vec gate, qp_vec up);
    void (*gelu_tanh_mul)(qp_step *s, qp_vec gate, qp_vec up);
    void (*sigmoid_mul)(qp_step *s, qp_vec x, qp_vec gate);
    void (*split_heads)(qp_step *s, qp_vec x, uint32_t n_heads, uint32_t head_dim, qp_vec a, qp_vec b);
    void (*gated_delta)(qp_step *s, uint32_t il, qp_vec y, qp_vec qkv, qp_vec a, qp_vec b, const qp_gated_delta *g);
    void (*logit_rows)(qp_step *s, qp_vec y, qp_vec x);
} qp_backend;

#endif
