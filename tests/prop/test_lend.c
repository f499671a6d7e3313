/*
 * Lent columns: random ones of layers that are split by rows or columns of their weights, to one
 * and several helpers, by one and several lenders, with uneven and zero shares. Whoever computes
 * them, losses, weights and moments are those of one device.
 *
 * What the policy takes for the price of links is what the bound exchanges move.
 *
 *     test_lend [--seed N]      reproduces one failure
 */
#include "passes/plan/evaluate.h"
#include "passes/plan/lend_price.h"
#include "tests/layer_plans.h"
#include "tests/test_ctx.h"

/* Deals out some columns of a lender to its helpers at random; the rest, at least one, stays. */
static void lend_some(MotSession *session, uint32_t cut, const int64_t *lender, uint32_t n_ranks,
                      uint32_t rank, unsigned *seed)
{
    int64_t columns = mot_session_columns(session, cut, rank), n_kept = 0;
    int64_t kept[1024], list[MAX_DEVICES][1024], n[MAX_DEVICES] = {0};
    for (int64_t k = 0; k < columns; k++) {
        uint32_t to = (uint32_t)rand_r(seed) % (n_ranks + 1);
        bool helps = to < n_ranks && lender[to] == (int64_t)rank + 1 && k + 1 < columns;
        if (helps)
            list[to][n[to]++] = k;
        else
            kept[n_kept++] = k;
    }
    for (uint32_t h = 0; h < n_ranks; h++)
        if (lender[h] == (int64_t)rank + 1)
            mot_session_help(session, cut, h, rank, list[h], n[h]);
    if (columns)
        mot_session_cut(session, cut, rank, kept, n_kept);
}

/* ---- Results of as many dims as there may be ---- */

/* The batch of 16 as seven dims; products of it have eight. */
static void unfold_batch(MotGraph *g)
{
    MotBuilder b = mot_builder_make(g);
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind != MOT_OP_CONTRACT)
            continue;
        const MotType x = *mot_graph_type(g, op.in[0]), y = *mot_graph_type(g, op.out[0]);
        const char *spec = mot_attrs(&op, contract)->spec;
        assert_true(x.rank == 2 && x.dims[0] == 16 && strncmp(strchr(spec, '>') + 1, spec, 1) == 0);
        int64_t dims[] = {2, 2, 2, 2, 1, 1, 1, x.dims[1]};
        char *wide =
            mot_arena_printf(&g->ctx->arena, "ABCDEFG%.*sABCDEFG%s",
                             (int)(strchr(spec, '>') - spec), spec + 1, strchr(spec, '>') + 2);
        MotValue product = mot_contract(&b, mot_reshape(&b, op.in[0], 8, dims), op.in[1], wide);
        MotValue flat = mot_reshape(&b, product, y.rank, y.dims);
        mot_graph_replace(g, &op.out[0], &flat, 1);
    }
    mot_graph_compact(g);
    require(g->ctx, mot_graph_verify(g));
}

/* Helpers' results have a dim more: without room for it nothing is lent, and all is as ever. */
static void layers_of_most_dims_are_not_lent(void **state)
{
    unsigned seed = first_seed, none = 0;
    Model wide = mlp;
    wide.edit = unfold_batch;
    Setup setup = {&wide, &meshes[1], "sgd:lr=0.1", "ref", MOT_CUT_NONE, WEIGHTS_ONLY, true, 1};
    Run r = open_run(*state, &setup, &seed);
    Trained split = {0}, whole;
    assert_true(r.program->cuts.n > 0);
    for (uint32_t c = 0; c < r.program->cuts.n; c++)
        assert_false(r.program->cuts.data[c].is_lendable);
    train(&r, &split);
    mot_session_close(r.session);
    assert_true(run_plan(&r.job, make_plan(&r.job, &meshes[0], &none), "ref", NULL, &whole));
    check_same(&split, &whole, setup.backend);
}

/* ---- What travels ---- */

/*
 * Seconds of a layer's exchanges under these bindings: the latency, and what the rank with most of
 * it receives.
 */
static double time_exchanges(const MotProgram *p, MotSection section, const MotBinding *bindings,
                             uint32_t cut, const MotCost *cost)
{
    double seconds = 0;
    for (uint32_t i = 0; i < p->section[section].n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        double most = 0, runs = mot_section_is_repeated(section) ? p->n_micro : 1;
        if (ins->cut != cut + 1 || ins->who != MOT_WHO_IF_LENT)
            continue;
        for (uint32_t r = 0; r < p->mesh.n_devices; r++) {
            double bytes = 0;
            for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
                bytes += (double)mot_type_bytes(&bindings[r].types[ins->bufs[k]]);
            most = fmax(most, bytes);
        }
        seconds += (ins->when == MOT_WHEN_FIRST ? 1 : runs) *
                   (cost->latency[0] + most / cost->bandwidth[0]);
    }
    return seconds;
}

