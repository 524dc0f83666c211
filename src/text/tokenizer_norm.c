/* Normalizers of tokenizer.json: loading and running. A Sequence is flattened to a list of steps. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "io/json.h"

#include <string.h>

void qp_tok_norm_deinit(qp_tok_norm *n)
{
    qp_free(n->content);
    qp_tok_pattern_deinit(&n->pattern);
    memset(n, 0, sizeof *n);
}

/* The next free step, or an error when there are too many. */
static qp_status add(qp_tokenizer *t, qp_tok_norm_kind kind, qp_tok_norm **out, qp_err *err)
{
    if (t->n_norms == QP_TOK_MAX_STEPS)
        return qp_fail(err, QP_ELIMIT, "%s: more than %d normalizers", t->name, QP_TOK_MAX_STEPS);
    *out = &t->norms[t->n_norms++];
    memset(*out, 0, sizeof **out);
    (*out)->kind = kind;
    return QP_OK;
}

static qp_status copy_content(qp_tokenizer *t, qp_tok_norm *n, const json_t *spec, const char *key, qp_err *err)
{
    const json_t *v = json_object_get(spec, key);
    if (!json_is_string(v)) return qp_fail(err, QP_EFORMAT, "%s: normalizer: \"%s\" is not a string", t->name, key);
    n->content_len = json_string_length(v);
    n->content = qp_strndup(json_string_value(v), n->content_len);
    return n->content ? QP_OK : qp_fail(err, QP_ENOMEM, "%s: normalizer: no memory", t->name);
}

static qp_status load_bert(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    bool clean = true, chinese = true, lower = true, strip = true;
    qp_tok_norm *n = NULL;
    QP_TRY(qp_json_get_bool(spec, "clean_text", true, &clean, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "handle_chinese_chars", true, &chinese, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "lowercase", true, &lower, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "strip_accents", lower, &strip, t->name, err));
    if (clean) QP_TRY(add(t, QP_NORM_BERT_CLEAN, &n, err));
    if (chinese) QP_TRY(add(t, QP_NORM_BERT_CHINESE, &n, err));
    if (strip) {
        QP_TRY(add(t, QP_NORM_FORM, &n, err));
        n->form = QP_UNI_NFD;
        QP_TRY(add(t, QP_NORM_BERT_ACCENTS, &n, err));
    }
    if (lower) QP_TRY(add(t, QP_NORM_LOWERCASE, &n, err));
    return QP_OK;
}

static qp_status load_one(qp_tokenizer *t, const json_t *spec, const char *type, qp_err *err)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    qp_tok_norm *n = NULL;
    for (int f = 0; f < 4; f++) {
        if (strcmp(type, forms[f]) != 0) continue;
        QP_TRY(add(t, QP_NORM_FORM, &n, err));
        n->form = (qp_uni_form)f;
        return QP_OK;
    }
    if (strcmp(type, "Lowercase") == 0) return add(t, QP_NORM_LOWERCASE, &n, err);
    if (strcmp(type, "StripAccents") == 0) return add(t, QP_NORM_STRIP_ACCENTS, &n, err);
    if (strcmp(type, "Nmt") == 0) return add(t, QP_NORM_NMT, &n, err);
    if (strcmp(type, "BertNormalizer") == 0) return load_bert(t, spec, err);
    if (strcmp(type, "Strip") == 0) {
        QP_TRY(add(t, QP_NORM_STRIP, &n, err));
        QP_TRY(qp_json_get_bool(spec, "strip_left", true, &n->left, t->name, err));
        return qp_json_get_bool(spec, "strip_right", true, &n->right, t->name, err);
    }
    if (strcmp(type, "Prepend") == 0) {
        QP_TRY(add(t, QP_NORM_PREPEND, &n, err));
        return copy_content(t, n, spec, "prepend", err);
    }
    if (strcmp(type, "Replace") == 0) {
        QP_TRY(add(t, QP_NORM_REPLACE, &n, err));
        QP_TRY(copy_content(t, n, spec, "content", err));
        return qp_tok_pattern_init(t, &n->pattern, json_object_get(spec, "pattern"), "normalizer Replace", err);
    }
    return qp_fail(err, QP_EUNSUPPORTED, "%s: normalizer \"%.60s\" is not supported", t->name, type);
}

qp_status qp_tok_norm_load(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    const char *type = "";
    if (!spec || json_is_null(spec)) return QP_OK;
    if (!json_is_object(spec)) return qp_fail(err, QP_EFORMAT, "%s: normalizer is not an object", t->name);
    QP_TRY(qp_json_get_str(spec, "type", "", &type, t->name, err));
    if (strcmp(type, "Sequence") != 0) return load_one(t, spec, type, err);
    const json_t *list = json_object_get(spec, "normalizers"), *item;
    size_t i;
    if (!json_is_array(list)) return qp_fail(err, QP_EFORMAT, "%s: \"normalizers\" is not a list", t->name);
    json_array_foreach(list, i, item) QP_TRY(qp_tok_norm_load(t, item, err)); /* depth bounded by the JSON parser */
    return QP_OK;
}

static void add_cp(qp_buf *out, int32_t cp)
{
    char enc[4];
    qp_buf_add(out, enc, qp_utf8_encode(cp, enc));
}

/* What Nmt makes of cp: itself, a space, or -1 (dropped). */
static int32_t nmt(int32_t cp)
{
    if ((cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F || cp == 0x8F || cp == 0x9F)
        return -1;
    if (cp == 9 || cp == 0xA || cp == 0xC || cp == 0xD || cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) ||
        cp == 0x2028 || cp == 0x2029 || cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD)
        return ' ';
    return cp;
}

