/* quantpack plan: the memory that generate with the same options would take, by kind, without taking it. */
#include "base/alloc.h"
#include "cli/cmd.h"
#include "cli/json_out.h"
#include "cli/load.h"
#include "cli/prompt.h"
#include "cli/sysmem.h"
#include "cli/term.h"

#include <stdio.h>

typedef struct {
    bool json;
} plan_args;

#define AT(field) offsetof(plan_args, field)
static const qp_opt options[] = {
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object", NULL},
};

typedef struct {
    qp_plan plan;
    qp_engine_opts opts;
    size_t base, tokenizer, total, available;
    uint64_t fit_len;  /* most tokens a sequence could have, with as many sequences as asked for */
    uint64_t fit_seqs; /* most sequences of the length asked for */
} result;

/* What the weights and everything else fixed take. */
static size_t fixed_bytes(const result *r)
{
    return r->base + r->tokenizer + r->plan.weights_mapped + r->plan.weights_heap;
}

/* Whether an engine with these many sequences of this length fits what is available. */
static bool fits(const qp_model *m, const result *r, uint32_t n_seqs, uint32_t len)
{
    qp_engine_opts o = r->opts;
    qp_plan p;
    qp_err err = {QP_OK, ""};
    o.max_num_seqs = n_seqs;
    o.max_model_len = len;
    o.kv_tokens = (uint64_t)n_seqs * len;
    if (qp_engine_opts_resolve(&o, m, &err) != QP_OK || qp_engine_plan(m, &o, &p, &err) != QP_OK) return false;
    return fixed_bytes(r) + p.kv + p.state + p.scratch <= r->available;
}

/* The largest n in [0, hi] for which the engine fits, by bisection. */
static uint32_t largest(const qp_model *m, const result *r, bool length, uint32_t hi)
{
    uint32_t lo = 0;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo + 1) / 2;
        if (length ? fits(m, r, r->opts.max_num_seqs, mid) : fits(m, r, mid, r->opts.max_model_len))
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static void print_text(const result *r)
{
    const struct {
        const char *name;
        size_t bytes;
        const char *what;
    } rows[] = {
        {"weights", r->plan.weights_mapped, "mapped from the model's files; the system can drop and reread them"},
        {"weights, heap", r->plan.weights_heap, "norms and the like, widened"},
        {"kv", r->plan.kv, "cached keys and values, all pages"},
        {"state", r->plan.state, "recurrent state"},
        {"scratch", r->plan.scratch, "one step's intermediate values, logits"},
        {"tokenizer", r->tokenizer, ""},
        {"base", r->base, "program and libraries"},
        {"total", r->total, ""},
    };
    char text[32];
    qp_out_printf("%u sequences of at most %u tokens, %u tokens a step, %u a page, %u threads\n\n",
                  r->opts.max_num_seqs, r->opts.max_model_len, r->opts.max_num_batched_tokens, r->opts.page_size,
                  r->opts.n_threads);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        qp_out_printf("%-14s %14zu %10s  %s\n", rows[i].name, rows[i].bytes,
                      qp_bytes_text((double)rows[i].bytes, text, sizeof text), rows[i].what);
    if (!r->available) return;
    qp_out_printf("\navailable      %14zu %10s  %s\n", r->available,
                  qp_bytes_text((double)r->available, text, sizeof text),
                  r->total <= r->available ? "this fits" : "this does not fit");
    qp_out_printf("what fits: --max-model-len up to %llu with %u sequences; --max-num-seqs up to %llu at %u tokens\n",
                  (unsigned long long)r->fit_len, r->opts.max_num_seqs, (unsigned long long)r->fit_seqs,
                  r->opts.max_model_len);
}

