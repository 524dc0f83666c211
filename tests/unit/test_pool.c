/* Compute pool: every part runs once, many tiny jobs, sleeping workers, more threads than processors, the wrap of the
 * job counter. The pool's source is included so that the counter can be set. */
#include "unit/io_util.h"

#include "base/pool.c"

#include <time.h>

typedef struct {
    _Atomic uint32_t *hits; /* by part */
    _Atomic uint32_t by_worker[64];
    uint32_t tag;
    _Atomic uint32_t wrong;
} job;

static void hit(void *arg, size_t part, unsigned worker)
{
    job *j = arg;
    j->hits[part] += j->tag;
    j->by_worker[worker]++;
}

static void test_every_part_runs_once(void **state)
{
    (void)state;
    enum { MAX = 5000 };
    static _Atomic uint32_t hits[MAX + 1];
    for (unsigned threads = 1; threads <= 9; threads += 2) {
        qp_err err = {0};
        qp_pool *p;
        assert_status(qp_pool_new(&p, threads, &err), QP_OK, &err);
        assert_int_equal(qp_pool_n_threads(p), threads);
        for (size_t n = 0; n <= MAX; n = n < 20 ? n + 1 : n * 3) {
            job j = {.hits = hits, .tag = 1};
            for (size_t i = 0; i <= MAX; i++) hits[i] = 0;
            qp_pool_run(p, hit, &j, n);
            size_t sum = 0;
            for (size_t i = 0; i <= MAX; i++) assert_int_equal(hits[i], i < n);
            for (unsigned w = 0; w < 64; w++) {
                sum += j.by_worker[w];
                if (w >= threads) assert_int_equal(j.by_worker[w], 0);
            }
            assert_int_equal(sum, n);
        }
        qp_pool_free(p);
    }
}

/* Two alternating functions whose arguments live on this stack: a part run for the wrong job is seen. */
static void add_one(void *arg, size_t part, unsigned worker)
{
    (void)worker;
    job *j = arg;
    if (j->tag != 1) j->wrong++;
    j->hits[part]++;
}

static void add_two(void *arg, size_t part, unsigned worker)
{
    (void)worker;
    job *j = arg;
    if (j->tag != 2) j->wrong++;
    j->hits[part] += 2;
}

static void tiny_jobs(qp_pool *p, unsigned n_jobs)
{
    for (unsigned k = 0; k < n_jobs; k++) {
        _Atomic uint32_t hits[8] = {0};
        size_t n = 2 + k % 7;
        job j = {.hits = hits, .tag = 1 + k % 2};
        qp_pool_run(p, k % 2 ? add_two : add_one, &j, n);
        for (size_t i = 0; i < 8; i++) assert_int_equal(hits[i], i < n ? 1 + k % 2 : 0);
        assert_int_equal(j.wrong, 0);
    }
}

static void test_many_tiny_jobs(void **state)
{
    (void)state;
    qp_err err = {0};
    for (unsigned threads = 2; threads <= 4; threads++) {
        qp_pool *p;
        assert_status(qp_pool_new(&p, threads, &err), QP_OK, &err);
        tiny_jobs(p, 20000);
        qp_pool_free(p);
    }
}

static void test_workers_wake_from_sleep(void **state)
{
    (void)state;
    qp_err err = {0};
    qp_pool *p;
    assert_status(qp_pool_new(&p, 4, &err), QP_OK, &err);
    for (int i = 0; i < 60; i++) {
        const struct timespec nap = {0, i % 3 * 300000}; /* none, near the end of spinning, asleep */
        nanosleep(&nap, NULL);
        tiny_jobs(p, 3);
    }
    qp_pool_free(p);
}

static void test_job_counter_wraps(void **state)
{
    (void)state;
    qp_err err = {0};
    qp_pool *p;
    assert_status(qp_pool_new(&p, 3, &err), QP_OK, &err);
    tiny_jobs(p, 10);
    p->generation_atomic =
        UINT32_MAX - 1000u; /* every worker is idle: it sees a new number and finds nothing to claim */
    for (unsigned k = 0; k < 5000; k++) {
        tiny_jobs(p, 1);
        assert_int_not_equal(p->generation_atomic & UINT32_MAX, UINT32_MAX); /* that number marks closed claims */
    }
    assert_true(p->generation_atomic > UINT32_MAX);
    qp_pool_free(p);
}

static void test_new_refuses_and_fails(void **state)
{
    (void)state;
    qp_err err = {0};
    qp_pool *p = NULL;
    assert_status(qp_pool_new(&p, 0, &err), QP_EINVAL, &err);
    assert_msg(&err, "threads: 0, must be 1..1024");
    assert_status(qp_pool_new(&p, 1025, &err), QP_EINVAL, &err);
    size_t live = qp_alloc_live_bytes();
    for (uint64_t n = 1;; n++) {
        qp_alloc_fail_after(n);
        qp_status st = qp_pool_new(&p, 3, &err);
        qp_alloc_fail_after(0);
        if (st == QP_OK) break;
        assert_status(st, QP_ENOMEM, &err);
        assert_null(p);
        assert_int_equal(qp_alloc_live_bytes(), live);
    }
    qp_pool_free(p);
    qp_pool_free(NULL);
    assert_int_equal(qp_alloc_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_runs_once),    cmocka_unit_test(test_many_tiny_jobs),
        cmocka_unit_test(test_workers_wake_from_sleep), cmocka_unit_test(test_job_counter_wraps),
        cmocka_unit_test(test_new_refuses_and_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
