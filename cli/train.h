/* The loop of `train`: batches in, losses out, checkpoints, resizes, a clean stop. */
#ifndef MOTLEY_CLI_TRAIN_H
#define MOTLEY_CLI_TRAIN_H

#include "cli/job.h"
#include "runtime/checkpoint.h"
#include "runtime/data.h"

typedef struct MotResize {
    int64_t step; /* before this step */
    MotShareList shares;
} MotResize;

typedef struct MotTrainer {
    MotCtx *ctx;
    MotJob *job;
    MotData *data;
    int64_t steps, validate_every, save_every, first_step;
    uint64_t seed;
    const char *out, *data_text;
    MotResize *resizes;
    uint32_t n_resizes;
    const MotDataField *fields;
    uint32_t n_fields;
    void **batch;          /* host buffers, one a field */
    double units_per_step; /* tokens or samples, for the rate */
    const char *unit;
    bool is_quiet;
} MotTrainer;

/* Runs the steps. MOT_STOPPED after Ctrl-C: the step was finished and everything saved. */
MOT_CHECKED MotStatus mot_trainer_run(MotTrainer *t);
/* Mean loss over the validation batches; 0 batches: NaN. */
MOT_CHECKED MotStatus mot_trainer_validate(MotTrainer *t, double *out_loss);

#endif
