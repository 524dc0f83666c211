/* Expressions of chat templates: tokens to tree. Precedence, loosest first: if-else, or, and, not, comparisons,
 * + and -, ~, * / // %, **, unary, postfix (which subscripts, calls, filters and tests share).
 * Chains of operators and of postfixes are lists in one node, so that only brackets, unary operators and else branches
 * nest: qp_t_enter bounds those. */
#include "text/template_impl.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool parse_or(qp_tparser *ps, qp_tnode **out);
static bool parse_unary(qp_tparser *ps, bool with_filter, qp_tnode **out);

#define OP2(a, b) ((unsigned)(a) | (unsigned)(b) << 8)

static bool add_operand(qp_tparser *ps, qp_tnode *to, unsigned op, qp_tnode *value)
{
    qp_tnode *k = qp_t_node(ps, QP_N_OPERAND);
    if (!k) return false;
    k->op = (uint8_t)op;
    k->a = value;
    qp_t_add_kid(to, k);
    return true;
}

/* ---- literals ---- */

static bool const_node(qp_tparser *ps, qp_tv v, qp_tnode **out)
{
    qp_tnode *k = qp_t_node(ps, QP_N_CONST);
    if (!k) return false;
    k->val = v;
    *out = k;
    return true;
}

/* A string of the template: counted and hashed, since renders share it. */
static bool tree_str(qp_tparser *ps, const char *p, size_t n, qp_tv *out)
{
    qp_tstr *s = qp_arena_calloc(&ps->t->arena, 1, sizeof *s);
    if (!s) return qp_t_parse_oom(ps);
    *s = (qp_tstr){p, n, qp_t_count_cp(p, n), qp_t_hash_bytes(p, n), false};
    *out = (qp_tv){QP_V_STR, {.s = s}};
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes \xHH, \uHHHH, \UHHHHHHHH: n_hex digits at p[*i]. A surrogate becomes U+FFFD, since text is UTF-8 here. */
static bool hex_escape(qp_tparser *ps, const qp_ttoken *k, const char *p, size_t n, size_t *i, unsigned n_hex,
                       char *out, size_t *len)
{
    uint32_t cp = 0;
    for (unsigned d = 0; d < n_hex; d++, (*i)++) {
        int v = *i < n ? hex_value(p[*i]) : -1;
        if (v < 0) return qp_t_syntax(ps, k->line, "truncated \\x, \\u or \\U escape in a string");
        cp = cp << 4 | (uint32_t)v;
    }
    if (cp > 0x10FFFF) return qp_t_syntax(ps, k->line, "\\U%08X in a string: no such character", cp);
    if (cp >= 0xD800 && cp < 0xE000) cp = 0xFFFD;
    *len += qp_utf8_encode((int32_t)cp, out + *len);
    return true;
}

/* One escape; p[*i] is the character after the backslash. Unknown ones keep the backslash, as Python does. */
static bool escape(qp_tparser *ps, const qp_ttoken *k, const char *p, size_t n, size_t *i, char *out, size_t *len)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = p[(*i)++];
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        out[(*len)++] = to[at - from];
    } else if (c == 'x' || c == 'u' || c == 'U') {
        return hex_escape(ps, k, p, n, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, out, len);
    } else if (c >= '0' && c <= '7') {
        int32_t v = c - '0';
        for (int d = 0; d < 2 && *i < n && p[*i] >= '0' && p[*i] <= '7'; d++) v = v * 8 + (p[(*i)++] - '0');
        *len += qp_utf8_encode(v, out + *len);
    } else if (c == 'N') {
        return qp_t_syntax(ps, k->line, "\\N escapes are not supported");
    } else if (c != '\n') { /* backslash-newline joins lines */
        out[(*len)++] = '\\';
        out[(*len)++] = c;
    }
    return true;
}

