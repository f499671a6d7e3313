/*
 * Names: single assignment, definition before use, and the order of the nodes.
 *
 * First all scopes define (parents before children, so that shadowing is seen), then all uses are
 * looked up, in the scope and then in those around it. A use inside of a nested graph makes the
 * node that owns the graph wait. Where a node stands before what it uses, the scope is sorted. The
 * maps are scratch; only the orders stay.
 */
#include "frontend/onnx_check.h"
#include "frontend/onnx_sort.h"

/* What a name stands for: the index of the node that makes it, or one of these. */
enum {
    DEF_NODES = 0x7ffffff0, /* more than there can be */
    DEF_INPUT,
    DEF_INPUT_WITH_DEFAULT,
    DEF_INITIALIZER
};

typedef struct Names {
    MotMap defs; /* name -> what */
    MotEdges edges;
    bool is_unsorted;
} Names;

typedef struct Check {
    MotCtx *ctx;
    const MotOnnxFile *file;
    MotOnnxScope *scopes;
    uint32_t n_scopes;
    Names *names; /* one a scope */
} Check;

static MotStatus fail_at(const Check *c, const MotOnnxScope *scope, const char *what)
{
    return mot_fail(c->ctx, MOT_ERR_MODEL, mot_onnx_scope_loc(c->ctx, c->file, scope, what),
                    "the name is empty");
}

/* ---- Definitions ---- */

static const char *print_def(const Check *c, const MotOnnxScope *scope, uint64_t def)
{
    if (def == DEF_INPUT || def == DEF_INPUT_WITH_DEFAULT)
        return "as an input";
    if (def == DEF_INITIALIZER)
        return "as an initializer";
    return mot_arena_printf(&c->ctx->arena, "by %s",
                            mot_onnx_scope_node_loc(c->ctx, c->file, scope, (uint32_t)def).place);
}

static MotStatus fail_twice(const Check *c, uint32_t s, const char *name, uint64_t def,
                            uint32_t where, uint64_t before)
{
    const MotOnnxScope *scope = &c->scopes[s];
    MotLoc loc = def < DEF_NODES
                     ? mot_onnx_scope_node_loc(c->ctx, c->file, scope, (uint32_t)def)
                     : mot_onnx_scope_loc(c->ctx, c->file, scope,
                                          def == DEF_INITIALIZER ? "initializers" : "inputs");
    return mot_fail(c->ctx, MOT_ERR_MODEL, loc,
                    "value %s is defined a second time; it is defined %s%s",
                    mot_quote(&c->ctx->arena, name), print_def(c, &c->scopes[where], before),
                    where == s ? "" : " outside of this graph");
}

static MotStatus define(const Check *c, uint32_t s, const char *name, uint64_t def)
{
    MotMap *defs = &c->names[s].defs;
    uint64_t before;
    if (mot_map_get_str(defs, name, &before)) {
        if (def != DEF_INITIALIZER || before != DEF_INPUT)
            return fail_twice(c, s, name, def, s, before);
        def = DEF_INPUT_WITH_DEFAULT;
    }
    for (uint32_t p = c->scopes[s].parent; p != MOT_NO_SCOPE; p = c->scopes[p].parent)
        if (mot_map_get_str(&c->names[p].defs, name, &before))
            return fail_twice(c, s, name, def, p, before);
    mot_map_put_str(defs, name, def);
    return MOT_OK;
}

static MotStatus define_named(const Check *c, uint32_t s, const char *name, uint64_t def,
                              const char *kind)
{
    if (!name || !*name)
        return fail_at(c, &c->scopes[s], kind);
    return define(c, s, name, def);
}

static MotStatus define_graph(const Check *c, uint32_t s, const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++)
        MOT_TRY(define_named(c, s, graph->input[i]->name, DEF_INPUT, "inputs"));
    for (size_t i = 0; i < graph->n_initializer; i++)
        MOT_TRY(define_named(c, s, graph->initializer[i]->name, DEF_INITIALIZER, "initializers"));
    for (size_t i = 0; i < graph->n_sparse_initializer; i++)
        MOT_TRY(define_named(c, s, graph->sparse_initializer[i]->values->name, DEF_INITIALIZER,
                             "sparse initializers"));
    return MOT_OK;
}

static MotStatus define_scope(const Check *c, uint32_t s)
{
    const MotOnnxScope *scope = &c->scopes[s];
    mot_map_init(&c->names[s].defs, &c->ctx->arena);
    if (scope->graph)
        MOT_TRY(define_graph(c, s, scope->graph));
    for (size_t i = 0; scope->function && i < scope->function->n_input; i++)
        MOT_TRY(define_named(c, s, scope->function->input[i], DEF_INPUT, "inputs"));
    for (uint32_t i = 0; i < scope->n_nodes; i++)
        for (size_t k = 0; k < scope->nodes[i]->n_output; k++)
            if (*scope->nodes[i]->output[k])
                MOT_TRY(define(c, s, scope->nodes[i]->output[k], i));
    return MOT_OK;
}

/* ---- Uses ---- */

