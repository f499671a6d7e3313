/*
 * runtime/fit: what just fits is accepted, a byte less is refused, and the refusal names what takes
 * the memory.
 */
#include "passes/lower/lower.h"
#include "runtime/fit.h"
#include "support/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static MotPipeline *lower_plan(MotCtx *ctx, const char *path)
{
    const MotFileMap *map;
    MotPlan *plan;
    MotPipeline *pipeline = NULL;
    if (mot_file_map(ctx, path, &map) != MOT_OK ||
        mot_plan_parse(ctx, path, mot_arena_strndup(&ctx->arena, (const char *)map->data, map->n),
                       &plan) != MOT_OK ||
        mot_lower(ctx, plan, &pipeline) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return pipeline;
}

static void ranks_need_the_sum_of_their_arenas(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    MotPipeline *pipeline = lower_plan(&ctx, "tests/plans/mlp_two_stages.mot");
    uint32_t n = mot_pipeline_ranks(pipeline);
    MotBinding *bindings = mot_arena_array(&ctx.arena, MotBinding, n);
    assert_int_equal(mot_pipeline_bind(&ctx, pipeline, bindings), MOT_OK);
    double bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (double)bindings[i].arena_bytes;
    assert_int_equal(mot_fit_check(&ctx, pipeline, bytes), MOT_OK);
    assert_int_equal(mot_fit_check(&ctx, pipeline, bytes - 1), MOT_ERR_INFEASIBLE);
    /*
     * The second stage has most: its largest weight has 24 x 32 floats, and so has that one's
     * gradient.
     */
    static const char *const said[] = {
        "this machine has", "\n  3.0 KiB for f32[24x32]: param \"layers.1.weight\"",
        "\n  3.0 KiB for f32[24x32]: node \"/layers.1/Gemm\"", "hint: take smaller batches"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(mot_text_get(&ctx.error), said[i]))
            fail_msg("%s is not in: %s", said[i], mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
}

static void the_machine_has_memory(void **state)
{
    (void)state;
    assert_true(mot_fit_machine_bytes() > 0x1p26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_need_the_sum_of_their_arenas),
        cmocka_unit_test(the_machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
