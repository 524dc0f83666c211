/* Damaged model folders: cut and bit-flipped files, wrong configurations. Opening gives an error that names the file or
 * the tensor, quickly, or a model that runs; never a crash. */
#define _XOPEN_SOURCE 700
#include "qptest.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/quantpack-damaged-XXXXXX";

typedef struct bytes {
    unsigned char *data;
    size_t len;
} bytes;

static bytes slurp(const char *path)
{
    bytes b = {NULL, 0};
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    fseek(f, 0, SEEK_END);
    b.len = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.len + 1);
    if (fread(b.data, 1, b.len, f) != b.len) fail_msg("cannot read %s", path);
    b.data[b.len] = 0;
    fclose(f);
    return b;
}

static void spill(const char *name, const void *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, len, f) != len) fail_msg("cannot write %s", path);
    fclose(f);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Opens and, when that works, runs two tokens. Returns the status of opening. */
static qp_status try_model(qp_err *err)
{
    qp_model *m = NULL;
    double start = cpu_seconds();
    err->msg[0] = 0;
    qp_status st = qp_model_open(&m, dir, &(qp_model_opts){QP_EXL3_F32}, err);
    double took = cpu_seconds() - start;
    if (!(took < 1.0)) fail_msg("opening took %.2f s of processor time", took); /* 0.1 s without sanitizers */
    if (st != QP_OK) {
        if (!err->msg[0]) fail_msg("error without a message");
        return st;
    }
    qp_engine *e = NULL;
    qp_engine_opts o = {.n_threads = 1, .max_model_len = 16, .max_num_seqs = 1, .max_num_batched_tokens = 8};
    if (qp_engine_new(&e, m, &o, err) == QP_OK) {
        int32_t tokens[4];
        uint64_t id;
        qp_collect c = {.tokens = tokens};
        const int32_t prompt[3] = {1, 2, 3};
        qp_request r = qp_test_request(&c, prompt, 3, 2);
        if (qp_engine_submit(e, &r, &id, err) == QP_OK) qp_test_run(e);
    }
    qp_engine_free(e);
    qp_model_close(m);
    return QP_OK;
}

static void copy_model(const char *model, bytes *weights, bytes *config)
{
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", qp_test_dir(model));
    *weights = slurp(path);
    snprintf(path, sizeof path, "%s/config.json", qp_test_dir(model));
    *config = slurp(path);
    spill("model.safetensors", weights->data, weights->len);
    spill("config.json", config->data, config->len);
}

static void test_cut_and_flipped_weights(void **state)
{
    (void)state;
    const char *const models[] = {"llama-exl3", "qwen3_5-exl3"};
    for (size_t k = 0; k < 2; k++) {
        bytes w, c;
        qp_err err;
        copy_model(models[k], &w, &c);
        CHECK_OK(try_model(&err));
        size_t header;
        memcpy(&header, w.data, 8);
        for (size_t i = 0; i < 40; i++) {
            size_t cut = i < 20 ? i * (header + 8) / 20 : header + 8 + (i - 20) * (w.len - header - 8) / 20;
            spill("model.safetensors", w.data, cut);
            if (try_model(&err) == QP_OK) fail_msg("%s cut to %zu of %zu bytes was accepted", models[k], cut, w.len);
            if (!strstr(err.msg, "safetensors")) fail_msg("message does not name the file: %s", err.msg);
        }
        qp_rng rng = {k};
        for (size_t i = 0; i < 80; i++) {
            size_t at = qp_rng_u64(&rng) % (header + 8);
            w.data[at] ^= (unsigned char)(1 << i % 8);
            spill("model.safetensors", w.data, w.len);
            try_model(&err);
            w.data[at] ^= (unsigned char)(1 << i % 8);
        }
        spill("model.safetensors", w.data, w.len);
        for (size_t i = 0; i < 80; i++) {
            size_t at = qp_rng_u64(&rng) % c.len;
            c.data[at] ^= (unsigned char)(1 << i % 7);
            spill("config.json", c.data, c.len);
            try_model(&err);
            c.data[at] ^= (unsigned char)(1 << i % 7);
        }
        free(w.data);
        free(c.data);
    }
}

