/* EXL3 binding and exact decoding: see exl3.h. */
#include "quant/exl3.h"

#include "base/num.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int qp_exl3_words_half(uint64_t n_words)
{
    return n_words == 24 || n_words == 40 || n_words == 56;
}

int qp_exl3_words_ok(uint64_t n_words)
{
    return qp_exl3_words_half(n_words) || (n_words % 16 == 0 && n_words >= 16 && n_words <= 128);
}

/* ---------------------------------------------------------------- decoding */

void qp_exl3_tile_states(const uint16_t *tile, uint32_t n_words, uint16_t states[256])
{
    const uint32_t n32 = n_words / 2;
    for (uint32_t t = 0; t < 256; t++) {
        /* The state is bits end - 16 .. end - 1 of the circular stream, end = floor((t + 1) * K). */
        uint32_t end = (t + 1) * n_words / 16, first = (end + 16 * n_words - 16) % (16 * n_words);
        uint32_t w0 = first / 32, w1 = (w0 + 1) % n32;
        uint64_t hi = (uint64_t)tile[2 * w0] | (uint64_t)tile[2 * w0 + 1] << 16;
        uint64_t lo = (uint64_t)tile[2 * w1] | (uint64_t)tile[2 * w1 + 1] << 16;
        states[t] = (uint16_t)((hi << 32 | lo) >> (48 - first % 32));
    }
}

uint16_t qp_exl3_value(qp_exl3_codebook codebook, uint16_t state)
{
    if (codebook == QP_EXL3_MUL1) {
        /* fma(1024 + s, 1774 * 2^-18, -10.3828125): a multiple of 2^-18 below 2^4, so exact in fp32; one rounding. */
        float v = fmaf((float)(1024 + qp_exl3_bytesum(state)), 0x1.bb8p-8f, -10.3828125f);
        return qp_f32_to_f16_rne(v);
    }
    uint32_t x = codebook == QP_EXL3_MCG ? state * QP_EXL3_MCG_MULT : state * QP_EXL3_3INST_MULT + QP_EXL3_3INST_ADD;
    x = (x & 0x8FFF8FFFu) ^ 0x3B603B60u;
    /* Both halves have exponents -3 .. 0, so their sum is exact in fp32 and rounded once. */
    return qp_f32_to_f16_rne(qp_f16_to_f32((uint16_t)x) + qp_f16_to_f32((uint16_t)(x >> 16)));
}

void qp_exl3_decode_inner(const qp_exl3 *t, uint16_t *out)
{
    const size_t n_kt = t->n_in / 16, n_nt = t->n_out / 16;
    uint16_t states[256];
    for (size_t kt = 0; kt < n_kt; kt++) {
        for (size_t nt = 0; nt < n_nt; nt++) {
            uint16_t *o = out + kt * 16 * t->n_out + nt * 16;
            qp_exl3_tile_states(t->trellis + (kt * n_nt + nt) * t->n_words, t->n_words, states);
            for (unsigned i = 0; i < 256; i++)
                o[qp_exl3_tile_row(i) * (size_t)t->n_out + qp_exl3_tile_col(i)] = qp_exl3_value(t->codebook, states[i]);
        }
    }
}

void qp_exl3_ring_decode(const uint16_t *ring, uint32_t n, uint32_t bits, float *out)
{
    const float scale = qp_f16_to_f32(ring[0]);
    const uint16_t *w = ring + 1;
    uint32_t state = 0, mask = (1u << bits) - 1;
    /* Warm up with the last elements: 16 symbols fill a state at any rate; then every element shifts its own in. */
    for (uint32_t j = 0; j < n + 16; j++) {
        uint32_t i = (j + n * 16 - 16) % n, pos = i * bits;
        uint32_t two = w[pos / 16] | (uint32_t)w[(pos / 16 + 1) % (n * bits / 16)] << 16;
        state = (state << bits | (two >> pos % 16 & mask)) & 0xFFFF;
        if (j >= 16) out[i] = qp_f16_to_f32(qp_exl3_value(QP_EXL3_MUL1, (uint16_t)state)) * scale;
    }
}

void qp_exl3_ngram_row(const uint16_t *ring, uint32_t n, uint32_t bits, const uint16_t *bias, uint16_t *out)
{
    float v[256];
    qp_exl3_ring_decode(ring, n, bits, v);
    for (uint32_t i = 0; i < n; i++) out[i] = qp_f32_to_f16_rne(v[i] + qp_f16_to_f32(bias[i]));
}

