/* EXL3 integer product of 1 to 4 rows, level amx: the vector units only cut the states and multiply (exl3_vnni.h), the
 * byte sums and the products with the activations are one tdpbusd a weight tile.
 *
 * A tile (unsigned bytes, 16 rows of 64): row p holds the low halves of the 32 products of the weight tile's columns 2p
 * and 2p + 1 (32 bytes each, places in tile order), row 8 + p their high halves; all four bytes of a product have the
 * same weight. B tile (signed bytes): the activations of the tile row as x = 128 * (x >> 7) + (x & 127), each byte
 * twice in a row, for each activation row four columns: upper part for the first 32 bytes of a row, upper part for the
 * last 32, lower part for the first, lower part for the last. So C [16, 4 n_rows] of int32 holds the four partial sums
 * of each row of A.
 *
 * Bound: a tile row adds at most 32 * 255 * 128 to an int32, so 2048 tile rows (32768 inputs) fit; then sums go to
 * int64. All sums are exact.
 *
 * Order: memory as in exl3_i16_zmm.h, runs of 8 tile rows over blocks of up to 128 columns, C tiles of a block in
 * scratch between runs. Four tile columns are in flight: B is loaded once for four, and what one step stores is read by
 * the next (a tile read back at once waits for its stores: a third slower). */
#include "kernels/cpu/exl3_amx.h"
#include "kernels/cpu/exl3_vnni.h"

enum {
    RUN_TILES = 8,    /* tile rows of a run */
    GROUP = 4,        /* tile columns in flight */
    BLOCK_ACCS = 128, /* tile columns times rows of a block */
    FLUSH_TILES = 2048,
    MAX_ROWS = 4
};

/* Everything a call keeps in scratch: 64 KiB; qp_exl3_zmm_scratch is at least 80. */
typedef struct few_scratch {
    uint8_t a[2][GROUP][1024];             /* A tiles: of this step, of the one before */
    uint8_t b[RUN_TILES * MAX_ROWS * 256]; /* B tiles of a run: [tile row][16][16 n_rows] bytes */
    int32_t c[BLOCK_ACCS * 64];            /* C tiles: [column][16][4 n_rows] */
    int64_t acc[BLOCK_ACCS * 16];          /* [column][row][16] */
} few_scratch;

_Static_assert(sizeof(few_scratch) <= (size_t)QP_ZMM_BLOCK_ACCS * QP_ZMM_ACC_BYTES, "scratch of exl3_vnni.c holds it");

/* The tile intrinsics of gcc 12 do not say that they read or write memory. */
#define TILE_MEMORY() __asm__ volatile("" ::: "memory")

/* Palette 1: tmm0 to 3 C, tmm4 and 5 A, tmm6 and 7 B. */
#define CONFIG(R)                                                                                                      \
    {                                                                                                                  \
        .palette = 1, .colsb = {16 * (R), 16 * (R), 16 * (R), 16 * (R), 64, 64, 16 * (R), 16 * (R)}, .rows = {         \
            16,                                                                                                        \
            16,                                                                                                        \
            16,                                                                                                        \
            16,                                                                                                        \
            16,                                                                                                        \
            16,                                                                                                        \
            16,                                                                                                        \
            16                                                                                                         \
        }                                                                                                              \
    }
typedef struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t colsb[16];
    uint8_t rows[16];
} tile_config;

static const tile_config config_of[MAX_ROWS] = {CONFIG(1), CONFIG(2), CONFIG(3), CONFIG(4)};

/* Product bytes of one weight tile as an A tile. */
QP_INLINE void products(const int K2, uint8_t *a, const uint8_t *tile, const lv_i16 *c)
{
    QP_UNROLL
    for (int g = 0; g < 4; g++) {
        __m512i w[2];
        vnni_windows(K2, tile, g, &c->win, &w[0], &w[1]);
        QP_UNROLL
        for (int h = 0; h < 2; h++) { /* columns 2g + 8h and 2g + 8h + 1 */
            const __m512i st = K2 == 16 ? w[h] : _mm512_multishift_epi64_epi8(c->ctrl[h], w[h]);
            const __m512i lo = _mm512_mullo_epi16(st, c->m.mlo);
            const __m512i hi = _mm512_add_epi16(_mm512_mulhi_epu16(st, c->m.mlo), _mm512_mullo_epi16(st, c->m.mhi));
            _mm512_store_si512(a + 64 * (4 * h + g), lo);
            _mm512_store_si512(a + 64 * (8 + 4 * h + g), hi);
        }
    }
}

