/* EXL3 against tensors that exllamav3 wrote: weights bit for bit, products against fp64, binding errors. */
#include "exl3_test.h"

#include <unistd.h>

#define DIR_LINEAR "tests/vectors/exl3_linear"
#define DIR_HALF "tests/vectors/exl3_half"
#define DIR_16 "tests/vectors/exl3_1_6"

static qp_checkpoint *open_dir(const char *dir)
{
    qp_err err;
    qp_checkpoint *c = NULL;
    if (qp_checkpoint_open(&c, dir, &err) != QP_OK) fail_msg("%s: %s", dir, err.msg);
    return c;
}

static const qp_tensor *tensor(const qp_checkpoint *c, const char *key, const char *suffix)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", key, suffix);
    return qp_checkpoint_find(c, name);
}

static qp_exl3 bind(const qp_checkpoint *c, const char *key, uint32_t in, uint32_t out, qp_arena *a)
{
    qp_err err;
    qp_exl3 t;
    if (qp_exl3_bind(&t, c, key, in, out, a, &err) != QP_OK) fail_msg("%s", err.msg);
    return t;
}

static double rms(const double *v, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += v[i] * v[i];
    return sqrt(s / (double)n);
}

/* Weights of the tensor as doubles: the fp16 values, or for mul1 the codebook before its rounding. */
static double *inner64(const qp_exl3 *t, int rounded)
{
    double *w = xmalloc((size_t)t->n_in * t->n_out * sizeof *w);
    uint16_t states[256];
    const size_t n_nt = t->n_out / 16;
    for (size_t kt = 0; kt < t->n_in / 16; kt++)
        for (size_t nt = 0; nt < n_nt; nt++) {
            qp_exl3_tile_states(t->trellis + (kt * n_nt + nt) * t->n_words, t->n_words, states);
            for (unsigned i = 0; i < 256; i++)
                w[(kt * 16 + qp_exl3_tile_row(i)) * t->n_out + nt * 16 + qp_exl3_tile_col(i)] =
                    rounded ? (double)qp_f16_to_f32(qp_exl3_value(t->codebook, states[i]))
                            : QP_MUL1_SCALE * ((int)qp_exl3_bytesum(states[i]) - 510) + QP_MUL1_OFFSET;
        }
    return w;
}

typedef struct errs {
    double mean, rms; /* of |y - want|, over the RMS of want */
} errs;

/* fp64 products of all rows, [n_rows, n_out_true]; see inner64 for `rounded`. */
static double *products64(const qp_exl3 *t, const float *x, size_t n_rows, int rounded)
{
    double *w = inner64(t, rounded), *want = xmalloc(n_rows * t->n_out_true * sizeof *want);
    for (size_t m = 0; m < n_rows; m++) exl3_product64(want + m * t->n_out_true, w, t, x + m * t->n_in_true);
    qp_free(w);
    return want;
}

static errs product_errors(const qp_cpu_kernels *k, const qp_exl3 *t, const float *x, size_t n_rows, qp_exl3_arith a,
                           const double *want)
{
    double sw = 0, se = 0, sa = 0;
    float *y = xmalloc(t->n_out_true * sizeof *y);
    for (size_t m = 0; m < n_rows; m++, want += t->n_out_true) {
        exl3_product(y, k, t, x + m * t->n_in_true, a);
        for (size_t o = 0; o < t->n_out_true; o++) {
            double d = (double)y[o] - want[o];
            sw += want[o] * want[o];
            se += d * d;
            sa += fabs(d);
        }
    }
    double n = (double)(n_rows * t->n_out_true), r = sqrt(sw / n);
    qp_free(y);
    return (errs){sa / n / r, sqrt(se / n) / r};
}

/* The bounds: fp32 sums of a few thousand terms; 15-bit activations; 2.1e-4 of the i16 figure is the rounding of the
 * codebook to fp16, which that path leaves out, so against the unrounded codebook it is held to 1e-4. Of the levels the
 * best one is checked here; tests/kernel shows that all give the same bits. */
