/* Builders: one generic mot_build, and a thin function an op where one reads better. */
#include "ir/builder.h"

#include <string.h>

MotBuilder mot_builder_make(MotGraph *graph)
{
    return (MotBuilder){.graph = graph};
}

/* Copies the attribute struct and what it points to. */
static void *copy_attrs(MotCtx *ctx, const MotOpInfo *info, const void *attrs)
{
    char *copy = mot_arena_alloc(&ctx->arena, info->attrs_bytes);
    if (!attrs)
        return copy;
    memcpy(copy, attrs, info->attrs_bytes);
    for (const MotAttrField *f = info->fields; f->name; f++) {
        if (f->kind == MOT_ATTR_STR) {
            const char **s = (const char **)(void *)(copy + f->offset);
            *s = *s ? mot_intern(ctx, *s) : NULL;
        } else if (f->kind == MOT_ATTR_INTS) {
            MotInts *list = (MotInts *)(void *)(copy + f->offset);
            list->data = mot_arena_copy(&ctx->arena, list->data, list->n * sizeof *list->data);
        }
    }
    return copy;
}

static MotStatus check_operands(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in)
{
    const MotOpInfo *info = mot_op_info(kind);
    MotGraph *g = b->graph;
    MotLoc loc = {NULL, b->origin ? mot_quote(&g->ctx->arena, b->origin) : NULL};
    if (n_in < info->n_min || n_in > info->n_max)
        return mot_fail(g->ctx, MOT_ERR_MODEL, loc, "%s takes %u to %u operands, not %u",
                        info->name, info->n_min, info->n_max, n_in);
    for (uint32_t i = 0; i < n_in; i++)
        if (in[i] >= g->values.n || (in[i] == 0 && i < info->n_min))
            return mot_fail(g->ctx, MOT_ERR_INTERNAL, loc, "%s: operand %u is no value", info->name,
                            i);
    return MOT_OK;
}

static MotStatus check_region(MotBuilder *b, MotOpKind kind, const MotGraph *region)
{
    MotCtx *ctx = b->graph->ctx;
    MotLoc loc = {NULL, b->origin ? mot_quote(&ctx->arena, b->origin) : NULL};
    const MotOpInfo *info = mot_op_info(kind);
    bool owns_one = info->flags & MOT_FLAG_REGION;
    if (owns_one != (region != NULL))
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "%s %s", info->name,
                        owns_one ? "needs a region, { ... }" : "has no region");
    if (region && b->graph->symbols.n)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, loc,
                        "%s: a graph with symbolic dims has no regions", info->name);
    if (region && mot_graph_region_depth(region) >= MOT_MAX_REGION_DEPTH)
        return mot_fail(ctx, MOT_ERR_LIMIT, loc, "%s: more than %d regions in one another",
                        info->name, MOT_MAX_REGION_DEPTH);
    return MOT_OK;
}

static MotOp make_op(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                     const void *attrs, MotGraph *region)
{
    uint32_t n_out = mot_op_n_results(kind, region);
    MotCtx *ctx = b->graph->ctx;
    const MotOpInfo *info = mot_op_info(kind);
    return (MotOp){.kind = kind,
                   .role = b->role,
                   .fwd = b->fwd,
                   .origin = b->origin,
                   .in = mot_arena_copy(&ctx->arena, in, n_in * sizeof *in),
                   .out = mot_arena_array(&ctx->arena, MotValue, n_out),
                   .n_in = n_in,
                   .n_out = n_out,
                   .attrs = copy_attrs(ctx, info, attrs),
                   .region = region};
}

static MotOpId append_op(MotGraph *g, MotOp op, const MotType *types)
{
    MotOpId id = g->ops.n;
    for (uint32_t i = 0; i < op.n_out; i++) {
        op.out[i] = g->values.n;
        mot_vec_push(&g->ctx->arena, &g->values,
                     (MotValueInfo){.type = types[i], .def = id, .def_index = i});
    }
    mot_vec_push(&g->ctx->arena, &g->ops, op);
    mot_vec_push(&g->ctx->arena, &g->body, id);
    return id;
}

