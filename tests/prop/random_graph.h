/*
 * Seeded random graphs for property tests: a few inputs and parameters, then ops over what is
 * there, with the forms that the rewrite rules look for more often than chance would have them.
 * Values stay finite: whatever grows is squashed by tanh.
 */
#ifndef MOTLEY_TESTS_PROP_RANDOM_GRAPH_H
#define MOTLEY_TESTS_PROP_RANDOM_GRAPH_H

#include "ir/builder.h"
#include "tests/random.h"

#include <float.h>
#include <string.h>

enum {
    RANDOM_MAX_ELEMENTS = 2048,
    RANDOM_MAX_RANK = 5,
    RANDOM_MAX_OUTPUTS = 8,
    RANDOM_MAX_DEPTH = 2 /* of regions */
};

typedef struct {
    MotBuilder b;
    MotGraph *g;
    uint64_t state;
    MotVec(MotValue) pool; /* floats to build from */
    int n_sources;
    int depth; /* of regions around g */
} Random;

static inline uint32_t pick(Random *r, uint32_t n)
{
    return random_below(&r->state, n);
}

static inline MotValue any_value(Random *r)
{
    /* Mostly one of the newest: chains are what rules work on. */
    uint32_t n = r->pool.n, newest = n < 3 ? n : 3;
    return r->pool.data[pick(r, 3) ? n - 1 - pick(r, newest) : pick(r, n)];
}

static inline MotType type_of(const Random *r, MotValue v)
{
    return *mot_graph_type(r->g, v);
}

static inline void keep(Random *r, MotValue v)
{
    if (v && mot_type_elements(mot_graph_type(r->g, v)) <= RANDOM_MAX_ELEMENTS)
        mot_vec_push(&r->g->ctx->arena, &r->pool, v);
}

static inline MotValue new_constant(Random *r, MotType type)
{
    MotTensor t = {type, mot_arena_alloc(&r->g->ctx->arena, (size_t)mot_type_bytes(&type))};
    for (int64_t i = 0; i < mot_type_elements(&type); i++)
        mot_tensor_set(&t, i, (int)pick(r, 65) / 32.0 - 1);
    return mot_constant(&r->b, t);
}

/* In a region, whose inputs are its op's operands, a constant. */
static inline MotValue new_source(Random *r, int rank, const int64_t *dims)
{
    const char *name = mot_arena_printf(&r->g->ctx->arena, "s%d", r->n_sources++);
    MotType type = mot_type_make(MOT_F32, rank, dims);
    if (r->depth)
        return new_constant(r, type);
    if (pick(r, 2))
        return mot_input(&r->b, name, type);
    return mot_param(&r->b, &(MotAttr_param){.name = name}, type);
}

static inline void add_source(Random *r)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12};
    int64_t dims[4];
    int rank = 1 + (int)pick(r, 4);
    for (int d = 0; d < rank; d++)
        dims[d] = sizes[pick(r, rank > 2 ? 5 : 7)];
    keep(r, new_source(r, rank, dims));
}

/* ---- Pointwise ---- */

static inline void add_unary(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r), y = 0;
    static const double exponents[] = {2, 3, 0.5, -0.5, -1, 1};
    switch (pick(r, 7)) {
    case 0:
        y = mot_neg(b, x);
        break;
    case 1:
        y = mot_exp(b, mot_tanh(b, x));
        break;
    case 2:
        y = mot_relu(b, x);
        break;
    case 3:
        y = mot_sigmoid(b, x);
        break;
    case 4:
        y = mot_neg(b, mot_neg(b, x));
        break;
    case 5:
        y = mot_div(b, mot_tanh(b, x), mot_sqrt(b, mot_add_scalar(b, mot_mul(b, x, x), 1)));
        break;
    default: {
        MotValue base = mot_add_scalar(b, mot_sigmoid(b, x), 0.5);
        y = mot_pow(b, base, mot_scalar(b, MOT_F32, exponents[pick(r, 6)]));
    }
    }
    keep(r, y);
}

