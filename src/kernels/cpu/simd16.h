/* Sixteen fp32 lanes for the vector levels: one zmm register where AVX-512 is on, two ymm otherwise. The kernels are
 * written once over this type (base_simd.h, dense_simd.h, attention_simd.h) and compiled a level; every operation
 * here is the same IEEE operation a lane on both, so the two levels give the same bits.
 *
 * Lanes beyond the end of a row are masked: a masked load does not touch memory and gives 0, a masked store leaves it,
 * vs_fma_m leaves the sum of an absent lane (adding 0 would turn -0 into +0). An element's value therefore never
 * depends on its place. */
#ifndef QP_KERNELS_CPU_SIMD16_H
#define QP_KERNELS_CPU_SIMD16_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define QP_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
typedef __m512 v16;
typedef __mmask16 m16;

/* The first n lanes (all for n >= 16); the lanes of the low 16 bits of b. */
QP_INLINE m16 m16_first(size_t n)
{
    return n >= 16 ? 0xFFFF : (m16)((1u << n) - 1);
}
QP_INLINE m16 m16_bits(unsigned b)
{
    return (m16)b;
}
QP_INLINE v16 vs_set(float f)
{
    return _mm512_set1_ps(f);
}
QP_INLINE v16 vs_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
/* p 64-byte aligned. Volatile, because gcc else repeats the load in every FMA that uses it, and loads are what the
 * tiles run out of. */
QP_INLINE v16 vs_load_once(const float *p)
{
    return *(const volatile __m512 *)(const volatile void *)p;
}
QP_INLINE v16 vs_load_m(const float *p, m16 m)
{
    return _mm512_maskz_loadu_ps(m, p);
}
QP_INLINE void vs_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
QP_INLINE void vs_store_m(float *p, v16 a, m16 m)
{
    _mm512_mask_storeu_ps(p, m, a);
}
QP_INLINE v16 vs_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
QP_INLINE v16 vs_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
QP_INLINE v16 vs_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
QP_INLINE v16 vs_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
QP_INLINE v16 vs_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
QP_INLINE v16 vs_fma_m(v16 a, v16 b, v16 c, m16 m)
{
    return _mm512_mask3_fmadd_ps(a, b, c, m);
}
QP_INLINE v16 vs_fnma(v16 a, v16 b, v16 c) /* c - a * b */
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* Of either NaN: b. */
QP_INLINE v16 vs_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
QP_INLINE v16 vs_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
QP_INLINE v16 vs_pick(m16 m, v16 yes, v16 no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
QP_INLINE m16 vs_less(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
QP_INLINE unsigned vs_eq_bits(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
QP_INLINE unsigned vs_nan_bits(v16 a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
QP_INLINE v16 vs_abs(v16 a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
QP_INLINE v16 vs_signed_as(v16 magnitude, v16 sign) /* magnitude's own sign bit is clear */
{
    return _mm512_or_ps(magnitude, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
}
QP_INLINE v16 vs_round(v16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for integral n in -151..128 and a in 1/2..2, rounded once. */
QP_INLINE v16 vs_ldexp(v16 a, v16 n)
{
    return _mm512_scalef_ps(a, n);
}
/* Exact widening of 16 stored halves; NaN may become quiet. */
QP_INLINE v16 vs_from_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
QP_INLINE v16 vs_from_f16_m(const void *p, m16 m)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
}
QP_INLINE v16 vs_from_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
QP_INLINE v16 vs_from_bf16_m(const void *p, m16 m)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}
/* Even and odd elements of the 32 floats a, b. */
QP_INLINE void vs_unzip(v16 a, v16 b, v16 *even, v16 *odd)
{
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
/* The tree of the 16-lane sum, of one vector and of eight (result i: a[i]). */
QP_INLINE __m256 vs_fold8(v16 a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
QP_INLINE __m512 vs_fold_pair(v16 a, v16 b) /* a's eight sums, b's eight */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, a, b), _mm512_shuffle_f32x4(a, b, 0x4E));
}
QP_INLINE __m512 vs_fold_quad(__m512 c, __m512 d)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xDD));
}
QP_INLINE __m256 vs_sum_each8(const v16 *a)
{
    const __m512 g0 = vs_fold_quad(vs_fold_pair(a[0], a[1]), vs_fold_pair(a[2], a[3]));
    const __m512 g1 = vs_fold_quad(vs_fold_pair(a[4], a[5]), vs_fold_pair(a[6], a[7]));
    const __m512d d0 = _mm512_castps_pd(g0), d1 = _mm512_castps_pd(g1);
    const __m512 s =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(d0, d1)), _mm512_castpd_ps(_mm512_unpackhi_pd(d0, d1)));
    const __m512 r = _mm512_add_ps(s, _mm512_movehdup_ps(s)); /* of each pair the even lane counts */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, r));
}
#else
typedef struct v16 {
    __m256 lo, hi;
} v16;
typedef struct m16 {
    __m256i lo, hi;
} m16;

