/*
 * Composites with a gradient of their own: each has a row <name>_grad, which is again a composite.
 * They differentiate the first result only; autodiff expands an op of which another is used, and
 * attention whose mask trains.
 */
#include "passes/graph/grad.h"

static MotOpId build(const MotGradRule *r, MotOpKind kind, const MotValue *in, uint32_t n)
{
    return mot_build(r->b, kind, in, n, r->op->attrs);
}

void mot_grad_softmax(MotGradRule *r)
{
    MotValue in[] = {r->y[0], r->g[0]};
    r->dx[0] = mot_result(r->b, build(r, MOT_OP_SOFTMAX_GRAD, in, 2), 0);
}

void mot_grad_cross_entropy(MotGradRule *r)
{
    MotValue in[] = {r->x[0], r->x[1], r->g[0]};
    r->dx[0] = mot_result(r->b, build(r, MOT_OP_CROSS_ENTROPY_GRAD, in, 3), 0);
}

void mot_grad_layer_norm(MotGradRule *r)
{
    MotValue in[] = {r->x[0], r->x[1], r->y[1], r->y[2], r->g[0]};
    MotOpId grad = build(r, MOT_OP_LAYER_NORM_GRAD, in, 5);
    for (uint32_t i = 0; i < r->op->n_in; i++)
        r->dx[i] = mot_result(r->b, grad, i);
}

void mot_grad_gelu(MotGradRule *r)
{
    MotValue in[] = {r->x[0], r->g[0]};
    r->dx[0] = mot_result(r->b, build(r, MOT_OP_GELU_GRAD, in, 2), 0);
}

void mot_grad_attention(MotGradRule *r)
{
    bool has_mask = r->op->n_in == 4 && r->x[3];
    MotValue in[] = {r->x[0], r->x[1], r->x[2], r->y[0], r->y[1], r->g[0], has_mask ? r->x[3] : 0};
    MotOpId grad = build(r, MOT_OP_ATTENTION_GRAD, in, has_mask ? 7 : 6);
    for (uint32_t i = 0; i < 3; i++)
        r->dx[i] = mot_result(r->b, grad, i);
}
