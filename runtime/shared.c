/* Gates over futexes, and the clock. */
#include "runtime/shared.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void mot_gate_open(MotGate *gate)
{
    atomic_fetch_add_explicit(&gate->count, 1, memory_order_release);
    syscall(SYS_futex, &gate->count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Counters may wrap: compare by distance. */
static bool has_reached(uint32_t count, uint32_t target)
{
    return (int32_t)(count - target) >= 0;
}

bool mot_gate_has_reached(const MotGate *gate, uint32_t target)
{
    return has_reached(atomic_load_explicit(&gate->count, memory_order_acquire), target);
}

MotStatus mot_gate_wait(MotShared *shared, MotGate *gate, uint32_t target)
{
    for (uint32_t i = 0; i < shared->spins; i++) {
        if (mot_gate_has_reached(gate, target))
            return MOT_OK;
        __builtin_ia32_pause();
    }
    for (;;) {
        uint32_t count = atomic_load_explicit(&gate->count, memory_order_acquire);
        if (has_reached(count, target))
            return MOT_OK;
        if (atomic_load(&shared->abort))
            return MOT_ERR_RANK;
        mot_gate_pause(gate, count);
    }
}

void mot_gate_pause(MotGate *gate, uint32_t seen)
{
    struct timespec pause = {.tv_nsec = 50000000};
    syscall(SYS_futex, &gate->count, FUTEX_WAIT, seen, &pause, NULL, 0);
}

int64_t mot_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void mot_sleep_until_ns(int64_t deadline_ns)
{
    struct timespec t = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}
