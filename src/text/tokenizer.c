/* Tokenizer: opening, closing, the small queries, and the entry of encoding. See tokenizer.h; the parts are in
 * tokenizer_*.c, what they share in tokenizer_int.h. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/utf8.h"
#include "io/json.h"
#include "io/json_stream.h"
#include "io/map.h"

#include <string.h>

/* ---- lists of ids ---- */

void qp_ids_deinit(qp_ids *v)
{
    qp_free(v->ids);
    memset(v, 0, sizeof *v);
}

qp_status qp_ids_push(qp_ids *v, int32_t id, qp_err *err)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 64;
        int32_t *p = qp_realloc(v->ids, v->n * sizeof *p, cap * sizeof *p);
        if (!p) return qp_fail(err, QP_ENOMEM, "ids: no memory for %zu", cap);
        v->ids = p;
        v->cap = cap;
    }
    v->ids[v->n++] = id;
    return QP_OK;
}

/* ---- loading ---- */

enum { PART_NORMALIZER, PART_PRE, PART_POST, PART_DECODER, PART_ADDED, PART_MODEL, N_PARTS };
static const char *const part_keys[N_PARTS] = {"normalizer", "pre_tokenizer", "post_processor",
                                               "decoder",    "added_tokens",  "model"};

/* Finds the members of the file without building a tree. "version", "truncation" and "padding" do not matter here. */
static qp_status locate_parts(const char *json, size_t len, const char *name, qp_tok_span parts[N_PARTS], qp_err *err)
{
    qp_json_stream s;
    qp_json_token tok;
    qp_status st;
    qp_json_stream_init(&s, json, len, name);
    QP_TRY_OUT(qp_json_stream_next(&s, &tok, err));
    if (tok != QP_JSON_OBJECT) {
        st = qp_fail(err, QP_EFORMAT, "%s: not a JSON object", name);
        goto out;
    }
    for (;;) {
        qp_tok_span span;
        int p = 0;
        QP_TRY_OUT(qp_json_stream_next(&s, &tok, err));
        if (tok == QP_JSON_OBJECT_END) break;
        while (p < N_PARTS && (strlen(part_keys[p]) != s.len || memcmp(part_keys[p], s.text, s.len) != 0)) p++;
        QP_TRY_OUT(qp_json_stream_span(&s, &span.text, &span.len, err));
        if (p == N_PARTS) continue;
        if (parts[p].text) {
            st = qp_fail(err, QP_EFORMAT, "%s: \"%s\" twice", name, part_keys[p]);
            goto out;
        }
        parts[p] = span;
    }
    QP_TRY_OUT(qp_json_stream_next(&s, &tok, err)); /* nothing may follow */
    if (!parts[PART_MODEL].text) st = qp_fail(err, QP_EFORMAT, "%s: no \"model\"", name);
out:
    qp_json_stream_deinit(&s);
    return st;
}

static qp_status load_parts(qp_tokenizer *t, const qp_tok_span parts[N_PARTS], const json_t *config, qp_err *err)
{
    json_t *tree[N_PARTS] = {NULL};
    qp_status st = QP_OK;
    for (int p = 0; p < PART_MODEL; p++)
        if (parts[p].text) QP_TRY_OUT(qp_json_parse(&tree[p], parts[p].text, parts[p].len, t->name, err));
    QP_TRY_OUT(qp_tok_norm_load(t, tree[PART_NORMALIZER], err));
    QP_TRY_OUT(qp_tok_steps_load(t, tree[PART_PRE], err));
    QP_TRY_OUT(qp_tok_model_load(t, parts[PART_MODEL], err));
    QP_TRY_OUT(qp_tok_added_load(t, tree[PART_ADDED], config, err));
    QP_TRY_OUT(qp_tok_post_load(t, tree[PART_POST], err));
    if (config) QP_TRY_OUT(qp_tok_post_config(t, config, err));
    QP_TRY_OUT(qp_tok_decoder_load(t, tree[PART_DECODER], err));
out:
    for (int p = 0; p < N_PARTS; p++) json_decref(tree[p]);
    return st;
}

qp_status qp_tokenizer_parse(qp_tokenizer **out, const char *json, size_t json_len, const char *config_json,
                             size_t config_len, const char *name, qp_err *err)
{
    qp_tok_span parts[N_PARTS] = {{NULL, 0}};
    qp_tokenizer *t;
    json_t *config = NULL;
    qp_status st;
    if (json_len > QP_MAX_JSON_BYTES)
        return qp_fail(err, QP_ELIMIT, "%s: %zu bytes, at most %zu", name, json_len, QP_MAX_JSON_BYTES);
    QP_TRY(qp_new(&t, 1, sizeof *t, "tokenizer", err));
    t->unk = QP_TOK_NO_ID;
    t->name = qp_strdup(name);
    if (!t->name) {
        st = qp_fail(err, QP_ENOMEM, "%s: no memory", name);
        goto out;
    }
    QP_TRY_OUT(locate_parts(json, json_len, name, parts, err));
    if (config_json) {
        QP_TRY_OUT(qp_json_parse(&config, config_json, config_len, name, err));
        if (!json_is_object(config)) {
            st = qp_fail(err, QP_EFORMAT, "%s: tokenizer config is not an object", name);
            goto out;
        }
    }
    QP_TRY_OUT(load_parts(t, parts, config, err));
    *out = t;
    t = NULL;
out:
    json_decref(config);
    qp_tokenizer_free(t);
    return st;
}

