/* quantpack bench model: prefill and decode of a whole model, tokens a second, over several repetitions; and random
 * packs of real models' shapes to measure without a download.
 *
 * Prefill is the time from submitting the whole batch until every sequence has its first token. Decode is measured in
 * a run of its own, from the moment when every sequence is decoding, over a fixed number of steps, so that neither
 * prefill nor sequences that ended are in it. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/cmd.h"
#include "cli/json_out.h"
#include "cli/load.h"
#include "cli/random_pack.h"
#include "cli/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct {
    uint32_t prompt_tokens, decode_tokens, batch, repetitions, warmup;
    bool json;
    const char *random_pack;
    int shape, codebook;
    double bits, head_bits;
    qp_engine_args engine;
} bench_args;

#define AT(field) offsetof(bench_args, field)
static const qp_opt options[] = {
    {"prompt-tokens", 0, QP_OPT_U32, "N", AT(prompt_tokens), 1, 1 << 20, "512", "tokens of each prompt", NULL},
    {"decode-tokens", 0, QP_OPT_U32, "N", AT(decode_tokens), 1, 1 << 20, "128", "decode steps that are timed", NULL},
    {"batch", 'b', QP_OPT_U32, "N", AT(batch), 1, 4096, "1", "sequences at once", NULL},
    {"repetitions", 'r', QP_OPT_U32, "N", AT(repetitions), 1, 1000, "5", "timed runs of each kind", NULL},
    {"warmup", 0, QP_OPT_U32, "N", AT(warmup), 0, 100, "1", "runs before them that do not count", NULL},
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object", NULL},
};
static const qp_opt pack_options[] = {
    {"random-pack", 0, QP_OPT_STR, "DIR", AT(random_pack), 0, 0, NULL, "make DIR and stop; no MODEL is given then",
     NULL},
    {"shape", 0, QP_OPT_CHOICE, QP_PACK_SHAPES, AT(shape), 0, 0, "smollm2-135m", "whose sizes it has", NULL},
    {"bits", 0, QP_OPT_FLOAT, "B", AT(bits), 1, 8, "4", "bits a weight of the layers; 2.25 mixes layers of 2 and 2.5",
     NULL},
    {"head-bits", 0, QP_OPT_FLOAT, "B", AT(head_bits), 1, 8, "6", "bits a weight of lm_head", NULL},
    {"codebook", 0, QP_OPT_CHOICE, "3inst|mcg|mul1", AT(codebook), 0, 0, "mul1", "of all layers", NULL},
};
#undef AT

/* One batch under way. */
typedef struct {
    size_t n_started, n_finished, n_batch; /* sequences with a first token; that ended */
    uint64_t start_ns, all_started_ns, end_ns;
    size_t n_timed, n_wanted; /* tokens after all had started */
    bool stop;
    qp_err err;
} batch_run;

typedef struct {
    batch_run *run;
    bool started;
} sequence;

static bool on_token(void *arg, int32_t token, const float *logits)
{
    sequence *s = arg;
    batch_run *r = s->run;
    (void)token;
    (void)logits;
    if (r->n_started == r->n_batch && r->n_timed < r->n_wanted) {
        if (++r->n_timed == r->n_wanted) {
            r->end_ns = qp_clock_ns();
            r->stop = true;
        }
    }
    if (!s->started) {
        s->started = true;
        if (++r->n_started == r->n_batch) r->all_started_ns = qp_clock_ns();
    }
    return !r->stop;
}

static void on_finish(void *arg, qp_finish why, int32_t end_token, const qp_err *err)
{
    sequence *s = arg;
    (void)end_token;
    s->run->n_finished++;
    if (why == QP_FINISH_ERROR && s->run->err.status == QP_OK) s->run->err = *err;
}

typedef struct {
    qp_engine *engine;
    const bench_args *args;
    int32_t *prompts;         /* [batch, prompt_tokens] */
    sequence *seqs;           /* [batch] */
    uint64_t *ids;            /* [batch] */
    double *prefill, *decode; /* [repetitions] tokens a second */
} bench;

