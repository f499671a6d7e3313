/*
 * Reports: sums of mot_plan_evaluate by layer and device; alternatives by pinning one variable and
 * minimising again.
 */
#include "passes/plan/explain.h"

#include "passes/plan/evaluate.h"

#include <math.h>
#include <string.h>

static const char *time_text(MotArena *arena, double seconds)
{
    double a = fabs(seconds);
    return a >= 1      ? mot_arena_printf(arena, "%.3f s", seconds)
           : a >= 1e-3 ? mot_arena_printf(arena, "%.3f ms", seconds * 1e3)
                       : mot_arena_printf(arena, "%.1f us", seconds * 1e6);
}

typedef struct {
    const char *node;
    const char *split;
    double heaviest; /* seconds of the operator that `split` is about */
    double seconds, collective, bytes;
} Layer;

typedef struct {
    const MotPlan *plan;
    MotCost *cost;
    MotFactors *factors;
    MotPlanCost total;
    MotVec(Layer) layers;
    MotMap index; /* node -> index of its layer */
} Report;

static const char UPDATES[] = "(updates)", OTHERS[] = "(others)";

/* Updates are one layer: there are as many as parameters. */
static Layer *find_layer(Report *r, const MotOp *op)
{
    MotArena *arena = &r->plan->ctx->arena;
    const char *node = op->role == MOT_ROLE_UPDATE ? UPDATES
                       : mot_choice_node(op)[0]    ? mot_choice_node(op)
                                                   : OTHERS;
    uint64_t at;
    if (!mot_map_get_str(&r->index, node, &at)) {
        at = r->layers.n;
        mot_map_put_str(&r->index, node, at);
        mot_vec_push(arena, &r->layers, (Layer){.node = node, .split = "", .heaviest = -1});
    }
    return &r->layers.data[at];
}

/* What the axes split, the outer one first: "batch x heads". */
static const char *split_text(const Report *r, MotOpId id)
{
    const MotGraph *g = r->plan->graph;
    MotText text;
    mot_text_init(&text, &r->plan->ctx->arena);
    for (uint32_t a = 0; a <= r->cost->last; a++)
        mot_text_printf(
            &text, "%s%s", a ? " x " : "",
            mot_choice_name(g, mot_graph_op(g, id), &r->factors[id], r->plan->ops[id].factor[a]));
    return mot_text_get(&text);
}

static void add_op(Report *r, MotOpId id)
{
    const MotGraph *g = r->plan->graph;
    const MotOp *op = mot_graph_op(g, id);
    Layer *layer = find_layer(r, op);
    layer->seconds += r->total.op_seconds[id];
    layer->collective += r->total.op_collective[id];
    layer->bytes += r->total.op_bytes[id];
    if (op->role == MOT_ROLE_FORWARD && op->n_out && r->total.op_seconds[id] > layer->heaviest) {
        layer->heaviest = r->total.op_seconds[id];
        layer->split = split_text(r, id);
    }
}

static bool is_split(const Report *r, MotOpId id)
{
    for (uint32_t a = 0; a <= r->cost->last; a++)
        if (r->plan->ops[id].factor[a] >= 0)
            return true;
    return false;
}

/* How many of the updates are split: each device updates its part. */
static void describe_updates(Report *r)
{
    const MotGraph *g = r->plan->graph;
    uint32_t n = 0, n_split = 0;
    uint64_t at;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (!(mot_op_info(op->kind)->flags & MOT_FLAG_UPDATE))
            continue;
        n++;
        n_split += is_split(r, g->body.data[i]);
    }
    if (mot_map_get_str(&r->index, UPDATES, &at))
        r->layers.data[at].split =
            mot_arena_printf(&r->plan->ctx->arena, "%u of %u split", n_split, n);
}

static void print_layers(Report *r, MotText *out)
{
    MotArena *arena = &r->plan->ctx->arena;
    mot_text_printf(out, "%-40s %-16s %12s %12s %12s\n", "layer", "split", "compute", "collectives",
                    "moved");
    for (uint32_t i = 0; i < r->layers.n; i++) {
        const Layer *l = &r->layers.data[i];
        if (l->seconds + l->collective <= 0)
            continue;
        mot_text_printf(out, "%-40s %-16s %12s %12s %12s\n", mot_escape(arena, l->node, 40),
                        l->split, time_text(arena, l->seconds), time_text(arena, l->collective),
                        mot_bytes_text(arena, l->bytes));
    }
}

