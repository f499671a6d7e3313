/*
 * Cut layers against the whole computation with masked operands: random lists on ranks that split
 * layers by rows, columns or samples, with uneven and zero shares. A layer of which a rank leaves
 * out columns is the layer with a mask over the weight (over the input, where ranks have samples of
 * their own), and its gradients are those of that; the oracle is the training graph with these
 * masks, evaluated by one device. Also: what stands where gradients were left out, no decay there,
 * and no trace of cuts in evaluation or where nothing is cut.
 *
 *     test_cuts [--seed N]      reproduces one failure
 */
#include "ir/builder.h"
#include "runtime/cuts.h"
#include "tests/layer_plans.h"
#include "tests/test_ctx.h"

enum { N_SEEDS = 1 };

/* ---- Lists ---- */

/* Who helps whom in a mesh of two, and of four: position + 1. */
static const int64_t lenders[][MAX_DEVICES] = {{0, 1}, {0, 0, 2, 1}};

/*
 * Some of the kept columns go to the rank's helpers instead; at least one stays. Returns how many
 * do.
 */
static int64_t lend_some(MotSession *session, const MotProgram *p, uint32_t cut, uint32_t rank,
                         int64_t *kept, int64_t n, unsigned *seed)
{
    const int64_t *lender = lenders[p->mesh.n_devices == 4];
    for (uint32_t h = 0; h < p->mesh.n_devices; h++) {
        int64_t list[1024], n_list = 0, stay = 0;
        if (lender[h] != (int64_t)rank + 1)
            continue;
        for (int64_t k = 0; k < n; k++) {
            if (k > 0 && rand_r(seed) % 3 == 0)
                list[n_list++] = kept[k];
            else
                kept[stay++] = kept[k];
        }
        n = stay;
        mot_session_help(session, cut, h, rank, list, n_list);
    }
    return n;
}

/*
 * Cuts some ranks at random, which also lend some columns where that is possible; says what they
 * left out.
 */
static void cut_some(MotSession *session, const MotProgram *p, uint32_t cut, const Layer *layer,
                     int64_t columns, unsigned *seed, Lists *out)
{
    for (uint32_t r = 0; r < p->mesh.n_devices; r++) {
        int64_t first = 0, n = columns, kept[1024], n_kept = 0;
        if (layer->split == BY_COLUMNS)
            part_of(&p->mesh, columns, r, &first, &n);
        assert_int_equal(n, mot_session_columns(session, cut, r));
        if (n == 0 || rand_r(seed) % 4 == 0)
            continue;
        for (int64_t k = 0; k < n; k++) {
            out->is_cut[r][first + k] = (n_kept || k + 1 < n) && rand_r(seed) % 3 == 0;
            if (!out->is_cut[r][first + k])
                kept[n_kept++] = k;
        }
        if (p->cuts.data[cut].is_lendable)
            n_kept = lend_some(session, p, cut, r, kept, n_kept, seed);
        mot_session_cut(session, cut, r, kept, n_kept);
    }
}

/* ---- The oracle ---- */

static int64_t coordinate(const MotType *type, int64_t element, int dim)
{
    for (int d = type->rank - 1; d > dim; d--)
        element /= type->dims[d];
    return element % type->dims[dim];
}

/* 0 where the rank with that part of the operand leaves the column out, else 1. */
static MotValue make_mask(MotBuilder *b, const MotMesh *mesh, const Layer *layer,
                          const Lists *lists)
{
    bool of_input = layer->split == BY_SAMPLES;
    MotType type = *mot_graph_type(b->graph, of_input ? layer->x : layer->w);
    int column = of_input ? layer->x_column : layer->w_column;
    int split = of_input ? 0 : layer->split == BY_ROWS ? layer->w_row : layer->w_column;
    MotTensor mask = {type, mot_arena_alloc(&b->graph->ctx->arena, (size_t)mot_type_bytes(&type))};
    for (uint32_t r = 0; r < mesh->n_devices; r++) {
        int64_t first, n;
        part_of(mesh, type.dims[split], r, &first, &n);
        for (int64_t e = 0; e < mot_type_elements(&type); e++) {
            int64_t at = coordinate(&type, e, split);
            if (at >= first && at < first + n)
                mot_tensor_set(&mask, e, !lists->is_cut[r][coordinate(&type, e, column)]);
        }
    }
    return mot_constant(b, mask);
}

