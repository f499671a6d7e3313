/* Lowering: Plan -> Program. */
#ifndef MOTLEY_PASSES_LOWER_LOWER_H
#define MOTLEY_PASSES_LOWER_LOWER_H

#include "ir/program.h"

/*
 * The Program of a plan's stage. The step section computes what the assignments and outputs need, the eval section what the outputs
 * need. Every operand is brought into the sharding that its op wants by the cheapest collective that does it; a conversion is
 * shared by all users. Linear in ops. The program is verified by the caller.
 */
MOT_CHECKED MotStatus mot_lower(MotCtx *ctx, const MotPlan *plan, uint32_t stage,
                                MotProgram **out_program);

#endif
