/* Checkpoint folders: see safetensors.h.
 *
 * A file is a u64 header length, a JSON object {name: {dtype, shape, data_offsets}}, and the data, which the tensors
 * must cover without holes or overlaps. Headers are read as a token stream: a hundred thousand entries cost no tree.
 * Tensors of all files go into one array that is sorted by name once; duplicates are neighbours then. */
#include "io/safetensors.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "io/json_stream.h"
#include "io/map.h"
#include "io/reader.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_CAP = 4096 };

struct qp_checkpoint {
    char *dir;
    qp_map *maps; /* one a file that was mapped */
    size_t n_maps;
    qp_tensor *tensors; /* sorted by name once opened */
    size_t n, cap;
    size_t file_bytes;
    qp_arena arena; /* names of tensors and files */
};

typedef struct {
    size_t begin, end, index;
} extent;

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [QP_DT_BOOL] = {"BOOL", 1}, [QP_DT_U8] = {"U8", 1},           [QP_DT_I8] = {"I8", 1},
    [QP_DT_I16] = {"I16", 2},   [QP_DT_U16] = {"U16", 2},         [QP_DT_I32] = {"I32", 4},
    [QP_DT_U32] = {"U32", 4},   [QP_DT_I64] = {"I64", 8},         [QP_DT_U64] = {"U64", 8},
    [QP_DT_F16] = {"F16", 2},   [QP_DT_BF16] = {"BF16", 2},       [QP_DT_F32] = {"F32", 4},
    [QP_DT_F64] = {"F64", 8},   [QP_DT_F8_E4M3] = {"F8_E4M3", 1}, [QP_DT_F8_E5M2] = {"F8_E5M2", 1},
};

const char *qp_dtype_name(qp_dtype dt)
{
    return (unsigned)dt < sizeof dtypes / sizeof *dtypes ? dtypes[dt].name : "unknown";
}

size_t qp_dtype_bytes(qp_dtype dt)
{
    return (unsigned)dt < sizeof dtypes / sizeof *dtypes ? dtypes[dt].bytes : 0;
}

char *qp_tensor_shape_str(const qp_tensor *t, char *out, size_t cap)
{
    size_t at = 0;
    if (!cap) return out;
    for (uint32_t i = 0; i <= t->rank && at < cap; i++) {
        int n = i < t->rank ? snprintf(out + at, cap - at, "%s%llu", i ? ", " : "[", (unsigned long long)t->shape[i])
                            : snprintf(out + at, cap - at, t->rank ? "]" : "[]");
        if (n < 0) break;
        at += (size_t)n;
    }
    return out;
}

static qp_status no_memory(const char *file, qp_err *err)
{
    return qp_fail(err, QP_ENOMEM, "%s: no memory for its tensor list", file);
}

static qp_status push_tensor(qp_checkpoint *c, const qp_tensor *t, qp_err *err)
{
    if (c->n == c->cap) {
        if (c->n >= QP_MAX_TENSORS)
            return qp_fail(err, QP_ELIMIT, "%s: more than %zu tensors in the checkpoint", t->file, QP_MAX_TENSORS);
        size_t cap = c->cap ? c->cap * 2 : 64;
        qp_tensor *p = qp_realloc(c->tensors, c->n * sizeof *p, cap * sizeof *p);
        if (!p) return no_memory(t->file, err);
        c->tensors = p;
        c->cap = cap;
    }
    c->tensors[c->n++] = *t;
    return QP_OK;
}

static qp_status read_u64(qp_json_stream *s, const qp_tensor *t, const char *what, uint64_t *out, qp_err *err)
{
    QP_TRY(qp_json_stream_expect(s, QP_JSON_NUM, err));
    if (!qp_json_stream_as_u64(s, out))
        return qp_fail(err, QP_EFORMAT, "%s: %s: %s holds %.*s, must be an integer in 0..2^64-1", t->file, t->name,
                       what, (int)qp_min_size(s->len, 40), s->text);
    return QP_OK;
}

