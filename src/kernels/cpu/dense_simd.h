/* Dense linear over simd16.h. Included by dense_avx2.c and dense_avx512.c alone.
 *
 * One tile kernel: TILE_R rows of x by TILE_N rows of w, a vector sum each, lanes along k, so each sum is taken in the
 * contract's order whatever surrounds it. Few rows (a step of decode) read w as it is stored, once, in TILE_N
 * sequential streams; that is bound by memory. More rows first widen TILE_N rows of w to fp32 in a panel that stays in
 * L1 and run all rows of x past it. A long k is cut in blocks of at most K_MAX, and between blocks the vector sums
 * (not their totals) wait in scratch: a store and a load change no bit. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/simd16.h"

#if defined(__AVX512F__)
enum { TILE_R = 3, TILE_N = 8 };
#else
enum { TILE_R = 2, TILE_N = 3 };
#endif

enum {
    LANES = 16,
    DIRECT_ROWS = 6,       /* up to here w is read as stored */
    W_PANEL = 3,           /* a fourth kind of weight, after qp_wtype: a panel */
    K_MAX = 768,           /* a panel: 24 KB of L1 */
    N_BLOCK = 48,          /* outputs that share a block of x, a multiple of TILE_N */
    M_BLOCK_LONG = 96,     /* rows of that block when sums wait in scratch (295 KB), else when they do not; both */
    M_BLOCK_SHORT = 192,   /* multiples of TILE_R, sized for L2 */
    PREFETCH_BYTES = 1024, /* ahead in each stream; 512 to 4096 measured the same */
    ACC = (TILE_R * TILE_N + 7) / 8 * 8
};

typedef struct dense_job {
    float *y;
    size_t ldy;
    const float *x;
    size_t ldx, n_rows;
    const unsigned char *w;
    qp_wtype type;
    size_t n_in, row_bytes, n0, n1;
    const float *bias;
} dense_job;

QP_INLINE v16 load_w(const unsigned char *p, int type)
{
    return type == QP_W_F16    ? vs_from_f16(p)
           : type == QP_W_BF16 ? vs_from_bf16(p)
                               : vs_load((const float *)(const void *)p);
}

QP_INLINE v16 load_w_m(const unsigned char *p, int type, m16 m)
{
    return type == QP_W_F16    ? vs_from_f16_m(p, m)
           : type == QP_W_BF16 ? vs_from_bf16_m(p, m)
                               : vs_load_m((const float *)(const void *)p, m);
}

/* One step of a tile over a panel: s[r][n] += x row r times w row n, 16 columns. */
QP_INLINE void panel_step(v16 (*s)[TILE_N], int rows, const float *x, size_t ldx, const float *p)
{
#if defined(__AVX512F__)
    v16 xr[TILE_R];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) xr[r] = vs_load(x + (size_t)r * ldx);
#pragma GCC unroll 8
    for (int n = 0; n < TILE_N; n++) {
        const v16 v = vs_load_once(p + n * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) s[r][n] = vs_fma(xr[r], v, s[r][n]);
    }
#else
    __m256 xr[TILE_R]; /* one half of the lanes after the other: both at once do not fit sixteen registers */
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) xr[r] = _mm256_loadu_ps(x + (size_t)r * ldx);
#pragma GCC unroll 8
    for (int n = 0; n < TILE_N; n++) {
        const __m256 v = vs_load_once8(p + n * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) s[r][n].lo = _mm256_fmadd_ps(xr[r], v, s[r][n].lo);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) xr[r] = _mm256_loadu_ps(x + (size_t)r * ldx + 8);
#pragma GCC unroll 8
    for (int n = 0; n < TILE_N; n++) {
        const __m256 v = vs_load_once8(p + n * LANES + 8);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) s[r][n].hi = _mm256_fmadd_ps(xr[r], v, s[r][n].hi);
    }
#endif
}

/* acc[r * TILE_N + n] += x row r times w row n over n_k columns. w: TILE_N rows row_bytes apart, or a panel
 * [n_k / 16, TILE_N, 16], its tail filled with zeros. rows and type are constants where this is inlined. */
QP_INLINE void tile(v16 *acc, int rows, int type, const float *x, size_t ldx, const unsigned char *w, size_t row_bytes,
                    size_t last_row, size_t n_k)
{
    const size_t size = type == QP_W_F32 || type == W_PANEL ? 4 : 2;
    const unsigned char *wr[TILE_N];
    v16 s[TILE_R][TILE_N];
#pragma GCC unroll 8
    for (int n = 0; n < TILE_N; n++) {
        wr[n] = type == W_PANEL ? w : w + ((size_t)n < last_row ? (size_t)n : last_row) * row_bytes;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) s[r][n] = acc[r * TILE_N + n];
    }
    /* Each stream runs PREFETCH_BYTES ahead of itself, over the end of its row into its row of the next tile. */
    const size_t turn = row_bytes > PREFETCH_BYTES ? (row_bytes - PREFETCH_BYTES) / size : 0;
    const size_t over = PREFETCH_BYTES + (TILE_N - 1) * row_bytes;
    size_t k = 0;
    for (; k + LANES <= n_k; k += LANES) {
        const size_t ahead = k < turn ? PREFETCH_BYTES : over;
        if (type == W_PANEL) {
            panel_step(s, rows, x + k, ldx, (const float *)(const void *)w + k * TILE_N);
            continue;
        }
        v16 xr[TILE_R];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) xr[r] = vs_load(x + (size_t)r * ldx + k);
