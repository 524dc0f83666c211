/* The "model" object of tokenizer.json, read by the pull parser: a vocabulary of a quarter of a million entries and
 * twice as many merges would take too long as a tree. First the members are located, then read in the order they need.
 */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/json_stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Byte that the symbol cp stands for, or -1. */
static int symbol_byte(int32_t cp)
{
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xFF && cp != 0xAD)) return cp;
    if (cp >= 0x100 && cp <= 0x120) return cp - 0x100;
    if (cp >= 0x121 && cp <= 0x142) return cp - 0x121 + 0x7F;
    return cp == 0x143 ? 0xAD : -1;
}

bool qp_tok_symbols_to_bytes(const char *text, size_t len, qp_buf *out)
{
    size_t at = out->len, n;
    for (size_t i = 0; i < len; i += n) {
        int b = symbol_byte(qp_uni_decode(text + i, &n));
        if (b < 0) {
            out->len = at;
            return false;
        }
        qp_buf_addc(out, (char)b);
    }
    return true;
}

int32_t qp_tok_model_id(const qp_tokenizer *t, const char *text, size_t len)
{
    char raw[QP_TOK_SHORT];
    size_t n, m = 0;
    const qp_tok_entry *e;
    if (!t->byte_level || len == 0) {
        e = qp_tok_vocab_find(&t->vocab, text, len, QP_TOK_PIECE);
        return e ? e->id : QP_TOK_NO_ID;
    }
    for (size_t i = 0; i < len; i += n) {
        int b = symbol_byte(qp_uni_decode(text + i, &n));
        if (b < 0 || m == sizeof raw) {
            e = qp_tok_vocab_find(&t->vocab, text, len, QP_TOK_LITERAL);
            return e ? e->id : QP_TOK_NO_ID;
        }
        raw[m++] = (char)b;
    }
    e = qp_tok_vocab_find(&t->vocab, raw, m, QP_TOK_PIECE);
    return e ? e->id : QP_TOK_NO_ID;
}

qp_status qp_tok_set_shown(qp_tokenizer *t, int32_t id, const char *text, size_t len, qp_err *err)
{
    qp_buf raw = {0};
    bool symbols = t->byte_level && qp_tok_symbols_to_bytes(text, len, &raw);
    qp_status st = qp_buf_check(&raw, "token", err);
    if (st == QP_OK) st = qp_tok_vocab_set_text(&t->vocab, id, text, len, symbols ? raw.data : NULL, raw.len, err);
    qp_buf_deinit(&raw);
    return st;
}

typedef struct loader {
    qp_tokenizer *t;
    qp_err *err;
    qp_tok_span vocab, merges;
    char type[32];
    char *unk_token; /* owned */
    int64_t unk_id;
    qp_buf raw, both;
} loader;

static qp_status wrong(const loader *l, const char *what)
{
    return qp_fail(l->err, QP_EFORMAT, "%s: model: %s", l->t->name, what);
}

/* Enters a token that is not yet known. */
static qp_status add_token(loader *l, int32_t id, const char *text, size_t len)
{
    qp_tokenizer *t = l->t;
    int32_t old = QP_TOK_NO_ID;
    int kind = QP_TOK_PIECE;
    const char *raw = NULL;
    if (t->byte_level) {
        qp_buf_clear(&l->raw);
        if (qp_tok_symbols_to_bytes(text, len, &l->raw))
            raw = l->raw.data;
        else
            kind = QP_TOK_LITERAL;
        QP_TRY(qp_buf_check(&l->raw, "token", l->err));
    }
    QP_TRY(qp_tok_vocab_set_text(&t->vocab, id, text, len, raw, l->raw.len, l->err));
    QP_TRY(qp_tok_vocab_insert(&t->vocab, id, kind, &old, l->err));
    if (old < 0 && raw && l->raw.len > QP_TOK_SHORT)
        QP_TRY(qp_tok_vocab_insert(&t->vocab, id, QP_TOK_LITERAL, &old, l->err));
    if (old >= 0 && !t->unigram) /* Unigram lists may repeat a piece: the first counts */
        return qp_fail(l->err, QP_EFORMAT, "%s: model: token \"%.*s\" has two ids, %d and %d", t->name,
                       (int)qp_min_size(len, 60), text, old, id);
    return QP_OK;
}

