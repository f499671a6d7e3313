/*
 * The one growable array. Lives in an arena; elements may move when it grows, so others name them
 * by index.
 *
 *     MotVec(int) v = {0};
 *     mot_vec_push(arena, &v, 42);
 *     for (uint32_t i = 0; i < v.n; i++) use(v.data[i]);
 */
#ifndef MOTLEY_SUPPORT_VECTOR_H
#define MOTLEY_SUPPORT_VECTOR_H

#include "support/arena.h"

#include <stdint.h>

#define MotVec(T)                                                                                  \
    struct {                                                                                       \
        T *data;                                                                                   \
        uint32_t n, cap;                                                                           \
    }

/* Makes room for at least `want` elements. */
#define mot_vec_reserve(arena, v, want)                                                            \
    do {                                                                                           \
        if ((v)->cap < (want)) {                                                                   \
            uint32_t cap_ = (v)->cap ? (v)->cap * 2 : 8;                                           \
            while (cap_ < (want))                                                                  \
                cap_ = cap_ > UINT32_MAX / 2 ? UINT32_MAX : cap_ * 2;                              \
            (v)->data = mot_arena_grow((arena), (v)->data, (v)->cap * sizeof *(v)->data,           \
                                       cap_ * sizeof *(v)->data);                                  \
            (v)->cap = cap_;                                                                       \
        }                                                                                          \
    } while (0)

#define mot_vec_push(arena, v, ...)                                                                \
    do {                                                                                           \
        mot_vec_reserve(arena, v, (v)->n + 1);                                                     \
        (v)->data[(v)->n++] = (__VA_ARGS__);                                                       \
    } while (0)

#endif
