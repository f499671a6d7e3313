/* Who computes how much for whom: against every way to deal out columns in steps of a fiftieth. */
#include "passes/plan/lend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The slowest rank's step under this help. */
static double slowest(const MotLendRank *rank, uint32_t n, const MotHelp *help)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double seconds = rank[i].whole, unit = rank[i].products / rank[i].part;
        for (uint32_t h = 0; h < n; h++)
            if (help[h].lender == i + 1)
                seconds -= rank[i].products * help[h].part;
        if (help[i].lender)
            seconds += unit * rank[help[i].lender - 1].part * help[i].part;
        most = fmax(most, seconds);
    }
    return most;
}

/* A rank whose device is chi times slower, of four with equal parts. */
static MotLendRank make_rank(double chi, double other)
{
    return (MotLendRank){chi * (1 + other), chi, 0.25, chi > 1.2};
}

/* One straggler, unit products: chi (1 - g) = 1 + g / h, so g = (chi - 1) / (chi + 1 / h). */
static void one_straggler_is_levelled(void **state)
{
    (void)state;
    for (int chi = 2; chi <= 8; chi *= 2) {
        MotLendRank rank[] = {make_rank(1, 0), make_rank(1, 0), make_rank(chi, 0), make_rank(1, 0)};
        MotHelp help[4];
        mot_lend_share_out(rank, 4, 1, help);
        double lent = 0;
        for (int h = 0; h < 4; h++)
            lent += help[h].part;
        assert_int_equal(help[2].lender, 0);
        assert_true(help[0].lender == 3 && help[1].lender == 3 && help[3].lender == 3);
        assert_true(fabs(lent - (chi - 1) / (chi + 1.0 / 3)) < 1e-6);
        assert_true(fabs(slowest(rank, 4, help) - (1 + lent / 3)) < 1e-6);
    }
}

/* One lender and two helpers, all pairs of parts tried. */
static void nothing_else_is_faster(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        MotLendRank rank[] = {make_rank(2 + k, 0.3), make_rank(1, 0.1 * k), make_rank(1.1, 0)};
        MotHelp help[3], other[3] = {{0, 0}, {1, 0}, {1, 0}};
        double best = INFINITY;
        mot_lend_share_out(rank, 3, 0.9, help);
        for (int a = 0; a <= 50; a++)
            for (int b = 0; a + b <= 45; b++) {
                other[1].part = a / 50.0;
                other[2].part = b / 50.0;
                best = fmin(best, slowest(rank, 3, other));
            }
        assert_true(slowest(rank, 3, help) <= best * (1 + 1e-9));
    }
}

/* Several lenders: each helper has one of them, and nobody is slower than before. */
static void several_lenders_share_the_helpers(void **state)
{
    (void)state;
    MotLendRank rank[] = {make_rank(4, 0.1), make_rank(1, 0.1), make_rank(2, 0.1),
                          make_rank(1, 0.1)};
    MotHelp help[4], nobody[4] = {{0, 0}};
    mot_lend_share_out(rank, 4, 0.9, help);
    assert_true(help[0].lender == 0 && help[2].lender == 0);
    assert_true(help[1].lender && help[3].lender && help[1].lender != help[3].lender);
    assert_true(slowest(rank, 4, help) < 0.8 * slowest(rank, 4, nobody));
}

static void what_can_not_be_lent_stays(void **state)
{
    (void)state;
    MotHelp help[2];
    MotLendRank level[] = {make_rank(1, 0), make_rank(1, 0)};
    mot_lend_share_out(level, 2, 1, help);
    assert_true(help[0].lender == 0 && help[1].lender == 0);
    MotLendRank capped[] = {make_rank(8, 0), make_rank(1, 0)};
    mot_lend_share_out(capped, 2, 0.25, help);
    assert_true(help[1].lender == 1 && fabs(help[1].part - 0.25) < 1e-9);
    MotLendRank idle[] = {make_rank(8, 0),
                          {0.1, 0, 0, false}}; /* without a share it has no speed */
    mot_lend_share_out(idle, 2, 1, help);
    assert_int_equal(help[1].lender, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_straggler_is_levelled),
        cmocka_unit_test(nothing_else_is_faster),
        cmocka_unit_test(several_lenders_share_the_helpers),
        cmocka_unit_test(what_can_not_be_lent_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
