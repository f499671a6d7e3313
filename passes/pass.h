/*
 * What a pass is: one function over a graph, exported by its file as one const MotPass.
 * passes/pipeline.c alone decides the order. Passes tell each other things only through the graph:
 * `output {name="loss"}` is the loss, `gradient` binds a parameter to its gradient, `assign` to its
 * new value.
 */
#ifndef MOTLEY_PASSES_PASS_H
#define MOTLEY_PASSES_PASS_H

#include "ir/graph.h"

/*
 * --tie A=B: initializer `second` is trained as one with `first`, of which it is a copy, or the
 * transpose (rank 2).
 */
typedef struct MotTie {
    const char *first, *second;
    bool is_transposed;
} MotTie;

/* What the passes of one compilation need beside the graph. A pass whose part is missing fails. */
typedef struct MotPassOpts {
    const MotTie *ties; /* tie */
    uint32_t n_ties;
    const struct MotLoss *loss; /* loss (passes/graph/loss.h) */
    /* look-ahead, demo, clip, optimizer (passes/graph/optimizer.h) */
    const struct MotOptimizer *optimizer;
    bool accumulates; /* loss, autodiff: sums over a batch go on over the micro-batches of a step */
} MotPassOpts;

typedef struct MotPass {
    const char *name;
    const char *summary; /* one line, for `motley help passes` */
    /* May leave dead ops only if it sets *out_changed; the runner compacts then. */
    MotStatus (*run)(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed);
    /*
     * Holds in any graph: the runner applies it to the regions too, innermost first. Others see an
     * op with a region as a whole.
     */
    bool for_regions;
} MotPass;

extern const MotPass mot_pass_tie, mot_pass_simplify, mot_pass_split_dims, mot_pass_raise,
    mot_pass_unpack, mot_pass_loss, mot_pass_look_ahead, mot_pass_autodiff, mot_pass_pair,
    mot_pass_demo, mot_pass_clip, mot_pass_optimizer, mot_pass_expand;

#endif
