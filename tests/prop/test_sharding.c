/*
 * Any legal plan computes the same: training graphs of real models under random factor choices, on meshes of one and two axes with uneven
 * and zero shares, run by the ranks on the reference device and compared with the same graph evaluated whole. This covers
 * factor rules, lowering, binding and every collective at once.
 *
 *     test_sharding [--seed N]      reproduces one failure
 */
#include "tests/plan_run.h"

static const Model models[] = {
    {"models/mlp_dynamo20_opt_static.onnx", "cross_entropy:logits:labels", "x",
     "models/fixtures/mlp/x.npy", "models/fixtures/mlp/labels.npy"},
    {"models/gpt_erf_sdpa_dynamo18_raw_dynamic.onnx", "cross_entropy:logits:labels", "input_ids",
     "models/fixtures/gpt_erf/input_ids.npy", "models/fixtures/gpt_erf/labels.npy"},
};

static const MeshShape meshes[] = {
    {1, {2}, {{1, 1}}},
    {1, {3}, {{5, 0, 2}}},
    {1, {4}, {{8, 4, 2, 1}}},
    {2, {2, 2}, {{3, 1}, {1, 2}}},
    {2, {2, 2}, {{1, 0}, {2, 1}}},
};
enum { N_MODELS = sizeof models / sizeof *models, N_MESHES = sizeof meshes / sizeof *meshes };

static unsigned first_seed = 1, n_seeds = 4;

static void any_legal_plan_computes_the_same(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        static const MeshShape one = {1, {1}, {{1}}};
        Trained whole, split;
        MotCtx ctx;
        mot_ctx_init(&ctx);
        Job job = make_job(&ctx, &models[m], "adamw:lr=0.01,clip=1.0", 1);
        unsigned none = 0, n_run = 0;
        assert_true(run_plan(&job, make_plan(&job, &one, &none), "ref", NULL, &whole));
        for (uint32_t which = 0; which < N_MESHES; which++)
            for (unsigned s = first_seed; s < first_seed + n_seeds; s++) {
                MotScope scope = mot_scope_begin(&ctx);
                unsigned seed = s;
                if (run_plan(&job, make_plan(&job, &meshes[which], &seed), "ref", NULL, &split)) {
                    n_run++;
                    check_same(&split, &whole,
                               mot_arena_printf(&ctx.arena,
                                                "%s on mesh %u (test_sharding --seed %u)",
                                                models[m].model, which, s));
                }
                mot_scope_end(&ctx, scope);
            }
        mot_ctx_deinit(&ctx);
        assert_true(n_seeds == 1 ||
                    n_run >= N_MESHES * n_seeds * 3 / 5); /* those of one axis at least */
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_legal_plan_computes_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
