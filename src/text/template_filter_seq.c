/* Filters over sequences: map, select, sort, groupby and the like. The lazy ones give one-pass iterators. */
#include "text/template_impl.h"

#include <string.h>

typedef qp_tcall call;

#define UNUSED(x) (void)(x)

static bool is_str(qp_tv v, const char *text)
{
    return v.kind == QP_V_STR && v.as.s->n == strlen(text) && !memcmp(v.as.s->p, text, v.as.s->n);
}

/* Lower-cases strings unless case matters: what sort, unique, min, max and groupby compare. */
static bool fold_key(qp_trun *r, qp_tv v, bool case_sensitive, qp_tv *out)
{
    *out = v;
    return v.kind != QP_V_STR || case_sensitive || qp_t_case(r, v, QP_CASE_LOWER, out);
}

/* ---- laziness ----
 * map, select, unique, batch, slice and items do nothing, not even look at their arguments, before the first item is
 * asked for. An iterator therefore begins with a `start` function as its next; that replaces itself. */

static bool lazy(qp_trun *r, qp_tv self, qp_tnext start, const qp_tv *a, const call *c, qp_tv *out)
{
    qp_titer *it = NULL;
    if (!qp_t_alloc(r, 1, sizeof *it, &it)) return false;
    it->next = start;
    it->over = self;
    it->call = *c;
    it->extra = a[0];
    it->extra2 = a[1];
    *out = (qp_tv){QP_V_ITER, {.it = it}};
    return true;
}

static bool next_src(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    return qp_t_iter_next(r, it->src, out, done);
}

/* From here on it gives the items of v. */
static bool follow(qp_trun *r, qp_titer *it, qp_tv v, qp_tv *out, bool *done)
{
    if (!qp_t_iter(r, v, &it->src)) return false;
    it->next = next_src;
    return next_src(r, it, out, done);
}

/* ---- plain ---- */

static bool f_length(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    size_t n;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_length(r, self, &n)) return false;
    *out = qp_t_int((int64_t)n);
    return true;
}

static bool f_first(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_titer *it = NULL;
    bool done;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_iter(r, self, &it) || !qp_t_iter_next(r, it, out, &done)) return false;
    return done ? qp_t_new_undef(r, QP_TE_UNDEFINED, out, "No first item, sequence was empty.") : true;
}

static bool f_last(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tv back;
    bool ok, done;
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_reversed(r, self, &ok, &back)) return false;
    if (!ok) return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object is not reversible", qp_t_type_name(self));
    if (!qp_t_iter_next(r, back.as.it, out, &done)) return false;
    return done ? qp_t_new_undef(r, QP_TE_UNDEFINED, out, "No last item, sequence was empty.") : true;
}

static bool f_list(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(a);
    UNUSED(c);
    if (!qp_t_to_list(r, self, out)) return false;
    out->kind = QP_V_LIST;
    return true;
}

static bool start_items(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    qp_tview *w = NULL;
    if (it->over.kind == QP_V_UNDEF) {
        *done = true;
        return true;
    }
    if (it->over.kind != QP_V_DICT) return qp_t_fail(r, QP_TE_RUNTIME, "Can only get item pairs from a mapping.");
    if (!qp_t_alloc(r, 1, sizeof *w, &w)) return false;
    *w = (qp_tview){it->over.as.d, 'i'};
    return follow(r, it, (qp_tv){QP_V_VIEW, {.view = w}}, out, done);
}

static bool f_items(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return lazy(r, self, start_items, a, c, out);
}

static bool f_join(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tvec items = {0};
    qp_titer *it = NULL;
    qp_tv sep = a[0];
    UNUSED(c);
    if (!qp_t_iter(r, self, &it) || !qp_t_iter_rest(r, it, &items)) return false;
    for (size_t i = 0; i < items.n; i++) {
        if (!qp_t_path_get(r, items.v[i], a[1], qp_t_missing(), &items.v[i])) return false;
    }
    if (sep.kind != QP_V_MISSING && !qp_t_str_of(r, sep, &sep)) return false;
    size_t mark = r->buf.len;
    for (size_t i = 0; i < items.n; i++) {
        if (i && sep.kind == QP_V_STR && !qp_t_put_str(r, sep)) return false;
        if (!qp_t_put_str(r, items.v[i])) return false;
    }
    return qp_t_take(r, mark, out);
}

