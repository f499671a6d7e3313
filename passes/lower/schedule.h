/*
 * The order in which a stage runs its micro-batches (Narayanan et al., arXiv 2104.04473 section
 * 2.2; docs/design.md).
 *
 * Stage i of p, m micro-batches. GPipe: all forward passes, then all backward passes; m
 * micro-batches are in flight. 1F1B: w = min(p - 1 - i, m) forward passes, then pairs of one
 * forward and one backward until the forward passes are over, then the other w backward passes;
 * min(p - i, m) are in flight. Each pass goes through the micro-batches in ascending order. Both
 * have p - 1 idle slots of one forward and one backward pass.
 */
#ifndef MOTLEY_PASSES_LOWER_SCHEDULE_H
#define MOTLEY_PASSES_LOWER_SCHEDULE_H

#include "ir/program.h"

/* Appends a forward and a backward run for every micro-batch; for one micro-batch nothing. */
void mot_schedule_order(MotProgram *program, MotSchedule schedule, uint32_t stage,
                        uint32_t n_stages);
/* The most micro-batches whose forward pass has begun and whose backward pass has not ended. */
uint32_t mot_schedule_in_flight(MotSchedule schedule, uint32_t stage, uint32_t n_stages,
                                uint32_t n_micro);

#endif
