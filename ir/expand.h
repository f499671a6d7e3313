/* A composite's expansion in a graph of its own: what evaluates it, types it and gives it factors.
 */
#ifndef MOTLEY_IR_EXPAND_H
#define MOTLEY_IR_EXPAND_H

#include "ir/builder.h"

typedef struct MotExpansion {
    MotGraph *graph;               /* primitives over one `input` an operand */
    MotValue in[MOT_MAX_OPERANDS]; /* 0 for absent operands */
    MotValue out[MOT_MAX_RESULTS];
} MotExpansion;

/*
 * Expands `op` over operands of the types `in_types` (dtype MOT_NO_DTYPE where the operand is
 * absent). Fails as mot_expand does, when the types do not fit the row. Everything is in ctx's
 * arena.
 */
MOT_CHECKED MotStatus mot_expand_alone(MotCtx *ctx, const MotOp *op, const MotType *in_types,
                                       MotExpansion *out_expansion);

#endif
