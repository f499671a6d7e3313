/*
 * Factors of every op: one rule a primitive names the loops and the dims they run over; composites
 * get theirs from the expansion. Dims of size 1 have no factor. Cost: linear in dims, for
 * composites in the dims of the expansion.
 *
 * A factor whose size is smaller than a dim it runs over splits that dim in granules of dim / size:
 * so a reshape that merges or splits dims has one factor, over the outermost atoms that both sides
 * share ([B,T,C] to [B*T,C]: size B, over dim 0 of both), and the inner atoms are WHOLE.
 */
#include "ir/factors.h"

#include "ir/expand.h"

#include <string.h>

const char *const mot_factor_kind_names[4] = {"parallel", "sum", "max", "whole"};

/* ---- Which partial sums may pass ---- */

/* Pointwise rows that are linear in an operand when the others are replicated. Not div: of integers
 * it truncates. */
static const unsigned linear_pointwise[MOT_N_OPS] = {
    [MOT_OP_NEG] = 1 << 0, [MOT_OP_MUL] = 1 << 0 | 1 << 1};

bool mot_op_is_linear(const MotOp *op, uint32_t i)
{
    if (i >= 8 || i >= op->n_in)
        return false;
    if (op->kind == MOT_OP_CAST && mot_dtype_class(mot_attrs(op, cast)->dtype) != MOT_CLASS_FLOAT)
        return false; /* it truncates, or asks for non-zero */
    return (mot_op_info(op->kind)->flags | linear_pointwise[op->kind]) >> i & 1;
}

bool mot_op_is_additive(const MotOp *op)
{
    return op->kind == MOT_OP_ADD || op->kind == MOT_OP_SUB || op->kind == MOT_OP_CONCAT;
}

/* ---- What a rule fills in ---- */

enum { MAX_LOOPS = (MOT_MAX_OPERANDS + MOT_MAX_RESULTS) * MOT_MAX_RANK };

typedef int16_t
    DimLoops[MOT_MAX_RANK]; /* of one operand or result: the loop over each dim, plus 1; 0: none */

typedef struct {
    const MotGraph *g;
    const MotOp *op;
    DimLoops in[MOT_MAX_OPERANDS], out[MOT_MAX_RESULTS];
    int n;
    struct {
        MotFactorKind kind;
        int64_t size;
        unsigned partial; /* bit j: result j is partial when the loop is split */
        int64_t units;    /* in which a dim that it runs over is dealt out; 0: any */
        int64_t inside;   /* pieces of each of these */
        int16_t within;   /* the loop, plus 1, that it runs inside of, if that one's are units */
        int factor;       /* of the loop, the first */
    } loop[MAX_LOOPS];
} Loops;

typedef MotStatus (*FactorRule)(Loops *);

static const MotType *in_type(const Loops *l, uint32_t i)
{
    return mot_graph_type(l->g, l->op->in[i]);
}

static const MotType *out_type(const Loops *l, uint32_t i)
{
    return mot_graph_type(l->g, l->op->out[i]);
}

/* The new loop's name for a DimLoops. SUM and MAX loops leave result 0 partial: primitives have but
 * one. */
static int16_t add_loop(Loops *l, MotFactorKind kind, int64_t size)
{
    int i = l->n++;
    l->loop[i].kind = kind;
    l->loop[i].size = size;
    l->loop[i].inside = 1;
    l->loop[i].partial = kind == MOT_FACTOR_SUM || kind == MOT_FACTOR_MAX ? 1 : 0;
    return (int16_t)(i + 1);
}

/* A PARALLEL loop over every dim of a type. */
static void add_loops_over(Loops *l, const MotType *type, int16_t *dims)
{
    for (int d = 0; d < type->rank; d++)
        dims[d] = add_loop(l, MOT_FACTOR_PARALLEL, type->dims[d]);
}

/* ---- Primitives ---- */

