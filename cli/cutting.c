/* The options of cuts, and what is said of them. Steps are shown counted from 1, as everywhere in the log. */
#include "cli/cutting.h"

#include "cli/balance.h"

#include <string.h>

const MotOption mot_cutting_options[] = {
    {"--cut-pick", "RULE",
     "which columns are left out: priority (those that change least), window or random; default "
     "priority"},
    {"--cut-most", "PART", "of a layer's columns that a device may leave out; default 0.75"},
    {"--accuracy-budget", "PART",
     "of the products of the whole training that may be left out; default 0.1"},
    {"--target", "TIME",
     "of all devices, that a slow one is brought to: mean, median or min; default mean"},
    {NULL, NULL, NULL}};

static const char *const pick_names[] = {"priority", "window", "random", NULL};
static const char *const target_names[] = {"mean", "median", "min", NULL};

static MotStatus read_choice(MotTrainer *t, const char *option, const char *const *names,
                             int *out_choice)
{
    const char *text = mot_args_get(t->job->args, option, names[0]);
    for (int i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0) {
            *out_choice = i;
            return MOT_OK;
        }
    return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s %s: it is %s, %s or %s", option,
                    mot_quote(&t->ctx->arena, text), names[0], names[1], names[2]);
}

static MotStatus read_part(MotTrainer *t, const char *option, double most, double otherwise,
                           double *out_part)
{
    MOT_TRY(mot_args_number(t->ctx, t->job->args, option, otherwise, out_part));
    if (*out_part >= 0 && *out_part <= most)
        return MOT_OK;
    return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s %g: it is a part, from 0 to %g", option,
                    *out_part, most);
}

static MotStatus begin(MotTrainer *t, const MotZeroOpts *opts, MotCutPick pick)
{
    const MotProgram *p = t->job->pipeline->stages.data[0];
    double *part = mot_arena_array(&t->ctx->arena, double, p->cuts.n), all = 0;
    for (uint32_t l = 0; l < p->cuts.n; l++)
        all += p->cuts.data[l].flops;
    for (uint32_t l = 0; l < p->cuts.n; l++)
        part[l] = p->cuts.data[l].flops / all;
    t->zero = mot_zero_make(t->ctx, part, p->cuts.n, mot_session_ranks(t->job->session), opts);
    MotCutPolicy policy = mot_zero_policy(t->zero);
    return mot_cutter_make(t->ctx, t->job->session, &policy, pick, t->seed, &t->cutter);
}

MotStatus mot_cutting_begin(MotTrainer *t)
{
    const MotProgram *p = t->job->pipeline->stages.data[0];
    MotZeroOpts opts = {.spent = t->cut_spent};
    int pick, target;
    if (t->job->plan->cuts == MOT_CUT_NONE) {
        mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                 "--balance zero leaves products out, which costs accuracy");
        mot_hint(t->ctx, "--allow cuts consents to that");
        return t->ctx->status;
    }
    MOT_TRY(read_choice(t, "--cut-pick", pick_names, &pick));
    MOT_TRY(read_choice(t, "--target", target_names, &target));
    MOT_TRY(read_part(t, "--cut-most", 0.95, 0.75, &opts.most));
    MOT_TRY(read_part(t, "--accuracy-budget", 1, 0.1, &opts.budget));
    opts.target = (MotTarget)target;
    if (p->cuts.n == 0)
        return mot_fail(
            t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
            "--balance zero: no layer of this plan can be cut: it takes one stage, and a "
            "weight whose three products are split alike");
    return begin(t, &opts, (MotCutPick)pick);
}

MotStatus mot_cutting_refuse(MotTrainer *t)
{
    for (const MotOption *o = mot_cutting_options; o->name; o++)
        if (mot_args_has(t->job->args, o->name))
            return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is for --balance zero",
                            o->name);
    return MOT_OK;
}

MotStatus mot_lending_begin(MotTrainer *t)
{
    const MotProgram *p = t->job->pipeline->stages.data[0];
    MotZeroOpts opts = {.most = 0.95, .lends = true};
    bool can_lend = false;
    for (uint32_t l = 0; l < p->cuts.n; l++)
        can_lend |= p->cuts.data[l].is_lendable;
    if (!can_lend)
        return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--balance migrate: no layer of this plan can be lent: it takes one stage, "
                        "one micro-batch, and weights that are split over the devices");
    return begin(t, &opts, MOT_PICK_RANDOM);
}

