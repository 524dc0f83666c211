/* Decoders of tokenizer.json, and the streaming detokenizer.
 *
 * Decoding works on a list of token texts; each decoder rewrites the list. A lone ByteLevel, the common case, needs no
 * list: the bytes of all tokens are joined and made valid UTF-8. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "io/json.h"

#include <string.h>

enum {
    MAX_REMOVED = 1 << 20, /* `start` and `stop` of Strip */
    MAX_HELD = 256         /* ids the stream keeps back at most */
};

void qp_tok_dec_deinit(qp_tok_dec *d)
{
    qp_tok_pattern_deinit(&d->pattern);
    qp_free(d->content);
    memset(d, 0, sizeof *d);
}

static qp_status add(qp_tokenizer *t, qp_tok_dec_kind kind, qp_tok_dec **out, qp_err *err)
{
    if (t->n_decs == QP_TOK_MAX_STEPS)
        return qp_fail(err, QP_ELIMIT, "%s: more than %d decoders", t->name, QP_TOK_MAX_STEPS);
    *out = &t->decs[t->n_decs++];
    memset(*out, 0, sizeof **out);
    (*out)->kind = kind;
    return QP_OK;
}

static qp_status copy_content(const qp_tokenizer *t, qp_tok_dec *d, const json_t *spec, const char *key,
                              const char *fallback, qp_err *err)
{
    const char *text;
    QP_TRY(qp_json_get_str(spec, key, fallback, &text, t->name, err));
    if (!text) return qp_fail(err, QP_EFORMAT, "%s: decoder: \"%s\" is missing", t->name, key);
    d->content_len = strlen(text);
    d->content = qp_strndup(text, d->content_len);
    return d->content ? QP_OK : qp_fail(err, QP_ENOMEM, "%s: decoder: no memory", t->name);
}

static qp_status load_one(qp_tokenizer *t, const json_t *spec, const char *type, qp_err *err)
{
    qp_tok_dec *d = NULL;
    const char *scheme = "";
    if (strcmp(type, "ByteLevel") == 0) return add(t, QP_DEC_BYTE_LEVEL, &d, err);
    if (strcmp(type, "ByteFallback") == 0) return add(t, QP_DEC_BYTE_FALLBACK, &d, err);
    if (strcmp(type, "Fuse") == 0) return add(t, QP_DEC_FUSE, &d, err);
    if (strcmp(type, "Replace") == 0) {
        QP_TRY(add(t, QP_DEC_REPLACE, &d, err));
        QP_TRY(copy_content(t, d, spec, "content", NULL, err));
        return qp_tok_pattern_init(t, &d->pattern, json_object_get(spec, "pattern"), "decoder Replace", err);
    }
    if (strcmp(type, "Strip") == 0) {
        QP_TRY(add(t, QP_DEC_STRIP, &d, err));
        QP_TRY(copy_content(t, d, spec, "content", NULL, err));
        QP_TRY(qp_json_get_u32(spec, "start", 0, MAX_REMOVED, true, 0, &d->start, t->name, err));
        return qp_json_get_u32(spec, "stop", 0, MAX_REMOVED, true, 0, &d->stop, t->name, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        bool legacy = true;
        QP_TRY(add(t, QP_DEC_METASPACE, &d, err));
        QP_TRY(copy_content(t, d, spec, "replacement", "\xE2\x96\x81", err));
        QP_TRY(qp_json_get_bool(spec, "add_prefix_space", true, &legacy, t->name, err));
        QP_TRY(qp_json_get_str(spec, "prepend_scheme", legacy ? "always" : "never", &scheme, t->name, err));
        d->keep_first = strcmp(scheme, "never") == 0;
        return QP_OK;
    }
    return qp_fail(err, QP_EUNSUPPORTED, "%s: decoder \"%.60s\" is not supported", t->name, type);
}

static qp_status load_any(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    const char *type = "";
    if (!json_is_object(spec)) return qp_fail(err, QP_EFORMAT, "%s: decoder is not an object", t->name);
    QP_TRY(qp_json_get_str(spec, "type", "", &type, t->name, err));
    if (strcmp(type, "Sequence") != 0) return load_one(t, spec, type, err);
    const json_t *list = json_object_get(spec, "decoders"), *item;
    size_t i;
    if (!json_is_array(list)) return qp_fail(err, QP_EFORMAT, "%s: \"decoders\" is not a list", t->name);
    json_array_foreach(list, i, item) QP_TRY(load_any(t, item, err));
    return QP_OK;
}

qp_status qp_tok_decoder_load(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    t->no_decoder = !spec || json_is_null(spec);
    return t->no_decoder ? QP_OK : load_any(t, spec, err);
}

/* ---- decoding ---- */

/* A list of token texts: text i is text[ends[i - 1] .. ends[i]]. */
typedef struct texts {
    qp_buf text;
    size_t *ends;
    size_t n, cap;
} texts;

static void texts_deinit(texts *x)
{
    qp_buf_deinit(&x->text);
    qp_free(x->ends);
}

/* Ends the text that was just written to x->text. */
static qp_status close_text(texts *x, qp_err *err)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        size_t *p = qp_realloc(x->ends, x->n * sizeof *p, cap * sizeof *p);
        if (!p) return qp_fail(err, QP_ENOMEM, "decoding: no memory for %zu tokens", cap);
        x->ends = p;
        x->cap = cap;
    }
    x->ends[x->n++] = x->text.len;
    return qp_buf_check(&x->text, "decoded text", err);
}

