/*
 * motley grad: the loss, and its gradient by every trained initializer, as .npy files in the file's
 * shape and layout.
 */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "ir/layout.h"
#include "job/job.h"
#include "runtime/npy.h"
#include "support/writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const MotOption grad_options[] = {
    {"--grads", "DIR", "where the gradients go, one .npy an initializer; required"},
    {NULL, NULL, NULL}};

/* Bytes other than [A-Za-z0-9._~-] become %XX; names over 200 bytes are cut and get a hash. */
static const char *file_name(MotCtx *ctx, const char *name)
{
    enum { LONGEST = 200 };
    MotText text;
    mot_text_init(&text, &ctx->arena);
    for (const char *p = name; *p; p++)
        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
            strchr("._~-", *p))
            mot_text_add(&text, p, 1);
        else
            mot_text_printf(&text, "%%%02X", (unsigned char)*p);
    if (text.n <= LONGEST)
        return mot_text_get(&text);
    return mot_arena_printf(&ctx->arena, "%.*s-%016llx", LONGEST, text.data,
                            (unsigned long long)mot_hash(name, strlen(name)));
}

static const MotOp *find_param(const MotGraph *g, const char *name)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_PARAM && strcmp(mot_attrs(op, param)->name, name) == 0)
            return op;
    }
    return NULL;
}

/*
 * The gradient in the file's layout; zeros with a warning where the loss does not depend on the
 * initializer.
 */
static MotStatus read_gradient(MotCtx *ctx, MotJob *job, const MotTrainedRow *row,
                               MotTensor *out_gradient)
{
    const char *output = mot_arena_printf(&ctx->arena, "gradient:%s", row->name);
    *out_gradient =
        (MotTensor){row->type, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&row->type))};
    for (uint32_t i = 0; i < job->pipeline->results.n; i++)
        if (strcmp(job->pipeline->results.data[i].name, output) == 0) {
            MotTensor value;
            MOT_TRY(mot_session_output(job->session, output, MOT_SECTION_STEP, &value));
            mot_param_to_file(&value.type, find_param(job->graph, row->name), value.data,
                              out_gradient->data);
            return MOT_OK;
        }
    mot_warn(ctx, MOT_NOWHERE, "the loss does not depend on %s: its gradient is zero",
             mot_quote(&ctx->arena, row->name));
    return MOT_OK;
}

static MotStatus write_gradients(MotCtx *ctx, MotJob *job, const char *dir, MotJsonWriter *w)
{
    MOT_TRY(mot_file_make_dir(ctx, dir));
    for (uint32_t i = 0; i < job->trained.n; i++) {
        const MotTrainedRow *row = &job->trained.rows[i];
        if (!row->is_trained)
            continue;
        const char *path =
            mot_arena_printf(&ctx->arena, "%s/%s.npy", dir, file_name(ctx, row->name));
        MotTensor gradient;
        MOT_TRY(read_gradient(ctx, job, row, &gradient));
        MOT_TRY(mot_npy_write(ctx, path, &gradient));
        mot_json_put_string(w, row->name, path);
    }
    return MOT_OK;
}

static MotStatus run_grad(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    double loss = 0;
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    const char *dir = mot_args_get(args, "--grads", NULL);
    if (!dir)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--grads DIR is needed");
    MOT_TRY(mot_job_import(ctx, args, &job));
    MOT_TRY(mot_job_add_training(ctx, &job, false, true));
    MOT_TRY(mot_job_place(ctx, &job));
    MOT_TRY(mot_job_start(ctx, &job));
    MotStatus status = mot_session_run(job.session, MOT_SECTION_STEP);
    if (status == MOT_OK)
        status = mot_job_scalar(&job, "loss", MOT_SECTION_STEP, &loss);
    mot_json_put_number(&w, "loss", loss);
    mot_json_open(&w, "gradients", '{');
    if (status == MOT_OK)
        status = write_gradients(ctx, &job, dir, &w);
    mot_json_close(&w, '}');
    mot_json_close(&w, '}');
    if (status == MOT_OK && !isfinite(loss))
        status = mot_fail(ctx, MOT_ERR_NUMERICS, MOT_NOWHERE, "the loss is %g", loss);
    mot_session_close(job.session);
    if (status == MOT_OK && mot_args_has(args, "--json"))
        mot_answer_print(&w);
    else if (status == MOT_OK)
        printf("loss %.9g\n", loss);
    return status;
}

const MotVerb mot_verb_grad = {
    .name = "grad",
    .operands = "MODEL|PLAN",
    .summary = "print the loss and write the gradient of every trained initializer",
    .options = (const MotOption *const[]){mot_input_options, mot_loss_options, grad_options,
                                          mot_model_options, mot_device_options, mot_plan_options,
                                          mot_plan_file_options, mot_rank_options, NULL},
    .run = run_grad};
