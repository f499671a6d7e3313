/*
 * The planner on the committed exports: real training graphs through every pass, planned, lowered
 * and bound.
 */
#include "frontend/cluster_file.h"
#include "frontend/import.h"
#include "frontend/trained.h"
#include "passes/graph/loss.h"
#include "passes/graph/optimizer.h"
#include "passes/lower/lower.h"
#include "passes/pipeline.h"
#include "passes/plan/plan.h"
#include "tests/consent.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char exact[] = "adamw:lr=1e-3,clip=1";

static MotStatus make_training_graph(MotCtx *ctx, const char *model, const char *optimizer_text,
                                     bool accumulates, MotGraph **out)
{
    MotOnnxOpts onnx = mot_onnx_opts_default();
    MotDimBinding batch = {"batch", 6};
    MotImportOpts import = {.dims = &batch, .n_dims = strstr(model, "dynamic") ? 1 : 0};
    MotOnnxFile *file;
    MotTrained trained;
    MotLoss loss;
    MotOptimizer optimizer;
    MOT_TRY(
        mot_onnx_open(ctx, mot_arena_printf(&ctx->arena, "models/%s.onnx", model), &onnx, &file));
    MOT_TRY(mot_import(ctx, file, &import, out));
    MOT_TRY(mot_trained_decide(ctx, *out, &(MotTrainOpts){0}, &trained));
    MOT_TRY(mot_loss_parse(ctx, *out, "cross_entropy:logits:labels", &loss));
    MOT_TRY(mot_optimizer_parse(ctx, optimizer_text, &optimizer));
    MotPassOpts opts = {.loss = &loss, .optimizer = &optimizer, .accumulates = accumulates};
    return mot_passes_run(ctx, *out, &opts, NULL, "optimizer");
}

/*
 * The prediction is what binding lays out: at most 5 % above it, a tenth below, or a few KiB. Of
 * DeMo's many short-lived buffers as much as 15 % more.
 */
static void check_memory(const MotPlan *plan, const MotProgram *program, const char *what)
{
    double most = find_lossy(plan->graph) ? 1.15 : 1.05;
    for (uint32_t i = 0; i < program->mesh.n_devices; i++) {
        MotBinding binding;
        assert_int_equal(mot_program_bind(plan->ctx, program, i, &binding), MOT_OK);
        double predicted = plan->devices[program->mesh.devices[i]].memory,
               ratio = (double)binding.arena_bytes / predicted,
               excess = (double)binding.arena_bytes - predicted;
        if ((ratio < 0.9 || ratio > most) && fabs(excess) > 8192)
            fail_msg("%s, device %u: %lld bytes are %.3f of the prediction", what, i,
                     (long long)binding.arena_bytes, ratio);
    }
}

static MotStatus plan_and_lower(MotCtx *ctx, MotGraph *g, const char *cluster_file,
                                uint32_t n_micro, MotPlan **out_plan, MotPipeline **out_pipeline)
{
    MotCluster *cluster;
    MotText text;
    MotPlan *parsed;
    MOT_TRY(mot_cluster_read(ctx, cluster_file, &cluster));
    MOT_TRY(mot_plan_make(ctx, g, cluster, &(MotPlanOpts){.n_micro = n_micro}, out_plan));
    mot_text_init(&text, &ctx->arena);
    mot_plan_print(*out_plan, &text);
    MOT_TRY(mot_plan_parse(ctx, "plan.mot", mot_text_get(&text), &parsed));
    MOT_TRY(mot_lower(ctx, parsed, out_pipeline));
    check_memory(*out_plan, (*out_pipeline)->stages.data[0], cluster_file);
    return mot_pipeline_verify(*out_pipeline);
}

/* What nobody asked for is in no plan and in nothing that runs; NULL: nothing. */
static const char *find_lossy_anywhere(const MotPlan *plan, const MotPipeline *pipeline)
{
    const char *found = find_lossy(plan->graph);
    for (uint32_t i = 0; i < pipeline->stages.n && !found; i++)
        found = find_lossy_in_program(pipeline->stages.data[i]);
    return found;
}

static void exports_are_planned_and_lowered(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp_dynamo20_opt_static",
                                         "mlp_ts13_opt_dynamic",
                                         "gpt_char",
                                         "gpt_erf_manual_ts13_raw_dynamic",
                                         "gpt_erf_sdpa_dynamo20_opt_dynamic",
                                         "gpt_tanh_manual_ts17_raw_static",
                                         "gpt_tanh_sdpa_dynamo18_opt_static"};
    static const char *const clusters[] = {"models/clusters/four.yaml",
                                           "models/clusters/four-slow-links.yaml",
                                           "models/clusters/two-equal.yaml"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
            uint32_t n_micro = c == 2 ? 3 : 1;
            MotCtx ctx;
            MotGraph *g = NULL;
            MotPlan *plan = NULL;
            MotPipeline *pipeline = NULL;
            mot_ctx_init(&ctx);
            MotStatus status = make_training_graph(&ctx, models[m], exact, n_micro > 1, &g);
            if (status == MOT_OK)
                status = plan_and_lower(&ctx, g, clusters[c], n_micro, &plan, &pipeline);
            if (status != MOT_OK || !plan || !pipeline) {
                fail_msg("%s on %s: %s", models[m], clusters[c], mot_text_get(&ctx.error));
                return;
            }
            const char *lossy = find_lossy_anywhere(plan, pipeline);
            if (lossy)
                fail_msg("%s on %s: %s without consent", models[m], clusters[c], lossy);
            assert_true(plan->bound > 0 && plan->bound <= plan->time);
            for (uint32_t i = 0; i < plan->cluster->devices.n; i++)
                assert_true(plan->devices[i].busy > 0 && plan->devices[i].memory > 0);
            mot_ctx_deinit(&ctx);
        }
}