static void mask_operand(MotBuilder *b, MotOpId id, MotValue v, MotValue mask)
{
    MotValue masked = mot_mul(b, v, mask);
    MotOp *op = &b->graph->ops.data[id];
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] == v)
            op->in[i] = masked;
}

/* All users of the op's result read it masked. */
static void mask_result(MotBuilder *b, MotOpId id, MotValue mask)
{
    MotValue v = mot_graph_op(b->graph, id)->out[0], masked = mot_mul(b, v, mask);
    mot_graph_replace(b->graph, &v, &masked, 1);
    MotOp *product = &b->graph->ops.data[b->graph->values.data[masked].def];
    product->in[0] = v;
}

static void mask_layer(MotGraph *g, const MotMesh *mesh, const Layer *layer, const Lists *lists)
{
    MotBuilder b = mot_builder_make(g);
    MotValue mask = make_mask(&b, mesh, layer, lists);
    bool of_input = layer->split == BY_SAMPLES;
    mask_operand(&b, layer->fwd, of_input ? layer->x : layer->w, mask);
    if (of_input)
        mask_operand(&b, layer->dw, layer->x, mask);
    else
        mask_result(&b, layer->dw, mask);
    if (layer->dx && of_input)
        mask_result(&b, layer->dx, mask);
    else if (layer->dx)
        mask_operand(&b, layer->dx, layer->w, mask);
}

/* ---- Running ---- */

/* Cuts every layer that may be; gives the number of these. */
static uint32_t cut_layers(Run *r, unsigned *seed, MotGraph *masked)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->layers.n; i++) {
        const Layer *layer = &r->layers.layer[i];
        int cut = find_cut(r->program, weight_name(r->job.graph, layer));
        static Lists lists;
        if (cut < 0)
            continue;
        n++;
        memset(&lists, 0, sizeof lists);
        int64_t columns = mot_graph_type(r->job.graph, layer->w)->dims[layer->w_column];
        cut_some(r->session, r->program, (uint32_t)cut, layer, columns, seed, &lists);
        if (masked)
            mask_layer(masked, &r->program->mesh, layer, &lists);
    }
    require(r->job.ctx, mot_session_rebind(r->session));
    return n;
}

/* The losses but that of the evaluation, which a mask changes and a cut does not. */
static void check_masked(MotCtx *ctx, const Setup *setup, unsigned seed)
{
    unsigned state = seed, none = 0;
    Trained cut = {0}, whole;
    Run r = open_run(ctx, setup, &state);
    Job oracle = r.job;
    oracle.graph = mot_graph_clone(ctx, r.job.graph);
    uint32_t n = cut_layers(&r, &state, oracle.graph);
    assert_true(n >= (setup->model == &mlp ? 1 : 4));
    train(&r, &cut);
    mot_session_close(r.session);
    mot_graph_compact(oracle.graph);
    assert_true(run_plan(&oracle, make_plan(&oracle, &meshes[0], &none), "ref", NULL, &whole));
    cut.losses[N_STEPS] = whole.losses[N_STEPS];
    check_same(&cut, &whole,
               mot_arena_printf(&ctx->arena, "%s seed %u, mesh of %u", setup->backend, seed,
                                setup->mesh->n[0]));
}

