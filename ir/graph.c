/* The op table's projection, and the graph's own operations: make, redirect, compact, clone. */
#include "ir/graph.h"

#include <string.h>

#define FLOAT MOT_CLASS_FLOAT
#define INT MOT_CLASS_INT
#define BOOL MOT_CLASS_BOOL
#define LINEAR(i) (1u << (i))
#define OWN_GRADIENT MOT_FLAG_OWN_GRADIENT
#define UPDATE MOT_FLAG_UPDATE
#define ELEMENTWISE MOT_FLAG_ELEMENTWISE
#define REGION MOT_FLAG_REGION
#define PER_OUTPUT MOT_PER_OUTPUT
enum { GIVES_SAME = 0, GIVES_BOOL = 1 };

#define ATTR(id, kind, name) {#name, MOT_ATTR_##kind, offsetof(MotAttr_##id, name)},
#define ATTRS(id, fields) static const MotAttrField fields_##id[] = {fields{NULL, 0, 0}};
#include "ir/attrs.def"
#undef ATTR
#undef ATTRS

static const MotOpInfo infos[MOT_N_OPS] = {
    [MOT_OP_NONE] = {.name = "none", .attrs_name = "none"},
#define POINTWISE(id, name_, arity, classes, result, expression_)                                  \
    [MOT_OP_##id] = {.name = #name_,                                                               \
                     .class = MOT_POINTWISE,                                                       \
                     .n_min = arity,                                                               \
                     .n_max = arity,                                                               \
                     .n_out = 1,                                                                   \
                     .operand_classes = classes,                                                   \
                     .gives_bool = GIVES_##result,                                                 \
                     .expression = #expression_,                                                   \
                     .attrs_name = "none",                                                         \
                     .attrs_bytes = sizeof(MotAttr_none),                                          \
                     .fields = fields_none},
#define OP(id, name_, kind_, n_min_, n_max_, n_out_, attrs_, flags_)                               \
    [MOT_OP_##id] = {.name = #name_,                                                               \
                     .class = MOT_##kind_,                                                         \
                     .n_min = n_min_,                                                              \
                     .n_max = n_max_,                                                              \
                     .n_out = n_out_,                                                              \
                     .attrs_name = #attrs_,                                                        \
                     .attrs_bytes = sizeof(MotAttr_##attrs_),                                      \
                     .fields = fields_##attrs_,                                                    \
                     .flags = flags_},
#include "ir/ops.def"
};

const char *const mot_role_names[] = {"forward", "dx", "dw", "update"};

const MotOpInfo *mot_op_info(MotOpKind kind)
{
    return &infos[kind];
}

MotOpKind mot_op_find(const char *name)
{
    for (int kind = 1; kind < MOT_N_OPS; kind++)
        if (strcmp(infos[kind].name, name) == 0)
            return (MotOpKind)kind;
    return MOT_OP_NONE;
}

MotGraph *mot_graph_make(MotCtx *ctx, const char *name)
{
    MotGraph *g = mot_arena_new(&ctx->arena, MotGraph);
    g->ctx = ctx;
    g->name = mot_intern(ctx, name);
    mot_vec_push(&ctx->arena, &g->values, (MotValueInfo){0});
    mot_vec_push(&ctx->arena, &g->ops, (MotOp){0});
    return g;
}

/* ---- Regions ---- */

MotSignature mot_graph_signature(const MotGraph *g)
{
    MotSignature s = {.n_in = 0};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT && s.n_in++ < MOT_MAX_OPERANDS)
            s.in[s.n_in - 1] = op->out[0];
        else if (op->kind == MOT_OP_OUTPUT && s.n_out++ < MOT_MAX_RESULTS)
            s.out[s.n_out - 1] = op->in[0];
    }
    return s;
}

int mot_graph_region_depth(const MotGraph *g)
{
    int depth = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        int inner = op->region ? 1 + mot_graph_region_depth(op->region) : 0;
        depth = inner > depth ? inner : depth;
    }
    return depth;
}

