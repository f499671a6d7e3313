/* Reductions: each is a formula around the sum or the maximum over axes. */
#include "frontend/import_node.h"

#include <float.h>

typedef struct {
    MotValue x;
    int64_t axes[MOT_MAX_RANK];
    uint32_t n_axes;
    bool keep;
} Reduction;

/*
 * Axes from the attribute, or from operand 1; without any all, unless that is told to do nothing.
 */
static Reduction read_reduction(MotNode *n)
{
    Reduction r = {.x = n->in[0], .keep = mot_node_int(n, "keepdims", 1) != 0};
    int rank = mot_node_type(n, 0)->rank;
    MotInts list = {0};
    if (mot_node_has(n, 1))
        mot_node_known_ints(n, 1, &list);
    else
        mot_node_ints(n, "axes", &list);
    r.n_axes = mot_node_axes(n, list, rank, r.axes);
    if (list.n == 0 && !mot_node_int(n, "noop_with_empty_axes", 0))
        for (int i = 0; i < rank; i++)
            r.axes[r.n_axes++] = i;
    return r;
}

static MotValue sum(MotNode *n, const Reduction *r, MotValue x)
{
    return mot_reduce_sum(n->b, x, r->axes, r->n_axes, r->keep);
}

void mot_lower_reduce_sum(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = sum(n, &r, r.x);
}

void mot_lower_reduce_mean(MotNode *n)
{
    Reduction r = read_reduction(n);
    const MotType x = *mot_value_type(n, r.x);
    double count = 1;
    for (uint32_t i = 0; i < r.n_axes; i++)
        count *= (double)x.dims[r.axes[i]];
    MotValue total = sum(n, &r, r.x);
    n->out[0] = mot_div(n->b, total, mot_scalar_like(n->b, total, count));
}

void mot_lower_reduce_sum_square(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = sum(n, &r, mot_mul(n->b, r.x, r.x));
}

void mot_lower_reduce_l1(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = sum(n, &r, mot_abs(n->b, r.x));
}

void mot_lower_reduce_l2(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = mot_sqrt(n->b, sum(n, &r, mot_mul(n->b, r.x, r.x)));
}

void mot_lower_reduce_log_sum(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = mot_log(n->b, sum(n, &r, r.x));
}

/*
 * m + log(sum(exp(x - m))), m the maximum kept finite: infinities of x then give what they should.
 */
void mot_lower_reduce_log_sum_exp(MotNode *n)
{
    MotBuilder *b = n->b;
    Reduction r = read_reduction(n);
    r.x = mot_node_float_operand(n, 0);
    MotValue low = mot_scalar_like(b, r.x, -FLT_MAX), high = mot_scalar_like(b, r.x, FLT_MAX);
    MotValue m = mot_reduce_max(b, r.x, r.axes, r.n_axes, MOT_KEEP);
    m = mot_min(b, mot_max(b, m, low), high);
    MotValue total = mot_reduce_sum(b, mot_exp(b, mot_sub(b, r.x, m)), r.axes, r.n_axes, MOT_KEEP);
    MotValue y = mot_add(b, m, mot_log(b, total));
    n->out[0] = r.keep || !mot_node_ok(n) ? y : mot_reduce_sum(b, y, r.axes, r.n_axes, MOT_DROP);
}

/* Booleans are compared as u8. */
static MotValue maximum(MotNode *n, const Reduction *r, MotValue x)
{
    bool is_bool = mot_value_type(n, x)->dtype == MOT_BOOL;
    MotValue numbers = is_bool ? mot_cast(n->b, x, MOT_U8) : x;
    MotValue y = mot_reduce_max(n->b, numbers, r->axes, r->n_axes, r->keep);
    return is_bool && y ? mot_cast(n->b, y, MOT_BOOL) : y;
}

void mot_lower_reduce_max(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = maximum(n, &r, r.x);
}

/*
 * Turns the order of x round: not for booleans, -x for floats, -1 - x for integers, which cannot
 * overflow.
 */
static MotValue reverse_order(MotNode *n, MotValue x)
{
    switch (mot_dtype_class(mot_value_type(n, x)->dtype)) {
    case MOT_CLASS_BOOL:
        return mot_not(n->b, x);
    case MOT_CLASS_FLOAT:
        return mot_neg(n->b, x);
    default:
        return mot_rsub(n->b, -1, x);
    }
}

void mot_lower_reduce_min(MotNode *n)
{
    Reduction r = read_reduction(n);
    n->out[0] = reverse_order(n, maximum(n, &r, reverse_order(n, r.x)));
}

/* Multiplies the halves of an axis until one slice is left: about log2(size) products. */
static MotValue multiply_axis(MotNode *n, MotValue x, int axis)
{
    MotBuilder *b = n->b;
    if (mot_value_type(n, x)->dims[axis] == 0) {
        int64_t hi[MOT_MAX_RANK] = {0}, lo[MOT_MAX_RANK] = {0};
        hi[axis] = 1;
        return mot_pad(b, x, lo, hi, 1); /* the empty product */
    }
    while (mot_node_ok(n) && mot_value_type(n, x)->dims[axis] > 1) {
        int64_t size = mot_value_type(n, x)->dims[axis], half = size / 2;
        MotValue y =
            mot_mul(b, mot_slice_axis(b, x, axis, 0, half), mot_slice_axis(b, x, axis, half, half));
        MotValue odd = size % 2 ? mot_slice_axis(b, x, axis, size - 1, 1) : 0;
        x = odd ? mot_concat(b, (MotValue[]){y, odd}, 2, axis) : y;
    }
    return x;
}

void mot_lower_reduce_prod(MotNode *n)
{
    Reduction r = read_reduction(n);
    MotValue y = r.x;
    for (uint32_t i = 0; i < r.n_axes; i++)
        y = multiply_axis(n, y, (int)r.axes[i]);
    n->out[0] = r.keep ? y : mot_reduce_sum(n->b, y, r.axes, r.n_axes, MOT_DROP);
}
