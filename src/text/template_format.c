/* printf-style formatting ("%s" % x, |format) and str.format, as Python does them. */
#include "text/template_impl.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_WIDTH 1000000
#define MAX_PREC 400

typedef struct spec {
    bool minus, plus, space, zero, alt, comma;
    int32_t fill;        /* 0: default */
    char align;          /* '<', '>', '^', '=' or 0 */
    int64_t width, prec; /* prec -1: none */
    char type;
} spec;

static bool bad_type(qp_trun *r, char type, const char *wanted, qp_tv v)
{
    return qp_t_fail(r, QP_TE_RUNTIME, "%%%c format: %s is required, not %s", type, wanted, qp_t_type_name(v));
}

/* Puts [sign or prefix][digits] padded to the width. n_prefix bytes stand before zero padding. */
static bool put_padded(qp_trun *r, const spec *s, const char *p, size_t n, size_t n_prefix, char default_align)
{
    size_t ncp = qp_t_count_cp(p, n), pad = s->width > 0 && (size_t)s->width > ncp ? (size_t)s->width - ncp : 0;
    char align = s->align ? s->align : s->minus ? '<' : s->zero ? '=' : default_align;
    char fill[5] = {s->zero && !s->fill ? '0' : ' ', 0};
    size_t n_fill = 1, left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    if (s->fill) {
        char b[4];
        n_fill = qp_utf8_encode(s->fill, b);
        memcpy(fill, b, n_fill);
    }
    if (align != '=') n_prefix = 0;
    return qp_t_put(r, p, n_prefix) && qp_t_put_repeat(r, fill, n_fill, left) &&
           qp_t_put(r, p + n_prefix, n - n_prefix) && qp_t_put_repeat(r, fill, n_fill, pad - left);
}

static bool put_integer(qp_trun *r, const spec *s, int64_t i)
{
    char digits[80], b[128];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    size_t n = 0, o = 0;
    unsigned base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    do {
        if (s->comma && n % 4 == 3) digits[n++] = ',';
        unsigned d = (unsigned)(u % base);
        digits[n++] = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[d];
        u /= base;
    } while (u);
    if (i < 0)
        b[o++] = '-';
    else if (s->plus || s->space)
        b[o++] = s->plus ? '+' : ' ';
    if (s->alt && base != 10) {
        b[o++] = '0';
        b[o++] = s->type;
    }
    size_t prefix = o;
    while (n) b[o++] = digits[--n];
    return put_padded(r, s, b, o, prefix, '>');
}

/* Inserts "," between groups of three digits before the point or exponent. */
static size_t group_digits(char *b, size_t n, size_t cap)
{
    size_t whole = 0;
    while (whole < n && b[whole] >= '0' && b[whole] <= '9') whole++;
    for (size_t at = whole; at > 3 && n + 1 < cap;) {
        at -= 3;
        memmove(b + at + 1, b + at, n - at);
        b[at] = ',';
        n++;
    }
    return n;
}

static bool put_float(qp_trun *r, const spec *s, double f, bool repr)
{
    char b[1024];
    size_t n = 0;
    char type = s->type;
    bool percent = type == '%';
    if (percent) {
        f *= 100;
        type = 'f';
    }
    if (signbit(f) && !isnan(f))
        b[n++] = '-';
    else if (s->plus || s->space)
        b[n++] = s->plus ? '+' : ' ';
    size_t prefix = n;
    f = fabs(f);
    if (isnan(f) || isinf(f)) {
        n += (size_t)snprintf(b + n, 8, "%s", isnan(f) ? "nan" : "inf");
    } else if (repr) {
        char text[40];
        qp_t_float_repr(f, text);
        n += (size_t)snprintf(b + n, 64, "%s", text);
    } else {
        int prec = s->prec < 0 ? 6 : (int)s->prec;
        switch (type) { /* literal formats, so that the compiler checks them */
        case 'e':
            n += (size_t)snprintf(b + n, sizeof b - n, "%.*e", prec, f);
            break;
        case 'E':
            n += (size_t)snprintf(b + n, sizeof b - n, "%.*E", prec, f);
            break;
        case 'g':
            n += (size_t)snprintf(b + n, sizeof b - n, s->alt ? "%#.*g" : "%.*g", prec, f);
            break;
        case 'G':
            n += (size_t)snprintf(b + n, sizeof b - n, s->alt ? "%#.*G" : "%.*G", prec, f);
            break;
        default:
            n += (size_t)snprintf(b + n, sizeof b - n, "%.*f", prec, f);
        }
    }
    if (s->comma) n = prefix + group_digits(b + prefix, n - prefix, sizeof b - prefix - 1);
    if (percent) b[n++] = '%';
    return put_padded(r, s, b, n, prefix, '>');
}