/* Of a device, along each axis: "3 x 1". */
static const char *shares_text(const Report *r, uint32_t position)
{
    const MotMesh *mesh = &r->plan->stages.data[0].mesh;
    MotText text;
    mot_text_init(&text, &r->plan->ctx->arena);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        mot_text_printf(&text, "%s%lld", a ? " x " : "",
                        (long long)mesh->axis[a].share[mot_mesh_coordinate(mesh, position, a)]);
    return mot_text_get(&text);
}

/* Its only share, or a list. */
static void put_shares(const Report *r, uint32_t position, MotJsonWriter *w)
{
    const MotMesh *mesh = &r->plan->stages.data[0].mesh;
    int64_t share[MOT_MAX_AXES];
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        share[a] = mesh->axis[a].share[mot_mesh_coordinate(mesh, position, a)];
    if (mesh->n_axes == 1)
        mot_json_put_int(w, "share", share[0]);
    else
        mot_json_put_ints(w, "shares", share, mesh->n_axes);
}

static void print_devices(const Report *r, MotText *out)
{
    MotArena *arena = &r->plan->ctx->arena;
    const MotMesh *mesh = &r->plan->stages.data[0].mesh;
    mot_text_printf(out, "\n%-16s %6s %12s %12s %6s %12s %12s %12s\n", "device", "share", "busy",
                    "collectives", "busy%", "memory", "of", "received");
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        const MotDevice *d = &r->plan->cluster->devices.data[mesh->devices[i]];
        const MotDevicePrediction *p = &r->total.devices[i];
        mot_text_printf(out, "%-16s %6s %12s %12s %5.0f%% %12s %12s %12s\n",
                        mot_escape(arena, d->name, 16), shares_text(r, i),
                        time_text(arena, p->busy), time_text(arena, p->communication),
                        100 * p->busy / r->total.step, mot_bytes_text(arena, p->memory),
                        d->memory > 0 ? mot_bytes_text(arena, d->memory) : "no cap",
                        mot_bytes_text(arena, p->bytes));
    }
}

static uint32_t count_assumed(const Report *r)
{
    const MotMesh *mesh = &r->plan->stages.data[0].mesh;
    uint32_t n = 0;
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        n += r->plan->cluster->devices.data[mesh->devices[i]].is_assumed;
    return n;
}

static void print_total(const Report *r, const MotPlanStats *stats, MotText *out)
{
    MotArena *arena = &r->plan->ctx->arena;
    double time = r->total.step, bound = r->plan->bound, collective = 0;
    for (uint32_t i = 0; i < r->plan->graph->body.n; i++)
        collective += r->total.op_collective[r->plan->graph->body.data[i]];
    mot_text_printf(out,
                    "\nstep %s, bound %s (compute over all devices, whole units): within %.1f %%\n",
                    time_text(arena, time), time_text(arena, bound),
                    bound > 0 ? 100 * (time / bound - 1) : 0.0);
    double hidden = r->total.serial - time;
    mot_text_printf(out,
                    "the difference: collectives %s, of which beside kernels %s; rounding, copies "
                    "and work done by all %s\n",
                    time_text(arena, collective), time_text(arena, hidden),
                    time_text(arena, r->total.serial - bound - collective));
    if (count_assumed(r))
        mot_text_printf(out,
                        "rates of %u of %u devices are assumed from their kind; `motley probe` "
                        "measures them\n",
                        count_assumed(r), r->plan->stages.data[0].mesh.n_devices);
    if (stats)
        mot_text_printf(out, "search: %s over %u variables, width %u, largest table %zu%s%s\n",
                        stats->is_exact ? "exact" : "not exact", stats->n_vars, stats->width,
                        stats->largest_table,
                        stats->is_memory_bound ? "; the fastest plan did not fit the memory" : "",
                        stats->saved > 0
                            ? mot_arena_printf(arena, "; shares other than the speeds save %s",
                                               time_text(arena, stats->saved))
                            : "");
}

static MotStatus make_report(const MotPlan *plan, Report *r)
{
    *r = (Report){.plan = plan};
    mot_map_init(&r->index, &plan->ctx->arena);
    MOT_TRY(mot_cost_of_plan(plan, &r->cost));
    MOT_TRY(mot_plan_factors(plan->ctx, plan->graph, &r->factors));
    mot_plan_evaluate(plan, r->cost, r->factors, &r->total);
    for (uint32_t i = 0; i < plan->graph->body.n; i++)
        add_op(r, plan->graph->body.data[i]);
    describe_updates(r);
    return MOT_OK;
}

MotStatus mot_plan_report(const MotPlan *plan, const MotPlanStats *stats, MotText *out)
{
    Report r;
    MOT_TRY(make_report(plan, &r));
    print_layers(&r, out);
    print_devices(&r, out);
    print_total(&r, stats, out);
    return MOT_OK;
}

