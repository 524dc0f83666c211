/* Mapped files: see map.h. */
#include "io/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

qp_status qp_map_open(qp_map *out, const char *path, qp_err *err)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && qp_path_exists(path))
        return qp_fail(err, QP_EIO, "%s: a symbolic link that leads nowhere", path);
    if (fd < 0) return qp_fail(err, QP_EIO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &s) || !S_ISREG(s.st_mode)) {
        close(fd);
        return qp_fail(err, QP_EIO, "%s: not a regular file", path);
    }
    size_t len = (size_t)s.st_size;
    void *p = NULL;
    if (len) {
        p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            int e = errno;
            close(fd);
            return qp_fail(err, QP_EIO, "%s: cannot map %zu bytes: %s", path, len, strerror(e));
        }
    }
    close(fd);
    out->data = p;
    out->len = len;
    return QP_OK;
}

void qp_map_close(qp_map *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->len);
    m->data = NULL;
    m->len = 0;
}

qp_status qp_path_join(char *out, size_t cap, const char *dir, const char *name, qp_err *err)
{
    size_t n = strlen(dir);
    const char *sep = n && dir[n - 1] == '/' ? "" : "/";
    if (n + strlen(sep) + strlen(name) + 1 > cap) return qp_fail(err, QP_ELIMIT, "path too long: %s/%s", dir, name);
    snprintf(out, cap, "%s%s%s", dir, sep, name);
    return QP_OK;
}

int qp_path_is_file(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISREG(s.st_mode);
}

int qp_path_exists(const char *path)
{
    struct stat s;
    return !lstat(path, &s) || (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
}

int qp_path_is_dir(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}
