/* The parts of the vector levels that lie in files of their own; each base_<level>.c calls those of its level. */
#ifndef QP_KERNELS_CPU_LEVELS_H
#define QP_KERNELS_CPU_LEVELS_H

#include "kernels/cpu/cpu_kernels.h"

void qp_cpu_fill_dense_avx2(qp_cpu_kernels *k);
void qp_cpu_fill_dense_avx512(qp_cpu_kernels *k);
void qp_cpu_fill_attention_avx2(qp_cpu_kernels *k);
void qp_cpu_fill_attention_avx512(qp_cpu_kernels *k);

#endif
