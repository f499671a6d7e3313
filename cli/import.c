/* motley import: what is in a model file, and what Motley makes of it. */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "job/job.h"

#include <stdio.h>

/* The inputs, or the outputs. */
static void put_signature(MotJsonWriter *w, const MotGraph *g, const char *key, MotOpKind kind)
{
    mot_json_open(w, key, '[');
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != kind)
            continue;
        bool is_input = kind == MOT_OP_INPUT;
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "name",
                            is_input ? mot_attrs(op, input)->name : mot_attrs(op, output)->name);
        mot_answer_put_type(w, mot_graph_type(g, is_input ? op->out[0] : op->in[0]));
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

static void put_params(MotJsonWriter *w, const MotTrained *trained)
{
    mot_json_open(w, "initializers", '[');
    for (uint32_t i = 0; i < trained->n; i++) {
        const MotTrainedRow *row = &trained->rows[i];
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "name", row->name);
        mot_answer_put_type(w, &row->type);
        mot_json_put_bool(w, "trained", row->is_trained);
        mot_json_put_string(w, "reason", row->reason);
        mot_json_put_string(w, "looks_tied", row->looks_tied);
        mot_json_put_bool(w, "transposed", row->is_transposed);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

static void put_counts(MotJsonWriter *w, const uint32_t *before, const uint32_t *after)
{
    mot_json_open(w, "operators", '{');
    for (int k = 1; k < MOT_N_OPS; k++)
        if (before[k] || after[k]) {
            mot_json_open(w, mot_op_info((MotOpKind)k)->name, '{');
            mot_json_put_int(w, "imported", before[k]);
            mot_json_put_int(w, "raised", after[k]);
            mot_json_close(w, '}');
        }
    mot_json_close(w, '}');
}

static void print_signature(MotArena *arena, const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT && op->kind != MOT_OP_OUTPUT)
            continue;
        bool is_input = op->kind == MOT_OP_INPUT;
        const MotType *type = mot_graph_type(g, is_input ? op->out[0] : op->in[0]);
        printf(
            "%s %s : %s[%s]\n", is_input ? "input " : "output",
            mot_quote(arena, is_input ? mot_attrs(op, input)->name : mot_attrs(op, output)->name),
            mot_dtype_name(type->dtype), mot_shape_text(arena, type->dims, type->rank));
    }
}

static void print_params(MotArena *arena, const MotTrained *trained)
{
    for (int is_trained = 1; is_trained >= 0; is_trained--) {
        double bytes = 0, elements = 0;
        uint32_t n = 0;
        for (uint32_t i = 0; i < trained->n; i++)
            if (trained->rows[i].is_trained == (is_trained == 1)) {
                n++;
                elements += (double)mot_type_elements(&trained->rows[i].type);
                bytes += (double)mot_type_bytes(&trained->rows[i].type);
            }
        printf("\n%s: %u initializers, %.0f elements, %s\n", is_trained ? "trained" : "frozen", n,
               elements, mot_bytes_text(arena, bytes));
        for (uint32_t i = 0; i < trained->n; i++) {
            const MotTrainedRow *row = &trained->rows[i];
            if (row->is_trained != (is_trained == 1))
                continue;
            printf("  %-36s [%s]  %s\n", mot_quote(arena, row->name),
                   mot_shape_text(arena, row->type.dims, row->type.rank), row->reason);
            if (row->looks_tied)
                printf("  %36s looks tied with %s%s: --tie %s=%s trains them as one\n", "",
                       mot_quote(arena, row->looks_tied), row->is_transposed ? " (transposed)" : "",
                       mot_escape(arena, row->looks_tied, SIZE_MAX),
                       mot_escape(arena, row->name, SIZE_MAX));
        }
    }
}

static void count_ops(const MotGraph *g, uint32_t *out_counts)
{
    for (MotOpIter it = mot_op_iter(g); mot_op_iter_next(&it);)
        out_counts[it.op->kind]++;
}

static double count_flops(const MotGraph *g)
{
    double flops = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        flops += mot_op_flops(g, mot_graph_op(g, g->body.data[i]));
    return flops;
}

static MotStatus import_as_json(MotCtx *ctx, MotJob *job)
{
    uint32_t before[MOT_N_OPS] = {0}, after[MOT_N_OPS] = {0};
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "model", job->model);
    put_signature(&w, job->graph, "inputs", MOT_OP_INPUT);
    put_signature(&w, job->graph, "outputs", MOT_OP_OUTPUT);
    put_params(&w, &job->trained);
    count_ops(job->graph, before);
    MOT_TRY(mot_job_prepare_forward(ctx, job));
    count_ops(job->graph, after);
    put_counts(&w, before, after);
    mot_json_put_number(&w, "forward_flop", count_flops(job->graph));
    mot_json_put_number(&w, "step_flop", 3 * count_flops(job->graph));
    mot_json_close(&w, '}');
    mot_answer_print(&w);
    return MOT_OK;
}

static MotStatus import_as_text(MotCtx *ctx, MotJob *job)
{
    uint32_t before[MOT_N_OPS] = {0}, after[MOT_N_OPS] = {0};
    print_signature(&ctx->arena, job->graph);
    count_ops(job->graph, before);
    print_params(&ctx->arena, &job->trained);
    MOT_TRY(mot_job_prepare_forward(ctx, job));
    count_ops(job->graph, after);
    printf("\n%-16s %8s %8s\n", "operator", "imported", "raised");
    for (int k = 1; k < MOT_N_OPS; k++)
        if (before[k] || after[k])
            printf("%-16s %8u %8u\n", mot_op_info((MotOpKind)k)->name, before[k], after[k]);
    printf("\nforward %.3f GFLOP, a training step %.3f GFLOP\n", count_flops(job->graph) * 1e-9,
           3 * count_flops(job->graph) * 1e-9);
    return MOT_OK;
}

static MotStatus run_import(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    MOT_TRY(mot_job_import(ctx, args, &job));
    MOT_TRY(mot_trained_find_ties(ctx, job.file, &job.trained));
    return mot_args_has(args, "--json") ? import_as_json(ctx, &job) : import_as_text(ctx, &job);
}

const MotVerb mot_verb_import = {
    .name = "import",
    .operands = "MODEL",
    .summary = "show what is in a model file: inputs, parameters, operators",
    .options = (const MotOption *const[]){mot_input_options, mot_model_options, NULL},
    .run = run_import};
