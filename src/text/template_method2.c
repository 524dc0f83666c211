/* Methods of strings that change case, pad, or ask what they are made of. */
#include "text/template_impl.h"

#include <string.h>

typedef qp_tcall call;

#define UNUSED(x) (void)(x)

static bool m_upper(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_case(r, self, QP_CASE_UPPER, out);
}

static bool m_lower(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_case(r, self, QP_CASE_LOWER, out);
}

static bool m_casefold(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_case(r, self, QP_CASE_FOLD, out);
}

static bool m_capitalize(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return qp_t_capitalize(r, self, out);
}

static bool is_cased(int32_t cp)
{
    return qp_t_is_upper_cp(cp) || qp_t_is_lower_cp(cp) || qp_t_is_title_cp(cp);
}

/* title and swapcase: code point by code point. */
static bool recase(qp_trun *r, qp_tv self, bool title, qp_tv *out)
{
    const char *p = self.as.s->p;
    size_t n = self.as.s->n, mark = r->buf.len;
    bool in_word = false, ok;
    for (size_t i = 0, len; i < n; i += len) {
        int32_t cp;
        len = qp_t_next_cp(p + i, n - i, &cp);
        if (title)
            ok = in_word ? qp_t_put_lower(r, p, n, i) : qp_t_put_case(r, cp, QP_CASE_TITLE);
        else if (qp_t_is_upper_cp(cp))
            ok = qp_t_put_lower(r, p, n, i);
        else
            ok = qp_t_is_lower_cp(cp) ? qp_t_put_case(r, cp, QP_CASE_UPPER) : qp_t_put(r, p + i, len);
        if (!ok) return false;
        in_word = is_cased(cp);
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = self.as.s->markup;
    return true;
}

static bool m_title(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return recase(r, self, true, out);
}

static bool m_swapcase(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    return recase(r, self, false, out);
}

/* ---- padding ---- */

static bool pad(qp_trun *r, qp_tv self, const qp_tv *a, char how, qp_tv *out)
{
    int64_t width;
    size_t ncp = qp_t_ncp(self.as.s), mark = r->buf.len;
    const char *fill = " ";
    size_t n_fill = 1;
    if (!qp_t_as_int(a[0], &width))
        return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object cannot be interpreted as an integer", qp_t_type_name(a[0]));
    if (a[1].kind != QP_V_MISSING) {
        if (a[1].kind != QP_V_STR || qp_t_ncp(a[1].as.s) != 1)
            return qp_t_fail(r, QP_TE_RUNTIME, "The fill character must be exactly one character long");
        fill = a[1].as.s->p;
        n_fill = a[1].as.s->n;
    }
    if (width <= (int64_t)ncp) return qp_t_sub_str(r, self, 0, self.as.s->n, out);
    size_t gap = (size_t)width - ncp, left = how == '<' ? 0 : how == '>' ? gap : gap / 2 + (gap & (size_t)width & 1);
    if (!qp_t_put_repeat(r, fill, n_fill, left) || !qp_t_put(r, self.as.s->p, self.as.s->n) ||
        !qp_t_put_repeat(r, fill, n_fill, gap - left) || !qp_t_take(r, mark, out))
        return false;
    out->as.s->markup = self.as.s->markup;
    return true;
}

bool qp_t_center(qp_trun *r, qp_tv s, qp_tv width, qp_tv *out)
{
    qp_tv a[2] = {width, qp_t_missing()};
    return pad(r, s, a, '^', out);
}

static bool m_center(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return pad(r, self, a, '^', out);
}

static bool m_ljust(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return pad(r, self, a, '<', out);
}

static bool m_rjust(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return pad(r, self, a, '>', out);
}

static bool m_zfill(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t width;
    const qp_tstr *s = self.as.s;
    size_t ncp = qp_t_ncp(self.as.s), mark = r->buf.len, sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    UNUSED(c);
    if (!qp_t_as_int(a[0], &width))
        return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object cannot be interpreted as an integer", qp_t_type_name(a[0]));
    size_t gap = width > (int64_t)ncp ? (size_t)width - ncp : 0;
    return qp_t_put(r, s->p, sign) && qp_t_put_repeat(r, "0", 1, gap) && qp_t_put(r, s->p + sign, s->n - sign) &&
           qp_t_take(r, mark, out);
}

static bool m_expandtabs(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t size = 8;
    size_t column = 0, mark = r->buf.len;
    const qp_tstr *s = self.as.s;
    UNUSED(c);
    if (a[0].kind != QP_V_MISSING && !qp_t_as_int(a[0], &size))
        return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object cannot be interpreted as an integer", qp_t_type_name(a[0]));
    for (size_t i = 0, len; i < s->n; i += len) {
        int32_t cp;
        len = qp_t_next_cp(s->p + i, s->n - i, &cp);
        if (cp == '\t') {
            size_t fill = size > 0 ? (size_t)size - column % (size_t)size : 0;
            if (!qp_t_put_repeat(r, " ", 1, fill)) return false;
            column += fill;
            continue;
        }
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        if (!qp_t_put(r, s->p + i, len)) return false;
    }
    return qp_t_take(r, mark, out);
}

/* ---- classes ---- */

static bool alnum(int32_t cp)
{
    return qp_t_is_alpha_cp(cp) || qp_t_is_numeric_cp(cp);
}

static bool ascii(int32_t cp)
{
    return cp < 0x80;
}

static bool all(qp_trun *r, qp_tv self, bool (*is)(int32_t cp), bool when_empty, qp_tv *out)
{
    const qp_tstr *s = self.as.s;
    bool yes = s->n > 0 || when_empty;
    if (!qp_t_step_bytes(r, s->n)) return false;
    for (size_t i = 0; yes && i < s->n;) {
        int32_t cp;
        i += qp_t_next_cp(s->p + i, s->n - i, &cp);
        yes = is(cp);
    }
    *out = qp_t_bool(yes);
    return true;
}

#define CLASS_METHOD(name, is, when_empty)                                                                             \
    static bool name(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)                                      \
    {                                                                                                                  \
        UNUSED(a);                                                                                                     \
        UNUSED(c);                                                                                                     \
        return all(r, self, is, when_empty, out);                                                                      \
    }
CLASS_METHOD(m_isdigit, qp_t_is_digit_cp, false)
CLASS_METHOD(m_isdecimal, qp_t_is_decimal_cp, false)
CLASS_METHOD(m_isnumeric, qp_t_is_numeric_cp, false)
CLASS_METHOD(m_isalpha, qp_t_is_alpha_cp, false)
CLASS_METHOD(m_isalnum, alnum, false)
CLASS_METHOD(m_isspace, qp_t_is_space, false)
CLASS_METHOD(m_isascii, ascii, true)
CLASS_METHOD(m_isprintable, qp_t_is_printable_cp, true)

/* No letter of the other case, and at least one of this. */
bool qp_t_all_case(qp_trun *r, qp_tv self, bool upper, bool *out)
{
    const qp_tstr *s = self.as.s;
    bool some = false, other = false;
    if (!qp_t_step_bytes(r, s->n)) return false;
    for (size_t i = 0; !other && i < s->n;) {
        int32_t cp;
        i += qp_t_next_cp(s->p + i, s->n - i, &cp);
        bool u = qp_t_is_upper_cp(cp), l = qp_t_is_lower_cp(cp);
        some |= upper ? u : l;
        other = (upper ? l : u) || qp_t_is_title_cp(cp);
    }
    *out = some && !other;
    return true;
}

static bool m_islower(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    bool yes;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_all_case(r, self, false, &yes)) return false;
    *out = qp_t_bool(yes);
    return true;
}

