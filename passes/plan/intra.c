/* Opening the intra-operator problem of a plan, and writing its choices back. */
#include "passes/plan/intra.h"

#include "passes/plan/evaluate.h"

static void list_users(MotIntra *in)
{
    in->users = mot_arena_alloc_array(&in->ctx->arena, in->g->values.n, sizeof *in->users);
    for (uint32_t i = 0; i < in->g->body.n; i++) {
        const MotOp *op = mot_graph_op(in->g, in->g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k])
                mot_vec_push(&in->ctx->arena, &in->users[op->in[k]],
                             (MotUser){in->g->body.data[i], k});
    }
}

MotStatus mot_intra_open(const MotPlan *plan, const MotFix *fixes, uint32_t n_fixes,
                         MotIntra **out_intra)
{
    MotIntra *in = mot_arena_new(&plan->ctx->arena, MotIntra);
    in->ctx = plan->ctx;
    in->g = plan->graph;
    in->given = plan->ops;
    in->axis = plan->stages.data[0].mesh.n_axes - 1;
    MOT_TRY(mot_cost_of_plan(plan, &in->cost));
    MOT_TRY(mot_plan_factors(in->ctx, in->g, &in->factors));
    list_users(in);
    MOT_TRY(mot_intra_make_vars(in, fixes, n_fixes));
    mot_intra_make_tables(in);
    *out_intra = in;
    return MOT_OK;
}

bool mot_intra_can_split(const MotIntra *in, MotOpId id, int factor)
{
    return mot_factor_can_split(&in->factors[id], factor, in->given[id].factor, in->axis);
}

MotSharding mot_intra_operand(const MotIntra *in, MotOpId id, int choice, uint32_t i)
{
    MotOpPlan op = in->given[id];
    op.factor[in->axis] = (int8_t)choice;
    return mot_sharding_of_operand(&in->factors[id], op.factor, i);
}

MotSharding mot_intra_result(const MotIntra *in, MotOpId id, int choice, uint32_t k)
{
    MotOpPlan op = in->given[id];
    op.factor[in->axis] = (int8_t)choice;
    return mot_sharding_of_result(&in->factors[id], op.factor, k);
}

int mot_intra_factor(const MotIntra *in, MotOpId op, const uint32_t *choice)
{
    if (!in->var_of[op])
        return MOT_CHOICE_WHOLE;
    uint32_t v = in->var_of[op] - 1;
    const MotVar *var = &in->vars.data[v];
    return var->factor[(size_t)choice[v] * var->members.n + in->member_of[op]];
}

void mot_intra_apply_var(const MotIntra *in, uint32_t v, uint32_t choice, MotPlan *plan)
{
    const MotVar *var = &in->vars.data[v];
    for (uint32_t m = 0; m < var->members.n; m++) {
        MotOpId id = var->members.data[m];
        plan->ops[id].factor[in->axis] = var->factor[(size_t)choice * var->members.n + m];
        mot_plan_apply_factors(plan, id, &in->factors[id]);
    }
}

void mot_intra_apply(const MotIntra *in, const uint32_t *choice, MotPlan *plan)
{
    for (uint32_t v = 0; v < in->vars.n; v++)
        mot_intra_apply_var(in, v, choice[v], plan);
}
