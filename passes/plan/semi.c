/* Blocks to helpers, layers that pay, and then cuts. */
#include "passes/plan/semi.h"

#include "ir/balance.h"

#include <math.h>
#include <string.h>

enum { QUARTERS = 4 }; /* of what a rank would cut of a layer, a step of the search */
/*
 * T that differs by less is the same; and a layer that is lent saves at least this part of its
 * slowest rank's time: the model is no better.
 */
static const double LEAST = 1e-9, WORTH = 0.1;

typedef struct {
    const MotSurplus *in;
    MotSplitting split; /* help: as if all layers were lent that can be */
    double *lent;       /* [n_layers] seconds of the layer if it is lent; INFINITY: it can't be */
    bool *is_lent;      /* [n_layers] */
    double spent;       /* of the budget */
} Search;

static uint32_t at(const MotSurplus *in, uint32_t rank, uint32_t layer)
{
    return rank * in->n_layers + layer;
}

/*
 * Of the rank's part of the layer what nobody computes, and what others do; and what it computes of
 * another's.
 */
typedef struct {
    int64_t cut, lent, helped;
    uint32_t helpers;
} Amounts;

static Amounts amounts_of(const MotSurplus *in, const MotSplitting *split, uint32_t i, uint32_t l)
{
    Amounts a = {.cut = split->cut[at(in, i, l)], .helped = split->help[at(in, i, l)]};
    for (uint32_t h = 0; h < in->n; h++)
        if (in->lender[h] == i + 1 && split->help[at(in, h, l)] > 0) {
            a.lent += split->help[at(in, h, l)];
            a.helpers++;
        }
    return a;
}

/* P: of its own products a rank does what it keeps, what it computes for its lender, and copies. */
static double part_of(const MotSurplus *in, uint32_t i, uint32_t l, const Amounts *a)
{
    uint32_t k = at(in, i, l);
    double columns = (double)in->columns[k];
    if (in->columns[k] == 0)
        return 0;
    double part = 1 - (double)(a->cut + a->lent) / columns;
    if (a->helped) {
        uint32_t lender = in->lender[i] - 1;
        part += (double)a->helped / (double)in->columns[at(in, lender, l)] *
                (double)in->share[lender] / (double)in->share[i];
    }
    if (!in->price)
        return part;
    MotAmounts amounts = {in->columns[k] - a->cut - a->lent, a->lent, a->helped, a->helpers};
    const MotLendPrice *price = &in->price[k];
    part += a->cut + a->lent ? mot_linear_at(&price->cuts, &amounts) : 0;
    part += a->lent ? mot_linear_at(&price->lends, &amounts) : 0;
    part += a->helped ? mot_linear_at(&price->helps, &amounts) : 0;
    return part;
}

double mot_semi_part(const MotSurplus *in, const MotSplitting *split, uint32_t i, uint32_t l)
{
    Amounts a = amounts_of(in, split, i, l);
    return part_of(in, i, l, &a);
}

/* Seconds of the rank's part of the layer if nothing is lent and so much cut. */
static double without(const MotSurplus *in, uint32_t i, uint32_t l, int64_t cut)
{
    return in->layer[at(in, i, l)] * part_of(in, i, l, &(Amounts){.cut = cut});
}

/* What travels in a layer: lenders' exchanges are the same, and take as long as the longest. */
static double travel_of(const MotSurplus *in, const Amounts *ranks, uint32_t l)
{
    double seconds = 0;
    int64_t most[MOT_MAX_DEVICES] = {0}; /* by lender, of its helpers */
    for (uint32_t h = 0; h < in->n; h++)
        if (ranks[h].helped > 0 && ranks[h].helped > most[in->lender[h] - 1])
            most[in->lender[h] - 1] = ranks[h].helped;
    for (uint32_t i = 0; i < in->n; i++) {
        MotAmounts a = {.lent = ranks[i].lent, .helped = most[i], .helpers = ranks[i].helpers};
        if (a.lent)
            seconds = fmax(seconds, mot_linear_at(&in->price[at(in, i, l)].travels, &a));
    }
    return seconds;
}

/* ---- A layer ---- */

static uint32_t find_slowest(const double *time, uint32_t n)
{
    uint32_t slowest = 0;
    for (uint32_t i = 1; i < n; i++)
        slowest = time[i] > time[slowest] ? i : slowest;
    return slowest;
}

/* The helper of the rank that is done first with another block, and when; n: nobody. */
static uint32_t find_helper(const MotSurplus *in, uint32_t rank, uint32_t l, const Amounts *now,
                            double *out_until)
{
    uint32_t best = in->n;
    for (uint32_t h = 0; h < in->n; h++) {
        if (!in->price || in->lender[h] != rank + 1 || in->layer[at(in, h, l)] <= 0)
            continue;
        Amounts more = now[h];
        more.helped += MOT_CUT_BLOCK;
        double until = in->layer[at(in, h, l)] * part_of(in, h, l, &more);
        if (best == in->n || until < *out_until) {
            best = h;
            *out_until = until;
        }
    }
    return best;
}

