/*
 * select-trained: marks the parameters that train, by what they are used for. Weights of contractions, tables of gathers,
 * scales and biases train; scalars, integers, masks and rotary tables do not. --freeze and --train overrule, in this order.
 *
 * A use is judged by the op that reads the parameter, behind ops that only move or cast its elements. One use that trains
 * decides. Needs: raise. Cost: parameters times ops.
 */
#include "passes/graph/trained.h"

typedef struct {
    const MotGraph *g;
    bool *is_constant;     /* [values] depends on no input */
    bool *reaches_softmax; /* [values] by pointwise ops and moves only */
} Uses;

typedef struct {
    bool is_trained;
    const char *reason; /* NULL: says nothing about it */
} Verdict;

/* Ops behind which a parameter is still itself, and a score still a score. */
static bool is_move(MotOpKind kind)
{
    return kind == MOT_OP_RESHAPE || kind == MOT_OP_TRANSPOSE || kind == MOT_OP_BROADCAST || kind == MOT_OP_SLICE ||
           kind == MOT_OP_CAST;
}

static Uses find_uses(MotCtx *ctx, const MotGraph *g)
{
    Uses u = {.g = g,
              .is_constant = mot_arena_array(&ctx->arena, bool, g->values.n),
              .reaches_softmax = mot_arena_array(&ctx->arena, bool, g->values.n)};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        bool is_constant = op->kind != MOT_OP_INPUT;
        for (uint32_t k = 0; k < op->n_in; k++)
            is_constant &= !op->in[k] || u.is_constant[op->in[k]];
        for (uint32_t k = 0; k < op->n_out; k++)
            u.is_constant[op->out[k]] = is_constant;
    }
    for (uint32_t i = g->body.n; i-- > 0;) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        bool passes = op->kind == MOT_OP_SOFTMAX;
        if (is_move(op->kind) || op->kind == MOT_OP_ADD || op->kind == MOT_OP_MUL || op->kind == MOT_OP_SELECT)
            passes = u.reaches_softmax[op->out[0]];
        for (uint32_t k = 0; k < op->n_in && passes; k++)
            u.reaches_softmax[op->in[k]] = true;
    }
    return u;
}

/* Dims other than 1. */
static int count_long_dims(const MotType *type)
{
    int n = 0;
    for (int d = 0; d < type->rank; d++)
        n += type->dims[d] != 1;
    return n;
}

static Verdict judge_attention(uint32_t operand)
{
    return operand == 3 ? (Verdict){false, "attention mask"} : (Verdict){true, "contraction weight"};
}

static Verdict judge_product(const Uses *u, const MotOp *op, uint32_t operand)
{
    if (u->is_constant[op->in[1 - operand]])
        return (Verdict){0};
    if (count_long_dims(mot_graph_type(u->g, op->in[operand])) >= 2)
        return (Verdict){false, "product with a table (rotary)"};
    return (Verdict){true, "norm scale"};
}

static Verdict judge_sum(const Uses *u, const MotOp *op, uint32_t operand)
{
    if (u->is_constant[op->in[1 - operand]])
        return (Verdict){0};
    if (u->reaches_softmax[op->out[0]])
        return (Verdict){false, "constant added before a softmax (mask)"};
    return (Verdict){true, "bias addition"};
}

/* What reading the parameter as operand `operand` of `op` says about it. */
static Verdict judge_use(const Uses *u, const MotOp *op, uint32_t operand)
{
    if (op->kind == MOT_OP_CONTRACT)
        return (Verdict){true, "contraction weight"};
    if (op->kind == MOT_OP_GATHER && operand == 0)
        return (Verdict){true, "gather table"};
    if (op->kind == MOT_OP_LAYER_NORM && operand > 0)
        return (Verdict){true, operand == 1 ? "norm scale" : "norm bias"};
    if (op->kind == MOT_OP_ATTENTION)
        return judge_attention(operand);
    if (op->kind == MOT_OP_MUL)
        return judge_product(u, op, operand);
    if (op->kind == MOT_OP_ADD)
        return judge_sum(u, op, operand);
    return (Verdict){0};
}

