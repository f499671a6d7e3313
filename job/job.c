/* The steps from a model file to running ranks. */
#include "job/job.h"

#include "job/plan_file.h"
#include "job/shares.h"

#include "codegen/codegen.h"
#include "frontend/cluster_file.h"
#include "frontend/export.h"
#include "ir/layout.h"
#include "passes/lower/lower.h"
#include "passes/pipeline.h"
#include "passes/plan/outer.h"
#include "runtime/data.h"
#include "runtime/device.h"
#include "runtime/npy.h"

#include <stdlib.h>
#include <string.h>

const MotOption mot_model_options[] = {
    {"--dim", "NAME=N", "size of a symbolic dim, such as batch=8 (repeatable)"},
    {"--train", "GLOB", "train these initializers too (repeatable)"},
    {"--freeze", "GLOB", "do not train these initializers (repeatable)"},
    {"--tie", "A=B", "train initializers A and B as one (repeatable)"},
    {"--limit", "NAME=N", "raise a limit on the model file (repeatable)"},
    {"--strict", NULL, "refuse external data behind links"},
    {"--external-data-root", "DIR", "external data may also lie under this folder"},
    {NULL, NULL, NULL}};
const MotOption mot_input_options[] = {
    {"--input", "NAME=FILE.npy", "what an input holds (repeatable)"},
    {"--cast", NULL, "arrays of float64 may become float32"},
    {NULL, NULL, NULL}};
const MotOption mot_loss_options[] = {
    {"--loss", "LOSS",
     "cross_entropy:LOGITS:LABELS, mse:OUTPUT:TARGET, bce:OUTPUT:TARGET or output:NAME"},
    {NULL, NULL, NULL}};
const MotOption mot_optimizer_options[] = {
    {"--optimizer", "OPT",
     "sgd:lr=..., momentum, adam or adamw:lr=3e-4,betas=0.9/0.95,wd=0.1,clip=1.0, or "
     "demo:lr=1e-3,replicas=4,k=32,s=64; default adamw:lr=3e-4"},
    {NULL, NULL, NULL}};
const MotOption mot_step_options[] = {
    {"--accumulate", "N", "micro-batches a step: gradients are summed over N batches; default 1"},
    {NULL, NULL, NULL}};
const MotOption mot_device_options[] = {
    {"-c", "FILE", "the cluster (YAML)"},
    {"--devices", "N", "N equal CPU devices, or the first N of the cluster"},
    {"--threads", "N", "threads a device"},
    {NULL, NULL, NULL}};
const MotOption mot_plan_options[] = {
    {"--shares", "[AXIS=]8/4/2/1", "initial shares, instead of the planner's (repeatable)"},
    {"--fix", "GLOB=CHOICE",
     "split these operators so (repeatable); CHOICE as `explain` prints it"},
    {NULL, NULL, NULL}};
const MotOption mot_consent_options[] = {
    {"--allow", "WHAT", "consent to what costs accuracy: cuts (for --balance zero and semi)"},
    {"--cut-fill", "VALUE",
     "what stands in gradients where products were left out: zero, mean (of the row) or last (the "
     "last step's); default zero"},
    {NULL, NULL, NULL}};
const MotOption mot_plan_file_options[] = {
    {"--plan", "PLAN", "take the choices from this file of `plan -o`"}, {NULL, NULL, NULL}};
const MotOption mot_rank_options[] = {
    {"--backend", "NAME", "run all devices on this backend (ref, cpu)"},
    {"--hang-timeout", "S",
     "seconds without progress after which a rank counts as hung; 0: never; default 60"},
    {NULL, NULL, NULL}};

/* For -v: a stage ends, the next one begins. */
static void end_stage(MotCtx *ctx, MotJob *job, const char *what)
{
    int64_t now = mot_now_ns();
    mot_debug(ctx, "%s: %.1f ms", what, (double)(now - job->stage_ns) * 1e-6);
    job->stage_ns = now;
}

/* ---- The model ---- */

