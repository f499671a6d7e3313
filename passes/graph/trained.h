/* Which initializers train, and why. */
#ifndef MOTLEY_PASSES_GRAPH_TRAINED_H
#define MOTLEY_PASSES_GRAPH_TRAINED_H

#include "passes/pass.h"

typedef struct MotTrainedParam {
    MotValue param;
    bool is_trained;
    const char *reason; /* "contraction weight", "constant added before a softmax", … */
} MotTrainedParam;

/* One entry a parameter in the order of the body, optimizer state left out; owned by ctx's arena. */
MotTrainedParam *mot_trained_classify(MotCtx *ctx, const MotGraph *g, const MotPassOpts *opts, uint32_t *out_n);

#endif