void qp_exl3_rows_decode(const qp_exl3_rows *t, size_t row, float *out)
{
    const size_t ring_words = 1 + 16 * (size_t)t->bits;
    const uint16_t *ring = t->trellis + row * t->n_groups * ring_words;
    float v[256];
    for (uint32_t g = 0; g < t->n_groups; g++) {
        qp_exl3_ring_decode(ring + g * ring_words, 256, t->bits, v);
        for (unsigned h = 1; h < 256; h *= 2) {
            for (unsigned i = 0; i < 256; i++) {
                if (i & h) continue;
                float a = v[i], b = v[i + h];
                v[i] = a + b;
                v[i + h] = a - b;
            }
        }
        uint32_t left = t->n_cols - g * 256, n = left < 256 ? left : 256;
        for (uint32_t i = 0; i < n; i++)
            out[g * 256 + i] = v[i] * 0.0625f * qp_f16_to_f32(t->signs[(size_t)g * 256 + i]);
    }
}

/* ---------------------------------------------------------------- binding */

enum { SHAPE_CAP = 160 };

/* KEY.suffix, NULL when absent. A name too long to be one of the checkpoint's is absent. */
static const qp_tensor *find(const qp_checkpoint *c, const char *key, const char *suffix)
{
    char name[QP_MAX_NAME_BYTES + 1];
    int n = snprintf(name, sizeof name, "%s.%s", key, suffix);
    return n > 0 && (size_t)n < sizeof name ? qp_checkpoint_find(c, name) : NULL;
}

static bool is_scalar(const qp_tensor *t)
{
    return t->n_elements == 1 && t->rank <= 1;
}

/* dtype and a rank-1 shape of n elements */
static qp_status check_vector(const qp_tensor *t, qp_dtype dt, uint64_t n, qp_err *err)
{
    char s[SHAPE_CAP];
    if (t->dtype != dt)
        return qp_fail(err, QP_EFORMAT, "%s: dtype %s, must be %s", t->name, qp_dtype_name(t->dtype),
                       qp_dtype_name(dt));
    if (t->rank != 1 || t->shape[0] != n)
        return qp_fail(err, QP_EFORMAT, "%s: shape %s, must be [%llu]", t->name, qp_tensor_shape_str(t, s, sizeof s),
                       (unsigned long long)n);
    return QP_OK;
}

/* The channel scales of one side, n of them: KEY.full (fp16) or KEY.sign (one bit a channel) widened into arena. */
static qp_status bind_scales(const uint16_t **out, const qp_checkpoint *c, const char *key, const char *full,
                             const char *sign, uint32_t n, qp_arena *arena, qp_err *err)
{
    const qp_tensor *t = find(c, key, full), *s = find(c, key, sign);
    if (t && s) return qp_fail(err, QP_EFORMAT, "%s: has both .%s and .%s, must have one", key, full, sign);
    if (!t && !s) return qp_fail(err, QP_EFORMAT, "%s: has neither .%s nor .%s, must have one", key, full, sign);
    if (t) {
        QP_TRY(check_vector(t, QP_DT_F16, n, err));
        const uint16_t *h = t->data;
        for (uint32_t i = 0; i < n; i++)
            if ((h[i] & 0x7C00) == 0x7C00)
                return qp_fail(err, QP_EFORMAT, "%s: value %u is not finite (fp16 bits 0x%04x)", t->name, i, h[i]);
        *out = h;
        return QP_OK;
    }
    QP_TRY(check_vector(s, QP_DT_I16, n / 16, err));
    const uint16_t *w = s->data;
    uint16_t *h = qp_arena_alloc(arena, n * sizeof *h);
    if (!h) return qp_fail(err, QP_ENOMEM, "%s: no memory for %zu bytes of channel signs", s->name, n * sizeof *h);
    for (uint32_t i = 0; i < n; i++) h[i] = w[i / 16] >> (i % 16) & 1 ? 0xBC00 : 0x3C00;
    *out = h;
    return QP_OK;
}

static qp_status check_marker(const qp_tensor *t, uint32_t want, qp_err *err)
{
    char s[SHAPE_CAP];
    uint32_t v;
    if (t->dtype != QP_DT_I32 && t->dtype != QP_DT_U32)
        return qp_fail(err, QP_EFORMAT, "%s: dtype %s, must be I32", t->name, qp_dtype_name(t->dtype));
    if (!is_scalar(t))
        return qp_fail(err, QP_EFORMAT, "%s: shape %s, must be a scalar", t->name, qp_tensor_shape_str(t, s, sizeof s));
    memcpy(&v, t->data, sizeof v);
    if (v != want) return qp_fail(err, QP_EFORMAT, "%s: multiplier 0x%08X, must be 0x%08X", t->name, v, want);
    return QP_OK;
}

