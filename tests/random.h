/*
 * Random numbers that are the same in every run: a linear congruential generator with Knuth's
 * constants, of which the high bits are used.
 */
#ifndef MOTLEY_TESTS_RANDOM_H
#define MOTLEY_TESTS_RANDOM_H

#include <math.h>
#include <stdint.h>

static inline uint64_t random_bits(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

/* One of 0, .. n - 1. */
static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(random_bits(state) >> 33) % n;
}

/* Between 0 and 1, never one of them. */
static inline double random_unit(uint64_t *state)
{
    return ((double)(random_bits(state) >> 11) + 0.5) * 0x1p-53;
}

static inline double random_normal(uint64_t *state)
{
    return sqrt(-2 * log(random_unit(state))) * cos(6.283185307179586 * random_unit(state));
}

#endif