/*
 * `text` is NAME=FILE where NAME is a graph input of the file; names may hold '='. NULL, and a
 * failure, if there is no such input.
 */
static const Onnx__ValueInfoProto *split_input(MotCtx *ctx, const MotOnnxFile *file,
                                               const char *text, const char **out_path)
{
    const Onnx__ValueInfoProto *input = NULL;
    size_t longest = 0;
    const Onnx__GraphProto *graph = file->model->graph;
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        size_t n = strlen(name);
        if (n > longest && strncmp(text, name, n) == 0 && text[n] == '=') {
            longest = n;
            input = graph->input[i];
            *out_path = text + n + 1;
        }
    }
    if (input)
        return input;
    mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--input %s: the model has no such input",
             mot_quote(&ctx->arena, text));
    for (size_t i = 0; i < graph->n_input; i++)
        mot_note(ctx, "input %s", mot_quote(&ctx->arena, graph->input[i]->name));
    return NULL;
}

static bool takes_f32(const Onnx__ValueInfoProto *input)
{
    return input->type && input->type->tensor_type &&
           input->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
           input->type->tensor_type->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
}

static MotStatus read_inputs(MotCtx *ctx, MotJob *job)
{
    bool may_cast = mot_args_has(job->args, "--cast");
    uint32_t n;
    const char *const *texts = mot_args_list(job->args, "--input", &n);
    job->inputs = mot_arena_array(&ctx->arena, MotInputTensor, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        MotInputTensor *to = &job->inputs[i];
        const Onnx__ValueInfoProto *input = split_input(ctx, job->file, texts[i], &to->file);
        if (!input)
            return ctx->status;
        to->name = input->name;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(job->inputs[k].name, job->inputs[i].name) == 0)
                return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--input %s is given twice",
                                mot_quote(&ctx->arena, job->inputs[i].name));
        MOT_TRY(mot_npy_read(ctx, to->file, &to->tensor));
        if (may_cast && to->tensor.type.dtype == MOT_F64 && takes_f32(input))
            to->tensor = mot_tensor_cast(&ctx->arena, &to->tensor, MOT_F32);
        job->n_inputs++;
    }
    return MOT_OK;
}

/* Adds the --dim options to those that the job has; of two of one name the option counts. */
static MotStatus read_dims(MotCtx *ctx, MotJob *job)
{
    uint32_t n, n_dims = 0;
    const char *const *texts = mot_args_list(job->args, "--dim", &n);
    MotDimBinding *dims = mot_arena_array(&ctx->arena, MotDimBinding, n + job->n_dims);
    for (uint32_t i = 0; i < n; i++) {
        const char *equals = strrchr(texts[i], '=');
        char *end = NULL;
        long long size = equals ? strtoll(equals + 1, &end, 10) : -1;
        if (!equals || end == equals + 1 || *end || size < 0)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--dim %s: it is --dim NAME=SIZE",
                            mot_quote(&ctx->arena, texts[i]));
        dims[n_dims++] = (MotDimBinding){
            mot_arena_strndup(&ctx->arena, texts[i], (size_t)(equals - texts[i])), size};
    }
    for (uint32_t i = 0; i < job->n_dims; i++) {
        bool is_given = false;
        for (uint32_t k = 0; k < n; k++)
            is_given |= strcmp(dims[k].name, job->dims[i].name) == 0;
        if (!is_given)
            dims[n_dims++] = job->dims[i];
    }
    job->dims = dims;
    job->n_dims = n_dims;
    return MOT_OK;
}

static MotStatus open_file(MotCtx *ctx, MotJob *job)
{
    MotOnnxOpts opts = mot_onnx_opts_default();
    uint32_t n;
    const char *const *limits = mot_args_list(job->args, "--limit", &n);
    for (uint32_t i = 0; i < n; i++)
        MOT_TRY(mot_onnx_limits_set(ctx, &opts.limits, limits[i]));
    opts.is_strict = mot_args_has(job->args, "--strict");
    opts.external_data_root = mot_args_get(job->args, "--external-data-root", NULL);
    return mot_onnx_open(ctx, job->model, &opts, &job->file);
}

