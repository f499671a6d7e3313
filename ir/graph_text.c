/*
 * Graphs as text. Printing makes records from ops, parsing builds ops from records; nothing here
 * knows a particular op: attributes go by their field table, result types by inference, which the
 * declared types must agree with.
 *
 * Sources take their type from the text, as inference gives them none; so do all ops of a graph
 * with symbolic dims (the kernels of a Program), whose shapes are only known when bound. Both
 * directions are linear in the text.
 */
#include "ir/graph_text.h"

#include "ir/attrs.h"
#include "ir/builder.h"
#include "ir/factors.h"

#include <string.h>

/* ---- Printing ---- */

typedef struct {
    const MotGraph *g;
    MotArena *arena;
    const char **value_name; /* a value id; NULL: not defined in the body */
    uint32_t *place;         /* an op id: its place in the body, from 1; 0: not in it */
} Printer;

static bool is_name(const char *name)
{
    return name && mot_name_is_plain(name) && *name != '.' && !(*name >= '0' && *name <= '9');
}

static MotMap count_names(const Printer *p)
{
    MotMap counts;
    mot_map_init(&counts, p->arena);
    for (uint32_t v = 1; v < p->g->values.n; v++) {
        const MotValueInfo *value = &p->g->values.data[v];
        uint64_t n = 0;
        if (!p->place[value->def] || !is_name(value->name))
            continue;
        mot_map_get_str(&counts, value->name, &n);
        mot_map_put_str(&counts, value->name, n + 1);
    }
    return counts;
}

static void name_values(Printer *p)
{
    MotMap counts = count_names(p);
    uint32_t n_results = 0;
    for (uint32_t i = 0; i < p->g->body.n; i++) {
        const MotOp *op = mot_graph_op(p->g, p->g->body.data[i]);
        for (uint32_t k = 0; k < op->n_out; k++) {
            const char *name = p->g->values.data[op->out[k]].name;
            uint64_t count = 0;
            n_results++;
            if (is_name(name))
                mot_map_get_str(&counts, name, &count);
            p->value_name[op->out[k]] =
                count == 1 ? name : mot_arena_printf(p->arena, "%u", n_results);
        }
    }
}

static Printer make_printer(const MotGraph *g)
{
    MotArena *arena = &g->ctx->arena;
    Printer p = {.g = g,
                 .arena = arena,
                 .value_name = mot_arena_array(arena, const char *, g->values.n),
                 .place = mot_arena_array(arena, uint32_t, g->ops.n)};
    for (uint32_t i = 0; i < g->body.n; i++)
        p.place[g->body.data[i]] = i + 1;
    name_values(&p);
    return p;
}

/*
 * A value that the body does not define prints as a name that does not parse back: such graphs are
 * seen in dumps only.
 */
static MotTerm value_term(const Printer *p, MotValue v)
{
    if (v == 0)
        return (MotTerm){.kind = MOT_TERM_NONE};
    const char *name = v < p->g->values.n ? p->value_name[v] : NULL;
    if (!name)
        name = mot_arena_printf(p->arena, "undefined %u", v);
    return mot_term_text(MOT_TERM_VALUE, name);
}

/* The forward op by its first result, or by its place if it has none. */
static MotTerm forward_term(const Printer *p, MotOpId fwd)
{
    if (fwd < p->g->ops.n && p->place[fwd]) {
        const MotOp *op = mot_graph_op(p->g, fwd);
        return op->n_out ? value_term(p, op->out[0]) : mot_term_int(p->place[fwd]);
    }
    return mot_term_text(MOT_TERM_VALUE, mot_arena_printf(p->arena, "undefined op %u", fwd));
}

/* The name of a dim below zero, or NULL if the graph has none. */
static const char *symbol_of(const MotGraph *g, int64_t dim)
{
    int64_t index = -(dim + 1);
    return index < g->symbols.n ? g->symbols.data[index] : NULL;
}

MotRecordType mot_type_to_record(const MotGraph *g, const MotType *type)
{
    MotRecordType record = {.dtype = type->dtype, .rank = type->rank};
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] >= 0) {
            record.dims[i].size = type->dims[i];
        } else {
            const char *symbol = symbol_of(g, type->dims[i]);
            record.dims[i].symbol = symbol ? symbol : "undefined";
        }
    }
    return record;
}