static void check_products(const qp_exl3 *t, const float *x, size_t n_rows, const char *what)
{
    qp_cpu_kernels k[5];
    const qp_cpu_kernels *best = &k[exl3_levels(k) - 1];
    double *want = products64(t, x, n_rows, 1);
    errs f = product_errors(best, t, x, n_rows, QP_EXL3_F32, want);
    if (!(f.rms <= 1e-5)) fail_msg("%s, %s, f32: RMS error %g of output RMS, bound 1e-5", what, best->name, f.rms);
    if (t->codebook == QP_EXL3_MUL1) {
        double *exact = products64(t, x, n_rows, 0);
        errs q = product_errors(best, t, x, n_rows, QP_EXL3_I16, want);
        errs e = product_errors(best, t, x, n_rows, QP_EXL3_I16, exact);
        print_message("%s: f32 %.2g, i16 mean %.3g RMS %.3g, exact codebook %.2g\n", what, f.rms, q.mean, q.rms, e.rms);
        if (!(q.mean <= 2e-4) || !(q.rms <= 2.3e-4))
            fail_msg("%s, %s, i16: mean %g (bound 2e-4), RMS %g (2.3e-4)", what, best->name, q.mean, q.rms);
        if (!(e.rms <= 1e-4)) fail_msg("%s, %s, i16, exact codebook: RMS %g, bound 1e-4", what, best->name, e.rms);
        qp_free(exact);
    }
    qp_free(want);
}

static float *random_rows(size_t n, uint64_t seed)
{
    qp_rng r = {seed};
    float *x = xmalloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = qp_rng_normal(&r);
    return x;
}

static void test_linear_of_every_codebook_and_rate(void **state)
{
    (void)state;
    static const char *const books[] = {"3inst", "mcg", "mul1"};
    qp_checkpoint *c = open_dir(DIR_LINEAR);
    qp_arena arena;
    int n_inner = 0;
    qp_arena_init(&arena, 0);
    const qp_tensor *xt = qp_checkpoint_find(c, "x");
    float x[5 * 256];
    for (size_t i = 0; i < 5 * 256; i++) x[i] = qp_f16_to_f32(((const uint16_t *)xt->data)[i]);
    for (int b = 0; b < 3; b++)
        for (int bits = 1; bits <= 8; bits++) {
            char key[16];
            snprintf(key, sizeof key, "%s.%d", books[b], bits);
            qp_exl3 t = bind(c, key, 256, 384, &arena);
            assert_int_equal(t.codebook, b);
            const qp_tensor *inner = tensor(c, key, "inner");
            uint16_t *w = xmalloc(256 * 384 * 2);
            qp_exl3_decode_inner(&t, w);
            if (inner) {
                assert_memory_equal(w, inner->data, 256 * 384 * 2);
                n_inner++;
            }
            check_products(&t, x, 5, key);
            /* the format owner's own product, computed in fp16 on a GPU */
            qp_cpu_kernels k[5];
            exl3_levels(k);
            const uint16_t *y16 = tensor(c, key, "y")->data;
            double d[5 * 384], y[5 * 384];
            for (int m = 0; m < 5; m++) {
                float got[384];
                exl3_product(got, &k[0], &t, x + m * 256, QP_EXL3_F32);
                for (int o = 0; o < 384; o++) {
                    y[m * 384 + o] = (double)qp_f16_to_f32(y16[m * 384 + o]);
                    d[m * 384 + o] = (double)got[o] - y[m * 384 + o];
                }
            }
            if (!(rms(d, 5 * 384) < 2e-3 * rms(y, 5 * 384))) fail_msg("%s: product differs from exllamav3's", key);
            qp_free(w);
        }
    assert_int_equal(n_inner, 18);
    qp_arena_deinit(&arena);
    qp_checkpoint_close(c);
}

/* Order-dependent checksum of fp16 words; the constants come from the NumPy decoder of the half rates. */
static uint64_t checksum(const uint16_t *w, size_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) h += ((uint64_t)w[i] + 1) * (2 * i + 1) * 0x9E3779B97F4A7C15u;
    return h;
}

