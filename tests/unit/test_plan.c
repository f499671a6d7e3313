/*
 * passes/plan. What is compared with brute force stands in tests/prop/test_plan.c, the Plan's text
 * in test_plan_text.c.
 */
#include "ir/count.h"
#include "ir/plan_text.h"
#include "passes/lower/lower.h"
#include "passes/plan/evaluate.h"
#include "passes/plan/explain.h"
#include "passes/plan/plan.h"
#include "tests/plan_graphs.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double equal[] = {1, 1, 1, 1}, unequal[] = {1, 2, 4, 8};
static const GptSizes small_gpt = {.b = 24, .t = 64, .h = 8, .d = 32, .v = 256, .layers = 1};

static void assert_ok(MotCtx *ctx, MotStatus status)
{
    if (status != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-9 * (1 + fabs(expected)))
        fail_msg("%.12g, not %.12g", value, expected);
}

/*
 * Devices with a GPU's memory, which is faster than any link: what all of them read whole costs
 * next to nothing.
 */
static MotCluster *make_gpus(MotCtx *ctx, uint32_t n, const double *slow, double latency,
                             double bandwidth)
{
    MotCluster *cluster = make_cluster(ctx, n, slow, latency, bandwidth);
    for (uint32_t i = 0; i < n; i++)
        cluster->devices.data[i].alone.bandwidth = 1e12;
    return cluster;
}

static MotPlan *make_plan(MotCtx *ctx, MotGraph *g, const MotCluster *cluster,
                          const MotPlanOpts *opts)
{
    MotPlan *plan = NULL;
    assert_non_null(g);
    assert_ok(ctx, mot_plan_make(ctx, g, cluster, opts, &plan));
    return plan;
}

/* The name of the choice of the forward op of that kind at that node. */
static const char *choice_of(const MotPlan *plan, const char *node, MotOpKind kind)
{
    for (uint32_t i = 0; i < plan->graph->body.n; i++) {
        MotOpId id = plan->graph->body.data[i];
        const MotOp *op = mot_graph_op(plan->graph, id);
        MotFactors factors;
        if (op->kind != kind || op->role != MOT_ROLE_FORWARD ||
            strcmp(mot_choice_node(op), node) != 0)
            continue;
        assert_ok(plan->ctx, mot_factors(plan->graph, op, &factors));
        return mot_choice_name(plan->graph, op, &factors, plan->ops[id].factor[0]);
    }
    fail_msg("no %s at %s", mot_op_info(kind)->name, node);
    return "";
}

/* ---- Cost ---- */

static MotSharding split(int dim, int64_t units)
{
    MotSharding s = mot_replicated;
    s.axis[0] = (int8_t)dim;
    s.units[0] = units;
    return s;
}

/*
 * 8 x 12 floats over shares 2:1:1, bandwidth 1 byte/s, no latency: the seconds are the most that
 * one device receives.
 */
static void conversions_cost_what_travels(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *cluster = make_cluster(ctx, 3, equal, 0, 1);
    int64_t share[] = {2, 1, 1};
    uint32_t devices[] = {0, 1, 2};
    MotMesh mesh = {.n_axes = 1, .n_devices = 3, .devices = devices, .axis = {{"d", 3, share}}};
    MotCost *cost;
    assert_ok(ctx, mot_cost_make(ctx, mot_graph_make(ctx, "g"), cluster, &mesh, &cost));
    MotType type = mot_type_make(MOT_F32, 2, (int64_t[]){8, 12});
    MotSharding rows = split(0, 8), columns = split(1, 12), sum = split(MOT_PARTIAL_SUM, 0),
                halves = split(0, 2);
    const double total = 8 * 12 * 4;
    const struct {
        MotSharding have, need;
        double most, all;
    } cases[] = {
        {rows, rows, 0, 0},
        {sum, mot_replicated, 2 * total * 2 / 3, 2 * total * 2},
        {sum, rows, total / 2 * 2, total * 2},
        {rows, mot_replicated, total * 3 / 4, total * 2},
        {rows, columns, total / 2 * 1 / 2, total / 4 + 2 * total / 4 * 3 / 4},
        {rows, split(0, 4), 0, 0},            /* the same parts in other units */
        {rows, halves, total / 4, total / 4}, /* one device gets the other's quarter */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double received[3] = {0};
        MotTransition t = {.type = &type, .have = cases[i].have, .need = cases[i].need, .runs = 1};
        MotConversion c = mot_cost_convert(cost, &t, received, NULL);
        assert_near(c.seconds, cases[i].most);
        assert_near(c.bytes, cases[i].all);
        assert_near(received[0] + received[1] + received[2], cases[i].all);
    }
    MotTransition take_part = {.type = &type, .have = mot_replicated, .need = rows, .runs = 1};
    MotConversion part = mot_cost_convert(cost, &take_part, NULL, NULL);
    assert_true(part.is_local && part.bytes == 0 && part.seconds > 0);
}

