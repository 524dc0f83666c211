/* A sequence's tokens and the bits of its logits are the same whatever else happens: whole prompt or chunks, alone or
 * beside sequences of other lengths, any page size, any number of threads, preemption in between. For every family,
 * dense and EXL3 in both arithmetics. */
#include "qptest.h"

enum { N_NEW = 6 };

typedef struct run {
    int32_t tokens[N_NEW];
    float *logits;        /* [N_NEW, vocab] */
    float *prompt_logits; /* [n_prompt, vocab] */
} run;

typedef struct prompts {
    int32_t ids[5][64];
    size_t n[5];
} prompts;

static void make_prompts(prompts *p, const qp_model *m)
{
    const qp_tensor *g = qp_test_golden(m, "input_ids.%u", 0);
    const size_t n[5] = {36, 7, 1, 21, 12};
    for (size_t i = 0; i < 5; i++) {
        p->n[i] = n[i];
        for (size_t k = 0; k < n[i]; k++) p->ids[i][k] = ((const int32_t *)g->data)[(k * (i + 1)) % g->n_elements];
    }
}

/* Runs the first n prompts together and fills out[i]. */
static uint64_t run_all(const qp_model *m, qp_engine_opts o, const prompts *p, size_t n, run *out)
{
    qp_err err;
    qp_engine *e = NULL;
    qp_collect c[5];
    qp_engine_stats stats;
    uint32_t vocab = qp_model_get_info(m)->vocab;
    CHECK_OK(qp_engine_new(&e, m, &o, &err));
    for (size_t i = 0; i < n; i++) {
        uint64_t id;
        out[i].logits = calloc(N_NEW * vocab, sizeof(float));
        out[i].prompt_logits = calloc(p->n[i] * vocab, sizeof(float));
        c[i] = (qp_collect){
            .tokens = out[i].tokens, .logits = out[i].logits, .prompt_logits = out[i].prompt_logits, .vocab = vocab};
        qp_request r = qp_test_request(&c[i], p->ids[i], p->n[i], N_NEW);
        CHECK_OK(qp_engine_submit(e, &r, &id, &err));
    }
    qp_test_run(e);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(c[i].finished, 1);
        assert_int_equal(c[i].why, QP_FINISH_LENGTH);
        assert_int_equal(c[i].n_tokens, N_NEW);
    }
    qp_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_pages_free, stats.n_pages_total);
    qp_engine_free(e);
    return stats.n_preemptions;
}

static void free_runs(run *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(r[i].logits);
        free(r[i].prompt_logits);
    }
}

static void check_same(const char *model, const char *what, const prompts *p, const run *a, const run *b, size_t n,
                       uint32_t vocab)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(a[i].tokens, b[i].tokens, sizeof a[i].tokens) != 0)
            fail_msg("%s, %s: tokens of prompt %zu differ", model, what, i);
        if (memcmp(a[i].logits, b[i].logits, N_NEW * vocab * sizeof(float)) != 0)
            fail_msg("%s, %s: logits of prompt %zu differ (max %.2e)", model, what, i,
                     qp_test_max_rel(a[i].logits, b[i].logits, N_NEW * vocab));
        if (memcmp(a[i].prompt_logits, b[i].prompt_logits, p->n[i] * vocab * sizeof(float)) != 0)
            fail_msg("%s, %s: prompt logits of prompt %zu differ", model, what, i);
    }
}

