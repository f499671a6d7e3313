/* Runs passes over a graph, with the debugging switches of the context between them. */
#ifndef MOTLEY_PASSES_PIPELINE_H
#define MOTLEY_PASSES_PIPELINE_H

#include "passes/pass.h"

/* NULL if there is no pass of that name. */
const MotPass *mot_pass_find(const char *name);
/* The passes in pipeline order. */
const MotPass *const *mot_passes_list(uint32_t *out_n);

/*
 * Runs the pipeline from pass `first` to pass `last`, both included; NULL is the beginning, or the
 * end. Returns MOT_STOPPED after the pass that MOTLEY_STOP names. Value ids held by the caller are
 * stale afterwards.
 */
MOT_CHECKED MotStatus mot_passes_run(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts,
                                     const char *first, const char *last);
/* Runs the passes of a comma-separated list, in its order (`motley opt --passes=a,b,c`). */
MOT_CHECKED MotStatus mot_passes_run_list(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts,
                                          const char *list);

/* Whether MOTLEY_DUMP asks for what this pass leaves; `lower` is the way from Plan to Program. */
bool mot_passes_dump(const MotCtx *ctx, const char *name);

#endif
