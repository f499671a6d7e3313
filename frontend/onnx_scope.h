/*
 * Scopes: the lists of nodes of a model, each with its own names. The main graph is the first; then
 * the bodies of the functions; then the graphs in attributes, which see the names of the graphs
 * around them. A parent precedes its children.
 */
#ifndef MOTLEY_FRONTEND_ONNX_SCOPE_H
#define MOTLEY_FRONTEND_ONNX_SCOPE_H

#include "frontend/onnx_file.h"
#include "support/vector.h"

#define MOT_NO_SCOPE UINT32_MAX

typedef struct MotOnnxScope {
    const Onnx__GraphProto *graph;       /* NULL for the body of a function */
    const Onnx__FunctionProto *function; /* NULL for a graph */
    Onnx__NodeProto *const *nodes;
    uint32_t n_nodes;
    uint32_t parent; /* MOT_NO_SCOPE for the main graph and functions */
    uint32_t parent_node;
    uint32_t root;         /* the scope of the main graph or function that this is in */
    const char *attribute; /* of the parent node */
    uint32_t *order; /* the nodes in an order in which every value is defined before it is used */
} MotOnnxScope;

typedef struct MotOnnxScopes {
    MotVec(MotOnnxScope) all;
    MotMap by_owner; /* address of a GraphProto or FunctionProto -> index in `all` */
} MotOnnxScopes;

/*
 * The order of the nodes of a GraphProto or FunctionProto of the file; NULL if it belongs to no
 * scope.
 */
const uint32_t *mot_onnx_order(const MotOnnxFile *file, const void *graph_or_function);
/* `node 57 "/h.0/attn/Reshape"`, behind the nodes or function around it. */
MotLoc mot_onnx_node_loc(MotCtx *ctx, const MotOnnxFile *file, const void *graph_or_function,
                         uint32_t node);

/* For onnx_check.c: finds the scopes of file->model; their orders are still the file's. */
MotOnnxScopes *mot_onnx_scopes_make(MotCtx *ctx, const Onnx__ModelProto *model);
MotLoc mot_onnx_scope_node_loc(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                               uint32_t node);
/* The scope and `what`, as `function "f", output 3`. */
MotLoc mot_onnx_scope_loc(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                          const char *what);

#endif
