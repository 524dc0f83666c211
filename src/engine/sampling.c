/* Sampling parameters: defaults and ranges. See sampling.h. */
#include "engine/sampling.h"

#include <math.h>

qp_sampling qp_sampling_default(void)
{
    return (qp_sampling){.temperature = 0, .top_k = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1};
}

static qp_status bad(qp_err *err, const char *field, double v, const char *range)
{
    return qp_fail(err, QP_EINVAL, "%s: %g, must be %s", field, v, range);
}

qp_status qp_sampling_check(const qp_sampling *p, uint32_t vocab, qp_err *err)
{
    if (!(p->temperature >= 0) || isinf(p->temperature))
        return bad(err, "temperature", (double)p->temperature, "0 or more");
    if (p->top_k < -1) return bad(err, "top_k", p->top_k, "-1, 0 (off) or at least 1");
    if (!(p->top_p > 0 && p->top_p <= 1)) return bad(err, "top_p", (double)p->top_p, "in (0, 1]");
    if (!(p->min_p >= 0 && p->min_p <= 1)) return bad(err, "min_p", (double)p->min_p, "in [0, 1]");
    if (!(p->repetition_penalty > 0) || isinf(p->repetition_penalty))
        return bad(err, "repetition_penalty", (double)p->repetition_penalty, "greater than 0");
    if (!(fabsf(p->frequency_penalty) <= 2))
        return bad(err, "frequency_penalty", (double)p->frequency_penalty, "in [-2, 2]");
    if (!(fabsf(p->presence_penalty) <= 2))
        return bad(err, "presence_penalty", (double)p->presence_penalty, "in [-2, 2]");
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        if (p->logit_bias[i].token < 0 || (uint32_t)p->logit_bias[i].token >= vocab)
            return qp_fail(err, QP_EINVAL, "logit_bias: token %d, must be in 0..%u", p->logit_bias[i].token, vocab - 1);
        if (!(fabsf(p->logit_bias[i].bias) <= 100))
            return bad(err, "logit_bias", (double)p->logit_bias[i].bias, "in [-100, 100]");
    }
    return QP_OK;
}
