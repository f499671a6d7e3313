/*
 * The tables of the intra-operator problem. One a variable for its operators and stored sources;
 * one a value for the conversions between the sharding in which it is left and those that its users
 * need, each made once however many need it (as lowering does). What is kept from the forward to
 * the backward pass, and from there to the update, counts as resident.
 */
#include "passes/plan/intra.h"

enum { MAX_SCOPE = 6, MAX_SHARED_TABLE = 20000 };

/* The sharding in which a value is left. */
static MotSharding left_as(const MotIntra *in, MotValue v, const uint32_t *choice)
{
    MotOpId def = in->g->values.data[v].def;
    return mot_intra_result(in, def, mot_intra_factor(in, def, choice),
                            in->g->values.data[v].def_index);
}

static bool is_assignment(const MotOp *op)
{
    return mot_op_info(op->kind)->class == MOT_SINK && op->kind != MOT_OP_OUTPUT;
}

/* The op whose choice decides what a user needs: itself, or the parameter that is assigned. */
static MotOpId decider_of(const MotIntra *in, MotUser user)
{
    const MotOp *op = mot_graph_op(in->g, user.op);
    return is_assignment(op) ? in->g->values.data[op->in[0]].def : user.op;
}

/* The sharding that a user needs; false if it needs none (a parameter that is assigned to). */
static bool needed_as(const MotIntra *in, MotUser user, const uint32_t *choice, MotSharding *out)
{
    const MotOp *op = mot_graph_op(in->g, user.op);
    if (is_assignment(op)) {
        *out = left_as(in, op->in[0], choice);
        return user.operand == 1;
    }
    *out = mot_intra_operand(in, user.op, mot_intra_factor(in, user.op, choice), user.operand);
    return true;
}

/* An axis before the last that splits it leaves each of its places about as much. */
static void hold(const MotIntra *in, MotLabel *label, const MotType *type, MotSharding s)
{
    double bytes = (double)mot_type_bytes(type);
    for (uint32_t a = 0; a < in->axis; a++)
        bytes /= s.axis[a] >= 0 ? in->cost->mesh->axis[a].n : 1;
    *(s.axis[in->axis] >= 0 ? &label->split : &label->whole) += bytes;
}

/*
 * Forward, backward, update: a value that is used in a later phase than its own is kept until then.
 */
static int phase_of(const MotOp *op)
{
    static const int phases[] = {
        [MOT_ROLE_FORWARD] = 0, [MOT_ROLE_DX] = 1, [MOT_ROLE_DW] = 1, [MOT_ROLE_UPDATE] = 2};
    return phases[op->role];
}

static bool is_stored(const MotOp *op)
{
    return op->kind == MOT_OP_PARAM || op->kind == MOT_OP_INPUT || op->kind == MOT_OP_CONSTANT;
}

/* A form of a value that was counted already. */
typedef struct {
    MotSharding s;
    bool is_kept;
} FormSeen;

/*
 * The label of value v for these users: conversions, and bytes of the forms that are kept. Equal
 * needs count once.
 */
static MotLabel price_value(const MotIntra *in, MotValue v, const MotUser *users, uint32_t n,
                            const uint32_t *choice)
{
    MotLabel label = {0};
    const MotType *type = mot_graph_type(in->g, v);
    const MotOp *def = mot_graph_def(in->g, v);
    MotSharding have = left_as(in, v, choice);
    FormSeen seen[MOT_MAX_RANK + 2] = {
        {have, is_stored(def)}}; /* replicated, or split in a dim; units may differ rarely */
    uint32_t n_seen = 1;
    for (uint32_t i = 0; i < n; i++) {
        MotSharding need;
        if (!needed_as(in, users[i], choice, &need))
            continue;
        uint32_t k = 0;
        while (k < n_seen && !mot_sharding_equal(seen[k].s, need))
            k++;
        if (k == n_seen) {
            MotTransition t = mot_cost_transition(in->cost, v, have, need, users[i].op);
            label.seconds += mot_cost_convert(in->cost, &t, NULL, NULL).seconds;
            if (k == sizeof seen / sizeof *seen)
                continue;
            seen[n_seen++] = (FormSeen){need, false};
        }
        if (!seen[k].is_kept && phase_of(mot_graph_op(in->g, users[i].op)) > phase_of(def)) {
            seen[k].is_kept = true;
            hold(in, &label, type, need);
        }
    }
    return label;
}

/* Adds `var` (index + 1) to the scope if it has choices; keeps the scope ascending. */
static void add_to_scope(const MotIntra *in, uint32_t *scope, uint32_t *n, uint32_t var)
{
    if (!var || in->problem.n_choices[var - 1] < 2)
        return;
    uint32_t at = *n;
    for (uint32_t i = 0; i < *n; i++)
        if (scope[i] == var - 1)
            return;
    while (at > 0 && scope[at - 1] > var - 1) {
        scope[at] = scope[at - 1];
        at--;
    }
    scope[at] = var - 1;
    (*n)++;
}

static bool sharding_varies(const MotIntra *in, MotOpId id, bool is_result, uint32_t slot)
{
    const MotVar *var = &in->vars.data[in->var_of[id] - 1];
    MotSharding first = mot_replicated;
    for (uint32_t s = 0; s < var->choices.n; s++) {
        int factor = var->factor[(size_t)s * var->members.n + in->member_of[id]];
        MotSharding now = is_result ? mot_intra_result(in, id, factor, slot)
                                    : mot_intra_operand(in, id, factor, slot);
        if (s > 0 && !mot_sharding_equal(now, first))
            return true;
        first = now;
    }
    return false;
}

