/* Row kernels: norms, rope and arithmetic have the bits of ref at every level; those with exp and tanh stay within a
 * bound of the exact value, and both vector levels agree bit for bit. */
#include "kernel/kernel_test.h"

static const size_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 64, 100, 257, 576, 1024, 5120};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void norm_of(const qp_cpu_kernels *k, int kind, float *y, const float *x, const float *w, size_t n)
{
    if (kind == 0)
        k->rms_norm(y, x, w, n, 1e-6f);
    else if (kind == 1)
        k->rms_norm(y, x, NULL, n, 1e-5f);
    else
        k->l2_norm(y, x, n, 1e-6f, 0.0883883f);
}

static double norm_exact(int kind, const float *x, const float *w, size_t n, size_t i)
{
    double s = 0;
    for (size_t j = 0; j < n; j++) s += (double)x[j] * x[j];
    if (kind == 2) return x[i] / sqrt(s + (double)1e-6f) * (double)0.0883883f;
    return x[i] / sqrt(s / n + (double)(kind ? 1e-5f : 1e-6f)) * (kind ? 1 : w[i]);
}

static void test_norms_same_bits(void **state)
{
    qp_rng r = {1};
    (void)state;
    for (int c = 0; c < N_SIZES * 3; c++) {
        const size_t n = sizes[c % N_SIZES];
        const int kind = c / N_SIZES;
        float *x = floats_new(&r, n, c % 2 ? 1000.0f : 0.01f), *w = floats_new(&r, n, 1);
        guarded want = guarded_new(n, 0);
        norm_of(level[0], kind, want.p, x, w, n);
        for (size_t i = 0; i < n; i++) /* sums of n/16 steps, square root, division, two products */
            assert_true(ulps(want.p[i], norm_exact(kind, x, w, n, i)) <= n / 16 + 8);
        for (int l = 0; l < n_levels; l++) {
            guarded y = guarded_new(n, l + 1);
            norm_of(level[l], kind, y.p, x, w, n);
            assert_same(y.p, want.p, n, "%s norm %d n %zu", level[l]->name, kind, n);
            memcpy(y.p, x, n * sizeof *x);
            norm_of(level[l], kind, y.p, y.p, w, n);
            assert_same(y.p, want.p, n, "%s norm %d n %zu in place", level[l]->name, kind, n);
            guarded_free(&y, level[l]->name);
        }
        guarded_free(&want, "ref");
        qp_free(x);
        qp_free(w);
    }
}

static void test_arithmetic_same_bits(void **state)
{
    qp_rng r = {2};
    (void)state;
    for (int c = 0; c < N_SIZES; c++) {
        const size_t n = sizes[c];
        float *x = floats_new(&r, n, 3), *cs = floats_new(&r, 2 * n, 1), *head = floats_new(&r, 2 * n, 2);
        for (int l = 0; l < n_levels; l++) {
            guarded y = guarded_new(n, 3), h = guarded_new(2 * n, 1);
            memcpy(y.p, cs, n * sizeof *x);
            level[l]->add(y.p, x, n);
            for (size_t i = 0; i < n; i++) assert_true(same_float(y.p[i], cs[i] + x[i]));
            level[l]->scale(y.p, x, -1.7f, n);
            for (size_t i = 0; i < n; i++) assert_true(same_float(y.p[i], -1.7f * x[i]));
            memcpy(h.p, head, 2 * n * sizeof *x);
            level[l]->rope(h.p, cs, n);
            for (size_t i = 0; i < n; i++) {
                const float a = head[i] * cs[2 * i], b = head[i + n] * cs[2 * i + 1];
                const float d = head[i + n] * cs[2 * i], e = head[i] * cs[2 * i + 1];
                if (!same_float(h.p[i], a - b) || !same_float(h.p[i + n], d + e))
                    fail_msg("%s rope n_half %zu at %zu", level[l]->name, n, i);
            }
            guarded_free(&y, level[l]->name);
            guarded_free(&h, level[l]->name);
        }
        qp_free(x);
        qp_free(cs);
        qp_free(head);
    }
}

enum { SILU, GELU, SIGMOID, SOFTCAP, N_ACTS };
static const char *const act_names[] = {"silu_mul", "gelu_tanh_mul", "sigmoid_mul", "softcap"};

static void act_of(const qp_cpu_kernels *k, int kind, float *y, const float *g, const float *u, size_t n)
{
    if (kind == SILU) k->silu_mul(y, g, u, n);
    if (kind == GELU) k->gelu_tanh_mul(y, g, u, n);
    if (kind == SIGMOID) k->sigmoid_mul(y, u, g, n);
    if (kind == SOFTCAP) k->softcap(y, g, 30.0f, n);
}

static double act_exact(int kind, double g, double u)
{
    if (kind == SILU) return g / (1 + exp(-g)) * u;
    if (kind == SIGMOID) return u / (1 + exp(-g));
    if (kind == SOFTCAP) return 30 * tanh(g / 30);
    return 0.5 * g * (1 + tanh((double)0.7978845608f * (g + (double)0.044715f * g * g * g))) * u;
}

/* Bounds in ulps, measured 2.9, 2.5, 3.2 and rounded up; gelu cancels in 1 + tanh below zero, so there the bound is on
 * the absolute error in units of 2^-24 |g u|. */
