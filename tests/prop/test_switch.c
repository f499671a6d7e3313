/*
 * What a session leaves to the next one: parameters and states go from any plan to any other one
 * bit for bit, also after a rank died; and what is left after a death is what the rank's published
 * progress says. Random plans of real models.
 *
 *     test_switch [--seed N]      reproduces one failure
 */
#include "runtime/host.h"
#include "tests/plan_run.h"

#include <signal.h>
#include <unistd.h>

static const Model *const models[] = {&mlp, &gpt};

static const MeshShape meshes[] = {{1, {1}, {{1}}},
                                   {1, {2}, {{3, 1}}},
                                   {1, {3}, {{5, 0, 2}}},
                                   {1, {4}, {{1, 2, 4, 8}}},
                                   {2, {2, 2}, {{3, 1}, {1, 2}}}};
enum { N_MESHES = sizeof meshes / sizeof *meshes, N_MODELS = sizeof models / sizeof *models };

static unsigned first_seed = 1, n_seeds = 4;

/*
 * A session of a random plan (seed 0: nothing is split) with the data, or NULL if its axes do not
 * nest.
 */
static MotSession *open_session(const Job *job, const MeshShape *mesh, unsigned seed,
                                MotPipeline **out_pipeline)
{
    MotSession *session;
    MotSessionOpts opts = {.backend = "ref", .hang_seconds = 60, .is_elastic = true};
    MotPlan *plan = make_plan(job, mesh, &seed);
    MotStatus status = mot_lower(job->ctx, plan, out_pipeline);
    if (status == MOT_ERR_UNSUPPORTED && strstr(mot_text_get(&job->ctx->error), "do not nest")) {
        mot_error_clear(job->ctx);
        return NULL;
    }
    require(job->ctx, status);
    require(job->ctx, mot_session_open(job->ctx, *out_pipeline, plan->cluster, &opts, &session));
    for (int i = 0; i < 2; i++) {
        MotTensor rows = rows_of(job, i, 0);
        require(job->ctx, mot_session_write_batch(session, job->inputs[i].name, 0, &rows));
    }
    return session;
}

static void check_chain(const Job *job, unsigned seed)
{
    MotPipeline *pipeline, *next_pipeline;
    MotSession *session = open_session(job, &meshes[0], 0, &pipeline), *next;
    const char *what =
        mot_arena_printf(&job->ctx->arena, "%s (test_switch --seed %u)", job->model->model, seed);
    size_t n;
    write_params(job, pipeline, session);
    for (int i = 0; i < 4; i++) {
        next = open_session(job, &meshes[(uint32_t)rand_r(&seed) % N_MESHES], seed, &next_pipeline);
        if (!next)
            continue;
        train_step(job, session, i); /* so that the states are not zeros */
        double *before = read_params(job, pipeline, session, &n);
        require(job->ctx, mot_session_take(next, session));
        double *after = read_params(job, next_pipeline, next, &n);
        if (memcmp(before, after, n * sizeof *before) != 0)
            fail_msg("%s: a parameter or state differs after switch %d", what, i);
        require(job->ctx, mot_session_check_copies(next));
        mot_session_close(session);
        session = next;
        pipeline = next_pipeline;
    }
    train_step(job, session, 4);
    mot_session_close(session);
}

static void a_switch_keeps_every_bit(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        Job job = make_job(&ctx, models[m], "adamw:lr=0.01", 1);
        for (unsigned s = first_seed; s < first_seed + n_seeds; s++)
            check_chain(&job, s);
        mot_ctx_deinit(&ctx);
    }
}

/*
 * A step in which rank 1 never does anything; the others come as far as they can. Then it has
 * published this, and dies.
 */