static MotRecords body_records(const MotGraph *g);

static MotRecord op_record(const Printer *p, const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    MotRecord record = {.op = info->name};
    for (uint32_t i = 0; i < op->n_out; i++)
        mot_vec_push(p->arena, &record.out, value_term(p, op->out[i]));
    for (uint32_t i = 0; i < op->n_in; i++)
        mot_vec_push(p->arena, &record.in, value_term(p, op->in[i]));
    if (op->attrs)
        mot_attrs_print(p->arena, info->fields, op->attrs, &record);
    if (op->origin)
        mot_record_add_attr(p->arena, &record, "origin",
                            mot_term_text(MOT_TERM_STRING, op->origin));
    if (op->fwd)
        mot_record_add_attr(p->arena, &record, "fwd", forward_term(p, op->fwd));
    if (op->role)
        mot_record_add_attr(p->arena, &record, "role",
                            mot_term_text(MOT_TERM_WORD, mot_role_names[op->role]));
    for (uint32_t i = 0; i < op->n_out; i++)
        mot_vec_push(p->arena, &record.types,
                     mot_type_to_record(p->g, mot_graph_type(p->g, op->out[i])));
    record.has_body = op->region != NULL;
    if (op->region)
        record.body = body_records(op->region);
    return record;
}

/* Names count anew in each region, as nothing outside is seen there. */
static MotRecords body_records(const MotGraph *g)
{
    Printer p = make_printer(g);
    MotRecords body = {0};
    for (uint32_t i = 0; i < g->body.n; i++)
        mot_vec_push(p.arena, &body, op_record(&p, mot_graph_op(g, g->body.data[i])));
    return body;
}

MotRecord mot_graph_to_record(const MotGraph *g)
{
    MotArena *arena = &g->ctx->arena;
    MotRecord record = {.op = "graph", .has_body = true, .body = body_records(g)};
    mot_vec_push(arena, &record.in, mot_term_text(MOT_TERM_SYMBOL, g->name));
    if (g->symbols.n) {
        MotTerm list = mot_term_list(mot_arena_array(arena, MotTerm, g->symbols.n), g->symbols.n);
        for (uint32_t i = 0; i < g->symbols.n; i++)
            list.items.data[i] = mot_term_text(MOT_TERM_SYMBOL, g->symbols.data[i]);
        mot_record_add_attr(arena, &record, "symbols", list);
    }
    return record;
}

MotRecords mot_graph_to_records(const MotGraph *g)
{
    MotRecords records = {0};
    mot_vec_push(&g->ctx->arena, &records,
                 mot_record_header(g->ctx, "graph", MOT_GRAPH_TEXT_VERSION));
    mot_vec_push(&g->ctx->arena, &records, mot_graph_to_record(g));
    return records;
}

void mot_graph_print(const MotGraph *g, MotText *text)
{
    MotRecords records = mot_graph_to_records(g);
    mot_records_print(&records, text);
}

/* ---- Parsing ---- */

typedef struct {
    MotCtx *ctx;
    const char *file;
    MotGraph *g;
    MotBuilder b;
    MotMap values;  /* by name */
    MotMap symbols; /* by name: the index in the graph */
    size_t *splat_bytes;
    int depth; /* of regions around it */
} Parser;

static MotLoc loc_of(Parser *p, MotTextPos pos)
{
    return mot_record_loc(p->ctx, p->file, pos);
}

static MotStatus check_count(Parser *p, const MotRecord *r, const char *what, uint32_t n,
                             uint32_t least, uint32_t most)
{
    if (n >= least && n <= most)
        return MOT_OK;
    MotLoc loc = loc_of(p, r->pos);
    if (least == most)
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc, "%s has %u %s, not %u", r->op, least, what, n);
    return mot_fail(p->ctx, MOT_ERR_MODEL, loc, "%s has %u to %u %s, not %u", r->op, least, most,
                    what, n);
}

