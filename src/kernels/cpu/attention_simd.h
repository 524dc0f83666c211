/* Attention over simd16.h. Included by attention_avx2.c and attention_avx512.c alone.
 *
 * A row is one query of one head. Up to ROWS rows go through the keys together, block by block; in a block, groups of
 * TILE_R rows share each loaded key (scores, TILE_K keys at a time) and each loaded value (TILE_D vectors at a time).
 * With one or two groups the cache is read as stored; with more, keys and values are first widened to fp32 in pieces
 * that stay in L1. A score, a maximum, a probability and an output element take the same operations in the same order
 * in every one of these ways, so neither the other rows nor the chunking change a bit. Keys that a row does not see are
 * left out of its sums, not multiplied by zero: their slots may hold anything. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/simd16.h"

#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
enum { TILE_R = 4, TILE_K = 4, TILE_D = 4 };
#else
enum { TILE_R = 2, TILE_K = 2, TILE_D = 2 };
#endif

enum {
    LANES = 16,
    BLOCK = 64,
    ROWS = 64,    /* rows that share the widening of a block */
    K_PIECE = 16, /* keys widened at a time: 8 KB at head_dim 128 */
    V_PIECE = TILE_D * LANES,
    HEAD_MAX = 512,
    KV_WIDE = 3, /* a fourth kind of keys and values, after qp_wtype: widened to fp32, padded, in sc->wide */
    DIRECT_ROWS = 2 * TILE_R, /* up to here widening once costs more than widening in each group */
    ACC = (TILE_R * TILE_K + 7) / 8 * 8
};

/* Keys of a score tile; one row alone takes twice as many (and twice the vectors of an output), so that enough sums
 * are in flight. */
#define TILE_KEYS(rows) ((rows) == 1 ? 2 * TILE_K : TILE_K)

typedef struct att_scratch {
    float s[ROWS][BLOCK]; /* scores, then probabilities, of the current block */
    float wide[K_PIECE * HEAD_MAX];
    const unsigned char *key[BLOCK]; /* its keys; where no row looks, the nearest key that one sees */
    const unsigned char *piece[BLOCK];
    const unsigned char *next[BLOCK]; /* the keys of the block after it, to be fetched; the last again at the end */
    const float *q[ROWS];
    float *o[ROWS];
    float m[ROWS], l[ROWS], top[ROWS], fall[ROWS]; /* top: the next m; fall: exp(m - top) */
    unsigned lo[ROWS], hi[ROWS];                   /* the keys of the block that the row sees; none: lo >= hi */
} att_scratch;

QP_INLINE v16 load_kv(const unsigned char *p, int type, size_t left)
{
    const float *f = (const float *)(const void *)p;
    if (type == KV_WIDE && left >= LANES) return vs_load_once(f);
    if (type == QP_W_F32 || type == KV_WIDE) return vs_load_n(f, left);
    if (left >= LANES) return type == QP_W_F16 ? vs_from_f16(p) : vs_from_bf16(p);
    return type == QP_W_F16 ? vs_from_f16_m(p, m16_first(left)) : vs_from_bf16_m(p, m16_first(left));
}

/* ---- scores: s[r * BLOCK + key] for n_keys keys, a multiple of TILE_KEYS(rows) ---- */

