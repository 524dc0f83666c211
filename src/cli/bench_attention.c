/* quantpack bench attention: one layer's attention over a paged cache, as a step runs it: a part is one kv head and up
 * to 16 queries. Samples rotate over caches of 1 GiB in all, filled in turn, so that a decode step finds its keys in
 * memory, not in a cache that another layer would have emptied.
 *
 * The limit of a case is the longer of reading each visible key and value once at the measured bandwidth and of its
 * multiply-adds at the measured fp32 peak. */
#include "cli/bench_attention.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cli/bench_memory.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/term.h"
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES_A_PART = 16, MAX_CASES = 64 };

typedef struct {
    const char *contexts, *queries;
    uint32_t q_heads, kv_heads, head_dim, page_size, window, threads, samples, megabytes;
    int dtype;
    bool json;
} attention_args;

#define AT(field) offsetof(attention_args, field)
static const qp_opt options[] = {
    {"q-heads", 0, QP_OPT_U32, "N", AT(q_heads), 1, 1024, "32", "query heads", NULL},
    {"kv-heads", 0, QP_OPT_U32, "N", AT(kv_heads), 1, 1024, "8", "key and value heads, a divisor of them", NULL},
    {"head-dim", 0, QP_OPT_U32, "N", AT(head_dim), 8, 512, "128", "a multiple of 8", NULL},
    {"contexts", 'c', QP_OPT_STR, "N,N,..", AT(contexts), 0, 0, "1024,8192,32768", "keys, the queries' own included",
     NULL},
    {"queries", 0, QP_OPT_STR, "N,N,..", AT(queries), 0, 0, "1,256", "new tokens: 1 is a decode step, more a prefill",
     NULL},
    {"kv-cache-dtype", 0, QP_OPT_CHOICE, "fp32|fp16|bf16", AT(dtype), 0, 0, "bf16", "type of the cache",
     "fp8|int4_per_token_head|nvfp4"},
    {"page-size", 0, QP_OPT_U32, "N", AT(page_size), 1, 65536, "64", "tokens a page", NULL},
    {"window", 0, QP_OPT_U32, "N", AT(window), 0, 1 << 30, "0", "sliding window; 0: all keys", NULL},
    {"threads", 't', QP_OPT_U32, "N", AT(threads), 0, 4096, "0", "threads; 0: as many as processors", NULL},
    {"samples", 's', QP_OPT_U32, "N", AT(samples), 1, 10000, "31", "timed runs of each case", NULL},
    {"megabytes", 0, QP_OPT_U32, "N", AT(megabytes), 1, 1 << 20, "1024",
     "MiB that the caches of a case take in all, and that are read to find the limit", NULL},
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object a line", NULL},
};
#undef AT

typedef struct {
    const attention_args *a;
    const qp_cpu_kernels *k;
    qp_pool *pool;
    double read_gbps, fma_gflops;
    uint32_t context, queries; /* of the current case */
    float *q, *out;
    unsigned char *scratch;
    size_t scratch_bytes, page_bytes, n_pages, cache_bytes, n_caches;
    int32_t *ids;
    unsigned char *cache;     /* [n_caches, n_pages, kv_heads, 2, page_size, head_dim] */
    const unsigned char *now; /* the one of this sample */
} bench;

static const char *const dtype_names[] = {"fp32", "fp16", "bf16"};

static size_t n_chunks(const bench *b)
{
    return (b->queries + QUERIES_A_PART - 1) / QUERIES_A_PART;
}