/* Operands align at the last dim; what an operand repeats (size 1 there) is no loop of its own. */
static MotStatus find_pointwise(Loops *l)
{
    const MotType *out = out_type(l, 0);
    add_loops_over(l, out, l->out[0]);
    for (uint32_t i = 0; i < l->op->n_in; i++) {
        int extra = out->rank - in_type(l, i)->rank;
        for (int d = 0; d < in_type(l, i)->rank; d++)
            l->in[i][d] = l->out[0][d + extra];
    }
    return MOT_OK;
}

#define find_broadcast find_pointwise
#define find_cast find_pointwise

/* An input or parameter can be given, a constant cut, in any part. */
static MotStatus find_input(Loops *l)
{
    add_loops_over(l, out_type(l, 0), l->out[0]);
    return MOT_OK;
}

#define find_param find_input
#define find_constant find_input

static MotStatus find_sink(Loops *l)
{
    add_loops_over(l, in_type(l, 0), l->in[0]);
    for (uint32_t i = 1; i < l->op->n_in; i++)
        memcpy(l->in[i], l->in[0], sizeof l->in[0]);
    return MOT_OK;
}

static MotStatus find_iota(Loops *l)
{
    find_input(l);
    l->loop[l->out[0][mot_attrs(l->op, iota)->axis] - 1].kind = MOT_FACTOR_WHOLE;
    return MOT_OK;
}

static MotStatus find_transpose(Loops *l)
{
    const int64_t *perm = mot_attrs(l->op, perm)->perm.data;
    add_loops_over(l, out_type(l, 0), l->out[0]);
    for (int d = 0; d < out_type(l, 0)->rank; d++)
        l->in[0][perm[d]] = l->out[0][d];
    return MOT_OK;
}

int64_t mot_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/*
 * A loop over dim d of the operand and dim k of the result: their outermost common granules. Gives
 * it if these are all of the smaller dim, so that the other one has atoms inside of them; else 0.
 */
static int16_t join_outer_atoms(Loops *l, int d, int k)
{
    int64_t dim = in_type(l, 0)->dims[d], other = out_type(l, 0)->dims[k], n = mot_gcd(dim, other);
    int16_t loop =
        n == 1 ? add_loop(l, MOT_FACTOR_WHOLE, dim) : add_loop(l, MOT_FACTOR_PARALLEL, n);
    l->in[0][d] = l->out[0][k] = loop;
    return n == dim || n == other ? loop : 0;
}

/*
 * A loop over an inner atom, a dim of one side only. The first one runs inside the outer atom's
 * loop, which is taken.
 */
static int16_t add_inner_atom(Loops *l, int16_t *outer, int64_t size)
{
    int16_t loop = add_loop(l, MOT_FACTOR_WHOLE, size);
    if (size > 1) {
        l->loop[loop - 1].within = *outer;
        *outer = 0;
    }
    return loop;
}

static bool has_only_sizes(const MotType *type)
{
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] <= 0)
            return false;
    return true;
}

/* Groups of dims with equal products correspond. Without elements (or sizes) nothing does. */
static MotStatus find_reshape(Loops *l)
{
    const MotType *x = in_type(l, 0), *y = out_type(l, 0);
    bool is_plain = has_only_sizes(x) && has_only_sizes(y);
    int d = 0, k = 0;
    while (is_plain && d < x->rank && k < y->rank) {
        if (x->dims[d] == 1 || y->dims[k] == 1) {
            d += x->dims[d] == 1;
            k += y->dims[k] == 1;
            continue;
        }
        int16_t outer = join_outer_atoms(l, d, k);
        int64_t n = x->dims[d++], m = y->dims[k++];
        while (n != m) { /* the products of all dims are equal, so it ends */
            if (n < m) {
                l->in[0][d] = add_inner_atom(l, &outer, x->dims[d]);
                n *= x->dims[d++];
            } else {
                l->out[0][k] = add_inner_atom(l, &outer, y->dims[k]);
                m *= y->dims[k++];
            }
        }
    }
    for (; d < x->rank; d++)
        l->in[0][d] = add_loop(l, MOT_FACTOR_WHOLE, x->dims[d]);
    for (; k < y->rank; k++)
        l->out[0][k] = add_loop(l, MOT_FACTOR_WHOLE, y->dims[k]);
    return MOT_OK;
}

