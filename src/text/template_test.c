/* Tests: what stands after `is`. Facts: formats/chat_templates.md, "Tests". */
#include "text/template_impl.h"

#include <string.h>

typedef qp_tcall call;

#define TEST(name, expr)                                                                                               \
    static bool name(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)                                         \
    {                                                                                                                  \
        (void)r;                                                                                                       \
        (void)a;                                                                                                       \
        (void)c;                                                                                                       \
        *out = qp_t_bool(expr);                                                                                        \
        return true;                                                                                                   \
    }

static bool is_iterable(qp_tv v)
{
    return v.kind == QP_V_UNDEF || v.kind == QP_V_STR || v.kind == QP_V_BYTES || qp_t_is_seq(v) ||
           v.kind == QP_V_DICT || v.kind == QP_V_VIEW || v.kind == QP_V_RANGE || v.kind == QP_V_ITER ||
           v.kind == QP_V_LOOP;
}

TEST(t_defined, v.kind != QP_V_UNDEF)
TEST(t_undefined, v.kind == QP_V_UNDEF)
TEST(t_none, v.kind == QP_V_NONE)
TEST(t_string, v.kind == QP_V_STR)
TEST(t_number, v.kind == QP_V_INT || v.kind == QP_V_BOOL || v.kind == QP_V_FLOAT || v.kind == QP_V_BIG)
TEST(t_integer, v.kind == QP_V_INT || v.kind == QP_V_BIG)
TEST(t_float, v.kind == QP_V_FLOAT)
TEST(t_boolean, v.kind == QP_V_BOOL)
TEST(t_true, v.kind == QP_V_BOOL && v.as.b)
TEST(t_false, v.kind == QP_V_BOOL && !v.as.b)
TEST(t_mapping, v.kind == QP_V_DICT)
TEST(t_sequence, is_iterable(v) && v.kind != QP_V_VIEW && v.kind != QP_V_ITER && v.kind != QP_V_LOOP)
TEST(t_iterable, is_iterable(v))
TEST(t_callable, qp_t_callable(v) || v.kind == QP_V_UNDEF) /* as its class there */
TEST(t_escaped, v.kind == QP_V_STR && v.as.s->markup)

static bool remainder_is(qp_trun *r, qp_tv v, qp_tv by, int64_t want, qp_tv *out)
{
    qp_tv rest;
    bool same;
    if (!qp_t_binary(r, '%', v, by, &rest) || !qp_t_equal(r, rest, qp_t_int(want), &same, 0)) return false;
    *out = qp_t_bool(same);
    return true;
}

static bool t_odd(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return remainder_is(r, v, qp_t_int(2), 1, out);
}

static bool t_even(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return remainder_is(r, v, qp_t_int(2), 0, out);
}

static bool t_divisibleby(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return remainder_is(r, v, a[0], 0, out);
}

static bool all_case(qp_trun *r, qp_tv v, bool upper, qp_tv *out)
{
    bool yes;
    if (!qp_t_str_of(r, v, &v) || !qp_t_all_case(r, v, upper, &yes)) return false;
    *out = qp_t_bool(yes);
    return true;
}

static bool t_lower(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return all_case(r, v, false, out);
}

static bool t_upper(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return all_case(r, v, true, out);
}

static bool t_in(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    bool yes;
    (void)c;
    if (!qp_t_contains(r, v, a[0], &yes)) return false;
    *out = qp_t_bool(yes);
    return true;
}

static bool equal(qp_trun *r, qp_tv v, const qp_tv *a, bool want, qp_tv *out)
{
    bool same;
    if (!qp_t_equal(r, v, a[0], &same, 0)) return false;
    *out = qp_t_bool(same == want);
    return true;
}

static bool t_eq(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return equal(r, v, a, true, out);
}

static bool t_ne(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return equal(r, v, a, false, out);
}

