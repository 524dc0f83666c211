/* Statements of chat templates, and the parser's helpers. Facts: formats/chat_templates.md, "Statements". */
#include "text/template_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures and memory ---- */

bool qp_t_syntax(qp_tparser *ps, uint32_t line, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    ps->kind = QP_TE_SYNTAX;
    qp_fail(ps->err, QP_EINVAL, "line %u: %s", line, msg);
    return false;
}

bool qp_t_parse_oom(qp_tparser *ps)
{
    size_t total = ps->t->arena.total > ps->scratch.total ? ps->t->arena.total : ps->scratch.total;
    if (QP_T_MAX_TREE - total < (QP_T_MAX_TREE >> 2)) return qp_t_parse_limit(ps, 0, "its parsed form is too large");
    ps->kind = QP_TE_NONE;
    qp_fail(ps->err, QP_ENOMEM, "chat template: no memory for its parsed form");
    return false;
}

bool qp_t_parse_limit(qp_tparser *ps, uint32_t line, const char *what)
{
    ps->kind = QP_TE_LIMIT;
    qp_fail(ps->err, QP_ELIMIT, "chat template: line %u: %s", line, what);
    return false;
}

bool qp_t_grow(qp_tparser *ps, void *array, size_t n, size_t *cap, size_t elem)
{
    if (n < *cap) return true;
    size_t want = *cap ? *cap * 2 : 16;
    void *old, *bigger = qp_arena_calloc(&ps->scratch, want, elem);
    if (!bigger) return qp_t_parse_oom(ps);
    memcpy(&old, array, sizeof old);
    if (n) memcpy(bigger, old, n * elem);
    memcpy(array, &bigger, sizeof bigger);
    *cap = want;
    return true;
}

static bool name_rehash(qp_tparser *ps)
{
    qp_template *t = ps->t;
    size_t n = t->n_name_index ? t->n_name_index * 2 : 64;
    uint32_t *index = qp_arena_calloc(&t->arena, n, sizeof *index);
    if (!index) return qp_t_parse_oom(ps);
    for (size_t i = 0; i < t->n_names; i++) {
        size_t at = t->names[i]->hash & (n - 1);
        while (index[at]) at = (at + 1) & (n - 1);
        index[at] = (uint32_t)i + 1;
    }
    t->name_index = index;
    t->n_name_index = n;
    return true;
}

const qp_tstr *qp_t_intern(qp_tparser *ps, const char *p, size_t n)
{
    qp_template *t = ps->t;
    if (t->n_names * 2 >= t->n_name_index && !name_rehash(ps)) return NULL;
    uint64_t hash = qp_t_hash_bytes(p, n);
    size_t at = hash & (t->n_name_index - 1);
    for (; t->name_index[at]; at = (at + 1) & (t->n_name_index - 1)) {
        const qp_tstr *s = t->names[t->name_index[at] - 1];
        if (s->hash == hash && s->n == n && !memcmp(s->p, p, n)) return s;
    }
    if (t->n_names == t->cap_names) {
        size_t cap = t->cap_names ? t->cap_names * 2 : 32;
        qp_tstr **names = qp_arena_calloc(&t->arena, cap, sizeof *names);
        if (!names) {
            qp_t_parse_oom(ps);
            return NULL;
        }
        if (t->n_names) memcpy(names, t->names, t->n_names * sizeof *names);
        t->names = names;
        t->cap_names = cap;
    }
    qp_tstr *s = qp_arena_calloc(&t->arena, 1, sizeof *s);
    char *copy = qp_arena_strndup(&t->arena, p, n);
    if (!s || !copy) {
        qp_t_parse_oom(ps);
        return NULL;
    }
    *s = (qp_tstr){copy, n, qp_t_count_cp(p, n), hash, false};
    t->names[t->n_names++] = s;
    t->name_index[at] = (uint32_t)t->n_names;
    return s;
}

qp_tnode *qp_t_node(qp_tparser *ps, qp_tnodekind kind)
{
    qp_tnode *n = qp_arena_calloc(&ps->t->arena, 1, sizeof *n);
    if (!n) {
        qp_t_parse_oom(ps);
        return NULL;
    }
    n->kind = (uint8_t)kind;
    n->line = ps->n_tok ? qp_t_cur(ps)->line : 1;
    return n;
}

