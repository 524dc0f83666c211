/* EXL3, level amx: the integer products. Both have the contract of exl3_mul_i16 (cpu_kernels.h), bit for bit, and
 * configure the tiles of the calling thread for the length of the call. */
#ifndef QP_KERNELS_CPU_EXL3_AMX_H
#define QP_KERNELS_CPU_EXL3_AMX_H

#include "kernels/cpu/exl3_zmm.h"

/* 1 to 4 rows. */
void qp_exl3_mul_i16_few_amx(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                             size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch);
/* 5 rows and more. */
void qp_exl3_mul_i16_many_amx(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                              size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch);

/* Bytes of scratch that the product of many rows needs; 64-byte aligned. */
size_t qp_exl3_many_amx_scratch(size_t n_in);

#endif