static qp_status read_shape(qp_json_stream *s, qp_tensor *t, qp_err *err)
{
    QP_TRY(qp_json_stream_expect(s, QP_JSON_ARRAY, err));
    for (t->rank = 0;; t->rank++) {
        qp_json_token tok;
        QP_TRY(qp_json_stream_next(s, &tok, err));
        if (tok == QP_JSON_ARRAY_END) return QP_OK;
        if (t->rank == QP_MAX_RANK)
            return qp_fail(err, QP_EFORMAT, "%s: %s: more than %d dimensions", t->file, t->name, QP_MAX_RANK);
        if (tok != QP_JSON_NUM || !qp_json_stream_as_u64(s, &t->shape[t->rank]))
            return qp_fail(err, QP_EFORMAT, "%s: %s: shape[%u] is not an integer in 0..2^64-1", t->file, t->name,
                           t->rank);
    }
}

static qp_status read_dtype(qp_json_stream *s, qp_tensor *t, qp_err *err)
{
    QP_TRY(qp_json_stream_expect(s, QP_JSON_STR, err));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (qp_json_stream_is(s, dtypes[i].name)) {
            t->dtype = (qp_dtype)i;
            return QP_OK;
        }
    }
    return qp_fail(
        err, QP_EUNSUPPORTED,
        "%s: %s: dtype \"%.*s\", supported are BOOL, U8..U64, I8..I64, F16, BF16, F32, F64, F8_E4M3, F8_E5M2", t->file,
        t->name, (int)qp_min_size(s->len, 40), s->text);
}

/* One entry's object: {"dtype", "shape", "data_offsets"}, each once, in any order, nothing else. */
static qp_status read_entry(qp_json_stream *s, qp_tensor *t, uint64_t offsets[2], qp_err *err)
{
    unsigned seen = 0;
    QP_TRY(qp_json_stream_expect(s, QP_JSON_OBJECT, err));
    for (;;) {
        qp_json_token tok;
        QP_TRY(qp_json_stream_next(s, &tok, err));
        if (tok == QP_JSON_OBJECT_END) break;
        unsigned bit = qp_json_stream_is(s, "dtype")          ? 1
                       : qp_json_stream_is(s, "shape")        ? 2
                       : qp_json_stream_is(s, "data_offsets") ? 4
                                                              : 0;
        if (!bit || seen & bit)
            return qp_fail(err, QP_EFORMAT, "%s: %s: %s field \"%.*s\"", t->file, t->name, bit ? "repeated" : "unknown",
                           (int)qp_min_size(s->len, 40), s->text);
        seen |= bit;
        if (bit == 1) {
            QP_TRY(read_dtype(s, t, err));
        } else if (bit == 2) {
            QP_TRY(read_shape(s, t, err));
        } else {
            QP_TRY(qp_json_stream_expect(s, QP_JSON_ARRAY, err));
            QP_TRY(read_u64(s, t, "data_offsets", &offsets[0], err));
            QP_TRY(read_u64(s, t, "data_offsets", &offsets[1], err));
            QP_TRY(qp_json_stream_expect(s, QP_JSON_ARRAY_END, err));
        }
    }
    if (seen != 7)
        return qp_fail(err, QP_EFORMAT, "%s: %s: \"%s\" is missing", t->file, t->name,
                       !(seen & 1)   ? "dtype"
                       : !(seen & 2) ? "shape"
                                     : "data_offsets");
    return QP_OK;
}

