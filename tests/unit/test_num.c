/* Half and bfloat16 conversions. Widening is checked for all 65,536 inputs; rounding at every boundary there is: each
 * value, each midpoint between neighbours, and the floats one step below and above both. Conversion is monotonic, so
 * the boundaries determine it. */
#include "unit/io_util.h"

#include "base/num.h"
#include "base/rng.h"

#include <math.h>

static void test_f16_to_f32_all(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        int e = h >> 10 & 31, m = h & 1023;
        float got = qp_f16_to_f32((uint16_t)h);
        if (e == 31 && m) {
            assert_true(isnan(got));
            continue;
        }
        double want = e == 31 ? (double)INFINITY : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        if (h & 0x8000) want = -want;
        assert_true((double)got == want);
        assert_int_equal(signbit(got) != 0, h >> 15);
    }
}

static void test_bf16_to_f32_all(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) assert_int_equal(qp_f32_bits(qp_bf16_to_f32((uint16_t)h)), h << 16);
}

/* The magnitudes lo < hi are neighbours in the small format, with the even one known by its last bit. */
static void check_between(uint16_t (*round)(float), float (*widen)(uint16_t), uint16_t lo)
{
    uint16_t hi = (uint16_t)(lo + 1), even = lo & 1 ? hi : lo;
    double a = widen(lo), b = isinf(widen(hi)) ? 2 * a - (double)widen((uint16_t)(lo - 1)) : (double)widen(hi);
    float mid = (float)((a + b) / 2);
    assert_true((double)mid == (a + b) / 2); /* representable: the wide format has bits to spare */
    assert_int_equal(round((float)a), lo);
    assert_int_equal(round(nextafterf((float)a, INFINITY)), lo);
    assert_int_equal(round(nextafterf(mid, 0)), lo);
    assert_int_equal(round(mid), even);
    assert_int_equal(round(nextafterf(mid, INFINITY)), hi);
    assert_int_equal(round(-mid), even | 0x8000);
    assert_int_equal(round(-nextafterf(mid, 0)), lo | 0x8000);
    assert_int_equal(round(-nextafterf(mid, INFINITY)), hi | 0x8000);
}

static void test_f32_to_f16_every_boundary(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) check_between(qp_f32_to_f16_rne, qp_f16_to_f32, (uint16_t)h);
    assert_int_equal(qp_f32_to_f16_rne(65520), 0x7C00);
    assert_int_equal(qp_f32_to_f16_rne(nextafterf(65520, 0)), 0x7BFF);
    assert_int_equal(qp_f32_to_f16_rne(INFINITY), 0x7C00);
    assert_int_equal(qp_f32_to_f16_rne(-INFINITY), 0xFC00);
    assert_int_equal(qp_f32_to_f16_rne(3.4e38f), 0x7C00);
    assert_int_equal(qp_f32_to_f16_rne(-0.0f), 0x8000);
    assert_int_equal(qp_f32_to_f16_rne(1e-45f), 0);
}

static uint16_t bf16(float f)
{
    return qp_f32_to_bf16_rne(f);
}

static void test_f32_to_bf16_every_boundary(void **state)
{
    (void)state;
    /* From the first normal on; below it the float steps are those of the small format's own subnormals. */
    for (uint32_t h = 0; h < 0x7F7F; h++) check_between(bf16, qp_bf16_to_f32, (uint16_t)h);
    assert_int_equal(bf16(3.4028235e38f), 0x7F80); /* above the midpoint to the next power of two */
    assert_int_equal(bf16(qp_f32_from_bits(0x7F7F7FFF)), 0x7F7F);
    assert_int_equal(bf16(INFINITY), 0x7F80);
    assert_int_equal(bf16(-INFINITY), 0xFF80);
    assert_int_equal(bf16(-0.0f), 0x8000);
}

static void test_nan_stays_nan(void **state)
{
    (void)state;
    qp_rng r = {1};
    for (int i = 0; i < 100000; i++) {
        uint32_t u = (uint32_t)qp_rng_u64(&r) | 0x7F800000u;
        if (!(u & 0x7FFFFF) || i < 3) u = (i & 1 ? 0x80000000u : 0) | 0x7F800001u; /* the smallest payload */
        float f = qp_f32_from_bits(u);
        uint16_t b = bf16(f), h = qp_f32_to_f16_rne(f);
        assert_true((b & 0x7FFF) > 0x7F80 && (b & 0x40) && b >> 15 == u >> 31);
        assert_true((h & 0x7FFF) > 0x7C00 && (h & 0x200) && h >> 15 == u >> 31);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        if ((h & 0x7FFF) <= 0x7C00) assert_int_equal(qp_f32_to_f16_rne(qp_f16_to_f32((uint16_t)h)), h);
        if ((h & 0x7FFF) <= 0x7F80) assert_int_equal(bf16(qp_bf16_to_f32((uint16_t)h)), h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_to_f32_all),
        cmocka_unit_test(test_bf16_to_f32_all),
        cmocka_unit_test(test_f32_to_f16_every_boundary),
        cmocka_unit_test(test_f32_to_bf16_every_boundary),
        cmocka_unit_test(test_nan_stays_nan),
        cmocka_unit_test(test_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
