/* Chat template engine: hostile templates end with QP_TE_LIMIT, soon and without harm; allocation failures are clean.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "io/json.h"
#include "text/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A tenth of the default steps, so that the test is quick under sanitizers. */
static const qp_template_limits small = {8 << 20, 5000000, 0, 64 << 20};

static qp_template_error render(const char *source, size_t n, const json_t *context, const qp_template_limits *limits,
                                qp_buf *out, qp_err *err)
{
    qp_template *t = NULL;
    qp_template_error kind = QP_TE_NONE;
    qp_status st = qp_template_new(&t, source, n, &kind, err);
    if (st == QP_OK) st = qp_template_render(t, context, 0, limits, out, &kind, err);
    assert_int_equal(st == QP_OK, kind == QP_TE_NONE);
    qp_template_free(t);
    return kind;
}

static void expect(const char *source, size_t n, qp_template_error want)
{
    qp_buf out = {0};
    qp_err err = {QP_OK, ""};
    json_t *context = json_pack("{s:s, s:[i,i,i]}", "s", "hello", "l", 1, 2, 3);
    uint64_t start = qp_clock_ns();
    qp_template_error kind = render(source, n, context, &small, &out, &err);
    double seconds = (double)(qp_clock_ns() - start) * 1e-9;
    if (kind != want) fail_msg("%.100s: class %d, want %d (%s)", source, kind, want, err.msg);
    if (want == QP_TE_LIMIT) assert_int_equal(err.status, QP_ELIMIT);
    if (kind != QP_TE_NONE) assert_int_equal(out.len, 0);
    if (seconds > 20) fail_msg("%.100s: %.1f s", source, seconds);
    json_decref(context);
    qp_buf_deinit(&out);
}

static void test_hostile_templates_end_with_limit(void **state)
{
    static const char *const sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% set x = a * b %}{% endfor %}{% endfor %}",
        "{{ 'a' * 1000000 * 1000000 }}",
        "{{ 'a' * 9000000 }}",
        "{{ [1] * 1000000 * 1000000 }}",
        "{{ [[1] * 100000] * 100000 }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s|replace('a', ns.s) %}{% endfor %}",
        "{% set a = 'a' * 1000000 %}{{ a.replace('a', a) }}",
        "{% set a = 'a' * 1000000 %}{{ a.replace('', a) }}",
        "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{% if a in a %}{% endif %}{% endfor %}",
        "{% set a = 'a' * 100000 %}{% set b = 'a' * 50000 ~ 'b' %}{% for i in range(100000) %}{{ b in a }}{% endfor %}",
        "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{% set b = a|upper %}{% endfor %}",
        "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{% set b = a|length %}{% set b = a == a ~ 'x' %}"
        "{% endfor %}",
        "{% set a = 'é' * 1000000 %}{% for i in range(100000) %}{% set b = a[999999] %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{{ a|map('int')|list }}{{ m([a]) }}{% endmacro %}{{ m([]) }}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% macro m(x=m()) %}{% endmacro %}{{ m() }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for a in [1] recursive %}{% for b in [1] %}{% set x = loop %}{% endfor %}{{ loop([1, 2]) }}{% endfor %}",
        "{{ s|indent(100000000000) }}",
        "{{ 'a\nb'|indent(900000000) }}",
        "{{ s|center(100000000) }}",
        "{{ s.center(9223372036854775807) }}",
        "{{ s.ljust(1000000000) }}",
        "{{ s.zfill(1000000000) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:.1000000000f}'.format(1.5) }}",
        "{{ {'a': [1]}|tojson(indent=1000000) }}",
        "{{ [1]|batch(1000000000, 'x')|list }}",
        "{{ [1]|slice(1000000000)|list }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
        "{% set ns = namespace(l=[], m=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}"
        "{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace(l=(1,), m=(2,)) %}{% for i in range(1000) %}{% set ns.l = (ns.l,) %}"
        "{% set ns.m = (ns.m,) %}{% endfor %}{{ ns.l < ns.m }}",
        "{% set ns = namespace(l=(1,)) %}{% for i in range(1000) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}",
        "{% set ns = namespace(l=l) %}{% for i in range(5000) %}{% set ns.l = ns.l|map('int') %}{% endfor %}"
        "{{ ns.l|list }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace(l=[1, 2]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[1, 2], m=[1, 2]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{i|string: i}) %}"
        "{% endfor %}",
        "{% set r = range(100000)|list %}{% for i in r %}{% if (0 - 1) in r %}{% endif %}{% endfor %}",
        "{% set r = range(100000)|list %}{% for i in r %}{% set x = r|sort(reverse=true) %}{% endfor %}",
        "{% set r = range(100000) %}{% for i in r %}{% set x = r|join %}{% endfor %}",
        "{% set r = range(100000) %}{% for i in r %}{% set x = r|map('string')|select|unique|list %}{% endfor %}",
        "{% set x = 'x' * 5000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
        "{% set x = ' ' * 1000000 %}{% for i in range(100000) %}{% set y = x.strip() %}{% set y = x.split() %}"
        "{% endfor %}",
        "{% set x = '<' * 1000000 %}{{ x|striptags|length }}",
        "{% set x = 'Σ' * 1000000 %}{{ x|lower|length }}",
        "{% set x = 'ab' * 500000 %}{% for i in range(1000) %}{% set y = x.rfind('c') %}{% endfor %}",
        "{{ strftime_now('%500000000Y') }}",
        "{{ 1.5|round(1000000000) }}",
        "{% set x = '{}' * 1000000 %}{% for i in range(1000) %}{{ x.format(*l) }}{% endfor %}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        qp_template_error want = QP_TE_LIMIT;
        if (strstr(sources[i], "x.format(*l)")) want = QP_TE_RUNTIME;
        expect(sources[i], strlen(sources[i]), want);
    }
}

