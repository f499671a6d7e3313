/*
 * Counting. FLOPs come from the graph's rule, functions from the pointwise rows' expressions and
 * the composites' expansions, bytes from operands and results that are in memory.
 */
#include "passes/plan/work.h"

#include "ir/expand.h"

#include <math.h>
#include <string.h>

static const double PLAIN_PER_FUNCTION = 16; /* vector instructions of an exp or erf, about */

static bool calls_a_function(const char *expression)
{
    for (const char *p = strchr(expression, '('); p; p = strchr(p + 1, '('))
        if (p > expression && p[-1] >= 'a' && p[-1] <= 'z')
            return true;
    return false;
}

/* The part of the scores that attention computes: position t sees s <= t + S - T, in whole tiles. */
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

static double count_functions(const MotGraph *g, const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    if (info->class == MOT_POINTWISE)
        return (double)mot_type_elements(mot_graph_type(g, op->out[0])) /
               (calls_a_function(info->expression) ? 1 : PLAIN_PER_FUNCTION);
    if (op->kind == MOT_OP_REDUCE_SUM || op->kind == MOT_OP_REDUCE_MAX)
        return (double)mot_type_elements(mot_graph_type(g, op->in[0])) / PLAIN_PER_FUNCTION;
    return 0;
}

/* Of one op over operands of these types. */
static double count_expanded(const MotGraph *g, const MotOp *op, const MotType *in_types)
{
    MotArenaMark mark = mot_arena_mark(&g->ctx->arena);
    MotExpansion e;
    double n = 0;
    if (mot_expand_alone(g->ctx, op, in_types, &e) == MOT_OK)
        for (uint32_t i = 0; i < e.graph->body.n; i++)
            n += count_functions(e.graph, mot_graph_op(e.graph, e.graph->body.data[i]));
    if (g->ctx->status == MOT_OK)
        mot_arena_rewind(&g->ctx->arena, mark);
    return n * seen_part(g, op);
}

static void list_types(const MotGraph *g, const MotOp *op, MotType *out_types)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        out_types[i] = op->in[i] ? *mot_graph_type(g, op->in[i]) : (MotType){.dtype = MOT_NO_DTYPE};
}

/*
 * Functions as a + b * units of the factor: counted for all units and for one.
 */
static MotQuantity find_functions(const MotGraph *g, const MotOp *op, const MotFactor *f)
{
    MotType types[MOT_MAX_OPERANDS];
    MotOpClass class = mot_op_info(op->kind)->class;
    list_types(g, op, types);
    if (class != MOT_COMPOSITE) {
        double n = count_functions(g, op);
        bool runs_over_all = f && (class == MOT_POINTWISE ? f->out_dim[0] >= 0 : f->in_dim[0] >= 0);
        return runs_over_all ? (MotQuantity){.split = n} : (MotQuantity){.whole = n};
    }
    double all = count_expanded(g, op, types);
    if (!f)
        return (MotQuantity){.whole = all};
    if (f->size < 2)
        return (MotQuantity){.split = all};
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && f->in_dim[i] >= 0)
            types[i].dims[f->in_dim[i]] /= f->size;
    double split = (all - count_expanded(g, op, types)) * (double)f->size / (double)(f->size - 1);
    return (MotQuantity){.whole = all - split, .split = split};
}

/* Attention counts its T x T products that a causal mask leaves; its gradient computes the scores again. */
static double count_flops(const MotGraph *g, const MotOp *op)
{
    double again = op->kind == MOT_OP_ATTENTION_GRAD ? 1.25 : 1;
    return mot_op_flops(g, op) * seen_part(g, op) * again;
}

/* FLOPs that do not shrink with the factor: what would be left of the op if the factor had size 0. */
static MotQuantity find_flops(const MotGraph *g, const MotOp *op, const MotFactor *f)
{
    double all = count_flops(g, op);
    if (all <= 0 || !f)
        return (MotQuantity){.whole = all};
    MotValueInfo values[MOT_MAX_OPERANDS + 1] = {{.name = NULL}};
    MotValue in[MOT_MAX_OPERANDS];
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = i + 1;
        values[i + 1].type = *mot_graph_type(g, op->in[i]);
        if (f->in_dim[i] >= 0)
            values[i + 1].type.dims[f->in_dim[i]] = 0;
    }
    MotGraph shrunk = {.ctx = g->ctx, .values = {.data = values, .n = op->n_in + 1}};
    MotOp copy = *op;
    copy.in = in;
    double whole = count_flops(&shrunk, &copy);
    return (MotQuantity){.whole = whole, .split = all - whole};
}

/* Operators that read of operand 0 no more than they write. */
static bool reads_what_it_writes(MotOpKind kind)
{
    return kind == MOT_OP_GATHER || kind == MOT_OP_SLICE;
}

static MotQuantity find_bytes(const MotGraph *g, const MotFusion *fusion, const MotOp *op,
                              const MotFactor *f)
{
    MotQuantity bytes = {0};
    uint64_t is_free = fusion->is_free[g->values.data[op->out[0]].def];
    for (uint32_t k = 0; k < op->n_out; k++)
        if (!fusion->is_inner[op->out[k]])
            *(f && f->out_dim[k] >= 0 ? &bytes.split : &bytes.whole) +=
                (double)mot_type_bytes(mot_graph_type(g, op->out[k]));
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (is_free >> i & 1)
            continue;
        double n = (double)mot_type_bytes(mot_graph_type(g, op->in[i]));
        bool is_split = f && f->in_dim[i] >= 0;
        if (i == 0 && reads_what_it_writes(op->kind)) {
            double written = (double)mot_type_bytes(mot_graph_type(g, op->out[0]));
            n = n < written ? n : written;
            is_split = f && f->out_dim[0] >= 0;
        }
        *(is_split ? &bytes.split : &bytes.whole) += n;
    }
    return bytes;
}

MotWork mot_work_find(const MotGraph *g, const MotFusion *fusion, const MotOp *op,
                      const MotFactors *factors, int factor)
{
    const MotFactor *f = factor >= 0 ? &factors->factor[factor] : NULL;
    MotOpId id = op->n_out ? g->values.data[op->out[0]].def : 0;
    if (!fusion->launch[id] || fusion->is_view[id])
        return (MotWork){0};
    return (MotWork){.flops = find_flops(g, op, f),
                     .functions = find_functions(g, op, f),
                     .bytes = find_bytes(g, fusion, op, f),
                     .is_launch = fusion->is_first[id]};
}
