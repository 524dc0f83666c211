/* Writing safetensors: what is written opens and is equal; nothing is left of a file that was not finished. */
#include "unit/io_util.h"

#include "base/alloc.h"
#include "io/out_file.h"
#include "io/safetensors_write.h"

#include <fcntl.h>

static const float weights[6] = {1, -2, 3, 0.5f, 1e9f, -0.0f};
static const uint8_t bytes[3] = {1, 2, 255};

static void tensors(qp_tensor t[3])
{
    memset(t, 0, 3 * sizeof *t);
    t[0] = (qp_tensor){.name = "w \"\xC3\xA9\"", .dtype = QP_DT_F32, .rank = 2, .shape = {2, 3}, .data = weights};
    t[1] = (qp_tensor){.name = "b", .dtype = QP_DT_U8, .rank = 1, .shape = {3}, .data = bytes};
    t[2] = (qp_tensor){.name = "none", .dtype = QP_DT_F64, .rank = 2, .shape = {0, 5}, .data = ""};
}

static void test_write_and_open(void **state)
{
    (void)state;
    char dir[64], path[128];
    qp_tensor t[3];
    qp_err err = {0};
    qp_checkpoint *c;
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    tensors(t);
    const qp_meta_pair meta[] = {{"format", "pt"}, {"note", "a\nb"}};
    assert_status(qp_safetensors_write(path, t, 3, meta, 2, &err), QP_OK, &err);
    assert_int_equal(dir_n_entries(dir), 1);
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_OK, &err);
    assert_int_equal(qp_checkpoint_n_tensors(c), 3);
    const qp_tensor *w = qp_checkpoint_find(c, t[0].name);
    assert_non_null(w);
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->shape[1], 3);
    assert_memory_equal(w->data, weights, sizeof weights);
    assert_memory_equal(qp_checkpoint_find(c, "b")->data, bytes, 3);
    assert_int_equal(qp_checkpoint_find(c, "none")->n_bytes, 0);
    qp_checkpoint_close(c);
    size_t n;
    unsigned char *file = read_file(path, &n);
    static const char head[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"a\\nb\"},\"w \\\"\xC3\xA9\\\"\":{\"dtype\":\"F32\","
        "\"shape\":[2,3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],"
        "\"data_offsets\":[24,27]},";
    assert_memory_equal(file + 8, head, sizeof head - 1);
    assert_int_equal(file[0] % 8, 0);
    free(file);
    remove_dir(dir);
}

static void test_pieces_and_missing_data(void **state)
{
    (void)state;
    char dir[64], path[128];
    qp_tensor t[3];
    qp_err err = {0};
    qp_tensor_writer *w;
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    tensors(t);
    write_file(dir, "a.safetensors", "old", 3);
    assert_status(qp_tensor_writer_open(&w, path, t, 2, NULL, 0, &err), QP_OK, &err);
    assert_int_equal(qp_tensor_writer_left(w), 27);
    assert_status(qp_tensor_writer_write(w, weights, 7, &err), QP_OK, &err);
    assert_status(qp_tensor_writer_write(w, weights, 21, &err), QP_EINVAL, &err);
    assert_msg(&err, "21 bytes of data given, 20 are left");
    assert_status(qp_tensor_writer_commit(w, &err), QP_EINVAL, &err);
    assert_msg(&err, "20 bytes of data were not written");
    qp_tensor_writer_close(w);
    assert_int_equal(dir_n_entries(dir), 1); /* the old file, as it was */
    size_t n;
    unsigned char *file = read_file(path, &n);
    assert_int_equal(n, 3);
    free(file);
    assert_status(qp_tensor_writer_open(&w, path, t, 2, NULL, 0, &err), QP_OK, &err);
    for (size_t i = 0; i < 24; i++)
        assert_status(qp_tensor_writer_write(w, (const char *)weights + i, 1, &err), QP_OK, &err);
    assert_status(qp_tensor_writer_write(w, bytes, 3, &err), QP_OK, &err);
    assert_status(qp_tensor_writer_commit(w, &err), QP_OK, &err);
    qp_tensor_writer_close(w);
    qp_checkpoint *c;
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_OK, &err);
    assert_memory_equal(qp_checkpoint_find(c, t[0].name)->data, weights, 24);
    qp_checkpoint_close(c);
    remove_dir(dir);
}

static void refused(qp_tensor *t, size_t n, const char *part)
{
    qp_err err = {0};
    qp_tensor_writer *w = NULL;
    assert_status(qp_tensor_writer_open(&w, "/nonexistent/x", t, n, NULL, 0, &err), QP_EINVAL, &err);
    assert_msg(&err, part);
    assert_msg(&err, "/nonexistent/x");
    assert_null(w);
}

