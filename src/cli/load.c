/* Shared options and opening of models: see load.h. */
#include "cli/load.h"

#include "base/clock.h"
#include "base/rng.h"
#include "cli/term.h"
#include "io/map.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What makes a sequence's length when --max-model-len does not. */
#define LENGTH_FROM "the prompt and --max-tokens, or --window"

#define AT(field) offsetof(qp_engine_args, field)
static const qp_opt engine_opts[] = {
    {"threads", 't', QP_OPT_U32, "N", AT(threads), 0, 1024, "0", "compute threads; 0: the processors of this process",
     NULL},
    {"max-model-len", 0, QP_OPT_U32, "N", AT(max_model_len), 0, 1 << 30, "0",
     "tokens a sequence may have, prompt included; 0: what the request needs", NULL},
    {"max-num-seqs", 0, QP_OPT_U32, "N", AT(max_num_seqs), 0, 4096, "0",
     "sequences that run at once; 0: those asked for, at most 16", NULL},
    {"max-num-batched-tokens", 0, QP_OPT_U32, "N", AT(max_num_batched_tokens), 0, 65536, "0",
     "tokens a step, prefill and decode together; 0: what the prompts need, at most 512", NULL},
    {"page-size", 0, QP_OPT_U32, "N", AT(page_size), 0, 4096, "0", "tokens a cache page; 0: 32", NULL},
    {"kv-cache-dtype", 0, QP_OPT_CHOICE, "auto|fp32|fp16|bf16", AT(kv_cache_dtype), 0, 0, "auto",
     "type of cached keys and values; auto is fp32", "fp8|fp8_e4m3|fp8_e5m2|int4_per_token_head|nvfp4"},
    {"exl3-arith", 0, QP_OPT_CHOICE, "auto|int16|fp32", AT(exl3_arith), 0, 0, "auto",
     "arithmetic of EXL3 layers with the mul1 codebook; auto is int16", NULL},
};
#undef AT

#define AT(field) offsetof(qp_sampling_args, field)
static const qp_opt sampling_opts[] = {
    {"temperature", 0, QP_OPT_FLOAT, "T", AT(temperature), 0, 100, NULL,
     "0 takes the most probable token; default: the model's own, else 0", NULL},
    {"top-k", 0, QP_OPT_I32, "N", AT(top_k), -1, 1 << 24, NULL, "draw from the N most probable tokens; 0 or -1: all",
     NULL},
    {"top-p", 0, QP_OPT_FLOAT, "P", AT(top_p), 0, 1, NULL, "draw from the most probable tokens that sum to P; 1: all",
     NULL},
    {"min-p", 0, QP_OPT_FLOAT, "P", AT(min_p), 0, 1, NULL, "drop tokens below P times the best one's probability",
     NULL},
    {"repetition-penalty", 0, QP_OPT_FLOAT, "R", AT(repetition_penalty), 0.001, 100, NULL,
     "divides (multiplies) positive (negative) logits of tokens seen; 1: off", NULL},
    {"seed", 0, QP_OPT_U64, "N", AT(seed), 0, 0, "0", "of the random numbers; 0: one is made up", NULL},
};
#undef AT

qp_opt_group qp_engine_group(qp_engine_args *args)
{
    return (qp_opt_group){"engine options", engine_opts, sizeof engine_opts / sizeof engine_opts[0], args};
}

qp_opt_group qp_sampling_group(qp_sampling_args *args)
{
    *args = (qp_sampling_args){-1, -1, -1, -1, QP_TOP_K_UNSET, 0};
    return (qp_opt_group){"sampling options", sampling_opts, sizeof sampling_opts / sizeof sampling_opts[0], args};
}

qp_model_opts qp_args_model(const qp_engine_args *args)
{
    return (qp_model_opts){.arith = args->exl3_arith == QP_ARITH_FP32 ? QP_EXL3_F32 : QP_EXL3_I16};
}

qp_engine_opts qp_args_engine(const qp_engine_args *args)
{
    static const qp_wtype types[] = {QP_W_F32, QP_W_F32, QP_W_F16, QP_W_BF16};
    return (qp_engine_opts){.n_threads = args->threads,
                            .page_size = args->page_size,
                            .max_num_seqs = args->max_num_seqs,
                            .max_num_batched_tokens = args->max_num_batched_tokens,
                            .max_model_len = args->max_model_len,
                            .kv_type = types[args->kv_cache_dtype]};
}

