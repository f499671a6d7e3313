/*
 * look-ahead: with --optimizer demo:..,delay=1,lookahead=1 each replica's gradients are those where
 * its own momentum leads.
 *
 *     p_r = p - lr * sign(delta_r)       [R, ..]
 *
 * What a replica has not sent, and what of it is on the way while the step is computed, is in
 * delta_r: the gradient is that of about the place where the round applies that travels meanwhile
 * (DisTrO's correction of a delayed round). The parameters themselves stay. lr is that of the step,
 * as of the update at its end.
 *
 * Needs: a loss, and comes before autodiff, which then has the gradients by p_r, whose sum over r
 * is that by p. Cost: linear in ops; at run time every replica's own copy of the parameters, R /
 * devices a device.
 */
#include "ir/layout.h"
#include "passes/graph/demo_tiles.h"
#include "passes/graph/optimizer.h"
#include "passes/graph/replicas.h"
#include "passes/pass.h"

#include <string.h>

/* Where replica r's momentum leads, of a parameter. */
static MotValue move(MotBuilder *b, const MotDemo *o, MotValue lr, MotValue param)
{
    const MotOp *def = mot_graph_def(b->graph, param);
    const MotAttr_param *attrs = mot_attrs(def, param);
    const MotType type = *mot_graph_type(b->graph, param);
    MotType file = mot_param_file_type(&type, def);
    MotTiling t = mot_tiling_make(&file, o->chunk, o->select == MOT_SELECT_DCT);
    int64_t dims[MOT_MAX_RANK] = {o->replicas};
    memcpy(dims + 1, type.dims, (size_t)type.rank * sizeof *dims);
    b->origin = attrs->name;
    MotValue delta = mot_tiling_momentum(b, o->replicas, attrs, &file, &t);
    MotValue leads = mot_sign(b, mot_tiling_join_replicas(b, delta, &type, attrs));
    return mot_sub(b, mot_broadcast(b, param, type.rank + 1, dims), mot_mul(b, lr, leads));
}

static MotStatus look_ahead(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    if (!opts->optimizer || !opts->optimizer->demo.looks_ahead)
        return MOT_OK;
    const MotDemo *o = &opts->optimizer->demo;
    MotBuilder b = mot_builder_make(g);
    MotVec(MotValue) params = {0}, moved = {0};
    uint32_t n_body = g->body.n;
    MotValue lr = mot_optimizer_scalar(&b, MOT_INPUT_LR);
    for (uint32_t i = 0; i < n_body; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_PARAM || !mot_attrs(op, param)->trained)
            continue;
        MotValue param = op->out[0];
        if (mot_graph_type(g, param)->rank == MOT_MAX_RANK)
            return mot_fail(ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(g, op),
                            "demo takes parameters of up to 7 dims");
        mot_vec_push(&ctx->arena, &params, param);
        mot_vec_push(&ctx->arena, &moved, move(&b, o, lr, param));
    }
    MOT_TRY(ctx->status);
    *out_changed = true;
    return mot_replicas_read(g, o->replicas, n_body, params.data, moved.data, params.n);
}

const MotPass mot_pass_look_ahead = {.name = "look-ahead",
                                     .summary =
                                         "DeMo's replicas read parameters where their momenta lead",
                                     .run = look_ahead};
