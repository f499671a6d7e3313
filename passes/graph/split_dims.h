/*
 * split-dims in two halves: which dims are split into which atoms (split_dims.c), and the graph
 * anew in atoms.
 */
#ifndef MOTLEY_PASSES_GRAPH_SPLIT_DIMS_H
#define MOTLEY_PASSES_GRAPH_SPLIT_DIMS_H

#include "ir/builder.h"

/* What one dim becomes, outermost first; their product is its size. */
typedef struct MotAtoms {
    uint32_t n;
    int64_t size[MOT_MAX_RANK];
} MotAtoms;

/* The atoms of dim d of value v are atoms[first[v] + d]. */
typedef struct MotSplit {
    const MotGraph *g;
    uint32_t *first;
    MotAtoms *atoms;
    bool is_split; /* whether any dim has more than one */
} MotSplit;

static inline const MotAtoms *mot_split_atoms(const MotSplit *split, MotValue v, int dim)
{
    return &split->atoms[split->first[v] + (uint32_t)dim];
}

/*
 * Replaces the graph by the same function over atoms. Inputs and outputs keep their shapes,
 * parameters their file layout.
 */
MOT_CHECKED MotStatus mot_split_apply(MotGraph *g, const MotSplit *split);

#endif
