/* Tokenizer: tokenizer.json (BPE, byte-level BPE, Unigram) with its normalizers, pre-tokenizers, added tokens,
 * post-processor and decoder. What cannot be honoured is refused at open by name. */
#ifndef QP_TEXT_TOKENIZER_H
#define QP_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_tokenizer qp_tokenizer;

/* Growable list of token ids; a zeroed one is empty. The caller frees it with qp_ids_deinit. */
typedef struct qp_ids {
    int32_t *ids;
    size_t n, cap;
} qp_ids;

void qp_ids_deinit(qp_ids *v);
qp_status qp_ids_push(qp_ids *v, int32_t id, qp_err *err);

/* Reads dir/tokenizer.json and, where present, dir/tokenizer_config.json (added_tokens_decoder, add_bos_token, ...). */
qp_status qp_tokenizer_open(qp_tokenizer **out, const char *dir, qp_err *err);

/* The same from memory: json is tokenizer.json; config_json may be NULL. `name` is used in messages. */
qp_status qp_tokenizer_parse(qp_tokenizer **out, const char *json, size_t json_len, const char *config_json,
                             size_t config_len, const char *name, qp_err *err);
void qp_tokenizer_free(qp_tokenizer *t);

/* Largest id + 1. */
size_t qp_tokenizer_n_ids(const qp_tokenizer *t);

/* Appends the ids of text (any bytes; invalid UTF-8 counts as U+FFFD). add_special runs the post-processor (bos, eos).
 * Special tokens spelled in the text become their ids. Thread-safe on one tokenizer. */
qp_status qp_tokenizer_encode(const qp_tokenizer *t, const char *text, size_t len, bool add_special, qp_ids *out,
                              qp_err *err);

/* Appends the text of ids to out. An id outside the vocabulary is QP_EINVAL. */
qp_status qp_tokenizer_decode(const qp_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, qp_buf *out,
                              qp_err *err);

/* Id of a token by its exact vocabulary or added-token string, or -1. */
int32_t qp_tokenizer_id(const qp_tokenizer *t, const char *token, size_t len);

/* The raw vocabulary string of id (byte-level symbols, U+2581 as stored), borrowed; NULL when there is none. */
const char *qp_tokenizer_token(const qp_tokenizer *t, int32_t id, size_t *len);
bool qp_tokenizer_is_special(const qp_tokenizer *t, int32_t id);

/* The bytes that id stands for inside running text (byte-level symbols mapped back, <0x41> as its byte, U+2581 as
 * space); a special token contributes its own spelling. Appended to out. Used for logprobs and grammar masks. */
qp_status qp_tokenizer_token_bytes(const qp_tokenizer *t, int32_t id, qp_buf *out, qp_err *err);

/* Streaming: ids in, text out as soon as it is certain. A zeroed qp_detok with t and skip_special set is ready. */
typedef struct qp_detok {
    const qp_tokenizer *t; /* borrowed */
    bool skip_special;
    qp_ids window;   /* ids since the last emitted prefix */
    size_t n_prefix; /* how many of them were emitted already */
    qp_buf work;
} qp_detok;

void qp_detok_deinit(qp_detok *d);

/* Appends to out the text that became certain with this id (possibly none). */
qp_status qp_detok_push(qp_detok *d, int32_t id, qp_buf *out, qp_err *err);

/* End of generation: appends whatever is held back, U+FFFD included, and resets d. */
qp_status qp_detok_flush(qp_detok *d, qp_buf *out, qp_err *err);
#endif
