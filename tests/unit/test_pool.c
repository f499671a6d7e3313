/*
 * runtime/pool: every task runs once, in ranges that do not depend on chance; sleeping threads are
 * woken.
 */
#include "runtime/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MAX_TASKS = 1000 };

typedef struct {
    _Atomic int runs[MAX_TASKS];
    _Atomic int starts[MAX_TASKS + 1]; /* a range began here */
    uint32_t n_threads;
} Counts;

static void count(void *self, int64_t begin, int64_t end, uint32_t thread)
{
    Counts *c = self;
    assert_true(thread < c->n_threads);
    assert_true(begin < end);
    c->starts[begin]++;
    for (int64_t i = begin; i < end; i++)
        c->runs[i]++;
}

static void check_launch(MotPool *pool, int64_t n, int64_t ranges)
{
    Counts c = {.n_threads = mot_pool_size(pool)};
    mot_pool_run(pool, count, &c, n, ranges);
    int n_ranges = 0;
    for (int64_t i = 0; i < MAX_TASKS; i++) {
        assert_int_equal(c.runs[i], i < n);
        n_ranges += c.starts[i];
    }
    assert_true(n_ranges <= (ranges > n ? n : ranges > 1 ? ranges : 1));
}

static void check_pool(uint32_t threads, bool may_spin)
{
    MotCtx ctx;
    MotPool *pool;
    mot_ctx_init(&ctx);
    MotPoolOpts opts = {.n_threads = threads, .may_spin = may_spin};
    assert_int_equal(mot_pool_open(&ctx, &opts, &pool), MOT_OK);
    for (int64_t n = 0; n <= MAX_TASKS; n += 1 + n / 3)
        for (int64_t ranges = 1; ranges <= 64; ranges *= 2)
            check_launch(pool, n, ranges);
    mot_pool_close(pool);
    mot_ctx_deinit(&ctx);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 0; threads <= 5; threads++)
        check_pool(threads, false);
    check_pool(2, true);
}

static void threads_that_fell_asleep_are_woken(void **state)
{
    (void)state;
    MotCtx ctx;
    MotPool *pool;
    mot_ctx_init(&ctx);
    MotPoolOpts opts = {.n_threads = 3, .may_spin = true};
    assert_int_equal(mot_pool_open(&ctx, &opts, &pool), MOT_OK);
    for (int i = 0; i < 5; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        check_launch(pool, 100, 12);
    }
    mot_pool_close(pool);
    mot_ctx_deinit(&ctx);
}

static _Atomic int n_started;

static void note_start(uint32_t thread)
{
    n_started |= 1 << thread;
}

static void every_thread_is_started_once(void **state)
{
    (void)state;
    MotCtx ctx;
    MotPool *pool;
    mot_ctx_init(&ctx);
    MotPoolOpts opts = {.n_threads = 4, .on_start = note_start};
    assert_int_equal(mot_pool_open(&ctx, &opts, &pool), MOT_OK);
    mot_pool_close(pool);
    assert_int_equal(n_started, 15);
    mot_pool_close(NULL);
    mot_ctx_deinit(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_task_runs_once),
                                       cmocka_unit_test(threads_that_fell_asleep_are_woken),
                                       cmocka_unit_test(every_thread_is_started_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
