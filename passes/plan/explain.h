/* What `motley plan` and `motley explain` print. */
#ifndef MOTLEY_PASSES_PLAN_EXPLAIN_H
#define MOTLEY_PASSES_PLAN_EXPLAIN_H

#include "passes/plan/plan.h"
#include "support/json.h"

/*
 * A line a layer (a node of the ONNX file with everything derived from it): what it splits,
 * seconds, bytes moved; a line a device: share, time, memory; the total and its distance from the
 * bound. `stats` may be NULL.
 */
MOT_CHECKED MotStatus mot_plan_report(const MotPlan *plan, const MotPlanStats *stats, MotText *out);
/*
 * For every operator whose node matches `glob` and that has a choice: its choices as --fix takes
 * them, what each costs, what the step would take when the rest of the plan stays, and when it
 * adapts. Fails with MOT_ERR_USAGE when nothing matches.
 */
MOT_CHECKED MotStatus mot_plan_explain(const MotPlan *plan, const char *glob, MotText *out);

/* The two as members of an open JSON object; seconds and bytes. */
MOT_CHECKED MotStatus mot_plan_put_report(const MotPlan *plan, MotJsonWriter *w);
MOT_CHECKED MotStatus mot_plan_put_explanation(const MotPlan *plan, const char *glob,
                                               MotJsonWriter *w);

#endif
