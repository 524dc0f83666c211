/* Random packs: see random_pack.h.
 *
 * All tensors are listed first, with their places in the file; then they are written in that order, each from a random
 * sequence of its own that its name seeds. */
#include "cli/random_pack.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/checked.h"
#include "base/num.h"
#include "base/rng.h"
#include "cli/term.h"
#include "io/map.h"
#include "io/out_file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum fill {
    FILL_CODES,  /* int16, random bits */
    FILL_SCALES, /* fp16: a random sign times `scale`, the elements from n_true on zero */
    FILL_MARKER, /* int32: the codebook's multiplier */
    FILL_CONST,  /* bf16: `scale` */
    FILL_NORMAL, /* bf16: normal, deviation `scale` */
    FILL_A_LOG,  /* fp32: log of a uniform in [0.05, 4] */
    FILL_DT_BIAS /* bf16: uniform in [-4, 0.5] */
} fill;

typedef struct {
    char name[112];
    fill how;
    uint32_t rank;
    size_t shape[3];
    double scale;
    size_t n_true, n_elements, n_bytes;
} entry;

typedef struct {
    const char *model_type, *architecture, *prefix;
    uint32_t d, d_ff, n_layers, n_heads, n_kv_heads, head_dim, vocab, max_position;
    uint32_t k_heads, v_heads; /* delta net layers; 0: none */
    bool tied, qk_norm;
    double theta, eps;
} shape;

static const shape shapes[QP_N_SHAPES] = {
    {"llama", "LlamaForCausalLM", "model.", 576, 1536, 30, 9, 3, 64, 49152, 8192, 0, 0, true, false, 100000, 1e-5},
    {"qwen3", "Qwen3ForCausalLM", "model.", 4096, 12288, 36, 32, 8, 128, 151936, 40960, 0, 0, false, true, 1e6, 1e-6},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "model.language_model.", 5120, 17408, 64, 24, 4, 256, 248320, 262144,
     16, 48, false, true, 1e7, 1e-6},
};

enum { STATE_DIM = 128, CONV = 4, CHUNK = 1 << 20, N_NORMAL = 4096 };

typedef struct {
    const shape *s;
    const qp_pack_opts *opts;
    entry *entries;
    size_t n, cap;
    size_t n_bytes;
    double low, high; /* the two rates that are mixed */
    double debt;      /* by how much the layers so far are below the average asked for */
    unsigned char *chunk;
    uint16_t normal[N_NORMAL]; /* bf16 values, normal with deviation 1 */
} pack;

static const double rates[] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8};
enum { N_RATES = sizeof rates / sizeof rates[0] };

static bool is_rate(double bits, qp_exl3_codebook cb)
{
    for (size_t i = 0; i < N_RATES; i++)
        if (fabs(rates[i] - bits) < 1e-9) return cb == QP_EXL3_MUL1 || fabs(bits - floor(bits)) < 1e-9;
    return false;
}

static qp_status find_rates(pack *p, qp_err *err)
{
    const qp_pack_opts *o = p->opts;
    p->low = 0;
    p->high = 0;
    for (size_t i = 0; i < N_RATES; i++) {
        if (!is_rate(rates[i], o->codebook)) continue;
        if (rates[i] <= o->bits) p->low = rates[i];
        if (rates[i] >= o->bits && p->high <= 0) p->high = rates[i];
    }
    if (p->low <= 0 || p->high <= 0) return qp_fail(err, QP_EINVAL, "--bits: %g, wanted 1 to 8", o->bits);
    if (!is_rate(o->head_bits, o->codebook))
        return qp_fail(err, QP_EINVAL, "--head-bits: %g, wanted one rate: a whole number from 1 to 8%s", o->head_bits,
                       o->codebook == QP_EXL3_MUL1 ? ", or 1.5, 2.5, 3.5" : "");
    return QP_OK;
}

static qp_status add(pack *p, entry e, qp_err *err)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 256;
        entry *entries = qp_realloc(p->entries, p->cap * sizeof e, cap * sizeof e);
        if (!entries) return qp_fail(err, QP_ENOMEM, "no memory for %zu tensors", cap);
        p->entries = entries;
        p->cap = cap;
    }
    e.n_elements = 1;
    for (uint32_t i = 0; i < e.rank; i++) e.n_elements *= e.shape[i];
    e.n_bytes = e.n_elements * (e.how == FILL_MARKER || e.how == FILL_A_LOG ? 4 : 2);
    p->entries[p->n++] = e;
    p->n_bytes += e.n_bytes;
    return QP_OK;
}