static void splitting_divides_the_work(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "g");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", F32(960, 240)), w = mot_input(&b, "w", F32(240, 960));
    const MotOp *op = mot_graph_def(g, mot_contract(&b, x, w, "bc,cf->bf"));
    MotFactors factors;
    assert_ok(ctx, mot_factors(g, op, &factors));
    MotCluster *cluster = make_gpus(ctx, 4, unequal, 0, 1e9);
    int64_t share[] = {8, 4, 2, 1};
    uint32_t devices[] = {0, 1, 2, 3};
    MotMesh mesh = {.n_axes = 1, .n_devices = 4, .devices = devices, .axis = {{"d", 4, share}}};
    MotCost *cost;
    assert_ok(ctx, mot_cost_make(ctx, g, cluster, &mesh, &cost));
    double whole = mot_cost_op(cost, op, &factors, MOT_CHOICE_WHOLE, NULL),
           bound = mot_cost_op_bound(cost, op, &factors);
    assert_true(bound > 0);
    for (int f = 0; f < (int)factors.n; f++) {
        double times[4] = {0}, slowest = mot_cost_op(cost, op, &factors, f, times);
        assert_true(slowest < whole / 10 && slowest >= bound);
        for (int i = 0; i < 4; i++)
            assert_true(times[i] > slowest * 0.85 && times[i] <= slowest);
    }
}

/*
 * What leads to a sum over micro-batches runs for each of them; its reduction and what follows run
 * once.
 */
static void micro_batches_repeat_what_they_need(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "g");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", F32(8, 64)), w = mot_input(&b, "w", F32(64, 32));
    MotValue y = mot_contract(&b, x, w, "bc,cf->bf"), sum = mot_accumulate(&b, y),
             last = mot_exp(&b, sum);
    MotCost *cost;
    uint32_t devices[] = {0, 1};
    int64_t share[] = {1, 1};
    MotMesh mesh = {.n_axes = 1, .n_devices = 2, .devices = devices, .axis = {{"d", 2, share}}};
    assert_ok(ctx, mot_cost_make(ctx, g, make_cluster(ctx, 2, equal, 1e-5, 1e9), &mesh, &cost));
    const MotValue values[] = {y, sum, last};
    MotFactors factors[3];
    double once[3];
    for (int i = 0; i < 3; i++) {
        assert_ok(ctx, mot_factors(g, mot_graph_def(g, values[i]), &factors[i]));
        once[i] = mot_cost_op(cost, mot_graph_def(g, values[i]), &factors[i], -1, NULL);
        assert_true(once[i] > 0);
    }
    mot_cost_set_micro(cost, 3);
    for (int i = 0; i < 3; i++)
        assert_near(mot_cost_op(cost, mot_graph_def(g, values[i]), &factors[i], -1, NULL),
                    once[i] * (i < 2 ? 3 : 1));
    MotOpId user = g->values.data[y].def, summing = g->values.data[sum].def;
    assert_near(mot_cost_transition(cost, x, mot_replicated, mot_replicated, user).runs, 3);
    assert_near(mot_cost_transition(cost, y, mot_replicated, mot_replicated, summing).runs, 1);
}