/* A plan as the operand also says which model, and with which options. */
static MotStatus read_given_plan(MotCtx *ctx, MotJob *job)
{
    bool is_operand = mot_plan_file_is(job->model);
    const char *option = mot_args_get(job->args, "--plan", NULL);
    const char *path = is_operand ? job->model : option;
    if (!path)
        return MOT_OK;
    if (is_operand && option)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--plan %s: %s is a plan already", option,
                        path);
    MOT_TRY(mot_plan_file_read(ctx, path, &job->given));
    const MotPlanSource *source = &job->given->source;
    job->args = mot_args_with(ctx, job->args, source->options, source->n_options);
    if (!is_operand)
        return MOT_OK;
    if (!source->model) {
        mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){path, NULL}, "the plan does not say of which model");
        mot_hint(ctx, "give both: MODEL --plan %s", path);
        return ctx->status;
    }
    job->model = source->model;
    return MOT_OK;
}

MotStatus mot_job_import(MotCtx *ctx, const MotArgs *args, MotJob *job)
{
    const char *path;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &path));
    *job = (MotJob){0};
    return mot_job_import_file(ctx, args, path, job);
}

static MotStatus import_file(MotCtx *ctx, MotJob *job)
{
    MotImportOpts opts = {0};
    MotTrainOpts train = {0};
    MOT_TRY(open_file(ctx, job));
    MOT_TRY(read_dims(ctx, job));
    MOT_TRY(read_inputs(ctx, job));
    opts.dims = job->dims;
    opts.n_dims = job->n_dims;
    opts.inputs = job->inputs;
    opts.n_inputs = job->n_inputs;
    MOT_TRY(mot_import(ctx, job->file, &opts, &job->graph));
    train.train = mot_args_list(job->args, "--train", &train.n_train);
    train.freeze = mot_args_list(job->args, "--freeze", &train.n_freeze);
    MOT_TRY(mot_trained_decide(ctx, job->graph, &train, &job->trained));
    mot_onnx_forget(job->file);
    return MOT_OK;
}

MotStatus mot_job_import_file(MotCtx *ctx, const MotArgs *args, const char *path, MotJob *job)
{
    job->args = args;
    job->model = path;
    job->stage_ns = mot_now_ns();
    ctx->doing = "importing the model";
    MOT_TRY(read_given_plan(ctx, job));
    MotStatus status = import_file(ctx, job);
    if (status == MOT_ERR_IO && job->model != path)
        mot_hint(ctx, "the plan says so; give both if it is elsewhere: MODEL --plan %s", path);
    else if (status != MOT_OK && job->given)
        mot_note(ctx, "with the options of the plan, where none were given");
    end_stage(ctx, job, "import");
    return status;
}

/* ---- Training ---- */

static MotStatus read_ties(MotCtx *ctx, MotJob *job, MotPassOpts *opts)
{
    const char *const *texts = mot_args_list(job->args, "--tie", &opts->n_ties);
    if (opts->n_ties)
        MOT_TRY(mot_trained_find_ties(ctx, job->file, &job->trained));
    MotTie *ties = mot_arena_array(&ctx->arena, MotTie, opts->n_ties);
    for (uint32_t i = 0; i < opts->n_ties; i++) {
        const MotTrainedRow *first = NULL, *second = NULL;
        for (uint32_t a = 0; a < job->trained.n; a++)
            for (uint32_t b = 0; b < job->trained.n; b++) {
                size_t n = strlen(job->trained.rows[a].name);
                if (strncmp(texts[i], job->trained.rows[a].name, n) == 0 && texts[i][n] == '=' &&
                    strcmp(texts[i] + n + 1, job->trained.rows[b].name) == 0) {
                    first = &job->trained.rows[a];
                    second = &job->trained.rows[b];
                }
            }
        if (!first)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--tie %s: it is A=B with the names of two initializers",
                            mot_quote(&ctx->arena, texts[i]));
        /* A square matrix may be tied either way: what the values say decides. */
        bool is_known = second->looks_tied && strcmp(second->looks_tied, first->name) == 0;
        bool is_transposed =
            is_known ? second->is_transposed : !mot_dims_equal(&first->type, &second->type);
        ties[i] = (MotTie){first->name, second->name, is_transposed};
    }
    opts->ties = ties;
    return MOT_OK;
}

