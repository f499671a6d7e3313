/*
 * From a launch's graph to nests. Composites without a shape of their own are expanded; ops with
 * one become a nest each; what is left is stored by pointwise, row and column nests, one for all
 * results that agree on their loops.
 */
#include "codegen/kernel_dag.h"

typedef struct {
    MotCtx *ctx;
    const MotGraph *g; /* expanded */
    MotKernelIr *kernel;
    uint32_t *buf_of;                  /* [values]: buffer + 1 */
    MotValue result[MOT_MAX_OPERANDS]; /* without the reshapes before the output */
    uint32_t n_results;
    bool is_stored[MOT_MAX_OPERANDS];
} Build;

/* ---- Expansion ---- */

/*
 * Expansions with numbers that follow from a dim, such as the n of a mean: from which dim of
 * operand 0 on must sizes be known?
 */
static int find_first_whole(const MotOp *op, int rank)
{
    if (op->kind == MOT_OP_LAYER_NORM || op->kind == MOT_OP_LAYER_NORM_GRAD)
        return (int)mot_attrs(op, norm)->axis;
    return op->kind == MOT_OP_CROSS_ENTROPY || op->kind == MOT_OP_CROSS_ENTROPY_GRAD ? rank - 1
                                                                                     : rank;
}

static MotStatus check_whole(MotCtx *ctx, const MotGraph *g, const MotOp *op)
{
    const MotType *type = mot_graph_type(g, op->in[0]);
    for (int d = find_first_whole(op, type->rank); d < type->rank; d++)
        if (type->dims[d] < 0)
            return mot_fail(ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(g, op),
                            "%s needs dim %d whole, not split", mot_op_info(op->kind)->name, d);
    return MOT_OK;
}

static MotStatus clone_op(MotBuilder *b, const MotGraph *from, const MotOp *op, MotValue *map)
{
    MotValue in[MOT_MAX_OPERANDS], results[MOT_MAX_RESULTS] = {0};
    MotType types[MOT_MAX_RESULTS];
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = map[op->in[i]];
    for (uint32_t i = 0; i < op->n_out; i++)
        types[i] = *mot_graph_type(from, op->out[i]);
    if (mot_op_info(op->kind)->class == MOT_COMPOSITE && !mot_op_has_nest(op)) {
        MotOp own = *op;
        own.in = in;
        MOT_TRY(check_whole(b->graph->ctx, from, op));
        MOT_TRY(mot_expand(b, &own, results));
    } else {
        b->origin = op->origin;
        MotOpId id = mot_build_typed(b, op->kind, in, op->n_in, op->attrs, types);
        for (uint32_t i = 0; i < op->n_out; i++)
            results[i] = mot_result(b, id, i);
    }
    for (uint32_t i = 0; i < op->n_out; i++)
        map[op->out[i]] = results[i];
    return b->graph->ctx->status;
}

static bool has_composites(const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (mot_op_info(op->kind)->class == MOT_COMPOSITE && !mot_op_has_nest(op))
            return true;
    }
    return false;
}

/*
 * A graph without composites but those that have a nest. An expansion may hold composites of its
 * own.
 */
static MotStatus expand_graph(MotCtx *ctx, const MotGraph *g, const MotGraph **out)
{
    while (has_composites(g)) {
        MotGraph *next = mot_graph_make(ctx, g->name);
        for (uint32_t i = 0; i < g->symbols.n; i++)
            mot_vec_push(&ctx->arena, &next->symbols, g->symbols.data[i]);
        MotBuilder b = mot_builder_make(next);
        MotValue *map = mot_arena_array(&ctx->arena, MotValue, g->values.n);
        for (uint32_t i = 0; i < g->body.n; i++)
            MOT_TRY(clone_op(&b, g, mot_graph_op(g, g->body.data[i]), map));
        g = next;
    }
    *out = g;
    return MOT_OK;
}

/* ---- Buffers ---- */

static MotStatus number_buffers(Build *b)
{
    const MotGraph *g = b->g;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT)
            b->buf_of[op->out[0]] = ++n;
    }
    b->kernel->n_operands = n;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_OUTPUT)
            continue;
        if (b->n_results == MOT_MAX_OPERANDS)
            return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                            "a kernel has more than %d results", MOT_MAX_OPERANDS);
        MotValue v = op->in[0];
        while (mot_graph_def(g, v)->kind == MOT_OP_RESHAPE)
            v = mot_graph_def(g, v)->in[0];
        b->result[b->n_results++] = v;
    }
    b->kernel->n_bufs = n + b->n_results;
    return MOT_OK;
}

static MotStatus check_ops(Build *b)
{
    for (uint32_t i = 0; i < b->g->body.n; i++) {
        const MotOp *op = mot_graph_op(b->g, b->g->body.data[i]);
        if (op->region)
            return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(b->g, op),
                            "%s: an operator with a region is not compiled yet",
                            mot_op_info(op->kind)->name);
    }
    return MOT_OK;
}

/*
 * In memory the dtypes of training in f32; within a kernel also f64, which the optimizers' scalars
 * want.
 */
