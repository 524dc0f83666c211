/* Inside the tokenizer: what tokenizer*.c share. Nothing outside src/text/tokenizer*.c includes this.
 *
 * A qp_tokenizer is immutable once built, but for the `state` byte of vocabulary entries: it remembers whether merging
 * a piece that is itself a token gives that token (then merging is skipped). Every thread computes the same value, so
 * relaxed atomics are enough.
 *
 * Byte-level vocabularies are kept as the bytes their symbols stand for: text is never mapped to symbols. */
#ifndef QP_TEXT_TOKENIZER_INT_H
#define QP_TEXT_TOKENIZER_INT_H

#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/tokenizer.h"
#include "text/unicode.h"

#include <jansson.h>
#include <pcre2.h>
#include <stdatomic.h>

enum {
    QP_TOK_MAX_ADDED_BYTES = 512, /* content of an added token; piece of a Unigram vocabulary */
    QP_TOK_MAX_STEPS = 32,        /* normalizers, pre-tokenizers, decoders: of each at most */
    QP_TOK_MAX_PROBES = 4096,     /* a longer hash chain is an attack, not a vocabulary */
    QP_TOK_JOIN_BITS_LOG2 = 21,   /* size of the hashed bit set `joins` */
    QP_TOK_PARTIAL_BITS = 1 << 15,
    QP_TOK_NO_ID = -1
};
#define QP_TOK_MAX_TEXT_BYTES ((size_t)1 << 30)

/* ---- vocabulary (tokenizer_vocab.c) ---- */

/* Where the text of an id is in the pool: as stored, and as the bytes it stands for (the same offsets unless the
 * vocabulary is byte-level). off is UINT32_MAX where there is no token. */
typedef struct qp_tok_text {
    uint32_t off, len, raw_off, raw_len;
} qp_tok_text;

/* PIECE: entered under its bytes. LITERAL: entered under its text: in a byte-level vocabulary, tokens not made of byte
 * symbols, and also those of more than QP_TOK_SHORT bytes (so that they are found by text without a buffer). */
enum { QP_TOK_PIECE = 0, QP_TOK_LITERAL = 1, QP_TOK_SHORT = 256 };
enum { QP_TOK_SPECIAL = 1, QP_TOK_SKIPPED = 2 };
enum { QP_TOK_UNKNOWN = 0, QP_TOK_WHOLE = 1, QP_TOK_SPLIT = 2 };

/* key: the bytes themselves up to 8, else a hash. An empty slot has id -1. */
typedef struct qp_tok_entry {
    uint64_t key;
    int32_t id;
    uint16_t len; /* bytes, at most 65535 counted */
    uint8_t kind;
    _Atomic uint8_t state;
} qp_tok_entry;

typedef struct qp_tok_vocab {
    qp_tok_text *texts;
    size_t n_ids, cap_ids;
    qp_buf pool;
    qp_tok_entry *table;
    size_t mask, n_entries;
} qp_tok_vocab;

void qp_tok_vocab_deinit(qp_tok_vocab *v);

/* Sizes the table for n entries. */
qp_status qp_tok_vocab_reserve(qp_tok_vocab *v, size_t n, qp_err *err);

/* Makes room for ids 0..n_ids-1. */
qp_status qp_tok_vocab_grow_ids(qp_tok_vocab *v, size_t n_ids, qp_err *err);

/* Stores text (and raw, NULL: the same) as the token id. The id must be free. */
qp_status qp_tok_vocab_set_text(qp_tok_vocab *v, int32_t id, const char *text, size_t len, const char *raw,
                                size_t raw_len, qp_err *err);

/* Enters id under its bytes, or its text by kind. *old gets the id that was there before, or -1 (then the new one is
 * entered). */
qp_status qp_tok_vocab_insert(qp_tok_vocab *v, int32_t id, int kind, int32_t *old, qp_err *err);

/* The entry of exactly these bytes, or NULL. n >= 1. */
qp_tok_entry *qp_tok_vocab_find(const qp_tok_vocab *v, const char *s, size_t n, int kind);

static inline bool qp_tok_vocab_has(const qp_tok_vocab *v, int64_t id)
{
    return id >= 0 && (uint64_t)id < v->n_ids && v->texts[id].off != UINT32_MAX;
}

