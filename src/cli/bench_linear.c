/* quantpack bench linear: EXL3 products (exl3_mul_i16, exl3_mul_f32) on random codes, split over threads by tile
 * columns as a step splits them. Rotations and quantization of the few activations are not in the time.
 *
 * Samples rotate over copies of the matrix that take --megabytes in all, so weights come from memory as in a model that
 * is larger than the caches; --warm uses one copy. Where the share of the read bandwidth is high the product is bound
 * by memory. The instruction limit counts the vector instructions that every 32 weights need on the two 512-bit ports
 * of current processors, at the clock that a chain of multiplications runs at in the same run: it is a bound from
 * below, a processor may run slower under vector load. */
#include "cli/bench_linear.h"

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

#include <stdlib.h>
#include <string.h>

enum { MAX_CASES = 32, SCRATCH_ALIGN = 64 };

typedef struct {
    const char *shapes, *bits, *rows, *level;
    uint32_t threads, samples, megabytes, chunk;
    int arith, codebook;
    bool warm, json;
} linear_args;

#define AT(field) offsetof(linear_args, field)
static const qp_opt options[] = {
    {"shapes", 0, QP_OPT_STR, "INxOUT,..", AT(shapes), 0, 0, "4096x4096", "widths, multiples of 128", NULL},
    {"bits", 'b', QP_OPT_STR, "K,K,..", AT(bits), 0, 0, "2,3,4,6", "1 to 8, 1.5, 2.5 and 3.5", NULL},
    {"rows", 0, QP_OPT_STR, "N,N,..", AT(rows), 0, 0, "1,2,4,16,64", "tokens at once", NULL},
    {"arith", 0, QP_OPT_CHOICE, "i16|f32|both", AT(arith), 0, 0, "i16", "how products are taken", NULL},
    {"codebook", 0, QP_OPT_CHOICE, "3inst|mcg|mul1", AT(codebook), 0, 0, "mul1", "i16 and half rates: mul1 alone",
     NULL},
    {"level", 0, QP_OPT_STR, "NAME", AT(level), 0, 0, NULL,
     "ref, avx2, avx512, vnni or amx; else QP_CPU, else the best", NULL},
    {"threads", 't', QP_OPT_U32, "N", AT(threads), 0, 4096, "0", "threads; 0: as many as processors", NULL},
    {"chunk", 0, QP_OPT_U32, "N", AT(chunk), 0, 1 << 20, "0",
     "tile columns a part; 0: two parts a thread, 16 columns at least", NULL},
    {"samples", 's', QP_OPT_U32, "N", AT(samples), 30, 10000, "31", "timed runs of each case", NULL},
    {"megabytes", 0, QP_OPT_U32, "N", AT(megabytes), 1, 1 << 20, "1024",
     "MiB that the copies of a matrix take in all, and that are read to find the limit", NULL},
    {"warm", 0, QP_OPT_FLAG, NULL, AT(warm), 0, 0, NULL, "one copy, which stays in the caches if it fits", NULL},
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object a line", NULL},
};
#undef AT

typedef struct {
    uint32_t n_in, n_out;
} shape;

typedef struct {
    const linear_args *a;
    const qp_cpu_kernels *k;
    qp_pool *pool;
    double read_gbps, ghz;
    qp_exl3 t; /* of the current case; trellis: the copy of this sample */
    qp_exl3_arith arith;
    size_t n_rows, max_rows, chunk, matrix_bytes, n_copies, scratch_bytes, codes_bytes;
    uint16_t *codes; /* [n_copies, matrix] */
    float *x, *y, *scale;
    int16_t *xq;
    int64_t *sum;
    unsigned char *scratch; /* [n_threads, scratch_bytes] */
} bench;

