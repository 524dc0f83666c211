/* Methods of strings that cut and search: strip, split, find, replace and the like. Indexes count code points. */
#include "text/template_impl.h"

#include <string.h>

typedef qp_tcall call;

#define UNUSED(x) (void)(x)

static bool need_str(qp_trun *r, const char *what, qp_tv v)
{
    if (v.kind == QP_V_STR) return true;
    if (v.kind == QP_V_UNDEF) return qp_t_use_undef(r, v);
    return qp_t_fail(r, QP_TE_RUNTIME, "%s() wants a string, not %s", what, qp_t_type_name(v));
}

static bool absent(qp_tv v)
{
    return v.kind == QP_V_MISSING || v.kind == QP_V_NONE;
}

/* ---- strip ---- */

static bool in_set(const qp_tstr *set, const char *p, size_t n)
{
    int32_t cp, c;
    if (set && set->n < 64) { /* the usual case: compare code points */
        qp_t_next_cp(p, n, &cp);
        for (size_t i = 0; i < set->n;) {
            i += qp_t_next_cp(set->p + i, set->n - i, &c);
            if (c == cp) return true;
        }
        return false;
    }
    if (!set) {
        qp_t_next_cp(p, n, &cp);
        return qp_t_is_space(cp);
    }
    for (size_t i = 0; i + n <= set->n; i++) {
        if (!memcmp(set->p + i, p, n)) return true;
    }
    return false;
}

bool qp_t_strip(qp_trun *r, qp_tv s, qp_tv chars, bool left, bool right, qp_tv *out)
{
    const qp_tstr *set = absent(chars) ? NULL : chars.as.s;
    const char *p = s.as.s->p;
    size_t from = 0, to = s.as.s->n, cost = 1 + (set ? set->n / 8 : 0);
    if (!absent(chars) && !need_str(r, "strip", chars)) return false;
    while (left && from < to) {
        int32_t cp;
        size_t len = qp_t_next_cp(p + from, to - from, &cp);
        if (!qp_t_step(r, cost)) return false;
        if (!in_set(set, p + from, len)) break;
        from += len;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && (p[at] & 0xC0) == 0x80) at--;
        if (!qp_t_step(r, cost)) return false;
        if (!in_set(set, p + at, to - at)) break;
        to = at;
    }
    return qp_t_sub_str(r, s, from, to, out);
}

static bool m_strip(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_strip(r, self, a[0], true, true, out);
}

static bool m_lstrip(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_strip(r, self, a[0], true, false, out);
}

static bool m_rstrip(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return qp_t_strip(r, self, a[0], false, true, out);
}

/* ---- split ---- */

static bool push_part(qp_trun *r, qp_tv s, size_t from, size_t to, qp_tvec *vec)
{
    qp_tv part;
    return qp_t_sub_str(r, s, from, to, &part) && qp_t_push(r, vec, part);
}

/* Start of the code point that ends at `to`, and whether it is whitespace. */
static size_t back(const char *p, size_t to, bool *space)
{
    size_t at = to - 1;
    int32_t cp;
    while (at > 0 && (p[at] & 0xC0) == 0x80) at--;
    qp_t_next_cp(p + at, to - at, &cp);
    *space = qp_t_is_space(cp);
    return at;
}

static bool split_space(qp_trun *r, qp_tv s, size_t max, qp_tvec *vec)
{
    const char *p = s.as.s->p;
    size_t n = s.as.s->n;
    for (size_t i = 0;;) {
        int32_t cp;
        size_t len;
        while (i < n && (len = qp_t_next_cp(p + i, n - i, &cp), qp_t_is_space(cp))) i += len;
        if (i >= n) return true;
        if (vec->n == max) return push_part(r, s, i, n, vec);
        size_t from = i;
        while (i < n && (len = qp_t_next_cp(p + i, n - i, &cp), !qp_t_is_space(cp))) i += len;
        if (!push_part(r, s, from, i, vec)) return false;
    }
}

