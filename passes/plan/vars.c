/*
 * Operators -> variables. Derived operators join their forward operator, pointwise ones the
 * operator that they follow, parameters with one user that user. What a derived operator splits,
 * given the leader's choice, is the cheapest by the cost function with gradients sharded as the
 * values that they belong to; so no operator needs a rule of its own here.
 */
#include "passes/plan/intra.h"

static bool is_source(const MotOp *op)
{
    return op->kind == MOT_OP_PARAM || op->kind == MOT_OP_INPUT || op->kind == MOT_OP_CONSTANT;
}

static bool is_sink(const MotOp *op)
{
    return mot_op_info(op->kind)->class == MOT_SINK;
}

/* The forward op that an op belongs to, itself if it is none's. */
static MotOpId forward_of(const MotGraph *g, MotOpId id)
{
    while (mot_graph_op(g, id)->fwd)
        id = mot_graph_op(g, id)->fwd;
    return id;
}

/* Whether the op is derived from one of the variable `var` (index + 1). */
static bool is_derived_in(const MotIntra *in, MotOpId id, uint32_t var)
{
    MotOpId forward = forward_of(in->g, id);
    return forward != id && var && in->var_of[forward] == var;
}

static const MotFix *find_fix(const MotOp *op, const MotFix *fixes, uint32_t n_fixes)
{
    for (uint32_t i = n_fixes; i-- > 0;) /* the last one wins */
        if (mot_glob_match(fixes[i].glob, mot_choice_node(op)))
            return &fixes[i];
    return NULL;
}

static void join(MotIntra *in, MotOpId id, uint32_t var)
{
    in->var_of[id] = var + 1;
    in->member_of[id] = in->vars.data[var].members.n;
    mot_vec_push(&in->ctx->arena, &in->vars.data[var].members, id);
}

static void make_var(MotIntra *in, MotOpId leader)
{
    mot_vec_push(&in->ctx->arena, &in->vars, (MotVar){.leader = leader});
    join(in, leader, in->vars.n - 1);
}

/* Whether some choice of the op leaves result k to be summed. */
static bool may_be_partial(const MotIntra *in, MotOpId id, uint32_t k)
{
    const MotFactors *factors = &in->factors[id];
    for (uint32_t f = 0; f < factors->n; f++)
        if (mot_intra_can_split(in, id, (int)f) && factors->factor[f].partial[k])
            return true;
    return false;
}

/*
 * The operand whose sharding the op may take over, or -1: the only one that is computed and as
 * large, holding all of the op's factors, none of which must stay whole.
 */
static int find_followed(const MotIntra *in, MotOpId id)
{
    const MotOp *op = mot_graph_op(in->g, id);
    const MotFactors *factors = &in->factors[id];
    int followed = -1;
    int64_t most = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        int64_t n = op->in[i] ? mot_type_elements(mot_graph_type(in->g, op->in[i])) : 0;
        most = n > most ? n : most;
    }
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (!op->in[i] || mot_type_elements(mot_graph_type(in->g, op->in[i])) < most)
            continue;
        if (is_source(mot_graph_def(in->g, op->in[i])))
            continue;
        if (followed >= 0 && op->in[i] != op->in[followed])
            return -1;
        followed = (int)i;
    }
    for (uint32_t f = 0; followed >= 0 && f < factors->n; f++)
        if (factors->factor[f].in_dim[followed] < 0 ||
            (factors->factor[f].kind == MOT_FACTOR_WHOLE && factors->factor[f].size > 1))
            return -1;
    return followed;
}

/* Joins the op to the variable of the op that it follows, if it follows one. */
static bool join_followed(MotIntra *in, MotOpId id)
{
    const MotOp *op = mot_graph_op(in->g, id);
    int i = mot_op_info(op->kind)->class == MOT_SOURCE ? -1 : find_followed(in, id);
    if (i < 0)
        return false;
    MotOpId def = in->g->values.data[op->in[i]].def;
    if (!in->var_of[def] || mot_graph_op(in->g, def)->role != op->role ||
        may_be_partial(in, def, in->g->values.data[op->in[i]].def_index))
        return false;
    join(in, id, in->var_of[def] - 1);
    return true;
}

/* The variable that all of a source's users, sinks aside, belong to; 0 if there are several. */
static uint32_t find_only_user(const MotIntra *in, MotValue v)
{
    uint32_t only = 0;
    for (uint32_t i = 0; i < in->users[v].n; i++) {
        uint32_t var = in->var_of[in->users[v].data[i].op];
        if (var && only && var != only)
            return 0;
        only = var ? var : only;
    }
    return only;
}