static qp_status bind_codebook(qp_exl3_codebook *out, const qp_checkpoint *c, const char *key, qp_err *err)
{
    const qp_tensor *mcg = find(c, key, "mcg"), *mul1 = find(c, key, "mul1");
    if (mcg && mul1) return qp_fail(err, QP_EFORMAT, "%s: has both .mcg and .mul1, must have at most one", key);
    if (mcg) QP_TRY(check_marker(mcg, QP_EXL3_MCG_MULT, err));
    if (mul1) QP_TRY(check_marker(mul1, QP_EXL3_MUL1_MULT, err));
    *out = mul1 ? QP_EXL3_MUL1 : mcg ? QP_EXL3_MCG : QP_EXL3_3INST;
    return QP_OK;
}

/* Bias of the true or of the stored width, any float type, as fp32 in arena; NULL when there is none. */
static qp_status bind_bias(const float **out, const qp_checkpoint *c, const char *key, uint32_t n_out,
                           uint32_t n_out_true, qp_arena *arena, qp_err *err)
{
    char s[SHAPE_CAP];
    const qp_tensor *t = find(c, key, "bias");
    *out = NULL;
    if (!t) return QP_OK;
    if (t->dtype != QP_DT_F16 && t->dtype != QP_DT_F32 && t->dtype != QP_DT_BF16)
        return qp_fail(err, QP_EFORMAT, "%s: dtype %s, must be F16, F32 or BF16", t->name, qp_dtype_name(t->dtype));
    if (t->rank != 1 || (t->shape[0] != n_out && t->shape[0] != n_out_true))
        return qp_fail(err, QP_EFORMAT, "%s: shape %s, must be [%u] or, padded, [%u]", t->name,
                       qp_tensor_shape_str(t, s, sizeof s), n_out_true, n_out);
    float *b = qp_arena_alloc(arena, n_out_true * sizeof *b);
    if (!b) return qp_fail(err, QP_ENOMEM, "%s: no memory for %zu bytes of bias", t->name, n_out_true * sizeof *b);
    for (uint32_t i = 0; i < n_out_true; i++) {
        if (t->dtype == QP_DT_F32)
            b[i] = ((const float *)t->data)[i];
        else if (t->dtype == QP_DT_F16)
            b[i] = qp_f16_to_f32(((const uint16_t *)t->data)[i]);
        else
            b[i] = qp_bf16_to_f32(((const uint16_t *)t->data)[i]);
        if (!isfinite(b[i])) return qp_fail(err, QP_EFORMAT, "%s: value %u is not finite", t->name, i);
    }
    *out = b;
    return QP_OK;
}

/* Stored width of one side in channels, from its count of tiles. */
static qp_status bind_dim(uint32_t *out, const qp_tensor *t, unsigned axis, uint32_t want_true, const char *side,
                          qp_err *err)
{
    uint64_t tiles = t->shape[axis];
    if (tiles == 0 || tiles > QP_MAX_DIM / 16 || tiles % 8)
        return qp_fail(err, QP_EFORMAT,
                       "%s: %llu tiles of %s channels, must be a multiple of 8 (128 channels), 8 to %u", t->name,
                       (unsigned long long)tiles, side, QP_MAX_DIM / 16);
    if (want_true == 0 || tiles * 16 < want_true)
        return qp_fail(err, QP_EFORMAT, "%s: %llu %s channels, the model needs %u (at least 1)", t->name,
                       (unsigned long long)tiles * 16, side, want_true);
    *out = (uint32_t)(tiles * 16);
    return QP_OK;
}

qp_status qp_exl3_bind(qp_exl3 *out, const qp_checkpoint *c, const char *key, uint32_t n_in_true, uint32_t n_out_true,
                       qp_arena *arena, qp_err *err)
{
    char s[SHAPE_CAP];
    qp_exl3 r;
    memset(&r, 0, sizeof r);
    const qp_tensor *t = find(c, key, "trellis");
    if (!t) return qp_fail(err, QP_EFORMAT, "%s.trellis: missing", key);
    if (t->dtype != QP_DT_I16)
        return qp_fail(err, QP_EFORMAT, "%s: dtype %s, must be I16", t->name, qp_dtype_name(t->dtype));
    if (t->rank != 3)
        return qp_fail(err, QP_EFORMAT, "%s: shape %s, must be [in/16, out/16, 16*bits]", t->name,
                       qp_tensor_shape_str(t, s, sizeof s));
    if (!qp_exl3_words_ok(t->shape[2]))
        return qp_fail(err, QP_EFORMAT, "%s: shape %s, last dimension must be 16*bits with bits 1..8, 1.5, 2.5 or 3.5",
                       t->name, qp_tensor_shape_str(t, s, sizeof s));
    QP_TRY(bind_dim(&r.n_in, t, 0, n_in_true, "input", err));
    QP_TRY(bind_dim(&r.n_out, t, 1, n_out_true, "output", err));
    r.n_in_true = n_in_true;
    r.n_out_true = n_out_true;
    r.n_words = (uint32_t)t->shape[2];
    r.trellis = t->data;
    QP_TRY(bind_codebook(&r.codebook, c, key, err));
    if (qp_exl3_words_half(r.n_words) && r.codebook != QP_EXL3_MUL1)
        return qp_fail(err, QP_EFORMAT, "%s: %u.5 bits with codebook %s, half rates must have mul1", t->name,
                       r.n_words / 16, r.codebook == QP_EXL3_MCG ? "mcg" : "3inst");
    QP_TRY(bind_scales(&r.suh, c, key, "suh", "su", r.n_in, arena, err));
    QP_TRY(bind_scales(&r.svh, c, key, "svh", "sv", r.n_out, arena, err));
    QP_TRY(bind_bias(&r.bias, c, key, r.n_out, n_out_true, arena, err));
    *out = r;
    return QP_OK;
}