static bool rsplit_space(qp_trun *r, qp_tv s, size_t max, qp_tvec *vec)
{
    const char *p = s.as.s->p;
    for (size_t i = s.as.s->n;;) {
        bool space;
        size_t at;
        while (i > 0 && (at = back(p, i, &space), space)) i = at;
        if (!i) return true;
        if (vec->n == max) return push_part(r, s, 0, i, vec);
        size_t to = i;
        while (i > 0 && (at = back(p, i, &space), !space)) i = at;
        if (!push_part(r, s, i, to, vec)) return false;
    }
}

static bool split_sep(qp_trun *r, qp_tv s, const qp_tstr *sep, size_t max, qp_tvec *vec)
{
    const char *p = s.as.s->p;
    size_t n = s.as.s->n, i = 0;
    while (vec->n < max) {
        size_t at = qp_t_find_bytes(r, p + i, n - i, sep->p, sep->n);
        if (r->kind != QP_TE_NONE) return false;
        if (at == SIZE_MAX) break;
        if (!push_part(r, s, i, i + at, vec)) return false;
        i += at + sep->n;
    }
    return push_part(r, s, i, n, vec);
}

/* Last place of q in p[0..np), or SIZE_MAX. */
static bool find_last(qp_trun *r, const char *p, size_t np, const qp_tstr *q, size_t *out)
{
    *out = SIZE_MAX;
    for (size_t i = np >= q->n ? np - q->n + 1 : 0; i-- > 0;) {
        if (!(i & 63) && !qp_t_step(r, 4)) return false;
        if (q->n) {
            if (p[i] != q->p[0]) continue;
            if (!qp_t_step_bytes(r, q->n)) return false;
            if (memcmp(p + i, q->p, q->n)) continue;
        }
        *out = i;
        return true;
    }
    return true;
}

static bool rsplit_sep(qp_trun *r, qp_tv s, const qp_tstr *sep, size_t max, qp_tvec *vec)
{
    size_t n = s.as.s->n, at;
    while (vec->n < max) {
        if (!find_last(r, s.as.s->p, n, sep, &at)) return false;
        if (at == SIZE_MAX) break;
        if (!push_part(r, s, at + sep->n, n, vec)) return false;
        n = at;
    }
    return push_part(r, s, 0, n, vec);
}

static bool split(qp_trun *r, qp_tv self, qp_tv *a, bool right, qp_tv *out)
{
    qp_tvec vec = {0};
    int64_t limit = -1;
    bool ok;
    if (a[1].kind != QP_V_MISSING && !qp_t_as_int(a[1], &limit))
        return qp_t_fail(r, QP_TE_RUNTIME, "split(): maxsplit must be an integer, not %s", qp_t_type_name(a[1]));
    size_t max = limit < 0 ? SIZE_MAX : (size_t)limit;
    if (!qp_t_step_bytes(r, self.as.s->n)) return false;
    if (absent(a[0])) {
        ok = right ? rsplit_space(r, self, max, &vec) : split_space(r, self, max, &vec);
    } else {
        if (!need_str(r, "split", a[0])) return false;
        if (!a[0].as.s->n) return qp_t_fail(r, QP_TE_RUNTIME, "empty separator");
        ok = right ? rsplit_sep(r, self, a[0].as.s, max, &vec) : split_sep(r, self, a[0].as.s, max, &vec);
    }
    for (size_t i = 0, j = vec.n; right && i + 1 < j; i++) {
        qp_tv t = vec.v[i];
        vec.v[i] = vec.v[--j];
        vec.v[j] = t;
    }
    return ok && qp_t_vec_list(r, &vec, out);
}

static bool m_split(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return split(r, self, a, false, out);
}

static bool m_rsplit(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return split(r, self, a, true, out);
}

