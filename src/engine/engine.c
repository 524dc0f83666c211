/* The engine: see engine.h.
 *
 * A step is planned in three rounds: running sequences that have all their prompt in the cache give one decode row
 * each; then sequences in prefill take what rows are left, oldest first; then waiting requests start while a place
 * among max_num_seqs, rows and pages are left. When pages run out the youngest running sequence is put back to the
 * front of the waiting queue with the tokens it has; it starts again from its first token and, results being
 * independent of batch and chunking, goes on to the same text. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/pool.h"
#include "engine/sampler.h"
#include "kernels/cpu/backend_cpu.h"
#include "kv/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_LOGIT_ROWS = 32 }; /* logit rows a step beyond one a sequence */

typedef struct request {
    uint64_t id;
    int32_t *tokens; /* [n_prompt + max_tokens]: prompt, then output */
    uint32_t n_prompt, n_tokens, max_tokens;
    uint32_t n_logits_given; /* prompt positions reported */
    bool ignore_eos, want_prompt_logits, cancelled, started;
    int32_t *stop_ids;
    size_t n_stop_ids;
    qp_sampling sampling;
    qp_logit_bias *bias;
    qp_rng rng;
    qp_request_events events;
    qp_kv_seq seq;      /* valid while started */
    uint32_t step_rows; /* rows in the step being run, 0: none */
    struct request *next;
} request;

struct qp_engine {
    const qp_model *model;
    qp_engine_opts opts;
    const qp_cpu_kernels *kernels;
    qp_pool *pool;
    qp_cpu_ctx *ctx;
    qp_kv *kv;
    qp_sampler *sampler;
    unsigned char *scratch;
    qp_step step;
    qp_batch batch;
    int32_t *row_tokens;
    qp_span *spans;
    request **span_requests;
    uint32_t *logit_rows;
    uint32_t max_logit_rows;
    request *waiting, **waiting_tail; /* first come, first served; preempted ones go to the front */
    request **running;                /* [max_num_seqs], oldest first */
    uint32_t n_running;
    uint64_t next_id;
    qp_engine_stats stats;
};

/* ---- options and memory ---- */

static qp_status in_range(const char *name, uint64_t v, uint64_t lo, uint64_t hi, qp_err *err)
{
    if (v >= lo && v <= hi) return QP_OK;
    return qp_fail(err, QP_EINVAL, "%s: %llu, must be in %llu..%llu", name, (unsigned long long)v,
                   (unsigned long long)lo, (unsigned long long)hi);
}

qp_status qp_engine_opts_resolve(qp_engine_opts *o, const qp_model *m, qp_err *err)
{
    const qp_model_info *info = qp_model_get_info(m);
    uint32_t longest = info->max_position ? info->max_position : 8192;
    if (!o->n_threads) o->n_threads = qp_cpu_count();
    if (!o->page_size) o->page_size = 32;
    if (!o->max_num_seqs) o->max_num_seqs = 16;
    if (!o->max_num_batched_tokens) o->max_num_batched_tokens = 512;
    if (!o->max_model_len) o->max_model_len = longest < 8192 ? longest : 8192;
    QP_TRY(in_range("--threads", o->n_threads, 1, 1024, err));
    QP_TRY(in_range("--page-size", o->page_size, 1, 4096, err));
    QP_TRY(in_range("--max-num-seqs", o->max_num_seqs, 1, 65536, err));
    QP_TRY(in_range("--max-num-batched-tokens", o->max_num_batched_tokens, 1, 1 << 20, err));
    if (info->max_position && o->max_model_len > info->max_position)
        return qp_fail(err, QP_EINVAL, "--max-model-len: %u, the model's max_position_embeddings is %u",
                       o->max_model_len, info->max_position);
    QP_TRY(in_range("--max-model-len", o->max_model_len, 1, QP_MAX_POSITION, err));
    /* Every running sequence needs its decode row. */
    if (o->max_num_batched_tokens < o->max_num_seqs) o->max_num_seqs = o->max_num_batched_tokens;
    if (!o->kv_tokens) o->kv_tokens = (uint64_t)o->max_num_seqs * o->max_model_len;
    if (o->kv_tokens < o->max_model_len)
        return qp_fail(err, QP_EINVAL, "cache of %llu tokens is smaller than --max-model-len %u",
                       (unsigned long long)o->kv_tokens, o->max_model_len);
    return QP_OK;
}

