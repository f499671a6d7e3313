/*
 * The parts of simplify, one file each; raise and split-dims rely on the forms these rules leave.
 */
#ifndef MOTLEY_PASSES_GRAPH_SIMPLIFY_H
#define MOTLEY_PASSES_GRAPH_SIMPLIFY_H

#include "passes/graph/rewrite.h"

/* Constant operands: the op becomes its value. */
extern const MotRules mot_rules_fold;
/* Arithmetic: neutral elements, powers, quotients by roots, selects, casts. */
extern const MotRules mot_rules_algebra;
/* Reshape, broadcast, slice, concat, gather of a range, reductions' kept dims. */
extern const MotRules mot_rules_shape;
/* Transposes: composed, moved behind pointwise ops, and turned into letters of contractions. */
extern const MotRules mot_rules_transpose;

/*
 * The contents of a value that follows from constants and ranges alone, folded or not; false if it
 * does not, or is too large. Memory is the arena's: mark and rewind around it.
 */
bool mot_value_known(MotGraph *g, MotValue v, MotTensor *out_tensor);

/*
 * Ops that compute the same of the same operands become one. Value ids are stale if *out_changed.
 * Linear in ops.
 */
void mot_share_common(MotGraph *g, bool *out_changed);

#endif
