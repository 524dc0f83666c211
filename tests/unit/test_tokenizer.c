/* Tokenizer against the vectors made by the `tokenizers` library: whole small tokenizers, and the unit cases of split
 * patterns, added tokens, streaming, Metaspace and normalizers. */
#include "tokenizer_cases.h"

static void check_trim(void **state)
{
    check_cases(*state, NULL);
}

/* ---- pretokenize.json: the scanners as they are, one after the other where there are several ---- */

static size_t n_pieces, piece_ends[4096];

static void check_scanner(const char *name, json_t *regexes, json_t *lengths, json_t *strings)
{
    for (size_t i = 0; i < json_array_size(strings); i++) {
        json_t *text = json_array_get(strings, i), *want = json_array_get(lengths, i);
        const char *s = json_string_value(text);
        size_t n = json_string_length(text);
        n_pieces = 1;
        piece_ends[0] = n;
        for (size_t r = 0; r < json_array_size(regexes); r++) {
            json_t *re = json_array_get(regexes, r);
            qp_tok_scan scan = qp_tok_scan_of(json_string_value(re), json_string_length(re));
            assert_non_null(scan);
            size_t ends[4096], m = 0, start = 0;
            for (size_t p = 0; p < n_pieces; p++) {
                size_t len = piece_ends[p] - start;
                for (size_t at = 0; at < len;) {
                    at = scan(s + start, at, len);
                    ends[m++] = start + at;
                }
                start = piece_ends[p];
            }
            memcpy(piece_ends, ends, m * sizeof *ends);
            n_pieces = m;
        }
        if (n_pieces != json_array_size(want))
            fail_msg("%s, string %zu: %zu pieces, wanted %zu", name, i, n_pieces, json_array_size(want));
        for (size_t p = 0, start = 0; p < n_pieces; start = piece_ends[p++]) {
            size_t points = 0;
            for (size_t k = start; k < piece_ends[p]; k++) points += ((unsigned char)s[k] & 0xC0) != 0x80;
            if ((json_int_t)points != json_integer_value(json_array_get(want, p)))
                fail_msg("%s, string %zu, piece %zu: %zu code points, wanted %lld", name, i, p, points,
                         json_integer_value(json_array_get(want, p)));
        }
    }
}

static void test_scanners_equal_pretokenize_vectors(void **state)
{
    (void)state;
    json_t *all = load_vector("pretokenize.json"), *strings = load_vector("strings.json"), *v;
    const char *name;
    size_t n = 0;
    json_object_foreach(all, name, v)
    {
        json_t *list = json_incref(json_object_get(v, "regexes"));
        if (!list) {
            list = json_array();
            if (json_object_get(v, "regex")) {
                json_array_append(list, json_object_get(v, "regex"));
            } else { /* digits one by one, then gpt2 */
                json_array_append_new(list, json_string("\\p{N}"));
                json_array_append(list, json_object_get(json_object_get(all, "gpt2"), "regex"));
            }
        }
        check_scanner(name, list, json_object_get(v, "piece_lengths_in_codepoints"), strings);
        json_decref(list);
        n++;
    }
    assert_int_equal(n, 8);
    json_decref(all);
    json_decref(strings);
}

/* The same through PCRE2: the pattern in a group, so that it is not recognized. */
static void test_pcre_equals_scanners(void **state)
{
    (void)state;
    json_t *all = load_vector("pretokenize.json"), *strings = load_vector("strings.json"), *v;
    const char *name;
    json_object_foreach(all, name, v)
    {
        json_t *re = json_object_get(v, "regex");
        if (!re) continue;
        qp_tok_scan scan = qp_tok_scan_of(json_string_value(re), json_string_length(re));
        qp_err err;
        qp_tokenizer t = {.name = (char *)(uintptr_t) "test"};
        qp_tok_pattern p;
        json_t *spec = json_pack("{s:o}", "Regex", json_sprintf("(?:%s)", json_string_value(re)));
        assert_int_equal(qp_tok_pattern_init(&t, &p, spec, "test", &err), QP_OK);
        qp_tok_ctx c = {.t = &t, .err = &err};
        for (size_t i = 0; i < json_array_size(strings); i++) {
            const char *s = json_string_value(json_array_get(strings, i));
            size_t n = json_string_length(json_array_get(strings, i));
            for (size_t at = 0, start, end; at < n; at = end) {
                assert_int_equal(qp_tok_pattern_find(&c, &p, s, at, n, &start, &end), QP_OK);
                assert_int_equal(start, at);
                if (scan(s, at, n) != end)
                    fail_msg("%s, string %zu at %zu: %zu, PCRE2 %zu", name, i, at, scan(s, at, n), end);
            }
        }
        qp_tok_ctx_deinit(&c);
        qp_tok_pattern_deinit(&p);
        pcre2_compile_context_free(t.pcre_compile);
        pcre2_general_context_free(t.pcre);
        json_decref(spec);
    }
    json_decref(all);
    json_decref(strings);
}

