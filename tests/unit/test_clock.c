/*
 * The time of emulated devices: arithmetic, and that no rank is ahead of its device when it meets
 * the others.
 */
#include "runtime/clock.h"
#include "runtime/shared.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

static MotClock make_clock(MotCtx *ctx, double slow)
{
    MotCluster *cluster = mot_cluster_make(ctx, 2, 1);
    cluster->devices.data[0].slow = slow;
    return mot_clock_make(cluster, 0);
}

static void a_slow_device_takes_slow_times_the_cpu_time(void **state)
{
    MotClock clock = make_clock(*state, 8);
    assert_true(clock.is_emulated);
    mot_clock_wait(&clock, 1000);
    mot_clock_compute(&clock, 50);
    mot_clock_compute(&clock, 50);
    assert_int_equal(mot_clock_now(&clock), 1800);
    mot_clock_wait(&clock, 1500); /* the peers were there before */
    assert_int_equal(mot_clock_now(&clock), 1800);
    mot_clock_wait(&clock, 2000); /* a peer was later */
    assert_int_equal(mot_clock_now(&clock), 2000);
    mot_clock_receive(&clock, 10, 300);
    mot_clock_receive(&clock, 40, 30);
    assert_int_equal(mot_clock_now(&clock), 2340);
}

/*
 * The native devices of a cluster keep the same time as the emulated ones; without any, it is the
 * host's.
 */
static void who_is_emulated(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *cluster = mot_cluster_make(ctx, 2, 1);
    assert_false(mot_clock_make(cluster, 0).is_emulated);
    cluster->devices.data[1].slow = 2;
    assert_true(mot_clock_make(cluster, 0).is_emulated);
    cluster->devices.data[1].slow = 1;
    MotLink link = {.a = MOT_ALL_DEVICES,
                    .b = MOT_ALL_DEVICES,
                    .latency = 1e-3,
                    .bandwidth = 1e9,
                    .is_emulated = true};
    mot_vec_push(&ctx->arena, &cluster->links, link);
    assert_true(mot_clock_make(cluster, 1).is_emulated);
    MotClock real = make_clock(ctx, 1);
    int64_t before = mot_now_ns(), now = mot_clock_now(&real);
    assert_true(before <= now && now <= mot_now_ns());
}

/* A device that is only slow later is emulated from the start; the step says how slow it is. */
static void speed_follows_the_step(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *cluster = mot_cluster_make(ctx, 2, 1);
    mot_device_slow_down(ctx, &cluster->devices.data[0], 5, 3);
    mot_device_slow_down(ctx, &cluster->devices.data[0], 9, 1);
    MotClock clock = mot_clock_make(cluster, 0);
    assert_true(clock.is_emulated && mot_clock_make(cluster, 1).is_emulated);
    static const int64_t end[] = {100, 400, 500}, step[] = {4, 5, 9};
    for (int i = 0; i < 3; i++) {
        mot_clock_set_step(&clock, step[i]);
        mot_clock_compute(&clock, 100);
        assert_int_equal(mot_clock_now(&clock), end[i]);
    }
}

/* A modelled device has its rates, whatever it runs on; what was measured is not asked for. */
static void a_modelled_device_takes_what_its_rates_say(void **state)
{
    MotCluster *cluster = mot_cluster_make(*state, 2, 1);
    cluster->is_modelled = true;
    cluster->devices.data[0].alone = (MotRates){1e9, 1e6, 1e8, 1e-6};
    cluster->devices.data[0].slow = 2;
    assert_true(mot_cluster_link(cluster, 0, 1).is_emulated);
    static const MotCount arithmetic = {.flops = 5e3, .functions = 1, .bytes = 1, .launches = 1},
                          memory = {.flops = 5e3, .functions = 1, .bytes = 1e3, .launches = 1},
                          nothing = {0};
    MotClock clock = mot_clock_make(cluster, 0);
    mot_clock_begin(&clock);
    assert_in_range(mot_clock_took(&clock, &arithmetic), 6999, 7001);
    assert_in_range(mot_clock_took(&clock, &memory), 15999, 16001);
    assert_int_equal(mot_clock_took(&clock, &nothing), 0);
    mot_clock_compute(&clock, mot_clock_took(&clock, &memory));
    assert_in_range(mot_clock_now(&clock), 31998, 32002);
}

static int64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void work(int64_t cpu_ns, MotClock *clock)
{
    mot_clock_begin(clock);
    while (mot_clock_took(clock, NULL) < cpu_ns)
        ;
    mot_clock_compute(clock, mot_clock_took(clock, NULL));
}

/*
 * Kernels of 3 ms on a device four times slower, with a pause between as when the rank waits for a
 * core. The host's time is never behind the device's, which has worked four times the CPU time, and
 * the pause is no part of that.
 */
static void the_host_is_never_ahead_of_the_device(void **state)
{
    MotClock clock = make_clock(*state, 4);
    int64_t start = mot_now_ns(), cpu = thread_cpu_ns();
    mot_clock_wait(&clock, start);
    work(3000000, &clock);
    mot_sleep_until_ns(mot_now_ns() + 5000000);
    work(3000000, &clock);
    cpu = thread_cpu_ns() - cpu;
    mot_clock_catch_up(&clock, 0);
    int64_t device = mot_clock_now(&clock) - start, host = mot_now_ns() - start;
    assert_true(host >= device);
    assert_true(device >= INT64_C(4) * 6000000 && device <= 4 * cpu);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(a_slow_device_takes_slow_times_the_cpu_time),
        TEST(who_is_emulated),
        TEST(speed_follows_the_step),
        TEST(a_modelled_device_takes_what_its_rates_say),
        TEST(the_host_is_never_ahead_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