/* NaN: null. */
static void put_bytes(MotJsonWriter *w, const char *key, double bytes)
{
    mot_json_put_number(w, key, round(bytes));
}

static void put_layers(const Report *r, MotJsonWriter *w)
{
    mot_json_open(w, "layers", '[');
    for (uint32_t i = 0; i < r->layers.n; i++) {
        const Layer *l = &r->layers.data[i];
        if (l->seconds + l->collective <= 0)
            continue;
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "layer", l->node);
        mot_json_put_string(w, "split", l->split);
        mot_json_put_number(w, "compute_s", l->seconds);
        mot_json_put_number(w, "collectives_s", l->collective);
        put_bytes(w, "moved_bytes", l->bytes);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

static void put_devices(const Report *r, MotJsonWriter *w)
{
    const MotMesh *mesh = &r->plan->stages.data[0].mesh;
    mot_json_open(w, "devices", '[');
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        const MotDevice *d = &r->plan->cluster->devices.data[mesh->devices[i]];
        const MotDevicePrediction *p = &r->total.devices[i];
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "device", d->name);
        put_shares(r, i, w);
        mot_json_put_number(w, "busy_s", p->busy);
        mot_json_put_number(w, "collectives_s", p->communication);
        put_bytes(w, "memory_bytes", p->memory);
        put_bytes(w, "memory_cap_bytes", d->memory > 0 ? d->memory : (double)NAN);
        put_bytes(w, "received_bytes", p->bytes);
        mot_json_put_bool(w, "assumed", d->is_assumed);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

MotStatus mot_plan_put_report(const MotPlan *plan, MotJsonWriter *w)
{
    Report r;
    MOT_TRY(make_report(plan, &r));
    mot_json_put_number(w, "step_s", r.total.step);
    mot_json_put_number(w, "bound_s", plan->bound);
    put_layers(&r, w);
    put_devices(&r, w);
    return MOT_OK;
}

/* ---- Explaining one operator ---- */

typedef struct {
    const MotPlan *plan;
    MotIntra *in;
    MotPlanCost chosen;
    double chosen_collective;
} Explanation;

static double sum_collectives(const MotGraph *g, const MotPlanCost *cost)
{
    double sum = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        sum += cost->op_collective[g->body.data[i]];
    return sum;
}

/*
 * The least time of a step in which variable v makes choice s: its other choices are priced out of
 * reach.
 */
static double minimise_pinned(const Explanation *e, uint32_t v, uint32_t s)
{
    MotArena *arena = &e->plan->ctx->arena;
    MotProblem pinned = e->in->problem;
    pinned.has_memory = false;
    pinned.tables.data = mot_arena_array(arena, MotTable, e->in->problem.tables.n + 1);
    memcpy(pinned.tables.data, e->in->problem.tables.data,
           e->in->problem.tables.n * sizeof(MotTable));
    pinned.tables.cap = pinned.tables.n + 1;
    MotTable pin = {.n_scope = 1,
                    .scope = mot_arena_copy(arena, &v, sizeof v),
                    .label = mot_arena_array(arena, MotLabel, pinned.n_choices[v])};
    for (uint32_t i = 0; i < pinned.n_choices[v]; i++)
        pin.label[i].seconds = i == s ? 0 : INFINITY;
    pinned.tables.data[pinned.tables.n++] = pin;
    MotSolutions solutions;
    MotPlan copy = mot_plan_copy(e->plan);
    MotPlanCost cost;
    mot_minimise(e->plan->ctx, &pinned, &solutions);
    mot_intra_apply(e->in, solutions.choice[0], &copy);
    mot_plan_evaluate(&copy, e->in->cost, e->in->factors, &cost);
    return cost.step;
}

/* What a choice costs, in seconds. */
typedef struct {
    const char *name;
    bool is_chosen;
    double own, more_collective; /* compute of its operators, and collectives against the plan's */
    double step, adapted;        /* of the whole step: the rest as it is, or the best for it */
} Alternative;

static Alternative weigh_choice(const Explanation *e, uint32_t v, uint32_t s)
{
    const MotVar *var = &e->in->vars.data[v];
    const MotGraph *g = e->plan->graph;
    MotPlan copy = mot_plan_copy(e->plan);
    MotPlanCost cost;
    mot_intra_apply_var(e->in, v, s, &copy);
    mot_plan_evaluate(&copy, e->in->cost, e->in->factors, &cost);
    Alternative a = {.name = mot_choice_name(g, mot_graph_op(g, var->leader),
                                             &e->in->factors[var->leader], var->choices.data[s]),
                     .is_chosen =
                         e->plan->ops[var->leader].factor[e->in->axis] == var->choices.data[s],
                     .more_collective = sum_collectives(g, &cost) - e->chosen_collective,
                     .step = cost.step,
                     .adapted = minimise_pinned(e, v, s)};
    for (uint32_t m = 0; m < var->members.n; m++)
        a.own += cost.op_seconds[var->members.data[m]];
    return a;
}

static void explain_var(const Explanation *e, uint32_t v, MotText *out)
{
    MotArena *arena = &e->plan->ctx->arena;
    const MotVar *var = &e->in->vars.data[v];
    const MotOp *op = mot_graph_op(e->plan->graph, var->leader);
    uint32_t n_followers = var->members.n - 1;
    mot_text_printf(out, "%s (%s) with %u %s from it\n", mot_quote(arena, mot_choice_node(op)),
                    mot_op_info(op->kind)->name, n_followers,
                    n_followers == 1 ? "operator that follows" : "operators that follow");
    mot_text_printf(out, "  %c %-12s %12s %13s %12s %12s\n", ' ', "choice", "compute",
                    "+collectives", "step, as is", "step, adapted");
    for (uint32_t s = 0; s < var->choices.n; s++) {
        Alternative a = weigh_choice(e, v, s);
        mot_text_printf(out, "  %c %-12s %12s %13s %12s %12s\n", a.is_chosen ? '*' : ' ', a.name,
                        time_text(arena, a.own), time_text(arena, a.more_collective),
                        time_text(arena, a.step), time_text(arena, a.adapted));
    }
}

static void put_var(const Explanation *e, uint32_t v, MotJsonWriter *w)
{
    const MotVar *var = &e->in->vars.data[v];
    const MotOp *op = mot_graph_op(e->plan->graph, var->leader);
    mot_json_open(w, NULL, '{');
    mot_json_put_string(w, "node", mot_choice_node(op));
    mot_json_put_string(w, "operator", mot_op_info(op->kind)->name);
    mot_json_put_int(w, "followers", var->members.n - 1);
    mot_json_open(w, "choices", '[');
    for (uint32_t s = 0; s < var->choices.n; s++) {
        Alternative a = weigh_choice(e, v, s);
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "choice", a.name);
        mot_json_put_bool(w, "chosen", a.is_chosen);
        mot_json_put_number(w, "compute_s", a.own);
        mot_json_put_number(w, "more_collectives_s", a.more_collective);
        mot_json_put_number(w, "step_s", a.step);
        mot_json_put_number(w, "adapted_step_s", a.adapted);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
    mot_json_close(w, '}');
}

/* As text, or as JSON: one of the two is NULL. */
static MotStatus explain(const MotPlan *plan, const char *glob, MotText *out, MotJsonWriter *w)
{
    Explanation e = {.plan = plan};
    uint32_t n = 0;
    MOT_TRY(mot_intra_open(plan, NULL, 0, &e.in));
    mot_plan_evaluate(plan, e.in->cost, e.in->factors, &e.chosen);
    e.chosen_collective = sum_collectives(plan->graph, &e.chosen);
    for (uint32_t v = 0; v < e.in->vars.n; v++) {
        const MotVar *var = &e.in->vars.data[v];
        if (var->choices.n < 2 ||
            !mot_glob_match(glob, mot_choice_node(mot_graph_op(plan->graph, var->leader))))
            continue;
        if (out)
            explain_var(&e, v, out);
        else
            put_var(&e, v, w);
        n++;
    }
    if (n > 0)
        return MOT_OK;
    mot_fail(plan->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "no operator with a choice matches %s",
             mot_quote(&plan->ctx->arena, glob));
    mot_hint(plan->ctx, "without it explain lists the layers, whose names it matches");
    return plan->ctx->status;
}

MotStatus mot_plan_explain(const MotPlan *plan, const char *glob, MotText *out)
{
    MOT_TRY(explain(plan, glob, out, NULL));
    mot_text_printf(out, "`+collectives` against the plan; `as is`: the rest of the plan stays; "
                         "`adapted`: the best plan "
                         "with this choice\n");
    return MOT_OK;
}

MotStatus mot_plan_put_explanation(const MotPlan *plan, const char *glob, MotJsonWriter *w)
{
    mot_json_open(w, "operators", '[');
    MOT_TRY(explain(plan, glob, NULL, w));
    mot_json_close(w, ']');
    return MOT_OK;
}
