/* --balance of `train`: the policy that the run time asks, and what is said of its decisions. */
#ifndef MOTLEY_CLI_BALANCE_H
#define MOTLEY_CLI_BALANCE_H

#include "cli/train.h"
#include "support/json.h"

/* Sets the trainer's balancer by --balance. Fails with MOT_ERR_USAGE. */
MOT_CHECKED MotStatus mot_balance_begin(MotTrainer *t);
/* Before and after a step, counted from 0; each logs a record if there is something to say. */
MOT_CHECKED MotStatus mot_balance_before(MotTrainer *t, int64_t step, FILE *log);
void mot_balance_after(MotTrainer *t, int64_t step, FILE *log);

/* A record of the log of what was decided after a step, to be filled; and written. */
MotJsonWriter mot_balance_record(MotTrainer *t, int64_t step, const char *action);
void mot_balance_write(FILE *log, MotJsonWriter *w);
/* The same for the user, in a line. */
void mot_balance_tell(MotTrainer *t, int64_t step, const char *what);

#endif
