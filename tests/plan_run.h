/*
 * Models trained for some steps under a plan, on the ranks of a session, for tests that compare
 * plans: losses and parameters of one must be those of the other.
 */
#ifndef MOTLEY_TESTS_PLAN_RUN_H
#define MOTLEY_TESTS_PLAN_RUN_H

#include "codegen/codegen.h"
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

/* An export with a batch of its training data. */
typedef struct Model {
    const char *model, *loss, *input, *data, *labels;
    void (*edit)(MotGraph *); /* what is changed in the forward graph; NULL: nothing */
} Model;

static const Model mlp = {
    "models/mlp_dynamo20_opt_static.onnx", "cross_entropy:logits:labels",    "x",
    "models/fixtures/mlp/x.npy",           "models/fixtures/mlp/labels.npy", NULL};
static const Model gpt = {"models/gpt_erf_sdpa_dynamo18_raw_dynamic.onnx",
                          "cross_entropy:logits:labels",
                          "input_ids",
                          "models/fixtures/gpt_erf/input_ids.npy",
                          "models/fixtures/gpt_erf/labels.npy",
                          NULL};

enum { N_STEPS = 3 };

/* A training graph for 1 / n_micro of the batch, and the whole batch. */
typedef struct Job {
    MotCtx *ctx;
    const Model *model;
    uint32_t n_micro;
    MotOnnxFile *file;
    MotGraph *graph;
    MotInputTensor inputs[2];
} Job;

typedef struct Trained {
    double losses[N_STEPS + 1]; /* the last: evaluation of the first micro-batch after the steps */
    double *before, *after;     /* all parameters and states, in the order of their names */
    size_t n_params;
    uint32_t n_micro;
} Trained;

