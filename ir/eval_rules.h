/* What the files of the reference evaluator share; nobody else includes it. */
#ifndef MOTLEY_IR_EVAL_RULES_H
#define MOTLEY_IR_EVAL_RULES_H

#include "ir/graph.h"

/*
 * One op at work. Sizes and dtypes are those of the tensors, not of the graph's types or of
 * attributes such as a reshape's dims: so that the same rule serves f64 mode, symbolic dims and the
 * local part of a sharded op.
 */
typedef struct MotEval {
    MotCtx *ctx;
    const MotGraph *g;
    const MotOp *op;
    const MotTensor *in;
    MotTensor *out;
} MotEval;

MotStatus mot_eval_pointwise(MotEval *e);
#define MOT_EVAL_DECLARE_SOURCE(name) MotStatus mot_eval_##name(MotEval *e);
#define MOT_EVAL_DECLARE_SINK(name)
#define MOT_EVAL_DECLARE_PRIMITIVE(name) MotStatus mot_eval_##name(MotEval *e);
#define MOT_EVAL_DECLARE_COMPOSITE(name)
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) MOT_EVAL_DECLARE_##kind(name)
#include "ir/ops.def"

/* All elements as doubles or int64, in the arena, and the way back: rounded (integers: wrapped) to
 * the tensor's dtype. */
double *mot_eval_load(MotCtx *ctx, const MotTensor *tensor);
int64_t *mot_eval_load_int(MotCtx *ctx, const MotTensor *tensor);
void mot_eval_store(MotTensor *tensor, const double *data);
void mot_eval_store_int(MotTensor *tensor, const int64_t *data);

/* Element strides of a dense row-major tensor. */
void mot_eval_strides(const MotType *type, int64_t *out_strides);

/*
 * An odometer: nested loops over up to MOT_WALK_LOOPS sizes, the last the innermost, that keeps one
 * element offset for each of up to three tensors.
 *
 *     for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w)) use(x[w.offset[0]]);
 */
enum { MOT_WALK_LOOPS = 2 * MOT_MAX_RANK, MOT_WALK_TENSORS = 3 };

typedef struct MotWalk {
    int n_loops;
    int64_t size[MOT_WALK_LOOPS], at[MOT_WALK_LOOPS];
    int64_t step[MOT_WALK_TENSORS][MOT_WALK_LOOPS]; /* elements a round of the loop */
    int64_t offset[MOT_WALK_TENSORS];               /* starts as the caller sets it */
} MotWalk;

/* False if some size is 0: there is nothing to visit. */
bool mot_walk_begin(MotWalk *walk);
bool mot_walk_next(MotWalk *walk);

#endif
