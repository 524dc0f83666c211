/* Files that are wrong, hostile or not supported: each is an error that names the file and the thing. */
#include "tokenizer_cases.h"
#include "tokenizer_tiny.h"

static void expect_error(const char *json, size_t n, const char *config, qp_status want, const char *part)
{
    qp_err err = {0};
    qp_tokenizer *t = NULL;
    size_t live = qp_alloc_live_bytes();
    qp_status st = qp_tokenizer_parse(&t, json, n, config, config ? strlen(config) : 0, "x.json", &err);
    if (st != want || !strstr(err.msg, "x.json") || !strstr(err.msg, part))
        fail_msg("status %d, wanted %d; \"%s\", wanted \"%s\" in it, for %.200s", st, want, err.msg, part, json);
    assert_null(t);
    assert_int_equal(qp_alloc_live_bytes(), live);
}

#define BAD(json, st, part) expect_error(json, sizeof(json) - 1, NULL, st, part)
#define MODEL(body) "{\"model\":{\"type\":\"BPE\"," body "}}"
#define WITH(part) "{" part ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}"

static void test_bad_json_is_refused(void **state)
{
    (void)state;
    BAD("", QP_EFORMAT, "byte 0");
    BAD("[]", QP_EFORMAT, "not a JSON object");
    BAD("{}", QP_EFORMAT, "no \"model\"");
    BAD("{\"model\":{}", QP_EFORMAT, "JSON at byte");
    BAD("{\"model\":1}", QP_EFORMAT, "model");
    BAD("{\"model\":{},\"model\":{}}", QP_EFORMAT, "\"model\" twice");
    BAD("{\"model\":{}} x", QP_EFORMAT, "JSON at byte");
    BAD("{\"\\ud800\":1}", QP_EFORMAT, "surrogate");
}

static void test_bad_model_is_refused(void **state)
{
    (void)state;
    BAD("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", QP_EUNSUPPORTED, "WordPiece");
    BAD(MODEL("\"merges\":[]"), QP_EFORMAT, "no \"vocab\"");
    BAD(MODEL("\"vocab\":{}"), QP_EFORMAT, "no \"merges\"");
    BAD(MODEL("\"vocab\":[],\"merges\":[]"), QP_EFORMAT, "not an object");
    BAD(MODEL("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]"), QP_EFORMAT, "\"a\" has two ids, 0 and 1");
    BAD(MODEL("\"vocab\":{\"a\":7,\"b\":7},\"merges\":[]"), QP_EFORMAT, "id 7 is given to \"a\" and to \"b\"");
    BAD(MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), QP_EFORMAT, "id -1");
    BAD(MODEL("\"vocab\":{\"a\":1.5},\"merges\":[]"), QP_EFORMAT, "id 1.5");
    BAD(MODEL("\"vocab\":{\"a\":99999999999999999999},\"merges\":[]"), QP_EFORMAT, "id 9999");
    BAD(MODEL("\"vocab\":{\"a\":16000000},\"merges\":[]"), QP_EFORMAT, "id 16000000"); /* would size tables */
    BAD(MODEL("\"vocab\":{\"a\":[]},\"merges\":[]"), QP_EFORMAT, "\"a\"");
    BAD(MODEL("\"vocab\":{\"a\":0},\"vocab\":{},\"merges\":[]"), QP_EFORMAT, "\"vocab\" twice");
    BAD(MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]"), QP_EFORMAT, "the result is not in the vocabulary");
    BAD(MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a c\"]"), QP_EFORMAT, "the right side is not");
    BAD(MODEL("\"vocab\":{\"a\":0,\"\":1},\"merges\":[[\"\",\"a\"]]"), QP_EFORMAT, "empty side");
    BAD(MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]"), QP_EFORMAT, "merge 0 is not two tokens");
    BAD(MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"), QP_EFORMAT, "merge 0 is not a pair");
    BAD(MODEL("\"vocab\":{\"a\":0},\"merges\":[7]"), QP_EFORMAT, "merge 0 is not a pair");
    BAD(MODEL("\"vocab\":{\"a\":0},\"merges\":{}"), QP_EFORMAT, "\"merges\" is not a list");
    BAD(MODEL("\"dropout\":0.1,\"vocab\":{},\"merges\":[]"), QP_EUNSUPPORTED, "dropout");
    BAD(MODEL("\"end_of_word_suffix\":\"</w>\",\"vocab\":{},\"merges\":[]"), QP_EUNSUPPORTED, "end_of_word_suffix");
    BAD(MODEL("\"continuing_subword_prefix\":\"##\",\"vocab\":{},\"merges\":[]"), QP_EUNSUPPORTED, "subword_prefix");
    BAD(MODEL("\"new_field\":1,\"vocab\":{},\"merges\":[]"), QP_EUNSUPPORTED, "new_field");
    BAD(MODEL("\"unk_token\":\"<unk>\",\"vocab\":{\"a\":0},\"merges\":[]"), QP_EFORMAT, "unk_token \"<unk>\"");
    BAD("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", QP_EFORMAT, "empty vocabulary");
    BAD("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}}", QP_EFORMAT, "vocab[0]: score");
    BAD("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",null]]}}", QP_EFORMAT, "vocab[0]: score");
    BAD("{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",0]]}}", QP_EFORMAT, "unk_id 5");
}