static qp_kv_opts kv_opts_of(const qp_engine_opts *o)
{
    return (qp_kv_opts){.page_size = o->page_size,
                        .max_seqs = o->max_num_seqs,
                        .max_model_len = o->max_model_len,
                        .max_step_tokens = o->max_num_batched_tokens,
                        .n_tokens = o->kv_tokens,
                        .type = o->kv_type};
}

static uint32_t logit_rows_of(const qp_engine_opts *o)
{
    uint32_t n = o->max_num_seqs + (o->no_prompt_logits ? 0 : PROMPT_LOGIT_ROWS);
    return n < o->max_num_batched_tokens ? n : o->max_num_batched_tokens;
}

/* Runs the model on shapes alone: fills s->peak and s->worker_peak and notes the rotary tables in ctx. */
static void dry_pass(const qp_model *m, const qp_engine_opts *o, qp_cpu_ctx *ctx, qp_step *s)
{
    qp_batch b = {.n_rows = o->max_num_batched_tokens, .n_logit_rows = logit_rows_of(o)};
    qp_vec logits;
    *s = (qp_step){.be = &qp_backend_cpu, .be_ctx = ctx, .batch = &b, .dry = true};
    qp_model_forward(m, s, &logits);
    s->batch = NULL;
}

static size_t tables_bytes(const qp_engine_opts *o)
{
    return (size_t)o->max_num_batched_tokens * sizeof(int32_t) +
           (size_t)o->max_num_seqs * (sizeof(qp_span) + 2 * sizeof(request *)) + logit_rows_of(o) * sizeof(uint32_t);
}

static qp_status select_kernels(const qp_engine_opts *o, const qp_cpu_kernels **out, qp_err *err)
{
    qp_cpu_features have;
    qp_cpu_features_read(&have);
    return qp_cpu_kernels_select(out, &have, o->cpu_level ? o->cpu_level : getenv("QP_CPU"), err);
}

qp_status qp_engine_plan(const qp_model *m, const qp_engine_opts *o, qp_plan *out, qp_err *err)
{
    const qp_cpu_kernels *k = NULL;
    qp_pool *pool = NULL;
    qp_cpu_ctx *ctx = NULL;
    qp_kv_sizes sz;
    qp_kv_opts ko = kv_opts_of(o);
    qp_step s;
    QP_TRY(select_kernels(o, &k, err));
    QP_TRY(qp_kv_plan(qp_model_cache_spec(m), &ko, &sz, err));
    QP_TRY(qp_pool_new(&pool, 1, err));
    qp_status st = qp_cpu_ctx_new(&ctx, k, pool, err);
    if (st == QP_OK) {
        const qp_model_info *info = qp_model_get_info(m);
        dry_pass(m, o, ctx, &s);
        *out = (qp_plan){.weights_mapped = info->weight_bytes,
                         .weights_heap = info->heap_bytes,
                         .kv = sz.kv_bytes,
                         .state = sz.state_bytes};
        out->scratch = s.peak + qp_round_up(s.worker_peak, 64) * (o->n_threads - 1) +
                       qp_cpu_ctx_bytes(ctx, s.worker_peak, o->max_num_batched_tokens) + qp_sampler_bytes(info->vocab) +
                       tables_bytes(o);
        for (uint32_t g = 0; g < sz.n_groups; g++) {
            out->page_bytes += sz.page_bytes[g];
            out->n_pages += sz.n_pages[g];
        }
    }
    qp_cpu_ctx_free(ctx);
    qp_pool_free(pool);
    return st;
}

