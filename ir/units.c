/*
 * Units: what a dim is dealt out in, given at the inputs; how far they reach, and what runs inside
 * of them.
 */
#include "ir/factors.h"

/* Inside of the units of its dim there are `size` pieces in each. */
static int64_t count_pieces(const MotFactor *f, const MotFactor *outer, bool is_same_dim)
{
    return is_same_dim ? outer->size * f->size : f->size;
}

int64_t mot_factor_operand_units(const MotFactors *factors, int f, uint32_t i)
{
    const MotFactor *own = &factors->factor[f];
    const MotFactor *outer = own->within < 0 ? NULL : &factors->factor[own->within];
    return count_pieces(own, outer, outer && outer->in_dim[i] == own->in_dim[i]);
}

int64_t mot_factor_result_units(const MotFactors *factors, int f, uint32_t i)
{
    const MotFactor *own = &factors->factor[f];
    const MotFactor *outer = own->within < 0 ? NULL : &factors->factor[own->within];
    return count_pieces(own, outer, outer && outer->out_dim[i] == own->out_dim[i]);
}

/* Takes an input's units; what they are said of must be dealt out evenly. */
static MotStatus read_units(const MotGraph *g, const MotOp *op)
{
    int64_t units = mot_attrs(op, input)->units;
    const MotType *type = mot_graph_type(g, op->out[0]);
    g->values.data[op->out[0]].units = units;
    if (units == 0)
        return MOT_OK;
    if (units < 0 || type->rank == 0 || type->dims[0] < 1 || type->dims[0] % units != 0)
        return mot_fail(g->ctx, MOT_ERR_MODEL, mot_op_loc(g, op),
                        "dim 0 of [%s] can't be dealt out in %lld units",
                        mot_shape_text(&g->ctx->arena, type->dims, type->rank), (long long)units);
    return MOT_OK;
}

/* From operand k, which has units, to the results that the same loop runs over. */
static void spread_units(const MotGraph *g, const MotOp *op, const MotFactors *factors, uint32_t k)
{
    const MotValueInfo *from = &g->values.data[op->in[k]];
    int f = mot_factor_of_operand(factors, k, from->units_dim);
    for (uint32_t r = 0; f >= 0 && r < op->n_out; r++)
        if (factors->factor[f].out_dim[r] >= 0) {
            g->values.data[op->out[r]].units = from->units;
            g->values.data[op->out[r]].units_dim = factors->factor[f].out_dim[r];
        }
}

MotStatus mot_factors_spread_units(const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        MotFactors factors = {0};
        for (uint32_t k = 0; k < op->n_out; k++)
            g->values.data[op->out[k]].units = 0;
        if (op->kind == MOT_OP_INPUT)
            MOT_TRY(read_units(g, op));
        for (uint32_t k = 0; k < op->n_in; k++) {
            if (!op->in[k] || !g->values.data[op->in[k]].units)
                continue;
            if (!factors.factor)
                MOT_TRY(mot_factors(g, op, &factors));
            spread_units(g, op, &factors, k);
        }
    }
    return MOT_OK;
}