/* The checks above find what they look for where it was asked for. */
static void what_is_asked_for_is_there(void **state)
{
    (void)state;
    static const char file[] = "models/clusters/two-equal.yaml";
    static const char model[] = "gpt_erf_sdpa_dynamo20_opt_dynamic";
    MotCtx ctx;
    MotGraph *g = NULL;
    MotPlan *plan = NULL;
    MotPipeline *pipeline = NULL;
    mot_ctx_init(&ctx);
    MotStatus status = make_training_graph(&ctx, model, "demo:replicas=2", false, &g);
    assert_int_equal(status, MOT_OK);
    MOT_ASSERT(g);
    assert_string_equal(find_lossy(g), "DeMo");
    assert_int_equal(plan_and_lower(&ctx, g, file, 1, &plan, &pipeline), MOT_OK);
    MOT_ASSERT(plan && pipeline);
    assert_string_equal(find_lossy_in_program(pipeline->stages.data[0]), "DeMo");
    assert_int_equal(make_training_graph(&ctx, model, exact, false, &g), MOT_OK);
    assert_int_equal(plan_and_lower(&ctx, g, file, 1, &plan, &pipeline), MOT_OK);
    plan->cuts = MOT_CUT_ZERO;
    assert_int_equal(mot_lower(&ctx, plan, &pipeline), MOT_OK);
    assert_string_equal(find_lossy_anywhere(plan, pipeline), "cuts");
    mot_ctx_deinit(&ctx);
}

static double bytes_at(const MotBinding *binding, uint32_t buf)
{
    return (double)mot_type_bytes(&binding->types[buf]);
}

/*
 * Bytes that a rank of a mesh of 2 x 2 receives in a move. Of what comes by an all-to-all it has as
 * much as of the whole; parts of the same dim begin or end together.
 */
static double count_move(const MotInstr *ins, uint32_t k, const MotBinding *own,
                         const MotBinding *peer)
{
    double from = bytes_at(own, ins->bufs[k]), to = bytes_at(own, ins->bufs[ins->n_in + k]),
           rest = bytes_at(peer, ins->bufs[k]);
    if (ins->kind == MOT_INS_ALL_REDUCE || ins->kind == MOT_INS_REDUCE_SCATTER)
        return to;
    if (ins->kind == MOT_INS_ALL_TO_ALL && ins->moves[k].dim != ins->moves[k].dim_out)
        return to * rest / (from + rest);
    return fmax(to - from, 0);
}

/* In a step of one micro-batch. */
static double count_received(const MotProgram *p, const MotBinding *bindings, uint32_t position)
{
    double received = 0;
    for (uint32_t i = 0; i < p->section[MOT_SECTION_STEP].n; i++) {
        const MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
        uint32_t peer = ins->axis == 0 ? (position + 2) % 4 : position ^ 1;
        for (uint32_t k = 0; mot_instr_is_collective(ins) && k < ins->n_in; k++)
            received += count_move(ins, k, &bindings[position], &bindings[peer]);
    }
    return received;
}

/* What every device receives is as predicted. */
static void check_bytes(const MotPlan *plan, const MotPipeline *pipeline, const char *what)
{
    MotBinding bindings[4];
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    assert_int_equal(mot_pipeline_bind(plan->ctx, pipeline, bindings), MOT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        double received = count_received(pipeline->stages.data[0], bindings, i),
               predicted = plan->devices[mesh->devices[i]].bytes;
        if (fabs(received - predicted) > 1e-9 * received)
            fail_msg("%s, place %u: %.0f bytes, predicted %.0f", what, i, received, predicted);
    }
}

/*
 * Two replicas, each of two devices that are near each other; where nothing is worth a split, as of
 * the smallest model, all on one axis.
 */
static void replicas_of_several_devices_are_planned(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint32_t n_axes;
    } cases[] = {
        {"mlp_ts13_opt_dynamic", 1}, {"gpt_char", 2}, {"gpt_erf_sdpa_dynamo20_opt_dynamic", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotCtx ctx;
        MotGraph *g = NULL;
        MotPlan *plan = NULL, *line = NULL;
        MotPipeline *pipeline = NULL;
        mot_ctx_init(&ctx);
        MotStatus status = make_training_graph(&ctx, cases[i].model, "demo:replicas=2", false, &g);
        if (status == MOT_OK)
            status = plan_and_lower(&ctx, g, "models/clusters/two-nodes.yaml", 1, &plan, &pipeline);
        if (status == MOT_OK)
            status = mot_plan_make(&ctx, g, plan->cluster, &(MotPlanOpts){.one_axis = true}, &line);
        if (status != MOT_OK || !plan || !pipeline || !line) {
            fail_msg("%s: %s", cases[i].model, mot_text_get(&ctx.error));
            return;
        }
        const MotMesh *mesh = &plan->stages.data[0].mesh;
        assert_int_equal(mesh->n_axes, cases[i].n_axes);
        assert_true(plan->bound > 0 && plan->bound <= plan->time && plan->time <= line->time);
        if (mesh->n_axes == 2) {
            assert_memory_equal(mesh->devices, ((uint32_t[]){2, 0, 1, 3}), 4 * sizeof(uint32_t));
            assert_true(mesh->axis[1].share[0] > mesh->axis[1].share[1]);
            assert_true(plan->time < 0.9 * line->time);
            check_bytes(plan, pipeline, cases[i].model);
        }
        mot_ctx_deinit(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exports_are_planned_and_lowered),
                                       cmocka_unit_test(what_is_asked_for_is_there),
                                       cmocka_unit_test(replicas_of_several_devices_are_planned)};
    return cmocka_run_group_tests_name("plan_models", tests, NULL, NULL);
}
