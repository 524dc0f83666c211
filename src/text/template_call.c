/* Calls: binding arguments to built-ins, global functions, methods of everything but strings, the loop object. */
#include "text/template_impl.h"

#include <string.h>
#include <time.h>

static bool same_word(const char *p, size_t n, const char *word, size_t n_word)
{
    return n == n_word && !memcmp(p, word, n);
}

/* Index of name in a comma-separated list, or -1. */
static int param_index(const char *params, const char *name, size_t n)
{
    for (int i = 0;; i++) {
        size_t len = strcspn(params, ",");
        if (same_word(name, n, params, len)) return i;
        if (!params[len]) return -1;
        params += len + 1;
    }
}

bool qp_t_bind(qp_trun *r, const qp_tentry *e, const qp_tcall *c, qp_tv *a)
{
    size_t n_params = e->params[0] ? 1 : 0;
    for (size_t i = 0; i < QP_T_MAX_ARGS; i++) a[i] = qp_t_missing();
    if (e->params[0] == '*') return true;
    for (const char *p = e->params; *p; p++) n_params += *p == ',';
    if (c->n > n_params)
        return qp_t_fail(r, QP_TE_RUNTIME, "%s() takes at most %zu arguments, %zu given", e->name, n_params, c->n);
    for (size_t i = 0; i < c->n; i++) a[i] = c->v[i];
    for (size_t i = 0; i < c->n_kw; i++) {
        const qp_tstr *k = c->kw[i].key.as.s;
        int at = param_index(e->params, k->p, k->n);
        if (at < 0 || a[at].kind != QP_V_MISSING)
            return qp_t_fail(r, QP_TE_RUNTIME, "%s() got %s keyword argument '%.*s'", e->name,
                             at < 0 ? "an unexpected" : "a repeated", (int)(k->n > 60 ? 60 : k->n), k->p);
        a[at] = c->kw[i].val;
    }
    for (size_t i = 0; i < e->n_required; i++) {
        if (a[i].kind == QP_V_MISSING)
            return qp_t_fail(r, QP_TE_RUNTIME, "%s() misses a required argument (%s)", e->name, e->params);
    }
    return true;
}

bool qp_t_apply(qp_trun *r, const qp_tentry *e, qp_tv self, const qp_tcall *c, qp_tv *out)
{
    qp_tv a[QP_T_MAX_ARGS];
    if (++r->nest > QP_T_MAX_NEST) return qp_t_limit(r, "evaluation is nested too deep");
    bool ok = qp_t_step(r, 1) && qp_t_bind(r, e, c, a) && e->fn(r, self, a, c, out);
    r->nest--;
    return ok;
}

bool qp_t_call(qp_trun *r, qp_tv f, const qp_tcall *c, qp_tv *out)
{
    switch (f.kind) {
    case QP_V_FUNC:
        return qp_t_apply(r, f.as.fn->entry, f.as.fn->self, c, out);
    case QP_V_MACRO:
        return qp_t_call_macro(r, f.as.macro, c, out);
    case QP_V_LOOP:
        return qp_t_call_loop(r, f.as.loop, c, out);
    case QP_V_JOINER:
        if (!f.as.cycler->pos) {
            f.as.cycler->pos = 1;
            return qp_t_borrow_str(r, "", 0, out);
        }
        *out = f.as.cycler->v[0];
        return true;
    case QP_V_UNDEF:
        return qp_t_use_undef(r, f);
    default:
        return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object is not callable", qp_t_type_name(f));
    }
}

const qp_tentry *qp_t_find_entry(const qp_tentry *table, size_t n_table, const char *name, size_t n)
{
    for (size_t i = 0; i < n_table; i++) {
        if (same_word(name, n, table[i].name, strlen(table[i].name))) return &table[i];
    }
    return NULL;
}

const qp_tentry *qp_t_find_filter(const char *name, size_t n)
{
    const qp_tentry *e = qp_t_find_entry(qp_t_filters_text, qp_t_n_filters_text, name, n);
    return e ? e : qp_t_find_entry(qp_t_filters_seq, qp_t_n_filters_seq, name, n);
}

