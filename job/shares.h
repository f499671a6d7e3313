/* --shares and --resize: which axis of the plan's meshes a list of shares is for. */
#ifndef MOTLEY_JOB_SHARES_H
#define MOTLEY_JOB_SHARES_H

#include "ir/plan.h"
#include "job/args.h"

/*
 * The mesh and axis of the list: the one that it names, or the only one there is, with as many
 * devices as it has shares. Else MOT_ERR_USAGE, with the axes; `option` is for the message.
 */
MOT_CHECKED MotStatus mot_shares_find_axis(MotCtx *ctx, const MotPlan *plan,
                                           const MotShareList *list, const char *option,
                                           uint32_t *out_stage, uint32_t *out_axis);
/* Gives the plan's axes the shares of --shares, each list on its axis. */
MOT_CHECKED MotStatus mot_shares_set(MotCtx *ctx, const MotArgs *args, MotPlan *plan);

#endif
