/* Drawing a token: see sampler.h.
 *
 * Candidates are kept as (logit, id) pairs. Only when top_k, top_p or min_p asks for it are they ordered, and then only
 * as far as needed: min_p and top_p look at a heap from the top, so a peaked distribution costs a few pops, not a sort.
 */
#include "engine/sampler.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct qp_sampler {
    const qp_cpu_kernels *k;
    uint32_t vocab;
    float *logits;    /* [vocab] after penalties and temperature */
    candidate *heap;  /* [vocab] */
    candidate *top;   /* [vocab] */
    double *weights;  /* [vocab] */
    uint32_t *counts; /* [vocab] zero between draws */
};

size_t qp_sampler_bytes(uint32_t vocab)
{
    return (size_t)vocab * (sizeof(float) + 2 * sizeof(candidate) + sizeof(double) + sizeof(uint32_t));
}

qp_status qp_sampler_new(qp_sampler **out, const qp_cpu_kernels *k, uint32_t vocab, qp_err *err)
{
    qp_sampler *s = NULL;
    QP_TRY(qp_new(&s, 1, sizeof *s, "sampler", err));
    s->k = k;
    s->vocab = vocab;
    qp_status st = qp_new(&s->logits, vocab, sizeof *s->logits, "sampler", err);
    if (st == QP_OK) st = qp_new(&s->heap, vocab, sizeof *s->heap, "sampler", err);
    if (st == QP_OK) st = qp_new(&s->top, vocab, sizeof *s->top, "sampler", err);
    if (st == QP_OK) st = qp_new(&s->weights, vocab, sizeof *s->weights, "sampler", err);
    if (st == QP_OK) st = qp_new(&s->counts, vocab, sizeof *s->counts, "sampler", err);
    if (st != QP_OK) {
        qp_sampler_free(s);
        return st;
    }
    *out = s;
    return QP_OK;
}

void qp_sampler_free(qp_sampler *s)
{
    if (!s) return;
    qp_free(s->logits);
    qp_free(s->heap);
    qp_free(s->top);
    qp_free(s->weights);
    qp_free(s->counts);
    qp_free(s);
}

static bool plain(const qp_sampling *p)
{
    return !p->n_logit_bias && fabsf(p->repetition_penalty - 1) <= 0 && fabsf(p->frequency_penalty) <= 0 &&
           fabsf(p->presence_penalty) <= 0;
}

static void repeat_once(qp_sampler *s, const qp_sampling *p, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float *l = &s->logits[ids[i]];
        if (s->counts[ids[i]]++) continue; /* each distinct token once */
        *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
    }
}

static void penalize(qp_sampler *s, const qp_sampling *p, const int32_t *prompt, size_t n_prompt, const int32_t *output,
                     size_t n_output)
{
    for (size_t i = 0; i < p->n_logit_bias; i++) s->logits[p->logit_bias[i].token] += p->logit_bias[i].bias;
    if (fabsf(p->repetition_penalty - 1) > 0) {
        repeat_once(s, p, prompt, n_prompt);
        repeat_once(s, p, output, n_output);
        for (size_t i = 0; i < n_prompt; i++) s->counts[prompt[i]] = 0;
        for (size_t i = 0; i < n_output; i++) s->counts[output[i]] = 0;
    }
    for (size_t i = 0; i < n_output; i++) s->counts[output[i]]++;
    for (size_t i = 0; i < n_output; i++) {
        uint32_t n = s->counts[output[i]];
        if (!n) continue;
        s->logits[output[i]] -= p->frequency_penalty * (float)n + p->presence_penalty;
        s->counts[output[i]] = 0;
    }
}

/* Order of candidates: greater logit first, then lower id. */
static bool before(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit >= b.logit && a.id < b.id);
}

static void sift_down(candidate *h, size_t n, size_t i)
{
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && before(h[c + 1], h[c])) c++;
        if (!before(h[c], h[i])) return;
        candidate t = h[i];
        h[i] = h[c];
        h[c] = t;
    }
}

static candidate heap_pop(candidate *h, size_t *n)
{
    candidate top = h[0];
    h[0] = h[--*n];
    sift_down(h, *n, 0);
    return top;
}

/* Draws an index of weights in proportion; total > 0. */
static size_t draw_weight(const double *w, size_t n, double total, qp_rng *rng)
{
    double at = qp_rng_unit(rng) * total;
    for (size_t i = 0; i + 1 < n; i++) {
        if (at < w[i]) return i;
        at -= w[i];
    }
    return n - 1;
}

/* Every token is a candidate. */
static int32_t draw_all(qp_sampler *s, const float *l, float max, double scale, qp_rng *rng)
{
    double total = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        double w = exp(((double)l[i] - (double)max) * scale);
        total += s->weights[i] = w >= 0 ? w : 0; /* NaN: 0 */
    }
    size_t i = draw_weight(s->weights, s->vocab, total, rng);
    while (i > 0 && !(s->weights[i] > 0)) i--; /* the last index may have weight 0 */
    return (int32_t)i;
}

static int32_t draw_top(qp_sampler *s, const float *l, const qp_sampling *p, float max, double scale, qp_rng *rng)
{
    size_t n = 0, n_top = 0, k = p->top_k > 0 ? (size_t)p->top_k : s->vocab;
    double all = 0, kept = 0;
    double floor_w = (double)p->min_p; /* weights are relative to the greatest, whose weight is 1 */
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (!(l[i] >= -INFINITY)) continue;
        s->heap[n++] = (candidate){l[i], (int32_t)i};
        if (p->top_k > 0) continue;
        double w = exp(((double)l[i] - (double)max) * scale);
        all += w >= floor_w ? w : 0;
    }
    for (size_t i = n / 2; i-- > 0;) sift_down(s->heap, n, i);
    if (p->top_k > 0) { /* top_p is taken of what top_k leaves */
        while (n && n_top < k) {
            s->top[n_top] = heap_pop(s->heap, &n);
            double w = exp(((double)s->top[n_top].logit - (double)max) * scale);
            if (w < floor_w) break;
            all += s->weights[n_top++] = w;
        }
        n = n_top;
    }
    size_t n_kept = 0;
    while (n_kept < (p->top_k > 0 ? n_top : s->vocab)) {
        if (p->top_k <= 0) {
            if (!n) break;
            s->top[n_kept] = heap_pop(s->heap, &n);
            s->weights[n_kept] = exp(((double)s->top[n_kept].logit - (double)max) * scale);
        }
        if (n_kept && (s->weights[n_kept] < floor_w || kept >= (double)p->top_p * all)) break;
        kept += s->weights[n_kept++];
    }
    return s->top[draw_weight(s->weights, n_kept, kept, rng)].id;
}

int32_t qp_sampler_draw(qp_sampler *s, const float *logits, const qp_sampling *p, qp_rng *rng, const int32_t *prompt,
                        size_t n_prompt, const int32_t *output, size_t n_output)
{
    const float *l = logits;
    if (!plain(p)) {
        memcpy(s->logits, logits, s->vocab * sizeof *logits);
        penalize(s, p, prompt, n_prompt, output, n_output);
        l = s->logits;
    }
    size_t best = s->k->argmax(l, s->vocab);
    if (!isfinite(l[best])) return -1;
    if (!(p->temperature > 0) || p->top_k == 1) return (int32_t)best;
    double scale = 1 / (double)p->temperature;
    if (p->top_k <= 0 && p->top_p >= 1 && p->min_p <= 0) return draw_all(s, l, l[best], scale, rng);
    return draw_top(s, l, p, l[best], scale, rng);
}
