/* Operators, attribute and item access, slices of template values. Integers are 64 bits: a result beyond is an error.
 */
#include "text/template_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool overflow(qp_trun *r)
{
    return qp_t_fail(r, QP_TE_RUNTIME, "integer result does not fit 64 bits");
}

static bool is_number(qp_tv v)
{
    return v.kind == QP_V_INT || v.kind == QP_V_BOOL || v.kind == QP_V_FLOAT;
}

static double as_double(qp_tv v)
{
    int64_t i = 0;
    if (v.kind == QP_V_FLOAT) return v.as.f;
    qp_t_as_int(v, &i);
    return (double)i;
}

static bool bad_operands(qp_trun *r, const char *op, qp_tv a, qp_tv b)
{
    if (a.kind == QP_V_UNDEF) return qp_t_use_undef(r, a);
    if (b.kind == QP_V_UNDEF) return qp_t_use_undef(r, b);
    if (a.kind == QP_V_BIG || b.kind == QP_V_BIG) return overflow(r);
    if (op[0] == '+' && (a.kind == QP_V_STR || qp_t_is_seq(a)))
        return qp_t_fail(r, QP_TE_RUNTIME, "can only concatenate %s (not \"%s\") to %s", qp_t_type_name(a),
                         qp_t_type_name(b), qp_t_type_name(a));
    return qp_t_fail(r, QP_TE_RUNTIME, "unsupported operand type(s) for %s: '%s' and '%s'", op, qp_t_type_name(a),
                     qp_t_type_name(b));
}

/* ---- arithmetic ---- */

static bool int_power(qp_trun *r, int64_t base, int64_t exp, qp_tv *out)
{
    int64_t result = 1;
    if (exp < 0) {
        if (!base) return qp_t_fail(r, QP_TE_RUNTIME, "0.0 cannot be raised to a negative power");
        *out = qp_t_float(pow((double)base, (double)exp));
        return true;
    }
    for (; exp; exp >>= 1) {
        if (exp & 1 && __builtin_mul_overflow(result, base, &result)) return overflow(r);
        if (exp > 1 && __builtin_mul_overflow(base, base, &base)) return overflow(r);
    }
    *out = qp_t_int(result);
    return true;
}

static bool int_op(qp_trun *r, unsigned op, int64_t a, int64_t b, qp_tv *out)
{
    int64_t v = 0;
    bool bad = false;
    switch (op) {
    case '+':
        bad = __builtin_add_overflow(a, b, &v);
        break;
    case '-':
        bad = __builtin_sub_overflow(a, b, &v);
        break;
    case '*':
        bad = __builtin_mul_overflow(a, b, &v);
        break;
    case '/':
        if (!b) return qp_t_fail(r, QP_TE_RUNTIME, "division by zero");
        *out = qp_t_float((double)((long double)a / (long double)b));
        return true;
    case 'p':
        return int_power(r, a, b, out);
    default: /* floor division and modulo: the remainder has the divisor's sign */
        if (!b) return qp_t_fail(r, QP_TE_RUNTIME, "integer division or modulo by zero");
        if (b == -1) {
            if (op == 'f') bad = __builtin_sub_overflow((int64_t)0, a, &v);
            break;
        }
        v = a % b;
        if (v && (v < 0) != (b < 0)) v += b;
        if (op == 'f') v = a / b - (a % b && (a < 0) != (b < 0));
    }
    if (bad) return overflow(r);
    *out = qp_t_int(v);
    return true;
}

static bool is_zero(double d)
{
    return !(d < 0) && !(d > 0) && !isnan(d);
}

