/*
 * Any legal plan computes the same: training graphs of real models under random factor choices, on meshes of one and two axes with uneven
 * and zero shares, run by the ranks on the reference device and compared with the same graph evaluated whole. This covers
 * factor rules, lowering, binding and every collective at once.
 *
 *     test_sharding [--seed N]      reproduces one failure
 */
#include "frontend/import.h"
#include "frontend/trained.h"
#include "ir/layout.h"
#include "passes/graph/loss.h"
#include "passes/graph/optimizer.h"
#include "passes/lower/lower.h"
#include "passes/pipeline.h"
#include "runtime/npy.h"
#include "runtime/session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    const char *model, *loss, *input, *data, *labels;
} Model;

static const Model models[] = {
    {"models/mlp_dynamo20_opt_static.onnx", "cross_entropy:logits:labels", "x",
     "models/fixtures/mlp/x.npy", "models/fixtures/mlp/labels.npy"},
    {"models/gpt_erf_sdpa_dynamo18_raw_dynamic.onnx", "cross_entropy:logits:labels", "input_ids",
     "models/fixtures/gpt_erf/input_ids.npy", "models/fixtures/gpt_erf/labels.npy"},
};

static const struct {
    uint32_t n_axes, n[2];
    int64_t share[2][4];
} meshes[] = {
    {1, {2}, {{1, 1}}},
    {1, {3}, {{5, 0, 2}}},
    {1, {4}, {{8, 4, 2, 1}}},
    {2, {2, 2}, {{3, 1}, {1, 2}}},
    {2, {2, 2}, {{1, 0}, {2, 1}}},
};
enum {
    N_MODELS = sizeof models / sizeof *models,
    N_MESHES = sizeof meshes / sizeof *meshes,
    N_STEPS = 2
};

typedef struct {
    MotCtx *ctx;
    const Model *model;
    MotOnnxFile *file;
    MotGraph *graph;
    MotInputTensor inputs[2];
} Job;

