/* Allocation: see alloc.h. A header of 64 bytes before each block holds its size. */
#include "base/alloc.h"

#include "base/checked.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 64 };

static _Atomic uint64_t count_atomic, fail_at_atomic;
static _Atomic size_t live_atomic, peak_atomic;

void qp_alloc_fail_after(uint64_t n)
{
    fail_at_atomic = n ? count_atomic + n : 0;
}

uint64_t qp_alloc_count(void)
{
    return count_atomic;
}

size_t qp_alloc_live_bytes(void)
{
    return live_atomic;
}

size_t qp_alloc_peak_bytes(void)
{
    return peak_atomic;
}

void *qp_malloc(size_t size)
{
    size_t total;
    uint64_t id = ++count_atomic;
    if (id == fail_at_atomic) return NULL;
    if (!qp_add_ok(size, HEADER, &total) || !qp_round_up_ok(total, 64, &total)) return NULL;
    unsigned char *p = aligned_alloc(64, total);
    if (!p) return NULL;
    memcpy(p, &size, sizeof size);
    size_t live = atomic_fetch_add(&live_atomic, size) + size, peak = peak_atomic;
    while (live > peak && !atomic_compare_exchange_weak(&peak_atomic, &peak, live)) {
    }
    return p + HEADER;
}

void *qp_calloc(size_t n, size_t size)
{
    size_t total;
    if (!qp_mul_ok(n, size, &total)) return NULL;
    void *p = qp_malloc(total);
    if (p) memset(p, 0, total);
    return p;
}

void *qp_realloc(void *p, size_t old_size, size_t new_size)
{
    void *q = qp_malloc(new_size);
    if (!q) return NULL;
    if (p) memcpy(q, p, qp_min_size(old_size, new_size));
    qp_free(p);
    return q;
}

void qp_free(void *p)
{
    if (!p) return;
    unsigned char *base = (unsigned char *)p - HEADER;
    size_t size;
    memcpy(&size, base, sizeof size);
    live_atomic -= size;
    free(base);
}

char *qp_strndup(const char *s, size_t n)
{
    size_t total;
    if (!qp_add_ok(n, 1, &total)) return NULL;
    char *p = qp_malloc(total);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *qp_strdup(const char *s)
{
    return qp_strndup(s, strlen(s));
}

qp_status qp_new(void *out, size_t n, size_t size, const char *what, qp_err *err)
{
    void *p = qp_calloc(n, size);
    if (!p) return qp_fail(err, QP_ENOMEM, "%s: no memory for %zu x %zu bytes", what, n, size);
    memcpy(out, &p, sizeof p);
    return QP_OK;
}
