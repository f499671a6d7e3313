/* Roofline for operators, latency and bandwidth for collectives. */
#include "passes/plan/cost.h"

#include <math.h>

MotRates mot_cost_rates(const MotCluster *cluster, uint32_t device)
{
    MotDevice d = cluster->devices.data[device];
    mot_device_assume(&d, NULL);
    MotRates r = cluster->devices.n > 1 ? d.beside : d.alone;
    return (MotRates){r.flops / d.slow, r.functions / d.slow, r.bandwidth / d.slow,
                      r.launch * d.slow};
}

MotStatus mot_cost_make(MotCtx *ctx, const MotGraph *g, const MotCluster *cluster,
                        const MotMesh *mesh, MotCost **out_cost)
{
    if (mesh->n_axes != 1)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "plans over %u mesh axes have no cost yet", mesh->n_axes);
    MotCost *cost = mot_arena_new(&ctx->arena, MotCost);
    *cost = (MotCost){.ctx = ctx, .g = g, .mesh = mesh, .n = mesh->n_devices, .bandwidth = 1e30};
    cost->rate = mot_arena_array(&ctx->arena, MotRates, cost->n);
    cost->work = mot_arena_array(&ctx->arena, MotWork *, g->ops.n);
    mot_fusion_find(ctx, g, &cost->fusion);
    for (uint32_t i = 0; i < cost->n; i++) {
        cost->rate[i] = mot_cost_rates(cluster, mesh->devices[i]);
        for (uint32_t k = 0; k < i; k++) {
            MotLink link = mot_cluster_link(cluster, mesh->devices[i], mesh->devices[k]);
            double latency = link.measured_latency > 0 ? link.measured_latency : link.latency,
                   bandwidth =
                       link.measured_bandwidth > 0 ? link.measured_bandwidth : link.bandwidth;
            cost->latency = latency > cost->latency ? latency : cost->latency;
            cost->bandwidth = bandwidth < cost->bandwidth ? bandwidth : cost->bandwidth;
        }
    }
    *out_cost = cost;
    return MOT_OK;
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

/* Seconds at the device's rates: the launch comes first, arithmetic and memory overlap. */
typedef struct {
    double launch;
    MotQuantity arithmetic, memory;
} Seconds;

static Seconds seconds_of(const MotRates *rate, const MotWork *work)
{
    return (Seconds){
        .launch = work->is_launch ? rate->launch : 0,
        .arithmetic = {work->flops.whole / rate->flops + work->functions.whole / rate->functions,
                       work->flops.split / rate->flops + work->functions.split / rate->functions},
        .memory = {work->bytes.whole / rate->bandwidth, work->bytes.split / rate->bandwidth}};
}

static double work_seconds(const MotRates *rate, const MotWork *work, double fraction)
{
    Seconds s = seconds_of(rate, work);
    double arithmetic = s.arithmetic.whole + s.arithmetic.split * fraction;
    double memory = s.memory.whole + s.memory.split * fraction;
    return s.launch + (arithmetic > memory ? arithmetic : memory);
}

double mot_cost_op(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                   double *times)
{
    MotWork work = work_of(cost, op, factors, factor);
    int64_t units = factor >= 0 ? factors->factor[factor].size : 0;
    const int64_t *part = factor >= 0 ? mot_cost_parts(cost, units) : NULL;
    double slowest = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double seconds = work_seconds(&cost->rate[i], &work,
                                      part && units ? (double)part[i] / (double)units : 1);
        slowest = seconds > slowest ? seconds : slowest;
        if (times)
            times[i] += seconds;
    }
    return slowest;
}

double mot_cost_copy(MotCost *cost, const MotType *type, MotSharding s, double *times)
{
    double slowest = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double seconds = cost->rate[i].launch +
                         2 * mot_cost_local_bytes(cost, type, s, i) / cost->rate[i].bandwidth;
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

MotConversion mot_cost_convert(MotCost *cost, const MotType *type, MotSharding have,
                               MotSharding need, double *received, double *copying)
{
    MotConversion result = {0};
    if (have.axis[0] == need.axis[0] && have.units[0] == need.units[0])
        return result;
    if (have.axis[0] == MOT_REPLICATED) {
        result.is_local = true;
        result.seconds = mot_cost_copy(cost, type, need, copying);
        return result;
    }
    double most = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double bytes = received_by(cost, type, have, need, i);
        most = bytes > most ? bytes : most;
        result.bytes += bytes;
        if (received)
            received[i] += bytes;
    }
    int phases = have.axis[0] < 0 && need.axis[0] < 0 ? 2 : 1;
    result.seconds = phases * cost->latency + most / cost->bandwidth;
    return result;
}

/* The fraction of a quantity that fits into `seconds`. */
static double fraction_within(MotQuantity q, double seconds)
{
    double left = seconds - q.whole;
    return left < 0 ? 0 : left >= q.split ? 1 : left / q.split;
}

/* Units that a device can finish within `seconds`, at most `units`. */
static double units_within(const MotRates *rate, const MotWork *work, double units, double seconds)
{
    Seconds s = seconds_of(rate, work);
    double a = fraction_within(s.arithmetic, seconds - s.launch),
           m = fraction_within(s.memory, seconds - s.launch);
    double whole = (double)(int64_t)((a < m ? a : m) * units * (1 + 1e-12));
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
        double alone = work_seconds(&cost->rate[i], work, 1),
               idle = work_seconds(&cost->rate[i], work, 0);
        high = i == 0 || alone < high ? alone : high;
        low = idle > low
                  ? idle
                  : low; /* a device without units starts the op, and does what is not split */
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
        double seconds = work_seconds(&cost->rate[i], &work, 1);
        best = seconds > best ? seconds : best;
    }
    for (uint32_t f = 0; f < factors->n; f++) {
        if (factors->factor[f].kind == MOT_FACTOR_WHOLE || factors->factor[f].size < 1)
            continue;
        work = work_of(cost, op, factors, (int)f);
        double seconds = best_split(cost, &work, factors->factor[f].size);
        best = seconds < best ? seconds : best;
    }
    return best;
}
