/* Chat: finding templates, special tokens, messages for the template, continue_final_message. */
#include "base/alloc.h"
#include "io/json.h"
#include "text/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static int setup(void **state)
{
    (void)state;
    qp_json_init();
    strcpy(dir, "/tmp/qp_chat_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const names[] = {"chat_template.jinja",
                                        "chat_template.json",
                                        "tokenizer_config.json",
                                        "my.jinja",
                                        "additional_chat_templates/tool_use.jinja",
                                        "additional_chat_templates/x.txt",
                                        "additional_chat_templates"};
    char path[256];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        remove(path);
    }
    return rmdir(dir);
}

static qp_chat *open_chat(const char *override)
{
    qp_chat *c = NULL;
    qp_err err = {QP_OK, ""};
    if (qp_chat_open(&c, dir, override, &err) != QP_OK) fail_msg("%s", err.msg);
    return c;
}

static json_t *parse(const char *text)
{
    json_t *v = NULL;
    qp_err err;
    if (!text) return NULL;
    if (qp_json_parse(&v, text, strlen(text), "test", &err) != QP_OK) fail_msg("%s", err.msg);
    return v;
}

static qp_status render(const qp_chat *c, const char *messages, const char *tools, const char *kwargs,
                        const qp_chat_options *opt, qp_buf *out, qp_err *err)
{
    json_t *m = parse(messages), *t = parse(tools), *k = parse(kwargs), *before = json_deep_copy(m);
    qp_status st = qp_chat_render(c, m, t, k, opt, out, err);
    assert_true(json_equal(m, before)); /* the request is not changed */
    json_decref(before);
    json_decref(m);
    json_decref(t);
    json_decref(k);
    return st;
}

/* Renders `template` alone and compares the text. */
static void expect(const char *template, const char *messages, const char *tools, const char *kwargs,
                   const qp_chat_options *opt, const char *want)
{
    qp_chat *c = open_chat(template);
    qp_buf out = {0};
    qp_err err = {QP_OK, ""};
    qp_status st = render(c, messages, tools, kwargs, opt, &out, &err);
    if (st != QP_OK) fail_msg("%s: %s", template, err.msg);
    assert_string_equal(out.data, want);
    qp_buf_deinit(&out);
    qp_chat_free(c);
}

static void expect_error(const char *template, const char *messages, const char *kwargs, const qp_chat_options *opt,
                         qp_status want, const char *part)
{
    qp_chat *c = open_chat(template);
    qp_buf out = {0};
    qp_err err = {QP_OK, ""};
    qp_buf_adds(&out, "kept");
    assert_int_equal(render(c, messages, NULL, kwargs, opt, &out, &err), want);
    if (!strstr(err.msg, part)) fail_msg("message \"%s\", wanted \"%s\" in it", err.msg, part);
    assert_string_equal(out.data, "kept");
    qp_buf_deinit(&out);
    qp_chat_free(c);
}

static const qp_chat_options plain = {0}, generate = {.add_generation_prompt = true},
                             cont = {.continue_final_message = true};

#define USER "[{\"role\": \"user\", \"content\": \"hi\"}]"

static void test_template_is_found_in_the_stated_order(void **state)
{
    (void)state;
    qp_err err;
    qp_chat *c = open_chat(NULL);
    assert_int_equal(qp_chat_check(c, &err), QP_EINVAL);
    assert_non_null(strstr(err.msg, "no chat template"));
    assert_null(qp_chat_template_text(c));
    qp_chat_free(c);
    static const char *const steps[][3] = {
        {"tokenizer_config.json", "{\"chat_template\": \"config\", \"bos_token\": \"<s>\"}", "config"},
        {"chat_template.json", "{\"chat_template\": \"json\"}", "json"},
        {"chat_template.jinja", "jinja", "jinja"},
    };
    for (size_t i = 0; i < 3; i++) {
        write_file(steps[i][0], steps[i][1]);
        c = open_chat(NULL);
        assert_int_equal(qp_chat_check(c, &err), QP_OK);
        assert_string_equal(qp_chat_template_text(c), steps[i][2]);
        assert_string_equal(qp_chat_template_origin(c), steps[i][0]);
        assert_string_equal(qp_chat_special_token(c, "bos_token"), "<s>");
        qp_chat_free(c);
    }
    char path[128];
    write_file("my.jinja", "from a file");
    snprintf(path, sizeof path, "%s/my.jinja", dir);
    c = open_chat(path);
    assert_string_equal(qp_chat_template_text(c), "from a file");
    qp_chat_free(c);
    c = open_chat("literal {{ bos_token }}");
    assert_string_equal(qp_chat_template_text(c), "literal {{ bos_token }}");
    assert_string_equal(qp_chat_special_token(c, "bos_token"), "<s>");
    qp_chat_free(c);
}

