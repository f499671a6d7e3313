/* Text building, quoting, UTF-8 and glob matching. */
#include "support/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mot_text_init(MotText *text, MotArena *arena)
{
    *text = (MotText){.arena = arena};
}

static void reserve(MotText *text, size_t more)
{
    size_t want = text->n + more + 1;
    if (text->data && want <= text->cap)
        return;
    size_t cap = text->cap ? text->cap * 2 : 128;
    if (cap < want)
        cap = want;
    text->data = mot_arena_grow(text->arena, text->data, text->cap, cap);
    text->cap = cap;
}

void mot_text_add(MotText *text, const char *bytes, size_t n)
{
    reserve(text, n);
    if (n)
        memcpy(text->data + text->n, bytes, n);
    text->n += n;
    text->data[text->n] = 0;
}

void mot_text_puts(MotText *text, const char *string)
{
    mot_text_add(text, string, strlen(string));
}

void mot_text_printf(MotText *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0) {
        reserve(text, (size_t)n);
        vsnprintf(text->data + text->n, (size_t)n + 1, format, again);
        text->n += (size_t)n;
    }
    va_end(again);
}

/*
 * Length of the UTF-8 sequence at p, or 0 if it is invalid (overlong, surrogate, beyond U+10FFFF,
 * NUL, cut off).
 */
static size_t measure_utf8(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return p[0] != 0;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
        return 0;
    uint32_t code = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return code < least[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : len;
}

/*
 * Adds the character at `bytes`, and returns its length: as it is, unless it is a control
 * character, C0 or C1, or no UTF-8.
 */
static size_t add_visible(MotText *text, const char *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    size_t len = measure_utf8(p, n);
    bool is_control = *p < 0x20 || *p == 0x7f || (len == 2 && p[0] == 0xc2 && p[1] < 0xa0);
    if (len == 0 || is_control) {
        mot_text_printf(text, "\\x%02x", *p);
        return 1;
    }
    mot_text_add(text, bytes, len);
    return len;
}

void mot_text_escape(MotText *text, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (bytes[i] == '"' || bytes[i] == '\\')
            mot_text_puts(text, "\\");
        i += add_visible(text, bytes + i, n - i);
    }
}

void mot_text_add_visible(MotText *text, const char *message)
{
    size_t n = strlen(message);
    for (size_t i = 0; i < n;)
        if (message[i] == '\n')
            mot_text_add(text, &message[i++], 1);
        else
            i += add_visible(text, message + i, n - i);
}

void mot_text_quote(MotText *text, const char *bytes, size_t n)
{
    mot_text_puts(text, "\"");
    mot_text_escape(text, bytes, n);
    mot_text_puts(text, "\"");
}

const char *mot_text_get(const MotText *text)
{
    return text->data ? text->data : "";
}

const char *mot_quote(MotArena *arena, const char *string)
{
    enum { LONGEST = 200 };
    MotText text;
    mot_text_init(&text, arena);
    size_t n = strlen(string);
    mot_text_quote(&text, string, n > LONGEST ? LONGEST : n);
    if (n > LONGEST)
        mot_text_puts(&text, "...");
    return mot_text_get(&text);
}

const char *mot_escape(MotArena *arena, const char *string, size_t most)
{
    MotText text;
    mot_text_init(&text, arena);
    mot_text_escape(&text, string, strlen(string));
    if (text.n <= most)
        return mot_text_get(&text);
    const char *end = text.data + (text.n - most + 3);
    while ((*end & 0xc0) == 0x80) /* not in the middle of a character */
        end++;
    return mot_arena_printf(arena, "...%s", end);
}

const char *mot_shape_text(MotArena *arena, const int64_t *dims, int rank)
{
    if (rank == 0)
        return "scalar";
    MotText text;
    mot_text_init(&text, arena);
    for (int i = 0; i < rank; i++)
        mot_text_printf(&text, "%s%lld", i ? "x" : "", (long long)dims[i]);
    return mot_text_get(&text);
}

const char *mot_bytes_text(MotArena *arena, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    return mot_arena_printf(arena, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

bool mot_utf8_is_valid(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = measure_utf8((const unsigned char *)bytes + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

bool mot_glob_match(const char *glob, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (*glob == '*') {
            star = ++glob;
            retry = name;
        } else if (*glob == '?' || *glob == *name) {
            glob++;
            name++;
        } else if (star) {
            glob = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == 0;
}
