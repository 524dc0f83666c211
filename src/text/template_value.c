/* Values of chat templates: making them, hashing, comparing, and the render's memory and failures. */
#include "text/template_impl.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures, memory, steps ---- */

bool qp_t_fail(qp_trun *r, qp_template_error kind, const char *fmt, ...)
{
    va_list ap;
    qp_err *e = r->err;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    size_t len = strnlen(e->msg, sizeof e->msg - 1);
    e->msg[len - qp_utf8_incomplete_tail(e->msg, len)] = 0; /* a cut message stays UTF-8 */
    e->status = kind == QP_TE_LIMIT ? QP_ELIMIT : kind == QP_TE_NONE ? QP_ENOMEM : QP_EINVAL;
    r->kind = kind;
    return false;
}

bool qp_t_limit(qp_trun *r, const char *what)
{
    return qp_t_fail(r, QP_TE_LIMIT, "chat template: %s", what);
}

bool qp_t_out_of_steps(qp_trun *r)
{
    return qp_t_fail(r, QP_TE_LIMIT, "chat template: more than %llu steps", (unsigned long long)r->max_steps);
}

bool qp_t_alloc(qp_trun *r, size_t n, size_t size, void *out)
{
    void *p = qp_arena_calloc(&r->arena, n, size);
    if (!p) {
        size_t left = r->arena.limit - r->arena.total, want = r->arena.size * 2;
        if (want > ((size_t)1 << 20)) want = (size_t)1 << 20;
        if (left < want || (size && n > left / size))
            return qp_t_fail(r, QP_TE_LIMIT, "chat template: its values take more than %zu bytes", r->arena.limit);
        return qp_t_fail(r, QP_TE_NONE, "chat template: no memory while rendering");
    }
    memcpy(out, &p, sizeof p);
    return true;
}

/* ---- text under construction ---- */

static bool put_failed(qp_trun *r, size_t n)
{
    if (r->buf.limit - r->buf.len < n || r->buf.len > r->buf.limit)
        return qp_t_fail(r, QP_TE_LIMIT, "chat template: its output takes more than %zu bytes", r->buf.limit);
    return qp_t_fail(r, QP_TE_NONE, "chat template: no memory for its output");
}

bool qp_t_put(qp_trun *r, const char *p, size_t n)
{
    if (!qp_t_step_bytes(r, n)) return false;
    qp_buf_add(&r->buf, p, n);
    return r->buf.failed ? put_failed(r, n) : true;
}

bool qp_t_putz(qp_trun *r, const char *s)
{
    return qp_t_put(r, s, strlen(s));
}

bool qp_t_put_cp(qp_trun *r, int32_t cp)
{
    char b[4];
    return qp_t_put(r, b, qp_utf8_encode(cp, b));
}

bool qp_t_put_repeat(qp_trun *r, const char *p, size_t n, size_t times)
{
    if (n && times > r->buf.limit / n) return put_failed(r, SIZE_MAX);
    if (!qp_t_step_bytes(r, n * times)) return false;
    if (!qp_buf_reserve(&r->buf, n * times)) return put_failed(r, n * times);
    for (size_t i = 0; i < times; i++) qp_buf_add(&r->buf, p, n);
    return true;
}

bool qp_t_take(qp_trun *r, size_t mark, qp_tv *out)
{
    size_t n = r->buf.len - mark;
    if (!qp_t_new_str(r, n ? r->buf.data + mark : "", n, out)) return false;
    r->buf.len = mark;
    return true;
}

/* ---- strings ---- */

size_t qp_t_count_cp(const char *p, size_t n)
{
    size_t c = 0;
    for (size_t i = 0; i < n; i++) c += (p[i] & 0xC0) != 0x80;
    return c;
}

size_t qp_t_next_cp(const char *p, size_t n, int32_t *cp)
{
    size_t len = qp_utf8_decode(p, n, cp);
    if (*cp < 0) *cp = 0xFFFD;
    return len;
}

