/* Checkpoint folders: values, every message, truncation and bit flips, failing allocations, many tensors. */
#include "unit/io_util.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "io/safetensors.h"

/* A file of the header text and n bytes of data 0, 1, 2, ... in an exact malloc block. */
static unsigned char *make(const char *header, size_t n, size_t *len)
{
    size_t h = strlen(header);
    *len = 8 + h + n;
    unsigned char *p = malloc(*len);
    assert_non_null(p);
    for (size_t i = 0; i < 8; i++) p[i] = (unsigned char)(h >> 8 * i);
    memcpy(p + 8, header, h);
    for (size_t i = 0; i < n; i++) p[8 + h + i] = (unsigned char)i;
    return p;
}

static void expect_bad(const char *header, size_t n, qp_status want, const char *part)
{
    qp_err err = {0};
    size_t len;
    char padded[1024];
    size_t h = strlen(header);
    snprintf(padded, sizeof padded, "%s%*s", header, (int)(-h & 7), ""); /* so that the data is aligned */
    unsigned char *p = make(padded, n, &len);
    qp_checkpoint *c = NULL;
    assert_status(qp_checkpoint_open_bytes(&c, p, len, "x.safetensors", &err), want, &err);
    assert_null(c);
    assert_msg(&err, part);
    assert_msg(&err, "x.safetensors");
    free(p);
}

/* 64 bytes long, so that the data of the block is aligned. */
static const char good[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                           "\"a\":{\"shape\":[3],\"data_offsets\":[8,11],\"dtype\":\"I8\"}}   ";

static void test_open_bytes(void **state)
{
    (void)state;
    qp_err err = {0};
    size_t len;
    char shape[64];
    unsigned char *p = make(good, 11, &len);
    assert_int_equal((len - 11) % 8, 0);
    qp_checkpoint *c;
    assert_status(qp_checkpoint_open_bytes(&c, p, len, "x", &err), QP_OK, &err);
    assert_int_equal(qp_checkpoint_n_tensors(c), 2);
    assert_string_equal(qp_checkpoint_at(c, 0)->name, "a");
    const qp_tensor *a = qp_checkpoint_find(c, "a"), *b = qp_checkpoint_find(c, "b");
    assert_ptr_equal(qp_checkpoint_at(c, 1), b);
    assert_null(qp_checkpoint_find(c, "c"));
    assert_null(qp_checkpoint_find(c, ""));
    assert_int_equal(a->dtype, QP_DT_I8);
    assert_int_equal(a->rank, 1);
    assert_int_equal(a->n_elements, 3);
    assert_int_equal(b->n_bytes, 8);
    assert_int_equal(b->rank, 2);
    assert_memory_equal(a->data, "\10\11\12", 3);
    assert_string_equal(qp_tensor_shape_str(b, shape, sizeof shape), "[2, 1]");
    assert_string_equal(qp_tensor_shape_str(b, shape, 3), "[2");
    assert_string_equal(a->file, "x");
    assert_int_equal(qp_checkpoint_file_bytes(c), len);
    assert_string_equal(qp_checkpoint_dir(c), "x");
    qp_checkpoint_close(c);
    qp_checkpoint_close(NULL);
    free(p);
}

static void test_open_scalar_and_empty(void **state)
{
    (void)state;
    qp_err err = {0};
    char shape[8];
    size_t len;
    unsigned char *p =
        make("{\"__metadata__\":{\"a\":[{\"b\":1}]},\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
             "\"e\":{\"dtype\":\"F64\",\"shape\":[4294967296,0,4294967296],\"data_offsets\":[1,1]}}",
             1, &len);
    qp_checkpoint *c;
    assert_status(qp_checkpoint_open_bytes(&c, p, len, "x", &err), QP_OK, &err);
    assert_int_equal(qp_checkpoint_n_tensors(c), 2);
    assert_int_equal(qp_checkpoint_find(c, "s")->n_elements, 1);
    assert_int_equal(qp_checkpoint_find(c, "e")->n_elements, 0);
    assert_string_equal(qp_tensor_shape_str(qp_checkpoint_find(c, "s"), shape, sizeof shape), "[]");
    qp_checkpoint_close(c);
    free(p);
    p = make("{}", 0, &len);
    assert_status(qp_checkpoint_open_bytes(&c, p, len, "x", &err), QP_OK, &err);
    assert_int_equal(qp_checkpoint_n_tensors(c), 0);
    assert_null(qp_checkpoint_find(c, "s"));
    qp_checkpoint_close(c);
    free(p);
}

static void test_dtypes(void **state)
{
    (void)state;
    static const char *const names[] = {"BOOL", "U8",  "I8",   "I16", "U16", "I32",     "U32",    "I64",
                                        "U64",  "F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2"};
    static const size_t bytes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        qp_err err = {0};
        char header[128];
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,%zu]}}", names[i],
                 bytes[i]);
        while (strlen(header) % 8) strcat(header, " ");
        size_t len;
        unsigned char *p = make(header, bytes[i], &len);
        qp_checkpoint *c;
        assert_status(qp_checkpoint_open_bytes(&c, p, len, "x", &err), QP_OK, &err);
        assert_int_equal(qp_checkpoint_at(c, 0)->dtype, i);
        assert_string_equal(qp_dtype_name((qp_dtype)i), names[i]);
        assert_int_equal(qp_dtype_bytes((qp_dtype)i), bytes[i]);
        qp_checkpoint_close(c);
        free(p);
    }
    assert_string_equal(qp_dtype_name((qp_dtype)99), "unknown");
    assert_int_equal(qp_dtype_bytes((qp_dtype)99), 0);
}

