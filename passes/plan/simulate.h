/*
 * A step of a Program, walked by all ranks at once: when each of them is done, under any shares and
 * at any speeds. As the run time does it (runtime/rank.c): a kernel takes what it does (ir/count.h)
 * at the device's rates; a collective is issued at its place, begins when the last rank has come
 * and the one before it is done, and is waited for where its result is needed. Under a modelled
 * clock a step takes exactly that.
 *
 * Of one stage and one axis. Other shares bind all ranks anew (milliseconds); a walk at other
 * speeds is linear in instructions and ranks.
 */
#ifndef MOTLEY_PASSES_PLAN_SIMULATE_H
#define MOTLEY_PASSES_PLAN_SIMULATE_H

#include "ir/program.h"
#include "passes/plan/cost.h"

typedef struct MotSimulation MotSimulation;

/*
 * How many times as long as by the rates a rank takes; or seconds: for work whose size follows the
 * shares, and all other.
 */
typedef struct MotPace {
    double resizable, other;
} MotPace;

/* It lives in ctx's arena; the program and `cost`, the plan's, are borrowed. */
MotSimulation *mot_simulation_make(MotCtx *ctx, const MotProgram *program, const MotCost *cost);
/*
 * Seconds of a step under shares [n], ranks at paces [n]; out_busy [n], if given: of it each rank's
 * work.
 */
double mot_simulation_run(MotSimulation *s, const int64_t *share, const MotPace *pace,
                          MotPace *out_busy);

#endif
