/* Filters that work on one value: text, numbers, JSON. */
#include "text/template_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef qp_tcall call;

#define UNUSED(x) (void)(x)

static bool int_arg(qp_trun *r, const char *what, qp_tv v, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (v.kind == QP_V_MISSING) return true;
    if (v.kind == QP_V_UNDEF) return qp_t_use_undef(r, v);
    return qp_t_as_int(v, out) ? true
                               : qp_t_fail(r, QP_TE_RUNTIME, "%s must be an integer, not %s", what, qp_t_type_name(v));
}

/* ---- text ---- */

static bool f_upper(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_soft_str(r, self, &self) && qp_t_case(r, self, QP_CASE_UPPER, out);
}

static bool f_lower(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_soft_str(r, self, &self) && qp_t_case(r, self, QP_CASE_LOWER, out);
}

static bool f_capitalize(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_soft_str(r, self, &self) && qp_t_capitalize(r, self, out);
}

static bool starts_word_after(int32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || qp_t_is_space(cp);
}

/* Unlike str.title: a word begins after whitespace, -, (, {, [ or <, and nowhere else. */
static bool f_title(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    size_t mark = r->buf.len;
    bool start = true;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_soft_str(r, self, &self)) return false;
    const qp_tstr *s = self.as.s;
    for (size_t i = 0, len; i < s->n; i += len) {
        int32_t cp;
        len = qp_t_next_cp(s->p + i, s->n - i, &cp);
        if (start ? !qp_t_put_case(r, cp, QP_CASE_UPPER) : !qp_t_put_lower(r, s->p, s->n, i)) return false;
        start = starts_word_after(cp);
    }
    return qp_t_take(r, mark, out);
}

static bool f_trim(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_soft_str(r, self, &self) && qp_t_strip(r, self, a[0], true, true, out);
}

static bool f_string(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_soft_str(r, self, out);
}

static bool f_safe(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_str_of(r, self, &self) || !qp_t_sub_str(r, self, 0, self.as.s->n, out)) return false;
    out->as.s->markup = true;
    return true;
}

static bool f_forceescape(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    size_t mark = r->buf.len;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_str_of(r, self, &self) || !qp_t_put_escaped(r, self.as.s->p, self.as.s->n)) return false;
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = true;
    return true;
}

static bool f_escape(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    *out = self;
    return self.kind == QP_V_STR && self.as.s->markup ? true : f_forceescape(r, self, a, c, out);
}

static bool f_replace(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_str_of(r, self, &self) && qp_t_str_of(r, a[0], &a[0]) && qp_t_str_of(r, a[1], &a[1]) &&
           qp_t_replace(r, self, a[0], a[1], a[2], out);
}

static bool f_center(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_soft_str(r, self, &self) && qp_t_center(r, self, a[0].kind == QP_V_MISSING ? qp_t_int(80) : a[0], out);
}

