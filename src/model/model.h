/* A loaded model: its family, configuration, weights and the forward pass over a step.
 *
 * Weights stay in the checkpoint's mapping; small vectors are widened to fp32 in the model's arena. A model is
 * read-only after qp_model_open and may serve several engines. */
#ifndef QP_MODEL_MODEL_H
#define QP_MODEL_MODEL_H

#include "base/err.h"
#include "io/safetensors.h"
#include "kernels/ops.h"
#include "kv/kv_types.h"
#include "quant/exl3_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_model qp_model;

typedef struct qp_model_opts {
    qp_exl3_arith arith; /* for tensors of the mul1 codebook; the others always take QP_EXL3_F32 */
} qp_model_opts;

enum { QP_MAX_EOS = 64 };

typedef struct qp_model_info {
    const char *family;                /* "llama", "qwen3", ... */
    const char *architecture;          /* as config.json has it */
    uint32_t n_layers, d_model, vocab; /* vocab: rows of the logits */
    uint32_t max_position;             /* max_position_embeddings, or 0 when the file does not say */
    int32_t eos[QP_MAX_EOS];           /* end tokens of generation_config.json and config.json together */
    uint32_t n_eos;
    int32_t bos; /* -1: none */
    /* Defaults of generation_config.json; negative: not given. */
    double temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
    /* Fields of generation_config.json that would change the text and are not done here, comma-separated; "": none. */
    char not_honoured[160];
    size_t
        weight_bytes;   /* bytes of tensors that a forward pass reads whole, in the mapping (not an untied embedding) */
    size_t heap_bytes;  /* bytes held on the heap for weights */
    uint64_t n_weights; /* weights of all bound tensors, embedding and head included */
} qp_model_info;

typedef enum qp_tensor_use { QP_USE_BOUND, QP_USE_LATER, QP_USE_NONE } qp_tensor_use;

/* Opens the folder: config.json, generation_config.json, *.safetensors. Every needed tensor that is missing or has a
 * wrong shape, dtype or a non-finite scale is an error that names it. An architecture that no family serves is
 * QP_EUNSUPPORTED with the list of those that are. */
qp_status qp_model_open(qp_model **out, const char *dir, const qp_model_opts *opts, qp_err *err);
void qp_model_close(qp_model *m);

const qp_model_info *qp_model_get_info(const qp_model *m);
const qp_checkpoint *qp_model_checkpoint(const qp_model *m);
const qp_cache_spec *qp_model_cache_spec(const qp_model *m);

/* How tensor i of the checkpoint is used: bound, recognised for a later feature (MTP, vision), or not at all. */
qp_tensor_use qp_model_tensor_use(const qp_model *m, size_t i);

/* One forward pass over s->batch (kernels/step.h). The logits of the batch's logit rows are in *logits
 * [n_logit_rows, vocab] until the next step. Cannot fail. */
void qp_model_forward(const qp_model *m, qp_step *s, qp_vec *logits);

/* Names of all families for messages: "llama, qwen3, ...". */
const char *qp_model_families(void);
#endif
