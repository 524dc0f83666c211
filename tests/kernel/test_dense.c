/* Dense linear: every level, shape, number of rows and split gives the bits of ref, and ref is within the rounding of
 * its sums of the exact product. */
#include "kernel/kernel_test.h"

typedef struct shape {
    size_t n_in, n_out, n_rows;
} shape;

typedef struct problem {
    float *x, *w, *bias, *want;
    void *stored;
    size_t ldx;
} problem;

static void *scratch_new(const qp_cpu_kernels *k, size_t n_in)
{
    void *p = qp_malloc(k->dense_scratch_bytes(n_in));
    assert_non_null(p);
    return p;
}

static problem problem_new(qp_rng *r, shape s, qp_wtype type, bool bias)
{
    problem p = {0};
    p.ldx = s.n_in + qp_rng_u64(r) % 5;
    p.x = floats_new(r, p.ldx * s.n_rows, 1);
    p.w = floats_new(r, s.n_in * s.n_out, 0.5f);
    p.bias = bias ? floats_new(r, s.n_out, 1) : NULL;
    p.stored = stored_new(p.w, s.n_in * s.n_out, type);
    p.want = floats_new(r, s.n_rows * s.n_out, 0);
    level[0]->dense(p.want, s.n_out, p.x, p.ldx, s.n_rows, p.stored, type, s.n_in, 0, s.n_out, p.bias, NULL);
    return p;
}

static void problem_free(problem *p)
{
    qp_free(p->x);
    qp_free(p->w);
    qp_free(p->bias);
    qp_free(p->want);
    qp_free(p->stored);
}

static void check_exact(const problem *p, shape s)
{
    for (size_t m = 0; m < s.n_rows; m++) {
        for (size_t n = 0; n < s.n_out; n++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < s.n_in; k++) {
                const double t = (double)p->x[m * p->ldx + k] * p->w[n * s.n_in + k];
                sum += t;
                size += fabs(t);
            }
            if (p->bias) sum += p->bias[n], size += fabs(p->bias[n]);
            /* n_in / 16 steps and a tree of 4, the bias: each rounds by 2^-24 of at most the sum of magnitudes */
            const double bound = (s.n_in / 16 + 6) * 0x1p-24 * size, err = fabs(p->want[m * s.n_out + n] - sum);
            if (!(err <= bound)) fail_msg("n_in %zu: error %g, bound %g", s.n_in, err, bound);
        }
    }
}

/* Rows together, one by one, and in two parts of outputs. */
static void check_level(const qp_cpu_kernels *k, const problem *p, shape s, qp_wtype type)
{
    const size_t ldy = s.n_out + 3, cut = s.n_out / 3;
    void *scratch = scratch_new(k, s.n_in);
    for (int way = 0; way < 3; way++) {
        guarded y = guarded_new(ldy * s.n_rows - 3, (size_t)way);
        for (size_t i = 0; i < y.n; i++) y.p[i] = 77;
        if (way == 0) {
            k->dense(y.p, ldy, p->x, p->ldx, s.n_rows, p->stored, type, s.n_in, 0, s.n_out, p->bias, scratch);
        } else if (way == 1) {
            for (size_t m = 0; m < s.n_rows; m++)
                k->dense(y.p + m * ldy, ldy, p->x + m * p->ldx, p->ldx, 1, p->stored, type, s.n_in, 0, s.n_out, p->bias,
                         scratch);
        } else {
            k->dense(y.p, ldy, p->x, p->ldx, s.n_rows, p->stored, type, s.n_in, 0, cut, p->bias, scratch);
            k->dense(y.p, ldy, p->x, p->ldx, s.n_rows, p->stored, type, s.n_in, cut, s.n_out, p->bias, scratch);
        }
        for (size_t m = 0; m < s.n_rows; m++) {
            assert_same(y.p + m * ldy, p->want + m * s.n_out, s.n_out, "%s way %d n_in %zu rows %zu row %zu type %d",
                        k->name, way, s.n_in, s.n_rows, m, (int)type);
            for (size_t i = s.n_out; i < ldy && m + 1 < s.n_rows; i++) assert_true(y.p[m * ldy + i] > 76);
        }
        guarded_free(&y, k->name);
    }
    qp_free(scratch);
}