/* Runs the batch once: max_tokens 1 times prefill, more times n_decode steps of the whole batch after it. */
static qp_status run_once(bench *b, uint32_t max_tokens, uint32_t n_decode, double *seconds, qp_err *err)
{
    const bench_args *a = b->args;
    batch_run r = {.n_batch = a->batch, .n_wanted = (size_t)n_decode * a->batch, .start_ns = qp_clock_ns()};
    size_t n_left = a->batch;
    for (uint32_t i = 0; i < a->batch; i++) {
        b->seqs[i] = (sequence){&r, false};
        qp_request q = {.prompt = b->prompts + (size_t)i * a->prompt_tokens,
                        .n_prompt = a->prompt_tokens,
                        .max_tokens = max_tokens,
                        .ignore_eos = true,
                        .sampling = qp_sampling_default()};
        q.sampling.temperature = 0;
        q.events = (qp_request_events){.on_token = on_token, .on_finish = on_finish, .arg = &b->seqs[i]};
        qp_status st = qp_engine_submit(b->engine, &q, &b->ids[i], err);
        if (st != QP_OK) return st; /* of the first one, or the engine is freed with those that wait */
    }
    bool cancelled = false;
    while (n_left) {
        if ((r.stop || qp_term_interrupted()) && !cancelled) {
            cancelled = true;
            for (uint32_t i = 0; i < a->batch; i++) qp_engine_cancel(b->engine, b->ids[i]);
        }
        QP_TRY(qp_engine_step(b->engine, &n_left, err));
    }
    if (qp_term_interrupted()) return qp_fail(err, QP_ECANCELLED, "interrupted");
    if (r.err.status != QP_OK) return qp_fail(err, r.err.status, "%s", r.err.msg);
    if (r.n_timed < r.n_wanted || r.n_started < r.n_batch)
        return qp_fail(err, QP_EINTERNAL, "%zu of %zu sequences started, %zu of %zu tokens came", r.n_started,
                       r.n_batch, r.n_timed, r.n_wanted);
    *seconds = (double)(n_decode ? r.end_ns - r.all_started_ns : r.all_started_ns - r.start_ns) * 1e-9;
    return QP_OK;
}

/* Steps that may pass between a sequence's first token and the last one's, and so tokens that are not timed. */
static uint32_t slack(const bench_args *a, const qp_engine_opts *o)
{
    uint64_t rows = (uint64_t)a->batch * a->prompt_tokens;
    uint32_t room = o->max_num_batched_tokens > a->batch ? o->max_num_batched_tokens - a->batch : 1;
    return a->batch == 1 ? 2 : (uint32_t)(rows / room) + 2 * a->batch + 4;
}

static int compare(const void *x, const void *y)
{
    double a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    return (a > b) - (a < b);
}

typedef struct {
    double median, low, high;
} spread;

static spread spread_of(double *v, size_t n)
{
    qsort(v, n, sizeof *v, compare);
    return (spread){n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v[0], v[n - 1]};
}

static qp_status measure(bench *b, uint32_t max_tokens, qp_err *err)
{
    const bench_args *a = b->args;
    qp_progress progress;
    uint32_t n = a->warmup + a->repetitions;
    qp_progress_start(&progress, "measuring", "runs", n);
    for (uint32_t i = 0; i < n; i++) {
        double prefill, decode;
        QP_TRY(run_once(b, 1, 0, &prefill, err));
        QP_TRY(run_once(b, max_tokens, a->decode_tokens, &decode, err));
        qp_progress_update(&progress, i + 1);
        if (i < a->warmup) continue;
        b->prefill[i - a->warmup] = (double)a->batch * a->prompt_tokens / prefill;
        b->decode[i - a->warmup] = (double)a->batch * a->decode_tokens / decode;
    }
    qp_progress_end(&progress, n);
    return QP_OK;
}

static qp_status print_result(const bench *b, const char *dir, qp_err *err)
{
    const bench_args *a = b->args;
    const qp_engine_opts *o = qp_engine_get_opts(b->engine);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    spread p = spread_of(b->prefill, a->repetitions), d = spread_of(b->decode, a->repetitions);
    if (!a->json) {
        qp_out_printf("%s: %s kernels, %u threads, batch %u, %u repetitions (median, lowest to highest)\n", dir,
                      qp_engine_cpu_level(b->engine), o->n_threads, a->batch, a->repetitions);
        qp_out_printf("prefill %6u tokens  %10.1f tokens/s  (%.1f to %.1f)\n", a->prompt_tokens, p.median, p.low,
                      p.high);
        qp_out_printf("decode  %6u tokens  %10.1f tokens/s  (%.1f to %.1f)\n", a->decode_tokens, d.median, d.low,
                      d.high);
        qp_out_printf("peak resident memory %ld MB\n", usage.ru_maxrss / 1000);
        return QP_OK;
    }
    return qp_out_json(
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f}}", "name",
                  "model", "model", dir, "level", qp_engine_cpu_level(b->engine), "threads", (json_int_t)o->n_threads,
                  "batch", (json_int_t)a->batch, "prompt_tokens", (json_int_t)a->prompt_tokens, "decode_tokens",
                  (json_int_t)a->decode_tokens, "max_num_batched_tokens", (json_int_t)o->max_num_batched_tokens,
                  "repetitions", (json_int_t)a->repetitions, "peak_rss_kib", (json_int_t)usage.ru_maxrss,
                  "prefill_tokens_per_second", "median", p.median, "min", p.low, "max", p.high,
                  "decode_tokens_per_second", "median", d.median, "min", d.low, "max", d.high),
        JSON_COMPACT, err);
}

