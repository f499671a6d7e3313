/* The thread pool. A launch costs about 0.4 us when the others spin, 70 us when they sleep. */
#include "runtime/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 20000 }; /* pauses: 0.3 to 1 ms */

/* A number that threads wait on, with a count of those that sleep. */
typedef struct {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} Signal;

typedef struct {
    MotPool *pool;
    uint32_t number;
    pthread_t thread;
} Worker;

struct MotPool {
    Signal epoch;   /* launches so far */
    Signal running; /* workers that have not finished the present one */
    _Alignas(64) _Atomic int64_t next_range;
    MotPoolTask *task; /* NULL: the pool ends */
    void *self;
    int64_t n, n_ranges;
    uint32_t n_threads, n_started, spins;
    void (*on_start)(uint32_t);
    Worker worker[];
};

static void futex(_Atomic uint32_t *address, int op, uint32_t value)
{
    syscall(SYS_futex, address, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_while(Signal *s, uint32_t old, uint32_t spins)
{
    for (uint32_t i = 0; i < spins; i++) {
        if (atomic_load_explicit(&s->value, memory_order_acquire) != old)
            return;
        pause_cpu();
    }
    while (atomic_load_explicit(&s->value, memory_order_acquire) == old) {
        atomic_fetch_add(
            &s->sleepers,
            1); /* before the kernel compares the value: whoever changes it sees the sleeper */
        futex(&s->value, FUTEX_WAIT, old);
        atomic_fetch_sub(&s->sleepers, 1);
    }
}

static void wake(Signal *s)
{
    if (atomic_load(&s->sleepers))
        futex(&s->value, FUTEX_WAKE, INT_MAX);
}

static void run_ranges(MotPool *p, uint32_t thread)
{
    for (int64_t r;
         (r = atomic_fetch_add_explicit(&p->next_range, 1, memory_order_relaxed)) < p->n_ranges;)
        p->task(p->self, p->n / p->n_ranges * r + (p->n % p->n_ranges) * r / p->n_ranges,
                p->n / p->n_ranges * (r + 1) + (p->n % p->n_ranges) * (r + 1) / p->n_ranges,
                thread);
}

static void *work(void *arg)
{
    Worker *w = arg;
    MotPool *p = w->pool;
    if (p->on_start)
        p->on_start(w->number);
    for (uint32_t seen = 0;; seen++) {
        wait_while(&p->epoch, seen, p->spins);
        bool ends = !p->task;
        if (!ends)
            run_ranges(p, w->number);
        if (atomic_fetch_sub(&p->running.value, 1) == 1)
            wake(&p->running);
        if (ends)
            return NULL;
    }
}

/* Starts a launch on the workers. */
static void publish(MotPool *p, MotPoolTask *task, void *self, int64_t n, int64_t n_ranges)
{
    p->task = task;
    p->self = self;
    p->n = n;
    p->n_ranges = n_ranges;
    atomic_store_explicit(&p->next_range, 0, memory_order_relaxed);
    atomic_store_explicit(&p->running.value, p->n_started, memory_order_relaxed);
    atomic_fetch_add(&p->epoch.value, 1);
    wake(&p->epoch);
}

MotStatus mot_pool_open(MotCtx *ctx, const MotPoolOpts *opts, MotPool **out_pool)
{
    uint32_t n = opts->n_threads ? opts->n_threads : 1;
    size_t bytes = (sizeof(MotPool) + n * sizeof(Worker) + 63) & ~(size_t)63;
    MotPool *p = mot_fault(ctx->faults, MOT_FAULT_alloc) ? NULL : aligned_alloc(64, bytes);
    if (!p)
        return mot_fail(ctx, MOT_ERR_MEMORY, MOT_NOWHERE, "no memory for a pool of %u threads", n);
    memset(p, 0, bytes);
    p->n_threads = n;
    p->spins = opts->may_spin ? SPINS : 0;
    p->on_start = opts->on_start;
    if (p->on_start)
        p->on_start(0);
    for (uint32_t i = 1; i < n; i++) {
        Worker *w = &p->worker[i];
        *w = (Worker){.pool = p, .number = i};
        int error = mot_fault(ctx->faults, MOT_FAULT_start)
                        ? EAGAIN
                        : pthread_create(&w->thread, NULL, work, w);
        if (error) {
            mot_pool_close(p);
            return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "starting thread %u of %u: %s", i + 1, n,
                            strerror(error));
        }
        p->n_started++;
    }
    *out_pool = p;
    return MOT_OK;
}

void mot_pool_close(MotPool *p)
{
    if (!p)
        return;
    publish(p, NULL, NULL, 0, 0);
    for (uint32_t i = 1; i <= p->n_started; i++)
        pthread_join(p->worker[i].thread, NULL);
    free(p);
}

uint32_t mot_pool_size(const MotPool *pool)
{
    return pool->n_threads;
}

void mot_pool_run(MotPool *p, MotPoolTask *task, void *self, int64_t n, int64_t n_ranges)
{
    if (n_ranges > n)
        n_ranges = n;
    if (n_ranges <= 1 || p->n_started == 0) {
        if (n > 0)
            task(self, 0, n, 0);
        return;
    }
    publish(p, task, self, n, n_ranges);
    run_ranges(p, 0);
    for (uint32_t left; (left = atomic_load_explicit(&p->running.value, memory_order_acquire)) > 0;)
        wait_while(&p->running, left, p->spins);
}