void qp_t_add_kid(qp_tnode *parent, qp_tnode *kid)
{
    if (parent->last)
        parent->last->next = kid;
    else
        parent->kids = kid;
    parent->last = kid;
    parent->n_kids++;
}

/* ---- tokens ---- */

const qp_ttoken *qp_t_cur(const qp_tparser *ps)
{
    return &ps->tok[ps->at];
}

const qp_ttoken *qp_t_look(const qp_tparser *ps)
{
    return &ps->tok[ps->at + 1 < ps->n_tok ? ps->at + 1 : ps->at];
}

void qp_t_next(qp_tparser *ps)
{
    if (ps->at + 1 < ps->n_tok) ps->at++;
}

bool qp_t_is_op(const qp_ttoken *k, unsigned op)
{
    return k->type == QP_TOK_OP && k->op == op;
}

bool qp_t_is_name(const qp_ttoken *k, const char *name)
{
    return k->type == QP_TOK_NAME && k->n == strlen(name) && !memcmp(k->p, name, k->n);
}

bool qp_t_skip_op(qp_tparser *ps, unsigned op)
{
    if (!qp_t_is_op(qp_t_cur(ps), op)) return false;
    qp_t_next(ps);
    return true;
}

bool qp_t_skip_name(qp_tparser *ps, const char *name)
{
    if (!qp_t_is_name(qp_t_cur(ps), name)) return false;
    qp_t_next(ps);
    return true;
}

bool qp_t_unexpected(qp_tparser *ps, const char *wanted)
{
    const qp_ttoken *k = qp_t_cur(ps);
    const char *what = k->type == QP_TOK_EOF         ? "end of template"
                       : k->type == QP_TOK_VAR_END   ? "end of print statement"
                       : k->type == QP_TOK_BLOCK_END ? "end of statement block"
                                                     : NULL;
    int n = k->n > 60 ? 60 : (int)k->n;
    if (what) {
        n = (int)strlen(what);
    } else {
        what = k->p;
        while (n > 0 && n < (int)k->n && (k->p[n] & 0xC0) == 0x80) n--;
    }
    if (!wanted) return qp_t_syntax(ps, k->line, "unexpected '%.*s'", n, what);
    return qp_t_syntax(ps, k->line, "expected %s, got '%.*s'", wanted, n, what);
}

bool qp_t_expect_op(qp_tparser *ps, unsigned op)
{
    char wanted[] = "token '?'";
    wanted[7] = (char)op;
    return qp_t_skip_op(ps, op) ? true : qp_t_unexpected(ps, wanted);
}

bool qp_t_enter(qp_tparser *ps)
{
    if (++ps->depth <= QP_T_MAX_PARSE_DEPTH) return true;
    return qp_t_parse_limit(ps, qp_t_cur(ps)->line, "nested too deep");
}

static bool expect_block_end(qp_tparser *ps)
{
    if (qp_t_cur(ps)->type != QP_TOK_BLOCK_END) return qp_t_unexpected(ps, "end of statement block");
    qp_t_next(ps);
    return true;
}

/* ---- bodies ---- */

static bool parse_statement(qp_tparser *ps, qp_tnode *parent);

/* Reads text, {{ }} and statements into the kids of parent until a tag named in ends (space separated), whose name
 * token stays current; ends NULL: until the end of the template. `opener` names the open tag in messages. */
