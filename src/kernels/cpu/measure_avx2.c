/* The avx2 level of measure.h. */
#include "kernels/cpu/measure.h"

#include <immintrin.h>

static uint64_t read_bytes(const void *p, size_t bytes)
{
    const __m256i *v = p;
    __m256i s[8];
    uint64_t out[4];
    for (int j = 0; j < 8; j++) s[j] = _mm256_setzero_si256();
    for (size_t i = 0; i < bytes / 32; i += 16) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) s[j % 8] = _mm256_xor_si256(s[j % 8], _mm256_load_si256(v + i + j));
#pragma GCC unroll 8
        for (int j = 0; j < 16; j += 2) __builtin_prefetch(v + i + j + 64, 0, 3);
    }
    for (int j = 1; j < 8; j++) s[0] = _mm256_xor_si256(s[0], s[j]);
    _mm256_storeu_si256((__m256i *)(void *)out, s[0]);
    return out[0] + out[1] + out[2] + out[3];
}

static float fma_rounds(size_t n)
{
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.5f);
    __m256 s[QP_MEASURE_CHAINS];
    float out[8], sum = 0;
    for (int c = 0; c < QP_MEASURE_CHAINS; c++) s[c] = _mm256_set1_ps((float)c);
    for (size_t i = 0; i < n; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < QP_MEASURE_CHAINS; c++) s[c] = _mm256_fmadd_ps(s[c], a, b);
    }
    for (int c = 1; c < QP_MEASURE_CHAINS; c++) s[0] = _mm256_add_ps(s[0], s[c]);
    _mm256_storeu_ps(out, s[0]);
    for (int i = 0; i < 8; i++) sum += out[i];
    return sum;
}

const qp_measure qp_measure_avx2 = {"avx2", read_bytes, fma_rounds, 8};
