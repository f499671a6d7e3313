/*
 * The verifier of graphs: runs between passes and on whatever was read. Independent of builders,
 * though it asks the same inference for the types. Collects violations, at most MAX_TOLD of them
 * told. Linear, but for composites' expansions.
 */
#include "ir/builder.h"
#include "ir/graph_text.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_TOLD = 20 };

/*
 * A value: not defined by the ops so far, defined, or with a type that is none: nothing is inferred
 * from that.
 */
enum { UNDEFINED, DEFINED, UNTYPED };

/* Violations of a graph and its regions. */
typedef struct {
    MotVec(const char *) told;
    uint32_t n;
} Violations;

typedef struct {
    MotGraph *g;
    Violations *found;
    int depth;              /* of regions around the graph */
    uint8_t *is_op_in_body; /* an op id */
    uint8_t *value_state;   /* a value id */
    MotMap sources;         /* names of inputs and parameters */
} Verifier;

static void tell(Verifier *v, const MotOp *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void tell(Verifier *v, const MotOp *op, const char *format, ...)
{
    MotArena *arena = &v->g->ctx->arena;
    if (v->found->n++ >= MAX_TOLD)
        return;
    char what[1000]; /* longer ones are cut */
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *where = v->depth ? mot_arena_printf(arena, "in a region of %s", v->g->name) : "";
    const char *separator = v->depth ? ": " : "";
    const char *text = what;
    if (op)
        text = mot_arena_printf(arena, "%s (op %u, %s): %s", mot_op_loc(v->g, op).place,
                                (unsigned)(op - v->g->ops.data), mot_op_info(op->kind)->name, what);
    mot_vec_push(arena, &v->found->told, mot_arena_printf(arena, "%s%s%s", where, separator, text));
}

static const char *type_text(const MotGraph *g, const MotType *type)
{
    MotText text;
    MotRecordType record = mot_type_to_record(g, type);
    mot_text_init(&text, &g->ctx->arena);
    mot_text_add_type(&text, &record);
    return mot_text_get(&text);
}

static bool check_type(Verifier *v, const MotOp *op, const MotType *type)
{
    if (type->dtype <= MOT_NO_DTYPE || type->dtype >= MOT_N_DTYPES || type->rank < 0 ||
        type->rank > MOT_MAX_RANK) {
        tell(v, op, "a result has no type: dtype %d, rank %d", (int)type->dtype, type->rank);
        return false;
    }
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < -(int64_t)v->g->symbols.n) {
            tell(v, op, "dim %d of a result is symbol %lld of %u", i,
                 (long long)-(type->dims[i] + 1), v->g->symbols.n);
            return false;
        }
    if (!mot_type_fits(type))
        tell(v, op, "a result has 2^62 elements or more");
    return mot_type_fits(type);
}

static bool check_operand(Verifier *v, const MotOp *op, uint32_t i)
{
    MotValue in = op->in[i];
    bool is_optional = i >= mot_op_info(op->kind)->n_min;
    if (in >= v->g->values.n)
        tell(v, op, "operand %u is value %u of %u", i, in, v->g->values.n - 1);
    else if (in == 0 && !is_optional)
        tell(v, op, "operand %u is absent and not optional", i);
    else if (in != 0 && v->value_state[in] == UNDEFINED)
        tell(v, op, "operand %u, value %u, is not defined before", i, in);
    else
        return in == 0 || v->value_state[in] == DEFINED;
    return false;
}

/* Whether results can be inferred from the operands. */
static bool check_operands(Verifier *v, const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    bool are_sound = op->n_in >= info->n_min && op->n_in <= info->n_max;
    if (!are_sound)
        tell(v, op, "%u operands, there must be %u to %u", op->n_in, info->n_min, info->n_max);
    for (uint32_t i = 0; i < op->n_in; i++)
        are_sound = check_operand(v, op, i) && are_sound;
    return are_sound;
}

