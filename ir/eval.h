/*
 * Reference evaluation: one slow readable function a primitive; composites by their expansion. It
 * is the oracle of every backend, the constant folder, and the `ref` device. Floats are computed in
 * double and rounded to the dtype of each value.
 */
#ifndef MOTLEY_IR_EVAL_H
#define MOTLEY_IR_EVAL_H

#include "ir/graph.h"

/*
 * Evaluates one op: `in` holds the operands (data NULL for absent ones), `out` has the inferred
 * types and memory for them. Fails with MOT_ERR_DATA on an index out of range (the message has the
 * value). Scratch comes from ctx's arena and is returned.
 */
MOT_CHECKED MotStatus mot_eval_op(MotCtx *ctx, const MotGraph *g, const MotOp *op,
                                  const MotTensor *in, MotTensor *out);

/*
 * Evaluates a whole graph. `values` has one tensor a value id (values.n of them): inputs and
 * parameters are set by the caller, all others are filled in (memory from the arena). With `in_f64`
 * every float is computed and stored as f64 whatever its type says: inputs and parameters must then
 * be given as f64.
 */
MOT_CHECKED MotStatus mot_eval_graph(MotCtx *ctx, const MotGraph *g, MotTensor *values,
                                     bool in_f64);

#endif