qp_status qp_tokenizer_open(qp_tokenizer **out, const char *dir, qp_err *err)
{
    char path[4096], config_path[4096];
    qp_map file = {0}, config = {0};
    QP_TRY(qp_path_join(path, sizeof path, dir, "tokenizer.json", err));
    QP_TRY(qp_path_join(config_path, sizeof config_path, dir, "tokenizer_config.json", err));
    if (!qp_path_exists(path))
        return qp_fail(err, QP_EIO,
                       "%s: no such file; copy it from the original model (tokenizer.model is not read), or give token "
                       "ids instead of text",
                       path);
    QP_TRY(qp_map_open(&file, path, err));
    bool have = qp_path_exists(config_path);
    qp_status st = have ? qp_map_open(&config, config_path, err) : QP_OK;
    if (st == QP_OK)
        st = qp_tokenizer_parse(out, file.len ? (const char *)file.data : "", file.len,
                                !have        ? NULL
                                : config.len ? (const char *)config.data
                                             : "",
                                config.len, path, err);
    qp_map_close(&config);
    qp_map_close(&file);
    return st;
}

void qp_tokenizer_free(qp_tokenizer *t)
{
    if (!t) return;
    qp_tok_vocab_deinit(&t->vocab);
    qp_tok_vocab_deinit(&t->added_index);
    qp_free(t->merges);
    qp_free(t->filter);
    qp_free(t->used);
    qp_free(t->byte_pairs);
    qp_free(t->joins);
    qp_free(t->scores);
    qp_trie_deinit(&t->pieces);
    qp_trie_deinit(&t->raw_trie);
    qp_trie_deinit(&t->norm_trie);
    for (size_t i = 0; i < t->n_added; i++) {
        qp_free(t->added[i].content);
        qp_free(t->added[i].text);
    }
    qp_free(t->added);
    qp_free(t->special);
    for (size_t i = 0; i < t->n_norms; i++) qp_tok_norm_deinit(&t->norms[i]);
    for (size_t i = 0; i < t->n_steps; i++) qp_tok_step_deinit(&t->steps[i]);
    for (size_t i = 0; i < t->n_decs; i++) qp_tok_dec_deinit(&t->decs[i]);
    qp_ids_deinit(&t->prefix);
    qp_ids_deinit(&t->suffix);
    pcre2_compile_context_free(t->pcre_compile);
    pcre2_general_context_free(t->pcre);
    qp_free(t->name);
    qp_free(t);
}

/* ---- queries ---- */

size_t qp_tokenizer_n_ids(const qp_tokenizer *t)
{
    return t->vocab.n_ids;
}

int32_t qp_tokenizer_id(const qp_tokenizer *t, const char *token, size_t len)
{
    const qp_tok_entry *e = qp_tok_vocab_find(&t->added_index, token, len, QP_TOK_PIECE);
    return e ? t->added[e->id].id : qp_tok_model_id(t, token, len);
}

const char *qp_tokenizer_token(const qp_tokenizer *t, int32_t id, size_t *len)
{
    *len = 0;
    if (!qp_tok_vocab_has(&t->vocab, id)) return NULL;
    *len = t->vocab.texts[id].len;
    return t->vocab.pool.data + t->vocab.texts[id].off;
}

bool qp_tokenizer_is_special(const qp_tokenizer *t, int32_t id)
{
    return qp_tok_vocab_has(&t->vocab, id) && t->special[id] & QP_TOK_SPECIAL;
}

/* ---- encoding ---- */

void qp_tok_ctx_deinit(qp_tok_ctx *c)
{
    qp_buf_deinit(&c->norm[0]);
    qp_buf_deinit(&c->norm[1]);
    for (size_t i = 0; i < QP_TOK_MAX_STEPS; i++)
        if (c->step[i].data) qp_buf_deinit(&c->step[i]);
    qp_free(c->scratch);
    pcre2_match_data_free(c->match);
    pcre2_match_context_free(c->match_ctx);
    pcre2_jit_stack_free(c->jit_stack);
}

void *qp_tok_ctx_scratch(qp_tok_ctx *c, size_t size)
{
    if (size <= c->scratch_size) return c->scratch;
    size_t want = qp_max_size(size, c->scratch_size * 2);
    void *p = qp_malloc(want);
    if (!p) {
        qp_fail(c->err, QP_ENOMEM, "%s: no memory for %zu bytes to encode with", c->t->name, want);
        return NULL;
    }
    qp_free(c->scratch);
    c->scratch = p;
    c->scratch_size = want;
    return p;
}

static qp_status push_list(qp_tok_ctx *c, const qp_ids *list)
{
    for (size_t i = 0; i < list->n; i++) QP_TRY(qp_tok_push(c, list->ids[i]));
    return QP_OK;
}

qp_status qp_tokenizer_encode(const qp_tokenizer *t, const char *text, size_t len, bool add_special, qp_ids *out,
                              qp_err *err)
{
    qp_tok_ctx c = {.t = t, .out = out, .err = err};
    qp_buf clean = {0};
    size_t before = out->n;
    qp_status st = QP_OK;
    if (len > QP_TOK_MAX_TEXT_BYTES / 4)
        return qp_fail(err, QP_ELIMIT, "text of %zu bytes to encode, at most %zu", len, QP_TOK_MAX_TEXT_BYTES / 4);
    if (qp_uni_valid_prefix(text, len) < len) {
        qp_utf8_sanitize(&clean, text, len);
        QP_TRY_OUT(qp_buf_check(&clean, "text to encode", err));
        text = clean.data;
        len = clean.len;
    }
    if (add_special) QP_TRY_OUT(push_list(&c, &t->prefix));
    QP_TRY_OUT(qp_tok_encode_text(&c, text, len));
    if (add_special) QP_TRY_OUT(push_list(&c, &t->suffix));
out:
    if (st != QP_OK) out->n = before;
    qp_tok_ctx_deinit(&c);
    qp_buf_deinit(&clean);
    return st;
}
