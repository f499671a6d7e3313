/*
 * Rebalancing: what the ranks of a mesh axis measured in a step, and what is decided from it. The
 * run time asks a MotPolicy after every step and carries out what it decides;
 * passes/plan/rebalance.h is such a policy. Neither knows the other.
 */
#ifndef MOTLEY_IR_BALANCE_H
#define MOTLEY_IR_BALANCE_H

#include "ir/cluster.h"

/* A decision after step s holds from step s + MOT_BALANCE_DELAY on. */
enum { MOT_BALANCE_DELAY = 2 };

/* A rank's step in seconds of its device's time; all of it, each part once. */
typedef struct MotRankTimes {
    double resizable, other; /* computing, in kernels whose sizes follow the shares and elsewhere */
    double comm, wait;
} MotRankTimes;

typedef struct MotStepTimes {
    int64_t step, steps;  /* its number from 0, and how many there are */
    uint32_t n;           /* ranks */
    const int64_t *share; /* [n] in this step */
    const MotRankTimes *rank;
    double resize_seconds; /* the change of shares before this step took; 0: there was none */
} MotStepTimes;

typedef enum MotBalanceKind {
    MOT_BALANCE_KEEP,     /* nothing to do or say */
    MOT_BALANCE_MOVE,     /* new shares, because `rank` is the slowest */
    MOT_BALANCE_MEASURED, /* what the last move gained */
    MOT_BALANCE_UNDO,     /* it gained too little: the shares before it again */
    /* `rank` is the slowest, and shares that save enough are none that its units allow */
    MOT_BALANCE_STUCK,
    MOT_BALANCE_LINK, /* a link of `rank` got slower; other shares would not help */
    /* a move or its undoing that a device has no memory for; never a policy's */
    MOT_BALANCE_NO_ROOM,
    MOT_N_BALANCE_KINDS
} MotBalanceKind;

typedef struct MotDecision {
    MotBalanceKind kind;
    uint32_t rank;
    /* move, stuck: the slowest rank's time to that of the best shares; link: to its own before */
    double factor;
    int64_t share[MOT_MAX_DEVICES]; /* move, undo */
    double before;                  /* move, measured, undo: seconds a step before the move, */
    double predicted, measured;     /* and what it saves of them; measured: not for a move */
} MotDecision;

typedef struct MotPolicy {
    void *self;
    void (*decide)(void *self, const MotStepTimes *times, MotDecision *out_decision);
} MotPolicy;

/*
 * A step of ranks that may cut layers (ir/program.h); by rank and layer: [rank * n_layers + layer].
 */
typedef struct MotCutTimes {
    int64_t step, steps; /* its number from 0, and how many there are */
    uint32_t n, n_layers;
    const int64_t *share;   /* [n] */
    const double *busy;     /* [n] seconds of computing */
    const double *layer;    /* of it in the layer's products */
    const int64_t *columns; /* of the rank's part of the layer */
    const int64_t *cut;     /* columns that the rank did not compute in this step; of these some */
    const uint32_t *lender; /* [n] that a rank computed for this one, + 1; 0: for nobody */
    const int64_t *help;    /* as so many columns, by helper and layer */
    const double *total;    /* [n] seconds of the step */
} MotCutTimes;

typedef struct MotCutDecision {
    MotBalanceKind kind; /* keep; move: other cuts; measured; undo */
    uint32_t rank;       /* move: the slowest */
    bool is_spent;       /* move: the accuracy budget is spent, nothing is cut any more */
    /* move, undo: columns not to compute; the policy's until the next decision, as */
    const int64_t *cut;
    const uint32_t *lender; /* [n] whom a rank computes some of these for, + 1, 0: nobody; */
    const int64_t *help;    /* and how many, by helper and layer */
    double before, predicted, measured; /* as in MotDecision */
} MotCutDecision;

typedef struct MotCutPolicy {
    void *self;
    void (*decide)(void *self, const MotCutTimes *times, MotCutDecision *out_decision);
} MotCutPolicy;

#endif
