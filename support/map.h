/*
 * The one hash map: byte strings to 64-bit values, in an arena. Iterates in insertion order, so
 * that no result depends on the hash. Keys are copied.
 */
#ifndef MOTLEY_SUPPORT_MAP_H
#define MOTLEY_SUPPORT_MAP_H

#include "support/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct MotMapEntry {
    const char *key; /* NUL-terminated copy; may hold NULs of its own */
    uint32_t key_bytes;
    uint64_t hash, value;
} MotMapEntry;

typedef struct MotMap {
    MotArena *arena;
    MotMapEntry *entries; /* in insertion order */
    uint32_t n, cap, *slots, n_slots;
} MotMap;

/* The 64-bit hash of bytes (XXH3) that names kernels, caches and checkpoint files. */
uint64_t mot_hash(const void *bytes, size_t n);

void mot_map_init(MotMap *map, MotArena *arena);
/* Sets key to value; returns whether the key was there before. */
bool mot_map_put(MotMap *map, const void *key, size_t key_bytes, uint64_t value);
/* Returns whether the key is there; `out_value` may be NULL. */
bool mot_map_get(const MotMap *map, const void *key, size_t key_bytes, uint64_t *out_value);
bool mot_map_put_str(MotMap *map, const char *key, uint64_t value);
bool mot_map_get_str(const MotMap *map, const char *key, uint64_t *out_value);
/*
 * The map's own copy of `key`, entered with value 0 if it was not there: equal strings get equal
 * pointers.
 */
const char *mot_map_intern(MotMap *map, const char *key, size_t key_bytes);

#endif
