/*
 * Shares of the devices on one mesh axis: by their speeds, and better ones for a plan. Devices do
 * some work whatever their share (they read operands that are whole everywhere, they launch), and
 * the fewer rows a device has the more of its time that is; and units are whole. So the shares that
 * suit a plan best are not quite the speeds.
 */
#ifndef MOTLEY_PASSES_PLAN_SHARES_H
#define MOTLEY_PASSES_PLAN_SHARES_H

#include "ir/plan.h"

/*
 * For the coordinates of the mesh's last axis small integers in the ratio of the speeds there,
 * within 1 % where integers up to 64 allow it. So a device whose speed is less than 1/128 of the
 * fastest one's has none.
 */
void mot_plan_speed_shares(const MotCluster *cluster, const MotMesh *mesh, int64_t *out_share);

/* Seconds of what is planned under the shares as they stand; INFINITY where they can't be. */
typedef double MotShareTime(void *data);

/*
 * Local search from share[n], in steps that become smaller: returns the time of the shares that it
 * leaves there. A share neither becomes 0 nor stops being it. Deterministic; some tens of
 * evaluations a device.
 */
double mot_shares_search(int64_t *share, uint32_t n, MotShareTime *time, void *data);

#endif
