/* config.json: see config.h. Facts: the model families' documents; rope types: llama.md and generic.md. */
#include "model/config.h"

#include "io/limits.h"

#include <math.h>
#include <string.h>

qp_status qp_config_read(qp_config *out, const json_t *root, const char *where, double default_rms_eps, qp_err *err)
{
    qp_config c = {.root = root, .where = where};
    if (!json_is_object(root)) return qp_fail(err, QP_EFORMAT, "%s: not a JSON object", where);
    const json_t *text = json_object_get(root, "text_config");
    c.text = json_is_object(text) ? text : root;
    const json_t *t = c.text;
    QP_TRY(qp_json_get_u32(t, "hidden_size", 8, QP_MAX_DIM, false, 0, &c.d_model, where, err));
    QP_TRY(qp_json_get_u32(t, "intermediate_size", 1, QP_MAX_DIM, true, 0, &c.d_ff, where, err));
    QP_TRY(qp_json_get_u32(t, "num_hidden_layers", 1, QP_MAX_LAYERS, false, 0, &c.n_layers, where, err));
    QP_TRY(qp_json_get_u32(t, "num_attention_heads", 1, 4096, false, 0, &c.n_heads, where, err));
    QP_TRY(qp_json_get_u32(t, "num_key_value_heads", 1, 4096, true, c.n_heads, &c.n_kv_heads, where, err));
    QP_TRY(qp_json_get_u32(t, "head_dim", 8, 512, true, 0, &c.head_dim, where, err));
    QP_TRY(qp_json_get_u32(t, "vocab_size", 1, QP_MAX_VOCAB, false, 0, &c.vocab, where, err));
    QP_TRY(qp_json_get_u32(t, "max_position_embeddings", 1, QP_MAX_POSITION, true, 0, &c.max_position, where, err));
    double eps;
    QP_TRY(qp_json_get_f64(t, "rms_norm_eps", true, default_rms_eps, &eps, where, err));
    if (!(eps > 0 && eps < 1))
        return qp_fail(err, QP_EFORMAT, "%s: \"rms_norm_eps\" is %g, must be in (0, 1)", where, eps);
    c.rms_eps = (float)eps;
    if (!c.head_dim) {
        if (c.d_model % c.n_heads)
            return qp_fail(err, QP_EFORMAT, "%s: hidden_size %u is no multiple of num_attention_heads %u", where,
                           c.d_model, c.n_heads);
        c.head_dim = c.d_model / c.n_heads;
    }
    if (c.n_heads % c.n_kv_heads)
        return qp_fail(err, QP_EFORMAT, "%s: num_attention_heads %u is no multiple of num_key_value_heads %u", where,
                       c.n_heads, c.n_kv_heads);
    if (c.head_dim % 8 || c.head_dim > 512)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: head_dim %u, must be a multiple of 8 up to 512", where, c.head_dim);
    if ((uint64_t)c.n_heads * c.head_dim > QP_MAX_DIM)
        return qp_fail(err, QP_ELIMIT, "%s: %u heads of %u channels are more than %u", where, c.n_heads, c.head_dim,
                       QP_MAX_DIM);
    *out = c;
    return QP_OK;
}

qp_status qp_config_want_act(const qp_config *c, const char *want, qp_err *err)
{
    const char *act;
    QP_TRY(qp_json_get_str(c->text, "hidden_activation", NULL, &act, c->where, err));
    if (!act) QP_TRY(qp_json_get_str(c->text, "hidden_act", want, &act, c->where, err));
    if (strcmp(act, want) != 0)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: activation \"%s\", this family is built with \"%s\"", c->where, act,
                       want);
    return QP_OK;
}

qp_status qp_config_layer_type(const qp_config *c, uint32_t il, const char **out, qp_err *err)
{
    const json_t *types = json_object_get(c->text, "layer_types");
    *out = NULL;
    if (!types || json_is_null(types)) return QP_OK;
    if (!json_is_array(types) || json_array_size(types) < c->n_layers)
        return qp_fail(err, QP_EFORMAT, "%s: \"layer_types\" must list %u layers", c->where, c->n_layers);
    const char *type = json_string_value(json_array_get(types, il));
    if (!type) return qp_fail(err, QP_EFORMAT, "%s: layer_types[%u] is not a string", c->where, il);
    *out = type;
    return QP_OK;
}

