/* EXL3 integer product, level amx, many rows. */
#include "kernels/cpu/exl3_amx.h"

size_t qp_exl3_many_amx_scratch(size_t n_in)
{
    return qp_exl3_zmm_scratch(n_in);
}

void qp_exl3_mul_i16_many_amx(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                              size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    qp_exl3_mul_i16_vnni(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
}
