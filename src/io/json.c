/* JSON: see json.h. */
#include "io/json.h"

#include "base/alloc.h"
#include "io/limits.h"
#include "io/map.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* jansson reports a failed allocation as a syntax error at times, so failures are noted here. */
static _Thread_local bool out_of_memory;

static void *noting_malloc(size_t size)
{
    void *p = qp_malloc(size);
    if (!p) out_of_memory = true;
    return p;
}

static void install(void)
{
    json_set_alloc_funcs(noting_malloc, qp_free);
}

void qp_json_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

/* Nesting is bounded before jansson recurses. Strings are skipped so that brackets inside them do not count. */
static bool depth_ok(const char *s, size_t n)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > QP_MAX_JSON_DEPTH) return false;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return true;
}

qp_status qp_json_parse(json_t **out, const char *data, size_t n, const char *name, qp_err *err)
{
    json_error_t e;
    qp_json_init();
    if (n > QP_MAX_JSON_BYTES)
        return qp_fail(err, QP_ELIMIT, "%s: %zu bytes of JSON, at most %zu", name, n, QP_MAX_JSON_BYTES);
    if (!depth_ok(data, n)) return qp_fail(err, QP_EFORMAT, "%s: JSON nested deeper than %d", name, QP_MAX_JSON_DEPTH);
    out_of_memory = false;
    json_t *v = json_loadb(data, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (out_of_memory) { /* even a value may be wrong then: jansson drops characters of a string that cannot grow */
        json_decref(v);
        return qp_fail(err, QP_ENOMEM, "%s: no memory for its JSON", name);
    }
    if (!v) {
        return qp_fail(err, QP_EFORMAT, "%s: line %d, column %d: %s", name, e.line, e.column, e.text);
    }
    *out = v;
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