int qp_exl3_is_rows(const qp_checkpoint *c, const char *key)
{
    const qp_tensor *t = find(c, key, "trellis");
    return t && t->rank == 2;
}

/* Signs must be +-1 and the scale of every ring finite. */
static qp_status check_rows_values(const qp_exl3_rows *r, const qp_tensor *t, const qp_tensor *signs, qp_err *err)
{
    const size_t ring_words = 1 + 16 * (size_t)r->bits, n_rings = (size_t)r->n_rows * r->n_groups;
    for (size_t i = 0; i < signs->n_elements; i++)
        if ((r->signs[i] & 0x7FFF) != 0x3C00)
            return qp_fail(err, QP_EFORMAT, "%s: value %zu has fp16 bits 0x%04x, must be +1 or -1", signs->name, i,
                           r->signs[i]);
    for (size_t i = 0; i < n_rings; i++)
        if ((r->trellis[i * ring_words] & 0x7C00) == 0x7C00)
            return qp_fail(err, QP_EFORMAT, "%s: scale of row %zu, group %zu is not finite", t->name, i / r->n_groups,
                           i % r->n_groups);
    return QP_OK;
}

qp_status qp_exl3_rows_bind(qp_exl3_rows *out, const qp_checkpoint *c, const char *key, uint32_t n_rows_min,
                            uint32_t n_cols, qp_err *err)
{
    char s[SHAPE_CAP];
    qp_exl3_rows r;
    memset(&r, 0, sizeof r);
    const qp_tensor *t = find(c, key, "trellis"), *signs = find(c, key, "signs");
    if (!t || !signs) return qp_fail(err, QP_EFORMAT, "%s.%s: missing", key, t ? "signs" : "trellis");
    if (t->dtype != QP_DT_I16 || t->rank != 2)
        return qp_fail(err, QP_EFORMAT, "%s: %s %s, must be I16 [vocab, groups * (1 + 16*bits)]", t->name,
                       qp_dtype_name(t->dtype), qp_tensor_shape_str(t, s, sizeof s));
    if (n_cols == 0 || n_cols > QP_MAX_DIM)
        return qp_fail(err, QP_EINVAL, "%s: row width %u, must be 1 to %u", t->name, n_cols, QP_MAX_DIM);
    r.n_groups = (n_cols + 255) / 256;
    const uint64_t words = t->shape[1], per_group = words / r.n_groups;
    if (words % r.n_groups || per_group % 16 != 1 || per_group < 17 || per_group > 129)
        return qp_fail(err, QP_EFORMAT,
                       "%s: shape %s, rows of %u columns must have %u * (1 + 16*bits) words, bits 1..8", t->name,
                       qp_tensor_shape_str(t, s, sizeof s), n_cols, r.n_groups);
    if (t->shape[0] < n_rows_min || t->shape[0] == 0 || t->shape[0] > QP_MAX_VOCAB)
        return qp_fail(err, QP_EFORMAT, "%s: shape %s, must have %u to %u rows", t->name,
                       qp_tensor_shape_str(t, s, sizeof s), n_rows_min ? n_rows_min : 1, QP_MAX_VOCAB);
    if (signs->dtype != QP_DT_F16 || signs->rank != 2 || signs->shape[0] != r.n_groups || signs->shape[1] != 256)
        return qp_fail(err, QP_EFORMAT, "%s: %s %s, must be F16 [%u, 256]", signs->name, qp_dtype_name(signs->dtype),
                       qp_tensor_shape_str(signs, s, sizeof s), r.n_groups);
    r.bits = (uint32_t)(per_group / 16);
    r.n_rows = (uint32_t)t->shape[0];
    r.n_cols = n_cols;
    r.trellis = t->data;
    r.signs = signs->data;
    QP_TRY(check_rows_values(&r, t, signs, err));
    *out = r;
    return QP_OK;
}
