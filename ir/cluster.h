/*
 * Cluster: the devices and the links between them, as the user describes them (cluster.yaml) or as they were measured.
 */
#ifndef MOTLEY_IR_CLUSTER_H
#define MOTLEY_IR_CLUSTER_H

#include "support/context.h"

typedef struct MotDevice {
    const char *name;
    const char *backend; /* "cpu" or "ref" */
    uint32_t threads;
    double slow;      /* emulated: this many times slower than native; >= 1 */
    double memory;    /* bytes the arena may take; 0: no cap */
    double flops;     /* native float32 FLOP/s of its threads; 0: not given */
    double bandwidth; /* native bytes/s; 0: not given */
} MotDevice;

/* A link with a == b == MOT_ALL_DEVICES holds between every pair that has no link of its own. */
typedef struct MotLink {
    uint32_t a, b;
    double latency;   /* seconds */
    double bandwidth; /* bytes/s */
    bool is_emulated; /* slower than the real one: delivery is delayed */
} MotLink;
#define MOT_ALL_DEVICES UINT32_MAX

typedef struct MotCluster {
    MotVec(MotDevice) devices;
    MotVec(MotLink) links;
} MotCluster;

/* n equal CPU devices with `threads` threads each and native links. */
MotCluster *mot_cluster_make(MotCtx *ctx, uint32_t n, uint32_t threads);
/* The link between two devices. */
MotLink mot_cluster_link(const MotCluster *cluster, uint32_t a, uint32_t b);

#endif
