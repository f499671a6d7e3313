/*
 * Fewer meetings: collectives of one kind and axis become one instruction over several buffers,
 * with one gate (as NCCL's groups).
 *
 * Every collective first rises to where its sources are ready; those that are ready before the
 * first of their results is needed join in a bucket, until it is full or the next one is far
 * behind. The bucket starts when the last of its sources is ready, so that it travels beside the
 * kernels up to its first reader. Gradients are reduced in a few buckets during the backward pass,
 * parameters gathered in a few ahead of their layers. Kernels keep their order. A bucket holds
 * about an eighth of the bytes that the section moves in this kind, but a mebibyte at least: enough
 * pieces that one can travel while the next is computed, few enough that waiting for each other
 * does not count.
 *
 * Keeps: every buffer is written before it is read and not written before its last reader is done,
 * as in the program before. Linear in the operands.
 */
#ifndef MOTLEY_PASSES_LOWER_COALESCE_H
#define MOTLEY_PASSES_LOWER_COALESCE_H

#include "ir/program.h"

/* Before events are added. */
void mot_coalesce(MotProgram *program, MotSection section);

#endif