static qp_status load_bpe_vocab(loader *l, qp_json_stream *s)
{
    qp_tokenizer *t = l->t;
    qp_json_token tok;
    qp_buf key = {0};
    qp_status st;
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    if (tok != QP_JSON_OBJECT) return wrong(l, "\"vocab\" is not an object");
    for (;;) {
        uint64_t id = 0;
        QP_TRY_OUT(qp_json_stream_next(s, &tok, l->err));
        if (tok == QP_JSON_OBJECT_END) break;
        qp_buf_clear(&key);
        qp_buf_add(&key, s->text, s->len);
        QP_TRY_OUT(qp_buf_check(&key, "token", l->err));
        QP_TRY_OUT(qp_json_stream_next(s, &tok, l->err));
        /* An entry takes five bytes at least, so this bounds the tables by the file's size. */
        if (tok != QP_JSON_NUM || !qp_json_stream_as_u64(s, &id) || id >= QP_MAX_VOCAB || id > l->vocab.len + 65536) {
            st = qp_fail(l->err, QP_EFORMAT, "%s: model: token \"%.60s\": id %.*s, wanted 0 to %u and few unused ones",
                         t->name, key.data, (int)qp_min_size(s->len, 30), s->len ? s->text : "",
                         (unsigned)QP_MAX_VOCAB - 1);
            goto out;
        }
        if (qp_tok_vocab_has(&t->vocab, (int64_t)id)) {
            st = qp_fail(l->err, QP_EFORMAT, "%s: model: id %lld is given to \"%.*s\" and to \"%.60s\"", t->name,
                         (long long)id, (int)qp_min_size(t->vocab.texts[id].len, 60),
                         t->vocab.pool.data + t->vocab.texts[id].off, key.data);
            goto out;
        }
        QP_TRY_OUT(qp_tok_vocab_grow_ids(&t->vocab, (size_t)id + 1, l->err));
        QP_TRY_OUT(add_token(l, (int32_t)id, key.data, key.len));
    }
    st = QP_OK;
out:
    qp_buf_deinit(&key);
    return st;
}

static qp_status set_score(loader *l, size_t id, double score, size_t *cap)
{
    if (id >= *cap) {
        size_t more = qp_max_size(1024, *cap * 2);
        double *p = qp_realloc(l->t->scores, *cap * sizeof *p, more * sizeof *p);
        if (!p) return qp_fail(l->err, QP_ENOMEM, "%s: scores: no memory", l->t->name);
        l->t->scores = p;
        *cap = more;
    }
    l->t->scores[id] = score;
    return QP_OK;
}

/* [piece, score] of a Unigram vocabulary; the opening bracket has been read. */
static qp_status load_unigram_entry(loader *l, qp_json_stream *s, size_t id, size_t *cap)
{
    qp_json_token tok;
    double score = 0;
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    if (tok != QP_JSON_STR || s->len > QP_TOK_MAX_ADDED_BYTES)
        return qp_fail(l->err, QP_EFORMAT, "%s: model: vocab[%zu]: piece is not a string of at most %d bytes",
                       l->t->name, id, QP_TOK_MAX_ADDED_BYTES);
    QP_TRY(qp_tok_vocab_grow_ids(&l->t->vocab, id + 1, l->err));
    QP_TRY(add_token(l, (int32_t)id, s->text, s->len));
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    if (tok != QP_JSON_NUM || !qp_json_stream_as_f64(s, &score))
        return qp_fail(l->err, QP_EFORMAT, "%s: model: vocab[%zu]: score is not a finite number", l->t->name, id);
    QP_TRY(set_score(l, id, score, cap));
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    return tok == QP_JSON_ARRAY_END ? QP_OK : wrong(l, "entry of \"vocab\" is not [piece, score]");
}

static qp_status load_unigram_vocab(loader *l, qp_json_stream *s)
{
    qp_json_token tok;
    size_t cap = 0, id = 0;
    double low = 0;
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    if (tok != QP_JSON_ARRAY) return wrong(l, "\"vocab\" is not a list");
    for (;; id++) {
        QP_TRY(qp_json_stream_next(s, &tok, l->err));
        if (tok == QP_JSON_ARRAY_END) break;
        if (tok != QP_JSON_ARRAY) return wrong(l, "entry of \"vocab\" is not [piece, score]");
        if (id >= QP_MAX_VOCAB) return wrong(l, "too many pieces");
        QP_TRY(load_unigram_entry(l, s, id, &cap));
        if (id == 0 || l->t->scores[id] < low) low = l->t->scores[id];
    }
    if (id == 0) return wrong(l, "empty vocabulary");
    l->t->unk_score = low - 10;
    return QP_OK;
}

