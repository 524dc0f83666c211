/* quantpack generate: text or token ids in, text or token ids out. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "cli/cmd.h"
#include "cli/json_out.h"
#include "cli/load.h"
#include "cli/prompt.h"
#include "cli/run.h"
#include "cli/term.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    bool ignore_eos, print_ids, json, quiet;
} generate_args;

#define AT(field) offsetof(generate_args, field)
static const qp_opt options[] = {
    {"ignore-eos", 0, QP_OPT_FLAG, NULL, AT(ignore_eos), 0, 0, NULL, "go on after an end token", NULL},
    {"print-ids", 0, QP_OPT_FLAG, NULL, AT(print_ids), 0, 0, NULL,
     "print each sequence's new ids as one line, 1,2,3, in the order of the prompts, and nothing else on stdout", NULL},
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object a sequence: text, ids, counts, speed", NULL},
    {"quiet", 'q', QP_OPT_FLAG, NULL, AT(quiet), 0, 0, NULL, "no line with the speed on stderr", NULL},
};

/* One sequence on its way to stdout. */
typedef struct {
    qp_detok detok;
    qp_buf text;
    size_t shown; /* bytes of text that stdout has */
    bool live;    /* text goes out as it comes */
    qp_err err;   /* of the detokenizer */
} printer;

static void show(printer *p)
{
    if (!p->live || p->shown == p->text.len) return;
    qp_out_write(p->text.data + p->shown, p->text.len - p->shown);
    qp_out_flush();
    p->shown = p->text.len;
}

static void on_token(void *arg, int32_t token)
{
    printer *p = arg;
    if (!p->detok.t || p->err.status != QP_OK) return;
    qp_detok_push(&p->detok, token, &p->text, &p->err);
    show(p);
}

static void print_ids(const qp_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) qp_out_printf(i ? ",%d" : "%d", ids->ids[i]);
    qp_out_write("\n", 1);
}

static qp_status print_json(const qp_run_seq *s, const printer *p, size_t index, const qp_run_stats *stats,
                            uint64_t seed, qp_err *err)
{
    qp_buf clean = {0};
    json_t *ids = json_array(), *root;
    bool ok = true;
    for (size_t i = 0; i < s->out.n; i++) ok = json_array_append_new(ids, json_integer(s->out.ids[i])) == 0 && ok;
    qp_utf8_sanitize(&clean, p->text.data ? p->text.data : "", p->text.len);
    root = json_pack("{s:I, s:I, s:o, s:s, s:I, s:f, s:f}", "index", (json_int_t)index, "prompt_tokens",
                     (json_int_t)s->n_prompt, "ids", ids, "finish_reason", qp_finish_name(s->finish), "seed",
                     (json_int_t)seed, "prompt_tokens_per_second", stats->prefill_rate, "decode_tokens_per_second",
                     stats->decode_rate);
    ok = ok && root && !clean.failed;
    if (ok && p->detok.t)
        ok = json_object_set_new(root, "text", json_stringn(clean.data ? clean.data : "", clean.len)) == 0;
    if (ok && s->err.status != QP_OK) ok = json_object_set_new(root, "error", json_string(s->err.msg)) == 0;
    if (!ok) {
        json_decref(root);
        root = NULL;
    }
    qp_buf_deinit(&clean);
    return qp_out_json(root, JSON_COMPACT, err);
}

/* Prints what belongs on stdout after the run. */
static qp_status print_all(const generate_args *args, qp_run_seq *seqs, printer *printers, size_t n,
                           const qp_run_stats *stats, uint64_t seed, qp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        printer *p = &printers[i];
        if (p->detok.t && p->err.status == QP_OK) qp_detok_flush(&p->detok, &p->text, &p->err);
        if (p->err.status != QP_OK) return qp_fail(err, p->err.status, "%s", p->err.msg);
        if (args->print_ids) {
            print_ids(&seqs[i].out);
        } else if (args->json) {
            QP_TRY(print_json(&seqs[i], p, i, stats, seed, err));
        } else {
            if (n > 1) qp_out_printf("%s[%zu] ", i ? "\n" : "", i);
            p->live = true;
            show(p);
            qp_out_write("\n", 1);
        }
    }
    qp_out_flush();
    return QP_OK;
}

/* A sequence that ended in an error makes the command fail, after everything was printed. */
static qp_status check_all(const qp_run_seq *seqs, size_t n, qp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (seqs[i].finish != QP_FINISH_ERROR) continue;
        qp_fail(err, seqs[i].err.status, "%s", seqs[i].err.msg);
        return n > 1 ? qp_wrap(err, "sequence %zu", i) : err->status;
    }
    return QP_OK;
}

