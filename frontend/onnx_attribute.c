/*
 * Attributes: one value, of the declared type; references only in functions; tensors and bodies in
 * them.
 */
#include "frontend/onnx_check.h"

#include <string.h>

/*
 * By AttributeType: its name, the field that holds the value, and whether that must be present
 * (lists may be empty).
 */
typedef struct AttributeKind {
    const char *name, *field;
    bool is_required;
} AttributeKind;

/* clang-format off */
static const AttributeKind kinds[] = {
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT]          = {"FLOAT",          "f",              false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT]            = {"INT",            "i",              false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING]         = {"STRING",         "s",              false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR]         = {"TENSOR",         "t",              true},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH]          = {"GRAPH",          "g",              true},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS]         = {"FLOATS",         "floats",         false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS]           = {"INTS",           "ints",           false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS]        = {"STRINGS",        "strings",        false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSORS]        = {"TENSORS",        "tensors",        false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPHS]         = {"GRAPHS",         "graphs",         false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR]  = {"SPARSE_TENSOR",  "sparse_tensor",  true},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSORS] = {"SPARSE_TENSORS", "sparse_tensors", false},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO]     = {"TYPE_PROTO",     "tp",             true},
    [ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTOS]    = {"TYPE_PROTOS",    "type_protos",    false},
};
/* clang-format on */
enum { N_ATTRIBUTE_KINDS = sizeof kinds / sizeof kinds[0] };

/* A node, or a function with its defaults (node = UINT32_MAX): whose attributes are checked. */
typedef struct Owner {
    MotCtx *ctx;
    const MotOnnxFile *file;
    const MotOnnxScope *scope;
    uint32_t node;
    Onnx__AttributeProto *const *attributes;
    size_t n;
    const MotMap *parameters; /* of the function around it; NULL outside of functions */
} Owner;

static MotLoc place_attribute(const Owner *o, const char *name)
{
    MotArena *arena = &o->ctx->arena;
    MotLoc loc = o->node == UINT32_MAX
                     ? mot_onnx_scope_loc(o->ctx, o->file, o->scope, "defaults")
                     : mot_onnx_scope_node_loc(o->ctx, o->file, o->scope, o->node);
    loc.place = mot_arena_printf(arena, "%s, attribute %s", loc.place, mot_quote(arena, name));
    return loc;
}

#define FAIL(o, name, ...)                                                                         \
    mot_fail((o)->ctx, MOT_ERR_MODEL, place_attribute((o), (name)), __VA_ARGS__)

/* ---- One attribute ---- */

/* The value fields that are set, a bit each, by the AttributeType they belong to. */
static unsigned find_values(const Onnx__AttributeProto *a)
{
    const bool set[N_ATTRIBUTE_KINDS] = {
        false,
        a->has_f,
        a->has_i,
        a->has_s,
        a->t != NULL,
        a->g != NULL,
        a->n_floats,
        a->n_ints,
        a->n_strings,
        a->n_tensors,
        a->n_graphs,
        a->sparse_tensor != NULL,
        a->n_sparse_tensors,
        a->tp != NULL,
        a->n_type_protos,
    };
    unsigned bits = 0;
    for (unsigned i = 0; i < N_ATTRIBUTE_KINDS; i++)
        bits |= (unsigned)set[i] << i;
    return bits;
}

static MotStatus check_reference(const Owner *o, const Onnx__AttributeProto *a, unsigned values)
{
    const char *ref = mot_quote(&o->ctx->arena, a->ref_attr_name);
    if (!o->parameters || o->node == UINT32_MAX)
        return FAIL(o, a->name, "refers to attribute %s, but is not in a function", ref);
    if (values)
        return FAIL(o, a->name, "has both a value and a reference to %s", ref);
    if (!mot_map_get_str(o->parameters, a->ref_attr_name, NULL))
        return FAIL(o, a->name, "refers to %s, which is no attribute of the function", ref);
    return MOT_OK;
}

/* Writers that follow proto3 leave out a single number or string that is zero or empty. */
static MotStatus check_value(const Owner *o, const Onnx__AttributeProto *a)
{
    unsigned values = find_values(a);
    if (a->type <= 0 || a->type >= N_ATTRIBUTE_KINDS)
        return FAIL(o, a->name, "has type %d, which is unknown", a->type);
    if (a->ref_attr_name && *a->ref_attr_name)
        return check_reference(o, a, values);
    const AttributeKind *kind = &kinds[a->type];
    unsigned others = values & ~(1u << a->type);
    if (others && values != others)
        return FAIL(o, a->name, "has two values, in %s and %s", kind->field,
                    kinds[__builtin_ctz(others)].field);
    if (others)
        return FAIL(o, a->name, "has type %s, but its value is in %s", kind->name,
                    kinds[__builtin_ctz(others)].field);
    if (kind->is_required && !values)
        return FAIL(o, a->name, "has type %s, but no value", kind->name);
    return MOT_OK;
}

static MotStatus check_tensors(const Owner *o, const Onnx__AttributeProto *a)
{
    MotLoc loc = place_attribute(o, a->name);
    if (a->t)
        MOT_TRY(mot_onnx_tensor_check(o->ctx, o->file, a->t, loc));
    for (size_t i = 0; i < a->n_tensors; i++)
        MOT_TRY(mot_onnx_tensor_check(o->ctx, o->file, a->tensors[i], loc));
    if (a->sparse_tensor)
        MOT_TRY(mot_onnx_sparse_check(o->ctx, o->file, a->sparse_tensor, loc));
    for (size_t i = 0; i < a->n_sparse_tensors; i++)
        MOT_TRY(mot_onnx_sparse_check(o->ctx, o->file, a->sparse_tensors[i], loc));
    return MOT_OK;
}

