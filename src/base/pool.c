/* Compute pool: see pool.h.
 *
 * A job is published by raising `generation`; workers spin on it for SPIN_NS before they sleep on a condition variable,
 * so the barriers of a decode step (hundreds a token, a microsecond apart) never enter the kernel. Parts are claimed by
 * one atomic counter that carries the generation in its high half, so a worker that wakes late cannot claim parts of a
 * newer job under the older job's function. */
#include "base/pool.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_THREADS = 1024, PART_BITS = 32, YIELD_AFTER_SPINS = 4096 };
static const uint64_t SPIN_NS = 200000;

struct qp_pool {
    unsigned n_threads, n_started;
    pthread_t *threads;
    /* owner: caller of run. Atomic because a late worker may read them while the next job is written; what it read is
     * then thrown away, since its claim fails. */
    _Atomic qp_pool_fn fn_atomic;
    void *_Atomic arg_atomic;
    _Atomic uint64_t n_parts_atomic;
    _Alignas(64) _Atomic uint64_t generation_atomic;
    _Alignas(64) _Atomic uint64_t claim_atomic; /* generation << 32 | next part */
    _Alignas(64) _Atomic uint64_t n_done_atomic;
    _Alignas(64) _Atomic unsigned n_sleeping_atomic;
    _Atomic bool stop_atomic;
    pthread_mutex_t lock; /* guards sleeping alone */
    pthread_cond_t wake;
};

typedef struct {
    qp_pool *pool;
    unsigned worker;
} start_arg;

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* A barrier is usually a microsecond away. Where other programs hold the processors it is not: then a thread that waits
 * must give its processor to the one that is waited for. */
static inline void wait_a_little(unsigned *spins)
{
    if (++*spins < YIELD_AFTER_SPINS)
        relax();
    else
        sched_yield();
}

static void run_parts(qp_pool *p, uint64_t gen, unsigned worker)
{
    uint64_t claim = atomic_load_explicit(&p->claim_atomic, memory_order_acquire);
    for (;;) {
        if (claim >> PART_BITS != (gen & UINT32_MAX)) return;
        uint64_t part = claim & UINT32_MAX;
        /* fn, arg and n_parts belong to `gen` as long as claim still carries gen and has parts left. */
        uint64_t n_parts = atomic_load_explicit(&p->n_parts_atomic, memory_order_relaxed);
        if (part >= n_parts) return;
        qp_pool_fn fn = atomic_load_explicit(&p->fn_atomic, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg_atomic, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&p->claim_atomic, &claim, claim + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        fn(arg, (size_t)part, worker);
        atomic_fetch_add_explicit(&p->n_done_atomic, 1, memory_order_release);
        claim = atomic_load_explicit(&p->claim_atomic, memory_order_acquire);
    }
}

static void *worker_main(void *argp)
{
    start_arg a = *(start_arg *)argp;
    qp_free(argp);
    qp_pool *p = a.pool;
    uint64_t seen = 0;
    for (;;) {
        uint64_t gen, start = qp_clock_ns();
        unsigned spins = 0, waits = 0;
        while ((gen = atomic_load_explicit(&p->generation_atomic, memory_order_acquire)) == seen && !p->stop_atomic) {
            wait_a_little(&waits);
            if (++spins % 256 || qp_clock_ns() - start < SPIN_NS) continue;
            pthread_mutex_lock(&p->lock);
            p->n_sleeping_atomic++;
            while (p->generation_atomic == seen && !p->stop_atomic) pthread_cond_wait(&p->wake, &p->lock);
            p->n_sleeping_atomic--;
            pthread_mutex_unlock(&p->lock);
        }
        if (p->stop_atomic) return NULL;
        seen = gen;
        run_parts(p, gen, a.worker);
    }
}

qp_status qp_pool_new(qp_pool **out, unsigned n_threads, qp_err *err)
{
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return qp_fail(err, QP_EINVAL, "threads: %u, must be 1..%d", n_threads, MAX_THREADS);
    qp_pool *p;
    QP_TRY(qp_new(&p, 1, sizeof *p, "thread pool", err));
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    qp_status st = qp_new(&p->threads, n_threads, sizeof *p->threads, "thread pool", err);
    for (unsigned i = 1; st == QP_OK && i < n_threads; i++) {
        start_arg *a = qp_malloc(sizeof *a);
        if (!a) {
            st = qp_fail(err, QP_ENOMEM, "thread pool: no memory for thread %u", i);
            break;
        }
        *a = (start_arg){p, i};
        if (pthread_create(&p->threads[i], NULL, worker_main, a)) {
            qp_free(a);
            st = qp_fail(err, QP_EIO, "cannot start thread %u of %u; use fewer --threads", i, n_threads);
            break;
        }
        p->n_started++;
    }
    if (st != QP_OK) {
        qp_pool_free(p);
        return st;
    }
    *out = p;
    return QP_OK;
}

void qp_pool_free(qp_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop_atomic = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 1; i <= p->n_started; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    qp_free(p->threads);
    qp_free(p);
}

unsigned qp_pool_n_threads(const qp_pool *p)
{
    return p->n_threads;
}

void qp_pool_run(qp_pool *p, qp_pool_fn fn, void *arg, size_t n_parts)
{
    if (p->n_threads == 1 || n_parts <= 1) {
        for (size_t i = 0; i < n_parts; i++) fn(arg, i, 0);
        return;
    }
    uint64_t gen = p->generation_atomic + 1;
    if ((gen & UINT32_MAX) == UINT32_MAX) gen++; /* that half is the mark of closed claims */
    /* Close the claims of the old job before its fields change: a late worker sees a foreign generation. */
    atomic_store_explicit(&p->claim_atomic, (uint64_t)UINT32_MAX << PART_BITS, memory_order_seq_cst);
    p->fn_atomic = fn;
    p->arg_atomic = arg;
    p->n_parts_atomic = n_parts;
    atomic_store_explicit(&p->n_done_atomic, 0, memory_order_relaxed);
    atomic_store_explicit(&p->claim_atomic, (gen & UINT32_MAX) << PART_BITS, memory_order_seq_cst);
    atomic_store_explicit(&p->generation_atomic, gen, memory_order_seq_cst);
    if (p->n_sleeping_atomic) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    run_parts(p, gen, 0);
    for (unsigned spins = 0; atomic_load_explicit(&p->n_done_atomic, memory_order_acquire) < n_parts;)
        wait_a_little(&spins);
}
