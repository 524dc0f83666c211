/* EXL3 integer product of the AVX-512 levels: included by exl3_i16_avx512.c and exl3_i16_vnni.c after the header that
 * cuts the states of that level (exl3_zmm.h names what it defines).
 *
 * 1 to 4 rows (decode): byte sums go straight into a dot product (vpdpwssd, or vpmaddwd and vpaddd) with the 15-bit
 * activations of the tile row (32 bytes in tile order, broadcast to both halves). The accumulators of a tile (half a
 * tile for 3 and 4 rows) are in registers for a run of 8 tile rows and else in scratch, so that up to 128 adjacent tile
 * columns are walked for the same 8 tile rows: memory is read as 8 long sequential streams, which the processor's own
 * prefetcher follows (runs of 1 KB with software prefetch alone end at the 16 fill buffers of the first-level cache: 6
 * GB/s). More rows (prefill): a strip of two tile columns is decoded once into an int16 panel of [k pair][32 columns]
 * dwords in scratch, then register blocks of up to 12 rows by 32 columns run over it.
 *
 * All sums are exact, so the order of work is free. The bias 510 of the byte sums: rows subtract 510 * sum at the end;
 * the panel holds centred values, which doubles the run that fits int32. */

/* Tile rows of a run, tiles of the lead of the prefetch, tiles times rows of a block. Cold 4096x4096, K = 4, 1 row, G
 * weights/s: 8, 4, 128: 21; 4, 4, 64: 19.9; 16, 4, 64: 19; 8, 4, 32: 19.5; runs of 64 tile rows by 8 columns: 12.7. */
enum {
    RUN_TILES = 8,
    AHEAD_TILES = 4,
    BLOCK_ACCS = QP_ZMM_BLOCK_ACCS,
    GEMV_ROWS = 4,
    GEMM_ROWS = LV_GEMM_ROWS,
    FLUSH_PAIRS = 128
};

/* Place of column order[i] in the results of the trees below is i; this is the inverse, for a permute. */
static const int32_t col_place[16] = {0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15};

/* yh = (float)(scale * (SCALE * acc + OFFSET * sum)) of 16 columns in tree order. */
QP_INLINE void finish16(float *y, __m512i acc_lo, __m512i acc_hi, float scale, int64_t sum)
{
    const __m512d s = _mm512_set1_pd((double)scale), a = _mm512_set1_pd(QP_MUL1_SCALE),
                  o = _mm512_set1_pd(QP_MUL1_OFFSET * (double)sum);
    const __m256 lo = _mm512_cvtpd_ps(_mm512_mul_pd(s, _mm512_add_pd(_mm512_mul_pd(a, _mm512_cvtepi64_pd(acc_lo)), o)));
    const __m256 hi = _mm512_cvtpd_ps(_mm512_mul_pd(s, _mm512_add_pd(_mm512_mul_pd(a, _mm512_cvtepi64_pd(acc_hi)), o)));
    const __m512 v = _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);
    _mm512_storeu_ps(y, _mm512_permutexvar_ps(_mm512_loadu_si512(col_place), v));
}

/* ---------------------------------------------------------------- 1 to 4 rows */

/* Sums the eight dwords of each column; the sums must fit int32. v[2g + h]: columns 2g + 8h and 2g + 8h + 1. */
QP_INLINE __m512i tree_sum(const __m512i v[8])
{
    __m512i t[4], u[2];
    for (int i = 0; i < 4; i++)
        t[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        u[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(t[2 * i], t[2 * i + 1]),
                                _mm512_unpackhi_epi64(t[2 * i], t[2 * i + 1]));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(u[0], u[1], 0x88), _mm512_shuffle_i32x4(u[0], u[1], 0xDD));
}

/* acc64[16] += column sums of v, in tree order: low and high halves apart, so that eight of them fit int32. */
static void flush_tile(int64_t acc64[16], const __m512i v[8])
{
    __m512i lo[8], hi[8];
    for (int i = 0; i < 8; i++) {
        lo[i] = _mm512_and_si512(v[i], _mm512_set1_epi32(0xFFFF));
        hi[i] = _mm512_srai_epi32(v[i], 16);
    }
    const __m512i l = tree_sum(lo), h = tree_sum(hi);
    for (int i = 0; i < 2; i++) {
        const __m256i li = i ? _mm512_extracti64x4_epi64(l, 1) : _mm512_castsi512_si256(l);
        const __m256i hw = i ? _mm512_extracti64x4_epi64(h, 1) : _mm512_castsi512_si256(h);
        const __m512i s = _mm512_add_epi64(_mm512_cvtepi32_epi64(li), _mm512_slli_epi64(_mm512_cvtepi32_epi64(hw), 16));
        _mm512_storeu_si512(acc64 + 8 * i, _mm512_add_epi64(_mm512_loadu_si512(acc64 + 8 * i), s));
    }
}

