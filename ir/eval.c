/*
 * Reference evaluation: the driver. One slow readable function a primitive stands in
 * eval_pointwise.c, eval_move.c and eval_sum.c; composites are evaluated by their expansion.
 * Sequential and deterministic; linear in elements, but for contractions, which are linear in
 * multiply-accumulates.
 */
#include "ir/eval.h"

#include "ir/eval_rules.h"
#include "ir/expand.h"

#include <string.h>

typedef MotStatus (*EvalRule)(MotEval *);

/* ---- Loops and elements ---- */

void mot_eval_strides(const MotType *type, int64_t *out_strides)
{
    int64_t stride = 1;
    for (int d = type->rank; d-- > 0;) {
        out_strides[d] = stride;
        stride *= type->dims[d];
    }
}

bool mot_walk_begin(MotWalk *walk)
{
    bool is_empty = false;
    for (int i = 0; i < walk->n_loops; i++) {
        walk->at[i] = 0;
        is_empty = is_empty || walk->size[i] == 0;
    }
    return !is_empty;
}

bool mot_walk_next(MotWalk *walk)
{
    for (int i = walk->n_loops; i-- > 0;) {
        bool wraps = ++walk->at[i] == walk->size[i];
        int64_t rounds = wraps ? 1 - walk->size[i] : 1;
        for (int k = 0; k < MOT_WALK_TENSORS; k++)
            walk->offset[k] += rounds * walk->step[k][i];
        if (!wraps)
            return true;
        walk->at[i] = 0;
    }
    return false;
}

double *mot_eval_load(MotCtx *ctx, const MotTensor *tensor)
{
    int64_t n = mot_type_elements(&tensor->type);
    double *data = mot_arena_array(&ctx->arena, double, n);
    for (int64_t i = 0; i < n; i++)
        data[i] = mot_tensor_get(tensor, i);
    return data;
}