#pragma GCC unroll 8
        for (int n = 0; n < TILE_N; n++) {
            const unsigned char *p = wr[n] + k * size;
            __builtin_prefetch(p + ahead, 0, 2); /* to L2: 0.95 of plain reading at K=576, to L1 0.88 */
            const v16 v = load_w(p, type);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) s[r][n] = vs_fma(xr[r], v, s[r][n]);
        }
    }
    if (k < n_k) {
        const m16 m = m16_first(n_k - k);
        for (int n = 0; n < TILE_N; n++) {
            const unsigned char *p = type == W_PANEL ? w + (k * TILE_N + (size_t)n * LANES) * 4 : wr[n] + k * size;
            const v16 v = type == W_PANEL ? load_w(p, type) : load_w_m(p, type, m);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) s[r][n] = vs_fma_m(vs_load_m(x + (size_t)r * ldx + k, m), v, s[r][n], m);
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < TILE_N; n++) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) acc[r * TILE_N + n] = s[r][n];
    }
}

QP_INLINE void zero_sums(v16 *acc)
{
#pragma GCC unroll 24
    for (int i = 0; i < ACC; i++) acc[i] = vs_set(0);
}

/* Totals of the tile's sums to y[m .. m + rows)[n .. n + n_valid). */
QP_INLINE void emit(const dense_job *j, const v16 *acc, int rows, size_t m, size_t n, size_t n_valid)
{
    float *y = j->y + m * j->ldy + n;
#if defined(__AVX512F__)
    const __mmask8 on = (__mmask8)m16_first(n_valid);
    const __m256 bias = j->bias ? _mm256_maskz_loadu_ps(on, j->bias + n) : _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const __m256 total = vs_sum_each8(acc + r * TILE_N);
        _mm256_mask_storeu_ps(y + (size_t)r * j->ldy, on, j->bias ? _mm256_add_ps(total, bias) : total);
    }
#else
    float total[ACC];
#pragma GCC unroll 4
    for (int i = 0; i < rows * TILE_N; i += 8) _mm256_storeu_ps(total + i, vs_sum_each8(acc + i));
    for (int r = 0; r < rows; r++, y += j->ldy) {
        const float *t = total + r * TILE_N;
        for (size_t i = 0; i < n_valid; i++) y[i] = j->bias ? t[i] + j->bias[n + i] : t[i];
    }
#endif
}

QP_INLINE void direct_rows(const dense_job *j, int rows, int type, size_t m, size_t n, size_t n_valid)
{
    v16 acc[ACC];
    zero_sums(acc);
    tile(acc, rows, type, j->x + m * j->ldx, j->ldx, j->w + n * j->row_bytes, j->row_bytes, n_valid - 1, j->n_in);
    emit(j, acc, rows, m, n, n_valid);
}

QP_INLINE void direct(const dense_job *j, int type)
{
    for (size_t n = j->n0; n < j->n1; n += TILE_N) {
        const size_t n_valid = j->n1 - n < TILE_N ? j->n1 - n : TILE_N;
        for (size_t m = 0; m < j->n_rows; m += TILE_R) {
            if (j->n_rows - m >= TILE_R)
                direct_rows(j, TILE_R, type, m, n, n_valid);
            else if (TILE_R > 2 && j->n_rows - m == 2)
                direct_rows(j, 2, type, m, n, n_valid);
            else
                direct_rows(j, 1, type, m, n, n_valid);
        }
    }
}

static __attribute__((noinline)) void direct_f32(const dense_job *j)
{
    direct(j, QP_W_F32);
}

static __attribute__((noinline)) void direct_f16(const dense_job *j)
{
    direct(j, QP_W_F16);
}

static __attribute__((noinline)) void direct_bf16(const dense_job *j)
{
    direct(j, QP_W_BF16);
}

/* Rows n .. n + n_valid of w, columns k0 .. k0 + n_k, as a panel; absent rows and the tail are zeros. Fetches the rows
 * of the next panel. */
QP_INLINE void pack_type(const dense_job *j, int type, float *panel, size_t n, size_t n_valid, size_t k0, size_t n_k)
{
    const size_t size = type == QP_W_F32 ? 4 : 2, ahead = TILE_N * j->row_bytes;
    for (size_t i = 0; i < TILE_N; i++) {
        const unsigned char *p = j->w + (n + (i < n_valid ? i : 0)) * j->row_bytes + k0 * size;
        float *to = panel + i * LANES;
        size_t k = 0;
        for (; k + LANES <= n_k && i < n_valid; k += LANES) {
            __builtin_prefetch(p + ahead + k * size, 0, 3);
            vs_store(to + k * TILE_N, load_w(p + k * size, type));
        }
        for (; k < n_k; k += LANES)
            vs_store(to + k * TILE_N, i < n_valid ? load_w_m(p + k * size, type, m16_first(n_k - k)) : vs_set(0));
    }
}