/* Adds n >= 1 tile rows of one tile column, groups g0 .. g1 - 1, to acc[R][8] in memory; asks for the tiles from ahead
 * on, as many as it reads. */
QP_INLINE void run_groups(const int K2, const int R, const int g0, const int g1, const uint8_t *tile,
                          const uint8_t *ahead, size_t stride, size_t n, const int16_t *x, size_t ldx, qp_v16si *acc)
{
    const lv_i16 c = lv_i16_load(K2);
    const uint8_t *const end = tile + n * stride;
    qp_v16si a[4][8];
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int i = 2 * g0; i < 2 * g1; i++) a[r][i] = acc[8 * r + i];
    do { /* n >= 1, see block_run */
        if (g0 == 0)
            for (int b = 0; b < 16 * K2; b += 64) _mm_prefetch((const char *)ahead + b, _MM_HINT_T0);
        QP_UNROLL
        for (int g = g0; g < g1; g++) {
            __m512i b[2];
            lv_group_bytesums(K2, tile, g, &c, b);
            QP_UNROLL
            for (int r = 0; r < R; r++) {
                const __m512i xv = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(x + r * ldx)));
                a[r][2 * g] = lv_dot(a[r][2 * g], b[0], xv);
                a[r][2 * g + 1] = lv_dot(a[r][2 * g + 1], b[1], xv);
            }
        }
        tile += stride;
        ahead += stride;
        x += 16;
    } while (tile != end);
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int i = 2 * g0; i < 2 * g1; i++) acc[8 * r + i] = a[r][i];
}

typedef void run_fn(const uint8_t *tile, const uint8_t *ahead, size_t stride, size_t n, const int16_t *x, size_t ldx,
                    qp_v16si *acc);

#define RUN(K2, R)                                                                                                     \
    static void run_##K2##_##R(const uint8_t *tile, const uint8_t *ahead, size_t stride, size_t n, const int16_t *x,   \
                               size_t ldx, qp_v16si *acc)                                                              \
    {                                                                                                                  \
        run_groups(K2, R, 0, R <= 2 ? 4 : 2, tile, ahead, stride, n, x, ldx, acc);                                     \
        if (R > 2) run_groups(K2, R, 2, 4, tile, ahead, stride, n, x, ldx, acc);                                       \
    }
#define RUN4(K2) RUN(K2, 1) RUN(K2, 2) RUN(K2, 3) RUN(K2, 4)
#define RUN4_ROW(K2) {run_##K2##_1, run_##K2##_2, run_##K2##_3, run_##K2##_4},
QP_EXL3_RATES(RUN4)
static run_fn *const run_of[11][GEMV_ROWS] = {QP_EXL3_RATES(RUN4_ROW)};

/* One block of n_c tile columns for all of k: acc [n_c][n_rows][8] and acc64 [n_c][n_rows][16] are scratch. next_block:
 * the first tile of the columns that follow, or NULL. */
static void gemv_block(run_fn *fn, const uint8_t *base, const uint8_t *next_block, size_t tile_bytes, size_t stride,
                       size_t n_kt, size_t n_c, const int16_t *xq, size_t ldx, size_t n_rows, qp_v16si *acc,
                       int64_t *acc64)
{
    memset(acc64, 0, n_c * n_rows * 16 * sizeof *acc64);
    for (size_t k0 = 0; k0 < n_kt; k0 += QP_EXL3_FLUSH_TILES) {
        const size_t k1 = n_kt - k0 < QP_EXL3_FLUSH_TILES ? n_kt : k0 + QP_EXL3_FLUSH_TILES;
        memset(acc, 0, n_c * n_rows * 8 * sizeof *acc);
        for (size_t k = k0; k < k1; k += RUN_TILES) {
            const size_t n = k1 - k < RUN_TILES ? k1 - k : RUN_TILES;
            const uint8_t *row = base + k * stride, *next = k + n < n_kt ? row + n * stride : next_block;
            for (size_t c = 0; c < n_c; c++) {
                const uint8_t *ahead = c + AHEAD_TILES < n_c ? row + (c + AHEAD_TILES) * tile_bytes
                                       : next                ? next + (c + AHEAD_TILES - n_c) * tile_bytes
                                                             : row + c * tile_bytes;
                fn(row + c * tile_bytes, ahead, stride, n, xq + k * 16, ldx, acc + c * n_rows * 8);
            }
        }
        for (size_t i = 0; i < n_c * n_rows; i++) flush_tile(acc64 + 16 * i, (const __m512i *)(acc + 8 * i));
    }
}

