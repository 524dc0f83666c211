/* The CPU backend: see backend_cpu.h. Small work runs on the calling thread, since a barrier costs about a microsecond;
 * larger work is cut into parts whose bounds depend on shapes alone. */
#include "kernels/cpu/backend_cpu.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <math.h>
#include <string.h>

enum {
    MAX_ROPES = 4,
    INLINE_FLOATS = 16384, /* rows * cols up to which a row-wise op stays on the calling thread */
    ROW_FLOATS = 8192,     /* floats a part of a larger row-wise op */
    ATTENTION_ROWS = 16    /* query rows a part */
};

typedef struct rope_table {
    const qp_rope *rope;
    float *cs; /* [max_rows, n_half, 2] */
    bool fresh;
} rope_table;

struct qp_cpu_ctx {
    const qp_cpu_kernels *k;
    qp_pool *pool;
    unsigned char *worker_scratch;
    size_t worker_bytes;
    rope_table ropes[MAX_ROPES];
    uint32_t n_ropes;
};

qp_status qp_cpu_ctx_new(qp_cpu_ctx **out, const qp_cpu_kernels *k, qp_pool *pool, qp_err *err)
{
    qp_cpu_ctx *c;
    QP_TRY(qp_new(&c, 1, sizeof *c, "CPU backend", err));
    c->k = k;
    c->pool = pool;
    *out = c;
    return QP_OK;
}

void qp_cpu_ctx_free(qp_cpu_ctx *c)
{
    if (!c) return;
    for (uint32_t i = 0; i < c->n_ropes; i++) qp_free(c->ropes[i].cs);
    qp_free(c->worker_scratch);
    qp_free(c);
}

size_t qp_cpu_ctx_bytes(const qp_cpu_ctx *c, size_t worker_bytes, uint32_t max_rows)
{
    size_t n = qp_round_up(worker_bytes, 64) * qp_pool_n_threads(c->pool);
    for (uint32_t i = 0; i < c->n_ropes; i++) n += (size_t)max_rows * c->ropes[i].rope->n_half * 2 * sizeof(float);
    return n;
}

qp_status qp_cpu_ctx_finish(qp_cpu_ctx *c, size_t worker_bytes, uint32_t max_rows, qp_err *err)
{
    const char *what = "step scratch (lower --max-num-batched-tokens)";
    c->worker_bytes = qp_round_up(worker_bytes, 64);
    QP_TRY(qp_new(&c->worker_scratch, qp_pool_n_threads(c->pool), c->worker_bytes, what, err));
    for (uint32_t i = 0; i < c->n_ropes; i++)
        QP_TRY(qp_new(&c->ropes[i].cs, max_rows, (size_t)c->ropes[i].rope->n_half * 2 * sizeof(float), what, err));
    return QP_OK;
}

void qp_cpu_ctx_begin_step(qp_cpu_ctx *c)
{
    for (uint32_t i = 0; i < c->n_ropes; i++) c->ropes[i].fresh = false;
}

static inline qp_cpu_ctx *ctx_of(const qp_step *s)
{
    return s->be_ctx;
}

static inline float *row_of(qp_vec x, uint32_t r)
{
    return x.data + (size_t)r * x.ld;
}

static void *worker_scratch(const qp_cpu_ctx *c, unsigned worker)
{
    return c->worker_scratch + c->worker_bytes * worker;
}

static void need_worker_scratch(qp_step *s, size_t bytes)
{
    if (bytes > s->worker_peak) s->worker_peak = bytes;
}

/* ---- row-wise ops ---- */

typedef struct row_job {
    qp_step *s;
    qp_vec y, x, z;
    const void *p;
    float a;
    uint32_t n, rows_a_part;
    void (*row)(struct row_job *j, uint32_t r);
} row_job;

static void run_row_part(void *arg, size_t part, unsigned worker)
{
    row_job *j = arg;
    (void)worker;
    uint32_t r0 = (uint32_t)part * j->rows_a_part, r1 = r0 + j->rows_a_part;
    for (uint32_t r = r0; r < r1 && r < j->y.rows; r++) j->row(j, r);
}