static inline void add_scalar_op(Random *r)
{
    static const double numbers[] = {0, 1, -1, 0.5, 2};
    MotBuilder *b = &r->b;
    MotValue x = any_value(r), c = mot_scalar(b, MOT_F32, numbers[pick(r, 5)]), y = 0;
    MotType type = type_of(r, x);
    if (pick(r, 3) == 0)
        c = mot_broadcast(b, c, type.rank, type.dims);
    switch (pick(r, 5)) {
    case 0:
        y = mot_add(b, c, x);
        break;
    case 1:
        y = mot_mul(b, x, c);
        break;
    case 2:
        y = mot_sub(b, x, c);
        break;
    case 3:
        y = mot_sub(b, c, x);
        break;
    default:
        y = mot_div(b, x, mot_scalar(b, MOT_F32, 1 + pick(r, 2)));
    }
    keep(r, y);
}

/*
 * With a value of the same shape, one that is broadcast, or one made by a transpose back and forth.
 */
static inline void add_binary(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r), other = any_value(r), y = 0;
    MotType type = type_of(r, x), of_other = type_of(r, other);
    if (!mot_dims_equal(&type, &of_other)) {
        for (int d = 0; d < type.rank; d++)
            type.dims[d] = pick(r, 2) ? 1 : type.dims[d];
        int drop = (int)pick(r, (uint32_t)type.rank + 1);
        other = new_source(r, type.rank - drop, type.dims + drop);
    }
    switch (pick(r, 5)) {
    case 0:
        y = mot_add(b, x, other);
        break;
    case 1:
        y = mot_mul(b, mot_tanh(b, x), other);
        break;
    case 2:
        y = mot_sub(b, other, x);
        break;
    case 3:
        y = mot_max(b, x, other);
        break;
    default:
        y = mot_select(b, mot_lt(b, x, other), x, other);
    }
    keep(r, y);
}

/* Conditions with parts that say nothing. */
static inline void add_condition(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r), c = mot_lt(b, x, mot_scalar(b, MOT_F32, 0.25));
    switch (pick(r, 6)) {
    case 0:
        c = mot_not(b, mot_not(b, c));
        break;
    case 1:
        c = mot_and(b, mot_scalar(b, MOT_BOOL, 1), c);
        break;
    case 2:
        c = mot_or(b, c, mot_scalar(b, MOT_BOOL, 0));
        break;
    case 3:
        c = mot_scalar(b, MOT_BOOL, 0);
        break;
    case 4:
        c = mot_scalar(b, MOT_BOOL, 1);
        break;
    default:
        c = mot_not(b, c);
    }
    keep(r, mot_select(b, c, mot_tanh(b, x), pick(r, 4) ? x : mot_tanh(b, x)));
}

/* Quotients and roots of what is at least 1. */
static inline void add_quotient(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r), one = mot_scalar(b, MOT_F32, 1), y = 0;
    MotValue w = mot_add_scalar(b, mot_mul(b, x, x), 1);
    switch (pick(r, 4)) {
    case 0:
        y = mot_mul(b, x, mot_div(b, one, w));
        break;
    case 1:
        y = mot_div(b, one, mot_sqrt(b, w));
        break;
    case 2:
        y = mot_sqrt(b, mot_div(b, one, w));
        break;
    default:
        y = mot_div(b, x, mot_sqrt(b, w));
    }
    keep(r, y);
}

/* To f64, where something happens, and back. */
static inline void add_cast(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = mot_cast(b, any_value(r), MOT_F64);
    keep(r, mot_cast(b, pick(r, 2) ? x : mot_neg(b, x), MOT_F32));
}

/* ---- Moves ---- */

