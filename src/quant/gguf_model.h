/* The model that a GGUF's metadata and tensor list describe, and the config.json that says the same. Used by the
 * importer alone. */
#ifndef QP_QUANT_GGUF_MODEL_H
#define QP_QUANT_GGUF_MODEL_H

#include "base/buf.h"
#include "io/gguf.h"

typedef enum qp_gguf_arch { QP_GGUF_LLAMA, QP_GGUF_GEMMA3, QP_GGUF_QWEN3, QP_GGUF_N_ARCHS } qp_gguf_arch;

typedef struct qp_gguf_model {
    qp_gguf_arch arch;
    uint64_t d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, context, vocab, window, query_scalar;
    float rms_eps, rope_theta, rope_local_theta;
    bool tied, attention_bias, mlp_bias;
    uint64_t bos, eos, pad, eot; /* UINT64_MAX: the file names none */
    const char *rope_type;       /* of rope_scaling; NULL: none */
    float rope_factor;
    uint64_t rope_context;             /* original_max_position_embeddings of yarn and llama3 */
    float attn_softcap, final_softcap; /* 0: none */
} qp_gguf_model;

/* Reads and checks the metadata. QP_EUNSUPPORTED names an architecture, or a key that changes the arithmetic, that the
 * importer does not carry over; QP_EFORMAT a key that is missing or out of range. */
qp_status qp_gguf_model_read(qp_gguf_model *out, const qp_gguf *g, qp_err *err);

/* Appends config.json, with dtype "bfloat16" or "float32". */
void qp_gguf_model_config(const qp_gguf_model *m, bool f32, qp_buf *out);

/* Appends generation_config.json: the token ids; eos_token_id is a list where the file also names an end of turn. */
void qp_gguf_model_generation_config(const qp_gguf_model *m, qp_buf *out);

/* How one tensor is carried over. */
typedef struct qp_gguf_rule {
    char hf_name[128];  /* empty: derived data, skipped */
    uint64_t unpermute; /* heads whose rows are put back from pairwise to half-split rotary order; 0: none */
    bool minus_one;     /* gemma3 norms are stored with 1 added */
} qp_gguf_rule;

/* The rule of tensor t; QP_EUNSUPPORTED for a name that this architecture does not have. */
qp_status qp_gguf_model_rule(const qp_gguf_model *m, const qp_gguf *g, const qp_gguf_tensor *t, qp_gguf_rule *out,
                             qp_err *err);

/* QP_EFORMAT naming the first tensor that the architecture needs and the file lacks. */
qp_status qp_gguf_model_check_tensors(const qp_gguf_model *m, const qp_gguf *g, qp_err *err);
#endif
