/* A conversation in the terminal: its messages, and what can be done to them. */
#ifndef QP_CLI_CHAT_SESSION_H
#define QP_CLI_CHAT_SESSION_H

#include "base/err.h"
#include "io/json.h"

#include <stdbool.h>
#include <stddef.h>

/* A zeroed one is empty. */
typedef struct qp_conversation {
    json_t *system; /* string, or NULL */
    json_t *turns;  /* array of {role, content}: user and assistant in turn; NULL: empty */
} qp_conversation;

void qp_conversation_deinit(qp_conversation *c);
size_t qp_conversation_n_turns(const qp_conversation *c);

/* text of n bytes; invalid UTF-8 is replaced. role: "user" or "assistant". */
qp_status qp_conversation_add(qp_conversation *c, const char *role, const char *text, size_t n, qp_err *err);

/* text NULL or empty: no system message. */
qp_status qp_conversation_set_system(qp_conversation *c, const char *text, qp_err *err);

/* Drops the last n turns. */
void qp_conversation_drop(qp_conversation *c, size_t n);

/* Role of the last turn, NULL when there is none; and its text. Borrowed. */
const char *qp_conversation_last_role(const qp_conversation *c);
const char *qp_conversation_last_text(const qp_conversation *c);

/* The messages for a template, system first: a new array. NULL on lack of memory. */
json_t *qp_conversation_messages(const qp_conversation *c);

/* {"messages": [...]} as JSON, written as io/out_file.h does. */
qp_status qp_conversation_save(const qp_conversation *c, const char *path, qp_err *err);

/* Replaces the conversation with that of a file: an object with "messages", or a list of them. Roles other than
 * system (first alone), user and assistant, and contents that are no strings, are errors; c is then unchanged. */
qp_status qp_conversation_load(qp_conversation *c, const char *path, qp_err *err);

#endif