static bool m_isupper(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    bool yes;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_all_case(r, self, true, &yes)) return false;
    *out = qp_t_bool(yes);
    return true;
}

static bool m_istitle(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    const qp_tstr *s = self.as.s;
    bool yes = false, bad = false, in_word = false;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_step_bytes(r, s->n)) return false;
    for (size_t i = 0; !bad && i < s->n;) {
        int32_t cp;
        i += qp_t_next_cp(s->p + i, s->n - i, &cp);
        bool head = qp_t_is_upper_cp(cp) || qp_t_is_title_cp(cp), tail = qp_t_is_lower_cp(cp);
        bad = (head && in_word) || (tail && !in_word);
        yes |= head || tail;
        in_word = head || tail;
    }
    *out = qp_t_bool(yes && !bad);
    return true;
}

static bool m_format(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    return qp_t_str_format(r, self, c, out);
}

static bool m_encode(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    for (size_t i = 0; i < 2; i++) {
        bool utf8 =
            a[i].kind == QP_V_MISSING ||
            (a[i].kind == QP_V_STR &&
             (i || (a[i].as.s->n == 5 && (!memcmp(a[i].as.s->p, "utf-8", 5) || !memcmp(a[i].as.s->p, "UTF-8", 5))) ||
              (a[i].as.s->n == 4 && !memcmp(a[i].as.s->p, "utf8", 4))));
        if (!utf8) return qp_t_fail(r, QP_TE_RUNTIME, "encode(): only utf-8 is supported");
    }
    if (!qp_t_borrow_str(r, self.as.s->p, self.as.s->n, out)) return false;
    out->kind = QP_V_BYTES;
    return true;
}

const qp_tentry qp_t_str_methods2[] = {
    {"upper", m_upper, "", 0},
    {"lower", m_lower, "", 0},
    {"casefold", m_casefold, "", 0},
    {"capitalize", m_capitalize, "", 0},
    {"title", m_title, "", 0},
    {"swapcase", m_swapcase, "", 0},
    {"center", m_center, "width,fillchar", 1},
    {"ljust", m_ljust, "width,fillchar", 1},
    {"rjust", m_rjust, "width,fillchar", 1},
    {"zfill", m_zfill, "width", 1},
    {"expandtabs", m_expandtabs, "tabsize", 0},
    {"isdigit", m_isdigit, "", 0},
    {"isdecimal", m_isdecimal, "", 0},
    {"isnumeric", m_isnumeric, "", 0},
    {"isalpha", m_isalpha, "", 0},
    {"isalnum", m_isalnum, "", 0},
    {"isspace", m_isspace, "", 0},
    {"isascii", m_isascii, "", 0},
    {"isprintable", m_isprintable, "", 0},
    {"islower", m_islower, "", 0},
    {"isupper", m_isupper, "", 0},
    {"istitle", m_istitle, "", 0},
    {"format", m_format, "*", 0},
    {"encode", m_encode, "encoding,errors", 0},
};
const size_t qp_t_n_str_methods2 = sizeof qp_t_str_methods2 / sizeof *qp_t_str_methods2;
