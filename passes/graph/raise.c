/*
 * raise: recognises what exporters have taken apart: layer norm, softmax, both forms of GELU,
 * attention, cross-entropy.
 *
 * Before autodiff and planning: a composite has a gradient that is stable, kernels of its own, and
 * one sharding. Works on the forms that simplify leaves, best after split-dims (then heads are dims
 * of their own). A form that is missed costs speed, never correctness. raise(expand(op)) == op for
 * every composite it knows. Cost: linear in ops, times rules.
 */
#include "passes/graph/raise.h"

#include "passes/pass.h"

static MotStatus raise(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    (void)ctx;
    (void)opts;
    const MotRules tables[] = {mot_rules_raise_layers, mot_rules_raise_loss,
                               mot_rules_raise_attention};
    return mot_rewrite(g, tables, 3, out_changed);
}

const MotPass mot_pass_raise = {
    .name = "raise",
    .summary = "recognises layer norm, softmax, GELU, attention, cross-entropy",
    .run = raise,
    .for_regions = true};