/* Length of the line end at p, 0 when there is none. */
static size_t line_end(const char *p, size_t n)
{
    int32_t cp;
    size_t len = qp_t_next_cp(p, n, &cp);
    if (cp == '\r' && n > 1 && p[1] == '\n') return 2;
    bool end = (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
    return end ? len : 0;
}

bool qp_t_splitlines(qp_trun *r, qp_tv s, bool keep, qp_tvec *vec)
{
    const char *p = s.as.s->p;
    size_t n = s.as.s->n, from = 0;
    if (!qp_t_step_bytes(r, n)) return false;
    for (size_t i = 0; i < n;) {
        size_t end = line_end(p + i, n - i);
        if (!end) {
            int32_t cp;
            i += qp_t_next_cp(p + i, n - i, &cp);
            continue;
        }
        if (!push_part(r, s, from, keep ? i + end : i, vec)) return false;
        i += end;
        from = i;
    }
    return from >= n || push_part(r, s, from, n, vec);
}

static bool m_splitlines(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tvec vec = {0};
    UNUSED(c);
    return qp_t_splitlines(r, self, qp_t_truth(a[0]), &vec) && qp_t_vec_list(r, &vec, out);
}

static bool three(qp_trun *r, qp_tv s, size_t a, size_t b, qp_tv *out)
{
    if (!qp_t_new_list(r, QP_V_TUPLE, 3, out)) return false;
    qp_tv *v = out->as.l->v;
    return qp_t_sub_str(r, s, 0, a, &v[0]) && qp_t_sub_str(r, s, a, b, &v[1]) &&
           qp_t_sub_str(r, s, b, s.as.s->n, &v[2]);
}

static bool m_partition(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    if (!need_str(r, "partition", a[0])) return false;
    const qp_tstr *sep = a[0].as.s;
    if (!sep->n) return qp_t_fail(r, QP_TE_RUNTIME, "empty separator");
    size_t at = qp_t_find_bytes(r, self.as.s->p, self.as.s->n, sep->p, sep->n), n = self.as.s->n;
    if (r->kind != QP_TE_NONE) return false;
    return at == SIZE_MAX ? three(r, self, n, n, out) : three(r, self, at, at + sep->n, out);
}

static bool m_rpartition(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    size_t at;
    UNUSED(c);
    if (!need_str(r, "rpartition", a[0])) return false;
    if (!a[0].as.s->n) return qp_t_fail(r, QP_TE_RUNTIME, "empty separator");
    if (!find_last(r, self.as.s->p, self.as.s->n, a[0].as.s, &at)) return false;
    return at == SIZE_MAX ? three(r, self, 0, 0, out) : three(r, self, at, at + a[0].as.s->n, out);
}

/* ---- search ---- */

/* Byte range of self[start:end] from a[1], a[2]; *none when start lies beyond the end. */
static bool bounds(qp_trun *r, qp_tv self, const qp_tv *a, size_t *from, size_t *to, bool *none)
{
    int64_t n = (int64_t)qp_t_ncp(self.as.s), v[2] = {0, n};
    for (size_t i = 0; i < 2; i++) {
        if (absent(a[i + 1])) continue;
        if (!qp_t_as_int(a[i + 1], &v[i]))
            return qp_t_fail(r, QP_TE_RUNTIME, "slice indices must be integers or None or have an __index__ method");
        if (v[i] < 0) v[i] += n;
        if (v[i] < 0) v[i] = 0;
    }
    *none = v[0] > n || v[0] > v[1];
    if (*none) return true;
    *from = qp_t_offset(self.as.s, (size_t)v[0]);
    *to = qp_t_offset(self.as.s, (size_t)v[1]);
    return qp_t_step_bytes(r, *to);
}

static bool find(qp_trun *r, qp_tv self, const qp_tv *a, bool last, int64_t *out)
{
    size_t from, to, at = SIZE_MAX;
    bool none;
    if (!need_str(r, "find", a[0]) || !bounds(r, self, a, &from, &to, &none)) return false;
    *out = -1;
    if (none) return true;
    const char *p = self.as.s->p + from;
    if (last ? !find_last(r, p, to - from, a[0].as.s, &at)
             : (at = qp_t_find_bytes(r, p, to - from, a[0].as.s->p, a[0].as.s->n), r->kind != QP_TE_NONE))
        return false;
    if (at != SIZE_MAX) *out = (int64_t)qp_t_count_cp(self.as.s->p, from + at);
    return true;
}

static bool m_find(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t at;
    UNUSED(c);
    if (!find(r, self, a, false, &at)) return false;
    *out = qp_t_int(at);
    return true;
}

static bool m_rfind(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    int64_t at;
    UNUSED(c);
    if (!find(r, self, a, true, &at)) return false;
    *out = qp_t_int(at);
    return true;
}

static bool m_index(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    if (!m_find(r, self, a, c, out)) return false;
    return out->as.i >= 0 ? true : qp_t_fail(r, QP_TE_RUNTIME, "substring not found");
}

static bool m_rindex(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    if (!m_rfind(r, self, a, c, out)) return false;
    return out->as.i >= 0 ? true : qp_t_fail(r, QP_TE_RUNTIME, "substring not found");
}

static bool m_count(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    size_t from, to, n = 0;
    bool none;
    UNUSED(c);
    if (!need_str(r, "count", a[0]) || !bounds(r, self, a, &from, &to, &none)) return false;
    const qp_tstr *q = a[0].as.s;
    if (!none && !q->n) n = qp_t_count_cp(self.as.s->p + from, to - from) + 1;
    while (!none && q->n) {
        size_t at = qp_t_find_bytes(r, self.as.s->p + from, to - from, q->p, q->n);
        if (r->kind != QP_TE_NONE) return false;
        if (at == SIZE_MAX) break;
        from += at + q->n;
        n++;
    }
    *out = qp_t_int((int64_t)n);
    return true;
}

static bool affix(qp_trun *r, qp_tv self, const qp_tv *a, bool end, qp_tv *out)
{
    size_t from, to, n = a[0].kind == QP_V_TUPLE ? a[0].as.l->n : 1;
    const qp_tv *what = a[0].kind == QP_V_TUPLE ? a[0].as.l->v : a;
    bool none;
    *out = qp_t_bool(false);
    if (!bounds(r, self, a, &from, &to, &none)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!need_str(r, end ? "endswith" : "startswith", what[i]) || !qp_t_step(r, 1)) return false;
        const qp_tstr *q = what[i].as.s;
        if (none || q->n > to - from) continue;
        if (!qp_t_step_bytes(r, q->n)) return false;
        if (q->n && memcmp(self.as.s->p + (end ? to - q->n : from), q->p, q->n)) continue;
        *out = qp_t_bool(true);
        return true;
    }
    return true;
}