static void run_part(void *arg, size_t part, unsigned worker)
{
    const bench *b = arg;
    const size_t n = b->t.n_out / 16, tile0 = part * b->chunk, tile1 = qp_min_size(tile0 + b->chunk, n);
    void *scratch = b->scratch + worker * b->scratch_bytes;
    if (b->arith == QP_EXL3_I16)
        b->k->exl3_mul_i16(b->y, b->t.n_out, &b->t, tile0, tile1, b->xq, b->t.n_in, b->scale, b->sum, b->n_rows,
                           scratch);
    else
        b->k->exl3_mul_f32(b->y, b->t.n_out, &b->t, tile0, tile1, b->x, b->t.n_in, b->n_rows, scratch);
}

/* Clock by a chain of 64-bit multiplications, three cycles each on every x86-64 processor of the last ten years; the
 * best of some short runs. 0 elsewhere. */
static double clock_ghz(void)
{
#if defined(__x86_64__)
    double best = 0;
    for (int i = 0; i < 40; i++) {
        volatile uint64_t seed = 3, factor = 0x9E3779B97F4A7C15u;
        uint64_t x = seed;
        const uint64_t f = factor;
        const uint64_t start = qp_clock_ns();
        for (int j = 0; j < 100000; j++) x *= f;
        seed = x;
        const double ghz = 3e5 / (double)(qp_clock_ns() - start);
        best = ghz > best ? ghz : best;
    }
    return best;
#else
    return 0;
#endif
}

/* Vector instructions for 32 weights of n_rows rows over the two ports they share, in cycles; 0: not counted. The
 * integer path of the AVX-512 levels: cutting the states, 4 for the product of state and multiplier, 3 for its byte
 * sum; then 1 (vnni) or 2 a row; panels add 1 for the centre and 3 for the transposition. */
static double limit_cycles(const bench *b)
{
    const bool vnni = strcmp(b->k->name, "vnni") == 0;
    if (b->arith != QP_EXL3_I16 || (!vnni && strcmp(b->k->name, "avx512") != 0)) return 0;
    const double states = !vnni ? 5 : b->t.n_words > 112 ? 1 : b->t.n_words > 96 ? 2 : 1.5, row = vnni ? 1 : 2;
    const double n = (double)b->n_rows;
    return (states + 7 + (b->n_rows > 4 ? 4 : 0) + row * n) / 2;
}

static void fill_codes(bench *b)
{
    qp_rng r = {1};
    const size_t n = b->codes_bytes / 8;
    for (size_t i = 0; i < n; i++) {
        const uint64_t v = qp_rng_u64(&r);
        memcpy((unsigned char *)b->codes + 8 * i, &v, sizeof v);
    }
}

/* Storage for the largest of all cases. */
static qp_status storage_new(bench *b, const shape *shapes, size_t n_shapes, const uint32_t *words, size_t n_words,
                             qp_err *err)
{
    size_t in = 0, out = 0, largest = 0;
    for (size_t s = 0; s < n_shapes; s++) {
        in = qp_max_size(in, shapes[s].n_in);
        out = qp_max_size(out, shapes[s].n_out);
        for (size_t w = 0; w < n_words; w++)
            largest = qp_max_size(largest, (size_t)shapes[s].n_in * shapes[s].n_out / 256 * words[w] * 2);
    }
    b->codes_bytes = b->a->warm ? largest : qp_max_size(largest, (size_t)b->a->megabytes << 20);
    b->scratch_bytes = qp_round_up(b->k->exl3_scratch_bytes(in), SCRATCH_ALIGN);
    QP_TRY(qp_new(&b->codes, b->codes_bytes, 1, "weights (lower --megabytes or --shapes)", err));
    QP_TRY(qp_new(&b->x, b->max_rows * in, sizeof *b->x, "activations", err));
    QP_TRY(qp_new(&b->xq, b->max_rows * in, sizeof *b->xq, "activations", err));
    QP_TRY(qp_new(&b->y, b->max_rows * out, sizeof *b->y, "results", err));
    QP_TRY(qp_new(&b->scale, b->max_rows, sizeof *b->scale, "scales", err));
    QP_TRY(qp_new(&b->sum, b->max_rows, sizeof *b->sum, "sums", err));
    QP_TRY(qp_new(&b->scratch, qp_pool_n_threads(b->pool), b->scratch_bytes, "scratch", err));
    fill_codes(b);
    return QP_OK;
}

