/* Tables over the kinds of fields: how one is printed, how one is read, what tells two apart. */
#include "ir/attrs.h"

#include "support/map.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Printing: false if the field is zero and stays out of the text ---- */

static bool print_int(MotArena *arena, const void *field, MotTerm *out)
{
    (void)arena;
    *out = mot_term_int(*(const int64_t *)field);
    return out->integer != 0;
}

static bool print_float(MotArena *arena, const void *field, MotTerm *out)
{
    (void)arena;
    *out = mot_term_float(*(const double *)field);
    return out->number != 0 || signbit(out->number); /* -0.0 is no zero: it is printed */
}

static bool print_flag(MotArena *arena, const void *field, MotTerm *out)
{
    (void)arena;
    *out = (MotTerm){.kind = MOT_TERM_NONE};
    return *(const bool *)field;
}

static bool print_str(MotArena *arena, const void *field, MotTerm *out)
{
    (void)arena;
    *out = mot_term_text(MOT_TERM_STRING, *(const char *const *)field);
    return out->text != NULL;
}

static bool print_ints(MotArena *arena, const void *field, MotTerm *out)
{
    const MotInts *ints = field;
    *out = mot_term_list(mot_arena_array(arena, MotTerm, ints->n), ints->n);
    for (uint32_t i = 0; i < ints->n; i++)
        out->items.data[i] = mot_term_int(ints->data[i]);
    return ints->n != 0;
}

static bool print_dtype(MotArena *arena, const void *field, MotTerm *out)
{
    (void)arena;
    MotDtype dtype = *(const MotDtype *)field;
    *out = mot_term_text(MOT_TERM_WORD, mot_dtype_name(dtype));
    return dtype != MOT_NO_DTYPE;
}

/*
 * The double with the fewest digits that rounds to element i: 0.1, not 0.10000000149011612, for an
 * f32.
 */
static double shorten(const MotTensor *tensor, int64_t i)
{
    enum { F32_DIGITS = 9 };
    double exact = mot_tensor_get(tensor, i), rounded = 0;
    MotTensor one = {mot_type_scalar(tensor->type.dtype), &rounded};
    for (int precision = 3; tensor->type.dtype != MOT_F64 && precision <= F32_DIGITS; precision++) {
        char digits[40];
        snprintf(digits, sizeof digits, "%.*g", precision, exact);
        double candidate = strtod(digits, NULL);
        mot_tensor_set(&one, 0, candidate);
        if (mot_tensor_get(&one, 0) == exact)
            return candidate;
    }
    return exact;
}

static MotTerm element_term(const MotTensor *tensor, int64_t i)
{
    if (mot_dtype_class(tensor->type.dtype) == MOT_CLASS_FLOAT)
        return mot_term_float(shorten(tensor, i));
    return mot_term_int(mot_tensor_get_int(tensor, i));
}

/* Whether all elements, at least one, have the same bytes. */
static bool is_splat(const MotTensor *tensor, int64_t n)
{
    size_t bytes = (size_t)mot_dtype_bytes(tensor->type.dtype);
    const char *data = tensor->data;
    return n > 0 && memcmp(data, data + bytes, (size_t)(n - 1) * bytes) == 0;
}

static bool print_tensor(MotArena *arena, const void *field, MotTerm *out)
{
    const MotTensor *tensor = field;
    if (!tensor->data)
        return false;
    int64_t n = mot_type_elements(&tensor->type);
    if (is_splat(tensor, n)) {
        *out = element_term(tensor, 0);
        return true;
    }
    *out = mot_term_list(mot_arena_array(arena, MotTerm, n), (uint32_t)n);
    for (int64_t i = 0; i < n; i++)
        out->items.data[i] = element_term(tensor, i);
    return true;
}

typedef bool (*PrintField)(MotArena *, const void *, MotTerm *);
static const PrintField printers[] = {
    [MOT_ATTR_INT] = print_int,       [MOT_ATTR_FLOAT] = print_float,
    [MOT_ATTR_FLAG] = print_flag,     [MOT_ATTR_STR] = print_str,
    [MOT_ATTR_INTS] = print_ints,     [MOT_ATTR_DTYPE] = print_dtype,
    [MOT_ATTR_TENSOR] = print_tensor,
};

