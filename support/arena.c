/* A list of chunks, newest first, each at least twice the size of the one before up to 16 MiB. */
#include "support/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_CHUNK = 64 << 10, LAST_CHUNK = 16 << 20 };

struct MotArenaChunk {
    MotArenaChunk *next;
    size_t size, used;
    _Alignas(ALIGNMENT) char data[];
};

void mot_arena_init(MotArena *arena, void (*on_exhausted)(void *, size_t), void *self)
{
    *arena = (MotArena){.on_exhausted = on_exhausted, .self = self};
}

void mot_arena_deinit(MotArena *arena)
{
    mot_arena_rewind(arena, (MotArenaMark){NULL, 0});
}

static void refuse(MotArena *arena, size_t bytes)
{
    arena->on_exhausted(arena->self, bytes);
    abort(); /* the handler broke its promise not to return */
}

static void add_chunk(MotArena *arena, size_t bytes)
{
    size_t size = arena->head ? arena->head->size * 2 : FIRST_CHUNK;
    if (size > LAST_CHUNK)
        size = LAST_CHUNK;
    if (size < bytes)
        size = bytes;
    size_t room = SIZE_MAX;
    if (arena->limit_bytes)
        room = arena->limit_bytes > arena->used_bytes ? arena->limit_bytes - arena->used_bytes : 0;
    if (size > room)
        size = bytes;
    if (size > room)
        refuse(arena, bytes);
    MotArenaChunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk)
        refuse(arena, bytes);
    *chunk = (MotArenaChunk){.next = arena->head, .size = size};
    arena->head = chunk;
    arena->used_bytes += size;
}

void *mot_arena_alloc(MotArena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 4 || mot_fault(arena->faults, MOT_FAULT_alloc))
        refuse(arena, bytes);
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!arena->head || arena->head->size - arena->head->used < bytes)
        add_chunk(arena, bytes);
    char *p = arena->head->data + arena->head->used;
    arena->head->used += bytes;
    return memset(p, 0, bytes);
}

void *mot_arena_grow(MotArena *arena, void *old, size_t old_bytes, size_t new_bytes)
{
    if (old && new_bytes <= old_bytes)
        return old;
    void *p = mot_arena_alloc(arena, new_bytes);
    if (old)
        memcpy(p, old, old_bytes);
    return p;
}

void *mot_arena_alloc_array(MotArena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        refuse(arena, SIZE_MAX);
    return mot_arena_alloc(arena, bytes);
}

char *mot_arena_strndup(MotArena *arena, const char *text, size_t n)
{
    char *p = mot_arena_alloc(arena, n + 1);
    if (n)
        memcpy(p, text, n);
    return p;
}

char *mot_arena_strdup(MotArena *arena, const char *text)
{
    return mot_arena_strndup(arena, text, strlen(text));
}

void *mot_arena_copy(MotArena *arena, const void *bytes, size_t n)
{
    void *p = mot_arena_alloc(arena, n);
    return n ? memcpy(p, bytes, n) : p;
}

char *mot_arena_vprintf(MotArena *arena, const char *format, va_list args)
{
    va_list again;
    assert(format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *p = mot_arena_alloc(arena, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0)
        vsnprintf(p, (size_t)n + 1, format, args);
    return p;
}

char *mot_arena_printf(MotArena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *p = mot_arena_vprintf(arena, format, args);
    va_end(args);
    return p;
}

MotArenaMark mot_arena_mark(const MotArena *arena)
{
    return (MotArenaMark){arena->head, arena->head ? arena->head->used : 0};
}

void mot_arena_rewind(MotArena *arena, MotArenaMark mark)
{
    while (arena->head != mark.chunk) {
        MotArenaChunk *chunk = arena->head;
        arena->head = chunk->next;
        arena->used_bytes -= chunk->size;
        free(chunk);
    }
    if (arena->head)
        arena->head->used = mark.chunk_used;
}
