/* EXL3 fp32 product, level avx2. Lanes are columns, k is sequential (cpu_kernels.h). The states of a column
 * (exl3_avx2.h) become sixteen values; eight columns are transposed into rows of a tile [16][16] in scratch or in a
 * panel [n_in][16], and blocks of up to 6 rows run over that. Rounding to fp16: see exl3_f32_zmm.h. */
#include "kernels/cpu/exl3_avx2.h"

enum { ROWS = 6 };

QP_INLINE __m256 round11(__m256 v)
{
    const __m256 g = _mm256_mul_ps(v, _mm256_set1_ps(8193.0f));
    return _mm256_add_ps(g, _mm256_sub_ps(v, g));
}

QP_INLINE __m256 half_value(__m256i x)
{
    const __m256i kept = _mm256_and_si256(_mm256_srai_epi32(x, 3), _mm256_set1_epi32((int)0x81FFE000u));
    return _mm256_castsi256_ps(_mm256_xor_si256(kept, _mm256_set1_epi32(0x3F6C0000)));
}

/* Eight values of the 3inst and mcg codebooks. */
QP_INLINE __m256 half_sum8(const int book, __m128i st)
{
    __m256i x = _mm256_mullo_epi32(_mm256_cvtepu16_epi32(st),
                                   _mm256_set1_epi32(book == QP_EXL3_MCG ? (int)0xCBAC1FEDu : 89226354));
    if (book == QP_EXL3_3INST) x = _mm256_add_epi32(x, _mm256_set1_epi32(64248484));
    return round11(_mm256_add_ps(half_value(_mm256_slli_epi32(x, 16)), half_value(x)));
}

/* Eight values of mul1 from byte sums: s a + (1024 a - 10.3828125) is exact, then one rounding. */
QP_INLINE __m256 mul1_8(__m128i s)
{
    return round11(_mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(s)), _mm256_set1_ps(0x1.bb8p-8f),
                                   _mm256_set1_ps(-3.453125f)));
}

/* The first (half 0) or last eight words of column c + 8 h as values. */
QP_INLINE __m256 values8(const int book, __m256i words, const int half)
{
    const __m128i w = half ? _mm256_extracti128_si256(words, 1) : _mm256_castsi256_si128(words);
    return book == QP_EXL3_MUL1 ? mul1_8(w) : half_sum8(book, w);
}

/* Columns v[0..7] of eight words each to rows: word j is row 4 half + row_of[j], stored at out + 16 row. */
QP_INLINE void store_transposed(float *out, const __m256 v[8], const int half)
{
    static const unsigned char row_of[8] = {0, 1, 8, 9, 2, 3, 10, 11};
    __m256 a[8], b[8];
    QP_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    QP_UNROLL
    for (int i = 0; i < 8; i += 4) QP_UNROLL
    for (int j = 0; j < 2; j++) {
        b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0x44);
        b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0xEE);
    }
    QP_UNROLL
    for (int j = 0; j < 4; j++) {
        _mm256_store_ps(out + 16 * (4 * half + row_of[j]), _mm256_permute2f128_ps(b[j], b[j + 4], 0x20));
        _mm256_store_ps(out + 16 * (4 * half + row_of[j + 4]), _mm256_permute2f128_ps(b[j], b[j + 4], 0x31));
    }
}

/* out[16][16] = the values of a tile. */
QP_INLINE void decode_tile(const int K2, const int book, float *out, const uint8_t *tile)
{
    QP_UNROLL
    for (int h = 0; h < 2; h++) {
        __m256i w[8];
        QP_UNROLL
        for (int c = 0; c < 8; c++)
            w[c] = book == QP_EXL3_MUL1 ? avx2_bytesums(K2, tile, c, h) : avx2_states(K2, tile, c, h);
        QP_UNROLL
        for (int half = 0; half < 2; half++) {
            __m256 v[8];
            QP_UNROLL
            for (int c = 0; c < 8; c++) v[c] = values8(book, w[c], half);
            store_transposed(out + 8 * h, v, half);
        }
    }
}

typedef void decode_fn(float *panel, const uint8_t *tile, size_t stride, size_t n_kt);