static void die(const Job *job, MotSession *s, bool was_updating, bool others_executed)
{
    int64_t pid = mot_session_pid(s, 1);
    kill((pid_t)pid, SIGSTOP);
    mot_session_start(s, MOT_SECTION_STEP);
    usleep(50000);
    if (was_updating)
        atomic_store(&s->shared->rank[1].updating, s->n_commands);
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        if (i != 1 && others_executed)
            atomic_store(&s->shared->rank[i].executed, s->n_commands);
    kill((pid_t)pid, SIGKILL);
    assert_int_equal(mot_session_wait(s), MOT_ERR_RANK);
    assert_non_null(strstr(mot_text_get(&job->ctx->error), "rank 1 (device cpu1) was killed"));
    mot_error_clear(job->ctx);
    assert_true(mot_session_is_halted(s));
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        assert_int_equal(mot_session_is_lost(s, i), i == 1);
}

/* Splits every parameter along its first dim (or none), so that no rank can replace another one. */
static void split_rows(MotPlan *plan)
{
    const MotGraph *g = plan->graph;
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotFactors factors;
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        bool is_state = op->kind == MOT_OP_PARAM || op->role == MOT_ROLE_UPDATE;
        require(plan->ctx, mot_factors(g, op, &factors));
        if (!is_state || mot_op_info(op->kind)->class == MOT_SINK || factors.n == 0 ||
            factors.factor[0].kind == MOT_FACTOR_WHOLE)
            continue;
        plan->ops[g->body.data[i]].factor[0] = 0;
        mot_plan_apply_factors(plan, g->body.data[i], &factors);
    }
}

static MotSession *open_death(const Job *job, bool is_split, MotPipeline **out_pipeline)
{
    MotSession *session;
    MotSessionOpts opts = {.backend = "ref", .hang_seconds = 60, .is_elastic = true};
    unsigned seed = 0;
    MotPlan *plan = make_plan(job, &(MeshShape){1, {3}, {{1, 1, 1}}}, &seed);
    if (is_split)
        split_rows(plan);
    require(job->ctx, mot_plan_verify(plan));
    require(job->ctx, mot_lower(job->ctx, plan, out_pipeline));
    require(job->ctx, mot_session_open(job->ctx, *out_pipeline, plan->cluster, &opts, &session));
    write_params(job, *out_pipeline, session);
    for (int i = 0; i < 2; i++) {
        MotTensor rows = rows_of(job, i, 0);
        require(job->ctx, mot_session_write_batch(session, job->inputs[i].name, 0, &rows));
    }
    train_step(job, session, 0);
    return session;
}

static void what_is_left_after_a_death(void **state)
{
    static const struct {
        bool is_split, was_updating, others_executed;
        MotHeld held;
    } cases[] = {
        {true, false, false, MOT_HELD_BEFORE}, /* its arena has its part, as it was */
        {true, true, false, MOT_HELD_TORN},    /* which nobody else has */
        {true, false, true,
         MOT_HELD_BEFORE}, /* none of the others had begun to write, whatever they say */
        {false, true, true, MOT_HELD_AFTER}, /* any other rank has everything */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotCtx ctx;
        MotPipeline *pipeline;
        size_t n;
        mot_ctx_init(&ctx);
        if (ctx.debug.ranks_are_threads)
            skip(); /* they can't be killed */
        Job job = make_job(&ctx, models[0], "adamw:lr=0.01", 1);
        MotSession *session = open_death(&job, cases[i].is_split, &pipeline);
        double *before = read_params(&job, pipeline, session, &n);
        die(&job, session, cases[i].was_updating, cases[i].others_executed);
        assert_int_equal(mot_session_held(session), cases[i].held);
        if (cases[i].held == MOT_HELD_BEFORE)
            assert_memory_equal(read_params(&job, pipeline, session, &n), before,
                                n * sizeof *before);
        assert_int_equal(mot_session_run(session, MOT_SECTION_STEP), MOT_ERR_RANK);
        mot_error_clear(&ctx);
        mot_session_close(session);
        mot_ctx_deinit(&ctx);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_switch_keeps_every_bit),
                                       cmocka_unit_test(what_is_left_after_a_death)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
