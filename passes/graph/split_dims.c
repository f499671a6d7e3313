/*
 * split-dims: refines merged dimensions into atoms, before autodiff and planning.
 *
 * A packed projection [C, 3*H*D] followed by Split and Reshape becomes [C, 3, H, D]; rows that were
 * flattened to [B*T, C] are [B, T, C] again. The reshapes move into the parameters, whose ONNX
 * shape and permutation stay in `file_dims` and `perm`.
 *
 * Dims that an op keeps equal (pointwise, a letter of a contraction, ...) form a class. A class of
 * size N is cut at divisors p of N that divide one another: its atoms are the quotients of
 * neighbours. A reshape is gone when both sides are cut where the other side has a boundary; so
 * cuts spread through reshapes and slices until nothing changes. Slices into equal parts cut too.
 * Dims that an op needs whole (normalised, gathered from, heads of an attention, ...) are rigid:
 * what would cut them stays a reshape. Needs: simplify. Keeps: the function computed, bit by bit.
 * Cost: linear in ops, times the depth of reshapes.
 */
#include "passes/graph/split_dims.h"

#include "passes/pass.h"

enum { MAX_CUTS = MOT_MAX_RANK - 1 };

typedef struct {
    uint32_t parent; /* union-find over nodes; the root holds the rest */
    int64_t size;
    bool is_rigid;
    uint32_t n_cuts;
    int64_t cut[MAX_CUTS]; /* descending, 1 < cut < size, each divides the one before */
    int64_t part; /* slices of the node's dim all have this size; 0: none, -1: they differ */
    int64_t n_parts;
} Class;

typedef struct {
    const MotGraph *g;
    uint32_t *first; /* node of dim 0 of a value */
    Class *node;
    uint32_t n_nodes;
    bool is_changed;
} Analysis;

/* ---- Classes ---- */

static uint32_t find(const Analysis *a, uint32_t node)
{
    while (a->node[node].parent != node)
        node = a->node[node].parent = a->node[a->node[node].parent].parent;
    return node;
}

static Class *class_of(const Analysis *a, MotValue v, int dim)
{
    return &a->node[find(a, a->first[v] + (uint32_t)dim)];
}

static int64_t size_of(const Analysis *a, MotValue v, int dim)
{
    return mot_graph_type(a->g, v)->dims[dim];
}

static int rank_of(const Analysis *a, MotValue v)
{
    return mot_graph_type(a->g, v)->rank;
}

/* Dims of different size (one is broadcast) stay apart. */
static void unite(Analysis *a, MotValue v, int dim_of_v, MotValue w, int dim_of_w)
{
    Class *x = class_of(a, v, dim_of_v), *y = class_of(a, w, dim_of_w);
    if (x == y || x->size != y->size)
        return;
    y->parent = (uint32_t)(x - a->node);
    x->is_rigid |= y->is_rigid;
}

static void make_rigid(Analysis *a, MotValue v, int dim)
{
    class_of(a, v, dim)->is_rigid = true;
}

/* Whether cut p fits into the chain, and where; true also if it is there. */
static bool may_cut(const Class *c, int64_t p)
{
    if (c->size % p != 0)
        return false;
    for (uint32_t i = 0; i < c->n_cuts; i++) {
        if (c->cut[i] == p)
            return true;
        if (c->cut[i] % p != 0 && p % c->cut[i] != 0)
            return false;
    }
    return !c->is_rigid && c->n_cuts < MAX_CUTS;
}

static void cut(Analysis *a, Class *c, int64_t p)
{
    uint32_t at = 0;
    while (at < c->n_cuts && c->cut[at] > p)
        at++;
    if (at < c->n_cuts && c->cut[at] == p)
        return;
    for (uint32_t i = c->n_cuts++; i > at; i--)
        c->cut[i] = c->cut[i - 1];
    c->cut[at] = p;
    a->is_changed = true;
}

/* ---- Relations of an op's dims ---- */

/* Operands aligned with the result at the last dim. */
static void relate_broadcast(Analysis *a, const MotOp *op)
{
    for (uint32_t i = 0; i < op->n_in; i++) {
        int extra = rank_of(a, op->out[0]) - rank_of(a, op->in[i]);
        for (int d = 0; d < rank_of(a, op->in[i]); d++)
            unite(a, op->out[0], d + extra, op->in[i], d);
    }
}

