/*
 * Another plan while a training runs: everything of the old one lives in a context, which is
 * dropped when the new one is at work.
 */
#include "job/switch.h"

#include "codegen/codegen.h"
#include "passes/plan/cost.h"

#include <math.h>
#include <string.h>

/* ---- The switch ---- */

typedef struct {
    MotJob next;
    MotPlanMaker *make;
    void *self;
} Switch;

static MotStatus place(MotCtx *ctx, void *self)
{
    Switch *w = self;
    MOT_TRY(w->make(ctx, &w->next, w->self, &w->next.plan));
    MOT_TRY(mot_job_check_plan(ctx, &w->next));
    return mot_job_lower(ctx, &w->next);
}

/* New ranks with the state of the old ones. */
static MotStatus start(MotCtx *ctx, MotJob *next, MotSession *old)
{
    if (mot_session_is_halted(old) && mot_session_held(old) == MOT_HELD_TORN)
        return mot_job_start(ctx, next);
    MOT_TRY(mot_job_open(ctx, next));
    MotStatus status = mot_session_take(next->session, old);
    if (status != MOT_OK)
        mot_session_close(next->session);
    return status;
}

static void drop_context(void *ctx)
{
    mot_ctx_deinit(ctx);
}

MotStatus mot_job_switch(MotCtx *ctx, MotJob *job, MotPlanMaker *make, void *self)
{
    Switch w = {*job, make, self};
    w.next.placed = mot_arena_new(&ctx->arena, MotCtx);
    w.next.stage_ns = mot_now_ns();
    mot_ctx_init(w.next.placed);
    mot_ctx_inherit(w.next.placed, ctx);
    mot_ctx_defer(ctx, drop_context, w.next.placed);
    MotStatus status = mot_ctx_run(w.next.placed, place, &w);
    if (status != MOT_OK)
        mot_fail(ctx, status, MOT_NOWHERE, "%s", mot_text_get(&w.next.placed->error));
    else
        status = start(ctx, &w.next, job->session);
    if (status != MOT_OK) {
        mot_ctx_deinit(w.next.placed);
        return status;
    }
    mot_session_close(job->session);
    if (job->placed)
        mot_ctx_deinit(job->placed);
    *job = w.next;
    return MOT_OK;
}

/* ---- The same plan on other devices ---- */

/* The members of a stage to be: devices, and their shares. */
typedef struct {
    uint32_t n, device[MOT_MAX_RANKS];
    int64_t share[MOT_MAX_RANKS];
} Members;

static Members members_of(const MotMesh *mesh)
{
    Members m = {.n = mesh->n_devices};
    memcpy(m.device, mesh->devices, m.n * sizeof *m.device);
    memcpy(m.share, mesh->axis[0].share, m.n * sizeof *m.share);
    return m;
}

static MotStatus make_plan(MotCtx *ctx, const MotJob *job, void *self, MotPlan **out_plan)
{
    const Members *members = self;
    MotPlan *plan = mot_arena_copy(&ctx->arena, job->plan, sizeof *plan);
    plan->ctx = ctx;
    plan->devices = mot_arena_array(&ctx->arena, MotDevicePrediction, job->cluster->devices.n);
    plan->stages.data = mot_arena_array(&ctx->arena, MotStage, plan->stages.n);
    for (uint32_t s = 0; s < plan->stages.n; s++) {
        const Members *m = &members[s];
        MotMesh *mesh = &plan->stages.data[s].mesh;
        *mesh = job->plan->stages.data[s].mesh;
        mesh->n_devices = mesh->axis[0].n = m->n;
        mesh->devices = mot_arena_copy(&ctx->arena, m->device, m->n * sizeof *m->device);
        mesh->axis[0].share = mot_arena_copy(&ctx->arena, m->share, m->n * sizeof *m->share);
    }
    plan->ops = mot_arena_copy(&ctx->arena, plan->ops, plan->graph->ops.n * sizeof *plan->ops);
    plan->values =
        mot_arena_copy(&ctx->arena, plan->values, plan->graph->values.n * sizeof *plan->values);
    *out_plan = plan;
    return MOT_OK;
}

