/*
 * Ops that move or repeat elements: chains become one op, and what broadcasting does by itself is
 * not spelled out.
 */
#include "passes/graph/simplify.h"

#include <math.h>
#include <string.h>

static bool has_shape_of_root(const MotMatch *m, MotValue v)
{
    return mot_dims_equal(mot_graph_type(m->graph, v), mot_graph_type(m->graph, m->root));
}

static MotValue to_x_if_same(MotMatch *m)
{
    MotValue x = mot_match_value(m, 'x');
    return has_shape_of_root(m, x) ? x : 0;
}

static MotValue reshape_x(MotMatch *m)
{
    const MotType root = *mot_graph_type(m->graph, m->root);
    return mot_reshape(m->b, mot_match_value(m, 'x'), root.rank, root.dims);
}

static MotValue broadcast_x(MotMatch *m)
{
    const MotType root = *mot_graph_type(m->graph, m->root);
    return mot_broadcast(m->b, mot_match_value(m, 'x'), root.rank, root.dims);
}

/* One element repeated has any shape at once. */
static MotValue broadcast_scalar(MotMatch *m)
{
    const MotType root = *mot_graph_type(m->graph, m->root);
    if (mot_type_elements(mot_match_type(m, 'x')) != 1)
        return 0;
    MotValue scalar = mot_reshape(m->b, mot_match_value(m, 'x'), 0, root.dims);
    return mot_broadcast(m->b, scalar, root.rank, root.dims);
}

/*
 * A reshape that only puts back, or drops, the dims of size 1 that a reduction leaves, is the
 * reduction's own flag.
 */
static MotValue merge_into_reduction(MotMatch *m)
{
    const MotOp reduce = *mot_match_def(m, 'y');
    MotAttr_reduce attrs = *mot_attrs(&reduce, reduce);
    const MotType root = *mot_graph_type(m->graph, m->root),
                  x = *mot_graph_type(m->graph, reduce.in[0]);
    attrs.keep = !attrs.keep;
    MotType type = {.dtype = root.dtype};
    for (int d = 0; d < x.rank; d++) {
        bool is_reduced = false;
        for (uint32_t i = 0; i < attrs.axes.n; i++)
            is_reduced |= attrs.axes.data[i] == d;
        if (!is_reduced || attrs.keep)
            type.dims[type.rank++] = is_reduced ? 1 : x.dims[d];
    }
    if (!mot_dims_equal(&type, &root))
        return 0;
    return mot_result(m->b, mot_build(m->b, reduce.kind, reduce.in, 1, &attrs), 0);
}

static MotValue drop_unit_reduction(MotMatch *m)
{
    const MotAttr_reduce *attrs = mot_attrs(mot_match_root(m), reduce);
    const MotType *x = mot_match_type(m, 'x');
    for (uint32_t i = 0; i < attrs->axes.n; i++)
        if (x->dims[attrs->axes.data[i]] != 1)
            return 0;
    return reshape_x(m);
}

/* ---- Broadcasting ---- */

static MotValue rebuild_pointwise(MotMatch *m, const MotOp *op, const MotValue *in)
{
    const MotType root = *mot_graph_type(m->graph, m->root);
    MotValue y = mot_result(m->b, mot_build(m->b, op->kind, in, op->n_in, NULL), 0);
    return mot_broadcast(m->b, y, root.rank, root.dims);
}

/*
 * Pointwise ops broadcast by themselves; where all operands are broadcast the result is, instead.
 */
static MotValue drop_broadcasts(MotMatch *m)
{
    const MotOp op = *mot_match_root(m);
    MotValue in[3];
    bool is_changed = false;
    for (uint32_t i = 0; i < op.n_in; i++) {
        const MotOp *def = mot_graph_def(m->graph, op.in[i]);
        bool is_broadcast = def->kind == MOT_OP_BROADCAST;
        in[i] = is_broadcast ? def->in[0] : op.in[i];
        is_changed |= is_broadcast;
    }
    return is_changed ? rebuild_pointwise(m, &op, in) : 0;
}