/* open repeated n times, middle, close repeated n times */
static void expect_nested(const char *open, const char *middle, const char *close, size_t n, qp_template_error want)
{
    qp_buf b = {0};
    for (size_t i = 0; i < n; i++) qp_buf_adds(&b, open);
    qp_buf_adds(&b, middle);
    for (size_t i = 0; i < n; i++) qp_buf_adds(&b, close);
    expect(b.data, b.len, want);
    qp_buf_deinit(&b);
}

static void test_deep_nesting_in_the_source_ends_with_limit(void **state)
{
    static const char *const parts[][3] = {
        {"{{ (", "1", ") }}"}, {"(", "1", ")"},          {"[", "1", "]"},        {"{1:", "1", "}"},
        {"-", "1", ""},        {"not ", "1", ""},        {"f(", "1", ")"},       {"1 if 1 else ", "1", ""},
        {"a[", "1", "]"},      {"a|default(", "1", ")"}, {"a is eq(", "1", ")"}, {"a is eq [", "1", "]"},
    };
    static const char *const statements[][2] = {
        {"{% if 1 %}", "{% endif %}"},           {"{% for a in l %}", "{% endfor %}"},
        {"{% with %}", "{% endwith %}"},         {"{% filter upper %}", "{% endfilter %}"},
        {"{% set x %}", "{% endset %}"},         {"{% macro m() %}", "{% endmacro %}"},
        {"{% call f() %}", "{% endcall %}"},     {"{% generation %}", "{% endgeneration %}"},
        {"{% if 1 %}{% else %}", "{% endif %}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        qp_buf open = {0}, close = {0};
        for (size_t k = 0; k < 100000; k++) qp_buf_adds(&open, parts[i][0]);
        for (size_t k = 0; k < 100000; k++) qp_buf_adds(&close, parts[i][2]);
        qp_buf all = {0};
        if (i) qp_buf_adds(&all, "{{ ");
        qp_buf_add(&all, open.data, open.len);
        qp_buf_adds(&all, parts[i][1]);
        qp_buf_add(&all, close.data, close.len);
        if (i) qp_buf_adds(&all, " }}");
        expect(all.data, all.len, QP_TE_LIMIT);
        qp_buf_deinit(&open);
        qp_buf_deinit(&close);
        qp_buf_deinit(&all);
    }
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        expect_nested(statements[i][0], "x", statements[i][1], 100000, QP_TE_LIMIT);
}

/* Long chains do not nest and must work. */
static void test_long_chains_render(void **state)
{
    static const char *const parts[][2] = {
        {"{{ 1", " + 1"},     {"{{ 1", " ~ 1"}, {"{{ 1", " and 1"}, {"{{ 1", " == 1"}, {"{{ s", "|upper"},
        {"{{ s", ".strip()"}, {"{{ s", "[0:]"}, {"{{ 1", " * 1"},   {"{{ [1", ", 1"},  {"{% if 0 %}", "{% elif 0 %}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        qp_buf b = {0};
        qp_buf_adds(&b, parts[i][0]);
        for (size_t k = 0; k < 20000; k++) qp_buf_adds(&b, parts[i][1]);
        qp_buf_adds(&b, i == 8 ? "] }}" : i == 9 ? "{% endif %}" : " }}");
        expect(b.data, b.len, QP_TE_NONE);
        qp_buf_deinit(&b);
    }
}

/* The deepest evaluation that the limits allow must fit the stack: each level of a macro adds brackets, loops, filters.
 */
static void test_deepest_evaluation_fits_the_stack(void **state)
{
    qp_buf b = {0};
    (void)state;
    qp_buf_adds(&b, "{% macro m(n) %}{% if 1 %}{% for a in l %}{% with x = 1 %}{% filter upper %}");
    qp_buf_adds(&b, "{{ ");
    for (int i = 0; i < 60; i++) qp_buf_adds(&b, "[-(");
    qp_buf_adds(&b, "m(n)");
    for (int i = 0; i < 60; i++) qp_buf_adds(&b, "|default(1))]");
    qp_buf_adds(&b, " }}{% endfilter %}{% endwith %}{% endfor %}{% endif %}{% endmacro %}{{ m(1) }}");
    expect(b.data, b.len, QP_TE_LIMIT);
    qp_buf_deinit(&b);
}

/* Work per step: the default limits end a loop in a few seconds, which a server can bear. */
static void test_zero_limits_mean_the_defaults(void **state)
{
    qp_buf out = {0};
    qp_err err;
    json_t *context = json_object();
    static const qp_template_limits zero = {0};
    const char *s = "{{ 'a' * 60000000 }}", *over = "{{ 'a' * 70000000 }}";
    (void)state;
    assert_int_equal(render(s, strlen(s), context, &zero, &out, &err), QP_TE_NONE);
    assert_int_equal(out.len, 60000000);
    qp_buf_clear(&out);
    assert_int_equal(render(over, strlen(over), context, NULL, &out, &err), QP_TE_LIMIT);
    assert_int_equal(out.len, 0);
    qp_buf_deinit(&out);
    json_decref(context);
}

static void test_output_limit_of_the_buffer_holds_and_text_is_appended(void **state)
{
    qp_buf out = {.limit = 10};
    qp_err err;
    json_t *context = json_object();
    (void)state;
    qp_buf_adds(&out, "abc");
    assert_int_equal(render("1234567", 7, context, NULL, &out, &err), QP_TE_NONE);
    assert_string_equal(out.data, "abc1234567");
    assert_int_equal(render("x", 1, context, NULL, &out, &err), QP_TE_LIMIT);
    assert_int_equal(err.status, QP_ELIMIT);
    assert_string_equal(out.data, "abc1234567");
    qp_buf_deinit(&out);
    json_decref(context);
}

static void test_invalid_utf8_in_the_source_is_a_syntax_error(void **state)
{
    (void)state;
    expect("a\xff", 2, QP_TE_SYNTAX);
    expect("a\xed\xa0\x80", 4, QP_TE_SYNTAX);
    expect("\xc3", 1, QP_TE_SYNTAX);
}

static void test_raise_message_that_is_cut_stays_utf8(void **state)
{
    qp_buf out = {0};
    qp_err err;
    json_t *context = json_object();
    const char *s = "{{ raise_exception('xé' * 1000) }}";
    (void)state;
    assert_int_equal(render(s, strlen(s), context, NULL, &out, &err), QP_TE_RAISE);
    json_t *text = json_string(err.msg); /* NULL for invalid UTF-8 */
    assert_non_null(text);
    assert_true(strlen(err.msg) > 400);
    json_decref(text);
    json_decref(context);
    qp_buf_deinit(&out);
}

static json_t *load(const char *path)
{
    json_t *v = NULL;
    qp_err err;
    if (qp_json_load(&v, path, &err) != QP_OK) fail_msg("%s", err.msg);
    return v;
}

/* Every allocation fails in turn: QP_ENOMEM, nothing leaks, and the next try works. */
static void sweep(const char *source, const json_t *context)
{
    for (uint64_t n = 1;; n++) {
        qp_template *t = NULL;
        qp_template_error kind = QP_TE_RAISE;
        qp_buf out = {0};
        qp_err err = {QP_OK, ""};
        size_t live = qp_alloc_live_bytes();
        qp_alloc_fail_after(n);
        qp_status st = qp_template_new(&t, source, strlen(source), &kind, &err);
        if (st == QP_OK) st = qp_template_render(t, context, 0, NULL, &out, &kind, &err);
        qp_alloc_fail_after(0);
        qp_template_free(t);
        if (st != QP_OK) assert_int_equal(out.len, 0);
        qp_buf_deinit(&out);
        assert_int_equal(qp_alloc_live_bytes(), live);
        if (st == QP_OK) return;
        assert_int_equal(st, QP_ENOMEM);
        assert_int_equal(kind, QP_TE_NONE);
        assert_true(n < 100000);
    }
}

static void test_every_allocation_failure_is_reported_and_leaks_nothing(void **state)
{
    json_t *all = load("tests/vectors/templates/chat_templates.json"), *context = json_object(), *text;
    json_t *units = load("tests/vectors/templates/jinja_units.json"), *c;
    const char *name;
    size_t i;
    (void)state;
    json_object_set(context, "messages", json_object_get(json_object_get(all, "conversations"), "multi"));
    json_object_set(context, "tools", json_object_get(all, "tools"));
    json_object_set_new(context, "bos_token", json_string("<s>"));
    json_object_set_new(context, "eos_token", json_string("</s>"));
    json_object_foreach(json_object_get(all, "templates"), name, text) sweep(json_string_value(text), context);
    json_array_foreach(units, i, c)
    {
        if (!json_object_get(c, "error"))
            sweep(json_string_value(json_object_get(c, "template")), json_object_get(c, "context"));
    }
    json_decref(units);
    json_decref(context);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_templates_end_with_limit),
        cmocka_unit_test(test_deep_nesting_in_the_source_ends_with_limit),
        cmocka_unit_test(test_long_chains_render),
        cmocka_unit_test(test_deepest_evaluation_fits_the_stack),
        cmocka_unit_test(test_zero_limits_mean_the_defaults),
        cmocka_unit_test(test_output_limit_of_the_buffer_holds_and_text_is_appended),
        cmocka_unit_test(test_invalid_utf8_in_the_source_is_a_syntax_error),
        cmocka_unit_test(test_raise_message_that_is_cut_stays_utf8),
        cmocka_unit_test(test_every_allocation_failure_is_reported_and_leaks_nothing),
    };
    qp_json_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
