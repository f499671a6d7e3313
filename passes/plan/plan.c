/*
 * The planner: mesh and shares from the cluster, variables and tables from the graph, the minimum
 * by elimination, the plan from its choices. Memory is held by taking the fastest of the
 * non-dominated solutions whose evaluated peak fits every device, and where none does by smaller
 * shares for the devices that lack it.
 */
#include "passes/plan/plan.h"

#include "passes/plan/evaluate.h"
#include "passes/plan/mesh.h"
#include "passes/plan/outer.h"

#include <math.h>
#include <string.h>

enum { MAX_TRIES = 8 }; /* of smaller shares for devices that lack memory */
/* What laying buffers out beside each other may need above the prediction. */
static const double LAYOUT_SLACK = 1.05;

static void set_predictions(MotPlan *plan, const MotPlanCost *cost)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    plan->time = cost->step;
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        plan->devices[mesh->devices[i]] = cost->devices[i];
}

static double find_bound(MotCost *cost, const MotFactors *factors)
{
    double bound = 0;
    for (uint32_t i = 0; i < cost->g->body.n; i++) {
        MotOpId id = cost->g->body.data[i];
        bound += mot_cost_op_bound(cost, mot_graph_op(cost->g, id), &factors[id]);
    }
    return bound;
}

/* By how much the plan exceeds the memory of a device, most of all; <= 0 if it fits. */
static double find_excess(const MotPlan *plan, uint32_t *out_device)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    double worst = -1;
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        double cap = plan->cluster->devices.data[mesh->devices[i]].memory;
        double excess = cap > 0 ? plan->devices[mesh->devices[i]].memory * LAYOUT_SLACK - cap : -1;
        if (excess > worst) {
            worst = excess;
            *out_device = mesh->devices[i];
        }
    }
    return worst;
}

static void apply_solution(const MotIntra *in, const uint32_t *choice, MotPlan *plan)
{
    MotPlanCost cost;
    mot_intra_apply(in, choice, plan);
    mot_plan_evaluate(plan, in->cost, in->factors, &cost);
    set_predictions(plan, &cost);
}

/*
 * Takes the fastest solution whose evaluated plan fits all devices, or else the one that comes
 * nearest; returns its excess.
 */
static double take_solution(const MotIntra *in, const MotSolutions *solutions, MotPlan *plan)
{
    uint32_t best = 0, device;
    double least = INFINITY;
    for (uint32_t i = 0; i < solutions->n && least > 0; i++) {
        apply_solution(in, solutions->choice[i], plan);
        double excess = find_excess(plan, &device);
        if (excess < least) {
            least = excess;
            best = i;
        }
    }
    apply_solution(in, solutions->choice[best], plan);
    return least;
}

/*
 * Sets the plan to the fastest that fits, else to the one that comes nearest. Returns the excess in
 * bytes.
 */
static double solve(MotIntra *in, MotPlanStats *out_stats, MotPlan *plan)
{
    MotSolutions solutions;
    in->problem.has_memory = false;
    mot_minimise(in->ctx, &in->problem, &solutions);
    double excess = take_solution(in, &solutions, plan);
    /* Most plans fit: fronts are only kept when the fastest does not. */
    bool is_memory_bound = excess > 0;
    if (is_memory_bound) {
        in->problem.has_memory = true;
        mot_minimise(in->ctx, &in->problem, &solutions);
        excess = take_solution(in, &solutions, plan);
    }
    *out_stats = (MotPlanStats){.n_vars = in->vars.n,
                                .width = solutions.width,
                                .largest_table = solutions.largest_table,
                                .is_exact = solutions.is_exact && in->n_split_tables == 0 &&
                                            !is_memory_bound,
                                .is_beam = !solutions.is_exact,
                                .is_memory_bound = is_memory_bound};
    return excess;
}

static MotStatus refuse_memory(const MotPlan *plan, double excess)
{
    MotArena *arena = &plan->ctx->arena;
    uint32_t device = 0;
    find_excess(plan, &device);
    const MotDevice *tight = &plan->cluster->devices.data[device];
    mot_fail(plan->ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE,
             "no plan fits: device %s needs %s, its memory is %s", mot_quote(arena, tight->name),
             mot_bytes_text(arena, plan->devices[device].memory * LAYOUT_SLACK),
             mot_bytes_text(arena, tight->memory));
    mot_hint(plan->ctx,
             "raise its memory by %s, give it a smaller share, or use a smaller batch (--dim)",
             mot_bytes_text(arena, excess));
    return plan->ctx->status;
}