static void storage_free(bench *b)
{
    qp_free(b->codes);
    qp_free(b->x);
    qp_free(b->xq);
    qp_free(b->y);
    qp_free(b->scale);
    qp_free(b->sum);
    qp_free(b->scratch);
    qp_pool_free(b->pool);
}

static void case_set(bench *b, shape s, uint32_t n_words, size_t n_rows, qp_exl3_arith arith)
{
    const size_t n_tiles = s.n_out / 16, n_threads = qp_pool_n_threads(b->pool);
    b->t = (qp_exl3){.n_in = s.n_in,
                     .n_out = s.n_out,
                     .n_in_true = s.n_in,
                     .n_out_true = s.n_out,
                     .n_words = n_words,
                     .codebook = (qp_exl3_codebook)b->a->codebook};
    b->arith = arith;
    b->n_rows = n_rows;
    b->chunk = b->a->chunk ? b->a->chunk : qp_max_size(16, qp_div_up(n_tiles, 2 * n_threads));
    b->matrix_bytes = (size_t)s.n_in * s.n_out / 256 * n_words * 2;
    b->n_copies = b->a->warm ? 1 : qp_max_size(1, b->codes_bytes / b->matrix_bytes);
    qp_rng r = {2};
    for (size_t i = 0; i < n_rows * s.n_in; i++) b->x[i] = qp_rng_normal(&r);
    for (size_t m = 0; m < n_rows; m++)
        b->k->exl3_quantize(b->xq + m * s.n_in, &b->scale[m], &b->sum[m], b->x + m * s.n_in, s.n_in);
}

static qp_status print_case(const bench *b, double *us, qp_err *err)
{
    const linear_args *a = b->a;
    const qp_bench_spread s = qp_bench_spread_of(us, a->samples);
    const double weights = (double)b->t.n_in * b->t.n_out, n_threads = qp_pool_n_threads(b->pool);
    const double gws = weights / s.median * 1e-3, gbps = (double)b->matrix_bytes / s.median * 1e-3;
    const double cycles = s.median * 1e3 * b->ghz * n_threads / (weights / 32), limit = limit_cycles(b);
    const double of_read = a->warm ? 0 : gbps / b->read_gbps, of_limit = cycles > 0 ? limit / cycles : 0;
    const char *arith = b->arith == QP_EXL3_I16 ? "i16" : "f32";
    if (!a->json) {
        qp_out_printf("%6ux%-6u  %4.1f  %3s  %4zu  %9.1f  %9.1f  %9.1f  %8.2f  %8.2f  %6.1f  %5.2f  %8.2f  %5.2f\n",
                      b->t.n_in, b->t.n_out, b->t.n_words / 16.0, arith, b->n_rows, s.median, s.p10, s.p90, gws,
                      gws * (double)b->n_rows, gbps, of_read, cycles, of_limit);
        qp_out_flush();
        return QP_OK;
    }
    json_t *v =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:s, s:I, s:I, s:b, s:I}", "name", "linear", "level", b->k->name,
                  "threads", (json_int_t)n_threads, "n_in", (json_int_t)b->t.n_in, "n_out", (json_int_t)b->t.n_out,
                  "bits", b->t.n_words / 16.0, "arith", arith, "rows", (json_int_t)b->n_rows, "chunk",
                  (json_int_t)b->chunk, "warm", (int)a->warm, "samples", (json_int_t)a->samples);
    json_t *w = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "us_median", s.median, "us_p10", s.p10, "us_p90",
                          s.p90, "gweights_per_s", gws, "gbps", gbps, "share_of_read", of_read, "cycles_per_32", cycles,
                          "share_of_instruction_limit", of_limit);
    const bool ok = v && w && json_object_update(v, w) == 0;
    json_decref(w);
    if (!ok) {
        json_decref(v);
        return qp_fail(err, QP_ENOMEM, "no memory for a line of results");
    }
    const qp_status st = qp_out_json(v, JSON_COMPACT, err);
    qp_out_flush();
    return st;
}

