/* JSON by jansson. */
#include "support/json.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const json_t *as_jansson(const MotJson *value)
{
    return (const json_t *)(const void *)value;
}

static const MotJson *as_ours(const json_t *value)
{
    return (const MotJson *)(const void *)value;
}

static void release(void *root)
{
    json_decref(root);
}

MotStatus mot_json_parse(MotCtx *ctx, MotStatus status, const char *file, const char *text,
                         size_t n, const MotJson **out_root)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!n)
        return mot_fail(ctx, status, (MotLoc){file, NULL}, "is empty");
    if (!root)
        return mot_fail(ctx, status, (MotLoc){file, NULL}, "line %d, column %d: %s", error.line,
                        error.column, error.text);
    mot_ctx_defer(ctx, release, root);
    *out_root = as_ours(root);
    return MOT_OK;
}

const MotJson *mot_json_get(const MotJson *object, const char *key)
{
    return as_ours(json_object_get(as_jansson(object), key));
}

size_t mot_json_length(const MotJson *array)
{
    return json_array_size(as_jansson(array));
}

const MotJson *mot_json_at(const MotJson *array, size_t i)
{
    return as_ours(json_array_get(as_jansson(array), i));
}

MotStatus mot_json_each(const MotJson *object,
                        MotStatus (*visit)(void *self, const char *key, const MotJson *value),
                        void *self)
{
    json_t *o = (json_t *)(uintptr_t)object;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        MOT_TRY(visit(self, json_object_iter_key(it), as_ours(json_object_iter_value(it))));
    return MOT_OK;
}

int64_t mot_json_int(const MotJson *value, int64_t otherwise)
{
    return json_is_integer(as_jansson(value)) ? json_integer_value(as_jansson(value)) : otherwise;
}

double mot_json_number(const MotJson *value, double otherwise)
{
    return json_is_number(as_jansson(value)) ? json_number_value(as_jansson(value)) : otherwise;
}

const char *mot_json_string(const MotJson *value, const char *otherwise)
{
    return json_is_string(as_jansson(value)) ? json_string_value(as_jansson(value)) : otherwise;
}

void mot_json_quote(MotText *text, const char *string)
{
    mot_text_puts(text, "\"");
    for (const char *p = string; *p;) {
        unsigned char byte = (unsigned char)*p;
        size_t n = 1;
        while (n < 4 && !mot_utf8_is_valid(p, n) && p[n])
            n++;
        if (!mot_utf8_is_valid(p, n)) {
            mot_text_puts(text, "\\ufffd");
            n = 1;
        } else if (byte < 0x20 || byte == '"' || byte == '\\') {
            mot_text_printf(text, "\\u%04x", byte);
        } else {
            mot_text_add(text, p, n);
        }
        p += n;
    }
    mot_text_puts(text, "\"");
}

void mot_json_begin(MotJsonWriter *w, MotArena *arena)
{
    *w = (MotJsonWriter){0};
    mot_text_init(&w->text, arena);
}

/* The comma after the value before this one, and the key. */
static void begin_value(MotJsonWriter *w, const char *key)
{
    if (w->needs_comma)
        mot_text_puts(&w->text, ", ");
    w->needs_comma = true;
    if (!key)
        return;
    mot_json_quote(&w->text, key);
    mot_text_puts(&w->text, ": ");
}

void mot_json_open(MotJsonWriter *w, const char *key, char bracket)
{
    begin_value(w, key);
    mot_text_add(&w->text, &bracket, 1);
    w->needs_comma = false;
}

void mot_json_close(MotJsonWriter *w, char bracket)
{
    mot_text_add(&w->text, &bracket, 1);
    w->needs_comma = true;
}

void mot_json_put_string(MotJsonWriter *w, const char *key, const char *value)
{
    begin_value(w, key);
    if (value)
        mot_json_quote(&w->text, value);
    else
        mot_text_puts(&w->text, "null");
}

void mot_json_put_int(MotJsonWriter *w, const char *key, int64_t value)
{
    begin_value(w, key);
    mot_text_printf(&w->text, "%lld", (long long)value);
}

void mot_json_put_number(MotJsonWriter *w, const char *key, double value)
{
    begin_value(w, key);
    char digits[32];
    bool is_integer = fabs(value) < 0x1p53 && trunc(value) == value;
    snprintf(digits, sizeof digits, is_integer ? "%.0f" : "%.9g", value);
    bool is_float = fabs(value) <= (double)FLT_MAX && (double)(float)value == value;
    if (!is_float && strtod(digits, NULL) != value)
        snprintf(digits, sizeof digits, "%.15g", value);
    if (!is_float && strtod(digits, NULL) != value)
        snprintf(digits, sizeof digits, "%.17g", value);
    mot_text_puts(&w->text, isfinite(value) ? digits : "null");
}

void mot_json_put_bool(MotJsonWriter *w, const char *key, bool value)
{
    begin_value(w, key);
    mot_text_puts(&w->text, value ? "true" : "false");
}

void mot_json_put_ints(MotJsonWriter *w, const char *key, const int64_t *values, size_t n)
{
    mot_json_open(w, key, '[');
    for (size_t i = 0; i < n; i++)
        mot_json_put_int(w, NULL, values[i]);
    mot_json_close(w, ']');
}