static qp_status fill_engine(qp_engine *e, qp_err *err)
{
    const qp_engine_opts *o = &e->opts;
    qp_kv_opts ko = kv_opts_of(o);
    QP_TRY(select_kernels(o, &e->kernels, err));
    QP_TRY(qp_pool_new(&e->pool, o->n_threads, err));
    QP_TRY(qp_cpu_ctx_new(&e->ctx, e->kernels, e->pool, err));
    dry_pass(e->model, o, e->ctx, &e->step);
    size_t scratch = e->step.peak, worker = e->step.worker_peak;
    QP_TRY(qp_cpu_ctx_finish(e->ctx, worker, o->max_num_batched_tokens, err));
    e->scratch = qp_malloc(scratch);
    if (!e->scratch)
        return qp_fail(err, QP_ENOMEM, "step scratch: no memory for %zu bytes; lower --max-num-batched-tokens",
                       scratch);
    QP_TRY(qp_kv_new(&e->kv, qp_model_cache_spec(e->model), &ko, err));
    QP_TRY(qp_sampler_new(&e->sampler, e->kernels, qp_model_get_info(e->model)->vocab, err));
    e->max_logit_rows = logit_rows_of(o);
    QP_TRY(qp_new(&e->row_tokens, o->max_num_batched_tokens, sizeof *e->row_tokens, "engine", err));
    QP_TRY(qp_new(&e->spans, o->max_num_seqs, sizeof *e->spans, "engine", err));
    QP_TRY(qp_new(&e->span_requests, o->max_num_seqs, sizeof *e->span_requests, "engine", err));
    QP_TRY(qp_new(&e->logit_rows, e->max_logit_rows, sizeof *e->logit_rows, "engine", err));
    QP_TRY(qp_new(&e->running, o->max_num_seqs, sizeof *e->running, "engine", err));
    e->batch = (qp_batch){.tokens = e->row_tokens, .spans = e->spans, .logit_rows = e->logit_rows};
    e->step = (qp_step){.be = &qp_backend_cpu,
                        .be_ctx = e->ctx,
                        .batch = &e->batch,
                        .kv = qp_kv_get_view(e->kv),
                        .scratch = e->scratch};
    return QP_OK;
}

qp_status qp_engine_new(qp_engine **out, const qp_model *m, const qp_engine_opts *opts, qp_err *err)
{
    qp_engine *e = NULL;
    QP_TRY(qp_new(&e, 1, sizeof *e, "engine", err));
    e->model = m;
    e->opts = *opts;
    e->waiting_tail = &e->waiting;
    qp_status st = qp_engine_opts_resolve(&e->opts, m, err);
    if (st == QP_OK) st = fill_engine(e, err);
    if (st != QP_OK) {
        qp_engine_free(e);
        return st;
    }
    *out = e;
    return QP_OK;
}

static void request_free(qp_engine *e, request *r)
{
    if (r->started) qp_kv_seq_deinit(e->kv, &r->seq);
    qp_free(r->tokens);
    qp_free(r->stop_ids);
    qp_free(r->bias);
    qp_free(r);
}

void qp_engine_free(qp_engine *e)
{
    if (!e) return;
    for (uint32_t i = 0; i < e->n_running; i++) request_free(e, e->running[i]);
    for (request *r = e->waiting, *next; r; r = next) {
        next = r->next;
        request_free(e, r);
    }
    qp_sampler_free(e->sampler);
    qp_kv_free(e->kv);
    qp_cpu_ctx_free(e->ctx);
    qp_pool_free(e->pool);
    qp_free(e->scratch);
    qp_free(e->row_tokens);
    qp_free(e->spans);
    qp_free(e->span_requests);
    qp_free(e->logit_rows);
    qp_free(e->running);
    qp_free(e);
}

const qp_engine_opts *qp_engine_get_opts(const qp_engine *e)
{
    return &e->opts;
}

const char *qp_engine_cpu_level(const qp_engine *e)
{
    return e->kernels->name;
}

void qp_engine_set_trace(qp_engine *e, void (*trace)(void *arg, const char *what, uint32_t il, qp_vec x), void *arg)
{
    e->step.trace = trace;
    e->step.trace_arg = arg;
}

/* ---- requests ---- */

static qp_status check_request(const qp_engine *e, const qp_request *r, qp_err *err)
{
    uint32_t vocab = qp_model_get_info(e->model)->vocab;
    if (!r->n_prompt) return qp_fail(err, QP_EINVAL, "prompt: empty, at least one token is needed");
    if (r->want_prompt_logits && e->opts.no_prompt_logits)
        return qp_fail(err, QP_EINVAL, "want_prompt_logits: the engine was made without prompt logits");
    if (!r->max_tokens && !r->want_prompt_logits) return qp_fail(err, QP_EINVAL, "max_tokens: 0, must be at least 1");
    if (r->n_prompt + r->max_tokens > e->opts.max_model_len)
        return qp_fail(err, QP_ELIMIT,
                       "prompt of %zu tokens and max_tokens %u are over the maximum length of %u tokens "
                       "(--max-model-len)",
                       r->n_prompt, r->max_tokens, e->opts.max_model_len);
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= vocab)
            return qp_fail(err, QP_EINVAL, "prompt: token %d at position %zu, must be in 0..%u", r->prompt[i], i,
                           vocab - 1);
    return qp_sampling_check(&r->sampling, vocab, err);
}