static bool parse_body(qp_tparser *ps, qp_tnode *parent, const char *ends, const char *opener)
{
    if (!qp_t_enter(ps)) return false;
    for (;;) {
        const qp_ttoken *k = qp_t_cur(ps);
        qp_tnode *n;
        if (k->type == QP_TOK_EOF) {
            if (ends)
                return qp_t_syntax(ps, k->line,
                                   "Unexpected end of template. Jinja was looking for the following tags: '%s'. The "
                                   "innermost block that needs to be closed is '%s'.",
                                   ends, opener);
            break;
        }
        if (k->type == QP_TOK_DATA) {
            if (!(n = qp_t_node(ps, QP_N_TEXT))) return false;
            qp_tstr *s = qp_arena_calloc(&ps->t->arena, 1, sizeof *s);
            if (!s) return qp_t_parse_oom(ps);
            *s = (qp_tstr){k->p, k->n, qp_t_count_cp(k->p, k->n), 1, false};
            n->val = (qp_tv){QP_V_STR, {.s = s}};
            qp_t_next(ps);
        } else if (k->type == QP_TOK_VAR_BEGIN) {
            qp_t_next(ps);
            if (!(n = qp_t_node(ps, QP_N_PRINT)) || !qp_t_parse_tuple(ps, true, NULL, false, &n->a)) return false;
            if (qp_t_cur(ps)->type != QP_TOK_VAR_END) return qp_t_unexpected(ps, "end of print statement");
            qp_t_next(ps);
        } else {
            qp_t_next(ps);
            k = qp_t_cur(ps);
            if (k->type != QP_TOK_NAME) return qp_t_unexpected(ps, "a tag name");
            for (const char *e = ends, *to; e; e = *to ? to + 1 : NULL) {
                to = e + strcspn(e, " ");
                if (k->n != (size_t)(to - e) || memcmp(k->p, e, k->n)) continue;
                ps->depth--;
                return true;
            }
            if (!parse_statement(ps, parent)) return false;
            continue;
        }
        qp_t_add_kid(parent, n);
    }
    ps->depth--;
    return true;
}

/* The rest of an opening tag, the body, and the end tag. */
static bool parse_block_body(qp_tparser *ps, qp_tnode *parent, const char *end, const char *opener)
{
    if (!expect_block_end(ps) || !parse_body(ps, parent, end, opener)) return false;
    qp_t_next(ps);
    return expect_block_end(ps);
}

/* Inside a body of its own scope unknown filters are errors at once, whatever if surrounds it. */
static bool check_unknown(qp_tparser *ps, size_t since)
{
    if (ps->n_unknown <= since) return true;
    const qp_tnode *u = ps->unknown[since];
    return qp_t_syntax(ps, u->line, "No %s named '%.*s'.", u->kind == QP_N_FILTER ? "filter" : "test", (int)u->name->n,
                       u->name->p);
}

/* ---- assignment ---- */

/* NAME, or NAME.attr (NSREF: its name, and the attribute's in c). */
static bool parse_target_name(qp_tparser *ps, qp_tnode **out)
{
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    const qp_ttoken *k = qp_t_cur(ps);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (qp_t_is_name(k, constants[i])) return qp_t_syntax(ps, k->line, "can't assign to '%s'", constants[i]);
    }
    qp_tnode *n = qp_t_node(ps, QP_N_NAME);
    if (!n || !(n->name = qp_t_intern(ps, k->p, k->n))) return false;
    qp_t_next(ps);
    *out = n;
    if (!qp_t_skip_op(ps, '.')) return true;
    k = qp_t_cur(ps);
    if (k->type != QP_TOK_NAME) return qp_t_unexpected(ps, "token 'name'");
    qp_tnode *ref = qp_t_node(ps, QP_N_NSREF), *attr = qp_t_node(ps, QP_N_ATTR);
    if (!ref || !attr || !(attr->name = qp_t_intern(ps, k->p, k->n))) return false;
    qp_t_next(ps);
    ref->name = n->name;
    ref->c = attr;
    *out = ref;
    return true;
}

static bool parse_target(qp_tparser *ps, bool with_namespace, const char *end_name, qp_tnode **out)
{
    qp_tnode *tuple = NULL, *first = NULL, *item;
    for (;;) {
        const qp_ttoken *k = qp_t_cur(ps);
        if (first && (k->type == QP_TOK_BLOCK_END || qp_t_is_op(k, '=') || (end_name && qp_t_is_name(k, end_name))))
            break;
        if (k->type != QP_TOK_NAME && !qp_t_is_op(k, '(')) return qp_t_unexpected(ps, "a name to assign to");
        if (qp_t_is_op(k, '(')) {
            qp_t_next(ps);
            if (!qp_t_enter(ps) || !parse_target(ps, with_namespace, NULL, &item)) return false;
            ps->depth--;
            if (!qp_t_expect_op(ps, ')')) return false;
        } else if (!parse_target_name(ps, &item)) {
            return false;
        }
        if (item->kind == QP_N_NSREF && !with_namespace)
            return qp_t_syntax(ps, item->line, "can't assign to an attribute here");
        if (!first)
            first = item;
        else
            qp_t_add_kid(tuple, item);
        if (!qp_t_skip_op(ps, ',')) break;
        if (tuple) continue;
        if (!(tuple = qp_t_node(ps, QP_N_TUPLE))) return false;
        qp_t_add_kid(tuple, first);
    }
    *out = tuple ? tuple : first;
    return true;
}