static bool float_op(qp_trun *r, unsigned op, double a, double b, qp_tv *out)
{
    double v;
    switch (op) {
    case '+':
        v = a + b;
        break;
    case '-':
        v = a - b;
        break;
    case '*':
        v = a * b;
        break;
    case '/':
        if (is_zero(b)) return qp_t_fail(r, QP_TE_RUNTIME, "float division by zero");
        v = a / b;
        break;
    case 'p':
        if (is_zero(a) && b < 0) return qp_t_fail(r, QP_TE_RUNTIME, "0.0 cannot be raised to a negative power");
        v = pow(a, b);
        if (isnan(v) && !isnan(a) && !isnan(b))
            return qp_t_fail(r, QP_TE_RUNTIME, "a power of a negative number is not real");
        if (isinf(v) && isfinite(a) && isfinite(b)) return qp_t_fail(r, QP_TE_RUNTIME, "Numerical result out of range");
        break;
    default:
        if (is_zero(b)) return qp_t_fail(r, QP_TE_RUNTIME, "float floor division or modulo by zero");
        v = fmod(a, b);
        if (!is_zero(v) && (v < 0) != (b < 0))
            v += b;
        else if (is_zero(v))
            v = copysign(0.0, b);
        if (op == 'f') {
            double q = (a - v) / b, whole = floor(q);
            v = q - whole > 0.5 ? whole + 1 : whole;
        }
    }
    *out = qp_t_float(v);
    return true;
}

/* ---- strings and lists ---- */

static bool concat_text(qp_trun *r, qp_tv a, qp_tv b, qp_tv *out)
{
    size_t mark = r->buf.len;
    bool markup = a.as.s->markup || b.as.s->markup;
    if (!markup) {
        qp_tstr *x = a.as.s, *y = b.as.s;
        char *p = NULL;
        if (!qp_t_step_bytes(r, x->n + y->n) || x->n + y->n > r->buf.limit)
            return r->kind ? false : qp_t_limit(r, "a string is too long");
        if (!qp_t_alloc(r, x->n + y->n + 1, 1, &p)) return false;
        if (x->n) memcpy(p, x->p, x->n);
        if (y->n) memcpy(p + x->n, y->p, y->n);
        return qp_t_borrow_str(r, p, x->n + y->n, out);
    }
    if (!(a.as.s->markup ? qp_t_put_str(r, a) : qp_t_put_escaped(r, a.as.s->p, a.as.s->n))) return false;
    if (!(b.as.s->markup ? qp_t_put_str(r, b) : qp_t_put_escaped(r, b.as.s->p, b.as.s->n))) return false;
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = true;
    return true;
}

static bool concat_lists(qp_trun *r, qp_tv a, qp_tv b, qp_tv *out)
{
    size_t n = a.as.l->n, m = b.as.l->n;
    if (!qp_t_new_list(r, a.kind, n + m, out)) return false;
    if (n) memcpy(out->as.l->v, a.as.l->v, n * sizeof(qp_tv));
    if (m) memcpy(out->as.l->v + n, b.as.l->v, m * sizeof(qp_tv));
    return true;
}

static bool repeat(qp_trun *r, qp_tv v, int64_t times, qp_tv *out)
{
    size_t mark = r->buf.len, t = times > 0 ? (size_t)times : 0;
    if (v.kind == QP_V_STR) {
        if (!qp_t_put_repeat(r, v.as.s->p, v.as.s->n, t) || !qp_t_take(r, mark, out)) return false;
        out->as.s->markup = v.as.s->markup;
        return true;
    }
    size_t n = v.as.l->n;
    if (n && t > (size_t)100000000 / n) return qp_t_limit(r, "a list is too long");
    if (!qp_t_new_list(r, v.kind, n * t, out)) return false;
    for (size_t i = 0; n && i < n * t; i++) out->as.l->v[i] = v.as.l->v[i % n];
    return true;
}

