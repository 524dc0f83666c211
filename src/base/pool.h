/* Compute pool: a fixed set of threads that run the parts of one job at a time. The calling thread takes part.
 * Which thread runs which part is not determined; results must not depend on it. */
#ifndef QP_BASE_POOL_H
#define QP_BASE_POOL_H

#include "base/err.h"

#include <stddef.h>

typedef struct qp_pool qp_pool;

/* fn(arg, part, worker): part in [0, n_parts), worker in [0, qp_pool_n_threads) is the index of the running thread. */
typedef void (*qp_pool_fn)(void *arg, size_t part, unsigned worker);

/* n_threads >= 1 in all, the caller's own included. */
qp_status qp_pool_new(qp_pool **out, unsigned n_threads, qp_err *err);
void qp_pool_free(qp_pool *p);
unsigned qp_pool_n_threads(const qp_pool *p);

/* Runs all parts, fewer than 2^32 of them, and returns when every one is done. One thread at a time may call this on
 * one pool. */
void qp_pool_run(qp_pool *p, qp_pool_fn fn, void *arg, size_t n_parts);
#endif