static void run_part(void *arg, size_t part, unsigned worker)
{
    const bench *b = arg;
    const attention_args *a = b->a;
    const size_t head = part / n_chunks(b), t0 = part % n_chunks(b) * QUERIES_A_PART;
    const size_t n_group = a->q_heads / a->kv_heads, ld = (size_t)a->q_heads * a->head_dim;
    const size_t half = (size_t)a->page_size * a->head_dim * qp_wtype_bytes((qp_wtype)a->dtype);
    const qp_attn_args args = {
        .q = b->q + t0 * ld + head * n_group * a->head_dim,
        .ldq = ld,
        .out = b->out + t0 * ld + head * n_group * a->head_dim,
        .ldo = ld,
        .n_q = b->queries - t0 < QUERIES_A_PART ? b->queries - (uint32_t)t0 : QUERIES_A_PART,
        .n_group = (uint32_t)n_group,
        .head_dim = a->head_dim,
        .pos0 = b->context - b->queries + (uint32_t)t0,
        .window = a->window,
        .scale = 1 / sqrtf((float)a->head_dim),
        .kv_base = b->now,
        .page_ids = b->ids,
        .page_bytes = b->page_bytes,
        .k_offset = 2 * head * half,
        .v_offset = (2 * head + 1) * half,
        .page_size = a->page_size,
        .kv_type = (qp_wtype)a->dtype,
    };
    b->k->attention(&args, b->scratch + worker * b->scratch_bytes);
}

/* Keys that the queries see, each counted for each query, and those that any sees. */
static double visible(const bench *b, double *n_keys)
{
    const uint32_t w = b->a->window, first = b->context - b->queries + 1;
    double sum = 0;
    for (uint32_t n = first; n <= b->context; n++) sum += w && n > w ? w : n;
    *n_keys = w && first > w ? (double)w + b->queries - 1 : b->context;
    return sum;
}

static void fill_cache(bench *b)
{
    const attention_args *a = b->a;
    const size_t n = b->cache_bytes / qp_wtype_bytes((qp_wtype)a->dtype);
    qp_rng r = {1};
    for (size_t i = 0; i < n; i++) {
        const float v = (float)qp_rng_unit(&r) - 0.5f;
        b->k->from_f32(b->cache + i * qp_wtype_bytes((qp_wtype)a->dtype), (qp_wtype)a->dtype, &v, 1);
    }
    for (size_t i = 1; i < b->n_caches; i++) memcpy(b->cache + i * b->cache_bytes, b->cache, b->cache_bytes);
    for (size_t i = 0; i < b->n_pages; i++) b->ids[i] = (int32_t)i;
    for (size_t i = b->n_pages; i-- > 1;) {
        const size_t j = qp_rng_u64(&r) % (i + 1);
        const int32_t t = b->ids[i];
        b->ids[i] = b->ids[j];
        b->ids[j] = t;
    }
}

static qp_status case_new(bench *b, qp_err *err)
{
    const attention_args *a = b->a;
    const size_t n_q = (size_t)b->queries * a->q_heads * a->head_dim, budget = (size_t)a->megabytes << 20;
    const char *what = "a cache of this size (lower --contexts or --kv-heads)";
    b->page_bytes = (size_t)a->page_size * 2 * a->kv_heads * a->head_dim * qp_wtype_bytes((qp_wtype)a->dtype);
    b->n_pages = (b->context + a->page_size - 1) / a->page_size;
    if (!qp_mul_ok(b->page_bytes, b->n_pages, &b->cache_bytes))
        return qp_fail(err, QP_ELIMIT, "a context of %u keys does not fit this machine's addresses", b->context);
    b->n_caches = b->cache_bytes >= budget ? 1 : budget / b->cache_bytes;
    b->scratch_bytes = b->k->attention_scratch_bytes(QUERIES_A_PART, a->q_heads / a->kv_heads, a->head_dim);
    b->scratch_bytes = (b->scratch_bytes + 63) / 64 * 64;
    QP_TRY(qp_new(&b->cache, b->n_caches, b->cache_bytes, what, err));
    QP_TRY(qp_new(&b->ids, b->n_pages, sizeof *b->ids, "page table", err));
    QP_TRY(qp_new(&b->q, n_q, sizeof *b->q, "queries", err));
    QP_TRY(qp_new(&b->out, n_q, sizeof *b->out, "results", err));
    QP_TRY(qp_new(&b->scratch, qp_pool_n_threads(b->pool), b->scratch_bytes, "scratch", err));
    qp_rng r = {2};
    for (size_t i = 0; i < n_q; i++) b->q[i] = (float)qp_rng_unit(&r) - 0.5f;
    fill_cache(b);
    return QP_OK;
}

