/*
 * Counting. FLOPs come from the graph's rule, functions from the pointwise rows' expressions and
 * the composites' expansions, the bytes of a kernel from its operands and results.
 */
#include "ir/count.h"

#include "ir/expand.h"

#include <math.h>
#include <string.h>

static const double PLAIN_PER_FUNCTION = 16; /* vector instructions of an exp or erf, about */

/* ---- Operators ---- */

static bool calls_a_function(const char *expression)
{
    for (const char *p = strchr(expression, '('); p; p = strchr(p + 1, '('))
        if (p > expression && p[-1] >= 'a' && p[-1] <= 'z')
            return true;
    return false;
}

/*
 * The part of the scores that attention computes: position t sees s <= t + S - T, in whole tiles.
 */
static double seen_part(const MotGraph *g, const MotOp *op)
{
    static const double tile = 64;
    if ((op->kind != MOT_OP_ATTENTION && op->kind != MOT_OP_ATTENTION_GRAD) ||
        !mot_attrs(op, attention)->causal)
        return 1;
    double t = (double)mot_graph_type(g, op->in[0])->dims[1],
           s = (double)mot_graph_type(g, op->in[1])->dims[1];
    return s > 0 && t > tile ? fmax(1 - (t - tile) / (2 * s), 0) : 1;
}

double mot_count_flops(const MotGraph *g, const MotOp *op)
{
    double again = op->kind == MOT_OP_ATTENTION_GRAD ? 1.25 : 1;
    return mot_op_flops(g, op) * seen_part(g, op) * again;
}

static double count_plain(const MotGraph *g, const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    if (info->class == MOT_POINTWISE)
        return (double)mot_type_elements(mot_graph_type(g, op->out[0])) /
               (calls_a_function(info->expression) ? 1 : PLAIN_PER_FUNCTION);
    if (op->kind == MOT_OP_REDUCE_SUM || op->kind == MOT_OP_REDUCE_MAX)
        return (double)mot_type_elements(mot_graph_type(g, op->in[0])) / PLAIN_PER_FUNCTION;
    return 0;
}

static void list_types(const MotGraph *g, const MotOp *op, MotType *out_types)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        out_types[i] = op->in[i] ? *mot_graph_type(g, op->in[i]) : (MotType){.dtype = MOT_NO_DTYPE};
}

double mot_count_functions(const MotGraph *g, const MotOp *op, const MotType *in_types)
{
    MotType own[MOT_MAX_OPERANDS];
    if (mot_op_info(op->kind)->class != MOT_COMPOSITE)
        return count_plain(g, op);
    if (!in_types)
        list_types(g, op, own);
    MotArenaMark mark = mot_arena_mark(&g->ctx->arena);
    MotExpansion e;
    double n = 0;
    if (mot_expand_alone(g->ctx, op, in_types ? in_types : own, &e) == MOT_OK)
        for (uint32_t i = 0; i < e.graph->body.n; i++)
            n += count_plain(e.graph, mot_graph_op(e.graph, e.graph->body.data[i]));
    if (g->ctx->status == MOT_OK)
        mot_arena_rewind(&g->ctx->arena, mark);
    return n * seen_part(g, op);
}

bool mot_count_reads_part(MotOpKind kind)
{
    return kind == MOT_OP_GATHER || kind == MOT_OP_SLICE;
}

/* ---- Instructions ---- */

/* Bytes of a kernel's operand that are read: all, unless its only readers take a part of it. */
static double count_read(const MotGraph *kernel, MotValue operand)
{
    double all = (double)mot_type_bytes(mot_graph_type(kernel, operand)), most = 0;
    for (uint32_t i = 0; i < kernel->body.n; i++) {
        const MotOp *op = mot_graph_op(kernel, kernel->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k] == operand)
                most = fmax(most, k == 0 && mot_count_reads_part(op->kind)
                                      ? (double)mot_type_bytes(mot_graph_type(kernel, op->out[0]))
                                      : all);
    }
    return fmin(most, all);
}

static double count_written(const MotGraph *kernel)
{
    double bytes = 0;
    for (uint32_t i = 0; i < kernel->body.n; i++) {
        const MotOp *op = mot_graph_op(kernel, kernel->body.data[i]);
        if (op->kind == MOT_OP_OUTPUT)
            bytes += (double)mot_type_bytes(mot_graph_type(kernel, op->in[0]));
    }
    return bytes;
}

/*
 * Adds one run of a kernel whose dims are bound. Where a share leaves no element to compute,
 * nothing is read either.
 */
static void add_kernel(const MotGraph *kernel, MotCount *count)
{
    double written = count_written(kernel);
    count->bytes += written;
    for (uint32_t i = 0; written > 0 && i < kernel->body.n; i++) {
        const MotOp *op = mot_graph_op(kernel, kernel->body.data[i]);
        if (op->kind == MOT_OP_INPUT)
            count->bytes += count_read(kernel, op->out[0]);
        count->flops += mot_count_flops(kernel, op);
        count->functions += mot_count_functions(kernel, op, NULL);
    }
}

static MotCount count_launch(MotCtx *ctx, const MotProgram *program, const MotInstr *ins,
                             const MotBinding *binding)
{
    MotCount count = {.launches = 1};
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    const int64_t *sizes = mot_launch_sizes(ctx, program, ins, binding);
    for (uint32_t set = 0; set < mot_launch_sets(ins); set++)
        add_kernel(mot_program_bind_kernel(ctx, program, ins->kernel, sizes + set), &count);
    if (ctx->status == MOT_OK)
        mot_arena_rewind(&ctx->arena, mark);
    return count;
}

MotCount mot_count_instr(MotCtx *ctx, const MotProgram *program, const MotInstr *ins,
                         const MotBinding *binding)
{
    MotCount count = {0};
    if (ins->kind == MOT_INS_LAUNCH)
        return count_launch(ctx, program, ins, binding);
    if (ins->kind == MOT_INS_PART || ins->kind == MOT_INS_COPY)
        for (uint32_t i = ins->n_in; i < ins->n_bufs; i++)
            count.bytes += 2 * (double)mot_type_bytes(&binding->types[ins->bufs[i]]);
    return count;
}

int64_t mot_count_received(const MotProgram *program, const MotInstr *ins,
                           const MotBinding *binding)
{
    int64_t bytes = 0, n = program->mesh.axis[ins->axis].n;
    for (uint32_t i = 0; i < ins->n_in; i++) {
        int64_t src = mot_type_bytes(&binding->types[ins->bufs[i]]);
        int64_t dst = mot_type_bytes(&binding->types[ins->bufs[ins->n_in + i]]);
        if (ins->kind == MOT_INS_ALL_REDUCE)
            bytes += 2 * dst * (n - 1) / n;
        else if (ins->kind == MOT_INS_REDUCE_SCATTER)
            bytes += dst * (n - 1);
        else
            bytes += ins->kind == MOT_INS_ALL_GATHER ? dst - src : dst;
    }
    return bytes;
}

double mot_count_seconds(const MotCount *count, const MotRates *rates)
{
    return count->launches * rates->launch + count->flops / rates->flops +
           fmax(count->functions / rates->functions, count->bytes / rates->bandwidth);
}
