/*
 * Operators are equal when the expressions are that they stand for: a hash a value, from the leaves
 * on. Of several equal ones the k-th goes with the k-th.
 */
#include "passes/plan/transfer.h"

#include "ir/attrs.h"
#include "passes/plan/choice.h"

#include <string.h>

static void add_number(MotText *key, uint64_t number)
{
    mot_text_add(key, (const char *)&number, sizeof number);
}

static void add_type(MotText *key, const MotType *type)
{
    add_number(key, (uint64_t)type->dtype);
    add_number(key, (uint64_t)type->rank);
    mot_text_add(key, (const char *)type->dims, (size_t)type->rank * sizeof *type->dims);
}

/* [ops] */
static uint64_t *hash_ops(MotCtx *ctx, const MotGraph *g)
{
    uint64_t *hash = mot_arena_array(&ctx->arena, uint64_t, g->ops.n);
    MotText key;
    mot_text_init(&key, &ctx->arena);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        key.n = 0;
        add_number(&key, (uint64_t)op->kind);
        mot_attrs_key(mot_op_info(op->kind)->fields, op->attrs, 0, &key);
        if (op->region)
            mot_graph_print(op->region, &key);
        for (uint32_t k = 0; k < op->n_in; k++) {
            const MotValueInfo *in = &g->values.data[op->in[k]];
            add_number(&key, op->in[k] ? hash[in->def] + in->def_index : 0);
        }
        for (uint32_t k = 0; k < op->n_out; k++)
            add_type(&key, mot_graph_type(g, op->out[k]));
        hash[g->body.data[i]] = mot_hash(key.data, key.n);
    }
    return hash;
}

/* The operators of a graph by hash. */
typedef struct {
    MotMap first;  /* hash -> the first that is not taken */
    MotOpId *next; /* [ops] the next one that is equal */
} Index;

static Index make_index(MotCtx *ctx, const MotGraph *g)
{
    Index index = {.next = mot_arena_array(&ctx->arena, MotOpId, g->ops.n)};
    uint64_t *hash = hash_ops(ctx, g);
    mot_map_init(&index.first, &ctx->arena);
    for (uint32_t i = g->body.n; i-- > 0;) {
        MotOpId id = g->body.data[i];
        uint64_t next = 0;
        mot_map_get(&index.first, &hash[id], sizeof hash[id], &next);
        index.next[id] = (MotOpId)next;
        mot_map_put(&index.first, &hash[id], sizeof hash[id], id);
    }
    return index;
}

static MotOpId take(Index *index, uint64_t hash)
{
    uint64_t id = 0;
    mot_map_get(&index->first, &hash, sizeof hash, &id);
    if (id)
        mot_map_put(&index->first, &hash, sizeof hash, index->next[id]);
    return (MotOpId)id;
}

static const char *type_text(MotArena *arena, const MotType *type)
{
    return mot_arena_printf(arena, "%s[%s]", mot_dtype_name(type->dtype),
                            mot_shape_text(arena, type->dims, type->rank));
}

/* What sets the plan's operator apart from that of the same name in the model. */
static const char *difference(MotArena *arena, const MotType *type, const MotOp *op,
                              const MotType *other_type, const MotOp *other)
{
    if (!mot_type_equal(type, other_type))
        return mot_arena_printf(arena, "is %s", type_text(arena, other_type));
    MotText a, b;
    mot_text_init(&a, arena);
    mot_text_init(&b, arena);
    mot_attrs_key(mot_op_info(op->kind)->fields, op->attrs, 0, &a);
    mot_attrs_key(mot_op_info(op->kind)->fields, other->attrs, 0, &b);
    bool same = a.n == b.n && memcmp(a.data, b.data, a.n) == 0;
    return same ? "gets other operands, as other options of loss or optimizer give it"
                : "has other attributes";
}

/* Names the operator, and what the plan has in its place. */
static MotStatus refuse(const MotPlan *from, const MotGraph *g, const MotOp *op)
{
    MotArena *arena = &from->ctx->arena;
    const char *name = mot_op_info(op->kind)->name, *node = mot_choice_node(op);
    mot_fail(from->ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
             "the plan is of another graph: it has no %s %s : %s like that of the model", name,
             mot_quote(arena, node), type_text(arena, mot_graph_type(g, op->out[0])));
    for (uint32_t i = 0; i < from->graph->body.n; i++) {
        const MotOp *other = mot_graph_op(from->graph, from->graph->body.data[i]);
        if (other->kind != op->kind || strcmp(mot_choice_node(other), node) != 0)
            continue;
        mot_note(from->ctx, "in the plan it %s",
                 difference(arena, mot_graph_type(g, op->out[0]), op,
                            mot_graph_type(from->graph, other->out[0]), other));
        break;
    }
    return from->ctx->status;
}

MotStatus mot_plan_transfer(const MotPlan *from, MotGraph *graph, MotPlan **out_plan)
{
    MotCtx *ctx = from->ctx;
    MotPlan *plan = mot_plan_new(ctx, graph, from->cluster);
    MotOpPlan *ops = plan->ops;
    MotSharding *values = plan->values;
    uint64_t *hash = hash_ops(ctx, graph);
    Index index = make_index(ctx, from->graph);
    *plan = *from;
    plan->graph = graph;
    plan->ops = ops;
    plan->values = values;
    for (uint32_t i = 0; i < graph->body.n; i++) {
        MotOpId id = graph->body.data[i];
        const MotOp *op = mot_graph_op(graph, id);
        MotFactors factors;
        if (mot_op_info(op->kind)->class == MOT_SINK) { /* it splits nothing */
            ops[id].stage = ops[graph->values.data[op->in[op->n_in - 1]].def].stage;
            continue;
        }
        MotOpId equal = take(&index, hash[id]);
        if (!equal)
            return refuse(from, graph, op);
        MOT_TRY(mot_factors(graph, op, &factors));
        ops[id] = from->ops[equal];
        mot_plan_apply_factors(plan, id, &factors);
    }
    *out_plan = plan;
    return mot_plan_verify(plan);
}
