/*
 * Reference evaluation of scan: its region, once a step, over the values carried so far and the
 * slices of this step.
 *
 * Cost: the steps times the region's, and a copy of all slices. Memory: one step's, which is given
 * back after it.
 */
#include "ir/eval.h"
#include "ir/eval_rules.h"

#include <string.h>

typedef struct {
    MotEval *e;
    const MotAttr_scan *attrs;
    MotSignature region;
    int64_t steps;
    MotTensor carried[MOT_MAX_RESULTS]; /* what the next step is given */
    bool in_f64;
} Scan;

static bool is_widened(const MotTensor *tensor, const MotType *declared)
{
    return tensor->type.dtype == MOT_F64 && declared->dtype != MOT_F64 &&
           mot_dtype_class(declared->dtype) == MOT_CLASS_FLOAT;
}

/* Whether the graph around computes all floats in f64 (ir/eval.h): then the region does. */
static bool is_in_f64(const MotEval *e)
{
    bool is_wide = false;
    for (uint32_t i = 0; i < e->op->n_in; i++)
        is_wide |= is_widened(&e->in[i], mot_graph_type(e->g, e->op->in[i]));
    for (uint32_t i = 0; i < e->op->n_out; i++)
        is_wide |= is_widened(&e->out[i], mot_graph_type(e->g, e->op->out[i]));
    return is_wide;
}

static void copy_tensor(const MotTensor *to, const MotTensor *from)
{
    size_t bytes = (size_t)mot_type_bytes(&from->type);
    if (bytes)
        memcpy(to->data, from->data, bytes);
}

/* Copies slice t along `axis` of `whole` to `slice`, or back. */
static void copy_slice(const MotTensor *whole, int64_t axis, int64_t t, const MotTensor *slice,
                       bool is_back)
{
    int64_t outer = 1, inner = mot_dtype_bytes(whole->type.dtype), size = whole->type.dims[axis];
    for (int d = 0; d < whole->type.rank; d++)
        if (d != axis)
            *(d < axis ? &outer : &inner) *= whole->type.dims[d];
    for (int64_t i = 0; i < outer && inner > 0; i++) {
        char *in_whole = (char *)whole->data + (i * size + t) * inner;
        char *in_slice = (char *)slice->data + i * inner;
        memcpy(is_back ? in_whole : in_slice, is_back ? in_slice : in_whole, (size_t)inner);
    }
}

static MotTensor take_slice(MotCtx *ctx, const MotTensor *whole, int64_t axis, int64_t t)
{
    MotTensor slice = {.type = {.dtype = whole->type.dtype}};
    for (int d = 0; d < whole->type.rank; d++)
        if (d != axis)
            slice.type.dims[slice.type.rank++] = whole->type.dims[d];
    slice.data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&slice.type));
    copy_slice(whole, axis, t, &slice, false);
    return slice;
}

/* What the region is given for operand i in step t. */
static MotTensor input_of_step(const Scan *s, uint32_t i, int64_t t)
{
    const MotAttr_scan *a = s->attrs;
    if (i < a->carried)
        return s->carried[i];
    if (i - a->carried < a->axes.n)
        return take_slice(s->e->ctx, &s->e->in[i], a->axes.data[i - a->carried], t);
    return s->e->in[i];
}

/* A carried value changes last: any output may be an input, and show it. */
static MotStatus run_step(Scan *s, int64_t t)
{
    MotCtx *ctx = s->e->ctx;
    const MotGraph *g = s->e->op->region;
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < s->region.n_in; i++)
        values[s->region.in[i]] = input_of_step(s, i, t);
    MOT_TRY(mot_eval_graph(ctx, g, values, s->in_f64));
    for (uint32_t i = 0; i < s->attrs->out_axes.n; i++) {
        uint32_t k = (uint32_t)s->attrs->carried + i;
        copy_slice(&s->e->out[k], s->attrs->out_axes.data[i], t, &values[s->region.out[k]], true);
    }
    MotTensor next[MOT_MAX_RESULTS];
    for (uint32_t i = 0; i < s->attrs->carried; i++) {
        next[i] = values[s->region.out[i]];
        size_t bytes = (size_t)mot_type_bytes(&next[i].type);
        next[i].data = mot_arena_copy(&ctx->arena, next[i].data, bytes);
    }
    for (uint32_t i = 0; i < s->attrs->carried; i++)
        copy_tensor(&s->carried[i], &next[i]);
    mot_arena_rewind(&ctx->arena, mark);
    return MOT_OK;
}

MotStatus mot_eval_scan(MotEval *e)
{
    Scan s = {.e = e,
              .attrs = mot_attrs(e->op, scan),
              .region = mot_graph_signature(e->op->region),
              .in_f64 = is_in_f64(e)};
    s.steps = e->in[s.attrs->carried].type.dims[s.attrs->axes.data[0]];
    for (uint32_t i = 0; i < s.attrs->carried; i++) {
        s.carried[i] = e->out[i];
        copy_tensor(&e->out[i], &e->in[i]);
    }
    for (int64_t t = 0; t < s.steps; t++)
        MOT_TRY(run_step(&s, t));
    return MOT_OK;
}