QP_INLINE void score_tile(int rows, int type, const float *const *q, const unsigned char *const *key, size_t head_dim,
                          float *s)
{
    const size_t size = type == QP_W_F32 || type == KV_WIDE ? 4 : 2;
    const int n_keys = TILE_KEYS(rows);
    v16 acc[ACC];
    float total[ACC];
    size_t d = 0;
#pragma GCC unroll 16
    for (int i = 0; i < ACC; i++) acc[i] = vs_set(0);
    for (; d + LANES <= head_dim; d += LANES) {
        v16 k[2 * TILE_K];
#pragma GCC unroll 8
        for (int j = 0; j < n_keys; j++) k[j] = load_kv(key[j] + d * size, type, LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const v16 x = vs_load(q[r] + d);
#pragma GCC unroll 8
            for (int j = 0; j < n_keys; j++) acc[r * n_keys + j] = vs_fma(x, k[j], acc[r * n_keys + j]);
        }
    }
    if (d < head_dim) {
        const m16 m = m16_first(head_dim - d);
#pragma GCC unroll 8
        for (int j = 0; j < n_keys; j++) {
            const v16 k = load_kv(key[j] + d * size, type, head_dim - d);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                acc[r * n_keys + j] = vs_fma_m(vs_load_m(q[r] + d, m), k, acc[r * n_keys + j], m);
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < rows * n_keys; i += 8) _mm256_storeu_ps(total + i, vs_sum_each8(acc + i));
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) memcpy(s + r * BLOCK, total + r * n_keys, (size_t)n_keys * sizeof *s);
}

/* fetch_bytes at each key + fetch_shift are fetched meanwhile. */
QP_INLINE void score_keys(int rows, int type, const float *const *q_rows, const unsigned char *const *key,
                          unsigned n_keys, size_t head_dim, float *s, ptrdiff_t fetch_shift, size_t fetch_bytes)
{
    const float *q[TILE_R];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) q[r] = q_rows[r];
    for (unsigned k = 0; k < n_keys; k += TILE_KEYS(rows)) {
        score_tile(rows, type, q, key + k, head_dim, s + k);
        if (type == KV_WIDE) continue;
        for (unsigned j = k; j < k + TILE_KEYS(rows); j++) {
            for (size_t i = 0; i < fetch_bytes; i += 64) __builtin_prefetch(key[j] + fetch_shift + i, 0, 2);
        }
    }
}

typedef void score_fn(const float *const *q, const unsigned char *const *key, unsigned n_keys, size_t head_dim,
                      float *s, ptrdiff_t fetch_shift, size_t fetch_bytes);

#define SCORE(name, type, rows)                                                                                        \
    static void name(const float *const *q, const unsigned char *const *key, unsigned n_keys, size_t head_dim,         \
                     float *s, ptrdiff_t fetch_shift, size_t fetch_bytes)                                              \
    {                                                                                                                  \
        score_keys(rows, type, q, key, n_keys, head_dim, s, fetch_shift, fetch_bytes);                                 \
    }
SCORE(score_f32_1, QP_W_F32, 1)
SCORE(score_f16_1, QP_W_F16, 1)
SCORE(score_bf16_1, QP_W_BF16, 1)
SCORE(score_wide_1, KV_WIDE, 1)
SCORE(score_f32_2, QP_W_F32, 2)
SCORE(score_f16_2, QP_W_F16, 2)
SCORE(score_bf16_2, QP_W_BF16, 2)
SCORE(score_wide_2, KV_WIDE, 2)
#if defined(__AVX512F__)
SCORE(score_f32_3, QP_W_F32, 3)
SCORE(score_f16_3, QP_W_F16, 3)
SCORE(score_bf16_3, QP_W_BF16, 3)
SCORE(score_wide_3, KV_WIDE, 3)
SCORE(score_f32_4, QP_W_F32, 4)
SCORE(score_f16_4, QP_W_F16, 4)
SCORE(score_bf16_4, QP_W_BF16, 4)
SCORE(score_wide_4, KV_WIDE, 4)
#endif
#undef SCORE

static score_fn *const score_table[4][TILE_R] = {
#if defined(__AVX512F__)
    {score_f32_1, score_f32_2, score_f32_3, score_f32_4},
    {score_f16_1, score_f16_2, score_f16_3, score_f16_4},
    {score_bf16_1, score_bf16_2, score_bf16_3, score_bf16_4},
    {score_wide_1, score_wide_2, score_wide_3, score_wide_4},
#else
    {score_f32_1, score_f32_2},
    {score_f16_1, score_f16_2},
    {score_bf16_1, score_bf16_2},
    {score_wide_1, score_wide_2},
#endif
};