/* Another factorisation of the same elements. */
static inline void add_reshape(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    int64_t dims[RANDOM_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < type.rank && rank < RANDOM_MAX_RANK; d++) {
        int64_t size = type.dims[d];
        if (pick(r, 3) == 0 && rank > 0) {
            dims[rank - 1] *= size; /* merge */
        } else if (pick(r, 3) == 0 && size % 2 == 0 && rank + 2 <= RANDOM_MAX_RANK &&
                   type.rank - d + rank < RANDOM_MAX_RANK) {
            dims[rank++] = pick(r, 2) ? size / 2 : 2;
            dims[rank] = size / dims[rank - 1];
            rank++;
        } else {
            dims[rank++] = size;
        }
    }
    if (mot_type_elements(&type) ==
        mot_type_elements(
            &(MotType){.rank = rank, .dims = {dims[0], dims[1], dims[2], dims[3], dims[4]}}))
        keep(r, mot_reshape(&r->b, x, rank, dims));
}

static inline void make_perm(Random *r, int rank, int64_t *perm)
{
    for (int d = 0; d < rank; d++)
        perm[d] = d;
    for (int d = rank - 1; d > 0; d--) {
        uint32_t k = pick(r, (uint32_t)d + 1);
        int64_t swapped = perm[d];
        perm[d] = perm[k];
        perm[k] = swapped;
    }
}

static inline void add_transpose(Random *r)
{
    MotValue x = any_value(r);
    int64_t perm[MOT_MAX_RANK];
    make_perm(r, type_of(r, x).rank, perm);
    keep(r, mot_transpose(&r->b, x, perm));
}

static inline void add_broadcast(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    for (int d = 0; d < type.rank; d++)
        type.dims[d] = type.dims[d] == 1 ? 1 + pick(r, 3) : type.dims[d];
    if (type.rank < RANDOM_MAX_RANK && pick(r, 2)) {
        for (int d = type.rank++; d > 0; d--)
            type.dims[d] = type.dims[d - 1];
        type.dims[0] = 2;
    }
    if (mot_type_elements(&type) <= RANDOM_MAX_ELEMENTS)
        keep(r, mot_broadcast(&r->b, x, type.rank, type.dims));
}

/* Equal or unequal parts of one dim, each kept; sometimes put together again. */
static inline void add_parts(Random *r)
{
    MotValue x = any_value(r), part[4];
    MotType type = type_of(r, x);
    if (type.rank == 0)
        return;
    int axis = (int)pick(r, (uint32_t)type.rank);
    int64_t size = type.dims[axis], n = 2 + pick(r, 2);
    if (size < n)
        return;
    for (int64_t i = 0, start = 0; i < n; i++) {
        int64_t length = i + 1 < n ? (pick(r, 4) ? size / n : 1) : size - start;
        part[i] = mot_slice_axis(&r->b, x, axis, start, length);
        start += length;
        keep(r, part[i]);
    }
    MotValue whole = mot_concat(&r->b, part, (uint32_t)n, axis);
    if (pick(r, 2))
        keep(r, whole);
    if (pick(r, 2)) {
        part[0] = mot_neg(&r->b, part[0]);
        whole = mot_concat(&r->b, part, (uint32_t)n, axis);
        keep(r, mot_slice_axis(&r->b, whole, axis, 0, 1));
        keep(r, whole);
    }
}

static inline void add_strided_slice(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    int64_t start[MOT_MAX_RANK], size[MOT_MAX_RANK], step[MOT_MAX_RANK];
    for (int d = 0; d < type.rank; d++) {
        bool is_reversed = pick(r, 4) == 0;
        step[d] = is_reversed ? -1 : 1 + (int64_t)pick(r, 2);
        start[d] = is_reversed ? type.dims[d] - 1 : 0;
        size[d] = step[d] == 2 ? (type.dims[d] + 1) / 2 : type.dims[d];
    }
    keep(r, mot_slice(&r->b, x, start, size, step));
}

