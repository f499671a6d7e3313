/*
 * demo: with --optimizer demo:..., every `gradient` becomes DeMo's step (arXiv 2411.19870): gradients by replica, a momentum for each
 * replica, of which the large coefficients are exchanged and taken out of it.
 *
 *     delta = decay * delta + lr * g          [R, ..]; g: R times the replica's part of the gradient, the mean over its own samples
 *     q     = top k of every tile of the DCT of delta
 *     delta = delta - alpha * the inverse DCT of q
 *     u     = inverse DCT of the mean over those replicas that sent a coefficient: through packed messages [R, tiles, bytes]
 *
 * and sign(u), or with another base u, is the gradient that the optimizer pass gets: p = p - lr * (sign(u) + wd * p). With beta the
 * momentum is beta * m + (1 - beta) * g. delta is state, dim 0
 * the replicas, so that splitting it gives each device its own replicas' and needs no special case anywhere; a replica's batch
 * stays together (replicas.h). Tiles are those of the initializer's tensor in the file, whatever atoms and permutation the
 * parameter has, so a plan changes nothing. A tile spans the last two dims, dims before them number tiles; one dim: a line; no
 * dim: one element. Along each dim a tile is as long as the largest divisor up to s: a prime above s gives 1.
 *
 * Needs: autodiff. Cost: linear in parameters; at run time three transforms, about 6 s multiply-adds an element and dim.
 */
#include "ir/builder.h"
#include "ir/layout.h"
#include "ir/sparse.h"
#include "passes/graph/edit.h"
#include "passes/graph/optimizer.h"
#include "passes/graph/replicas.h"
#include "passes/pass.h"

#include <math.h>
#include <string.h>

/* How an initializer's tensor is cut: [outer, rows / h, h, columns / w, w]. */
typedef struct {
    int64_t outer, a, h, c, w;
} Tiling;

typedef struct {
    MotCtx *ctx;
    MotGraph *g;
    MotBuilder b;
    const MotOptimizer *o;
    MotValue lr;
} Demo;

enum { N_TILED = 5 };

/* ---- Tiles ---- */

static int64_t chunk_of(int64_t n, int64_t most)
{
    int64_t chunk = n < most ? n : most;
    while (chunk > 1 && n % chunk != 0)
        chunk--;
    return chunk > 0 ? chunk : 1;
}

static Tiling tile(const MotType *file, int64_t most)
{
    Tiling t = {1, 1, 1, 1, 1};
    int64_t rows = file->rank >= 2 ? file->dims[file->rank - 2] : 1,
            columns = file->rank >= 1 ? file->dims[file->rank - 1] : 1;
    for (int d = 0; d + 2 < file->rank; d++)
        t.outer *= file->dims[d];
    t.h = chunk_of(rows, most);
    t.w = chunk_of(columns, most);
    t.a = rows / t.h;
    t.c = columns / t.w;
    return t;
}

/* D[k, i] = c_k cos(pi (2 i + 1) k / 2 n): orthonormal, its inverse is its transpose. */
static MotValue make_dct(Demo *d, int64_t n)
{
    float *data = mot_arena_array(&d->ctx->arena, float, n *n);
    const double pi = 3.14159265358979323846;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            data[k * n + i] =
                (float)(sqrt((k ? 2.0 : 1.0) / (double)n) *
                        cos(pi * (double)((2 * i + 1) * k % (4 * n)) / (2.0 * (double)n)));
    return mot_constant(&d->b, (MotTensor){mot_type_make(MOT_F32, 2, (int64_t[]){n, n}), data});
}

/* From [.., a, h, c, w] to [.., a, c, h, w] or back, where no transform does it along the way. */
static MotValue swap_inner(Demo *d, MotValue x)
{
    int rank = mot_graph_type(d->g, x)->rank;
    int64_t perm[MOT_MAX_RANK];
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[rank - 3] = rank - 2;
    perm[rank - 2] = rank - 3;
    return mot_transpose(&d->b, x, perm);
}