static bool to_float(qp_tv v, double *f)
{
    int64_t i;
    if (v.kind == QP_V_FLOAT) {
        *f = v.as.f;
        return true;
    }
    if (!qp_t_as_int(v, &i)) return false;
    *f = (double)i;
    return true;
}

static bool put_text(qp_trun *r, const spec *s, qp_tv text)
{
    size_t n = text.as.s->n;
    if (!qp_t_step_bytes(r, n)) return false;
    if (s->prec >= 0) n = qp_t_offset(text.as.s, (size_t)s->prec);
    return put_padded(r, s, text.as.s->p, n, 0, '<');
}

/* ---- "%" ---- */

typedef struct percent {
    const qp_tstr *f;
    size_t i;
    qp_tv args;
    size_t used;
    bool mapped;
} percent;

static bool next_arg(qp_trun *r, percent *p, qp_tv *out)
{
    bool tuple = p->args.kind == QP_V_TUPLE;
    if (p->used >= (tuple ? p->args.as.l->n : 1))
        return qp_t_fail(r, QP_TE_RUNTIME, "not enough arguments for format string");
    *out = tuple ? p->args.as.l->v[p->used] : p->args;
    p->used++;
    return true;
}

static bool read_number(qp_trun *r, percent *p, int64_t *out, int64_t max)
{
    const qp_tstr *f = p->f;
    if (p->i < f->n && f->p[p->i] == '*') {
        qp_tv v;
        p->i++;
        if (!next_arg(r, p, &v)) return false;
        if (!qp_t_as_int(v, out)) return qp_t_fail(r, QP_TE_RUNTIME, "* wants int");
    } else {
        for (*out = 0; p->i < f->n && f->p[p->i] >= '0' && f->p[p->i] <= '9'; p->i++) {
            *out = *out * 10 + (f->p[p->i] - '0');
            if (*out > max) break;
        }
    }
    return *out > max || *out < -max ? qp_t_limit(r, "a width or precision in a format string is too large") : true;
}

static bool read_key(qp_trun *r, percent *p, qp_tv *out)
{
    const qp_tstr *f = p->f;
    size_t from = ++p->i;
    qp_tv *found;
    for (int open = 1; p->i < f->n; p->i++) {
        if (f->p[p->i] == '(') open++;
        if (f->p[p->i] == ')' && !--open) break;
    }
    if (p->i >= f->n) return qp_t_fail(r, QP_TE_RUNTIME, "incomplete format key");
    if (p->args.kind != QP_V_DICT) return qp_t_fail(r, QP_TE_RUNTIME, "format requires a mapping");
    const qp_tstr key = {f->p + from, p->i - from, SIZE_MAX, 0, false};
    if (!(found = qp_t_dict_find_str(p->args.as.d, &key)))
        return qp_t_fail(r, QP_TE_RUNTIME, "'%.*s'", (int)(p->i - from > 60 ? 60 : p->i - from), f->p + from);
    p->i++;
    p->mapped = true;
    *out = *found;
    return true;
}