static void relate_transpose(Analysis *a, const MotOp *op)
{
    for (int d = 0; d < rank_of(a, op->out[0]); d++)
        unite(a, op->out[0], d, op->in[0], (int)mot_attrs(op, perm)->perm.data[d]);
}

static void relate_contract(Analysis *a, const MotOp *op)
{
    MotValue value[128] = {0};
    int dim[128] = {0};
    const char *letter = mot_attrs(op, contract)->spec;
    const MotValue values[] = {op->in[0], op->in[1], op->out[0]};
    for (int i = 0; i < 3; i++, letter += i == 1 ? 1 : 2)
        for (int d = 0; d < rank_of(a, values[i]); d++, letter++) {
            int l = (unsigned char)*letter;
            if (value[l])
                unite(a, value[l], dim[l], values[i], d);
            value[l] = values[i];
            dim[l] = d;
        }
    if (mot_contract_index(op)) { /* positions are of the whole dim, and the list stays one */
        int cut_letter = mot_contract_cut(op);
        make_rigid(a, value[cut_letter], dim[cut_letter]);
        make_rigid(a, op->in[2], 0);
    }
}

static bool is_reduced(const MotAttr_reduce *attrs, int dim)
{
    for (uint32_t i = 0; i < attrs->axes.n; i++)
        if (attrs->axes.data[i] == dim)
            return true;
    return false;
}

static void relate_reduce(Analysis *a, const MotOp *op)
{
    const MotAttr_reduce *attrs = mot_attrs(op, reduce);
    for (int d = 0, out = 0; d < rank_of(a, op->in[0]); d++) {
        if (!is_reduced(attrs, d))
            unite(a, op->out[0], out, op->in[0], d);
        out += attrs->keep || !is_reduced(attrs, d);
    }
}

static void relate_gather(Analysis *a, const MotOp *op)
{
    const MotAttr_gather *attrs = mot_attrs(op, gather);
    int axis = (int)attrs->axis, first = attrs->batched ? 0 : axis;
    int n_index = rank_of(a, op->in[1]), n_rows = n_index - (axis - first);
    make_rigid(a, op->in[0], axis);
    for (int d = 0; d < n_index; d++)
        unite(a, op->out[0], first + d, op->in[1], d);
    for (int d = 0; d < rank_of(a, op->in[0]); d++)
        if (d != axis)
            unite(a, op->out[0], d < axis ? d : d + n_rows - 1, op->in[0], d);
}

static void relate_softmax(Analysis *a, const MotOp *op)
{
    relate_broadcast(a, op);
    make_rigid(a, op->in[0], (int)mot_attrs(op, softmax)->axis);
}

static void relate_layer_norm(Analysis *a, const MotOp *op)
{
    int axis = (int)mot_attrs(op, norm)->axis;
    for (int d = 0; d < rank_of(a, op->in[0]); d++) {
        for (uint32_t i = 0; i < op->n_out; i++)
            unite(a, op->out[i], d, op->in[0], d);
        if (d >= axis)
            make_rigid(a, op->in[0], d);
    }
    for (uint32_t i = 1; i < op->n_in; i++)
        for (int d = 0; op->in[i] && d < rank_of(a, op->in[i]); d++)
            unite(a, op->in[0], axis + d, op->in[i], d);
}

static void relate_cross_entropy(Analysis *a, const MotOp *op)
{
    int last = rank_of(a, op->in[0]) - 1;
    make_rigid(a, op->in[0], last);
    for (int d = 0; d < last; d++) {
        unite(a, op->out[0], d, op->in[0], d);
        unite(a, op->out[0], d, op->in[1], d);
    }
}

static void relate_concat(Analysis *a, const MotOp *op)
{
    relate_broadcast(a, op);
    int axis = (int)mot_attrs(op, axis)->axis;
    make_rigid(a, op->out[0], axis);
    for (uint32_t i = 0; i < op->n_in; i++)
        make_rigid(a, op->in[i], axis);
}