/* Labels may be of any integer dtype; the loss takes i64 and i32. */
static void widen_labels(MotCtx *ctx, MotTensor *labels)
{
    if (labels->type.dtype != MOT_I64 && labels->type.dtype != MOT_I32)
        *labels = mot_tensor_cast(&ctx->arena, labels, MOT_I64);
}

/*
 * `grad` and `bench` name a file where `train` names a field of the data: the loss then reads an
 * input called "labels".
 */
static MotStatus read_labels(MotCtx *ctx, MotJob *job)
{
    if (!job->loss.source)
        return MOT_OK;
    MotInputTensor *labels = &job->inputs[job->n_inputs++];
    MOT_TRY(mot_npy_read(ctx, job->loss.source, &labels->tensor));
    if (mot_dtype_class(labels->tensor.type.dtype) == MOT_CLASS_INT)
        widen_labels(ctx, &labels->tensor);
    if (mot_args_has(job->args, "--cast") && labels->tensor.type.dtype == MOT_F64)
        labels->tensor = mot_tensor_cast(&ctx->arena, &labels->tensor, MOT_F32);
    labels->name = "labels";
    job->loss.input = labels->name;
    job->loss.input_type = labels->tensor.type;
    return MOT_OK;
}

int64_t mot_job_classes(const MotJob *job)
{
    const MotGraph *g = job->graph;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_CROSS_ENTROPY) {
            const MotType *logits = mot_graph_type(g, op->in[0]);
            return logits->dims[logits->rank - 1];
        }
    }
    return INT64_MAX;
}

double mot_job_step_flops(const MotJob *job)
{
    double flops = 0;
    for (uint32_t i = 0; i < job->graph->body.n; i++) {
        const MotOp *op = mot_graph_op(job->graph, job->graph->body.data[i]);
        if (op->role == MOT_ROLE_FORWARD)
            flops += mot_op_flops(job->graph, op);
    }
    return 3 * job->n_micro * flops;
}

/* After the passes, which find the class axis. */
static MotStatus check_label_file(MotCtx *ctx, const MotJob *job)
{
    int64_t n_classes = mot_job_classes(job);
    if (!job->loss.source || n_classes == INT64_MAX)
        return MOT_OK;
    return mot_labels_check(ctx, job->loss.source, &job->inputs[job->n_inputs - 1].tensor,
                            n_classes, job->loss.ignore);
}

static MotStatus refuse_empty_inputs(MotCtx *ctx, const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT)
            continue;
        const MotType *type = mot_graph_type(g, op->out[0]);
        if (mot_type_elements(type) == 0)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "input %s is [%s]: there is nothing to train on",
                            mot_quote(&ctx->arena, mot_attrs(op, input)->name),
                            mot_shape_text(&ctx->arena, type->dims, type->rank));
    }
    return MOT_OK;
}

static MotStatus refuse_frozen(MotCtx *ctx, const MotJob *job)
{
    for (uint32_t i = 0; i < job->trained.n; i++)
        if (job->trained.rows[i].is_trained)
            return MOT_OK;
    if (mot_args_has(job->args, "--freeze"))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--freeze leaves nothing to train");
    mot_fail(ctx, MOT_ERR_MODEL, (MotLoc){job->model, NULL}, "none of the initializers trains");
    mot_hint(ctx, "motley import %s tells why; --train GLOB trains them all the same", job->model);
    return ctx->status;
}