/* True when an expression reads a message's content: x.content, x['content'], or a name set from one. */
static bool is_content(const qp_tparser *ps, const qp_tnode *n)
{
    const qp_tnode *last = n;
    if (n->kind == QP_N_OR || n->kind == QP_N_AND) return is_content(ps, n->kids);
    if (n->kind == QP_N_CHAIN) {
        last = NULL;
        for (const qp_tnode *k = n->kids; k; k = k->next) {
            bool keeps = k->kind == QP_N_FILTER || k->kind == QP_N_SLICE;
            if (!keeps) last = k;
        }
        if (!last) return n->a && is_content(ps, n->a);
        if (last->kind == QP_N_ITEM)
            return last->a->kind == QP_N_CONST && last->a->val.kind == QP_V_STR && last->a->val.as.s->n == 7 &&
                   !memcmp(last->a->val.as.s->p, "content", 7);
        return last->kind == QP_N_ATTR && last->name->n == 7 && !memcmp(last->name->p, "content", 7);
    }
    if (n->kind != QP_N_NAME) return false;
    if (n->name->n == 7 && !memcmp(n->name->p, "content", 7)) return true;
    for (size_t i = 0; i < ps->n_content_names; i++) {
        if (ps->content_names[i] == n->name) return true;
    }
    return false;
}

static bool note_content_name(qp_tparser *ps, const qp_tnode *target, const qp_tnode *value)
{
    if (target->kind != QP_N_NAME || ps->n_content_names == 32) return true;
    if (!is_content(ps, value) || is_content(ps, target)) return true;
    if (!qp_t_grow(ps, &ps->content_names, ps->n_content_names, &ps->cap_content_names, sizeof *ps->content_names))
        return false;
    ps->content_names[ps->n_content_names++] = target->name;
    return true;
}

static bool parse_set(qp_tparser *ps, qp_tnode *parent)
{
    qp_tnode *n = qp_t_node(ps, QP_N_SET);
    if (!n || !parse_target(ps, true, NULL, &n->a)) return false;
    qp_t_add_kid(parent, n);
    if (qp_t_skip_op(ps, '=')) {
        return qp_t_parse_tuple(ps, true, NULL, false, &n->b) && note_content_name(ps, n->a, n->b) &&
               expect_block_end(ps);
    }
    size_t since = ps->n_unknown;
    n->kind = QP_N_SETBLOCK;
    return qp_t_parse_filters(ps, false, &n->b) && parse_block_body(ps, n, "endset", "set") && check_unknown(ps, since);
}

/* ---- control ---- */

static bool parse_if(qp_tparser *ps, qp_tnode *parent)
{
    size_t unknown = ps->n_unknown;
    qp_tnode *n = qp_t_node(ps, QP_N_IF);
    if (!n) return false;
    qp_t_add_kid(parent, n);
    for (;;) {
        qp_tnode *branch = qp_t_node(ps, QP_N_BRANCH);
        if (!branch || !qp_t_parse_tuple(ps, false, NULL, false, &branch->a) || !expect_block_end(ps)) return false;
        if (!parse_body(ps, branch, "elif else endif", "if")) return false;
        qp_t_add_kid(n, branch);
        if (!qp_t_skip_name(ps, "elif")) break;
    }
    if (qp_t_skip_name(ps, "else")) {
        if (!(n->a = qp_t_node(ps, QP_N_BODY)) || !expect_block_end(ps) || !parse_body(ps, n->a, "endif", "if"))
            return false;
    }
    qp_t_next(ps);
    ps->n_unknown = unknown;
    return expect_block_end(ps);
}

