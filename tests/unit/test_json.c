/* JSON trees and the token stream: getters, strictness, the same verdict from both parsers on mutated texts, failing
 * allocations, escaping. */
#include "unit/io_util.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "io/json.h"
#include "io/json_stream.h"

static json_t *parse(const char *text)
{
    qp_err err = {0};
    json_t *v = NULL;
    assert_status(qp_json_parse(&v, text, strlen(text), "t.json", &err), QP_OK, &err);
    return v;
}

static void test_getters(void **state)
{
    (void)state;
    qp_err err = {0};
    uint32_t u;
    double d;
    bool b;
    const char *s;
    json_t *o = parse("{\"i\":7,\"f\":8.0,\"h\":1.5,\"n\":null,\"neg\":-1,\"big\":4294967296,\"s\":\"x\",\"t\":true,"
                      "\"nul\":\"a\\u0000b\",\"huge\":1e308}");
    assert_int_equal(qp_json_get_u32(o, "i", 0, 9, false, 0, &u, "w", &err), QP_OK);
    assert_int_equal(u, 7);
    assert_int_equal(qp_json_get_u32(o, "f", 0, 9, false, 0, &u, "w", &err), QP_OK);
    assert_int_equal(u, 8);
    assert_int_equal(qp_json_get_u32(o, "n", 0, 9, true, 5, &u, "w", &err), QP_OK);
    assert_int_equal(u, 5);
    assert_status(qp_json_get_u32(o, "n", 0, 9, false, 5, &u, "w", &err), QP_EFORMAT, &err);
    assert_msg(&err, "w: \"n\" is missing");
    static const char *const bad[] = {"h", "neg", "big", "s", "t", "huge"};
    for (size_t i = 0; i < 6; i++) {
        u = 77;
        assert_status(qp_json_get_u32(o, bad[i], 0, UINT32_MAX, true, 5, &u, "w", &err), QP_EFORMAT, &err);
        assert_int_equal(u, 77);
    }
    assert_status(qp_json_get_u32(o, "i", 8, 9, false, 0, &u, "w", &err), QP_EFORMAT, &err);
    assert_msg(&err, "\"i\" is 7, must be an integer in 8..9");
    assert_int_equal(qp_json_get_f64(o, "h", false, 0, &d, "w", &err), QP_OK);
    assert_true(d >= 1.5 && d <= 1.5);
    assert_int_equal(qp_json_get_f64(o, "absent", true, 2, &d, "w", &err), QP_OK);
    assert_true(d >= 2 && d <= 2);
    assert_status(qp_json_get_f64(o, "s", true, 2, &d, "w", &err), QP_EFORMAT, &err);
    assert_int_equal(qp_json_get_bool(o, "t", false, &b, "w", &err), QP_OK);
    assert_true(b);
    assert_status(qp_json_get_bool(o, "i", false, &b, "w", &err), QP_EFORMAT, &err);
    assert_int_equal(qp_json_get_str(o, "s", NULL, &s, "w", &err), QP_OK);
    assert_string_equal(s, "x");
    assert_int_equal(qp_json_get_str(o, "absent", NULL, &s, "w", &err), QP_OK);
    assert_null(s);
    assert_status(qp_json_get_str(o, "i", NULL, &s, "w", &err), QP_EFORMAT, &err);
    assert_status(qp_json_get_str(o, "nul", NULL, &s, "w", &err), QP_EFORMAT, &err);
    assert_msg(&err, "\"nul\" holds a NUL");
    json_decref(o);
}

/* Reads a whole text by tokens; the status and how many tokens there were. */
static qp_status stream(const char *text, size_t n, size_t *n_tokens, qp_err *err)
{
    qp_json_stream s;
    qp_json_token t = QP_JSON_NUL;
    qp_status st;
    *n_tokens = 0;
    qp_json_stream_init(&s, text, n, "t.json");
    do {
        st = qp_json_stream_next(&s, &t, err);
        ++*n_tokens;
    } while (st == QP_OK && t != QP_JSON_END);
    qp_json_stream_deinit(&s);
    return st;
}

