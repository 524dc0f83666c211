/* quantpack bench: picks the bench. */
#include "cli/bench_attention.h"
#include "cli/bench_linear.h"
#include "cli/bench_memory.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/term.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} bench;

static const bench benches[] = {
    {"linear", "one EXL3 layer, dense layer or shape, by number of rows", qp_bench_linear},
    {"memory", "read bandwidth by number of threads, the limit of decoding", qp_bench_memory},
    {"attention", "attention of one layer over a paged cache", qp_bench_attention},
    {"model", "prefill and decode of a whole model; also makes random packs", qp_bench_model},
};

enum { N_BENCHES = sizeof benches / sizeof benches[0] };

static void print_help(void)
{
    printf("quantpack bench: speed figures\n\nusage: quantpack bench BENCH [arguments] [options]\n\nbenches:\n");
    for (size_t i = 0; i < N_BENCHES; i++) printf("  %-10s %s\n", benches[i].name, benches[i].summary);
    printf("\n`quantpack bench BENCH --help` has the options.\n"
           "\nexamples:\n"
           "  quantpack bench memory\n"
           "  quantpack bench model models/mine --prompt-tokens 512 --decode-tokens 128\n"
           "  quantpack bench model --random-pack packs/8b --shape qwen3-8b --bits 4\n");
}

int qp_cmd_bench(int argc, char **argv)
{
    if (argc < 2) return qp_usage_error("bench", "no bench given, wanted linear, attention, model or memory");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return QP_EXIT_OK;
    }
    const char *words[N_BENCHES];
    for (size_t i = 0; i < N_BENCHES; i++) {
        if (strcmp(argv[1], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
        words[i] = benches[i].name;
    }
    const char *near = qp_nearest(argv[1], words, N_BENCHES);
    if (near) return qp_usage_error("bench", "no bench %s; did you mean %s?", argv[1], near);
    return qp_usage_error("bench", "no bench %s, wanted linear, attention, model or memory", argv[1]);
}
