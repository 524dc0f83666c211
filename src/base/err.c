/* Errors: see err.h. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *qp_status_name(qp_status st)
{
    static const char *const names[] = {"ok",           "invalid argument", "limit exceeded", "unsupported",
                                        "i/o error",    "bad format",       "out of memory",  "cancelled",
                                        "device error", "internal error"};
    return (unsigned)st < sizeof names / sizeof *names ? names[st] : "unknown status";
}

qp_status qp_fail(qp_err *err, qp_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err->status = st;
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    return st;
}

qp_status qp_wrap(qp_err *err, const char *fmt, ...)
{
    char old[sizeof err->msg];
    va_list ap;
    memcpy(old, err->msg, sizeof old);
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n + 3 > sizeof err->msg) return err->status;
    char *at = err->msg + n;
    size_t room = sizeof err->msg - (size_t)n - 3, len = strnlen(old, sizeof old - 1);
    if (len > room) len = room;
    memcpy(at, ": ", 2);
    memcpy(at + 2, old, len);
    at[2 + len] = 0;
    return err->status;
}
