/* Shares: by speed, and the search for those that suit a plan, against all others. */
#include "passes/plan/plan.h"
#include "tests/plan_graphs.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

static const double equal[] = {1, 1, 1, 1}, unequal[] = {1, 2, 4, 8};

static void shares_follow_the_speeds(void **state)
{
    static const struct {
        uint32_t n;
        double slow[4];
        int64_t share[4];
    } cases[] = {
        {4, {1, 2, 4, 8}, {8, 4, 2, 1}},
        {4, {1, 1, 1, 1}, {1, 1, 1, 1}},
        {2, {3, 5}, {5, 3}},
        {2, {1, 1.5}, {3, 2}},
        {1, {7}, {1}},
        {3, {2, 1, 2}, {1, 2, 1}},
        {3, {1, 2, 100}, {64, 32, 1}},
        {3, {1, 2, 200}, {2, 1, 0}},
        {4, {300, 2, 3, 900}, {0, 3, 2, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t share[4];
        const MotCluster *c = make_cluster(*state, cases[i].n, cases[i].slow, 1e-5, 1e9);
        uint32_t n = cases[i].n, devices[] = {0, 1, 2, 3};
        MotMesh mesh = {.n_axes = 1, .n_devices = n, .devices = devices, .axis = {{"d", n, NULL}}};
        mot_plan_speed_shares(c, &mesh, share);
        for (uint32_t k = 0; k < cases[i].n; k++)
            assert_int_equal(share[k], cases[i].share[k]);
    }
}

/* ---- The search ---- */

/* Devices that each do something whatever their part of the units, and the rest in proportion. */
typedef struct {
    uint32_t n;
    int64_t units, share[3];
    double slow[3], fixed;
} Work;

static double slowest(const Work *w, const int64_t *part)
{
    double time = 0;
    MOT_ASSERT(w->n <= 3);
    for (uint32_t i = 0; i < w->n; i++) {
        double own = part[i] ? w->fixed + (double)part[i] / (double)w->units : 0;
        time = fmax(time, w->slow[i] * own);
    }
    return time;
}

static double time_of_work(void *data)
{
    const Work *w = data;
    int64_t part[3];
    mot_share_split(w->share, w->n, w->units, part);
    return slowest(w, part);
}

/* Of all parts, each device having some. */
static double least_of_all(const Work *w)
{
    double least = INFINITY;
    for (int64_t a = 1; a < w->units - 1; a++)
        for (int64_t b = 1; a + b < w->units; b++)
            least = fmin(least, slowest(w, (int64_t[]){a, b, w->units - a - b}));
    return least;
}

static void the_search_comes_near_the_best_shares(void **state)
{
    static const Work cases[] = {
        {3, 240, {4, 2, 1}, {1, 2, 4}, 0},      {3, 240, {4, 2, 1}, {1, 2, 4}, 0.05},
        {3, 960, {8, 2, 1}, {1, 4, 8}, 0.1},    {3, 12, {2, 2, 1}, {1, 1, 2}, 0.02},
        {3, 100, {1, 1, 1}, {1, 1, 1}, 0.1},    {3, 777, {1, 1, 1}, {1, 3, 9}, 0.01},
        {3, 480, {16, 2, 1}, {1, 8, 16}, 0.03},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Work w = cases[i];
        double first = time_of_work(&w), found = mot_shares_search(w.share, w.n, time_of_work, &w),
               best = least_of_all(&w);
        assert_true(found == time_of_work(&w));
        assert_true(found <= first && found >= best && found <= 1.03 * best);
    }
}

static void a_device_without_a_share_stays_so(void **state)
{
    Work w = {3, 240, {1, 0, 1}, {1, 1, 4}, 0.05};
    (void)state;
    mot_shares_search(w.share, w.n, time_of_work, &w);
    assert_true(w.share[0] > w.share[2] && w.share[1] == 0 && w.share[2] > 0);
}

/* ---- In a plan ---- */

static MotPlan *plan_mlp(MotCtx *ctx, double memory_bandwidth, const double *slow,
                         const int64_t *share, MotPlanStats *stats)
{
    MotCluster *cluster = make_cluster(ctx, 4, slow, 1e-6, 1e10);
    for (uint32_t i = 0; i < 4; i++)
        cluster->devices.data[i].alone.bandwidth = memory_bandwidth;
    MotGraph *g = make_mlp(ctx, 960, 512, 512, "adamw:lr=0.1");
    MotPlan *plan = NULL;
    assert_non_null(g);
    assert_int_equal(mot_plan_make(ctx, g, cluster,
                                   &(MotPlanOpts){.share = share, .n_share = 4, .stats = stats},
                                   &plan),
                     MOT_OK);
    return plan;
}

/*
 * The weights that every device reads whole cost the slowest most: it gets less, where that is
 * worth odd shares.
 */
static void shares_suit_the_plan(void **state)
{
    MotCtx *ctx = *state;
    static const int64_t by_speed[] = {8, 4, 2, 1};
    MotPlanStats stats;
    const MotPlan *given = plan_mlp(ctx, 3e9, unequal, by_speed, &stats);
    assert_true(stats.saved == 0);
    const MotPlan *found = plan_mlp(ctx, 3e9, unequal, NULL, &stats);
    const int64_t *share = found->stages.data[0].mesh.axis[0].share;
    assert_true(found->time < 0.99 * given->time);
    assert_true(fabs(stats.saved - (given->time - found->time)) < 1e-9);
    assert_true(8 * share[3] < share[0]);
    const MotPlan *same = plan_mlp(ctx, 3e9, unequal, share, NULL);
    assert_true(fabs(same->time - found->time) < 1e-9);
    assert_true(plan_mlp(ctx, 3e9, equal, NULL, &stats)->stages.data[0].mesh.axis[0].share[0] == 1);
    assert_true(stats.saved == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shares_follow_the_speeds),
        TEST(the_search_comes_near_the_best_shares),
        TEST(a_device_without_a_share_stays_so),
        TEST(shares_suit_the_plan),
    };
    return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
