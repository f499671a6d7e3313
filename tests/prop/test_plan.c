/*
 * Properties of the planner on seeded random problems: elimination against brute force over all
 * assignments, plans against brute force over all choices, priced by the evaluation that walks the
 * body as lowering does; bound <= plan <= any random legal plan. A failure prints the seed.
 */
#include "passes/plan/evaluate.h"
#include "passes/plan/mesh.h"
#include "passes/plan/outer.h"
#include "passes/plan/plan.h"
#include "tests/consent.h"
#include "tests/plan_graphs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % below;
}

static void seed(uint64_t number)
{
    random_state = number * 0x9e3779b97f4a7c15 + 1;
    for (int i = 0; i < 8; i++)
        draw(2);
}

static void assert_ok(MotCtx *ctx, MotStatus status, uint64_t number)
{
    if (status != MOT_OK)
        fail_msg("seed %llu: %s", (unsigned long long)number, mot_text_get(&ctx->error));
}

/* ---- Elimination ---- */

static MotProblem draw_problem(MotCtx *ctx, uint32_t n_vars, uint32_t n_tables, bool has_memory)
{
    MotProblem p = {.n_vars = n_vars,
                    .n_choices = mot_arena_array(&ctx->arena, uint32_t, n_vars),
                    .has_memory = has_memory};
    for (uint32_t v = 0; v < n_vars; v++)
        p.n_choices[v] = 1 + (uint32_t)draw(4);
    for (uint32_t t = 0; t < n_tables; t++) {
        MotTable table = {.scope = mot_arena_array(&ctx->arena, uint32_t, n_vars)};
        size_t n = 1;
        for (uint32_t v = 0; v < n_vars && table.n_scope < 3; v++)
            if (draw(n_vars) < 2) {
                table.scope[table.n_scope++] = v;
                n *= p.n_choices[v];
            }
        table.label = mot_arena_array(&ctx->arena, MotLabel, n);
        for (size_t i = 0; i < n; i++)
            table.label[i] = (MotLabel){(double)draw(100), has_memory ? (double)draw(5) : 0,
                                        has_memory ? (double)draw(5) : 0};
        mot_vec_push(&ctx->arena, &p.tables, table);
    }
    return p;
}

/* The least seconds among the assignments that hold at most these bytes. */
static double find_least(const MotProblem *p, double whole, double split)
{
    uint32_t all[16], choice[16] = {0};
    double least = INFINITY;
    for (uint32_t v = 0; v < p->n_vars; v++)
        all[v] = v;
    do {
        MotLabel l = mot_problem_evaluate(p, choice);
        if (l.whole <= whole && l.split <= split && l.seconds < least)
            least = l.seconds;
    } while (mot_table_next(all, p->n_vars, p->n_choices, choice));
    return least;
}

static void elimination_finds_the_minimum(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 300; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        MotProblem p = draw_problem(&ctx, 1 + (uint32_t)draw(8), 1 + (uint32_t)draw(12), false);
        MotSolutions found, beam;
        mot_minimise(&ctx, &p, &found);
        mot_minimise_by_beam(&ctx, &p, &beam);
        double least = find_least(&p, INFINITY, INFINITY);
        bool is_good = found.is_exact && found.n == 1 && found.label[0].seconds == least &&
                       mot_problem_evaluate(&p, found.choice[0]).seconds == least &&
                       beam.label[0].seconds >= least &&
                       mot_problem_evaluate(&p, beam.choice[0]).seconds == beam.label[0].seconds;
        if (!is_good)
            fail_msg("seed %llu: found %g, beam %g, least %g", (unsigned long long)s,
                     found.label[0].seconds, beam.label[0].seconds, least);
        mot_ctx_deinit(&ctx);
    }
}

/* Few enough labels that no front is cut: then every budget has its minimum in the front. */
static void fronts_hold_the_minimum_of_every_budget(void **state)
{
    (void)state;
    uint32_t n_checked = 0;
    for (uint64_t s = 1; s <= 200; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        MotProblem p = draw_problem(&ctx, 1 + (uint32_t)draw(5), 1 + (uint32_t)draw(4), true);
        MotSolutions found;
        mot_minimise(&ctx, &p, &found);
        for (uint32_t i = 0; i < found.n; i++) {
            MotLabel l = mot_problem_evaluate(&p, found.choice[i]);
            const MotLabel *told = &found.label[i];
            if (l.seconds != told->seconds || l.whole != told->whole || l.split != told->split)
                fail_msg("seed %llu: label %u is not that of its assignment", (unsigned long long)s,
                         i);
        }
        for (int budget = 0; found.n < MOT_MAX_LABELS / 2 && budget < 36; budget++) {
            double whole = budget % 6 * 4, split = budget / 6 % 6 * 4, best = INFINITY;
            for (uint32_t i = 0; i < found.n; i++)
                if (found.label[i].whole <= whole && found.label[i].split <= split)
                    best = fmin(best, found.label[i].seconds);
            if (best != find_least(&p, whole, split))
                fail_msg("seed %llu: budget %g, %g: %g", (unsigned long long)s, whole, split, best);
            n_checked++;
        }
        mot_ctx_deinit(&ctx);
    }
    assert_true(n_checked > 1000);
}

