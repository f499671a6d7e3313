/*
 * Plan: a graph, placed. It says for every op which of its factors each mesh axis splits, and so,
 * through the factor rules, the sharding of every value; the rest (collectives, buffers, kernels)
 * follows in lowering. The planner writes it beside the graph and never edits the graph.
 * passes/plan makes plans; mot_plan_verify judges them independently of who made them.
 */
#ifndef MOTLEY_IR_PLAN_H
#define MOTLEY_IR_PLAN_H

#include "ir/cluster.h"
#include "ir/factors.h"

enum { MOT_MAX_AXES = 4, MOT_MAX_MICRO = 4096 };

/*
 * What a mesh axis does to a value: a dim >= 0 that it splits, or one of these. A split dim is
 * dealt out in `units` equal pieces (the size of the factor that split it, inside of units the
 * product of both; a piece is size / units elements), else units is 0.
 */
enum { MOT_REPLICATED = -1, MOT_PARTIAL_SUM = -2, MOT_PARTIAL_MAX = -3 };
typedef struct MotSharding {
    int8_t axis[MOT_MAX_AXES];
    int64_t units[MOT_MAX_AXES];
} MotSharding;
extern const MotSharding mot_replicated;
bool mot_sharding_equal(MotSharding a, MotSharding b);
/* "replicated", "split 0", "partial sum", axes separated by " x ". */
const char *mot_sharding_text(MotArena *arena, MotSharding s, uint32_t n_axes);

/*
 * One axis of the mesh: a name, its length, and the ratio in which it splits dims (speed for
 * compute, memory for state).
 */
typedef struct MotMeshAxis {
    const char *name;
    uint32_t n;
    int64_t *share; /* [n], each >= 0, not all 0 */
} MotMeshAxis;

typedef struct MotMesh {
    MotMeshAxis axis[MOT_MAX_AXES];
    uint32_t n_axes, n_devices;
    /* [n_devices] row-major over the axes, last fastest: indices into the cluster */
    uint32_t *devices;
} MotMesh;

/* The coordinate along `axis` of mesh position `position`. */
uint32_t mot_mesh_coordinate(const MotMesh *mesh, uint32_t position, uint32_t axis);
/*
 * Splits `units` in the ratio share[n] to integers by largest remainder, ties to the lower index:
 * the one rounding that planner, binding and checkpoints share. A share of 0 gets 0.
 */
void mot_share_split(const int64_t *share, uint32_t n, int64_t units, int64_t *out_parts);

typedef struct MotOpPlan {
    uint32_t stage;
    /* the factor that each axis splits, or -1: every device computes it whole */
    int8_t factor[MOT_MAX_AXES];
    bool recompute; /* run again in the backward pass instead of keeping its results */
} MotOpPlan;

typedef struct MotStage {
    MotMesh mesh;
} MotStage;

/*
 * What stands where a cut leaves out a weight's gradient (algorithms of ZERO-resizing); NONE: no
 * rank may cut.
 */
typedef enum MotCutFill {
    MOT_CUT_NONE,
    MOT_CUT_ZERO,
    MOT_CUT_MEAN, /* the mean of what was computed beside it, along the cut dim */
    MOT_CUT_LAST  /* what stood there in the last step */
} MotCutFill;

typedef enum MotSchedule { MOT_SCHEDULE_GPIPE, MOT_SCHEDULE_1F1B } MotSchedule;

typedef struct MotDevicePrediction {
    double busy, communication; /* seconds a step */
    double memory;              /* bytes at the peak */
    double bytes;               /* sent and received a step */
} MotDevicePrediction;

/* What the plan's graph was made from, so that it can be made again. */
typedef struct MotPlanSource {
    const char *model;    /* the file as it was named; NULL: not known */
    const char *hash;     /* of its bytes */
    const char **options; /* [n_options] of the command line, as "--loss=..." */
    uint32_t n_options;
} MotPlanSource;

typedef struct MotPlan {
    MotCtx *ctx;
    MotPlanSource source;
    MotGraph *graph;
    const MotCluster *cluster;
    MotVec(MotStage) stages;
    MotSchedule schedule;
    uint32_t n_micro;    /* micro-batches a step */
    bool lends;          /* ranks may compute columns for each other; no part of its text either */
    MotCutFill cuts;     /* not part of its text: whoever runs the plan consents or doesn't */
    MotOpPlan *ops;      /* [graph->ops.n] */
    MotSharding *values; /* [graph->values.n]: as the defining op leaves it */
    MotDevicePrediction *devices; /* [cluster->devices.n] */
    double time, bound;           /* seconds a step; bound <= time */
} MotPlan;

MotPlan *mot_plan_new(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster);
/* A copy whose ops' choices and values' shardings may be changed; all else is shared. */
MotPlan mot_plan_copy(const MotPlan *plan);
/* Whether it has one stage, over one axis: what changes while a training runs takes such plans. */
bool mot_plan_is_line(const MotPlan *plan);
/*
 * The sharding in which an op that splits these of its factors, one an axis or -1, needs operand i,
 * and the one in which it leaves result k.
 */
MotSharding mot_sharding_of_operand(const MotFactors *factors, const int8_t *split, uint32_t i);
MotSharding mot_sharding_of_result(const MotFactors *factors, const int8_t *split, uint32_t k);
/*
 * Sets plan->values of the op's results from the factor choice in plan->ops. `factors` are the
 * op's.
 */
void mot_plan_apply_factors(MotPlan *plan, MotOpId id, const MotFactors *factors);
/* The sharding that the op needs its operand i in, under its factor choice. */
MotSharding mot_plan_operand(const MotPlan *plan, MotOpId id, const MotFactors *factors,
                             uint32_t i);

/*
 * Whether running the op a second time is possible: a forward op that neither comes from outside
 * nor adds up.
 */
bool mot_op_may_be_recomputed(const MotOp *op);

/*
 * Checks a plan: factors splittable, no two axes on one dim of a value unless nested, assigned
 * values sharded as their parameter, shares sane, stages in order, only forward ops recomputed.
 * Independent of the planner.
 */
MOT_CHECKED MotStatus mot_plan_verify(const MotPlan *plan);

/* Text form: the cluster, the graph and a record an op. What is printed parses back to the same. */
void mot_plan_print(const MotPlan *plan, MotText *text);
MOT_CHECKED MotStatus mot_plan_parse(MotCtx *ctx, const char *file, const char *text,
                                     MotPlan **out_plan);

#endif