static void run_rows(row_job *j)
{
    size_t cols = j->y.cols ? j->y.cols : 1;
    j->rows_a_part = (uint32_t)qp_div_up(ROW_FLOATS, cols);
    if (j->y.rows * cols <= INLINE_FLOATS) j->rows_a_part = j->y.rows ? j->y.rows : 1;
    qp_pool_run(ctx_of(j->s)->pool, run_row_part, j, qp_div_up(j->y.rows, j->rows_a_part));
}

static void embed_row(row_job *j, uint32_t r)
{
    const qp_embedding *e = j->p;
    const qp_cpu_kernels *k = ctx_of(j->s)->k;
    float *y = row_of(j->y, r);
    uint32_t token = (uint32_t)j->s->batch->tokens[r];
    if (e->table) {
        size_t row_bytes = (size_t)e->n_cols * qp_wtype_bytes(e->wtype);
        k->to_f32(y, (const unsigned char *)e->table + token * row_bytes, e->wtype, e->n_cols);
    } else {
        e->decode_row(e->codec, token, y);
    }
    if (fabsf(j->a - 1.0f) > 0) k->scale(y, y, j->a, e->n_cols);
}

static void cpu_embed(qp_step *s, qp_vec y, const qp_embedding *e, float scale)
{
    row_job j = {.s = s, .y = y, .p = e, .a = scale, .row = embed_row};
    run_rows(&j);
}

static void rms_norm_row(row_job *j, uint32_t r)
{
    const qp_cpu_kernels *k = ctx_of(j->s)->k;
    float *y = row_of(j->y, r);
    const float *x = row_of(j->x, r);
    for (uint32_t c = 0; c < j->y.cols; c += j->n) k->rms_norm(y + c, x + c, j->p, j->n, j->a);
}

static void cpu_rms_norm(qp_step *s, qp_vec y, qp_vec x, uint32_t head_dim, const float *w, float eps)
{
    row_job j = {.s = s, .y = y, .x = x, .p = w, .a = eps, .n = head_dim, .row = rms_norm_row};
    run_rows(&j);
}

static void add_row(row_job *j, uint32_t r)
{
    ctx_of(j->s)->k->add(row_of(j->y, r), row_of(j->x, r), j->y.cols);
}

static void cpu_add(qp_step *s, qp_vec x, qp_vec y)
{
    row_job j = {.s = s, .y = x, .x = y, .row = add_row};
    run_rows(&j);
}

static void scale_row(row_job *j, uint32_t r)
{
    ctx_of(j->s)->k->scale(row_of(j->y, r), row_of(j->y, r), j->a, j->y.cols);
}

static void cpu_scale(qp_step *s, qp_vec x, float a)
{
    row_job j = {.s = s, .y = x, .a = a, .row = scale_row};
    run_rows(&j);
}

static void softcap_row(row_job *j, uint32_t r)
{
    ctx_of(j->s)->k->softcap(row_of(j->y, r), row_of(j->y, r), j->a, j->y.cols);
}

static void cpu_softcap(qp_step *s, qp_vec x, float cap)
{
    row_job j = {.s = s, .y = x, .a = cap, .row = softcap_row};
    run_rows(&j);
}

static void silu_mul_row(row_job *j, uint32_t r)
{
    ctx_of(j->s)->k->silu_mul(row_of(j->y, r), row_of(j->y, r), row_of(j->x, r), j->y.cols);
}

static void cpu_silu_mul(qp_step *s, qp_vec gate, qp_vec up)
{
    row_job j = {.s = s, .y = gate, .x = up, .row = silu_mul_row};
    run_rows(&j);
}

static void gelu_tanh_mul_row(row_job *j, uint32_t r)
{
    ctx_of(j->s)->k->gelu_tanh_mul(row_of(j->y, r), row_of(j->y, r), row_of(j->x, r), j->y.cols);
}

static void cpu_gelu_tanh_mul(qp_step *s, qp_vec gate, qp_vec up)
{
    row_job j = {.s = s, .y = gate, .x = up, .row = gelu_tanh_mul_row};
    run_rows(&j);
}

static void sigmoid_mul_row(row_job *j, uint32_t r)
{
    ctx_of(j->s)->k->sigmoid_mul(row_of(j->y, r), row_of(j->y, r), row_of(j->x, r), j->y.cols);
}

