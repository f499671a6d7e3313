/* Growing text in an arena, and the escapes under which bytes from files may be printed. */
#ifndef MOTLEY_SUPPORT_TEXT_H
#define MOTLEY_SUPPORT_TEXT_H

#include "support/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct MotText {
    MotArena *arena;
    char *data; /* NUL-terminated once anything was added; NULL before */
    size_t n, cap;
} MotText;

void mot_text_init(MotText *text, MotArena *arena);
void mot_text_add(MotText *text, const char *bytes, size_t n);
void mot_text_puts(MotText *text, const char *string);
void mot_text_printf(MotText *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Adds "bytes" in double quotes: valid UTF-8 but control characters as it is, `"` and `\` with a
 * backslash, the rest as \xNN.
 */
void mot_text_quote(MotText *text, const char *bytes, size_t n);
/* The same without the quotes around it. */
void mot_text_escape(MotText *text, const char *bytes, size_t n);
/*
 * A message for a terminal: control characters but line feeds, and what is no UTF-8, as \xNN; the
 * rest as it is.
 */
void mot_text_add_visible(MotText *text, const char *message);
/* The text so far, never NULL. */
const char *mot_text_get(const MotText *text);

/* `string` quoted as above and cut after 200 bytes, for messages. */
const char *mot_quote(MotArena *arena, const char *string);
/*
 * `string` escaped, for columns of a table: the end of it, behind "...", if it takes more than
 * `most` bytes.
 */
const char *mot_escape(MotArena *arena, const char *string, size_t most);
/* "8x256x384", or "scalar" for rank 0. */
const char *mot_shape_text(MotArena *arena, const int64_t *dims, int rank);
/* "1.5 GiB", "12 KiB", "7 B". */
const char *mot_bytes_text(MotArena *arena, double bytes);

/* Whether n bytes are valid UTF-8 without NUL. */
bool mot_utf8_is_valid(const char *bytes, size_t n);
/*
 * Whether `name` matches `glob` (`*` any run, `?` any one byte). Linear in the product of the
 * lengths.
 */
bool mot_glob_match(const char *glob, const char *name);

#endif
