/* GGUF import: a GGUF file becomes a checkpoint folder of config.json, generation_config.json, tokenizer.json,
 * tokenizer_config.json and model.safetensors, whose weights are the decoded ones (formats/gguf_import.md). */
#ifndef QP_QUANT_GGUF_IMPORT_H
#define QP_QUANT_GGUF_IMPORT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_import_summary {
    size_t n_tensors, n_tokens, n_merges; /* n_tensors: written ones */
    uint64_t weight_bytes;                /* of model.safetensors' data */
} qp_import_summary;

/* A zeroed struct asks for bf16, an empty or new folder, and no progress. */
typedef struct qp_import_options {
    bool f32;   /* weights as F32 instead of BF16 (rounded to nearest even) */
    bool force; /* replace the five files in a folder that holds something already */
    /* Called every few MB with the bytes written and to write; returning false cancels. NULL: none. */
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    qp_import_summary *summary; /* filled on success; NULL: not wanted */
} qp_import_options;

/* Imports path into dir. A dir that does not exist is written as a temporary sibling and renamed at the end (missing
 * parents are created); into one that exists the finished files are moved from a temporary folder inside it,
 * config.json last. On any failure, cancelling (QP_ECANCELLED) included, nothing of it is left. QP_EINVAL: dir is not
 * empty and force is not set, or it holds other *.safetensors files, which would become part of the model. Other
 * errors: see qp_gguf_open, gguf_model.h, gguf_tokenizer.h; a weight that is not finite is QP_EFORMAT. */
qp_status qp_gguf_import(const char *path, const char *dir, const qp_import_options *options, qp_err *err);

/* The same for a file's bytes, all results thrown away: whether the import would succeed. For tests and fuzzing. */
qp_status qp_gguf_import_check(const void *data, size_t len, const qp_import_options *options, qp_err *err);
#endif