static bool put_percent(qp_trun *r, const spec *s, qp_tv v)
{
    int64_t i;
    double f;
    qp_tv text;
    size_t mark = r->buf.len;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        if (s->type == 's' ? !qp_t_soft_str(r, v, &text) : !qp_t_put_repr(r, v, 0) || !qp_t_take(r, mark, &text))
            return false;
        return put_text(
            r, &(spec){.minus = s->minus, .width = s->width, .prec = s->prec, .align = s->minus ? '<' : '>'}, text);
    case 'd':
    case 'i':
    case 'u':
        if (v.kind == QP_V_FLOAT && v.as.f > -9e18 && v.as.f < 9e18) return put_integer(r, s, (int64_t)v.as.f);
        if (!qp_t_as_int(v, &i)) return bad_type(r, s->type, "a real number", v);
        return put_integer(r, s, i);
    case 'x':
    case 'X':
    case 'o':
        return qp_t_as_int(v, &i) ? put_integer(r, s, i) : bad_type(r, s->type, "an integer", v);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        return to_float(v, &f) ? put_float(r, s, f, false) : bad_type(r, s->type, "a real number", v);
    case 'c':
        if (v.kind == QP_V_STR && qp_t_ncp(v.as.s) == 1) return put_padded(r, s, v.as.s->p, v.as.s->n, 0, '>');
        if (qp_t_as_int(v, &i) && i >= 0 && i < 0xD800) {
            char b[4];
            return put_padded(r, s, b, qp_utf8_encode((int32_t)i, b), 0, '>');
        }
        return bad_type(r, 'c', "int or char", v);
    default:
        return qp_t_fail(r, QP_TE_RUNTIME, "unsupported format character '%c'", s->type);
    }
}

static bool percent_field(qp_trun *r, percent *p)
{
    const qp_tstr *f = p->f;
    spec s = {.prec = -1};
    qp_tv v = qp_t_missing();
    if (p->i < f->n && f->p[p->i] == '(' && !read_key(r, p, &v)) return false;
    for (; p->i < f->n && strchr("-+ #0", f->p[p->i]) && f->p[p->i]; p->i++) {
        char c = f->p[p->i];
        s.minus |= c == '-';
        s.plus |= c == '+';
        s.space |= c == ' ';
        s.alt |= c == '#';
        s.zero |= c == '0';
    }
    if (!read_number(r, p, &s.width, MAX_WIDTH)) return false;
    if (s.width < 0) {
        s.minus = true;
        s.width = -s.width;
    }
    if (s.minus) s.zero = false;
    if (p->i < f->n && f->p[p->i] == '.') {
        p->i++;
        if (!read_number(r, p, &s.prec, MAX_PREC)) return false;
        if (s.prec < 0) s.prec = 0;
    }
    while (p->i < f->n && (f->p[p->i] == 'l' || f->p[p->i] == 'h' || f->p[p->i] == 'L')) p->i++;
    if (p->i >= f->n) return qp_t_fail(r, QP_TE_RUNTIME, "incomplete format");
    s.type = f->p[p->i++];
    if (s.type == '%') return qp_t_put(r, "%", 1);
    if (v.kind == QP_V_MISSING && !next_arg(r, p, &v)) return false;
    return put_percent(r, &s, v);
}

bool qp_t_percent(qp_trun *r, qp_tv fmt, qp_tv args, qp_tv *out)
{
    percent p = {fmt.as.s, 0, args, 0, false};
    size_t mark = r->buf.len;
    while (p.i < p.f->n) {
        const char *at = p.f->p + p.i, *next = memchr(at, '%', p.f->n - p.i);
        size_t n = next ? (size_t)(next - at) : p.f->n - p.i;
        if (!qp_t_put(r, at, n)) return false;
        p.i += n;
        if (!next) break;
        p.i++;
        if (!percent_field(r, &p)) return false;
    }
    bool mapping = args.kind == QP_V_DICT || args.kind == QP_V_LIST || args.kind == QP_V_UNDEF ||
                   args.kind == QP_V_RANGE || args.kind == QP_V_BYTES; /* whatever has items counts as one in Python */
    size_t n_args = args.kind == QP_V_TUPLE ? args.as.l->n : !mapping;
    if (!p.mapped && p.used < n_args)
        return qp_t_fail(r, QP_TE_RUNTIME, "not all arguments converted during string formatting");
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = fmt.as.s->markup;
    return true;
}