static qp_status load_vocab(loader *l)
{
    qp_json_stream s;
    qp_json_stream_init(&s, l->vocab.text, l->vocab.len, l->t->name);
    qp_status st = l->t->unigram ? load_unigram_vocab(l, &s) : load_bpe_vocab(l, &s);
    qp_json_stream_deinit(&s);
    return st;
}

/* ---- merges ---- */

/* both holds left and right joined, cut at n_left; all as stored in the vocabulary. */
static qp_status add_merge(loader *l, size_t rank, size_t n_left)
{
    qp_tokenizer *t = l->t;
    const char *s = l->both.data;
    size_t n = l->both.len;
    if (n_left == 0 || n_left == n)
        return qp_fail(l->err, QP_EFORMAT, "%s: model: merge %zu has an empty side", t->name, rank);
    int32_t left = qp_tok_model_id(t, s, n_left), right = qp_tok_model_id(t, s + n_left, n - n_left);
    int32_t id = qp_tok_model_id(t, s, n);
    if (left < 0 || right < 0 || id < 0)
        return qp_fail(l->err, QP_EFORMAT, "%s: model: merge %zu, \"%.*s\" + \"%.*s\": %s is not in the vocabulary",
                       t->name, rank, (int)qp_min_size(n_left, 40), s, (int)qp_min_size(n - n_left, 40), s + n_left,
                       left < 0    ? "the left side"
                       : right < 0 ? "the right side"
                                   : "the result");
    if (rank >= INT32_MAX) return wrong(l, "too many merges");
    QP_TRY(qp_tok_merges_reserve(t, rank + 1, l->err));
    QP_TRY(qp_tok_merges_insert(t, left, right, (uint32_t)rank, id, l->err));
    qp_tok_joins_note(t, left, right, id);
    return QP_OK;
}

/* "a b" or ["a", "b"]; first is the first token of the entry. *n_left is where the right side starts in l->both. */
static qp_status read_merge(loader *l, qp_json_stream *s, qp_json_token first, size_t rank, size_t *n_left)
{
    qp_json_token tok;
    qp_buf_clear(&l->both);
    if (first == QP_JSON_STR) {
        const char *space = memchr(s->text, ' ', s->len);
        size_t at = space ? (size_t)(space - s->text) : 0;
        if (!space || memchr(space + 1, ' ', s->len - at - 1))
            return qp_fail(l->err, QP_EFORMAT, "%s: model: merge %zu is not two tokens with a space between",
                           l->t->name, rank);
        qp_buf_add(&l->both, s->text, at);
        qp_buf_add(&l->both, space + 1, s->len - at - 1);
        *n_left = at;
        return qp_buf_check(&l->both, "merge", l->err);
    }
    for (int side = 0; side < 2; side++) {
        if (first == QP_JSON_ARRAY) QP_TRY(qp_json_stream_next(s, &tok, l->err));
        if (first != QP_JSON_ARRAY || tok != QP_JSON_STR)
            return qp_fail(l->err, QP_EFORMAT, "%s: model: merge %zu is not a pair of strings", l->t->name, rank);
        if (side) *n_left = l->both.len;
        qp_buf_add(&l->both, s->text, s->len);
    }
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    if (tok != QP_JSON_ARRAY_END) return wrong(l, "merge of more than two strings");
    return qp_buf_check(&l->both, "merge", l->err);
}

