/* Pieces of the ref level that its own files and the vector levels share. Not for use outside src/kernels/cpu. */
#ifndef QP_KERNELS_CPU_BASE_REF_H
#define QP_KERNELS_CPU_BASE_REF_H

#include "kernels/cpu/cpu_kernels.h"

/* The tree of a 16-lane sum over its 16 partial sums. */
float qp_ref_tree16(const float *p16);

/* Element i of x, exactly. */
float qp_ref_load(const void *x, qp_wtype type, size_t i);

/* 16-lane sum of x[k] * w[k], k < n. */
float qp_ref_dot(const float *x, const void *w, qp_wtype type, size_t n);

/* Replaces state [width - 1, n_channels] by the last width - 1 inputs, as conv1d_silu says. */
void qp_ref_conv_state(const float *u, size_t ldu, float *state, size_t n_tokens, size_t n_channels, size_t width);

/* cpu_kernels.h, attention. */
void qp_ref_attention(const qp_attn_args *a, void *scratch);
size_t qp_ref_attention_scratch_bytes(size_t n_q, size_t n_group, size_t head_dim);

#endif
