/*
 * The modes of --balance, and what is said and logged of their decisions. Steps are shown counted
 * from 1, as everywhere in the log.
 */
#include "cli/balance.h"

#include "cli/cutting.h"
#include "cli/replanning.h"
#include "passes/plan/evaluate.h"

#include <string.h>

static const char *const kind_names[MOT_N_BALANCE_KINDS] = {
    [MOT_BALANCE_KEEP] = "keep",         [MOT_BALANCE_MOVE] = "move",
    [MOT_BALANCE_MEASURED] = "measured", [MOT_BALANCE_UNDO] = "undo",
    [MOT_BALANCE_STUCK] = "stuck",       [MOT_BALANCE_LINK] = "slow_link",
    [MOT_BALANCE_NO_ROOM] = "no_room"};

static MotStatus begin_policy(MotTrainer *t, bool may_replan)
{
    MotSplitWork *work = mot_arena_new(&t->ctx->arena, MotSplitWork);
    MotCost *cost;
    MotStatus status = mot_split_work_find(t->ctx, t->job->plan, work);
    if (status != MOT_OK) {
        mot_note(t->ctx, "for --balance %s", mot_args_get(t->job->args, "--balance", ""));
        return status;
    }
    MOT_TRY(mot_cost_of_plan(t->job->plan, &cost));
    MotRebalance *rebalance = mot_rebalance_make(
        t->ctx, work, mot_simulation_make(t->ctx, t->job->pipeline->stages.data[0], cost),
        mot_session_ranks(t->job->session));
    t->policy = mot_rebalance_policy(rebalance);
    t->balancer.policy = &t->policy;
    mot_replanning_begin(t, may_replan ? rebalance : NULL);
    return MOT_OK;
}

static MotStatus begin_shares(MotTrainer *t)
{
    return begin_policy(t, false);
}

/* A plan from a file was chosen by the user. */
static MotStatus begin_auto(MotTrainer *t)
{
    return begin_policy(t, !t->job->given);
}

static MotStatus begin_nothing(MotTrainer *t)
{
    (void)t;
    return MOT_OK;
}

static const struct {
    const char *name;
    MotStatus (*begin)(MotTrainer *);
} modes[] = {{"off", begin_nothing},      {"shares", begin_shares}, {"migrate", mot_lending_begin},
             {"zero", mot_cutting_begin}, {"semi", mot_semi_begin}, {"auto", begin_auto}};

MotStatus mot_balance_begin(MotTrainer *t)
{
    const char *mode = mot_args_get(t->job->args, "--balance", modes[0].name);
    t->balancer = mot_balancer_make(t->job->session, NULL);
    t->cutter = NULL;
    mot_replanning_begin(t, NULL);
    if (strcmp(mode, "zero") != 0 && strcmp(mode, "semi") != 0)
        MOT_TRY(mot_cutting_refuse(t));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(mode, modes[i].name) == 0)
            return modes[i].begin(t);
    return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                    "--balance %s: it is off, shares, migrate, zero, semi or auto",
                    mot_quote(&t->ctx->arena, mode));
}

void mot_balance_write(FILE *log, MotJsonWriter *w)
{
    mot_json_close(w, '}');
    fprintf(log, "%s\n", mot_text_get(&w->text));
    fflush(log);
}

void mot_balance_tell(MotTrainer *t, int64_t step, const char *what)
{
    mot_trainer_make_room(t);
    mot_info(t->ctx, "balance after step %lld: %s", (long long)step + 1, what);
}

MotJsonWriter mot_balance_record(MotTrainer *t, int64_t step, const char *action)
{
    MotJsonWriter w;
    mot_json_begin(&w, &t->ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "event", "balance");
    mot_json_put_int(&w, "step", step + 1);
    mot_json_put_string(&w, "action", action);
    return w;
}

