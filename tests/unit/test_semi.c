/*
 * One surplus, split between lending and cutting: against every split of small cases, and against
 * both alone.
 */
#include "passes/plan/lend.h"
#include "passes/plan/semi.h"
#include "tests/random.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 8, MOST_LAYERS = 4, MOST = MOST_RANKS * MOST_LAYERS, CASES = 60 };

/* A case, and what it needs of memory. */
typedef struct {
    MotSurplus in;
    double other[MOST_RANKS], layer[MOST], cost[MOST];
    int64_t columns[MOST], share[MOST_RANKS], most_cut[MOST];
    uint32_t lender[MOST_RANKS];
    MotLendPrice price[MOST];
} Case;

static uint64_t seed;

/*
 * Ranks that are so many times slower; the first n_slow of them lend, and cut down to the others at
 * most.
 */
static void make_case(Case *c, const double *slow, uint32_t n, uint32_t n_layers, int64_t columns)
{
    memset(c, 0, sizeof *c);
    c->in = (MotSurplus){n,         n_layers, c->other,    c->layer, c->columns, c->share,
                         c->lender, c->price, c->most_cut, c->cost,  1,          0.95};
    for (uint32_t i = 0; i < n; i++) {
        c->other[i] = slow[i] * 0.2;
        c->share[i] = 1;
    }
    for (uint32_t l = 0; l < n_layers; l++) {
        double whole = 0.2 + random_unit(&seed), travel = 0.3 * random_unit(&seed);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = i * n_layers + l;
            c->layer[k] = slow[i] * whole;
            c->columns[k] = columns;
            c->cost[k] = 1.0 / (double)(n * n_layers) / (double)columns;
            c->most_cut[k] =
                slow[i] > 1 ? (int64_t)((1 - 1 / slow[i]) * (double)columns) / 8 * 8 : 0;
            c->price[k] = (MotLendPrice){.cuts = {.any = 0.02},
                                         .lends = {.any = 0.01, .lent = 0.1 / (double)columns},
                                         .helps = {.helped = 0.1 / (double)columns},
                                         .travels = {.any = 0.3 * travel,
                                                     .helped = travel / (double)columns,
                                                     .lent = travel / (double)columns}};
        }
    }
}

static void find_lenders(Case *c)
{
    MotLendRank rank[MOST_RANKS];
    MotHelp help[MOST_RANKS];
    for (uint32_t i = 0; i < c->in.n; i++) {
        double products = 0;
        for (uint32_t l = 0; l < c->in.n_layers; l++)
            products += c->layer[(size_t)i * c->in.n_layers + l];
        rank[i] = (MotLendRank){products + c->other[i], products, 1.0 / c->in.n,
                                c->most_cut[(size_t)i * c->in.n_layers] > 0};
    }
    mot_lend_share_out(rank, c->in.n, c->in.most, help);
    for (uint32_t i = 0; i < c->in.n; i++)
        c->lender[i] = help[i].lender;
}

typedef struct {
    int64_t cut[MOST], help[MOST];
    double seconds;
} Result;

static Result split(MotCtx *ctx, const Case *c)
{
    Result r = {.seconds = 0};
    MotSplitting s = {r.cut, r.help};
    r.seconds = mot_semi_split(ctx, &c->in, &s);
    assert_true(fabs(r.seconds - mot_semi_seconds(&c->in, &s)) < 1e-9);
    return r;
}

/* Without any of `most_cut`, and with all of it and nobody who helps. */
static double seconds_of_lending(MotCtx *ctx, Case c)
{
    memset(c.most_cut, 0, sizeof c.most_cut);
    c.in.most_cut = c.most_cut;
    return split(ctx, &c).seconds;
}

static double seconds_of_cuts(const Case *c)
{
    Result r = {.seconds = 0};
    memcpy(r.cut, c->most_cut, sizeof r.cut);
    return mot_semi_seconds(&c->in, &(MotSplitting){r.cut, r.help});
}

static double budget_of(const Case *c, const int64_t *cut)
{
    double sum = 0;
    for (uint32_t k = 0; k < c->in.n * c->in.n_layers; k++)
        sum += c->cost[k] * (double)cut[k];
    return sum;
}

