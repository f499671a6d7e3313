/*
 * Work for the time in which a collective travels. Where a kernel makes what a collective sends at once, and the kernel after that waits for
 * the result, a kernel that nobody waits for (a weight's gradient) is moved from before to between the two. Such kernels are held back,
 * four at most, as long as collectives of that sort follow soon; others keep their order.
 *
 * Keeps: every buffer is written before it is read and not written before its last reader is done. What held kernels read lives a
 * few kernels longer. Before mot_coalesce, which starts the collectives. Linear in the operands.
 */
#ifndef MOTLEY_PASSES_LOWER_DELAY_H
#define MOTLEY_PASSES_LOWER_DELAY_H

#include "ir/program.h"

void mot_delay_kernels(MotProgram *program, MotSection section);

#endif
