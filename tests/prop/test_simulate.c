/*
 * The simulation against the run time: random plans over devices and links of random speeds, with
 * one and several micro-batches, uneven and zero shares. Under a modelled clock a step of the ranks
 * takes what the walk over their Program says, and so does each rank's work; also when other shares
 * came.
 *
 *     test_simulate [--seed N]      reproduces one failure
 */
#include "passes/plan/evaluate.h"
#include "passes/plan/simulate.h"
#include "tests/plan_run.h"
#include "tests/test_ctx.h"

enum { MOST_RANKS = 4 };
static const MeshShape shapes[] = {
    {1, {2}, {{3, 1}}}, {1, {3}, {{5, 0, 2}}}, {1, {4}, {{8, 4, 2, 1}}}};
static const int64_t reshares[][MOST_RANKS] = {{1, 2}, {1, 2, 4}, {1, 0, 1, 6}};
static const Model any_batch = {
    "models/mlp_ts13_opt_dynamic.onnx", "cross_entropy:logits:labels",    "x",
    "models/fixtures/mlp/x.npy",        "models/fixtures/mlp/labels.npy", NULL};
static unsigned first_seed = 1;

static double draw(unsigned *seed, double least, double most)
{
    return least * pow(most / least, (double)rand_r(seed) / (double)RAND_MAX);
}

/*
 * Every device and every pair has speeds of its own; `pace`: how much slower devices are than
 * planned for.
 */
static MotCluster *make_cluster(MotCtx *ctx, uint32_t n, MotPace *pace, unsigned *seed)
{
    MotCluster *cluster = mot_cluster_make(ctx, n, 1);
    cluster->is_modelled = true;
    for (uint32_t i = 0; i < n; i++) {
        MotDevice *device = &cluster->devices.data[i];
        device->beside = device->alone = (MotRates){draw(seed, 1e8, 1e10), draw(seed, 1e7, 1e9),
                                                    draw(seed, 1e8, 1e10), draw(seed, 1e-7, 1e-5)};
        double slow = floor(draw(seed, 1, 4.9));
        mot_device_slow_down(ctx, device, 1, slow);
        pace[i] = (MotPace){slow, slow};
        for (uint32_t k = 0; k < i; k++)
            mot_vec_push(&ctx->arena, &cluster->links,
                         (MotLink){.a = k,
                                   .b = i,
                                   .latency = draw(seed, 1e-6, 1e-4),
                                   .bandwidth = draw(seed, 1e8, 1e10)});
    }
    return cluster;
}

static void check_near(double a, double b, const char *what)
{
    if (!(fabs(a - b) <= 1e-3 * b + 1e-8))
        fail_msg("%s: %.9g s, but the ranks take %.9g", what, a, b);
}

static void check_step(MotSimulation *simulation, MotSession *session, const int64_t *share,
                       const MotPace *pace, const char *what)
{
    MotPace busy[MOST_RANKS];
    double step = mot_simulation_run(simulation, share, pace, busy), longest = 0;
    for (uint32_t i = 0; i < mot_session_ranks(session); i++) {
        const MotRankState *rank = mot_session_rank(session, i);
        longest = fmax(longest, (double)(rank->busy_ns + rank->comm_ns + rank->wait_ns) * 1e-9);
        check_near(busy[i].resizable, (double)rank->resizable_ns * 1e-9, what);
        check_near(busy[i].other, (double)(rank->busy_ns - rank->resizable_ns) * 1e-9, what);
    }
    check_near(step, longest, what);
}

static void check_plan(MotCtx *ctx, const Model *model, unsigned seed)
{
    uint32_t shape = seed % 3, n_micro = 1U << seed / 3 % 3;
    const char *what = mot_arena_printf(&ctx->arena, "--seed %u: %s", seed, model->model);
    Job job = make_job(ctx, model, "adamw:lr=0.01,clip=1.0", n_micro);
    MotPlan *plan = make_plan(&job, &shapes[shape], &seed);
    MotPace pace[MOST_RANKS];
    MotCluster *cluster = make_cluster(ctx, plan->stages.data[0].mesh.n_devices, pace, &seed);
    MotSessionOpts opts = {.backend = "ref", .hang_seconds = 60};
    MotPipeline *pipeline;
    MotSession *session;
    MotCost *cost;
    int64_t moved;
    plan->cluster = cluster;
    require(ctx, mot_lower(ctx, plan, &pipeline));
    require(ctx, mot_cost_of_plan(plan, &cost));
    MotSimulation *simulation = mot_simulation_make(ctx, pipeline->stages.data[0], cost);
    require(ctx, mot_session_open(ctx, pipeline, cluster, &opts, &session));
    write_params(&job, pipeline, session);
    for (uint32_t m = 0; m < job.n_micro; m++)
        for (int i = 0; i < 2; i++) {
            MotTensor rows = rows_of(&job, i, m);
            require(ctx, mot_session_write_batch(session, job.inputs[i].name, m, &rows));
        }
    mot_session_set_step(session, 1);
    train_step(&job, session, 0);
    check_step(simulation, session, shapes[shape].share[0], pace, what);
    require(ctx, mot_session_reshare(session, 0, 0, reshares[shape], &moved));
    train_step(&job, session, 1);
    check_step(simulation, session, reshares[shape], pace, what);
    mot_session_close(session);
}

static void a_step_takes_what_is_simulated(void **state)
{
    MotCtx *ctx = *state;
    for (unsigned seed = first_seed; seed < first_seed + 9; seed++)
        for (int i = 0; i < 2; i++) {
            MotScope scope = mot_scope_begin(ctx);
            check_plan(ctx, i ? &gpt : &any_batch, seed);
            mot_scope_end(ctx, scope);
        }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        first_seed = (unsigned)strtoul(argv[2], NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_takes_what_is_simulated, make_ctx, drop_ctx)};
    return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}
