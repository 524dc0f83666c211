/* Opening a model and running its family: see model.h. */
#include "model/model.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "io/map.h"
#include "model/family.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const qp_family *const families[] = {&qp_family_llama, &qp_family_qwen3, &qp_family_gemma3, &qp_family_qwen3_5};
enum { N_FAMILIES = sizeof families / sizeof *families };

struct qp_model {
    const qp_family *family;
    void *weights; /* the family's own struct, in the arena */
    qp_arena arena;
    qp_checkpoint *ckpt;
    qp_tensor_use *use;
    qp_cache_layer *layers;
    qp_cache_spec spec;
    qp_model_info info;
    char architecture[128];
};

const char *qp_model_families(void)
{
    static const char *const list = "llama, qwen3, gemma3, qwen3_5";
    return list;
}

static const qp_family *find_family(const char *architecture)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        for (size_t k = 0; k < 4 && families[i]->architectures[k]; k++)
            if (!strcmp(families[i]->architectures[k], architecture)) return families[i];
    return NULL;
}

static qp_status read_architecture(qp_model *m, const json_t *root, const char *where, qp_err *err)
{
    const json_t *list = json_object_get(root, "architectures");
    const char *name = json_string_value(json_is_array(list) ? json_array_get(list, 0) : list);
    if (!name) return qp_fail(err, QP_EFORMAT, "%s: \"architectures\" is missing", where);
    m->family = find_family(name);
    if (!m->family)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: architecture %.100s is not served; these families are: %s", where,
                       name, qp_model_families());
    snprintf(m->architecture, sizeof m->architecture, "%s", name);
    return QP_OK;
}

static qp_status check_quantization(const json_t *root, const char *where, qp_err *err)
{
    const json_t *q = json_object_get(root, "quantization_config");
    const char *method;
    if (!q || json_is_null(q)) return QP_OK;
    QP_TRY(qp_json_get_str(q, "quant_method", NULL, &method, where, err));
    if (!method || strcmp(method, "exl3") != 0)
        return qp_fail(err, QP_EUNSUPPORTED,
                       "%s: quant_method \"%s\" is not served; exl3 is, and unquantized F32, F16, BF16", where,
                       method ? method : "(none)");
    return QP_OK;
}

static const char *find_prefix(const qp_checkpoint *c)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "model."};
    static const char *const tails[] = {"embed_tokens.weight", "embed_tokens.trellis"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        for (size_t k = 0; k < 2; k++) {
            char name[128];
            snprintf(name, sizeof name, "%s%s", prefixes[i], tails[k]);
            if (qp_checkpoint_find(c, name)) return prefixes[i];
        }
    return "model.";
}

static qp_status add_eos(qp_model_info *info, const json_t *v, const char *where, qp_err *err)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v || json_is_null(v)) return QP_OK;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
        bool seen = false;
        if (!json_is_integer(e) || json_integer_value(e) < 0 || json_integer_value(e) >= INT_MAX)
            return qp_fail(err, QP_EFORMAT, "%s: \"eos_token_id\" must be a token id or a list of them", where);
        int32_t id = (int32_t)json_integer_value(e);
        for (uint32_t k = 0; k < info->n_eos; k++) seen = seen || info->eos[k] == id;
        if (seen) continue;
        if (info->n_eos == QP_MAX_EOS)
            return qp_fail(err, QP_ELIMIT, "%s: more than %d different \"eos_token_id\"", where, QP_MAX_EOS);
        info->eos[info->n_eos++] = id;
    }
    return QP_OK;
}

/* A sampling default in [lo, hi]; -1 when the file does not give it. */
static qp_status get_default(const json_t *g, const char *key, double lo, double hi, double *out, const char *where,
                             qp_err *err)
{
    const json_t *v = json_object_get(g, key);
    QP_TRY(qp_json_get_f64(g, key, true, -1, out, where, err));
    if (v && !json_is_null(v) && !(*out >= lo && *out <= hi))
        return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is %g, must be in %g..%g", where, key, *out, lo, hi);
    return QP_OK;
}

