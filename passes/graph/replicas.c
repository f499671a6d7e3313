/*
 * From a gradient's definition to the same by replica; and a forward pass that reads other
 * parameters for each replica.
 *
 * Where an op sums over the batch, the batch dim of its operands is seen as [R, batch / R] and r is
 * kept. What follows on the way to the gradient is linear, and runs over one dim more, the first.
 * Which dims are the batch says the spread of `units` from the inputs (ir/factors.h): so no rule
 * here knows where the batch comes from. A composite that sums over the batch is expanded for that
 * result.
 *
 * The other way about, values that follow from parameters alone become [R, ..] by the same rules,
 * and where one meets the batch the op sees the batch as [R, batch / R] too, and its result as the
 * batch again. So activations keep their shapes, and only the ops that read parameters are
 * rewritten.
 */
#include "passes/graph/replicas.h"

#include "ir/factors.h"
#include "passes/graph/contract_spec.h"

#include <string.h>

typedef struct {
    MotCtx *ctx;
    MotGraph *g;
    MotBuilder b;
    int64_t n; /* replicas */
    /* Values are the sum of what they are by replica, and not the same for each replica. */
    bool is_sum;
    /* [values]: differs by replica; of a sum: something of the batch lies behind it. */
    bool *depends;
    MotValue *done; /* [values]: by replica, 0: not yet */
    uint32_t n_known;
} Replicas;

static MotValue split(Replicas *r, MotValue v);

static MotType type_of(const Replicas *r, MotValue v)
{
    return *mot_graph_type(r->g, v);
}

/* The dim that is the batch, or -1. */
static int batch_dim(const Replicas *r, MotValue v)
{
    const MotValueInfo *info = &r->g->values.data[v];
    return v && info->units ? info->units_dim : -1;
}

static MotValue refuse(Replicas *r, const MotOp *op)
{
    mot_fail(r->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(r->g, op),
             "%s: a gradient goes through it that can't be taken apart by replica",
             mot_op_info(op->kind)->name);
    return 0;
}

/* [.., batch, ..] as [.., R, batch / R, ..]. */
static MotValue refine(Replicas *r, MotValue v, int dim)
{
    MotType t = type_of(r, v);
    int64_t dims[MOT_MAX_RANK + 1];
    for (int d = 0, k = 0; d < t.rank; d++) {
        if (d == dim)
            dims[k++] = r->n;
        dims[k++] = d == dim ? t.dims[d] / r->n : t.dims[d];
    }
    return t.rank < MOT_MAX_RANK ? mot_reshape(&r->b, v, t.rank + 1, dims) : 0;
}

/* Dim `dim` moved to the front. */
static MotValue bring_forward(Replicas *r, MotValue v, int dim)
{
    int64_t perm[MOT_MAX_RANK] = {dim};
    for (int d = 0, k = 1; d < type_of(r, v).rank; d++)
        if (d != dim)
            perm[k++] = d;
    return dim > 0 ? mot_transpose(&r->b, v, perm) : v;
}

/* By replica, [R, dims], seen with `rank` dims behind R. */
static MotValue align(Replicas *r, MotValue by_replica, int rank)
{
    MotType t = type_of(r, by_replica);
    int64_t dims[MOT_MAX_RANK] = {r->n};
    int extra = rank + 1 - t.rank;
    if (extra <= 0 || !by_replica)
        return by_replica;
    for (int d = 1; d <= rank; d++)
        dims[d] = d <= extra ? 1 : t.dims[d - extra];
    return mot_reshape(&r->b, by_replica, rank + 1, dims);
}

/* What does not differ: each replica has the same, of a sum a part of it. */
static MotValue share_equally(Replicas *r, MotValue v)
{
    MotType t = type_of(r, v);
    int64_t dims[MOT_MAX_RANK] = {r->n};
    memcpy(dims + 1, t.dims, (size_t)t.rank * sizeof *dims);
    if (r->is_sum)
        v = mot_mul_scalar(&r->b, v, 1.0 / (double)r->n);
    return mot_broadcast(&r->b, v, t.rank + 1, dims);
}