/* ---- str.format ---- */

/* [[fill]align][sign][#][0][width][,][.prec][type] */
static bool read_spec(qp_trun *r, const char *p, size_t n, spec *s)
{
    size_t i = 0, len;
    int32_t cp = 0;
    *s = (spec){.prec = -1};
    len = n ? qp_t_next_cp(p, n, &cp) : 0;
    if (len && len < n && strchr("<>^=", p[len]) && p[len]) {
        s->fill = cp ? cp : ' ';
        s->align = p[len];
        i = len + 1;
    } else if (n && strchr("<>^=", p[0]) && p[0]) {
        s->align = p[0];
        i = 1;
    }
    if (i < n && (p[i] == '+' || p[i] == '-' || p[i] == ' ')) {
        s->plus = p[i] == '+';
        s->space = p[i] == ' ';
        i++;
    }
    if (i < n && p[i] == '#') {
        s->alt = true;
        i++;
    }
    if (i < n && p[i] == '0') {
        s->zero = !s->align;
        i++;
    }
    for (; i < n && p[i] >= '0' && p[i] <= '9' && s->width <= MAX_WIDTH; i++) s->width = s->width * 10 + (p[i] - '0');
    if (i < n && (p[i] == ',' || p[i] == '_')) {
        s->comma = true;
        if (p[i] == '_') return qp_t_fail(r, QP_TE_RUNTIME, "format: '_' grouping is not supported");
        i++;
    }
    if (i < n && p[i] == '.') {
        s->prec = 0;
        for (i++; i < n && p[i] >= '0' && p[i] <= '9' && s->prec <= MAX_PREC; i++)
            s->prec = s->prec * 10 + (p[i] - '0');
    }
    if (s->width > MAX_WIDTH || s->prec > MAX_PREC)
        return qp_t_limit(r, "a width or precision in a format string is too large");
    if (i < n) s->type = p[i++];
    return i == n ? true : qp_t_fail(r, QP_TE_RUNTIME, "Invalid format specifier");
}

static bool put_formatted(qp_trun *r, qp_tv v, const char *p, size_t n)
{
    spec s;
    int64_t i;
    double f;
    if (!n) return qp_t_put_str(r, v);
    if (!read_spec(r, p, n, &s)) return false;
    if (v.kind == QP_V_STR && (!s.type || s.type == 's') && s.align != '=') {
        s.zero = s.zero && !s.align ? (s.fill = '0', false) : s.zero;
        return put_text(r, &s, v);
    }
    bool number = v.kind == QP_V_INT || (v.kind == QP_V_BOOL && s.type);
    if (number && qp_t_as_int(v, &i) && s.prec < 0 && (!s.type || strchr("dxXobn", s.type)))
        return put_integer(r, &s, i);
    if (to_float(v, &f) && (v.kind == QP_V_FLOAT || s.type) && (!s.type || strchr("eEfFgGn%", s.type))) {
        bool repr = !s.type && s.prec < 0;
        if (!s.type || s.type == 'n') s.type = 'g';
        return put_float(r, &s, f, repr);
    }
    return qp_t_fail(r, QP_TE_RUNTIME, "unsupported format string passed to %s.__format__", qp_t_type_name(v));
}