static bool has_tensors(const Onnx__AttributeProto *a)
{
    return a->t || a->n_tensors || a->sparse_tensor || a->n_sparse_tensors;
}

static MotStatus check_owner(const Owner *o)
{
    MotMap seen;
    mot_map_init(&seen, &o->ctx->arena);
    for (size_t i = 0; i < o->n; i++) {
        const Onnx__AttributeProto *a = o->attributes[i];
        if (!a->name || !*a->name)
            return FAIL(o, "", "attribute %zu has no name", i);
        if (o->n > 1 && mot_map_put_str(&seen, a->name, 0))
            return FAIL(o, a->name, "is given twice");
        MOT_TRY(check_value(o, a));
        if (has_tensors(a))
            MOT_TRY(check_tensors(o, a));
    }
    return MOT_OK;
}

/* ---- Bodies of control flow ---- */

/*
 * How many inputs and outputs a body has, from those of its node: all inputs or none; all outputs
 * and some more. Scan counts so from version 9 on.
 */
typedef struct BodyRule {
    const char *op_type;
    bool takes_inputs;
    unsigned more_outputs;
} BodyRule;

static const BodyRule body_rules[] = {{"If", false, 0}, {"Loop", true, 1}, {"Scan", true, 0}};

static int64_t find_opset(const Onnx__ModelProto *model)
{
    for (size_t i = 0; i < model->n_opset_import; i++)
        if (!*mot_onnx_domain(model->opset_import[i]->domain))
            return model->opset_import[i]->version;
    return 1;
}

static MotStatus check_body(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope)
{
    const MotOnnxScope *parent = &file->scopes->all.data[scope->parent];
    const Onnx__NodeProto *node = parent->nodes[scope->parent_node];
    bool has_lengths = strcmp(node->op_type, "Scan") == 0 && find_opset(file->model) < 9;
    if (*mot_onnx_domain(node->domain) || has_lengths)
        return MOT_OK;
    for (size_t i = 0; i < sizeof body_rules / sizeof body_rules[0]; i++) {
        const BodyRule *rule = &body_rules[i];
        if (strcmp(node->op_type, rule->op_type) != 0)
            continue;
        size_t n_in = rule->takes_inputs ? node->n_input : 0,
               n_out = node->n_output + rule->more_outputs;
        if (scope->graph->n_input != n_in || scope->graph->n_output != n_out)
            return mot_fail(ctx, MOT_ERR_MODEL,
                            mot_onnx_scope_node_loc(ctx, file, parent, scope->parent_node),
                            "%s has %zu inputs and %zu outputs, the node needs %zu and %zu",
                            mot_quote(&ctx->arena, scope->attribute), scope->graph->n_input,
                            scope->graph->n_output, n_in, n_out);
    }
    return MOT_OK;
}

/* ---- The whole ---- */

static MotStatus check_nodes(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                             const MotMap *parameters)
{
    for (uint32_t i = 0; i < scope->n_nodes; i++) {
        MotArenaMark mark = mot_arena_mark(&ctx->arena);
        Owner o = {
            ctx,       file, scope, i, scope->nodes[i]->attribute, scope->nodes[i]->n_attribute,
            parameters};
        bool keeps = false; /* sparse checks may convert indices, which stay */
        for (size_t k = 0; k < o.n; k++)
            keeps = keeps || o.attributes[k]->sparse_tensor || o.attributes[k]->n_sparse_tensors;
        if (o.n)
            MOT_TRY(check_owner(&o));
        if (!keeps)
            mot_arena_rewind(&ctx->arena, mark);
    }
    return MOT_OK;
}

/* The attributes that a function declares; those with defaults are checked like a node's. */
static MotStatus read_parameters(MotCtx *ctx, const MotOnnxFile *file, const MotOnnxScope *scope,
                                 MotMap *out)
{
    const Onnx__FunctionProto *f = scope->function;
    mot_map_init(out, &ctx->arena);
    Owner o = {ctx, file, scope, UINT32_MAX, f->attribute_proto, f->n_attribute_proto, out};
    MOT_TRY(check_owner(&o));
    for (size_t i = 0; i < f->n_attribute; i++)
        if (mot_map_put_str(out, f->attribute[i], 0))
            return FAIL(&o, f->attribute[i], "is declared twice");
    for (size_t i = 0; i < f->n_attribute_proto; i++)
        if (mot_map_put_str(out, f->attribute_proto[i]->name, 0))
            return FAIL(&o, f->attribute_proto[i]->name, "is declared twice");
    return MOT_OK;
}

MotStatus mot_onnx_check_attributes(MotCtx *ctx, const MotOnnxFile *file)
{
    const MotOnnxScopes *scopes = file->scopes;
    MotMap *parameters = mot_arena_array(&ctx->arena, MotMap, 1 + file->model->n_functions);
    for (uint32_t s = 0; s < scopes->all.n; s++) {
        const MotOnnxScope *scope = &scopes->all.data[s];
        if (scope->function)
            MOT_TRY(read_parameters(ctx, file, scope, &parameters[s]));
        bool is_in_function = scopes->all.data[scope->root].function != NULL;
        MOT_TRY(check_nodes(ctx, file, scope, is_in_function ? &parameters[scope->root] : NULL));
        if (scope->parent != MOT_NO_SCOPE)
            MOT_TRY(check_body(ctx, file, scope));
    }
    return MOT_OK;
}
