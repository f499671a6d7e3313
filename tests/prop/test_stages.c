/*
 * A pipeline of stages computes what one device does: training graphs of real models cut at random
 * places into stages, with meshes of different sizes, uneven and zero shares and random factors,
 * under both schedules, with one and several micro-batches. The plan read back from its text gives
 * the same bits.
 *
 *     test_stages [--seed N]      reproduces one failure
 */
#include "tests/plan_run.h"

static const Model models[] = {
    {"models/mlp_ts13_opt_dynamic.onnx", "cross_entropy:logits:labels", "x",
     "models/fixtures/mlp/x.npy", "models/fixtures/mlp/labels.npy", NULL},
    {"models/gpt_erf_sdpa_dynamo18_raw_dynamic.onnx", "cross_entropy:logits:labels", "input_ids",
     "models/fixtures/gpt_erf/input_ids.npy", "models/fixtures/gpt_erf/labels.npy", NULL},
};

static const struct {
    uint32_t n_stages, n_micro;
    MotSchedule schedule;
    MeshShape mesh[3];
} pipelines[] = {
    {2, 1, MOT_SCHEDULE_GPIPE, {{1, {1}, {{1}}}, {1, {1}, {{1}}}}},
    {2, 4, MOT_SCHEDULE_GPIPE, {{1, {2}, {{3, 1}}}, {1, {1}, {{1}}}}},
    {2, 4, MOT_SCHEDULE_1F1B, {{1, {1}, {{1}}}, {1, {3}, {{5, 0, 2}}}}},
    {3, 2, MOT_SCHEDULE_1F1B, {{1, {2}, {{1, 2}}}, {2, {2, 1}, {{3, 1}, {1}}}, {1, {1}, {{1}}}}},
    {3, 8, MOT_SCHEDULE_1F1B, {{1, {1}, {{1}}}, {1, {2}, {{2, 3}}}, {1, {2}, {{1, 0}}}}},
};

static unsigned first_seed = 1, n_seeds = 3;

static MotPlan *read_back(const MotPlan *plan)
{
    MotText text;
    MotPlan *parsed;
    mot_text_init(&text, &plan->ctx->arena);
    mot_plan_print(plan, &text);
    require(plan->ctx, mot_plan_parse(plan->ctx, "plan.mot", mot_text_get(&text), &parsed));
    return parsed;
}

static void check_pipeline(const Model *model, size_t which, unsigned first, const char *backend)
{
    static const MeshShape one = {1, {1}, {{1}}};
    MotCtx ctx;
    Trained whole, staged, again;
    unsigned none = 0;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, model, "adamw:lr=0.01,clip=1.0", pipelines[which].n_micro);
    assert_true(run_plan(&job, make_plan(&job, &one, &none), backend, NULL, &whole));
    unsigned seed = first;
    MotPlan *plan = make_staged_plan(&job, pipelines[which].mesh, pipelines[which].n_stages,
                                     pipelines[which].schedule, &seed);
    assert_true(run_plan(&job, plan, backend, NULL, &staged));
    check_same(&staged, &whole,
               mot_arena_printf(&ctx.arena, "%s in pipeline %zu (test_stages --seed %u)",
                                model->model, which, first));
    assert_true(run_plan(&job, read_back(plan), backend, NULL, &again));
    assert_memory_equal(staged.losses, again.losses, sizeof staged.losses);
    assert_memory_equal(staged.after, again.after, staged.n_params * sizeof *staged.after);
    mot_ctx_deinit(&ctx);
}

static void stages_compute_what_one_device_does(void **state)
{
    (void)state;
    for (size_t which = 0; which < sizeof pipelines / sizeof *pipelines; which++) {
        for (unsigned seed = first_seed; seed < first_seed + n_seeds; seed++)
            check_pipeline(&models[0], which, seed, "ref");
        check_pipeline(&models[1], which, first_seed, "ref");
    }
}

static void compiled_kernels_do_too(void **state)
{
    (void)state;
    if (mot_isa_best() < 0)
        skip();
    check_pipeline(&models[1], 2, first_seed, "cpu");
    check_pipeline(&models[1], 3, first_seed, "cpu");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_compute_what_one_device_does),
                                       cmocka_unit_test(compiled_kernels_do_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
