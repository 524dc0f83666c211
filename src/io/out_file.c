/* Files that appear only when complete: see out_file.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "io/out_file.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GATHER = 1 << 16, MAX_TRIES = 1000 };

struct qp_out_file {
    int fd;
    char *path;         /* as given, for messages */
    char *target, *tmp; /* with links followed, and its temporary; NULL for a pipe or device */
    bool tmp_exists;
    size_t used; /* bytes waiting in gather */
    uint64_t n_bytes;
    unsigned char gather[GATHER];
};

static qp_status create(qp_out_file *f, qp_err *err)
{
    size_t cap = strlen(f->target) + 48;
    f->tmp = qp_malloc(cap);
    if (!f->tmp) return qp_fail(err, QP_ENOMEM, "%s: no memory for writing it", f->path);
    for (int i = 0; i < MAX_TRIES; i++) {
        snprintf(f->tmp, cap, "%s.tmp-%ld-%d", f->target, (long)getpid(), i);
        f->fd = open(f->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0 || errno != EEXIST) break;
    }
    if (f->fd < 0) return qp_fail(err, QP_EIO, "%s: cannot create %s: %s", f->path, f->tmp, strerror(errno));
    f->tmp_exists = true;
    return QP_OK;
}

static qp_status open_in_place(qp_out_file *f, qp_err *err)
{
    f->fd = open(f->path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (f->fd >= 0) return QP_OK;
    return qp_fail(err, errno == EINTR ? QP_ECANCELLED : QP_EIO, "%s: %s", f->path, strerror(errno));
}

/* What path leads to decides: a new file, a replaced one, or one that is written in place. */
static qp_status open_target(qp_out_file *f, qp_err *err)
{
    char target[PATH_MAX];
    struct stat s, link;
    bool exists = !stat(f->path, &s);
    if (!exists && errno != ENOENT) return qp_fail(err, QP_EIO, "%s: %s", f->path, strerror(errno));
    if (!exists && !lstat(f->path, &link))
        return qp_fail(err, QP_EIO, "%s: a symbolic link that leads nowhere, wanted a file or a free name", f->path);
    if (exists && S_ISDIR(s.st_mode)) return qp_fail(err, QP_EIO, "%s: a folder, wanted a file", f->path);
    if (exists && !S_ISREG(s.st_mode)) return open_in_place(f, err);
    if (exists && !realpath(f->path, target)) return qp_fail(err, QP_EIO, "%s: %s", f->path, strerror(errno));
    f->target = qp_strdup(exists ? target : f->path);
    if (!f->target) return qp_fail(err, QP_ENOMEM, "%s: no memory for writing it", f->path);
    QP_TRY(create(f, err));
    if (exists && fchmod(f->fd, s.st_mode & 0777))
        return qp_fail(err, QP_EIO, "%s: cannot keep its permissions: %s", f->path, strerror(errno));
    return QP_OK;
}

qp_status qp_out_file_open(qp_out_file **out, const char *path, qp_err *err)
{
    qp_out_file *f;
    QP_TRY(qp_new(&f, 1, sizeof *f, path, err));
    f->fd = -1;
    f->path = qp_strdup(path);
    qp_status st = f->path ? open_target(f, err) : qp_fail(err, QP_ENOMEM, "%s: no memory for writing it", path);
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
        if (got < 0 && errno == EINTR) {
            /* A file's disk answers; a pipe may never be read. */
            if (!f->target) return qp_fail(err, QP_ECANCELLED, "%s: interrupted", f->path);
            continue;
        }
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
    int fd = f->fd,
        failed = f->target && fsync(fd) && errno != EINVAL && errno != EROFS; /* EINVAL: a file system without it */
    int e = errno;
    f->fd = -1;
    if (close(fd) && !failed) {
        failed = 1;
        e = errno;
    }
    if (failed) return qp_fail(err, QP_EIO, "%s: cannot finish writing it: %s", f->path, strerror(e));
    if (!f->target) return QP_OK;
    if (rename(f->tmp, f->target))
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
    qp_free(f->target);
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
