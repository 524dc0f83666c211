/* EXL3 integer product, level avx2: exl3_avx2.h gives the byte sums of one column as sixteen words; vpmaddwd and vpaddd
 * take the products.
 *
 * 1 and 2 rows: four columns at a time over a run of 8 tile rows, accumulators in scratch between runs (why: see
 * exl3_i16_zmm.h). More rows: a tile column is decoded once into a panel [n_in/16][16 columns] of sixteen words, then
 * blocks of 3 rows by 4 columns run over it. Sums are exact; the bias 510 as in exl3_i16_zmm.h. */
#include "kernels/cpu/exl3_avx2.h"

enum { RUN_TILES = 8, AHEAD_TILES = 4, GEMV_ROWS = 2, GEMM_ROWS = 3, GEMM_FLUSH_TILES = 2 * QP_EXL3_FLUSH_TILES };

typedef int32_t v8si __attribute__((vector_size(32)));

QP_INLINE v8si dot(v8si acc, __m256i w, __m256i x)
{
    return acc + (v8si)_mm256_madd_epi16(w, x);
}

/* Sums of the eight dwords of four vectors, which must fit int32. */
QP_INLINE __m128i sum4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* acc64[4] += sums of four accumulators: low and high halves apart, so that eight of them fit int32. */
QP_INLINE void flush4(int64_t acc64[4], const v8si v[4])
{
    const __m256i m = _mm256_set1_epi32(0xFFFF);
    __m256i lo[4], hi[4];
    for (int i = 0; i < 4; i++) {
        lo[i] = _mm256_and_si256((__m256i)v[i], m);
        hi[i] = _mm256_srai_epi32((__m256i)v[i], 16);
    }
    const __m256i l = _mm256_cvtepi32_epi64(sum4(lo[0], lo[1], lo[2], lo[3]));
    const __m256i h = _mm256_cvtepi32_epi64(sum4(hi[0], hi[1], hi[2], hi[3]));
    const __m256i s = _mm256_add_epi64(l, _mm256_slli_epi64(h, 16));
    _mm256_storeu_si256((__m256i *)acc64, _mm256_add_epi64(_mm256_loadu_si256((const __m256i *)acc64), s));
}

QP_INLINE float finish(int64_t acc, float scale, int64_t sum)
{
    return (float)((double)scale * (QP_MUL1_SCALE * (double)acc + QP_MUL1_OFFSET * (double)sum));
}

/* ---------------------------------------------------------------- 1 and 2 rows */

/* Adds n >= 1 tile rows to columns 2g, 2g + 1 and those 8 later: acc[R][16] in the order of columns. */
QP_INLINE void run_group(const int K2, const int R, const int g, const uint8_t *tile, const uint8_t *ahead,
                         size_t stride, size_t n, const int16_t *x, size_t ldx, v8si *acc)
{
    const uint8_t *const end = tile + n * stride;
    v8si a[2][4];
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int i = 0; i < 4; i++) a[r][i] = acc[16 * r + 2 * g + i % 2 + i / 2 * 8];
    do {
        if (g == 0)
            for (int b = 0; b < 16 * K2; b += 64) _mm_prefetch((const char *)ahead + b, _MM_HINT_T0);
        QP_UNROLL
        for (int i = 0; i < 4; i++) {
            const __m256i w = avx2_bytesums(K2, tile, 2 * g + i % 2, i / 2);
            QP_UNROLL
            for (int r = 0; r < R; r++) a[r][i] = dot(a[r][i], w, _mm256_loadu_si256((const __m256i *)(x + r * ldx)));
        }
        tile += stride;
        ahead += stride;
        x += 16;
    } while (tile != end);
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int i = 0; i < 4; i++) acc[16 * r + 2 * g + i % 2 + i / 2 * 8] = a[r][i];
}

typedef void run_fn(const uint8_t *tile, const uint8_t *ahead, size_t stride, size_t n, const int16_t *x, size_t ldx,
                    v8si *acc);