/* Splitting the value's width leaves the scores to be computed by everybody. */
static void a_factor_divides_only_the_flops_that_it_runs_over(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "g");
    MotBuilder b = mot_builder_make(g);
    MotValue qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = mot_input(&b, i == 0 ? "q" : i == 1 ? "k" : "v", F32(4, 256, 4, 64));
    MotAttr_attention attrs = {.scale = 1};
    const MotOp *op = mot_graph_op(g, mot_build(&b, MOT_OP_ATTENTION, qkv, 3, &attrs));
    MotFactors factors;
    assert_ok(ctx, mot_factors(g, op, &factors));
    MotCluster *cluster = make_cluster(ctx, 2, equal, 0, 1e9);
    for (int i = 0; i < 2; i++)
        cluster->devices.data[i].alone = (MotRates){.functions = 1e18, .bandwidth = 1e15};
    int64_t share[] = {1, 1};
    uint32_t devices[] = {0, 1};
    MotMesh mesh = {.n_axes = 1, .n_devices = 2, .devices = devices, .axis = {{"d", 2, share}}};
    MotCost *cost;
    assert_ok(ctx, mot_cost_make(ctx, g, cluster, &mesh, &cost));
    double whole = mot_cost_op(cost, op, &factors, MOT_CHOICE_WHOLE, NULL);
    double heads = mot_cost_op(cost, op, &factors, mot_choice_find(g, op, &factors, "heads"), NULL);
    double width = mot_cost_op(cost, op, &factors, mot_choice_find(g, op, &factors, "dim3"), NULL);
    assert_true(heads < 0.52 * whole);
    assert_true(width > 0.74 * whole && width < 0.76 * whole);
}

/*
 * tanh(x) * y + x is one kernel: one launch, x and y read once, one result written; the product
 * after it is another.
 */
static void fused_operators_share_launch_and_memory(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "g");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", F32(64, 64)), y = mot_input(&b, "y", F32(64, 64));
    MotValue chain[] = {mot_tanh(&b, x), 0, 0, 0, 0};
    chain[1] = mot_mul(&b, chain[0], y);
    chain[2] = mot_add(&b, chain[1], x);
    chain[3] = mot_contract(&b, chain[2], y, "ab,bc->ac");
    chain[4] = mot_reshape(&b, chain[3], DIMS(4096));
    mot_output(&b, "z", chain[4]);
    static const double matrix = 64 * 64 * 4, elements = 64 * 64;
    static const MotWork expected[] = {
        {.functions.whole = elements, .bytes.whole = matrix, .is_launch = true},
        {.functions.whole = elements / 16, .bytes.whole = matrix},
        {.functions.whole = elements / 16, .bytes.whole = matrix},
        {.flops.whole = 2 * 64 * 64 * 64, .bytes.whole = 3 * matrix, .is_launch = true},
        {.is_launch = false},
    };
    MotFusion fusion;
    mot_fusion_find(ctx, g, &fusion);
    for (int i = 0; i < 5; i++) {
        const MotOp *op = mot_graph_def(g, chain[i]);
        MotFactors factors;
        assert_ok(ctx, mot_factors(g, op, &factors));
        MotWork whole = mot_work_find(g, &fusion, op, &factors, -1);
        assert_near(whole.flops.whole, expected[i].flops.whole);
        assert_near(whole.functions.whole, expected[i].functions.whole);
        assert_near(whole.bytes.whole, expected[i].bytes.whole);
        assert_int_equal(whole.is_launch, expected[i].is_launch);
        assert_int_equal(fusion.is_inner[chain[i]], i < 2);
        MotWork rows = mot_work_find(g, &fusion, op, &factors, 0);
        assert_near(rows.functions.split, whole.functions.whole);
        assert_near(rows.flops.split, whole.flops.whole);
        assert_near(rows.bytes.split + rows.bytes.whole, whole.bytes.whole);
    }
}

/*
 * A value that is converted late lives until then: it counts beside the large temporary in between.
 */
static void memory_is_the_peak_of_what_lives(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "g");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", F32(64, 64));
    MotValue y = mot_tanh(&b, x);
    MotValue large = mot_broadcast(&b, x, DIMS(64, 64, 64));
    mot_output(&b, "sum", mot_reduce_sum(&b, large, (int64_t[]){0}, 1, MOT_DROP));
    mot_output(&b, "last", mot_exp(&b, y));
    MotFix fixes[] = {{"*", "replicate"}};
    MotPlan *plan = make_plan(ctx, g, make_cluster(ctx, 2, equal, 1e-5, 1e9),
                              &(MotPlanOpts){.fixes = fixes, .n_fixes = 1});
    MotFactors factors;
    MotOpId tanh_op = g->values.data[y].def;
    assert_ok(ctx, mot_factors(g, mot_graph_op(g, tanh_op), &factors));
    plan->ops[tanh_op].factor[0] = 0;
    mot_plan_apply_factors(plan, tanh_op, &factors);
    assert_ok(ctx, mot_plan_predict(plan));
    const double matrix = 64 * 64 * 4;
    assert_near(plan->devices[0].memory,
                matrix /* x */ + matrix / 2 /* y */ + 64 * matrix /* large */ + matrix /* sum */);
    assert_near(plan->devices[0].bytes, matrix / 2);
}

