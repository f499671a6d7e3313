/*
 * The grouping of passes/lower/lower.c without the shardings: an op joins the open group when it
 * can run in its loop and reads it.
 */
#include "passes/plan/fusion.h"

typedef struct {
    const MotGraph *g;
    MotFusion *f;
    uint32_t n_launches, n_open; /* members of the last launch */
    uint32_t *n_users;           /* [values] */
    uint32_t n_awaited;          /* users of the last launch's results that did not come yet */
    const MotOp *first;          /* of the last launch; NULL: closed */
    uint32_t *read_by;           /* [values]: the last launch that reads it */
} Finder;

static uint32_t launch_of(const Finder *s, MotValue v)
{
    return s->f->launch[s->g->values.data[v].def];
}

/* How many operands the last launch makes. */
static uint32_t count_reads(const Finder *s, const MotOp *op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->n_in; i++)
        n += op->in[i] && launch_of(s, op->in[i]) == s->n_launches;
    return n;
}

static bool joins(const Finder *s, const MotOp *op)
{
    uint32_t n_reads = count_reads(s, op);
    if (s->first && s->n_open == 1 && mot_op_can_pair(s->first, op))
        return true;
    if (!s->first || s->n_open == MOT_MAX_FUSED || n_reads == 0 ||
        s->first->kind == MOT_OP_ACCUMULATE || op->kind == MOT_OP_ACCUMULATE)
        return false;
    return mot_op_can_fuse(s->g, s->first, op) ||
           (mot_op_can_end(s->g, s->first, op) && s->n_awaited == n_reads);
}

/* Makers of what is joined along the outermost dim write into the result. */
static bool is_joined(const Finder *s, const MotOp *op)
{
    if (op->kind != MOT_OP_CONCAT || mot_attrs(op, axis)->axis != 0)
        return false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (!launch_of(s, op->in[i]))
            return false;
    return true;
}

static void visit(Finder *s, MotOpId id)
{
    const MotOp *op = mot_graph_op(s->g, id);
    s->f->is_first[id] = !joins(s, op);
    if (s->f->is_first[id]) {
        s->first = op;
        s->n_open = s->n_awaited = 0;
        s->n_launches++;
    }
    s->n_open++;
    s->f->is_view[id] = mot_op_is_view(s->g, op) || is_joined(s, op);
    s->n_awaited -= count_reads(s, op);
    for (uint32_t i = 0; i < op->n_out; i++)
        s->n_awaited += s->n_users[op->out[i]];
    s->f->launch[id] = s->n_launches;
    for (uint32_t i = 0; i < op->n_in; i++) {
        MotValue v = op->in[i];
        if (!v || mot_op_is_immediate(s->g, mot_graph_def(s->g, v)) ||
            launch_of(s, v) == s->n_launches || s->read_by[v] == s->n_launches)
            s->f->is_free[id] |= (uint64_t)1 << i;
        s->read_by[v] = s->n_launches;
    }
}

/* A value is inner until somebody outside its launch reads it; a lone op keeps all its results. */
static void mark_inner(MotCtx *ctx, const MotGraph *g, MotFusion *f)
{
    uint32_t *n_members = mot_arena_array(&ctx->arena, uint32_t, g->ops.n + 1);
    for (uint32_t i = 0; i < g->body.n; i++)
        n_members[f->launch[g->body.data[i]]]++;
    for (MotValue v = 1; v < g->values.n; v++) {
        uint32_t launch = f->launch[g->values.data[v].def];
        f->is_inner[v] = launch && n_members[launch] > 1;
    }
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            if (f->launch[g->body.data[i]] != f->launch[g->values.data[op->in[k]].def])
                f->is_inner[op->in[k]] = false;
    }
}

static uint32_t *count_users(MotCtx *ctx, const MotGraph *g)
{
    uint32_t *n_users = mot_arena_array(&ctx->arena, uint32_t, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            n_users[op->in[k]]++;
    }
    return n_users;
}

static void mark_in_place(const MotGraph *g, MotFusion *f, const uint32_t *n_users)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_ASSIGN)
            f->is_in_place[op->in[1]] = true;
    }
    for (MotValue v = 1; v < g->values.n; v++)
        f->is_in_place[v] &= n_users[v] == 1 && f->launch[g->values.data[v].def];
}

void mot_fusion_find(MotCtx *ctx, const MotGraph *g, MotFusion *out_fusion)
{
    MotArena *arena = &ctx->arena;
    *out_fusion = (MotFusion){.launch = mot_arena_array(arena, uint32_t, g->ops.n),
                              .is_first = mot_arena_array(arena, bool, g->ops.n),
                              .is_view = mot_arena_array(arena, bool, g->ops.n),
                              .is_inner = mot_arena_array(arena, bool, g->values.n),
                              .is_in_place = mot_arena_array(arena, bool, g->values.n),
                              .is_free = mot_arena_array(arena, uint64_t, g->ops.n)};
    Finder s = {.g = g,
                .f = out_fusion,
                .n_users = count_users(ctx, g),
                .read_by = mot_arena_array(arena, uint32_t, g->values.n)};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        MotOpClass class = mot_op_info(op->kind)->class;
        if (class == MOT_SINK && op->kind != MOT_OP_ASSIGN)
            s.first = NULL;
        else if (class != MOT_SINK && (class != MOT_SOURCE || op->kind == MOT_OP_IOTA))
            visit(&s, g->body.data[i]);
    }
    mark_inner(ctx, g, out_fusion);
    mark_in_place(g, out_fusion, s.n_users);
}
