/* Prompts: see prompt.h. */
#include "cli/prompt.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "cli/chat_session.h"
#include "cli/term.h"
#include "io/map.h"

#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(qp_prompt_args, field)
static const qp_opt options[] = {
    {"prompt", 'p', QP_OPT_STR, "TEXT", AT(text), 0, 0, NULL, "the prompt", NULL},
    {"system", 0, QP_OPT_STR, "TEXT", AT(system), 0, 0, NULL, "a system message before it", NULL},
    {"raw", 0, QP_OPT_FLAG, NULL, AT(raw), 0, 0, NULL, "continue TEXT as it is, without the chat template", NULL},
    {"prompt-ids", 0, QP_OPT_STR, "LIST", AT(ids), 0, 0, NULL, "the prompt as token ids, 1,2,3", NULL},
    {"prompt-ids-file", 0, QP_OPT_STR, "FILE", AT(ids_file), 0, 0, NULL,
     "several prompts, a JSON list of ids a line, run as one batch", NULL},
    {"max-tokens", 'n', QP_OPT_U32, "N", AT(max_tokens), 1, 1 << 30, NULL,
     "new tokens at most; default: what fits, at most 512", NULL},
};
#undef AT

qp_opt_group qp_prompt_group(qp_prompt_args *args)
{
    return (qp_opt_group){"prompt", options, sizeof options / sizeof options[0], args};
}

bool qp_prompt_args_check(const qp_prompt_args *args, bool optional, const char *command)
{
    int n = (args->text != NULL) + (args->ids != NULL) + (args->ids_file != NULL);
    if (n > 1 || (n == 0 && !optional)) {
        qp_usage_error(command, "wanted one of -p TEXT, --prompt-ids LIST and --prompt-ids-file FILE");
        return false;
    }
    if ((args->system || args->raw) && !args->text) {
        qp_usage_error(command, "--%s goes with -p TEXT", args->system ? "system" : "raw");
        return false;
    }
    if (args->system && args->raw) {
        qp_usage_error(command, "--system needs the chat template, --raw leaves it out");
        return false;
    }
    return true;
}

void qp_prompts_deinit(qp_prompts *p)
{
    for (size_t i = 0; i < p->n; i++) qp_ids_deinit(&p->seqs[i]);
    qp_free(p->seqs);
    *p = (qp_prompts){0};
}

/* Takes over ids. */
static qp_status add(qp_prompts *p, qp_ids *ids, qp_err *err)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 8;
        qp_ids *seqs = qp_realloc(p->seqs, p->cap * sizeof *seqs, cap * sizeof *seqs);
        if (!seqs) return qp_fail(err, QP_ENOMEM, "no memory for %zu prompts", cap);
        p->seqs = seqs;
        p->cap = cap;
    }
    if (ids->n > p->longest) p->longest = ids->n;
    p->total += ids->n;
    p->seqs[p->n++] = *ids;
    *ids = (qp_ids){0};
    return QP_OK;
}

static qp_status read_line(qp_prompts *out, const char *line, size_t len, const char *where, qp_err *err)
{
    qp_ids ids = {0};
    const char *nul = memchr(line, 0, len);
    if (nul)
        return qp_fail(err, QP_EINVAL, "%s: a NUL at byte %zu, wanted a list of token ids", where,
                       (size_t)(nul - line));
    char *text = qp_strndup(line, len);
    if (!text) return qp_fail(err, QP_ENOMEM, "%s: no memory for %zu bytes", where, len);
    qp_status st = qp_ids_parse(text, where, &ids, err);
    if (st == QP_OK) st = add(out, &ids, err);
    qp_ids_deinit(&ids);
    qp_free(text);
    return st;
}

static qp_status read_file(qp_prompts *out, const char *path, qp_err *err)
{
    qp_map map;
    QP_TRY(qp_map_open(&map, path, err));
    qp_status st = QP_OK;
    size_t pos = 0, line = 0;
    while (pos < map.len && st == QP_OK) {
        const char *start = (const char *)map.data + pos;
        const char *end = memchr(start, '\n', map.len - pos);
        size_t n = end ? (size_t)(end - start) : map.len - pos;
        pos += n + 1;
        line++;
        if (qp_is_blank(start, n)) continue;
        char where[512];
        snprintf(where, sizeof where, "%.400s, line %zu", path, line);
        st = read_line(out, start, n, where, err);
    }
    qp_map_close(&map);
    if (st == QP_OK && !out->n) st = qp_fail(err, QP_EINVAL, "%s: no prompts, wanted a JSON list of ids a line", path);
    return st;
}

