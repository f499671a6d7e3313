/*
 * Factors: the loop dimensions of an op, from which all shardings follow (compare GSPMD's and
 * Shardy's factor rules).
 *
 * A factor occurs in at most one dim of each operand and result. Splitting a PARALLEL factor splits
 * the results; splitting a SUM (MAX) factor leaves partial results that must be summed (maximised)
 * over the parts; a WHOLE factor can't be split. A dim of size 1 that is broadcast has no factor.
 * Factors of composites come from their expansion.
 *
 * Where a dim has units (the replicas of a batch), its factor deals these out, and a second one
 * runs inside a unit (the samples of a replica): it may be split by an axis only below one that
 * splits the units. A reshape that gives the units a dim of their own has that factor too: the
 * samples are then part of one dim here and a dim there.
 */
#ifndef MOTLEY_IR_FACTORS_H
#define MOTLEY_IR_FACTORS_H

#include "ir/graph.h"

typedef enum MotFactorKind {
    MOT_FACTOR_PARALLEL,
    MOT_FACTOR_SUM,
    MOT_FACTOR_MAX,
    MOT_FACTOR_WHOLE
} MotFactorKind;
extern const char *const mot_factor_kind_names[4];

typedef struct MotFactor {
    MotFactorKind kind;
    int64_t size;
    int8_t *in_dim;  /* [n_in]: the dim of operand i it runs over, or -1 */
    int8_t *out_dim; /* [n_out] */
    /* [n_out]: SUM/MAX: result j is partial when split (others are equal on all parts or split) */
    bool *partial;
    int within; /* the factor, before it, in whose units this one runs; -1: it is in nobody's */
} MotFactor;

typedef struct MotFactors {
    MotFactor *factor;
    uint32_t n;
} MotFactors;

/*
 * In the order of first appearance over results, then operands. Allocates from the graph's arena.
 */
MOT_CHECKED MotStatus mot_factors(const MotGraph *g, const MotOp *op, MotFactors *out_factors);
/*
 * The factor that runs over dim `dim` of operand `i` / result `i`, of two the one with the units;
 * or -1.
 */
int mot_factor_of_operand(const MotFactors *factors, uint32_t i, int dim);
int mot_factor_of_result(const MotFactors *factors, uint32_t i, int dim);
/* In how many pieces factor `f` deals out the dim of operand `i` / result `i` that it runs over. */
int64_t mot_factor_operand_units(const MotFactors *factors, int f, uint32_t i);
int64_t mot_factor_result_units(const MotFactors *factors, int f, uint32_t i);
/*
 * Sets the units of all values from those of the inputs: what splits the same loop as dim 0 of such
 * an input is dealt out in its units. To be called when a graph with such inputs is complete.
 */
MOT_CHECKED MotStatus mot_factors_spread_units(const MotGraph *g);
/* Whether a partial sum in operand i may pass through the op unreduced. */
bool mot_op_is_linear(const MotOp *op, uint32_t i);
/* Whether partial sums pass when every operand holds one over the same parts: add, sub, concat. */
bool mot_op_is_additive(const MotOp *op);

/* The largest number that divides both; of 0 and a, a. */
int64_t mot_gcd(int64_t a, int64_t b);

#endif
