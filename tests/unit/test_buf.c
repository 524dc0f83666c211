/* Byte buffer: growth, limits, failed allocations, formatting. */
#include "unit/io_util.h"

#include "base/alloc.h"
#include "base/buf.h"

static void test_add_and_terminate(void **state)
{
    (void)state;
    qp_buf b = {0};
    qp_err err = {0};
    char want[2001];
    for (int i = 0; i < 2000; i++) {
        want[i] = (char)('a' + i % 26);
        qp_buf_addc(&b, want[i]);
        assert_int_equal(b.len, i + 1);
        assert_int_equal(b.data[b.len], 0);
    }
    want[2000] = 0;
    assert_string_equal(b.data, want);
    assert_int_equal(qp_buf_check(&b, "x", &err), QP_OK);
    char *kept = b.data;
    qp_buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    assert_ptr_equal(b.data, kept);
    qp_buf_add(&b, NULL, 0);
    qp_buf_add(&b, "a\0b", 3);
    qp_buf_adds(&b, "cd");
    assert_memory_equal(b.data, "a\0bcd", 6);
    qp_buf_deinit(&b);
    assert_null(b.data);
    qp_buf_deinit(&b);
}

static void test_printf_short_and_long(void **state)
{
    (void)state;
    qp_buf b = {0};
    char text[600];
    memset(text, 'x', sizeof text);
    for (size_t n = 250; n < 262; n++) { /* around the size of the first attempt's buffer */
        qp_buf_clear(&b);
        qp_buf_printf(&b, "%.*s|", (int)n, text);
        assert_int_equal(b.len, n + 1);
        assert_int_equal(b.data[n], '|');
        assert_int_equal(b.data[n + 1], 0);
    }
    qp_buf_printf(&b, "%d-%s", 7, "z");
    assert_string_equal(b.data + b.len - 3, "7-z");
    qp_buf_deinit(&b);
}

static void test_limit(void **state)
{
    (void)state;
    qp_err err = {0};
    qp_buf b = {.limit = 10};
    qp_buf_adds(&b, "0123456789");
    assert_int_equal(qp_buf_check(&b, "x", &err), QP_OK);
    qp_buf_addc(&b, '!');
    assert_true(b.failed);
    qp_buf_adds(&b, "");
    assert_string_equal(b.data, "0123456789");
    assert_status(qp_buf_check(&b, "reply", &err), QP_ELIMIT, &err);
    assert_msg(&err, "reply: output exceeds its limit of 10 bytes");
    qp_buf_clear(&b);
    qp_buf_adds(&b, "ok");
    assert_int_equal(qp_buf_check(&b, "x", &err), QP_OK);
    qp_buf_deinit(&b);
    /* the very first addition */
    qp_buf c = {.limit = 10};
    qp_buf_adds(&c, "01234567890");
    assert_status(qp_buf_check(&c, "x", &err), QP_ELIMIT, &err);
    assert_null(c.data);
    qp_buf_deinit(&c);
}

static void test_size_overflow(void **state)
{
    (void)state;
    qp_err err = {0};
    qp_buf b = {0};
    qp_buf_adds(&b, "abc");
    assert_false(qp_buf_reserve(&b, SIZE_MAX));
    assert_status(qp_buf_check(&b, "x", &err), QP_ENOMEM, &err);
    qp_buf_clear(&b);
    assert_false(qp_buf_reserve(&b, SIZE_MAX - 3));
    qp_buf_deinit(&b);
}

static void test_allocation_fails(void **state)
{
    (void)state;
    qp_err err = {0};
    qp_buf b = {.limit = 1000};
    qp_buf_adds(&b, "start");
    qp_alloc_fail_after(1);
    for (int i = 0; i < 100; i++) qp_buf_adds(&b, "0123456789");
    qp_alloc_fail_after(0);
    assert_status(qp_buf_check(&b, "text", &err), QP_ENOMEM, &err); /* not "limit exceeded" */
    assert_msg(&err, "text: no memory");
    assert_true(b.len < 64 && !strncmp(b.data, "start0123", 9));
    qp_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_and_terminate),
        cmocka_unit_test(test_printf_short_and_long),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_size_overflow),
        cmocka_unit_test(test_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
