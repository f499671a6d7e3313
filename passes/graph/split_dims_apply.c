/*
 * The second half of split-dims: the graph built anew, every value with its atoms as dims.
 *
 * One rule an op. An op without a rule, or a slice that crosses atoms, gets its operands reshaped
 * back to whole dims: always right, never needed for the ops that training graphs are made of.
 * Results are reshaped to their atoms where the op gives something else (inputs; dims of size 1
 * that a reduction keeps), which costs nothing where they are equal.
 */
#include "passes/graph/contract_spec.h"
#include "passes/graph/split_dims.h"

#include <string.h>

typedef struct {
    const MotSplit *split;
    const MotGraph *old;
    MotGraph *new;
    MotBuilder b;
    MotValue *value; /* old value -> new */
    MotOpId *op;     /* old op -> new */
} Apply;

/* A shape under construction. */
typedef struct {
    int rank;
    int64_t dims[MOT_MAX_RANK];
} Shape;

static void add_dim(Shape *shape, int64_t size)
{
    shape->dims[shape->rank++] = size;
}

static const MotAtoms *atoms(const Apply *a, MotValue v, int dim)
{
    return mot_split_atoms(a->split, v, dim);
}

static const MotType *type_of(const Apply *a, MotValue v)
{
    return mot_graph_type(a->old, v);
}

/* The atoms of all dims of v. */
static Shape shape_of(const Apply *a, MotValue v)
{
    Shape shape = {0};
    for (int d = 0; d < type_of(a, v)->rank; d++)
        for (uint32_t i = 0; i < atoms(a, v, d)->n; i++)
            add_dim(&shape, atoms(a, v, d)->size[i]);
    return shape;
}

/* Where the atoms of dim d of v begin. */
static int position(const Apply *a, MotValue v, int dim)
{
    int at = 0;
    for (int d = 0; d < dim; d++)
        at += (int)atoms(a, v, d)->n;
    return at;
}

static MotValue operand(const Apply *a, const MotOp *op, uint32_t i)
{
    return op->in[i] ? a->value[op->in[i]] : 0;
}

/* Operand i in its shape before the split. */
static MotValue whole_operand(Apply *a, const MotOp *op, uint32_t i)
{
    const MotType *type = type_of(a, op->in[i]);
    return op->in[i] ? mot_reshape(&a->b, operand(a, op, i), type->rank, type->dims) : 0;
}

/* ---- Rules; each returns the new op ---- */

static MotOpId apply_whole(Apply *a, const MotOp *op)
{
    MotValue in[MOT_MAX_OPERANDS] = {0};
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = whole_operand(a, op, i);
    return mot_build_region(&a->b, op->kind, in, op->n_in, op->attrs, op->region);
}

static MotOpId apply_input(Apply *a, const MotOp *op)
{
    MotType type = *type_of(a, op->out[0]);
    return mot_build_typed(&a->b, op->kind, NULL, 0, op->attrs, &type);
}

/* What a reader of the graph sees is whole, and has the name. */
static MotOpId apply_output(Apply *a, const MotOp *op)
{
    MotValue in_atoms = operand(a, op, 0), whole = whole_operand(a, op, 0);
    MotValueInfo *values = a->new->values.data;
    if (whole != in_atoms) {
        values[whole].name = values[in_atoms].name;
        values[in_atoms].name = NULL;
    }
    return mot_build(&a->b, op->kind, &whole, 1, op->attrs);
}

/* The file's atoms are refined where the value's dims are. */
static MotOpId apply_param(Apply *a, const MotOp *op)
{
    MotAttr_param attrs = *mot_attrs(op, param);
    MotValue v = op->out[0];
    const MotType type = *type_of(a, v);
    int dim_of_atom[MOT_MAX_RANK] = {0}, start[MOT_MAX_RANK] = {0}, n = 0;
    int64_t perm[MOT_MAX_RANK];
    for (int d = 0; d < type.rank; d++)
        dim_of_atom[attrs.perm.n ? attrs.perm.data[d] : d] = d;
    for (int k = 0; k < type.rank; k++) {
        start[dim_of_atom[k]] = n;
        n += (int)atoms(a, v, dim_of_atom[k])->n;
    }
    Shape shape = shape_of(a, v);
    for (int d = 0, at = 0; d < type.rank; d++)
        for (uint32_t i = 0; i < atoms(a, v, d)->n; i++)
            perm[at++] = start[d] + (int)i;
    MotInts own = {a->old->values.data[v].type.dims, (uint32_t)type.rank};
    attrs.file_dims = attrs.file_dims.n ? attrs.file_dims : own;
    attrs.perm = (MotInts){perm, (uint32_t)shape.rank};
    MotType split = mot_type_make(type.dtype, shape.rank, shape.dims);
    return mot_build_typed(&a->b, op->kind, NULL, 0, &attrs, &split);
}