MotStatus mot_balance_before(MotTrainer *t, int64_t step, FILE *log)
{
    MOT_TRY(mot_cutting_before(t, step));
    MOT_TRY(mot_balancer_before(&t->balancer, step));
    if (t->balancer.resized.bytes < 0)
        return MOT_OK;
    MotJsonWriter w = mot_balance_record(t, step, "resized");
    mot_json_put_int(&w, "bytes", t->balancer.resized.bytes);
    mot_json_put_number(&w, "ms", t->balancer.resized.seconds * 1e3);
    mot_balance_write(log, &w);
    return MOT_OK;
}

static bool has_shares(const MotDecision *d)
{
    return d->kind == MOT_BALANCE_MOVE || d->kind == MOT_BALANCE_UNDO ||
           d->kind == MOT_BALANCE_NO_ROOM;
}

static void log_decision(MotTrainer *t, int64_t step, const MotDecision *d, FILE *log)
{
    MotJsonWriter w = mot_balance_record(t, step, kind_names[d->kind]);
    if (d->kind == MOT_BALANCE_MOVE || d->kind == MOT_BALANCE_STUCK ||
        d->kind == MOT_BALANCE_LINK) {
        mot_json_put_int(&w, "rank", d->rank);
        mot_json_put_number(&w, "factor", d->factor);
    }
    if (has_shares(d))
        mot_json_put_ints(&w, "shares", d->share, mot_session_ranks(t->job->session));
    if (d->kind == MOT_BALANCE_MOVE || d->kind == MOT_BALANCE_UNDO)
        mot_json_put_int(&w, "effective", step + 1 + MOT_BALANCE_DELAY);
    if (d->before > 0)
        mot_json_put_number(&w, "before_ms", d->before * 1e3);
    if (d->predicted > 0)
        mot_json_put_number(&w, "predicted_ms", d->predicted * 1e3);
    if (d->kind == MOT_BALANCE_MEASURED || d->kind == MOT_BALANCE_UNDO)
        mot_json_put_number(&w, "measured_ms", d->measured * 1e3);
    mot_balance_write(log, &w);
}

/* `8/4/2/1` */
static const char *shares_text(MotTrainer *t, const MotDecision *d)
{
    MotText text;
    mot_text_init(&text, &t->ctx->arena);
    for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++)
        mot_text_printf(&text, "%s%lld", i ? "/" : "", (long long)d->share[i]);
    return mot_text_get(&text);
}

static const char *decision_text(MotTrainer *t, int64_t step, const MotDecision *d)
{
    MotArena *arena = &t->ctx->arena;
    const char *device = mot_escape(arena, t->progress.devices[d->rank], 64);
    long long effective = (long long)step + 1 + MOT_BALANCE_DELAY;
    switch (d->kind) {
    case MOT_BALANCE_MOVE:
        return mot_arena_printf(
            arena, "%s holds all up: shares %s from step %lld on, to save %.1f of %.1f ms a step",
            device, shares_text(t, d), effective, d->predicted * 1e3, d->before * 1e3);
    case MOT_BALANCE_MEASURED:
        return mot_arena_printf(arena, "the last change saves %.1f ms a step; %.1f were predicted",
                                d->measured * 1e3, d->predicted * 1e3);
    case MOT_BALANCE_UNDO:
        return mot_arena_printf(
            arena, "the last change saves %.1f ms a step, not %.1f: shares %s from step %lld on",
            d->measured * 1e3, d->predicted * 1e3, shares_text(t, d), effective);
    case MOT_BALANCE_STUCK:
        return mot_arena_printf(arena, "%s holds all up, and no other shares save enough", device);
    case MOT_BALANCE_LINK:
        return mot_arena_printf(
            arena, "%s communicates for %.1f times as long as before; other shares don't help",
            device, d->factor);
    default:
        return mot_arena_printf(arena, "shares %s need more memory than a device has",
                                shares_text(t, d));
    }
}

void mot_balance_after(MotTrainer *t, int64_t step, FILE *log)
{
    MotDecision d;
    mot_cutting_after(t, step, log);
    mot_balancer_after(&t->balancer, step, t->steps, &d);
    if (d.kind != MOT_BALANCE_KEEP) {
        log_decision(t, step, &d, log);
        mot_balance_tell(t, step, decision_text(t, step, &d));
    }
    mot_replanning_after(t, step, &d);
}
