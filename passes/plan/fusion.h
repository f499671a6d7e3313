/*
 * Which operators will be one kernel, as lowering groups them where the members of a group are
 * split alike; so what an operator costs does not depend on how its neighbours are split.
 */
#ifndef MOTLEY_PASSES_PLAN_FUSION_H
#define MOTLEY_PASSES_PLAN_FUSION_H

#include "ir/graph.h"

typedef struct MotFusion {
    uint32_t *launch; /* [ops] 1, 2, ... in program order; 0: source or sink */
    bool *is_first;   /* [ops] of its launch */
    bool *is_view;    /* [ops] no kernel at all: operand or parts lie in the result's memory */
    bool *is_inner;   /* [values] made and read within one launch: never in memory */
    /* [values] assigned and not used otherwise: made in the parameter's memory */
    bool *is_in_place;
    uint64_t *is_free; /* [ops] bit i: operand i is in registers, or read by the launch already */
} MotFusion;

/* Linear in operands. Lives in ctx's arena. */
void mot_fusion_find(MotCtx *ctx, const MotGraph *g, MotFusion *out_fusion);

#endif
