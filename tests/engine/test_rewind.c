/* Save and restore of a sequence at any step: attention pages, sliding windows and recurrent state. The logits after a
 * restore have the bits of the first time, whatever chunks follow, and a saved sequence is never changed by what its
 * source goes on to write. */
#include "qptest.h"

#include "base/pool.h"
#include "kernels/cpu/backend_cpu.h"
#include "kv/kv.h"

enum { N = 36, MAX_ROWS = 16 };

typedef struct rig {
    qp_model *m;
    qp_pool *pool;
    qp_cpu_ctx *ctx;
    qp_kv *kv;
    qp_step step;
    unsigned char *scratch;
    const int32_t *ids;
    uint32_t vocab;
} rig;

static void rig_open(rig *r, const char *model, uint32_t page_size)
{
    qp_err err;
    qp_cpu_features have;
    const qp_cpu_kernels *k = NULL;
    memset(r, 0, sizeof *r);
    r->m = qp_test_open(model, QP_EXL3_I16);
    r->vocab = qp_model_get_info(r->m)->vocab;
    r->ids = qp_test_golden(r->m, "input_ids.%u", 0)->data;
    qp_cpu_features_read(&have);
    CHECK_OK(qp_cpu_kernels_select(&k, &have, NULL, &err));
    CHECK_OK(qp_pool_new(&r->pool, 1, &err));
    CHECK_OK(qp_cpu_ctx_new(&r->ctx, k, r->pool, &err));
    qp_batch b = {.n_rows = MAX_ROWS, .n_logit_rows = MAX_ROWS};
    qp_vec logits;
    r->step = (qp_step){.be = &qp_backend_cpu, .be_ctx = r->ctx, .batch = &b, .dry = true};
    qp_model_forward(r->m, &r->step, &logits);
    CHECK_OK(qp_cpu_ctx_finish(r->ctx, r->step.worker_peak, MAX_ROWS, &err));
    r->scratch = qp_malloc(r->step.peak);
    qp_kv_opts ko = {.page_size = page_size,
                     .max_seqs = 6,
                     .max_model_len = 64,
                     .max_step_tokens = MAX_ROWS,
                     .n_tokens = 512,
                     .type = QP_W_F32};
    CHECK_OK(qp_kv_new(&r->kv, qp_model_cache_spec(r->m), &ko, &err));
    r->step = (qp_step){.be = &qp_backend_cpu, .be_ctx = r->ctx, .kv = qp_kv_get_view(r->kv), .scratch = r->scratch};
}

static void rig_close(rig *r)
{
    qp_kv_free(r->kv);
    qp_free(r->scratch);
    qp_cpu_ctx_free(r->ctx);
    qp_pool_free(r->pool);
    qp_model_close(r->m);
}

/* Feeds positions seq.len .. end - 1 in chunks; logits of each position to out [N, vocab] when not NULL. */
static void feed(rig *r, qp_kv_seq *seq, uint32_t end, uint32_t chunk, int32_t add, float *out)
{
    qp_err err;
    while (seq->len < end) {
        uint32_t n = end - seq->len < chunk ? end - seq->len : chunk, rows[MAX_ROWS];
        int32_t tokens[MAX_ROWS];
        qp_vec logits;
        CHECK_OK(qp_kv_seq_reserve(r->kv, seq, n, &err));
        for (uint32_t i = 0; i < n; i++) {
            rows[i] = i;
            tokens[i] = (r->ids[seq->len + i] + add) % (int32_t)r->vocab;
        }
        qp_span sp = {.n_rows = n, .pos0 = seq->len, .slot = seq->slot};
        for (uint32_t g = 0; g < QP_MAX_KV_GROUPS; g++) sp.page_ids[g] = seq->pages[g];
        qp_batch b = {tokens, n, &sp, 1, rows, n};
        r->step.batch = &b;
        r->step.used = 0;
        qp_cpu_ctx_begin_step(r->ctx);
        qp_model_forward(r->m, &r->step, &logits);
        for (uint32_t i = 0; out && i < n; i++)
            memcpy(out + (size_t)(seq->len + i) * r->vocab, logits.data + i * logits.ld, r->vocab * sizeof(float));
        qp_kv_seq_commit(r->kv, seq, n);
    }
}

