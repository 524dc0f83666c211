/* Qwen3.5 / 3.6 / 3.8 dense text: three layers of four are gated delta nets, the fourth is gated attention.
 * All norms are zero-centred but the delta net's own. Text positions only: m-rope with equal parts is plain rope.
 * MTP and vision tensors are recognised. Goldens: tests/vectors/models/{qwen3_5,qwen3_5-exl3}. */
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct qwen3_5_layer {
    bool linear;                        /* delta net, else attention */
    const float *mixer_norm, *mlp_norm; /* [d_model], 1 added */
    qp_linear gate, up, down;
    /* attention */
    qp_linear q, k, v, o;         /* q: per head query then gate */
    const float *q_norm, *k_norm; /* [head_dim], 1 added */
    /* delta net */
    qp_linear in_qkv, in_z, in_a, in_b, out;
    const float *out_norm; /* [dv], plain */
    const float *conv, *a_log, *dt_bias;
    qp_gated_delta delta;
} qwen3_5_layer;

typedef struct qwen3_5 {
    qp_config cfg;
    qp_rope rope;
    qp_attention attn;
    qp_embedding embed;
    qp_linear head;
    const float *norm;
    qwen3_5_layer *layers;
} qwen3_5;

static const qp_bind mlp_tensors[] = {
    {"input_layernorm.weight", offsetof(qwen3_5_layer, mixer_norm), QP_DIM_MODEL, QP_DIM_ONE, QP_VECTOR_PLUS_ONE},
    {"post_attention_layernorm.weight", offsetof(qwen3_5_layer, mlp_norm), QP_DIM_MODEL, QP_DIM_ONE,
     QP_VECTOR_PLUS_ONE},
    {"mlp.gate_proj", offsetof(qwen3_5_layer, gate), QP_DIM_FF, QP_DIM_MODEL, QP_LINEAR},
    {"mlp.up_proj", offsetof(qwen3_5_layer, up), QP_DIM_FF, QP_DIM_MODEL, QP_LINEAR},
    {"mlp.down_proj", offsetof(qwen3_5_layer, down), QP_DIM_MODEL, QP_DIM_FF, QP_LINEAR},
};
static const qp_bind attention_tensors[] = {
    {"self_attn.q_proj", offsetof(qwen3_5_layer, q), QP_DIM_QGATE, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.k_proj", offsetof(qwen3_5_layer, k), QP_DIM_KV, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.v_proj", offsetof(qwen3_5_layer, v), QP_DIM_KV, QP_DIM_MODEL, QP_LINEAR},
    {"self_attn.o_proj", offsetof(qwen3_5_layer, o), QP_DIM_MODEL, QP_DIM_Q, QP_LINEAR},
    {"self_attn.q_norm.weight", offsetof(qwen3_5_layer, q_norm), QP_DIM_HEAD, QP_DIM_ONE, QP_VECTOR_PLUS_ONE},
    {"self_attn.k_norm.weight", offsetof(qwen3_5_layer, k_norm), QP_DIM_HEAD, QP_DIM_ONE, QP_VECTOR_PLUS_ONE},
};
static const qp_bind delta_tensors[] = {
    {"linear_attn.in_proj_qkv", offsetof(qwen3_5_layer, in_qkv), QP_DIM_CONV, QP_DIM_MODEL, QP_LINEAR},
    {"linear_attn.in_proj_z", offsetof(qwen3_5_layer, in_z), QP_DIM_V, QP_DIM_MODEL, QP_LINEAR},
    {"linear_attn.in_proj_a", offsetof(qwen3_5_layer, in_a), QP_DIM_V_HEADS, QP_DIM_MODEL, QP_LINEAR},
    {"linear_attn.in_proj_b", offsetof(qwen3_5_layer, in_b), QP_DIM_V_HEADS, QP_DIM_MODEL, QP_LINEAR},
    {"linear_attn.out_proj", offsetof(qwen3_5_layer, out), QP_DIM_MODEL, QP_DIM_V, QP_LINEAR},
    {"linear_attn.norm.weight", offsetof(qwen3_5_layer, out_norm), QP_DIM_V_HEAD, QP_DIM_ONE, QP_VECTOR},
    {"linear_attn.conv1d.weight", offsetof(qwen3_5_layer, conv), QP_DIM_CONV, QP_DIM_WIDTH, QP_CONV},
    {"linear_attn.A_log", offsetof(qwen3_5_layer, a_log), QP_DIM_V_HEADS, QP_DIM_ONE, QP_VECTOR},
    {"linear_attn.dt_bias", offsetof(qwen3_5_layer, dt_bias), QP_DIM_V_HEADS, QP_DIM_ONE, QP_VECTOR},
};
#define N(table) (sizeof(table) / sizeof *(table))

