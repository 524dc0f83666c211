/* Random packs: model folders of the shape of a real model whose EXL3 codes are random, for measuring speed and memory
 * without a download. What such a model says is noise; its activations and logits have the usual size. */
#ifndef QP_CLI_RANDOM_PACK_H
#define QP_CLI_RANDOM_PACK_H

#include "base/err.h"
#include "quant/exl3_types.h"

enum qp_pack_shape { QP_SHAPE_SMOLLM2_135M, QP_SHAPE_QWEN3_8B, QP_SHAPE_QWEN3_5_27B, QP_N_SHAPES };

/* For the option table: "smollm2-135m|qwen3-8b|qwen3_5-27b", in the order of qp_pack_shape. */
#define QP_PACK_SHAPES "smollm2-135m|qwen3-8b|qwen3_5-27b"

typedef struct qp_pack_opts {
    enum qp_pack_shape shape;
    double bits;      /* average of the layers; between two rates, layers of both are mixed evenly */
    double head_bits; /* one rate */
    qp_exl3_codebook codebook;
} qp_pack_opts;

/* Makes the folder dir (which must be new or empty) with config.json and model.safetensors. The same options give the
 * same bytes. Half rates need the mul1 codebook. Shows progress; QP_ECANCELLED after Ctrl-C. A failed pack leaves no
 * model.safetensors. */
qp_status qp_random_pack_write(const char *dir, const qp_pack_opts *opts, qp_err *err);

#endif
