/*
 * Shares that follow the devices' speed while a training runs: a policy (ir/balance.h) for plans of
 * one stage and one mesh axis.
 *
 * A rank's step is modelled as unit * work(shares) + other: `work` is the part of the split work
 * that integer shares give it (split_work.h). From the medians of the last steps follow the shares
 * of the least step: of dims that are dealt out in other units the slowest rank is another one, and
 * there ranks meet. What they save is what the Program's step takes less under them, walked at the
 * speeds measured (simulate.h). They are worth a move if they save GAIN of the step, clearly more
 * than the noise of the measurements, and over the steps that the present speeds may be expected to
 * last (as long as those before them did) more than a move has cost so far. Communicating and
 * waiting are no part of a speed: a slow link is reported, and who waits for a slow neighbour is
 * not slow.
 *
 * Where a rank is behind and dims of few units leave no shares that save enough, that is said once:
 * another plan may help.
 *
 * Hysteresis: nothing moves while a speed is still changing; at most two moves for one change of
 * speeds; a speed that comes back soon after a move oscillates, and then the next move has to wait;
 * a move that saved less than half of what was predicted is undone, after as many steps as it takes
 * to tell that from noise. A rank without a share has no speed: its last one ages towards the
 * others' median, so that it is tried again in the end, and if that is undone after twice the time;
 * one that never had a share gets none.
 *
 * Everything follows from the measurements given, in their order: no clock, no chance. Time:
 * medians of 40 values a rank a step; integer shares are searched for only when a rank is behind,
 * and the Program bound to those found.
 */
#ifndef MOTLEY_PASSES_PLAN_REBALANCE_H
#define MOTLEY_PASSES_PLAN_REBALANCE_H

#include "ir/balance.h"
#include "passes/plan/simulate.h"
#include "passes/plan/split_work.h"

typedef struct MotRebalance MotRebalance;

/*
 * A policy for n ranks, with no measurements yet; it lives in ctx's arena. `simulation`: of the
 * Program at work; NULL: by `work` alone.
 */
MotRebalance *mot_rebalance_make(MotCtx *ctx, const MotSplitWork *work, MotSimulation *simulation,
                                 uint32_t n);
void mot_rebalance_decide(MotRebalance *b, const MotStepTimes *times, MotDecision *out);
/*
 * The ranks' last speeds: seconds for all of the split work, NaN of one that never had a share.
 * Returns what a step takes.
 */
double mot_rebalance_speeds(const MotRebalance *b, double *out_unit);
/*
 * A change that was made elsewhere, such as another plan, from this step on: it is measured like a
 * move, and never undone.
 */
void mot_rebalance_watch(MotRebalance *b, int64_t effective, double before, double predicted);
/* The same as a policy. */
MotPolicy mot_rebalance_policy(MotRebalance *b);

#endif
