/* Gemma 3 text: zero-centred norms before and after each branch, sliding layers with a rotary base of their own,
 * embeddings times sqrt(d_model), tanh GELU. Goldens: tests/vectors/models/gemma3. */
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct gemma3_layer {
    const float *attn_norm, *attn_post_norm, *mlp_norm, *mlp_post_norm; /* [d_model], 1 added */
    const float *q_norm, *k_norm;                                       /* [head_dim], 1 added */
    qp_linear q, k, v, o, gate, up, down;
    const qp_rope *rope;
} gemma3_layer;

typedef struct gemma3 {
    qp_config cfg;
    qp_rope rope_full, rope_sliding;
    qp_attention attn;
    float logit_cap; /* 0: none */
    qp_embedding embed;
    qp_linear head;
    const float *norm;
    gemma3_layer *layers;
} gemma3;

static const qp_bind layer_tensors[] = {
    {"input_layernorm.weight", offsetof(gemma3_layer, attn_norm), QP_DIM_MODEL, QP_DIM_ONE, QP_VECTOR_PLUS_ONE},
    {"self_attn.q_proj", offsetof(gemma3_layer, q), QP_DIM_Q, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.k_proj", offsetof(gemma3_layer, k), QP_DIM_KV, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.v_proj", offsetof(gemma3_layer, v), QP_DIM_KV, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.o_proj", offsetof(gemma3_layer, o), QP_DIM_MODEL, QP_DIM_Q, QP_LINEAR},
    {"self_attn.q_norm.weight", offsetof(gemma3_layer, q_norm), QP_DIM_HEAD, QP_DIM_ONE, QP_VECTOR_PLUS_ONE},
    {"self_attn.k_norm.weight", offsetof(gemma3_layer, k_norm), QP_DIM_HEAD, QP_DIM_ONE, QP_VECTOR_PLUS_ONE},
    {"post_attention_layernorm.weight", offsetof(gemma3_layer, attn_post_norm), QP_DIM_MODEL, QP_DIM_ONE,
     QP_VECTOR_PLUS_ONE},
    {"pre_feedforward_layernorm.weight", offsetof(gemma3_layer, mlp_norm), QP_DIM_MODEL, QP_DIM_ONE,
     QP_VECTOR_PLUS_ONE},
    {"mlp.gate_proj", offsetof(gemma3_layer, gate), QP_DIM_FF, QP_DIM_MODEL, QP_LINEAR},
    {"mlp.up_proj", offsetof(gemma3_layer, up), QP_DIM_FF, QP_DIM_MODEL, QP_LINEAR},
    {"mlp.down_proj", offsetof(gemma3_layer, down), QP_DIM_MODEL, QP_DIM_FF, QP_LINEAR},
    {"post_feedforward_layernorm.weight", offsetof(gemma3_layer, mlp_post_norm), QP_DIM_MODEL, QP_DIM_ONE,
     QP_VECTOR_PLUS_ONE},
};

/* Whether layer il slides: layer_types, else every n-th layer is full (sliding_window_pattern, default 6). */
static qp_status layer_slides(const qp_config *c, uint32_t il, bool *out, qp_err *err)
{
    const char *type;
    uint32_t n;
    QP_TRY(qp_config_layer_type(c, il, &type, err));
    const char *key =
        json_object_get(c->text, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    QP_TRY(qp_json_get_u32(c->text, key, 1, QP_MAX_LAYERS, true, 6, &n, c->where, err));
    *out = type ? !strcmp(type, "sliding_attention") : (il + 1) % n != 0;
    if (type && !*out && strcmp(type, "full_attention") != 0)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: layer type \"%s\"", c->where, type);
    return QP_OK;
}

static bool cap_ok(double cap)
{
    return (cap >= 1e-3 && cap <= 1e6) || !(cap < 0 || cap > 0);
}

static qp_status read_config(qp_loader *ld, gemma3 *m, uint32_t *window, qp_err *err)
{
    const qp_config *c = &ld->cfg;
    double scalar, attn_cap, logit_cap;
    bool bidirectional;
    QP_TRY(qp_config_want_act(c, "gelu_pytorch_tanh", err));
    QP_TRY(qp_config_rope(c, "full_attention", 1000000, ld->arena, &m->rope_full, err));
    QP_TRY(qp_config_rope(c, "sliding_attention", 10000, ld->arena, &m->rope_sliding, err));
    QP_TRY(qp_json_get_f64(c->text, "query_pre_attn_scalar", true, 256, &scalar, c->where, err));
    QP_TRY(qp_json_get_f64(c->text, "attn_logit_softcapping", true, 0, &attn_cap, c->where, err));
    QP_TRY(qp_json_get_f64(c->text, "final_logit_softcapping", true, 0, &logit_cap, c->where, err));
    QP_TRY(qp_json_get_u32(c->text, "sliding_window", 1, QP_MAX_POSITION, true, 4096, window, c->where, err));
    QP_TRY(qp_json_get_bool(c->text, "use_bidirectional_attention", false, &bidirectional, c->where, err));
    if (bidirectional)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: use_bidirectional_attention: only causal decoding is served",
                       c->where);
    if (!(scalar >= 1e-3 && scalar <= 1e6) || !cap_ok(attn_cap) || !cap_ok(logit_cap))
        return qp_fail(err, QP_EFORMAT, "%s: query_pre_attn_scalar %g, soft caps %g and %g; must be in 1e-3..1e6",
                       c->where, scalar, attn_cap, logit_cap);
    m->cfg = *c;
    m->logit_cap = (float)logit_cap;
    m->attn = (qp_attention){.n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .head_dim = c->head_dim,
                             .scale = (float)(1 / sqrt(scalar)),
                             .softcap = (float)attn_cap};
    return QP_OK;
}

