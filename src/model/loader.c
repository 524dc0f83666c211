/* Binding: see loader.h. */
#include "model/loader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/num.h"
#include "quant/exl3.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

qp_status qp_load_alloc(qp_loader *ld, size_t n, size_t size, void *out, qp_err *err)
{
    void *p = qp_arena_calloc(ld->arena, n, size);
    if (!p) return qp_fail(err, QP_ENOMEM, "model: no memory for %zu x %zu bytes", n, size);
    memcpy(out, &p, sizeof p);
    return QP_OK;
}

static void mark(qp_loader *ld, const qp_tensor *t)
{
    qp_tensor_use *u = &ld->use[t - qp_checkpoint_at(ld->ckpt, 0)];
    if (*u != QP_USE_BOUND) ld->weight_bytes += t->n_bytes;
    *u = QP_USE_BOUND;
}

static const qp_tensor *find_and_mark(qp_loader *ld, const char *key, const char *suffix)
{
    char name[QP_MAX_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", key, suffix);
    const qp_tensor *t = qp_checkpoint_find(ld->ckpt, name);
    if (t) mark(ld, t);
    return t;
}

static bool has(const qp_loader *ld, const char *key, const char *suffix)
{
    char name[QP_MAX_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", key, suffix);
    return qp_checkpoint_find(ld->ckpt, name) != NULL;
}

static qp_status wtype_of(const qp_tensor *t, qp_wtype *out, qp_err *err)
{
    switch (t->dtype) {
    case QP_DT_F32:
        *out = QP_W_F32;
        return QP_OK;
    case QP_DT_F16:
        *out = QP_W_F16;
        return QP_OK;
    case QP_DT_BF16:
        *out = QP_W_BF16;
        return QP_OK;
    default:
        return qp_fail(err, QP_EUNSUPPORTED, "%s: dtype %s, must be F32, F16 or BF16", t->name,
                       qp_dtype_name(t->dtype));
    }
}

static float element(const qp_tensor *t, qp_wtype type, size_t i)
{
    const unsigned char *p = (const unsigned char *)t->data + i * qp_wtype_bytes(type);
    uint16_t h;
    float f;
    if (type == QP_W_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&h, p, sizeof h);
    return type == QP_W_BF16 ? qp_bf16_to_f32(h) : qp_f16_to_f32(h);
}

/* Copies a tensor that was checked for its shape to fp32. */
static qp_status widen(qp_loader *ld, const qp_tensor *t, float add, const float **out, qp_err *err)
{
    qp_wtype type = QP_W_F32;
    float *v = NULL;
    QP_TRY(wtype_of(t, &type, err));
    QP_TRY(qp_load_alloc(ld, t->n_elements, sizeof *v, &v, err));
    for (size_t i = 0; i < t->n_elements; i++) {
        v[i] = element(t, type, i);
        if (!isfinite(v[i])) return qp_fail(err, QP_EFORMAT, "%s: element %zu is not finite", t->name, i);
        v[i] += add;
    }
    *out = v;
    return QP_OK;
}

static qp_status missing(const qp_loader *ld, const char *name, qp_err *err)
{
    return qp_fail(err, QP_EFORMAT, "%s: tensor %s is missing", qp_checkpoint_dir(ld->ckpt), name);
}

static qp_status want_shape(const qp_tensor *t, uint32_t rank, const uint64_t *shape, qp_err *err)
{
    char found[128];
    bool ok = t->rank == rank;
    for (uint32_t i = 0; ok && i < rank; i++) ok = t->shape[i] == shape[i];
    if (ok) return QP_OK;
    qp_tensor want = {.rank = rank};
    char wanted[128];
    memcpy(want.shape, shape, rank * sizeof *shape);
    return qp_fail(err, QP_EFORMAT, "%s: shape %s, must be %s", t->name, qp_tensor_shape_str(t, found, sizeof found),
                   qp_tensor_shape_str(&want, wanted, sizeof wanted));
}

qp_status qp_load_vector(qp_loader *ld, const char *name, uint32_t n, float add, const float **out, qp_err *err)
{
    const qp_tensor *t = qp_checkpoint_find(ld->ckpt, name);
    if (!t) return missing(ld, name, err);
    QP_TRY(want_shape(t, 1, &(uint64_t){n}, err));
    mark(ld, t);
    return widen(ld, t, add, out, err);
}

static qp_status load_conv(qp_loader *ld, const char *name, uint32_t channels, uint32_t width, const float **out,
                           qp_err *err)
{
    const qp_tensor *t = qp_checkpoint_find(ld->ckpt, name);
    if (!t) return missing(ld, name, err);
    QP_TRY(want_shape(t, 3, (const uint64_t[]){channels, 1, width}, err));
    mark(ld, t);
    return widen(ld, t, 0, out, err);
}

qp_status qp_load_linear(qp_loader *ld, const char *name, uint32_t n_out, uint32_t n_in, qp_linear *out, qp_err *err)
{
    qp_linear l = {.n_in = n_in, .n_out = n_out, .arith = ld->arith};
    ld->n_weights += (uint64_t)n_in * n_out;
    if (has(ld, name, ".trellis")) {
        static const char *const parts[] = {".trellis", ".suh", ".svh", ".su", ".sv", ".mcg", ".mul1", ".bias"};
        l.kind = QP_LINEAR_EXL3;
        QP_TRY(qp_exl3_bind(&l.exl3, ld->ckpt, name, n_in, n_out, ld->arena, err));
        if (l.exl3.n_in != qp_round_up(n_in, 128) || l.exl3.n_out != qp_round_up(n_out, 128))
            return qp_fail(err, QP_EFORMAT, "%s.trellis: stored for %u x %u, the config's %u x %u pads to %zu x %zu",
                           name, l.exl3.n_in, l.exl3.n_out, n_in, n_out, qp_round_up(n_in, 128),
                           qp_round_up(n_out, 128));
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) find_and_mark(ld, name, parts[i]);
        *out = l;
        return QP_OK;
    }
    const qp_tensor *t = find_and_mark(ld, name, ".weight");
    if (!t) {
        char full[QP_MAX_NAME_BYTES + 32];
        snprintf(full, sizeof full, "%s.weight (or .trellis)", name);
        return missing(ld, full, err);
    }
    l.kind = QP_LINEAR_DENSE;
    QP_TRY(want_shape(t, 2, (const uint64_t[]){n_out, n_in}, err));
    QP_TRY(wtype_of(t, &l.wtype, err));
    l.w = t->data;
    const qp_tensor *b = find_and_mark(ld, name, ".bias");
    if (b) {
        QP_TRY(want_shape(b, 1, &(uint64_t){n_out}, err));
        QP_TRY(widen(ld, b, 0, &l.bias, err));
    }
    *out = l;
    return QP_OK;
}

qp_status qp_load_table(qp_loader *ld, const qp_bind *table, size_t n, const uint32_t dims[QP_N_DIMS], uint32_t il,
                        void *layer, qp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const qp_bind *b = &table[i];
        char name[QP_MAX_NAME_BYTES];
        unsigned char *at = (unsigned char *)layer + b->offset;
        snprintf(name, sizeof name, "%slayers.%u.%s", ld->prefix, il, b->name);
        uint32_t rows = dims[b->rows], cols = dims[b->cols];
        switch (b->kind) {
        case QP_LINEAR:
            QP_TRY(qp_load_linear(ld, name, rows, cols, (qp_linear *)(void *)at, err));
            break;
        case QP_VECTOR:
            QP_TRY(qp_load_vector(ld, name, rows, 0, (const float **)(void *)at, err));
            break;
        case QP_VECTOR_PLUS_ONE:
            QP_TRY(qp_load_vector(ld, name, rows, 1, (const float **)(void *)at, err));
            break;
        case QP_CONV:
            QP_TRY(load_conv(ld, name, rows, cols, (const float **)(void *)at, err));
            break;
        }
    }
    return QP_OK;
}

