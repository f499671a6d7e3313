/* Another plan for the same graph between two steps of a training. */
#ifndef MOTLEY_JOB_SWITCH_H
#define MOTLEY_JOB_SWITCH_H

#include "job/job.h"

/* Makes the plan in ctx, from job->plan or anew. */
typedef MotStatus MotPlanMaker(MotCtx *ctx, const MotJob *job, void *self, MotPlan **out_plan);

/*
 * Makes a plan, lowers it (kernels come from the cache), starts a rank a device of it, and gives
 * these the parameters and states of those at work, which end then. job->plan, pipeline and session
 * are others afterwards. After a failure they are as before, and so is the training.
 *
 * The session may be halted. If its state is torn, the new one has the parameters of the model
 * file, and the caller loads a checkpoint.
 *
 * Why new ranks, and not the same ones: a rank is a fork of the host, and inherits the Program so.
 * To give a running one another Program would need a text form that can be parsed, to save some 10
 * ms at an event that is rare.
 */
MOT_CHECKED MotStatus mot_job_switch(MotCtx *ctx, MotJob *job, MotPlanMaker *make, void *self);

/*
 * The same plan on other devices: the choices of every operator stay, as they say which factor an
 * axis splits and not in how many parts. For plans whose stages have one axis each, else
 * MOT_ERR_USAGE.
 */

/*
 * Without these ranks; the others keep their shares. MOT_ERR_RANK when a stage would have no device
 * left.
 */
MOT_CHECKED MotStatus mot_job_remove_ranks(MotCtx *ctx, MotJob *job, const bool *is_removed);
/*
 * With a device of the cluster that has no rank, in the stage that was busiest in the last step.
 * Its share is what its speed is worth by the cluster among the shares of the others, which may
 * have been measured.
 */
MOT_CHECKED MotStatus mot_job_add_device(MotCtx *ctx, MotJob *job, uint32_t device);
/* Whether the plan can do that. */
MOT_CHECKED MotStatus mot_job_check_elastic(MotCtx *ctx, const MotJob *job);

#endif
