/*
 * Kernel IR: what the printers (LLVM IR, CUDA C) print. A launch of a Program, a small graph,
 * becomes a list of nests that run one after the other; a nest is one of few shapes over buffers:
 * the operands of the launch, then its results.
 *
 * A nest has loops and a scalar DAG. Loops [0, n_kept) are parallel, the others reduce. A node's
 * value is that of one point of the loops. Copies need no shape of their own: slice, transpose,
 * broadcast, pad, concat and gather are access maps of loads.
 *
 *   shape           loops                          nodes
 *   POINTWISE       kept: the results' dims        stores of every point
 *   ROW             kept: rows; reduced: columns   map-reduce-map: REDUCE nodes go through the
 *                                                  reduced loops, phase by phase; stores of
 *                                                  every point or of every row. Lanes: the
 *                                                  last reduced loop.
 *   COLUMN          the same; lanes: the last kept loop, so that reducing needs no horizontal step
 *   CONTRACT        kept: matrices of a batch; reduced: matrices summed into one; `contract` says
 *                   the GEMM
 *   SCATTER         kept: dims before the axis, then dims after it; reduced: index dims; `scatter`
 *   ROWS            kept: rows; `rows`: a service is called for each
 *   ATTENTION(_GRAD) none; `attention`
 *
 * A result may lie over an operand of which every load has the access of its store: loads of a
 * point come before its stores, and what is stored at a point is not loaded at another.
 *
 * Sizes that a share reaches are run-time numbers: an extent is a constant times program dims. Any
 * extent may be 0.
 */
#ifndef MOTLEY_CODEGEN_KERNEL_H
#define MOTLEY_CODEGEN_KERNEL_H

#include "ir/graph.h"

enum { MOT_MAX_LOOPS = 2 * MOT_MAX_RANK, MOT_MAX_NESTS = 8 };

/* factor * dims[dim[0]] * ... * dims[dim[n - 1]], dim ascending; factor 0 has n = 0. */
typedef struct MotExtent {
    int64_t factor;
    uint32_t n;
    uint16_t dim[MOT_MAX_RANK];
} MotExtent;

MotExtent mot_extent_make(int64_t dim); /* a dim of a type: a size, or -index - 1 */
MotExtent mot_extent_mul(MotExtent a, MotExtent b);
bool mot_extent_equal(MotExtent a, MotExtent b);
bool mot_extent_is(MotExtent a, int64_t constant);

typedef uint32_t MotNode; /* index into a nest's nodes; 0 is none */

/*
 * Element address in a buffer: sum of stride[l] * loop l, of offset terms, and of the values of
 * index nodes times a stride.
 */
typedef struct MotAccess {
    uint32_t buf; /* operands of the launch, then results */
    MotDtype dtype;
    MotExtent stride[MOT_MAX_LOOPS];
    MotExtent offset[MOT_MAX_RANK];
    uint32_t n_offsets;
    MotNode index[MOT_MAX_RANK]; /* i64 */
    MotExtent index_stride[MOT_MAX_RANK];
    uint32_t n_indices;
} MotAccess;

typedef enum MotNodeKind {
    MOT_NODE_NONE,
    /* access; where arg[0] (a bool, may be none) is false nothing is read and the value is 0 */
    MOT_NODE_LOAD,
    MOT_NODE_CONST, /* value */
    MOT_NODE_INDEX, /* start + step * loop, or start + step * arg[0] when there is an arg; i64 */
    MOT_NODE_SIZE,  /* extent; i64 */
    /*
     * whether arg[0] (i64) is in [0, arg[1]); one that isn't is reported as a fault in the data;
     * bool
     */
    MOT_NODE_CHECK,
    MOT_NODE_OP,     /* op, a pointwise row or CAST, on arg */
    MOT_NODE_REDUCE, /* op REDUCE_SUM or REDUCE_MAX of arg[0] over all reduced loops */
} MotNodeKind;

typedef struct MotNodeInfo {
    MotNodeKind kind;
    MotDtype dtype;
    MotOpKind op;
    MotNode arg[3]; /* CHECK: arg[2] is a bool or none; where false nothing is checked */
    double value;
    int64_t start, step;
    int loop; /* INDEX: -1 with an arg */
    MotExtent extent;
    MotAccess *access;
    /*
     * REDUCE: bit l: runs over loop l, as numbered while building; all reduced loops, as is checked
     */
    uint32_t over;
    /* Derived when the nest is complete: */
    uint32_t loops; /* bit l: the value varies along loop l */
    uint32_t phase; /* REDUCEs that must be complete before: its place in the chain of reductions */
    /* computed once, kept in a row of scratch for later phases: too dear to compute again */
    bool is_saved;
} MotNodeInfo;

