/*
 * clip: the global norm of the gradients as `output {name="grad_norm"}`, and with clip=C all
 * gradients scaled by min(1, C / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does.
 *
 * The squares of each gradient are one reduce_sum, so that a split gradient gives a partial sum;
 * the sums are added in the order of the parameters, after all of them: the ranks then meet once
 * for all their partial sums. Needs: autodiff. Cost: linear in parameters; at run time one read of
 * every gradient.
 */
#include "ir/builder.h"
#include "passes/graph/edit.h"
#include "passes/graph/optimizer.h"
#include "passes/pass.h"

static MotValue sum_of_squares(MotBuilder *b, MotValue grad, MotDtype dtype)
{
    static const int64_t all[MOT_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    MotValue g = mot_cast(b, grad, dtype);
    return mot_reduce_sum(b, mot_mul(b, g, g), all, (uint32_t)mot_graph_type(b->graph, grad)->rank,
                          MOT_DROP);
}

static MotDtype widest_dtype(const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_GRADIENT && mot_graph_type(g, op->in[1])->dtype == MOT_F64)
            return MOT_F64;
    }
    return MOT_F32;
}

static MotValue global_norm(MotBuilder *b)
{
    MotGraph *g = b->graph;
    MotDtype dtype = widest_dtype(g);
    MotValue *squares = mot_arena_array(&g->ctx->arena, MotValue, g->body.n), total = 0;
    uint32_t n_squares = 0;
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind == MOT_OP_GRADIENT)
            squares[n_squares++] = sum_of_squares(b, op.in[1], dtype);
    }
    for (uint32_t i = 0; i < n_squares; i++)
        total = total ? mot_add(b, total, squares[i]) : squares[i];
    return total ? mot_sqrt(b, total) : 0;
}

/*
 * The `gradient` ops move behind their new operands, so that the body keeps its order: sums first,
 * then what depends on them.
 */
static void scale_gradients(MotBuilder *b, MotValue norm, double clip)
{
    MotGraph *g = b->graph;
    MotArena *arena = &g->ctx->arena;
    MotValue limit = mot_div(b, mot_scalar_like(b, norm, clip), mot_add_scalar(b, norm, 1e-6));
    MotValue scale = mot_min(b, limit, mot_scalar_like(b, limit, 1));
    MotVec(MotOpId) gradients = {0};
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind == MOT_OP_GRADIENT)
            mot_vec_push(arena, &gradients, g->body.data[i]);
    for (uint32_t i = 0; i < gradients.n; i++) {
        const MotOp op = *mot_graph_op(g, gradients.data[i]); /* ops move as they get more */
        op.in[1] = mot_mul(b, op.in[1], mot_cast(b, scale, mot_graph_type(g, op.in[1])->dtype));
        mot_edit_drop(g, gradients.data[i]);
        mot_vec_push(arena, &g->body, gradients.data[i]);
    }
}

static MotStatus clip(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    if (!opts->optimizer)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "there is no optimizer (--optimizer)");
    if (opts->optimizer->demo.replicas)
        return MOT_OK; /* replicas clip on their own: pass demo */
    MotBuilder b = mot_builder_make(g);
    b.role = MOT_ROLE_UPDATE;
    b.origin = "clip";
    MotValue norm = global_norm(&b);
    if (ctx->status == MOT_OK && !norm)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "the graph has no gradients: autodiff comes first");
    mot_output(&b, MOT_OUTPUT_GRAD_NORM, norm);
    if (opts->optimizer->clip > 0)
        scale_gradients(&b, norm, opts->optimizer->clip);
    *out_changed = true;
    return ctx->status;
}

const MotPass mot_pass_clip = {
    .name = "clip", .summary = "the gradients' global norm, and the bound on it", .run = clip};
