/* Tokenizer speed: encodes a file several times and prints one JSON line: bytes, ids, seconds of the fastest, the
 * median and the first run, the load time, the memory held. bench/tokenizer.py runs it beside the `tokenizers` package.
 *
 * usage: bench_tokenizer TOKENIZER.json TEXT RUNS [ids]
 * Documents are separated by a byte 1E (record separator). With `ids` the ids are printed instead. */
#include "base/alloc.h"
#include "io/map.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int fail(const char *what, const qp_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    return 1;
}

static qp_status encode_docs(const qp_tokenizer *t, const char *s, size_t n, qp_ids *ids, qp_err *err)
{
    for (size_t at = 0; at <= n;) {
        const char *end = memchr(s + at, 0x1E, n - at);
        size_t stop = end ? (size_t)(end - s) : n;
        QP_TRY(qp_tokenizer_encode(t, s + at, stop - at, false, ids, err));
        at = stop + 1;
    }
    return QP_OK;
}

static void print_result(const qp_map *text, const qp_ids *ids, double *seconds, size_t runs, double load)
{
    double first = seconds[0];
    qsort(seconds, runs, sizeof *seconds, compare);
    printf("{\"bytes\": %zu, \"ids\": %zu, \"best_s\": %.6f, \"median_s\": %.6f, \"first_s\": %.6f, \"load_s\": %.4f, "
           "\"live_bytes\": %zu}\n",
           text->len, ids->n, seconds[0], seconds[runs / 2], first, load, qp_alloc_live_bytes());
}

int main(int argc, char **argv)
{
    qp_err err = {0};
    qp_map json, text;
    qp_tokenizer *t;
    qp_ids ids = {0};
    size_t runs = argc > 3 ? (size_t)atol(argv[3]) : 0;
    if (runs < 1 || runs > 1000) {
        fprintf(stderr, "usage: %s TOKENIZER.json TEXT RUNS [ids]\n", argv[0]);
        return 2;
    }
    if (qp_map_open(&json, argv[1], &err) || qp_map_open(&text, argv[2], &err)) return fail("open", &err);
    double t0 = cpu_seconds();
    if (qp_tokenizer_parse(&t, (const char *)json.data, json.len, NULL, 0, argv[1], &err)) return fail("load", &err);
    double load = cpu_seconds() - t0, *seconds = calloc(runs, sizeof *seconds);
    for (size_t r = 0; seconds && r < runs; r++) {
        ids.n = 0;
        t0 = cpu_seconds();
        if (encode_docs(t, text.len ? (const char *)text.data : "", text.len, &ids, &err)) return fail("encode", &err);
        seconds[r] = cpu_seconds() - t0;
    }
    if (argc > 4) {
        for (size_t i = 0; i < ids.n; i++) printf("%d\n", ids.ids[i]);
    } else if (seconds) {
        print_result(&text, &ids, seconds, runs, load);
    }
    free(seconds);
    qp_ids_deinit(&ids);
    qp_tokenizer_free(t);
    qp_map_close(&json);
    qp_map_close(&text);
    return 0;
}