static inline void require(MotCtx *ctx, MotStatus status)
{
    if (status != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

/* Rows that belong to micro-batch m. */
static inline MotTensor rows_of(const Job *job, int input, uint32_t m)
{
    MotTensor part = job->inputs[input].tensor;
    part.type.dims[0] /= job->n_micro;
    part.data = (char *)part.data + (size_t)m * (size_t)mot_type_bytes(&part.type);
    return part;
}

/* Some labels do not count, in one micro-batch more than in another. */
static inline void ignore_some(MotCtx *ctx, MotTensor *labels)
{
    int64_t n = mot_type_elements(&labels->type);
    labels->data = mot_arena_copy(&ctx->arena, labels->data, (size_t)mot_type_bytes(&labels->type));
    for (int64_t i = 0; mot_dtype_class(labels->type.dtype) == MOT_CLASS_INT && i < n / 2; i++)
        if (i % 3 != 1)
            mot_tensor_set_int(labels, i, -100);
}

static inline Job make_job(MotCtx *ctx, const Model *model, const char *optimizer_text,
                           uint32_t n_micro)
{
    Job job = {.ctx = ctx, .model = model, .n_micro = n_micro};
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotTrained trained;
    MotLoss loss;
    MotOptimizer optimizer;
    job.inputs[0].name = model->input;
    job.inputs[1].name = "labels";
    require(ctx, mot_npy_read(ctx, model->data, &job.inputs[0].tensor));
    require(ctx, mot_npy_read(ctx, model->labels, &job.inputs[1].tensor));
    ignore_some(ctx, &job.inputs[1].tensor);
    MotInputTensor micro = {.name = model->input, .tensor = rows_of(&job, 0, 0)};
    require(ctx, mot_onnx_open(ctx, model->model, &opts, &job.file));
    require(ctx, mot_import(ctx, job.file, &(MotImportOpts){.inputs = &micro, .n_inputs = 1},
                            &job.graph));
    require(ctx, mot_trained_decide(ctx, job.graph, &(MotTrainOpts){0}, &trained));
    require(ctx, mot_trained_freeze(ctx, job.graph, job.file));
    if (model->edit)
        model->edit(job.graph);
    require(ctx, mot_loss_parse(ctx, job.graph, model->loss, &loss));
    loss.input_type = rows_of(&job, 1, 0).type;
    require(ctx, mot_optimizer_parse(ctx, optimizer_text, &optimizer));
    MotPassOpts passes = {.loss = &loss, .optimizer = &optimizer, .accumulates = n_micro > 1};
    require(ctx, mot_passes_run(ctx, job.graph, &passes, NULL, "optimizer"));
    return job;
}

/* Any mesh of at most two axes: its lengths and shares. */
typedef struct MeshShape {
    uint32_t n_axes, n[2];
    int64_t share[2][4];
} MeshShape;

/* Over devices `first` and on. */
static inline MotMesh make_mesh(MotCtx *ctx, const MeshShape *shape, uint32_t first)
{
    static const char *const names[] = {"x", "y"};
    MotMesh mesh = {.n_axes = shape->n_axes, .n_devices = 1};
    for (uint32_t a = 0; a < mesh.n_axes; a++) {
        mesh.axis[a] = (MotMeshAxis){names[a], shape->n[a], NULL};
        mesh.axis[a].share = mot_arena_copy(&ctx->arena, shape->share[a], sizeof shape->share[a]);
        mesh.n_devices *= shape->n[a];
    }
    mesh.devices = mot_arena_array(&ctx->arena, uint32_t, mesh.n_devices);
    for (uint32_t i = 0; i < mesh.n_devices; i++)
        mesh.devices[i] = first + i;
    return mesh;
}

/* Whether the shares of the axis give no place more than one of the units. */
static inline bool deals_out_singly(const Job *job, const MotMeshAxis *axis, int64_t units)
{
    int64_t *part = mot_arena_array(&job->ctx->arena, int64_t, axis->n);
    mot_share_split(axis->share, axis->n, units, part);
    for (uint32_t i = 0; i < axis->n; i++)
        if (part[i] > 1)
            return false;
    return true;
}

/*
 * Whether the plan may split the op's factor `f` by axis a, beside what it splits by those before.
 */
static inline bool may_split(const Job *job, const MotPlan *plan, MotOpId id,
                             const MotFactors *factors, uint32_t a, int f)
{
    const MotMesh *mesh = &plan->stages.data[plan->ops[id].stage].mesh;
    bool is_inside = factors->factor[f].within < 0;
    for (uint32_t b = 0; b < a; b++) {
        if (plan->ops[id].factor[b] == f)
            return false;
        is_inside |=
            plan->ops[id].factor[b] == factors->factor[f].within &&
            deals_out_singly(job, &mesh->axis[b], factors->factor[factors->factor[f].within].size);
    }
    return is_inside && factors->factor[f].kind != MOT_FACTOR_WHOLE;
}

/*
 * A random factor an axis (seed 0: none); two axes never split one factor here, nested splits of
 * one dim come by different factors.
 */
static inline void choose_factors(const Job *job, MotPlan *plan, unsigned *seed)
{
    for (uint32_t i = 0; i < job->graph->body.n; i++) {
        MotOpId id = job->graph->body.data[i];
        const MotOp *op = mot_graph_op(job->graph, id);
        const MotMesh *mesh = &plan->stages.data[plan->ops[id].stage].mesh;
        MotFactors factors;
        require(job->ctx, mot_factors(job->graph, op, &factors));
        for (uint32_t a = 0; *seed && a < mesh->n_axes && mot_op_info(op->kind)->class != MOT_SINK;
             a++) {
            int pick = rand_r(seed) % (int)(factors.n + 1) - 1;
            bool is_free = pick >= 0 && may_split(job, plan, id, &factors, a, pick);
            plan->ops[id].factor[a] = (int8_t)(is_free ? pick : -1);
        }
        mot_plan_apply_factors(plan, id, &factors);
    }
}

/*
 * The stage of an op that belongs to no forward op: that of the parameter that it is about, or of
 * what it reads.
 */
static inline uint32_t find_stage(const MotPlan *plan, const MotOp *op)
{
    const MotGraph *g = plan->graph;
    for (uint32_t i = 0; op->kind == MOT_OP_PARAM && i < g->body.n; i++) {
        const MotOp *other = mot_graph_op(g, g->body.data[i]);
        const char *owner = mot_attrs(op, param)->state_of;
        if (owner && other->kind == MOT_OP_PARAM &&
            strcmp(mot_attrs(other, param)->name, owner) == 0)
            return plan->ops[g->body.data[i]].stage;
        for (uint32_t k = 0; !owner && k < other->n_in; k++)
            if (other->in[k] == op->out[0])
                return plan->ops[g->body.data[i]].stage;
    }
    return op->n_in ? plan->ops[g->values.data[op->in[0]].def].stage : 0;
}

static inline bool is_forward_op(const MotOp *op)
{
    return op->role == MOT_ROLE_FORWARD && mot_op_info(op->kind)->class != MOT_SOURCE;
}

/*
 * Deals the forward ops out to the stages in the order of the body, cut at random places, and the
 * others with them: derived ops to the stage of their forward op, parameters to that of their first
 * user, updates to that of their parameter.
 */
static inline void choose_stages(MotPlan *plan, unsigned *seed)
{
    const MotGraph *g = plan->graph;
    uint32_t n = 0, at = 0, cut[8] = {0};
    for (uint32_t i = 0; i < g->body.n; i++)
        n += is_forward_op(mot_graph_op(g, g->body.data[i]));
    for (uint32_t s = 1; s < plan->stages.n; s++) {
        int width = (int)(n / plan->stages.n);
        MOT_ASSERT(width > 0);
        cut[s] = n * s / plan->stages.n + (uint32_t)(rand_r(seed) % width) - (uint32_t)width / 2;
    }
    for (int round = 0; round < 3; round++, at = 0) /* forward ops, parameters, the others */
        for (uint32_t i = 0; i < g->body.n; i++) {
            MotOpId id = g->body.data[i];
            const MotOp *op = mot_graph_op(g, id);
            bool is_param = op->kind == MOT_OP_PARAM, is_forward = is_forward_op(op);
            at += is_forward;
            if (round != (is_forward ? 0 : is_param && !mot_attrs(op, param)->state_of ? 1 : 2))
                continue;
            uint32_t stage = plan->stages.n - 1;
            while (stage && at <= cut[stage])
                stage--;
            plan->ops[id].stage = is_forward ? stage
                                  : op->fwd  ? plan->ops[op->fwd].stage
                                             : find_stage(plan, op);
        }
}

/* A plan of one stage for each shape, over devices of its own. */
static inline MotPlan *make_staged_plan(const Job *job, const MeshShape *shapes, uint32_t n_stages,
                                        MotSchedule schedule, unsigned *seed)
{
    MotMesh mesh[8];
    uint32_t n_devices = 0;
    for (uint32_t s = 0; s < n_stages; s++) {
        mesh[s] = make_mesh(job->ctx, &shapes[s], n_devices);
        n_devices += mesh[s].n_devices;
    }
    MotPlan *plan = mot_plan_new(job->ctx, job->graph, mot_cluster_make(job->ctx, n_devices, 1));
    plan->n_micro = job->n_micro;
    plan->schedule = schedule;
    for (uint32_t s = 0; s < n_stages; s++)
        mot_vec_push(&job->ctx->arena, &plan->stages, (MotStage){mesh[s]});
    choose_stages(plan, seed);
    choose_factors(job, plan, seed);
    return plan;
}

static inline MotPlan *make_plan(const Job *job, const MeshShape *shape, unsigned *seed)
{
    MotMesh mesh = make_mesh(job->ctx, shape, 0);
    MotPlan *plan =
        mot_plan_new(job->ctx, job->graph, mot_cluster_make(job->ctx, mesh.n_devices, 1));
    plan->n_micro = job->n_micro;
    plan->schedule = MOT_SCHEDULE_1F1B;
    mot_vec_push(&job->ctx->arena, &plan->stages, (MotStage){mesh});
    choose_factors(job, plan, seed);
    return plan;
}

static inline void write_params(const Job *job, const MotPipeline *pipeline, MotSession *session)
{
    const Onnx__GraphProto *graph = job->file->model->graph;
    for (uint32_t i = 0; i < pipeline->vars.n; i++) {
        const MotBuf *buf = pipeline->vars.data[i];
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

static inline double train_step(const Job *job, MotSession *session, int step)
{
    float lr = 0.01F, number = (float)(step + 1);
    MotTensor loss, rate = {mot_type_scalar(MOT_F32), &lr},
                    count = {mot_type_scalar(MOT_F32), &number};
    MotStatus status = mot_session_write(session, MOT_INPUT_LR, &rate);
    require(job->ctx, status);
    status = mot_session_write(session, MOT_INPUT_STEP, &count);
    if (status == MOT_ERR_USAGE) /* only adam counts steps */
        mot_error_clear(job->ctx);
    else
        require(job->ctx, status);
    require(job->ctx, mot_session_run(session, MOT_SECTION_STEP));
    require(job->ctx, mot_session_output(session, "loss", MOT_SECTION_STEP, &loss));
    return mot_tensor_get(&loss, 0);
}

static inline int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static inline double *read_params(const Job *job, const MotPipeline *pipeline, MotSession *session,
                                  size_t *out_n)
{
    MotVec(const char *) names = {0};
    MotVec(double) values = {0};
    for (uint32_t i = 0; i < pipeline->vars.n; i++)
        if (pipeline->vars.data[i]->kind == MOT_BUF_PARAM)
            mot_vec_push(&job->ctx->arena, &names, pipeline->vars.data[i]->name);
    if (names.n)
        qsort(names.data, names.n, sizeof *names.data, compare_names);
    for (uint32_t i = 0; i < names.n; i++) {
        MotTensor value;
        require(job->ctx, mot_session_read(session, names.data[i], &value));
        for (int64_t e = 0; e < mot_type_elements(&value.type); e++)
            mot_vec_push(&job->ctx->arena, &values, mot_tensor_get(&value, e));
    }
    *out_n = values.n;
    return values.data;
}

/*
 * Trains N_STEPS steps on `backend`; with `resize`, these are the shares of the last axis from the
 * second step on. False for a plan whose two axes split one dim into pieces that do not nest:
 * lowering refuses it.
 */
static inline bool run_plan(const Job *job, MotPlan *plan, const char *backend,
                            const int64_t *resize, Trained *out)
{
    MotPipeline *pipeline;
    MotSession *session;
    MotSessionOpts opts = {.backend = backend, .hang_seconds = 60};
    *out = (Trained){.n_micro = job->n_micro};
    require(job->ctx, mot_plan_verify(plan));
    MotStatus status = mot_lower(job->ctx, plan, &pipeline);
    if (status == MOT_ERR_UNSUPPORTED && strstr(mot_text_get(&job->ctx->error), "do not nest")) {
        mot_error_clear(job->ctx);
        return false;
    }
    require(job->ctx, status);
    require(job->ctx, mot_pipeline_verify(pipeline));
    for (uint32_t s = 0; strcmp(backend, "cpu") == 0 && s < pipeline->stages.n; s++)
        require(job->ctx, mot_codegen_program(job->ctx, pipeline->stages.data[s],
                                              &(MotCodegenOpts){.isa = (MotIsa)mot_isa_best()}));
    require(job->ctx, mot_session_open(job->ctx, pipeline, plan->cluster, &opts, &session));
    write_params(job, pipeline, session);
    for (uint32_t m = 0; m < job->n_micro; m++)
        for (int i = 0; i < 2; i++) {
            MotTensor rows = rows_of(job, i, m);
            require(job->ctx, mot_session_write_batch(session, job->inputs[i].name, m, &rows));
        }
    out->before = read_params(job, pipeline, session, &out->n_params);
    for (int step = 0; step < N_STEPS; step++) {
        int64_t moved;
        if (step == 1 && resize)
            require(job->ctx, mot_session_reshare(session, 0, plan->stages.data[0].mesh.n_axes - 1,
                                                  resize, &moved));
        out->losses[step] = train_step(job, session, step);
    }
    MotTensor loss;
    require(job->ctx, mot_session_run(session, MOT_SECTION_EVAL));
    require(job->ctx, mot_session_output(session, "loss", MOT_SECTION_EVAL, &loss));
    out->losses[N_STEPS] = mot_tensor_get(&loss, 0);
    out->after = read_params(job, pipeline, session, &out->n_params);
    mot_session_close(session);
    return true;
}

/*
 * Losses within float32's tolerance of the whole computation's, and so what the steps changed in
 * the parameters. The tolerance there is wide for Adam, which moves by the lr where the gradient is
 * but rounding (the bias of keys in attention).
 */
static inline void check_same(const Trained *a, const Trained *whole, const char *what)
{
    double difference = 0, change = 0;
    for (int i = 0; i < N_STEPS + (a->n_micro == whole->n_micro); i++)
        if (!(fabs(a->losses[i] - whole->losses[i]) <= 2e-5 * fabs(whole->losses[0])))
            fail_msg("%s: loss %d is %.9g, whole %.9g", what, i, a->losses[i], whole->losses[i]);
    assert_int_equal(a->n_params, whole->n_params);
    for (size_t i = 0; i < whole->n_params; i++) {
        difference += pow(a->after[i] - whole->after[i], 2);
        change += pow(whole->after[i] - whole->before[i], 2);
    }
    if (!(sqrt(difference) <= 5e-3 * sqrt(change)))
        fail_msg("%s: the parameters differ by %g of their change", what,
                 sqrt(difference / change));
}

#endif
