/* Llama and SmolLM2: pre-norm decoder, grouped-query attention with rotary positions, SiLU-gated MLP.
 * Facts: the Llama family's published configuration; goldens tests/vectors/models/{llama,smollm2,llama-exl3}. */
#include "model/family.h"

#include <math.h>
#include <stdio.h>

typedef struct llama_layer {
    const float *attn_norm, *mlp_norm; /* [d_model] */
    qp_linear q, k, v, o, gate, up, down;
} llama_layer;

typedef struct llama {
    qp_config cfg;
    qp_rope rope;
    qp_attention attn;
    qp_embedding embed;
    qp_linear head;
    const float *norm;
    llama_layer *layers;
} llama;

static const qp_bind layer_tensors[] = {
    {"input_layernorm.weight", offsetof(llama_layer, attn_norm), QP_DIM_MODEL, QP_DIM_ONE, QP_VECTOR},
    {"self_attn.q_proj", offsetof(llama_layer, q), QP_DIM_Q, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.k_proj", offsetof(llama_layer, k), QP_DIM_KV, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.v_proj", offsetof(llama_layer, v), QP_DIM_KV, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.o_proj", offsetof(llama_layer, o), QP_DIM_MODEL, QP_DIM_Q, QP_LINEAR},
    {"post_attention_layernorm.weight", offsetof(llama_layer, mlp_norm), QP_DIM_MODEL, QP_DIM_ONE, QP_VECTOR},
    {"mlp.gate_proj", offsetof(llama_layer, gate), QP_DIM_FF, QP_DIM_MODEL, QP_LINEAR},
    {"mlp.up_proj", offsetof(llama_layer, up), QP_DIM_FF, QP_DIM_MODEL, QP_LINEAR},
    {"mlp.down_proj", offsetof(llama_layer, down), QP_DIM_MODEL, QP_DIM_FF, QP_LINEAR},
};

static qp_status llama_load(qp_loader *ld, void **model, qp_cache_layer *layers, qp_err *err)
{
    const qp_config *c = &ld->cfg;
    llama *m = NULL;
    char name[128];
    QP_TRY(qp_load_alloc(ld, 1, sizeof *m, &m, err));
    QP_TRY(qp_load_alloc(ld, c->n_layers, sizeof *m->layers, &m->layers, err));
    m->cfg = *c;
    QP_TRY(qp_config_want_act(c, "silu", err));
    QP_TRY(qp_config_want_full_attention(c, err));
    QP_TRY(qp_config_rope(c, NULL, 10000, ld->arena, &m->rope, err));
    m->attn = (qp_attention){.n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .head_dim = c->head_dim,
                             .scale = (float)(1 / sqrt((double)c->head_dim))};
    const uint32_t dims[QP_N_DIMS] = {[QP_DIM_ONE] = 1,
                                      [QP_DIM_MODEL] = c->d_model,
                                      [QP_DIM_FF] = c->d_ff,
                                      [QP_DIM_Q] = c->n_heads * c->head_dim,
                                      [QP_DIM_KV] = c->n_kv_heads * c->head_dim};
    QP_TRY(qp_load_embedding(ld, &m->embed, err));
    for (uint32_t il = 0; il < c->n_layers; il++) {
        QP_TRY(qp_load_table(ld, layer_tensors, sizeof layer_tensors / sizeof *layer_tensors, dims, il, &m->layers[il],
                             err));
        const llama_layer *l = &m->layers[il];
        QP_TRY(qp_load_want_bias(ld, "attention_bias", il, (const qp_linear *[]){&l->q, &l->k, &l->v, &l->o}, 4, err));
        QP_TRY(qp_load_want_bias(ld, "mlp_bias", il, (const qp_linear *[]){&l->gate, &l->up, &l->down}, 3, err));
        layers[il] = (qp_cache_layer){QP_CACHE_ATTENTION, c->n_kv_heads, c->head_dim, 0, 0};
    }
    snprintf(name, sizeof name, "%snorm.weight", ld->prefix);
    QP_TRY(qp_load_vector(ld, name, c->d_model, 0, &m->norm, err));
    QP_TRY(qp_load_head(ld, &m->embed, &m->head, err));
    *model = m;
    return QP_OK;
}

static qp_vec llama_begin(const void *model, qp_step *s)
{
    const llama *m = model;
    return qp_op_embed(s, &m->embed, 1.0f);
}

static void llama_block(const void *model, uint32_t il, qp_step *s, qp_vec x)
{
    const llama *m = model;
    const llama_layer *l = &m->layers[il];
    uint32_t d = m->cfg.head_dim;
    qp_vec h = qp_op_rms_norm(s, x, l->attn_norm, m->cfg.rms_eps);
    qp_vec qkv[3], gu[2];
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->q, &l->k, &l->v}, 3, qkv);
    qp_op_rope(s, qkv[0], d, &m->rope);
    qp_op_rope(s, qkv[1], d, &m->rope);
    h = qp_op_attention(s, il, qkv[0], qkv[1], qkv[2], &m->attn);
    qp_op_add(s, x, qp_op_linear(s, h, &l->o));
    h = qp_op_rms_norm(s, x, l->mlp_norm, m->cfg.rms_eps);
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->gate, &l->up}, 2, gu);
    qp_op_silu_mul(s, gu[0], gu[1]);
    qp_op_add(s, x, qp_op_linear(s, gu[0], &l->down));
}

static qp_vec llama_end(const void *model, qp_step *s, qp_vec x)
{
    const llama *m = model;
    qp_vec h = qp_op_rms_norm(s, qp_op_logit_rows(s, x), m->norm, m->cfg.rms_eps);
    qp_op_trace(s, "final_norm", 0, h);
    return qp_op_linear(s, h, &m->head);
}

const qp_family qp_family_llama = {
    .name = "llama",
    .architectures = {"LlamaForCausalLM"},
    .default_rms_eps = 1e-6,
    .load = llama_load,
    .begin = llama_begin,
    .block = llama_block,
    .end = llama_end,
};
