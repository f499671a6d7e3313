/*
 * What operators, and instructions of a Program, do: products, elementary functions, bytes to and
 * from memory. Knows no devices; at a device's rates it is a time, which the planner predicts with
 * and a modelled clock keeps.
 */
#ifndef MOTLEY_IR_COUNT_H
#define MOTLEY_IR_COUNT_H

#include "ir/program.h"

typedef struct MotCount {
    double flops;     /* of products: 2 a multiply-accumulate */
    double functions; /* exp, erf, tanh, ...; 16 additions or the like count as one */
    double bytes;     /* to and from memory */
    double launches;
} MotCount;

/*
 * FLOPs of an op: attention counts what a causal mask leaves of its products, and its gradient
 * computes the scores again.
 */
double mot_count_flops(const MotGraph *g, const MotOp *op);
/*
 * Elementary functions of an op, of a composite those of its expansion over operands of these types
 * (NULL: its own). Failures of expansions are left in the graph's context.
 */
double mot_count_functions(const MotGraph *g, const MotOp *op, const MotType *in_types);
/* Whether the op reads of operand 0 no more than it writes. */
bool mot_count_reads_part(MotOpKind kind);

/*
 * What a launch does on the rank that is bound so, or a copy within the rank; of instructions that
 * meet other ranks, nothing.
 */
MotCount mot_count_instr(MotCtx *ctx, const MotProgram *program, const MotInstr *ins,
                         const MotBinding *binding);

/* Bytes that this rank receives in a collective. */
int64_t mot_count_received(const MotProgram *program, const MotInstr *ins,
                           const MotBinding *binding);

/*
 * Seconds that it takes at these rates. Elementary functions and memory overlap; launches and
 * products come on top, because what is multiplied is first brought into the kernel's own order.
 */
double mot_count_seconds(const MotCount *count, const MotRates *rates);

#endif
