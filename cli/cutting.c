/*
 * The options of cuts, their policies, and what is said of them. Steps are shown counted from 1, as
 * everywhere in the log.
 */
#include "cli/cutting.h"

#include "cli/balance.h"
#include "passes/plan/evaluate.h"

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

static const MotProgram *program_of(const MotTrainer *t)
{
    return t->job->pipeline->stages.data[0];
}

static MotStatus begin(MotTrainer *t, const MotZeroOpts *opts, MotCutPick pick)
{
    const MotProgram *p = program_of(t);
    double *part = mot_arena_array(&t->ctx->arena, double, p->cuts.n), all = 0;
    for (uint32_t l = 0; l < p->cuts.n; l++)
        all += p->cuts.data[l].flops;
    for (uint32_t l = 0; l < p->cuts.n; l++)
        part[l] = p->cuts.data[l].flops / all;
    t->zero = mot_zero_make(t->ctx, part, p->cuts.n, mot_session_ranks(t->job->session), opts);
    MotCutPolicy policy = mot_zero_policy(t->zero);
    return mot_cutter_make(t->ctx, t->job->session, &policy, pick, t->seed, &t->cutter);
}

static const char *mode_of(const MotTrainer *t)
{
    return mot_args_get(t->job->args, "--balance", "");
}

/* What may be left out, and which of it. */
static MotStatus read_cuts(MotTrainer *t, MotZeroOpts *out_opts, MotCutPick *out_pick)
{
    int pick, target;
    if (t->job->plan->cuts == MOT_CUT_NONE) {
        mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                 "--balance %s leaves products out, which costs accuracy", mode_of(t));
        mot_hint(t->ctx, "--allow cuts consents to that");
        return t->ctx->status;
    }
    MOT_TRY(read_choice(t, "--cut-pick", pick_names, &pick));
    MOT_TRY(read_choice(t, "--target", target_names, &target));
    MOT_TRY(read_part(t, "--cut-most", 0.95, 0.75, &out_opts->most));
    MOT_TRY(read_part(t, "--accuracy-budget", 1, 0.1, &out_opts->budget));
    out_opts->target = (MotTarget)target;
    out_opts->spent = t->cut_spent;
    *out_pick = (MotCutPick)pick;
    return MOT_OK;
}

/* What cutting and lending take; left open for plans of several axes. */
static MotStatus find_price(MotTrainer *t, MotZeroOpts *out_opts)
{
    MotCost *cost;
    if (!mot_plan_is_line(t->job->plan))
        return MOT_OK;
    MOT_TRY(mot_cost_of_plan(t->job->plan, &cost));
    out_opts->program = program_of(t);
    out_opts->cost = cost;
    return MOT_OK;
}

/* When a plan has no layers for it. */
static MotStatus suggest_split(MotCtx *ctx)
{
    mot_hint(ctx, "--fix '*=out' makes a plan that splits weights; --balance shares and auto take "
                  "any plan of one stage");
    return ctx->status;
}

static MotStatus allow_lending(MotTrainer *t, MotZeroOpts *out_opts)
{
    const MotProgram *p = program_of(t);
    for (uint32_t l = 0; l < p->cuts.n; l++)
        out_opts->lends |= p->cuts.data[l].is_lendable;
    if (!out_opts->lends) {
        mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                 "--balance %s: no layer of this plan can be lent: it takes one stage "
                 "and weights that are split over the devices",
                 mode_of(t));
        return suggest_split(t->ctx);
    }
    out_opts->most_away = 0.95;
    return MOT_OK;
}

MotStatus mot_cutting_begin(MotTrainer *t)
{
    MotZeroOpts opts = {0};
    MotCutPick pick = MOT_PICK_PRIORITY;
    MOT_TRY(read_cuts(t, &opts, &pick));
    if (program_of(t)->cuts.n == 0) {
        mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                 "--balance zero: no layer of this plan can be cut: it takes one stage, and a "
                 "weight whose three products are split alike");
        return suggest_split(t->ctx);
    }
    MOT_TRY(find_price(t, &opts));
    return begin(t, &opts, pick);
}

MotStatus mot_lending_begin(MotTrainer *t)
{
    MotZeroOpts opts = {0};
    MOT_TRY(allow_lending(t, &opts));
    MOT_TRY(find_price(t, &opts));
    return begin(t, &opts, MOT_PICK_RANDOM);
}

MotStatus mot_semi_begin(MotTrainer *t)
{
    MotZeroOpts opts = {0};
    MotCutPick pick = MOT_PICK_PRIORITY;
    MOT_TRY(read_cuts(t, &opts, &pick));
    MOT_TRY(allow_lending(t, &opts));
    MOT_TRY(find_price(t, &opts));
    return begin(t, &opts, pick);
}

MotStatus mot_cutting_refuse(MotTrainer *t)
{
    for (const MotOption *o = mot_cutting_options; o->name; o++)
        if (mot_args_has(t->job->args, o->name))
            return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is for --balance zero and semi",
                            o->name);
    return MOT_OK;
}