MotStatus mot_job_add_training(MotCtx *ctx, MotJob *job, bool with_optimizer, bool labels_are_files)
{
    const char *loss = mot_args_get(job->args, "--loss", NULL);
    if (!loss)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--loss is needed, such as --loss cross_entropy:logits:labels");
    int64_t n_micro = 1;
    if (with_optimizer)
        MOT_TRY(mot_args_int(ctx, job->args, "--accumulate", 1, MOT_MAX_MICRO, 1, &n_micro));
    job->n_micro = (uint32_t)n_micro;
    ctx->doing = "transforming the graph";
    MotPassOpts opts = {.loss = &job->loss, .accumulates = n_micro > 1};
    MOT_TRY(refuse_frozen(ctx, job));
    MOT_TRY(refuse_empty_inputs(ctx, job->graph));
    MOT_TRY(mot_loss_parse(ctx, job->graph, loss, &job->loss));
    if (labels_are_files)
        MOT_TRY(read_labels(ctx, job));
    MOT_TRY(read_ties(ctx, job, &opts));
    if (with_optimizer) {
        MOT_TRY(mot_optimizer_parse(ctx, mot_args_get(job->args, "--optimizer", MOT_JOB_OPTIMIZER),
                                    &job->optimizer));
        opts.optimizer = &job->optimizer;
    }
    MOT_TRY(mot_trained_freeze(ctx, job->graph, job->file));
    MOT_TRY(
        mot_passes_run(ctx, job->graph, &opts, NULL, with_optimizer ? "optimizer" : "autodiff"));
    if (labels_are_files)
        MOT_TRY(check_label_file(ctx, job));
    end_stage(ctx, job, "graph passes");
    return MOT_OK;
}

MotStatus mot_job_prepare_forward(MotCtx *ctx, MotJob *job)
{
    ctx->doing = "transforming the graph";
    MOT_TRY(mot_trained_freeze(ctx, job->graph, job->file));
    MOT_TRY(mot_passes_run(ctx, job->graph, &(MotPassOpts){0}, NULL, "unpack"));
    end_stage(ctx, job, "graph passes");
    return MOT_OK;
}

/* ---- Devices ---- */

void mot_job_assume_rates(MotCluster *cluster)
{
    int isa = cluster->is_modelled ? -1 : mot_isa_best();
    for (uint32_t i = 0; i < cluster->devices.n; i++)
        mot_device_assume(&cluster->devices.data[i], isa < 0 ? NULL : mot_isa_names[isa]);
}

/* The first n devices, and the links among them. */
static void keep_devices(MotCluster *cluster, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        MotLink link = cluster->links.data[i];
        if (link.a == MOT_ALL_DEVICES || (link.a < n && link.b < n))
            cluster->links.data[kept++] = link;
    }
    cluster->links.n = kept;
    cluster->devices.n = n;
}

MotStatus mot_job_cluster(MotCtx *ctx, MotJob *job)
{
    const char *path = mot_args_get(job->args, "-c", NULL);
    int64_t n, threads;
    MOT_TRY(mot_args_int(ctx, job->args, "--devices", 1, MOT_MAX_RANKS, path ? 0 : 1, &n));
    MOT_TRY(mot_args_int(ctx, job->args, "--threads", 1, 1024, 0, &threads));
    if (path)
        MOT_TRY(mot_cluster_read(ctx, path, &job->cluster));
    else
        job->cluster = mot_cluster_make(ctx, (uint32_t)n, threads ? (uint32_t)threads : 1);
    if (n && (uint32_t)n > job->cluster->devices.n)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--devices %lld: %s has %u", (long long)n,
                        path, job->cluster->devices.n);
    if (n)
        keep_devices(job->cluster, (uint32_t)n);
    for (uint32_t i = 0; threads && i < job->cluster->devices.n; i++) {
        MotDevice *device = &job->cluster->devices.data[i];
        if (device->threads != threads) /* what was measured with other threads says nothing */
            device->alone = device->beside = (MotRates){0};
        device->threads = (uint32_t)threads;
    }
    return MOT_OK;
}