static void cpu_sigmoid_mul(qp_step *s, qp_vec x, qp_vec gate)
{
    row_job j = {.s = s, .y = x, .x = gate, .row = sigmoid_mul_row};
    run_rows(&j);
}

static void split_heads_row(row_job *j, uint32_t r)
{
    size_t d = j->n, n_heads = j->y.cols / d;
    const float *x = row_of(j->x, r);
    for (size_t h = 0; h < n_heads; h++) {
        memcpy(row_of(j->y, r) + h * d, x + 2 * h * d, d * sizeof(float));
        memcpy(row_of(j->z, r) + h * d, x + (2 * h + 1) * d, d * sizeof(float));
    }
}

static void cpu_split_heads(qp_step *s, qp_vec x, uint32_t n_heads, uint32_t head_dim, qp_vec a, qp_vec b)
{
    (void)n_heads;
    row_job j = {.s = s, .y = a, .z = b, .x = x, .n = head_dim, .row = split_heads_row};
    run_rows(&j);
}

static void cpu_logit_rows(qp_step *s, qp_vec y, qp_vec x)
{
    for (uint32_t i = 0; i < y.rows; i++)
        memcpy(row_of(y, i), row_of(x, s->batch->logit_rows[i]), x.cols * sizeof(float));
}

/* ---- rotary ---- */

static const qp_span *span_of_row(const qp_batch *b, uint32_t r)
{
    const qp_span *sp = b->spans;
    while (r >= sp->row0 + sp->n_rows) sp++;
    return sp;
}

typedef struct rope_fill {
    rope_table *t;
    const qp_batch *batch;
} rope_fill;

static void fill_rope_row(void *arg, size_t part, unsigned worker)
{
    rope_fill *f = arg;
    const qp_rope *r = f->t->rope;
    uint32_t row = (uint32_t)part;
    const qp_span *sp = span_of_row(f->batch, row);
    double pos = (double)sp->pos0 + (double)(row - sp->row0);
    float *cs = f->t->cs + (size_t)row * r->n_half * 2;
    (void)worker;
    for (uint32_t i = 0; i < r->n_half; i++) {
        cs[2 * i] = (float)(cos(pos * r->freq[i]) * r->magnitude);
        cs[2 * i + 1] = (float)(sin(pos * r->freq[i]) * r->magnitude);
    }
}

static void rope_row(row_job *j, uint32_t r)
{
    const rope_table *t = j->p;
    const float *cs = t->cs + (size_t)r * t->rope->n_half * 2;
    float *x = row_of(j->y, r);
    for (uint32_t c = 0; c < j->y.cols; c += j->n) ctx_of(j->s)->k->rope(x + c, cs, t->rope->n_half);
}

static void cpu_rope(qp_step *s, qp_vec x, uint32_t head_dim, const qp_rope *r)
{
    qp_cpu_ctx *c = ctx_of(s);
    rope_table *t = c->ropes;
    while (t < c->ropes + c->n_ropes && t->rope != r) t++;
    if (s->dry) {
        if (t == c->ropes + c->n_ropes && c->n_ropes < MAX_ROPES) c->ropes[c->n_ropes++] = (rope_table){r, NULL, false};
        return;
    }
    if (!t->fresh) {
        rope_fill f = {t, s->batch};
        qp_pool_run(c->pool, fill_rope_row, &f, s->batch->n_rows);
        t->fresh = true;
    }
    row_job j = {.s = s, .y = x, .p = t, .n = head_dim, .row = rope_row};
    run_rows(&j);
}

/* ---- linears ---- */

typedef struct linear_work {
    const qp_linear *l;
    qp_vec y;
    /* EXL3 only; [rows, ...] in the step's scratch */
    float *xh, *yh, *scale;
    int16_t *xq;
    int64_t *sum;
    uint32_t chunk; /* outputs (dense) or output tiles (EXL3) a part */
    size_t part0;   /* first part of this linear in the product phase */
} linear_work;

typedef struct linear_job {
    qp_step *s;
    qp_vec x;
    linear_work w[QP_MAX_LINEAR_GROUP];
    uint32_t n;
} linear_job;

