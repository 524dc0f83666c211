/* Patterns of normalizers, pre-tokenizers and decoders: a literal string, or a regular expression run by PCRE2 with
 * UTF, Unicode properties, JIT, and limits on matching. The files' dialect is Oniguruma's (Ruby); what differs in PCRE
 * is refused: a '+' after an interval is possessive there and a repetition here. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"

#include <string.h>

enum { MATCH_LIMIT = 5000000, HEAP_LIMIT_KIB = 64 * 1024, JIT_STACK_MAX = 8 << 20, MAX_PATTERN_BYTES = 8192 };

static void *pcre_alloc(size_t n, void *data)
{
    (void)data;
    return qp_malloc(n);
}

static void pcre_release(void *p, void *data)
{
    (void)data;
    qp_free(p);
}

/* Contexts are made on the first pattern of a tokenizer. */
static qp_status contexts(qp_tokenizer *t, qp_err *err)
{
    if (!t->pcre) t->pcre = pcre2_general_context_create(pcre_alloc, pcre_release, NULL);
    if (t->pcre && !t->pcre_compile) t->pcre_compile = pcre2_compile_context_create(t->pcre);
    if (!t->pcre_compile) return qp_fail(err, QP_ENOMEM, "%s: no memory for regular expressions", t->name);
    pcre2_set_parens_nest_limit(t->pcre_compile, 50);
    return QP_OK;
}

/* True when text[at], a '}', ends an interval ({2,5}) and not a property or a code point. */
static bool ends_interval(const char *text, size_t at)
{
    size_t i = at;
    while (i > 0 && ((text[i - 1] >= '0' && text[i - 1] <= '9') || text[i - 1] == ',')) i--;
    return i < at && i > 1 && text[i - 1] == '{' && text[i - 2] != 'x';
}

static qp_status compile(qp_tokenizer *t, qp_tok_pattern *p, const char *what, qp_err *err)
{
    int code;
    PCRE2_SIZE at;
    for (size_t i = 0; i + 1 < p->len; i++) {
        if (p->text[i] == '\\')
            i++;
        else if (p->text[i] == '}' && p->text[i + 1] == '+' && ends_interval(p->text, i))
            return qp_fail(err, QP_EUNSUPPORTED, "%s: %s: regex \"%.80s\": '+' after an interval", t->name, what,
                           p->text);
    }
    QP_TRY(contexts(t, err));
    p->re = pcre2_compile((PCRE2_SPTR)p->text, p->len, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at,
                          t->pcre_compile);
    if (!p->re) {
        char msg[80] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof msg);
        return qp_fail(err, code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY ? QP_ENOMEM : QP_EFORMAT,
                       "%s: %s: regex \"%.80s\" at byte %zu: %s", t->name, what, p->text, (size_t)at, msg);
    }
    /* Without JIT (no executable memory) matching is slower, with the same results. */
    (void)pcre2_jit_compile(p->re, PCRE2_JIT_COMPLETE);
    return QP_OK;
}

qp_status qp_tok_pattern_init(qp_tokenizer *t, qp_tok_pattern *p, const json_t *spec, const char *what, qp_err *err)
{
    const json_t *s = json_is_string(spec) ? spec : json_object_get(spec, "String"),
                 *re = json_object_get(spec, "Regex");
    const json_t *text = s ? s : re;
    memset(p, 0, sizeof *p);
    if (!json_is_string(text) || (s && re))
        return qp_fail(err, QP_EFORMAT, "%s: %s: pattern must be {\"String\": text} or {\"Regex\": text}", t->name,
                       what);
    size_t len = json_string_length(text);
    if (len == 0 || len > MAX_PATTERN_BYTES)
        return qp_fail(err, QP_EFORMAT, "%s: %s: pattern of %zu bytes, wanted 1 to %d", t->name, what, len,
                       MAX_PATTERN_BYTES);
    p->text = qp_strndup(json_string_value(text), len);
    if (!p->text) return qp_fail(err, QP_ENOMEM, "%s: %s: no memory", t->name, what);
    p->len = len;
    qp_status st = s ? QP_OK : compile(t, p, what, err);
    if (st != QP_OK) qp_tok_pattern_deinit(p);
    return st;
}

void qp_tok_pattern_deinit(qp_tok_pattern *p)
{
    pcre2_code_free(p->re);
    qp_free(p->text);
    memset(p, 0, sizeof *p);
}

static qp_status match_objects(qp_tok_ctx *c)
{
    pcre2_general_context *g = c->t->pcre;
    if (c->match) return QP_OK;
    if (!c->match_ctx) c->match_ctx = pcre2_match_context_create(g);
    if (!c->jit_stack) c->jit_stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, g);
    if (c->match_ctx && c->jit_stack) {
        pcre2_set_match_limit(c->match_ctx, MATCH_LIMIT);
        pcre2_set_depth_limit(c->match_ctx, MATCH_LIMIT);
        pcre2_set_heap_limit(c->match_ctx, HEAP_LIMIT_KIB);
        pcre2_jit_stack_assign(c->match_ctx, NULL, c->jit_stack);
        c->match = pcre2_match_data_create(1, g);
    }
    return c->match ? QP_OK : qp_fail(c->err, QP_ENOMEM, "%s: no memory for matching", c->t->name);
}

static const char *find_literal(const char *s, size_t n, const char *what, size_t len)
{
    for (const char *end = s + n; (size_t)(end - s) >= len; s++) {
        s = memchr(s, what[0], (size_t)(end - s) - len + 1);
        if (!s) return NULL;
        if (memcmp(s, what, len) == 0) return s;
    }
    return NULL;
}

qp_status qp_tok_pattern_find(qp_tok_ctx *c, const qp_tok_pattern *p, const char *s, size_t from, size_t n,
                              size_t *start, size_t *end)
{
    *start = *end = n;
    if (!p->re) {
        const char *hit = from < n ? find_literal(s + from, n - from, p->text, p->len) : NULL;
        if (hit) {
            *start = (size_t)(hit - s);
            *end = *start + p->len;
        }
        return QP_OK;
    }
    QP_TRY(match_objects(c));
    while (from < n) {
        int rc = pcre2_match(p->re, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, c->match, c->match_ctx);
        if (rc == PCRE2_ERROR_NOMATCH) return QP_OK;
        if (rc == PCRE2_ERROR_NOMEMORY) return qp_fail(c->err, QP_ENOMEM, "regex \"%.80s\": no memory", p->text);
        if (rc < 0) {
            char msg[80] = "";
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)msg, sizeof msg);
            return qp_fail(c->err, QP_ELIMIT, "%s: regex \"%.80s\" on %zu bytes of text: %s", c->t->name, p->text, n,
                           msg);
        }
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(c->match);
        if (at[1] > at[0] && at[0] >= from) { /* \K may put the start anywhere */
            *start = at[0];
            *end = at[1];
            return QP_OK;
        }
        size_t next = at[1] > from ? at[1] : from;
        from = next < n ? next + qp_uni_len((unsigned char)s[next]) : n;
    }
    return QP_OK;
}