qp_sampling qp_args_sampling(qp_sampling_args *args, const qp_model_info *info)
{
    qp_sampling s = qp_sampling_default();
    bool other = args->top_k != QP_TOP_K_UNSET || args->top_p >= 0 || args->min_p >= 0 || args->seed != 0;
    double temperature = args->temperature >= 0 ? args->temperature : info->temperature;
    s.temperature = temperature >= 0 ? (float)temperature : other ? 1.0F : 0.0F;
    if (args->top_k != QP_TOP_K_UNSET || info->top_k >= 0)
        s.top_k = args->top_k != QP_TOP_K_UNSET ? args->top_k : info->top_k;
    double top_p = args->top_p >= 0 ? args->top_p : info->top_p, min_p = args->min_p >= 0 ? args->min_p : info->min_p;
    double penalty = args->repetition_penalty >= 0 ? args->repetition_penalty : info->repetition_penalty;
    if (top_p >= 0) s.top_p = (float)top_p;
    if (min_p >= 0) s.min_p = (float)min_p;
    if (penalty > 0) s.repetition_penalty = (float)penalty;
    if (!args->seed) {
        qp_rng r = {qp_clock_ns() ^ (uint64_t)getpid() << 32 ^ (uint64_t)qp_clock_unix()};
        args->seed = (qp_rng_u64(&r) >> 20) + 1; /* short enough to type again */
    }
    s.seed = args->seed;
    return s;
}

/* One line each for what of the folder is left out: unused tensors with the first names, parts, generation settings. */
static void note_unused(const qp_model *m)
{
    const qp_checkpoint *c = qp_model_checkpoint(m);
    size_t n_unused = 0, n_later = 0;
    char names[160] = "";
    for (size_t i = 0; i < qp_checkpoint_n_tensors(c); i++) {
        qp_tensor_use use = qp_model_tensor_use(m, i);
        n_later += use == QP_USE_LATER;
        if (use != QP_USE_NONE) continue;
        size_t n = strlen(names);
        if (n_unused++ < 3 && n < sizeof names)
            snprintf(names + n, sizeof names - n, "%s%.60s", n ? ", " : "", qp_checkpoint_at(c, i)->name);
    }
    if (n_unused)
        qp_note("%zu tensors are unused: %s%s (`quantpack inspect` lists them)", n_unused, names,
                n_unused > 3 ? ", ..." : "");
    const char *not_honoured = qp_model_get_info(m)->not_honoured;
    if (not_honoured[0]) qp_note("generation_config.json: not done by this version: %s", not_honoured);
    if (n_later) qp_note("%zu tensors of parts that this version does not run (vision, MTP) are left out", n_later);
}

qp_status qp_load_model(qp_loaded *l, const char *dir, const qp_engine_args *args, bool with_tokenizer, qp_err *err)
{
    if (!qp_path_is_dir(dir))
        return qp_fail(err, QP_EIO, "%s: %s, wanted a model folder%s", dir,
                       qp_path_is_file(dir)  ? "a file"
                       : qp_path_exists(dir) ? "not a folder"
                                             : "no such folder",
                       qp_path_is_file(dir) ? " (`quantpack import` makes one from a GGUF file)" : "");
    qp_model_opts opts = qp_args_model(args);
    /* The tokenizer first: what its JSON takes while it is read is free again before the engine asks for memory. */
    if (with_tokenizer) QP_TRY(qp_tokenizer_open(&l->tokenizer, dir, err));
    QP_TRY(qp_model_open(&l->model, dir, &opts, err));
    note_unused(l->model);
    if (qp_term_interrupted()) return qp_fail(err, QP_ECANCELLED, "interrupted");
    return QP_OK;
}