static void relate_pad(Analysis *a, const MotOp *op)
{
    const MotAttr_pad *attrs = mot_attrs(op, pad);
    for (int d = 0; d < rank_of(a, op->in[0]); d++) {
        if (attrs->lo.data[d] == 0 && attrs->hi.data[d] == 0) {
            unite(a, op->out[0], d, op->in[0], d);
        } else {
            make_rigid(a, op->in[0], d);
            make_rigid(a, op->out[0], d);
        }
    }
}

static bool is_whole(const Analysis *a, const MotOp *slice, int dim)
{
    const MotAttr_slice *attrs = mot_attrs(slice, slice);
    return attrs->start.data[dim] == 0 && attrs->step.data[dim] == 1 &&
           attrs->size.data[dim] == size_of(a, slice->in[0], dim);
}

/* Notes the size of the parts into which a dim is sliced. */
static void relate_slice(Analysis *a, const MotOp *op)
{
    const MotAttr_slice *attrs = mot_attrs(op, slice);
    for (int d = 0; d < rank_of(a, op->in[0]); d++) {
        int64_t start = attrs->start.data[d], size = attrs->size.data[d];
        Class *node = &a->node[a->first[op->in[0]] + (uint32_t)d];
        if (is_whole(a, op, d)) {
            unite(a, op->out[0], d, op->in[0], d);
            continue;
        }
        if (attrs->step.data[d] != 1 || size == 0) {
            make_rigid(a, op->in[0], d);
            make_rigid(a, op->out[0], d);
            continue;
        }
        node->part = (node->part == 0 || node->part == size) && start % size == 0 ? size : -1;
        node->n_parts++;
    }
}

static void relate_iota(Analysis *a, const MotOp *op)
{
    make_rigid(a, op->out[0], (int)mot_attrs(op, iota)->axis);
}

/* Ops of fixed rank. */
static void relate_rigid(Analysis *a, const MotOp *op)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        for (int d = 0; op->in[i] && d < rank_of(a, op->in[i]); d++)
            make_rigid(a, op->in[i], d);
    for (uint32_t i = 0; i < op->n_out; i++)
        for (int d = 0; d < rank_of(a, op->out[i]); d++)
            make_rigid(a, op->out[i], d);
}

static void relate_nothing(Analysis *a, const MotOp *op)
{
    (void)a;
    (void)op;
}

typedef void (*Relate)(Analysis *, const MotOp *);

static const Relate relations[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = relate_broadcast,
#include "ir/ops.def"
    [MOT_OP_INPUT] = relate_nothing,
    [MOT_OP_PARAM] = relate_nothing,
    [MOT_OP_CONSTANT] = relate_nothing,
    [MOT_OP_OUTPUT] = relate_nothing,
    [MOT_OP_RESHAPE] = relate_nothing, /* by exchange_cuts */
    [MOT_OP_IOTA] = relate_iota,
    [MOT_OP_CAST] = relate_broadcast,
    [MOT_OP_GELU] = relate_broadcast,
    [MOT_OP_BROADCAST] = relate_broadcast,
    [MOT_OP_TRANSPOSE] = relate_transpose,
    [MOT_OP_CONTRACT] = relate_contract,
    [MOT_OP_REDUCE_SUM] = relate_reduce,
    [MOT_OP_REDUCE_MAX] = relate_reduce,
    [MOT_OP_GATHER] = relate_gather,
    [MOT_OP_SOFTMAX] = relate_softmax,
    [MOT_OP_LAYER_NORM] = relate_layer_norm,
    [MOT_OP_CROSS_ENTROPY] = relate_cross_entropy,
    [MOT_OP_CONCAT] = relate_concat,
    [MOT_OP_PAD] = relate_pad,
    [MOT_OP_SLICE] = relate_slice,
};

/* ---- Cuts through reshapes ---- */

/* Dims of both sides of a reshape whose products are equal, with nothing smaller in between. */
typedef struct {
    int in, in_end, out, out_end;
} Group;

