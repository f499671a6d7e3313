/*
 * The time of a device. On a device that is what it is, the host's time. In a cluster where a
 * device or a link is emulated (`slow`, or a link of the cluster file), a Lamport clock: a kernel
 * that took CPU time c advances it by slow * c, an exchange by the link's delay, and at a meeting
 * all take the latest of their clocks. It says when the devices would have been there, had each a
 * machine of its own.
 *
 * The host's time never runs behind: before a rank lets its peers or the host see a result, it
 * sleeps until the host's time has reached its clock. So no step ends before the emulated devices
 * would end it. But what a rank loses waiting for a core that it shares with other ranks, it may
 * make up later in the same step, in the time that its device has left.
 *
 * In a modelled cluster (`clock: modelled`) c is not measured but computed, from what the kernel
 * does and the device's rates (ir/count.h), and a copy between devices takes the link's time alone.
 * Two runs then measure the same, on whatever machine.
 */
#ifndef MOTLEY_RUNTIME_CLOCK_H
#define MOTLEY_RUNTIME_CLOCK_H

#include "ir/count.h"

typedef struct MotClock {
    bool is_emulated, is_modelled;
    const MotDevice *device;
    MotRates rates; /* modelled: without `slow` */
    double slow;    /* now */
    uint32_t threads;
    int64_t ns;                    /* emulated: the device's time, on the scale of mot_now_ns */
    int64_t thread_ns, process_ns; /* CPU time when the work at hand began */
} MotClock;

/* The clock of a device of the cluster. */
MotClock mot_clock_make(const MotCluster *cluster, uint32_t device);
int64_t mot_clock_now(const MotClock *clock);
/* From now on the device is as slow as it is in this step. */
void mot_clock_set_step(MotClock *clock, int64_t step);

/* The device has nothing to do before this time: the host's command, or the latest of the peers. */
void mot_clock_wait(MotClock *clock, int64_t until_ns);
/* The device works: `native_ns` of a kernel, at its own speed. */
void mot_clock_compute(MotClock *clock, int64_t native_ns);
/*
 * Its peers' data came over a link that takes `link_ns`, or took `native_ns` to copy, whichever is
 * longer.
 */
void mot_clock_receive(MotClock *clock, int64_t native_ns, int64_t link_ns);

/*
 * What work of this rank takes a device that is not slow: begin before it and ask after it. CPU
 * time, by thread; modelled, what `count` says. 0 where nothing is emulated.
 */
void mot_clock_begin(MotClock *clock);
int64_t mot_clock_took(const MotClock *clock, const MotCount *count);

/* Sleeps until the host's time has come to the device's, or to `lead_ns` before it. */
void mot_clock_catch_up(const MotClock *clock, int64_t lead_ns);

/*
 * Prepares the calling thread, and those that it will start: exact sleeps, and a lower scheduling
 * priority the slower the device is. A slow device leaves its core idle most of the time and can
 * wait for it; the fastest one cannot.
 */
void mot_clock_enter(const MotClock *clock);

#endif
