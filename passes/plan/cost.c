/* Roofline for operators, latency and bandwidth for collectives. */
#include "passes/plan/cost.h"

#include <math.h>

/* What a device is taken for when neither the cluster file nor a measurement says. */
static const double DEFAULT_FLOPS_A_THREAD = 5e10, DEFAULT_BANDWIDTH_A_THREAD = 8e9,
                    LAUNCH_SECONDS = 4e-6;

MotRate mot_cost_rate(const MotDevice *device)
{
    double flops = device->flops > 0 ? device->flops : DEFAULT_FLOPS_A_THREAD * device->threads;
    double bandwidth =
        device->bandwidth > 0 ? device->bandwidth : DEFAULT_BANDWIDTH_A_THREAD * device->threads;
    return (MotRate){flops / device->slow, bandwidth / device->slow, LAUNCH_SECONDS * device->slow};
}

MotStatus mot_cost_make(MotCtx *ctx, const MotGraph *g, const MotCluster *cluster,
                        const MotMesh *mesh, MotCost **out_cost)
{
    if (mesh->n_axes != 1)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "plans over %u mesh axes have no cost yet", mesh->n_axes);
    MotCost *cost = mot_arena_new(&ctx->arena, MotCost);
    *cost = (MotCost){.ctx = ctx, .g = g, .mesh = mesh, .n = mesh->n_devices, .bandwidth = 1e30};
    cost->rate = mot_arena_array(&ctx->arena, MotRate, cost->n);
    for (uint32_t i = 0; i < cost->n; i++) {
        cost->rate[i] = mot_cost_rate(&cluster->devices.data[mesh->devices[i]]);
        for (uint32_t k = 0; k < i; k++) {
            MotLink link = mot_cluster_link(cluster, mesh->devices[i], mesh->devices[k]);
            cost->latency = link.latency > cost->latency ? link.latency : cost->latency;
            cost->bandwidth = link.bandwidth < cost->bandwidth ? link.bandwidth : cost->bandwidth;
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

/* FLOPs and bytes of an op, divided into what a factor's split divides and what stays whole. */
typedef struct {
    double split_flops, whole_flops, split_bytes, whole_bytes;
} Work;

/*
 * FLOPs that do not shrink with the factor: what would be left of the op if the factor had size 0.
 */
static double find_whole_flops(const MotGraph *g, const MotOp *op, const MotFactor *f)
{
    MotValueInfo values[MOT_MAX_OPERANDS + 1] = {{.name = NULL}};
    MotValue in[MOT_MAX_OPERANDS];
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = i + 1;
        values[i + 1].type = *mot_graph_type(g, op->in[i]);
        if (f->in_dim[i] >= 0)
            values[i + 1].type.dims[f->in_dim[i]] = 0;
    }
    MotGraph shrunk = {.ctx = g->ctx, .values = {.data = values, .n = op->n_in + 1}};
    MotOp copy = *op;
    copy.in = in;
    return mot_op_flops(&shrunk, &copy);
}

/* Operators that read of operand 0 no more than they write. */
static bool reads_what_it_writes(MotOpKind kind)
{
    return kind == MOT_OP_GATHER || kind == MOT_OP_SLICE;
}

static Work find_work(const MotGraph *g, const MotOp *op, const MotFactors *factors, int factor)
{
    const MotFactor *f = factor >= 0 ? &factors->factor[factor] : NULL;
    double flops = mot_op_flops(g, op);
    Work work = {.whole_flops = flops > 0 && f ? find_whole_flops(g, op, f) : flops};
    work.split_flops = flops - work.whole_flops;
    for (uint32_t k = 0; k < op->n_out; k++) {
        double bytes = (double)mot_type_bytes(mot_graph_type(g, op->out[k]));
        *(f && f->out_dim[k] >= 0 ? &work.split_bytes : &work.whole_bytes) += bytes;
    }
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (!op->in[i])
            continue;
        double bytes = (double)mot_type_bytes(mot_graph_type(g, op->in[i]));
        bool is_split = f && f->in_dim[i] >= 0;
        if (i == 0 && reads_what_it_writes(op->kind)) {
            double written = (double)mot_type_bytes(mot_graph_type(g, op->out[0]));
            bytes = bytes < written ? bytes : written;
            is_split = f && f->out_dim[0] >= 0;
        }
        *(is_split ? &work.split_bytes : &work.whole_bytes) += bytes;
    }
    return work;
}

static double work_seconds(const MotRate *rate, Work work, double fraction)
{
    double compute = (work.whole_flops + work.split_flops * fraction) / rate->flops;
    double memory = (work.whole_bytes + work.split_bytes * fraction) / rate->bandwidth;
    return rate->overhead + (compute > memory ? compute : memory);
}

double mot_cost_op(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                   double *times)
{
    MotOpClass class = mot_op_info(op->kind)->class;
    if (class == MOT_SINK || (class == MOT_SOURCE && op->kind != MOT_OP_IOTA))
        return 0;
    Work work = find_work(cost->g, op, factors, factor);
    int64_t units = factor >= 0 ? factors->factor[factor].size : 0;
    const int64_t *part = factor >= 0 ? mot_cost_parts(cost, units) : NULL;
    double slowest = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double seconds =
            work_seconds(&cost->rate[i], work, part && units ? (double)part[i] / (double)units : 1);
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
        double seconds = cost->rate[i].overhead +
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

/* Units that device i can finish within `seconds`, at most `units`. */
static double units_within(const MotRate *rate, Work work, double units, double seconds)
{
    double left = seconds - rate->overhead, fraction = left < 0 ? 0 : 1;
    double flops = left * rate->flops - work.whole_flops,
           bytes = left * rate->bandwidth - work.whole_bytes;
    if (flops < fraction * work.split_flops)
        fraction = flops < 0 ? 0 : flops / work.split_flops;
    if (bytes < fraction * work.split_bytes)
        fraction = bytes < 0 ? 0 : bytes / work.split_bytes;
    double whole = (double)(int64_t)(fraction * units * (1 + 1e-12));
    return whole > units ? units : whole;
}

/*
 * The least T at which the devices together finish all units: what the best integer shares would
 * give. From below.
 */
static double best_split(const MotCost *cost, Work work, int64_t units)
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

double mot_cost_op_bound(const MotCost *cost, const MotOp *op, const MotFactors *factors)
{
    MotOpClass class = mot_op_info(op->kind)->class;
    if (class == MOT_SINK || (class == MOT_SOURCE && op->kind != MOT_OP_IOTA))
        return 0;
    Work whole = find_work(cost->g, op, factors, -1);
    double best = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        double seconds = work_seconds(&cost->rate[i], whole, 1);
        best = seconds > best ? seconds : best;
    }
    for (uint32_t f = 0; f < factors->n; f++) {
        if (factors->factor[f].kind == MOT_FACTOR_WHOLE || factors->factor[f].size < 1)
            continue;
        double seconds =
            best_split(cost, find_work(cost->g, op, factors, (int)f), factors->factor[f].size);
        best = seconds < best ? seconds : best;
    }
    return best;
}