/* GLOB=CHOICE, split at the last '='. */
static MotStatus read_fixes(MotCtx *ctx, const MotArgs *args, MotPlanOpts *opts)
{
    const char *const *texts = mot_args_list(args, "--fix", &opts->n_fixes);
    MotFix *fixes = mot_arena_array(&ctx->arena, MotFix, opts->n_fixes);
    for (uint32_t i = 0; i < opts->n_fixes; i++) {
        const char *equals = strrchr(texts[i], '=');
        if (!equals)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--fix %s: it is GLOB=CHOICE",
                            mot_quote(&ctx->arena, texts[i]));
        fixes[i] = (MotFix){mot_arena_strndup(&ctx->arena, texts[i], (size_t)(equals - texts[i])),
                            equals + 1};
    }
    opts->fixes = fixes;
    return MOT_OK;
}

MotStatus mot_job_plan_opts(MotCtx *ctx, const MotJob *job, MotPlanOpts *out_opts)
{
    /* Shares that are rebalanced, and members that change, are those of one axis. */
    bool is_moved = strcmp(mot_args_get(job->args, "--balance", "off"), "off") != 0;
    *out_opts = (MotPlanOpts){.n_micro = job->n_micro,
                              .one_axis = is_moved || mot_args_has(job->args, "--elastic")};
    return read_fixes(ctx, job->args, out_opts);
}

/* The planner's plan, under --shares and --fix. */
static MotStatus make_plan(MotCtx *ctx, MotJob *job)
{
    MotPlanOpts opts;
    MotShareList shares = {0};
    const char *text = mot_args_get(job->args, "--shares", NULL);
    MOT_TRY(mot_job_cluster(ctx, job));
    mot_job_assume_rates(job->cluster);
    if (text)
        MOT_TRY(mot_args_shares(ctx, text, &shares));
    MOT_TRY(mot_job_plan_opts(ctx, job, &opts));
    opts.stats = &job->stats;
    opts.share = shares.data;
    opts.n_share = shares.n;
    MOT_TRY(mot_plan_make(ctx, job->graph, job->cluster, &opts, &job->plan));
    int64_t replicas = mot_outer_units(job->graph);
    if (opts.one_axis && replicas > 1 && replicas < job->cluster->devices.n)
        mot_info(ctx, "--balance and --elastic plan one axis: no replica is split over a group of "
                      "devices");
    return mot_shares_set(ctx, job->args, job->plan);
}

/* What costs accuracy is in a plan by consent only: a plan from a file has no cuts either. */
static MotStatus read_consent(MotCtx *ctx, const MotJob *job)
{
    static const char *const fills[] = {
        [MOT_CUT_ZERO] = "zero", [MOT_CUT_MEAN] = "mean", [MOT_CUT_LAST] = "last"};
    const char *allowed = mot_args_get(job->args, "--allow", NULL),
               *fill = mot_args_get(job->args, "--cut-fill", fills[MOT_CUT_ZERO]);
    const char *balance = mot_args_get(job->args, "--balance", "");
    job->plan->lends = strcmp(balance, "migrate") == 0 || strcmp(balance, "semi") == 0;
    if (!allowed && mot_args_has(job->args, "--cut-fill"))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--cut-fill is for --allow cuts");
    if (!allowed)
        return MOT_OK;
    if (strcmp(allowed, "cuts") != 0)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--allow %s: it is cuts",
                        mot_quote(&ctx->arena, allowed));
    for (int i = MOT_CUT_ZERO; i <= MOT_CUT_LAST; i++)
        if (strcmp(fill, fills[i]) == 0) {
            job->plan->cuts = (MotCutFill)i;
            return MOT_OK;
        }
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--cut-fill %s: it is zero, mean or last",
                    mot_quote(&ctx->arena, fill));
}

static const char *backend_of(const MotJob *job, uint32_t device)
{
    return mot_args_get(job->args, "--backend", job->cluster->devices.data[device].backend);
}

/*
 * What a stage replicates is bit for bit the same on its devices, which the sums of two backends
 * are not.
 */