static bool is_i16(const qp_linear *l)
{
    return l->arith == QP_EXL3_I16 && l->exl3.codebook == QP_EXL3_MUL1;
}

static void *take(qp_step *s, size_t bytes)
{
    static float dry_data[16];
    void *p = s->dry ? (void *)dry_data : (void *)(s->scratch + s->used);
    s->used += qp_round_up(bytes, 64);
    if (s->used > s->peak) s->peak = s->used;
    return p;
}

/* Output tiles a part when few rows share a decode: memory is then read in runs of chunk tiles a tile row, and long
 * runs are up to 1.8 times as fast as runs of 4 (1536x640 at 4 bits, cold: 10.4 G weights/s at 4, 14.4 at 8, 17.1 at
 * 16). One part a thread, two or more where there is enough to balance. No result depends on it. */
static uint32_t decode_chunk(uint32_t n_tiles, uint32_t n_threads)
{
    uint32_t n_parts = n_tiles >= 48 * n_threads ? 2 * n_threads : n_threads;
    uint32_t chunk = (uint32_t)qp_round_up(qp_div_up(n_tiles, n_parts), 4);
    return chunk < 4 ? 4 : chunk > 64 ? 64 : chunk;
}

/* The same for many rows: equal parts, as many for every thread, of at most 16 tiles (a strip of level amx). */
static uint32_t prefill_chunk(uint32_t n_tiles, uint32_t n_threads)
{
    size_t n_parts = n_threads * qp_div_up(n_tiles, (size_t)n_threads * 16);
    uint32_t chunk = (uint32_t)qp_round_up(qp_div_up(n_tiles, n_parts), 2);
    return chunk < 4 ? 4 : chunk;
}

static void prepare(linear_job *j, uint32_t i)
{
    qp_step *s = j->s;
    linear_work *w = &j->w[i];
    const qp_cpu_kernels *k = ctx_of(s)->k;
    size_t rows = j->x.rows;
    if (w->l->kind == QP_LINEAR_DENSE) {
        w->chunk = rows <= 4 ? 32 : 96;
        need_worker_scratch(s, k->dense_scratch_bytes(w->l->n_in));
        return;
    }
    const qp_exl3 *t = &w->l->exl3;
    w->chunk = rows <= 4 ? decode_chunk(t->n_out / 16, qp_pool_n_threads(ctx_of(s)->pool))
                         : prefill_chunk(t->n_out / 16, qp_pool_n_threads(ctx_of(s)->pool));
    need_worker_scratch(s, qp_max_size(k->exl3_scratch_bytes(t->n_in), t->n_in * sizeof(float)));
    if (is_i16(w->l)) {
        w->xq = take(s, rows * t->n_in * sizeof(int16_t));
        w->scale = take(s, rows * sizeof(float));
        w->sum = take(s, rows * sizeof(int64_t));
    } else {
        w->xh = take(s, rows * t->n_in * sizeof(float));
    }
    w->yh = take(s, rows * t->n_out * sizeof(float));
}

/* Phase 1, EXL3: the rotated input of one row of one linear. */
static void rotate_in_part(void *arg, size_t part, unsigned worker)
{
    linear_job *j = arg;
    linear_work *w = &j->w[part / j->x.rows];
    uint32_t r = (uint32_t)(part % j->x.rows);
    const qp_cpu_kernels *k = ctx_of(j->s)->k;
    if (w->l->kind != QP_LINEAR_EXL3) return;
    const qp_exl3 *t = &w->l->exl3;
    if (!is_i16(w->l)) {
        k->exl3_rotate_in(w->xh + (size_t)r * t->n_in, row_of(j->x, r), t);
        return;
    }
    float *xh = worker_scratch(ctx_of(j->s), worker);
    k->exl3_rotate_in(xh, row_of(j->x, r), t);
    k->exl3_quantize(w->xq + (size_t)r * t->n_in, &w->scale[r], &w->sum[r], xh, t->n_in);
}