static void test_bad_pipeline_is_refused(void **state)
{
    (void)state;
    BAD(WITH("\"normalizer\":{\"type\":\"Precompiled\"}"), QP_EUNSUPPORTED, "normalizer \"Precompiled\"");
    BAD(WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}"), QP_EFORMAT,
        "regex \"(\"");
    BAD(WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a{2,3}+\"},\"content\":\"\"}"),
        QP_EUNSUPPORTED, "after an interval");
    BAD(WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"), QP_EFORMAT,
        "pattern of 0 bytes");
    BAD(WITH("\"normalizer\":{\"type\":\"Prepend\"}"), QP_EFORMAT, "\"prepend\"");
    BAD(WITH("\"normalizer\":[]"), QP_EFORMAT, "normalizer");
    BAD(WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), QP_EUNSUPPORTED, "UnicodeScripts");
    BAD(WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Other\"}"),
        QP_EUNSUPPORTED, "behavior \"Other\"");
    BAD(WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), QP_EFORMAT, "one code point");
    BAD(WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"maybe\"}"), QP_EFORMAT, "maybe");
    BAD(WITH("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
             "{\"type\":\"Digits\"}]}"),
        QP_EUNSUPPORTED, "after ByteLevel");
    BAD(WITH("\"decoder\":{\"type\":\"CTC\"}"), QP_EUNSUPPORTED, "decoder \"CTC\"");
    BAD(WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":4294967295}"), QP_EFORMAT, "start");
    BAD(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}"),
        QP_EFORMAT, "\"<s>\" has no ids");
    BAD(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"), QP_EUNSUPPORTED, "0 times");
    BAD(WITH("\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",77],\"sep\":[\"y\",0]}"), QP_EFORMAT,
        "id 77 is not a token");
    BAD(WITH("\"added_tokens\":[{\"id\":0,\"content\":\"zz\"}]"), QP_EFORMAT, "id 0 is the token \"a\"");
    BAD(WITH("\"added_tokens\":[{\"id\":9000000,\"content\":\"zz\"}]"), QP_EFORMAT, "id 9000000 is out of range");
    BAD(WITH("\"added_tokens\":[{\"id\":3}]"), QP_EFORMAT, "added token 3 has no \"content\"");
    BAD(WITH("\"added_tokens\":[{\"id\":3,\"content\":\"\"}]"), QP_EFORMAT, "content of 0 bytes");
    BAD(WITH("\"added_tokens\":[3]"), QP_EFORMAT, "added_tokens[0]");
    const char *json = WITH("\"added_tokens\":[]");
    expect_error(json, strlen(json), "[]", QP_EFORMAT, "not an object");
    expect_error(json, strlen(json), "{\"added_tokens_decoder\":{\"x\":{}}}", QP_EFORMAT, "key \"x\" is not an id");
    expect_error(json, strlen(json), "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true}", QP_EFORMAT,
                 "bos_token");
}

/* Every cut of a file is an error or, once only white space is lost, a tokenizer. */
static void check_truncations(const char *json)
{
    for (size_t n = 0; n < strlen(json); n++) expect_error(json, n, NULL, QP_EFORMAT, "x.json");
}

static void test_truncated_files_are_refused(void **state)
{
    (void)state;
    check_truncations(tiny_bytes);
    check_truncations(tiny_points);
    check_truncations(tiny_unigram);
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    char json[4096] = "{\"decoder\":";
    for (int i = 0; i < 1000; i++) strcat(json, "[");
    expect_error(json, strlen(json), NULL, QP_EFORMAT, "deeper than");
}