static void cut_layers_are_masked_ones(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    static const Model *const models[] = {&mlp, &gpt};
    MotCtx *ctx = *state;
    for (unsigned i = 0; i < 4 * N_MESHES * N_SEEDS; i++) {
        MotScope scope = mot_scope_begin(ctx);
        check_masked(ctx,
                     &(Setup){models[i % 2], &meshes[i / 4 % N_MESHES], "sgd:lr=0.1,clip=1.0",
                              backends[i / 2 % 2], MOT_CUT_ZERO, N_SPLITS, false, 1},
                     first_seed + i / (4 * N_MESHES));
        mot_scope_end(ctx, scope);
    }
}

/*
 * A rank that leaves some columns out and has others compute some: what these compute is as if it
 * did so itself.
 */
static void cut_layers_that_are_lent_too(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    MotCtx *ctx = *state;
    for (unsigned i = 0; i < 4; i++) {
        MotScope scope = mot_scope_begin(ctx);
        check_masked(ctx,
                     &(Setup){&gpt, &meshes[i / 2 ? 3 : 1], "sgd:lr=0.1,clip=1.0", backends[i % 2],
                              MOT_CUT_ZERO, WEIGHTS_ONLY, true, 1},
                     first_seed);
        mot_scope_end(ctx, scope);
    }
}

/* ---- What a cut leaves alone ---- */

/* A plan that allows cuts, of which none is made, computes bit for bit what one without does. */
static void no_cut_is_no_difference(void **state)
{
    MotCtx *ctx = *state;
    Trained trained[2] = {{{0}, NULL, NULL, 0, 0}};
    for (int allows = 0; allows < 2; allows++) {
        unsigned seed = first_seed;
        Setup setup = {&gpt,
                       &meshes[3],
                       "adamw:lr=0.1,wd=0.3,clip=1.0",
                       "cpu",
                       allows ? MOT_CUT_MEAN : MOT_CUT_NONE,
                       N_SPLITS,
                       false,
                       1};
        Run r = open_run(ctx, &setup, &seed);
        assert_true((r.program->cuts.n > 0) == (allows == 1));
        train(&r, &trained[allows]);
        mot_session_close(r.session);
    }
    assert_memory_equal(trained[0].losses, trained[1].losses, sizeof trained[0].losses);
    assert_memory_equal(trained[0].after, trained[1].after,
                        trained[0].n_params * sizeof *trained[0].after);
}

static void evaluation_is_whole(void **state)
{
    MotCtx *ctx = *state;
    unsigned seed = first_seed;
    Setup setup = {&gpt, &meshes[1], "sgd:lr=0.1", "cpu", MOT_CUT_ZERO, N_SPLITS, false, 1};
    Run r = open_run(ctx, &setup, &seed);
    double before = evaluate_loss(&r);
    assert_true(cut_layers(&r, &seed, NULL) > 0);
    double after = evaluate_loss(&r), of_step = train_step(&r.job, r.session, 0);
    assert_true(before == after);
    assert_true(fabs(of_step - before) > 1e-4); /* the step is not whole */
    mot_session_close(r.session);
}

/* ---- What stands where a gradient was left out ---- */

/* The weight, before and after two steps, of which the second has cuts; and where these are. */
typedef struct {
    const Layer *layer;
    MotTensor at[3], mask;
} Traced;

static double gradient(const Traced *t, int step, int64_t e)
{
    return (mot_tensor_get(&t->at[step], e) - mot_tensor_get(&t->at[step + 1], e)) / 0.01;
}

/* The mean gradient of the second step over the kept entries in the row of e, of the same rank. */
static double mean_of_row(const Traced *t, const MotMesh *mesh, int64_t e)
{
    const MotType *type = &t->mask.type;
    int dim = t->layer->w_column;
    int64_t inner = 1, first = 0, n = type->dims[dim], at = coordinate(type, e, dim), kept = 0;
    double sum = 0;
    for (int d = dim + 1; d < type->rank; d++)
        inner *= type->dims[d];
    for (uint32_t r = 0; t->layer->split == BY_COLUMNS && r < mesh->n_devices; r++) {
        part_of(mesh, type->dims[dim], r, &first, &n);
        if (at >= first && at < first + n)
            break;
    }
    for (int64_t k = first; k < first + n; k++) {
        int64_t other = e + (k - at) * inner;
        if (mot_tensor_get(&t->mask, other) == 0)
            continue;
        sum += gradient(t, 1, other);
        kept++;
    }
    return sum / (double)kept;
}

