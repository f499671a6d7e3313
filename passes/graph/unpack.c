/*
 * unpack: a dim that is sliced into its single entries becomes the outermost one of what it is
 * sliced from.
 *
 * The 3 of a packed QKV projection [B,T,3,H,D] and the 2 of gate and up are such dims. As
 * [3,B,T,H,D] each slice is one piece of memory, which lowering makes a view, and the gradients of
 * the slices are views of one gradient. The order costs nothing: it is another order of letters of
 * the contraction. Elementwise ops between contraction and slices follow; a bias gets dims of size
 * 1.
 *
 * Needs: simplify, after which transposes next to a contraction are its letters. Keeps: the
 * function computed. Cost: linear in ops.
 */
#include "ir/builder.h"
#include "passes/graph/contract_spec.h"
#include "passes/pass.h"

#include <string.h>

enum { NO_DIM = -1, MAX_CHAIN = 8 /* elementwise ops between contraction and slices */ };

typedef struct {
    MotGraph *g;
    MotBuilder b;
    uint32_t *n_uses; /* [values] */
    int *packed;      /* [values]: the dim that all uses slice into single entries, or NO_DIM */
    MotValue *moved;  /* [values]: with that dim outermost; 0: not made */
    MotVec(MotValue) from;
    MotVec(MotValue) to;
} Unpack;

static const MotType *type_of(const Unpack *u, MotValue v)
{
    return mot_graph_type(u->g, v);
}

/*
 * The one dim of which the slice takes a single entry; all others are whole. NO_DIM if it is
 * another slice.
 */
static int find_sliced_dim(const Unpack *u, const MotOp *slice)
{
    const MotType *x = type_of(u, slice->in[0]);
    const int64_t *size = mot_attrs(slice, slice)->size.data;
    int found = NO_DIM, n = 0;
    for (int d = 0; d < x->rank; d++)
        if (size[d] != x->dims[d]) {
            found = size[d] == 1 ? d : NO_DIM;
            n++;
        }
    return n == 1 ? found : NO_DIM;
}

static void note_use(Unpack *u, const MotOp *user, MotValue v)
{
    int dim = user->kind == MOT_OP_SLICE ? find_sliced_dim(u, user) : NO_DIM;
    u->packed[v] = u->n_uses[v]++ == 0 || u->packed[v] == dim ? dim : NO_DIM;
}

/*
 * How the dim `dim` of a value of rank `rank` becomes the outermost one of operand x, which is
 * broadcast to it.
 */
typedef enum { STAYS, DROPS_ONE, TAKES_ONES, MOVES } Change;

static Change find_change(const Unpack *u, MotValue x, int rank, int dim, int *out_own)
{
    const MotType *type = type_of(u, x);
    int own = dim - (rank - type->rank);
    *out_own = own;
    if (own < 0)
        return STAYS;
    if (type->dims[own] == 1)
        return DROPS_ONE;
    int64_t before = 1;
    for (int d = 0; d < own; d++)
        before *= type->dims[d];
    return before == 1 ? TAKES_ONES : MOVES;
}

static bool can_move(const Unpack *u, MotValue v, int dim, int n_chain)
{
    const MotOp *op = mot_graph_def(u->g, v);
    int rank = type_of(u, v)->rank, own;
    if (op->kind == MOT_OP_CONTRACT)
        return true;
    if (op->n_out != 1 || !mot_op_is_elementwise(op) || n_chain == MAX_CHAIN)
        return false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && find_change(u, op->in[i], rank, dim, &own) == MOVES &&
            (type_of(u, op->in[i])->rank != rank || u->n_uses[op->in[i]] != 1 ||
             !can_move(u, op->in[i], dim, n_chain + 1)))
            return false;
    return true;
}

/* Whether v is sliced into all entries of a dim that is not the outermost one already. */
static bool is_packed(const Unpack *u, MotValue v)
{
    return u->packed[v] > 0 && u->n_uses[v] == type_of(u, v)->dims[u->packed[v]];
}

static MotValue move(Unpack *u, MotValue v, int dim);

