/*
 * Names of choices, derived from where a factor occurs. The one table is for dims that have a name
 * of their own.
 */
#include "passes/plan/choice.h"

#include <string.h>

static const struct {
    MotOpKind kind;
    int dim; /* of result 0 */
    const char *name;
} named_dims[] = {
    {MOT_OP_ATTENTION, 2, "heads"},
    {MOT_OP_ATTENTION_GRAD, 2, "heads"},
};

static bool divides(const MotFactor *factor)
{
    return factor->kind != MOT_FACTOR_WHOLE && factor->size >= 2;
}

bool mot_factor_can_split(const MotFactors *factors, int f, const int8_t *given, uint32_t axis)
{
    const MotFactor *factor = &factors->factor[f];
    bool is_inside = factor->within < 0;
    for (uint32_t a = 0; a < axis && given; a++) {
        is_inside |= given[a] == factor->within;
        if (given[a] == f)
            return false;
    }
    return is_inside && divides(factor);
}

const char *mot_choice_node(const MotOp *op)
{
    if (op->origin)
        return op->origin;
    const char *name = op->kind == MOT_OP_PARAM   ? mot_attrs(op, param)->name
                       : op->kind == MOT_OP_INPUT ? mot_attrs(op, input)->name
                                                  : NULL;
    return name ? name : "";
}

static bool is_contraction(const MotFactors *factors)
{
    bool has_sum = false;
    for (uint32_t i = 0; i < factors->n; i++)
        has_sum |= factors->factor[i].kind == MOT_FACTOR_SUM;
    return has_sum;
}

/*
 * Whether the factor runs over a parameter, or the right operand of a contraction, and over no
 * other operand.
 */
static bool is_of_weight(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                         const MotFactor *f)
{
    bool is_weight = false;
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (!op->in[i] || f->in_dim[i] < 0)
            continue;
        if (mot_graph_def(g, op->in[i])->kind != MOT_OP_PARAM &&
            !(is_contraction(factors) && i == 1))
            return false;
        is_weight = true;
    }
    return is_weight;
}

/* A parameter, if only in another shape. */
static bool is_param(const MotGraph *g, MotValue v)
{
    const MotOp *def = mot_graph_def(g, v);
    while (def->kind == MOT_OP_RESHAPE || def->kind == MOT_OP_TRANSPOSE)
        def = mot_graph_def(g, def->in[0]);
    return def->kind == MOT_OP_PARAM;
}

/*
 * Whether the factor runs over the samples: the dim that has units, where the result has (DeMo);
 * else its first dim, if no parameter has it, but of a contraction the first dim of what comes in.
 * Packed projections have their parts before the samples (passes/graph/unpack.c).
 */
static bool is_of_samples(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                          const MotFactor *f)
{
    const MotValueInfo *result = &g->values.data[op->out[0]];
    bool is_in_param = false;
    if (result->units)
        return f->out_dim[0] == result->units_dim;
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (!op->in[i])
            continue;
        bool is_of_param = is_param(g, op->in[i]);
        if (!is_of_param && is_contraction(factors))
            return f->in_dim[i] == 0;
        is_in_param |= is_of_param && f->in_dim[i] >= 0;
    }
    return f->out_dim[0] == 0 && !is_in_param;
}

static const char *plain_name(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                              const MotFactor *f)
{
    if (op->role == MOT_ROLE_UPDATE || mot_op_info(op->kind)->class == MOT_SOURCE)
        return NULL;
    if (f->kind != MOT_FACTOR_PARALLEL)
        return "in";
    for (size_t i = 0; i < sizeof named_dims / sizeof *named_dims; i++)
        if (named_dims[i].kind == op->kind && named_dims[i].dim == f->out_dim[0])
            return named_dims[i].name;
    if (is_of_weight(g, op, factors, f))
        return "out";
    return is_of_samples(g, op, factors, f) ? "batch" : NULL;
}

static const char *numbered_name(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                                 int choice)
{
    const MotFactor *f = &factors->factor[choice];
    for (uint32_t k = 0; k < op->n_out; k++)
        if (f->out_dim[k] >= 0)
            return mot_arena_printf(&g->ctx->arena, "dim%d", f->out_dim[k]);
    int n = 0;
    for (int i = 0; i < choice; i++)
        n += factors->factor[i].kind != MOT_FACTOR_PARALLEL;
    return mot_arena_printf(&g->ctx->arena, "sum%d", n);
}

const char *mot_choice_name(const MotGraph *g, const MotOp *op, const MotFactors *factors,
                            int choice)
{
    if (choice < 0)
        return "replicate";
    if (factors->factor[choice].within >= 0)
        return "samples";
    const char *name = plain_name(g, op, factors, &factors->factor[choice]);
    for (int i = 0; name && i < choice; i++) {
        const char *earlier = plain_name(g, op, factors, &factors->factor[i]);
        if (earlier && strcmp(earlier, name) == 0)
            name = NULL;
    }
    return name ? name : numbered_name(g, op, factors, choice);
}

int mot_choice_find(const MotGraph *g, const MotOp *op, const MotFactors *factors, const char *name)
{
    if (strcmp(name, "replicate") == 0)
        return MOT_CHOICE_WHOLE;
    for (int i = 0; i < (int)factors->n; i++)
        if (divides(&factors->factor[i]) && strcmp(mot_choice_name(g, op, factors, i), name) == 0)
            return i;
    for (int i = 0; i < (int)factors->n; i++)
        if (divides(&factors->factor[i]) && factors->factor[i].within < 0 &&
            strcmp(numbered_name(g, op, factors, i), name) == 0)
            return i;
    return MOT_CHOICE_NONE;
}
