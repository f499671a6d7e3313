/*
 * tie: two initializers that hold the same (--tie A=B) become one parameter; users of B read A, or
 * its transpose.
 *
 * Autodiff then adds both gradients of itself, and what is saved under B's name is A. Runs before
 * split-dims: the layouts must still be those of the file. Cost: linear in ops for each tie.
 */
#include "ir/builder.h"
#include "passes/graph/edit.h"
#include "passes/pass.h"

static MotStatus find_param(MotCtx *ctx, const MotGraph *g, const char *name, MotValue *out_param)
{
    *out_param = mot_edit_find_param(g, name);
    if (*out_param)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--tie: there is no initializer %s",
                    mot_quote(&ctx->arena, name));
}

static bool can_tie(const MotType *a, const MotType *b, bool is_transposed)
{
    if (!is_transposed)
        return mot_type_equal(a, b);
    return a->dtype == b->dtype && a->rank == 2 && b->rank == 2 && a->dims[0] == b->dims[1] &&
           a->dims[1] == b->dims[0];
}

static MotStatus tie(MotCtx *ctx, MotGraph *g, const MotTie *t)
{
    MotValue first, second;
    MOT_TRY(find_param(ctx, g, t->first, &first));
    MOT_TRY(find_param(ctx, g, t->second, &second));
    const MotType *a = mot_graph_type(g, first), *b = mot_graph_type(g, second);
    if (first == second || !can_tie(a, b, t->is_transposed))
        return mot_fail(
            ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--tie: %s [%s] and %s [%s] are no %s of each other",
            mot_quote(&ctx->arena, t->first), mot_shape_text(&ctx->arena, a->dims, a->rank),
            mot_quote(&ctx->arena, t->second), mot_shape_text(&ctx->arena, b->dims, b->rank),
            t->is_transposed ? "transposes" : "copies");
    MotAttr_param *attrs = mot_attrs(mot_graph_def(g, first), param);
    if (attrs->tied)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "--tie: %s is tied to %s already",
                        mot_quote(&ctx->arena, t->first), mot_quote(&ctx->arena, attrs->tied));
    attrs->tied = mot_intern(ctx, t->second);
    attrs->tied_transposed = t->is_transposed;
    MotOpId dropped = g->values.data[second].def;
    MotBuilder builder = mot_builder_make(g);
    MotValue same = t->is_transposed ? mot_transpose(&builder, first, (int64_t[]){1, 0}) : first;
    mot_graph_replace(g, &second, &same, 1);
    mot_edit_drop(g, dropped);
    mot_graph_compact(g);
    return ctx->status;
}

static MotStatus tie_all(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    for (uint32_t i = 0; i < opts->n_ties; i++) {
        MOT_TRY(tie(ctx, g, &opts->ties[i]));
        *out_changed = true;
    }
    return MOT_OK;
}

const MotPass mot_pass_tie = {.name = "tie",
                              .summary = "initializers that hold the same become one parameter",
                              .run = tie_all};
