/* Errors: filling a qp_err and passing it on. Functions that fail do not log; src/cli and src/server do. */
#ifndef QP_BASE_ERR_H
#define QP_BASE_ERR_H

#include <quantpack.h>

/* Sets err to st with a printf-style message and returns st. A message longer than the buffer
 * loses its middle, which is a long name: the reason stands at the end. */
qp_status qp_fail(qp_err *err, qp_status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<formatted text>: " before err's message and returns err->status. */
qp_status qp_wrap(qp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns from the enclosing function with the status of expr when that is not QP_OK. */
#define QP_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        qp_status qp_try_status_ = (expr);                                                                             \
        if (qp_try_status_ != QP_OK) return qp_try_status_;                                                            \
    } while (0)

/* As QP_TRY, but stores the status in the local variable `st` and jumps to the cleanup label `out`. */
#define QP_TRY_OUT(expr)                                                                                               \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != QP_OK) goto out;                                                                                     \
    } while (0)

#endif