/* The group that begins at (in, out); false when the sides never meet again (zero sizes). */
static bool next_group(const MotType *x, const MotType *y, int in, int out, Group *group)
{
    int64_t a = 1, b = 1;
    *group = (Group){in, in, out, out};
    do {
        bool takes_in = a <= b ? group->in_end < x->rank : group->out_end == y->rank;
        if (takes_in && group->in_end == x->rank)
            return false;
        if (takes_in)
            a *= x->dims[group->in_end++];
        else
            b *= y->dims[group->out_end++];
    } while (a != b || a == 1);
    return a > 1;
}

enum { MAX_POINTS = 4 * MOT_MAX_RANK * MOT_MAX_RANK };

/* Boundaries and cuts of dims [first, end) as products of what lies to their right. */
static uint32_t add_points(const Analysis *a, MotValue v, int first, int end, int64_t *point,
                           uint32_t n)
{
    int64_t inner = 1;
    for (int d = end; d-- > first;) {
        const Class *c = class_of(a, v, d);
        for (uint32_t i = 0; i < c->n_cuts; i++)
            point[n++] = inner * c->cut[i];
        inner *= c->size;
        point[n++] = inner;
    }
    return n;
}

/* Whether dims [first, end) can be cut at all points; does it if `apply`. */
static bool cut_at_points(Analysis *a, MotValue v, Group dims, bool apply, const int64_t *point,
                          uint32_t n)
{
    int64_t inner = 1;
    for (int d = dims.in_end; d-- > dims.in;) {
        Class *c = class_of(a, v, d);
        int64_t outer = inner * c->size;
        for (uint32_t i = 0; i < n; i++) {
            if (point[i] <= inner || point[i] >= outer)
                continue;
            if (point[i] % inner != 0 || !may_cut(c, point[i] / inner))
                return false;
            if (apply)
                cut(a, c, point[i] / inner);
        }
        inner = outer;
    }
    return true;
}

static void exchange_group(Analysis *a, const MotOp *op, Group group)
{
    int64_t point[MAX_POINTS];
    uint32_t n = add_points(a, op->in[0], group.in, group.in_end, point, 0);
    n = add_points(a, op->out[0], group.out, group.out_end, point, n);
    Group out = {group.out, group.out_end, 0, 0};
    if (cut_at_points(a, op->in[0], group, false, point, n) &&
        cut_at_points(a, op->out[0], out, false, point, n)) {
        cut_at_points(a, op->in[0], group, true, point, n);
        cut_at_points(a, op->out[0], out, true, point, n);
    }
}

/*
 * Calls `visit` for every group of the reshape's dims; dims of size 1 between groups belong to
 * none.
 */
static void for_each_group(Analysis *a, const MotOp *op,
                           void (*visit)(Analysis *, const MotOp *, Group))
{
    const MotType *x = mot_graph_type(a->g, op->in[0]), *y = mot_graph_type(a->g, op->out[0]);
    int in = 0, out = 0;
    if (mot_type_elements(x) <= 1)
        return;
    for (Group group;; in = group.in_end, out = group.out_end) {
        while (in < x->rank && x->dims[in] == 1)
            in++;
        while (out < y->rank && y->dims[out] == 1)
            out++;
        if (in == x->rank || out == y->rank || !next_group(x, y, in, out, &group))
            return;
        visit(a, op, group);
    }
}

static void unite_group(Analysis *a, const MotOp *op, Group group)
{
    if (group.in_end - group.in == 1 && group.out_end - group.out == 1)
        unite(a, op->out[0], group.out, op->in[0], group.in);
}

/* ---- Cuts through slices ---- */

static void exchange_slice(Analysis *a, const MotOp *op)
{
    const MotAttr_slice *attrs = mot_attrs(op, slice);
    for (int d = 0; d < rank_of(a, op->in[0]); d++) {
        Class *x = class_of(a, op->in[0], d), *y = class_of(a, op->out[0], d);
        int64_t start = attrs->start.data[d];
        if (is_whole(a, op, d) || attrs->step.data[d] != 1)
            continue;
        for (uint32_t i = 0; i < y->n_cuts; i++)
            if (start % y->cut[i] == 0 && may_cut(x, y->cut[i]))
                cut(a, x, y->cut[i]);
        for (uint32_t i = 0; i < x->n_cuts; i++)
            if (x->cut[i] < y->size && start % x->cut[i] == 0 && may_cut(y, x->cut[i]))
                cut(a, y, x->cut[i]);
    }
}

