/* The loop of `train`: batches in, losses out, checkpoints, resizes, a clean stop. */
#ifndef MOTLEY_CLI_TRAIN_H
#define MOTLEY_CLI_TRAIN_H

#include "cli/control.h"
#include "cli/progress.h"
#include "job/job.h"
#include "passes/plan/rebalance.h"
#include "passes/plan/zero.h"
#include "runtime/balance.h"
#include "runtime/checkpoint.h"
#include "runtime/cuts.h"
#include "runtime/data.h"
#include "support/writer.h"

#include <stdio.h>

typedef struct MotResize {
    int64_t step; /* before this step */
    uint32_t stage, axis;
    MotShareList shares;
    const uint32_t *devices; /* [shares.n], where the mesh has one axis */
} MotResize;

/* Of --balance auto (cli/replanning.h). */
typedef struct MotReplanning {
    MotRebalance *rebalance;      /* the policy at work; NULL: there is never another plan */
    double unit[MOT_MAX_DEVICES]; /* the speeds that the plan is for */
    int64_t effective;            /* the step before which it comes; -1: there is none */
    int64_t ask_at;           /* the step after which the planner is asked in any case; -1: none */
    double before, predicted; /* seconds a step, and what it saves of them */
} MotReplanning;

typedef struct MotTrainer {
    MotCtx *ctx;
    MotJob *job;
    MotData *data;
    int64_t steps, validate_every, save_every, first_step;
    uint64_t seed;
    const char *out, *lock_path, *log, *data_text;
    MotFileLock *lock;   /* on the folder */
    uint32_t n_vanished; /* steps in a row after which `out` was gone and could not be made again */
    const char *structure; /* of the model, for checkpoints */
    MotResize *resizes;
    uint32_t n_resizes;
    const MotDataField *fields;
    uint32_t n_fields;
    void **batch;                      /* host buffers, one a field for each micro-batch */
    int64_t batch_size, sample_size;   /* samples a step; elements of one in the first field */
    MotDemoTraffic traffic;            /* a step and replica; 0: the optimizer is not demo */
    double step_flops, units_per_step; /* tokens or samples, for the rate */
    const char *unit;
    FILE *talk; /* where the lines for the user go; NULL: nowhere */
    FILE *log_file;
    bool has_lost_log; /* it could not be written */
    MotProgress progress;
    MotControl *control;
    bool is_elastic;  /* goes on without ranks that die */
    bool is_stopping; /* after this step */
    MotPolicy policy; /* of --balance, for the balancer */
    MotBalancer balancer;
    MotReplanning replanning;
    MotCutter *cutter; /* of --balance zero, migrate and semi, with its policy; else NULL */
    MotZero *zero;
    double cut_spent; /* of the accuracy budget, in steps */
    double loss, val_loss;
    int64_t step; /* done, and the number of the next one */
} MotTrainer;

/* Runs the steps. MOT_STOPPED after Ctrl-C: the step was finished and everything saved. */
MOT_CHECKED MotStatus mot_trainer_run(MotTrainer *t);
/* Writes a checkpoint of step t->step. */
MOT_CHECKED MotStatus mot_trainer_save(MotTrainer *t);
/* Fills the host's buffers with what step t->step takes. */
void mot_trainer_prepare(MotTrainer *t);
/*
 * The folder and what stands in it all the time, again if somebody removed it. Not to be called
 * within a scope.
 */
MOT_CHECKED MotStatus mot_trainer_keep_folder(MotTrainer *t);
/*
 * What depends on who the members are, from the job: the lines of progress, the policy of
 * --balance, job.json.
 */
MOT_CHECKED MotStatus mot_trainer_renew(MotTrainer *t);
/* For a line of another kind than a step's. */
void mot_trainer_make_room(MotTrainer *t);

#endif
