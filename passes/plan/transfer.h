/* A plan read from a file, for a graph made anew. */
#ifndef MOTLEY_PASSES_PLAN_TRANSFER_H
#define MOTLEY_PASSES_PLAN_TRANSFER_H

#include "ir/plan.h"

/*
 * A plan of `graph` with the stages of `from` and the choices that it made for equal operators:
 * same kind, attributes and types, operands computed by equal operators. So a plan of a training
 * graph also serves its forward pass. Fails with MOT_ERR_MISMATCH, naming the first operator that
 * `from` has no equal of. Time and predictions are those of `from`. Linear in operands.
 */
MOT_CHECKED MotStatus mot_plan_transfer(const MotPlan *from, MotGraph *graph, MotPlan **out_plan);

#endif
