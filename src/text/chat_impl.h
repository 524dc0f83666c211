/* Inside of chat.h: chat.c and chat_messages.c. */
#ifndef QP_TEXT_CHAT_IMPL_H
#define QP_TEXT_CHAT_IMPL_H

#include "base/err.h"
#include "io/json.h"

#include <stdbool.h>
#include <stdint.h>

/* jansson's functions that share or walk a value want it non-const; the value itself is not changed. */
static inline json_t *qp_chat_mutable(const json_t *v)
{
    return (json_t *)(uintptr_t)v;
}

/* Makes the messages that the template sees, as chat.h describes (*out is the caller's). parts: lists of content parts
 * stay lists. tag (may be NULL) is appended to the content of the final message, which must then have some. */
qp_status qp_chat_messages(json_t **out, const json_t *messages, bool parts, const char *tag, qp_err *err);
#endif
