/* JSON token stream: see json_stream.h. `pos` never passes `n`; every byte is looked at after that check. */
#include "io/json_stream.h"

#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WANT_VALUE,        /* at the top, after ':' or after ',' in an array */
    WANT_KEY,          /* after ',' in an object */
    WANT_FIRST_KEY,    /* after '{': a key or '}' */
    WANT_FIRST_VALUE,  /* after '[': a value or ']' */
    WANT_COMMA_OR_END, /* after a value inside a container */
    WANT_NOTHING       /* after the top-level value */
};

void qp_json_stream_init(qp_json_stream *s, const char *data, size_t n, const char *name)
{
    memset(s, 0, sizeof *s);
    s->data = data;
    s->n = n;
    s->name = name;
}

void qp_json_stream_deinit(qp_json_stream *s)
{
    qp_buf_deinit(&s->scratch);
}

static qp_status bad(const qp_json_stream *s, const char *what, qp_err *err)
{
    return qp_fail(err, QP_EFORMAT, "%s: JSON at byte %zu: %s", s->name, s->pos, what);
}

static int peek(const qp_json_stream *s)
{
    return s->pos < s->n ? (unsigned char)s->data[s->pos] : -1;
}

static void skip_space(qp_json_stream *s)
{
    while (s->pos < s->n) {
        char c = s->data[s->pos];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
        s->pos++;
    }
}

