/*
 * A run of DeMo goes on with another number of replicas: what had not been sent yet is dealt out
 * anew. Each replica starts with the mean of the momenta that there were, so the mean over
 * replicas, which is what their messages act by, stays as it was; parameters stay bit by bit.
 */
#include "runtime/checkpoint.h"
#include "tests/plan_run.h"

static const char residual[] = "/demo_residual";

typedef struct {
    Job job;
    MotPipeline *pipeline;
    MotSession *session;
} Run;

static Run open_run(MotCtx *ctx, int replicas)
{
    static const MeshShape mesh = {1, {2}, {{1, 1}}};
    MotSessionOpts opts = {.backend = "ref", .hang_seconds = 60};
    unsigned seed = 1;
    Run r = {.job = make_job(
                 ctx, &gpt,
                 mot_arena_printf(&ctx->arena, "demo:lr=0.01,replicas=%d,k=4,s=8", replicas), 1)};
    MotPlan *plan = make_plan(&r.job, &mesh, &seed);
    require(ctx, mot_lower(ctx, plan, &r.pipeline));
    require(ctx, mot_session_open(ctx, r.pipeline, plan->cluster, &opts, &r.session));
    write_params(&r.job, r.pipeline, r.session);
    for (int i = 0; i < 2; i++) {
        MotTensor rows = rows_of(&r.job, i, 0);
        require(ctx, mot_session_write_batch(r.session, r.job.inputs[i].name, 0, &rows));
    }
    return r;
}

/* Entry i of a tensor, or of the mean over its replicas. */
static double read_mean(const MotTensor *t, bool has_replicas, int64_t i)
{
    int64_t replicas = has_replicas ? t->type.dims[0] : 1;
    int64_t n = mot_type_elements(&t->type) / replicas;
    double sum = 0;
    for (int64_t r = 0; r < replicas; r++)
        sum += mot_tensor_get(t, r * n + i);
    return sum / (double)replicas;
}

/* Gives how many residuals there are that are not all 0. */
static int check_means(const Run *from, const Run *to)
{
    int n_residuals = 0;
    for (uint32_t i = 0; i < from->pipeline->vars.n; i++) {
        const MotBuf *buf = from->pipeline->vars.data[i];
        MotTensor before, after;
        if (buf->kind != MOT_BUF_PARAM)
            continue;
        require(from->job.ctx, mot_session_read(from->session, buf->name, &before));
        require(to->job.ctx, mot_session_read(to->session, buf->name, &after));
        bool is_residual = strstr(buf->name, residual) != NULL, is_zero = true;
        int64_t n = mot_type_elements(&before.type) / (is_residual ? before.type.dims[0] : 1);
        for (int64_t e = 0; e < n; e++) {
            double was = read_mean(&before, is_residual, e), is = read_mean(&after, is_residual, e);
            is_zero = is_zero && was == 0;
            if (fabs(was - is) > (is_residual ? 1e-7 * fabs(was) + 1e-12 : 0))
                fail_msg("%s[%lld] was %.9g, is %.9g", buf->name, (long long)e, was, is);
        }
        n_residuals += is_residual && !is_zero;
    }
    return n_residuals;
}

static void residuals_are_dealt_out_anew(void **state)
{
    (void)state;
    static const int replicas[] = {4, 2, 8, 1};
    char dir[] = "/tmp/motley-replicas-XXXXXX";
    MotCtx ctx;
    mot_ctx_init(&ctx);
    assert_non_null(mkdtemp(dir));
    Run run = open_run(&ctx, replicas[0]);
    for (size_t i = 1; i < sizeof replicas / sizeof *replicas; i++) {
        const char *path;
        MotCheckpointInfo info = {.step = (int64_t)i};
        train_step(&run.job, run.session, (int)i - 1);
        require(&ctx, mot_checkpoint_save(&ctx, run.session, dir, &info));
        require(&ctx, mot_checkpoint_find(&ctx, dir, &path, &info));
        Run next = open_run(&ctx, replicas[i]);
        require(&ctx, mot_checkpoint_load(&ctx, next.session, path));
        assert_true(check_means(&run, &next) > 10);
        mot_session_close(run.session);
        run = next;
    }
    mot_session_close(run.session);
    assert_int_equal(system(mot_arena_printf(&ctx.arena, "rm -rf %s", dir)), 0);
    mot_ctx_deinit(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(residuals_are_dealt_out_anew)};
    return cmocka_run_group_tests_name("replicas", tests, NULL, NULL);
}
