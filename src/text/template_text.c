/* Text of template values: str, repr, JSON, shortest floats, HTML escapes. */
#include "text/template_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t qp_t_find_bytes(qp_trun *r, const char *p, size_t np, const char *q, size_t n)
{
    if (!n) return 0;
    for (const char *at = p, *end = p + np; (size_t)(end - at) >= n; at++) {
        size_t room = (size_t)(end - at) - n + 1;
        const char *hit = memchr(at, q[0], room);
        if (!qp_t_step_bytes(r, hit ? (size_t)(hit - at) : room)) return SIZE_MAX;
        if (!hit) return SIZE_MAX;
        if (n == 1) return (size_t)(hit - p);
        if (hit[1] == q[1]) {
            if (n > 32 && !qp_t_step_bytes(r, n)) return SIZE_MAX;
            if (!memcmp(hit, q, n)) return (size_t)(hit - p);
        }
        at = hit;
    }
    return SIZE_MAX;
}

/* The shortest digits that read back as f, laid out as Python's repr: exponents below -4 and from 16 on. */
void qp_t_float_repr(double f, char out[40])
{
    char sci[40], digits[24];
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    for (int prec = 0; prec < 17; prec++) {
        snprintf(sci, sizeof sci, "%.*e", prec, f);
        double back = strtod(sci, NULL);
        if (!(back < f) && !(back > f)) break;
    }
    size_t n = 0;
    const char *p = sci;
    bool minus = *p == '-';
    for (p += minus; *p && *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9' && n < sizeof digits - 1) digits[n++] = *p;
    }
    int exp = *p ? atoi(p + 1) : 0;
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = 0;
    char *o = out;
    if (minus) *o++ = '-';
    if (exp < -4 || exp >= 16) {
        o += snprintf(o, 26, "%c%s%s", digits[0], n > 1 ? "." : "", digits + 1);
        snprintf(o, 14, "e%c%02d", exp < 0 ? '-' : '+', exp < 0 ? -exp : exp);
    } else if (exp < 0) {
        snprintf(o, 36, "0.%.*s%s", -exp - 1, "0000", digits);
    } else {
        for (int i = 0; i <= exp; i++) *o++ = (size_t)i < n ? digits[i] : '0';
        *o++ = '.';
        snprintf(o, 20, "%s", n > (size_t)exp + 1 ? digits + exp + 1 : "0");
    }
}

bool qp_t_put_escaped(qp_trun *r, const char *p, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        const char *e = p[i] == '&'    ? "&amp;"
                        : p[i] == '<'  ? "&lt;"
                        : p[i] == '>'  ? "&gt;"
                        : p[i] == '"'  ? "&#34;"
                        : p[i] == '\'' ? "&#39;"
                                       : NULL;
        if (!e) continue;
        if (!qp_t_put(r, p + from, i - from) || !qp_t_putz(r, e)) return false;
        from = i + 1;
    }
    return qp_t_put(r, p + from, n - from);
}

/* ---- repr ---- */

static bool put_fmt(qp_trun *r, const char *fmt, unsigned v)
{
    char b[16];
    int n = fmt[0] == 'x'   ? snprintf(b, sizeof b, "\\x%02x", v)
            : fmt[0] == 'u' ? snprintf(b, sizeof b, "\\u%04x", v)
                            : snprintf(b, sizeof b, "\\U%08x", v);
    return qp_t_put(r, b, (size_t)n);
}

static bool put_str_repr(qp_trun *r, const qp_tstr *s, bool bytes)
{
    bool single = s->n && memchr(s->p, '\'', s->n), twice = s->n && memchr(s->p, '"', s->n);
    char quote = single && !twice ? '"' : '\'';
    size_t from = 0;
    if (!qp_t_put(r, &quote, 1)) return false;
    for (size_t i = 0, len; i < s->n; i += len) {
        int32_t cp = (unsigned char)s->p[i];
        const char *e = NULL;
        char two[3] = {'\\', (char)cp, 0};
        len = 1;
        if (cp >= 0x80 && !bytes) len = qp_t_next_cp(s->p + i, s->n - i, &cp);
        if (cp == quote || cp == '\\')
            e = two;
        else if (cp == '\n')
            e = "\\n";
        else if (cp == '\r')
            e = "\\r";
        else if (cp == '\t')
            e = "\\t";
        bool plain = cp >= 0x20 && cp < 0x7F;
        if (!e && (plain || (!bytes && cp >= 0x80 && qp_t_is_printable_cp(cp)))) continue;
        if (!qp_t_put(r, s->p + from, i - from)) return false;
        if (e ? !qp_t_putz(r, e) : !put_fmt(r, cp < 0x100 ? "x" : cp < 0x10000 ? "u" : "U", (unsigned)cp)) return false;
        from = i + len;
    }
    return qp_t_put(r, s->p + from, s->n - from) && qp_t_put(r, &quote, 1);
}

