/*
 * What a whole plan costs: the sums behind plan->time and the predictions a device, independent of
 * the tables that found it.
 */
#ifndef MOTLEY_PASSES_PLAN_EVALUATE_H
#define MOTLEY_PASSES_PLAN_EVALUATE_H

#include "passes/plan/cost.h"

typedef struct MotPlanCost {
    double serial;         /* seconds a step in which nothing overlaps: what the tables add up to */
    double step;           /* seconds a step, where gathered collectives travel beside kernels */
    double *op_seconds;    /* [ops] on the slowest device; local copies of operands included */
    double *op_collective; /* [ops] seconds of the collectives that bring its operands */
    double *op_bytes;      /* [ops] bytes that these receive, over all devices */
    MotDevicePrediction *devices; /* [mesh devices] */
} MotPlanCost;

/* Why a plan has no predicted time: it has several stages or axes. NULL: it has one. */
const char *mot_plan_why_untimed(const MotPlan *plan);
/* The cost function on the plan's mesh; fails where there is no predicted time. */
MOT_CHECKED MotStatus mot_cost_of_plan(const MotPlan *plan, MotCost **out_cost);
/* The factors of all ops in the body, [ops]. */
MOT_CHECKED MotStatus mot_plan_factors(MotCtx *ctx, const MotGraph *g, MotFactors **out_factors);

/*
 * Walks the body as lowering does: every operand is brought from the sharding that its op left to
 * the one needed, once for all users that need the same. Memory is the peak of persistent and live
 * buffers. Linear in ops, but for users with different needs and the order of gathered collectives.
 */
void mot_plan_evaluate(const MotPlan *plan, MotCost *cost, const MotFactors *factors,
                       MotPlanCost *out_cost);

#endif
