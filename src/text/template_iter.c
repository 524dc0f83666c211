/* Iteration over template values. Iterators are lazy and one-pass, as Python's generators: map and select filters,
 * loop filters and dict views are all pulled item by item. */
#include "text/template_impl.h"

#include <string.h>

static bool next_list(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    (void)r;
    *done = it->pos >= it->over.as.l->n;
    if (!*done) *out = it->over.as.l->v[it->pos++];
    return true;
}

static bool next_list_back(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    (void)r;
    *done = it->pos >= it->over.as.l->n;
    if (!*done) *out = it->over.as.l->v[it->over.as.l->n - 1 - it->pos++];
    return true;
}

static bool next_str(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    const qp_tstr *s = it->over.as.s;
    *done = it->pos >= s->n;
    if (*done) return true;
    size_t to = it->pos + 1;
    while (to < s->n && (s->p[to] & 0xC0) == 0x80) to++;
    if (!qp_t_borrow_str(r, s->p + it->pos, to - it->pos, out)) return false;
    it->pos = to;
    return true;
}

static bool pair(qp_trun *r, qp_tv a, qp_tv b, qp_tv *out)
{
    if (!qp_t_new_list(r, QP_V_TUPLE, 2, out)) return false;
    out->as.l->v[0] = a;
    out->as.l->v[1] = b;
    return true;
}

static bool next_view(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    const qp_tview *w = it->over.as.view;
    *done = it->pos >= w->d->n;
    if (*done) return true;
    const qp_tpair *p = &w->d->v[it->pos++];
    if (w->which == 'i') return pair(r, p->key, p->val, out);
    *out = w->which == 'k' ? p->key : p->val;
    return true;
}

static bool next_dict(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    (void)r;
    *done = it->pos >= it->over.as.d->n;
    if (!*done) *out = it->over.as.d->v[it->pos++].key;
    return true;
}

static bool next_range(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    const qp_trange *g = it->over.as.range;
    (void)r;
    *done = it->pos >= g->n;
    if (!*done) *out = qp_t_int(g->start + (int64_t)it->pos++ * g->step);
    return true;
}

static bool next_bytes(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    (void)r;
    *done = it->pos >= it->over.as.s->n;
    if (!*done) *out = qp_t_int((unsigned char)it->over.as.s->p[it->pos++]);
    return true;
}

static bool next_none(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    (void)r;
    (void)it;
    (void)out;
    *done = true;
    return true;
}

static bool next_loop(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    qp_tloop *l = it->over.as.loop;
    (void)it;
    *done = l->at_end;
    return *done ? true : qp_t_iter_next(r, l->it, out, done);
}

bool qp_t_iter(qp_trun *r, qp_tv v, qp_titer **out)
{
    static const qp_tnext nexts[] = {
        [QP_V_UNDEF] = next_none, [QP_V_STR] = next_str,   [QP_V_BYTES] = next_bytes, [QP_V_LIST] = next_list,
        [QP_V_TUPLE] = next_list, [QP_V_DICT] = next_dict, [QP_V_VIEW] = next_view,   [QP_V_RANGE] = next_range,
        [QP_V_LOOP] = next_loop,  [QP_V_SELF] = NULL,
    };
    if (v.kind == QP_V_ITER) {
        *out = v.as.it;
        return true;
    }
    if (!nexts[v.kind]) return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object is not iterable", qp_t_type_name(v));
    if (!qp_t_alloc(r, 1, sizeof **out, out)) return false;
    (*out)->next = nexts[v.kind];
    (*out)->over = v;
    return true;
}

bool qp_t_iter_next(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    *done = it->ended;
    if (*done) return true;
    if (!qp_t_step(r, 1)) return false;
    if (++r->nest > QP_T_MAX_NEST) return qp_t_limit(r, "evaluation is nested too deep");
    bool ok = it->next(r, it, out, done);
    r->nest--;
    it->ended = *done;
    return ok;
}

bool qp_t_iter_rest(qp_trun *r, qp_titer *it, qp_tvec *out)
{
    for (;;) {
        qp_tv v;
        bool done;
        if (!qp_t_iter_next(r, it, &v, &done)) return false;
        if (done) return true;
        if (!qp_t_push(r, out, v)) return false;
    }
}

bool qp_t_to_list(qp_trun *r, qp_tv v, qp_tv *out)
{
    qp_titer *it;
    qp_tvec vec = {0};
    *out = v;
    if (qp_t_is_seq(v)) return true;
    return qp_t_iter(r, v, &it) && qp_t_iter_rest(r, it, &vec) && qp_t_vec_list(r, &vec, out);
}

bool qp_t_list_iter(qp_trun *r, qp_tv list, qp_tv *out)
{
    qp_titer *it;
    if (!qp_t_iter(r, list, &it)) return false;
    *out = (qp_tv){QP_V_ITER, {.it = it}};
    return true;
}

bool qp_t_reversed(qp_trun *r, qp_tv v, bool *ok, qp_tv *out)
{
    qp_tv list;
    *ok = v.kind == QP_V_STR || qp_t_is_seq(v) || v.kind == QP_V_DICT || v.kind == QP_V_VIEW || v.kind == QP_V_RANGE ||
          v.kind == QP_V_UNDEF || v.kind == QP_V_BYTES;
    if (!*ok) return true;
    if (!qp_t_to_list(r, v, &list) || !qp_t_list_iter(r, list, out)) return false;
    out->as.it->next = next_list_back;
    return true;
}

/* "a.b.0": names and numbers, one item access after the other. path: a string, an int, or MISSING/NONE (the item). */
bool qp_t_path_get(qp_trun *r, qp_tv item, qp_tv path, qp_tv deflt, qp_tv *out)
{
    *out = item;
    if (path.kind == QP_V_MISSING || path.kind == QP_V_NONE) return true;
    if (path.kind != QP_V_STR) {
        if (!qp_t_getitem(r, item, path, out)) return false;
        if (out->kind == QP_V_UNDEF && deflt.kind != QP_V_MISSING && deflt.kind != QP_V_NONE) *out = deflt;
        return true;
    }
    const qp_tstr *s = path.as.s;
    for (size_t from = 0, to; from <= s->n; from = to + 1) {
        qp_tv key;
        bool number = true;
        int64_t i = 0;
        for (to = from; to < s->n && s->p[to] != '.'; to++) {
            number = number && s->p[to] >= '0' && s->p[to] <= '9' && i < 1000000000;
            if (number) i = i * 10 + (s->p[to] - '0');
        }
        if (number && to > from)
            key = qp_t_int(i);
        else if (!qp_t_sub_str(r, path, from, to, &key))
            return false;
        if (!qp_t_getitem(r, *out, key, out)) return false;
        if (out->kind == QP_V_UNDEF && deflt.kind != QP_V_MISSING && deflt.kind != QP_V_NONE) *out = deflt;
    }
    return true;
}