/* One run: n tile rows, n_groups groups of W columns. */
typedef struct few_run {
    const uint8_t *tile, *ahead; /* first tile; what to ask for while it is read, laid out alike */
    size_t stride, n, n_groups;
    size_t row_bytes; /* 16 n_rows */
    uint8_t *a;
    const uint8_t *b;
    uint8_t *c;
} few_run;

QP_INLINE void ask_for(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64) _mm_prefetch((const char *)(p + i), _MM_HINT_T0);
}

/* C tile w += A tile w * B, A of the step before. The numbers of tiles must be literals. */
#define CONSUME(w, t)                                                                                                  \
    do {                                                                                                               \
        if ((w) < W) {                                                                                                 \
            _tile_loadd(t, prev + 1024 * (w), 64);                                                                     \
            _tile_dpbusd(w, t, 6);                                                                                     \
        }                                                                                                              \
    } while (0)
#define PRODUCE(w)                                                                                                     \
    do {                                                                                                               \
        if ((w) < W) {                                                                                                 \
            ask_for(ahead + (w)*tile_bytes, tile_bytes);                                                               \
            products(K2, next + 1024 * (w), tile + (w)*tile_bytes, &cst);                                              \
        }                                                                                                              \
    } while (0)
#define EACH_C(op, at)                                                                                                 \
    do {                                                                                                               \
        op(0, (at), r->row_bytes);                                                                                     \
        if (W > 1) op(1, (at) + c_bytes, r->row_bytes);                                                                \
        if (W > 2) op(2, (at) + 2 * c_bytes, r->row_bytes);                                                            \
        if (W > 3) op(3, (at) + 3 * c_bytes, r->row_bytes);                                                            \
    } while (0)

QP_INLINE void run_groups(const int K2, const int W, const few_run *r)
{
    const lv_i16 cst = lv_i16_load(K2);
    const size_t tile_bytes = (size_t)16 * K2, c_bytes = 16 * r->row_bytes;
    uint8_t *next = r->a, *prev = r->a + 1024 * GROUP;
    const uint8_t *b = r->b;
    uint8_t *c = r->c;
    for (size_t g = 0; g < r->n_groups; g++) {
        const uint8_t *tile = r->tile + g * W * tile_bytes, *ahead = r->ahead + g * W * tile_bytes;
        for (size_t k = 0; k < r->n; k++, tile += r->stride, ahead += r->stride) {
            if (g + k == 0) {
                PRODUCE(0);
                PRODUCE(1);
                PRODUCE(2);
                PRODUCE(3);
                TILE_MEMORY();
                EACH_C(_tile_loadd, c);
            } else {
                _tile_loadd(6, b, r->row_bytes);
                PRODUCE(0);
                TILE_MEMORY();
                CONSUME(0, 4);
                PRODUCE(1);
                TILE_MEMORY();
                CONSUME(1, 5);
                PRODUCE(2);
                TILE_MEMORY();
                CONSUME(2, 4);
                PRODUCE(3);
                TILE_MEMORY();
                CONSUME(3, 5);
                b += c_bytes;
                if (k == 0) {
                    EACH_C(_tile_stored, c);
                    c += W * c_bytes;
                    EACH_C(_tile_loadd, c);
                    b = r->b;
                }
            }
            uint8_t *const s = next;
            next = prev;
            prev = s;
        }
    }
    _tile_loadd(6, b, r->row_bytes);
    CONSUME(0, 4);
    CONSUME(1, 5);
    CONSUME(2, 4);
    CONSUME(3, 5);
    EACH_C(_tile_stored, c);
    TILE_MEMORY();
}

typedef void run_fn(const few_run *r);

#define RUN(K2)                                                                                                        \
    static void run4_##K2(const few_run *r)                                                                            \
    {                                                                                                                  \
        run_groups(K2, GROUP, r);                                                                                      \
    }                                                                                                                  \
    static void run1_##K2(const few_run *r)                                                                            \
    {                                                                                                                  \
        run_groups(K2, 1, r);                                                                                          \
    }
