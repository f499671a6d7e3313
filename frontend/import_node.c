/*
 * What lowerings read: the table of operators, the operands and attributes of a node, and values
 * that several need.
 */
#include "frontend/import_node.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- The table ---- */

#define ROW(op, since_, n_min_, n_max_, n_out_, attrs_, lower_, kind_, sequence)                   \
    {.domain = "",                                                                                 \
     .op_type = #op,                                                                               \
     .since = since_,                                                                              \
     .n_min = n_min_,                                                                              \
     .n_max = n_max_,                                                                              \
     .n_out = n_out_,                                                                              \
     .attrs = attrs_,                                                                              \
     .lower = mot_lower_##lower_,                                                                  \
     .kind = MOT_OP_##kind_,                                                                       \
     .takes_sequence = sequence},
#define ONNX_OP(op, since, n_min, n_max, n_out, attrs, lower, kind)                                \
    ROW(op, since, n_min, n_max, n_out, attrs, lower, kind, false)
#define ONNX_SEQUENCE_OP(op, since, n_min, n_max, n_out, attrs, lower, kind)                       \
    ROW(op, since, n_min, n_max, n_out, attrs, lower, kind, true)
static const MotLowering rows[] = {
#include "frontend/onnx_ops.def"
};

const MotLowering *mot_lowering_find(const char *domain, const char *op_type, int64_t version)
{
    const MotLowering *best = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].op_type, op_type) == 0 && strcmp(rows[i].domain, domain) == 0 &&
            rows[i].since <= version && (!best || rows[i].since > best->since))
            best = &rows[i];
    return best;
}

/* ---- Failures ---- */

MotStatus mot_node_fail(MotNode *n, MotStatus status, const char *format, ...)
{
    char buffer[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    return mot_fail(n->im->ctx, status, n->loc, "%s: %s", n->row->op_type, buffer);
}

bool mot_node_ok(const MotNode *n)
{
    return n->im->ctx->status == MOT_OK;
}

/* ---- Operands ---- */

bool mot_node_has(const MotNode *n, uint32_t i)
{
    return i < n->n_in && (n->in[i] || n->sequence[i]);
}

bool mot_node_wants(const MotNode *n, uint32_t i)
{
    return i < n->n_out && n->proto->output[i][0];
}

const MotType *mot_value_type(const MotNode *n, MotValue v)
{
    return mot_graph_type(n->im->g, v);
}

const MotType *mot_node_type(const MotNode *n, uint32_t i)
{
    return mot_value_type(n, i < n->n_in ? n->in[i] : 0);
}

const char *mot_node_operand_text(const MotNode *n, uint32_t i)
{
    MotArena *arena = &n->im->ctx->arena;
    const MotType *type = mot_node_type(n, i);
    return mot_arena_printf(arena, "%s : %s[%s]",
                            mot_quote(arena, i < n->n_in ? n->proto->input[i] : ""),
                            mot_dtype_name(type->dtype),
                            type->rank ? mot_shape_text(arena, type->dims, type->rank) : "");
}

/* ---- Attributes ---- */

const Onnx__AttributeProto *mot_node_attr(const MotNode *n, const char *name)
{
    for (size_t i = 0; i < n->proto->n_attribute; i++)
        if (strcmp(n->proto->attribute[i]->name, name) == 0)
            return n->proto->attribute[i];
    return NULL;
}

int64_t mot_node_int(const MotNode *n, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *attr = mot_node_attr(n, name);
    return attr ? attr->i : otherwise;
}

double mot_node_float(const MotNode *n, const char *name, double otherwise)
{
    const Onnx__AttributeProto *attr = mot_node_attr(n, name);
    return attr ? (double)attr->f : otherwise;
}

const char *mot_node_string(const MotNode *n, const char *name, const char *otherwise)
{
    const Onnx__AttributeProto *attr = mot_node_attr(n, name);
    if (!attr)
        return mot_intern(n->im->ctx, otherwise);
    return mot_intern(
        n->im->ctx, mot_arena_strndup(&n->im->ctx->arena, (const char *)attr->s.data, attr->s.len));
}

bool mot_node_ints(const MotNode *n, const char *name, MotInts *out_list)
{
    const Onnx__AttributeProto *attr = mot_node_attr(n, name);
    *out_list = attr ? (MotInts){attr->ints, (uint32_t)attr->n_ints} : (MotInts){0};
    return attr != NULL;
}

/* The letters of onnx_ops.def and the attribute types they stand for. */
static const struct {
    char letter;
    int type;
    const char *name;
} attr_kinds[] = {
    {'i', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, "an int"},
    {'f', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, "a float"},
    {'s', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, "a string"},
    {'t', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, "a tensor"},
    {'I', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, "a list of ints"},
    {'F', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, "a list of floats"},
    {'S', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS, "a list of strings"},
    {'x', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR, "a sparse tensor"},
};

/* Files of the first IR versions leave the type out; then the field that is set tells it. */
static bool has_type(const Onnx__AttributeProto *attr, int type)
{
    if (attr->type)
        return attr->type == type;
    switch (type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        return attr->has_i;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        return attr->has_f;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        return attr->has_s;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        return attr->t != NULL;
    default:
        return true; /* lists may be empty */
    }
}

typedef struct {
    char letter;
    bool is_required;
    const char *name;
    size_t name_bytes;
} AttrSpec;

/* Reads the next "kind name" of a row's list; false at its end. */
static bool next_attr(const char **list, AttrSpec *out_spec)
{
    const char *p = *list;
    if (!*p)
        return false;
    out_spec->letter = *p++;
    out_spec->is_required = *p == '!';
    p += out_spec->is_required ? 2 : 1;
    out_spec->name = p;
    out_spec->name_bytes = strcspn(p, ",");
    p += out_spec->name_bytes;
    *list = *p ? p + 2 : p;
    return true;
}

static bool is_named(const Onnx__AttributeProto *attr, const AttrSpec *spec)
{
    return strncmp(attr->name, spec->name, spec->name_bytes) == 0 && !attr->name[spec->name_bytes];
}

static void check_attr(MotNode *n, const AttrSpec *spec)
{
    int name_bytes = (int)spec->name_bytes;
    bool is_found = false;
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        const Onnx__AttributeProto *attr = n->proto->attribute[i];
        if (!is_named(attr, spec))
            continue;
        is_found = true;
        for (size_t k = 0; k < sizeof attr_kinds / sizeof *attr_kinds; k++)
            if (attr_kinds[k].letter == spec->letter && !has_type(attr, attr_kinds[k].type))
                mot_node_fail(n, MOT_ERR_MODEL, "attribute %.*s must be %s", name_bytes, spec->name,
                              attr_kinds[k].name);
    }
    if (spec->is_required && !is_found)
        mot_node_fail(n, MOT_ERR_MODEL, "attribute %.*s is missing", name_bytes, spec->name);
}