void mot_attrs_print(MotArena *arena, const MotAttrField *fields, const void *attrs,
                     MotRecord *record)
{
    for (const MotAttrField *f = fields; f->name; f++) {
        MotTerm term;
        if (printers[f->kind](arena, (const char *)attrs + f->offset, &term))
            mot_record_add_attr(arena, record, f->name, term);
    }
}

/* ---- Reading ---- */

/* `term` is the value of the attribute, or an item of it. */
static MotStatus refuse_term(const MotAttrsReader *r, const MotRecordAttr *attr,
                             const MotTerm *term, const char *wanted)
{
    bool is_flag = term->kind == MOT_TERM_NONE;
    return mot_fail(r->ctx, MOT_ERR_MODEL,
                    mot_record_loc(r->ctx, r->file, is_flag ? attr->pos : term->pos),
                    "%s: attribute %s must be %s, not %s", r->record->op, attr->name, wanted,
                    is_flag ? "a flag" : mot_term_kind_text(term->kind));
}

static MotStatus refuse(const MotAttrsReader *r, const MotRecordAttr *attr, const char *wanted)
{
    return refuse_term(r, attr, &attr->value, wanted);
}

static MotStatus read_int(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    if (attr->value.kind != MOT_TERM_INT)
        return refuse(r, attr, "an integer");
    *(int64_t *)field = attr->value.integer;
    return MOT_OK;
}

static bool read_number(const MotTerm *term, double *out)
{
    *out = term->kind == MOT_TERM_INT ? (double)term->integer : term->number;
    return term->kind == MOT_TERM_INT || term->kind == MOT_TERM_FLOAT;
}

static MotStatus read_float(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    double number;
    if (!read_number(&attr->value, &number))
        return refuse(r, attr, "a number");
    *(double *)field = number;
    return MOT_OK;
}

static MotStatus read_flag(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    if (attr->value.kind != MOT_TERM_NONE)
        return refuse(r, attr, "a flag, without `=`");
    *(bool *)field = true;
    return MOT_OK;
}

static MotStatus read_str(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    if (attr->value.kind != MOT_TERM_STRING)
        return refuse(r, attr, "a string");
    *(const char **)field = mot_intern(r->ctx, attr->value.text);
    return MOT_OK;
}

static MotStatus read_ints(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    if (attr->value.kind != MOT_TERM_LIST)
        return refuse(r, attr, "a list of integers");
    uint32_t n = attr->value.items.n;
    MotInts ints = {mot_arena_array(&r->ctx->arena, int64_t, n), n};
    for (uint32_t i = 0; i < n; i++) {
        const MotTerm *item = &attr->value.items.data[i];
        if (item->kind != MOT_TERM_INT)
            return refuse_term(r, attr, item, "a list of integers");
        ints.data[i] = item->integer;
    }
    *(MotInts *)field = ints;
    return MOT_OK;
}

static MotStatus read_dtype(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    MotDtype dtype =
        attr->value.kind == MOT_TERM_WORD ? mot_dtype_find(attr->value.text) : MOT_NO_DTYPE;
    if (dtype == MOT_NO_DTYPE)
        return refuse(r, attr, "an element type such as f32");
    *(MotDtype *)field = dtype;
    return MOT_OK;
}

/* The least and greatest integer of a dtype that is no float. */
static void integer_range(MotDtype dtype, int64_t *least, int64_t *greatest)
{
    int bits = dtype == MOT_BOOL ? 1 : 8 * mot_dtype_bytes(dtype);
    bool is_signed = dtype == MOT_I32 || dtype == MOT_I64;
    *greatest = INT64_MAX >> (64 - bits - !is_signed);
    *least = is_signed ? -*greatest - 1 : 0;
}

