/*
 * The training Programs of the committed models, on one device and on four of uneven shares, for
 * tests that want the kernels which lowering really makes.
 */
#ifndef MOTLEY_TESTS_CONFORM_MODEL_PROGRAMS_H
#define MOTLEY_TESTS_CONFORM_MODEL_PROGRAMS_H

#include "frontend/import.h"
#include "frontend/trained.h"
#include "passes/graph/loss.h"
#include "passes/graph/optimizer.h"
#include "passes/lower/lower.h"
#include "passes/pipeline.h"
#include "passes/plan/plan.h"

#include <glob.h>
#include <string.h>

enum { LEAST_MODELS = 20 };

/* The training graph of a model: with its loss, gradients and AdamW. */
static inline MotStatus make_graph(MotCtx *ctx, const char *path, MotGraph **out_graph)
{
    static const MotDimBinding batch = {"batch", 8};
    const MotOnnxOpts onnx = mot_onnx_opts_default();
    const MotImportOpts import = {.dims = &batch, .n_dims = 1};
    const MotTrainOpts train = {0};
    MotOnnxFile *file;
    MotTrained trained;
    MotLoss loss = {0};
    MotOptimizer optimizer = {0};
    MotGraph *g;
    MOT_TRY(mot_onnx_open(ctx, path, &onnx, &file));
    if (mot_import(ctx, file, &import, &g) == MOT_ERR_USAGE) { /* no dim is called batch */
        mot_error_clear(ctx);
        MOT_TRY(mot_import(ctx, file, &(MotImportOpts){0}, &g));
    }
    MOT_TRY(ctx->status);
    MOT_TRY(mot_trained_decide(ctx, g, &train, &trained));
    MOT_TRY(mot_loss_parse(
        ctx, g, strstr(path, "mse") ? "mse:y:labels" : "cross_entropy:logits:labels", &loss));
    MOT_TRY(mot_optimizer_parse(ctx, "adamw:lr=3e-4,clip=1", &optimizer));
    MOT_TRY(mot_trained_freeze(ctx, g, file));
    MOT_TRY(mot_passes_run(ctx, g, &(MotPassOpts){.loss = &loss, .optimizer = &optimizer}, NULL,
                           "optimizer"));
    *out_graph = g;
    return MOT_OK;
}

/* `path` is that of the model. */
typedef MotStatus ProgramVisit(MotCtx *ctx, void *self, const char *path,
                               const MotProgram *program);

static inline MotStatus visit_model(MotCtx *ctx, const char *path, ProgramVisit *visit, void *self)
{
    static const int64_t shares[] = {5, 3, 0, 2};
    static const MotPlanOpts opts[] = {{.n_devices = 1}, {.share = shares, .n_share = 4}};
    MotGraph *graph;
    MOT_TRY(make_graph(ctx, path, &graph));
    for (int i = 0; i < 2; i++) {
        MotPlan *plan;
        MotPipeline *pipeline;
        MOT_TRY(mot_plan_make(ctx, graph, mot_cluster_make(ctx, i ? 4 : 1, 1), &opts[i], &plan));
        MOT_TRY(mot_lower(ctx, plan, &pipeline));
        MOT_TRY(visit(ctx, self, path, pipeline->stages.data[0]));
    }
    return MOT_OK;
}

/* Fails, with the model's name, as soon as a visit does; and when models are missing. */
static inline MotStatus visit_models(MotCtx *ctx, ProgramVisit *visit, void *self)
{
    glob_t found;
    if (glob("models/*.onnx", 0, NULL, &found))
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "no models/*.onnx here");
    MotStatus status = MOT_OK;
    for (size_t i = 0; i < found.gl_pathc && status == MOT_OK; i++) {
        status = visit_model(ctx, found.gl_pathv[i], visit, self);
        if (status != MOT_OK)
            mot_note(ctx, "in %s", found.gl_pathv[i]);
    }
    if (status == MOT_OK && found.gl_pathc < LEAST_MODELS)
        status =
            mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "only %zu models were found", found.gl_pathc);
    globfree(&found);
    return status;
}

#endif