/* The current string token and those that follow it directly, decoded and joined. */
static bool parse_string(qp_tparser *ps, qp_tnode **out)
{
    size_t total = 0, len = 0;
    qp_tv v;
    for (size_t at = ps->at; ps->tok[at].type == QP_TOK_STRING; at++) total += ps->tok[at].n;
    char *buf = qp_arena_alloc(&ps->t->arena, total);
    if (!buf) return qp_t_parse_oom(ps);
    for (; qp_t_cur(ps)->type == QP_TOK_STRING; qp_t_next(ps)) {
        const qp_ttoken *k = qp_t_cur(ps);
        const char *p = k->p + 1;
        for (size_t i = 0, n = k->n - 2; i < n;) {
            if (p[i] != '\\') {
                buf[len++] = p[i++];
                continue;
            }
            i++;
            if (!escape(ps, k, p, n, &i, buf, &len)) return false;
        }
    }
    return tree_str(ps, buf, len, &v) && const_node(ps, v, out);
}

static bool parse_int(qp_tparser *ps, qp_tv *v)
{
    const qp_ttoken *k = qp_t_cur(ps);
    char *digits = qp_arena_strndup(&ps->t->arena, k->p, k->n), *end;
    if (!digits) return qp_t_parse_oom(ps);
    size_t len = 0;
    for (size_t i = 0; i < k->n; i++) {
        if (digits[i] != '_') digits[len++] = digits[i];
    }
    digits[len] = 0;
    int base = 10;
    if (len > 2 && digits[0] == '0') {
        char c = (char)(digits[1] | 0x20);
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    }
    errno = 0;
    long long i = strtoll(digits + (base == 10 ? 0 : 2), &end, base);
    if (errno == ERANGE) {
        if (base != 10) return qp_t_syntax(ps, k->line, "%s: the integer does not fit 64 bits", digits);
        if (!tree_str(ps, digits, len, v)) return false;
        v->kind = QP_V_BIG;
    } else {
        *v = qp_t_int(i);
    }
    qp_t_next(ps);
    return true;
}

static bool parse_float(qp_tparser *ps, qp_tv *v)
{
    const qp_ttoken *k = qp_t_cur(ps);
    char *text = qp_arena_strndup(&ps->scratch, k->p, k->n);
    size_t len = 0;
    if (!text) return qp_t_parse_oom(ps);
    for (size_t i = 0; i < k->n; i++) {
        if (text[i] != '_') text[len++] = text[i];
    }
    text[len] = 0;
    *v = qp_t_float(strtod(text, NULL));
    qp_t_next(ps);
    return true;
}

/* ---- names, brackets ---- */

static bool parse_name(qp_tparser *ps, qp_tnode **out)
{
    const qp_ttoken *k = qp_t_cur(ps);
    if (qp_t_is_name(k, "true") || qp_t_is_name(k, "True") || qp_t_is_name(k, "false") || qp_t_is_name(k, "False")) {
        bool b = (k->p[0] | 0x20) == 't';
        qp_t_next(ps);
        return const_node(ps, qp_t_bool(b), out);
    }
    if (qp_t_is_name(k, "none") || qp_t_is_name(k, "None")) {
        qp_t_next(ps);
        return const_node(ps, qp_t_none(), out);
    }
    static const struct {
        const char *name;
        uint8_t bit;
    } special[] = {{"varargs", QP_T_USES_VARARGS}, {"kwargs", QP_T_USES_KWARGS}, {"caller", QP_T_USES_CALLER}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (!qp_t_is_name(k, special[i].name)) continue;
        for (size_t m = 0; m < ps->n_macros; m++) ps->macros[m]->op |= special[i].bit;
    }
    qp_tnode *n = qp_t_node(ps, QP_N_NAME);
    if (!n || !(n->name = qp_t_intern(ps, k->p, k->n))) return false;
    qp_t_next(ps);
    *out = n;
    return true;
}

static bool parse_list(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *list = qp_t_node(ps, QP_N_LIST), *item;
    if (!list) return false;
    qp_t_next(ps);
    while (!qp_t_is_op(qp_t_cur(ps), ']')) {
        if (list->n_kids && !qp_t_expect_op(ps, ',')) return false;
        if (qp_t_is_op(qp_t_cur(ps), ']')) break;
        if (!qp_t_parse_expression(ps, true, &item)) return false;
        qp_t_add_kid(list, item);
    }
    *out = list;
    return qp_t_expect_op(ps, ']');
}

