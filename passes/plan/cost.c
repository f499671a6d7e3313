/* Roofline for operators, latency and bandwidth for collectives. */
#include "passes/plan/cost.h"

#include <math.h>

MotRates mot_cost_rates(const MotCluster *cluster, uint32_t device)
{
    MotRates r = mot_cluster_rates(cluster, device);
    double slow = cluster->devices.data[device].slow;
    return (MotRates){r.flops / slow, r.functions / slow, r.bandwidth / slow, r.launch * slow};
}

MotLink mot_cost_link(const MotCost *cost, uint32_t a, uint32_t b)
{
    MotLink link = mot_cluster_link(cost->cluster, cost->mesh->devices[a], cost->mesh->devices[b]);
    link.latency = link.measured_latency > 0 ? link.measured_latency : link.latency;
    link.bandwidth = link.measured_bandwidth > 0 ? link.measured_bandwidth : link.bandwidth;
    return link;
}

MotStatus mot_cost_make(MotCtx *ctx, const MotGraph *g, const MotCluster *cluster,
                        const MotMesh *mesh, MotCost **out_cost)
{
    if (mesh->n_axes != 1)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "plans over %u mesh axes have no cost yet", mesh->n_axes);
    MotCost *cost = mot_arena_new(&ctx->arena, MotCost);
    *cost = (MotCost){.ctx = ctx,
                      .g = g,
                      .cluster = cluster,
                      .mesh = mesh,
                      .n = mesh->n_devices,
                      .bandwidth = 1e30};
    cost->rate = mot_arena_array(&ctx->arena, MotRates, cost->n);
    cost->work = mot_arena_array(&ctx->arena, MotWork *, g->ops.n);
    cost->runs = mot_arena_array(&ctx->arena, double, g->ops.n);
    mot_cost_set_micro(cost, 1);
    mot_fusion_find(ctx, g, &cost->fusion);
    for (uint32_t i = 0; i < cost->n; i++) {
        cost->rate[i] = mot_cost_rates(cluster, mesh->devices[i]);
        cost->overlaps |= cluster->is_modelled || cluster->devices.data[mesh->devices[i]].slow > 1;
        for (uint32_t k = 0; k < i; k++) {
            MotLink link = mot_cost_link(cost, i, k);
            cost->overlaps |= link.is_emulated;
            cost->latency = fmax(cost->latency, link.latency);
            cost->bandwidth = fmin(cost->bandwidth, link.bandwidth);
        }
    }
    *out_cost = cost;
    return MOT_OK;
}

void mot_cost_set_micro(MotCost *cost, uint32_t n)
{
    const MotGraph *g = cost->g;
    for (uint32_t i = 0; i < g->ops.n; i++)
        cost->runs[i] = 1;
    for (uint32_t i = g->body.n; i-- > 0;) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        if (op->kind == MOT_OP_ACCUMULATE)
            cost->runs[id] = n;
        for (uint32_t k = 0; k < op->n_in; k++)
            if (cost->runs[id] > 1)
                cost->runs[g->values.data[op->in[k]].def] = n;
    }
}

const int64_t *mot_cost_parts(MotCost *cost, int64_t units)
{
    for (uint32_t i = 0; i < cost->parts.n; i++)
        if (cost->parts.data[i].units == units)
            return cost->parts.data[i].part;
    MotParts parts = {units, mot_arena_array(&cost->ctx->arena, int64_t, cost->n)};
    mot_share_split(cost->mesh->axis[0].share, cost->n, units, parts.part);
    mot_vec_push(&cost->ctx->arena, &cost->parts, parts);
    return parts.part;
}

/* The fraction of a value that device i holds. */
static double fraction_of(MotCost *cost, MotSharding s, uint32_t i)
{
    if (s.axis[0] < 0 || s.units[0] == 0)
        return 1;
    return (double)mot_cost_parts(cost, s.units[0])[i] / (double)s.units[0];
}

double mot_cost_local_bytes(MotCost *cost, const MotType *type, MotSharding s, uint32_t i)
{
    return (double)mot_type_bytes(type) * fraction_of(cost, s, i);
}

/* Counted once for every factor. */
static MotWork work_of(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor)
{
    MotOpId id = op->n_out ? cost->g->values.data[op->out[0]].def : 0;
    uint32_t at = factor >= 0 ? (uint32_t)factor : factors->n;
    if (!cost->fusion.launch[id])
        return (MotWork){0};
    if (!cost->work[id]) {
        cost->work[id] = mot_arena_array(&cost->ctx->arena, MotWork, factors->n + 1);
        for (uint32_t f = 0; f <= factors->n; f++)
            cost->work[id][f] =
                mot_work_find(cost->g, &cost->fusion, op, factors, f < factors->n ? (int)f : -1);
    }
    return cost->work[id][at];
}

