/*
 * What the files of the host's side of a session share: the session itself (session.c), and the
 * watch over its ranks (watch.c).
 */
#ifndef MOTLEY_RUNTIME_HOST_H
#define MOTLEY_RUNTIME_HOST_H

#include "runtime/session.h"
#include "runtime/spawn.h"

struct MotSession {
    MotCtx *ctx;
    MotPipeline *pipeline;
    const MotCluster *cluster;
    MotSessionOpts opts;
    MotShared *shared;
    MotBinding *bindings;
    MotSpawn rank[MOT_MAX_RANKS];
    uint32_t n_commands;
    MotCtx bound[2]; /* the bindings live in bound[n_bindings % 2], those before in the other one */
    uint32_t n_bindings;
    bool is_halted; /* all ranks have ended, because one died or hung; then: */
    MotHeld held;
    bool is_lost[MOT_MAX_RANKS]; /* it is one of those that died or hung */
    bool is_torn[MOT_MAX_RANKS]; /* its parameters and states are not those that `held` says */
};

/* A rank's stage, its position in the mesh of that, and its device. */
typedef struct MotPlace {
    uint32_t stage, position, device;
    const MotProgram *program;
} MotPlace;

MotPlace mot_host_place(const MotSession *session, uint32_t rank);
/* `rank 2 (device b)`, with several stages `rank 2 (stage 1, device b)` */
const char *mot_host_rank_name(const MotSession *s, uint32_t i);

/*
 * Waits until all ranks have done the last command. MOT_ERR_RANK, with a message that names the
 * rank, its instruction and who waits for it, when one died or hangs; all ranks have ended then.
 * The others are stopped at once, or in an elastic session when they have come as far as they can.
 */
MOT_CHECKED MotStatus mot_watch_wait(MotSession *session);
/* Ends all ranks now. */
void mot_watch_stop(MotSession *session);

#endif
