/* quantpack eval: what a model thinks of a given text: logits of every position, and the mean loss over it. */
#include "base/alloc.h"
#include "cli/cmd.h"
#include "cli/json_out.h"
#include "cli/load.h"
#include "cli/run.h"
#include "cli/term.h"
#include "io/json.h"
#include "io/map.h"
#include "io/out_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *prompt_ids, *file, *dump_logits;
    uint32_t window;
    bool json;
    qp_engine_args engine;
} eval_args;

#define AT(field) offsetof(eval_args, field)
static const qp_opt options[] = {
    {"prompt-ids", 0, QP_OPT_STR, "LIST", AT(prompt_ids), 0, 0, NULL, "the tokens, 1,2,3", NULL},
    {"file", 'f', QP_OPT_STR, "FILE", AT(file), 0, 0, NULL, "a text instead, in windows of --window tokens", NULL},
    {"window", 0, QP_OPT_U32, "N", AT(window), 2, 1 << 20, NULL,
     "tokens a window of --file, each on its own; default: 512", NULL},
    {"dump-logits", 0, QP_OPT_STR, "FILE", AT(dump_logits), 0, 0, NULL,
     "write the logits: little-endian float32, [positions, vocab], every position", NULL},
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "the result as JSON", NULL},
};

typedef struct {
    qp_out_file *out; /* NULL: no dump */
    uint32_t vocab;
    const int32_t *ids;
    size_t n;
    size_t n_scored, n_rows;
    double nll;
    qp_err write_err;
} scoring;

/* Adds -log p(next token) of this row, by a sum in double. */
static void on_logits(void *arg, uint32_t pos, const float *logits)
{
    scoring *s = arg;
    s->n_rows++;
    if (s->out && s->write_err.status == QP_OK)
        qp_out_file_write(s->out, logits, s->vocab * sizeof *logits, &s->write_err);
    if ((size_t)pos + 1 >= s->n) return;
    float top = logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < s->vocab; i++) top = logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < s->vocab; i++) sum += exp((double)logits[i] - (double)top);
    s->nll += log(sum) - ((double)logits[s->ids[pos + 1]] - (double)top);
    s->n_scored++;
}

/* The argument of a request's callbacks. */
typedef struct {
    scoring *s;
    qp_finish why;
    qp_err err;
} eval_arg;

static void eval_logits(void *arg, uint32_t pos, const float *logits)
{
    on_logits(((eval_arg *)arg)->s, pos, logits);
}

static void eval_finish(void *arg, qp_finish why, int32_t end_token, const qp_err *err)
{
    (void)end_token;
    eval_arg *a = arg;
    a->why = why;
    if (why == QP_FINISH_ERROR) a->err = *err;
}

static qp_status score(qp_engine *e, scoring *s, qp_err *err)
{
    eval_arg arg = {s, QP_FINISH_STOP, {QP_OK, ""}};
    qp_request r = {.prompt = s->ids, .n_prompt = s->n, .want_prompt_logits = true, .ignore_eos = true};
    r.sampling = qp_sampling_default();
    r.sampling.temperature = 0;
    r.events = (qp_request_events){.on_prompt_logits = eval_logits, .on_finish = eval_finish, .arg = &arg};
    uint64_t id;
    size_t n_left = 1;
    bool cancelled = false;
    QP_TRY(qp_engine_submit(e, &r, &id, err));
    while (n_left) {
        if ((qp_term_interrupted() || s->write_err.status != QP_OK) && !cancelled) {
            qp_engine_cancel(e, id);
            cancelled = true;
        }
        QP_TRY(qp_engine_step(e, &n_left, err));
    }
    if (s->write_err.status != QP_OK) return qp_fail(err, s->write_err.status, "%s", s->write_err.msg);
    if (cancelled) return qp_fail(err, QP_ECANCELLED, "interrupted");
    if (arg.why == QP_FINISH_ERROR) return qp_fail(err, arg.err.status, "%s", arg.err.msg);
    return QP_OK;
}

static qp_status read_tokens(const eval_args *args, const qp_tokenizer *t, qp_ids *ids, qp_err *err)
{
    if (args->prompt_ids) return qp_ids_parse(args->prompt_ids, "--prompt-ids", ids, err);
    qp_map map;
    QP_TRY(qp_map_open(&map, args->file, err));
    qp_status st = qp_tokenizer_encode(t, (const char *)map.data, map.len, false, ids, err);
    qp_map_close(&map);
    if (st == QP_OK && ids->n < 2) st = qp_fail(err, QP_EINVAL, "%s: %zu tokens, wanted 2 or more", args->file, ids->n);
    return st;
}