/* The layer under the cuts, lent as is best. */
static void fit_layer(Search *s, uint32_t l)
{
    const MotSurplus *in = s->in;
    double time[MOT_MAX_DEVICES] = {0}, until = 0;
    int64_t best[MOT_MAX_DEVICES] = {0};
    Amounts now[MOT_MAX_DEVICES] = {0};
    s->lent[l] = INFINITY;
    for (uint32_t i = 0; i < in->n; i++) {
        s->split.help[at(in, i, l)] = 0;
        now[i] = (Amounts){.cut = s->split.cut[at(in, i, l)]};
        time[i] = without(in, i, l, now[i].cut);
    }
    for (;;) {
        uint32_t i = find_slowest(time, in->n), h = find_helper(in, i, l, now, &until);
        double away = (double)(now[i].cut + now[i].lent + MOT_CUT_BLOCK);
        if (h == in->n || away > in->most * (double)in->columns[at(in, i, l)] || until >= time[i])
            break;
        now[i].lent += MOT_CUT_BLOCK;
        now[i].helpers += now[h].helped == 0;
        now[h].helped += MOT_CUT_BLOCK;
        s->split.help[at(in, h, l)] = now[h].helped;
        time[i] = in->layer[at(in, i, l)] * part_of(in, i, l, &now[i]);
        time[h] = until;
        double seconds = time[find_slowest(time, in->n)] + travel_of(in, now, l);
        if (!(seconds < s->lent[l]))
            continue;
        s->lent[l] = seconds;
        for (uint32_t r = 0; r < in->n; r++)
            best[r] = s->split.help[at(in, r, l)];
    }
    for (uint32_t r = 0; r < in->n; r++)
        s->split.help[at(in, r, l)] = best[r];
}

/* ---- All layers ---- */

/*
 * Seconds of layers that are not lent, with all else: the slowest rank, and what it waits for those
 * that are slower in a layer.
 */
static double slowest_of(const MotSurplus *in, const double *rest, double met)
{
    double products = 0;
    for (uint32_t i = 0; i < in->n; i++)
        products = fmax(products, rest[i] - in->other[i]);
    return rest[find_slowest(rest, in->n)] + fmax(met - products, 0);
}

/* The ranks' seconds in the layer if it is not lent; returns the most. */
static double time_without(const Search *s, uint32_t l, double *out_time)
{
    const MotSurplus *in = s->in;
    for (uint32_t i = 0; i < in->n; i++)
        out_time[i] = without(in, i, l, s->split.cut[at(in, i, l)]);
    return out_time[find_slowest(out_time, in->n)];
}

/*
 * Lends layers, one after the other, by which T falls; returns T. `rest`: the ranks' seconds in all
 * else.
 */
static double choose_layers(Search *s, double *rest)
{
    const MotSurplus *in = s->in;
    double lent = 0, met = 0, time[MOT_MAX_DEVICES] = {0};
    for (uint32_t i = 0; i < in->n; i++)
        rest[i] = in->other[i];
    for (uint32_t l = 0; l < in->n_layers; l++) {
        met += time_without(s, l, time);
        for (uint32_t i = 0; i < in->n; i++)
            rest[i] += time[i];
    }
    double now = slowest_of(in, rest, met);
    for (uint32_t l = 0; l < in->n_layers; l++) {
        double others[MOT_MAX_DEVICES], most = time_without(s, l, time);
        s->is_lent[l] = false;
        if (!isfinite(s->lent[l]))
            continue;
        for (uint32_t i = 0; i < in->n; i++)
            others[i] = rest[i] - time[i];
        double then = lent + s->lent[l] + slowest_of(in, others, met - most);
        if (now - then <= WORTH * time[find_slowest(rest, in->n)])
            continue;
        s->is_lent[l] = true;
        lent += s->lent[l];
        met -= most;
        memcpy(rest, others, in->n * sizeof *rest);
        now = then;
    }
    return now;
}

/* ---- Cuts ---- */

/* Columns that the rank may still cut of the layer, at most a step's: blocks, within the budget. */
static int64_t find_step(const Search *s, uint32_t k)
{
    const MotSurplus *in = s->in;
    int64_t open = in->most_cut[k] - s->split.cut[k],
            step = in->most_cut[k] / QUARTERS / MOT_CUT_BLOCK * MOT_CUT_BLOCK + MOT_CUT_BLOCK;
    double room = in->cost[k] > 0 ? (in->budget - s->spent) / in->cost[k] : INFINITY;
    step = step < open ? step : open;
    if ((double)step > room)
        step = (int64_t)fmax(room, 0) / MOT_CUT_BLOCK * MOT_CUT_BLOCK;
    return step;
}