static MotStatus parse_dim(Parser *p, const MotRecordType *type, int i, int64_t *out)
{
    const MotRecordDim *dim = &type->dims[i];
    uint64_t index;
    *out = dim->size;
    if (!dim->symbol)
        return MOT_OK;
    if (p->depth)
        return mot_fail(p->ctx, MOT_ERR_UNSUPPORTED, loc_of(p, type->pos),
                        "a region has no symbolic dims, such as @%s", dim->symbol);
    if (!mot_map_get_str(&p->symbols, dim->symbol, &index))
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, type->pos),
                        "no symbolic dim @%s; the graph lists them: graph @%s {symbols=[@%s]}",
                        dim->symbol, p->g->name, dim->symbol);
    *out = -(int64_t)index - 1;
    return MOT_OK;
}

static MotStatus parse_type(Parser *p, const MotRecordType *record, MotType *out)
{
    *out = (MotType){.dtype = record->dtype, .rank = record->rank};
    for (int i = 0; i < record->rank; i++)
        MOT_TRY(parse_dim(p, record, i, &out->dims[i]));
    if (!mot_type_fits(out))
        return mot_fail(p->ctx, MOT_ERR_LIMIT, loc_of(p, record->pos),
                        "the shape has 2^62 elements or more");
    return MOT_OK;
}

static MotStatus parse_types(Parser *p, const MotRecord *r, uint32_t n_out, MotType *out)
{
    MOT_TRY(check_count(p, r, "results", r->out.n, n_out, n_out));
    if (n_out > MOT_MAX_RESULTS)
        return mot_fail(p->ctx, MOT_ERR_LIMIT, loc_of(p, r->pos), "%s has more than %d results",
                        r->op, MOT_MAX_RESULTS);
    if (r->types.n)
        MOT_TRY(check_count(p, r, "result types", r->types.n, n_out, n_out));
    for (uint32_t i = 0; i < r->types.n; i++)
        MOT_TRY(parse_type(p, &r->types.data[i], &out[i]));
    return MOT_OK;
}

static MotStatus find_value(Parser *p, const MotTerm *term, MotValue *out)
{
    uint64_t value;
    if (!mot_map_get_str(&p->values, term->text, &value))
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, term->pos), "%%%s is not defined above",
                        mot_name_is_plain(term->text) ? term->text
                                                      : mot_quote(&p->ctx->arena, term->text));
    *out = (MotValue)value;
    return MOT_OK;
}

static MotStatus parse_operands(Parser *p, const MotRecord *r, const MotOpInfo *info, MotValue *out)
{
    MOT_TRY(check_count(p, r, "operands", r->in.n, info->n_min, info->n_max));
    for (uint32_t i = 0; i < r->in.n; i++) {
        const MotTerm *term = &r->in.data[i];
        if (term->kind == MOT_TERM_VALUE) {
            MOT_TRY(find_value(p, term, &out[i]));
        } else if (term->kind == MOT_TERM_NONE && i >= info->n_min) {
            out[i] = 0;
        } else {
            return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, term->pos),
                            "%s: operand %u must be a value %%name, not %s", r->op, i,
                            term->kind == MOT_TERM_NONE ? "`_`, as it is not optional"
                                                        : mot_term_kind_text(term->kind));
        }
    }
    return MOT_OK;
}

static MotStatus define_results(Parser *p, const MotRecord *r, MotOpId id)
{
    const MotOp *op = mot_graph_op(p->g, id);
    for (uint32_t i = 0; i < op->n_out; i++) {
        const MotTerm *term = &r->out.data[i];
        if (mot_map_put_str(&p->values, term->text, op->out[i]))
            return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, term->pos), "%%%s is defined twice",
                            mot_name_is_plain(term->text) ? term->text
                                                          : mot_quote(&p->ctx->arena, term->text));
        if (is_name(term->text))
            p->g->values.data[op->out[i]].name = mot_intern(p->ctx, term->text);
    }
    return MOT_OK;
}

static MotStatus parse_origin_and_role(Parser *p, const MotRecord *r)
{
    const MotTerm *origin = mot_record_attr(r, "origin"), *role = mot_record_attr(r, "role");
    p->b.origin = NULL;
    p->b.role = MOT_ROLE_FORWARD;
    if (origin && origin->kind != MOT_TERM_STRING)
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, origin->pos),
                        "attribute origin must be a string");
    if (origin)
        p->b.origin = mot_intern(p->ctx, origin->text);
    if (!role)
        return MOT_OK;
    for (int i = 0; (size_t)i < sizeof mot_role_names / sizeof mot_role_names[0]; i++)
        if (role->kind == MOT_TERM_WORD && strcmp(role->text, mot_role_names[i]) == 0) {
            p->b.role = (MotRole)i;
            return MOT_OK;
        }
    return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, role->pos),
                    "attribute role must be forward, dx, dw or update");
}

