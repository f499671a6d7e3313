/*
 * Shares that change between two steps leave every parameter and state as it was, bit for bit, on
 * the way there and on the way back, and only rows that change their owner move. Random plans of
 * real models on meshes of one and two axes, with zero shares.
 *
 *     test_resize [--seed N]      reproduces one failure
 */
#include "tests/plan_run.h"

static const Model *const models[] = {&mlp, &gpt};

/* Shares of axis 0 that the mesh is given, in turn. */
static const struct {
    MeshShape mesh;
    int64_t then[3][4];
} cases[] = {
    {{1, {2}, {{1, 1}}}, {{3, 1}, {0, 1}, {1, 1}}},
    {{1, {3}, {{5, 0, 2}}}, {{1, 1, 1}, {0, 7, 1}, {5, 0, 2}}},
    {{1, {4}, {{8, 4, 2, 1}}}, {{1, 2, 4, 8}, {1, 1, 1, 1}, {8, 4, 2, 1}}},
    {{2, {2, 2}, {{3, 1}, {1, 2}}}, {{1, 0}, {1, 3}, {3, 1}}},
};
enum { N_CASES = sizeof cases / sizeof *cases, N_MODELS = sizeof models / sizeof *models };

static unsigned first_seed = 1, n_seeds = 3;

static MotSession *open_session(const Job *job, MotPlan *plan, MotPipeline **out_pipeline)
{
    MotSession *session;
    MotSessionOpts opts = {.backend = "ref", .hang_seconds = 60};
    MotStatus status = mot_lower(job->ctx, plan, out_pipeline);
    if (status == MOT_ERR_UNSUPPORTED && strstr(mot_text_get(&job->ctx->error), "do not nest")) {
        mot_error_clear(job->ctx);
        return NULL;
    }
    require(job->ctx, status);
    require(job->ctx, mot_session_open(job->ctx, *out_pipeline, plan->cluster, &opts, &session));
    write_params(job, *out_pipeline, session);
    for (int i = 0; i < 2; i++) {
        MotTensor rows = rows_of(job, i, 0);
        require(job->ctx, mot_session_write_batch(session, job->inputs[i].name, 0, &rows));
    }
    train_step(job, session, 0); /* so that the states are not zeros */
    return session;
}

/*
 * Bytes that have to move on a mesh of one axis: rows that a rank gets and had not; all of a tensor
 * that is split within its rows. Shares `from` are the program's.
 */
static int64_t count_moves(const MotProgram *p, const int64_t *from, const int64_t *to)
{
    int64_t bytes = 0;
    uint32_t n = p->mesh.n_devices;
    for (uint32_t b = 0; b < p->bufs.n; b++) {
        const MotBuf *buf = &p->bufs.data[b];
        int dim = -1;
        for (int d = 0; d < buf->type.rank; d++)
            dim = buf->type.dims[d] < 0 ? d : dim;
        if (buf->kind == MOT_BUF_SCRATCH || dim < 0)
            continue;
        int64_t granule = p->dims.data[-buf->type.dims[dim] - 1].granule,
                units = buf->global.dims[dim] / granule, had[4], gets[4], had_at = 0, gets_at = 0,
                fresh = 0;
        bool is_same = true;
        mot_share_split(from, n, units, had);
        mot_share_split(to, n, units, gets);
        for (uint32_t r = 0; r < n; had_at += had[r], gets_at += gets[r], r++) {
            is_same = is_same && had[r] == gets[r];
            for (int64_t u = gets_at; u < gets_at + gets[r]; u++)
                fresh += u < had_at || u >= had_at + had[r];
        }
        int64_t whole = mot_type_bytes(&buf->global) * buf->copies;
        bytes += dim == 0 ? whole / units * fresh : is_same ? 0 : whole;
    }
    return bytes;
}

static void check_moves(const Job *job, MotPlan *plan, uint32_t which, const char *what)
{
    MotPipeline *pipeline;
    MotSession *session = open_session(job, plan, &pipeline);
    size_t n;
    if (!session)
        return;
    const MotProgram *program = pipeline->stages.data[0];
    double *before = read_params(job, pipeline, session, &n);
    const int64_t *shares = cases[which].mesh.share[0];
    for (int i = 0; i < 3; shares = cases[which].then[i++]) {
        int64_t moved;
        require(job->ctx, mot_session_reshare(session, 0, 0, cases[which].then[i], &moved));
        double *after = read_params(job, pipeline, session, &n);
        if (memcmp(before, after, n * sizeof *before) != 0)
            fail_msg("%s: a parameter or state differs after move %d", what, i);
        if (program->mesh.n_axes == 1)
            assert_int_equal(moved, count_moves(program, shares, cases[which].then[i]));
        require(job->ctx, mot_session_reshare(session, 0, 0, cases[which].then[i], &moved));
        assert_int_equal(moved, 0);
    }
    train_step(job, session, 1);
    mot_session_close(session);
}

static void a_move_keeps_every_bit(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++)
        for (uint32_t which = 0; which < N_CASES; which++) {
            MotCtx ctx;
            mot_ctx_init(&ctx);
            Job job = make_job(&ctx, models[m], "adamw:lr=0.01", 1);
            for (unsigned s = first_seed; s < first_seed + n_seeds; s++) {
                unsigned seed = s;
                check_moves(&job, make_plan(&job, &cases[which].mesh, &seed), which,
                            mot_arena_printf(&ctx.arena, "%s, case %u (test_resize --seed %u)",
                                             models[m]->model, which, s));
            }
            mot_ctx_deinit(&ctx);
        }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_move_keeps_every_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
