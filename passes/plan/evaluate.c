/*
 * One walk over the body: times and bytes as it goes, buffers' lifetimes as changes at positions
 * (launches), summed up at the end.
 */
#include "passes/plan/evaluate.h"

#include <math.h>
#include <stdlib.h>

/* A value under some sharding, in memory from its making to its last reader. */
typedef struct {
    MotSharding s;
    uint32_t first, last;
    uint32_t next;  /* the value's next form */
    uint32_t owner; /* the form whose memory it shares */
    bool is_inner;  /* never in memory */
    double at;      /* when it is there, in seconds of kernels from the beginning of the step */
} Form;

/* A collective that is made with others, some time between `ready` and `needed`. */
typedef struct {
    uint32_t from, to;          /* forms */
    uint32_t ready, needed;     /* positions */
    double ready_at, needed_at; /* seconds */
    double bytes, seconds;
} Gathered;

typedef struct {
    const MotPlan *plan;
    const MotGraph *g;
    MotCost *cost;
    const MotFactors *factors;
    MotPlanCost *out;
    MotVec(Form) forms; /* 0 is none */
    MotVec(Gathered) gathered;
    uint32_t *first_form; /* [values]: what the defining op left */
    uint32_t position, n_positions;
    double now; /* seconds of kernels and copies since the beginning of the step */
    /* seconds of collectives beside which there is no kernel, nor another one on the same links */
    double waited;
    double *change;                                 /* [n_positions + 1][n] bytes */
    double *received, *copying, *busy, *persistent; /* [n] */
} Walk;

const char *mot_plan_why_untimed(const MotPlan *plan)
{
    if (plan->stages.n == 1)
        return NULL;
    return mot_arena_printf(&plan->ctx->arena, "plans of %u stages have no cost yet",
                            plan->stages.n);
}

MotStatus mot_cost_of_plan(const MotPlan *plan, MotCost **out_cost)
{
    const char *why = mot_plan_why_untimed(plan);
    if (why)
        return mot_fail(plan->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "%s", why);
    MOT_TRY(
        mot_cost_make(plan->ctx, plan->graph, plan->cluster, &plan->stages.data[0].mesh, out_cost));
    if (plan->stages.data[0].mesh.n_axes > 1)
        (*out_cost)->given = plan->ops;
    mot_cost_set_micro(*out_cost, plan->n_micro);
    return MOT_OK;
}

MotStatus mot_plan_factors(MotCtx *ctx, const MotGraph *g, MotFactors **out_factors)
{
    MotFactors *factors = mot_arena_array(&ctx->arena, MotFactors, g->ops.n);
    for (uint32_t i = 0; i < g->body.n; i++)
        MOT_TRY(mot_factors(g, mot_graph_op(g, g->body.data[i]), &factors[g->body.data[i]]));
    *out_factors = factors;
    return MOT_OK;
}

/* Sums over micro-batches have a place of their own, too. */
static bool is_stored(const MotPlan *plan, const MotOp *op)
{
    return op->kind == MOT_OP_PARAM || op->kind == MOT_OP_INPUT || op->kind == MOT_OP_CONSTANT ||
           (op->kind == MOT_OP_ACCUMULATE && plan->n_micro > 1);
}

/* The batches of a step are all there from its beginning. */
static uint32_t n_copies(const MotPlan *plan, const MotOp *op)
{
    return op->kind == MOT_OP_INPUT && mot_attrs(op, input)->name[0] != '@' ? plan->n_micro : 1;
}

static uint32_t add_form(Walk *w, MotValue v, MotSharding s)
{
    uint32_t *link = &w->first_form[v];
    while (*link)
        link = &w->forms.data[*link].next;
    *link = w->forms.n;
    mot_vec_push(&w->plan->ctx->arena, &w->forms,
                 (Form){.s = s, .first = w->position, .last = w->position, .at = w->now});
    return w->forms.n - 1;
}

/* The form, and the one whose memory it shares, live until `position`. */
static void use_form(Walk *w, uint32_t form, uint32_t position)
{
    for (; form; form = w->forms.data[form].owner)
        if (w->forms.data[form].last < position)
            w->forms.data[form].last = position;
}

/* A step of a conversion, from a form to the one that it leaves. */
static uint32_t add_step(Walk *w, MotOpId user, MotValue v, const MotTransition *left,
                         const MotConversion *step, uint32_t from)
{
    bool travels = left->is_gathered && !step->is_local;
    *(step->is_local ? &w->out->op_seconds[user] : &w->out->op_collective[user]) += step->seconds;
    w->out->op_bytes[user] += step->bytes;
    if (!travels)
        *(step->is_local ? &w->now : &w->waited) += step->seconds;
    uint32_t made = add_form(w, v, left->have);
    const Form *source = &w->forms.data[from];
    if (travels)
        mot_vec_push(&w->plan->ctx->arena, &w->gathered,
                     (Gathered){.from = from,
                                .to = made,
                                .ready = source->first,
                                .needed = w->position,
                                .ready_at = source->at,
                                .needed_at = w->now,
                                .bytes = (double)mot_type_bytes(left->type),
                                .seconds = step->seconds});
    else
        use_form(w, from, w->position);
    return made;
}

