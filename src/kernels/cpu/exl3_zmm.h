/* EXL3: what the two AVX-512 levels share (avx512 and vnni). Internal to exl3_*_avx512.c and exl3_*_vnni.c.
 *
 * A tile is 32 lanes of 8 weights; a group is 8 lanes, 8 K bytes. One unaligned load that starts one word before the
 * group holds every bit its 64 states need (the first ones reach up to 15 bits back; before the first group comes the
 * tile's last word). Nothing outside the tile is read: loads that would pass its end are masked. How states are cut
 * from the load differs by level: exl3_avx512.h, exl3_vnni.h; both define
 *     lv_i16, lv_i16_load(K2), lv_group_bytesums(...), lv_dot(...), LV_GEMM_ROWS  for exl3_i16_zmm.h
 *     lv_f32, lv_f32_load(K2), lv_windows(...), lv_states16(...), lv_bytesum32(...)  for exl3_f32_zmm.h
 * Everywhere K2 is twice the bits a weight, a constant after inlining. */
#ifndef QP_KERNELS_CPU_EXL3_ZMM_H
#define QP_KERNELS_CPU_EXL3_ZMM_H

#include "kernels/cpu/exl3_simd.h"

#include <immintrin.h>

/* Accumulators of int32 products are declared with this type and not as __m512i: gcc 12 copies an accumulator of
 * another element type before and after every product (two moves a product, 5.9 instead of 4.9 cycles for 32 weights).
 */
typedef int32_t qp_v16si __attribute__((vector_size(64)));

/* Accumulators of a block of tile columns, 8 vectors of int32 and 16 int64 each: tile columns times rows. */
enum { QP_ZMM_BLOCK_ACCS = 128, QP_ZMM_ACC_BYTES = 8 * 64 + 16 * 8 };

/* Scratch of the products. Few rows: accumulators of a block. More: a panel of 32 columns of int16 or 16 of fp32. */
QP_INLINE size_t qp_exl3_zmm_scratch(size_t n_in)
{
    const size_t accs = (size_t)QP_ZMM_BLOCK_ACCS * QP_ZMM_ACC_BYTES, panel = n_in * 64;
    return panel > accs ? panel : accs;
}

/* The 64 bytes that start one word before group g of the tile, as far as they are the tile's (2 K + 1 words are used).
 */
QP_INLINE __m512i zmm_group_load(const int K2, const uint8_t *tile, const int g)
{
    const int at = 4 * K2 * g - 4;
    const __mmask16 need = (__mmask16)((1u << (K2 + 1 < 16 ? K2 + 1 : 16)) - 1);
    const uint8_t *p = (const uint8_t *)((uintptr_t)tile + (uintptr_t)(intptr_t)at);
    if (g == 0) /* the word before the tile is not the tile's: its last one takes that place */
        return _mm512_mask_loadu_epi32(_mm512_set1_epi32((int)qp_load32(tile + 16 * K2 - 4)), need & 0xFFFE, p);
    if (at + 64 <= 16 * K2) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi32(need, p);
}

/* mul1 in registers. */
typedef struct zmm_mul1 {
    __m512i mlo, mhi, ones;
} zmm_mul1;

QP_INLINE zmm_mul1 zmm_mul1_load(void)
{
    const zmm_mul1 m = {_mm512_set1_epi16(QP_MUL1_LO), _mm512_set1_epi16(QP_MUL1_HI), _mm512_set1_epi8(1)};
    return m;
}

/* Byte sums of state * multiplier, 32 words: the product in 16-bit halves, then pairs of bytes. */
QP_INLINE __m512i zmm_bytesum(__m512i st, const zmm_mul1 *m)
{
    const __m512i lo = _mm512_mullo_epi16(st, m->mlo);
    const __m512i hi = _mm512_add_epi16(_mm512_mulhi_epu16(st, m->mlo), _mm512_mullo_epi16(st, m->mhi));
    return _mm512_add_epi16(_mm512_maddubs_epi16(lo, m->ones), _mm512_maddubs_epi16(hi, m->ones));
}

void qp_exl3_mul_i16_avx512(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                            size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch);
void qp_exl3_mul_f32_avx512(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh,
                            size_t ldx, size_t n_rows, void *scratch);
void qp_exl3_mul_i16_vnni(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                          size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch);
void qp_exl3_mul_f32_vnni(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh,
                          size_t ldx, size_t n_rows, void *scratch);

#endif
