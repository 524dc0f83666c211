/* Unicode for the tokenizer: classes of code points (Unicode 16 tables of our own), normalization forms (data of
 * utf8proc), case. Text is valid UTF-8 in every function that takes text: the tokenizer replaces invalid bytes first.
 */
#ifndef QP_TEXT_UNICODE_H
#define QP_TEXT_UNICODE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a code point's class. Lm and Lo have QP_UNI_L alone; Lt counts as upper. */
enum {
    QP_UNI_L = 1,      /* letter */
    QP_UNI_M = 2,      /* mark */
    QP_UNI_N = 4,      /* number: Nd, Nl, No */
    QP_UNI_SPACE = 8,  /* White_Space */
    QP_UNI_UPPER = 16, /* Lu, Lt */
    QP_UNI_LOWER = 32, /* Ll */
    QP_UNI_P = 64,     /* punctuation */
    QP_UNI_S = 128     /* symbol */
};

typedef enum qp_uni_form { QP_UNI_NFC, QP_UNI_NFD, QP_UNI_NFKC, QP_UNI_NFKD } qp_uni_form;

/* The two-stage table behind qp_uni_class. Row 0 of the blocks is ASCII. */
extern const uint8_t qp_uni_class_index[8704];
extern const uint8_t qp_uni_class_block[253][128];

/* Class of cp, 0..0x10FFFF; 0 for what has none of the bits. */
static inline uint8_t qp_uni_class(int32_t cp)
{
    return qp_uni_class_block[qp_uni_class_index[cp >> 7]][cp & 127];
}

/* True for White_Space; for what \w matches (letters, marks, decimal and letter numbers, connectors, joiners);
 * for general category Mn; for C* but unassigned (tab, CR and LF are in C*). */
bool qp_uni_is_space(int32_t cp);
bool qp_uni_is_word(int32_t cp);
bool qp_uni_is_mn(int32_t cp);
bool qp_uni_is_other(int32_t cp);

/* Lower case of cp by the full mapping: up to 2 code points to out; returns how many. No context (no final sigma). */
size_t qp_uni_lower(int32_t cp, int32_t out[2]);

/* Length in bytes of the code point that begins with this byte (valid UTF-8). */
static inline size_t qp_uni_len(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Decodes the code point at s, which is valid UTF-8; *len gets its length in bytes. */
static inline int32_t qp_uni_decode(const char *str, size_t *len)
{
    const unsigned char *s = (const unsigned char *)str;
    if (s[0] < 0x80) {
        *len = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *len = 2;
        return (s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    }
    if (s[0] < 0xF0) {
        *len = 3;
        return (s[0] & 0x0F) << 12 | (s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    }
    *len = 4;
    return (s[0] & 0x07) << 18 | (s[1] & 0x3F) << 12 | (s[2] & 0x3F) << 6 | (s[3] & 0x3F);
}

/* Class of the code point at s (valid UTF-8); *len gets its length in bytes. */
static inline uint8_t qp_uni_class_at(const char *s, size_t *len)
{
    if ((unsigned char)s[0] < 0x80) {
        *len = 1;
        return qp_uni_class_block[0][(unsigned char)s[0]];
    }
    return qp_uni_class(qp_uni_decode(s, len));
}

/* Length of the longest valid UTF-8 prefix of s: n when all of it is valid. */
size_t qp_uni_valid_prefix(const char *s, size_t n);

/* Appends the normalization form of s to out. Linear in n but for the sorting of long runs of marks (n log n).
 * Fails with QP_ENOMEM only. */
qp_status qp_uni_normalize(qp_uni_form form, const char *s, size_t n, qp_buf *out, qp_err *err);

/* True when s is in NFC for sure (quick check; false means "perhaps not"). */
bool qp_uni_is_nfc_quick(const char *s, size_t n);
#endif
