/*
 * From one sharding to another: the collectives on the way, one an axis and step, in the order in
 * which lowering makes them and the planner prices them. Gathers come first, of inner axes before
 * outer ones; then reductions; then taking parts, outer axes first. Where two axes split one dim
 * the inner one is gathered before the outer one changes, and parted again after.
 */
#ifndef MOTLEY_IR_CONVERT_H
#define MOTLEY_IR_CONVERT_H

#include "ir/program.h"

typedef struct MotStep {
    MotInstrKind kind; /* a collective, or MOT_INS_PART */
    uint32_t axis;
    MotMove move;
    bool is_max; /* a reduction: maximum instead of sum */
} MotStep;

/*
 * The next step of a value that is sharded as `have` and is to be as `need`, on a mesh of n_axes;
 * *have becomes what it leaves. False, and nothing changes, if the two are equal.
 */
bool mot_convert_next(uint32_t n_axes, MotSharding *have, MotSharding need, MotStep *out_step);

#endif
