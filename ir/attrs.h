/*
 * Attributes between a record and the struct of an op's row, by the row's field table: one function
 * a kind of field in each direction, none an op. Zero fields are absent from the text.
 */
#ifndef MOTLEY_IR_ATTRS_H
#define MOTLEY_IR_ATTRS_H

#include "ir/graph.h"
#include "ir/record.h"

enum { MOT_ATTRS_MAX_SPLAT_BYTES = 256 << 20 };

/*
 * Adds bytes that are equal for equal attributes only, but that tensors of more than `max_data`
 * bytes are in them as a hash. `attrs` may be NULL.
 */
void mot_attrs_key(const MotAttrField *fields, const void *attrs, size_t max_data, MotText *key);

/*
 * Appends the fields of `attrs` that are not zero to the record. Strings and lists are not copied.
 */
void mot_attrs_print(MotArena *arena, const MotAttrField *fields, const void *attrs,
                     MotRecord *record);

typedef struct MotAttrsReader {
    MotCtx *ctx;
    const char *file;
    const MotRecord *record;
    const MotAttrField *fields;
    const char *const *others; /* names that the caller reads itself; ends with NULL */
    const MotType *type;       /* of a tensor field; NULL: the record gives none */
    size_t *splat_bytes;       /* made so far from `data=1.0`, at most MOT_ATTRS_MAX_SPLAT_BYTES */
} MotAttrsReader;

/*
 * Fills the zeroed struct `attrs`. An attribute of the wrong kind or of a name that is neither a
 * field nor one of `others` fails with MOT_ERR_MODEL; the message names place, kind or the names
 * there are.
 */
MOT_CHECKED MotStatus mot_attrs_parse(const MotAttrsReader *reader, void *attrs);

#endif