static void require(MotCtx *ctx, MotStatus status)
{
    if (status != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

static Job make_job(MotCtx *ctx, const Model *model)
{
    Job job = {.ctx = ctx, .model = model};
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotTrained trained;
    MotLoss loss;
    MotOptimizer optimizer;
    job.inputs[0].name = model->input;
    job.inputs[1].name = "labels";
    require(ctx, mot_npy_read(ctx, model->data, &job.inputs[0].tensor));
    require(ctx, mot_npy_read(ctx, model->labels, &job.inputs[1].tensor));
    require(ctx, mot_onnx_open(ctx, model->model, &opts, &job.file));
    require(ctx, mot_import(ctx, job.file, &(MotImportOpts){.inputs = job.inputs, .n_inputs = 1},
                            &job.graph));
    require(ctx, mot_trained_decide(ctx, job.graph, &(MotTrainOpts){0}, &trained));
    require(ctx, mot_trained_freeze(ctx, job.graph, job.file));
    require(ctx, mot_loss_parse(ctx, job.graph, model->loss, &loss));
    loss.input_type = job.inputs[1].tensor.type;
    require(ctx, mot_optimizer_parse(ctx, "adamw:lr=0.01,clip=1.0", &optimizer));
    MotPassOpts passes = {.loss = &loss, .optimizer = &optimizer};
    require(ctx, mot_passes_run(ctx, job.graph, &passes, NULL, "optimizer"));
    return job;
}

static MotMesh make_mesh(MotCtx *ctx, uint32_t which)
{
    static const char *const names[] = {"x", "y"};
    MotMesh mesh = {.n_axes = meshes[which].n_axes, .n_devices = 1};
    for (uint32_t a = 0; a < mesh.n_axes; a++) {
        mesh.axis[a] = (MotMeshAxis){names[a], meshes[which].n[a], NULL};
        mesh.axis[a].share =
            mot_arena_copy(&ctx->arena, meshes[which].share[a], sizeof meshes[which].share[a]);
        mesh.n_devices *= meshes[which].n[a];
    }
    mesh.devices = mot_arena_array(&ctx->arena, uint32_t, mesh.n_devices);
    for (uint32_t i = 0; i < mesh.n_devices; i++)
        mesh.devices[i] = i;
    return mesh;
}

/* A random factor an axis; two axes never split one factor here, nested splits of one dim come by different factors. */
static MotPlan *make_plan(Job *job, const MotMesh *mesh, unsigned *seed)
{
    MotPlan *plan =
        mot_plan_new(job->ctx, job->graph, mot_cluster_make(job->ctx, mesh->n_devices, 1));
    mot_vec_push(&job->ctx->arena, &plan->stages, (MotStage){*mesh});
    for (uint32_t i = 0; i < job->graph->body.n; i++) {
        MotOpId id = job->graph->body.data[i];
        const MotOp *op = mot_graph_op(job->graph, id);
        MotFactors factors;
        require(job->ctx, mot_factors(job->graph, op, &factors));
        for (uint32_t a = 0; a < mesh->n_axes && mot_op_info(op->kind)->class != MOT_SINK; a++) {
            int pick = rand_r(seed) % (int)(factors.n + 1) - 1;
            bool is_free = pick >= 0 && factors.factor[pick].kind != MOT_FACTOR_WHOLE;
            for (uint32_t b = 0; b < a; b++)
                is_free = is_free && plan->ops[id].factor[b] != pick;
            plan->ops[id].factor[a] = (int8_t)(is_free ? pick : -1);
        }
        mot_plan_apply_factors(plan, id, &factors);
    }
    return plan;
}

static void write_params(Job *job, const MotProgram *program, MotSession *session)
{
    const Onnx__GraphProto *graph = job->file->model->graph;
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        const MotBuf *buf = &program->bufs.data[i];
        for (size_t k = 0; buf->kind == MOT_BUF_PARAM && k < graph->n_initializer; k++) {
            MotTensor in_file;
            if (strcmp(graph->initializer[k]->name, buf->name) != 0)
                continue;
            require(job->ctx, mot_onnx_tensor(job->ctx, job->file, graph->initializer[k],
                                              MOT_NOWHERE, &in_file));
            require(job->ctx, mot_session_write_param(session, buf->name, in_file.data));
        }
    }
}

/*
 * The losses of some steps, and the parameters after them as one sum of squares. False for a plan whose two axes split one dim into
 * pieces that do not nest: lowering refuses it.
 */
static bool run_plan(Job *job, MotPlan *plan, double *out_losses, double *out_norm)
{
    MotProgram *program;
    MotSession *session;
    MotSessionOpts opts = {.backend = "ref", .hang_seconds = 60};
    require(job->ctx, mot_plan_verify(plan));
    MotStatus status = mot_lower(job->ctx, plan, 0, &program);
    if (status == MOT_ERR_UNSUPPORTED && strstr(mot_text_get(&job->ctx->error), "do not nest")) {
        mot_error_clear(job->ctx);
        return false;
    }
    require(job->ctx, status);
    require(job->ctx, mot_program_verify(program));
    require(job->ctx, mot_session_open(job->ctx, program, plan->cluster, &opts, &session));
    write_params(job, program, session);
    for (int i = 0; i < 2; i++)
        require(job->ctx, mot_session_write(session, job->inputs[i].name, &job->inputs[i].tensor));
    for (int step = 0; step < N_STEPS; step++) {
        float lr = 0.01f, number = (float)(step + 1);
        MotTensor loss, rate = {mot_type_scalar(MOT_F32), &lr},
                        count = {mot_type_scalar(MOT_F32), &number};
        require(job->ctx, mot_session_write(session, MOT_INPUT_LR, &rate));
        require(job->ctx, mot_session_write(session, MOT_INPUT_STEP, &count));
        require(job->ctx, mot_session_run(session, MOT_SECTION_STEP));
        require(job->ctx, mot_session_output(session, "loss", MOT_SECTION_STEP, &loss));
        out_losses[step] = mot_tensor_get(&loss, 0);
    }
    *out_norm = 0;
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        MotTensor value;
        if (program->bufs.data[i].kind != MOT_BUF_PARAM)
            continue;
        require(job->ctx, mot_session_read(session, program->bufs.data[i].name, &value));
        for (int64_t e = 0; e < mot_type_elements(&value.type); e++)
            *out_norm += pow(mot_tensor_get(&value, e), 2);
    }
    mot_session_close(session);
    return true;
}

static unsigned first_seed = 1, n_seeds = 4;

static void any_legal_plan_computes_the_same(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        double whole[N_STEPS], whole_norm;
        MotCtx ctx;
        mot_ctx_init(&ctx);
        Job job = make_job(&ctx, &models[m]);
        MotMesh one = make_mesh(&ctx, 0);
        one.n_devices = one.axis[0].n = 1;
        unsigned none = 0;
        MotPlan *plain = make_plan(&job, &one, &none);
        assert_true(run_plan(&job, plain, whole, &whole_norm));
        unsigned n_run = 0;
        for (uint32_t which = 0; which < N_MESHES; which++)
            for (unsigned s = first_seed; s < first_seed + n_seeds; s++) {
                MotScope scope = mot_scope_begin(&ctx);
                double losses[N_STEPS], norm;
                unsigned seed = s;
                MotMesh mesh = make_mesh(&ctx, which);
                bool has_run = run_plan(&job, make_plan(&job, &mesh, &seed), losses, &norm);
                n_run += has_run;
                for (int i = 0; has_run && i < N_STEPS; i++)
                    if (!(fabs(losses[i] - whole[i]) <= 2e-5 * fabs(whole[0])))
                        fail_msg("seed %u: %s on mesh %u: loss %d is %.9g, whole %.9g "
                                 "(test_sharding --seed %u)",
                                 s, models[m].model, which, i, losses[i], whole[i], s);
                if (has_run && !(fabs(norm - whole_norm) <= 1e-4 * whole_norm))
                    fail_msg("seed %u: %s on mesh %u: parameters differ (test_sharding --seed %u)",
                             s, models[m].model, which, s);
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
