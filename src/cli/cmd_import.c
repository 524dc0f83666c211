/* quantpack import: see cmd_import.h. The work is done by quant/gguf_import.h. */
#include "cli/cmd_import.h"

#include "cli/options.h"
#include "cli/term.h"
#include "quant/gguf_import.h"

typedef struct {
    int dtype;
    bool force;
} import_args;

typedef struct {
    qp_progress bar;
    bool started;
    double done; /* MB */
} progress_state;

static const qp_opt opts[] = {
    {.name = "dtype",
     .kind = QP_OPT_CHOICE,
     .value = "bf16|f32",
     .offset = offsetof(import_args, dtype),
     .fallback = "bf16",
     .refused = "fp16|f16",
     .help = "type of the weights in model.safetensors; bf16 rounds to nearest even"},
    {.name = "force",
     .kind = QP_OPT_FLAG,
     .offset = offsetof(import_args, force),
     .help = "replace the model in a folder that is not empty; other files in it stay"},
};

static bool show_progress(void *arg, uint64_t done, uint64_t total)
{
    progress_state *p = arg;
    if (!p->started) qp_progress_start(&p->bar, "importing", "MB", (double)total / 1e6);
    p->started = true;
    p->done = (double)done / 1e6;
    qp_progress_update(&p->bar, p->done);
    return !qp_term_interrupted();
}

int qp_cmd_import(int argc, char **argv)
{
    import_args args = {0};
    const qp_opt_group group = {"options", opts, sizeof opts / sizeof *opts, &args};
    const qp_usage usage = {
        .command = "import",
        .arguments = "FILE.gguf DIR [options]",
        .summary = "make a model folder from a GGUF file",
        .description = "Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json (with the\n"
                       "chat templates) and model.safetensors to DIR, which must not exist or be empty. Reads the\n"
                       "architectures llama, gemma3 and qwen3, and tensors of type F32, F16, BF16, Q4_0, Q4_1, Q5_0,\n"
                       "Q5_1, Q8_0, Q4_K, Q5_K and Q6_K. DIR appears when all of it is written; an interrupted import\n"
                       "leaves nothing behind.",
        .examples = "  quantpack import SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2\n"
                    "  quantpack import model.Q6_K.gguf models/mine --dtype f32\n"
                    "  quantpack import better.gguf models/mine --force\n",
        .min_positional = 2,
        .max_positional = 2,
        .groups = &group,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    qp_err err = {0};
    qp_import_summary sum;
    progress_state progress = {0};
    const qp_import_options options = {.f32 = args.dtype == 1,
                                       .force = args.force,
                                       .progress = show_progress,
                                       .progress_arg = &progress,
                                       .summary = &sum};
    qp_status st = qp_gguf_import(pos[0], pos[1], &options, &err);
    if (progress.started) qp_progress_end(&progress.bar, progress.done);
    if (st != QP_OK) return qp_report(&err);
    char size[32];
    qp_out_printf("%s: %zu tensors (%s), %zu tokens, %zu merges\n", pos[1], sum.n_tensors,
                  qp_bytes_text((double)sum.weight_bytes, size, sizeof size), sum.n_tokens, sum.n_merges);
    return QP_EXIT_OK;
}
