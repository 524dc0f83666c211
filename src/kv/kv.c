/* The cache: see kv.h. Free pages and free slots are stacks of indexes. */
#include "kv/kv.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <string.h>

typedef struct group {
    uint32_t window; /* 0: all */
    uint64_t n_pages;
    size_t page_bytes;
    unsigned char *data;
    uint32_t *refs; /* [n_pages] */
    int32_t *free;  /* stack of page indexes */
    uint64_t n_free;
} group;

struct qp_kv {
    qp_kv_opts opts;
    qp_kv_view view;
    qp_cache_layer *layers;
    qp_kv_place *places;
    uint32_t n_layers, n_groups, table_len;
    group groups[QP_MAX_KV_GROUPS];
    float *state;
    int32_t *free_slots;
    uint32_t n_free_slots, n_slots;
};

/* Lays layers out in groups; places may be NULL. */
static qp_status layout(const qp_cache_spec *spec, const qp_kv_opts *o, qp_kv_sizes *out, uint32_t *windows,
                        qp_kv_place *places, qp_err *err)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < spec->n_layers; i++) {
        const qp_cache_layer *l = &spec->layers[i];
        qp_kv_place p = {0};
        if (l->kind == QP_CACHE_STATE) {
            p.state_offset = out->slot_floats;
            size_t padded = qp_round_up(l->n_state_floats, 16);
            if (!qp_add_ok(out->slot_floats, padded, &out->slot_floats))
                return qp_fail(err, QP_ELIMIT, "recurrent state of layer %u is too large", i);
        } else if (l->kind == QP_CACHE_ATTENTION) {
            uint32_t g = 0;
            size_t half;
            while (g < out->n_groups && windows[g] != l->window) g++;
            if (g == QP_MAX_KV_GROUPS)
                return qp_fail(err, QP_EUNSUPPORTED, "layer %u: more than %d different sliding windows", i,
                               QP_MAX_KV_GROUPS);
            if (g == out->n_groups) windows[out->n_groups++] = l->window;
            if (!qp_mul_ok((size_t)l->n_kv_heads * l->head_dim, (size_t)o->page_size * qp_wtype_bytes(o->type),
                           &half) ||
                !qp_round_up_ok(half, 64, &half))
                return qp_fail(err, QP_ELIMIT, "cache page of layer %u is too large; use a smaller --page-size", i);
            p.group = g;
            p.k_offset = out->page_bytes[g];
            p.v_offset = p.k_offset + half;
            if (!qp_add_ok(p.v_offset, half, &out->page_bytes[g]))
                return qp_fail(err, QP_ELIMIT, "cache page is too large; use a smaller --page-size");
        }
        if (places) places[i] = p;
    }
    return QP_OK;
}

static qp_status sizes(const qp_cache_spec *spec, const qp_kv_opts *o, qp_kv_sizes *out, uint32_t *windows,
                       qp_kv_place *places, qp_err *err)
{
    if (o->page_size < 1 || o->page_size > 4096)
        return qp_fail(err, QP_EINVAL, "page size %u, must be 1..4096", o->page_size);
    QP_TRY(layout(spec, o, out, windows, places, err));
    uint64_t all = qp_div_up(o->n_tokens, o->page_size) + o->max_seqs; /* each sequence's last page may be part full */
    for (uint32_t g = 0; g < out->n_groups; g++) {
        uint64_t n = all;
        if (windows[g]) {
            uint64_t a_seq = qp_div_up((uint64_t)windows[g] + o->max_step_tokens, o->page_size) + 2;
            if (a_seq * o->max_seqs < n) n = a_seq * o->max_seqs;
        }
        size_t bytes;
        if (n > INT32_MAX || !qp_mul_ok((size_t)n, out->page_bytes[g], &bytes) ||
            !qp_add_ok(out->kv_bytes, bytes, &out->kv_bytes))
            return qp_fail(err, QP_ELIMIT, "cache of %llu tokens is too large; use a smaller --max-model-len",
                           (unsigned long long)o->n_tokens);
        out->n_pages[g] = n;
    }
    size_t slot_bytes;
    if (!qp_mul_ok(out->slot_floats, sizeof(float), &slot_bytes) ||
        !qp_mul_ok(slot_bytes, o->max_seqs, &out->state_bytes))
        return qp_fail(err, QP_ELIMIT, "recurrent state of %u sequences is too large; use a smaller --max-num-seqs",
                       o->max_seqs);
    return QP_OK;
}

qp_status qp_kv_plan(const qp_cache_spec *spec, const qp_kv_opts *opts, qp_kv_sizes *out, qp_err *err)
{
    uint32_t windows[QP_MAX_KV_GROUPS];
    return sizes(spec, opts, out, windows, NULL, err);
}