static void check_bits(const rig *r, const char *what, const float *a, const float *b, uint32_t from)
{
    size_t at = (size_t)from * r->vocab, n = (size_t)(N - from) * r->vocab;
    if (memcmp(a + at, b + at, n * sizeof(float)) != 0)
        fail_msg("%s, rewound to %u: logits differ (max %.2e)", what, from, qp_test_max_rel(a + at, b + at, n));
}

static void check_rewind(const char *model, uint32_t page_size)
{
    rig r;
    qp_err err;
    qp_kv_seq seq, saved, other;
    rig_open(&r, model, page_size);
    float *want = calloc((size_t)N * r.vocab, sizeof *want), *got = calloc((size_t)N * r.vocab, sizeof *got);
    CHECK_OK(qp_kv_seq_init(r.kv, &seq, &err));
    feed(&r, &seq, N, 1, 0, want);
    qp_kv_seq_deinit(r.kv, &seq);
    for (uint32_t at = 0; at <= N; at += 9) {
        CHECK_OK(qp_kv_seq_init(r.kv, &seq, &err));
        feed(&r, &seq, at, 7, 0, NULL);
        CHECK_OK(qp_kv_seq_save(r.kv, &seq, &saved, &err));
        feed(&r, &seq, N, 4, 5, NULL); /* other tokens: must not reach what was saved */
        CHECK_OK(qp_kv_seq_init(r.kv, &other, &err));
        feed(&r, &other, 17, 3, 9, NULL);
        CHECK_OK(qp_kv_check(r.kv, (const qp_kv_seq *[]){&seq, &saved, &other}, 3, &err));
        for (uint32_t chunk = 1; chunk <= 16; chunk += 5) {
            qp_kv_seq_restore(r.kv, &seq, &saved);
            assert_int_equal(seq.len, at);
            feed(&r, &seq, N, chunk, 0, got);
            check_bits(&r, model, got, want, at);
        }
        CHECK_OK(qp_kv_check(r.kv, (const qp_kv_seq *[]){&seq, &saved, &other}, 3, &err));
        qp_kv_seq_deinit(r.kv, &seq);
        qp_kv_seq_deinit(r.kv, &saved);
        qp_kv_seq_deinit(r.kv, &other);
    }
    CHECK_OK(qp_kv_check(r.kv, NULL, 0, &err));
    free(want);
    free(got);
    rig_close(&r);
}

static void test_restore_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < QP_N_TEST_MODELS; i++) {
        check_rewind(qp_test_models[i], i % 2 ? 4 : 16);
    }
}

/* Models without state can also be cut back, as far as their windows reach. */
static void test_truncate(void **state)
{
    (void)state;
    rig r;
    qp_err err;
    qp_kv_seq seq;
    rig_open(&r, "llama", 4);
    float *want = calloc((size_t)N * r.vocab, sizeof *want), *got = calloc((size_t)N * r.vocab, sizeof *got);
    CHECK_OK(qp_kv_seq_init(r.kv, &seq, &err));
    feed(&r, &seq, N, 8, 0, want);
    for (uint32_t at = 0; at < N; at += 5) {
        CHECK_OK(qp_kv_seq_truncate(r.kv, &seq, at, &err));
        CHECK_OK(qp_kv_check(r.kv, (const qp_kv_seq *[]){&seq}, 1, &err));
        feed(&r, &seq, N, 6, 0, got);
        check_bits(&r, "llama cut", got, want, at);
    }
    assert_int_equal(qp_kv_seq_truncate(r.kv, &seq, N + 1, &err), QP_EINVAL);
    qp_kv_seq_deinit(r.kv, &seq);
    free(want);
    free(got);
    rig_close(&r);

    rig_open(&r, "gemma3", 4); /* window 16 */
    CHECK_OK(qp_kv_seq_init(r.kv, &seq, &err));
    feed(&r, &seq, N, 8, 0, NULL);
    assert_true(seq.first[0] > 0 || seq.first[1] > 0);
    CHECK_OK(qp_kv_seq_truncate(r.kv, &seq, N - 1, &err));
    assert_int_equal(qp_kv_seq_truncate(r.kv, &seq, 8, &err), QP_EUNSUPPORTED);
    qp_kv_seq_deinit(r.kv, &seq);
    rig_close(&r);

    rig_open(&r, "qwen3_5", 4);
    CHECK_OK(qp_kv_seq_init(r.kv, &seq, &err));
    feed(&r, &seq, 8, 8, 0, NULL);
    assert_int_equal(qp_kv_seq_truncate(r.kv, &seq, 4, &err), QP_EUNSUPPORTED);
    qp_kv_seq_deinit(r.kv, &seq);
    rig_close(&r);
}

