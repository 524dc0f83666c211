/* quantpack inspect: what is in a model folder: every tensor with its bits, codebook, bytes and use, and totals. */
#include "cli/cmd.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/term.h"
#include "io/json.h"
#include "io/map.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    bool json, totals;
} inspect_args;

#define AT(field) offsetof(inspect_args, field)
static const qp_opt options[] = {
    {"json", 0, QP_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "one JSON object", NULL},
    {"totals", 0, QP_OPT_FLAG, NULL, AT(totals), 0, 0, NULL, "no list of tensors", NULL},
};

typedef struct {
    size_t n_tensors, bytes;
    /* Of the tensors in use, or of all when the model could not be opened: */
    size_t n_exl3, exl3_bytes, exl3_trellis_bytes; /* linears, with their scales */
    uint64_t exl3_weights;
    size_t n_dense, dense_bytes; /* tensors of rank 2 and more */
    uint64_t dense_weights;
    size_t small_bytes; /* everything else: norms, biases, markers */
    size_t n_later, later_bytes, n_unused, unused_bytes;
} totals;

/* What one tensor is. */
typedef struct {
    double bits;          /* a weight; 0: not a weight */
    const char *codebook; /* or NULL */
    uint64_t n_weights;
    bool exl3, trellis;
} facts;

typedef struct {
    const qp_checkpoint *ckpt;
    const qp_model *model; /* NULL: could not be opened, why says the reason */
    const char *why;
    totals t;
} listing;

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* The tensor beside t whose last name component is `leaf` instead of t's (n_tail bytes), or NULL. */
static const qp_tensor *sibling(const qp_checkpoint *c, const qp_tensor *t, size_t n_tail, const char *leaf)
{
    char name[QP_MAX_NAME_BYTES + 32];
    int n = snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - n_tail), t->name, leaf);
    return n > 0 && (size_t)n < sizeof name ? qp_checkpoint_find(c, name) : NULL;
}

/* Bits of a 2-D trellis: rows of an embedding (groups of 256 with `signs` beside them) or of an n-gram table. */
static double row_bits(const qp_checkpoint *c, const qp_tensor *t, uint64_t *n_weights)
{
    const qp_tensor *signs = sibling(c, t, 7, "signs");
    double words = (double)t->shape[1];
    if (signs && signs->rank == 2 && signs->shape[0]) {
        *n_weights = t->shape[0] * signs->shape[0] * 256;
        return (words / (double)signs->shape[0] - 1) / 16;
    }
    *n_weights = t->shape[0] * 160;
    return (words - 1) / 10;
}

static facts facts_of(const qp_checkpoint *c, const qp_tensor *t)
{
    static const char *const leaves[] = {".suh", ".svh", ".su", ".sv", ".mcg", ".mul1"};
    facts f = {0, NULL, 0, false, false};
    if (ends_with(t->name, ".trellis") && (t->rank == 3 || t->rank == 2)) {
        f.exl3 = f.trellis = true;
        f.codebook = t->rank == 2 || sibling(c, t, 7, "mul1") ? "mul1" : sibling(c, t, 7, "mcg") ? "mcg" : "3inst";
        if (t->rank == 3) {
            f.bits = (double)t->shape[2] / 16;
            f.n_weights = t->shape[0] * t->shape[1] * 256;
        } else {
            f.bits = row_bits(c, t, &f.n_weights);
        }
        return f;
    }
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0]; i++)
        if (ends_with(t->name, leaves[i]) && sibling(c, t, strlen(leaves[i]) - 1, "trellis")) f.exl3 = true;
    if (!f.exl3) {
        f.bits = 8.0 * (double)qp_dtype_bytes(t->dtype);
        f.n_weights = t->n_elements;
    }
    return f;
}

static const char *use_name(const listing *l, size_t i)
{
    if (!l->model) return "unknown";
    switch (qp_model_tensor_use(l->model, i)) {
    case QP_USE_BOUND:
        return "used";
    case QP_USE_LATER:
        return "later";
    default:
        return "unused";
    }
}

static void count(listing *l, size_t i, const qp_tensor *t, const facts *f)
{
    totals *s = &l->t;
    s->n_tensors++;
    s->bytes += t->n_bytes;
    if (l->model && qp_model_tensor_use(l->model, i) == QP_USE_LATER) {
        s->n_later++;
        s->later_bytes += t->n_bytes;
        return;
    }
    if (l->model && qp_model_tensor_use(l->model, i) == QP_USE_NONE) {
        s->n_unused++;
        s->unused_bytes += t->n_bytes;
        return;
    }
    if (f->exl3) {
        s->exl3_bytes += t->n_bytes;
        if (f->trellis) {
            s->n_exl3++;
            s->exl3_weights += f->n_weights;
            s->exl3_trellis_bytes += t->n_bytes;
        }
    } else if (t->rank >= 2) {
        s->n_dense++;
        s->dense_bytes += t->n_bytes;
        s->dense_weights += t->n_elements;
    } else {
        s->small_bytes += t->n_bytes;
    }
}