static bool parse_dict(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *dict = qp_t_node(ps, QP_N_DICT), *item;
    if (!dict) return false;
    qp_t_next(ps);
    while (!qp_t_is_op(qp_t_cur(ps), '}')) {
        if (dict->n_kids && !qp_t_expect_op(ps, ',')) return false;
        if (qp_t_is_op(qp_t_cur(ps), '}')) break;
        if (!qp_t_parse_expression(ps, true, &item)) return false;
        qp_t_add_kid(dict, item);
        if (!qp_t_expect_op(ps, ':') || !qp_t_parse_expression(ps, true, &item)) return false;
        qp_t_add_kid(dict, item);
    }
    *out = dict;
    return qp_t_expect_op(ps, '}');
}

static bool parse_primary(qp_tparser *ps, qp_tnode **out)
{
    const qp_ttoken *k = qp_t_cur(ps);
    qp_tv v;
    bool ok;
    switch (k->type) {
    case QP_TOK_NAME:
        return parse_name(ps, out);
    case QP_TOK_STRING:
        return parse_string(ps, out);
    case QP_TOK_INT:
        return parse_int(ps, &v) && const_node(ps, v, out);
    case QP_TOK_FLOAT:
        return parse_float(ps, &v) && const_node(ps, v, out);
    default:
        break;
    }
    if (!qp_t_is_op(k, '(') && !qp_t_is_op(k, '[') && !qp_t_is_op(k, '{')) return qp_t_unexpected(ps, NULL);
    if (!qp_t_enter(ps)) return false;
    if (qp_t_is_op(k, '(')) {
        qp_t_next(ps);
        ok = qp_t_parse_tuple(ps, true, NULL, true, out) && qp_t_expect_op(ps, ')');
    } else {
        ok = qp_t_is_op(k, '[') ? parse_list(ps, out) : parse_dict(ps, out);
    }
    ps->depth--;
    return ok;
}

static bool tuple_end(const qp_tparser *ps, const char *end_name)
{
    const qp_ttoken *k = qp_t_cur(ps);
    return k->type == QP_TOK_VAR_END || k->type == QP_TOK_BLOCK_END || qp_t_is_op(k, ')') ||
           (end_name && qp_t_is_name(k, end_name));
}

bool qp_t_parse_tuple(qp_tparser *ps, bool with_cond, const char *end_name, bool explicit_parens, qp_tnode **out)
{
    qp_tnode *tuple = NULL, *first = NULL, *item;
    while (!tuple_end(ps, end_name)) {
        if (!qp_t_parse_expression(ps, with_cond, &item)) return false;
        if (!first)
            first = item;
        else
            qp_t_add_kid(tuple, item);
        if (!qp_t_is_op(qp_t_cur(ps), ',')) break;
        qp_t_next(ps);
        if (tuple) continue;
        if (!(tuple = qp_t_node(ps, QP_N_TUPLE))) return false;
        qp_t_add_kid(tuple, first);
    }
    if (!tuple && first) {
        *out = first;
        return true;
    }
    if (!tuple) {
        if (!explicit_parens) return qp_t_unexpected(ps, "an expression");
        if (!(tuple = qp_t_node(ps, QP_N_TUPLE))) return false;
    }
    *out = tuple;
    return true;
}

/* ---- postfixes ---- */

/* Makes *base a CHAIN, if it is none that may be extended, and adds op to it. */
static bool chain_add(qp_tparser *ps, qp_tnode **base, qp_tnode *op)
{
    if (!*base || (*base)->kind != QP_N_CHAIN) {
        qp_tnode *chain = qp_t_node(ps, QP_N_CHAIN);
        if (!chain) return false;
        chain->a = *base;
        *base = chain;
    }
    qp_t_add_kid(*base, op);
    return true;
}

