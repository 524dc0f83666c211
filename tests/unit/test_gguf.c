/* GGUF reader and import: values, messages, truncation at every byte, every bit flipped, failing allocations. Block
 * formats against NumPy, and what a whole import writes, are in tests/cli/test_import.py. */
#include "unit/io_util.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/num.h"
#include "io/gguf.h"
#include "quant/ggml_blocks.h"
#include "quant/gguf_import.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 };

static void put_uint(qp_buf *b, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) qp_buf_addc(b, (char)(v >> 8 * i));
}

static void put_str(qp_buf *b, const char *s)
{
    put_uint(b, strlen(s), 8);
    qp_buf_adds(b, s);
}

static void put_key(qp_buf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_uint(b, type, 4);
}

static void put_u32(qp_buf *b, const char *key, uint32_t v)
{
    put_key(b, key, U32);
    put_uint(b, v, 4);
}

static void put_text(qp_buf *b, const char *key, const char *v)
{
    put_key(b, key, STR);
    put_str(b, v);
}

static void put_strs(qp_buf *b, const char *key, const char *const *v, size_t n)
{
    put_key(b, key, ARR);
    put_uint(b, STR, 4);
    put_uint(b, n, 8);
    for (size_t i = 0; i < n; i++) put_str(b, v[i]);
}

/* A llama of one layer, width 2, with a SentencePiece vocabulary: about 2 kB, importable. */
static void tiny_model(qp_buf *b)
{
    static const char *const tokens[] = {"<unk>", "<s>", "a", "b", "ab", "\xE2\x96\x81", "  ", "<0x41>"};
    static const uint8_t types[] = {2, 3, 1, 1, 1, 1, 4, 6};
    static const struct {
        const char *name;
        uint32_t dim0, dim1, type, bytes;
    } t[] = {{"token_embd.weight", 2, 8, 0, 64},         {"output_norm.weight", 2, 0, 0, 8},
             {"blk.0.attn_norm.weight", 2, 0, 0, 8},     {"blk.0.attn_q.weight", 2, 4, 30, 16},
             {"blk.0.attn_k.weight", 2, 2, 1, 8},        {"blk.0.attn_v.weight", 2, 2, 1, 8},
             {"blk.0.attn_output.weight", 32, 2, 2, 36}, {"blk.0.ffn_norm.weight", 2, 0, 0, 8},
             {"blk.0.ffn_gate.weight", 32, 1, 6, 22},    {"blk.0.ffn_up.weight", 32, 1, 8, 34},
             {"blk.0.ffn_down.weight", 256, 1, 14, 210}};
    enum { N = sizeof t / sizeof *t };
    uint32_t at = 0;
    qp_buf_adds(b, "GGUF");
    put_uint(b, 3, 4);
    put_uint(b, N, 8);
    put_uint(b, 14, 8);
    put_text(b, "general.architecture", "llama");
    put_u32(b, "llama.block_count", 1);
    put_u32(b, "llama.context_length", 64);
    put_u32(b, "llama.embedding_length", 2);
    put_u32(b, "llama.feed_forward_length", 2);
    put_u32(b, "llama.attention.head_count", 2);
    put_u32(b, "llama.attention.head_count_kv", 1);
    put_key(b, "llama.attention.key_length", U64);
    put_uint(b, 2, 8);
    put_key(b, "llama.attention.layer_norm_rms_epsilon", F32);
    put_uint(b, 0x3727C5AC, 4);
    put_text(b, "tokenizer.ggml.model", "llama");
    put_strs(b, "tokenizer.ggml.tokens", tokens, 8);
    put_key(b, "tokenizer.ggml.token_type", ARR);
    put_uint(b, U8, 4);
    put_uint(b, 8, 8);
    qp_buf_add(b, types, 8);
    put_key(b, "tokenizer.ggml.scores", ARR);
    put_uint(b, F32, 4);
    put_uint(b, 8, 8);
    for (int i = 0; i < 8; i++) put_uint(b, qp_f32_bits((float)-i), 4);
    put_text(b, "tokenizer.chat_template", "{{ messages }}");
    for (int i = 0; i < N; i++) {
        put_str(b, t[i].name);
        put_uint(b, t[i].dim1 ? 2 : 1, 4);
        put_uint(b, t[i].dim0, 8);
        if (t[i].dim1) put_uint(b, t[i].dim1, 8);
        put_uint(b, t[i].type, 4);
        put_uint(b, at, 8);
        at += (t[i].bytes + 31) / 32 * 32;
    }
    while (b->len % 32) qp_buf_addc(b, 0);
    for (uint32_t i = 0; i < at; i++) qp_buf_addc(b, (char)(i * 5 % 61));
}