static bool m_startswith(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return affix(r, self, a, false, out);
}

static bool m_endswith(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return affix(r, self, a, true, out);
}

static bool m_removeprefix(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    if (!need_str(r, "removeprefix", a[0]) || !qp_t_step_bytes(r, a[0].as.s->n)) return false;
    const qp_tstr *s = self.as.s, *q = a[0].as.s;
    bool has = q->n && q->n <= s->n && !memcmp(s->p, q->p, q->n);
    return qp_t_sub_str(r, self, has ? q->n : 0, s->n, out);
}

static bool m_removesuffix(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    if (!need_str(r, "removesuffix", a[0]) || !qp_t_step_bytes(r, a[0].as.s->n)) return false;
    const qp_tstr *s = self.as.s, *q = a[0].as.s;
    bool has = q->n && q->n <= s->n && !memcmp(s->p + s->n - q->n, q->p, q->n);
    return qp_t_sub_str(r, self, 0, has ? s->n - q->n : s->n, out);
}

/* ---- replace, join ---- */

/* An empty `old` matches before every code point and at the end. */
static bool replace_empty(qp_trun *r, const qp_tstr *s, const qp_tstr *to, size_t max)
{
    size_t i = 0;
    for (; max && i < s->n; max--) {
        int32_t cp;
        size_t len = qp_t_next_cp(s->p + i, s->n - i, &cp);
        if (!qp_t_put(r, to->p, to->n) || !qp_t_put(r, s->p + i, len)) return false;
        i += len;
    }
    return qp_t_put(r, s->p + i, s->n - i) && (!max || qp_t_put(r, to->p, to->n));
}

