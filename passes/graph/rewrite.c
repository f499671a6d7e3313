/*
 * The driver of rewrite rules. Within a sweep replaced values are only noted (`to`) and every op
 * sees its operands through that note; one pass over all operands at the end makes it true. What a
 * rule builds is visited at once and takes the place of what it replaces, so that users see it
 * finished and the order of the body is kept.
 */
#include "passes/graph/rewrite.h"

/* More firings than this for each op at the start: the rules undo one another. */
enum { MAX_FIRINGS_PER_OP = 200 };

typedef struct {
    const MotRule *rule;
    MotPattern *pattern;
    long n_fired;
} Compiled;

typedef struct {
    MotGraph *g;
    MotVec(Compiled) rules;
    MotVec(MotValue) to; /* what replaced a value; 0: nothing */
    MotVec(uint32_t) uses;
    MotVec(MotOpId) body; /* of the sweep */
    long n_fired, max_fired;
} Rewriter;

static MotStatus compile(Rewriter *r, const MotRules *tables, uint32_t n_tables)
{
    MotCtx *ctx = r->g->ctx;
    for (uint32_t t = 0; t < n_tables; t++)
        for (uint32_t i = 0; i < tables[t].n; i++) {
            Compiled c = {.rule = &tables[t].data[i]};
            MOT_TRY(mot_pattern_parse(ctx, c.rule->pattern, &c.pattern));
            mot_vec_push(&ctx->arena, &r->rules, c);
        }
    return MOT_OK;
}

static void grow(Rewriter *r)
{
    while (r->to.n < r->g->values.n) {
        mot_vec_push(&r->g->ctx->arena, &r->to, 0);
        mot_vec_push(&r->g->ctx->arena, &r->uses, 0);
    }
}

static MotValue resolve(const Rewriter *r, MotValue v)
{
    while (v < r->to.n && r->to.data[v])
        v = r->to.data[v];
    return v;
}

/* Points the operands of ops [first, end) at what replaced them, and counts their uses. */
static void resolve_operands(Rewriter *r, MotOpId first, MotOpId end)
{
    for (MotOpId id = first; id < end; id++) {
        MotOp *op = mot_graph_op(r->g, id);
        for (uint32_t i = 0; i < op->n_in; i++)
            op->in[i] = resolve(r, op->in[i]);
    }
}

static void count_uses(Rewriter *r, MotOpId first, MotOpId end)
{
    for (MotOpId id = first; id < end; id++) {
        const MotOp *op = mot_graph_op(r->g, id);
        for (uint32_t i = 0; i < op->n_in; i++) {
            MOT_ASSERT(op->in[i] < r->uses.n);
            r->uses.data[op->in[i]]++;
        }
    }
}

static MotStatus replace(Rewriter *r, const MotRule *rule, MotValue old, MotValue new)
{
    MotGraph *g = r->g;
    if (!mot_type_equal(mot_graph_type(g, old), mot_graph_type(g, new)))
        return mot_fail(g->ctx, MOT_ERR_INTERNAL, mot_op_loc(g, mot_graph_def(g, old)),
                        "rule %s changes a type", rule->name);
    if (resolve(r, new) == old)
        return mot_fail(g->ctx, MOT_ERR_INTERNAL, mot_op_loc(g, mot_graph_def(g, old)),
                        "rule %s replaces a value by itself", rule->name);
    MOT_ASSERT(old < r->to.n && new < r->uses.n);
    r->to.data[old] = new;
    r->uses.data[new] += r->uses.data[old];
    if (!g->values.data[new].name)
        g->values.data[new].name = g->values.data[old].name;
    return MOT_OK;
}

static bool may_fire(const MotCtx *ctx)
{
    return ctx->debug.rule_limit == 0 || ctx->rule_firings < ctx->debug.rule_limit;
}