/* ---- trie over byte strings (tokenizer_trie.c) ---- */
typedef struct qp_trie_key {
    const char *text;
    uint32_t len;
    int32_t value; /* >= 0; on equal texts the lower position in the list wins */
} qp_trie_key;

typedef struct qp_trie_node {
    uint32_t child; /* children are consecutive and sorted by byte */
    uint16_t n_children;
    uint8_t byte;
    int32_t value; /* -1: no key ends here */
} qp_trie_node;

typedef struct qp_trie {
    qp_trie_node *nodes; /* nodes[0] is the root; NULL: no keys */
    uint32_t root[256];  /* child of the root by byte, 0 for none */
    size_t n_nodes;
    unsigned n_first; /* how many bytes some key starts with, and one of them */
    unsigned char one_first;
} qp_trie;

/* Keys are reordered. Empty keys are skipped. */
qp_status qp_trie_build(qp_trie *t, qp_trie_key *keys, size_t n, qp_err *err);
void qp_trie_deinit(qp_trie *t);

/* Child of node by byte, or 0. */
uint32_t qp_trie_step(const qp_trie *t, uint32_t node, unsigned char byte);

/* ---- pipeline pieces ---- */
typedef struct qp_tok_pattern { /* a String or a Regex */
    pcre2_code *re;             /* NULL: literal */
    char *text;                 /* owned: the literal, or the regex for messages */
    size_t len;
} qp_tok_pattern;

typedef enum qp_tok_norm_kind {
    QP_NORM_FORM,
    QP_NORM_LOWERCASE,
    QP_NORM_STRIP,
    QP_NORM_STRIP_ACCENTS,
    QP_NORM_PREPEND,
    QP_NORM_REPLACE,
    QP_NORM_NMT,
    QP_NORM_BERT_ACCENTS,
    QP_NORM_BERT_CLEAN,
    QP_NORM_BERT_CHINESE
} qp_tok_norm_kind;

typedef struct qp_tok_norm {
    qp_tok_norm_kind kind;
    qp_uni_form form;
    bool left, right; /* STRIP */
    char *content;    /* PREPEND, REPLACE: owned */
    size_t content_len;
    qp_tok_pattern pattern; /* REPLACE */
} qp_tok_norm;

/* End of the piece that starts at s[i]; s is valid UTF-8, i < n. */
typedef size_t (*qp_tok_scan)(const char *s, size_t i, size_t n);

typedef enum qp_tok_behavior {
    QP_SPLIT_ISOLATED,
    QP_SPLIT_REMOVED,
    QP_SPLIT_PREVIOUS,
    QP_SPLIT_NEXT,
    QP_SPLIT_CONTIGUOUS
} qp_tok_behavior;

typedef enum qp_tok_step_kind { QP_STEP_SCAN, QP_STEP_SPLIT, QP_STEP_PREFIX_SPACE, QP_STEP_METASPACE } qp_tok_step_kind;
typedef enum qp_tok_scheme { QP_PREPEND_ALWAYS, QP_PREPEND_FIRST, QP_PREPEND_NEVER } qp_tok_scheme;

typedef struct qp_tok_step {
    qp_tok_step_kind kind;
    qp_tok_scan scan;       /* SCAN */
    qp_tok_pattern pattern; /* SPLIT */
    qp_tok_behavior behavior;
    bool invert;
    char mark[4]; /* METASPACE */
    size_t mark_len;
    qp_tok_scheme scheme;
    bool split;
} qp_tok_step;

typedef enum qp_tok_dec_kind {
    QP_DEC_BYTE_LEVEL,
    QP_DEC_REPLACE,
    QP_DEC_BYTE_FALLBACK,
    QP_DEC_FUSE,
    QP_DEC_STRIP,
    QP_DEC_METASPACE
} qp_tok_dec_kind;

typedef struct qp_tok_dec {
    qp_tok_dec_kind kind;
    qp_tok_pattern pattern; /* REPLACE */
    char *content;          /* REPLACE; STRIP and METASPACE: the code point */
    size_t content_len;
    uint32_t start, stop; /* STRIP */
    bool keep_first;      /* METASPACE: prepend_scheme never */
} qp_tok_dec;