MotStatus mot_node_check_attrs(MotNode *n)
{
    AttrSpec spec;
    for (const char *list = n->row->attrs; next_attr(&list, &spec);)
        check_attr(n, &spec);
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        const Onnx__AttributeProto *attr = n->proto->attribute[i];
        bool is_known = false;
        for (const char *list = n->row->attrs; !is_known && next_attr(&list, &spec);)
            is_known = is_named(attr, &spec);
        if (!is_known)
            mot_node_fail(n, MOT_ERR_MODEL, "has no attribute %s in opset version %lld",
                          mot_quote(&n->im->ctx->arena, attr->name), (long long)n->row->since);
    }
    return n->im->ctx->status;
}

/* ---- Checks ---- */

int mot_node_axis(MotNode *n, int64_t axis, int rank)
{
    if (axis < -rank || axis >= rank) {
        mot_node_fail(n, MOT_ERR_MODEL, "axis %lld is out of range for rank %d (%d..%d)",
                      (long long)axis, rank, -rank, rank - 1);
        return 0;
    }
    return (int)(axis < 0 ? axis + rank : axis);
}

uint32_t mot_node_axes(MotNode *n, MotInts list, int rank, int64_t *out_axes)
{
    unsigned seen = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < list.n && mot_node_ok(n); i++) {
        int axis = mot_node_axis(n, list.data[i], rank);
        if (seen & 1u << axis)
            mot_node_fail(n, MOT_ERR_MODEL, "axis %d is given twice", axis);
        else if (mot_node_ok(n))
            out_axes[count++] = axis;
        seen |= 1u << axis;
    }
    return mot_node_ok(n) ? count : 0;
}

void mot_node_check_rank(MotNode *n, uint32_t i, int least, int most)
{
    int rank = mot_node_type(n, i)->rank;
    if (n->in[i] && (rank < least || rank > most))
        mot_node_fail(n, MOT_ERR_MODEL, "input %s has rank %d; it must be from %d to %d",
                      mot_node_operand_text(n, i), rank, least, most);
}

MotValue mot_node_float_operand(MotNode *n, uint32_t i)
{
    MotDtype dtype = mot_node_type(n, i)->dtype;
    if (mot_node_ok(n) && mot_dtype_class(dtype) != MOT_CLASS_FLOAT)
        mot_node_fail(n, MOT_ERR_MODEL, "input %s must be float", mot_node_operand_text(n, i));
    return mot_node_ok(n) ? n->in[i] : 0;
}

bool mot_node_fits_rank(MotNode *n, int rank)
{
    if (rank > MOT_MAX_RANK)
        mot_node_fail(n, MOT_ERR_UNSUPPORTED, "the result has rank %d; Motley goes up to %d", rank,
                      MOT_MAX_RANK);
    return mot_node_ok(n);
}