static void test_half_rates_of_a_real_pack(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint64_t sum;
    } want[] = {
        {"model.layers.0.mlp.down_proj", 0x6c317f26cabfdb57u},
        {"model.layers.0.mlp.gate_proj", 0xb516113eaaa878d0u},
        {"model.layers.0.mlp.up_proj", 0xe5610dc417062534u},
        {"model.layers.0.self_attn.k_proj", 0x841295c952bb5200u},
        {"model.layers.0.self_attn.o_proj", 0xe38a5f32e1f0cb5cu},
        {"model.layers.0.self_attn.q_proj", 0x411c8da2423602dfu},
        {"model.layers.0.self_attn.v_proj", 0xb46973097f64f0acu},
    };
    qp_checkpoint *c = open_dir(DIR_HALF);
    qp_arena arena;
    qp_arena_init(&arena, 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const qp_tensor *tr = tensor(c, want[i].key, "trellis");
        qp_exl3 t = bind(c, want[i].key, (uint32_t)tr->shape[0] * 16, (uint32_t)tr->shape[1] * 16, &arena);
        size_t n = (size_t)t.n_in * t.n_out;
        uint16_t *w = xmalloc(n * 2);
        qp_exl3_decode_inner(&t, w);
        assert_true(checksum(w, n) == want[i].sum);
        float *x = random_rows(8 * (size_t)t.n_in, i); /* 8 rows: one of 256 outputs has a sampling error of 5 % */
        check_products(&t, x, 8, want[i].key);
        qp_free(x);
        qp_free(w);
    }
    qp_arena_deinit(&arena);
    qp_checkpoint_close(c);
}

static void test_half_rate_inner(void **state)
{
    (void)state;
    static const char *const keys[] = {"linear.1.5", "linear.2.5", "linear.3.5"};
    qp_checkpoint *c = open_dir(DIR_16);
    for (int i = 0; i < 3; i++) {
        const qp_tensor *tr = tensor(c, keys[i], "trellis"), *inner = tensor(c, keys[i], "inner");
        qp_exl3 t = {.trellis = tr->data,
                     .n_in = 128,
                     .n_out = 128,
                     .n_in_true = 128,
                     .n_out_true = 128,
                     .n_words = (uint32_t)tr->shape[2],
                     .codebook = QP_EXL3_MUL1};
        uint16_t *w = xmalloc(128 * 128 * 2);
        qp_exl3_decode_inner(&t, w);
        assert_memory_equal(w, inner->data, 128 * 128 * 2);
        qp_free(w);
    }
    qp_checkpoint_close(c);
}

static void test_rows_of_embedding_and_ngram_table(void **state)
{
    (void)state;
    static const unsigned char head[24] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    qp_checkpoint *c = open_dir(DIR_16);
    const uint16_t *bias = qp_checkpoint_find(c, "ngram.head_bias")->data;
    for (uint32_t bits = 1; bits <= 8; bits++) {
        char name[32];
        snprintf(name, sizeof name, "embed.%u", bits);
        const qp_tensor *tr = tensor(c, name, "trellis");
        qp_exl3_rows r = {.trellis = tr->data,
                          .signs = qp_checkpoint_find(c, "embed.signs")->data,
                          .n_rows = 4,
                          .n_cols = 700,
                          .n_groups = 3,
                          .bits = bits};
        const float *want = tensor(c, name, "rows")->data;
        for (size_t i = 0; i < 4; i++) {
            float row[701];
            row[700] = 7;
            qp_exl3_rows_decode(&r, i, row);
            assert_memory_equal(row, want + i * 700, 700 * sizeof *row);
            assert_true(row[700] == 7);
        }
        snprintf(name, sizeof name, "ngram.%u", bits);
        const uint16_t *rings = tensor(c, name, "trellis")->data, *rows = tensor(c, name, "rows")->data;
        for (size_t i = 0; i < 24; i++) {
            uint16_t row[160];
            qp_exl3_ngram_row(rings + i * (1 + 10 * bits), 160, bits, bias + head[i] * 160, row);
            assert_memory_equal(row, rows + i * 160, sizeof row);
        }
    }
    qp_checkpoint_close(c);
}

