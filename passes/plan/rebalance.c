/* Medians of the last steps -> speeds -> shares, and whether they are worth it. */
#include "passes/plan/rebalance.h"

#include <math.h>
#include <string.h>

enum {
    HISTORY = 100,  /* steps that are remembered */
    WARM_UP = 2,    /* steps that are not: first touches of memory */
    SHORT = 5,      /* steps of the shortest window, and those after which a move is judged, */
    PATIENCE = 20,  /* or, while it does not look good, so many: noise only adds to a step */
    LEAST_OLD = 10, /* steps before a window that a change is told by; and a slow link's window */
    STANDING = 30,  /* steps after which ranks are also compared with each other, */
    LONG = 40,      /* and the longest window for that */
    PAUSE = 50,     /* steps without a move after one was undone */
    MOST_MOVES = 2, /* for one change */
    AGEING = 100    /* steps in which half of an old speed is forgotten */
};
/* A move saves at least this part of a step. */
static const double GAIN = 0.08;
/* Speeds that differ by less are the same. */
static const double CHANGE = 1.2;
/* And in a window by less than this, all the more. */
static const double SETTLED = 1.15;
/* That a window of noise looks like a change. */
static const double CHANCE = 2e-7;
/* A communication is slower from this factor on, if the step is longer by this part for it. */
static const double SLOW_LINK = 1.5, LINK_PART = 0.05;

typedef struct {
    double unit;  /* seconds for all of the split work; NaN: not known */
    double other; /* seconds for what is not split */
} Speed;

/* A measurement over the last steps, by rank: the newest at [(count - 1) % HISTORY]. */
typedef struct {
    double at[MOT_MAX_DEVICES][HISTORY];
} Series;

/* A move that is not judged yet. */
typedef struct {
    bool is_open;
    int64_t effective; /* its first step */
    double before, predicted;
    double model; /* what was predicted of the shares before it; 0: it was no move */
    MotPace pace[MOT_MAX_DEVICES];  /* by which that was */
    int64_t share[MOT_MAX_DEVICES]; /* those before it */
} Trial;

struct MotRebalance {
    const MotSplitWork *work;
    MotSimulation *simulation; /* or NULL */
    uint32_t n;
    Series unit, other, comm, total; /* total: the longest, as that of rank 0 */
    uint32_t n_seen, count, since; /* steps; those remembered; and since the shares last changed */
    int64_t share[MOT_MAX_DEVICES];
    double dealt[MOT_MAX_DEVICES]; /* the work that they give, */
    MotPace busy[MOT_MAX_DEVICES]; /* and seconds of it by the simulation, at the rates */
    double known[MOT_MAX_DEVICES]; /* the last unit, NaN: none */
    int64_t known_at[MOT_MAX_DEVICES];
    uint32_t n_tries[MOT_MAX_DEVICES]; /* shares after none, in a row, that were taken back */
    Trial trial;
    uint32_t n_moves;                   /* for this change */
    int64_t moved_at;                   /* step of the last decision to move; -1: none */
    int64_t paused;                     /* no move before this step */
    double moved_unit[MOT_MAX_DEVICES]; /* units at the last move */
    double resize_seconds;              /* of all changes of shares so far */
    uint32_t n_resizes;
    int64_t link_told; /* up to this step a slow link is no news */
};

/* ---- Statistics ---- */

static void sort(double *x, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0 && x[k] < x[k - 1]; k--) {
            double swap = x[k];
            x[k] = x[k - 1];
            x[k - 1] = swap;
        }
}

/* The value below which `part` of the values lie; NaN of none. Sorts them. */
static double quantile(double *x, uint32_t n, double part)
{
    sort(x, n);
    return n ? x[(uint32_t)(part * (n - 1))] : NAN;
}

static double median(double *x, uint32_t n)
{
    sort(x, n);
    return n == 0 ? NAN : 0.5 * (x[(n - 1) / 2] + x[n / 2]);
}

/* What rank i measured in steps [first, first + n) back from the newest, 0. */
static uint32_t take(const MotRebalance *b, const Series *s, uint32_t i, uint32_t first, uint32_t n,
                     double *out)
{
    uint32_t kept = 0;
    for (uint32_t k = first; k < first + n && k < b->count && k < HISTORY; k++) {
        double x = s->at[i][(b->count - 1 - k) % HISTORY];
        if (!isnan(x))
            out[kept++] = x;
    }
    return kept;
}

static double recent(const MotRebalance *b, const Series *s, uint32_t i, uint32_t n)
{
    double x[HISTORY];
    return median(x, take(b, s, i, 0, n, x));
}