static void case_free(bench *b)
{
    qp_free(b->cache);
    qp_free(b->ids);
    qp_free(b->q);
    qp_free(b->out);
    qp_free(b->scratch);
    b->cache = b->scratch = NULL;
    b->ids = NULL;
    b->q = b->out = NULL;
}

static qp_status print_case(const bench *b, double *us, qp_err *err)
{
    const attention_args *a = b->a;
    double n_keys;
    const double flops = 4.0 * visible(b, &n_keys) * a->q_heads * a->head_dim;
    const double bytes = 2.0 * n_keys * a->kv_heads * a->head_dim * (double)qp_wtype_bytes((qp_wtype)a->dtype);
    const double least_us = fmax(bytes / b->read_gbps, flops / b->fma_gflops) * 1e-3;
    const qp_bench_spread s = qp_bench_spread_of(us, a->samples);
    const double gflops = flops / s.median * 1e-3, gbps = bytes / s.median * 1e-3;
    if (!a->json) {
        qp_out_printf("%8u  %7u  %10.1f  %10.1f  %10.1f  %8.1f  %7.1f  %5.2f\n", b->context, b->queries, s.median,
                      s.p10, s.p90, gflops, gbps, least_us / s.median);
        qp_out_flush();
        return QP_OK;
    }
    const qp_status st = qp_out_json(
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "name",
                  "attention", "level", b->k->name, "threads", (json_int_t)qp_pool_n_threads(b->pool), "q_heads",
                  (json_int_t)a->q_heads, "kv_heads", (json_int_t)a->kv_heads, "head_dim", (json_int_t)a->head_dim,
                  "context", (json_int_t)b->context, "queries", (json_int_t)b->queries, "kv_cache_dtype",
                  dtype_names[a->dtype], "page_size", (json_int_t)a->page_size, "window", (json_int_t)a->window,
                  "samples", (json_int_t)a->samples, "us_median", s.median, "us_p10", s.p10, "us_p90", s.p90, "gflops",
                  gflops, "gbps", gbps, "share_of_limit", least_us / s.median),
        JSON_COMPACT, err);
    qp_out_flush();
    return st;
}

static qp_status run_case(bench *b, qp_err *err)
{
    const size_t n_parts = b->a->kv_heads * n_chunks(b);
    double *us = NULL;
    qp_status st;
    QP_TRY_OUT(case_new(b, err));
    QP_TRY_OUT(qp_new(&us, b->a->samples, sizeof *us, "samples", err));
    for (uint32_t i = 0; i <= b->a->samples; i++) { /* the first does not count */
        if (qp_term_interrupted()) {
            st = qp_fail(err, QP_ECANCELLED, "interrupted");
            goto out;
        }
        b->now = b->cache + i % b->n_caches * b->cache_bytes;
        const uint64_t start = qp_clock_ns();
        qp_pool_run(b->pool, run_part, b, n_parts);
        if (i) us[i - 1] = (double)(qp_clock_ns() - start) * 1e-3;
    }
    QP_TRY_OUT(print_case(b, us, err));
out:
    case_free(b);
    qp_free(us);
    return st;
}

/* Comma-separated whole numbers of 1 and more. */
static bool read_list(const char *text, uint32_t *list, size_t *n)
{
    char item[24];
    *n = 0;
    for (;;) {
        const size_t len = strcspn(text, ",");
        uint64_t v;
        if (len == 0 || len >= sizeof item || *n == MAX_CASES) return false;
        memcpy(item, text, len);
        item[len] = 0;
        if (!qp_parse_u64(item, 1, 1u << 30, &v)) return false;
        list[(*n)++] = (uint32_t)v;
        if (!text[len]) return true;
        text += len + 1;
    }
}

