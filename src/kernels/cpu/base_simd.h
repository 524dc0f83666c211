/* Row kernels and recurrent layers over simd16.h. Included by base_avx2.c and base_avx512.c alone, each of which
 * compiles it for its level. Orders of summation: cpu_kernels.h. */
#include "base/num.h"
#include "kernels/cpu/base_ref.h"
#include "kernels/cpu/simd16.h"

#include <math.h>
#include <string.h>

#define LANES 16

/* i = 0, 16, .. below n, with `left` = n - i values from there on. */
#define FOR_LANES(i, left, n) for (size_t i = 0, left = (n); i < (n); i += LANES, left -= LANES)

static float square_sum(const float *x, size_t n)
{
    v16 s = vs_set(0);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const v16 v = vs_load(x + i);
        s = vs_fma(v, v, s);
    }
    if (i < n) {
        const m16 m = m16_first(n - i);
        const v16 v = vs_load_m(x + i, m);
        s = vs_fma_m(v, v, s, m);
    }
    return vs_sum(s);
}

static void rms_norm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const v16 r = vs_set(1.0f / sqrtf(square_sum(x, n) / (float)n + eps));
    FOR_LANES(i, left, n)
    {
        const v16 v = vs_mul(vs_load_n(x + i, left), r);
        vs_store_n(y + i, w ? vs_mul(v, vs_load_n(w + i, left)) : v, left);
    }
}

static void l2_norm(float *y, const float *x, size_t n, float eps, float scale)
{
    const v16 r = vs_set(1.0f / sqrtf(square_sum(x, n) + eps)), f = vs_set(scale);
    FOR_LANES(i, left, n) vs_store_n(y + i, vs_mul(vs_mul(vs_load_n(x + i, left), r), f), left);
}

static void add(float *y, const float *x, size_t n)
{
    FOR_LANES(i, left, n) vs_store_n(y + i, vs_add(vs_load_n(y + i, left), vs_load_n(x + i, left)), left);
}

static void scale_row(float *y, const float *x, float a, size_t n)
{
    const v16 f = vs_set(a);
    FOR_LANES(i, left, n) vs_store_n(y + i, vs_mul(f, vs_load_n(x + i, left)), left);
}

static void silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    FOR_LANES(i, left, n)
    {
        const v16 g = vs_load_n(gate + i, left);
        vs_store_n(y + i, vs_mul(vs_gated(g, g), vs_load_n(up + i, left)), left);
    }
}

static void gelu_tanh_mul(float *y, const float *gate, const float *up, size_t n)
{
    const v16 a = vs_set(0.044715f), b = vs_set(0.7978845608f), half = vs_set(0.5f), one = vs_set(1.0f);
    FOR_LANES(i, left, n)
    {
        const v16 g = vs_load_n(gate + i, left), u = vs_mul(vs_mul(a, g), g);
        const v16 t = vs_tanh(vs_mul(b, vs_fma(u, g, g)));
        vs_store_n(y + i, vs_mul(vs_mul(vs_mul(half, g), vs_add(one, t)), vs_load_n(up + i, left)), left);
    }
}

static void sigmoid_mul(float *y, const float *x, const float *gate, size_t n)
{
    FOR_LANES(i, left, n) vs_store_n(y + i, vs_gated(vs_load_n(x + i, left), vs_load_n(gate + i, left)), left);
}

static void softcap(float *y, const float *x, float cap, size_t n)
{
    const v16 c = vs_set(cap);
    FOR_LANES(i, left, n) vs_store_n(y + i, vs_mul(c, vs_tanh(vs_div(vs_load_n(x + i, left), c))), left);
}

static void rope(float *x, const float *cs, size_t n_half)
{
    FOR_LANES(i, left, n_half)
    {
        const size_t pairs = 2 * left;
        v16 c, s;
        vs_unzip(vs_load_n(cs + 2 * i, pairs),
                 vs_load_n(cs + 2 * i + (pairs > LANES ? LANES : 0), pairs > LANES ? pairs - LANES : 0), &c, &s);
        const v16 a = vs_load_n(x + i, left), b = vs_load_n(x + n_half + i, left);
        vs_store_n(x + i, vs_sub(vs_mul(a, c), vs_mul(b, s)), left);
        vs_store_n(x + n_half + i, vs_add(vs_mul(b, c), vs_mul(a, s)), left);
    }
}

/* ---- conversions ---- */

static void to_f32(float *y, const void *x, qp_wtype type, size_t n)
{
    const unsigned char *b = x;
    size_t i = 0;
    if (type == QP_W_F32) {
        if (n) memmove(y, x, n * sizeof *y);
        return;
    }
    for (; i + LANES <= n; i += LANES) {
        const v16 v = type == QP_W_F16 ? vs_from_f16(b + 2 * i) : vs_from_bf16(b + 2 * i);
        vs_store(y + i, v);
        if (type == QP_W_F16 && vs_nan_bits(v)) { /* the instruction makes a signalling NaN quiet */
            for (size_t j = i; j < i + LANES; j++) y[j] = qp_ref_load(x, type, j);
        }
    }
    for (; i < n; i++) y[i] = qp_ref_load(x, type, i);
}