static bool parse_for(qp_tparser *ps, qp_tnode *parent)
{
    qp_tnode *n = qp_t_node(ps, QP_N_FOR);
    if (!n || !parse_target(ps, false, "in", &n->a)) return false;
    if (n->a->kind == QP_N_NAME && n->a->name == ps->t->names[QP_T_NAME_LOOP])
        return qp_t_syntax(ps, n->line, "can't assign to special loop variable in for-loop target");
    if (!qp_t_skip_name(ps, "in")) return qp_t_unexpected(ps, "token 'in'");
    if (!qp_t_parse_tuple(ps, false, "recursive", false, &n->b)) return false;
    if (is_content(ps, n->b)) ps->t->wants_parts = true;
    size_t since = ps->n_unknown;
    if (qp_t_skip_name(ps, "if") && !qp_t_parse_expression(ps, true, &n->c)) return false;
    n->flag = qp_t_skip_name(ps, "recursive");
    if (!expect_block_end(ps)) return false;
    qp_t_add_kid(parent, n);
    ps->loops++;
    if (!parse_body(ps, n, "endfor else", "for")) return false;
    ps->loops--;
    if (qp_t_skip_name(ps, "else")) {
        if (!(n->body2 = qp_t_node(ps, QP_N_BODY)) || !expect_block_end(ps) ||
            !parse_body(ps, n->body2, "endfor", "for"))
            return false;
    }
    qp_t_next(ps);
    return expect_block_end(ps) && check_unknown(ps, since);
}

static bool parse_flow(qp_tparser *ps, qp_tnode *parent, qp_tnodekind kind)
{
    qp_tnode *n = qp_t_node(ps, kind);
    if (!n) return false;
    if (!ps->loops) return qp_t_syntax(ps, n->line, "'%s' outside loop", kind == QP_N_BREAK ? "break" : "continue");
    qp_t_add_kid(parent, n);
    return expect_block_end(ps);
}

/* ---- macros and calls ---- */

/* "(a, b=1)" into a BODY of PARAM. */
static bool parse_signature(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *list = qp_t_node(ps, QP_N_BODY);
    bool defaults = false;
    if (!list || !qp_t_expect_op(ps, '(')) return false;
    while (!qp_t_is_op(qp_t_cur(ps), ')')) {
        if (list->n_kids && !qp_t_expect_op(ps, ',')) return false;
        const qp_ttoken *k = qp_t_cur(ps);
        qp_tnode *param = qp_t_node(ps, QP_N_PARAM);
        if (!param) return false;
        if (k->type != QP_TOK_NAME) return qp_t_unexpected(ps, "token 'name'");
        if (!(param->name = qp_t_intern(ps, k->p, k->n))) return false;
        if (list->n_kids >= 255) return qp_t_parse_limit(ps, k->line, "more than 255 parameters");
        for (const qp_tnode *p = list->kids; p; p = p->next) {
            if (p->name == param->name) return qp_t_syntax(ps, k->line, "duplicate argument '%.*s'", (int)k->n, k->p);
        }
        qp_t_next(ps);
        if (qp_t_skip_op(ps, '=')) {
            if (!qp_t_parse_expression(ps, true, &param->a)) return false;
            defaults = true;
        } else if (defaults) {
            return qp_t_syntax(ps, k->line, "non-default argument follows default argument");
        }
        qp_t_add_kid(list, param);
    }
    *out = list;
    return qp_t_expect_op(ps, ')');
}

/* The body of a macro or of a call block's caller, with its own rules for break and for unknown filters. */
static bool parse_macro_body(qp_tparser *ps, qp_tnode *macro, const char *end, const char *opener)
{
    size_t since = ps->n_unknown;
    unsigned loops = ps->loops;
    if (!qp_t_grow(ps, &ps->macros, ps->n_macros, &ps->cap_macros, sizeof *ps->macros)) return false;
    ps->macros[ps->n_macros++] = macro;
    ps->loops = 0;
    if (!parse_block_body(ps, macro, end, opener)) return false;
    ps->loops = loops;
    ps->n_macros--;
    return check_unknown(ps, since);
}