/* Dims that are taken whole (and in order) can be split; the others are WHOLE. */
static MotStatus find_slice(Loops *l)
{
    const MotAttr_slice *a = mot_attrs(l->op, slice);
    const MotType *x = in_type(l, 0);
    for (int d = 0; d < x->rank; d++) {
        bool is_full =
            a->start.data[d] == 0 && a->step.data[d] == 1 && out_type(l, 0)->dims[d] == x->dims[d];
        l->in[0][d] = l->out[0][d] =
            add_loop(l, is_full ? MOT_FACTOR_PARALLEL : MOT_FACTOR_WHOLE, x->dims[d]);
    }
    return MOT_OK;
}

static MotStatus find_pad(Loops *l)
{
    const MotType *x = in_type(l, 0);
    for (int d = 0; d < x->rank; d++)
        l->in[0][d] = l->out[0][d] = add_loop(
            l, out_type(l, 0)->dims[d] == x->dims[d] ? MOT_FACTOR_PARALLEL : MOT_FACTOR_WHOLE,
            x->dims[d]);
    return MOT_OK;
}

static MotStatus find_concat(Loops *l)
{
    add_loops_over(l, out_type(l, 0), l->out[0]);
    l->loop[l->out[0][mot_attrs(l->op, axis)->axis] - 1].kind = MOT_FACTOR_WHOLE;
    for (uint32_t i = 0; i < l->op->n_in; i++)
        memcpy(l->in[i], l->out[0], sizeof l->in[i]);
    return MOT_OK;
}

/* Dims of `rows` other than those at axis.. (as many as the index has) and of `table` other than
 * the axis are the same. */
static void join_around_axis(DimLoops table, const MotType *table_type, const DimLoops rows,
                             int axis, int n_index)
{
    for (int d = 0; d < table_type->rank; d++)
        if (d != axis)
            table[d] = rows[d < axis ? d : d + n_index - 1];
}

/* Batched, the dims before the axis are the index's first dims too. */
static MotStatus find_gather(Loops *l)
{
    const MotAttr_gather *a = mot_attrs(l->op, gather);
    int axis = (int)a->axis, first = a->batched ? 0 : axis;
    int n_index = in_type(l, 1)->rank, n_rows = n_index - (axis - first);
    add_loops_over(l, out_type(l, 0), l->out[0]);
    join_around_axis(l->in[0], in_type(l, 0), l->out[0], axis, n_rows);
    memcpy(l->in[1], l->out[0] + first, (size_t)n_index * sizeof l->in[1][0]);
    l->in[0][axis] = add_loop(l, MOT_FACTOR_WHOLE, in_type(l, 0)->dims[axis]);
    return MOT_OK;
}

static MotStatus find_scatter_add(Loops *l)
{
    const MotAttr_scatter *a = mot_attrs(l->op, scatter);
    int axis = (int)a->axis, first = a->batched ? 0 : axis;
    int n_index = in_type(l, 0)->rank, n_rows = n_index - (axis - first);
    for (int d = 0; d < in_type(l, 1)->rank; d++)
        l->in[1][d] =
            add_loop(l, d >= axis && d < axis + n_rows ? MOT_FACTOR_SUM : MOT_FACTOR_PARALLEL,
                     in_type(l, 1)->dims[d]);
    join_around_axis(l->out[0], out_type(l, 0), l->in[1], axis, n_rows);
    memcpy(l->in[0], l->in[1] + first, (size_t)n_index * sizeof l->in[0][0]);
    l->out[0][axis] = add_loop(l, MOT_FACTOR_WHOLE, out_type(l, 0)->dims[axis]);
    return MOT_OK;
}

