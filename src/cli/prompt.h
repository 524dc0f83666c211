/* Prompts of generate, plan and bench: the options that give them, and turning them into token ids. */
#ifndef QP_CLI_PROMPT_H
#define QP_CLI_PROMPT_H

#include "base/err.h"
#include "cli/load.h"
#include "cli/options.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -p, --system, --raw, --prompt-ids, --prompt-ids-file, --max-tokens. */
typedef struct qp_prompt_args {
    const char *text, *system, *ids, *ids_file;
    bool raw;
    uint32_t max_tokens; /* 0: not given */
} qp_prompt_args;

qp_opt_group qp_prompt_group(qp_prompt_args *args);

/* True when exactly one of -p, --prompt-ids and --prompt-ids-file is given, or none and `optional`; otherwise a usage
 * error of the command is printed. */
bool qp_prompt_args_check(const qp_prompt_args *args, bool optional, const char *command);

/* The prompts as ids. A zeroed one is empty. */
typedef struct qp_prompts {
    qp_ids *seqs; /* [n] */
    size_t n, cap;
    size_t longest, total; /* tokens of the longest one, of all */
} qp_prompts;

void qp_prompts_deinit(qp_prompts *p);

/* Reads what args ask for. -p goes through the model's chat template (system first) unless --raw was given or the
 * folder has none, which a note says. tokenizer may be NULL when no text is given. */
qp_status qp_prompts_read(qp_prompts *out, const qp_prompt_args *args, const qp_tokenizer *tokenizer, const char *dir,
                          qp_err *err);

/* Renders messages (a JSON array of {role, content}) by the model's template, an answer to come, and appends the ids.
 */
qp_status qp_messages_encode(const qp_chat *chat, const qp_tokenizer *tokenizer, const json_t *messages, qp_ids *out,
                             qp_err *err);

/* What running them needs. *max_tokens is the number of new tokens; without --max-tokens, qp_default_max_tokens. */
qp_need qp_prompts_need(const qp_prompts *p, const qp_prompt_args *args, const qp_engine_args *engine,
                        const qp_model_info *info, uint32_t *max_tokens);

#endif
