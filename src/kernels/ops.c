/* Ops: scratch and shapes here, work in the backend. See ops.h. */
#include "kernels/ops.h"

#include "base/checked.h"

qp_vec qp_step_vec(qp_step *s, uint32_t rows, uint32_t cols)
{
    size_t ld = qp_round_up(cols, 16), bytes = ld * rows * sizeof(float);
    static float dry_data[16]; /* an address for the dry pass; never read or written */
    qp_vec v = {s->dry ? dry_data : (float *)(void *)(s->scratch + s->used), rows, cols, ld};
    s->used += bytes;
    if (s->used > s->peak) s->peak = s->used;
    return v;
}

qp_vec qp_op_embed(qp_step *s, const qp_embedding *e, float scale)
{
    qp_vec y = qp_step_vec(s, s->batch->n_rows, e->n_cols);
    if (!s->dry) s->be->embed(s, y, e, scale);
    return y;
}

qp_vec qp_op_rms_norm(qp_step *s, qp_vec x, const float *w, float eps)
{
    qp_vec y = qp_step_vec(s, x.rows, x.cols);
    if (!s->dry) s->be->rms_norm(s, y, x, x.cols, w, eps);
    return y;
}

void qp_op_head_norm(qp_step *s, qp_vec x, uint32_t head_dim, const float *w, float eps)
{
    if (!s->dry) s->be->rms_norm(s, x, x, head_dim, w, eps);
}

void qp_op_rope(qp_step *s, qp_vec x, uint32_t head_dim, const qp_rope *r)
{
    s->be->rope(s, x, head_dim, r);
}

qp_vec qp_op_linear(qp_step *s, qp_vec x, const qp_linear *l)
{
    qp_vec y;
    qp_op_linear_group(s, x, &l, 1, &y);
    return y;
}

void qp_op_linear_group(qp_step *s, qp_vec x, const qp_linear *const *l, uint32_t n, qp_vec *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = qp_step_vec(s, x.rows, l[i]->n_out);
    s->be->linear_group(s, x, l, n, y);
}

qp_vec qp_op_attention(qp_step *s, uint32_t il, qp_vec q, qp_vec k, qp_vec v, const qp_attention *a)
{
    qp_vec y = qp_step_vec(s, q.rows, a->n_heads * a->head_dim);
    s->be->attention(s, il, y, q, k, v, a);
    return y;
}

void qp_op_add(qp_step *s, qp_vec x, qp_vec y)
{
    if (!s->dry) s->be->add(s, x, y);
}

void qp_op_scale(qp_step *s, qp_vec x, float a)
{
    if (!s->dry) s->be->scale(s, x, a);
}

void qp_op_softcap(qp_step *s, qp_vec x, float cap)
{
    if (!s->dry) s->be->softcap(s, x, cap);
}

void qp_op_silu_mul(qp_step *s, qp_vec gate, qp_vec up)
{
    if (!s->dry) s->be->silu_mul(s, gate, up);
}

void qp_op_gelu_tanh_mul(qp_step *s, qp_vec gate, qp_vec up)
{
    if (!s->dry) s->be->gelu_tanh_mul(s, gate, up);
}

void qp_op_sigmoid_mul(qp_step *s, qp_vec x, qp_vec gate)
{
    if (!s->dry) s->be->sigmoid_mul(s, x, gate);
}

void qp_op_split_heads(qp_step *s, qp_vec x, uint32_t n_heads, uint32_t head_dim, qp_vec *a, qp_vec *b)
{
    *a = qp_step_vec(s, x.rows, n_heads * head_dim);
    *b = qp_step_vec(s, x.rows, n_heads * head_dim);
    if (!s->dry) s->be->split_heads(s, x, n_heads, head_dim, *a, *b);
}

qp_vec qp_op_gated_delta(qp_step *s, uint32_t il, qp_vec qkv, qp_vec a, qp_vec b, const qp_gated_delta *g)
{
    qp_vec y = qp_step_vec(s, qkv.rows, g->n_v_heads * g->dv);
    s->be->gated_delta(s, il, y, qkv, a, b, g);
    return y;
}

qp_vec qp_op_logit_rows(qp_step *s, qp_vec x)
{
    qp_vec y = qp_step_vec(s, s->batch->n_logit_rows, x.cols);
    if (!s->dry) s->be->logit_rows(s, y, x);
    return y;
}
