/* What a family file gives to the registry (model.c). */
#ifndef QP_MODEL_FAMILY_H
#define QP_MODEL_FAMILY_H

#include "model/loader.h"

typedef struct qp_family {
    const char *name;
    const char *architectures[4]; /* of config.json, NULL-terminated */
    double default_rms_eps;
    /* Reads the config and binds every tensor. *model is allocated from the loader's arena; layers has cfg.n_layers
     * entries to fill. */
    qp_status (*load)(qp_loader *ld, void **model, qp_cache_layer *layers, qp_err *err);
    /* The three parts of a pass: embeddings, one block (in place on x: [n_tokens, d_model]), logits of the logit rows.
     */
    qp_vec (*begin)(const void *model, qp_step *s);
    void (*block)(const void *model, uint32_t il, qp_step *s, qp_vec x);
    qp_vec (*end)(const void *model, qp_step *s, qp_vec x);
    /* Prefixes of tensors that a later feature uses (MTP, vision); NULL-terminated. */
    const char *later[4];
} qp_family;

extern const qp_family qp_family_llama, qp_family_qwen3, qp_family_gemma3, qp_family_qwen3_5;

#endif