static int32_t bert_clean(int32_t cp)
{
    bool blank = cp == '\t' || cp == '\n' || cp == '\r';
    if (cp == 0 || cp == 0xFFFD || (!blank && qp_uni_is_other(cp))) return -1;
    return qp_uni_is_space(cp) ? ' ' : cp;
}

static bool bert_chinese(int32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
           (cp >= 0x2A700 && cp <= 0x2B73F) || (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

/* The kinds that look at one code point at a time. */
static void map_code_points(qp_tok_norm_kind kind, const char *s, size_t n, qp_buf *out)
{
    int32_t low[2];
    for (size_t i = 0, len; i < n; i += len) {
        int32_t cp = qp_uni_decode(s + i, &len);
        switch (kind) {
        case QP_NORM_LOWERCASE:
            for (size_t k = 0, m = qp_uni_lower(cp, low); k < m; k++) add_cp(out, low[k]);
            continue;
        case QP_NORM_STRIP_ACCENTS: /* drops every mark */
            if (qp_uni_class(cp) & QP_UNI_M) continue;
            break;
        case QP_NORM_BERT_ACCENTS:
            if (qp_uni_is_mn(cp)) continue;
            break;
        case QP_NORM_NMT:
            cp = nmt(cp);
            break;
        case QP_NORM_BERT_CLEAN:
            cp = bert_clean(cp);
            break;
        default:
            if (bert_chinese(cp)) {
                qp_buf_addc(out, ' ');
                add_cp(out, cp);
                cp = ' ';
            }
            break;
        }
        if (cp >= 0) add_cp(out, cp);
    }
}

static qp_status replace(qp_tok_ctx *c, const qp_tok_norm *norm, const char *s, size_t n, qp_buf *out)
{
    for (size_t at = 0, start, end; at < n; at = end) {
        QP_TRY(qp_tok_pattern_find(c, &norm->pattern, s, at, n, &start, &end));
        qp_buf_add(out, s + at, start - at);
        if (start < n) qp_buf_add(out, norm->content, norm->content_len);
        /* Content up to a file's size times matches up to the text's: bounded before it grows. */
        if (out->len > QP_TOK_MAX_TEXT_BYTES)
            return qp_fail(c->err, QP_ELIMIT, "%s: normalized text over %zu bytes", c->t->name, QP_TOK_MAX_TEXT_BYTES);
    }
    return QP_OK;
}

/* The most common normalizer: one byte (a space) becomes a short string. */
static void replace_byte(const qp_tok_norm *norm, const char *s, size_t n, qp_buf *out)
{
    char byte = norm->pattern.text[0];
    size_t w = norm->content_len, count = 0;
    for (size_t i = 0; i < n; i++) count += s[i] == byte;
    if (!qp_buf_reserve(out, n + count * w)) return;
    char *d = out->data + out->len;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != byte) {
            *d++ = s[i];
        } else {
            for (size_t k = 0; k < w; k++) *d++ = norm->content[k];
        }
    }
    out->len = (size_t)(d - out->data);
    *d = 0;
}

static void strip(const qp_tok_norm *norm, const char **s, size_t *n)
{
    size_t len;
    while (norm->left && *n && qp_uni_is_space(qp_uni_decode(*s, &len))) {
        *s += len;
        *n -= len;
    }
    while (norm->right && *n) {
        size_t at = *n - 1;
        while (at > 0 && ((unsigned char)(*s)[at] & 0xC0) == 0x80) at--;
        if (!qp_uni_is_space(qp_uni_decode(*s + at, &len))) break;
        *n = at;
    }
}

/* Runs one step; the result borrows s or is in out (cleared first). */
static qp_status run(qp_tok_ctx *c, const qp_tok_norm *norm, const char **s, size_t *n, qp_buf *out)
{
    qp_buf_clear(out);
    switch (norm->kind) {
    case QP_NORM_STRIP:
        strip(norm, s, n);
        return QP_OK;
    case QP_NORM_FORM:
        if (norm->form == QP_UNI_NFC && qp_uni_is_nfc_quick(*s, *n)) return QP_OK;
        QP_TRY(qp_uni_normalize(norm->form, *s, *n, out, c->err));
        break;
    case QP_NORM_PREPEND:
        if (!*n) return QP_OK;
        qp_buf_add(out, norm->content, norm->content_len);
        qp_buf_add(out, *s, *n);
        break;
    case QP_NORM_REPLACE:
        if (!norm->pattern.re && norm->pattern.len == 1 && norm->content_len <= 8)
            replace_byte(norm, *s, *n, out);
        else
            QP_TRY(replace(c, norm, *s, *n, out));
        break;
    default:
        map_code_points(norm->kind, *s, *n, out);
        break;
    }
    QP_TRY(qp_buf_check(out, "normalized text", c->err));
    *s = out->data ? out->data : "";
    *n = out->len;
    return QP_OK;
}

qp_status qp_tok_normalize(qp_tok_ctx *c, const char *s, size_t n, const char **out, size_t *out_n)
{
    unsigned side = 0;
    for (size_t i = 0; i < c->t->n_norms; i++) {
        QP_TRY(run(c, &c->t->norms[i], &s, &n, &c->norm[side]));
        if (c->norm[side].data && s >= c->norm[side].data && s <= c->norm[side].data + c->norm[side].len) side ^= 1;
        if (n > QP_TOK_MAX_TEXT_BYTES)
            return qp_fail(c->err, QP_ELIMIT, "%s: normalized text over %zu bytes", c->t->name, QP_TOK_MAX_TEXT_BYTES);
    }
    *out = s;
    *out_n = n;
    return QP_OK;
}