#define DECODE(K2, B)                                                                                                  \
    static void decode_##K2##_##B(float *panel, const uint8_t *tile, size_t stride, size_t n_kt)                       \
    {                                                                                                                  \
        for (size_t k = 0; k < n_kt; k++, tile += stride, panel += 256) {                                              \
            for (int b = 0; b < 16 * K2; b += 64) _mm_prefetch((const char *)tile + 8 * stride + b, _MM_HINT_T0);      \
            decode_tile(K2, B, panel, tile);                                                                           \
        }                                                                                                              \
    }
#define DECODE3(K2) DECODE(K2, 0) DECODE(K2, 1) DECODE(K2, 2)
#define DECODE_ROW(K2) {decode_##K2##_0, decode_##K2##_1, decode_##K2##_2},
QP_EXL3_RATES(DECODE3)
static decode_fn *const decode_of[11][3] = {QP_EXL3_RATES(DECODE_ROW)};

/* acc[R][16] += n_k >= 1 rows of the panel times R rows of x. */
QP_INLINE void block_run(const int R, float *acc, size_t ld, const float *panel, const float *x, size_t ldx, size_t n_k)
{
    __m256 s[ROWS][2];
    QP_UNROLL
    for (int r = 0; r < R; r++) {
        s[r][0] = _mm256_loadu_ps(acc + r * ld);
        s[r][1] = _mm256_loadu_ps(acc + r * ld + 8);
    }
    size_t k = 0;
    do {
        const __m256 w0 = _mm256_load_ps(panel + 16 * k), w1 = _mm256_load_ps(panel + 16 * k + 8);
        QP_UNROLL
        for (int r = 0; r < R; r++) {
            const __m256 xv = _mm256_broadcast_ss(x + r * ldx + k);
            s[r][0] = _mm256_fmadd_ps(w0, xv, s[r][0]);
            s[r][1] = _mm256_fmadd_ps(w1, xv, s[r][1]);
        }
    } while (++k < n_k);
    QP_UNROLL
    for (int r = 0; r < R; r++) {
        _mm256_storeu_ps(acc + r * ld, s[r][0]);
        _mm256_storeu_ps(acc + r * ld + 8, s[r][1]);
    }
}

static void block(size_t n_rows, float *acc, size_t ld, const float *panel, const float *x, size_t ldx, size_t n_k)
{
    switch (n_rows) {
    case 1:
        block_run(1, acc, ld, panel, x, ldx, n_k);
        break;
    case 2:
        block_run(2, acc, ld, panel, x, ldx, n_k);
        break;
    case 3:
        block_run(3, acc, ld, panel, x, ldx, n_k);
        break;
    case 4:
        block_run(4, acc, ld, panel, x, ldx, n_k);
        break;
    case 5:
        block_run(5, acc, ld, panel, x, ldx, n_k);
        break;
    default:
        block_run(6, acc, ld, panel, x, ldx, n_k);
        break;
    }
}

/* The panel of a tile column is decoded whole for many rows; for few, in pieces of 8 tile rows that stay in the first
 * cache, walking along the tile columns so that memory is read in order: yh itself holds the sums between. */
void qp_exl3_mul_f32_avx2(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh,
                          size_t ldx, size_t n_rows, void *scratch)
{
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const size_t piece = n_rows > ROWS ? n_kt : 8;
    const uint8_t *base = (const uint8_t *)t->trellis;
    decode_fn *const dec = decode_of[qp_exl3_rate_index(t->n_words)][t->codebook];
    for (size_t m = 0; m < n_rows; m++) memset(yh + m * ldy + tile0 * 16, 0, (tile1 - tile0) * 16 * sizeof *yh);
    for (size_t k = 0; k < n_kt && n_rows; k += piece) {
        const size_t n = n_kt - k < piece ? n_kt - k : piece;
        for (size_t c = tile0; c < tile1; c++) {
            dec(scratch, base + k * stride + c * tile_bytes, stride, n);
            for (size_t m = 0; m < n_rows; m += ROWS)
                block(n_rows - m < ROWS ? n_rows - m : ROWS, yh + m * ldy + c * 16, ldy, scratch, xh + m * ldx + k * 16,
                      ldx, n * 16);
        }
    }
}
