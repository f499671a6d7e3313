/*
 * Arena: the memory of one compilation. Nothing in ir, passes or codegen calls malloc.
 *
 * An allocation never returns NULL: when the system or the limit refuses, `on_exhausted` is called,
 * which must not return (context.h unwinds to the public entry). Memory is zeroed and 16-byte
 * aligned. Freed all at once, or down to a mark.
 */
#ifndef MOTLEY_SUPPORT_ARENA_H
#define MOTLEY_SUPPORT_ARENA_H

#include "support/fault.h"

#include <stdarg.h>
#include <stddef.h>

typedef struct MotArenaChunk MotArenaChunk;

#define MOT_NEVER_NULL __attribute__((returns_nonnull))

typedef struct MotArena {
    MotArenaChunk *head;
    size_t used_bytes;  /* over all chunks, slack included */
    size_t limit_bytes; /* 0: none */
    MotFaults *faults;  /* NULL: the system alone refuses */
    void (*on_exhausted)(void *self, size_t wanted_bytes);
    void *self;
} MotArena;

/* A place to rewind to. Whatever was allocated after it is gone then. */
typedef struct MotArenaMark {
    MotArenaChunk *chunk;
    size_t chunk_used;
} MotArenaMark;

void mot_arena_init(MotArena *arena, void (*on_exhausted)(void *, size_t), void *self);
void mot_arena_deinit(MotArena *arena);

void *mot_arena_alloc(MotArena *arena, size_t bytes) MOT_NEVER_NULL;
/* Grows or moves the newest or any other allocation; `old_bytes` is its present size. */
void *mot_arena_grow(MotArena *arena, void *old, size_t old_bytes, size_t new_bytes) MOT_NEVER_NULL;
/* n * size bytes, with the product checked: an overflow counts as exhaustion. */
void *mot_arena_alloc_array(MotArena *arena, size_t n, size_t size) MOT_NEVER_NULL;
#define mot_arena_array(arena, T, n) ((T *)mot_arena_alloc_array((arena), (size_t)(n), sizeof(T)))
#define mot_arena_new(arena, T) ((T *)mot_arena_alloc((arena), sizeof(T)))

char *mot_arena_strndup(MotArena *arena, const char *text, size_t n);
char *mot_arena_strdup(MotArena *arena, const char *text);
char *mot_arena_printf(MotArena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *mot_arena_vprintf(MotArena *arena, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
void *mot_arena_copy(MotArena *arena, const void *bytes, size_t n);

MotArenaMark mot_arena_mark(const MotArena *arena);
void mot_arena_rewind(MotArena *arena, MotArenaMark mark);

#endif
