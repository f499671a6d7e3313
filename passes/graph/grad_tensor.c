/*
 * Gradients of the primitives that move, repeat and sum elements: each the transpose of its linear
 * map.
 */
#include "passes/graph/grad.h"

#include <string.h>

static MotType type_of(const MotGradRule *r, MotValue v)
{
    return *mot_graph_type(r->b->graph, v);
}

void mot_grad_cast(MotGradRule *r)
{
    r->dx[0] = mot_cast(r->b, r->g[0], type_of(r, r->x[0]).dtype);
}

void mot_grad_reshape(MotGradRule *r)
{
    MotType x = type_of(r, r->x[0]);
    r->dx[0] = mot_reshape(r->b, r->g[0], x.rank, x.dims);
}

void mot_grad_transpose(MotGradRule *r)
{
    MotInts perm = mot_attrs(r->op, perm)->perm;
    int64_t inverse[MOT_MAX_RANK] = {0};
    for (uint32_t i = 0; i < perm.n; i++)
        inverse[perm.data[i]] = i;
    r->dx[0] = mot_transpose(r->b, r->g[0], inverse);
}

void mot_grad_broadcast(MotGradRule *r)
{
    MotType x = type_of(r, r->x[0]);
    r->dx[0] = mot_sum_to(r->b, r->g[0], x.rank, x.dims);
}

/* Dim `axis` of g with its elements in reverse order. */
static MotValue reverse_axis(MotBuilder *b, MotValue g, int axis)
{
    MotType type = *mot_graph_type(b->graph, g);
    int64_t start[MOT_MAX_RANK] = {0}, step[MOT_MAX_RANK];
    for (int d = 0; d < type.rank; d++)
        step[d] = 1;
    step[axis] = -1;
    start[axis] = type.dims[axis] > 0 ? type.dims[axis] - 1 : 0;
    return mot_slice(b, g, start, type.dims, step);
}

/*
 * Zeros between the elements of dim `axis`, so that neighbours come to lie `step` apart: n becomes
 * (n - 1) step + 1.
 */
static MotValue spread_axis(MotBuilder *b, MotValue g, int axis, int64_t step)
{
    MotType type = *mot_graph_type(b->graph, g);
    int64_t n = type.dims[axis], dims[MOT_MAX_RANK] = {1}, lo[MOT_MAX_RANK] = {0},
            hi[MOT_MAX_RANK] = {0};
    /* As [before, n, 1, after], the third dim padded to `step`. */
    dims[1] = n;
    dims[2] = dims[3] = 1;
    for (int d = 0; d < type.rank; d++)
        if (d != axis)
            dims[d < axis ? 0 : 3] *= type.dims[d];
    hi[2] = step - 1;
    MotValue rows = mot_pad(b, mot_reshape(b, g, 4, dims), lo, hi, 0);
    type.dims[axis] = n * step;
    return mot_slice_axis(b, mot_reshape(b, rows, type.rank, type.dims), axis, 0,
                          (n - 1) * step + 1);
}

/* Element i came from start + i step: the gradient goes back there, zeros elsewhere. */
void mot_grad_slice(MotGradRule *r)
{
    const MotAttr_slice *a = mot_attrs(r->op, slice);
    MotType x = type_of(r, r->x[0]);
    int64_t lo[MOT_MAX_RANK] = {0}, hi[MOT_MAX_RANK] = {0};
    MotValue g = r->g[0];
    for (int d = 0; d < x.rank; d++) {
        int64_t start = a->start.data[d], size = a->size.data[d], step = a->step.data[d];
        int64_t span = size > 0 ? (size - 1) * (step < 0 ? -step : step) + 1 : 0;
        if (step < 0 && size > 1) {
            g = reverse_axis(r->b, g, d);
            start += (size - 1) * step;
        }
        if (span > size)
            g = spread_axis(r->b, g, d, step < 0 ? -step : step);
        lo[d] = size > 0 ? start : 0;
        hi[d] = x.dims[d] - lo[d] - span;
    }
    r->dx[0] = mot_pad(r->b, g, lo, hi, 0);
}

void mot_grad_pad(MotGradRule *r)
{
    MotType x = type_of(r, r->x[0]);
    int64_t step[MOT_MAX_RANK];
    for (int d = 0; d < x.rank; d++)
        step[d] = 1;
    r->dx[0] = mot_slice(r->b, r->g[0], mot_attrs(r->op, pad)->lo.data, x.dims, step);
}

void mot_grad_concat(MotGradRule *r)
{
    int axis = (int)mot_attrs(r->op, axis)->axis;
    int64_t start = 0;
    for (uint32_t i = 0; i < r->op->n_in; i++) {
        int64_t size = type_of(r, r->x[i]).dims[axis];
        r->dx[i] = mot_slice_axis(r->b, r->g[0], axis, start, size);
        start += size;
    }
}

