/* Errors: messages, cutting, wrapping, the two macros. */
#include "unit/io_util.h"

#include "base/err.h"

static void test_fail_and_wrap(void **state)
{
    (void)state;
    qp_err err = {0};
    assert_int_equal(qp_fail(&err, QP_EFORMAT, "rank %d, at most %d", 9, 8), QP_EFORMAT);
    assert_int_equal(err.status, QP_EFORMAT);
    assert_string_equal(err.msg, "rank 9, at most 8");
    assert_int_equal(qp_wrap(&err, "layer %d", 3), QP_EFORMAT);
    assert_string_equal(err.msg, "layer 3: rank 9, at most 8");
    qp_wrap(&err, "%s", "model");
    assert_string_equal(err.msg, "model: layer 3: rank 9, at most 8");
}

static void test_long_messages_are_cut(void **state)
{
    (void)state;
    qp_err err = {0};
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    qp_fail(&err, QP_EIO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    for (size_t n = 0; n < 600; n++) { /* every length of the prefix, and what remains of the message after it */
        char prefix[600];
        memset(prefix, 'p', n);
        prefix[n] = 0;
        qp_fail(&err, QP_EIO, "%s", text);
        assert_int_equal(qp_wrap(&err, "%s", prefix), QP_EIO);
        size_t len = strlen(err.msg);
        assert_true(len < sizeof err.msg);
        assert_true(!strncmp(err.msg, prefix, n < len ? n : len));
        if (n + 3 <= sizeof err.msg - 1) assert_true(!strncmp(err.msg + n, ": ", 2) && len >= n + 2);
    }
}

static qp_status try(qp_status st, int *reached)
{
    QP_TRY(st);
    *reached = 1;
    return QP_OK;
}

static qp_status try_out(qp_status inner, int *cleaned, int *reached)
{
    qp_status st;
    QP_TRY_OUT(inner);
    *reached = 1;
out:
    *cleaned = 1;
    return st;
}

static void test_macros(void **state)
{
    (void)state;
    int reached = 0, cleaned = 0;
    assert_int_equal(try(QP_EIO, &reached), QP_EIO);
    assert_int_equal(reached, 0);
    assert_int_equal(try(QP_OK, &reached), QP_OK);
    assert_int_equal(reached, 1);
    reached = 0;
    assert_int_equal(try_out(QP_ELIMIT, &cleaned, &reached), QP_ELIMIT);
    assert_true(cleaned && !reached);
    cleaned = 0;
    assert_int_equal(try_out(QP_OK, &cleaned, &reached), QP_OK);
    assert_true(cleaned && reached);
}

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(qp_status_name(QP_OK), "ok");
    assert_string_equal(qp_status_name(QP_EINTERNAL), "internal error");
    assert_string_equal(qp_status_name((qp_status)99), "unknown status");
    for (int i = 0; i <= QP_EINTERNAL; i++)
        for (int j = 0; j < i; j++) assert_string_not_equal(qp_status_name((qp_status)i), qp_status_name((qp_status)j));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_and_wrap),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_macros),
        cmocka_unit_test(test_status_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
