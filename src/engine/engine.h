/* The engine: requests in, tokens out, many sequences in one step.
 *
 * One thread owns an engine and calls everything here. qp_engine_step runs one forward pass over a ragged batch: a
 * decode row for each running sequence and prefill chunks of waiting ones, at most max_num_batched_tokens rows. Greedy
 * results do not depend on what else is in the batch, on chunking, on the page size or on the number of threads. */
#ifndef QP_ENGINE_ENGINE_H
#define QP_ENGINE_ENGINE_H

#include "engine/sampling.h"
#include "kernels/cpu/cpu_kernels.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_engine qp_engine;

typedef struct qp_engine_opts {
    uint32_t n_threads;              /* 0: processors of this process */
    uint32_t page_size;              /* tokens a page; 0: 32 */
    uint32_t max_num_seqs;           /* running sequences; 0: 16 */
    uint32_t max_num_batched_tokens; /* rows a step; 0: 512 */
    uint32_t max_model_len;          /* tokens a sequence; 0: the model's max_position, at most 8192 */
    uint64_t kv_tokens;              /* tokens of all sequences together; 0: max_num_seqs * max_model_len */
    bool no_prompt_logits;           /* no request will want prompt logits: saves scratch for rows of logits */
    qp_wtype kv_type;                /* QP_W_F32 (exact, default), QP_W_F16, QP_W_BF16 */
    const char *cpu_level;           /* NULL: the QP_CPU variable, else the best */
} qp_engine_opts;

/* What an engine takes, in bytes; printed by `plan` before a large load. */
typedef struct qp_plan {
    size_t weights_mapped; /* file pages that a pass reads */
    size_t weights_heap;
    size_t kv;         /* all pages */
    size_t state;      /* recurrent state slots */
    size_t scratch;    /* step scratch, per-thread kernel scratch, logits, batch tables */
    size_t page_bytes; /* of one page, all layers of all groups */
    uint64_t n_pages;
} qp_plan;

/* Fills zero fields of opts with their defaults for this model and checks ranges (QP_EINVAL by name). */
qp_status qp_engine_opts_resolve(qp_engine_opts *opts, const qp_model *m, qp_err *err);

/* Computes the plan without allocating anything large. opts must be resolved. */
qp_status qp_engine_plan(const qp_model *m, const qp_engine_opts *opts, qp_plan *out, qp_err *err);

/* m is borrowed and must outlive the engine. QP_ENOMEM names what was asked for, what is free, and which option lowers
 * it. */
qp_status qp_engine_new(qp_engine **out, const qp_model *m, const qp_engine_opts *opts, qp_err *err);
void qp_engine_free(qp_engine *e);
const qp_engine_opts *qp_engine_get_opts(const qp_engine *e);
const char *qp_engine_cpu_level(const qp_engine *e);

typedef enum qp_finish {
    QP_FINISH_STOP,   /* an end token (not given to on_token when it is one of the model's), or the callback said so */
    QP_FINISH_LENGTH, /* max_tokens or max_model_len */
    QP_FINISH_CANCELLED,
    QP_FINISH_ERROR /* err says what */
} qp_finish;

/* Called on the engine's thread inside qp_engine_step. Pointers are valid during the call. */
typedef struct qp_request_events {
    /* A new token. logits [vocab] are those it was drawn from, before any processing. Return false to stop here. */
    bool (*on_token)(void *arg, int32_t token, const float *logits);
    /* Logits of prompt position pos (0-based), only when want_prompt_logits; rising pos. May be NULL. */
    void (*on_prompt_logits)(void *arg, uint32_t pos, const float *logits);
    /* The last call for a request. end_token: the token that stopped it, or -1. err is set for QP_FINISH_ERROR alone.
     */
    void (*on_finish)(void *arg, qp_finish why, int32_t end_token, const qp_err *err);
    void *arg;
} qp_request_events;

typedef struct qp_request {
    const int32_t *prompt; /* copied */
    size_t n_prompt;       /* at least 1 */
    uint32_t max_tokens;   /* 0 with want_prompt_logits: prompt only */
    bool ignore_eos;       /* end tokens are tokens like others */
    bool want_prompt_logits;
    const int32_t *stop_ids; /* further end tokens; copied */
    size_t n_stop_ids;
    qp_sampling sampling; /* logit_bias is copied */
    qp_request_events events;
} qp_request;

/* Queues a request. *id identifies it for qp_engine_cancel. Refused by name: token ids outside the vocabulary, an empty
 * prompt, n_prompt + max_tokens over max_model_len, sampling out of range. */
qp_status qp_engine_submit(qp_engine *e, const qp_request *r, uint64_t *id, qp_err *err);

/* The request leaves before the next step; on_finish is called with QP_FINISH_CANCELLED. Unknown ids are ignored. */
void qp_engine_cancel(qp_engine *e, uint64_t id);

/* One step. *n_left is the number of unfinished requests afterwards. A failure here is one of the engine
 * (QP_EINTERNAL); what goes wrong with one request ends that request alone through on_finish. */
qp_status qp_engine_step(qp_engine *e, size_t *n_left, qp_err *err);

/* Calls trace with intermediate values of every following step (kernels/step.h); NULL: off. For tests and tools. */
void qp_engine_set_trace(qp_engine *e, void (*trace)(void *arg, const char *what, uint32_t il, qp_vec x), void *arg);

typedef struct qp_engine_stats {
    uint64_t n_steps, n_prefill_tokens, n_decode_tokens;
    uint64_t step_ns;    /* time inside steps */
    uint64_t forward_ns; /* time inside the model */
    uint64_t n_running, n_waiting, n_pages_free, n_pages_total, n_preemptions;
} qp_engine_stats;

void qp_engine_get_stats(const qp_engine *e, qp_engine_stats *out);

#endif