static bool f_reverse(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    bool ok;
    UNUSED(a);
    UNUSED(c);
    if (self.kind == QP_V_STR) return qp_t_slice(r, self, qp_t_missing(), qp_t_missing(), qp_t_int(-1), out);
    if (!qp_t_reversed(r, self, &ok, out)) return false;
    if (ok) return true;
    if (!qp_t_to_list(r, self, &self)) return false;
    return qp_t_reversed(r, self, &ok, out) && qp_t_to_list(r, *out, out);
}

static bool f_sum(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_titer *it = NULL;
    UNUSED(c);
    *out = a[1].kind == QP_V_MISSING ? qp_t_int(0) : a[1];
    if (out->kind == QP_V_STR) return qp_t_fail(r, QP_TE_RUNTIME, "sum() can't sum strings [use ''.join(seq) instead]");
    if (!qp_t_iter(r, self, &it)) return false;
    for (;;) {
        qp_tv v;
        bool done;
        if (!qp_t_iter_next(r, it, &v, &done)) return false;
        if (done) return true;
        if (!qp_t_path_get(r, v, a[0], qp_t_missing(), &v) || !qp_t_binary(r, '+', *out, v, out)) return false;
    }
}

static bool extreme(qp_trun *r, qp_tv self, const qp_tv *a, bool max, qp_tv *out)
{
    qp_titer *it = NULL;
    qp_tv best_key = qp_t_missing();
    if (!qp_t_iter(r, self, &it)) return false;
    for (;;) {
        qp_tv v, key;
        bool done;
        int order;
        if (!qp_t_iter_next(r, it, &v, &done)) return false;
        if (done) break;
        if (!qp_t_path_get(r, v, a[1], qp_t_missing(), &key) || !fold_key(r, key, qp_t_truth(a[0]), &key)) return false;
        if (best_key.kind != QP_V_MISSING) {
            if (!qp_t_less(r, key, best_key, max ? ">" : "<", &order, 0)) return false;
            if (max ? order != 1 : order != -1) continue;
        }
        best_key = key;
        *out = v;
    }
    if (best_key.kind != QP_V_MISSING) return true;
    return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "No aggregated item, sequence was empty.");
}

static bool f_max(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return extreme(r, self, a, true, out);
}

static bool f_min(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    UNUSED(c);
    return extreme(r, self, a, false, out);
}

/* ---- order ---- */

/* Sort keys of items by attribute: one path, or several separated by commas, which make a tuple. */
static bool sort_key(qp_trun *r, qp_tv item, qp_tv attr, bool case_sensitive, qp_tv *out)
{
    size_t n = 1, i = 0;
    if (attr.kind != QP_V_STR) {
        if (!qp_t_path_get(r, item, attr, qp_t_missing(), out) || !fold_key(r, *out, case_sensitive, out)) return false;
        if (out->kind <= QP_V_STR && out->kind > QP_V_NONE) return true;
        qp_tv v = *out; /* Jinja's keys are lists: elements that are equal are never asked which is less */
        if (!qp_t_new_list(r, QP_V_LIST, 1, out)) return false;
        out->as.l->v[0] = v;
        return true;
    }
    const qp_tstr *s = attr.as.s;
    for (size_t k = 0; k < s->n; k++) n += s->p[k] == ',';
    if (!qp_t_new_list(r, QP_V_LIST, n, out)) return false;
    for (size_t from = 0, to; from <= s->n; from = to + 1) {
        qp_tv path, v;
        for (to = from; to < s->n && s->p[to] != ','; to++) {
        }
        if (!qp_t_sub_str(r, attr, from, to, &path) || !qp_t_path_get(r, item, path, qp_t_missing(), &v) ||
            !fold_key(r, v, case_sensitive, &out->as.l->v[i++]))
            return false;
    }
    return true;
}

static bool sorted(qp_trun *r, qp_tv self, qp_tv attr, bool case_sensitive, bool reverse, qp_tvec *keys, qp_tvec *vals)
{
    qp_titer *it = NULL;
    if (!qp_t_iter(r, self, &it) || !qp_t_iter_rest(r, it, vals)) return false;
    for (size_t i = 0; i < vals->n; i++) {
        qp_tv key;
        if (!sort_key(r, vals->v[i], attr, case_sensitive, &key) || !qp_t_push(r, keys, key)) return false;
    }
    return qp_t_sort(r, keys->v, vals->v, vals->n, reverse);
}

