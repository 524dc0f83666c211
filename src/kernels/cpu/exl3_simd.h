/* EXL3 kernels: what the vector levels share. Internal to src/kernels/cpu/exl3_*.c.
 *
 * Order of the columns: a tile's weights arrive as vectors of two columns (columns c and c + 1, eight dwords each); the
 * trees that sum or transpose eight such vectors leave the sixteen columns in QP_EXL3_COL_ORDER. */
#ifndef QP_KERNELS_CPU_EXL3_SIMD_H
#define QP_KERNELS_CPU_EXL3_SIMD_H

#include "kernels/cpu/cpu_kernels.h"

#include <stdint.h>
#include <string.h>

#define QP_INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define QP_UNROLL _Pragma("unroll")
#else
#define QP_UNROLL _Pragma("GCC unroll 16")
#endif

/* Halves of the mul1 multiplier, as int16. */
#define QP_MUL1_LO ((int16_t)0xD12D)
#define QP_MUL1_HI ((int16_t)0x83DC)

/* Most tile rows whose products fit an int32 lane that takes two a tile row: 2 * 64 * 1020 * 16383 < 2^31 for plain
 * byte sums (0 .. 1020), and twice as many for centred ones (-510 .. 510). */
enum { QP_EXL3_FLUSH_TILES = 64 };

/* The eleven rates as twice the bits: X(2 * K). */
#define QP_EXL3_RATES(X) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(10) X(12) X(14) X(16)

/* Index of a rate in tables made by QP_EXL3_RATES; n_words is one of the allowed. */
QP_INLINE unsigned qp_exl3_rate_index(uint32_t n_words)
{
    uint32_t k2 = n_words / 8;
    return k2 <= 8 ? k2 - 2 : k2 / 2 + 2;
}

QP_INLINE uint32_t qp_load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
