/* A step: one forward pass over a ragged batch, and the scratch it works in.
 *
 * Scratch is one block with a bump pointer. Its size is found by a dry pass at load: the same calls with the largest
 * batch, in which ops only count. A real step therefore allocates nothing and cannot fail. */
#ifndef QP_KERNELS_STEP_H
#define QP_KERNELS_STEP_H

#include "kv/kv_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows of one sequence: consecutive in the batch, at consecutive positions. */
typedef struct qp_span {
    uint32_t row0, n_rows;
    uint32_t pos0;                             /* position of the first row */
    const int32_t *page_ids[QP_MAX_KV_GROUPS]; /* index: position / page_size */
    int32_t slot;                              /* state slot, -1: none */
} qp_span;

typedef struct qp_batch {
    const int32_t *tokens; /* [n_rows] */
    uint32_t n_rows;
    const qp_span *spans; /* [n_spans], rows rising */
    uint32_t n_spans;
    const uint32_t *logit_rows; /* [n_logit_rows] rows whose logits are wanted, rising */
    uint32_t n_logit_rows;
} qp_batch;

/* A matrix of fp32 in the step's scratch (on the backend's device): row r at data + r * ld. A value, not an owner. */
typedef struct qp_vec {
    float *data;
    uint32_t rows, cols;
    size_t ld;
} qp_vec;

struct qp_backend;

typedef struct qp_step {
    const struct qp_backend *be; /* kernels/ops.h */
    void *be_ctx;
    const qp_batch *batch;
    const qp_kv_view *kv;
    unsigned char *scratch; /* 64-byte aligned */
    size_t used, peak;
    size_t worker_peak; /* scratch that one thread of a kernel needs at most; set by the dry pass */
    bool dry;
    /* Tests and tools see intermediate values: what is "embed", "layer" (il: which) or "final_norm". NULL: off. */
    void (*trace)(void *arg, const char *what, uint32_t il, qp_vec x);
    void *trace_arg;
} qp_step;

#endif
