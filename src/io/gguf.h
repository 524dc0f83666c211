/* GGUF files: metadata and tensors, read in place from a mapping and checked against the file's size. What the values
 * mean is the importer's business (quant/gguf_import.h); what the blocks hold is in quant/ggml_blocks.h. */
#ifndef QP_IO_GGUF_H
#define QP_IO_GGUF_H

#include "base/err.h"
#include "io/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_gguf qp_gguf;

/* Tensor types by their number in the file; those that qp_ggml_type_find knows how to size. */
enum {
    QP_GGML_F32 = 0,
    QP_GGML_F16 = 1,
    QP_GGML_Q4_0 = 2,
    QP_GGML_Q4_1 = 3,
    QP_GGML_Q5_0 = 6,
    QP_GGML_Q5_1 = 7,
    QP_GGML_Q8_0 = 8,
    QP_GGML_Q4_K = 12,
    QP_GGML_Q5_K = 13,
    QP_GGML_Q6_K = 14,
    QP_GGML_BF16 = 30
};

typedef struct qp_ggml_type {
    uint32_t id;
    const char *name;
    uint32_t block, block_bytes; /* weights and bytes of one block; 0 for a type that has a name but is not read */
} qp_ggml_type;

/* NULL for a number that no type has. */
const qp_ggml_type *qp_ggml_type_find(uint32_t id);

typedef struct qp_gguf_tensor {
    const char *name; /* owned by the qp_gguf */
    const qp_ggml_type *type;
    uint32_t rank;               /* 1..QP_MAX_RANK */
    uint64_t shape[QP_MAX_RANK]; /* slowest first: the file's dimensions reversed; none is 0 */
    size_t n_rows, row_len;      /* row_len = shape[rank-1], a multiple of the block */
    size_t row_bytes;
    const unsigned char *data; /* n_rows * row_bytes, in the mapping, not aligned to anything */
} qp_gguf_tensor;

/* A string inside the file, not terminated. */
typedef struct qp_gguf_str {
    const char *s;
    size_t n;
} qp_gguf_str;

/* Opens path. QP_EFORMAT: counts, lengths, offsets that the file cannot hold, overlapping or misaligned tensors,
 * repeated names. QP_EUNSUPPORTED: another version, big-endian files, a tensor type that is not read (named, with the
 * remedy), one part of a split model. */
qp_status qp_gguf_open(qp_gguf **out, const char *path, qp_err *err);

/* The same for bytes in memory, which must outlive the result; name stands in messages. */
qp_status qp_gguf_open_bytes(qp_gguf **out, const void *data, size_t len, const char *name, qp_err *err);
void qp_gguf_close(qp_gguf *g);

const char *qp_gguf_name(const qp_gguf *g); /* the path, for messages */
size_t qp_gguf_n_tensors(const qp_gguf *g);
const qp_gguf_tensor *qp_gguf_tensor_at(const qp_gguf *g, size_t i);           /* in the file's order */
const qp_gguf_tensor *qp_gguf_tensor_find(const qp_gguf *g, const char *name); /* NULL when absent */

bool qp_gguf_has(const qp_gguf *g, const char *key);

/* The i-th metadata key in the order of their bytes; NULL after the last. */
const char *qp_gguf_key_at(const qp_gguf *g, size_t i);

/* Metadata getters. A missing key gives *fallback, or an error where fallback is NULL. Another type, or a value out of
 * range, is QP_EFORMAT naming the key. Integers of any width are accepted by get_u64. */
qp_status qp_gguf_get_u64(const qp_gguf *g, const char *key, uint64_t lo, uint64_t hi, const uint64_t *fallback,
                          uint64_t *out, qp_err *err);
qp_status qp_gguf_get_f32(const qp_gguf *g, const char *key, const float *fallback, float *out, qp_err *err);
qp_status qp_gguf_get_bool(const qp_gguf *g, const char *key, const bool *fallback, bool *out, qp_err *err);

/* A string of valid UTF-8. A missing key gives {NULL, 0} when optional. */
qp_status qp_gguf_get_str(const qp_gguf *g, const char *key, bool optional, qp_gguf_str *out, qp_err *err);

/* An array of strings (each valid UTF-8) as a new array of *n views: release *out with qp_free. Missing is an error. */
qp_status qp_gguf_get_strs_new(const qp_gguf *g, const char *key, qp_gguf_str **out, size_t *n, qp_err *err);

/* An array of integers that fit 32 bits, or of finite f32, copied: release *out with qp_free. It must have n elements.
 * Missing is an error. */
qp_status qp_gguf_get_i32s_new(const qp_gguf *g, const char *key, size_t n, int32_t **out, qp_err *err);
qp_status qp_gguf_get_f32s_new(const qp_gguf *g, const char *key, size_t n, float **out, qp_err *err);
#endif
