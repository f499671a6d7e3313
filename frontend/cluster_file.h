/* cluster.yaml <-> Cluster. */
#ifndef MOTLEY_FRONTEND_CLUSTER_FILE_H
#define MOTLEY_FRONTEND_CLUSTER_FILE_H

#include "ir/cluster.h"
#include "support/json.h"

enum { MOT_CLUSTER_MAX_LINKS = 4096, MOT_CLUSTER_MAX_TEXT = 1 << 20 };

/*
 *     devices:
 *       - {name: a, backend: cpu, threads: 1, slow: 2, memory: 2GiB}
 *     links:
 *       - {between: all, latency: 10us, bandwidth: 10Gbit}
 *       - {between: [a, b], latency: 1us, bandwidth: 8GB}
 *
 * Only `name` is required of a device and `between` of a link. A link that is slower than the real
 * one is emulated. `slow` may change in a training: {0: 1, 50: 2} by the step. Unknown and repeated
 * keys, names and pairs are errors: MOT_ERR_USAGE, or MOT_ERR_LIMIT, with file and line.
 */
MOT_CHECKED MotStatus mot_cluster_parse(MotCtx *ctx, const char *file, const char *text, size_t n,
                                        MotCluster **out_cluster);
/* The same from a file. */
MOT_CHECKED MotStatus mot_cluster_read(MotCtx *ctx, const char *path, MotCluster **out_cluster);
/*
 * The checks of mot_cluster_parse on a cluster that another file holds; `error` is what they give.
 */
MOT_CHECKED MotStatus mot_cluster_check(MotCtx *ctx, MotStatus error, const char *file,
                                        const MotCluster *cluster);
/* A text that parses to the same cluster; what is not known is left out. */
void mot_cluster_print(const MotCluster *cluster, MotText *text);
/*
 * The members "devices" and "links", with plain numbers: bytes, seconds, a second; gflops in 1e9.
 */
void mot_cluster_put_json(const MotCluster *cluster, MotJsonWriter *w);

#endif