/* ---- output: o[r][d0 ..] = o * fall + sum over keys j0 <= j < j1 of p[r][j] v[j] ---- */

typedef struct pv_job {
    float *const *o;
    const float *p, *fall;
    const unsigned char *const *v, *const *next; /* next[j] + next_shift: what to fetch meanwhile */
    ptrdiff_t v_shift, next_shift;               /* bytes from v[j] to the first of the elements */
    unsigned j0, j1;
    size_t d0, left; /* elements from d0 on that exist */
} pv_job;

QP_INLINE void pv_tile(const pv_job *w, int rows, int n_vec, int type, bool masked)
{
    const ptrdiff_t step = type == QP_W_F32 || type == KV_WIDE ? 4 * LANES : 2 * LANES;
    v16 acc[TILE_R][2 * TILE_D];
    size_t left[2 * TILE_D];
#pragma GCC unroll 8
    for (int i = 0; i < n_vec; i++) {
        const size_t done = (size_t)i * LANES;
        left[i] = !masked ? LANES : w->left > done ? w->left - done : 0;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            acc[r][i] = vs_mul(vs_load_n(w->o[r] + w->d0 + done, left[i]), vs_set(w->fall[r]));
    }
    for (unsigned j = w->j0; j < w->j1; j++) {
        const unsigned char *v = w->v[j] + w->v_shift;
        v16 x[2 * TILE_D];
        if (type != KV_WIDE) {
#pragma GCC unroll 8
            for (ptrdiff_t i = 0; i < n_vec * step; i += 64) __builtin_prefetch(w->next[j] + w->next_shift + i, 0, 2);
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++) x[i] = load_kv(v + i * step, type, left[i]);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const v16 p = vs_set(w->p[r * BLOCK + (int)j]);
#pragma GCC unroll 8
            for (int i = 0; i < n_vec; i++) acc[r][i] = vs_fma(p, x[i], acc[r][i]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++) vs_store_n(w->o[r] + w->d0 + (size_t)i * LANES, acc[r][i], left[i]);
    }
}

typedef void pv_fn(const pv_job *w);

#define PV(name, type, rows)                                                                                           \
    static void name(const pv_job *w)                                                                                  \
    {                                                                                                                  \
        pv_tile(w, rows, TILE_D, type, false);                                                                         \
    }                                                                                                                  \
    static void name##_m(const pv_job *w)                                                                              \
    {                                                                                                                  \
        pv_tile(w, rows, 2, type, true);                                                                               \
    }
PV(pv_f32_1, QP_W_F32, 1)
PV(pv_f16_1, QP_W_F16, 1)
PV(pv_bf16_1, QP_W_BF16, 1)
PV(pv_wide_1, KV_WIDE, 1)
PV(pv_f32_2, QP_W_F32, 2)
PV(pv_f16_2, QP_W_F16, 2)
PV(pv_bf16_2, QP_W_BF16, 2)
PV(pv_wide_2, KV_WIDE, 2)
#if defined(__AVX512F__)
PV(pv_f32_3, QP_W_F32, 3)
PV(pv_f16_3, QP_W_F16, 3)
PV(pv_bf16_3, QP_W_BF16, 3)
PV(pv_wide_3, KV_WIDE, 3)
PV(pv_f32_4, QP_W_F32, 4)
PV(pv_f16_4, QP_W_F16, 4)
PV(pv_bf16_4, QP_W_BF16, 4)
PV(pv_wide_4, KV_WIDE, 4)
#endif
#undef PV

#define PV_ALONE(name, type)                                                                                           \
    static void name(const pv_job *w)                                                                                  \
    {                                                                                                                  \
        pv_tile(w, 1, 2 * TILE_D, type, false);                                                                        \
    }
