/* Tokens of a chat template: text, {{ }}, {% %}, {# #}, raw blocks, and the whitespace rules around them
 * (trim_blocks and lstrip_blocks on, `-` and `+` signs). The source is already normalized: valid UTF-8, newlines are
 * \n, the final one dropped. Facts: formats/chat_templates.md, "Whitespace". */
#include "text/template_impl.h"

#include "base/utf8.h"

#include <string.h>

enum { IN_TEXT, IN_VAR, IN_BLOCK };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool push(qp_tparser *ps, qp_ttok type, size_t from, size_t to, unsigned op)
{
    if (!qp_t_grow(ps, &ps->tok, ps->n_tok, &ps->cap_tok, sizeof *ps->tok)) return false;
    ps->tok[ps->n_tok++] = (qp_ttoken){type, ps->line, (uint16_t)op, ps->src + from, to - from};
    return true;
}

/* Moves to `to`, counting lines. */
static void advance(qp_tparser *ps, size_t to)
{
    for (; ps->pos < to; ps->pos++) {
        if (ps->src[ps->pos] == '\n') ps->line++;
    }
}

/* End of the whitespace that starts at pos. */
static size_t skip_space(const qp_tparser *ps, size_t pos)
{
    while (pos < ps->n) {
        int32_t cp;
        size_t len = qp_t_next_cp(ps->src + pos, ps->n - pos, &cp);
        if (!qp_t_is_space(cp)) break;
        pos += len;
    }
    return pos;
}

/* Start of the whitespace that ends at `to`, not before `from`. */
static size_t strip_right(const qp_tparser *ps, size_t from, size_t to)
{
    while (to > from) {
        size_t at = to - 1;
        int32_t cp;
        while (at > from && (ps->src[at] & 0xC0) == 0x80) at--;
        qp_t_next_cp(ps->src + at, to - at, &cp);
        if (!qp_t_is_space(cp)) break;
        to = at;
    }
    return to;
}

static bool at_str(const qp_tparser *ps, size_t pos, const char *s)
{
    size_t n = strlen(s);
    return ps->n - pos >= n && pos <= ps->n && !memcmp(ps->src + pos, s, n);
}

/* Emits text [pos, end) as the sign of the delimiter after it and lstrip_blocks leave it, then moves to `after`. */
static bool text_until(qp_tparser *ps, size_t end, char sign, bool lstrip, size_t after)
{
    size_t cut = end;
    if (sign == '-') {
        cut = strip_right(ps, ps->pos, end);
    } else if (sign != '+' && lstrip) {
        size_t line = end;
        while (line > ps->pos && ps->src[line - 1] != '\n') line--;
        if ((line > ps->pos || ps->line_starting) && strip_right(ps, line, end) == line) cut = line;
    }
    if (cut > ps->pos && !push(ps, QP_TOK_DATA, ps->pos, cut, 0)) return false;
    advance(ps, after);
    return true;
}

/* Position after the end delimiter `close` at pos with its sign rules, or 0 when it is not there. */
static size_t match_end(const qp_tparser *ps, size_t pos, const char *close, bool trim)
{
    if (pos >= ps->n) return 0;
    if (ps->src[pos] == '-' && at_str(ps, pos + 1, close)) return skip_space(ps, pos + 1 + strlen(close));
    if (trim && ps->src[pos] == '+' && at_str(ps, pos + 1, close)) return pos + 1 + strlen(close);
    if (!at_str(ps, pos, close)) return 0;
    pos += strlen(close);
    return trim && pos < ps->n && ps->src[pos] == '\n' ? pos + 1 : pos;
}

static char sign_at(const qp_tparser *ps, size_t pos)
{
    return pos < ps->n && (ps->src[pos] == '-' || ps->src[pos] == '+') ? ps->src[pos] : 0;
}

static void end_of_match(qp_tparser *ps, size_t to)
{
    advance(ps, to);
    ps->line_starting = to > 0 && ps->src[to - 1] == '\n';
}

static bool lex_comment(qp_tparser *ps)
{
    if (ps->pos >= ps->n) return true; /* Jinja takes "{#" at the very end for an empty comment */
    for (size_t p = ps->pos; p < ps->n; p++) {
        size_t end = match_end(ps, p, "#}", true);
        if (!end) continue;
        end_of_match(ps, end);
        return true;
    }
    return qp_t_syntax(ps, ps->line, "Missing end of comment tag");
}