/* Rows are split, never a row: its entries are chosen, packed or joined together. */
static MotStatus find_rows(Loops *l)
{
    const MotType *x = in_type(l, 0);
    add_loops_over(l, x, l->in[0]);
    l->loop[l->in[0][x->rank - 1] - 1].kind = MOT_FACTOR_WHOLE;
    for (uint32_t i = 1; i < l->op->n_in; i++)
        memcpy(l->in[i], l->in[0], sizeof l->in[i]);
    for (uint32_t k = 0; k < l->op->n_out; k++) {
        memcpy(l->out[k], l->in[0], sizeof l->out[k]);
        l->out[k][x->rank - 1] = add_loop(l, MOT_FACTOR_WHOLE, out_type(l, k)->dims[x->rank - 1]);
    }
    return MOT_OK;
}

#define find_top_k find_rows
#define find_pack find_rows

/*
 * Messages are read by everybody: whoever splits the peers would have to send on what they say,
 * which is more.
 */
static MotStatus find_unpack(Loops *l)
{
    find_rows(l);
    l->loop[l->in[0][0] - 1].kind = MOT_FACTOR_WHOLE;
    return MOT_OK;
}

static MotStatus find_scatter_mean(Loops *l)
{
    const MotType *y = out_type(l, 0);
    l->in[0][0] = add_loop(l, MOT_FACTOR_WHOLE, in_type(l, 0)->dims[0]);
    for (int d = 0; d + 1 < y->rank; d++)
        l->in[0][d + 1] = l->out[0][d] = add_loop(l, MOT_FACTOR_PARALLEL, y->dims[d]);
    l->in[0][y->rank] = add_loop(l, MOT_FACTOR_WHOLE, in_type(l, 0)->dims[y->rank]);
    l->out[0][y->rank - 1] = add_loop(l, MOT_FACTOR_WHOLE, y->dims[y->rank - 1]);
    memcpy(l->in[1], l->in[0], sizeof l->in[1]);
    return MOT_OK;
}

static MotStatus find_reduce(Loops *l, MotFactorKind kind)
{
    const MotAttr_reduce *a = mot_attrs(l->op, reduce);
    const MotType *x = in_type(l, 0);
    bool is_reduced[MOT_MAX_RANK] = {false};
    for (uint32_t i = 0; i < a->axes.n; i++)
        is_reduced[a->axes.data[i]] = true;
    for (int d = 0, k = 0; d < x->rank; d++) {
        l->in[0][d] = add_loop(l, is_reduced[d] ? kind : MOT_FACTOR_PARALLEL, x->dims[d]);
        if (!is_reduced[d])
            l->out[0][k] = l->in[0][d];
        k += a->keep || !is_reduced[d];
    }
    return MOT_OK;
}

static MotStatus find_reduce_sum(Loops *l)
{
    return find_reduce(l, MOT_FACTOR_SUM);
}

static MotStatus find_reduce_max(Loops *l)
{
    return find_reduce(l, MOT_FACTOR_MAX);
}

/*
 * A letter is a loop: PARALLEL if the result has it, else SUM. A letter that is cut is WHOLE, as
 * its list counts positions of the whole dim; the list itself can be dealt out, and leaves partial
 * sums.
 */
static MotStatus find_contract(Loops *l)
{
    char cut = mot_contract_cut(l->op);
    const char *p = mot_attrs(l->op, contract)->spec, *result = strchr(p, '>') + 1;
    int16_t loop_of[128] = {0};
    for (uint32_t i = 0; i < 2; i++, p++)
        for (int d = 0; d < in_type(l, i)->rank; d++, p++) {
            unsigned char letter = (unsigned char)*p;
            MotFactorKind kind = strchr(result, letter) ? MOT_FACTOR_PARALLEL
                                 : letter == cut        ? MOT_FACTOR_WHOLE
                                                        : MOT_FACTOR_SUM;
            if (!loop_of[letter])
                loop_of[letter] = add_loop(l, kind, in_type(l, i)->dims[d]);
            l->in[i][d] = loop_of[letter];
        }
    if (cut)
        l->in[2][0] = add_loop(l, MOT_FACTOR_SUM, in_type(l, 2)->dims[0]);
    for (int d = 0; result[d]; d++)
        l->out[0][d] = loop_of[(int)result[d]];
    return MOT_OK;
}