/* ---- added_tokens.json ---- */

static void test_added_tokens(void **state)
{
    (void)state;
    json_t *sets = load_vector("added_tokens.json"), *set, *c;
    size_t i, k;
    json_array_foreach(sets, i, set)
    {
        const char *name = json_string_value(json_object_get(set, "name"));
        json_t *tok = load_vector(json_string_value(json_object_get(set, "base")));
        json_object_set(tok, "added_tokens", json_object_get(set, "added_tokens"));
        json_object_set(tok, "normalizer", json_object_get(set, "normalizer"));
        qp_tokenizer *t = parse_tree(tok);
        json_array_foreach(json_object_get(set, "cases"), k, c)
        {
            json_t *text = json_object_get(c, "text");
            qp_ids ids = encode(t, json_string_value(text), json_string_length(text), false);
            expect_ids(name, k, &ids, json_object_get(c, "ids"));
            expect_decoded(t, name, k, &ids, false, json_object_get(c, "decoded"));
            expect_decoded(t, name, k, &ids, true, json_object_get(c, "decoded_skip_special"));
            qp_ids_deinit(&ids);
        }
        qp_tokenizer_free(t);
        json_decref(tok);
    }
    json_decref(sets);
}

/* ---- decode_stream.json ---- */

static void test_decode_stream(void **state)
{
    (void)state;
    json_t *all = load_vector("decode_stream.json"), *c, *v;
    size_t i, k;
    char file[128], loaded[128] = "";
    qp_tokenizer *t = NULL;
    json_array_foreach(all, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "tokenizer"));
        snprintf(file, sizeof file, "%s.tokenizer.json", name);
        if (strcmp(loaded, file) != 0) {
            qp_tokenizer_free(t);
            t = open_vector(file);
            strcpy(loaded, file);
        }
        qp_detok d = {.t = t};
        qp_buf out = {0};
        qp_err err;
        json_array_foreach(json_object_get(c, "ids"), k, v)
        {
            json_t *want = json_array_get(json_object_get(c, "chunks"), k);
            size_t before = out.len, n = json_is_string(want) ? json_string_length(want) : 0;
            assert_int_equal(qp_detok_push(&d, (int32_t)json_integer_value(v), &out, &err), QP_OK);
            if (out.len - before != n || (n && memcmp(out.data + before, json_string_value(want), n) != 0))
                fail_msg("%s, case %zu, id %zu: \"%s\", wanted \"%s\"", name, i, k, out.data ? out.data + before : "",
                         n ? json_string_value(want) : "");
        }
        size_t sure = out.len;
        assert_int_equal(qp_detok_flush(&d, &out, &err), QP_OK);
        /* Whole decoding shows a cut run of bytes as U+FFFD throughout; the stream has shown its good part already. */
        json_t *full = json_object_get(c, "full_decode");
        if (sure <= json_string_length(full) && memcmp(out.data, json_string_value(full), sure) == 0)
            expect_text(name, i, out.data, out.len, full);
        else
            assert_true(out.len > sure && memcmp(out.data + sure, "\xEF\xBF\xBD", 3) == 0);
        qp_buf_deinit(&out);
        qp_detok_deinit(&d);
    }
    qp_tokenizer_free(t);
    json_decref(all);
}

/* ---- metaspace.json ---- */

/* Pieces as a Unigram tokenizer sees them: every piece that must come out is in the vocabulary, and so is every code
 * point, at a much lower score; ids then tell the pieces apart. */