static qp_status copy_request(request *q, const qp_request *r, qp_err *err)
{
    size_t n = r->n_prompt + r->max_tokens;
    QP_TRY(qp_new(&q->tokens, n, sizeof *q->tokens, "request", err));
    QP_TRY(qp_new(&q->stop_ids, r->n_stop_ids, sizeof *q->stop_ids, "request", err));
    QP_TRY(qp_new(&q->bias, r->sampling.n_logit_bias, sizeof *q->bias, "request", err));
    memcpy(q->tokens, r->prompt, r->n_prompt * sizeof *q->tokens);
    if (r->n_stop_ids) memcpy(q->stop_ids, r->stop_ids, r->n_stop_ids * sizeof *q->stop_ids);
    if (r->sampling.n_logit_bias) memcpy(q->bias, r->sampling.logit_bias, r->sampling.n_logit_bias * sizeof *q->bias);
    q->sampling = r->sampling;
    q->sampling.logit_bias = q->bias;
    q->n_prompt = q->n_tokens = (uint32_t)r->n_prompt;
    q->max_tokens = r->max_tokens;
    q->ignore_eos = r->ignore_eos;
    q->want_prompt_logits = r->want_prompt_logits;
    q->n_stop_ids = r->n_stop_ids;
    q->events = r->events;
    q->rng.state = r->sampling.seed;
    return QP_OK;
}

qp_status qp_engine_submit(qp_engine *e, const qp_request *r, uint64_t *id, qp_err *err)
{
    request *q = NULL;
    QP_TRY(check_request(e, r, err));
    QP_TRY(qp_new(&q, 1, sizeof *q, "request", err));
    qp_status st = copy_request(q, r, err);
    if (st != QP_OK) {
        request_free(e, q);
        return st;
    }
    *id = q->id = ++e->next_id;
    *e->waiting_tail = q;
    e->waiting_tail = &q->next;
    e->stats.n_waiting++;
    return QP_OK;
}

void qp_engine_cancel(qp_engine *e, uint64_t id)
{
    for (uint32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->id == id) e->running[i]->cancelled = true;
    for (request *r = e->waiting; r; r = r->next)
        if (r->id == id) r->cancelled = true;
}

static void finish(qp_engine *e, request *r, qp_finish why, int32_t end_token, const qp_err *why_err)
{
    qp_request_events ev = r->events;
    request_free(e, r); /* pages first: the callback may submit again */
    if (ev.on_finish) ev.on_finish(ev.arg, why, end_token, why_err);
}

/* Takes running[i] out of the list, order kept. */
static request *take_running(qp_engine *e, uint32_t i)
{
    request *r = e->running[i];
    memmove(&e->running[i], &e->running[i + 1], (e->n_running - i - 1) * sizeof *e->running);
    e->n_running--;
    return r;
}

static void drop_cancelled(qp_engine *e)
{
    for (uint32_t i = e->n_running; i-- > 0;)
        if (e->running[i]->cancelled) finish(e, take_running(e, i), QP_FINISH_CANCELLED, -1, NULL);
    for (request **at = &e->waiting, *r; (r = *at);) {
        if (!r->cancelled) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (!r->next) e->waiting_tail = at;
        e->stats.n_waiting--;
        finish(e, r, QP_FINISH_CANCELLED, -1, NULL);
    }
}

/* ---- planning a step ---- */

static void preempt(qp_engine *e, uint32_t i)
{
    request *r = take_running(e, i);
    qp_kv_seq_deinit(e->kv, &r->seq);
    r->started = false;
    r->step_rows = 0;
    r->next = e->waiting;
    if (!e->waiting) e->waiting_tail = &r->next;
    e->waiting = r;
    e->stats.n_waiting++;
    e->stats.n_preemptions++;
}