static void check_filled(const Traced *t, const MotMesh *mesh, MotCutFill fill, double decay)
{
    const MotType *type = &t->mask.type;
    double largest = 0;
    uint32_t n_cut = 0;
    for (int64_t e = 0; e < mot_type_elements(type); e++)
        largest = fmax(largest, fabs(gradient(t, 0, e)));
    for (int64_t e = 0; e < mot_type_elements(type); e++) {
        if (mot_tensor_get(&t->mask, e) != 0)
            continue;
        double g = gradient(t, 1, e), wanted = 0;
        if (fill == MOT_CUT_MEAN)
            wanted = mean_of_row(t, mesh, e);
        else if (fill == MOT_CUT_LAST) /* which the step before has decayed as well */
            wanted = gradient(t, 0, e) - decay * mot_tensor_get(&t->at[0], e);
        if (!(fabs(g - wanted) <= 1e-3 * largest + 1e-4))
            fail_msg("fill %d: the gradient of element %lld is %g, not %g", (int)fill, (long long)e,
                     g, wanted);
        n_cut++;
    }
    assert_true(n_cut > 0);
}

static void read_weights(Run *r, Traced *traced, int step)
{
    for (uint32_t i = 0; i < r->layers.n; i++)
        require(r->job.ctx,
                mot_session_read(r->session, weight_name(r->job.graph, &r->layers.layer[i]),
                                 &traced[i].at[step]));
}

/* Every rank lends some columns of every layer and cuts none. */
static void lend_layers(Run *r, unsigned *seed)
{
    for (uint32_t c = 0; c < r->program->cuts.n; c++)
        for (uint32_t rank = 0; rank < r->program->mesh.n_devices; rank++) {
            int64_t n = mot_session_columns(r->session, c, rank), kept[1024];
            for (int64_t k = 0; k < n; k++)
                kept[k] = k;
            if (r->program->cuts.data[c].is_lendable && n)
                mot_session_cut(r->session, c, rank, kept,
                                lend_some(r->session, r->program, c, rank, kept, n, seed));
        }
    require(r->job.ctx, mot_session_rebind(r->session));
}

/*
 * Two steps, the second one cut, and both lent with `lends`; every weight that was cut is checked.
 */
static void check_fill(MotCtx *ctx, MotCutFill fill, const char *optimizer, double decay,
                       const char *backend, bool lends)
{
    static Traced traced[MAX_LAYERS];
    static Lists lists;
    unsigned seed = first_seed;
    Setup setup = {&gpt, &meshes[1], optimizer, backend, fill, WEIGHTS_ONLY, lends, 1};
    Run r = open_run(ctx, &setup, &seed);
    MotBuilder b = mot_builder_make(mot_graph_clone(ctx, r.job.graph));
    read_weights(&r, traced, 0);
    if (lends)
        lend_layers(&r, &seed);
    train_step(&r.job, r.session, 0);
    read_weights(&r, traced, 1);
    for (uint32_t i = 0; i < r.layers.n; i++) {
        traced[i].layer = &r.layers.layer[i];
        int cut = find_cut(r.program, weight_name(r.job.graph, traced[i].layer));
        memset(&lists, 0, sizeof lists);
        if (cut >= 0)
            cut_some(
                r.session, r.program, (uint32_t)cut, traced[i].layer,
                mot_graph_type(r.job.graph, traced[i].layer->w)->dims[traced[i].layer->w_column],
                &seed, &lists);
        MotValue mask = make_mask(&b, &r.program->mesh, traced[i].layer, &lists);
        traced[i].mask = mot_attrs(mot_graph_def(b.graph, mask), constant)->data;
        traced[i].layer = cut >= 0 ? traced[i].layer : NULL;
    }
    require(ctx, mot_session_rebind(r.session));
    train_step(&r.job, r.session, 1);
    read_weights(&r, traced, 2);
    for (uint32_t i = 0; i < r.layers.n; i++)
        if (traced[i].layer)
            check_filled(&traced[i], &r.program->mesh, fill, decay);
    mot_session_close(r.session);
}