static qp_status read_delta(const qp_config *c, qp_gated_delta *d, qp_err *err)
{
    QP_TRY(qp_json_get_u32(c->text, "linear_num_key_heads", 1, 4096, true, 16, &d->n_k_heads, c->where, err));
    QP_TRY(qp_json_get_u32(c->text, "linear_num_value_heads", 1, 4096, true, 32, &d->n_v_heads, c->where, err));
    QP_TRY(qp_json_get_u32(c->text, "linear_key_head_dim", 8, 1024, true, 128, &d->dk, c->where, err));
    QP_TRY(qp_json_get_u32(c->text, "linear_value_head_dim", 8, 1024, true, 128, &d->dv, c->where, err));
    QP_TRY(qp_json_get_u32(c->text, "linear_conv_kernel_dim", 2, 16, true, 4, &d->conv_width, c->where, err));
    if (d->n_v_heads % d->n_k_heads || d->dk % 8 || d->dv % 8)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: delta net of %u key heads of %u and %u value heads of %u", c->where,
                       d->n_k_heads, d->dk, d->n_v_heads, d->dv);
    return QP_OK;
}

static qp_status layer_is_linear(const qp_config *c, uint32_t il, bool *out, qp_err *err)
{
    const char *type;
    uint32_t n;
    QP_TRY(qp_config_layer_type(c, il, &type, err));
    QP_TRY(qp_json_get_u32(c->text, "full_attention_interval", 1, QP_MAX_LAYERS, true, 4, &n, c->where, err));
    *out = type ? !strcmp(type, "linear_attention") : (il + 1) % n != 0;
    if (type && !*out && strcmp(type, "full_attention") != 0)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: layer type \"%s\"", c->where, type);
    return QP_OK;
}

static qp_status load_layer(qp_loader *ld, const uint32_t *dims, const qp_gated_delta *delta, uint32_t il,
                            qwen3_5_layer *l, qp_cache_layer *cache, qp_err *err)
{
    const qp_config *c = &ld->cfg;
    QP_TRY(layer_is_linear(c, il, &l->linear, err));
    QP_TRY(qp_load_table(ld, mlp_tensors, N(mlp_tensors), dims, il, l, err));
    if (!l->linear) {
        QP_TRY(qp_load_table(ld, attention_tensors, N(attention_tensors), dims, il, l, err));
        *cache = (qp_cache_layer){QP_CACHE_ATTENTION, c->n_kv_heads, c->head_dim, 0, 0};
        return QP_OK;
    }
    QP_TRY(qp_load_table(ld, delta_tensors, N(delta_tensors), dims, il, l, err));
    l->delta = *delta;
    l->delta.conv_w = l->conv;
    l->delta.a_log = l->a_log;
    l->delta.dt_bias = l->dt_bias;
    uint32_t floats = (delta->conv_width - 1) * dims[QP_DIM_CONV] + delta->n_v_heads * delta->dk * delta->dv;
    *cache = (qp_cache_layer){QP_CACHE_STATE, 0, 0, 0, floats};
    return QP_OK;
}

static qp_status qwen3_5_load(qp_loader *ld, void **model, qp_cache_layer *layers, qp_err *err)
{
    const qp_config *c = &ld->cfg;
    qwen3_5 *m = NULL;
    qp_gated_delta delta = {0};
    char name[128];
    QP_TRY(qp_load_alloc(ld, 1, sizeof *m, &m, err));
    QP_TRY(qp_load_alloc(ld, c->n_layers, sizeof *m->layers, &m->layers, err));
    m->cfg = *c;
    QP_TRY(qp_config_want_act(c, "silu", err));
    QP_TRY(read_delta(c, &delta, err));
    bool gated;
    QP_TRY(qp_json_get_bool(c->text, "attn_output_gate", true, &gated, c->where, err));
    if (!gated) return qp_fail(err, QP_EUNSUPPORTED, "%s: \"attn_output_gate\" is false", c->where);
    QP_TRY(qp_config_rope(c, NULL, 10000000, ld->arena, &m->rope, err));
    m->attn = (qp_attention){.n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .head_dim = c->head_dim,
                             .scale = (float)(1 / sqrt((double)c->head_dim))};
    const uint32_t dims[QP_N_DIMS] = {[QP_DIM_ONE] = 1,
                                      [QP_DIM_MODEL] = c->d_model,
                                      [QP_DIM_FF] = c->d_ff,
                                      [QP_DIM_Q] = c->n_heads * c->head_dim,
                                      [QP_DIM_QGATE] = 2 * c->n_heads * c->head_dim,
                                      [QP_DIM_KV] = c->n_kv_heads * c->head_dim,
                                      [QP_DIM_HEAD] = c->head_dim,
                                      [QP_DIM_CONV] = 2 * delta.n_k_heads * delta.dk + delta.n_v_heads * delta.dv,
                                      [QP_DIM_WIDTH] = delta.conv_width,
                                      [QP_DIM_V] = delta.n_v_heads * delta.dv,
                                      [QP_DIM_V_HEADS] = delta.n_v_heads,
                                      [QP_DIM_V_HEAD] = delta.dv};
    QP_TRY(qp_load_embedding(ld, &m->embed, err));
    for (uint32_t il = 0; il < c->n_layers; il++)
        QP_TRY(load_layer(ld, dims, &delta, il, &m->layers[il], &layers[il], err));
    snprintf(name, sizeof name, "%snorm.weight", ld->prefix);
    QP_TRY(qp_load_vector(ld, name, c->d_model, 1, &m->norm, err));
    QP_TRY(qp_load_head(ld, &m->embed, &m->head, err));
    *model = m;
    return QP_OK;
}