/* A page table's bookkeeping under random use, against the pool's own invariants. */
static void test_random_use_keeps_the_pool_whole(void **state)
{
    (void)state;
    qp_err err;
    qp_cache_layer layers[4] = {{QP_CACHE_ATTENTION, 2, 8, 0, 0},
                                {QP_CACHE_ATTENTION, 2, 8, 12, 0},
                                {QP_CACHE_STATE, 0, 0, 0, 40},
                                {QP_CACHE_ATTENTION, 1, 16, 12, 0}};
    qp_cache_spec spec = {4, layers};
    qp_kv_opts o = {
        .page_size = 3, .max_seqs = 6, .max_model_len = 50, .max_step_tokens = 9, .n_tokens = 120, .type = QP_W_BF16};
    qp_kv *kv = NULL;
    CHECK_OK(qp_kv_new(&kv, &spec, &o, &err));
    qp_kv_seq seqs[6];
    const qp_kv_seq *live[6];
    bool used[6] = {false};
    qp_rng rng = {7};
    for (int i = 0; i < 4000; i++) {
        size_t s = qp_rng_u64(&rng) % 6, t = qp_rng_u64(&rng) % 6, n_live = 0;
        uint32_t n = 1 + (uint32_t)(qp_rng_u64(&rng) % 9);
        switch (qp_rng_u64(&rng) % 8) {
        case 0:
            if (used[s]) qp_kv_seq_deinit(kv, &seqs[s]);
            used[s] = false;
            break;
        case 1:
            if (used[s] && !used[t]) used[t] = qp_kv_seq_save(kv, &seqs[s], &seqs[t], &err) == QP_OK;
            break;
        case 2:
            if (used[s] && used[t] && s != t) qp_kv_seq_restore(kv, &seqs[s], &seqs[t]);
            break;
        default:
            if (!used[s]) used[s] = qp_kv_seq_init(kv, &seqs[s], &err) == QP_OK;
            if (used[s] && seqs[s].len + n <= 50 && qp_kv_seq_reserve(kv, &seqs[s], n, &err) == QP_OK)
                qp_kv_seq_commit(kv, &seqs[s], n);
        }
        for (size_t k = 0; k < 6; k++)
            if (used[k]) live[n_live++] = &seqs[k];
        CHECK_OK(qp_kv_check(kv, live, n_live, &err));
    }
    for (size_t k = 0; k < 6; k++)
        if (used[k]) qp_kv_seq_deinit(kv, &seqs[k]);
    qp_kv_free(kv);
}

static void test_sizes_are_checked(void **state)
{
    (void)state;
    qp_err err;
    qp_kv_sizes sz;
    qp_cache_layer layer = {QP_CACHE_ATTENTION, 4096, 512, 0, 0};
    qp_cache_spec spec = {1, &layer};
    qp_kv_opts o = {.page_size = 4096, .max_seqs = 65536, .n_tokens = UINT64_C(1) << 60, .type = QP_W_F32};
    assert_int_equal(qp_kv_plan(&spec, &o, &sz, &err), QP_ELIMIT);
    o.page_size = 0;
    assert_int_equal(qp_kv_plan(&spec, &o, &sz, &err), QP_EINVAL);
    qp_cache_layer five[5];
    for (uint32_t i = 0; i < 5; i++) five[i] = (qp_cache_layer){QP_CACHE_ATTENTION, 1, 8, i + 1, 0};
    spec = (qp_cache_spec){5, five};
    o.page_size = 16;
    assert_int_equal(qp_kv_plan(&spec, &o, &sz, &err), QP_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restore_gives_the_same_bits), cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_random_use_keeps_the_pool_whole), cmocka_unit_test(test_sizes_are_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
