/* Losses that are attached to a model which has none (contract.md, LOSS). */
#ifndef MOTLEY_PASSES_GRAPH_LOSS_H
#define MOTLEY_PASSES_GRAPH_LOSS_H

#include "ir/graph.h"

enum { MOT_LOSS_FIND_AXIS = -1000 };

typedef struct MotLoss {
    const struct MotLossForm *form; /* a row of the table in loss.c */
    /* the graph value that the loss is made of: logits, output, or the loss itself */
    const char *value;
    const char *source; /* what stood behind it: LABELS or TARGET; NULL for the form `output` */
    /* the graph input for the labels or target, made if there is none; `source` at first */
    const char *input;
    MotType input_type; /* of that input if it is made; no dtype: the type that fits `value` */
    int64_t ignore;     /* label whose rows do not count; -100 at first, as in PyTorch */
    double smoothing;
    /* of the classes, from the end if negative; MOT_LOSS_FIND_AXIS: the one that the labels lack */
    int64_t axis;
} MotLoss;

/*
 * Parses `cross_entropy:LOGITS:LABELS`, `mse:OUTPUT:TARGET`, `bce:OUTPUT:TARGET` or `output:NAME`,
 * each with options after commas. The value is the longest prefix that names one of `g`: names may
 * hold `:`, `,` and `=`.
 */
MOT_CHECKED MotStatus mot_loss_parse(MotCtx *ctx, const MotGraph *g, const char *text,
                                     MotLoss *out_loss);
/*
 * Whether the text spells this loss, as it was parsed: options in another order, defaults given or
 * left out.
 */
bool mot_loss_is_spelled(MotCtx *ctx, const MotLoss *loss, const char *text);

#endif
