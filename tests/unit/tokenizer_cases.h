/* Helpers of the tokenizer tests: loading vectors, and comparing with a message that holds both values. */
#ifndef QP_TESTS_TOKENIZER_CASES_H
#define QP_TESTS_TOKENIZER_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "io/json.h"
#include "text/tokenizer_int.h"

#define VECTORS "tests/vectors/tokenizers/"

static inline json_t *load_vector(const char *file)
{
    char path[256];
    qp_err err;
    json_t *v = NULL;
    snprintf(path, sizeof path, VECTORS "%s", file);
    if (qp_json_load(&v, path, &err) != QP_OK) fail_msg("%s", err.msg);
    return v;
}

static inline qp_tokenizer *parse_text(const char *json, size_t n)
{
    qp_err err;
    qp_tokenizer *t = NULL;
    if (qp_tokenizer_parse(&t, json, n, NULL, 0, "test", &err) != QP_OK) fail_msg("%s", err.msg);
    return t;
}

static inline qp_tokenizer *parse_tree(json_t *tree)
{
    char *text = json_dumps(tree, JSON_COMPACT);
    assert_non_null(text);
    qp_tokenizer *t = parse_text(text, strlen(text));
    qp_free(text);
    return t;
}

static inline qp_tokenizer *open_vector(const char *file)
{
    json_t *tree = load_vector(file);
    qp_tokenizer *t = parse_tree(tree);
    json_decref(tree);
    return t;
}

static inline qp_ids encode(const qp_tokenizer *t, const char *s, size_t n, bool special)
{
    qp_ids ids = {0};
    qp_err err;
    if (qp_tokenizer_encode(t, s, n, special, &ids, &err) != QP_OK) fail_msg("%s", err.msg);
    return ids;
}

static inline void expect_ids(const char *name, size_t i, const qp_ids *got, const json_t *want)
{
    size_t n = json_array_size(want), k = 0;
    while (k < n && k < got->n && got->ids[k] == json_integer_value(json_array_get(want, k))) k++;
    if (k == n && k == got->n) return;
    fail_msg("%s, case %zu: %zu ids, wanted %zu; at %zu: %d, wanted %lld", name, i, got->n, n, k,
             k < got->n ? got->ids[k] : -1, k < n ? json_integer_value(json_array_get(want, k)) : -1);
}

static inline void expect_text(const char *name, size_t i, const char *got, size_t n, const json_t *want)
{
    if (n == json_string_length(want) && memcmp(got, json_string_value(want), n) == 0) return;
    fail_msg("%s, case %zu: \"%.*s\", wanted \"%s\"", name, i, (int)n, got, json_string_value(want));
}

static inline void expect_decoded(const qp_tokenizer *t, const char *name, size_t i, const qp_ids *ids, bool skip,
                                  const json_t *want)
{
    qp_buf out = {0};
    qp_err err;
    if (qp_tokenizer_decode(t, ids->ids, ids->n, skip, &out, &err) != QP_OK) fail_msg("%s", err.msg);
    expect_text(name, i, out.data ? out.data : "", out.len, want);
    qp_buf_deinit(&out);
}

/* Streams ids one by one and compares with the whole decoding. */
static inline void expect_streamed(const qp_tokenizer *t, const char *name, size_t i, const qp_ids *ids,
                                   const json_t *want)
{
    qp_detok d = {.t = t};
    qp_buf out = {0};
    qp_err err;
    for (size_t k = 0; k < ids->n; k++) assert_int_equal(qp_detok_push(&d, ids->ids[k], &out, &err), QP_OK);
    assert_int_equal(qp_detok_flush(&d, &out, &err), QP_OK);
    expect_text(name, i, out.data ? out.data : "", out.len, want);
    qp_buf_deinit(&out);
    qp_detok_deinit(&d);
}

/* Every case of <name>.cases.json on t (NULL: <name>.tokenizer.json). */
static inline void check_cases(const char *name, qp_tokenizer *given)
{
    char file[128];
    snprintf(file, sizeof file, "%s.tokenizer.json", name);
    qp_tokenizer *t = given ? given : open_vector(file);
    snprintf(file, sizeof file, "%s.cases.json", name);
    json_t *all = load_vector(file), *strings = load_vector("strings.json"), *c;
    size_t i;
    assert_true(json_array_size(json_object_get(all, "cases")) >= 224);
    json_array_foreach(json_object_get(all, "cases"), i, c)
    {
        json_t *text = json_object_get(c, "text") ? json_object_get(c, "text") : json_array_get(strings, i);
        json_t *decoded = json_object_get(c, "decoded"), *skipped = json_object_get(c, "decoded_skip_special");
        if (!decoded) decoded = text;
        qp_ids ids = encode(t, json_string_value(text), json_string_length(text), false);
        expect_ids(name, i, &ids, json_object_get(c, "ids"));
        expect_decoded(t, name, i, &ids, false, decoded);
        expect_decoded(t, name, i, &ids, true, skipped ? skipped : decoded);
        expect_streamed(t, name, i, &ids, decoded);
        qp_ids_deinit(&ids);
        if (json_object_get(c, "ids_with_special")) {
            ids = encode(t, json_string_value(text), json_string_length(text), true);
            expect_ids(name, i, &ids, json_object_get(c, "ids_with_special"));
            qp_ids_deinit(&ids);
        }
    }
    json_decref(all);
    json_decref(strings);
    if (!given) qp_tokenizer_free(t);
}
#endif