static qp_status gemma3_load(qp_loader *ld, void **model, qp_cache_layer *layers, qp_err *err)
{
    const qp_config *c = &ld->cfg;
    gemma3 *m = NULL;
    uint32_t window;
    char name[128];
    QP_TRY(qp_load_alloc(ld, 1, sizeof *m, &m, err));
    QP_TRY(qp_load_alloc(ld, c->n_layers, sizeof *m->layers, &m->layers, err));
    QP_TRY(read_config(ld, m, &window, err));
    const uint32_t dims[QP_N_DIMS] = {[QP_DIM_ONE] = 1,
                                      [QP_DIM_MODEL] = c->d_model,
                                      [QP_DIM_FF] = c->d_ff,
                                      [QP_DIM_Q] = c->n_heads * c->head_dim,
                                      [QP_DIM_KV] = c->n_kv_heads * c->head_dim,
                                      [QP_DIM_HEAD] = c->head_dim};
    QP_TRY(qp_load_embedding(ld, &m->embed, err));
    for (uint32_t il = 0; il < c->n_layers; il++) {
        bool slides;
        QP_TRY(layer_slides(c, il, &slides, err));
        QP_TRY(qp_load_table(ld, layer_tensors, sizeof layer_tensors / sizeof *layer_tensors, dims, il, &m->layers[il],
                             err));
        m->layers[il].rope = slides ? &m->rope_sliding : &m->rope_full;
        layers[il] = (qp_cache_layer){QP_CACHE_ATTENTION, c->n_kv_heads, c->head_dim, slides ? window : 0, 0};
    }
    snprintf(name, sizeof name, "%snorm.weight", ld->prefix);
    QP_TRY(qp_load_vector(ld, name, c->d_model, 1, &m->norm, err));
    QP_TRY(qp_load_head(ld, &m->embed, &m->head, err));
    *model = m;
    return QP_OK;
}

static qp_vec gemma3_begin(const void *model, qp_step *s)
{
    const gemma3 *m = model;
    return qp_op_embed(s, &m->embed, (float)sqrt((double)m->cfg.d_model));
}

static void gemma3_block(const void *model, uint32_t il, qp_step *s, qp_vec x)
{
    const gemma3 *m = model;
    const gemma3_layer *l = &m->layers[il];
    uint32_t d = m->cfg.head_dim;
    float eps = m->cfg.rms_eps;
    qp_vec h = qp_op_rms_norm(s, x, l->attn_norm, eps);
    qp_vec qkv[3], gu[2];
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->q, &l->k, &l->v}, 3, qkv);
    qp_op_head_norm(s, qkv[0], d, l->q_norm, eps);
    qp_op_head_norm(s, qkv[1], d, l->k_norm, eps);
    qp_op_rope(s, qkv[0], d, l->rope);
    qp_op_rope(s, qkv[1], d, l->rope);
    h = qp_op_linear(s, qp_op_attention(s, il, qkv[0], qkv[1], qkv[2], &m->attn), &l->o);
    qp_op_add(s, x, qp_op_rms_norm(s, h, l->attn_post_norm, eps));
    h = qp_op_rms_norm(s, x, l->mlp_norm, eps);
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->gate, &l->up}, 2, gu);
    qp_op_gelu_tanh_mul(s, gu[0], gu[1]);
    h = qp_op_linear(s, gu[0], &l->down);
    qp_op_add(s, x, qp_op_rms_norm(s, h, l->mlp_post_norm, eps));
}

static qp_vec gemma3_end(const void *model, qp_step *s, qp_vec x)
{
    const gemma3 *m = model;
    qp_vec h = qp_op_rms_norm(s, qp_op_logit_rows(s, x), m->norm, m->cfg.rms_eps);
    qp_op_trace(s, "final_norm", 0, h);
    qp_vec logits = qp_op_linear(s, h, &m->head);
    if (m->logit_cap > 0) qp_op_softcap(s, logits, m->logit_cap);
    return logits;
}

const qp_family qp_family_gemma3 = {
    .name = "gemma3",
    .architectures = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
    .default_rms_eps = 1e-6,
    .load = gemma3_load,
    .begin = gemma3_begin,
    .block = gemma3_block,
    .end = gemma3_end,
    .later = {"vision_tower.", "model.vision_tower.", "multi_modal_projector."},
};
