/* The CPU kernels: one table of function pointers a level (ref, avx2, avx512, vnni, amx), chosen once.
 *
 * Every function is single-threaded, allocates nothing, cannot fail, and works on plain pointers that its caller
 * checked; the backend (backend_cpu.c) splits work over threads. Unless said otherwise pointers need only element
 * alignment, inputs may be shared, outputs do not overlap inputs, and nothing outside the stated ranges is read or
 * written.
 *
 * What a row of the result depends on: its own inputs alone. The order of every sum is fixed by the shapes of that row
 * (never by the number of rows, the part or the thread), so batching and chunking change no bit. Orders:
 *   "16-lane sum over k": partial sums p[k % 16], each in rising k by fmaf starting from 0, then the tree
 *      p[i] += p[i+8] (i<8); p[i] += p[i+4] (i<4); p[i] += p[i+2] (i<2); p[0] + p[1].
 *   "sequential over k": one sum a result, rising k, fmaf, starting from 0.
 * Every level gives the bits of ref for these sums; functions with exp, tanh, log or division by a vector method differ
 * from ref by the bound that tests/kernel states. */
#ifndef QP_KERNELS_CPU_KERNELS_H
#define QP_KERNELS_CPU_KERNELS_H

#include "base/cpu.h"
#include "base/err.h"
#include "kernels/kernel_types.h"
#include "quant/exl3_types.h"

#include <stddef.h>
#include <stdint.h>

/* One sequence, one kv head: n_q new queries (rows) of n_group query heads against its cached keys. */
typedef struct qp_attn_args {
    const float *q; /* query row t, head g: q + t * ldq + g * head_dim */
    size_t ldq;
    float *out; /* same form, ldo */
    size_t ldo;
    uint32_t n_q, n_group, head_dim;
    uint32_t pos0;      /* position of row 0; row t sees keys 0 .. pos0 + t */
    uint32_t window;    /* 0: all; else the last `window` keys, the row's own included */
    float scale;        /* multiplies q.k */
    float softcap;      /* 0: none; else s = softcap * tanh(s / softcap) after scale */
    const float *sinks; /* [n_group] a logit a head that takes part in the softmax without a value; NULL: none */
    /* Key j is at kv_base + page_ids[j / page_size] * page_bytes + k_offset + (j % page_size) * head_dim elements of
     * kv_type; its value likewise with v_offset. Pages wholly before every row's window may be -1. */
    const unsigned char *kv_base;
    const int32_t *page_ids;
    size_t page_bytes, k_offset, v_offset;
    uint32_t page_size;
    qp_wtype kv_type;
} qp_attn_args;

/* Gated delta rule, one sequence, one value head; formats/models/qwen3_5.md, step 5. Tokens in rising order. */
typedef struct qp_gdn_args {
    float *state; /* [dk, dv], read and updated */
    const float *q, *k,
        *v; /* token t: q + t * ldq [dk], k + t * ldk [dk], v + t * ldv [dv]; q, k already normalized, q scaled */
    size_t ldq, ldk, ldv;
    const float *decay; /* token t: decay[t * ldg], the factor exp(g) */
    const float *beta;  /* token t: beta[t * ldg] */
    size_t ldg;
    float *out; /* token t: out + t * ldo [dv] */
    size_t ldo;
    uint32_t n_tokens, dk, dv; /* dk, dv multiples of 8 */
} qp_gdn_args;