static bool parse_arg(qp_tparser *ps, qp_tnode *call, bool *keywords, bool *star, bool *star2)
{
    qp_tnode *arg = qp_t_node(ps, QP_N_ARG);
    if (!arg) return false;
    if (qp_t_skip_op(ps, '*')) {
        if (*star || *star2) return qp_t_syntax(ps, qp_t_cur(ps)->line, "invalid syntax for function call expression");
        *star = true;
        arg->op = '*';
    } else if (qp_t_skip_op(ps, OP2('*', '*'))) {
        if (*star2) return qp_t_syntax(ps, qp_t_cur(ps)->line, "invalid syntax for function call expression");
        *star2 = true;
        arg->op = 'k';
    } else if (qp_t_cur(ps)->type == QP_TOK_NAME && qp_t_is_op(qp_t_look(ps), '=')) {
        if (*star2) return qp_t_syntax(ps, qp_t_cur(ps)->line, "invalid syntax for function call expression");
        if (!(arg->name = qp_t_intern(ps, qp_t_cur(ps)->p, qp_t_cur(ps)->n))) return false;
        *keywords = true;
        qp_t_next(ps);
        qp_t_next(ps);
    } else if (*star || *star2 || *keywords) {
        return qp_t_syntax(ps, qp_t_cur(ps)->line, "invalid syntax for function call expression");
    }
    if (!qp_t_parse_expression(ps, true, &arg->a)) return false;
    qp_t_add_kid(call, arg);
    return true;
}

/* "(" arguments ")" into the kids of node. */
static bool parse_call_args(qp_tparser *ps, qp_tnode *node)
{
    bool keywords = false, star = false, star2 = false, ok = true;
    if (!qp_t_expect_op(ps, '(') || !qp_t_enter(ps)) return false;
    while (ok && !qp_t_is_op(qp_t_cur(ps), ')')) {
        if (node->n_kids && !qp_t_expect_op(ps, ',')) return false;
        if (node->n_kids && qp_t_is_op(qp_t_cur(ps), ')')) break;
        ok = parse_arg(ps, node, &keywords, &star, &star2);
    }
    ps->depth--;
    return ok && qp_t_expect_op(ps, ')');
}

/* One index or slice inside [ ]; a slice comes back as a SLICE node. */
static bool parse_subscribed(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *from = NULL, *slice;
    if (!qp_t_is_op(qp_t_cur(ps), ':')) {
        if (!qp_t_parse_expression(ps, true, &from)) return false;
        if (!qp_t_is_op(qp_t_cur(ps), ':')) {
            *out = from;
            return true;
        }
    }
    qp_t_next(ps);
    if (!(slice = qp_t_node(ps, QP_N_SLICE))) return false;
    slice->a = from;
    const qp_ttoken *k = qp_t_cur(ps);
    if (!qp_t_is_op(k, ':') && !qp_t_is_op(k, ']') && !qp_t_is_op(k, ',')) {
        if (!qp_t_parse_expression(ps, true, &slice->b)) return false;
    }
    if (qp_t_skip_op(ps, ':')) {
        k = qp_t_cur(ps);
        if (!qp_t_is_op(k, ']') && !qp_t_is_op(k, ',') && !qp_t_parse_expression(ps, true, &slice->c)) return false;
    }
    *out = slice;
    return true;
}

static bool parse_brackets(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *first, *item, *tuple = NULL, *op;
    qp_t_next(ps);
    if (!qp_t_enter(ps) || !parse_subscribed(ps, &first)) return false;
    while (qp_t_is_op(qp_t_cur(ps), ',')) {
        qp_t_next(ps);
        if (!tuple) {
            if (!(tuple = qp_t_node(ps, QP_N_TUPLE))) return false;
            qp_t_add_kid(tuple, first);
        }
        if (!parse_subscribed(ps, &item)) return false;
        qp_t_add_kid(tuple, item);
    }
    for (qp_tnode *k = tuple ? tuple->kids : NULL; k; k = k->next) {
        if (k->kind == QP_N_SLICE) return qp_t_syntax(ps, k->line, "a slice inside a tuple index");
    }
    ps->depth--;
    if (!qp_t_expect_op(ps, ']')) return false;
    if (!tuple && first->kind == QP_N_SLICE) {
        *out = first;
        return true;
    }
    if (!(op = qp_t_node(ps, QP_N_ITEM))) return false;
    op->a = tuple ? tuple : first;
    *out = op;
    return true;
}