static void test_strictness(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        {"{}", true},
        {" [ ] ", true},
        {"null", true},
        {"-0.5e+7", true},
        {"\"\\ud83d\\ude00\\u0000\"", true},
        {"[1,2,{\"a\":[true,false,null]}]", true},
        {"0", true},
        {"[0e0]", true},
        {"", false},
        {" ", false},
        {"{", false},
        {"[1,]", false},
        {"{\"a\":1,}", false},
        {"[1 2]", false},
        {"01", false},
        {"-", false},
        {"1.", false},
        {".5", false},
        {"1e", false},
        {"+1", false},
        {"nul", false},
        {"nulll", false},
        {"truefalse", false},
        {"\"\t\"", false},
        {"\"\\x\"", false},
        {"\"\\u12\"", false},
        {"\"\\ud800\"", false},
        {"\"\\ud800\\u0041\"", false},
        {"\"\\udc00\"", false},
        {"\"\xC0\x80\"", false},
        {"\"\xED\xA0\x80\"", false},
        {"\"abc", false},
        {"{1:2}", false},
        {"{\"a\" 1}", false},
        {"{\"a\":}", false},
        {"[}", false},
        {"{]", false},
        {"{}{}", false},
        {"[],", false},
        {"'a'", false},
        {"// x\n1", false},
        {"NaN", false},
        {"Infinity", false},
        {"\xEF\xBB\xBF{}", false},
        {"[1]\x01", false},
        {"{,}", false},
        {"[,]", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qp_err a = {0}, b = {0};
        json_t *v = NULL;
        size_t n = strlen(cases[i].text), n_tokens;
        qp_status tree = qp_json_parse(&v, cases[i].text, n, "t.json", &a);
        qp_status tokens = stream(cases[i].text, n, &n_tokens, &b);
        if ((tree == QP_OK) != cases[i].ok) fail_msg("tree: %s: %s", cases[i].text, a.msg);
        if ((tokens == QP_OK) != cases[i].ok) fail_msg("stream: %s: %s", cases[i].text, b.msg);
        if (!cases[i].ok) {
            assert_int_equal(tree, QP_EFORMAT);
            assert_int_equal(tokens, QP_EFORMAT);
            assert_msg(&a, "t.json: ");
            assert_msg(&b, "t.json: JSON at byte ");
        }
        json_decref(v);
    }
    qp_err err = {0};
    json_t *v = NULL;
    size_t n_tokens;
    assert_status(qp_json_parse(&v, "4\0x", 3, "t", &err), QP_EFORMAT, &err);
    assert_status(stream("4\0x", 3, &n_tokens, &err), QP_EFORMAT, &err);
    assert_status(qp_json_parse(&v, "{\"a\":1,\"a\":2}", 13, "t", &err), QP_EFORMAT,
                  &err); /* stream: caller's to find */
}

static void test_depth(void **state)
{
    (void)state;
    for (size_t depth = QP_MAX_JSON_DEPTH - 1; depth <= QP_MAX_JSON_DEPTH + 1; depth++) {
        char text[2 * QP_MAX_JSON_DEPTH + 8];
        qp_err err = {0};
        json_t *v = NULL;
        size_t n_tokens;
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        qp_status want = depth <= QP_MAX_JSON_DEPTH ? QP_OK : QP_EFORMAT;
        assert_status(stream(text, 2 * depth, &n_tokens, &err), want, &err);
        assert_status(qp_json_parse(&v, text, 2 * depth, "t", &err), want, &err);
        if (want != QP_OK) assert_msg(&err, "nested deeper than 64");
        json_decref(v);
    }
}

static void test_stream_values(void **state)
{
    (void)state;
    static const char text[] =
        "{\"k\\n\":[\"plain\",\"\\u00e9\\ud83d\\ude00\\\"\",18446744073709551615,18446744073709551616,"
        "-1,1.0,true,false,null],\"skip\":{\"a\":[1,{}]},\"end\":1}";
    qp_json_stream s;
    qp_err err = {0};
    uint64_t u;
    qp_json_stream_init(&s, text, sizeof text - 1, "t");
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_OBJECT, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_KEY, &err), QP_OK);
    assert_true(qp_json_stream_is(&s, "k\n") && !qp_json_stream_is(&s, "k") && !qp_json_stream_is(&s, "k\nx"));
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_ARRAY, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_STR, &err), QP_OK);
    assert_true(s.text >= text && s.text < text + sizeof text && qp_json_stream_is(&s, "plain")); /* not copied */
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_STR, &err), QP_OK);
    assert_true(qp_json_stream_is(&s, "\xC3\xA9\xF0\x9F\x98\x80\""));
    static const bool fits[] = {true, false, false, false};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(qp_json_stream_expect(&s, QP_JSON_NUM, &err), QP_OK);
        assert_int_equal(qp_json_stream_as_u64(&s, &u), fits[i]);
    }
    assert_true(u == UINT64_MAX);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_BOOL_TRUE, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_BOOL_FALSE, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_NUL, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_ARRAY_END, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_KEY, &err), QP_OK);
    assert_int_equal(qp_json_stream_skip(&s, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_KEY, &err), QP_OK);
    assert_true(qp_json_stream_is(&s, "end"));
    assert_status(qp_json_stream_expect(&s, QP_JSON_STR, &err), QP_EFORMAT, &err);
    assert_msg(&err, "a number found, a string wanted");
    qp_json_stream_deinit(&s);
}

