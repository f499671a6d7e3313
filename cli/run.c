/* motley run: the forward pass on given inputs. */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "job/job.h"
#include "runtime/npy.h"

#include <stdio.h>
#include <string.h>

static const MotOption run_options[] = {
    {"--output", "NAME=FILE.npy", "where an output goes (repeatable); without: a summary"},
    {NULL, NULL, NULL}};

/* Every input must have been given: there is nothing sensible to run on otherwise. */
static MotStatus check_inputs(MotCtx *ctx, const MotJob *job)
{
    for (uint32_t i = 0; i < job->pipeline->vars.n; i++) {
        const MotBuf *buf = job->pipeline->vars.data[i];
        bool is_given = buf->kind != MOT_BUF_INPUT;
        for (uint32_t k = 0; !is_given && k < job->n_inputs; k++)
            is_given = strcmp(job->inputs[k].name, buf->name) == 0;
        if (!is_given)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "input %s is missing: --input %s=FILE.npy (%s[%s])",
                            mot_quote(&ctx->arena, buf->name),
                            mot_escape(&ctx->arena, buf->name, SIZE_MAX),
                            mot_dtype_name(buf->global.dtype),
                            mot_shape_text(&ctx->arena, buf->global.dims, buf->global.rank));
    }
    return MOT_OK;
}

/*
 * The output that `NAME=FILE` is about: the longest name counts, as names may hold '='. NULL: none.
 */
static const MotResult *find_output(const MotPipeline *p, const char *text)
{
    const MotResult *found = NULL;
    for (uint32_t i = 0; i < p->results.n; i++) {
        const MotResult *o = &p->results.data[i];
        size_t n = strlen(o->name);
        if (strncmp(text, o->name, n) == 0 && text[n] == '=' && (!found || n > strlen(found->name)))
            found = o;
    }
    return found;
}

/* Where the output goes; NULL: nowhere. */
static const char *find_path(const MotJob *job, const MotResult *output)
{
    uint32_t n;
    const char *const *texts = mot_args_list(job->args, "--output", &n), *path = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (find_output(job->pipeline, texts[i]) == output)
            path = texts[i] + strlen(output->name) + 1;
    return path;
}

/* Writes what --output names; without any, and without --json, tells what there is. */
static MotStatus write_output(MotCtx *ctx, MotJob *job, const MotResult *output, MotJsonWriter *w)
{
    MotTensor value;
    const char *path = find_path(job, output);
    MOT_TRY(mot_session_output(job->session, output->name, MOT_SECTION_EVAL, &value));
    if (path)
        MOT_TRY(mot_npy_write(ctx, path, &value));
    mot_json_open(w, NULL, '{');
    mot_json_put_string(w, "name", output->name);
    mot_answer_put_type(w, &value.type);
    mot_json_put_string(w, "file", path);
    mot_json_close(w, '}');
    if (!mot_args_has(job->args, "--output") && !mot_args_has(job->args, "--json"))
        printf("%s : %s[%s]\n", mot_escape(&ctx->arena, output->name, SIZE_MAX),
               mot_dtype_name(value.type.dtype),
               mot_shape_text(&ctx->arena, value.type.dims, value.type.rank));
    return MOT_OK;
}

static MotStatus check_outputs(MotCtx *ctx, const MotJob *job)
{
    uint32_t n;
    const char *const *texts = mot_args_list(job->args, "--output", &n);
    for (uint32_t i = 0; i < n; i++) {
        const MotResult *output = find_output(job->pipeline, texts[i]);
        if (!output)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--output %s: the model has no such output",
                            mot_quote(&ctx->arena, texts[i]));
        MOT_TRY(mot_file_check_output(ctx, texts[i] + strlen(output->name) + 1));
    }
    return MOT_OK;
}

static MotStatus run_run(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_open(&w, "outputs", '[');
    MOT_TRY(mot_job_import(ctx, args, &job));
    MOT_TRY(mot_job_prepare_forward(ctx, &job));
    MOT_TRY(mot_job_place(ctx, &job));
    MOT_TRY(check_inputs(ctx, &job));
    MOT_TRY(check_outputs(ctx, &job));
    MOT_TRY(mot_job_start(ctx, &job));
    MotStatus status = mot_session_run(job.session, MOT_SECTION_EVAL);
    for (uint32_t i = 0; status == MOT_OK && i < job.pipeline->results.n; i++)
        status = write_output(ctx, &job, &job.pipeline->results.data[i], &w);
    mot_session_close(job.session);
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    if (status == MOT_OK && mot_args_has(args, "--json"))
        mot_answer_print(&w);
    return status;
}

const MotVerb mot_verb_run = {
    .name = "run",
    .operands = "MODEL|PLAN",
    .summary = "run the model forward",
    .options = (const MotOption *const[]){mot_input_options, run_options, mot_model_options,
                                          mot_device_options, mot_plan_options,
                                          mot_plan_file_options, mot_rank_options, NULL},
    .run = run_run};
