/*
 * Nests: extents, nodes, and what is derived once a nest is complete: the order of its loops, which
 * of them are really one, the shape, the lanes, and the phases of its reductions. Quadratic in
 * loops, linear in nodes.
 */
#include "codegen/kernel_dag.h"

#include <string.h>

const char *const mot_shape_names[] = {"pointwise", "row",  "column",    "contract",
                                       "scatter",   "rows", "attention", "attention_grad"};

MotExtent mot_extent_make(int64_t dim)
{
    return dim >= 0 ? (MotExtent){.factor = dim}
                    : (MotExtent){.factor = 1, .n = 1, .dim = {(uint16_t)(-dim - 1)}};
}

static MotExtent scale_extent(MotExtent a, int64_t factor)
{
    a.factor *= factor;
    return a.factor ? a : (MotExtent){0};
}

MotExtent mot_extent_mul(MotExtent a, MotExtent b)
{
    MotExtent out = {.factor = a.factor * b.factor};
    if (!out.factor)
        return out;
    for (uint32_t i = 0, j = 0; i < a.n || j < b.n;) {
        MOT_ASSERT(out.n < MOT_MAX_RANK); /* a product over the dims of one tensor */
        out.dim[out.n++] = j == b.n || (i < a.n && a.dim[i] <= b.dim[j]) ? a.dim[i++] : b.dim[j++];
    }
    return out;
}

bool mot_extent_equal(MotExtent a, MotExtent b)
{
    return a.factor == b.factor && a.n == b.n && memcmp(a.dim, b.dim, a.n * sizeof *a.dim) == 0;
}

bool mot_extent_is(MotExtent a, int64_t constant)
{
    return a.n == 0 && a.factor == constant;
}

MotNest *mot_nest_make(MotCtx *ctx, MotShape shape)
{
    MotNest *nest = mot_arena_new(&ctx->arena, MotNest);
    *nest = (MotNest){.shape = shape, .lane_loop = -1};
    mot_vec_push(&ctx->arena, &nest->nodes, (MotNodeInfo){0});
    return nest;
}

int mot_nest_add_loop(MotCtx *ctx, MotNest *nest, MotExtent extent)
{
    if (nest->n_loops == MOT_MAX_LOOPS) {
        mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "a kernel needs more than %d loops",
                 MOT_MAX_LOOPS);
        return -1;
    }
    nest->loop[nest->n_loops].extent = extent;
    return nest->n_loops++;
}

static uint32_t find_access_loops(const MotNest *nest, const MotAccess *access)
{
    uint32_t loops = 0;
    for (int l = 0; l < nest->n_loops; l++)
        if (access->stride[l].factor)
            loops |= 1u << l;
    for (uint32_t i = 0; i < access->n_indices; i++)
        loops |= nest->nodes.data[access->index[i]].loops;
    return loops;
}

/*
 * The loops along which a node's value varies; those that a REDUCE runs over are taken out by
 * `reduced`.
 */
static uint32_t find_node_loops(const MotNest *nest, const MotNodeInfo *node, uint32_t reduced)
{
    uint32_t loops = node->access ? find_access_loops(nest, node->access) : 0;
    if (node->kind == MOT_NODE_INDEX && !node->arg[0])
        loops |= 1u << node->loop;
    for (int i = 0; i < 3; i++)
        loops |= nest->nodes.data[node->arg[i]].loops;
    return node->kind == MOT_NODE_REDUCE ? loops & ~reduced : loops;
}

static bool extents_are_equal(const MotExtent *a, const MotExtent *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!mot_extent_equal(a[i], b[i]))
            return false;
    return true;
}

static bool accesses_are_equal(const MotAccess *a, const MotAccess *b)
{
    if (!a || !b)
        return a == b;
    return a->buf == b->buf && a->dtype == b->dtype && a->n_offsets == b->n_offsets &&
           a->n_indices == b->n_indices &&
           memcmp(a->index, b->index, a->n_indices * sizeof *a->index) == 0 &&
           extents_are_equal(a->stride, b->stride, MOT_MAX_LOOPS) &&
           extents_are_equal(a->offset, b->offset, a->n_offsets) &&
           extents_are_equal(a->index_stride, b->index_stride, a->n_indices);
}

