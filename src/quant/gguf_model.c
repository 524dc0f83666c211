/* GGUF metadata as a model: see gguf_model.h. Keys and names are those of formats/gguf_import.md. */
#include "quant/gguf_model.h"

#include "base/num.h"
#include "quant/ggml_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HF_NAME_CAP = sizeof((qp_gguf_rule *)0)->hf_name, KEY_CAP = 96 };
static const uint64_t NONE = UINT64_MAX;

static const struct {
    const char *name, *architecture, *model_type;
} archs[QP_GGUF_N_ARCHS] = {
    [QP_GGUF_LLAMA] = {"llama", "LlamaForCausalLM", "llama"},
    [QP_GGUF_GEMMA3] = {"gemma3", "Gemma3ForCausalLM", "gemma3_text"},
    [QP_GGUF_QWEN3] = {"qwen3", "Qwen3ForCausalLM", "qwen3"},
};

/* Tensors of a layer: name in the GGUF, name in the checkpoint by architecture (NULL: it has none). Those with a bias
 * may have one in llama alone. */
static const struct {
    const char *gguf, *hf[QP_GGUF_N_ARCHS];
    bool may_have_bias;
} layer_tensors[] = {
    {"attn_norm", {"input_layernorm", "input_layernorm", "input_layernorm"}, false},
    {"attn_q", {"self_attn.q_proj", "self_attn.q_proj", "self_attn.q_proj"}, true},
    {"attn_k", {"self_attn.k_proj", "self_attn.k_proj", "self_attn.k_proj"}, true},
    {"attn_v", {"self_attn.v_proj", "self_attn.v_proj", "self_attn.v_proj"}, true},
    {"attn_output", {"self_attn.o_proj", "self_attn.o_proj", "self_attn.o_proj"}, true},
    {"attn_q_norm", {NULL, "self_attn.q_norm", "self_attn.q_norm"}, false},
    {"attn_k_norm", {NULL, "self_attn.k_norm", "self_attn.k_norm"}, false},
    {"post_attention_norm", {NULL, "post_attention_layernorm", NULL}, false},
    {"ffn_norm", {"post_attention_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm"}, false},
    {"ffn_gate", {"mlp.gate_proj", "mlp.gate_proj", "mlp.gate_proj"}, true},
    {"ffn_up", {"mlp.up_proj", "mlp.up_proj", "mlp.up_proj"}, true},
    {"ffn_down", {"mlp.down_proj", "mlp.down_proj", "mlp.down_proj"}, true},
    {"post_ffw_norm", {NULL, "post_feedforward_layernorm", NULL}, false},
};
enum { N_LAYER_TENSORS = sizeof layer_tensors / sizeof *layer_tensors };

/* ---- metadata ---- */

/* "<architecture>.<suffix>" in key[KEY_CAP]; returns key. */
static const char *arch_key(const qp_gguf_model *m, const char *suffix, char *key)
{
    snprintf(key, KEY_CAP, "%s.%s", archs[m->arch].name, suffix);
    return key;
}

static qp_status get_size(const qp_gguf_model *m, const qp_gguf *g, const char *suffix, uint64_t hi,
                          const uint64_t *fallback, uint64_t *out, qp_err *err)
{
    char key[KEY_CAP];
    return qp_gguf_get_u64(g, arch_key(m, suffix, key), 1, hi, fallback, out, err);
}

static qp_status get_positive(const qp_gguf_model *m, const qp_gguf *g, const char *suffix, const float *fallback,
                              float *out, qp_err *err)
{
    char key[KEY_CAP];
    float v;
    QP_TRY(qp_gguf_get_f32(g, arch_key(m, suffix, key), fallback, &v, err));
    if (!(v > 0) && qp_gguf_has(g, key))
        return qp_fail(err, QP_EFORMAT, "%s: %s is %g, must be positive", qp_gguf_name(g), key, (double)v);
    *out = v;
    return QP_OK;
}