#define T(dtype, shape, b, e) "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #b "," #e "]}}"

static void test_open_bad_entries(void **state)
{
    (void)state;
    expect_bad(T("F3", "[1]", 0, 4), 4, QP_EUNSUPPORTED, "t: dtype \"F3\", supported are BOOL");
    expect_bad(T("U8", "[4]", 0, 5), 5, QP_EFORMAT, "shape [4] of U8 takes 4 bytes, data_offsets [0, 5] give 5");
    expect_bad(T("U8", "[5]", 0, 5), 4, QP_EFORMAT, "data_offsets [0, 5], the file has 4 bytes of data");
    expect_bad(T("U8", "[1]", 2, 1), 4, QP_EFORMAT, "data_offsets [2, 1]");
    expect_bad(T("U8", "[1]", 18446744073709551615, 18446744073709551615), 4, QP_EFORMAT, "the file has 4 bytes");
    expect_bad(T("U8", "[1]", 18446744073709551616, 1), 4, QP_EFORMAT, "data_offsets holds 18446744073709551616");
    expect_bad(T("U8", "[4294967296,4294967296]", 0, 4), 4, QP_EFORMAT, "[4294967296, 4294967296] overflows");
    expect_bad(T("F64", "[2305843009213693952]", 0, 4), 4, QP_EFORMAT, "overflows");
    expect_bad(T("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1), 1, QP_EFORMAT, "more than 8 dimensions");
    expect_bad(T("U8", "[-1]", 0, 1), 1, QP_EFORMAT, "shape[0] is not an integer");
    expect_bad(T("U8", "[1.0]", 0, 1), 1, QP_EFORMAT, "shape[0] is not an integer");
    expect_bad(T("U8", "[\"1\"]", 0, 1), 1, QP_EFORMAT, "shape[0] is not an integer");
    expect_bad(T("U8", "[2]", 0, 2), 3, QP_EFORMAT, "3 bytes of data, its tensors cover 2");
    expect_bad("{}", 3, QP_EFORMAT, "it names no tensor");
    expect_bad("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, QP_EFORMAT,
               "t: unknown field \"x\"");
    expect_bad("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QP_EFORMAT,
               "t: repeated field \"dtype\"");
    expect_bad("{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QP_EFORMAT, "t: \"dtype\" is missing");
    expect_bad("{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, QP_EFORMAT, "t: \"shape\" is missing");
    expect_bad("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, QP_EFORMAT, "t: \"data_offsets\" is missing");
    expect_bad("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, QP_EFORMAT, "a number wanted");
    expect_bad("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, QP_EFORMAT,
               "array's end wanted");
    expect_bad("{\"t\":[]}", 0, QP_EFORMAT, "an object wanted");
    expect_bad("[]", 0, QP_EFORMAT, "does not begin with '{'");
    expect_bad("", 0, QP_EFORMAT, "does not begin with '{'");
    expect_bad("{} {}", 0, QP_EFORMAT, "more after the value's end");
    expect_bad("{\"__metadata__\":{},\"__metadata__\":{}}", 0, QP_EFORMAT, "two __metadata__");
    expect_bad("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QP_EFORMAT, "no NUL");
    expect_bad("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QP_EFORMAT, "name of 0 bytes");
    expect_bad("{\"\xff\":{}}", 0, QP_EFORMAT, "invalid UTF-8");
}

static void test_open_bad_layout(void **state)
{
    (void)state;
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
               "\"data_offsets\":[1,3]}}",
               3, QP_EFORMAT, "b: data_offsets [1, 3] overlap those of a");
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
               "\"data_offsets\":[3,5]}}",
               5, QP_EFORMAT, "b: 1 bytes before its data_offsets [3, 5] belong to no tensor");
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
               "\"data_offsets\":[1,2]}}",
               2, QP_EFORMAT, "tensor a is named twice in it");
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U16\",\"shape\":[1],"
               "\"data_offsets\":[1,3]} }",
               3, QP_EFORMAT, "b: data at offset 1 is not aligned to the 2 bytes of U16");
    char name[QP_MAX_NAME_BYTES + 8], header[QP_MAX_NAME_BYTES + 128];
    memset(name, 'n', sizeof name);
    name[QP_MAX_NAME_BYTES + 1] = 0;
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    expect_bad(header, 1, QP_EFORMAT, "name of 513 bytes");
}

static void test_open_bad_header_length(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[8];
        qp_status st;
        const char *part;
    } cases[] = {
        {{255, 255, 255, 255, 255, 255, 255, 255}, QP_ELIMIT, "header of 18446744073709551615 bytes, at most"},
        {{1, 0, 0, 16}, QP_ELIMIT, "at most 268435456"},
        {{0, 0, 0, 16}, QP_EFORMAT, "truncated: header of 268435456 bytes, the file has 8"},
        {{1}, QP_EFORMAT, "truncated"},
    };
    for (unsigned i = 0; i < 4; i++) {
        qp_err err = {0};
        qp_checkpoint *c = NULL;
        assert_status(qp_checkpoint_open_bytes(&c, cases[i].bytes, 8, "x", &err), cases[i].st, &err);
        assert_msg(&err, cases[i].part);
    }
}