typedef struct qp_cpu_kernels {
    const char *name; /* "ref", "avx2", "avx512", "vnni", "amx" */

    /* ---- one row of n floats; y may be x ---- */
    /* y = x / sqrt(mean(x^2) + eps) * w (w NULL: without). Sum of squares: 16-lane sum. fp32: r = 1.0f / sqrtf(sum /
     * n + eps), then (x * r) * w. */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    /* y = x / sqrt(sum(x^2) + eps) * scale. 16-lane sum; r likewise, then (x * r) * scale. */
    void (*l2_norm)(float *y, const float *x, size_t n, float eps, float scale);
    void (*add)(float *y, const float *x, size_t n);                               /* y += x */
    void (*scale)(float *y, const float *x, float a, size_t n);                    /* y = a * x */
    void (*silu_mul)(float *y, const float *gate, const float *up, size_t n);      /* gate / (1 + exp(-gate)) * up */
    void (*gelu_tanh_mul)(float *y, const float *gate, const float *up, size_t n); /* tanh form, times up */
    void (*sigmoid_mul)(float *y, const float *x, const float *gate, size_t n);    /* x / (1 + exp(-gate)) */
    void (*softcap)(float *y, const float *x, float cap, size_t n);                /* cap * tanh(x / cap) */
    /* Half-layout rotation of one head: for j < n_half: (x[j], x[j+n_half]) by cs[2j] = cos, cs[2j+1] = sin; the rest
     * of the head stays. x'[j] = x[j] cos - x[j+n] sin: two roundings of products, then one subtraction (no fma). In
     * place. */
    void (*rope)(float *x, const float *cs, size_t n_half);
    /* y = x converted exactly (widening), or rounded to nearest even (narrowing to a cache). */
    void (*to_f32)(float *y, const void *x, qp_wtype type, size_t n);
    void (*from_f32)(void *y, qp_wtype type, const float *x, size_t n);
    /* Index of the greatest of n >= 1 values, the lowest index on ties; NaN never wins unless all are NaN (then 0). */
    size_t (*argmax)(const float *x, size_t n);
    /* log(sum(exp(x))) in double, max subtracted. A NaN among x gives NaN, else +inf gives +inf; all -inf: -inf. */
    double (*log_sum_exp)(const float *x, size_t n);

    /* ---- dense linear ----
     * y[m * ldy + n] = sum over k of x[m * ldx + k] * w[n * n_in + k] (+ bias[n]) for m < n_rows, n0 <= n < n1.
     * w: [n_out, n_in] of type, as stored. 16-lane sum over k, then + bias. scratch: dense_scratch_bytes(n_in) bytes,
     * 64-byte aligned, for this call alone. */
    void (*dense)(float *y, size_t ldy, const float *x, size_t ldx, size_t n_rows, const void *w, qp_wtype type,
                  size_t n_in, size_t n0, size_t n1, const float *bias, void *scratch);
    size_t (*dense_scratch_bytes)(size_t n_in);

    /* ---- attention: softmax(scale * q k^T) v with an online softmax over blocks of 64 keys at absolute positions
     * 64 b .. 64 b + 63. In a block: scores (16-lane sum over head_dim, times scale, softcap); m' = max; p = exp(s -
     * m'), 0 for invisible keys; l = l * exp(m - m') + (16-lane sum of p by key index, plain adds); o = o * exp(m -
     * m'), then keys in rising order o = fmaf(p, v, o). After the last block o / l. Blocks without a visible key change
     * nothing. Invisible keys are not read, or do not count whatever they hold. A sink starts its head with m = sink,
     * l = 1, o = 0; without, m = -inf, l = 0. At least the row's own key is visible. head_dim: a multiple of 8, at most
     * 512. scratch: attention_scratch_bytes(n_q, n_group, head_dim), 64-byte aligned. */
    void (*attention)(const qp_attn_args *a, void *scratch);
    size_t (*attention_scratch_bytes)(size_t n_q, size_t n_group, size_t head_dim);

    /* ---- recurrent layers ----
     * Depthwise causal convolution and SiLU over n_tokens tokens of one sequence: y[t * ldy + c] = silu(sum over j <
     * width of w[c * width + j] * u[t - width + 1 + j][c]), sequential over j. Inputs before token 0 come from state
     * [(width - 1), n_channels], oldest first, which is then replaced by the last width - 1 inputs. y does not overlap
     * u. */
    void (*conv1d_silu)(float *y, size_t ldy, const float *u, size_t ldu, const float *w, float *state, size_t n_tokens,
                        size_t n_channels, size_t width);
    /* decay[i] = exp(-exp(a_log[i]) * softplus(a[i] + dt_bias[i])), beta[i] = 1 / (1 + exp(-b[i])); fp32, i < n. */
    void (*gdn_gates)(float *decay, float *beta, const float *a, const float *b, const float *a_log,
                      const float *dt_bias, size_t n);
    /* Per token: S *= decay; e = beta * (v - S^T k); S += k e^T; o = S^T q. Sums over dk sequential (fmaf). */
    void (*gated_delta)(const qp_gdn_args *a);

    /* ---- EXL3 ---- one row each, but for the products */
    /* xh[n_in] = blockwise Hadamard-128 (orthonormal) of x * suh, x [n_in_true] widened with zeros. Butterflies in
     * natural order (strides 1, 2, .. 64), then times 1/sqrt(128) rounded to fp32. */
    void (*exl3_rotate_in)(float *xh, const float *x, const qp_exl3 *t);
    /* y[n_out_true] = blockwise Hadamard-128 of yh[n_out] times svh (+ bias). */
    void (*exl3_rotate_out)(float *y, const float *yh, const qp_exl3 *t);
    /* xq[n_in], *scale, *sum: scale = amax / QP_EXL3_I16_MAX, xq = round to nearest even of xh / scale (by x * (1 /
     * scale)), sum = sum of xq. Inside each 16 values the order is that of the tile: place 4 i + {0,1,2,3} holds row 2
     * i + {0,1,8,9}. All zero: scale 0. A NaN or infinity anywhere: scale NaN, xq 0, so that the result is NaN and not
     * nonsense. */
    void (*exl3_quantize)(int16_t *xq, float *scale, int64_t *sum, const float *xh, size_t n_in);
    /* yh[m * ldy + n] for m < n_rows and the output tiles tile0 <= n / 16 < tile1, still rotated.
     * i16: xq [n_rows, n_in] (ldx), scale and sum [n_rows]; acc = sum of (bytesum - 510) * xq, exact;
     *      yh = (float)((double)scale * (QP_MUL1_SCALE * acc + QP_MUL1_OFFSET * sum)). mul1 only.
     * f32: xh [n_rows, n_in] (ldx); weight = the exact fp16 value; sequential over k. All codebooks.
     * scratch: exl3_scratch_bytes(n_in) bytes, 64-byte aligned. */
    void (*exl3_mul_i16)(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const int16_t *xq,
                         size_t ldx, const float *scale, const int64_t *sum, size_t n_rows, void *scratch);
    void (*exl3_mul_f32)(float *yh, size_t ldy, const qp_exl3 *t, size_t tile0, size_t tile1, const float *xh,
                         size_t ldx, size_t n_rows, void *scratch);
    size_t (*exl3_scratch_bytes)(size_t n_in);
} qp_cpu_kernels;

/* The levels. Each file fills in what it has in its own `qp_cpu_fill_<area>_<level>`; what a level lacks it inherits.
 */
void qp_cpu_fill_base_ref(qp_cpu_kernels *k);
void qp_cpu_fill_exl3_ref(qp_cpu_kernels *k);
#if defined(__x86_64__)
void qp_cpu_fill_base_avx2(qp_cpu_kernels *k);
void qp_cpu_fill_exl3_avx2(qp_cpu_kernels *k);
void qp_cpu_fill_base_avx512(qp_cpu_kernels *k);
void qp_cpu_fill_exl3_avx512(qp_cpu_kernels *k);
void qp_cpu_fill_exl3_vnni(qp_cpu_kernels *k);
void qp_cpu_fill_exl3_amx(qp_cpu_kernels *k);
#endif

/* The table of the best level that `have` allows, or of the one named by forced ("ref", "avx2", "avx512", "vnni",
 * "amx"; NULL: best). QP_EINVAL for an unknown name, QP_EUNSUPPORTED when the machine lacks it. The table is static.
 * Thread-safe. */
qp_status qp_cpu_kernels_select(const qp_cpu_kernels **out, const qp_cpu_features *have, const char *forced,
                                qp_err *err);

#endif
