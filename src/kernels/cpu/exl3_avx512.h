/* EXL3, level avx512: states of a tile without VBMI. Internal to exl3_*_avx512.c.
 *
 * The 16-bit words of the stream (the load's words, swapped in pairs) are gathered by vpermw: a state is the low part
 * of one word and the high part of the next, put together by two variable shifts. 32 states in five instructions, the
 * tables serve every group because a group is a whole number of words. */
#ifndef QP_KERNELS_CPU_EXL3_AVX512_H
#define QP_KERNELS_CPU_EXL3_AVX512_H

#include "kernels/cpu/exl3_zmm.h"

/* Bits from the load's first bit (32 before the group's) to state j of lane q; K = 8: the second half of the states
 * has a load of its own, at the group. */
#define STATE_BIT(K2, q, j) (32 + 4 * (K2) * (q) + ((j) + 1) * (K2) / 2 - 16 - ((K2) == 16 && (j) >= 4 ? 32 : 0))
#define WORD_A(K2, q, j) ((STATE_BIT(K2, q, j) / 16) ^ 1)
#define WORD_B(K2, q, j) (((STATE_BIT(K2, q, j) / 16 + 1) & 31) ^ 1)
#define SHIFT(K2, q, j) (STATE_BIT(K2, q, j) % 16)
#define OF4(F, K2, q, h) F(K2, q, 4 * (h)), F(K2, q, 4 * (h) + 1), F(K2, q, 4 * (h) + 2), F(K2, q, 4 * (h) + 3)
#define OF32(F, K2, h)                                                                                                 \
    {                                                                                                                  \
        OF4(F, K2, 0, h), OF4(F, K2, 1, h), OF4(F, K2, 2, h), OF4(F, K2, 3, h), OF4(F, K2, 4, h), OF4(F, K2, 5, h),    \
            OF4(F, K2, 6, h), OF4(F, K2, 7, h)                                                                         \
    }
#define TABLES(K2)                                                                                                     \
    {{OF32(WORD_A, K2, 0), OF32(WORD_B, K2, 0), OF32(SHIFT, K2, 0)},                                                   \
     {OF32(WORD_A, K2, 1), OF32(WORD_B, K2, 1), OF32(SHIFT, K2, 1)}},

static const uint16_t avx512_tables[11][2][3][32] = {QP_EXL3_RATES(TABLES)};

typedef struct lv_i16 {
    __m512i a[2], b[2], left[2], right[2]; /* words of the states, shifts */
    zmm_mul1 m;
} lv_i16;

QP_INLINE lv_i16 lv_i16_load(const int K2)
{
    lv_i16 c;
    for (int h = 0; h < 2; h++) {
        const uint16_t(*const t)[32] = avx512_tables[qp_exl3_rate_index((uint32_t)K2 * 8)][h];
        c.a[h] = _mm512_loadu_si512(t[0]);
        c.b[h] = _mm512_loadu_si512(t[1]);
        c.left[h] = _mm512_loadu_si512(t[2]);
        c.right[h] = _mm512_sub_epi16(_mm512_set1_epi16(16), c.left[h]); /* 16: all bits out, as wanted */
    }
    c.m = zmm_mul1_load();
    return c;
}

/* States 4h .. 4h + 3 of the eight lanes of group g, in the order of exl3_vnni.h. */
QP_INLINE __m512i avx512_states(const int K2, const uint8_t *tile, const int g, const int h, const lv_i16 *c)
{
    const __m512i t = K2 == 16 && h ? _mm512_loadu_si512(tile + 64 * g) : zmm_group_load(K2, tile, g);
    return _mm512_or_si512(_mm512_sllv_epi16(_mm512_permutexvar_epi16(c->a[h], t), c->left[h]),
                           _mm512_srlv_epi16(_mm512_permutexvar_epi16(c->b[h], t), c->right[h]));
}

/* As in exl3_vnni.h. */
QP_INLINE void lv_group_bytesums(const int K2, const uint8_t *tile, const int g, const lv_i16 *c, __m512i b[2])
{
    b[0] = zmm_bytesum(avx512_states(K2, tile, g, 0, c), &c->m);
    b[1] = zmm_bytesum(avx512_states(K2, tile, g, 1, c), &c->m);
}

