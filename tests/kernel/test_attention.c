/* Attention: ref against a softmax in double, the levels against ref, avx512 against avx2 bit for bit, and at every
 * level the same bits for queries together, one by one and in chunks. Slots that no row sees hold NaN, and pages
 * before every window do not exist. */
#include "kernel/kernel_test.h"

typedef struct attn_case {
    uint32_t head_dim, n_group, n_q, pos0, window, page_size;
    qp_wtype type;
    float softcap;
    bool sinks;
} attn_case;

typedef struct attn_data {
    float *q, *k, *v, *sinks; /* k, v: [n_keys, head_dim], rounded to the cache's type */
    unsigned char *pages;
    int32_t *ids;
    size_t n_keys, row; /* row: n_group * head_dim */
    qp_attn_args a;
} attn_data;

static void put(unsigned char *at, const float *x, size_t n, qp_wtype type)
{
    level[0]->from_f32(at, type, x, n);
}

static attn_data data_new(qp_rng *r, attn_case c)
{
    attn_data d = {0};
    const size_t slot = c.head_dim * qp_wtype_bytes(c.type), head = c.page_size * slot, gap = 2 * slot;
    d.n_keys = c.pos0 + c.n_q;
    d.row = (size_t)c.n_group * c.head_dim;
    d.q = floats_new(r, d.row * c.n_q, 1);
    d.k = floats_new(r, d.n_keys * c.head_dim, 1);
    d.v = floats_new(r, d.n_keys * c.head_dim, 1);
    qp_free(stored_new(d.k, d.n_keys * c.head_dim, c.type));
    qp_free(stored_new(d.v, d.n_keys * c.head_dim, c.type));
    d.sinks = floats_new(r, c.n_group, 1);
    const size_t n_pages = (d.n_keys + c.page_size - 1) / c.page_size, page_bytes = 2 * head + gap + slot;
    d.pages = qp_malloc(n_pages * page_bytes);
    d.ids = qp_malloc(n_pages * sizeof *d.ids);
    assert_true(d.pages && d.ids);
    memset(d.pages, 0xFF, n_pages * page_bytes); /* NaN in every type */
    for (size_t i = 0; i < n_pages; i++) d.ids[i] = (int32_t)i;
    for (size_t i = n_pages; i-- > 1;) {
        const size_t j = qp_rng_u64(r) % (i + 1);
        const int32_t t = d.ids[i];
        d.ids[i] = d.ids[j];
        d.ids[j] = t;
    }
    const size_t seen = c.window && c.pos0 + 1 > c.window ? c.pos0 + 1 - c.window : 0;
    for (size_t j = 0; j < d.n_keys; j++) {
        unsigned char *page = d.pages + (size_t)d.ids[j / c.page_size] * page_bytes;
        if (j < seen) continue;
        put(page + gap + j % c.page_size * slot, d.k + j * c.head_dim, c.head_dim, c.type);
        put(page + gap + slot + head + j % c.page_size * slot, d.v + j * c.head_dim, c.head_dim, c.type);
    }
    for (size_t p = 0; (p + 1) * c.page_size <= seen; p++) d.ids[p] = -1;
    d.a = (qp_attn_args){.q = d.q,
                         .ldq = d.row,
                         .ldo = d.row + 5,
                         .n_q = c.n_q,
                         .n_group = c.n_group,
                         .head_dim = c.head_dim,
                         .pos0 = c.pos0,
                         .window = c.window,
                         .scale = 1 / sqrtf((float)c.head_dim),
                         .softcap = c.softcap,
                         .sinks = c.sinks ? d.sinks : NULL,
                         .kv_base = d.pages,
                         .page_ids = d.ids,
                         .page_bytes = page_bytes,
                         .k_offset = gap,
                         .v_offset = gap + slot + head,
                         .page_size = c.page_size,
                         .kv_type = c.type};
    return d;
}

static void data_free(attn_data *d)
{
    qp_free(d->q);
    qp_free(d->k);
    qp_free(d->v);
    qp_free(d->sinks);
    qp_free(d->pages);
    qp_free(d->ids);
}

