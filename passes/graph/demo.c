/*
 * demo: with --optimizer demo:..., every `gradient` becomes DeMo's step (arXiv 2411.19870):
 * gradients by replica, a momentum for each replica, of which the large coefficients are exchanged
 * and taken out of it.
 *
 *     delta = decay * delta + lr * g          [R, ..]
 *     q     = top k of every tile of the DCT of delta, or k places on which all agree
 *     delta = delta - alpha * the inverse DCT of q
 *     u     = inverse DCT of the mean of q over those replicas that sent a coefficient
 *
 * where g is R times the replica's part of the gradient, the mean over its own samples, and q
 * travels in packed messages [R, tiles, bytes] (places: demo_select.h);
 * and sign(u), or with another base u or the nearest orthogonal matrix, is the gradient that the
 * optimizer pass gets: p = p - lr * (sign(u) + wd * p). With beta the momentum is beta * m + (1 -
 * beta) * g. With a delay of one round q is chosen before g is added: the same messages a step
 * later, which travel beside the backward pass, and no state more. For that the forward pass may
 * look ahead (look_ahead.c).
 *
 * delta is state, dim 0 the replicas, so that splitting it gives each device its own replicas' and
 * needs no special case anywhere; a replica's batch stays together (replicas.h). Tiles:
 * demo_tiles.h.
 *
 * Needs: autodiff. Cost: linear in parameters; at run time three transforms, about 6 s
 * multiply-adds an element and dim.
 */
#include "ir/builder.h"
#include "ir/layout.h"
#include "ir/sparse.h"
#include "passes/graph/demo_select.h"
#include "passes/graph/demo_tiles.h"
#include "passes/graph/edit.h"
#include "passes/graph/optimizer.h"
#include "passes/graph/orthogonal.h"
#include "passes/graph/replicas.h"
#include "passes/pass.h"

typedef struct {
    MotCtx *ctx;
    MotGraph *g;
    MotBuilder b;
    const MotOptimizer *o;
    MotValue lr, round;
} Demo;

/* ---- The step of one parameter ---- */

/* The momentum with this step's gradient. */
static MotValue add_gradient(Demo *d, MotValue delta, MotValue grad)
{
    const MotDemo *o = &d->o->demo;
    bool is_average = o->beta >= 0;
    MotValue kept = mot_mul_scalar(&d->b, delta, is_average ? o->beta : o->decay);
    MotValue more =
        is_average ? mot_mul_scalar(&d->b, grad, 1 - o->beta) : mot_mul(&d->b, d->lr, grad);
    return mot_add(&d->b, kept, more);
}

/* One parameter on its way. */
typedef struct {
    MotValue param;
    MotValue grad; /* by replica */
    MotTiling tiling;
    MotValue state, delta; /* the momentum before the step, and so far */
    MotValue positions;    /* i32[k]: what every tile sends; 0: each tile chooses */
    MotAttr_wire wire;
    MotValue message;
} Sending;

static MotStatus check_param(const Demo *d, const MotOp *def)
{
    const MotType *value = mot_graph_type(d->g, def->out[0]);
    if (value->dtype == MOT_F32 && value->rank < MOT_MAX_RANK && mot_type_elements(value) > 0)
        return MOT_OK;
    return mot_fail(d->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(d->g, def),
                    "demo takes f32 parameters of 1 to 7 dims with elements");
}

/* Entry i of every row is at place i of the message: it carries no index. */
static MotValue repeat_positions(Demo *d, const Sending *s)
{
    int64_t dims[] = {d->o->demo.replicas, mot_tiling_count(&s->tiling), s->wire.k};
    return mot_broadcast(&d->b, s->positions, 3, dims);
}

/*
 * Of the coefficients [R, tiles, n] those that are sent, as [R, tiles, k], and the message of them.
 */
static MotValue choose(Demo *d, Sending *s, MotValue all, MotValue *out_value)
{
    MotBuilder *b = &d->b;
    MotValue index, place;
    if (s->positions) {
        int64_t dims[] = {d->o->demo.replicas, mot_tiling_count(&s->tiling), s->wire.k};
        *out_value = mot_gather(b, all, s->positions, 2);
        index = repeat_positions(d, s);
        place = mot_iota(b, MOT_I32, 3, dims, 2);
    } else
        index = place = mot_top_k(b, all, s->wire.k, out_value);
    MotOpId pack = mot_build(b, MOT_OP_PACK, (MotValue[]){place, *out_value}, 2, &s->wire);
    s->message = mot_result(b, pack, 0);
    return index;
}

/* What of the momentum is sent: each replica is the one contributor to its own. */
static MotValue send(Demo *d, Sending *s, MotValue momentum)
{
    MotBuilder *b = &d->b;
    const MotTiling *t = &s->tiling;
    int64_t own[] = {1, d->o->demo.replicas, mot_tiling_count(t), s->wire.k};
    MotValue value, index = choose(d, s, mot_tiling_encode(b, momentum, t), &value);
    MotValue sent = mot_scatter_mean(b, mot_reshape(b, index, 4, own),
                                     mot_reshape(b, value, 4, own), mot_tiling_elements(t));
    return mot_mul_scalar(b, mot_tiling_decode(b, sent, t), d->o->demo.alpha);
}

