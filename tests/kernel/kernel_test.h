/* Shared by the kernel tests: the levels this machine has, seeded data, guard floats and comparisons that print both
 * values. */
#ifndef QP_TESTS_KERNEL_TEST_H
#define QP_TESTS_KERNEL_TEST_H

/* Bounds mix float and double, and not every test uses every helper. */
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wunused-function"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUARD = 24 };

static const qp_cpu_kernels *level[3]; /* ref first */
static int n_levels;

static int load_levels(void **state)
{
    static const char *const names[] = {"ref", "avx2", "avx512"};
    qp_cpu_features have;
    qp_err err;
    (void)state;
    qp_cpu_features_read(&have);
    for (int i = 0; i < 3; i++) {
        if (qp_cpu_kernels_select(&level[n_levels], &have, names[i], &err) == QP_OK)
            n_levels++;
        else
            print_message("skipped: %s\n", err.msg);
    }
    return n_levels ? 0 : -1;
}

/* n floats whose surroundings are watched; odd offsets make it unaligned. */
typedef struct guarded {
    float *all, *p;
    size_t n;
} guarded;

static guarded guarded_new(size_t n, size_t shift)
{
    guarded g = {qp_malloc((n + 2 * GUARD) * sizeof(float)), NULL, n};
    assert_non_null(g.all);
    memset(g.all, 0xA5, (n + 2 * GUARD) * sizeof(float));
    g.p = g.all + GUARD - shift;
    return g;
}

static void guarded_check(const guarded *g, const char *what)
{
    for (float *f = g->all; f < g->all + g->n + 2 * GUARD; f++) {
        if (f >= g->p && f < g->p + g->n) continue;
        if (qp_f32_bits(*f) != 0xA5A5A5A5u) fail_msg("%s: wrote outside its row, at %td of %zu", what, f - g->p, g->n);
    }
}

static void guarded_free(guarded *g, const char *what)
{
    guarded_check(g, what);
    qp_free(g->all);
}

static float *floats_new(qp_rng *r, size_t n, float size)
{
    float *p = qp_malloc((n ? n : 1) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = size > 0 ? size * qp_rng_normal(r) : 0;
    return p;
}

/* Rounds n floats to the type, in a block of exactly their size, and puts the rounded values back. */
static void *stored_new(float *x, size_t n, qp_wtype type)
{
    void *p = qp_malloc(n ? n * qp_wtype_bytes(type) : 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        uint16_t h = type == QP_W_F16 ? qp_f32_to_f16_rne(x[i]) : qp_f32_to_bf16_rne(x[i]);
        if (type == QP_W_F32) {
            ((float *)p)[i] = x[i];
        } else {
            ((uint16_t *)p)[i] = h;
            x[i] = type == QP_W_F16 ? qp_f16_to_f32(h) : qp_bf16_to_f32(h);
        }
    }
    return p;
}

static bool same_float(float a, float b)
{
    return qp_f32_bits(a) == qp_f32_bits(b) || (isnan(a) && isnan(b));
}

static void assert_same(const float *a, const float *b, size_t n, const char *fmt, ...)
{
    for (size_t i = 0; i < n; i++) {
        if (same_float(a[i], b[i])) continue;
        char what[256];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(what, sizeof what, fmt, ap);
        va_end(ap);
        fail_msg("%s: element %zu of %zu is %.9g (%a), want %.9g (%a)", what, i, n, a[i], a[i], b[i], b[i]);
    }
}

/* Error of a in units of the last place of want (a double), with the spacing of normal floats at least 2^-149. */
static double ulps(float a, double want)
{
    if (isnan(want)) return isnan(a) ? 0 : INFINITY;
    if (isinf(want) || isinf(a) || isnan(a)) return (float)want == a ? 0 : INFINITY;
    int e;
    frexp(want, &e);
    return fabs((double)a - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

#endif