bool qp_t_binary(qp_trun *r, unsigned op, qp_tv a, qp_tv b, qp_tv *out)
{
    int64_t i, j;
    char name[3] = {(char)op, 0, 0};
    if (op == 'p' || op == 'f') memcpy(name, op == 'p' ? "**" : "//", 2);
    if (!qp_t_step(r, 1)) return false;
    if (a.kind == QP_V_UNDEF) return qp_t_use_undef(r, a);
    if (is_number(a) && is_number(b)) {
        if (a.kind == QP_V_FLOAT || b.kind == QP_V_FLOAT) return float_op(r, op, as_double(a), as_double(b), out);
        return qp_t_as_int(a, &i) && qp_t_as_int(b, &j) && int_op(r, op, i, j, out);
    }
    if (op == '%' && a.kind == QP_V_STR) return qp_t_percent(r, a, b, out);
    if (b.kind == QP_V_UNDEF) return qp_t_use_undef(r, b);
    if (op == '+' && a.kind == b.kind) {
        if (a.kind == QP_V_STR) return concat_text(r, a, b, out);
        if (qp_t_is_seq(a)) return concat_lists(r, a, b, out);
    }
    if (op == '*') {
        if ((a.kind == QP_V_STR || qp_t_is_seq(a)) && qp_t_as_int(b, &j)) return repeat(r, a, j, out);
        if ((b.kind == QP_V_STR || qp_t_is_seq(b)) && qp_t_as_int(a, &i)) return repeat(r, b, i, out);
    }
    return bad_operands(r, name, a, b);
}

bool qp_t_negate(qp_trun *r, qp_tv v, bool minus, qp_tv *out)
{
    int64_t i;
    if (v.kind == QP_V_UNDEF) return qp_t_use_undef(r, v);
    if (v.kind == QP_V_FLOAT) {
        *out = qp_t_float(minus ? -v.as.f : v.as.f);
        return true;
    }
    if (v.kind == QP_V_BIG) {
        size_t mark = r->buf.len;
        bool negative = v.as.s->p[0] == '-';
        *out = v;
        if (!minus) return true;
        if (!negative && !qp_t_put(r, "-", 1)) return false;
        if (!qp_t_put(r, v.as.s->p + negative, v.as.s->n - negative) || !qp_t_take(r, mark, out)) return false;
        out->kind = QP_V_BIG;
        return true;
    }
    if (!qp_t_as_int(v, &i))
        return qp_t_fail(r, QP_TE_RUNTIME, "bad operand type for unary %c: '%s'", minus ? '-' : '+', qp_t_type_name(v));
    if (minus && i == INT64_MIN) return overflow(r);
    *out = qp_t_int(minus ? -i : i);
    return true;
}

/* ---- attributes and items ---- */

static bool no_attribute(qp_trun *r, qp_tv obj, const char *name, size_t n, qp_tv *out)
{
    if (n > 100) n = 100;
    if (obj.kind == QP_V_UNDEF) return qp_t_use_undef(r, obj);
    return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "'%s%s' has no attribute '%.*s'", qp_t_type_name(obj),
                          obj.kind == QP_V_NONE ? "" : " object", (int)n, name);
}

static bool unsafe(qp_trun *r, qp_tv obj, const char *name, size_t n, qp_tv *out)
{
    if (n > 100) n = 100;
    return qp_t_new_undef(r, QP_TE_SECURITY, out, "access to attribute '%.*s' of '%s' object is unsafe.", (int)n, name,
                          qp_t_type_name(obj));
}

static bool macro_attr(qp_trun *r, const qp_tmacro *m, const char *name, size_t n, qp_tv *out)
{
    const qp_tnode *node = m->node;
    if (n == 4 && !memcmp(name, "name", 4)) return qp_t_borrow_str(r, node->name->p, node->name->n, out);
    if (n == 9 && !memcmp(name, "arguments", 9)) {
        if (!qp_t_new_list(r, QP_V_TUPLE, node->a->n_kids, out)) return false;
        size_t i = 0;
        for (const qp_tnode *p = node->a->kids; p; p = p->next) {
            if (!qp_t_borrow_str(r, p->name->p, p->name->n, &out->as.l->v[i++])) return false;
        }
        return true;
    }
    if (n == 13 && !memcmp(name, "catch_varargs", 13)) *out = qp_t_bool(node->op & QP_T_USES_VARARGS);
    if (n == 12 && !memcmp(name, "catch_kwargs", 12)) *out = qp_t_bool(node->op & QP_T_USES_KWARGS);
    if (n == 6 && !memcmp(name, "caller", 6)) *out = qp_t_bool(node->op & QP_T_USES_CALLER);
    return true;
}