bool qp_t_replace(qp_trun *r, qp_tv s, qp_tv from, qp_tv to, qp_tv count, qp_tv *out)
{
    size_t mark = r->buf.len, i = 0, n = s.as.s->n;
    int64_t limit = -1;
    if (!need_str(r, "replace", from) || !need_str(r, "replace", to)) return false;
    if (!absent(count) && !qp_t_as_int(count, &limit))
        return qp_t_fail(r, QP_TE_RUNTIME, "replace(): the count must be an integer, not %s", qp_t_type_name(count));
    size_t max = limit < 0 ? SIZE_MAX : (size_t)limit;
    if (!from.as.s->n) {
        if (!replace_empty(r, s.as.s, to.as.s, max)) return false;
    } else {
        for (; max; max--) {
            size_t at = qp_t_find_bytes(r, s.as.s->p + i, n - i, from.as.s->p, from.as.s->n);
            if (r->kind != QP_TE_NONE) return false;
            if (at == SIZE_MAX) break;
            if (!qp_t_put(r, s.as.s->p + i, at) || !qp_t_put(r, to.as.s->p, to.as.s->n)) return false;
            i += at + from.as.s->n;
        }
        if (!qp_t_put(r, s.as.s->p + i, n - i)) return false;
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = s.as.s->markup;
    return true;
}

static bool escape_for(qp_trun *r, qp_tv self, qp_tv *v)
{
    size_t mark = r->buf.len;
    if (!self.as.s->markup || v->kind != QP_V_STR || v->as.s->markup) return true;
    return qp_t_put_escaped(r, v->as.s->p, v->as.s->n) && qp_t_take(r, mark, v);
}

static bool m_replace(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return escape_for(r, self, &a[0]) && escape_for(r, self, &a[1]) && qp_t_replace(r, self, a[0], a[1], a[2], out);
}

static bool m_join(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tv list;
    size_t mark;
    UNUSED(c);
    if (!qp_t_to_list(r, a[0], &list)) return false;
    mark = r->buf.len;
    for (size_t i = 0; i < list.as.l->n; i++) {
        if (list.as.l->v[i].kind != QP_V_STR)
            return qp_t_fail(r, QP_TE_RUNTIME, "sequence item %zu: expected str instance, %s found", i,
                             qp_t_type_name(list.as.l->v[i]));
        if ((i && !qp_t_put_str(r, self)) || !qp_t_put_str(r, list.as.l->v[i])) return false;
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = self.as.s->markup;
    return true;
}

const qp_tentry qp_t_str_methods[] = {
    {"strip", m_strip, "chars", 0},
    {"lstrip", m_lstrip, "chars", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep,maxsplit", 0},
    {"rsplit", m_rsplit, "sep,maxsplit", 0},
    {"splitlines", m_splitlines, "keepends", 0},
    {"partition", m_partition, "sep", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"find", m_find, "sub,start,end", 1},
    {"rfind", m_rfind, "sub,start,end", 1},
    {"index", m_index, "sub,start,end", 1},
    {"rindex", m_rindex, "sub,start,end", 1},
    {"count", m_count, "sub,start,end", 1},
    {"startswith", m_startswith, "prefix,start,end", 1},
    {"endswith", m_endswith, "suffix,start,end", 1},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"replace", m_replace, "old,new,count", 2},
    {"join", m_join, "iterable", 1},
};
const size_t qp_t_n_str_methods = sizeof qp_t_str_methods / sizeof *qp_t_str_methods;
