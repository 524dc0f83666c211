/* Speed of the dense linear against the machine's read bandwidth and fp32 FMA peak. Each sample is followed by a read
 * of as many bytes with plain vector loads (few rows) or by a run of FMAs (many rows) on the same threads, and the
 * shares are medians of the ratios of such neighbours, so that they hold on a machine with other work.
 *
 *   bench_dense [level] [threads] [n_in n_out n_rows type(f32|f16|bf16)]
 *
 * One JSON line a case: medians over 30 samples or more. Weights rotate over copies of 1 GiB in all (at least one
 * copy), parts of 64 outputs over the pool. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SAMPLES = 31, PART = 64 };

typedef struct dense_case {
    size_t n_in, n_out, n_rows;
    qp_wtype type;
} dense_case;

typedef struct bench {
    const qp_cpu_kernels *k;
    qp_pool *pool;
    dense_case c;
    float *x, *y;
    unsigned char *w, *scratch;
    size_t scratch_bytes;
    const unsigned char *now;
} bench;

static const char *const type_names[] = {"f32", "f16", "bf16"};

static void part_run(void *arg, size_t part, unsigned worker)
{
    bench *b = arg;
    const size_t n0 = part * PART, n1 = b->c.n_out - n0 < PART ? b->c.n_out : n0 + PART;
    b->k->dense(b->y, b->c.n_out, b->x, b->c.n_in, b->c.n_rows, b->now, b->c.type, b->c.n_in, n0, n1, NULL,
                b->scratch + worker * b->scratch_bytes);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The limit of the case's kind: GB/s of reading sample_bytes at p, or GFLOP/s. */
static double limit_now(bench *b, const qp_measure *m, const unsigned char *p, size_t sample_bytes)
{
    if (b->c.n_rows > 8) return qp_measure_fma_gflops(m, b->pool, 1);
    return (double)sample_bytes / qp_measure_read_s(m, b->pool, p, sample_bytes) * 1e-9;
}

static void run_case(bench *b, const qp_measure *m)
{
    const size_t bytes = b->c.n_in * b->c.n_out * qp_wtype_bytes(b->c.type), budget = (size_t)1 << 30;
    const size_t n_copies = b->c.n_rows > 8 || bytes >= budget ? 1 : budget / bytes;
    double s[N_SAMPLES], share[N_SAMPLES], limit[N_SAMPLES];
    b->scratch_bytes = (b->k->dense_scratch_bytes(b->c.n_in) + 63) / 64 * 64;
    b->x = qp_malloc(b->c.n_in * b->c.n_rows * sizeof(float));
    b->y = qp_malloc(b->c.n_out * b->c.n_rows * sizeof(float));
    b->w = qp_malloc(bytes * n_copies);
    b->scratch = qp_malloc(b->scratch_bytes * qp_pool_n_threads(b->pool));
    if (!b->x || !b->y || !b->w || !b->scratch) {
        fprintf(stderr, "bench_dense: out of memory\n");
        exit(1);
    }
    qp_rng r = {1};
    for (size_t i = 0; i < b->c.n_in * b->c.n_rows; i++) b->x[i] = (float)qp_rng_unit(&r) - 0.5f;
    memset(b->w, 0x3C, bytes * n_copies);                                      /* a normal number in every type */
    const size_t repeat = b->c.n_rows > 8 ? 1 : ((size_t)1 << 25) / bytes + 1; /* 32 MB or more a sample */
    const double flops = 2.0 * (double)(b->c.n_in * b->c.n_out * b->c.n_rows);
    size_t copy = 0;
    for (int i = -1; i < N_SAMPLES; i++) {
        const uint64_t t = qp_clock_ns();
        for (size_t j = 0; j < repeat; j++) {
            b->now = b->w + copy++ % n_copies * bytes;
            qp_pool_run(b->pool, part_run, b, (b->c.n_out + PART - 1) / PART);
        }
        const double ns = (double)(qp_clock_ns() - t) / (double)repeat;
        const size_t first = n_copies > 2 * repeat ? (copy + n_copies / 2) % (n_copies - repeat) : 0;
        const double most = limit_now(b, m, b->w + first * bytes / 64 * 64, repeat * bytes);
        if (i < 0) continue;
        s[i] = ns;
        limit[i] = most;
        share[i] = (b->c.n_rows > 8 ? flops : (double)bytes) / ns / most;
    }
    qsort(s, N_SAMPLES, sizeof *s, by_value);
    qsort(share, N_SAMPLES, sizeof *share, by_value);
    qsort(limit, N_SAMPLES, sizeof *limit, by_value);
    const double ns = s[N_SAMPLES / 2];
    printf("{\"bench\":\"dense\",\"level\":\"%s\",\"threads\":%u,\"n_in\":%zu,\"n_out\":%zu,\"n_rows\":%zu,"
           "\"type\":\"%s\",\"median_us\":%.2f,\"p10_us\":%.2f,\"p90_us\":%.2f,\"gbps\":%.1f,\"gflops\":%.1f,"
           "\"limit\":\"%s\",\"limit_median\":%.1f,\"share\":%.3f,\"share_p10\":%.3f,\"share_p90\":%.3f}\n",
           b->k->name, qp_pool_n_threads(b->pool), b->c.n_in, b->c.n_out, b->c.n_rows, type_names[b->c.type], ns / 1e3,
           s[N_SAMPLES / 10] / 1e3, s[N_SAMPLES * 9 / 10] / 1e3, (double)bytes / ns, flops / ns,
           b->c.n_rows > 8 ? "gflops" : "gbps", limit[N_SAMPLES / 2], share[N_SAMPLES / 2], share[N_SAMPLES / 10],
           share[N_SAMPLES * 9 / 10]);
    fflush(stdout);
    qp_free(b->x);
    qp_free(b->y);
    qp_free(b->w);
    qp_free(b->scratch);
}

int main(int argc, char **argv)
{
    static const dense_case cases[] = {
        {576, 1536, 1, QP_W_BF16},   {4096, 4096, 1, QP_W_BF16},  {4096, 4096, 2, QP_W_BF16},
        {4096, 4096, 3, QP_W_BF16},  {4096, 4096, 4, QP_W_BF16},  {4096, 4096, 1, QP_W_F16},
        {4096, 4096, 1, QP_W_F32},   {1536, 576, 1, QP_W_BF16},   {576, 1536, 8, QP_W_BF16},
        {576, 1536, 512, QP_W_BF16}, {1536, 576, 512, QP_W_BF16}, {4096, 1024, 512, QP_W_BF16},
        {576, 1536, 512, QP_W_F32},
    };
    const char *name = argc > 1 ? argv[1] : "avx512";
    const unsigned threads = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : qp_cpu_count();
    qp_cpu_features have;
    qp_err err;
    bench b = {0};
    qp_cpu_features_read(&have);
    if (qp_cpu_kernels_select(&b.k, &have, name, &err) != QP_OK || qp_pool_new(&b.pool, threads, &err) != QP_OK) {
        fprintf(stderr, "bench_dense: %s\n", err.msg);
        return 1;
    }
    const qp_measure *m = qp_measure_best(&have);
    if (argc > 6) {
        b.c = (dense_case){strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), strtoul(argv[5], NULL, 10),
                           strcmp(argv[6], "f32") == 0   ? QP_W_F32
                           : strcmp(argv[6], "f16") == 0 ? QP_W_F16
                                                         : QP_W_BF16};
        run_case(&b, m);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases && argc <= 6; i++) {
        b.c = cases[i];
        run_case(&b, m);
    }
    qp_pool_free(b.pool);
    return 0;
}