/* ---- The model ---- */

/* A speed of `age` steps ago, on its way to the others' median. */
static double age_unit(double unit, int64_t age, double others)
{
    double kept = exp2(-(double)age / (double)AGEING);
    return isnan(unit) ? NAN : exp(kept * log(unit) + (1 - kept) * log(others));
}

static void find_speeds(const MotRebalance *b, uint32_t window, int64_t step, Speed *out_speed)
{
    double units[MOT_MAX_DEVICES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        out_speed[i] = (Speed){recent(b, &b->unit, i, window), recent(b, &b->other, i, window)};
        if (!isnan(out_speed[i].unit))
            units[n++] = out_speed[i].unit;
    }
    double others = median(units, n);
    for (uint32_t i = 0; i < b->n; i++)
        if (isnan(out_speed[i].unit))
            out_speed[i].unit =
                age_unit(b->known[i], (step - b->known_at[i]) >> b->n_tries[i], others);
}

static double rank_seconds(const Speed *speed, double work)
{
    return speed->other + (isnan(speed->unit) ? 0 : speed->unit * work);
}

/* The slowest rank as things are. */
static double find_slowest(const MotRebalance *b, const Speed *speed, uint32_t *out_slowest)
{
    double most = -1;
    *out_slowest = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        double seconds = rank_seconds(&speed[i], b->dealt[i]);
        if (seconds > most) {
            most = seconds;
            *out_slowest = i;
        }
    }
    return most;
}

/*
 * The step under shares: that of the slowest rank, and what it waits. Between dims dealt out in
 * other units values are dealt out anew, and there ranks meet; so all wait for the slowest in each.
 */
static double predict_shares(const MotRebalance *b, const Speed *speed, const int64_t *share)
{
    double work[MOT_MAX_DEVICES], all[MOT_MAX_DEVICES] = {0}, step = 0, most = 0, met = 0;
    for (uint32_t k = 0; k < b->work->ops.n;) {
        double slowest = 0;
        k = mot_split_work_deal_units(b->work, k, share, b->n, work);
        for (uint32_t i = 0; i < b->n; i++) {
            double seconds = isnan(speed[i].unit) ? 0 : speed[i].unit * work[i];
            slowest = fmax(slowest, seconds);
            all[i] += seconds;
        }
        met += slowest;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        most = fmax(most, all[i]);
        step = fmax(step, all[i] + speed[i].other);
    }
    return step + met - most;
}

/*
 * The parts that the ranks do in this time, of any size; their sum, or 0 where the launches of one
 * take longer.
 */
static double fill(const MotRebalance *b, const Speed *speed, double time, double *out_part)
{
    double sum = 0;
    bool is_enough = true;
    for (uint32_t i = 0; i < b->n; i++) {
        bool is_known = !isnan(speed[i].unit);
        out_part[i] =
            is_known ? mot_split_work_part(b->work, (time - speed[i].other) / speed[i].unit) : 0;
        is_enough &= rank_seconds(&speed[i], b->work->idle) <= time;
        sum += out_part[i];
    }
    return is_enough ? sum : 0;
}

/* Whether parts of any size would save this much of a step. */
static bool can_save(const MotRebalance *b, const Speed *speed, double gain, double now)
{
    double part[MOT_MAX_DEVICES];
    return fill(b, speed, (1 - gain) * now, part) >= 1;
}

/*
 * Parts that let all ranks end at once: the least time in which they do everything, by bisection.
 */
static double level(const MotRebalance *b, const Speed *speed, double most, double *out_part)
{
    double low = 0, high = most;
    for (int k = 0; k < 60; k++) {
        double time = 0.5 * (low + high);
        *(fill(b, speed, time, out_part) < 1 ? &low : &high) = time;
    }
    return high;
}

/*
 * The integer shares with the least step, among roundings of the best parts to sums of up to
 * LARGEST_SUM; the least such sum.
 */
static double find_shares(const MotRebalance *b, const Speed *speed, double now, int64_t *out_share)
{
    enum { LARGEST_SUM = 96, SCALE = 1 << 24 };
    double part[MOT_MAX_DEVICES], best = now;
    int64_t ratio[MOT_MAX_DEVICES], share[MOT_MAX_DEVICES], all = 0;
    level(b, speed, now, part);
    for (uint32_t i = 0; i < b->n; i++)
        all += ratio[i] = (int64_t)(part[i] * (double)SCALE);
    memcpy(out_share, b->share, b->n * sizeof *share);
    if (all <= 0)
        return best; /* nobody has time for any of it: steps too short for their clock */
    for (int64_t sum = 1; sum <= LARGEST_SUM; sum++) {
        mot_share_split(ratio, b->n, sum, share);
        double seconds = predict_shares(b, speed, share);
        if (seconds < best * 0.999) {
            best = seconds;
            memcpy(out_share, share, b->n * sizeof *share);
        }
    }
    return best;
}