/* n_rows <= 4. */
static void gemv(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                 const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const size_t block = BLOCK_ACCS / n_rows;
    const uint8_t *base = (const uint8_t *)t->trellis;
    run_fn *const fn = run_of[qp_exl3_rate_index(t->n_words)][n_rows - 1];
    qp_v16si *acc = scratch;
    int64_t *acc64 = (int64_t *)(acc + 8 * BLOCK_ACCS);
    for (size_t c0 = tile0; c0 < tile1; c0 += block) {
        const size_t n_c = tile1 - c0 < block ? tile1 - c0 : block;
        gemv_block(fn, base + c0 * tile_bytes, c0 + n_c < tile1 ? base + (c0 + n_c) * tile_bytes : NULL, tile_bytes,
                   stride, n_kt, n_c, xq, ldx, n_rows, acc, acc64);
        for (size_t c = 0; c < n_c; c++)
            for (size_t r = 0; r < n_rows; r++) {
                const __m512i fix = _mm512_set1_epi64(510 * sum[r]);
                const int64_t *a = acc64 + (c * n_rows + r) * 16;
                finish16(yh + r * ldy + (c0 + c) * 16, _mm512_sub_epi64(_mm512_loadu_si512(a), fix),
                         _mm512_sub_epi64(_mm512_loadu_si512(a + 8), fix), scale[r], sum[r]);
            }
    }
}

/* ---------------------------------------------------------------- more rows */

/* Transposes a tile's eight vectors into eight of one k pair and sixteen columns (tree order), `step` bytes apart. */
QP_INLINE void store_pairs(uint8_t *panel, size_t step, const __m512i v[8])
{
    __m512i t[2][4];
    QP_UNROLL
    for (int h = 0; h < 2; h++) {
        const __m512i a = _mm512_unpacklo_epi32(v[4 * h], v[4 * h + 1]),
                      b = _mm512_unpackhi_epi32(v[4 * h], v[4 * h + 1]);
        const __m512i c = _mm512_unpacklo_epi32(v[4 * h + 2], v[4 * h + 3]),
                      d = _mm512_unpackhi_epi32(v[4 * h + 2], v[4 * h + 3]);
        t[h][0] = _mm512_unpacklo_epi64(a, c);
        t[h][1] = _mm512_unpackhi_epi64(a, c);
        t[h][2] = _mm512_unpacklo_epi64(b, d);
        t[h][3] = _mm512_unpackhi_epi64(b, d);
    }
    QP_UNROLL
    for (int p = 0; p < 4; p++) {
        _mm512_store_si512(panel + p * step, _mm512_shuffle_i32x4(t[0][p], t[1][p], 0x88));
        _mm512_store_si512(panel + (p + 4) * step, _mm512_shuffle_i32x4(t[0][p], t[1][p], 0xDD));
    }
}

/* Decodes n_kt tiles of one column: panel[(8 kt + pair) * step] = 16 columns of (even, odd) centred byte sums. */
QP_INLINE void decode(const int K2, uint8_t *panel, size_t step, const uint8_t *tile, size_t stride, size_t n_kt)
{
    const lv_i16 c = lv_i16_load(K2);
    for (size_t k = 0; k < n_kt; k++, tile += stride, panel += 8 * step) {
        __m512i v[8];
        for (int b = 0; b < 16 * K2; b += 64) _mm_prefetch((const char *)tile + 8 * stride + b, _MM_HINT_T0);
        QP_UNROLL
        for (int g = 0; g < 4; g++) {
            lv_group_bytesums(K2, tile, g, &c, v + 2 * g);
            v[2 * g] = _mm512_sub_epi16(v[2 * g], _mm512_set1_epi16(510));
            v[2 * g + 1] = _mm512_sub_epi16(v[2 * g + 1], _mm512_set1_epi16(510));
        }
        store_pairs(panel, step, v);
    }
}

typedef void decode_fn(uint8_t *panel, size_t step, const uint8_t *tile, size_t stride, size_t n_kt);

#define DECODE(K2)                                                                                                     \
    static void decode_##K2(uint8_t *panel, size_t step, const uint8_t *tile, size_t stride, size_t n_kt)              \
    {                                                                                                                  \
        decode(K2, panel, step, tile, stride, n_kt);                                                                   \
    }
#define DECODE_NAME(K2) decode_##K2,
QP_EXL3_RATES(DECODE)
static decode_fn *const decode_of[11] = {QP_EXL3_RATES(DECODE_NAME)};

