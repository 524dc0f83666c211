/* The sampler against distributions computed here: greedy, temperature, top_k, top_p, min_p, penalties, bias, seeds. */
#include "qptest.h"

#include "engine/sampler.h"

enum { VOCAB = 50, DRAWS = 20000 };

typedef struct rig {
    qp_sampler *s;
    float logits[VOCAB];
} rig;

static int setup(void **state)
{
    static rig r;
    qp_err err;
    qp_cpu_features have;
    const qp_cpu_kernels *k = NULL;
    qp_rng rng = {3};
    qp_cpu_features_read(&have);
    if (qp_cpu_kernels_select(&k, &have, NULL, &err) != QP_OK || qp_sampler_new(&r.s, k, VOCAB, &err) != QP_OK)
        return -1;
    for (int i = 0; i < VOCAB; i++) r.logits[i] = 2 * qp_rng_normal(&rng);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    qp_sampler_free(((rig *)*state)->s);
    return 0;
}

/* Probabilities that p asks for, by sorting. */
static void expected(const float *logits, const qp_sampling *p, double *out)
{
    int order[VOCAB];
    double w[VOCAB], total = 0, all = 0, kept = 0;
    for (int i = 0; i < VOCAB; i++) {
        int k = i;
        for (; k > 0 && logits[order[k - 1]] < logits[i]; k--) order[k] = order[k - 1];
        order[k] = i;
        out[i] = 0;
    }
    int n = p->top_k > 0 && p->top_k < VOCAB ? p->top_k : VOCAB, n_kept = 0;
    for (int i = 0; i < n; i++) {
        w[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / (double)p->temperature);
        if (w[i] < (double)p->min_p) {
            n = i;
            break;
        }
        all += w[i];
    }
    for (; n_kept < n && (n_kept == 0 || kept < (double)p->top_p * all); n_kept++) kept += w[n_kept];
    for (int i = 0; i < n_kept; i++) total += w[i];
    for (int i = 0; i < n_kept; i++) out[order[i]] = w[i] / total;
}

static void check_distribution(rig *r, qp_sampling p)
{
    double want[VOCAB];
    int counts[VOCAB] = {0};
    qp_rng rng = {11};
    expected(r->logits, &p, want);
    for (int i = 0; i < DRAWS; i++) counts[qp_sampler_draw(r->s, r->logits, &p, &rng, NULL, 0, NULL, 0)]++;
    for (int i = 0; i < VOCAB; i++) {
        double sigma = sqrt(want[i] * (1 - want[i]) * DRAWS);
        if (want[i] <= 0 && counts[i]) fail_msg("token %d drawn %d times, excluded", i, counts[i]);
        if (fabs(counts[i] - want[i] * DRAWS) > 5 * sigma + 1)
            fail_msg("token %d drawn %d times, expected %.1f", i, counts[i], want[i] * DRAWS);
    }
}

static void test_distributions(void **state)
{
    const struct {
        float t, top_p, min_p;
        int k;
    } c[] = {{1, 1, 0, 0},       {0.5f, 1, 0, 0},     {2, 1, 0, -1},       {1, 1, 0, 5},
             {1, 0.8f, 0, 0},    {1, 1, 0.1f, 0},     {1.5f, 0.9f, 0, 10}, {1, 0.5f, 0.05f, 0},
             {1, 0.9f, 0.2f, 7}, {0.7f, 0.01f, 0, 0}, {1, 1, 1, 0},        {1, 1, 0, 500}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        qp_sampling p = qp_sampling_default();
        p.temperature = c[i].t;
        p.top_p = c[i].top_p;
        p.min_p = c[i].min_p;
        p.top_k = c[i].k;
        check_distribution(*state, p);
    }
}

static void test_greedy_takes_the_lowest_id_of_equals(void **state)
{
    rig *r = *state;
    float l[VOCAB] = {0};
    qp_rng rng = {1};
    qp_sampling p = qp_sampling_default();
    l[7] = l[9] = 3;
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, NULL, 0, NULL, 0), 7);
    l[3] = NAN;
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, NULL, 0, NULL, 0), 7);
    p.temperature = 1;
    for (int i = 0; i < 1000; i++) assert_int_not_equal(qp_sampler_draw(r->s, l, &p, &rng, NULL, 0, NULL, 0), 3);
    p.top_k = 4;
    for (int i = 0; i < 1000; i++) assert_int_not_equal(qp_sampler_draw(r->s, l, &p, &rng, NULL, 0, NULL, 0), 3);
    for (int i = 0; i < VOCAB; i++) l[i] = -INFINITY;
    l[20] = 1;
    p.top_k = 0;
    for (int i = 0; i < 100; i++) assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, NULL, 0, NULL, 0), 20);
}

static void test_penalties_and_bias(void **state)
{
    rig *r = *state;
    float l[VOCAB] = {0};
    qp_rng rng = {1};
    const int32_t prompt[] = {4, 4}, output[] = {5, 5, 6};
    l[4] = 2.0f;
    l[5] = 1.9f;
    l[6] = 1.8f;
    l[7] = 1.0f;
    qp_sampling p = qp_sampling_default();
    p.repetition_penalty = 2; /* 4: 1.0, 5: .95, 6: .9, once each however often they occur */
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, prompt, 2, output, 3), 4);
    p.repetition_penalty = 2.1f;
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, prompt, 2, output, 3), 7);
    p = qp_sampling_default();
    p.frequency_penalty = 0.5f; /* output alone: 5: .9, 6: 1.3 */
    l[4] = 1.25f;
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, prompt, 2, output, 3), 6);
    p = qp_sampling_default();
    p.presence_penalty = 0.6f; /* 5: 1.3, 6: 1.2 */
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, prompt, 2, output, 3), 5);
    p = qp_sampling_default();
    qp_logit_bias b[2] = {{7, 5}, {5, -100}};
    p.logit_bias = b;
    p.n_logit_bias = 2;
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, prompt, 2, output, 3), 7);
    p = qp_sampling_default(); /* nothing of the above stays behind */
    assert_int_equal(qp_sampler_draw(r->s, l, &p, &rng, prompt, 2, output, 3), 5);
}

static void test_seed_repeats(void **state)
{
    rig *r = *state;
    qp_sampling p = qp_sampling_default();
    p.temperature = 1;
    qp_rng a = {42}, b = {42}, c = {43};
    int same = 0;
    for (int i = 0; i < 100; i++) {
        int32_t x = qp_sampler_draw(r->s, r->logits, &p, &a, NULL, 0, NULL, 0);
        assert_int_equal(x, qp_sampler_draw(r->s, r->logits, &p, &b, NULL, 0, NULL, 0));
        same += x == qp_sampler_draw(r->s, r->logits, &p, &c, NULL, 0, NULL, 0);
    }
    assert_true(same < 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distributions),
                                       cmocka_unit_test(test_greedy_takes_the_lowest_id_of_equals),
                                       cmocka_unit_test(test_penalties_and_bias), cmocka_unit_test(test_seed_repeats)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
