/*
 * Gradients of the pointwise rows. In the formulas a, b, c are the operands, y the result, g its
 * gradient. Where PyTorch has a convention for a kink, so have these: 0 for relu and abs at 0,
 * halves for max and min of equal operands.
 */
#include "passes/graph/grad.h"

/* g where the condition holds, else 0. */
static MotValue keep_where(MotBuilder *b, MotValue condition, MotValue g)
{
    return mot_select(b, condition, g, mot_scalar_like(b, g, 0));
}

#define SLOPE(id, name, slope)                                                                     \
    void mot_grad_##name(MotGradRule *r)                                                           \
    {                                                                                              \
        MotBuilder *b = r->b;                                                                      \
        MotValue a = r->x[0], y = r->y[0];                                                         \
        (void)a, (void)y;                                                                          \
        r->dx[0] = mot_mul(b, r->g[0], slope);                                                     \
    }
#include "passes/graph/grad.def"

void mot_grad_neg(MotGradRule *r)
{
    r->dx[0] = mot_neg(r->b, r->g[0]);
}

void mot_grad_log(MotGradRule *r)
{
    r->dx[0] = mot_div(r->b, r->g[0], r->x[0]);
}

/* da = g / (2 y) */
void mot_grad_sqrt(MotGradRule *r)
{
    r->dx[0] = mot_div(r->b, mot_mul_scalar(r->b, r->g[0], 0.5), r->y[0]);
}

/* da = -g y^3 / 2 */
void mot_grad_rsqrt(MotGradRule *r)
{
    MotValue cube = mot_mul(r->b, mot_mul(r->b, r->y[0], r->y[0]), r->y[0]);
    r->dx[0] = mot_mul(r->b, mot_mul_scalar(r->b, r->g[0], -0.5), cube);
}

void mot_grad_cos(MotGradRule *r)
{
    r->dx[0] = mot_neg(r->b, mot_mul(r->b, r->g[0], mot_sin(r->b, r->x[0])));
}

/* From the result, which the next layer keeps anyway. */
void mot_grad_relu(MotGradRule *r)
{
    MotValue is_on = mot_lt(r->b, mot_scalar_like(r->b, r->y[0], 0), r->y[0]);
    r->dx[0] = keep_where(r->b, is_on, r->g[0]);
}

/* Every micro-batch adds its x: each gets the gradient of the sum. */
void mot_grad_accumulate(MotGradRule *r)
{
    r->dx[0] = r->g[0];
}

void mot_grad_add(MotGradRule *r)
{
    r->dx[0] = r->g[0];
    r->dx[1] = r->g[0];
}

void mot_grad_sub(MotGradRule *r)
{
    r->dx[0] = r->g[0];
    r->dx[1] = mot_neg(r->b, r->g[0]);
}

void mot_grad_mul(MotGradRule *r)
{
    r->dx[0] = mot_mul(r->b, r->g[0], r->x[1]);
    r->dx[1] = mot_mul(r->b, r->g[0], r->x[0]);
}

/* da = g / b, db = -da y */
void mot_grad_div(MotGradRule *r)
{
    r->dx[0] = mot_div(r->b, r->g[0], r->x[1]);
    r->dx[1] = mot_neg(r->b, mot_mul(r->b, r->dx[0], r->y[0]));
}

/* da = g b a^(b-1), 0 where b is 0; db = g y log(a), 0 where a is 0 and b >= 0. */
void mot_grad_pow(MotGradRule *r)
{
    MotBuilder *b = r->b;
    MotValue zero = mot_scalar_like(b, r->y[0], 0);
    MotValue slope = mot_mul(b, r->x[1], mot_pow(b, r->x[0], mot_add_scalar(b, r->x[1], -1)));
    r->dx[0] = mot_mul(b, r->g[0], mot_select(b, mot_eq(b, r->x[1], zero), zero, slope));
    MotValue is_flat = mot_and(b, mot_eq(b, r->x[0], zero), mot_le(b, zero, r->x[1]));
    MotValue growth = mot_mul(b, r->y[0], mot_log(b, r->x[0]));
    r->dx[1] = mot_mul(b, r->g[0], mot_select(b, is_flat, zero, growth));
}

/* The operand that lost gets nothing, equal ones half each, and with a NaN both get all. */
static void share_by_order(MotGradRule *r, MotValue first_lost, MotValue second_lost)
{
    MotBuilder *b = r->b;
    MotValue zero = mot_scalar_like(b, r->g[0], 0);
    MotValue is_tie = mot_eq(b, r->x[0], r->x[1]);
    MotValue half = mot_mul_scalar(b, r->g[0], 0.5);
    r->dx[0] = mot_select(b, is_tie, half, mot_select(b, first_lost, zero, r->g[0]));
    r->dx[1] = mot_select(b, is_tie, half, mot_select(b, second_lost, zero, r->g[0]));
}

void mot_grad_max(MotGradRule *r)
{
    share_by_order(r, mot_lt(r->b, r->x[0], r->x[1]), mot_lt(r->b, r->x[1], r->x[0]));
}

void mot_grad_min(MotGradRule *r)
{
    share_by_order(r, mot_lt(r->b, r->x[1], r->x[0]), mot_lt(r->b, r->x[0], r->x[1]));
}

void mot_grad_select(MotGradRule *r)
{
    MotValue zero = mot_scalar_like(r->b, r->g[0], 0);
    r->dx[1] = keep_where(r->b, r->x[0], r->g[0]);
    r->dx[2] = mot_select(r->b, r->x[0], zero, r->g[0]);
}
