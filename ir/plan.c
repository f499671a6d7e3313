/*
 * The Plan's own rules: shardings from factor choices, integer shares, and the checks that hold for
 * every plan.
 */
#include "ir/plan.h"

#include <string.h>

const MotSharding mot_replicated = {
    .axis = {MOT_REPLICATED, MOT_REPLICATED, MOT_REPLICATED, MOT_REPLICATED}};

bool mot_sharding_equal(MotSharding a, MotSharding b)
{
    return memcmp(a.axis, b.axis, sizeof a.axis) == 0 &&
           memcmp(a.units, b.units, sizeof a.units) == 0;
}

const char *mot_sharding_text(MotArena *arena, MotSharding s, uint32_t n_axes)
{
    MotText text;
    mot_text_init(&text, arena);
    for (uint32_t a = 0; a < n_axes; a++) {
        mot_text_puts(&text, a ? " x " : "");
        if (s.axis[a] >= 0)
            mot_text_printf(&text, "split %d", s.axis[a]);
        else
            mot_text_puts(&text, s.axis[a] == MOT_REPLICATED    ? "replicated"
                                 : s.axis[a] == MOT_PARTIAL_SUM ? "partial sum"
                                                                : "partial max");
    }
    return mot_text_get(&text);
}

uint32_t mot_mesh_coordinate(const MotMesh *mesh, uint32_t position, uint32_t axis)
{
    for (uint32_t a = mesh->n_axes; a-- > axis + 1;)
        position /= mesh->axis[a].n;
    return position % mesh->axis[axis].n;
}

void mot_share_split(const int64_t *share, uint32_t n, int64_t units, int64_t *out_parts)
{
    int64_t total = 0, given = 0;
    for (uint32_t i = 0; i < n; i++)
        total += share[i];
    for (uint32_t i = 0; i < n; i++) {
        out_parts[i] = (int64_t)((__int128)units * share[i] / total);
        given += out_parts[i];
    }
    for (; given < units; given++) {
        /*
         * The largest remainder units * share - parts * total; every part is at most one above its
         * floor.
         */
        uint32_t best = n;
        __int128 most = -1;
        for (uint32_t i = 0; i < n; i++) {
            __int128 rest = (__int128)units * share[i] - (__int128)out_parts[i] * total;
            if (share[i] > 0 && rest > most) {
                most = rest;
                best = i;
            }
        }
        out_parts[best]++;
    }
}

MotPlan *mot_plan_new(MotCtx *ctx, MotGraph *graph, const MotCluster *cluster)
{
    MotPlan *plan = mot_arena_new(&ctx->arena, MotPlan);
    plan->ctx = ctx;
    plan->graph = graph;
    plan->cluster = cluster;
    plan->n_micro = 1;
    plan->ops = mot_arena_array(&ctx->arena, MotOpPlan, graph->ops.n);
    plan->values = mot_arena_array(&ctx->arena, MotSharding, graph->values.n);
    plan->devices = mot_arena_array(&ctx->arena, MotDevicePrediction, cluster->devices.n);
    for (uint32_t i = 0; i < graph->ops.n; i++)
        memset(plan->ops[i].factor, -1, sizeof plan->ops[i].factor);
    for (uint32_t i = 0; i < graph->values.n; i++)
        plan->values[i] = mot_replicated;
    return plan;
}

MotPlan mot_plan_copy(const MotPlan *plan)
{
    MotPlan copy = *plan;
    copy.ops = mot_arena_copy(&plan->ctx->arena, plan->ops, plan->graph->ops.n * sizeof *plan->ops);
    copy.values = mot_arena_copy(&plan->ctx->arena, plan->values,
                                 plan->graph->values.n * sizeof *plan->values);
    return copy;
}

bool mot_plan_is_line(const MotPlan *plan)
{
    return plan->stages.n == 1 && plan->stages.data[0].mesh.n_axes == 1;
}

MotSharding mot_sharding_of_operand(const MotFactors *factors, const int8_t *split, uint32_t i)
{
    MotSharding s = mot_replicated;
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++)
        if (split[a] >= 0 && factors->factor[split[a]].in_dim[i] >= 0) {
            s.axis[a] = factors->factor[split[a]].in_dim[i];
            s.units[a] = mot_factor_operand_units(factors, split[a], i);
        }
    return s;
}