static void check_family(const char *model, qp_exl3_arith arith)
{
    qp_model *m = qp_test_open(model, arith);
    uint32_t vocab = qp_model_get_info(m)->vocab;
    prompts p;
    run want[5], got[5];
    make_prompts(&p, m);
    const qp_engine_opts base = {.n_threads = 1, .max_num_seqs = 1, .max_num_batched_tokens = 64, .max_model_len = 96};
    for (size_t i = 0; i < 5; i++) { /* each alone, whole prompt, one thread */
        prompts one = p;
        memcpy(one.ids[0], p.ids[i], sizeof p.ids[i]);
        one.n[0] = p.n[i];
        run_all(m, base, &one, 1, &want[i]);
    }
    const struct {
        const char *what;
        qp_engine_opts o;
    } cases[] = {
        {"chunks of 1", {.n_threads = 1, .max_num_seqs = 1, .max_num_batched_tokens = 1}},
        {"chunks of 5", {.n_threads = 2, .max_num_seqs = 1, .max_num_batched_tokens = 5, .page_size = 5}},
        {"chunks of 16", {.n_threads = 3, .max_num_seqs = 1, .max_num_batched_tokens = 16, .page_size = 1}},
        {"batch of 5", {.n_threads = 2, .max_num_seqs = 5, .max_num_batched_tokens = 256, .page_size = 16}},
        {"batch of 3 in chunks", {.n_threads = 1, .max_num_seqs = 3, .max_num_batched_tokens = 11, .page_size = 64}},
        {"batch of 5 in chunks, 4 threads", {.n_threads = 4, .max_num_seqs = 5, .max_num_batched_tokens = 24}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        qp_engine_opts o = cases[k].o;
        o.max_model_len = 96;
        run_all(m, o, &p, 5, got);
        check_same(model, cases[k].what, &p, want, got, 5, vocab);
        free_runs(got, 5);
    }
    qp_engine_opts tight = {.n_threads = 2,
                            .max_num_seqs = 4,
                            .max_num_batched_tokens = 16,
                            .max_model_len = 48,
                            .kv_tokens = 48,
                            .page_size = 4};
    uint64_t n = run_all(m, tight, &p, 5, got);
    if (qp_model_cache_spec(m)->layers[0].window == 0 && n == 0)
        fail_msg("%s: the tight cache preempted nothing", model);
    check_same(model, "preemption", &p, want, got, 5, vocab);
    free_runs(got, 5);
    free_runs(want, 5);
    qp_model_close(m);
}

static void test_tokens_and_logits_are_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < QP_N_TEST_MODELS; i++) {
        check_family(qp_test_models[i], QP_EXL3_F32);
        if (strstr(qp_test_models[i], "-exl3")) check_family(qp_test_models[i], QP_EXL3_I16);
    }
}

static bool stop_after_three(void *arg, int32_t token, const float *logits)
{
    qp_collect *c = arg;
    qp_collect_token(arg, token, logits);
    return c->n_tokens < 3;
}

/* Cancelled and stopped requests leave their pages, and the others are as if they had never been there. */
static void test_cancel_and_stop_leave_others_alone(void **state)
{
    (void)state;
    qp_err err;
    qp_model *m = qp_test_open("gemma3", QP_EXL3_F32);
    prompts p;
    run want[1];
    int32_t tokens[3][64];
    make_prompts(&p, m);
    qp_engine_opts o = {.n_threads = 2, .max_num_seqs = 3, .max_num_batched_tokens = 32, .max_model_len = 96};
    run_all(m, o, &p, 1, want);
    qp_engine *e = NULL;
    CHECK_OK(qp_engine_new(&e, m, &o, &err));
    qp_collect c[3] = {{.tokens = tokens[0]}, {.tokens = tokens[1]}, {.tokens = tokens[2]}};
    uint64_t id[3];
    for (size_t i = 0; i < 3; i++) {
        qp_request r = qp_test_request(&c[i], p.ids[i], p.n[i], i ? 20 : N_NEW);
        if (i == 2) r.events.on_token = stop_after_three;
        CHECK_OK(qp_engine_submit(e, &r, &id[i], &err));
    }
    size_t left;
    for (int i = 0; i < 4; i++) CHECK_OK(qp_engine_step(e, &left, &err));
    qp_engine_cancel(e, id[1]);
    qp_test_run(e);
    assert_int_equal(c[1].why, QP_FINISH_CANCELLED);
    assert_int_equal(c[2].why, QP_FINISH_STOP);
    assert_int_equal(c[2].n_tokens, 3);
    assert_memory_equal(tokens[0], want[0].tokens, sizeof want[0].tokens);
    for (size_t i = 0; i < 3; i++) assert_int_equal(c[i].finished, 1);
    qp_engine_stats s;
    qp_engine_get_stats(e, &s);
    assert_int_equal(s.n_pages_free, s.n_pages_total);
    free_runs(want, 1);
    qp_engine_free(e);
    qp_model_close(m);
}

