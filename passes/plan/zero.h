/*
 * How many columns each rank leaves out of which layer (ZERO-resizing, arXiv 2401.11469): a policy
 * (ir/balance.h).
 *
 * Of the last steps' medians, a rank's step uncut is T = O + M: M in the products of layers that
 * may be cut, as if they were whole, O in all else. A rank is a straggler whose T is above the
 * median, clearly for 8 steps or steadily for 30. It is to come down to the target, the mean,
 * median or least T of all ranks:
 *
 *     gamma = min((T - target) / M, most),    cut = gamma K, rounded to blocks of columns
 *
 * K columns, by layer; what rounding leaves over goes to the layers whose columns take longest, as
 * measured. For a device that is chi times slower than the others and has nothing but products,
 * gamma = 1 - 1 / chi.
 *
 * Where layers can be lent, others compute these columns as far as that pays, which costs no
 * accuracy (semi.h); only then cuts are made, at a rate that lets the budget last.
 *
 * Cuts cost accuracy: what is left out, as a part of the products of all layers and steps, is at
 * most the budget; when it is spent nothing is cut any more. A change has to save GAIN of the step;
 * one that saved less than half of what was predicted is undone. Cuts that are no longer needed
 * end. Everything follows from the measurements given, in their order. Time: medians of 30 steps by
 * rank and layer.
 */
#ifndef MOTLEY_PASSES_PLAN_ZERO_H
#define MOTLEY_PASSES_PLAN_ZERO_H

#include "ir/balance.h"
#include "passes/plan/semi.h"

/* To what time of the others a straggler is brought. */
typedef enum MotTarget { MOT_TARGET_MEAN, MOT_TARGET_MEDIAN, MOT_TARGET_MIN } MotTarget;

typedef struct MotZeroOpts {
    MotTarget target;
    double most;   /* of a layer's columns that a rank may leave out, below 1 */
    double budget; /* part of all products of the training that may be left out */
    double spent;  /* of it before the first step, in steps (mot_zero_spent) */
    /*
     * With the shares at hand; NULL: what cutting and lending take is not known, as of plans of
     * several axes.
     */
    const MotProgram *program;
    const MotCost *cost;
    bool lends; /* others compute the columns, as far as that pays: only where that is known */
    double most_away; /* of a layer's columns that are cut and lent together, below 1 */
} MotZeroOpts;

typedef struct MotZero MotZero;

/* For n ranks and these layers, by their part of the layers' products; it lives in ctx's arena. */
MotZero *mot_zero_make(MotCtx *ctx, const double *part, uint32_t n_layers, uint32_t n,
                       const MotZeroOpts *opts);
MotCutPolicy mot_zero_policy(MotZero *zero);
/*
 * What was left out so far, in steps: half of the columns of all layers on all ranks for a step is
 * 0.5.
 */
double mot_zero_spent(const MotZero *zero);

#endif