/* At "{%" + sign: the position after the whole tag `word`, or 0 when it is another one. */
static size_t match_word_tag(const qp_tparser *ps, size_t pos, const char *word, bool trim)
{
    pos = skip_space(ps, pos);
    if (!at_str(ps, pos, word)) return 0;
    pos = skip_space(ps, pos + strlen(word));
    if (!trim && pos < ps->n && ps->src[pos] == '+') return 0;
    size_t end = match_end(ps, pos, "%}", trim);
    return end;
}

static bool lex_raw(qp_tparser *ps)
{
    if (ps->pos >= ps->n) return true; /* as an unclosed comment */
    for (size_t p = ps->pos; p < ps->n; p++) {
        if (!at_str(ps, p, "{%")) continue;
        char sign = sign_at(ps, p + 2);
        size_t end = match_word_tag(ps, p + 2 + (sign != 0), "endraw", true);
        if (!end) continue;
        if (!text_until(ps, p, sign, true, p)) return false;
        end_of_match(ps, end);
        return true;
    }
    return qp_t_syntax(ps, ps->line, "Missing end of raw directive");
}

static bool lex_text(qp_tparser *ps)
{
    size_t p = ps->pos;
    while (p < ps->n && !(ps->src[p] == '{' && p + 1 < ps->n && strchr("{%#", ps->src[p + 1]) && ps->src[p + 1])) p++;
    if (p >= ps->n) {
        if (ps->pos < ps->n && !push(ps, QP_TOK_DATA, ps->pos, ps->n, 0)) return false;
        advance(ps, ps->n);
        return true;
    }
    char kind = ps->src[p + 1], sign = sign_at(ps, p + 2);
    size_t after = p + 2 + (sign != 0), raw = 0;
    if (!text_until(ps, p, sign, kind != '{', after)) return false;
    ps->line_starting = false;
    if (kind == '#') return lex_comment(ps);
    if (kind == '%' && (raw = match_word_tag(ps, after, "raw", false)) > 0) {
        end_of_match(ps, raw);
        return lex_raw(ps);
    }
    ps->state = kind == '{' ? IN_VAR : IN_BLOCK;
    ps->n_stack = 0;
    return push(ps, kind == '{' ? QP_TOK_VAR_BEGIN : QP_TOK_BLOCK_BEGIN, p, after, 0);
}

/* Digits with single underscores between them; returns the end, pos when there is none. */
static size_t digits(const qp_tparser *ps, size_t pos)
{
    size_t p = pos;
    while (p < ps->n && is_digit(ps->src[p])) {
        p++;
        if (p + 1 < ps->n && ps->src[p] == '_' && is_digit(ps->src[p + 1])) p++;
    }
    return p;
}

/* End of the fraction and exponent of a float whose integer digits end at pos; pos when it is no float. */
static size_t float_tail(const qp_tparser *ps, size_t pos)
{
    size_t end = pos, p = pos;
    if (p < ps->n && ps->src[p] == '.') {
        size_t d = digits(ps, p + 1);
        if (d > p + 1) end = p = d;
    }
    if (p < ps->n && (ps->src[p] == 'e' || ps->src[p] == 'E')) {
        size_t q = p + 1;
        if (q < ps->n && (ps->src[q] == '+' || ps->src[q] == '-')) q++;
        size_t d = digits(ps, q);
        if (d > q) end = d;
    }
    return end;
}

