/* EXL3 kernels: every level of this machine gives the bits of ref. Sums of the integer path are exact, those of the
 * fp32 path have one order, so there is no tolerance anywhere. Outputs have guard bytes; the trellis ends (or begins)
 * at an unmapped page. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "exl3_test.h"

#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 64 };

/* n bytes that end right before an unmapped page, or begin right after one. */
typedef struct fenced {
    unsigned char *map, *data;
    size_t map_bytes;
} fenced;

static fenced fenced_new(size_t n, int at_start)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    fenced f = {.map_bytes = body + 2 * page};
    f.map = mmap(NULL, f.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f.map != MAP_FAILED);
    assert_int_equal(mprotect(f.map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(f.map + page + body, page, PROT_NONE), 0);
    f.data = at_start ? f.map + page : f.map + page + body - n;
    return f;
}

typedef struct tensor {
    qp_exl3 t;
    fenced trellis;
    uint16_t *suh, *svh;
    float *bias;
} tensor;

static tensor tensor_new(uint32_t n_in, uint32_t n_out, uint32_t n_words, qp_exl3_codebook book, uint64_t seed)
{
    qp_rng r = {seed};
    tensor x;
    size_t n = (size_t)(n_in / 16) * (n_out / 16) * n_words;
    x.trellis = fenced_new(n * 2, seed & 1);
    uint16_t *w = (uint16_t *)(void *)x.trellis.data;
    for (size_t i = 0; i < n; i++) w[i] = (uint16_t)qp_rng_u64(&r);
    x.suh = xmalloc(n_in * 2);
    x.svh = xmalloc(n_out * 2);
    x.bias = xmalloc(n_out * sizeof *x.bias);
    for (uint32_t i = 0; i < n_in; i++) x.suh[i] = qp_f32_to_f16_rne(qp_rng_normal(&r));
    for (uint32_t i = 0; i < n_out; i++) x.svh[i] = qp_f32_to_f16_rne(qp_rng_normal(&r));
    for (uint32_t i = 0; i < n_out; i++) x.bias[i] = qp_rng_normal(&r);
    x.t = (qp_exl3){.trellis = w,
                    .suh = x.suh,
                    .svh = x.svh,
                    .bias = NULL,
                    .n_in = n_in,
                    .n_out = n_out,
                    .n_in_true = n_in,
                    .n_out_true = n_out,
                    .n_words = n_words,
                    .codebook = book};
    return x;
}

static void tensor_free(tensor *x)
{
    munmap(x->trellis.map, x->trellis.map_bytes);
    qp_free(x->suh);
    qp_free(x->svh);
    qp_free(x->bias);
}

/* All states of a tile appear over this many tiles of random bits; also the extremes are put in by hand. */
typedef struct mul_case {
    size_t n_rows, tile0, tile1, ldx_extra;
    int extreme; /* all activations at the limit, signs chosen so that a lane's sums only grow */
} mul_case;

static void compare(const float *got, const float *want, size_t n, const char *what, const char *level, const tensor *x,
                    const mul_case *c)
{
    for (size_t i = 0; i < n; i++)
        if (qp_f32_bits(got[i]) != qp_f32_bits(want[i]) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s %s, %u words, codebook %d, %ux%u, %zu rows, tiles %zu..%zu: value %zu is %a, ref has %a",
                     level, what, x->t.n_words, (int)x->t.codebook, x->t.n_in, x->t.n_out, c->n_rows, c->tile0,
                     c->tile1, i, (double)got[i], (double)want[i]);
}

