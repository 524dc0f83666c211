/* EXL3 fp32 product of the AVX-512 levels: included by exl3_f32_avx512.c and exl3_f32_vnni.c after the header that cuts
 * the states of that level (exl3_zmm.h names what it defines).
 *
 * Lanes are the sixteen columns of a tile, k is sequential (the order of cpu_kernels.h): the qword windows of the 32
 * lanes are transposed, so that vector i holds the windows of rows 2i + {0, 1, 8, 9} of all columns, and each row's
 * states are cut from it into dwords: column c in the even, column c + 8 in the odd dword.
 * 1 to 4 rows: weights go straight into the FMAs. More rows: a tile column is decoded into a panel [n_in][16] first. */
enum { F32_RUN_TILES = 8, F32_BLOCK = 64, F32_ROWS = 12 };

/* Inverse of the order that the transposition leaves the columns in. */
static const int32_t f32_col_place[16] = {0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15};

/* Four vectors of two columns by four qwords to one a qword: z[i] = qword i of columns 0, 2, 1, 3, 4, 6, 5, 7. */
QP_INLINE void transpose_windows(__m512i z[4], const __m512i w[4])
{
    const __m512i l0 = _mm512_unpacklo_epi64(w[0], w[1]), l1 = _mm512_unpacklo_epi64(w[2], w[3]);
    const __m512i h0 = _mm512_unpackhi_epi64(w[0], w[1]), h1 = _mm512_unpackhi_epi64(w[2], w[3]);
    z[0] = _mm512_shuffle_i64x2(l0, l1, 0x88);
    z[1] = _mm512_shuffle_i64x2(h0, h1, 0x88);
    z[2] = _mm512_shuffle_i64x2(l0, l1, 0xDD);
    z[3] = _mm512_shuffle_i64x2(h0, h1, 0xDD);
}

/* v rounded to the 11 significant bits of fp16, to nearest even, by Veltkamp's split. That this equals the conversion
 * to fp16 and back was checked for all 65536 states of each codebook (tests/kernel does it again); no value of a
 * codebook is subnormal in fp16. */
QP_INLINE __m512 round11(__m512 v)
{
    const __m512 g = _mm512_mul_ps(v, _mm512_set1_ps(8193.0f));
    return _mm512_add_ps(g, _mm512_sub_ps(v, g));
}

/* The fp16 half of each dword that is in its upper bits, as fp32 (the mask leaves exponents 12 .. 15, so the
 * three upper exponent bits of the fp32 are constants), after the codebook's mask and xor with 0x3B60. */
QP_INLINE __m512 half_value(__m512i x)
{
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_srai_epi32(x, 3), _mm512_set1_epi32((int)0x81FFE000u),
                                                         _mm512_set1_epi32(0x3F6C0000), 0x6A)); /* (a & b) ^ c */
}

/* The values of sixteen states (dwords below 65536). */
QP_INLINE __m512 values16(const int book, __m512i st)
{
    if (book == QP_EXL3_MUL1) {
        /* f = 2^23 + byte sum; the fma is exact: a multiple of 2^-17 below 2^4, its constant one of 2^-7 below 2^16 */
        const __m512 f = _mm512_castsi512_ps(
            lv_bytesum32(_mm512_mullo_epi32(st, _mm512_set1_epi32((int)0x83DCD12Du)), _mm512_set1_epi32(0x4B000000)));
        return round11(_mm512_fmadd_ps(f, _mm512_set1_ps(0x1.bb8p-8f), _mm512_set1_ps(-56771.453125f)));
    }
    __m512i x = _mm512_mullo_epi32(st, _mm512_set1_epi32(book == QP_EXL3_MCG ? (int)0xCBAC1FEDu : 89226354));
    if (book == QP_EXL3_3INST) x = _mm512_add_epi32(x, _mm512_set1_epi32(64248484));
    return round11(_mm512_add_ps(half_value(_mm512_slli_epi32(x, 16)), half_value(x)));
}

/* The transposed windows of a tile: states 0 .. 3 of the lanes are cut from a[], 4 .. 7 from b[] (equal up to K = 6).
 */
QP_INLINE void tile_windows(const int K2, const uint8_t *tile, const lv_f32 *c, __m512i a[4], __m512i b[4])
{
    __m512i wa[4], wb[4];
    QP_UNROLL
    for (int g = 0; g < 4; g++) lv_windows(K2, tile, g, c, &wa[g], &wb[g]);
    transpose_windows(a, wa);
    if (K2 > 12) {
        transpose_windows(b, wb);
    } else {
        QP_UNROLL
        for (int i = 0; i < 4; i++) b[i] = a[i];
    }
}