uint32_t mot_op_n_results(MotOpKind kind, const MotGraph *region)
{
    if (infos[kind].n_out != MOT_PER_OUTPUT)
        return infos[kind].n_out;
    return region ? mot_graph_signature(region).n_out : 0;
}

MotOpIter mot_op_iter(const MotGraph *g)
{
    return (MotOpIter){.graphs = {g}};
}

bool mot_op_iter_next(MotOpIter *it)
{
    if (it->op && it->op->region && it->depth < MOT_MAX_REGION_DEPTH) {
        it->graphs[++it->depth] = it->op->region;
        it->next[it->depth] = 0;
    }
    while (it->next[it->depth] == it->graphs[it->depth]->body.n)
        if (it->depth-- == 0)
            return false;
    it->graph = it->graphs[it->depth];
    it->op = mot_graph_op(it->graph, it->graph->body.data[it->next[it->depth]++]);
    return true;
}

/* ---- Uses, liveness, copies ---- */

void mot_graph_replace(MotGraph *g, const MotValue *old_values, const MotValue *new_values,
                       uint32_t n)
{
    MotArenaMark mark = mot_arena_mark(&g->ctx->arena);
    MotValue *to = mot_arena_array(&g->ctx->arena, MotValue, g->values.n);
    for (uint32_t i = 0; i < n; i++)
        to[old_values[i]] = new_values[i];
    for (uint32_t i = 1; i < g->ops.n; i++) {
        MotOp *op = &g->ops.data[i];
        for (uint32_t k = 0; k < op->n_in; k++)
            if (to[op->in[k]])
                op->in[k] = to[op->in[k]];
    }
    mot_arena_rewind(&g->ctx->arena, mark);
}

/* The live ops in the order operands first, each as early as the old body has it. */
typedef struct {
    MotGraph *g;
    MotOpId *order, *stack;
    uint8_t *state; /* an op id: 0 new, 1 operands are being visited, 2 placed */
    uint32_t n;
} Ordering;

/* Depth-first over operands with an explicit stack: graphs are as deep as they are long. */
static void place_with_operands(Ordering *o, MotOpId root)
{
    uint32_t depth = 0;
    o->stack[depth++] = root;
    while (depth) {
        MotOpId id = o->stack[depth - 1];
        const MotOp *op = &o->g->ops.data[id];
        bool is_first = o->state[id] == 0;
        o->state[id] = o->state[id] ? o->state[id] : 1;
        uint32_t before = depth;
        for (uint32_t k = op->n_in; is_first && k-- > 0;) {
            MotOpId def = o->g->values.data[op->in[k]].def;
            if (def && o->state[def] == 0)
                o->stack[depth++] = def;
        }
        if (depth > before)
            continue;
        depth--;
        if (o->state[id] == 1) {
            o->state[id] = 2;
            o->order[o->n++] = id;
        }
    }
}

static bool is_root(const MotOp *op)
{
    return infos[op->kind].class == MOT_SINK || op->kind == MOT_OP_INPUT ||
           op->kind == MOT_OP_PARAM;
}

static Ordering order_live_ops(MotGraph *g)
{
    uint32_t n_edges = 1;
    for (uint32_t i = 1; i < g->ops.n; i++)
        n_edges += g->ops.data[i].n_in;
    Ordering o = {.g = g,
                  .order = mot_arena_array(&g->ctx->arena, MotOpId, g->ops.n),
                  .stack = mot_arena_array(&g->ctx->arena, MotOpId, g->ops.n + n_edges),
                  .state = mot_arena_array(&g->ctx->arena, uint8_t, g->ops.n)};
    /*
     * Sweep backwards for liveness, then place forwards so that the old order decides among what is
     * live.
     */
    uint8_t *is_live = mot_arena_array(&g->ctx->arena, uint8_t, g->ops.n);
    uint32_t depth = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        if (is_root(&g->ops.data[id]) && !is_live[id]) {
            is_live[id] = 1;
            o.stack[depth++] = id;
        }
    }
    while (depth) {
        const MotOp *op = &g->ops.data[o.stack[--depth]];
        for (uint32_t k = 0; k < op->n_in; k++) {
            MotOpId def = g->values.data[op->in[k]].def;
            if (def && !is_live[def]) {
                is_live[def] = 1;
                o.stack[depth++] = def;
            }
        }
    }
    for (uint32_t i = 0; i < g->body.n; i++)
        if (is_live[g->body.data[i]])
            place_with_operands(&o, g->body.data[i]);
    return o;
}

