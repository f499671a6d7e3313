/* The time of a device, real or emulated. */
#include "runtime/clock.h"

#include "runtime/shared.h"

#include <math.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Each step of `nice` is a factor of 1.25 in the scheduler's weight: three, about two. */
static const double NICE_A_HALVING = 3;

static bool is_ever_slow(const MotDevice *device)
{
    bool is_slow = device->slow > 1;
    for (uint32_t i = 0; i < device->slowdowns.n; i++)
        is_slow |= device->slowdowns.data[i].slow > 1;
    return is_slow;
}

MotClock mot_clock_make(const MotCluster *cluster, uint32_t device)
{
    const MotDevice *own = &cluster->devices.data[device];
    MotClock clock = {.is_emulated = cluster->is_modelled,
                      .is_modelled = cluster->is_modelled,
                      .device = own,
                      .rates = mot_cluster_rates(cluster, device),
                      .slow = own->slow,
                      .threads = own->threads ? own->threads : 1};
    for (uint32_t i = 0; i < cluster->devices.n; i++)
        clock.is_emulated |= is_ever_slow(&cluster->devices.data[i]);
    for (uint32_t i = 0; i < cluster->links.n; i++)
        clock.is_emulated |= cluster->links.data[i].is_emulated;
    return clock;
}

int64_t mot_clock_now(const MotClock *clock)
{
    return clock->is_emulated ? clock->ns : mot_now_ns();
}

void mot_clock_set_step(MotClock *clock, int64_t step)
{
    clock->slow = mot_device_slow_at(clock->device, step);
}

void mot_clock_wait(MotClock *clock, int64_t until_ns)
{
    if (clock->ns < until_ns)
        clock->ns = until_ns;
}

void mot_clock_compute(MotClock *clock, int64_t native_ns)
{
    clock->ns += (int64_t)(clock->slow * (double)native_ns);
}

void mot_clock_receive(MotClock *clock, int64_t native_ns, int64_t link_ns)
{
    clock->ns += link_ns > native_ns ? link_ns : native_ns;
}

static int64_t cpu_ns(clockid_t of)
{
    struct timespec t;
    clock_gettime(of, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void mot_clock_begin(MotClock *clock)
{
    if (!clock->is_emulated || clock->is_modelled)
        return;
    clock->thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    if (clock->threads > 1)
        clock->process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t mot_clock_took(const MotClock *clock, const MotCount *count)
{
    if (!clock->is_emulated)
        return 0;
    if (clock->is_modelled)
        return (int64_t)(mot_count_seconds(count, &clock->rates) * 1e9);
    int64_t own = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - clock->thread_ns;
    if (clock->threads == 1)
        return own;
    /* This thread may have slept while the others worked. */
    int64_t mean = (cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - clock->process_ns) / clock->threads;
    return own > mean ? own : mean;
}

void mot_clock_catch_up(const MotClock *clock, int64_t lead_ns)
{
    if (clock->is_emulated && clock->ns - mot_now_ns() > lead_ns)
        mot_sleep_until_ns(clock->ns);
}

void mot_clock_enter(const MotClock *clock)
{
    prctl(PR_SET_TIMERSLACK, 1UL);
    double slow = clock->device->slow; /* at its fastest: a priority can't be raised again */
    for (uint32_t i = 0; i < clock->device->slowdowns.n; i++)
        slow = fmin(slow, clock->device->slowdowns.data[i].slow);
    /* Where the system refuses, the emulation is only less even. */
    if (slow > 1 && nice((int)fmin(19, NICE_A_HALVING * log2(slow) + 0.5)) == -1)
        return;
}