/* Phase 2: a run of outputs of one linear, all rows. */
static void product_part(void *arg, size_t part, unsigned worker)
{
    linear_job *j = arg;
    const qp_cpu_ctx *c = ctx_of(j->s);
    uint32_t i = j->n - 1;
    while (part < j->w[i].part0) i--;
    const linear_work *w = &j->w[i];
    size_t first = (part - w->part0) * w->chunk;
    void *scratch = worker_scratch(c, worker);
    if (w->l->kind == QP_LINEAR_DENSE) {
        size_t end = qp_min_size(first + w->chunk, w->l->n_out);
        c->k->dense(w->y.data, w->y.ld, j->x.data, j->x.ld, j->x.rows, w->l->w, w->l->wtype, w->l->n_in, first, end,
                    w->l->bias, scratch);
        return;
    }
    const qp_exl3 *t = &w->l->exl3;
    size_t end = qp_min_size(first + w->chunk, t->n_out / 16);
    if (is_i16(w->l))
        c->k->exl3_mul_i16(w->yh, t->n_out, t, first, end, w->xq, t->n_in, w->scale, w->sum, j->x.rows, scratch);
    else
        c->k->exl3_mul_f32(w->yh, t->n_out, t, first, end, w->xh, t->n_in, j->x.rows, scratch);
}

/* Phase 3, EXL3: the output of one row of one linear back in the model's basis. */
static void rotate_out_part(void *arg, size_t part, unsigned worker)
{
    linear_job *j = arg;
    const linear_work *w = &j->w[part / j->x.rows];
    uint32_t r = (uint32_t)(part % j->x.rows);
    (void)worker;
    if (w->l->kind == QP_LINEAR_EXL3)
        ctx_of(j->s)->k->exl3_rotate_out(row_of(w->y, r), w->yh + (size_t)r * w->l->exl3.n_out, &w->l->exl3);
}

static void run_row_phase(linear_job *j, qp_pool_fn fn, size_t n_floats)
{
    size_t n_parts = (size_t)j->n * j->x.rows;
    if (n_floats > INLINE_FLOATS) {
        qp_pool_run(ctx_of(j->s)->pool, fn, j, n_parts);
        return;
    }
    for (size_t i = 0; i < n_parts; i++) fn(j, i, 0);
}

static void cpu_linear_group(qp_step *s, qp_vec x, const qp_linear *const *l, uint32_t n, const qp_vec *y)
{
    linear_job j; /* not zeroed: 1 KiB, and only the first n entries are read */
    size_t mark = qp_step_mark(s), n_parts = 0, floats_in = 0, floats_out = 0;
    j.s = s;
    j.x = x;
    j.n = n;
    for (uint32_t i = 0; i < n; i++) {
        j.w[i] = (linear_work){.l = l[i], .y = y[i], .part0 = n_parts};
        prepare(&j, i);
        bool exl3 = l[i]->kind == QP_LINEAR_EXL3;
        n_parts += qp_div_up(exl3 ? l[i]->exl3.n_out / 16 : l[i]->n_out, j.w[i].chunk);
        floats_in += exl3 ? (size_t)x.rows * l[i]->exl3.n_in : 0;
        floats_out += exl3 ? (size_t)x.rows * l[i]->exl3.n_out : 0;
    }
    if (!s->dry && x.rows) {
        if (floats_in) run_row_phase(&j, rotate_in_part, floats_in);
        qp_pool_run(ctx_of(s)->pool, product_part, &j, n_parts);
        if (floats_out) run_row_phase(&j, rotate_out_part, floats_out);
    }
    qp_step_rewind(s, mark);
}

/* ---- attention ---- */

typedef struct attention_job {
    qp_step *s;
    const qp_attention *a;
    const qp_cache_layer *layer;
    const qp_kv_place *place;
    qp_vec y, q, k, v;
} attention_job;