static qp_status run_all(bench *b, const uint32_t *contexts, size_t n_contexts, const uint32_t *queries,
                         size_t n_queries, qp_err *err)
{
    const attention_args *a = b->a;
    qp_cpu_features have;
    qp_cpu_features_read(&have);
    QP_TRY(qp_cpu_kernels_select(&b->k, &have, getenv("QP_CPU"), err));
    QP_TRY(qp_pool_new(&b->pool, a->threads ? a->threads : qp_cpu_count(), err));
    b->read_gbps = qp_bench_read_gbps(qp_pool_n_threads(b->pool), (size_t)a->megabytes << 20);
    b->fma_gflops = qp_bench_fma_gflops(qp_pool_n_threads(b->pool));
    if (!(b->read_gbps > 0 && b->fma_gflops > 0))
        return qp_fail(err, QP_ENOMEM, "no %u MiB to measure the read bandwidth (lower --megabytes)", a->megabytes);
    if (a->json)
        QP_TRY(qp_out_json(json_pack("{s:s, s:I, s:f, s:f}", "name", "limits", "threads",
                                     (json_int_t)qp_pool_n_threads(b->pool), "read_gbps", b->read_gbps, "fma_gflops",
                                     b->fma_gflops),
                           JSON_COMPACT, err));
    else
        qp_out_printf("attention: %u query heads, %u kv heads of %u, %s cache, pages of %u, window %u; %s, %u threads\n"
                      "limits measured: %.1f GB/s, %.1f GFLOP/s fp32\n\n"
                      " context  queries   median us         p10         p90   GFLOP/s     GB/s  share of limit\n",
                      a->q_heads, a->kv_heads, a->head_dim, dtype_names[a->dtype], a->page_size, a->window, b->k->name,
                      qp_pool_n_threads(b->pool), b->read_gbps, b->fma_gflops);
    for (size_t c = 0; c < n_contexts; c++) {
        for (size_t q = 0; q < n_queries; q++) {
            b->context = contexts[c];
            b->queries = queries[q] < contexts[c] ? queries[q] : contexts[c];
            QP_TRY(run_case(b, err));
        }
    }
    return QP_OK;
}

int qp_bench_attention(int argc, char **argv)
{
    attention_args args = {0};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args}};
    const qp_usage usage = {
        .command = "bench attention",
        .arguments = "[options]",
        .summary = "attention of one layer over a paged cache",
        .description = "Every context is run with every number of queries (at most the context).",
        .examples =
            "  quantpack bench attention\n"
            "  quantpack bench attention --q-heads 9 --kv-heads 3 --head-dim 64 --contexts 512 --queries 1,512\n",
        .groups = groups,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    uint32_t contexts[MAX_CASES], queries[MAX_CASES];
    size_t n_contexts, n_queries;
    int code;
    qp_err err = {0};
    bench b = {.a = &args};
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (args.q_heads % args.kv_heads)
        return qp_usage_error("bench attention", "--q-heads %u is not a multiple of --kv-heads %u", args.q_heads,
                              args.kv_heads);
    if (args.head_dim % 8)
        return qp_usage_error("bench attention", "--head-dim %u is not a multiple of 8", args.head_dim);
    if (!read_list(args.contexts, contexts, &n_contexts))
        return qp_usage_error("bench attention", "--contexts %s: wanted up to 64 numbers from 1 on, with commas",
                              args.contexts);
    if (!read_list(args.queries, queries, &n_queries))
        return qp_usage_error("bench attention", "--queries %s: wanted up to 64 numbers from 1 on, with commas",
                              args.queries);
    const qp_status st = run_all(&b, contexts, n_contexts, queries, n_queries, &err);
    qp_pool_free(b.pool);
    return st == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