/* ---- Names ---- */

static void choices_have_the_names_of_their_dims(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = make_gpt(ctx, small_gpt, "sgd:lr=0.1");
    static const struct {
        const char *node;
        MotOpKind kind;
        const char *names;
    } cases[] = {
        {"h.0.attn.q", MOT_OP_CONTRACT, "batch dim1 out dim3 in "},
        {"h.0.attn.proj", MOT_OP_CONTRACT, "batch dim1 out in sum1 "},
        {"h.0.mlp.fc", MOT_OP_CONTRACT, "batch dim1 out in "},
        {"h.0.mlp.fc", MOT_OP_ADD, "batch dim1 dim2 "},
        {"wte", MOT_OP_GATHER, "batch dim1 out "},
        {"wte", MOT_OP_PARAM, "dim0 dim1 "},
        {"ids", MOT_OP_INPUT, "dim0 dim1 "},
    };
    assert_non_null(g);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotText names;
        mot_text_init(&names, &ctx->arena);
        for (uint32_t k = 0; k < g->body.n; k++) {
            const MotOp *op = mot_graph_op(g, g->body.data[k]);
            MotFactors factors;
            if (op->kind != cases[i].kind || op->role != MOT_ROLE_FORWARD ||
                strcmp(mot_choice_node(op), cases[i].node) != 0)
                continue;
            assert_ok(ctx, mot_factors(g, op, &factors));
            for (int f = 0; f < (int)factors.n; f++) {
                if (!mot_factor_can_split(&factors, f, NULL, 0))
                    continue;
                const char *name = mot_choice_name(g, op, &factors, f);
                mot_text_printf(&names, "%s ", name);
                assert_int_equal(mot_choice_find(g, op, &factors, name), f);
            }
            assert_int_equal(mot_choice_find(g, op, &factors, "replicate"), MOT_CHOICE_WHOLE);
            assert_int_equal(mot_choice_find(g, op, &factors, "sideways"), MOT_CHOICE_NONE);
            break;
        }
        assert_string_equal(mot_text_get(&names), cases[i].names);
    }
}

/* The parts of a packed weight stand before the samples in the result. */
static void samples_have_their_name_behind_a_packed_dim(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "g");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", F32(8, 16, 32));
    MotValue w = make_weight(&b, "w", DIMS(3, 32, 64));
    MotValue y = mot_contract(&b, x, w, "btc,scn->sbtn");
    static const char *const names[] = {"out", "batch", "dim2", "dim3", "in"};
    const MotOp *op = mot_graph_def(g, y);
    MotFactors factors;
    assert_ok(ctx, mot_factors(g, op, &factors));
    assert_int_equal(factors.n, 5);
    for (int i = 0; i < 5; i++) {
        int f = mot_choice_find(g, op, &factors, names[i]);
        assert_true(f >= 0);
        assert_int_equal(factors.factor[f].out_dim[0], i == 4 ? -1 : i);
    }
    assert_int_equal(mot_choice_find(g, op, &factors, "dim1"),
                     mot_choice_find(g, op, &factors, "batch"));
}

/* ---- Plans ---- */

static void one_device_computes_all(void **state)
{
    MotCtx *ctx = *state;
    const MotCluster *cluster = mot_cluster_make(ctx, 1, 2);
    MotPlan *plan = make_plan(ctx, make_gpt(ctx, small_gpt, "adamw:lr=0.1"), cluster, NULL);
    for (uint32_t i = 0; i < plan->graph->body.n; i++)
        assert_int_equal(plan->ops[plan->graph->body.data[i]].factor[0], -1);
    assert_true(plan->devices[0].bytes == 0 && plan->devices[0].communication == 0);
    assert_true(plan->devices[0].memory > 0);
    assert_true(plan->bound <= plan->time && plan->bound > 0.9 * plan->time);
}

/* A block's operators, as Megatron splits them. */
static const struct {
    const char *node;
    MotOpKind kind;
    const char *megatron;
} block[] = {
    {"h.0.attn.q", MOT_OP_CONTRACT, "out"},   {"h.0.attn.k", MOT_OP_CONTRACT, "out"},
    {"h.0.attn.v", MOT_OP_CONTRACT, "out"},   {"h.0.attn", MOT_OP_ATTENTION, "heads"},
    {"h.0.attn.proj", MOT_OP_CONTRACT, "in"}, {"h.0.mlp.fc", MOT_OP_CONTRACT, "out"},
    {"h.0.mlp.act", MOT_OP_GELU, "dim2"},     {"h.0.mlp.proj", MOT_OP_CONTRACT, "in"},
};

