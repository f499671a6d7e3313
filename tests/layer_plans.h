/*
 * Plans in which layers are split by rows or columns of their weights, or by samples, and sessions
 * of them: for tests of layers that ranks cut or lend columns of.
 */
#ifndef MOTLEY_TESTS_LAYER_PLANS_H
#define MOTLEY_TESTS_LAYER_PLANS_H

#include "tests/plan_run.h"

static const MeshShape meshes[] = {
    {1, {1}, {{1}}}, {1, {2}, {{1, 1}}}, {1, {3}, {{5, 0, 2}}}, {1, {4}, {{8, 4, 2, 1}}}};
enum { N_MESHES = sizeof meshes / sizeof *meshes, MAX_LAYERS = 64, MAX_DEVICES = 4 };

static unsigned first_seed = 1;

/* ---- Plans in which layers are split ---- */

typedef enum { BY_ROWS, BY_COLUMNS, BY_SAMPLES, N_SPLITS } Split;

/* How many of them a test takes, from the first on. */
enum { ROWS_ONLY = 1, WEIGHTS_ONLY = 2 };

/* A contraction of a trained weight and its gradients; dims of the weight: columns are summed. */
typedef struct {
    MotOpId fwd, dx, dw;
    MotValue x, w;
    int x_column, w_column, w_row;
    Split split;
} Layer;

typedef struct {
    Layer layer[MAX_LAYERS];
    uint32_t n;
} Layers;

static inline int find_letter(const char *letters, char letter)
{
    for (int i = 0; letters[i] && letters[i] != ',' && letters[i] != '-'; i++)
        if (letters[i] == letter)
            return i;
    return -1;
}

static inline uint32_t side_of(const MotOp *op, MotValue v)
{
    return op->in[0] == v ? 0 : 1;
}

static inline const char *letters_of(const MotOp *op, uint32_t i)
{
    const char *spec = mot_attrs(op, contract)->spec;
    return i == 0 ? spec : i == 1 ? strchr(spec, ',') + 1 : strchr(spec, '>') + 1;
}

static inline MotOpId find_derived(const MotGraph *g, MotOpId fwd, MotRole role)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->fwd == fwd && op->role == role && op->kind == MOT_OP_CONTRACT)
            return g->body.data[i];
    }
    return 0;
}

/* Which dims of the weight are the longest columns, and a row. */
static inline void find_dims(const MotGraph *g, const MotOp *op, Layer *layer)
{
    uint32_t w = side_of(op, layer->w);
    const MotType *type = mot_graph_type(g, layer->w);
    layer->w_column = layer->w_row = -1;
    for (int d = 0; d < type->rank; d++) {
        char letter = letters_of(op, w)[d];
        int x = find_letter(letters_of(op, 1 - w), letter);
        if (x < 0)
            layer->w_row =
                layer->w_row < 0 || type->dims[d] > type->dims[layer->w_row] ? d : layer->w_row;
        else if (layer->w_column < 0 || type->dims[d] > type->dims[layer->w_column]) {
            layer->w_column = d;
            layer->x_column = x;
        }
    }
}

static inline Layers find_layers(const MotGraph *g)
{
    Layers found = {.n = 0};
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        if (op->kind != MOT_OP_CONTRACT || op->role != MOT_ROLE_FORWARD)
            continue;
        bool is_second = mot_graph_def(g, op->in[1])->kind == MOT_OP_PARAM;
        Layer layer = {.fwd = id, .w = op->in[is_second], .x = op->in[!is_second]};
        layer.dx = find_derived(g, id, MOT_ROLE_DX);
        layer.dw = find_derived(g, id, MOT_ROLE_DW);
        find_dims(g, op, &layer);
        found.layer[found.n++] = layer;
    }
    return found;
}

static inline void set_factor(MotPlan *plan, MotOpId id, int factor)
{
    MotFactors factors;
    require(plan->ctx, mot_factors(plan->graph, mot_graph_op(plan->graph, id), &factors));
    plan->ops[id].factor[0] = (int8_t)factor;
    mot_plan_apply_factors(plan, id, &factors);
}

/* The factor of an op that runs over a dim of operand or, with -1, of its result. */
static inline int factor_of(const MotPlan *plan, MotOpId id, int operand, int dim)
{
    MotFactors factors;
    require(plan->ctx, mot_factors(plan->graph, mot_graph_op(plan->graph, id), &factors));
    return operand < 0 ? mot_factor_of_result(&factors, 0, dim)
                       : mot_factor_of_operand(&factors, (uint32_t)operand, dim);
}

/*
 * The layer's three products split along the same letter; its weight and all that has its shape
 * with it.
 */