/* Binds an entry to its bytes: shape times element size is end - begin, inside the data, aligned. */
static qp_status bind_entry(qp_tensor *t, const uint64_t offsets[2], const unsigned char *data, size_t data_len,
                            qp_err *err)
{
    unsigned long long begin = offsets[0], end = offsets[1];
    char shape[128];
    size_t n = 1, bytes;
    bool ok = true, empty = false;
    for (uint32_t i = 0; i < t->rank; i++) empty = empty || t->shape[i] == 0;
    for (uint32_t i = 0; i < t->rank && !empty; i++) ok = ok && qp_mul_ok(n, t->shape[i], &n);
    if (empty) n = 0;
    if (!ok || !qp_mul_ok(n, qp_dtype_bytes(t->dtype), &bytes))
        return qp_fail(err, QP_EFORMAT, "%s: %s: shape %s overflows 64 bits", t->file, t->name,
                       qp_tensor_shape_str(t, shape, sizeof shape));
    if (begin > end || end > data_len)
        return qp_fail(err, QP_EFORMAT, "%s: %s: data_offsets [%llu, %llu], the file has %zu bytes of data", t->file,
                       t->name, begin, end, data_len);
    if (end - begin != bytes)
        return qp_fail(err, QP_EFORMAT, "%s: %s: shape %s of %s takes %zu bytes, data_offsets [%llu, %llu] give %llu",
                       t->file, t->name, qp_tensor_shape_str(t, shape, sizeof shape), qp_dtype_name(t->dtype), bytes,
                       begin, end, end - begin);
    t->data = data ? data + begin : NULL;
    t->n_elements = n;
    t->n_bytes = bytes;
    if (bytes && (uintptr_t)t->data % qp_dtype_bytes(t->dtype))
        return qp_fail(err, QP_EFORMAT,
                       "%s: %s: data at offset %llu is not aligned to the %zu bytes of %s; save the file again with a "
                       "current safetensors library",
                       t->file, t->name, begin, qp_dtype_bytes(t->dtype), qp_dtype_name(t->dtype));
    return QP_OK;
}

static qp_status read_header(qp_checkpoint *c, qp_json_stream *s, const char *file, const unsigned char *data,
                             size_t data_len, qp_err *err)
{
    qp_json_token tok;
    bool has_metadata = false;
    QP_TRY(qp_json_stream_expect(s, QP_JSON_OBJECT, err));
    for (;;) {
        QP_TRY(qp_json_stream_next(s, &tok, err));
        if (tok == QP_JSON_OBJECT_END) break;
        if (qp_json_stream_is(s, "__metadata__")) {
            if (has_metadata) return qp_fail(err, QP_EFORMAT, "%s: two __metadata__ entries", file);
            has_metadata = true;
            QP_TRY(qp_json_stream_skip(s, err));
            continue;
        }
        if (!s->len || s->len > QP_MAX_NAME_BYTES || memchr(s->text, 0, s->len))
            return qp_fail(err, QP_EFORMAT, "%s: tensor name of %zu bytes \"%.*s\": must have 1..%d bytes and no NUL",
                           file, s->len, (int)qp_min_size(s->len, 60), s->text, QP_MAX_NAME_BYTES);
        uint64_t offsets[2] = {0, 0};
        qp_tensor t = {.file = file};
        t.name = qp_arena_strndup(&c->arena, s->text, s->len);
        if (!t.name) return no_memory(file, err);
        QP_TRY(read_entry(s, &t, offsets, err));
        QP_TRY(bind_entry(&t, offsets, data, data_len, err));
        QP_TRY(push_tensor(c, &t, err));
    }
    return qp_json_stream_expect(s, QP_JSON_END, err);
}

