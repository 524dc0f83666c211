/* EXL3 kernels, level ref: plain C, the definition that the other levels are tested against (cpu_kernels.h). */
#include "kernels/cpu/cpu_kernels.h"

#include "base/num.h"
#include "quant/exl3.h"

#include <math.h>
#include <string.h>

#define RSQRT_128 0x1.6a09e6p-4f /* 1/sqrt(128) rounded to fp32 */

enum { ROWS = 16 }; /* rows that share a decoded tile */

/* Natural order: strides 1, 2, .. 64; the scale comes last, in one rounding. */
static void hadamard128(float v[128])
{
    for (unsigned h = 1; h < 128; h *= 2) {
        for (unsigned i = 0; i < 128; i++) {
            if (i & h) continue;
            float a = v[i], b = v[i + h];
            v[i] = a + b;
            v[i + h] = a - b;
        }
    }
    for (unsigned i = 0; i < 128; i++) v[i] *= RSQRT_128;
}

static void rotate_in(float *xh, const float *x, const qp_exl3 *t)
{
    for (uint32_t b = 0; b < t->n_in; b += 128) {
        for (uint32_t i = b; i < b + 128; i++) xh[i] = i < t->n_in_true ? x[i] * qp_f16_to_f32(t->suh[i]) : 0.0f;
        hadamard128(xh + b);
    }
}

static void rotate_out(float *y, const float *yh, const qp_exl3 *t)
{
    float v[128];
    for (uint32_t b = 0; b < t->n_out_true; b += 128) {
        memcpy(v, yh + b, sizeof v);
        hadamard128(v);
        for (uint32_t i = b; i < b + 128 && i < t->n_out_true; i++) {
            y[i] = v[i - b] * qp_f16_to_f32(t->svh[i]);
            if (t->bias) y[i] = y[i] + t->bias[i];
        }
    }
}

static void quantize(int16_t *xq, float *scale, int64_t *sum, const float *xh, size_t n_in)
{
    static const unsigned char row[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    float amax = 0.0f;
    int finite = 1;
    for (size_t i = 0; i < n_in; i++) {
        float a = fabsf(xh[i]);
        if (!(a <= 0x1.fffffep127f)) finite = 0;
        amax = a > amax ? a : amax;
    }
    float s = amax / (float)QP_EXL3_I16_MAX;
    /* A scale below the normal range has no finite inverse: such a row (amax under 2e-34) counts as zero. */
    if (s < 0x1p-126f) s = 0.0f;
    *sum = 0;
    *scale = finite ? s : NAN;
    if (!finite || s == 0.0f) {
        memset(xq, 0, n_in * sizeof *xq);
        return;
    }
    const float inv = 1.0f / s;
    for (size_t i = 0; i < n_in; i++) {
        /* |xh * inv| <= 16383 * (1 + 3 * 2^-24), which rounds to 16383 at most */
        xq[i] = (int16_t)rintf(xh[i / 16 * 16 + row[i % 16]] * inv);
        *sum += xq[i];
    }
}

static void mul_i16(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                    const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    const size_t n_kt = t->n_in / 16, n_nt = t->n_out / 16;
    int64_t acc[ROWS][16];
    uint16_t states[256];
    (void)scratch;
    for (size_t m0 = 0; m0 < n_rows; m0 += ROWS) {
        const size_t n_m = n_rows - m0 < ROWS ? n_rows - m0 : ROWS;
        for (size_t nt = tile0; nt < tile1; nt++) {
            memset(acc, 0, sizeof acc);
            for (size_t kt = 0; kt < n_kt; kt++) {
                qp_exl3_tile_states(t->trellis + (kt * n_nt + nt) * t->n_words, t->n_words, states);
                for (unsigned i = 0; i < 256; i++) {
                    const int w = (int)qp_exl3_bytesum(states[i]) - 510;
                    /* place of the weight's row in xq: 4 (lane % 4) + (t % 4) */
                    const int16_t *x = xq + m0 * ldx + kt * 16 + i / 8 % 4 * 4 + i % 4;
                    for (size_t m = 0; m < n_m; m++) acc[m][qp_exl3_tile_col(i)] += w * x[m * ldx];
                }
            }
            for (size_t m = 0; m < n_m; m++)
                for (unsigned n = 0; n < 16; n++)
                    yh[(m0 + m) * ldy + nt * 16 + n] =
                        (float)((double)scale[m0 + m] *
                                (QP_MUL1_SCALE * (double)acc[m][n] + QP_MUL1_OFFSET * (double)sum[m0 + m]));
        }
    }
}

static void mul_f32(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh, size_t ldx,
                    size_t n_rows, void *scratch)
{
    const size_t n_kt = t->n_in / 16, n_nt = t->n_out / 16;
    float acc[ROWS][16], w[16][16];
    uint16_t states[256];
    (void)scratch;
    for (size_t m0 = 0; m0 < n_rows; m0 += ROWS) {
        const size_t n_m = n_rows - m0 < ROWS ? n_rows - m0 : ROWS;
        for (size_t nt = tile0; nt < tile1; nt++) {
            memset(acc, 0, sizeof acc);
            for (size_t kt = 0; kt < n_kt; kt++) {
                qp_exl3_tile_states(t->trellis + (kt * n_nt + nt) * t->n_words, t->n_words, states);
                for (unsigned i = 0; i < 256; i++)
                    w[qp_exl3_tile_row(i)][qp_exl3_tile_col(i)] = qp_f16_to_f32(qp_exl3_value(t->codebook, states[i]));
                for (size_t m = 0; m < n_m; m++)
                    for (unsigned k = 0; k < 16; k++)
                        for (unsigned n = 0; n < 16; n++)
                            acc[m][n] = fmaf(w[k][n], xh[(m0 + m) * ldx + kt * 16 + k], acc[m][n]);
            }
            for (size_t m = 0; m < n_m; m++) memcpy(yh + (m0 + m) * ldy + nt * 16, acc[m], sizeof acc[m]);
        }
    }
}

static size_t scratch_bytes(size_t n_in)
{
    (void)n_in;
    return 64;
}

void qp_cpu_fill_exl3_ref(qp_cpu_kernels *k)
{
    k->exl3_rotate_in = rotate_in;
    k->exl3_rotate_out = rotate_out;
    k->exl3_quantize = quantize;
    k->exl3_mul_i16 = mul_i16;
    k->exl3_mul_f32 = mul_f32;
    k->exl3_scratch_bytes = scratch_bytes;
}
