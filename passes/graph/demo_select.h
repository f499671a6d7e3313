/*
 * Which coefficients DeMo's replicas send where they agree on it without a word
 * (passes/graph/demo.c).
 */
#ifndef MOTLEY_PASSES_GRAPH_DEMO_SELECT_H
#define MOTLEY_PASSES_GRAPH_DEMO_SELECT_H

#include "ir/builder.h"
#include "passes/graph/optimizer.h"

/*
 * The k of n positions that every tile of this parameter sends in a round, i32[k], ascending; 0
 * where each tile chooses its own. `round` is an i64 scalar. MOT_SELECT_STRIDING: the row is cut
 * into k cells of n / k, the place in the cell goes on by one a round. MOT_SELECT_RANDOM: those
 * with the k largest of n pseudo-random numbers, a function of (round, name, position) alone.
 */
MotValue mot_demo_positions(MotBuilder *b, MotDemoSelect select, MotValue round, const char *name,
                            int64_t n, int64_t k);

#endif
