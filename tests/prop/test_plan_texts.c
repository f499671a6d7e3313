/*
 * Plans written by hand, as text: they parse, print back to what they say, and train as one device
 * does. tests/plans holds them: two axes with uneven shares, and two stages with micro-batches, of
 * an MLP whose data are fixtures.
 */
#include "support/file.h"
#include "tests/plan_run.h"

#include <glob.h>

static const Model ts13 = {
    "models/mlp_ts13_opt_dynamic.onnx", "cross_entropy:logits:labels",    "x",
    "models/fixtures/mlp/x.npy",        "models/fixtures/mlp/labels.npy", NULL};
static const MeshShape one = {1, {1}, {{1}}};

static MotPlan *read_plan(MotCtx *ctx, const char *path)
{
    const MotFileMap *map;
    MotPlan *plan;
    require(ctx, mot_file_map(ctx, path, &map));
    const char *text = mot_arena_strndup(&ctx->arena, (const char *)map->data, map->n);
    require(ctx, mot_plan_parse(ctx, path, text, &plan));
    return plan;
}

static const char *print_plan(const MotPlan *plan)
{
    MotText text;
    mot_text_init(&text, &plan->ctx->arena);
    mot_plan_print(plan, &text);
    return mot_text_get(&text);
}

static void check_plan(const char *path)
{
    MotCtx ctx;
    Trained whole, trained;
    unsigned none = 0;
    mot_ctx_init(&ctx);
    MotPlan *plan = read_plan(&ctx, path), *again;
    require(&ctx, mot_plan_parse(&ctx, path, print_plan(plan), &again));
    assert_string_equal(print_plan(plan), print_plan(again));
    Job job = make_job(&ctx, &ts13, "sgd:lr=0.01,clip=1.0", plan->n_micro);
    job.graph = plan->graph;
    assert_true(run_plan(&job, make_plan(&job, &one, &none), "ref", NULL, &whole));
    assert_true(run_plan(&job, plan, "ref", NULL, &trained));
    check_same(&trained, &whole, path);
    mot_ctx_deinit(&ctx);
}

static void plans_written_by_hand_train_as_one_device_does(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob("tests/plans/*.mot", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_plan(found.gl_pathv[i]);
    assert_true(found.gl_pathc >= 2);
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_written_by_hand_train_as_one_device_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