static qp_status generate(qp_loaded *l, const generate_args *args, const qp_prompts *prompts, qp_request *base,
                          qp_err *err)
{
    qp_run_seq *seqs = NULL;
    printer *printers = NULL;
    qp_run_stats stats = {0};
    qp_err late = {QP_OK, ""};
    char line[256];
    qp_status st;
    QP_TRY_OUT(qp_new(&seqs, prompts->n, sizeof *seqs, "sequences", err));
    QP_TRY_OUT(qp_new(&printers, prompts->n, sizeof *printers, "sequences", err));
    for (size_t i = 0; i < prompts->n; i++) {
        printers[i].detok = (qp_detok){.t = l->tokenizer, .skip_special = true};
        printers[i].live = prompts->n == 1 && !args->print_ids && !args->json;
        seqs[i] = (qp_run_seq){.prompt = prompts->seqs[i].ids, .n_prompt = prompts->seqs[i].n, .on_token = on_token};
        seqs[i].arg = &printers[i];
    }
    st = qp_run_all(l->engine, seqs, prompts->n, base, &stats, err);
    /* What was made before Ctrl-C is kept; other failures here mean that nothing ran. */
    if (st != QP_OK && st != QP_ECANCELLED) goto out;
    if (print_all(args, seqs, printers, prompts->n, &stats, base->sampling.seed, &late) != QP_OK && st == QP_OK) {
        *err = late;
        st = late.status;
    }
    if (st == QP_OK) st = check_all(seqs, prompts->n, err);
    if (!args->quiet) fprintf(stderr, "%s\n", qp_run_stats_text(&stats, line, sizeof line));
out:
    for (size_t i = 0; seqs && printers && i < prompts->n; i++) {
        qp_run_seq_deinit(&seqs[i]);
        qp_detok_deinit(&printers[i].detok);
        qp_buf_deinit(&printers[i].text);
    }
    qp_free(printers);
    qp_free(seqs);
    return st;
}

static qp_status run(const char *dir, const generate_args *args, const qp_prompt_args *prompt,
                     const qp_engine_args *engine, qp_sampling_args *sampling, qp_err *err)
{
    qp_loaded l = {0};
    qp_prompts prompts = {0};
    qp_request base = {.ignore_eos = args->ignore_eos};
    qp_status st;
    QP_TRY_OUT(qp_load_model(&l, dir, engine, prompt->text || !args->print_ids, err));
    QP_TRY_OUT(qp_prompts_read(&prompts, prompt, l.tokenizer, dir, err));
    const qp_model_info *info = qp_model_get_info(l.model);
    qp_need need = qp_prompts_need(&prompts, prompt, engine, info, &base.max_tokens);
    QP_TRY_OUT(qp_load_engine(&l, engine, &need, err));
    base.sampling = qp_args_sampling(sampling, info);
    st = generate(&l, args, &prompts, &base, err);
out:
    qp_prompts_deinit(&prompts);
    qp_loaded_close(&l);
    return st;
}

int qp_cmd_generate(int argc, char **argv)
{
    generate_args args = {0};
    qp_prompt_args prompt = {0};
    qp_engine_args engine = {0};
    qp_sampling_args sampling;
    const qp_opt_group groups[] = {qp_prompt_group(&prompt),
                                   {"output options", options, sizeof options / sizeof options[0], &args},
                                   qp_sampling_group(&sampling),
                                   qp_engine_group(&engine)};
    const qp_usage usage = {
        .command = "generate",
        .arguments = "MODEL (-p TEXT | --prompt-ids LIST | --prompt-ids-file FILE) [options]",
        .summary = "continue a prompt and show the text as it comes",
        .description =
            "The text goes to stdout, a line with counts and speed to stderr. Several prompts run as one batch; a "
            "sequence's greedy tokens do not depend on the others.",
        .examples = "  quantpack generate models/mine -p \"Why is the sky blue?\" --max-tokens 100\n"
                    "  quantpack generate models/mine -p \"Once upon a time\" --raw --temperature 0.8 --seed 7\n"
                    "  quantpack generate models/mine --prompt-ids 1,2,3 --print-ids --ignore-eos --max-tokens 16\n",
        .min_positional = 1,
        .max_positional = 1,
        .groups = groups,
        .n_groups = 4,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!qp_prompt_args_check(&prompt, false, "generate")) return QP_EXIT_USAGE;
    if (args.print_ids && args.json) return qp_usage_error("generate", "wanted --print-ids or --json, not both");
    qp_err err = {0};
    qp_status st = run(pos[0], &args, &prompt, &engine, &sampling, &err);
    if (st == QP_EIO && !err.msg[0]) return QP_EXIT_FAILURE; /* stdout failed; main says so */
    return st == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
