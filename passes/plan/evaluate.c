/*
 * One walk over the body: times and bytes as it goes, buffers' lifetimes as changes at positions,
 * summed up at the end.
 */
#include "passes/plan/evaluate.h"

/* A buffer that holds a value under some sharding, from its making to its last reader. */
typedef struct {
    MotSharding s;
    uint32_t first, last;
    uint32_t next; /* index + 1 of the value's next form */
} Form;

typedef struct {
    const MotPlan *plan;
    const MotGraph *g;
    MotCost *cost;
    const MotFactors *factors;
    MotPlanCost *out;
    MotVec(Form) forms;
    uint32_t *first_form; /* [values]: index + 1; the first is what the defining op left */
    double *change;       /* [positions + 1][n] bytes */
    double *received, *copying, *busy, *persistent; /* [n] */
} Walk;

MotStatus mot_cost_of_plan(const MotPlan *plan, MotCost **out_cost)
{
    if (plan->stages.n != 1)
        return mot_fail(plan->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "plans of %u stages have no cost yet", plan->stages.n);
    return mot_cost_make(plan->ctx, plan->graph, plan->cluster, &plan->stages.data[0].mesh,
                         out_cost);
}

MotStatus mot_plan_factors(MotCtx *ctx, const MotGraph *g, MotFactors **out_factors)
{
    MotFactors *factors = mot_arena_array(&ctx->arena, MotFactors, g->ops.n);
    for (uint32_t i = 0; i < g->body.n; i++)
        MOT_TRY(mot_factors(g, mot_graph_op(g, g->body.data[i]), &factors[g->body.data[i]]));
    *out_factors = factors;
    return MOT_OK;
}

static bool is_stored(const MotOp *op)
{
    return op->kind == MOT_OP_PARAM || op->kind == MOT_OP_INPUT || op->kind == MOT_OP_CONSTANT;
}

static Form *add_form(Walk *w, MotValue v, MotSharding s, uint32_t position)
{
    uint32_t *link = &w->first_form[v];
    while (*link)
        link = &w->forms.data[*link - 1].next;
    uint32_t new_index = w->forms.n + 1;
    *link = new_index;
    mot_vec_push(&w->plan->ctx->arena, &w->forms, (Form){s, position, position, 0});
    return &w->forms.data[new_index - 1];
}

/*
 * The operand in the sharding that the user needs: found, or made from what the defining op left.
 */
static void take_operand(Walk *w, MotOpId user, MotValue v, MotSharding need, uint32_t position)
{
    Form *left = &w->forms.data[w->first_form[v] - 1];
    for (uint32_t i = w->first_form[v]; i; i = w->forms.data[i - 1].next)
        if (mot_sharding_equal(w->forms.data[i - 1].s, need)) {
            w->forms.data[i - 1].last = position;
            return;
        }
    MotConversion c =
        mot_cost_convert(w->cost, mot_graph_type(w->g, v), left->s, need, w->received, w->copying);
    *(c.is_local ? &w->out->op_seconds[user] : &w->out->op_collective[user]) += c.seconds;
    w->out->op_bytes[user] += c.bytes;
    left->last = position;
    add_form(w, v, need, position);
}

static void take_sink(Walk *w, MotOpId id, uint32_t position)
{
    const MotOp *op = mot_graph_op(w->g, id);
    if (op->kind == MOT_OP_OUTPUT) {
        take_operand(w, id, op->in[0], mot_replicated, position);
        return;
    }
    MotSharding own = w->plan->values[op->in[0]];
    take_operand(w, id, op->in[1], own, position);
    w->out->op_seconds[id] += mot_cost_copy(w->cost, mot_graph_type(w->g, op->in[0]), own, w->busy);
}

static void take_op(Walk *w, MotOpId id, uint32_t position)
{
    const MotOp *op = mot_graph_op(w->g, id);
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i])
            take_operand(w, id, op->in[i], mot_plan_operand(w->plan, id, &w->factors[id], i),
                         position);
    w->out->op_seconds[id] +=
        mot_cost_op(w->cost, op, &w->factors[id], w->plan->ops[id].factor[0], w->busy);
    for (uint32_t k = 0; k < op->n_out; k++)
        add_form(w, op->out[k], w->plan->values[op->out[k]], position);
}