/* The queries in steps of `chunk` (0: all at once). */
static void run(const qp_cpu_kernels *k, const attn_data *d, float *out, uint32_t chunk)
{
    qp_attn_args a = d->a;
    void *scratch = qp_malloc(k->attention_scratch_bytes(a.n_q, a.n_group, a.head_dim));
    assert_non_null(scratch);
    if (!chunk) chunk = a.n_q;
    for (uint32_t t = 0; t < d->a.n_q; t += chunk) {
        a.n_q = d->a.n_q - t < chunk ? d->a.n_q - t : chunk;
        a.q = d->a.q + t * a.ldq;
        a.out = out + t * a.ldo;
        a.pos0 = d->a.pos0 + t;
        k->attention(&a, scratch);
    }
    qp_free(scratch);
}

/* |error| <= bound * max |v| of the visible keys. fp32 scores of size s have an error of (d / 16 + 5) 2^-24 |q||k|
 * scale, about (d / 16 + 5) 2^-24 * 4 here; each moves its probability by that much, twice with the sum. Sums of p v
 * over n keys add n 2^-24, the exps 2^-22 a block. */
static void check_exact(const attn_case *c, const attn_data *d, const float *out, const char *name)
{
    double *s = qp_malloc(d->n_keys * sizeof *s);
    assert_non_null(s);
    for (size_t t = 0; t < c->n_q; t++) {
        const size_t hi = c->pos0 + t + 1, lo = c->window && hi > c->window ? hi - c->window : 0;
        for (size_t g = 0; g < c->n_group; g++) {
            const float *q = d->q + t * d->row + g * c->head_dim;
            double m = c->sinks ? d->sinks[g] : -INFINITY, l = 0, top = 0;
            for (size_t j = lo; j < hi; j++) {
                s[j] = 0;
                for (size_t i = 0; i < c->head_dim; i++) s[j] += (double)q[i] * d->k[j * c->head_dim + i];
                s[j] *= (double)d->a.scale;
                if (c->softcap > 0) s[j] = c->softcap * tanh(s[j] / c->softcap);
                m = fmax(m, s[j]);
            }
            for (size_t j = lo; j < hi; j++) l += s[j] = exp(s[j] - m);
            if (c->sinks) l += exp(d->sinks[g] - m);
            for (size_t i = 0; i < c->head_dim; i++) {
                double o = 0;
                for (size_t j = lo; j < hi; j++) {
                    o += s[j] / l * d->v[j * c->head_dim + i];
                    top = fmax(top, fabs(d->v[j * c->head_dim + i]));
                }
                const double bound = (8 * (c->head_dim / 16 + 5) + (hi - lo) / 2 + 20) * 0x1p-24 * top;
                const double err = fabs(out[t * d->a.ldo + g * c->head_dim + i] - o);
                if (!(err <= bound))
                    fail_msg("%s d %u query %zu head %zu [%zu]: %g, want %g, bound %g", name, c->head_dim, t, g, i,
                             out[t * d->a.ldo + g * c->head_dim + i], o, bound);
            }
        }
    }
    qp_free(s);
}

static void check_case(qp_rng *r, attn_case c)
{
    static const uint32_t chunks[] = {0, 1, 3, 7};
    attn_data d = data_new(r, c);
    float *avx2 = NULL;
    for (int l = 0; l < n_levels; l++) {
        float *first = NULL;
        const char *name = level[l]->name;
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            guarded y = guarded_new(d.a.ldo * c.n_q - 5, i);
            for (size_t e = 0; e < y.n; e++) y.p[e] = 77;
            run(level[l], &d, y.p, chunks[i]);
            for (size_t t = 0; t + 1 < c.n_q; t++) {
                for (size_t e = d.row; e < d.a.ldo; e++) assert_true(y.p[t * d.a.ldo + e] > 76);
            }
            if (!first) {
                first = floats_new(r, y.n, 0);
                memcpy(first, y.p, y.n * sizeof *first);
                check_exact(&c, &d, first, name);
            }
            assert_same(y.p, first, y.n, "%s d %u group %u nq %u pos %u window %u page %u type %d chunk %u", name,
                        c.head_dim, c.n_group, c.n_q, c.pos0, c.window, c.page_size, (int)c.type, chunks[i]);
            if (avx2) assert_same(y.p, avx2, y.n, "avx512 against avx2");
            guarded_free(&y, name);
        }
        if (l == 1) {
            avx2 = first;
            first = NULL;
        }
        qp_free(first);
    }
    qp_free(avx2);
    data_free(&d);
}

