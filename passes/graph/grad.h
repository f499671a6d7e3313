/* The gradient rules: one a row of the op table (grad.def). */
#ifndef MOTLEY_PASSES_GRAPH_GRAD_H
#define MOTLEY_PASSES_GRAPH_GRAD_H

#include "ir/builder.h"

/*
 * One application of a rule. It builds the gradients of the operands from those of the results and
 * leaves them in `dx`: 0 is no gradient, or none that is wanted. A pointwise rule may leave one of
 * the result's shape: the driver sums over what was broadcast. Builders are sticky; the driver
 * checks, and drops what turns out to be unused.
 */
typedef struct MotGradRule {
    MotBuilder *b;
    const MotOp *op;   /* a copy: ops move while others are built */
    const MotValue *x; /* [n_in] operands */
    const MotValue *y; /* [n_out] results */
    const MotValue *g; /* [n_out] gradients of the results, 0 where none arrives */
    MotValue *dx;      /* [n_in] */
} MotGradRule;

typedef enum MotGradKind {
    MOT_GRAD_RULE = 1,
    MOT_GRAD_ZERO,
    MOT_GRAD_EXPAND,
    MOT_GRAD_NONE
} MotGradKind;

typedef struct MotGrad {
    MotGradKind kind;
    void (*rule)(MotGradRule *r); /* MOT_GRAD_RULE */
    const char *why;              /* MOT_GRAD_NONE */
} MotGrad;

const MotGrad *mot_grad_get(MotOpKind kind);

#define RULE(id, name) void mot_grad_##name(MotGradRule *r);
#include "passes/graph/grad.def"

#endif