typedef struct rope_config {
    const char *type;
    double theta, partial, factor;
    const json_t *params; /* further keys of the type */
} rope_config;

static qp_status want_object(const qp_config *c, const char *key, const json_t *v, qp_err *err)
{
    if (!v || json_is_null(v) || json_is_object(v)) return QP_OK;
    return qp_fail(err, QP_EFORMAT, "%s: \"%s\" is not an object", c->where, key);
}

static qp_status find_rope(const qp_config *c, const char *layer_type, double default_theta, rope_config *r,
                           qp_err *err)
{
    const json_t *p = json_object_get(c->text, "rope_parameters");
    bool sliding = layer_type && !strcmp(layer_type, "sliding_attention");
    const json_t *scaling = json_object_get(c->text, "rope_scaling");
    QP_TRY(want_object(c, "rope_parameters", p, err));
    QP_TRY(want_object(c, "rope_scaling", scaling, err));
    if (json_is_object(p) && json_is_object(scaling) && !json_equal(p, scaling))
        return qp_fail(err, QP_EUNSUPPORTED, "%s: \"rope_parameters\" and \"rope_scaling\" differ; keep one", c->where);
    QP_TRY(qp_json_get_f64(c->text, "partial_rotary_factor", true, 1, &r->partial, c->where, err));
    const char *key =
        sliding && json_object_get(c->text, "rope_local_base_freq") ? "rope_local_base_freq" : "rope_theta";
    QP_TRY(qp_json_get_f64(c->text, key, true, default_theta, &default_theta, c->where, err));
    if (json_is_object(p)) {
        const json_t *nested = layer_type ? json_object_get(p, layer_type) : NULL;
        if (json_is_object(nested)) p = nested;
    } else {
        p = sliding ? NULL : scaling; /* rope_scaling applies to full layers alone */
    }
    r->params = json_is_object(p) ? p : NULL;
    QP_TRY(qp_json_get_f64(r->params, "rope_theta", true, default_theta, &r->theta, c->where, err));
    QP_TRY(qp_json_get_f64(r->params, "partial_rotary_factor", true, r->partial, &r->partial, c->where, err));
    QP_TRY(qp_json_get_str(r->params, "rope_type", NULL, &r->type, c->where, err));
    if (!r->type) QP_TRY(qp_json_get_str(r->params, "type", "default", &r->type, c->where, err));
    QP_TRY(qp_json_get_f64(r->params, "factor", true, 1, &r->factor, c->where, err));
    bool ok = r->theta >= 1 && r->theta <= 1e15 && r->factor >= 1e-3 && r->factor <= 1e6;
    if (!ok || !(r->partial > 0 && r->partial <= 1))
        return qp_fail(err, QP_EFORMAT,
                       "%s: rope theta %g, factor %g, partial_rotary_factor %g; must be in 1..1e15, 1e-3..1e6, (0, 1]",
                       c->where, r->theta, r->factor, r->partial);
    return QP_OK;
}

static qp_status llama3_scale(const qp_config *c, const rope_config *r, double *f, uint32_t n, qp_err *err)
{
    double low, high, original;
    QP_TRY(qp_json_get_f64(r->params, "low_freq_factor", false, 0, &low, c->where, err));
    QP_TRY(qp_json_get_f64(r->params, "high_freq_factor", false, 0, &high, c->where, err));
    QP_TRY(qp_json_get_f64(r->params, "original_max_position_embeddings", false, 0, &original, c->where, err));
    if (!(low > 0 && high > low && original > 0))
        return qp_fail(err, QP_EFORMAT, "%s: llama3 rope: low %g, high %g, original %g", c->where, low, high, original);
    for (uint32_t i = 0; i < n; i++) {
        double wave = 2 * acos(-1.0) / f[i];
        if (wave < original / high) continue;
        if (wave > original / low) {
            f[i] /= r->factor;
            continue;
        }
        double s = (original / wave - low) / (high - low);
        f[i] = (1 - s) * f[i] / r->factor + s * f[i];
    }
    return QP_OK;
}

