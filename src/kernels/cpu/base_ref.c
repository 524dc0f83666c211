/* The ref level of everything but EXL3: what each kernel of cpu_kernels.h means, in plain C.
 *
 * It is the oracle of the other levels and of the CUDA kernels, and the level of machines without AVX2. exp, tanh and
 * log are libm's; every sum is taken in the order that cpu_kernels.h states, one fmaf at a time, so the vector levels
 * can give the same bits. Attention is in attention_ref.c. */
#include "kernels/cpu/base_ref.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

float qp_ref_tree16(const float *p16)
{
    float p[16];
    memcpy(p, p16, sizeof p);
    for (int w = 8; w >= 1; w /= 2) {
        for (int i = 0; i < w; i++) p[i] += p[i + w];
    }
    return p[0];
}

float qp_ref_load(const void *x, qp_wtype type, size_t i)
{
    if (type == QP_W_F32) {
        float f;
        memcpy(&f, (const unsigned char *)x + 4 * i, sizeof f);
        return f;
    }
    uint16_t h;
    memcpy(&h, (const unsigned char *)x + 2 * i, sizeof h);
    return type == QP_W_F16 ? qp_f16_to_f32(h) : qp_bf16_to_f32(h);
}

/* 16-lane sum of x[k] * w[k]; w is of the given type. */
float qp_ref_dot(const float *x, const void *w, qp_wtype type, size_t n)
{
    float p[16] = {0};
    for (size_t k = 0; k < n; k++) p[k % 16] = fmaf(x[k], qp_ref_load(w, type, k), p[k % 16]);
    return qp_ref_tree16(p);
}

static void rms_norm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const float r = 1.0f / sqrtf(qp_ref_dot(x, x, QP_W_F32, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = w ? x[i] * r * w[i] : x[i] * r;
}

static void l2_norm(float *y, const float *x, size_t n, float eps, float scale)
{
    const float r = 1.0f / sqrtf(qp_ref_dot(x, x, QP_W_F32, n) + eps);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * r * scale;
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void scale_row(float *y, const float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = a * x[i];
}

static void silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void gelu_tanh_mul(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float g = gate[i], u = 0.044715f * g * g, inner = 0.7978845608f * fmaf(u, g, g);
        y[i] = 0.5f * g * (1.0f + tanhf(inner)) * up[i];
    }
}

static void sigmoid_mul(float *y, const float *x, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] / (1.0f + expf(-gate[i]));
}

static void softcap(float *y, const float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = cap * tanhf(x[i] / cap);
}

static void rope(float *x, const float *cs, size_t n_half)
{
    for (size_t j = 0; j < n_half; j++) {
        const float a = x[j], b = x[j + n_half], c = cs[2 * j], s = cs[2 * j + 1];
        x[j] = a * c - b * s;
        x[j + n_half] = b * c + a * s;
    }
}

static void to_f32(float *y, const void *x, qp_wtype type, size_t n)
{
    if (type == QP_W_F32) {
        if (n) memmove(y, x, n * sizeof *y);
        return;
    }
    for (size_t i = 0; i < n; i++) y[i] = qp_ref_load(x, type, i);
}

static void from_f32(void *y, qp_wtype type, const float *x, size_t n)
{
    if (type == QP_W_F32) {
        if (n) memmove(y, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = type == QP_W_F16 ? qp_f32_to_f16_rne(x[i]) : qp_f32_to_bf16_rne(x[i]);
        memcpy((unsigned char *)y + 2 * i, &h, sizeof h);
    }
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (!isnan(x[i]) && (best == n || x[i] > x[best])) best = i;
    }
    return best == n ? 0 : best;
}

static double log_sum_exp(const float *x, size_t n)
{
    float m = -INFINITY;
    bool nan = false;
    for (size_t i = 0; i < n; i++) {
        if (x[i] > m) m = x[i];
        nan = nan || isnan(x[i]);
    }
    if (nan) return (double)NAN;
    if (isinf(m)) return (double)m; /* all -inf, or a +inf */
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)m);
    return (double)m + log(sum);
}