static qp_status run_case(bench *b, double *us, qp_err *err)
{
    const size_t n_parts = qp_div_up(b->t.n_out / 16, b->chunk);
    for (uint32_t i = 0; i <= b->a->samples; i++) { /* the first does not count */
        if (qp_term_interrupted()) return qp_fail(err, QP_ECANCELLED, "interrupted");
        b->t.trellis = b->codes + i % b->n_copies * (b->matrix_bytes / 2);
        const uint64_t start = qp_clock_ns();
        qp_pool_run(b->pool, run_part, b, n_parts);
        if (i) us[i - 1] = (double)(qp_clock_ns() - start) * 1e-3;
    }
    return print_case(b, us, err);
}

typedef struct {
    shape shapes[MAX_CASES];
    uint32_t words[MAX_CASES], rows[MAX_CASES];
    size_t n_shapes, n_words, n_rows;
} cases;

static qp_status print_head(const bench *b, qp_err *err)
{
    const linear_args *a = b->a;
    if (a->json)
        return qp_out_json(json_pack("{s:s, s:I, s:f, s:f}", "name", "limits", "threads",
                                     (json_int_t)qp_pool_n_threads(b->pool), "read_gbps", b->read_gbps, "clock_ghz",
                                     b->ghz),
                           JSON_COMPACT, err);
    qp_out_printf("EXL3 linear: %s, %u threads, %s weights; limits measured: %.1f GB/s, %.2f GHz\n\n"
                  "       shape  bits       rows  median us        p10        p90   Gweight/s  x rows    GB/s  of read"
                  "  cycles/32  of limit\n",
                  b->k->name, qp_pool_n_threads(b->pool), a->warm ? "warm" : "cold", b->read_gbps, b->ghz);
    return QP_OK;
}

static qp_status run_all(bench *b, const cases *c, qp_err *err)
{
    const linear_args *a = b->a;
    qp_cpu_features have;
    double *us = NULL;
    qp_status st;
    qp_cpu_features_read(&have);
    QP_TRY_OUT(qp_cpu_kernels_select(&b->k, &have, a->level ? a->level : getenv("QP_CPU"), err));
    QP_TRY_OUT(qp_pool_new(&b->pool, a->threads ? a->threads : qp_cpu_count(), err));
    b->read_gbps = qp_bench_read_gbps(qp_pool_n_threads(b->pool), (size_t)a->megabytes << 20);
    b->ghz = clock_ghz();
    if (!(b->read_gbps > 0)) {
        st = qp_fail(err, QP_ENOMEM, "no %u MiB to measure the read bandwidth (lower --megabytes)", a->megabytes);
        goto out;
    }
    for (size_t i = 0; i < c->n_rows; i++) b->max_rows = qp_max_size(b->max_rows, c->rows[i]);
    QP_TRY_OUT(qp_new(&us, a->samples, sizeof *us, "samples", err));
    QP_TRY_OUT(storage_new(b, c->shapes, c->n_shapes, c->words, c->n_words, err));
    QP_TRY_OUT(print_head(b, err));
    for (size_t s = 0; s < c->n_shapes; s++)
        for (size_t w = 0; w < c->n_words; w++)
            for (int f = 0; f < 2; f++) { /* i16, then f32 */
                if (a->arith != 2 && a->arith != f) continue;
                for (size_t r = 0; r < c->n_rows; r++) {
                    case_set(b, c->shapes[s], c->words[w], c->rows[r], f ? QP_EXL3_F32 : QP_EXL3_I16);
                    QP_TRY_OUT(run_case(b, us, err));
                }
            }
    st = QP_OK;
out:
    storage_free(b);
    qp_free(us);
    return st;
}