static void test_open_refuses(void **state)
{
    (void)state;
    qp_tensor t[3], u[3];
    char name[QP_MAX_NAME_BYTES + 2];
    tensors(t);
    memcpy(u, t, sizeof t);
    u[0].name = "";
    refused(u, 1, "\"\" cannot name a tensor");
    u[0].name = "__metadata__";
    refused(u, 1, "cannot name a tensor");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    u[0].name = name;
    refused(u, 1, "cannot name a tensor");
    u[0].name = "b";
    refused(u, 2, "tensor b is given twice");
    u[0].name = "a";
    u[0].rank = 9;
    refused(u, 1, "rank 9, at most 8");
    u[0] = t[0];
    u[0].shape[0] = (uint64_t)1 << 62;
    refused(u, 1, "overflows 64 bits");
    u[0] = t[1];
    u[1] = t[0];
    refused(u, 2, "would start at 3, not a multiple of the 4 bytes of F32");
    qp_err err = {0};
    qp_tensor_writer *w = NULL;
    assert_status(qp_tensor_writer_open(&w, "/nonexistent/x", t, 1, NULL, 0, &err), QP_EIO, &err);
    assert_msg(&err, "No such file");
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    char dir[64], path[128];
    qp_tensor t[3];
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    tensors(t);
    size_t live = qp_alloc_live_bytes();
    for (uint64_t n = 1;; n++) {
        qp_err err = {0};
        qp_alloc_fail_after(n);
        qp_status st = qp_safetensors_write(path, t, 3, NULL, 0, &err);
        qp_alloc_fail_after(0);
        assert_int_equal(qp_alloc_live_bytes(), live);
        if (st == QP_OK) break;
        assert_status(st, QP_ENOMEM, &err);
        assert_int_equal(dir_n_entries(dir), 0);
    }
    remove_dir(dir);
}

static void test_out_file(void **state)
{
    (void)state;
    char dir[64], path[128];
    static char big[200000];
    qp_err err = {0};
    qp_out_file *f;
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/f", dir);
    assert_status(qp_out_file_open(&f, path, &err), QP_OK, &err);
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 31 >> 3);
    for (size_t at = 0, n = 1; at < sizeof big;
         at += n, n = n * 3 % 70001) { /* pieces below and above the gather size */
        if (n > sizeof big - at) n = sizeof big - at;
        assert_status(qp_out_file_write(f, big + at, n, &err), QP_OK, &err);
    }
    assert_int_equal(qp_out_file_n_bytes(f), sizeof big);
    assert_false(access(path, F_OK) == 0);
    assert_status(qp_out_file_commit(f, &err), QP_OK, &err);
    qp_out_file_close(f);
    assert_int_equal(dir_n_entries(dir), 1);
    size_t n;
    unsigned char *file = read_file(path, &n);
    assert_int_equal(n, sizeof big);
    assert_memory_equal(file, big, n);
    free(file);
    /* the place is a folder, or becomes one: an error that leaves nothing */
    snprintf(path, sizeof path, "%s/d", dir);
    assert_status(qp_out_file_open(&f, path, &err), QP_OK, &err);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_status(qp_out_file_commit(f, &err), QP_EIO, &err);
    assert_msg(&err, "cannot rename");
    qp_out_file_close(f);
    assert_status(qp_out_file_put(path, "x", 1, &err), QP_EIO, &err);
    assert_msg(&err, "a folder, wanted a file");
    assert_int_equal(dir_n_entries(dir), 2);
    qp_out_file_close(NULL);
    remove_dir(dir);
}

static void test_disk_full(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK)) skip();
    char dir[64], path[128], tmp[192];
    static char big[100000];
    qp_err err = {0};
    qp_out_file *f;
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/f", dir);
    int lowest = open("/dev/null", O_WRONLY); /* the number that the next file gets */
    close(lowest);
    assert_status(qp_out_file_open(&f, path, &err), QP_OK, &err);
    /* point the temporary's descriptor at a device that has no room */
    snprintf(tmp, sizeof tmp, "%s.tmp-%ld-0", path, (long)getpid());
    assert_int_equal(access(tmp, F_OK), 0);
    int full = open("/dev/full", O_WRONLY);
    assert_int_equal(dup2(full, lowest), lowest);
    close(full);
    assert_status(qp_out_file_write(f, big, sizeof big, &err), QP_EIO, &err);
    assert_msg(&err, "No space left");
    qp_out_file_close(f);
    assert_int_equal(dir_n_entries(dir), 0);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_open), cmocka_unit_test(test_pieces_and_missing_data),
        cmocka_unit_test(test_open_refuses),   cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_out_file),       cmocka_unit_test(test_disk_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