static void decode_trellis_row(const void *codec, uint32_t row, float *out)
{
    qp_exl3_rows_decode(codec, row, out);
}

qp_status qp_load_embedding(qp_loader *ld, qp_embedding *out, qp_err *err)
{
    char key[QP_MAX_NAME_BYTES];
    qp_embedding e = {.n_rows = ld->cfg.vocab, .n_cols = ld->cfg.d_model};
    snprintf(key, sizeof key, "%sembed_tokens", ld->prefix);
    ld->n_weights += (uint64_t)e.n_rows * e.n_cols;
    if (qp_exl3_is_rows(ld->ckpt, key)) {
        qp_exl3_rows *rows = NULL;
        QP_TRY(qp_load_alloc(ld, 1, sizeof *rows, &rows, err));
        QP_TRY(qp_exl3_rows_bind(rows, ld->ckpt, key, e.n_rows, e.n_cols, err));
        find_and_mark(ld, key, ".trellis");
        find_and_mark(ld, key, ".signs");
        e.codec = rows;
        e.decode_row = decode_trellis_row;
        *out = e;
        return QP_OK;
    }
    const qp_tensor *t = find_and_mark(ld, key, ".weight");
    if (!t) {
        strncat(key, ".weight (or .trellis)", sizeof key - strlen(key) - 1);
        return missing(ld, key, err);
    }
    QP_TRY(want_shape(t, 2, (const uint64_t[]){e.n_rows, e.n_cols}, err));
    QP_TRY(wtype_of(t, &e.wtype, err));
    e.table = t->data;
    *out = e;
    return QP_OK;
}