#if defined(__AVX512F__)
static __m256i narrow(const float *x, qp_wtype type)
{
    const __m512 v = _mm512_loadu_ps(x);
    if (type == QP_W_F16) return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet));
}
#else
static __m256i narrow8_bf16(__m256 v)
{
    const __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
}

static __m256i narrow(const float *x, qp_wtype type)
{
    const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
    if (type == QP_W_F16)
        return _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                                _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow8_bf16(a), narrow8_bf16(b)), 0xD8);
}
#endif

static void from_f32(void *y, qp_wtype type, const float *x, size_t n)
{
    unsigned char *b = y;
    size_t i = 0;
    if (type == QP_W_F32) {
        if (n) memmove(y, x, n * sizeof *x);
        return;
    }
    for (; i + LANES <= n; i += LANES) _mm256_storeu_si256((__m256i *)(void *)(b + 2 * i), narrow(x + i, type));
    for (; i < n; i++) {
        const uint16_t h = type == QP_W_F16 ? qp_f32_to_f16_rne(x[i]) : qp_f32_to_bf16_rne(x[i]);
        memcpy(b + 2 * i, &h, sizeof h);
    }
}

/* ---- over a row of logits ---- */

static float max_of(const float *x, size_t n, bool *nan)
{
    v16 top = vs_set(-INFINITY);
    unsigned bad = 0;
    FOR_LANES(i, left, n)
    {
        const v16 v = vs_pick(m16_first(left), vs_load_n(x + i, left), vs_set(-INFINITY));
        bad |= vs_nan_bits(v);
        top = vs_max(v, top); /* top for a NaN */
    }
    *nan = bad != 0;
    return vs_max_lane(top);
}

static size_t argmax(const float *x, size_t n)
{
    bool nan;
    const v16 top = vs_set(max_of(x, n, &nan));
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const unsigned hit = vs_eq_bits(vs_load(x + i), top);
        if (hit) return i + (size_t)__builtin_ctz(hit);
    }
    if (i < n) {
        const unsigned hit = vs_eq_bits(vs_load_m(x + i, m16_first(n - i)), top) & ((1u << (n - i)) - 1);
        if (hit) return i + (size_t)__builtin_ctz(hit);
    }
    return 0; /* all NaN */
}

/* exp in double on lanes, t <= 0: Taylor to r^12 / 12! (|r| <= ln2 / 2: 1.7e-16). Below -700 it counts as e^-700. */
#if defined(__AVX512F__)
typedef __m512d vd;
#define VD(op) _mm512_##op
#define VD_LANES 8
QP_INLINE vd vd_from(const float *x)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(x));
}
QP_INLINE vd vd_round(vd a)
{
    return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
typedef __m256d vd;
#define VD(op) _mm256_##op
#define VD_LANES 4
QP_INLINE vd vd_from(const float *x)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(x));
}
QP_INLINE vd vd_round(vd a)
{
    return _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#endif

QP_INLINE vd vd_exp(vd t)
{
    static const double c[13] = {
        1,          1,           1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,      1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
    t = VD(max_pd)(t, VD(set1_pd)(-700));
    const vd n = vd_round(VD(mul_pd)(t, VD(set1_pd)(0x1.71547652b82fep+0)));
    vd r = VD(fnmadd_pd)(n, VD(set1_pd)(0x1.62e42fep-1), t);
    r = VD(fnmadd_pd)(n, VD(set1_pd)(0x1.f473de6af278fp-30), r);
    vd p = VD(set1_pd)(c[12]);
    for (int i = 11; i >= 0; i--) p = VD(fmadd_pd)(p, r, VD(set1_pd)(c[i]));
#if defined(__AVX512F__)
    return _mm512_scalef_pd(p, n);
#else
    const __m256i e = _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n)), _mm256_set1_epi64x(1023));
    return _mm256_mul_pd(p, _mm256_castsi256_pd(_mm256_slli_epi64(e, 52)));
#endif
}

static double log_sum_exp(const float *x, size_t n)
{
    bool nan;
    const float top = max_of(x, n, &nan);
    if (nan) return (double)NAN;
    if (isinf(top)) return (double)top;
    const vd m = VD(set1_pd)((double)top);
    vd s = VD(setzero_pd)();
    size_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) s = VD(add_pd)(s, vd_exp(VD(sub_pd)(vd_from(x + i), m)));
    double part[VD_LANES], sum = 0;
    VD(storeu_pd)(part, s);
    for (int j = 0; j < VD_LANES; j++) sum += part[j];
    for (; i < n; i++) sum += exp((double)x[i] - (double)top);
    return (double)top + log(sum);
}

/* ---- recurrent layers ---- */