/* The axis that is planned: of several the last. */
static MotMeshAxis *last_axis(MotMesh *mesh)
{
    return &mesh->axis[mesh->n_axes - 1];
}

/* Of what the devices at coordinate k of that axis need, the part that all of them have. */
static double find_part_that_fits(const MotPlan *plan, uint32_t k)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    double least = 1;
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        double cap = plan->cluster->devices.data[mesh->devices[i]].memory;
        double needed = plan->devices[mesh->devices[i]].memory * LAYOUT_SLACK;
        if (mot_mesh_coordinate(mesh, i, mesh->n_axes - 1) == k && cap > 0 && needed > cap)
            least = fmin(least, cap / needed);
    }
    return least;
}

/*
 * Takes from devices that lack memory what they lack, in proportion; false if that leaves nothing
 * to change.
 */
static bool shrink_shares(MotPlan *plan)
{
    enum { FINE = 64 };
    MotMesh *mesh = &plan->stages.data[0].mesh;
    MotMeshAxis *axis = last_axis(mesh);
    int64_t most = 0, total = 0;
    bool is_changed = false;
    for (uint32_t k = 0; k < axis->n; k++)
        most = axis->share[k] > most ? axis->share[k] : most;
    MOT_ASSERT(most > 0);
    for (uint32_t k = 0; k < axis->n; k++) {
        double part = find_part_that_fits(plan, k);
        if (most < FINE)
            axis->share[k] *= FINE / most;
        if (part < 1 && axis->share[k] > 0) {
            axis->share[k] = (int64_t)(0.95 * part * (double)axis->share[k]);
            is_changed = true;
        }
        total += axis->share[k];
    }
    return is_changed && total > 0;
}

/*
 * The choices for the plan's shares, which become smaller for devices that lack memory unless they
 * are given.
 */
static MotStatus choose(MotPlan *plan, const MotPlanOpts *opts, MotPlanStats *stats,
                        MotIntra **out_intra)
{
    for (int tries = 0;; tries++) {
        MOT_TRY(mot_intra_open(plan, opts->fixes, opts->n_fixes, out_intra));
        double excess = solve(*out_intra, stats, plan);
        if (isinf(plan->time))
            return mot_fail(plan->ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE,
                            "no choices fit together: every one regroups the units of a split dim");
        if (excess <= 0)
            return MOT_OK;
        if (opts->share || tries == MAX_TRIES || !shrink_shares(plan))
            return refuse_memory(plan, excess);
    }
}

typedef struct {
    MotPlan *plan;
    const MotIntra *in;
} Tuned;

/* The step of the plan's choices under its shares as they stand. */
static double time_of_shares(void *data)
{
    const Tuned *t = data;
    MotArena *arena = &t->plan->ctx->arena;
    uint32_t device;
    MotArenaMark mark = mot_arena_mark(arena); /* the work of all ops is known: nothing is kept */
    MotPlanCost cost;
    t->in->cost->parts = (MotPartsList){0}; /* those known are of other shares */
    mot_plan_evaluate(t->plan, t->in->cost, t->in->factors, &cost);
    set_predictions(t->plan, &cost);
    t->in->cost->parts = (MotPartsList){0};
    mot_arena_rewind(arena, mark);
    return find_excess(t->plan, &device) > 0 ? INFINITY : t->plan->time;
}

/*
 * Shares that suit the choices, and then choices that suit the shares, where that saves LEAST of
 * the step: shares by speed are easier to read.
 */
static MotStatus tune(MotPlan *plan, const MotPlanOpts *opts, MotPlanStats *stats, MotIntra *in)
{
    static const double LEAST = 0.01;
    const MotMeshAxis *axis = last_axis(&plan->stages.data[0].mesh);
    int64_t *share = axis->share;
    size_t bytes = axis->n * sizeof *share;
    const int64_t *shares_before = mot_arena_copy(&plan->ctx->arena, share, bytes);
    MotPlan before = mot_plan_copy(plan);
    Tuned tuned = {plan, in};
    if (mot_shares_search(share, axis->n, time_of_shares, &tuned) < (1 - LEAST) * before.time) {
        MotPlanStats found;
        MOT_TRY(mot_intra_open(plan, opts->fixes, opts->n_fixes, &in));
        double excess = solve(in, &found, plan);
        if (excess <= 0 && plan->time < (1 - LEAST) * before.time) {
            *stats = found;
            stats->saved = before.time - plan->time;
            return MOT_OK;
        }
    }
    *plan = before;
    memcpy(share, shares_before, bytes);
    time_of_shares(&tuned); /* the devices' predictions, too */
    return MOT_OK;
}

