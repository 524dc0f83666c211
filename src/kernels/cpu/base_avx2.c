/* The avx2 level of everything but EXL3. So far it inherits all of it. */
#include "kernels/cpu/cpu_kernels.h"

void qp_cpu_fill_base_avx2(qp_cpu_kernels *k)
{
    (void)k;
}