static void check_block(const MotPlan *plan, bool is_megatron)
{
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        assert_string_equal(choice_of(plan, block[i].node, block[i].kind),
                            is_megatron ? block[i].megatron : "batch");
}

/*
 * One graph, equal devices, equal latency: the bandwidth alone decides between Megatron's pattern
 * and data-parallel. Seven samples of 129 tokens do not go evenly into four, heads and columns do:
 * that is worth the reductions of Megatron's pattern while they are cheap.
 */
static void links_decide_between_megatron_and_data_parallel(void **state)
{
    MotCtx *ctx = *state;
    const GptSizes sizes = {.b = 7, .t = 129, .h = 8, .d = 24, .v = 256, .layers = 1};
    MotGraph *g = make_gpt(ctx, sizes, "adamw:lr=0.1");
    MotPlanStats stats;
    check_block(
        make_plan(ctx, g, make_gpus(ctx, 4, equal, 1e-6, 1e11), &(MotPlanOpts){.stats = &stats}),
        true);
    assert_true(stats.is_exact);
    check_block(make_plan(ctx, g, make_gpus(ctx, 4, equal, 1e-6, 1e8), NULL), false);
}

/*
 * A block of the bench GPT on three devices. Megatron's pattern moves activations, data-parallel
 * weights, over the same links: the number of samples decides (docs/planner.md). Where memory is
 * slow the projection behind attention goes by tokens, whose part reads less.
 */
static void samples_decide_at_the_bench_gpts_sizes(void **state)
{
    MotCtx *ctx = *state;
    GptSizes sizes = {.b = 4, .t = 256, .h = 6, .d = 64, .v = 65, .layers = 1};
    MotGraph *few = make_gpt(ctx, sizes, "adamw:lr=0.1");
    sizes.b = 30;
    MotGraph *many = make_gpt(ctx, sizes, "adamw:lr=0.1");
    check_block(make_plan(ctx, few, make_gpus(ctx, 3, equal, 1e-6, 1e11), NULL), true);
    check_block(make_plan(ctx, many, make_gpus(ctx, 3, equal, 1e-6, 1e11), NULL), false);
    check_block(make_plan(ctx, many, make_gpus(ctx, 3, equal, 1e-6, 1e8), NULL), false);
    const MotPlan *slow_memory = make_plan(ctx, few, make_cluster(ctx, 3, equal, 1e-6, 1e11), NULL);
    assert_string_equal(choice_of(slow_memory, "h.0.attn", MOT_OP_ATTENTION), "heads");
    assert_string_equal(choice_of(slow_memory, "h.0.attn.proj", MOT_OP_CONTRACT), "dim1");
    assert_string_equal(choice_of(slow_memory, "h.0.mlp.fc", MOT_OP_CONTRACT), "out");
    assert_string_equal(choice_of(slow_memory, "h.0.mlp.proj", MOT_OP_CONTRACT), "in");
}

static const MotOp *find_update(const MotGraph *g, const char *node, MotOpId *out_id)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        *out_id = g->body.data[i];
        if ((mot_op_info(op->kind)->flags & MOT_FLAG_UPDATE) &&
            strcmp(mot_choice_node(op), node) == 0)
            return op;
    }
    fail_msg("no update of %s", node);
    return NULL;
}

/*
 * Data-parallel with adam: gradients are reduce-scattered and each device updates its part, states
 * are stored in parts.
 */
static void updates_are_sharded(void **state)
{
    MotCtx *ctx = *state;
    const MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, 1e9);
    MotFix fix = {"*", "batch"};
    MotGraph *g = make_mlp(ctx, 4800, 512, 512, "adamw:lr=0.1");
    MotPlan *plan = make_plan(ctx, g, cluster, &(MotPlanOpts){.fixes = &fix, .n_fixes = 1});
    MotOpId id = 0;
    const MotOp *update = find_update(g, "fc1.weight", &id);
    assert_true(plan->ops[id].factor[0] >= 0);
    for (int state_operand = 1; state_operand <= 2; state_operand++)
        assert_true(plan->values[update->in[state_operand]].axis[0] >= 0);
    assert_int_equal(plan->values[update->in[3]].axis[0], MOT_PARTIAL_SUM);
    assert_string_equal(choice_of(plan, "fc1", MOT_OP_CONTRACT), "batch");
}

