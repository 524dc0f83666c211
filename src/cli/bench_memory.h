/* quantpack bench memory, and what the other kernel benches state their figures with: the machine's limits and the
 * spread of samples. */
#ifndef QP_CLI_BENCH_MEMORY_H
#define QP_CLI_BENCH_MEMORY_H

#include <stddef.h>

/* argv[0] is "memory". Returns the program's exit code. */
int qp_bench_memory(int argc, char **argv);

/* Median GB/s (1e9) of reading `bytes` of fresh memory with n_threads threads and the widest vector loads, over 15
 * passes; 1 GiB or more keeps the caches out of it. 0 when memory or threads are short. */
double qp_bench_read_gbps(unsigned n_threads, size_t bytes);

/* Most fp32 GFLOP/s (two a fused multiply-add) that n_threads threads reach; 0 when threads are short. */
double qp_bench_fma_gflops(unsigned n_threads);

typedef struct qp_bench_spread {
    double median, p10, p90;
} qp_bench_spread;

/* Of n >= 1 values, which it sorts. */
qp_bench_spread qp_bench_spread_of(double *values, size_t n);

#endif
