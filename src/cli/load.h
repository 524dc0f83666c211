/* What generate, chat, eval, plan and bench share: the options of model, engine and sampling, and opening a model
 * folder with its tokenizer and engine. */
#ifndef QP_CLI_LOAD_H
#define QP_CLI_LOAD_H

#include "base/err.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "model/model.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --threads, --page-size, --max-num-seqs, --max-num-batched-tokens, --max-model-len, --kv-cache-dtype, --exl3-arith. */
typedef struct qp_engine_args {
    uint32_t threads, page_size, max_num_seqs, max_num_batched_tokens, max_model_len; /* 0: engine.h's default */
    int kv_cache_dtype;                                                               /* qp_kv_choice */
    int exl3_arith;                                                                   /* qp_arith_choice */
} qp_engine_args;

enum qp_kv_choice { QP_KV_AUTO, QP_KV_FP32, QP_KV_FP16, QP_KV_BF16 };
enum qp_arith_choice { QP_ARITH_AUTO, QP_ARITH_INT16, QP_ARITH_FP32 };

/* --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --seed. */
typedef struct qp_sampling_args {
    double temperature, top_p, min_p, repetition_penalty; /* negative: not given */
    int32_t top_k;                                        /* QP_TOP_K_UNSET: not given */
    uint64_t seed;                                        /* 0: one is made up */
} qp_sampling_args;

enum { QP_TOP_K_UNSET = -2 };

qp_opt_group qp_engine_group(qp_engine_args *args);

/* Also puts "not given" into args. */
qp_opt_group qp_sampling_group(qp_sampling_args *args);

/* --exl3-arith auto is int16: 15-bit activations and exact integer sums, the fastest form on every level. */
qp_model_opts qp_args_model(const qp_engine_args *args);

/* --kv-cache-dtype auto is fp32: exact, so that greedy tokens are those of a float32 reference. */
qp_engine_opts qp_args_engine(const qp_engine_args *args);

/* What was given, else what generation_config.json says, else greedy; when only other sampling options were given,
 * temperature is 1. A made-up seed is written back to args. */
qp_sampling qp_args_sampling(qp_sampling_args *args, const qp_model_info *info);

/* A model in use. A zeroed one is closed. */
typedef struct qp_loaded {
    qp_model *model;
    qp_tokenizer *tokenizer;
    qp_engine *engine;
} qp_loaded;

/* Opens dir, and its tokenizer when with_tokenizer. Says on stderr, in one line, that tensors are unused. */
qp_status qp_load_model(qp_loaded *l, const char *dir, const qp_engine_args *args, bool with_tokenizer, qp_err *err);

/* What a run needs. Options that were given win over it. */
typedef struct qp_need {
    size_t n_seqs;      /* sequences; at most 16 at once */
    size_t n_tokens;    /* of a sequence at most, prompt included; 0: what the engine takes by itself */
    size_t n_rows;      /* prompt tokens of all sequences: a step has no more rows than this or 512; 0: not known */
    bool prompt_logits; /* logits of every prompt position */
} qp_need;

/* Makes the engine for a run. */
qp_status qp_load_engine(qp_loaded *l, const qp_engine_args *args, const qp_need *need, qp_err *err);

/* The options that qp_load_engine would make an engine with, resolved. */
qp_status qp_load_engine_opts(const qp_model *m, const qp_engine_args *args, const qp_need *need, qp_engine_opts *out,
                              qp_err *err);

void qp_loaded_close(qp_loaded *l);

/* Tokens to make when --max-tokens was not given (0): what fits the model's positions, at most 512. */
uint32_t qp_default_max_tokens(const qp_model_info *info, const qp_engine_args *args, size_t n_prompt);

/* A note when --max-num-seqs was given and the engine takes fewer, one for each token of a step. */
void qp_note_lowered(const qp_engine_args *args, const qp_engine_opts *opts);

/* Whether a line of a file is empty or of spaces, tabs and a carriage return alone. */
bool qp_is_blank(const char *line, size_t n);

/* Reads "1,2,3" or "[1, 2, 3]" and appends to out. Ids below 0 or above INT32_MAX are errors; the vocabulary is the
 * engine's to check. where is used in messages. */
qp_status qp_ids_parse(const char *text, const char *where, qp_ids *out, qp_err *err);

#endif
