/* Reading JSON (jansson behind it), and writing it piece by piece into a text. */
#ifndef MOTLEY_SUPPORT_JSON_H
#define MOTLEY_SUPPORT_JSON_H

#include "support/context.h"

/*
 * A value of a parsed document; freed with the context. NULL stands for "not there" and is accepted
 * everywhere.
 */
typedef struct MotJson MotJson;

/* Fails with `status` (of the caller's choice) naming file, line and column. */
MOT_CHECKED MotStatus mot_json_parse(MotCtx *ctx, MotStatus status, const char *file,
                                     const char *text, size_t n, const MotJson **out_root);
/* Member of an object, or NULL. */
const MotJson *mot_json_get(const MotJson *object, const char *key);
/* Length of an array and its i-th element; 0 and NULL for other values. */
size_t mot_json_length(const MotJson *array);
const MotJson *mot_json_at(const MotJson *array, size_t i);
/* Calls `visit` for each member in the order of the text; stops at the first failure. */
MotStatus mot_json_each(const MotJson *object,
                        MotStatus (*visit)(void *self, const char *key, const MotJson *value),
                        void *self);
/* The value, or `otherwise` if it is none of the kind. */
int64_t mot_json_int(const MotJson *value, int64_t otherwise);
double mot_json_number(const MotJson *value, double otherwise);
const char *mot_json_string(const MotJson *value, const char *otherwise);

/* Adds a JSON string with quotes; invalid UTF-8 becomes U+FFFD. */
void mot_json_quote(MotText *text, const char *string);

/*
 * A document that is being written, on one line. `key` names a member of an object; it is NULL in
 * arrays and at the top.
 */
typedef struct MotJsonWriter {
    MotText text;
    bool needs_comma;
} MotJsonWriter;

void mot_json_begin(MotJsonWriter *w, MotArena *arena);
/* `bracket` is one of {[ and }]. */
void mot_json_open(MotJsonWriter *w, const char *key, char bracket);
void mot_json_close(MotJsonWriter *w, char bracket);
/* NULL becomes null. */
void mot_json_put_string(MotJsonWriter *w, const char *key, const char *value);
void mot_json_put_int(MotJsonWriter *w, const char *key, int64_t value);
/*
 * Integers as such; else 9 digits where the value is a float32, or as many as it takes to read it
 * back; null if it is not finite.
 */
void mot_json_put_number(MotJsonWriter *w, const char *key, double value);
void mot_json_put_bool(MotJsonWriter *w, const char *key, bool value);
/* An array of integers. */
void mot_json_put_ints(MotJsonWriter *w, const char *key, const int64_t *values, size_t n);

#endif