static void a_table_limit_falls_back_to_the_beam(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    seed(7);
    MotProblem p = draw_problem(&ctx, 8, 12, false);
    p.max_table = 1;
    MotSolutions found;
    mot_minimise(&ctx, &p, &found);
    assert_false(found.is_exact);
    assert_true(found.label[0].seconds >= find_least(&p, INFINITY, INFINITY));
    mot_ctx_deinit(&ctx);
}

/* ---- Plans ---- */

/* A forward chain or a diamond of a few ops with a loss; small enough to try every choice. */
static MotGraph *draw_graph(MotCtx *ctx)
{
    MotGraph *g = mot_graph_make(ctx, "random");
    MotBuilder b = mot_builder_make(g);
    int64_t rows = 2 + (int64_t)draw(40), c = 2 + (int64_t)draw(40);
    MotValue x = mot_input(&b, "x", F32(rows, c)), first = x;
    uint32_t n = 1 + (uint32_t)draw(2);
    for (uint32_t i = 0; i < n; i++) {
        MotValue w = make_weight(&b, mot_arena_printf(&ctx->arena, "w%u", i), DIMS(c, c));
        b.origin = mot_arena_printf(&ctx->arena, "layer%u", i);
        x = mot_contract(&b, x, w, draw(2) ? "bc,cf->bf" : "bc,fc->bf");
        if (draw(2))
            x = mot_tanh(&b, x);
        if (draw(3) == 0)
            x = mot_add(&b, x, first);
    }
    b.origin = "loss";
    mot_output(&b, "loss", mot_reduce_sum(&b, mot_mul(&b, x, x), (int64_t[]){0, 1}, 2, MOT_DROP));
    return differentiate(ctx, g, draw(2) ? "sgd:lr=0.1" : "momentum:lr=0.1") == MOT_OK ? g : NULL;
}

static MotCluster *draw_cluster(MotCtx *ctx)
{
    double slow[4];
    for (int i = 0; i < 4; i++)
        slow[i] = (double)(1 + draw(8)) / (double)(1 + draw(2));
    for (int i = 0; i < 4; i++)
        slow[i] = slow[i] < 1 ? 1 : slow[i];
    return make_cluster(ctx, 2 + (uint32_t)draw(3), slow, pow(10, -4 - (double)draw(4)),
                        pow(10, 6 + (double)draw(5)));
}

/* The time that the search minimises: that of a step in which nothing overlaps. */
static double serial_time(const MotPlan *plan)
{
    MotCost *cost;
    MotFactors *factors;
    MotPlanCost total;
    assert_int_equal(mot_cost_of_plan(plan, &cost), MOT_OK);
    assert_int_equal(mot_plan_factors(plan->ctx, plan->graph, &factors), MOT_OK);
    mot_plan_evaluate(plan, cost, factors, &total);
    assert_true(total.step == plan->time && total.step <= total.serial * (1 + 1e-12));
    return total.serial;
}

static double count_assignments(const MotProblem *p)
{
    double n = 1;
    for (uint32_t v = 0; v < p->n_vars; v++)
        n *= p->n_choices[v];
    return n;
}

/* The least evaluated time over all choices of all variables. */
static double try_all_choices(const MotPlan *plan, const MotIntra *in)
{
    MotArena *arena = &plan->ctx->arena;
    MotPlan trial = mot_plan_copy(plan);
    uint32_t n = in->problem.n_vars, *all = mot_arena_array(arena, uint32_t, n),
             *choice = mot_arena_array(arena, uint32_t, n);
    double least = INFINITY;
    for (uint32_t v = 0; v < n; v++)
        all[v] = v;
    do {
        MotArenaMark mark = mot_arena_mark(arena);
        MotPlanCost cost;
        mot_intra_apply(in, choice, &trial);
        mot_plan_evaluate(&trial, in->cost, in->factors, &cost);
        least = cost.serial < least ? cost.serial : least;
        mot_arena_rewind(arena, mark);
    } while (mot_table_next(all, n, in->problem.n_choices, choice));
    return least;
}

