/* motley plan and motley explain: what the planner chose, and why. */
#include "cli/job.h"
#include "cli/verbs.h"
#include "passes/plan/explain.h"
#include "support/file.h"
#include "support/writer.h"

#include <stdio.h>
#include <string.h>

static const MotOption plan_options[] = {{"-o", "FILE", "write the plan's text there"},
                                         {NULL, NULL, NULL}};

static MotStatus make_plan(MotCtx *ctx, const MotArgs *args, MotJob *job)
{
    MOT_TRY(mot_job_import(ctx, args, job));
    MOT_TRY(mot_job_add_training(ctx, job, true, false));
    return mot_job_plan(ctx, job);
}

static MotStatus run_plan(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    MotText report, text;
    const char *path = mot_args_get(args, "-o", NULL);
    mot_text_init(&report, &ctx->arena);
    mot_text_init(&text, &ctx->arena);
    MOT_TRY(make_plan(ctx, args, &job));
    MOT_TRY(mot_plan_report(job.plan, &job.stats, &report));
    fputs(mot_text_get(&report), stdout);
    if (!path)
        return MOT_OK;
    mot_plan_print(job.plan, &text);
    return mot_file_write(ctx, path, mot_text_get(&text), text.n);
}

static bool is_model(const char *path)
{
    size_t n = strlen(path);
    return n >= 5 && strcmp(path + n - 5, ".onnx") == 0;
}

static MotStatus read_plan(MotCtx *ctx, const MotArgs *args, const char *path, MotPlan **out_plan)
{
    MotJob job;
    const MotFileMap *map;
    if (is_model(path)) {
        MOT_TRY(make_plan(ctx, args, &job));
        *out_plan = job.plan;
        return MOT_OK;
    }
    MOT_TRY(mot_file_map(ctx, path, &map));
    MOT_TRY(mot_plan_parse(
        ctx, path, mot_arena_strndup(&ctx->arena, (const char *)map->data, map->n), out_plan));
    return mot_plan_verify(*out_plan);
}

static MotStatus run_explain(MotCtx *ctx, const MotArgs *args)
{
    const char *path;
    MotPlan *plan;
    MotText text;
    mot_text_init(&text, &ctx->arena);
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &path));
    MOT_TRY(read_plan(ctx, args, path, &plan));
    if (mot_args_operand(args, 1))
        MOT_TRY(mot_plan_explain(plan, mot_args_operand(args, 1), &text));
    else
        MOT_TRY(mot_plan_report(plan, NULL, &text));
    fputs(mot_text_get(&text), stdout);
    return MOT_OK;
}

const MotVerb mot_verb_plan = {
    .name = "plan",
    .operands = "MODEL",
    .summary = "choose how to split every operator over the devices",
    .options =
        (const MotOption *const[]){plan_options, mot_training_options, mot_step_options,
                                   mot_model_options, mot_device_options, mot_plan_options, NULL},
    .run = run_plan};

const MotVerb mot_verb_explain = {
    .name = "explain",
    .operands = "PLAN|MODEL [NODE]",
    .summary = "show a plan, or an operator's choices with their costs",
    .options = (const MotOption *const[]){mot_training_options, mot_step_options, mot_model_options,
                                          mot_device_options, mot_plan_options, NULL},
    .run = run_explain};