/* Results are defined once, by this op, and have a type of their own right. */
static bool check_results(Verifier *v, const MotOp *op, MotOpId id)
{
    uint32_t before = v->found->n, wanted = mot_op_n_results(op->kind, op->region);
    if (op->n_out != wanted) {
        tell(v, op, "%u results, there must be %u", op->n_out, wanted);
        return false;
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        MotValue out = op->out[i];
        if (out == 0 || out >= v->g->values.n) {
            tell(v, op, "result %u is value %u of %u", i, out, v->g->values.n - 1);
            continue;
        }
        const MotValueInfo *value = &v->g->values.data[out];
        if (v->value_state[out] != UNDEFINED)
            tell(v, op, "result %u, value %u, is defined twice", i, out);
        if (value->def != id || value->def_index != i)
            tell(v, op, "result %u, value %u, names result %u of op %u as its definition", i, out,
                 value->def_index, value->def);
        v->value_state[out] = check_type(v, op, &value->type) ? DEFINED : UNTYPED;
    }
    return v->found->n == before;
}

/*
 * Inference records its failure in the context: it is taken from there, so that one bad op does not
 * hide the others.
 */
static void check_inference(Verifier *v, const MotOp *op)
{
    MotType inferred[MOT_MAX_RESULTS] = {{0}};
    if (mot_infer(v->g, op, inferred) != MOT_OK) {
        tell(v, op, "%s", mot_text_get(&v->g->ctx->error));
        mot_error_clear(v->g->ctx);
        return;
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        const MotType *type = mot_graph_type(v->g, op->out[i]);
        if (inferred[i].dtype != MOT_NO_DTYPE && !mot_type_equal(&inferred[i], type))
            tell(v, op, "result %u has type %s, the operands give %s", i, type_text(v->g, type),
                 type_text(v->g, &inferred[i]));
    }
}

/* Inputs and parameters are found by name: the name must be there and be the only one. */
static void check_name(Verifier *v, const MotOp *op, const char *name)
{
    if (!name)
        tell(v, op, "has no name");
    else if (mot_map_put_str(&v->sources, name, 1))
        tell(v, op, "%s names another input or parameter too", mot_quote(&v->g->ctx->arena, name));
}

/* The file's tensor, reshaped to atoms and transposed by perm, is the value (attrs.def). */
static void check_layout(Verifier *v, const MotOp *op)
{
    const MotAttr_param *a = mot_attrs(op, param);
    const MotType *type = mot_graph_type(v->g, op->out[0]);
    MotType file = {.dtype = type->dtype};
    unsigned seen = 0;
    bool is_permutation = a->perm.n == 0 || a->perm.n == (uint32_t)type->rank;
    for (uint32_t i = 0; is_permutation && i < a->perm.n; i++) {
        int64_t atom = a->perm.data[i];
        is_permutation = atom >= 0 && atom < type->rank && !(seen & 1u << atom);
        seen |= is_permutation ? 1u << atom : 0;
    }
    if (!is_permutation)
        tell(v, op, "perm is no permutation of the dims");
    if (a->file_dims.n == 0)
        return;
    bool are_sizes = a->file_dims.n <= MOT_MAX_RANK;
    for (uint32_t i = 0; are_sizes && i < a->file_dims.n; i++) {
        are_sizes = a->file_dims.data[i] >= 0;
        file.dims[file.rank++] = a->file_dims.data[i];
    }
    if (!are_sizes || !mot_type_fits(&file) || mot_type_elements(&file) != mot_type_elements(type))
        tell(v, op, "file_dims have another number of elements than %s", type_text(v->g, type));
}

static void check_graph(Verifier *v);

/* Whether the op has a region, and a sound one, if its row owns one. */
static bool check_region(Verifier *v, const MotOp *op)
{
    bool owns_one = mot_op_info(op->kind)->flags & MOT_FLAG_REGION;
    if (owns_one != (op->region != NULL)) {
        tell(v, op, owns_one ? "owns no region" : "owns a region");
        return false;
    }
    if (!owns_one)
        return true;
    if (v->g->symbols.n || op->region->symbols.n || v->depth == MOT_MAX_REGION_DEPTH) {
        tell(v, op,
             v->depth == MOT_MAX_REGION_DEPTH ? "lies in %d regions: too deep"
                                              : "has a region and symbolic dims",
             v->depth);
        return false;
    }
    uint32_t before = v->found->n;
    Verifier inner = {.g = op->region, .found = v->found, .depth = v->depth + 1};
    check_graph(&inner);
    return v->found->n == before;
}

