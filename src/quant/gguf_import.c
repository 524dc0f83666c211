/* GGUF import: see gguf_import.h. Weights are decoded, put in order and rounded a few rows at a time, so memory is the
 * tokenizer's text and a row. Tensors are written in the file's order. */
#include "quant/gguf_import.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/num.h"
#include "io/map.h"
#include "io/out_file.h"
#include "io/safetensors_write.h"
#include "quant/ggml_blocks.h"
#include "quant/gguf_model.h"
#include "quant/gguf_tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_CAP = 4096, CHUNK = 1 << 16, TICK_BYTES = 4 << 20, MAX_TRIES = 1000 };

/* In the order in which they are moved: a folder with config.json is complete. */
static const char *const file_names[] = {"model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                         "generation_config.json", "config.json"};
enum { FILE_WEIGHTS, FILE_TOKENIZER, FILE_TOKENIZER_CONFIG, FILE_GENERATION, FILE_CONFIG, N_FILES };

typedef struct {
    const qp_gguf *g;
    const qp_import_options *options;
    qp_gguf_model model;
    qp_gguf_rule *rules; /* [n_tensors of the file] */
    qp_tensor *entries;  /* [n_entries], the written ones */
    size_t n_entries, n_tokens, n_merges;
    qp_buf texts[N_FILES]; /* of all but the weights */
    uint64_t done, total, ticked;
    float *row;       /* [row_cap] */
    uint16_t *halves; /* [row_cap] */
    size_t row_cap;
    qp_tensor_writer *writer; /* NULL: results are thrown away */
} import;

static void import_deinit(import *im)
{
    for (int i = 0; i < N_FILES; i++) qp_buf_deinit(&im->texts[i]);
    qp_free(im->rules);
    qp_free(im->entries);
    qp_free(im->row);
    qp_free(im->halves);
}

/* ---- weights ---- */

/* What tensors become: the rules, and name, type and shape of those that are written. */
static qp_status plan(import *im, qp_err *err)
{
    size_t n = qp_gguf_n_tensors(im->g);
    im->row_cap = 1;
    QP_TRY(qp_new(&im->rules, n, sizeof *im->rules, "import", err));
    QP_TRY(qp_new(&im->entries, n, sizeof *im->entries, "import", err));
    for (size_t i = 0; i < n; i++) {
        const qp_gguf_tensor *t = qp_gguf_tensor_at(im->g, i);
        QP_TRY(qp_gguf_model_rule(&im->model, im->g, t, &im->rules[i], err));
        if (!im->rules[i].hf_name[0]) continue;
        qp_tensor *e = &im->entries[im->n_entries++];
        e->name = im->rules[i].hf_name;
        e->dtype = im->options->f32 ? QP_DT_F32 : QP_DT_BF16;
        e->rank = t->rank;
        memcpy(e->shape, t->shape, sizeof e->shape);
        im->total += (uint64_t)t->n_rows * t->row_len * qp_dtype_bytes(e->dtype);
        size_t rows = qp_min_size(t->n_rows, qp_max_size(1, CHUNK / t->row_len));
        im->row_cap = qp_max_size(im->row_cap, rows * t->row_len);
    }
    QP_TRY(qp_gguf_model_check_tensors(&im->model, im->g, err));
    QP_TRY(qp_new(&im->row, im->row_cap, sizeof *im->row, "import", err));
    return qp_new(&im->halves, im->row_cap, sizeof *im->halves, "import", err);
}

static qp_status tick(import *im, qp_err *err)
{
    if (im->done < im->ticked) return QP_OK;
    im->ticked = im->done + TICK_BYTES;
    if (im->options->progress && !im->options->progress(im->options->progress_arg, im->done, im->total))
        return qp_fail(err, QP_ECANCELLED, "import cancelled; nothing was written");
    return QP_OK;
}

/* Rounds the n weights in row, checks that they are finite, and writes them. */
static qp_status put_weights(import *im, const qp_gguf_tensor *t, size_t n, qp_err *err)
{
    uint32_t infinite = 0;
    const void *out = im->row;
    size_t bytes = n * sizeof *im->row;
    if (im->options->f32) {
        for (size_t i = 0; i < n; i++) infinite |= (qp_f32_bits(im->row[i]) & 0x7F800000u) == 0x7F800000u;
    } else {
        for (size_t i = 0; i < n; i++) {
            im->halves[i] = qp_f32_to_bf16_rne(im->row[i]);
            infinite |= (im->halves[i] & 0x7F80u) == 0x7F80u;
        }
        out = im->halves;
        bytes = n * sizeof *im->halves;
    }
    if (infinite)
        return qp_fail(err, QP_EFORMAT, "%s: %s: a weight is infinite or not a number: the file is damaged",
                       qp_gguf_name(im->g), t->name);
    if (im->writer) QP_TRY(qp_tensor_writer_write(im->writer, out, bytes, err));
    im->done += bytes;
    return tick(im, err);
}

/* Row `row` of the checkpoint is this row of the GGUF, where each head's rows are (pair, half) instead of
 * (half, pair). */
static size_t source_row(size_t row, uint64_t head_dim)
{
    size_t head = row / head_dim, i = row % head_dim, pairs = head_dim / 2;
    return head * head_dim + i % pairs * 2 + i / pairs;
}

/* A tensor in pieces of whole rows, as many as fit the buffer. */
static qp_status write_tensor(import *im, const qp_gguf_tensor *t, const qp_gguf_rule *rule, qp_err *err)
{
    size_t rows = qp_max_size(1, im->row_cap / t->row_len), head_dim = im->model.head_dim;
    for (size_t at = 0; at < t->n_rows; at += rows) {
        size_t n = qp_min_size(rows, t->n_rows - at);
        for (size_t i = 0; i < n; i++) {
            size_t from = rule->unpermute && t->rank > 1 ? source_row(at + i, head_dim) : at + i;
            qp_ggml_decode(t->type, t->data + from * t->row_bytes, t->row_len, im->row + i * t->row_len);
        }
        if (rule->minus_one)
            for (size_t i = 0; i < n * t->row_len; i++) im->row[i] -= 1;
        QP_TRY(put_weights(im, t, n * t->row_len, err));
    }
    return QP_OK;
}

/* A bias of q or k: the elements are reordered as the rows of a weight are. */
static qp_status write_bias(import *im, const qp_gguf_tensor *t, qp_err *err)
{
    float *plain;
    QP_TRY(qp_new(&plain, t->row_len, sizeof *plain, "import", err));
    qp_ggml_decode(t->type, t->data, t->row_len, plain);
    for (size_t i = 0; i < t->row_len; i++) im->row[i] = plain[source_row(i, im->model.head_dim)];
    qp_free(plain);
    return put_weights(im, t, t->row_len, err);
}

static qp_status write_weights(import *im, qp_err *err)
{
    for (size_t i = 0; i < qp_gguf_n_tensors(im->g); i++) {
        const qp_gguf_tensor *t = qp_gguf_tensor_at(im->g, i);
        const qp_gguf_rule *rule = &im->rules[i];
        if (!rule->hf_name[0]) continue;
        if (rule->unpermute && t->rank == 1)
            QP_TRY(write_bias(im, t, err));
        else
            QP_TRY(write_tensor(im, t, rule, err));
    }
    im->ticked = im->done;
    return tick(im, err);
}

/* ---- files ---- */

/* Everything that can be refused is, before a file is written. */
static qp_status prepare(import *im, qp_err *err)
{
    QP_TRY(qp_gguf_model_read(&im->model, im->g, err));
    QP_TRY(plan(im, err));
    QP_TRY(tick(im, err));
    QP_TRY(qp_gguf_tokenizer(&im->model, im->g, &im->texts[FILE_TOKENIZER], &im->texts[FILE_TOKENIZER_CONFIG],
                             &im->n_tokens, &im->n_merges, err));
    qp_gguf_model_config(&im->model, im->options->f32, &im->texts[FILE_CONFIG]);
    qp_gguf_model_generation_config(&im->model, &im->texts[FILE_GENERATION]);
    QP_TRY(qp_buf_check(&im->texts[FILE_CONFIG], "config.json", err));
    return qp_buf_check(&im->texts[FILE_GENERATION], "generation_config.json", err);
}

static qp_status write_files(import *im, const char *dir, qp_err *err)
{
    static const qp_meta_pair format = {"format", "pt"};
    char path[PATH_CAP];
    for (int i = FILE_WEIGHTS + 1; i < N_FILES; i++) {
        QP_TRY(qp_path_join(path, sizeof path, dir, file_names[i], err));
        QP_TRY(qp_out_file_put(path, im->texts[i].data, im->texts[i].len, err));
    }
    QP_TRY(qp_path_join(path, sizeof path, dir, file_names[FILE_WEIGHTS], err));
    QP_TRY(qp_tensor_writer_open(&im->writer, path, im->entries, im->n_entries, &format, 1, err));
    qp_status st = write_weights(im, err);
    if (st == QP_OK) st = qp_tensor_writer_commit(im->writer, err);
    qp_tensor_writer_close(im->writer);
    im->writer = NULL;
    return st;
}

/* ---- folders ---- */

static qp_status make_parents(const char *dir, qp_err *err)
{
    char path[PATH_CAP];
    size_t n = strlen(dir);
    memcpy(path, dir, n + 1);
    for (size_t i = 1; i < n; i++) {
        if (path[i] != '/') continue;
        path[i] = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return qp_fail(err, QP_EIO, "%s: cannot create it: %s", path, strerror(errno));
        path[i] = '/';
    }
    return QP_OK;
}

static bool is_ours(const char *name)
{
    for (int i = 0; i < N_FILES; i++)
        if (strcmp(name, file_names[i]) == 0) return true;
    return false;
}

/* Whether an existing dir may be written into. */
static qp_status check_folder(const char *dir, bool force, qp_err *err)
{
    qp_status st = QP_OK;
    DIR *d = opendir(dir);
    if (!d) return qp_fail(err, QP_EIO, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; st == QP_OK && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (!force)
            st = qp_fail(err, QP_EINVAL, "%s: not empty (%s is there); --force replaces the model in it", dir,
                         e->d_name);
        else if (n > 12 && strcmp(e->d_name + n - 12, ".safetensors") == 0 && !is_ours(e->d_name))
            st = qp_fail(err, QP_EINVAL, "%s: %s would become part of the imported model; move it away first", dir,
                         e->d_name);
    }
    closedir(d);
    return st;
}

/* Creates a folder that did not exist, "<base>.import-<pid>-<n>"; its name in out[PATH_CAP]. */
static qp_status make_temporary(const char *base, char *out, qp_err *err)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        int n = snprintf(out, PATH_CAP, "%s.import-%ld-%d", base, (long)getpid(), i);
        if (n < 0 || n >= PATH_CAP) return qp_fail(err, QP_ELIMIT, "path too long: %s", base);
        if (!mkdir(out, 0777)) return QP_OK;
        if (errno != EEXIST) break;
    }
    return qp_fail(err, QP_EIO, "%s: cannot create it: %s", out, strerror(errno));
}