/* Four hexadecimal digits at pos, or -1. */
static int32_t hex4(qp_json_stream *s)
{
    int32_t v = 0;
    if (s->n - s->pos < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = s->data[s->pos + i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    s->pos += 4;
    return v;
}

/* The escape after a backslash, appended to scratch. */
static qp_status read_escape(qp_json_stream *s, qp_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char out[4];
    int c = peek(s);
    const char *at = c > 0 ? strchr(from, c) : NULL;
    if (at) {
        s->pos++;
        qp_buf_addc(&s->scratch, to[at - from]);
        return QP_OK;
    }
    if (c != 'u') return bad(s, "unknown escape", err);
    s->pos++;
    int32_t cp = hex4(s);
    if (cp < 0) return bad(s, "\\u without four hexadecimal digits", err);
    if (cp >= 0xD800 && cp <= 0xDBFF && s->n - s->pos >= 2 && s->data[s->pos] == '\\' && s->data[s->pos + 1] == 'u') {
        s->pos += 2;
        int32_t low = hex4(s);
        if (low < 0xDC00 || low > 0xDFFF) return bad(s, "unpaired surrogate", err);
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    } else if (cp >= 0xD800 && cp <= 0xDFFF) {
        return bad(s, "unpaired surrogate", err);
    }
    qp_buf_add(&s->scratch, out, qp_utf8_encode(cp, out));
    return QP_OK;
}

/* Advances over plain ASCII without quote, backslash and controls, eight bytes a step: most of a large file. */
static void skip_plain(qp_json_stream *s)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    while (s->n - s->pos >= 8) {
        uint64_t w, quote, slash;
        memcpy(&w, s->data + s->pos, 8);
        quote = w ^ ones * '"';
        slash = w ^ ones * '\\';
        /* A borrow may flag the byte above a hit, never hide one; the caller looks at each byte from here. */
        if ((w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) & high) return;
        s->pos += 8;
    }
}

/* A string, pos at its opening quote. Without escapes, text points into the input. */
static qp_status read_string(qp_json_stream *s, qp_err *err)
{
    size_t start = ++s->pos;
    bool copied = false;
    qp_buf_clear(&s->scratch);
    skip_plain(s);
    for (;;) {
        int c = peek(s);
        if (c < 0) return bad(s, "string without its closing quote", err);
        if (c == '"') break;
        if (c < 0x20) return bad(s, "control character in a string", err);
        if (c == '\\') {
            qp_buf_add(&s->scratch, s->data + start, s->pos - start);
            copied = true;
            s->pos++;
            QP_TRY(read_escape(s, err));
            start = s->pos;
        } else if (c < 0x80) {
            s->pos++;
        } else {
            int32_t cp;
            size_t len = qp_utf8_decode(s->data + s->pos, s->n - s->pos, &cp);
            if (cp < 0) return bad(s, "invalid UTF-8", err);
            s->pos += len;
        }
    }
    if (copied) {
        qp_buf_add(&s->scratch, s->data + start, s->pos - start);
        QP_TRY(qp_buf_check(&s->scratch, s->name, err));
        s->text = s->scratch.data;
        s->len = s->scratch.len;
    } else {
        s->text = s->data + start;
        s->len = s->pos - start;
    }
    s->pos++;
    return QP_OK;
}

static size_t skip_digits(qp_json_stream *s)
{
    size_t start = s->pos;
    while (s->pos < s->n && s->data[s->pos] >= '0' && s->data[s->pos] <= '9') s->pos++;
    return s->pos - start;
}

static qp_status read_number(qp_json_stream *s, qp_err *err)
{
    size_t start = s->pos;
    if (peek(s) == '-') s->pos++;
    bool zero = peek(s) == '0';
    size_t n = skip_digits(s);
    if (!n || (zero && n > 1)) return bad(s, "malformed number", err);
    if (peek(s) == '.') {
        s->pos++;
        if (!skip_digits(s)) return bad(s, "malformed number", err);
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->pos++;
        if (peek(s) == '+' || peek(s) == '-') s->pos++;
        if (!skip_digits(s)) return bad(s, "malformed number", err);
    }
    s->text = s->data + start;
    s->len = s->pos - start;
    return QP_OK;
}

static qp_status read_word(qp_json_stream *s, const char *word, qp_err *err)
{
    size_t n = strlen(word);
    if (s->n - s->pos < n || memcmp(s->data + s->pos, word, n) != 0) return bad(s, "not a JSON value", err);
    s->pos += n;
    return QP_OK;
}

static void after_value(qp_json_stream *s)
{
    s->state = s->depth ? WANT_COMMA_OR_END : WANT_NOTHING;
}

static qp_status open_container(qp_json_stream *s, bool is_object, qp_err *err)
{
    if (s->depth == QP_MAX_JSON_DEPTH)
        return qp_fail(err, QP_EFORMAT, "%s: JSON nested deeper than %d", s->name, QP_MAX_JSON_DEPTH);
    s->is_object[s->depth++] = is_object;
    s->pos++;
    s->state = is_object ? WANT_FIRST_KEY : WANT_FIRST_VALUE;
    return QP_OK;
}

static qp_status read_value(qp_json_stream *s, qp_json_token *out, qp_err *err)
{
    int c = peek(s);
    if (c == '{' || c == '[') {
        *out = c == '{' ? QP_JSON_OBJECT : QP_JSON_ARRAY;
        return open_container(s, c == '{', err);
    }
    if (c == '"') {
        *out = QP_JSON_STR;
        QP_TRY(read_string(s, err));
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        *out = QP_JSON_NUM;
        QP_TRY(read_number(s, err));
    } else if (c == 't' || c == 'f') {
        *out = c == 't' ? QP_JSON_BOOL_TRUE : QP_JSON_BOOL_FALSE;
        QP_TRY(read_word(s, c == 't' ? "true" : "false", err));
    } else if (c == 'n') {
        *out = QP_JSON_NUL;
        QP_TRY(read_word(s, "null", err));
    } else {
        return bad(s, c < 0 ? "ends where a value must stand" : "not a JSON value", err);
    }
    after_value(s);
    return QP_OK;
}

static qp_status read_key(qp_json_stream *s, qp_json_token *out, qp_err *err)
{
    if (peek(s) != '"') return bad(s, "a key must stand here", err);
    QP_TRY(read_string(s, err));
    skip_space(s);
    if (peek(s) != ':') return bad(s, "':' must follow a key", err);
    s->pos++;
    s->state = WANT_VALUE;
    *out = QP_JSON_KEY;
    return QP_OK;
}

static void close_container(qp_json_stream *s, qp_json_token *out)
{
    s->depth--;
    *out = s->is_object[s->depth] ? QP_JSON_OBJECT_END : QP_JSON_ARRAY_END;
    s->pos++;
    after_value(s);
}

qp_status qp_json_stream_next(qp_json_stream *s, qp_json_token *out, qp_err *err)
{
    skip_space(s);
    int c = peek(s);
    if (s->state == WANT_NOTHING) {
        if (c >= 0) return bad(s, "more after the value's end", err);
        *out = QP_JSON_END;
        return QP_OK;
    }
    if (s->depth) {
        bool in_object = s->is_object[s->depth - 1];
        bool may_end = s->state == WANT_COMMA_OR_END || s->state == WANT_FIRST_KEY || s->state == WANT_FIRST_VALUE;
        if (may_end && c == (in_object ? '}' : ']')) {
            close_container(s, out);
            return QP_OK;
        }
        if (s->state == WANT_COMMA_OR_END) {
            if (c != ',') return bad(s, in_object ? "',' or '}' must stand here" : "',' or ']' must stand here", err);
            s->pos++;
            s->state = in_object ? WANT_KEY : WANT_VALUE;
            skip_space(s);
        }
        if (s->state == WANT_KEY || s->state == WANT_FIRST_KEY) return read_key(s, out, err);
    }
    return read_value(s, out, err);
}

qp_status qp_json_stream_expect(qp_json_stream *s, qp_json_token want, qp_err *err)
{
    static const char *const names[] = {"the end", "an object", "an object's end", "an array", "an array's end",
                                        "a key",   "a string",  "a number",        "true",     "false",
                                        "null"};
    qp_json_token got;
    QP_TRY(qp_json_stream_next(s, &got, err));
    if (got != want)
        return qp_fail(err, QP_EFORMAT, "%s: JSON at byte %zu: %s found, %s wanted", s->name, s->pos, names[got],
                       names[want]);
    return QP_OK;
}

qp_status qp_json_stream_skip(qp_json_stream *s, qp_err *err)
{
    uint32_t depth = s->depth;
    qp_json_token t;
    do {
        QP_TRY(qp_json_stream_next(s, &t, err));
    } while (s->depth > depth);
    return QP_OK;
}

qp_status qp_json_stream_span(qp_json_stream *s, const char **text, size_t *len, qp_err *err)
{
    uint32_t depth = s->depth;
    qp_json_token t;
    skip_space(s);
    if (s->state == WANT_COMMA_OR_END && peek(s) == ',') {
        s->pos++;
        skip_space(s);
        s->state = s->is_object[depth - 1] ? WANT_KEY : WANT_VALUE;
    }
    size_t start = s->pos;
    do {
        QP_TRY(qp_json_stream_next(s, &t, err));
    } while (s->depth > depth);
    if (s->depth < depth || t == QP_JSON_END || t == QP_JSON_KEY) return bad(s, "a value must stand here", err);
    *text = s->data + start;
    *len = s->pos - start;
    return QP_OK;
}

/* strtod in whatever locale is set: the point is replaced by the locale's. */
static bool slow_f64(const qp_json_stream *s, double *out)
{
    char buf[512], *end;
    const char *point = localeconv()->decimal_point;
    size_t n = 0, n_point = strlen(point);
    if (s->len + n_point >= sizeof buf) return false;
    for (size_t i = 0; i < s->len; i++) {
        if (s->text[i] == '.') {
            memcpy(buf + n, point, n_point);
            n += n_point;
        } else {
            buf[n++] = s->text[i];
        }
    }
    buf[n] = 0;
    *out = strtod(buf, &end);
    return n && end == buf + n && isfinite(*out);
}

bool qp_json_stream_as_f64(const qp_json_stream *s, double *out)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t m = 0;
    unsigned scale = 0;
    bool point = false, minus = s->len && s->text[0] == '-';
    for (size_t i = minus; i < s->len; i++) {
        char c = s->text[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (c < '0' || c > '9' || m >= ((uint64_t)1 << 53) / 10 - 1) return slow_f64(s, out);
        m = m * 10 + (unsigned)(c - '0');
        scale += point;
    }
    if (scale > 22 || s->len <= minus) return slow_f64(s, out);
    double v = (double)m / ten[scale]; /* both exact, so the one division rounds correctly */
    *out = minus ? -v : v;
    return true;
}

bool qp_json_stream_as_u64(const qp_json_stream *s, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s->len; i++) {
        if (s->text[i] < '0' || s->text[i] > '9') return false;
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(s->text[i] - '0'), &v))
            return false;
    }
    *out = v;
    return s->len > 0;
}

bool qp_json_stream_is(const qp_json_stream *s, const char *word)
{
    return strlen(word) == s->len && memcmp(s->text, word, s->len) == 0;
}
