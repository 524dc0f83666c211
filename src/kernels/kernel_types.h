/* Types that kernels share with the layers beside them. */
#ifndef QP_KERNELS_KERNEL_TYPES_H
#define QP_KERNELS_KERNEL_TYPES_H

#include <stddef.h>

typedef enum qp_wtype { QP_W_F32, QP_W_F16, QP_W_BF16 } qp_wtype; /* element type of a dense weight or a cache */

static inline size_t qp_wtype_bytes(qp_wtype t)
{
    return t == QP_W_F32 ? 4 : 2;
}

#endif
