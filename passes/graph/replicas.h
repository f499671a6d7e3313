/*
 * Gradients by replica: what each part of the batch contributes; and parameters by replica, of
 * which each part of the batch reads its own.
 */
#ifndef MOTLEY_PASSES_GRAPH_REPLICAS_H
#define MOTLEY_PASSES_GRAPH_REPLICAS_H

#include "ir/builder.h"

/*
 * For every `gradient` of the graph, in the order of the body, the value [R, dims of the parameter]
 * whose sum over r is the gradient and whose entry r comes from the r-th contiguous part of the
 * batch, dim 0 of the inputs. These get `units` R: a replica's samples stay on one device; a single
 * replica's are dealt out as ever. Fails with MOT_ERR_USAGE if R does not divide the batch, and
 * with MOT_ERR_UNSUPPORTED, naming the op, if a gradient goes through something that is not linear
 * in it. Linear in ops.
 */
MOT_CHECKED MotStatus mot_replicas_find(MotGraph *g, int64_t n_replicas, MotValue *out_gradients);
/*
 * Among the first n_body ops, what reads params[i] with the samples of replica r reads
 * by_replica[i][r] instead: [R, dims of the parameter]. Units and failures as above; the op that is
 * told is one without a rule, or one that takes parameters and a sum over samples. Linear in ops.
 */
MOT_CHECKED MotStatus mot_replicas_read(MotGraph *g, int64_t n_replicas, uint32_t n_body,
                                        const MotValue *params, const MotValue *by_replica,
                                        uint32_t n);

#endif
