/* The level by bisection, then the largest to the largest. */
#include "passes/plan/lend.h"

#include <math.h>
#include <string.h>

/* Seconds for all products of the model; a rank without any has no speed. */
static double unit_of(const MotLendRank *r)
{
    return r->part > 0 && r->products > 0 ? r->products / r->part : INFINITY;
}

/* Products that the rank would lend at a level, or take. */
static double surplus(const MotLendRank *r, double level, double most)
{
    double work = (r->whole - level) / unit_of(r);
    return r->is_behind ? fmax(0, fmin(work, most * r->part)) : fmax(0, -work);
}

static double find_level(const MotLendRank *rank, uint32_t n, double most)
{
    double low = 0, high = 0;
    for (uint32_t i = 0; i < n; i++)
        high = fmax(high, rank[i].whole);
    for (int k = 0; k < 60; k++) {
        double level = 0.5 * (low + high), lent = 0, taken = 0;
        for (uint32_t i = 0; i < n; i++)
            *(rank[i].is_behind ? &lent : &taken) += surplus(&rank[i], level, most);
        *(lent > taken ? &low : &high) = level;
    }
    return high;
}

static uint32_t find_largest(const double *x, const MotLendRank *rank, uint32_t n, bool is_behind)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (rank[i].is_behind == is_behind && x[i] > 0 && (best == n || x[i] > x[best]))
            best = i;
    return best;
}

void mot_lend_share_out(const MotLendRank *rank, uint32_t n, double most, MotHelp *out_help)
{
    double left[MOT_MAX_DEVICES], level = find_level(rank, n, most);
    memset(out_help, 0, n * sizeof *out_help);
    for (uint32_t i = 0; i < n; i++)
        left[i] = surplus(&rank[i], level, most);
    for (;;) {
        uint32_t lender = find_largest(left, rank, n, true),
                 helper = find_largest(left, rank, n, false);
        if (lender == n || helper == n)
            return;
        double work = fmin(left[lender], left[helper]);
        out_help[helper] = (MotHelp){lender + 1, work / rank[lender].part};
        left[lender] -= work;
        left[helper] = 0; /* it has its lender */
    }
}