bool qp_t_is_space(int32_t cp)
{
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

uint64_t qp_t_hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 0x100000001B3u;
    h ^= h >> 29;
    return h ? h : 1;
}

size_t qp_t_ncp(qp_tstr *s)
{
    if (s->ncp == SIZE_MAX) s->ncp = qp_t_count_cp(s->p, s->n);
    return s->ncp;
}

size_t qp_t_offset(qp_tstr *s, size_t cp_index)
{
    size_t ncp = qp_t_ncp(s), at = 0;
    if (cp_index >= ncp) return s->n;
    if (ncp == s->n) return cp_index;
    for (; at < s->n; at++) {
        if ((s->p[at] & 0xC0) == 0x80) continue;
        if (!cp_index--) break;
    }
    return at;
}

bool qp_t_borrow_str(qp_trun *r, const char *p, size_t n, qp_tv *out)
{
    qp_tstr *s = NULL;
    if (!qp_t_alloc(r, 1, sizeof *s, &s)) return false;
    *s = (qp_tstr){p, n, SIZE_MAX, 0, false};
    *out = (qp_tv){QP_V_STR, {.s = s}};
    return true;
}

bool qp_t_new_str(qp_trun *r, const char *p, size_t n, qp_tv *out)
{
    char *copy = NULL;
    if (!qp_t_step_bytes(r, n) || !qp_t_alloc(r, n ? n : 1, 1, &copy)) return false;
    if (n) memcpy(copy, p, n);
    return qp_t_borrow_str(r, copy, n, out);
}

bool qp_t_sub_str(qp_trun *r, qp_tv s, size_t from, size_t to, qp_tv *out)
{
    bool ascii = s.as.s->ncp == s.as.s->n, markup = s.as.s->markup;
    if (!qp_t_step_bytes(r, to - from)) return false; /* pays for counting its code points, once */
    if (!qp_t_borrow_str(r, s.as.s->p + from, to - from, out)) return false;
    if (ascii) out->as.s->ncp = to - from;
    out->as.s->markup = markup;
    return true;
}

bool qp_t_str_of(qp_trun *r, qp_tv v, qp_tv *out)
{
    if (v.kind == QP_V_STR) {
        *out = v;
        return !v.as.s->markup || qp_t_borrow_str(r, v.as.s->p, v.as.s->n, out);
    }
    size_t mark = r->buf.len;
    return qp_t_put_str(r, v) && qp_t_take(r, mark, out);
}

bool qp_t_soft_str(qp_trun *r, qp_tv v, qp_tv *out)
{
    *out = v;
    return v.kind == QP_V_STR ? true : qp_t_str_of(r, v, out);
}

bool qp_t_new_undef(qp_trun *r, qp_template_error kind, qp_tv *out, const char *fmt, ...)
{
    char msg[256];
    va_list ap;
    qp_tundef *u = NULL;
    char *copy = NULL;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof msg ? (size_t)n : sizeof msg - 1;
    len -= qp_utf8_incomplete_tail(msg, len);
    if (!qp_t_alloc(r, 1, sizeof *u, &u) || !qp_t_alloc(r, len + 1, 1, &copy)) return false;
    memcpy(copy, msg, len);
    *u = (qp_tundef){kind, copy};
    *out = (qp_tv){QP_V_UNDEF, {.u = u}};
    return true;
}

bool qp_t_use_undef(qp_trun *r, qp_tv v)
{
    return qp_t_fail(r, v.as.u->error, "%s", v.as.u->message);
}

/* ---- containers ---- */

bool qp_t_new_list(qp_trun *r, qp_tkind kind, size_t n, qp_tv *out)
{
    qp_tlist *l = NULL;
    if (!qp_t_step(r, 1 + n) || !qp_t_alloc(r, 1, sizeof *l, &l)) return false;
    if (!qp_t_alloc(r, n ? n : 1, sizeof *l->v, &l->v)) return false;
    l->n = n;
    *out = (qp_tv){kind, {.l = l}};
    return true;
}