/* The next item of a list with commas in item[cap]; advances *text; false at a bad item. *last: none follows. */
static bool next_item(const char **text, char *item, size_t cap, bool *last)
{
    const size_t len = strcspn(*text, ",");
    if (len == 0 || len >= cap) return false;
    memcpy(item, *text, len);
    item[len] = 0;
    *last = !(*text)[len];
    *text += len + !*last;
    return true;
}

static bool read_shapes(const char *text, shape *list, size_t *n)
{
    char item[32];
    bool last = false;
    for (*n = 0; !last; (*n)++) {
        uint64_t in, out;
        if (*n == MAX_CASES || !next_item(&text, item, sizeof item, &last)) return false;
        char *x = strchr(item, 'x');
        if (!x) return false;
        *x = 0;
        if (!qp_parse_u64(item, 128, 1 << 20, &in) || !qp_parse_u64(x + 1, 128, 1 << 20, &out)) return false;
        if (in % 128 || out % 128) return false;
        list[*n] = (shape){(uint32_t)in, (uint32_t)out};
    }
    return true;
}

static bool read_bits(const char *text, uint32_t *list, size_t *n)
{
    char item[16];
    bool last = false;
    for (*n = 0; !last; (*n)++) {
        double k;
        if (*n == MAX_CASES || !next_item(&text, item, sizeof item, &last)) return false;
        if (!qp_parse_f64(item, 1, 8, &k)) return false;
        const uint32_t k2 = (uint32_t)(k * 2);
        if ((double)k2 != k * 2 || (k2 % 2 && k2 > 7)) return false;
        list[*n] = 8 * k2;
    }
    return true;
}

static bool read_rows(const char *text, uint32_t *list, size_t *n)
{
    char item[16];
    bool last = false;
    for (*n = 0; !last; (*n)++) {
        uint64_t v;
        if (*n == MAX_CASES || !next_item(&text, item, sizeof item, &last)) return false;
        if (!qp_parse_u64(item, 1, 65536, &v)) return false;
        list[*n] = (uint32_t)v;
    }
    return true;
}

int qp_bench_linear(int argc, char **argv)
{
    linear_args args = {0};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args}};
    const qp_usage usage = {
        .command = "bench linear",
        .arguments = "[options]",
        .summary = "EXL3 products of one linear layer",
        .description = "Every shape is run with every rate and every number of rows.",
        .examples = "  quantpack bench linear\n"
                    "  quantpack bench linear --shapes 640x1536 --bits 4 --rows 1,512 --threads 1 --warm\n",
        .groups = groups,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    cases c;
    int code;
    qp_err err = {0};
    bench b = {.a = &args};
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!read_shapes(args.shapes, c.shapes, &c.n_shapes))
        return qp_usage_error("bench linear", "--shapes %s: wanted up to 32 INxOUT with commas, multiples of 128",
                              args.shapes);
    if (!read_bits(args.bits, c.words, &c.n_words))
        return qp_usage_error("bench linear", "--bits %s: wanted up to 32 of 1..8, 1.5, 2.5, 3.5 with commas",
                              args.bits);
    if (!read_rows(args.rows, c.rows, &c.n_rows))
        return qp_usage_error("bench linear", "--rows %s: wanted up to 32 numbers from 1 on, with commas", args.rows);
    if (args.codebook != QP_EXL3_MUL1) {
        if (args.arith != 1) return qp_usage_error("bench linear", "--codebook 3inst and mcg need --arith f32");
        for (size_t i = 0; i < c.n_words; i++)
            if (c.words[i] % 16)
                return qp_usage_error("bench linear", "--bits %.1f: half rates need --codebook mul1",
                                      c.words[i] / 16.0);
    }
    return run_all(&b, &c, &err) == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