/* Both parsers see the same mutated texts: what one accepts the other does, duplicate keys and number range aside. */
static void test_stream_agrees_with_tree(void **state)
{
    (void)state;
    static const char seed[] = "{\"a\":[1,-2.5e3,\"x\\u00e9\\n\",{\"b\":null,\"c\":[true,false]}],\"d\":\"\xC3\xA9\"} ";
    static const char letters[] = "{}[]\",:\\u0e1-+.tfn ax\xC3\xA9\x01";
    qp_rng r = {11};
    size_t n_ok = 0;
    for (int round = 0; round < 60000; round++) {
        char text[sizeof seed];
        size_t n = sizeof seed - 1, n_tokens;
        memcpy(text, seed, sizeof seed);
        for (uint64_t k = qp_rng_u64(&r) % 3 + 1; k > 0; k--)
            text[qp_rng_u64(&r) % n] = letters[qp_rng_u64(&r) % (sizeof letters - 1)];
        if (round % 7 == 0) n = qp_rng_u64(&r) % n;
        qp_err a = {0}, b = {0};
        json_t *v = NULL;
        qp_status tree = qp_json_parse(&v, text, n, "t", &a), tokens = stream(text, n, &n_tokens, &b);
        json_decref(v);
        n_ok += tokens == QP_OK;
        if (tree == QP_OK && tokens != QP_OK) fail_msg("tree alone takes %.*s: %s", (int)n, text, b.msg);
        if (tree != QP_OK && tokens == QP_OK && !strstr(a.msg, "duplicate") && !strstr(a.msg, "overflow") &&
            !strstr(a.msg, "NUL") && !strstr(a.msg, "u0000"))
            fail_msg("stream alone takes %.*s: %s", (int)n, text, a.msg);
    }
    assert_true(n_ok > 500);
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,2.5,\"x\\n\",{\"b\":null}],\"c\":\"\xC3\xA9\"}";
    size_t live = qp_alloc_live_bytes();
    for (uint64_t n = 1;; n++) {
        qp_err err = {0};
        json_t *v = NULL;
        qp_alloc_fail_after(n);
        qp_status st = qp_json_parse(&v, text, sizeof text - 1, "t", &err);
        qp_alloc_fail_after(0);
        if (st == QP_OK) {
            json_decref(v);
            assert_true(n > 10);
            break;
        }
        assert_status(st, QP_ENOMEM, &err);
        assert_int_equal(qp_alloc_live_bytes(), live);
    }
    assert_int_equal(qp_alloc_live_bytes(), live);
    qp_err err = {0};
    size_t n_tokens;
    qp_alloc_fail_after(1);
    assert_status(stream(text, sizeof text - 1, &n_tokens, &err), QP_ENOMEM, &err);
    qp_alloc_fail_after(0);
    assert_int_equal(qp_alloc_live_bytes(), live);
}

static void test_load(void **state)
{
    (void)state;
    char dir[64], path[128];
    qp_err err = {0};
    json_t *v = NULL;
    temp_dir(dir);
    write_file(dir, "a.json", "{\"x\":1}\n", 8);
    write_file(dir, "empty.json", "", 0);
    snprintf(path, sizeof path, "%s/a.json", dir);
    assert_status(qp_json_load(&v, path, &err), QP_OK, &err);
    assert_true(json_is_integer(json_object_get(v, "x")));
    json_decref(v);
    snprintf(path, sizeof path, "%s/empty.json", dir);
    assert_status(qp_json_load(&v, path, &err), QP_EFORMAT, &err);
    assert_msg(&err, path);
    snprintf(path, sizeof path, "%s/absent.json", dir);
    assert_status(qp_json_load(&v, path, &err), QP_EIO, &err);
    remove_dir(dir);
}

static void test_add_str(void **state)
{
    (void)state;
    qp_buf b = {0};
    char all[256 + 8];
    size_t n = 0;
    for (int c = 0; c < 128; c++) all[n++] = (char)c;
    memcpy(all + n, "\xC3\xA9\xF0\x9F\x98\x80", 6);
    n += 6;
    qp_json_add_str(&b, all, n);
    json_t *v = NULL;
    qp_err err = {0};
    assert_status(qp_json_parse(&v, b.data, b.len, "t", &err), QP_OK, &err);
    assert_int_equal(json_string_length(v), n);
    assert_memory_equal(json_string_value(v), all, n);
    json_decref(v);
    qp_buf_clear(&b);
    qp_json_add_str(&b, "a\"\\/\b\f\n\r\t\x01\x7F", 11);
    assert_string_equal(b.data, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7F\"");
    qp_buf_clear(&b);
    qp_json_add_str(&b, "", 0);
    assert_string_equal(b.data, "\"\"");
    qp_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_strictness),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_stream_values),
        cmocka_unit_test(test_stream_agrees_with_tree),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_add_str),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