MotType mot_node_broadcast(MotNode *n, MotType a, MotType b)
{
    MotArena *arena = &n->im->ctx->arena;
    MotType out = {.dtype = a.dtype, .rank = a.rank > b.rank ? a.rank : b.rank};
    for (int i = 0; i < out.rank; i++) {
        int of_a = i - (out.rank - a.rank), of_b = i - (out.rank - b.rank);
        int64_t x = of_a < 0 ? 1 : a.dims[of_a], y = of_b < 0 ? 1 : b.dims[of_b];
        if (x != y && x != 1 && y != 1) {
            mot_node_fail(n, MOT_ERR_MODEL,
                          "shapes [%s] and [%s] do not broadcast: %lld against %lld",
                          mot_shape_text(arena, a.dims, a.rank),
                          mot_shape_text(arena, b.dims, b.rank), (long long)x, (long long)y);
            return a;
        }
        out.dims[i] = x == 1 ? y : x;
    }
    return out;
}

void mot_node_check_dtypes(MotNode *n, uint32_t first, uint32_t end)
{
    for (uint32_t i = first + 1; i < end && i < n->n_in; i++)
        if (n->in[first] && n->in[i] &&
            mot_node_type(n, i)->dtype != mot_node_type(n, first)->dtype)
            mot_node_fail(n, MOT_ERR_MODEL, "inputs %s and %s differ in type",
                          mot_node_operand_text(n, first), mot_node_operand_text(n, i));
}

/* ---- Values ---- */

MotValue mot_node_vector(MotNode *n, const int64_t *data, int64_t count)
{
    MotTensor t = {mot_type_make(MOT_I64, 1, &count), NULL};
    t.data = mot_arena_copy(&n->im->ctx->arena, data, (size_t)count * sizeof *data);
    return mot_constant(n->b, t);
}

MotValue mot_node_expand(MotNode *n, MotValue x, const MotType *type)
{
    return mot_broadcast(n->b, x, type->rank, type->dims);
}

MotValue mot_node_expand_dims(MotNode *n, MotValue x, int axis)
{
    MotType type = *mot_value_type(n, x);
    if (!mot_node_fits_rank(n, type.rank + 1))
        return 0;
    memmove(&type.dims[axis + 1], &type.dims[axis], (size_t)(type.rank - axis) * sizeof *type.dims);
    type.dims[axis] = 1;
    return mot_reshape(n->b, x, type.rank + 1, type.dims);
}

MotValue mot_node_axis_last(MotNode *n, MotValue x, int from)
{
    int64_t perm[MOT_MAX_RANK];
    int last = mot_value_type(n, x)->rank - 1;
    for (int i = 0; i < last; i++)
        perm[i] = i + (i >= from);
    perm[last] = from;
    return mot_transpose(n->b, x, perm);
}

/* The same tensor with every index in 0..size-1. */
static MotValue normalize_known_index(MotNode *n, const MotTensor *index, int64_t size)
{
    int64_t count = mot_type_elements(&index->type);
    MotTensor t = {index->type,
                   mot_arena_alloc(&n->im->ctx->arena, (size_t)mot_type_bytes(&index->type))};
    for (int64_t i = 0; i < count; i++) {
        int64_t k = mot_tensor_get_int(index, i);
        if (k < -size || k >= size) {
            mot_node_fail(n, MOT_ERR_MODEL, "index %lld is out of range for a dim of size %lld",
                          (long long)k, (long long)size);
            return 0;
        }
        mot_tensor_set_int(&t, i, k < 0 ? k + size : k);
    }
    return mot_constant(n->b, t);
}

MotValue mot_node_index(MotNode *n, MotValue index, int64_t size)
{
    MotDtype dtype = mot_value_type(n, index)->dtype;
    if (index && dtype != MOT_I64 && dtype != MOT_I32)
        mot_node_fail(n, MOT_ERR_MODEL, "indices must be int32 or int64, not %s",
                      mot_dtype_name(dtype));
    if (!mot_node_ok(n))
        return 0;
    const MotTensor *known = mot_import_known(n->im, index);
    if (known)
        return normalize_known_index(n, known, size);
    MotValue zero = mot_scalar_like(n->b, index, 0);
    return mot_select(n->b, mot_lt(n->b, index, zero), mot_add_scalar(n->b, index, (double)size),
                      index);
}

MotValue mot_node_log_softmax(MotNode *n, MotValue x, int axis)
{
    MotBuilder *b = n->b;
    int64_t axes[] = {axis};
    MotValue shifted = mot_sub(b, x, mot_reduce_max(b, x, axes, 1, MOT_KEEP));
    return mot_sub(b, shifted,
                   mot_log(b, mot_reduce_sum(b, mot_exp(b, shifted), axes, 1, MOT_KEEP)));
}
