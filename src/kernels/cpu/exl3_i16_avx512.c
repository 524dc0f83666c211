/* EXL3 integer product, level avx512: the product of exl3_i16_zmm.h on the states of exl3_avx512.h. */
#include "kernels/cpu/exl3_avx512.h"

#include "kernels/cpu/exl3_i16_zmm.h" /* needs the one above */

void qp_exl3_mul_i16_avx512(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                            size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    mul_i16(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
}