static bool is_base_digit(char c, char base)
{
    if (base == 'b') return c == '0' || c == '1';
    if (base == 'o') return c >= '0' && c <= '7';
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool lex_number(qp_tparser *ps)
{
    size_t p = ps->pos, end;
    bool after_dot = p > 0 && ps->src[p - 1] == '.';
    size_t whole = digits(ps, p), tail = after_dot ? whole : float_tail(ps, whole);
    if (tail > whole) {
        end = tail;
    } else if (ps->src[p] == '0') {
        char base = p + 1 < ps->n ? (char)(ps->src[p + 1] | 0x20) : 0;
        end = p + 1;
        if (base == 'x' || base == 'o' || base == 'b') {
            size_t q = p + 2;
            while (q < ps->n && (is_base_digit(ps->src[q], base) ||
                                 (ps->src[q] == '_' && q + 1 < ps->n && is_base_digit(ps->src[q + 1], base))))
                q++;
            if (q > p + 2) end = q;
        }
        if (end == p + 1) {
            while (end < ps->n &&
                   (ps->src[end] == '0' || (ps->src[end] == '_' && end + 1 < ps->n && ps->src[end + 1] == '0')))
                end++;
        }
    } else {
        end = whole;
    }
    if (!push(ps, tail > whole ? QP_TOK_FLOAT : QP_TOK_INT, p, end, 0)) return false;
    advance(ps, end);
    return true;
}

static bool is_name_cp(int32_t cp)
{
    return cp == '_' || qp_t_is_alpha_cp(cp) || qp_t_is_numeric_cp(cp);
}

static bool lex_name(qp_tparser *ps)
{
    size_t p = ps->pos;
    int32_t cp;
    while (p < ps->n) {
        size_t len = qp_t_next_cp(ps->src + p, ps->n - p, &cp);
        if (!is_name_cp(cp)) break;
        p += len;
    }
    if (p - ps->pos > QP_T_MAX_NAME) return qp_t_parse_limit(ps, ps->line, "a name of more than 1024 bytes");
    qp_t_next_cp(ps->src + ps->pos, ps->n - ps->pos, &cp);
    if (cp != '_' && !qp_t_is_alpha_cp(cp)) return qp_t_syntax(ps, ps->line, "Invalid character in identifier");
    if (!push(ps, QP_TOK_NAME, ps->pos, p, 0)) return false;
    advance(ps, p);
    return true;
}

static bool lex_string(qp_tparser *ps)
{
    char quote = ps->src[ps->pos];
    size_t p = ps->pos + 1;
    while (p < ps->n && ps->src[p] != quote) p += ps->src[p] == '\\' && p + 1 < ps->n ? 2 : 1;
    if (p >= ps->n) return qp_t_syntax(ps, ps->line, "unexpected char '%c' at %zu", quote, ps->pos);
    if (!push(ps, QP_TOK_STRING, ps->pos, p + 1, 0)) return false;
    advance(ps, p + 1);
    return true;
}

static bool lex_operator(qp_tparser *ps)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    char c = ps->src[ps->pos];
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (!at_str(ps, ps->pos, two[i])) continue;
        if (!push(ps, QP_TOK_OP, ps->pos, ps->pos + 2, (unsigned)two[i][0] | (unsigned)two[i][1] << 8)) return false;
        advance(ps, ps->pos + 2);
        return true;
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        int32_t cp;
        size_t len = qp_t_next_cp(ps->src + ps->pos, ps->n - ps->pos, &cp);
        return qp_t_syntax(ps, ps->line, "unexpected char '%.*s' at %zu", (int)len, ps->src + ps->pos, ps->pos);
    }
    if (c == '(' || c == '[' || c == '{') {
        if (!qp_t_grow(ps, &ps->stack, ps->n_stack, &ps->cap_stack, 1)) return false;
        ps->stack[ps->n_stack++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
        if (!ps->n_stack) return qp_t_syntax(ps, ps->line, "unexpected '%c'", c);
        char want = ps->stack[--ps->n_stack];
        if (want != c) return qp_t_syntax(ps, ps->line, "unexpected '%c', expected '%c'", c, want);
    }
    if (!push(ps, QP_TOK_OP, ps->pos, ps->pos + 1, (unsigned char)c)) return false;
    advance(ps, ps->pos + 1);
    return true;
}

static bool lex_code(qp_tparser *ps)
{
    size_t end = 0;
    if (!ps->n_stack) end = match_end(ps, ps->pos, ps->state == IN_VAR ? "}}" : "%}", ps->state == IN_BLOCK);
    if (end) {
        if (!push(ps, ps->state == IN_VAR ? QP_TOK_VAR_END : QP_TOK_BLOCK_END, ps->pos, end, 0)) return false;
        end_of_match(ps, end);
        ps->state = IN_TEXT;
        return true;
    }
    end = skip_space(ps, ps->pos);
    if (end > ps->pos) {
        advance(ps, end);
        return true;
    }
    char c = ps->src[ps->pos];
    int32_t cp;
    if (is_digit(c)) return lex_number(ps);
    if (c == '"' || c == '\'') return lex_string(ps);
    qp_t_next_cp(ps->src + ps->pos, ps->n - ps->pos, &cp);
    if (is_name_cp(cp)) return lex_name(ps);
    return lex_operator(ps);
}

bool qp_t_lex(qp_tparser *ps)
{
    ps->line = 1;
    ps->line_starting = true;
    while (ps->pos < ps->n) {
        if (ps->state == IN_TEXT ? !lex_text(ps) : !lex_code(ps)) return false;
    }
    return push(ps, QP_TOK_EOF, ps->n, ps->n, 0);
}
