/* What the EXL3 tests share: the levels of this machine, random tensors, a fp64 product, a safetensors writer. */
#ifndef QP_TESTS_EXL3_TEST_H
#define QP_TESTS_EXL3_TEST_H

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/num.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_kernels.h"
#include "quant/exl3.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_RATES = 11 };
static const uint32_t exl3_rates[N_RATES] = {16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128};

/* Fills the EXL3 entries of up to five tables, ref first; returns how many levels this machine has. */
static inline int exl3_levels(qp_cpu_kernels k[5])
{
    int n = 1;
    qp_cpu_features f;
    qp_cpu_features_read(&f);
    memset(k, 0, 5 * sizeof *k);
    qp_cpu_fill_exl3_ref(&k[0]);
    k[0].name = "ref";
#if defined(__x86_64__)
    k[1] = k[0];
    qp_cpu_fill_exl3_avx2(&k[1]);
    k[1].name = "avx2";
    k[2] = k[1];
    qp_cpu_fill_exl3_avx512(&k[2]);
    k[2].name = "avx512";
    k[3] = k[2];
    qp_cpu_fill_exl3_vnni(&k[3]);
    k[3].name = "vnni";
    k[4] = k[3];
    qp_cpu_fill_exl3_amx(&k[4]);
    k[4].name = "amx";
    n += f.avx2 + f.avx512 + f.vnni + f.amx;
    if (n < 5) print_message("this machine has %d of 5 CPU levels; the others are not tested\n", n);
#else
    (void)f;
#endif
    return n;
}

static inline void *xmalloc(size_t n)
{
    void *p = qp_malloc(n);
    assert_non_null(p);
    return p;
}

/* y[n_out_true] = the product in fp64, Hadamards included; inner: values of the weights, [n_in, n_out]. */
static inline void hadamard64(double *v, size_t n)
{
    for (size_t b = 0; b < n; b += 128)
        for (size_t h = 1; h < 128; h *= 2)
            for (size_t i = 0; i < 128; i++)
                if (!(i & h)) {
                    double a = v[b + i], c = v[b + i + h];
                    v[b + i] = a + c;
                    v[b + i + h] = a - c;
                }
    for (size_t i = 0; i < n; i++) v[i] /= sqrt(128.0);
}

static inline void exl3_product64(double *y, const double *inner, const qp_exl3 *t, const float *x)
{
    double *xh = xmalloc(t->n_in * sizeof *xh), *yh = xmalloc(t->n_out * sizeof *yh);
    for (size_t i = 0; i < t->n_in; i++)
        xh[i] = i < t->n_in_true ? (double)x[i] * (double)qp_f16_to_f32(t->suh[i]) : 0.0;
    hadamard64(xh, t->n_in);
    memset(yh, 0, t->n_out * sizeof *yh);
    for (size_t i = 0; i < t->n_in; i++)
        for (size_t o = 0; o < t->n_out; o++) yh[o] += xh[i] * inner[i * t->n_out + o];
    hadamard64(yh, t->n_out);
    for (size_t o = 0; o < t->n_out_true; o++)
        y[o] = yh[o] * (double)qp_f16_to_f32(t->svh[o]) + (t->bias ? (double)t->bias[o] : 0.0);
    qp_free(xh);
    qp_free(yh);
}

/* The whole linear by kernels: y[n_out_true] of one x[n_in_true]. */
static inline void exl3_product(float *y, const qp_cpu_kernels *k, const qp_exl3 *t, const float *x, qp_exl3_arith a)
{
    float *xh = xmalloc(t->n_in * sizeof *xh), *yh = xmalloc(t->n_out * sizeof *yh), scale;
    int16_t *xq = xmalloc(t->n_in * sizeof *xq);
    void *scratch = xmalloc(k->exl3_scratch_bytes(t->n_in));
    int64_t sum;
    k->exl3_rotate_in(xh, x, t);
    if (a == QP_EXL3_I16) {
        k->exl3_quantize(xq, &scale, &sum, xh, t->n_in);
        k->exl3_mul_i16(yh, t->n_out, t, 0, t->n_out / 16, xq, t->n_in, &scale, &sum, 1, scratch);
    } else {
        k->exl3_mul_f32(yh, t->n_out, t, 0, t->n_out / 16, xh, t->n_in, 1, scratch);
    }
    k->exl3_rotate_out(y, yh, t);
    qp_free(xh);
    qp_free(yh);
    qp_free(xq);
    qp_free(scratch);
}

/* ---- a safetensors file from pieces ---- */
typedef struct st_tensor {
    const char *name, *dtype;
    int rank;
    unsigned long shape[3];
    const void *data;
    size_t n_bytes;
} st_tensor;

/* Writes dir/model.safetensors. */
static inline void st_write(const char *dir, const st_tensor *t, size_t n)
{
    char path[512], head[8192];
    size_t len = 0, at = 0;
    len += (size_t)snprintf(head + len, sizeof head - len, "{");
    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(head + len, sizeof head - len, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "",
                                t[i].name, t[i].dtype);
        for (int r = 0; r < t[i].rank; r++)
            len += (size_t)snprintf(head + len, sizeof head - len, "%s%lu", r ? "," : "", t[i].shape[r]);
        len += (size_t)snprintf(head + len, sizeof head - len, "],\"data_offsets\":[%zu,%zu]}", at, at + t[i].n_bytes);
        at += t[i].n_bytes;
    }
    len += (size_t)snprintf(head + len, sizeof head - len, "}");
    while (len % 8) head[len++] = ' ';
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n64 = len;
    fwrite(&n64, 8, 1, f);
    fwrite(head, 1, len, f);
    for (size_t i = 0; i < n; i++) fwrite(t[i].data, 1, t[i].n_bytes, f);
    assert_int_equal(fclose(f), 0);
}
#endif