static void check_act(int kind, const char *name, float y, float g, float u)
{
    const double want = act_exact(kind, g, u);
    const bool cancels = kind == GELU && g < 0;
    const double err = cancels ? fabs(y - want) / (0x1p-24 * fabs((double)g * u) + 0x1p-148) : ulps(y, want);
    if (isinf(u) || isinf(g) || isnan(want)) return; /* compared with ref instead */
    if (g < -88 && kind != SOFTCAP && fabs(y - want) < 3e-39 * fabs((double)g * u)) return; /* 1 / inf = 0 */
    if (kind == SOFTCAP && fabs(y - want) <= 30 * 0x1p-149) return; /* x / 30 may be subnormal */
    if (!(err <= (cancels ? 6 : kind == GELU ? 8 : 4)))
        fail_msg("%s %s(%a, %a) = %a, want %a, error %g", name, act_names[kind], g, u, y, want, err);
}

static void test_activations_within_bounds(void **state)
{
    static const float odd[] = {0.0f,  -0.0f,  1e-40f, -1e-40f, 87.0f, 88.8f,    -88.8f,    -87.0f,
                                89.0f, -95.0f, 103.0f, -104.0f, 1e30f, INFINITY, -INFINITY, NAN};
    enum { N = 3000, N_ODD = sizeof odd / sizeof *odd };
    qp_rng r = {3};
    (void)state;
    float *g = floats_new(&r, N, 1), *u = floats_new(&r, N, 2);
    for (size_t i = 0; i < N; i++) g[i] *= i % 3 == 0 ? 0.2f : i % 3 == 1 ? 3.0f : 25.0f;
    memcpy(g, odd, sizeof odd);
    for (size_t i = 0; i < N_ODD; i++) u[i] = 1.5f;
    for (int kind = 0; kind < N_ACTS; kind++) {
        guarded first = guarded_new(N, 0), want = guarded_new(N, 0);
        act_of(level[0], kind, want.p, g, u, N);
        for (int l = 0; l < n_levels; l++) {
            guarded y = guarded_new(N, 5);
            act_of(level[l], kind, y.p, g, u, N);
            for (size_t i = 0; i < N; i++) {
                check_act(kind, level[l]->name, y.p[i], g[i], u[i]);
                if (i < N_ODD && (isnan(want.p[i]) != isnan(y.p[i]) || isinf(want.p[i]) != isinf(y.p[i])))
                    fail_msg("%s %s(%g): %g, ref %g", level[l]->name, act_names[kind], g[i], y.p[i], want.p[i]);
            }
            if (l == 1) memcpy(first.p, y.p, N * sizeof(float));
            if (l > 1) assert_same(y.p, first.p, N, "%s %s against avx2", level[l]->name, act_names[kind]);
            for (size_t n = 1; n < 40; n++) { /* an element's value does not depend on its place */
                guarded z = guarded_new(n, n % 9);
                act_of(level[l], kind, z.p, g + 20 + n, u + 20 + n, n);
                assert_same(z.p, y.p + 20 + n, n, "%s %s n %zu", level[l]->name, act_names[kind], n);
                guarded_free(&z, act_names[kind]);
            }
            memcpy(y.p, g, N * sizeof(float)); /* in place */
            guarded z = guarded_new(N, 0);
            act_of(level[l], kind, z.p, g, u, N);
            act_of(level[l], kind, y.p, y.p, u, N);
            assert_same(y.p, z.p, N, "%s %s in place", level[l]->name, act_names[kind]);
            guarded_free(&z, act_names[kind]);
            guarded_free(&y, act_names[kind]);
        }
        guarded_free(&first, act_names[kind]);
        guarded_free(&want, act_names[kind]);
    }
    qp_free(g);
    qp_free(u);
}

/* softcap with cap 1 is tanh itself; sigmoid far below zero is 1 / exp(-g), so it shows exp. Every 4099th float. */
static void test_tanh_and_exp_over_all_floats(void **state)
{
    enum { N = 4096 };
    float *x = qp_malloc(N * sizeof *x), *y = qp_malloc(N * sizeof *y), *one = qp_malloc(N * sizeof *one);
    (void)state;
    for (size_t i = 0; i < N; i++) one[i] = 1;
    for (int l = 0; l < n_levels; l++) {
        double worst = 0, worst_exp = 0;
        uint64_t bits = 0;
        while (bits < (UINT64_C(1) << 32)) {
            size_t n = 0;
            for (; n < N && bits < (UINT64_C(1) << 32); bits += 4099) x[n++] = qp_f32_from_bits((uint32_t)bits);
            level[l]->softcap(y, x, 1.0f, n);
            for (size_t i = 0; i < n; i++) worst = fmax(worst, ulps(y[i], isnan(x[i]) ? NAN : tanh((double)x[i])));
            level[l]->sigmoid_mul(y, one, x, n);
            for (size_t i = 0; i < n; i++) {
                if (x[i] < -88) /* exp(-x) overflows */
                    assert_true(y[i] >= 0 && y[i] < 1e-38f);
                else
                    worst_exp = fmax(worst_exp, ulps(y[i], isnan(x[i]) ? NAN : 1 / (1 + exp(-(double)x[i]))));
            }
        }
        print_message("%s: tanh %.2f ulp, sigmoid %.2f ulp\n", level[l]->name, worst, worst_exp);
        assert_true(worst < (l ? 2 : 3)); /* glibc's tanhf: 2.07 */
        assert_true(worst_exp < 2.6);     /* exp, then the roundings of a sum and a division */
    }
    qp_free(x);
    qp_free(y);
    qp_free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms_same_bits),
        cmocka_unit_test(test_arithmetic_same_bits),
        cmocka_unit_test(test_activations_within_bounds),
        cmocka_unit_test(test_tanh_and_exp_over_all_floats),
    };
    return cmocka_run_group_tests(tests, load_levels, NULL);
}