/*
 * Sources come last: by then their users have variables. Fixed ones and those of several users get
 * their own.
 */
static void assign_sources(MotIntra *in, const MotFix *fixes, uint32_t n_fixes)
{
    for (uint32_t i = 0; i < in->g->body.n; i++) {
        MotOpId id = in->g->body.data[i];
        const MotOp *op = mot_graph_op(in->g, id);
        if (!is_source(op))
            continue;
        uint32_t only = find_fix(op, fixes, n_fixes) ? 0 : find_only_user(in, op->out[0]);
        if (only)
            join(in, id, only - 1);
        else
            make_var(in, id);
    }
}

static void assign_vars(MotIntra *in, const MotFix *fixes, uint32_t n_fixes)
{
    for (uint32_t i = 0; i < in->g->body.n; i++) {
        MotOpId id = in->g->body.data[i], forward = forward_of(in->g, id);
        const MotOp *op = mot_graph_op(in->g, id);
        if (is_sink(op) || is_source(op))
            continue;
        if (is_derived_in(in, id, in->var_of[forward]))
            join(in, id, in->var_of[forward] - 1);
        else if (find_fix(op, fixes, n_fixes) || !join_followed(in, id))
            make_var(in, id);
    }
    assign_sources(in, fixes, n_fixes);
}

/* The factor of the op that may split dim `dim` of operand i in these units; MOT_CHOICE_WHOLE. */
static int factor_for_operand(const MotIntra *in, MotOpId id, uint32_t i, int dim, int64_t units)
{
    const MotFactors *factors = &in->factors[id];
    for (uint32_t f = 0; dim >= 0 && f < factors->n; f++)
        if (factors->factor[f].in_dim[i] == dim && mot_intra_can_split(in, id, (int)f) &&
            mot_factor_operand_units(factors, (int)f, i) == units)
            return (int)f;
    return MOT_CHOICE_WHOLE;
}

/* The same for result k. */
static int factor_for_result(const MotIntra *in, MotOpId id, uint32_t k, int dim, int64_t units)
{
    const MotFactors *factors = &in->factors[id];
    for (uint32_t f = 0; dim >= 0 && f < factors->n; f++)
        if (factors->factor[f].out_dim[k] == dim && mot_intra_can_split(in, id, (int)f) &&
            mot_factor_result_units(factors, (int)f, k) == units)
            return (int)f;
    return MOT_CHOICE_WHOLE;
}

/* Whether a user of the source could want it split as its own factor f does. */
static bool is_wanted_split(const MotIntra *in, MotOpId id, int f)
{
    MotValue v = mot_graph_op(in->g, id)->out[0];
    int dim = in->factors[id].factor[f].out_dim[0];
    int64_t units = mot_factor_result_units(&in->factors[id], f, 0);
    for (uint32_t i = 0; i < in->users[v].n; i++) {
        MotUser user = in->users[v].data[i];
        if (factor_for_operand(in, user.op, user.operand, dim, units) >= 0)
            return true;
    }
    return false;
}

/*
 * Sources that many share are small, or cheap to take parts of: masks, positions. They stay whole
 * everywhere.
 */
static bool is_shared_widely(const MotIntra *in, const MotOp *op)
{
    enum { FEW = 4 };
    return is_source(op) && op->kind != MOT_OP_PARAM && in->users[op->out[0]].n > FEW;
}

static void list_choices(MotIntra *in, MotVar *var)
{
    const MotOp *op = mot_graph_op(in->g, var->leader);
    const MotFactors *factors = &in->factors[var->leader];
    mot_vec_push(&in->ctx->arena, &var->choices, MOT_CHOICE_WHOLE);
    for (uint32_t f = 0; in->cost->n > 1 && f < factors->n && f < INT8_MAX; f++) {
        if (!mot_intra_can_split(in, var->leader, (int)f) || is_shared_widely(in, op))
            continue;
        if (!is_source(op) || is_wanted_split(in, var->leader, (int)f))
            mot_vec_push(&in->ctx->arena, &var->choices, (int8_t)f);
    }
}

/* Fills in the members' factors for one choice of the leader, in the order of the body. */
typedef struct {
    const MotIntra *in;
    const MotVar *var;
    int8_t *factor; /* [members] */
} Fill;

static bool is_member(const Fill *f, MotOpId id)
{
    return f->in->var_of[id] && &f->in->vars.data[f->in->var_of[id] - 1] == f->var;
}

