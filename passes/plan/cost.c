/* Roofline for operators, latency and bandwidth for collectives. */
#include "passes/plan/cost.h"

#include "passes/plan/choice.h"

#include <math.h>

MotRates mot_cost_rates(const MotCluster *cluster, uint32_t device)
{
    MotRates r = mot_cluster_rates(cluster, device);
    double slow = cluster->devices.data[device].slow;
    return (MotRates){r.flops / slow, r.functions / slow, r.bandwidth / slow, r.launch * slow};
}

MotLink mot_cost_link(const MotCluster *cluster, uint32_t a, uint32_t b)
{
    MotLink link = mot_cluster_link(cluster, a, b);
    link.latency = link.measured_latency > 0 ? link.measured_latency : link.latency;
    link.bandwidth = link.measured_bandwidth > 0 ? link.measured_bandwidth : link.bandwidth;
    return link;
}

/* The axis along which two devices meet, whose coordinates differ in it alone; n_axes: none. */
static uint32_t find_axis(const MotMesh *mesh, uint32_t i, uint32_t k)
{
    uint32_t found = mesh->n_axes;
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        if (mot_mesh_coordinate(mesh, i, a) == mot_mesh_coordinate(mesh, k, a))
            continue;
        if (found < mesh->n_axes)
            return mesh->n_axes;
        found = a;
    }
    return found;
}

static void add_link(MotCost *cost, uint32_t i, uint32_t k)
{
    uint32_t axis = find_axis(cost->mesh, i, k);
    if (axis == cost->mesh->n_axes)
        return;
    MotLink link = mot_cost_link(cost->cluster, cost->mesh->devices[i], cost->mesh->devices[k]);
    cost->overlaps |= link.is_emulated;
    cost->latency[axis] = fmax(cost->latency[axis], link.latency);
    cost->bandwidth[axis] = fmin(cost->bandwidth[axis], link.bandwidth);
}

