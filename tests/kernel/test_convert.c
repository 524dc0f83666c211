/* Conversions and the reductions over a row of logits. */
#include "kernel/kernel_test.h"

static void test_widening_all_halves_exact(void **state)
{
    enum { N = 65536 };
    uint16_t *h = qp_malloc(N * sizeof *h);
    (void)state;
    for (size_t i = 0; i < N; i++) h[i] = (uint16_t)i;
    for (int l = 0; l < n_levels; l++) {
        for (int type = QP_W_F16; type <= QP_W_BF16; type++) {
            guarded y = guarded_new(N, 1);
            level[l]->to_f32(y.p, h, type, N);
            for (size_t i = 0; i < N; i++) {
                const float want = type == QP_W_F16 ? qp_f16_to_f32(h[i]) : qp_bf16_to_f32(h[i]);
                if (qp_f32_bits(y.p[i]) != qp_f32_bits(want))
                    fail_msg("%s type %d: %04zx widens to %08x, want %08x", level[l]->name, type, i,
                             qp_f32_bits(y.p[i]), qp_f32_bits(want));
            }
            guarded_free(&y, level[l]->name);
            for (size_t n = 0; n < 40; n++) {
                guarded z = guarded_new(n, n % 5);
                level[l]->to_f32(z.p, h + 0x7BF1 + n, type, n);
                for (size_t i = 0; i < n; i++) {
                    const uint16_t v = h[0x7BF1 + n + i];
                    const float want = type == QP_W_F16 ? qp_f16_to_f32(v) : qp_bf16_to_f32(v);
                    assert_int_equal(qp_f32_bits(z.p[i]), qp_f32_bits(want));
                }
                guarded_free(&z, level[l]->name);
            }
        }
    }
    qp_free(h);
}

/* Around every representable half and every midpoint, and a sweep of all floats. */
static void check_narrow(const float *x, size_t n)
{
    uint16_t y[4096 + 2];
    for (int l = 0; l < n_levels; l++) {
        for (int type = QP_W_F16; type <= QP_W_BF16; type++) {
            memset(y, 0xA5, sizeof y);
            level[l]->from_f32(y + 1, type, x, n);
            assert_int_equal(y[0], 0xA5A5);
            assert_int_equal(y[n + 1], 0xA5A5);
            for (size_t i = 0; i < n; i++) {
                const uint16_t want = type == QP_W_F16 ? qp_f32_to_f16_rne(x[i]) : qp_f32_to_bf16_rne(x[i]);
                if (y[i + 1] != want)
                    fail_msg("%s type %d: %08x narrows to %04x, want %04x", level[l]->name, type, qp_f32_bits(x[i]),
                             y[i + 1], want);
            }
        }
    }
}

static void test_narrowing_rounds_as_num_h(void **state)
{
    static float x[4096];
    size_t n = 0;
    (void)state;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 2053) {
        x[n++] = qp_f32_from_bits((uint32_t)bits);
        if (n == 4096) check_narrow(x, n), n = 0;
    }
    check_narrow(x, n);
    n = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        const uint32_t mid = qp_f32_bits(qp_f16_to_f32((uint16_t)h)) + 0x1000u, b = h << 16 | 0x8000u;
        for (uint32_t d = 0; d < 3; d++) {
            x[n++] = qp_f32_from_bits(mid + d - 1);
            x[n++] = qp_f32_from_bits(b + d - 1);
        }
        if (n > 4080) check_narrow(x, n), n = 0;
    }
    for (size_t k = 0; k < 40; k++) check_narrow(x, k);
}

static void test_f32_is_copied(void **state)
{
    const float x[5] = {1, -0.0f, NAN, INFINITY, 1e-42f};
    float y[5];
    (void)state;
    for (int l = 0; l < n_levels; l++) {
        level[l]->to_f32(y, x, QP_W_F32, 5);
        assert_memory_equal(x, y, sizeof x);
        memset(y, 0, sizeof y);
        level[l]->from_f32(y, QP_W_F32, x, 5);
        assert_memory_equal(x, y, sizeof x);
    }
}

static size_t plain_argmax(const float *x, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (!isnan(x[i]) && (best == n || x[i] > x[best])) best = i;
    }
    return best == n ? 0 : best;
}

static void test_argmax_ties_and_nan(void **state)
{
    qp_rng r = {4};
    (void)state;
    for (int c = 0; c < 4000; c++) {
        const size_t n = 1 + qp_rng_u64(&r) % (c < 3900 ? 70 : 5000);
        float *x = floats_new(&r, n, 1);
        const int kind = c % 5;
        for (size_t i = 0; i < n; i++) {
            const uint64_t p = qp_rng_u64(&r) % 4;
            if (kind == 0) x[i] = (float)p; /* many ties */
            if (kind == 1 && p) x[i] = NAN;
            if (kind == 2) x[i] = p ? -INFINITY : NAN;
            if (kind == 3) x[i] = p ? 0.0f : -0.0f;
            if (kind == 4 && p == 3) x[i] = INFINITY;
        }
        for (int l = 0; l < n_levels; l++) assert_int_equal(level[l]->argmax(x, n), plain_argmax(x, n));
        for (size_t i = 0; i < n; i++) x[i] = NAN;
        for (int l = 0; l < n_levels; l++) assert_int_equal(level[l]->argmax(x, n), 0);
        qp_free(x);
    }
}

static void test_log_sum_exp(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 8, 9, 31, 1000, 65537};
    qp_rng r = {5};
    (void)state;
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
        const size_t n = sizes[c];
        float *x = floats_new(&r, n, 10);
        long double sum = 0;
        for (size_t i = 0; i < n; i++) sum += expl((long double)x[i] - x[0]);
        const double want = (double)(logl(sum) + x[0]);
        /* n double additions of positive terms, then the rounding of the result */
        const double bound = n * 0x1p-53 + 4 * 0x1p-53 * (fabs(want) + 60);
        for (int l = 0; l < n_levels; l++) {
            const double got = level[l]->log_sum_exp(x, n);
            if (!(fabs(got - want) <= bound)) fail_msg("%s n %zu: %.17g, want %.17g", level[l]->name, n, got, want);
        }
        for (int l = 0; l < n_levels; l++) {
            const float keep = x[n / 2];
            x[n / 2] = -INFINITY;
            assert_true(n == 1 ? isinf(level[l]->log_sum_exp(x, n)) : isfinite(level[l]->log_sum_exp(x, n)));
            x[n / 2] = INFINITY;
            assert_true(level[l]->log_sum_exp(x, n) > 1e300);
            x[n / 2] = NAN;
            assert_true(isnan(level[l]->log_sum_exp(x, n)));
            x[n / 2] = keep;
        }
        for (size_t i = 0; i < n; i++) x[i] = -INFINITY;
        for (int l = 0; l < n_levels; l++) assert_true(level[l]->log_sum_exp(x, n) < -1e300);
        qp_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening_all_halves_exact),
        cmocka_unit_test(test_narrowing_rounds_as_num_h),
        cmocka_unit_test(test_f32_is_copied),
        cmocka_unit_test(test_argmax_ties_and_nan),
        cmocka_unit_test(test_log_sum_exp),
    };
    return cmocka_run_group_tests(tests, load_levels, NULL);
}
