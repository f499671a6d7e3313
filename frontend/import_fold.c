/*
 * What is known at import: values that follow from constants and shapes.
 *
 * After each node the ops it appended are computed if all their operands are known; the driver
 * keeps the contents beside the graph. The ops stay until the end, when known values that others
 * use become constants and the rest is dropped. Invariant: known[v].data is NULL or the contents of
 * v, which are given back at the end of the import: what decomposed attention masks go through is
 * large, what is left of it is not. Cost: one evaluation an op, results up to a size limit.
 */
#include "frontend/import_node.h"
#include "ir/eval.h"

#include <string.h>

enum { DEFAULT_FOLD_BYTES = 64 << 20, MAX_FOLD_OPERANDS = 64 };
static const double max_fold_flops = 1e8;

const MotTensor *mot_import_known(const MotImport *im, MotValue v)
{
    return v < im->known.n && im->known.data[v].type.dtype ? &im->known.data[v] : NULL;
}

static void learn(MotImport *im, MotValue v, MotTensor contents)
{
    while (im->known.n <= v)
        mot_vec_push(&im->ctx->arena, &im->known, (MotTensor){0});
    im->known.data[v] = contents;
}

static bool is_small(const MotImport *im, const MotOp *op)
{
    int64_t limit = im->opts->max_fold_bytes ? im->opts->max_fold_bytes : DEFAULT_FOLD_BYTES;
    for (uint32_t i = 0; i < op->n_out; i++)
        if (mot_type_bytes(mot_graph_type(im->g, op->out[i])) > limit)
            return false;
    return mot_op_flops(im->g, op) <= max_fold_flops;
}

static bool follows_from_known(const MotImport *im, const MotOp *op)
{
    if (op->kind == MOT_OP_INPUT || op->kind == MOT_OP_PARAM || op->n_out == 0)
        return false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && !mot_import_known(im, op->in[i]))
            return false;
    return op->n_in <= MAX_FOLD_OPERANDS && is_small(im, op);
}

static MotStatus compute(MotImport *im, const MotOp *op)
{
    MotTensor in[MAX_FOLD_OPERANDS] = {0}, out[4] = {0};
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i])
            in[i] = *mot_import_known(im, op->in[i]);
    for (uint32_t i = 0; i < op->n_out; i++) {
        out[i].type = *mot_graph_type(im->g, op->out[i]);
        out[i].data = mot_arena_alloc(im->contents, (size_t)mot_type_bytes(&out[i].type));
    }
    MOT_TRY(mot_eval_op(im->ctx, im->g, op, in, out));
    for (uint32_t i = 0; i < op->n_out; i++)
        learn(im, op->out[i], out[i]);
    return MOT_OK;
}

MotStatus mot_import_fold(MotImport *im, MotOpId first)
{
    for (MotOpId id = first; id < im->g->ops.n; id++) {
        const MotOp *op = mot_graph_op(im->g, id);
        if (op->kind == MOT_OP_CONSTANT)
            learn(im, op->out[0], mot_attrs(op, constant)->data);
        else if (follows_from_known(im, op))
            MOT_TRY(compute(im, op));
    }
    return MOT_OK;
}

/* ---- Constants at the end ---- */

/*
 * Whether all slices of the tensor along an axis are equal; `outer` and `inner` count the elements
 * around it.
 */
static bool repeats_along(const MotTensor *t, int64_t outer, int64_t size, int64_t inner)
{
    size_t bytes = (size_t)(inner * mot_dtype_bytes(t->type.dtype));
    const char *slice = t->data;
    for (int64_t o = 0; o < outer; o++, slice += (size_t)size * bytes)
        for (int64_t k = 1; k < size; k++)
            if (memcmp(slice, slice + (size_t)k * bytes, bytes) != 0)
                return false;
    return true;
}

/* Keeps the first slice along an axis. */
static MotTensor take_first(MotArena *arena, const MotTensor *t, int axis, int64_t outer,
                            int64_t inner)
{
    MotTensor first = *t;
    size_t bytes = (size_t)(inner * mot_dtype_bytes(t->type.dtype));
    first.type.dims[axis] = 1;
    first.data = mot_arena_alloc(arena, (size_t)outer * bytes);
    for (int64_t o = 0; o < outer; o++)
        memcpy((char *)first.data + (size_t)o * bytes,
               (const char *)t->data + (size_t)(o * t->type.dims[axis]) * bytes, bytes);
    return first;
}

/*
 * A constant op for the contents, the smallest that broadcasts to them: a mask expanded over batch
 * and heads is stored once, a filled tensor as a scalar.
 */
