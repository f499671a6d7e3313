/* What several graph passes do to a graph: find sources and sinks, take ops out of the body. */
#ifndef MOTLEY_PASSES_GRAPH_EDIT_H
#define MOTLEY_PASSES_GRAPH_EDIT_H

#include "ir/graph.h"

/* The input, or parameter, of that name; 0 if there is none. */
MotValue mot_edit_find_input(const MotGraph *g, const char *name);
MotValue mot_edit_find_param(const MotGraph *g, const char *name);
/* What the output of that name shows; 0 if there is none. */
MotValue mot_edit_find_output(const MotGraph *g, const char *name);

/* Takes an op, or all ops of a kind, out of the body. Its results must have no users left. */
void mot_edit_drop(MotGraph *g, MotOpId id);
void mot_edit_drop_kind(MotGraph *g, MotOpKind kind);

/*
 * The ops from place `first` of the body on go before the one at place `to`; compaction puts before
 * them what they need.
 */
void mot_edit_bring_forward(MotGraph *g, uint32_t first, uint32_t to);

#endif
