/* JSON: see json.h. */
#include "io/json.h"

#include "base/alloc.h"
#include "io/json_stream.h"
#include "io/limits.h"
#include "io/map.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static void install(void)
{
    json_set_alloc_funcs(qp_malloc, qp_free);
}

void qp_json_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

/* The value of the token just read; a container comes back empty. jansson's own reader is not used: it drops some
 * failed allocations, and then crashes or succeeds with a part of a string missing. NULL: *st says why. */
static json_t *make_value(const qp_json_stream *s, qp_json_token t, qp_status *st, qp_err *err)
{
    double d;
    json_t *v = NULL;
    if (t == QP_JSON_OBJECT) v = json_object();
    if (t == QP_JSON_ARRAY) v = json_array();
    if (t == QP_JSON_STR) v = json_stringn_nocheck(s->text, s->len);
    if (t == QP_JSON_BOOL_TRUE) v = json_true();
    if (t == QP_JSON_BOOL_FALSE) v = json_false();
    if (t == QP_JSON_NUL) v = json_null();
    if (t == QP_JSON_NUM) {
        bool minus = s->text[0] == '-', integer = true;
        uint64_t u = 0;
        qp_json_stream digits = *s;
        digits.text += minus;
        digits.len -= minus;
        for (size_t i = 0; i < digits.len; i++) integer &= digits.text[i] >= '0' && digits.text[i] <= '9';
        if (integer && qp_json_stream_as_u64(&digits, &u) && u <= (uint64_t)INT64_MAX) {
            v = json_integer(minus ? -(json_int_t)u : (json_int_t)u);
        } else if (!integer && qp_json_stream_as_f64(s, &d)) {
            v = json_real(d);
        } else {
            *st = qp_fail(err, QP_EFORMAT, "%s: JSON at byte %zu: number %.*s is too large", s->name, s->pos,
                          (int)(s->len < 40 ? s->len : 40), s->text);
            return NULL;
        }
    }
    if (!v) *st = qp_fail(err, QP_ENOMEM, "%s: no memory for its JSON", s->name);
    return v;
}

/* A key, copied: the value after it overwrites the stream's text. */
static qp_status read_key(const qp_json_stream *s, const json_t *in, qp_buf *key, qp_err *err)
{
    qp_buf_clear(key);
    qp_buf_add(key, s->text, s->len);
    QP_TRY(qp_buf_check(key, s->name, err));
    if (memchr(s->text, 0, s->len))
        return qp_fail(err, QP_EFORMAT, "%s: JSON at byte %zu: NUL in a key", s->name, s->pos);
    if (json_object_get(in, key->data))
        return qp_fail(err, QP_EFORMAT, "%s: JSON at byte %zu: duplicate key \"%.60s\"", s->name, s->pos, key->data);
    return QP_OK;
}

/* Builds the tree. level[] are the open containers; each is owned by the one before it, the first by *top. */
static qp_status build(qp_json_stream *s, json_t **top, qp_buf *key, qp_err *err)
{
    json_t *level[QP_MAX_JSON_DEPTH];
    for (;;) {
        qp_json_token t;
        qp_status st = QP_OK;
        json_t *in = s->depth ? level[s->depth - 1] : NULL, *v;
        QP_TRY(qp_json_stream_next(s, &t, err));
        if (t == QP_JSON_END) return QP_OK;
        if (t == QP_JSON_OBJECT_END || t == QP_JSON_ARRAY_END) continue;
        if (t == QP_JSON_KEY) {
            QP_TRY(read_key(s, in, key, err));
            continue;
        }
        if (!(v = make_value(s, t, &st, err))) return st;
        if (t == QP_JSON_OBJECT || t == QP_JSON_ARRAY) level[s->depth - 1] = v;
        if (!in)
            *top = v;
        else if (json_is_object(in) ? json_object_set_new_nocheck(in, key->data, v) : json_array_append_new(in, v))
            return qp_fail(err, QP_ENOMEM, "%s: no memory for its JSON", s->name);
    }
}

qp_status qp_json_parse(json_t **out, const char *data, size_t n, const char *name, qp_err *err)
{
    qp_json_stream s;
    qp_buf key = {0};
    json_t *top = NULL;
    qp_json_init();
    if (n > QP_MAX_JSON_BYTES)
        return qp_fail(err, QP_ELIMIT, "%s: %zu bytes of JSON, at most %zu", name, n, QP_MAX_JSON_BYTES);
    qp_json_stream_init(&s, data, n, name);
    qp_status st = build(&s, &top, &key, err);
    qp_json_stream_deinit(&s);
    qp_buf_deinit(&key);
    if (st != QP_OK) {
        json_decref(top);
        return st;
    }
    *out = top;
    return QP_OK;
}

qp_status qp_json_load(json_t **out, const char *path, qp_err *err)
{
    qp_map m;
    QP_TRY(qp_map_open(&m, path, err));
    qp_status st = qp_json_parse(out, m.len ? (const char *)m.data : "", m.len, path, err);
    qp_map_close(&m);
    return st;
}

qp_status qp_json_get_u32(const json_t *obj, const char *key, uint32_t lo, uint32_t hi, bool has_fallback,
                          uint32_t fallback, uint32_t *out, const char *where, qp_err *err)
{
    const json_t *v = json_object_get(obj, key);
    double d;
    if (!v || json_is_null(v)) {
        if (!has_fallback) return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is missing", where, key);
        *out = fallback;
        return QP_OK;
    }
    if (!json_is_number(v)) return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is not a number", where, key);
    d = json_number_value(v);
    if (!(d >= lo && d <= hi) || floor(d) < d)
        return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is %g, must be an integer in %u..%u", where, key, d, lo, hi);
    *out = (uint32_t)d;
    return QP_OK;
}

qp_status qp_json_get_f64(const json_t *obj, const char *key, bool has_fallback, double fallback, double *out,
                          const char *where, qp_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) {
        if (!has_fallback) return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is missing", where, key);
        *out = fallback;
        return QP_OK;
    }
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is not a finite number", where, key);
    *out = json_number_value(v);
    return QP_OK;
}

qp_status qp_json_get_bool(const json_t *obj, const char *key, bool fallback, bool *out, const char *where, qp_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) {
        *out = fallback;
        return QP_OK;
    }
    if (!json_is_boolean(v)) return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is not true or false", where, key);
    *out = json_is_true(v);
    return QP_OK;
}

qp_status qp_json_get_str(const json_t *obj, const char *key, const char *fallback, const char **out, const char *where,
                          qp_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) {
        *out = fallback;
        return QP_OK;
    }
    if (!json_is_string(v)) return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is not a string", where, key);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return qp_fail(err, QP_EFORMAT, "%s: \"%s\" holds a NUL character", where, key);
    *out = json_string_value(v);
    return QP_OK;
}

void qp_json_add_str(qp_buf *out, const char *s, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t start = 0;
    qp_buf_addc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        qp_buf_add(out, s + start, i - start);
        start = i + 1;
        const char *at = c ? strchr(from, c) : NULL;
        if (at)
            qp_buf_printf(out, "\\%c", to[at - from]);
        else
            qp_buf_printf(out, "\\u%04x", c);
    }
    qp_buf_add(out, s + start, n - start);
    qp_buf_addc(out, '"');
}
