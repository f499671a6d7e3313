/*
 * Choices: which factor of an operator the mesh axis splits, or none. What they are called in
 * reports and in --fix, and what they mean for operands and results.
 */
#ifndef MOTLEY_PASSES_PLAN_CHOICE_H
#define MOTLEY_PASSES_PLAN_CHOICE_H

#include "ir/plan.h"

/* A factor, or one of these. */
enum { MOT_CHOICE_WHOLE = -1, MOT_CHOICE_NONE = -2 };

/*
 * Whether it is legal that `axis` splits factor f, and divides anything, where the axes before it
 * split the factors `given` (NULL: none).
 */
bool mot_factor_can_split(const MotFactors *factors, int f, const int8_t *given, uint32_t axis);

/*
 * The name of a choice: `replicate`; `samples` what is inside of units, the samples of a replica;
 * `batch` the first dim of the result; `out` a dim of the weight and the result only; `in` a dim
 * that is summed; `heads` of attention; else, or where the name is taken by an earlier factor,
 * `dimN` for dim N of the result and `sumN` for the N-th summed factor. Sources and updates have
 * `dimN` only.
 */
const char *mot_choice_name(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                            int choice);
/*
 * The choice of that name, MOT_CHOICE_NONE if the op has none. `dimN` is understood for every op.
 */
int mot_choice_find(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                    const char *name);
/*
 * What --fix and explain match: the node in the ONNX file, or the name of a parameter or input; ""
 * if there is neither.
 */
const char *mot_choice_node(const MotOp *op);

#endif
