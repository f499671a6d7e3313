/* The process of one rank: binds the program, then obeys the host's commands until it is told to quit. */
#ifndef MOTLEY_RUNTIME_RANK_H
#define MOTLEY_RUNTIME_RANK_H

#include "runtime/device.h"
#include "runtime/shared.h"

typedef struct MotRankArgs {
    MotShared *shared;
    MotProgram *program;
    const MotCluster *cluster;
    const char *backend; /* NULL: the device's own */
    uint32_t position;
} MotRankArgs;

/* Runs the rank; returns when told to quit or after a failure, which it leaves in its MotRankState. */
MotStatus mot_rank_run(MotCtx *ctx, const MotRankArgs *args);

#endif
