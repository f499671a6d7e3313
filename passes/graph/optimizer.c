/*
 * optimizer: every `gradient` becomes an update op and an `assign` of the parameter and of its
 * state.
 *
 * State is a parameter with `state_of`, in the layout of the parameter it belongs to and named as
 * in a PyTorch checkpoint: <initializer>/exp_avg, /exp_avg_sq, /momentum_buffer. All of it is zero
 * before the first step. Being ops, updates are split by factors like anything else. Needs:
 * autodiff; clip. Cost: linear in parameters.
 */
#include "passes/graph/optimizer.h"

#include "ir/builder.h"
#include "passes/graph/edit.h"
#include "passes/pass.h"

/* What each update op keeps, in the order of its operands after the parameter. */
static const char *const state_names[MOT_N_OPS][3] = {
    [MOT_OP_SGD] = {NULL},
    [MOT_OP_MOMENTUM] = {"momentum_buffer"},
    [MOT_OP_ADAM] = {"exp_avg", "exp_avg_sq"},
};

typedef struct {
    MotCtx *ctx;
    MotBuilder b;
    const MotOptimizer *optimizer;
    MotValue lr, step;
    bool *is_used; /* of each glob of nodecay: a parameter has such a name */
} Updates;

static MotValue make_state(Updates *u, MotValue param, const MotAttr_param *of, const char *name)
{
    MotAttr_param attrs = {.name = mot_arena_printf(&u->ctx->arena, "%s/%s", of->name, name),
                           .file_dims = of->file_dims,
                           .perm = of->perm,
                           .state_of = of->name};
    return mot_param(&u->b, &attrs, *mot_graph_type(u->b.graph, param));
}

static double find_decay(Updates *u, const char *name)
{
    const MotOptimizer *o = u->optimizer;
    double wd = o->wd;
    for (uint32_t i = 0; i < o->n_nodecay; i++)
        if (mot_glob_match(o->nodecay[i], name)) {
            u->is_used[i] = true;
            wd = 0;
        }
    return wd;
}

static void warn_of_unused_globs(const Updates *u)
{
    for (uint32_t i = 0; i < u->optimizer->n_nodecay; i++)
        if (!u->is_used[i])
            mot_warn(u->ctx, MOT_NOWHERE, "nodecay=%s matches no initializer that trains",
                     mot_escape(&u->ctx->arena, u->optimizer->nodecay[i], 80));
}

static MotOpId build_update(Updates *u, const char *name, const MotValue *in, uint32_t n)
{
    const MotOptimizer *o = u->optimizer;
    double wd = find_decay(u, name);
    MotAttr_sgd sgd = {.momentum = o->momentum, .wd = wd};
    MotAttr_adam adam = {
        .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .wd = wd, .decoupled = o->decoupled};
    return mot_build(&u->b, o->update, in, n,
                     o->update == MOT_OP_ADAM ? (const void *)&adam : &sgd);
}

/* clip's product, repeated right before the update: lowering makes one kernel of neighbours. */
static MotValue repeat_scaling(Updates *u, MotValue grad)
{
    const MotOp *def = mot_graph_def(u->b.graph, grad);
    bool is_scaled = def->role == MOT_ROLE_UPDATE && def->kind == MOT_OP_MUL;
    return is_scaled ? mot_mul(&u->b, def->in[0], def->in[1]) : grad;
}

/* param, its states, gradient, lr[, step] go in; the new values of param and states come out. */
static void update_param(Updates *u, MotValue param, MotValue grad)
{
    const MotOp *def = mot_graph_def(u->b.graph, param);
    const MotAttr_param *attrs = mot_attrs(def, param);
    MotValue in[6] = {param};
    uint32_t n = 1;
    u->b.origin = attrs->name;
    for (const char *const *name = state_names[u->optimizer->update]; *name; name++)
        in[n++] = make_state(u, param, attrs, *name);
    uint32_t n_kept = n;
    in[n++] = repeat_scaling(u, grad);
    in[n++] = u->lr;
    if (u->step)
        in[n++] = u->step;
    MotOpId update = build_update(u, attrs->name, in, n);
    for (uint32_t i = 0; i < n_kept; i++)
        mot_build(&u->b, MOT_OP_ASSIGN, (MotValue[]){in[i], mot_result(&u->b, update, i)}, 2, NULL);
}

MotValue mot_optimizer_scalar(MotBuilder *b, const char *name)
{
    MotValue input = mot_edit_find_input(b->graph, name);
    return input ? input : mot_input(b, name, mot_type_scalar(MOT_F32));
}

static MotStatus add_updates(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    if (!opts->optimizer)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "there is no optimizer (--optimizer)");
    Updates u = {.ctx = ctx, .b = mot_builder_make(g), .optimizer = opts->optimizer};
    u.b.role = MOT_ROLE_UPDATE;
    u.is_used = mot_arena_array(&ctx->arena, bool, u.optimizer->n_nodecay);
    u.lr = mot_optimizer_scalar(&u.b, MOT_INPUT_LR);
    if (u.optimizer->update == MOT_OP_ADAM)
        u.step = mot_optimizer_scalar(&u.b, MOT_INPUT_STEP);
    uint32_t n_updated = 0;
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind != MOT_OP_GRADIENT)
            continue;
        update_param(&u, op.in[0], op.in[1]);
        n_updated++;
    }
    if (n_updated == 0)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "the graph has no gradients: autodiff comes first");
    warn_of_unused_globs(&u);
    mot_edit_drop_kind(g, MOT_OP_GRADIENT);
    *out_changed = true;
    return ctx->status;
}

const MotPass mot_pass_optimizer = {.name = "optimizer",
                                    .summary = "gradients become updates of parameters and state",
                                    .run = add_updates};