/* ---- global functions ---- */

static bool g_raise(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    qp_tv text;
    (void)self;
    (void)c;
    (void)out;
    if (!qp_t_str_of(r, a[0], &text)) return false;
    size_t n = text.as.s->n < sizeof r->err->msg ? text.as.s->n : sizeof r->err->msg;
    return qp_t_fail(r, QP_TE_RAISE, "%.*s", (int)n, text.as.s->p);
}

static bool g_strftime(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    char fmt[256], text[1024];
    struct tm tm;
    time_t now = (time_t)r->now;
    (void)self;
    (void)c;
    if (a[0].kind != QP_V_STR)
        return qp_t_fail(r, QP_TE_RUNTIME, "strftime_now() wants a string, not %s", qp_t_type_name(a[0]));
    const qp_tstr *s = a[0].as.s;
    if (s->n >= sizeof fmt - 1) return qp_t_limit(r, "strftime_now: a format of more than 254 bytes");
    if (s->n && memchr(s->p, 0, s->n)) return qp_t_fail(r, QP_TE_RUNTIME, "embedded null character");
    size_t len = 0;
    for (size_t i = 0; i < s->n; i++) { /* a naive datetime has no zone: %z and %Z are empty there */
        if (s->p[i] != '%' || i + 1 == s->n) {
            fmt[len++] = s->p[i];
            continue;
        }
        if (s->p[++i] == 'z' || s->p[i] == 'Z') continue;
        fmt[len++] = '%';
        fmt[len++] = s->p[i];
    }
    fmt[len++] = '.'; /* so that an empty result differs from one that does not fit */
    fmt[len] = 0;
    if (!localtime_r(&now, &tm)) return qp_t_fail(r, QP_TE_RUNTIME, "strftime_now: the clock is out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the format is the template's; text bounds the result */
    size_t n = strftime(text, sizeof text, fmt, &tm);
#pragma GCC diagnostic pop
    if (!n) return qp_t_limit(r, "strftime_now: a result of more than 1000 bytes");
    return qp_t_new_str(r, text, n - 1, out);
}

static bool g_range(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    int64_t v[3] = {0, 0, 1};
    qp_trange *g = NULL;
    (void)self;
    (void)c;
    for (size_t i = 0; i < 3; i++) {
        if (a[i].kind == QP_V_MISSING) continue;
        if (a[i].kind == QP_V_UNDEF) return qp_t_use_undef(r, a[i]);
        if (!qp_t_as_int(a[i], &v[i]))
            return qp_t_fail(r, QP_TE_RUNTIME, "'%s' object cannot be interpreted as an integer", qp_t_type_name(a[i]));
    }
    if (a[1].kind == QP_V_MISSING) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!v[2]) return qp_t_fail(r, QP_TE_RUNTIME, "range() arg 3 must not be zero");
    uint64_t span = v[2] > 0 ? (v[1] > v[0] ? (uint64_t)v[1] - (uint64_t)v[0] : 0)
                             : (v[0] > v[1] ? (uint64_t)v[0] - (uint64_t)v[1] : 0);
    uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2], n = span / step + (span % step != 0);
    if (n > QP_T_MAX_RANGE)
        return qp_t_fail(r, QP_TE_RUNTIME, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                         QP_T_MAX_RANGE);
    if (!qp_t_alloc(r, 1, sizeof *g, &g)) return false;
    *g = (qp_trange){v[0], v[1], v[2], (size_t)n};
    *out = (qp_tv){QP_V_RANGE, {.range = g}};
    return true;
}

bool qp_t_check_ns_name(qp_trun *r, const qp_tstr *name)
{
    if (!name->n || name->p[0] != '_') return true;
    return qp_t_fail(r, QP_TE_SECURITY,
                     "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. "
                     "Please rename the attribute.",
                     (int)(name->n > 100 ? 100 : name->n), name->p);
}