/* A contraction over tiled values, with or without replicas before them; `spec` is that with. */
static MotValue transform(Demo *d, MotValue x, MotValue matrix, const char *spec)
{
    if (mot_graph_type(d->g, x)->rank == N_TILED) {
        MotText text;
        mot_text_init(&text, &d->ctx->arena);
        for (const char *p = spec; *p; p++)
            if (*p != 'r')
                mot_text_printf(&text, "%c", *p);
        spec = mot_text_get(&text);
    }
    return mot_contract(&d->b, x, matrix, spec);
}

/* The shape of tiled values or of their coefficients, behind R if x has replicas. */
static int list_dims(const Demo *d, MotValue like, int rank_without, const int64_t *inner, int n,
                     int64_t *out)
{
    const MotType *type = mot_graph_type(d->g, like);
    int at = 0;
    if (type->rank > rank_without)
        out[at++] = type->dims[0];
    memcpy(out + at, inner, (size_t)n * sizeof *out);
    return at + n;
}

/* [(R,) outer, a, h, c, w] -> [(R,) tiles, h * w]. */
static MotValue encode(Demo *d, MotValue x, const Tiling *t)
{
    int64_t dims[MOT_MAX_RANK], inner[] = {t->outer * t->a * t->c, t->h * t->w};
    bool is_dct = d->o->demo.select == MOT_SELECT_DCT;
    if (is_dct && t->h > 1)
        x = transform(d, x, make_dct(d, t->h), "rlahcw,kh->rlakcw");
    if (is_dct && t->w > 1)
        x = transform(d, x, make_dct(d, t->w), "rlahcw,vw->rlachv");
    else
        x = swap_inner(d, x);
    int rank = list_dims(d, x, N_TILED, inner, 2, dims);
    return mot_reshape(&d->b, x, rank, dims);
}

static MotValue decode(Demo *d, MotValue q, const Tiling *t)
{
    int64_t dims[MOT_MAX_RANK], inner[] = {t->outer, t->a, t->c, t->h, t->w};
    bool is_dct = d->o->demo.select == MOT_SELECT_DCT;
    int rank = list_dims(d, q, 2, inner, N_TILED, dims);
    MotValue x = mot_reshape(&d->b, q, rank, dims);
    if (is_dct && t->w > 1)
        x = transform(d, x, make_dct(d, t->w), "rlachv,vw->rlahcw");
    else
        x = swap_inner(d, x);
    return is_dct && t->h > 1 ? transform(d, x, make_dct(d, t->h), "rlakcw,kh->rlahcw") : x;
}

/* ---- Between a parameter's layout and its file's tensor, cut to tiles ---- */

/* [R, dims of the value] -> [R, outer, a, h, c, w]. */
static MotValue to_tiles(Demo *d, MotValue by_replica, const MotAttr_param *param, const Tiling *t)
{
    int64_t r = mot_graph_type(d->g, by_replica)->dims[0];
    int64_t perm[MOT_MAX_RANK] = {0}, dims[] = {r, t->outer, t->a, t->h, t->c, t->w};
    for (uint32_t i = 0; i < param->perm.n; i++)
        perm[param->perm.data[i] + 1] = i + 1;
    if (param->perm.n)
        by_replica = mot_transpose(&d->b, by_replica, perm);
    return mot_reshape(&d->b, by_replica, N_TILED + 1, dims);
}

/* [outer, a, h, c, w] -> the parameter's value. */
static MotValue from_tiles(Demo *d, MotValue u, const MotType *value, const MotAttr_param *param)
{
    int64_t atoms[MOT_MAX_RANK] = {0};
    if (!param->perm.n)
        return mot_reshape(&d->b, u, value->rank, value->dims);
    for (int i = 0; i < value->rank; i++)
        atoms[param->perm.data[i]] = value->dims[i];
    return mot_transpose(&d->b, mot_reshape(&d->b, u, value->rank, atoms), param->perm.data);
}

