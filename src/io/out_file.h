/* A file that is written under a temporary name beside its place and renamed when complete, so that a reader, a crash
 * or an interrupted run never sees half of it. Symbolic links are followed. What is not a regular file (a pipe, a
 * device) is not replaced but written to. */
#ifndef QP_IO_OUT_FILE_H
#define QP_IO_OUT_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct qp_out_file qp_out_file;

/* Creates the temporary file for path ("<path>.tmp-<pid>-<n>", a name that was free, in the folder of the file that a
 * link at path leads to). The file at path, if any, stays as it is until commit, which replaces it and keeps its
 * permissions. A pipe or device at path is opened instead; opening a pipe waits for its reader. Errors (QP_EIO,
 * QP_ENOMEM) name the path; a folder and a link that leads nowhere are refused. QP_ECANCELLED: a signal came while a
 * pipe or device kept waiting (write, too). */
qp_status qp_out_file_open(qp_out_file **out, const char *path, qp_err *err);

/* Appends n bytes. Small writes are gathered. QP_EIO names the path and the reason (disk full, ...). */
qp_status qp_out_file_write(qp_out_file *f, const void *data, size_t n, qp_err *err);

/* Flushes to the disk and renames to path (a pipe or device: neither). f is done afterwards and only to be closed,
 * whatever the result. */
qp_status qp_out_file_commit(qp_out_file *f, qp_err *err);

/* Frees f; without a commit the temporary file is removed and path is as before. NULL is allowed. */
void qp_out_file_close(qp_out_file *f);

/* Bytes written so far. */
uint64_t qp_out_file_n_bytes(const qp_out_file *f);

/* The whole of open, write, commit, close: n bytes become the file at path. */
qp_status qp_out_file_put(const char *path, const void *data, size_t n, qp_err *err);
#endif
