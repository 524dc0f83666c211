/* The avx512 level of the dense linear: dense_simd.h. */
#include "kernels/cpu/dense_simd.h"

void qp_cpu_fill_dense_avx512(qp_cpu_kernels *k)
{
    k->dense = dense;
    k->dense_scratch_bytes = dense_scratch_bytes;
}
