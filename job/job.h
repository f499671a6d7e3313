/*
 * A job: the way from a model file to running ranks, in steps that the verbs share. Each step fills
 * its part; the next ones read it.
 */
#ifndef MOTLEY_JOB_JOB_H
#define MOTLEY_JOB_JOB_H

#include "frontend/import.h"
#include "frontend/trained.h"
#include "ir/program.h"
#include "job/args.h"
#include "passes/graph/loss.h"
#include "passes/graph/optimizer.h"
#include "passes/plan/plan.h"
#include "runtime/session.h"

typedef struct MotJob {
    const MotArgs *args;
    const char *model; /* path */
    int64_t stage_ns;  /* when the stage that runs has begun */
    MotOnnxFile *file;
    MotDimBinding *dims; /* --dim, and what stands for it */
    uint32_t n_dims;
    MotInputTensor *inputs; /* --input */
    uint32_t n_inputs;
    MotGraph *graph;
    MotTrained trained;
    MotLoss loss;
    MotOptimizer optimizer;
    uint32_t n_micro; /* --accumulate */
    MotCluster *cluster;
    MotPlan *given; /* the plan of the operand or of --plan, for the graph in its file */
    MotPlan *plan;
    MotPlanStats stats;
    MotPipeline *pipeline;
    MotSession *session;
    MotCtx *placed; /* what holds plan and pipeline after mot_job_switch */
} MotJob;

/* --optimizer where it is not given. */
#define MOT_JOB_OPTIMIZER "adamw:lr=3e-4"

extern const MotOption mot_model_options[], mot_input_options[], mot_loss_options[],
    mot_optimizer_options[], mot_step_options[], mot_device_options[], mot_plan_options[],
    mot_consent_options[], mot_plan_file_options[], mot_rank_options[];

/*
 * Opens operand 0, a model or a plan that names its model, binds --dim and --input, imports,
 * decides what trains.
 */
MOT_CHECKED MotStatus mot_job_import(MotCtx *ctx, const MotArgs *args, MotJob *job);
/*
 * The same with the path given, and with sizes of dims in job->dims for those that --dim does not
 * name.
 */
MOT_CHECKED MotStatus mot_job_import_file(MotCtx *ctx, const MotArgs *args, const char *path,
                                          MotJob *job);
/* The forward pass only: raised and split, as it is trained. */
MOT_CHECKED MotStatus mot_job_prepare_forward(MotCtx *ctx, MotJob *job);
/*
 * The loss of --loss, reverse mode, and with `with_optimizer` the update of --optimizer. A labels
 * file behind the loss (`grad`, `bench`) is read as input "labels" and appended to job->inputs when
 * `labels_are_files`.
 */
MOT_CHECKED MotStatus mot_job_add_training(MotCtx *ctx, MotJob *job, bool with_optimizer,
                                           bool labels_are_files);
/* The cluster of -c, --devices and --threads, as it is written. */
MOT_CHECKED MotStatus mot_job_cluster(MotCtx *ctx, MotJob *job);
/* Cluster, and the plan under --shares and --fix. */
MOT_CHECKED MotStatus mot_job_plan(MotCtx *ctx, MotJob *job);
/*
 * Verifies job->plan. MOT_ERR_INFEASIBLE, too, where devices of one stage have different backends.
 */
MOT_CHECKED MotStatus mot_job_check_plan(MotCtx *ctx, const MotJob *job);
/* What --fix and --accumulate say to the planner. */
MOT_CHECKED MotStatus mot_job_plan_opts(MotCtx *ctx, const MotJob *job, MotPlanOpts *out_opts);
/*
 * Without rates of its own a device has the usual ones of this processor's kind; a modelled one is
 * the same on any.
 */
void mot_job_assume_rates(MotCluster *cluster);
/* The plan, and the programs. */
MOT_CHECKED MotStatus mot_job_place(MotCtx *ctx, MotJob *job);
/* The program of job->plan, with compiled kernels. */
MOT_CHECKED MotStatus mot_job_lower(MotCtx *ctx, MotJob *job);
/* Starts the ranks; parameters are zeros. */
MOT_CHECKED MotStatus mot_job_open(MotCtx *ctx, MotJob *job);
/* Starts the ranks and gives them the parameters of the file and the inputs of --input. */
MOT_CHECKED MotStatus mot_job_start(MotCtx *ctx, MotJob *job);
/*
 * The number of classes that labels may name, of the cross-entropy's logits; INT64_MAX if there is
 * none.
 */
int64_t mot_job_classes(const MotJob *job);
/* Of a training step: 2 FLOP a multiply-accumulate of the forward contractions, times 3. */
double mot_job_step_flops(const MotJob *job);
/*
 * Sets what the update of step `step` of `total`, counted from 1, depends on: the lr and the
 * number.
 */
MOT_CHECKED MotStatus mot_job_begin_step(MotJob *job, int64_t step, int64_t total, double *out_lr);
/* Reads the scalar output `name` of a section. */
MOT_CHECKED MotStatus mot_job_scalar(MotJob *job, const char *name, MotSection section,
                                     double *out_value);

/* Whether the buffer is a parameter of the model, and not a state of the optimizer. */
bool mot_job_is_param(const MotBuf *buf);
/* Writes the model file with the weights that the ranks hold. */
MOT_CHECKED MotStatus mot_job_export(MotCtx *ctx, MotJob *job, const char *path);

#endif