/* Every window begins with the tokens that the model expects before a text (bos), which are not scored. */
static qp_status score_windows(qp_loaded *l, const eval_args *args, const qp_ids *ids, scoring *s, qp_err *err)
{
    qp_ids prefix = {0}, window = {0};
    qp_progress progress;
    qp_status st = QP_OK;
    if (l->tokenizer) QP_TRY_OUT(qp_tokenizer_encode(l->tokenizer, "", 0, true, &prefix, err));
    if (prefix.n > 1) prefix.n = 1; /* bos alone, not eos */
    if (!ids->n || prefix.n + 2 > args->window) prefix.n = 0;
    size_t step = args->window - prefix.n;
    qp_progress_start(&progress, "scoring", "tokens", (double)ids->n);
    for (size_t at = 0; at < ids->n; at += step) {
        size_t n = ids->n - at < step ? ids->n - at : step;
        window.n = 0;
        if (prefix.n + n < 2) break;
        for (size_t i = 0; i < prefix.n; i++) QP_TRY_OUT(qp_ids_push(&window, prefix.ids[i], err));
        for (size_t i = 0; i < n; i++) QP_TRY_OUT(qp_ids_push(&window, ids->ids[at + i], err));
        s->ids = window.ids;
        s->n = window.n;
        QP_TRY_OUT(score(l->engine, s, err));
        qp_progress_update(&progress, (double)(at + n));
    }
    qp_progress_end(&progress, (double)ids->n);
out:
    qp_ids_deinit(&prefix);
    qp_ids_deinit(&window);
    return st;
}

/* A figure of the JSON result; infinities, which JSON has no number for, are null. */
static json_t *json_figure(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static qp_status print_result(const eval_args *args, const scoring *s, qp_err *err)
{
    double mean = s->n_scored ? s->nll / (double)s->n_scored : (double)INFINITY;
    if (isnan(mean))
        return qp_fail(err, QP_EFORMAT, "the loss is not a number: the model's logits of this text are not finite");
    if (args->json)
        return qp_out_json(json_pack("{s:I, s:I, s:I, s:o, s:o}", "positions", (json_int_t)s->n_rows, "vocab",
                                     (json_int_t)s->vocab, "scored", (json_int_t)s->n_scored, "mean_nll",
                                     json_figure(mean), "perplexity", json_figure(exp(mean))),
                           JSON_REAL_PRECISION(9), err);
    if (!s->n_scored)
        qp_out_printf("%zu positions of %u logits; no token is scored: the first has none before it\n", s->n_rows,
                      s->vocab);
    else
        qp_out_printf("%zu positions of %u logits; %zu tokens scored: mean loss %.6f, perplexity %.4f\n", s->n_rows,
                      s->vocab, s->n_scored, mean, exp(mean));
    return QP_OK;
}

static qp_status run(const char *dir, const eval_args *args, qp_err *err)
{
    qp_loaded l = {0};
    qp_ids ids = {0};
    scoring s = {0};
    qp_status st = QP_OK;
    QP_TRY_OUT(qp_load_model(&l, dir, &args->engine, args->file != NULL, err));
    QP_TRY_OUT(read_tokens(args, l.tokenizer, &ids, err));
    s.vocab = qp_model_get_info(l.model)->vocab;
    for (size_t i = 0; i < ids.n; i++)
        if ((uint32_t)ids.ids[i] >= s.vocab)
            QP_TRY_OUT(qp_fail(err, QP_EINVAL, "token %zu: id %d, wanted one below %u", i, ids.ids[i], s.vocab));
    qp_need need = {1, args->file ? args->window : ids.n, args->file ? args->window : ids.n, true};
    QP_TRY_OUT(qp_load_engine(&l, &args->engine, &need, err));
    if (args->dump_logits) QP_TRY_OUT(qp_out_file_open(&s.out, args->dump_logits, err));
    if (args->file) {
        QP_TRY_OUT(score_windows(&l, args, &ids, &s, err));
    } else {
        s.ids = ids.ids;
        s.n = ids.n;
        QP_TRY_OUT(score(l.engine, &s, err));
    }
    if (s.out) QP_TRY_OUT(qp_out_file_commit(s.out, err));
    st = print_result(args, &s, err);
out:
    qp_out_file_close(s.out);
    qp_ids_deinit(&ids);
    qp_loaded_close(&l);
    return st;
}

int qp_cmd_eval(int argc, char **argv)
{
    eval_args args = {0};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args},
                                   qp_engine_group(&args.engine)};
    const qp_usage usage = {
        .command = "eval",
        .arguments = "MODEL (--prompt-ids LIST | --file FILE) [options]",
        .summary = "logits and loss of a model on given tokens or a text",
        .description =
            "Prints the mean negative log-likelihood of each token after the first, and its exponential, the "
            "perplexity.",
        .examples = "  quantpack eval models/mine --file text.txt\n"
                    "  quantpack eval models/mine --prompt-ids 1,2,3 --dump-logits logits.f32\n",
        .min_positional = 1,
        .max_positional = 1,
        .groups = groups,
        .n_groups = 2,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!args.prompt_ids == !args.file) return qp_usage_error("eval", "wanted either --prompt-ids LIST or --file FILE");
    if (args.window && !args.file) return qp_usage_error("eval", "--window goes with --file");
    if (!args.window) args.window = 512;
    qp_err err = {0};
    return run(pos[0], &args, &err) == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
