/* The CPU backend: ops over the kernel table, split over a compute pool. */
#ifndef QP_KERNELS_BACKEND_CPU_H
#define QP_KERNELS_BACKEND_CPU_H

#include "base/err.h"
#include "base/pool.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/ops.h"

typedef struct qp_cpu_ctx qp_cpu_ctx;

/* be_ctx of a step. k and pool are borrowed. The rotary tables that the dry pass asks for are noted in it. */
qp_status qp_cpu_ctx_new(qp_cpu_ctx **out, const qp_cpu_kernels *k, qp_pool *pool, qp_err *err);
void qp_cpu_ctx_free(qp_cpu_ctx *c);

/* After the dry pass: bytes that qp_cpu_ctx_finish will allocate for steps of max_rows rows. */
size_t qp_cpu_ctx_bytes(const qp_cpu_ctx *c, size_t worker_bytes, uint32_t max_rows);

/* Allocates worker scratch (worker_bytes a thread: the dry pass's worker_peak) and the rotary tables. */
qp_status qp_cpu_ctx_finish(qp_cpu_ctx *c, size_t worker_bytes, uint32_t max_rows, qp_err *err);

/* Call before each step: rotary tables of the last batch are stale. */
void qp_cpu_ctx_begin_step(qp_cpu_ctx *c);

extern const qp_backend qp_backend_cpu;

#endif