/* A plan for the ops of a region is not there: nothing that splits or places ops may meet one. */
static MotStatus find_scan(Loops *l)
{
    return mot_fail(l->g->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(l->g, l->op),
                    "%s: an operator with a region can be neither planned nor compiled yet",
                    mot_op_info(l->op->kind)->name);
}

/* ---- Composites: dims of the expansion's values that its primitives run over together are one
 * class ---- */

/* A place is a dim of a value: value * MOT_MAX_RANK + dim. */
typedef struct {
    const MotGraph *g;
    uint32_t *parent; /* a place: union-find over places */
    struct {
        unsigned kinds;  /* bits 1 << MotFactorKind: as what the primitives' factors occur */
        int64_t size;    /* what all the primitives can split: the greatest common divisor */
    } *class;            /* a root place */
    MotFactors *factors; /* an op id */
} Classes;

static uint32_t find_root(const Classes *c, uint32_t place)
{
    while (c->parent[place] != place)
        place = c->parent[place] = c->parent[c->parent[place]];
    return place;
}

static uint32_t find_class(const Classes *c, MotValue v, int dim)
{
    return find_root(c, v * MOT_MAX_RANK + (uint32_t)dim);
}

/* The smaller place becomes the root, whatever the order of joins. */
static void join_class(Classes *c, uint32_t *root, MotValue v, int dim)
{
    uint32_t other = find_class(c, v, dim);
    if (*root == UINT32_MAX || *root == other) {
        *root = other;
        return;
    }
    uint32_t low = other < *root ? other : *root, high = other < *root ? *root : other;
    c->parent[high] = low;
    c->class[low].kinds |= c->class[high].kinds;
    c->class[low].size = mot_gcd(c->class[low].size, c->class[high].size);
    *root = low;
}

static void join_factor(Classes *c, const MotOp *op, const MotFactor *f)
{
    uint32_t root = UINT32_MAX;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (f->in_dim[i] >= 0)
            join_class(c, &root, op->in[i], f->in_dim[i]);
    for (uint32_t i = 0; i < op->n_out; i++)
        if (f->out_dim[i] >= 0)
            join_class(c, &root, op->out[i], f->out_dim[i]);
    c->class[root].kinds |= 1u << f->kind;
    c->class[root].size = mot_gcd(c->class[root].size, f->size);
}

static MotStatus join_all(Classes *c, MotCtx *ctx, const MotGraph *g)
{
    uint32_t n_places = g->values.n * MOT_MAX_RANK;
    *c = (Classes){.g = g,
                   .parent = mot_arena_array(&ctx->arena, uint32_t, n_places),
                   .class = mot_arena_alloc_array(&ctx->arena, n_places, sizeof *c->class),
                   .factors = mot_arena_array(&ctx->arena, MotFactors, g->ops.n)};
    for (uint32_t i = 0; i < n_places; i++) {
        c->parent[i] = i;
        c->class[i].size = mot_graph_type(g, i / MOT_MAX_RANK)->dims[i % MOT_MAX_RANK];
    }
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        MotFactors *f = &c->factors[g->body.data[i]];
        MOT_TRY(mot_factors(g, op, f));
        for (uint32_t k = 0; k < f->n; k++)
            join_factor(c, op, &f->factor[k]);
    }
    return MOT_OK;
}