/* Row k of a tile. */
QP_INLINE __m512 tile_row(const int K2, const int book, const int k, const __m512i a[4], const __m512i b[4])
{
    const int i = k % 8 / 2, j = k % 2 + k / 8 * 2;
    return values16(book, lv_states16(K2, a[i], b[i], i, j));
}

/* acc[R] += n >= 1 tile rows of one tile column. */
QP_INLINE void f32_run(const int K2, const int book, const int R, const uint8_t *tile, const uint8_t *ahead,
                       size_t stride, size_t n, const float *x, size_t ldx, __m512 *acc)
{
    const lv_f32 c = lv_f32_load(K2);
    const uint8_t *const end = tile + n * stride;
    __m512 s[4];
    QP_UNROLL
    for (int r = 0; r < R; r++) s[r] = acc[r];
    do {
        __m512i a[4], b[4];
        for (int p = 0; p < 16 * K2; p += 64) _mm_prefetch((const char *)ahead + p, _MM_HINT_T0);
        tile_windows(K2, tile, &c, a, b);
        QP_UNROLL
        for (int k = 0; k < 16; k++) {
            const __m512 w = tile_row(K2, book, k, a, b);
            QP_UNROLL
            for (int r = 0; r < R; r++) s[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[r * ldx + k]), s[r]);
        }
        tile += stride;
        ahead += stride;
        x += 16;
    } while (tile != end);
    QP_UNROLL
    for (int r = 0; r < R; r++) acc[r] = s[r];
}

QP_INLINE void f32_decode(const int K2, const int book, float *panel, const uint8_t *tile, size_t stride, size_t n_kt)
{
    const lv_f32 c = lv_f32_load(K2);
    for (size_t kt = 0; kt < n_kt; kt++, tile += stride, panel += 256) {
        __m512i a[4], b[4];
        for (int p = 0; p < 16 * K2; p += 64) _mm_prefetch((const char *)tile + 8 * stride + p, _MM_HINT_T0);
        tile_windows(K2, tile, &c, a, b);
        QP_UNROLL
        for (int k = 0; k < 16; k++) _mm512_store_ps(panel + 16 * k, tile_row(K2, book, k, a, b));
    }
}

typedef void f32_run_fn(const uint8_t *tile, const uint8_t *ahead, size_t stride, size_t n, const float *x, size_t ldx,
                        __m512 *acc);
typedef void f32_decode_fn(float *panel, const uint8_t *tile, size_t stride, size_t n_kt);

#define F32_RUN(K2, B, R)                                                                                              \
    static void f32_run_##K2##_##B##_##R(const uint8_t *tile, const uint8_t *ahead, size_t stride, size_t n,           \
                                         const float *x, size_t ldx, __m512 *acc)                                      \
    {                                                                                                                  \
        f32_run(K2, B, R, tile, ahead, stride, n, x, ldx, acc);                                                        \
    }
#define F32_BOOK(K2, B)                                                                                                \
    F32_RUN(K2, B, 1)                                                                                                  \
    F32_RUN(K2, B, 2)                                                                                                  \
    F32_RUN(K2, B, 3)                                                                                                  \
    F32_RUN(K2, B, 4) static void f32_decode_##K2##_##B(float *panel, const uint8_t *tile, size_t stride, size_t n_kt) \
    {                                                                                                                  \
        f32_decode(K2, B, panel, tile, stride, n_kt);                                                                  \
    }
#define F32_RATE(K2) F32_BOOK(K2, 0) F32_BOOK(K2, 1) F32_BOOK(K2, 2)
#define F32_RUN_NAMES(K2, B)                                                                                           \
    {                                                                                                                  \
        f32_run_##K2##_##B##_1, f32_run_##K2##_##B##_2, f32_run_##K2##_##B##_3, f32_run_##K2##_##B##_4                 \
    }
#define F32_RUN_ROW(K2) {F32_RUN_NAMES(K2, 0), F32_RUN_NAMES(K2, 1), F32_RUN_NAMES(K2, 2)},
#define F32_DECODE_ROW(K2) {f32_decode_##K2##_0, f32_decode_##K2##_1, f32_decode_##K2##_2},
QP_EXL3_RATES(F32_RATE)
static f32_run_fn *const f32_run_of[11][3][4] = {QP_EXL3_RATES(F32_RUN_ROW)};
static f32_decode_fn *const f32_decode_of[11][3] = {QP_EXL3_RATES(F32_DECODE_ROW)};

