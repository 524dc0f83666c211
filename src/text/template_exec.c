/* Execution of statements: output, scopes, loops, macros. */
#include "text/template_impl.h"

#include <string.h>

/* ---- scopes ---- */

bool qp_t_new_scope(qp_trun *r, qp_tscope *up, qp_tscope **out)
{
    if (!qp_t_alloc(r, 1, sizeof **out, out)) return false;
    (*out)->up = up;
    return true;
}

bool qp_t_set_var(qp_trun *r, qp_tscope *sc, const qp_tstr *name, qp_tv v)
{
    if (!qp_t_step(r, 1 + sc->n / 8)) return false;
    for (size_t i = 0; i < sc->n; i++) {
        if (sc->vars[i].name != name) continue;
        sc->vars[i].v = v;
        return true;
    }
    if (sc->n == sc->cap) {
        size_t cap = sc->cap ? sc->cap * 2 : 4;
        qp_tvar *vars = NULL;
        if (!qp_t_alloc(r, cap, sizeof *vars, &vars)) return false;
        if (sc->n) memcpy(vars, sc->vars, sc->n * sizeof *vars);
        sc->vars = vars;
        sc->cap = cap;
    }
    sc->vars[sc->n++] = (qp_tvar){name, v};
    return true;
}

static bool assign_ns(qp_trun *r, const qp_tnode *target, qp_tscope *sc, qp_tv v)
{
    qp_tv ns, key;
    const qp_tstr *attr = target->c->name;
    if (!qp_t_lookup(r, target->name, sc, &ns)) return false;
    if (ns.kind != QP_V_NS) return qp_t_fail(r, QP_TE_RUNTIME, "cannot assign attribute on non-namespace object");
    if (!qp_t_check_ns_name(r, attr) || !qp_t_borrow_str(r, attr->p, attr->n, &key)) return false;
    return qp_t_dict_set(r, ns.as.d, key, v);
}

static bool assign_tuple(qp_trun *r, const qp_tnode *target, qp_tscope *sc, qp_tv v)
{
    qp_titer *it;
    qp_tv item;
    bool done;
    size_t n = 0;
    if (v.kind == QP_V_INT || v.kind == QP_V_BOOL || v.kind == QP_V_FLOAT || v.kind == QP_V_NONE)
        return qp_t_fail(r, QP_TE_RUNTIME, "cannot unpack non-iterable %s object", qp_t_type_name(v));
    if (!qp_t_iter(r, v, &it)) return false;
    for (const qp_tnode *k = target->kids; k; k = k->next, n++) {
        if (!qp_t_iter_next(r, it, &item, &done)) return false;
        if (done)
            return qp_t_fail(r, QP_TE_RUNTIME, "not enough values to unpack (expected %u, got %zu)", target->n_kids, n);
        if (!qp_t_assign(r, k, sc, item)) return false;
    }
    if (!qp_t_iter_next(r, it, &item, &done)) return false;
    return done ? true : qp_t_fail(r, QP_TE_RUNTIME, "too many values to unpack (expected %u)", target->n_kids);
}

/* Nesting of targets is bounded by the parser. */
bool qp_t_assign(qp_trun *r, const qp_tnode *target, qp_tscope *sc, qp_tv v)
{
    if (target->kind == QP_N_NAME) return qp_t_set_var(r, sc, target->name, v);
    if (target->kind == QP_N_NSREF) return assign_ns(r, target, sc, v);
    return assign_tuple(r, target, sc, v);
}

/* ---- loops ---- */

/* Items of a for statement that pass its filter. The target is bound in a scope of its own, as Jinja does. */
static bool next_filtered(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    for (;;) {
        qp_tv keep;
        if (!qp_t_iter_next(r, it->src, out, done)) return false;
        if (*done) return true;
        it->scope->n = 0;
        if (!qp_t_assign(r, it->node->a, it->scope, *out) || !qp_t_eval(r, it->node->c, it->scope, &keep)) return false;
        if (qp_t_truth(keep)) return true;
    }
}

static bool loop_iter(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv over, qp_titer **out)
{
    qp_titer *it;
    if (!qp_t_iter(r, over, &it)) return false;
    *out = it;
    if (!n->c) return true;
    if (!qp_t_alloc(r, 1, sizeof **out, out) || !qp_t_new_scope(r, sc, &(*out)->scope)) return false;
    (*out)->src = it;
    (*out)->node = n;
    (*out)->next = next_filtered;
    return true;
}