static void fills_are_what_they_say(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        check_fill(*state, MOT_CUT_ZERO, "sgd:lr=0.01", 0, backends[i], false);
        check_fill(*state, MOT_CUT_MEAN, "sgd:lr=0.01", 0, backends[i], false);
        check_fill(*state, MOT_CUT_LAST, "sgd:lr=0.01", 0, backends[i], false);
        check_fill(*state, MOT_CUT_LAST, "sgd:lr=0.01", 0, backends[i], true);
    }
}

/* A decay of 0.5 would be seen. */
static void what_is_cut_does_not_decay(void **state)
{
    check_fill(*state, MOT_CUT_ZERO, "sgd:lr=0.01,wd=0.5", 0.5, "ref", false);
    check_fill(*state, MOT_CUT_LAST, "sgd:lr=0.01,wd=0.5", 0.5, "cpu", true);
}

/* ---- Which columns ---- */

/*
 * The second decision stands when the weights would be looked at again, and is carried out a step
 * later.
 */
enum {
    N_LEFT_OUT = 7,
    FIRST_LOOK = 4,
    SECOND_LOOK = FIRST_LOOK + MOT_CUT_REFRESH + 1,
    N_LOOKS = 6
};

/*
 * Decides two steps ahead that rank 0 leaves out so many columns of every layer, the second time as
 * many others.
 */
static void decide_twice(void *self, const MotCutTimes *t, MotCutDecision *out)
{
    static const uint32_t lender[MAX_DEVICES];
    static const int64_t help[2 * MAX_LAYERS];
    int64_t *cut = self;
    bool is_due =
        t->step + MOT_BALANCE_DELAY == FIRST_LOOK || t->step + MOT_BALANCE_DELAY == SECOND_LOOK;
    *out = (MotCutDecision){.kind = is_due ? MOT_BALANCE_MOVE : MOT_BALANCE_KEEP,
                            .cut = cut,
                            .lender = lender,
                            .help = help};
    for (uint32_t l = 0; l < t->n_layers; l++)
        cut[l] = N_LEFT_OUT;
}

/* L1 change of each column a step; in place of those that are cut what was there. */
static void renew(const MotTensor *now, const MotTensor *last, int dim, int64_t steps,
                  const bool *is_cut, double *priority)
{
    int64_t columns = now->type.dims[dim];
    for (int64_t k = 0; k < columns; k++)
        if (!is_cut[k])
            priority[k] = 0;
    for (int64_t e = 0; e < mot_type_elements(&now->type); e++) {
        int64_t k = coordinate(&now->type, e, dim);
        if (!is_cut[k])
            priority[k] += fabs(mot_tensor_get(now, e) - mot_tensor_get(last, e)) / (double)steps;
    }
}

/*
 * Those that owe least are the ones that the session cuts; which these are. What a column owes is
 * its priority for each step since the last look up to which it was computed, and up to the next
 * look.
 */
static void check_least(const MotSession *session, const double *priority, const int64_t *computed,
                        int64_t step, int64_t columns, bool *out_is_cut)
{
    const int64_t *held = mot_session_uncomputed(session, 0, 0);
    double most_cut = 0, least_kept = INFINITY;
    int64_t n_cut = 0;
    for (int64_t k = 0; k < columns; k++) {
        double owed = priority[k] * (double)(step - computed[k] + MOT_CUT_REFRESH);
        out_is_cut[k] = held[k] < 0;
        n_cut += out_is_cut[k];
        if (out_is_cut[k])
            most_cut = fmax(most_cut, owed);
        else
            least_kept = fmin(least_kept, owed);
    }
    assert_int_equal(n_cut, N_LEFT_OUT);
    assert_true(most_cut <= least_kept * (1 + 1e-9));
}

