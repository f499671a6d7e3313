/*
 * Cluster: the devices and the links between them, as the user describes them (cluster.yaml) or as
 * they were measured.
 */
#ifndef MOTLEY_IR_CLUSTER_H
#define MOTLEY_IR_CLUSTER_H

#include "support/context.h"

/* Of a cluster; so ranks of a training, and parts of a dim, are no more. */
enum { MOT_MAX_DEVICES = 64 };

/* How fast a device's threads work together, without emulated slowness. 0: not known. */
typedef struct MotRates {
    double flops;     /* FLOP/s of matrix products, float32 */
    double functions; /* elementary functions (exp, erf, ...) a second */
    double bandwidth; /* bytes/s to and from memory */
    double launch;    /* seconds from one kernel to the next */
} MotRates;

/*
 * From step `step` of a training on, counted from 0, a device is emulated `slow` times slower than
 * native.
 */
typedef struct MotSlowdown {
    int64_t step;
    double slow;
} MotSlowdown;

typedef struct MotDevice {
    const char *name;
    const char *backend; /* "cpu" or "ref" */
    uint32_t threads;
    double slow; /* emulated: this many times slower than native; >= 1 */
    MotVec(MotSlowdown)
        slowdowns; /* what becomes of `slow` at later steps, in their order; not planned for */
    double memory; /* bytes the arena may take; 0: no cap */
    MotRates alone, beside; /* while no other device, and while all devices of the cluster work */
    bool is_assumed;        /* some rates are neither given nor measured */
} MotDevice;

/* A link with a == b == MOT_ALL_DEVICES holds between every pair that has no link of its own. */
typedef struct MotLink {
    uint32_t a, b;
    double latency;                              /* seconds */
    double bandwidth;                            /* bytes/s */
    bool is_emulated;                            /* slower than the real one: delivery is delayed */
    double measured_latency, measured_bandwidth; /* of collectives, emulation included; 0: not */
} MotLink;
#define MOT_ALL_DEVICES UINT32_MAX

typedef struct MotCluster {
    MotVec(MotDevice) devices;
    MotVec(MotLink) links;
    /*
     * Emulated by their figures: a kernel takes what its work (ir/count.h) takes at the device's
     * rates, whatever machine runs it.
     */
    bool is_modelled;
} MotCluster;

/* `slow` in a step of a training. */
double mot_device_slow_at(const MotDevice *device, int64_t step);
/* Makes it `slow` from `step` on, up to the next change that is there. */
void mot_device_slow_down(MotCtx *ctx, MotDevice *device, int64_t step, double slow);
/* The same at every step. */
bool mot_device_slows_alike(const MotDevice *a, const MotDevice *b);
/*
 * Fills in the rates that are not known: what was measured alone holds beside others, and the rest
 * is what a usual device of the kind does. `isa` is "avx2" or "avx512"; NULL: the lesser one.
 */
void mot_device_assume(MotDevice *device, const char *isa);
/*
 * The rates of a device of this cluster, those assumed that are not known: as measured alone if it
 * is the only one, else beside the others.
 */
MotRates mot_cluster_rates(const MotCluster *cluster, uint32_t device);
/* n equal CPU devices with `threads` threads each and native links. */
MotCluster *mot_cluster_make(MotCtx *ctx, uint32_t n, uint32_t threads);
/* The link between two devices. In a modelled cluster all are emulated. */
MotLink mot_cluster_link(const MotCluster *cluster, uint32_t a, uint32_t b);

#endif
