/*
 * One surplus, split (SEMI-migration, arXiv 2401.11469): of each layer of ranks that are behind,
 * how many columns others compute, and how many nobody does.
 *
 * A rank takes M seconds for a layer's products and O for all else. Of M it does a part P: what it
 * keeps, what it computes for its lender, and what it copies for that (lend_price.h). A layer that
 * is lent has meetings of its own, so it takes as long as its slowest rank, and C for what travels;
 * all the rest takes as long as its slowest rank, and what that waits for others that are slower in
 * a layer:
 *
 *     T = max over ranks (O + sum of M P) + W + sum over lent layers of (max over ranks (M P) + C)
 *     W = sum over the other layers of max over ranks (M P) - max over ranks (sum of M P)
 *
 * Blocks of a layer go one by one from its slowest rank to that helper of its that is done first;
 * of all numbers of them the best is kept. The layer is lent if T falls by that, by at least a
 * tenth of what the slowest rank takes for it. With nothing cut this is lending. Then the rank that
 * holds all up cuts more, in the layer where most is saved for what it costs, until all cut what
 * they would if nothing were lent (ZERO-resizing), or the budget binds. The best T on this way is
 * taken, of equal ones that with the least cuts: it is at most that of lending and, if the budget
 * allows them, that of cuts alone. Time: QUARTERS * ranks * layers * (ranks * blocks + ranks *
 * layers).
 */
#ifndef MOTLEY_PASSES_PLAN_SEMI_H
#define MOTLEY_PASSES_PLAN_SEMI_H

#include "passes/plan/lend_price.h"

/* Columns: what is left stays a multiple of a vector where it was one. */
enum { MOT_CUT_BLOCK = 8 };

/* Ranks and layers as measured; by rank and layer: [rank * n_layers + layer]. */
typedef struct MotSurplus {
    uint32_t n, n_layers;
    const double *other;       /* [n] O */
    const double *layer;       /* M, of all columns */
    const int64_t *columns;    /* 0: the rank has no part of the layer */
    const int64_t *share;      /* [n] */
    const uint32_t *lender;    /* [n] whom a rank may help, + 1; 0: nobody */
    const MotLendPrice *price; /* NULL: copies take nothing, and nothing is lent */
    const int64_t *most_cut;   /* columns that cuts alone would leave out */
    const double *cost;        /* of a column that is cut, of the budget */
    double budget, most; /* of a step; and of a layer's columns that its rank does not compute */
} MotSurplus;

/* Columns: left out, by rank and layer; and computed for the lender, by helper and layer. */
typedef struct MotSplitting {
    int64_t *cut, *help;
} MotSplitting;

/* T of a step that is split so. */
double mot_semi_seconds(const MotSurplus *in, const MotSplitting *split);
/* Fills `out`, and returns its T. What it takes of the arena it gives back. */
double mot_semi_split(MotCtx *ctx, const MotSurplus *in, MotSplitting *out);
/* P of rank i and layer l. */
double mot_semi_part(const MotSurplus *in, const MotSplitting *split, uint32_t i, uint32_t l);

#endif
