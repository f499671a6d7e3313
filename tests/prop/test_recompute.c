/*
 * What a plan recomputes in the backward pass changes no bit of the training, on one device and on
 * several, with micro-batches, and gives memory back.
 */
#include "tests/plan_run.h"

static const MeshShape one = {1, {1}, {{1}}}, three = {1, {3}, {{5, 1, 2}}};

typedef bool (*Policy)(const MotOp *op, int random);

static bool nothing(const MotOp *op, int random)
{
    (void)op, (void)random;
    return false;
}

static bool all(const MotOp *op, int random)
{
    (void)op, (void)random;
    return true;
}

static bool half(const MotOp *op, int random)
{
    (void)op;
    return random % 2;
}

static bool all_but_products(const MotOp *op, int random)
{
    (void)random;
    return op->kind != MOT_OP_CONTRACT;
}

/* A plan by `seed` that recomputes what the policy says. */
static MotPlan *make_recomputing(const Job *job, const MeshShape *shape, unsigned seed,
                                 Policy policy, unsigned choice)
{
    MotPlan *plan = make_plan(job, shape, &seed);
    for (uint32_t i = 0; i < job->graph->body.n; i++) {
        MotOpId id = job->graph->body.data[i];
        const MotOp *op = mot_graph_op(job->graph, id);
        plan->ops[id].recompute = mot_op_may_be_recomputed(op) && policy(op, rand_r(&choice));
    }
    return plan;
}

static void check_bits(const Trained *a, const Trained *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_int_equal(a->n_params, b->n_params);
    assert_memory_equal(a->after, b->after, a->n_params * sizeof *a->after);
}

static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    static const Policy policies[] = {all, all_but_products, half, half};
    for (int is_split = 0; is_split < 2; is_split++) {
        MotCtx ctx;
        Trained plain, again;
        mot_ctx_init(&ctx);
        Job job = make_job(&ctx, &gpt, "adamw:lr=0.01,clip=1.0", is_split ? 2 : 1);
        const MeshShape *shape = is_split ? &three : &one;
        run_plan(&job, make_recomputing(&job, shape, 7, nothing, 0), "ref", NULL, &plain);
        for (unsigned i = 0; i < sizeof policies / sizeof *policies; i++) {
            run_plan(&job, make_recomputing(&job, shape, 7, policies[i], i), "ref", NULL, &again);
            check_bits(&again, &plain);
        }
        mot_ctx_deinit(&ctx);
    }
}

static size_t arena_bytes(const Job *job, Policy policy)
{
    MotPipeline *pipeline;
    MotBinding binding;
    MotPlan *plan = make_recomputing(job, &one, 0, policy, 0);
    require(job->ctx, mot_lower(job->ctx, plan, &pipeline));
    require(job->ctx, mot_pipeline_verify(pipeline));
    require(job->ctx, mot_program_bind(job->ctx, pipeline->stages.data[0], 0, &binding));
    return (size_t)binding.arena_bytes;
}

/* Parameters, gradients and states stay, so the savings are a part of the arena only. */
static void recomputation_saves_memory(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, &gpt, "sgd:lr=0.01", 1);
    size_t plain = arena_bytes(&job, nothing), light = arena_bytes(&job, all_but_products);
    printf("arena: %zu bytes, with all but products recomputed %zu\n", plain, light);
    assert_true(light < plain - plain / 20);
    mot_ctx_deinit(&ctx);
}

/* Only forward computations have a copy in the backward pass. */
static void other_ops_are_refused(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, &gpt, "sgd:lr=0.01", 1);
    unsigned none = 0;
    for (uint32_t i = 0; i < job.graph->body.n; i++) {
        MotOpId id = job.graph->body.data[i];
        bool may = mot_op_may_be_recomputed(mot_graph_op(job.graph, id));
        MotPlan *plan = make_plan(&job, &one, &none);
        plan->ops[id].recompute = true;
        assert_int_equal(mot_plan_verify(plan), may ? MOT_OK : MOT_ERR_INFEASIBLE);
        if (!may)
            assert_non_null(strstr(mot_text_get(&ctx.error), "is no forward computation"));
        mot_error_clear(&ctx);
        i += 6; /* a few are enough */
    }
    mot_ctx_deinit(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(recomputation_saves_memory),
        cmocka_unit_test(other_ops_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