static void plans_equal_brute_force_over_all_choices(void **state)
{
    (void)state;
    uint32_t n_checked = 0;
    for (uint64_t s = 1; s <= 120 && n_checked < 25; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        MotGraph *g = draw_graph(&ctx);
        MotPlan *plan;
        MotIntra *in;
        MotPlanStats stats;
        assert_non_null(g);
        assert_ok(
            &ctx,
            mot_plan_make(&ctx, g, draw_cluster(&ctx), &(MotPlanOpts){.stats = &stats}, &plan), s);
        assert_ok(&ctx, mot_intra_open(plan, NULL, 0, &in), s);
        if (count_assignments(&in->problem) < 100000) {
            double least = try_all_choices(plan, in), found = serial_time(plan);
            n_checked++;
            if (!stats.is_exact || fabs(found - least) > 1e-9 * least)
                fail_msg("seed %llu: plan %.9g s, least %.9g s", (unsigned long long)s, found,
                         least);
        }
        mot_ctx_deinit(&ctx);
    }
    assert_int_equal(n_checked, 25);
}

/* The rows of all inputs are those of two replicas; false if some input has no even number. */
static bool give_units(MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOp *op = mot_graph_op(g, g->body.data[i]);
        const MotType *type = op->n_out ? mot_graph_type(g, op->out[0]) : NULL;
        if (op->kind != MOT_OP_INPUT || type->rank == 0)
            continue;
        if (type->dims[0] % 2)
            return false;
        mot_attrs(op, input)->units = 2;
    }
    return mot_factors_spread_units(g) == MOT_OK;
}

/* Whether some op's samples of a replica are split. */
static bool splits_samples(const MotPlan *plan, const MotIntra *in)
{
    for (uint32_t i = 0; i < plan->graph->body.n; i++) {
        MotOpId id = plan->graph->body.data[i];
        int f = plan->ops[id].factor[1];
        if (f >= 0 && in->factors[id].factor[f].within >= 0)
            return true;
    }
    return false;
}

/* A plan for two replicas, each on a group of devices, as the search leaves it. */
static MotPlan *search_groups(MotCtx *ctx, MotGraph *g, const MotCluster *cluster, MotIntra **in)
{
    MotPlan *plan = mot_plan_new(ctx, g, cluster);
    MotMesh mesh;
    MotFactors *factors;
    MotSolutions solutions;
    assert_int_equal(mot_plan_mesh(ctx, g, cluster, &(MotPlanOpts){0}, &mesh), MOT_OK);
    assert_int_equal(mesh.n_axes, 2);
    mot_vec_push(&ctx->arena, &plan->stages, (MotStage){mesh});
    assert_int_equal(mot_plan_factors(ctx, g, &factors), MOT_OK);
    mot_outer_choose(plan, factors);
    assert_int_equal(mot_intra_open(plan, NULL, 0, in), MOT_OK);
    mot_minimise(ctx, &(*in)->problem, &solutions);
    assert_true(solutions.is_exact && (*in)->n_split_tables == 0);
    mot_intra_apply(*in, solutions.choice[0], plan);
    assert_int_equal(mot_plan_predict(plan), MOT_OK);
    assert_int_equal(mot_plan_verify(plan), MOT_OK);
    return plan;
}

/* On two groups of two or three devices, whatever links and speeds. */
static void plans_of_two_axes_equal_brute_force(void **state)
{
    (void)state;
    uint32_t n_checked = 0, n_samples = 0;
    for (uint64_t s = 1; s <= 200 && n_checked < 25; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        MotGraph *g = draw_graph(&ctx);
        double slow[6];
        for (int i = 0; i < 6; i++)
            slow[i] = (double)(1 + draw(4));
        const MotCluster *cluster =
            make_cluster(&ctx, draw(2) ? 4 : 6, slow, pow(10, -4 - 2 * (double)draw(4)),
                         pow(10, 6 + 2 * (double)draw(5)));
        if (give_units(g)) {
            MotIntra *in;
            MotPlan *plan = search_groups(&ctx, g, cluster, &in);
            if (count_assignments(&in->problem) < 100000) {
                double least = try_all_choices(plan, in), found = serial_time(plan);
                n_checked++;
                n_samples += splits_samples(plan, in);
                if (fabs(found - least) > 1e-9 * least)
                    fail_msg("seed %llu: plan %.9g s, least %.9g s", (unsigned long long)s, found,
                             least);
            }
        }
        mot_ctx_deinit(&ctx);
    }
    assert_int_equal(n_checked, 25);
    if (n_samples < 3)
        fail_msg("only %u plans split samples", n_samples);
}

