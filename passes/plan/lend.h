/*
 * Who computes how much of whose products (SEMI-migration): each rank that is behind lends, each
 * other one may help one of them.
 *
 * All end at the level L where what is lent above it is what helpers can take below it: sum over
 * lenders of (T - L) / u = sum over helpers of (L - T) / u, with u the seconds that a rank takes
 * for all products. Helpers are dealt out to lenders, the one with most room to the one with most
 * left to lend; as a helper has one lender, ranks may end above L. Quadratic in ranks.
 */
#ifndef MOTLEY_PASSES_PLAN_LEND_H
#define MOTLEY_PASSES_PLAN_LEND_H

#include "ir/cluster.h"

typedef struct MotLendRank {
    double whole;    /* seconds of a step */
    double products; /* of it in products of layers that can be lent */
    double part;     /* of all products that the rank has */
    bool is_behind;  /* it may lend; else it may help */
} MotLendRank;

/* What a rank computes for whom. */
typedef struct MotHelp {
    uint32_t lender; /* the rank + 1; 0: nobody */
    double part;     /* of the lender's products */
} MotHelp;

/* At most `most` of a lender's products. */
void mot_lend_share_out(const MotLendRank *rank, uint32_t n, double most, MotHelp *out_help);

#endif