static MotStatus read_element(const MotAttrsReader *r, const MotRecordAttr *attr,
                              const MotTerm *term, MotTensor *tensor, int64_t i)
{
    MotDtype dtype = tensor->type.dtype;
    if (mot_dtype_class(dtype) == MOT_CLASS_FLOAT) {
        double number;
        if (!read_number(term, &number))
            return refuse_term(r, attr, term, "numbers");
        mot_tensor_set(tensor, i, number);
        return MOT_OK;
    }
    int64_t least, greatest;
    integer_range(dtype, &least, &greatest);
    if (term->kind != MOT_TERM_INT)
        return refuse_term(r, attr, term, "integers, as the type says");
    if (term->integer < least || term->integer > greatest)
        return mot_fail(r->ctx, MOT_ERR_MODEL, mot_record_loc(r->ctx, r->file, term->pos),
                        "%lld is no %s: those go from %lld to %lld", (long long)term->integer,
                        mot_dtype_name(dtype), (long long)least, (long long)greatest);
    mot_tensor_set_int(tensor, i, term->integer);
    return MOT_OK;
}

/* Fills the tensor with its element 0, doubling what is filled. */
static void spread(MotTensor *tensor, size_t bytes)
{
    char *data = tensor->data;
    for (size_t done = (size_t)mot_dtype_bytes(tensor->type.dtype); done < bytes; done *= 2)
        memcpy(data + done, data, done < bytes - done ? done : bytes - done);
}

static MotStatus read_splat(const MotAttrsReader *r, const MotRecordAttr *attr, MotTensor *tensor)
{
    int64_t n = mot_type_elements(&tensor->type);
    size_t element = (size_t)mot_dtype_bytes(tensor->type.dtype);
    size_t room = MOT_ATTRS_MAX_SPLAT_BYTES - *r->splat_bytes;
    if (n == 0)
        return refuse(r, attr, "[], as the type has no elements");
    if ((uint64_t)n > room / element)
        return mot_fail(r->ctx, MOT_ERR_LIMIT, mot_record_loc(r->ctx, r->file, attr->value.pos),
                        "%s: constants given by one number take more than %s in this text",
                        r->record->op, mot_bytes_text(&r->ctx->arena, MOT_ATTRS_MAX_SPLAT_BYTES));
    size_t bytes = (size_t)n * element;
    *r->splat_bytes += bytes;
    tensor->data = mot_arena_alloc(&r->ctx->arena, bytes);
    MOT_TRY(read_element(r, attr, &attr->value, tensor, 0));
    spread(tensor, bytes);
    return MOT_OK;
}

/* One number for all elements, or a list of all in row-major order. */
static MotStatus read_tensor(const MotAttrsReader *r, const MotRecordAttr *attr, void *field)
{
    if (!r->type)
        return mot_fail(r->ctx, MOT_ERR_MODEL, mot_record_loc(r->ctx, r->file, r->record->pos),
                        "%s: the type of attribute %s is missing", r->record->op, attr->name);
    MotTensor tensor = {.type = *r->type};
    if (attr->value.kind != MOT_TERM_LIST) {
        MOT_TRY(read_splat(r, attr, &tensor));
    } else {
        uint32_t n = attr->value.items.n;
        if (mot_type_elements(&tensor.type) != n)
            return mot_fail(r->ctx, MOT_ERR_MODEL, mot_record_loc(r->ctx, r->file, attr->value.pos),
                            "%s: attribute %s has %u elements, the type has %" PRId64,
                            r->record->op, attr->name, n, mot_type_elements(&tensor.type));
        tensor.data = mot_arena_alloc_array(&r->ctx->arena, n, sizeof(int64_t));
        for (uint32_t i = 0; i < n; i++)
            MOT_TRY(read_element(r, attr, &attr->value.items.data[i], &tensor, i));
    }
    *(MotTensor *)field = tensor;
    return MOT_OK;
}

