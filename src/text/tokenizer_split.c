/* Pre-tokenizers of tokenizer.json: loading, and running them as a chain: each step cuts the pieces of the one before
 * and hands them on at once; what leaves the last step goes to the model. ByteLevel becomes an optional step that puts
 * a space in front and an optional GPT-2 split; its mapping to symbols is never done (tokenizer_int.h). */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "io/json.h"

#include <string.h>

void qp_tok_step_deinit(qp_tok_step *s)
{
    qp_tok_pattern_deinit(&s->pattern);
}

static qp_status add(qp_tokenizer *t, qp_tok_step_kind kind, qp_tok_step **out, qp_err *err)
{
    if (t->n_steps == QP_TOK_MAX_STEPS)
        return qp_fail(err, QP_ELIMIT, "%s: more than %d pre-tokenizers", t->name, QP_TOK_MAX_STEPS);
    *out = &t->steps[t->n_steps++];
    memset(*out, 0, sizeof **out);
    (*out)->kind = kind;
    return QP_OK;
}

static qp_status add_scan(qp_tokenizer *t, qp_tok_scan scan, qp_err *err)
{
    qp_tok_step *s = NULL;
    QP_TRY(add(t, QP_STEP_SCAN, &s, err));
    s->scan = scan;
    return QP_OK;
}

static qp_status load_split(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *behavior = "";
    qp_tok_step *s = NULL;
    bool invert = false;
    QP_TRY(qp_json_get_str(spec, "behavior", "", &behavior, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "invert", false, &invert, t->name, err));
    int b = 0;
    while (b < 5 && strcmp(behavior, names[b]) != 0) b++;
    if (b == 5)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: pre_tokenizer Split: behavior \"%.40s\" is unknown", t->name,
                       behavior);
    const json_t *re = json_object_get(json_object_get(spec, "pattern"), "Regex");
    qp_tok_scan scan = json_is_string(re) ? qp_tok_scan_of(json_string_value(re), json_string_length(re)) : NULL;
    if (scan && b == QP_SPLIT_ISOLATED) return add_scan(t, scan, err); /* `invert` changes nothing here */
    QP_TRY(add(t, QP_STEP_SPLIT, &s, err));
    s->behavior = (qp_tok_behavior)b;
    s->invert = invert;
    return qp_tok_pattern_init(t, &s->pattern, json_object_get(spec, "pattern"), "pre_tokenizer Split", err);
}

static qp_status load_metaspace(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    qp_tok_step *s = NULL;
    const char *mark = "", *scheme = "";
    bool legacy = true;
    int32_t cp;
    QP_TRY(add(t, QP_STEP_METASPACE, &s, err));
    QP_TRY(qp_json_get_str(spec, "replacement", "\xE2\x96\x81", &mark, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "add_prefix_space", true, &legacy, t->name, err)); /* older files */
    QP_TRY(qp_json_get_str(spec, "prepend_scheme", legacy ? "always" : "never", &scheme, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "split", true, &s->split, t->name, err));
    s->mark_len = strlen(mark);
    if (!s->mark_len || s->mark_len > 4 || qp_utf8_decode(mark, s->mark_len, &cp) != s->mark_len || cp < 0)
        return qp_fail(err, QP_EFORMAT, "%s: pre_tokenizer Metaspace: replacement \"%.20s\" is not one code point",
                       t->name, mark);
    memcpy(s->mark, mark, s->mark_len);
    if (strcmp(scheme, "always") == 0)
        s->scheme = QP_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        s->scheme = QP_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        s->scheme = QP_PREPEND_NEVER;
    else
        return qp_fail(err, QP_EFORMAT, "%s: pre_tokenizer Metaspace: prepend_scheme \"%.40s\" is unknown", t->name,
                       scheme);
    return QP_OK;
}