/* Order of v and a[0] is among `want`: bits 1 (less), 2 (equal), 4 (greater). */
static bool ordered(qp_trun *r, qp_tv v, const qp_tv *a, const char *op, unsigned want, qp_tv *out)
{
    int order;
    if (!qp_t_less(r, v, a[0], op, &order, 0)) return false;
    *out = qp_t_bool(order != 2 && (want >> (order + 1) & 1));
    return true;
}

static bool t_lt(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return ordered(r, v, a, "<", 1, out);
}

static bool t_le(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return ordered(r, v, a, "<=", 3, out);
}

static bool t_gt(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return ordered(r, v, a, ">", 4, out);
}

static bool t_ge(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)c;
    return ordered(r, v, a, ">=", 6, out);
}

/* Identity: equal scalars of one type count as the same object, containers by address. */
static bool t_sameas(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    bool scalar =
        v.kind == QP_V_NONE || v.kind == QP_V_BOOL || v.kind == QP_V_INT || v.kind == QP_V_FLOAT || v.kind == QP_V_STR;
    if (v.kind != a[0].kind) {
        *out = qp_t_bool(false);
        return true;
    }
    if (scalar) return t_eq(r, v, a, c, out);
    *out = qp_t_bool(v.as.s == a[0].as.s);
    return true;
}

/* Looking up a name there hashes it. */
static bool hashable(qp_trun *r, qp_tv v)
{
    uint64_t h;
    return qp_t_hash(r, v, &h, 0);
}

static bool t_filter(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)a;
    (void)c;
    if (!hashable(r, v)) return false;
    *out = qp_t_bool(v.kind == QP_V_STR && qp_t_find_filter(v.as.s->p, v.as.s->n));
    return true;
}

static bool t_test(qp_trun *r, qp_tv v, qp_tv *a, const call *c, qp_tv *out)
{
    (void)a;
    (void)c;
    if (!hashable(r, v)) return false;
    *out = qp_t_bool(v.kind == QP_V_STR && qp_t_find_test(v.as.s->p, v.as.s->n));
    return true;
}

const qp_tentry *qp_t_find_test(const char *name, size_t n)
{
    static const qp_tentry table[] = {
        {"defined", t_defined, "", 0},
        {"undefined", t_undefined, "", 0},
        {"none", t_none, "", 0},
        {"string", t_string, "", 0},
        {"number", t_number, "", 0},
        {"integer", t_integer, "", 0},
        {"float", t_float, "", 0},
        {"boolean", t_boolean, "", 0},
        {"true", t_true, "", 0},
        {"false", t_false, "", 0},
        {"mapping", t_mapping, "", 0},
        {"sequence", t_sequence, "", 0},
        {"iterable", t_iterable, "", 0},
        {"callable", t_callable, "", 0},
        {"escaped", t_escaped, "", 0},
        {"odd", t_odd, "", 0},
        {"even", t_even, "", 0},
        {"divisibleby", t_divisibleby, "num", 1},
        {"lower", t_lower, "", 0},
        {"upper", t_upper, "", 0},
        {"in", t_in, "seq", 1},
        {"eq", t_eq, "other", 1},
        {"equalto", t_eq, "other", 1},
        {"==", t_eq, "other", 1},
        {"ne", t_ne, "other", 1},
        {"!=", t_ne, "other", 1},
        {"lt", t_lt, "other", 1},
        {"lessthan", t_lt, "other", 1},
        {"<", t_lt, "other", 1},
        {"le", t_le, "other", 1},
        {"<=", t_le, "other", 1},
        {"gt", t_gt, "other", 1},
        {"greaterthan", t_gt, "other", 1},
        {">", t_gt, "other", 1},
        {"ge", t_ge, "other", 1},
        {">=", t_ge, "other", 1},
        {"sameas", t_sameas, "other", 1},
        {"filter", t_filter, "", 0},
        {"test", t_test, "", 0},
    };
    return qp_t_find_entry(table, sizeof table / sizeof *table, name, n);
}