void mot_graph_compact(MotGraph *g)
{
    MotArena *arena = &g->ctx->arena;
    Ordering o = order_live_ops(g);
    MotOpId *new_op = mot_arena_array(arena, MotOpId, g->ops.n);
    MotValue *new_value = mot_arena_array(arena, MotValue, g->values.n);
    MotGraph fresh = {.ctx = g->ctx, .name = g->name};
    mot_vec_push(arena, &fresh.values, (MotValueInfo){0});
    mot_vec_push(arena, &fresh.ops, (MotOp){0});
    for (uint32_t i = 0; i < o.n; i++) {
        MotOp op = g->ops.data[o.order[i]];
        new_op[o.order[i]] = fresh.ops.n;
        for (uint32_t k = 0; k < op.n_in; k++)
            op.in[k] = new_value[op.in[k]];
        for (uint32_t k = 0; k < op.n_out; k++) {
            MotValueInfo value = g->values.data[op.out[k]];
            value.def = fresh.ops.n;
            new_value[op.out[k]] = fresh.values.n;
            op.out[k] = fresh.values.n;
            mot_vec_push(arena, &fresh.values, value);
        }
        mot_vec_push(arena, &fresh.body, fresh.ops.n);
        mot_vec_push(arena, &fresh.ops, op);
    }
    for (uint32_t i = 1; i < fresh.ops.n; i++)
        fresh.ops.data[i].fwd = new_op[fresh.ops.data[i].fwd];
    fresh.symbols.data = g->symbols.data;
    fresh.symbols.n = g->symbols.n;
    fresh.symbols.cap = g->symbols.cap;
    *g = fresh;
}

MotGraph *mot_graph_clone(MotCtx *ctx, const MotGraph *g)
{
    MotArena *arena = &ctx->arena;
    MotGraph *copy = mot_arena_new(arena, MotGraph);
    copy->ctx = ctx;
    copy->name = mot_intern(ctx, g->name);
    for (uint32_t i = 0; i < g->values.n; i++)
        mot_vec_push(arena, &copy->values, g->values.data[i]);
    for (uint32_t i = 0; i < g->ops.n; i++) {
        MotOp op = g->ops.data[i];
        op.in = mot_arena_copy(arena, op.in, op.n_in * sizeof *op.in);
        op.out = mot_arena_copy(arena, op.out, op.n_out * sizeof *op.out);
        op.attrs = op.attrs ? mot_arena_copy(arena, op.attrs, infos[op.kind].attrs_bytes) : NULL;
        op.region = op.region ? mot_graph_clone(ctx, op.region) : NULL;
        mot_vec_push(arena, &copy->ops, op);
    }
    for (uint32_t i = 0; i < g->body.n; i++)
        mot_vec_push(arena, &copy->body, g->body.data[i]);
    for (uint32_t i = 0; i < g->symbols.n; i++)
        mot_vec_push(arena, &copy->symbols, g->symbols.data[i]);
    return copy;
}

/* The steps of a scan that inference has accepted. */
static int64_t scan_steps(const MotGraph *g, const MotOp *op)
{
    const MotAttr_scan *a = mot_attrs(op, scan);
    return mot_graph_type(g, op->in[a->carried])->dims[a->axes.data[0]];
}

static double scan_flops(const MotGraph *g, const MotOp *op)
{
    double step = 0;
    for (uint32_t i = 0; i < op->region->body.n; i++)
        step += mot_op_flops(op->region, mot_graph_op(op->region, op->region->body.data[i]));
    return step * (double)scan_steps(g, op);
}

