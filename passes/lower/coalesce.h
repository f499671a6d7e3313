/*
 * Fewer meetings: collectives of one kind and axis become one instruction over several buffers, with one gate (as NCCL's groups).
 *
 * Every collective first rises to where its sources are ready, then sinks, taking its like along, until one of its results is
 * needed or the bucket is full: gradients are reduced in a few buckets during the backward pass, new parameters are gathered
 * in a few after the updates. Kernels keep their order. A bucket holds about an eighth of the bytes that the section moves in this kind,
 * but a mebibyte at least: enough pieces that a bucket can travel while the next one is computed, few enough that
 * waiting for each other does not count.
 *
 * Keeps: every buffer is written before it is read and not written before its last reader is done, as in the program before. Linear
 * in the operands.
 */
#ifndef MOTLEY_PASSES_LOWER_COALESCE_H
#define MOTLEY_PASSES_LOWER_COALESCE_H

#include "ir/program.h"

/* Before events are added. */
void mot_coalesce(MotProgram *program, MotSection section);

#endif