qp_status qp_messages_encode(const qp_chat *chat, const qp_tokenizer *tokenizer, const json_t *messages, qp_ids *out,
                             qp_err *err)
{
    qp_chat_options opt = {.add_generation_prompt = true};
    qp_buf text = {0};
    qp_status st = qp_chat_render(chat, messages, NULL, NULL, &opt, &text, err);
    if (st != QP_OK)
        qp_wrap(err, "chat template");
    else
        st = qp_tokenizer_encode(tokenizer, text.data ? text.data : "", text.len, false, out, err);
    qp_buf_deinit(&text);
    return st;
}

/* One user message, and a system message before it where one is given. */
static qp_status encode_question(const qp_chat *chat, const qp_prompt_args *args, const qp_tokenizer *tokenizer,
                                 qp_ids *out, qp_err *err)
{
    qp_conversation talk = {NULL, NULL};
    json_t *messages = NULL;
    qp_status st;
    QP_TRY_OUT(qp_conversation_set_system(&talk, args->system, err));
    QP_TRY_OUT(qp_conversation_add(&talk, "user", args->text, strlen(args->text), err));
    messages = qp_conversation_messages(&talk);
    if (!messages) QP_TRY_OUT(qp_fail(err, QP_ENOMEM, "no memory for the prompt"));
    st = qp_messages_encode(chat, tokenizer, messages, out, err);
out:
    json_decref(messages);
    qp_conversation_deinit(&talk);
    return st;
}

static qp_status encode_text(const qp_prompt_args *args, const qp_tokenizer *tokenizer, const char *dir, qp_ids *out,
                             qp_err *err)
{
    qp_chat *chat = NULL;
    qp_status st = QP_OK;
    if (!args->raw) QP_TRY(qp_chat_open(&chat, dir, NULL, err));
    if (chat && qp_chat_template_text(chat)) {
        st = qp_chat_check(chat, err);
        if (st != QP_OK)
            qp_wrap(err, "%s (--raw does without)", dir);
        else
            st = encode_question(chat, args, tokenizer, out, err);
    } else if (args->system) {
        st = qp_fail(err, QP_EINVAL, "--system: %s has no chat template to put it in", dir);
    } else {
        if (!args->raw) qp_note("%s has no chat template: the text is continued as it is (as with --raw)", dir);
        st = qp_tokenizer_encode(tokenizer, args->text, strlen(args->text), true, out, err);
    }
    qp_chat_free(chat);
    return st;
}

static qp_status read_text(qp_prompts *out, const qp_prompt_args *args, const qp_tokenizer *tokenizer, const char *dir,
                           qp_err *err)
{
    qp_ids ids = {0};
    qp_status st = encode_text(args, tokenizer, dir, &ids, err);
    if (st == QP_OK && !ids.n) st = qp_fail(err, QP_EINVAL, "-p: an empty prompt, wanted at least one token");
    if (st == QP_OK) st = add(out, &ids, err);
    qp_ids_deinit(&ids);
    return st;
}

qp_status qp_prompts_read(qp_prompts *out, const qp_prompt_args *args, const qp_tokenizer *tokenizer, const char *dir,
                          qp_err *err)
{
    qp_json_init();
    if (args->text) return read_text(out, args, tokenizer, dir, err);
    if (args->ids_file) return read_file(out, args->ids_file, err);
    return read_line(out, args->ids, strlen(args->ids), "--prompt-ids", err);
}

qp_need qp_prompts_need(const qp_prompts *p, const qp_prompt_args *args, const qp_engine_args *engine,
                        const qp_model_info *info, uint32_t *max_tokens)
{
    *max_tokens = args->max_tokens ? args->max_tokens : qp_default_max_tokens(info, engine, p->longest);
    return (qp_need){p->n, p->longest + *max_tokens, p->total, false};
}
