/* Gradients by replica: what each part of the batch contributes. */
#ifndef MOTLEY_PASSES_GRAPH_REPLICAS_H
#define MOTLEY_PASSES_GRAPH_REPLICAS_H

#include "ir/builder.h"

/*
 * For every `gradient` of the graph, in the order of the body, the value [R, dims of the parameter] whose sum over r is the gradient and
 * whose entry r comes from the r-th contiguous part of the batch, dim 0 of the inputs. These get `units` R: a replica's samples stay on
 * one device; a single replica's are dealt out as ever. Fails with MOT_ERR_USAGE if R does not divide the batch, and with MOT_ERR_UNSUPPORTED, naming the op, if a gradient goes
 * through something that is not linear in it. Linear in ops.
 */
MOT_CHECKED MotStatus mot_replicas_find(MotGraph *g, int64_t n_replicas, MotValue *out_gradients);

#endif