static void test_truncated_and_flipped(void **state)
{
    (void)state;
    size_t len, n_ok = 0;
    unsigned char *p = make(good, 11, &len);
    for (size_t cut = 0; cut < len; cut++) {
        qp_err err = {0};
        qp_checkpoint *c = NULL;
        unsigned char *q = malloc(cut ? cut : 1);
        memcpy(q, p, cut);
        assert_int_not_equal(qp_checkpoint_open_bytes(&c, q, cut, "x", &err), QP_OK);
        assert_true(err.msg[0] != 0);
        free(q);
    }
    uint64_t worst = 0;
    for (size_t bit = 0; bit < len * 8; bit++) {
        qp_err err = {0};
        qp_checkpoint *c = NULL;
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
        uint64_t t0 = qp_clock_ns();
        if (qp_checkpoint_open_bytes(&c, p, len, "x", &err) == QP_OK) n_ok++;
        uint64_t t = qp_clock_ns() - t0;
        if (t > worst) worst = t;
        qp_checkpoint_close(c);
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(n_ok >= 11 * 8); /* flips in the data are no error */
    assert_true(n_ok < len * 4);
    assert_true(worst < 100000000u);
    free(p);
}

static void put(const char *dir, const char *file, const char *tensor)
{
    char header[128];
    size_t len;
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", tensor);
    unsigned char *p = make(header, 2, &len);
    write_file(dir, file, p, len);
    free(p);
}

static void test_open_folder(void **state)
{
    (void)state;
    qp_err err = {0};
    char dir[64], path[128];
    qp_checkpoint *c = NULL;
    temp_dir(dir);
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_EIO, &err);
    assert_msg(&err, "no *.safetensors file");
    put(dir, "b.safetensors", "x");
    put(dir, "a.safetensors", "y");
    write_file(dir, "._a.safetensors", "junk", 4);
    write_file(dir, ".safetensors", "junk", 4);
    write_file(dir, "model.safetensors.index.json", "junk", 4);
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_OK, &err);
    assert_int_equal(qp_checkpoint_n_tensors(c), 2);
    assert_string_equal(qp_checkpoint_find(c, "x")->file, "b.safetensors");
    assert_string_equal(qp_checkpoint_dir(c), dir);
    qp_checkpoint_close(c);
    c = NULL;
    snprintf(path, sizeof path, "%s/b.safetensors", dir);
    assert_status(qp_checkpoint_open(&c, path, &err), QP_OK, &err);
    assert_int_equal(qp_checkpoint_n_tensors(c), 1);
    assert_string_equal(qp_checkpoint_at(c, 0)->file, "b.safetensors");
    qp_checkpoint_close(c);
    c = NULL;
    put(dir, "c.safetensors", "y");
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_EFORMAT, &err);
    assert_msg(&err, "tensor y is both in ");
    assert_msg(&err, "a.safetensors");
    assert_msg(&err, "c.safetensors");
    write_file(dir, "c.safetensors", "", 0);
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_EFORMAT, &err);
    assert_msg(&err, "c.safetensors: 0 bytes, too short");
    remove_dir(dir);
    assert_status(qp_checkpoint_open(&c, dir, &err), QP_EIO, &err);
    assert_msg(&err, dir);
    assert_null(c);
}

