/* See measure.h: the plain level, the choice, and the runs over a pool. */
#include "kernels/cpu/measure.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

static uint64_t read_plain(const void *p, size_t bytes)
{
    const unsigned char *b = p;
    uint64_t s[4] = {0};
    for (size_t i = 0; i < bytes; i += 32) {
        uint64_t v[4];
        memcpy(v, b + i, sizeof v);
        for (int j = 0; j < 4; j++) s[j] ^= v[j];
    }
    return s[0] ^ s[1] ^ s[2] ^ s[3];
}

static float fma_plain(size_t n)
{
    float s[QP_MEASURE_CHAINS], sum = 0;
    for (int c = 0; c < QP_MEASURE_CHAINS; c++) s[c] = (float)c;
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < QP_MEASURE_CHAINS; c++) s[c] = s[c] * 0.999f + 0.5f;
    }
    for (int c = 0; c < QP_MEASURE_CHAINS; c++) sum += s[c];
    return sum;
}

const qp_measure *qp_measure_best(const qp_cpu_features *have)
{
    static const qp_measure plain = {"plain", read_plain, fma_plain, 1};
#if defined(__x86_64__)
    if (have->avx512) return &qp_measure_avx512;
    if (have->avx2) return &qp_measure_avx2;
#endif
    (void)have;
    return &plain;
}

typedef struct measure_job {
    const qp_measure *m;
    const unsigned char *p;
    size_t bytes, part_bytes, n;
    volatile uint64_t sink[64]; /* by worker, so that no read can be left out */
} measure_job;

static void read_part(void *arg, size_t part, unsigned worker)
{
    measure_job *j = arg;
    const size_t first = part * j->part_bytes, left = j->bytes - first;
    j->sink[worker % 64] = j->m->read(j->p + first, left < j->part_bytes ? left : j->part_bytes);
}

double qp_measure_read_s(const qp_measure *m, qp_pool *pool, const void *p, size_t bytes)
{
    measure_job j = {.m = m, .p = p, .bytes = bytes / 512 * 512, .part_bytes = (size_t)4 << 20};
    const uint64_t start = qp_clock_ns();
    qp_pool_run(pool, read_part, &j, (j.bytes + j.part_bytes - 1) / j.part_bytes);
    return (double)(qp_clock_ns() - start) * 1e-9;
}

static void fma_part(void *arg, size_t part, unsigned worker)
{
    measure_job *j = arg;
    (void)part;
    j->sink[worker % 64] = j->m->fma(j->n) > 0;
}

double qp_measure_fma_gflops(const qp_measure *m, qp_pool *pool, unsigned n_runs)
{
    const size_t n_parts = 8 * (size_t)qp_pool_n_threads(pool);
    measure_job j = {.m = m, .n = 50000};
    double best = 0;
    for (unsigned i = 0; i < n_runs; i++) {
        const uint64_t start = qp_clock_ns();
        qp_pool_run(pool, fma_part, &j, n_parts);
        const double flops = (double)n_parts * (double)j.n * QP_MEASURE_CHAINS * m->lanes * 2;
        best = fmax(best, flops / (double)(qp_clock_ns() - start));
    }
    return best;
}
