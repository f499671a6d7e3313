/* Measured speeds -> a cluster with such rates -> the planner. */
#include "passes/plan/replan.h"

#include <math.h>

static const double GAIN = 0.08;

static MotRates scale_rates(const MotRates *r, double factor)
{
    return (MotRates){r->flops / factor, r->functions / factor, r->bandwidth / factor,
                      r->launch * factor};
}

/* The cluster with the devices as fast as they were measured: all rates by one factor. */
static MotCluster *measured_cluster(MotCtx *ctx, const MotPlan *plan, const MotSplitWork *work,
                                    const double *unit)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    MotCluster *cluster = mot_arena_copy(&ctx->arena, plan->cluster, sizeof *cluster);
    cluster->devices.data = mot_arena_copy(&ctx->arena, plan->cluster->devices.data,
                                           cluster->devices.n * sizeof *cluster->devices.data);
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        MotDevice *device = &cluster->devices.data[mesh->devices[i]];
        double factor = isnan(unit[i]) ? 1 : unit[i] / work->alone[i];
        MotRates rates = mot_cluster_rates(plan->cluster, mesh->devices[i]);
        device->alone = device->beside = scale_rates(&rates, factor);
    }
    return cluster;
}

/* What the plan takes on this cluster. */
static MotStatus predict_on(MotCtx *ctx, const MotPlan *plan, const MotCluster *cluster,
                            double *out_seconds)
{
    MotPlan *copy = mot_arena_copy(&ctx->arena, plan, sizeof *copy);
    copy->ctx = ctx;
    copy->cluster = cluster;
    copy->devices = mot_arena_array(&ctx->arena, MotDevicePrediction, cluster->devices.n);
    MOT_TRY(mot_plan_predict(copy));
    *out_seconds = copy->time;
    return MOT_OK;
}

MotStatus mot_replan(MotCtx *ctx, const MotPlan *plan, const double *unit, const MotPlanOpts *opts,
                     MotReplan *out)
{
    MotSplitWork work;
    MotPlan *other;
    *out = (MotReplan){0};
    if (plan->stages.n != 1 || plan->stages.data[0].mesh.n_axes != 1 ||
        plan->stages.data[0].mesh.n_devices != plan->cluster->devices.n)
        return MOT_OK;
    MOT_TRY(mot_split_work_find(ctx, plan, &work));
    if (work.ops.n == 0)
        return MOT_OK;
    const MotCluster *cluster = measured_cluster(ctx, plan, &work, unit);
    MOT_TRY(predict_on(ctx, plan, cluster, &out->now));
    MotStatus status = mot_plan_make(ctx, plan->graph, cluster, opts, &other);
    if (status == MOT_ERR_INFEASIBLE) {
        mot_error_clear(ctx);
        return MOT_OK;
    }
    MOT_TRY(status);
    out->then = other->time;
    if (out->then > (1 - GAIN) * out->now)
        return MOT_OK;
    other->cluster = plan->cluster;
    out->plan = other;
    return MOT_OK;
}
