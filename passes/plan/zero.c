/* Medians of the last steps -> stragglers -> columns, and whether they are worth it. */
#include "passes/plan/zero.h"

#include "passes/plan/lend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARM_UP = 2, /* steps after a change that are not measured: first touches of memory */
    SHORT = 8,   /* steps that a decision looks at where it is clear, */
    LONG = 30,   /* and where it is not */
    PAUSE = 50   /* steps without more cuts after some were undone */
};
static const double ONE_STEP = 1 / (double)SHORT; /* of the short window */
/*
 * A straggler's step takes this much longer than the median: in seven of the short window's steps,
 * or in three quarters of the long one's. With steps whose logarithms scatter by 0.3, seven of
 * eight are so by chance a few times in a million.
 */
static const double CLEARLY = 1.5, STEADILY = 1.15;
/*
 * More cuts save at least this part of a step; fewer of them are worth a change from this part of
 * the cuts on.
 */
static const double GAIN = 0.08, FEWER = 0.2;

/* Seconds a step, uncut; whole: other and all layers. */
typedef struct {
    double other, *layer, whole;
} Rank;

/* What ranks do not compute; whom they help, + 1, and with how much: by rank and layer. */
typedef struct {
    int64_t *cut;
    uint32_t lender[MOT_MAX_DEVICES];
    int64_t *help;
} Split;

struct MotZero {
    MotCtx *ctx;
    uint32_t n, n_layers;
    const double *part;
    MotZeroOpts opts;
    double spent; /* of the budget, in steps */
    /* steps since the cuts last changed; the newest is at (since - WARM_UP - 1) % LONG */
    uint32_t since;
    uint32_t window;       /* the newest steps that `rank` is from */
    double *other, *layer; /* [LONG][n], [LONG][n * n_layers]: as if nothing were cut; a ring */
    double took[LONG];     /* by the slowest rank, as it was */
    int64_t share[MOT_MAX_DEVICES]; /* in the last step */
    Split now, want, old;           /* in the last step; what is decided, and what was before */
    bool is_tried;                  /* a move that is not judged yet, from step `effective` on */
    int64_t effective, paused;
    double before, predicted;
    Rank *rank;          /* [n]: medians of the window */
    double *layers;      /* [n * n_layers]: theirs */
    int64_t *left_out;   /* [n * n_layers]: columns that nobody computes, of `want`, */
    int64_t *most_cut;   /* and that nobody would if nothing were lent */
    double *column_cost; /* [n * n_layers]: of the budget */
    MotLendPrice *price; /* [n * n_layers], or NULL */
};

static Split make_split(MotArena *arena, size_t n)
{
    return (Split){.cut = mot_arena_array(arena, int64_t, n),
                   .help = mot_arena_array(arena, int64_t, n)};
}

static void copy_split(const MotZero *z, Split *to, const Split *from)
{
    size_t bytes = (size_t)z->n * z->n_layers * sizeof *to->cut;
    memcpy(to->cut, from->cut, bytes);
    memcpy(to->help, from->help, bytes);
    memcpy(to->lender, from->lender, sizeof to->lender);
}

MotZero *mot_zero_make(MotCtx *ctx, const double *part, uint32_t n_layers, uint32_t n,
                       const MotZeroOpts *opts)
{
    MotArena *arena = &ctx->arena;
    MotZero *z = mot_arena_new(arena, MotZero);
    size_t all = (size_t)n * n_layers;
    *z = (MotZero){.ctx = ctx, .n = n, .n_layers = n_layers, .opts = *opts, .spent = opts->spent};
    z->part = mot_arena_copy(arena, part, n_layers * sizeof *part);
    z->other = mot_arena_array(arena, double, (size_t)LONG *n);
    z->layer = mot_arena_array(arena, double, LONG *all);
    z->rank = mot_arena_array(arena, Rank, n);
    z->layers = mot_arena_array(arena, double, all);
    for (uint32_t i = 0; i < n; i++)
        z->rank[i].layer = z->layers + (size_t)i * n_layers;
    z->now = make_split(arena, all);
    z->want = make_split(arena, all);
    z->old = make_split(arena, all);
    z->left_out = mot_arena_array(arena, int64_t, all);
    z->most_cut = mot_arena_array(arena, int64_t, all);
    z->column_cost = mot_arena_array(arena, double, all);
    if (opts->program)
        z->price = mot_arena_array(arena, MotLendPrice, all);
    return z;
}