#define RUN_ROW(K2) {run4_##K2, run1_##K2},
QP_EXL3_RATES(RUN)
static run_fn *const run_of[11][2] = {QP_EXL3_RATES(RUN_ROW)};

/* B tiles of n tile rows: b [n][16][16 n_rows]. */
static void activations(uint8_t *b, const int16_t *xq, size_t ldx, size_t n_rows, size_t n)
{
    const __m512i upper_lower = _mm512_setr_epi32(0, 0, 8, 0, 1, 0, 9, 0, 2, 0, 10, 0, 3, 0, 11, 0);
    const __m256i byte = _mm256_set1_epi16(0xFF);
    for (size_t k = 0; k < n; k++)
        for (size_t r = 0; r < n_rows; r++) {
            const __m256i x = _mm256_loadu_si256((const __m256i *)(xq + r * ldx + 16 * k));
            const __m256i u = _mm256_and_si256(_mm256_srai_epi16(x, 7), byte),
                          l = _mm256_and_si256(x, _mm256_set1_epi16(127));
            const __m512i v =
                _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_or_si256(u, _mm256_slli_epi16(u, 8))),
                                   _mm256_or_si256(l, _mm256_slli_epi16(l, 8)), 1); /* dwords: 8 upper, 8 lower */
            for (int i = 0; i < 4; i++) {                                           /* rows 4i .. 4i + 3 */
                const __m512i idx = _mm512_add_epi32(upper_lower, _mm512_set1_epi32(4 * (i & 1)));
                __m512i q = _mm512_maskz_permutexvar_epi32(0x5555, idx, v);
                if (i >= 2) q = _mm512_bslli_epi128(q, 4); /* the last 32 bytes are the second column's */
                uint8_t *at = b + (16 * k + 4 * i) * 16 * n_rows + 16 * r;
                _mm_storeu_si128((__m128i *)at, _mm512_castsi512_si128(q));
                _mm_storeu_si128((__m128i *)(at + 16 * n_rows), _mm512_extracti32x4_epi32(q, 1));
                _mm_storeu_si128((__m128i *)(at + 32 * n_rows), _mm512_extracti32x4_epi32(q, 2));
                _mm_storeu_si128((__m128i *)(at + 48 * n_rows), _mm512_extracti32x4_epi32(q, 3));
            }
        }
}

/* 128 * upper + lower sums of columns 8j .. 8j + 7 in one half of the product's bytes: c points to the row's four sums
 * in row 4j (or 8 + 4j) of C, ldc int32 a row. */
QP_INLINE __m512i sums8(const int32_t *c, size_t ldc)
{
    const __m512i apart = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)c));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(c + ldc)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(c + 2 * ldc)), 2);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(c + 3 * ldc)), 3);
    v = _mm512_permutexvar_epi32(apart, v);
    return _mm512_add_epi64(_mm512_slli_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(v)), 7),
                            _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(v, 1)));
}

/* acc[row][16] += C of one tile column; acc = C when first. */
static void flush_column(int64_t *acc, const int32_t *c, size_t n_rows, int first)
{
    for (size_t r = 0; r < n_rows; r++)
        for (int j = 0; j < 2; j++) {
            int64_t *at = acc + 16 * r + 8 * j;
            const int32_t *p = c + (size_t)(4 * j) * 4 * n_rows + 4 * r;
            __m512i s = _mm512_add_epi64(sums8(p, 4 * n_rows), sums8(p + 8 * 4 * n_rows, 4 * n_rows));
            if (!first) s = _mm512_add_epi64(s, _mm512_loadu_si512(at));
            _mm512_storeu_si512(at, s);
        }
}

/* What the product of one call is made of. */
typedef struct few_mul {
    const uint8_t *base;       /* the first tile of the block */
    const uint8_t *next_block; /* the first tile of the columns that follow, or NULL */
    size_t tile_bytes, stride, n_kt, n_c;
    const int16_t *xq;
    size_t ldx, n_rows;
    run_fn *const *run; /* four columns at a time, one */
} few_mul;