/* ---- Rules: op is a copy, its result the one that is asked for ---- */

typedef MotValue (*Rule)(Replicas *r, const MotOp *op);

static MotValue split_add(Replicas *r, const MotOp *op)
{
    int rank = type_of(r, op->out[0]).rank;
    MotValue in[2] = {align(r, split(r, op->in[0]), rank), align(r, split(r, op->in[1]), rank)};
    return op->kind == MOT_OP_ADD ? mot_add(&r->b, in[0], in[1]) : mot_sub(&r->b, in[0], in[1]);
}

/*
 * One factor is a sum over the batch, the other the same for all: of two that depend on the batch,
 * the one without dims.
 */
static MotValue split_mul(Replicas *r, const MotOp *op)
{
    int rank = type_of(r, op->out[0]).rank, part = r->depends[op->in[0]] ? 0 : 1;
    if (r->depends[op->in[0]] && r->depends[op->in[1]]) {
        part = type_of(r, op->in[0]).rank == 0 ? 1 : 0;
        if (type_of(r, op->in[!part]).rank != 0)
            return refuse(r, op);
    }
    return mot_mul(&r->b, align(r, split(r, op->in[part]), rank), op->in[!part]);
}

static MotValue split_div(Replicas *r, const MotOp *op)
{
    if (r->depends[op->in[1]] && type_of(r, op->in[1]).rank != 0)
        return refuse(r, op);
    int rank = type_of(r, op->out[0]).rank;
    return mot_div(&r->b, align(r, split(r, op->in[0]), rank), op->in[1]);
}

static MotValue split_neg(Replicas *r, const MotOp *op)
{
    return mot_neg(&r->b, split(r, op->in[0]));
}

static MotValue split_accumulate(Replicas *r, const MotOp *op)
{
    return mot_accumulate(&r->b, split(r, op->in[0]));
}

static MotValue split_cast(Replicas *r, const MotOp *op)
{
    if (mot_dtype_class(type_of(r, op->in[0]).dtype) != MOT_CLASS_FLOAT)
        return refuse(r, op);
    return mot_cast(&r->b, split(r, op->in[0]), mot_attrs(op, cast)->dtype);
}

static MotValue split_reshape(Replicas *r, const MotOp *op)
{
    MotType t = type_of(r, op->out[0]);
    int64_t dims[MOT_MAX_RANK + 1] = {r->n};
    memcpy(dims + 1, t.dims, (size_t)t.rank * sizeof *dims);
    return mot_reshape(&r->b, split(r, op->in[0]), t.rank + 1, dims);
}

static MotValue split_broadcast(Replicas *r, const MotOp *op)
{
    MotType t = type_of(r, op->out[0]);
    int64_t dims[MOT_MAX_RANK + 1] = {r->n};
    memcpy(dims + 1, t.dims, (size_t)t.rank * sizeof *dims);
    return mot_broadcast(&r->b, align(r, split(r, op->in[0]), t.rank), t.rank + 1, dims);
}

static MotValue split_transpose(Replicas *r, const MotOp *op)
{
    MotInts of = mot_attrs(op, perm)->perm;
    int64_t perm[MOT_MAX_RANK + 1] = {0};
    for (uint32_t d = 0; d < of.n; d++)
        perm[d + 1] = of.data[d] + 1;
    return mot_transpose(&r->b, split(r, op->in[0]), perm);
}

static MotValue split_slice(Replicas *r, const MotOp *op)
{
    const MotAttr_slice *a = mot_attrs(op, slice);
    int64_t start[MOT_MAX_RANK + 1] = {0}, size[MOT_MAX_RANK + 1] = {r->n},
                                 step[MOT_MAX_RANK + 1] = {1};
    memcpy(start + 1, a->start.data, a->start.n * sizeof *start);
    memcpy(size + 1, a->size.data, a->size.n * sizeof *size);
    memcpy(step + 1, a->step.data, a->step.n * sizeof *step);
    return mot_slice(&r->b, split(r, op->in[0]), start, size, step);
}