static bool bits_are_equal(double a, double b)
{
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

/*
 * Whether two nodes compute the same; what is derived later does not count. Constants are compared
 * by their bits.
 */
static bool nodes_are_equal(const MotNodeInfo *a, const MotNodeInfo *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op &&
           memcmp(a->arg, b->arg, sizeof a->arg) == 0 && bits_are_equal(a->value, b->value) &&
           a->start == b->start && a->step == b->step && a->loop == b->loop && a->over == b->over &&
           mot_extent_equal(a->extent, b->extent) && accesses_are_equal(a->access, b->access);
}

MotNode mot_nest_add_node(MotCtx *ctx, MotNest *nest, MotNodeInfo node)
{
    for (MotNode i = 1; i < nest->nodes.n; i++)
        if (nodes_are_equal(&nest->nodes.data[i], &node))
            return i;
    node.loops = find_node_loops(nest, &node, 0);
    mot_vec_push(&ctx->arena, &nest->nodes, node);
    return nest->nodes.n - 1;
}

MotAccess mot_access_make(const MotType *type, uint32_t buf, const MotView *view)
{
    MotAccess access = {.buf = buf, .dtype = type->dtype};
    MotExtent stride = {.factor = 1};
    for (int d = type->rank; d-- > 0;) {
        const MotAxis *a = &view->axis[d];
        if (a->start)
            access.offset[access.n_offsets++] = scale_extent(stride, a->start);
        if (a->loop >= 0)
            access.stride[a->loop] = scale_extent(stride, a->step);
        if (a->index) {
            access.index[access.n_indices] = a->index;
            access.index_stride[access.n_indices++] = scale_extent(stride, a->step);
        }
        stride = mot_extent_mul(stride, mot_extent_make(type->dims[d]));
    }
    return access;
}

/* ---- Finishing ---- */

/* Calls fn on every access of the nest, stores included. */
static void each_access(MotNest *nest, void (*fn)(MotAccess *, void *), void *arg)
{
    for (uint32_t i = 1; i < nest->nodes.n; i++)
        if (nest->nodes.data[i].access)
            fn(nest->nodes.data[i].access, arg);
    for (uint32_t i = 0; i < nest->stores.n; i++)
        fn(&nest->stores.data[i].access, arg);
}

/* to[l]: the new number of loop l, -1: dropped. */
typedef struct {
    int to[MOT_MAX_LOOPS];
} Renumbering;

static void renumber_access(MotAccess *access, void *arg)
{
    const Renumbering *r = arg;
    MotAccess old = *access;
    memset(access->stride, 0, sizeof access->stride);
    for (int l = 0; l < MOT_MAX_LOOPS; l++)
        if (r->to[l] >= 0)
            access->stride[r->to[l]] = old.stride[l];
}

static void renumber(MotNest *nest, Renumbering *r)
{
    MotLoop old[MOT_MAX_LOOPS];
    memcpy(old, nest->loop, sizeof old);
    int n = 0;
    for (int l = 0; l < nest->n_loops; l++)
        if (r->to[l] >= 0) {
            nest->loop[r->to[l]] = old[l];
            n++;
        }
    each_access(nest, renumber_access, r);
    for (uint32_t i = 1; i < nest->nodes.n; i++)
        if (nest->nodes.data[i].kind == MOT_NODE_INDEX && !nest->nodes.data[i].arg[0])
            nest->nodes.data[i].loop = r->to[nest->nodes.data[i].loop];
    nest->n_loops = n;
}

static void put_kept_loops_first(MotNest *nest, uint32_t reduced)
{
    Renumbering r;
    int n = 0;
    memset(r.to, -1, sizeof r.to);
    for (uint32_t side = 0; side < 2; side++) {
        for (int l = 0; l < nest->n_loops; l++)
            if ((reduced >> l & 1) == side)
                r.to[l] = n++;
        if (side == 0)
            nest->n_kept = n;
    }
    renumber(nest, &r);
}

typedef struct {
    int loop; /* may it be one with the next? */
    MotExtent inner;
    bool fits;
} Joint;

static void check_joint(MotAccess *access, void *arg)
{
    Joint *j = arg;
    MotExtent step = mot_extent_mul(access->stride[j->loop + 1], j->inner);
    j->fits = j->fits && mot_extent_equal(access->stride[j->loop], step);
}

static bool can_join(MotNest *nest, int l)
{
    Joint joint = {l, nest->loop[l + 1].extent, true};
    if (l + 1 == nest->n_kept)
        return false;
    for (uint32_t i = 1; i < nest->nodes.n; i++) {
        const MotNodeInfo *n = &nest->nodes.data[i];
        if (n->kind == MOT_NODE_INDEX && !n->arg[0] && (n->loop == l || n->loop == l + 1))
            return false;
    }
    each_access(nest, check_joint, &joint);
    return joint.fits && nest->loop[l].extent.n + nest->loop[l + 1].extent.n <= MOT_MAX_RANK;
}

static void join_loops(MotNest *nest)
{
    for (int l = nest->n_loops - 1; l-- > 0;)
        if (can_join(nest, l)) {
            nest->loop[l + 1].extent =
                mot_extent_mul(nest->loop[l].extent, nest->loop[l + 1].extent);
            Renumbering r;
            for (int k = 0; k < MOT_MAX_LOOPS; k++)
                r.to[k] = k == l ? -1 : k > l ? k - 1 : k;
            nest->n_kept -= l < nest->n_kept;
            renumber(nest, &r);
        }
}

typedef struct {
    int loop;
    int n_kept, n_loops;
    int score; /* accesses that are contiguous along it less those that are strided */
} Contiguity;

/* Only accesses at every point count; those of a row are few. */
static void count_contiguous(MotAccess *access, void *arg)
{
    Contiguity *c = arg;
    bool is_inner = false;
    for (int l = c->n_kept; l < c->n_loops; l++)
        is_inner |= access->stride[l].factor != 0;
    if (is_inner && access->stride[c->loop].factor)
        c->score += mot_extent_is(access->stride[c->loop], 1) ? 1 : -1;
}

static int score_lanes(MotNest *nest, int loop)
{
    Contiguity c = {loop, nest->n_kept, nest->n_loops, 0};
    each_access(nest, count_contiguous, &c);
    return c.score;
}

static void choose_shape(MotNest *nest)
{
    int last_kept = nest->n_kept - 1, last = nest->n_loops - 1;
    if (last == last_kept)
        nest->shape = MOT_SHAPE_POINTWISE;
    else if (last_kept < 0 || score_lanes(nest, last) >= score_lanes(nest, last_kept))
        nest->shape = MOT_SHAPE_ROW;
    else
        nest->shape = MOT_SHAPE_COLUMN;
    nest->lane_loop = nest->shape == MOT_SHAPE_ROW ? last : last_kept;
}

static bool is_dear(const MotNodeInfo *node)
{
    static const bool dear[MOT_N_OPS] = {
        [MOT_OP_EXP] = true,     [MOT_OP_LOG] = true, [MOT_OP_TANH] = true, [MOT_OP_ERF] = true,
        [MOT_OP_SIGMOID] = true, [MOT_OP_POW] = true, [MOT_OP_SIN] = true,  [MOT_OP_COS] = true};
    return node->kind == MOT_NODE_OP && node->dtype == MOT_F32 && dear[node->op];
}

/*
 * Marks the phases in which a node's value is wanted; REDUCE nodes and saved ones are wanted as
 * values, not computed.
 */
static void find_saved(MotCtx *ctx, MotNest *nest, uint32_t reduced)
{
    uint32_t *wanted = mot_arena_array(&ctx->arena, uint32_t, nest->nodes.n);
    for (uint32_t i = 0; i < nest->stores.n; i++)
        wanted[nest->stores.data[i].value] |=
            1u << mot_node_ready(&nest->nodes.data[nest->stores.data[i].value]);
    for (uint32_t i = nest->nodes.n; i-- > 1;) {
        MotNodeInfo *node = &nest->nodes.data[i];
        uint32_t phases = wanted[i];
        node->is_saved = is_dear(node) && node->loops & reduced && phases & (phases - 1);
        if (node->kind == MOT_NODE_REDUCE || node->is_saved)
            phases = 1u << (node->is_saved ? __builtin_ctz(phases) : (int)node->phase);
        for (int k = 0; k < 3; k++)
            wanted[node->arg[k]] |= phases;
        for (uint32_t k = 0; node->access && k < node->access->n_indices; k++)
            wanted[node->access->index[k]] |= phases;
    }
}

static MotStatus derive_phases(MotCtx *ctx, MotNest *nest, uint32_t reduced)
{
    nest->n_phases = 1;
    for (uint32_t i = 1; i < nest->nodes.n; i++) {
        MotNodeInfo *node = &nest->nodes.data[i];
        node->loops = find_node_loops(nest, node, reduced);
        for (int k = 0; k < 3; k++) {
            const MotNodeInfo *arg = &nest->nodes.data[node->arg[k]];
            uint32_t phase = mot_node_ready(arg);
            node->phase = phase > node->phase ? phase : node->phase;
        }
        if (node->kind == MOT_NODE_REDUCE && node->phase + 1 > nest->n_phases)
            nest->n_phases = node->phase + 1;
    }
    for (uint32_t i = 0; i < nest->stores.n; i++) {
        const MotNodeInfo *value = &nest->nodes.data[nest->stores.data[i].value];
        if (find_access_loops(nest, &nest->stores.data[i].access) & reduced &&
            mot_node_ready(value) + 1 > nest->n_phases)
            nest->n_phases = mot_node_ready(value) + 1;
    }
    if (nest->n_phases > 16)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "a kernel has more than 16 reductions in a chain");
    find_saved(ctx, nest, reduced);
    return MOT_OK;
}

MotStatus mot_nest_finish(MotCtx *ctx, MotNest *nest, uint32_t reduced)
{
    if (nest->n_loops == 0) /* a scalar is a line of one element */
        mot_nest_add_loop(ctx, nest, (MotExtent){.factor = 1});
    for (uint32_t i = 1; i < nest->nodes.n; i++)
        if (nest->nodes.data[i].kind == MOT_NODE_REDUCE && nest->nodes.data[i].over != reduced)
            return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                            "no kernel shape covers reductions over different loops in one kernel");
    put_kept_loops_first(nest, reduced);
    join_loops(nest);
    choose_shape(nest);
    MOT_ASSERT(0 <= nest->n_kept && nest->n_kept <= nest->n_loops &&
               nest->n_loops <= MOT_MAX_LOOPS);
    reduced = ((1u << nest->n_loops) - 1) & ~((1u << nest->n_kept) - 1);
    return derive_phases(ctx, nest, reduced);
}