/*
 * The operand in the sharding that the user needs: found, or made from what the defining op left.
 */
static uint32_t take_operand(Walk *w, MotOpId user, MotValue v, MotSharding need)
{
    uint32_t form = w->first_form[v];
    for (uint32_t i = form; i; i = w->forms.data[i].next)
        if (mot_sharding_equal(w->forms.data[i].s, need)) {
            use_form(w, i, w->position);
            return i;
        }
    MotTransition t = mot_cost_transition(w->cost, v, w->forms.data[form].s, need, user);
    MotConversion step;
    while (mot_cost_next(w->cost, &t, w->received, w->copying, &step))
        form = add_step(w, user, v, &t, &step, form);
    return form;
}

static void spend(Walk *w, MotOpId id, double seconds)
{
    w->out->op_seconds[id] += seconds;
    w->now += seconds;
}

static void take_sink(Walk *w, MotOpId id)
{
    const MotOp *op = mot_graph_op(w->g, id);
    if (op->kind == MOT_OP_OUTPUT) { /* the host reads it when all is done */
        use_form(w, take_operand(w, id, op->in[0], mot_replicated), w->n_positions - 1);
        return;
    }
    MotSharding own = w->plan->values[op->in[0]];
    uint32_t form = take_operand(w, id, op->in[1], own);
    if (op->kind == MOT_OP_GRADIENT)
        use_form(w, form, w->n_positions - 1);
    else if (w->cost->fusion.is_in_place[op->in[1]])
        w->forms.data[form].owner = w->first_form[op->in[0]];
    else
        spend(w, id, mot_cost_copy(w->cost, mot_graph_type(w->g, op->in[0]), own, 1, w->busy));
}

/*
 * Of operands [n_in] that lie in the memory of the result: a concat's parts; or the other way
 * around.
 */
static void share_memory(Walk *w, const MotOp *op, const uint32_t *operands, uint32_t result)
{
    if (op->kind != MOT_OP_CONCAT) {
        w->forms.data[result].owner = operands[0];
        return;
    }
    for (uint32_t i = 0; i < op->n_in; i++) {
        w->forms.data[operands[i]].owner = result;
        if (w->forms.data[operands[i]].first < w->forms.data[result].first)
            w->forms.data[result].first = w->forms.data[operands[i]].first;
    }
}

static void take_op(Walk *w, MotOpId id)
{
    const MotOp *op = mot_graph_op(w->g, id);
    uint32_t operands[MOT_MAX_OPERANDS] = {0};
    if (w->cost->fusion.launch[id])
        w->position = w->cost->fusion.launch[id];
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i])
            operands[i] =
                take_operand(w, id, op->in[i], mot_plan_operand(w->plan, id, &w->factors[id], i));
    spend(
        w, id,
        mot_cost_op(w->cost, op, &w->factors[id], w->plan->ops[id].factor[w->cost->last], w->busy));
    for (uint32_t k = 0; k < op->n_out; k++) {
        uint32_t form = add_form(w, op->out[k], w->plan->values[op->out[k]]);
        w->forms.data[form].is_inner = w->cost->fusion.is_inner[op->out[k]];
        if (w->cost->fusion.is_view[id])
            share_memory(w, op, operands, form);
    }
}

static double padded_bytes(Walk *w, MotValue v, MotSharding s, uint32_t i)
{
    enum { ALIGN = 64 };
    int64_t bytes = (int64_t)mot_cost_local_bytes(w->cost, mot_graph_type(w->g, v), s, i);
    int64_t n_lines = (bytes + ALIGN - 1) / ALIGN;
    return (double)(n_lines * ALIGN);
}

/* The sharding in which a stored value is kept; a sum over micro-batches as its operand is left. */
static MotSharding home_of(const Walk *w, MotValue v)
{
    const MotOp *def = mot_graph_def(w->g, v);
    return w->plan->values[def->kind == MOT_OP_ACCUMULATE ? def->in[0] : v];
}

static int compare_ready(const void *a, const void *b)
{
    const Gathered *x = a, *y = b;
    return x->ready != y->ready ? (x->ready > y->ready) - (x->ready < y->ready)
                                : (x->to > y->to) - (x->to < y->to);
}

static int compare_needed(const void *a, const void *b)
{
    const Gathered *x = a, *y = b;
    return (x->needed_at > y->needed_at) - (x->needed_at < y->needed_at);
}

