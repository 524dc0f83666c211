/* The avx512 level of measure.h. */
#include "kernels/cpu/measure.h"

#include <immintrin.h>

static uint64_t read_bytes(const void *p, size_t bytes)
{
    const __m512i *v = p;
    __m512i s[8];
    for (int j = 0; j < 8; j++) s[j] = _mm512_setzero_si512();
    for (size_t i = 0; i < bytes / 64; i += 8) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            s[j] = _mm512_xor_si512(s[j], _mm512_load_si512(v + i + j));
            __builtin_prefetch(v + i + j + 32, 0, 3);
        }
    }
    for (int j = 1; j < 8; j++) s[0] = _mm512_xor_si512(s[0], s[j]);
    return (uint64_t)_mm512_reduce_add_epi64(s[0]);
}

static float fma_rounds(size_t n)
{
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.5f);
    __m512 s[QP_MEASURE_CHAINS];
    for (int c = 0; c < QP_MEASURE_CHAINS; c++) s[c] = _mm512_set1_ps((float)c);
    for (size_t i = 0; i < n; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < QP_MEASURE_CHAINS; c++) s[c] = _mm512_fmadd_ps(s[c], a, b);
    }
    for (int c = 1; c < QP_MEASURE_CHAINS; c++) s[0] = _mm512_add_ps(s[0], s[c]);
    return _mm512_reduce_add_ps(s[0]);
}

const qp_measure qp_measure_avx512 = {"avx512", read_bytes, fma_rounds, 16};
