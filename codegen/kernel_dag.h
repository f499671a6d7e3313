/* Inside of kernel*.c: from the values of a graph to the nodes of a nest. */
#ifndef MOTLEY_CODEGEN_KERNEL_DAG_H
#define MOTLEY_CODEGEN_KERNEL_DAG_H

#include "codegen/kernel.h"

#include "ir/builder.h"

/*
 * The index along one dim of a value at a point of the loops: start + step * (loop, or the value of
 * `index`). loop -1: start.
 */
typedef struct MotAxis {
    int loop;
    MotNode index;
    int64_t start, step;
} MotAxis;

typedef struct MotView {
    int rank;
    MotAxis axis[MOT_MAX_RANK];
} MotView;

typedef struct MotBuilt {
    MotValue value;
    MotView view;
    MotNode guard, node;
} MotBuilt;

/* A nest under construction. */
typedef struct MotDag {
    MotCtx *ctx;
    const MotGraph *g;
    const uint32_t *buf_of; /* [values]: buffer + 1 of those that lie in one */
    MotNest *nest;
    uint32_t reduced; /* bit l: loop l is reduced */
    MotNode guard;    /* bool: where false, what is built is not used; 0: always used */
    MotVec(MotBuilt) built;
} MotDag;

MotNest *mot_nest_make(MotCtx *ctx, MotShape shape);
/* Adds a loop; -1, and an error, when there are too many. */
int mot_nest_add_loop(MotCtx *ctx, MotNest *nest, MotExtent extent);
/*
 * The node, or one that computes the same: several ops of a kernel share what they have in common.
 * Quadratic in the nest's nodes.
 */
MotNode mot_nest_add_node(MotCtx *ctx, MotNest *nest, MotNodeInfo node);
/* A dense tensor of this type, seen through a view. */
MotAccess mot_access_make(const MotType *type, uint32_t buf, const MotView *view);
/* The node of value v; 0 after an error. */
MotNode mot_dag_build(MotDag *dag, MotValue v, const MotView *view);

/*
 * Orders loops (kept ones first), joins those that can be one, chooses the shape and the lanes,
 * derives phases.
 */
MOT_CHECKED MotStatus mot_nest_finish(MotCtx *ctx, MotNest *nest, uint32_t reduced);

/* The nest of an op that has a shape of its own, NULL if it is none or (contract) is no GEMM. */
MotNest *mot_nest_of_op(MotCtx *ctx, const MotGraph *g, const MotOp *op, const uint32_t *buf_of);
bool mot_op_has_nest(const MotOp *op);

#endif
