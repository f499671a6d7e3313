/* Recomputation: what a plan asks to run again in the backward pass, as ops of the graph. */
#ifndef MOTLEY_PASSES_LOWER_RECOMPUTE_H
#define MOTLEY_PASSES_LOWER_RECOMPUTE_H

#include "ir/plan.h"

/*
 * A plan that does the same without the flag: before the first backward op that reads a flagged
 * op's result stands a copy of that op, with its factors, and all backward ops read the copy; so
 * the original's results live in the forward pass only. Copies read copies where their operands are
 * flagged too. Gives the plan itself if nothing is flagged, else a plan over a new graph, in ctx's
 * arena, that keeps the ids of the old. Linear in ops.
 */
const MotPlan *mot_recompute_apply(MotCtx *ctx, const MotPlan *plan);

#endif