static void fixes_are_kept_or_refused(void **state)
{
    MotCtx *ctx = *state;
    const MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, 1e9);
    MotGraph *g = make_gpt(ctx, small_gpt, "sgd:lr=0.1");
    static const MotFix good[] = {
        {"h.0.mlp.*", "in"}, {"h.0.mlp.fc", "out"}, {"h.0.attn", "heads"}, {"ln_f", "replicate"}};
    MotPlan *plan = make_plan(ctx, g, cluster, &(MotPlanOpts){.fixes = good, .n_fixes = 4});
    assert_string_equal(choice_of(plan, "h.0.mlp.fc", MOT_OP_CONTRACT),
                        "out"); /* the last that matches wins */
    assert_string_equal(choice_of(plan, "h.0.mlp.proj", MOT_OP_CONTRACT), "in");
    assert_string_equal(choice_of(plan, "h.0.attn", MOT_OP_ATTENTION), "heads");
    assert_string_equal(choice_of(plan, "ln_f", MOT_OP_LAYER_NORM), "replicate");
    static const MotFix bad[] = {{"h.0.mlp.fc", "sideways"}, {"nowhere", "batch"}};
    for (int i = 0; i < 2; i++) {
        MotPlan *none = NULL;
        assert_int_equal(
            mot_plan_make(ctx, g, cluster, &(MotPlanOpts){.fixes = &bad[i], .n_fixes = 1}, &none),
            MOT_ERR_USAGE);
        assert_non_null(strstr(mot_text_get(&ctx->error),
                               i == 0 ? "replicate, batch, dim1, out, in" : "nodes are named"));
        mot_error_clear(ctx);
        /* On one device nothing can be split, but a node that is not there is told, too. */
        assert_int_equal(
            mot_plan_make(ctx, g, cluster,
                          &(MotPlanOpts){.n_devices = 1, .fixes = &bad[i], .n_fixes = 1}, &none),
            i == 0 ? MOT_OK : MOT_ERR_USAGE);
        mot_error_clear(ctx);
    }
}

static void shares_are_checked(void **state)
{
    MotCtx *ctx = *state;
    const MotCluster *cluster = make_cluster(ctx, 4, equal, 1e-5, 1e9);
    MotGraph *g = make_mlp(ctx, 64, 64, 64, "sgd:lr=0.1");
    static const int64_t good[] = {5, 3, 0, 0}, zero[] = {0, 0, 0, 0}, negative[] = {1, -1, 1, 1};
    MotPlan *plan = make_plan(ctx, g, cluster, &(MotPlanOpts){.share = good, .n_share = 4});
    assert_int_equal(plan->stages.data[0].mesh.axis[0].share[1], 3);
    plan = make_plan(ctx, g, cluster, &(MotPlanOpts){.share = good, .n_share = 2, .n_devices = 2});
    assert_int_equal(plan->stages.data[0].mesh.n_devices, 2);
    const MotPlanOpts bad[] = {{.share = zero, .n_share = 4},
                               {.share = negative, .n_share = 4},
                               {.share = good, .n_share = 3},
                               {.n_devices = 5}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mot_plan_make(ctx, g, cluster, &bad[i], &plan), MOT_ERR_USAGE);
        mot_error_clear(ctx);
    }
}

static double find_peak(const MotPlan *plan)
{
    double peak = 0;
    for (uint32_t i = 0; i < plan->cluster->devices.n; i++)
        peak = plan->devices[i].memory > peak ? plan->devices[i].memory : peak;
    return peak;
}

static void set_caps(MotCluster *cluster, double bytes)
{
    for (uint32_t i = 0; i < cluster->devices.n; i++)
        cluster->devices.data[i].memory = bytes;
}

/*
 * Slow links make replication fast; with a cap the planner pays for parts, and below what any plan
 * needs it says so.
 */
static void memory_is_held(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *cluster = make_cluster(ctx, 4, equal, 1, 1e3);
    MotGraph *g = make_mlp(ctx, 16, 512, 512, "adamw:lr=0.1");
    MotPlan *free_plan = make_plan(ctx, g, cluster, NULL);
    double needed = find_peak(free_plan);
    set_caps(cluster, needed * 1.1);
    assert_true(make_plan(ctx, g, cluster, NULL)->time == free_plan->time);
    set_caps(cluster, needed * 0.6);
    MotPlanStats stats;
    MotPlan *tight = make_plan(ctx, g, cluster, &(MotPlanOpts){.stats = &stats});
    assert_true(stats.is_memory_bound && find_peak(tight) <= needed * 0.6 &&
                tight->time > free_plan->time);
    set_caps(cluster, needed * 0.01);
    MotPlan *none = NULL;
    assert_int_equal(mot_plan_make(ctx, g, cluster, NULL, &none), MOT_ERR_INFEASIBLE);
    assert_non_null(strstr(mot_text_get(&ctx->error), "needs"));
}