static MotStatus check_dtypes(Build *b)
{
    static const bool is_stored[MOT_N_DTYPES] = {
        [MOT_F32] = true, [MOT_I32] = true, [MOT_I64] = true, [MOT_U8] = true, [MOT_BOOL] = true};
    static const bool is_f32_only[MOT_N_OPS] = {[MOT_OP_TANH] = true, [MOT_OP_ERF] = true};
    for (MotValue v = 1; v < b->g->values.n; v++) {
        MotDtype dtype = mot_graph_type(b->g, v)->dtype;
        const MotOp *op = mot_graph_def(b->g, v);
        bool is_known =
            is_stored[dtype] || (dtype == MOT_F64 && !b->buf_of[v] && !is_f32_only[op->kind]);
        if (!is_known)
            return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(b->g, op),
                            "compiled kernels take and give f32, i32, i64, u8 and bool, not %s",
                            mot_dtype_name(dtype));
    }
    for (MotOpId id = 0; id < b->g->ops.n; id++) {
        const MotOp *op = mot_graph_op(b->g, id);
        MotDtype sums = op->kind == MOT_OP_CONTRACT ? mot_attrs(op, contract)->accumulate : 0;
        if (sums && sums != MOT_F32)
            return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(b->g, op),
                            "compiled contractions accumulate in f32, not in %s",
                            mot_dtype_name(sums));
    }
    for (uint32_t i = 0; i < b->n_results; i++)
        if (mot_graph_type(b->g, b->result[i])->dtype == MOT_F64)
            return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                            "compiled kernels give no f64 results");
    return MOT_OK;
}

static MotStatus add_nest(Build *b, MotNest *nest)
{
    if (b->kernel->n_nests == MOT_MAX_NESTS)
        return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "a kernel needs more than %d nests", MOT_MAX_NESTS);
    b->kernel->nest[b->kernel->n_nests++] = nest;
    return MOT_OK;
}

/* ---- Ops with a nest of their own ---- */

/* The results of such an op lie in the buffers of the launch's results that they are. */
static MotStatus place_results(Build *b, const MotOp *op)
{
    for (uint32_t k = 0; k < op->n_out; k++) {
        for (uint32_t i = 0; i < b->n_results && !b->buf_of[op->out[k]]; i++)
            if (b->result[i] == op->out[k]) {
                b->buf_of[op->out[k]] = b->kernel->n_operands + i + 1;
                b->is_stored[i] = true;
            }
        if (!b->buf_of[op->out[k]])
            return mot_fail(
                b->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(b->g, op),
                "no kernel shape covers this %s: it is followed by other ops in one kernel",
                mot_op_info(op->kind)->name);
    }
    return MOT_OK;
}

static MotStatus build_op_nests(Build *b)
{
    for (uint32_t i = 0; i < b->g->body.n; i++) {
        const MotOp *op = mot_graph_op(b->g, b->g->body.data[i]);
        if (!mot_op_has_nest(op))
            continue;
        bool is_ready = true;
        for (uint32_t k = 0; k < op->n_in; k++)
            is_ready = is_ready && (!op->in[k] || b->buf_of[op->in[k]]);
        if (!is_ready)
            return mot_fail(b->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(b->g, op),
                            "no kernel shape covers this %s: it follows other ops in one kernel",
                            mot_op_info(op->kind)->name);
        uint32_t *buf_of =
            mot_arena_copy(&b->ctx->arena, b->buf_of, b->g->values.n * sizeof *buf_of);
        for (uint32_t k = 0; k < op->n_out; k++)
            for (uint32_t r = 0; r < b->n_results; r++)
                if (b->result[r] == op->out[k])
                    buf_of[op->out[k]] = b->kernel->n_operands + r + 1;
        MotNest *nest = mot_nest_of_op(b->ctx, b->g, op, buf_of);
        if (!nest)
            continue;
        MOT_TRY(place_results(b, op));
        MOT_TRY(add_nest(b, nest));
    }
    return b->ctx->status;
}

/* ---- Pointwise, row and column nests ---- */

/*
 * Sees a result from the loops of a nest whose first result has type `first`: dim by dim where the
 * ranks are equal, else its dims are the kept loops in order. False if neither fits.
 */
static bool fit_result(const MotDag *dag, const MotType *first, const MotType *type, MotView *out)
{
    *out = (MotView){.rank = type->rank};
    int loop_of_dim[MOT_MAX_RANK], n = 0;
    for (int d = 0; d < first->rank; d++)
        loop_of_dim[d] = first->dims[d] == 1 ? -1 : n++;
    bool fits = type->rank == first->rank;
    for (int d = 0; fits && d < type->rank; d++) {
        fits = type->dims[d] == 1 || type->dims[d] == first->dims[d];
        out->axis[d] = (MotAxis){.loop = type->dims[d] == 1 ? -1 : loop_of_dim[d], .step = 1};
    }
    if (fits)
        return true;
    int loop = 0;
    for (int d = 0; d < type->rank; d++) {
        out->axis[d] = (MotAxis){.loop = -1};
        if (type->dims[d] == 1)
            continue;
        while (loop < n && dag->reduced >> loop & 1)
            loop++;
        if (loop == n ||
            !mot_extent_equal(dag->nest->loop[loop].extent, mot_extent_make(type->dims[d])))
            return false;
        out->axis[d] = (MotAxis){.loop = loop++, .step = 1};
    }
    return true;
}