/* dict(...) and namespace(...): a mapping or pairs, then keywords. */
static bool fill_dict(qp_trun *r, const qp_tcall *c, qp_tkind kind, qp_tv *out)
{
    if (!qp_t_new_dict(r, kind, out)) return false;
    if (c->n > 1) return qp_t_fail(r, QP_TE_RUNTIME, "dict expected at most 1 argument, got %zu", c->n);
    if (c->n && c->v[0].kind == QP_V_DICT) {
        for (size_t i = 0; i < c->v[0].as.d->n; i++) {
            if (!qp_t_dict_set(r, out->as.d, c->v[0].as.d->v[i].key, c->v[0].as.d->v[i].val)) return false;
        }
    } else if (c->n) {
        qp_titer *it;
        qp_tv pair, items;
        if (!qp_t_iter(r, c->v[0], &it)) return false;
        for (;;) {
            bool done;
            if (!qp_t_iter_next(r, it, &pair, &done)) return false;
            if (done) break;
            if (!qp_t_to_list(r, pair, &items)) return false;
            if (items.as.l->n != 2)
                return qp_t_fail(r, QP_TE_RUNTIME, "dictionary update sequence element has length %zu; 2 is required",
                                 items.as.l->n);
            if (!qp_t_dict_set(r, out->as.d, items.as.l->v[0], items.as.l->v[1])) return false;
        }
    }
    for (size_t i = 0; i < c->n_kw; i++) {
        if (!qp_t_dict_set(r, out->as.d, c->kw[i].key, c->kw[i].val)) return false;
    }
    return true;
}

static bool g_dict(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)self;
    (void)a;
    return fill_dict(r, c, QP_V_DICT, out);
}

static bool g_namespace(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)self;
    (void)a;
    if (!fill_dict(r, c, QP_V_NS, out)) return false;
    for (size_t i = 0; i < out->as.d->n; i++) {
        if (out->as.d->v[i].key.kind == QP_V_STR && !qp_t_check_ns_name(r, out->as.d->v[i].key.as.s)) return false;
    }
    return true;
}

static bool new_cycler(qp_trun *r, qp_tkind kind, const qp_tv *v, size_t n, qp_tv *out)
{
    qp_tcycler *c = NULL;
    if (!qp_t_alloc(r, 1, sizeof *c, &c)) return false;
    if (!qp_t_alloc(r, n, sizeof *c->v, &c->v)) return false;
    memcpy(c->v, v, n * sizeof *v);
    c->n = n;
    *out = (qp_tv){kind, {.cycler = c}};
    return true;
}

static bool g_cycler(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)self;
    (void)a;
    if (!c->n || c->n_kw) return qp_t_fail(r, QP_TE_RUNTIME, "at least one item has to be provided");
    return new_cycler(r, QP_V_CYCLER, c->v, c->n, out);
}

static bool g_joiner(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)self;
    (void)c;
    if (a[0].kind == QP_V_MISSING && !qp_t_borrow_str(r, ", ", 2, &a[0])) return false;
    return new_cycler(r, QP_V_JOINER, a, 1, out);
}

static bool g_lipsum(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)self;
    (void)a;
    (void)c;
    (void)out;
    return qp_t_fail(r, QP_TE_RUNTIME, "lipsum() is random and not supported");
}

const qp_tentry *qp_t_find_global(const char *name, size_t n)
{
    static const qp_tentry table[] = {
        {"raise_exception", g_raise, "message", 1},
        {"strftime_now", g_strftime, "format", 1},
        {"range", g_range, "start,stop,step", 1},
        {"dict", g_dict, "*", 0},
        {"namespace", g_namespace, "*", 0},
        {"cycler", g_cycler, "*", 0},
        {"joiner", g_joiner, "sep", 0},
        {"lipsum", g_lipsum, "n,html,min,max", 0},
    };
    return qp_t_find_entry(table, sizeof table / sizeof *table, name, n);
}

/* ---- methods ---- */

static bool m_view(qp_trun *r, qp_tv self, char which, qp_tv *out)
{
    qp_tview *w = NULL;
    if (!qp_t_alloc(r, 1, sizeof *w, &w)) return false;
    *w = (qp_tview){self.as.d, which};
    *out = (qp_tv){QP_V_VIEW, {.view = w}};
    return true;
}

