/* What the machine can do at most: reading memory and fused multiply-adds. The benches state speeds as shares of these.
 * Not used by the engine. */
#ifndef QP_KERNELS_CPU_MEASURE_H
#define QP_KERNELS_CPU_MEASURE_H

#include "base/cpu.h"
#include "base/pool.h"

#include <stddef.h>
#include <stdint.h>

/* The loops of a level: read returns a value that depends on every byte of p[0 .. bytes) (bytes a multiple of 512,
 * p 64-byte aligned); fma runs n rounds of QP_MEASURE_CHAINS independent chains of the widest fp32 FMA. */
enum { QP_MEASURE_CHAINS = 12 };
typedef struct qp_measure {
    const char *name;
    uint64_t (*read)(const void *p, size_t bytes);
    float (*fma)(size_t n);
    unsigned lanes; /* fp32 lanes of fma */
} qp_measure;

/* The best level of this machine. */
const qp_measure *qp_measure_best(const qp_cpu_features *have);

/* Seconds that the pool takes to read p once. */
double qp_measure_read_s(const qp_measure *m, qp_pool *pool, const void *p, size_t bytes);

/* Most GFLOP/s (two a multiply-add) that the pool reaches in n_runs runs of 10 to 20 ms. */
double qp_measure_fma_gflops(const qp_measure *m, qp_pool *pool, unsigned n_runs);

#if defined(__x86_64__)
extern const qp_measure qp_measure_avx2, qp_measure_avx512;
#endif

#endif
