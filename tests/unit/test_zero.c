/* ZERO-resizing's policy on simulated ranks: how much is left out, when, and when nothing is. */
#include "passes/plan/zero.h"
#include "tests/random.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, LAYERS = 3, ALL = RANKS * LAYERS, MOST_DECISIONS = 100 };

/*
 * A rank whose device is `slow` times slower takes slow * (other + sum of kept parts of the
 * layers); `noise`: the deviation of its logarithm; `overhead`: seconds of a rank that cuts.
 */
typedef struct {
    double slow[RANKS], other, layer[LAYERS], noise, overhead;
    double later[RANKS]; /* slow from step `change` on */
    int64_t change, steps;
    int64_t columns[LAYERS];
    MotZeroOpts opts;
} Case;

typedef struct {
    int64_t step[MOST_DECISIONS];
    MotCutDecision decision[MOST_DECISIONS];
    uint32_t n, n_moves, n_undone;
    int64_t cut[ALL]; /* in the end */
    double spent;
} Outcome;

static const Case calm = {
    .slow = {1, 1, 1, 1},
    .other = 0.1,
    .layer = {0.3, 0.4, 0.3},
    .noise = 0.02,
    .later = {1, 1, 1, 1},
    .change = INT64_MAX,
    .steps = 200,
    .columns = {512, 2048, 96},
    .opts = {.target = MOT_TARGET_MEDIAN, .most = 0.9, .budget = 1, .spent = 0}};

static uint64_t seed;

static void measure(const Case *c, int64_t step, const int64_t *cut, double *busy, double *layer)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        double slow = step >= c->change ? c->later[i] : c->slow[i];
        bool cuts = false;
        slow *= exp(c->noise * random_normal(&seed));
        busy[i] = slow * c->other;
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint32_t k = i * LAYERS + l;
            cuts |= cut[k] > 0;
            layer[k] =
                slow * c->layer[l] * (double)(c->columns[l] - cut[k]) / (double)c->columns[l];
            busy[i] += layer[k];
        }
        busy[i] += cuts ? c->overhead : 0;
    }
}

static double slowest(const Case *c, const int64_t *cut, int64_t step)
{
    double busy[RANKS], layer[ALL], most = 0;
    measure(c, step, cut, busy, layer);
    for (uint32_t i = 0; i < RANKS; i++)
        most = fmax(most, busy[i]);
    return most;
}

static void check_columns(const Case *c, const int64_t *cut)
{
    for (uint32_t k = 0; k < ALL; k++) {
        assert_true(cut[k] >= 0 && cut[k] % MOT_CUT_BLOCK == 0);
        assert_true((double)cut[k] <= c->opts.most * (double)c->columns[k % LAYERS]);
    }
}

/* Decisions hold two steps later. */
static void simulate(MotCtx *ctx, const Case *c, Outcome *o)
{
    static const double part[LAYERS] = {0.3, 0.4, 0.3};
    static const int64_t share[RANKS] = {1, 1, 1, 1};
    MotZero *zero = mot_zero_make(ctx, part, LAYERS, RANKS, &c->opts);
    MotCutPolicy policy = mot_zero_policy(zero);
    int64_t columns[ALL], pending[ALL], effective = -1;
    double busy[RANKS], layer[ALL];
    int64_t help[ALL] = {0};
    uint32_t lender[RANKS] = {0};
    memset(o, 0, sizeof *o);
    seed = 7;
    for (uint32_t k = 0; k < ALL; k++)
        columns[k] = c->columns[k % LAYERS];
    for (int64_t step = 0; step < c->steps; step++) {
        MotCutDecision d;
        if (step == effective)
            memcpy(o->cut, pending, sizeof pending);
        measure(c, step, o->cut, busy, layer);
        MotCutTimes times = {step,  c->steps, RANKS,  LAYERS, share, busy,
                             layer, columns,  o->cut, lender, help,  busy};
        policy.decide(policy.self, &times, &d);
        if (d.kind == MOT_BALANCE_KEEP)
            continue;
        assert_true(o->n < MOST_DECISIONS);
        o->step[o->n] = step;
        o->decision[o->n++] = d;
        o->n_moves += d.kind == MOT_BALANCE_MOVE;
        o->n_undone += d.kind == MOT_BALANCE_UNDO;
        if (d.kind == MOT_BALANCE_MEASURED)
            continue;
        memcpy(pending, d.cut, sizeof pending);
        check_columns(c, pending);
        effective = step + MOT_BALANCE_DELAY;
    }
    o->spent = mot_zero_spent(zero);
}

static double gamma_of(const Case *c, const Outcome *o, uint32_t rank)
{
    double cut = 0, all = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        cut += c->layer[l] * (double)o->cut[rank * LAYERS + l] / (double)c->columns[l];
        all += c->layer[l];
    }
    return cut / all;
}

static void without_stragglers_nothing_is_cut(void **state)
{
    Case c = calm;
    Outcome o;
    c.steps = 2000;
    for (c.noise = 0; c.noise < 0.31; c.noise += 0.1) {
        simulate(*state, &c, &o);
        assert_int_equal(o.n, 0);
        assert_true(o.spent == 0);
    }
}