double mot_zero_spent(const MotZero *z)
{
    return z->spent;
}

/* ---- What was measured ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *x, uint32_t n, double part)
{
    qsort(x, n, sizeof *x, compare);
    return x[(uint32_t)(part * (n - 1) + 0.5)];
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, compare);
    return 0.5 * (x[(n - 1) / 2] + x[n / 2]);
}

/* Where the ring has the step that is k back from the newest, 0. */
static uint32_t place_of(const MotZero *z, uint32_t k)
{
    return (z->since - WARM_UP - 1 - k) % LONG;
}

/* Median over the window of the value at [step][i] of rows of `width`. */
static double recent(const MotZero *z, const double *rows, uint32_t width, uint32_t i)
{
    double x[LONG];
    for (uint32_t k = 0; k < z->window; k++)
        x[k] = rows[(size_t)place_of(z, k) * width + i];
    return median(x, z->window);
}

/* The measured step as what is to be split; the ranks' medians, whose `other` has to outlive it. */
static MotSurplus make_surplus(const MotZero *z, const MotCutTimes *t, const uint32_t *lender,
                               double *other)
{
    for (uint32_t i = 0; i < z->n; i++)
        other[i] = z->rank[i].other;
    return (MotSurplus){.n = z->n,
                        .n_layers = z->n_layers,
                        .other = other,
                        .layer = z->layers,
                        .columns = t->columns,
                        .share = t->share,
                        .lender = lender,
                        .price = z->price,
                        .most_cut = z->most_cut,
                        .cost = z->column_cost,
                        .most = z->opts.most_away};
}

/* Of `cut` columns, those that nobody computes. */
static void find_left_out(const MotZero *z, const Split *split, int64_t *out)
{
    memcpy(out, split->cut, (size_t)z->n * z->n_layers * sizeof *out);
    for (uint32_t h = 0; h < z->n; h++)
        for (uint32_t l = 0; split->lender[h] && l < z->n_layers; l++)
            out[(split->lender[h] - 1) * z->n_layers + l] -= split->help[h * z->n_layers + l];
}

/* What a column that is left out costs of the budget, by rank and layer. */
static void find_costs(const MotZero *z, const MotCutTimes *t)
{
    double shares = 0;
    for (uint32_t i = 0; i < z->n; i++)
        shares += (double)t->share[i];
    for (uint32_t i = 0; i < z->n; i++)
        for (uint32_t l = 0; l < z->n_layers; l++) {
            uint32_t k = i * z->n_layers + l;
            double part = z->part[l] * (double)t->share[i] / shares;
            z->column_cost[k] = t->columns[k] ? part / (double)t->columns[k] : 0;
        }
}

/* Of the budget for a step in which nobody computes these columns. */
static double cost_of(const MotZero *z, const int64_t *left_out)
{
    double cost = 0;
    for (uint32_t k = 0; k < z->n * z->n_layers; k++)
        cost += z->column_cost[k] * (double)left_out[k];
    return cost;
}

/* Whether so many more steps at this cost are within the budget. */
static bool can_afford(const MotZero *z, const MotCutTimes *t, double cost, int steps)
{
    return z->spent + steps * cost <= z->opts.budget * (double)t->steps;
}

static bool is_same(const MotZero *z, const MotCutTimes *t)
{
    size_t bytes = (size_t)z->n * z->n_layers * sizeof *t->cut;
    return memcmp(z->now.cut, t->cut, bytes) == 0 && memcmp(z->now.help, t->help, bytes) == 0;
}

/* Other shares end all cuts, and void what was decided. */
static void follow_shares(MotZero *z, const int64_t *share)
{
    if (memcmp(z->share, share, z->n * sizeof *share) == 0)
        return;
    memcpy(z->share, share, z->n * sizeof *share);
    z->since = 0;
    z->is_tried = false;
    if (z->opts.program)
        mot_lend_price_find(z->opts.program, z->opts.cost, z->price);
}

