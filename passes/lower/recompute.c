/* One sweep over the body: a backward op has what it reads copied in front of it. */
#include "passes/lower/recompute.h"

#include <stdlib.h>

typedef struct {
    MotCtx *ctx;
    const MotPlan *plan;
    MotGraph *g;              /* a clone of the plan's, which grows */
    MotVec(MotOpId) body;     /* the new order */
    MotVec(MotOpId) original; /* of each copy, in the order of their ids */
    MotValue *to;             /* [values]: what backward ops read instead; 0: the value itself */
    bool *is_wanted;          /* [ops]: has a copy, or gets one now */
    uint32_t *place;          /* [ops]: in the old body */
    MotVec(MotOpId) todo;
    MotVec(uint32_t) wanted; /* places */
} Recompute;

static bool is_backward(const MotOp *op)
{
    return op->role != MOT_ROLE_FORWARD;
}

/* Marks the flagged op behind v, if it has no copy yet. */
static void want(Recompute *r, MotValue v)
{
    MotOpId id = r->g->values.data[v].def;
    if (!id || r->is_wanted[id] || !r->plan->ops[id].recompute ||
        !mot_op_may_be_recomputed(mot_graph_op(r->g, id)))
        return;
    r->is_wanted[id] = true;
    mot_vec_push(&r->ctx->arena, &r->todo, id);
    mot_vec_push(&r->ctx->arena, &r->wanted, r->place[id]);
}

/* A copy of a forward op, as part of the backward pass. */
static void copy_op(Recompute *r, MotOpId id)
{
    MotArena *arena = &r->ctx->arena;
    MotGraph *g = r->g;
    MotOp copy = *mot_graph_op(g, id);
    MotOpId new_id = g->ops.n;
    copy.in = mot_arena_copy(arena, copy.in, copy.n_in * sizeof *copy.in);
    copy.out = mot_arena_copy(arena, copy.out, copy.n_out * sizeof *copy.out);
    copy.role = MOT_ROLE_DX;
    copy.fwd = id;
    for (uint32_t k = 0; k < copy.n_in; k++)
        copy.in[k] = r->to[copy.in[k]] ? r->to[copy.in[k]] : copy.in[k];
    for (uint32_t k = 0; k < copy.n_out; k++) {
        MotValueInfo value = g->values.data[copy.out[k]];
        value.def = new_id;
        value.name = NULL;
        r->to[copy.out[k]] = g->values.n;
        copy.out[k] = g->values.n;
        mot_vec_push(arena, &g->values, value);
    }
    mot_vec_push(arena, &g->ops, copy);
    mot_vec_push(arena, &r->body, new_id);
    mot_vec_push(arena, &r->original, id);
}

static int compare_places(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Copies what the op reads, and what that reads in turn, in the order of the originals. */
static void copy_operands(Recompute *r, const MotOp *op)
{
    r->wanted.n = 0;
    for (uint32_t k = 0; k < op->n_in; k++)
        want(r, op->in[k]);
    while (r->todo.n) {
        const MotOp *next = mot_graph_op(r->g, r->todo.data[--r->todo.n]);
        for (uint32_t k = 0; k < next->n_in; k++)
            want(r, next->in[k]);
    }
    if (r->wanted.n)
        qsort(r->wanted.data, r->wanted.n, sizeof *r->wanted.data, compare_places);
    for (uint32_t i = 0; i < r->wanted.n; i++)
        copy_op(r, r->plan->graph->body.data[r->wanted.data[i]]);
}

/* The old plan's choices, and for copies those of their originals. */
static const MotPlan *make_plan(const Recompute *r)
{
    const MotPlan *old = r->plan;
    MotPlan *plan = mot_plan_new(r->ctx, r->g, old->cluster);
    MotOpPlan *ops = plan->ops;
    MotSharding *values = plan->values;
    *plan = *old;
    plan->graph = r->g;
    plan->ops = ops;
    plan->values = values;
    uint32_t n_old = old->graph->ops.n;
    MOT_ASSERT(r->g->ops.n == n_old + r->original.n);
    for (MotOpId id = 0; id < r->g->ops.n; id++) {
        const MotOp *op = mot_graph_op(r->g, id);
        MotOpId from = id < n_old ? id : r->original.data[id - n_old];
        plan->ops[id] = old->ops[from];
        plan->ops[id].recompute = false;
        for (uint32_t k = 0; k < op->n_out; k++)
            plan->values[op->out[k]] = old->values[mot_graph_op(old->graph, from)->out[k]];
    }
    return plan;
}

static bool is_flagged(const MotPlan *plan)
{
    for (uint32_t i = 0; i < plan->graph->body.n; i++)
        if (plan->ops[plan->graph->body.data[i]].recompute)
            return true;
    return false;
}

const MotPlan *mot_recompute_apply(MotCtx *ctx, const MotPlan *plan)
{
    if (!is_flagged(plan))
        return plan;
    const MotGraph *old = plan->graph;
    Recompute r = {.ctx = ctx,
                   .plan = plan,
                   .g = mot_graph_clone(ctx, old),
                   .to = mot_arena_array(&ctx->arena, MotValue, old->values.n),
                   .is_wanted = mot_arena_array(&ctx->arena, bool, old->ops.n),
                   .place = mot_arena_array(&ctx->arena, uint32_t, old->ops.n)};
    for (uint32_t i = 0; i < old->body.n; i++)
        r.place[old->body.data[i]] = i;
    for (uint32_t i = 0; i < old->body.n; i++) {
        MotOpId id = old->body.data[i];
        if (is_backward(mot_graph_op(old, id)))
            copy_operands(&r, mot_graph_op(old, id));
        MotOp *op = mot_graph_op(r.g, id); /* ops move while others are copied */
        for (uint32_t k = 0; is_backward(op) && k < op->n_in; k++)
            op->in[k] = r.to[op->in[k]] ? r.to[op->in[k]] : op->in[k];
        mot_vec_push(&ctx->arena, &r.body, id);
    }
    r.g->body.data = r.body.data;
    r.g->body.n = r.body.n;
    r.g->body.cap = r.body.cap;
    return make_plan(&r);
}