/* A constant whose elements all are equal is a scalar. */
static MotValue make_scalars(MotMatch *m)
{
    const MotOp op = *mot_match_root(m);
    MotValue in[3];
    bool is_changed = false;
    for (uint32_t i = 0; i < op.n_in; i++) {
        double number;
        bool is_scalar =
            mot_graph_type(m->graph, op.in[i])->rank > 0 && op.n_in > 1 &&
            mot_value_is_uniform(m->graph, op.in[i], &number) &&
            !(fabs(number) > 0x1p53 && isfinite(number) &&
              mot_dtype_class(mot_graph_type(m->graph, op.in[i])->dtype) == MOT_CLASS_INT);
        in[i] = is_scalar ? mot_scalar_like(m->b, op.in[i], number) : op.in[i];
        is_changed |= is_scalar;
    }
    return is_changed ? rebuild_pointwise(m, &op, in) : 0;
}

/* ---- Slices and concatenations ---- */

static MotValue drop_full_slice(MotMatch *m)
{
    const MotAttr_slice *a = mot_attrs(mot_match_root(m), slice);
    for (uint32_t d = 0; d < a->start.n; d++)
        if (a->start.data[d] != 0 || a->step.data[d] != 1)
            return 0;
    return to_x_if_same(m);
}

static MotValue compose_slices(MotMatch *m)
{
    const MotAttr_slice *outer = mot_attrs(mot_match_root(m), slice);
    const MotAttr_slice *inner = mot_attrs(mot_match_def(m, 'y'), slice);
    int64_t start[MOT_MAX_RANK], step[MOT_MAX_RANK];
    for (uint32_t d = 0; d < outer->start.n; d++) {
        start[d] = inner->start.data[d] + outer->start.data[d] * inner->step.data[d];
        step[d] = inner->step.data[d] * outer->step.data[d];
    }
    return mot_slice(m->b, mot_match_value(m, 'x'), start, outer->size.data, step);
}

/* A slice that stays within one operand of a concat reads that operand. */
static MotValue slice_of_concat(MotMatch *m)
{
    const MotAttr_slice *a = mot_attrs(mot_match_root(m), slice);
    const MotOp concat = *mot_match_def(m, 'y');
    int64_t axis = mot_attrs(&concat, axis)->axis, size = a->size.data[axis], before = 0;
    int64_t first = a->start.data[axis], last = first + (size - 1) * a->step.data[axis];
    if (size == 0)
        return 0;
    for (uint32_t i = 0; i < concat.n_in; i++) {
        int64_t end = before + mot_graph_type(m->graph, concat.in[i])->dims[axis];
        if (first >= before && first < end && last >= before && last < end) {
            int64_t start[MOT_MAX_RANK];
            memcpy(start, a->start.data, a->start.n * sizeof *start);
            start[axis] -= before;
            return mot_slice(m->b, concat.in[i], start, a->size.data, a->step.data);
        }
        before = end;
    }
    return 0;
}

/* Whether slice `b` begins along the axis where `a` ends, and is otherwise like it. */
static bool is_continued(const MotAttr_slice *a, const MotAttr_slice *b, int64_t axis)
{
    for (uint32_t d = 0; d < a->start.n; d++) {
        if (a->step.data[d] != 1 || b->step.data[d] != 1)
            return false;
        int64_t start = a->start.data[d] + (d == axis ? a->size.data[d] : 0);
        if (b->start.data[d] != start || (d != axis && b->size.data[d] != a->size.data[d]))
            return false;
    }
    return true;
}