/* Over all uses of `param`, looking behind moves. */
static Verdict judge_param(MotCtx *ctx, const Uses *u, MotValue param)
{
    const MotType *type = mot_graph_type(u->g, param);
    if (mot_dtype_class(type->dtype) != MOT_CLASS_FLOAT)
        return (Verdict){false, "not float"};
    if (mot_type_elements(type) <= 1)
        return (Verdict){false, "a scalar"};
    Verdict found = {0};
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    bool *is_param = mot_arena_array(&ctx->arena, bool, u->g->values.n);
    is_param[param] = true;
    for (uint32_t i = 0; i < u->g->body.n; i++) {
        const MotOp *op = mot_graph_op(u->g, u->g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++) {
            if (!is_param[op->in[k]])
                continue;
            if (is_move(op->kind))
                is_param[op->out[0]] = true;
            Verdict v = judge_use(u, op, k);
            if (v.reason && (!found.reason || (v.is_trained && !found.is_trained)))
                found = v;
        }
    }
    mot_arena_rewind(&ctx->arena, mark);
    return found.reason ? found : (Verdict){false, "used neither as weight, table, scale nor bias"};
}

static bool matches(MotGlobs globs, const char *name)
{
    for (uint32_t i = 0; i < globs.n; i++)
        if (mot_glob_match(globs.data[i], name))
            return true;
    return false;
}

static Verdict overrule(Verdict v, const MotPassOpts *opts, const MotType *type, const char *name)
{
    if (matches(opts->freeze, name))
        v = (Verdict){false, "--freeze"};
    if (matches(opts->train, name) && mot_dtype_class(type->dtype) == MOT_CLASS_FLOAT)
        v = (Verdict){true, "--train"};
    return v;
}

MotTrainedParam *mot_trained_classify(MotCtx *ctx, const MotGraph *g, const MotPassOpts *opts, uint32_t *out_n)
{
    Uses uses = find_uses(ctx, g);
    MotVec(MotTrainedParam) list = {0};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_PARAM || mot_attrs(op, param)->state_of)
            continue;
        Verdict v = overrule(judge_param(ctx, &uses, op->out[0]), opts, mot_graph_type(g, op->out[0]),
                             mot_attrs(op, param)->name);
        mot_vec_push(&ctx->arena, &list, (MotTrainedParam){op->out[0], v.is_trained, v.reason});
    }
    *out_n = list.n;
    return list.data;
}

/* A glob that names nothing is a typing error. */
static MotStatus check_globs(MotCtx *ctx, const MotGraph *g, const char *option, MotGlobs globs)
{
    for (uint32_t i = 0; i < globs.n; i++) {
        bool is_found = false;
        for (uint32_t k = 0; k < g->body.n; k++) {
            const MotOp *op = mot_graph_op(g, g->body.data[k]);
            is_found |= op->kind == MOT_OP_PARAM && mot_glob_match(globs.data[i], mot_attrs(op, param)->name);
        }
        if (!is_found)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s %s matches no initializer", option,
                            mot_quote(&ctx->arena, globs.data[i]));
    }
    return MOT_OK;
}

static MotStatus select_trained(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    MOT_TRY(check_globs(ctx, g, "--freeze", opts->freeze));
    MOT_TRY(check_globs(ctx, g, "--train", opts->train));
    uint32_t n;
    MotTrainedParam *params = mot_trained_classify(ctx, g, opts, &n);
    for (uint32_t i = 0; i < n; i++)
        mot_attrs(mot_graph_def(g, params[i].param), param)->trained = params[i].is_trained;
    *out_changed = n > 0;
    return MOT_OK;
}

const MotPass mot_pass_select_trained = {"select-trained", "marks the parameters that train", select_trained};
