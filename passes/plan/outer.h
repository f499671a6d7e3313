/*
 * What the outer axis of a mesh of two splits: the units of the batch (DeMo's replicas,
 * ir/factors.h). Every op that runs over them, or over what follows from them, splits them, so
 * nothing is searched there, and no dense tensor travels between replicas.
 */
#ifndef MOTLEY_PASSES_PLAN_OUTER_H
#define MOTLEY_PASSES_PLAN_OUTER_H

#include "ir/plan.h"

/* The units that the graph's inputs are dealt out in; 0: none are given. */
int64_t mot_outer_units(const MotGraph *g);
/*
 * Sets what axis 0 splits, for all ops; `factors` [ops]. Forward from the inputs, and back to what
 * has one entry a unit without coming from them, such as each replica's momentum. Linear in ops for
 * every turn between the two directions, of which there are few.
 */
void mot_outer_choose(MotPlan *plan, const MotFactors *factors);

#endif