static MotOpId apply_constant(Apply *a, const MotOp *op)
{
    MotAttr_constant attrs = *mot_attrs(op, constant);
    Shape shape = shape_of(a, op->out[0]);
    attrs.data.type = mot_type_make(attrs.data.type.dtype, shape.rank, shape.dims);
    return mot_build(&a->b, op->kind, NULL, 0, &attrs);
}

static MotOpId apply_iota(Apply *a, const MotOp *op)
{
    MotAttr_iota attrs = *mot_attrs(op, iota);
    Shape shape = shape_of(a, op->out[0]);
    attrs.axis = position(a, op->out[0], (int)attrs.axis);
    attrs.dims = (MotInts){shape.dims, (uint32_t)shape.rank};
    return mot_build(&a->b, op->kind, NULL, 0, &attrs);
}

/*
 * Operand i of an op that aligns its operands with the result at the last dim: a 1 for each atom
 * that it repeats along.
 */
static MotValue aligned_operand(Apply *a, const MotOp *op, uint32_t i)
{
    MotValue v = op->in[i], out = op->out[0];
    int extra = type_of(a, out)->rank - type_of(a, v)->rank;
    Shape shape = {0};
    for (int d = 0; d < type_of(a, v)->rank; d++) {
        bool repeats = type_of(a, v)->dims[d] != type_of(a, out)->dims[d + extra];
        const MotAtoms *own = atoms(a, v, d), *of_result = atoms(a, out, d + extra);
        for (uint32_t k = 0; k < (repeats ? of_result->n : own->n); k++)
            add_dim(&shape, repeats ? 1 : own->size[k]);
    }
    return mot_reshape(&a->b, operand(a, op, i), shape.rank, shape.dims);
}

/* Pointwise ops, and those with one operand whose attributes say nothing of dims. */
static MotOpId apply_pointwise(Apply *a, const MotOp *op)
{
    MotValue in[3] = {0};
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = aligned_operand(a, op, i);
    return mot_build(&a->b, op->kind, in, op->n_in, op->attrs);
}

static MotOpId apply_broadcast(Apply *a, const MotOp *op)
{
    Shape shape = shape_of(a, op->out[0]);
    MotValue x = aligned_operand(a, op, 0);
    return mot_build(&a->b, op->kind, &x, 1,
                     &(MotAttr_dims){.dims = {shape.dims, (uint32_t)shape.rank}});
}

static MotOpId apply_transpose(Apply *a, const MotOp *op)
{
    const MotInts *old = &mot_attrs(op, perm)->perm;
    int64_t perm[MOT_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t d = 0; d < old->n; d++)
        for (uint32_t i = 0; i < atoms(a, op->in[0], (int)old->data[d])->n; i++)
            perm[n++] = position(a, op->in[0], (int)old->data[d]) + (int)i;
    MotValue x = operand(a, op, 0);
    return mot_build(&a->b, op->kind, &x, 1, &(MotAttr_perm){.perm = {perm, n}});
}

/* The letters of every atom: the first keeps the dim's letter, the others take free ones. */
typedef struct {
    char atom[128][MOT_MAX_RANK + 1];
    bool is_used[128];
} Letters;

static void name_atoms(Letters *l, char letter, uint32_t n)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char *name = l->atom[(int)letter];
    if (name[0])
        return;
    name[0] = letter;
    for (uint32_t i = 1; i < n; i++) {
        const char *free = alphabet;
        while (l->is_used[(int)*free])
            free++;
        l->is_used[(int)*free] = true;
        name[i] = *free;
    }
}

static MotOpId apply_contract(Apply *a, const MotOp *op)
{
    MotSpec old = mot_spec_of(op), spec = {0};
    Letters letters = {0};
    for (int side = 0; side < 2; side++)
        for (const char *p = old.in[side]; *p; p++)
            letters.is_used[(int)*p] = true;
    for (int side = 0; side < 2; side++)
        for (int d = 0; old.in[side][d]; d++)
            name_atoms(&letters, old.in[side][d], atoms(a, op->in[side], d)->n);
    for (int side = 0; side < 2; side++)
        for (int d = 0; old.in[side][d]; d++)
            strcat(spec.in[side], letters.atom[(int)old.in[side][d]]);
    for (int d = 0; old.out[d]; d++)
        strcat(spec.out, letters.atom[(int)old.out[d]]);
    MotAttr_contract attrs = *mot_attrs(op, contract);
    attrs.spec =
        mot_arena_printf(&a->new->ctx->arena, "%s,%s->%s", spec.in[0], spec.in[1], spec.out);
    MotValue in[3] = {operand(a, op, 0), operand(a, op, 1)};
    if (mot_contract_index(op))
        in[2] = operand(a, op, 2);
    return mot_build(&a->b, op->kind, in, in[2] ? 3 : 2, &attrs);
}

