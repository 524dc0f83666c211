/* A checkpoint folder: all *.safetensors files in it, mapped, with their headers checked and merged.
 *
 * model.safetensors.index.json is not trusted and not needed: every shard's own header is read (packs hold MTP modules
 * in files that no index names). The same tensor in two shards is an error. Data stays in the mappings; nothing is
 * copied. */
#ifndef QP_IO_SAFETENSORS_H
#define QP_IO_SAFETENSORS_H

#include "base/err.h"
#include "io/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qp_dtype {
    QP_DT_BOOL,
    QP_DT_U8,
    QP_DT_I8,
    QP_DT_I16,
    QP_DT_U16,
    QP_DT_I32,
    QP_DT_U32,
    QP_DT_I64,
    QP_DT_U64,
    QP_DT_F16,
    QP_DT_BF16,
    QP_DT_F32,
    QP_DT_F64,
    QP_DT_F8_E4M3,
    QP_DT_F8_E5M2
} qp_dtype;

/* "BF16", "I16", ...: the spelling of the safetensors header. Never NULL. */
const char *qp_dtype_name(qp_dtype dt);
size_t qp_dtype_bytes(qp_dtype dt);

typedef struct qp_tensor {
    const char *name; /* owned by the checkpoint */
    qp_dtype dtype;
    uint32_t rank;
    uint64_t shape[QP_MAX_RANK]; /* slowest first */
    const void *data;            /* in the mapping; aligned to the element size (checked) */
    size_t n_elements, n_bytes;
    const char *file; /* base name of its shard */
} qp_tensor;

typedef struct qp_checkpoint qp_checkpoint;

/* Opens every *.safetensors in dir; dir may also name one such file. Names that begin with '.' are passed over. Errors
 * name the file and the thing: truncated, overlapping or out-of-range data_offsets, bytes that no tensor owns, data
 * that is not aligned to its element size, unknown dtype, shape and size that disagree, header over the limit,
 * duplicate names (with both files). Thread-safe to read. */
qp_status qp_checkpoint_open(qp_checkpoint **out, const char *dir, qp_err *err);

/* The same for one file's bytes in memory, which must outlive the checkpoint; name stands in messages and in
 * qp_tensor.file. */
qp_status qp_checkpoint_open_bytes(qp_checkpoint **out, const void *data, size_t len, const char *name, qp_err *err);
void qp_checkpoint_close(qp_checkpoint *c);

size_t qp_checkpoint_n_tensors(const qp_checkpoint *c);
const qp_tensor *qp_checkpoint_at(const qp_checkpoint *c, size_t i);           /* sorted by name */
const qp_tensor *qp_checkpoint_find(const qp_checkpoint *c, const char *name); /* NULL when absent */
size_t qp_checkpoint_file_bytes(const qp_checkpoint *c);                       /* sum of the shards' sizes */
const char *qp_checkpoint_dir(const qp_checkpoint *c);

/* "[320, 1088, 64]" in out; always terminated. Returns out. */
char *qp_tensor_shape_str(const qp_tensor *t, char *out, size_t cap);
#endif