static void test_random_shapes(void **state)
{
    static const uint32_t dims[] = {8, 24, 64, 72, 96, 112, 128, 256}, groups[] = {1, 2, 3, 4, 5, 8};
    static const uint32_t pos[] = {0, 1, 30, 62, 63, 64, 100, 190}, windows[] = {0, 0, 1, 7, 16, 64, 100};
    static const uint32_t pages[] = {1, 5, 16, 64, 100, 128}, queries[] = {1, 1, 2, 4, 5, 13};
    qp_rng r = {20};
    (void)state;
#define PICK(list) list[qp_rng_u64(&r) % (sizeof list / sizeof *list)]
    for (int i = 0; i < 90; i++) {
        attn_case c = {PICK(dims),  PICK(groups),      PICK(queries),          PICK(pos), PICK(windows),
                       PICK(pages), (qp_wtype)(i % 3), i % 4 == 1 ? 20.0f : 0, i % 5 == 2};
        check_case(&r, c);
    }
}

static void test_many_queries(void **state)
{
    qp_rng r = {21};
    (void)state;
    check_case(&r, (attn_case){64, 3, 50, 0, 0, 16, QP_W_BF16, 0, false}); /* 150 rows: three groups of 64 */
    check_case(&r, (attn_case){64, 2, 40, 77, 40, 64, QP_W_F16, 0, true});
    check_case(&r, (attn_case){512, 1, 6, 70, 0, 5, QP_W_F32, 50, false});
}

/* A later key that is NaN must not reach an earlier query of the same call. */
static void test_later_keys_do_not_leak(void **state)
{
    qp_rng r = {22};
    attn_case c = {64, 2, 9, 60, 0, 16, QP_W_F32, 0, false};
    (void)state;
    for (int l = 0; l < n_levels; l++) {
        attn_data d = data_new(&r, c);
        const size_t n = d.a.ldo * c.n_q, last = d.n_keys - 1;
        float *want = floats_new(&r, n, 0), *got = floats_new(&r, n, 0);
        run(level[l], &d, want, 0);
        unsigned char *page = d.pages + (size_t)d.ids[last / 16] * d.a.page_bytes;
        memset(page + d.a.k_offset + last % 16 * 256, 0xFF, 256);
        memset(page + d.a.v_offset + last % 16 * 256, 0xFF, 256);
        run(level[l], &d, got, 0);
        assert_same(got, want, d.a.ldo * (c.n_q - 1), "%s", level[l]->name);
        assert_true(isnan(got[d.a.ldo * (c.n_q - 1)]));
        qp_free(want);
        qp_free(got);
        data_free(&d);
    }
}

/* Scores far apart: the running maximum jumps and old sums underflow. */
static void test_large_scores(void **state)
{
    qp_rng r = {23};
    attn_case c = {64, 1, 3, 300, 0, 64, QP_W_F32, 0, true};
    (void)state;
    attn_data d = data_new(&r, c);
    d.a.scale = 40;
    float *want = floats_new(&r, d.a.ldo * c.n_q, 0), *got = floats_new(&r, d.a.ldo * c.n_q, 0);
    run(level[0], &d, want, 0);
    for (int l = 1; l < n_levels; l++) {
        run(level[l], &d, got, 0);
        for (size_t i = 0; i < d.row; i++) assert_true(fabsf(got[i] - want[i]) <= 1e-5f);
    }
    qp_free(want);
    qp_free(got);
    data_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_many_queries),
        cmocka_unit_test(test_later_keys_do_not_leak),
        cmocka_unit_test(test_large_scores),
    };
    return cmocka_run_group_tests(tests, load_levels, NULL);
}