static qp_status load_byte_level(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    bool prefix = true, regex = true;
    qp_tok_step *s = NULL;
    QP_TRY(qp_json_get_bool(spec, "add_prefix_space", true, &prefix, t->name, err));
    QP_TRY(qp_json_get_bool(spec, "use_regex", true, &regex, t->name, err));
    if (prefix) QP_TRY(add(t, QP_STEP_PREFIX_SPACE, &s, err));
    if (regex) QP_TRY(add_scan(t, qp_tok_scan_gpt2, err));
    t->byte_level = true;
    return QP_OK;
}

qp_status qp_tok_steps_load(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    const char *type = "";
    if (!spec || json_is_null(spec)) return QP_OK;
    if (!json_is_object(spec)) return qp_fail(err, QP_EFORMAT, "%s: pre_tokenizer is not an object", t->name);
    QP_TRY(qp_json_get_str(spec, "type", "", &type, t->name, err));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(spec, "pretokenizers"), *item;
        size_t i;
        if (!json_is_array(list)) return qp_fail(err, QP_EFORMAT, "%s: \"pretokenizers\" is not a list", t->name);
        json_array_foreach(list, i, item) QP_TRY(qp_tok_steps_load(t, item, err));
        return QP_OK;
    }
    if (t->byte_level) /* it would see symbols instead of text */
        return qp_fail(err, QP_EUNSUPPORTED, "%s: pre_tokenizer \"%.60s\" after ByteLevel is not supported", t->name,
                       type);
    if (strcmp(type, "Split") == 0) return load_split(t, spec, err);
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level(t, spec, err);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace(t, spec, err);
    if (strcmp(type, "Digits") == 0) {
        bool individual = false;
        QP_TRY(qp_json_get_bool(spec, "individual_digits", false, &individual, t->name, err));
        return add_scan(t, individual ? qp_tok_scan_digit : qp_tok_scan_digit_runs, err);
    }
    return qp_fail(err, QP_EUNSUPPORTED, "%s: pre_tokenizer \"%.60s\" is not supported", t->name, type);
}

static qp_status run(qp_tok_ctx *c, size_t at, const char *s, size_t n, bool first);

/* Spans of text, matches and gaps in turn, become pieces by one of the five behaviours. */
typedef struct splitter {
    qp_tok_ctx *c;
    const char *s;
    size_t at; /* step after the split */
    bool first;
    size_t start, end; /* pending piece, not handed on yet */
    bool pending, previous_match;
} splitter;

static qp_status hand_on(splitter *p, size_t start, size_t end)
{
    return start < end ? run(p->c, p->at, p->s + start, end - start, p->first && start == 0) : QP_OK;
}

static qp_status hand_on_pending(splitter *p)
{
    bool pending = p->pending;
    p->pending = false;
    return pending ? hand_on(p, p->start, p->end) : QP_OK;
}

static qp_status span(splitter *p, qp_tok_behavior b, size_t start, size_t end, bool match)
{
    bool join = false;
    if (start == end) return QP_OK;
    if (b == QP_SPLIT_ISOLATED) return hand_on(p, start, end);
    if (b == QP_SPLIT_REMOVED) return match ? QP_OK : hand_on(p, start, end);
    if (b == QP_SPLIT_PREVIOUS) join = match && !p->previous_match;
    if (b == QP_SPLIT_NEXT) join = !match && p->previous_match;
    if (b == QP_SPLIT_CONTIGUOUS) join = match == p->previous_match;
    p->previous_match = match;
    if (p->pending && join) {
        p->end = end;
        return QP_OK;
    }
    QP_TRY(hand_on_pending(p));
    p->start = start;
    p->end = end;
    p->pending = true;
    return QP_OK;
}

static qp_status run_split(qp_tok_ctx *c, size_t at, const qp_tok_step *step, const char *s, size_t n, bool first)
{
    splitter p = {.c = c, .s = s, .at = at + 1, .first = first};
    for (size_t pos = 0, start, end; pos < n; pos = end) {
        QP_TRY(qp_tok_pattern_find(c, &step->pattern, s, pos, n, &start, &end));
        QP_TRY(span(&p, step->behavior, pos, start, step->invert));
        if (start < n) QP_TRY(span(&p, step->behavior, start, end, !step->invert));
    }
    return hand_on_pending(&p);
}

