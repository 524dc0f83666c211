/* Writing safetensors: see safetensors_write.h. The header is padded with spaces to a multiple of 8 bytes, as the
 * format's own library does, so that data aligned in the data area is aligned in a mapping. */
#include "io/safetensors_write.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/checked.h"
#include "io/json.h"
#include "io/out_file.h"

#include <stdlib.h>
#include <string.h>

struct qp_tensor_writer {
    qp_out_file *file;
    char *path;
    uint64_t left;
};

static qp_status tensor_bytes(const qp_tensor *t, const char *path, size_t *out, qp_err *err)
{
    char shape[128];
    size_t n = qp_dtype_bytes(t->dtype);
    bool empty = false, ok = true;
    if (!t->name[0] || strlen(t->name) > QP_MAX_NAME_BYTES || strcmp(t->name, "__metadata__") == 0)
        return qp_fail(err, QP_EINVAL, "%s: \"%.60s\" cannot name a tensor (1..%d bytes)", path, t->name,
                       QP_MAX_NAME_BYTES);
    if (t->rank > QP_MAX_RANK || !n)
        return qp_fail(err, QP_EINVAL, "%s: %s: rank %u, at most %d; dtype %d", path, t->name, t->rank, QP_MAX_RANK,
                       (int)t->dtype);
    for (uint32_t i = 0; i < t->rank; i++) empty = empty || t->shape[i] == 0;
    for (uint32_t i = 0; i < t->rank && !empty; i++) ok = ok && qp_mul_ok(n, t->shape[i], &n);
    if (!ok)
        return qp_fail(err, QP_EINVAL, "%s: %s: shape %s overflows 64 bits", path, t->name,
                       qp_tensor_shape_str(t, shape, sizeof shape));
    *out = empty ? 0 : n;
    return QP_OK;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static qp_status check_names(const qp_tensor *tensors, size_t n, const char *path, qp_err *err)
{
    qp_status st = QP_OK;
    const char **names;
    QP_TRY(qp_new(&names, n, sizeof *names, path, err));
    for (size_t i = 0; i < n; i++) names[i] = tensors[i].name;
    if (n) qsort(names, n, sizeof *names, by_string);
    for (size_t i = 1; i < n && st == QP_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            st = qp_fail(err, QP_EINVAL, "%s: tensor %s is given twice", path, names[i]);
    qp_free(names);
    return st;
}

static void add_str(qp_buf *b, const char *s)
{
    qp_json_add_str(b, s, strlen(s));
}

static void add_metadata(qp_buf *b, const qp_meta_pair *meta, size_t n)
{
    qp_buf_adds(b, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        if (i) qp_buf_addc(b, ',');
        add_str(b, meta[i].key);
        qp_buf_addc(b, ':');
        add_str(b, meta[i].value);
    }
    qp_buf_addc(b, '}');
}

/* The header's text in b and the length of the data in *total. */
static qp_status build_header(qp_buf *b, const char *path, const qp_tensor *tensors, size_t n, const qp_meta_pair *meta,
                              size_t n_meta, size_t *total, qp_err *err)
{
    size_t at = 0;
    qp_buf_addc(b, '{');
    if (n_meta) add_metadata(b, meta, n_meta);
    for (size_t i = 0; i < n; i++) {
        const qp_tensor *t = &tensors[i];
        size_t bytes = 0, end;
        QP_TRY(tensor_bytes(t, path, &bytes, err));
        if (!qp_add_ok(at, bytes, &end)) return qp_fail(err, QP_EINVAL, "%s: its size overflows 64 bits", path);
        if (bytes && at % qp_dtype_bytes(t->dtype))
            return qp_fail(err, QP_EINVAL, "%s: %s: would start at %zu, not a multiple of the %zu bytes of %s", path,
                           t->name, at, qp_dtype_bytes(t->dtype), qp_dtype_name(t->dtype));
        if (i || n_meta) qp_buf_addc(b, ',');
        add_str(b, t->name);
        qp_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", qp_dtype_name(t->dtype));
        for (uint32_t d = 0; d < t->rank; d++) qp_buf_printf(b, d ? ",%llu" : "%llu", (unsigned long long)t->shape[d]);
        qp_buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
    }
    qp_buf_addc(b, '}');
    while (b->len % 8 && !b->failed) qp_buf_addc(b, ' ');
    QP_TRY(qp_buf_check(b, path, err));
    if (b->len > QP_MAX_HEADER_BYTES)
        return qp_fail(err, QP_EINVAL, "%s: header of %zu bytes, at most %zu", path, b->len, QP_MAX_HEADER_BYTES);
    *total = at;
    return QP_OK;
}

static qp_status start_file(qp_tensor_writer *w, const qp_buf *header, qp_err *err)
{
    unsigned char len[8];
    for (unsigned i = 0; i < 8; i++) len[i] = (unsigned char)((uint64_t)header->len >> 8 * i);
    QP_TRY(qp_out_file_open(&w->file, w->path, err));
    QP_TRY(qp_out_file_write(w->file, len, sizeof len, err));
    return qp_out_file_write(w->file, header->data, header->len, err);
}

qp_status qp_tensor_writer_open(qp_tensor_writer **out, const char *path, const qp_tensor *tensors, size_t n,
                                const qp_meta_pair *meta, size_t n_meta, qp_err *err)
{
    qp_tensor_writer *w = NULL;
    qp_buf header = {0};
    size_t total = 0;
    qp_status st = check_names(tensors, n, path, err);
    if (st == QP_OK) st = build_header(&header, path, tensors, n, meta, n_meta, &total, err);
    if (st == QP_OK) st = qp_new(&w, 1, sizeof *w, path, err);
    if (st == QP_OK) {
        w->left = total;
        w->path = qp_strdup(path);
        st = w->path ? start_file(w, &header, err) : qp_fail(err, QP_ENOMEM, "%s: no memory for writing it", path);
    }
    qp_buf_deinit(&header);
    if (st != QP_OK) {
        qp_tensor_writer_close(w);
        return st;
    }
    *out = w;
    return QP_OK;
}

qp_status qp_tensor_writer_write(qp_tensor_writer *w, const void *data, size_t n, qp_err *err)
{
    if (n > w->left)
        return qp_fail(err, QP_EINVAL, "%s: %zu bytes of data given, %llu are left to write", w->path, n,
                       (unsigned long long)w->left);
    QP_TRY(qp_out_file_write(w->file, data, n, err));
    w->left -= n;
    return QP_OK;
}

uint64_t qp_tensor_writer_left(const qp_tensor_writer *w)
{
    return w->left;
}

qp_status qp_tensor_writer_commit(qp_tensor_writer *w, qp_err *err)
{
    if (w->left)
        return qp_fail(err, QP_EINVAL, "%s: %llu bytes of data were not written", w->path, (unsigned long long)w->left);
    return qp_out_file_commit(w->file, err);
}

void qp_tensor_writer_close(qp_tensor_writer *w)
{
    if (!w) return;
    qp_out_file_close(w->file);
    qp_free(w->path);
    qp_free(w);
}

qp_status qp_safetensors_write(const char *path, const qp_tensor *tensors, size_t n, const qp_meta_pair *meta,
                               size_t n_meta, qp_err *err)
{
    qp_tensor_writer *w;
    QP_TRY(qp_tensor_writer_open(&w, path, tensors, n, meta, n_meta, err));
    qp_status st = QP_OK;
    for (size_t i = 0; i < n && st == QP_OK; i++) {
        size_t bytes = 0;
        st = tensor_bytes(&tensors[i], path, &bytes, err);
        if (st == QP_OK) st = qp_tensor_writer_write(w, tensors[i].data, bytes, err);
    }
    if (st == QP_OK) st = qp_tensor_writer_commit(w, err);
    qp_tensor_writer_close(w);
    return st;
}
