/*
 * The cost function: what an operator, a conversion between shardings and a whole plan cost on a
 * mesh of one axis. Planner, report, explainer and bound all ask here, so that every number they
 * print can be traced to one place.
 *
 * An operator takes, on every device, its launch, its products, and the longer of its functions and
 * its bytes (work.h) at the device's rates; a collective takes the latency of its phases plus the
 * largest number of bytes that a device receives over the slowest link. Devices meet at every
 * operator: the step is the sum of the slowest device's times.
 */
#ifndef MOTLEY_PASSES_PLAN_COST_H
#define MOTLEY_PASSES_PLAN_COST_H

#include "ir/plan.h"
#include "passes/plan/work.h"

/* The parts of `units` under the mesh's shares. */
typedef struct MotParts {
    int64_t units, *part;
} MotParts;
typedef MotVec(MotParts) MotPartsList;

typedef struct MotCost {
    MotCtx *ctx;
    const MotGraph *g;
    const MotCluster *cluster;
    const MotMesh *mesh;
    uint32_t n;                /* devices */
    MotRates *rate;            /* [n], slow-down included */
    double latency, bandwidth; /* of the worst link between two of them */
    bool overlaps;             /* gathered collectives travel while kernels run: emulated devices */
    MotPartsList parts;        /* those asked for so far */
    double *runs;              /* [ops] times a step: once a micro-batch, or once */
    MotFusion fusion;
    MotWork **work; /* [ops][factors + 1], the last for none; NULL until asked for */
} MotCost;

/* mot_cluster_rates, slow-down included. */
MotRates mot_cost_rates(const MotCluster *cluster, uint32_t device);
/* The link between two mesh positions as collectives have it: measured, where it was. */
MotLink mot_cost_link(const MotCost *cost, uint32_t a, uint32_t b);
/* For steps of one micro-batch. Fails for a mesh of several axes. */
MOT_CHECKED MotStatus mot_cost_make(MotCtx *ctx, const MotGraph *g, const MotCluster *cluster,
                                    const MotMesh *mesh, MotCost **out_cost);

/* Steps of n micro-batches: what leads to an `accumulate` runs n times. */
void mot_cost_set_micro(MotCost *cost, uint32_t n);
/* The integer parts of `units`, one a device. */
const int64_t *mot_cost_parts(MotCost *cost, int64_t units);
/* Bytes of a value under a sharding on device i. */
double mot_cost_local_bytes(MotCost *cost, const MotType *type, MotSharding s, uint32_t i);

/*
 * Seconds of an op that computes with `factor` split (-1: none), on the slowest device; times[n],
 * if given, are added to.
 */
double mot_cost_op(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                   double *times);

/*
 * Seconds at a device's rates: launch, products, and the longer of functions and memory
 * (ir/count.h).
 */
typedef struct MotSeconds {
    double launch;
    MotQuantity products, functions, memory;
} MotSeconds;

/* Of an op a step, on one of the devices. */
MotSeconds mot_cost_seconds(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                            uint32_t device);
/* With this part of what is split; an empty part reads nothing either. */
double mot_seconds_at(const MotSeconds *seconds, double part);

/* A value brought from one sharding to another. */
typedef struct MotTransition {
    const MotType *type;
    MotSharding have, need;
    double runs; /* times a step */
    /*
     * Nothing waits for the result before the step's end: it travels with its like, as lowering
     * gathers collectives, and shares their latency.
     */
    bool is_gathered;
} MotTransition;

/* Of a value for its first user in program order. */
MotTransition mot_cost_transition(const MotCost *cost, MotValue v, MotSharding have,
                                  MotSharding need, MotOpId user);

/* What a conversion costs. `is_local`: the time is copying, no bytes travel. */
typedef struct MotConversion {
    double seconds, bytes; /* bytes received, over all devices */
    bool is_local;
} MotConversion;

/*
 * As lowering does it: all-reduce, reduce-scatter, all-gather, all-to-all, or a local copy of the
 * own part. received[n] and copying[n], if given, are added to.
 */
MotConversion mot_cost_convert(MotCost *cost, const MotTransition *t, double *received,
                               double *copying);
/*
 * Seconds to copy a value of this sharding `runs` times, on the slowest device; times[n], if given,
 * are added to.
 */
double mot_cost_copy(MotCost *cost, const MotType *type, MotSharding s, double runs, double *times);

/*
 * The least time that any split of any choice gives an op on these devices: no plan of any shares
 * is faster.
 */
double mot_cost_op_bound(MotCost *cost, const MotOp *op, const MotFactors *factors);

#endif
