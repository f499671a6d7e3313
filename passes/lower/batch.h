/*
 * Fewer launches and kernels of the update: the same work on many parameters becomes one batched
 * launch (ir/program.h), of a kernel that sees every parameter as a line of elements.
 *
 * A launch of the update can be a member when its kernel computes every element from the same
 * element of its operands, which have one shape, and from scalars, and may sum all elements up at
 * the end. Its kernel with all dims merged into one is what members of a batch have in common. A
 * batch stands where the first instruction follows that depends on one of its members, or at the
 * section's end. Other launches would wait as well as these, but their operands would have to live
 * longer.
 *
 * Keeps: every element is computed by the same operators in the same order; what a member reads or
 * writes nobody else writes in between. Linear in operands.
 */
#ifndef MOTLEY_PASSES_LOWER_BATCH_H
#define MOTLEY_PASSES_LOWER_BATCH_H

#include "ir/program.h"

/*
 * Of all sections, before collectives are gathered and events added. Drops the kernels that no
 * launch uses any more.
 */
void mot_batch(MotProgram *program);

#endif