static double per_weight(size_t bytes, uint64_t n_weights)
{
    return n_weights ? 8.0 * (double)bytes / (double)n_weights : 0;
}

static void print_text(listing *l, const inspect_args *args)
{
    int width = 20;
    char shape[128], bits[16], text[32];
    for (size_t i = 0; i < qp_checkpoint_n_tensors(l->ckpt); i++) {
        int n = (int)strlen(qp_checkpoint_at(l->ckpt, i)->name);
        width = n > width && n <= 90 ? n : width;
    }
    if (!args->totals)
        qp_out_printf("%-*s %-7s %-22s %6s %-8s %12s %s\n", width, "tensor", "type", "shape", "bits", "codebook",
                      "bytes", "use");
    for (size_t i = 0; i < qp_checkpoint_n_tensors(l->ckpt); i++) {
        const qp_tensor *t = qp_checkpoint_at(l->ckpt, i);
        facts f = facts_of(l->ckpt, t);
        count(l, i, t, &f);
        if (args->totals) continue;
        snprintf(bits, sizeof bits, f.bits > 0 ? "%g" : "-", f.bits);
        qp_out_printf("%-*s %-7s %-22s %6s %-8s %12zu %s\n", width, t->name, qp_dtype_name(t->dtype),
                      qp_tensor_shape_str(t, shape, sizeof shape), bits, f.codebook ? f.codebook : "-", t->n_bytes,
                      use_name(l, i));
    }
    const totals *s = &l->t;
    qp_out_printf("\n%zu tensors, %s\n", s->n_tensors, qp_bytes_text((double)s->bytes, text, sizeof text));
    if (s->n_exl3)
        qp_out_printf("EXL3:   %zu tensors, %llu weights, %s: %.3f bits a weight, %.3f with scales\n", s->n_exl3,
                      (unsigned long long)s->exl3_weights, qp_bytes_text((double)s->exl3_bytes, text, sizeof text),
                      per_weight(s->exl3_trellis_bytes, s->exl3_weights), per_weight(s->exl3_bytes, s->exl3_weights));
    if (s->n_dense)
        qp_out_printf("dense:  %zu tensors, %llu weights, %s: %.3f bits a weight\n", s->n_dense,
                      (unsigned long long)s->dense_weights, qp_bytes_text((double)s->dense_bytes, text, sizeof text),
                      per_weight(s->dense_bytes, s->dense_weights));
    qp_out_printf("small:  norms, biases and the like, %s\n", qp_bytes_text((double)s->small_bytes, text, sizeof text));
    qp_out_printf("all:    %.3f bits a weight\n",
                  per_weight(s->exl3_bytes + s->dense_bytes, s->exl3_weights + s->dense_weights));
    if (s->n_later)
        qp_out_printf("later:  %zu tensors of parts that this version does not run, %s\n", s->n_later,
                      qp_bytes_text((double)s->later_bytes, text, sizeof text));
    if (l->model) {
        qp_out_printf("unused: %zu tensors, %s\n", s->n_unused,
                      qp_bytes_text((double)s->unused_bytes, text, sizeof text));
        const qp_model_info *info = qp_model_get_info(l->model);
        qp_out_printf("model:  %s (%s), %u layers, d_model %u, vocabulary %u, positions %u\n", info->architecture,
                      info->family, info->n_layers, info->d_model, info->vocab, info->max_position);
    } else {
        qp_out_printf("model:  this version cannot run it: %s\n", l->why);
    }
}

static json_t *tensor_json(listing *l, size_t i)
{
    const qp_tensor *t = qp_checkpoint_at(l->ckpt, i);
    facts f = facts_of(l->ckpt, t);
    count(l, i, t, &f);
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->rank; d++) {
        if (json_array_append_new(shape, json_integer((json_int_t)t->shape[d])) == 0) continue;
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:s, s:s}", "name", t->name, "dtype", qp_dtype_name(t->dtype),
                     "shape", shape, "bits", f.bits > 0 ? json_real(f.bits) : json_null(), "codebook",
                     f.codebook ? json_string(f.codebook) : json_null(), "bytes", (json_int_t)t->n_bytes, "use",
                     use_name(l, i), "file", t->file);
}

