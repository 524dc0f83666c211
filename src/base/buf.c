/* Growable byte buffer: see buf.h. */
#include "base/buf.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void qp_buf_deinit(qp_buf *b)
{
    qp_free(b->data);
    memset(b, 0, sizeof *b);
}

void qp_buf_clear(qp_buf *b)
{
    b->len = 0;
    b->failed = false;
    b->over_limit = false;
    if (b->data) b->data[0] = 0;
}

bool qp_buf_reserve(qp_buf *b, size_t extra)
{
    size_t need, with_nul;
    if (b->failed) return false;
    if (!qp_add_ok(b->len, extra, &need) || !qp_add_ok(need, 1, &with_nul) || (b->limit && need > b->limit)) {
        b->failed = true;
        b->over_limit = b->limit != 0;
        return false;
    }
    if (with_nul <= b->cap) return true;
    size_t cap = qp_max_size(with_nul, b->cap < ((size_t)1 << 60) ? b->cap * 2 : with_nul);
    cap = qp_max_size(cap, 64);
    char *p = qp_realloc(b->data, b->data ? b->len + 1 : 0, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    b->data[b->len] = 0;
    return true;
}

void qp_buf_add(qp_buf *b, const void *data, size_t n)
{
    if (!qp_buf_reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void qp_buf_adds(qp_buf *b, const char *s)
{
    qp_buf_add(b, s, strlen(s));
}

void qp_buf_addc(qp_buf *b, char c)
{
    qp_buf_add(b, &c, 1);
}

void qp_buf_printf(qp_buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n >= 0 && (size_t)n < sizeof small) {
        qp_buf_add(b, small, (size_t)n);
    } else if (n >= 0 && qp_buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

qp_status qp_buf_check(const qp_buf *b, const char *what, qp_err *err)
{
    if (!b->failed) return QP_OK;
    if (b->over_limit) return qp_fail(err, QP_ELIMIT, "%s: output exceeds its limit of %zu bytes", what, b->limit);
    return qp_fail(err, QP_ENOMEM, "%s: no memory for a buffer beyond %zu bytes", what, b->cap);
}
