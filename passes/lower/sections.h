/*
 * Which sections of a Program each op runs in (ir/program.h).
 *
 * With one micro-batch a step, the section `step` is all of it. With more, the graph's `accumulate`
 * ops cut it: what depends on no batch but through them runs once a step, what leads to them runs
 * every micro-batch. A sum that the micro-batches themselves need whole, as the number of labels,
 * comes before them in a section of its own.
 */
#ifndef MOTLEY_PASSES_LOWER_SECTIONS_H
#define MOTLEY_PASSES_LOWER_SECTIONS_H

#include "ir/program.h"

/* Sets of sections, as bits. */
typedef struct MotSections {
    uint32_t *runs; /* [ops] sections that compute the op */
    /* [ops] accumulate: sections that read the whole sum, which earlier ones have made */
    uint32_t *ready;
} MotSections;

/* Fails for a graph that reads the batch where the micro-batches are over. Linear in ops. */
MOT_CHECKED MotStatus mot_sections_find(MotCtx *ctx, const MotPlan *plan,
                                        MotSections *out_sections);

/* Whether the op is a cut: an `accumulate` of a step with several micro-batches. */
bool mot_is_cut(const MotPlan *plan, const MotOp *op);

#endif