/*
 * The phase from which on the node's value can be had: that of a REDUCE is known once its own loops
 * are over.
 */
static inline uint32_t mot_node_ready(const MotNodeInfo *node)
{
    return node->phase + (node->kind == MOT_NODE_REDUCE);
}

typedef struct MotStore {
    MotAccess access;
    MotNode value;
} MotStore;

typedef struct MotLoop {
    MotExtent extent;
} MotLoop;

/*
 * c[m, n] = sum over k of a[m, k] * b[k, n], for each point of the kept loops; the reduced loops
 * add to c. f32. With a list the sum is over list[0 .. k), positions in [0, n_positions) of a's and
 * b's dim.
 */
typedef struct MotContract {
    MotAccess a, b, c; /* strides of the outer loops; c has none along reduced ones */
    MotExtent m, n, k;
    bool has_list;
    uint32_t list; /* the buffer, of i64 */
    MotExtent n_positions;
    /* element strides: a_m or a_k is 1, b_k or b_n is 1, the stride of c along n is 1 */
    MotExtent a_m, a_k, b_k, b_n, c_m;
} MotContract;

/*
 * result[pre, index[i], post] += update[pre, i, post], in the order of i; result starts as zeros.
 */
typedef struct MotScatter {
    MotAccess index, update, result; /* strides of the nest's loops */
    MotExtent size, axis_stride;     /* of the result along the axis */
} MotScatter;

/*
 * The op, one of top_k, scatter_mean, pack and unpack, for each row. Buffers in the order of
 * operands and results.
 */
typedef struct MotRows {
    MotOpKind op;
    int64_t n, k, parts; /* as the service `row` has them (support/image.h) */
    const char *wire;
    uint32_t buf[3];
    MotDtype dtype[3];
    int64_t step[3]; /* elements from a row to the next */
} MotRows;

/*
 * Dense q[B,T,H,D], k[B,S,G,D], v[B,S,G,E], out[B,T,H,E], lse[B,H,T]; gradients alike. Buffers by
 * the order in ops.def.
 */
typedef struct MotAttention {
    MotExtent B, T, H, D, S, G, E;
    double scale;
    bool is_causal, has_mask;
    uint32_t buf[MOT_MAX_RANK + 2]; /* operands, results; the mask's buffer is `mask` */
    uint32_t mask;
    MotExtent mask_stride[4]; /* along B, H, T, S; factor 0 where the mask is broadcast */
} MotAttention;

typedef enum MotShape {
    MOT_SHAPE_POINTWISE,
    MOT_SHAPE_ROW,
    MOT_SHAPE_COLUMN,
    MOT_SHAPE_CONTRACT,
    MOT_SHAPE_SCATTER,
    MOT_SHAPE_ROWS,
    MOT_SHAPE_ATTENTION,
    MOT_SHAPE_ATTENTION_GRAD,
    MOT_N_SHAPES
} MotShape;
extern const char *const mot_shape_names[MOT_N_SHAPES];

typedef struct MotNest {
    MotShape shape;
    MotLoop loop[MOT_MAX_LOOPS];
    int n_loops, n_kept;
    int lane_loop; /* the loop that vector lanes run along; -1: none (scalars, templates) */
    MotVec(MotNodeInfo) nodes; /* [0] is none; arguments before users */
    MotVec(MotStore) stores;
    uint32_t n_phases; /* POINTWISE: 1 */
    union {
        MotContract contract;
        MotScatter scatter;
        MotRows rows;
        MotAttention attention;
    };
} MotNest;

typedef struct MotKernelIr {
    const MotGraph *graph;
    uint32_t n_bufs, n_operands;
    MotNest *nest[MOT_MAX_NESTS];
    uint32_t n_nests;
} MotKernelIr;

/*
 * Builds the nests of a launch's graph. Fails with MOT_ERR_UNSUPPORTED and the reason when no shape
 * covers it.
 */
MOT_CHECKED MotStatus mot_kernel_build(MotCtx *ctx, const MotGraph *graph, MotKernelIr *out_kernel);

#endif