#define RUN(K2, R)                                                                                                     \
    static void run_##K2##_##R(const uint8_t *tile, const uint8_t *ahead, size_t stride, size_t n, const int16_t *x,   \
                               size_t ldx, v8si *acc)                                                                  \
    {                                                                                                                  \
        run_group(K2, R, 0, tile, ahead, stride, n, x, ldx, acc);                                                      \
        run_group(K2, R, 1, tile, ahead, stride, n, x, ldx, acc);                                                      \
        run_group(K2, R, 2, tile, ahead, stride, n, x, ldx, acc);                                                      \
        run_group(K2, R, 3, tile, ahead, stride, n, x, ldx, acc);                                                      \
    }
#define RUN2(K2) RUN(K2, 1) RUN(K2, 2)
#define RUN2_ROW(K2) {run_##K2##_1, run_##K2##_2},
QP_EXL3_RATES(RUN2)
static run_fn *const run_of[11][GEMV_ROWS] = {QP_EXL3_RATES(RUN2_ROW)};

/* One block of n_c tile columns for all of k: acc [n_c][n_rows][16] and acc64 [n_c][n_rows][16] are scratch. */
static void gemv_block(run_fn *fn, const uint8_t *base, size_t tile_bytes, size_t stride, size_t n_kt, size_t n_c,
                       const int16_t *xq, size_t ldx, size_t n_rows, v8si *acc, int64_t *acc64)
{
    memset(acc64, 0, n_c * n_rows * 16 * sizeof *acc64);
    for (size_t k0 = 0; k0 < n_kt; k0 += QP_EXL3_FLUSH_TILES) {
        const size_t k1 = n_kt - k0 < QP_EXL3_FLUSH_TILES ? n_kt : k0 + QP_EXL3_FLUSH_TILES;
        memset(acc, 0, n_c * n_rows * 16 * sizeof *acc);
        for (size_t k = k0; k < k1; k += RUN_TILES) {
            const size_t n = k1 - k < RUN_TILES ? k1 - k : RUN_TILES;
            const uint8_t *row = base + k * stride;
            for (size_t c = 0; c < n_c; c++) {
                /* at the end of a run: the start of the next one; in the last, what is here already */
                const size_t at = c + AHEAD_TILES < n_c ? c + AHEAD_TILES : c;
                const uint8_t *ahead = at == c && k + n < n_kt && c + AHEAD_TILES - n_c < n_c
                                           ? row + n * stride + (c + AHEAD_TILES - n_c) * tile_bytes
                                           : row + at * tile_bytes;
                fn(row + c * tile_bytes, ahead, stride, n, xq + k * 16, ldx, acc + c * n_rows * 16);
            }
        }
        for (size_t i = 0; i < n_c * n_rows * 4; i++) flush4(acc64 + 4 * i, acc + 4 * i);
    }
}

static void gemv(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                 const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const size_t block = QP_AVX2_BLOCK_ACCS / n_rows;
    const uint8_t *base = (const uint8_t *)t->trellis;
    run_fn *const fn = run_of[qp_exl3_rate_index(t->n_words)][n_rows - 1];
    v8si *acc = scratch;
    int64_t *acc64 = (int64_t *)(acc + 16 * QP_AVX2_BLOCK_ACCS);
    for (size_t c0 = tile0; c0 < tile1; c0 += block) {
        const size_t n_c = tile1 - c0 < block ? tile1 - c0 : block;
        gemv_block(fn, base + c0 * tile_bytes, tile_bytes, stride, n_kt, n_c, xq, ldx, n_rows, acc, acc64);
        for (size_t c = 0; c < n_c; c++)
            for (size_t r = 0; r < n_rows; r++)
                for (size_t i = 0; i < 16; i++)
                    yh[r * ldy + (c0 + c) * 16 + i] =
                        finish(acc64[(c * n_rows + r) * 16 + i] - 510 * sum[r], scale[r], sum[r]);
    }
}

/* ---------------------------------------------------------------- more rows */

