/* JSON from outside as a stream of tokens, for files whose tree would be too large or too slow to build: safetensors
 * headers of many tensors, tokenizer.json. Constant memory but for the longest string that has escapes. Syntax is
 * checked as strictly as json.h does it (UTF-8, surrogates, depth, trailing bytes); duplicate keys are the caller's to
 * find. For anything small use json.h. */
#ifndef QP_IO_JSON_STREAM_H
#define QP_IO_JSON_STREAM_H

#include "base/buf.h"
#include "base/err.h"
#include "io/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qp_json_token {
    QP_JSON_END, /* after the one top-level value */
    QP_JSON_OBJECT,
    QP_JSON_OBJECT_END,
    QP_JSON_ARRAY,
    QP_JSON_ARRAY_END,
    QP_JSON_KEY,
    QP_JSON_STR,
    QP_JSON_NUM, /* text is its spelling */
    QP_JSON_BOOL_TRUE,
    QP_JSON_BOOL_FALSE,
    QP_JSON_NUL
} qp_json_token;

/* Fields are read-only for the caller; text, len hold the last key or string (decoded, valid UTF-8, may hold NUL, not
 * terminated) or number, and stay valid until the next call. */
typedef struct qp_json_stream {
    const char *text;
    size_t len;
    const char *data, *name; /* borrowed */
    size_t n, pos;
    uint32_t depth;
    uint8_t state;
    bool is_object[QP_MAX_JSON_DEPTH];
    qp_buf scratch; /* a string with escapes */
} qp_json_stream;

/* Reads n bytes at data, which must outlive s, as must name (used in messages). Cannot fail. */
void qp_json_stream_init(qp_json_stream *s, const char *data, size_t n, const char *name);
void qp_json_stream_deinit(qp_json_stream *s);

/* The next token. QP_EFORMAT names the byte offset and what is wrong there; after an error only deinit is allowed. */
qp_status qp_json_stream_next(qp_json_stream *s, qp_json_token *out, qp_err *err);

/* The next token, which must be `want`. */
qp_status qp_json_stream_expect(qp_json_stream *s, qp_json_token want, qp_err *err);

/* Reads one whole value (where a value may stand) and drops it. */
qp_status qp_json_stream_skip(qp_json_stream *s, qp_err *err);

/* Reads one whole value and returns its bytes, borrowed from data: checked like any other, but for a second parser. */
qp_status qp_json_stream_span(qp_json_stream *s, const char **text, size_t *len, qp_err *err);

/* The number just read as a double, correctly rounded whatever the locale is. False when it is not finite. */
bool qp_json_stream_as_f64(const qp_json_stream *s, double *out);

/* The number just read (text, len) as an integer: digits alone, at most 2^64 - 1. False for anything else. */
bool qp_json_stream_as_u64(const qp_json_stream *s, uint64_t *out);

/* True when the last key or string equals the NUL-terminated word. */
bool qp_json_stream_is(const qp_json_stream *s, const char *word);
#endif
