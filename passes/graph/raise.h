/* The rule tables of raise, one file each. */
#ifndef MOTLEY_PASSES_GRAPH_RAISE_H
#define MOTLEY_PASSES_GRAPH_RAISE_H

#include "passes/graph/rewrite.h"

/* Softmax, GELU, layer norm. */
extern const MotRules mot_rules_raise_layers;
/* Cross-entropy from log-softmax and a pick of the label. */
extern const MotRules mot_rules_raise_loss;
/* softmax(scale q k^T + mask) v, and scalars taken out of contractions on the way. */
extern const MotRules mot_rules_raise_attention;

/* Whether op is a reduction of its operand's one dim `axis` that keeps it. */
bool mot_raise_reduces_axis(const MotOp *op, int64_t *out_axis);

#endif