/* A fast device with little memory gets a smaller share than its speed would give it. */
static void shares_respect_memory(void **state)
{
    MotCtx *ctx = *state;
    static const double slow[] = {1, 4, 4, 4};
    MotCluster *cluster = make_cluster(ctx, 4, slow, 1e-5, 1e9);
    MotFix fix = {"*", "batch"};
    MotPlanOpts opts = {.fixes = &fix, .n_fixes = 1};
    MotGraph *g = make_mlp(ctx, 4096, 64, 512, "sgd:lr=0.1");
    MotPlan *plan = make_plan(ctx, g, cluster, &opts);
    double needed = plan->devices[0].memory;
    assert_int_equal(plan->stages.data[0].mesh.axis[0].share[0], 4);
    cluster->devices.data[0].memory = needed * 0.7;
    plan = make_plan(ctx, g, cluster, &opts);
    const int64_t *share = plan->stages.data[0].mesh.axis[0].share;
    assert_true(plan->devices[0].memory <= needed * 0.7);
    assert_true(share[0] > share[1] && share[0] < 4 * share[1] && share[1] == share[2]);
}

static void planning_is_deterministic(void **state)
{
    MotCtx *ctx = *state;
    MotText text[2];
    for (int i = 0; i < 2; i++) {
        const MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, 1e9);
        MotPlan *plan = make_plan(ctx, make_gpt(ctx, small_gpt, "adamw:lr=0.1"), cluster, NULL);
        mot_text_init(&text[i], &ctx->arena);
        mot_plan_print(plan, &text[i]);
    }
    assert_string_equal(mot_text_get(&text[0]), mot_text_get(&text[1]));
}

/* What is predicted is what binding the lowered program lays out, within 5 %. */
static void lowered_plans_keep_the_predicted_memory(void **state)
{
    MotCtx *ctx = *state;
    static const double bandwidth[] = {1e11, 1e9, 1e7};
    for (int i = 0; i < 3; i++) {
        GptSizes sizes = {.b = 8, .t = 64, .h = 6, .d = 32, .v = 200, .layers = 2};
        MotGraph *g = make_gpt(ctx, sizes, "adamw:lr=0.1");
        MotPlan *plan = make_plan(ctx, g, make_cluster(ctx, 4, unequal, 1e-5, bandwidth[i]), NULL);
        MotPipeline *pipeline;
        assert_ok(ctx, mot_lower(ctx, plan, &pipeline));
        assert_ok(ctx, mot_pipeline_verify(pipeline));
        for (uint32_t device = 0; device < 4; device++) {
            MotBinding binding;
            assert_ok(ctx, mot_program_bind(ctx, pipeline->stages.data[0], device, &binding));
            double ratio = (double)binding.arena_bytes / plan->devices[device].memory;
            if (ratio < 0.95 || ratio > 1.05)
                fail_msg("device %u: %.3f of the prediction", device, ratio);
        }
    }
}

/* What is predicted is what the lowered program does at the same rates, within 5 %. */
static void lowered_plans_take_the_predicted_time(void **state)
{
    MotCtx *ctx = *state;
    static const double bandwidth[] = {1e11, 1e9, 1e7};
    for (int i = 0; i < 3; i++) {
        GptSizes sizes = {.b = 8, .t = 64, .h = 6, .d = 32, .v = 200, .layers = 2};
        MotGraph *g = make_gpt(ctx, sizes, "adamw:lr=0.1");
        MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, bandwidth[i]);
        MotPlan *plan = make_plan(ctx, g, cluster, NULL);
        MotPipeline *pipeline;
        assert_ok(ctx, mot_lower(ctx, plan, &pipeline));
        const MotProgram *p = pipeline->stages.data[0];
        for (uint32_t device = 0; device < 4; device++) {
            MotBinding binding;
            MotRates rates = mot_cost_rates(cluster, device);
            double seconds = 0;
            assert_ok(ctx, mot_program_bind(ctx, p, device, &binding));
            for (uint32_t k = 0; k < p->section[MOT_SECTION_STEP].n; k++) {
                MotCount count =
                    mot_count_instr(ctx, p, &p->section[MOT_SECTION_STEP].data[k], &binding);
                seconds += mot_count_seconds(&count, &rates);
            }
            double ratio = seconds / plan->devices[device].busy;
            if (ratio < 0.95 || ratio > 1.05)
                fail_msg("device %u: %.3f of the prediction", device, ratio);
        }
    }
}

