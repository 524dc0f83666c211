/* What the processor and the operating system allow, by CPUID and XGETBV. */
#ifndef QP_BASE_CPU_H
#define QP_BASE_CPU_H

#include <stdbool.h>

typedef struct qp_cpu_features {
    bool avx2;   /* avx2 + fma + f16c, ymm state enabled */
    bool avx512; /* avx512 f, bw, vl, dq, zmm and mask state enabled */
    bool vnni;   /* avx512 + vnni + vbmi */
    bool amx;    /* vnni + amx tile and int8, tile state enabled and granted to this process */
    char brand[64];
} qp_cpu_features;

/* Reads the features of this machine; all false on another architecture. Cannot fail.
 * Asks Linux for the use of AMX tiles, which holds for the whole process from then on. */
void qp_cpu_features_read(qp_cpu_features *out);

/* Processors this process may run on (sched_getaffinity), at least 1. */
unsigned qp_cpu_count(void);
#endif
