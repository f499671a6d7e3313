/* Devices and links. */
#include "ir/cluster.h"

#include <string.h>

/* Shared memory between processes of one machine, when nothing else was said or measured. */
static const MotLink native_link = {
    .a = MOT_ALL_DEVICES, .b = MOT_ALL_DEVICES, .latency = 5e-6, .bandwidth = 8e9};

MotCluster *mot_cluster_make(MotCtx *ctx, uint32_t n, uint32_t threads)
{
    MotCluster *cluster = mot_arena_new(&ctx->arena, MotCluster);
    for (uint32_t i = 0; i < n; i++) {
        MotDevice device = {.name = mot_arena_printf(&ctx->arena, "cpu%u", i),
                            .backend = "cpu",
                            .threads = threads,
                            .slow = 1};
        mot_vec_push(&ctx->arena, &cluster->devices, device);
    }
    return cluster;
}

double mot_device_slow_at(const MotDevice *device, int64_t step)
{
    double slow = device->slow;
    for (uint32_t i = 0; i < device->slowdowns.n && device->slowdowns.data[i].step <= step; i++)
        slow = device->slowdowns.data[i].slow;
    return slow;
}

void mot_device_slow_down(MotCtx *ctx, MotDevice *device, int64_t step, double slow)
{
    if (step == 0) {
        device->slow = slow;
        return;
    }
    uint32_t i = device->slowdowns.n;
    while (i > 0 && device->slowdowns.data[i - 1].step >= step)
        i--;
    MotSlowdown change = {step, slow};
    if (i < device->slowdowns.n && device->slowdowns.data[i].step == step) {
        device->slowdowns.data[i] = change;
        return;
    }
    mot_vec_push(&ctx->arena, &device->slowdowns, change);
    for (uint32_t k = device->slowdowns.n - 1; k > i; k--)
        device->slowdowns.data[k] = device->slowdowns.data[k - 1];
    device->slowdowns.data[i] = change;
}

bool mot_device_slows_alike(const MotDevice *a, const MotDevice *b)
{
    if (a->slow != b->slow || a->slowdowns.n != b->slowdowns.n)
        return false;
    for (uint32_t i = 0; i < a->slowdowns.n; i++)
        if (a->slowdowns.data[i].step != b->slowdowns.data[i].step ||
            a->slowdowns.data[i].slow != b->slowdowns.data[i].slow)
            return false;
    return true;
}

/* What a thread of a usual device does when nobody measured; the first row is for what has none. */
static const struct {
    const char *kind;
    MotRates thread;
} usual[] = {
    {"avx2", {6e10, 5e8, 1e10, 2e-6}},
    {"avx512", {1.2e11, 1e9, 1.2e10, 2e-6}},
    {"ref", {1e9, 2e7, 1e9, 1e-5}}, /* it interprets, on one thread */
};

static void fill(MotRates *rates, const MotRates *from, double times)
{
    rates->flops = rates->flops > 0 ? rates->flops : from->flops * times;
    rates->functions = rates->functions > 0 ? rates->functions : from->functions * times;
    rates->bandwidth = rates->bandwidth > 0 ? rates->bandwidth : from->bandwidth * times;
    rates->launch = rates->launch > 0 ? rates->launch : from->launch;
}

void mot_device_assume(MotDevice *device, const char *isa)
{
    MotRates *alone = &device->alone;
    const char *kind = strcmp(device->backend, "ref") == 0 ? "ref" : isa ? isa : usual[0].kind;
    size_t row = 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(usual[i].kind, kind) == 0)
            row = i;
    device->is_assumed |=
        alone->flops <= 0 || alone->functions <= 0 || alone->bandwidth <= 0 || alone->launch <= 0;
    fill(alone, &usual[row].thread, strcmp(kind, "ref") == 0 ? 1 : device->threads);
    fill(&device->beside, alone, 1);
}

MotRates mot_cluster_rates(const MotCluster *cluster, uint32_t device)
{
    MotDevice d = cluster->devices.data[device];
    mot_device_assume(&d, NULL);
    return cluster->devices.n > 1 ? d.beside : d.alone;
}

static MotLink find_link(const MotCluster *cluster, uint32_t a, uint32_t b)
{
    MotLink found = native_link;
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        const MotLink *link = &cluster->links.data[i];
        if ((link->a == a && link->b == b) || (link->a == b && link->b == a))
            return *link;
        if (link->a == MOT_ALL_DEVICES)
            found = *link;
    }
    return found;
}

MotLink mot_cluster_link(const MotCluster *cluster, uint32_t a, uint32_t b)
{
    MotLink link = find_link(cluster, a, b);
    link.is_emulated |= cluster->is_modelled;
    return link;
}
