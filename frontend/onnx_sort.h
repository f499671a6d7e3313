/* Topological order of numbered things: nodes by the values they use, functions by their calls. */
#ifndef MOTLEY_FRONTEND_ONNX_SORT_H
#define MOTLEY_FRONTEND_ONNX_SORT_H

#include "support/arena.h"
#include "support/vector.h"

#include <stdbool.h>

/* `user` comes after `used`. */
typedef struct MotEdge {
    uint32_t used, user;
} MotEdge;

typedef MotVec(MotEdge) MotEdges;

/* The same edges by user: those of item i are used[first[i]] up to used[first[i + 1]]. */
typedef struct MotUses {
    uint32_t *first, *used;
} MotUses;

typedef struct MotCycle {
    const uint32_t *items; /* each uses the next, the last the first */
    uint32_t n;
} MotCycle;

MotUses mot_onnx_group_edges(MotArena *arena, uint32_t n, const MotEdges *edges);

/*
 * Fills out_order with 0..n-1 so that every edge is kept; items that need not move keep their
 * order, and a sorted input gives the identity. Returns false, with *out_cycle in the arena, if
 * that is impossible. Linear; does not recurse.
 */
bool mot_onnx_sort(MotArena *arena, uint32_t n, MotUses uses, uint32_t *out_order,
                   MotCycle *out_cycle);

#endif