/* ---------------------------------------------------------------- made-up packs: signs, padding, bias, errors */

enum { IN = 256, OUT = 128 };

typedef struct pack {
    uint16_t trellis[IN / 16 * OUT / 16 * 64], suh[IN], svh[OUT], su[IN / 16], sv[OUT / 16], bias16[OUT];
    float bias[OUT];
    int32_t mul1, mcg;
    st_tensor t[10];
    size_t n;
    char dir[64];
} pack;

static void pack_add(pack *p, const char *name, const char *dtype, int rank, unsigned long a, unsigned long b,
                     unsigned long c, const void *data, size_t n_bytes)
{
    p->t[p->n++] = (st_tensor){name, dtype, rank, {a, b, c}, data, n_bytes};
}

/* A good 4-bit mul1 pack under the key "l"; cases then change it. */
static pack *pack_new(void)
{
    pack *p = xmalloc(sizeof *p);
    qp_rng r = {42};
    memset(p, 0, sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/qp_exl3_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    for (size_t i = 0; i < sizeof p->trellis / 2; i++) p->trellis[i] = (uint16_t)qp_rng_u64(&r);
    for (size_t i = 0; i < IN / 16; i++) p->su[i] = (uint16_t)qp_rng_u64(&r);
    for (size_t i = 0; i < OUT / 16; i++) p->sv[i] = (uint16_t)qp_rng_u64(&r);
    for (size_t i = 0; i < IN; i++) p->suh[i] = p->su[i / 16] >> i % 16 & 1 ? 0xBC00 : 0x3C00;
    for (size_t i = 0; i < OUT; i++) p->svh[i] = p->sv[i / 16] >> i % 16 & 1 ? 0xBC00 : 0x3C00;
    for (size_t i = 0; i < OUT; i++) {
        p->bias16[i] = qp_f32_to_f16_rne(qp_rng_normal(&r));
        p->bias[i] = qp_f16_to_f32(p->bias16[i]);
    }
    p->mul1 = (int32_t)QP_EXL3_MUL1_MULT;
    p->mcg = (int32_t)QP_EXL3_MCG_MULT;
    pack_add(p, "l.trellis", "I16", 3, IN / 16, OUT / 16, 64, p->trellis, sizeof p->trellis);
    pack_add(p, "l.suh", "F16", 1, IN, 0, 0, p->suh, sizeof p->suh);
    pack_add(p, "l.svh", "F16", 1, OUT, 0, 0, p->svh, sizeof p->svh);
    pack_add(p, "l.mul1", "I32", 0, 0, 0, 0, &p->mul1, 4);
    return p;
}

static void pack_free(pack *p)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", p->dir);
    unlink(path);
    rmdir(p->dir);
    qp_free(p);
}

static qp_status pack_bind(pack *p, qp_exl3 *t, qp_checkpoint **c, qp_arena *a, uint32_t in, uint32_t out, qp_err *err)
{
    st_write(p->dir, p->t, p->n);
    *c = open_dir(p->dir);
    return qp_exl3_bind(t, *c, "l", in, out, a, err);
}

static void test_sign_words_equal_scales(void **state)
{
    (void)state;
    pack *p = pack_new();
    qp_arena a;
    qp_checkpoint *c;
    qp_exl3 t;
    qp_err err;
    qp_arena_init(&a, 0);
    p->t[1] = (st_tensor){"l.su", "I16", 1, {IN / 16}, p->su, sizeof p->su};
    p->t[2] = (st_tensor){"l.sv", "I16", 1, {OUT / 16}, p->sv, sizeof p->sv};
    if (pack_bind(p, &t, &c, &a, IN, OUT, &err)) fail_msg("%s", err.msg);
    assert_memory_equal(t.suh, p->suh, sizeof p->suh);
    assert_memory_equal(t.svh, p->svh, sizeof p->svh);
    assert_null(t.bias);
    qp_checkpoint_close(c);
    qp_arena_deinit(&a);
    pack_free(p);
}