static MotValue join_slices(MotMatch *m)
{
    const MotOp concat = *mot_match_root(m);
    int64_t axis = mot_attrs(&concat, axis)->axis;
    const MotAttr_slice *before = NULL, *first = NULL;
    MotValue x = 0;
    if (concat.n_in == 1)
        return concat.in[0];
    for (uint32_t i = 0; i < concat.n_in; i++) {
        const MotOp *op = mot_graph_def(m->graph, concat.in[i]);
        if (op->kind != MOT_OP_SLICE || (x && op->in[0] != x))
            return 0;
        const MotAttr_slice *a = mot_attrs(op, slice);
        if (before && !is_continued(before, a, axis))
            return 0;
        first = first ? first : a;
        x = op->in[0];
        before = a;
    }
    MOT_ASSERT(first);
    return mot_slice(m->b, x, first->start.data, mot_graph_type(m->graph, m->root)->dims,
                     first->step.data);
}

/* Whether the indices are start, start + step, start + 2 step, ..., step not 0. */
static bool is_range(const MotTensor *index, int64_t *out_start, int64_t *out_step)
{
    int64_t n = mot_type_elements(&index->type);
    if (n < 1)
        return false;
    *out_start = mot_tensor_get_int(index, 0);
    *out_step = n > 1 ? mot_tensor_get_int(index, 1) - *out_start : 1;
    for (int64_t i = 1; i < n; i++)
        if (mot_tensor_get_int(index, i) != *out_start + i * *out_step)
            return false;
    return *out_step != 0;
}

/* A gather by a known range (positions 0, 1, 2, ...) is a slice. */
static MotValue gather_range(MotMatch *m)
{
    const MotOp gather = *mot_match_root(m);
    int64_t axis = mot_attrs(&gather, gather)->axis, first, by;
    if (mot_attrs(&gather, gather)->batched)
        return 0;
    MotArenaMark mark = mot_arena_mark(&m->graph->ctx->arena);
    MotTensor index;
    bool is_sliced =
        mot_value_known(m->graph, gather.in[1], &index) && is_range(&index, &first, &by);
    mot_arena_rewind(&m->graph->ctx->arena, mark);
    if (!is_sliced)
        return 0;
    const MotType table = *mot_graph_type(m->graph, gather.in[0]),
                  root = *mot_graph_type(m->graph, m->root);
    int64_t start[MOT_MAX_RANK], size[MOT_MAX_RANK], step[MOT_MAX_RANK];
    for (int d = 0; d < table.rank; d++) {
        bool is_axis = d == axis;
        start[d] = is_axis ? first : 0;
        step[d] = is_axis ? by : 1;
        size[d] = is_axis ? mot_type_elements(&index.type) : table.dims[d];
    }
    int64_t last = first + (size[axis] - 1) * by;
    if (first < 0 || first >= table.dims[axis] || last < 0 || last >= table.dims[axis])
        return 0; /* the evaluation reports it */
    return mot_reshape(m->b, mot_slice(m->b, gather.in[0], start, size, step), root.rank,
                       root.dims);
}

static const MotRule rules[] = {
    {"reshape-same", "reshape(?x)", to_x_if_same},
    {"reshape-twice", "reshape(reshape(?x))", reshape_x},
    {"reshape-of-sum", "reshape(?y=reduce_sum)", merge_into_reduction},
    {"reshape-of-max", "reshape(?y=reduce_max)", merge_into_reduction},
    {"reshape-of-scalar", "reshape(broadcast(?x))", broadcast_scalar},
    {"sum-of-one", "reduce_sum(?x)", drop_unit_reduction},
    {"max-of-one", "reduce_max(?x)", drop_unit_reduction},
    {"broadcast-same", "broadcast(?x)", to_x_if_same},
    {"broadcast-twice", "broadcast(broadcast(?x))", broadcast_x},
    {"broadcast-of-pointwise", "pointwise", drop_broadcasts},
    {"uniform-constant", "pointwise", make_scalars},
    {"slice-all", "slice(?x)", drop_full_slice},
    {"slice-twice", "slice(?y=slice(?x))", compose_slices},
    {"slice-of-concat", "slice(?y=concat)", slice_of_concat},
    {"concat-of-slices", "concat", join_slices},
    {"gather-range", "gather", gather_range},
};
const MotRules mot_rules_shape = MOT_RULES(rules);
