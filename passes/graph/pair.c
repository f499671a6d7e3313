/*
 * pair: a cross-entropy is computed where its gradient is, so that lowering makes one kernel of
 * both, which reads the logits once and takes each exponential once.
 *
 * Only the order of the body changes: what stands between the two and follows from the loss, its
 * mean for instance, comes behind them. Needs: autodiff. Leaves a gradient that follows from the
 * loss's own value (a focal loss) where it is. Cost: linear in ops a loss.
 */
#include "passes/pass.h"

#include <string.h>

/* Whether an operand is among the marked values; if so, marks the results. */
static bool follows(const MotOp *op, bool *is_marked)
{
    bool is_behind = false;
    for (uint32_t k = 0; k < op->n_in; k++)
        is_behind |= is_marked[op->in[k]];
    for (uint32_t k = 0; k < op->n_out; k++)
        is_marked[op->out[k]] = is_behind;
    return is_behind;
}

/* body[first] is the loss, body[last] its gradient. */
static bool bring_together(MotGraph *g, uint32_t first, uint32_t last)
{
    MotArena *arena = &g->ctx->arena;
    MotArenaMark mark = mot_arena_mark(arena);
    bool *is_marked = mot_arena_array(arena, bool, g->values.n);
    MotOpId *behind = mot_arena_array(arena, MotOpId, last - first),
            *order = mot_arena_array(arena, MotOpId, last - first + 1), *body = g->body.data;
    uint32_t n_behind = 0, n = 0;
    is_marked[mot_graph_op(g, body[first])->out[0]] = true;
    for (uint32_t i = first + 1; i < last; i++)
        if (follows(mot_graph_op(g, body[i]), is_marked))
            behind[n_behind++] = body[i];
        else
            order[n++] = body[i];
    bool is_free = !follows(mot_graph_op(g, body[last]), is_marked);
    if (is_free) {
        order[n++] = body[first];
        order[n++] = body[last];
        memcpy(order + n, behind, n_behind * sizeof *order);
        memcpy(body + first, order, (last - first + 1) * sizeof *order);
    }
    mot_arena_rewind(arena, mark);
    return is_free;
}

static MotStatus pair(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    (void)opts;
    for (uint32_t last = 0; last < g->body.n; last++) {
        const MotOp *grad = mot_graph_op(g, g->body.data[last]);
        if (grad->kind != MOT_OP_CROSS_ENTROPY_GRAD)
            continue;
        uint32_t first = 0;
        while (first < last && g->body.data[first] != grad->fwd)
            first++;
        if (first < last && mot_op_can_pair(mot_graph_op(g, grad->fwd), grad))
            *out_changed |= bring_together(g, first, last);
    }
    return ctx->status;
}

const MotPass mot_pass_pair = {
    .name = "pair", .summary = "a loss and its gradient follow each other", .run = pair};