/* Whether the nest has no points: a kept loop of size 0, which makes strides 0 too. */
static bool is_empty(const MotDag *dag)
{
    for (int l = 0; l < dag->nest->n_loops; l++)
        if (!(dag->reduced >> l & 1) && mot_extent_is(dag->nest->loop[l].extent, 0))
            return true;
    return false;
}

/* Every kept loop must move the store: else its points would write the same elements. */
static bool stores_cover(const MotDag *dag)
{
    for (uint32_t i = 0; i < dag->nest->stores.n; i++) {
        const MotStore *s = &dag->nest->stores.data[i];
        for (int l = 0; l < dag->nest->n_loops; l++) {
            bool moves = s->access.stride[l].factor != 0;
            if (dag->reduced >> l & 1 ? !moves && dag->nest->nodes.data[s->value].loops >> l & 1
                                      : !moves)
                return false;
        }
    }
    return true;
}

/* A nest that stores these results, or NULL (and perhaps an error) if no one nest can. */
static MotNest *build_nest(Build *b, const uint32_t *results, uint32_t n)
{
    MotDag dag = {.ctx = b->ctx,
                  .g = b->g,
                  .buf_of = b->buf_of,
                  .nest = mot_nest_make(b->ctx, MOT_SHAPE_POINTWISE)};
    const MotType *first = mot_graph_type(b->g, b->result[results[0]]);
    for (int d = 0; d < first->rank; d++)
        if (first->dims[d] != 1)
            mot_nest_add_loop(b->ctx, dag.nest, mot_extent_make(first->dims[d]));
    for (uint32_t i = 0; i < n; i++) {
        MotValue v = b->result[results[i]];
        MotView view;
        if (!fit_result(&dag, first, mot_graph_type(b->g, v), &view))
            return NULL;
        MotNode value = mot_dag_build(&dag, v, &view);
        if (!value)
            return NULL;
        MotAccess access =
            mot_access_make(mot_graph_type(b->g, v), b->kernel->n_operands + results[i], &view);
        mot_vec_push(&b->ctx->arena, &dag.nest->stores, (MotStore){access, value});
    }
    if (!(is_empty(&dag) || stores_cover(&dag)) ||
        mot_nest_finish(b->ctx, dag.nest, dag.reduced) != MOT_OK)
        return NULL;
    return dag.nest;
}

static int count_dims(const MotType *type)
{
    int n = 0;
    for (int d = 0; d < type->rank; d++)
        n += type->dims[d] != 1;
    return n;
}

/* The results that no nest stores yet, those with most dims first. */
static uint32_t list_results(const Build *b, uint32_t *out)
{
    uint32_t n = 0;
    for (int dims = MOT_MAX_RANK; dims >= 0; dims--)
        for (uint32_t i = 0; i < b->n_results; i++)
            if (!b->is_stored[i] && count_dims(mot_graph_type(b->g, b->result[i])) == dims)
                out[n++] = i;
    return n;
}

/* Greedy: a nest takes every result that fits to those that it has. */
static MotStatus build_dag_nests(Build *b)
{
    uint32_t todo[MOT_MAX_OPERANDS], n = list_results(b, todo);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t group[MOT_MAX_OPERANDS] = {todo[i]}, n_group = 1;
        if (b->is_stored[todo[i]])
            continue;
        MotNest *nest = build_nest(b, group, 1);
        if (!nest)
            return b->ctx->status != MOT_OK
                       ? b->ctx->status
                       : mot_fail(
                             b->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                             "no kernel shape covers how these results depend on their operands");
        for (uint32_t k = i + 1; k < n; k++) {
            if (b->is_stored[todo[k]])
                continue;
            group[n_group] = todo[k];
            MotNest *joined = build_nest(b, group, n_group + 1);
            if (joined) {
                nest = joined;
                n_group++;
            } else {
                mot_error_clear(b->ctx);
            }
        }
        for (uint32_t k = 0; k < n_group; k++)
            b->is_stored[group[k]] = true;
        MOT_TRY(add_nest(b, nest));
    }
    return MOT_OK;
}

MotStatus mot_kernel_build(MotCtx *ctx, const MotGraph *graph, MotKernelIr *out_kernel)
{
    *out_kernel = (MotKernelIr){.graph = graph};
    Build b = {.ctx = ctx, .kernel = out_kernel};
    b.g = mot_graph_clone(ctx, graph);
    MOT_TRY(check_ops(&b));
    MOT_TRY(expand_graph(ctx, b.g, &b.g)); /* a copy: the original may belong to another thread */
    b.buf_of = mot_arena_array(&ctx->arena, uint32_t, b.g->values.n);
    MOT_TRY(number_buffers(&b));
    MOT_TRY(check_dtypes(&b));
    MOT_TRY(build_op_nests(&b));
    return build_dag_nests(&b);
}