/* Lines after the first are indented; blank ones only if asked. */
static bool f_indent(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tvec lines = {0};
    qp_tv text;
    int64_t width = 4;
    size_t mark = r->buf.len;
    bool first = qp_t_truth(a[1]), blank = qp_t_truth(a[2]);
    UNUSED(c);
    if (self.kind == QP_V_UNDEF) return qp_t_use_undef(r, self);
    if (self.kind != QP_V_STR)
        return qp_t_fail(r, QP_TE_RUNTIME, "indent wants a string, not %s", qp_t_type_name(self));
    if (a[0].kind != QP_V_STR && !int_arg(r, "indent: width", a[0], 4, &width)) return false;
    size_t n = width > 0 ? (size_t)width : 0;
    if (n > r->buf.limit) return qp_t_limit(r, "indent: too wide");
    /* A newline is added so that text ending in one keeps its last, empty line; splitlines then drops the added one. */
    if (!qp_t_put_str(r, self) || !qp_t_put(r, "\n", 1) || !qp_t_take(r, mark, &text)) return false;
    if (!qp_t_splitlines(r, text, false, &lines)) return false;
    for (size_t i = 0; i < lines.n; i++) {
        if (i && !qp_t_put(r, "\n", 1)) return false;
        bool indented = i ? blank || lines.v[i].as.s->n : first;
        if (indented && !(a[0].kind == QP_V_STR ? qp_t_put_str(r, a[0]) : qp_t_put_repeat(r, " ", 1, n))) return false;
        if (!qp_t_put_str(r, lines.v[i])) return false;
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = self.kind == QP_V_STR && self.as.s->markup;
    return true;
}

static bool f_truncate(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t length, leeway;
    qp_tv end;
    UNUSED(c);
    if (!int_arg(r, "truncate: length", a[0], 255, &length)) return false;
    if (!int_arg(r, "truncate: leeway", a[3].kind == QP_V_NONE ? qp_t_missing() : a[3], 5, &leeway)) return false;
    if (self.kind != QP_V_STR) { /* lists and the like pass when they are short */
        size_t len;
        *out = self;
        if (!qp_t_length(r, self, &len)) return false;
        if ((int64_t)len <= length + leeway) return true;
        return qp_t_fail(r, QP_TE_RUNTIME, "truncate wants a string, not %s", qp_t_type_name(self));
    }
    if (a[2].kind == QP_V_MISSING ? !qp_t_borrow_str(r, "...", 3, &end) : !qp_t_soft_str(r, a[2], &end)) return false;
    int64_t n_end = (int64_t)qp_t_ncp(end.as.s), n = (int64_t)qp_t_ncp(self.as.s);
    if (length < n_end)
        return qp_t_fail(r, QP_TE_RUNTIME, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0) return qp_t_fail(r, QP_TE_RUNTIME, "expected leeway >= 0, got %lld", (long long)leeway);
    *out = self;
    if (n <= length || n - length <= leeway) return true;
    if (!qp_t_step_bytes(r, self.as.s->n)) return false;
    size_t cut = qp_t_offset(self.as.s, (size_t)(length - n_end)), mark = r->buf.len;
    for (size_t i = cut; !qp_t_truth(a[1]) && i-- > 0;) {
        if (self.as.s->p[i] != ' ') continue;
        cut = i;
        break;
    }
    return qp_t_put(r, self.as.s->p, cut) && qp_t_put_str(r, end) && qp_t_take(r, mark, out);
}

static bool f_wordcount(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t n = 0;
    bool in_word = false;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_soft_str(r, self, &self) || !qp_t_step_bytes(r, self.as.s->n)) return false;
    for (size_t i = 0; i < self.as.s->n;) {
        int32_t cp;
        i += qp_t_next_cp(self.as.s->p + i, self.as.s->n - i, &cp);
        bool word = cp == '_' || qp_t_is_alpha_cp(cp) || qp_t_is_numeric_cp(cp);
        n += word && !in_word;
        in_word = word;
    }
    *out = qp_t_int(n);
    return true;
}

static bool put_quoted(qp_trun *r, qp_tv v, bool for_query)
{
    if (!qp_t_str_of(r, v, &v)) return false;
    for (size_t i = 0; i < v.as.s->n; i++) {
        unsigned char ch = (unsigned char)v.as.s->p[i];
        char b[8];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
                     (ch && strchr("-_.~", ch)) || (ch == '/' && !for_query);
        if (plain                    ? !qp_t_put(r, (char *)&ch, 1)
            : ch == ' ' && for_query ? !qp_t_put(r, "+", 1)
                                     : !qp_t_put(r, b, (size_t)snprintf(b, sizeof b, "%%%02X", ch)))
            return false;
    }
    return true;
}

static bool f_urlencode(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_titer *it;
    qp_tv pair, list;
    qp_tvec pairs = {0};
    UNUSED(a);
    UNUSED(c);
    bool one = self.kind != QP_V_DICT && self.kind != QP_V_VIEW && self.kind != QP_V_ITER && !qp_t_is_seq(self) &&
               self.kind != QP_V_RANGE && self.kind != QP_V_BYTES;
    if (self.kind == QP_V_DICT) {
        for (size_t i = 0; i < self.as.d->n; i++) {
            if (!qp_t_new_list(r, QP_V_TUPLE, 2, &pair)) return false;
            pair.as.l->v[0] = self.as.d->v[i].key;
            pair.as.l->v[1] = self.as.d->v[i].val;
            if (!qp_t_push(r, &pairs, pair)) return false;
        }
    } else if (!one && (!qp_t_iter(r, self, &it) || !qp_t_iter_rest(r, it, &pairs))) {
        return false;
    }
    size_t mark = r->buf.len;
    if (one && !put_quoted(r, self, false)) return false;
    for (size_t i = 0; i < pairs.n; i++) {
        if (!qp_t_to_list(r, pairs.v[i], &list)) return false;
        if (list.as.l->n != 2) return qp_t_fail(r, QP_TE_RUNTIME, "urlencode: not a pair");
        if ((i && !qp_t_put(r, "&", 1)) || !put_quoted(r, list.as.l->v[0], true) || !qp_t_put(r, "=", 1) ||
            !put_quoted(r, list.as.l->v[1], true))
            return false;
    }
    return qp_t_take(r, mark, out);
}

