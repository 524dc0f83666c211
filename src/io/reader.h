/* A cursor over untrusted bytes. Every read checks; after the first failed read `failed` stays set and all further
 * reads give zeros, so a parser may check after a group of reads. No other code advances a pointer into a file. */
#ifndef QP_IO_READER_H
#define QP_IO_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct qp_reader {
    const unsigned char *data; /* borrowed */
    size_t len, pos;
    bool failed;
} qp_reader;

static inline void qp_reader_init(qp_reader *r, const void *data, size_t len)
{
    *r = (qp_reader){(const unsigned char *)data, len, 0, false};
}

static inline size_t qp_reader_left(const qp_reader *r)
{
    return r->failed ? 0 : r->len - r->pos;
}

/* Pointer to the next n bytes, which are consumed; NULL when fewer are left. */
static inline const void *qp_reader_bytes(qp_reader *r, size_t n)
{
    if (r->failed || n > r->len - r->pos) {
        r->failed = true;
        return NULL;
    }
    const void *p = r->data + r->pos;
    r->pos += n;
    return p;
}

static inline uint64_t qp_reader_uint_le(qp_reader *r, size_t n_bytes)
{
    const unsigned char *p = qp_reader_bytes(r, n_bytes);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n_bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static inline uint8_t qp_reader_u8(qp_reader *r)
{
    return (uint8_t)qp_reader_uint_le(r, 1);
}

static inline uint16_t qp_reader_u16(qp_reader *r)
{
    return (uint16_t)qp_reader_uint_le(r, 2);
}

static inline uint32_t qp_reader_u32(qp_reader *r)
{
    return (uint32_t)qp_reader_uint_le(r, 4);
}

static inline uint64_t qp_reader_u64(qp_reader *r)
{
    return qp_reader_uint_le(r, 8);
}
#endif