static bool m_items(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return m_view(r, self, 'i', out);
}

static bool m_keys(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return m_view(r, self, 'k', out);
}

static bool m_values(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return m_view(r, self, 'v', out);
}

static bool m_get(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    qp_tv *found;
    (void)c;
    if (!qp_t_dict_find(r, self.as.d, a[0], &found)) return false;
    *out = found ? *found : a[1].kind == QP_V_MISSING ? qp_t_none() : a[1];
    return true;
}

static bool m_copy(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)r;
    (void)a;
    (void)c;
    *out = self; /* values do not change */
    return true;
}

static bool m_list_index(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    int64_t bounds[2] = {0, (int64_t)self.as.l->n};
    (void)c;
    for (size_t i = 0; i < 2; i++) {
        if (a[i + 1].kind == QP_V_MISSING) continue;
        if (!qp_t_as_int(a[i + 1], &bounds[i])) return qp_t_fail(r, QP_TE_RUNTIME, "index() bounds must be integers");
        if (bounds[i] < 0) bounds[i] += (int64_t)self.as.l->n;
        if (bounds[i] < 0) bounds[i] = 0;
    }
    for (int64_t i = bounds[0]; i < bounds[1] && i < (int64_t)self.as.l->n; i++) {
        bool same;
        if (!qp_t_equal(r, self.as.l->v[i], a[0], &same, 0)) return false;
        if (!same) continue;
        *out = qp_t_int(i);
        return true;
    }
    return qp_t_fail(r, QP_TE_RUNTIME, "list.index(x): x not in list");
}

static bool m_list_count(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    int64_t n = 0;
    (void)c;
    for (size_t i = 0; i < self.as.l->n; i++) {
        bool same;
        if (!qp_t_equal(r, self.as.l->v[i], a[0], &same, 0)) return false;
        n += same;
    }
    *out = qp_t_int(n);
    return true;
}

static bool m_cycler_next(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    qp_tcycler *cy = self.as.cycler;
    (void)r;
    (void)a;
    (void)c;
    *out = cy->v[cy->pos];
    cy->pos = (cy->pos + 1) % cy->n;
    return true;
}

static bool m_cycler_reset(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)r;
    (void)a;
    (void)c;
    self.as.cycler->pos = 0;
    *out = qp_t_none();
    return true;
}

static bool m_decode(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)a;
    (void)c;
    return qp_t_borrow_str(r, self.as.s->p, self.as.s->n, out);
}

static bool m_loop_cycle(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    (void)a;
    if (!c->n) return qp_t_fail(r, QP_TE_RUNTIME, "no items for cycling given");
    *out = c->v[self.as.loop->index0 % c->n];
    return true;
}

static bool m_loop_changed(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out)
{
    qp_tv now;
    bool same = false;
    (void)a;
    if (!qp_t_new_list(r, QP_V_TUPLE, c->n, &now)) return false;
    if (c->n) memcpy(now.as.l->v, c->v, c->n * sizeof *c->v);
    if (self.as.loop->changed.kind != QP_V_MISSING && !qp_t_equal(r, self.as.loop->changed, now, &same, 0))
        return false;
    self.as.loop->changed = now;
    *out = qp_t_bool(!same);
    return true;
}

