/* Measured speeds -> a cluster with such rates -> the planner. */
#include "passes/plan/replan.h"

#include <math.h>

static const double GAIN = 0.08;

static MotRates scale_rates(const MotRates *r, double factor)
{
    return (MotRates){r->flops / factor, r->functions / factor, r->bandwidth / factor,
                      r->launch * factor};
}

/* Links between members, by their places in the mesh. */
static void add_links(MotCtx *ctx, const MotPlan *plan, MotCluster *members)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    for (uint32_t a = 0; a < mesh->n_devices; a++)
        for (uint32_t b = a + 1; b < mesh->n_devices; b++) {
            MotLink link = mot_cluster_link(plan->cluster, mesh->devices[a], mesh->devices[b]);
            link.a = a;
            link.b = b;
            mot_vec_push(&ctx->arena, &members->links, link);
        }
}

/* The devices of the plan, in its order, as fast as they were measured: all rates by one factor. */
static MotCluster *measured_cluster(MotCtx *ctx, const MotPlan *plan, const MotSplitWork *work,
                                    const double *unit)
{
    const MotMesh *mesh = &plan->stages.data[0].mesh;
    MotCluster *members = mot_arena_new(&ctx->arena, MotCluster);
    *members = (MotCluster){.is_modelled = plan->cluster->is_modelled};
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        MotDevice device = plan->cluster->devices.data[mesh->devices[i]];
        double factor = isnan(unit[i]) ? 1 : unit[i] / work->alone[i];
        MotRates rates = mot_cluster_rates(plan->cluster, mesh->devices[i]);
        device.alone = device.beside = scale_rates(&rates, factor);
        mot_vec_push(&ctx->arena, &members->devices, device);
    }
    add_links(ctx, plan, members);
    return members;
}

/* What the plan takes on these members. */
static MotStatus predict_on(MotCtx *ctx, const MotPlan *plan, const MotCluster *members,
                            double *out_seconds)
{
    MotPlan *copy = mot_arena_copy(&ctx->arena, plan, sizeof *copy);
    MotStage *stage = mot_arena_copy(&ctx->arena, plan->stages.data, sizeof *stage);
    copy->ctx = ctx;
    copy->cluster = members;
    copy->stages.data = stage;
    copy->devices = mot_arena_array(&ctx->arena, MotDevicePrediction, members->devices.n);
    stage->mesh.devices = mot_arena_array(&ctx->arena, uint32_t, members->devices.n);
    for (uint32_t i = 0; i < members->devices.n; i++)
        stage->mesh.devices[i] = i;
    MOT_TRY(mot_plan_predict(copy));
    *out_seconds = copy->time;
    return MOT_OK;
}

/* From the members' cluster to that of `plan`. */
static void move_home(MotCtx *ctx, const MotPlan *plan, MotPlan *found)
{
    const MotMesh *from = &plan->stages.data[0].mesh;
    MotMesh *mesh = &found->stages.data[0].mesh;
    MotDevicePrediction *devices =
        mot_arena_array(&ctx->arena, MotDevicePrediction, plan->cluster->devices.n);
    for (uint32_t i = 0; i < from->n_devices; i++)
        devices[from->devices[i]] = found->devices[i];
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        mesh->devices[i] = from->devices[mesh->devices[i]];
    found->devices = devices;
    found->cluster = plan->cluster;
}

MotStatus mot_replan(MotCtx *ctx, const MotPlan *plan, const double *unit, const MotPlanOpts *opts,
                     MotReplan *out)
{
    MotSplitWork work;
    MotPlan *other;
    *out = (MotReplan){0};
    if (!mot_plan_is_line(plan))
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
    move_home(ctx, plan, other);
    out->plan = other;
    return MOT_OK;
}