static void check_mul(const qp_cpu_kernels *k, int n_levels, const tensor *x, const mul_case *c)
{
    const size_t n_in = x->t.n_in, ldx = n_in + c->ldx_extra, ldy = x->t.n_out + 3, n_y = c->n_rows * ldy + GUARD;
    float *xh = xmalloc(c->n_rows * ldx * sizeof *xh), *scale = xmalloc(c->n_rows * sizeof *scale);
    int16_t *xq = xmalloc(c->n_rows * ldx * sizeof *xq);
    int64_t *sum = xmalloc(c->n_rows * sizeof *sum);
    float *y = xmalloc(n_y * sizeof *y), *want = xmalloc(n_y * sizeof *want);
    qp_rng r = {99};
    for (size_t m = 0; m < c->n_rows; m++) {
        for (size_t i = 0; i < ldx; i++)
            xh[m * ldx + i] = c->extreme ? (c->extreme == 1 ? 1.0f : -1.0f) : qp_rng_normal(&r);
        k[0].exl3_quantize(xq + m * ldx, scale + m, sum + m, xh + m * ldx, n_in);
    }
    if (c->n_rows > 1 && !c->extreme) scale[1] = NAN; /* a row that could not be quantized */
    for (int arith = 0; arith < 2; arith++) {
        if (arith == 0 && x->t.codebook != QP_EXL3_MUL1) continue;
        for (int l = 0; l < n_levels; l++) {
            float *out = l ? y : want;
            size_t n_scratch = k[l].exl3_scratch_bytes(n_in);
            unsigned char *scratch = xmalloc(n_scratch + GUARD);
            memset(scratch + n_scratch, 0xA5, GUARD);
            for (size_t i = 0; i < n_y; i++) out[i] = 12345.0f;
            if (arith == 0)
                k[l].exl3_mul_i16(out, ldy, &x->t, c->tile0, c->tile1, xq, ldx, scale, sum, c->n_rows, scratch);
            else
                k[l].exl3_mul_f32(out, ldy, &x->t, c->tile0, c->tile1, xh, ldx, c->n_rows, scratch);
            for (size_t i = 0; i < GUARD; i++) assert_int_equal(scratch[n_scratch + i], 0xA5);
            qp_free(scratch);
            if (l) compare(y, want, n_y, arith ? "f32" : "i16", k[l].name, x, c);
        }
        /* what lies outside the columns was not touched */
        for (size_t i = 0; i < n_y; i++)
            if (i >= c->n_rows * ldy || i % ldy < c->tile0 * 16 || i % ldy >= c->tile1 * 16)
                assert_true(want[i] == 12345.0f);
    }
    qp_free(xh);
    qp_free(scale);
    qp_free(xq);
    qp_free(sum);
    qp_free(y);
    qp_free(want);
}

static void for_each_rate(const mul_case *cases, size_t n_cases, uint32_t n_in, uint32_t n_out)
{
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    for (int book = 0; book < 3; book++)
        for (int i = 0; i < N_RATES; i++) {
            if (qp_exl3_words_half(exl3_rates[i]) && book != QP_EXL3_MUL1) continue;
            tensor x = tensor_new(n_in, n_out, exl3_rates[i], (qp_exl3_codebook)book, (uint64_t)(i + book));
            for (size_t c = 0; c < n_cases; c++) check_mul(k, n, &x, &cases[c]);
            tensor_free(&x);
        }
}

static void test_mul_of_every_rate_and_codebook(void **state)
{
    (void)state;
    static const mul_case cases[] = {
        {1, 0, 16, 0, 0}, {2, 0, 16, 16, 0}, {3, 3, 16, 0, 0}, {4, 0, 9, 0, 0}, {5, 0, 8, 0, 0}, {7, 5, 8, 16, 0},
    };
    for_each_rate(cases, sizeof cases / sizeof *cases, 128, 256);
}

static void test_mul_of_many_rows(void **state)
{
    (void)state;
    static const mul_case cases[] = {
        {12, 0, 8, 0, 0}, {16, 7, 8, 0, 0}, {17, 0, 3, 0, 0}, {33, 2, 4, 32, 0}, {64, 0, 2, 0, 0}, {70, 1, 2, 0, 0},
    };
    for_each_rate(cases, sizeof cases / sizeof *cases, 128, 128);
}

/* Runs longer than what fits int32 without a flush, lengths that are no multiple of the block. */
static void test_mul_of_long_rows(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1024, 1152, 2176, 4352};
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    for (int w = 0; w < 4; w++) {
        tensor x = tensor_new(widths[w], 128, w & 1 ? 40 : 64, QP_EXL3_MUL1, (uint64_t)w);
        static const mul_case cases[] = {{1, 0, 8, 0, 0}, {2, 0, 2, 0, 0}, {4, 6, 8, 0, 0}, {6, 3, 6, 0, 0}};
        for (int c = 0; c < 4; c++) check_mul(k, n, &x, &cases[c]);
        tensor_free(&x);
    }
}

/* Whole blocks and strips of the tile kernels, and every number of rows around them. */
static void test_mul_of_blocks_of_rows(void **state)
{
    (void)state;
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    tensor x = tensor_new(256, 384, 64, QP_EXL3_MUL1, 11);
    for (size_t rows = 5; rows <= 70; rows++) {
        const mul_case c = {rows, rows % 5, rows % 5 + 1 + rows % 4, rows % 3 * 8, 0};
        check_mul(k, n, &x, &c);
    }
    const mul_case large[] = {{128, 0, 24, 0, 0}, {512, 3, 14, 0, 0}};
    for (int c = 0; c < 2; c++) check_mul(k, n, &x, &large[c]);
    tensor_free(&x);
    x = tensor_new(6144, 128, 48, QP_EXL3_MUL1, 12); /* narrow strips */
    const mul_case narrow = {33, 1, 8, 0, 0};
    check_mul(k, n, &x, &narrow);
    tensor_free(&x);
}