static MotValue make_constant(MotImport *im, MotTensor t)
{
    MotType type = t.type;
    int64_t inner = 1, n = mot_type_elements(&type);
    for (int axis = type.rank - 1; axis >= 0 && n > 0; axis--) {
        int64_t size = type.dims[axis], outer = mot_type_elements(&t.type) / size / inner;
        if (size > 1 && repeats_along(&t, outer, size, inner))
            t = take_first(im->contents, &t, axis, outer, inner);
        inner *= t.type.dims[axis];
    }
    if (n > 1 && mot_type_elements(&t.type) == 1)
        t.type.rank = 0;
    t.data = mot_arena_copy(&im->ctx->arena, t.data, (size_t)mot_type_bytes(&t.type));
    return mot_broadcast(&im->b, mot_constant(&im->b, t), type.rank, type.dims);
}

void mot_import_materialize(MotImport *im)
{
    MotGraph *g = im->g;
    MotArena *arena = &im->ctx->arena;
    MotOpId end = g->ops.n;
    MotValue *constant = mot_arena_array(arena, MotValue, g->values.n);
    MotVec(MotValue) from = {0}, to = {0};
    for (MotOpId id = 1; id < end; id++) {
        MotOp op = *mot_graph_op(g, id);
        if (op.n_out && mot_import_known(im, op.out[0]))
            continue;
        for (uint32_t i = 0; i < op.n_in; i++) {
            MotValue v = op.in[i];
            const MotTensor *known = mot_import_known(im, v);
            if (!known || constant[v] || mot_graph_def(g, v)->kind == MOT_OP_CONSTANT)
                continue;
            im->b.origin = mot_graph_def(g, v)->origin;
            constant[v] = make_constant(im, *known);
            g->values.data[constant[v]].name = g->values.data[v].name;
            mot_vec_push(arena, &from, v);
            mot_vec_push(arena, &to, constant[v]);
        }
    }
    mot_graph_replace(g, from.data, to.data, from.n);
}

/* ---- Contents that a lowering asks for ---- */

static bool is_offered(const MotImport *im, const char *name)
{
    for (uint32_t i = 0; i < im->opts->n_inputs; i++)
        if (strcmp(im->opts->inputs[i].name, name) == 0)
            return true;
    return false;
}

/*
 * The first source that v depends on and that is not known; offered inputs on the way are noted as
 * needed.
 */
static const MotOp *find_unknown_source(MotImport *im, MotValue v)
{
    MotGraph *g = im->g;
    const MotOp *unknown = NULL;
    uint8_t *is_seen = mot_arena_array(&im->ctx->arena, uint8_t, g->ops.n);
    MotVec(MotOpId) stack = {0};
    mot_vec_push(&im->ctx->arena, &stack, g->values.data[v].def);
    while (stack.n) {
        MotOpId id = stack.data[--stack.n];
        const MotOp *op = mot_graph_op(g, id);
        if (is_seen[id]++)
            continue;
        if (op->kind == MOT_OP_INPUT && is_offered(im, mot_attrs(op, input)->name))
            im->starts_again |= !mot_map_put_str(&im->needed, mot_attrs(op, input)->name, 1);
        else if (op->n_in == 0 && !mot_import_known(im, op->out[0]))
            unknown = op;
        for (uint32_t i = 0; i < op->n_in; i++)
            if (op->in[i] && !mot_import_known(im, op->in[i]))
                mot_vec_push(&im->ctx->arena, &stack, g->values.data[op->in[i]].def);
    }
    return unknown;
}

const MotTensor *mot_node_known(MotNode *n, uint32_t i)
{
    MotImport *im = n->im;
    if (!mot_node_ok(n) || i >= n->n_in || !n->in[i])
        return NULL;
    const MotTensor *known = mot_import_known(im, n->in[i]);
    if (known)
        return known;
    const MotOp *source = find_unknown_source(im, n->in[i]);
    mot_node_fail(n, MOT_ERR_UNSUPPORTED, "the shape of the result depends on the contents of %s",
                  mot_node_operand_text(n, i));
    if (source && source->kind == MOT_OP_INPUT)
        mot_hint(im->ctx,
                 "it follows from input %s, whose contents must be given to make it a constant",
                 mot_quote(&im->ctx->arena, mot_attrs(source, input)->name));
    else if (source && source->kind == MOT_OP_PARAM)
        mot_hint(im->ctx, "it follows from initializer %s, which may change in training",
                 mot_quote(&im->ctx->arena, mot_attrs(source, param)->name));
    return NULL;
}

bool mot_node_known_ints(MotNode *n, uint32_t i, MotInts *out_list)
{
    const MotTensor *known = mot_node_known(n, i);
    *out_list = (MotInts){0};
    if (!known)
        return false;
    if (mot_dtype_class(known->type.dtype) != MOT_CLASS_INT || known->type.rank > 1) {
        mot_node_fail(n, MOT_ERR_MODEL, "input %s must be integers, a vector or a scalar",
                      mot_node_operand_text(n, i));
        return false;
    }
    out_list->n = (uint32_t)mot_type_elements(&known->type);
    out_list->data = mot_arena_array(&n->im->ctx->arena, int64_t, out_list->n);
    for (uint32_t k = 0; k < out_list->n; k++)
        out_list->data[k] = mot_tensor_get_int(known, k);
    return true;
}
