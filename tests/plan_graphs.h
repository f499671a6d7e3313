/* Training graphs for the planner's tests, made with the builder and the real passes. */
#ifndef MOTLEY_TESTS_PLAN_GRAPHS_H
#define MOTLEY_TESTS_PLAN_GRAPHS_H

#include "ir/builder.h"
#include "ir/plan.h"
#include "passes/graph/optimizer.h"
#include "passes/pipeline.h"

typedef struct GptSizes {
    int64_t b, t, h, d, v;
    int layers;
} GptSizes;

static inline MotValue make_weight(MotBuilder *b, const char *name, int rank, const int64_t *dims)
{
    MotAttr_param attrs = {.name = mot_arena_printf(&b->graph->ctx->arena, "%s", name),
                           .trained = true};
    return mot_param(b, &attrs, mot_type_make(MOT_F32, rank, dims));
}

/* x W + bias over the letters of `spec`; the bias has the weight's result dims. */
static inline MotValue make_linear(MotBuilder *b, MotValue x, const char *name, const char *spec,
                                   MotType weight, MotType bias)
{
    MotArena *arena = &b->graph->ctx->arena;
    b->origin = mot_arena_strdup(arena, name);
    MotValue w =
        make_weight(b, mot_arena_printf(arena, "%s.weight", name), weight.rank, weight.dims);
    MotValue y = mot_contract(b, x, w, spec);
    return mot_add(b, y,
                   make_weight(b, mot_arena_printf(arena, "%s.bias", name), bias.rank, bias.dims));
}

static inline MotValue make_norm(MotBuilder *b, MotValue x, const char *name, int64_t c)
{
    MotArena *arena = &b->graph->ctx->arena;
    b->origin = mot_arena_strdup(arena, name);
    MotValue in[] = {x, make_weight(b, mot_arena_printf(arena, "%s.weight", name), 1, &c),
                     make_weight(b, mot_arena_printf(arena, "%s.bias", name), 1, &c)};
    MotAttr_norm attrs = {.axis = 2, .eps = 1e-5};
    return mot_result(b, mot_build(b, MOT_OP_LAYER_NORM, in, 3, &attrs), 0);
}

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define F32(...) mot_type_make(MOT_F32, DIMS(__VA_ARGS__))

static inline MotValue make_gpt_block(MotBuilder *b, MotValue x, int layer, const GptSizes *s)
{
    MotArena *arena = &b->graph->ctx->arena;
    int64_t c = s->h * s->d, f = 4 * c;
#define NAME(part) mot_arena_printf(arena, "h.%d.%s", layer, part)
    MotValue n = make_norm(b, x, NAME("ln_1"), c), qkv[3];
    for (int i = 0; i < 3; i++) {
        const char *name = mot_arena_printf(arena, "h.%d.attn.%c", layer, "qkv"[i]);
        qkv[i] = make_linear(b, n, name, "btc,chd->bthd", F32(c, s->h, s->d), F32(s->h, s->d));
    }
    b->origin = NAME("attn");
    MotAttr_attention attention = {.scale = 0.125, .causal = true};
    MotValue y = mot_result(b, mot_build(b, MOT_OP_ATTENTION, qkv, 3, &attention), 0);
    y = make_linear(b, y, NAME("attn.proj"), "bthd,hdc->btc", F32(s->h, s->d, c), F32(c));
    x = mot_add(b, x, y);
    y = make_linear(b, make_norm(b, x, NAME("ln_2"), c), NAME("mlp.fc"), "btc,cf->btf", F32(c, f),
                    F32(f));
    b->origin = NAME("mlp.act");
    y = mot_result(b, mot_build(b, MOT_OP_GELU, &y, 1, NULL), 0);
    y = make_linear(b, y, NAME("mlp.proj"), "btf,fc->btc", F32(f, c), F32(c));
    return mot_add(b, x, y);
#undef NAME
}