/* The longest row of the tile kernels and one that is longer, sums as large as they get. */
static void test_mul_of_the_longest_rows(void **state)
{
    (void)state;
    static const uint32_t widths[] = {131072, 131200};
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    for (int w = 0; w < 2; w++)
        for (int e = 0; e < 2; e++) {
            tensor x = tensor_new(widths[w], 128, 16, QP_EXL3_MUL1, 13);
            if (e) memset(x.trellis.data, 0, (size_t)widths[w] / 16 * 8 * 32);
            const mul_case cases[] = {{3, 7, 8, 0, e}, {5, 7, 8, 0, e}};
            for (int c = 0; c < 2; c++) check_mul(k, n, &x, &cases[c]);
            tensor_free(&x);
        }
}

/* A trellis of one repeated state with the greatest (least) byte sum, activations all at the limit. */
static void test_mul_at_the_limits_of_the_sums(void **state)
{
    (void)state;
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    unsigned lo = 2000, hi = 0;
    uint16_t s_lo = 0, s_hi = 0;
    for (unsigned s = 0; s < 65536; s++) {
        unsigned b = qp_exl3_bytesum((uint16_t)s);
        if (b < lo) lo = b, s_lo = (uint16_t)s;
        if (b > hi) hi = b, s_hi = (uint16_t)s;
    }
    tensor x = tensor_new(4096, 128, 128, QP_EXL3_MUL1, 3);
    uint16_t *w = (uint16_t *)(void *)x.trellis.data;
    for (int e = 0; e < 2; e++) {
        /* K = 8: state t is bytes t - 1 and t, so alternating bytes give the state at every second weight */
        uint16_t v = e ? s_hi : s_lo;
        for (size_t i = 0; i < (size_t)4096 / 16 * 8 * 128; i++) w[i] = v;
        for (int sign = 1; sign <= 2; sign++) {
            const mul_case cases[] = {{1, 0, 8, 0, sign}, {4, 0, 1, 0, sign}, {5, 0, 2, 0, sign}};
            for (int c = 0; c < 3; c++) check_mul(k, n, &x, &cases[c]);
        }
    }
    tensor_free(&x);
    /* all bits equal: one state everywhere, at every rate */
    for (int i = 0; i < N_RATES; i++) {
        x = tensor_new(2048, 128, exl3_rates[i], QP_EXL3_MUL1, 5);
        memset(x.trellis.data, i & 1 ? 0xFF : 0, (size_t)2048 / 16 * 8 * exl3_rates[i] * 2);
        const mul_case c1 = {1, 0, 8, 0, 1}, c5 = {5, 0, 2, 0, 2};
        check_mul(k, n, &x, &c1);
        check_mul(k, n, &x, &c5);
        tensor_free(&x);
    }
}

/* Each of the 65536 states once and more, so every value of every codebook takes part in a product. */
static void test_mul_of_every_state(void **state)
{
    (void)state;
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    for (int book = 0; book < 3; book++) {
        tensor x = tensor_new(1024, 128, 128, (qp_exl3_codebook)book, 7);
        unsigned char *seen = xmalloc(65536);
        memset(seen, 0, 65536);
        for (unsigned tile = 0; tile < 512; tile++) {
            /* K = 8: state t is stream bytes t - 1 and t; tiles 2a, 2a + 1 pair byte a with 0 .. 127, 128 .. 255 */
            uint16_t states[256];
            for (unsigned s = 0; s < 256; s++)
                x.trellis.data[tile * 256 + (s ^ 3)] = (unsigned char)(s % 2 ? s / 2 + tile % 2 * 128 : tile / 2);
            qp_exl3_tile_states(x.t.trellis + tile * 128, 128, states);
            for (unsigned s = 0; s < 256; s++) seen[states[s]] = 1;
        }
        for (unsigned s = 0; s < 65536; s++) assert_int_equal(seen[s], 1);
        const mul_case c1 = {1, 0, 8, 0, 0}, c5 = {5, 0, 8, 0, 0};
        check_mul(k, n, &x, &c1);
        check_mul(k, n, &x, &c5);
        qp_free(seen);
        tensor_free(&x);
    }
}

static void check_quantize(const qp_cpu_kernels *k, int n, const float *x, size_t n_in)
{
    int16_t want[1024 + GUARD], got[1024 + GUARD];
    float s0, s1;
    int64_t m0, m1;
    assert_in_range(n_in, 1, 1024);
    memset(want, 0x5A, sizeof want);
    k[0].exl3_quantize(want, &s0, &m0, x, n_in);
    for (int l = 1; l < n; l++) {
        memset(got, 0x5A, sizeof got);
        k[l].exl3_quantize(got, &s1, &m1, x, n_in);
        assert_memory_equal(got, want, sizeof got);
        assert_true(m0 == m1);
        assert_true(qp_f32_bits(s0) == qp_f32_bits(s1) || (isnan(s0) && isnan(s1)));
    }
}

