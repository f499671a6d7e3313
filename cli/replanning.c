/*
 * The planner is asked twice with the same speeds: after the step whether there is a better plan,
 * and at the switch for that plan, which lives in the context of the new ranks. It takes
 * milliseconds.
 */
#include "cli/replanning.h"

#include "cli/balance.h"
#include "job/switch.h"
#include "passes/plan/replan.h"
#include "support/json.h"

void mot_replanning_begin(MotTrainer *t, MotRebalance *rebalance)
{
    t->replanning = (MotReplanning){.rebalance = rebalance, .effective = -1, .ask_at = -1};
}

void mot_replanning_ask(MotTrainer *t)
{
    enum { MEASURED = 10 };
    t->replanning.ask_at = t->step + MEASURED - 1;
}

static MotStatus find_plan(MotCtx *ctx, const MotJob *job, const double *unit, MotReplan *out)
{
    MotPlanOpts opts;
    MOT_TRY(mot_job_plan_opts(ctx, job, &opts));
    return mot_replan(ctx, job->plan, unit, &opts, out);
}

static void schedule(MotTrainer *t, int64_t step, double before, const MotReplan *found)
{
    MotReplanning *r = &t->replanning;
    r->effective = step + MOT_BALANCE_DELAY;
    r->before = before;
    r->predicted = before * (1 - found->then / found->now);
    MotJsonWriter w = mot_balance_record(t, step, "replan");
    mot_json_put_int(&w, "effective", r->effective + 1);
    mot_json_put_number(&w, "before_ms", r->before * 1e3);
    mot_json_put_number(&w, "predicted_ms", r->predicted * 1e3);
    mot_balance_write(t->log_file, &w);
    mot_balance_tell(
        t, step,
        mot_arena_printf(&t->ctx->arena,
                         "another plan from step %lld on, to save %.1f of %.1f ms a step",
                         (long long)r->effective + 1, r->predicted * 1e3, r->before * 1e3));
}

/* What failed says why, and the training goes on as it was. */
static void warn(MotTrainer *t)
{
    mot_trainer_make_room(t);
    mot_warn(t->ctx, MOT_NOWHERE, "no other plan: %s", mot_text_get(&t->ctx->error));
    mot_error_clear(t->ctx);
}

void mot_replanning_after(MotTrainer *t, int64_t step, const MotDecision *d)
{
    MotReplanning *r = &t->replanning;
    MotReplan found;
    bool is_done = d->kind == MOT_BALANCE_STUCK || d->kind == MOT_BALANCE_MEASURED ||
                   (d->kind == MOT_BALANCE_KEEP && step == r->ask_at);
    if (!r->rebalance || !is_done || step + MOT_BALANCE_DELAY >= t->steps)
        return;
    double before = mot_rebalance_speeds(r->rebalance, r->unit);
    if (find_plan(t->ctx, t->job, r->unit, &found) != MOT_OK)
        warn(t);
    else if (found.plan)
        schedule(t, step, before, &found);
}

static MotStatus make_plan(MotCtx *ctx, const MotJob *job, void *self, MotPlan **out_plan)
{
    const MotReplanning *r = self;
    MotReplan found;
    MOT_TRY(find_plan(ctx, job, r->unit, &found));
    if (!found.plan)
        return mot_fail(ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE,
                        "with the shares of by now there is none that is better");
    found.plan->cuts = job->plan->cuts;
    *out_plan = found.plan;
    return MOT_OK;
}

MotStatus mot_replanning_before(MotTrainer *t)
{
    MotReplanning due = t->replanning;
    if (due.effective != t->step)
        return MOT_OK;
    int64_t start_ns = mot_now_ns();
    if (mot_job_switch(t->ctx, t->job, make_plan, &due) != MOT_OK) {
        warn(t);
        return MOT_OK;
    }
    MOT_TRY(mot_trainer_renew(t));
    mot_rebalance_watch(t->replanning.rebalance, t->step, due.before, due.predicted);
    MotJsonWriter w = mot_balance_record(t, t->step, "replanned");
    const MotMesh *mesh = &t->job->plan->stages.data[0].mesh;
    mot_json_put_ints(&w, "shares", mesh->axis[0].share, mesh->n_devices);
    mot_json_put_number(&w, "ms", (double)(mot_now_ns() - start_ns) * 1e-6);
    mot_balance_write(t->log_file, &w);
    return MOT_OK;
}
