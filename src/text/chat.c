/* Chat: see chat.h. This file finds templates and special tokens and renders; chat_messages.c prepares messages. */
#include "text/chat.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "io/json.h"
#include "io/map.h"
#include "text/chat_impl.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#define MAX_TEMPLATES 64
#define MAX_PATH 4096

/* Follows the final message's content; the text is cut where it ends up. The blank at its end tells a template that
 * keeps trailing whitespace from one that trims it. */
static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

typedef struct named {
    char *name, *text, *origin;
    qp_template *t; /* NULL when it does not parse */
    char *problem;  /* why it does not */
} named;

static const char *const token_names[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                          "cls_token", "sep_token", "mask_token"};
enum { N_TOKENS = sizeof token_names / sizeof *token_names };

struct qp_chat {
    named *templates;
    size_t n_templates;
    char *tokens[N_TOKENS];
};

/* ---- opening ---- */

static const named *find(const qp_chat *c, const char *name)
{
    for (size_t i = 0; i < c->n_templates; i++) {
        if (!strcmp(c->templates[i].name, name)) return &c->templates[i];
    }
    return NULL;
}

/* Adds a template unless one of that name is there. A syntax error is kept with it. */
static qp_status add(qp_chat *c, const char *name, const char *text, size_t n, const char *origin, qp_err *err)
{
    qp_err parse = {QP_OK, ""};
    qp_template *t = NULL;
    if (find(c, name)) return QP_OK;
    if (c->n_templates == MAX_TEMPLATES)
        return qp_fail(err, QP_ELIMIT, "%s: more than %d chat templates", origin, MAX_TEMPLATES);
    if (text && memchr(text, 0, n)) return qp_fail(err, QP_EFORMAT, "%s: a NUL byte in the chat template", origin);
    qp_status st = qp_template_new(&t, text, n, NULL, &parse);
    if (st == QP_ENOMEM) {
        *err = parse;
        return st;
    }
    named *grown = qp_realloc(c->templates, c->n_templates * sizeof *grown, (c->n_templates + 1) * sizeof *grown);
    if (!grown) {
        qp_template_free(t);
        return qp_fail(err, QP_ENOMEM, "%s: no memory for the chat template", origin);
    }
    c->templates = grown;
    named *e = &grown[c->n_templates++];
    *e = (named){qp_strdup(name), qp_strndup(text, n), qp_strdup(origin), t, t ? NULL : qp_strdup(parse.msg)};
    if (e->name && e->text && e->origin && (t || e->problem)) return QP_OK;
    return qp_fail(err, QP_ENOMEM, "%s: no memory for the chat template", origin);
}

static qp_status add_file(qp_chat *c, const char *name, const char *path, const char *origin, qp_err *err)
{
    qp_map m;
    QP_TRY(qp_map_open(&m, path, err));
    qp_status st = add(c, name, m.len ? (const char *)m.data : "", m.len, origin, err);
    qp_map_close(&m);
    return st;
}

/* "chat_template": a string, a list of {name, template}, or an object of texts. Absent and null add nothing. */
static qp_status add_json(qp_chat *c, const json_t *v, const char *origin, qp_err *err)
{
    if (!v || json_is_null(v)) return QP_OK;
    if (json_is_string(v)) return add(c, "default", json_string_value(v), json_string_length(v), origin, err);
    if (json_is_object(v)) {
        const char *key;
        json_t *text, *obj = qp_chat_mutable(v);
        json_object_foreach(obj, key, text)
        {
            if (!json_is_string(text))
                return qp_fail(err, QP_EFORMAT, "%s: chat_template \"%.64s\" is not a string", origin, key);
            QP_TRY(add(c, key, json_string_value(text), json_string_length(text), origin, err));
        }
        return QP_OK;
    }
    if (!json_is_array(v)) return qp_fail(err, QP_EFORMAT, "%s: chat_template is neither a string nor a list", origin);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *e = json_array_get(v, i), *text = json_object_get(e, "template");
        const char *name = json_string_value(json_object_get(e, "name"));
        if (!name || !json_is_string(text))
            return qp_fail(err, QP_EFORMAT, "%s: chat_template[%zu] has no string \"name\" and \"template\"", origin,
                           i);
        QP_TRY(add(c, name, json_string_value(text), json_string_length(text), origin, err));
    }
    return QP_OK;
}

