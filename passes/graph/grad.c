/* The table of gradient rules, and the proof that it has every row of the op table. */
#include "passes/graph/grad.h"

static const MotGrad grads[MOT_N_OPS] = {
#define RULE(id, name) [MOT_OP_##id] = {.kind = MOT_GRAD_RULE, .rule = mot_grad_##name},
#define ZERO(id) [MOT_OP_##id] = {.kind = MOT_GRAD_ZERO},
#define EXPAND(id) [MOT_OP_##id] = {.kind = MOT_GRAD_EXPAND},
#define NONE(id, why_) [MOT_OP_##id] = {.kind = MOT_GRAD_NONE, .why = why_},
#include "passes/graph/grad.def"
};

/* A row that grad.def lacks is an undeclared name here; one that it has twice, a redeclared one. */
enum {
#define RULE(id, name) HAS_GRAD_##id = 1,
#define ZERO(id) HAS_GRAD_##id = 1,
#define EXPAND(id) HAS_GRAD_##id = 1,
#define NONE(id, why) HAS_GRAD_##id = 1,
#include "passes/graph/grad.def"
};
#define POINTWISE(id, name, arity, classes, result, expression)                                    \
    _Static_assert(HAS_GRAD_##id, #name);
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) _Static_assert(HAS_GRAD_##id, #name);
#include "ir/ops.def"

const MotGrad *mot_grad_get(MotOpKind kind)
{
    return &grads[kind];
}
