/* Checked arithmetic at its edges. */
#include "unit/io_util.h"

#include "base/checked.h"

static void test_mul_and_add(void **state)
{
    (void)state;
    size_t out;
    assert_true(qp_mul_ok(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_true(qp_mul_ok(SIZE_MAX, 0, &out) && out == 0);
    assert_true(qp_mul_ok((size_t)1 << 32, ((size_t)1 << 32) - 1, &out) && out == 0xFFFFFFFF00000000u);
    assert_false(qp_mul_ok((size_t)1 << 32, (size_t)1 << 32, &out));
    assert_false(qp_mul_ok(SIZE_MAX, 2, &out));
    assert_true(qp_add_ok(SIZE_MAX, 0, &out) && out == SIZE_MAX);
    assert_true(qp_add_ok(SIZE_MAX - 5, 5, &out) && out == SIZE_MAX);
    assert_false(qp_add_ok(SIZE_MAX, 1, &out));
}

static void test_rounding(void **state)
{
    (void)state;
    size_t out;
    for (size_t a = 0; a < 200; a++) {
        for (size_t unit = 1; unit < 40; unit++) {
            size_t want = a;
            while (want % unit) want++;
            assert_true(qp_round_up_ok(a, unit, &out) && out == want);
            assert_int_equal(qp_round_up(a, unit), want);
            assert_int_equal(qp_div_up(a, unit), want / unit);
        }
    }
    assert_true(qp_round_up_ok(SIZE_MAX - 63, 64, &out) && out == SIZE_MAX - 63);
    assert_false(qp_round_up_ok(SIZE_MAX - 62, 64, &out));
    assert_false(qp_round_up_ok(SIZE_MAX, 64, &out));
    assert_true(qp_round_up_ok(SIZE_MAX, 1, &out));
    assert_int_equal(qp_min_size(3, 4), 3);
    assert_int_equal(qp_max_size(3, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mul_and_add), cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