static qp_status yarn_scale(const qp_config *c, const rope_config *r, double *f, uint32_t n, double *magnitude,
                            qp_err *err)
{
    double fast, slow, original, dim = 2.0 * n;
    QP_TRY(qp_json_get_f64(r->params, "beta_fast", true, 32, &fast, c->where, err));
    QP_TRY(qp_json_get_f64(r->params, "beta_slow", true, 1, &slow, c->where, err));
    QP_TRY(qp_json_get_f64(r->params, "original_max_position_embeddings", true, c->max_position, &original, c->where,
                           err));
    QP_TRY(qp_json_get_f64(r->params, "attention_factor", true, 0.1 * log(r->factor) + 1, magnitude, c->where, err));
    if (!(fast > 0 && slow > 0 && original > 0 && r->theta > 1 && *magnitude > 0 && *magnitude <= 100))
        return qp_fail(err, QP_EFORMAT, "%s: yarn rope: beta_fast %g, beta_slow %g, original %g, attention_factor %g",
                       c->where, fast, slow, original, *magnitude);
    const char *const others[] = {"mscale", "mscale_all_dim", "truncate"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_object_get(r->params, others[i]);
        if (v && !json_is_null(v) && !json_is_true(v))
            return qp_fail(err, QP_EUNSUPPORTED, "%s: yarn rope with \"%s\"", c->where, others[i]);
    }
    double two_pi = 2 * acos(-1.0), ln = 2 * log(r->theta);
    double low = floor(dim * log(original / (fast * two_pi)) / ln),
           high = ceil(dim * log(original / (slow * two_pi)) / ln);
    low = fmin(fmax(low, 0), dim - 1);
    high = fmin(fmax(high, 0), dim - 1);
    if (!(high > low)) high = low + 0.001;
    for (uint32_t i = 0; i < n; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        f[i] = (1 - ramp) * f[i] + ramp * f[i] / r->factor;
    }
    return QP_OK;
}

qp_status qp_config_rope(const qp_config *c, const char *layer_type, double default_theta, qp_arena *arena,
                         qp_rope *out, qp_err *err)
{
    rope_config r;
    double magnitude = 1;
    QP_TRY(find_rope(c, layer_type, default_theta, &r, err));
    uint32_t n = (uint32_t)(r.partial * c->head_dim) / 2;
    if (n < 1) return qp_fail(err, QP_EFORMAT, "%s: partial_rotary_factor %g leaves no channel", c->where, r.partial);
    double *f = qp_arena_alloc(arena, n * sizeof *f);
    if (!f) return qp_fail(err, QP_ENOMEM, "%s: no memory for rope frequencies", c->where);
    for (uint32_t i = 0; i < n; i++) f[i] = pow(r.theta, -2.0 * i / (2.0 * n));
    if (!strcmp(r.type, "linear")) {
        for (uint32_t i = 0; i < n; i++) f[i] /= r.factor;
    } else if (!strcmp(r.type, "llama3")) {
        QP_TRY(llama3_scale(c, &r, f, n, err));
    } else if (!strcmp(r.type, "yarn")) {
        QP_TRY(yarn_scale(c, &r, f, n, &magnitude, err));
    } else if (strcmp(r.type, "default") != 0 && strcmp(r.type, "mrope") != 0) {
        return qp_fail(err, QP_EUNSUPPORTED, "%s: rope type \"%s\"; default, linear, llama3 and yarn are served",
                       c->where, r.type);
    }
    *out = (qp_rope){f, n, magnitude};
    return QP_OK;
}

qp_status qp_config_want_full_attention(const qp_config *c, qp_err *err)
{
    for (uint32_t il = 0; il < c->n_layers; il++) {
        const char *type;
        QP_TRY(qp_config_layer_type(c, il, &type, err));
        if (type && strcmp(type, "full_attention") != 0)
            return qp_fail(err, QP_EUNSUPPORTED, "%s: layer_types[%u] is \"%s\"; this family has full_attention alone",
                           c->where, il, type);
    }
    return QP_OK;
}
