/* UTF-8: decoding one code point and replacing what is invalid. */
#ifndef QP_BASE_UTF8_H
#define QP_BASE_UTF8_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at s[0], n >= 1 bytes available. Returns its length 1..4 and sets *cp; for invalid input
 * returns the length of the maximal ill-formed subpart (Unicode 3.9, as Python's errors="replace") and sets *cp = -1.
 */
size_t qp_utf8_decode(const char *s, size_t n, int32_t *cp);

/* Writes cp (0..0x10FFFF) to out[4]; returns the length. */
size_t qp_utf8_encode(int32_t cp, char *out);

/* Appends s to out with every maximal ill-formed subpart replaced by U+FFFD. */
void qp_utf8_sanitize(qp_buf *out, const char *s, size_t n);

/* Length of the tail of s (0..3 bytes) that is the beginning of a code point that more bytes could complete. */
size_t qp_utf8_incomplete_tail(const char *s, size_t n);
#endif