static qp_status add_override(qp_chat *c, const char *override, qp_err *err)
{
    if (qp_path_exists(override)) {
        QP_TRY(add_file(c, "default", override, override, err));
    } else if (strstr(override, "{{") || strstr(override, "{%") || strchr(override, '\n')) {
        QP_TRY(add(c, "default", override, strlen(override), "the given chat template", err));
    } else {
        return qp_fail(err, QP_EINVAL, "chat template \"%.200s\": no such file, and not a template itself", override);
    }
    if (c->templates[0].t) return QP_OK;
    return qp_fail(err, QP_EINVAL, "%.200s: %s", c->templates[0].origin, c->templates[0].problem);
}

/* dir/additional_chat_templates/NAME.jinja */
static qp_status add_folder(qp_chat *c, const char *dir, qp_err *err)
{
    static const char folder[] = "additional_chat_templates";
    char path[MAX_PATH], file[MAX_PATH], name[256];
    qp_status st = QP_OK;
    QP_TRY(qp_path_join(path, sizeof path, dir, folder, err));
    if (!qp_path_exists(path)) return QP_OK;
    DIR *d = opendir(path);
    if (!d) return qp_fail(err, QP_EIO, "%s: %s", path, strerror(errno));
    for (struct dirent *e; st == QP_OK && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n <= 6 || n >= sizeof name || strcmp(e->d_name + n - 6, ".jinja") || e->d_name[0] == '.') continue;
        memcpy(name, e->d_name, n - 6);
        name[n - 6] = 0;
        st = qp_path_join(file, sizeof file, path, e->d_name, err);
        if (st == QP_OK) st = add_file(c, name, file, folder, err);
    }
    closedir(d);
    return st;
}

static qp_status read_tokens(qp_chat *c, const json_t *config, qp_err *err)
{
    for (size_t i = 0; i < N_TOKENS; i++) {
        const json_t *v = json_object_get(config, token_names[i]);
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (!v || json_is_null(v)) continue;
        if (!json_is_string(v))
            return qp_fail(err, QP_EFORMAT, "tokenizer_config.json: %s is neither a string nor {\"content\": string}",
                           token_names[i]);
        c->tokens[i] = qp_strdup(json_string_value(v));
        if (!c->tokens[i]) return qp_fail(err, QP_ENOMEM, "tokenizer_config.json: no memory for %s", token_names[i]);
    }
    return QP_OK;
}

/* Loads dir/name when it exists; *out stays NULL otherwise. */
static qp_status load_object(json_t **out, const char *dir, const char *name, qp_err *err)
{
    char path[MAX_PATH];
    QP_TRY(qp_path_join(path, sizeof path, dir, name, err));
    if (!qp_path_exists(path)) return QP_OK;
    QP_TRY(qp_json_load(out, path, err));
    return json_is_object(*out) ? QP_OK : qp_fail(err, QP_EFORMAT, "%s: not a JSON object", path);
}

static qp_status open_dir(qp_chat *c, const char *dir, bool overridden, qp_err *err)
{
    char path[MAX_PATH];
    json_t *config = NULL, *file = NULL;
    qp_status st;
    QP_TRY_OUT(load_object(&config, dir, "tokenizer_config.json", err));
    QP_TRY_OUT(read_tokens(c, config, err));
    if (overridden) goto out;
    QP_TRY_OUT(qp_path_join(path, sizeof path, dir, "chat_template.jinja", err));
    if (qp_path_exists(path)) QP_TRY_OUT(add_file(c, "default", path, "chat_template.jinja", err));
    if (!c->n_templates) {
        QP_TRY_OUT(load_object(&file, dir, "chat_template.json", err));
        QP_TRY_OUT(add_json(c, json_object_get(file, "chat_template"), "chat_template.json", err));
    }
    if (!c->n_templates)
        QP_TRY_OUT(add_json(c, json_object_get(config, "chat_template"), "tokenizer_config.json", err));
    st = add_folder(c, dir, err);
out:
    json_decref(config);
    json_decref(file);
    return st;
}

