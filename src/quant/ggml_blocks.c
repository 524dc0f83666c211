/* GGML block formats: see ggml_blocks.h. d, m, dmin are fp16, little endian; q are the stored integers.
 *
 *     Q4_0  32 weights  18 bytes  d, qs[16]                            w = d * (q - 8)
 *     Q4_1  32          20        d, m, qs[16]                         w = d * q + m
 *     Q5_0  32          22        d, qh[4], qs[16]                     w = d * (q - 16)
 *     Q5_1  32          24        d, m, qh[4], qs[16]                  w = d * q + m
 *     Q8_0  32          34        d, int8 qs[32]                       w = d * q
 *     Q4_K  256         144       d, dmin, scales[12], qs[128]         w = (d * sc) * q - (dmin * mn)
 *     Q5_K  256         176       d, dmin, scales[12], qh[32], qs[128] the same
 *     Q6_K  256         210       ql[128], qh[64], int8 scales[16], d  w = (d * sc) * (q - 32)
 *
 * No product is fused with a sum (-ffp-contract=off): the results are those of the format's own reference, bit for
 * bit. */
#include "quant/ggml_blocks.h"

#include "base/num.h"

static float half_at(const unsigned char *p)
{
    return qp_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t u32_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Weight i < 16 is the low nibble of qs[i], weight 16 + i the high one; bit i of qh is bit 4 of weight i. */
static void decode_nibbles(const unsigned char *qs, uint32_t qh, float d, int minus, float m, int has_m, float *out)
{
    for (int i = 0; i < 16; i++) {
        int lo = (qs[i] & 15) | (int)(qh >> i & 1) << 4, hi = qs[i] >> 4 | (int)(qh >> (i + 16) & 1) << 4;
        float a = d * (float)(lo - minus), b = d * (float)(hi - minus);
        out[i] = has_m ? a + m : a; /* a sum with 0 would turn -0 into 0 */
        out[i + 16] = has_m ? b + m : b;
    }
}

static void decode_q8_0(const unsigned char *p, float *out)
{
    float d = half_at(p);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)p[2 + i];
}

/* Eight 6-bit scales and minimums in 12 bytes. */
static void k_scale(const unsigned char *s, int j, float *sc, float *mn)
{
    if (j < 4) {
        *sc = (float)(s[j] & 63);
        *mn = (float)(s[j + 4] & 63);
    } else {
        *sc = (float)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *mn = (float)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
}

/* Sub-blocks 2k and 2k+1 share the bytes qs[32k .. 32k+31]: low and high nibbles. qh (Q5_K, else NULL): bit j of qh[l]
 * is bit 4 of weight l of sub-block j. */
static void decode_k(const unsigned char *p, const unsigned char *qh, const unsigned char *qs, float *out)
{
    float d = half_at(p), dmin = half_at(p + 2);
    for (int j = 0; j < 8; j++) {
        float sc, mn;
        k_scale(p + 4, j, &sc, &mn);
        float scale = d * sc, minimum = dmin * mn;
        for (int l = 0; l < 32; l++) {
            int q = qs[32 * (j / 2) + l] >> 4 * (j % 2) & 15;
            if (qh) q |= (qh[l] >> j & 1) << 4;
            out[32 * j + l] = scale * (float)q - minimum;
        }
    }
}

/* Two halves h of 128: 64 bytes of ql and 32 of qh each. Weight 128h + 32c + l takes its low nibble from ql[l] or
 * ql[32 + l] (c odd), the low or (c > 1) high one, and two bits from qh[l] at 2c. */
static void decode_q6_k(const unsigned char *p, float *out)
{
    float d = half_at(p + 208);
    for (int h = 0; h < 2; h++) {
        const unsigned char *ql = p + 64 * h, *qh = p + 128 + 32 * h, *scales = p + 192 + 8 * h;
        for (int c = 0; c < 4; c++) {
            for (int l = 0; l < 32; l++) {
                int low = ql[32 * (c & 1) + l] >> 4 * (c >> 1) & 15, high = qh[l] >> 2 * c & 3;
                float scale = d * (float)(int8_t)scales[2 * c + l / 16];
                out[128 * h + 32 * c + l] = scale * (float)((low | high << 4) - 32);
            }
        }
    }
}

static void decode_block(uint32_t type, const unsigned char *p, float *out)
{
    switch (type) {
    case QP_GGML_Q4_0:
        decode_nibbles(p + 2, 0, half_at(p), 8, 0, 0, out);
        break;
    case QP_GGML_Q4_1:
        decode_nibbles(p + 4, 0, half_at(p), 0, half_at(p + 2), 1, out);
        break;
    case QP_GGML_Q5_0:
        decode_nibbles(p + 6, u32_at(p + 2), half_at(p), 16, 0, 0, out);
        break;
    case QP_GGML_Q5_1:
        decode_nibbles(p + 8, u32_at(p + 4), half_at(p), 0, half_at(p + 2), 1, out);
        break;
    case QP_GGML_Q8_0:
        decode_q8_0(p, out);
        break;
    case QP_GGML_Q4_K:
        decode_k(p, NULL, p + 16, out);
        break;
    case QP_GGML_Q5_K:
        decode_k(p, p + 16, p + 48, out);
        break;
    case QP_GGML_Q6_K:
        decode_q6_k(p, out);
        break;
    case QP_GGML_F32:
        out[0] = qp_f32_from_bits(u32_at(p));
        break;
    case QP_GGML_F16:
        out[0] = half_at(p);
        break;
    case QP_GGML_BF16:
        out[0] = qp_bf16_to_f32((uint16_t)(p[0] | p[1] << 8));
        break;
    default:
        break;
    }
}

void qp_ggml_decode(const qp_ggml_type *type, const unsigned char *src, size_t n, float *out)
{
    for (size_t i = 0; i < n / type->block; i++)
        decode_block(type->id, src + i * type->block_bytes, out + i * type->block);
}
