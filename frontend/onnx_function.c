/*
 * Functions: who calls whom, over nested graphs too; no recursion; how many nodes a full expansion
 * would have.
 */
#include "frontend/onnx_check.h"
#include "frontend/onnx_sort.h"

#include <string.h>

typedef struct Functions {
    MotCtx *ctx;
    const MotOnnxFile *file;
    MotMap by_name;  /* "domain\0name\0overload" -> scope of the function */
    MotEdges calls;  /* between root scopes, one for every calling node */
    uint64_t *sizes; /* of each root scope: its nodes, and those of what they call; saturating */
} Functions;

/* The map's key; the parts hold no NUL. */
static MotText make_key(Functions *f, const char *domain, const char *name, const char *overload)
{
    MotText key;
    mot_text_init(&key, &f->ctx->arena);
    const char *parts[] = {mot_onnx_domain(domain), name ? name : "", overload ? overload : ""};
    for (int i = 0; i < 3; i++)
        mot_text_add(&key, parts[i], strlen(parts[i]) + 1);
    return key;
}

static MotStatus enter_functions(Functions *f)
{
    for (uint32_t s = 1; s <= f->file->model->n_functions; s++) {
        const MotOnnxScope *scope = &f->file->scopes->all.data[s];
        const Onnx__FunctionProto *p = scope->function;
        if (!p->name || !*p->name)
            return mot_fail(f->ctx, MOT_ERR_MODEL, (MotLoc){f->file->path, NULL},
                            "function %u has no name", s - 1);
        MotText key = make_key(f, p->domain, p->name, p->overload);
        if (mot_map_put(&f->by_name, key.data, key.n, s))
            return mot_fail(f->ctx, MOT_ERR_MODEL,
                            mot_onnx_scope_loc(f->ctx, f->file, scope, "domain, name and overload"),
                            "there is such a function already");
    }
    return MOT_OK;
}

static void add_call(Functions *f, const Onnx__NodeProto *node, uint32_t caller)
{
    MotArenaMark mark = mot_arena_mark(&f->ctx->arena);
    MotText key = make_key(f, node->domain, node->op_type, node->overload);
    uint64_t callee;
    bool is_call = mot_map_get(&f->by_name, key.data, key.n, &callee);
    mot_arena_rewind(&f->ctx->arena, mark);
    if (is_call)
        mot_vec_push(&f->ctx->arena, &f->calls,
                     (MotEdge){.used = (uint32_t)callee, .user = caller});
}

static void find_calls(Functions *f)
{
    const MotOnnxScopes *scopes = f->file->scopes;
    for (uint32_t s = 0; s < scopes->all.n; s++) {
        const MotOnnxScope *scope = &scopes->all.data[s];
        f->sizes[scope->root] += scope->n_nodes;
        for (uint32_t i = 0; i < scope->n_nodes; i++)
            add_call(f, scope->nodes[i], scope->root);
    }
}

static MotStatus fail_recursion(const Functions *f, const MotCycle *cycle)
{
    enum { SHOWN = 10 };
    const MotOnnxScope *all = f->file->scopes->all.data;
    MotText text;
    mot_text_init(&text, &f->ctx->arena);
    for (uint32_t i = 0; i < cycle->n && i < SHOWN; i++)
        mot_text_printf(&text, "%s calls ",
                        mot_quote(text.arena, all[cycle->items[i]].function->name));
    mot_text_printf(&text, "%s%s", cycle->n > SHOWN ? "... " : "",
                    mot_quote(text.arena, all[cycle->items[0]].function->name));
    return mot_fail(f->ctx, MOT_ERR_MODEL, (MotLoc){f->file->path, "functions"}, "recursion: %s",
                    mot_text_get(&text));
}

/* Adds the sizes of what is called, callees first. */
static MotStatus measure_expansion(Functions *f, uint32_t n)
{
    MotArena *arena = &f->ctx->arena;
    MotUses calls = mot_onnx_group_edges(arena, n, &f->calls);
    uint32_t *order = mot_arena_array(arena, uint32_t, n);
    MotCycle cycle;
    if (!mot_onnx_sort(arena, n, calls, order, &cycle))
        return fail_recursion(f, &cycle);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *size = &f->sizes[order[i]];
        for (uint32_t k = calls.first[order[i]]; k < calls.first[order[i] + 1]; k++)
            if (__builtin_add_overflow(*size, f->sizes[calls.used[k]], size))
                *size = UINT64_MAX;
    }
    uint64_t limit = f->file->limits.expansion;
    if (f->calls.n && f->sizes[0] > limit)
        return mot_onnx_limit_fail(f->ctx, (MotLoc){f->file->path, "functions"}, "expansion", limit,
                                   "the functions expand to too many nodes");
    return MOT_OK;
}

MotStatus mot_onnx_check_functions(MotCtx *ctx, const MotOnnxFile *file)
{
    if (file->model->n_functions == 0)
        return MOT_OK;
    uint32_t n_roots = 1 + (uint32_t)file->model->n_functions;
    Functions f = {
        .ctx = ctx, .file = file, .sizes = mot_arena_array(&ctx->arena, uint64_t, n_roots)};
    mot_map_init(&f.by_name, &ctx->arena);
    MOT_TRY(enter_functions(&f));
    find_calls(&f);
    return measure_expansion(&f, n_roots);
}