bool qp_t_attribute(qp_trun *r, qp_tv obj, const qp_tstr *name, qp_tv *out)
{
    const char *p = name->p;
    size_t n = name->n;
    *out = qp_t_missing();
    if (obj.kind == QP_V_UNDEF) return qp_t_use_undef(r, obj);
    if (obj.kind == QP_V_NS) {
        qp_tv *found = qp_t_dict_find_str(obj.as.d, name);
        if (found) *out = *found;
        if (found) return true;
    }
    if (n > 4 && p[0] == '_' && p[1] == '_' && p[n - 1] == '_' && p[n - 2] == '_') return unsafe(r, obj, p, n, out);
    if (qp_t_is_mutator(obj.kind, p, n)) return unsafe(r, obj, p, n, out);
    if (obj.kind == QP_V_MACRO) return macro_attr(r, obj.as.macro, p, n, out);
    if (obj.kind == QP_V_LOOP && !qp_t_loop_attr(r, obj.as.loop, p, n, out)) return false;
    if (out->kind != QP_V_MISSING) return true;
    if (obj.kind == QP_V_CYCLER && n == 7 && !memcmp(p, "current", 7)) {
        *out = obj.as.cycler->v[obj.as.cycler->pos];
        return true;
    }
    if (obj.kind == QP_V_TUPLE && obj.as.l->group && n == 7 && !memcmp(p, "grouper", 7)) *out = obj.as.l->v[0];
    if (obj.kind == QP_V_TUPLE && obj.as.l->group && n == 4 && !memcmp(p, "list", 4)) *out = obj.as.l->v[1];
    if (out->kind != QP_V_MISSING) return true;
    const qp_tentry *e = qp_t_find_method(obj.kind, p, n);
    qp_tfunc *fn = NULL;
    if (!e) return true;
    if (!qp_t_alloc(r, 1, sizeof *fn, &fn)) return false;
    *fn = (qp_tfunc){e, obj};
    *out = (qp_tv){QP_V_FUNC, {.fn = fn}};
    return true;
}

bool qp_t_getattr(qp_trun *r, qp_tv obj, const qp_tstr *name, qp_tv *out)
{
    if (!qp_t_step(r, 1) || !qp_t_attribute(r, obj, name, out)) return false;
    if (out->kind != QP_V_MISSING) return true;
    if (obj.kind == QP_V_DICT) {
        qp_tv *found = qp_t_dict_find_str(obj.as.d, name);
        if (found) *out = *found;
        if (found) return true;
    }
    return no_attribute(r, obj, name->p, name->n, out);
}

static bool str_item(qp_trun *r, qp_tv obj, int64_t i, bool *found, qp_tv *out)
{
    qp_tstr *s = obj.as.s;
    size_t ncp = qp_t_ncp(s);
    if (i < 0) i += (int64_t)ncp;
    *found = i >= 0 && i < (int64_t)ncp;
    if (!*found) return true;
    if (ncp != s->n && !qp_t_step_bytes(r, s->n)) return false;
    size_t from = qp_t_offset(s, (size_t)i), to = from + 1;
    while (to < s->n && (s->p[to] & 0xC0) == 0x80) to++;
    return qp_t_sub_str(r, obj, from, to, out);
}