/*
 * With a delay what is sent leaves the momentum here: before this step's gradient is there, of what
 * the last step left.
 */
static MotStatus begin(Demo *d, Sending *s)
{
    const MotDemo *o = &d->o->demo;
    const MotOp *def = mot_graph_def(d->g, s->param);
    const MotAttr_param *attrs = mot_attrs(def, param);
    MOT_TRY(check_param(d, def));
    MotType file = mot_param_file_type(mot_graph_type(d->g, def->out[0]), def);
    d->b.origin = attrs->name;
    s->tiling = mot_tiling_make(&file, o->chunk, o->select == MOT_SELECT_DCT);
    int64_t n = mot_tiling_elements(&s->tiling), k = o->k < n ? o->k : n;
    s->positions = mot_demo_positions(&d->b, (MotDemoSelect)o->select, d->round, attrs->name, n, k);
    s->wire = (MotAttr_wire){.size = s->positions ? k : n, .k = k, .wire = mot_wire_names[o->wire]};
    s->state = s->delta = mot_tiling_momentum(&d->b, o->replicas, attrs, &file, &s->tiling);
    if (o->delay)
        s->delta = mot_sub(&d->b, s->state, send(d, s, s->state));
    return d->ctx->status;
}

static void update_momentum(Demo *d, Sending *s)
{
    const MotAttr_param *attrs = mot_attrs(mot_graph_def(d->g, s->param), param);
    d->b.origin = attrs->name;
    MotValue delta = add_gradient(d, s->delta, mot_tiling_cut(&d->b, s->grad, attrs, &s->tiling));
    if (!d->o->demo.delay)
        delta = mot_sub(&d->b, delta, send(d, s, delta));
    mot_build(&d->b, MOT_OP_ASSIGN, (MotValue[]){s->state, delta}, 2, NULL);
}

/* Of the mean, in tiles, the direction in the parameter's layout. */
static MotValue find_direction(Demo *d, const Sending *s, MotValue mean)
{
    MotBuilder *b = &d->b;
    const MotTiling *t = &s->tiling;
    const MotType type = *mot_graph_type(d->g, s->param);
    const MotAttr_param *attrs = mot_attrs(mot_graph_def(d->g, s->param), param);
    int64_t matrices[] = {t->outer, t->a * t->h, t->c * t->w};
    MotValue u = mot_tiling_decode(b, mean, t);
    if (d->o->demo.base == MOT_BASE_MUON)
        u = mot_orthogonalize(b, mot_reshape(b, u, 3, matrices));
    u = mot_tiling_join(b, u, &type, attrs);
    if (d->o->demo.base == MOT_BASE_SIGN)
        u = mot_sign(b, u);
    if (!d->o->demo.delay)
        return u;
    MotValue is_begun = mot_min(b, d->round, mot_scalar_like(b, d->round, 1));
    return mot_mul(b, u, mot_cast(b, is_begun, MOT_F32)); /* nothing had been sent before */
}

/* From the messages of all replicas to the direction that takes the gradient's place. */
static void receive(Demo *d, const Sending *s)
{
    MotBuilder *b = &d->b;
    b->origin = mot_attrs(mot_graph_def(d->g, s->param), param)->name;
    MotOpId read = mot_build(b, MOT_OP_UNPACK, &s->message, 1, &s->wire);
    MotValue index = s->positions ? repeat_positions(d, s) : mot_result(b, read, 0);
    MotValue mean =
        mot_scatter_mean(b, index, mot_result(b, read, 1), mot_tiling_elements(&s->tiling));
    MotValue u = find_direction(d, s, mean);
    mot_build(b, MOT_OP_GRADIENT, (MotValue[]){s->param, u}, 2, NULL);
}

/* ---- All of them ---- */

/* The norm over all parameters, one a replica: f32[R]. */
static MotValue find_norms(Demo *d, const Sending *all, uint32_t n)
{
    static const int64_t inner[MOT_MAX_RANK] = {1, 2, 3, 4, 5, 6, 7};
    MotValue total = 0;
    for (uint32_t i = 0; i < n; i++) {
        MotValue grad = all[i].grad, sum = mot_mul(&d->b, grad, grad);
        uint32_t n_inner = (uint32_t)mot_graph_type(d->g, grad)->rank - 1;
        sum = n_inner ? mot_reduce_sum(&d->b, sum, inner, n_inner, MOT_DROP) : sum;
        total = total ? mot_add(&d->b, total, sum) : sum;
    }
    return mot_sqrt(&d->b, total);
}

