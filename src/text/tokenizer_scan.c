/* Hand-written scanners for the split patterns of the model families: each finds the end of the piece that starts at a
 * position exactly as the ordered, greedy, backtracking alternatives of its regular expression do. A scanner is chosen
 * by the exact text of the pattern; anything else goes through PCRE2 (tokenizer_pattern.c).
 *
 * Every alternative list here ends in `\s+(?!\S)|\s+`, so a run of white space gives up its last code point to what
 * follows, unless it has only one. */
#include "text/tokenizer_int.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { L = QP_UNI_L, M = QP_UNI_M, N = QP_UNI_N, SPACE = QP_UNI_SPACE };

/* End of the run of code points with any (none) of the bits in mask. */
INLINE size_t run_of(const char *s, size_t i, size_t n, uint8_t mask)
{
    size_t len;
    for (; i < n; i += len)
        if (!(qp_uni_class_at(s + i, &len) & mask)) break;
    return i;
}

INLINE size_t run_without(const char *s, size_t i, size_t n, uint8_t mask)
{
    size_t len;
    for (; i < n; i += len)
        if (qp_uni_class_at(s + i, &len) & mask) break;
    return i;
}

INLINE size_t run_newlines(const char *s, size_t i, size_t n, bool slash)
{
    while (i < n && (s[i] == '\r' || s[i] == '\n' || (slash && s[i] == '/'))) i++;
    return i;
}

/* `\s*[\r\n]+` (if newlines) `|\s+(?!\S)|\s+` at white space. */
INLINE size_t white(const char *s, size_t i, size_t n, bool newlines)
{
    size_t end = i, last = i, after_newline = 0, len;
    while (end < n && qp_uni_class_at(s + end, &len) & SPACE) {
        last = end;
        if (s[end] == '\r' || s[end] == '\n') after_newline = end + 1;
        end += len;
    }
    if (newlines && after_newline) return after_newline;
    return end < n && last > i ? last : end;
}