static qp_status load_merges(loader *l)
{
    qp_json_stream s;
    qp_json_token tok;
    qp_status st;
    size_t rank = 0, n_left = 0;
    QP_TRY(qp_new(&l->t->joins, ((size_t)1 << QP_TOK_JOIN_BITS_LOG2) / 64, 8, "merges", l->err));
    QP_TRY(qp_new(&l->t->used, l->t->vocab.n_ids + 1, 1, "merges", l->err));
    l->t->monotone = true;
    QP_TRY(qp_tok_merges_reserve(l->t, 1, l->err));
    qp_json_stream_init(&s, l->merges.text, l->merges.len, l->t->name);
    QP_TRY_OUT(qp_json_stream_next(&s, &tok, l->err));
    if (tok != QP_JSON_ARRAY) {
        st = wrong(l, "\"merges\" is not a list");
        goto out;
    }
    for (;; rank++) {
        QP_TRY_OUT(qp_json_stream_next(&s, &tok, l->err));
        if (tok == QP_JSON_ARRAY_END) break;
        QP_TRY_OUT(read_merge(l, &s, tok, rank, &n_left));
        QP_TRY_OUT(add_merge(l, rank, n_left));
    }
    st = QP_OK;
out:
    qp_json_stream_deinit(&s);
    return st;
}

/* ---- members of the model object ---- */

static qp_status read_bool(const loader *l, qp_json_token tok, const char *key, bool *out)
{
    if (tok != QP_JSON_BOOL_TRUE && tok != QP_JSON_BOOL_FALSE && tok != QP_JSON_NUL)
        return qp_fail(l->err, QP_EFORMAT, "%s: model: \"%s\" is not true or false", l->t->name, key);
    *out = tok == QP_JSON_BOOL_TRUE;
    return QP_OK;
}

static bool is(const char *key, const char *name)
{
    return strcmp(key, name) == 0;
}

/* A member other than vocab and merges; tok and s hold its value if that is a scalar. */
static qp_status read_member(loader *l, const qp_json_stream *s, qp_json_token tok, const char *key)
{
    qp_tokenizer *t = l->t;
    double d = 0;
    uint64_t id = 0;
    if (is(key, "byte_fallback")) return read_bool(l, tok, key, &t->byte_fallback);
    if (is(key, "fuse_unk")) return read_bool(l, tok, key, &t->fuse_unk);
    if (is(key, "ignore_merges")) return read_bool(l, tok, key, &t->ignore_merges);
    if (is(key, "type")) {
        if (tok != QP_JSON_STR) return wrong(l, "\"type\" is not a string");
        snprintf(l->type, sizeof l->type, "%.*s", (int)qp_min_size(s->len, sizeof l->type - 1), s->text);
        return QP_OK;
    }
    if (tok == QP_JSON_NUL) return QP_OK;
    if (is(key, "unk_token")) {
        if (tok != QP_JSON_STR) return wrong(l, "\"unk_token\" is not a string");
        qp_free(l->unk_token);
        l->unk_token = qp_strndup(s->text, s->len);
        return l->unk_token ? QP_OK : qp_fail(l->err, QP_ENOMEM, "%s: no memory", t->name);
    }
    if (is(key, "unk_id"))
        return tok == QP_JSON_NUM && qp_json_stream_as_u64(s, &id) && id < QP_MAX_VOCAB
                   ? (l->unk_id = (int64_t)id, QP_OK)
                   : wrong(l, "\"unk_id\" is not an integer");
    if (is(key, "dropout"))
        return tok == QP_JSON_NUM && qp_json_stream_as_f64(s, &d) && d == 0
                   ? QP_OK
                   : qp_fail(l->err, QP_EUNSUPPORTED, "%s: model: dropout other than 0 is not supported", t->name);
    if (is(key, "continuing_subword_prefix") || is(key, "end_of_word_suffix"))
        return tok == QP_JSON_STR && s->len == 0
                   ? QP_OK
                   : qp_fail(l->err, QP_EUNSUPPORTED, "%s: model: %s other than \"\" is not supported", t->name, key);
    return qp_fail(l->err, QP_EUNSUPPORTED, "%s: model: member \"%.60s\" is unknown", t->name, key);
}