/* acc64[r][v]: 16 columns as two vectors of int64 */
typedef struct block_sums {
    __m512i a[12][2][2];
} block_sums;

/* Adds n <= 128 k pairs (2 * 128 * 510 * 16383 < 2^31) of R rows by 16 V columns. Rows are addressed from every third
 * one, so that pointers stay in registers. */
QP_INLINE void block_run(const int R, const int V, block_sums *s, const uint8_t *panel, const int16_t *x, size_t ldx,
                         size_t n)
{
    qp_v16si a[12][2];
    const int16_t *p[4];
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int v = 0; v < V; v++) a[r][v] = (qp_v16si){0};
    QP_UNROLL
    for (int i = 0; i < 4; i++) p[i] = x + (3 * i < R ? 3 * i * ldx : 0);
    size_t k = 0;
    do { /* n >= 1: a loop that could be empty makes gcc 12 keep two copies of every accumulator */
        __m512i w[2];
        QP_UNROLL
        for (int v = 0; v < V; v++) w[v] = _mm512_load_si512(panel + (k * V + v) * 64);
        QP_UNROLL
        for (int r = 0; r < R; r++) {
            const __m512i xv = _mm512_set1_epi32((int)qp_load32(p[r / 3] + r % 3 * ldx + 2 * k));
            QP_UNROLL
            for (int v = 0; v < V; v++) a[r][v] = lv_dot(a[r][v], w[v], xv);
        }
    } while (++k < n);
    QP_UNROLL
    for (int r = 0; r < R; r++) QP_UNROLL
    for (int v = 0; v < V; v++) {
        s->a[r][v][0] =
            _mm512_add_epi64(s->a[r][v][0], _mm512_cvtepi32_epi64(_mm512_castsi512_si256((__m512i)a[r][v])));
        s->a[r][v][1] =
            _mm512_add_epi64(s->a[r][v][1], _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64((__m512i)a[r][v], 1)));
    }
}

typedef void block_fn(block_sums *s, const uint8_t *panel, const int16_t *x, size_t ldx, size_t n);

#define BLOCK(R, V)                                                                                                    \
    static void block_##R##_##V(block_sums *s, const uint8_t *panel, const int16_t *x, size_t ldx, size_t n)           \
    {                                                                                                                  \
        block_run(R, V, s, panel, x, ldx, n);                                                                          \
    }
#define BLOCK2(R) BLOCK(R, 1) BLOCK(R, 2)
#define BLOCK2_ROW(R) {block_##R##_1, block_##R##_2},
#define ROWS_12(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
ROWS_12(BLOCK2)
static block_fn *const block_of[12][2] = {ROWS_12(BLOCK2_ROW)};

static void gemm(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                 const float *scale, const int64_t *sum, size_t n_rows, uint8_t *panel)
{
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const size_t n_blocks = (n_rows + GEMM_ROWS - 1) / GEMM_ROWS, n_pairs = 8 * n_kt;
    const uint8_t *base = (const uint8_t *)t->trellis;
    decode_fn *const dec = decode_of[qp_exl3_rate_index(t->n_words)];
    for (size_t c = tile0; c < tile1; c += 2) {
        const size_t n_v = tile1 - c < 2 ? 1 : 2;
        for (size_t v = 0; v < n_v; v++) dec(panel + 64 * v, 64 * n_v, base + (c + v) * tile_bytes, stride, n_kt);
        for (size_t b = 0; b < n_blocks; b++) {
            /* rows in blocks of nearly equal size */
            const size_t m0 = n_rows * b / n_blocks, n_m = n_rows * (b + 1) / n_blocks - m0;
            block_fn *const fn = block_of[n_m - 1][n_v - 1];
            block_sums s;
            memset(&s, 0, sizeof s);
            for (size_t k = 0; k < n_pairs; k += FLUSH_PAIRS)
                fn(&s, panel + k * n_v * 64, xq + m0 * ldx + 2 * k, ldx,
                   n_pairs - k < FLUSH_PAIRS ? n_pairs - k : FLUSH_PAIRS);
            for (size_t m = 0; m < n_m; m++)
                for (size_t v = 0; v < n_v; v++)
                    finish16(yh + (m0 + m) * ldy + (c + v) * 16, s.a[m][v][0], s.a[m][v][1], scale[m0 + m],
                             sum[m0 + m]);
        }
    }
}

static void mul_i16(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                    const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    if (n_rows == 0) return;
    if (n_rows <= GEMV_ROWS)
        gemv(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
    else
        gemm(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
}