QP_INLINE m16 m16_bits(unsigned b)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i lo = _mm256_and_si256(_mm256_set1_epi32((int)b), bit);
    const __m256i hi = _mm256_and_si256(_mm256_set1_epi32((int)(b >> 8)), bit);
    return (m16){_mm256_cmpeq_epi32(lo, bit), _mm256_cmpeq_epi32(hi, bit)};
}
QP_INLINE m16 m16_first(size_t n)
{
    return m16_bits(n >= 16 ? 0xFFFF : (1u << n) - 1);
}
QP_INLINE v16 vs_set(float f)
{
    return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
QP_INLINE v16 vs_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
QP_INLINE __m256 vs_load_once8(const float *p)
{
    return *(const volatile __m256 *)(const volatile void *)p;
}
QP_INLINE v16 vs_load_once(const float *p) /* see above */
{
    const volatile __m256 *v = (const volatile __m256 *)(const volatile void *)p;
    return (v16){v[0], v[1]};
}
QP_INLINE v16 vs_load_m(const float *p, m16 m)
{
    return (v16){_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
QP_INLINE void vs_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
QP_INLINE void vs_store_m(float *p, v16 a, m16 m)
{
    _mm256_maskstore_ps(p, m.lo, a.lo);
    _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}
#define QP_BOTH2(name, op)                                                                                             \
    QP_INLINE v16 name(v16 a, v16 b)                                                                                   \
    {                                                                                                                  \
        return (v16){op(a.lo, b.lo), op(a.hi, b.hi)};                                                                  \
    }
QP_BOTH2(vs_add, _mm256_add_ps)
QP_BOTH2(vs_sub, _mm256_sub_ps)
QP_BOTH2(vs_mul, _mm256_mul_ps)
QP_BOTH2(vs_div, _mm256_div_ps)
QP_BOTH2(vs_max, _mm256_max_ps)
QP_BOTH2(vs_min, _mm256_min_ps)
#undef QP_BOTH2
QP_INLINE v16 vs_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
QP_INLINE v16 vs_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
QP_INLINE v16 vs_pick(m16 m, v16 yes, v16 no)
{
    return (v16){_mm256_blendv_ps(no.lo, yes.lo, _mm256_castsi256_ps(m.lo)),
                 _mm256_blendv_ps(no.hi, yes.hi, _mm256_castsi256_ps(m.hi))};
}
QP_INLINE v16 vs_fma_m(v16 a, v16 b, v16 c, m16 m)
{
    return vs_pick(m, vs_fma(a, b, c), c);
}
QP_INLINE m16 vs_less(v16 a, v16 b)
{
    return (m16){_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
                 _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
QP_INLINE unsigned vs_eq_bits(v16 a, v16 b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)) |
           (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)) << 8;
}
QP_INLINE unsigned vs_nan_bits(v16 a)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q)) |
           (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)) << 8;
}
QP_INLINE v16 vs_abs(v16 a)
{
    const __m256 s = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(s, a.lo), _mm256_andnot_ps(s, a.hi)};
}
QP_INLINE v16 vs_signed_as(v16 a, v16 sign)
{
    const __m256 s = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_or_ps(a.lo, _mm256_and_ps(s, sign.lo)), _mm256_or_ps(a.hi, _mm256_and_ps(s, sign.hi))};
}
QP_INLINE v16 vs_round(v16 a)
{
    return (v16){_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/* In two exact powers, of which only the second product can round: the bits of scalef. */
QP_INLINE __m256 vs_ldexp8(__m256 a, __m256 n)
{
    const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    const __m256i e1 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i e2 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(e1)), _mm256_castsi256_ps(e2));
}
QP_INLINE v16 vs_ldexp(v16 a, v16 n)
{
    return (v16){vs_ldexp8(a.lo, n.lo), vs_ldexp8(a.hi, n.hi)};
}
QP_INLINE v16 vs_from_f16(const void *p)
{
    const __m128i *q = p;
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
QP_INLINE __m256 vs_widen_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
QP_INLINE v16 vs_from_bf16(const void *p)
{
    const __m128i *q = p;
    return (v16){vs_widen_bf16(_mm_loadu_si128(q)), vs_widen_bf16(_mm_loadu_si128(q + 1))};
}
/* AVX2 has no masked 16-bit load: the lanes pass through the stack. Masks here are always of the first lanes. */
QP_INLINE void vs_copy_halves(uint16_t *to, const void *p, m16 m)
{
    const unsigned bits = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m.lo)) |
                          (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m.hi)) << 8;
    const unsigned n = (unsigned)__builtin_popcount(bits);
    const uint8_t *from = p;
    for (unsigned i = 0; i < n; i++) to[i] = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
}
QP_INLINE v16 vs_from_f16_m(const void *p, m16 m)
{
    uint16_t h[16] = {0};
    vs_copy_halves(h, p, m);
    return vs_from_f16(h);
}
QP_INLINE v16 vs_from_bf16_m(const void *p, m16 m)
{
    uint16_t h[16] = {0};
    vs_copy_halves(h, p, m);
    return vs_from_bf16(h);
}
QP_INLINE __m256 vs_order4(__m256 a) /* 64-bit groups 0 2 1 3 */
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xD8));
}
QP_INLINE void vs_unzip(v16 a, v16 b, v16 *even, v16 *odd)
{
    *even = (v16){vs_order4(_mm256_shuffle_ps(a.lo, a.hi, 0x88)), vs_order4(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
    *odd = (v16){vs_order4(_mm256_shuffle_ps(a.lo, a.hi, 0xDD)), vs_order4(_mm256_shuffle_ps(b.lo, b.hi, 0xDD))};
}
QP_INLINE __m256 vs_fold8(v16 a)
{
    return _mm256_add_ps(a.lo, a.hi);
}
QP_INLINE __m256 vs_fold_quad(v16 a, v16 b) /* a's four sums, b's four */
{
    const __m256 c = vs_fold8(a), d = vs_fold8(b);
    return _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
}
QP_INLINE __m256 vs_fold_two(__m256 g, __m256 h)
{
    const __m256d c = _mm256_castps_pd(g), d = _mm256_castps_pd(h);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(c, d)), _mm256_castpd_ps(_mm256_unpackhi_pd(c, d)));
}
QP_INLINE __m256 vs_sum_each8(const v16 *a)
{
    const __m256 s = vs_fold_two(vs_fold_quad(a[0], a[1]), vs_fold_quad(a[2], a[3]));
    const __m256 t = vs_fold_two(vs_fold_quad(a[4], a[5]), vs_fold_quad(a[6], a[7]));
    const __m256 r = _mm256_add_ps(_mm256_shuffle_ps(s, t, 0x88), _mm256_shuffle_ps(s, t, 0xDD));
    return _mm256_permutevar8x32_ps(r, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
#endif

QP_INLINE float vs_sum(v16 a)
{
    const __m256 e = vs_fold8(a);
    const __m128 f = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    const __m128 g = _mm_add_ps(f, _mm_movehl_ps(f, f));
    return _mm_cvtss_f32(_mm_add_ss(g, _mm_movehdup_ps(g)));
}

/* The greatest lane; no lane is NaN. */
QP_INLINE float vs_max_lane(v16 a)
{
#if defined(__AVX512F__)
    const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
#else
    const __m256 e = _mm256_max_ps(a.lo, a.hi);
#endif
    const __m128 f = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    const __m128 g = _mm_max_ps(f, _mm_movehl_ps(f, f));
    return _mm_cvtss_f32(_mm_max_ss(g, _mm_movehdup_ps(g)));
}

/* The first n lanes; plain loads and stores from 16 on, as masked ones are slow on some machines. */
QP_INLINE v16 vs_load_n(const float *p, size_t n)
{
    return n >= 16 ? vs_load(p) : vs_load_m(p, m16_first(n));
}
QP_INLINE void vs_store_n(float *p, v16 a, size_t n)
{
    if (n >= 16)
        vs_store(p, a);
    else
        vs_store_m(p, a, m16_first(n));
}

/* exp: x = n ln 2 + r, |r| <= ln2 / 2, 1 + r + r^2 q(r) with a minimax q (relative error 3.2e-9), times 2^n. Error
 * below 1 ulp (0.995 over every 13th float); exp(0) = 1, exp(-inf) = 0, exp(inf) = inf,
 * NaN stays, subnormal results are rounded once. */
QP_INLINE v16 vs_exp(v16 x)
{
    x = vs_min(vs_set(89.0f), vs_max(vs_set(-104.5f), x)); /* both give x for a NaN */
    const v16 n = vs_round(vs_mul(x, vs_set(0x1.715476p+0f)));
    v16 r = vs_fnma(n, vs_set(0x1.63p-1f), x); /* exact */
    r = vs_fnma(n, vs_set(-0x1.bd0106p-13f), r);
    v16 q = vs_fma(vs_set(0x1.6a1f5ep-10f), r, vs_set(0x1.123cccp-7f));
    q = vs_fma(q, r, vs_set(0x1.555904p-5f));
    q = vs_fma(q, r, vs_set(0x1.55548ep-3f));
    q = vs_fma(q, r, vs_set(0x1.fffffcp-2f));
    q = vs_fma(vs_mul(r, r), q, r);
    return vs_ldexp(vs_add(q, vs_set(1.0f)), n);
}

/* tanh: x + x z p(z), z = x^2, minimax p below 0.625 (relative error 4.1e-9), else 1 - 2 / (exp(2 |x|) + 1), with the
 * sign of x. Error below 1.4 ulp (1.32 over every 13th float); odd, tanh(+-inf) = +-1, NaN stays. */
QP_INLINE v16 vs_tanh(v16 x)
{
    const v16 a = vs_abs(x), one = vs_set(1.0f), z = vs_mul(a, a);
    v16 p = vs_fma(vs_set(-0x1.76abf4p-8f), z, vs_set(0x1.5256cep-6f));
    p = vs_fma(p, z, vs_set(-0x1.b84448p-5f));
    p = vs_fma(p, z, vs_set(0x1.110768p-3f));
    p = vs_fma(p, z, vs_set(-0x1.555534p-2f));
    const v16 small = vs_fma(vs_mul(a, z), p, a);
    const v16 large = vs_sub(one, vs_div(vs_set(2.0f), vs_add(vs_exp(vs_add(a, a)), one)));
    return vs_signed_as(vs_pick(vs_less(a, vs_set(0.625f)), small, large), x);
}

/* x / (1 + exp(-gate)) */
QP_INLINE v16 vs_gated(v16 x, v16 gate)
{
    return vs_div(x, vs_add(vs_set(1.0f), vs_exp(vs_sub(vs_set(-0.0f), gate))));
}

#endif