static bool loop_next(qp_trun *r, qp_tloop *l, bool first, bool *done)
{
    qp_tv v = l->ahead;
    *done = l->at_end && v.kind == QP_V_MISSING;
    if (!*done && v.kind == QP_V_MISSING && !qp_t_iter_next(r, l->it, &v, done)) return false;
    l->ahead = qp_t_missing();
    if (*done) return true;
    l->prev = l->cur;
    l->cur = v;
    l->index0 += !first;
    return true;
}

static qp_tflow run_for(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv over, unsigned depth0)
{
    qp_tloop *l = NULL;
    qp_tscope *inner;
    bool done, first = true;
    if (!qp_t_alloc(r, 1, sizeof *l, &l) || !qp_t_new_scope(r, sc, &inner)) return QP_FLOW_FAIL;
    l->node = n;
    l->scope = sc;
    l->depth0 = depth0;
    if (!loop_iter(r, n, sc, over, &l->it)) return QP_FLOW_FAIL;
    for (;; first = false) {
        if (!loop_next(r, l, first, &done)) return QP_FLOW_FAIL;
        if (done) break;
        inner->n = 0;
        if (!qp_t_set_var(r, inner, r->t->names[QP_T_NAME_LOOP], (qp_tv){QP_V_LOOP, {.loop = l}})) return QP_FLOW_FAIL;
        if (!qp_t_assign(r, n->a, inner, l->cur)) return QP_FLOW_FAIL;
        qp_tflow f = qp_t_exec(r, n, inner);
        if (f == QP_FLOW_FAIL) return f;
        if (f == QP_FLOW_BREAK) return QP_FLOW_OK;
    }
    if (!first || !n->body2) return QP_FLOW_OK;
    inner->n = 0;
    return qp_t_exec(r, n->body2, inner);
}

static bool enter_call(qp_trun *r)
{
    if (++r->depth > r->max_depth) return qp_t_limit(r, "calls are nested too deep");
    return true;
}

bool qp_t_call_loop(qp_trun *r, qp_tloop *l, const qp_tcall *c, qp_tv *out)
{
    size_t mark = r->buf.len;
    if (!l->node->flag)
        return qp_t_fail(r, QP_TE_RUNTIME, "The loop must have the 'recursive' marker to be called recursively.");
    if (c->n != 1 || c->n_kw) return qp_t_fail(r, QP_TE_RUNTIME, "loop() takes exactly one argument");
    if (!enter_call(r)) return false;
    if (run_for(r, l->node, l->scope, c->v[0], l->depth0 + 1) == QP_FLOW_FAIL) return false;
    r->depth--;
    return qp_t_take(r, mark, out);
}

/* ---- macros ---- */

static const qp_tv *take_kw(const qp_tcall *c, bool *used, const qp_tstr *name)
{
    for (size_t i = 0; i < c->n_kw; i++) {
        const qp_tstr *k = c->kw[i].key.as.s;
        if (k->n != name->n || memcmp(k->p, name->p, k->n)) continue;
        used[i] = true;
        return &c->kw[i].val;
    }
    return NULL;
}

/* Keywords that no parameter took. */
static bool bind_rest(qp_trun *r, const qp_tmacro *m, const qp_tcall *c, const bool *used, qp_tscope *sc)
{
    const qp_tnode *node = m->node;
    qp_tstr *const *names = r->t->names;
    size_t n_params = node->a->n_kids;
    qp_tv rest, kwargs;
    if (c->n > n_params && !(node->op & QP_T_USES_VARARGS))
        return qp_t_fail(r, QP_TE_RUNTIME, "macro '%.*s' takes not more than %zu argument(s)", (int)node->name->n,
                         node->name->p, n_params);
    if (node->op & QP_T_USES_VARARGS) {
        size_t n = c->n > n_params ? c->n - n_params : 0;
        if (!qp_t_new_list(r, QP_V_TUPLE, n, &rest)) return false;
        if (n) memcpy(rest.as.l->v, c->v + n_params, n * sizeof(qp_tv));
        if (!qp_t_set_var(r, sc, names[QP_T_NAME_VARARGS], rest)) return false;
    }
    if (!qp_t_new_dict(r, QP_V_DICT, &kwargs)) return false;
    for (size_t i = 0; i < c->n_kw; i++) {
        if (used[i]) continue;
        const qp_tstr *k = c->kw[i].key.as.s;
        if (!(node->op & QP_T_USES_KWARGS))
            return qp_t_fail(r, QP_TE_RUNTIME, "macro '%.*s' takes no keyword argument '%.*s'", (int)node->name->n,
                             node->name->p, (int)(k->n > 60 ? 60 : k->n), k->p);
        if (!qp_t_dict_set(r, kwargs.as.d, c->kw[i].key, c->kw[i].val)) return false;
    }
    return !(node->op & QP_T_USES_KWARGS) || qp_t_set_var(r, sc, names[QP_T_NAME_KWARGS], kwargs);
}