/* A region is computed from its inputs alone. */
static bool may_stand_in_region(MotOpKind kind)
{
    return kind != MOT_OP_PARAM && kind != MOT_OP_GRADIENT && kind != MOT_OP_ASSIGN;
}

static void check_op(Verifier *v, MotOpId id)
{
    const MotOp *op = mot_graph_op(v->g, id);
    if (op->kind <= MOT_OP_NONE || op->kind >= MOT_N_OPS) {
        tell(v, NULL, "op %u has no kind", id);
        return;
    }
    if (op->fwd >= v->g->ops.n || (op->fwd && !v->is_op_in_body[op->fwd]))
        tell(v, op, "its forward op %u is not in the body", op->fwd);
    if (v->depth && !may_stand_in_region(op->kind))
        tell(v, op, "may not stand in a region");
    bool has_operands = check_operands(v, op), has_region = check_region(v, op);
    if (!check_results(v, op, id) || !has_operands || !has_region)
        return;
    if (v->g->symbols.n == 0) /* else the types are given, not inferred (builder.h) */
        check_inference(v, op);
    if (op->kind == MOT_OP_INPUT)
        check_name(v, op, mot_attrs(op, input)->name);
    if (op->kind == MOT_OP_PARAM) {
        check_name(v, op, mot_attrs(op, param)->name);
        check_layout(v, op);
    }
}

/* Every op at most once, and none that is not there. */
static bool check_body(Verifier *v)
{
    uint32_t before = v->found->n;
    for (uint32_t i = 0; i < v->g->body.n; i++) {
        MotOpId id = v->g->body.data[i];
        if (id == 0 || id >= v->g->ops.n)
            tell(v, NULL, "place %u of the body holds op %u of %u", i, id, v->g->ops.n - 1);
        else if (v->is_op_in_body[id])
            tell(v, NULL, "op %u stands twice in the body", id);
        else
            v->is_op_in_body[id] = 1;
    }
    return v->found->n == before;
}

static void check_symbols(Verifier *v)
{
    for (uint32_t i = 0; i < v->g->symbols.n; i++)
        if (!mot_dim_name_is_plain(v->g->symbols.data[i]))
            tell(v, NULL, "symbolic dim %u has the name %s", i,
                 mot_quote(&v->g->ctx->arena, v->g->symbols.data[i]));
}

static void check_graph(Verifier *v)
{
    MotArena *arena = &v->g->ctx->arena;
    v->is_op_in_body = mot_arena_array(arena, uint8_t, v->g->ops.n);
    v->value_state = mot_arena_array(arena, uint8_t, v->g->values.n);
    mot_map_init(&v->sources, arena);
    check_symbols(v);
    if (check_body(v))
        for (uint32_t i = 0; i < v->g->body.n; i++)
            check_op(v, v->g->body.data[i]);
}

static MotStatus report(const MotGraph *g, const Violations *found)
{
    MotCtx *ctx = g->ctx;
    if (!found->n)
        return MOT_OK;
    MotLoc loc = {NULL, mot_arena_printf(&ctx->arena, "graph %s", mot_quote(&ctx->arena, g->name))};
    mot_fail(ctx, MOT_ERR_MODEL, loc, "%s", found->told.data[0]);
    for (uint32_t i = 1; i < found->told.n; i++)
        mot_note(ctx, "%s", found->told.data[i]);
    if (found->n > found->told.n)
        mot_note(ctx, "and %u more", found->n - found->told.n);
    return ctx->status;
}

MotStatus mot_graph_verify(const MotGraph *graph)
{
    MotCtx *ctx = graph->ctx;
    if (ctx->status != MOT_OK) /* a builder has failed: the graph is not whole */
        return ctx->status;
    MotGraph g = *graph; /* inference wants a graph it may write; it doesn't */
    Violations found = {.n = 0};
    Verifier v = {.g = &g, .found = &found};
    check_graph(&v);
    return report(&g, &found);
}
