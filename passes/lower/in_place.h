/*
 * Copies that need not be: an instruction may as well write to where its result is wanted, if
 * nothing else has a say in the place. Linear in the instructions of the section.
 */
#ifndef MOTLEY_PASSES_LOWER_IN_PLACE_H
#define MOTLEY_PASSES_LOWER_IN_PLACE_H

#include "ir/program.h"

/*
 * The buffer whose maker writes all of `buf`, itself or what it is a reshape of, if that is a
 * kernel of this section that may as well write elsewhere; else MOT_NO_BUF. Parameters, inputs,
 * results of collectives and parts of other buffers stay where they are.
 */
uint32_t mot_find_movable(const MotProgram *program, MotSection section, uint32_t buf);
/*
 * Has the instruction that makes `src`, the new value of the parameter in `dst`, write into `dst`
 * itself. Possible when nothing else reads the new value and nothing from there on reads the old
 * one, but for a kernel that reads each element before it writes it.
 */
bool mot_write_in_place(MotProgram *program, MotSection section, uint32_t src, uint32_t dst);
/*
 * Whether the kernel reads each element of the operand for the last time before it writes the like
 * element of the result; buffers by their place in the launch. Of kernels that are not elementwise,
 * that of the logits' gradient: with a large vocabulary nothing else is as large.
 */
bool mot_may_overwrite(const MotProgram *program, const MotInstr *launch, uint32_t operand,
                       uint32_t result);
/*
 * Results of elementwise kernels, and the gradient of the logits, take over the memory of an
 * operand that nobody reads any more: less memory, and the lines written are in the cache already.
 * Once all sections are there, before events are added.
 */
void mot_reuse_operands(MotProgram *program);

#endif