/* Notes a step; those right after a change of the cuts count for nothing. */
static void note(MotZero *z, const MotCutTimes *t)
{
    uint32_t all = z->n * z->n_layers;
    double unused[MOT_MAX_DEVICES];
    MotSurplus surplus = make_surplus(z, t, z->now.lender, unused);
    MotSplitting split = {z->left_out, z->now.help};
    follow_shares(z, t->share);
    if (!is_same(z, t))
        z->since = 0;
    memcpy(z->now.cut, t->cut, all * sizeof *t->cut);
    memcpy(z->now.help, t->help, all * sizeof *t->help);
    memcpy(z->now.lender, t->lender, z->n * sizeof *t->lender);
    find_left_out(z, &z->now, z->left_out);
    find_costs(z, t);
    z->spent += cost_of(z, z->left_out);
    if (z->since++ < WARM_UP)
        return;
    uint32_t at = place_of(z, 0);
    z->took[at] = 0;
    for (uint32_t i = 0; i < z->n; i++) {
        double other = t->busy[i];
        for (uint32_t l = 0; l < z->n_layers; l++) {
            uint32_t k = i * z->n_layers + l;
            if (t->columns[k] == 0)
                continue;
            double done = mot_semi_part(&surplus, &split, i, l);
            other -= t->layer[k];
            z->layer[(size_t)at * all + k] = done > 0 ? t->layer[k] / done : 0;
        }
        z->other[(size_t)at * z->n + i] = fmax(other, 0);
        z->took[at] = fmax(z->took[at], t->total[i]);
    }
}

/* ---- The model ---- */

/* Seconds of rank i's step, k back from the newest, as if nothing were cut. */
static double whole_step(const MotZero *z, uint32_t k, uint32_t i)
{
    const double *layer = z->layer + ((size_t)place_of(z, k) * z->n + i) * z->n_layers;
    double sum = z->other[(size_t)place_of(z, k) * z->n + i];
    for (uint32_t l = 0; l < z->n_layers; l++)
        sum += layer[l];
    return sum;
}

static void find_ranks(MotZero *z)
{
    for (uint32_t i = 0; i < z->n; i++) {
        Rank *r = &z->rank[i];
        r->whole = r->other = recent(z, z->other, z->n, i);
        for (uint32_t l = 0; l < z->n_layers; l++) {
            r->layer[l] = recent(z, z->layer, z->n * z->n_layers, i * z->n_layers + l);
            r->whole += r->layer[l];
        }
    }
}

/*
 * That part of the window's steps in which the rank was fastest ends at this ratio to the median
 * rank.
 */
static double ratio_at(const MotZero *z, uint32_t i, double part)
{
    double ratio[LONG], all[MOT_MAX_DEVICES];
    for (uint32_t k = 0; k < z->window; k++) {
        for (uint32_t j = 0; j < z->n; j++)
            all[j] = whole_step(z, k, j);
        ratio[k] = whole_step(z, k, i) / median(all, z->n);
    }
    return quantile(ratio, z->window, part);
}

static bool cuts(const MotZero *z, uint32_t i)
{
    for (uint32_t l = 0; l < z->n_layers; l++)
        if (z->now.cut[i * z->n_layers + l])
            return true;
    return false;
}

/* All steps of the short window but one. */
static bool is_clearly_slow(const MotZero *z, uint32_t i)
{
    return ratio_at(z, i, ONE_STEP) > CLEARLY;
}

static bool is_clearly_usual(const MotZero *z, uint32_t i)
{
    return ratio_at(z, i, 1 - ONE_STEP) < STEADILY;
}

/*
 * A rank that cuts is one until it is as fast as the others; beside a clear case, who is steadily
 * behind for as long is one too.
 */
static bool straggles(const MotZero *z, uint32_t i)
{
    if (cuts(z, i))
        return z->window == SHORT ? !is_clearly_usual(z, i)
                                  : ratio_at(z, i, 0.5) > 0.5 * (1 + STEADILY);
    return ratio_at(z, i, z->window == SHORT ? ONE_STEP : 0.25) > STEADILY;
}

/* Whether a rank has become a straggler, or is none any more, beyond doubt. */
static bool has_clear_change(const MotZero *z)
{
    for (uint32_t i = 0; i < z->n; i++)
        if (cuts(z, i) ? is_clearly_usual(z, i) : is_clearly_slow(z, i))
            return true;
    return false;
}

static double find_target(const MotZero *z)
{
    double all[MOT_MAX_DEVICES], sum = 0;
    for (uint32_t i = 0; i < z->n; i++) {
        all[i] = z->rank[i].whole;
        sum += all[i];
    }
    return z->opts.target == MOT_TARGET_MEAN     ? sum / z->n
           : z->opts.target == MOT_TARGET_MEDIAN ? median(all, z->n)
                                                 : quantile(all, z->n, 0);
}

