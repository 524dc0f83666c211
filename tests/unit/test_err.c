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
    for (size_t n = 0; n < 600; n++) { /* every length of a name before the reason */
        char name[600];
        memset(name, 'p', n);
        name[n] = 0;
        for (int wrapped = 0; wrapped < 2; wrapped++) {
            if (wrapped) {
                qp_fail(&err, QP_EIO, "the reason");
                assert_int_equal(qp_wrap(&err, "%s", name), QP_EIO);
            } else {
                qp_fail(&err, QP_EIO, "%s: the reason", name);
            }
            size_t len = strlen(err.msg), whole = n + strlen(": the reason");
            assert_int_equal(len, whole < sizeof err.msg ? whole : sizeof err.msg - 1);
            assert_string_equal(err.msg + len - 12, ": the reason");
            assert_true(!strncmp(err.msg, name, n < 80 ? n : 80));
            assert_true(whole < sizeof err.msg || strstr(err.msg, "p...p"));
        }
    }
    for (size_t n = 0; n < 8; n++) { /* no character is cut in two */
        char name[604] = "xxxxxxxx";
        for (size_t i = 0; i < 290; i++) memcpy(name + n + 2 * i, "\xC3\xA9", 3);
        qp_fail(&err, QP_EIO, "%s: the reason", name);
        const char *dots = strstr(err.msg, "...");
        assert_non_null(dots);
        assert_true((unsigned char)dots[-1] == 0xA9 && (unsigned char)dots[3] == 0xC3);
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
