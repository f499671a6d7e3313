/*
 * How a rank is started and ended: as a process; or as a thread of this process, for sanitizers,
 * which see no more than one process (MOTLEY_RANKS=threads). A thread can't be killed: it ends at
 * its next wait.
 */
#ifndef MOTLEY_RUNTIME_SPAWN_H
#define MOTLEY_RUNTIME_SPAWN_H

#include "runtime/rank.h"

#include <pthread.h>
#include <sys/types.h>

typedef struct MotSpawn {
    MotRankArgs args;
    bool is_running; /* started and not joined */
    pid_t pid;       /* 0: it is a thread */
    pthread_t thread;
    _Atomic bool has_returned; /* the thread */
} MotSpawn;

/* Starts the rank; a process dies with the thread that started it. */
MOT_CHECKED MotStatus mot_spawn_start(MotCtx *ctx, const MotRankArgs *args, MotSpawn *out_spawn);
/* Whether it has ended, without waiting; it still has to be joined. */
bool mot_spawn_has_ended(const MotSpawn *spawn);
/* Ends a process now. */
void mot_spawn_kill(MotSpawn *spawn);
/* Waits for the end. The signal that killed it, or 0. */
int mot_spawn_join(MotSpawn *spawn);
/*
 * The same for one that has nothing left to do: a process that does not end for so long, as it is
 * stopped, is ended.
 */
int mot_spawn_finish(MotSpawn *spawn, uint32_t patience_ms);

#endif