static int by_begin(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The tensors from `first` on belong to one file and must cover its data exactly. */
static qp_status check_cover(const qp_checkpoint *c, size_t first, const char *file, const unsigned char *data,
                             size_t data_len, qp_err *err)
{
    size_t n = c->n - first, at = 0;
    qp_status st = QP_OK;
    extent *e = qp_malloc(n * sizeof *e);
    if (!e) return no_memory(file, err);
    for (size_t i = 0; i < n; i++) {
        const qp_tensor *t = &c->tensors[first + i];
        size_t begin = t->data ? (size_t)((const unsigned char *)t->data - data) : 0;
        e[i] = (extent){begin, begin + t->n_bytes, first + i};
    }
    qsort(e, n, sizeof *e, by_begin);
    for (size_t i = 0; i < n && st == QP_OK; at = e[i++].end) {
        if (e[i].begin == at) continue;
        const qp_tensor *t = &c->tensors[e[i].index];
        if (e[i].begin < at)
            st = qp_fail(err, QP_EFORMAT, "%s: %s: data_offsets [%zu, %zu] overlap those of %s", file, t->name,
                         e[i].begin, e[i].end, c->tensors[e[i - 1].index].name);
        else
            st = qp_fail(err, QP_EFORMAT, "%s: %s: %zu bytes before its data_offsets [%zu, %zu] belong to no tensor",
                         file, t->name, e[i].begin - at, e[i].begin, e[i].end);
    }
    if (st == QP_OK && at != data_len)
        st = qp_fail(err, QP_EFORMAT, "%s: %zu bytes of data, its tensors cover %zu: %s", file, data_len, at,
                     n ? "the last ones belong to no tensor" : "it names no tensor");
    qp_free(e);
    return st;
}

static qp_status add_file(qp_checkpoint *c, const void *bytes, size_t len, const char *file, qp_err *err)
{
    qp_reader r;
    qp_reader_init(&r, bytes, len);
    uint64_t header_len = qp_reader_u64(&r);
    if (r.failed) return qp_fail(err, QP_EFORMAT, "%s: %zu bytes, too short for a safetensors file", file, len);
    if (header_len > QP_MAX_HEADER_BYTES)
        return qp_fail(err, QP_ELIMIT, "%s: header of %llu bytes, at most %zu (is it a safetensors file?)", file,
                       (unsigned long long)header_len, QP_MAX_HEADER_BYTES);
    const char *header = qp_reader_bytes(&r, header_len);
    if (!header)
        return qp_fail(err, QP_EFORMAT, "%s: truncated: header of %llu bytes, the file has %zu", file,
                       (unsigned long long)header_len, len);
    if (!header_len || header[0] != '{')
        return qp_fail(err, QP_EFORMAT, "%s: the header does not begin with '{'", file);
    size_t data_len = qp_reader_left(&r), first = c->n;
    const unsigned char *data = qp_reader_bytes(&r, data_len);
    qp_json_stream s;
    qp_json_stream_init(&s, header, header_len, file);
    qp_status st = read_header(c, &s, file, data, data_len, err);
    qp_json_stream_deinit(&s);
    QP_TRY(st);
    if (!qp_add_ok(c->file_bytes, len, &c->file_bytes))
        return qp_fail(err, QP_ELIMIT, "%s: the checkpoint's size overflows", file);
    return check_cover(c, first, file, data, data_len, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const qp_tensor *)a)->name, ((const qp_tensor *)b)->name);
}

static qp_status finish(qp_checkpoint *c, qp_err *err)
{
    if (c->n) qsort(c->tensors, c->n, sizeof *c->tensors, by_name);
    for (size_t i = 1; i < c->n; i++) {
        const qp_tensor *a = &c->tensors[i - 1], *b = &c->tensors[i];
        if (strcmp(a->name, b->name) != 0) continue;
        if (strcmp(a->file, b->file) == 0)
            return qp_fail(err, QP_EFORMAT, "%s: tensor %s is named twice in it", a->file, a->name);
        return qp_fail(err, QP_EFORMAT, "%s: tensor %s is both in %s and in %s", c->dir, a->name, a->file, b->file);
    }
    return QP_OK;
}