/*
 * Seconds that the layer's part of the rank's step would lose by all of its cuts, for what they
 * cost.
 */
static double worth(const Search *s, uint32_t i, uint32_t l)
{
    const MotSurplus *in = s->in;
    uint32_t k = at(in, i, l);
    double now = s->is_lent[l] ? s->lent[l] : without(in, i, l, s->split.cut[k]);
    return (now - without(in, i, l, in->most_cut[k])) /
           (in->cost[k] * (double)(in->most_cut[k] - s->split.cut[k]));
}

/* The layer of the rank where cuts are worth most, or n_layers. */
static uint32_t find_layer(const Search *s, uint32_t i)
{
    uint32_t best = s->in->n_layers;
    double most = -INFINITY;
    for (uint32_t l = 0; l < s->in->n_layers; l++) {
        double w = find_step(s, at(s->in, i, l)) > 0 ? worth(s, i, l) : -INFINITY;
        if (w > most) {
            most = w;
            best = l;
        }
    }
    return best;
}

/*
 * The slowest rank that may still cut leaves out more; gives the layer, or n_layers. `rest` as
 * choose_layers left it.
 */
static uint32_t cut_more(Search *s, const double *rest)
{
    const MotSurplus *in = s->in;
    uint32_t best = in->n_layers, rank = in->n;
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t l = rank == in->n || rest[i] > rest[rank] ? find_layer(s, i) : in->n_layers;
        if (l == in->n_layers)
            continue;
        rank = i;
        best = l;
    }
    if (best < in->n_layers) {
        uint32_t k = at(in, rank, best);
        int64_t step = find_step(s, k);
        s->split.cut[k] += step;
        s->spent += in->cost[k] * (double)step;
    }
    return best;
}

static MotSplitting make_splitting(MotCtx *ctx, const MotSurplus *in)
{
    size_t n = (size_t)in->n * in->n_layers;
    return (MotSplitting){mot_arena_array(&ctx->arena, int64_t, n),
                          mot_arena_array(&ctx->arena, int64_t, n)};
}

/* What was found so far: of layers that are not lent no help. */
static void keep(const Search *s, MotSplitting *out)
{
    const MotSurplus *in = s->in;
    for (uint32_t k = 0; k < in->n * in->n_layers; k++) {
        out->cut[k] = s->split.cut[k];
        out->help[k] = s->is_lent[k % in->n_layers] ? s->split.help[k] : 0;
    }
}

double mot_semi_split(MotCtx *ctx, const MotSurplus *in, MotSplitting *out)
{
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    double rest[MOT_MAX_DEVICES], best;
    Search s = {.in = in,
                .split = make_splitting(ctx, in),
                .lent = mot_arena_array(&ctx->arena, double, in->n_layers),
                .is_lent = mot_arena_array(&ctx->arena, bool, in->n_layers)};
    for (uint32_t l = 0; l < in->n_layers; l++)
        fit_layer(&s, l);
    best = choose_layers(&s, rest);
    keep(&s, out);
    for (uint32_t l; (l = cut_more(&s, rest)) < in->n_layers;) {
        fit_layer(&s, l);
        double seconds = choose_layers(&s, rest);
        if (seconds < best * (1 - LEAST)) {
            best = seconds;
            keep(&s, out);
        }
    }
    mot_arena_rewind(&ctx->arena, mark);
    return best;
}

double mot_semi_seconds(const MotSurplus *in, const MotSplitting *split)
{
    double rest[MOT_MAX_DEVICES], lent = 0, met = 0;
    memcpy(rest, in->other, in->n * sizeof *rest);
    for (uint32_t l = 0; l < in->n_layers; l++) {
        double time[MOT_MAX_DEVICES] = {0};
        Amounts ranks[MOT_MAX_DEVICES];
        bool is_lent = false;
        for (uint32_t i = 0; i < in->n; i++) {
            ranks[i] = amounts_of(in, split, i, l);
            time[i] = in->layer[at(in, i, l)] * part_of(in, i, l, &ranks[i]);
            is_lent |= ranks[i].lent > 0;
        }
        double most = time[find_slowest(time, in->n)];
        for (uint32_t i = 0; !is_lent && i < in->n; i++)
            rest[i] += time[i];
        met += is_lent ? 0 : most;
        lent += is_lent ? most + travel_of(in, ranks, l) : 0;
    }
    return lent + slowest_of(in, rest, met);
}