/* The axis before the last: every op that runs over replicas splits them. */
static MotStatus split_units(MotPlan *plan)
{
    MotFactors *factors;
    MOT_TRY(mot_plan_factors(plan->ctx, plan->graph, &factors));
    mot_outer_choose(plan, factors);
    return MOT_OK;
}

static MotStatus plan_on(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster,
                         const MotPlanOpts *opts, const MotMesh *mesh, MotPlan **out_plan)
{
    MotIntra *in;
    MotPlan *plan = mot_plan_new(ctx, graph, cluster);
    if (opts->n_micro > 1) {
        plan->n_micro = opts->n_micro;
        plan->schedule = MOT_SCHEDULE_1F1B; /* one micro-batch in flight */
    }
    mot_vec_push(&ctx->arena, &plan->stages, (MotStage){*mesh});
    if (mesh->n_axes > 1)
        MOT_TRY(split_units(plan));
    MOT_TRY(choose(plan, opts, opts->stats, &in));
    plan->bound = find_bound(in->cost, in->factors);
    if (!opts->share && mesh->n_devices > 1)
        MOT_TRY(tune(plan, opts, opts->stats, in));
    MOT_TRY(mot_plan_verify(plan));
    *out_plan = plan;
    return MOT_OK;
}

/* Of a plan on groups of devices and one on a single axis the faster, or the one that there is. */
static MotStatus choose_mesh(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster,
                             const MotPlanOpts *opts, const MotMesh *groups, MotPlan **out_plan)
{
    MotMesh line;
    MotPlan *plan = NULL, *other = NULL;
    MotPlanStats stats = {0};
    MotPlanOpts single = *opts;
    single.one_axis = true;
    single.stats = &stats;
    if (plan_on(ctx, graph, cluster, opts, groups, &plan) != MOT_OK) {
        mot_warn(ctx, MOT_NOWHERE, "no plan gives each replica %u devices: %s", groups->axis[1].n,
                 mot_text_get(&ctx->error));
        mot_error_clear(ctx);
    }
    MotStatus status = mot_plan_mesh(ctx, graph, cluster, &single, &line);
    if (status == MOT_OK)
        status = plan_on(ctx, graph, cluster, &single, &line, &other);
    if (status != MOT_OK && !plan)
        return status;
    if (status != MOT_OK)
        mot_error_clear(ctx);
    *out_plan = plan;
    if (status == MOT_OK && (!plan || other->time < plan->time)) {
        if (plan)
            mot_info(ctx,
                     "%u devices for each of %u replicas would take %.3g ms a step, one axis over "
                     "all devices %.3g ms",
                     groups->axis[1].n, groups->axis[0].n, plan->time * 1e3, other->time * 1e3);
        *out_plan = other;
        *opts->stats = stats;
    }
    return MOT_OK;
}

MotStatus mot_plan_make(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster,
                        const MotPlanOpts *opts, MotPlan **out_plan)
{
    MotMesh mesh;
    MotPlanStats stats;
    MotPlanOpts own = opts ? *opts : (MotPlanOpts){0};
    own.stats = own.stats ? own.stats : &stats;
    MOT_TRY(mot_plan_mesh(ctx, graph, cluster, &own, &mesh));
    if (mesh.n_axes > 1)
        MOT_TRY(choose_mesh(ctx, graph, cluster, &own, &mesh, out_plan));
    else
        MOT_TRY(plan_on(ctx, graph, cluster, &own, &mesh, out_plan));
    if (own.stats->is_beam)
        mot_warn(
            ctx, MOT_NOWHERE,
            "the graph is too entangled for the exact planner: the plan comes from a beam search");
    return MOT_OK;
}

MotStatus mot_plan_predict(MotPlan *plan)
{
    MotCost *cost;
    MotFactors *factors;
    MotPlanCost total;
    MOT_TRY(mot_cost_of_plan(plan, &cost));
    MOT_TRY(mot_plan_factors(plan->ctx, plan->graph, &factors));
    mot_plan_evaluate(plan, cost, factors, &total);
    set_predictions(plan, &total);
    plan->bound = find_bound(cost, factors);
    return MOT_OK;
}