static void test_config_overrides_added_tokens_and_template(void **state)
{
    (void)state;
    static const char config[] =
        "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,\"add_eos_token\":true,\"bos_token\":\"<unk>\","
        "\"eos_token\":{\"content\":\"<e>\"},\"added_tokens_decoder\":{\"8\":{\"content\":\"<e>\",\"special\":true,"
        "\"normalized\":false},\"0\":{\"content\":\"<unk>\",\"special\":false,\"normalized\":false}}}";
    qp_err err;
    qp_tokenizer *t;
    if (qp_tokenizer_parse(&t, tiny_points, strlen(tiny_points), config, strlen(config), "x", &err))
        fail_msg("%s", err.msg);
    qp_ids ids = encode(t, "ab<e>", 5, true);
    static const int32_t want[] = {0, 5, 8, 8};
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.ids, want, sizeof want);
    assert_false(qp_tokenizer_is_special(t, 0));
    assert_true(qp_tokenizer_is_special(t, 8));
    assert_int_equal(qp_tokenizer_n_ids(t), 9);
    qp_ids_deinit(&ids);
    qp_tokenizer_free(t);
}

static void test_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    qp_tokenizer *t = parse_text(tiny_bytes, strlen(tiny_bytes));
    static const int32_t bad[] = {-1, 11, INT32_MAX, INT32_MIN};
    qp_buf out = {0};
    qp_err err;
    qp_detok d = {.t = t};
    size_t len;
    qp_buf_adds(&out, "kept");
    for (size_t i = 0; i < 4; i++) {
        int32_t ids[] = {1, bad[i]};
        assert_int_equal(qp_tokenizer_decode(t, ids, 2, false, &out, &err), QP_EINVAL);
        assert_non_null(strstr(err.msg, "is not a token"));
        assert_int_equal(qp_tokenizer_token_bytes(t, bad[i], &out, &err), QP_EINVAL);
        assert_int_equal(qp_detok_push(&d, bad[i], &out, &err), QP_EINVAL);
        assert_null(qp_tokenizer_token(t, bad[i], &len));
        assert_false(qp_tokenizer_is_special(t, bad[i]));
    }
    assert_string_equal(out.data, "kept");
    qp_detok_deinit(&d);
    qp_buf_deinit(&out);
    qp_tokenizer_free(t);
}

static void check_bytes(const char *json, const char *token, const char *want)
{
    qp_tokenizer *t = parse_text(json, strlen(json));
    qp_buf out = {0};
    qp_err err;
    int32_t id = qp_tokenizer_id(t, token, strlen(token));
    assert_true(id >= 0);
    assert_int_equal(qp_tokenizer_token_bytes(t, id, &out, &err), QP_OK);
    assert_string_equal(out.data, want);
    qp_buf_deinit(&out);
    qp_tokenizer_free(t);
}

static void test_token_bytes_and_ids(void **state)
{
    (void)state;
    check_bytes(tiny_bytes,
                "\xC4\xA0"
                "ab",
                " ab");
    check_bytes(tiny_bytes, "\xC3\x83", "\xC3");
    check_bytes(tiny_bytes, "<s>", "<s>");
    check_bytes(tiny_points, "<0xC3>", "\xC3");
    check_bytes(tiny_points,
                "\xE2\x96\x81"
                "ab",
                " ab");
    check_bytes(tiny_unigram, "\xE2\x96\x81", " ");
    qp_tokenizer *t = parse_text(tiny_points, strlen(tiny_points));
    assert_int_equal(qp_tokenizer_id(t, "none", 4), -1);
    assert_int_equal(qp_tokenizer_id(t, "", 0), -1);
    qp_tokenizer_free(t);
}

static void test_invalid_utf8_counts_as_replacement(void **state)
{
    (void)state;
    qp_tokenizer *t = open_vector("trim_qwen2.tokenizer.json");
    qp_ids a = encode(t, "a\xFF\xE4\xBD", 4, false), b = encode(t, "a\xEF\xBF\xBD\xEF\xBF\xBD", 7, false);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
    qp_ids_deinit(&a);
    qp_ids_deinit(&b);
    qp_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_json_is_refused),
        cmocka_unit_test(test_bad_model_is_refused),
        cmocka_unit_test(test_bad_pipeline_is_refused),
        cmocka_unit_test(test_truncated_files_are_refused),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_config_overrides_added_tokens_and_template),
        cmocka_unit_test(test_ids_outside_the_vocabulary),
        cmocka_unit_test(test_token_bytes_and_ids),
        cmocka_unit_test(test_invalid_utf8_counts_as_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