static qp_vec qwen3_5_begin(const void *model, qp_step *s)
{
    const qwen3_5 *m = model;
    return qp_op_embed(s, &m->embed, 1.0f);
}

static qp_vec gated_attention(const qwen3_5 *m, const qwen3_5_layer *l, uint32_t il, qp_step *s, qp_vec h)
{
    uint32_t d = m->cfg.head_dim;
    qp_vec qkv[3], q, gate;
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->q, &l->k, &l->v}, 3, qkv);
    qp_op_split_heads(s, qkv[0], m->cfg.n_heads, d, &q, &gate);
    qp_op_head_norm(s, q, d, l->q_norm, m->cfg.rms_eps);
    qp_op_head_norm(s, qkv[1], d, l->k_norm, m->cfg.rms_eps);
    qp_op_rope(s, q, d, &m->rope);
    qp_op_rope(s, qkv[1], d, &m->rope);
    h = qp_op_attention(s, il, q, qkv[1], qkv[2], &m->attn);
    qp_op_sigmoid_mul(s, h, gate);
    return qp_op_linear(s, h, &l->o);
}

static qp_vec delta_net(const qwen3_5 *m, const qwen3_5_layer *l, uint32_t il, qp_step *s, qp_vec h)
{
    qp_vec y[4];
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->in_qkv, &l->in_z, &l->in_a, &l->in_b}, 4, y);
    qp_vec o = qp_op_gated_delta(s, il, y[0], y[2], y[3], &l->delta);
    qp_op_head_norm(s, o, l->delta.dv, l->out_norm, m->cfg.rms_eps);
    qp_op_silu_mul(s, y[1], o);
    return qp_op_linear(s, y[1], &l->out);
}

static void qwen3_5_block(const void *model, uint32_t il, qp_step *s, qp_vec x)
{
    const qwen3_5 *m = model;
    const qwen3_5_layer *l = &m->layers[il];
    qp_vec gu[2];
    qp_vec h = qp_op_rms_norm(s, x, l->mixer_norm, m->cfg.rms_eps);
    qp_op_add(s, x, l->linear ? delta_net(m, l, il, s, h) : gated_attention(m, l, il, s, h));
    h = qp_op_rms_norm(s, x, l->mlp_norm, m->cfg.rms_eps);
    qp_op_linear_group(s, h, (const qp_linear *[]){&l->gate, &l->up}, 2, gu);
    qp_op_silu_mul(s, gu[0], gu[1]);
    qp_op_add(s, x, qp_op_linear(s, gu[0], &l->down));
}

static qp_vec qwen3_5_end(const void *model, qp_step *s, qp_vec x)
{
    const qwen3_5 *m = model;
    qp_vec h = qp_op_rms_norm(s, qp_op_logit_rows(s, x), m->norm, m->cfg.rms_eps);
    qp_op_trace(s, "final_norm", 0, h);
    return qp_op_linear(s, h, &m->head);
}

const qp_family qp_family_qwen3_5 = {
    .name = "qwen3_5",
    .architectures = {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"},
    .default_rms_eps = 1e-6,
    .load = qwen3_5_load,
    .begin = qwen3_5_begin,
    .block = qwen3_5_block,
    .end = qwen3_5_end,
    .later = {"mtp.", "model.visual.", "language_model.mtp.", "visual."},
};
