/*
 * What it takes to cut and lend columns of a layer, beside its products: what travels, in seconds,
 * and what ranks copy, in parts of what their own products take, so that a device that got slower
 * does that slower as well. Read off the Program (passes/lower/cuts.c, lend.c) and the planner's
 * rates of links and memories (cost.h).
 *
 * An exchange takes the latency, and what the rank that receives most of it does; none is hidden
 * beside kernels. A copy is its launch and its bytes. All sizes are linear in the numbers of
 * columns and helpers. Linear in instructions of a step.
 */
#ifndef MOTLEY_PASSES_PLAN_LEND_PRICE_H
#define MOTLEY_PASSES_PLAN_LEND_PRICE_H

#include "ir/program.h"
#include "passes/plan/cost.h"

/* Per unit; `any` is there in any case. */
typedef struct MotLinear {
    double any, kept, lent, helped, helpers;
} MotLinear;

/*
 * Columns of a rank that it computes, that others do, and that it does for its lender; and who
 * computes columns for it.
 */
typedef struct MotAmounts {
    int64_t kept, lent, helped;
    uint32_t helpers;
} MotAmounts;

/* Of a rank and a layer. */
typedef struct MotLendPrice {
    /* copies of ranks that do so, in parts of all of their products of the layer */
    MotLinear cuts, lends, helps;
    /* seconds if the rank lends; helped: by its helper that does most. INFINITY: it can't lend */
    MotLinear travels;
} MotLendPrice;

/* By rank and layer: [n * cuts]. With the shares that the program has. */
void mot_lend_price_find(const MotProgram *program, const MotCost *cost, MotLendPrice *out_price);
double mot_linear_at(const MotLinear *linear, const MotAmounts *amounts);

#endif