/* Each replica bounds its own gradient's norm; the largest of them is what the host sees. */
static void clip_by_replica(Demo *d, Sending *all, uint32_t n)
{
    MotBuilder *b = &d->b;
    MotValue norms = find_norms(d, all, n);
    MotValue limit =
        mot_div(b, mot_scalar_like(b, norms, d->o->clip), mot_add_scalar(b, norms, 1e-6));
    MotValue scale = mot_min(b, limit, mot_scalar_like(b, limit, 1));
    mot_output(b, MOT_OUTPUT_GRAD_NORM, mot_reduce_max(b, norms, (int64_t[]){0}, 1, MOT_DROP));
    for (uint32_t i = 0; i < n; i++) {
        int64_t dims[MOT_MAX_RANK] = {d->o->demo.replicas, 1, 1, 1, 1, 1, 1, 1};
        int rank = mot_graph_type(d->g, all[i].grad)->rank;
        all[i].grad = mot_mul(b, all[i].grad, mot_reshape(b, scale, rank, dims));
    }
}

static Sending *list_gradients(const Demo *d, uint32_t *out_n)
{
    MotVec(Sending) all = {0};
    for (uint32_t i = 0; i < d->g->body.n; i++) {
        const MotOp *op = mot_graph_op(d->g, d->g->body.data[i]);
        if (op->kind == MOT_OP_GRADIENT)
            mot_vec_push(&d->ctx->arena, &all, (Sending){.param = op->in[0]});
    }
    *out_n = all.n;
    return all.data;
}

static MotStatus find_gradients(Demo *d, Sending *all, uint32_t n)
{
    MotValue *grads = mot_arena_array(&d->ctx->arena, MotValue, n);
    MOT_TRY(mot_replicas_find(d->g, d->o->demo.replicas, grads));
    for (uint32_t i = 0; i < n; i++) /* the mean over a replica's own samples */
        all[i].grad = mot_mul_scalar(&d->b, grads[i], (double)d->o->demo.replicas);
    if (d->o->clip > 0)
        clip_by_replica(d, all, n);
    return d->ctx->status;
}

/* The number of the step from 0 on, where anything asks for it. */
static MotValue find_round(Demo *d)
{
    const MotDemo *o = &d->o->demo;
    if (!o->delay && o->select != MOT_SELECT_RANDOM && o->select != MOT_SELECT_STRIDING)
        return 0;
    MotValue step = mot_optimizer_scalar(&d->b, MOT_INPUT_STEP);
    return mot_cast(&d->b, mot_add_scalar(&d->b, step, -1), MOT_I64);
}

/* The place behind the last op of the forward pass, which is the loss. */
static uint32_t find_backward(const MotGraph *g)
{
    uint32_t i = g->body.n;
    while (i > 0 && mot_graph_op(g, g->body.data[i - 1])->role != MOT_ROLE_FORWARD)
        i--;
    return i;
}

/*
 * All send before anybody receives: the messages travel as one. With a delay they are sent before
 * the backward pass and read after it, not before the forward pass: what the loss exchanges would
 * queue up behind them.
 */
static MotStatus exchange(Demo *d, Sending *all, uint32_t n)
{
    uint32_t first = d->g->body.n;
    d->round = find_round(d);
    for (uint32_t i = 0; i < n; i++)
        MOT_TRY(begin(d, &all[i]));
    if (d->o->demo.delay)
        mot_edit_bring_forward(d->g, first, find_backward(d->g));
    for (uint32_t i = 0; i < n; i++)
        update_momentum(d, &all[i]);
    for (uint32_t i = 0; i < n; i++)
        receive(d, &all[i]);
    return d->ctx->status;
}

static MotStatus run_demo(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    if (!opts->optimizer || !opts->optimizer->demo.replicas)
        return MOT_OK;
    Demo d = {.ctx = ctx, .g = g, .b = mot_builder_make(g), .o = opts->optimizer};
    uint32_t n;
    Sending *all = list_gradients(&d, &n);
    if (n == 0)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "the graph has no gradients: autodiff comes first");
    d.b.role = MOT_ROLE_UPDATE;
    MOT_TRY(find_gradients(&d, all, n));
    mot_edit_drop_kind(g, MOT_OP_GRADIENT); /* new ones come last: compaction orders by sinks */
    d.lr = mot_optimizer_scalar(&d.b, MOT_INPUT_LR);
    *out_changed = true;
    return exchange(&d, all, n);
}

const MotPass mot_pass_demo = {
    .name = "demo", .summary = "gradients by replica, exchanged as DeMo does", .run = run_demo};

MotDemoTraffic mot_demo_traffic(const MotGraph *g)
{
    static const double reference_entry = 12;
    MotDemoTraffic sum = {0};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_PARAM && mot_attrs(op, param)->trained)
            sum.data_parallel += (double)mot_type_bytes(mot_graph_type(g, op->out[0]));
        if (op->kind != MOT_OP_PACK)
            continue;
        const MotType *index = mot_graph_type(g, op->in[0]),
                      *message = mot_graph_type(g, op->out[0]);
        double replicas = (double)index->dims[0];
        sum.message += (double)mot_type_bytes(message) / replicas;
        sum.reference += (double)mot_type_elements(index) / replicas * reference_entry;
    }
    return sum.message > 0 ? sum : (MotDemoTraffic){0};
}