static bool parse_dot(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *op;
    qp_t_next(ps);
    const qp_ttoken *k = qp_t_cur(ps);
    if (k->type == QP_TOK_NAME) {
        if (!(op = qp_t_node(ps, QP_N_ATTR)) || !(op->name = qp_t_intern(ps, k->p, k->n))) return false;
        qp_t_next(ps);
    } else if (k->type == QP_TOK_INT) {
        qp_tv v;
        if (!(op = qp_t_node(ps, QP_N_ITEM)) || !parse_int(ps, &v) || !const_node(ps, v, &op->a)) return false;
    } else {
        return qp_t_syntax(ps, k->line, "expected name or number");
    }
    *out = op;
    return true;
}

static bool parse_call(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *op = qp_t_node(ps, QP_N_CALL);
    *out = op;
    return op && parse_call_args(ps, op);
}

/* Name of a filter or test, perhaps dotted, into *name (in the template's arena). */
static bool parse_dotted(qp_tparser *ps, const qp_tstr **name)
{
    char text[128];
    size_t n = 0;
    for (bool first = true;; first = false) {
        const qp_ttoken *k = qp_t_cur(ps);
        if (k->type != QP_TOK_NAME) return qp_t_unexpected(ps, "name");
        if (k->n + 2 > sizeof text - n) return qp_t_syntax(ps, k->line, "the name of a filter or test is too long");
        if (!first) text[n++] = '.';
        memcpy(text + n, k->p, k->n);
        n += k->n;
        qp_t_next(ps);
        if (!qp_t_skip_op(ps, '.')) break;
    }
    return (*name = qp_t_intern(ps, text, n)) != NULL;
}

static bool note_unknown(qp_tparser *ps, qp_tnode *op)
{
    if (op->entry) return true;
    if (!qp_t_grow(ps, &ps->unknown, ps->n_unknown, &ps->cap_unknown, sizeof *ps->unknown)) return false;
    ps->unknown[ps->n_unknown++] = op;
    return true;
}

static bool parse_filter(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *op = qp_t_node(ps, QP_N_FILTER);
    if (!op || !parse_dotted(ps, &op->name)) return false;
    op->entry = qp_t_find_filter(op->name->p, op->name->n);
    if (!note_unknown(ps, op)) return false;
    *out = op;
    return !qp_t_is_op(qp_t_cur(ps), '(') || parse_call_args(ps, op);
}

/* A test's argument may stand without parentheses: a primary with its postfixes. */
static bool parse_test(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *op = qp_t_node(ps, QP_N_TEST), *arg;
    if (!op) return false;
    qp_t_next(ps);
    op->flag = qp_t_skip_name(ps, "not");
    if (!parse_dotted(ps, &op->name)) return false;
    op->entry = qp_t_find_test(op->name->p, op->name->n);
    if (!note_unknown(ps, op)) return false;
    *out = op;
    const qp_ttoken *k = qp_t_cur(ps);
    if (qp_t_is_op(k, '(')) return parse_call_args(ps, op);
    bool starts = k->type == QP_TOK_NAME || k->type == QP_TOK_STRING || k->type == QP_TOK_INT ||
                  k->type == QP_TOK_FLOAT || qp_t_is_op(k, '[') || qp_t_is_op(k, '{');
    if (!starts || qp_t_is_name(k, "else") || qp_t_is_name(k, "or") || qp_t_is_name(k, "and")) return true;
    if (qp_t_is_name(k, "is")) return qp_t_syntax(ps, k->line, "You cannot chain multiple tests with is");
    if (!(arg = qp_t_node(ps, QP_N_ARG)) || !parse_primary(ps, &arg->a)) return false;
    for (;;) {
        qp_tnode *post;
        k = qp_t_cur(ps);
        if (qp_t_is_op(k, '.')) {
            if (!parse_dot(ps, &post)) return false;
        } else if (qp_t_is_op(k, '[')) {
            if (!parse_brackets(ps, &post)) return false;
        } else if (qp_t_is_op(k, '(')) {
            if (!parse_call(ps, &post)) return false;
        } else {
            break;
        }
        if (!chain_add(ps, &arg->a, post)) return false;
    }
    qp_t_add_kid(op, arg);
    return true;
}

