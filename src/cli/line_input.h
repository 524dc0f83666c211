/* Lines from the user: with editing and a history file on a terminal, plain otherwise. */
#ifndef QP_CLI_LINE_INPUT_H
#define QP_CLI_LINE_INPUT_H

#include "base/buf.h"
#include "base/err.h"

typedef struct qp_line_input qp_line_input;

typedef enum qp_line_result {
    QP_LINE_MESSAGE,
    QP_LINE_END,         /* end of input (Ctrl-D) */
    QP_LINE_INTERRUPTED, /* Ctrl-C */
    QP_LINE_FAILED       /* err says what */
} qp_line_result;

/* A note when the history could not be written to path. Nothing is created or changed. */
void qp_line_history_check(const char *path);

/* history_path: read now and written by _free, readable by the user alone; NULL: none. A history that cannot be read
 * is as none. Editing and prompts are used when stdin and stdout are terminals. */
qp_status qp_line_input_new(qp_line_input **out, const char *history_path, qp_err *err);
void qp_line_input_free(qp_line_input *in);

/* Reads one message into out (cleared first), without its final newline. A line that ends in a backslash goes on in the
 * next one; a line that begins with """ goes on to the line that ends with """, the quotes left out. A message is at
 * most 16 MiB. */
qp_line_result qp_line_input_read(qp_line_input *in, const char *prompt, qp_buf *out, qp_err *err);

#endif