/* Length of 's 't 're 've 'm 'll 'd at s[i], which is a quote; 0 when there is none. fold: (?i), long s included. */
INLINE size_t contraction(const char *s, size_t i, size_t n, bool fold)
{
    if (n - i < 2) return 0;
    char a = s[i + 1], b = n - i > 2 ? s[i + 2] : 0;
    if (fold) {
        if (a == '\xC5' && b == '\xBF') return 3; /* U+017F folds to s */
        if (a >= 'A' && a <= 'Z') a = (char)(a + 32);
        if (b >= 'A' && b <= 'Z') b = (char)(b + 32);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
}

INLINE size_t up_to_digits(const char *s, size_t i, size_t n, unsigned most)
{
    size_t len;
    for (unsigned k = 0; k < most && i < n; k++, i += len)
        if (!(qp_uni_class_at(s + i, &len) & N)) break;
    return i;
}

size_t qp_tok_scan_gpt2(const char *s, size_t i, size_t n)
{
    size_t len, k;
    uint8_t c = qp_uni_class_at(s + i, &len);
    if (c & L) return run_of(s, i + len, n, L);
    if (s[i] == '\'' && (k = contraction(s, i, n, false))) return i + k;
    size_t j = i;
    if (s[i] == ' ' && i + 1 < n) { /* the optional space of ` ?X+` */
        j = i + 1;
        c = qp_uni_class_at(s + j, &len);
    }
    if (c & L) return run_of(s, j + len, n, L);
    if (c & N) return run_of(s, j + len, n, N);
    if (!(c & SPACE)) return run_without(s, j + len, n, SPACE | L | N);
    return white(s, i, n, false);
}

/* Pieces of punctuation and white space that the llama3 line of patterns shares. letters: what else ends a run. */
INLINE size_t punctuation_or_white(const char *s, size_t i, size_t n, uint8_t letters, bool slash)
{
    size_t j = i + (s[i] == ' '), end = run_without(s, j, n, SPACE | N | letters);
    if (end > j) return run_newlines(s, end, n, slash);
    return white(s, i, n, true);
}

/* llama3, qwen2, qwen35: they differ in how many digits a piece takes and in whether marks count as letters. */
INLINE size_t llama3_like(const char *s, size_t i, size_t n, uint8_t letters, unsigned digits)
{
    size_t len, next, k;
    uint8_t c = qp_uni_class_at(s + i, &len);
    if (c & letters) return run_of(s, i + len, n, letters);
    if (s[i] == '\'' && (k = contraction(s, i, n, true))) return i + k;
    if (c & N) return up_to_digits(s, i, n, digits);
    if (s[i] != '\r' && s[i] != '\n' && i + len < n && qp_uni_class_at(s + i + len, &next) & letters)
        return run_of(s, i + len + next, n, letters);
    return punctuation_or_white(s, i, n, letters, false);
}

static size_t scan_llama3(const char *s, size_t i, size_t n)
{
    return llama3_like(s, i, n, L, 3);
}

static size_t scan_qwen2(const char *s, size_t i, size_t n)
{
    return llama3_like(s, i, n, L, 1);
}

static size_t scan_qwen35(const char *s, size_t i, size_t n)
{
    return llama3_like(s, i, n, L | M, 1);
}

/* Upper: Lu Lt Lm Lo M. Lower: Ll Lm Lo M. Most scripts are both. */
INLINE bool is_upper(uint8_t c)
{
    return c & M || (c & L && !(c & QP_UNI_LOWER));
}

INLINE bool is_lower(uint8_t c)
{
    return c & M || (c & L && !(c & QP_UNI_UPPER));
}

/* `upper*lower+` from p: the run of upper, then the run of lower; without one, the run of upper is given back up to
 * its last code point that is also lower. Returns the end, or 0; *upper_end gets the end of the run of upper. */
INLINE size_t cased(const char *s, size_t p, size_t n, size_t *upper_end)
{
    size_t i = p, len, both = 0;
    for (; i < n; i += len) {
        uint8_t c = qp_uni_class_at(s + i, &len);
        if (!is_upper(c)) break;
        if (is_lower(c)) both = i + len;
    }
    *upper_end = i;
    size_t end = i;
    for (; end < n; end += len)
        if (!is_lower(qp_uni_class_at(s + end, &len))) break;
    return end > i ? end : both;
}

/* The two word alternatives of tekken and o200k with their optional leading code point; 0 when neither matches. */
INLINE size_t cased_word(const char *s, size_t i, size_t n)
{
    size_t len, upper_lead = 0, upper_bare = 0, end;
    uint8_t c = qp_uni_class_at(s + i, &len);
    bool lead = !(c & (L | N)) && s[i] != '\r' && s[i] != '\n', bare = c & (L | M);
    if (lead && (end = cased(s, i + len, n, &upper_lead))) return end;
    if (bare && (end = cased(s, i, n, &upper_bare))) return end;
    if (lead && upper_lead > i + len) return upper_lead;
    return bare && upper_bare > i ? upper_bare : 0;
}

static size_t scan_tekken(const char *s, size_t i, size_t n)
{
    size_t len, end = cased_word(s, i, n);
    if (end) return end;
    if (qp_uni_class_at(s + i, &len) & N) return i + len;
    return punctuation_or_white(s, i, n, L, true);
}

static size_t scan_o200k(const char *s, size_t i, size_t n)
{
    size_t len, end = cased_word(s, i, n);
    if (end) return end < n && s[end] == '\'' ? end + contraction(s, end, n, true) : end;
    if (qp_uni_class_at(s + i, &len) & N) return up_to_digits(s, i, n, 3);
    return punctuation_or_white(s, i, n, L, true);
}

size_t qp_tok_scan_digit(const char *s, size_t i, size_t n)
{
    size_t len;
    if (qp_uni_class_at(s + i, &len) & N) return i + len;
    return run_without(s, i + len, n, N);
}

size_t qp_tok_scan_digit_runs(const char *s, size_t i, size_t n)
{
    size_t len;
    if (qp_uni_class_at(s + i, &len) & N) return run_of(s, i + len, n, N);
    return run_without(s, i + len, n, N);
}

/* \p{N}{1,3} */
static size_t scan_three_digits(const char *s, size_t i, size_t n)
{
    size_t len;
    if (qp_uni_class_at(s + i, &len) & N) return up_to_digits(s, i, n, 3);
    return run_without(s, i + len, n, N);
}

INLINE bool is_han_or_kana(int32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

/* The second pattern of DeepSeek. */
static size_t scan_han_kana(const char *s, size_t i, size_t n)
{
    size_t len;
    bool in = is_han_or_kana(qp_uni_decode(s + i, &len));
    for (i += len; i < n; i += len) {
        if ((unsigned char)s[i] < 0xE3) { /* both ranges start with E3..E9 */
            if (in) break;
            len = qp_uni_len((unsigned char)s[i]);
            continue;
        }
        if (is_han_or_kana(qp_uni_decode(s + i, &len)) != in) break;
    }
    return i;
}

static bool ascii_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* The third pattern of DeepSeek: its end, or i when no alternative matches here (digits, controls on their own). */
INLINE size_t deepseek_match(const char *s, size_t i, size_t n)
{
    enum { PS = QP_UNI_P | QP_UNI_S };
    size_t len, next;
    uint8_t c = qp_uni_class_at(s + i, &len);
    if (c & (L | M)) return run_of(s, i + len, n, L | M);
    if (c & PS && (unsigned char)s[i] < 0x80 && i + 1 < n && ascii_letter(s[i + 1])) {
        for (i += 2; i < n && ascii_letter(s[i]); i++) {
        }
        return i;
    }
    if (!(c & PS) && s[i] != '\r' && s[i] != '\n' && i + len < n && qp_uni_class_at(s + i + len, &next) & (L | M))
        return run_of(s, i + len + next, n, L | M);
    size_t j = i + (s[i] == ' '), end = run_of(s, j, n, PS);
    if (end > j) return run_newlines(s, end, n, false);
    return c & SPACE ? white(s, i, n, true) : i;
}

static size_t scan_deepseek(const char *s, size_t i, size_t n)
{
    size_t end = deepseek_match(s, i, n), len;
    if (end > i) return end;
    do { /* a gap: up to where something matches again */
        qp_uni_class_at(s + i, &len);
        i += len;
    } while (i < n && deepseek_match(s, i, n) == i);
    return i;
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WHITE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASED_A "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
#define CASED_B "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"

static const struct {
    const char *regex;
    qp_tok_scan scan;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", qp_tok_scan_gpt2},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE, scan_llama3},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE, scan_qwen2},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WHITE,
     scan_qwen35},
    {CASED_A "|" CASED_B "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITE, scan_tekken},
    {CASED_A CONTRACTIONS "?|" CASED_B CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITE, scan_o200k},
    {"\\p{N}{1,3}", scan_three_digits},
    {"\\p{N}", qp_tok_scan_digit},
    {"\\p{N}+", qp_tok_scan_digit_runs},
    {"[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+", scan_han_kana},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\\r\\n]*|" WHITE,
     scan_deepseek},
};

/* Compares with CR and LF themselves standing for \r and \n: published files have both spellings. */
static bool same_regex(const char *want, const char *got, size_t len)
{
    size_t i = 0;
    for (; *want; want++) {
        if (i == len) return false;
        if (*want == '\\' && ((want[1] == 'r' && got[i] == '\r') || (want[1] == 'n' && got[i] == '\n')))
            want++;
        else if (*want != got[i])
            return false;
        i++;
    }
    return i == len;
}

qp_tok_scan qp_tok_scan_of(const char *regex, size_t len)
{
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (same_regex(known[k].regex, regex, len)) return known[k].scan;
    return NULL;
}