/* All postfixes of *node; filters and tests only if with_filter, and then no subscripts after them. */
static bool parse_postfixes(qp_tparser *ps, bool with_filter, qp_tnode **node)
{
    bool filtered = false;
    for (;;) {
        qp_tnode *op;
        const qp_ttoken *k = qp_t_cur(ps);
        if (!filtered && qp_t_is_op(k, '.')) {
            if (!parse_dot(ps, &op)) return false;
        } else if (!filtered && qp_t_is_op(k, '[')) {
            if (!parse_brackets(ps, &op)) return false;
        } else if (qp_t_is_op(k, '(')) {
            if (!parse_call(ps, &op)) return false;
        } else if (with_filter && qp_t_is_op(k, '|')) {
            qp_t_next(ps);
            if (!parse_filter(ps, &op)) return false;
            filtered = true;
        } else if (with_filter && qp_t_is_name(k, "is")) {
            if (!parse_test(ps, &op)) return false;
            filtered = true;
        } else {
            return true;
        }
        if (!chain_add(ps, node, op)) return false;
    }
}

bool qp_t_parse_filters(qp_tparser *ps, bool inline_first, qp_tnode **out)
{
    qp_tnode *op;
    *out = NULL;
    while (inline_first || qp_t_is_op(qp_t_cur(ps), '|')) {
        if (!inline_first) qp_t_next(ps);
        inline_first = false;
        if (!parse_filter(ps, &op) || !chain_add(ps, out, op)) return false;
    }
    return true;
}

/* ---- operators ---- */

static bool parse_unary(qp_tparser *ps, bool with_filter, qp_tnode **out)
{
    const qp_ttoken *k = qp_t_cur(ps);
    if (!qp_t_is_op(k, '-') && !qp_t_is_op(k, '+')) {
        return parse_primary(ps, out) && parse_postfixes(ps, with_filter, out);
    }
    qp_tnode *n = qp_t_node(ps, qp_t_is_op(k, '-') ? QP_N_NEG : QP_N_POS);
    if (!n || !qp_t_enter(ps)) return false;
    qp_t_next(ps);
    if (!parse_unary(ps, false, &n->a)) return false;
    ps->depth--;
    *out = n;
    return parse_postfixes(ps, with_filter, out);
}

bool qp_t_parse_postfix_expr(qp_tparser *ps, qp_tnode **out)
{
    return parse_unary(ps, true, out);
}

static bool parse_pow(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *bin = NULL, *right;
    if (!parse_unary(ps, true, out)) return false;
    while (qp_t_is_op(qp_t_cur(ps), OP2('*', '*'))) {
        qp_t_next(ps);
        if (!bin) {
            if (!(bin = qp_t_node(ps, QP_N_BINARY))) return false;
            bin->a = *out;
            *out = bin;
        }
        if (!parse_unary(ps, true, &right) || !add_operand(ps, bin, 'p', right)) return false;
    }
    return true;
}

static bool parse_mul(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *bin = NULL, *right;
    if (!parse_pow(ps, out)) return false;
    for (;;) {
        const qp_ttoken *k = qp_t_cur(ps);
        unsigned op = qp_t_is_op(k, '*')             ? '*'
                      : qp_t_is_op(k, '/')           ? '/'
                      : qp_t_is_op(k, '%')           ? '%'
                      : qp_t_is_op(k, OP2('/', '/')) ? 'f'
                                                     : 0;
        if (!op) return true;
        qp_t_next(ps);
        if (!bin) {
            if (!(bin = qp_t_node(ps, QP_N_BINARY))) return false;
            bin->a = *out;
            *out = bin;
        }
        if (!parse_pow(ps, &right) || !add_operand(ps, bin, op, right)) return false;
    }
}

static bool parse_concat(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *cat = NULL, *right;
    if (!parse_mul(ps, out)) return false;
    while (qp_t_skip_op(ps, '~')) {
        if (!cat) {
            if (!(cat = qp_t_node(ps, QP_N_CONCAT))) return false;
            qp_t_add_kid(cat, *out);
            *out = cat;
        }
        if (!parse_mul(ps, &right)) return false;
        qp_t_add_kid(cat, right);
    }
    return true;
}