static bool f_sort(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tvec keys = {0}, vals = {0};
    UNUSED(c);
    return sorted(r, self, a[2], qp_t_truth(a[1]), qp_t_truth(a[0]), &keys, &vals) && qp_t_vec_list(r, &vals, out);
}

static bool f_dictsort(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tvec keys = {0}, vals = {0};
    size_t pos = 0;
    UNUSED(c);
    if (self.kind == QP_V_UNDEF) return qp_t_use_undef(r, self);
    if (self.kind != QP_V_DICT)
        return qp_t_fail(r, QP_TE_RUNTIME, "dictsort: not a mapping but %s", qp_t_type_name(self));
    if (a[1].kind != QP_V_MISSING && !is_str(a[1], "key")) {
        if (!is_str(a[1], "value"))
            return qp_t_fail(r, QP_TE_RUNTIME, "You can only sort by either \"key\" or \"value\"");
        pos = 1;
    }
    for (size_t i = 0; i < self.as.d->n; i++) {
        qp_tv pair, key;
        if (!qp_t_new_list(r, QP_V_TUPLE, 2, &pair)) return false;
        pair.as.l->v[0] = self.as.d->v[i].key;
        pair.as.l->v[1] = self.as.d->v[i].val;
        if (!fold_key(r, pair.as.l->v[pos], qp_t_truth(a[0]), &key)) return false;
        if (!qp_t_push(r, &keys, key) || !qp_t_push(r, &vals, pair)) return false;
    }
    return qp_t_sort(r, keys.v, vals.v, vals.n, qp_t_truth(a[2])) && qp_t_vec_list(r, &vals, out);
}

static bool next_unique(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    for (;;) {
        qp_tv key, *found;
        if (!qp_t_iter_next(r, it->src, out, done)) return false;
        if (*done) return true;
        if (!qp_t_path_get(r, *out, it->extra2, qp_t_missing(), &key) ||
            !fold_key(r, key, qp_t_truth(it->extra), &key) || !qp_t_dict_find(r, it->over.as.d, key, &found))
            return false;
        if (!found) return qp_t_dict_set(r, it->over.as.d, key, qp_t_none());
    }
}

static bool start_unique(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    if (!qp_t_iter(r, it->over, &it->src) || !qp_t_new_dict(r, QP_V_DICT, &it->over)) return false;
    it->next = next_unique; /* over: what was seen */
    return next_unique(r, it, out, done);
}

static bool f_unique(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return lazy(r, self, start_unique, a, c, out);
}

static bool f_groupby(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    qp_tvec keys = {0}, vals = {0}, groups = {0};
    qp_titer *it = NULL;
    bool case_sensitive = qp_t_truth(a[2]);
    UNUSED(c);
    if (!qp_t_iter(r, self, &it) || !qp_t_iter_rest(r, it, &vals)) return false;
    for (size_t i = 0; i < vals.n; i++) {
        qp_tv key;
        if (!qp_t_path_get(r, vals.v[i], a[0], a[1], &key) || !fold_key(r, key, case_sensitive, &key)) return false;
        if (!qp_t_push(r, &keys, key)) return false;
    }
    if (!qp_t_sort(r, keys.v, vals.v, vals.n, false)) return false;
    for (size_t i = 0, j; i < vals.n; i = j) {
        qp_tv pair, list;
        bool same = true;
        for (j = i + 1; j < vals.n; j++) {
            if (!qp_t_equal(r, keys.v[i], keys.v[j], &same, 0)) return false;
            if (!same) break;
        }
        if (!qp_t_new_list(r, QP_V_LIST, j - i, &list) || !qp_t_new_list(r, QP_V_TUPLE, 2, &pair)) return false;
        memcpy(list.as.l->v, vals.v + i, (j - i) * sizeof(qp_tv));
        if (!qp_t_path_get(r, vals.v[i], a[0], a[1], &pair.as.l->v[0])) return false;
        pair.as.l->v[1] = list;
        pair.as.l->group = true;
        if (!qp_t_push(r, &groups, pair)) return false;
    }
    return qp_t_vec_list(r, &groups, out);
}