bool qp_t_push(qp_trun *r, qp_tvec *vec, qp_tv v)
{
    if (vec->n == vec->cap) {
        size_t cap = vec->cap ? vec->cap * 2 : 8;
        qp_tv *bigger = NULL;
        if (!qp_t_alloc(r, cap, sizeof *bigger, &bigger)) return false;
        if (vec->n) memcpy(bigger, vec->v, vec->n * sizeof *bigger);
        vec->v = bigger;
        vec->cap = cap;
    }
    vec->v[vec->n++] = v;
    return qp_t_step(r, 1);
}

bool qp_t_vec_list(qp_trun *r, const qp_tvec *vec, qp_tv *out)
{
    qp_tlist *l = NULL;
    if (!qp_t_alloc(r, 1, sizeof *l, &l)) return false;
    *l = (qp_tlist){vec->v, vec->n, false};
    *out = (qp_tv){QP_V_LIST, {.l = l}};
    return true;
}

bool qp_t_new_dict(qp_trun *r, qp_tkind kind, qp_tv *out)
{
    qp_tdict *d = NULL;
    if (!qp_t_alloc(r, 1, sizeof *d, &d)) return false;
    *out = (qp_tv){kind, {.d = d}};
    return true;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

/* Numbers that are equal hash alike: an integral float as its integer. */
static uint64_t hash_number(qp_tv v)
{
    int64_t i = 0;
    if (v.kind == QP_V_FLOAT) {
        uint64_t bits;
        if (v.as.f >= -9.2e18 && v.as.f <= 9.2e18 && !(floor(v.as.f) < v.as.f)) {
            i = (int64_t)v.as.f;
        } else {
            memcpy(&bits, &v.as.f, sizeof bits);
            return mix(3, bits);
        }
    } else {
        qp_t_as_int(v, &i);
    }
    return mix(2, (uint64_t)i);
}

bool qp_t_hash(qp_trun *r, qp_tv v, uint64_t *out, unsigned depth)
{
    switch (v.kind) {
    case QP_V_STR:
        if (!v.as.s->hash) {
            if (!qp_t_step_bytes(r, v.as.s->n)) return false;
            v.as.s->hash = qp_t_hash_bytes(v.as.s->p, v.as.s->n);
        }
        *out = v.as.s->hash;
        return true;
    case QP_V_NONE:
        *out = 7;
        return true;
    case QP_V_BOOL:
    case QP_V_INT:
    case QP_V_FLOAT:
        *out = hash_number(v);
        return true;
    case QP_V_BYTES:
    case QP_V_BIG:
        *out = mix(5, qp_t_hash_bytes(v.as.s->p, v.as.s->n));
        return true;
    case QP_V_TUPLE:
        if (depth > QP_T_MAX_VALUE_DEPTH) return qp_t_limit(r, "a value is nested too deep");
        *out = 11;
        for (size_t i = 0; i < v.as.l->n; i++) {
            uint64_t h;
            if (!qp_t_step(r, 1) || !qp_t_hash(r, v.as.l->v[i], &h, depth + 1)) return false;
            *out = mix(*out, h);
        }
        return true;
    case QP_V_LIST:
    case QP_V_DICT:
        return qp_t_fail(r, QP_TE_RUNTIME, "unhashable type: '%s'", qp_t_type_name(v));
    case QP_V_UNDEF:
        *out = 13;
        return true;
    case QP_V_RANGE:
        *out = 17;
        return true;
    default:
        *out = mix(19, (uint64_t)(uintptr_t)v.as.s);
        return true;
    }
}

static bool dict_reindex(qp_trun *r, qp_tdict *d)
{
    size_t n = d->n_index ? d->n_index * 2 : 32;
    if (!qp_t_step(r, n) || !qp_t_alloc(r, n, sizeof *d->index, &d->index)) return false;
    d->n_index = n;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->v[i].hash & (n - 1);
        while (d->index[at]) at = (at + 1) & (n - 1);
        d->index[at] = (uint32_t)i + 1;
    }
    return true;
}