static MotValue split_pad(Replicas *r, const MotOp *op)
{
    const MotAttr_pad *a = mot_attrs(op, pad);
    int64_t lo[MOT_MAX_RANK + 1] = {0}, hi[MOT_MAX_RANK + 1] = {0};
    if (a->value != 0)
        return refuse(r, op);
    memcpy(lo + 1, a->lo.data, a->lo.n * sizeof *lo);
    memcpy(hi + 1, a->hi.data, a->hi.n * sizeof *hi);
    return mot_pad(&r->b, split(r, op->in[0]), lo, hi, 0);
}

static MotValue split_concat(Replicas *r, const MotOp *op)
{
    MotValue in[MOT_MAX_OPERANDS];
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = split(r, op->in[i]);
    return mot_concat(&r->b, in, op->n_in, (int)mot_attrs(op, axis)->axis + 1);
}

static bool is_listed(MotInts list, int64_t x)
{
    for (uint32_t i = 0; i < list.n; i++)
        if (list.data[i] == x)
            return true;
    return false;
}

static MotValue split_reduce_sum(Replicas *r, const MotOp *op)
{
    const MotAttr_reduce *a = mot_attrs(op, reduce);
    int batch = batch_dim(r, op->in[0]);
    bool sums = batch >= 0 && is_listed(a->axes, batch);
    MotValue x = sums ? refine(r, op->in[0], batch) : split(r, op->in[0]);
    int64_t axes[MOT_MAX_RANK];
    int at = 0; /* where r is in the result */
    for (uint32_t i = 0; i < a->axes.n; i++)
        axes[i] = a->axes.data[i] + (!sums || a->axes.data[i] >= batch);
    for (int d = 0; sums && d < batch; d++)
        at += a->keep || !is_listed(a->axes, d);
    return bring_forward(r, mot_reduce_sum(&r->b, x, axes, a->axes.n, a->keep), at);
}

/* A letter that the spec does not have. */
static char find_new_letter(const MotSpec *s)
{
    char letter = 'A';
    while (strchr(s->in[0], letter) || strchr(s->in[1], letter) || strchr(s->out, letter))
        letter++;
    return letter;
}

static void insert_letter(char *letters, int at, char letter)
{
    memmove(letters + at + 1, letters + at, strlen(letters + at) + 1);
    letters[at] = letter;
}

static MotValue split_contract(Replicas *r, const MotOp *op)
{
    MotSpec s = mot_spec_of(op);
    MotValue in[2] = {op->in[0], op->in[1]};
    char letter = find_new_letter(&s), batch = 0;
    for (int i = 0; i < 2 && !batch; i++)
        if (batch_dim(r, in[i]) >= 0)
            batch = s.in[i][batch_dim(r, in[i])];
    if (type_of(r, op->out[0]).rank == MOT_MAX_RANK || (batch && batch == s.cut) ||
        (r->is_sum && !batch && r->depends[in[0]] && r->depends[in[1]]))
        return refuse(r, op);
    for (int i = 0; i < 2; i++) {
        int at = batch ? mot_spec_find(s.in[i], batch) : r->depends[in[i]] ? 0 : -1;
        if (at < 0)
            continue;
        if (strlen(s.in[i]) == MOT_MAX_RANK)
            return refuse(r, op);
        in[i] = batch ? refine(r, in[i], at) : split(r, in[i]);
        insert_letter(s.in[i], at, letter);
    }
    insert_letter(s.out, 0, letter);
    return mot_spec_contract(&r->b, op, in[0], in[1], &s);
}