/* ---- The step of one parameter ---- */

static MotValue make_delta(Demo *d, const MotAttr_param *of, const MotType *file, const Tiling *t)
{
    int64_t dims[] = {d->o->demo.replicas, t->outer, t->a, t->h, t->c, t->w};
    int64_t file_dims[MOT_MAX_RANK + 1] = {d->o->demo.replicas};
    memcpy(file_dims + 1, file->dims, (size_t)file->rank * sizeof *file_dims);
    MotAttr_param attrs = {.name = mot_arena_printf(&d->ctx->arena, "%s/demo_residual", of->name),
                           .file_dims = {file_dims, (uint32_t)file->rank + 1},
                           .state_of = of->name};
    return mot_param(&d->b, &attrs, mot_type_make(MOT_F32, N_TILED + 1, dims));
}

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
    Tiling tiling;
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

/* Momentum, choice, message; what was chosen leaves the momentum. */
static MotStatus send(Demo *d, Sending *s)
{
    MotBuilder *b = &d->b;
    const MotOp *def = mot_graph_def(d->g, s->param);
    const MotAttr_param *attrs = mot_attrs(def, param);
    MOT_TRY(check_param(d, def));
    const MotType file = mot_param_file_type(mot_graph_type(d->g, def->out[0]), def);
    const Tiling t = s->tiling = tile(&file, d->o->demo.chunk);
    int64_t n = t.h * t.w, k = d->o->demo.k < n ? d->o->demo.k : n;
    int64_t own[] = {1, d->o->demo.replicas, t.outer * t.a * t.c, k};
    MotValue value;
    b->origin = attrs->name;
    MotValue state = make_delta(d, attrs, &file, &t);
    MotValue delta = add_gradient(d, state, to_tiles(d, s->grad, attrs, &t));
    MotValue index = mot_top_k(b, encode(d, delta, &t), k, &value);
    MotValue sent =
        mot_scatter_mean(b, mot_reshape(b, index, 4, own), mot_reshape(b, value, 4, own), n);
    MotValue gone = mot_mul_scalar(b, decode(d, sent, &t), d->o->demo.alpha);
    mot_build(b, MOT_OP_ASSIGN, (MotValue[]){state, mot_sub(b, delta, gone)}, 2, NULL);
    s->wire = (MotAttr_wire){.size = n, .k = k, .wire = mot_wire_names[d->o->demo.wire]};
    s->message =
        mot_result(b, mot_build(b, MOT_OP_PACK, (MotValue[]){index, value}, 2, &s->wire), 0);
    return d->ctx->status;
}

/* From the messages of all replicas to the direction that takes the gradient's place. */
static void receive(Demo *d, const Sending *s)
{
    MotBuilder *b = &d->b;
    const MotType type = *mot_graph_type(d->g, s->param);
    const MotAttr_param *attrs = mot_attrs(mot_graph_def(d->g, s->param), param);
    b->origin = attrs->name;
    MotOpId read = mot_build(b, MOT_OP_UNPACK, &s->message, 1, &s->wire);
    MotValue mean =
        mot_scatter_mean(b, mot_result(b, read, 0), mot_result(b, read, 1), s->wire.size);
    MotValue u = from_tiles(d, decode(d, mean, &s->tiling), &type, attrs);
    u = d->o->demo.base == MOT_BASE_SIGN ? mot_sign(b, u) : u;
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

/* All send before anybody receives: the messages travel as one. */
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
    d.lr = mot_input(&d.b, MOT_INPUT_LR, mot_type_scalar(MOT_F32));
    for (uint32_t i = 0; i < n; i++)
        MOT_TRY(send(&d, &all[i]));
    for (uint32_t i = 0; i < n; i++)
        receive(&d, &all[i]);
    *out_changed = true;
    return ctx->status;
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
