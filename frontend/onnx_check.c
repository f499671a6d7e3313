/* Versions, opset imports, and initializers; the rest is in the parts that onnx_check.h lists. */
#include "frontend/onnx_check.h"

#include <string.h>

const char *mot_onnx_domain(const char *domain)
{
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

/* ---- Versions ---- */

static MotStatus check_ir_version(MotCtx *ctx, const MotOnnxFile *file, MotLoc loc)
{
    const Onnx__ModelProto *model = file->model;
    if (!model->graph)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "the model has no graph");
    if (!model->has_ir_version)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "the model has no ir_version");
    if (model->ir_version <= 0)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "ir_version is %lld",
                        (long long)model->ir_version);
    if (model->ir_version > MOT_ONNX_IR_KNOWN)
        mot_warn(ctx, loc,
                 "ir_version %lld is newer than %d, the newest known; read as if it were that",
                 (long long)model->ir_version, MOT_ONNX_IR_KNOWN);
    return MOT_OK;
}

/* Enters domain -> version. `what` imports: "the model", "function ...". */
static MotStatus read_imports(MotCtx *ctx, Onnx__OperatorSetIdProto *const *imports, size_t n,
                              MotLoc loc, MotMap *out_versions)
{
    for (size_t i = 0; i < n; i++) {
        const char *domain = mot_onnx_domain(imports[i]->domain);
        const char *name = *domain ? mot_quote(&ctx->arena, domain) : "ai.onnx";
        int64_t version = imports[i]->version;
        uint64_t before;
        if (version <= 0)
            return mot_fail(ctx, MOT_ERR_MODEL, loc, "opset_import of %s has version %lld", name,
                            (long long)version);
        if (!*domain && version > MOT_ONNX_OPSET_KNOWN) {
            (void)mot_fail(ctx, MOT_ERR_UNSUPPORTED, loc,
                           "opset %lld of ai.onnx is newer than %d, the newest known",
                           (long long)version, MOT_ONNX_OPSET_KNOWN);
            mot_hint(ctx, "export the model with opset %d or below", MOT_ONNX_OPSET_KNOWN);
            return MOT_ERR_UNSUPPORTED;
        }
        if (mot_map_get_str(out_versions, domain, &before) && before != (uint64_t)version)
            return mot_fail(ctx, MOT_ERR_MODEL, loc,
                            "opset_import has both version %llu and %lld of %s",
                            (unsigned long long)before, (long long)version, name);
        mot_map_put_str(out_versions, domain, (uint64_t)version);
    }
    return MOT_OK;
}

/* The imports that hold in a root scope: the model's or the function's own. */
static MotStatus read_root_imports(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *root,
                                   MotMap *out_versions)
{
    const Onnx__ModelProto *model = file->model;
    mot_map_init(out_versions, &ctx->arena);
    if (root->function)
        return read_imports(ctx, root->function->opset_import, root->function->n_opset_import,
                            mot_onnx_scope_loc(ctx, file, root, "opset_import"), out_versions);
    MotLoc loc = {file->path, NULL};
    if (model->n_opset_import == 0 && model->ir_version >= 3)
        return mot_fail(ctx, MOT_ERR_MODEL, loc,
                        "the model has no opset_import, which IR %lld requires",
                        (long long)model->ir_version);
    if (model->n_opset_import == 0)
        mot_map_put_str(out_versions, "", 1);
    return read_imports(ctx, model->opset_import, model->n_opset_import, loc, out_versions);
}

/* ---- Nodes ---- */

static MotStatus check_operator(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                                uint32_t i, const MotMap *versions)
{
    const Onnx__NodeProto *node = scope->nodes[i];
    const char *domain = mot_onnx_domain(node->domain);
    if (!node->op_type || !*node->op_type)
        return mot_fail(ctx, MOT_ERR_MODEL, mot_onnx_scope_node_loc(ctx, file, scope, i),
                        "the node has no operator");
    if (!mot_map_get_str(versions, domain, NULL))
        return mot_fail(ctx, MOT_ERR_MODEL, mot_onnx_scope_node_loc(ctx, file, scope, i),
                        "domain %s of %s is not in opset_import",
                        *domain ? mot_quote(&ctx->arena, domain) : "ai.onnx",
                        mot_quote(&ctx->arena, node->op_type));
    return MOT_OK;
}