static MotStatus check_backends(MotCtx *ctx, const MotJob *job)
{
    for (uint32_t s = 0; s < job->plan->stages.n; s++) {
        const MotMesh *mesh = &job->plan->stages.data[s].mesh;
        for (uint32_t i = 1; i < mesh->n_devices; i++) {
            uint32_t a = mesh->devices[0], b = mesh->devices[i];
            if (strcmp(backend_of(job, a), backend_of(job, b)) == 0)
                continue;
            mot_fail(ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE,
                     "devices of one stage have one backend, but %s has %s and %s has %s",
                     mot_quote(&ctx->arena, job->cluster->devices.data[a].name), backend_of(job, a),
                     mot_quote(&ctx->arena, job->cluster->devices.data[b].name),
                     backend_of(job, b));
            mot_hint(ctx, "give them one in the cluster file, or train with --backend");
            return ctx->status;
        }
    }
    return MOT_OK;
}

MotStatus mot_job_check_plan(MotCtx *ctx, const MotJob *job)
{
    MOT_TRY(mot_plan_verify(job->plan));
    return check_backends(ctx, job);
}

MotStatus mot_job_plan(MotCtx *ctx, MotJob *job)
{
    ctx->doing = "planning";
    MOT_TRY(job->given ? mot_plan_file_apply(ctx, job) : make_plan(ctx, job));
    MOT_TRY(read_consent(ctx, job));
    MOT_TRY(mot_job_check_plan(ctx, job));
    end_stage(ctx, job, "plan");
    return MOT_OK;
}

/* Kernels for the devices that run compiled ones; `ref` interprets. */
static MotStatus compile_kernels(MotCtx *ctx, MotJob *job)
{
    const char *backend = mot_args_get(job->args, "--backend", NULL);
    bool is_needed = false;
    if (backend && !mot_device_find(backend))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--backend %s: it is cpu or ref",
                        mot_quote(&ctx->arena, backend));
    for (uint32_t i = 0; i < job->cluster->devices.n; i++)
        is_needed |= strcmp(backend_of(job, i), "cpu") == 0;
    int isa = mot_isa_best();
    if (!is_needed)
        return MOT_OK;
    if (isa < 0)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "this processor lacks AVX2 and FMA; --backend ref runs");
    for (uint32_t s = 0; s < job->pipeline->stages.n; s++)
        MOT_TRY(mot_codegen_program(ctx, job->pipeline->stages.data[s],
                                    &(MotCodegenOpts){.isa = (MotIsa)isa}));
    return MOT_OK;
}

static void dump_program(MotCtx *ctx, const MotProgram *program)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_program_print(program, &text);
    mot_info(ctx, "// after lower\n%s", mot_text_get(&text));
}

MotStatus mot_job_place(MotCtx *ctx, MotJob *job)
{
    MOT_TRY(mot_job_plan(ctx, job));
    return mot_job_lower(ctx, job);
}

MotStatus mot_job_lower(MotCtx *ctx, MotJob *job)
{
    ctx->doing = "lowering the plan";
    MOT_TRY(mot_lower(ctx, job->plan, &job->pipeline));
    for (uint32_t s = 0; mot_passes_dump(ctx, "lower") && s < job->pipeline->stages.n; s++)
        dump_program(ctx, job->pipeline->stages.data[s]);
    MOT_TRY(mot_pipeline_verify(job->pipeline));
    end_stage(ctx, job, "lower");
    ctx->doing = "compiling kernels";
    MOT_TRY(compile_kernels(ctx, job));
    end_stage(ctx, job, "kernels");
    return MOT_OK;
}

bool mot_job_is_param(const MotBuf *buf)
{
    return buf->kind == MOT_BUF_PARAM && !mot_attrs(buf->source, param)->state_of;
}