static inline void add_gather(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    if (type.rank == 0)
        return;
    int axis = (int)pick(r, (uint32_t)type.rank);
    int64_t n = 1 + pick(r, (uint32_t)type.dims[axis]);
    MotValue index = mot_iota(&r->b, MOT_I64, 1, &n, 0);
    if (pick(r, 2))
        index = mot_rsub(&r->b, (double)(n - 1), index);
    keep(r, mot_gather(&r->b, x, index, axis));
}

static inline void add_pad(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    int64_t lo[MOT_MAX_RANK], hi[MOT_MAX_RANK];
    for (int d = 0; d < type.rank; d++) {
        lo[d] = pick(r, 4) == 0;
        hi[d] = pick(r, 4) == 0;
    }
    keep(r, mot_pad(&r->b, x, lo, hi, 0.5));
}

/* ---- Sums ---- */

static inline void add_reduction(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    int64_t axes[MOT_MAX_RANK];
    uint32_t n = 0;
    for (int d = 0; d < type.rank; d++)
        if (pick(r, 2))
            axes[n++] = d;
    bool is_sum = pick(r, 2), keeps = pick(r, 2);
    MotValue y = is_sum ? mot_reduce_sum(&r->b, x, axes, n, keeps)
                        : mot_reduce_max(&r->b, x, axes, n, keeps);
    MotType with = {.dtype = type.dtype};
    for (int d = 0; d < type.rank; d++) {
        bool is_reduced = false;
        for (uint32_t i = 0; i < n; i++)
            is_reduced |= axes[i] == d;
        if (!is_reduced || !keeps)
            with.dims[with.rank++] = is_reduced ? 1 : type.dims[d];
    }
    if (n && pick(r, 2)) /* the reduced dims put back, or dropped */
        y = mot_reshape(&r->b, y, with.rank, with.dims);
    keep(r, mot_tanh(&r->b, y));
}

/* Some positions of a dim in any order. */
static inline MotValue random_list(Random *r, int64_t size)
{
    int64_t n = pick(r, (uint32_t)size + 1);
    MotType type = mot_type_make(MOT_I64, 1, &n);
    MotTensor list = {type, mot_arena_alloc(&r->g->ctx->arena, (size_t)mot_type_bytes(&type))};
    for (int64_t i = 0; i < n; i++)
        mot_tensor_set_int(&list, i, pick(r, (uint32_t)size));
    return mot_constant(&r->b, list);
}

/* A product with a new parameter over some of the dims; the result's dims in any order. */
static inline void add_contract(Random *r)
{
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    char left[MOT_MAX_RANK + 1] = "", right[MOT_MAX_RANK + 1] = "", out[MOT_MAX_RANK + 1] = "";
    int64_t dims[MOT_MAX_RANK], perm[MOT_MAX_RANK];
    int n_left = 0, n_right = 0, n_out = 0;
    for (int d = 0; d < type.rank; d++) {
        char letter = (char)('p' + d);
        bool is_summed = pick(r, 2);
        left[n_left++] = letter;
        if (is_summed || pick(r, 4) == 0) {
            right[n_right] = letter;
            dims[n_right++] = type.dims[d];
        }
        if (!is_summed)
            out[n_out++] = letter;
    }
    if (n_right < 4 && n_out < 5) {
        right[n_right] = out[n_out++] = 'z';
        dims[n_right++] = 1 + pick(r, 4);
    }
    make_perm(r, n_out, perm);
    char shuffled[MOT_MAX_RANK + 1] = "";
    for (int d = 0; d < n_out; d++)
        shuffled[d] = out[perm[d]];
    MotValue w = new_source(r, n_right, dims);
    bool is_swapped = pick(r, 2);
    const char *spec = mot_arena_printf(&r->g->ctx->arena, "%s,%s->%s", is_swapped ? right : left,
                                        is_swapped ? left : right, shuffled);
    MotValue first = is_swapped ? w : x, second = is_swapped ? x : w;
    bool is_cut = right[0] && right[0] != 'z' && !strchr(out, right[0]) && pick(r, 3) == 0;
    MotValue y =
        is_cut ? mot_contract_listed(&r->b, first, second, random_list(r, dims[0]), spec, right[0])
               : mot_contract(&r->b, first, second, spec);
    keep(r, mot_tanh(&r->b, y));
}