qp_status qp_chat_open(qp_chat **out, const char *dir, const char *override, qp_err *err)
{
    qp_chat *c;
    qp_status st = QP_OK;
    qp_json_init();
    QP_TRY(qp_new(&c, 1, sizeof *c, "a chat template", err));
    if (override) st = add_override(c, override, err);
    if (st == QP_OK && dir) st = open_dir(c, dir, override != NULL, err);
    if (st != QP_OK) {
        qp_chat_free(c);
        return st;
    }
    *out = c;
    return QP_OK;
}

void qp_chat_free(qp_chat *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_templates; i++) {
        named *e = &c->templates[i];
        qp_free(e->name);
        qp_free(e->text);
        qp_free(e->origin);
        qp_free(e->problem);
        qp_template_free(e->t);
    }
    for (size_t i = 0; i < N_TOKENS; i++) qp_free(c->tokens[i]);
    qp_free(c->templates);
    qp_free(c);
}

/* ---- asking ---- */

/* The template to use; a single one serves whatever its name. */
static qp_status pick(const qp_chat *c, bool tools, const named **out, qp_err *err)
{
    const named *e = tools ? find(c, "tool_use") : NULL;
    if (!c->n_templates)
        return qp_fail(err, QP_EINVAL, "the model has no chat template; put one beside it as chat_template.jinja");
    if (!e) e = find(c, "default");
    if (!e && c->n_templates == 1) e = c->templates;
    if (!e) return qp_fail(err, QP_EINVAL, "the model has several chat templates and none is named \"default\"");
    if (!e->t)
        return qp_fail(err, QP_EINVAL, "the model's chat template (%.100s) cannot be used: %s", e->origin, e->problem);
    *out = e;
    return QP_OK;
}

qp_status qp_chat_check(const qp_chat *c, qp_err *err)
{
    const named *e;
    return pick(c, false, &e, err);
}

const char *qp_chat_template_text(const qp_chat *c)
{
    const named *e = find(c, "default");
    return e ? e->text : c->n_templates ? c->templates[0].text : NULL;
}

const char *qp_chat_template_origin(const qp_chat *c)
{
    const named *e = find(c, "default");
    return e ? e->origin : c->n_templates ? c->templates[0].origin : NULL;
}

const char *qp_chat_special_token(const qp_chat *c, const char *name)
{
    for (size_t i = 0; i < N_TOKENS; i++) {
        if (!strcmp(token_names[i], name)) return c->tokens[i];
    }
    return NULL;
}

/* ---- rendering ---- */

/* kwargs may switch the two prompt options; anything else it must not set is refused. */
static qp_status read_kwargs(const json_t *kwargs, bool *generate, bool *cont, qp_err *err)
{
    static const char *const refused[] = {"messages", "chat_template", "tokenize"};
    struct {
        const char *name;
        bool *to;
    } flags[] = {{"add_generation_prompt", generate}, {"continue_final_message", cont}};
    if (kwargs && !json_is_object(kwargs) && !json_is_null(kwargs))
        return qp_fail(err, QP_EINVAL, "chat_template_kwargs must be an object");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (json_object_get(kwargs, refused[i]))
            return qp_fail(err, QP_EINVAL, "chat_template_kwargs must not contain \"%s\"", refused[i]);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const json_t *v = json_object_get(kwargs, flags[i].name);
        if (!v) continue;
        if (!json_is_boolean(v))
            return qp_fail(err, QP_EINVAL, "chat_template_kwargs: %s must be true or false", flags[i].name);
        *flags[i].to = json_is_true(v);
    }
    if (*generate && *cont)
        return qp_fail(err, QP_EINVAL, "add_generation_prompt and continue_final_message cannot both be true");
    return QP_OK;
}