typedef struct qp_tok_added {
    int32_t id;
    char *content; /* owned; as in the file */
    size_t len;
    char *text; /* owned: content after the normalizer when `normalized`, else NULL (the content) */
    size_t text_len;
    bool special, normalized, single_word, lstrip, rstrip;
} qp_tok_added;

typedef struct qp_tok_merge { /* an empty slot has rank UINT32_MAX */
    int32_t left, right;
    uint32_t rank;
    int32_t id;
} qp_tok_merge;

struct qp_tokenizer {
    char *name;
    qp_tok_vocab vocab;
    bool unigram, byte_level, ignore_merges, byte_fallback, fuse_unk;
    int32_t unk;
    int32_t byte_ids[256];     /* byte-level: id of each byte's symbol, or -1 */
    int32_t fallback_ids[256]; /* id of "<0xHH>", or -1 */
    bool all_bytes;            /* no byte_ids is -1 */
    /* BPE */
    qp_tok_merge *merges;
    size_t merge_mask;
    uint64_t *filter; /* bit set over hashed merges: a clear bit means no merge */
    size_t filter_mask;
    uint64_t *byte_pairs; /* [256 * 256] rank << 32 | id of the merge of two byte symbols, UINT64_MAX none; or NULL */
    int32_t ascii_ids[128];
    uint64_t *joins; /* bit set of hashed pairs of code points that some merge joins */
    uint64_t ascii_joins[128][2];
    uint64_t partial[QP_TOK_PARTIAL_BITS / 64]; /* byte-level: joins that involve a part of a code point (hashed) */
    uint8_t *used;                              /* by id while loading: a merge has this token as a part */
    bool monotone;                              /* no merge makes a token that an earlier merge has as a part */
    /* Unigram */
    double *scores; /* by id */
    double unk_score;
    qp_trie pieces;
    /* added tokens: those matched on raw text, those on normalized text; values index `added` */
    qp_tok_added *added;
    size_t n_added, cap_added;
    qp_tok_vocab added_index; /* content to index in `added` */
    qp_trie raw_trie, norm_trie;
    uint8_t *special; /* by id: QP_TOK_SPECIAL, QP_TOK_SKIPPED (dropped by skip_special) */
    /* pipeline */
    qp_tok_norm norms[QP_TOK_MAX_STEPS];
    size_t n_norms;
    qp_tok_step steps[QP_TOK_MAX_STEPS];
    size_t n_steps;
    qp_tok_dec decs[QP_TOK_MAX_STEPS];
    size_t n_decs;
    bool no_decoder;
    qp_ids prefix, suffix; /* what the post-processor puts around */
    pcre2_general_context *pcre;
    pcre2_compile_context *pcre_compile;
};

/* ---- what one encode call works with ---- */
typedef struct qp_tok_ctx {
    const qp_tokenizer *t;
    qp_ids *out;
    qp_err *err;
    bool first;                    /* the current part starts at offset 0 of the input */
    qp_buf norm[2];                /* normalized part */
    qp_buf step[QP_TOK_MAX_STEPS]; /* rewritten text of a pre-tokenizer */
    void *scratch;                 /* of the model, grown on demand */
    size_t scratch_size;
    pcre2_match_data *match; /* made on first use */
    pcre2_match_context *match_ctx;
    pcre2_jit_stack *jit_stack;
} qp_tok_ctx;

void qp_tok_ctx_deinit(qp_tok_ctx *c);

/* At least size bytes of scratch, 64-byte aligned, content lost; NULL and c->err set on lack of memory. */
void *qp_tok_ctx_scratch(qp_tok_ctx *c, size_t size);

/* ---- tokenizer_pattern.c ---- */

/* spec is {"String": s} or {"Regex": s} (or a bare string: literal). Fails with QP_EUNSUPPORTED or QP_EFORMAT. */
qp_status qp_tok_pattern_init(qp_tokenizer *t, qp_tok_pattern *p, const json_t *spec, const char *what, qp_err *err);
void qp_tok_pattern_deinit(qp_tok_pattern *p);

/* First match in s[from, n): bounds to *start and *end; *start = n when there is none. Empty matches are skipped. */
qp_status qp_tok_pattern_find(qp_tok_ctx *c, const qp_tok_pattern *p, const char *s, size_t from, size_t n,
                              size_t *start, size_t *end);