static MotQuantity scale(MotQuantity q, double by)
{
    return (MotQuantity){q.whole * by, q.split * by};
}

static MotSeconds seconds_of(const MotRates *rate, const MotWork *work)
{
    return (MotSeconds){.launch = work->is_launch ? rate->launch : 0,
                        .products = scale(work->flops, 1 / rate->flops),
                        .functions = scale(work->functions, 1 / rate->functions),
                        .memory = scale(work->bytes, 1 / rate->bandwidth)};
}

static double quantity_at(MotQuantity q, double part)
{
    return q.whole + q.split * part;
}

double mot_seconds_at(const MotSeconds *s, double part)
{
    double functions = quantity_at(s->functions, part), memory = quantity_at(s->memory, part);
    return s->launch + (part <= 0 ? 0 : quantity_at(s->products, part) + fmax(functions, memory));
}

double mot_cost_op(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                   double *times)
{
    MotWork work = work_of(cost, op, factors, factor);
    double runs = op->n_out ? cost->runs[cost->g->values.data[op->out[0]].def] : 1;
    int64_t units = factor >= 0 ? factors->factor[factor].size : 0;
    const int64_t *part = factor >= 0 ? mot_cost_parts(cost, units) : NULL;
    double slowest = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double fraction = part && units ? (double)part[i] / (double)units : 1;
        MotSeconds one = seconds_of(&cost->rate[i], &work);
        double seconds = runs * mot_seconds_at(&one, fraction);
        slowest = seconds > slowest ? seconds : slowest;
        if (times)
            times[i] += seconds;
    }
    return slowest;
}

MotSeconds mot_cost_seconds(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                            uint32_t device)
{
    MotWork work = work_of(cost, op, factors, factor);
    double runs = op->n_out ? cost->runs[cost->g->values.data[op->out[0]].def] : 1;
    MotSeconds s = seconds_of(&cost->rate[device], &work);
    return (MotSeconds){runs * s.launch, scale(s.products, runs), scale(s.functions, runs),
                        scale(s.memory, runs)};
}

double mot_cost_copy(MotCost *cost, const MotType *type, MotSharding s, double runs, double *times)
{
    double slowest = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double bytes = 2 * mot_cost_local_bytes(cost, type, s, i);
        double seconds = runs * (cost->rate[i].launch + bytes / cost->rate[i].bandwidth);
        slowest = seconds > slowest ? seconds : slowest;
        if (times)
            times[i] += seconds;
    }
    return slowest;
}

/* Where device i's part of a split dim begins and ends, as fractions of the dim. */
static void range_of(MotCost *cost, MotSharding s, uint32_t i, double *out_begin, double *out_end)
{
    const int64_t *part = mot_cost_parts(cost, s.units[0]);
    int64_t before = 0;
    for (uint32_t k = 0; k < i; k++)
        before += part[k];
    *out_begin = (double)before / (double)s.units[0];
    *out_end = (double)(before + part[i]) / (double)s.units[0];
}

/* The part of its new range that device i does not hold yet: the same dim, dealt out in other units. */
static double missing_of(MotCost *cost, MotSharding have, MotSharding need, uint32_t i)
{
    double begin, end, from, to;
    range_of(cost, need, i, &begin, &end);
    range_of(cost, have, i, &from, &to);
    double overlap = fmin(end, to) - fmax(begin, from);
    return end - begin - fmax(overlap, 0);
}

/* Bytes that device i receives in the collective between the two. */
static double received_by(MotCost *cost, const MotType *type, MotSharding have, MotSharding need,
                          uint32_t i)
{
    double total = (double)mot_type_bytes(type), others = (double)cost->n - 1;
    bool is_partial = have.axis[0] < 0;
    if (is_partial && need.axis[0] < 0) /* all-reduce */
        return 2 * total * others / (double)cost->n;
    if (is_partial) /* reduce-scatter */
        return total * fraction_of(cost, need, i) * others;
    if (need.axis[0] < 0) /* all-gather */
        return total * (1 - fraction_of(cost, have, i));
    if (need.axis[0] == have.axis[0])
        return total * missing_of(cost, have, need, i);
    return total * fraction_of(cost, need, i) * (1 - fraction_of(cost, have, i)); /* all-to-all */
}

