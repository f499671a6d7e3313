/*
 * Algebra of pointwise ops. A rule stands here only if it holds for every operand, signed zeros and
 * the rounding of one operation aside.
 */
#include "passes/graph/simplify.h"

static MotValue to_neg(MotMatch *m)
{
    MotValue y = mot_neg(m->b, mot_match_value(m, 'x'));
    const MotType root = *mot_graph_type(m->graph, m->root);
    return mot_broadcast(m->b, y, root.rank, root.dims);
}

/* x - c is x + -c, exactly. */
static MotValue sub_to_add(MotMatch *m)
{
    if (mot_dtype_class(mot_match_type(m, 'x')->dtype) != MOT_CLASS_FLOAT)
        return 0;
    MotValue x = mot_match_value(m, 'x'), c = mot_match_value(m, 'c');
    return mot_add(m->b, x, mot_neg(m->b, c));
}

/* Only if ?x alone has the root's shape: the exponent may not broadcast it. */
static bool keeps_shape(const MotMatch *m)
{
    return mot_dims_equal(mot_match_type(m, 'x'), mot_graph_type(m->graph, m->root));
}

static MotValue pow_to_square(MotMatch *m)
{
    MotValue x = mot_match_value(m, 'x');
    return keeps_shape(m) ? mot_mul(m->b, x, x) : 0;
}

static MotValue pow_to_cube(MotMatch *m)
{
    MotValue x = mot_match_value(m, 'x');
    return keeps_shape(m) ? mot_mul(m->b, x, mot_mul(m->b, x, x)) : 0;
}

static MotValue pow_to_sqrt(MotMatch *m)
{
    return keeps_shape(m) ? mot_sqrt(m->b, mot_match_value(m, 'x')) : 0;
}

static MotValue pow_to_rsqrt(MotMatch *m)
{
    return keeps_shape(m) ? mot_rsqrt(m->b, mot_match_value(m, 'x')) : 0;
}

static MotValue pow_to_reciprocal(MotMatch *m)
{
    MotValue x = mot_match_value(m, 'x');
    return keeps_shape(m) ? mot_div(m->b, mot_scalar_like(m->b, x, 1), x) : 0;
}

static MotValue to_rsqrt(MotMatch *m)
{
    return keeps_shape(m) ? mot_rsqrt(m->b, mot_match_value(m, 'x')) : 0;
}

static MotValue to_product_with_rsqrt(MotMatch *m)
{
    return mot_mul(m->b, mot_match_value(m, 'y'), mot_rsqrt(m->b, mot_match_value(m, 'x')));
}

static MotValue to_quotient(MotMatch *m)
{
    if (mot_dtype_class(mot_match_type(m, 'x')->dtype) != MOT_CLASS_FLOAT)
        return 0;
    MotValue y = mot_div(m->b, mot_match_value(m, 'x'), mot_match_value(m, 'y'));
    const MotType root = *mot_graph_type(m->graph, m->root);
    return mot_broadcast(m->b, y, root.rank, root.dims);
}

static MotValue select_negated(MotMatch *m)
{
    return mot_select(m->b, mot_match_value(m, 'c'), mot_match_value(m, 'y'),
                      mot_match_value(m, 'x'));
}

static MotValue cast_same(MotMatch *m)
{
    const MotType *x = mot_match_type(m, 'x');
    return x->dtype == mot_graph_type(m->graph, m->root)->dtype ? mot_match_value(m, 'x') : 0;
}

/* Whether every value of `from` has an equal in `to`. */
static bool holds_all_of(MotDtype to, MotDtype from)
{
    MotDtypeClass a = mot_dtype_class(from), b = mot_dtype_class(to);
    if (a == MOT_CLASS_BOOL || from == to)
        return true;
    if (a == MOT_CLASS_INT && b == MOT_CLASS_FLOAT)
        return to == MOT_F64 ? from != MOT_I64 : to == MOT_F32 && from == MOT_U8;
    return a == b && mot_dtype_bytes(to) > mot_dtype_bytes(from);
}

static MotValue cast_twice(MotMatch *m)
{
    MotDtype from = mot_match_type(m, 'x')->dtype, through = mot_match_type(m, 'y')->dtype;
    if (!holds_all_of(through, from))
        return 0;
    return mot_cast(m->b, mot_match_value(m, 'x'), mot_graph_type(m->graph, m->root)->dtype);
}

static const MotRule rules[] = {
    {"add-zero", "add(?x, 0)", mot_rule_to_x},
    {"sub-zero", "sub(?x, 0)", mot_rule_to_x},
    {"mul-one", "mul(?x, 1)", mot_rule_to_x},
    {"div-one", "div(?x, 1)", mot_rule_to_x},
    {"pow-one", "pow(?x, 1)", mot_rule_to_x},
    {"neg-twice", "neg(neg(?x))", mot_rule_to_x},
    {"not-twice", "not(not(?x))", mot_rule_to_x},
    {"and-true", "and(?x, 1)", mot_rule_to_x},
    {"or-false", "or(?x, 0)", mot_rule_to_x},
    {"zero-minus", "sub(0, ?x)", to_neg},
    {"mul-minus-one", "mul(?x, -1)", to_neg},
    {"sub-constant", "sub(?x, #c)", sub_to_add},
    {"pow-square", "pow(?x, 2)", pow_to_square},
    {"pow-cube", "pow(?x, 3)", pow_to_cube},
    {"pow-half", "pow(?x, 0.5)", pow_to_sqrt},
    {"pow-minus-half", "pow(?x, -0.5)", pow_to_rsqrt},
    {"pow-minus-one", "pow(?x, -1)", pow_to_reciprocal},
    {"one-by-root", "div(1, sqrt(?x))", to_rsqrt},
    {"root-of-reciprocal", "sqrt(div(1, ?x))", to_rsqrt},
    {"by-root", "div(?y, sqrt(?x))", to_product_with_rsqrt},
    {"mul-reciprocal", "mul(?x, div(1, ?y))", to_quotient},
    {"select-true", "select(1, ?x, ?y)", mot_rule_to_x},
    {"select-false", "select(0, ?y, ?x)", mot_rule_to_x},
    {"select-same", "select(?c, ?x, ?x)", mot_rule_to_x},
    {"select-not", "select(not(?c), ?x, ?y)", select_negated},
    {"cast-same", "cast(?x)", cast_same},
    {"cast-twice", "cast(?y=cast(?x))", cast_twice},
};
const MotRules mot_rules_algebra = MOT_RULES(rules);
