/*
 * Values to nodes. A value is asked for at a view, which says for each of its dims the index as a
 * function of the loops; a rule a row turns that into nodes over views of its operands. So slices,
 * transposes, broadcasts and gathers vanish into the addresses of loads, and a reduction names the
 * loops it runs over. Asking twice for the same gives the same node.
 */
#include "codegen/kernel_dag.h"

#include <string.h>

typedef MotNode (*DagRule)(MotDag *, const MotOp *, const MotView *);

static MotNode refuse(MotDag *dag, const MotOp *op, const char *why)
{
    mot_fail(dag->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(dag->g, op),
             "no kernel shape covers this %s: %s", mot_op_info(op->kind)->name, why);
    return 0;
}

static const MotType *type_of(const MotDag *dag, MotValue v)
{
    return mot_graph_type(dag->g, v);
}

static MotNode add_node(MotDag *dag, MotNodeInfo node)
{
    return mot_nest_add_node(dag->ctx, dag->nest, node);
}

static MotNode add_op(MotDag *dag, MotOpKind op, MotDtype dtype, MotNode a, MotNode b, MotNode c)
{
    return add_node(dag,
                    (MotNodeInfo){.kind = MOT_NODE_OP, .op = op, .dtype = dtype, .arg = {a, b, c}});
}

static MotNode add_int(MotDag *dag, int64_t value)
{
    MotExtent e = {.factor = value};
    return add_node(dag, (MotNodeInfo){.kind = MOT_NODE_SIZE, .dtype = MOT_I64, .extent = e});
}

/* The index along an axis as an i64 node. */
static MotNode add_index(MotDag *dag, MotAxis a)
{
    if (a.loop < 0 && !a.index)
        return add_int(dag, a.start);
    return add_node(dag, (MotNodeInfo){.kind = MOT_NODE_INDEX,
                                       .dtype = MOT_I64,
                                       .arg = {a.index},
                                       .start = a.start,
                                       .step = a.step,
                                       .loop = a.loop});
}

static MotNode add_and(MotDag *dag, MotNode a, MotNode b)
{
    return a && b ? add_op(dag, MOT_OP_AND, MOT_BOOL, a, b, 0) : a ? a : b;
}

/* Whether the index along `a` is in [lo, hi). */
static MotNode add_range_test(MotDag *dag, MotAxis a, int64_t lo, int64_t hi)
{
    MotNode index = add_index(dag, a);
    MotNode above = add_op(dag, MOT_OP_LE, MOT_BOOL, add_int(dag, lo), index, 0);
    MotNode below = add_op(dag, MOT_OP_LT, MOT_BOOL, index, add_int(dag, hi), 0);
    return add_and(dag, above, below);
}