static qp_status read_arch(qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    qp_gguf_str s;
    QP_TRY(qp_gguf_get_str(g, "general.architecture", false, &s, err));
    for (int i = 0; i < QP_GGUF_N_ARCHS; i++) {
        if (strlen(archs[i].name) == s.n && memcmp(archs[i].name, s.s, s.n) == 0) {
            m->arch = (qp_gguf_arch)i;
            return QP_OK;
        }
    }
    return qp_fail(
        err, QP_EUNSUPPORTED,
        "%s: general.architecture is \"%.*s\", supported are llama, gemma3 and qwen3; other families are read "
        "from their safetensors checkpoints",
        qp_gguf_name(g), (int)(s.n < 40 ? s.n : 40), s.s);
}

/* Keys that change the arithmetic in a way no config that is written here expresses. */
static qp_status check_unsupported_keys(const qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    static const char *const suffixes[] = {"expert_count",
                                           "expert_used_count",
                                           "attention.scale",
                                           "embedding_scale",
                                           "residual_scale",
                                           "logit_scale",
                                           "attention.causal",
                                           "attention.clamp_kqv",
                                           "attention.max_alibi_bias",
                                           "rope.scaling.attn_factor",
                                           "rope.scaling.yarn_ext_factor",
                                           "rope.scaling.yarn_attn_factor",
                                           "rope.scaling.yarn_log_multiplier"};
    char key[KEY_CAP];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (!qp_gguf_has(g, arch_key(m, suffixes[i], key))) continue;
        uint64_t v = 1;
        qp_err ignored;
        if (i < 2 && qp_gguf_get_u64(g, key, 0, UINT64_MAX, NULL, &v, &ignored) == QP_OK && v == 0) continue;
        return qp_fail(err, QP_EUNSUPPORTED, "%s: %s is set: the import cannot express it", qp_gguf_name(g), key);
    }
    static const char *const softcaps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < 2 && m->arch != QP_GGUF_GEMMA3; i++)
        if (qp_gguf_has(g, arch_key(m, softcaps[i], key)))
            return qp_fail(err, QP_EUNSUPPORTED, "%s: %s is set: the import cannot express it", qp_gguf_name(g), key);
    return QP_OK;
}

static qp_status read_head_dim(qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    char key[KEY_CAP], other[KEY_CAP];
    uint64_t fallback = m->arch == QP_GGUF_GEMMA3 ? 256 : m->arch == QP_GGUF_QWEN3 ? 128 : m->d_model / m->n_heads, v;
    bool has_key_length = qp_gguf_has(g, arch_key(m, "attention.key_length", key));
    if (!has_key_length && m->arch == QP_GGUF_LLAMA)
        QP_TRY(get_size(m, g, "rope.dimension_count", QP_MAX_DIM, &fallback, &fallback, err));
    QP_TRY(get_size(m, g, "attention.key_length", QP_MAX_DIM, &fallback, &m->head_dim, err));
    static const char *const same[] = {"attention.value_length", "rope.dimension_count"};
    for (int i = 0; i < 2; i++) {
        QP_TRY(get_size(m, g, same[i], QP_MAX_DIM, &m->head_dim, &v, err));
        if (v != m->head_dim)
            return qp_fail(err, QP_EUNSUPPORTED, "%s: %s is %llu, must equal the head size %llu", qp_gguf_name(g),
                           arch_key(m, same[i], other), (unsigned long long)v, (unsigned long long)m->head_dim);
    }
    if (m->head_dim % 2)
        return qp_fail(err, QP_EFORMAT, "%s: head size %llu, must be even", qp_gguf_name(g),
                       (unsigned long long)m->head_dim);
    return QP_OK;
}