/* Given values first, then the check of what is left, then defaults in order: these see the parameters. */
static bool bind_macro(qp_trun *r, const qp_tmacro *m, const qp_tcall *c, qp_tscope *sc)
{
    const qp_tnode *node = m->node;
    const qp_tstr *caller = r->t->names[QP_T_NAME_CALLER];
    bool *used, *given;
    size_t i = 0;
    qp_tv v;
    if (!qp_t_alloc(r, c->n_kw + 1, sizeof *used, &used)) return false;
    if (!qp_t_alloc(r, node->a->n_kids + 1, sizeof *given, &given)) return false;
    if (node->op & QP_T_USES_CALLER) {
        const qp_tv *kw = take_kw(c, used, caller);
        if (!kw && !qp_t_new_undef(r, QP_TE_UNDEFINED, &v, "No caller defined")) return false;
        if (!qp_t_set_var(r, sc, caller, kw ? *kw : v)) return false;
    }
    for (const qp_tnode *p = node->a->kids; p; p = p->next, i++) {
        const qp_tv *kw = take_kw(c, used, p->name);
        if (kw && i < c->n)
            return qp_t_fail(r, QP_TE_RUNTIME, "macro '%.*s' got multiple values for argument '%.*s'",
                             (int)node->name->n, node->name->p, (int)p->name->n, p->name->p);
        given[i] = kw || i < c->n;
        if (given[i])
            v = kw ? *kw : c->v[i];
        else if (!qp_t_new_undef(r, QP_TE_UNDEFINED, &v, "parameter '%.*s' was not provided", (int)p->name->n,
                                 p->name->p))
            return false;
        if (!qp_t_set_var(r, sc, p->name, v)) return false;
    }
    if (!qp_t_step(r, c->n_kw * node->a->n_kids / 8) || !bind_rest(r, m, c, used, sc)) return false;
    i = 0;
    for (const qp_tnode *p = node->a->kids; p; p = p->next, i++) {
        if (given[i] || !p->a) continue;
        if (!qp_t_eval(r, p->a, sc, &v) || !qp_t_set_var(r, sc, p->name, v)) return false;
    }
    return true;
}

bool qp_t_call_macro(qp_trun *r, qp_tmacro *m, const qp_tcall *c, qp_tv *out)
{
    size_t mark = r->buf.len;
    qp_tscope *sc;
    if (!enter_call(r) || !qp_t_new_scope(r, m->scope, &sc) || !bind_macro(r, m, c, sc)) return false;
    if (qp_t_exec(r, m->node, sc) == QP_FLOW_FAIL) return false;
    r->depth--;
    return qp_t_take(r, mark, out);
}

static bool new_macro(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out)
{
    qp_tmacro *m = NULL;
    if (!qp_t_alloc(r, 1, sizeof *m, &m)) return false;
    *m = (qp_tmacro){n, sc};
    *out = (qp_tv){QP_V_MACRO, {.macro = m}};
    return true;
}

/* {% call(args) f(...) %}: f gets the body as keyword argument "caller". */
static bool exec_call_block(qp_trun *r, const qp_tnode *n, qp_tscope *sc)
{
    const qp_tnode *call = n->a->last;
    qp_tv v, caller, key;
    qp_tcall c;
    qp_tpair *kw = NULL;
    if (!qp_t_eval(r, n->a->a, sc, &v)) return false;
    for (const qp_tnode *op = n->a->kids; op != call; op = op->next) {
        qp_tnode one = {.kind = QP_N_CHAIN}, link = *op;
        link.next = NULL;
        one.kids = &link;
        if (!qp_t_eval_chain(r, &one, sc, v, &v)) return false;
    }
    if (!qp_t_eval_args(r, call, sc, &c) || !new_macro(r, n->b, sc, &caller)) return false;
    if (!qp_t_alloc(r, c.n_kw + 1, sizeof *kw, &kw) || !qp_t_borrow_str(r, "caller", 6, &key)) return false;
    if (c.n_kw) memcpy(kw, c.kw, c.n_kw * sizeof *kw);
    kw[c.n_kw++] = (qp_tpair){key, caller, 0};
    c.kw = kw;
    return qp_t_call(r, v, &c, &v) && qp_t_put_str(r, v);
}

/* ---- statements ---- */

/* Runs the body and cuts its text into *out. A break or continue inside drops the text. */
static qp_tflow capture(qp_trun *r, const qp_tnode *body, qp_tscope *sc, qp_tv *out)
{
    size_t mark = r->buf.len;
    qp_tflow f = qp_t_exec(r, body, sc);
    if (f == QP_FLOW_FAIL) return f;
    if (f != QP_FLOW_OK) {
        r->buf.len = mark;
        return f;
    }
    return qp_t_take(r, mark, out) ? QP_FLOW_OK : QP_FLOW_FAIL;
}

