/* Letter case of template strings, as Python's str: utf8proc's simple mappings, a table of the characters that map to
 * several (Unicode's SpecialCasing.txt and the full foldings of CaseFolding.txt, Unicode 14), and the final sigma. */
#include "text/template_impl.h"

#include <string.h>
#include <utf8proc.h>

/* clang-format off */
static const struct {
    int32_t cp;
    char to[3][10]; /* upper, title, fold */
} special[] = {
    {0x00DF, {"\x53\x53", "\x53\x73", "\x73\x73"}},
    {0x0130, {"\xC4\xB0", "\xC4\xB0", "\x69\xCC\x87"}},
    {0x0149, {"\xCA\xBC\x4E", "\xCA\xBC\x4E", "\xCA\xBC\x6E"}},
    {0x01F0, {"\x4A\xCC\x8C", "\x4A\xCC\x8C", "\x6A\xCC\x8C"}},
    {0x0390, {"\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81", "\xCE\xB9\xCC\x88\xCC\x81"}},
    {0x03B0, {"\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81", "\xCF\x85\xCC\x88\xCC\x81"}},
    {0x0587, {"\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82", "\xD5\xA5\xD6\x82"}},
    {0x1E96, {"\x48\xCC\xB1", "\x48\xCC\xB1", "\x68\xCC\xB1"}},
    {0x1E97, {"\x54\xCC\x88", "\x54\xCC\x88", "\x74\xCC\x88"}},
    {0x1E98, {"\x57\xCC\x8A", "\x57\xCC\x8A", "\x77\xCC\x8A"}},
    {0x1E99, {"\x59\xCC\x8A", "\x59\xCC\x8A", "\x79\xCC\x8A"}},
    {0x1E9A, {"\x41\xCA\xBE", "\x41\xCA\xBE", "\x61\xCA\xBE"}},
    {0x1E9E, {"\xE1\xBA\x9E", "\xE1\xBA\x9E", "\x73\x73"}},
    {0x1F50, {"\xCE\xA5\xCC\x93", "\xCE\xA5\xCC\x93", "\xCF\x85\xCC\x93"}},
    {0x1F52, {"\xCE\xA5\xCC\x93\xCC\x80", "\xCE\xA5\xCC\x93\xCC\x80", "\xCF\x85\xCC\x93\xCC\x80"}},
    {0x1F54, {"\xCE\xA5\xCC\x93\xCC\x81", "\xCE\xA5\xCC\x93\xCC\x81", "\xCF\x85\xCC\x93\xCC\x81"}},
    {0x1F56, {"\xCE\xA5\xCC\x93\xCD\x82", "\xCE\xA5\xCC\x93\xCD\x82", "\xCF\x85\xCC\x93\xCD\x82"}},
    {0x1F80, {"\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88", "\xE1\xBC\x80\xCE\xB9"}},
    {0x1F81, {"\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89", "\xE1\xBC\x81\xCE\xB9"}},
    {0x1F82, {"\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A", "\xE1\xBC\x82\xCE\xB9"}},
    {0x1F83, {"\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B", "\xE1\xBC\x83\xCE\xB9"}},
    {0x1F84, {"\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C", "\xE1\xBC\x84\xCE\xB9"}},
    {0x1F85, {"\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D", "\xE1\xBC\x85\xCE\xB9"}},
    {0x1F86, {"\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E", "\xE1\xBC\x86\xCE\xB9"}},
    {0x1F87, {"\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F", "\xE1\xBC\x87\xCE\xB9"}},
    {0x1F88, {"\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88", "\xE1\xBC\x80\xCE\xB9"}},
    {0x1F89, {"\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89", "\xE1\xBC\x81\xCE\xB9"}},
    {0x1F8A, {"\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A", "\xE1\xBC\x82\xCE\xB9"}},
    {0x1F8B, {"\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B", "\xE1\xBC\x83\xCE\xB9"}},
    {0x1F8C, {"\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C", "\xE1\xBC\x84\xCE\xB9"}},
    {0x1F8D, {"\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D", "\xE1\xBC\x85\xCE\xB9"}},
    {0x1F8E, {"\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E", "\xE1\xBC\x86\xCE\xB9"}},
    {0x1F8F, {"\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F", "\xE1\xBC\x87\xCE\xB9"}},
    {0x1F90, {"\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98", "\xE1\xBC\xA0\xCE\xB9"}},
    {0x1F91, {"\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99", "\xE1\xBC\xA1\xCE\xB9"}},
    {0x1F92, {"\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A", "\xE1\xBC\xA2\xCE\xB9"}},
    {0x1F93, {"\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B", "\xE1\xBC\xA3\xCE\xB9"}},
    {0x1F94, {"\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C", "\xE1\xBC\xA4\xCE\xB9"}},
    {0x1F95, {"\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D", "\xE1\xBC\xA5\xCE\xB9"}},
    {0x1F96, {"\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E", "\xE1\xBC\xA6\xCE\xB9"}},
    {0x1F97, {"\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F", "\xE1\xBC\xA7\xCE\xB9"}},
    {0x1F98, {"\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98", "\xE1\xBC\xA0\xCE\xB9"}},
    {0x1F99, {"\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99", "\xE1\xBC\xA1\xCE\xB9"}},
    {0x1F9A, {"\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A", "\xE1\xBC\xA2\xCE\xB9"}},
    {0x1F9B, {"\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B", "\xE1\xBC\xA3\xCE\xB9"}},
    {0x1F9C, {"\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C", "\xE1\xBC\xA4\xCE\xB9"}},
    {0x1F9D, {"\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D", "\xE1\xBC\xA5\xCE\xB9"}},
    {0x1F9E, {"\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E", "\xE1\xBC\xA6\xCE\xB9"}},
    {0x1F9F, {"\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F", "\xE1\xBC\xA7\xCE\xB9"}},
    {0x1FA0, {"\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8", "\xE1\xBD\xA0\xCE\xB9"}},
    {0x1FA1, {"\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9", "\xE1\xBD\xA1\xCE\xB9"}},
    {0x1FA2, {"\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA", "\xE1\xBD\xA2\xCE\xB9"}},
    {0x1FA3, {"\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB", "\xE1\xBD\xA3\xCE\xB9"}},
    {0x1FA4, {"\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC", "\xE1\xBD\xA4\xCE\xB9"}},
    {0x1FA5, {"\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD", "\xE1\xBD\xA5\xCE\xB9"}},
    {0x1FA6, {"\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE", "\xE1\xBD\xA6\xCE\xB9"}},
    {0x1FA7, {"\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF", "\xE1\xBD\xA7\xCE\xB9"}},
    {0x1FA8, {"\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8", "\xE1\xBD\xA0\xCE\xB9"}},
    {0x1FA9, {"\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9", "\xE1\xBD\xA1\xCE\xB9"}},
    {0x1FAA, {"\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA", "\xE1\xBD\xA2\xCE\xB9"}},
    {0x1FAB, {"\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB", "\xE1\xBD\xA3\xCE\xB9"}},
    {0x1FAC, {"\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC", "\xE1\xBD\xA4\xCE\xB9"}},
    {0x1FAD, {"\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD", "\xE1\xBD\xA5\xCE\xB9"}},
    {0x1FAE, {"\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE", "\xE1\xBD\xA6\xCE\xB9"}},
    {0x1FAF, {"\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF", "\xE1\xBD\xA7\xCE\xB9"}},
    {0x1FB2, {"\xE1\xBE\xBA\xCE\x99", "\xE1\xBE\xBA\xCD\x85", "\xE1\xBD\xB0\xCE\xB9"}},
    {0x1FB3, {"\xCE\x91\xCE\x99", "\xE1\xBE\xBC", "\xCE\xB1\xCE\xB9"}},
    {0x1FB4, {"\xCE\x86\xCE\x99", "\xCE\x86\xCD\x85", "\xCE\xAC\xCE\xB9"}},
    {0x1FB6, {"\xCE\x91\xCD\x82", "\xCE\x91\xCD\x82", "\xCE\xB1\xCD\x82"}},
    {0x1FB7, {"\xCE\x91\xCD\x82\xCE\x99", "\xCE\x91\xCD\x82\xCD\x85", "\xCE\xB1\xCD\x82\xCE\xB9"}},
    {0x1FBC, {"\xCE\x91\xCE\x99", "\xE1\xBE\xBC", "\xCE\xB1\xCE\xB9"}},
    {0x1FC2, {"\xE1\xBF\x8A\xCE\x99", "\xE1\xBF\x8A\xCD\x85", "\xE1\xBD\xB4\xCE\xB9"}},
    {0x1FC3, {"\xCE\x97\xCE\x99", "\xE1\xBF\x8C", "\xCE\xB7\xCE\xB9"}},
    {0x1FC4, {"\xCE\x89\xCE\x99", "\xCE\x89\xCD\x85", "\xCE\xAE\xCE\xB9"}},
    {0x1FC6, {"\xCE\x97\xCD\x82", "\xCE\x97\xCD\x82", "\xCE\xB7\xCD\x82"}},
    {0x1FC7, {"\xCE\x97\xCD\x82\xCE\x99", "\xCE\x97\xCD\x82\xCD\x85", "\xCE\xB7\xCD\x82\xCE\xB9"}},
    {0x1FCC, {"\xCE\x97\xCE\x99", "\xE1\xBF\x8C", "\xCE\xB7\xCE\xB9"}},
    {0x1FD2, {"\xCE\x99\xCC\x88\xCC\x80", "\xCE\x99\xCC\x88\xCC\x80", "\xCE\xB9\xCC\x88\xCC\x80"}},
    {0x1FD3, {"\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81", "\xCE\xB9\xCC\x88\xCC\x81"}},
    {0x1FD6, {"\xCE\x99\xCD\x82", "\xCE\x99\xCD\x82", "\xCE\xB9\xCD\x82"}},
    {0x1FD7, {"\xCE\x99\xCC\x88\xCD\x82", "\xCE\x99\xCC\x88\xCD\x82", "\xCE\xB9\xCC\x88\xCD\x82"}},
    {0x1FE2, {"\xCE\xA5\xCC\x88\xCC\x80", "\xCE\xA5\xCC\x88\xCC\x80", "\xCF\x85\xCC\x88\xCC\x80"}},
    {0x1FE3, {"\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81", "\xCF\x85\xCC\x88\xCC\x81"}},
    {0x1FE4, {"\xCE\xA1\xCC\x93", "\xCE\xA1\xCC\x93", "\xCF\x81\xCC\x93"}},
    {0x1FE6, {"\xCE\xA5\xCD\x82", "\xCE\xA5\xCD\x82", "\xCF\x85\xCD\x82"}},
    {0x1FE7, {"\xCE\xA5\xCC\x88\xCD\x82", "\xCE\xA5\xCC\x88\xCD\x82", "\xCF\x85\xCC\x88\xCD\x82"}},
    {0x1FF2, {"\xE1\xBF\xBA\xCE\x99", "\xE1\xBF\xBA\xCD\x85", "\xE1\xBD\xBC\xCE\xB9"}},
    {0x1FF3, {"\xCE\xA9\xCE\x99", "\xE1\xBF\xBC", "\xCF\x89\xCE\xB9"}},
    {0x1FF4, {"\xCE\x8F\xCE\x99", "\xCE\x8F\xCD\x85", "\xCF\x8E\xCE\xB9"}},
    {0x1FF6, {"\xCE\xA9\xCD\x82", "\xCE\xA9\xCD\x82", "\xCF\x89\xCD\x82"}},
    {0x1FF7, {"\xCE\xA9\xCD\x82\xCE\x99", "\xCE\xA9\xCD\x82\xCD\x85", "\xCF\x89\xCD\x82\xCE\xB9"}},
    {0x1FFC, {"\xCE\xA9\xCE\x99", "\xE1\xBF\xBC", "\xCF\x89\xCE\xB9"}},
    {0xFB00, {"\x46\x46", "\x46\x66", "\x66\x66"}},
    {0xFB01, {"\x46\x49", "\x46\x69", "\x66\x69"}},
    {0xFB02, {"\x46\x4C", "\x46\x6C", "\x66\x6C"}},
    {0xFB03, {"\x46\x46\x49", "\x46\x66\x69", "\x66\x66\x69"}},
    {0xFB04, {"\x46\x46\x4C", "\x46\x66\x6C", "\x66\x66\x6C"}},
    {0xFB05, {"\x53\x54", "\x53\x74", "\x73\x74"}},
    {0xFB06, {"\x53\x54", "\x53\x74", "\x73\x74"}},
    {0xFB13, {"\xD5\x84\xD5\x86", "\xD5\x84\xD5\xB6", "\xD5\xB4\xD5\xB6"}},
    {0xFB14, {"\xD5\x84\xD4\xB5", "\xD5\x84\xD5\xA5", "\xD5\xB4\xD5\xA5"}},
    {0xFB15, {"\xD5\x84\xD4\xBB", "\xD5\x84\xD5\xAB", "\xD5\xB4\xD5\xAB"}},
    {0xFB16, {"\xD5\x8E\xD5\x86", "\xD5\x8E\xD5\xB6", "\xD5\xBE\xD5\xB6"}},
    {0xFB17, {"\xD5\x84\xD4\xBD", "\xD5\x84\xD5\xAD", "\xD5\xB4\xD5\xAD"}},
};
/* clang-format on */

