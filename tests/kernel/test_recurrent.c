/* Convolution and gated delta rule: ref against recurrences in double, levels against ref, chunks against the whole. */
#include "kernel/kernel_test.h"

/* ---- conv1d_silu ---- */

typedef struct conv_case {
    size_t n_tokens, n_channels, width;
} conv_case;

static void conv_run(const qp_cpu_kernels *k, conv_case c, float *y, size_t ldy, const float *u, size_t ldu,
                     const float *w, float *state, size_t chunk)
{
    for (size_t t = 0; t < c.n_tokens; t += chunk)
        k->conv1d_silu(y + t * ldy, ldy, u + t * ldu, ldu, w, state, c.n_tokens - t < chunk ? c.n_tokens - t : chunk,
                       c.n_channels, c.width);
}

static void conv_check(qp_rng *r, conv_case c)
{
    const size_t ldu = c.n_channels + 3, ldy = c.n_channels + 1, kept = (c.width - 1) * c.n_channels;
    float *u = floats_new(r, ldu * c.n_tokens, 1), *w = floats_new(r, c.n_channels * c.width, 1);
    float *state = floats_new(r, kept, 1), *avx2 = NULL;
    for (int l = 0; l < n_levels; l++) {
        float *first = NULL;
        for (size_t chunk = c.n_tokens; chunk > 0; chunk /= 3) {
            guarded y = guarded_new(ldy * c.n_tokens - 1, 2), s = guarded_new(kept, 1);
            for (size_t i = 0; i < y.n; i++) y.p[i] = 77;
            memcpy(s.p, state, kept * sizeof *state);
            conv_run(level[l], c, y.p, ldy, u, ldu, w, s.p, chunk);
            for (size_t t = 0; t < c.n_tokens && !first; t++) {
                for (size_t ch = 0; ch < c.n_channels; ch++) {
                    double sum = 0, size = 0;
                    for (size_t j = 0; j < c.width; j++) {
                        const float v = t + j + 1 >= c.width ? u[(t + j + 1 - c.width) * ldu + ch]
                                                             : state[(t + j) * c.n_channels + ch];
                        sum += (double)w[ch * c.width + j] * v;
                        size += fabs((double)w[ch * c.width + j] * v);
                    }
                    const double want = sum / (1 + exp(-sum)), err = fabs(y.p[t * ldy + ch] - want);
                    assert_true(err <= 1.2 * c.width * 0x1p-24 * size + 5 * 0x1p-24 * fabs(want));
                }
            }
            for (size_t i = 0; i < kept; i++) { /* the state is the last width - 1 inputs */
                const size_t in = i / c.n_channels + c.n_tokens;
                const float v = in + 1 >= c.width ? u[(in + 1 - c.width) * ldu + i % c.n_channels]
                                                  : state[in * c.n_channels + i % c.n_channels];
                assert_true(same_float(s.p[i], v));
            }
            if (!first) {
                first = floats_new(r, y.n, 0);
                memcpy(first, y.p, y.n * sizeof *first);
            }
            assert_same(y.p, first, y.n, "%s conv %zu x %zu width %zu chunk %zu", level[l]->name, c.n_tokens,
                        c.n_channels, c.width, chunk);
            if (avx2) assert_same(y.p, avx2, y.n, "avx512 conv against avx2");
            guarded_free(&y, "conv");
            guarded_free(&s, "conv state");
        }
        if (l == 1) {
            avx2 = first;
            first = NULL;
        }
        qp_free(first);
    }
    qp_free(avx2);
    qp_free(u);
    qp_free(w);
    qp_free(state);
}

static void test_conv(void **state)
{
    static const size_t tokens[] = {1, 2, 3, 5, 40}, channels[] = {1, 15, 16, 17, 100}, widths[] = {1, 2, 4, 8, 9, 11};
    qp_rng r = {30};
    (void)state;
    for (size_t i = 0; i < 150; i++) conv_check(&r, (conv_case){tokens[i % 5], channels[i / 5 % 5], widths[i / 25]});
}

static void test_conv_without_tokens_keeps_state(void **state)
{
    float s[6] = {1, 2, 3, 4, 5, 6}, w[12] = {0}, u[1] = {0}, y[1] = {0};
    (void)state;
    for (int l = 0; l < n_levels; l++) {
        level[l]->conv1d_silu(y, 3, u, 3, w, s, 0, 3, 3);
        for (int i = 0; i < 6; i++) assert_true(same_float(s[i], (float)(i + 1)));
    }
}

/* ---- gated delta ---- */

static void test_gates(void **state)
{
    enum { N = 500 };
    qp_rng r = {31};
    float *a = floats_new(&r, N, 8), *b = floats_new(&r, N, 5), *al = floats_new(&r, N, 1), *dt = floats_new(&r, N, 1);
    (void)state;
    a[0] = 100;
    a[1] = -100;
    for (int l = 0; l < n_levels; l++) {
        guarded decay = guarded_new(N, 1), beta = guarded_new(N, 2);
        level[l]->gdn_gates(decay.p, beta.p, a, b, al, dt, N);
        for (size_t i = 0; i < N; i++) {
            const double x = (double)(a[i] + dt[i]), g = exp((double)al[i]) * (x > 20 ? x : log1p(exp(x)));
            /* the exponent g has an error of 3 ulp, which exp turns into a relative error of g times that */
            assert_true(fabs(decay.p[i] - exp(-g)) <= (2 + 4 * g) * 0x1p-23 * exp(-g) + 0x1p-149);
            assert_true(ulps(beta.p[i], 1 / (1 + exp(-(double)b[i]))) <= 3);
        }
        guarded_free(&decay, level[l]->name);
        guarded_free(&beta, level[l]->name);
    }
    qp_free(a);
    qp_free(b);
    qp_free(al);
    qp_free(dt);
}