/* Any factor that can be split, of any op, or none: legal by construction. */
static void draw_plan(MotPlan *plan, const MotFactors *factors)
{
    for (uint32_t i = 0; i < plan->graph->body.n; i++) {
        MotOpId id = plan->graph->body.data[i];
        const MotFactors *f = &factors[id];
        int choice = f->n && draw(3) ? (int)draw(f->n) : -1;
        if (mot_op_info(mot_graph_op(plan->graph, id)->kind)->class == MOT_SINK ||
            (choice >= 0 && f->factor[choice].kind == MOT_FACTOR_WHOLE))
            choice = -1;
        plan->ops[id].factor[0] = (int8_t)choice;
        mot_plan_apply_factors(plan, id, f);
    }
}

static void check_random_plans(MotCtx *ctx, const MotPlan *plan, uint64_t s, int n_random)
{
    MotFactors *factors;
    assert_null(find_lossy(plan->graph));
    assert_ok(ctx, mot_plan_factors(ctx, plan->graph, &factors), s);
    MotPlan trial = mot_plan_copy(plan);
    double own = serial_time(plan);
    for (int i = 0; i < n_random; i++) {
        MotArenaMark mark = mot_arena_mark(&ctx->arena);
        MotPlanCost total;
        MotCost *cost; /* remembers parts in the arena: not to outlive the mark */
        assert_ok(ctx, mot_cost_of_plan(plan, &cost), s);
        draw_plan(&trial, factors);
        mot_plan_evaluate(&trial, cost, factors, &total);
        trial.time = total.step;
        assert_ok(ctx, mot_plan_verify(&trial), s);
        if (total.serial < own || plan->bound > total.step || plan->bound > plan->time)
            fail_msg("seed %llu: bound %.9g, plan %.9g, random %.9g", (unsigned long long)s,
                     plan->bound, own, total.serial);
        mot_arena_rewind(&ctx->arena, mark);
    }
}

static void bound_plan_and_random_plans_are_in_order(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 40; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        MotGraph *g = draw_graph(&ctx);
        MotPlan *plan;
        assert_non_null(g);
        assert_ok(&ctx, mot_plan_make(&ctx, g, draw_cluster(&ctx), NULL, &plan), s);
        check_random_plans(&ctx, plan, s, 50);
        mot_ctx_deinit(&ctx);
    }
}

/* The bound holds for every share vector, not only for the planner's. */
static void bound_holds_for_any_shares(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 40; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        MotGraph *g = draw_graph(&ctx);
        MotCluster *cluster = draw_cluster(&ctx);
        MotPlan *own, *other;
        int64_t share[4];
        for (int i = 0; i < 4; i++)
            share[i] = (int64_t)draw(6);
        share[draw(2)]++;
        assert_non_null(g);
        assert_ok(&ctx, mot_plan_make(&ctx, g, cluster, NULL, &own), s);
        assert_ok(&ctx,
                  mot_plan_make(&ctx, g, cluster,
                                &(MotPlanOpts){.share = share, .n_share = cluster->devices.n},
                                &other),
                  s);
        if (own->bound > other->time || fabs(own->bound - other->bound) > 1e-12)
            fail_msg("seed %llu: bound %.9g, other shares %.9g", (unsigned long long)s, own->bound,
                     other->time);
        mot_ctx_deinit(&ctx);
    }
}

static void gpt_plans_are_in_order_and_equal_their_evaluation(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 6; s++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        seed(s);
        GptSizes sizes = {2 + (int64_t)draw(16),    16 << draw(3),   2 + (int64_t)draw(7), 16,
                          100 + (int64_t)draw(100), 1 + (int)draw(3)};
        MotGraph *g = make_gpt(&ctx, sizes, "adamw:lr=1e-3");
        MotPlan *plan;
        MotIntra *in;
        MotSolutions best;
        assert_non_null(g);
        assert_ok(&ctx, mot_plan_make(&ctx, g, draw_cluster(&ctx), NULL, &plan), s);
        assert_ok(&ctx, mot_intra_open(plan, NULL, 0, &in), s);
        mot_minimise(&ctx, &in->problem, &best);
        double found = serial_time(plan);
        if (in->n_split_tables == 0 && fabs(best.label[0].seconds - found) > 1e-9 * found)
            fail_msg("seed %llu: tables %.9g, evaluation %.9g", (unsigned long long)s,
                     best.label[0].seconds, found);
        check_random_plans(&ctx, plan, s, 10);
        mot_ctx_deinit(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elimination_finds_the_minimum),
        cmocka_unit_test(fronts_hold_the_minimum_of_every_budget),
        cmocka_unit_test(a_table_limit_falls_back_to_the_beam),
        cmocka_unit_test(plans_equal_brute_force_over_all_choices),
        cmocka_unit_test(plans_of_two_axes_equal_brute_force),
        cmocka_unit_test(bound_plan_and_random_plans_are_in_order),
        cmocka_unit_test(bound_holds_for_any_shares),
        cmocka_unit_test(gpt_plans_are_in_order_and_equal_their_evaluation),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