static const char *find_special(int32_t cp, qp_tcase to)
{
    size_t lo = 0, hi = sizeof special / sizeof *special;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (special[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == sizeof special / sizeof *special || special[lo].cp != cp) return NULL;
    return special[lo].to[to == QP_CASE_UPPER ? 0 : to == QP_CASE_TITLE ? 1 : 2];
}

/* Capital letters whose fold is not their lower case: Cherokee folds up. */
static int32_t fold_cp(int32_t cp)
{
    if (cp >= 0x13A0 && cp <= 0x13F5) return cp;
    if (cp >= 0xAB70 && cp <= 0xABBF) return cp - 0xAB70 + 0x13A0;
    if (cp >= 0x13F8 && cp <= 0x13FD) return cp - 8;
    if (cp == 0xB5) return 0x3BC;
    if (cp == 0x3C2) return 0x3C3;
    if (cp == 0x17F) return 's';
    if (cp == 0x1E9B) return 0x1E61;
    return utf8proc_tolower(utf8proc_toupper(cp));
}

bool qp_t_put_case(qp_trun *r, int32_t cp, qp_tcase to)
{
    const char *s = to == QP_CASE_LOWER ? NULL : cp < 0x80 ? NULL : find_special(cp, to);
    if (s) return qp_t_putz(r, s);
    switch (to) {
    case QP_CASE_UPPER:
        return qp_t_put_cp(r, utf8proc_toupper(cp));
    case QP_CASE_TITLE:
        return qp_t_put_cp(r, utf8proc_totitle(cp));
    case QP_CASE_LOWER:
        return cp == 0x130 ? qp_t_putz(r, "i\xCC\x87") : qp_t_put_cp(r, utf8proc_tolower(cp));
    default:
        return qp_t_put_cp(r, fold_cp(cp));
    }
}

static bool is_cased(int32_t cp)
{
    return qp_t_is_upper_cp(cp) || qp_t_is_lower_cp(cp) || qp_t_is_title_cp(cp);
}

/* Characters that the rule of the final sigma looks through. */
static bool is_ignorable(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    if (cp == '\'' || cp == '.' || cp == ':' || cp == '^' || cp == '`' || cp == 0xB7 || cp == 0x2019) return true;
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK;
}

/* Whether the capital sigma at p[at] ends a word: a cased letter before, none after. */
static bool final_sigma(const char *p, size_t n, size_t at)
{
    bool before = false;
    for (size_t i = at; i > 0;) {
        int32_t cp;
        do i--;
        while (i > 0 && (p[i] & 0xC0) == 0x80);
        qp_t_next_cp(p + i, n - i, &cp);
        if (is_ignorable(cp)) continue;
        before = is_cased(cp);
        break;
    }
    for (size_t i = at + 2; before && i < n;) {
        int32_t cp;
        i += qp_t_next_cp(p + i, n - i, &cp);
        if (is_ignorable(cp)) continue;
        return !is_cased(cp);
    }
    return before;
}

bool qp_t_put_lower(qp_trun *r, const char *p, size_t n, size_t at)
{
    int32_t cp;
    qp_t_next_cp(p + at, n - at, &cp);
    if (cp != 0x3A3) return qp_t_put_case(r, cp, QP_CASE_LOWER);
    if (!qp_t_step_bytes(r, n)) return false; /* the rule looks at the rest of the string */
    return qp_t_put_cp(r, final_sigma(p, n, at) ? 0x3C2 : 0x3C3);
}

bool qp_t_case(qp_trun *r, qp_tv s, qp_tcase to, qp_tv *out)
{
    const char *p = s.as.s->p;
    size_t n = s.as.s->n, mark = r->buf.len;
    for (size_t i = 0, len; i < n; i += len) {
        int32_t cp;
        char c = p[i];
        len = qp_t_next_cp(p + i, n - i, &cp);
        if (cp < 0x80) {
            bool up = to == QP_CASE_UPPER, letter = up ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
            if (letter) c = (char)(c ^ 0x20);
            if (!qp_t_put(r, &c, 1)) return false;
        } else if (to == QP_CASE_LOWER ? !qp_t_put_lower(r, p, n, i) : !qp_t_put_case(r, cp, to)) {
            return false;
        }
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = s.as.s->markup;
    return true;
}

bool qp_t_capitalize(qp_trun *r, qp_tv s, qp_tv *out)
{
    const char *p = s.as.s->p;
    size_t n = s.as.s->n, mark = r->buf.len;
    for (size_t i = 0, len; i < n; i += len) {
        int32_t cp;
        len = qp_t_next_cp(p + i, n - i, &cp);
        if (i ? !qp_t_put_lower(r, p, n, i) : !qp_t_put_case(r, cp, QP_CASE_TITLE)) return false;
    }
    if (!qp_t_take(r, mark, out)) return false;
    out->as.s->markup = s.as.s->markup;
    return true;
}

/* ---- classes ---- */

bool qp_t_is_upper_cp(int32_t cp)
{
    return utf8proc_isupper(cp) != 0;
}

bool qp_t_is_lower_cp(int32_t cp)
{
    return utf8proc_islower(cp) != 0;
}

bool qp_t_is_title_cp(int32_t cp)
{
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_LT;
}

bool qp_t_is_alpha_cp(int32_t cp)
{
    if (cp < 0x80) return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z');
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool qp_t_is_numeric_cp(int32_t cp)
{
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool qp_t_is_decimal_cp(int32_t cp)
{
    return cp < 0x80 ? cp >= '0' && cp <= '9' : utf8proc_category(cp) == UTF8PROC_CATEGORY_ND;
}

/* Decimal digits and the superscripts, subscripts and circled digits that Unicode counts as digits. */
bool qp_t_is_digit_cp(int32_t cp)
{
    if (cp < 0x80 || qp_t_is_decimal_cp(cp)) return qp_t_is_decimal_cp(cp);
    return cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) ||
           (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468) || (cp >= 0x2474 && cp <= 0x247C) ||
           (cp >= 0x2488 && cp <= 0x2490);
}

bool qp_t_is_printable_cp(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return cp == ' ' || !(c == UTF8PROC_CATEGORY_CN || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_CO));
}