static const qp_import_options plain = {0};

static void test_open_and_getters(void **state)
{
    (void)state;
    qp_buf b = {0};
    qp_err err = {0};
    qp_gguf *g;
    tiny_model(&b);
    assert_status(qp_gguf_open_bytes(&g, b.data, b.len, "m.gguf", &err), QP_OK, &err);
    assert_string_equal(qp_gguf_name(g), "m.gguf");
    assert_int_equal(qp_gguf_n_tensors(g), 11);
    assert_string_equal(qp_gguf_tensor_at(g, 0)->name, "token_embd.weight");
    const qp_gguf_tensor *q = qp_gguf_tensor_find(g, "blk.0.attn_q.weight");
    assert_ptr_equal(q, qp_gguf_tensor_at(g, 3));
    assert_true(q->rank == 2 && q->shape[0] == 4 && q->shape[1] == 2 && q->n_rows == 4 && q->row_bytes == 4);
    assert_null(qp_gguf_tensor_find(g, "blk.0.attn_q"));
    uint64_t u;
    const uint64_t fallback = 9;
    assert_true(qp_gguf_has(g, "llama.block_count") && !qp_gguf_has(g, "llama.block"));
    assert_int_equal(qp_gguf_get_u64(g, "llama.attention.key_length", 0, 9, NULL, &u, &err), QP_OK);
    assert_int_equal(u, 2);
    assert_int_equal(qp_gguf_get_u64(g, "none", 0, 1, &fallback, &u, &err), QP_OK);
    assert_int_equal(u, 9);
    assert_status(qp_gguf_get_u64(g, "none", 0, 1, NULL, &u, &err), QP_EFORMAT, &err);
    assert_msg(&err, "m.gguf: metadata key none is missing");
    assert_status(qp_gguf_get_u64(g, "general.architecture", 0, 1, NULL, &u, &err), QP_EFORMAT, &err);
    assert_msg(&err, "general.architecture is string, must be an integer");
    qp_gguf_str s, *strs;
    size_t n;
    assert_int_equal(qp_gguf_get_str(g, "general.architecture", false, &s, &err), QP_OK);
    assert_true(s.n == 5 && !memcmp(s.s, "llama", 5));
    assert_int_equal(qp_gguf_get_str(g, "none", true, &s, &err), QP_OK);
    assert_null(s.s);
    assert_int_equal(qp_gguf_get_strs_new(g, "tokenizer.ggml.tokens", &strs, &n, &err), QP_OK);
    assert_true(n == 8 && strs[4].n == 2 && !memcmp(strs[4].s, "ab", 2));
    qp_free(strs);
    int32_t *types;
    assert_int_equal(qp_gguf_get_i32s_new(g, "tokenizer.ggml.token_type", 8, &types, &err), QP_OK);
    assert_int_equal(types[6], 4);
    qp_free(types);
    assert_status(qp_gguf_get_i32s_new(g, "tokenizer.ggml.scores", 8, &types, &err), QP_EFORMAT, &err);
    qp_gguf_close(g);
    qp_gguf_close(NULL);
    qp_buf_deinit(&b);
}