static void expect(const char *config, qp_status st, const char *word)
{
    qp_err err;
    spill("config.json", config, strlen(config));
    qp_status got = try_model(&err);
    if (got != st || !strstr(err.msg, word))
        fail_msg("%s\n  gave %s: %s\n  wanted %s naming %s", config, qp_status_name(got), err.msg, qp_status_name(st),
                 word);
}

#define LLAMA                                                                                                          \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":128,\"intermediate_size\":352,"                         \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":320"

static void test_wrong_configurations_are_refused_by_name(void **state)
{
    (void)state;
    bytes w, c;
    qp_err err;
    copy_model("llama", &w, &c);
    expect(LLAMA "}", QP_OK, "");
    expect("[]", QP_EFORMAT, "architectures");
    expect("{\"architectures\":[\"FooForCausalLM\"]}", QP_EUNSUPPORTED, "FooForCausalLM");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]}", QP_EFORMAT, "hidden_size");
    expect(LLAMA ",\"quantization_config\":{\"quant_method\":\"awq\"}}", QP_EUNSUPPORTED, "awq");
    expect(LLAMA ",\"hidden_act\":\"gelu\"}", QP_EUNSUPPORTED, "gelu");
    expect(LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\"}}", QP_EUNSUPPORTED, "longrope");
    expect(LLAMA ",\"rms_norm_eps\":-1}", QP_EFORMAT, "rms_norm_eps");
    expect(LLAMA ",\"head_dim\":33}", QP_EUNSUPPORTED, "head_dim");
    expect("{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":128,\"intermediate_size\":352,\"num_hidden_"
           "layers\":5,"
           "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":320}",
           QP_EFORMAT, "model.layers.4.");
    expect("{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":128,\"intermediate_size\":352,\"num_hidden_"
           "layers\":4,"
           "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"vocab_size\":320}",
           QP_EFORMAT, "k_proj.weight: shape [64, 128], must be [128, 128]");
    expect("{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":128,\"intermediate_size\":352,\"num_hidden_"
           "layers\":4,"
           "\"num_attention_heads\":4,\"num_key_value_heads\":3,\"vocab_size\":320}",
           QP_EFORMAT, "num_key_value_heads");
    expect(LLAMA ",\"rope_parameters\":[]}", QP_EFORMAT, "rope_parameters");
    expect(LLAMA ",\"rope_parameters\":{\"rope_theta\":1e4},\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
           QP_EUNSUPPORTED, "rope_scaling");
    expect(LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e-308}}", QP_EFORMAT, "factor");
    expect(LLAMA ",\"eos_token_id\":\"x\"}", QP_EFORMAT, "eos_token_id");
    expect(LLAMA ",\"eos_token_id\":[2,-5]}", QP_EFORMAT, "eos_token_id");
    expect(LLAMA ",\"attention_bias\":true}", QP_EFORMAT, "attention_bias");
    expect(LLAMA ",\"mlp_bias\":true}", QP_EFORMAT, "mlp_bias");
    expect(LLAMA ",\"layer_types\":[\"x\",\"x\",\"x\",\"x\"]}", QP_EUNSUPPORTED, "layer_types");
    spill("config.json", c.data, c.len);
    const char *const bad_generation[] = {"[]",
                                          "{\"temperature\":-1}",
                                          "{\"top_k\":1.5}",
                                          "{\"top_p\":2}",
                                          "{\"repetition_penalty\":0}",
                                          "{\"eos_token_id\":[[1]]}"};
    for (size_t i = 0; i < sizeof bad_generation / sizeof *bad_generation; i++) {
        spill("generation_config.json", bad_generation[i], strlen(bad_generation[i]));
        if (try_model(&err) != QP_EFORMAT || !strstr(err.msg, "generation_config.json"))
            fail_msg("%s was not refused: %s", bad_generation[i], err.msg);
    }
    spill("generation_config.json", "{", 1);
    assert_int_equal(try_model(&err), QP_EFORMAT);
    assert_non_null(strstr(err.msg, "generation_config.json"));
    spill("generation_config.json", "{}", 2);
    CHECK_OK(try_model(&err));
    free(w.data);
    free(c.data);
}