/* Removes what is left of a temporary folder; only files of ours are ever in it. */
static void remove_temporary(const char *dir)
{
    char path[PATH_CAP];
    qp_err ignored;
    for (int i = 0; i < N_FILES; i++)
        if (qp_path_join(path, sizeof path, dir, file_names[i], &ignored) == QP_OK) unlink(path);
    rmdir(dir);
}

static qp_status move_files(const char *from, const char *to, qp_err *err)
{
    char old_path[PATH_CAP], new_path[PATH_CAP];
    for (int i = 0; i < N_FILES; i++) {
        QP_TRY(qp_path_join(old_path, sizeof old_path, from, file_names[i], err));
        QP_TRY(qp_path_join(new_path, sizeof new_path, to, file_names[i], err));
        if (rename(old_path, new_path))
            return qp_fail(err, QP_EIO, "%s: cannot move %s there: %s", new_path, old_path, strerror(errno));
    }
    return QP_OK;
}

static qp_status import_to(import *im, const char *dir, qp_err *err)
{
    char temporary[PATH_CAP], base[PATH_CAP];
    bool exists = qp_path_is_dir(dir);
    if (exists) {
        QP_TRY(check_folder(dir, im->options->force, err));
        QP_TRY(qp_path_join(base, sizeof base, dir, "", err));
    } else {
        size_t n = strlen(dir);
        while (n > 1 && dir[n - 1] == '/') n--;
        if (!n || n >= sizeof base) return qp_fail(err, QP_EINVAL, "\"%.60s\": not a folder's name", dir);
        memcpy(base, dir, n);
        base[n] = 0;
        QP_TRY(make_parents(base, err));
    }
    QP_TRY(make_temporary(base, temporary, err));
    qp_status st = write_files(im, temporary, err);
    if (st == QP_OK && exists) st = move_files(temporary, dir, err);
    if (st == QP_OK && !exists && rename(temporary, base))
        st = qp_fail(err, QP_EIO, "%s: cannot rename %s to it: %s", base, temporary, strerror(errno));
    if (st != QP_OK || exists) remove_temporary(temporary);
    return st;
}