static void test_quantize(void **state)
{
    (void)state;
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    qp_rng r = {5};
    static const float amps[] = {1.0f, 1e-3f, 3e38f, 2e-34f, 1e-38f, 1e-42f, 0.0f};
    float x[1024];
    for (size_t n_in = 128; n_in <= 1024; n_in += 128)
        for (int a = 0; a < 7; a++) {
            for (size_t i = 0; i < n_in; i++) x[i] = (float)(2 * qp_rng_unit(&r) - 1) * amps[a];
            check_quantize(k, n, x, n_in);
            for (size_t i = 0; i < n_in; i++) x[i] = i == 77 ? -0x1.0p+3f : (float)(i % 33) / 2 * 0x1p+3f / 16383.0f;
            check_quantize(k, n, x, n_in); /* ties */
            x[n_in - 1] = a == 0 ? NAN : a == 1 ? -INFINITY : a == 2 ? INFINITY : -0.0f;
            check_quantize(k, n, x, n_in);
        }
    /* the order inside 16 and the scale, by hand */
    int16_t q[128];
    float s;
    int64_t sum;
    for (int i = 0; i < 128; i++) x[i] = (float)(i % 16);
    x[17] = 16383.0f;
    k[0].exl3_quantize(q, &s, &sum, x, 128);
    static const int16_t order[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    assert_memory_equal(q, order, sizeof order);
    assert_true(s == 1.0f && q[17] == 16383 && sum == 8 * 120 - 1 + 16383);
    x[3] = NAN;
    k[0].exl3_quantize(q, &s, &sum, x, 128);
    assert_true(isnan(s) && sum == 0 && q[17] == 0);
}

static void test_rotations(void **state)
{
    (void)state;
    qp_cpu_kernels k[5];
    const int n = exl3_levels(k);
    static const struct {
        uint32_t in, in_true, out, out_true;
    } dims[] = {
        {128, 128, 128, 128}, {640, 576, 256, 200}, {256, 129, 384, 257}, {384, 383, 128, 1}, {256, 8, 256, 240}};
    for (int d = 0; d < 5; d++)
        for (int bias = 0; bias < 2; bias++) {
            tensor t = tensor_new(dims[d].in, dims[d].out, 64, QP_EXL3_MUL1, 9);
            t.t.n_in_true = dims[d].in_true;
            t.t.n_out_true = dims[d].out_true;
            t.t.bias = bias ? t.bias : NULL;
            /* inputs end at an unmapped page: no read past n_in_true or n_out; outputs too: no write past them */
            fenced x = fenced_new(t.t.n_in_true * 4, 0), yh = fenced_new(t.t.n_out * 4, 0);
            fenced y = fenced_new(t.t.n_out_true * 4, 0), xh = fenced_new(t.t.n_in * 4, 0);
            fenced y0 = fenced_new(t.t.n_out_true * 4, 0), xh0 = fenced_new(t.t.n_in * 4, 0);
            qp_rng r = {4};
            for (uint32_t i = 0; i < t.t.n_in_true; i++) ((float *)(void *)x.data)[i] = qp_rng_normal(&r);
            for (uint32_t i = 0; i < t.t.n_out; i++) ((float *)(void *)yh.data)[i] = qp_rng_normal(&r);
            for (int l = 0; l < n; l++) {
                k[l].exl3_rotate_in((float *)(void *)(l ? xh : xh0).data, (const float *)(void *)x.data, &t.t);
                k[l].exl3_rotate_out((float *)(void *)(l ? y : y0).data, (const float *)(void *)yh.data, &t.t);
                if (l) assert_memory_equal(xh.data, xh0.data, t.t.n_in * 4);
                if (l) assert_memory_equal(y.data, y0.data, t.t.n_out_true * 4);
            }
            munmap(x.map, x.map_bytes), munmap(yh.map, yh.map_bytes), munmap(y.map, y.map_bytes);
            munmap(xh.map, xh.map_bytes), munmap(y0.map, y0.map_bytes), munmap(xh0.map, xh0.map_bytes);
            tensor_free(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mul_of_every_rate_and_codebook),
        cmocka_unit_test(test_mul_of_many_rows),
        cmocka_unit_test(test_mul_of_long_rows),
        cmocka_unit_test(test_mul_of_blocks_of_rows),
        cmocka_unit_test(test_mul_of_the_longest_rows),
        cmocka_unit_test(test_mul_at_the_limits_of_the_sums),
        cmocka_unit_test(test_mul_of_every_state),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_rotations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
