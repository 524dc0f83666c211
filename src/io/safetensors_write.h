/* Writing one safetensors file. The tensors' names, types and shapes are given up front, then their bytes are streamed
 * in that order, in pieces of any size; the file appears at its path only when complete. */
#ifndef QP_IO_SAFETENSORS_WRITE_H
#define QP_IO_SAFETENSORS_WRITE_H

#include "io/safetensors.h"

typedef struct qp_tensor_writer qp_tensor_writer;

/* One entry of __metadata__. */
typedef struct qp_meta_pair {
    const char *key, *value;
} qp_meta_pair;

/* Starts the file at path with n tensors, of which name, dtype, rank and shape are read (copied). meta (n_meta pairs,
 * may be none) becomes __metadata__. QP_EINVAL: a name that is empty, repeated or over the limit, "__metadata__", a
 * shape that overflows, or an order in which some tensor would start at an address that is not a multiple of its
 * element size (put larger types first). */
qp_status qp_tensor_writer_open(qp_tensor_writer **out, const char *path, const qp_tensor *tensors, size_t n,
                                const qp_meta_pair *meta, size_t n_meta, qp_err *err);

/* Appends n bytes of tensor data (little endian, row-major). QP_EINVAL when that is more than the shapes say. */
qp_status qp_tensor_writer_write(qp_tensor_writer *w, const void *data, size_t n, qp_err *err);

/* Bytes of data that are still to come. */
uint64_t qp_tensor_writer_left(const qp_tensor_writer *w);

/* Makes the file appear; QP_EINVAL when data is missing. w is only to be closed afterwards. */
qp_status qp_tensor_writer_commit(qp_tensor_writer *w, qp_err *err);

/* Frees w; without a commit nothing is left on disk. NULL is allowed. */
void qp_tensor_writer_close(qp_tensor_writer *w);

/* The whole of it for tensors whose data is in memory (data is read too, n_elements and n_bytes are not). */
qp_status qp_safetensors_write(const char *path, const qp_tensor *tensors, size_t n, const qp_meta_pair *meta,
                               size_t n_meta, qp_err *err);
#endif
