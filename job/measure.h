/*
 * What devices and links do, measured with small Programs that go the way of training: planned,
 * lowered, compiled, run by ranks. What comes out is in the terms of the cost function.
 */
#ifndef MOTLEY_JOB_MEASURE_H
#define MOTLEY_JOB_MEASURE_H

#include "ir/cluster.h"
#include "job/args.h"

/*
 * Sets every device's rates: alone, without emulated slowness, once for each kind (backend and
 * threads); and beside the others while all work at once, pooled over the devices of a kind, whose
 * differences would be noise. About a second a kind.
 */
MOT_CHECKED MotStatus mot_measure_devices(MotCtx *ctx, const MotArgs *args, MotCluster *cluster);
/*
 * Sets latency and bandwidth as collectives see them, emulation included: of every link between
 * two devices among these, of all others among all devices. Adds the link between all if it is
 * missing and needed. Rates come first.
 */
MOT_CHECKED MotStatus mot_measure_links(MotCtx *ctx, const MotArgs *args, MotCluster *cluster);

#endif