/* From the mapped file to the ranks' arenas; no page of either stays in the host. */
static MotStatus write_params(MotCtx *ctx, MotJob *job)
{
    MotMap params;
    mot_map_init(&params, &ctx->arena);
    for (uint32_t i = 0; i < job->pipeline->vars.n; i++)
        if (mot_job_is_param(job->pipeline->vars.data[i]))
            mot_map_put_str(&params, job->pipeline->vars.data[i]->name, i);
    const Onnx__GraphProto *graph = job->file->model->graph;
    uint32_t n = 0;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = graph->initializer[i]->name;
        MotTensorData data;
        if (!mot_map_get_str(&params, name, NULL))
            continue;
        MOT_TRY(mot_onnx_tensor_data(ctx, job->file, graph->initializer[i],
                                     (MotLoc){job->model, NULL}, &data));
        MOT_TRY(mot_session_write_param(job->session, name, data.data));
        mot_onnx_forget(job->file);
        n++;
    }
    return n == params.n
               ? MOT_OK
               : mot_fail(ctx, MOT_ERR_INTERNAL, (MotLoc){job->model, NULL},
                          "%u of %u parameters have no initializer", params.n - n, params.n);
}

static bool has_input(const MotJob *job, const char *name)
{
    uint32_t stage = 0, buf;
    return mot_pipeline_find(job->pipeline, name, &stage, &buf);
}

MotStatus mot_job_open(MotCtx *ctx, MotJob *job)
{
    MotSessionOpts opts = {.backend = mot_args_get(job->args, "--backend", NULL),
                           .is_elastic = mot_args_has(job->args, "--elastic")};
    MOT_TRY(mot_args_number(ctx, job->args, "--hang-timeout", 60, &opts.hang_seconds));
    return mot_session_open(ctx, job->pipeline, job->cluster, &opts, &job->session);
}

MotStatus mot_job_start(MotCtx *ctx, MotJob *job)
{
    ctx->doing = "starting the ranks";
    MOT_TRY(mot_job_open(ctx, job));
    MotStatus status = write_params(ctx, job);
    for (uint32_t i = 0; status == MOT_OK && i < job->n_inputs; i++)
        if (has_input(job, job->inputs[i].name))
            status = mot_session_write(job->session, job->inputs[i].name, &job->inputs[i].tensor);
    if (status != MOT_OK)
        mot_session_close(job->session);
    else
        end_stage(ctx, job, "start of the ranks");
    return status;
}

/* Where the program has such an input. */
static MotStatus set_scalar(MotJob *job, const char *name, double value)
{
    float number = (float)value;
    MotTensor scalar = {mot_type_scalar(MOT_F32), &number};
    return has_input(job, name) ? mot_session_write(job->session, name, &scalar) : MOT_OK;
}

MotStatus mot_job_begin_step(MotJob *job, int64_t step, int64_t total, double *out_lr)
{
    mot_session_set_step(job->session, step - 1);
    *out_lr = mot_schedule_lr(&job->optimizer, step, total);
    MOT_TRY(set_scalar(job, MOT_INPUT_LR, *out_lr));
    return set_scalar(job, MOT_INPUT_STEP, (double)step);
}

MotStatus mot_job_scalar(MotJob *job, const char *name, MotSection section, double *out_value)
{
    MotTensor value;
    MOT_TRY(mot_session_output(job->session, name, section, &value));
    *out_value = mot_tensor_get(&value, 0);
    return MOT_OK;
}

MotStatus mot_job_export(MotCtx *ctx, MotJob *job, const char *path)
{
    const MotPipeline *p = job->pipeline;
    MotExported *tensors = mot_arena_array(&ctx->arena, MotExported, 2 * p->vars.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->vars.n; i++) {
        const MotBuf *buf = p->vars.data[i];
        MotTensor value;
        if (!mot_job_is_param(buf))
            continue;
        MOT_TRY(mot_session_read_param(job->session, buf, &value));
        tensors[n++] = (MotExported){buf->name, value};
        MotTensor tied = mot_param_tied(&ctx->arena, buf->source, &value);
        if (tied.data)
            tensors[n++] = (MotExported){mot_attrs(buf->source, param)->tied, tied};
    }
    return mot_export(ctx, job->file, tensors, n, path);
}