static json_t *totals_json(const totals *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "tensors",
                     (json_int_t)s->n_tensors, "bytes", (json_int_t)s->bytes, "exl3_tensors", (json_int_t)s->n_exl3,
                     "exl3_weights", (json_int_t)s->exl3_weights, "exl3_bytes", (json_int_t)s->exl3_bytes,
                     "exl3_bits_per_weight", per_weight(s->exl3_trellis_bytes, s->exl3_weights),
                     "exl3_bits_per_weight_with_scales", per_weight(s->exl3_bytes, s->exl3_weights), "dense_tensors",
                     (json_int_t)s->n_dense, "dense_weights", (json_int_t)s->dense_weights, "dense_bytes",
                     (json_int_t)s->dense_bytes, "dense_bits_per_weight", per_weight(s->dense_bytes, s->dense_weights),
                     "bits_per_weight", per_weight(s->exl3_bytes + s->dense_bytes, s->exl3_weights + s->dense_weights),
                     "small_bytes", (json_int_t)s->small_bytes, "later_tensors", (json_int_t)s->n_later, "later_bytes",
                     (json_int_t)s->later_bytes, "unused_tensors", (json_int_t)s->n_unused, "unused_bytes",
                     (json_int_t)s->unused_bytes);
}

static json_t *model_json(const listing *l)
{
    if (!l->model) return json_pack("{s:s}", "error", l->why);
    const qp_model_info *i = qp_model_get_info(l->model);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "architecture", i->architecture, "family", i->family,
                     "n_layers", (json_int_t)i->n_layers, "d_model", (json_int_t)i->d_model, "vocab",
                     (json_int_t)i->vocab, "max_position", (json_int_t)i->max_position, "n_weights",
                     (json_int_t)i->n_weights);
}

static qp_status print_json(listing *l, const inspect_args *args, qp_err *err)
{
    json_t *list = args->totals ? NULL : json_array(), *root = json_object();
    bool ok = true;
    for (size_t i = 0; i < qp_checkpoint_n_tensors(l->ckpt); i++) {
        json_t *t = tensor_json(l, i);
        if (!args->totals)
            ok = json_array_append_new(list, t) == 0 && ok;
        else
            json_decref(t);
    }
    ok = json_object_set_new(root, "dir", json_string(qp_checkpoint_dir(l->ckpt))) == 0 && ok;
    ok = json_object_set_new(root, "model", model_json(l)) == 0 && ok;
    ok = json_object_set_new(root, "totals", totals_json(&l->t)) == 0 && ok;
    if (!args->totals) ok = json_object_set_new(root, "tensors", list) == 0 && ok;
    if (!ok) {
        json_decref(root);
        root = NULL;
    }
    return qp_out_json(root, JSON_INDENT(1), err);
}

static qp_status run(const char *dir, const inspect_args *args, qp_err *err)
{
    qp_model *model = NULL;
    qp_checkpoint *own = NULL;
    qp_err why = {QP_OK, ""};
    qp_status st;
    qp_json_init();
    if (!qp_path_is_dir(dir)) return qp_fail(err, QP_EIO, "%s: no such folder", dir);
    listing l = {0};
    if (qp_model_open(&model, dir, &(qp_model_opts){QP_EXL3_I16}, &why) == QP_OK) {
        l.model = model;
        l.ckpt = qp_model_checkpoint(model);
    } else if (why.status == QP_ENOMEM) {
        return qp_fail(err, why.status, "%s", why.msg);
    } else {
        QP_TRY(qp_checkpoint_open(&own, dir, err));
        l.ckpt = own;
        l.why = why.msg;
    }
    st = QP_OK;
    if (args->json)
        st = print_json(&l, args, err);
    else
        print_text(&l, args);
    qp_model_close(model);
    qp_checkpoint_close(own);
    return st;
}

int qp_cmd_inspect(int argc, char **argv)
{
    inspect_args args = {false, false};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args}};
    const qp_usage usage = {
        .command = "inspect",
        .arguments = "MODEL [options]",
        .summary = "what is in a model folder: tensors, bits, bytes, use",
        .description = "`use` is \"used\", \"later\" (recognised, for a part that this version does not run) or "
                       "\"unused\". Averages are over the tensors that are used, padding of layers included.",
        .examples = "  quantpack inspect models/mine\n  quantpack inspect models/mine --totals --json\n",
        .min_positional = 1,
        .max_positional = 1,
        .groups = groups,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    qp_err err = {0};
    return run(pos[0], &args, &err) == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
