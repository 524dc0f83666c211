/* EXL3 kernels, level avx512: inherits all of the level below. */
#include "kernels/cpu/cpu_kernels.h"

void qp_cpu_fill_exl3_avx512(qp_cpu_kernels *k)
{
    (void)k;
}