/* ---- What raise looks for, and things close to it ---- */

/*
 * By a division: the reciprocal is rounded to f32 in the graph, and sums of differences from the
 * mean show that.
 */
static inline MotValue mean_over(Random *r, MotValue x, int64_t axis)
{
    MotValue n = mot_scalar_like(&r->b, x, (double)type_of(r, x).dims[axis]);
    return mot_div(&r->b, mot_reduce_sum(&r->b, x, &axis, 1, MOT_KEEP), n);
}

static inline void add_norm(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    if (type.rank == 0)
        return;
    int64_t axis = pick(r, 4) ? type.rank - 1 : (int64_t)pick(r, (uint32_t)type.rank);
    MotValue d = mot_sub(b, x, mean_over(r, x, axis));
    MotValue squares = pick(r, 2) ? mot_mul(b, d, d) : mot_pow(b, d, mot_scalar(b, MOT_F32, 2));
    MotValue deviation = mot_sqrt(b, mot_add_scalar(b, mean_over(r, squares, axis), 0.01)), y;
    if (pick(r, 4) == 0) {
        MotValue scale = new_source(r, 1, &type.dims[type.rank - 1]);
        y = mot_mul(b, d, mot_div(b, scale, deviation));
    } else {
        y = mot_div(b, d, deviation);
    }
    if (pick(r, 2))
        y = mot_mul(b, y, new_source(r, 1, &type.dims[type.rank - 1]));
    if (pick(r, 2))
        y = mot_add(b, new_source(r, 1, &type.dims[type.rank - 1]), y);
    keep(r, y);
}

static inline void add_softmax(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r);
    if (type_of(r, x).rank == 0)
        return;
    int64_t axis = pick(r, (uint32_t)type_of(r, x).rank), other = pick(r, 8) ? axis : 0;
    MotValue e = mot_exp(b, mot_sub(b, x, mot_reduce_max(b, x, &axis, 1, MOT_KEEP)));
    keep(r, mot_div(b, e, mot_reduce_sum(b, e, &other, 1, MOT_KEEP)));
}

static inline void add_gelu(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r), half = mot_mul_scalar(b, x, 0.5), z = 0;
    if (pick(r, 2)) {
        MotValue cube = mot_pow(b, x, mot_scalar(b, MOT_F32, 3));
        z = mot_tanh(
            b, mot_mul_scalar(b, mot_add(b, x, mot_mul_scalar(b, cube, 0.044715)), 0.7978845608));
    } else {
        z = mot_erf(b, mot_mul_scalar(b, x, 0.7071067812));
        if (pick(r, 2)) {
            keep(r, mot_mul(b, x, mot_add_scalar(b, mot_mul_scalar(b, z, 0.5), 0.5)));
            return;
        }
    }
    z = mot_add_scalar(b, z, 1);
    keep(r, pick(r, 2) ? mot_mul(b, half, z)
                       : mot_mul_scalar(b, mot_mul(b, z, x), pick(r, 4) ? 0.5 : 0.25));
}

/* The loss of rows of 8 logits, the label's entry picked from the flat log-softmax. */
static inline void add_loss(Random *r)
{
    MotBuilder *b = &r->b;
    int64_t rows = 1 + pick(r, 5), dims[] = {rows, 8}, flat = rows * 8, axis = 1;
    if (r->depth)
        return; /* a region gets no labels */
    MotValue x = new_source(r, 2, dims);
    MotValue labels = mot_input(b, mot_arena_printf(&r->g->ctx->arena, "labels%d", r->n_sources++),
                                mot_type_make(MOT_I64, 1, &rows));
    MotValue shifted = mot_sub(b, x, mot_reduce_max(b, x, &axis, 1, MOT_KEEP));
    MotValue log_p =
        mot_sub(b, shifted, mot_log(b, mot_reduce_sum(b, mot_exp(b, shifted), &axis, 1, MOT_KEEP)));
    MotValue position = mot_add(b, mot_mul_scalar(b, mot_iota(b, MOT_I64, 1, &rows, 0), 8), labels);
    keep(r, mot_gather(b, mot_reshape(b, log_p, 1, &flat), position, 0));
}