/*
 * What ranks of these speeds take to what the simulation has them take. Of one without a share only
 * its speed is known.
 */
static void find_paces(const MotRebalance *b, const Speed *speed, MotPace *out_pace)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const MotPace *busy = &b->busy[i];
        double unit = b->share[i] > 0 && busy->resizable > 0 ? busy->resizable / b->dealt[i]
                                                             : b->work->alone[i];
        out_pace[i] = (MotPace){isnan(speed[i].unit) || unit <= 0 ? 1 : speed[i].unit / unit,
                                busy->other > 0 ? speed[i].other / busy->other : 1};
    }
}

/*
 * Better shares, if there are any, and what a step takes now and then: exactly for those that may
 * be worth a move, as other shares bind all ranks anew.
 */
static void find_better(const MotRebalance *b, const Speed *speed, int64_t *out_share,
                        double *out_now, double *out_then)
{
    MotPace pace[MOT_MAX_DEVICES];
    *out_now = predict_shares(b, speed, b->share);
    *out_then = find_shares(b, speed, *out_now, out_share);
    if (!b->simulation || *out_now - *out_then < GAIN / 2 * *out_now)
        return;
    find_paces(b, speed, pace);
    *out_now = mot_simulation_run(b->simulation, b->share, pace, NULL);
    *out_then = mot_simulation_run(b->simulation, out_share, pace, NULL);
}

/* ---- What to do ---- */

static bool differ(double a, double b)
{
    return a > CHANGE * b || b > CHANGE * a;
}

/* A rank whose speed is another one than at the last move, or n. */
static uint32_t find_changed(const MotRebalance *b, const Speed *speed)
{
    uint32_t i = 0;
    while (i < b->n && !differ(speed[i].unit, b->moved_unit[i]))
        i++;
    return i;
}

/* At least m of n, each with chance p. */
static double binomial_tail(uint32_t m, uint32_t n, double p)
{
    double sum = 0;
    for (uint32_t k = m; k <= n; k++)
        sum += exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) + k * log(p) +
                   (n - k) * log1p(-p));
    return sum;
}

/* Values above the level, or below it. */
static uint32_t count_beyond(const double *x, uint32_t n, double level, bool is_above)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += is_above ? x[i] > level : x[i] < level;
    return found;
}

/*
 * Whether all of a long window lies beyond the level between its median and the speed at the last
 * move.
 */
static bool is_off_reference(const MotRebalance *b, uint32_t i, const double *now, uint32_t n)
{
    double x[HISTORY], reference = b->moved_unit[i];
    memcpy(x, now, n * sizeof *x);
    double median_now = median(x, n);
    return b->moved_at >= 0 && n >= LEAST_OLD && differ(median_now, reference) &&
           count_beyond(now, n, sqrt(median_now * reference), median_now > reference) == n;
}

/*
 * Whether the values of now are others than the old ones, which must be several: a sign test
 * against the level between the two medians. What lay beyond it before is the noise: how far it was
 * off does not matter, so that a rank which often loses its core has to be slow for longer.
 */
static bool are_others(double *now, uint32_t n_now, double *old, uint32_t n_old)
{
    double median_now = median(now, n_now), median_old = median(old, n_old);
    double level = sqrt(median_now * median_old);
    bool is_above = median_now > median_old;
    double p = (count_beyond(old, n_old, level, is_above) + 0.5) / (n_old + 1);
    return n_old >= LEAST_OLD && differ(median_now, median_old) &&
           binomial_tail(count_beyond(now, n_now, level, is_above), n_now, p) < CHANCE;
}

/*
 * Whether the rank's speed in the window is another one than before. Where a move was in the midst
 * of a change, there is no before.
 */
static bool has_changed(const MotRebalance *b, uint32_t i, uint32_t window)
{
    double now[HISTORY], old[HISTORY];
    uint32_t n_now = take(b, &b->unit, i, 0, window, now),
             n_old = take(b, &b->unit, i, window, b->since - window, old);
    if (n_now < window)
        return false;
    return n_old < LEAST_OLD ? is_off_reference(b, i, now, n_now)
                             : are_others(now, n_now, old, n_old);
}

