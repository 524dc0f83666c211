/* Equality, order, membership and sorting of template values, by Python's rules. */
#include "text/template_impl.h"

#include <math.h>
#include <string.h>

static bool is_number(qp_tv v)
{
    return v.kind == QP_V_INT || v.kind == QP_V_BOOL || v.kind == QP_V_FLOAT;
}

/* -1, 0, 1, or 2 when one is not a number. An x87 long double holds every int64 and every double. */
static int order_numbers(qp_tv a, qp_tv b)
{
    int64_t i = 0, j = 0;
    if (qp_t_as_int(a, &i) && qp_t_as_int(b, &j)) return i < j ? -1 : i > j;
    long double x = a.kind == QP_V_FLOAT ? (long double)a.as.f : (qp_t_as_int(a, &i), (long double)i);
    long double y = b.kind == QP_V_FLOAT ? (long double)b.as.f : (qp_t_as_int(b, &j), (long double)j);
    if (isnan(x) || isnan(y)) return 2;
    return x < y ? -1 : x > y;
}

static bool equal_text(qp_trun *r, const qp_tstr *a, const qp_tstr *b, bool *out)
{
    *out = a->n == b->n && (a->p == b->p || !a->n || !memcmp(a->p, b->p, a->n));
    return qp_t_step_bytes(r, a->n == b->n ? a->n : 0);
}

static bool equal_lists(qp_trun *r, const qp_tlist *a, const qp_tlist *b, bool *out, unsigned depth)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && a != b && i < a->n; i++) {
        if (!qp_t_equal(r, a->v[i], b->v[i], out, depth + 1)) return false;
    }
    return true;
}

static bool equal_dicts(qp_trun *r, qp_tdict *a, qp_tdict *b, bool *out, unsigned depth)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && a != b && i < a->n; i++) {
        qp_tv *other;
        if (!qp_t_dict_find(r, b, a->v[i].key, &other)) return false;
        if (!other)
            *out = false;
        else if (!qp_t_equal(r, a->v[i].val, *other, out, depth + 1))
            return false;
    }
    return true;
}

bool qp_t_equal(qp_trun *r, qp_tv a, qp_tv b, bool *out, unsigned depth)
{
    if (depth > QP_T_MAX_VALUE_DEPTH) return qp_t_limit(r, "a value is nested too deep");
    if (!qp_t_step(r, 1)) return false;
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return true;
    }
    *out = false;
    if (a.kind != b.kind) return true;
    switch (a.kind) {
    case QP_V_NONE:
    case QP_V_UNDEF:
        *out = true;
        return true;
    case QP_V_STR:
    case QP_V_BYTES:
    case QP_V_BIG:
        return equal_text(r, a.as.s, b.as.s, out);
    case QP_V_LIST:
    case QP_V_TUPLE:
        return equal_lists(r, a.as.l, b.as.l, out, depth);
    case QP_V_DICT:
        return equal_dicts(r, a.as.d, b.as.d, out, depth);
    case QP_V_RANGE: {
        const qp_trange *x = a.as.range, *y = b.as.range;
        *out = x->n == y->n && (!x->n || (x->start == y->start && (x->n == 1 || x->step == y->step)));
        return true;
    }
    case QP_V_FUNC:
        *out = a.as.fn == b.as.fn;
        return true;
    default:
        *out = a.as.s == b.as.s;
        return true;
    }
}

static int order_text(const qp_tstr *a, const qp_tstr *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->p, b->p, n) : 0; /* UTF-8 sorts as its code points do */
    if (c) return c < 0 ? -1 : 1;
    return a->n < b->n ? -1 : a->n > b->n;
}