static void expect_open(const qp_buf *b, qp_status want, const char *part)
{
    qp_err err = {0};
    qp_gguf *g = NULL;
    assert_status(qp_gguf_open_bytes(&g, b->data, b->len, "m.gguf", &err), want, &err);
    if (want == QP_OK)
        qp_gguf_close(g);
    else
        assert_msg(&err, part);
}

static void start(qp_buf *b, uint64_t n_tensors, uint64_t n_kv)
{
    qp_buf_clear(b);
    qp_buf_adds(b, "GGUF");
    put_uint(b, 3, 4);
    put_uint(b, n_tensors, 8);
    put_uint(b, n_kv, 8);
}

static void put_tensor(qp_buf *b, const char *name, uint64_t dim, uint32_t type, uint64_t offset)
{
    put_str(b, name);
    put_uint(b, 1, 4);
    put_uint(b, dim, 8);
    put_uint(b, type, 4);
    put_uint(b, offset, 8);
}

static void pad(qp_buf *b, size_t n)
{
    while (b->len % 32) qp_buf_addc(b, 0);
    for (size_t i = 0; i < n; i++) qp_buf_addc(b, 0);
}

static void test_bad_metadata(void **state)
{
    (void)state;
    qp_buf b = {0};
    start(&b, 0, 0);
    expect_open(&b, QP_OK, NULL);
    start(&b, UINT64_MAX, 0);
    expect_open(&b, QP_EFORMAT, "18446744073709551615 tensors");
    start(&b, 0, UINT64_MAX);
    expect_open(&b, QP_EFORMAT, "18446744073709551615 metadata entries");
    start(&b, 0, 1);
    put_uint(&b, UINT64_MAX, 8); /* a key's length */
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "truncated in a metadata key");
    start(&b, 0, 1);
    put_key(&b, "k", 77);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "k: unknown value type 77");
    start(&b, 0, 1);
    put_key(&b, "", U8);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "a metadata key of 0 bytes");
    start(&b, 0, 1);
    put_key(&b, "\xFF", U8);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "is not UTF-8 without NUL");
    start(&b, 0, 2);
    put_u32(&b, "k", 1);
    put_u32(&b, "k", 1);
    expect_open(&b, QP_EFORMAT, "metadata key k is given twice");
    start(&b, 0, 1);
    put_key(&b, "k", ARR);
    put_uint(&b, U64, 4);
    put_uint(&b, UINT64_MAX / 8 + 2, 8); /* times 8 wraps to 8 */
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "truncated in k");
    start(&b, 0, 1);
    put_key(&b, "k", ARR);
    put_uint(&b, STR, 4);
    put_uint(&b, UINT64_MAX, 8);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "truncated in k");
    start(&b, 0, 1);
    put_key(&b, "k", ARR);
    for (int depth = 0; depth < 3; depth++) { /* nesting that is allowed, then too deep */
        put_uint(&b, ARR, 4);
        put_uint(&b, 1, 8);
    }
    qp_buf shallow = {0};
    qp_buf_add(&shallow, b.data, b.len);
    put_uint(&shallow, U8, 4);
    put_uint(&shallow, 1, 8);
    put_uint(&shallow, 1, 1);
    expect_open(&shallow, QP_OK, NULL);
    qp_buf_deinit(&shallow);
    put_uint(&b, ARR, 4);
    put_uint(&b, 1, 8);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "arrays nested deeper than 4");
    qp_buf_deinit(&b);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    qp_buf b = {0};
    start(&b, 1, 0);
    put_tensor(&b, "t", 8, QP_GGML_F32, 0);
    pad(&b, 32);
    expect_open(&b, QP_OK, NULL);
    b.len--;
    expect_open(&b, QP_EFORMAT, "t: 1 rows of 32 bytes at offset 0, the file has 31 bytes of data");
    start(&b, 1, 0);
    put_tensor(&b, "t", 8, QP_GGML_F32, 16);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "t: offset 16, must be a multiple of 32");
    start(&b, 1, 0);
    put_tensor(&b, "t", 8, QP_GGML_F32, UINT64_MAX - 31);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "at offset 18446744073709551584");
    start(&b, 2, 0);
    put_tensor(&b, "t", 9, QP_GGML_F32, 0);
    put_tensor(&b, "u", 8, QP_GGML_F32, 32);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "the data of t and u overlap");
    start(&b, 2, 0);
    put_tensor(&b, "t", 8, QP_GGML_F32, 32);
    put_tensor(&b, "t", 8, QP_GGML_F32, 0);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "tensor t is named twice");
    start(&b, 1, 0);
    put_tensor(&b, "t", 0, QP_GGML_F32, 0);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "t: rows of 0 weights");
    start(&b, 1, 0);
    put_tensor(&b, "t", 33, QP_GGML_Q8_0, 0);
    pad(&b, 64);
    expect_open(&b, QP_EFORMAT, "rows of 33 weights, must be 1..16777216 and a multiple of 32 for Q8_0");
    start(&b, 1, 0);
    put_tensor(&b, "t", 256, 10, 0);
    pad(&b, 64);
    expect_open(&b, QP_EUNSUPPORTED, "t: tensor type Q2_K; supported are F32");
    static const uint64_t wraps[] = {(uint64_t)1 << 32, (uint64_t)1 << 32, 0};
    for (int zero = 0; zero < 2; zero++) {
        start(&b, 1, 0);
        put_str(&b, "t");
        put_uint(&b, 3, 4);
        put_uint(&b, 8, 8);
        put_uint(&b, wraps[0], 8);
        put_uint(&b, wraps[1 + zero], 8);
        put_uint(&b, 0, 4);
        put_uint(&b, 0, 8);
        pad(&b, 64);
        expect_open(&b, QP_EFORMAT, zero ? "dimension 2 is 0" : "dimension 1 is 4294967296: empty, or the product");
    }
    start(&b, 1, 0);
    put_str(&b, "t");
    put_uint(&b, 9, 4);
    pad(&b, 128);
    expect_open(&b, QP_EFORMAT, "t: 9 dimensions, must be 1..8");
    start(&b, 0, 1);
    put_u32(&b, "split.count", 2);
    expect_open(&b, QP_EUNSUPPORTED, "one part of 2");
    qp_buf_clear(&b);
    qp_buf_add(&b, "GGUF\0\0\0\3", 8);
    pad(&b, 64);
    expect_open(&b, QP_EUNSUPPORTED, "big-endian");
    qp_buf_deinit(&b);
}