static qp_status fill(qp_kv *kv, const qp_cache_spec *spec, qp_err *err)
{
    const char *what = "KV cache (lower --max-model-len or --max-num-seqs)";
    qp_kv_sizes sz;
    uint32_t windows[QP_MAX_KV_GROUPS];
    QP_TRY(qp_new(&kv->layers, spec->n_layers, sizeof *kv->layers, what, err));
    QP_TRY(qp_new(&kv->places, spec->n_layers, sizeof *kv->places, what, err));
    memcpy(kv->layers, spec->layers, spec->n_layers * sizeof *kv->layers);
    kv->n_layers = spec->n_layers;
    QP_TRY(sizes(spec, &kv->opts, &sz, windows, kv->places, err));
    kv->table_len = (uint32_t)qp_div_up((size_t)kv->opts.max_model_len + kv->opts.max_step_tokens, kv->opts.page_size);
    for (uint32_t i = 0; i < sz.n_groups; i++) {
        group *g = &kv->groups[i];
        g->window = windows[i];
        g->n_pages = g->n_free = sz.n_pages[i];
        g->page_bytes = sz.page_bytes[i];
        kv->n_groups = i + 1;
        g->data = qp_malloc((size_t)g->n_pages * g->page_bytes); /* not touched: pages become real when written */
        if (!g->data)
            return qp_fail(err, QP_ENOMEM, "%s: no memory for %llu pages of %zu bytes", what,
                           (unsigned long long)g->n_pages, g->page_bytes);
        QP_TRY(qp_new(&g->refs, (size_t)g->n_pages, sizeof *g->refs, what, err));
        QP_TRY(qp_new(&g->free, (size_t)g->n_pages, sizeof *g->free, what, err));
        for (uint64_t p = 0; p < g->n_pages; p++) g->free[p] = (int32_t)(g->n_pages - 1 - p);
        kv->view.base[i] = g->data;
        kv->view.page_bytes[i] = g->page_bytes;
    }
    if (sz.slot_floats) {
        kv->state = qp_malloc(sz.state_bytes);
        if (!kv->state) return qp_fail(err, QP_ENOMEM, "recurrent state: no memory for %zu bytes", sz.state_bytes);
        kv->n_slots = kv->n_free_slots = kv->opts.max_seqs;
        QP_TRY(qp_new(&kv->free_slots, kv->n_slots, sizeof *kv->free_slots, what, err));
        for (uint32_t i = 0; i < kv->n_slots; i++) kv->free_slots[i] = (int32_t)(kv->n_slots - 1 - i);
    }
    kv->view.layers = kv->layers;
    kv->view.places = kv->places;
    kv->view.n_groups = kv->n_groups;
    kv->view.page_size = kv->opts.page_size;
    kv->view.type = kv->opts.type;
    kv->view.state = kv->state;
    kv->view.slot_floats = sz.slot_floats;
    return QP_OK;
}

qp_status qp_kv_new(qp_kv **out, const qp_cache_spec *spec, const qp_kv_opts *opts, qp_err *err)
{
    qp_kv *kv;
    QP_TRY(qp_new(&kv, 1, sizeof *kv, "KV cache", err));
    kv->opts = *opts;
    qp_status st = fill(kv, spec, err);
    if (st != QP_OK) {
        qp_kv_free(kv);
        return st;
    }
    *out = kv;
    return QP_OK;
}

void qp_kv_free(qp_kv *kv)
{
    if (!kv) return;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        qp_free(kv->groups[i].data);
        qp_free(kv->groups[i].refs);
        qp_free(kv->groups[i].free);
    }
    qp_free(kv->state);
    qp_free(kv->free_slots);
    qp_free(kv->layers);
    qp_free(kv->places);
    qp_free(kv);
}

const qp_kv_view *qp_kv_get_view(const qp_kv *kv)
{
    return &kv->view;
}

uint64_t qp_kv_n_free_pages(const qp_kv *kv, uint32_t g)
{
    return g < kv->n_groups ? kv->groups[g].n_free : 0;
}

uint64_t qp_kv_n_pages(const qp_kv *kv, uint32_t g)
{
    return g < kv->n_groups ? kv->groups[g].n_pages : 0;
}

static void unref(group *g, int32_t page)
{
    if (page >= 0 && --g->refs[page] == 0) g->free[g->n_free++] = page;
}

static int32_t take_page(group *g)
{
    if (!g->n_free) return -1;
    int32_t page = g->free[--g->n_free];
    g->refs[page] = 1;
    return page;
}

