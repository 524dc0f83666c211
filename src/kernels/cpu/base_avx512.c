/* The avx512 level of everything but EXL3: base_simd.h, dense_simd.h and attention_simd.h. */
#include "kernels/cpu/base_simd.h"
#include "kernels/cpu/levels.h"

void qp_cpu_fill_base_avx512(qp_cpu_kernels *k)
{
    fill_rows(k);
    qp_cpu_fill_dense_avx512(k);
    qp_cpu_fill_attention_avx512(k);
}
