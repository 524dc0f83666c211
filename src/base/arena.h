/* Arena: many small allocations with one lifetime, released together. Not thread-safe. */
#ifndef QP_BASE_ARENA_H
#define QP_BASE_ARENA_H

#include <stddef.h>

typedef struct qp_arena {
    struct qp_arena_chunk *chunks; /* newest first */
    size_t used, size;             /* of the newest chunk's payload */
    size_t total;                  /* payload bytes reserved in all chunks */
    size_t limit;                  /* no chunk is added beyond this many bytes; 0: no limit */
} qp_arena;

/* Fills caller's storage; cannot fail. limit in bytes, 0 for none. */
void qp_arena_init(qp_arena *a, size_t limit);
void qp_arena_deinit(qp_arena *a);

/* size bytes, 16-byte aligned, not zeroed; NULL when memory or the limit is exhausted. */
void *qp_arena_alloc(qp_arena *a, size_t size);
void *qp_arena_calloc(qp_arena *a, size_t n, size_t size);
char *qp_arena_strndup(qp_arena *a, const char *s, size_t n);
#endif
