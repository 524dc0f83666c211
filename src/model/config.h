/* config.json: the spellings that families share. Keys of one family alone are read in its file. */
#ifndef QP_MODEL_CONFIG_H
#define QP_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/err.h"
#include "io/json.h"
#include "kernels/ops.h"

#include <stdbool.h>
#include <stdint.h>

/* Keys that every decoder has, read from text_config where there is one, else from the top level. */
typedef struct qp_config {
    const json_t *root; /* config.json */
    const json_t *text; /* root or root.text_config */
    const char *where;  /* its path, for messages */
    uint32_t d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, vocab, max_position;
    float rms_eps;
} qp_config;

/* Fills *out; root must stay alive. default_rms_eps where the file is silent. */
qp_status qp_config_read(qp_config *out, const json_t *root, const char *where, double default_rms_eps, qp_err *err);

/* Refuses an activation other than the one wanted ("silu", "gelu_pytorch_tanh") in hidden_act or hidden_activation. */
qp_status qp_config_want_act(const qp_config *c, const char *want, qp_err *err);

/* "full_attention", "sliding_attention", "linear_attention" of layer il by layer_types; NULL when the key is absent. */
qp_status qp_config_layer_type(const qp_config *c, uint32_t il, const char **out, qp_err *err);

/* Refuses a layer_types entry other than "full_attention". */
qp_status qp_config_want_full_attention(const qp_config *c, qp_err *err);

/* Rotation of heads of head_dim channels for a layer type ("full_attention", "sliding_attention"; NULL when all layers
 * are alike). Spellings: rope_parameters (also nested by layer type), rope_theta + rope_scaling, rope_local_base_freq
 * (sliding). partial_rotary_factor limits the rotated channels. Types default, linear, llama3, yarn; others are refused
 * by name. Frequencies are allocated from arena. */
qp_status qp_config_rope(const qp_config *c, const char *layer_type, double default_theta, qp_arena *arena,
                         qp_rope *out, qp_err *err);
#endif
