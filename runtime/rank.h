/* One rank: binds the program, then obeys the host's commands until it is told to quit. */
#ifndef MOTLEY_RUNTIME_RANK_H
#define MOTLEY_RUNTIME_RANK_H

#include "runtime/device.h"
#include "runtime/shared.h"

typedef struct MotRankArgs {
    /* the rank has a context of its own, with the switches and the log of this one */
    const MotCtx *host;
    MotShared *shared;
    const MotPipeline *pipeline;
    const MotCluster *cluster;
    const char *backend; /* NULL: the device's own */
    uint32_t rank;
} MotRankArgs;

/*
 * Runs the rank; returns when told to quit or after a failure, which it leaves in its MotRankState.
 */
MotStatus mot_rank_run(const MotRankArgs *args);

#endif