/* Fields that would change the text and are not done here, by name. */
static void note_not_honoured(qp_model_info *info, const json_t *g)
{
    static const char *const keys[] = {
        "suppress_tokens",      "begin_suppress_tokens", "bad_words_ids",
        "no_repeat_ngram_size", "stop_strings",          "sequence_bias",
        "forced_bos_token_id",  "forced_eos_token_id",   "exponential_decay_length_penalty",
        "penalty_alpha"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(g, keys[i]);
        bool off = !v || json_is_null(v) || (json_is_array(v) && !json_array_size(v)) ||
                   (json_is_number(v) && !(json_number_value(v) > 0));
        if (off || used >= sizeof info->not_honoured) continue;
        int n =
            snprintf(info->not_honoured + used, sizeof info->not_honoured - used, "%s%s", used ? ", " : "", keys[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static qp_status read_generation_file(qp_model_info *info, const json_t *g, const char *path, qp_err *err)
{
    double top_k = -1;
    bool sample;
    if (!json_is_object(g)) return qp_fail(err, QP_EFORMAT, "%s: not a JSON object", path);
    QP_TRY(add_eos(info, json_object_get(g, "eos_token_id"), path, err));
    QP_TRY(get_default(g, "temperature", 0, 100, &info->temperature, path, err));
    QP_TRY(get_default(g, "top_p", 1e-6, 1, &info->top_p, path, err));
    QP_TRY(get_default(g, "min_p", 0, 1, &info->min_p, path, err));
    QP_TRY(get_default(g, "repetition_penalty", 1e-3, 100, &info->repetition_penalty, path, err));
    QP_TRY(get_default(g, "top_k", -1, INT_MAX, &top_k, path, err));
    if (floor(top_k) < top_k) return qp_fail(err, QP_EFORMAT, "%s: \"top_k\" is %g, not an integer", path, top_k);
    QP_TRY(qp_json_get_bool(g, "do_sample", true, &sample, path, err));
    if (!sample) info->temperature = 0; /* as transformers: greedy, whatever temperature says */
    info->top_k = top_k < INT_MAX ? (int32_t)top_k : -1;
    note_not_honoured(info, g);
    return QP_OK;
}

/* generation_config.json is optional; a malformed one is an error, since ignoring it would change answers. */
static qp_status read_generation(qp_model_info *info, const json_t *text, const char *dir, const char *config,
                                 qp_err *err)
{
    char path[PATH_MAX];
    struct stat unused;
    json_t *g = NULL;
    info->bos = info->top_k = -1;
    info->temperature = info->top_p = info->min_p = info->repetition_penalty = -1;
    const json_t *bos = json_object_get(text, "bos_token_id");
    if (json_is_integer(bos)) info->bos = (int32_t)json_integer_value(bos);
    QP_TRY(qp_path_join(path, sizeof path, dir, "generation_config.json", err));
    if (lstat(path, &unused) == 0) {
        QP_TRY(qp_json_load(&g, path, err));
        qp_status st = read_generation_file(info, g, path, err);
        json_decref(g);
        QP_TRY(st);
    }
    return add_eos(info, json_object_get(text, "eos_token_id"), config, err);
}

static void mark_later(qp_model *m)
{
    for (size_t i = 0; i < qp_checkpoint_n_tensors(m->ckpt); i++)
        for (size_t k = 0; k < 4 && m->family->later[k] && m->use[i] == QP_USE_NONE; k++) {
            const char *p = m->family->later[k];
            if (!strncmp(qp_checkpoint_at(m->ckpt, i)->name, p, strlen(p))) m->use[i] = QP_USE_LATER;
        }
}

static qp_status load(qp_model *m, const json_t *root, const char *where, const qp_model_opts *opts, qp_err *err)
{
    qp_loader ld = {.ckpt = m->ckpt, .arena = &m->arena, .use = m->use, .arith = opts->arith};
    QP_TRY(qp_config_read(&ld.cfg, root, where, m->family->default_rms_eps, err));
    ld.prefix = find_prefix(m->ckpt);
    QP_TRY(qp_new(&m->layers, ld.cfg.n_layers, sizeof *m->layers, "model", err));
    QP_TRY(m->family->load(&ld, &m->weights, m->layers, err));
    m->spec = (qp_cache_spec){ld.cfg.n_layers, m->layers};
    m->info.family = m->family->name;
    m->info.architecture = m->architecture;
    m->info.n_layers = ld.cfg.n_layers;
    m->info.d_model = ld.cfg.d_model;
    m->info.vocab = ld.cfg.vocab;
    m->info.max_position = ld.cfg.max_position;
    m->info.weight_bytes = ld.weight_bytes;
    m->info.heap_bytes = m->arena.total;
    m->info.n_weights = ld.n_weights;
    mark_later(m);
    return read_generation(&m->info, ld.cfg.text, qp_checkpoint_dir(m->ckpt), where, err);
}

static qp_status open_in(qp_model *m, const char *dir, const qp_model_opts *opts, qp_err *err)
{
    char path[PATH_MAX];
    json_t *root = NULL;
    if (!qp_path_is_dir(dir)) return qp_fail(err, QP_EIO, "%s: no such folder", dir);
    QP_TRY(qp_path_join(path, sizeof path, dir, "config.json", err));
    QP_TRY(qp_json_load(&root, path, err));
    qp_status st = read_architecture(m, root, path, err);
    if (st == QP_OK) st = check_quantization(root, path, err);
    if (st == QP_OK) st = qp_checkpoint_open(&m->ckpt, dir, err);
    if (st == QP_OK) {
        size_t n = qp_checkpoint_n_tensors(m->ckpt);
        st = qp_new(&m->use, n, sizeof *m->use, "model", err);
        for (size_t i = 0; st == QP_OK && i < n; i++) m->use[i] = QP_USE_NONE;
    }
    if (st == QP_OK) st = load(m, root, path, opts, err);
    json_decref(root);
    return st;
}

qp_status qp_model_open(qp_model **out, const char *dir, const qp_model_opts *opts, qp_err *err)
{
    qp_model *m = NULL;
    QP_TRY(qp_new(&m, 1, sizeof *m, "model", err));
    qp_arena_init(&m->arena, 0);
    qp_status st = open_in(m, dir, opts, err);
    if (st != QP_OK) {
        qp_model_close(m);
        return st;
    }
    *out = m;
    return QP_OK;
}

void qp_model_close(qp_model *m)
{
    if (!m) return;
    qp_checkpoint_close(m->ckpt);
    qp_arena_deinit(&m->arena);
    qp_free(m->use);
    qp_free(m->layers);
    qp_free(m);
}

const qp_model_info *qp_model_get_info(const qp_model *m)
{
    return &m->info;
}

const qp_checkpoint *qp_model_checkpoint(const qp_model *m)
{
    return m->ckpt;
}

const qp_cache_spec *qp_model_cache_spec(const qp_model *m)
{
    return &m->spec;
}

qp_tensor_use qp_model_tensor_use(const qp_model *m, size_t i)
{
    return m->use[i];
}

void qp_model_forward(const qp_model *m, qp_step *s, qp_vec *logits)
{
    const qp_family *f = m->family;
    qp_vec x = f->begin(m->weights, s);
    qp_op_trace(s, "embed", 0, x);
    for (uint32_t il = 0; il < m->spec.n_layers; il++) {
        size_t scratch = qp_step_mark(s);
        f->block(m->weights, il, s, x);
        qp_step_rewind(s, scratch);
        qp_op_trace(s, "layer", il, x);
    }
    *logits = f->end(m->weights, s, x);
}