static bool put_list_repr(qp_trun *r, const qp_tlist *l, const char *open, const char *close, unsigned depth)
{
    if (!qp_t_putz(r, open)) return false;
    for (size_t i = 0; i < l->n; i++) {
        if ((i && !qp_t_put(r, ", ", 2)) || !qp_t_put_repr(r, l->v[i], depth + 1)) return false;
    }
    if (l->n == 1 && *open == '(' && !qp_t_put(r, ",", 1)) return false;
    return qp_t_putz(r, close);
}

static bool put_dict_repr(qp_trun *r, const qp_tdict *d, unsigned depth)
{
    if (!qp_t_put(r, "{", 1)) return false;
    for (size_t i = 0; i < d->n; i++) {
        if ((i && !qp_t_put(r, ", ", 2)) || !qp_t_put_repr(r, d->v[i].key, depth + 1) || !qp_t_put(r, ": ", 2) ||
            !qp_t_put_repr(r, d->v[i].val, depth + 1))
            return false;
    }
    return qp_t_put(r, "}", 1);
}

static bool put_view_repr(qp_trun *r, qp_tv v, unsigned depth)
{
    const qp_tdict *d = v.as.view->d;
    char which = v.as.view->which;
    if (!qp_t_putz(r, qp_t_type_name(v)) || !qp_t_put(r, "([", 2)) return false;
    for (size_t i = 0; i < d->n; i++) {
        if (i && !qp_t_put(r, ", ", 2)) return false;
        if (which == 'i' && !qp_t_put(r, "(", 1)) return false;
        if (which != 'v' && !qp_t_put_repr(r, d->v[i].key, depth + 1)) return false;
        if (which == 'i' && !qp_t_put(r, ", ", 2)) return false;
        if (which != 'k' && !qp_t_put_repr(r, d->v[i].val, depth + 1)) return false;
        if (which == 'i' && !qp_t_put(r, ")", 1)) return false;
    }
    return qp_t_put(r, "])", 2);
}

/* Objects whose Python repr holds an address print without it. */
static bool put_object_repr(qp_trun *r, qp_tv v, unsigned depth)
{
    char b[128];
    switch (v.kind) {
    case QP_V_RANGE:
        if (v.as.range->step == 1)
            snprintf(b, sizeof b, "range(%" PRId64 ", %" PRId64 ")", v.as.range->start, v.as.range->stop);
        else
            snprintf(b, sizeof b, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", v.as.range->start, v.as.range->stop,
                     v.as.range->step);
        return qp_t_putz(r, b);
    case QP_V_VIEW:
        return put_view_repr(r, v, depth);
    case QP_V_NS:
        return qp_t_putz(r, "<Namespace ") && put_dict_repr(r, v.as.d, depth) && qp_t_put(r, ">", 1);
    case QP_V_MACRO: {
        const qp_tstr *name = v.as.macro->node->name;
        return qp_t_putz(r, "<Macro '") && qp_t_put(r, name->p, name->n) && qp_t_putz(r, "'>");
    }
    case QP_V_LOOP: {
        size_t n;
        if (!qp_t_length(r, v, &n)) return false;
        snprintf(b, sizeof b, "<LoopContext %zu/%zu>", v.as.loop->index0 + 1, n);
        return qp_t_putz(r, b);
    }
    default:
        snprintf(b, sizeof b, "<%s object>", qp_t_type_name(v));
        return qp_t_putz(r, b);
    }
}

bool qp_t_put_repr(qp_trun *r, qp_tv v, unsigned depth)
{
    char b[40];
    if (depth > QP_T_MAX_VALUE_DEPTH) return qp_t_limit(r, "a value is nested too deep to print");
    if (!qp_t_step(r, 1)) return false;
    switch (v.kind) {
    case QP_V_UNDEF:
        return qp_t_putz(r, "Undefined");
    case QP_V_NONE:
        return qp_t_putz(r, "None");
    case QP_V_BOOL:
        return qp_t_putz(r, v.as.b ? "True" : "False");
    case QP_V_INT:
        return qp_t_put(r, b, (size_t)snprintf(b, sizeof b, "%" PRId64, v.as.i));
    case QP_V_BIG:
        return qp_t_put(r, v.as.s->p, v.as.s->n);
    case QP_V_FLOAT:
        qp_t_float_repr(v.as.f, b);
        return qp_t_putz(r, b);
    case QP_V_STR:
        if (!v.as.s->markup) return put_str_repr(r, v.as.s, false);
        return qp_t_putz(r, "Markup(") && put_str_repr(r, v.as.s, false) && qp_t_put(r, ")", 1);
    case QP_V_BYTES:
        return qp_t_put(r, "b", 1) && put_str_repr(r, v.as.s, true);
    case QP_V_LIST:
        return put_list_repr(r, v.as.l, "[", "]", depth);
    case QP_V_TUPLE:
        return put_list_repr(r, v.as.l, "(", ")", depth);
    case QP_V_DICT:
        return put_dict_repr(r, v.as.d, depth);
    default:
        return put_object_repr(r, v, depth);
    }
}

