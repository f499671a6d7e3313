/*
 * What the ranks of one machine and their host share: a region mapped before the ranks are forked,
 * so that every address in it means the same to all. A rank's arena lies in it; `local`
 * communication reads the peers' arenas directly.
 *
 * All waiting goes through MotGate: a counter that only grows, a bounded spin, then a futex. Waits
 * end early when `abort` is set.
 */
#ifndef MOTLEY_RUNTIME_SHARED_H
#define MOTLEY_RUNTIME_SHARED_H

#include "ir/program.h"

#include <stdatomic.h>

enum { MOT_MAX_RANKS = MOT_MAX_DEVICES };

typedef struct MotGate {
    _Alignas(64) _Atomic uint32_t count;
} MotGate;

typedef enum MotCommand { MOT_CMD_NONE, MOT_CMD_RUN, MOT_CMD_REBIND, MOT_CMD_QUIT } MotCommand;

/*
 * One rank's side, written by the rank and read by all. Times are of the last section or step run,
 * in nanoseconds of the device's time, and busy + comm + wait is all of it: what of a communication
 * went on beside computing is no time of its own.
 */
typedef struct MotRankState {
    MotGate finished;                                  /* commands done */
    MotGate arrived[MOT_MAX_AXES], left[MOT_MAX_AXES]; /* collectives entered and left, by axis */
    /* The device's time (runtime/clock.h) at the last of them; the gate publishes it. */
    int64_t arrived_ns[MOT_MAX_AXES], left_ns[MOT_MAX_AXES];
    _Atomic uint32_t section, micro; /* at work, */
    _Atomic uint32_t instruction;    /* and the position in it, or MOT_NO_INSTRUCTION */
    _Atomic uint32_t retired;        /* instructions done since the start */
    _Atomic uint32_t
        updating; /* the command in which it last began to write parameters or states */
    _Atomic uint32_t executed;  /* the last command of which all instructions are done */
    _Atomic(MotGate *) awaited; /* the peer's gate that it waits at, or NULL, */
    _Atomic uint32_t target;    /* and for what count: who hangs is who waits for nothing */
    int64_t busy_ns;            /* computing */
    int64_t resizable_ns;       /* of it in kernels on buffers whose sizes follow the shares */
    int64_t comm_ns;            /* communicating, and nothing else to do meanwhile */
    int64_t wait_ns;            /* waiting for peers */
    int64_t *cut_ns;            /* [cuts]: in the products of each layer that may be cut */
    int status;                 /* MotStatus of a failed rank */
    char error[1024];
    char *arena;
    int64_t arena_capacity;
} MotRankState;

/*
 * One rank's end of a channel between stages: messages since the start, at the sender's sent and at
 * the receiver's taken.
 */
enum { MOT_MAIL_TIMES = 16 };
typedef struct MotMail {
    MotGate sent, taken;
    _Atomic int64_t ns[MOT_MAIL_TIMES]; /* the device's time at message n is [n % MOT_MAIL_TIMES] */
} MotMail;

typedef struct MotShared {
    MotGate command_count; /* commands issued */
    int64_t command_ns;    /* when the last one was */
    MotCommand command;
    MotSection section;
    int64_t step; /* of the training, from 0 */
    int64_t share[MOT_MAX_AXES]
                 [MOT_MAX_RANKS]; /* of a stage's axis, from the stage's first rank on */
    int64_t *kept;                /* [cuts][n_ranks]: columns that a rank keeps; 0: all */
    int64_t *helped;              /* [cuts][n_ranks]: columns that a rank computes for its lender */
    int64_t lender[MOT_MAX_RANKS]; /* [n_ranks]: whom a rank computes columns for, + 1; 0: nobody */
    _Atomic int abort;             /* a rank is gone: all waits end */
    uint32_t n_ranks, spins;       /* spins before a futex: 0 when threads outnumber cores */
    size_t bytes;                  /* of the whole mapping */
    MotMail *mail;                 /* [channels][n_ranks] */
    MotRankState rank[];
} MotShared;

#define MOT_NO_INSTRUCTION UINT32_MAX

/* Adds one and wakes the waiters. */
void mot_gate_open(MotGate *gate);
/* Whether count has reached `target`; counts may wrap. */
bool mot_gate_has_reached(const MotGate *gate, uint32_t target);
/* Waits until count has reached `target`; MOT_ERR_RANK when `shared->abort` was set meanwhile. */
MOT_CHECKED MotStatus mot_gate_wait(MotShared *shared, MotGate *gate, uint32_t target);
/* Sleeps until count is no longer `seen`, 50 ms at most. */
void mot_gate_pause(MotGate *gate, uint32_t seen);
int64_t mot_now_ns(void);
/* Sleeps until mot_now_ns() reaches `deadline_ns`. */
void mot_sleep_until_ns(int64_t deadline_ns);

#endif
