/*
 * Open addressing over indices into an insertion-ordered entry array; at most half full; hashed by
 * XXH3.
 */
#include "support/map.h"

#include <string.h>
#include <xxhash.h>

uint64_t mot_hash(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

void mot_map_init(MotMap *map, MotArena *arena)
{
    *map = (MotMap){.arena = arena};
}

/* The slot that holds the key, or the empty one where it belongs. Slots hold entry index + 1. */
static uint32_t find_slot(const MotMap *map, const void *key, size_t key_bytes, uint64_t hash)
{
    uint32_t slot = (uint32_t)hash & (map->n_slots - 1);
    while (map->slots[slot]) {
        const MotMapEntry *e = &map->entries[map->slots[slot] - 1];
        if (e->hash == hash && e->key_bytes == key_bytes && memcmp(e->key, key, key_bytes) == 0)
            break;
        slot = (slot + 1) & (map->n_slots - 1);
    }
    return slot;
}

static void grow(MotMap *map)
{
    uint32_t cap = map->cap ? map->cap * 2 : 16;
    map->entries = mot_arena_grow(map->arena, map->entries, map->cap * sizeof *map->entries,
                                  cap * sizeof *map->entries);
    map->cap = cap;
    map->n_slots = cap * 2;
    map->slots = mot_arena_array(map->arena, uint32_t, map->n_slots);
    for (uint32_t i = 0; i < map->n; i++) {
        const MotMapEntry *e = &map->entries[i];
        map->slots[find_slot(map, e->key, e->key_bytes, e->hash)] = i + 1;
    }
}

static MotMapEntry *enter(MotMap *map, const void *key, size_t key_bytes, bool *out_is_new)
{
    uint64_t hash = mot_hash(key, key_bytes);
    if (map->n == map->cap)
        grow(map);
    uint32_t slot = find_slot(map, key, key_bytes, hash);
    *out_is_new = map->slots[slot] == 0;
    if (*out_is_new) {
        map->entries[map->n++] = (MotMapEntry){.key = mot_arena_strndup(map->arena, key, key_bytes),
                                               .key_bytes = (uint32_t)key_bytes,
                                               .hash = hash};
        map->slots[slot] = map->n;
    }
    return &map->entries[map->slots[slot] - 1];
}

bool mot_map_put(MotMap *map, const void *key, size_t key_bytes, uint64_t value)
{
    bool is_new;
    enter(map, key, key_bytes, &is_new)->value = value;
    return !is_new;
}

bool mot_map_get(const MotMap *map, const void *key, size_t key_bytes, uint64_t *out_value)
{
    if (!map->n)
        return false;
    uint32_t slot = find_slot(map, key, key_bytes, mot_hash(key, key_bytes));
    if (!map->slots[slot])
        return false;
    if (out_value)
        *out_value = map->entries[map->slots[slot] - 1].value;
    return true;
}

bool mot_map_put_str(MotMap *map, const char *key, uint64_t value)
{
    return mot_map_put(map, key, strlen(key), value);
}

bool mot_map_get_str(const MotMap *map, const char *key, uint64_t *out_value)
{
    return mot_map_get(map, key, strlen(key), out_value);
}

const char *mot_map_intern(MotMap *map, const char *key, size_t key_bytes)
{
    bool is_new;
    return enter(map, key, key_bytes, &is_new)->key;
}
