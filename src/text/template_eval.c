/* Evaluation of expressions. */
#include "text/template_impl.h"

#include <string.h>

bool qp_t_lookup(qp_trun *r, const qp_tstr *name, qp_tscope *sc, qp_tv *out)
{
    for (; sc; sc = sc->up) {
        if (!qp_t_step(r, sc->n / 8)) return false;
        for (size_t i = sc->n; i-- > 0;) {
            if (sc->vars[i].name != name) continue;
            *out = sc->vars[i].v;
            return true;
        }
    }
    qp_tv *found = qp_t_dict_find_str(r->context, name);
    if (found) {
        *out = *found;
        return true;
    }
    const qp_tentry *e = qp_t_find_global(name->p, name->n);
    if (e) {
        qp_tfunc *fn = NULL;
        if (!qp_t_alloc(r, 1, sizeof *fn, &fn)) return false;
        fn->entry = e;
        *out = (qp_tv){QP_V_FUNC, {.fn = fn}};
        return true;
    }
    if (name == r->t->names[QP_T_NAME_SELF]) {
        *out = (qp_tv){QP_V_SELF, {0}};
        return true;
    }
    return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "'%.*s' is undefined", (int)(name->n > 100 ? 100 : name->n),
                          name->p);
}

static bool eval_kids(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tkind kind, qp_tv *out)
{
    size_t i = 0;
    if (!qp_t_new_list(r, kind, n->n_kids, out)) return false;
    for (const qp_tnode *k = n->kids; k; k = k->next) {
        if (!qp_t_eval(r, k, sc, &out->as.l->v[i++])) return false;
    }
    return true;
}

static bool eval_dict(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    qp_tv key, val;
    if (!qp_t_new_dict(r, QP_V_DICT, out)) return false;
    for (const qp_tnode *k = n->kids; k; k = k->next->next) {
        if (!qp_t_eval(r, k, sc, &key) || !qp_t_eval(r, k->next, sc, &val)) return false;
        if (!qp_t_dict_set(r, out->as.d, key, val)) return false;
    }
    return true;
}

/* ---- operators ---- */

static bool eval_binary(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    qp_tv left, right;
    if (!qp_t_eval(r, n->a, sc, &left)) return false;
    for (const qp_tnode *k = n->kids; k; k = k->next) {
        if (!qp_t_eval(r, k->a, sc, &right) || !qp_t_binary(r, k->op, left, right, &left)) return false;
    }
    *out = left;
    return true;
}

static bool compare(qp_trun *r, unsigned op, qp_tv a, qp_tv b, bool *out)
{
    int order;
    switch (op) {
    case '=':
    case '!':
        if (!qp_t_equal(r, a, b, out, 0)) return false;
        *out = *out == (op == '=');
        return true;
    case 'i':
    case 'n':
        if (!qp_t_contains(r, a, b, out)) return false;
        *out = *out == (op == 'i');
        return true;
    default:
        if (!qp_t_less(r, a, b, op == '<' ? "<" : op == '>' ? ">" : op == 'l' ? "<=" : ">=", &order, 0)) return false;
        *out = order != 2 && (op == '<' ? order < 0 : op == '>' ? order > 0 : op == 'l' ? order <= 0 : order >= 0);
        return true;
    }
}

static bool eval_compare(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    qp_tv left, right;
    bool holds = true;
    if (!qp_t_eval(r, n->a, sc, &left)) return false;
    for (const qp_tnode *k = n->kids; k && holds; k = k->next) {
        if (!qp_t_eval(r, k->a, sc, &right) || !compare(r, k->op, left, right, &holds)) return false;
        left = right;
    }
    *out = qp_t_bool(holds);
    return true;
}

static bool eval_logic(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    for (const qp_tnode *k = n->kids; k; k = k->next) {
        if (!qp_t_eval(r, k, sc, out)) return false;
        if (qp_t_truth(*out) == (n->kind == QP_N_OR)) return true;
    }
    return true;
}

static bool eval_concat(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    qp_tv parts;
    size_t mark;
    if (!eval_kids(r, n, sc, QP_V_LIST, &parts)) return false; /* first: evaluating may fail or use the buffer */
    mark = r->buf.len;
    for (size_t i = 0; i < parts.as.l->n; i++) {
        if (!qp_t_put_str(r, parts.as.l->v[i])) return false;
    }
    return qp_t_take(r, mark, out);
}

/* ---- calls, filters, tests ---- */

static bool add_kw(qp_trun *r, qp_tcall *c, size_t *cap, qp_tv key, qp_tv val)
{
    for (size_t i = 0; i < c->n_kw; i++) {
        const qp_tstr *k = c->kw[i].key.as.s;
        if (k->n == key.as.s->n && !memcmp(k->p, key.as.s->p, k->n))
            return qp_t_fail(r, QP_TE_RUNTIME, "got multiple values for keyword argument '%.*s'",
                             (int)(k->n > 60 ? 60 : k->n), k->p);
    }
    if (!qp_t_step(r, 1 + c->n_kw)) return false;
    if (c->n_kw == *cap) {
        size_t bigger = *cap ? *cap * 2 : 4;
        qp_tpair *kw = NULL;
        if (!qp_t_alloc(r, bigger, sizeof *kw, &kw)) return false;
        if (c->n_kw) memcpy(kw, c->kw, c->n_kw * sizeof *kw);
        c->kw = kw;
        *cap = bigger;
    }
    c->kw[c->n_kw++] = (qp_tpair){key, val, 0};
    return true;
}