PV_ALONE(pv_f32_alone, QP_W_F32)
PV_ALONE(pv_f16_alone, QP_W_F16)
PV_ALONE(pv_bf16_alone, QP_W_BF16)
PV_ALONE(pv_wide_alone, KV_WIDE)
#undef PV_ALONE

static pv_fn *const pv_alone[4] = {pv_f32_alone, pv_f16_alone, pv_bf16_alone, pv_wide_alone};

static pv_fn *const pv_table[2][4][TILE_R] = {
#if defined(__AVX512F__)
    {{pv_f32_1, pv_f32_2, pv_f32_3, pv_f32_4},
     {pv_f16_1, pv_f16_2, pv_f16_3, pv_f16_4},
     {pv_bf16_1, pv_bf16_2, pv_bf16_3, pv_bf16_4},
     {pv_wide_1, pv_wide_2, pv_wide_3, pv_wide_4}},
    {{pv_f32_1_m, pv_f32_2_m, pv_f32_3_m, pv_f32_4_m},
     {pv_f16_1_m, pv_f16_2_m, pv_f16_3_m, pv_f16_4_m},
     {pv_bf16_1_m, pv_bf16_2_m, pv_bf16_3_m, pv_bf16_4_m},
     {pv_wide_1_m, pv_wide_2_m, pv_wide_3_m, pv_wide_4_m}},
#else
    {{pv_f32_1, pv_f32_2}, {pv_f16_1, pv_f16_2}, {pv_bf16_1, pv_bf16_2}, {pv_wide_1, pv_wide_2}},
    {{pv_f32_1_m, pv_f32_2_m}, {pv_f16_1_m, pv_f16_2_m}, {pv_bf16_1_m, pv_bf16_2_m}, {pv_wide_1_m, pv_wide_2_m}},
#endif
};

/* Elements d0 .. d0 + n of rows r0 .. r0 + rows over keys j0 .. j1; v[j] + v_shift is the value's element d0. */
static void pv_span(att_scratch *sc, unsigned r0, unsigned rows, float *fall, const unsigned char *const *v,
                    ptrdiff_t v_shift, int type, unsigned j0, unsigned j1, size_t d0, size_t n)
{
    const ptrdiff_t size = type == QP_W_F32 || type == KV_WIDE ? 4 : 2;
    if (j0 >= j1) return;
    for (size_t d = 0; d < n;) {
        const bool full = n - d >= V_PIECE, alone = rows == 1 && n - d >= 2 * V_PIECE;
        const ptrdiff_t shift = (ptrdiff_t)d * size;
        const pv_job w = {sc->o + r0, sc->s[r0], fall, v, sc->next, v_shift + shift, shift, j0, j1, d0 + d, n - d};
        (alone ? pv_alone[type] : pv_table[!full][type][rows - 1])(&w);
        d += alone ? 2 * V_PIECE : full ? V_PIECE : 2 * LANES;
    }
    for (unsigned r = 0; r < rows; r++) fall[r] = 1.0f; /* done; times 1 changes nothing */
}

/* A group of rows, each over its own keys in rising order: first those that only some see, alone, then the common
 * ones together, then the rest alone. */
static void pv_group(att_scratch *sc, unsigned r0, unsigned rows, const unsigned char *const *v, ptrdiff_t v_shift,
                     int type, size_t d0, size_t n)
{
    unsigned lo = 0, hi = BLOCK;
    float fall[TILE_R];
    for (unsigned r = 0; r < rows; r++) {
        fall[r] = sc->fall[r0 + r];
        if (sc->lo[r0 + r] > lo) lo = sc->lo[r0 + r];
        if (sc->hi[r0 + r] < hi) hi = sc->hi[r0 + r];
    }
    if (lo >= hi) lo = hi = BLOCK; /* nothing in common */
    for (unsigned r = 0; r < rows; r++) {
        const unsigned end = sc->hi[r0 + r] < lo ? sc->hi[r0 + r] : lo;
        pv_span(sc, r0 + r, 1, fall + r, v, v_shift, type, sc->lo[r0 + r], end, d0, n);
    }
    pv_span(sc, r0, rows, fall, v, v_shift, type, lo, hi, d0, n);
    for (unsigned r = 0; r < rows; r++) pv_span(sc, r0 + r, 1, fall + r, v, v_shift, type, hi, sc->hi[r0 + r], d0, n);
}