int64_t *mot_eval_load_int(MotCtx *ctx, const MotTensor *tensor)
{
    int64_t n = mot_type_elements(&tensor->type);
    int64_t *data = mot_arena_array(&ctx->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        data[i] = mot_tensor_get_int(tensor, i);
    return data;
}

void mot_eval_store(MotTensor *tensor, const double *data)
{
    int64_t n = mot_type_elements(&tensor->type);
    for (int64_t i = 0; i < n; i++)
        mot_tensor_set(tensor, i, data[i]);
}

void mot_eval_store_int(MotTensor *tensor, const int64_t *data)
{
    int64_t n = mot_type_elements(&tensor->type);
    for (int64_t i = 0; i < n; i++)
        mot_tensor_set_int(tensor, i, data[i]);
}

/* ---- Ops ---- */

static MotStatus eval_composite(MotEval *e)
{
    MotType types[MOT_MAX_OPERANDS] = {{0}};
    for (uint32_t i = 0; i < e->op->n_in; i++)
        if (e->op->in[i])
            types[i] = e->in[i].type;
    MotExpansion x;
    MOT_TRY(mot_expand_alone(e->ctx, e->op, types, &x));
    MotTensor *values = mot_arena_array(&e->ctx->arena, MotTensor, x.graph->values.n);
    for (uint32_t i = 0; i < e->op->n_in; i++)
        if (x.in[i])
            values[x.in[i]] = e->in[i];
    MOT_TRY(mot_eval_graph(e->ctx, x.graph, values, false));
    for (uint32_t i = 0; i < e->op->n_out; i++) {
        const MotTensor *result = &values[x.out[i]];
        if (!mot_type_equal(&result->type, &e->out[i].type))
            return mot_fail(e->ctx, MOT_ERR_INTERNAL, mot_op_loc(e->g, e->op),
                            "result %u of %s has another type than its expansion", i,
                            mot_op_info(e->op->kind)->name);
        if (mot_type_bytes(&result->type))
            memcpy(e->out[i].data, result->data, (size_t)mot_type_bytes(&result->type));
    }
    return MOT_OK;
}

/* Nothing to compute: an output shows its operand, and a parameter takes its assigned value when
 * the step is over. */
static MotStatus eval_sink(MotEval *e)
{
    (void)e;
    return MOT_OK;
}

static MotStatus refuse_source(MotEval *e)
{
    return mot_fail(e->ctx, MOT_ERR_INTERNAL, mot_op_loc(e->g, e->op), "%s has no value of its own",
                    mot_op_info(e->op->kind)->name);
}

MotStatus mot_eval_input(MotEval *e)
{
    return refuse_source(e);
}

MotStatus mot_eval_param(MotEval *e)
{
    return refuse_source(e);
}

#define RULE_SOURCE(name) mot_eval_##name
#define RULE_SINK(name) eval_sink
#define RULE_PRIMITIVE(name) mot_eval_##name
#define RULE_COMPOSITE(name) eval_composite

static const EvalRule rules[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = mot_eval_pointwise,
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) [MOT_OP_##id] = RULE_##kind(name),
#include "ir/ops.def"
};

/* After a failure the scratch stays: the error's text stands above it. */
MotStatus mot_eval_op(MotCtx *ctx, const MotGraph *g, const MotOp *op, const MotTensor *in,
                      MotTensor *out)
{
    MotEval e = {.ctx = ctx, .g = g, .op = op, .in = in, .out = out};
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    MOT_TRY(rules[op->kind](&e));
    mot_arena_rewind(&ctx->arena, mark);
    return MOT_OK;
}

/* ---- Graphs ---- */

/* A graph at work: the sizes of its symbolic dims (-1: not known yet). */
typedef struct {
    MotCtx *ctx;
    const MotGraph *g;
    MotTensor *values;
    int64_t *symbols;
    bool in_f64;
} GraphRun;

/* The type of v here: symbolic dims replaced, floats f64 if asked for. */
static MotStatus resolve_type(const GraphRun *run, MotValue v, MotType *out_type)
{
    *out_type = *mot_graph_type(run->g, v);
    if (run->in_f64 && mot_dtype_class(out_type->dtype) == MOT_CLASS_FLOAT)
        out_type->dtype = MOT_F64;
    for (int d = 0; d < out_type->rank; d++) {
        if (out_type->dims[d] >= 0)
            continue;
        int64_t symbol = -out_type->dims[d] - 1;
        out_type->dims[d] = run->symbols[symbol];
        if (out_type->dims[d] < 0)
            return mot_fail(run->ctx, MOT_ERR_MODEL, mot_op_loc(run->g, mot_graph_def(run->g, v)),
                            "no input gives the size of dim %s",
                            mot_quote(&run->ctx->arena, run->g->symbols.data[symbol]));
    }
    return MOT_OK;
}

static const char *type_text(const GraphRun *run, const MotType *type)
{
    return mot_arena_printf(&run->ctx->arena, "%s[%s]", mot_dtype_name(type->dtype),
                            mot_shape_text(&run->ctx->arena, type->dims, type->rank));
}

/* Takes the sizes of symbolic dims from a tensor that the caller gave for v, and checks that it
 * fits the type. */
static MotStatus bind_source(GraphRun *run, MotValue v)
{
    const MotTensor *given = &run->values[v];
    const MotType *declared = mot_graph_type(run->g, v);
    MotLoc loc = mot_op_loc(run->g, mot_graph_def(run->g, v));
    for (int d = 0; d < declared->rank && d < given->type.rank; d++)
        if (declared->dims[d] < 0 && run->symbols[-declared->dims[d] - 1] < 0)
            run->symbols[-declared->dims[d] - 1] = given->type.dims[d];
    MotType wanted;
    MOT_TRY(resolve_type(run, v, &wanted));
    if (given->type.dtype == MOT_NO_DTYPE)
        return mot_fail(run->ctx, MOT_ERR_DATA, loc, "no value was given");
    if (!mot_type_equal(&given->type, &wanted))
        return mot_fail(run->ctx, MOT_ERR_DATA, loc, "%s was given, it must be %s",
                        type_text(run, &given->type), type_text(run, &wanted));
    return MOT_OK;
}

static bool is_given(const MotOp *op)
{
    return op->kind == MOT_OP_INPUT || op->kind == MOT_OP_PARAM;
}

static MotStatus run_op(GraphRun *run, const MotOp *op)
{
    MotTensor in[MOT_MAX_OPERANDS] = {{{0}, NULL}}, out[MOT_MAX_RESULTS] = {{{0}, NULL}};
    if (is_given(op))
        return bind_source(run, op->out[0]);
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = run->values[op->in[i]];
    for (uint32_t i = 0; i < op->n_out; i++) {
        MOT_TRY(resolve_type(run, op->out[i], &out[i].type));
        out[i].data =
            mot_arena_alloc_array(&run->ctx->arena, (size_t)mot_type_elements(&out[i].type),
                                  (size_t)mot_dtype_bytes(out[i].type.dtype));
        run->values[op->out[i]] = out[i];
    }
    return mot_eval_op(run->ctx, run->g, op, in, out);
}

MotStatus mot_eval_graph(MotCtx *ctx, const MotGraph *g, MotTensor *values, bool in_f64)
{
    GraphRun run = {.ctx = ctx,
                    .g = g,
                    .values = values,
                    .symbols = mot_arena_array(&ctx->arena, int64_t, g->symbols.n),
                    .in_f64 = in_f64};
    for (uint32_t i = 0; i < g->symbols.n; i++)
        run.symbols[i] = -1;
    values[0] = (MotTensor){{0}, NULL};
    for (uint32_t i = 0; i < g->body.n; i++) /* all of them first: any may give a size */
        if (is_given(mot_graph_op(g, g->body.data[i])))
            MOT_TRY(run_op(&run, mot_graph_op(g, g->body.data[i])));
    for (uint32_t i = 0; i < g->body.n; i++)
        if (!is_given(mot_graph_op(g, g->body.data[i])))
            MOT_TRY(run_op(&run, mot_graph_op(g, g->body.data[i])));
    return MOT_OK;
}