/*
 * Whether all speeds are in the newer half of the window what they were in the older one: in the
 * midst of a change there is no telling where it ends.
 */
static bool has_settled(const MotRebalance *b, uint32_t window)
{
    uint32_t half = (window + 1) / 2, i = 0;
    for (; i < b->n; i++) {
        double x[HISTORY], newer, older;
        newer = median(x, take(b, &b->unit, i, 0, half, x));
        older = median(x, take(b, &b->unit, i, window - half, half, x));
        if (newer > SETTLED * older || older > SETTLED * newer)
            break;
    }
    return i == b->n;
}

static bool some_rank_changed(const MotRebalance *b, uint32_t window)
{
    uint32_t i = 0;
    while (i < b->n && !has_changed(b, i, window))
        i++;
    return i < b->n;
}

/*
 * Whether moving would still save something if the slowest rank were as fast as in its best quarter
 * of the window, and the others as slow as in their worst.
 */
static bool is_clear(const MotRebalance *b, uint32_t slowest, uint32_t window, const Speed *speed)
{
    Speed careful[MOT_MAX_DEVICES];
    double unit[HISTORY];
    MOT_ASSERT(slowest < b->n);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t n = take(b, &b->unit, i, 0, window, unit);
        careful[i] = speed[i];
        if (n > 0)
            careful[i].unit = quantile(unit, n, i == slowest ? 0.25 : 0.75);
    }
    return can_save(b, careful, GAIN / 2, rank_seconds(&careful[slowest], b->dealt[slowest]));
}

/*
 * Whether the last few steps say so too: a change that has just come is not decided on by what was
 * long before.
 */
static bool is_still_so(const MotRebalance *b, int64_t step, const int64_t *share)
{
    Speed speed[MOT_MAX_DEVICES];
    find_speeds(b, SHORT, step, speed);
    return predict_shares(b, speed, share) <= (1 - GAIN / 2) * predict_shares(b, speed, b->share);
}

static bool is_new_change(const MotRebalance *b, const Speed *speed)
{
    return b->moved_at < 0 || find_changed(b, speed) < b->n;
}

/* That something was done about these speeds. */
static void remember(MotRebalance *b, int64_t step, const Speed *speed, uint32_t n_moves)
{
    b->n_moves = n_moves;
    b->moved_at = step;
    for (uint32_t i = 0; i < b->n; i++)
        b->moved_unit[i] = speed[i].unit;
}

static void begin_trial(MotRebalance *b, const MotStepTimes *times, const Speed *speed,
                        const MotDecision *d)
{
    b->trial = (Trial){.is_open = true,
                       .effective = times->step + MOT_BALANCE_DELAY,
                       .before = d->before,
                       .predicted = d->predicted,
                       .model = d->predicted * d->factor / (d->factor - 1)};
    if (b->simulation)
        find_paces(b, speed, b->trial.pace);
    memcpy(b->trial.share, b->share, sizeof b->share);
    remember(b, times->step, speed, is_new_change(b, speed) ? 1 : b->n_moves + 1);
}

/*
 * Whether a move saves more than it takes, if the speeds stay for as long as since the last one. An
 * unknown cost counts as a step.
 */
static bool pays(const MotRebalance *b, const MotStepTimes *times, double gain, double step)
{
    double cost = b->n_resizes ? b->resize_seconds / b->n_resizes : step;
    int64_t left = times->steps - times->step - MOT_BALANCE_DELAY;
    int64_t expected = b->moved_at < 0 ? left : times->step - b->moved_at;
    return gain * (double)(expected < left ? expected : left) > cost;
}

/*
 * A move for what ranks measured in the window, if there is one that is worth it. `is_standing`:
 * they need not have changed.
 */
static void look_at(MotRebalance *b, const MotStepTimes *times, uint32_t window, bool is_standing,
                    MotDecision *out)
{
    Speed speed[MOT_MAX_DEVICES];
    double best;
    uint32_t slowest;
    find_speeds(b, window, times->step, speed);
    double now = find_slowest(b, speed, &slowest);
    if (!can_save(b, speed, GAIN, now) || !is_clear(b, slowest, window, speed) ||
        !(is_standing || (some_rank_changed(b, window) && has_settled(b, window))) ||
        (b->n_moves >= MOST_MOVES && !is_new_change(b, speed)))
        return;
    find_better(b, speed, out->share, &now, &best);
    out->rank = slowest;
    out->factor = now / best;
    if (now - best < GAIN * now) {
        if (is_standing && b->moved_at >= 0)
            return; /* what was done left that */
        out->kind = MOT_BALANCE_STUCK;
        out->before = recent(b, &b->total, 0, window);
        remember(b, times->step, speed, MOST_MOVES);
        return;
    }
    if (!pays(b, times, now - best, now) ||
        (is_standing && !is_still_so(b, times->step, out->share)))
        return;
    out->kind = MOT_BALANCE_MOVE;
    out->before = recent(b, &b->total, 0, window);
    out->predicted = now - best;
    begin_trial(b, times, speed, out);
}

