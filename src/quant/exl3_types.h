/* An EXL3 linear as the kernels see it: pointers into the checkpoint's mapping, nothing decoded or repacked, so a pack
 * is ready as soon as it is mapped. Layout and codebooks: docs/formats.md, "EXL3"; exact code: quant/exl3.h. */
#ifndef QP_QUANT_EXL3_TYPES_H
#define QP_QUANT_EXL3_TYPES_H

#include <stdint.h>

typedef enum qp_exl3_codebook { QP_EXL3_3INST, QP_EXL3_MCG, QP_EXL3_MUL1 } qp_exl3_codebook;

/* How the product is taken. F32: weights as their exact fp16 values, fp32 products and sums. I16: the rotated
 * activation as 15-bit integers with one scale a row, integer products with the codebook's byte sums (mul1 only), exact
 * sums. */
typedef enum qp_exl3_arith { QP_EXL3_F32, QP_EXL3_I16 } qp_exl3_arith;

typedef struct qp_exl3 {
    const uint16_t *trellis;        /* [n_in/16, n_out/16, n_words] int16 words, 2-byte aligned, little-endian */
    const uint16_t *suh;            /* [n_in] fp16 */
    const uint16_t *svh;            /* [n_out] fp16 */
    const float *bias;              /* [n_out_true] or NULL */
    uint32_t n_in, n_out;           /* as stored, multiples of 128 */
    uint32_t n_in_true, n_out_true; /* as the model has them: the input is widened with zeros, the output is cut */
    uint32_t n_words;               /* 16 * K: 16 24 32 40 48 56 64 80 96 112 128 */
    qp_exl3_codebook codebook;
} qp_exl3;

/* mul1: value before its rounding to fp16 = QP_MUL1_SCALE * (bytesum - 510) + QP_MUL1_OFFSET, exactly
 * 1774 * 2^-18 * (1024 + bytesum) - 10.3828125. */
#define QP_MUL1_SCALE 0x1.bb8p-8
#define QP_MUL1_OFFSET (1534 * QP_MUL1_SCALE - 10.3828125)

/* Largest magnitude of a quantized activation: 510 * 16383 * 256 < 2^31, so 256 products of an integer dot fit int32.
 */
#define QP_EXL3_I16_MAX 16383

#endif