/* A pack whose config names other widths than its tensors were made for, and one that lost its head. */
static void test_packs_that_do_not_fit_their_config(void **state)
{
    (void)state;
    bytes w, c;
    qp_err err;
    copy_model("llama-exl3", &w, &c);
    char *text = (char *)c.data, *at = strstr(text, "352");
    assert_non_null(at);
    memcpy(at, "100", 3);
    spill("config.json", c.data, c.len);
    assert_int_equal(try_model(&err), QP_EFORMAT);
    assert_non_null(strstr(err.msg, "mlp."));
    free(w.data);
    free(c.data);
    copy_model("smollm2", &w, &c);
    text = (char *)c.data;
    at = strstr(text, "\"tie_word_embeddings\": true");
    assert_non_null(at);
    memcpy(at, "\"tie_word_embeddings\":false", strlen("\"tie_word_embeddings\":false"));
    spill("config.json", c.data, c.len);
    assert_int_equal(try_model(&err), QP_EFORMAT);
    assert_non_null(strstr(err.msg, "lm_head"));
    free(w.data);
    free(c.data);
}

/* NaN weights are no answer: the request ends with an error that says so. */
static void test_nan_weights_end_a_request_with_an_error(void **state)
{
    (void)state;
    bytes w, c;
    qp_err err;
    qp_model *m = NULL;
    qp_engine *e = NULL;
    size_t header, left = 1;
    copy_model("llama", &w, &c);
    memcpy(&header, w.data, 8);
    memset(w.data + 8 + header, 0xFF, w.len - 8 - header); /* bf16 NaN everywhere, norms included: refused at load */
    spill("model.safetensors", w.data, w.len);
    assert_int_equal(try_model(&err), QP_EFORMAT);
    free(w.data);
    free(c.data);
    copy_model("llama", &w, &c);
    CHECK_OK(qp_model_open(&m, dir, &(qp_model_opts){QP_EXL3_F32}, &err));
    const qp_tensor *t = qp_checkpoint_find(qp_model_checkpoint(m), "model.layers.0.mlp.down_proj.weight");
    size_t offset = 0;
    for (size_t i = 0; i + 8 < w.len && !offset; i++)
        if (!memcmp(w.data + i, t->data, 64)) offset = i;
    qp_model_close(m);
    assert_true(offset > 0);
    memset(w.data + offset, 0xFF, 4096);
    spill("model.safetensors", w.data, w.len);
    CHECK_OK(qp_model_open(&m, dir, &(qp_model_opts){QP_EXL3_F32}, &err));
    qp_engine_opts o = {.n_threads = 1, .max_model_len = 16, .max_num_seqs = 1};
    CHECK_OK(qp_engine_new(&e, m, &o, &err));
    int32_t tokens[4];
    uint64_t id;
    qp_collect col = {.tokens = tokens};
    const int32_t prompt[3] = {1, 2, 3};
    qp_request r = qp_test_request(&col, prompt, 3, 2);
    CHECK_OK(qp_engine_submit(e, &r, &id, &err));
    while (left) CHECK_OK(qp_engine_step(e, &left, &err));
    assert_int_equal(col.why, QP_FINISH_ERROR);
    assert_non_null(strstr(col.error, "not finite"));
    qp_engine_free(e);
    qp_model_close(m);
    free(w.data);
    free(c.data);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    const char *const names[] = {"model.safetensors", "config.json", "generation_config.json"};
    for (size_t i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_configurations_are_refused_by_name),
                                       cmocka_unit_test(test_packs_that_do_not_fit_their_config),
                                       cmocka_unit_test(test_nan_weights_end_a_request_with_an_error),
                                       cmocka_unit_test(test_cut_and_flipped_weights)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