/* panel[kt * 16 + column]: centred byte sums. */
QP_INLINE void decode(const int K2, __m256i *panel, const uint8_t *tile, size_t stride, size_t n_kt)
{
    const __m256i centre = _mm256_set1_epi16(510);
    for (size_t k = 0; k < n_kt; k++, tile += stride, panel += 16) {
        for (int b = 0; b < 16 * K2; b += 64) _mm_prefetch((const char *)tile + 8 * stride + b, _MM_HINT_T0);
        QP_UNROLL
        for (int c = 0; c < 16; c++)
            _mm256_store_si256(panel + c, _mm256_sub_epi16(avx2_bytesums(K2, tile, c % 8, c / 8), centre));
    }
}

typedef void decode_fn(__m256i *panel, const uint8_t *tile, size_t stride, size_t n_kt);

#define DECODE(K2)                                                                                                     \
    static void decode_##K2(__m256i *panel, const uint8_t *tile, size_t stride, size_t n_kt)                           \
    {                                                                                                                  \
        decode(K2, panel, tile, stride, n_kt);                                                                         \
    }
#define DECODE_NAME(K2) decode_##K2,
QP_EXL3_RATES(DECODE)
static decode_fn *const decode_of[11] = {QP_EXL3_RATES(DECODE_NAME)};

/* Adds n >= 1 tile rows of R rows by 4 columns to acc64[R][4]; n <= 128 because the values are centred. */
QP_INLINE void block_run(const int R, int64_t acc64[][4], const __m256i *panel, const int16_t *x, size_t ldx, size_t n)
{
    v8si a[GEMM_ROWS][4];
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int c = 0; c < 4; c++) a[r][c] = (v8si){0};
    size_t k = 0;
    do {
        QP_UNROLL
        for (int r = 0; r < R; r++) {
            const __m256i xv = _mm256_loadu_si256((const __m256i *)(x + r * ldx + 16 * k));
            QP_UNROLL
            for (int c = 0; c < 4; c++) a[r][c] = dot(a[r][c], _mm256_load_si256(panel + 16 * k + c), xv);
        }
    } while (++k < n);
    QP_UNROLL
    for (int r = 0; r < R; r++) flush4(acc64[r], a[r]);
}

static void block(size_t n_rows, int64_t acc64[][4], const __m256i *panel, const int16_t *x, size_t ldx, size_t n)
{
    if (n_rows == 1) block_run(1, acc64, panel, x, ldx, n);
    if (n_rows == 2) block_run(2, acc64, panel, x, ldx, n);
    if (n_rows == 3) block_run(3, acc64, panel, x, ldx, n);
}

static void gemm(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                 const float *scale, const int64_t *sum, size_t n_rows, __m256i *panel)
{
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const uint8_t *base = (const uint8_t *)t->trellis;
    decode_fn *const dec = decode_of[qp_exl3_rate_index(t->n_words)];
    for (size_t c = tile0; c < tile1; c++) {
        dec(panel, base + c * tile_bytes, stride, n_kt);
        for (size_t m0 = 0; m0 < n_rows; m0 += GEMM_ROWS) {
            const size_t n_m = n_rows - m0 < GEMM_ROWS ? n_rows - m0 : GEMM_ROWS;
            for (size_t q = 0; q < 16; q += 4) {
                int64_t acc64[GEMM_ROWS][4] = {{0}};
                for (size_t k = 0; k < n_kt; k += GEMM_FLUSH_TILES)
                    block(n_m, acc64, panel + 16 * k + q, xq + m0 * ldx + 16 * k, ldx,
                          n_kt - k < GEMM_FLUSH_TILES ? n_kt - k : GEMM_FLUSH_TILES);
                for (size_t m = 0; m < n_m; m++)
                    for (size_t i = 0; i < 4; i++)
                        yh[(m0 + m) * ldy + c * 16 + q + i] = finish(acc64[m][i], scale[m0 + m], sum[m0 + m]);
            }
        }
    }
}

void qp_exl3_mul_i16_avx2(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                          size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    if (n_rows == 0) return;
    if (n_rows <= GEMV_ROWS)
        gemv(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
    else
        gemm(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
}