static void dense(float *y, size_t ldy, const float *x, size_t ldx, size_t n_rows, const void *w, qp_wtype type,
                  size_t n_in, size_t n0, size_t n1, const float *bias, void *scratch)
{
    const unsigned char *wb = w;
    (void)scratch;
    for (size_t n = n0; n < n1; n++) {
        for (size_t m = 0; m < n_rows; m++) {
            const float s = qp_ref_dot(x + m * ldx, wb + n * n_in * qp_wtype_bytes(type), type, n_in);
            y[m * ldy + n] = bias ? s + bias[n] : s;
        }
    }
}

static size_t dense_scratch_bytes(size_t n_in)
{
    (void)n_in;
    return 64;
}

static void conv1d_silu(float *y, size_t ldy, const float *u, size_t ldu, const float *w, float *state, size_t n_tokens,
                        size_t n_channels, size_t width)
{
    for (size_t t = 0; t < n_tokens; t++) {
        for (size_t c = 0; c < n_channels; c++) {
            float s = 0;
            for (size_t j = 0; j < width; j++) { /* input t - width + 1 + j; the state holds inputs 1 - width .. -1 */
                const float v = t + j + 1 >= width ? u[(t + j + 1 - width) * ldu + c] : state[(t + j) * n_channels + c];
                s = fmaf(w[c * width + j], v, s);
            }
            y[t * ldy + c] = s / (1.0f + expf(-s));
        }
    }
    qp_ref_conv_state(u, ldu, state, n_tokens, n_channels, width);
}

void qp_ref_conv_state(const float *u, size_t ldu, float *state, size_t n_tokens, size_t n_channels, size_t width)
{
    for (size_t i = 0; i + 1 < width; i++) { /* rising i: a row moves only towards the front */
        const float *from =
            i + n_tokens + 1 < width ? state + (i + n_tokens) * n_channels : u + (i + n_tokens + 1 - width) * ldu;
        if (n_channels) memmove(state + i * n_channels, from, n_channels * sizeof *state);
    }
}

static void gdn_gates(float *decay, float *beta, const float *a, const float *b, const float *a_log,
                      const float *dt_bias, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float x = a[i] + dt_bias[i];
        const float softplus = x > 20.0f ? x : log1pf(expf(x));
        decay[i] = expf(-expf(a_log[i]) * softplus);
        beta[i] = 1.0f / (1.0f + expf(-b[i]));
    }
}

static void gated_delta(const qp_gdn_args *a)
{
    const size_t dk = a->dk, dv = a->dv;
    for (size_t t = 0; t < a->n_tokens; t++) {
        const float *q = a->q + t * a->ldq, *k = a->k + t * a->ldk, *v = a->v + t * a->ldv;
        const float decay = a->decay[t * a->ldg], beta = a->beta[t * a->ldg];
        for (size_t j = 0; j < dv; j++) {
            float *s = a->state + j, sum = 0, o = 0;
            for (size_t i = 0; i < dk; i++) sum = fmaf(s[i * dv] * decay, k[i], sum);
            const float e = beta * (v[j] - sum);
            for (size_t i = 0; i < dk; i++) {
                s[i * dv] = fmaf(k[i], e, s[i * dv] * decay);
                o = fmaf(s[i * dv], q[i], o);
            }
            a->out[t * a->ldo + j] = o;
        }
    }
}

void qp_cpu_fill_base_ref(qp_cpu_kernels *k)
{
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->add = add;
    k->scale = scale_row;
    k->silu_mul = silu_mul;
    k->gelu_tanh_mul = gelu_tanh_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->softcap = softcap;
    k->rope = rope;
    k->to_f32 = to_f32;
    k->from_f32 = from_f32;
    k->argmax = argmax;
    k->log_sum_exp = log_sum_exp;
    k->dense = dense;
    k->dense_scratch_bytes = dense_scratch_bytes;
    k->attention = qp_ref_attention;
    k->attention_scratch_bytes = qp_ref_attention_scratch_bytes;
    k->conv1d_silu = conv1d_silu;
    k->gdn_gates = gdn_gates;
    k->gated_delta = gated_delta;
}
