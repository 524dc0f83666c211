/* Helpers of the C tests: cmocka, opening tiny models and goldens, comparing. */
#ifndef QP_TESTS_QPTEST_H
#define QP_TESTS_QPTEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        if ((call) != QP_OK) fail_msg("%s: %s: %s", #call, qp_status_name(err.status), err.msg);                       \
    } while (0)

static const char *const qp_test_models[] = {"llama",      "smollm2", "llama-exl3", "qwen3",
                                             "qwen3-exl3", "gemma3",  "qwen3_5",    "qwen3_5-exl3"};
enum { QP_N_TEST_MODELS = sizeof qp_test_models / sizeof *qp_test_models };

static inline const char *qp_test_dir(const char *model)
{
    static char path[256];
    snprintf(path, sizeof path, "tests/vectors/models/%s", model);
    return path;
}

static inline qp_model *qp_test_open(const char *model, qp_exl3_arith arith)
{
    qp_model *m = NULL;
    qp_err err;
    CHECK_OK(qp_model_open(&m, qp_test_dir(model), &(qp_model_opts){arith}, &err));
    return m;
}

static inline const qp_tensor *qp_test_golden(const qp_model *m, const char *fmt, unsigned i)
{
    char name[128];
    snprintf(name, sizeof name, fmt, i);
    const qp_tensor *t = qp_checkpoint_find(qp_model_checkpoint(m), name);
    if (!t) fail_msg("golden %s is missing", name);
    return t;
}

/* Largest |a - b| over the largest |b|. */
static inline double qp_test_max_rel(const float *a, const float *b, size_t n)
{
    double diff = 0, max = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= diff)) diff = d;
        if (fabs((double)b[i]) > max) max = fabs((double)b[i]);
    }
    return diff / max;
}

/* A request whose tokens and logits are collected. */
typedef struct qp_collect {
    int32_t *tokens;
    float *logits;        /* [n_tokens, vocab] of every generated token, or NULL */
    float *prompt_logits; /* [n_prompt, vocab] or NULL */
    uint32_t n_tokens, vocab;
    qp_finish why;
    int32_t end_token;
    int finished;
    char error[sizeof((qp_err *)0)->msg];
} qp_collect;

static inline bool qp_collect_token(void *arg, int32_t token, const float *logits)
{
    qp_collect *c = arg;
    if (c->logits) memcpy(c->logits + (size_t)c->n_tokens * c->vocab, logits, c->vocab * sizeof(float));
    c->tokens[c->n_tokens++] = token;
    return true;
}

static inline void qp_collect_prompt(void *arg, uint32_t pos, const float *logits)
{
    qp_collect *c = arg;
    if (c->prompt_logits) memcpy(c->prompt_logits + (size_t)pos * c->vocab, logits, c->vocab * sizeof(float));
}

static inline void qp_collect_finish(void *arg, qp_finish why, int32_t end_token, const qp_err *err)
{
    qp_collect *c = arg;
    c->why = why;
    c->end_token = end_token;
    c->finished++;
    if (err) snprintf(c->error, sizeof c->error, "%s", err->msg);
}

static inline qp_request qp_test_request(qp_collect *c, const int32_t *prompt, size_t n_prompt, uint32_t max_tokens)
{
    return (qp_request){.prompt = prompt,
                        .n_prompt = n_prompt,
                        .max_tokens = max_tokens,
                        .ignore_eos = true,
                        .want_prompt_logits = c->prompt_logits != NULL,
                        .sampling = qp_sampling_default(),
                        .events = {qp_collect_token, qp_collect_prompt, qp_collect_finish, c}};
}

static inline void qp_test_run(qp_engine *e)
{
    size_t left = 1;
    qp_err err;
    for (int i = 0; left; i++) {
        CHECK_OK(qp_engine_step(e, &left, &err));
        if (i > 100000) fail_msg("engine does not finish: %zu requests left", left);
    }
}

#endif
