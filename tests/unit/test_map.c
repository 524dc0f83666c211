/* Mapped files and paths. */
#include "unit/io_util.h"

#include "io/map.h"

static void test_open(void **state)
{
    (void)state;
    char dir[64], path[128], file[128];
    qp_err err = {0};
    qp_map m = {0};
    temp_dir(dir);
    write_file(dir, "f", "hello", 5);
    write_file(dir, "empty", "", 0);
    assert_status(qp_path_join(file, sizeof file, dir, "f", &err), QP_OK, &err);
    assert_status(qp_map_open(&m, file, &err), QP_OK, &err);
    assert_int_equal(m.len, 5);
    assert_memory_equal(m.data, "hello", 5);
    qp_map_close(&m);
    assert_null(m.data);
    qp_map_close(&m);
    assert_status(qp_path_join(path, sizeof path, dir, "empty", &err), QP_OK, &err);
    assert_status(qp_map_open(&m, path, &err), QP_OK, &err);
    assert_int_equal(m.len, 0);
    assert_null(m.data);
    qp_map_close(&m);
    assert_status(qp_map_open(&m, dir, &err), QP_EIO, &err);
    assert_msg(&err, "not a regular file");
    assert_status(qp_path_join(path, sizeof path, dir, "absent", &err), QP_OK, &err);
    assert_status(qp_map_open(&m, path, &err), QP_EIO, &err);
    assert_msg(&err, "absent: No such file");
    assert_status(qp_path_join(path, sizeof path, dir, "fifo", &err), QP_OK, &err);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_status(qp_map_open(&m, path, &err), QP_EIO, &err); /* and does not wait for a writer */
    assert_true(qp_path_is_file(file) && !qp_path_is_dir(file));
    assert_true(!qp_path_is_file(dir) && qp_path_is_dir(dir));
    assert_true(!qp_path_is_file(path) && !qp_path_is_dir(path));
    assert_true(qp_path_exists(file) && qp_path_exists(dir) && qp_path_exists(path));
    assert_int_equal(unlink(path), 0);
    assert_false(qp_path_exists(path));
    assert_int_equal(symlink("nowhere", path), 0);
    assert_true(qp_path_exists(path) && !qp_path_is_file(path));
    assert_status(qp_map_open(&m, path, &err), QP_EIO, &err);
    assert_msg(&err, "leads nowhere");
    remove_dir(dir);
}

static void test_path_join(void **state)
{
    (void)state;
    qp_err err = {0};
    char out[8];
    assert_int_equal(qp_path_join(out, sizeof out, "abc", "def", &err), QP_OK);
    assert_string_equal(out, "abc/def");
    assert_int_equal(qp_path_join(out, sizeof out, "abc/", "def", &err), QP_OK);
    assert_string_equal(out, "abc/def");
    assert_status(qp_path_join(out, sizeof out, "abcd", "def", &err), QP_ELIMIT, &err);
    assert_string_equal(out, "abc/def"); /* untouched */
    assert_status(qp_path_join(out, sizeof out, "abcd/", "def", &err), QP_ELIMIT, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_open), cmocka_unit_test(test_path_join)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