/* Operand type seen from the result's view: dims aligned at the last; a size of 1 has one index. */
static MotView align_view(const MotView *view, const MotType *type)
{
    MotView out = {.rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        out.axis[d] =
            type->dims[d] == 1 ? (MotAxis){.loop = -1} : view->axis[d + view->rank - type->rank];
    return out;
}

static MotNode build_pointwise(MotDag *dag, const MotOp *op, const MotView *view)
{
    MotNode arg[3] = {0};
    for (uint32_t i = 0; i < op->n_in; i++) {
        MotView own = align_view(view, type_of(dag, op->in[i]));
        arg[i] = mot_dag_build(dag, op->in[i], &own);
    }
    return add_op(dag, op->kind, type_of(dag, op->out[0])->dtype, arg[0], arg[1], arg[2]);
}

static MotNode build_cast(MotDag *dag, const MotOp *op, const MotView *view)
{
    return build_pointwise(dag, op, view);
}

static MotNode build_constant(MotDag *dag, const MotOp *op, const MotView *view)
{
    (void)view;
    const MotTensor *data = &mot_attrs(op, constant)->data;
    if (mot_type_elements(&data->type) != 1)
        return refuse(dag, op, "only scalar constants are part of a kernel");
    if (mot_dtype_class(data->type.dtype) == MOT_CLASS_INT) {
        MotNode v = add_int(dag, mot_tensor_get_int(data, 0));
        return data->type.dtype == MOT_I64 ? v
                                           : add_op(dag, MOT_OP_CAST, data->type.dtype, v, 0, 0);
    }
    return add_node(dag, (MotNodeInfo){.kind = MOT_NODE_CONST,
                                       .dtype = data->type.dtype,
                                       .value = mot_tensor_get(data, 0)});
}

static MotNode build_iota(MotDag *dag, const MotOp *op, const MotView *view)
{
    const MotAttr_iota *a = mot_attrs(op, iota);
    MotNode index = add_index(dag, view->axis[a->axis]);
    return a->dtype == MOT_I64 ? index : add_op(dag, MOT_OP_CAST, a->dtype, index, 0, 0);
}

static MotNode build_transpose(MotDag *dag, const MotOp *op, const MotView *view)
{
    MotInts perm = mot_attrs(op, perm)->perm;
    MotView own = {.rank = view->rank};
    for (uint32_t i = 0; i < perm.n; i++)
        own.axis[perm.data[i]] = view->axis[i];
    return mot_dag_build(dag, op->in[0], &own);
}

static MotNode build_broadcast(MotDag *dag, const MotOp *op, const MotView *view)
{
    MotView own = align_view(view, type_of(dag, op->in[0]));
    return mot_dag_build(dag, op->in[0], &own);
}

static MotNode build_slice(MotDag *dag, const MotOp *op, const MotView *view)
{
    const MotAttr_slice *a = mot_attrs(op, slice);
    MotView own = *view;
    for (int d = 0; d < view->rank; d++) {
        own.axis[d].start = a->start.data[d] + a->step.data[d] * view->axis[d].start;
        own.axis[d].step = a->step.data[d] * view->axis[d].step;
    }
    return mot_dag_build(dag, op->in[0], &own);
}

/* select(inside, x, otherwise): x is built, and loaded, only where `inside` holds. */
static MotNode build_guarded(MotDag *dag, MotValue x, const MotView *view, MotNode inside,
                             MotNode otherwise)
{
    MotNode outer = dag->guard;
    dag->guard = add_and(dag, outer, inside);
    MotNode value = mot_dag_build(dag, x, view);
    dag->guard = outer;
    return add_op(dag, MOT_OP_SELECT, type_of(dag, x)->dtype, inside, value, otherwise);
}

static MotNode build_pad(MotDag *dag, const MotOp *op, const MotView *view)
{
    const MotAttr_pad *a = mot_attrs(op, pad);
    const MotType *type = type_of(dag, op->in[0]);
    MotView own = *view;
    MotNode inside = 0;
    for (int d = 0; d < view->rank; d++) {
        if (a->lo.data[d] == 0 && a->hi.data[d] == 0)
            continue;
        if (type->dims[d] < 0)
            return refuse(dag, op, "a dim that is split is padded");
        own.axis[d].start -= a->lo.data[d];
        inside = add_and(dag, inside, add_range_test(dag, own.axis[d], 0, type->dims[d]));
    }
    if (!inside)
        return mot_dag_build(dag, op->in[0], &own);
    MotNode fill = add_node(
        dag, (MotNodeInfo){.kind = MOT_NODE_CONST, .dtype = type->dtype, .value = a->value});
    return build_guarded(dag, op->in[0], &own, inside, fill);
}

/*
 * From the last operand to the first: select(index < end of operand i, operand i, those after it).
 */
static MotNode build_concat(MotDag *dag, const MotOp *op, const MotView *view)
{
    int64_t axis = mot_attrs(op, axis)->axis, end = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (type_of(dag, op->in[i])->dims[axis] < 0)
            return refuse(dag, op, "the axis is split");
        end += type_of(dag, op->in[i])->dims[axis];
    }
    MotDtype dtype = type_of(dag, op->out[0])->dtype;
    MotNode value = add_node(dag, (MotNodeInfo){.kind = MOT_NODE_CONST, .dtype = dtype});
    for (uint32_t i = op->n_in; i-- > 0;) {
        int64_t start = end - type_of(dag, op->in[i])->dims[axis];
        MotView own = *view;
        MotNode inside = add_range_test(dag, own.axis[axis], start, end);
        own.axis[axis].start -= start;
        value = build_guarded(dag, op->in[i], &own, inside, value);
        end = start;
    }
    return value;
}

/*
 * An axis of `size` at the value of `index` in this view. What is built from now on is used only
 * where that is inside.
 */
static MotAxis add_listed_axis(MotDag *dag, MotValue index, const MotView *view, int64_t size)
{
    MotNode i = mot_dag_build(dag, index, view);
    if (type_of(dag, index)->dtype != MOT_I64)
        i = add_op(dag, MOT_OP_CAST, MOT_I64, i, 0, 0);
    MotNode end = add_node(
        dag,
        (MotNodeInfo){.kind = MOT_NODE_SIZE, .dtype = MOT_I64, .extent = mot_extent_make(size)});
    MotNode is_in_range = add_node(
        dag, (MotNodeInfo){.kind = MOT_NODE_CHECK, .dtype = MOT_BOOL, .arg = {i, end, dag->guard}});
    dag->guard = add_and(dag, dag->guard, is_in_range);
    return (MotAxis){.loop = -1, .index = i, .step = 1};
}