/* Pages for n more tokens of running[i]; younger sequences that are not in this step yet give way. */
static bool reserve(qp_engine *e, uint32_t i, uint32_t n)
{
    qp_err ignored;
    while (qp_kv_seq_reserve(e->kv, &e->running[i]->seq, n, &ignored) != QP_OK) {
        uint32_t last = e->n_running - 1;
        if (last == i || e->running[last]->step_rows) return false;
        preempt(e, last);
    }
    return true;
}

static void add_span(qp_engine *e, request *r, uint32_t n)
{
    qp_batch *b = &e->batch;
    qp_span *sp = &e->spans[b->n_spans];
    uint32_t pos = r->seq.len;
    *sp = (qp_span){.row0 = b->n_rows, .n_rows = n, .pos0 = pos, .slot = r->seq.slot};
    for (uint32_t g = 0; g < QP_MAX_KV_GROUPS; g++) sp->page_ids[g] = r->seq.pages[g];
    memcpy(e->row_tokens + b->n_rows, r->tokens + pos, n * sizeof *e->row_tokens);
    for (uint32_t i = 0; i < n; i++) {
        bool last = pos + i + 1 == r->n_tokens;
        bool wanted = r->want_prompt_logits && pos + i < r->n_prompt && pos + i >= r->n_logits_given;
        if (last || wanted) e->logit_rows[b->n_logit_rows++] = b->n_rows + i;
    }
    e->span_requests[b->n_spans++] = r;
    b->n_rows += n;
    r->step_rows = n;
}

/* Rows that r may take now, at most `room`. */
static uint32_t rows_for(const qp_engine *e, const request *r, uint32_t room)
{
    uint32_t n = r->n_tokens - r->seq.len;
    if (n > room) n = room;
    if (r->want_prompt_logits) { /* logit rows are scarcer than rows; one is kept for each sequence that runs */
        uint32_t logit_room = e->max_logit_rows - e->batch.n_logit_rows;
        uint32_t others = e->opts.max_num_seqs > e->batch.n_spans + 1 ? e->opts.max_num_seqs - e->batch.n_spans - 1 : 0;
        logit_room = logit_room > others ? logit_room - others : 1;
        if (n > logit_room) n = logit_room;
    }
    return n;
}

static void plan_round(qp_engine *e, bool decode)
{
    for (uint32_t i = 0; i < e->n_running; i++) {
        request *r = e->running[i];
        bool is_decode = r->n_tokens - r->seq.len == 1;
        uint32_t room = e->opts.max_num_batched_tokens - e->batch.n_rows;
        if (r->step_rows || is_decode != decode || !room) continue;
        uint32_t n = rows_for(e, r, room);
        if (reserve(e, i, n)) add_span(e, r, n);
    }
}

/* Starts waiting requests. One that fails for lack of pages or slots stays at the front. */
static void start_waiting(qp_engine *e)
{
    qp_err err;
    while (e->waiting && e->n_running < e->opts.max_num_seqs && e->batch.n_rows < e->opts.max_num_batched_tokens) {
        request *r = e->waiting;
        qp_status st = qp_kv_seq_init(e->kv, &r->seq, &err);
        if (st == QP_ELIMIT) return;
        e->waiting = r->next;
        if (!e->waiting) e->waiting_tail = &e->waiting;
        e->stats.n_waiting--;
        r->next = NULL;
        if (st != QP_OK) {
            finish(e, r, QP_FINISH_ERROR, -1, &err);
            continue;
        }
        r->started = true;
        e->running[e->n_running++] = r;
        uint32_t n = rows_for(e, r, e->opts.max_num_batched_tokens - e->batch.n_rows);
        if (!reserve(e, e->n_running - 1, n)) {
            preempt(e, e->n_running - 1);
            e->stats.n_preemptions--; /* it had not run */
            return;
        }
        add_span(e, r, n);
    }
}

/* ---- after a step ---- */

static bool is_end(const qp_engine *e, const request *r, int32_t token)
{
    const qp_model_info *info = qp_model_get_info(e->model);
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == token) return true;
    if (r->ignore_eos) return false;
    for (uint32_t i = 0; i < info->n_eos; i++)
        if (info->eos[i] == token) return true;
    return false;
}

