/* EXL3 integer product, level amx, many rows: AMX tiles of int8.
 *
 * A centred byte sum w (-510 .. 510) and an activation x (-16383 .. 16383) are split to the same base 129, w = 129 a +
 * b and x = 129 h + l, so that three products of signed bytes make one of w and x (Karatsuba):
 *     w x = 129^2 a h + 129 ((a + b)(h + l) - a h - b l) + b l.
 * a = round(w * 255 / 2^15), h likewise: this quotient (by about 128.5) is what keeps h, l and h + l inside -128 .. 127
 * for every x; to a power of two no split does. |a| <= 4, |b| and |a + b| <= 70, so a sum of 2^17 products fits int32
 * (70 * 128 * 2^17 < 2^31); longer rows take the product of level vnni.
 *
 * A strip of columns is decoded once into three panels (a, b, a + b) of weight tiles: 64 k by 16 columns, second
 * operand of tdpbssd, [k / 4][column][k % 4]; a panel of two tile columns is one sequential run. Then blocks of 32
 * rows: for at most 768 k three panels (h, l, h + l) of activation tiles of 16 rows by 64 k, first operand; each stays
 * in the first-level cache while the strip's panels of its product pass by, 32 rows by 32 columns at a time in four
 * accumulators.
 * The k of a step are in the order that packing two vectors of words leaves (k_row), on both sides.
 *
 * All sums are exact, so the order of work is free. */
#include "kernels/cpu/exl3_amx.h"
#include "kernels/cpu/exl3_vnni.h"

enum {
    BASE = 129,
    QUOTIENT = 255, /* of 2^15: see above */
    MAX_N_IN = 1 << 17,
    STEP_K = 64,       /* k of a tile */
    TILE_BYTES = 1024, /* 16 rows of 64 bytes */
    BLOCK_ROWS = 32,
    CHUNK_STEPS = 12, /* k of an activation panel, in steps */
    STRIP_TILES = 16, /* columns / 16 that are decoded at once, if they fit */
    STRIP_BYTES = 1 << 20,
    X_PANEL = CHUNK_STEPS * BLOCK_ROWS * STEP_K,
    SUMS = 4 * 256 /* one product of 32 rows by 32 columns: [row tile][column tile][16][16] */
};

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

static const tile_config config __attribute__((aligned(64))) = {
    .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

/* Tile loads are opaque to gcc 12: this keeps the stores before them. */
#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

/* Tile columns of a strip: an even number whose panels are STRIP_BYTES at most, at least 2. */
static size_t strip_tiles(size_t n_in)
{
    size_t n = STRIP_TILES;
    while (n > 2 && n * 16 * 3 * n_in > STRIP_BYTES) n /= 2;
    return n;
}

size_t qp_exl3_many_amx_scratch(size_t n_in)
{
    const size_t vnni = qp_exl3_zmm_scratch(n_in);
    if (n_in > MAX_N_IN) return vnni;
    const size_t amx = strip_tiles(n_in) * 16 * 3 * n_in + 3 * X_PANEL + STRIP_TILES / 2 * 3 * SUMS * sizeof(int32_t);
    return amx > vnni ? amx : vnni;
}

/* High and low digits of 32 words to the base 129. */
QP_INLINE void split(__m512i v, __m512i *hi, __m512i *lo)
{
    *hi = _mm512_mulhrs_epi16(v, _mm512_set1_epi16(QUOTIENT));
    *lo = _mm512_sub_epi16(v, _mm512_mullo_epi16(*hi, _mm512_set1_epi16(BASE)));
}

/* ---------------------------------------------------------------- weights */

/* Row of a weight tile that holds k 16 u + 4 p .. + 3 of its 64 (in the order of xq), u, p < 4. Packing takes four
 * dwords from 8 k of the first 32 and 8 k of the second in turn. */
QP_INLINE int k_row(const int u, const int p)
{
    return 8 * (u & 1) + 4 * (p / 2) + 2 * (u / 2) + p % 2;
}

/* Eight vectors of one tile as bytes, packed[i] from vectors 2i and 2i + 1, to its four rows of 16 columns in tree
 * order (exl3_i16_zmm.h). */
QP_INLINE void transpose(__m512i rows[4], const __m512i packed[4])
{
    __m512i even[2], odd[2];
    QP_UNROLL
    for (int i = 0; i < 2; i++) {
        const __m512 a = _mm512_castsi512_ps(packed[2 * i]), b = _mm512_castsi512_ps(packed[2 * i + 1]);
        even[i] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
        odd[i] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD));
    }
    rows[0] = _mm512_shuffle_i32x4(even[0], even[1], 0x88);
    rows[1] = _mm512_shuffle_i32x4(odd[0], odd[1], 0x88);
    rows[2] = _mm512_shuffle_i32x4(even[0], even[1], 0xDD);
    rows[3] = _mm512_shuffle_i32x4(odd[0], odd[1], 0xDD);
}