/* A dense tensor: rows 0 makes a vector. */
static qp_status add_dense(pack *p, const char *prefix, const char *leaf, fill how, size_t rows, size_t cols,
                           double scale, qp_err *err)
{
    entry e = {.how = how, .rank = rows ? 2 : 1, .shape = {rows ? rows : cols, cols, 0}, .scale = scale};
    snprintf(e.name, sizeof e.name, "%s%s", prefix, leaf);
    return add(p, e, err);
}

static const char *codebook_name(qp_exl3_codebook cb)
{
    return cb == QP_EXL3_MUL1 ? "mul1" : cb == QP_EXL3_MCG ? "mcg" : "3inst";
}

/* Four tensors of one linear; outputs have the size of the inputs times gain. */
static qp_status add_linear(pack *p, const char *prefix, const char *leaf, size_t n_in, size_t n_out, double bits,
                            double gain, qp_err *err)
{
    /* Deviation of the codebook's values over all states. */
    double deviation = p->opts->codebook == QP_EXL3_MUL1 ? 1.0003 : 1.2439;
    size_t in = qp_round_up(n_in, 128), out = qp_round_up(n_out, 128);
    entry e = {.how = FILL_CODES, .rank = 3, .shape = {in / 16, out / 16, (size_t)(16 * bits + 0.5)}};
    snprintf(e.name, sizeof e.name, "%s%s.trellis", prefix, leaf);
    QP_TRY(add(p, e, err));
    e = (entry){.how = FILL_SCALES, .rank = 1, .shape = {in, 0, 0}, .n_true = in};
    e.scale = gain / sqrt((double)n_in) / deviation;
    snprintf(e.name, sizeof e.name, "%s%s.suh", prefix, leaf);
    QP_TRY(add(p, e, err));
    e = (entry){.how = FILL_SCALES, .rank = 1, .shape = {out, 0, 0}, .scale = 1, .n_true = n_out};
    snprintf(e.name, sizeof e.name, "%s%s.svh", prefix, leaf);
    QP_TRY(add(p, e, err));
    if (p->opts->codebook == QP_EXL3_3INST) return QP_OK;
    e = (entry){.how = FILL_MARKER};
    snprintf(e.name, sizeof e.name, "%s%s.%s", prefix, leaf, codebook_name(p->opts->codebook));
    return add(p, e, err);
}

static qp_status add_attention(pack *p, const char *l, double bits, double norm, qp_err *err)
{
    const shape *s = p->s;
    size_t q = (size_t)s->n_heads * s->head_dim, kv = (size_t)s->n_kv_heads * s->head_dim;
    size_t q_rows = s->v_heads ? 2 * q : q; /* with an output gate */
    QP_TRY(add_linear(p, l, "self_attn.q_proj", s->d, q_rows, bits, 1, err));
    QP_TRY(add_linear(p, l, "self_attn.k_proj", s->d, kv, bits, 1, err));
    QP_TRY(add_linear(p, l, "self_attn.v_proj", s->d, kv, bits, 1, err));
    QP_TRY(add_linear(p, l, "self_attn.o_proj", q, s->d, bits, 0.8, err));
    if (!s->qk_norm) return QP_OK;
    QP_TRY(add_dense(p, l, "self_attn.q_norm.weight", FILL_CONST, 0, s->head_dim, norm, err));
    return add_dense(p, l, "self_attn.k_norm.weight", FILL_CONST, 0, s->head_dim, norm, err);
}

