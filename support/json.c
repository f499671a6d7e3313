/* JSON by jansson. */
#include "support/json.h"

#include <jansson.h>
#include <string.h>

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
