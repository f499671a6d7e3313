/*
 * Which values go from stage to stage, and when.
 *
 * A value is sent where its op stands in the body, to every stage with a user: once a micro-batch
 * if it is of the micro-batch, else at the first only (parameters, whole sums). Both sides walk the
 * same list in the same order, so that no stage waits for what comes later in the body. Inputs,
 * constants and what else has no operands are no transfers: every stage has its own.
 */
#ifndef MOTLEY_PASSES_LOWER_TRANSFERS_H
#define MOTLEY_PASSES_LOWER_TRANSFERS_H

#include "passes/lower/sections.h"

typedef struct MotTransfer {
    MotSection section;
    MotValue value;
    uint32_t from, to; /* stages */
    MotWhen when;
} MotTransfer;

/* In the order of sections and of the body; the index is the channel. */
typedef MotVec(MotTransfer) MotTransfers;

/* Linear in operands times stages. */
void mot_transfers_find(MotCtx *ctx, const MotPlan *plan, const MotSections *sections,
                        MotTransfers *out_transfers);

/* Whether every stage that needs the op's results makes them itself. */
bool mot_is_everywhere(const MotOp *op);

/* The sections whose users find a value that is made, or read whole, in `section`. */
unsigned mot_sections_in_reach(MotSection section);

#endif
