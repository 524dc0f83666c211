/* Chat: from OpenAI-style messages to the prompt text, by the model's chat template.
 *
 * Finds the template of a model folder, reads the tokenizer's special tokens, brings messages into the form that
 * templates expect and renders. It knows nothing of HTTP or tokens; encode the result with add_special = false, since
 * the template has put bos itself. Facts: formats/chat_templates.md.
 *
 *     qp_chat *chat;
 *     QP_TRY(qp_chat_open(&chat, model_dir, NULL, err));
 *     qp_chat_options opt = {.add_generation_prompt = true};
 *     QP_TRY(qp_chat_render(chat, messages, tools, kwargs, &opt, &prompt, err));
 *     qp_chat_free(chat);
 */
#ifndef QP_TEXT_CHAT_H
#define QP_TEXT_CHAT_H

#include "base/buf.h"
#include "base/err.h"
#include "text/template.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct qp_chat qp_chat;

/* How message content given as a list of parts reaches the template. */
typedef enum qp_content_format {
    QP_CONTENT_AUTO,   /* as the template wants it (qp_template_wants_content_parts) */
    QP_CONTENT_STRING, /* text parts joined with newlines; an image is an error */
    QP_CONTENT_PARTS   /* a list of {"type": "text", "text": ...} and {"type": "image"} */
} qp_content_format;

typedef struct qp_chat_options {
    bool add_generation_prompt;
    bool continue_final_message; /* not together with add_generation_prompt */
    qp_content_format content_format;
    const char *template_text;        /* a request's own template; NULL: the model's. The caller checks that it may. */
    const json_t *documents;          /* NULL: None */
    int64_t now_unix;                 /* of strftime_now; 0: qp_clock_unix() */
    const qp_template_limits *limits; /* NULL: the defaults of template.h */
} qp_chat_options;

/* Opens the template of the model in folder dir. `override` (may be NULL) comes first: the path of a template file, or
 * the template itself (text with "{{", "{%" or a newline in it). Then, in this order: dir/chat_template.jinja,
 * dir/chat_template.json, "chat_template" of dir/tokenizer_config.json (a string, or a list of {name, template});
 * dir/additional_chat_templates/NAME.jinja adds named ones. Special tokens are read from dir/tokenizer_config.json.
 * dir may be NULL when an override is given.
 *
 * A model without a template, or with one that does not parse, opens all the same: completions do not need it. Ask
 * qp_chat_check. Fails when a file cannot be read (QP_EIO), is not the JSON it should be (QP_EFORMAT), when the
 * override is at fault (QP_EINVAL), or for lack of memory. */
qp_status qp_chat_open(qp_chat **out, const char *dir, const char *override, qp_err *err);
void qp_chat_free(qp_chat *c);

/* QP_OK when the default template can be used; otherwise QP_EINVAL with the reason (none there, or its syntax error).
 */
qp_status qp_chat_check(const qp_chat *c, qp_err *err);

/* Text of the default template, NULL when there is none, and where it came from ("chat_template.jinja"). Borrowed. */
const char *qp_chat_template_text(const qp_chat *c);
const char *qp_chat_template_origin(const qp_chat *c);

/* A special token as tokenizer_config.json spells it: name is "bos_token", "eos_token", "pad_token", "unk_token",
 * "cls_token", "sep_token" or "mask_token". NULL when the model has none. Borrowed. */
const char *qp_chat_special_token(const qp_chat *c, const char *name);

/* Renders messages (a JSON array of objects with a string "role") to text appended to out.
 *
 * tools: a JSON array, or NULL (None in the template); a template named "tool_use" is taken when tools are given.
 * kwargs: chat_template_kwargs, a JSON object or NULL; its members become variables and win over special tokens, tools
 * and documents; add_generation_prompt and continue_final_message in it win over opt; messages, chat_template and
 * tokenize are refused. None of the JSON is changed; no other thread may change it meanwhile.
 *
 * The template sees copies of the messages in which
 * - tool_calls[].function.arguments is an object (parsed from its JSON text; "" and "null" give {});
 * - members that are null are left out, but for content; an empty tool_calls is left out as well;
 * - reasoning_content and thinking hold the reasoning given under reasoning_content, thinking or reasoning;
 * - content is a string, null, or a list of parts as opt->content_format says.
 *
 * With continue_final_message the text ends with the final message's content; what the template puts after it is cut.
 *
 * QP_EINVAL: malformed messages, or an error of the template (raise_exception: the message alone); QP_EUNSUPPORTED: a
 * content part that cannot be shown; QP_ELIMIT; QP_ENOMEM. Nothing is added to out then. Thread-safe on one chat. */
qp_status qp_chat_render(const qp_chat *c, const json_t *messages, const json_t *tools, const json_t *kwargs,
                         const qp_chat_options *opt, qp_buf *out, qp_err *err);
#endif