static bool is_shard(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t n = strlen(name), m = sizeof suffix - 1;
    return name[0] != '.' && n > m && strcmp(name + n - m, suffix) == 0;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the folder's shards, sorted, in a new array; the strings are in the arena. */
static qp_status list_shards(qp_checkpoint *c, const char ***out, size_t *n_out, qp_err *err)
{
    qp_status st = QP_OK;
    const char **names;
    size_t n = 0;
    QP_TRY(qp_new(&names, QP_MAX_SHARDS, sizeof *names, c->dir, err));
    DIR *d = opendir(c->dir);
    if (!d) {
        st = qp_fail(err, QP_EIO, "%s: %s", c->dir, strerror(errno));
        qp_free(names);
        return st;
    }
    for (struct dirent *e; st == QP_OK && (e = readdir(d));) {
        if (!is_shard(e->d_name)) continue;
        if (n == QP_MAX_SHARDS)
            st = qp_fail(err, QP_ELIMIT, "%s: more than %d *.safetensors files", c->dir, QP_MAX_SHARDS);
        else if (!(names[n++] = qp_arena_strndup(&c->arena, e->d_name, strlen(e->d_name))))
            st = no_memory(c->dir, err);
    }
    closedir(d);
    if (st == QP_OK && !n) st = qp_fail(err, QP_EIO, "%s: no *.safetensors file in it", c->dir);
    if (st != QP_OK) {
        qp_free(names);
        return st;
    }
    qsort(names, n, sizeof *names, by_string);
    *out = names;
    *n_out = n;
    return QP_OK;
}

static qp_status open_files(qp_checkpoint *c, qp_err *err)
{
    const char **names = NULL;
    char path[PATH_CAP];
    size_t n = 1;
    bool single = qp_path_is_file(c->dir);
    if (!single) QP_TRY(list_shards(c, &names, &n, err));
    qp_status st = qp_new(&c->maps, n, sizeof *c->maps, c->dir, err);
    for (size_t i = 0; i < n && st == QP_OK; i++) {
        const char *slash = strrchr(c->dir, '/'), *file = single ? slash ? slash + 1 : c->dir : names[i];
        if (!single) st = qp_path_join(path, sizeof path, c->dir, file, err);
        if (st == QP_OK) st = qp_map_open(&c->maps[i], single ? c->dir : path, err);
        if (st != QP_OK) break;
        c->n_maps++;
        st = add_file(c, c->maps[i].data, c->maps[i].len, file, err);
    }
    qp_free(names);
    return st;
}

static qp_status checkpoint_new(qp_checkpoint **out, const char *dir, qp_err *err)
{
    qp_checkpoint *c = NULL;
    QP_TRY(qp_new(&c, 1, sizeof *c, dir, err));
    qp_arena_init(&c->arena, 0);
    c->dir = qp_strdup(dir);
    if (!c->dir) {
        qp_free(c);
        return no_memory(dir, err);
    }
    *out = c;
    return QP_OK;
}

qp_status qp_checkpoint_open(qp_checkpoint **out, const char *dir, qp_err *err)
{
    qp_checkpoint *c = NULL;
    QP_TRY(checkpoint_new(&c, dir, err));
    qp_status st = open_files(c, err);
    if (st == QP_OK) st = finish(c, err);
    if (st != QP_OK) {
        qp_checkpoint_close(c);
        return st;
    }
    *out = c;
    return QP_OK;
}

qp_status qp_checkpoint_open_bytes(qp_checkpoint **out, const void *data, size_t len, const char *name, qp_err *err)
{
    qp_checkpoint *c = NULL;
    QP_TRY(checkpoint_new(&c, name, err));
    qp_status st = add_file(c, data, len, c->dir, err);
    if (st == QP_OK) st = finish(c, err);
    if (st != QP_OK) {
        qp_checkpoint_close(c);
        return st;
    }
    *out = c;
    return QP_OK;
}

void qp_checkpoint_close(qp_checkpoint *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_maps; i++) qp_map_close(&c->maps[i]);
    qp_free(c->maps);
    qp_free(c->tensors);
    qp_arena_deinit(&c->arena);
    qp_free(c->dir);
    qp_free(c);
}

size_t qp_checkpoint_n_tensors(const qp_checkpoint *c)
{
    return c->n;
}

const qp_tensor *qp_checkpoint_at(const qp_checkpoint *c, size_t i)
{
    return &c->tensors[i];
}

const qp_tensor *qp_checkpoint_find(const qp_checkpoint *c, const char *name)
{
    size_t lo = 0, hi = c->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(c->tensors[mid].name, name);
        if (cmp == 0) return &c->tensors[mid];
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

size_t qp_checkpoint_file_bytes(const qp_checkpoint *c)
{
    return c->file_bytes;
}

const char *qp_checkpoint_dir(const qp_checkpoint *c)
{
    return c->dir;
}
