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
 * A straggler's step takes this much longer than the median: in seven of the short window's steps, or in three quarters of the long one's. With
 * steps whose logarithms scatter by 0.3, seven of eight are so by chance a few times in a million.
 */
static const double CLEARLY = 1.5, STEADILY = 1.15;
/* More cuts save at least this part of a step; fewer of them are worth a change from this part of the cuts on. */
static const double GAIN = 0.08, FEWER = 0.2;

/* Seconds a step, uncut; whole: other and all layers. */
typedef struct {
    double other, *layer, whole;
} Rank;

/* Who computes columns for whom. */
typedef struct {
    uint32_t lender[MOT_BALANCE_RANKS]; /* + 1; 0: nobody */
    int64_t *columns;                   /* [n * n_layers], by helper */
} Help;

struct MotZero {
    uint32_t n, n_layers;
    const double *part;
    MotZeroOpts opts;
    double spent; /* of the budget, in steps */
    uint32_t
        since; /* steps since the cuts last changed; the newest is at (since - WARM_UP - 1) % LONG */
    uint32_t window;       /* the newest steps that `rank` is from */
    double *other, *layer; /* [LONG][n], [LONG][n * n_layers]: as if nothing were cut; a ring */
    double took[LONG];     /* by the slowest rank, as it was */
    int64_t share[MOT_BALANCE_RANKS]; /* in the last step, */
    int64_t *cut;                     /* and [n * n_layers]; */
    int64_t *want, *old;              /* what is decided, and what was before */
    Help help, now, old_help;         /* with lends: wanted, decided, and decided before */
    double *helped; /* [n * n_layers]: wanted, as a part of the helper's products */
    bool is_tried;  /* a move that is not judged yet, from step `effective` on */
    int64_t effective, paused;
    double before, predicted;
    Rank *rank; /* [n]: medians of the window */
};