static bool parse_macro(qp_tparser *ps, qp_tnode *parent)
{
    const qp_ttoken *k = qp_t_cur(ps);
    qp_tnode *n = qp_t_node(ps, QP_N_MACRO);
    if (!n) return false;
    if (k->type != QP_TOK_NAME) return qp_t_unexpected(ps, "token 'name'");
    if (!(n->name = qp_t_intern(ps, k->p, k->n))) return false;
    qp_t_next(ps);
    qp_t_add_kid(parent, n);
    return parse_signature(ps, &n->a) && parse_macro_body(ps, n, "endmacro", "macro");
}

static bool parse_call_block(qp_tparser *ps, qp_tnode *parent)
{
    qp_tnode *n = qp_t_node(ps, QP_N_CALLBLOCK), *caller = qp_t_node(ps, QP_N_MACRO);
    if (!n || !caller) return false;
    caller->name = ps->t->names[QP_T_NAME_CALLER];
    if (qp_t_is_op(qp_t_cur(ps), '(')) {
        if (!parse_signature(ps, &caller->a)) return false;
    } else if (!(caller->a = qp_t_node(ps, QP_N_BODY))) {
        return false;
    }
    if (!qp_t_parse_expression(ps, true, &n->a)) return false;
    if (n->a->kind != QP_N_CHAIN || n->a->last->kind != QP_N_CALL) return qp_t_syntax(ps, n->line, "expected call");
    n->b = caller;
    qp_t_add_kid(parent, n);
    return parse_macro_body(ps, caller, "endcall", "call");
}

static bool parse_filter_block(qp_tparser *ps, qp_tnode *parent)
{
    size_t since = ps->n_unknown;
    qp_tnode *n = qp_t_node(ps, QP_N_FILTERBLOCK);
    if (!n || !qp_t_parse_filters(ps, true, &n->b)) return false;
    qp_t_add_kid(parent, n);
    return parse_block_body(ps, n, "endfilter", "filter") && check_unknown(ps, since);
}

static bool parse_with(qp_tparser *ps, qp_tnode *parent)
{
    size_t since = ps->n_unknown;
    qp_tnode *n = qp_t_node(ps, QP_N_WITH);
    if (!n || !(n->a = qp_t_node(ps, QP_N_BODY))) return false;
    while (qp_t_cur(ps)->type != QP_TOK_BLOCK_END) {
        qp_tnode *set = qp_t_node(ps, QP_N_SET);
        if (!set || (n->a->n_kids && !qp_t_expect_op(ps, ','))) return false;
        if (qp_t_cur(ps)->type != QP_TOK_NAME) return qp_t_unexpected(ps, "a name to assign to");
        if (!parse_target_name(ps, &set->a)) return false;
        if (set->a->kind == QP_N_NSREF) return qp_t_syntax(ps, set->line, "can't assign to an attribute here");
        if (!qp_t_expect_op(ps, '=') || !qp_t_parse_expression(ps, true, &set->b)) return false;
        qp_t_add_kid(n->a, set);
    }
    qp_t_add_kid(parent, n);
    return parse_block_body(ps, n, "endwith", "with") && check_unknown(ps, since);
}

static bool parse_named_block(qp_tparser *ps, qp_tnode *parent)
{
    qp_tnode *n = qp_t_node(ps, QP_N_BLOCK);
    const qp_ttoken *k = qp_t_cur(ps);
    size_t since = ps->n_unknown;
    unsigned loops = ps->loops;
    if (!n) return false;
    if (k->type != QP_TOK_NAME) return qp_t_unexpected(ps, "token 'name'");
    if (!(n->name = qp_t_intern(ps, k->p, k->n))) return false;
    if (ps->n_blocks == QP_T_MAX_BLOCKS) return qp_t_parse_limit(ps, k->line, "more than 1000 blocks");
    for (size_t i = 0; i < ps->n_blocks; i++) {
        if (ps->blocks[i]->name == n->name)
            return qp_t_syntax(ps, k->line, "block '%.*s' defined twice", (int)k->n, k->p);
    }
    if (!qp_t_grow(ps, &ps->blocks, ps->n_blocks, &ps->cap_blocks, sizeof *ps->blocks)) return false;
    ps->blocks[ps->n_blocks++] = n;
    qp_t_next(ps);
    qp_t_skip_name(ps, "scoped");
    if (qp_t_skip_name(ps, "required")) return qp_t_syntax(ps, k->line, "Required blocks need a template that extends");
    qp_t_add_kid(parent, n);
    if (!expect_block_end(ps)) return false;
    ps->loops = 0;
    if (!parse_body(ps, n, "endblock", "block")) return false;
    ps->loops = loops;
    qp_t_next(ps);
    if (qp_t_cur(ps)->type == QP_TOK_NAME) {
        if (qp_t_cur(ps)->n != n->name->n || memcmp(qp_t_cur(ps)->p, n->name->p, n->name->n))
            return qp_t_unexpected(ps, "the name of the block");
        qp_t_next(ps);
    }
    return expect_block_end(ps) && check_unknown(ps, since);
}