/* Removes tags and comments, collapses whitespace, turns the five basic entities back. */
static bool f_striptags(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    static const char *const entities[][2] = {{"&lt;", "<"},  {"&gt;", ">"},   {"&quot;", "\""}, {"&#34;", "\""},
                                              {"&#39;", "'"}, {"&#x27;", "'"}, {"&amp;", "&"}};
    size_t mark = r->buf.len;
    bool gap = false, any = false;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_str_of(r, self, &self)) return false;
    const qp_tstr *s = self.as.s;
    for (size_t i = 0, len; i < s->n; i += len) {
        int32_t cp;
        len = qp_t_next_cp(s->p + i, s->n - i, &cp);
        if (cp == '<') {
            bool comment = s->n - i >= 4 && !memcmp(s->p + i, "<!--", 4);
            const char *close = comment ? "-->" : ">";
            size_t end = qp_t_find_bytes(r, s->p + i, s->n - i, close, strlen(close));
            if (r->kind != QP_TE_NONE) return false;
            if (end != SIZE_MAX) {
                len = end + strlen(close);
                continue;
            }
        }
        if (qp_t_is_space(cp)) {
            gap = true;
            continue;
        }
        if (gap && any && !qp_t_put(r, " ", 1)) return false;
        gap = false;
        any = true;
        const char *text = s->p + i;
        size_t n = len;
        for (size_t k = 0; cp == '&' && k < sizeof entities / sizeof *entities; k++) {
            size_t m = strlen(entities[k][0]);
            if (s->n - i < m || memcmp(s->p + i, entities[k][0], m)) continue;
            text = entities[k][1];
            n = 1;
            len = m;
        }
        if (!qp_t_put(r, text, n)) return false;
    }
    return qp_t_take(r, mark, out);
}

static bool f_format(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tv args;
    UNUSED(a);
    if (c->n && c->n_kw)
        return qp_t_fail(r, QP_TE_RUNTIME, "can't handle positional and keyword arguments at the same time");
    if (!qp_t_soft_str(r, self, &self)) return false;
    if (c->n_kw) {
        if (!qp_t_new_dict(r, QP_V_DICT, &args)) return false;
        for (size_t i = 0; i < c->n_kw; i++) {
            if (!qp_t_dict_set(r, args.as.d, c->kw[i].key, c->kw[i].val)) return false;
        }
    } else {
        if (!qp_t_new_list(r, QP_V_TUPLE, c->n, &args)) return false;
        if (c->n) memcpy(args.as.l->v, c->v, c->n * sizeof *c->v);
    }
    return qp_t_percent(r, self, args, out);
}

static bool f_tojson(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_tojson(r, a, self, out);
}

/* ---- defaults, attributes, numbers ---- */

static bool f_default(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    *out = self;
    if (self.kind != QP_V_UNDEF && !(qp_t_truth(a[1]) && !qp_t_truth(self))) return true;
    *out = a[0];
    return a[0].kind != QP_V_MISSING || qp_t_borrow_str(r, "", 0, out);
}

static bool f_attr(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tv name;
    UNUSED(c);
    if (!qp_t_str_of(r, a[0], &name) || !qp_t_attribute(r, self, name.as.s, out)) return false;
    if (out->kind != QP_V_MISSING) return true;
    size_t n = name.as.s->n > 100 ? 100 : name.as.s->n;
    return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "'%s object' has no attribute '%.*s'", qp_t_type_name(self), (int)n,
                          name.as.s->p);
}