static qp_tflow exec_if(qp_trun *r, const qp_tnode *n, qp_tscope *sc)
{
    qp_tv v;
    for (const qp_tnode *b = n->kids; b; b = b->next) {
        if (!qp_t_eval(r, b->a, sc, &v)) return QP_FLOW_FAIL;
        if (qp_t_truth(v)) return qp_t_exec(r, b, sc);
    }
    return n->a ? qp_t_exec(r, n->a, sc) : QP_FLOW_OK;
}

/* {% set %} and {% filter %} blocks: the body in a scope of its own, then the filters. */
static qp_tflow exec_captured(qp_trun *r, const qp_tnode *n, qp_tscope *sc)
{
    qp_tscope *inner;
    qp_tv v;
    if (!qp_t_new_scope(r, sc, &inner)) return QP_FLOW_FAIL;
    qp_tflow f = capture(r, n, inner, &v);
    if (f != QP_FLOW_OK) return f;
    if (n->b && !qp_t_eval_chain(r, n->b, sc, v, &v)) return QP_FLOW_FAIL;
    bool ok = n->kind == QP_N_SETBLOCK ? qp_t_assign(r, n->a, sc, v) : qp_t_put_str(r, v);
    return ok ? QP_FLOW_OK : QP_FLOW_FAIL;
}

static qp_tflow exec_with(qp_trun *r, const qp_tnode *n, qp_tscope *sc)
{
    qp_tscope *inner;
    qp_tv v;
    if (!qp_t_new_scope(r, sc, &inner)) return QP_FLOW_FAIL;
    for (const qp_tnode *s = n->a->kids; s; s = s->next) {
        if (!qp_t_eval(r, s->b, sc, &v) || !qp_t_assign(r, s->a, inner, v)) return QP_FLOW_FAIL;
    }
    return qp_t_exec(r, n, inner);
}

static qp_tflow exec_block(qp_trun *r, const qp_tnode *n)
{
    qp_tscope *inner; /* blocks see the top-level names, not those of the loop around them */
    return qp_t_new_scope(r, r->top, &inner) ? qp_t_exec(r, n, inner) : QP_FLOW_FAIL;
}

static qp_tflow exec_one(qp_trun *r, const qp_tnode *n, qp_tscope *sc)
{
    qp_tv v;
    bool ok = true;
    switch (n->kind) {
    case QP_N_TEXT:
        ok = qp_t_put(r, n->val.as.s->p, n->val.as.s->n);
        break;
    case QP_N_PRINT:
        ok = qp_t_eval(r, n->a, sc, &v) && qp_t_put_str(r, v);
        break;
    case QP_N_IF:
        return exec_if(r, n, sc);
    case QP_N_FOR:
        return qp_t_eval(r, n->b, sc, &v) ? run_for(r, n, sc, v, 0) : QP_FLOW_FAIL;
    case QP_N_SET:
        ok = qp_t_eval(r, n->b, sc, &v) && qp_t_assign(r, n->a, sc, v);
        break;
    case QP_N_SETBLOCK:
    case QP_N_FILTERBLOCK:
        return exec_captured(r, n, sc);
    case QP_N_MACRO:
        ok = new_macro(r, n, sc, &v) && qp_t_set_var(r, sc, n->name, v);
        break;
    case QP_N_CALLBLOCK:
        ok = exec_call_block(r, n, sc);
        break;
    case QP_N_WITH:
        return exec_with(r, n, sc);
    case QP_N_BLOCK:
        return exec_block(r, n);
    case QP_N_BREAK:
        return QP_FLOW_BREAK;
    case QP_N_CONTINUE:
        return QP_FLOW_CONTINUE;
    default: /* QP_N_NOLOADER */
        ok = qp_t_fail(r, QP_TE_RUNTIME, "no loader for this environment specified");
    }
    return ok ? QP_FLOW_OK : QP_FLOW_FAIL;
}

qp_tflow qp_t_exec(qp_trun *r, const qp_tnode *body, qp_tscope *sc)
{
    if (++r->nest > QP_T_MAX_NEST) {
        qp_t_limit(r, "evaluation is nested too deep");
        return QP_FLOW_FAIL;
    }
    for (const qp_tnode *n = body->kids; n; n = n->next) {
        if (!qp_t_step(r, 1)) return QP_FLOW_FAIL;
        qp_tflow f = exec_one(r, n, sc);
        if (f == QP_FLOW_OK) continue;
        r->nest--;
        return f;
    }
    r->nest--;
    return QP_FLOW_OK;
}