MotStatus mot_job_check_elastic(MotCtx *ctx, const MotJob *job)
{
    for (uint32_t s = 0; s < job->plan->stages.n; s++)
        if (job->plan->stages.data[s].mesh.n_axes != 1)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "the plan has %u axes in stage %u: devices can come and go only where "
                            "every stage has one",
                            job->plan->stages.data[s].mesh.n_axes, s);
    return MOT_OK;
}

static double speed_of(const MotJob *job, uint32_t device)
{
    return mot_cost_rates(job->cluster, device).flops;
}

/* Where only devices without a share are left, it is by their speeds. */
static void mend_shares(const MotJob *job, Members *m)
{
    enum { FINE = 64 };
    double fastest = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->share[i] > 0)
            return;
        fastest = fmax(fastest, speed_of(job, m->device[i]));
    }
    for (uint32_t i = 0; i < m->n; i++)
        m->share[i] = 1 + (int64_t)((FINE - 1) * speed_of(job, m->device[i]) / fastest);
}

MotStatus mot_job_remove_ranks(MotCtx *ctx, MotJob *job, const bool *is_removed)
{
    Members *members = mot_arena_array(&ctx->arena, Members, job->plan->stages.n);
    uint32_t rank = 0;
    MOT_TRY(mot_job_check_elastic(ctx, job));
    for (uint32_t s = 0; s < job->plan->stages.n; s++) {
        const MotMesh *mesh = &job->plan->stages.data[s].mesh;
        Members *m = &members[s];
        for (uint32_t i = 0; i < mesh->n_devices; i++, rank++)
            if (!is_removed[rank]) {
                m->device[m->n] = mesh->devices[i];
                m->share[m->n++] = mesh->axis[0].share[i];
            }
        if (m->n == 0)
            return mot_fail(
                ctx, MOT_ERR_RANK, MOT_NOWHERE,
                job->plan->stages.n > 1 ? "stage %u has no device left" : "no device is left", s);
        mend_shares(job, m);
    }
    return mot_job_switch(ctx, job, make_plan, members);
}

/* The stage whose slowest rank was busy for longest. */
static uint32_t find_busiest(const MotJob *job)
{
    uint32_t busiest = 0;
    int64_t most = -1;
    for (uint32_t r = 0; r < mot_session_ranks(job->session); r++)
        if (mot_session_rank(job->session, r)->busy_ns > most) {
            most = mot_session_rank(job->session, r)->busy_ns;
            busiest = mot_pipeline_stage(job->pipeline, r);
        }
    return busiest;
}

/* Shares are small integers: they are multiplied until the new one has its place among them. */
static void add_member(const MotJob *job, Members *m, uint32_t device)
{
    static const double FINE = 64;
    double share = 0, speed = 0;
    int64_t factor = 1;
    for (uint32_t i = 0; i < m->n; i++) {
        share += (double)m->share[i];
        speed += speed_of(job, m->device[i]);
    }
    double exact = share * speed_of(job, device) / speed;
    while ((double)factor * exact < FINE &&
           fabs(round((double)factor * exact) - (double)factor * exact) >
               0.01 * (double)factor * exact)
        factor++;
    for (uint32_t i = 0; i < m->n; i++)
        m->share[i] *= factor;
    m->device[m->n] = device;
    m->share[m->n++] = (int64_t)fmax(1, round((double)factor * exact));
}

MotStatus mot_job_add_device(MotCtx *ctx, MotJob *job, uint32_t device)
{
    Members *members = mot_arena_array(&ctx->arena, Members, job->plan->stages.n);
    uint32_t stage = find_busiest(job);
    MOT_TRY(mot_job_check_elastic(ctx, job));
    if (mot_pipeline_ranks(job->pipeline) == MOT_MAX_RANKS)
        return mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "there are %d ranks already, the most",
                        MOT_MAX_RANKS);
    mot_job_assume_rates(job->cluster);
    for (uint32_t s = 0; s < job->plan->stages.n; s++)
        members[s] = members_of(&job->plan->stages.data[s].mesh);
    add_member(job, &members[stage], device);
    return mot_job_switch(ctx, job, make_plan, members);
}