static void test_open_folder_every_allocation_fails(void **state)
{
    (void)state;
    char dir[64];
    temp_dir(dir);
    put(dir, "a.safetensors", "x\\n"); /* an escape, so that the scratch buffer is used */
    put(dir, "b.safetensors", "y");
    size_t live = qp_alloc_live_bytes();
    for (uint64_t n = 1;; n++) {
        qp_err err = {0};
        qp_checkpoint *c = NULL;
        qp_alloc_fail_after(n);
        qp_status st = qp_checkpoint_open(&c, dir, &err);
        qp_alloc_fail_after(0);
        if (st == QP_OK) {
            assert_true(n > 5);
            qp_checkpoint_close(c);
            assert_int_equal(qp_alloc_live_bytes(), live);
            break;
        }
        assert_status(st, QP_ENOMEM, &err);
        assert_null(c);
        assert_int_equal(qp_alloc_live_bytes(), live);
    }
    remove_dir(dir);
}

static void test_open_many_tensors(void **state)
{
    (void)state;
    enum { N = 100000 };
    qp_err err = {0};
    qp_buf b = {0};
    size_t len;
    qp_buf_adds(&b, "{");
    for (unsigned i = 0; i < N; i++)
        qp_buf_printf(&b,
                      "%s\"model.layers.%u.mlp.experts.%u.up_proj.weight\":{\"dtype\":\"U8\",\"shape\":[1,1],"
                      "\"data_offsets\":[%u,%u]}",
                      i ? "," : "", i * 7919u % N / 512, i * 7919u % N, i, i + 1);
    qp_buf_adds(&b, "}");
    unsigned char *p = make(b.data, N, &len);
    qp_buf_deinit(&b);
    qp_checkpoint *c;
    uint64_t t0 = qp_clock_ns();
    assert_status(qp_checkpoint_open_bytes(&c, p, len, "x", &err), QP_OK, &err);
    print_message("100000 tensors opened in %.1f ms\n", (double)(qp_clock_ns() - t0) / 1e6);
    assert_int_equal(qp_checkpoint_n_tensors(c), N);
    const qp_tensor *t = qp_checkpoint_find(c, "model.layers.15.mlp.experts.7919.up_proj.weight");
    assert_non_null(t);
    assert_int_equal(*(const unsigned char *)t->data, 1);
    qp_checkpoint_close(c);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_bytes),
        cmocka_unit_test(test_open_scalar_and_empty),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_open_bad_entries),
        cmocka_unit_test(test_open_bad_layout),
        cmocka_unit_test(test_open_bad_header_length),
        cmocka_unit_test(test_truncated_and_flipped),
        cmocka_unit_test(test_open_folder),
        cmocka_unit_test(test_open_folder_every_allocation_fails),
        cmocka_unit_test(test_open_many_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