static void find_scope(const MotIntra *in, MotValue v, const MotUser *users, uint32_t n_users,
                       uint32_t *scope, uint32_t *out_n)
{
    MotOpId def = in->g->values.data[v].def;
    *out_n = 0;
    if (sharding_varies(in, def, true, in->g->values.data[v].def_index))
        add_to_scope(in, scope, out_n, in->var_of[def]);
    for (uint32_t i = 0; i < n_users; i++) {
        MotOpId id = decider_of(in, users[i]);
        bool is_sink = id != users[i].op;
        if (in->var_of[id] && sharding_varies(in, id, is_sink, is_sink ? 0 : users[i].operand))
            add_to_scope(in, scope, out_n, in->var_of[id]);
    }
}

/* Adds a table over `scope` whose entries `price` gives. */
static void add_value_table(MotIntra *in, MotValue v, const MotUser *users, uint32_t n_users,
                            const uint32_t *scope, uint32_t n_scope)
{
    MotArena *arena = &in->ctx->arena;
    uint32_t *choice = mot_arena_array(arena, uint32_t, in->vars.n + 1);
    size_t n = 1, at = 0;
    for (uint32_t i = 0; i < n_scope; i++)
        n *= in->problem.n_choices[scope[i]];
    MotTable table = {.n_scope = n_scope,
                      .scope = mot_arena_copy(arena, scope, n_scope * sizeof *scope),
                      .label = mot_arena_array(arena, MotLabel, n)};
    bool is_zero = true;
    do {
        table.label[at] = price_value(in, v, users, n_users, choice);
        is_zero &= table.label[at].seconds == 0 && table.label[at].whole == 0 &&
                   table.label[at].split == 0;
        at++;
    } while (mot_table_next(table.scope, n_scope, in->problem.n_choices, choice));
    if (!is_zero)
        mot_vec_push(arena, &in->problem.tables, table);
}

static void add_value(MotIntra *in, MotValue v)
{
    MotArena *arena = &in->ctx->arena;
    const MotUsers *users = &in->users[v];
    uint32_t *scope = mot_arena_array(arena, uint32_t, users->n + 1), n_scope;
    find_scope(in, v, users->data, users->n, scope, &n_scope);
    double entries = 1;
    for (uint32_t i = 0; i < n_scope; i++)
        entries *= in->problem.n_choices[scope[i]];
    if (n_scope <= MAX_SCOPE && entries <= (double)MAX_SHARED_TABLE) {
        add_value_table(in, v, users->data, users->n, scope, n_scope);
        return;
    }
    in->n_split_tables++;
    for (uint32_t i = 0; i < users->n; i++) {
        find_scope(in, v, &users->data[i], 1, scope, &n_scope);
        add_value_table(in, v, &users->data[i], 1, scope, n_scope);
    }
}

/* Operators, stored sources, and the copies into assigned parameters, by choice of the variable. */
static void add_var_table(MotIntra *in, uint32_t v)
{
    MotArena *arena = &in->ctx->arena;
    const MotVar *var = &in->vars.data[v];
    MotTable table = {.n_scope = 1,
                      .scope = mot_arena_copy(arena, &v, sizeof v),
                      .label = mot_arena_array(arena, MotLabel, var->choices.n)};
    for (uint32_t s = 0; s < var->choices.n; s++)
        for (uint32_t m = 0; m < var->members.n; m++) {
            MotOpId id = var->members.data[m];
            const MotOp *op = mot_graph_op(in->g, id);
            int factor = var->factor[(size_t)s * var->members.n + m];
            MotLabel *label = &table.label[s];
            label->seconds += mot_cost_op(in->cost, op, &in->factors[id], factor, NULL);
            if (!is_stored(op))
                continue;
            MotSharding own = mot_intra_result(in, id, factor, 0);
            const MotUsers *users = &in->users[op->out[0]];
            hold(in, label, mot_graph_type(in->g, op->out[0]), own);
            for (uint32_t u = 0; u < users->n; u++) {
                const MotOp *user = mot_graph_op(in->g, users->data[u].op);
                if (user->kind == MOT_OP_ASSIGN && users->data[u].operand == 0 &&
                    !in->cost->fusion.is_in_place[user->in[1]])
                    label->seconds +=
                        mot_cost_copy(in->cost, mot_graph_type(in->g, op->out[0]), own, 1, NULL);
            }
        }
    mot_vec_push(arena, &in->problem.tables, table);
}

void mot_intra_make_tables(MotIntra *in)
{
    MotProblem *p = &in->problem;
    p->n_vars = in->vars.n;
    p->n_choices = mot_arena_array(&in->ctx->arena, uint32_t, in->vars.n + 1);
    for (uint32_t v = 0; v < in->vars.n; v++)
        p->n_choices[v] = in->vars.data[v].choices.n;
    for (uint32_t v = 0; v < in->vars.n; v++)
        add_var_table(in, v);
    for (uint32_t i = 0; i < in->g->body.n; i++) {
        const MotOp *op = mot_graph_op(in->g, in->g->body.data[i]);
        for (uint32_t k = 0; k < op->n_out; k++)
            if (in->users[op->out[k]].n)
                add_value(in, op->out[k]);
    }
}