/* Dims that slices divide into equal parts are cut there: part number first. */
static void cut_equal_parts(Analysis *a)
{
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        const Class *node = &a->node[i];
        Class *c = &a->node[find(a, i)];
        if (node->part > 1 && node->part * node->n_parts == node->size && may_cut(c, node->part))
            cut(a, c, node->part);
    }
}

/* ---- The analysis ---- */

static Analysis make_analysis(const MotGraph *g)
{
    MotArena *arena = &g->ctx->arena;
    Analysis a = {.g = g, .first = mot_arena_array(arena, uint32_t, g->values.n)};
    for (MotValue v = 1; v < g->values.n; v++) {
        a.first[v] = a.n_nodes;
        a.n_nodes += (uint32_t)g->values.data[v].type.rank;
    }
    a.node = mot_arena_array(arena, Class, a.n_nodes + 1);
    for (MotValue v = 1; v < g->values.n; v++)
        for (int d = 0; d < rank_of(&a, v); d++) {
            uint32_t i = a.first[v] + (uint32_t)d;
            a.node[i] = (Class){.parent = i, .size = size_of(&a, v, d)};
        }
    return a;
}

static void spread_cuts(Analysis *a)
{
    do {
        a->is_changed = false;
        for (uint32_t i = 0; i < a->g->body.n; i++) {
            const MotOp *op = mot_graph_op(a->g, a->g->body.data[i]);
            if (op->kind == MOT_OP_RESHAPE)
                for_each_group(a, op, exchange_group);
            else if (op->kind == MOT_OP_SLICE)
                exchange_slice(a, op);
        }
    } while (a->is_changed);
}

/*
 * Makes the most cut class of a value rigid that would have more than 8 dims; false if there is no
 * such value.
 */
static bool find_overflow(Analysis *a)
{
    for (MotValue v = 1; v < a->g->values.n; v++) {
        uint32_t rank = 0;
        Class *most = NULL;
        for (int d = 0; d < rank_of(a, v); d++) {
            Class *c = class_of(a, v, d);
            rank += c->n_cuts + 1;
            most = !most || c->n_cuts > most->n_cuts ? c : most;
        }
        if (rank > MOT_MAX_RANK && most) {
            most->is_rigid = true;
            return true;
        }
    }
    return false;
}

static void find_cuts(Analysis *a)
{
    do {
        for (uint32_t i = 0; i < a->n_nodes; i++)
            a->node[i].n_cuts = 0;
        cut_equal_parts(a);
        spread_cuts(a);
    } while (find_overflow(a));
}

static MotAtoms atoms_of(const Class *c)
{
    MotAtoms atoms = {.n = c->n_cuts + 1};
    int64_t outer = c->size;
    for (uint32_t i = 0; i <= c->n_cuts; i++) {
        int64_t inner = i < c->n_cuts ? c->cut[i] : 1;
        atoms.size[i] = outer / inner;
        outer = inner;
    }
    return atoms;
}

static MotSplit find_split(const MotGraph *g)
{
    Analysis a = make_analysis(g);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        Relate relate = relations[op->kind];
        (relate ? relate : relate_rigid)(&a, op);
        if (op->kind == MOT_OP_RESHAPE)
            for_each_group(&a, op, unite_group);
    }
    find_cuts(&a);
    MotSplit split = {.g = g,
                      .first = a.first,
                      .atoms = mot_arena_array(&g->ctx->arena, MotAtoms, a.n_nodes + 1)};
    for (uint32_t i = 0; i < a.n_nodes; i++) {
        split.atoms[i] = atoms_of(&a.node[find(&a, i)]);
        split.is_split |= split.atoms[i].n > 1;
    }
    return split;
}

static MotStatus split_dims(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    (void)ctx;
    (void)opts;
    MotSplit split = find_split(g);
    if (!split.is_split)
        return MOT_OK;
    *out_changed = true;
    return mot_split_apply(g, &split);
}

const MotPass mot_pass_split_dims = {.name = "split-dims",
                                     .summary =
                                         "refines merged dims into atoms, reshapes parameters",
                                     .run = split_dims};