static qp_status alloc_seq(qp_kv *kv, qp_kv_seq *seq, qp_err *err)
{
    memset(seq, 0, sizeof *seq);
    seq->slot = -1;
    if (kv->n_slots && !kv->n_free_slots)
        return qp_fail(err, QP_ELIMIT, "all %u state slots are in use; raise --max-num-seqs", kv->n_slots);
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        qp_status st = qp_new(&seq->pages[g], kv->table_len, sizeof(int32_t), "page table", err);
        if (st != QP_OK) {
            while (g-- > 0) qp_free(seq->pages[g]);
            memset(seq, 0, sizeof *seq);
            seq->slot = -1;
            return st;
        }
        memset(seq->pages[g], 0xFF, kv->table_len * sizeof(int32_t));
    }
    if (kv->n_slots) seq->slot = kv->free_slots[--kv->n_free_slots];
    return QP_OK;
}

qp_status qp_kv_seq_init(qp_kv *kv, qp_kv_seq *seq, qp_err *err)
{
    QP_TRY(alloc_seq(kv, seq, err));
    if (seq->slot >= 0)
        memset(kv->state + (size_t)seq->slot * kv->view.slot_floats, 0, kv->view.slot_floats * sizeof(float));
    return QP_OK;
}

static void drop_pages(qp_kv *kv, qp_kv_seq *seq)
{
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        for (uint32_t i = seq->first[g]; seq->pages[g] && i < seq->n_held[g]; i++) {
            unref(&kv->groups[g], seq->pages[g][i]);
            seq->pages[g][i] = -1;
        }
        seq->first[g] = seq->n_held[g] = 0;
    }
}

void qp_kv_seq_deinit(qp_kv *kv, qp_kv_seq *seq)
{
    drop_pages(kv, seq);
    for (uint32_t g = 0; g < kv->n_groups; g++) qp_free(seq->pages[g]);
    if (seq->slot >= 0) kv->free_slots[kv->n_free_slots++] = seq->slot;
    memset(seq, 0, sizeof *seq);
    seq->slot = -1;
}

/* The page that position len falls into, when part full and shared, becomes the sequence's own. */
static bool own_last_page(group *g, qp_kv_seq *seq, uint32_t gi, uint32_t page_size)
{
    uint32_t i = seq->len / page_size;
    if (seq->len % page_size == 0 || i >= seq->n_held[gi]) return true;
    int32_t old = seq->pages[gi][i];
    if (old < 0 || g->refs[old] == 1) return true;
    int32_t page = take_page(g);
    if (page < 0) return false;
    memcpy(g->data + (size_t)page * g->page_bytes, g->data + (size_t)old * g->page_bytes, g->page_bytes);
    unref(g, old);
    seq->pages[gi][i] = page;
    return true;
}

qp_status qp_kv_seq_reserve(qp_kv *kv, qp_kv_seq *seq, uint32_t n, qp_err *err)
{
    size_t end = (size_t)seq->len + n;
    uint32_t want = (uint32_t)qp_div_up(end, kv->opts.page_size);
    if (want > kv->table_len)
        return qp_fail(err, QP_EINVAL, "sequence of %zu tokens, at most %u (--max-model-len)", end,
                       kv->opts.max_model_len);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        group *g = &kv->groups[gi];
        bool ok = own_last_page(g, seq, gi, kv->opts.page_size);
        while (ok && seq->n_held[gi] < want) {
            int32_t page = take_page(g);
            if ((ok = page >= 0)) seq->pages[gi][seq->n_held[gi]++] = page;
        }
        if (!ok)
            return qp_fail(err, QP_ELIMIT,
                           "no free cache page (%llu in all); raise --max-model-len or lower "
                           "--max-num-seqs",
                           (unsigned long long)g->n_pages);
    }
    return QP_OK;
}

void qp_kv_seq_commit(qp_kv *kv, qp_kv_seq *seq, uint32_t n)
{
    seq->len += n;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        group *g = &kv->groups[gi];
        if (!g->window || seq->len + 1 <= g->window) continue;
        /* The next query, at position len, sees len - window + 1 and later. */
        uint32_t first = (seq->len + 1 - g->window) / kv->opts.page_size;
        for (uint32_t i = seq->first[gi]; i < first && i < seq->n_held[gi]; i++) {
            unref(g, seq->pages[gi][i]);
            seq->pages[gi][i] = -1;
            seq->first[gi] = i + 1;
        }
    }
}

