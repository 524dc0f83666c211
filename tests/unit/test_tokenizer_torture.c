/* Tokenizer: each allocation failing in turn, and texts that would blow up anything worse than near linear. */
#include "tokenizer_cases.h"
#include "tokenizer_tiny.h"

#include "base/clock.h"

/* ---- allocation failures ---- */

static qp_status use(const qp_tokenizer *t, const char *text, size_t n, qp_err *err)
{
    qp_ids ids = {0};
    qp_buf out = {0};
    qp_detok d = {.t = t};
    qp_status st;
    QP_TRY_OUT(qp_tokenizer_encode(t, text, n, true, &ids, err));
    QP_TRY_OUT(qp_tokenizer_decode(t, ids.ids, ids.n, false, &out, err));
    for (size_t i = 0; i < ids.n && i < 40; i++) QP_TRY_OUT(qp_detok_push(&d, ids.ids[i], &out, err));
    QP_TRY_OUT(qp_detok_flush(&d, &out, err));
    for (size_t i = 0; i < ids.n && i < 8; i++) QP_TRY_OUT(qp_tokenizer_token_bytes(t, ids.ids[i], &out, err));
out:
    qp_detok_deinit(&d);
    qp_buf_deinit(&out);
    qp_ids_deinit(&ids);
    return st;
}

static void sweep(const char *json, const char *config)
{
    char text[2000] = "<s> ab zz\xC3\xA9 e\xCC\x81 \xFF <ab>cab ";
    size_t n = strlen(text);
    while (n + 12 < sizeof text) { /* long enough for the heap, and for a long run of marks */
        memcpy(text + n, n < 1200 ? "ababab " : "\xCC\x81\xCC\xA3\xCC\x81", n < 1200 ? 7 : 6);
        n += n < 1200 ? 7 : 6;
    }
    unsigned harmless = 0;
    qp_json_init();
    for (uint64_t k = 1;; k++) {
        qp_err err = {0};
        qp_tokenizer *t = NULL;
        size_t live = qp_alloc_live_bytes();
        uint64_t before = qp_alloc_count();
        qp_alloc_fail_after(k);
        qp_status st = qp_tokenizer_parse(&t, json, strlen(json), config, config ? strlen(config) : 0, "x", &err);
        if (st == QP_OK) st = use(t, text, n, &err);
        qp_alloc_fail_after(0);
        qp_tokenizer_free(t);
        assert_int_equal(qp_alloc_live_bytes(), live);
        if (qp_alloc_count() - before < k) { /* not reached: all have failed once */
            assert_int_equal(st, QP_OK);
            printf("%llu allocations swept, %u of them could fail without harm\n", (unsigned long long)k - 1, harmless);
            assert_true(k > 30 && harmless < k / 10);
            return;
        }
        harmless += st == QP_OK; /* JIT code of a pattern, an error message of jansson */
        if (st != QP_OK && st != QP_ENOMEM)
            fail_msg("allocation %llu: status %d, %s", (unsigned long long)k, st, err.msg);
    }
}

static void test_allocation_failures(void **state)
{
    (void)state;
    sweep(tiny_bytes, "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<s>\",\"special\":true,\"normalized\":false}}}");
    sweep(tiny_points, NULL);
    sweep(tiny_unigram, NULL);
}

/* A tokenizer serves on after a failure. */
static void test_encode_works_after_a_failure(void **state)
{
    (void)state;
    qp_tokenizer *t = open_vector("trim_llama3.tokenizer.json");
    qp_err err;
    qp_ids ids = {0}, want = encode(t, "Hello world", 11, false);
    qp_alloc_fail_after(1);
    assert_int_equal(qp_tokenizer_encode(t, "Hello world", 11, false, &ids, &err), QP_ENOMEM);
    assert_int_equal(ids.n, 0);
    assert_int_equal(qp_tokenizer_encode(t, "Hello world", 11, false, &ids, &err), QP_OK);
    assert_int_equal(ids.n, want.n);
    qp_ids_deinit(&ids);
    qp_ids_deinit(&want);
    qp_tokenizer_free(t);
}

/* ---- near linear time ---- */