static void test_padded_widths_and_bias(void **state)
{
    (void)state;
    static const char *const types[] = {"F16", "F32", "BF16"};
    for (int i = 0; i < 3; i++) {
        pack *p = pack_new();
        uint16_t b16[OUT];
        qp_arena a;
        qp_checkpoint *c;
        qp_exl3 t;
        qp_err err;
        qp_arena_init(&a, 0);
        for (int o = 0; o < OUT; o++) b16[o] = qp_f32_to_bf16_rne(p->bias[o]);
        /* stored at the true width, or padded */
        unsigned long n = i == 1 ? 100 : OUT;
        const void *data = i == 0 ? (const void *)p->bias16 : i == 1 ? (const void *)p->bias : (const void *)b16;
        pack_add(p, "l.bias", types[i], 1, n, 0, 0, data, n * (i == 1 ? 4 : 2));
        if (pack_bind(p, &t, &c, &a, 200, 100, &err)) fail_msg("%s", err.msg);
        for (int o = 0; o < 100; o++) assert_true(t.bias[o] == (i == 2 ? qp_bf16_to_f32(b16[o]) : p->bias[o]));
        float *x = random_rows(200, 5);
        check_products(&t, x, 1, types[i]);
        qp_free(x);
        qp_checkpoint_close(c);
        qp_arena_deinit(&a);
        pack_free(p);
    }
}

/* Binds p with the widths; the status must be st and the message must hold `part`. */
static void expect_error(pack *p, uint32_t in, uint32_t out, const char *part)
{
    qp_arena a;
    qp_checkpoint *c;
    qp_exl3 t;
    qp_err err;
    memset(&t, 0x5A, sizeof t);
    qp_exl3 before = t;
    qp_arena_init(&a, 0);
    assert_int_equal(pack_bind(p, &t, &c, &a, in, out, &err), QP_EFORMAT);
    if (!strstr(err.msg, part)) fail_msg("message \"%s\" lacks \"%s\"", err.msg, part);
    assert_memory_equal(&t, &before, sizeof t);
    qp_checkpoint_close(c);
    qp_arena_deinit(&a);
    pack_free(p);
}

