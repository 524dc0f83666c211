/* EXL3 kernels, level avx2: rotations and quantization, and the table entries of the products. */
#include "kernels/cpu/exl3_avx2.h"

#include <math.h>

#define RSQRT_128 0x1.6a09e6p-4f

/* 128 values in natural order, in place: strides 1, 2, 4 inside a vector, 8 .. 64 across, then the scale. */
static void hadamard128(float *v)
{
    __m256 a[16];
    QP_UNROLL
    for (int i = 0; i < 16; i++) {
        __m256 x = _mm256_loadu_ps(v + 8 * i), t = _mm256_permute_ps(x, 0xB1);
        /* lane i: t + x, or t - x where the stride's bit of i is set */
        x = _mm256_blend_ps(_mm256_add_ps(t, x), _mm256_sub_ps(t, x), 0xAA);
        t = _mm256_permute_ps(x, 0x4E);
        x = _mm256_blend_ps(_mm256_add_ps(t, x), _mm256_sub_ps(t, x), 0xCC);
        t = _mm256_permute2f128_ps(x, x, 1);
        a[i] = _mm256_blend_ps(_mm256_add_ps(t, x), _mm256_sub_ps(t, x), 0xF0);
    }
    QP_UNROLL
    for (int h = 1; h < 16; h *= 2) QP_UNROLL
    for (int i = 0; i < 16; i++) {
        if (i & h) continue;
        const __m256 x = a[i], y = a[i + h];
        a[i] = _mm256_add_ps(x, y);
        a[i + h] = _mm256_sub_ps(x, y);
    }
    QP_UNROLL
    for (int i = 0; i < 16; i++) _mm256_storeu_ps(v + 8 * i, _mm256_mul_ps(a[i], _mm256_set1_ps(RSQRT_128)));
}

QP_INLINE __m256 scales8(const uint16_t *h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)h));
}

static void rotate_in(float *xh, const float *x, const qp_exl3 *t)
{
    for (size_t b = 0; b < t->n_in; b += 128) {
        float part[128];
        const float *from = x + b;
        const size_t n = b >= t->n_in_true ? 0 : t->n_in_true - b < 128 ? t->n_in_true - b : 128;
        if (n < 128) {
            memset(part, 0, sizeof part);
            if (n) memcpy(part, x + b, n * sizeof *part);
            from = part;
        }
        for (int i = 0; i < 128; i += 8)
            _mm256_storeu_ps(xh + b + i, _mm256_mul_ps(_mm256_loadu_ps(from + i), scales8(t->suh + b + i)));
        /* past the true width ref has +0, not 0 * suh */
        if (n < 128) memset(xh + b + n, 0, (128 - n) * sizeof *xh);
        hadamard128(xh + b);
    }
}

static void rotate_out(float *y, const float *yh, const qp_exl3 *t)
{
    for (size_t b = 0; b < t->n_out_true; b += 128) {
        float v[128];
        const size_t n = t->n_out_true - b < 128 ? t->n_out_true - b : 128;
        memcpy(v, yh + b, sizeof v);
        hadamard128(v);
        for (int i = 0; i < 128; i += 8)
            _mm256_storeu_ps(v + i, _mm256_mul_ps(_mm256_loadu_ps(v + i), scales8(t->svh + b + i)));
        if (t->bias)
            for (size_t i = 0; i < n; i++) v[i] = v[i] + t->bias[b + i];
        memcpy(y + b, v, n * sizeof *v);
    }
}

static void quantize(int16_t *xq, float *scale, int64_t *sum, const float *xh, size_t n_in)
{
    const __m256i abs = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i max = _mm256_setzero_si256(), total = _mm256_setzero_si256();
    /* magnitudes of floats order as their bits; infinity and NaN come last */
    for (size_t i = 0; i < n_in; i += 8)
        max = _mm256_max_epu32(max, _mm256_and_si256(abs, _mm256_loadu_si256((const __m256i *)(xh + i))));
    uint32_t lanes[8], top = 0;
    _mm256_storeu_si256((__m256i *)lanes, max);
    for (int i = 0; i < 8; i++) top = lanes[i] > top ? lanes[i] : top;
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
    const __m256 inv = _mm256_set1_ps(1.0f / s);
    for (size_t i = 0; i < n_in; i += 16) {
        const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(xh + i), inv));
        const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(xh + i + 8), inv));
        /* pairs of rows 01 23 89 ab (and 45 67 cd ef): to the order of the tile */
        _mm256_storeu_si256((__m256i *)(xq + i), _mm256_shuffle_epi32(_mm256_packs_epi32(a, b), 0xD8));
        const __m256i two = _mm256_add_epi32(a, b);
        total = _mm256_add_epi64(total, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(two)));
        total = _mm256_add_epi64(total, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(two, 1)));
    }
    int64_t part[4];
    _mm256_storeu_si256((__m256i *)part, total);
    *sum = part[0] + part[1] + part[2] + part[3];
}

/* 1 and 2 rows: accumulators of a block. More: a panel of 16 columns of int16 or of fp32. */
static size_t scratch_bytes(size_t n_in)
{
    const size_t accs = (size_t)QP_AVX2_BLOCK_ACCS * QP_AVX2_ACC_BYTES, panel = n_in * 64;
    return panel > accs ? panel : accs;
}

void qp_cpu_fill_exl3_avx2(qp_cpu_kernels *k)
{
    k->exl3_rotate_in = rotate_in;
    k->exl3_rotate_out = rotate_out;
    k->exl3_quantize = quantize;
    k->exl3_mul_i16 = qp_exl3_mul_i16_avx2;
    k->exl3_mul_f32 = qp_exl3_mul_f32_avx2;
    k->exl3_scratch_bytes = scratch_bytes;
}
