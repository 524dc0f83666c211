/* Running requests to their end: submit, step until all are done, stop on Ctrl-C or when nobody reads the output. */
#ifndef QP_CLI_RUN_H
#define QP_CLI_RUN_H

#include "base/err.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One sequence. The caller sets the first block and zeroes the rest; qp_run_seq_deinit frees it. */
typedef struct qp_run_seq {
    const int32_t *prompt; /* borrowed */
    size_t n_prompt;
    void (*on_token)(void *arg, int32_t token); /* may be NULL */
    void *arg;

    qp_ids out; /* new tokens, the end token not among them unless end tokens are ignored */
    bool done;
    qp_finish finish;
    int32_t end_token;
    qp_err err;                              /* for QP_FINISH_ERROR */
    uint64_t submit_ns, first_ns, finish_ns; /* first_ns: first token, 0 while there is none */
    uint64_t id;
} qp_run_seq;

void qp_run_seq_deinit(qp_run_seq *s);

typedef struct qp_run_stats {
    size_t n_prompt, n_new;     /* tokens of all sequences */
    double prefill_s, decode_s; /* start to the last first token; from there to the end */
    double prefill_rate;        /* prompt tokens a second */
    double decode_rate;         /* new tokens after each sequence's first, a second */
} qp_run_stats;

/* Submits the n sequences with the fields of base (prompt and events are set here) and steps until all are done.
 * Returns QP_ECANCELLED after Ctrl-C (what was made until then is in the sequences) and QP_EIO with an empty message
 * when stdout failed. A sequence's own failure is in its err. */
qp_status qp_run_all(qp_engine *e, qp_run_seq *seqs, size_t n, const qp_request *base, qp_run_stats *stats,
                     qp_err *err);

/* "12 prompt tokens, 345.6 tokens/s; 64 new tokens, 78.9 tokens/s" in out[cap]; returns out. */
char *qp_run_stats_text(const qp_run_stats *s, char *out, size_t cap);

/* "stop", "length", "cancelled", "error". */
const char *qp_finish_name(qp_finish f);

#endif