static bool f_abs(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t i;
    UNUSED(a);
    UNUSED(c);
    if (self.kind == QP_V_FLOAT) {
        *out = qp_t_float(fabs(self.as.f));
        return true;
    }
    if (!qp_t_as_int(self, &i))
        return qp_t_fail(r, QP_TE_RUNTIME, "bad operand type for abs(): '%s'", qp_t_type_name(self));
    return qp_t_negate(r, qp_t_int(i), i < 0, out);
}

/* float(text) as Python reads it: surrounding whitespace, single underscores between digits, inf and nan. */
static bool text_to_float(qp_trun *r, qp_tv s, bool *ok, double *out)
{
    char b[512];
    size_t n = 0;
    qp_tv t;
    *ok = false;
    if (!qp_t_strip(r, s, qp_t_missing(), true, true, &t)) return false;
    if (!t.as.s->n || t.as.s->n >= sizeof b) return true;
    for (size_t i = 0; i < t.as.s->n; i++) {
        char ch = t.as.s->p[i];
        bool digit = ch >= '0' && ch <= '9';
        if (ch == '_') {
            bool between = i && i + 1 < t.as.s->n && t.as.s->p[i - 1] >= '0' && t.as.s->p[i - 1] <= '9' &&
                           t.as.s->p[i + 1] >= '0' && t.as.s->p[i + 1] <= '9';
            if (!between) return true;
            continue;
        }
        if (!digit && (!ch || !strchr("+-.eEinfatyINFATY", ch))) return true; /* no hexadecimal, no nan(...) */
        b[n++] = ch;
    }
    b[n] = 0;
    char *end;
    *out = strtod(b, &end);
    *ok = end != b && !*end;
    return true;
}

static bool f_float(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t i;
    double f;
    bool ok = false;
    UNUSED(c);
    if (self.kind == QP_V_UNDEF) return qp_t_use_undef(r, self);
    if (self.kind == QP_V_FLOAT) {
        f = self.as.f;
        ok = true;
    } else if (qp_t_as_int(self, &i)) {
        f = (double)i;
        ok = true;
    } else if (self.kind == QP_V_STR && !text_to_float(r, self, &ok, &f)) {
        return false;
    }
    *out = ok ? qp_t_float(f) : a[0].kind == QP_V_MISSING ? qp_t_float(0) : a[0];
    return true;
}

/* int(text, base). *ok false: not an integer. */
static bool text_to_int(qp_trun *r, qp_tv s, int64_t base, bool *ok, int64_t *out)
{
    char b[128];
    size_t n = 0;
    qp_tv t;
    *ok = false;
    if (!qp_t_strip(r, s, qp_t_missing(), true, true, &t)) return false;
    const char *p = t.as.s->p;
    size_t len = t.as.s->n, i = 0;
    if (!len || len >= sizeof b) return true;
    if (p[0] == '+' || p[0] == '-') b[n++] = p[i++];
    if (len - i > 2 && p[i] == '0') {
        char c = (char)(p[i + 1] | 0x20);
        int64_t named = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (named && (base == named || base == 0)) {
            base = named;
            i += 2;
        }
    }
    if (base == 0) base = 10;
    for (size_t from = i; i < len; i++) {
        if (p[i] == '_' && i > from && i + 1 < len && p[i - 1] != '_') continue;
        int v = p[i] >= '0' && p[i] <= '9'                     ? p[i] - '0'
                : (p[i] | 0x20) >= 'a' && (p[i] | 0x20) <= 'z' ? (p[i] | 0x20) - 'a' + 10
                                                               : 99;
        if (v >= base) return true;
        b[n++] = p[i];
    }
    if (!n || (n == 1 && (b[0] == '+' || b[0] == '-'))) return true;
    b[n] = 0;
    errno = 0;
    *out = strtoll(b, NULL, (int)base);
    if (errno == ERANGE) return qp_t_fail(r, QP_TE_RUNTIME, "integer result does not fit 64 bits");
    *ok = true;
    return true;
}

static bool float_to_int(qp_trun *r, double f, bool *ok, int64_t *out)
{
    *ok = isfinite(f);
    if (!*ok) return true;
    if (!(f > -9223372036854775809.0 && f < 9223372036854775808.0))
        return qp_t_fail(r, QP_TE_RUNTIME, "integer result does not fit 64 bits");
    *out = (int64_t)f;
    return true;
}