static qp_status run_prefix_space(qp_tok_ctx *c, size_t at, const char *s, size_t n, bool first)
{
    qp_buf *b = &c->step[at];
    if (s[0] == ' ') return run(c, at + 1, s, n, first); /* a space alone counts, no other white space */
    qp_buf_clear(b);
    qp_buf_addc(b, ' ');
    qp_buf_add(b, s, n);
    QP_TRY(qp_buf_check(b, "text with a space in front", c->err));
    return run(c, at + 1, b->data, b->len, first);
}

static qp_status run_metaspace(qp_tok_ctx *c, size_t at, const qp_tok_step *step, const char *s, size_t n, bool first)
{
    qp_buf *b = &c->step[at];
    size_t spaces = 0, w = step->mark_len;
    for (size_t i = 0; i < n; i++) spaces += s[i] == ' ';
    bool starts = s[0] == ' ' || (n >= w && memcmp(s, step->mark, w) == 0);
    bool put = !starts && (step->scheme == QP_PREPEND_ALWAYS || (step->scheme == QP_PREPEND_FIRST && first));
    qp_buf_clear(b);
    qp_buf_reserve(b, n + (spaces + 1) * w);
    if (put) qp_buf_add(b, step->mark, w);
    for (size_t i = 0; i < n && !b->failed; i++) {
        if (s[i] == ' ')
            qp_buf_add(b, step->mark, w);
        else
            b->data[b->len++] = s[i];
    }
    QP_TRY(qp_buf_check(b, "text with marked spaces", c->err));
    if (!step->split) return run(c, at + 1, b->data, b->len, first);
    for (size_t start = 0, end, total = b->len; start < total; start = end) {
        end = start + 1;
        while (end < total &&
               !(b->data[end] == step->mark[0] && total - end >= w && memcmp(b->data + end, step->mark, w) == 0))
            end++;
        QP_TRY(run(c, at + 1, b->data + start, end - start, first && start == 0));
    }
    return QP_OK;
}

static qp_status model(qp_tok_ctx *c, const char *s, size_t n)
{
    return c->t->unigram ? qp_tok_unigram(c, s, n) : qp_tok_bpe(c, s, n);
}

/* Runs step `at` and those after it on a piece that is not empty. `first`: the piece starts at offset 0 of the input.
 * Recursion is at most QP_TOK_MAX_STEPS deep. */
static qp_status run(qp_tok_ctx *c, size_t at, const char *s, size_t n, bool first)
{
    if (at == c->t->n_steps) return model(c, s, n);
    const qp_tok_step *step = &c->t->steps[at];
    switch (step->kind) {
    case QP_STEP_SCAN:
        if (at + 1 == c->t->n_steps && !c->t->unigram) { /* the common case without a call more per piece */
            for (size_t i = 0, end; i < n; i = end) {
                end = step->scan(s, i, n);
                QP_TRY(qp_tok_bpe(c, s + i, end - i));
            }
            return QP_OK;
        }
        for (size_t i = 0, end; i < n; i = end) {
            end = step->scan(s, i, n);
            QP_TRY(run(c, at + 1, s + i, end - i, first && i == 0));
        }
        return QP_OK;
    case QP_STEP_SPLIT:
        return run_split(c, at, step, s, n, first);
    case QP_STEP_PREFIX_SPACE:
        return run_prefix_space(c, at, s, n, first);
    default:
        return run_metaspace(c, at, step, s, n, first);
    }
}

qp_status qp_tok_split(qp_tok_ctx *c, const char *s, size_t n)
{
    return n ? run(c, 0, s, n, c->first) : QP_OK;
}