/* Partial values are summed before anybody else reads them. */
static MotSharding whole_if_partial(MotSharding s)
{
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++)
        s.axis[a] = s.axis[a] < MOT_REPLICATED ? MOT_REPLICATED : s.axis[a];
    return s;
}

/*
 * How a value is expected to lie around the variable: as a member leaves or needs it, a gradient as
 * the value of the same type that it belongs to. False if nothing is known.
 */
static bool expect(const Fill *f, const MotOp *fwd, MotOpId fwd_id, MotValue v, bool is_result,
                   MotSharding *out)
{
    const MotIntra *in = f->in;
    int choice = f->factor[in->member_of[fwd_id]];
    MotOpId def = in->g->values.data[v].def;
    *out = mot_replicated;
    for (uint32_t i = 0; i < fwd->n_in; i++)
        if (fwd->in[i] == v) {
            *out = mot_intra_operand(in, fwd_id, choice, i);
            return true;
        }
    if (!is_result && is_source(mot_graph_op(in->g, def)))
        return false; /* stored as it is needed */
    if (!is_result && is_member(f, def)) {
        int own = f->factor[in->member_of[def]];
        *out = whole_if_partial(mot_intra_result(in, def, own, in->g->values.data[v].def_index));
        return true;
    }
    const MotType *type = mot_graph_type(in->g, v);
    for (uint32_t k = 0; !is_result && k < fwd->n_out; k++)
        if (mot_type_equal(type, mot_graph_type(in->g, fwd->out[k]))) {
            *out = whole_if_partial(mot_intra_result(in, fwd_id, choice, k));
            return true;
        }
    for (uint32_t i = 0; i < fwd->n_in; i++)
        if (fwd->in[i] && mot_type_equal(type, mot_graph_type(in->g, fwd->in[i]))) {
            *out = mot_intra_operand(in, fwd_id, choice, i);
            return true;
        }
    return false;
}

static double convert(const MotIntra *in, MotValue v, MotSharding have, MotSharding need,
                      MotOpId user)
{
    MotTransition t = mot_cost_transition(in->cost, v, have, need, user);
    return mot_cost_convert(in->cost, &t, NULL, NULL).seconds;
}

/* Seconds of a derived op and of the conversions around it. */
static double price_derived(const Fill *f, MotOpId id, int choice)
{
    const MotIntra *in = f->in;
    const MotOp *op = mot_graph_op(in->g, id);
    MotOpId fwd_id = forward_of(in->g, id);
    const MotOp *fwd = mot_graph_op(in->g, fwd_id);
    double seconds = mot_cost_op(in->cost, op, &in->factors[id], choice, NULL);
    MotSharding known;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && expect(f, fwd, fwd_id, op->in[i], false, &known))
            seconds += convert(in, op->in[i], known, mot_intra_operand(in, id, choice, i), id);
    /*
     * A weight's gradient too: what a sharded update saves in reducing, it pays in gathering the
     * new weight.
     */
    for (uint32_t k = 0; k < op->n_out; k++)
        if (expect(f, fwd, fwd_id, op->out[k], true, &known))
            seconds += convert(in, op->out[k], mot_intra_result(in, id, choice, k), known, id);
    return seconds;
}

static int choose_derived(const Fill *f, MotOpId id)
{
    const MotFactors *factors = &f->in->factors[id];
    int best = MOT_CHOICE_WHOLE;
    double least = price_derived(f, id, best);
    for (uint32_t c = 0; c < factors->n; c++) {
        if (!mot_intra_can_split(f->in, id, (int)c))
            continue;
        double seconds = price_derived(f, id, (int)c);
        if (seconds < least) {
            least = seconds;
            best = (int)c;
        }
    }
    return best;
}

/* A source is stored as its first user in the variable needs it. */
static int choose_source(const Fill *f, MotOpId id)
{
    const MotIntra *in = f->in;
    MotValue v = mot_graph_op(in->g, id)->out[0];
    for (uint32_t i = 0; i < in->users[v].n; i++) {
        MotUser user = in->users[v].data[i];
        if (!is_member(f, user.op))
            continue;
        int choice = f->factor[in->member_of[user.op]];
        MotSharding need = mot_intra_operand(in, user.op, choice, user.operand);
        return factor_for_result(in, id, 0, need.axis[in->axis], need.units[in->axis]);
    }
    return MOT_CHOICE_WHOLE;
}

