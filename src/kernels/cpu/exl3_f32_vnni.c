/* EXL3 fp32 product, level vnni: the product of exl3_f32_zmm.h on the states of exl3_vnni.h. */
#include "kernels/cpu/exl3_vnni.h"

#include "kernels/cpu/exl3_f32_zmm.h" /* needs the one above */

void qp_exl3_mul_f32_vnni(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh,
                          size_t ldx, size_t n_rows, void *scratch)
{
    mul_f32(yh, ldy, t, tile0, tile1, xh, ldx, n_rows, scratch);
}
