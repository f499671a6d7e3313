/*
 * Sweeps in both directions until nothing changes: an op takes over what its operands or its users
 * split.
 */
#include "passes/plan/outer.h"

typedef struct {
    MotPlan *plan;
    const MotFactors *factors;
    int64_t units;
    int8_t *split; /* [values]: the dim that the axis splits, or -1 */
    bool is_changed;
} Outer;

int64_t mot_outer_units(const MotGraph *g)
{
    int64_t units = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT && mot_attrs(op, input)->units > units)
            units = mot_attrs(op, input)->units;
    }
    return units;
}

/* Whether the factor, if there is one, deals out the units. */
static bool deals_out(const Outer *o, const MotFactors *factors, int f)
{
    return f >= 0 && factors->factor[f].kind != MOT_FACTOR_WHOLE && factors->factor[f].within < 0 &&
           factors->factor[f].size == o->units;
}

static void choose(Outer *o, MotOpId id, int factor)
{
    const MotOp *op = mot_graph_op(o->plan->graph, id);
    o->plan->ops[id].factor[0] = (int8_t)factor;
    o->is_changed = true;
    for (uint32_t k = 0; k < op->n_out; k++)
        o->split[op->out[k]] = o->factors[id].factor[factor].out_dim[k];
}

/* By an operand that is split. */
static void follow_operands(Outer *o, MotOpId id)
{
    const MotOp *op = mot_graph_op(o->plan->graph, id);
    for (uint32_t i = 0; i < op->n_in && o->plan->ops[id].factor[0] < 0; i++) {
        int dim = o->split[op->in[i]];
        int f = dim >= 0 ? mot_factor_of_operand(&o->factors[id], i, dim) : -1;
        if (deals_out(o, &o->factors[id], f))
            choose(o, id, f);
    }
}

/* Makers of operands give them as the op needs them. */
static void lead_operands(Outer *o, MotOpId id)
{
    const MotGraph *g = o->plan->graph;
    const MotOp *op = mot_graph_op(g, id);
    int own = o->plan->ops[id].factor[0];
    for (uint32_t i = 0; i < op->n_in && own >= 0; i++) {
        int dim = o->factors[id].factor[own].in_dim[i];
        MotOpId def = g->values.data[op->in[i]].def;
        if (!op->in[i] || dim < 0 || o->plan->ops[def].factor[0] >= 0)
            continue;
        int f = mot_factor_of_result(&o->factors[def], g->values.data[op->in[i]].def_index, dim);
        if (deals_out(o, &o->factors[def], f))
            choose(o, def, f);
    }
}

void mot_outer_choose(MotPlan *plan, const MotFactors *factors)
{
    const MotGraph *g = plan->graph;
    MotArena *arena = &plan->ctx->arena;
    Outer o = {plan, factors, mot_outer_units(g),
               mot_arena_alloc_array(arena, g->values.n, sizeof(int8_t)), true};
    for (MotValue v = 0; v < g->values.n; v++)
        o.split[v] = -1;
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        plan->ops[id].factor[0] = -1;
        if (op->kind == MOT_OP_INPUT && mot_attrs(op, input)->units == o.units && o.units > 1)
            choose(&o, id, mot_factor_of_result(&factors[id], 0, 0));
    }
    while (o.is_changed) {
        o.is_changed = false;
        for (uint32_t i = 0; i < g->body.n; i++)
            follow_operands(&o, g->body.data[i]);
        for (uint32_t i = g->body.n; i-- > 0;)
            lead_operands(&o, g->body.data[i]);
    }
}
