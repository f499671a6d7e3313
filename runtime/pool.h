/*
 * The thread pool of a device: one launch at a time, dealt out in ranges of tasks.
 *
 * The caller works too. Between launches the others spin for a bounded time, if they may, then
 * sleep on a futex; nobody is woken by a system call unless somebody sleeps. Which thread runs a
 * range is chance, where ranges begin and end is not.
 */
#ifndef MOTLEY_RUNTIME_POOL_H
#define MOTLEY_RUNTIME_POOL_H

#include "support/context.h"

typedef struct MotPool MotPool;

/* Runs tasks [begin, end) as thread `thread`, 0 (the caller) to n_threads - 1. */
typedef void MotPoolTask(void *self, int64_t begin, int64_t end, uint32_t thread);

typedef struct MotPoolOpts {
    uint32_t n_threads;                /* the caller included; 0 counts as 1 */
    bool may_spin;                     /* not when there are more threads than cores */
    void (*on_start)(uint32_t thread); /* called once by each thread; may be NULL */
} MotPoolOpts;

MOT_CHECKED MotStatus mot_pool_open(MotCtx *ctx, const MotPoolOpts *opts, MotPool **out_pool);
/* Ends the threads. NULL is accepted. */
void mot_pool_close(MotPool *pool);
uint32_t mot_pool_size(const MotPool *pool);
/*
 * Splits n tasks into at most n_ranges ranges of nearly equal length, runs them and returns when
 * all are done.
 */
void mot_pool_run(MotPool *pool, MotPoolTask *task, void *self, int64_t n, int64_t n_ranges);

#endif
