/*
 * Softmax, GELU and layer norm. Numbers of formulas (1/sqrt(2), 0.044715, ...) are accepted within
 * 1e-4 of themselves, as exporters round them; sums and products in any order and association
 * (match.h).
 */
#include "passes/graph/raise.h"

#include <math.h>

bool mot_raise_reduces_axis(const MotOp *op, int64_t *out_axis)
{
    const MotAttr_reduce *a = mot_attrs(op, reduce);
    *out_axis = a->axes.n == 1 ? a->axes.data[0] : -1;
    return a->axes.n == 1 && a->keep;
}

/* ---- Softmax ---- */

/* ?s is the sum of exponentials; ?m, if the form has it, the maximum. */
static MotValue to_softmax(MotMatch *m)
{
    int64_t axis, axis_of_max;
    if (!mot_raise_reduces_axis(mot_match_def(m, 's'), &axis))
        return 0;
    if (mot_match_value(m, 'm') &&
        (!mot_raise_reduces_axis(mot_match_def(m, 'm'), &axis_of_max) || axis_of_max != axis))
        return 0;
    MotValue x = mot_match_value(m, 'x');
    return mot_result(m->b,
                      mot_build(m->b, MOT_OP_SOFTMAX, &x, 1, &(MotAttr_softmax){.axis = axis}), 0);
}

/* ---- GELU ---- */

static MotValue build_gelu(MotMatch *m, bool is_tanh)
{
    MotValue x = mot_match_value(m, 'x');
    return mot_result(m->b, mot_build(m->b, MOT_OP_GELU, &x, 1, &(MotAttr_gelu){.tanh = is_tanh}),
                      0);
}

static MotValue to_gelu_erf(MotMatch *m)
{
    return build_gelu(m, false);
}

static MotValue to_gelu_tanh(MotMatch *m)
{
    return build_gelu(m, true);
}

/* ---- Half precision: composites widen inside, so the casts around them are theirs ---- */

static MotValue drop_wide_casts(MotMatch *m)
{
    const MotOp wide = *mot_match_def(m, 'y');
    MotValue x = mot_match_value(m, 'x');
    MotDtype narrow = mot_match_type(m, 'x')->dtype;
    bool is_half = narrow == MOT_F16 || narrow == MOT_BF16;
    if (!is_half || mot_match_type(m, 'y')->dtype != MOT_F32 ||
        mot_graph_type(m->graph, m->root)->dtype != narrow)
        return 0;
    return mot_result(m->b, mot_build(m->b, wide.kind, &x, 1, wide.attrs), 0);
}

/* ---- Layer norm ---- */

/*
 * Whether op sums the dims from `axis` to the last, keeping them as 1, and scale is one by their
 * product.
 */
static bool is_mean_from_axis(const MotMatch *m, const MotOp *op, double scale, int64_t *out_axis)
{
    const MotAttr_reduce *a = mot_attrs(op, reduce);
    const MotType *x = mot_graph_type(m->graph, op->in[0]);
    unsigned reduced = 0;
    double n = 1;
    for (uint32_t i = 0; i < a->axes.n; i++) {
        reduced |= 1u << a->axes.data[i];
        n *= (double)x->dims[a->axes.data[i]];
    }
    *out_axis = x->rank - (int64_t)a->axes.n;
    unsigned trailing = (1u << x->rank) - (1u << *out_axis);
    return a->keep && reduced == trailing && fabs(scale * n - 1) < 1e-5;
}

static MotOpId build_layer_norm(MotMatch *m, MotValue scale, MotValue bias,
                                const MotAttr_norm *attrs)
{
    MotValue in[3] = {mot_match_value(m, 'x'), scale, bias};
    return mot_build(m->b, MOT_OP_LAYER_NORM, in, bias ? 3 : 2, attrs);
}

/* (x - mean) * rstd: a layer norm whose scale is 1. Mean and rstd become its results as well. */
static MotValue to_layer_norm(MotMatch *m)
{
    int64_t axis, axis_of_variance;
    if (!is_mean_from_axis(m, mot_match_def(m, 's'), mot_match_number(m, 'n'), &axis) ||
        !is_mean_from_axis(m, mot_match_def(m, 't'), mot_match_number(m, 'v'), &axis_of_variance) ||
        axis != axis_of_variance)
        return 0;
    const MotType x = *mot_match_type(m, 'x');
    MotValue ones =
        mot_broadcast(m->b, mot_scalar(m->b, x.dtype, 1), x.rank - (int)axis, x.dims + axis);
    MotOpId op = build_layer_norm(m, ones, 0,
                                  &(MotAttr_norm){.axis = axis, .eps = mot_match_number(m, 'e')});
    mot_match_replace(m, mot_match_value(m, 'm'), mot_result(m->b, op, 1));
    mot_match_replace(m, mot_match_value(m, 'r'), mot_result(m->b, op, 2));
    return mot_result(m->b, op, 0);
}

