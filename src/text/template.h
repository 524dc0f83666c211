/* Chat templates: the Jinja2 subset that transformers runs, sandboxed and bounded. */
#ifndef QP_TEXT_TEMPLATE_H
#define QP_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"
#include "io/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_template qp_template;

/* Class of a template error, as the reference environment raises it. */
typedef enum qp_template_error {
    QP_TE_NONE,
    QP_TE_SYNTAX,
    QP_TE_RAISE,
    QP_TE_UNDEFINED,
    QP_TE_SECURITY,
    QP_TE_RUNTIME,
    QP_TE_LIMIT
} qp_template_error;

typedef struct qp_template_limits {
    size_t max_output_bytes; /* 0: 64 MiB */
    uint64_t max_steps;      /* evaluated nodes and work units; 0: 50 million */
    uint32_t max_depth;      /* nested calls of macros and recursive loops; 0: 200. Evaluation may nest 1200 deep. */
    size_t max_memory_bytes; /* of values made while rendering; 0: 256 MiB */
} qp_template_limits;

/* Parses n bytes of template source. A syntax error is QP_EINVAL and sets *kind (may be NULL) to QP_TE_SYNTAX. */
qp_status qp_template_new(qp_template **out, const char *source, size_t n, qp_template_error *kind, qp_err *err);
void qp_template_free(qp_template *t);

/* Renders with the members of the JSON object `context` as variables. Messages' values are read, never changed.
 * now_unix is the time strftime_now sees. The text is appended to out. Errors: QP_EINVAL (raise, undefined, security,
 * runtime; err->msg is the message alone for raise_exception), QP_ELIMIT, QP_ENOMEM; *kind (may be NULL) says which.
 * Thread-safe. */
qp_status qp_template_render(const qp_template *t, const json_t *context, int64_t now_unix,
                             const qp_template_limits *limits, qp_buf *out, qp_template_error *kind, qp_err *err);

/* True when the template loops over message content and so handles a list of parts: vLLM's content format "openai"
 * instead of "string". A template that merely asks whether content is a string (Qwen3's does, and then drops all else)
 * does not count: such a one is given text. */
bool qp_template_wants_content_parts(const qp_template *t);
#endif
