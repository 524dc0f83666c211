/* Allocation: alignment, accounting, overflow, the failing hook. */
#include "unit/io_util.h"

#include "base/alloc.h"

static void test_alignment_and_accounting(void **state)
{
    (void)state;
    size_t live = qp_alloc_live_bytes();
    uint64_t count = qp_alloc_count();
    void *p[64];
    for (size_t i = 0; i < 64; i++) {
        p[i] = qp_malloc(i * 37);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        memset(p[i], 0xAA, i * 37);
    }
    assert_int_equal(qp_alloc_count() - count, 64);
    assert_int_equal(qp_alloc_live_bytes() - live, 37 * 63 * 64 / 2);
    assert_true(qp_alloc_peak_bytes() >= qp_alloc_live_bytes());
    size_t peak = qp_alloc_peak_bytes();
    for (size_t i = 0; i < 64; i++) qp_free(p[i]);
    qp_free(NULL);
    assert_int_equal(qp_alloc_live_bytes(), live);
    assert_int_equal(qp_alloc_peak_bytes(), peak);
}

static void test_calloc_realloc_strdup(void **state)
{
    (void)state;
    unsigned char *p = qp_calloc(10, 30);
    for (int i = 0; i < 300; i++) assert_int_equal(p[i], 0);
    memset(p, 7, 300);
    p = qp_realloc(p, 300, 5000);
    for (int i = 0; i < 300; i++) assert_int_equal(p[i], 7);
    p = qp_realloc(p, 5000, 10);
    for (int i = 0; i < 10; i++) assert_int_equal(p[i], 7);
    qp_alloc_fail_after(1);
    assert_null(qp_realloc(p, 10, 20));
    assert_int_equal(p[9], 7); /* still valid */
    qp_free(p);
    p = qp_realloc(NULL, 0, 5);
    assert_non_null(p);
    qp_free(p);
    char *s = qp_strdup("abc"), *t = qp_strndup("abc", 2);
    assert_string_equal(s, "abc");
    assert_string_equal(t, "ab");
    qp_free(s);
    qp_free(t);
}

static void test_overflow(void **state)
{
    (void)state;
    qp_err err = {0};
    void *p = NULL;
    assert_null(qp_malloc(SIZE_MAX));
    assert_null(qp_malloc(SIZE_MAX - 64));
    assert_null(qp_calloc(SIZE_MAX / 4, 5));
    assert_null(qp_strndup("", SIZE_MAX));
    assert_status(qp_new(&p, SIZE_MAX / 4, 5, "table", &err), QP_ENOMEM, &err);
    assert_msg(&err, "table: no memory for 4611686018427387903 x 5 bytes");
    assert_null(p);
}

static void test_fail_after(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 5; n++) {
        qp_alloc_fail_after(n);
        for (uint64_t i = 1; i < 8; i++) {
            void *p = qp_malloc(1);
            if (i == n)
                assert_null(p);
            else
                assert_non_null(p);
            qp_free(p);
        }
    }
    qp_alloc_fail_after(2);
    qp_alloc_fail_after(0);
    for (int i = 0; i < 4; i++) {
        void *p = qp_malloc(1);
        assert_non_null(p);
        qp_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignment_and_accounting),
        cmocka_unit_test(test_calloc_realloc_strdup),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_fail_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