static MotNode build_gather(MotDag *dag, const MotOp *op, const MotView *view)
{
    const MotAttr_gather *a = mot_attrs(op, gather);
    const MotType *table = type_of(dag, op->in[0]), *index = type_of(dag, op->in[1]);
    MotView index_view = {.rank = index->rank}, own = {.rank = table->rank};
    MotNode outer = dag->guard;
    int axis = (int)a->axis, first = a->batched ? 0 : axis;
    for (int d = 0; d < index->rank; d++)
        index_view.axis[d] = view->axis[first + d];
    MotAxis listed = add_listed_axis(dag, op->in[1], &index_view, table->dims[axis]);
    for (int d = 0; d < table->rank; d++)
        own.axis[d] = d < axis    ? view->axis[d]
                      : d == axis ? listed
                                  : view->axis[d + index->rank - (axis - first) - 1];
    MotNode value = mot_dag_build(dag, op->in[0], &own);
    dag->guard = outer;
    return value;
}

/* The loops that a view depends on. */
static uint32_t find_loops(const MotDag *dag, const MotView *view)
{
    uint32_t loops = 0;
    for (int d = 0; d < view->rank; d++) {
        if (view->axis[d].loop >= 0)
            loops |= 1u << view->axis[d].loop;
        if (view->axis[d].index)
            loops |= dag->nest->nodes.data[view->axis[d].index].loops;
    }
    return loops;
}

/*
 * A loop of this extent to reduce over: one that the result does not depend on, or a new one. Adds
 * it to *taken.
 */
static MotAxis take_reduced_loop(MotDag *dag, int64_t dim, uint32_t *taken)
{
    MotExtent extent = mot_extent_make(dim);
    if (dim == 1)
        return (MotAxis){.loop = -1};
    int loop = 0;
    while (loop < dag->nest->n_loops &&
           (*taken >> loop & 1 || !mot_extent_equal(dag->nest->loop[loop].extent, extent)))
        loop++;
    if (loop == dag->nest->n_loops)
        loop = mot_nest_add_loop(dag->ctx, dag->nest, extent);
    if (loop < 0)
        return (MotAxis){.loop = -1};
    *taken |= 1u << loop;
    dag->reduced |= 1u << loop;
    return (MotAxis){.loop = loop, .step = 1};
}

static MotNode add_reduce(MotDag *dag, MotOpKind kind, MotNode x, uint32_t loops)
{
    if (!loops || !x)
        return x;
    MotNode node = add_node(dag, (MotNodeInfo){.kind = MOT_NODE_REDUCE,
                                               .op = kind,
                                               .dtype = dag->nest->nodes.data[x].dtype,
                                               .arg = {x},
                                               .over = loops});
    dag->nest->nodes.data[node].loops &= ~loops;
    return node;
}

static MotNode build_reduce(MotDag *dag, const MotOp *op, const MotView *view)
{
    const MotAttr_reduce *a = mot_attrs(op, reduce);
    const MotType *type = type_of(dag, op->in[0]);
    uint32_t is_reduced = 0, before = find_loops(dag, view), taken = before;
    for (uint32_t i = 0; i < a->axes.n; i++)
        is_reduced |= 1u << a->axes.data[i];
    MotView own = {.rank = type->rank};
    for (int d = 0, from = 0; d < type->rank; d++) {
        if (is_reduced >> d & 1)
            own.axis[d] = take_reduced_loop(dag, type->dims[d], &taken);
        else
            own.axis[d] = view->axis[from];
        from += !(is_reduced >> d & 1) || a->keep;
    }
    return add_reduce(dag, op->kind, mot_dag_build(dag, op->in[0], &own), taken & ~before);
}

/* The axis of a letter that is cut: through the list, along a loop over it. */
static MotAxis add_cut_axis(MotDag *dag, const MotOp *op, uint32_t *taken)
{
    const char *spec = mot_attrs(op, contract)->spec;
    int64_t dim = strchr(spec, mot_contract_cut(op)) - spec;
    MotValue list = mot_contract_index(op);
    MotView view = {.rank = 1};
    view.axis[0] = take_reduced_loop(dag, type_of(dag, list)->dims[0], taken);
    return add_listed_axis(dag, list, &view, type_of(dag, op->in[0])->dims[dim]);
}

