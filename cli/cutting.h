/*
 * --balance zero, migrate and semi of `train`: ranks that leave columns out (ZERO-resizing), which
 * --allow cuts consents to, or have others compute them.
 */
#ifndef MOTLEY_CLI_CUTTING_H
#define MOTLEY_CLI_CUTTING_H

#include "cli/train.h"

extern const MotOption mot_cutting_options[];

/*
 * Sets the trainer's cutter. Fails with MOT_ERR_USAGE, also where no layer of the plan can be cut.
 */
MOT_CHECKED MotStatus mot_cutting_begin(MotTrainer *t);
/*
 * The same for --balance migrate: they have others compute the columns, which costs no accuracy;
 * and for semi: both.
 */
MOT_CHECKED MotStatus mot_lending_begin(MotTrainer *t);
MOT_CHECKED MotStatus mot_semi_begin(MotTrainer *t);
/* Fails with MOT_ERR_USAGE if the command line has options of cuts: for other modes. */
MOT_CHECKED MotStatus mot_cutting_refuse(MotTrainer *t);
/*
 * Before and after a step, counted from 0; nothing without a cutter. The log gets a record if there
 * is something to say.
 */
MOT_CHECKED MotStatus mot_cutting_before(MotTrainer *t, int64_t step);
void mot_cutting_after(MotTrainer *t, int64_t step, FILE *log);

#endif