/* ---- a block ---- */

/* key[0 .. BLOCK) for the keys from `first` on: lo .. hi exist, the others stand for their nearest. */
static void locate(const qp_attn_args *a, const unsigned char **key, size_t first, unsigned lo, unsigned hi)
{
    const size_t stride = a->head_dim * qp_wtype_bytes(a->kv_type);
    for (unsigned j = lo; j < hi;) {
        const size_t page = (first + j) / a->page_size, slot = (first + j) % a->page_size;
        const size_t run = a->page_size - slot < hi - j ? a->page_size - slot : hi - j;
        const unsigned char *p = a->kv_base + (size_t)a->page_ids[page] * a->page_bytes + a->k_offset + slot * stride;
        for (size_t i = 0; i < run; i++) key[j + i] = p + i * stride;
        j += (unsigned)run;
    }
    for (unsigned j = 0; j < lo; j++) key[j] = key[lo];
    for (unsigned j = hi; j < BLOCK; j++) key[j] = key[hi - 1];
}

QP_INLINE void widen_type(att_scratch *sc, int type, ptrdiff_t shift, unsigned j0, unsigned j1, size_t n,
                          const unsigned char *const *fetch, ptrdiff_t fetch_shift)
{
    const size_t size = type == QP_W_F32 ? 4 : 2, stride = (n + LANES - 1) / LANES * LANES;
    for (unsigned j = j0; j < j1; j++) {
        const unsigned char *p = sc->key[j] + shift, *next = fetch[j] + fetch_shift;
        float *to = sc->wide + (j - j0) * stride;
        size_t d = 0;
        for (; d + 2 * LANES <= n; d += 2 * LANES) { /* at least half a line */
            __builtin_prefetch(next + d * size, 0, 2);
            vs_store(to + d, load_kv(p + d * size, type, LANES));
            vs_store(to + d + LANES, load_kv(p + (d + LANES) * size, type, LANES));
        }
        for (; d < n; d += LANES) vs_store(to + d, load_kv(p + d * size, type, n - d));
        sc->piece[j] = (const unsigned char *)to;
    }
}

/* Widens n elements at `shift` bytes from keys j0 .. j1 to sc->wide, where sc->piece then points, and fetches what
 * comes next, the same elements at fetch[j] + fetch_shift. */
static void widen(const qp_attn_args *a, att_scratch *sc, ptrdiff_t shift, unsigned j0, unsigned j1, size_t n,
                  const unsigned char *const *fetch, ptrdiff_t fetch_shift)
{
    if (a->kv_type == QP_W_F32)
        widen_type(sc, QP_W_F32, shift, j0, j1, n, fetch, fetch_shift);
    else if (a->kv_type == QP_W_F16)
        widen_type(sc, QP_W_F16, shift, j0, j1, n, fetch, fetch_shift);
    else
        widen_type(sc, QP_W_BF16, shift, j0, j1, n, fetch, fetch_shift);
}

static void block_scores(const qp_attn_args *a, att_scratch *sc, unsigned n_rows, unsigned lo, unsigned hi)
{
    const bool direct = n_rows <= DIRECT_ROWS;
    const size_t row_bytes = a->head_dim * qp_wtype_bytes(a->kv_type);
    const ptrdiff_t to_v = (ptrdiff_t)(a->v_offset - a->k_offset);
    const int type = direct ? (int)a->kv_type : KV_WIDE;
    const unsigned char *const *key = direct ? sc->key : sc->piece;
    for (unsigned k0 = lo / K_PIECE * K_PIECE; k0 < hi; k0 += K_PIECE) {
        if (!direct) widen(a, sc, 0, k0, k0 + K_PIECE, a->head_dim, sc->key, to_v);
        for (unsigned r = 0; r < n_rows; r += TILE_R) {
            const unsigned rows = n_rows - r < TILE_R ? n_rows - r : TILE_R;
            score_table[type][rows - 1](sc->q + r, key + k0, K_PIECE, a->head_dim, sc->s[r] + k0, to_v,
                                        r == 0 ? row_bytes : 0); /* the values come next */
        }
    }
}