MotSharding mot_sharding_of_result(const MotFactors *factors, const int8_t *split, uint32_t k)
{
    MotSharding s = mot_replicated;
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++) {
        if (split[a] < 0)
            continue;
        const MotFactor *f = &factors->factor[split[a]];
        if (f->out_dim[k] >= 0) {
            s.axis[a] = f->out_dim[k];
            s.units[a] = mot_factor_result_units(factors, split[a], k);
        } else if (f->partial[k]) {
            s.axis[a] = f->kind == MOT_FACTOR_MAX ? MOT_PARTIAL_MAX : MOT_PARTIAL_SUM;
        }
    }
    return s;
}

void mot_plan_apply_factors(MotPlan *plan, MotOpId id, const MotFactors *factors)
{
    const MotOp *op = mot_graph_op(plan->graph, id);
    for (uint32_t k = 0; k < op->n_out; k++)
        plan->values[op->out[k]] = mot_sharding_of_result(factors, plan->ops[id].factor, k);
}

MotSharding mot_plan_operand(const MotPlan *plan, MotOpId id, const MotFactors *factors, uint32_t i)
{
    return mot_sharding_of_operand(factors, plan->ops[id].factor, i);
}

bool mot_op_may_be_recomputed(const MotOp *op)
{
    MotOpClass class = mot_op_info(op->kind)->class;
    return op->role == MOT_ROLE_FORWARD && class != MOT_SOURCE && class != MOT_SINK &&
           op->kind != MOT_OP_ACCUMULATE;
}

/* Violations found; each is a line of the error. */
typedef struct {
    const MotPlan *plan;
    uint32_t n;
} Checker;

static void complain(Checker *c, const MotOp *op, const char *what)
{
    MotCtx *ctx = c->plan->ctx;
    MotLoc loc = op ? mot_op_loc(c->plan->graph, op) : MOT_NOWHERE;
    if (c->n++ == 0)
        mot_fail(ctx, MOT_ERR_INFEASIBLE, loc, "plan: %s", what);
    else
        mot_note(ctx, "%s: %s", loc.place ? loc.place : "plan", what);
}

static void check_axis(Checker *c, const MotMeshAxis *axis)
{
    MotArena *arena = &c->plan->ctx->arena;
    const char *name = axis->name ? mot_quote(arena, axis->name) : "without a name";
    int64_t least = 0, total = 0;
    for (uint32_t i = 0; i < axis->n; i++) {
        least = axis->share[i] < least ? axis->share[i] : least;
        total += axis->share[i];
    }
    if (least < 0)
        complain(c, NULL, mot_arena_printf(arena, "a share of axis %s is negative", name));
    else if (total == 0)
        complain(c, NULL, mot_arena_printf(arena, "the shares of axis %s are all zero", name));
}

static void check_mesh(Checker *c, const MotMesh *mesh)
{
    uint32_t n = 1;
    if (mesh->n_axes == 0 || mesh->n_axes > MOT_MAX_AXES) {
        complain(c, NULL, "a mesh has no axes, or too many");
        return;
    }
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        n *= mesh->axis[a].n;
        check_axis(c, &mesh->axis[a]);
    }
    if (n != mesh->n_devices)
        complain(c, NULL, "the axes' lengths do not multiply to the number of devices");
    for (uint32_t i = 0; i < mesh->n_devices; i++) {
        if (mesh->devices[i] >= c->plan->cluster->devices.n)
            complain(c, NULL, "the mesh names a device that the cluster lacks");
        for (uint32_t k = 0; k < i; k++)
            if (mesh->devices[i] == mesh->devices[k])
                complain(c, NULL, "a device is in the mesh twice");
    }
}

/* Stages run at the same time, each on devices of its own. */
static void check_disjoint(Checker *c)
{
    uint32_t *stage_of =
        mot_arena_array(&c->plan->ctx->arena, uint32_t, c->plan->cluster->devices.n);
    for (uint32_t s = 0; s < c->plan->stages.n; s++) {
        const MotMesh *mesh = &c->plan->stages.data[s].mesh;
        for (uint32_t i = 0; i < mesh->n_devices; i++) {
            if (stage_of[mesh->devices[i]])
                complain(c, NULL, "a device is in two stages");
            stage_of[mesh->devices[i]] = s + 1;
        }
    }
}