static qp_status read_sizes(qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    static const float theta = 10000, none = 0;
    QP_TRY(get_size(m, g, "embedding_length", QP_MAX_DIM, NULL, &m->d_model, err));
    QP_TRY(get_size(m, g, "feed_forward_length", QP_MAX_DIM, NULL, &m->d_ff, err));
    QP_TRY(get_size(m, g, "block_count", QP_MAX_LAYERS, NULL, &m->n_layers, err));
    QP_TRY(get_size(m, g, "attention.head_count", QP_MAX_DIM, NULL, &m->n_heads, err));
    QP_TRY(get_size(m, g, "attention.head_count_kv", m->n_heads, &m->n_heads, &m->n_kv_heads, err));
    QP_TRY(get_size(m, g, "context_length", QP_MAX_POSITION, NULL, &m->context, err));
    QP_TRY(get_positive(m, g, "attention.layer_norm_rms_epsilon", NULL, &m->rms_eps, err));
    QP_TRY(get_positive(m, g, "rope.freq_base", &theta, &m->rope_theta, err));
    QP_TRY(read_head_dim(m, g, err));
    m->query_scalar = m->head_dim;
    if (m->arch != QP_GGUF_GEMMA3) return QP_OK;
    QP_TRY(get_size(m, g, "attention.sliding_window", QP_MAX_POSITION, NULL, &m->window, err));
    QP_TRY(get_positive(m, g, "rope.freq_base_swa", &theta, &m->rope_local_theta, err));
    QP_TRY(get_positive(m, g, "attn_logit_softcapping", &none, &m->attn_softcap, err));
    QP_TRY(get_positive(m, g, "final_logit_softcapping", &none, &m->final_softcap, err));
    /* The 27B model (62 layers) scales queries by d_model / n_heads = 168; no key says so. */
    if (m->n_layers == 62) m->query_scalar = m->d_model / m->n_heads;
    return QP_OK;
}

/* ---- rotary scaling ---- */

/* rope_freqs.weight holds, for each pair, what its frequency is divided by. Llama 3.1 and later store the result of
 * their rule there and nothing else; the rule's factor is the largest value, and the rest is checked against it. */
