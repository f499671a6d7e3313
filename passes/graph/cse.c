/*
 * Common subexpressions: an op equal to an earlier one (kind, attributes, operands, role) gives the
 * earlier one's results.
 *
 * Constants are equal by content. Small ones are their own key; large ones are looked up by hash
 * and compared. A region is part of its op's key as a whole; names of its inputs and outputs tell
 * nothing, their places do. Sources that stand for something outside (input, param) are never
 * shared. One sweep in body order, through a note of what was replaced.
 */
#include "passes/graph/simplify.h"

#include "ir/attrs.h"

#include <string.h>

enum { MAX_KEY_DATA = 1024 };

typedef struct {
    MotGraph *g;
    MotMap seen; /* key -> op */
    MotText key;
    MotValue *to; /* [values] */
    int depth;    /* of regions around what is added to the key */
    bool is_changed;
} Sharing;

static void add_bytes(Sharing *s, const void *bytes, size_t n)
{
    mot_text_add(&s->key, bytes, n);
}

static void add_number(Sharing *s, uint64_t number)
{
    add_bytes(s, &number, sizeof number);
}

static void add_type(Sharing *s, const MotType *type)
{
    add_number(s, (uint64_t)type->dtype);
    add_number(s, (uint64_t)type->rank);
    add_bytes(s, type->dims, (size_t)type->rank * sizeof *type->dims);
}

static void add_region(Sharing *s, const MotGraph *region);

static void add_op(Sharing *s, const MotOp *op)
{
    add_number(s, (uint64_t)op->kind);
    add_number(s, (uint64_t)op->role);
    add_number(s, op->fwd);
    add_number(s, op->n_in);
    add_bytes(s, op->in, op->n_in * sizeof *op->in);
    if (op->kind != MOT_OP_INPUT && op->kind != MOT_OP_OUTPUT) /* those are told by place */
        mot_attrs_key(mot_op_info(op->kind)->fields, op->attrs, s->depth ? SIZE_MAX : MAX_KEY_DATA,
                      &s->key);
    if (op->region)
        add_region(s, op->region);
}

/*
 * Values by their ids, which agree in equal regions once those are compact, as the rewriter leaves
 * them.
 */
static void add_region(Sharing *s, const MotGraph *region)
{
    s->depth++;
    add_number(s, region->body.n);
    for (uint32_t i = 0; i < region->body.n; i++) {
        const MotOp *op = mot_graph_op(region, region->body.data[i]);
        add_op(s, op);
        add_number(s, op->n_out);
        add_bytes(s, op->out, op->n_out * sizeof *op->out);
        for (uint32_t k = 0; k < op->n_out; k++)
            add_type(s, mot_graph_type(region, op->out[k]));
    }
    s->depth--;
}

static void make_key(Sharing *s, const MotOp *op)
{
    s->key.n = 0;
    add_op(s, op);
}

/* Where the key holds a hash only: whether the contents are really equal. */
static bool has_same_contents(const MotOp *a, const MotOp *b)
{
    if (a->kind != MOT_OP_CONSTANT)
        return true;
    const MotTensor *x = &mot_attrs(a, constant)->data, *y = &mot_attrs(b, constant)->data;
    size_t n = (size_t)mot_type_bytes(&x->type);
    return n <= MAX_KEY_DATA || memcmp(x->data, y->data, n) == 0;
}

static bool may_be_shared(const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    return info->class != MOT_SINK && op->kind != MOT_OP_INPUT && op->kind != MOT_OP_PARAM &&
           !(info->flags & MOT_FLAG_UPDATE);
}

static void share(Sharing *s, MotOpId id)
{
    MotOp *op = mot_graph_op(s->g, id);
    uint64_t earlier;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (s->to[op->in[i]])
            op->in[i] = s->to[op->in[i]];
    if (!may_be_shared(op))
        return;
    make_key(s, op);
    if (!mot_map_get(&s->seen, s->key.data, s->key.n, &earlier)) {
        mot_map_put(&s->seen, s->key.data, s->key.n, id);
        return;
    }
    const MotOp *first = mot_graph_op(s->g, (MotOpId)earlier);
    if (!has_same_contents(first, op))
        return;
    for (uint32_t i = 0; i < op->n_out; i++) {
        MotValueInfo *values = s->g->values.data;
        s->to[op->out[i]] = first->out[i];
        if (!values[first->out[i]].name)
            values[first->out[i]].name = values[op->out[i]].name;
    }
    s->is_changed = true;
}

void mot_share_common(MotGraph *g, bool *out_changed)
{
    MotArena *arena = &g->ctx->arena;
    Sharing s = {.g = g, .to = mot_arena_array(arena, MotValue, g->values.n)};
    mot_map_init(&s.seen, arena);
    mot_text_init(&s.key, arena);
    for (uint32_t i = 0; i < g->body.n; i++)
        share(&s, g->body.data[i]);
    if (s.is_changed)
        mot_graph_compact(g);
    *out_changed |= s.is_changed;
}