/* Self-attention of a value seen as [B, T, H, D], in one of the orders exporters use. */
static inline void add_attention(Random *r)
{
    MotBuilder *b = &r->b;
    MotValue x = any_value(r);
    MotType type = type_of(r, x);
    if (type.rank != 4)
        return;
    int64_t heads_first[] = {0, 2, 1, 3}, axis = 3, times = type.dims[1], dims[] = {times, times};
    MotValue q = mot_transpose(b, x, heads_first), k = mot_mul_scalar(b, q, 0.5),
             v = mot_transpose(b, mot_tanh(b, x), heads_first);
    MotValue scores = mot_contract(b, q, k, "bhtd,bhsd->bhts");
    MotValue sees = mot_le(b, mot_iota(b, MOT_I64, 2, dims, 1), mot_iota(b, MOT_I64, 2, dims, 0));
    if (pick(r, 3) == 0) { /* a window: close to causal, and not it */
        MotValue end = mot_add_scalar(b, mot_iota(b, MOT_I64, 2, dims, 1), 2);
        sees = mot_and(b, sees, mot_lt(b, mot_iota(b, MOT_I64, 2, dims, 0), end));
    }
    if (pick(r, 2))
        scores =
            mot_add(b, scores,
                    mot_select(b, sees, mot_scalar(b, MOT_F32, 0), mot_scalar(b, MOT_F32, -1e9)));
    else if (pick(r, 2))
        scores = mot_select(b, sees, scores, mot_scalar(b, MOT_F32, -1e30));
    else if (pick(r, 2))
        scores = mot_add(b, scores, new_source(r, 2, dims));
    MotValue max = mot_reduce_max(b, scores, &axis, 1, MOT_KEEP);
    bool is_guarded = pick(r, 3) == 0; /* as the composite's expansion */
    max = is_guarded ? mot_max(b, max, mot_scalar(b, MOT_F32, -FLT_MAX)) : max;
    MotValue e = mot_exp(b, mot_sub(b, scores, max));
    MotValue sum = mot_reduce_sum(b, e, &axis, 1, MOT_KEEP);
    MotValue p = mot_div(b, e, is_guarded ? mot_max(b, sum, mot_scalar(b, MOT_F32, FLT_MIN)) : sum);
    MotValue y = pick(r, 2) ? mot_contract(b, p, v, "bhts,bhsd->bhtd")
                            : mot_contract(b, v, p, "bhsd,bhts->bhtd");
    y = mot_transpose(b, y, heads_first);
    keep(r, mot_reshape(b, y, 3, (int64_t[]){type.dims[0], times, type.dims[2] * type.dims[3]}));
}

/* ---- Regions ---- */

static inline void take_steps(Random *r, uint32_t n);

static inline MotValue region_input(Random *r, const char *name, MotType type)
{
    MotValue v = mot_input(&r->b, name, type);
    keep(r, v);
    return v;
}

