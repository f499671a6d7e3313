/* Whether what the ranks need fits into this machine. */
#ifndef MOTLEY_RUNTIME_FIT_H
#define MOTLEY_RUNTIME_FIT_H

#include "ir/program.h"

/*
 * The ranks' arenas under the shares that the programs have, against `machine_bytes`. Fails with
 * MOT_ERR_INFEASIBLE and names the largest buffers: a rank whose pages the system can't give is
 * killed in the middle of a step, without a word.
 */
MOT_CHECKED MotStatus mot_fit_check(MotCtx *ctx, const MotPipeline *pipeline, double machine_bytes);
/* Memory and swap of this machine; INFINITY where the system does not tell. */
double mot_fit_machine_bytes(void);

#endif