MotOpId mot_build_typed(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                        const void *attrs, const MotType *types)
{
    if (b->graph->ctx->status != MOT_OK || check_operands(b, kind, in, n_in) != MOT_OK ||
        check_region(b, kind, NULL) != MOT_OK)
        return 0;
    return append_op(b->graph, make_op(b, kind, in, n_in, attrs, NULL), types);
}

MotOpId mot_build_region(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                         const void *attrs, MotGraph *region)
{
    if (b->graph->ctx->status != MOT_OK || check_operands(b, kind, in, n_in) != MOT_OK ||
        check_region(b, kind, region) != MOT_OK)
        return 0;
    MotOp op = make_op(b, kind, in, n_in, attrs, region);
    MotType types[MOT_MAX_RESULTS] = {{0}};
    if (mot_infer(b->graph, &op, types) != MOT_OK)
        return 0;
    return append_op(b->graph, op, types);
}

MotOpId mot_build(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                  const void *attrs)
{
    return mot_build_region(b, kind, in, n_in, attrs, NULL);
}

MotValue mot_result(const MotBuilder *b, MotOpId op, uint32_t i)
{
    return op ? b->graph->ops.data[op].out[i] : 0;
}

static MotValue build_one(MotBuilder *b, MotOpKind kind, const MotValue *in, uint32_t n_in,
                          const void *attrs)
{
    return mot_result(b, mot_build(b, kind, in, n_in, attrs), 0);
}