/* The template's variables. Takes over messages. */
static json_t *build_context(const qp_chat *c, json_t *messages, const json_t *tools, const json_t *kwargs,
                             const qp_chat_options *opt, bool generate)
{
    json_t *ctx = json_object();
    int bad = json_object_set_new(ctx, "messages", messages);
    bad |=
        tools ? json_object_set(ctx, "tools", qp_chat_mutable(tools)) : json_object_set_new(ctx, "tools", json_null());
    bad |= opt->documents ? json_object_set(ctx, "documents", qp_chat_mutable(opt->documents))
                          : json_object_set_new(ctx, "documents", json_null());
    for (size_t i = 0; i < N_TOKENS; i++) {
        if (c->tokens[i]) bad |= json_object_set_new(ctx, token_names[i], json_string(c->tokens[i]));
    }
    if (json_is_object(kwargs)) bad |= json_object_update(ctx, qp_chat_mutable(kwargs));
    bad |= json_object_set_new(ctx, "add_generation_prompt", json_boolean(generate));
    if (!bad) return ctx;
    json_decref(ctx);
    return NULL;
}

/* Cuts text at the last place of the tag. */
static qp_status cut_at_tag(qp_buf *text, qp_err *err)
{
    size_t n = sizeof continue_tag - 2, at = text->len; /* without its trailing blank */
    bool found = false;
    while (!found && at > 0) {
        at--;
        found = text->len - at >= n && !memcmp(text->data + at, continue_tag, n);
    }
    if (!found)
        return qp_fail(
            err, QP_EINVAL,
            "continue_final_message is set, but the chat template does not show the final message's content");
    bool kept = at + n < text->len && text->data[at + n] == ' ';
    while (!kept && at > 0 && strchr(" \t\r\n\v\f", text->data[at - 1]) && text->data[at - 1]) at--;
    text->len = at;
    return QP_OK;
}

static qp_status render(const qp_chat *c, const qp_template *t, json_t *messages, const json_t *tools,
                        const json_t *kwargs, const qp_chat_options *opt, bool generate, bool cont, qp_buf *out,
                        qp_err *err)
{
    qp_buf text = {0};
    json_t *ctx = build_context(c, messages, tools, kwargs, opt, generate);
    if (!ctx) return qp_fail(err, QP_ENOMEM, "chat: no memory for the template's variables");
    qp_status st =
        qp_template_render(t, ctx, opt->now_unix ? opt->now_unix : qp_clock_unix(), opt->limits, &text, NULL, err);
    json_decref(ctx);
    if (st == QP_OK && cont) st = cut_at_tag(&text, err);
    if (st == QP_OK && !qp_buf_reserve(out, text.len)) st = qp_buf_check(out, "chat", err);
    if (st == QP_OK) qp_buf_add(out, text.data, text.len);
    qp_buf_deinit(&text);
    return st;
}

qp_status qp_chat_render(const qp_chat *c, const json_t *messages, const json_t *tools, const json_t *kwargs,
                         const qp_chat_options *opt, qp_buf *out, qp_err *err)
{
    bool generate = opt->add_generation_prompt, cont = opt->continue_final_message;
    qp_template *own = NULL;
    const qp_template *t;
    json_t *copy = NULL;
    qp_status st = QP_OK;
    qp_json_init();
    if (tools && json_is_null(tools)) tools = NULL;
    if (tools && !json_is_array(tools)) return qp_fail(err, QP_EINVAL, "tools must be an array");
    QP_TRY(read_kwargs(kwargs, &generate, &cont, err));
    if (opt->template_text) {
        QP_TRY(qp_template_new(&own, opt->template_text, strlen(opt->template_text), NULL, err));
        t = own;
    } else {
        const named *e = NULL;
        QP_TRY(pick(c, tools && json_array_size(tools), &e, err));
        t = e->t;
    }
    bool parts = opt->content_format == QP_CONTENT_PARTS ||
                 (opt->content_format == QP_CONTENT_AUTO && qp_template_wants_content_parts(t));
    st = qp_chat_messages(&copy, messages, parts, cont ? continue_tag : NULL, err);
    if (st == QP_OK) st = render(c, t, copy, tools, kwargs, opt, generate, cont, out, err);
    qp_template_free(own);
    return st;
}