bool qp_t_less(qp_trun *r, qp_tv a, qp_tv b, const char *op, int *order, unsigned depth)
{
    if (depth > QP_T_MAX_VALUE_DEPTH) return qp_t_limit(r, "a value is nested too deep");
    if (!qp_t_step(r, 1)) return false;
    if (is_number(a) && is_number(b)) {
        *order = order_numbers(a, b);
        return true;
    }
    if (a.kind == QP_V_UNDEF) return qp_t_use_undef(r, a);
    if (b.kind == QP_V_UNDEF) return qp_t_use_undef(r, b);
    if (a.kind == b.kind && (a.kind == QP_V_STR || a.kind == QP_V_BYTES)) {
        *order = order_text(a.as.s, b.as.s);
        return qp_t_step_bytes(r, a.as.s->n < b.as.s->n ? a.as.s->n : b.as.s->n);
    }
    if (a.kind == b.kind && qp_t_is_seq(a)) {
        size_t n = a.as.l->n < b.as.l->n ? a.as.l->n : b.as.l->n;
        for (size_t i = 0; i < n; i++) {
            bool same;
            if (!qp_t_equal(r, a.as.l->v[i], b.as.l->v[i], &same, depth + 1)) return false;
            if (!same) return qp_t_less(r, a.as.l->v[i], b.as.l->v[i], op, order, depth + 1);
        }
        *order = a.as.l->n < b.as.l->n ? -1 : a.as.l->n > b.as.l->n;
        return true;
    }
    return qp_t_fail(r, QP_TE_RUNTIME, "'%s' not supported between instances of '%s' and '%s'", op, qp_t_type_name(a),
                     qp_t_type_name(b));
}

/* ---- membership ---- */

static bool find_text(qp_trun *r, const qp_tstr *in, const qp_tstr *what, bool *out)
{
    *out = qp_t_find_bytes(r, in->p, in->n, what->p, what->n) != SIZE_MAX;
    return r->kind == QP_TE_NONE;
}

bool qp_t_contains(qp_trun *r, qp_tv item, qp_tv in, bool *out)
{
    *out = false;
    switch (in.kind) {
    case QP_V_UNDEF:
        return true;
    case QP_V_STR:
        if (item.kind != QP_V_STR)
            return qp_t_fail(r, QP_TE_RUNTIME, "'in <string>' requires string as left operand, not %s",
                             qp_t_type_name(item));
        return find_text(r, in.as.s, item.as.s, out);
    case QP_V_DICT: {
        qp_tv *found;
        if (!qp_t_dict_find(r, in.as.d, item, &found)) return false;
        *out = found != NULL;
        return true;
    }
    case QP_V_VIEW:
    case QP_V_LIST:
    case QP_V_TUPLE:
    case QP_V_RANGE:
    case QP_V_ITER:
    case QP_V_LOOP: {
        qp_titer *it;
        bool done = false;
        if (!qp_t_iter(r, in, &it)) return false;
        while (!*out) {
            qp_tv v;
            if (!qp_t_iter_next(r, it, &v, &done)) return false;
            if (done) break;
            if (!qp_t_equal(r, v, item, out, 0)) return false;
        }
        return true;
    }
    default:
        return qp_t_fail(r, QP_TE_RUNTIME, "argument of type '%s' is not iterable", qp_t_type_name(in));
    }
}

/* ---- sorting ---- */

/* Bottom-up merge sort: stable, and a comparison that fails ends it. */
bool qp_t_sort(qp_trun *r, qp_tv *keys, qp_tv *vals, size_t n, bool reverse)
{
    qp_tv *k2, *v2;
    if (!qp_t_alloc(r, n ? n : 1, sizeof *k2, &k2) || !qp_t_alloc(r, n ? n : 1, sizeof *v2, &v2)) return false;
    qp_tv *ks = keys, *vs = vals, *kd = k2, *vd = v2;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            for (size_t i = lo, j = mid, o = lo; o < hi; o++) {
                bool right = i >= mid;
                if (i < mid && j < hi) {
                    int order;
                    if (!qp_t_less(r, ks[j], ks[i], "<", &order, 0)) return false;
                    right = reverse ? order == 1 : order == -1;
                }
                size_t from = right ? j++ : i++;
                kd[o] = ks[from];
                vd[o] = vs[from];
            }
        }
        qp_tv *t = ks;
        ks = kd, kd = t;
        t = vs;
        vs = vd, vd = t;
    }
    if (n && vs != vals) memcpy(vals, vs, n * sizeof *vals);
    if (n && ks != keys) memcpy(keys, ks, n * sizeof *keys);
    return true;
}
