/* Added tokens: their table, and the two passes that split them out of raw and of normalized text. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/json.h"
#include "io/limits.h"

#include <string.h>

/* ---- loading ---- */

static qp_status room(qp_tokenizer *t, qp_err *err)
{
    if (t->n_added < t->cap_added) return QP_OK;
    size_t cap = qp_max_size(64, t->cap_added * 2);
    qp_tok_added *p = qp_realloc(t->added, t->n_added * sizeof *p, cap * sizeof *p);
    if (!p) return qp_fail(err, QP_ENOMEM, "%s: no memory for %zu added tokens", t->name, cap);
    t->added = p;
    t->cap_added = cap;
    return QP_OK;
}

/* The id an added token gets: that of the equal model token, else the file's, which must then be free. */
static qp_status settle_id(qp_tokenizer *t, qp_tok_added *a, int64_t id, qp_err *err)
{
    int32_t have = qp_tok_model_id(t, a->content, a->len);
    if (have >= 0) {
        a->id = have;
        return QP_OK;
    }
    /* Ids far beyond the vocabulary would size tables by a number in the file. */
    if (id < 0 || id >= (int64_t)QP_MAX_VOCAB || (uint64_t)id > 8 * (t->vocab.n_ids + t->n_added) + 65536)
        return qp_fail(err, QP_EFORMAT, "%s: added token \"%.60s\": id %lld is out of range (vocabulary of %zu)",
                       t->name, a->content, (long long)id, t->vocab.n_ids);
    if (qp_tok_vocab_has(&t->vocab, id)) {
        const qp_tok_text *x = &t->vocab.texts[id];
        return qp_fail(err, QP_EFORMAT, "%s: added token \"%.60s\": id %lld is the token \"%.*s\"", t->name, a->content,
                       (long long)id, (int)qp_min_size(x->len, 60), t->vocab.pool.data + x->off);
    }
    a->id = (int32_t)id;
    QP_TRY(qp_tok_vocab_grow_ids(&t->vocab, (size_t)id + 1, err));
    return qp_tok_set_shown(t, a->id, a->content, a->len, err);
}

static qp_status read_flags(const qp_tokenizer *t, qp_tok_added *a, const json_t *v, qp_err *err)
{
    QP_TRY(qp_json_get_bool(v, "special", false, &a->special, t->name, err));
    QP_TRY(qp_json_get_bool(v, "normalized", !a->special, &a->normalized, t->name, err));
    QP_TRY(qp_json_get_bool(v, "single_word", false, &a->single_word, t->name, err));
    QP_TRY(qp_json_get_bool(v, "lstrip", false, &a->lstrip, t->name, err));
    return qp_json_get_bool(v, "rstrip", false, &a->rstrip, t->name, err);
}

/* One definition; a later one of the same content replaces the flags of the earlier. */
static qp_status add_one(qp_tokenizer *t, const json_t *v, int64_t id, qp_err *err)
{
    qp_tok_added a = {.id = QP_TOK_NO_ID};
    const json_t *content = json_object_get(v, "content");
    int32_t old;
    if (!json_is_string(content))
        return qp_fail(err, QP_EFORMAT, "%s: added token %lld has no \"content\"", t->name, (long long)id);
    const char *text = json_string_value(content);
    a.len = json_string_length(content);
    if (a.len == 0 || a.len > QP_TOK_MAX_ADDED_BYTES)
        return qp_fail(err, QP_EFORMAT, "%s: added token %lld: content of %zu bytes, wanted 1 to %d", t->name,
                       (long long)id, a.len, QP_TOK_MAX_ADDED_BYTES);
    QP_TRY(read_flags(t, &a, v, err));
    const qp_tok_entry *e = qp_tok_vocab_find(&t->added_index, text, a.len, QP_TOK_PIECE);
    if (e) {
        qp_tok_added *had = &t->added[e->id];
        a.id = had->id;
        a.content = had->content;
        *had = a;
        return QP_OK;
    }
    QP_TRY(room(t, err));
    a.content = qp_strndup(text, a.len);
    if (!a.content) return qp_fail(err, QP_ENOMEM, "%s: added token %lld: no memory", t->name, (long long)id);
    t->added[t->n_added++] = a;
    QP_TRY(qp_tok_vocab_grow_ids(&t->added_index, t->n_added, err));
    QP_TRY(qp_tok_vocab_set_text(&t->added_index, (int32_t)t->n_added - 1, text, a.len, NULL, 0, err));
    QP_TRY(qp_tok_vocab_insert(&t->added_index, (int32_t)t->n_added - 1, QP_TOK_PIECE, &old, err));
    return settle_id(t, &t->added[t->n_added - 1], id, err);
}

