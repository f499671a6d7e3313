/* Muon's direction (passes/graph/demo.c, base=muon). */
#ifndef MOTLEY_PASSES_GRAPH_ORTHOGONAL_H
#define MOTLEY_PASSES_GRAPH_ORTHOGONAL_H

#include "ir/builder.h"

/*
 * Of matrices [L, rows, columns], each M about M (M^T M)^(-1/2): the same singular vectors,
 * singular values near 1. 0 stays 0.
 */
MotValue mot_orthogonalize(MotBuilder *b, MotValue matrices);

#endif
