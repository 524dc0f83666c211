/* The tokenizer that a GGUF's metadata describes, as tokenizer.json and tokenizer_config.json. Used by the importer
 * alone. */
#ifndef QP_QUANT_GGUF_TOKENIZER_H
#define QP_QUANT_GGUF_TOKENIZER_H

#include "base/buf.h"
#include "quant/gguf_model.h"

/* Appends tokenizer.json to json and tokenizer_config.json (with the chat template) to config, and counts tokens and
 * merges. QP_EUNSUPPORTED names a tokenizer model or pre-tokenizer that is not known; QP_EFORMAT what is malformed;
 * QP_ELIMIT a result over QP_MAX_JSON_BYTES. */
qp_status qp_gguf_tokenizer(const qp_gguf_model *m, const qp_gguf *g, qp_buf *json, qp_buf *config, size_t *n_tokens,
                            size_t *n_merges, qp_err *err);
#endif