static qp_status run(const char *dir, const bench_args *a, qp_err *err)
{
    qp_loaded l = {0};
    bench b = {.args = a};
    qp_engine_opts opts;
    qp_status st;
    qp_rng r = {1};
    qp_json_init();
    QP_TRY_OUT(qp_load_model(&l, dir, &a->engine, false, err));
    uint32_t vocab = qp_model_get_info(l.model)->vocab;
    size_t n_prompt = (size_t)a->batch * a->prompt_tokens;
    qp_engine_args engine = a->engine;
    if (!engine.max_num_seqs) engine.max_num_seqs = a->batch;
    qp_need need = {a->batch, (size_t)a->prompt_tokens + 1, n_prompt, false};
    QP_TRY_OUT(qp_load_engine_opts(l.model, &engine, &need, &opts, err));
    uint32_t max_tokens = a->decode_tokens + slack(a, &opts);
    need.n_tokens = (size_t)a->prompt_tokens + max_tokens;
    QP_TRY_OUT(qp_load_engine(&l, &engine, &need, err));
    b.engine = l.engine;
    QP_TRY_OUT(qp_new(&b.prompts, n_prompt, sizeof *b.prompts, "prompts", err));
    QP_TRY_OUT(qp_new(&b.seqs, a->batch, sizeof *b.seqs, "sequences", err));
    QP_TRY_OUT(qp_new(&b.ids, a->batch, sizeof *b.ids, "sequences", err));
    QP_TRY_OUT(qp_new(&b.prefill, a->repetitions, sizeof *b.prefill, "results", err));
    QP_TRY_OUT(qp_new(&b.decode, a->repetitions, sizeof *b.decode, "results", err));
    for (size_t i = 0; i < n_prompt; i++) b.prompts[i] = (int32_t)(qp_rng_u64(&r) % vocab);
    QP_TRY_OUT(measure(&b, max_tokens, err));
    QP_TRY_OUT(print_result(&b, dir, err));
out:
    /* The engine first: after a failure, requests in it still point at the sequences. */
    qp_loaded_close(&l);
    qp_free(b.prompts);
    qp_free(b.seqs);
    qp_free(b.ids);
    qp_free(b.prefill);
    qp_free(b.decode);
    return st;
}

int qp_bench_model(int argc, char **argv)
{
    bench_args args = {0};
    const qp_opt_group groups[] = {{"bench options", options, sizeof options / sizeof options[0], &args},
                                   {"random packs", pack_options, sizeof pack_options / sizeof pack_options[0], &args},
                                   qp_engine_group(&args.engine)};
    const qp_usage usage = {
        .command = "bench model",
        .arguments = "(MODEL | --random-pack DIR) [options]",
        .summary = "prefill and decode speed of a whole model",
        .description = "A random pack has the tensors of the shape it is named after, with random EXL3 codes: as fast "
                       "and as large as the real thing, but it says nothing.",
        .examples = "  quantpack bench model models/mine --prompt-tokens 512 --decode-tokens 128 --threads 2\n"
                    "  quantpack bench model models/mine --batch 8 --json\n"
                    "  quantpack bench model --random-pack packs/8b --shape qwen3-8b --bits 4 --head-bits 6\n",
        .min_positional = 0,
        .max_positional = 1,
        .groups = groups,
        .n_groups = 3,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!pos[0] == !args.random_pack) return qp_usage_error("bench model", "wanted either MODEL or --random-pack DIR");
    for (size_t g = 0; g < usage.n_groups; g++) {
        bool of_pack = groups[g].opts == pack_options;
        for (size_t i = 0; i < groups[g].n_opts && of_pack == !args.random_pack; i++)
            if (qp_option_given(&usage, argc, argv, groups[g].opts[i].name))
                return qp_usage_error("bench model", "--%s %s --random-pack", groups[g].opts[i].name,
                                      of_pack ? "goes with" : "does not go with");
    }
    qp_err err = {0};
    qp_status st;
    if (args.random_pack) {
        static const qp_exl3_codebook codebooks[] = {QP_EXL3_3INST, QP_EXL3_MCG, QP_EXL3_MUL1};
        qp_pack_opts opts = {(enum qp_pack_shape)args.shape, args.bits, args.head_bits, codebooks[args.codebook]};
        st = qp_random_pack_write(args.random_pack, &opts, &err);
    } else {
        st = run(pos[0], &args, &err);
    }
    return st == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
