/*
 * simplify: constant folding, algebra, common subexpressions and dead code, to a fixpoint.
 *
 * What later passes rely on: scalars stand behind no transpose or broadcast, chains of reshapes,
 * transposes, slices and casts are one op, transposes next to a contraction are letters of its
 * spec, x^2 is mul(x, x), a quotient by a root is a product with rsqrt, subtracting a constant is
 * adding one. Keeps: the function computed, up to rounding. Cost: a few linear sweeps.
 */
#include "passes/graph/simplify.h"
#include "passes/pass.h"

static MotStatus simplify(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    (void)ctx;
    (void)opts;
    const MotRules tables[] = {mot_rules_fold, mot_rules_algebra, mot_rules_shape,
                               mot_rules_transpose};
    mot_graph_compact(g);
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        MOT_TRY(mot_rewrite(g, tables, 4, &is_changed));
        mot_share_common(g, &is_changed);
        *out_changed |= is_changed;
    }
    return MOT_OK;
}

const MotPass mot_pass_simplify = {
    .name = "simplify",
    .summary = "folds constants, shares common subexpressions, applies algebra",
    .run = simplify,
    .for_regions = true};