/* Draws the next token of r from logits; true when the request is over (*why, *end_token). */
static bool draw(qp_engine *e, request *r, const float *logits, qp_finish *why, int32_t *end_token)
{
    uint32_t n_out = r->n_tokens - r->n_prompt;
    *why = QP_FINISH_LENGTH;
    *end_token = -1;
    if (n_out >= r->max_tokens) return true; /* prompt only */
    int32_t token = qp_sampler_draw(e->sampler, logits, &r->sampling, &r->rng, r->tokens, r->n_prompt,
                                    r->tokens + r->n_prompt, n_out);
    if (token < 0) {
        *why = QP_FINISH_ERROR;
        return true;
    }
    e->stats.n_decode_tokens++;
    if (is_end(e, r, token)) {
        *why = QP_FINISH_STOP;
        *end_token = token;
        return true;
    }
    r->tokens[r->n_tokens++] = token;
    if (r->events.on_token && !r->events.on_token(r->events.arg, token, logits)) {
        *why = QP_FINISH_STOP;
        return true;
    }
    return n_out + 1 == r->max_tokens;
}

static void collect_span(qp_engine *e, uint32_t i, qp_vec logits, uint32_t *next_logit)
{
    const qp_span *sp = &e->spans[i];
    request *r = e->span_requests[i];
    qp_finish why;
    int32_t end_token;
    uint32_t pos0 = sp->pos0, n_tokens = r->n_tokens;
    qp_kv_seq_commit(e->kv, &r->seq, sp->n_rows);
    r->step_rows = 0;
    if (pos0 + sp->n_rows <= r->n_prompt) e->stats.n_prefill_tokens += sp->n_rows;
    for (; *next_logit < e->batch.n_logit_rows && e->logit_rows[*next_logit] < sp->row0 + sp->n_rows; ++*next_logit) {
        uint32_t pos = pos0 + e->logit_rows[*next_logit] - sp->row0;
        const float *row = logits.data + (size_t)*next_logit * logits.ld;
        if (r->want_prompt_logits && pos < r->n_prompt && pos >= r->n_logits_given) {
            if (r->events.on_prompt_logits) r->events.on_prompt_logits(r->events.arg, pos, row);
            r->n_logits_given = pos + 1;
        }
        if (pos + 1 < n_tokens || r->cancelled) continue;
        if (!draw(e, r, row, &why, &end_token)) continue;
        uint32_t k = 0;
        while (e->running[k] != r) k++;
        take_running(e, k);
        ++*next_logit;
        qp_err not_finite;
        if (why == QP_FINISH_ERROR)
            qp_fail(&not_finite, QP_EFORMAT,
                    "the logits at position %u are not finite: a weight is NaN or infinite, or the "
                    "configuration's scales overflow",
                    pos);
        finish(e, r, why, end_token, why == QP_FINISH_ERROR ? &not_finite : NULL);
        return;
    }
}

qp_status qp_engine_step(qp_engine *e, size_t *n_left, qp_err *err)
{
    uint64_t start = qp_clock_ns();
    drop_cancelled(e);
    e->batch.n_rows = e->batch.n_spans = e->batch.n_logit_rows = 0;
    plan_round(e, true);
    plan_round(e, false);
    start_waiting(e);
    if (e->batch.n_rows) {
        qp_vec logits;
        uint32_t next_logit = 0, n_spans = e->batch.n_spans;
        e->step.used = 0;
        qp_cpu_ctx_begin_step(e->ctx);
        uint64_t before = qp_clock_ns();
        qp_model_forward(e->model, &e->step, &logits);
        e->stats.forward_ns += qp_clock_ns() - before;
        for (uint32_t i = 0; i < n_spans; i++) collect_span(e, i, logits, &next_logit);
        e->stats.n_steps++;
    } else if (e->n_running || e->waiting) {
        return qp_fail(err, QP_EINTERNAL, "no request can run: %u running, %llu waiting", e->n_running,
                       (unsigned long long)e->stats.n_waiting);
    }
    *n_left = e->n_running + e->stats.n_waiting;
    e->stats.step_ns += qp_clock_ns() - start;
    return QP_OK;
}

void qp_engine_get_stats(const qp_engine *e, qp_engine_stats *out)
{
    *out = e->stats;
    out->n_running = e->n_running;
    for (uint32_t g = 0; g < QP_MAX_KV_GROUPS; g++) {
        out->n_pages_free += qp_kv_n_free_pages(e->kv, g);
        out->n_pages_total += qp_kv_n_pages(e->kv, g);
    }
}
