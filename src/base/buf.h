/* Growable byte buffer. data is always NUL-terminated once anything was added (the NUL is not counted in len).
 * A failed growth sets `failed` and drops that and all later additions, so a writer may check once at the end. */
#ifndef QP_BASE_BUF_H
#define QP_BASE_BUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct qp_buf {
    char *data;
    size_t len, cap;
    size_t limit; /* len never exceeds this; 0: no limit */
    bool failed;
    bool over_limit; /* failed because of the limit, not for lack of memory */
} qp_buf;

/* A zeroed qp_buf is a valid empty one. */
void qp_buf_deinit(qp_buf *b);
void qp_buf_clear(qp_buf *b); /* len = 0, failed = false, memory kept */
bool qp_buf_reserve(qp_buf *b, size_t extra);
void qp_buf_add(qp_buf *b, const void *data, size_t n);
void qp_buf_adds(qp_buf *b, const char *s);
void qp_buf_addc(qp_buf *b, char c);
void qp_buf_printf(qp_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* QP_OK, or QP_ENOMEM / QP_ELIMIT naming `what` when an addition failed. */
qp_status qp_buf_check(const qp_buf *b, const char *what, qp_err *err);
#endif
