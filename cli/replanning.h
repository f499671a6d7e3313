/* --balance auto: where other shares can't follow the devices' speed, another plan does, two steps after it was found. */
#ifndef MOTLEY_CLI_REPLANNING_H
#define MOTLEY_CLI_REPLANNING_H

#include "cli/train.h"

/* From now on for the policy `rebalance`; NULL: there is never another plan. */
void mot_replanning_begin(MotTrainer *t, MotRebalance *rebalance);
/* After a decision about shares, step counted from 0: asks the planner where these are done with. */
void mot_replanning_after(MotTrainer *t, int64_t step, const MotDecision *decision);
/* Before a step: switches to the plan that is due. A plan that can't be started costs a warning. */
MOT_CHECKED MotStatus mot_replanning_before(MotTrainer *t);

#endif