/* (x - mean) * (rstd * g): the same, times g. */
static MotValue to_scaled_layer_norm(MotMatch *m)
{
    MotValue y = to_layer_norm(m);
    return y ? mot_mul(m->b, y, mot_match_value(m, 'g')) : 0;
}

/* v with the dims that are normalised, if it varies along no other; else 0. */
static MotValue fit_to_normalized(MotMatch *m, MotValue v, const MotOp *norm)
{
    const MotType x = *mot_graph_type(m->graph, norm->in[0]), type = *mot_graph_type(m->graph, v);
    int64_t axis = mot_attrs(norm, norm)->axis;
    int rank = x.rank - (int)axis, extra = type.rank - rank;
    if (extra < 0)
        return 0;
    for (int d = 0; d < type.rank; d++)
        if (type.dims[d] != (d < extra ? 1 : x.dims[axis + d - extra]))
            return 0;
    return mot_reshape(m->b, v, rank, x.dims + axis);
}

/* The layer norm ?l anew with a scale or bias that followed it. */
static MotValue extend_layer_norm(MotMatch *m, char operand)
{
    const MotOp old = *mot_match_def(m, 'l');
    if (!mot_match_is_single_use(m, mot_match_value(m, 'l')) ||
        mot_match_type(m, operand)->dtype != mot_match_type(m, 'x')->dtype)
        return 0;
    MotValue fitted = fit_to_normalized(m, mot_match_value(m, operand), &old);
    if (!fitted)
        return 0;
    const MotAttr_norm attrs = *mot_attrs(&old, norm);
    MotOpId op = operand == 'g' ? build_layer_norm(m, fitted, 0, &attrs)
                                : build_layer_norm(m, old.in[1], fitted, &attrs);
    mot_match_replace(m, old.out[1], mot_result(m->b, op, 1));
    mot_match_replace(m, old.out[2], mot_result(m->b, op, 2));
    return mot_result(m->b, op, 0);
}

static MotValue add_scale(MotMatch *m)
{
    return extend_layer_norm(m, 'g');
}

static MotValue add_bias(MotMatch *m)
{
    return extend_layer_norm(m, 'b');
}

#define CENTERED "?d=sub(?x, ?m=product(?s=reduce_sum(?x), #n))"
#define RSTD "?r=rsqrt(add(product(?t=reduce_sum(mul(?d, ?d)), #v), #e))"

static const MotRule rules[] = {
    {"softmax", "div(?e=exp(sub(?x, ?m=reduce_max(?x))), ?s=reduce_sum(?e))", to_softmax},
    {"softmax-unshifted", "div(?e=exp(?x), ?s=reduce_sum(?e))", to_softmax},
    {"gelu-erf", "product(?x, ~0.5, add(erf(product(?x, ~0.70710678)), 1))", to_gelu_erf},
    {"gelu-erf-halved", "product(?x, add(product(~0.5, erf(product(?x, ~0.70710678))), ~0.5))",
     to_gelu_erf},
    {"gelu-tanh",
     "product(?x, ~0.5, add(tanh(product(~0.79788456, add(?x, product(~0.044715, ?x, ?x, ?x)))), "
     "1))",
     to_gelu_tanh},
    {"gelu-tanh-factored",
     "product(?x, ~0.5, add(tanh(product(~0.79788456, ?x, add(product(~0.044715, ?x, ?x), 1))), "
     "1))",
     to_gelu_tanh},
    {"gelu-half", "cast(?y=gelu(cast(?x)))", drop_wide_casts},
    {"softmax-half", "cast(?y=softmax(cast(?x)))", drop_wide_casts},
    {"layer-norm", "product(" CENTERED ", " RSTD ")", to_layer_norm},
    {"layer-norm-grouped", "product(" CENTERED ", " RSTD ", ?g)", to_scaled_layer_norm},
    {"layer-norm-scale", "mul(?l=layer_norm(?x, 1), ?g)", add_scale},
    {"layer-norm-bias", "add(?l=layer_norm(?x, ?h), ?b)", add_bias},
};
const MotRules mot_rules_raise_layers = MOT_RULES(rules);