static void test_open_reports_what_is_wrong(void **state)
{
    qp_chat *c = NULL;
    qp_err err;
    (void)state;
    assert_int_equal(qp_chat_open(&c, dir, "no/such/file", &err), QP_EINVAL);
    assert_non_null(strstr(err.msg, "no such file"));
    assert_int_equal(qp_chat_open(&c, dir, "{% if %}", &err), QP_EINVAL);
    write_file("tokenizer_config.json", "{\"chat_template\": 5}");
    assert_int_equal(qp_chat_open(&c, dir, NULL, &err), QP_EFORMAT);
    write_file("tokenizer_config.json", "{\"bos_token\": 5}");
    assert_int_equal(qp_chat_open(&c, dir, NULL, &err), QP_EFORMAT);
    write_file("tokenizer_config.json", "[]");
    assert_int_equal(qp_chat_open(&c, dir, NULL, &err), QP_EFORMAT);
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}");
    assert_int_equal(qp_chat_open(&c, dir, NULL, &err), QP_EFORMAT);
    assert_null(c);
    write_file("tokenizer_config.json", "{\"chat_template\": \"{% if %}\"}"); /* the model still opens */
    c = open_chat(NULL);
    assert_int_equal(qp_chat_check(c, &err), QP_EINVAL);
    assert_non_null(strstr(err.msg, "line 1"));
    qp_chat_free(c);
}