/* Roots precede what they enclose, so their imports are read by the time they are needed. */
static MotStatus check_operators(MotCtx *ctx, const MotOnnxFile *file)
{
    const MotOnnxScopes *scopes = file->scopes;
    MotMap *versions = mot_arena_array(&ctx->arena, MotMap, 1 + file->model->n_functions);
    for (uint32_t s = 0; s < scopes->all.n; s++) {
        const MotOnnxScope *scope = &scopes->all.data[s];
        if (scope->root == s)
            MOT_TRY(read_root_imports(ctx, file, scope, &versions[s]));
        for (uint32_t i = 0; i < scope->n_nodes; i++)
            MOT_TRY(check_operator(ctx, file, scope, i, &versions[scope->root]));
    }
    return MOT_OK;
}

/* ---- Initializers ---- */

static MotLoc place_initializer(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                                size_t i, const char *kind, const char *name)
{
    return mot_onnx_scope_loc(ctx, file, scope,
                              mot_arena_printf(&ctx->arena, "%s %zu %s", kind, i,
                                               mot_quote(&ctx->arena, name ? name : "")));
}

static MotStatus check_initializers(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope)
{
    for (size_t i = 0; scope->graph && i < scope->graph->n_initializer; i++) {
        const Onnx__TensorProto *t = scope->graph->initializer[i];
        MotArenaMark mark = mot_arena_mark(&ctx->arena);
        MotLoc loc = place_initializer(ctx, file, scope, i, "initializer", t->name);
        MOT_TRY(mot_onnx_tensor_check(ctx, file, t, loc));
        mot_arena_rewind(&ctx->arena, mark);
    }
    for (size_t i = 0; scope->graph && i < scope->graph->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *t = scope->graph->sparse_initializer[i];
        MotLoc loc = place_initializer(ctx, file, scope, i, "sparse initializer",
                                       t->values ? t->values->name : NULL);
        MOT_TRY(mot_onnx_sparse_check(ctx, file, t, loc));
    }
    return MOT_OK;
}

/*
 * Before IR 4 every initializer had to be an input as well. Without that it can only be a constant,
 * so it is let pass.
 */
static void warn_old_initializers(MotCtx *ctx, const MotOnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    if (file->model->ir_version >= 4)
        return;
    MotMap inputs;
    mot_map_init(&inputs, &ctx->arena);
    for (size_t i = 0; i < graph->n_input; i++)
        mot_map_put_str(&inputs, graph->input[i]->name, 0);
    uint64_t n = 0;
    const char *first = NULL;
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (!mot_map_get_str(&inputs, graph->initializer[i]->name, NULL) && n++ == 0)
            first = graph->initializer[i]->name;
    if (n)
        mot_warn(ctx, (MotLoc){file->path, NULL},
                 "%llu initializers are not among the inputs, as IR %lld requires, the first is "
                 "%s; taken as constants",
                 (unsigned long long)n, (long long)file->model->ir_version,
                 mot_quote(&ctx->arena, first));
}

/* ---- The whole ---- */

MotStatus mot_onnx_check(MotCtx *ctx, MotOnnxFile *file)
{
    MOT_TRY(check_ir_version(ctx, file, (MotLoc){file->path, NULL}));
    file->scopes = mot_onnx_scopes_make(ctx, file->model);
    MOT_TRY(check_operators(ctx, file));
    for (uint32_t s = 0; s < file->scopes->all.n; s++)
        MOT_TRY(check_initializers(ctx, file, &file->scopes->all.data[s]));
    MOT_TRY(mot_onnx_check_attributes(ctx, file));
    MOT_TRY(mot_onnx_check_names(ctx, file));
    MOT_TRY(mot_onnx_check_functions(ctx, file));
    MOT_TRY(mot_onnx_check_devices(ctx, file));
    warn_old_initializers(ctx, file);
    return MOT_OK;
}
