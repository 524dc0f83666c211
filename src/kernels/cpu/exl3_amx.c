/* EXL3 kernels, level amx: the integer product by AMX tiles, of few rows (exl3_i16_few_amx.c) and of many
 * (exl3_i16_many_amx.c). The rest is inherited from vnni. */
#include "kernels/cpu/exl3_amx.h"

/* One row stays with vnni: with codes in cache tiles are a third faster, but a decode reads every matrix from memory,
 * and there they are up to 15 % slower (docs/kernels_cpu_exl3.md). */
enum { FEW_FROM = 2, FEW_ROWS = 4 };

static size_t scratch_bytes(size_t n_in)
{
    const size_t vnni = qp_exl3_zmm_scratch(n_in), many = qp_exl3_many_amx_scratch(n_in);
    return vnni > many ? vnni : many;
}

static void mul_i16(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq, size_t ldx,
                    const float *scale, const int64_t *sum, size_t n_rows, void *scratch)
{
    if (n_rows == 0) return;
    if (n_rows < FEW_FROM)
        qp_exl3_mul_i16_vnni(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
    else if (n_rows <= FEW_ROWS)
        qp_exl3_mul_i16_few_amx(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
    else
        qp_exl3_mul_i16_many_amx(yh, ldy, t, tile0, tile1, xq, ldx, scale, sum, n_rows, scratch);
}

void qp_cpu_fill_exl3_amx(qp_cpu_kernels *k)
{
    k->exl3_mul_i16 = mul_i16;
    k->exl3_scratch_bytes = scratch_bytes;
}