/* One run over the block's columns: tile rows k .. k + n - 1. */
static void block_run(const few_mul *m, few_scratch *s, size_t k, size_t n)
{
    const uint8_t *row = m->base + k * m->stride;
    const size_t n_four = m->n_c / GROUP * GROUP;
    few_run r = {.tile = row,
                 .stride = m->stride,
                 .n = n,
                 .row_bytes = 16 * m->n_rows,
                 .a = s->a[0][0],
                 .b = s->b,
                 .c = (uint8_t *)s->c};
    if (k == 0) /* nobody asked for the first columns yet */
        for (size_t i = 0; i < n; i++) ask_for(row + i * m->stride, (n_four ? GROUP : m->n_c) * m->tile_bytes);
    activations(s->b, m->xq + 16 * k, m->ldx, m->n_rows, n);
    if (n_four > GROUP) { /* all but the last four ask for the next four */
        r.ahead = row + GROUP * m->tile_bytes;
        r.n_groups = n_four / GROUP - 1;
        m->run[0](&r);
    }
    const uint8_t *const after = k + n < m->n_kt ? row + n * m->stride : m->next_block;
    if (n_four) {
        const size_t at = n_four - GROUP;
        r.tile = row + at * m->tile_bytes;
        r.ahead = after ? after : r.tile;
        r.n_groups = 1;
        r.c = (uint8_t *)s->c + at * 256 * m->n_rows;
        m->run[0](&r);
    }
    if (n_four < m->n_c) {
        r.tile = row + n_four * m->tile_bytes;
        r.ahead = r.tile;
        r.n_groups = m->n_c - n_four;
        r.c = (uint8_t *)s->c + n_four * 256 * m->n_rows;
        m->run[1](&r);
    }
}

/* One block of columns for all of k: s->acc. */
static void block_sums(const few_mul *m, few_scratch *s)
{
    for (size_t k0 = 0; k0 < m->n_kt; k0 += FLUSH_TILES) {
        const size_t k1 = m->n_kt - k0 < FLUSH_TILES ? m->n_kt : k0 + FLUSH_TILES;
        memset(s->c, 0, m->n_c * m->n_rows * 64 * sizeof *s->c);
        for (size_t k = k0; k < k1; k += RUN_TILES) block_run(m, s, k, k1 - k < RUN_TILES ? k1 - k : RUN_TILES);
        for (size_t c = 0; c < m->n_c; c++)
            flush_column(s->acc + c * m->n_rows * 16, s->c + c * m->n_rows * 64, m->n_rows, k0 == 0);
    }
}

/* y = (float)(scale * (SCALE * acc + OFFSET * sum)) of 8 columns. */
QP_INLINE void finish8(float *y, __m512i acc, float scale, int64_t sum)
{
    const __m512d a = _mm512_mul_pd(_mm512_set1_pd(QP_MUL1_SCALE), _mm512_cvtepi64_pd(acc));
    const __m512d v = _mm512_add_pd(a, _mm512_set1_pd(QP_MUL1_OFFSET * (double)sum));
    _mm256_storeu_ps(y, _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_set1_pd((double)scale), v)));
}

void qp_exl3_mul_i16_few_amx(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                             size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    if (n_rows == 0) return;
    const size_t tile_bytes = 2 * (size_t)t->n_words, block = BLOCK_ACCS / n_rows / GROUP * GROUP;
    few_mul m = {.tile_bytes = tile_bytes,
                 .stride = t->n_out / 16 * tile_bytes,
                 .n_kt = t->n_in / 16,
                 .xq = xq,
                 .ldx = ldx,
                 .n_rows = n_rows,
                 .run = run_of[qp_exl3_rate_index(t->n_words)]};
    few_scratch *s = scratch;
    _tile_loadconfig(&config_of[n_rows - 1]);
    for (size_t c0 = tile0; c0 < tile1; c0 += block) {
        m.base = (const uint8_t *)t->trellis + c0 * tile_bytes;
        m.n_c = tile1 - c0 < block ? tile1 - c0 : block;
        m.next_block = tile1 - c0 >= block + GROUP ? m.base + block * tile_bytes : NULL;
        block_sums(&m, s);
        for (size_t c = 0; c < m.n_c; c++)
            for (size_t r = 0; r < n_rows; r++)
                for (int j = 0; j < 2; j++) {
                    const int64_t *at = s->acc + (c * n_rows + r) * 16 + 8 * j;
                    finish8(yh + r * ldy + (c0 + c) * 16 + 8 * j,
                            _mm512_sub_epi64(_mm512_loadu_si512(at), _mm512_set1_epi64(510 * sum[r])), scale[r],
                            sum[r]);
                }
    }
    _tile_release();
}