static MotValue split_scatter_add(Replicas *r, const MotOp *op)
{
    const MotAttr_scatter *a = mot_attrs(op, scatter);
    int in_index = batch_dim(r, op->in[0]), in_update = batch_dim(r, op->in[1]);
    if (in_index < 0 && in_update < 0 && !r->depends[op->in[0]] && !a->batched)
        return mot_scatter_add(&r->b, op->in[0], split(r, op->in[1]), (int)a->axis + 1, a->size);
    if (in_index != 0 || in_update != 0 || a->axis != 0 || a->batched)
        return refuse(r, op);
    return mot_scatter_add_batched(&r->b, refine(r, op->in[0], 0), refine(r, op->in[1], 0), 1,
                                   a->size);
}

static MotValue split_gather(Replicas *r, const MotOp *op)
{
    const MotAttr_gather *a = mot_attrs(op, gather);
    if (a->batched || r->depends[op->in[1]])
        return refuse(r, op);
    return mot_gather(&r->b, split(r, op->in[0]), op->in[1], (int)a->axis + 1);
}

/*
 * An operand of an op on [R, dims], where r is dim 0 of what differs or is the batch; others are
 * repeated.
 */
static MotValue operand(Replicas *r, const MotOp *op, uint32_t k)
{
    MotValue x = op->in[k];
    int rank = type_of(r, op->out[0]).rank, batch = batch_dim(r, x);
    if (batch >= 0)
        return align(r, bring_forward(r, refine(r, x, batch), batch), rank);
    return r->depends[x] ? align(r, split(r, x), rank) : x;
}

static MotValue split_pointwise(Replicas *r, const MotOp *op)
{
    MotValue in[3];
    for (uint32_t k = 0; k < op->n_in; k++)
        in[k] = operand(r, op, k);
    return mot_result(&r->b, mot_build(&r->b, op->kind, in, op->n_in, NULL), 0);
}

static const Rule rules[MOT_N_OPS] = {
    [MOT_OP_ADD] = split_add,
    [MOT_OP_SUB] = split_add,
    [MOT_OP_MUL] = split_mul,
    [MOT_OP_DIV] = split_div,
    [MOT_OP_NEG] = split_neg,
    [MOT_OP_ACCUMULATE] = split_accumulate,
    [MOT_OP_CAST] = split_cast,
    [MOT_OP_RESHAPE] = split_reshape,
    [MOT_OP_BROADCAST] = split_broadcast,
    [MOT_OP_TRANSPOSE] = split_transpose,
    [MOT_OP_SLICE] = split_slice,
    [MOT_OP_PAD] = split_pad,
    [MOT_OP_CONCAT] = split_concat,
    [MOT_OP_REDUCE_SUM] = split_reduce_sum,
    [MOT_OP_CONTRACT] = split_contract,
    [MOT_OP_SCATTER_ADD] = split_scatter_add,
    [MOT_OP_GATHER] = split_gather,
};

static bool is_pointwise(const MotOp *op)
{
    return mot_op_info(op->kind)->class == MOT_POINTWISE;
}

/* Of a value that is no batch of anything: by replica, [R, dims]. */
static MotValue split(Replicas *r, MotValue v)
{
    if (r->ctx->status != MOT_OK || v >= r->n_known)
        return 0;
    if (r->done[v])
        return r->done[v];
    const MotOp op = *mot_graph_def(r->g, v);
    const MotBuilder before = r->b;
    r->b.origin = op.origin;
    r->b.fwd = op.fwd;
    r->b.role = op.role;
    MotValue result;
    bool by_element = !r->is_sum && is_pointwise(&op);
    if (!r->depends[v])
        result = share_equally(r, v);
    else if (batch_dim(r, v) >= 0 || type_of(r, v).rank == MOT_MAX_RANK ||
             !(by_element || rules[op.kind]))
        result = refuse(r, &op);
    else
        result = by_element ? split_pointwise(r, &op) : rules[op.kind](r, &op);
    r->b = before;
    return r->done[v] = result;
}

/* ---- The graph before ---- */

