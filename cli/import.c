/* motley import: what is in a model file, and what Motley makes of it. */
#include "cli/job.h"
#include "cli/verbs.h"

#include <stdio.h>

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
                       row->looks_tied, row->name);
        }
    }
}

static void count_ops(const MotGraph *g, uint32_t *out_counts)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        out_counts[mot_graph_op(g, g->body.data[i])->kind]++;
}

static double count_flops(const MotGraph *g)
{
    double flops = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        flops += mot_op_flops(g, mot_graph_op(g, g->body.data[i]));
    return flops;
}

static MotStatus run_import(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    uint32_t before[MOT_N_OPS] = {0}, after[MOT_N_OPS] = {0};
    MOT_TRY(mot_job_import(ctx, args, &job));
    MOT_TRY(mot_trained_find_ties(ctx, job.file, &job.trained));
    print_signature(&ctx->arena, job.graph);
    count_ops(job.graph, before);
    print_params(&ctx->arena, &job.trained);
    MOT_TRY(mot_job_prepare_forward(ctx, &job));
    count_ops(job.graph, after);
    printf("\n%-16s %8s %8s\n", "operator", "imported", "raised");
    for (int k = 1; k < MOT_N_OPS; k++)
        if (before[k] || after[k])
            printf("%-16s %8u %8u\n", mot_op_info((MotOpKind)k)->name, before[k], after[k]);
    printf("\nforward %.3f GFLOP, a training step %.3f GFLOP\n", count_flops(job.graph) * 1e-9,
           3 * count_flops(job.graph) * 1e-9);
    return MOT_OK;
}

const MotVerb mot_verb_import = {
    .name = "import",
    .operands = "MODEL",
    .summary = "show what is in a model file: inputs, parameters, operators",
    .options = (const MotOption *const[]){mot_input_options, mot_model_options, NULL},
    .run = run_import};