MotStatus mot_cost_make(MotCtx *ctx, const MotGraph *g, const MotCluster *cluster,
                        const MotMesh *mesh, MotCost **out_cost)
{
    MotCost *cost = mot_arena_new(&ctx->arena, MotCost);
    *cost = (MotCost){.ctx = ctx,
                      .g = g,
                      .cluster = cluster,
                      .mesh = mesh,
                      .n = mesh->n_devices,
                      .last = mesh->n_axes - 1};
    cost->n_places = cost->n / mesh->axis[cost->last].n;
    cost->rate = mot_arena_array(&ctx->arena, MotRates, cost->n);
    cost->work = mot_arena_array(&ctx->arena, MotWork *, g->ops.n);
    cost->runs = mot_arena_array(&ctx->arena, double, g->ops.n);
    cost->local = *g;
    if (cost->last > 0)
        cost->local.values.data =
            mot_arena_copy(&ctx->arena, g->values.data, g->values.n * sizeof *g->values.data);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        cost->bandwidth[a] = 1e30;
    mot_cost_set_micro(cost, 1);
    mot_fusion_find(ctx, g, &cost->fusion);
    for (uint32_t i = 0; i < cost->n; i++) {
        cost->rate[i] = mot_cost_rates(cluster, mesh->devices[i]);
        cost->overlaps |= cluster->is_modelled || cluster->devices.data[mesh->devices[i]].slow > 1;
        for (uint32_t k = 0; k < i; k++)
            add_link(cost, i, k);
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

const int64_t *mot_cost_parts(MotCost *cost, uint32_t axis, int64_t units)
{
    for (uint32_t i = 0; i < cost->parts.n; i++)
        if (cost->parts.data[i].units == units && cost->parts.data[i].axis == axis)
            return cost->parts.data[i].part;
    const MotMeshAxis *of = &cost->mesh->axis[axis];
    MotParts parts = {axis, units, mot_arena_array(&cost->ctx->arena, int64_t, of->n)};
    mot_share_split(of->share, of->n, units, parts.part);
    mot_vec_push(&cost->ctx->arena, &cost->parts, parts);
    return parts.part;
}

/* Of `units`, those that device i gets along an axis. */
static int64_t part_of(MotCost *cost, uint32_t axis, int64_t units, uint32_t i)
{
    return mot_cost_parts(cost, axis, units)[mot_mesh_coordinate(cost->mesh, i, axis)];
}

/*
 * What `axis` deals out of a value where device i is: all units, or those inside the part that an
 * axis before it gives the device of the same dim.
 */
static int64_t units_at(MotCost *cost, const MotSharding *s, uint32_t axis, uint32_t i)
{
    for (uint32_t a = axis; a-- > 0;)
        if (s->axis[a] == s->axis[axis] && s->units[a] > 0)
            return part_of(cost, a, units_at(cost, s, a, i), i) * s->units[axis] / s->units[a];
    return s->units[axis];
}

/* The fraction of a value that device i holds. */
static double fraction_of(MotCost *cost, const MotSharding *s, uint32_t i)
{
    double fraction = 1;
    for (uint32_t a = 0; a <= cost->last; a++) {
        if (s->axis[a] < 0 || s->units[a] == 0)
            continue;
        int64_t units = units_at(cost, s, a, i);
        fraction *= units ? (double)part_of(cost, a, units, i) / (double)units : 0;
    }
    return fraction;
}

double mot_cost_local_bytes(MotCost *cost, const MotType *type, MotSharding s, uint32_t i)
{
    return (double)mot_type_bytes(type) * fraction_of(cost, &s, i);
}

static MotOpId id_of(const MotCost *cost, const MotOp *op)
{
    return op->n_out ? cost->g->values.data[op->out[0]].def : 0;
}

/* The units of a factor that the axes before the last leave to the place of device i. */
static int64_t units_of(MotCost *cost, MotOpId id, const MotFactors *factors, int factor,
                        uint32_t i)
{
    const MotFactor *f = &factors->factor[factor];
    for (uint32_t a = 0; cost->given && a < cost->last; a++) {
        int before = cost->given[id].factor[a];
        if (before == factor)
            return part_of(cost, a, f->size, i);
        if (before >= 0 && before == f->within)
            return f->size * part_of(cost, a, factors->factor[before].size, i);
    }
    return f->size;
}

/* Sets the sizes of the op's values to what the axes before the last leave of them, or back. */
static void resize_values(MotCost *cost, const MotOp *op, const MotFactors *factors, uint32_t i,
                          bool is_local)
{
    MotValueInfo *local = cost->local.values.data;
    const int8_t *given = cost->given[id_of(cost, op)].factor;
    for (uint32_t k = 0; k < op->n_in + op->n_out; k++) {
        MotValue v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        MotType type = cost->g->values.data[v].type;
        for (uint32_t a = 0; v && is_local && a < cost->last; a++) {
            const MotFactor *f = given[a] >= 0 ? &factors->factor[given[a]] : NULL;
            int d = !f ? -1 : k < op->n_in ? f->in_dim[k] : f->out_dim[k - op->n_in];
            if (d >= 0 && f->size > 0)
                type.dims[d] = type.dims[d] / f->size * part_of(cost, a, f->size, i);
        }
        local[v].type = type;
    }
}

/* Whether no axis before the last leaves the place of device i any of the op. */
static bool is_idle(MotCost *cost, MotOpId id, const MotFactors *factors, uint32_t i)
{
    for (uint32_t a = 0; cost->given && a < cost->last; a++) {
        int f = cost->given[id].factor[a];
        if (f >= 0 && part_of(cost, a, factors->factor[f].size, i) == 0)
            return true;
    }
    return false;
}

/* Counted once for every place and factor. */
static MotWork work_of(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                       uint32_t i)
{
    MotOpId id = id_of(cost, op);
    uint32_t n = factors->n + 1, at = factor >= 0 ? (uint32_t)factor : factors->n;
    if (!cost->fusion.launch[id])
        return (MotWork){0};
    if (!cost->work[id]) {
        cost->work[id] = mot_arena_array(&cost->ctx->arena, MotWork, (size_t)cost->n_places * n);
        for (uint32_t k = 0; k < cost->n_places * n; k++) {
            uint32_t first = k / n * (cost->n / cost->n_places), f = k % n;
            if (cost->given)
                resize_values(cost, op, factors, first, true);
            cost->work[id][k] = mot_work_find(&cost->local, &cost->fusion, op, factors,
                                              f < factors->n ? (int)f : -1);
        }
        if (cost->given)
            resize_values(cost, op, factors, 0, false);
    }
    return cost->work[id][(size_t)(i / (cost->n / cost->n_places)) * n + at];
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

/* The part of the split work that device i has among those of its place. */
static double part_at(MotCost *cost, MotOpId id, const MotFactors *factors, int factor, uint32_t i)
{
    if (is_idle(cost, id, factors, i))
        return 0;
    if (factor < 0)
        return 1;
    int64_t units = units_of(cost, id, factors, factor, i);
    return units ? (double)part_of(cost, cost->last, units, i) / (double)units : 1;
}

double mot_cost_op(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                   double *times)
{
    MotOpId id = id_of(cost, op);
    double runs = op->n_out ? cost->runs[id] : 1, slowest = 0;
    for (uint32_t i = 0; i < cost->n; i++) {
        MotWork work = work_of(cost, op, factors, factor, i);
        MotSeconds one = seconds_of(&cost->rate[i], &work);
        double seconds = runs * mot_seconds_at(&one, part_at(cost, id, factors, factor, i));
        slowest = seconds > slowest ? seconds : slowest;
        if (times)
            times[i] += seconds;
    }
    return slowest;
}

MotSeconds mot_cost_seconds(MotCost *cost, const MotOp *op, const MotFactors *factors, int factor,
                            uint32_t device)
{
    MotWork work = work_of(cost, op, factors, factor, device);
    double runs = op->n_out ? cost->runs[id_of(cost, op)] : 1;
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

/* Where device i's part of what the axis deals out begins and ends, as fractions of that. */
static void range_of(MotCost *cost, const MotSharding *s, uint32_t axis, uint32_t i,
                     double *out_begin, double *out_end)
{
    int64_t units = units_at(cost, s, axis, i), before = 0;
    const int64_t *part = mot_cost_parts(cost, axis, units);
    uint32_t own = mot_mesh_coordinate(cost->mesh, i, axis);
    for (uint32_t k = 0; k < own; k++)
        before += part[k];
    *out_begin = units ? (double)before / (double)units : 0;
    *out_end = units ? (double)(before + part[own]) / (double)units : 0;
}

/*
 * The part of its new range that device i does not hold yet: the same dim, dealt out in other
 * units.
 */
static double missing_of(MotCost *cost, const MotSharding *have, const MotSharding *need,
                         uint32_t axis, uint32_t i)
{
    double begin, end, from, to;
    range_of(cost, need, axis, i, &begin, &end);
    range_of(cost, have, axis, i, &from, &to);
    double overlap = fmin(end, to) - fmax(begin, from);
    return end - begin - fmax(overlap, 0);
}

/* A step of a conversion between two shardings. */
typedef struct {
    MotStep step;
    const MotType *type;
    MotSharding have, left;
} Move;

/* Bytes that device i receives in it. */
static double received_by(MotCost *cost, const Move *m, uint32_t i)
{
    double total = (double)mot_type_bytes(m->type), n = (double)cost->mesh->axis[m->step.axis].n,
           before = fraction_of(cost, &m->have, i), after = fraction_of(cost, &m->left, i);
    if (m->step.kind == MOT_INS_ALL_REDUCE)
        return 2 * total * after * (n - 1) / n;
    if (m->step.kind == MOT_INS_REDUCE_SCATTER)
        return total * after * (n - 1);
    if (m->step.kind == MOT_INS_ALL_GATHER)
        return total * (after - before);
    MotSharding group = m->have; /* what the devices hold together that meet */
    group.axis[m->step.axis] = MOT_REPLICATED;
    double whole = fraction_of(cost, &group, i);
    if (m->step.move.dim == m->step.move.dim_out)
        return total * whole * missing_of(cost, &m->have, &m->left, m->step.axis, i);
    return whole > 0 ? total * after * (1 - before / whole) : 0;
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

/*
 * Seconds of the latency that a collective bears alone, of `bytes` together where its ranks meet.
 */
static double latency_of(const MotCost *cost, const MotTransition *t, const MotStep *step,
                         double bytes)
{
    static const double GATHERED_BYTES = 1 << 20; /* passes/lower/coalesce.c: the least together */
    int phases = step->kind == MOT_INS_ALL_REDUCE ? 2 : 1;
    double part = bytes / GATHERED_BYTES;
    return phases * cost->latency[step->axis] * (t->is_gathered && part < 1 ? part : 1);
}

bool mot_cost_next(MotCost *cost, MotTransition *t, double *received, double *copying,
                   MotConversion *out_step)
{
    Move m = {.type = t->type, .have = t->have};
    *out_step = (MotConversion){0};
    if (!mot_convert_next(cost->mesh->n_axes, &t->have, t->need, &m.step))
        return false;
    m.left = t->have;
    if (m.step.kind == MOT_INS_PART) {
        out_step->is_local = true;
        out_step->seconds = mot_cost_copy(cost, t->type, m.left, t->runs, copying);
        return true;
    }
    double most = 0, together = 0;
    MotSharding group = m.have;
    group.axis[m.step.axis] = MOT_REPLICATED;
    for (uint32_t i = 0; i < cost->n; i++) {
        double bytes = received_by(cost, &m, i);
        most = bytes > most ? bytes : most;
        together = fmax(together, mot_cost_local_bytes(cost, t->type, group, i));
        out_step->bytes += t->runs * bytes;
        if (received)
            received[i] += t->runs * bytes;
    }
    out_step->seconds =
        t->runs * (latency_of(cost, t, &m.step, together) + most / cost->bandwidth[m.step.axis]);
    return true;
}

MotConversion mot_cost_convert(MotCost *cost, const MotTransition *t, double *received,
                               double *copying)
{
    MotConversion all, step;
    MotTransition rest = *t;
    if (!mot_cost_next(cost, &rest, received, copying, &all))
        return all;
    while (mot_cost_next(cost, &rest, received, copying, &step)) {
        all.seconds += step.seconds;
        all.bytes += step.bytes;
        all.is_local &= step.is_local;
    }
    return all;
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
 * The least T at which the devices of a place, from `first` on, together finish all units: what the
 * best integer shares would give. From below.
 */
static double best_split(const MotCost *cost, const MotWork *work, int64_t units, uint32_t first)
{
    uint32_t n = cost->n / cost->n_places;
    double low = 0, high = 0;
    for (uint32_t i = first; i < first + n; i++) {
        MotSeconds s = seconds_of(&cost->rate[i], work);
        double alone = mot_seconds_at(&s, 1), idle = mot_seconds_at(&s, 0);
        high = i == first || alone < high ? alone : high;
        low = idle > low ? idle : low; /* a device without units starts the op */
    }
    high = high > low ? high : low;
    for (int step = 0; step < 60; step++) {
        double middle = (low + high) / 2, done = 0;
        for (uint32_t i = first; i < first + n; i++)
            done += units_within(&cost->rate[i], work, (double)units, middle);
        *(done >= (double)units ? &high : &low) = middle;
    }
    return low;
}

/* Of the devices of a place, from `first` on. */
static double bound_place(MotCost *cost, const MotOp *op, const MotFactors *factors, uint32_t first)
{
    MotOpId id = id_of(cost, op);
    MotWork work = work_of(cost, op, factors, -1, first);
    const int8_t *given = cost->given ? cost->given[id].factor : NULL;
    double part = part_at(cost, id, factors, -1, first), best = 0;
    for (uint32_t i = first; i < first + cost->n / cost->n_places; i++) {
        MotSeconds s = seconds_of(&cost->rate[i], &work);
        best = fmax(best, mot_seconds_at(&s, part));
    }
    for (uint32_t f = 0; part > 0 && f < factors->n; f++) {
        if (!mot_factor_can_split(factors, (int)f, given, cost->last))
            continue;
        work = work_of(cost, op, factors, (int)f, first);
        best =
            fmin(best, best_split(cost, &work, units_of(cost, id, factors, (int)f, first), first));
    }
    return best;
}

double mot_cost_op_bound(MotCost *cost, const MotOp *op, const MotFactors *factors)
{
    double slowest = 0;
    for (uint32_t i = 0; i < cost->n; i += cost->n / cost->n_places)
        slowest = fmax(slowest, bound_place(cost, op, factors, i));
    return op->n_out ? slowest * cost->runs[id_of(cost, op)] : slowest;
}
