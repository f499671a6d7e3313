/*
 * Building ops. Builders are sticky: a failure records the first error in the context and gives
 * value 0, value 0 is accepted everywhere and gives 0, and the caller checks ctx->status once at
 * the end.
 */
#ifndef MOTLEY_IR_BUILDER_H
#define MOTLEY_IR_BUILDER_H

#include "ir/graph.h"

/* New ops are appended to the graph's body with this origin, fwd and role. */
typedef struct MotBuilder {
    MotGraph *graph;
    const char *origin;
    MotOpId fwd;
    MotRole role;
} MotBuilder;

MotBuilder mot_builder_make(MotGraph *graph);

/*
 * Appends an op; result types are inferred. `attrs` is the row's struct (copied, lists and strings
 * too) or NULL for zeros. Returns the op's id, or 0 after a failure.
 */
MotOpId mot_build(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                  const void *attrs);
/*
 * The same with the result types given, not inferred: types may name symbolic dims (kernels of a
 * Program).
 */
MotOpId mot_build_typed(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                        const void *attrs, const MotType *types);
/*
 * mot_build for an op that owns a region, which it takes: the region must not be another op's.
 * Fails if the region is missing, is not asked for, or is too deep (MOT_MAX_REGION_DEPTH).
 */
MotOpId mot_build_region(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                         const void *attrs, MotGraph *region);
/* Result i of an op; 0 for op 0. */
MotValue mot_result(const MotBuilder *b, MotOpId op, uint32_t i);

/* mot_exp(b, x), mot_add(b, x, y), mot_select(b, c, x, y): one function a pointwise row. */
#define MOT_PARAMS_1 MotValue x
#define MOT_PARAMS_2 MotValue x, MotValue y
#define MOT_PARAMS_3 MotValue x, MotValue y, MotValue z
#define POINTWISE(id, name, arity, classes, result, expression)                                    \
    MotValue mot_##name(MotBuilder *b, MOT_PARAMS_##arity);
#include "ir/ops.def"

MotValue mot_input(MotBuilder *b, const char *name, MotType type);
MotValue mot_param(MotBuilder *b, const MotAttr_param *attrs, MotType type);
MotValue mot_constant(MotBuilder *b, MotTensor data);
/* A scalar constant. */
MotValue mot_scalar(MotBuilder *b, MotDtype dtype, double value);
/* A scalar constant of x's dtype. */
MotValue mot_scalar_like(MotBuilder *b, MotValue x, double value);
MotOpId mot_output(MotBuilder *b, const char *name, MotValue x);
MotValue mot_iota(MotBuilder *b, MotDtype dtype, int rank, const int64_t *dims, int axis);

/* x + s, x * s, s - x, x / s with a scalar of x's dtype. */
MotValue mot_add_scalar(MotBuilder *b, MotValue x, double s);
MotValue mot_mul_scalar(MotBuilder *b, MotValue x, double s);
MotValue mot_rsub(MotBuilder *b, double s, MotValue x);

MotValue mot_cast(MotBuilder *b, MotValue x, MotDtype dtype);
MotValue mot_reshape(MotBuilder *b, MotValue x, int rank, const int64_t *dims);
MotValue mot_transpose(MotBuilder *b, MotValue x, const int64_t *perm);
/* To `dims`, aligned at the last dim. */
MotValue mot_broadcast(MotBuilder *b, MotValue x, int rank, const int64_t *dims);
MotValue mot_slice(MotBuilder *b, MotValue x, const int64_t *start, const int64_t *size,
                   const int64_t *step);
/* Elements [start, start + size) of one axis. */
MotValue mot_slice_axis(MotBuilder *b, MotValue x, int axis, int64_t start, int64_t size);
MotValue mot_pad(MotBuilder *b, MotValue x, const int64_t *lo, const int64_t *hi, double value);
MotValue mot_concat(MotBuilder *b, const MotValue *x, uint32_t n, int axis);
MotValue mot_gather(MotBuilder *b, MotValue table, MotValue index, int axis);
MotValue mot_scatter_add(MotBuilder *b, MotValue index, MotValue update, int axis, int64_t size);
/*
 * The same with rows of their own for each index of the dims before the axis, which index has too.
 */
MotValue mot_gather_batched(MotBuilder *b, MotValue table, MotValue index, int axis);
MotValue mot_scatter_add_batched(MotBuilder *b, MotValue index, MotValue update, int axis,
                                 int64_t size);
/* Gives the indices; *out_value: the values. */
MotValue mot_top_k(MotBuilder *b, MotValue x, int64_t k, MotValue *out_value);
MotValue mot_scatter_mean(MotBuilder *b, MotValue index, MotValue value, int64_t size);
enum { MOT_DROP = 0, MOT_KEEP = 1 };
MotValue mot_reduce_sum(MotBuilder *b, MotValue x, const int64_t *axes, uint32_t n_axes, bool keep);
MotValue mot_reduce_max(MotBuilder *b, MotValue x, const int64_t *axes, uint32_t n_axes, bool keep);
/*
 * Sums x over what broadcasting to x's shape from `dims` repeated: the transpose of broadcasting.
 */
MotValue mot_sum_to(MotBuilder *b, MotValue x, int rank, const int64_t *dims);
MotValue mot_contract(MotBuilder *b, MotValue x, MotValue y, const char *spec);
/* Summed over the positions of letter `cut` that k_index, i64[n], lists. */
MotValue mot_contract_listed(MotBuilder *b, MotValue x, MotValue y, MotValue k_index,
                             const char *spec, char cut);

/*
 * The meaning of a composite: appends its expansion to b and gives its results. ir/expand.c holds
 * one rule a row.
 */
MOT_CHECKED MotStatus mot_expand(MotBuilder *b, const MotOp *op, MotValue *out_results);
/*
 * Result types of an op by the rule of its row, for operands of these types. Composites ask their
 * expansion. MOT_ERR_LIMIT if a result has 2^62 elements or more.
 */
MOT_CHECKED MotStatus mot_infer(MotGraph *g, const MotOp *op, MotType *out_types);

#endif