qp_status qp_load_engine_opts(const qp_model *m, const qp_engine_args *args, const qp_need *need, qp_engine_opts *out,
                              qp_err *err)
{
    enum { SEQS = 16, ROWS = 512 };
    qp_engine_opts opts = qp_args_engine(args);
    opts.no_prompt_logits = !need->prompt_logits;
    if (!opts.max_num_seqs) opts.max_num_seqs = need->n_seqs < SEQS ? (uint32_t)need->n_seqs : SEQS;
    if (!opts.max_model_len) {
        uint32_t limit = qp_model_get_info(m)->max_position;
        if (!limit || limit > QP_MAX_POSITION) limit = QP_MAX_POSITION;
        if (need->n_tokens > limit)
            return qp_fail(err, QP_ELIMIT, "%zu tokens asked for (" LENGTH_FROM "), at most %u with this model",
                           need->n_tokens, limit);
        opts.max_model_len = (uint32_t)need->n_tokens;
    }
    /* Scratch for rows that never come would only be memory. Every running sequence decodes in every step. */
    if (!opts.max_num_batched_tokens && need->n_rows && need->n_rows < ROWS)
        opts.max_num_batched_tokens = need->n_rows > opts.max_num_seqs ? (uint32_t)need->n_rows : opts.max_num_seqs;
    QP_TRY(qp_engine_opts_resolve(&opts, m, err));
    *out = opts;
    return QP_OK;
}

void qp_note_lowered(const qp_engine_args *args, const qp_engine_opts *opts)
{
    if (args->max_num_seqs > opts->max_num_seqs)
        qp_note("--max-num-seqs: %u, lowered to %u: every sequence takes one of the %u --max-num-batched-tokens",
                args->max_num_seqs, opts->max_num_seqs, opts->max_num_batched_tokens);
}

qp_status qp_load_engine(qp_loaded *l, const qp_engine_args *args, const qp_need *need, qp_err *err)
{
    qp_engine_opts opts;
    QP_TRY(qp_load_engine_opts(l->model, args, need, &opts, err));
    qp_note_lowered(args, &opts);
    qp_status st = qp_engine_new(&l->engine, l->model, &opts, err);
    if ((st == QP_ENOMEM || st == QP_ELIMIT) && need->n_tokens && !args->max_model_len)
        qp_wrap(err, "%zu tokens a sequence (" LENGTH_FROM ")", need->n_tokens);
    return st;
}

void qp_loaded_close(qp_loaded *l)
{
    qp_engine_free(l->engine);
    qp_tokenizer_free(l->tokenizer);
    qp_model_close(l->model);
    *l = (qp_loaded){NULL, NULL, NULL};
}

uint32_t qp_default_max_tokens(const qp_model_info *info, const qp_engine_args *args, size_t n_prompt)
{
    size_t limit = args->max_model_len  ? args->max_model_len
                   : info->max_position ? info->max_position
                                        : QP_MAX_POSITION;
    size_t left = limit > n_prompt ? limit - n_prompt : 1;
    return left < 512 ? (uint32_t)left : 512;
}

bool qp_is_blank(const char *line, size_t n)
{
    size_t i = 0;
    while (i < n && memchr(" \t\r", line[i], 3)) i++;
    return i == n;
}

qp_status qp_ids_parse(const char *text, const char *where, qp_ids *out, qp_err *err)
{
    const char *p = text;
    bool bracket = false;
    while (isspace((unsigned char)*p)) p++;
    if (*p == '[') {
        bracket = true;
        p++;
    }
    for (;;) {
        while (isspace((unsigned char)*p)) p++;
        if (!isdigit((unsigned char)*p))
            return qp_fail(err, QP_EINVAL, "%s: \"%.20s\" at byte %zu, wanted a token id", where, p,
                           (size_t)(p - text));
        uint64_t v = 0;
        while (isdigit((unsigned char)*p) && v <= INT32_MAX) v = v * 10 + (uint64_t)(*p++ - '0');
        if (v > INT32_MAX) return qp_fail(err, QP_EINVAL, "%s: a token id above %d", where, INT32_MAX);
        QP_TRY(qp_ids_push(out, (int32_t)v, err));
        while (isspace((unsigned char)*p)) p++;
        if (*p != ',') break;
        p++;
    }
    if (bracket && *p == ']') {
        p++;
        bracket = false;
        while (isspace((unsigned char)*p)) p++;
    }
    if (*p || bracket)
        return qp_fail(err, QP_EINVAL, "%s: \"%.20s\" at byte %zu, wanted %s", where, p, (size_t)(p - text),
                       bracket ? "\",\" or \"]\"" : "\",\" or the end");
    return QP_OK;
}