static void test_bind_refuses_by_name(void **state)
{
    (void)state;
    pack *p;
    expect_error(pack_new(), IN + 1, OUT, "l.trellis: 256 input channels, the model needs 257");
    expect_error(pack_new(), IN, OUT + 1, "l.trellis: 128 output channels, the model needs 129");
    expect_error(pack_new(), 0, OUT, "the model needs 0");
    p = pack_new(), p->t[0].name = "x.trellis";
    expect_error(p, IN, OUT, "l.trellis: missing");
    p = pack_new(), p->t[0].dtype = "F16";
    expect_error(p, IN, OUT, "l.trellis: dtype F16, must be I16");
    p = pack_new(), p->t[0].rank = 2, p->t[0].shape[1] = OUT / 16 * 64;
    expect_error(p, IN, OUT, "l.trellis: shape [16, 512], must be [in/16, out/16, 16*bits]");
    p = pack_new(), p->t[0].shape[0] = IN / 16 * 64 / 72, p->t[0].shape[2] = 72, p->t[0].n_bytes = 14 * 8 * 72 * 2;
    expect_error(p, IN, OUT, "l.trellis: shape [14, 8, 72], last dimension must be 16*bits");
    p = pack_new(), p->t[0].shape[0] = 4, p->t[0].n_bytes = 4 * 8 * 64 * 2;
    expect_error(p, 64, OUT, "4 tiles of input channels, must be a multiple of 8");
    p = pack_new(), p->t[0].shape[1] = 4, p->t[0].n_bytes = 16 * 4 * 64 * 2;
    expect_error(p, IN, 64, "4 tiles of output channels, must be a multiple of 8");
    p = pack_new(), p->t[0].shape[0] = 0, p->t[0].n_bytes = 0;
    expect_error(p, IN, OUT, "0 tiles of input channels");
    p = pack_new(), p->mul1 = 12345;
    expect_error(p, IN, OUT, "l.mul1: multiplier 0x00003039, must be 0x83DCD12D");
    p = pack_new(), p->t[3].name = "l.mcg";
    expect_error(p, IN, OUT, "l.mcg: multiplier 0x83DCD12D, must be 0xCBAC1FED");
    p = pack_new(), p->t[3].dtype = "F32";
    expect_error(p, IN, OUT, "l.mul1: dtype F32, must be I32");
    p = pack_new(), p->t[3].rank = 1, p->t[3].shape[0] = 2, p->t[3].data = p->su, p->t[3].n_bytes = 8;
    expect_error(p, IN, OUT, "l.mul1: shape [2], must be a scalar");
    p = pack_new(), pack_add(p, "l.mcg", "I32", 0, 0, 0, 0, &p->mcg, 4);
    expect_error(p, IN, OUT, "l: has both .mcg and .mul1");
    p = pack_new(), p->t[0].shape[2] = 40, p->t[0].n_bytes = 16 * 8 * 40 * 2, p->t[3].name = "l.other";
    expect_error(p, IN, OUT, "l.trellis: 2.5 bits with codebook 3inst, half rates must have mul1");
    p = pack_new(), p->t[1].name = "l.other";
    expect_error(p, IN, OUT, "l: has neither .suh nor .su");
    p = pack_new(), pack_add(p, "l.sv", "I16", 1, OUT / 16, 0, 0, p->sv, sizeof p->sv);
    expect_error(p, IN, OUT, "l: has both .svh and .sv");
    p = pack_new(), p->t[1].dtype = "BF16";
    expect_error(p, IN, OUT, "l.suh: dtype BF16, must be F16");
    p = pack_new(), p->t[2].shape[0] = 64, p->t[2].n_bytes = 128;
    expect_error(p, IN, OUT, "l.svh: shape [64], must be [128]");
    p = pack_new(), p->t[1] = (st_tensor){"l.su", "I16", 1, {8}, p->su, 16};
    expect_error(p, IN, OUT, "l.su: shape [8], must be [16]");
    p = pack_new(), p->suh[3] = 0x7C00;
    expect_error(p, IN, OUT, "l.suh: value 3 is not finite");
    p = pack_new(), p->svh[127] = 0xFE01;
    expect_error(p, IN, OUT, "l.svh: value 127 is not finite");
    p = pack_new(), p->bias[7] = NAN, pack_add(p, "l.bias", "F32", 1, OUT, 0, 0, p->bias, sizeof p->bias);
    expect_error(p, IN, OUT, "l.bias: value 7 is not finite");
    p = pack_new(), pack_add(p, "l.bias", "I32", 1, OUT, 0, 0, p->bias, sizeof p->bias);
    expect_error(p, IN, OUT, "l.bias: dtype I32, must be F16, F32 or BF16");
    p = pack_new(), pack_add(p, "l.bias", "F32", 1, 64, 0, 0, p->bias, 256);
    expect_error(p, IN, OUT, "l.bias: shape [64], must be [128]");
}

/* Each allocation of the bind failing in turn: QP_ENOMEM, nothing held, *out untouched. */
static void test_bind_without_memory(void **state)
{
    (void)state;
    pack *p = pack_new();
    qp_err err;
    p->t[1] = (st_tensor){"l.su", "I16", 1, {IN / 16}, p->su, sizeof p->su};
    pack_add(p, "l.bias", "F32", 1, OUT, 0, 0, p->bias, sizeof p->bias);
    st_write(p->dir, p->t, p->n);
    qp_checkpoint *c = open_dir(p->dir);
    size_t before = qp_alloc_live_bytes();
    qp_status st = QP_ENOMEM;
    for (uint64_t n = 1; st != QP_OK; n++) {
        assert_in_range(n, 1, 20);
        qp_arena a;
        qp_exl3 t;
        qp_arena_init(&a, 0);
        qp_alloc_fail_after(n);
        st = qp_exl3_bind(&t, c, "l", IN, OUT, &a, &err);
        qp_alloc_fail_after(0);
        if (st != QP_OK) assert_int_equal(st, QP_ENOMEM);
        qp_arena_deinit(&a);
        assert_int_equal(qp_alloc_live_bytes(), before);
    }
    qp_arena a; /* the arena's own limit */
    qp_exl3 t;
    qp_arena_init(&a, 8);
    assert_int_equal(qp_exl3_bind(&t, c, "l", IN, OUT, &a, &err), QP_ENOMEM);
    assert_non_null(strstr(err.msg, "l.su: no memory for 512 bytes"));
    qp_arena_deinit(&a);
    qp_checkpoint_close(c);
    pack_free(p);
}

