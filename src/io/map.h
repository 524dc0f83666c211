/* A file mapped for reading. A file that another process cuts while it is mapped raises SIGBUS, as with every mmap. */
#ifndef QP_IO_MAP_H
#define QP_IO_MAP_H

#include "base/err.h"

#include <stddef.h>

typedef struct qp_map {
    const unsigned char *data; /* NULL when len is 0 */
    size_t len;
} qp_map;

/* Maps the regular file at path read-only. Fails with QP_EIO naming the path and the reason. */
qp_status qp_map_open(qp_map *out, const char *path, qp_err *err);
void qp_map_close(qp_map *m);

/* Joins a folder and a name to a path in out[cap]; QP_ELIMIT when it does not fit. */
qp_status qp_path_join(char *out, size_t cap, const char *dir, const char *name, qp_err *err);

/* True when path names an existing regular file (dir: folder). */
int qp_path_is_file(const char *path);
int qp_path_is_dir(const char *path);

/* True when something has the name path: a file, a folder, a pipe, also a link that leads nowhere, or something that
 * cannot be looked at. An optional file that exists in this sense is opened, so that what is wrong with it is said. */
int qp_path_exists(const char *path);
#endif
