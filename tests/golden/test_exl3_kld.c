/* What the integer product costs: the Kullback-Leibler divergence of the next-token distribution with the i16
 * arithmetic from that with the exact fp32 one, over all positions of the golden prompts. The packs are random weights,
 * so their distributions are broad and the figure is a hard case. Bound: 3e-6 nats on the mean, three times what was
 * measured (a 4-bit pack itself costs 5e-2). */
#include "qptest.h"

static float *prompt_logits(const char *model, qp_exl3_arith arith, size_t *n_rows, uint32_t *vocab)
{
    qp_err err;
    qp_engine *e = NULL;
    qp_model *m = qp_test_open(model, arith);
    const qp_tensor *ids = qp_test_golden(m, "input_ids.%u", 0);
    qp_engine_opts o = {.n_threads = 1, .max_num_seqs = 1, .max_num_batched_tokens = 64};
    uint64_t id;
    *vocab = qp_model_get_info(m)->vocab;
    *n_rows = ids->n_elements;
    qp_collect c = {.vocab = *vocab, .prompt_logits = calloc(*n_rows * *vocab, sizeof(float))};
    CHECK_OK(qp_engine_new(&e, m, &o, &err));
    qp_request r = qp_test_request(&c, ids->data, ids->n_elements, 0);
    CHECK_OK(qp_engine_submit(e, &r, &id, &err));
    qp_test_run(e);
    qp_engine_free(e);
    qp_model_close(m);
    return c.prompt_logits;
}

static double log_sum(const float *x, uint32_t n)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (uint32_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

static void test_integer_product_costs_almost_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < QP_N_TEST_MODELS; k++) {
        size_t n;
        uint32_t vocab;
        if (!strstr(qp_test_models[k], "-exl3")) continue;
        float *exact = prompt_logits(qp_test_models[k], QP_EXL3_F32, &n, &vocab);
        float *fast = prompt_logits(qp_test_models[k], QP_EXL3_I16, &n, &vocab);
        double mean = 0, worst = 0;
        for (size_t r = 0; r < n; r++) {
            const float *p = exact + r * vocab, *q = fast + r * vocab;
            double lp = log_sum(p, vocab), lq = log_sum(q, vocab), kld = 0;
            for (uint32_t i = 0; i < vocab; i++)
                kld += exp((double)p[i] - lp) * (((double)p[i] - lp) - ((double)q[i] - lq));
            mean += kld / (double)n;
            worst = fmax(worst, kld);
        }
        print_message("%-13s KLD of the i16 product: mean %.2e, worst %.2e nats\n", qp_test_models[k], mean, worst);
        if (!(mean < 3e-6)) fail_msg("%s: mean KLD %.2e", qp_test_models[k], mean);
        assert_true(mean > -1e-12);
        free(exact);
        free(fast);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_integer_product_costs_almost_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
