/*
 * Constant folding, one rule: an op whose operands are all known becomes the constant that the
 * reference evaluation gives.
 *
 * What a few bytes describe is not unrolled: ranges and broadcasts stay (though they count as
 * known), and a result much larger than what it comes from (a mask from two ranges, say) is folded
 * only if it is small. Nothing above a limit, or that takes long to evaluate, is folded. Such ops
 * are computed in the step, which costs time and no correctness; passes that must know their value
 * ask mot_value_known.
 */
#include "ir/eval.h"
#include "passes/graph/simplify.h"

static const int64_t max_bytes = (int64_t)256 << 20, max_grown_bytes = (int64_t)64 << 10;
static const int max_growth = 4;
static const double max_flops = 1e8;

/* What describes a known value. */
static int64_t described_bytes(const MotGraph *g, MotValue v)
{
    const MotOp *op = mot_graph_def(g, v);
    if (op->kind == MOT_OP_BROADCAST)
        op = mot_graph_def(g, op->in[0]);
    return op->kind == MOT_OP_CONSTANT ? mot_type_bytes(mot_graph_type(g, op->out[0])) : 0;
}

static bool is_worth_folding(const MotGraph *g, const MotOp *op)
{
    int64_t in_bytes = 0, out_bytes = 0;
    for (uint32_t i = 0; i < op->n_in; i++)
        in_bytes += op->in[i] ? described_bytes(g, op->in[i]) : 0;
    for (uint32_t i = 0; i < op->n_out; i++)
        out_bytes += mot_type_bytes(mot_graph_type(g, op->out[i]));
    return out_bytes <= max_bytes && out_bytes <= max_growth * in_bytes + max_grown_bytes &&
           mot_op_flops(g, op) <= max_flops;
}

/* Whether v is a constant, a range, or a constant broadcast. */
static bool is_known(const MotGraph *g, MotValue v)
{
    const MotOp *op = mot_graph_def(g, v);
    if (op->kind == MOT_OP_BROADCAST)
        op = mot_graph_def(g, op->in[0]);
    return op->kind == MOT_OP_CONSTANT || op->kind == MOT_OP_IOTA;
}

/* Not what updates; and no loop, which may take long for the little that it gives. */
static bool is_foldable(const MotGraph *g, const MotOp *op)
{
    if (op->kind == MOT_OP_BROADCAST || op->region ||
        (mot_op_info(op->kind)->flags & MOT_FLAG_UPDATE))
        return false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && !is_known(g, op->in[i]))
            return false;
    return is_worth_folding(g, op);
}

/* All results at once: the first replaces the root, the others go along. */
static MotValue fold(MotMatch *m)
{
    MotGraph *g = m->graph;
    MotArena *arena = &g->ctx->arena;
    const MotOp op = *mot_match_root(m);
    MotTensor in[MOT_MAX_OPERANDS] = {0}, out[MOT_MAX_RESULTS] = {0};
    if (op.n_out > 3 || !is_foldable(g, &op))
        return 0;
    for (uint32_t i = 0; i < op.n_in; i++)
        if (op.in[i] && !mot_value_known(g, op.in[i], &in[i]))
            return 0;
    for (uint32_t i = 0; i < op.n_out; i++) {
        out[i].type = *mot_graph_type(g, op.out[i]);
        out[i].data = mot_arena_alloc(arena, (size_t)mot_type_bytes(&out[i].type));
    }
    if (mot_eval_op(g->ctx, g, &op, in, out) != MOT_OK)
        return 0;
    for (uint32_t i = 1; i < op.n_out; i++)
        mot_match_replace(m, op.out[i], mot_constant(m->b, out[i]));
    return mot_constant(m->b, out[0]);
}

/* ---- The value of what was not folded ---- */

typedef struct {
    MotValue value;
    MotTensor tensor;
} Known;

/* A few ops lead to a mask: what is known of them is a list. */
typedef struct {
    MotGraph *g;
    MotVec(Known) known;
    int64_t bytes; /* in `known` */
} Evaluation;

static void learn(Evaluation *e, MotValue v, MotTensor tensor)
{
    mot_vec_push(&e->g->ctx->arena, &e->known, (Known){v, tensor});
}

static bool find_known(const Evaluation *e, MotValue v, MotTensor *out_tensor)
{
    for (uint32_t i = 0; i < e->known.n; i++)
        if (e->known.data[i].value == v) {
            *out_tensor = e->known.data[i].tensor;
            return true;
        }
    return false;
}

static bool evaluate(Evaluation *e, MotValue v, MotTensor *out_tensor);

static bool evaluate_op(Evaluation *e, const MotOp *op)
{
    MotTensor in[MOT_MAX_OPERANDS] = {0}, out[MOT_MAX_RESULTS] = {0};
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && !evaluate(e, op->in[i], &in[i]))
            return false;
    for (uint32_t i = 0; i < op->n_out; i++) {
        out[i].type = *mot_graph_type(e->g, op->out[i]);
        e->bytes += mot_type_bytes(&out[i].type);
        if (e->bytes > max_bytes || mot_op_flops(e->g, op) > max_flops)
            return false;
        out[i].data = mot_arena_alloc(&e->g->ctx->arena, (size_t)mot_type_bytes(&out[i].type));
    }
    if (mot_eval_op(e->g->ctx, e->g, op, in, out) != MOT_OK)
        return false;
    for (uint32_t i = 0; i < op->n_out; i++)
        learn(e, op->out[i], out[i]);
    return true;
}

static bool evaluate(Evaluation *e, MotValue v, MotTensor *out_tensor)
{
    const MotOp *op = mot_graph_def(e->g, v);
    if (op->kind == MOT_OP_CONSTANT) {
        *out_tensor = mot_attrs(op, constant)->data;
        return true;
    }
    if (find_known(e, v, out_tensor))
        return true;
    return op->kind != MOT_OP_INPUT && op->kind != MOT_OP_PARAM && evaluate_op(e, op) &&
           find_known(e, v, out_tensor);
}

/*
 * Whether v follows from constants alone; not deeper than a few ops, lest the recursion above run
 * away.
 */
static bool is_constant_expression(const MotGraph *g, MotValue v, int depth)
{
    const MotOp *op = mot_graph_def(g, v);
    if (op->kind == MOT_OP_CONSTANT || op->kind == MOT_OP_IOTA)
        return true;
    if (op->n_in == 0 || depth == 0 || op->region)
        return false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && !is_constant_expression(g, op->in[i], depth - 1))
            return false;
    return true;
}

bool mot_value_known(MotGraph *g, MotValue v, MotTensor *out_tensor)
{
    enum { MAX_DEPTH = 12 };
    Evaluation e = {.g = g};
    return is_constant_expression(g, v, MAX_DEPTH) && evaluate(&e, v, out_tensor);
}

static const MotRule rules[] = {
    {"fold", "*", fold},
};
const MotRules mot_rules_fold = MOT_RULES(rules);