static void look_for_move(MotRebalance *b, const MotStepTimes *times, MotDecision *out)
{
    for (uint32_t window = SHORT; window < LONG && window <= b->since; window *= 2)
        if (out->kind == MOT_BALANCE_KEEP)
            look_at(b, times, window, false, out);
    if (out->kind == MOT_BALANCE_KEEP && b->since >= STANDING)
        look_at(b, times, b->since < LONG ? b->since : LONG, true, out);
}

/*
 * Whether the rank's speed was not measured both before and after the move: it has no work, or had
 * none.
 */
static bool is_assumed(const MotRebalance *b, uint32_t i, uint32_t n)
{
    return b->trial.share[i] == 0 || isnan(recent(b, &b->unit, i, n));
}

/* What the step before the move would be by now to what it was then: speeds may drift. */
static double find_drift(const MotRebalance *b, const Speed *speed, uint32_t n)
{
    MotPace pace[MOT_MAX_DEVICES];
    if (b->trial.model <= 0)
        return 1;
    if (!b->simulation)
        return predict_shares(b, speed, b->trial.share) / b->trial.model;
    find_paces(b, speed, pace);
    for (uint32_t i = 0; i < b->n; i++)
        if (is_assumed(b, i, n))
            pace[i] = b->trial.pace[i];
    return mot_simulation_run(b->simulation, b->trial.share, pace, NULL) / b->trial.model;
}

/*
 * Who got a share after it had none: if that was no good, it is tried again after twice the time.
 */
static void count_tries(MotRebalance *b, bool is_good)
{
    enum { MOST_TRIES = 30 };
    for (uint32_t i = 0; i < b->n; i++)
        if (b->trial.share[i] == 0 && b->share[i] > 0)
            b->n_tries[i] = is_good ? 0 : b->n_tries[i] + (b->n_tries[i] < MOST_TRIES);
}

/*
 * The step after the move against that before. A speed that changed meanwhile makes it no one's
 * fault; that of a rank which has no work, or had none, was not measured on both sides, and counts
 * as what was assumed.
 */
static void judge(MotRebalance *b, const MotStepTimes *times, MotDecision *out)
{
    Speed speed[MOT_MAX_DEVICES];
    uint32_t n = (uint32_t)(times->step - b->trial.effective + 1);
    find_speeds(b, n, times->step, speed);
    for (uint32_t i = 0; i < b->n; i++)
        if (is_assumed(b, i, n))
            speed[i].unit = b->moved_unit[i];
    double measured = b->trial.before * find_drift(b, speed, n) - recent(b, &b->total, 0, n);
    bool is_good = measured >= 0.5 * b->trial.predicted || find_changed(b, speed) < b->n;
    if (!is_good && n < PATIENCE)
        return;
    *out = (MotDecision){.kind = MOT_BALANCE_MEASURED,
                         .before = b->trial.before,
                         .predicted = b->trial.predicted,
                         .measured = measured};
    b->trial.is_open = false;
    if (memcmp(b->share, b->trial.share, b->n * sizeof *b->share) == 0) {
        *out = (MotDecision){.kind = MOT_BALANCE_KEEP}; /* it was not carried out */
        b->paused = times->step + PAUSE;
        return;
    }
    count_tries(b, is_good);
    if (is_good || b->trial.model <= 0)
        return;
    out->kind = MOT_BALANCE_UNDO;
    memcpy(out->share, b->trial.share, sizeof out->share);
    b->paused = times->step + PAUSE;
    b->n_moves = MOST_MOVES;
}

/*
 * How many times as long as before the rank communicates, if that is clearly longer, and the step
 * with it; else 1.
 */