static uint32_t stage_of_value(const Checker *c, MotValue v)
{
    return c->plan->ops[c->plan->graph->values.data[v].def].stage;
}

/*
 * Whether an axis before `axis` splits the factor that this one runs inside of, or there is none.
 */
static bool is_inside(const MotOpPlan *choice, const MotFactors *factors, uint32_t axis)
{
    int within = factors->factor[choice->factor[axis]].within;
    for (uint32_t a = 0; a < axis && within >= 0; a++)
        if (choice->factor[a] == within)
            return true;
    return within < 0;
}

static void check_choice(Checker *c, MotOpId id, const MotFactors *factors)
{
    const MotOp *op = mot_graph_op(c->plan->graph, id);
    const MotOpPlan *choice = &c->plan->ops[id];
    if (choice->stage >= c->plan->stages.n) {
        complain(c, op, "stage out of range");
        return;
    }
    if (choice->recompute && !mot_op_may_be_recomputed(op))
        complain(c, op, "an operator is recomputed that is no forward computation");
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++) {
        if (choice->factor[a] == -1)
            continue;
        if (choice->factor[a] < -1 || a >= c->plan->stages.data[choice->stage].mesh.n_axes ||
            (uint32_t)choice->factor[a] >= factors->n)
            complain(c, op, "factor or axis out of range");
        else if (factors->factor[choice->factor[a]].kind == MOT_FACTOR_WHOLE)
            complain(c, op, "a factor that can't be split is split");
        else if (!is_inside(choice, factors, a))
            complain(c, op,
                     "what is inside of units is split, and no axis before splits the units");
    }
    for (uint32_t k = 0; k < op->n_in; k++)
        if (op->in[k] && stage_of_value(c, op->in[k]) > choice->stage &&
            op->role == MOT_ROLE_FORWARD && mot_graph_def(c->plan->graph, op->in[k])->n_in > 0)
            complain(c, op, "an operand comes from a later stage");
    bool is_of_param = op->kind == MOT_OP_ASSIGN || op->kind == MOT_OP_GRADIENT;
    if (is_of_param && stage_of_value(c, op->in[0]) != choice->stage)
        complain(c, op, "it is not in the stage of its parameter");
}

/*
 * The recorded shardings must be what the rules give. `scratch` holds values of a plan of its own.
 */
static void check_results(Checker *c, MotOpId id, const MotFactors *factors, MotPlan *scratch)
{
    const MotOp *op = mot_graph_op(c->plan->graph, id);
    mot_plan_apply_factors(scratch, id, factors);
    for (uint32_t k = 0; k < op->n_out; k++)
        if (!mot_sharding_equal(scratch->values[op->out[k]], c->plan->values[op->out[k]]))
            complain(c, op, "the sharding of a result is not what the factors give");
}

MotStatus mot_plan_verify(const MotPlan *plan)
{
    Checker c = {.plan = plan};
    MotPlan scratch = *plan;
    scratch.values = mot_arena_array(&plan->ctx->arena, MotSharding, plan->graph->values.n);
    if (plan->stages.n == 0)
        complain(&c, NULL, "no stages");
    if (plan->n_micro == 0)
        complain(&c, NULL, "no micro-batches");
    if (!(plan->bound <= plan->time * (1 + 1e-9)))
        complain(&c, NULL, "the bound is above the predicted time");
    for (uint32_t s = 0; s < plan->stages.n; s++)
        check_mesh(&c, &plan->stages.data[s].mesh);
    if (c.n == 0)
        check_disjoint(&c);
    for (uint32_t i = 0; c.n == 0 && i < plan->graph->body.n; i++) {
        MotOpId id = plan->graph->body.data[i];
        MotFactors factors;
        MOT_TRY(mot_factors(plan->graph, mot_graph_op(plan->graph, id), &factors));
        check_choice(&c, id, &factors);
        if (c.n > 0)
            break;
        check_results(&c, id, &factors, &scratch);
    }
    return plan->ctx->status;
}