/* Deals the inputs out in `units`. */
static MotStatus set_units(Replicas *r, int64_t units)
{
    for (uint32_t i = 0; i < r->g->body.n; i++) {
        const MotOp *op = mot_graph_op(r->g, r->g->body.data[i]);
        if (op->kind != MOT_OP_INPUT || type_of(r, op->out[0]).rank == 0)
            continue;
        int64_t batch = type_of(r, op->out[0]).dims[0];
        if (batch % r->n != 0) {
            mot_fail(r->ctx, MOT_ERR_USAGE, mot_op_loc(r->g, op),
                     "a batch of %lld can't be dealt out to %lld replicas", (long long)batch,
                     (long long)r->n);
            mot_hint(r->ctx, "give a batch that is a multiple of the replicas, as with --dim");
            return r->ctx->status;
        }
        mot_attrs(op, input)->units = units;
    }
    return mot_factors_spread_units(r->g);
}

static bool has_batch(const Replicas *r, const MotValue *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (batch_dim(r, values[i]) >= 0)
            return true;
    return false;
}

/*
 * Results of composites that are sums over the batch get their expansion; the other results stay
 * the composite's.
 */
static MotStatus expand_sums(Replicas *r)
{
    MotVec(MotValue) old = {0}, new = {0};
    for (uint32_t i = 0, n = r->g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(r->g, r->g->body.data[i]);
        MotValue results[MOT_MAX_RESULTS];
        bool sums = false;
        for (uint32_t k = 0; k < op.n_out; k++)
            sums |= batch_dim(r, op.out[k]) < 0;
        if (mot_op_info(op.kind)->class != MOT_COMPOSITE || !sums || !has_batch(r, op.in, op.n_in))
            continue;
        r->b.origin = op.origin;
        r->b.fwd = op.fwd;
        r->b.role = op.role;
        MOT_TRY(mot_expand(&r->b, &op, results));
        for (uint32_t k = 0; k < op.n_out; k++)
            if (batch_dim(r, op.out[k]) < 0) {
                mot_vec_push(&r->ctx->arena, &old, op.out[k]);
                mot_vec_push(&r->ctx->arena, &new, results[k]);
            }
    }
    mot_graph_replace(r->g, old.data, new.data, old.n);
    return old.n ? mot_factors_spread_units(r->g) : MOT_OK;
}

/*
 * Operands precede users, but for what expand_sums appended: that is looked at first where it is
 * used.
 */
static bool find_depends(Replicas *r, MotValue v, uint8_t *state)
{
    enum { UNKNOWN, NO, YES };
    if (!v || state[v] != UNKNOWN)
        return v && state[v] == YES;
    bool depends = batch_dim(r, v) >= 0;
    const MotOp *op = mot_graph_def(r->g, v);
    for (uint32_t i = 0; i < op->n_in && !depends; i++)
        depends = find_depends(r, op->in[i], state);
    state[v] = depends ? YES : NO;
    return depends;
}

static void know_values(Replicas *r)
{
    r->n_known = r->g->values.n;
    r->depends = mot_arena_array(&r->ctx->arena, bool, r->n_known);
    r->done = mot_arena_array(&r->ctx->arena, MotValue, r->n_known);
}

MotStatus mot_replicas_find(MotGraph *g, int64_t n_replicas, MotValue *out_gradients)
{
    Replicas r = {.ctx = g->ctx, .g = g, .b = mot_builder_make(g), .n = n_replicas, .is_sum = true};
    MOT_TRY(set_units(&r, n_replicas));
    MOT_TRY(expand_sums(&r));
    know_values(&r);
    uint8_t *state = mot_arena_array(&g->ctx->arena, uint8_t, r.n_known);
    for (MotValue v = 1; v < r.n_known; v++)
        r.depends[v] = find_depends(&r, v, state);
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind == MOT_OP_GRADIENT)
            *out_gradients++ = split(&r, op.in[1]);
    }
    return n_replicas == 1 ? set_units(&r, 0) : g->ctx->status;
}

/* ---- Other parameters for each replica ---- */