qp_status qp_gguf_import(const char *path, const char *dir, const qp_import_options *options, qp_err *err)
{
    qp_gguf *g = NULL;
    struct stat s;
    if (!lstat(dir, &s) && !qp_path_is_dir(dir)) return qp_fail(err, QP_EINVAL, "%s: exists and is not a folder", dir);
    if (qp_path_is_dir(dir)) QP_TRY(check_folder(dir, options->force, err));
    QP_TRY(qp_gguf_open(&g, path, err));
import im = {.g = g, .options = options };
    qp_status st = prepare(&im, err);
    if (st == QP_OK) st = import_to(&im, dir, err);
    if (st == QP_OK && options->summary)
        *options->summary = (qp_import_summary){im.n_entries, im.n_tokens, im.n_merges, im.total};
    import_deinit(&im);
    qp_gguf_close(g);
    return st;
}

qp_status qp_gguf_import_check(const void *data, size_t len, const qp_import_options *options, qp_err *err)
{
    qp_gguf *g = NULL;
    QP_TRY(qp_gguf_open_bytes(&g, data, len, "gguf", err));
import im = {.g = g, .options = options };
    qp_status st = prepare(&im, err);
    if (st == QP_OK) st = write_weights(&im, err);
    if (st == QP_OK && options->summary)
        *options->summary = (qp_import_summary){im.n_entries, im.n_tokens, im.n_merges, im.total};
    import_deinit(&im);
    qp_gguf_close(g);
    return st;
}
