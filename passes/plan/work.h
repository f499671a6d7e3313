/*
 * What an operator does: FLOPs, evaluations of elementary functions, bytes, a launch; each divided
 * into what splitting a factor divides, and what every device does whole. Knows no devices.
 */
#ifndef MOTLEY_PASSES_PLAN_WORK_H
#define MOTLEY_PASSES_PLAN_WORK_H

#include "ir/factors.h"
#include "passes/plan/fusion.h"

typedef struct MotQuantity {
    double whole, split;
} MotQuantity;

typedef struct MotWork {
    MotQuantity flops;     /* of products: 2 a multiply-accumulate */
    MotQuantity functions; /* exp, erf, tanh, ...; 16 additions or the like count as one */
    MotQuantity bytes;     /* to and from memory */
    bool is_launch;        /* first of its kernel */
} MotWork;

/*
 * The work of op with `factor` split (-1: none). Sinks, stored sources and views do nothing.
 * Failures of expansions are left in the graph's context.
 */
MotWork mot_work_find(const MotGraph *g, const MotFusion *fusion, const MotOp *op,
                      const MotFactors *factors, int factor);

#endif