/* [R, .., batch / R, ..] as the batch again, of the type of `like`. */
static MotValue put_back(Replicas *r, MotValue v, MotValue like)
{
    MotType t = type_of(r, like);
    int64_t perm[MOT_MAX_RANK];
    int batch = batch_dim(r, like);
    for (int d = 0; d <= t.rank; d++)
        perm[d] = d < batch ? d + 1 : d == batch ? 0 : d;
    v = batch > 0 ? mot_transpose(&r->b, v, perm) : v;
    return mot_reshape(&r->b, v, t.rank, t.dims);
}

static MotValue meet_pointwise(Replicas *r, const MotOp *op)
{
    int batch = batch_dim(r, op->out[0]), rank = type_of(r, op->out[0]).rank;
    for (uint32_t k = 0; k < op->n_in; k++) { /* what is repeated must be so along the batch */
        MotType x = type_of(r, op->in[k]);
        int at = batch - (rank - x.rank);
        bool is_repeated = batch_dim(r, op->in[k]) < 0 && !r->depends[op->in[k]];
        if (is_repeated && at >= 0 && x.dims[at] != 1)
            return refuse(r, op);
    }
    return put_back(r, split_pointwise(r, op), op->out[0]);
}

static MotValue meet_contract(Replicas *r, const MotOp *op)
{
    MotSpec s = mot_spec_of(op);
    MotType t = type_of(r, op->out[0]);
    int x = batch_dim(r, op->in[0]) >= 0 ? 0 : 1, in_batch = batch_dim(r, op->in[x]);
    char letter = find_new_letter(&s), batch = s.in[x][in_batch];
    int at = mot_spec_find(s.out, batch);
    if (at < 0 || batch == s.cut || mot_spec_find(s.in[!x], batch) >= 0 ||
        strlen(s.in[0]) == MOT_MAX_RANK || strlen(s.in[1]) == MOT_MAX_RANK ||
        t.rank == MOT_MAX_RANK)
        return refuse(r, op);
    MotValue in[2];
    in[x] = refine(r, op->in[x], in_batch);
    in[!x] = split(r, op->in[!x]);
    insert_letter(s.in[x], in_batch, letter);
    insert_letter(s.in[!x], 0, letter);
    insert_letter(s.out, at, letter);
    MotValue y = mot_spec_contract(&r->b, op, in[0], in[1], &s);
    return mot_reshape(&r->b, y, t.rank, t.dims);
}

static MotValue meet_gather(Replicas *r, const MotOp *op)
{
    const MotAttr_gather *a = mot_attrs(op, gather);
    int batch = batch_dim(r, op->in[1]);
    if (a->axis != 0 || batch < 0)
        return refuse(r, op);
    MotValue index = bring_forward(r, refine(r, op->in[1], batch), batch);
    return put_back(r, mot_gather_batched(&r->b, split(r, op->in[0]), index, 1), op->out[0]);
}

static MotValue make_ones(Replicas *r, const MotType *type)
{
    int64_t n = mot_type_elements(type);
    MotTensor ones = {*type, mot_arena_alloc(&r->ctx->arena, (size_t)mot_type_bytes(type))};
    for (int64_t i = 0; i < n; i++)
        mot_tensor_set(&ones, i, 1);
    return mot_constant(&r->b, ones);
}

/* Normalised without parameters, which are applied after it. */
static MotValue meet_layer_norm(Replicas *r, const MotOp *op)
{
    MotBuilder *b = &r->b;
    MotType scale = type_of(r, op->in[1]);
    int rank = type_of(r, op->out[0]).rank, batch = batch_dim(r, op->in[0]);
    MotValue bias = op->n_in > 2 ? op->in[2] : 0;
    MotValue ones = make_ones(r, &scale);
    MotOpId norm = mot_build(b, op->kind, (MotValue[]){op->in[0], ones}, 2, mot_attrs(op, norm));
    MotValue y = bring_forward(r, refine(r, mot_result(b, norm, 0), batch), batch);
    y = mot_mul(b, y, align(r, split(r, op->in[1]), rank));
    if (bias)
        y = mot_add(b, y, align(r, split(r, bias), rank));
    return put_back(r, y, op->out[0]);
}