static MotStatus fire(Rewriter *r, Compiled *c, const MotMatch *m, MotValue new, MotOpId first_new)
{
    grow(r);
    count_uses(r, first_new, r->g->ops.n);
    MOT_TRY(replace(r, c->rule, m->root, new));
    for (uint32_t i = 0; i < m->n_replaced; i++)
        MOT_TRY(replace(r, c->rule, m->old[i], m->new[i]));
    c->n_fired++;
    r->g->ctx->rule_firings++;
    if (++r->n_fired > r->max_fired)
        return mot_fail(r->g->ctx, MOT_ERR_INTERNAL, MOT_NOWHERE,
                        "rewrite rules do not come to an end; the last was %s", c->rule->name);
    return MOT_OK;
}

/* Tries all rules on one op; at most one fires. */
static MotStatus try_rules(Rewriter *r, MotOpId id)
{
    MotGraph *g = r->g;
    grow(r);
    resolve_operands(r, id, id + 1);
    const MotOp op = *mot_graph_op(g, id); /* ops move while an action builds */
    MOT_ASSERT(op.n_out == 0 || op.out[0] < r->to.n);
    if (op.n_out == 0 || r->to.data[op.out[0]])
        return MOT_OK;
    MotBuilder b = {.graph = g, .origin = op.origin, .fwd = op.fwd, .role = op.role};
    MotMatch m = {.graph = g, .b = &b, .uses = r->uses.data, .n_uses = r->uses.n};
    for (uint32_t i = 0; i < r->rules.n && may_fire(g->ctx); i++) {
        Compiled *c = &r->rules.data[i];
        MotOpId first_new = g->ops.n;
        if (!mot_pattern_may_match(c->pattern, op.kind) ||
            !mot_pattern_match(c->pattern, &m, op.out[0]))
            continue;
        MotValue new = c->rule->action(&m);
        if (g->ctx->status != MOT_OK) {
            mot_note(g->ctx, "in rewrite rule %s", c->rule->name);
            return g->ctx->status;
        }
        if (new && new != op.out[0])
            return fire(r, c, &m, new, first_new);
    }
    return MOT_OK;
}

/*
 * Visits an op, and what is built for it, which comes before it. As deep as firings follow from one
 * another.
 */
static MotStatus visit(Rewriter *r, MotOpId id)
{
    MotOpId first_new = r->g->ops.n;
    MOT_TRY(try_rules(r, id));
    for (MotOpId new = first_new, end = r->g->ops.n; new < end; new ++)
        MOT_TRY(visit(r, new));
    mot_vec_push(&r->g->ctx->arena, &r->body, id);
    return MOT_OK;
}

static MotStatus sweep(Rewriter *r)
{
    MotGraph *g = r->g;
    r->to.n = r->uses.n = r->body.n = 0;
    grow(r);
    count_uses(r, 1, g->ops.n);
    for (uint32_t i = 0, n = g->body.n; i < n; i++)
        MOT_TRY(visit(r, g->body.data[i]));
    grow(r);
    resolve_operands(r, 1, g->ops.n);
    g->body.n = 0;
    for (uint32_t i = 0; i < r->body.n; i++)
        mot_vec_push(&g->ctx->arena, &g->body, r->body.data[i]);
    mot_graph_compact(g);
    return MOT_OK;
}

static void log_firings(const Rewriter *r)
{
    MotCtx *ctx = r->g->ctx;
    for (uint32_t i = 0; i < r->rules.n; i++) {
        const Compiled *c = &r->rules.data[i];
        if (c->n_fired)
            mot_debug(ctx, "rule %s fired %ld times", c->rule->name, c->n_fired);
    }
}

MotStatus mot_rewrite(MotGraph *g, const MotRules *tables, uint32_t n_tables, bool *out_changed)
{
    Rewriter r = {.g = g, .max_fired = (long)MAX_FIRINGS_PER_OP * (g->ops.n + 1)};
    MOT_TRY(compile(&r, tables, n_tables));
    for (long before = -1; r.n_fired != before;) {
        before = r.n_fired;
        MOT_TRY(sweep(&r));
    }
    *out_changed |= r.n_fired > 0;
    log_firings(&r);
    return MOT_OK;
}

MotValue mot_rule_to_x(MotMatch *m)
{
    const MotType root = *mot_graph_type(m->graph, m->root);
    return mot_broadcast(m->b, mot_match_value(m, 'x'), root.rank, root.dims);
}