/*
 * Finds `name` from scope s outwards and notes that `user`, or the node around it, waits for its
 * maker. `user` is DEF_INPUT for the scope's own outputs, which wait for nothing.
 */
static bool find_use(const Check *c, uint32_t s, uint32_t user, const char *name)
{
    uint64_t def;
    while (!mot_map_get_str(&c->names[s].defs, name, &def)) {
        user = c->scopes[s].parent_node;
        s = c->scopes[s].parent;
        if (s == MOT_NO_SCOPE)
            return false;
    }
    if (def < DEF_NODES && user < DEF_NODES) {
        Names *names = &c->names[s];
        mot_vec_push(&c->ctx->arena, &names->edges, (MotEdge){.used = (uint32_t)def, .user = user});
        names->is_unsorted = names->is_unsorted || def >= user;
    }
    return true;
}

static MotStatus check_outputs(const Check *c, uint32_t s)
{
    const MotOnnxScope *scope = &c->scopes[s];
    size_t n = scope->graph ? scope->graph->n_output : scope->function->n_output;
    for (size_t i = 0; i < n; i++) {
        const char *name =
            scope->graph ? scope->graph->output[i]->name : scope->function->output[i];
        if (!name || !*name)
            return fail_at(c, scope, mot_arena_printf(&c->ctx->arena, "output %zu", i));
        if (!find_use(c, s, DEF_INPUT, name))
            return mot_fail(c->ctx, MOT_ERR_MODEL,
                            mot_onnx_scope_loc(c->ctx, c->file, scope, "outputs"),
                            "output %s is defined nowhere", mot_quote(&c->ctx->arena, name));
    }
    for (size_t i = 0; scope->graph && i < scope->graph->n_value_info; i++)
        if (!scope->graph->value_info[i]->name || !*scope->graph->value_info[i]->name)
            return fail_at(c, scope, mot_arena_printf(&c->ctx->arena, "value_info %zu", i));
    return MOT_OK;
}

static MotStatus check_uses(const Check *c, uint32_t s)
{
    const MotOnnxScope *scope = &c->scopes[s];
    for (uint32_t i = 0; i < scope->n_nodes; i++)
        for (size_t k = 0; k < scope->nodes[i]->n_input; k++) {
            const char *name = scope->nodes[i]->input[k];
            if (*name && !find_use(c, s, i, name))
                return mot_fail(
                    c->ctx, MOT_ERR_MODEL, mot_onnx_scope_node_loc(c->ctx, c->file, scope, i),
                    "input %zu, %s, is defined nowhere", k, mot_quote(&c->ctx->arena, name));
        }
    return check_outputs(c, s);
}

/* ---- Order ---- */

static MotStatus fail_cycle(const Check *c, const MotOnnxScope *scope, const MotCycle *cycle)
{
    enum { SHOWN = 10 };
    MotText text;
    mot_text_init(&text, &c->ctx->arena);
    for (uint32_t i = 0; i < cycle->n && i < SHOWN; i++) {
        const Onnx__NodeProto *node = scope->nodes[cycle->items[i]];
        mot_text_printf(
            &text, "node %u %s uses ", cycle->items[i],
            mot_quote(text.arena, node->name && *node->name ? node->name : node->op_type));
    }
    mot_text_printf(&text, "%snode %u", cycle->n > SHOWN ? "... " : "", cycle->items[0]);
    return mot_fail(c->ctx, MOT_ERR_MODEL, mot_onnx_scope_loc(c->ctx, c->file, scope, "nodes"),
                    "a cycle: %s", mot_text_get(&text));
}

static MotStatus sort_scopes(const Check *c)
{
    uint32_t n_sorted = 0;
    for (uint32_t s = 0; s < c->n_scopes; s++) {
        MotCycle cycle;
        MotOnnxScope *scope = &c->scopes[s];
        if (!c->names[s].is_unsorted)
            continue;
        MotUses uses = mot_onnx_group_edges(&c->ctx->arena, scope->n_nodes, &c->names[s].edges);
        if (!mot_onnx_sort(&c->ctx->arena, scope->n_nodes, uses, scope->order, &cycle))
            return fail_cycle(c, scope, &cycle);
        n_sorted++;
    }
    if (n_sorted)
        mot_warn(c->ctx, (MotLoc){c->file->path, NULL},
                 "the nodes of %u graph%s are not in topological order; they were sorted", n_sorted,
                 n_sorted == 1 ? "" : "s");
    return MOT_OK;
}

MotStatus mot_onnx_check_names(MotCtx *ctx, const MotOnnxFile *file)
{
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    MotOnnxScopes *scopes = file->scopes;
    Check c = {.ctx = ctx,
               .file = file,
               .scopes = scopes->all.data,
               .n_scopes = scopes->all.n,
               .names = mot_arena_array(&ctx->arena, Names, scopes->all.n)};
    for (uint32_t s = 0; s < c.n_scopes; s++)
        MOT_TRY(define_scope(&c, s));
    for (uint32_t s = 0; s < c.n_scopes; s++)
        MOT_TRY(check_uses(&c, s));
    MOT_TRY(sort_scopes(&c));
    mot_arena_rewind(&ctx->arena, mark);
    return MOT_OK;
}
