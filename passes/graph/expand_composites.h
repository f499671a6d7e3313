/* Replaces composites by their expansions. */
#ifndef MOTLEY_PASSES_GRAPH_EXPAND_COMPOSITES_H
#define MOTLEY_PASSES_GRAPH_EXPAND_COMPOSITES_H

#include "ir/graph.h"

/*
 * Expands the composites that `is_expanded` picks (asked for ops of expansions too) and compacts
 * the graph if there were any. Expanded ops keep role, forward op and origin; results keep their
 * names. Value ids are stale if *out_changed.
 */
MOT_CHECKED MotStatus mot_expand_composites(MotGraph *g,
                                            bool (*is_expanded)(const void *self, const MotOp *op),
                                            const void *self, bool *out_changed);

#endif
