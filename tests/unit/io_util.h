/* What the tests of files share: temporary folders, whole-file writes, and a sweep over failing allocations. */
#ifndef TESTS_UNIT_IO_UTIL_H
#define TESTS_UNIT_IO_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A new empty folder, its name in dir[64]. */
static inline void temp_dir(char *dir)
{
    strcpy(dir, "/tmp/qp_test_XXXXXX");
    assert_non_null(mkdtemp(dir));
}

/* Removes a folder, its files and its folders. */
static inline void remove_dir(const char *dir)
{
    char path[4096];
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        assert_true(snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path);
        if (!lstat(path, &s) && S_ISDIR(s.st_mode))
            remove_dir(path);
        else
            assert_int_equal(unlink(path), 0);
    }
    closedir(d);
    assert_int_equal(rmdir(dir), 0);
}

static inline unsigned dir_n_entries(const char *dir)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static inline void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    char path[4096];
    assert_true(snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Whole file in a malloc block of exactly its size (free). */
static inline unsigned char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *p = malloc(*n ? *n : 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

#define assert_status(st, want, err)                                                                                   \
    do {                                                                                                               \
        qp_status got_ = (st);                                                                                         \
        if (got_ != (want))                                                                                            \
            fail_msg("status %s, wanted %s; message: %s", qp_status_name(got_), qp_status_name(want), (err)->msg);     \
    } while (0)

#define assert_msg(err, part)                                                                                          \
    do {                                                                                                               \
        if (!strstr((err)->msg, part)) fail_msg("message \"%s\" does not hold \"%s\"", (err)->msg, part);              \
    } while (0)
#endif