/* Decodes n_steps tiles of four tile rows of one column into the three panels; step s of a panel is at 2048 s. */
QP_INLINE void decode(const int K2, uint8_t *panel, size_t panel_bytes, const uint8_t *tile, size_t stride,
                      size_t n_steps)
{
    const lv_i16 c = lv_i16_load(K2);
    for (size_t s = 0; s < n_steps; s++, panel += 2 * TILE_BYTES)
        for (int u = 0; u < 4; u++, tile += stride) {
            __m512i hi[4], lo[4], rows_hi[4], rows_lo[4];
            for (int b = 0; b < 16 * K2; b += 64) _mm_prefetch((const char *)tile + 8 * stride + b, _MM_HINT_T0);
            QP_UNROLL
            for (int g = 0; g < 4; g++) {
                __m512i v[2], h[2], l[2];
                lv_group_bytesums(K2, tile, g, &c, v);
                QP_UNROLL
                for (int i = 0; i < 2; i++) split(_mm512_sub_epi16(v[i], _mm512_set1_epi16(510)), &h[i], &l[i]);
                hi[g] = _mm512_packs_epi16(h[0], h[1]);
                lo[g] = _mm512_packs_epi16(l[0], l[1]);
            }
            transpose(rows_hi, hi);
            transpose(rows_lo, lo);
            QP_UNROLL
            for (int p = 0; p < 4; p++) {
                uint8_t *to = panel + 64 * k_row(u, p);
                _mm512_store_si512(to, rows_hi[p]);
                _mm512_store_si512(to + panel_bytes, rows_lo[p]);
                _mm512_store_si512(to + 2 * panel_bytes, _mm512_add_epi8(rows_hi[p], rows_lo[p]));
            }
        }
}

typedef void decode_fn(uint8_t *panel, size_t panel_bytes, const uint8_t *tile, size_t stride, size_t n_steps);

#define DECODE(K2)                                                                                                     \
    static void decode_##K2(uint8_t *panel, size_t panel_bytes, const uint8_t *tile, size_t stride, size_t n_steps)    \
    {                                                                                                                  \
        decode(K2, panel, panel_bytes, tile, stride, n_steps);                                                         \
    }
#define DECODE_NAME(K2) decode_##K2,
QP_EXL3_RATES(DECODE)
static decode_fn *const decode_of[11] = {QP_EXL3_RATES(DECODE_NAME)};

/* ---------------------------------------------------------------- activations */

/* Splits n_rows <= 32 rows into the three panels: step s, row tile r at (s * n_r + r) * 1024, n_r row tiles. Rows that
 * are missing are zeros. */
