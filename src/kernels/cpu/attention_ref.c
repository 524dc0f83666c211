/* The ref level of attention: one query row and head at a time, see cpu_kernels.h for the order of every sum. An
 * invisible key is neither read nor multiplied by zero: what lies in an unused cache slot cannot reach a result. */
#include "kernels/cpu/base_ref.h"

#include <math.h>

enum { BLOCK = 64 };

static const unsigned char *key_at(const qp_attn_args *a, size_t j)
{
    return a->kv_base + (size_t)a->page_ids[j / a->page_size] * a->page_bytes +
           (j % a->page_size) * a->head_dim * qp_wtype_bytes(a->kv_type);
}

/* One row's keys lo <= j < hi, all in one block, added to the running maximum, sum and output. */
static void add_block(const qp_attn_args *a, const float *q, size_t lo, size_t hi, float *m, float *l, float *o)
{
    const size_t d = a->head_dim, b0 = lo / BLOCK * BLOCK;
    float p[BLOCK], lane[16] = {0}, top = *m;
    for (size_t j = lo; j < hi; j++) {
        float s = qp_ref_dot(q, key_at(a, j) + a->k_offset, a->kv_type, d) * a->scale;
        if (a->softcap > 0) s = a->softcap * tanhf(s / a->softcap);
        p[j - b0] = s;
        if (s > top) top = s;
    }
    for (size_t j = lo; j < hi; j++) {
        p[j - b0] = expf(p[j - b0] - top);
        lane[j % 16] += p[j - b0];
    }
    const float fall = expf(*m - top);
    *l = *l * fall + qp_ref_tree16(lane);
    *m = top;
    for (size_t i = 0; i < d; i++) o[i] *= fall;
    for (size_t j = lo; j < hi; j++) {
        const unsigned char *v = key_at(a, j) + a->v_offset;
        for (size_t i = 0; i < d; i++) o[i] = fmaf(p[j - b0], qp_ref_load(v, a->kv_type, i), o[i]);
    }
}

void qp_ref_attention(const qp_attn_args *a, void *scratch)
{
    (void)scratch;
    for (size_t t = 0; t < a->n_q; t++) {
        const size_t hi = (size_t)a->pos0 + t + 1, lo = a->window && hi > a->window ? hi - a->window : 0;
        for (size_t g = 0; g < a->n_group; g++) {
            const float *q = a->q + t * a->ldq + g * a->head_dim;
            float *o = a->out + t * a->ldo + g * a->head_dim;
            float m = a->sinks ? a->sinks[g] : -INFINITY, l = a->sinks ? 1.0f : 0.0f;
            for (size_t i = 0; i < a->head_dim; i++) o[i] = 0;
            for (size_t j = lo, end; j < hi; j = end) {
                end = (j / BLOCK + 1) * BLOCK < hi ? (j / BLOCK + 1) * BLOCK : hi;
                add_block(a, q, j, end, &m, &l, o);
            }
            for (size_t i = 0; i < a->head_dim; i++) o[i] /= l;
        }
    }
}

size_t qp_ref_attention_scratch_bytes(size_t n_q, size_t n_group, size_t head_dim)
{
    (void)n_q;
    (void)n_group;
    (void)head_dim;
    return 64;
}