static bool same_key(qp_trun *r, const qp_tpair *p, qp_tv key, uint64_t hash, bool *same)
{
    *same = false;
    if (p->hash != hash) return true;
    return qp_t_step(r, 1) && qp_t_equal(r, p->key, key, same, 0);
}

static bool find_hashed(qp_trun *r, qp_tdict *d, qp_tv key, uint64_t hash, qp_tpair **out)
{
    bool same;
    *out = NULL;
    if (!d->n_index) {
        for (size_t i = 0; i < d->n; i++) {
            if (!same_key(r, &d->v[i], key, hash, &same)) return false;
            if (!same) continue;
            *out = &d->v[i];
            return true;
        }
        return true;
    }
    for (size_t at = hash & (d->n_index - 1); d->index[at]; at = (at + 1) & (d->n_index - 1)) {
        qp_tpair *p = &d->v[d->index[at] - 1];
        if (!qp_t_step(r, 1) || !same_key(r, p, key, hash, &same)) return false;
        if (!same) continue;
        *out = p;
        return true;
    }
    return true;
}

bool qp_t_dict_find(qp_trun *r, qp_tdict *d, qp_tv key, qp_tv **out)
{
    uint64_t hash = 0;
    qp_tpair *p = NULL;
    if (!qp_t_hash(r, key, &hash, 0) || !find_hashed(r, d, key, hash, &p)) return false;
    *out = p ? &p->val : NULL;
    return true;
}

qp_tv *qp_t_dict_find_str(qp_tdict *d, const qp_tstr *s)
{
    uint64_t hash = s->hash ? s->hash : qp_t_hash_bytes(s->p, s->n);
    for (size_t i = 0, at = hash & (d->n_index - 1);; i++) {
        qp_tpair *e;
        if (d->n_index) {
            if (!d->index[at]) return NULL;
            e = &d->v[d->index[at] - 1];
            at = (at + 1) & (d->n_index - 1);
        } else {
            if (i >= d->n) return NULL;
            e = &d->v[i];
        }
        if (e->hash != hash || e->key.kind != QP_V_STR) continue;
        const qp_tstr *k = e->key.as.s;
        if (k->n == s->n && (k->p == s->p || !memcmp(k->p, s->p, k->n))) return &e->val;
    }
}

bool qp_t_dict_set(qp_trun *r, qp_tdict *d, qp_tv key, qp_tv val)
{
    uint64_t hash = 0;
    qp_tpair *p = NULL;
    if (!qp_t_step(r, 1) || !qp_t_hash(r, key, &hash, 0) || !find_hashed(r, d, key, hash, &p)) return false;
    if (p) {
        p->val = val;
        return true;
    }
    if (d->n >= UINT32_MAX / 2) return qp_t_limit(r, "a dict is too large");
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        qp_tpair *bigger = NULL;
        if (!qp_t_alloc(r, cap, sizeof *bigger, &bigger)) return false;
        if (d->n) memcpy(bigger, d->v, d->n * sizeof *bigger);
        d->v = bigger;
        d->cap = cap;
    }
    d->v[d->n++] = (qp_tpair){key, val, hash};
    if (d->n > 8 && d->n * 2 > d->n_index) return dict_reindex(r, d);
    if (!d->n_index) return true;
    size_t at = hash & (d->n_index - 1);
    while (d->index[at]) at = (at + 1) & (d->n_index - 1);
    d->index[at] = (uint32_t)d->n;
    return true;
}