/* ---- Verifier ---- */

static void verifier_refuses_broken_plans(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = make_mlp(ctx, 64, 64, 64, "sgd:lr=0.1");
    enum { GOOD, SHARDING, WHOLE_FACTOR, MESH, SHARES, STAGE, BOUND, N_CASES };
    for (int i = GOOD; i < N_CASES; i++) {
        MotPlan *plan = make_plan(ctx, g, make_cluster(ctx, 2, equal, 1e-5, 1e9), NULL);
        MotMesh *mesh = &plan->stages.data[0].mesh;
        MotOpId update = 0;
        find_update(g, "fc1.weight", &update);
        if (i == SHARDING)
            plan->values[mot_graph_op(g, update)->out[0]] = split(1, 3);
        if (i == WHOLE_FACTOR)
            plan->ops[update].factor[0] = 100;
        if (i == MESH)
            mesh->n_devices = 1;
        if (i == SHARES)
            mesh->axis[0].share[0] = -1;
        if (i == STAGE)
            plan->ops[update].stage = 1;
        if (i == BOUND)
            plan->bound = 2 * plan->time;
        assert_int_equal(mot_plan_verify(plan), i == GOOD ? MOT_OK : MOT_ERR_INFEASIBLE);
        mot_error_clear(ctx);
    }
}

/* ---- Reports ---- */

static void reports_name_layers_devices_and_bound(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, 1e9);
    MotPlanStats stats;
    for (uint32_t i = 0; i < 4; i++)
        mot_device_assume(&cluster->devices.data[i], "avx512");
    MotPlan *plan = make_plan(ctx, make_gpt(ctx, small_gpt, "adamw:lr=0.1"), cluster,
                              &(MotPlanOpts){.stats = &stats});
    MotText text;
    mot_text_init(&text, &ctx->arena);
    assert_ok(ctx, mot_plan_report(plan, &stats, &text));
    static const char *const parts[] = {"h.0.mlp.fc",
                                        "(updates)",
                                        "cpu3",
                                        "within",
                                        "bound",
                                        "search: exact",
                                        "rates of 4 of 4 devices are assumed"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(mot_text_get(&text), parts[i]));
}

static void explanations_mark_the_choice(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, 1e9);
    MotPlan *plan = make_plan(ctx, make_gpt(ctx, small_gpt, "adamw:lr=0.1"), cluster, NULL);
    MotText text;
    mot_text_init(&text, &ctx->arena);
    assert_ok(ctx, mot_plan_explain(plan, "h.0.attn", &text));
    assert_non_null(strstr(mot_text_get(&text), "heads"));
    assert_non_null(strstr(
        mot_text_get(&text),
        mot_arena_printf(&ctx->arena, "* %s", choice_of(plan, "h.0.attn", MOT_OP_ATTENTION))));
    assert_int_equal(mot_plan_explain(plan, "nowhere", &text), MOT_ERR_USAGE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(conversions_cost_what_travels),
        TEST(splitting_divides_the_work),
        TEST(a_factor_divides_only_the_flops_that_it_runs_over),
        TEST(micro_batches_repeat_what_they_need),
        TEST(fused_operators_share_launch_and_memory),
        TEST(memory_is_the_peak_of_what_lives),
        TEST(choices_have_the_names_of_their_dims),
        TEST(samples_have_their_name_behind_a_packed_dim),
        TEST(one_device_computes_all),
        TEST(links_decide_between_megatron_and_data_parallel),
        TEST(samples_decide_at_the_bench_gpts_sizes),
        TEST(updates_are_sharded),
        TEST(fixes_are_kept_or_refused),
        TEST(shares_are_checked),
        TEST(memory_is_held),
        TEST(shares_respect_memory),
        TEST(planning_is_deterministic),
        TEST(lowered_plans_keep_the_predicted_memory),
        TEST(lowered_plans_take_the_predicted_time),
        TEST(verifier_refuses_broken_plans),
        TEST(reports_name_layers_devices_and_bound),
        TEST(explanations_mark_the_choice),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
