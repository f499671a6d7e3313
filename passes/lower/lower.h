/* Lowering: Plan -> Programs. */
#ifndef MOTLEY_PASSES_LOWER_LOWER_H
#define MOTLEY_PASSES_LOWER_LOWER_H

#include "ir/program.h"

/*
 * A Program for every stage of a plan. A step computes what the assignments and outputs need, the
 * eval section what the outputs of the forward pass need. Every operand is brought into the
 * sharding that its op wants by the cheapest collective that does it; a conversion is shared by all
 * users. Linear in ops. The pipeline is verified by the caller.
 */
MOT_CHECKED MotStatus mot_lower(MotCtx *ctx, const MotPlan *plan, MotPipeline **out_pipeline);

#endif