/* A region over the carried `state`, a slice and a whole value, with steps of any kind in it. */
static inline MotGraph *random_region(Random *outer, MotType state, MotType slice, MotType whole)
{
    static const int64_t all[RANDOM_MAX_RANK] = {0, 1, 2, 3, 4};
    Random r = {.g = mot_graph_make(outer->g->ctx, "scan"),
                .state = outer->state,
                .depth = outer->depth + 1};
    r.b = mot_builder_make(r.g);
    MotBuilder *b = &r.b;
    MotValue carried = region_input(&r, "state", state);
    region_input(&r, "slice", slice);
    region_input(&r, "whole", whole);
    take_steps(&r, 1 + pick(&r, 6));
    MotValue y = any_value(&r);
    MotValue sum = mot_reduce_sum(b, y, all, (uint32_t)type_of(&r, y).rank, MOT_DROP);
    mot_output(b, "next", mot_tanh(b, mot_add(b, carried, sum)));
    mot_output(b, "y", y);
    outer->state = r.state;
    return r.g;
}

static inline void add_scan(Random *r)
{
    MotValue x = any_value(r), whole = any_value(r), state = any_value(r);
    MotType slice = type_of(r, x);
    if (slice.rank == 0 || r->depth == RANDOM_MAX_DEPTH)
        return;
    int64_t axis = pick(r, (uint32_t)slice.rank), steps = slice.dims[axis];
    slice.rank--;
    for (int64_t d = axis; d < slice.rank; d++)
        slice.dims[d] = slice.dims[d + 1];
    MotGraph *region = random_region(r, type_of(r, state), slice, type_of(r, whole));
    const MotType *y = mot_graph_type(region, mot_graph_signature(region).out[1]);
    if (y->rank == RANDOM_MAX_RANK || mot_type_elements(y) * steps > RANDOM_MAX_ELEMENTS)
        return;
    int64_t out_axis = pick(r, (uint32_t)y->rank + 1);
    MotAttr_scan attrs = {.carried = 1, .axes = {&axis, 1}, .out_axes = {&out_axis, 1}};
    MotOpId id =
        mot_build_region(&r->b, MOT_OP_SCAN, (MotValue[]){state, x, whole}, 3, &attrs, region);
    keep(r, mot_result(&r->b, id, 0));
    keep(r, mot_result(&r->b, id, 1));
}

/* What nobody reads, the newest first. */
static inline void add_outputs(Random *r)
{
    bool *is_read = mot_arena_array(&r->g->ctx->arena, bool, r->g->values.n);
    for (uint32_t i = 0; i < r->g->body.n; i++) {
        const MotOp *op = mot_graph_op(r->g, r->g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            is_read[op->in[k]] = true;
    }
    int n = 0;
    for (uint32_t i = r->pool.n; i-- > 0 && n < RANDOM_MAX_OUTPUTS;)
        if (!is_read[r->pool.data[i]] || i + 1 == r->pool.n)
            mot_output(&r->b, mot_arena_printf(&r->g->ctx->arena, "y%d", n++), r->pool.data[i]);
}

static inline void take_steps(Random *r, uint32_t n)
{
    static void (*const steps[])(Random *) = {
        add_unary,    add_scalar_op,     add_scalar_op, add_binary,    add_binary,    add_reshape,
        add_reshape,  add_reshape,       add_transpose, add_transpose, add_broadcast, add_parts,
        add_parts,    add_strided_slice, add_gather,    add_pad,       add_reduction, add_contract,
        add_contract, add_norm,          add_softmax,   add_gelu,      add_attention, add_attention,
        add_source,   add_condition,     add_quotient,  add_cast,      add_loss,      add_scan,
    };
    for (uint32_t i = 0; i < n; i++)
        steps[pick(r, sizeof steps / sizeof *steps)](r);
}

static inline MotGraph *random_graph(MotCtx *ctx, uint64_t seed)
{
    Random r = {.g = mot_graph_make(ctx, "random"), .state = seed * 0x9e3779b97f4a7c15u + 1};
    r.b = mot_builder_make(r.g);
    add_source(&r);
    keep(&r, new_source(&r, 4, (int64_t[]){2, 1 + pick(&r, 4), 2, 1 + pick(&r, 3)}));
    take_steps(&r, 4 + pick(&r, 40));
    add_outputs(&r);
    mot_graph_compact(r.g);
    return r.g;
}

#endif