/* ---- Every split ---- */

/* The least T of any split of the layers from `l` on, with two helpers of rank 0. */
static double try_all(const Case *c, Result *r, uint32_t l)
{
    if (l == c->in.n_layers)
        return budget_of(c, r->cut) <= c->in.budget
                   ? mot_semi_seconds(&c->in, &(MotSplitting){r->cut, r->help})
                   : INFINITY;
    double best = INFINITY;
    int64_t most = (int64_t)(c->in.most * (double)c->columns[l]);
    for (int64_t cut = 0; cut <= c->most_cut[l]; cut += MOT_CUT_BLOCK)
        for (int64_t a = 0; cut + a <= most; a += MOT_CUT_BLOCK)
            for (int64_t b = 0; cut + a + b <= most; b += MOT_CUT_BLOCK) {
                r->cut[l] = cut;
                r->help[c->in.n_layers + l] = a;
                r->help[2 * c->in.n_layers + l] = b;
                best = fmin(best, try_all(c, r, l + 1));
            }
    return best;
}

static void nothing_else_is_much_faster(void **state)
{
    double worst = 0, sum = 0;
    seed = 5;
    for (int i = 0; i < CASES; i++) {
        double slow[] = {2 + 6 * random_unit(&seed), 1, 1 + 0.2 * random_unit(&seed)};
        Case c;
        Result tried = {.seconds = 0};
        make_case(&c, slow, 3, 2, 40);
        memset(c.most_cut + 2, 0, sizeof c.most_cut - 2 * sizeof *c.most_cut);
        c.lender[1] = c.lender[2] = 1;
        c.in.budget = i % 3 == 0 ? 0.05 : i % 3 == 1 ? 0.1 : 1;
        double ratio = split(*state, &c).seconds / try_all(&c, &tried, 0);
        assert_true(ratio > 1 - 1e-9);
        worst = fmax(worst, ratio);
        sum += ratio;
    }
    double mean = sum / (double)CASES;
    if (!(worst < 1.15 && mean < 1.03))
        fail_msg("%.3f of the best at worst, %.3f on the average", worst, mean);
}

/* ---- Both alone ---- */

static const double stragglers[][MOST_RANKS] = {
    {2, 1, 1, 1}, {4, 1, 1, 1}, {8, 1, 1, 1}, {8, 6, 4, 2, 1, 1, 1, 1}, {2, 3, 1, 1}};
enum { N_SCENES = sizeof stragglers / sizeof *stragglers, ONE_STRAGGLER = 3 };

static void make_scene(Case *c, int scene)
{
    uint32_t n = 0;
    while (n < MOST_RANKS && stragglers[scene][n] > 0)
        n++;
    make_case(c, stragglers[scene], n, MOST_LAYERS, INT64_C(8) * (4 + random_below(&seed, 20)));
    find_lenders(c);
}

/*
 * No T is above that of lending, nor above that of cuts if the budget is enough; it and what a rank
 * may give away hold.
 */
static void it_is_no_slower_than_either(void **state)
{
    seed = 11;
    for (int i = 0; i < CASES; i++) {
        Case c;
        make_scene(&c, i % N_SCENES);
        double all = budget_of(&c, c.most_cut);
        c.in.budget = i % 2 ? all * random_unit(&seed) : all * (1 + 1e-9);
        Result r = split(*state, &c);
        assert_true(r.seconds <= seconds_of_lending(*state, c) * (1 + 1e-9));
        assert_true(i % 2 || r.seconds <= seconds_of_cuts(&c) * (1 + 1e-9));
        assert_true(budget_of(&c, r.cut) <= c.in.budget * (1 + 1e-9));
        for (uint32_t k = 0; k < c.in.n * c.in.n_layers; k++) {
            int64_t away = r.cut[k];
            for (uint32_t h = 0; h < c.in.n; h++)
                if (c.lender[h] == k / c.in.n_layers + 1)
                    away += r.help[h * c.in.n_layers + k % c.in.n_layers];
            assert_true(r.cut[k] >= 0 && r.cut[k] <= c.most_cut[k]);
            assert_true((double)away <= c.in.most * (double)c.columns[k]);
        }
    }
}