/* Depth is bounded: a tuple nested deeper counts as hashable and then fails in qp_t_hash. */
static bool hashable(qp_trun *r, qp_tv v, unsigned depth, bool *yes)
{
    *yes = v.kind != QP_V_LIST && v.kind != QP_V_DICT;
    if (!qp_t_step(r, 1)) return false;
    for (size_t i = 0; *yes && v.kind == QP_V_TUPLE && depth < QP_T_MAX_VALUE_DEPTH && i < v.as.l->n; i++) {
        if (!hashable(r, v.as.l->v[i], depth + 1, yes)) return false;
    }
    return true;
}

/* obj[key] as Python has it; *found false when that raises TypeError or LookupError. */
static bool item(qp_trun *r, qp_tv obj, qp_tv key, bool *found, qp_tv *out)
{
    int64_t i;
    bool is_int = qp_t_as_int(key, &i);
    *found = false;
    if (obj.kind == QP_V_DICT) {
        qp_tv *v;
        bool yes;
        if (!hashable(r, key, 0, &yes)) return false;
        if (!yes) return true; /* a TypeError there, so undefined */
        if (!qp_t_dict_find(r, obj.as.d, key, &v)) return false;
        if (v) *out = *v;
        *found = v != NULL;
        return true;
    }
    if (!is_int) return true;
    if (obj.kind == QP_V_STR) return str_item(r, obj, i, found, out);
    if (qp_t_is_seq(obj)) {
        if (i < 0) i += (int64_t)obj.as.l->n;
        *found = i >= 0 && (uint64_t)i < obj.as.l->n;
        if (*found) *out = obj.as.l->v[i];
    } else if (obj.kind == QP_V_RANGE) {
        if (i < 0) i += (int64_t)obj.as.range->n;
        *found = i >= 0 && (uint64_t)i < obj.as.range->n;
        if (*found) *out = qp_t_int(obj.as.range->start + i * obj.as.range->step);
    } else if (obj.kind == QP_V_BYTES) {
        if (i < 0) i += (int64_t)obj.as.s->n;
        *found = i >= 0 && (uint64_t)i < obj.as.s->n;
        if (*found) *out = qp_t_int((unsigned char)obj.as.s->p[i]);
    }
    return true;
}

bool qp_t_getitem(qp_trun *r, qp_tv obj, qp_tv key, qp_tv *out)
{
    bool found;
    if (!qp_t_step(r, 1)) return false;
    if (obj.kind == QP_V_UNDEF) return qp_t_use_undef(r, obj);
    if (!item(r, obj, key, &found, out)) return false;
    if (found) return true;
    if (key.kind == QP_V_STR) {
        if (!qp_t_attribute(r, obj, key.as.s, out)) return false;
        if (out->kind != QP_V_MISSING) return true;
        return no_attribute(r, obj, key.as.s->p, key.as.s->n, out);
    }
    if (key.kind == QP_V_INT) {
        return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "%s object has no element %" PRId64, qp_t_type_name(obj),
                              key.as.i);
    }
    return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "%s object has no such element (%s)", qp_t_type_name(obj),
                          qp_t_type_name(key));
}

/* ---- slices ---- */

static bool bound(qp_trun *r, qp_tv v, int64_t n, int64_t step, bool end, int64_t *out)
{
    if (v.kind == QP_V_MISSING || v.kind == QP_V_NONE) {
        *out = step > 0 ? (end ? n : 0) : (end ? -1 : n - 1);
        return true;
    }
    if (v.kind == QP_V_UNDEF) return qp_t_use_undef(r, v);
    if (!qp_t_as_int(v, out))
        return qp_t_fail(r, QP_TE_RUNTIME, "slice indices must be integers or None or have an __index__ method");
    if (*out < 0) {
        *out += n;
        if (*out < 0) *out = step > 0 ? 0 : -1;
    } else if (*out >= n) {
        *out = step > 0 ? n : n - 1;
    }
    return true;
}