/* Every letter is one loop: the product over the letters of both operands. */
static double contract_flops(const MotGraph *g, const MotOp *op)
{
    double flops = 2;
    bool seen[128] = {false};
    const char *letter = mot_attrs(op, contract)->spec;
    char cut = mot_contract_cut(op);
    for (uint32_t k = 0; k < 2; k++, letter++)
        for (int d = 0; *letter != ',' && *letter != '-'; letter++, d++) {
            const MotType *type = mot_graph_type(g, op->in[*letter == cut ? 2 : k]);
            if (!seen[(int)*letter])
                flops *= (double)type->dims[*letter == cut ? 0 : d];
            seen[(int)*letter] = true;
        }
    return flops;
}

double mot_op_flops(const MotGraph *g, const MotOp *op)
{
    if (op->kind == MOT_OP_SCAN)
        return scan_flops(g, op);
    if (op->kind == MOT_OP_CONTRACT)
        return contract_flops(g, op);
    if (op->kind != MOT_OP_ATTENTION && op->kind != MOT_OP_ATTENTION_GRAD)
        return 0;
    const int64_t *q = mot_graph_type(g, op->in[0])->dims, *v = mot_graph_type(g, op->in[2])->dims;
    double scores = (double)(q[0] * q[1] * q[2]) * (double)v[1];
    double forward = 2 * scores * (double)(q[3] + v[3]);
    return op->kind == MOT_OP_ATTENTION ? forward : 2 * forward;
}

bool mot_op_is_elementwise(const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    return info->class == MOT_POINTWISE || info->flags & MOT_FLAG_ELEMENTWISE;
}

bool mot_op_is_full_sum(const MotGraph *g, const MotOp *op)
{
    return op->kind == MOT_OP_REDUCE_SUM && mot_graph_type(g, op->in[0])->rank > 0 &&
           mot_graph_type(g, op->out[0])->rank == 0;
}

bool mot_op_can_fuse(const MotGraph *g, const MotOp *a, const MotOp *b)
{
    return mot_op_is_elementwise(a) && mot_op_is_elementwise(b) &&
           mot_dims_equal(mot_graph_type(g, a->out[0]), mot_graph_type(g, b->out[0]));
}

bool mot_op_is_immediate(const MotGraph *g, const MotOp *op)
{
    return op->kind == MOT_OP_CONSTANT && mot_graph_type(g, op->out[0])->rank == 0;
}

bool mot_op_is_view(const MotGraph *g, const MotOp *op)
{
    if ((op->kind != MOT_OP_RESHAPE && op->kind != MOT_OP_SLICE) ||
        mot_op_is_immediate(g, mot_graph_def(g, op->in[0])))
        return false;
    if (op->kind == MOT_OP_RESHAPE)
        return true;
    const MotAttr_slice *a = mot_attrs(op, slice);
    const MotType *x = mot_graph_type(g, op->in[0]);
    for (int d = 1; d < x->rank; d++)
        if (a->size.data[d] != x->dims[d])
            return false;
    return x->rank > 0 && a->step.data[0] == 1;
}

bool mot_op_can_end(const MotGraph *g, const MotOp *a, const MotOp *b)
{
    return mot_op_is_elementwise(a) &&
           (b->kind == MOT_OP_REDUCE_SUM || b->kind == MOT_OP_REDUCE_MAX) &&
           mot_dims_equal(mot_graph_type(g, a->out[0]), mot_graph_type(g, b->in[0]));
}

bool mot_op_can_pair(const MotOp *loss, const MotOp *grad)
{
    if (loss->kind != MOT_OP_CROSS_ENTROPY || grad->kind != MOT_OP_CROSS_ENTROPY_GRAD)
        return false;
    const MotAttr_cross_entropy *a = mot_attrs(loss, cross_entropy),
                                *b = mot_attrs(grad, cross_entropy);
    return loss->in[0] == grad->in[0] && loss->in[1] == grad->in[1] && a->ignore == b->ignore &&
           a->smoothing == b->smoothing;
}

MotLoc mot_op_loc(const MotGraph *g, const MotOp *op)
{
    MotArena *arena = &g->ctx->arena;
    const char *place = op->origin
                            ? mot_arena_printf(arena, "node %s", mot_quote(arena, op->origin))
                            : mot_arena_printf(arena, "op %s", infos[op->kind].name);
    return (MotLoc){NULL, place};
}
