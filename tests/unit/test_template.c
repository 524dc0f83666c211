/* Chat template engine: every vector case, and the limits. */
#include "base/alloc.h"
#include "io/json.h"
#include "text/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1767323045 /* 2026-01-02 03:04:05 UTC */

static const char *const classes[] = {"none", "syntax", "raise", "undefined", "security", "runtime", "limit"};

/* Renders into *out (the text, or the message of the error) and returns the class. */
static qp_template_error run(const char *source, size_t n, const json_t *context, const qp_template_limits *limits,
                             qp_buf *out, qp_err *err)
{
    qp_template *t = NULL;
    qp_template_error kind = QP_TE_LIMIT;
    qp_status st = qp_template_new(&t, source, n, &kind, err);
    if (st == QP_OK) st = qp_template_render(t, context, NOW, limits, out, &kind, err);
    assert_int_equal(st == QP_OK, kind == QP_TE_NONE);
    if (st != QP_OK) {
        assert_int_equal(out->len, 0);
        assert_int_equal(st, kind == QP_TE_LIMIT ? QP_ELIMIT : QP_EINVAL);
        assert_int_equal(st, err->status);
    }
    qp_template_free(t);
    return kind;
}

/* Compares one case and returns 1 when it differs, printing both. */
static int check(const char *name, const json_t *template, const json_t *context, const json_t *c)
{
    qp_buf out = {0};
    qp_err err = {QP_OK, ""};
    const json_t *want = json_object_get(c, "out");
    const char *want_class = json_string_value(json_object_get(c, "error"));
    const char *message = json_string_value(json_object_get(c, "message"));
    int bad = 0;
    qp_template_error kind = run(json_string_value(template), json_string_length(template), context, NULL, &out, &err);
    if (want_class) {
        bad = strcmp(classes[kind], want_class) != 0;
        if (!bad && kind == QP_TE_RAISE) bad = strcmp(err.msg, message) != 0;
        if (bad) print_error("%s: %s (%s), want %s (%s)\n", name, classes[kind], err.msg, want_class, message);
    } else {
        bad = kind != QP_TE_NONE || out.len != json_string_length(want) ||
              (out.len && memcmp(out.data, json_string_value(want), out.len));
        if (bad)
            print_error("%s: %s (%s)\n--- got\n%s\n--- want\n%s\n", name, classes[kind], err.msg,
                        out.data ? out.data : "", json_string_value(want));
    }
    qp_buf_deinit(&out);
    return bad;
}

static json_t *load(const char *path)
{
    json_t *v = NULL;
    qp_err err;
    if (qp_json_load(&v, path, &err) != QP_OK) fail_msg("%s", err.msg);
    return v;
}

static void test_unit_vectors_match(void **state)
{
    json_t *cases = load("tests/vectors/templates/jinja_units.json"), *c;
    size_t i;
    int bad = 0;
    (void)state;
    assert_int_equal(json_array_size(cases), 279);
    json_array_foreach(cases, i, c)
    {
        bad += check(json_string_value(json_object_get(c, "name")), json_object_get(c, "template"),
                     json_object_get(c, "context"), c);
    }
    json_decref(cases);
    assert_int_equal(bad, 0);
}

/* The context that transformers builds: variables of the case over messages, tools, add_generation_prompt. */
static json_t *chat_context(const json_t *all, const json_t *c)
{
    json_t *ctx = json_object();
    const char *conversation = json_string_value(json_object_get(c, "conversation"));
    bool tools = json_is_true(json_object_get(c, "tools"));
    json_object_set(ctx, "messages", json_object_get(json_object_get(all, "conversations"), conversation));
    if (tools)
        json_object_set(ctx, "tools", json_object_get(all, "tools"));
    else
        json_object_set_new(ctx, "tools", json_null());
    json_object_set_new(ctx, "documents", json_null());
    json_object_set(ctx, "add_generation_prompt", json_object_get(c, "add_generation_prompt"));
    json_object_update(ctx, json_object_get(c, "kwargs"));
    return ctx;
}

static void test_chat_vectors_match(void **state)
{
    json_t *all = load("tests/vectors/templates/chat_templates.json"), *cases = json_object_get(all, "cases"), *c;
    size_t i;
    int bad = 0;
    (void)state;
    assert_int_equal(json_array_size(cases), 104);
    json_array_foreach(cases, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "template"));
        json_t *ctx = chat_context(all, c);
        bad += check(name, json_object_get(json_object_get(all, "templates"), name), ctx, c);
        json_decref(ctx);
    }
    json_decref(all);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unit_vectors_match),
        cmocka_unit_test(test_chat_vectors_match),
    };
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