/* A class over two dims of one value cannot be split: the value would be split twice. */
static bool occurs_twice(const Classes *c, uint32_t root)
{
    for (MotValue v = 1; v < c->g->values.n; v++) {
        int n = 0;
        for (int d = 0; d < mot_graph_type(c->g, v)->rank; d++)
            n += find_class(c, v, d) == root;
        if (n > 1)
            return true;
    }
    return false;
}

/* The op's factor that belongs to the class, or NULL. */
static const MotFactor *find_factor(const Classes *c, MotOpId id, uint32_t root)
{
    const MotOp *op = mot_graph_op(c->g, id);
    const MotFactors *f = &c->factors[id];
    for (uint32_t k = 0; k < f->n; k++) {
        for (uint32_t i = 0; i < op->n_in; i++)
            if (f->factor[k].in_dim[i] >= 0 &&
                find_class(c, op->in[i], f->factor[k].in_dim[i]) == root)
                return &f->factor[k];
        for (uint32_t i = 0; i < op->n_out; i++)
            if (f->factor[k].out_dim[i] >= 0 &&
                find_class(c, op->out[i], f->factor[k].out_dim[i]) == root)
                return &f->factor[k];
    }
    return NULL;
}

/*
 * Whether the class can be split although some primitive sums over it: from there partial sums
 * (`is_partial`, a value) must reach the results through ops alone that are linear in them and do
 * not run over the class themselves.
 */
static bool trace_partial_sums(const Classes *c, uint32_t root, bool *is_partial)
{
    memset(is_partial, 0, c->g->values.n * sizeof *is_partial);
    for (uint32_t i = 0; i < c->g->body.n; i++) {
        MotOpId id = c->g->body.data[i];
        const MotOp *op = mot_graph_op(c->g, id);
        const MotFactor *f = find_factor(c, id, root);
        uint32_t n_partial = 0;
        bool all_linear = true;
        for (uint32_t k = 0; k < op->n_in; k++) {
            n_partial += is_partial[op->in[k]];
            all_linear = all_linear && (!is_partial[op->in[k]] || mot_op_is_linear(op, k));
        }
        bool passes =
            (n_partial == 1 && all_linear) || (n_partial == op->n_in && mot_op_is_additive(op));
        if (n_partial && (f || !passes))
            return false;
        for (uint32_t k = 0; k < op->n_out; k++)
            is_partial[op->out[k]] = n_partial || (f && f->partial[k]);
    }
    return true;
}

/* The kind of a class as a whole; `is_partial` (a value) is filled in for SUM. */
static MotFactorKind find_kind(const Classes *c, uint32_t root, bool *is_partial)
{
    unsigned kinds = c->class[root].kinds;
    unsigned splittable = 1u << MOT_FACTOR_PARALLEL | 1u << MOT_FACTOR_SUM;
    if (kinds & ~splittable || c->class[root].size == 1 || occurs_twice(c, root))
        return MOT_FACTOR_WHOLE;
    if (!(kinds & 1u << MOT_FACTOR_SUM))
        return MOT_FACTOR_PARALLEL;
    return trace_partial_sums(c, root, is_partial) ? MOT_FACTOR_SUM : MOT_FACTOR_WHOLE;
}

/* The loop of each dim of a value of the op: that of its class, new when the class is met first. */
static void add_classes(Loops *l, const Classes *c, const MotExpansion *x, MotValue v,
                        DimLoops dims, int16_t *loop_of, bool *is_partial)
{
    for (int d = 0; v && d < mot_graph_type(c->g, v)->rank; d++) {
        uint32_t root = find_class(c, v, d);
        if (!loop_of[root]) {
            MotFactorKind kind = find_kind(c, root, is_partial);
            int64_t dim = mot_graph_type(c->g, v)->dims[d];
            loop_of[root] = add_loop(l, kind, kind == MOT_FACTOR_WHOLE ? dim : c->class[root].size);
            unsigned partial = 0;
            for (uint32_t k = 0; k < l->op->n_out && kind == MOT_FACTOR_SUM; k++)
                partial |= is_partial[x->out[k]] ? 1u << k : 0;
            l->loop[l->n - 1].partial = partial;
        }
        dims[d] = loop_of[root];
    }
}