bool qp_t_from_json(qp_trun *r, const json_t *j, qp_tv *out, unsigned depth)
{
    if (depth > QP_T_MAX_VALUE_DEPTH) return qp_t_limit(r, "a value is nested too deep");
    if (!qp_t_step(r, 1)) return false;
    switch (json_typeof(j)) {
    case JSON_OBJECT: {
        const char *key;
        size_t key_len;
        json_t *val, *obj = (json_t *)(uintptr_t)j; /* jansson's iterators take a non-const object but only read it */
        if (!qp_t_new_dict(r, QP_V_DICT, out)) return false;
        json_object_keylen_foreach(obj, key, key_len, val)
        {
            qp_tv k, v;
            if (!qp_t_borrow_str(r, key, key_len, &k) || !qp_t_from_json(r, val, &v, depth + 1)) return false;
            if (!qp_t_dict_set(r, out->as.d, k, v)) return false;
        }
        return true;
    }
    case JSON_ARRAY:
        if (!qp_t_new_list(r, QP_V_LIST, json_array_size(j), out)) return false;
        for (size_t i = 0; i < out->as.l->n; i++) {
            if (!qp_t_from_json(r, json_array_get(j, i), &out->as.l->v[i], depth + 1)) return false;
        }
        return true;
    case JSON_STRING:
        return qp_t_borrow_str(r, json_string_value(j), json_string_length(j), out);
    case JSON_INTEGER:
        *out = qp_t_int(json_integer_value(j));
        return true;
    case JSON_REAL:
        *out = qp_t_float(json_real_value(j));
        return true;
    case JSON_NULL:
        *out = qp_t_none();
        return true;
    default:
        *out = qp_t_bool(json_is_true(j));
        return true;
    }
}

/* ---- questions ---- */

const char *qp_t_type_name(qp_tv v)
{
    static const char *const names[] = {"missing",     "Undefined",
                                        "NoneType",    "bool",
                                        "int",         "int",
                                        "float",       "str",
                                        "bytes",       "list",
                                        "tuple",       "dict",
                                        "Namespace",   "range",
                                        "dict_view",   "generator",
                                        "function",    "Macro",
                                        "LoopContext", "Cycler",
                                        "Joiner",      "TemplateReference"};
    if (v.kind == QP_V_STR && v.as.s->markup) return "Markup";
    if (v.kind == QP_V_VIEW)
        return v.as.view->which == 'k' ? "dict_keys" : v.as.view->which == 'v' ? "dict_values" : "dict_items";
    return (size_t)v.kind < sizeof names / sizeof *names ? names[v.kind] : "object";
}

bool qp_t_truth(qp_tv v)
{
    switch (v.kind) {
    case QP_V_MISSING:
    case QP_V_UNDEF:
    case QP_V_NONE:
        return false;
    case QP_V_BOOL:
        return v.as.b;
    case QP_V_INT:
        return v.as.i != 0;
    case QP_V_FLOAT:
        return v.as.f < 0 || v.as.f > 0 || isnan(v.as.f);
    case QP_V_STR:
    case QP_V_BYTES:
        return v.as.s->n > 0;
    case QP_V_LIST:
    case QP_V_TUPLE:
        return v.as.l->n > 0;
    case QP_V_DICT:
        return v.as.d->n > 0;
    case QP_V_RANGE:
        return v.as.range->n > 0;
    case QP_V_VIEW:
        return v.as.view->d->n > 0;
    default:
        return true;
    }
}

bool qp_t_callable(qp_tv v)
{
    return v.kind == QP_V_FUNC || v.kind == QP_V_MACRO || v.kind == QP_V_LOOP || v.kind == QP_V_JOINER;
}

bool qp_t_length(qp_trun *r, qp_tv v, size_t *out)
{
    switch (v.kind) {
    case QP_V_UNDEF:
        *out = 0;
        return true;
    case QP_V_STR:
        *out = qp_t_ncp(v.as.s);
        return true;
    case QP_V_BYTES:
        *out = v.as.s->n;
        return true;
    case QP_V_LIST:
    case QP_V_TUPLE:
        *out = v.as.l->n;
        return true;
    case QP_V_DICT:
        *out = v.as.d->n;
        return true;
    case QP_V_VIEW:
        *out = v.as.view->d->n;
        return true;
    case QP_V_RANGE:
        *out = v.as.range->n;
        return true;
    case QP_V_LOOP: {
        qp_tv n;
        if (!qp_t_loop_attr(r, v.as.loop, "length", 6, &n)) return false;
        *out = (size_t)n.as.i;
        return true;
    }
    default:
        return qp_t_fail(r, QP_TE_RUNTIME, "object of type '%s' has no len()", qp_t_type_name(v));
    }
}
