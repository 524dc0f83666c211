/* Errors: see err.h. */
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *qp_status_name(qp_status st)
{
    static const char *const names[] = {"ok",           "invalid argument", "limit exceeded", "unsupported",
                                        "i/o error",    "bad format",       "out of memory",  "cancelled",
                                        "device error", "internal error"};
    return (unsigned)st < sizeof names / sizeof *names ? names[st] : "unknown status";
}

/* Room for a message with a path in it before it is shortened. */
enum { LONG = 8192, HEAD = 80 };

/* Whether c continues a UTF-8 sequence. */
static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Sets the message to text, whose middle goes when it is too long, in whole characters. */
static void set_message(qp_err *err, const char *text)
{
    size_t len = strlen(text);
    if (len < sizeof err->msg) {
        memcpy(err->msg, text, len + 1);
        return;
    }
    size_t head = HEAD, tail = len - (sizeof err->msg - 1 - HEAD - 3);
    for (int i = 0; i < 3 && continues(text[head]); i++) head--;
    for (int i = 0; i < 3 && continues(text[tail]); i++) tail++;
    memcpy(err->msg, text, head);
    memcpy(err->msg + head, "...", 3);
    memcpy(err->msg + head + 3, text + tail, len - tail + 1);
}

qp_status qp_fail(qp_err *err, qp_status st, const char *fmt, ...)
{
    char text[LONG];
    va_list ap;
    err->status = st;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    set_message(err, n < 0 ? fmt : text);
    return st;
}

qp_status qp_wrap(qp_err *err, const char *fmt, ...)
{
    char text[LONG + sizeof err->msg + 2];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, LONG, fmt, ap);
    va_end(ap);
    if (n < 0) return err->status;
    size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, ": %s", err->msg);
    set_message(err, text);
    return err->status;
}