/* Seconds that leaving out n columns of the layer saves. */
static double saved(const Rank *r, uint32_t l, int64_t columns, int64_t n)
{
    return columns ? r->layer[l] * (double)n / (double)columns : 0;
}

/* The rank's columns to leave out, so that it saves `need` seconds. */
static void fit(const MotZero *z, const Rank *r, double need, const int64_t *columns,
                int64_t *out_cut)
{
    double products = r->whole - r->other;
    double gamma = products > 0 ? fmin(need / products, z->opts.most) : 0, left = need;
    for (uint32_t l = 0; l < z->n_layers; l++) {
        out_cut[l] = (int64_t)(gamma * (double)columns[l]) / MOT_CUT_BLOCK * MOT_CUT_BLOCK;
        left -= saved(r, l, columns[l], out_cut[l]);
    }
    for (uint32_t tries = 0; left > 0 && tries < z->n_layers; tries++) {
        uint32_t best = z->n_layers;
        double most = 0;
        for (uint32_t l = 0; l < z->n_layers; l++) {
            double more = saved(r, l, columns[l], MOT_CUT_BLOCK);
            bool may = (double)out_cut[l] <= gamma * (double)columns[l] &&
                       (double)(out_cut[l] + MOT_CUT_BLOCK) <= z->opts.most * (double)columns[l];
            if (may && more > most && more <= 2 * left) {
                most = more;
                best = l;
            }
        }
        if (best == z->n_layers)
            return;
        out_cut[best] += MOT_CUT_BLOCK;
        left -= most;
    }
}

static double total(const MotZero *z, const int64_t *cut)
{
    double sum = 0;
    for (uint32_t k = 0; k < z->n * z->n_layers; k++)
        sum += (double)cut[k];
    return sum;
}

/* Who may help whom: by what all that can be lent takes. */
static void find_lenders(const MotZero *z, const MotCutTimes *t, uint32_t *out_lender)
{
    MotLendRank rank[MOT_MAX_DEVICES];
    MotHelp found[MOT_MAX_DEVICES];
    double shares = 0;
    for (uint32_t i = 0; i < z->n; i++)
        shares += (double)t->share[i];
    for (uint32_t i = 0; i < z->n; i++)
        rank[i] = (MotLendRank){z->rank[i].whole, z->rank[i].whole - z->rank[i].other,
                                (double)t->share[i] / shares, straggles(z, i)};
    mot_lend_share_out(rank, z->n, z->opts.most_away, found);
    for (uint32_t h = 0; h < z->n; h++)
        out_lender[h] = found[h].lender;
}

/* What stragglers would leave out if they lent nothing. */
static void find_most_cut(MotZero *z, const MotCutTimes *t)
{
    double target = find_target(z);
    memset(z->most_cut, 0, (size_t)z->n * z->n_layers * sizeof *z->most_cut);
    for (uint32_t i = 0; i < z->n; i++)
        if (straggles(z, i) && z->rank[i].whole > target)
            fit(z, &z->rank[i], z->rank[i].whole - target, t->columns + (size_t)i * z->n_layers,
                z->most_cut + (size_t)i * z->n_layers);
}

/* What is cut of what is left to cut, and what is lent. */
static void split(MotZero *z, const MotCutTimes *t)
{
    double other[MOT_MAX_DEVICES];
    MotSplitting split = {z->left_out, z->want.help};
    find_lenders(z, t, z->want.lender);
    MotSurplus surplus = make_surplus(z, t, z->want.lender, other);
    surplus.budget =
        fmax(0, z->opts.budget * (double)t->steps - z->spent) / (double)(t->steps - t->step);
    mot_semi_split(z->ctx, &surplus, &split);
    memcpy(z->want.cut, z->left_out, (size_t)z->n * z->n_layers * sizeof *z->left_out);
    for (uint32_t h = 0; h < z->n; h++)
        for (uint32_t l = 0; z->want.lender[h] && l < z->n_layers; l++)
            z->want.cut[(z->want.lender[h] - 1) * z->n_layers + l] +=
                z->want.help[h * z->n_layers + l];
}

/* What should be cut or lent, by the measurements in the window. */
static void find_cuts(MotZero *z, const MotCutTimes *t)
{
    size_t bytes = (size_t)z->n * z->n_layers * sizeof *z->most_cut;
    find_most_cut(z, t);
    if (z->opts.lends) {
        split(z, t);
        return;
    }
    memcpy(z->want.cut, z->most_cut, bytes);
    if (total(z, z->now.cut) == 0 && !can_afford(z, t, cost_of(z, z->most_cut), SHORT))
        memset(z->want.cut, 0, bytes); /* not worth the beginning */
}

