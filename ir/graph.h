/*
 * Graph: operators over tensors in SSA form, the structure of everything before the Plan.
 *
 * Values and ops are named by 32-bit ids; id 0 is none and is accepted everywhere (style.md, sticky
 * builders). `body` lists the ops in an order in which operands precede users. Ops are never moved
 * in `ops`; passes append, redirect uses and call mot_graph_compact, which drops what is dead and
 * renumbers. Inputs, parameters, constants and outputs are ops as well.
 *
 * A region, the block of ops that an op such as scan owns, is a graph of its own: with own ids,
 * inputs and outputs by position, and nothing seen of what is outside. So a scope can't be broken,
 * a pass over one graph needs no scopes, and what has to see all ops, regions included, walks them
 * with MotOpIter. What a region needs from outside is an operand of its op.
 */
#ifndef MOTLEY_IR_GRAPH_H
#define MOTLEY_IR_GRAPH_H

#include "ir/dtype.h"
#include "support/context.h"

typedef uint32_t MotValue;
typedef uint32_t MotOpId;

typedef enum MotOpKind {
    MOT_OP_NONE,
#define POINTWISE(id, name, arity, classes, result, expression) MOT_OP_##id,
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) MOT_OP_##id,
#include "ir/ops.def"
    MOT_N_OPS
} MotOpKind;

typedef struct MotInts {
    int64_t *data;
    uint32_t n;
} MotInts;

/* The C type of an attribute kind (attrs.def). */
typedef int64_t MotAttrType_INT;
typedef double MotAttrType_FLOAT;
typedef bool MotAttrType_FLAG;
typedef const char *MotAttrType_STR;
typedef MotInts MotAttrType_INTS;
typedef MotDtype MotAttrType_DTYPE;
typedef MotTensor MotAttrType_TENSOR;

#define ATTR(id, kind, name) MotAttrType_##kind name;
#define ATTRS(id, fields)                                                                          \
    typedef struct MotAttr_##id {                                                                  \
        char unused_; /* no struct is empty */                                                     \
        fields                                                                                     \
    } MotAttr_##id;
#include "ir/attrs.def"
#undef ATTR
#undef ATTRS

typedef enum MotAttrKind {
    MOT_ATTR_INT,
    MOT_ATTR_FLOAT,
    MOT_ATTR_FLAG,
    MOT_ATTR_STR,
    MOT_ATTR_INTS,
    MOT_ATTR_DTYPE,
    MOT_ATTR_TENSOR
} MotAttrKind;

typedef struct MotAttrField {
    const char *name;
    MotAttrKind kind;
    size_t offset;
} MotAttrField;

typedef enum MotOpClass {
    MOT_POINTWISE,
    MOT_SOURCE,
    MOT_SINK,
    MOT_PRIMITIVE,
    MOT_COMPOSITE
} MotOpClass;

enum {
    MOT_FLAG_LINEAR_0 = 1 << 0, /* LINEAR(i) is 1 << i, i < 8 */
    MOT_FLAG_OWN_GRADIENT = 1 << 8,
    MOT_FLAG_UPDATE = 1 << 9,
    MOT_FLAG_ELEMENTWISE = 1 << 10,
    MOT_FLAG_REGION = 1 << 11
};

enum {
    MOT_PER_OUTPUT = UINT16_MAX, /* as a row's n_out: one result an output of the region */
    MOT_MAX_REGION_DEPTH = 8     /* regions in one another: what recurses over them relies on it */
};

/* A row of the table. */
typedef struct MotOpInfo {
    const char *name;
    MotOpClass class;
    uint32_t n_min, n_max, n_out;
    unsigned operand_classes; /* pointwise: MotDtypeClass bits */
    bool gives_bool;          /* pointwise: the result is bool */
    const char *expression;   /* pointwise: C over a, b, c */
    const char *attrs_name;
    size_t attrs_bytes;
    const MotAttrField *fields; /* ends with a NULL name */
    unsigned flags;
} MotOpInfo;

const MotOpInfo *mot_op_info(MotOpKind kind);
/* MOT_OP_NONE if there is no op of that name. */
MotOpKind mot_op_find(const char *name);

typedef enum MotRole { MOT_ROLE_FORWARD, MOT_ROLE_DX, MOT_ROLE_DW, MOT_ROLE_UPDATE } MotRole;
extern const char *const mot_role_names[4];

typedef struct MotOp {
    MotOpKind kind;
    MotRole role;
    MotOpId fwd;        /* the forward op that a derived op belongs to; 0 for forward ops */
    const char *origin; /* the node of the ONNX file it came from, or NULL */
    MotValue *in, *out; /* an optional operand that is absent is 0 */
    uint32_t n_in, n_out;
    void *attrs;             /* MotAttr_<attrs_name> */
    struct MotGraph *region; /* MOT_FLAG_REGION: what it owns, else NULL */
} MotOp;

typedef struct MotValueInfo {
    MotType type;
    MotOpId def;
    uint32_t def_index; /* which result of def */
    const char *name;   /* the name in the ONNX file, or NULL */
    int64_t units;      /* > 0: dim units_dim is dealt out in that many pieces, no smaller ones */
    int units_dim;
} MotValueInfo;

typedef struct MotGraph {
    MotCtx *ctx;
    const char *name;
    MotVec(MotValueInfo) values; /* [0] is none */
    MotVec(MotOp) ops;           /* [0] is none */
    MotVec(MotOpId) body;
    MotVec(const char *) symbols; /* names of symbolic dims */
} MotGraph;