MotTransition mot_cost_transition(const MotCost *cost, MotValue v, MotSharding have,
                                  MotSharding need, MotOpId user)
{
    const MotOp *op = mot_graph_op(cost->g, user);
    bool is_sum = op->kind == MOT_OP_ACCUMULATE; /* partial sums are added up first */
    return (MotTransition){.type = mot_graph_type(cost->g, v),
                           .have = have,
                           .need = need,
                           .runs = is_sum ? 1 : cost->runs[user],
                           .is_gathered = is_sum || op->role == MOT_ROLE_UPDATE ||
                                          mot_op_info(op->kind)->class == MOT_SINK};
}

/* Seconds of the latency that a collective bears alone. */
static double latency_of(const MotCost *cost, const MotTransition *t)
{
    static const double GATHERED_BYTES = 1 << 20; /* passes/lower/coalesce.c: the least together */
    int phases = t->have.axis[0] < 0 && t->need.axis[0] < 0 ? 2 : 1;
    double part = (double)mot_type_bytes(t->type) / GATHERED_BYTES;
    return phases * cost->latency * (t->is_gathered && part < 1 ? part : 1);
}

MotConversion mot_cost_convert(MotCost *cost, const MotTransition *t, double *received,
                               double *copying)
{
    MotConversion result = {0};
    if (t->have.axis[0] == t->need.axis[0] && t->have.units[0] == t->need.units[0])
        return result;
    if (t->have.axis[0] == MOT_REPLICATED) {
        result.is_local = true;
        result.seconds = mot_cost_copy(cost, t->type, t->need, t->runs, copying);
        return result;
    }
    double most = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double bytes = received_by(cost, t->type, t->have, t->need, i);
        most = bytes > most ? bytes : most;
        result.bytes += t->runs * bytes;
        if (received)
            received[i] += t->runs * bytes;
    }
    result.seconds = t->runs * (latency_of(cost, t) + most / cost->bandwidth);
    return result;
}

/* The fraction of two quantities, one after the other, that fits into `seconds`. */
static double fraction_within(MotQuantity a, MotQuantity b, double seconds)
{
    double left = seconds - a.whole - b.whole, split = a.split + b.split;
    return left < 0 ? 0 : left >= split ? 1 : left / split;
}

/* Units that a device can finish within `seconds`, at most `units`. */
static double units_within(const MotRates *rate, const MotWork *work, double units, double seconds)
{
    MotSeconds s = seconds_of(rate, work);
    double left = seconds - s.launch,
           fraction = fmin(fraction_within(s.products, s.functions, left),
                           fraction_within(s.products, s.memory, left));
    double whole = (double)(int64_t)(fraction * units * (1 + 1e-12));
    return whole > units ? units : whole;
}

/*
 * The least T at which the devices together finish all units: what the best integer shares would
 * give. From below.
 */
static double best_split(const MotCost *cost, const MotWork *work, int64_t units)
{
    double low = 0, high = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        MotSeconds s = seconds_of(&cost->rate[i], work);
        double alone = mot_seconds_at(&s, 1), idle = mot_seconds_at(&s, 0);
        high = i == 0 || alone < high ? alone : high;
        low = idle > low ? idle : low; /* a device without units starts the op */
    }
    high = high > low ? high : low;
    for (int step = 0; step < 60; step++) {
        double middle = (low + high) / 2, done = 0;
        for (uint32_t i = 0; i < cost->n; i++)
            done += units_within(&cost->rate[i], work, (double)units, middle);
        *(done >= (double)units ? &high : &low) = middle;
    }
    return low;
}

double mot_cost_op_bound(MotCost *cost, const MotOp *op, const MotFactors *factors)
{
    MotWork work = work_of(cost, op, factors, -1);
    double best = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        MotSeconds s = seconds_of(&cost->rate[i], &work);
        double seconds = mot_seconds_at(&s, 1);
        best = seconds > best ? seconds : best;
    }
    for (uint32_t f = 0; f < factors->n; f++) {
        const MotFactor *factor = &factors->factor[f];
        if (factor->kind == MOT_FACTOR_WHOLE || factor->size < 1 || factor->within >= 0)
            continue;
        work = work_of(cost, op, factors, (int)f);
        double seconds = best_split(cost, &work, factors->factor[f].size);
        best = seconds < best ? seconds : best;
    }
    return op->n_out ? best * cost->runs[cost->g->values.data[op->out[0]].def] : best;
}
