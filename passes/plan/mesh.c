/*
 * Groups are cut from an order in which near devices are together: the leaves of the tree that
 * joining the nearest two sets of devices makes, again and again (single linkage).
 */
#include "passes/plan/mesh.h"

#include "passes/plan/cost.h"
#include "passes/plan/outer.h"

#include <math.h>
#include <string.h>

/* Links that differ by less are alike. */
static const double ALIKE = 1.25;

static MotStatus check_shares(MotCtx *ctx, const MotPlanOpts *opts, uint32_t n)
{
    int64_t total = 0;
    if (opts->n_share != n)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%u shares for %u devices", opts->n_share,
                        n);
    for (uint32_t i = 0; i < n; i++) {
        if (opts->share[i] < 0 || opts->share[i] > 1 << 20)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "share %lld is not between 0 and 1048576", (long long)opts->share[i]);
        total += opts->share[i];
    }
    if (total == 0)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "all shares are 0");
    return MOT_OK;
}

/* ---- Groups ---- */

/* Seconds of a mebibyte between two devices. */
static double distance(const MotCluster *cluster, uint32_t a, uint32_t b)
{
    MotLink link = mot_cost_link(cluster, a, b);
    return link.latency + (1 << 20) / link.bandwidth;
}

/* The devices in an order in which sets that are near each other stand together. */
static void order_by_links(const MotCluster *cluster, uint32_t n, uint32_t *order)
{
    uint32_t set[MOT_MAX_DEVICES]; /* by place in the order: its set's first place */
    for (uint32_t i = 0; i < n; i++)
        order[i] = set[i] = i;
    for (uint32_t joins = 1; joins < n; joins++) {
        double least = INFINITY;
        uint32_t a = 0, b = 0; /* places: a's set comes before b's */
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = i + 1; k < n; k++)
                if (set[i] != set[k] && distance(cluster, order[i], order[k]) < least) {
                    least = distance(cluster, order[i], order[k]);
                    a = i;
                    b = k;
                }
        uint32_t end_a = set[a], end_b = set[b], moved[MOT_MAX_DEVICES];
        while (end_a < n && set[end_a] == set[a])
            end_a++;
        while (end_b < n && set[end_b] == set[b])
            end_b++;
        uint32_t first = set[b], n_b = end_b - first, n_between = first - end_a;
        memcpy(moved, order + first, n_b * sizeof *order);
        memmove(order + end_a + n_b, order + end_a, n_between * sizeof *order);
        memmove(set + end_a + n_b, set + end_a, n_between * sizeof *set);
        memcpy(order + end_a, moved, n_b * sizeof *order);
        for (uint32_t i = end_a; i < end_a + n_b; i++)
            set[i] = set[a];
        for (uint32_t i = end_a + n_b; i < end_b; i++)
            set[i] += n_b;
    }
}

/* The fastest first, else as they stand. */
static void sort_by_speed(const MotCluster *cluster, uint32_t n, uint32_t *devices)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t device = devices[i], k = i;
        double flops = mot_cost_rates(cluster, device).flops;
        for (; k > 0 && mot_cost_rates(cluster, devices[k - 1]).flops < flops; k--)
            devices[k] = devices[k - 1];
        devices[k] = device;
    }
}

/* The farthest two devices of one group, and the nearest two of different ones. */
static void measure_groups(const MotCluster *cluster, uint32_t n, uint32_t size,
                           const uint32_t *devices, double *out_within, double *out_between)
{
    *out_within = 0;
    *out_between = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) {
            double d = distance(cluster, devices[i], devices[k]);
            if (i / size == k / size)
                *out_within = fmax(*out_within, d);
            else
                *out_between = fmin(*out_between, d);
        }
}

/*
 * Groups of `size`, one after the other, the same place of all of them about as fast. Where all
 * links are alike any devices make a group, so they are dealt out by speed. False if some group
 * would lie across links that are slower than others which it leaves out.
 */
