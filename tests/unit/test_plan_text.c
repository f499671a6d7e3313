/* The Plan's text: what parses back, and what is refused. */
#include "ir/plan_text.h"
#include "passes/plan/plan.h"
#include "support/json.h"
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

static void assert_ok(MotCtx *ctx, MotStatus status)
{
    if (status != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

/*
 * All there is in a plan: another schedule of speeds, a modelled clock, an op that is computed
 * again.
 */
static void text_parses_back(void **state)
{
    MotCtx *ctx = *state;
    static const double unequal[] = {1, 2, 4, 8};
    static const GptSizes small_gpt = {.b = 24, .t = 64, .h = 8, .d = 32, .v = 256, .layers = 1};
    MotCluster *cluster = make_cluster(ctx, 4, unequal, 1e-5, 1e9);
    mot_device_slow_down(ctx, &cluster->devices.data[2], 50, 2.5);
    mot_device_slow_down(ctx, &cluster->devices.data[2], 150, 1);
    cluster->is_modelled = true;
    MotPlan *plan, *parsed;
    assert_ok(ctx,
              mot_plan_make(ctx, make_gpt(ctx, small_gpt, "adamw:lr=0.1"), cluster, NULL, &plan));
    plan->ops[plan->graph->body.data[3]].recompute = true;
    MotText first, second, json;
    mot_text_init(&first, &ctx->arena);
    mot_text_init(&second, &ctx->arena);
    mot_text_init(&json, &ctx->arena);
    mot_plan_print(plan, &first);
    assert_ok(ctx, mot_plan_parse(ctx, "p.mot", mot_text_get(&first), &parsed));
    mot_plan_print(parsed, &second);
    assert_string_equal(mot_text_get(&first), mot_text_get(&second));
    for (MotValue v = 1; v < plan->graph->values.n; v++)
        assert_true(mot_sharding_equal(plan->values[v], parsed->values[v]));
    assert_true(mot_device_slow_at(&parsed->cluster->devices.data[2], 50) == 2.5);
    assert_true(parsed->cluster->is_modelled);
    double time = parsed->time;
    assert_ok(ctx, mot_plan_predict(parsed));
    assert_true(fabs(parsed->time - time) <= 1e-9 * time);
    MotRecords records = mot_plan_to_records(plan);
    mot_records_print_json(&records, &json);
    const MotJson *root;
    assert_ok(ctx, mot_json_parse(ctx, MOT_ERR_MODEL, "p.json", json.data, json.n, &root));
    assert_int_equal(mot_json_length(root), 2);
}

static const char plan_text[] = "motley plan 1\n"
                                "plan @g {micro=1, time=1.0, bound=0.5, schedule=\"gpipe\"} {\n"
                                "  device {name=\"a\", backend=\"cpu\", threads=1}\n"
                                "  device {name=\"b\", backend=\"cpu\", threads=1}\n"
                                "  link {latency=1e-05, bandwidth=1e9}\n"
                                "  stage {devices=[0, 1]} {\n"
                                "    axis {name=\"d\", share=[2, 1]}\n"
                                "  }\n"
                                "  graph @g {\n"
                                "    %x = input {name=\"x\"} : f32[6x4]\n"
                                "    %y = softmax %x {axis=1} : f32[6x4]\n"
                                "    output %y {name=\"y\"}\n"
                                "  }\n"
                                "  op 2 {factor=[0]}\n"
                                "  device_prediction 1 {busy=1.0}\n"
                                "}\n";

/* `plan_text` with the first occurrence of `from` replaced. */
static const char *edit(MotCtx *ctx, const char *from, const char *to)
{
    const char *at = strstr(plan_text, from);
    assert_non_null(at);
    return mot_arena_printf(&ctx->arena, "%.*s%s%s", (int)(at - plan_text), plan_text, to,
                            at + strlen(from));
}

static void broken_texts_are_refused(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *from, *to, *cause;
    } cases[] = {
        {"plan 1", "plan 2", "version"},
        {"schedule=\"gpipe\"", "schedule=\"fast\"", "gpipe"},
        {"schedule=\"gpipe\"", "schedule=gpipe", "gpipe"},
        {"micro=1", "micro=0", "micro"},
        {"micro=1", "macro=1", "macro"},
        {"time=1.0", "time=-1.0", "time"},
        {"bound=0.5", "bound=1.5", "bound"},
        {"threads=1", "threads=0", "threads"},
        {"name=\"a\", ", "", "name"},
        {"bandwidth=1e9", "bandwidth=0.0", "bandwidth"},
        {"{latency", "{a=0, b=7, latency", "link"},
        {"devices=[0, 1]", "devices=[0, 2]", "devices"},
        {"devices=[0, 1]", "devices=[0, 0]", "twice"},
        {"devices=[0, 1]", "devices=[0]", "multiply"},
        {"share=[2, 1]", "share=[0, 0]", "zero"},
        {"share=[2, 1]", "share=[2, -1]", "share"},
        {"share=[2, 1]", "shares=[2, 1]", "shares"},
        {"axis {", "axes {", "axes"},
        {"op 2 {factor=[0]}", "op 9 {factor=[0]}", "op"},
        {"op 2 {factor=[0]}", "op 2 {factor=[7]}", "factor"},
        {"op 2 {factor=[0]}", "op 2 {factor=[1]}", "can't be split"}, /* the axis of a softmax */
        {"op 2 {factor=[0]}", "op 2 {factor=[-1, 0]}", "axis out of range"},
        {"op 2 {factor=[0]}", "op 2 {factor=[0], stage=1}", "stage"},
        {"op 2 {factor=[0]}", "op 2 {factors=[0]}", "factors"},
        {"op 2 {factor=[0]}", "device {name=\"c\", backend=\"cpu\", threads=1}", "after the graph"},
        {"  device {name=\"a\"", "  op 1 {factor=[0]}\n  device {name=\"a\"", "before the graph"},
        {"prediction 1", "prediction 2", "prediction"},
        {"busy=1.0", "busy=inf", "busy"},
    };
    MotPlan *plan = NULL;
    assert_ok(ctx, mot_plan_parse(ctx, "p.mot", plan_text, &plan));
    assert_int_equal(plan->values[2].axis[0], 0);
    assert_int_equal(plan->values[2].units[0], 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotStatus status =
            mot_plan_parse(ctx, "p.mot", edit(ctx, cases[i].from, cases[i].to), &plan);
        if (status == MOT_OK || !strstr(mot_text_get(&ctx->error), cases[i].cause))
            fail_msg("%s: status %d, %s", cases[i].to, status, mot_text_get(&ctx->error));
        mot_error_clear(ctx);
    }
}

/*
 * A reshape of 6x4 to 24 splits in 6 units; what follows may compute whole, or deal the dim out
 * again in 24 units.
 */
static void units_of_a_split_dim_may_change(void **state)
{
    MotCtx *ctx = *state;
    for (int is_split = 0; is_split < 2; is_split++) {
        const char *from = "    %y = softmax %x {axis=1} : f32[6x4]\n";
        const char *graph =
            "    %r = reshape %x {dims=[24]} : f32[24]\n    %y = neg %r : f32[24]\n";
        const char *text = edit(ctx, from, graph);
        const char *at = strstr(text, "  device_prediction");
        text = mot_arena_printf(&ctx->arena, "%.*s%s%s", (int)(at - text), text,
                                is_split ? "  op 3 {factor=[0]}\n" : "", at);
        MotPlan *plan = NULL;
        MotStatus status = mot_plan_parse(ctx, "p.mot", text, &plan);
        assert_int_equal(status, MOT_OK);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(text_parses_back),
        TEST(broken_texts_are_refused),
        TEST(units_of_a_split_dim_may_change),
    };
    return cmocka_run_group_tests_name("plan text", tests, NULL, NULL);
}
