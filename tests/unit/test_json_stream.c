/* JSON token stream: tokens, spans, numbers, and what is refused; trees built from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "io/json.h"
#include "io/json_stream.h"

static void test_tokens_in_order(void **state)
{
    (void)state;
    static const char json[] =
        " {\"a\":[1,\"x\\u00e9\\ud83d\\ude00\",true,false,null,{}],\"longer than eight \\\" bytes\":[]} ";
    static const qp_json_token want[] = {QP_JSON_OBJECT, QP_JSON_KEY,        QP_JSON_ARRAY,      QP_JSON_NUM,
                                         QP_JSON_STR,    QP_JSON_BOOL_TRUE,  QP_JSON_BOOL_FALSE, QP_JSON_NUL,
                                         QP_JSON_OBJECT, QP_JSON_OBJECT_END, QP_JSON_ARRAY_END,  QP_JSON_KEY,
                                         QP_JSON_ARRAY,  QP_JSON_ARRAY_END,  QP_JSON_OBJECT_END, QP_JSON_END};
    qp_json_stream s;
    qp_err err;
    qp_json_stream_init(&s, json, sizeof json - 1, "x");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        qp_json_token t;
        if (qp_json_stream_next(&s, &t, &err)) fail_msg("%s", err.msg);
        assert_int_equal(t, want[i]);
        if (i == 4) assert_true(qp_json_stream_is(&s, "x\xC3\xA9\xF0\x9F\x98\x80"));
        if (i == 11) assert_true(qp_json_stream_is(&s, "longer than eight \" bytes"));
    }
    qp_json_stream_deinit(&s);
}

static void test_malformed_is_refused_by_both(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{\"a\" 1}",
                                      "[1 2]",
                                      "\"a",
                                      "\"\n\"",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\xFF\"",
                                      "\"\xED\xA0\x80\"",
                                      "01",
                                      "-",
                                      "1.",
                                      "1e",
                                      ".5",
                                      "tru",
                                      "nul",
                                      "1 1",
                                      "{1:2}",
                                      "[",
                                      "]",
                                      "}",
                                      "\"0123456\x01z\"",
                                      "\"01234567\\",
                                      "[1}",
                                      "+1",
                                      "{\"a\":}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qp_json_stream s;
        qp_json_token t = QP_JSON_NUL;
        qp_err err = {0};
        qp_status st;
        json_t *tree = NULL;
        qp_json_stream_init(&s, bad[i], strlen(bad[i]), "x.json");
        do {
            st = qp_json_stream_next(&s, &t, &err);
        } while (st == QP_OK && t != QP_JSON_END);
        qp_json_stream_deinit(&s);
        if (st != QP_EFORMAT || !strstr(err.msg, "x.json")) fail_msg("case %zu: %d %s", i, st, err.msg);
        assert_int_equal(qp_json_parse(&tree, bad[i], strlen(bad[i]), "x.json", &err), QP_EFORMAT);
        assert_null(tree);
    }
}

static void test_span_returns_the_bytes_of_a_value(void **state)
{
    (void)state;
    static const char json[] = "{\"a\": {\"b\":[1,2]} , \"c\":[ 1 ,\"]\"]}";
    qp_json_stream s;
    qp_err err;
    const char *text;
    size_t len;
    qp_json_stream_init(&s, json, sizeof json - 1, "x");
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_OBJECT, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_KEY, &err), QP_OK);
    assert_int_equal(qp_json_stream_span(&s, &text, &len, &err), QP_OK);
    assert_int_equal(len, 11);
    assert_memory_equal(text, "{\"b\":[1,2]}", 11);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_KEY, &err), QP_OK);
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_ARRAY, &err), QP_OK);
    assert_int_equal(qp_json_stream_span(&s, &text, &len, &err), QP_OK);
    assert_memory_equal(text, "1", len);
    assert_int_equal(qp_json_stream_span(&s, &text, &len, &err), QP_OK);
    assert_memory_equal(text, "\"]\"", len);
    assert_int_equal(qp_json_stream_span(&s, &text, &len, &err), QP_EFORMAT);
    qp_json_stream_deinit(&s);
}

static bool number(const char *text, double *out)
{
    qp_json_stream s;
    qp_err err;
    qp_json_stream_init(&s, text, strlen(text), "x");
    assert_int_equal(qp_json_stream_expect(&s, QP_JSON_NUM, &err), QP_OK);
    bool ok = qp_json_stream_as_f64(&s, out);
    qp_json_stream_deinit(&s);
    return ok;
}

static void test_doubles_are_correctly_rounded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want;
    } good[] = {{"0", 0},
                {"-12.5", -12.5},
                {"0.1", 0.1},
                {"-9.8765432109876543", -9.8765432109876543},
                {"123456789012345678", 123456789012345678.0},
                {"1e-7", 1e-7},
                {"5e-324", 5e-324},
                {"0.00000000000000000000000000001", 1e-29},
                {"1.7976931348623157e308", 1.7976931348623157e308}};
    double d;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(number(good[i].text, &d));
        if (memcmp(&d, &good[i].want, sizeof d) != 0) fail_msg("%s: %.17g", good[i].text, d);
    }
    assert_false(number("1e999", &d));
}

static void test_tree_refuses_what_a_stream_cannot_see(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {{"{\"a\":1,\"a\":2}", "duplicate key \"a\""},
               {"{\"a\\u0000b\":1}", "NUL in a key"},
               {"[9223372036854775808]", "too large"},
               {"[1e999]", "too large"}};
    for (size_t i = 0; i < 4; i++) {
        json_t *tree = NULL;
        qp_err err = {0};
        assert_int_equal(qp_json_parse(&tree, bad[i].text, strlen(bad[i].text), "x", &err), QP_EFORMAT);
        if (!strstr(err.msg, bad[i].part)) fail_msg("\"%s\", wanted \"%s\"", err.msg, bad[i].part);
    }
}

static void test_tree_holds_every_kind(void **state)
{
    (void)state;
    static const char json[] = "{\"z\":[1,-9223372036854775807,2.5,\"a\\u0000b\",true,false,null],\"a\":{\"b\":{}}}";
    json_t *tree, *z;
    qp_err err;
    if (qp_json_parse(&tree, json, sizeof json - 1, "x", &err)) fail_msg("%s", err.msg);
    z = json_object_get(tree, "z");
    assert_int_equal(json_array_size(z), 7);
    assert_int_equal(json_integer_value(json_array_get(z, 1)), -9223372036854775807);
    assert_true(json_real_value(json_array_get(z, 2)) == 2.5);
    assert_int_equal(json_string_length(json_array_get(z, 3)), 3);
    assert_string_equal(json_object_iter_key(json_object_iter(tree)), "z"); /* keys keep their order */
    json_decref(tree);
}

static void test_tree_survives_failed_allocations(void **state)
{
    (void)state;
    static const char json[] =
        "{\"a\":[1,2.5,\"a long string with an escape \\n in it\",{\"b\":[[],{}]}],\"c\\n\":[1,2,3,4,5,6,7,8,9]}";
    qp_json_init();
    for (uint64_t k = 1;; k++) {
        json_t *tree = NULL;
        qp_err err;
        size_t live = qp_alloc_live_bytes();
        qp_alloc_fail_after(k);
        qp_status st = qp_json_parse(&tree, json, sizeof json - 1, "x", &err);
        qp_alloc_fail_after(0);
        json_decref(tree);
        assert_int_equal(qp_alloc_live_bytes(), live);
        if (st == QP_OK) {
            assert_true(k > 20);
            return;
        }
        assert_int_equal(st, QP_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_in_order),
        cmocka_unit_test(test_malformed_is_refused_by_both),
        cmocka_unit_test(test_span_returns_the_bytes_of_a_value),
        cmocka_unit_test(test_doubles_are_correctly_rounded),
        cmocka_unit_test(test_tree_refuses_what_a_stream_cannot_see),
        cmocka_unit_test(test_tree_holds_every_kind),
        cmocka_unit_test(test_tree_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