static double padded_bytes(Walk *w, MotValue v, MotSharding s, uint32_t i)
{
    enum { ALIGN = 64 };
    int64_t bytes = (int64_t)mot_cost_local_bytes(w->cost, mot_graph_type(w->g, v), s, i);
    return (double)((bytes + ALIGN - 1) / ALIGN * ALIGN);
}

/* Persistent buffers and the peak of the others, a device. */
static void sum_memory(Walk *w, uint32_t n_positions)
{
    uint32_t n = w->cost->n;
    for (MotValue v = 1; v < w->g->values.n; v++) {
        bool is_home = is_stored(mot_graph_def(w->g, v));
        for (uint32_t f = w->first_form[v]; f; f = w->forms.data[f - 1].next, is_home = false) {
            const Form *form = &w->forms.data[f - 1];
            for (uint32_t i = 0; i < n; i++) {
                double bytes = padded_bytes(w, v, form->s, i);
                if (is_home) {
                    w->persistent[i] += bytes;
                    continue;
                }
                w->change[(size_t)form->first * n + i] += bytes;
                w->change[((size_t)form->last + 1) * n + i] -= bytes;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        double live = 0, peak = 0;
        for (uint32_t p = 0; p < n_positions; p++) {
            live += w->change[(size_t)p * n + i];
            peak = live > peak ? live : peak;
        }
        w->out->devices[i].memory = w->persistent[i] + peak;
    }
}

static bool is_assignment(const MotOp *op)
{
    return mot_op_info(op->kind)->class == MOT_SINK && op->kind != MOT_OP_OUTPUT;
}

/* Assignments come last, as in the program. */
static void walk_body(Walk *w)
{
    uint32_t position = 0;
    for (int assigns = 0; assigns < 2; assigns++)
        for (uint32_t i = 0; i < w->g->body.n; i++) {
            MotOpId id = w->g->body.data[i];
            const MotOp *op = mot_graph_op(w->g, id);
            if (is_assignment(op) != (assigns == 1))
                continue;
            if (mot_op_info(op->kind)->class == MOT_SINK)
                take_sink(w, id, position);
            else
                take_op(w, id, position);
            position++;
        }
    sum_memory(w, position + 1);
}

void mot_plan_evaluate(const MotPlan *plan, MotCost *cost, const MotFactors *factors,
                       MotPlanCost *out_cost)
{
    MotArena *arena = &plan->ctx->arena;
    const MotGraph *g = plan->graph;
    uint32_t n = cost->n;
    *out_cost = (MotPlanCost){.op_seconds = mot_arena_array(arena, double, g->ops.n),
                              .op_collective = mot_arena_array(arena, double, g->ops.n),
                              .op_bytes = mot_arena_array(arena, double, g->ops.n),
                              .devices = mot_arena_array(arena, MotDevicePrediction, n)};
    Walk w = {.plan = plan,
              .g = g,
              .cost = cost,
              .factors = factors,
              .out = out_cost,
              .first_form = mot_arena_array(arena, uint32_t, g->values.n),
              .change = mot_arena_array(arena, double, ((size_t)g->body.n + 2) * n),
              .received = mot_arena_array(arena, double, n),
              .copying = mot_arena_array(arena, double, n),
              .busy = mot_arena_array(arena, double, n),
              .persistent = mot_arena_array(arena, double, n)};
    walk_body(&w);
    double collectives = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        collectives += out_cost->op_collective[id];
        out_cost->time += out_cost->op_seconds[id] + out_cost->op_collective[id];
    }
    for (uint32_t i = 0; i < n; i++) {
        out_cost->devices[i].busy = w.busy[i] + w.copying[i];
        out_cost->devices[i].communication = collectives;
        out_cost->devices[i].bytes = w.received[i];
    }
}
