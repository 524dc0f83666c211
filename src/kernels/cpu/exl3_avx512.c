/* EXL3 kernels, level avx512: rotations and quantization, and the table entries of the products. */
#include "kernels/cpu/exl3_zmm.h"

#include <math.h>

#define RSQRT_128 0x1.6a09e6p-4f

/* One butterfly inside each vector: lane i of the result is t[i ^ h] + v[i], or t[i ^ h] - v[i] where bit h of i is
 * set; t is v with lanes i and i ^ h exchanged. */
QP_INLINE __m512 butterfly(__m512 v, __m512 t, __mmask16 high)
{
    return _mm512_mask_sub_ps(_mm512_add_ps(t, v), high, t, v);
}

/* 128 values in natural order, strides 1, 2, .. 64, then the scale. */
QP_INLINE void hadamard128(__m512 v[8])
{
    QP_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = butterfly(v[i], _mm512_permute_ps(v[i], 0xB1), 0xAAAA);
        v[i] = butterfly(v[i], _mm512_permute_ps(v[i], 0x4E), 0xCCCC);
        v[i] = butterfly(v[i], _mm512_shuffle_f32x4(v[i], v[i], 0xB1), 0xF0F0);
        v[i] = butterfly(v[i], _mm512_shuffle_f32x4(v[i], v[i], 0x4E), 0xFF00);
    }
    QP_UNROLL
    for (int h = 1; h < 8; h *= 2) QP_UNROLL
    for (int i = 0; i < 8; i++) {
        if (i & h) continue;
        const __m512 a = v[i], b = v[i + h];
        v[i] = _mm512_add_ps(a, b);
        v[i + h] = _mm512_sub_ps(a, b);
    }
    QP_UNROLL
    for (int i = 0; i < 8; i++) v[i] = _mm512_mul_ps(v[i], _mm512_set1_ps(RSQRT_128));
}

/* Lanes of the vector of 16 that starts at `at` which are below n. */
QP_INLINE __mmask16 below(size_t at, size_t n)
{
    return at >= n ? 0 : n - at >= 16 ? 0xFFFF : (__mmask16)((1u << (n - at)) - 1);
}

QP_INLINE __m512 scales16(const uint16_t *h)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)h));
}

static void rotate_in(float *xh, const float *x, const qp_exl3 *t)
{
    __m512 v[8];
    for (size_t b = 0; b < t->n_in; b += 128) {
        QP_UNROLL
        for (int i = 0; i < 8; i++) {
            const size_t at = b + 16 * i;
            const __mmask16 m = below(at, t->n_in_true);
            v[i] = _mm512_maskz_mul_ps(m, _mm512_maskz_loadu_ps(m, x + at), scales16(t->suh + at));
        }
        hadamard128(v);
        QP_UNROLL
        for (int i = 0; i < 8; i++) _mm512_storeu_ps(xh + b + 16 * i, v[i]);
    }
}

static void rotate_out(float *y, const float *yh, const qp_exl3 *t)
{
    __m512 v[8];
    for (size_t b = 0; b < t->n_out_true; b += 128) {
        QP_UNROLL
        for (int i = 0; i < 8; i++) v[i] = _mm512_loadu_ps(yh + b + 16 * i);
        hadamard128(v);
        QP_UNROLL
        for (int i = 0; i < 8; i++) {
            const size_t at = b + 16 * i;
            const __mmask16 m = below(at, t->n_out_true);
            __m512 r = _mm512_mul_ps(v[i], scales16(t->svh + at));
            if (t->bias) r = _mm512_add_ps(r, _mm512_maskz_loadu_ps(m, t->bias + at));
            _mm512_mask_storeu_ps(y + at, m, r);
        }
    }
}

static void quantize(int16_t *xq, float *scale, int64_t *sum, const float *xh, size_t n_in)
{
    const __m512i order = _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    const __m512i abs = _mm512_set1_epi32(0x7FFFFFFF);
    __m512i max = _mm512_setzero_si512();
    __m512i total = _mm512_setzero_si512();
    /* magnitudes of floats order as their bits; infinity and NaN come last */
    for (size_t i = 0; i < n_in; i += 16)
        max = _mm512_max_epu32(max, _mm512_and_si512(abs, _mm512_loadu_si512(xh + i)));
    const uint32_t top = _mm512_reduce_max_epu32(max);
    float amax, s;
    memcpy(&amax, &top, sizeof amax);
    s = amax / (float)QP_EXL3_I16_MAX;
    if (s < 0x1p-126f) s = 0.0f; /* no finite inverse: see exl3_ref.c */
    *sum = 0;
    *scale = top >= 0x7F800000u ? NAN : s;
    if (top >= 0x7F800000u || s == 0.0f) {
        memset(xq, 0, n_in * sizeof *xq);
        return;
    }
    const __m512 inv = _mm512_set1_ps(1.0f / s);
    for (size_t i = 0; i < n_in; i += 16) {
        const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(xh + i), inv));
        _mm256_storeu_si256((__m256i *)(xq + i), _mm512_cvtepi32_epi16(_mm512_permutexvar_epi32(order, q)));
        /* pairs of lanes first: two values of 15 bits */
        const __m256i two = _mm256_add_epi32(_mm512_castsi512_si256(q), _mm512_extracti64x4_epi64(q, 1));
        total = _mm512_add_epi64(total, _mm512_cvtepi32_epi64(two));
    }
    *sum = _mm512_reduce_add_epi64(total);
}

static size_t scratch_bytes(size_t n_in)
{
    return qp_exl3_zmm_scratch(n_in);
}

void qp_cpu_fill_exl3_avx512(qp_cpu_kernels *k)
{
    k->exl3_rotate_in = rotate_in;
    k->exl3_rotate_out = rotate_out;
    k->exl3_quantize = quantize;
    k->exl3_mul_i16 = qp_exl3_mul_i16_avx512;
    k->exl3_mul_f32 = qp_exl3_mul_f32_avx512;
    k->exl3_scratch_bytes = scratch_bytes;
}