QP_INLINE uint64_t seen_keys(const att_scratch *sc, unsigned r)
{
    const uint64_t below = sc->hi[r] == BLOCK ? ~UINT64_C(0) : (UINT64_C(1) << sc->hi[r]) - 1;
    return below & ~((UINT64_C(1) << sc->lo[r]) - 1);
}

/* Final scores, and the row's new maximum to sc->top. */
static void row_top(const qp_attn_args *a, att_scratch *sc, unsigned r)
{
    const uint64_t seen = seen_keys(sc, r);
    const v16 scale = vs_set(a->scale), none = vs_set(-INFINITY), cap = vs_set(a->softcap);
    v16 top = none;
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / LANES; i++) {
        v16 x = vs_mul(vs_load(sc->s[r] + i * LANES), scale);
        if (a->softcap > 0) x = vs_mul(cap, vs_tanh(vs_div(x, cap)));
        vs_store(sc->s[r] + i * LANES, x);
        top = vs_max(vs_pick(m16_bits((unsigned)(seen >> (i * LANES) & 0xFFFF)), x, none), top);
    }
    const float m = vs_max_lane(top);
    sc->top[r] = m > sc->m[r] ? m : sc->m[r];
}

/* Probabilities in place of the scores, and the row's sum and maximum. */
static void row_softmax(att_scratch *sc, unsigned r)
{
    const uint64_t seen = seen_keys(sc, r);
    const v16 m = vs_set(sc->top[r]);
    v16 sum = vs_set(0);
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / LANES; i++) {
        const v16 p = vs_exp(vs_sub(vs_load(sc->s[r] + i * LANES), m));
        const v16 x = vs_pick(m16_bits((unsigned)(seen >> (i * LANES) & 0xFFFF)), p, vs_set(0));
        sum = vs_add(sum, x);
        vs_store(sc->s[r] + i * LANES, x);
    }
    sc->l[r] = sc->l[r] * sc->fall[r] + vs_sum(sum);
    sc->m[r] = sc->top[r];
}

/* In three passes over the rows, so that the long chains of different rows overlap. */
static void block_softmax(const qp_attn_args *a, att_scratch *sc, unsigned n_rows)
{
    for (unsigned r = 0; r < n_rows; r++) {
        if (sc->lo[r] < sc->hi[r]) row_top(a, sc, r);
    }
    for (unsigned r = 0; r < n_rows; r += LANES)
        vs_store(sc->fall + r, vs_exp(vs_sub(vs_load(sc->m + r), vs_load(sc->top + r))));
    for (unsigned r = 0; r < n_rows; r++) {
        if (sc->lo[r] < sc->hi[r]) row_softmax(sc, r);
    }
}

static void block_output(const qp_attn_args *a, att_scratch *sc, unsigned n_rows, unsigned lo, unsigned hi)
{
    const ptrdiff_t to_v = (ptrdiff_t)(a->v_offset - a->k_offset), size = (ptrdiff_t)qp_wtype_bytes(a->kv_type);
    for (unsigned r = 0; r < n_rows && n_rows <= DIRECT_ROWS; r += TILE_R)
        pv_group(sc, r, n_rows - r < TILE_R ? n_rows - r : TILE_R, sc->key, to_v, (int)a->kv_type, 0, a->head_dim);
    for (size_t d = 0; d < a->head_dim && n_rows > DIRECT_ROWS; d += V_PIECE) {
        const size_t n = a->head_dim - d < V_PIECE ? a->head_dim - d : V_PIECE;
        widen(a, sc, to_v + (ptrdiff_t)d * size, lo, hi, n, sc->next, (ptrdiff_t)d * size);
        for (unsigned r = 0; r < n_rows; r += TILE_R)
            pv_group(sc, r, n_rows - r < TILE_R ? n_rows - r : TILE_R, sc->piece, 0, KV_WIDE, d, n);
    }
}