static const char *text_at(const texts *x, size_t i, size_t *len)
{
    size_t from = i ? x->ends[i - 1] : 0;
    *len = x->ends[i] - from;
    return x->text.data ? x->text.data + from : "";
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Value of "<0xHH>", or -1. */
static int byte_token(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int hi = hex_digit(s[3]), lo = hex_digit(s[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static qp_status run_byte_fallback(const texts *in, texts *out, qp_err *err)
{
    qp_buf run = {0};
    qp_status st = QP_OK;
    for (size_t i = 0; i <= in->n && st == QP_OK; i++) {
        size_t len = 0;
        const char *s = i < in->n ? text_at(in, i, &len) : NULL;
        int byte = s ? byte_token(s, len) : -1;
        if (byte >= 0) {
            qp_buf_addc(&run, (char)byte);
            continue;
        }
        if (run.len && qp_uni_valid_prefix(run.data, run.len) == run.len) {
            qp_buf_add(&out->text, run.data, run.len);
            st = close_text(out, err);
        } else {
            for (size_t k = 0; k < run.len && st == QP_OK; k++) {
                qp_buf_add(&out->text, "\xEF\xBF\xBD", 3);
                st = close_text(out, err);
            }
        }
        if (st == QP_OK) st = qp_buf_check(&run, "decoded bytes", err);
        qp_buf_clear(&run);
        if (!s || st != QP_OK) continue;
        qp_buf_add(&out->text, s, len);
        st = close_text(out, err);
    }
    qp_buf_deinit(&run);
    return st;
}

static qp_status run_byte_level(const texts *in, texts *out, qp_err *err)
{
    qp_buf raw = {0};
    for (size_t i = 0; i < in->n; i++) {
        size_t len;
        const char *s = text_at(in, i, &len);
        if (!qp_tok_symbols_to_bytes(s, len, &raw)) qp_buf_add(&raw, s, len);
    }
    qp_utf8_sanitize(&out->text, raw.data ? raw.data : "", raw.len);
    qp_status st = qp_buf_check(&raw, "decoded bytes", err);
    qp_buf_deinit(&raw);
    return st == QP_OK ? close_text(out, err) : st;
}

static qp_status replace_all(qp_tok_ctx *c, const qp_tok_dec *d, const char *s, size_t n, qp_buf *out)
{
    for (size_t at = 0, start, end; at < n; at = end) {
        QP_TRY(qp_tok_pattern_find(c, &d->pattern, s, at, n, &start, &end));
        qp_buf_add(out, s + at, start - at);
        if (start < n) qp_buf_add(out, d->content, d->content_len);
        if (out->len > QP_TOK_MAX_TEXT_BYTES)
            return qp_fail(c->err, QP_ELIMIT, "decoding: text over %zu bytes", QP_TOK_MAX_TEXT_BYTES);
    }
    return QP_OK;
}

static void strip_text(const qp_tok_dec *d, const char *s, size_t n, qp_buf *out)
{
    size_t w = d->content_len;
    for (uint32_t k = 0; w && k < d->start && n >= w && memcmp(s, d->content, w) == 0; k++) {
        s += w;
        n -= w;
    }
    for (uint32_t k = 0; w && k < d->stop && n >= w && memcmp(s + n - w, d->content, w) == 0; k++) n -= w;
    qp_buf_add(out, s, n);
}

/* The mark becomes a space, but in the first token (unless keep_first) it vanishes. */
static void metaspace_text(const qp_tok_dec *d, bool first, const char *s, size_t n, qp_buf *out)
{
    size_t w = d->content_len;
    for (size_t i = 0; i < n;) {
        if (w && n - i >= w && memcmp(s + i, d->content, w) == 0) {
            if (!first || d->keep_first) qp_buf_addc(out, ' ');
            i += w;
        } else {
            qp_buf_addc(out, s[i++]);
        }
    }
}

static qp_status run_decoder(qp_tok_ctx *c, const qp_tok_dec *d, const texts *in, texts *out)
{
    out->n = 0;
    qp_buf_clear(&out->text);
    if (d->kind == QP_DEC_BYTE_FALLBACK) return run_byte_fallback(in, out, c->err);
    if (d->kind == QP_DEC_BYTE_LEVEL) return run_byte_level(in, out, c->err);
    if (d->kind == QP_DEC_FUSE) {
        qp_buf_add(&out->text, in->text.data ? in->text.data : "", in->text.len);
        return close_text(out, c->err);
    }
    for (size_t i = 0; i < in->n; i++) {
        size_t len;
        const char *s = text_at(in, i, &len);
        if (d->kind == QP_DEC_REPLACE)
            QP_TRY(replace_all(c, d, s, len, &out->text));
        else if (d->kind == QP_DEC_STRIP)
            strip_text(d, s, len, &out->text);
        else
            metaspace_text(d, i == 0, s, len, &out->text);
        QP_TRY(close_text(out, c->err));
    }
    return QP_OK;
}

static qp_status check_ids(const qp_tokenizer *t, const int32_t *ids, size_t n, qp_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!qp_tok_vocab_has(&t->vocab, ids[i]))
            return qp_fail(err, QP_EINVAL, "%s: id %d is not a token (ids are below %zu)", t->name, ids[i],
                           t->vocab.n_ids);
    return QP_OK;
}

static bool is_skipped(const qp_tokenizer *t, int32_t id, bool skip)
{
    return skip && t->special[id] & QP_TOK_SKIPPED;
}

/* Bytes that id adds to a byte-level text. */
static void add_raw(const qp_tokenizer *t, int32_t id, qp_buf *out)
{
    const qp_tok_text *x = &t->vocab.texts[id];
    qp_buf_add(out, t->vocab.pool.data + x->raw_off, x->raw_len);
}

static bool is_byte_level(const qp_tokenizer *t)
{
    return t->byte_level && t->n_decs == 1 && t->decs[0].kind == QP_DEC_BYTE_LEVEL;
}

static qp_status decode_byte_level(const qp_tokenizer *t, const int32_t *ids, size_t n, bool skip, qp_buf *out,
                                   qp_err *err)
{
    size_t before = out->len;
    for (size_t i = 0; i < n; i++)
        if (!is_skipped(t, ids[i], skip)) add_raw(t, ids[i], out);
    if (out->failed || qp_uni_valid_prefix(out->data ? out->data + before : "", out->len - before) == out->len - before)
        return qp_buf_check(out, "decoded text", err);
    qp_buf raw = {0};
    qp_buf_add(&raw, out->data + before, out->len - before);
    out->len = before;
    qp_utf8_sanitize(out, raw.data ? raw.data : "", raw.len);
    qp_status st = qp_buf_check(&raw, "decoded text", err);
    qp_buf_deinit(&raw);
    return st == QP_OK ? qp_buf_check(out, "decoded text", err) : st;
}

static qp_status decode_list(const qp_tokenizer *t, const int32_t *ids, size_t n, bool skip, qp_buf *out, qp_err *err)
{
    qp_tok_ctx c = {.t = t, .err = err};
    texts x[2] = {{{0}, NULL, 0, 0}, {{0}, NULL, 0, 0}};
    unsigned side = 0;
    qp_status st = QP_OK;
    for (size_t i = 0; i < n && st == QP_OK; i++) {
        const qp_tok_text *v = &t->vocab.texts[ids[i]];
        if (is_skipped(t, ids[i], skip)) continue;
        if (t->no_decoder && x[0].n) qp_buf_addc(&x[0].text, ' ');
        qp_buf_add(&x[0].text, t->vocab.pool.data + v->off, v->len);
        st = close_text(&x[0], err);
    }
    for (size_t k = 0; k < t->n_decs && st == QP_OK; k++, side ^= 1)
        st = run_decoder(&c, &t->decs[k], &x[side], &x[side ^ 1]);
    if (st == QP_OK) {
        qp_buf_add(out, x[side].text.data ? x[side].text.data : "", x[side].text.len);
        st = qp_buf_check(out, "decoded text", err);
    }
    texts_deinit(&x[0]);
    texts_deinit(&x[1]);
    qp_tok_ctx_deinit(&c);
    return st;
}

qp_status qp_tokenizer_decode(const qp_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, qp_buf *out,
                              qp_err *err)
{
    size_t before = out->len;
    QP_TRY(check_ids(t, ids, n, err));
    qp_status st = is_byte_level(t) ? decode_byte_level(t, ids, n, skip_special, out, err)
                                    : decode_list(t, ids, n, skip_special, out, err);
    if (st != QP_OK && out->data) {
        out->len = before;
        out->data[before] = 0;
    }
    return st;
}

qp_status qp_tokenizer_token_bytes(const qp_tokenizer *t, int32_t id, qp_buf *out, qp_err *err)
{
    QP_TRY(check_ids(t, &id, 1, err));
    const qp_tok_text *x = &t->vocab.texts[id];
    const char *s = t->vocab.pool.data + x->off;
    bool special = t->special[id] & QP_TOK_SPECIAL;
    if (special) {
        qp_buf_add(out, s, x->len);
    } else if (is_byte_level(t)) {
        add_raw(t, id, out);
    } else {
        int byte = -1;
        for (size_t k = 0; k < t->n_decs && byte < 0; k++)
            if (t->decs[k].kind == QP_DEC_BYTE_FALLBACK) byte = byte_token(s, x->len);
        if (byte >= 0) {
            qp_buf_addc(out, (char)byte);
            return qp_buf_check(out, "bytes of a token", err);
        }
        /* Inside running text: what replaces is applied, what strips the ends of the text is not. */
        qp_tok_dec mark = {.content_len = 3, .keep_first = true};
        char lower_block[] = "\xE2\x96\x81";
        mark.content = lower_block;
        metaspace_text(&mark, false, s, x->len, out);
    }
    return qp_buf_check(out, "bytes of a token", err);
}

/* ---- streaming ---- */

void qp_detok_deinit(qp_detok *d)
{
    qp_ids_deinit(&d->window);
    qp_buf_deinit(&d->work);
    d->n_prefix = 0;
}

static bool ends_in_replacement(const char *s, size_t n)
{
    return n >= 3 && memcmp(s + n - 3, "\xEF\xBF\xBD", 3) == 0;
}

/* Byte-level: `work` holds the bytes not emitted yet. As in the library, nothing is emitted while the text ends inside
 * a code point or in U+FFFD; over MAX_HELD bytes all is emitted that can no longer change. */
static qp_status push_byte_level(qp_detok *d, int32_t id, qp_buf *out, qp_err *err)
{
    size_t work_before = d->work.len, out_before = out->len;
    if (is_skipped(d->t, id, d->skip_special)) return QP_OK;
    add_raw(d->t, id, &d->work);
    qp_status st = qp_buf_check(&d->work, "stream", err);
    if (st != QP_OK) {
        d->work.failed = false;
        d->work.len = work_before;
        return st;
    }
    const char *text = d->work.data ? d->work.data : "";
    size_t n = d->work.len, tail = qp_utf8_incomplete_tail(text, n);
    if (tail && n <= MAX_HELD) return QP_OK;
    qp_utf8_sanitize(out, text, n - tail);
    st = qp_buf_check(out, "stream", err);
    bool hold =
        st == QP_OK && n <= MAX_HELD && out->data && ends_in_replacement(out->data + out_before, out->len - out_before);
    if (st != QP_OK || hold) {
        if (st != QP_OK) d->work.len = work_before; /* the same id may be pushed again */
        if (out->data) out->data[out_before] = 0;
        out->len = out_before;
        return st;
    }
    if (tail) memmove(d->work.data, d->work.data + n - tail, tail);
    d->work.len = tail;
    return QP_OK;
}

/* Emits what the window decodes to beyond its prefix; the new ids become the prefix. Without `force`, nothing while
 * the text ends in U+FFFD or has not grown. */
static qp_status emit(qp_detok *d, bool force, qp_buf *out, qp_err *err)
{
    const int32_t *ids = d->window.ids;
    qp_buf_clear(&d->work);
    QP_TRY(qp_tokenizer_decode(d->t, ids, d->n_prefix, d->skip_special, &d->work, err));
    size_t n_old = d->work.len;
    QP_TRY(qp_tokenizer_decode(d->t, ids, d->window.n, d->skip_special, &d->work, err));
    const char *text = d->work.data ? d->work.data + n_old : "";
    size_t n = d->work.len - n_old;
    if (!force && (n <= n_old || ends_in_replacement(text, n))) return QP_OK;
    if (n >= n_old && (n_old == 0 || memcmp(d->work.data, text, n_old) == 0)) {
        qp_buf_add(out, text + n_old, n - n_old);
    } else {
        /* New bytes made a run that was emitted invalid: what is out stays, the new ids are decoded on their own. */
        size_t at = d->work.len;
        QP_TRY(qp_tokenizer_decode(d->t, ids + d->n_prefix, d->window.n - d->n_prefix, d->skip_special, &d->work, err));
        qp_buf_add(out, d->work.data ? d->work.data + at : "", d->work.len - at);
    }
    QP_TRY(qp_buf_check(out, "stream", err));
    d->window.n -= d->n_prefix;
    memmove(d->window.ids, d->window.ids + d->n_prefix, d->window.n * sizeof *ids);
    d->n_prefix = d->window.n;
    return QP_OK;
}

qp_status qp_detok_push(qp_detok *d, int32_t id, qp_buf *out, qp_err *err)
{
    QP_TRY(check_ids(d->t, &id, 1, err));
    if (is_byte_level(d->t)) return push_byte_level(d, id, out, err);
    if (is_skipped(d->t, id, d->skip_special)) return QP_OK;
    QP_TRY(qp_ids_push(&d->window, id, err));
    qp_status st = emit(d, d->window.n - d->n_prefix >= MAX_HELD, out, err);
    if (st != QP_OK) d->window.n--; /* the same id may be pushed again */
    return st;
}

qp_status qp_detok_flush(qp_detok *d, qp_buf *out, qp_err *err)
{
    if (is_byte_level(d->t))
        qp_utf8_sanitize(out, d->work.data ? d->work.data : "", d->work.len);
    else if (d->window.n > d->n_prefix)
        QP_TRY(emit(d, true, out, err));
    QP_TRY(qp_buf_check(out, "stream", err));
    qp_buf_clear(&d->work);
    d->window.n = d->n_prefix = 0;
    return QP_OK;
}