static void columns_that_owe_least_are_left_out(void **state)
{
    MotCtx *ctx = *state;
    Setup setup = {&mlp, &meshes[1], "sgd:lr=0.01", "ref", MOT_CUT_ZERO, ROWS_ONLY, false, 1};
    Run r = open_run(ctx, &setup, NULL);
    int64_t *cut = mot_arena_array(&ctx->arena, int64_t, 2 * (size_t)r.program->cuts.n);
    MotCutPolicy policy = {cut, decide_twice};
    MotCutter *cutter;
    MotTensor last, now;
    double priority[64];
    bool is_cut[64] = {false};
    const MotCut *first = &r.program->cuts.data[0];
    const MotBuf *weight = &r.program->bufs.data[first->param];
    int64_t columns = weight->global.dims[first->param_dim], looked = 0, computed[64] = {0};
    require(ctx, mot_cutter_make(ctx, r.session, &policy, MOT_PICK_PRIORITY, 1, &cutter));
    require(ctx, mot_session_read(r.session, weight->name, &last));
    for (int step = 0; step <= SECOND_LOOK + N_LOOKS * MOT_CUT_REFRESH; step++) {
        MotCutDecision d;
        require(ctx, mot_session_read(r.session, weight->name, &now));
        require(ctx, mot_cutter_before(cutter, step));
        if (step == FIRST_LOOK ||
            (step >= SECOND_LOOK && (step - SECOND_LOOK) % MOT_CUT_REFRESH == 0)) {
            renew(&now, &last, first->param_dim, step - looked, is_cut, priority);
            for (int64_t k = 0; k < columns; k++)
                computed[k] = is_cut[k] ? computed[k] : step;
            check_least(r.session, priority, computed, step, columns, is_cut);
            last = now;
            looked = step;
        }
        train_step(&r.job, r.session, step);
        mot_cutter_after(cutter, step, 1000, &d);
    }
    for (int64_t k = 0; k < columns; k++)
        assert_true(computed[k] > SECOND_LOOK); /* all came back */
    assert_true(mot_cutter_part(cutter, 0, cut) > 0);
    mot_session_close(r.session);
}

/* ---- Against PyTorch (models/cuts.py) ---- */

static MotTensor read_fixture(MotCtx *ctx, const char *kind, const char *name)
{
    MotTensor t;
    require(
        ctx,
        mot_npy_read(
            ctx, mot_arena_printf(&ctx->arena, "models/fixtures/cuts/%s.%s.npy", kind, name), &t));
    return t;
}

static void cut_as_in_fixture(Run *r)
{
    static const char *const weights[] = {"layers.0.weight", "layers.1.weight"};
    for (int i = 0; i < 2; i++) {
        MotTensor kept = read_fixture(r->job.ctx, "kept", weights[i]);
        int64_t n = kept.type.dims[1];
        int cut = find_cut(r->program, weights[i]);
        assert_true(cut >= 0);
        for (uint32_t rank = 0; rank < 2; rank++)
            mot_session_cut(r->session, (uint32_t)cut, rank, (const int64_t *)kept.data + rank * n,
                            n);
    }
    require(r->job.ctx, mot_session_rebind(r->session));
}