/* [.., 1 at own, ..] without that 1, or [1.., n at own, ..] as [n, 1.., ..] of the full rank. */
static MotValue reshape_operand(Unpack *u, MotValue x, Change change, int own, int rank)
{
    const MotType type = *type_of(u, x);
    int64_t dims[MOT_MAX_RANK];
    int n = 0;
    if (change == DROPS_ONE) {
        for (int d = 0; d < type.rank; d++)
            if (d != own)
                dims[n++] = type.dims[d];
        return mot_reshape(&u->b, x, n, dims);
    }
    int behind = type.rank - own - 1;
    dims[n++] = type.dims[own];
    while (n < rank - behind)
        dims[n++] = 1;
    memcpy(dims + n, type.dims + own + 1, (size_t)behind * sizeof *dims);
    return mot_reshape(&u->b, x, rank, dims);
}

static MotValue move_operand(Unpack *u, MotValue x, int rank, int dim)
{
    int own;
    if (!x)
        return 0;
    Change change = find_change(u, x, rank, dim, &own);
    return change == STAYS   ? x
           : change == MOVES ? move(u, x, own)
                             : reshape_operand(u, x, change, own, rank);
}

static MotValue move_contract(Unpack *u, const MotOp *op, int dim)
{
    MotSpec spec = mot_spec_of(op);
    char letter = spec.out[dim];
    memmove(spec.out + 1, spec.out, (size_t)dim);
    spec.out[0] = letter;
    return mot_spec_contract(&u->b, op, op->in[0], op->in[1], &spec);
}

/* v with `dim` as its outermost dim. */
static MotValue move(Unpack *u, MotValue v, int dim)
{
    const MotOp op = *mot_graph_def(u->g, v);
    MotValue in[MOT_MAX_OPERANDS];
    int rank = type_of(u, v)->rank;
    for (uint32_t i = 0; i < op.n_in && op.kind != MOT_OP_CONTRACT; i++)
        in[i] = move_operand(u, op.in[i], rank, dim);
    u->b.origin = op.origin;
    if (op.kind == MOT_OP_CONTRACT)
        return move_contract(u, &op, dim);
    return mot_result(&u->b, mot_build(&u->b, op.kind, in, op.n_in, op.attrs), 0);
}

/* The slice, or a reshape of it, from the moved value instead. */
static void replace_slice(Unpack *u, MotOpId id)
{
    MotOp slice = *mot_graph_op(u->g, id);
    MotValue old = slice.n_out ? slice.out[0] : 0;
    if (slice.kind == MOT_OP_RESHAPE)
        slice = *mot_graph_def(u->g, slice.in[0]);
    if (slice.kind != MOT_OP_SLICE || !u->moved[slice.in[0]])
        return;
    const MotType type = *type_of(u, old);
    int64_t start = mot_attrs(&slice, slice)->start.data[u->packed[slice.in[0]]];
    u->b.origin = slice.origin;
    MotValue entry = mot_slice_axis(&u->b, u->moved[slice.in[0]], 0, start, 1);
    MotValue new_value = mot_reshape(&u->b, entry, type.rank, type.dims);
    u->g->values.data[new_value].name = u->g->values.data[old].name;
    mot_vec_push(&u->g->ctx->arena, &u->from, old);
    mot_vec_push(&u->g->ctx->arena, &u->to, new_value);
}

static MotStatus unpack(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    (void)opts;
    uint32_t n_values = g->values.n, n_body = g->body.n;
    Unpack u = {.g = g,
                .b = mot_builder_make(g),
                .n_uses = mot_arena_array(&ctx->arena, uint32_t, n_values),
                .packed = mot_arena_array(&ctx->arena, int, n_values),
                .moved = mot_arena_array(&ctx->arena, MotValue, n_values)};
    for (uint32_t i = 0; i < n_body; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            note_use(&u, op, op->in[k]);
    }
    for (MotValue v = 1; v < n_values; v++)
        if (is_packed(&u, v) && can_move(&u, v, u.packed[v], 0))
            u.moved[v] = move(&u, v, u.packed[v]);
    for (uint32_t i = 0; i < n_body; i++)
        replace_slice(&u, g->body.data[i]);
    mot_graph_replace(g, u.from.data, u.to.data, u.from.n);
    *out_changed = u.from.n > 0;
    return ctx->status;
}

const MotPass mot_pass_unpack = {.name = "unpack",
                                 .summary =
                                     "dims that are sliced into their entries become outermost",
                                 .run = unpack,
                                 .for_regions = true};