/* A device that is a third slower is no clear case: it takes the long window, and does not flap. */
static void a_small_lag_takes_longer(void **state)
{
    Case c = calm;
    Outcome o;
    c.slow[1] = 1.33;
    c.noise = 0.1;
    simulate(*state, &c, &o);
    assert_true(o.n_moves >= 1 && o.n_moves <= 3 && o.step[0] >= 30);
    assert_true(gamma_of(&c, &o, 1) > 0.1 && gamma_of(&c, &o, 0) == 0);
}

/* gamma = 1 - 1 / chi where there is nothing but products. */
static void a_straggler_leaves_out_what_it_is_slower_by(void **state)
{
    for (int chi = 2; chi <= 8; chi *= 2) {
        Case c = calm;
        Outcome o;
        c.other = 0;
        c.slow[2] = chi;
        simulate(*state, &c, &o);
        assert_int_equal(o.n_moves, 1);
        assert_int_equal(o.n_undone, 0);
        assert_int_equal(o.decision[0].rank, 2);
        assert_true(o.step[0] < 10);
        assert_true(fabs(gamma_of(&c, &o, 2) - (1 - 1.0 / chi)) < 0.03);
        assert_true(gamma_of(&c, &o, 0) == 0 && gamma_of(&c, &o, 1) == 0);
        assert_int_equal(o.decision[1].kind, MOT_BALANCE_MEASURED);
        assert_true(fabs(o.decision[1].measured / o.decision[1].predicted - 1) < 0.1);
    }
}

static void several_stragglers_come_down_to_the_median(void **state)
{
    Case c = calm;
    Outcome o;
    c.slow[0] = 4;
    c.slow[3] = 2;
    c.opts.target = MOT_TARGET_MIN;
    simulate(*state, &c, &o);
    assert_int_equal(o.n_moves, 1);
    assert_true(fabs(slowest(&c, o.cut, 0) - 1.1) < 0.06);
    assert_true(gamma_of(&c, &o, 0) > gamma_of(&c, &o, 3) && gamma_of(&c, &o, 1) == 0);
}

/* Less is cut for the mean than for the median, and most for the least. */
static void targets_differ(void **state)
{
    double gamma[3];
    for (int target = MOT_TARGET_MEAN; target <= MOT_TARGET_MIN; target++) {
        Case c = calm;
        Outcome o;
        c.noise = 0;
        c.slow[1] = 4;
        c.slow[2] = 0.8;
        c.opts.target = (MotTarget)target;
        simulate(*state, &c, &o);
        gamma[target] = gamma_of(&c, &o, 1);
    }
    assert_true(gamma[MOT_TARGET_MEAN] < gamma[MOT_TARGET_MEDIAN] - 0.05);
    assert_true(gamma[MOT_TARGET_MEDIAN] < gamma[MOT_TARGET_MIN] - 0.02);
}

static void the_cap_holds(void **state)
{
    Case c = calm;
    Outcome o;
    c.slow[2] = 8;
    c.opts.most = 0.25;
    simulate(*state, &c, &o);
    assert_true(o.n_moves == 1 && gamma_of(&c, &o, 2) > 0.2 && gamma_of(&c, &o, 2) <= 0.25);
}

/* Half of a quarter of the products for a step is an eighth of a step. */
static void the_budget_ends_cuts(void **state)
{
    Case c = calm;
    Outcome o;
    c.slow[2] = 2;
    c.opts.budget = 0.02;
    simulate(*state, &c, &o);
    assert_true(o.spent > 0.02 * 200 - 0.5 && o.spent <= 0.02 * 200);
    assert_true(o.n_moves == 2 && o.decision[o.n - 1].is_spent && !o.decision[0].is_spent);
    assert_true(gamma_of(&c, &o, 2) == 0);
    c.opts.spent = 10; /* of a run that this one resumes */
    simulate(*state, &c, &o);
    assert_int_equal(o.n, 0);
}

static void cuts_end_when_the_device_recovers(void **state)
{
    Case c = calm;
    Outcome o;
    c.slow[2] = 4;
    c.change = 100;
    simulate(*state, &c, &o);
    assert_int_equal(o.n_moves, 2);
    assert_true(o.step[o.n - 1] >= 100 && o.step[o.n - 1] <= 110);
    assert_true(gamma_of(&c, &o, 2) == 0);
}

/* Gathering and spreading may take more than the products save. */
static void cuts_that_gain_too_little_are_undone(void **state)
{
    Case c = calm;
    Outcome o;
    c.slow[2] = 2;
    c.overhead = 0.7;
    c.steps = 60;
    simulate(*state, &c, &o);
    assert_int_equal(o.n_moves, 1);
    assert_int_equal(o.n_undone, 1);
    assert_true(gamma_of(&c, &o, 2) == 0);
    assert_true(o.decision[1].measured < 0.5 * o.decision[1].predicted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(without_stragglers_nothing_is_cut),
        TEST(a_small_lag_takes_longer),
        TEST(a_straggler_leaves_out_what_it_is_slower_by),
        TEST(several_stragglers_come_down_to_the_median),
        TEST(targets_differ),
        TEST(the_cap_holds),
        TEST(the_budget_ends_cuts),
        TEST(cuts_end_when_the_device_recovers),
        TEST(cuts_that_gain_too_little_are_undone),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