/*
 * Fails if the declared types are not those of the results; without declared ones, inference must
 * have given some.
 */
static MotStatus compare_types(Parser *p, const MotRecord *r, const MotOp *op,
                               const MotType *declared)
{
    for (uint32_t i = 0; i < op->n_out; i++) {
        MotType *type = &p->g->values.data[op->out[i]].type;
        if (!r->types.n && type->dtype == MOT_NO_DTYPE)
            return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, r->pos),
                            "%s: the type of the result is missing", r->op);
        if (type->dtype == MOT_NO_DTYPE)
            *type = declared[i];
        if (r->types.n && !mot_type_equal(type, &declared[i])) {
            MotRecordType inferred = mot_type_to_record(p->g, type);
            MotText text;
            mot_text_init(&text, &p->ctx->arena);
            mot_text_add_type(&text, &r->types.data[i]);
            mot_text_puts(&text, ", the operands give ");
            mot_text_add_type(&text, &inferred);
            return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, r->types.data[i].pos),
                            "%s: result %u is declared as %s", r->op, i, mot_text_get(&text));
        }
    }
    return MOT_OK;
}

static MotStatus parse_body(Parser *p, const MotRecord *record);

/* The graph that the op's body holds, a scope of its own; NULL if its row owns none. */
static MotStatus parse_region(Parser *p, const MotRecord *r, const MotOpInfo *info,
                              MotGraph **out_region)
{
    *out_region = NULL;
    bool owns_one = info->flags & MOT_FLAG_REGION;
    if (owns_one != r->has_body)
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, r->pos),
                        owns_one ? "%s needs a region, { ... }" : "%s has no body", r->op);
    if (!owns_one)
        return MOT_OK;
    if (p->depth == MOT_MAX_REGION_DEPTH)
        return mot_fail(p->ctx, MOT_ERR_LIMIT, loc_of(p, r->pos),
                        "%s: more than %d regions in one another", r->op, MOT_MAX_REGION_DEPTH);
    Parser inner = {.ctx = p->ctx,
                    .file = p->file,
                    .g = mot_graph_make(p->ctx, r->op),
                    .splat_bytes = p->splat_bytes,
                    .depth = p->depth + 1};
    MOT_TRY(parse_body(&inner, r));
    *out_region = inner.g;
    return MOT_OK;
}

static MotStatus parse_op(Parser *p, const MotRecord *r)
{
    static const char *const others[] = {"origin", "fwd", "role", NULL};
    MotOpKind kind = mot_op_find(r->op);
    const MotOpInfo *info = mot_op_info(kind);
    MotValue in[MOT_MAX_OPERANDS];
    MotType declared[MOT_MAX_RESULTS];
    MotGraph *region;
    if (kind == MOT_OP_NONE)
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, r->pos), "there is no op %s", r->op);
    MOT_TRY(parse_region(p, r, info, &region));
    MOT_TRY(parse_operands(p, r, info, in));
    MOT_TRY(parse_types(p, r, mot_op_n_results(kind, region), declared));
    MOT_TRY(parse_origin_and_role(p, r));
    void *attrs = mot_arena_alloc(&p->ctx->arena, info->attrs_bytes);
    MOT_TRY(mot_attrs_parse(&(MotAttrsReader){.ctx = p->ctx,
                                              .file = p->file,
                                              .record = r,
                                              .fields = info->fields,
                                              .others = others,
                                              .type = r->types.n ? &declared[0] : NULL,
                                              .splat_bytes = p->splat_bytes},
                            attrs));
    bool is_typed = p->g->symbols.n && r->types.n && !region;
    MotOpId id = is_typed ? mot_build_typed(&p->b, kind, in, r->in.n, attrs, declared)
                          : mot_build_region(&p->b, kind, in, r->in.n, attrs, region);
    if (!id) {
        mot_note(p->ctx, "at %s, %s", p->file, loc_of(p, r->pos).place);
        return p->ctx->status;
    }
    MOT_TRY(compare_types(p, r, mot_graph_op(p->g, id), declared));
    return define_results(p, r, id);
}