typedef MotStatus (*ReadField)(const MotAttrsReader *, const MotRecordAttr *, void *);
static const ReadField readers[] = {
    [MOT_ATTR_INT] = read_int,       [MOT_ATTR_FLOAT] = read_float, [MOT_ATTR_FLAG] = read_flag,
    [MOT_ATTR_STR] = read_str,       [MOT_ATTR_INTS] = read_ints,   [MOT_ATTR_DTYPE] = read_dtype,
    [MOT_ATTR_TENSOR] = read_tensor,
};

static bool is_other(const MotAttrsReader *r, const char *name)
{
    for (const char *const *other = r->others; *other; other++)
        if (strcmp(*other, name) == 0)
            return true;
    return false;
}

static MotStatus refuse_name(const MotAttrsReader *r, const MotRecordAttr *attr)
{
    MotText names;
    mot_text_init(&names, &r->ctx->arena);
    for (const MotAttrField *f = r->fields; f->name; f++)
        mot_text_printf(&names, "%s%s", names.n ? ", " : "", f->name);
    for (const char *const *other = r->others; *other; other++)
        mot_text_printf(&names, "%s%s", names.n ? ", " : "", *other);
    return mot_fail(r->ctx, MOT_ERR_MODEL, mot_record_loc(r->ctx, r->file, attr->pos),
                    "%s has no attribute %s; it has %s", r->record->op, attr->name,
                    mot_text_get(&names));
}

MotStatus mot_attrs_parse(const MotAttrsReader *reader, void *attrs)
{
    for (uint32_t i = 0; i < reader->record->attrs.n; i++) {
        const MotRecordAttr *attr = &reader->record->attrs.data[i];
        const MotAttrField *f = reader->fields;
        while (f->name && strcmp(f->name, attr->name) != 0)
            f++;
        if (f->name)
            MOT_TRY(readers[f->kind](reader, attr, (char *)attrs + f->offset));
        else if (!is_other(reader, attr->name))
            return refuse_name(reader, attr);
    }
    return MOT_OK;
}

/* ---- Keys ---- */

static void key_text(const void *field, size_t max_data, MotText *key)
{
    (void)max_data;
    const char *text = *(const MotAttrType_STR *)field;
    mot_text_add(key, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void key_ints(const void *field, size_t max_data, MotText *key)
{
    (void)max_data;
    const MotInts *list = field;
    mot_text_add(key, (const char *)&list->n, sizeof list->n);
    mot_text_add(key, (const char *)list->data, list->n * sizeof *list->data);
}

static void key_tensor(const void *field, size_t max_data, MotText *key)
{
    const MotTensor *t = field;
    size_t n = (size_t)mot_type_bytes(&t->type);
    mot_text_printf(key, "%d %d ", (int)t->type.dtype, t->type.rank);
    mot_text_add(key, (const char *)t->type.dims, (size_t)t->type.rank * sizeof *t->type.dims);
    uint64_t hash = n > max_data ? mot_hash(t->data, n) : 0;
    mot_text_add(key, n > max_data ? (const char *)&hash : t->data, n > max_data ? sizeof hash : n);
}

void mot_attrs_key(const MotAttrField *fields, const void *attrs, size_t max_data, MotText *key)
{
    static const struct {
        size_t bytes; /* of the field itself; 0: `add` */
        void (*add)(const void *field, size_t max_data, MotText *key);
    } kinds[] = {
        [MOT_ATTR_INT] = {sizeof(MotAttrType_INT), NULL},
        [MOT_ATTR_FLOAT] = {sizeof(MotAttrType_FLOAT), NULL},
        [MOT_ATTR_FLAG] = {sizeof(MotAttrType_FLAG), NULL},
        [MOT_ATTR_DTYPE] = {sizeof(MotAttrType_DTYPE), NULL},
        [MOT_ATTR_STR] = {0, key_text},
        [MOT_ATTR_INTS] = {0, key_ints},
        [MOT_ATTR_TENSOR] = {0, key_tensor},
    };
    for (const MotAttrField *f = fields; attrs && f->name; f++) {
        const void *field = (const char *)attrs + f->offset;
        if (kinds[f->kind].bytes)
            mot_text_add(key, field, kinds[f->kind].bytes);
        else
            kinds[f->kind].add(field, max_data, key);
    }
}
