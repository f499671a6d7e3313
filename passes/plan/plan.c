/*
 * The planner: mesh and shares from the cluster, variables and tables from the graph, the minimum by elimination, the plan
 * from its choices. Memory is held by taking the fastest of the non-dominated solutions whose evaluated peak fits every device.
 */
#include "passes/plan/plan.h"

#include "passes/plan/evaluate.h"

#include <math.h>
#include <string.h>

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The largest relative error of speed / fastest rounded to multiples of 1 / denominator. */
static double rounding_error(const double *speed, uint32_t n, double fastest, int64_t denominator)
{
    double worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        double exact = speed[i] / fastest * (double)denominator;
        double error = fabs(round(exact) - exact) / exact;
        worst = error > worst ? error : worst;
    }
    return worst;
}

void mot_plan_speed_shares(const MotCluster *cluster, uint32_t n_devices, int64_t *out_share)
{
    enum { MOST = 64 };
    double speed[MOST], fastest = 0, least = 1e300;
    uint32_t n = n_devices < MOST ? n_devices : MOST;
    int64_t best = 1, divisor = 0;
    for (uint32_t i = 0; i < n; i++) {
        speed[i] = mot_cost_rate(&cluster->devices.data[i]).flops;
        fastest = speed[i] > fastest ? speed[i] : fastest;
    }
    for (int64_t d = 1; d <= MOST && least > 0.01; d++) {
        double error = rounding_error(speed, n, fastest, d);
        if (error < least) {
            least = error;
            best = d;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        out_share[i] = (int64_t)round(speed[i] / fastest * (double)best);
        divisor = gcd(divisor, out_share[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        out_share[i] /= divisor;
}

static MotStatus check_shares(MotCtx *ctx, const MotPlanOpts *opts, uint32_t n)
{
    int64_t total = 0;
    if (opts->n_share != n)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%u shares for %u devices", opts->n_share, n);
    for (uint32_t i = 0; i < n; i++) {
        if (opts->share[i] < 0 || opts->share[i] > 1 << 20)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "share %lld is not between 0 and 1048576",
                            (long long)opts->share[i]);
        total += opts->share[i];
    }
    if (total == 0)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "all shares are 0");
    return MOT_OK;
}

static MotStatus make_mesh(MotCtx *ctx, const MotCluster *cluster, const MotPlanOpts *opts, MotMesh *out)
{
    uint32_t n = opts->n_devices ? opts->n_devices : cluster->devices.n;
    enum { MOST = 64 };
    if (n == 0 || n > cluster->devices.n)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%u devices are asked for, the cluster has %u", n,
                        cluster->devices.n);
    if (n > MOST)
        return mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "%u devices; a mesh has at most %d", n, MOST);
    if (opts->share)
        MOT_TRY(check_shares(ctx, opts, n));
    *out = (MotMesh){.n_axes = 1, .n_devices = n, .devices = mot_arena_array(&ctx->arena, uint32_t, n)};
    out->axis[0] = (MotMeshAxis){.name = "d", .n = n, .share = mot_arena_array(&ctx->arena, int64_t, n)};
    for (uint32_t i = 0; i < n; i++)
        out->devices[i] = i;
    if (opts->share)
        memcpy(out->axis[0].share, opts->share, n * sizeof *opts->share);
    else
        mot_plan_speed_shares(cluster, n, out->axis[0].share);
    return MOT_OK;
}

static bool has_memory_caps(const MotCluster *cluster, const MotMesh *mesh)
{
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        if (cluster->devices.data[mesh->devices[i]].memory > 0)
            return true;
    return false;
}

static void set_predictions(MotPlan *plan, const MotPlanCost *cost)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    plan->time = cost->time;
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        plan->devices[mesh->devices[i]] = cost->devices[i];
}

static double find_bound(const MotCost *cost, const MotFactors *factors)
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
        double excess = cap > 0 ? plan->devices[mesh->devices[i]].memory - cap : -1;
        if (excess > worst) {
            worst = excess;
            *out_device = mesh->devices[i];
        }
    }
    return worst;
}

/* The fastest solution whose evaluated plan fits all devices. */
static MotStatus take_solution(const MotIntra *in, const MotSolutions *solutions, MotPlan *plan, uint32_t *out_taken)
{
    double least = INFINITY, needed = 0;
    const MotDevice *tight = NULL;
    for (uint32_t i = 0; i < solutions->n; i++) {
        MotPlanCost cost;
        uint32_t device = 0;
        mot_intra_apply(in, solutions->choice[i], plan);
        mot_plan_evaluate(plan, in->cost, in->factors, &cost);
        set_predictions(plan, &cost);
        double excess = find_excess(plan, &device);
        *out_taken = i;
        if (excess <= 0)
            return MOT_OK;
        if (excess < least) {
            least = excess;
            needed = plan->devices[device].memory;
            tight = &plan->cluster->devices.data[device];
        }
    }
    MotArena *arena = &in->ctx->arena;
    mot_fail(in->ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE, "no plan fits: device %s needs %s, its memory is %s",
             mot_quote(arena, tight->name), mot_bytes_text(arena, needed), mot_bytes_text(arena, tight->memory));
    mot_hint(in->ctx, "raise its memory by %s, give it a smaller share, or use a smaller batch (--dim)",
             mot_bytes_text(arena, least));
    return in->ctx->status;
}

static MotStatus solve(MotIntra *in, const MotPlanOpts *opts, MotPlan *plan)
{
    MotSolutions solutions;
    in->problem.has_memory = false;
    mot_minimise(in->ctx, &in->problem, &solutions);
    uint32_t taken = 0;
    bool is_memory_bound = false;
    if (has_memory_caps(plan->cluster, in->cost->mesh)) {
        /* Most plans fit: fronts are only kept when the fastest does not. */
        MotPlanCost cost;
        uint32_t device = 0;
        mot_intra_apply(in, solutions.choice[0], plan);
        mot_plan_evaluate(plan, in->cost, in->factors, &cost);
        set_predictions(plan, &cost);
        is_memory_bound = find_excess(plan, &device) > 0;
    }
    if (is_memory_bound) {
        in->problem.has_memory = true;
        mot_minimise(in->ctx, &in->problem, &solutions);
    }
    MOT_TRY(take_solution(in, &solutions, plan, &taken));
    if (opts->stats)
        *opts->stats = (MotPlanStats){.n_vars = in->vars.n,
                                      .width = solutions.width,
                                      .largest_table = solutions.largest_table,
                                      .is_exact = solutions.is_exact && in->n_split_tables == 0 && !is_memory_bound,
                                      .is_memory_bound = is_memory_bound};
    if (!solutions.is_exact)
        mot_warn(in->ctx, MOT_NOWHERE, "the graph is too entangled for the exact planner: the plan comes from a beam search");
    return MOT_OK;
}

MotStatus mot_plan_make(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster, const MotPlanOpts *opts,
                        MotPlan **out_plan)
{
    static const MotPlanOpts defaults;
    opts = opts ? opts : &defaults;
    MotPlan *plan = mot_plan_new(ctx, graph, cluster);
    mot_vec_push(&ctx->arena, &plan->stages, (MotStage){0});
    MOT_TRY(make_mesh(ctx, cluster, opts, &plan->stages.data[0].mesh));
    MotIntra *in;
    MOT_TRY(mot_intra_open(plan, opts->fixes, opts->n_fixes, &in));
    MOT_TRY(solve(in, opts, plan));
    plan->bound = find_bound(in->cost, in->factors);
    MOT_TRY(mot_plan_verify(plan));
    *out_plan = plan;
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