/* Keys and values of row r into the page that holds its position. */
static void append_row(row_job *rj, uint32_t r)
{
    const attention_job *j = rj->p;
    const qp_kv_view *kv = j->s->kv;
    const qp_span *sp = span_of_row(j->s->batch, r);
    uint32_t pos = sp->pos0 + (r - sp->row0), g = j->place->group, d = j->a->head_dim;
    size_t elem = qp_wtype_bytes(kv->type);
    unsigned char *page = kv->base[g] + (size_t)sp->page_ids[g][pos / kv->page_size] * kv->page_bytes[g];
    for (uint32_t h = 0; h < j->a->n_kv_heads; h++) {
        size_t at = ((size_t)h * kv->page_size + pos % kv->page_size) * d * elem;
        ctx_of(j->s)->k->from_f32(page + j->place->k_offset + at, kv->type, row_of(j->k, r) + (size_t)h * d, d);
        ctx_of(j->s)->k->from_f32(page + j->place->v_offset + at, kv->type, row_of(j->v, r) + (size_t)h * d, d);
    }
}

static void attention_part(void *arg, size_t part, unsigned worker)
{
    const attention_job *j = arg;
    const qp_attention *a = j->a;
    const qp_kv_view *kv = j->s->kv;
    const qp_span *sp = j->s->batch->spans;
    size_t n_tiles;
    while (part >= (n_tiles = qp_div_up(sp->n_rows, ATTENTION_ROWS)) * a->n_kv_heads) {
        part -= n_tiles * a->n_kv_heads;
        sp++;
    }
    uint32_t head = (uint32_t)(part % a->n_kv_heads), t0 = (uint32_t)(part / a->n_kv_heads) * ATTENTION_ROWS;
    uint32_t n_q = sp->n_rows - t0 < ATTENTION_ROWS ? sp->n_rows - t0 : ATTENTION_ROWS;
    uint32_t group = a->n_heads / a->n_kv_heads, d = a->head_dim;
    size_t head_bytes = (size_t)head * kv->page_size * d * qp_wtype_bytes(kv->type);
    qp_attn_args args = {
        .q = row_of(j->q, sp->row0 + t0) + (size_t)head * group * d,
        .ldq = j->q.ld,
        .out = row_of(j->y, sp->row0 + t0) + (size_t)head * group * d,
        .ldo = j->y.ld,
        .n_q = n_q,
        .n_group = group,
        .head_dim = d,
        .pos0 = sp->pos0 + t0,
        .window = j->layer->window,
        .scale = a->scale,
        .softcap = a->softcap,
        .sinks = a->sinks ? a->sinks + (size_t)head * group : NULL,
        .kv_base = kv->base[j->place->group],
        .page_ids = sp->page_ids[j->place->group],
        .page_bytes = kv->page_bytes[j->place->group],
        .k_offset = j->place->k_offset + head_bytes,
        .v_offset = j->place->v_offset + head_bytes,
        .page_size = kv->page_size,
        .kv_type = kv->type,
    };
    ctx_of(j->s)->k->attention(&args, worker_scratch(ctx_of(j->s), worker));
}

static void cpu_attention(qp_step *s, uint32_t il, qp_vec y, qp_vec q, qp_vec k, qp_vec v, const qp_attention *a)
{
    const qp_cpu_ctx *c = ctx_of(s);
    if (s->dry) {
        need_worker_scratch(s, c->k->attention_scratch_bytes(ATTENTION_ROWS, a->n_heads / a->n_kv_heads, a->head_dim));
        return;
    }
    attention_job j = {s, a, &s->kv->layers[il], &s->kv->places[il], y, q, k, v};
    row_job append = {.s = s, .y = k, .p = &j, .row = append_row};
    run_rows(&append);
    size_t n_parts = 0;
    for (uint32_t i = 0; i < s->batch->n_spans; i++)
        n_parts += qp_div_up(s->batch->spans[i].n_rows, ATTENTION_ROWS) * a->n_kv_heads;
    qp_pool_run(c->pool, attention_part, &j, n_parts);
}

/* ---- gated delta net ---- */

typedef struct delta_job {
    qp_step *s;
    const qp_gated_delta *g;
    size_t state_offset;
    qp_vec y, qkv, a, b, u, decay, beta;
} delta_job;

static float *delta_state(const delta_job *j, const qp_span *sp)
{
    return j->s->kv->state + (size_t)sp->slot * j->s->kv->slot_floats + j->state_offset;
}