static void split_rows(uint8_t *panel, const int16_t *x, size_t ldx, size_t n_rows, size_t n_r, size_t n_steps)
{
    for (size_t s = 0; s < n_steps; s++, x += STEP_K)
        for (size_t m = 0; m < 16 * n_r; m++, panel += 64) {
            __m512i h[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, l[2] = {h[0], h[0]};
            if (m < n_rows)
                for (int i = 0; i < 2; i++) split(_mm512_loadu_si512(x + m * ldx + 32 * i), &h[i], &l[i]);
            const __m512i hi = _mm512_packs_epi16(h[0], h[1]), lo = _mm512_packs_epi16(l[0], l[1]);
            _mm512_store_si512(panel, hi);
            _mm512_store_si512(panel + X_PANEL, lo);
            _mm512_store_si512(panel + 2 * X_PANEL, _mm512_add_epi8(hi, lo));
        }
}

/* ---------------------------------------------------------------- products */

/* sums (+)= x (R row tiles a step) times w (two column tiles a step); more: adds to what is there. */
QP_INLINE void product(const int R, int32_t *sums, const uint8_t *x, const uint8_t *w, size_t n_steps, bool more)
{
    if (more) {
        _tile_loadd(0, sums, 64);
        _tile_loadd(1, sums + 256, 64);
        if (R == 2) {
            _tile_loadd(2, sums + 512, 64);
            _tile_loadd(3, sums + 768, 64);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t s = 0; s < n_steps; s++, x += R * TILE_BYTES, w += 2 * TILE_BYTES) {
        _tile_loadd(4, x, 64);
        _tile_loadd(6, w, 64);
        _tile_loadd(7, w + TILE_BYTES, 64);
        _tile_dpbssd(0, 4, 6);
        if (R == 2) _tile_loadd(5, x + TILE_BYTES, 64);
        _tile_dpbssd(1, 4, 7);
        if (R == 2) {
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    if (R == 2) {
        _tile_stored(2, sums + 512, 64);
        _tile_stored(3, sums + 768, 64);
    }
}

/* Place of column order[i] in the order that transpose leaves is i; this is the inverse, for a permute. */
static const int32_t col_place[16] = {0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15};

/* yh = (float)(scale * (SCALE * acc + OFFSET * sum)) of 8 columns: acc from the three sums, exact in fp64. */
QP_INLINE __m256 finish8(__m256i ah, __m256i bl, __m256i abhl, double scale, double offset)
{
    const __m512d acc =
        _mm512_fmadd_pd(_mm512_cvtepi32_pd(ah), _mm512_set1_pd(BASE * BASE - BASE),
                        _mm512_fmsub_pd(_mm512_cvtepi32_pd(abhl), _mm512_set1_pd(BASE),
                                        _mm512_mul_pd(_mm512_cvtepi32_pd(bl), _mm512_set1_pd(BASE - 1))));
    const __m512d v = _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(QP_MUL1_SCALE), acc), _mm512_set1_pd(offset));
    return _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_set1_pd(scale), v));
}

/* One row of 16 columns. */
QP_INLINE void finish16(float *y, const int32_t *sums, float scale, int64_t sum)
{
    const int32_t *const s1 = sums + SUMS, *const s2 = sums + 2 * SUMS;
    const double offset = QP_MUL1_OFFSET * (double)sum;
    __m256 half[2];
    QP_UNROLL
    for (int i = 0; i < 2; i++)
        half[i] = finish8(_mm256_loadu_si256((const __m256i *)(sums + 8 * i)),
                          _mm256_loadu_si256((const __m256i *)(s1 + 8 * i)),
                          _mm256_loadu_si256((const __m256i *)(s2 + 8 * i)), (double)scale, offset);
    const __m512 v = _mm512_insertf32x8(_mm512_castps256_ps512(half[0]), half[1], 1);
    _mm512_storeu_ps(y, _mm512_permutexvar_ps(_mm512_loadu_si512(col_place), v));
}

/* What a strip of columns is multiplied with and where results go. */
typedef struct rows_arg {
    float *yh;
    size_t ldy;
    const int16_t *xq;
    size_t ldx;
    const float *scale;
    const int64_t *sum;
    size_t n_rows, n_in;
} rows_arg;