static qp_status locate(loader *l, qp_json_stream *s)
{
    qp_json_token tok;
    char key[64];
    QP_TRY(qp_json_stream_next(s, &tok, l->err));
    if (tok != QP_JSON_OBJECT) return wrong(l, "not an object");
    for (;;) {
        QP_TRY(qp_json_stream_next(s, &tok, l->err));
        if (tok == QP_JSON_OBJECT_END) return QP_OK;
        snprintf(key, sizeof key, "%.*s", (int)qp_min_size(s->len, sizeof key - 1), s->text);
        qp_tok_span *span = is(key, "vocab") ? &l->vocab : is(key, "merges") ? &l->merges : NULL;
        if (span) {
            if (span->text) return qp_fail(l->err, QP_EFORMAT, "%s: model: \"%s\" twice", l->t->name, key);
            QP_TRY(qp_json_stream_span(s, &span->text, &span->len, l->err));
            continue;
        }
        QP_TRY(qp_json_stream_next(s, &tok, l->err));
        QP_TRY(read_member(l, s, tok, key));
    }
}

/* ---- after loading ---- */

static void find_fallbacks(qp_tokenizer *t)
{
    char text[8];
    for (int b = 0; b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        t->fallback_ids[b] = t->byte_fallback ? qp_tok_model_id(t, text, 6) : QP_TOK_NO_ID;
    }
}

/* An unk_token that is not in the vocabulary matters only where something can be unknown. */
static qp_status settle_unknown(loader *l)
{
    qp_tokenizer *t = l->t;
    bool covered = t->byte_fallback || t->all_bytes;
    for (int b = 0; b < 256 && t->byte_fallback && !t->all_bytes; b++) covered &= t->fallback_ids[b] >= 0;
    t->unk = l->unk_token ? qp_tok_model_id(t, l->unk_token, strlen(l->unk_token)) : QP_TOK_NO_ID;
    if (l->unk_token && t->unk < 0 && !covered)
        return qp_fail(l->err, QP_EFORMAT, "%s: model: unk_token \"%.60s\" is not in the vocabulary", t->name,
                       l->unk_token);
    return QP_OK;
}

static qp_status finish_unigram(loader *l)
{
    qp_tokenizer *t = l->t;
    qp_trie_key *keys;
    if (l->unk_id >= (int64_t)t->vocab.n_ids || l->unk_id < -1)
        return qp_fail(l->err, QP_EFORMAT, "%s: model: unk_id %lld, vocabulary of %zu", t->name, (long long)l->unk_id,
                       t->vocab.n_ids);
    t->unk = (int32_t)l->unk_id;
    QP_TRY(qp_new(&keys, t->vocab.n_ids, sizeof *keys, "pieces", l->err));
    for (size_t i = 0; i < t->vocab.n_ids; i++) {
        const qp_tok_text *x = &t->vocab.texts[i];
        keys[i] = (qp_trie_key){t->vocab.pool.data + x->raw_off, x->raw_len, (int32_t)i};
    }
    qp_status st = qp_trie_build(&t->pieces, keys, t->vocab.n_ids, l->err);
    qp_free(keys);
    return st;
}

static qp_status load(loader *l, qp_tok_span model)
{
    qp_tokenizer *t = l->t;
    qp_json_stream s;
    qp_json_stream_init(&s, model.text, model.len, t->name);
    qp_status st = locate(l, &s);
    qp_json_stream_deinit(&s);
    if (st != QP_OK) return st;
    if (!l->type[0]) snprintf(l->type, sizeof l->type, l->merges.text ? "BPE" : "Unigram");
    t->unigram = is(l->type, "Unigram");
    if (!t->unigram && !is(l->type, "BPE"))
        return qp_fail(l->err, QP_EUNSUPPORTED, "%s: model type \"%s\" is not supported", t->name, l->type);
    if (!l->vocab.text) return wrong(l, "no \"vocab\"");
    if (t->unigram && t->byte_level)
        return qp_fail(l->err, QP_EUNSUPPORTED, "%s: Unigram after ByteLevel is not supported", t->name);
    if (!t->unigram && !l->merges.text) return wrong(l, "no \"merges\"");
    QP_TRY(load_vocab(l));
    find_fallbacks(t);
    if (t->unigram) return finish_unigram(l);
    QP_TRY(load_merges(l));
    QP_TRY(qp_tok_bpe_finish(t, l->err));
    return settle_unknown(l);
}

qp_status qp_tok_model_load(qp_tokenizer *t, qp_tok_span model, qp_err *err)
{
    loader l = {.t = t, .err = err, .unk_id = -1};
    qp_status st = load(&l, model);
    qp_free(l.unk_token);
    qp_buf_deinit(&l.raw);
    qp_buf_deinit(&l.both);
    return st;
}
