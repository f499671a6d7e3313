/*
 * What a lowering sees: one node of the ONNX graph and the import it belongs to. Private to
 * frontend/import_*.c.
 *
 * A lowering reads operands and attributes, appends ops through n->b and sets n->out. Like the
 * builders it is sticky: after a failure every accessor gives something harmless, and the driver
 * checks once when the lowering returns.
 */
#ifndef MOTLEY_FRONTEND_IMPORT_NODE_H
#define MOTLEY_FRONTEND_IMPORT_NODE_H

#include "frontend/import.h"
#include "ir/builder.h"

#include "frontend/onnx.pb-c.h"

/* An ONNX sequence: a list that exists at import only. */
typedef struct MotSequence {
    MotValue *items;
    uint32_t n;
} MotSequence;

/* What an ONNX name stands for. */
typedef struct MotBound {
    MotValue value;              /* 0 for a sequence */
    const MotSequence *sequence; /* NULL for a tensor */
    uint32_t node;               /* of which node it is a result; UINT32_MAX: of none */
} MotBound;

typedef struct MotImport {
    MotCtx *ctx;
    const MotOnnxFile *file;
    const MotImportOpts *opts;
    MotGraph *g;
    MotBuilder b;
    MotMap names; /* ONNX name -> index in `bound` */
    MotVec(MotBound) bound;
    MotVec(MotTensor)
        known; /* by MotValue: the contents where they follow from constants; else data is NULL */
    MotArena *contents; /* of computed values in `known`; empty once the import is over */
    MotMap symbols;     /* symbolic dim -> size */
    MotMap needed;      /* offered inputs that must be constants; kept over attempts */
    bool starts_again;  /* `needed` grew: this attempt is void */
} MotImport;

typedef struct MotNode MotNode;

enum { MOT_ANY_NUMBER = 0xffff }; /* of operands or results of a row */

/* A row of onnx_ops.def. */
typedef struct MotLowering {
    const char *domain, *op_type;
    int64_t since;
    uint32_t n_min, n_max, n_out;
    const char *attrs;
    void (*lower)(MotNode *n);
    MotOpKind kind; /* for lowerings shared by several ops */
    bool takes_sequence;
} MotLowering;

struct MotNode {
    MotImport *im;
    MotBuilder *b;
    const MotLowering *row;
    const Onnx__NodeProto *proto;
    MotLoc loc;
    uint32_t index;
    MotValue *in; /* 0: absent, or a sequence */
    const MotSequence **sequence;
    uint32_t n_in;
    MotValue *out; /* set by the lowering, n_out of them */
    const MotSequence **out_sequence;
    uint32_t n_out; /* as many as the node names */
};

#define ONNX_OP(op, since, n_min, n_max, n_out, attrs, lower, kind)                                \
    void mot_lower_##lower(MotNode *n);
#define ONNX_SEQUENCE_OP ONNX_OP
#include "frontend/onnx_ops.def"

/* ---- import_node.c: operands and attributes ---- */

/* The row for an operator at a version of its domain; NULL: not supported. */
const MotLowering *mot_lowering_find(const char *domain, const char *op_type, int64_t version);
/*
 * Checks the attributes (well-formed: onnx_check.h) against the row: known, of their kind, required
 * ones present.
 */
MotStatus mot_node_check_attrs(MotNode *n);

MotStatus mot_node_fail(MotNode *n, MotStatus status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether nothing failed so far. */
bool mot_node_ok(const MotNode *n);
/* Whether operand i is there. */
bool mot_node_has(const MotNode *n, uint32_t i);
/* Whether the node names result i. */
bool mot_node_wants(const MotNode *n, uint32_t i);
/* The type of operand i; the pointer lasts until the next op is built. */
const MotType *mot_node_type(const MotNode *n, uint32_t i);
const MotType *mot_value_type(const MotNode *n, MotValue v);
/* `"name" : f32[2x3]`, for messages. */
const char *mot_node_operand_text(const MotNode *n, uint32_t i);

const Onnx__AttributeProto *mot_node_attr(const MotNode *n, const char *name);
int64_t mot_node_int(const MotNode *n, const char *name, int64_t otherwise);
double mot_node_float(const MotNode *n, const char *name, double otherwise);
/* Interned. */
const char *mot_node_string(const MotNode *n, const char *name, const char *otherwise);
/* Whether the attribute is there. */
bool mot_node_ints(const MotNode *n, const char *name, MotInts *out_list);

/* `axis` in 0..rank-1, counted from the end if negative; fails outside. */
int mot_node_axis(MotNode *n, int64_t axis, int rank);
/* The same for a list without repetition; writes at most MOT_MAX_RANK axes and returns how many. */
uint32_t mot_node_axes(MotNode *n, MotInts list, int rank, int64_t *out_axes);
/* Fails unless the rank of operand i is in [least, most]. */
void mot_node_check_rank(MotNode *n, uint32_t i, int least, int most);
/* Operand i, which must be float. */
MotValue mot_node_float_operand(MotNode *n, uint32_t i);
/* Fails unless `rank` can be represented. */
bool mot_node_fits_rank(MotNode *n, int rank);
/* The common shape of two by NumPy's rule, with a's dtype; fails with both shapes. */
MotType mot_node_broadcast(MotNode *n, MotType a, MotType b);
/* Fails unless the operands that are there agree in dtype. */
void mot_node_check_dtypes(MotNode *n, uint32_t first, uint32_t end);

/* ---- import_fold.c: what is known at import ---- */

/* The contents of v, or NULL. */
const MotTensor *mot_import_known(const MotImport *im, MotValue v);
/* Computes what follows from known values among the ops from `first` on. */
MotStatus mot_import_fold(MotImport *im, MotOpId first);
/* Makes constants of the known values that other ops use. */
void mot_import_materialize(MotImport *im);
/*
 * The contents of operand i; fails when they are not known, or has the import start again with an
 * input bound.
 */
const MotTensor *mot_node_known(MotNode *n, uint32_t i);
/* The same as a list of integers. */
bool mot_node_known_ints(MotNode *n, uint32_t i, MotInts *out_list);

/* ---- Values that several lowerings need (import_node.c) ---- */

/* A constant vector of i64. */
MotValue mot_node_vector(MotNode *n, const int64_t *data, int64_t count);
/* x broadcast to the shape of `type`. */
MotValue mot_node_expand(MotNode *n, MotValue x, const MotType *type);
MotValue mot_node_expand_dims(MotNode *n, MotValue x, int axis);
/* x with axis `from` at the end. */
MotValue mot_node_axis_last(MotNode *n, MotValue x, int from);
/* Indices counted from the end made indices from the start; known ones are range-checked. */
MotValue mot_node_index(MotNode *n, MotValue index, int64_t size);
/* x - max - log(sum(exp(x - max))). */
MotValue mot_node_log_softmax(MotNode *n, MotValue x, int axis);

#endif
