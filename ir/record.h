/*
 * Records: the one syntax of Graph, Plan and Program texts (docs/ir.md has the grammar).
 *
 *     %q, %k = op word %a @sym 3 {key=value, flag} : f32[8x256x@h], i64 {
 *         ...records...
 *     }
 *
 * A record knows no ops: what names, operands and attributes mean is for the schema of its
 * structure. What is printed parses back to the same records. Both printers and the parser are
 * linear in the text; nesting is limited to MOT_RECORD_MAX_DEPTH. Everything lives in the context's
 * arena.
 */
#ifndef MOTLEY_IR_RECORD_H
#define MOTLEY_IR_RECORD_H

#include "ir/dtype.h"
#include "support/context.h"

enum {
    MOT_RECORD_MAX_DEPTH = 64,    /* blocks and lists in one another */
    MOT_RECORD_MAX_ATTRS = 64,    /* of one record */
    MOT_RECORD_MAX_TEXT = 1 << 28 /* bytes */
};

/* X(id, member of the union, what it is called in messages) */
#define MOT_TERM_LIST(X)                                                                           \
    X(NONE, none, "nothing") /* `_`, an absent operand; as an attribute, a flag */                 \
    X(VALUE, text, "a value %name")                                                                \
    X(SYMBOL, text, "a symbol @name")                                                              \
    X(WORD, text, "a word")                                                                        \
    X(STRING, text, "a string") /* without NUL */                                                  \
    X(INT, integer, "an integer")                                                                  \
    X(FLOAT, number, "a float")                                                                    \
    X(LIST, items, "a list")

typedef enum MotTermKind {
#define X(id, member, text) MOT_TERM_##id,
    MOT_TERM_LIST(X)
#undef X
        MOT_N_TERMS
} MotTermKind;

/* A place in a text, from 1; 0 for what was not parsed. Columns are bytes. */
typedef struct MotTextPos {
    uint32_t line, column;
} MotTextPos;

typedef struct MotTerm MotTerm;
struct MotTerm {
    MotTermKind kind;
    MotTextPos pos;
    union {
        const char *text;
        int64_t integer;
        double number;
        struct {
            MotTerm *data;
            uint32_t n;
        } items;
    };
};

typedef struct MotRecordAttr {
    const char *name;
    MotTextPos pos; /* of the name */
    MotTerm value;  /* MOT_TERM_NONE: a flag */
} MotRecordAttr;

/*
 * A size, or the name of a symbolic dim: letters but `x`, which separates dims, digits, `_` and
 * `.`.
 */
typedef struct MotRecordDim {
    const char *symbol; /* NULL: a size */
    int64_t size;
} MotRecordDim;

typedef struct MotRecordType {
    MotDtype dtype;
    int rank;
    MotRecordDim dims[MOT_MAX_RANK];
    MotTextPos pos;
} MotRecordType;

typedef struct MotRecord MotRecord;
typedef MotVec(MotRecord) MotRecords;

struct MotRecord {
    const char *op;
    MotTextPos pos;
    MotVec(MotTerm) out; /* MOT_TERM_VALUE each */
    MotVec(MotTerm) in;  /* anything but strings, floats and lists; words stand first */
    MotVec(MotRecordAttr) attrs;
    MotVec(MotRecordType) types;
    bool has_body;
    MotRecords body;
};

/*
 * Fails with MOT_ERR_MODEL (the message has file, line, column and what was expected) or
 * MOT_ERR_LIMIT.
 */
MOT_CHECKED MotStatus mot_records_parse(MotCtx *ctx, const char *file, const char *text,
                                        MotRecords *out_records);
/* One record a line, bodies indented by two. */
void mot_records_print(const MotRecords *records, MotText *text);
/*
 * A JSON list of objects with the members op, results, operands, attributes, types and body (those
 * that are not empty). Values and symbols keep their sigil ("%x", "@h"), words and strings are
 * strings, flags are true, `_` is null, inf and nan are strings.
 */
void mot_records_print_json(const MotRecords *records, MotText *text);

/* The attribute of that name, or NULL. */
const MotTerm *mot_record_attr(const MotRecord *record, const char *name);
/* `line 3, column 14` of `file`, for messages. */
MotLoc mot_record_loc(MotCtx *ctx, const char *file, MotTextPos pos);
const char *mot_term_kind_text(MotTermKind kind);

/* The first record of a file: `motley graph 1`. */
MotRecord mot_record_header(MotCtx *ctx, const char *what, int version);
/* Fails with MOT_ERR_MISMATCH unless the first record is that header. */
MOT_CHECKED MotStatus mot_records_check_header(MotCtx *ctx, const char *file,
                                               const MotRecords *records, const char *what,
                                               int version);

static inline MotTerm mot_term_text(MotTermKind kind, const char *text)
{
    return (MotTerm){.kind = kind, .text = text};
}
static inline MotTerm mot_term_int(int64_t integer)
{
    return (MotTerm){.kind = MOT_TERM_INT, .integer = integer};
}
static inline MotTerm mot_term_float(double number)
{
    return (MotTerm){.kind = MOT_TERM_FLOAT, .number = number};
}
static inline MotTerm mot_term_list(MotTerm *items, uint32_t n)
{
    return (MotTerm){.kind = MOT_TERM_LIST, .items = {items, n}};
}
/* Appends `name=value`; the name is a word and is not copied. */
void mot_record_add_attr(MotArena *arena, MotRecord *record, const char *name, MotTerm value);

/*
 * Whether `name` may stand after `%` or `@` without quotes: letters, digits, `_` and `.`, at least
 * one.
 */
bool mot_name_is_plain(const char *name);
bool mot_dim_name_is_plain(const char *name);
/*
 * The shortest decimal that reads back as `number`, always with a point, an exponent, or as inf,
 * -inf, nan.
 */
void mot_text_add_float(MotText *text, double number);
/* `f32[8x256x@h]`, `f32` for a scalar. */
void mot_text_add_type(MotText *text, const MotRecordType *type);

#endif
