/*
 * The cost function: what an operator, a conversion between shardings and a whole plan cost on a
 * mesh. Planner, report, explainer and bound all ask here, so that every number they print can be
 * traced to one place.
 *
 * An operator takes, on every device, its launch, its products, and the longer of its functions and
 * its bytes (work.h) at the device's rates; a collective takes the latency of its phases plus the
 * largest number of bytes that a device receives over the slowest link of its axis. Devices meet at
 * every operator: the step is the sum of the slowest device's times.
 *
 * Choices are priced on the last axis. What the axes before it split is given: for the devices in
 * one of their places the operators are smaller by that, and else it is a problem of one axis.
 */
#ifndef MOTLEY_PASSES_PLAN_COST_H
#define MOTLEY_PASSES_PLAN_COST_H

#include "ir/convert.h"
#include "passes/plan/work.h"

/* The parts of `units` under the shares of an axis. */
typedef struct MotParts {
    uint32_t axis;
    int64_t units, *part;
} MotParts;
typedef MotVec(MotParts) MotPartsList;

typedef struct MotCost {
    MotCtx *ctx;
    const MotGraph *g;
    const MotCluster *cluster;
    const MotMesh *mesh;
    uint32_t n;             /* devices */
    uint32_t last;          /* the axis whose choices are priced */
    uint32_t n_places;      /* of the axes before it */
    const MotOpPlan *given; /* [ops]: what these split; NULL: nothing */
    MotRates *rate;         /* [n], slow-down included */
    /* By axis, of the worst link between two devices that meet along it. */
    double latency[MOT_MAX_AXES], bandwidth[MOT_MAX_AXES];
    bool overlaps;      /* gathered collectives travel while kernels run: emulated devices */
    MotPartsList parts; /* those asked for so far */
    double *runs;       /* [ops] times a step: once a micro-batch, or once */
    MotFusion fusion;
    MotGraph local; /* the graph, for the sizes that an op's values have in a place */
    MotWork **work; /* [ops][places][factors + 1], the last for none; NULL until asked for */
} MotCost;

/* mot_cluster_rates, slow-down included. */
MotRates mot_cost_rates(const MotCluster *cluster, uint32_t device);
/* The link between two devices as collectives have it: measured, where it was. */
MotLink mot_cost_link(const MotCluster *cluster, uint32_t a, uint32_t b);
/* For steps of one micro-batch; the axes before the last split nothing. */
MOT_CHECKED MotStatus mot_cost_make(MotCtx *ctx, const MotGraph *g, const MotCluster *cluster,
                                    const MotMesh *mesh, MotCost **out_cost);

/* Steps of n micro-batches: what leads to an `accumulate` runs n times. */
void mot_cost_set_micro(MotCost *cost, uint32_t n);
/* The integer parts of `units`, one a coordinate of the axis. */
const int64_t *mot_cost_parts(MotCost *cost, uint32_t axis, int64_t units);
/* Bytes of a value under a sharding on device i. */
double mot_cost_local_bytes(MotCost *cost, const MotType *type, MotSharding s, uint32_t i);

/*
 * Seconds of an op that computes with `factor` split by the last axis (-1: none), on the slowest
 * device; times[n], if given, are added to.
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

/* What a conversion costs. */
typedef struct MotConversion {
    double seconds, bytes; /* bytes received, over all devices */
    bool is_local;         /* the time is copying, no bytes travel */
} MotConversion;

/* One step of it: t->have, which becomes what the step leaves. False if nothing is to be done. */
bool mot_cost_next(MotCost *cost, MotTransition *t, double *received, double *copying,
                   MotConversion *out_step);
/*
 * All steps, as lowering makes them: all-reduce, reduce-scatter, all-gather, all-to-all, or a local
 * copy of the own part, one an axis. received[n] and copying[n], if given, are added to.
 */
MotConversion mot_cost_convert(MotCost *cost, const MotTransition *t, double *received,
                               double *copying);
/*
 * Seconds to copy a value of this sharding `runs` times, on the slowest device; times[n], if given,
 * are added to.
 */
double mot_cost_copy(MotCost *cost, const MotType *type, MotSharding s, double runs, double *times);

/*
 * The least time that any split of any choice on the last axis gives an op: no plan of any shares
 * is faster that splits the same by the axes before.
 */
double mot_cost_op_bound(MotCost *cost, const MotOp *op, const MotFactors *factors);

#endif
