/* EXL3 kernels, level vnni: inherits all of the level below. */
#include "kernels/cpu/cpu_kernels.h"

void qp_cpu_fill_exl3_vnni(qp_cpu_kernels *k)
{
    (void)k;
}