static double find_slowdown(const MotRebalance *b, uint32_t i, double step)
{
    double now[HISTORY], old[HISTORY];
    uint32_t n_now = take(b, &b->comm, i, 0, LEAST_OLD, now),
             n_old = take(b, &b->comm, i, LEAST_OLD, LONG - LEAST_OLD, old);
    double seconds = median(now, n_now), before = median(old, n_old);
    bool is_slow = seconds >= SLOW_LINK * before && seconds - before >= LINK_PART * step &&
                   are_others(now, n_now, old, n_old);
    return is_slow ? seconds / before : 1;
}

/*
 * A slow link makes both of its ends communicate for longer; what makes one do so is that rank,
 * which may have lost its core.
 */
static void look_for_link(MotRebalance *b, const MotStepTimes *times, MotDecision *out)
{
    double most = 1, step = recent(b, &b->total, 0, SHORT);
    uint32_t n_slow = 0, slowest = 0;
    if (b->since < STANDING || times->step < b->link_told)
        return;
    for (uint32_t i = 0; i < b->n; i++) {
        double factor = find_slowdown(b, i, step);
        n_slow += factor > 1;
        slowest = factor > most ? i : slowest;
        most = factor > most ? factor : most;
    }
    if (n_slow < 2)
        return;
    *out = (MotDecision){.kind = MOT_BALANCE_LINK, .rank = slowest, .factor = most};
    b->link_told = times->step + LONG;
}

static void record(MotRebalance *b, const MotStepTimes *times)
{
    uint32_t at = b->count % HISTORY;
    double total = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const MotRankTimes *t = &times->rank[i];
        bool has_work = b->dealt[i] > b->work->idle * (1 + 1e-9) && t->resizable > 0;
        b->unit.at[i][at] = has_work ? t->resizable / b->dealt[i] : NAN;
        b->other.at[i][at] = t->other;
        b->comm.at[i][at] = t->comm;
        total = fmax(total, t->resizable + t->other + t->comm + t->wait);
    }
    b->total.at[0][at] = total;
    b->count++;
    for (uint32_t i = 0; i < b->n; i++)
        if (!isnan(b->unit.at[i][at])) {
            b->known[i] = recent(b, &b->unit, i, SHORT);
            b->known_at[i] = times->step;
        }
}

static void take_shares(MotRebalance *b, const int64_t *share)
{
    MotPace pace[MOT_MAX_DEVICES];
    memcpy(b->share, share, b->n * sizeof *share);
    mot_split_work_deal(b->work, b->share, b->n, b->dealt);
    for (uint32_t i = 0; i < b->n; i++)
        pace[i] = (MotPace){1, 1};
    if (b->simulation)
        mot_simulation_run(b->simulation, b->share, pace, b->busy);
    b->since = 0;
}

void mot_rebalance_decide(MotRebalance *b, const MotStepTimes *times, MotDecision *out)
{
    *out = (MotDecision){.kind = MOT_BALANCE_KEEP};
    if (times->resize_seconds > 0) {
        b->resize_seconds += times->resize_seconds;
        b->n_resizes++;
    }
    if (memcmp(b->share, times->share, b->n * sizeof *b->share) != 0)
        take_shares(b, times->share);
    if (++b->n_seen <= WARM_UP)
        return;
    record(b, times);
    b->since++;
    if (b->trial.is_open) {
        if (times->step >= b->trial.effective + SHORT - 1)
            judge(b, times, out);
        return;
    }
    look_for_link(b, times, out);
    if (out->kind == MOT_BALANCE_KEEP && times->step >= b->paused)
        look_for_move(b, times, out);
}

double mot_rebalance_speeds(const MotRebalance *b, double *out_unit)
{
    memcpy(out_unit, b->known, b->n * sizeof *out_unit);
    return recent(b, &b->total, 0, SHORT);
}

void mot_rebalance_watch(MotRebalance *b, int64_t effective, double before, double predicted)
{
    b->trial =
        (Trial){.is_open = true, .effective = effective, .before = before, .predicted = predicted};
}

static void decide(void *self, const MotStepTimes *times, MotDecision *out)
{
    mot_rebalance_decide(self, times, out);
}

MotPolicy mot_rebalance_policy(MotRebalance *b)
{
    return (MotPolicy){b, decide};
}

MotRebalance *mot_rebalance_make(MotCtx *ctx, const MotSplitWork *work, MotSimulation *simulation,
                                 uint32_t n)
{
    MotRebalance *b = mot_arena_new(&ctx->arena, MotRebalance);
    *b = (MotRebalance){.work = work, .simulation = simulation, .n = n, .moved_at = -1};
    for (uint32_t i = 0; i < n; i++)
        b->known[i] = NAN;
    return b;
}