static void copy_from(qp_kv *kv, qp_kv_seq *dst, const qp_kv_seq *src)
{
    dst->len = src->len;
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        dst->first[g] = src->first[g];
        /* Pages reserved past the end hold nothing and are not shared. */
        uint32_t n = (uint32_t)qp_div_up(src->len, kv->opts.page_size);
        dst->n_held[g] = n < src->n_held[g] ? n : src->n_held[g];
        for (uint32_t i = src->first[g]; i < dst->n_held[g]; i++) {
            dst->pages[g][i] = src->pages[g][i];
            kv->groups[g].refs[src->pages[g][i]]++;
        }
    }
    if (dst->slot >= 0) {
        size_t n = kv->view.slot_floats;
        memcpy(kv->state + (size_t)dst->slot * n, kv->state + (size_t)src->slot * n, n * sizeof(float));
    }
}

qp_status qp_kv_seq_save(qp_kv *kv, const qp_kv_seq *seq, qp_kv_seq *saved, qp_err *err)
{
    QP_TRY(alloc_seq(kv, saved, err));
    copy_from(kv, saved, seq);
    return QP_OK;
}

void qp_kv_seq_restore(qp_kv *kv, qp_kv_seq *seq, const qp_kv_seq *saved)
{
    drop_pages(kv, seq);
    copy_from(kv, seq, saved);
}

qp_status qp_kv_seq_truncate(qp_kv *kv, qp_kv_seq *seq, uint32_t new_len, qp_err *err)
{
    uint32_t ps = kv->opts.page_size;
    if (new_len > seq->len) return qp_fail(err, QP_EINVAL, "cut to %u tokens, sequence has %u", new_len, seq->len);
    if (new_len == seq->len) return QP_OK;
    if (kv->n_slots)
        return qp_fail(err, QP_EUNSUPPORTED, "recurrent state cannot be cut back; restore a saved sequence");
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        uint32_t w = kv->groups[g].window;
        uint32_t need = w && new_len + 1 > w ? (new_len + 1 - w) / ps : 0;
        if (seq->first[g] > need && seq->first[g] > 0)
            return qp_fail(err, QP_EUNSUPPORTED, "pages before position %u left the sliding window of %u tokens",
                           seq->first[g] * ps, w);
    }
    uint32_t keep = (uint32_t)qp_div_up(new_len, ps);
    for (uint32_t g = 0; g < kv->n_groups; g++)
        while (seq->n_held[g] > keep) {
            uint32_t i = --seq->n_held[g];
            unref(&kv->groups[g], seq->pages[g][i]);
            seq->pages[g][i] = -1;
        }
    seq->len = new_len;
    return QP_OK;
}

static qp_status check_group(const qp_kv *kv, uint32_t gi, const qp_kv_seq *const *seqs, size_t n_seqs, uint32_t *refs,
                             qp_err *err)
{
    const group *g = &kv->groups[gi];
    for (size_t s = 0; s < n_seqs; s++)
        for (uint32_t i = 0; i < kv->table_len; i++) {
            int32_t page = seqs[s]->pages[gi][i];
            bool held = i >= seqs[s]->first[gi] && i < seqs[s]->n_held[gi];
            if (held != (page >= 0) || page >= (int64_t)g->n_pages)
                return qp_fail(err, QP_EINTERNAL, "group %u sequence %zu index %u: page %d", gi, s, i, page);
            if (held) refs[page]++;
        }
    for (uint64_t p = 0; p < g->n_pages; p++)
        if (refs[p] != g->refs[p])
            return qp_fail(err, QP_EINTERNAL, "group %u page %llu: %u references, counted %u", gi,
                           (unsigned long long)p, g->refs[p], refs[p]);
    uint64_t n_free = 0;
    for (uint64_t p = 0; p < g->n_pages; p++) n_free += refs[p] == 0;
    if (n_free != g->n_free)
        return qp_fail(err, QP_EINTERNAL, "group %u: %llu free, counted %llu", gi, (unsigned long long)g->n_free,
                       (unsigned long long)n_free);
    for (uint64_t i = 0; i < n_free; i++)
        if (g->refs[g->free[i]])
            return qp_fail(err, QP_EINTERNAL, "group %u: page %d is free and held", gi, g->free[i]);
    return QP_OK;
}

qp_status qp_kv_check(const qp_kv *kv, const qp_kv_seq *const *seqs, size_t n_seqs, qp_err *err)
{
    if (kv->n_slots && kv->n_free_slots + n_seqs != kv->n_slots)
        return qp_fail(err, QP_EINTERNAL, "%u of %u slots free with %zu sequences", kv->n_free_slots, kv->n_slots,
                       n_seqs);
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        uint32_t *refs;
        QP_TRY(qp_new(&refs, (size_t)kv->groups[g].n_pages, sizeof *refs, "check", err));
        qp_status st = check_group(kv, g, seqs, n_seqs, refs, err);
        qp_free(refs);
        QP_TRY(st);
    }
    return QP_OK;
}
