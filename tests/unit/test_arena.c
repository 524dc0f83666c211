/* Arena: alignment, chunks, limits, failed allocations. */
#include "unit/io_util.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/rng.h"

static void test_blocks_are_distinct_and_aligned(void **state)
{
    (void)state;
    enum { N = 2000 };
    static unsigned char *p[N];
    static size_t size[N];
    qp_arena a;
    qp_rng r = {7};
    size_t live = qp_alloc_live_bytes();
    qp_arena_init(&a, 0);
    for (int i = 0; i < N; i++) {
        size[i] = i % 100 ? qp_rng_u64(&r) % 300 : 5000 * (size_t)i;
        p[i] = qp_arena_alloc(&a, size[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        memset(p[i], i, size[i]);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k += 97) assert_int_equal(p[i][k], i & 255);
    qp_arena_deinit(&a);
    assert_int_equal(qp_alloc_live_bytes(), live);
    assert_non_null(qp_arena_alloc(&a, 1)); /* usable again */
    qp_arena_deinit(&a);
}

static void test_calloc_and_strndup(void **state)
{
    (void)state;
    qp_arena a;
    qp_arena_init(&a, 0);
    unsigned char *p = qp_arena_calloc(&a, 100, 9);
    for (int i = 0; i < 900; i++) assert_int_equal(p[i], 0);
    assert_null(qp_arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(qp_arena_alloc(&a, SIZE_MAX));
    assert_null(qp_arena_strndup(&a, "", SIZE_MAX));
    assert_string_equal(qp_arena_strndup(&a, "hello", 3), "hel");
    assert_string_equal(qp_arena_strndup(&a, "hello", 0), "");
    qp_arena_deinit(&a);
}

static void test_limit_is_usable_to_its_end(void **state)
{
    (void)state;
    static const size_t limits[] = {16, 100, 1000, 4096, 5000, 100000, 3000000};
    for (unsigned k = 0; k < sizeof limits / sizeof *limits; k++) {
        qp_arena a;
        size_t n = 0;
        qp_arena_init(&a, limits[k]);
        while (qp_arena_alloc(&a, 16)) n += 16;
        assert_true(n <= limits[k]);
        assert_true(n + 16 * 24 >= limits[k] && n > 0); /* all but what chunk ends waste */
        assert_true(a.total <= limits[k]);
        assert_null(qp_arena_alloc(&a, limits[k] + 1));
        qp_arena_deinit(&a);
        assert_int_equal(a.limit, limits[k]);
    }
}

static void test_allocation_fails(void **state)
{
    (void)state;
    size_t live = qp_alloc_live_bytes();
    for (uint64_t n = 1; n <= 2; n++) {
        qp_arena a;
        qp_arena_init(&a, 0);
        qp_alloc_fail_after(n);
        assert_null(qp_arena_alloc(&a, 10));
        qp_alloc_fail_after(0);
        assert_non_null(qp_arena_alloc(&a, 10));
        qp_arena_deinit(&a);
        assert_int_equal(qp_alloc_live_bytes(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_distinct_and_aligned),
        cmocka_unit_test(test_calloc_and_strndup),
        cmocka_unit_test(test_limit_is_usable_to_its_end),
        cmocka_unit_test(test_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
