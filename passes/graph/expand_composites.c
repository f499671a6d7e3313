/*
 * expand: composites become the primitives that define them (ir/expand.c), for the oracle and for
 * autodiff. Keeps: the function computed. Cost: linear in ops.
 */
#include "passes/graph/expand_composites.h"

#include "ir/builder.h"
#include "passes/pass.h"

/* What was replaced by what, in the order of the expansions. */
typedef struct {
    MotGraph *g;
    MotVec(MotValue) from;
    MotVec(MotValue) to;
} Expansions;

static MotStatus expand_op(Expansions *e, MotOpId id)
{
    MotGraph *g = e->g;
    const MotOp op = *mot_graph_op(g, id); /* ops move while the expansion is built */
    MotBuilder b = mot_builder_make(g);
    b.origin = op.origin;
    b.role = op.role;
    b.fwd = op.fwd;
    MotValue results[4] = {0};
    MOT_TRY(mot_expand(&b, &op, results));
    for (uint32_t i = 0; i < op.n_out; i++) {
        if (!g->values.data[results[i]].name)
            g->values.data[results[i]].name = g->values.data[op.out[i]].name;
        mot_vec_push(&g->ctx->arena, &e->from, op.out[i]);
        mot_vec_push(&g->ctx->arena, &e->to, results[i]);
    }
    return MOT_OK;
}

/*
 * Redirects all uses in one sweep. A result may be that of a composite that was expanded later:
 * hence backwards.
 */
static void redirect_uses(Expansions *e)
{
    MotValue *to = mot_arena_array(&e->g->ctx->arena, MotValue, e->g->values.n);
    for (uint32_t i = e->from.n; i-- > 0;) {
        MotValue *target = &e->to.data[i];
        *target = to[*target] ? to[*target] : *target;
        to[e->from.data[i]] = *target;
    }
    mot_graph_replace(e->g, e->from.data, e->to.data, e->from.n);
    mot_graph_compact(e->g);
}

MotStatus mot_expand_composites(MotGraph *g, bool (*is_expanded)(const void *self, const MotOp *op),
                                const void *self, bool *out_changed)
{
    Expansions e = {.g = g};
    /* Expansions are appended to the body, so that the sweep reaches composites within them. */
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (mot_op_info(op->kind)->class == MOT_COMPOSITE && is_expanded(self, op))
            MOT_TRY(expand_op(&e, g->body.data[i]));
    }
    if (e.from.n == 0)
        return MOT_OK;
    redirect_uses(&e);
    *out_changed = true;
    return MOT_OK;
}

static bool is_any(const void *self, const MotOp *op)
{
    (void)self;
    (void)op;
    return true;
}

static MotStatus expand_all(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    (void)ctx;
    (void)opts;
    return mot_expand_composites(g, is_any, NULL, out_changed);
}

const MotPass mot_pass_expand = {.name = "expand",
                                 .summary = "composites become primitives (for the oracle)",
                                 .run = expand_all,
                                 .for_regions = true};
