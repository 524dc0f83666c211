/* Each allocation of opening a model and generating with it fails in turn: an error with a message, nothing leaked, and
 * the next try works. */
#include "qptest.h"

static qp_status once(const char *model, int32_t *tokens, qp_err *err)
{
    qp_model *m = NULL;
    qp_engine *e = NULL;
    uint64_t id;
    size_t left = 1;
    qp_collect c = {.tokens = tokens};
    const int32_t prompt[5] = {3, 14, 15, 9, 26};
    qp_engine_opts o = {.n_threads = 2, .max_num_seqs = 2, .max_num_batched_tokens = 4, .max_model_len = 32};
    qp_status st = qp_model_open(&m, qp_test_dir(model), &(qp_model_opts){QP_EXL3_I16}, err);
    if (st == QP_OK) st = qp_engine_new(&e, m, &o, err);
    qp_request r = qp_test_request(&c, prompt, 5, 3);
    if (st == QP_OK) st = qp_engine_submit(e, &r, &id, err);
    while (st == QP_OK && left) st = qp_engine_step(e, &left, err);
    if (st == QP_OK && c.why == QP_FINISH_ERROR) {
        snprintf(err->msg, sizeof err->msg, "%s", c.error);
        st = err->status = QP_ENOMEM;
    }
    qp_engine_free(e);
    qp_model_close(m);
    return st;
}

static void sweep(const char *model)
{
    int32_t want[4] = {0}, got[4];
    qp_err err;
    CHECK_OK(once(model, want, &err));
    size_t live = qp_alloc_live_bytes();
    uint64_t n = 1, failures = 0;
    for (;; n++) {
        qp_alloc_fail_after(n);
        uint64_t before = qp_alloc_count();
        err = (qp_err){0};
        qp_status st = once(model, got, &err);
        bool reached = qp_alloc_count() - before >= n;
        qp_alloc_fail_after(0);
        if (qp_alloc_live_bytes() != live)
            fail_msg("%s, allocation %llu: %zu bytes leaked", model, (unsigned long long)n,
                     qp_alloc_live_bytes() - live);
        if (!reached) {
            CHECK_OK(st);
            break;
        }
        if (st == QP_OK) continue; /* an allocation that something did without */
        failures++;
        if (st != QP_ENOMEM || !err.msg[0])
            fail_msg("%s, allocation %llu: %s: %s", model, (unsigned long long)n, qp_status_name(st), err.msg);
    }
    assert_true(failures > 50);
    CHECK_OK(once(model, got, &err));
    assert_memory_equal(got, want, 3 * sizeof *want);
    print_message("%s: %llu allocations, %llu failures reported\n", model, (unsigned long long)n,
                  (unsigned long long)failures);
}

static void test_each_allocation_fails_in_turn(void **state)
{
    (void)state;
    sweep("llama-exl3");
    sweep("qwen3_5");
    sweep("gemma3");
}

/* A step allocates nothing. */
static void test_a_step_allocates_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < QP_N_TEST_MODELS; i++) {
        qp_err err;
        qp_engine *e = NULL;
        qp_model *m = qp_test_open(qp_test_models[i], QP_EXL3_I16);
        qp_engine_opts o = {.n_threads = 2, .max_num_seqs = 4, .max_num_batched_tokens = 16, .max_model_len = 64};
        const int32_t prompt[24] = {3, 14, 15, 9, 26};
        int32_t tokens[3][32];
        qp_collect c[3] = {{.tokens = tokens[0]}, {.tokens = tokens[1]}, {.tokens = tokens[2]}};
        size_t left = 1;
        CHECK_OK(qp_engine_new(&e, m, &o, &err));
        for (int k = 0; k < 3; k++) {
            uint64_t id;
            qp_request r = qp_test_request(&c[k], prompt, 8 * (k + 1), 20);
            CHECK_OK(qp_engine_submit(e, &r, &id, &err));
        }
        /* Sequences get their page tables when they start; after that nothing more. */
        for (int k = 0; k < 4; k++) CHECK_OK(qp_engine_step(e, &left, &err));
        uint64_t before = qp_alloc_count();
        while (left) CHECK_OK(qp_engine_step(e, &left, &err));
        assert_int_equal(qp_alloc_count(), before);
        qp_engine_free(e);
        qp_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails_in_turn),
                                       cmocka_unit_test(test_a_step_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