static void check_fixture(MotCtx *ctx, MotCutFill fill, const char *name, const char *backend)
{
    Setup setup = {&mlp,    &meshes[1], "adamw:lr=0.01,betas=0.9/0.95,eps=1e-8,wd=0.3",
                   backend, fill,       WEIGHTS_ONLY,
                   false,   1};
    Run r = open_run(ctx, &setup, NULL);
    MotTensor losses = read_fixture(ctx, "losses", name), after = read_fixture(ctx, "after", name);
    for (int step = 0; step < losses.type.dims[0]; step++) {
        if (step == 1)
            cut_as_in_fixture(&r);
        double loss = train_step(&r.job, r.session, step), wanted = mot_tensor_get(&losses, step);
        if (!(fabs(loss - wanted) <= 2e-6 * wanted))
            fail_msg("%s on %s: loss %d is %.9g, PyTorch's %.9g", name, backend, step, loss,
                     wanted);
    }
    size_t n;
    const double *params = read_params(&r.job, r.pipeline, r.session, &n);
    assert_int_equal(n, after.type.dims[0]);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(params[i] - mot_tensor_get(&after, (int64_t)i)) <= 2e-5))
            fail_msg("%s on %s: number %zu is %.9g, PyTorch's %.9g", name, backend, i, params[i],
                     mot_tensor_get(&after, (int64_t)i));
    mot_session_close(r.session);
}

/*
 * Weights, moments and losses after a whole step and three that are cut, whatever fills the
 * gradients.
 */
static void parameters_are_those_of_pytorch(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        check_fixture(*state, MOT_CUT_ZERO, "zero", backends[i]);
        check_fixture(*state, MOT_CUT_MEAN, "mean", backends[i]);
        check_fixture(*state, MOT_CUT_LAST, "last", backends[i]);
    }
}

/* ---- Refusals ---- */

static MotProgram *lower_mlp(MotCtx *ctx, MotCutFill fill, uint32_t n_micro, MotStatus wanted)
{
    unsigned seed = first_seed;
    Model model = mlp;
    model.model = "models/mlp_ts13_opt_dynamic.onnx";
    Job job = make_job(ctx, &model, "sgd:lr=0.1", n_micro);
    Layers layers = find_layers(job.graph);
    MotPlan *plan = split_plan(&job, &meshes[1], &layers, WEIGHTS_ONLY, &seed);
    MotPipeline *pipeline;
    plan->cuts = fill;
    assert_int_equal(mot_lower(ctx, plan, &pipeline), wanted);
    return wanted == MOT_OK ? pipeline->stages.data[0] : NULL;
}

static void last_gradients_are_of_one_micro_batch(void **state)
{
    MotCtx *ctx = *state;
    lower_mlp(ctx, MOT_CUT_ZERO, 2, MOT_OK);
    lower_mlp(ctx, MOT_CUT_LAST, 1, MOT_OK);
    lower_mlp(ctx, MOT_CUT_LAST, 2, MOT_ERR_USAGE);
    assert_non_null(strstr(mot_text_get(&ctx->error), "one micro-batch, this has 2"));
}

/* A launch that is for the wrong ranks reads what they have not made. */
static void a_launch_for_the_wrong_ranks_is_found(void **state)
{
    MotCtx *ctx = *state;
    MotProgram *p = lower_mlp(ctx, MOT_CUT_ZERO, 1, MOT_OK);
    require(ctx, mot_program_verify(p));
    uint32_t i = 0;
    while (p->section[MOT_SECTION_STEP].data[i].who != MOT_WHO_CUTS)
        i++;
    MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
    ins->who = MOT_WHO_WHOLE; /* nobody who cuts has the product now */
    assert_int_equal(mot_program_verify(p), MOT_ERR_MISMATCH);
    assert_non_null(strstr(mot_text_get(&ctx->error), "have made"));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        first_seed = (unsigned)strtoul(argv[2], NULL, 0);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(cut_layers_are_masked_ones),
        TEST(cut_layers_that_are_lent_too),
        TEST(no_cut_is_no_difference),
        TEST(evaluation_is_whole),
        TEST(fills_are_what_they_say),
        TEST(what_is_cut_does_not_decay),
        TEST(last_gradients_are_of_one_micro_batch),
        TEST(columns_that_owe_least_are_left_out),
        TEST(parameters_are_those_of_pytorch),
        TEST(a_launch_for_the_wrong_ranks_is_found),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