static void rows_expect(pack *p, uint32_t rows, uint32_t cols, qp_status want, const char *part)
{
    qp_exl3_rows r;
    qp_err err;
    st_write(p->dir, p->t, p->n);
    qp_checkpoint *c = open_dir(p->dir);
    qp_status st = qp_exl3_rows_bind(&r, c, "e", rows, cols, &err);
    if (st != want) fail_msg("status %d, wanted %d: %s", st, want, st ? err.msg : "");
    if (want != QP_OK && !strstr(err.msg, part)) fail_msg("message \"%s\" lacks \"%s\"", err.msg, part);
    if (want == QP_OK) {
        assert_int_equal(r.bits, 2);
        assert_int_equal(r.n_groups, 2);
        assert_int_equal(r.n_rows, 5);
        assert_true(qp_exl3_is_rows(c, "e"));
        assert_false(qp_exl3_is_rows(c, "f"));
    }
    qp_checkpoint_close(c);
    pack_free(p);
}

static pack *rows_pack(void)
{
    pack *p = pack_new();
    p->n = 0;
    for (int i = 0; i < 5 * 2 * 33; i += 33) p->trellis[i] = 0x2000;
    for (int i = 0; i < 512; i++) p->trellis[1000 + i] = i & 1 ? 0xBC00 : 0x3C00;
    pack_add(p, "e.trellis", "I16", 2, 5, 66, 0, p->trellis, 5 * 66 * 2);
    pack_add(p, "e.signs", "F16", 2, 2, 256, 0, p->trellis + 1000, 1024);
    return p;
}

static void test_rows_bind(void **state)
{
    (void)state;
    pack *p;
    rows_expect(rows_pack(), 5, 300, QP_OK, "");
    rows_expect(rows_pack(), 6, 300, QP_EFORMAT, "e.trellis: shape [5, 66], must have 6 to");
    rows_expect(rows_pack(), 5, 200, QP_EFORMAT, "rows of 200 columns must have 1 * (1 + 16*bits) words");
    rows_expect(rows_pack(), 5, 0, QP_EINVAL, "row width 0");
    p = rows_pack(), p->t[0].dtype = "F16";
    rows_expect(p, 5, 300, QP_EFORMAT, "e.trellis: F16 [5, 66], must be I16");
    p = rows_pack(), p->n = 1;
    rows_expect(p, 5, 300, QP_EFORMAT, "e.signs: missing");
    p = rows_pack(), p->t[1].rank = 1, p->t[1].shape[0] = 512;
    rows_expect(p, 5, 300, QP_EFORMAT, "e.signs: F16 [512], must be F16 [2, 256]");
    p = rows_pack(), p->trellis[1003] = 0x4000;
    rows_expect(p, 5, 300, QP_EFORMAT, "e.signs: value 3 has fp16 bits 0x4000");
    p = rows_pack(), p->trellis[3 * 33] = 0xFC00;
    rows_expect(p, 5, 300, QP_EFORMAT, "e.trellis: scale of row 1, group 1 is not finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_of_every_codebook_and_rate),
        cmocka_unit_test(test_half_rates_of_a_real_pack),
        cmocka_unit_test(test_half_rate_inner),
        cmocka_unit_test(test_rows_of_embedding_and_ngram_table),
        cmocka_unit_test(test_sign_words_equal_scales),
        cmocka_unit_test(test_padded_widths_and_bias),
        cmocka_unit_test(test_bind_refuses_by_name),
        cmocka_unit_test(test_bind_without_memory),
        cmocka_unit_test(test_rows_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