static MotStatus find_composite(Loops *l)
{
    MotCtx *ctx = l->g->ctx;
    MotType types[MOT_MAX_OPERANDS] = {{0}};
    for (uint32_t i = 0; i < l->op->n_in; i++)
        types[i] = *in_type(l, i);
    MotExpansion x;
    Classes c;
    MOT_TRY(mot_expand_alone(ctx, l->op, types, &x));
    MOT_TRY(join_all(&c, ctx, x.graph));
    int16_t *loop_of = mot_arena_array(&ctx->arena, int16_t, x.graph->values.n *MOT_MAX_RANK);
    bool *is_partial = mot_arena_array(&ctx->arena, bool, x.graph->values.n);
    for (uint32_t i = 0; i < l->op->n_out; i++)
        add_classes(l, &c, &x, x.out[i], l->out[i], loop_of, is_partial);
    for (uint32_t i = 0; i < l->op->n_in; i++)
        add_classes(l, &c, &x, x.in[i], l->in[i], loop_of, is_partial);
    return MOT_OK;
}

/* ---- From loops to factors ---- */

#define RULE_SOURCE(name) find_##name
#define RULE_SINK(name) find_sink
#define RULE_PRIMITIVE(name) find_##name
#define RULE_COMPOSITE(name) find_composite

static const FactorRule rules[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = find_pointwise,
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) [MOT_OP_##id] = RULE_##kind(name),
#include "ir/ops.def"
};

/* Drops the loops over dims of size 1. */
static void drop_ones(const MotType *type, DimLoops dims)
{
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] == 1)
            dims[d] = 0;
}

/* The first dim that the loop runs over, taken out of `dims`; -1 if there is none. */
static int8_t take_dim(DimLoops dims, int16_t loop)
{
    for (int d = 0; d < MOT_MAX_RANK; d++)
        if (dims[d] == loop) {
            dims[d] = 0;
            return (int8_t)d;
        }
    return -1;
}

/* A WHOLE loop may run over two dims of a value: then it gives as many factors. */
static MotFactor take_factor(MotArena *arena, Loops *l, int16_t loop)
{
    int16_t outer = l->loop[loop - 1].within;
    MotFactor f = {.kind = l->loop[loop - 1].kind,
                   .size = l->loop[loop - 1].size,
                   .within = outer ? l->loop[outer - 1].factor : -1,
                   .in_dim = mot_arena_array(arena, int8_t, l->op->n_in),
                   .out_dim = mot_arena_array(arena, int8_t, l->op->n_out),
                   .partial = mot_arena_array(arena, bool, l->op->n_out)};
    for (uint32_t i = 0; i < l->op->n_in; i++)
        f.in_dim[i] = take_dim(l->in[i], loop);
    for (uint32_t i = 0; i < l->op->n_out; i++) {
        f.out_dim[i] = take_dim(l->out[i], loop);
        f.partial[i] = l->loop[loop - 1].partial >> i & 1;
    }
    return f;
}

/* A dim whose units are given is dealt out in no smaller ones. */
static void limit_units(const MotGraph *g, MotValue v, const DimLoops dims, Loops *l)
{
    const MotValueInfo *info = &g->values.data[v];
    int16_t loop = v && info->units ? dims[info->units_dim] : 0;
    if (!loop)
        return;
    int64_t size = mot_gcd(l->loop[loop - 1].size, info->units);
    l->loop[loop - 1].units = info->units;
    l->loop[loop - 1].inside *= l->loop[loop - 1].size / size;
    l->loop[loop - 1].size = size;
}