static void run(qp_rng *r, shape s, qp_wtype type, bool bias)
{
    problem p = problem_new(r, s, type, bias);
    check_exact(&p, s);
    for (int l = 1; l < n_levels; l++) check_level(level[l], &p, s, type);
    problem_free(&p);
}

static void test_every_width_and_type(void **state)
{
    static const size_t widths[] = {1, 7, 15, 16, 17, 31, 32, 33, 100, 576, 767, 769, 1000};
    static const size_t rows[] = {1, 2, 3, 4, 5, 6, 7, 9};
    qp_rng r = {10};
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            run(&r, (shape){widths[i], 1 + qp_rng_u64(&r) % 20, rows[m]}, (qp_wtype)((i + m) % 3), m % 2);
    }
}

static void test_all_outputs_counts(void **state)
{
    qp_rng r = {11};
    (void)state;
    for (size_t n = 1; n < 30; n++) {
        run(&r, (shape){48, n, 1 + n % 3}, QP_W_BF16, true);
        run(&r, (shape){40, n, 4 + n % 3}, QP_W_F16, false);
    }
}

static void test_across_blocks(void **state)
{
    qp_rng r = {12};
    (void)state;
    run(&r, (shape){1600, 50, 100}, QP_W_BF16, true); /* sums wait in scratch, two blocks of rows and outputs */
    run(&r, (shape){1540, 49, 98}, QP_W_F16, false);
    run(&r, (shape){64, 97, 195}, QP_W_F32, true);
}

/* A sum of negative underflows is -0 in a lane; lanes that do not exist must not turn it into +0. */
static void test_signed_zero_kept(void **state)
{
    (void)state;
    for (size_t n_in = 1; n_in < 40; n_in++) {
        float x[40], w[40], want = 1, y[4] = {1, 1, 1, 1}, x4[160];
        for (size_t i = 0; i < n_in; i++) x[i] = 1e-30f, w[i] = -1e-30f;
        for (size_t i = 0; i < 4 * n_in; i++) x4[i] = 1e-30f;
        level[0]->dense(&want, 1, x, n_in, 1, w, QP_W_F32, n_in, 0, 1, NULL, NULL);
        for (int l = 1; l < n_levels; l++) {
            void *scratch = scratch_new(level[l], n_in);
            level[l]->dense(y, 1, x, n_in, 1, w, QP_W_F32, n_in, 0, 1, NULL, scratch);
            assert_int_equal(qp_f32_bits(y[0]), qp_f32_bits(want));
            level[l]->dense(y, 1, x4, n_in, 4, w, QP_W_F32, n_in, 0, 1, NULL, scratch);
            for (int i = 0; i < 4; i++) assert_int_equal(qp_f32_bits(y[i]), qp_f32_bits(want));
            qp_free(scratch);
        }
    }
}

static void test_no_rows_no_columns(void **state)
{
    float y[6] = {9, 9, 9, 9, 9, 9}, x[6] = {0}, w[6] = {0}, bias[6] = {5, 6, 7, 8, 9, 10};
    (void)state;
    for (int l = 0; l < n_levels; l++) {
        void *scratch = scratch_new(level[l], 6);
        for (int i = 0; i < 6; i++) y[i] = 9;
        level[l]->dense(y, 1, x, 1, 0, w, QP_W_F32, 6, 0, 1, NULL, scratch);
        level[l]->dense(y, 1, x, 1, 1, w, QP_W_F32, 6, 0, 0, NULL, scratch);
        assert_true(y[0] > 8);
        level[l]->dense(y, 1, x, 1, 5, w, QP_W_F32, 0, 0, 1, bias, scratch);
        for (int i = 0; i < 5; i++) assert_true(same_float(y[i], 5));
        assert_true(y[5] > 8);
        qp_free(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_width_and_type), cmocka_unit_test(test_all_outputs_counts),
        cmocka_unit_test(test_across_blocks),        cmocka_unit_test(test_signed_zero_kept),
        cmocka_unit_test(test_no_rows_no_columns),
    };
    return cmocka_run_group_tests(tests, load_levels, NULL);
}