QP_INLINE void f32_store(float *y, __m512 v)
{
    _mm512_storeu_ps(y, _mm512_permutexvar_ps(_mm512_loadu_si512(f32_col_place), v));
}

/* n_rows <= 4. */
static void f32_gemv(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh, size_t ldx,
                     size_t n_rows)
{
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const uint8_t *base = (const uint8_t *)t->trellis;
    f32_run_fn *const fn = f32_run_of[qp_exl3_rate_index(t->n_words)][t->codebook][n_rows - 1];
    __m512 acc[F32_BLOCK][4];
    for (size_t c0 = tile0; c0 < tile1; c0 += F32_BLOCK) {
        const size_t n_c = tile1 - c0 < F32_BLOCK ? tile1 - c0 : F32_BLOCK;
        memset(acc, 0, n_c * sizeof *acc);
        for (size_t k = 0; k < n_kt; k += F32_RUN_TILES) {
            const size_t n = n_kt - k < F32_RUN_TILES ? n_kt - k : F32_RUN_TILES;
            for (size_t c = 0; c < n_c; c++) {
                const uint8_t *tile = base + k * stride + (c0 + c) * tile_bytes;
                fn(tile, tile + 4 * tile_bytes, stride, n, xh + k * 16, ldx, acc[c]);
            }
        }
        for (size_t c = 0; c < n_c; c++)
            for (size_t r = 0; r < n_rows; r++) f32_store(yh + r * ldy + (c0 + c) * 16, acc[c][r]);
    }
}

/* y rows = sums over n_k of R rows of x with the panel. */
QP_INLINE void f32_block_run(const int R, float *y, size_t ldy, const float *panel, const float *x, size_t ldx,
                             size_t n_k)
{
    __m512 s[F32_ROWS];
    const float *p[4];
    QP_UNROLL
    for (int r = 0; r < R; r++) s[r] = _mm512_setzero_ps();
    QP_UNROLL
    for (int i = 0; i < 4; i++) p[i] = x + (3 * i < R ? 3 * i * ldx : 0);
    size_t k = 0;
    do {
        const __m512 w = _mm512_load_ps(panel + 16 * k);
        QP_UNROLL
        for (int r = 0; r < R; r++) s[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(p[r / 3][r % 3 * ldx + k]), s[r]);
    } while (++k < n_k);
    QP_UNROLL
    for (int r = 0; r < R; r++) f32_store(y + r * ldy, s[r]);
}

typedef void f32_block_fn(float *y, size_t ldy, const float *panel, const float *x, size_t ldx, size_t n_k);

#define F32_BLOCK_FN(R)                                                                                                \
    static void f32_block_##R(float *y, size_t ldy, const float *panel, const float *x, size_t ldx, size_t n_k)        \
    {                                                                                                                  \
        f32_block_run(R, y, ldy, panel, x, ldx, n_k);                                                                  \
    }
#define F32_BLOCK_NAME(R) f32_block_##R,
#define F32_ROWS_12(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
F32_ROWS_12(F32_BLOCK_FN)
static f32_block_fn *const f32_block_of[F32_ROWS] = {F32_ROWS_12(F32_BLOCK_NAME)};

static void mul_f32(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh, size_t ldx,
                    size_t n_rows, void *scratch)
{
    if (n_rows == 0) return;
    if (n_rows <= 4) {
        f32_gemv(yh, ldy, t, tile0, tile1, xh, ldx, n_rows);
        return;
    }
    const size_t tile_bytes = 2 * (size_t)t->n_words, n_kt = t->n_in / 16, stride = t->n_out / 16 * tile_bytes;
    const size_t n_blocks = (n_rows + F32_ROWS - 1) / F32_ROWS;
    const uint8_t *base = (const uint8_t *)t->trellis;
    f32_decode_fn *const dec = f32_decode_of[qp_exl3_rate_index(t->n_words)][t->codebook];
    for (size_t c = tile0; c < tile1; c++) {
        dec(scratch, base + c * tile_bytes, stride, n_kt);
        for (size_t b = 0; b < n_blocks; b++) {
            const size_t m0 = n_rows * b / n_blocks, n_m = n_rows * (b + 1) / n_blocks - m0;
            f32_block_of[n_m - 1](yh + m0 * ldy + c * 16, ldy, scratch, xh + m0 * ldx, ldx, t->n_in);
        }
    }
}
