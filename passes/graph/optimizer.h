/* Optimizers as ops of the graph (contract.md, OPT), with PyTorch's semantics. */
#ifndef MOTLEY_PASSES_GRAPH_OPTIMIZER_H
#define MOTLEY_PASSES_GRAPH_OPTIMIZER_H

#include "ir/builder.h"

typedef enum MotDemoBase { MOT_BASE_SIGN, MOT_BASE_SGD, MOT_BASE_ADAMW, MOT_BASE_MUON } MotDemoBase;
typedef enum MotDemoSelect {
    MOT_SELECT_DCT,
    MOT_SELECT_TOP_K,
    MOT_SELECT_RANDOM,
    MOT_SELECT_STRIDING
} MotDemoSelect;

/*
 * DeMo (arXiv 2411.19870; passes/graph/demo.c): replicas that exchange the large coefficients of
 * their momentum only.
 */
typedef struct MotDemo {
    int64_t replicas;     /* 0: another optimizer */
    int64_t k;            /* coefficients sent of a tile, at most */
    int64_t chunk;        /* a tile's length along a dim, at most */
    double decay;         /* of the momentum: delta = decay * delta + lr * g */
    double beta;          /* >= 0: instead of that, m = beta * m + (1 - beta) * g; -1: not given */
    double alpha;         /* how much of what was sent leaves the momentum */
    int64_t wire;         /* MotWireForm (ir/sparse.h) */
    int64_t base, select; /* MotDemoBase, MotDemoSelect */
    int64_t delay;        /* rounds between what is sent and what is applied: 0 or 1 */
    /* gradients are those where each replica's momentum leads (look_ahead.c) */
    int64_t looks_ahead;
} MotDemo;

typedef struct MotOptimizer {
    MotOpKind update; /* MOT_OP_SGD, MOT_OP_MOMENTUM or MOT_OP_ADAM */
    double lr, momentum, beta1, beta2, eps, wd;
    bool decoupled; /* weight decay applies to the parameter, not to the gradient (adamw) */
    double clip;    /* bound on the global norm of the gradients; 0: none */
    bool is_cosine; /* the lr falls to 0 along half a cosine after the warm-up; else it stays */
    int64_t warmup; /* steps over which the lr rises */
    const char **nodecay; /* globs: initializers to which wd does not apply */
    uint32_t n_nodecay;
    MotDemo demo;
} MotOptimizer;

/* What one replica sends in a step, in bytes. */
typedef struct MotDemoTraffic {
    double message; /* DeMo's messages */
    /* the same entries as the paper's code sends them: 64-bit index, 32-bit value */
    double reference;
    double data_parallel; /* all gradients as f32, as data parallelism with AdamW sends them */
} MotDemoTraffic;
/* Of a training graph with messages; all 0 for one without. */
MotDemoTraffic mot_demo_traffic(const MotGraph *graph);

/*
 * The scalar inputs of the training graph, f32: the lr of this step, and the step's number, counted
 * from 1.
 */
#define MOT_INPUT_LR "@lr"
#define MOT_INPUT_STEP "@step"
/* That input, made where no pass before has asked for it. */
MotValue mot_optimizer_scalar(MotBuilder *builder, const char *name);
/* The scalar output with the global norm of the gradients before clipping. */
#define MOT_OUTPUT_GRAD_NORM "grad_norm"

/* Parses `sgd|momentum|adam|adamw[:key=value,…]`; keys that are absent have PyTorch's defaults. */
MOT_CHECKED MotStatus mot_optimizer_parse(MotCtx *ctx, const char *text,
                                          MotOptimizer *out_optimizer);

/*
 * Whether both train alike; how many replicas demo has is no matter: their state can be dealt out
 * anew.
 */
bool mot_optimizer_is_same(const MotOptimizer *a, const MotOptimizer *b);

/* The lr of step `step` of `total`, counted from 1. Computed in double: it is one host scalar. */
double mot_schedule_lr(const MotOptimizer *optimizer, int64_t step, int64_t total);

#endif
