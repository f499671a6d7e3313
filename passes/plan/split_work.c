/* Split work: the roofline of every operator, at the parts that shares give. */
#include "passes/plan/split_work.h"

#include "passes/plan/evaluate.h"

#include <string.h>

static bool is_same(MotQuantity a, MotQuantity b)
{
    return a.whole == b.whole && a.split == b.split;
}

static bool are_alike(const MotSeconds *a, const MotSeconds *b)
{
    return a->launch == b->launch && is_same(a->products, b->products) &&
           is_same(a->functions, b->functions) && is_same(a->memory, b->memory);
}

void mot_split_work_add(MotCtx *ctx, MotSplitWork *work, int64_t units, MotSeconds seconds)
{
    uint32_t i = 0;
    while (i < work->ops.n &&
           (work->ops.data[i].units != units || !are_alike(&work->ops.data[i].seconds, &seconds)))
        i++;
    if (i == work->ops.n) {
        mot_vec_push(&ctx->arena, &work->ops, (MotSplitOps){0});
        for (; i > 0 && work->ops.data[i - 1].units > units; i--)
            work->ops.data[i] = work->ops.data[i - 1];
        work->ops.data[i] = (MotSplitOps){units, seconds, 0};
    }
    work->ops.data[i].weight++;
}

static double work_of_part(const MotSplitWork *work, double part)
{
    double sum = 0;
    for (uint32_t i = 0; i < work->ops.n; i++)
        sum += work->ops.data[i].weight * mot_seconds_at(&work->ops.data[i].seconds, part);
    return sum;
}

void mot_split_work_finish(MotSplitWork *work)
{
    static const double least = 1e-9; /* of a unit: what the smallest part takes */
    double all = work_of_part(work, 1);
    for (uint32_t i = 0; i < work->ops.n; i++)
        work->ops.data[i].weight /= all;
    work->idle = work_of_part(work, 0);
    for (int k = 0; k <= MOT_SPLIT_GRID; k++)
        work->at[k] = work_of_part(work, k ? (double)k / (double)MOT_SPLIT_GRID : least);
}

uint32_t mot_split_work_deal_units(const MotSplitWork *work, uint32_t first, const int64_t *share,
                                   uint32_t n, double *out_work)
{
    int64_t parts[MOT_MAX_DEVICES], units = work->ops.data[first].units;
    uint32_t k = first;
    memset(out_work, 0, n * sizeof *out_work);
    mot_share_split(share, n, units, parts);
    for (; k < work->ops.n && work->ops.data[k].units == units; k++)
        for (uint32_t i = 0; i < n; i++)
            out_work[i] +=
                work->ops.data[k].weight *
                mot_seconds_at(&work->ops.data[k].seconds, (double)parts[i] / (double)units);
    return k;
}

void mot_split_work_deal(const MotSplitWork *work, const int64_t *share, uint32_t n,
                         double *out_work)
{
    double some[MOT_MAX_DEVICES];
    memset(out_work, 0, n * sizeof *out_work);
    for (uint32_t k = 0; k < work->ops.n;) {
        k = mot_split_work_deal_units(work, k, share, n, some);
        for (uint32_t i = 0; i < n; i++)
            out_work[i] += some[i];
    }
}

double mot_split_work_part(const MotSplitWork *work, double amount)
{
    int low = 0, high = MOT_SPLIT_GRID;
    if (amount <= work->at[low])
        return 0;
    if (amount >= work->at[high])
        return amount / work->at[high];
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(work->at[middle] <= amount ? &low : &high) = middle;
    }
    double within = (amount - work->at[low]) / (work->at[high] - work->at[low]);
    return (low + within) / (double)MOT_SPLIT_GRID;
}

MotStatus mot_split_work_find(MotCtx *ctx, const MotPlan *plan, MotSplitWork *out_work)
{
    MotCost *cost;
    MotFactors *factors;
    const MotGraph *g = plan->graph;
    if (!mot_plan_is_line(plan))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "shares are rebalanced in plans of one stage with one mesh axis; this one "
                        "has %u stages, the first with %u axes",
                        plan->stages.n, plan->stages.data[0].mesh.n_axes);
    *out_work = (MotSplitWork){0};
    MOT_TRY(mot_cost_of_plan(plan, &cost));
    MOT_TRY(mot_plan_factors(ctx, g, &factors));
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        int factor = plan->ops[id].factor[0];
        if (factor < 0 || mot_op_info(op->kind)->class == MOT_SINK)
            continue;
        MotSeconds seconds = mot_cost_seconds(cost, op, &factors[id], factor, 0);
        if (mot_seconds_at(&seconds, 1) <= 0)
            continue;
        mot_split_work_add(ctx, out_work, factors[id].factor[factor].size, seconds);
        for (uint32_t k = 0; k < cost->n; k++) {
            seconds = mot_cost_seconds(cost, op, &factors[id], factor, k);
            out_work->alone[k] += mot_seconds_at(&seconds, 1);
        }
    }
    mot_split_work_finish(out_work);
    return MOT_OK;
}