void mot_grad_gather(MotGradRule *r)
{
    const MotAttr_gather *a = mot_attrs(r->op, gather);
    r->dx[0] = (a->batched ? mot_scatter_add_batched : mot_scatter_add)(
        r->b, r->x[1], r->g[0], (int)a->axis, type_of(r, r->x[0]).dims[a->axis]);
}

void mot_grad_scatter_add(MotGradRule *r)
{
    const MotAttr_scatter *a = mot_attrs(r->op, scatter);
    r->dx[1] = (a->batched ? mot_gather_batched : mot_gather)(r->b, r->g[0], r->x[0], (int)a->axis);
}

/* `v`, a result of the reduction, with the reduced dims kept as 1. */
static MotValue keep_reduced(const MotGradRule *r, MotValue v)
{
    MotInts axes = mot_attrs(r->op, reduce)->axes;
    MotType x = type_of(r, r->x[0]);
    for (uint32_t i = 0; i < axes.n; i++)
        x.dims[axes.data[i]] = 1;
    return mot_reshape(r->b, v, x.rank, x.dims);
}

void mot_grad_reduce_sum(MotGradRule *r)
{
    MotType x = type_of(r, r->x[0]);
    r->dx[0] = mot_broadcast(r->b, keep_reduced(r, r->g[0]), x.rank, x.dims);
}

/* Equal maxima share evenly, as PyTorch's amax has it. */
void mot_grad_reduce_max(MotGradRule *r)
{
    MotBuilder *b = r->b;
    MotInts axes = mot_attrs(r->op, reduce)->axes;
    MotValue is_max = mot_eq(b, r->x[0], keep_reduced(r, r->y[0]));
    MotValue one = mot_cast(b, is_max, type_of(r, r->x[0]).dtype);
    MotValue n = mot_reduce_sum(b, one, axes.data, axes.n, MOT_KEEP);
    r->dx[0] = mot_mul(b, one, mot_div(b, keep_reduced(r, r->g[0]), n));
}

/* The three letter lists of an einsum spec. */
typedef struct {
    char in[2][MOT_MAX_RANK + 1], out[MOT_MAX_RANK + 1];
} Letters;

static Letters split_spec(const char *spec)
{
    Letters l = {0};
    size_t n0 = strcspn(spec, ","), n1 = strcspn(spec + n0 + 1, "-");
    memcpy(l.in[0], spec, n0);
    memcpy(l.in[1], spec + n0 + 1, n1);
    memcpy(l.out, spec + n0 + 1 + n1 + 2, strlen(spec + n0 + 1 + n1 + 2));
    return l;
}

/*
 * The gradient of operand `own`: g and the other operand contracted to its letters. A letter that
 * only this operand has was summed alone: the gradient repeats along it. Of a letter that is cut
 * the listed positions alone get a gradient, the others 0.
 */
static MotValue contract_back(const MotGradRule *r, const Letters *l, int own)
{
    MotAttr_contract attrs = *mot_attrs(r->op, contract);
    const char *mine = l->in[own], *other = l->in[1 - own];
    MotType x = type_of(r, r->x[own]), kept = x;
    char have[MOT_MAX_RANK + 1] = {0};
    int n = 0;
    for (int d = 0; d < x.rank; d++) {
        if (strchr(l->out, mine[d]) || strchr(other, mine[d]))
            have[n++] = mine[d];
        else
            kept.dims[d] = 1;
    }
    attrs.spec = mot_arena_printf(&r->b->graph->ctx->arena, "%s,%s->%s", l->out, other, have);
    MotValue in[2] = {r->g[0], r->x[1 - own]}, list = mot_contract_index(r->op);
    const char *cut = attrs.cut;
    attrs.cut = NULL;
    if (list)
        in[1] = mot_gather(r->b, in[1], list, (int)(strchr(other, *cut) - other));
    MotValue dx = mot_result(r->b, mot_build(r->b, MOT_OP_CONTRACT, in, 2, &attrs), 0);
    if (list)
        dx = mot_scatter_add(r->b, list, dx, (int)(strchr(have, *cut) - have),
                             x.dims[strchr(mine, *cut) - mine]);
    if (n < x.rank)
        dx = mot_broadcast(r->b, mot_reshape(r->b, dx, x.rank, kept.dims), x.rank, x.dims);
    return dx;
}

void mot_grad_contract(MotGradRule *r)
{
    Letters l = split_spec(mot_attrs(r->op, contract)->spec);
    r->dx[0] = contract_back(r, &l, 0);
    r->dx[1] = contract_back(r, &l, 1);
}
