/*
 * Nothing lossy without consent: what would show in a plan's graph or in the Program made of it
 * that a choice of ours changes the numbers. DeMo by its messages, cuts by the lists of what is
 * kept, lower precision by any float narrower than f32 (the tests' models have none). Pruning has
 * no op: it would be a cut, or other shapes than the model's, which graphs are checked against
 * elsewhere.
 */
#ifndef MOTLEY_TESTS_CONSENT_H
#define MOTLEY_TESTS_CONSENT_H

#include "ir/program.h"

static inline bool is_narrow(MotDtype dtype)
{
    return mot_dtype_class(dtype) == MOT_CLASS_FLOAT && mot_dtype_bytes(dtype) < 4;
}

static inline const char *find_lossy_op(const MotGraph *g, const MotOp *op)
{
    static const MotOpKind messages[] = {MOT_OP_TOP_K, MOT_OP_SCATTER_MEAN, MOT_OP_PACK,
                                         MOT_OP_UNPACK};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (op->kind == messages[i])
            return "DeMo";
    if (op->kind == MOT_OP_CONTRACT && op->n_in == 3)
        return "cuts";
    if (op->kind == MOT_OP_CONTRACT && mot_attrs(op, contract)->accumulate &&
        is_narrow(mot_attrs(op, contract)->accumulate))
        return "lower precision";
    for (uint32_t k = 0; k < op->n_out; k++)
        if (is_narrow(mot_graph_type(g, op->out[k])->dtype))
            return "lower precision";
    return NULL;
}

/* What of the graph is lossy, or NULL. */
static inline const char *find_lossy(const MotGraph *g)
{
    const char *found = NULL;
    for (uint32_t i = 0; i < g->body.n && !found; i++)
        found = find_lossy_op(g, mot_graph_op(g, g->body.data[i]));
    return found;
}

static inline const char *find_lossy_in_program(const MotProgram *p)
{
    const char *found = p->cuts.n ? "cuts" : NULL;
    for (uint32_t i = 0; i < p->kernels.n && !found; i++)
        found = find_lossy(p->kernels.data[i].graph);
    return found;
}

#endif
