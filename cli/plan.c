/* motley plan and motley explain: what the planner chose, and why. */
#include "cli/answer.h"
#include "cli/outline.h"
#include "cli/verbs.h"
#include "job/job.h"
#include "job/plan_file.h"
#include "passes/lower/lower.h"
#include "passes/plan/evaluate.h"
#include "passes/plan/explain.h"

#include <stdio.h>

static const MotOption plan_options[] = {{"-o", "FILE", "write the plan's text there"},
                                         {NULL, NULL, NULL}};

static MotStatus make_plan(MotCtx *ctx, const MotArgs *args, MotJob *job)
{
    MOT_TRY(mot_job_import(ctx, args, job));
    MOT_TRY(mot_job_add_training(ctx, job, true, false));
    return mot_job_plan(ctx, job);
}

/* The report, or with `node` what its operators could choose. */
static MotStatus print_json(MotCtx *ctx, const MotPlan *plan, const char *node)
{
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    MOT_TRY(node ? mot_plan_put_explanation(plan, node, &w) : mot_plan_put_report(plan, &w));
    mot_json_close(&w, '}');
    mot_answer_print(&w);
    return MOT_OK;
}

/* `stats` may be NULL. */
static MotStatus print_text(MotCtx *ctx, const MotPlan *plan, const MotPlanStats *stats,
                            const char *node)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    MOT_TRY(node ? mot_plan_explain(plan, node, &text) : mot_plan_report(plan, stats, &text));
    fputs(mot_text_get(&text), stdout);
    return MOT_OK;
}

static MotStatus run_plan(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    const char *model, *path = mot_args_get(args, "-o", NULL);
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &model));
    if (mot_plan_file_is(model)) {
        mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is a plan, which is made already", model);
        mot_hint(ctx, "motley explain %s shows it", model);
        return ctx->status;
    }
    MOT_TRY(make_plan(ctx, args, &job));
    if (path)
        MOT_TRY(mot_file_check_output(ctx, path));
    MOT_TRY(mot_args_has(args, "--json") ? print_json(ctx, job.plan, NULL)
                                         : print_text(ctx, job.plan, &job.stats, NULL));
    return path ? mot_plan_file_write(ctx, &job, path) : MOT_OK;
}

/* What says how a plan is made. */
static const MotOption *const making_options[] = {mot_loss_options,
                                                  mot_optimizer_options,
                                                  mot_step_options,
                                                  mot_model_options,
                                                  mot_device_options,
                                                  mot_plan_options,
                                                  NULL};

/* A plan that was written is shown as it is. */
static MotStatus read_plan(MotCtx *ctx, const MotArgs *args, const char *path, MotPlan **out_plan)
{
    MotJob job;
    if (mot_plan_file_is(path)) {
        uint32_t n;
        const char *const *given = mot_args_texts(ctx, args, making_options, &n);
        if (n > 0)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "%s: %s is a plan, which is made already", given[0], path);
        return mot_plan_file_read(ctx, path, out_plan);
    }
    MOT_TRY(make_plan(ctx, args, &job));
    *out_plan = job.plan;
    return MOT_OK;
}

/* A plan that has no predicted time: what it does, read off its programs. */
static MotStatus print_outline(MotCtx *ctx, const MotArgs *args, const MotPlan *plan,
                               const char *why, const char *node)
{
    MotPipeline *pipeline;
    MotOutline *outline;
    MOT_TRY(mot_lower(ctx, plan, &pipeline));
    MOT_TRY(mot_pipeline_verify(pipeline));
    MOT_TRY(mot_outline_make(plan, pipeline, why, &outline));
    if (mot_args_has(args, "--json")) {
        MotJsonWriter w;
        mot_json_begin(&w, &ctx->arena);
        mot_json_open(&w, NULL, '{');
        if (node)
            MOT_TRY(mot_outline_explain(outline, node, NULL, &w));
        else
            mot_outline_put(outline, &w);
        mot_json_close(&w, '}');
        mot_answer_print(&w);
        return MOT_OK;
    }
    MotText text;
    mot_text_init(&text, &ctx->arena);
    if (node)
        MOT_TRY(mot_outline_explain(outline, node, &text, NULL));
    else
        mot_outline_print(outline, &text);
    fputs(mot_text_get(&text), stdout);
    return MOT_OK;
}

static MotStatus run_explain(MotCtx *ctx, const MotArgs *args)
{
    const char *path, *node = mot_args_operand(args, 1);
    MotPlan *plan;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &path));
    MOT_TRY(read_plan(ctx, args, path, &plan));
    const char *why = mot_plan_why_untimed(plan);
    if (why)
        return print_outline(ctx, args, plan, why, node);
    if (plan->time <= 0) /* written by hand */
        MOT_TRY(mot_plan_predict(plan));
    return mot_args_has(args, "--json") ? print_json(ctx, plan, node)
                                        : print_text(ctx, plan, NULL, node);
}

const MotVerb mot_verb_plan = {
    .name = "plan",
    .operands = "MODEL",
    .summary = "choose how to split every operator over the devices",
    .options = (const MotOption *const[]){plan_options, mot_loss_options, mot_optimizer_options,
                                          mot_step_options, mot_model_options, mot_device_options,
                                          mot_plan_options, NULL},
    .run = run_plan};

const MotVerb mot_verb_explain = {.name = "explain",
                                  .operands = "PLAN|MODEL [NODE]",
                                  .summary =
                                      "show a plan, or an operator's choices with their costs",
                                  .options = making_options,
                                  .run = run_explain};