static const Rule meetings[MOT_N_OPS] = {
    [MOT_OP_CONTRACT] = meet_contract,
    [MOT_OP_GATHER] = meet_gather,
    [MOT_OP_LAYER_NORM] = meet_layer_norm,
};

/* Of an op that reads the batch and what differs by replica: its first result anew. */
static MotValue meet(Replicas *r, const MotOp *op, const bool *is_used)
{
    Rule rule = is_pointwise(op) ? meet_pointwise : meetings[op->kind];
    bool has_more = false;
    for (uint32_t k = 1; k < op->n_out; k++)
        has_more |= is_used[op->out[k]];
    if (!rule || has_more || batch_dim(r, op->out[0]) < 0 ||
        type_of(r, op->out[0]).rank == MOT_MAX_RANK)
        return refuse(r, op);
    r->b.origin = op->origin;
    r->b.role = op->role;
    return rule(r, op);
}

/*
 * Whether the op's result differs by replica beside the batch: it follows from parameters alone.
 * Fails where a sum over samples comes in.
 */
static MotStatus mark_depends(Replicas *r, const MotOp *op, bool *is_behind, bool *out_meets)
{
    bool differs = false, behind = false;
    *out_meets = has_batch(r, op->in, op->n_in);
    for (uint32_t k = 0; k < op->n_in; k++) {
        differs |= r->depends[op->in[k]];
        behind |= is_behind[op->in[k]];
    }
    *out_meets &= differs;
    for (uint32_t k = 0; k < op->n_out; k++) {
        is_behind[op->out[k]] = behind || batch_dim(r, op->out[k]) >= 0;
        r->depends[op->out[k]] |= differs && !behind;
    }
    if (differs && behind && !*out_meets)
        refuse(r, op);
    return r->ctx->status;
}

/* A single replica's batch is all of it: the ops read the other value, and that is all. */
static MotStatus read_all(Replicas *r, uint32_t n_body, const MotValue *params,
                          const MotValue *by_replica, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        MotType t = type_of(r, params[i]);
        r->done[params[i]] = mot_reshape(&r->b, by_replica[i], t.rank, t.dims);
    }
    for (uint32_t i = 0; i < n_body; i++) {
        MotOp *op = mot_graph_op(r->g, r->g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            if (r->done[op->in[k]])
                op->in[k] = r->done[op->in[k]];
    }
    return r->ctx->status;
}

MotStatus mot_replicas_read(MotGraph *g, int64_t n_replicas, uint32_t n_body,
                            const MotValue *params, const MotValue *by_replica, uint32_t n)
{
    Replicas r = {.ctx = g->ctx, .g = g, .b = mot_builder_make(g), .n = n_replicas};
    MotVec(MotValue) old = {0}, new = {0};
    know_values(&r);
    if (n_replicas == 1)
        return read_all(&r, n_body, params, by_replica, n);
    MOT_TRY(set_units(&r, n_replicas));
    bool *is_behind = mot_arena_array(&g->ctx->arena, bool, r.n_known),
         *is_used = mot_arena_array(&g->ctx->arena, bool, r.n_known);
    for (uint32_t i = 0; i < n; i++) {
        r.depends[params[i]] = true;
        r.done[params[i]] = by_replica[i];
    }
    for (uint32_t i = 0; i < n_body; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            is_used[op->in[k]] = true;
    }
    for (uint32_t i = 0; i < n_body; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        bool meets;
        MOT_TRY(mark_depends(&r, &op, is_behind, &meets));
        if (!meets)
            continue;
        mot_vec_push(&g->ctx->arena, &old, op.out[0]);
        mot_vec_push(&g->ctx->arena, &new, meet(&r, &op, is_used));
        MOT_TRY(g->ctx->status);
    }
    mot_graph_replace(g, old.data, new.data, old.n);
    return g->ctx->status;
}
