/*
 * Another plan while a training runs: what the planner makes of the speeds that were measured,
 * where other shares alone can't follow them (of four samples, a device at half its speed has one
 * or none).
 */
#ifndef MOTLEY_PASSES_PLAN_REPLAN_H
#define MOTLEY_PASSES_PLAN_REPLAN_H

#include "passes/plan/plan.h"
#include "passes/plan/split_work.h"

typedef struct MotReplan {
    MotPlan *plan; /* NULL: none is clearly better */
    /* predicted seconds a step at the measured speeds: of the plan at work, and of the new one */
    double now, then;
} MotReplan;

/*
 * `unit`: seconds that each rank of the plan takes for all of its split work; NaN: not known, as
 * the cluster says. A new plan saves at least 8 % of a step by the cost model. It is for the same
 * devices of the same cluster; its predictions are those for the measured speeds. For plans of one
 * stage and axis, others are kept. What the planner can't plan, such as for lack of memory, is no
 * failure: there is no new plan then. Time: a run of the planner.
 */
MOT_CHECKED MotStatus mot_replan(MotCtx *ctx, const MotPlan *plan, const double *unit,
                                 const MotPlanOpts *opts, MotReplan *out);

#endif
