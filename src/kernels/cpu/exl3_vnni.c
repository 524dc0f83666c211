/* EXL3 kernels, level vnni: the products. Rotations and quantization are inherited from avx512. */
#include "kernels/cpu/exl3_vnni.h"

/* Few rows: accumulators of a block. More: a panel of 32 columns of int16 or 16 columns of fp32. */
static size_t scratch_bytes(size_t n_in)
{
    const size_t accs = (size_t)QP_VNNI_BLOCK_ACCS * QP_VNNI_ACC_BYTES, panel = n_in * 64;
    return panel > accs ? panel : accs;
}

void qp_cpu_fill_exl3_vnni(qp_cpu_kernels *k)
{
    k->exl3_mul_i16 = qp_exl3_mul_i16_vnni;
    k->exl3_scratch_bytes = scratch_bytes;
}