/* Imports an exact copy, so that a read past the end is seen. */
static qp_status import_copy(const char *data, size_t n, uint64_t *worst_ns)
{
    qp_err err = {0};
    char *copy = malloc(n ? n : 1);
    memcpy(copy, data, n);
    uint64_t t0 = qp_clock_ns();
    qp_status st = qp_gguf_import_check(copy, n, &plain, &err);
    uint64_t t = qp_clock_ns() - t0;
    if (t > *worst_ns) *worst_ns = t;
    if (st != QP_OK) assert_true(err.msg[0] != 0 && err.status == st);
    free(copy);
    return st;
}

static void test_truncated_and_flipped(void **state)
{
    (void)state;
    qp_buf b = {0};
    uint64_t worst = 0;
    size_t n_ok = 0;
    tiny_model(&b);
    assert_int_equal(import_copy(b.data, b.len, &worst), QP_OK);
    size_t slack = 14; /* padding after the last tensor's 210 bytes */
    for (size_t cut = 0; cut < b.len - slack; cut++) assert_int_not_equal(import_copy(b.data, cut, &worst), QP_OK);
    for (size_t bit = 0; bit < b.len * 8; bit++) {
        b.data[bit / 8] ^= (char)(1 << bit % 8);
        n_ok += import_copy(b.data, b.len, &worst) == QP_OK;
        b.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    print_message("%zu bytes: %zu of %zu flips import; slowest attempt %.2f ms\n", b.len, n_ok, b.len * 8,
                  (double)worst / 1e6);
    assert_true(n_ok > 0);
    assert_true(worst < 100000000u);
    qp_buf_deinit(&b);
}

static bool no(void *arg, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    return --*(int *)arg > 0;
}

static void test_import_every_allocation_fails(void **state)
{
    (void)state;
    char dir[64], src[128], dst[128];
    qp_buf b = {0};
    temp_dir(dir);
    tiny_model(&b);
    write_file(dir, "m.gguf", b.data, b.len);
    snprintf(src, sizeof src, "%s/m.gguf", dir);
    snprintf(dst, sizeof dst, "%s/sub/d", dir);
    qp_buf_deinit(&b);
    size_t live = qp_alloc_live_bytes();
    for (uint64_t n = 1;; n++) {
        qp_err err = {0};
        qp_alloc_fail_after(n);
        qp_status st = qp_gguf_import(src, dst, &plain, &err);
        qp_alloc_fail_after(0);
        assert_int_equal(qp_alloc_live_bytes(), live);
        if (st == QP_OK) {
            print_message("%llu allocations\n", (unsigned long long)n - 1);
            break;
        }
        assert_status(st, QP_ENOMEM, &err);
        snprintf(dst, sizeof dst, "%s/sub", dir);
        if (!access(dst, F_OK)) assert_int_equal(dir_n_entries(dst), 0);
        snprintf(dst, sizeof dst, "%s/sub/d", dir);
    }
    assert_int_equal(dir_n_entries(dst), 5);
    remove_dir(dir);
}

static void test_import_cancelled(void **state)
{
    (void)state;
    char dir[64], src[128], dst[128];
    qp_buf b = {0};
    temp_dir(dir);
    tiny_model(&b);
    write_file(dir, "m.gguf", b.data, b.len);
    snprintf(src, sizeof src, "%s/m.gguf", dir);
    snprintf(dst, sizeof dst, "%s/d", dir);
    qp_buf_deinit(&b);
    for (int at = 1; at <= 2; at++) { /* before the tokenizer, after the weights */
        qp_err err = {0};
        int left = at;
        const qp_import_options options = {.progress = no, .progress_arg = &left};
        assert_status(qp_gguf_import(src, dst, &options, &err), QP_ECANCELLED, &err);
        assert_int_equal(dir_n_entries(dir), 1);
    }
    remove_dir(dir);
}

/* One block a type whose values are known without a formula: d = 1 and a quant that counts. */
static void test_blocks_count(void **state)
{
    (void)state;
    unsigned char p[34] = {0x00, 0x3C}; /* 1.0 */
    float w[32];
    for (int i = 0; i < 16; i++) p[2 + i] = (unsigned char)(i | (15 - i) << 4);
    qp_ggml_decode(qp_ggml_type_find(QP_GGML_Q4_0), p, 32, w);
    for (int i = 0; i < 16; i++) assert_true(w[i] == i - 8 && w[16 + i] == 7 - i);
    for (int i = 0; i < 32; i++) p[2 + i] = (unsigned char)(i - 16);
    qp_ggml_decode(qp_ggml_type_find(QP_GGML_Q8_0), p, 32, w);
    for (int i = 0; i < 32; i++) assert_true(w[i] == i - 16);
    static const uint32_t known[] = {0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) assert_true(qp_ggml_type_find(known[i])->block > 0);
    assert_null(qp_ggml_type_find(4));
    assert_int_equal(qp_ggml_type_find(39)->block, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_and_getters),
        cmocka_unit_test(test_bad_metadata),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_truncated_and_flipped),
        cmocka_unit_test(test_import_every_allocation_fails),
        cmocka_unit_test(test_import_cancelled),
        cmocka_unit_test(test_blocks_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