static void test_named_templates_serve_tools(void **state)
{
    qp_buf out = {0};
    qp_err err;
    char path[128];
    (void)state;
    write_file("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T{{ tools|length }}\"},"
               "{\"name\": \"default\", \"template\": \"D{{ tools is none }}\"}],"
               "\"eos_token\": {\"content\": \"</s>\", \"lstrip\": false}, \"pad_token\": null}");
    qp_chat *c = open_chat(NULL);
    assert_string_equal(qp_chat_special_token(c, "eos_token"), "</s>");
    assert_null(qp_chat_special_token(c, "pad_token"));
    assert_null(qp_chat_special_token(c, "nonsense"));
    assert_int_equal(render(c, USER, NULL, NULL, &plain, &out, &err), QP_OK);
    assert_int_equal(render(c, USER, "[{}, {}]", NULL, &plain, &out, &err), QP_OK);
    assert_string_equal(out.data, "DTrueT2");
    qp_chat_free(c);
    write_file("chat_template.jinja", "main");
    snprintf(path, sizeof path, "%s/additional_chat_templates", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file("additional_chat_templates/tool_use.jinja", "more");
    write_file("additional_chat_templates/x.txt", "{% if %}");
    c = open_chat(NULL);
    qp_buf_clear(&out);
    assert_int_equal(render(c, USER, NULL, NULL, &plain, &out, &err), QP_OK);
    assert_int_equal(render(c, USER, "[{}]", NULL, &plain, &out, &err), QP_OK);
    assert_string_equal(out.data, "mainmore");
    qp_chat_free(c);
    qp_buf_deinit(&out);
    remove_file("additional_chat_templates/tool_use.jinja");
}

static void test_context_holds_what_transformers_gives(void **state)
{
    (void)state;
    write_file("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    expect("{{ bos_token }}{{ eos_token is defined }}{{ tools is none }}{{ documents is none }}{{ "
           "add_generation_prompt }}",
           USER, NULL, NULL, &generate, "<s>FalseTrueTrueTrue");
    expect("{{ bos_token }}{{ x.y }}{{ add_generation_prompt }}", USER, NULL,
           "{\"bos_token\": \"B\", \"x\": {\"y\": 1}, \"add_generation_prompt\": false}", &generate, "B1False");
    expect("{{ strftime_now('%Y') }}", USER, NULL, NULL, &(qp_chat_options){.now_unix = 1767323045}, "2026");
    expect("{{ 1 }}", USER, NULL, NULL, &(qp_chat_options){.template_text = "own {{ messages[0].role }}"}, "own user");
}

static void test_arguments_become_objects(void **state)
{
    (void)state;
    const char *t = "{% for c in messages[0].tool_calls %}{{ c.id }}{{ c.function.arguments|tojson }};{% endfor %}";
    expect(t,
           "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": ["
           "{\"id\": \"a\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"b\\\": 1, \\\"a\\\": 2.0}\"}},"
           "{\"id\": \"b\", \"function\": {\"name\": \"f\", \"arguments\": \"\"}},"
           "{\"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1]}}},"
           "{\"id\": \"d\", \"function\": {\"name\": \"f\"}}]}]",
           NULL, NULL, &plain, "a{\"b\": 1, \"a\": 2.0};b{};c{\"x\": [1]};d{};");
    expect_error(t, "[{\"role\": \"a\", \"tool_calls\": [{\"function\": {\"arguments\": \"{nope\"}}]}]", NULL, &plain,
                 QP_EINVAL, "messages[0].tool_calls[0].function.arguments");
    expect_error(t, "[{\"role\": \"a\", \"tool_calls\": [{\"function\": {\"arguments\": \"[1]\"}}]}]", NULL, &plain,
                 QP_EINVAL, "must be a JSON object");
    expect_error(t, "[{\"role\": \"a\", \"tool_calls\": 5}]", NULL, &plain, QP_EINVAL, "tool_calls must be an array");
    expect("{{ messages[0]|list }}", "[{\"role\": \"a\", \"tool_calls\": [], \"refusal\": null, \"content\": null}]",
           NULL, NULL, &plain, "['role', 'content']");
}

static void test_reasoning_is_seen_under_both_names(void **state)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char m[128];
        snprintf(m, sizeof m, "[{\"role\": \"assistant\", \"content\": \"c\", \"%s\": \"why\"}]", names[i]);
        expect("{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}", m, NULL, NULL, &plain, "why|why");
    }
    expect("{{ messages[0].reasoning_content is defined }}{{ 1 }}",
           "[{\"role\": \"assistant\", \"content\": \"c\", \"reasoning\": null}]", NULL, NULL, &plain, "False1");
}

#define PARTS                                                                                                          \
    "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"input_text\", \"text\": " \
    "\"b\"}]}]"
#define IMAGE                                                                                                          \
    "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}, {\"type\": "      \
    "\"text\", \"text\": \"b\"}]}]"

static void test_content_parts_become_what_the_template_takes(void **state)
{
    static const char lists[] = "{% for p in messages[0].content %}{{ p }}{% endfor %}";
    static const char texts[] = "{{ messages[0]['content'] + '!' }}";
    static const char string_test[] = "{{ messages[0].content if messages[0].content is string else '' }}";
    (void)state;
    expect(lists, IMAGE, NULL, NULL, &plain, "{'type': 'image'}{'type': 'text', 'text': 'b'}");
    expect(texts, PARTS, NULL, NULL, &plain, "a\nb!");
    expect(string_test, PARTS, NULL, NULL, &plain, "a\nb");
    expect(lists, PARTS, NULL, NULL, &(qp_chat_options){.content_format = QP_CONTENT_STRING}, "a\nb");
    expect(string_test, PARTS, NULL, NULL, &(qp_chat_options){.content_format = QP_CONTENT_PARTS}, "");
    expect_error(texts, IMAGE, NULL, &plain, QP_EUNSUPPORTED, "takes text alone");
    expect_error(texts, "[{\"role\": \"u\", \"content\": [{\"type\": \"input_audio\"}]}]", NULL, &plain,
                 QP_EUNSUPPORTED, "input_audio");
    expect_error(texts, "[{\"role\": \"u\", \"content\": [{\"type\": \"text\"}]}]", NULL, &plain, QP_EINVAL,
                 "\"text\"");
    expect_error(texts, "[{\"role\": \"u\", \"content\": [5]}]", NULL, &plain, QP_EINVAL, "must be an object");
    expect_error(texts, "[{\"role\": \"u\", \"content\": 5}]", NULL, &plain, QP_EINVAL, "messages[0].content must be");
}

#define CHATML "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
#define TRIMS "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>\n{% endfor %}"
#define PREFILL "[{\"role\": \"user\", \"content\": \"Sure\"}, {\"role\": \"assistant\", \"content\": \"Sure, it \"}]"

static void test_continue_cuts_after_the_final_content(void **state)
{
    (void)state;
    expect(CHATML, PREFILL, NULL, NULL, &cont, "<user>Sure<end>\n<assistant>Sure, it ");
    expect(TRIMS, PREFILL, NULL, NULL, &cont, "<user>Sure<end>\n<assistant>Sure, it");
    expect(CHATML, "[{\"role\": \"assistant\", \"content\": \"\"}]", NULL, NULL, &cont, "<assistant>");
    expect(CHATML, PREFILL, NULL, "{\"continue_final_message\": true}", &plain,
           "<user>Sure<end>\n<assistant>Sure, it ");
    expect("{% for p in messages[0].content %}{{ p.text }}{% endfor %}<end>", PARTS, NULL, NULL, &cont, "ab");
    expect_error(CHATML, PREFILL, NULL,
                 &(qp_chat_options){.add_generation_prompt = true, .continue_final_message = true}, QP_EINVAL,
                 "cannot both be true");
    expect_error("{{ 1 }}", PREFILL, NULL, &cont, QP_EINVAL, "does not show");
    expect_error(CHATML, "[]", NULL, &cont, QP_EINVAL, "no message");
    expect_error(CHATML, "[{\"role\": \"assistant\", \"content\": null}]", NULL, &cont, QP_EINVAL,
                 "nothing to continue");
}

static void test_bad_requests_are_refused(void **state)
{
    (void)state;
    expect_error(CHATML, "{}", NULL, &plain, QP_EINVAL, "messages must be an array");
    expect_error(CHATML, "[5]", NULL, &plain, QP_EINVAL, "messages[0] must be an object");
    expect_error(CHATML, "[{\"content\": \"x\"}]", NULL, &plain, QP_EINVAL, "messages[0].role");
    expect_error(CHATML, USER, "[1]", &plain, QP_EINVAL, "chat_template_kwargs");
    expect_error(CHATML, USER, "{\"messages\": []}", &plain, QP_EINVAL, "\"messages\"");
    expect_error(CHATML, USER, "{\"add_generation_prompt\": 1}", &plain, QP_EINVAL, "must be true or false");
    expect_error("{{ raise_exception('no ' ~ messages[0].role) }}", USER, NULL, &plain, QP_EINVAL, "no user");
    expect_error("{{ 'x' * 1000 }}", USER, NULL,
                 &(qp_chat_options){.limits = &(qp_template_limits){.max_output_bytes = 99}}, QP_ELIMIT, "99 bytes");
}

/* Each allocation fails in turn; strict: always QP_ENOMEM. jansson reports a failed allocation of its parser as some
 * syntax error, so where JSON text is parsed the status may be another one. */
static void sweep(const char *override, const char *messages, bool strict)
{
    json_t *m = parse(messages), *tools = parse("[{}]"), *kwargs = parse("{\"x\": 1}");
    for (uint64_t n = 1;; n++) {
        qp_chat *c = NULL;
        qp_buf out = {0};
        qp_err err = {QP_OK, ""};
        size_t live = qp_alloc_live_bytes();
        qp_alloc_fail_after(n);
        qp_status st = qp_chat_open(&c, strict ? NULL : dir, override, &err);
        if (st == QP_OK) st = qp_chat_render(c, m, tools, kwargs, &cont, &out, &err);
        qp_alloc_fail_after(0);
        qp_chat_free(c);
        if (st == QP_OK) assert_string_equal(out.data, "a");
        qp_buf_deinit(&out);
        assert_int_equal(qp_alloc_live_bytes(), live);
        if (st == QP_OK) break;
        if (st != QP_ENOMEM && (strict || (st != QP_EFORMAT && st != QP_EINVAL)))
            fail_msg("allocation %llu: %s", (unsigned long long)n, err.msg);
    }
    json_decref(m);
    json_decref(tools);
    json_decref(kwargs);
}

static void test_every_allocation_failure_is_clean(void **state)
{
    (void)state;
    write_file("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ messages[0].content"
               " }}{{ x }}\"}], \"bos_token\": \"<s>\"}");
    sweep("{{ messages[0].content }}{{ x }}",
          "[{\"role\": \"assistant\", \"reasoning\": \"r\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}],"
          "\"tool_calls\": [{\"function\": {\"arguments\": {}}}, {\"function\": {}}]}]",
          true);
    sweep(NULL,
          "[{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}], \"tool_calls\":"
          "[{\"function\": {\"arguments\": \"{}\"}}]}]",
          false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_template_is_found_in_the_stated_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_reports_what_is_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_named_templates_serve_tools, setup, teardown),
        cmocka_unit_test_setup_teardown(test_context_holds_what_transformers_gives, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_become_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reasoning_is_seen_under_both_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_content_parts_become_what_the_template_takes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_continue_cuts_after_the_final_content, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_requests_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_allocation_failure_is_clean, setup, teardown),
    };
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
