/*
 * --balance auto: where other shares can't follow the devices' speed, another plan does, two steps
 * after it was found.
 */
#ifndef MOTLEY_CLI_REPLANNING_H
#define MOTLEY_CLI_REPLANNING_H

#include "cli/train.h"

/* From now on for the policy `rebalance`; NULL: there is never another plan. */
void mot_replanning_begin(MotTrainer *t, MotRebalance *rebalance);
/*
 * Other devices than the plan was made for take part: the planner is asked when some of their steps
 * have been measured.
 */
void mot_replanning_ask(MotTrainer *t);
/* After the policy's decision, step counted from 0: asks the planner where shares are done with. */
void mot_replanning_after(MotTrainer *t, int64_t step, const MotDecision *decision);
/* Before a step: switches to the plan that is due. A plan that can't be started costs a warning. */
MOT_CHECKED MotStatus mot_replanning_before(MotTrainer *t);

#endif
