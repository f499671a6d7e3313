/* The planner's entry. */
#ifndef MOTLEY_PASSES_PLAN_PLAN_H
#define MOTLEY_PASSES_PLAN_PLAN_H

#include "passes/plan/intra.h"
#include "passes/plan/shares.h"

/* How the search went, for the report. */
typedef struct MotPlanStats {
    uint32_t n_vars, width;
    size_t largest_table;
    /*
     * The minimum over the variables' choices; else beam search, or shared conversions count twice.
     */
    bool is_exact;
    bool is_beam;         /* too entangled for elimination */
    bool is_memory_bound; /* a faster plan did not fit */
    double saved; /* seconds of a step, by other shares than the speeds; 0 where these stayed */
} MotPlanStats;

typedef struct MotPlanOpts {
    uint32_t n_devices; /* the first of the cluster; 0: all */
    /*
     * [n_share] of the devices in the cluster's order, and so for a mesh of one axis, or of the
     * last axis; NULL: those that suit the plan, near the devices' speeds, less where memory is
     * short.
     */
    const int64_t *share;
    uint32_t n_share; /* its length, to be checked */
    bool one_axis;    /* whatever replicas there are */
    const MotFix *fixes;
    uint32_t n_fixes;
    uint32_t n_micro;    /* micro-batches a step; 0: 1 */
    MotPlanStats *stats; /* may be NULL */
} MotPlanOpts;

/*
 * Plans `graph` (with its backward and update ops) on a mesh of the devices (mesh.h). For every
 * operator it chooses a factor that the last axis splits, or none, so that the predicted time of a
 * step is least under each device's memory; an axis before it splits the batch's units. Where
 * devices can be grouped so, the plan is the faster of that and one on a single axis. `plan->bound`
 * is a time that no choice and no shares can beat in the same cost model, on that mesh.
 * Deterministic. Fails with MOT_ERR_USAGE for shares and fixes that make no sense,
 * MOT_ERR_INFEASIBLE when no plan fits the memory; the context then names device and bytes. `opts`
 * may be NULL. The plan lives in ctx's arena and refers to graph and cluster.
 */
MOT_CHECKED MotStatus mot_plan_make(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster,
                                    const MotPlanOpts *opts, MotPlan **out_plan);

/*
 * Sets time, bound and device predictions from the choices in plan->ops (for parsed or hand-written
 * plans as well).
 */
MOT_CHECKED MotStatus mot_plan_predict(MotPlan *plan);

#endif
