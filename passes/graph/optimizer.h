/* Optimizers as ops of the graph (contract.md, OPT), with PyTorch's semantics. */
#ifndef MOTLEY_PASSES_GRAPH_OPTIMIZER_H
#define MOTLEY_PASSES_GRAPH_OPTIMIZER_H

#include "ir/graph.h"

typedef struct MotOptimizer {
    MotOpKind update; /* MOT_OP_SGD, MOT_OP_MOMENTUM or MOT_OP_ADAM */
    double lr, momentum, beta1, beta2, eps, wd;
    bool decoupled; /* weight decay applies to the parameter, not to the gradient (adamw) */
    double clip;    /* bound on the global norm of the gradients; 0: none */
    bool is_cosine; /* the lr falls to 0 along half a cosine after the warm-up; else it stays */
    int64_t warmup; /* steps over which the lr rises */
    const char **nodecay; /* globs: initializers to which wd does not apply */
    uint32_t n_nodecay;
} MotOptimizer;

/* The scalar inputs of the training graph, f32: the lr of this step, and the step's number, counted from 1. */
#define MOT_INPUT_LR "@lr"
#define MOT_INPUT_STEP "@step"
/* The scalar output with the global norm of the gradients before clipping. */
#define MOT_OUTPUT_GRAD_NORM "grad_norm"

/* Parses `sgd|momentum|adam|adamw[:key=value,…]`; keys that are absent have PyTorch's defaults. */
MOT_CHECKED MotStatus mot_optimizer_parse(MotCtx *ctx, const char *text,
                                          MotOptimizer *out_optimizer);

/* The lr of step `step` of `total`, counted from 1. Computed in double: it is one host scalar. */
double mot_schedule_lr(const MotOptimizer *optimizer, int64_t step, int64_t total);

#endif
