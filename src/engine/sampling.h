/* Sampling: from a row of logits to a token. */
#ifndef QP_ENGINE_SAMPLING_H
#define QP_ENGINE_SAMPLING_H

#include "base/err.h"
#include "base/rng.h"

#include <stddef.h>
#include <stdint.h>

typedef struct qp_logit_bias {
    int32_t token;
    float bias;
} qp_logit_bias;

/* The order is vLLM's: logit_bias, repetition, frequency and presence penalty, temperature, min_p, top_k, top_p.
 * qp_sampling_default() gives values that change nothing. */
typedef struct qp_sampling {
    float temperature;                         /* 0: greedy, the lowest id on ties */
    int32_t top_k;                             /* 0 or -1: off */
    float top_p;                               /* 1: off */
    float min_p;                               /* 0: off */
    float repetition_penalty;                  /* 1: off; over prompt and output */
    float frequency_penalty, presence_penalty; /* 0: off; over the output */
    uint64_t seed;
    const qp_logit_bias *logit_bias; /* borrowed for the life of the request */
    size_t n_logit_bias;
} qp_sampling;

qp_sampling qp_sampling_default(void);

/* QP_EINVAL naming the field and its range when a value is out of range (vLLM's ranges). */
qp_status qp_sampling_check(const qp_sampling *p, uint32_t vocab, qp_err *err);
#endif
