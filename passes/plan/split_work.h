/*
 * The work of a plan that shares deal out: how much of it a rank has under integer shares. In units
 * of all of it, on a device with the rates of the plan's first: what an operator does whole (it
 * reads all of an operand that is not split) counts for every rank that has a part, and its launch
 * for every rank.
 *
 * Dims are dealt out in few units (heads, samples) or many; operators that are alike are counted
 * together.
 */
#ifndef MOTLEY_PASSES_PLAN_SPLIT_WORK_H
#define MOTLEY_PASSES_PLAN_SPLIT_WORK_H

#include "ir/balance.h"
#include "passes/plan/cost.h"

/*
 * Operators alike: their factor has so many units, and each takes these seconds; `weight` of them.
 */
typedef struct MotSplitOps {
    int64_t units;
    MotSeconds seconds;
    double weight;
} MotSplitOps;

enum { MOT_SPLIT_GRID = 256 };
typedef struct MotSplitWork {
    MotVec(MotSplitOps) ops;       /* ascending in units */
    double alone[MOT_MAX_DEVICES]; /* seconds of all of it on each rank, by the rates */
    double idle;                   /* work of no part: the launches */
    double at[MOT_SPLIT_GRID + 1]; /* work of a part k / MOT_SPLIT_GRID, were all units fine */
} MotSplitWork;

/*
 * The split work of a plan of one stage and one axis; of a plan that splits nothing there is none.
 * Fails with MOT_ERR_USAGE for other plans.
 */
MOT_CHECKED MotStatus mot_split_work_find(MotCtx *ctx, const MotPlan *plan, MotSplitWork *out_work);
/* Adds an operator; after the last, mot_split_work_finish makes their sum 1. */
void mot_split_work_add(MotCtx *ctx, MotSplitWork *work, int64_t units, MotSeconds seconds);
void mot_split_work_finish(MotSplitWork *work);

/* What shares give each of n ranks. */
void mot_split_work_deal(const MotSplitWork *work, const int64_t *share, uint32_t n,
                         double *out_work);
/*
 * Of it, what the operators with as many units as ops[first] are; returns the first with others, or
 * ops.n.
 */
uint32_t mot_split_work_deal_units(const MotSplitWork *work, uint32_t first, const int64_t *share,
                                   uint32_t n, double *out_work);
/* The largest part, of 1, that makes no more than this work. */
double mot_split_work_part(const MotSplitWork *work, double amount);

#endif
