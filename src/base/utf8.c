/* UTF-8: see utf8.h. */
#include "base/utf8.h"

size_t qp_utf8_decode(const char *str, size_t n, int32_t *cp)
{
    const unsigned char *s = (const unsigned char *)str;
    *cp = -1;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (s[0] < 0xC2 || s[0] > 0xF4) return 1;
    size_t len = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned char lo = 0x80, hi = 0xBF; /* bounds of the second byte exclude overlong forms and surrogates */
    if (s[0] == 0xE0) lo = 0xA0;
    if (s[0] == 0xED) hi = 0x9F;
    if (s[0] == 0xF0) lo = 0x90;
    if (s[0] == 0xF4) hi = 0x8F;
    int32_t v = s[0] & (0xFF >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) return i;
        v = v << 6 | (s[i] & 0x3F);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = v;
    return len;
}

size_t qp_utf8_encode(int32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    out[0] = (char)((0xF00 >> len & 0xFF) | cp);
    return len;
}

void qp_utf8_sanitize(qp_buf *out, const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        int32_t cp;
        len = qp_utf8_decode(s + i, n - i, &cp);
        if (cp < 0)
            qp_buf_add(out, "\xEF\xBF\xBD", 3);
        else
            qp_buf_add(out, s + i, len);
    }
}

size_t qp_utf8_incomplete_tail(const char *str, size_t n)
{
    const unsigned char *s = (const unsigned char *)str;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = s[n - back];
        if ((c & 0xC0) == 0x80) continue;
        size_t want = c < 0xC2 || c > 0xF4 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        int32_t cp;
        if (want <= back) return 0;
        /* A prefix that is already ill-formed is not waited for. */
        return qp_utf8_decode(str + n - back, back, &cp) == back ? back : 0;
    }
    return 0;
}
