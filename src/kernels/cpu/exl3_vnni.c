/* EXL3 kernels, level vnni: the products. Rotations and quantization are inherited from avx512. */
#include "kernels/cpu/exl3_zmm.h"

static size_t scratch_bytes(size_t n_in)
{
    return qp_exl3_zmm_scratch(n_in);
}

void qp_cpu_fill_exl3_vnni(qp_cpu_kernels *k)
{
    k->exl3_mul_i16 = qp_exl3_mul_i16_vnni;
    k->exl3_mul_f32 = qp_exl3_mul_f32_vnni;
    k->exl3_scratch_bytes = scratch_bytes;
}
