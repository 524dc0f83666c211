/* Every family against goldens made in fp32 by the reference implementation: hidden states after each layer, logits,
 * greedy continuation; dense and EXL3 packs, at every CPU level of this machine. Bound: 1e-4 of the golden's maximum in
 * fp32 (measured 1e-6 .. 1e-5). The i16 arithmetic is bound by greedy tokens (margins are over 0.03) and by 2e-3. */
#include "qptest.h"

static const char *const levels[] = {"ref", "avx2", "avx512", "vnni", "amx"};

typedef struct traced {
    const qp_model *m;
    double worst;
    int n_seen;
} traced;

static void check_trace(void *arg, const char *what, uint32_t il, qp_vec x)
{
    traced *t = arg;
    const qp_tensor *g;
    if (!strcmp(what, "layer"))
        g = qp_test_golden(t->m, "hidden.0.layer.%u", il);
    else
        g = qp_test_golden(t->m, !strcmp(what, "embed") ? "hidden.0.embed" : "hidden.0.final_norm", 0);
    size_t n = (size_t)x.rows * x.cols;
    float *flat = malloc(n * sizeof *flat);
    for (uint32_t r = 0; r < x.rows; r++) memcpy(flat + (size_t)r * x.cols, x.data + r * x.ld, x.cols * sizeof *flat);
    if (g->n_elements < n) fail_msg("%s: %zu golden values, %zu here", g->name, g->n_elements, n);
    /* The final norm is taken of the rows that need logits alone: here the last one. */
    double rel = qp_test_max_rel(flat, (const float *)g->data + (g->n_elements - n), n);
    if (!(rel <= 1e-4)) fail_msg("%s: off by %.2e of the maximum", g->name, rel);
    if (rel > t->worst) t->worst = rel;
    t->n_seen++;
    free(flat);
}

static void check_model(const char *name, const char *level, qp_exl3_arith arith, double bound)
{
    qp_err err;
    qp_engine *e = NULL;
    qp_model *m = qp_test_open(name, arith);
    uint32_t vocab = qp_model_get_info(m)->vocab;
    qp_engine_opts o = {.n_threads = 2, .cpu_level = level, .max_num_seqs = 2, .max_num_batched_tokens = 64};
    qp_status st = qp_engine_new(&e, m, &o, &err);
    if (st == QP_EUNSUPPORTED) {
        print_message("[  SKIPPED ] %s at level %s: %s\n", name, level, err.msg);
        qp_model_close(m);
        return;
    }
    CHECK_OK(st);
    bool is_ref = !strcmp(level, "ref"); /* slow: prompt 1 alone, 7 tokens */
    for (unsigned p = is_ref ? 1 : 0; p < 2; p++) {
        const qp_tensor *ids = qp_test_golden(m, "input_ids.%u", p), *want = qp_test_golden(m, "logits.%u", p);
        const qp_tensor *greedy = qp_test_golden(m, "greedy.%u", p), *rows = qp_test_golden(m, "greedy_logits.%u", p);
        int32_t tokens[16];
        qp_collect c = {.tokens = tokens, .vocab = vocab};
        traced t = {m, 0, 0};
        uint64_t id;
        c.logits = calloc(16 * vocab, sizeof(float));
        c.prompt_logits = calloc(ids->n_elements * vocab, sizeof(float));
        qp_request r = qp_test_request(&c, ids->data, ids->n_elements, 16);
        CHECK_OK(qp_engine_submit(e, &r, &id, &err));
        size_t left;
        /* 34 logit rows a step: prompt 0 takes two steps, so its hidden states are checked by a prompt-only pass below.
         */
        while (qp_engine_step(e, &left, &err) == QP_OK && left) {
        }
        assert_int_equal(c.finished, 1);
        assert_int_equal(c.n_tokens, 16);
        double rel = qp_test_max_rel(c.prompt_logits, want->data, want->n_elements);
        double rel_greedy = qp_test_max_rel(c.logits, rows->data, rows->n_elements);
        if (!(rel <= bound) || !(rel_greedy <= bound))
            fail_msg("%s at %s, prompt %u: logits off by %.2e, greedy logits by %.2e of their maximum, bound %.0e",
                     name, level, p, rel, rel_greedy, bound);
        assert_memory_equal(tokens, greedy->data, sizeof tokens);
        free(c.logits);
        free(c.prompt_logits);
        if (p || arith != QP_EXL3_F32) continue;
        qp_engine_set_trace(e, check_trace, &t);
        c = (qp_collect){.tokens = tokens, .vocab = vocab};
        r = qp_test_request(&c, ids->data, ids->n_elements, 1);
        CHECK_OK(qp_engine_submit(e, &r, &id, &err));
        CHECK_OK(qp_engine_step(e, &left, &err));
        qp_engine_set_trace(e, NULL, NULL);
        assert_true(t.n_seen >= (int)qp_model_get_info(m)->n_layers + 1);
        print_message("%-13s %-6s logits %.1e hidden %.1e\n", name, level, rel, t.worst);
    }
    qp_engine_free(e);
    qp_model_close(m);
}

static void test_fp32_equals_goldens(void **state)
{
    (void)state;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
        for (size_t i = 0; i < QP_N_TEST_MODELS; i++) check_model(qp_test_models[i], levels[l], QP_EXL3_F32, 1e-4);
}

static void test_i16_keeps_greedy_tokens(void **state)
{
    (void)state;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
        for (size_t i = 0; i < QP_N_TEST_MODELS; i++)
            if (strstr(qp_test_models[i], "-exl3")) check_model(qp_test_models[i], levels[l], QP_EXL3_I16, 2e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp32_equals_goldens),
                                       cmocka_unit_test(test_i16_keeps_greedy_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