MotStatus mot_cutting_before(MotTrainer *t, int64_t step)
{
    return t->cutter ? mot_cutter_before(t->cutter, step) : MOT_OK;
}

/*
 * Of the columns of a decision, by rank and layer, those that others compute; whether there are
 * any.
 */
static bool find_lent(const MotTrainer *t, const MotCutDecision *d, int64_t *out_lent)
{
    uint32_t n = mot_session_ranks(t->job->session), n_layers = program_of(t)->cuts.n;
    bool any = false;
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t l = 0; d->lender[h] && l < n_layers; l++) {
            int64_t columns = d->help[h * n_layers + l];
            out_lent[(d->lender[h] - 1) * n_layers + l] += columns;
            any |= columns > 0;
        }
    return any;
}

/* A decision's columns, n * n_layers: those that others compute, and those that nobody does. */
typedef struct {
    int64_t *lent, *left_out;
    bool lends, cuts;
} Columns;

static Columns find_columns(MotTrainer *t, const MotCutDecision *d)
{
    size_t all = (size_t)mot_session_ranks(t->job->session) * program_of(t)->cuts.n;
    Columns c = {.lent = mot_arena_array(&t->ctx->arena, int64_t, all),
                 .left_out = mot_arena_array(&t->ctx->arena, int64_t, all)};
    c.lends = find_lent(t, d, c.lent);
    for (size_t k = 0; k < all; k++) {
        c.left_out[k] = d->cut[k] - c.lent[k];
        c.cuts |= c.left_out[k] > 0;
    }
    return c;
}

static const char *name_of(const MotCutDecision *d, const Columns *c)
{
    if (d->kind != MOT_BALANCE_MOVE)
        return d->kind == MOT_BALANCE_UNDO ? "undo" : "measured";
    return !c->lends ? "cut" : c->cuts ? "split" : "lend";
}

static void put_columns(MotTrainer *t, MotJsonWriter *w, const char *name, const int64_t *columns)
{
    uint32_t n_layers = program_of(t)->cuts.n;
    mot_json_open(w, name, '[');
    for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++)
        mot_json_put_ints(w, NULL, columns + (size_t)i * n_layers, n_layers);
    mot_json_close(w, ']');
}

static void log_decision(MotTrainer *t, int64_t step, const MotCutDecision *d, const Columns *c,
                         FILE *log)
{
    MotJsonWriter w = mot_balance_record(t, step, name_of(d, c));
    if (d->kind != MOT_BALANCE_MEASURED) {
        put_columns(t, &w, "columns", d->cut);
        if (c->lends)
            put_columns(t, &w, "lent", c->lent);
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
static const char *parts_text(MotTrainer *t, const int64_t *columns)
{
    MotText text;
    uint32_t n_layers = program_of(t)->cuts.n;
    mot_text_init(&text, &t->ctx->arena);
    for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++)
        mot_text_printf(&text, "%s%.0f", i ? "/" : "",
                        100 * mot_cutter_part(t->cutter, i, columns + (size_t)i * n_layers));
    return mot_text_get(&text);
}

/*
 * What becomes of the products: `0/45/0/0 % of the products are computed by others and 0/10/0/0 %
 * left out`
 */
static const char *fate_of(MotTrainer *t, const Columns *c)
{
    MotArena *arena = &t->ctx->arena;
    if (!c->lends)
        return mot_arena_printf(arena, "%s %% of the products are left out",
                                parts_text(t, c->left_out));
    return mot_arena_printf(
        arena, "%s %% of the products are computed by others%s", parts_text(t, c->lent),
        c->cuts ? mot_arena_printf(arena, " and %s %% left out", parts_text(t, c->left_out)) : "");
}

static const char *decision_text(MotTrainer *t, int64_t step, const MotCutDecision *d,
                                 const Columns *c)
{
    MotArena *arena = &t->ctx->arena;
    long long effective = (long long)step + 1 + MOT_BALANCE_DELAY;
    if (d->kind == MOT_BALANCE_MEASURED)
        return mot_arena_printf(arena, "the last change saves %.1f ms a step; %.1f were predicted",
                                d->measured * 1e3, d->predicted * 1e3);
    if (d->kind == MOT_BALANCE_UNDO)
        return mot_arena_printf(
            arena, "the last change saves %.1f ms a step, not %.1f: %s from step %lld on",
            d->measured * 1e3, d->predicted * 1e3, fate_of(t, c), effective);
    if (d->is_spent)
        return mot_arena_printf(
            arena, "the accuracy budget is spent: nothing is left out from step %lld on",
            effective);
    if (d->predicted <= 0)
        return mot_arena_printf(arena, "less is needed: %s from step %lld on", fate_of(t, c),
                                effective);
    return mot_arena_printf(arena,
                            "%s holds all up: %s from step %lld on, to save %.1f of %.1f ms a step",
                            mot_escape(arena, t->progress.devices[d->rank], 64), fate_of(t, c),
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
    Columns columns = find_columns(t, &d);
    log_decision(t, step, &d, &columns, log);
    mot_balance_tell(t, step, decision_text(t, step, &d, &columns));
}