static qp_status add_delta_net(pack *p, const char *l, double bits, qp_err *err)
{
    const shape *s = p->s;
    size_t v = (size_t)s->v_heads * STATE_DIM, qkv = 2 * (size_t)s->k_heads * STATE_DIM + v;
    double in = 1 / sqrt((double)s->d);
    QP_TRY(add_linear(p, l, "linear_attn.in_proj_qkv", s->d, qkv, bits, 1, err));
    QP_TRY(add_linear(p, l, "linear_attn.in_proj_z", s->d, v, bits, 1, err));
    QP_TRY(add_linear(p, l, "linear_attn.out_proj", v, s->d, bits, 0.8, err));
    QP_TRY(add_dense(p, l, "linear_attn.in_proj_a.weight", FILL_NORMAL, s->v_heads, s->d, in, err));
    QP_TRY(add_dense(p, l, "linear_attn.in_proj_b.weight", FILL_NORMAL, s->v_heads, s->d, in, err));
    entry conv = {.how = FILL_NORMAL, .rank = 3, .shape = {qkv, 1, CONV}, .scale = 0.5};
    snprintf(conv.name, sizeof conv.name, "%slinear_attn.conv1d.weight", l);
    QP_TRY(add(p, conv, err));
    QP_TRY(add_dense(p, l, "linear_attn.A_log", FILL_A_LOG, 0, s->v_heads, 0, err));
    QP_TRY(add_dense(p, l, "linear_attn.dt_bias", FILL_DT_BIAS, 0, s->v_heads, 0, err));
    return add_dense(p, l, "linear_attn.norm.weight", FILL_CONST, 0, STATE_DIM, 1, err);
}

static bool is_delta_net(const shape *s, uint32_t il)
{
    return s->v_heads && (il + 1) % 4 != 0;
}

static qp_status add_all(pack *p, qp_err *err)
{
    const shape *s = p->s;
    double norm = s->v_heads ? 0 : 1; /* the hybrid's norms multiply by 1 + w */
    char l[64];
    QP_TRY(add_dense(p, s->prefix, "embed_tokens.weight", FILL_NORMAL, s->vocab, s->d, 1, err));
    for (uint32_t il = 0; il < s->n_layers; il++) {
        double bits = p->debt > 0 ? p->high : p->low;
        p->debt += p->opts->bits - bits;
        snprintf(l, sizeof l, "%slayers.%u.", s->prefix, il);
        QP_TRY(add_dense(p, l, "input_layernorm.weight", FILL_CONST, 0, s->d, norm, err));
        if (is_delta_net(s, il))
            QP_TRY(add_delta_net(p, l, bits, err));
        else
            QP_TRY(add_attention(p, l, bits, norm, err));
        QP_TRY(add_dense(p, l, "post_attention_layernorm.weight", FILL_CONST, 0, s->d, norm, err));
        QP_TRY(add_linear(p, l, "mlp.gate_proj", s->d, s->d_ff, bits, 1, err));
        QP_TRY(add_linear(p, l, "mlp.up_proj", s->d, s->d_ff, bits, 1, err));
        QP_TRY(add_linear(p, l, "mlp.down_proj", s->d_ff, s->d, bits, 0.8, err));
    }
    QP_TRY(add_dense(p, s->prefix, "norm.weight", FILL_CONST, 0, s->d, norm, err));
    return add_linear(p, "", "lm_head", s->d, s->vocab, p->opts->head_bits, 3, err);
}

static const char *dtype_of(fill how)
{
    switch (how) {
    case FILL_CODES:
        return "I16";
    case FILL_SCALES:
        return "F16";
    case FILL_MARKER:
        return "I32";
    case FILL_A_LOG:
        return "F32";
    default:
        return "BF16";
    }
}