static MotOpId apply_reduce(Apply *a, const MotOp *op)
{
    MotAttr_reduce attrs = *mot_attrs(op, reduce);
    int64_t axes[MOT_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t k = 0; k < attrs.axes.n; k++)
        for (uint32_t i = 0; i < atoms(a, op->in[0], (int)attrs.axes.data[k])->n; i++)
            axes[n++] = position(a, op->in[0], (int)attrs.axes.data[k]) + (int)i;
    attrs.axes = (MotInts){axes, n};
    MotValue x = operand(a, op, 0);
    return mot_build(&a->b, op->kind, &x, 1, &attrs);
}

/* The axis of an op, which is not split, and its other dims, which may be. */
static MotOpId apply_gather(Apply *a, const MotOp *op)
{
    MotAttr_gather attrs = *mot_attrs(op, gather);
    attrs.axis = position(a, op->in[0], (int)attrs.axis);
    MotValue in[] = {operand(a, op, 0), operand(a, op, 1)};
    return mot_build(&a->b, op->kind, in, 2, &attrs);
}

static MotOpId apply_concat(Apply *a, const MotOp *op)
{
    MotAttr_axis attrs = {.axis = position(a, op->in[0], (int)mot_attrs(op, axis)->axis)};
    MotValue in[MOT_MAX_OPERANDS];
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = operand(a, op, i);
    return mot_build(&a->b, op->kind, in, op->n_in, &attrs);
}

static MotOpId apply_softmax(Apply *a, const MotOp *op)
{
    MotAttr_softmax attrs = {.axis = position(a, op->in[0], (int)mot_attrs(op, softmax)->axis)};
    MotValue x = operand(a, op, 0);
    return mot_build(&a->b, op->kind, &x, 1, &attrs);
}

static MotOpId apply_layer_norm(Apply *a, const MotOp *op)
{
    MotAttr_norm attrs = *mot_attrs(op, norm);
    attrs.axis = position(a, op->in[0], (int)attrs.axis);
    MotValue in[3] = {0};
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = operand(a, op, i);
    return mot_build(&a->b, op->kind, in, op->n_in, &attrs);
}

static MotOpId apply_cross_entropy(Apply *a, const MotOp *op)
{
    MotValue in[2] = {operand(a, op, 0), operand(a, op, 1)};
    return mot_build(&a->b, op->kind, in, 2, op->attrs);
}

static MotOpId apply_pad(Apply *a, const MotOp *op)
{
    MotAttr_pad attrs = *mot_attrs(op, pad);
    int64_t lo[MOT_MAX_RANK] = {0}, hi[MOT_MAX_RANK] = {0};
    Shape shape = shape_of(a, op->in[0]);
    for (uint32_t d = 0; d < attrs.lo.n; d++) {
        lo[position(a, op->in[0], (int)d)] = attrs.lo.data[d];
        hi[position(a, op->in[0], (int)d)] = attrs.hi.data[d];
    }
    attrs.lo = (MotInts){lo, (uint32_t)shape.rank};
    attrs.hi = (MotInts){hi, (uint32_t)shape.rank};
    MotValue x = operand(a, op, 0);
    return mot_build(&a->b, op->kind, &x, 1, &attrs);
}

/* ---- Slices ---- */

/* A slice in atoms: the ranges of all dims so far. */
typedef struct {
    int n;
    int64_t start[MOT_MAX_RANK], size[MOT_MAX_RANK], step[MOT_MAX_RANK];
} Ranges;

static void add_range(Ranges *r, int64_t start, int64_t size, int64_t step)
{
    r->start[r->n] = start;
    r->size[r->n] = size;
    r->step[r->n++] = step;
}

/*
 * Elements [start, start + size) of a dim as a box of its atoms: all of the inner ones, a range of
 * one, one index of each outer one. False if they are no box.
 */
static bool add_box(Ranges *r, const MotAtoms *dim, int64_t start, int64_t size)
{
    int64_t inner[MOT_MAX_RANK + 1];
    inner[dim->n] = 1;
    for (uint32_t i = dim->n; i-- > 0;)
        inner[i] = inner[i + 1] * dim->size[i];
    uint32_t at = 0;
    while (at < dim->n && (size == 0 || start % inner[at + 1] != 0 || size % inner[at + 1] != 0 ||
                           start / inner[at] != (start + size - 1) / inner[at]))
        at++;
    if (at == dim->n)
        return false;
    for (uint32_t i = 0; i < dim->n; i++) {
        int64_t first = start / inner[i + 1] % dim->size[i];
        if (i < at)
            add_range(r, first, 1, 1);
        else if (i == at)
            add_range(r, first, size / inner[i + 1], 1);
        else
            add_range(r, 0, dim->size[i], 1);
    }
    return true;
}