bool qp_t_put_str(qp_trun *r, qp_tv v)
{
    if (v.kind == QP_V_STR) return qp_t_put(r, v.as.s->p, v.as.s->n);
    if (v.kind == QP_V_UNDEF) return qp_t_step(r, 1);
    return qp_t_put_repr(r, v, 0);
}

/* ---- JSON ---- */

typedef struct json_style {
    bool ascii, sort, pretty;
    qp_tstr indent, item, key; /* one level; separators */
} json_style;

static bool put_json_str(qp_trun *r, const qp_tstr *s, bool ascii)
{
    size_t from = 0;
    if (!qp_t_put(r, "\"", 1)) return false;
    for (size_t i = 0, len; i < s->n; i += len) {
        int32_t cp = (unsigned char)s->p[i];
        char b[16];
        const char *e = NULL;
        len = 1;
        if (cp >= 0x80) len = qp_t_next_cp(s->p + i, s->n - i, &cp);
        switch (cp) {
        case '"':
            e = "\\\"";
            break;
        case '\\':
            e = "\\\\";
            break;
        case '\n':
            e = "\\n";
            break;
        case '\r':
            e = "\\r";
            break;
        case '\t':
            e = "\\t";
            break;
        case '\b':
            e = "\\b";
            break;
        case '\f':
            e = "\\f";
            break;
        default:
            if (cp >= 0x20 && (cp < 0x7F || !ascii)) continue;
            unsigned u = (unsigned)cp;
            if (u >= 0x10000)
                snprintf(b, sizeof b, "\\u%04x\\u%04x", 0xD7C0 + (u >> 10), 0xDC00 + (u & 0x3FF));
            else
                snprintf(b, sizeof b, "\\u%04x", u);
            e = b;
        }
        if (!qp_t_put(r, s->p + from, i - from) || !qp_t_putz(r, e)) return false;
        from = i + len;
    }
    return qp_t_put(r, s->p + from, s->n - from) && qp_t_put(r, "\"", 1);
}

static bool put_json_float(qp_trun *r, double f)
{
    char b[40];
    qp_t_float_repr(f, b);
    return qp_t_putz(r, isnan(f) ? "NaN" : isinf(f) ? (f < 0 ? "-Infinity" : "Infinity") : b);
}

static bool put_json(qp_trun *r, qp_tv v, const json_style *st, unsigned depth);

static bool put_json_gap(qp_trun *r, const json_style *st, bool first, unsigned depth)
{
    if (!first && !qp_t_put(r, st->item.p, st->item.n)) return false;
    return !st->pretty || (qp_t_put(r, "\n", 1) && qp_t_put_repeat(r, st->indent.p, st->indent.n, depth));
}

static bool put_json_key(qp_trun *r, qp_tv key, const json_style *st)
{
    qp_tv text;
    switch (key.kind) {
    case QP_V_STR:
        return put_json_str(r, key.as.s, st->ascii);
    case QP_V_BOOL:
        return qp_t_putz(r, key.as.b ? "\"true\"" : "\"false\"");
    case QP_V_NONE:
        return qp_t_putz(r, "\"null\"");
    case QP_V_FLOAT:
        return qp_t_put(r, "\"", 1) && put_json_float(r, key.as.f) && qp_t_put(r, "\"", 1);
    case QP_V_INT:
    case QP_V_BIG:
        return qp_t_str_of(r, key, &text) && put_json_str(r, text.as.s, st->ascii);
    default:
        return qp_t_fail(r, QP_TE_RUNTIME, "keys must be str, int, float, bool or None, not %s", qp_t_type_name(key));
    }
}

