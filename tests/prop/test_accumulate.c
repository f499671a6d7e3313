/*
 * N micro-batches of B rows give the step that one batch of N * B rows gives: losses and
 * parameters, under every optimizer, with clipping, with labels that do not count in unequal
 * numbers, on one device and on several with uneven shares and a resize.
 */
#include "tests/plan_run.h"

static const Model models[] = {
    {"models/mlp_ts13_opt_dynamic.onnx", "cross_entropy:logits:labels", "x",
     "models/fixtures/mlp/x.npy", "models/fixtures/mlp/labels.npy", NULL},
    {"models/mlp_mse_ts17_opt_dynamic.onnx", "mse:y:labels", "x", "models/fixtures/mlp_mse/x.npy",
     "models/fixtures/mlp_mse/labels.npy", NULL},
    {"models/gpt_erf_sdpa_dynamo18_raw_dynamic.onnx", "cross_entropy:logits:labels", "input_ids",
     "models/fixtures/gpt_erf/input_ids.npy", "models/fixtures/gpt_erf/labels.npy", NULL},
};
static const MeshShape one = {1, {1}, {{1}}}, three = {1, {3}, {{5, 0, 2}}};
static const int64_t resize[] = {1, 2, 4};

static void check_model(const Model *model, const char *optimizer, uint32_t n_micro)
{
    MotCtx ctx;
    Trained whole, parts;
    unsigned none = 0, seed = 11;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, model, optimizer, 1),
        micro = make_job(&ctx, model, optimizer, n_micro);
    const char *what =
        mot_arena_printf(&ctx.arena, "%s, %s, %u micro-batches", model->model, optimizer, n_micro);
    run_plan(&job, make_plan(&job, &one, &none), "ref", NULL, &whole);
    run_plan(&micro, make_plan(&micro, &one, &none), "ref", NULL, &parts);
    check_same(&parts, &whole, what);
    run_plan(&micro, make_plan(&micro, &three, &seed), "ref", resize, &parts);
    check_same(&parts, &whole, mot_arena_printf(&ctx.arena, "%s on 3 devices", what));
    mot_ctx_deinit(&ctx);
}

static void micro_batches_add_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_model(&models[i], "adamw:lr=0.01,clip=1.0", 2);
        check_model(&models[i], "sgd:lr=0.01,clip=0.5", 4);
    }
    check_model(&models[0], "sgd:lr=0.01,momentum=0.9", 16);
    check_model(&models[2], "sgd:lr=0.01,momentum=0.9,clip=1.0", 8);
}

/* Without `accumulate` the step would use the last micro-batch alone. */
static void a_graph_that_does_not_accumulate_is_refused(void **state)
{
    (void)state;
    MotCtx ctx;
    MotPipeline *pipeline;
    unsigned none = 0;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, &models[0], "sgd:lr=0.01", 1);
    MotPlan *plan = make_plan(&job, &one, &none);
    plan->n_micro = 2;
    assert_int_equal(mot_lower(&ctx, plan, &pipeline), MOT_ERR_MISMATCH);
    assert_non_null(strstr(mot_text_get(&ctx.error), "does not accumulate"));
    mot_ctx_deinit(&ctx);
}

/* One micro-batch: one section, and nothing beside what a step needs. */
static void one_micro_batch_costs_nothing(void **state)
{
    (void)state;
    MotCtx ctx;
    MotPipeline *pipeline;
    unsigned none = 0;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, &models[2], "adamw:lr=0.01,clip=1.0", 1);
    require(&ctx, mot_lower(&ctx, make_plan(&job, &one, &none), &pipeline));
    const MotProgram *program = pipeline->stages.data[0];
    for (int s = 0; s < MOT_SECTION_STEP; s++)
        assert_int_equal(program->section[s].n, 0);
    assert_int_equal(program->order.n, 1);
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        assert_int_equal(program->bufs.data[i].copies, 1);
        assert_int_not_equal(program->bufs.data[i].kind, MOT_BUF_STEP);
    }
    /* Evaluation is the forward pass alone. */
    assert_true(program->section[MOT_SECTION_EVAL].n * 2 < program->section[MOT_SECTION_STEP].n);
    mot_ctx_deinit(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(a_graph_that_does_not_accumulate_is_refused),
        cmocka_unit_test(one_micro_batch_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