static MotOpId apply_slice(Apply *a, const MotOp *op)
{
    const MotAttr_slice *old = mot_attrs(op, slice);
    Ranges r = {0};
    for (uint32_t d = 0; d < old->start.n; d++) {
        const MotAtoms *dim = atoms(a, op->in[0], (int)d);
        if (dim->n == 1)
            add_range(&r, old->start.data[d], old->size.data[d], old->step.data[d]);
        else if (old->step.data[d] != 1 || !add_box(&r, dim, old->start.data[d], old->size.data[d]))
            return apply_whole(a, op);
    }
    uint32_t n = (uint32_t)r.n;
    MotAttr_slice attrs = {.start = {r.start, n}, .size = {r.size, n}, .step = {r.step, n}};
    MotValue x = operand(a, op, 0);
    return mot_build(&a->b, op->kind, &x, 1, &attrs);
}

/* ---- The graph ---- */

typedef MotOpId (*Rule)(Apply *, const MotOp *);

static const Rule rules[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = apply_pointwise,
#include "ir/ops.def"
    [MOT_OP_INPUT] = apply_input,
    [MOT_OP_PARAM] = apply_param,
    [MOT_OP_CONSTANT] = apply_constant,
    [MOT_OP_OUTPUT] = apply_output,
    [MOT_OP_IOTA] = apply_iota,
    [MOT_OP_CAST] = apply_pointwise,
    [MOT_OP_GELU] = apply_pointwise,
    [MOT_OP_BROADCAST] = apply_broadcast,
    [MOT_OP_TRANSPOSE] = apply_transpose,
    [MOT_OP_CONTRACT] = apply_contract,
    [MOT_OP_REDUCE_SUM] = apply_reduce,
    [MOT_OP_REDUCE_MAX] = apply_reduce,
    [MOT_OP_GATHER] = apply_gather,
    [MOT_OP_CONCAT] = apply_concat,
    [MOT_OP_SOFTMAX] = apply_softmax,
    [MOT_OP_LAYER_NORM] = apply_layer_norm,
    [MOT_OP_CROSS_ENTROPY] = apply_cross_entropy,
    [MOT_OP_PAD] = apply_pad,
    [MOT_OP_SLICE] = apply_slice,
};

/* The new value of `old`: `result`, which takes the name, in atoms. */
static void set_result(Apply *a, MotValue old, MotValue result)
{
    Shape shape = shape_of(a, old);
    a->value[old] = mot_reshape(&a->b, result, shape.rank, shape.dims);
    if (!a->new->values.data[result].name)
        a->new->values.data[result].name = a->old->values.data[old].name;
}

static MotStatus apply_op(Apply *a, MotOpId id)
{
    const MotOp *op = mot_graph_op(a->old, id);
    a->b.origin = op->origin;
    a->b.role = op->role;
    a->b.fwd = a->op[op->fwd];
    if (op->kind == MOT_OP_RESHAPE) {
        Shape shape = shape_of(a, op->out[0]);
        set_result(a, op->out[0], mot_reshape(&a->b, operand(a, op, 0), shape.rank, shape.dims));
        a->op[id] = a->new->values.data[a->value[op->out[0]]].def;
        return a->new->ctx->status;
    }
    Rule rule = rules[op->kind];
    a->op[id] = (rule ? rule : apply_whole)(a, op);
    for (uint32_t i = 0; i < op->n_out; i++)
        set_result(a, op->out[i], mot_result(&a->b, a->op[id], i));
    return a->new->ctx->status;
}

MotStatus mot_split_apply(MotGraph *g, const MotSplit *split)
{
    MotArena *arena = &g->ctx->arena;
    MotGraph *fresh = mot_graph_make(g->ctx, g->name);
    Apply a = {.split = split,
               .old = g,
               .new = fresh,
               .b = mot_builder_make(fresh),
               .value = mot_arena_array(arena, MotValue, g->values.n),
               .op = mot_arena_array(arena, MotOpId, g->ops.n)};
    for (uint32_t i = 0; i < g->symbols.n; i++)
        mot_vec_push(arena, &fresh->symbols, g->symbols.data[i]);
    for (uint32_t i = 0; i < g->body.n; i++)
        MOT_TRY(apply_op(&a, g->body.data[i]));
    *g = *fresh;
    return MOT_OK;
}