static qp_status read_rope_freqs(qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    const double low = 1, high = 4, context = 8192;
    const qp_gguf_tensor *t = qp_gguf_tensor_find(g, "rope_freqs.weight");
    bool plain = true;
    if (!t) return QP_OK;
    if (t->type->id != QP_GGML_F32 || t->rank != 1 || t->row_len != m->head_dim / 2)
        return qp_fail(err, QP_EFORMAT, "%s: rope_freqs.weight: %s of %zu values, must be F32 of %llu", qp_gguf_name(g),
                       t->type->name, t->row_len, (unsigned long long)m->head_dim / 2);
    float factor, v;
    qp_ggml_decode(t->type, t->data + 4 * (t->row_len - 1), 1, &factor);
    if (!(factor >= 1 && factor <= 1e6f))
        return qp_fail(err, QP_EFORMAT, "%s: rope_freqs.weight ends with %g, must be 1..1e6", qp_gguf_name(g),
                       (double)factor);
    for (size_t i = 0; i < t->row_len; i++) {
        qp_ggml_decode(t->type, t->data + 4 * i, 1, &v);
        double inv_freq = pow((double)m->rope_theta, -2.0 * (double)i / (double)m->head_dim);
        double wavelen = 2 * 3.14159265358979323846 / inv_freq;
        double smooth = (context / wavelen - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        double want = 1 / ((1 - smooth) / (double)factor + smooth);
        plain = plain && v >= 1 && v <= 1;
        if (!(fabs((double)v - want) <= 1e-4 * want))
            return qp_fail(
                err, QP_EUNSUPPORTED,
                "%s: rope_freqs.weight[%zu] is %g, Llama 3's rule gives %g: a rotary scaling that the import "
                "does not know",
                qp_gguf_name(g), i, (double)v, want);
    }
    if (plain) return QP_OK;
    if (m->rope_type)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: both rope_freqs.weight and rope.scaling.type", qp_gguf_name(g));
    m->rope_type = "llama3";
    m->rope_factor = factor;
    m->rope_context = (uint64_t)context;
    return QP_OK;
}

static qp_status read_rope_scaling(qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    static const float one = 1;
    char key[KEY_CAP];
    qp_gguf_str s;
    QP_TRY(get_positive(m, g, "rope.scale_linear", &one, &m->rope_factor, err));
    if (m->rope_factor < 1 || m->rope_factor > 1) m->rope_type = "linear";
    QP_TRY(qp_gguf_get_str(g, arch_key(m, "rope.scaling.type", key), true, &s, err));
    if (s.n && !(s.n == 4 && memcmp(s.s, "none", 4) == 0)) {
        m->rope_type = s.n == 6 && memcmp(s.s, "linear", 6) == 0 ? "linear"
                       : s.n == 4 && memcmp(s.s, "yarn", 4) == 0 ? "yarn"
                                                                 : NULL;
        if (!m->rope_type)
            return qp_fail(err, QP_EUNSUPPORTED, "%s: %s is \"%.*s\", supported are none, linear and yarn",
                           qp_gguf_name(g), key, (int)(s.n < 40 ? s.n : 40), s.s);
        QP_TRY(get_positive(m, g, "rope.scaling.factor", NULL, &m->rope_factor, err));
        QP_TRY(get_size(m, g, "rope.scaling.original_context_length", QP_MAX_POSITION, &m->context, &m->rope_context,
                        err));
    }
    return read_rope_freqs(m, g, err);
}

qp_status qp_gguf_model_read(qp_gguf_model *out, const qp_gguf *g, qp_err *err)
{
    qp_gguf_model model = {0}, *m = &model;
    QP_TRY(read_arch(m, g, err));
    QP_TRY(check_unsupported_keys(m, g, err));
    QP_TRY(read_sizes(m, g, err));
    QP_TRY(read_rope_scaling(m, g, err));
    const qp_gguf_tensor *embed = qp_gguf_tensor_find(g, "token_embd.weight");
    if (!embed || embed->rank != 2 || embed->row_len != m->d_model || embed->n_rows > QP_MAX_VOCAB)
        return qp_fail(err, QP_EFORMAT, "%s: token_embd.weight: %s, must be [1..%u, %llu]", qp_gguf_name(g),
                       embed ? "of another shape" : "missing", QP_MAX_VOCAB, (unsigned long long)m->d_model);
    m->vocab = embed->n_rows;
    m->tied = !qp_gguf_tensor_find(g, "output.weight");
    m->attention_bias = qp_gguf_tensor_find(g, "blk.0.attn_q.bias") != NULL;
    m->mlp_bias = qp_gguf_tensor_find(g, "blk.0.ffn_gate.bias") != NULL;
    uint64_t last = m->vocab - 1;
    QP_TRY(qp_gguf_get_u64(g, "tokenizer.ggml.bos_token_id", 0, last, &NONE, &m->bos, err));
    QP_TRY(qp_gguf_get_u64(g, "tokenizer.ggml.eos_token_id", 0, last, &NONE, &m->eos, err));
    QP_TRY(qp_gguf_get_u64(g, "tokenizer.ggml.padding_token_id", 0, last, &NONE, &m->pad, err));
    QP_TRY(qp_gguf_get_u64(g, "tokenizer.ggml.eot_token_id", 0, last, &NONE, &m->eot, err));
    *out = model;
    return QP_OK;
}

/* ---- config.json ---- */

static void add_key(qp_buf *b, const char *key)
{
    qp_buf_printf(b, "%s\n \"%s\": ", b->data && b->data[b->len - 1] == '{' ? "" : ",", key);
}

static void add_u64(qp_buf *b, const char *key, uint64_t v)
{
    add_key(b, key);
    if (v == NONE)
        qp_buf_adds(b, "null");
    else
        qp_buf_printf(b, "%llu", (unsigned long long)v);
}

static void add_str(qp_buf *b, const char *key, const char *v)
{
    add_key(b, key);
    qp_buf_printf(b, "\"%s\"", v);
}

static void add_bool(qp_buf *b, const char *key, bool v)
{
    add_key(b, key);
    qp_buf_adds(b, v ? "true" : "false");
}

/* The shortest decimal that reads back as the same float, always with a point or an exponent. */
static void add_decimal(qp_buf *b, float v)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        float back = strtof(text, NULL);
        if (qp_f32_bits(back) == qp_f32_bits(v)) break;
    }
    qp_buf_printf(b, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void add_f32(qp_buf *b, const char *key, float v)
{
    add_key(b, key);
    add_decimal(b, v);
}

static void add_rope_scaling(const qp_gguf_model *m, qp_buf *b)
{
    add_key(b, "rope_scaling");
    qp_buf_printf(b, "{\"rope_type\": \"%s\", \"factor\": ", m->rope_type);
    add_decimal(b, m->rope_factor);
    if (strcmp(m->rope_type, "llama3") == 0) qp_buf_adds(b, ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0");
    if (strcmp(m->rope_type, "linear") != 0)
        qp_buf_printf(b, ", \"original_max_position_embeddings\": %llu", (unsigned long long)m->rope_context);
    qp_buf_addc(b, '}');
}

static void add_softcap(qp_buf *b, const char *key, float v)
{
    if (v > 0)
        add_f32(b, key, v);
    else
        add_u64(b, key, NONE);
}

static void add_gemma3(const qp_gguf_model *m, qp_buf *b)
{
    add_str(b, "hidden_activation", "gelu_pytorch_tanh");
    add_u64(b, "sliding_window", m->window);
    add_f32(b, "rope_local_base_freq", m->rope_local_theta);
    add_u64(b, "query_pre_attn_scalar", m->query_scalar);
    add_softcap(b, "attn_logit_softcapping", m->attn_softcap);
    add_softcap(b, "final_logit_softcapping", m->final_softcap);
    add_key(b, "layer_types");
    for (uint64_t i = 0; i < m->n_layers; i++)
        qp_buf_printf(b, "%s\n  \"%s\"", i ? "," : "[", (i + 1) % 6 ? "sliding_attention" : "full_attention");
    qp_buf_adds(b, "\n ]");
}

void qp_gguf_model_config(const qp_gguf_model *m, bool f32, qp_buf *b)
{
    const char *dtype = f32 ? "float32" : "bfloat16";
    qp_buf_addc(b, '{');
    add_key(b, "architectures");
    qp_buf_printf(b, "[\"%s\"]", archs[m->arch].architecture);
    add_str(b, "model_type", archs[m->arch].model_type);
    add_u64(b, "hidden_size", m->d_model);
    add_u64(b, "intermediate_size", m->d_ff);
    add_u64(b, "num_hidden_layers", m->n_layers);
    add_u64(b, "num_attention_heads", m->n_heads);
    add_u64(b, "num_key_value_heads", m->n_kv_heads);
    add_u64(b, "head_dim", m->head_dim);
    add_u64(b, "max_position_embeddings", m->context);
    add_f32(b, "rms_norm_eps", m->rms_eps);
    add_f32(b, "rope_theta", m->rope_theta);
    if (m->rope_type) add_rope_scaling(m, b);
    add_u64(b, "vocab_size", m->vocab);
    add_bool(b, "tie_word_embeddings", m->tied);
    add_bool(b, "attention_bias", m->attention_bias);
    add_str(b, "dtype", dtype);
    add_str(b, "torch_dtype", dtype);
    add_u64(b, "bos_token_id", m->bos);
    add_u64(b, "eos_token_id", m->eos);
    add_u64(b, "pad_token_id", m->pad);
    if (m->arch == QP_GGUF_GEMMA3)
        add_gemma3(m, b);
    else
        add_str(b, "hidden_act", "silu");
    if (m->arch == QP_GGUF_LLAMA) add_bool(b, "mlp_bias", m->mlp_bias);
    qp_buf_adds(b, "\n}\n");
}

void qp_gguf_model_generation_config(const qp_gguf_model *m, qp_buf *b)
{
    qp_buf_addc(b, '{');
    if (m->bos != NONE) add_u64(b, "bos_token_id", m->bos);
    if (m->eos != NONE && m->eot != NONE && m->eot != m->eos) {
        add_key(b, "eos_token_id");
        qp_buf_printf(b, "[%llu, %llu]", (unsigned long long)m->eos, (unsigned long long)m->eot);
    } else if (m->eos != NONE) {
        add_u64(b, "eos_token_id", m->eos);
    }
    if (m->pad != NONE) add_u64(b, "pad_token_id", m->pad);
    qp_buf_adds(b, "\n}\n");
}

/* ---- tensors ---- */

static qp_status unknown_tensor(const qp_gguf_model *m, const qp_gguf *g, const char *name, qp_err *err)
{
    return qp_fail(err, QP_EUNSUPPORTED, "%s: tensor %s is none that a %s model has here", qp_gguf_name(g), name,
                   archs[m->arch].name);
}

/* "blk.<N>.<rest>": sets *layer and returns rest; NULL for anything else (N has no sign and no leading zero). */
static const char *layer_rest(const char *name, uint64_t *layer)
{
    if (strncmp(name, "blk.", 4) != 0) return NULL;
    const char *s = name + 4;
    uint64_t v = 0;
    size_t n = strspn(s, "0123456789");
    if (!n || n > 6 || (n > 1 && s[0] == '0') || s[n] != '.') return NULL;
    for (size_t i = 0; i < n; i++) v = v * 10 + (uint64_t)(s[i] - '0');
    *layer = v;
    return s + n + 1;
}

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static qp_status layer_rule(const qp_gguf_model *m, const qp_gguf *g, const char *name, uint64_t layer,
                            const char *rest, qp_gguf_rule *out, qp_err *err)
{
    const char *dot = strchr(rest, '.');
    if (layer >= m->n_layers)
        return qp_fail(err, QP_EFORMAT, "%s: tensor %s: the model has %llu layers", qp_gguf_name(g), name,
                       (unsigned long long)m->n_layers);
    if (strncmp(rest, "attn_rot_embd.", 14) == 0) return QP_OK; /* inverse frequencies: derived */
    for (size_t i = 0; dot && i < N_LAYER_TENSORS; i++) {
        if (strlen(layer_tensors[i].gguf) != (size_t)(dot - rest)) continue;
        if (strncmp(layer_tensors[i].gguf, rest, (size_t)(dot - rest)) != 0) continue;
        const char *hf = layer_tensors[i].hf[m->arch];
        bool bias = strcmp(dot, ".bias") == 0;
        if (!hf || (!bias && strcmp(dot, ".weight") != 0)) break;
        if (bias && !(m->arch == QP_GGUF_LLAMA && layer_tensors[i].may_have_bias)) break;
        snprintf(out->hf_name, HF_NAME_CAP, "model.layers.%llu.%s%s", (unsigned long long)layer, hf, dot);
        if (m->arch == QP_GGUF_LLAMA && strncmp(rest, "attn_q.", 7) == 0) out->unpermute = m->n_heads;
        if (m->arch == QP_GGUF_LLAMA && strncmp(rest, "attn_k.", 7) == 0) out->unpermute = m->n_kv_heads;
        return QP_OK;
    }
    return unknown_tensor(m, g, name, err);
}

qp_status qp_gguf_model_rule(const qp_gguf_model *m, const qp_gguf *g, const qp_gguf_tensor *t, qp_gguf_rule *out,
                             qp_err *err)
{
    static const char *const top[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                         {"output_norm.weight", "model.norm.weight"},
                                         {"output.weight", "lm_head.weight"},
                                         {"rope_freqs.weight", ""}};
    qp_gguf_rule rule = {"", 0, false};
    uint64_t layer;
    const char *rest = layer_rest(t->name, &layer);
    if (rest) {
        QP_TRY(layer_rule(m, g, t->name, layer, rest, &rule, err));
    } else {
        size_t i = 0;
        while (i < 4 && strcmp(top[i][0], t->name) != 0) i++;
        if (i == 4) return unknown_tensor(m, g, t->name, err);
        snprintf(rule.hf_name, HF_NAME_CAP, "%s", top[i][1]);
    }
    rule.minus_one = m->arch == QP_GGUF_GEMMA3 && ends_with(t->name, "norm.weight");
    size_t outputs = t->rank == 1 ? t->row_len : t->n_rows;
    if (rule.unpermute && (t->rank > 2 || outputs != rule.unpermute * m->head_dim))
        return qp_fail(err, QP_EFORMAT, "%s: %s: %zu outputs, must be %llu heads of %llu", qp_gguf_name(g), t->name,
                       outputs, (unsigned long long)rule.unpermute, (unsigned long long)m->head_dim);
    *out = rule;
    return QP_OK;
}

qp_status qp_gguf_model_check_tensors(const qp_gguf_model *m, const qp_gguf *g, qp_err *err)
{
    char name[64];
    if (!qp_gguf_tensor_find(g, "output_norm.weight"))
        return qp_fail(err, QP_EFORMAT, "%s: tensor output_norm.weight is missing", qp_gguf_name(g));
    for (uint64_t l = 0; l < m->n_layers; l++) {
        for (size_t i = 0; i < N_LAYER_TENSORS; i++) {
            if (!layer_tensors[i].hf[m->arch]) continue;
            snprintf(name, sizeof name, "blk.%llu.%s.weight", (unsigned long long)l, layer_tensors[i].gguf);
            if (!qp_gguf_tensor_find(g, name))
                return qp_fail(err, QP_EFORMAT, "%s: tensor %s is missing (%llu layers)", qp_gguf_name(g), name,
                               (unsigned long long)m->n_layers);
        }
    }
    return QP_OK;
}