static bool put_json_dict(qp_trun *r, qp_tdict *d, const json_style *st, unsigned depth)
{
    qp_tv keys, vals;
    if (!d->n) return qp_t_put(r, "{}", 2);
    if (!qp_t_new_list(r, QP_V_LIST, d->n, &keys) || !qp_t_new_list(r, QP_V_LIST, d->n, &vals)) return false;
    for (size_t i = 0; i < d->n; i++) {
        keys.as.l->v[i] = d->v[i].key;
        vals.as.l->v[i] = d->v[i].val;
    }
    if (st->sort && !qp_t_sort(r, keys.as.l->v, vals.as.l->v, d->n, false)) return false;
    if (!qp_t_put(r, "{", 1)) return false;
    for (size_t i = 0; i < d->n; i++) {
        if (!put_json_gap(r, st, i == 0, depth + 1) || !put_json_key(r, keys.as.l->v[i], st) ||
            !qp_t_put(r, st->key.p, st->key.n) || !put_json(r, vals.as.l->v[i], st, depth + 1))
            return false;
    }
    return put_json_gap(r, st, true, depth) && qp_t_put(r, "}", 1);
}

static bool put_json(qp_trun *r, qp_tv v, const json_style *st, unsigned depth)
{
    if (depth > QP_T_MAX_VALUE_DEPTH) return qp_t_limit(r, "a value is nested too deep for tojson");
    if (!qp_t_step(r, 1)) return false;
    switch (v.kind) {
    case QP_V_NONE:
        return qp_t_putz(r, "null");
    case QP_V_BOOL:
        return qp_t_putz(r, v.as.b ? "true" : "false");
    case QP_V_INT:
    case QP_V_BIG:
        return qp_t_put_repr(r, v, 0);
    case QP_V_FLOAT:
        return put_json_float(r, v.as.f);
    case QP_V_STR:
        return put_json_str(r, v.as.s, st->ascii);
    case QP_V_LIST:
    case QP_V_TUPLE:
        if (!v.as.l->n) return qp_t_put(r, "[]", 2);
        if (!qp_t_put(r, "[", 1)) return false;
        for (size_t i = 0; i < v.as.l->n; i++) {
            if (!put_json_gap(r, st, i == 0, depth + 1) || !put_json(r, v.as.l->v[i], st, depth + 1)) return false;
        }
        return put_json_gap(r, st, true, depth) && qp_t_put(r, "]", 1);
    case QP_V_DICT:
        return put_json_dict(r, v.as.d, st, depth);
    case QP_V_UNDEF:
        if (v.as.u->error == QP_TE_SECURITY) return qp_t_use_undef(r, v);
        return qp_t_fail(r, QP_TE_RUNTIME, "Object of type Undefined is not JSON serializable");
    default:
        return qp_t_fail(r, QP_TE_RUNTIME, "Object of type %s is not JSON serializable",
                         v.kind == QP_V_NS ? "TemplateNamespace" : qp_t_type_name(v));
    }
}

static bool json_separators(qp_trun *r, qp_tv v, json_style *st)
{
    if (v.kind == QP_V_MISSING || v.kind == QP_V_NONE) return true;
    if (!qp_t_is_seq(v) || v.as.l->n != 2 || v.as.l->v[0].kind != QP_V_STR || v.as.l->v[1].kind != QP_V_STR)
        return qp_t_fail(r, QP_TE_RUNTIME, "tojson: separators must be a pair of strings");
    st->item = *v.as.l->v[0].as.s;
    st->key = *v.as.l->v[1].as.s;
    return true;
}

bool qp_t_tojson(qp_trun *r, qp_tv *a, qp_tv v, qp_tv *out)
{
    static const char spaces[] = "                                ";
    size_t mark = r->buf.len;
    json_style st = {qp_t_truth(a[0]),         qp_t_truth(a[3]),       false,
                     {spaces, 0, 0, 0, false}, {", ", 2, 2, 0, false}, {": ", 2, 2, 0, false}};
    int64_t width;
    if (a[1].kind == QP_V_STR) {
        st.pretty = true;
        st.indent = *a[1].as.s;
    } else if (qp_t_as_int(a[1], &width)) {
        st.pretty = true;
        if (width > (int64_t)sizeof spaces - 1) return qp_t_limit(r, "tojson: an indent of more than 32 spaces");
        st.indent.n = width > 0 ? (size_t)width : 0;
    } else if (a[1].kind != QP_V_MISSING && a[1].kind != QP_V_NONE) {
        return qp_t_fail(r, QP_TE_RUNTIME, "tojson: indent must be an integer, a string or none, not %s",
                         qp_t_type_name(a[1]));
    }
    if (st.pretty) st.item = (qp_tstr){",", 1, 1, 0, false};
    if (!json_separators(r, a[2], &st)) return false;
    return put_json(r, v, &st, 0) && qp_t_take(r, mark, out);
}