/* {% include %}, {% extends %}, {% import %}, {% from %}: parsed loosely, fail when they are reached. */
static bool parse_loader(qp_tparser *ps, qp_tnode *parent)
{
    qp_tnode *n = qp_t_node(ps, QP_N_NOLOADER);
    if (!n || !qp_t_parse_expression(ps, true, &n->a)) return false;
    while (qp_t_cur(ps)->type == QP_TOK_NAME || qp_t_is_op(qp_t_cur(ps), ',')) qp_t_next(ps);
    qp_t_add_kid(parent, n);
    return expect_block_end(ps);
}

static bool parse_print(qp_tparser *ps, qp_tnode *parent)
{
    do {
        qp_tnode *n = qp_t_node(ps, QP_N_PRINT);
        if (!n || !qp_t_parse_expression(ps, true, &n->a)) return false;
        qp_t_add_kid(parent, n);
    } while (qp_t_skip_op(ps, ','));
    return expect_block_end(ps);
}

/* Marks assistant text for training; here its body matters, which has a scope of its own (it is a call block there). */
static bool parse_generation(qp_tparser *ps, qp_tnode *parent)
{
    size_t since = ps->n_unknown;
    unsigned loops = ps->loops;
    qp_tnode *n = qp_t_node(ps, QP_N_WITH);
    if (!n || !(n->a = qp_t_node(ps, QP_N_BODY))) return false;
    qp_t_next(ps);
    qp_t_add_kid(parent, n);
    ps->loops = 0;
    if (!parse_block_body(ps, n, "endgeneration", "generation")) return false;
    ps->loops = loops;
    return check_unknown(ps, since);
}

/* Current token: the name of a tag. */
static bool parse_statement(qp_tparser *ps, qp_tnode *parent)
{
    static const struct {
        const char *name;
        bool (*parse)(qp_tparser *ps, qp_tnode *parent);
    } tags[] = {{"if", parse_if},          {"for", parse_for},           {"set", parse_set},
                {"macro", parse_macro},    {"call", parse_call_block},   {"filter", parse_filter_block},
                {"with", parse_with},      {"block", parse_named_block}, {"include", parse_loader},
                {"extends", parse_loader}, {"import", parse_loader},     {"from", parse_loader},
                {"print", parse_print}};
    const qp_ttoken *k = qp_t_cur(ps);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!qp_t_is_name(k, tags[i].name)) continue;
        qp_t_next(ps);
        return tags[i].parse(ps, parent);
    }
    if (qp_t_is_name(k, "break") || qp_t_is_name(k, "continue")) {
        qp_t_next(ps);
        return parse_flow(ps, parent, k->p[0] == 'b' ? QP_N_BREAK : QP_N_CONTINUE);
    }
    if (qp_t_is_name(k, "generation")) return parse_generation(ps, parent);
    if (qp_t_is_name(k, "autoescape"))
        return qp_t_syntax(ps, k->line, "{%% autoescape %%} is not supported in chat templates");
    return qp_t_syntax(ps, k->line, "Encountered unknown tag '%.*s'.", k->n > 60 ? 60 : (int)k->n, k->p);
}

bool qp_t_parse_template(qp_tparser *ps)
{
    qp_template *t = ps->t;
    if (!qp_t_lex(ps)) return false;
    if (!(t->body = qp_t_node(ps, QP_N_BODY)) || !parse_body(ps, t->body, NULL, NULL)) return false;
    return check_unknown(ps, 0);
}
