/*
 * The pace of an emulated slow device. It has a clock of its own, on the time of the host: kernels that took CPU time c advance it by
 * slow * c, and the rank waits for the host's time to reach it before it meets its peers. Time that the rank spent waiting for a core
 * passes on the host's clock only, so that ranks which share cores do not pay for it twice.
 *
 * Between two meetings a rank takes slow * c or longer, never less: what it loses to a crowded core it may make up until the next meeting, and no
 * further (mot_pace_start). A device that is not slowed (slow = 1) has no clock and waits for nothing.
 */
#ifndef MOTLEY_RUNTIME_PACE_H
#define MOTLEY_RUNTIME_PACE_H

#include <stdint.h>

typedef struct MotPace {
    double slow;
    int64_t clock_ns; /* when the device is done with what it was given, on mot_now_ns */
    int64_t cpu_ns;   /* the thread's CPU time when the running kernel began */
} MotPace;

/* Work begins, at the start of a section or after a meeting: time that went by before is gone. */
void mot_pace_start(MotPace *pace, int64_t now_ns);
/* Kernels took this much CPU time. */
void mot_pace_charge(MotPace *pace, int64_t cpu_ns);
/* How long the device has still to work at `now_ns`; 0 if it is done or late. */
int64_t mot_pace_left(const MotPace *pace, int64_t now_ns);

/* Around a kernel, on its thread. The end sleeps when the rank is too far ahead of its device. */
void mot_pace_begin_kernel(MotPace *pace);
void mot_pace_end_kernel(MotPace *pace);
/* Sleeps until the device is done: before the rank meets its peers or the host. */
void mot_pace_finish(MotPace *pace);

/*
 * Prepares the calling thread, and those that it will start: exact sleeps, and a lower scheduling priority the slower the device is. A slow
 * device leaves its core idle most of the time and can wait for it; the fastest one cannot.
 */
void mot_pace_enter(const MotPace *pace);

#endif