static void pack(const dense_job *j, float *panel, size_t n, size_t n_valid, size_t k0, size_t n_k)
{
    if (j->type == QP_W_F32)
        pack_type(j, QP_W_F32, panel, n, n_valid, k0, n_k);
    else if (j->type == QP_W_F16)
        pack_type(j, QP_W_F16, panel, n, n_valid, k0, n_k);
    else
        pack_type(j, QP_W_BF16, panel, n, n_valid, k0, n_k);
}

/* The tile of rows m .. m + rows of x and one panel. waiting: its sums of the blocks before, or NULL; last: no block
 * follows. */
QP_INLINE void panel_rows(const dense_job *j, int rows, const float *panel, size_t m, size_t n, size_t n_valid,
                          size_t k0, size_t n_k, float *waiting)
{
    v16 acc[ACC];
    zero_sums(acc);
    if (k0 > 0) {
#pragma GCC unroll 24
        for (int i = 0; i < rows * TILE_N; i++) acc[i] = vs_load(waiting + i * LANES);
    }
    tile(acc, rows, W_PANEL, j->x + m * j->ldx + k0, j->ldx, (const unsigned char *)panel, 0, 0, n_k);
    if (k0 + n_k == j->n_in) {
        emit(j, acc, rows, m, n, n_valid);
    } else {
#pragma GCC unroll 24
        for (int i = 0; i < rows * TILE_N; i++) vs_store(waiting + i * LANES, acc[i]);
    }
}

static void panel_block(const dense_job *j, const float *panel, size_t m0, size_t m1, size_t n, size_t n_valid,
                        size_t k0, size_t n_k, float *waiting)
{
    const size_t step = n_k < j->n_in ? TILE_R * TILE_N * LANES : 0;
    for (size_t m = m0; m < m1; m += TILE_R, waiting += step) {
        if (m1 - m >= TILE_R)
            panel_rows(j, TILE_R, panel, m, n, n_valid, k0, n_k, waiting);
        else if (TILE_R > 2 && m1 - m == 2)
            panel_rows(j, 2, panel, m, n, n_valid, k0, n_k, waiting);
        else
            panel_rows(j, 1, panel, m, n, n_valid, k0, n_k, waiting);
    }
}

static size_t k_block(size_t n_in)
{
    const size_t n_blocks = (n_in + K_MAX - 1) / K_MAX;
    return n_blocks <= 1 ? n_in : ((n_in + n_blocks - 1) / n_blocks + LANES - 1) / LANES * LANES;
}

static void panels(const dense_job *j, float *scratch)
{
    const size_t kb = k_block(j->n_in), mb = kb == j->n_in ? M_BLOCK_SHORT : M_BLOCK_LONG;
    float *panel = scratch, *sums = scratch + K_MAX * TILE_N;
    for (size_t nb = j->n0; nb < j->n1; nb += N_BLOCK) {
        const size_t n_end = j->n1 - nb < N_BLOCK ? j->n1 : nb + N_BLOCK;
        for (size_t m = 0; m < j->n_rows; m += mb) {
            const size_t m_end = j->n_rows - m < mb ? j->n_rows : m + mb;
            for (size_t k = 0; k < j->n_in; k += kb) {
                const size_t n_k = j->n_in - k < kb ? j->n_in - k : kb;
                for (size_t n = nb; n < n_end; n += TILE_N) {
                    const size_t n_valid = n_end - n < TILE_N ? n_end - n : TILE_N;
                    pack(j, panel, n, n_valid, k, n_k);
                    panel_block(j, panel, m, m_end, n, n_valid, k, n_k,
                                kb < j->n_in ? sums + (n - nb) * M_BLOCK_LONG * LANES : sums);
                }
            }
        }
    }
}

static void dense(float *y, size_t ldy, const float *x, size_t ldx, size_t n_rows, const void *w, qp_wtype type,
                  size_t n_in, size_t n0, size_t n1, const float *bias, void *scratch)
{
    const dense_job j = {y, ldy, x, ldx, n_rows, w, type, n_in, n_in * qp_wtype_bytes(type), n0, n1, bias};
    if (n_rows > DIRECT_ROWS && n_in > 0)
        panels(&j, scratch);
    else if (type == QP_W_F32)
        direct_f32(&j);
    else if (type == QP_W_F16)
        direct_f16(&j);
    else
        direct_bf16(&j);
}

static size_t dense_scratch_bytes(size_t n_in)
{
    const size_t sums = k_block(n_in) == n_in ? 0 : (size_t)M_BLOCK_LONG * N_BLOCK * LANES;
    return ((size_t)K_MAX * TILE_N + sums) * sizeof(float);
}
