/*
 * What of an op's counts (ir/count.h) a factor divides; bytes come from operands and results that
 * are in memory.
 */
#include "passes/plan/work.h"

#include "ir/count.h"

/*
 * Functions as a + b * units of the factor: counted for all units and for one.
 */
static MotQuantity find_functions(const MotGraph *g, const MotOp *op, const MotFactor *f)
{
    MotType types[MOT_MAX_OPERANDS];
    MotOpClass class = mot_op_info(op->kind)->class;
    double all = mot_count_functions(g, op, NULL);
    if (class != MOT_COMPOSITE) {
        bool runs_over_all = f && (class == MOT_POINTWISE ? f->out_dim[0] >= 0 : f->in_dim[0] >= 0);
        return runs_over_all ? (MotQuantity){.split = all} : (MotQuantity){.whole = all};
    }
    /*
     * The factors of a composite without elements do not fit one another: a reshape in it relates
     * no dims.
     */
    if (!f || mot_type_elements(mot_graph_type(g, op->out[0])) == 0)
        return (MotQuantity){.whole = all};
    if (f->size < 2)
        return (MotQuantity){.split = all};
    for (uint32_t i = 0; i < op->n_in; i++) {
        types[i] = op->in[i] ? *mot_graph_type(g, op->in[i]) : (MotType){.dtype = MOT_NO_DTYPE};
        if (op->in[i] && f->in_dim[i] >= 0)
            types[i].dims[f->in_dim[i]] /= f->size;
    }
    double split =
        (all - mot_count_functions(g, op, types)) * (double)f->size / (double)(f->size - 1);
    return (MotQuantity){.whole = all - split, .split = split};
}

/*
 * FLOPs that do not shrink with the factor: what would be left of the op if the factor had size 0.
 */
static MotQuantity find_flops(const MotGraph *g, const MotOp *op, const MotFactor *f)
{
    double all = mot_count_flops(g, op);
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
    double whole = mot_count_flops(&shrunk, &copy);
    return (MotQuantity){.whole = whole, .split = all - whole};
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
        if (i == 0 && mot_count_reads_part(op->kind)) {
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
