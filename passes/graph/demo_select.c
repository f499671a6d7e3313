/*
 * Positions by the number of the round, in ordinary integer ops: every replica computes the same,
 * so no index travels and no generator has state. Random numbers are a keyed permutation of the
 * integers below the prime P, two rounds of x -> x^5 (5 has no factor in common with P - 1): as
 * many different ones as there are positions, exact in f32, no product above 2^48. Cost: O(n) a
 * parameter and step.
 */
#include "passes/graph/demo_select.h"

#include <stddef.h>

enum { P = 16777213, SHIFT = 9999991 };

static MotValue number_of(MotBuilder *b, int64_t x)
{
    return mot_scalar(b, MOT_I64, (double)x);
}

/* (x + y) mod P, x and y below 2^62. */
static MotValue add_mod(MotBuilder *b, MotValue x, MotValue y)
{
    return mot_mod(b, mot_add(b, x, y), number_of(b, P));
}

static MotValue multiply_mod(MotBuilder *b, MotValue x, MotValue y)
{
    return mot_mod(b, mot_mul(b, x, y), number_of(b, P));
}

static MotValue fifth_power(MotBuilder *b, MotValue x)
{
    MotValue square = multiply_mod(b, x, x);
    return multiply_mod(b, multiply_mod(b, square, square), x);
}

static MotValue scramble(MotBuilder *b, MotValue x, MotValue key)
{
    MotValue once = fifth_power(b, add_mod(b, x, key));
    return fifth_power(b, add_mod(b, once, mot_add(b, key, number_of(b, SHIFT))));
}

/* The bytes as digits, the first the highest, mod P. */
static int64_t name_as_number(const char *name)
{
    int64_t x = 0;
    for (; *name; name++)
        x = (x * 256 + (unsigned char)*name) % P;
    return x;
}

static MotValue draw(MotBuilder *b, MotValue round, const char *name, int64_t n, int64_t k)
{
    MotValue position = mot_iota(b, MOT_I64, 1, &n, 0), value;
    MotValue key = scramble(b, round, number_of(b, name_as_number(name)));
    return mot_top_k(b, mot_cast(b, scramble(b, position, key), MOT_F32), k, &value);
}

/* Cell i begins at i n / k. */
static MotValue stride(MotBuilder *b, MotValue round, const char *name, int64_t n, int64_t k)
{
    (void)name;
    int64_t *begin = mot_arena_array(&b->graph->ctx->arena, int64_t, k),
            *size = mot_arena_array(&b->graph->ctx->arena, int64_t, k);
    for (int64_t i = 0; i < k; i++) {
        begin[i] = i * n / k;
        size[i] = (i + 1) * n / k - begin[i];
    }
    const MotType type = mot_type_make(MOT_I64, 1, &k);
    MotValue within = mot_mod(b, round, mot_constant(b, (MotTensor){type, size}));
    return mot_cast(b, mot_add(b, mot_constant(b, (MotTensor){type, begin}), within), MOT_I32);
}

static MotValue (*const rules[])(MotBuilder *, MotValue, const char *, int64_t, int64_t) = {
    [MOT_SELECT_DCT] = NULL,
    [MOT_SELECT_TOP_K] = NULL,
    [MOT_SELECT_RANDOM] = draw,
    [MOT_SELECT_STRIDING] = stride,
};

MotValue mot_demo_positions(MotBuilder *b, MotDemoSelect select, MotValue round, const char *name,
                            int64_t n, int64_t k)
{
    return rules[select] ? rules[select](b, round, name, n, k) : 0;
}