static qp_status load_list(qp_tokenizer *t, const json_t *list, qp_err *err)
{
    size_t i;
    const json_t *v;
    if (!list || json_is_null(list)) return QP_OK;
    if (!json_is_array(list)) return qp_fail(err, QP_EFORMAT, "%s: \"added_tokens\" is not a list", t->name);
    json_array_foreach(list, i, v)
    {
        const json_t *id = json_object_get(v, "id");
        if (!json_is_integer(id))
            return qp_fail(err, QP_EFORMAT, "%s: added_tokens[%zu]: \"id\" is not an integer", t->name, i);
        QP_TRY(add_one(t, v, json_integer_value(id), err));
    }
    return QP_OK;
}

/* tokenizer_config.json: {"added_tokens_decoder": {"5": {...}}}; its definitions come later and so win. */
static qp_status load_config(qp_tokenizer *t, const json_t *config, qp_err *err)
{
    json_t *map = json_object_get(config, "added_tokens_decoder"), *v;
    const char *key;
    if (!map || json_is_null(map)) return QP_OK;
    if (!json_is_object(map)) return qp_fail(err, QP_EFORMAT, "%s: \"added_tokens_decoder\" is not an object", t->name);
    json_object_foreach(map, key, v)
    {
        int64_t id = 0;
        size_t i = 0;
        for (; key[i] >= '0' && key[i] <= '9' && i < 9; i++) id = id * 10 + (key[i] - '0');
        if (i == 0 || key[i])
            return qp_fail(err, QP_EFORMAT, "%s: added_tokens_decoder: key \"%.40s\" is not an id", t->name, key);
        QP_TRY(add_one(t, v, id, err));
    }
    return QP_OK;
}

/* Text of each normalized token after the normalizer: it is searched for in normalized text, and the library shows it
 * for the token when decoding. */
static qp_status normalize_contents(qp_tokenizer *t, qp_err *err)
{
    qp_tok_ctx c = {.t = t, .err = err};
    qp_status st = QP_OK;
    for (size_t i = 0; i < t->n_added && st == QP_OK; i++) {
        qp_tok_added *a = &t->added[i];
        const char *text;
        size_t len;
        if (!a->normalized || !t->n_norms) continue;
        st = qp_tok_normalize(&c, a->content, a->len, &text, &len);
        if (st != QP_OK) break;
        if (len > 8 * QP_TOK_MAX_ADDED_BYTES)
            st = qp_fail(err, QP_ELIMIT, "%s: added token \"%.60s\" normalizes to %zu bytes", t->name, a->content, len);
        else if (!(a->text = qp_strndup(text, len)))
            st = qp_fail(err, QP_ENOMEM, "%s: added token \"%.60s\": no memory", t->name, a->content);
        a->text_len = len;
    }
    qp_tok_ctx_deinit(&c);
    return st;
}

static const char *text_of(const qp_tok_added *a, size_t *len)
{
    *len = a->text ? a->text_len : a->len;
    return a->text ? a->text : a->content;
}

static qp_status build_tries(qp_tokenizer *t, qp_err *err)
{
    qp_trie_key *keys;
    QP_TRY(qp_new(&keys, t->n_added + 1, sizeof *keys, "added tokens", err));
    qp_status st = QP_OK;
    for (int pass = 0; pass < 2 && st == QP_OK; pass++) {
        size_t n = 0, len;
        for (size_t i = 0; i < t->n_added; i++) {
            if (t->added[i].normalized != pass) continue;
            keys[n].text = text_of(&t->added[i], &len);
            keys[n].len = (uint32_t)len;
            keys[n].value = (int32_t)i;
            n++;
        }
        st = qp_trie_build(pass ? &t->norm_trie : &t->raw_trie, keys, n, err);
    }
    qp_free(keys);
    return st;
}

/* skip_special drops a token by the text it shows: it must be the content of some special token. */
static qp_status mark_special(qp_tokenizer *t, qp_err *err)
{
    QP_TRY(qp_new(&t->special, t->vocab.n_ids + 1, 1, "special tokens", err));
    for (size_t i = 0; i < t->n_added; i++) {
        const qp_tok_added *a = &t->added[i];
        size_t len;
        const char *text = text_of(a, &len);
        const qp_tok_entry *e = qp_tok_vocab_find(&t->added_index, text, len, QP_TOK_PIECE);
        t->special[a->id] =
            (uint8_t)((a->special ? QP_TOK_SPECIAL : 0) | (e && t->added[e->id].special ? QP_TOK_SKIPPED : 0));
    }
    return QP_OK;
}