/* Rows row0 .. row0 + n_rows (row = query * n_group + head), n_rows <= ROWS. */
static void run_rows(const qp_attn_args *a, att_scratch *sc, size_t row0, unsigned n_rows)
{
    size_t key_lo = SIZE_MAX, key_hi = 0, lo[ROWS], hi[ROWS];
    for (unsigned r = 0; r < n_rows; r++) {
        const size_t t = (row0 + r) / a->n_group, g = (row0 + r) % a->n_group;
        sc->q[r] = a->q + t * a->ldq + g * a->head_dim;
        sc->o[r] = a->out + t * a->ldo + g * a->head_dim;
        for (size_t d = 0; d < a->head_dim; d++) sc->o[r][d] = 0;
        sc->m[r] = a->sinks ? a->sinks[g] : -INFINITY;
        sc->l[r] = a->sinks ? 1.0f : 0.0f;
        hi[r] = (size_t)a->pos0 + t + 1;
        lo[r] = a->window && hi[r] > a->window ? hi[r] - a->window : 0;
        if (lo[r] < key_lo) key_lo = lo[r];
        if (hi[r] > key_hi) key_hi = hi[r];
    }
    for (size_t b = key_lo / BLOCK * BLOCK; b < key_hi; b += BLOCK) {
        unsigned any_lo = BLOCK, any_hi = 0;
        for (unsigned r = 0; r < n_rows; r++) {
            sc->lo[r] = lo[r] <= b ? 0 : lo[r] - b < BLOCK ? (unsigned)(lo[r] - b) : BLOCK;
            sc->hi[r] = hi[r] <= b ? 0 : hi[r] - b < BLOCK ? (unsigned)(hi[r] - b) : BLOCK;
            if (sc->lo[r] >= sc->hi[r]) continue;
            if (sc->lo[r] < any_lo) any_lo = sc->lo[r];
            if (sc->hi[r] > any_hi) any_hi = sc->hi[r];
        }
        if (any_lo >= any_hi) continue;
        locate(a, sc->key, b, any_lo, any_hi);
        if (b + BLOCK < key_hi)
            locate(a, sc->next, b + BLOCK, 0, key_hi - b - BLOCK < BLOCK ? (unsigned)(key_hi - b - BLOCK) : BLOCK);
        else
            memcpy(sc->next, sc->key, sizeof sc->next);
        block_scores(a, sc, n_rows, any_lo, any_hi);
        block_softmax(a, sc, n_rows);
        block_output(a, sc, n_rows, any_lo, any_hi);
    }
    for (unsigned r = 0; r < n_rows; r++) {
        const v16 l = vs_set(sc->l[r]);
        for (size_t d = 0; d < a->head_dim; d += LANES) {
            float *o = sc->o[r] + d;
            vs_store_n(o, vs_div(vs_load_n(o, a->head_dim - d), l), a->head_dim - d);
        }
    }
}

static void attention(const qp_attn_args *a, void *scratch)
{
    const size_t n = (size_t)a->n_q * a->n_group;
    for (size_t r = 0; r < n; r += ROWS) run_rows(a, scratch, r, n - r < ROWS ? (unsigned)(n - r) : ROWS);
}

static size_t attention_scratch_bytes(size_t n_q, size_t n_group, size_t head_dim)
{
    (void)n_q;
    (void)n_group;
    (void)head_dim;
    return sizeof(att_scratch);
}