/* ---- tokenizer_scan.c: the known split patterns by their exact text; NULL for any other ---- */
qp_tok_scan qp_tok_scan_of(const char *regex, size_t len);
size_t qp_tok_scan_gpt2(const char *s, size_t i, size_t n);
size_t qp_tok_scan_digit(const char *s, size_t i, size_t n);      /* every code point of N* alone, gaps whole */
size_t qp_tok_scan_digit_runs(const char *s, size_t i, size_t n); /* runs of N*, gaps whole */

/* ---- tokenizer_norm.c ---- */
qp_status qp_tok_norm_load(qp_tokenizer *t, const json_t *spec, qp_err *err);
void qp_tok_norm_deinit(qp_tok_norm *n);

/* Normalizes s; *out borrows s or one of c's buffers. */
qp_status qp_tok_normalize(qp_tok_ctx *c, const char *s, size_t n, const char **out, size_t *out_n);

/* ---- tokenizer_split.c ---- */
qp_status qp_tok_steps_load(qp_tokenizer *t, const json_t *spec, qp_err *err);
void qp_tok_step_deinit(qp_tok_step *s);

/* Pre-tokenizes a part and runs the model on each piece. */
qp_status qp_tok_split(qp_tok_ctx *c, const char *s, size_t n);

/* ---- models ---- */
qp_status qp_tok_bpe(qp_tok_ctx *c, const char *s, size_t n);
qp_status qp_tok_unigram(qp_tok_ctx *c, const char *s, size_t n);

/* Merge table: sized for n merges; of equal pairs the later rank counts. */
qp_status qp_tok_merges_reserve(qp_tokenizer *t, size_t n, qp_err *err);
qp_status qp_tok_merges_insert(qp_tokenizer *t, int32_t left, int32_t right, uint32_t rank, int32_t id, qp_err *err);

/* Tables that follow from vocabulary and merges: call once both are loaded. */
qp_status qp_tok_bpe_finish(qp_tokenizer *t, qp_err *err);

/* Notes what a merge of the tokens left and right into id can join. Called in the order of ranks. */
void qp_tok_joins_note(qp_tokenizer *t, int32_t left, int32_t right, int32_t id);

/* ---- tokenizer_added.c ---- */
qp_status qp_tok_added_load(qp_tokenizer *t, const json_t *list, const json_t *config, qp_err *err);

/* Encodes valid UTF-8: added tokens, normalizer, pre-tokenizer, model. */
qp_status qp_tok_encode_text(qp_tok_ctx *c, const char *s, size_t n);

/* ---- tokenizer_model.c: the "model" object ---- */
typedef struct qp_tok_span {
    const char *text;
    size_t len;
} qp_tok_span;
qp_status qp_tok_model_load(qp_tokenizer *t, qp_tok_span model, qp_err *err);

/* Id of the model's token with exactly this text, or -1 (added tokens are not looked at). */
int32_t qp_tok_model_id(const qp_tokenizer *t, const char *text, size_t len);

/* Makes text what id shows when decoded, and its bytes those of its symbols where the vocabulary is byte-level. */
qp_status qp_tok_set_shown(qp_tokenizer *t, int32_t id, const char *text, size_t len, qp_err *err);

/* Bytes that the byte-level symbols of text stand for, appended to out; false when some code point is no symbol. */
bool qp_tok_symbols_to_bytes(const char *text, size_t len, qp_buf *out);

/* ---- tokenizer_post.c: post-processor and tokenizer_config.json ---- */
qp_status qp_tok_post_load(qp_tokenizer *t, const json_t *spec, qp_err *err);
qp_status qp_tok_post_config(qp_tokenizer *t, const json_t *config, qp_err *err);

/* ---- tokenizer_decode.c ---- */
qp_status qp_tok_decoder_load(qp_tokenizer *t, const json_t *spec, qp_err *err);
void qp_tok_dec_deinit(qp_tok_dec *d);

/* ids pushing without a call per id */
static inline qp_status qp_tok_push(qp_tok_ctx *c, int32_t id)
{
    if (c->out->n == c->out->cap) return qp_ids_push(c->out, id, c->err);
    c->out->ids[c->out->n++] = id;
    return QP_OK;
}
#endif