static bool add_mapping(qp_trun *r, qp_tcall *c, size_t *cap, qp_tv v)
{
    if (v.kind == QP_V_UNDEF) return qp_t_use_undef(r, v);
    if (v.kind != QP_V_DICT)
        return qp_t_fail(r, QP_TE_RUNTIME, "argument after ** must be a mapping, not %s", qp_t_type_name(v));
    for (size_t i = 0; i < v.as.d->n; i++) {
        if (v.as.d->v[i].key.kind != QP_V_STR) return qp_t_fail(r, QP_TE_RUNTIME, "keywords must be strings");
        if (!add_kw(r, c, cap, v.as.d->v[i].key, v.as.d->v[i].val)) return false;
    }
    return true;
}

bool qp_t_eval_args(qp_trun *r, const qp_tnode *call, qp_tscope *sc, qp_tcall *out)
{
    qp_tvec vec = {0};
    size_t cap = 0;
    memset(out, 0, sizeof *out);
    for (const qp_tnode *k = call->kids; k; k = k->next) {
        qp_tv v, key;
        if (!qp_t_eval(r, k->a, sc, &v)) return false;
        if (k->op == '*') {
            qp_titer *it;
            if (!qp_t_iter(r, v, &it) || !qp_t_iter_rest(r, it, &vec)) return false;
        } else if (k->op == 'k') {
            if (!add_mapping(r, out, &cap, v)) return false;
        } else if (k->name) {
            if (!qp_t_borrow_str(r, k->name->p, k->name->n, &key) || !add_kw(r, out, &cap, key, v)) return false;
        } else if (!qp_t_push(r, &vec, v)) {
            return false;
        }
    }
    out->v = vec.v;
    out->n = vec.n;
    return true;
}

static bool unknown(qp_trun *r, const qp_tnode *op)
{
    return qp_t_fail(r, QP_TE_RUNTIME, "No %s named '%.*s' found.", op->kind == QP_N_FILTER ? "filter" : "test",
                     (int)op->name->n, op->name->p);
}

static bool apply_op(qp_trun *r, const qp_tnode *op, qp_tscope *sc, qp_tv *v)
{
    qp_tcall c;
    qp_tv arg[3];
    const qp_tnode *bounds[3] = {op->a, op->b, op->c};
    switch (op->kind) {
    case QP_N_ATTR:
        return qp_t_getattr(r, *v, op->name, v);
    case QP_N_ITEM:
        return qp_t_eval(r, op->a, sc, &arg[0]) && qp_t_getitem(r, *v, arg[0], v);
    case QP_N_SLICE:
        for (size_t i = 0; i < 3; i++) {
            arg[i] = qp_t_missing();
            if (bounds[i] && !qp_t_eval(r, bounds[i], sc, &arg[i])) return false;
        }
        return qp_t_slice(r, *v, arg[0], arg[1], arg[2], v);
    case QP_N_CALL:
        if (!qp_t_eval_args(r, op, sc, &c)) return false;
        return qp_t_call(r, *v, &c, v);
    default:
        if (!op->entry) return unknown(r, op);
        if (!qp_t_eval_args(r, op, sc, &c) || !qp_t_apply(r, op->entry, *v, &c, v)) return false;
        if (op->kind == QP_N_TEST && op->flag) *v = qp_t_bool(!qp_t_truth(*v));
        return true;
    }
}

bool qp_t_eval_chain(qp_trun *r, const qp_tnode *chain, qp_tscope *sc, qp_tv v, qp_tv *out)
{
    for (const qp_tnode *op = chain->kids; op; op = op->next) {
        if (!apply_op(r, op, sc, &v)) return false;
    }
    *out = v;
    return true;
}

static bool eval_inner(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    qp_tv v;
    switch (n->kind) {
    case QP_N_CONST:
        *out = n->val;
        return true;
    case QP_N_NAME:
        return qp_t_lookup(r, n->name, sc, out);
    case QP_N_TUPLE:
        return eval_kids(r, n, sc, QP_V_TUPLE, out);
    case QP_N_LIST:
        return eval_kids(r, n, sc, QP_V_LIST, out);
    case QP_N_DICT:
        return eval_dict(r, n, sc, out);
    case QP_N_CHAIN:
        return qp_t_eval(r, n->a, sc, &v) && qp_t_eval_chain(r, n, sc, v, out);
    case QP_N_BINARY:
        return eval_binary(r, n, sc, out);
    case QP_N_COMPARE:
        return eval_compare(r, n, sc, out);
    case QP_N_AND:
    case QP_N_OR:
        return eval_logic(r, n, sc, out);
    case QP_N_CONCAT:
        return eval_concat(r, n, sc, out);
    case QP_N_NOT:
        if (!qp_t_eval(r, n->a, sc, &v)) return false;
        *out = qp_t_bool(!qp_t_truth(v));
        return true;
    case QP_N_NEG:
    case QP_N_POS:
        return qp_t_eval(r, n->a, sc, &v) && qp_t_negate(r, v, n->kind == QP_N_NEG, out);
    default: /* QP_N_COND */
        if (!qp_t_eval(r, n->a, sc, &v)) return false;
        if (qp_t_truth(v)) return qp_t_eval(r, n->b, sc, out);
        if (n->c) return qp_t_eval(r, n->c, sc, out);
        return qp_t_new_undef(r, QP_TE_UNDEFINED, out,
                              "the inline if-expression on line %u evaluated to false and no else section was defined.",
                              n->line);
    }
}

bool qp_t_eval(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    if (!qp_t_step(r, 1)) return false;
    if (++r->nest > QP_T_MAX_NEST) return qp_t_limit(r, "evaluation is nested too deep");
    bool ok = eval_inner(r, n, sc, out);
    r->nest--;
    return ok;
}