/* ---- pieces ---- */

static bool part(qp_trun *r, const qp_tv *v, size_t n, size_t fill, qp_tv with, qp_tvec *parts)
{
    qp_tv list;
    if (!qp_t_new_list(r, QP_V_LIST, n + fill, &list)) return false;
    if (n) memcpy(list.as.l->v, v, n * sizeof *v);
    for (size_t i = 0; i < fill; i++) list.as.l->v[n + i] = with;
    return qp_t_push(r, parts, list);
}

static bool piece_count(qp_trun *r, const char *what, qp_tv v, int64_t *out)
{
    if (!qp_t_as_int(v, out)) return qp_t_fail(r, QP_TE_RUNTIME, "%s: the count must be an integer", what);
    if (*out <= 0) return qp_t_fail(r, QP_TE_RUNTIME, "%s: the count must be positive", what);
    return *out <= 1000000 ? true : qp_t_limit(r, "batch or slice: a count of more than 1000000");
}

static bool start_batch(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    int64_t n = 1;
    qp_tvec parts = {0};
    qp_tv list;
    bool fill = it->extra2.kind != QP_V_MISSING && it->extra2.kind != QP_V_NONE;
    if (!piece_count(r, "batch", it->extra, &n) || !qp_t_to_list(r, it->over, &list)) return false;
    for (size_t i = 0, len = list.as.l->n; i < len; i += (size_t)n) {
        size_t take = len - i < (size_t)n ? len - i : (size_t)n;
        if (!part(r, list.as.l->v + i, take, fill ? (size_t)n - take : 0, it->extra2, &parts)) return false;
    }
    return qp_t_vec_list(r, &parts, &list) && follow(r, it, list, out, done);
}

static bool f_batch(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return lazy(r, self, start_batch, a, c, out);
}

static bool start_slice(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    int64_t n = 1;
    qp_tvec parts = {0};
    qp_tv list;
    bool fill = it->extra2.kind != QP_V_MISSING && it->extra2.kind != QP_V_NONE;
    if (!qp_t_to_list(r, it->over, &list) || !piece_count(r, "slice", it->extra, &n)) return false;
    size_t len = list.as.l->n, each = len / (size_t)n, extra = len % (size_t)n, at = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t take = each + (i < extra);
        if (!part(r, list.as.l->v + at, take, fill && i >= extra, it->extra2, &parts)) return false;
        at += take;
    }
    return qp_t_vec_list(r, &parts, &list) && follow(r, it, list, out, done);
}

static bool f_slice(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return lazy(r, self, start_slice, a, c, out);
}

/* ---- map, select ---- */

static bool next_mapped(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    qp_tv v;
    if (!qp_t_iter_next(r, it->src, &v, done)) return false;
    if (*done) return true;
    if (it->by_attr) return qp_t_path_get(r, v, it->extra, it->extra2, out);
    return qp_t_apply(r, it->entry, v, &it->call, out);
}

static bool next_selected(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    for (;;) {
        qp_tv v, keep;
        if (!qp_t_iter_next(r, it->src, &v, done)) return false;
        if (*done) return true;
        if (!qp_t_path_get(r, v, it->extra, qp_t_missing(), &keep)) return false;
        if (it->entry && !qp_t_apply(r, it->entry, keep, &it->call, &keep)) return false;
        if (qp_t_truth(keep) == it->negate) continue;
        *out = v;
        return true;
    }
}

static bool no_such(qp_trun *r, const char *what, const qp_tstr *name)
{
    return qp_t_fail(r, QP_TE_RUNTIME, "No %s named '%.*s'.", what, (int)(name->n > 60 ? 60 : name->n), name->p);
}

/* The call without its first n arguments. */
static bool rest_of_call(qp_trun *r, const call *c, size_t n, qp_tcall *out)
{
    *out = *c;
    if (c->n <= n) {
        out->n = 0;
        return true;
    }
    out->n = c->n - n;
    if (!qp_t_alloc(r, out->n, sizeof *out->v, &out->v)) return false;
    memcpy(out->v, c->v + n, out->n * sizeof *out->v);
    return true;
}