MotZero *mot_zero_make(MotCtx *ctx, const double *part, uint32_t n_layers, uint32_t n,
                       const MotZeroOpts *opts)
{
    MotArena *arena = &ctx->arena;
    MotZero *z = mot_arena_new(arena, MotZero);
    size_t all = (size_t)n * n_layers;
    *z = (MotZero){.n = n, .n_layers = n_layers, .opts = *opts, .spent = opts->spent};
    z->part = mot_arena_copy(arena, part, n_layers * sizeof *part);
    z->other = mot_arena_array(arena, double, (size_t)LONG *n);
    z->layer = mot_arena_array(arena, double, LONG *all);
    z->rank = mot_arena_array(arena, Rank, n);
    for (uint32_t i = 0; i < n; i++)
        z->rank[i].layer = mot_arena_array(arena, double, n_layers);
    z->cut = mot_arena_array(arena, int64_t, all);
    z->want = mot_arena_array(arena, int64_t, all);
    z->old = mot_arena_array(arena, int64_t, all);
    z->help.columns = mot_arena_array(arena, int64_t, all);
    z->now.columns = mot_arena_array(arena, int64_t, all);
    z->old_help.columns = mot_arena_array(arena, int64_t, all);
    z->helped = mot_arena_array(arena, double, all);
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

/* Of the budget for a step with these cuts. */
static double cost_of(const MotZero *z, const MotCutTimes *t, const int64_t *cut)
{
    double cost = 0, shares = 0;
    if (z->opts.lends)
        return 0;
    for (uint32_t i = 0; i < z->n; i++)
        shares += (double)t->share[i];
    for (uint32_t k = 0; k < z->n * z->n_layers; k++) {
        uint32_t rank = k / z->n_layers, layer = k % z->n_layers;
        if (cut[k])
            cost += z->part[layer] * (double)t->share[rank] / shares * (double)cut[k] /
                    (double)t->columns[k];
    }
    return cost;
}

/* Whether so many more steps with these cuts are within the budget. */
static bool can_afford(const MotZero *z, const MotCutTimes *t, const int64_t *cut, int steps)
{
    return z->spent + steps * cost_of(z, t, cut) <= z->opts.budget * (double)t->steps;
}

/* Other shares end all cuts, and void what was decided. */
static void forget(MotZero *z)
{
    z->since = 0;
    z->is_tried = false;
    memset(z->now.lender, 0, sizeof z->now.lender);
    memset(z->now.columns, 0, (size_t)z->n * z->n_layers * sizeof *z->now.columns);
}

/* Notes a step; those right after a change of the cuts count for nothing. */
static void note(MotZero *z, const MotCutTimes *t)
{
    uint32_t all = z->n * z->n_layers;
    if (memcmp(z->share, t->share, z->n * sizeof *z->share) != 0)
        forget(z);
    memcpy(z->share, t->share, z->n * sizeof *z->share);
    if (memcmp(z->cut, t->cut, all * sizeof *z->cut) != 0)
        z->since = 0;
    memcpy(z->cut, t->cut, all * sizeof *z->cut);
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
            double done = 1 - (double)t->cut[k] / (double)t->columns[k] + t->helped[k];
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

/* That part of the window's steps in which the rank was fastest ends at this ratio to the median rank. */
static double ratio_at(const MotZero *z, uint32_t i, double part)
{
    double ratio[LONG], all[MOT_BALANCE_RANKS];
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
        if (z->cut[i * z->n_layers + l])
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

/* A rank that cuts is one until it is as fast as the others; beside a clear case, who is steadily behind for as long is one too. */
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
    double all[MOT_BALANCE_RANKS], sum = 0;
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

static void copy_help(const MotZero *z, Help *to, const Help *from)
{
    memcpy(to->lender, from->lender, sizeof to->lender);
    memcpy(to->columns, from->columns, (size_t)z->n * z->n_layers * sizeof *to->columns);
}

/* Rank h computes this part of rank i's products: of each layer as many blocks as that holds. */
static void help(MotZero *z, const MotCutTimes *t, uint32_t h, uint32_t i, double part)
{
    z->help.lender[h] = i + 1;
    for (uint32_t l = 0; l < z->n_layers; l++) {
        uint32_t own = h * z->n_layers + l, theirs = i * z->n_layers + l;
        int64_t n = (int64_t)(part * (double)t->columns[theirs]) / MOT_CUT_BLOCK * MOT_CUT_BLOCK;
        z->help.columns[own] = n;
        z->want[theirs] += n;
        if (n)
            z->helped[own] =
                (double)n / (double)t->columns[theirs] * (double)t->share[i] / (double)t->share[h];
    }
}

static void find_help(MotZero *z, const MotCutTimes *t)
{
    MotLendRank rank[MOT_BALANCE_RANKS];
    MotHelp found[MOT_BALANCE_RANKS];
    double shares = 0;
    for (uint32_t i = 0; i < z->n; i++)
        shares += (double)t->share[i];
    for (uint32_t i = 0; i < z->n; i++)
        rank[i] = (MotLendRank){z->rank[i].whole, z->rank[i].whole - z->rank[i].other,
                                (double)t->share[i] / shares, straggles(z, i)};
    mot_lend_share_out(rank, z->n, z->opts.most, found);
    for (uint32_t h = 0; h < z->n; h++)
        if (found[h].lender)
            help(z, t, h, found[h].lender - 1, found[h].part);
}

/* What should be cut or lent, by the measurements in the window. */
static void find_cuts(MotZero *z, const MotCutTimes *t)
{
    size_t all = (size_t)z->n * z->n_layers;
    double target = find_target(z);
    memset(z->want, 0, all * sizeof *z->want);
    memset(z->help.lender, 0, sizeof z->help.lender);
    memset(z->help.columns, 0, all * sizeof *z->help.columns);
    memset(z->helped, 0, all * sizeof *z->helped);
    if (z->opts.lends) {
        find_help(z, t);
        return;
    }
    for (uint32_t i = 0; i < z->n; i++)
        if (straggles(z, i) && z->rank[i].whole > target)
            fit(z, &z->rank[i], z->rank[i].whole - target, t->columns + (size_t)i * z->n_layers,
                z->want + (size_t)i * z->n_layers);
    if (total(z, z->cut) == 0 && !can_afford(z, t, z->want, SHORT)) /* not worth the beginning */
        memset(z->want, 0, (size_t)z->n * z->n_layers * sizeof *z->want);
}

/* The slowest rank's step with these cuts and this help. */
static double predict(const MotZero *z, const MotCutTimes *t, const int64_t *cut,
                      const double *helped, uint32_t *out_slowest)
{
    double most = -1;
    for (uint32_t i = 0; i < z->n; i++) {
        double seconds = z->rank[i].whole;
        for (uint32_t l = 0; l < z->n_layers; l++) {
            uint32_t k = i * z->n_layers + l;
            seconds -= saved(&z->rank[i], l, t->columns[k], cut[k]);
            seconds += z->rank[i].layer[l] * helped[k];
        }
        if (seconds > most) {
            most = seconds;
            *out_slowest = i;
        }
    }
    return most;
}

/* ---- Decisions ---- */

/* Seconds of the last steps. */
static double median_took(const MotZero *z)
{
    return recent(z, z->took, 1, 0);
}

static void judge(MotZero *z, const MotCutTimes *t, MotCutDecision *out)
{
    double measured = z->before - median_took(z);
    bool was_worth_it = measured >= 0.5 * z->predicted;
    *out = (MotCutDecision){.kind = was_worth_it ? MOT_BALANCE_MEASURED : MOT_BALANCE_UNDO,
                            .cut = z->old,
                            .lender = z->opts.lends ? z->old_help.lender : NULL,
                            .help = z->old_help.columns,
                            .before = z->before,
                            .predicted = z->predicted,
                            .measured = measured};
    z->is_tried = false;
    if (was_worth_it)
        return;
    z->paused = t->step + PAUSE;
    copy_help(z, &z->now, &z->old_help);
}

static void move(MotZero *z, const MotCutTimes *t, MotCutDecision *out)
{
    uint32_t slowest, other;
    find_cuts(z, t);
    double now = predict(z, t, z->cut, t->helped, &slowest),
           then = predict(z, t, z->want, z->helped, &other);
    double had = total(z, z->cut), wanted = total(z, z->want);
    bool saves = now - then >= GAIN * now && t->step >= z->paused;
    bool frees = had - wanted > FEWER * had;
    if (!saves && !frees)
        return;
    *out = (MotCutDecision){.kind = MOT_BALANCE_MOVE,
                            .rank = slowest,
                            .cut = z->want,
                            .lender = z->opts.lends ? z->now.lender : NULL,
                            .help = z->now.columns,
                            .before = now,
                            .predicted = now - then};
    memcpy(z->old, z->cut, (size_t)z->n * z->n_layers * sizeof *z->old);
    copy_help(z, &z->old_help, &z->now);
    copy_help(z, &z->now, &z->help);
    z->is_tried = saves;
    z->effective = t->step + MOT_BALANCE_DELAY;
    z->before = median_took(z);
    z->predicted = now - then;
}

/* Nothing is cut any more, whatever that takes. */
static void stop(MotZero *z, const MotCutTimes *t, MotCutDecision *out)
{
    memset(z->want, 0, (size_t)z->n * z->n_layers * sizeof *z->want);
    *out = (MotCutDecision){.kind = MOT_BALANCE_MOVE, .is_spent = true, .cut = z->want};
    z->is_tried = false;
    z->effective = t->step + MOT_BALANCE_DELAY;
}

void mot_zero_decide(MotZero *z, const MotCutTimes *t, MotCutDecision *out)
{
    *out = (MotCutDecision){.kind = MOT_BALANCE_KEEP};
    z->spent += cost_of(z, t, t->cut);
    note(z, t);
    if (t->step < z->effective || t->step + MOT_BALANCE_DELAY >= t->steps)
        return;
    if (total(z, t->cut) > 0 && !can_afford(z, t, t->cut, MOT_BALANCE_DELAY)) {
        stop(z, t, out);
        return;
    }
    if (z->since < WARM_UP + SHORT)
        return;
    z->window = SHORT;
    if (z->is_tried) {
        judge(z, t, out);
    } else if (has_clear_change(z) || z->since >= WARM_UP + LONG) {
        z->window = has_clear_change(z) ? SHORT : LONG;
        find_ranks(z);
        move(z, t, out);
    }
    if (out->kind == MOT_BALANCE_MOVE || out->kind == MOT_BALANCE_UNDO)
        z->effective = t->step + MOT_BALANCE_DELAY;
}

static void decide(void *self, const MotCutTimes *times, MotCutDecision *out_decision)
{
    mot_zero_decide(self, times, out_decision);
}

MotCutPolicy mot_zero_policy(MotZero *zero)
{
    return (MotCutPolicy){zero->opts.lends, zero, decide};
}
