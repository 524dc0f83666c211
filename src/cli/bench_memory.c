/* quantpack bench memory: read bandwidth by number of threads. It is the limit of decoding, where each weight is read
 * once a token. */
#include "cli/bench_memory.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/pool.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/term.h"
#include "kernels/cpu/measure.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t max_threads, samples, megabytes;
    bool json;
} memory_args;

#define AT(field) offsetof(memory_args, field)
static const qp_opt options[] = {
    {"threads", 't', QP_OPT_U32, "N", AT(max_threads), 0, 4096, "0",
     "most threads; 0: as many as processors. 1, 2, 4, .. and the most are measured", NULL},
    {"megabytes", 0, QP_OPT_U32, "N", AT(megabytes), 1, 1 << 20, "1024", "memory that is read, in MiB", NULL},
    {"samples", 's', QP_OPT_U32, "N", AT(samples), 1, 10000, "31", "passes over it", NULL},
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object a line", NULL},
};
#undef AT

static int compare(const void *x, const void *y)
{
    double a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    return (a > b) - (a < b);
}

qp_bench_spread qp_bench_spread_of(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    const double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (qp_bench_spread){median, values[(n - 1) / 10], values[(n - 1) - (n - 1) / 10]};
}

/* gbps[n]: of as many passes, after one that does not count. */
static qp_status read_passes(unsigned n_threads, const void *p, size_t bytes, double *gbps, size_t n, qp_err *err)
{
    qp_cpu_features have;
    qp_pool *pool;
    qp_cpu_features_read(&have);
    const qp_measure *m = qp_measure_best(&have);
    QP_TRY(qp_pool_new(&pool, n_threads, err));
    qp_measure_read_s(m, pool, p, bytes);
    for (size_t i = 0; i < n; i++) gbps[i] = (double)bytes / qp_measure_read_s(m, pool, p, bytes) * 1e-9;
    qp_pool_free(pool);
    return QP_OK;
}

double qp_bench_read_gbps(unsigned n_threads, size_t bytes)
{
    double gbps[15] = {0};
    qp_err err;
    void *p = qp_malloc(bytes);
    if (!p) return 0;
    memset(p, 1, bytes); /* untouched pages are all the same page of zeros */
    const qp_status st = read_passes(n_threads, p, bytes / 512 * 512, gbps, 15, &err);
    qp_free(p);
    return st == QP_OK ? qp_bench_spread_of(gbps, 15).median : 0;
}

double qp_bench_fma_gflops(unsigned n_threads)
{
    qp_cpu_features have;
    qp_pool *pool;
    qp_err err;
    qp_cpu_features_read(&have);
    if (qp_pool_new(&pool, n_threads, &err) != QP_OK) return 0;
    const double gflops = qp_measure_fma_gflops(qp_measure_best(&have), pool, 10);
    qp_pool_free(pool);
    return gflops;
}

static qp_status run(const memory_args *a, qp_err *err)
{
    const unsigned most = a->max_threads ? a->max_threads : qp_cpu_count();
    const size_t bytes = (size_t)a->megabytes << 20;
    unsigned char *p = NULL;
    double *gbps = NULL;
    qp_status st;
    qp_cpu_features have;
    qp_cpu_features_read(&have);
    QP_TRY_OUT(qp_new(&p, bytes, 1, "memory to read (lower --megabytes)", err));
    QP_TRY_OUT(qp_new(&gbps, a->samples, sizeof *gbps, "samples", err));
    memset(p, 1, bytes);
    if (!a->json)
        qp_out_printf("reading %u MiB with %s loads, %u passes\n\nthreads    GB/s     p10     p90\n", a->megabytes,
                      qp_measure_best(&have)->name, a->samples);
    for (unsigned n = 1; n <= most; n = n < most && n * 2 > most ? most : n * 2) {
        if (qp_term_interrupted()) {
            st = qp_fail(err, QP_ECANCELLED, "interrupted");
            goto out;
        }
        QP_TRY_OUT(read_passes(n, p, bytes, gbps, a->samples, err));
        const qp_bench_spread s = qp_bench_spread_of(gbps, a->samples);
        if (a->json)
            QP_TRY_OUT(qp_out_json(json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "name", "memory_read", "level",
                                             qp_measure_best(&have)->name, "threads", (json_int_t)n, "bytes",
                                             (json_int_t)bytes, "samples", (json_int_t)a->samples, "gbps_median",
                                             s.median, "gbps_p10", s.p10, "gbps_p90", s.p90),
                                   JSON_COMPACT, err));
        else
            qp_out_printf("%7u  %6.1f  %6.1f  %6.1f\n", n, s.median, s.p10, s.p90);
        qp_out_flush();
    }
    st = QP_OK;
out:
    qp_free(p);
    qp_free(gbps);
    return st;
}

int qp_bench_memory(int argc, char **argv)
{
    memory_args args = {0};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args}};
    const qp_usage usage = {
        .command = "bench memory",
        .arguments = "[options]",
        .summary = "read bandwidth by number of threads, the limit of decoding",
        .examples = "  quantpack bench memory\n  quantpack bench memory --threads 2 --json\n",
        .groups = groups,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    qp_err err = {0};
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    return run(&args, &err) == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