static void conv1d_silu(float *y, size_t ldy, const float *u, size_t ldu, const float *w, float *state, size_t n_tokens,
                        size_t n_channels, size_t width)
{
    enum { KEPT = 8 }; /* taps of 16 channels kept transposed; a wider filter gathers them again for every token */
    float taps[KEPT][LANES];
    FOR_LANES(c, left, n_channels)
    {
        const size_t n = left < LANES ? left : LANES;
        for (size_t j = 0; j < width && width <= KEPT; j++) {
            for (size_t i = 0; i < LANES; i++) taps[j][i] = i < n ? w[(c + i) * width + j] : 0;
        }
        for (size_t t = 0; t < n_tokens; t++) {
            v16 s = vs_set(0);
            for (size_t j = 0; j < width; j++) {
                const float *from =
                    t + j + 1 >= width ? u + (t + j + 1 - width) * ldu + c : state + (t + j) * n_channels + c;
                if (width > KEPT) {
                    for (size_t i = 0; i < LANES; i++) taps[0][i] = i < n ? w[(c + i) * width + j] : 0;
                }
                s = vs_fma(vs_load(taps[width > KEPT ? 0 : j]), vs_load_n(from, left), s);
            }
            vs_store_n(y + t * ldy + c, vs_gated(s, s), left);
        }
    }
    qp_ref_conv_state(u, ldu, state, n_tokens, n_channels, width);
}

/* GDN_COLS vectors of columns of the state for all tokens: it stays in the nearest caches (128 rows of 64 columns are
 * 32 KB), and the pass that updates it for one token also decays it and takes S^T k for the next, so each element
 * moves once a token. Four sums are in flight, which hides the latency of fmaf. */
#if defined(__AVX512F__)
#define GDN_COLS 4
#else
#define GDN_COLS 2
#endif

QP_INLINE void gdn_update(float *s, size_t dk, size_t dv, const float *k, const float *q, const v16 *e, v16 *o,
                          const float *k2, v16 decay2, v16 *sum2, int n_cols, size_t left)
{
    for (size_t i = 0; i < dk; i++) {
        const v16 ki = vs_set(k[i]), qi = vs_set(q[i]), k2i = vs_set(k2 ? k2[i] : 0);
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) {
            float *p = s + i * dv + c * LANES;
            v16 x = vs_load_n(p, left);
            x = vs_fma(ki, e[c], x);
            o[c] = vs_fma(x, qi, o[c]);
            if (k2) {
                x = vs_mul(x, decay2);
                sum2[c] = vs_fma(x, k2i, sum2[c]);
            }
            vs_store_n(p, x, left);
        }
    }
}

QP_INLINE void gdn_columns(const qp_gdn_args *a, size_t col, int n_cols, size_t left)
{
    const size_t dk = a->dk, dv = a->dv;
    float *s = a->state + col;
    v16 sum[GDN_COLS];
    for (int c = 0; c < n_cols; c++) sum[c] = vs_set(0);
    for (size_t i = 0; i < dk; i++) { /* decay and S^T k of the first token */
        for (int c = 0; c < n_cols; c++) {
            float *p = s + i * dv + c * LANES;
            const v16 x = vs_mul(vs_load_n(p, left), vs_set(a->decay[0]));
            sum[c] = vs_fma(x, vs_set(a->k[i]), sum[c]);
            vs_store_n(p, x, left);
        }
    }
    for (size_t t = 0; t < a->n_tokens; t++) {
        const float *k = a->k + t * a->ldk, *q = a->q + t * a->ldq, *v = a->v + t * a->ldv + col;
        v16 e[GDN_COLS], o[GDN_COLS];
        for (int c = 0; c < n_cols; c++) {
            const v16 vt = vs_load_n(v + c * LANES, left);
            e[c] = vs_mul(vs_set(a->beta[t * a->ldg]), vs_sub(vt, sum[c]));
            o[c] = sum[c] = vs_set(0);
        }
        if (t + 1 < a->n_tokens)
            gdn_update(s, dk, dv, k, q, e, o, k + a->ldk, vs_set(a->decay[(t + 1) * a->ldg]), sum, n_cols, left);
        else
            gdn_update(s, dk, dv, k, q, e, o, NULL, vs_set(0), sum, n_cols, left);
        for (int c = 0; c < n_cols; c++) {
            float *out = a->out + t * a->ldo + col;
            vs_store_n(out + c * LANES, o[c], left);
        }
    }
}

static void gated_delta(const qp_gdn_args *a)
{
    size_t col = 0;
    if (a->n_tokens == 0) return;
    for (; col + GDN_COLS * LANES <= a->dv; col += GDN_COLS * LANES) gdn_columns(a, col, GDN_COLS, LANES);
    for (; col < a->dv; col += LANES) gdn_columns(a, col, 1, a->dv - col);
}

static void fill_rows(qp_cpu_kernels *k)
{
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->add = add;
    k->scale = scale_row;
    k->silu_mul = silu_mul;
    k->gelu_tanh_mul = gelu_tanh_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->softcap = softcap;
    k->rope = rope;
    k->to_f32 = to_f32;
    k->from_f32 = from_f32;
    k->argmax = argmax;
    k->log_sum_exp = log_sum_exp;
    k->conv1d_silu = conv1d_silu;
    k->gated_delta = gated_delta; /* gdn_gates is a few values a token: ref's */
}