static inline MotStatus differentiate(MotCtx *ctx, MotGraph *g, const char *optimizer)
{
    MotOptimizer o;
    MOT_TRY(mot_optimizer_parse(ctx, optimizer, &o));
    MotPassOpts opts = {.optimizer = &o};
    MOT_TRY(mot_passes_run(ctx, g, &opts, "autodiff", "autodiff"));
    return mot_passes_run(ctx, g, &opts, "optimizer", "optimizer");
}

/* A GPT with learned positions and a tied head; loss, gradients and updates included. */
static inline MotGraph *make_gpt(MotCtx *ctx, GptSizes s, const char *optimizer)
{
    MotGraph *g = mot_graph_make(ctx, "gpt");
    MotBuilder b = mot_builder_make(g);
    int64_t c = s.h * s.d;
    MotValue ids = mot_input(&b, "ids", mot_type_make(MOT_I64, DIMS(s.b, s.t)));
    MotValue labels = mot_input(&b, "labels", mot_type_make(MOT_I64, DIMS(s.b, s.t)));
    b.origin = "wte";
    MotValue table = make_weight(&b, "wte.weight", DIMS(s.v, c));
    MotValue x = mot_gather(&b, table, ids, 0);
    b.origin = "wpe";
    x = mot_add(&b, x, make_weight(&b, "wpe.weight", DIMS(s.t, c)));
    for (int i = 0; i < s.layers; i++)
        x = make_gpt_block(&b, x, i, &s);
    x = make_norm(&b, x, "ln_f", c);
    b.origin = "head";
    MotValue in[] = {mot_contract(&b, x, table, "btc,vc->btv"), labels};
    b.origin = "loss";
    MotAttr_cross_entropy attrs = {.ignore = -100};
    MotValue rows = mot_result(&b, mot_build(&b, MOT_OP_CROSS_ENTROPY, in, 2, &attrs), 0);
    MotValue sum = mot_reduce_sum(&b, rows, (int64_t[]){0, 1}, 2, MOT_DROP);
    mot_output(&b, "loss", mot_mul_scalar(&b, sum, 1.0 / (double)(s.b * s.t)));
    return differentiate(ctx, g, optimizer) == MOT_OK ? g : NULL;
}

/* Two layers on a [b, c] input with mean squared error. */
static inline MotGraph *make_mlp(MotCtx *ctx, int64_t rows, int64_t c, int64_t f,
                                 const char *optimizer)
{
    MotGraph *g = mot_graph_make(ctx, "mlp");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", F32(rows, c)), target = mot_input(&b, "target", F32(rows, c));
    x = make_linear(&b, x, "fc1", "bc,cf->bf", F32(c, f), F32(f));
    x = make_linear(&b, mot_relu(&b, x), "fc2", "bf,fc->bc", F32(f, c), F32(c));
    b.origin = "loss";
    MotValue d = mot_sub(&b, x, target);
    MotValue sum = mot_reduce_sum(&b, mot_mul(&b, d, d), (int64_t[]){0, 1}, 2, MOT_DROP);
    mot_output(&b, "loss", mot_mul_scalar(&b, sum, 1.0 / (double)(rows * c)));
    return differentiate(ctx, g, optimizer) == MOT_OK ? g : NULL;
}

/* Devices of these speeds over one kind of link. */
static inline MotCluster *make_cluster(MotCtx *ctx, uint32_t n, const double *slow, double latency,
                                       double bandwidth)
{
    MotCluster *cluster = mot_cluster_make(ctx, n, 1);
    for (uint32_t i = 0; i < n; i++)
        cluster->devices.data[i].slow = slow[i];
    MotLink link = {.a = MOT_ALL_DEVICES,
                    .b = MOT_ALL_DEVICES,
                    .latency = latency,
                    .bandwidth = bandwidth,
                    .is_emulated = true};
    mot_vec_push(&ctx->arena, &cluster->links, link);
    return cluster;
}

#endif