static bool slice_text(qp_trun *r, qp_tv obj, int64_t from, int64_t to, int64_t step, qp_tv *out)
{
    qp_tstr *s = obj.as.s;
    size_t mark = r->buf.len;
    if (!qp_t_step_bytes(r, s->n)) return false;
    if (step == 1) {
        size_t a = qp_t_offset(s, (size_t)from), b = to > from ? qp_t_offset(s, (size_t)to) : a;
        return qp_t_sub_str(r, obj, a, b, out);
    }
    size_t *at = NULL, n = 0;
    if (qp_t_ncp(s) != s->n) { /* offsets of all code points */
        if (!qp_t_alloc(r, s->ncp, sizeof *at, &at)) return false;
        for (size_t i = 0; i < s->n; i++) {
            if ((s->p[i] & 0xC0) != 0x80) at[n++] = i;
        }
    }
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        size_t o = at ? at[i] : (size_t)i, e = o + 1;
        while (e < s->n && (s->p[e] & 0xC0) == 0x80) e++;
        if (!qp_t_put(r, s->p + o, e - o)) return false;
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = s->markup;
    return true;
}

/* Unsigned sums: the ends of a range may lie outside 64 bits, its elements do not. */
static bool slice_range(qp_trun *r, const qp_trange *g, int64_t from, int64_t to, int64_t step, size_t n, qp_tv *out)
{
    qp_trange *s = NULL;
    if (!qp_t_alloc(r, 1, sizeof *s, &s)) return false;
    s->start = (int64_t)((uint64_t)g->start + (uint64_t)from * (uint64_t)g->step);
    s->stop = (int64_t)((uint64_t)g->start + (uint64_t)to * (uint64_t)g->step);
    s->step = (int64_t)((uint64_t)g->step * (uint64_t)step);
    s->n = n;
    *out = (qp_tv){QP_V_RANGE, {.range = s}};
    return true;
}

bool qp_t_slice(qp_trun *r, qp_tv obj, qp_tv from_v, qp_tv to_v, qp_tv step_v, qp_tv *out)
{
    int64_t step = 1, from, to;
    size_t n;
    if (obj.kind == QP_V_UNDEF) return qp_t_use_undef(r, obj);
    if (obj.kind != QP_V_STR && !qp_t_is_seq(obj) && obj.kind != QP_V_RANGE) {
        if (obj.kind == QP_V_DICT) return qp_t_fail(r, QP_TE_RUNTIME, "unhashable type: 'slice'");
        return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object is not subscriptable", qp_t_type_name(obj));
    }
    if (step_v.kind != QP_V_MISSING && step_v.kind != QP_V_NONE && !qp_t_as_int(step_v, &step))
        return qp_t_fail(r, QP_TE_RUNTIME, "slice indices must be integers or None or have an __index__ method");
    if (!step) return qp_t_fail(r, QP_TE_RUNTIME, "slice step cannot be zero");
    if (!qp_t_length(r, obj, &n)) return false;
    if (step > (int64_t)n + 1) step = (int64_t)n + 1; /* the same elements, and sums cannot overflow */
    if (step < -(int64_t)n - 1) step = -(int64_t)n - 1;
    if (!bound(r, from_v, (int64_t)n, step, false, &from) || !bound(r, to_v, (int64_t)n, step, true, &to)) return false;
    if (obj.kind == QP_V_STR) return slice_text(r, obj, from, to, step, out);
    size_t count = 0;
    if (step > 0 && to > from) count = (size_t)((to - from + step - 1) / step);
    if (step < 0 && from > to) count = (size_t)((from - to - step - 1) / -step);
    if (obj.kind == QP_V_RANGE) return slice_range(r, obj.as.range, from, to, step, count, out);
    if (!qp_t_new_list(r, obj.kind, count, out)) return false;
    for (size_t i = 0; i < count; i++, from += step) out->as.l->v[i] = obj.as.l->v[from];
    return true;
}