static bool parse_sum(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *bin = NULL, *right;
    if (!parse_concat(ps, out)) return false;
    for (;;) {
        const qp_ttoken *k = qp_t_cur(ps);
        unsigned op = qp_t_is_op(k, '+') ? '+' : qp_t_is_op(k, '-') ? '-' : 0;
        if (!op) return true;
        qp_t_next(ps);
        if (!bin) {
            if (!(bin = qp_t_node(ps, QP_N_BINARY))) return false;
            bin->a = *out;
            *out = bin;
        }
        if (!parse_concat(ps, &right) || !add_operand(ps, bin, op, right)) return false;
    }
}

/* Comparison operator at the cursor, consumed: '<', '>', 'l' (<=), 'g' (>=), '=' (==), '!' (!=), 'i' (in), 'n' (not
 * in); 0 when there is none. */
static unsigned compare_op(qp_tparser *ps)
{
    static const struct {
        unsigned tok, op;
    } ops[] = {{'<', '<'},           {'>', '>'},           {OP2('<', '='), 'l'},
               {OP2('>', '='), 'g'}, {OP2('=', '='), '='}, {OP2('!', '='), '!'}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (qp_t_skip_op(ps, ops[i].tok)) return ops[i].op;
    }
    if (qp_t_skip_name(ps, "in")) return 'i';
    if (qp_t_is_name(qp_t_cur(ps), "not") && qp_t_is_name(qp_t_look(ps), "in")) {
        qp_t_next(ps);
        qp_t_next(ps);
        return 'n';
    }
    return 0;
}

static bool parse_compare(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *cmp = NULL, *right;
    unsigned op;
    if (!parse_sum(ps, out)) return false;
    while ((op = compare_op(ps)) != 0) {
        if (!cmp) {
            if (!(cmp = qp_t_node(ps, QP_N_COMPARE))) return false;
            cmp->a = *out;
            *out = cmp;
        }
        if (!parse_sum(ps, &right) || !add_operand(ps, cmp, op, right)) return false;
    }
    return true;
}

static bool parse_not(qp_tparser *ps, qp_tnode **out)
{
    if (!qp_t_is_name(qp_t_cur(ps), "not")) return parse_compare(ps, out);
    qp_tnode *n = qp_t_node(ps, QP_N_NOT);
    if (!n || !qp_t_enter(ps)) return false;
    qp_t_next(ps);
    if (!parse_not(ps, &n->a)) return false;
    ps->depth--;
    *out = n;
    return true;
}

static bool parse_and(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *n = NULL, *right;
    if (!parse_not(ps, out)) return false;
    while (qp_t_skip_name(ps, "and")) {
        if (!n) {
            if (!(n = qp_t_node(ps, QP_N_AND))) return false;
            qp_t_add_kid(n, *out);
            *out = n;
        }
        if (!parse_not(ps, &right)) return false;
        qp_t_add_kid(n, right);
    }
    return true;
}

static bool parse_or(qp_tparser *ps, qp_tnode **out)
{
    qp_tnode *n = NULL, *right;
    if (!parse_and(ps, out)) return false;
    while (qp_t_skip_name(ps, "or")) {
        if (!n) {
            if (!(n = qp_t_node(ps, QP_N_OR))) return false;
            qp_t_add_kid(n, *out);
            *out = n;
        }
        if (!parse_and(ps, &right)) return false;
        qp_t_add_kid(n, right);
    }
    return true;
}

bool qp_t_parse_expression(qp_tparser *ps, bool with_cond, qp_tnode **out)
{
    size_t unknown = ps->n_unknown;
    if (!parse_or(ps, out)) return false;
    while (with_cond && qp_t_skip_name(ps, "if")) {
        qp_tnode *n = qp_t_node(ps, QP_N_COND);
        if (!n || !qp_t_enter(ps)) return false;
        n->b = *out;
        if (!parse_or(ps, &n->a)) return false;
        if (qp_t_skip_name(ps, "else") && !qp_t_parse_expression(ps, true, &n->c)) return false;
        ps->depth--;
        *out = n;
        ps->n_unknown = unknown; /* unknown filters inside a conditional fail when they are reached */
    }
    return true;
}
