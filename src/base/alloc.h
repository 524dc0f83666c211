/* The only place that calls malloc. Every block is 64-byte aligned, so vectors may use aligned loads.
 * A block is released by qp_free alone. Thread-safe. */
#ifndef QP_BASE_ALLOC_H
#define QP_BASE_ALLOC_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Returns size bytes (size 0 gives a valid block), or NULL. */
void *qp_malloc(size_t size);

/* n * size zeroed bytes, or NULL on overflow or lack of memory. */
void *qp_calloc(size_t n, size_t size);

/* Resizes p (NULL allowed); keeps the first old_size bytes. On failure returns NULL and p stays valid. */
void *qp_realloc(void *p, size_t old_size, size_t new_size);

void qp_free(void *p);

/* NUL-terminated copies of a string, of n bytes of text; NULL on lack of memory. */
char *qp_strdup(const char *s);
char *qp_strndup(const char *s, size_t n);

/* qp_malloc / qp_calloc that report QP_ENOMEM naming `what`. *out is void ** in disguise: pass the address of a
 * pointer. */
qp_status qp_new(void *out, size_t n, size_t size, const char *what, qp_err *err);

/* Test hooks. After qp_alloc_fail_after(n) the n-th following allocation (n >= 1) fails, and later ones succeed again;
 * 0 switches it off. qp_alloc_count counts allocations since start, qp_alloc_live_bytes what is held now, and
 * qp_alloc_peak_bytes the most that was ever held. */
void qp_alloc_fail_after(uint64_t n);
uint64_t qp_alloc_count(void);
size_t qp_alloc_live_bytes(void);
size_t qp_alloc_peak_bytes(void);

#endif