/* Rank 0 lends to all others, each a different number of columns. */
static void prices_are_what_travels(void **state)
{
    static const Model *const models[] = {&mlp, &gpt};
    MotCtx *ctx = *state;
    for (int i = 0; i < 4; i++) {
        unsigned seed = first_seed;
        Setup setup = {models[i / 2], &meshes[i % 2 ? 3 : 1], "sgd:lr=0.1", "ref",
                       MOT_CUT_NONE,  WEIGHTS_ONLY,           true,         1};
        Run r = open_run(ctx, &setup, &seed);
        MotProgram *p = r.pipeline->stages.data[0];
        MotBinding bindings[MAX_DEVICES];
        MotCost *cost;
        require(ctx, mot_cost_of_plan(r.plan, &cost));
        MotLendPrice *price =
            mot_arena_array(&ctx->arena, MotLendPrice, p->mesh.n_devices * p->cuts.n);
        mot_lend_price_find(p, cost, price);
        MotAmounts amounts = {.helpers = p->mesh.n_devices - 1};
        for (uint32_t h = 1; h < p->mesh.n_devices; h++) {
            p->lender[h] = 1;
            amounts.lent += h;
            amounts.helped = h;
            for (uint32_t l = 0; l < p->cuts.n; l++)
                p->cuts.data[l].n_helped[h] = p->cuts.data[l].is_lendable ? h : 0;
        }
        for (uint32_t k = 0; k < p->mesh.n_devices; k++)
            require(ctx, mot_program_bind(ctx, p, k, &bindings[k]));
        for (uint32_t l = 0; l < p->cuts.n; l++) {
            double wanted = 0, found = mot_linear_at(&price[l].travels, &amounts);
            for (int k = 0; k < MOT_N_SECTIONS; k++)
                wanted += time_exchanges(p, (MotSection)k, bindings, l, cost);
            assert_true(p->cuts.data[l].is_lendable == isfinite(found));
            assert_true(!isfinite(found) || fabs(found - wanted) <= 1e-9 * wanted);
        }
        mot_session_close(r.session);
    }
}

/* Whoever computes them, the products are those of one device. */
static void check_lent(MotCtx *ctx, const Setup *setup, const int64_t *lender)
{
    unsigned seed = first_seed, none = 0;
    Trained lent = {0}, whole;
    Run r = open_run(ctx, setup, &seed);
    uint32_t n_lendable = 0;
    for (uint32_t c = 0; c < r.program->cuts.n; c++)
        for (uint32_t rank = 0; rank < r.program->mesh.n_devices; rank++)
            if (r.program->cuts.data[c].is_lendable) {
                lend_some(r.session, c, lender, r.program->mesh.n_devices, rank, &seed);
                n_lendable++;
            }
    assert_true(n_lendable > 0);
    require(ctx, mot_session_rebind(r.session));
    train(&r, &lent);
    mot_session_close(r.session);
    assert_true(run_plan(&r.job, make_plan(&r.job, &meshes[0], &none), "ref", NULL, &whole));
    check_same(&lent, &whole, setup->backend);
}

static const struct {
    uint32_t mesh;
    int64_t lender[MAX_DEVICES]; /* position + 1 */
} cases[] = {{1, {0, 1}}, {3, {0, 1, 1, 1}}, {3, {0, 0, 2, 1}}, {2, {0, 1, 1}}};

static void lent_columns_are_computed_by_others(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    static const Model *const models[] = {&mlp, &gpt};
    MotCtx *ctx = *state;
    for (unsigned i = 0; i < 4 * sizeof cases / sizeof *cases; i++) {
        MotScope scope = mot_scope_begin(ctx);
        Setup setup = {models[i % 2],
                       &meshes[cases[i / 4].mesh],
                       "adamw:lr=0.1,wd=0.3,clip=1.0",
                       backends[i / 2 % 2],
                       MOT_CUT_NONE,
                       WEIGHTS_ONLY,
                       true,
                       1};
        check_lent(ctx, &setup, cases[i / 4].lender);
        mot_scope_end(ctx, scope);
    }
}

/* In steps of two and three micro-batches, too. */
static void in_every_micro_batch(void **state)
{
    static const Model any_batch = {
        "models/mlp_ts13_opt_dynamic.onnx", "cross_entropy:logits:labels",    "x",
        "models/fixtures/mlp/x.npy",        "models/fixtures/mlp/labels.npy", NULL};
    MotCtx *ctx = *state;
    for (unsigned i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        MotScope scope = mot_scope_begin(ctx);
        Setup setup = {i % 2 ? &gpt : &any_batch,
                       &meshes[cases[i / 2].mesh],
                       "adamw:lr=0.1,wd=0.3,clip=1.0",
                       (i / 2 + i) % 2 ? "ref" : "cpu",
                       MOT_CUT_NONE,
                       WEIGHTS_ONLY,
                       true,
                       2 + i / 4 % 2};
        check_lent(ctx, &setup, cases[i / 2].lender);
        mot_scope_end(ctx, scope);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        first_seed = (unsigned)strtoul(argv[2], NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lent_columns_are_computed_by_others, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(layers_of_most_dims_are_not_lent, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(in_every_micro_batch, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(prices_are_what_travels, make_ctx, drop_ctx)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
