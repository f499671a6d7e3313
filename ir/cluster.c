/* Devices and links. */
#include "ir/cluster.h"

/* Shared memory between processes of one machine, when nothing else was said or measured. */
static const MotLink native_link = {MOT_ALL_DEVICES, MOT_ALL_DEVICES, 5e-6, 8e9, false};

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

MotLink mot_cluster_link(const MotCluster *cluster, uint32_t a, uint32_t b)
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