/* `fwd` may name an op below, so it is resolved when all ops are there. */
static MotStatus parse_forward(Parser *p, const MotRecord *r, MotOp *op)
{
    const MotTerm *term = mot_record_attr(r, "fwd");
    MotValue value = 0;
    if (!term)
        return MOT_OK;
    if (term->kind == MOT_TERM_VALUE) {
        MOT_TRY(find_value(p, term, &value));
        op->fwd = p->g->values.data[value].def;
        return MOT_OK;
    }
    if (term->kind != MOT_TERM_INT || term->integer < 1 || term->integer > p->g->body.n)
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, term->pos),
                        "attribute fwd must be a value, or the place of an op from 1 to %u",
                        p->g->body.n);
    op->fwd = p->g->body.data[term->integer - 1];
    return MOT_OK;
}

static MotStatus parse_symbol(Parser *p, const MotTerm *item)
{
    if (item->kind != MOT_TERM_SYMBOL || !mot_dim_name_is_plain(item->text) ||
        mot_map_put_str(&p->symbols, item->text, p->g->symbols.n))
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, item->pos),
                        "the name of a symbolic dim is @ and letters except x, digits, `_` and "
                        "`.`, and differs from the others");
    mot_vec_push(&p->ctx->arena, &p->g->symbols, mot_intern(p->ctx, item->text));
    return MOT_OK;
}

static MotStatus parse_symbols(Parser *p, const MotRecord *record)
{
    for (uint32_t i = 0; i < record->attrs.n; i++) {
        const MotRecordAttr *attr = &record->attrs.data[i];
        if (strcmp(attr->name, "symbols") != 0 || attr->value.kind != MOT_TERM_LIST)
            return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, attr->pos),
                            "graph has one attribute, symbols=[@name, ...], not %s", attr->name);
        for (uint32_t k = 0; k < attr->value.items.n; k++)
            MOT_TRY(parse_symbol(p, &attr->value.items.data[k]));
    }
    return MOT_OK;
}

static MotStatus parse_body(Parser *p, const MotRecord *record)
{
    p->b = mot_builder_make(p->g);
    mot_map_init(&p->values, &p->ctx->arena);
    for (uint32_t i = 0; i < record->body.n; i++)
        MOT_TRY(parse_op(p, &record->body.data[i]));
    for (uint32_t i = 0; i < record->body.n; i++)
        MOT_TRY(parse_forward(p, &record->body.data[i], mot_graph_op(p->g, p->g->body.data[i])));
    return MOT_OK;
}

MotStatus mot_graph_from_record(MotCtx *ctx, const char *file, const MotRecord *record,
                                MotGraph **out_graph)
{
    if (strcmp(record->op, "graph") != 0 || !record->has_body || record->in.n != 1 ||
        record->in.data[0].kind != MOT_TERM_SYMBOL || record->out.n || record->types.n)
        return mot_fail(ctx, MOT_ERR_MODEL, mot_record_loc(ctx, file, record->pos),
                        "expected `graph @name { ... }`");
    size_t splat_bytes = 0;
    Parser p = {.ctx = ctx,
                .file = file,
                .g = mot_graph_make(ctx, record->in.data[0].text),
                .splat_bytes = &splat_bytes};
    mot_map_init(&p.symbols, &ctx->arena);
    MOT_TRY(parse_symbols(&p, record));
    MOT_TRY(parse_body(&p, record));
    MOT_TRY(mot_factors_spread_units(p.g));
    *out_graph = p.g;
    return MOT_OK;
}

/* The header may be left out: tests are shorter. */
MotStatus mot_graph_parse(MotCtx *ctx, const char *file, const char *text, MotGraph **out_graph)
{
    MotRecords records;
    MOT_TRY(mot_records_parse(ctx, file, text, &records));
    uint32_t first = records.n && strcmp(records.data[0].op, "motley") == 0 ? 1 : 0;
    if (first)
        MOT_TRY(mot_records_check_header(ctx, file, &records, "graph", MOT_GRAPH_TEXT_VERSION));
    if (records.n != first + 1)
        return mot_fail(ctx, MOT_ERR_MODEL, (MotLoc){file, NULL},
                        "expected one graph @name { ... }, found %u records", records.n - first);
    return mot_graph_from_record(ctx, file, &records.data[first], out_graph);
}
