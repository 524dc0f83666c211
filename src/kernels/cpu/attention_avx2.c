/* The avx2 level of attention: attention_simd.h. */
#include "kernels/cpu/attention_simd.h"

void qp_cpu_fill_attention_avx2(qp_cpu_kernels *k)
{
    k->attention = attention;
    k->attention_scratch_bytes = attention_scratch_bytes;
}
