/* Plans as files: what `plan -o` writes, and what the verbs do that are given one. */
#ifndef MOTLEY_JOB_PLAN_FILE_H
#define MOTLEY_JOB_PLAN_FILE_H

#include "job/job.h"

/* Whether the file begins as a plan does. */
bool mot_plan_file_is(const char *path);
/* MOT_ERR_MODEL also for an option in it that does not say what its graph was made from. */
MOT_CHECKED MotStatus mot_plan_file_read(MotCtx *ctx, const char *path, MotPlan **out_plan);
/* Writes job->plan, with what its graph was made from. */
MOT_CHECKED MotStatus mot_plan_file_write(MotCtx *ctx, const MotJob *job, const char *path);
/*
 * Makes job->plan of job->given and the job's graph, under --shares. MOT_ERR_MISMATCH if model,
 * devices or options do not go with it.
 */
MOT_CHECKED MotStatus mot_plan_file_apply(MotCtx *ctx, MotJob *job);

#endif
