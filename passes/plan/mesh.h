/*
 * Which devices are in which place of a plan's mesh. One axis over all of them; or where the batch
 * has units (DeMo's replicas) and there are more devices than that, two: the units, and the devices
 * of one of them, which are near each other by the cluster's links.
 */
#ifndef MOTLEY_PASSES_PLAN_MESH_H
#define MOTLEY_PASSES_PLAN_MESH_H

#include "passes/plan/plan.h"

/*
 * The mesh for a graph, with shares of the last axis by speed, or those of opts->share. Fails with
 * MOT_ERR_USAGE for devices or shares that aren't there, MOT_ERR_LIMIT for too many devices. Where
 * replicas can't have groups of devices of one size a warning says why there is one axis. Time:
 * cubic in devices.
 */
MOT_CHECKED MotStatus mot_plan_mesh(MotCtx *ctx, const MotGraph *graph, const MotCluster *cluster,
                                    const MotPlanOpts *opts, MotMesh *out_mesh);

#endif
