/*
 * The pipeline: which graph passes there are, in which order, and what happens between them.
 *
 *     imported graph
 *       tie              initializers that hold the same become one parameter
 *       simplify         constants folded, common subexpressions shared, algebra
 *       split-dims       merged dims become atoms, reshapes move into the parameters
 *       simplify
 *       raise            layer norm, softmax, GELU, attention, cross-entropy recognised
 *       simplify         the transposes that raise leaves become letters of contractions
 *       unpack           packed projections: slices become views
 *       loss             the model's output becomes a loss                      <- --loss
 *       look-ahead       each replica reads parameters where its momentum leads <- --optimizer demo
 *       autodiff         `gradient` binds every trained parameter to its gradient
 *       pair             the loss is computed where its gradient is
 *       demo             gradients by replica, their momentum's large entries   <- --optimizer demo
 *       clip             the gradients' global norm, and the bound on it        <- --optimizer
 *       optimizer        `assign` binds parameters and state to new values      <- --optimizer
 *     training graph: planned and lowered
 *       expand           composites become primitives, for the oracle only
 *
 * Passes that hold in any graph (simplify, raise, unpack, expand) run on regions first, innermost
 * to outermost. After a pass that changed the graph: compaction, the verifier (debug builds), the
 * dump, the stop. Linear in ops each.
 */
#include "passes/pipeline.h"

#include <string.h>

static const MotPass *const pipeline[] = {
    &mot_pass_tie,        &mot_pass_simplify,  &mot_pass_split_dims, &mot_pass_simplify,
    &mot_pass_raise,      &mot_pass_simplify,  &mot_pass_unpack,     &mot_pass_loss,
    &mot_pass_look_ahead, &mot_pass_autodiff,  &mot_pass_pair,       &mot_pass_demo,
    &mot_pass_clip,       &mot_pass_optimizer, &mot_pass_expand,
};
enum { N_PASSES = sizeof pipeline / sizeof *pipeline };

const MotPass *const *mot_passes_list(uint32_t *out_n)
{
    *out_n = N_PASSES;
    return pipeline;
}

/* N_PASSES if there is no pass of that name. */
static size_t index_of(const char *name)
{
    size_t i = 0;
    while (i < N_PASSES && strcmp(pipeline[i]->name, name) != 0)
        i++;
    return i;
}

const MotPass *mot_pass_find(const char *name)
{
    size_t i = index_of(name);
    return i < N_PASSES ? pipeline[i] : NULL;
}

bool mot_passes_dump(const MotCtx *ctx, const char *name)
{
    return mot_debug_lists(ctx->debug.dump, "after:", name) ||
           mot_debug_lists(ctx->debug.dump, "", "all");
}

static const char *print(MotCtx *ctx, const MotGraph *g)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_graph_print(g, &text);
    return mot_text_get(&text);
}

static MotStatus verify_after(MotCtx *ctx, const MotGraph *g, const MotPass *pass,
                              const MotGraph *last_good)
{
    MotStatus status = mot_graph_verify(g);
    if (status == MOT_OK)
        return MOT_OK;
    mot_note(ctx, "pass %s left an invalid graph", pass->name);
    mot_note(
        ctx,
        "the last good graph, GRAPH.mot below, reproduces it: motley opt --passes=%s GRAPH.mot",
        pass->name);
    mot_note(ctx, "\n%s", print(ctx, last_good));
    return status;
}

/* Who would compute something else without the pass; NULL if only speed depends on it. */
static const char *find_user(const MotPass *pass)
{
    static const struct {
        const MotPass *pass;
        const char *user;
    } users[] = {{&mot_pass_tie, "--tie"},
                 {&mot_pass_loss, "pass autodiff"},
                 {&mot_pass_autodiff, "pass optimizer"},
                 {&mot_pass_look_ahead, "pass optimizer"},
                 {&mot_pass_demo, "pass optimizer"},
                 {&mot_pass_clip, "pass optimizer"},
                 {&mot_pass_optimizer, "training"}};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        if (users[i].pass == pass)
            return users[i].user;
    return NULL;
}

static MotStatus run_on(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, const MotPass *pass)
{
    bool is_changed = false;
    MotStatus status = pass->run(ctx, g, opts, &is_changed);
    if (status != MOT_OK)
        mot_note(ctx, "in pass %s", pass->name);
    else if (is_changed)
        mot_graph_compact(g);
    return status;
}

static MotStatus run_in_regions(MotCtx *ctx, const MotGraph *g, const MotPassOpts *opts,
                                const MotPass *pass)
{
    MotVec(MotGraph *) regions = {0}; /* outer before inner */
    for (MotOpIter it = mot_op_iter(g); mot_op_iter_next(&it);)
        if (it.op->region)
            mot_vec_push(&ctx->arena, &regions, it.op->region);
    while (regions.n)
        MOT_TRY(run_on(ctx, regions.data[--regions.n], opts, pass));
    return MOT_OK;
}

static MotStatus run_pass(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, const MotPass *pass)
{
    if (mot_debug_lists(ctx->debug.skip, "", pass->name)) {
        bool ties = pass != &mot_pass_tie || opts->n_ties > 0;
        const char *user = ties ? find_user(pass) : NULL;
        return user ? mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                               "MOTLEY_SKIP: pass %s can't be left out, %s needs it", pass->name,
                               user)
                    : MOT_OK;
    }
    const MotGraph *last_good = ctx->debug.verify ? mot_graph_clone(ctx, g) : NULL;
    uint32_t n_before = g->body.n;
    if (pass->for_regions)
        MOT_TRY(run_in_regions(ctx, g, opts, pass));
    MOT_TRY(run_on(ctx, g, opts, pass));
    mot_debug(ctx, "pass %s: %u operators became %u", pass->name, n_before, g->body.n);
    if (last_good)
        MOT_TRY(verify_after(ctx, g, pass, last_good));
    if (mot_passes_dump(ctx, pass->name))
        mot_info(ctx, "// after %s\n%s", pass->name, print(ctx, g));
    if (mot_debug_lists(ctx->debug.stop, "after:", pass->name))
        return mot_fail(ctx, MOT_STOPPED, MOT_NOWHERE, "stopped after pass %s, as MOTLEY_STOP asks",
                        pass->name);
    return MOT_OK;
}

static MotStatus find_pass(MotCtx *ctx, const char *name, size_t *out_index)
{
    *out_index = index_of(name);
    if (*out_index < N_PASSES)
        return MOT_OK;
    mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "there is no pass %s", mot_quote(&ctx->arena, name));
    MotText names;
    mot_text_init(&names, &ctx->arena);
    for (size_t i = 0; i < N_PASSES; i++)
        mot_text_printf(&names, "%s%s", i ? ", " : "", pipeline[i]->name);
    mot_hint(ctx, "the passes are %s", mot_text_get(&names));
    return ctx->status;
}

MotStatus mot_passes_run(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, const char *first,
                         const char *last)
{
    size_t from = 0, to = N_PASSES - 1;
    if (first)
        MOT_TRY(find_pass(ctx, first, &from));
    if (last)
        MOT_TRY(find_pass(ctx, last, &to));
    for (size_t i = from; i <= to; i++)
        MOT_TRY(run_pass(ctx, g, opts, pipeline[i]));
    return MOT_OK;
}

MotStatus mot_passes_run_list(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ","), index;
        MOT_TRY(find_pass(ctx, mot_arena_strndup(&ctx->arena, list, n), &index));
        MOT_TRY(run_pass(ctx, g, opts, pipeline[index]));
        list += n + (list[n] == ',');
    }
    return MOT_OK;
}
