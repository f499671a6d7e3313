/* Finding scopes breadth first, without recursion, and naming places in them. */
#include "frontend/onnx_scope.h"

static void add_scope(MotCtx *ctx, MotOnnxScopes *scopes, MotOnnxScope scope)
{
    uint32_t index = scopes->all.n;
    const void *owner = scope.graph ? (const void *)scope.graph : (const void *)scope.function;
    scope.root = scope.parent == MOT_NO_SCOPE ? index : scopes->all.data[scope.parent].root;
    scope.order = mot_arena_array(&ctx->arena, uint32_t, scope.n_nodes);
    for (uint32_t i = 0; i < scope.n_nodes; i++)
        scope.order[i] = i;
    mot_map_put(&scopes->by_owner, &owner, sizeof owner, index);
    mot_vec_push(&ctx->arena, &scopes->all, scope);
}

static void add_graph(MotCtx *ctx, MotOnnxScopes *scopes, const Onnx__GraphProto *graph,
                      uint32_t parent, uint32_t node, const char *attribute)
{
    add_scope(ctx, scopes,
              (MotOnnxScope){.graph = graph,
                             .nodes = graph->node,
                             .n_nodes = (uint32_t)graph->n_node,
                             .parent = parent,
                             .parent_node = node,
                             .attribute = attribute ? attribute : ""});
}

static void add_children(MotCtx *ctx, MotOnnxScopes *scopes, uint32_t parent)
{
    Onnx__NodeProto *const *nodes = scopes->all.data[parent].nodes;
    uint32_t n = scopes->all.data[parent].n_nodes;
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
            const Onnx__AttributeProto *a = nodes[i]->attribute[k];
            if (a->g)
                add_graph(ctx, scopes, a->g, parent, i, a->name);
            for (size_t j = 0; j < a->n_graphs; j++)
                add_graph(ctx, scopes, a->graphs[j], parent, i, a->name);
        }
}

MotOnnxScopes *mot_onnx_scopes_make(MotCtx *ctx, const Onnx__ModelProto *model)
{
    MotOnnxScopes *scopes = mot_arena_new(&ctx->arena, MotOnnxScopes);
    mot_map_init(&scopes->by_owner, &ctx->arena);
    add_graph(ctx, scopes, model->graph, MOT_NO_SCOPE, 0, NULL);
    for (size_t i = 0; i < model->n_functions; i++) {
        const Onnx__FunctionProto *f = model->functions[i];
        add_scope(ctx, scopes,
                  (MotOnnxScope){.function = f,
                                 .nodes = f->node,
                                 .n_nodes = (uint32_t)f->n_node,
                                 .parent = MOT_NO_SCOPE,
                                 .attribute = ""});
    }
    for (uint32_t i = 0; i < scopes->all.n; i++)
        add_children(ctx, scopes, i);
    return scopes;
}

/* ---- Places ---- */

static void add_node(MotText *text, const MotOnnxScope *scope, uint32_t node)
{
    const Onnx__NodeProto *proto = scope->nodes[node];
    if (proto->name && *proto->name)
        mot_text_printf(text, "node %u %s", node, mot_quote(text->arena, proto->name));
    else
        mot_text_printf(text, "node %u (%s)", node,
                        proto->op_type ? mot_quote(text->arena, proto->op_type) : "no operator");
}

/* What encloses the scope, outermost first, each with ", " behind it. */
static void add_surroundings(MotText *text, const MotOnnxFile *file, const MotOnnxScope *scope)
{
    const MotOnnxScope *all = file->scopes->all.data;
    const Onnx__FunctionProto *f = all[scope->root].function;
    if (f)
        mot_text_printf(text, "function %s, ", mot_quote(text->arena, f->name ? f->name : ""));
    uint32_t depth = 0;
    for (const MotOnnxScope *s = scope; s->parent != MOT_NO_SCOPE; s = &all[s->parent])
        depth++;
    for (uint32_t level = depth; level > 0; level--) {
        const MotOnnxScope *s = scope;
        for (uint32_t i = 1; i < level; i++)
            s = &all[s->parent];
        add_node(text, &all[s->parent], s->parent_node);
        mot_text_printf(text, ", %s, ", mot_quote(text->arena, s->attribute));
    }
}

MotLoc mot_onnx_scope_loc(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                          const char *what)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    add_surroundings(&text, file, scope);
    mot_text_puts(&text, what);
    return (MotLoc){file->path, mot_text_get(&text)};
}

MotLoc mot_onnx_scope_node_loc(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                               uint32_t node)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    add_surroundings(&text, file, scope);
    add_node(&text, scope, node);
    return (MotLoc){file->path, mot_text_get(&text)};
}

static const MotOnnxScope *find_scope(const MotOnnxFile *file, const void *owner)
{
    uint64_t index;
    if (!mot_map_get(&file->scopes->by_owner, &owner, sizeof owner, &index))
        return NULL;
    return &file->scopes->all.data[index];
}

const uint32_t *mot_onnx_order(const MotOnnxFile *file, const void *graph_or_function)
{
    const MotOnnxScope *scope = find_scope(file, graph_or_function);
    return scope ? scope->order : NULL;
}

MotLoc mot_onnx_node_loc(MotCtx *ctx, const MotOnnxFile *file, const void *graph_or_function,
                         uint32_t node)
{
    const MotOnnxScope *scope = find_scope(file, graph_or_function);
    return scope ? mot_onnx_scope_node_loc(ctx, file, scope, node) : (MotLoc){file->path, NULL};
}