static void check_metaspace(json_t *set)
{
    const char *scheme = json_string_value(json_object_get(set, "prepend_scheme"));
    bool split = json_is_true(json_object_get(set, "split"));
    json_t *c, *p;
    size_t i, k;
    json_array_foreach(json_object_get(set, "cases"), i, c)
    {
        json_t *vocab = json_array(), *want = json_array();
        json_array_append_new(vocab, json_pack("[s,f]", "<unk>", -100.0));
        json_array_foreach(json_array_get(c, 1), k, p)
        {
            size_t known = 0;
            for (size_t q = 1; q < json_array_size(vocab); q++)
                if (json_equal(json_array_get(json_array_get(vocab, q), 0), p)) known = q;
            if (!known) {
                json_array_append_new(vocab, json_pack("[O,f]", p, -1.0));
                known = json_array_size(vocab) - 1;
            }
            json_array_append_new(want, json_integer((json_int_t)known));
        }
        json_t *tok = json_pack("{s:o,s:{s:s,s:s,s:s,s:b},s:{s:s,s:i,s:o}}", "added_tokens", json_array(),
                                "pre_tokenizer", "type", "Metaspace", "replacement", "\xE2\x96\x81", "prepend_scheme",
                                scheme, "split", split, "model", "type", "Unigram", "unk_id", 0, "vocab", vocab);
        qp_tokenizer *t = parse_tree(tok);
        json_t *text = json_array_get(c, 0);
        qp_ids ids = encode(t, json_string_value(text), json_string_length(text), false);
        expect_ids(scheme, i, &ids, want);
        qp_ids_deinit(&ids);
        qp_tokenizer_free(t);
        json_decref(tok);
        json_decref(want);
    }
}

static void test_metaspace(void **state)
{
    (void)state;
    json_t *sets = load_vector("metaspace.json"), *set, *c;
    size_t i, k;
    json_array_foreach(sets, i, set)
    {
        if (!json_object_get(set, "model")) {
            check_metaspace(set);
            continue;
        }
        json_t *tok = load_vector("trim_llama2.tokenizer.json");
        json_object_set_new(tok, "normalizer", json_null());
        json_object_set_new(tok, "pre_tokenizer",
                            json_pack("{s:s,s:s,s:s,s:b}", "type", "Metaspace", "replacement", "\xE2\x96\x81",
                                      "prepend_scheme", "first", "split", 0));
        qp_tokenizer *t = parse_tree(tok);
        json_array_foreach(json_object_get(set, "cases"), k, c)
        {
            json_t *text = json_array_get(c, 0);
            qp_ids ids = encode(t, json_string_value(text), json_string_length(text), false);
            expect_ids("metaspace first", k, &ids, json_array_get(c, 1));
            qp_ids_deinit(&ids);
        }
        qp_tokenizer_free(t);
        json_decref(tok);
    }
    json_decref(sets);
}

/* ---- normalizers.json ---- */

static void test_normalizers(void **state)
{
    (void)state;
    json_t *sets = load_vector("normalizers.json"), *set, *c;
    size_t i, k;
    json_array_foreach(sets, i, set)
    {
        qp_err err = {0};
        qp_tokenizer t = {.name = (char *)(uintptr_t) "test"};
        assert_int_equal(qp_tok_norm_load(&t, json_object_get(set, "normalizer"), &err), QP_OK);
        qp_tok_ctx ctx = {.t = &t, .err = &err};
        json_array_foreach(json_object_get(set, "cases"), k, c)
        {
            const char *got;
            size_t n;
            json_t *text = json_array_get(c, 0);
            assert_int_equal(qp_tok_normalize(&ctx, json_string_value(text), json_string_length(text), &got, &n),
                             QP_OK);
            expect_text(json_string_value(json_object_get(json_object_get(set, "normalizer"), "type")), k, got, n,
                        json_array_get(c, 1));
        }
        qp_tok_ctx_deinit(&ctx);
        for (size_t s = 0; s < t.n_norms; s++) qp_tok_norm_deinit(&t.norms[s]);
        pcre2_compile_context_free(t.pcre_compile);
        pcre2_general_context_free(t.pcre);
    }
    json_decref(sets);
}

#define TRIM(name)                                                                                                     \
    {                                                                                                                  \
        "trim_" name, check_trim, NULL, NULL, (void *)(uintptr_t)("trim_" name)                                        \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIM("gpt2"),
        TRIM("gpt2_digits"),
        TRIM("qwen2"),
        TRIM("qwen35"),
        TRIM("llama3"),
        TRIM("tekken"),
        TRIM("deepseek"),
        TRIM("gemma"),
        TRIM("llama2"),
        TRIM("unigram"),
        TRIM("unigram_bytes"),
        cmocka_unit_test(test_scanners_equal_pretokenize_vectors),
        cmocka_unit_test(test_pcre_equals_scanners),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_decode_stream),
        cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_normalizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
