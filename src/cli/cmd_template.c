/* quantpack template: see cmd_template.h. Made for trying templates out and for comparing them with another engine, so
 * the output is exactly the rendered text and errors carry their class. */
#include "cli/cmd_template.h"

#include "base/clock.h"
#include "cli/options.h"
#include "cli/term.h"
#include "io/json.h"
#include "io/map.h"
#include "text/template.h"

#include <stdio.h>

typedef struct {
    const char *file, *context;
} template_args;

static const qp_opt opts[] = {
    {.name = "file",
     .kind = QP_OPT_STR,
     .value = "TEMPLATE",
     .offset = offsetof(template_args, file),
     .help = "the template, for example MODEL/chat_template.jinja (needed)"},
    {.name = "context",
     .kind = QP_OPT_STR,
     .value = "JSONFILE",
     .offset = offsetof(template_args, context),
     .help = "its variables, one JSON object: messages, tools, add_generation_prompt, ... (needed)"},
};

static int failed(qp_template_error kind, const qp_err *err)
{
    static const char *const names[] = {NULL, "syntax", "raise", "undefined", "security", "runtime", "limit"};
    const char *name = names[kind] ? names[kind] : err->status == QP_ENOMEM ? "memory" : "io";
    fprintf(stderr, "%s: %s\n", name, err->msg);
    return QP_EXIT_FAILURE;
}

static int render(const char *file, const char *context_file)
{
    qp_template_error kind = QP_TE_NONE;
    qp_template *t = NULL;
    json_t *context = NULL;
    qp_map source = {0};
    qp_buf out = {0};
    qp_err err = {0};
    qp_status st = qp_map_open(&source, file, &err);
    if (st == QP_OK) st = qp_json_load(&context, context_file, &err);
    if (st == QP_OK && !json_is_object(context))
        st = qp_fail(&err, QP_EFORMAT, "%s: the context must be a JSON object", context_file);
    if (st == QP_OK) st = qp_template_new(&t, source.len ? (const char *)source.data : "", source.len, &kind, &err);
    if (st == QP_OK) st = qp_template_render(t, context, qp_clock_unix(), NULL, &out, &kind, &err);
    if (st == QP_OK) qp_out_write(out.data, out.len);
    qp_buf_deinit(&out);
    qp_template_free(t);
    json_decref(context);
    qp_map_close(&source);
    return st == QP_OK ? QP_EXIT_OK : failed(kind, &err);
}

int qp_cmd_template(int argc, char **argv)
{
    template_args args = {0};
    const qp_opt_group group = {"options", opts, sizeof opts / sizeof *opts, &args};
    const qp_usage usage = {
        .command = "template",
        .arguments = "--file TEMPLATE --context JSONFILE",
        .summary = "render a chat template with variables from a JSON file",
        .description =
            "Renders a chat template (Jinja2 as transformers runs it) and prints the text, exactly, without a\n"
            "newline of its own. An error prints \"class: message\" to stderr, where class is one of syntax,\n"
            "raise, undefined, security, runtime, limit (io or memory for trouble outside the template), and\n"
            "the exit code is 1. strftime_now shows the local time; QP_FAKE_NOW (seconds since 1970) fixes it.",
        .examples = "  quantpack template --file chat_template.jinja --context chat.json\n"
                    "  TZ=UTC QP_FAKE_NOW=1767323045 quantpack template --file t.jinja --context chat.json\n",
        .groups = &group,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!args.file) return qp_usage_error("template", "--file is missing");
    if (!args.context) return qp_usage_error("template", "--context is missing");
    return render(args.file, args.context);
}
