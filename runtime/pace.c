/* The clock of an emulated slow device. */
#include "runtime/pace.h"

#include "runtime/shared.h"

#include <math.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* A rank may be this much ahead of its device before it sleeps: few sleeps, and yet nobody who watches it takes it for hung. */
enum { LEAD_NS = 20000000 };
/* Each step of `nice` is a factor of 1.25 in the scheduler's weight: five, about three. */
static const double NICE_A_HALVING = 5;

void mot_pace_start(MotPace *pace, int64_t now_ns)
{
    if (pace->clock_ns < now_ns)
        pace->clock_ns = now_ns;
}

void mot_pace_charge(MotPace *pace, int64_t cpu_ns)
{
    pace->clock_ns += (int64_t)(pace->slow * (double)cpu_ns);
}

int64_t mot_pace_left(const MotPace *pace, int64_t now_ns)
{
    return pace->slow > 1 && pace->clock_ns > now_ns ? pace->clock_ns - now_ns : 0;
}

static int64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void mot_pace_begin_kernel(MotPace *pace)
{
    if (pace->slow > 1)
        pace->cpu_ns = thread_cpu_ns();
}

void mot_pace_end_kernel(MotPace *pace)
{
    if (pace->slow <= 1)
        return;
    mot_pace_charge(pace, thread_cpu_ns() - pace->cpu_ns);
    if (mot_pace_left(pace, mot_now_ns()) > LEAD_NS)
        mot_sleep_until_ns(pace->clock_ns);
}

void mot_pace_finish(MotPace *pace)
{
    if (mot_pace_left(pace, mot_now_ns()) > 0)
        mot_sleep_until_ns(pace->clock_ns);
}

void mot_pace_enter(const MotPace *pace)
{
    prctl(PR_SET_TIMERSLACK, 1UL);
    /* Where the system refuses, the emulation is only less even. */
    if (pace->slow > 1 && nice((int)fmin(19, NICE_A_HALVING * log2(pace->slow) + 0.5)) == -1)
        return;
}