static void conv_part(void *arg, size_t part, unsigned worker)
{
    const delta_job *j = arg;
    const qp_span *sp = &j->s->batch->spans[part];
    (void)worker;
    ctx_of(j->s)->k->conv1d_silu(row_of(j->u, sp->row0), j->u.ld, row_of(j->qkv, sp->row0), j->qkv.ld, j->g->conv_w,
                                 delta_state(j, sp), sp->n_rows, j->qkv.cols, j->g->conv_width);
}

static void delta_prepare_row(row_job *rj, uint32_t r)
{
    const delta_job *j = rj->p;
    const qp_gated_delta *g = j->g;
    const qp_cpu_kernels *k = ctx_of(j->s)->k;
    float *u = row_of(j->u, r), q_scale = (float)(1.0 / sqrt((double)g->dk));
    for (uint32_t h = 0; h < 2 * g->n_k_heads; h++)
        k->l2_norm(u + (size_t)h * g->dk, u + (size_t)h * g->dk, g->dk, 1e-6f, h < g->n_k_heads ? q_scale : 1.0f);
    k->gdn_gates(row_of(j->decay, r), row_of(j->beta, r), row_of(j->a, r), row_of(j->b, r), g->a_log, g->dt_bias,
                 g->n_v_heads);
}

static void delta_part(void *arg, size_t part, unsigned worker)
{
    const delta_job *j = arg;
    const qp_gated_delta *g = j->g;
    const qp_span *sp = &j->s->batch->spans[part / g->n_v_heads];
    uint32_t h = (uint32_t)(part % g->n_v_heads), hk = h / (g->n_v_heads / g->n_k_heads), r = sp->row0;
    float *conv = delta_state(j, sp), *u = row_of(j->u, r);
    size_t n_k = (size_t)g->n_k_heads * g->dk;
    (void)worker;
    qp_gdn_args args = {
        .state = conv + (size_t)(g->conv_width - 1) * j->qkv.cols + (size_t)h * g->dk * g->dv,
        .q = u + (size_t)hk * g->dk,
        .k = u + n_k + (size_t)hk * g->dk,
        .v = u + 2 * n_k + (size_t)h * g->dv,
        .ldq = j->u.ld,
        .ldk = j->u.ld,
        .ldv = j->u.ld,
        .decay = row_of(j->decay, r) + h,
        .beta = row_of(j->beta, r) + h,
        .ldg = j->decay.ld,
        .out = row_of(j->y, r) + (size_t)h * g->dv,
        .ldo = j->y.ld,
        .n_tokens = sp->n_rows,
        .dk = g->dk,
        .dv = g->dv,
    };
    ctx_of(j->s)->k->gated_delta(&args);
}

static void cpu_gated_delta(qp_step *s, uint32_t il, qp_vec y, qp_vec qkv, qp_vec a, qp_vec b, const qp_gated_delta *g)
{
    size_t mark = qp_step_mark(s);
    delta_job j = {.s = s, .g = g, .y = y, .qkv = qkv, .a = a, .b = b};
    j.u = qp_step_vec(s, qkv.rows, qkv.cols);
    j.decay = qp_step_vec(s, qkv.rows, g->n_v_heads);
    j.beta = qp_step_vec(s, qkv.rows, g->n_v_heads);
    if (!s->dry) {
        qp_pool *pool = ctx_of(s)->pool;
        j.state_offset = s->kv->places[il].state_offset;
        qp_pool_run(pool, conv_part, &j, s->batch->n_spans);
        row_job prepare_rows = {.s = s, .y = j.u, .p = &j, .row = delta_prepare_row};
        run_rows(&prepare_rows);
        qp_pool_run(pool, delta_part, &j, (size_t)s->batch->n_spans * g->n_v_heads);
    }
    qp_step_rewind(s, mark);
}

const qp_backend qp_backend_cpu = {
    .name = "cpu",
    .embed = cpu_embed,
    .rms_norm = cpu_rms_norm,
    .rope = cpu_rope,
    .linear_group = cpu_linear_group,
    .attention = cpu_attention,
    .add = cpu_add,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .silu_mul = cpu_silu_mul,
    .gelu_tanh_mul = cpu_gelu_tanh_mul,
    .sigmoid_mul = cpu_sigmoid_mul,
    .split_heads = cpu_split_heads,
    .gated_delta = cpu_gated_delta,
    .logit_rows = cpu_logit_rows,
};