static bool f_int(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t i = 0, base;
    bool ok = false;
    double f;
    UNUSED(c);
    if (!int_arg(r, "int: base", a[1], 10, &base)) return false;
    if (base != 0 && (base < 2 || base > 36))
        return qp_t_fail(r, QP_TE_RUNTIME, "int() base must be >= 2 and <= 36, or 0");
    if (self.kind == QP_V_UNDEF) return qp_t_use_undef(r, self);
    if (qp_t_as_int(self, &i)) {
        ok = true;
    } else if (self.kind == QP_V_FLOAT) {
        if (!float_to_int(r, self.as.f, &ok, &i)) return false;
    } else if (self.kind == QP_V_STR) {
        if (!text_to_int(r, self, base, &ok, &i)) return false;
        if (!ok) {
            if (!text_to_float(r, self, &ok, &f)) return false;
            if (ok && !float_to_int(r, f, &ok, &i)) return false;
        }
    }
    *out = ok ? qp_t_int(i) : a[0].kind == QP_V_MISSING ? qp_t_int(0) : a[0];
    return true;
}

/* Python's round: the decimal expansion of the double decides, ties to even. */
static bool f_round(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t prec, i;
    bool common = a[1].kind == QP_V_MISSING;
    UNUSED(c);
    if (!int_arg(r, "round: precision", a[0], 0, &prec)) return false;
    if (!common && a[1].kind != QP_V_STR) return qp_t_fail(r, QP_TE_RUNTIME, "method must be common, ceil or floor");
    const qp_tstr *m = common ? NULL : a[1].as.s;
    bool ceils = m && m->n == 4 && !memcmp(m->p, "ceil", 4), floors = m && m->n == 5 && !memcmp(m->p, "floor", 5);
    if (m && m->n == 6 && !memcmp(m->p, "common", 6)) common = true;
    if (!common && !ceils && !floors) return qp_t_fail(r, QP_TE_RUNTIME, "method must be common, ceil or floor");
    bool is_int = qp_t_as_int(self, &i);
    if (!is_int && self.kind != QP_V_FLOAT)
        return qp_t_fail(r, QP_TE_RUNTIME, "type %s doesn't define __round__ method", qp_t_type_name(self));
    double f = is_int ? (double)i : self.as.f;
    if (prec > 300 || prec < -300) return qp_t_limit(r, "round: more than 300 digits");
    if (common && is_int && prec >= 0) {
        *out = qp_t_int(i);
    } else if (common) {
        char b[700];
        double unit = pow(10, (double)-prec);
        if (prec >= 0) {
            snprintf(b, sizeof b, "%.*f", (int)prec, f);
            f = strtod(b, NULL);
        } else {
            f = rint(f / unit) * unit;
        }
        *out = is_int ? qp_t_int((int64_t)f) : qp_t_float(f);
    } else {
        double unit = pow(10, (double)prec);
        *out = qp_t_float((ceils ? ceil(f * unit) : floor(f * unit)) / unit);
    }
    return true;
}

const qp_tentry qp_t_filters_text[] = {
    {"tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"default", f_default, "default_value,boolean", 0},
    {"d", f_default, "default_value,boolean", 0},
    {"string", f_string, "", 0},
    {"safe", f_safe, "", 0},
    {"replace", f_replace, "old,new,count", 2},
    {"upper", f_upper, "", 0},
    {"lower", f_lower, "", 0},
    {"capitalize", f_capitalize, "", 0},
    {"title", f_title, "", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 0},
    {"center", f_center, "width", 0},
    {"indent", f_indent, "width,first,blank", 0},
    {"truncate", f_truncate, "length,killwords,end,leeway", 0},
    {"wordcount", f_wordcount, "", 0},
    {"urlencode", f_urlencode, "", 0},
    {"striptags", f_striptags, "", 0},
    {"format", f_format, "*", 0},
    {"attr", f_attr, "name", 1},
    {"abs", f_abs, "", 0},
    {"float", f_float, "default", 0},
    {"int", f_int, "default,base", 0},
    {"round", f_round, "precision,method", 0},
};
const size_t qp_t_n_filters_text = sizeof qp_t_filters_text / sizeof *qp_t_filters_text;
