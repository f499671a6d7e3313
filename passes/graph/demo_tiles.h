/* How DeMo cuts a tensor into tiles and transforms them (passes/graph/demo.c). */
#ifndef MOTLEY_PASSES_GRAPH_DEMO_TILES_H
#define MOTLEY_PASSES_GRAPH_DEMO_TILES_H

#include "ir/builder.h"

/* The tensor as [outer, a, h, c, w]: a rows and c columns of tiles of h x w. */
typedef struct MotTiling {
    int64_t outer, a, h, c, w;
    /* coefficients are those of the tile's orthonormal DCT-II, else the elements themselves */
    bool is_dct;
} MotTiling;

/*
 * Of an initializer's tensor in its file. A tile spans the last two dims, dims before them number
 * tiles; one dim: a line; no dim: one element. Along each dim a tile is as long as the largest
 * divisor up to `most`: a prime above it gives 1.
 */
MotTiling mot_tiling_make(const MotType *file, int64_t most, bool is_dct);
int64_t mot_tiling_count(const MotTiling *t);
int64_t mot_tiling_elements(const MotTiling *t);

/*
 * [(R,) outer, a, h, c, w] -> [(R,) tiles, h * w]: the coefficients of each tile, row by row; and
 * back.
 */
MotValue mot_tiling_encode(MotBuilder *b, MotValue x, const MotTiling *t);
MotValue mot_tiling_decode(MotBuilder *b, MotValue coefficients, const MotTiling *t);

/* A parameter's value by replica, [R, dims], as [R, outer, a, h, c, w] of the file's tensor. */
MotValue mot_tiling_cut(MotBuilder *b, MotValue by_replica, const MotAttr_param *param,
                        const MotTiling *t);
/* Of the file's tensor in any shape, the parameter's value, of type `value`. */
MotValue mot_tiling_join(MotBuilder *b, MotValue x, const MotType *value,
                         const MotAttr_param *param);
/* The same with dim 0 of both the replicas: [R, ..] as [R, dims of the value]. */
MotValue mot_tiling_join_replicas(MotBuilder *b, MotValue x, const MotType *value,
                                  const MotAttr_param *param);

/*
 * The momentum of a parameter, state [R, outer, a, h, c, w], zero at start; made where it is not
 * there yet. `file`: the tensor in the file.
 */
MotValue mot_tiling_momentum(MotBuilder *b, int64_t replicas, const MotAttr_param *param,
                             const MotType *file, const MotTiling *t);

#endif
