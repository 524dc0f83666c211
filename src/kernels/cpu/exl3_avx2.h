/* EXL3, level avx2: states of a tile. Internal to exl3_*_avx2.c.
 *
 * A unit is one column of a tile: four lanes, four states each (the first four of a lane belong to column c, the last
 * four to column c + 8). Sixteen bytes hold the bits of two lanes, so a vector is made of two loads. A state is the low
 * part of one 16-bit stream word and the high part of the next; vpshufb gathers both, and since AVX2 has no variable
 * shift of words, x << s is vpmullw by 2^s and x >> (16 - s) is vpmulhuw by 2^s (nothing for s = 0, as wanted).
 * Word order of a unit: rows 2i + {0, 1, 8, 9} for i = 0 .. 3, the order of quantized activations. */
#ifndef QP_KERNELS_CPU_EXL3_AVX2_H
#define QP_KERNELS_CPU_EXL3_AVX2_H

#include "kernels/cpu/exl3_simd.h"

#include <immintrin.h>

/* First bit of state j of lane `lane`; dword of the stream where the load for states 4h .. of lanes lane, lane + 1
 * begins (-1: the tile's last). */
#define STATE_BIT(K2, lane, j) (4 * (K2) * (lane) + ((j) + 1) * (K2) / 2 - 16)
#define LOAD_DWORD(K2, lane, h) ((STATE_BIT(K2, lane, 4 * (h)) + 32) / 32 - 1)
/* The same from that load on: lane l0 + d. */
#define REL_BIT(K2, l0, d, h, j) (STATE_BIT(K2, (l0) + (d), 4 * (h) + (j)) - 32 * LOAD_DWORD(K2, l0, h))
#define PLACE(w) 2 * (((w)&7) ^ 1), 2 * (((w)&7) ^ 1) + 1
#define FIRST_WORD(K2, l0, d, h, j) PLACE(REL_BIT(K2, l0, d, h, j) / 16)
#define NEXT_WORD(K2, l0, d, h, j) PLACE(REL_BIT(K2, l0, d, h, j) / 16 + 1)
#define POWER(K2, l0, d, h, j) (uint16_t)(1u << REL_BIT(K2, l0, d, h, j) % 16)
#define OF4(F, K2, l0, d, h) F(K2, l0, d, h, 0), F(K2, l0, d, h, 1), F(K2, l0, d, h, 2), F(K2, l0, d, h, 3)
#define OF16(F, K2, p, h)                                                                                              \
    {                                                                                                                  \
        OF4(F, K2, 4 * (p), 0, h), OF4(F, K2, 4 * (p), 1, h), OF4(F, K2, 4 * (p) + 2, 0, h),                           \
            OF4(F, K2, 4 * (p) + 2, 1, h)                                                                              \
    }
#define UNIT(K2, p, h)                                                                                                 \
    {                                                                                                                  \
        OF16(FIRST_WORD, K2, p, h), OF16(NEXT_WORD, K2, p, h), OF16(POWER, K2, p, h)                                   \
    }
#define UNITS(K2) {{UNIT(K2, 0, 0), UNIT(K2, 0, 1)}, {UNIT(K2, 1, 0), UNIT(K2, 1, 1)}},

typedef struct avx2_unit {
    uint8_t first[32], next[32];
    uint16_t power[16];
} avx2_unit;

/* By rate, parity of the column (half rates: a column is an odd number of words) and half. */
static const avx2_unit avx2_units[11][2][2] = {QP_EXL3_RATES(UNITS)};

/* Sixteen bytes from dword `at` of a tile of 4 K2 dwords on, -1 meaning the last; bytes past the end are not read (and
 * not used). */
QP_INLINE __m128i avx2_load16(const int K2, const uint8_t *tile, const int at)
{
    const __m128i *end = (const __m128i *)(tile + 16 * K2 - 16);
    if (at < 0) return _mm_alignr_epi8(_mm_loadu_si128((const __m128i *)tile), _mm_loadu_si128(end), 12);
    if (at + 4 == 4 * K2 + 1) return _mm_srli_si128(_mm_loadu_si128(end), 4);
    if (at + 4 == 4 * K2 + 2) return _mm_srli_si128(_mm_loadu_si128(end), 8);
    if (at + 4 == 4 * K2 + 3) return _mm_srli_si128(_mm_loadu_si128(end), 12);
    return _mm_loadu_si128((const __m128i *)(tile + 4 * at));
}

/* The sixteen states of column c + 8 h, c = 0 .. 7. */
QP_INLINE __m256i avx2_states(const int K2, const uint8_t *tile, const int c, const int h)
{
    const avx2_unit *u = &avx2_units[qp_exl3_rate_index((uint32_t)K2 * 8)][K2 & c & 1][h];
    const __m128i lo = avx2_load16(K2, tile, LOAD_DWORD(K2, 4 * c, h));
    const __m128i hi = avx2_load16(K2, tile, LOAD_DWORD(K2, 4 * c + 2, h));
    const __m256i t = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
    const __m256i power = _mm256_loadu_si256((const __m256i *)u->power);
    const __m256i a = _mm256_shuffle_epi8(t, _mm256_loadu_si256((const __m256i *)u->first));
    const __m256i b = _mm256_shuffle_epi8(t, _mm256_loadu_si256((const __m256i *)u->next));
    return _mm256_or_si256(_mm256_mullo_epi16(a, power), _mm256_mulhi_epu16(b, power));
}

/* Byte sums of a column, 0 .. 1020. */
QP_INLINE __m256i avx2_bytesums(const int K2, const uint8_t *tile, const int c, const int h)
{
    const __m256i mlo = _mm256_set1_epi16(QP_MUL1_LO), mhi = _mm256_set1_epi16(QP_MUL1_HI);
    const __m256i ones = _mm256_set1_epi8(1), st = avx2_states(K2, tile, c, h);
    const __m256i lo = _mm256_mullo_epi16(st, mlo);
    const __m256i hi = _mm256_add_epi16(_mm256_mulhi_epu16(st, mlo), _mm256_mullo_epi16(st, mhi));
    return _mm256_add_epi16(_mm256_maddubs_epi16(lo, ones), _mm256_maddubs_epi16(hi, ones));
}

/* Accumulators of a block of tile columns: 16 vectors of int32 and 16 int64 each, tile columns times rows. */
enum { QP_AVX2_BLOCK_ACCS = 64, QP_AVX2_ACC_BYTES = 16 * 32 + 16 * 8 };

void qp_exl3_mul_i16_avx2(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                          size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch);
void qp_exl3_mul_f32_avx2(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh,
                          size_t ldx, size_t n_rows, void *scratch);

#endif