static const char *const units[] = {"a",
                                    " ",
                                    "\n",
                                    " \n",
                                    "\xF0\x9F\x98\x80",
                                    "\xCC\x81",
                                    "\xCC\x81\xCC\xA3",
                                    "ab",
                                    "\xE4\xBD\xA0",
                                    "\xE2\x96\x81",
                                    "<",
                                    "1",
                                    "'",
                                    "\xFF",
                                    "A\xCC\x81",
                                    "<|im_start",
                                    "\xE1\x84\x80\xE1\x85\xA1"};

static double seconds(const qp_tokenizer *t, const char *unit, size_t n)
{
    char *text = qp_malloc(n + 16);
    size_t w = strlen(unit);
    assert_non_null(text);
    for (size_t i = 0; i < n; i += w) memcpy(text + i, unit, w);
    uint64_t t0 = qp_clock_ns();
    qp_ids ids = encode(t, text, n, false);
    double s = (double)(qp_clock_ns() - t0) * 1e-9;
    qp_ids_deinit(&ids);
    qp_free(text);
    return s;
}

/* Eight times the text may take 24 times as long (noise, caches, n log n): quadratic would take 64. The slow test does
 * it with a megabyte. */
static void check_growth(const char *file)
{
    qp_tokenizer *t = open_vector(file);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        double small = seconds(t, units[u], 1 << 13), big = seconds(t, units[u], 1 << 16);
        for (int retry = 0; retry < 2 && big > 24 * small; retry++) { /* other load on the machine */
            small = seconds(t, units[u], 1 << 13);
            big = seconds(t, units[u], 1 << 16);
        }
        if (big > 64 * small && big > 0.5)
            fail_msg("%s, \"%s\": 64 KiB %.4f s, 1 MiB %.4f s", file, units[u], small, big);
    }
    qp_tokenizer_free(t);
}

static void test_time_is_near_linear(void **state)
{
    (void)state;
    check_growth("trim_qwen2.tokenizer.json");
    check_growth("trim_gpt2_digits.tokenizer.json");
    check_growth("trim_tekken.tokenizer.json");
    check_growth("trim_deepseek.tokenizer.json");
    check_growth("trim_gemma.tokenizer.json");
    check_growth("trim_llama2.tokenizer.json");
    check_growth("trim_unigram_bytes.tokenizer.json");
}

/* A pattern that backtracks without end is stopped by the match limit. */
static void test_runaway_regex_is_stopped(void **state)
{
    (void)state;
    static const char json[] =
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:(?:a|aa)+)+[cd]\"},"
        "\"behavior\":\"Isolated\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    qp_tokenizer *t = parse_text(json, strlen(json));
    qp_ids ids = {0};
    qp_err err;
    char text[64];
    memset(text, 'a', sizeof text);
    assert_int_equal(qp_tokenizer_encode(t, text, sizeof text, false, &ids, &err), QP_ELIMIT);
    assert_non_null(strstr(err.msg, "regex"));
    qp_ids_deinit(&ids);
    qp_tokenizer_free(t);
}

/* The stream's window and held bytes stay small, whatever comes. */
static void test_stream_of_garbage_stays_small(void **state)
{
    (void)state;
    static const char *const files[] = {"trim_qwen2.tokenizer.json", "trim_llama2.tokenizer.json"};
    for (int f = 0; f < 2; f++) {
        qp_tokenizer *t = open_vector(files[f]);
        int32_t id = f ? qp_tokenizer_id(t, "<0xE2>", 6) : qp_tokenizer_id(t, "\xC3\xA2", 2);
        qp_detok d = {.t = t};
        qp_buf out = {0};
        qp_err err;
        assert_true(id >= 0);
        for (int i = 0; i < 5000; i++) assert_int_equal(qp_detok_push(&d, id, &out, &err), QP_OK);
        assert_true(d.window.n < 1000 && d.work.len < 10000 && out.len > 3 * 4000);
        assert_int_equal(qp_detok_flush(&d, &out, &err), QP_OK);
        assert_int_equal(out.len, 3 * 5000);
        qp_buf_deinit(&out);
        qp_detok_deinit(&d);
        qp_tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocation_failures),           cmocka_unit_test(test_encode_works_after_a_failure),
        cmocka_unit_test(test_time_is_near_linear),           cmocka_unit_test(test_runaway_regex_is_stopped),
        cmocka_unit_test(test_stream_of_garbage_stays_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