#define ARGS_1 x
#define ARGS_2 x, y
#define ARGS_3 x, y, z
#define POINTWISE(id, name, arity, classes, result, expression)                                    \
    MotValue mot_##name(MotBuilder *b, MOT_PARAMS_##arity)                                         \
    {                                                                                              \
        return build_one(b, MOT_OP_##id, (MotValue[]){ARGS_##arity}, arity, NULL);                 \
    }
#include "ir/ops.def"

/* The type of x, or a scalar of no dtype for value 0. */
static const MotType *type_of(const MotBuilder *b, MotValue x)
{
    return mot_graph_type(b->graph, x);
}

/*
 * A struct that is passed by value gets a list attribute from a const array: it is copied, never
 * written.
 */
static MotInts list_of(const int64_t *data, uint32_t n)
{
    union {
        const int64_t *in;
        int64_t *out;
    } u = {.in = data};
    return (MotInts){u.out, n};
}

/* The type of a source, which nothing gives but the caller. */
static MotValue set_type(MotBuilder *b, MotValue v, MotType type)
{
    if (v)
        b->graph->values.data[v].type = type;
    return v;
}

MotValue mot_input(MotBuilder *b, const char *name, MotType type)
{
    return set_type(b, build_one(b, MOT_OP_INPUT, NULL, 0, &(MotAttr_input){.name = name}), type);
}

MotValue mot_param(MotBuilder *b, const MotAttr_param *attrs, MotType type)
{
    return set_type(b, build_one(b, MOT_OP_PARAM, NULL, 0, attrs), type);
}

MotValue mot_constant(MotBuilder *b, MotTensor data)
{
    return build_one(b, MOT_OP_CONSTANT, NULL, 0, &(MotAttr_constant){.data = data});
}

MotValue mot_scalar(MotBuilder *b, MotDtype dtype, double value)
{
    MotTensor t = {mot_type_scalar(dtype), mot_arena_alloc(&b->graph->ctx->arena, sizeof(double))};
    mot_tensor_set(&t, 0, value);
    return mot_constant(b, t);
}

MotValue mot_scalar_like(MotBuilder *b, MotValue x, double value)
{
    return x ? mot_scalar(b, type_of(b, x)->dtype, value) : 0;
}

MotOpId mot_output(MotBuilder *b, const char *name, MotValue x)
{
    return mot_build(b, MOT_OP_OUTPUT, &x, 1, &(MotAttr_output){.name = name});
}

MotValue mot_iota(MotBuilder *b, MotDtype dtype, int rank, const int64_t *dims, int axis)
{
    MotAttr_iota attrs = {.dims = list_of(dims, (uint32_t)rank), .axis = axis, .dtype = dtype};
    return build_one(b, MOT_OP_IOTA, NULL, 0, &attrs);
}

MotValue mot_add_scalar(MotBuilder *b, MotValue x, double s)
{
    return mot_add(b, x, mot_scalar_like(b, x, s));
}

MotValue mot_mul_scalar(MotBuilder *b, MotValue x, double s)
{
    return mot_mul(b, x, mot_scalar_like(b, x, s));
}

MotValue mot_rsub(MotBuilder *b, double s, MotValue x)
{
    return mot_sub(b, mot_scalar_like(b, x, s), x);
}

MotValue mot_cast(MotBuilder *b, MotValue x, MotDtype dtype)
{
    if (type_of(b, x)->dtype == dtype)
        return x;
    return build_one(b, MOT_OP_CAST, &x, 1, &(MotAttr_cast){.dtype = dtype});
}

static bool has_dims(const MotBuilder *b, MotValue x, int rank, const int64_t *dims)
{
    const MotType *type = type_of(b, x);
    return x && type->rank == rank && memcmp(type->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

MotValue mot_reshape(MotBuilder *b, MotValue x, int rank, const int64_t *dims)
{
    if (has_dims(b, x, rank, dims))
        return x;
    return build_one(b, MOT_OP_RESHAPE, &x, 1,
                     &(MotAttr_dims){.dims = list_of(dims, (uint32_t)rank)});
}

MotValue mot_transpose(MotBuilder *b, MotValue x, const int64_t *perm)
{
    uint32_t rank = (uint32_t)type_of(b, x)->rank;
    bool is_identity = true;
    for (uint32_t i = 0; i < rank; i++)
        is_identity = is_identity && perm[i] == i;
    if (is_identity)
        return x;
    return build_one(b, MOT_OP_TRANSPOSE, &x, 1, &(MotAttr_perm){.perm = list_of(perm, rank)});
}

MotValue mot_broadcast(MotBuilder *b, MotValue x, int rank, const int64_t *dims)
{
    if (has_dims(b, x, rank, dims))
        return x;
    return build_one(b, MOT_OP_BROADCAST, &x, 1,
                     &(MotAttr_dims){.dims = list_of(dims, (uint32_t)rank)});
}

MotValue mot_slice(MotBuilder *b, MotValue x, const int64_t *start, const int64_t *size,
                   const int64_t *step)
{
    uint32_t rank = (uint32_t)type_of(b, x)->rank;
    MotAttr_slice attrs = {
        .start = list_of(start, rank), .size = list_of(size, rank), .step = list_of(step, rank)};
    return build_one(b, MOT_OP_SLICE, &x, 1, &attrs);
}

MotValue mot_slice_axis(MotBuilder *b, MotValue x, int axis, int64_t start, int64_t size)
{
    const MotType *type = type_of(b, x);
    if (start == 0 && axis < type->rank && type->dims[axis] == size)
        return x;
    int64_t starts[MOT_MAX_RANK], sizes[MOT_MAX_RANK], steps[MOT_MAX_RANK];
    for (int i = 0; i < type->rank; i++) {
        starts[i] = i == axis ? start : 0;
        sizes[i] = i == axis ? size : type->dims[i];
        steps[i] = 1;
    }
    return mot_slice(b, x, starts, sizes, steps);
}

MotValue mot_pad(MotBuilder *b, MotValue x, const int64_t *lo, const int64_t *hi, double value)
{
    uint32_t rank = (uint32_t)type_of(b, x)->rank;
    MotAttr_pad attrs = {.lo = list_of(lo, rank), .hi = list_of(hi, rank), .value = value};
    return build_one(b, MOT_OP_PAD, &x, 1, &attrs);
}

MotValue mot_concat(MotBuilder *b, const MotValue *x, uint32_t n, int axis)
{
    if (n == 1)
        return x[0];
    return build_one(b, MOT_OP_CONCAT, x, n, &(MotAttr_axis){.axis = axis});
}

MotValue mot_gather(MotBuilder *b, MotValue table, MotValue index, int axis)
{
    return build_one(b, MOT_OP_GATHER, (MotValue[]){table, index}, 2,
                     &(MotAttr_gather){.axis = axis});
}

MotValue mot_gather_batched(MotBuilder *b, MotValue table, MotValue index, int axis)
{
    return build_one(b, MOT_OP_GATHER, (MotValue[]){table, index}, 2,
                     &(MotAttr_gather){.axis = axis, .batched = true});
}

MotValue mot_scatter_add(MotBuilder *b, MotValue index, MotValue update, int axis, int64_t size)
{
    MotAttr_scatter attrs = {.axis = axis, .size = size};
    return build_one(b, MOT_OP_SCATTER_ADD, (MotValue[]){index, update}, 2, &attrs);
}

MotValue mot_scatter_add_batched(MotBuilder *b, MotValue index, MotValue update, int axis,
                                 int64_t size)
{
    MotAttr_scatter attrs = {.axis = axis, .size = size, .batched = true};
    return build_one(b, MOT_OP_SCATTER_ADD, (MotValue[]){index, update}, 2, &attrs);
}

MotValue mot_top_k(MotBuilder *b, MotValue x, int64_t k, MotValue *out_value)
{
    MotOpId op = mot_build(b, MOT_OP_TOP_K, &x, 1, &(MotAttr_top_k){.k = k});
    *out_value = mot_result(b, op, 1);
    return mot_result(b, op, 0);
}

MotValue mot_scatter_mean(MotBuilder *b, MotValue index, MotValue value, int64_t size)
{
    return build_one(b, MOT_OP_SCATTER_MEAN, (MotValue[]){index, value}, 2,
                     &(MotAttr_size){.size = size});
}

static MotValue build_reduce(MotBuilder *b, MotOpKind kind, MotValue x, MotAttr_reduce attrs)
{
    return attrs.axes.n == 0 ? x : build_one(b, kind, &x, 1, &attrs);
}

MotValue mot_reduce_sum(MotBuilder *b, MotValue x, const int64_t *axes, uint32_t n_axes, bool keep)
{
    return build_reduce(b, MOT_OP_REDUCE_SUM, x,
                        (MotAttr_reduce){.axes = list_of(axes, n_axes), .keep = keep});
}

MotValue mot_reduce_max(MotBuilder *b, MotValue x, const int64_t *axes, uint32_t n_axes, bool keep)
{
    return build_reduce(b, MOT_OP_REDUCE_MAX, x,
                        (MotAttr_reduce){.axes = list_of(axes, n_axes), .keep = keep});
}

MotValue mot_sum_to(MotBuilder *b, MotValue x, int rank, const int64_t *dims)
{
    const MotType type = *type_of(b, x);
    int64_t axes[MOT_MAX_RANK];
    uint32_t n = 0;
    int extra = type.rank - rank;
    for (int i = 0; i < type.rank; i++)
        if (i < extra || (dims[i - extra] == 1 && type.dims[i] != 1))
            axes[n++] = i;
    return mot_reshape(b, mot_reduce_sum(b, x, axes, n, MOT_KEEP), rank, dims);
}

MotValue mot_contract(MotBuilder *b, MotValue x, MotValue y, const char *spec)
{
    return build_one(b, MOT_OP_CONTRACT, (MotValue[]){x, y}, 2, &(MotAttr_contract){.spec = spec});
}

MotValue mot_contract_listed(MotBuilder *b, MotValue x, MotValue y, MotValue k_index,
                             const char *spec, char cut)
{
    MotAttr_contract attrs = {.spec = spec, .cut = (const char[]){cut, 0}};
    return build_one(b, MOT_OP_CONTRACT, (MotValue[]){x, y, k_index}, 3, &attrs);
}