static bool start_map(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    const qp_tcall c = it->call;
    it->extra = it->extra2 = qp_t_missing();
    if (!qp_t_truth(it->over)) { /* undefined, none, empty: nothing to walk */
        *done = true;
        return true;
    }
    if (!c.n) {
        it->by_attr = true;
        for (size_t i = 0; i < c.n_kw; i++) {
            if (is_str(c.kw[i].key, "attribute"))
                it->extra = c.kw[i].val;
            else if (is_str(c.kw[i].key, "default"))
                it->extra2 = c.kw[i].val;
            else
                return qp_t_fail(r, QP_TE_RUNTIME, "map: unexpected keyword argument");
        }
        if (it->extra.kind == QP_V_MISSING) return qp_t_fail(r, QP_TE_RUNTIME, "map requires a filter argument");
    } else {
        if (c.v[0].kind != QP_V_STR) return qp_t_fail(r, QP_TE_RUNTIME, "map: the name of a filter must be a string");
        const qp_tstr *name = c.v[0].as.s;
        it->entry = qp_t_find_filter(name->p, name->n);
        if (!it->entry) return no_such(r, "filter", name);
        if (!rest_of_call(r, &c, 1, &it->call)) return false;
    }
    it->next = next_mapped;
    return qp_t_iter(r, it->over, &it->src) && next_mapped(r, it, out, done);
}

static bool f_map(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return lazy(r, self, start_map, a, c, out);
}

static bool start_select(qp_trun *r, qp_titer *it, qp_tv *out, bool *done)
{
    const qp_tcall c = it->call;
    size_t at = it->by_attr;
    it->extra = qp_t_missing();
    if (!qp_t_truth(it->over)) {
        *done = true;
        return true;
    }
    if (it->by_attr) {
        if (!c.n) return qp_t_fail(r, QP_TE_RUNTIME, "Missing parameter for attribute name");
        it->extra = c.v[0];
    }
    if (c.n > at) {
        if (c.v[at].kind != QP_V_STR) return qp_t_fail(r, QP_TE_RUNTIME, "select: the name of a test must be a string");
        const qp_tstr *name = c.v[at].as.s;
        it->entry = qp_t_find_test(name->p, name->n);
        if (!it->entry) return no_such(r, "test", name);
        if (!rest_of_call(r, &c, at + 1, &it->call)) return false;
    }
    it->next = next_selected;
    return qp_t_iter(r, it->over, &it->src) && next_selected(r, it, out, done);
}

static bool select_by(qp_trun *r, qp_tv self, const qp_tv *a, const call *c, bool negate, bool by_attr, qp_tv *out)
{
    if (!lazy(r, self, start_select, a, c, out)) return false;
    out->as.it->negate = negate;
    out->as.it->by_attr = by_attr;
    return true;
}

static bool f_select(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return select_by(r, self, a, c, false, false, out);
}

static bool f_reject(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return select_by(r, self, a, c, true, false, out);
}

static bool f_selectattr(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return select_by(r, self, a, c, false, true, out);
}

static bool f_rejectattr(qp_trun *r, qp_tv self, qp_tv *a, const call *c, qp_tv *out)
{
    return select_by(r, self, a, c, true, true, out);
}

const qp_tentry qp_t_filters_seq[] = {
    {"length", f_length, "", 0},
    {"count", f_length, "", 0},
    {"first", f_first, "", 0},
    {"last", f_last, "", 0},
    {"list", f_list, "", 0},
    {"items", f_items, "", 0},
    {"join", f_join, "d,attribute", 0},
    {"reverse", f_reverse, "", 0},
    {"sum", f_sum, "attribute,start", 0},
    {"max", f_max, "case_sensitive,attribute", 0},
    {"min", f_min, "case_sensitive,attribute", 0},
    {"sort", f_sort, "reverse,case_sensitive,attribute", 0},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0},
    {"unique", f_unique, "case_sensitive,attribute", 0},
    {"groupby", f_groupby, "attribute,default,case_sensitive", 1},
    {"batch", f_batch, "linecount,fill_with", 1},
    {"slice", f_slice, "slices,fill_with", 1},
    {"map", f_map, "*", 0},
    {"select", f_select, "*", 0},
    {"reject", f_reject, "*", 0},
    {"selectattr", f_selectattr, "*", 0},
    {"rejectattr", f_rejectattr, "*", 0},
};
const size_t qp_t_n_filters_seq = sizeof qp_t_filters_seq / sizeof *qp_t_filters_seq;