/* What runs inside a loop lies in its dim where it has none of its own. */
static void lie_within(const Loops *l, const MotFactors *all, MotFactor *f)
{
    const MotFactor *outer = &all->factor[f->within];
    for (uint32_t i = 0; i < l->op->n_in; i++)
        f->in_dim[i] = f->in_dim[i] < 0 ? outer->in_dim[i] : f->in_dim[i];
    for (uint32_t i = 0; i < l->op->n_out; i++)
        f->out_dim[i] = f->out_dim[i] < 0 ? outer->out_dim[i] : f->out_dim[i];
}

static void take_factors(MotArena *arena, Loops *l, const DimLoops dims, MotFactors *out)
{
    for (int d = 0; d < MOT_MAX_RANK; d++) {
        int16_t loop = dims[d];
        if (!loop)
            continue;
        MotFactor *f = &out->factor[out->n];
        *f = take_factor(arena, l, loop);
        l->loop[loop - 1].factor = (int)out->n++;
        if (f->within >= 0)
            lie_within(l, out, f);
    }
}

/* Whether the loop's parts are units, and so something may run inside of them. */
static bool is_over_units(const Loops *l, int i)
{
    return l->loop[i].units > 1 && l->loop[i].size == l->loop[i].units &&
           l->loop[i].kind != MOT_FACTOR_WHOLE;
}

/* An atom inside of units may be split; any other stays whole. */
static void judge_inner_atoms(Loops *l)
{
    for (int i = 0; i < l->n; i++) {
        int outer = l->loop[i].within - 1;
        if (outer >= 0 && is_over_units(l, outer) && l->loop[outer].inside == 1)
            l->loop[i].kind = MOT_FACTOR_PARALLEL;
        else
            l->loop[i].within = 0;
    }
}

/* The pieces inside of units: loops that were limited to these. */
static void take_inner(const Loops *l, MotFactors *out)
{
    for (int i = 0, n = (int)out->n; i < l->n; i++) {
        int outer = l->loop[i].factor;
        if (!is_over_units(l, i) || l->loop[i].inside == 1 || outer >= n)
            continue;
        MotFactor f = out->factor[outer];
        f.size = l->loop[i].inside;
        f.within = outer;
        out->factor[out->n++] = f;
    }
}

MotStatus mot_factors(const MotGraph *g, const MotOp *op, MotFactors *out_factors)
{
    MotArena *arena = &g->ctx->arena;
    MotArenaMark mark = mot_arena_mark(arena);
    Loops l = {.g = g, .op = op};
    MOT_TRY(rules[op->kind](&l));
    mot_arena_rewind(arena, mark);
    for (uint32_t i = 0; i < op->n_in; i++) {
        drop_ones(in_type(&l, i), l.in[i]);
        limit_units(g, op->in[i], l.in[i], &l);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        drop_ones(out_type(&l, i), l.out[i]);
        limit_units(g, op->out[i], l.out[i], &l);
    }
    int n_places = l.n; /* each loop, and what runs inside of it */
    for (uint32_t i = 0; i < op->n_in; i++)
        n_places += in_type(&l, i)->rank;
    for (uint32_t i = 0; i < op->n_out; i++)
        n_places += out_type(&l, i)->rank;
    judge_inner_atoms(&l);
    *out_factors = (MotFactors){.factor = mot_arena_array(arena, MotFactor, n_places)};
    for (uint32_t i = 0; i < op->n_out; i++)
        take_factors(arena, &l, l.out[i], out_factors);
    for (uint32_t i = 0; i < op->n_in; i++)
        take_factors(arena, &l, l.in[i], out_factors);
    take_inner(&l, out_factors);
    return MOT_OK;
}

int mot_factor_of_operand(const MotFactors *factors, uint32_t i, int dim)
{
    for (uint32_t k = 0; k < factors->n; k++)
        if (factors->factor[k].in_dim[i] == dim)
            return (int)k;
    return -1;
}

int mot_factor_of_result(const MotFactors *factors, uint32_t i, int dim)
{
    for (uint32_t k = 0; k < factors->n; k++)
        if (factors->factor[k].out_dim[i] == dim)
            return (int)k;
    return -1;
}