const qp_tentry *qp_t_find_method(qp_tkind kind, const char *name, size_t n)
{
    static const qp_tentry dict[] = {{"items", m_items, "", 0},
                                     {"keys", m_keys, "", 0},
                                     {"values", m_values, "", 0},
                                     {"get", m_get, "key,default", 1},
                                     {"copy", m_copy, "", 0}};
    static const qp_tentry list[] = {
        {"index", m_list_index, "value,start,stop", 1}, {"count", m_list_count, "value", 1}, {"copy", m_copy, "", 0}};
    static const qp_tentry cycler[] = {{"next", m_cycler_next, "", 0}, {"reset", m_cycler_reset, "", 0}};
    static const qp_tentry loop[] = {{"cycle", m_loop_cycle, "*", 0}, {"changed", m_loop_changed, "*", 0}};
    static const qp_tentry bytes[] = {{"decode", m_decode, "encoding,errors", 0}};
    switch (kind) {
    case QP_V_STR: {
        const qp_tentry *e = qp_t_find_entry(qp_t_str_methods, qp_t_n_str_methods, name, n);
        return e ? e : qp_t_find_entry(qp_t_str_methods2, qp_t_n_str_methods2, name, n);
    }
    case QP_V_DICT:
        return qp_t_find_entry(dict, 5, name, n);
    case QP_V_LIST:
        return qp_t_find_entry(list, 3, name, n);
    case QP_V_TUPLE:
        return qp_t_find_entry(list, 2, name, n);
    case QP_V_CYCLER:
        return qp_t_find_entry(cycler, 2, name, n);
    case QP_V_LOOP:
        return qp_t_find_entry(loop, 2, name, n);
    case QP_V_BYTES:
        return qp_t_find_entry(bytes, 1, name, n);
    default:
        return NULL;
    }
}

bool qp_t_is_mutator(qp_tkind kind, const char *name, size_t n)
{
    static const char dict[] = "clear,pop,popitem,setdefault,update";
    static const char list[] = "append,clear,extend,insert,pop,remove,reverse,sort";
    if (kind == QP_V_DICT) return param_index(dict, name, n) >= 0;
    return kind == QP_V_LIST && param_index(list, name, n) >= 0;
}

/* ---- the loop object ---- */

static bool loop_peek(qp_trun *r, qp_tloop *l)
{
    bool done;
    if (l->ahead.kind != QP_V_MISSING || l->at_end) return true;
    if (!qp_t_iter_next(r, l->it, &l->ahead, &done)) return false;
    if (done) {
        l->at_end = true;
        l->ahead = qp_t_missing();
    }
    return true;
}

/* Reads the whole iterator, so that the length is known. */
static bool loop_count(qp_trun *r, qp_tloop *l)
{
    qp_tvec rest = {0};
    qp_tv list;
    if (l->counted) return true;
    if (l->ahead.kind != QP_V_MISSING && !qp_t_push(r, &rest, l->ahead)) return false;
    if (!l->at_end && !qp_t_iter_rest(r, l->it, &rest)) return false;
    if (!qp_t_vec_list(r, &rest, &list) || !qp_t_iter(r, list, &l->it)) return false;
    l->ahead = qp_t_missing();
    l->at_end = false;
    l->length = l->index0 + 1 + rest.n;
    l->counted = true;
    return true;
}

bool qp_t_loop_attr(qp_trun *r, qp_tloop *l, const char *name, size_t n, qp_tv *out)
{
    static const char names[] = "index,index0,first,last,length,revindex,revindex0,depth,depth0,previtem,nextitem";
    int which = param_index(names, name, n);
    *out = qp_t_missing();
    if ((which >= 4 && which <= 6) && !loop_count(r, l)) return false;
    if ((which == 3 || which == 10) && !loop_peek(r, l)) return false;
    int64_t at = (int64_t)l->index0, len = (int64_t)l->length;
    switch (which) {
    case 0:
    case 1:
        *out = qp_t_int(at + (which == 0));
        return true;
    case 2:
        *out = qp_t_bool(at == 0);
        return true;
    case 3:
        *out = qp_t_bool(l->ahead.kind == QP_V_MISSING);
        return true;
    case 4:
        *out = qp_t_int(len);
        return true;
    case 5:
    case 6:
        *out = qp_t_int(len - at - (which == 6));
        return true;
    case 7:
    case 8:
        *out = qp_t_int((int64_t)l->depth0 + (which == 7));
        return true;
    case 9:
        *out = l->prev;
        if (l->prev.kind == QP_V_MISSING) return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "there is no previous item");
        return true;
    case 10:
        *out = l->ahead;
        if (l->ahead.kind == QP_V_MISSING) return qp_t_new_undef(r, QP_TE_UNDEFINED, out, "there is no next item");
        return true;
    default:
        return true;
    }
}