static qp_status show_normalized(qp_tokenizer *t, qp_err *err)
{
    for (size_t i = 0; i < t->n_added; i++) {
        const qp_tok_added *a = &t->added[i];
        if (!a->text || (a->text_len == a->len && memcmp(a->text, a->content, a->len) == 0)) continue;
        QP_TRY(qp_tok_set_shown(t, a->id, a->text, a->text_len, err));
    }
    return QP_OK;
}

qp_status qp_tok_added_load(qp_tokenizer *t, const json_t *list, const json_t *config, qp_err *err)
{
    QP_TRY(load_list(t, list, err));
    if (config) QP_TRY(load_config(t, config, err));
    QP_TRY(normalize_contents(t, err));
    QP_TRY(build_tries(t, err));
    QP_TRY(mark_special(t, err));
    return show_normalized(t, err);
}

/* ---- splitting ---- */

typedef qp_status (*gap_fn)(qp_tok_ctx *c, const char *s, size_t n);

/* First position >= i where some token may start, or n. */
static size_t next_candidate(const qp_trie *t, const char *s, size_t i, size_t n)
{
    if (t->n_first == 1) {
        const char *hit = i < n ? memchr(s + i, t->one_first, n - i) : NULL;
        return hit ? (size_t)(hit - s) : n;
    }
    while (i < n && !t->root[(unsigned char)s[i]]) i++;
    return i;
}

/* Longest token at s[i]: its index, its end to *end; -1 when there is none. */
static int32_t longest(const qp_trie *t, const char *s, size_t i, size_t n, size_t *end)
{
    int32_t found = -1;
    uint32_t at = 0;
    for (size_t k = i; k < n; k++) {
        at = qp_trie_step(t, at, (unsigned char)s[k]);
        if (!at) break;
        if (t->nodes[at].value >= 0) {
            found = t->nodes[at].value;
            *end = k + 1;
        }
    }
    return found;
}

/* Start of the code point before s[i], i > 0. */
static size_t before(const char *s, size_t i)
{
    do i--;
    while (i > 0 && ((unsigned char)s[i] & 0xC0) == 0x80);
    return i;
}

static bool is_single_word(const char *s, size_t start, size_t end, size_t n)
{
    size_t len;
    if (start > 0 && qp_uni_is_word(qp_uni_decode(s + before(s, start), &len))) return false;
    return end >= n || !qp_uni_is_word(qp_uni_decode(s + end, &len));
}

static qp_status split_added(qp_tok_ctx *c, const qp_trie *trie, const char *s, size_t n, gap_fn gap)
{
    size_t at = 0, i = 0, end = 0, len;
    if (!trie->nodes) return n ? gap(c, s, n) : QP_OK;
    while ((i = next_candidate(trie, s, i, n)) < n) {
        int32_t k = longest(trie, s, i, n, &end);
        if (k < 0) {
            i++;
            continue;
        }
        const qp_tok_added *a = &c->t->added[k];
        if (a->single_word && !is_single_word(s, i, end, n)) {
            i = end;
            continue;
        }
        size_t start = i;
        while (a->lstrip && start > at && qp_uni_is_space(qp_uni_decode(s + before(s, start), &len)))
            start = before(s, start);
        while (a->rstrip && end < n && qp_uni_is_space(qp_uni_decode(s + end, &len))) end += len;
        if (start > at) QP_TRY(gap(c, s + at, start - at));
        QP_TRY(qp_tok_push(c, a->id));
        c->first = false;
        at = i = end;
    }
    return at < n ? gap(c, s + at, n - at) : QP_OK;
}

static qp_status normalized_gap(qp_tok_ctx *c, const char *s, size_t n)
{
    QP_TRY(qp_tok_split(c, s, n));
    c->first = false;
    return QP_OK;
}

static qp_status raw_gap(qp_tok_ctx *c, const char *s, size_t n)
{
    QP_TRY(qp_tok_normalize(c, s, n, &s, &n));
    QP_TRY(split_added(c, &c->t->norm_trie, s, n, normalized_gap));
    c->first = false;
    return QP_OK;
}

qp_status qp_tok_encode_text(qp_tok_ctx *c, const char *s, size_t n)
{
    c->first = true;
    return split_added(c, &c->t->raw_trie, s, n, raw_gap);
}