static qp_status print_json(const result *r, qp_err *err)
{
    json_t *root = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights_mapped",
        (json_int_t)r->plan.weights_mapped, "weights_heap", (json_int_t)r->plan.weights_heap, "kv",
        (json_int_t)r->plan.kv, "state", (json_int_t)r->plan.state, "scratch", (json_int_t)r->plan.scratch, "tokenizer",
        (json_int_t)r->tokenizer, "base", (json_int_t)r->base, "total", (json_int_t)r->total, "available",
        (json_int_t)r->available, "fits", r->total <= r->available, "page_bytes", (json_int_t)r->plan.page_bytes,
        "pages", (json_int_t)r->plan.n_pages, "max_num_seqs", (json_int_t)r->opts.max_num_seqs, "max_model_len",
        (json_int_t)r->opts.max_model_len, "max_num_batched_tokens", (json_int_t)r->opts.max_num_batched_tokens,
        "threads", (json_int_t)r->opts.n_threads, "fits_max_model_len", (json_int_t)r->fit_len, "fits_max_num_seqs",
        (json_int_t)r->fit_seqs);
    return qp_out_json(root, JSON_INDENT(1), err);
}

static qp_status run(const char *dir, const plan_args *args, const qp_prompt_args *prompt, const qp_engine_args *engine,
                     qp_err *err)
{
    qp_loaded l = {0};
    qp_prompts prompts = {0};
    result r = {0};
    qp_status st = QP_OK;
    size_t heap = qp_alloc_live_bytes();
    qp_need need = {1, prompt->max_tokens, 0, false}; /* without a prompt: as long as the engine allows */
    r.available = qp_mem_available();
    r.base = qp_mem_resident();
    /* A tokenizer is loaded for text alone; with ids generate does without, and so does the plan. */
    bool text = !prompt->ids && !prompt->ids_file;
    if (text) {
        qp_err no_tokenizer = {QP_OK, ""};
        if (qp_tokenizer_open(&l.tokenizer, dir, prompt->text ? err : &no_tokenizer) != QP_OK && prompt->text)
            return err->status;
        /* What stays resident after reading it, which is more than what it holds: pages between its blocks. */
        size_t held = qp_alloc_live_bytes() - heap, resident = qp_mem_resident();
        r.tokenizer = resident > r.base + held ? resident - r.base : held;
    }
    QP_TRY_OUT(qp_load_model(&l, dir, engine, false, err));
    if (prompt->text || !text) {
        uint32_t max_tokens;
        QP_TRY_OUT(qp_prompts_read(&prompts, prompt, l.tokenizer, dir, err));
        need = qp_prompts_need(&prompts, prompt, engine, qp_model_get_info(l.model), &max_tokens);
    }
    QP_TRY_OUT(qp_load_engine_opts(l.model, engine, &need, &r.opts, err));
    qp_note_lowered(engine, &r.opts);
    QP_TRY_OUT(qp_engine_plan(l.model, &r.opts, &r.plan, err));
    r.total = fixed_bytes(&r) + r.plan.kv + r.plan.state + r.plan.scratch;
    uint32_t limit = qp_model_get_info(l.model)->max_position;
    r.fit_len = largest(l.model, &r, true, limit ? limit : QP_MAX_POSITION);
    r.fit_seqs = largest(l.model, &r, false, 4096);
    if (args->json)
        QP_TRY_OUT(print_json(&r, err));
    else
        print_text(&r);
out:
    qp_prompts_deinit(&prompts);
    qp_loaded_close(&l);
    return st;
}

int qp_cmd_plan(int argc, char **argv)
{
    plan_args args = {false};
    qp_prompt_args prompt = {0};
    qp_engine_args engine = {0};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args},
                                   qp_prompt_group(&prompt),
                                   qp_engine_group(&engine)};
    const qp_usage usage = {
        .command = "plan",
        .arguments = "MODEL [options]",
        .summary = "the memory a run would take, by kind, and what fits",
        .description = "Takes the options of generate and answers for a run of it. Without a prompt, --max-model-len "
                       "says how long "
                       "sequences are (default: as long as the model allows, at most 8192). The total is the peak of "
                       "resident memory, mapped weights included.",
        .examples = "  quantpack plan models/mine --max-model-len 8192 --max-num-seqs 4\n"
                    "  quantpack plan models/mine -p \"Why is the sky blue?\" --max-tokens 100 --json\n",
        .min_positional = 1,
        .max_positional = 1,
        .groups = groups,
        .n_groups = 3,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!qp_prompt_args_check(&prompt, true, "plan")) return QP_EXIT_USAGE;
    qp_err err = {0};
    return run(pos[0], &args, &prompt, &engine, &err) == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