/* Eight bytes of length, then the JSON header padded to a multiple of 8. */
static void write_header(const pack *p, qp_buf *out)
{
    size_t at = 0;
    qp_buf_add(out, "\0\0\0\0\0\0\0\0", 8);
    qp_buf_addc(out, '{');
    for (size_t i = 0; i < p->n; i++) {
        const entry *e = &p->entries[i];
        qp_buf_printf(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", e->name, dtype_of(e->how));
        for (uint32_t d = 0; d < e->rank; d++) qp_buf_printf(out, d ? ",%zu" : "%zu", e->shape[d]);
        qp_buf_printf(out, "],\"data_offsets\":[%zu,%zu]}", at, at + e->n_bytes);
        at += e->n_bytes;
    }
    qp_buf_addc(out, '}');
    while (out->len % 8) qp_buf_addc(out, ' ');
    if (out->failed) return;
    uint64_t n = out->len - 8;
    for (int i = 0; i < 8; i++) out->data[i] = (char)(n >> 8 * i & 0xFF);
}

/* Element values of the vectors. */
static float small_value(const entry *e, size_t i, qp_rng *r)
{
    switch (e->how) {
    case FILL_CONST:
        return (float)e->scale;
    case FILL_A_LOG:
        return (float)log(0.05 + 3.95 * qp_rng_unit(r));
    case FILL_DT_BIAS:
        return (float)(-4 + 4.5 * qp_rng_unit(r));
    case FILL_SCALES: {
        double v = qp_rng_u64(r) >> 63 ? e->scale : -e->scale;
        return i < e->n_true ? (float)v : 0.0F;
    }
    default:
        return 0.0F;
    }
}

/* Bytes [at, at + n) of an entry; at is a multiple of CHUNK, so the random sequence continues from chunk to chunk. */
static void fill_chunk(const pack *p, const entry *e, size_t at, size_t n, qp_rng *r)
{
    unsigned char *out = p->chunk;
    if (e->how == FILL_CODES) {
        for (size_t i = 0; i < n; i += 8) {
            uint64_t v = qp_rng_u64(r);
            memcpy(out + i, &v, 8);
        }
    } else if (e->how == FILL_MARKER) {
        uint32_t v = p->opts->codebook == QP_EXL3_MUL1 ? 0x83DCD12DU : 0xCBAC1FEDU;
        memcpy(out, &v, 4);
    } else if (e->how == FILL_NORMAL) {
        for (size_t i = 0; i < n; i += 2) {
            float f = qp_bf16_to_f32(p->normal[qp_rng_u64(r) % N_NORMAL]) * (float)e->scale;
            uint16_t v = qp_f32_to_bf16_rne(f);
            memcpy(out + i, &v, 2);
        }
    } else if (e->how == FILL_A_LOG) {
        for (size_t i = 0; i < n; i += 4) memcpy(out + i, &(float){small_value(e, (at + i) / 4, r)}, 4);
    } else {
        for (size_t i = 0; i < n; i += 2) {
            float f = small_value(e, (at + i) / 2, r);
            uint16_t v = e->how == FILL_SCALES ? qp_f32_to_f16_rne(f) : qp_f32_to_bf16_rne(f);
            memcpy(out + i, &v, 2);
        }
    }
}

static qp_status write_tensors(const pack *p, qp_out_file *f, qp_err *err)
{
    qp_progress progress;
    double done = 0;
    qp_progress_start(&progress, "writing", "MB", (double)p->n_bytes * 1e-6);
    for (size_t i = 0; i < p->n; i++) {
        const entry *e = &p->entries[i];
        qp_rng r = {14695981039346656037U};
        for (const char *c = e->name; *c; c++) r.state = (r.state ^ (unsigned char)*c) * 1099511628211U;
        for (size_t at = 0; at < e->n_bytes; at += CHUNK) {
            size_t n = qp_min_size(CHUNK, e->n_bytes - at);
            fill_chunk(p, e, at, n, &r);
            QP_TRY(qp_out_file_write(f, p->chunk, n, err));
            if (qp_term_interrupted()) return qp_fail(err, QP_ECANCELLED, "interrupted");
            done += (double)n;
            qp_progress_update(&progress, done * 1e-6);
        }
    }
    qp_progress_end(&progress, done * 1e-6);
    return QP_OK;
}

static qp_status write_pack(const pack *p, const char *path, qp_err *err)
{
    qp_buf header = {0};
    qp_out_file *f = NULL;
    qp_status st = QP_OK;
    write_header(p, &header);
    QP_TRY_OUT(qp_buf_check(&header, "the header of model.safetensors", err));
    QP_TRY_OUT(qp_out_file_open(&f, path, err));
    QP_TRY_OUT(qp_out_file_write(f, header.data, header.len, err));
    QP_TRY_OUT(write_tensors(p, f, err));
    st = qp_out_file_commit(f, err);
out:
    qp_out_file_close(f);
    qp_buf_deinit(&header);
    return st;
}

static void config_text(const pack *p, qp_buf *b)
{
    const shape *s = p->s;
    const qp_pack_opts *o = p->opts;
    qp_buf_printf(b, "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n \"dtype\": \"bfloat16\",\n",
                  s->architecture, s->model_type);
    qp_buf_printf(b,
                  " \"quantization_config\": {\"quant_method\": \"exl3\", \"version\": \"1.6.5\", \"bits\": %g, "
                  "\"head_bits\": %g, \"codebook\": \"%s\", \"random\": true},\n \"tie_word_embeddings\": false,\n",
                  o->bits, o->head_bits, codebook_name(o->codebook));
    if (s->v_heads) qp_buf_printf(b, " \"text_config\": {\n \"model_type\": \"%s_text\",\n", s->model_type);
    qp_buf_printf(b,
                  " \"hidden_size\": %u,\n \"intermediate_size\": %u,\n \"num_hidden_layers\": %u,\n"
                  " \"num_attention_heads\": %u,\n \"num_key_value_heads\": %u,\n \"head_dim\": %u,\n"
                  " \"vocab_size\": %u,\n \"max_position_embeddings\": %u,\n \"rms_norm_eps\": %g,\n"
                  " \"hidden_act\": \"silu\",\n",
                  s->d, s->d_ff, s->n_layers, s->n_heads, s->n_kv_heads, s->head_dim, s->vocab, s->max_position,
                  s->eps);
    if (s->v_heads) {
        qp_buf_printf(b,
                      " \"full_attention_interval\": 4,\n \"linear_num_key_heads\": %u,\n"
                      " \"linear_num_value_heads\": %u,\n \"linear_key_head_dim\": %d,\n"
                      " \"linear_value_head_dim\": %d,\n \"linear_conv_kernel_dim\": %d,\n",
                      s->k_heads, s->v_heads, STATE_DIM, STATE_DIM, CONV);
        qp_buf_adds(b, " \"layer_types\": [");
        for (uint32_t il = 0; il < s->n_layers; il++)
            qp_buf_printf(b, "%s\"%s\"", il ? ", " : "", is_delta_net(s, il) ? "linear_attention" : "full_attention");
        qp_buf_printf(b,
                      "],\n \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.0f, "
                      "\"partial_rotary_factor\": 0.25, \"mrope_section\": [11, 11, 10], \"mrope_interleaved\": true}\n"
                      " }\n}\n",
                      s->theta);
    } else {
        qp_buf_printf(b, " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.0f}\n}\n", s->theta);
    }
}

static qp_status write_config(const pack *p, const char *path, qp_err *err)
{
    qp_buf b = {0};
    config_text(p, &b);
    qp_status st = qp_buf_check(&b, "config.json", err);
    if (st == QP_OK) st = qp_out_file_put(path, b.data, b.len, err);
    qp_buf_deinit(&b);
    return st;
}

/* dir exists afterwards and holds nothing. */
static qp_status make_dir(const char *dir, bool *made, qp_err *err)
{
    *made = mkdir(dir, 0777) == 0;
    if (!*made && errno != EEXIST) return qp_fail(err, QP_EIO, "%s: %s", dir, strerror(errno));
    DIR *d = opendir(dir);
    if (!d) return qp_fail(err, QP_EIO, "%s: %s", dir, strerror(errno));
    const struct dirent *e;
    bool empty = true;
    while ((e = readdir(d))) empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    closedir(d);
    return empty ? QP_OK : qp_fail(err, QP_EINVAL, "%s: not empty, wanted a new folder", dir);
}

qp_status qp_random_pack_write(const char *dir, const qp_pack_opts *opts, qp_err *err)
{
    pack p = {.s = &shapes[opts->shape], .opts = opts};
    char weights[4096], config[4096], text[32];
    bool made = false;
    qp_status st;
    qp_rng r = {1};
    for (size_t i = 0; i < N_NORMAL; i++) p.normal[i] = qp_f32_to_bf16_rne(qp_rng_normal(&r));
    QP_TRY_OUT(find_rates(&p, err));
    QP_TRY_OUT(qp_path_join(weights, sizeof weights, dir, "model.safetensors", err));
    QP_TRY_OUT(qp_path_join(config, sizeof config, dir, "config.json", err));
    QP_TRY_OUT(add_all(&p, err));
    QP_TRY_OUT(qp_new(&p.chunk, CHUNK, 1, "a write buffer", err));
    QP_TRY_OUT(make_dir(dir, &made, err));
    st = write_pack(&p, weights, err);
    if (st == QP_OK) {
        st = write_config(&p, config, err);
        if (st != QP_OK) unlink(weights); /* the folder was empty: it is ours */
    }
    if (st != QP_OK && made) rmdir(dir);
    if (st != QP_OK) goto out;
    qp_note("%s: %zu tensors, %s", dir, p.n, qp_bytes_text((double)p.n_bytes, text, sizeof text));
out:
    qp_free(p.chunk);
    qp_free(p.entries);
    return st;
}