/*
 * Where nothing can be lent it is ZERO-resizing; of several stragglers those cut less that hold
 * nobody up.
 */
static void without_lending_all_is_cut(void **state)
{
    seed = 3;
    for (int i = 0; i < N_SCENES; i++) {
        Case c;
        make_scene(&c, i);
        for (uint32_t k = 0; k < MOST; k++)
            c.price[k].travels.any = INFINITY;
        Result r = split(*state, &c);
        for (uint32_t k = 0; k < MOST; k++)
            assert_int_equal(r.help[k], 0);
        assert_true(fabs(r.seconds / seconds_of_cuts(&c) - 1) < 1e-9);
        if (i < ONE_STRAGGLER)
            assert_memory_equal(r.cut, c.most_cut, sizeof r.cut);
    }
}

/* Without a budget it is lending, which saves something where links are fast. */
static void without_a_budget_nothing_is_cut(void **state)
{
    seed = 3;
    for (int i = 0; i < N_SCENES; i++) {
        Case c;
        Result nothing = {.seconds = 0};
        make_scene(&c, i);
        memset(c.price, 0, sizeof c.price);
        c.in.budget = 0;
        Result r = split(*state, &c);
        assert_memory_equal(r.cut, nothing.cut, sizeof r.cut);
        assert_true(r.seconds <=
                    0.9 * mot_semi_seconds(&c.in, &(MotSplitting){nothing.cut, nothing.help}));
    }
}

static void without_stragglers_nothing_is_split(void **state)
{
    static const double slow[] = {1, 1, 1, 1};
    Case c;
    Result nothing = {.seconds = 0};
    make_case(&c, slow, 4, MOST_LAYERS, 64);
    find_lenders(&c);
    Result r = split(*state, &c);
    assert_memory_equal(r.cut, nothing.cut, sizeof r.cut);
    assert_memory_equal(r.help, nothing.help, sizeof r.help);
}

/* What sending takes is not known: nothing is sent. */
static void without_prices_nothing_is_lent(void **state)
{
    Case c;
    seed = 3;
    make_scene(&c, 1);
    c.in.price = NULL;
    Result r = split(*state, &c);
    for (uint32_t k = 0; k < MOST; k++)
        assert_int_equal(r.help[k], 0);
    assert_memory_equal(r.cut, c.most_cut, sizeof r.cut);
}

/* Layers whose columns are dear to send stay; the others are lent. */
static void layers_are_lent_that_pay(void **state)
{
    Case c;
    seed = 9;
    make_case(&c, stragglers[1], 4, MOST_LAYERS, 64);
    find_lenders(&c);
    memset(c.most_cut, 0, sizeof c.most_cut);
    for (uint32_t k = 0; k < MOST; k++)
        c.price[k].travels = (MotLinear){.any = k % MOST_LAYERS % 2 ? 100 : 0.001};
    Result r = split(*state, &c);
    for (uint32_t l = 0; l < MOST_LAYERS; l++)
        assert_true((r.help[MOST_LAYERS + l] > 0) == (l % 2 == 0));
}

/*
 * Rank 0 cuts all that it may, half of each layer. Rank 1 then has time to spare, but not in a
 * single layer: all would wait for it there.
 */
static void nobody_is_waited_for_in_a_layer(void **state)
{
    static const double slow[] = {4, 2.5, 1};
    Case c;
    seed = 4;
    make_case(&c, slow, 3, 2, 64);
    c.in.price = NULL;
    for (uint32_t l = 0; l < 2; l++) {
        c.most_cut[l] = 32;
        c.most_cut[2 + l] = 40;
    }
    Result r = split(*state, &c);
    for (uint32_t l = 0; l < 2; l++)
        assert_true(2.5 * (double)(64 - r.cut[2 + l]) <= 4 * (double)(64 - r.cut[l]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(nothing_else_is_much_faster),     TEST(it_is_no_slower_than_either),
        TEST(without_lending_all_is_cut),      TEST(without_prices_nothing_is_lent),
        TEST(without_a_budget_nothing_is_cut), TEST(without_stragglers_nothing_is_split),
        TEST(layers_are_lent_that_pay),        TEST(nobody_is_waited_for_in_a_layer),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