enum { LV_GEMM_ROWS = 10 }; /* 12 rows by 2 vectors spill: 100 against 109 G weights/s and row */

QP_INLINE qp_v16si lv_dot(qp_v16si acc, __m512i w, __m512i x)
{
    return acc + (qp_v16si)_mm512_madd_epi16(w, x);
}

/* ---- for the fp32 path: windows of four stream words, first word on top ----
 * The window of lane q starts with the word of its first state (K = 7, 8: with that of state 4 in the second one); 64
 * bits hold all states up to K = 6 because a lane then starts on a multiple of 4 bits at worst 15 into a word. */
#define WINDOW_WORD(K2, q, j0, p) (((STATE_BIT(K2, q, j0) / 16 + 3 - (p)) & 31) ^ 1)
#define WINDOW_OF4(K2, q, j0)                                                                                          \
    WINDOW_WORD(K2, q, j0, 0), WINDOW_WORD(K2, q, j0, 1), WINDOW_WORD(K2, q, j0, 2), WINDOW_WORD(K2, q, j0, 3)
#define WINDOW_32(K2, j0)                                                                                              \
    {                                                                                                                  \
        WINDOW_OF4(K2, 0, j0), WINDOW_OF4(K2, 1, j0), WINDOW_OF4(K2, 2, j0), WINDOW_OF4(K2, 3, j0),                    \
            WINDOW_OF4(K2, 4, j0), WINDOW_OF4(K2, 5, j0), WINDOW_OF4(K2, 6, j0), WINDOW_OF4(K2, 7, j0)                 \
    }
#define WINDOW_TABLES(K2) {WINDOW_32(K2, 0), WINDOW_32(K2, 4)},

static const uint16_t avx512_windows[11][2][32] = {QP_EXL3_RATES(WINDOW_TABLES)};

typedef struct lv_f32 {
    __m512i idx[2];
} lv_f32;

QP_INLINE lv_f32 lv_f32_load(const int K2)
{
    const uint16_t(*const t)[32] = avx512_windows[qp_exl3_rate_index((uint32_t)K2 * 8)];
    const lv_f32 c = {{_mm512_loadu_si512(t[0]), _mm512_loadu_si512(t[1])}};
    return c;
}

QP_INLINE void lv_windows(const int K2, const uint8_t *tile, const int g, const lv_f32 *c, __m512i *a, __m512i *b)
{
    const __m512i t = zmm_group_load(K2, tile, g);
    *a = *b = _mm512_permutexvar_epi16(c->idx[0], t);
    if (K2 > 12) *b = _mm512_permutexvar_epi16(c->idx[1], K2 == 16 ? _mm512_loadu_si512(tile + 64 * g) : t);
}

/* Bit of its window where state j of lane q begins; only q mod 4 counts. */
QP_INLINE int avx512_state_bit(const int K2, const int q, const int j)
{
    const int first = STATE_BIT(K2, q, K2 > 12 && j >= 4 ? 4 : 0) / 16 * 16;
    return 48 - (STATE_BIT(K2, q, j) - first);
}

/* From transposed windows of the lanes i mod 4: state j in the even, state j + 4 in the odd dwords. */
QP_INLINE __m512i lv_states16(const int K2, __m512i a, __m512i b, const int i, const int j)
{
    const __m512i lo = _mm512_rorv_epi64(a, _mm512_set1_epi64(avx512_state_bit(K2, i, j)));
    const __m512i hi = _mm512_rorv_epi64(b, _mm512_set1_epi64((avx512_state_bit(K2, i, j + 4) + 32) % 64));
    return _mm512_and_si512(_mm512_mask_mov_epi32(lo, 0xAAAA, hi), _mm512_set1_epi32(0xFFFF));
}

QP_INLINE __m512i lv_bytesum32(__m512i x, __m512i base)
{
    const __m512i pairs = _mm512_maddubs_epi16(x, _mm512_set1_epi8(1));
    return _mm512_add_epi32(base, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

#endif