MotStatus mot_cutting_before(MotTrainer *t, int64_t step)
{
    return t->cutter ? mot_cutter_before(t->cutter, step) : MOT_OK;
}

static const char *name_of(const MotCutDecision *d)
{
    return d->kind == MOT_BALANCE_MOVE   ? d->lender ? "lend" : "cut"
           : d->kind == MOT_BALANCE_UNDO ? "undo"
                                         : "measured";
}

static void log_decision(MotTrainer *t, int64_t step, const MotCutDecision *d, FILE *log)
{
    const MotProgram *p = t->job->pipeline->stages.data[0];
    MotJsonWriter w = mot_balance_record(t, step, name_of(d));
    if (d->kind != MOT_BALANCE_MEASURED) {
        mot_json_open(&w, "columns", '[');
        for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++)
            mot_json_put_ints(&w, NULL, d->cut + (size_t)i * p->cuts.n, p->cuts.n);
        mot_json_close(&w, ']');
        mot_json_put_int(&w, "effective", step + 1 + MOT_BALANCE_DELAY);
    }
    if (d->kind == MOT_BALANCE_MOVE)
        mot_json_put_int(&w, "rank", d->rank);
    mot_json_put_number(&w, "before_ms", d->before * 1e3);
    mot_json_put_number(&w, "predicted_ms", d->predicted * 1e3);
    if (d->kind != MOT_BALANCE_MOVE)
        mot_json_put_number(&w, "measured_ms", d->measured * 1e3);
    mot_json_put_number(&w, "spent", t->cut_spent / (double)t->steps);
    mot_balance_write(log, &w);
}

/* `0/45/0/0 %` */
static const char *parts_text(MotTrainer *t, const MotCutDecision *d)
{
    MotText text;
    uint32_t n_layers = t->job->pipeline->stages.data[0]->cuts.n;
    mot_text_init(&text, &t->ctx->arena);
    for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++)
        mot_text_printf(&text, "%s%.0f", i ? "/" : "",
                        100 * mot_cutter_part(t->cutter, i, d->cut + (size_t)i * n_layers));
    return mot_text_get(&text);
}

/* What becomes of the columns. */
static const char *fate_of(const MotCutDecision *d)
{
    return d->lender ? "computed by others" : "left out";
}

static const char *decision_text(MotTrainer *t, int64_t step, const MotCutDecision *d)
{
    MotArena *arena = &t->ctx->arena;
    long long effective = (long long)step + 1 + MOT_BALANCE_DELAY;
    if (d->kind == MOT_BALANCE_MEASURED)
        return mot_arena_printf(arena, "the last change saves %.1f ms a step; %.1f were predicted",
                                d->measured * 1e3, d->predicted * 1e3);
    if (d->kind == MOT_BALANCE_UNDO)
        return mot_arena_printf(
            arena,
            "the last cuts save %.1f ms a step, not %.1f: %s %% of the products "
            "are left out from step %lld on",
            d->measured * 1e3, d->predicted * 1e3, parts_text(t, d), effective);
    if (d->is_spent)
        return mot_arena_printf(
            arena, "the accuracy budget is spent: nothing is left out from step %lld on",
            effective);
    if (d->predicted <= 0)
        return mot_arena_printf(
            arena, "less is needed: %s %% of the products are left out from step %lld on",
            parts_text(t, d), effective);
    return mot_arena_printf(
        arena,
        "%s holds all up: %s %% of the products are %s from step %lld on, to save %.1f "
        "of %.1f ms a step",
        mot_escape(arena, t->progress.devices[d->rank], 64), parts_text(t, d), fate_of(d),
        effective, d->predicted * 1e3, d->before * 1e3);
}

void mot_cutting_after(MotTrainer *t, int64_t step, FILE *log)
{
    MotCutDecision d;
    if (!t->cutter)
        return;
    mot_cutter_after(t->cutter, step, t->steps, &d);
    t->cut_spent = mot_zero_spent(t->zero);
    if (d.kind == MOT_BALANCE_KEEP)
        return;
    log_decision(t, step, &d, log);
    mot_balance_tell(t, step, decision_text(t, step, &d));
}