static void expect_refusal(qp_engine *e, const qp_request *r, qp_status st, const char *word)
{
    qp_err err;
    uint64_t id;
    assert_int_equal(qp_engine_submit(e, r, &id, &err), st);
    if (!strstr(err.msg, word)) fail_msg("message \"%s\" does not name %s", err.msg, word);
}

static void test_bad_requests_are_refused_by_name(void **state)
{
    (void)state;
    qp_err err;
    qp_model *m = qp_test_open("llama", QP_EXL3_F32);
    qp_engine *e = NULL;
    qp_engine_opts o = {.n_threads = 1, .max_model_len = 32};
    CHECK_OK(qp_engine_new(&e, m, &o, &err));
    int32_t ids[40] = {1, 2, 3};
    qp_collect c = {0};
    qp_request r = qp_test_request(&c, ids, 0, 4);
    expect_refusal(e, &r, QP_EINVAL, "prompt");
    r = qp_test_request(&c, ids, 3, 0);
    expect_refusal(e, &r, QP_EINVAL, "max_tokens");
    r = qp_test_request(&c, ids, 3, 30);
    expect_refusal(e, &r, QP_ELIMIT, "--max-model-len");
    ids[1] = 320;
    r = qp_test_request(&c, ids, 3, 4);
    expect_refusal(e, &r, QP_EINVAL, "position 1");
    ids[1] = -1;
    expect_refusal(e, &r, QP_EINVAL, "token -1");
    ids[1] = 2;
    const struct {
        const char *word;
        qp_sampling s;
    } bad[] = {{"temperature", {-1, 0, 1, 0, 1, 0, 0, 0, NULL, 0}},
               {"temperature", {NAN, 0, 1, 0, 1, 0, 0, 0, NULL, 0}},
               {"top_k", {1, -2, 1, 0, 1, 0, 0, 0, NULL, 0}},
               {"top_p", {1, 0, 0, 0, 1, 0, 0, 0, NULL, 0}},
               {"min_p", {1, 0, 1, 2, 1, 0, 0, 0, NULL, 0}},
               {"repetition_penalty", {1, 0, 1, 0, 0, 0, 0, 0, NULL, 0}},
               {"frequency_penalty", {1, 0, 1, 0, 1, 3, 0, 0, NULL, 0}},
               {"presence_penalty", {1, 0, 1, 0, 1, 0, -3, 0, NULL, 0}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r.sampling = bad[i].s;
        expect_refusal(e, &r, QP_EINVAL, bad[i].word);
    }
    r.sampling = qp_sampling_default();
    qp_logit_bias b = {320, 1};
    r.sampling.logit_bias = &b;
    r.sampling.n_logit_bias = 1;
    expect_refusal(e, &r, QP_EINVAL, "logit_bias");
    qp_engine_free(e);
    qp_engine_opts wrong = {.max_model_len = 4096};
    assert_int_equal(qp_engine_new(&e, m, &wrong, &err), QP_EINVAL);
    wrong = (qp_engine_opts){.cpu_level = "sse"};
    assert_int_equal(qp_engine_new(&e, m, &wrong, &err), QP_EINVAL);
    wrong = (qp_engine_opts){.page_size = 5000};
    assert_int_equal(qp_engine_new(&e, m, &wrong, &err), QP_EINVAL);
    qp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens_and_logits_are_the_same),
                                       cmocka_unit_test(test_cancel_and_stop_leave_others_alone),
                                       cmocka_unit_test(test_bad_requests_are_refused_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
