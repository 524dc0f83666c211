/* quantpack: the program. Picks the command; everything else is in cmd_*.c. */
#include "base/alloc.h"
#include "cli/cmd.h"
#include "cli/cmd_import.h"
#include "cli/cmd_template.h"
#include "cli/options.h"
#include "cli/term.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

/* Ends with an entry without a name. */
static const command commands[] = {
    {"generate", "continue a prompt and show the text as it comes", qp_cmd_generate},
    {"chat", "talk to a model in the terminal", qp_cmd_chat},
    {"import", "make a model folder from a GGUF file", qp_cmd_import},
    {"inspect", "what is in a model folder: tensors, bits, bytes, use", qp_cmd_inspect},
    {"plan", "the memory a run would take, by kind, and what fits", qp_cmd_plan},
    {"eval", "logits and loss on given tokens or a text", qp_cmd_eval},
    {"bench", "speed of layers, attention, memory and whole models", qp_cmd_bench},
    {"tokenize", "text to token ids and back", qp_cmd_tokenize},
    {"template", "render a chat template file", qp_cmd_template},
    {NULL, NULL, NULL},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] - 1 };

static void print_help(void)
{
    printf("quantpack " QP_VERSION ": run quantized large language models on this machine\n\n"
           "usage: quantpack COMMAND [arguments] [options]\n\ncommands:\n");
    for (size_t i = 0; commands[i].name; i++) printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("  %-10s %s\n  %-10s %s\n", "help", "this text, or `help COMMAND`", "version",
           "the version (also --version)");
    printf("\n`quantpack COMMAND --help` has a command's options and examples.\n"
           "\nexamples:\n"
           "  quantpack import model.gguf models/mine        make a model folder from a GGUF file\n"
           "  quantpack generate models/mine -p \"Why is the sky blue?\"\n"
           "  quantpack chat models/mine                     talk to it\n"
           "  quantpack plan models/mine --max-model-len 8192   what memory that would take\n"
           "\nenvironment: QP_CPU=ref|avx2|avx512|vnni|amx takes kernels of that level instead of the best.\n"
           "exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (143 by SIGTERM, 129 by SIGHUP),\n"
           "            141 the reader of the output went away\n");
}

static const command *find(const char *name)
{
    for (size_t i = 0; commands[i].name; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *words[N_COMMANDS + 2];
    for (size_t i = 0; commands[i].name; i++) words[i] = commands[i].name;
    words[N_COMMANDS] = "help";
    words[N_COMMANDS + 1] = "version";
    const char *near = qp_nearest(name + strspn(name, "-"), words, N_COMMANDS + 2);
    fprintf(stderr, "quantpack: no %s %s", name[0] == '-' ? "option" : "command", name);
    if (near && strcmp(near, name) != 0) fprintf(stderr, "; did you mean %s%s?", name[0] == '-' ? "--" : "", near);
    fprintf(stderr, "\n`quantpack --help` lists the commands.\n");
    return QP_EXIT_USAGE;
}

static int surplus(const char *name, const char *arg)
{
    qp_note("%s: unexpected argument \"%s\"", name, arg);
    fprintf(stderr, "`quantpack --help` lists the commands.\n");
    return QP_EXIT_USAGE;
}

/* For tests: QP_TEST_ALLOC_FAIL=n makes the n-th allocation fail. */
static void arm_allocation_failure(void)
{
    const char *text = getenv("QP_TEST_ALLOC_FAIL");
    uint64_t n;
    if (text && qp_parse_u64(text, 1, UINT64_MAX, &n)) qp_alloc_fail_after(n);
}

int main(int argc, char **argv)
{
    qp_term_init();
    arm_allocation_failure();
    if (argc < 2) {
        print_help();
        qp_out_finish(QP_EXIT_OK);
        return QP_EXIT_USAGE;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc == 2) {
        print_help();
        return qp_out_finish(QP_EXIT_OK);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        if (argc > 2) return surplus(name, argv[2]);
        qp_out_printf("quantpack %s\n", QP_VERSION);
        return qp_out_finish(QP_EXIT_OK);
    }
    const command *c = find(help ? argv[2] : name);
    if (!c) return unknown(help ? argv[2] : name);
    bool bench = c->run == qp_cmd_bench; /* which has commands of its own */
    if (help && argc > 3 + bench) return surplus(name, argv[3 + bench]);
    if (help) {
        char flag[] = "--help";
        char *args[] = {argv[2], argc > 3 ? argv[3] : flag, argc > 3 ? flag : NULL, NULL};
        return qp_out_finish(c->run(argc - 1, args));
    }
    int code = c->run(argc - 1, argv + 1);
    /* Also of commands that are over before they look. */
    if (code == QP_EXIT_OK && qp_term_interrupted()) {
        qp_note("interrupted");
        code = qp_term_interrupt_code();
    }
    return qp_out_finish(code);
}