/* A contraction that is no GEMM: the sum of products. */
static MotNode build_contract(MotDag *dag, const MotOp *op, const MotView *view)
{
    MotAxis axis[128];
    bool is_known[128] = {false};
    MotNode outer = dag->guard;
    const char *spec = mot_attrs(op, contract)->spec, *result = strstr(spec, "->") + 2;
    uint32_t before = find_loops(dag, view), taken = before;
    for (int d = 0; result[d]; d++) {
        axis[(int)result[d]] = view->axis[d];
        is_known[(int)result[d]] = true;
    }
    if (mot_contract_index(op)) {
        axis[(int)mot_contract_cut(op)] = add_cut_axis(dag, op, &taken);
        is_known[(int)mot_contract_cut(op)] = true;
    }
    MotNode product[2];
    for (int i = 0; i < 2; i++, spec++) {
        const MotType *type = type_of(dag, op->in[i]);
        MotView own = {.rank = type->rank};
        for (int d = 0; d < type->rank; d++, spec++) {
            int letter = *spec;
            if (!is_known[letter])
                axis[letter] = take_reduced_loop(dag, type->dims[d], &taken);
            is_known[letter] = true;
            own.axis[d] = axis[letter];
        }
        product[i] = mot_dag_build(dag, op->in[i], &own);
    }
    dag->guard = outer;
    MotDtype dtype = type_of(dag, op->out[0])->dtype;
    MotNode x = add_op(dag, MOT_OP_MUL, dtype, product[0], product[1], 0);
    return add_reduce(dag, MOT_OP_REDUCE_SUM, x, taken & ~before);
}

static MotNode build_load(MotDag *dag, const MotType *type, MotValue v, const MotView *view)
{
    MotAccess *access = mot_arena_new(&dag->ctx->arena, MotAccess);
    *access = mot_access_make(type, dag->buf_of[v] - 1, view);
    return add_node(dag, (MotNodeInfo){.kind = MOT_NODE_LOAD,
                                       .dtype = type->dtype,
                                       .arg = {dag->guard},
                                       .access = access});
}

/*
 * Reshapes: of what lies in a buffer, the same bytes with other dims; otherwise only sizes of 1 may
 * come and go.
 */
static MotNode build_reshape(MotDag *dag, const MotOp *op, const MotView *view)
{
    const MotType *to = type_of(dag, op->out[0]), *from = type_of(dag, op->in[0]);
    MotValue leaf = op->in[0];
    while (!dag->buf_of[leaf] && mot_graph_def(dag->g, leaf)->kind == MOT_OP_RESHAPE)
        leaf = mot_graph_def(dag->g, leaf)->in[0];
    if (dag->buf_of[leaf])
        return build_load(dag, to, leaf, view);
    MotView own = {.rank = from->rank};
    int t = 0;
    for (int f = 0; f < from->rank; f++) {
        own.axis[f] = (MotAxis){.loop = -1};
        if (from->dims[f] == 1)
            continue;
        while (t < to->rank && to->dims[t] == 1)
            t++;
        if (t == to->rank || to->dims[t] != from->dims[f])
            return refuse(dag, op, "it regroups dims of a value that is not in memory");
        own.axis[f] = view->axis[t++];
    }
    return mot_dag_build(dag, op->in[0], &own);
}

static const DagRule rules[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = build_pointwise,
#include "ir/ops.def"
    [MOT_OP_CONSTANT] = build_constant,   [MOT_OP_IOTA] = build_iota,
    [MOT_OP_CAST] = build_cast,           [MOT_OP_RESHAPE] = build_reshape,
    [MOT_OP_TRANSPOSE] = build_transpose, [MOT_OP_BROADCAST] = build_broadcast,
    [MOT_OP_SLICE] = build_slice,         [MOT_OP_PAD] = build_pad,
    [MOT_OP_CONCAT] = build_concat,       [MOT_OP_GATHER] = build_gather,
    [MOT_OP_REDUCE_SUM] = build_reduce,   [MOT_OP_REDUCE_MAX] = build_reduce,
    [MOT_OP_CONTRACT] = build_contract,
};

static bool views_are_equal(const MotView *a, const MotView *b)
{
    if (a->rank != b->rank)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->axis[d].loop != b->axis[d].loop || a->axis[d].index != b->axis[d].index ||
            a->axis[d].start != b->axis[d].start || a->axis[d].step != b->axis[d].step)
            return false;
    return true;
}

MotNode mot_dag_build(MotDag *dag, MotValue v, const MotView *view)
{
    if (dag->ctx->status != MOT_OK)
        return 0;
    for (uint32_t i = 0; i < dag->built.n; i++) {
        const MotBuilt *b = &dag->built.data[i];
        if (b->value == v && b->guard == dag->guard && views_are_equal(&b->view, view))
            return b->node;
    }
    const MotOp *op = mot_graph_def(dag->g, v);
    MotNode node;
    if (dag->buf_of[v])
        node = build_load(dag, type_of(dag, v), v, view);
    else if (rules[op->kind])
        node = rules[op->kind](dag, op, view);
    else
        node = refuse(dag, op, "it is joined to others in a way that has no kernel");
    mot_vec_push(&dag->ctx->arena, &dag->built, (MotBuilt){v, *view, dag->guard, node});
    return node;
}