/*
 * How long kernels wait for gathered collectives, which travel one after the other from when their
 * sources are there. They are in that order.
 */
static double find_stall(Walk *w)
{
    double free_at = 0, stall = 0;
    for (uint32_t i = 0; i < w->gathered.n; i++) {
        Gathered *g = &w->gathered.data[i];
        free_at = fmax(free_at, g->ready_at) + g->seconds;
        g->ready_at = free_at; /* from here on: when the result is there */
    }
    if (w->gathered.n)
        qsort(w->gathered.data, w->gathered.n, sizeof *w->gathered.data, compare_needed);
    for (uint32_t i = 0; i < w->gathered.n; i++) {
        const Gathered *g = &w->gathered.data[i];
        stall += fmax(g->ready_at - (g->needed_at + stall), 0);
    }
    return stall;
}

/*
 * Gathered collectives are made in buckets, as in passes/lower/coalesce.c: an eighth of the bytes,
 * but a mebibyte at least. Sources live until then, and results from then on.
 */
static void time_gathered(Walk *w)
{
    static const double BUCKETS = 8, LEAST_BYTES = 1 << 20;
    Gathered *all = w->gathered.data;
    uint32_t n = w->gathered.n;
    double total = 0, bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        total += all[i].bytes;
    if (n)
        qsort(all, n, sizeof *all, compare_ready);
    for (uint32_t begin = 0, end = 0; begin < n; begin = end, bytes = 0) {
        uint32_t needed = all[begin].needed, made = all[begin].ready;
        for (; end < n && bytes < fmax(total / BUCKETS, LEAST_BYTES) && all[end].ready <= needed;
             end++) {
            bytes += all[end].bytes;
            made = all[end].ready;
            needed = all[end].needed < needed ? all[end].needed : needed;
        }
        for (uint32_t i = begin; i < end; i++) {
            use_form(w, all[i].from, made);
            w->forms.data[all[i].to].first = made;
        }
    }
}

/* Persistent buffers and the peak of the others, a device. */
static void sum_memory(Walk *w)
{
    uint32_t n = w->cost->n;
    for (MotValue v = 1; v < w->g->values.n; v++) {
        bool is_home = is_stored(w->plan, mot_graph_def(w->g, v));
        for (uint32_t f = w->first_form[v]; f; f = w->forms.data[f].next, is_home = false) {
            const Form *form = &w->forms.data[f];
            for (uint32_t i = 0; i < n && !form->owner && !form->is_inner; i++) {
                double bytes = padded_bytes(w, v, is_home ? home_of(w, v) : form->s, i);
                if (is_home) {
                    w->persistent[i] += bytes * n_copies(w->plan, mot_graph_def(w->g, v));
                    continue;
                }
                w->change[(size_t)form->first * n + i] += bytes;
                w->change[((size_t)form->last + 1) * n + i] -= bytes;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        double live = 0, peak = 0;
        for (uint32_t p = 0; p < w->n_positions; p++) {
            live += w->change[(size_t)p * n + i];
            peak = live > peak ? live : peak;
        }
        w->out->devices[i].memory = w->persistent[i] + peak;
    }
}

/* Assignments come last, as in the program. */
static void walk_body(Walk *w)
{
    for (int assigns = 0; assigns < 2; assigns++)
        for (uint32_t i = 0; i < w->g->body.n; i++) {
            MotOpId id = w->g->body.data[i];
            const MotOp *op = mot_graph_op(w->g, id);
            if ((op->kind == MOT_OP_ASSIGN) != (assigns == 1))
                continue;
            if (mot_op_info(op->kind)->class == MOT_SINK)
                take_sink(w, id);
            else
                take_op(w, id);
        }
    time_gathered(w);
    sum_memory(w);
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
              .n_positions = g->body.n + 2,
              .change = mot_arena_array(arena, double, ((size_t)g->body.n + 3) * n),
              .received = mot_arena_array(arena, double, n),
              .copying = mot_arena_array(arena, double, n),
              .busy = mot_arena_array(arena, double, n),
              .persistent = mot_arena_array(arena, double, n)};
    mot_vec_push(arena, &w.forms, (Form){0});
    walk_body(&w);
    double collectives = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        collectives += out_cost->op_collective[id];
        out_cost->serial += out_cost->op_seconds[id] + out_cost->op_collective[id];
    }
    out_cost->step = cost->overlaps ? w.now + w.waited + find_stall(&w) : out_cost->serial;
    for (uint32_t i = 0; i < n; i++) {
        out_cost->devices[i].busy = w.busy[i] + w.copying[i];
        out_cost->devices[i].communication = collectives;
        out_cost->devices[i].bytes = w.received[i];
    }
}
