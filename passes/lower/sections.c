/* One sweep from results to operands: the sections of an op follow from those of its users. */
#include "passes/lower/sections.h"

enum {
    COUNT = 1 << MOT_SECTION_COUNT,
    FORWARD = 1 << MOT_SECTION_FORWARD,
    BACKWARD = 1 << MOT_SECTION_BACKWARD,
    STEP = 1 << MOT_SECTION_STEP,
    EVAL = 1 << MOT_SECTION_EVAL
};

bool mot_is_cut(const MotPlan *plan, const MotOp *op)
{
    return plan->n_micro > 1 && op->kind == MOT_OP_ACCUMULATE;
}

static bool has_assignments(const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind == MOT_OP_ASSIGN)
            return true;
    return false;
}

/*
 * Sections of which the op is a result. Gradients are results only where nothing is updated by them
 * (`motley grad`).
 */
static unsigned find_root(const MotOp *op, bool is_training)
{
    if (op->kind == MOT_OP_OUTPUT)
        return op->role == MOT_ROLE_FORWARD ? STEP | EVAL : STEP;
    bool is_root =
        mot_op_info(op->kind)->class == MOT_SINK && (op->kind == MOT_OP_ASSIGN) == is_training;
    return is_root ? STEP : 0;
}

/* A micro-batch runs forward ops first: what its backward pass reads of them is kept. */
static unsigned split_by_role(const MotOp *op)
{
    return op->role == MOT_ROLE_FORWARD ? FORWARD : BACKWARD;
}

static unsigned sections_of_cut(const MotOp *op, unsigned users)
{
    unsigned runs = users & EVAL;
    if (users & (FORWARD | BACKWARD))
        return runs | COUNT;
    return users & STEP ? runs | split_by_role(op) : runs;
}

static unsigned sections_of(const MotOp *op, unsigned users)
{
    unsigned runs = users & (COUNT | STEP | EVAL);
    return users & (FORWARD | BACKWARD) ? runs | split_by_role(op) : runs;
}

/* Inputs for the host's scalars are the same for all micro-batches. */
static bool reads_batch(const MotOp *op)
{
    return op->kind == MOT_OP_INPUT && mot_attrs(op, input)->name[0] != '@';
}

static MotStatus check(MotCtx *ctx, const MotPlan *plan, const MotOp *op, unsigned users)
{
    if (plan->n_micro > 1 && reads_batch(op) && users & STEP) {
        mot_fail(
            ctx, MOT_ERR_MISMATCH, mot_op_loc(plan->graph, op),
            "the step reads input %s after its %u micro-batches: the graph does not accumulate",
            mot_quote(&ctx->arena, mot_attrs(op, input)->name), plan->n_micro);
        mot_hint(ctx,
                 "plan with --accumulate: loss and gradients then are sums over micro-batches");
        return ctx->status;
    }
    if (mot_is_cut(plan, op) && users & COUNT)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(plan->graph, op),
                        "a sum over micro-batches depends on two such sums before it");
    return MOT_OK;
}

MotStatus mot_sections_find(MotCtx *ctx, const MotPlan *plan, MotSections *out_sections)
{
    const MotGraph *g = plan->graph;
    MotSections s = {.runs = mot_arena_array(&ctx->arena, uint32_t, g->ops.n),
                     .ready = mot_arena_array(&ctx->arena, uint32_t, g->ops.n)};
    uint32_t *users = mot_arena_array(&ctx->arena, uint32_t, g->ops.n);
    bool is_training = has_assignments(g);
    for (uint32_t i = g->body.n; i-- > 0;) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        bool is_cut = mot_is_cut(plan, op);
        users[id] |= find_root(op, is_training);
        MOT_TRY(check(ctx, plan, op, users[id]));
        s.ready[id] = is_cut ? users[id] & ~(uint32_t)EVAL : 0;
        s.runs[id] = is_cut ? sections_of_cut(op, users[id]) : sections_of(op, users[id]);
        for (uint32_t k = 0; k < op->n_in; k++)
            users[g->values.data[op->in[k]].def] |= s.runs[id];
    }
    *out_sections = s;
    return MOT_OK;
}