/* The sums of n_m <= 32 rows from m0 on times n_pairs pairs of tile columns: [pair][product][SUMS]. */
static void block_sums(const rows_arg *a, size_t m0, size_t n_m, size_t n_pairs, const uint8_t *w, uint8_t *x,
                       int32_t *sums)
{
    const size_t n_steps = a->n_in / STEP_K, n_r = n_m > 16 ? 2 : 1;
    const size_t n_chunks = (n_steps + CHUNK_STEPS - 1) / CHUNK_STEPS;
    for (size_t i = 0; i < n_chunks; i++) { /* chunks of nearly equal size */
        const size_t s0 = n_steps * i / n_chunks, n = n_steps * (i + 1) / n_chunks - s0;
        split_rows(x, a->xq + m0 * a->ldx + s0 * STEP_K, a->ldx, n_m, n_r, n);
        MEMORY_BARRIER();
        for (size_t p = 0; p < 3; p++)
            for (size_t c = 0; c < n_pairs; c++) {
                int32_t *const to = sums + (3 * c + p) * SUMS;
                const uint8_t *const from = w + ((3 * c + p) * n_steps + s0) * 2 * TILE_BYTES;
                if (n_r == 2)
                    product(2, to, x + p * X_PANEL, from, n, i > 0);
                else
                    product(1, to, x + p * X_PANEL, from, n, i > 0);
            }
    }
}

/* All rows times n_c columns of tiles (the panels hold an even number), the first at column tile c0. */
static void strip(const rows_arg *a, size_t c0, size_t n_c, const uint8_t *w, uint8_t *x, int32_t *sums)
{
    for (size_t m0 = 0; m0 < a->n_rows; m0 += BLOCK_ROWS) {
        const size_t n_m = a->n_rows - m0 < BLOCK_ROWS ? a->n_rows - m0 : BLOCK_ROWS;
        block_sums(a, m0, n_m, (n_c + 1) / 2, w, x, sums);
        for (size_t m = 0; m < n_m; m++)
            for (size_t c = 0; c < n_c; c++)
                finish16(a->yh + (m0 + m) * a->ldy + (c0 + c) * 16,
                         sums + c / 2 * 3 * SUMS + (m / 16 * 2 + c % 2) * 256 + m % 16 * 16, a->scale[m0 + m],
                         a->sum[m0 + m]);
    }
}

void qp_exl3_mul_i16_many_amx(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                              size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    if (t->n_in > MAX_N_IN) {
        qp_exl3_mul_i16_vnni(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
        return;
    }
    const size_t n_in = t->n_in, tile_bytes = 2 * (size_t)t->n_words, stride = t->n_out / 16 * tile_bytes;
    const size_t n_strip = strip_tiles(n_in);
    const rows_arg a = {yh, ldy, xq, ldx, scale, sum, n_rows, n_in};
    const uint8_t *base = (const uint8_t *)t->trellis;
    decode_fn *const dec = decode_of[qp_exl3_rate_index(t->n_words)];
    int32_t *sums = scratch;
    uint8_t *x = (uint8_t *)(sums + STRIP_TILES / 2 * 3 * SUMS), *w = x + 3 * X_PANEL;
    _tile_loadconfig(&config);
    for (size_t c = tile0; c < tile1; c += n_strip) {
        const size_t n_c = tile1 - c < n_strip ? tile1 - c : n_strip, w_tiles = (n_c + 1) & ~(size_t)1;
        for (size_t v = 0; v < w_tiles; v++) /* an odd last column is there twice */
            dec(w + v / 2 * 3 * 32 * n_in + v % 2 * TILE_BYTES, 32 * n_in,
                base + (c + (v < n_c ? v : n_c - 1)) * tile_bytes, stride, n_in / STEP_K);
        MEMORY_BARRIER();
        strip(&a, c, n_c, w, x, sums);
    }
    _tile_release();
}