/* "name.attr[item]" -> value; auto counts {} fields. */
static bool field_value(qp_trun *r, const char *p, size_t n, const qp_tcall *c, size_t *automatic, qp_tv *out)
{
    size_t i = 0;
    while (i < n && p[i] != '.' && p[i] != '[') i++;
    bool digits = i > 0;
    size_t index = 0;
    for (size_t k = 0; k < i; k++) {
        digits = digits && p[k] >= '0' && p[k] <= '9' && index < 100000;
        index = index * 10 + (size_t)(p[k] - '0');
    }
    if (!i) index = (*automatic)++;
    if (!i || digits) {
        if (index >= c->n)
            return qp_t_fail(r, QP_TE_RUNTIME, "Replacement index %zu out of range for positional args tuple", index);
        *out = c->v[index];
    } else {
        size_t k = 0;
        while (k < c->n_kw && (c->kw[k].key.as.s->n != i || memcmp(c->kw[k].key.as.s->p, p, i))) k++;
        if (k == c->n_kw) return qp_t_fail(r, QP_TE_RUNTIME, "'%.*s'", (int)(i > 60 ? 60 : i), p);
        *out = c->kw[k].val;
    }
    while (i < n) {
        bool item = p[i] == '[';
        size_t from = ++i;
        while (i < n && (item ? p[i] != ']' : p[i] != '.' && p[i] != '[')) i++;
        if (i == from || (item && i == n)) return qp_t_fail(r, QP_TE_RUNTIME, "Empty attribute in format string");
        qp_tv key;
        bool number = true;
        int64_t at = 0;
        for (size_t k = from; k < i; k++) {
            number = number && p[k] >= '0' && p[k] <= '9' && at < 100000000;
            if (number) at = at * 10 + (p[k] - '0');
        }
        if (!qp_t_new_str(r, p + from, i - from, &key)) return false;
        if (item && number) key = qp_t_int(at);
        if (item ? !qp_t_getitem(r, *out, key, out) : !qp_t_getattr(r, *out, key.as.s, out)) return false;
        if (out->kind == QP_V_UNDEF) return qp_t_use_undef(r, *out);
        i += item;
    }
    return true;
}

/* One {field} at p[0..n), braces excluded. */
static bool format_field(qp_trun *r, const char *p, size_t n, const qp_tcall *c, size_t *automatic)
{
    size_t name = 0, spec_at = n;
    char conv = 0;
    qp_tv v;
    while (name < n && p[name] != '!' && p[name] != ':') {
        if (p[name] == '[') {
            while (name < n && p[name] != ']') name++;
            if (name == n) break;
        }
        name++;
    }
    if (name < n && p[name] == '!') {
        if (name + 1 >= n || (name + 2 < n && p[name + 2] != ':'))
            return qp_t_fail(r, QP_TE_RUNTIME, "expected ':' after conversion specifier");
        conv = p[name + 1];
        spec_at = name + 2;
    } else if (name < n) {
        spec_at = name;
    }
    if (memchr(p, '{', n)) return qp_t_fail(r, QP_TE_RUNTIME, "nested fields in a format string are not supported");
    if (!field_value(r, p, name, c, automatic, &v)) return false;
    if (conv) {
        size_t mark = r->buf.len;
        if (conv != 'r' && conv != 's' && conv != 'a')
            return qp_t_fail(r, QP_TE_RUNTIME, "Unknown conversion specifier '%c'", conv);
        if (!(conv == 's' ? qp_t_put_str(r, v) : qp_t_put_repr(r, v, 0)) || !qp_t_take(r, mark, &v)) return false;
    }
    return spec_at < n ? put_formatted(r, v, p + spec_at + 1, n - spec_at - 1) : qp_t_put_str(r, v);
}

bool qp_t_str_format(qp_trun *r, qp_tv self, const qp_tcall *c, qp_tv *out)
{
    const char *p = self.as.s->p;
    size_t n = self.as.s->n, mark = r->buf.len, automatic = 0;
    for (size_t i = 0; i < n;) {
        size_t from = i;
        while (i < n && p[i] != '{' && p[i] != '}') i++;
        if (!qp_t_put(r, p + from, i - from)) return false;
        if (i >= n) break;
        if (i + 1 < n && p[i + 1] == p[i]) {
            if (!qp_t_put(r, p + i, 1)) return false;
            i += 2;
            continue;
        }
        if (p[i] == '}') return qp_t_fail(r, QP_TE_RUNTIME, "Single '}' encountered in format string");
        from = ++i;
        for (int open = 1; i < n; i++) {
            open += (p[i] == '{') - (p[i] == '}');
            if (!open) break;
        }
        if (i >= n) return qp_t_fail(r, QP_TE_RUNTIME, "expected '}' before end of string");
        if (!format_field(r, p + from, i - from, c, &automatic)) return false;
        i++;
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = self.as.s->markup;
    return true;
}
