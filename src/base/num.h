/* Conversions between float formats, spelled by name and rounding. Plain C, exact on every machine; vector code in
 * src/kernels must give the same bits. */
#ifndef QP_BASE_NUM_H
#define QP_BASE_NUM_H

#include <stdint.h>
#include <string.h>

static inline uint32_t qp_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float qp_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float qp_bf16_to_f32(uint16_t h)
{
    return qp_f32_from_bits((uint32_t)h << 16);
}

/* Round to nearest even; NaN stays a (quiet) NaN. */
static inline uint16_t qp_f32_to_bf16_rne(float f)
{
    uint32_t u = qp_f32_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static inline float qp_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 0x1Fu, m = h & 0x3FFu;
    if (e == 31) return qp_f32_from_bits(sign | 0x7F800000u | m << 13);
    if (e) return qp_f32_from_bits(sign | (e + 112) << 23 | m << 13);
    float f = (float)m * 0x1p-24f; /* zero and subnormals, exact */
    return sign ? -f : f;
}

/* Round to nearest even, overflow to infinity, subnormals kept; NaN stays a (quiet) NaN. */
static inline uint16_t qp_f32_to_f16_rne(float f)
{
    uint32_t u = qp_f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and above */
    if (a < 0x38800000u) {                                   /* below 2^-14: the sum's ulp is 2^-24 */
        float r = qp_f32_from_bits(a) + 0.5f;
        return (uint16_t)(sign | (qp_f32_bits(r) - 0x3F000000u));
    }
    return (uint16_t)(sign | ((a + 0xFFFu + (a >> 13 & 1u) - 0x38000000u) >> 13));
}
#endif