qp_status qp_load_head(qp_loader *ld, const qp_embedding *embed, qp_linear *out, qp_err *err)
{
    static const char *const names[] = {"lm_head", "language_model.lm_head", "model.lm_head",
                                        "model.language_model.lm_head"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has(ld, names[i], ".trellis") || has(ld, names[i], ".weight")) {
            /* The embedding is then read by rows alone. */
            if (embed->table) ld->weight_bytes -= (size_t)embed->n_rows * embed->n_cols * qp_wtype_bytes(embed->wtype);
            return qp_load_linear(ld, names[i], ld->cfg.vocab, ld->cfg.d_model, out, err);
        }
    bool tied = true;
    const json_t *owner = json_object_get(ld->cfg.root, "tie_word_embeddings") ? ld->cfg.root : ld->cfg.text;
    QP_TRY(qp_json_get_bool(owner, "tie_word_embeddings", true, &tied, ld->cfg.where, err));
    if (!tied)
        return qp_fail(err, QP_EFORMAT,
                       "%s: tensor lm_head.weight (or .trellis) is missing, and \"tie_word_embeddings\" is "
                       "false",
                       qp_checkpoint_dir(ld->ckpt));
    if (!embed->table)
        return qp_fail(err, QP_EFORMAT, "%s: no lm_head tensor, and a trellis embedding cannot serve as one",
                       qp_checkpoint_dir(ld->ckpt));
    *out = (qp_linear){.kind = QP_LINEAR_DENSE,
                       .n_in = embed->n_cols,
                       .n_out = embed->n_rows,
                       .wtype = embed->wtype,
                       .w = embed->table};
    return QP_OK;
}

qp_status qp_load_want_bias(const qp_loader *ld, const char *key, uint32_t il, const qp_linear *const *l, size_t n,
                            qp_err *err)
{
    bool wanted;
    QP_TRY(qp_json_get_bool(ld->cfg.text, key, false, &wanted, ld->cfg.where, err));
    for (size_t i = 0; wanted && i < n; i++)
        if (!(l[i]->kind == QP_LINEAR_EXL3 ? l[i]->exl3.bias : l[i]->bias))
            return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is true, but layer %u lacks a bias tensor", ld->cfg.where, key,
                           il);
    return QP_OK;
}
