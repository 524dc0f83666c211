/* Files that appear only when complete: see out_file.h. */
#include "io/out_file.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GATHER = 1 << 16, MAX_TRIES = 1000 };

struct qp_out_file {
    int fd;
    char *path, *tmp;
    bool tmp_exists;
    size_t used; /* bytes waiting in gather */
    uint64_t n_bytes;
    unsigned char gather[GATHER];
};

static qp_status create(qp_out_file *f, qp_err *err)
{
    size_t cap = strlen(f->path) + 48;
    f->tmp = qp_malloc(cap);
    if (!f->tmp) return qp_fail(err, QP_ENOMEM, "%s: no memory for writing it", f->path);
    for (int i = 0; i < MAX_TRIES; i++) {
        snprintf(f->tmp, cap, "%s.tmp-%ld-%d", f->path, (long)getpid(), i);
        f->fd = open(f->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0 || errno != EEXIST) break;
    }
    if (f->fd < 0) return qp_fail(err, QP_EIO, "%s: cannot create %s: %s", f->path, f->tmp, strerror(errno));
    f->tmp_exists = true;
    return QP_OK;
}

qp_status qp_out_file_open(qp_out_file **out, const char *path, qp_err *err)
{
    qp_out_file *f;
    QP_TRY(qp_new(&f, 1, sizeof *f, path, err));
    f->fd = -1;
    f->path = qp_strdup(path);
    qp_status st = f->path ? create(f, err) : qp_fail(err, QP_ENOMEM, "%s: no memory for writing it", path);
    if (st != QP_OK) {
        qp_out_file_close(f);
        return st;
    }
    *out = f;
    return QP_OK;
}

static qp_status write_all(qp_out_file *f, const unsigned char *p, size_t n, qp_err *err)
{
    while (n) {
        ssize_t got = write(f->fd, p, qp_min_size(n, (size_t)1 << 30));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return qp_fail(err, QP_EIO, "%s: cannot write after %llu bytes: %s", f->path,
                           (unsigned long long)(f->n_bytes - f->used), got ? strerror(errno) : "nothing was taken");
        p += got;
        n -= (size_t)got;
    }
    return QP_OK;
}

static qp_status flush(qp_out_file *f, qp_err *err)
{
    QP_TRY(write_all(f, f->gather, f->used, err));
    f->used = 0;
    return QP_OK;
}

qp_status qp_out_file_write(qp_out_file *f, const void *data, size_t n, qp_err *err)
{
    if (n > GATHER - f->used) QP_TRY(flush(f, err));
    if (n >= GATHER) {
        QP_TRY(write_all(f, data, n, err));
    } else if (n) {
        memcpy(f->gather + f->used, data, n);
        f->used += n;
    }
    f->n_bytes += n;
    return QP_OK;
}

qp_status qp_out_file_commit(qp_out_file *f, qp_err *err)
{
    QP_TRY(flush(f, err));
    int fd = f->fd, failed = fsync(fd) && errno != EINVAL && errno != EROFS; /* EINVAL: a file system without it */
    int e = errno;
    f->fd = -1;
    if (close(fd) && !failed) {
        failed = 1;
        e = errno;
    }
    if (failed) return qp_fail(err, QP_EIO, "%s: cannot finish writing %s: %s", f->path, f->tmp, strerror(e));
    if (rename(f->tmp, f->path))
        return qp_fail(err, QP_EIO, "%s: cannot rename %s to it: %s", f->path, f->tmp, strerror(errno));
    f->tmp_exists = false;
    return QP_OK;
}

void qp_out_file_close(qp_out_file *f)
{
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    if (f->tmp_exists) unlink(f->tmp);
    qp_free(f->tmp);
    qp_free(f->path);
    qp_free(f);
}

uint64_t qp_out_file_n_bytes(const qp_out_file *f)
{
    return f->n_bytes;
}

qp_status qp_out_file_put(const char *path, const void *data, size_t n, qp_err *err)
{
    qp_out_file *f;
    QP_TRY(qp_out_file_open(&f, path, err));
    qp_status st = qp_out_file_write(f, data, n, err);
    if (st == QP_OK) st = qp_out_file_commit(f, err);
    qp_out_file_close(f);
    return st;
}