/* What a step takes that is split so. */
static double predict(MotZero *z, const MotCutTimes *t, const Split *split)
{
    double other[MOT_MAX_DEVICES];
    MotSurplus surplus = make_surplus(z, t, split->lender, other);
    find_left_out(z, split, z->left_out);
    return mot_semi_seconds(&surplus, &(MotSplitting){z->left_out, split->help});
}

/* By what it computed. */
static uint32_t find_slowest(const MotZero *z, const MotCutTimes *t)
{
    uint32_t slowest = 0;
    double most = -1;
    for (uint32_t i = 0; i < z->n; i++) {
        double seconds = z->rank[i].whole;
        for (uint32_t l = 0; l < z->n_layers; l++) {
            uint32_t k = i * z->n_layers + l;
            seconds -= saved(&z->rank[i], l, t->columns[k], t->cut[k]);
        }
        slowest = seconds > most ? i : slowest;
        most = fmax(most, seconds);
    }
    return slowest;
}

/* ---- Decisions ---- */

/* Seconds of the last steps. */
static double median_took(const MotZero *z)
{
    return recent(z, z->took, 1, 0);
}

static MotCutDecision say(const MotZero *z, MotBalanceKind kind, const Split *split)
{
    return (MotCutDecision){.kind = kind,
                            .cut = split->cut,
                            .lender = split->lender,
                            .help = split->help,
                            .before = z->before,
                            .predicted = z->predicted};
}

static void judge(MotZero *z, const MotCutTimes *t, MotCutDecision *out)
{
    double measured = z->before - median_took(z);
    bool was_worth_it = measured >= 0.5 * z->predicted;
    *out = say(z, was_worth_it ? MOT_BALANCE_MEASURED : MOT_BALANCE_UNDO, &z->old);
    out->measured = measured;
    z->is_tried = false;
    if (!was_worth_it)
        z->paused = t->step + PAUSE;
}

static void move(MotZero *z, const MotCutTimes *t, MotCutDecision *out)
{
    find_cuts(z, t);
    double now = predict(z, t, &z->now), then = predict(z, t, &z->want);
    double had = total(z, z->now.cut), wanted = total(z, z->want.cut);
    bool saves = now - then >= GAIN * now && t->step >= z->paused;
    bool frees = had - wanted > FEWER * had;
    if (!saves && !frees)
        return;
    z->before = median_took(z);
    z->predicted = now - then;
    *out = say(z, MOT_BALANCE_MOVE, &z->want);
    out->rank = find_slowest(z, t);
    out->before = now;
    copy_split(z, &z->old, &z->now);
    z->is_tried = saves;
}

/* The budget is spent: nothing is left out any more, whatever that takes. */
static void stop(MotZero *z, MotCutDecision *out)
{
    copy_split(z, &z->want, &z->now);
    for (uint32_t k = 0; k < z->n * z->n_layers; k++)
        z->want.cut[k] -= z->left_out[k];
    z->before = z->predicted = 0;
    *out = say(z, MOT_BALANCE_MOVE, &z->want);
    out->is_spent = true;
    z->is_tried = false;
}

static void decide(void *self, const MotCutTimes *t, MotCutDecision *out)
{
    MotZero *z = self;
    *out = (MotCutDecision){.kind = MOT_BALANCE_KEEP};
    note(z, t);
    if (t->step < z->effective || t->step + MOT_BALANCE_DELAY >= t->steps)
        return;
    double cost = cost_of(z, z->left_out);
    if (cost > 0 && !can_afford(z, t, cost, MOT_BALANCE_DELAY)) {
        stop(z, out);
    } else if (z->since >= WARM_UP + SHORT) {
        z->window = SHORT;
        if (z->is_tried) {
            judge(z, t, out);
        } else if (has_clear_change(z) || z->since >= WARM_UP + LONG) {
            z->window = has_clear_change(z) ? SHORT : LONG;
            find_ranks(z);
            move(z, t, out);
        }
    }
    if (out->kind == MOT_BALANCE_MOVE || out->kind == MOT_BALANCE_UNDO)
        z->effective = t->step + MOT_BALANCE_DELAY;
}

MotCutPolicy mot_zero_policy(MotZero *zero)
{
    return (MotCutPolicy){zero, decide};
}