typedef struct gdn_data {
    float *state0, *q, *k, *v, *decay, *beta;
    qp_gdn_args a;
} gdn_data;

static gdn_data gdn_new(qp_rng *r, uint32_t n_tokens, uint32_t dk, uint32_t dv)
{
    gdn_data d = {.state0 = floats_new(r, (size_t)dk * dv, 0.1f),
                  .q = floats_new(r, (size_t)n_tokens * (dk + 2), 0.1f),
                  .k = floats_new(r, (size_t)n_tokens * (dk + 1), 1),
                  .v = floats_new(r, (size_t)n_tokens * (dv + 3), 1),
                  .decay = floats_new(r, (size_t)n_tokens * 3, 0),
                  .beta = floats_new(r, (size_t)n_tokens * 3, 0)};
    for (uint32_t t = 0; t < n_tokens; t++) {
        level[0]->l2_norm(d.k + t * (dk + 1), d.k + t * (dk + 1), dk, 1e-6f, 1);
        d.decay[t * 3] = (float)(0.5 + 0.5 * qp_rng_unit(r));
        d.beta[t * 3] = (float)qp_rng_unit(r);
    }
    d.a =
        (qp_gdn_args){NULL, d.q, d.k, d.v, dk + 2, dk + 1, dv + 3, d.decay, d.beta, 3, NULL, dv + 4, n_tokens, dk, dv};
    return d;
}

static void gdn_free(gdn_data *d)
{
    qp_free(d->state0);
    qp_free(d->q);
    qp_free(d->k);
    qp_free(d->v);
    qp_free(d->decay);
    qp_free(d->beta);
}

static void gdn_run(const qp_cpu_kernels *k, const gdn_data *d, float *state, float *out, uint32_t chunk)
{
    for (uint32_t t = 0; t < d->a.n_tokens; t += chunk) {
        qp_gdn_args a = d->a;
        a.state = state;
        a.out = out + t * a.ldo;
        a.q += t * a.ldq;
        a.k += t * a.ldk;
        a.v += t * a.ldv;
        a.decay += t * a.ldg;
        a.beta += t * a.ldg;
        a.n_tokens = d->a.n_tokens - t < chunk ? d->a.n_tokens - t : chunk;
        k->gated_delta(&a);
    }
}

/* The recurrence in double; the state is bounded by decays and unit keys, so errors of about dk 2^-24 do not grow. */
static void gdn_exact(const gdn_data *d, const float *out, const float *state)
{
    const size_t dk = d->a.dk, dv = d->a.dv;
    double *s = qp_malloc(dk * dv * sizeof *s);
    assert_non_null(s);
    for (size_t i = 0; i < dk * dv; i++) s[i] = d->state0[i];
    for (size_t t = 0; t < d->a.n_tokens; t++) {
        const float *q = d->q + t * d->a.ldq, *k = d->k + t * d->a.ldk, *v = d->v + t * d->a.ldv;
        for (size_t j = 0; j < dv; j++) {
            double sum = 0, o = 0;
            for (size_t i = 0; i < dk; i++) sum += (s[i * dv + j] *= (double)d->decay[t * 3]) * k[i];
            const double e = d->beta[t * 3] * (v[j] - sum);
            for (size_t i = 0; i < dk; i++) o += (s[i * dv + j] += k[i] * e) * q[i];
            assert_true(fabs(out[t * d->a.ldo + j] - o) <= (dk + 20) * 0x1p-24 * 4);
        }
    }
    for (size_t i = 0; i < dk * dv; i++) assert_true(fabs(state[i] - s[i]) <= (dk + 20) * 0x1p-24 * 4);
    qp_free(s);
}

static void gdn_check(qp_rng *r, uint32_t n_tokens, uint32_t dk, uint32_t dv)
{
    gdn_data d = gdn_new(r, n_tokens, dk, dv);
    const size_t n_out = d.a.ldo * n_tokens - 4, n_state = (size_t)dk * dv;
    guarded want = guarded_new(n_out, 0), want_state = guarded_new(n_state, 0);
    for (int l = 0; l < n_levels; l++) {
        for (uint32_t chunk = n_tokens; chunk > 0; chunk /= 4) {
            const bool first = l == 0 && chunk == n_tokens;
            guarded y = first ? want : guarded_new(n_out, 3), s = first ? want_state : guarded_new(n_state, 1);
            for (size_t i = 0; i < n_out; i++) y.p[i] = 77;
            memcpy(s.p, d.state0, n_state * sizeof(float));
            gdn_run(level[l], &d, s.p, y.p, chunk);
            assert_same(y.p, want.p, n_out, "%s dk %u dv %u tokens %u chunk %u", level[l]->name, dk, dv, n_tokens,
                        chunk);
            assert_same(s.p, want_state.p, n_state, "%s state dk %u dv %u", level[l]->name, dk, dv);
            if (first) {
                gdn_exact(&d, y.p, s.p);
                continue;
            }
            guarded_free(&y, level[l]->name);
            guarded_free(&s, level[l]->name);
        }
    }
    guarded_free(&want, "ref");
    guarded_free(&want_state, "ref");
    gdn_free(&d);
}

static void test_gated_delta(void **state)
{
    static const uint32_t dims[] = {8, 16, 24, 64, 72, 128};
    qp_rng r = {32};
    (void)state;
    for (int i = 0; i < 36; i++) gdn_check(&r, 1 + i % 7 * 3, dims[i % 6], dims[i / 6]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_conv_without_tokens_keeps_state),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_gated_delta),
    };
    return cmocka_run_group_tests(tests, load_levels, NULL);
}
