/*
 * Which initializers train, and which look like one (contract.md).
 *
 * Decided on the imported graph from what an initializer does: weight of a product, table of a
 * lookup, scale or bias. Not everything that is float is a parameter: exporters store masks, rotary
 * tables and statistics the same way.
 */
#ifndef MOTLEY_FRONTEND_TRAINED_H
#define MOTLEY_FRONTEND_TRAINED_H

#include "frontend/onnx_file.h"
#include "ir/graph.h"

typedef struct MotTrainOpts {
    const char *const *train,
        *const *freeze; /* globs over initializer names that overrule the decision */
    uint32_t n_train, n_freeze;
} MotTrainOpts;

typedef struct MotTrainedRow {
    const char *name;
    MotType type; /* in the file */
    bool is_trained;
    const char *reason;     /* `weight of contract, node "/h.0/attn/MatMul"` */
    const char *looks_tied; /* an earlier one that trains and has equal values, or NULL */
    bool is_transposed;     /* equal after swapping the dims */
} MotTrainedRow;

typedef struct MotTrained {
    MotTrainedRow *rows; /* one a param op, in the order of the graph */
    uint32_t n;
} MotTrained;

/*
 * Sets `trained` of every param op. Fails with MOT_ERR_USAGE on a glob that matches no param and on
 * a param that both lists match. Linear in the graph.
 */
MOT_CHECKED MotStatus mot_trained_decide(MotCtx *ctx, MotGraph *g, const MotTrainOpts *opts,
                                         MotTrained *out_trained);
/*
 * Fills looks_tied by comparing the values in the file of what trains: tensors of two dims and two
 * values at least.
 */
MOT_CHECKED MotStatus mot_trained_find_ties(MotCtx *ctx, const MotOnnxFile *file,
                                            MotTrained *trained);
/*
 * Makes a constant with the file's values of every param that does not train, so that passes may
 * compute with it.
 */
MOT_CHECKED MotStatus mot_trained_freeze(MotCtx *ctx, MotGraph *g, const MotOnnxFile *file);

#endif