static inline void split_layer(MotPlan *plan, const Layer *layer)
{
    const MotGraph *g = plan->graph;
    const MotOp *fwd = mot_graph_op(g, layer->fwd), *dw = mot_graph_op(g, layer->dw);
    int w = (int)side_of(fwd, layer->w), x = 1 - w, dw_x = (int)side_of(dw, layer->x);
    if (layer->split == BY_SAMPLES) {
        set_factor(plan, layer->fwd, factor_of(plan, layer->fwd, x, 0));
        set_factor(plan, layer->dw, factor_of(plan, layer->dw, dw_x, 0));
        if (layer->dx)
            set_factor(plan, layer->dx, factor_of(plan, layer->dx, -1, 0));
        return;
    }
    int dim = layer->split == BY_ROWS ? layer->w_row : layer->w_column;
    set_factor(plan, layer->fwd, factor_of(plan, layer->fwd, w, dim));
    set_factor(plan, layer->dw, factor_of(plan, layer->dw, -1, dim));
    if (layer->dx)
        set_factor(
            plan, layer->dx,
            factor_of(plan, layer->dx, (int)side_of(mot_graph_op(g, layer->dx), layer->w), dim));
    const char *name = mot_attrs(mot_graph_def(g, layer->w), param)->name;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        const char *owner = op->kind == MOT_OP_PARAM ? mot_attrs(op, param)->state_of : NULL;
        if ((op->n_out && op->out[0] == layer->w) || (owner && strcmp(owner, name) == 0))
            set_factor(plan, g->body.data[i], factor_of(plan, g->body.data[i], -1, dim));
        else if (op->role == MOT_ROLE_UPDATE && op->n_in && op->in[0] == layer->w && op->n_out)
            set_factor(plan, g->body.data[i], factor_of(plan, g->body.data[i], 0, dim));
    }
}

/* Each layer by one of the first n_splits; without a seed by all of them in turn. */
static inline MotPlan *split_plan(const Job *job, const MeshShape *shape, Layers *layers,
                                  uint32_t n_splits, unsigned *seed)
{
    unsigned none = 0;
    MotPlan *plan = make_plan(job, shape, &none);
    for (uint32_t i = 0; i < job->graph->body.n; i++)
        set_factor(plan, job->graph->body.data[i], -1);
    for (uint32_t i = 0; i < layers->n; i++) {
        layers->layer[i].split = (Split)((seed ? (uint32_t)rand_r(seed) : i) % n_splits);
        split_layer(plan, &layers->layer[i]);
    }
    return plan;
}

/* ---- Lists ---- */

/* Which columns each rank leaves out of a layer: [rank][column], positions in the whole weight. */
typedef struct {
    bool is_cut[MAX_DEVICES][1024];
} Lists;

/* The part of a dim that shares give a rank. */
static inline void part_of(const MotMesh *mesh, int64_t size, uint32_t rank, int64_t *first,
                           int64_t *n)
{
    int64_t parts[MAX_DEVICES];
    mot_share_split(mesh->axis[0].share, mesh->axis[0].n, size, parts);
    *first = 0;
    for (uint32_t i = 0; i < rank; i++)
        *first += parts[i];
    *n = parts[rank];
}

static inline const char *weight_name(const MotGraph *g, const Layer *layer)
{
    return mot_attrs(mot_graph_def(g, layer->w), param)->name;
}

/* The program's cut of the layer's weight, or -1. */
static inline int find_cut(const MotProgram *p, const char *weight)
{
    for (uint32_t i = 0; i < p->cuts.n; i++)
        if (strcmp(p->bufs.data[p->cuts.data[i].param].name, weight) == 0)
            return (int)i;
    return -1;
}

/* ---- Running ---- */

typedef struct {
    Job job;
    MotPlan *plan;
    Layers layers;
    MotPipeline *pipeline;
    MotSession *session;
    const MotProgram *program;
} Run;

typedef struct {
    const Model *model;
    const MeshShape *mesh;
    const char *optimizer, *backend;
    MotCutFill fill;
    uint32_t n_splits;
    bool lends;
    uint32_t n_micro;
} Setup;

static inline Run open_run(MotCtx *ctx, const Setup *setup, unsigned *seed)
{
    Run r = {.job = make_job(ctx, setup->model, setup->optimizer, setup->n_micro)};
    MotSessionOpts opts = {.backend = setup->backend, .hang_seconds = 60};
    r.layers = find_layers(r.job.graph);
    r.plan = split_plan(&r.job, setup->mesh, &r.layers, setup->n_splits, seed);
    r.plan->cuts = setup->fill;
    r.plan->lends = setup->lends;
    require(ctx, mot_plan_verify(r.plan));
    require(ctx, mot_lower(ctx, r.plan, &r.pipeline));
    require(ctx, mot_pipeline_verify(r.pipeline));
    r.program = r.pipeline->stages.data[0];
    if (strcmp(setup->backend, "cpu") == 0)
        require(ctx, mot_codegen_program(ctx, r.pipeline->stages.data[0],
                                         &(MotCodegenOpts){.isa = (MotIsa)mot_isa_best()}));
    require(ctx, mot_session_open(ctx, r.pipeline, r.plan->cluster, &opts, &r.session));
    write_params(&r.job, r.pipeline, r.session);
    for (uint32_t m = 0; m < setup->n_micro; m++)
        for (int i = 0; i < 2; i++) {
            MotTensor rows = rows_of(&r.job, i, m);
            require(ctx, mot_session_write_batch(r.session, r.job.inputs[i].name, m, &rows));
        }
    return r;
}

static inline double evaluate_loss(Run *r)
{
    MotTensor loss;
    require(r->job.ctx, mot_session_run(r->session, MOT_SECTION_EVAL));
    require(r->job.ctx, mot_session_output(r->session, "loss", MOT_SECTION_EVAL, &loss));
    return mot_tensor_get(&loss, 0);
}

static inline void train(Run *r, Trained *out)
{
    out->n_micro = r->job.n_micro;
    out->before = read_params(&r->job, r->pipeline, r->session, &out->n_params);
    for (int step = 0; step < N_STEPS; step++)
        out->losses[step] = train_step(&r->job, r->session, step);
    out->losses[N_STEPS] = evaluate_loss(r);
    out->after = read_params(&r->job, r->pipeline, r->session, &out->n_params);
}

#endif
