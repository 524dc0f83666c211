/* GGML block formats: weights of one tensor type as fp32. Layouts are beside the code; all products are fp32. */
#ifndef QP_QUANT_GGML_BLOCKS_H
#define QP_QUANT_GGML_BLOCKS_H

#include "io/gguf.h"

#include <stddef.h>

/* Decodes n weights (a multiple of type->block) of type->block_bytes each block from src (any alignment) to out, [n]
 * fp32. type->block is not 0. Cannot fail; the scales in src may be infinite or NaN, and so may the result. */
void qp_ggml_decode(const qp_ggml_type *type, const unsigned char *src, size_t n, float *out);
#endif