static int choose_follower(const Fill *f, MotOpId id)
{
    const MotIntra *in = f->in;
    const MotOp *op = mot_graph_op(in->g, id);
    uint32_t i = (uint32_t)find_followed(in, id);
    MotOpId def = in->g->values.data[op->in[i]].def;
    MotSharding have = mot_intra_result(in, def, f->factor[in->member_of[def]],
                                        in->g->values.data[op->in[i]].def_index);
    return factor_for_operand(in, id, i, have.axis[in->axis], have.units[in->axis]);
}

static void fill_choice(const MotIntra *in, const MotVar *var, uint32_t s)
{
    Fill f = {.in = in, .var = var, .factor = var->factor + (size_t)s * var->members.n};
    f.factor[in->member_of[var->leader]] = var->choices.data[s];
    for (int sources = 0; sources < 2; sources++)
        for (uint32_t m = 0; m < var->members.n; m++) {
            MotOpId id = var->members.data[m];
            const MotOp *op = mot_graph_op(in->g, id);
            if (id == var->leader || is_source(op) != (sources == 1))
                continue;
            int factor = is_source(op)                           ? choose_source(&f, id)
                         : is_derived_in(in, id, in->var_of[id]) ? choose_derived(&f, id)
                                                                 : choose_follower(&f, id);
            f.factor[m] = (int8_t)factor;
        }
}

/*
 * Keeps the choice that the fix names. An op that matches a glob but lacks the choice stays free.
 */
static bool apply_fix(const MotIntra *in, MotVar *var, const MotFix *fix)
{
    const MotOp *op = mot_graph_op(in->g, var->leader);
    int choice = mot_choice_find(in->g, op, &in->factors[var->leader], fix->choice);
    for (uint32_t s = 0; s < var->choices.n; s++)
        if (var->choices.data[s] == choice) {
            var->choices.data[0] = (int8_t)choice;
            var->choices.n = 1;
            return true;
        }
    return false;
}

/* Names what the matching operators could have been fixed to. */
static MotStatus refuse_fix(const MotIntra *in, const MotFix *fix)
{
    MotArena *arena = &in->ctx->arena;
    uint32_t n_matches = 0;
    mot_fail(in->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
             "--fix %s=%s: no operator that matches has this choice", mot_quote(arena, fix->glob),
             fix->choice);
    for (uint32_t v = 0; v < in->vars.n; v++) {
        const MotVar *var = &in->vars.data[v];
        const MotOp *op = mot_graph_op(in->g, var->leader);
        if (!mot_glob_match(fix->glob, mot_choice_node(op)) || n_matches++ >= 8)
            continue;
        MotText text;
        mot_text_init(&text, arena);
        for (uint32_t s = 0; s < var->choices.n; s++)
            mot_text_printf(
                &text, "%s%s", s ? ", " : "",
                mot_choice_name(in->g, op, &in->factors[var->leader], var->choices.data[s]));
        mot_note(in->ctx, "%s (%s): %s", mot_quote(arena, mot_choice_node(op)),
                 mot_op_info(op->kind)->name, mot_text_get(&text));
    }
    if (n_matches == 0)
        mot_hint(in->ctx, "nodes are named as in the ONNX file; `motley plan` lists them");
    return in->ctx->status;
}

MotStatus mot_intra_make_vars(MotIntra *in, const MotFix *fixes, uint32_t n_fixes)
{
    MotArena *arena = &in->ctx->arena;
    in->var_of = mot_arena_array(arena, uint32_t, in->g->ops.n);
    in->member_of = mot_arena_array(arena, uint32_t, in->g->ops.n);
    assign_vars(in, fixes, n_fixes);
    bool *is_used = mot_arena_array(arena, bool, n_fixes + 1);
    for (uint32_t v = 0; v < in->vars.n; v++) {
        MotVar *var = &in->vars.data[v];
        list_choices(in, var);
        const MotFix *fix = find_fix(mot_graph_op(in->g, var->leader), fixes, n_fixes);
        if (fix && (apply_fix(in, var, fix) || in->cost->n == 1)) /* one device splits nothing */
            is_used[fix - fixes] = true;
    }
    for (uint32_t i = 0; i < n_fixes; i++)
        if (!is_used[i])
            return refuse_fix(in, &fixes[i]);
    for (uint32_t v = 0; v < in->vars.n; v++) {
        MotVar *var = &in->vars.data[v];
        var->factor = mot_arena_array(arena, int8_t, (size_t)var->choices.n * var->members.n);
        for (uint32_t s = 0; s < var->choices.n; s++)
            fill_choice(in, var, s);
    }
    return in->ctx->status;
}
