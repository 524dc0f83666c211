/* Drawing a token from logits. One sampler an engine, one draw state a request. */
#ifndef QP_ENGINE_SAMPLER_H
#define QP_ENGINE_SAMPLER_H

#include "base/rng.h"
#include "engine/sampling.h"
#include "kernels/cpu/cpu_kernels.h"

typedef struct qp_sampler qp_sampler;

/* Work space for rows of vocab logits; k is borrowed. */
qp_status qp_sampler_new(qp_sampler **out, const qp_cpu_kernels *k, uint32_t vocab, qp_err *err);
void qp_sampler_free(qp_sampler *s);
size_t qp_sampler_bytes(uint32_t vocab);

/* The next token. logits [vocab] are not changed. prompt and output are the tokens so far (for penalties). Greedy takes
 * the lowest id among equals. The same rng state and inputs give the same token. NaN logits never win;
 * -1 when there is no finite logit to choose. */
int32_t qp_sampler_draw(qp_sampler *s, const float *logits, const qp_sampling *p, qp_rng *rng, const int32_t *prompt,
                        size_t n_prompt, const int32_t *output, size_t n_output);
#endif
