/* Arena: see arena.h. Chunks double from 4 KiB to 1 MiB; a larger request gets a chunk of its own size. */
#include "base/arena.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <string.h>

struct qp_arena_chunk {
    struct qp_arena_chunk *next;
    unsigned char *data;
};

void qp_arena_init(qp_arena *a, size_t limit)
{
    memset(a, 0, sizeof *a);
    a->limit = limit;
}

void qp_arena_deinit(qp_arena *a)
{
    for (struct qp_arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        qp_free(c->data);
        qp_free(c);
    }
    qp_arena_init(a, a->limit);
}

void *qp_arena_alloc(qp_arena *a, size_t size)
{
    if (!qp_round_up_ok(size ? size : 1, 16, &size)) return NULL;
    if (!a->chunks || a->size - a->used < size) {
        size_t want = a->size ? a->size * 2 : 4096, total;
        want = qp_min_size(want, (size_t)1 << 20);
        if (a->limit && want > a->limit - a->total) want = a->limit - a->total; /* total never exceeds limit */
        want = qp_max_size(want, size);
        if (!qp_add_ok(a->total, want, &total) || (a->limit && total > a->limit)) return NULL;
        struct qp_arena_chunk *c = qp_malloc(sizeof *c);
        if (!c) return NULL;
        c->data = qp_malloc(want);
        if (!c->data) {
            qp_free(c);
            return NULL;
        }
        c->next = a->chunks;
        a->chunks = c;
        a->size = want;
        a->used = 0;
        a->total = total;
    }
    void *p = a->chunks->data + a->used;
    a->used += size;
    return p;
}

void *qp_arena_calloc(qp_arena *a, size_t n, size_t size)
{
    size_t total;
    if (!qp_mul_ok(n, size, &total)) return NULL;
    void *p = qp_arena_alloc(a, total);
    if (p) memset(p, 0, total);
    return p;
}

char *qp_arena_strndup(qp_arena *a, const char *s, size_t n)
{
    size_t total;
    if (!qp_add_ok(n, 1, &total)) return NULL;
    char *p = qp_arena_alloc(a, total);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}
