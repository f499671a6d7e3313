/* Conformance cases: reading them, and the comparison of results. */
#include "frontend/case.h"

#include "frontend/import.h"
#include "ir/eval.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const int64_t max_value_bytes = 256 << 20; /* of a case, which are small */
static const double absolute_tolerance = 1e-7, relative_tolerance = 1e-3;

typedef struct {
    MotCtx *ctx;
    const char *dir;
    MotOnnxFile *model;
    MotInputTensor *inputs;
    uint32_t n_inputs;
    const char *difference; /* of the first result that is wrong */
} Case;

static const char *describe(const Case *c, const MotType *type)
{
    return mot_arena_printf(&c->ctx->arena, "%s[%s]", mot_dtype_name(type->dtype),
                            type->rank ? mot_shape_text(&c->ctx->arena, type->dims, type->rank)
                                       : "");
}

static MotStatus read_tensor(Case *c, int set, const char *kind, size_t k, MotTensor *out_tensor)
{
    const char *path =
        mot_arena_printf(&c->ctx->arena, "%s/test_data_set_%d/%s_%zu.pb", c->dir, set, kind, k);
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    MOT_TRY(mot_onnx_open_tensor(c->ctx, path, &opts, &file));
    return mot_onnx_tensor(c->ctx, file, file->tensor, (MotLoc){path, NULL}, out_tensor);
}

static const Onnx__TensorProto *find_initializer(const Case *c, const char *name)
{
    const Onnx__GraphProto *graph = c->model->model->graph;
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (strcmp(graph->initializer[i]->name, name) == 0)
            return graph->initializer[i];
    return NULL;
}

/* Inputs go with the graph's by position; those that have an initializer are not given. */
static MotStatus read_inputs(Case *c, int set)
{
    const Onnx__GraphProto *graph = c->model->model->graph;
    c->inputs = mot_arena_array(&c->ctx->arena, MotInputTensor, graph->n_input + 1);
    c->n_inputs = 0;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TypeProto *type = graph->input[i]->type;
        MotInputTensor *input = &c->inputs[c->n_inputs];
        input->name = graph->input[i]->name;
        if (find_initializer(c, input->name))
            continue;
        if (type && type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            return mot_fail(c->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "input %s is no tensor",
                            mot_quote(&c->ctx->arena, input->name));
        MOT_TRY(read_tensor(c, set, "input", c->n_inputs++, &input->tensor));
    }
    return MOT_OK;
}

/* Sets the graph's inputs and the initializers that may train. */
static MotStatus set_sources(const Case *c, const MotGraph *g, MotTensor *values)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; op->kind == MOT_OP_INPUT && k < c->n_inputs; k++)
            if (strcmp(c->inputs[k].name, mot_attrs(op, input)->name) == 0)
                values[op->out[0]] = c->inputs[k].tensor;
        if (op->kind == MOT_OP_PARAM)
            MOT_TRY(mot_onnx_tensor(c->ctx, c->model,
                                    find_initializer(c, mot_attrs(op, param)->name), MOT_NOWHERE,
                                    &values[op->out[0]]));
    }
    return MOT_OK;
}

/* ---- Comparison ---- */

static bool is_close(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= absolute_tolerance + relative_tolerance * fabs(b);
}

static void compare(Case *c, const char *name, const MotTensor *got, const MotTensor *expected)
{
    MotArena *arena = &c->ctx->arena;
    if (!mot_type_equal(&got->type, &expected->type)) {
        c->difference = mot_arena_printf(arena, "%s is %s, expected %s", mot_quote(arena, name),
                                         describe(c, &got->type), describe(c, &expected->type));
        return;
    }
    bool is_float = mot_dtype_class(got->type.dtype) == MOT_CLASS_FLOAT;
    int64_t n = mot_type_elements(&got->type);
    for (int64_t i = 0; i < n; i++) {
        double a = mot_tensor_get(got, i), b = mot_tensor_get(expected, i);
        bool is_equal = is_float ? is_close(a, b)
                                 : mot_tensor_get_int(got, i) == mot_tensor_get_int(expected, i);
        if (is_equal)
            continue;
        c->difference = mot_arena_printf(arena, "%s[%lld of %lld] is %.9g, expected %.9g",
                                         mot_quote(arena, name), (long long)i, (long long)n, a, b);
        return;
    }
}

static MotStatus compare_outputs(Case *c, int set, const MotGraph *g, const MotTensor *values)
{
    size_t k = 0;
    for (uint32_t i = 0; i < g->body.n && !c->difference; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        MotTensor expected;
        if (op->kind != MOT_OP_OUTPUT)
            continue;
        MOT_TRY(read_tensor(c, set, "output", k++, &expected));
        compare(c, mot_attrs(op, output)->name, &values[op->in[0]], &expected);
    }
    return MOT_OK;
}

/* ---- A case ---- */

static MotStatus run_set(Case *c, int set)
{
    MotGraph *g;
    MOT_TRY(read_inputs(c, set));
    MotImportOpts opts = {
        .inputs = c->inputs, .n_inputs = c->n_inputs, .max_value_bytes = max_value_bytes};
    MOT_TRY(mot_import(c->ctx, c->model, &opts, &g));
    MotTensor *values = mot_arena_array(&c->ctx->arena, MotTensor, g->values.n);
    MOT_TRY(set_sources(c, g, values));
    MOT_TRY(mot_eval_graph(c->ctx, g, values, false));
    return compare_outputs(c, set, g, values);
}

static MotStatus run_case(MotCtx *ctx, void *arg)
{
    Case *c = arg;
    MotOnnxOpts opts = mot_onnx_opts_default();
    MOT_TRY(mot_onnx_open(ctx, mot_arena_printf(&ctx->arena, "%s/model.onnx", c->dir), &opts,
                          &c->model));
    for (int set = 0; !c->difference; set++) {
        const char *folder = mot_arena_printf(&ctx->arena, "%s/test_data_set_%d", c->dir, set);
        if (access(folder, F_OK) == 0)
            MOT_TRY(run_set(c, set));
        else if (set == 0)
            return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "%s has no test_data_set_0",
                            mot_quote(&ctx->arena, c->dir));
        else
            break;
    }
    return MOT_OK;
}

/* The error with its notes in one line. */
static const char *flatten(MotCtx *ctx)
{
    char *text = mot_arena_strdup(&ctx->arena, mot_text_get(&ctx->error));
    size_t n = 0;
    for (const char *p = text; *p; p++)
        if (*p != '\n') {
            text[n++] = *p;
        } else if (p[1]) {
            text[n++] = ';';
            p += p[1] == ' '; /* notes are indented */
        }
    text[n] = 0;
    return text;
}

MotCaseResult mot_check_case(MotCtx *ctx, const char *dir, const char **out_text)
{
    Case c = {.ctx = ctx, .dir = dir};
    MotStatus status = mot_ctx_run(ctx, run_case, &c);
    *out_text = c.difference ? c.difference : "";
    if (status != MOT_OK)
        *out_text = flatten(ctx);
    mot_error_clear(ctx);
    if (status == MOT_ERR_UNSUPPORTED)
        return MOT_CASE_SKIPPED;
    return status == MOT_OK && !c.difference ? MOT_CASE_PASSED : MOT_CASE_FAILED;
}