static bool group_devices(const MotCluster *cluster, uint32_t n, uint32_t size, uint32_t *devices)
{
    double within, between, nearest = INFINITY, farthest = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) {
            nearest = fmin(nearest, distance(cluster, i, k));
            farthest = fmax(farthest, distance(cluster, i, k));
        }
    if (farthest <= ALIKE * nearest) {
        uint32_t sorted[MOT_MAX_DEVICES];
        for (uint32_t i = 0; i < n; i++)
            sorted[i] = i;
        sort_by_speed(cluster, n, sorted);
        for (uint32_t i = 0; i < n; i++)
            devices[i % (n / size) * size + i / (n / size)] = sorted[i];
        return true;
    }
    order_by_links(cluster, n, devices);
    for (uint32_t i = 0; i < n; i += size)
        sort_by_speed(cluster, size, devices + i);
    measure_groups(cluster, n, size, devices, &within, &between);
    return within <= ALIKE * between;
}

/* ---- Meshes ---- */

static void add_axis(MotCtx *ctx, MotMesh *mesh, const char *name, uint32_t n)
{
    MotMeshAxis *axis = &mesh->axis[mesh->n_axes++];
    *axis = (MotMeshAxis){.name = name, .n = n, .share = mot_arena_array(&ctx->arena, int64_t, n)};
    for (uint32_t i = 0; i < n; i++)
        axis->share[i] = 1;
}

/* How many replicas get a group of devices each; 1: the devices are not grouped. */
static uint32_t count_groups(MotCtx *ctx, const MotGraph *graph, const MotPlanOpts *opts,
                             uint32_t n)
{
    int64_t units = mot_outer_units(graph);
    if (units < 2 || units >= n || opts->one_axis || (opts->share && opts->n_share == n))
        return 1;
    if (n % units == 0)
        return (uint32_t)units;
    mot_warn(ctx, MOT_NOWHERE,
             "%u devices are no equal groups for %lld replicas: none is split over several", n,
             (long long)units);
    return 1;
}

static void make_mesh(MotCtx *ctx, const MotGraph *graph, const MotCluster *cluster,
                      const MotPlanOpts *opts, uint32_t n, MotMesh *out)
{
    uint32_t n_groups = count_groups(ctx, graph, opts, n);
    *out = (MotMesh){.n_devices = n, .devices = mot_arena_array(&ctx->arena, uint32_t, n)};
    if (n_groups > 1 && !group_devices(cluster, n, n / n_groups, out->devices)) {
        mot_warn(ctx, MOT_NOWHERE,
                 "groups of %u devices for %u replicas would lie across slow links while faster "
                 "ones are there: none is split over several",
                 n / n_groups, n_groups);
        n_groups = 1;
    }
    if (n_groups > 1)
        add_axis(ctx, out, "replicas", n_groups);
    add_axis(ctx, out, "d", n / n_groups);
    for (uint32_t i = 0; n_groups == 1 && i < n; i++)
        out->devices[i] = i;
}

MotStatus mot_plan_mesh(MotCtx *ctx, const MotGraph *graph, const MotCluster *cluster,
                        const MotPlanOpts *opts, MotMesh *out)
{
    uint32_t n = opts->n_devices ? opts->n_devices : cluster->devices.n;
    if (n == 0 || n > cluster->devices.n)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "%u devices are asked for, the cluster has %u", n, cluster->devices.n);
    if (n > MOT_MAX_DEVICES)
        return mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "%u devices; a mesh has at most %d", n,
                        MOT_MAX_DEVICES);
    make_mesh(ctx, graph, cluster, opts, n, out);
    MotMeshAxis *last = &out->axis[out->n_axes - 1];
    if (!opts->share) {
        mot_plan_speed_shares(cluster, out, last->share);
        return MOT_OK;
    }
    MOT_TRY(check_shares(ctx, opts, last->n));
    memcpy(last->share, opts->share, last->n * sizeof *opts->share);
    return MOT_OK;
}
