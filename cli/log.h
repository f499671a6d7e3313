/* The log of `train`: a JSON line a step. */
#ifndef MOTLEY_CLI_LOG_H
#define MOTLEY_CLI_LOG_H

#include "support/context.h"

#include <stdio.h>

/*
 * Opens the log to go on after step `first_step`: what an earlier run wrote beyond it, and a line
 * that was cut off, is removed. 0 begins a new log. Fails with MOT_ERR_IO.
 */
MOT_CHECKED MotStatus mot_log_open(MotCtx *ctx, const char *path, int64_t first_step,
                                   FILE **out_log);

#endif