MotGraph *mot_graph_make(MotCtx *ctx, const char *name);
/* The values of a graph's inputs, and what its outputs show, by position. */
typedef struct MotSignature {
    MotValue in[MOT_MAX_OPERANDS], out[MOT_MAX_RESULTS];
    uint32_t n_in, n_out; /* all there are: if more than fit, the others are left out above */
} MotSignature;
MotSignature mot_graph_signature(const MotGraph *g);
/* How deep regions lie in one another: 0 for a graph without. */
int mot_graph_region_depth(const MotGraph *g);
/* The number of results of an op of that kind with that region (NULL: none). */
uint32_t mot_op_n_results(MotOpKind kind, const MotGraph *region);

static inline MotOp *mot_graph_op(const MotGraph *g, MotOpId id)
{
    return &g->ops.data[id];
}
static inline const MotType *mot_graph_type(const MotGraph *g, MotValue v)
{
    return &g->values.data[v].type;
}
/* The op that defines v. */
static inline MotOp *mot_graph_def(const MotGraph *g, MotValue v)
{
    return &g->ops.data[g->values.data[v].def];
}
/* The attributes of an op as their struct: mot_attrs(op, softmax)->axis. */
#define mot_attrs(op, id) ((MotAttr_##id *)(op)->attrs)
/* The list of positions that a contraction is cut to, 0 if it is whole. */
static inline MotValue mot_contract_index(const MotOp *op)
{
    return op->n_in > 2 ? op->in[2] : 0;
}
/* The letter that the list is of, 0 if the contraction is whole. */
static inline char mot_contract_cut(const MotOp *op)
{
    const char *cut = mot_attrs(op, contract)->cut;
    return mot_contract_index(op) && cut ? cut[0] : 0;
}

/*
 * All ops of a graph and of the regions in it: an op, then those of its region.
 *
 *     for (MotOpIter it = mot_op_iter(g); mot_op_iter_next(&it);) use(it.graph, it.op);
 */
typedef struct MotOpIter {
    const MotGraph *graph; /* that `op` stands in */
    const MotOp *op;
    int depth; /* of regions around the op */
    uint32_t next[MOT_MAX_REGION_DEPTH + 1];
    const MotGraph *graphs[MOT_MAX_REGION_DEPTH + 1];
} MotOpIter;

MotOpIter mot_op_iter(const MotGraph *g);
/* False at the end. */
bool mot_op_iter_next(MotOpIter *it);

/* Redirects every use of old[i] to new[i]. One sweep over the ops. */
void mot_graph_replace(MotGraph *g, const MotValue *old_values, const MotValue *new_values,
                       uint32_t n);
/*
 * Drops ops from which no output, input or parameter follows, orders the rest (operands first,
 * otherwise as before) and renumbers values and ops. Inputs and parameters stay. Values held by the
 * caller are stale afterwards. Regions stay as they are.
 */
void mot_graph_compact(MotGraph *g);
/* Regions are cloned too. */
MotGraph *mot_graph_clone(MotCtx *ctx, const MotGraph *g);
/*
 * FLOPs (2 a multiply-accumulate) of an op, of a scan all its steps; only contractions and
 * attention count (contract.md).
 */
double mot_op_flops(const MotGraph *g, const MotOp *op);
/* Whether every element of the results follows from the same element of the operands. */
bool mot_op_is_elementwise(const MotOp *op);
/* Whether both are, over the same dims: split alike, they can be one loop of one kernel. */
bool mot_op_can_fuse(const MotGraph *g, const MotOp *a, const MotOp *b);
/*
 * Whether b reduces what the loop of the elementwise op a computes: nothing else reading that, they
 * can be one kernel.
 */
bool mot_op_can_end(const MotGraph *g, const MotOp *a, const MotOp *b);
/* A sum of all elements to a scalar. */
bool mot_op_is_full_sum(const MotGraph *g, const MotOp *op);
/*
 * Whether they are a cross-entropy and its gradient, which share rows, maxima and exponentials: one
 * after the other, one kernel.
 */
bool mot_op_can_pair(const MotOp *loss, const MotOp *grad);
/* Operators of one kernel. */
enum { MOT_MAX_FUSED = 24 };
/* A constant of one element: it is written into the kernels that use it. */
bool mot_op_is_immediate(const MotGraph *g, const MotOp *op);
/*
 * A reshape, or a slice of whole entries of the outermost dim: of a dense tensor it moves nothing.
 */
bool mot_op_is_view(const MotGraph *g, const MotOp *op);
/* `node "/h.0/attn/MatMul"` or `op contract %12`, for messages. */
MotLoc mot_op_loc(const MotGraph *g, const MotOp *op);

/*
 * Checks what every graph must keep: operand counts and dtypes, types equal to what inference
 * gives, definition before use, names of inputs and parameters unique, no dead ids; the same in
 * every region, which has no parameters. Collects all violations into the error of the context.
 */
MOT_CHECKED MotStatus mot_graph_verify(const MotGraph *g);

/* Text form (docs/ir.md). What is printed parses back to the same. `file` is for messages. */
void mot_graph_print(const MotGraph *g, MotText *text);
MOT_CHECKED MotStatus mot_graph_parse(MotCtx *ctx, const char *file, const char *text,
                                      MotGraph **out_graph);

#endif
