/* frontend/trained: what trains and why, what looks tied, ties and freezing. */
#include "frontend/trained.h"

#include "frontend/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/test_ctx.h"
#include "tests/unit/onnx_model.h"

typedef struct {
    const char *path;
    const MotTrainOpts *opts;
    MotOnnxFile *file;
    MotGraph *g;
    MotTrained trained;
} Decision;

static MotStatus decide_body(MotCtx *ctx, void *arg)
{
    static const MotImportOpts none = {0};
    Decision *d = arg;
    MotOnnxOpts opts = mot_onnx_opts_default();
    MOT_TRY(mot_onnx_open(ctx, d->path, &opts, &d->file));
    MOT_TRY(mot_import(ctx, d->file, &none, &d->g));
    MOT_TRY(mot_trained_decide(ctx, d->g, d->opts, &d->trained));
    return mot_trained_find_ties(ctx, d->file, &d->trained);
}

static MotStatus try_decide(TestModel *m, const MotTrainOpts *opts, Decision *out)
{
    static const MotTrainOpts none = {0};
    *out = (Decision){.path = save_model(m), .opts = opts ? opts : &none};
    MotStatus status = mot_ctx_run(m->ctx, decide_body, out);
    unlink(out->path);
    return status;
}

static Decision decide(TestModel *m, const MotTrainOpts *opts)
{
    Decision d;
    if (try_decide(m, opts, &d) != MOT_OK)
        fail_msg("%s", mot_text_get(&m->ctx->error));
    return d;
}

static const MotTrainedRow *find_row(const Decision *d, const char *name)
{
    for (uint32_t i = 0; i < d->trained.n; i++)
        if (strcmp(d->trained.rows[i].name, name) == 0)
            return &d->trained.rows[i];
    fail_msg("no row %s", name);
    return NULL;
}

static void assert_row(const Decision *d, const char *name, bool is_trained, const char *reason)
{
    const MotTrainedRow *row = find_row(d, name);
    if (row->is_trained != is_trained || !strstr(row->reason, reason))
        fail_msg("%s: %s, %s", name, row->is_trained ? "trained" : "frozen", row->reason);
}

/* Tables, a block with rotary product, mask and norm scale, a head with a bias before a softmax. */
static TestModel *make_block(MotCtx *ctx)
{
    TestModel *m = make_model(ctx, 17);
    add_input(m, "ids", MOT_I64, "2,3");
    add_ints(m, "positions", "3", "0,1,2");
    add_floats(m, "tokens", "5,4", "1,2,3,4,5,6,7");
    add_floats(m, "places", "8,4", "1,2,3");
    add_floats(m, "cos", "3,4", "0.5,1");
    add_floats(m, "mask", "3,3", "0,-1");
    add_floats(m, "w", "4,4", "1,2,3,4,5");
    add_floats(m, "gain", "4", "1,2");
    add_floats(m, "shift", "4", "1,2");
    add_floats(m, "rms", "3,4", "1,2");
    add_floats(m, "head", "4,5", "1,2,3");
    add_floats(m, "head_bias", "5", "1,2");
    add_floats(m, "edge", "3", "1,2");
    add_node(m, "t = Gather(tokens, ids)");
    add_node(m, "p = Gather(places, positions)");
    add_node(m, "x = Add(t, p)");
    add_node(m, "n = LayerNormalization(x, gain, shift)");
    add_node(m, "q = MatMul(n, w) {} /h.0/q");
    add_node(m, "r = Mul(q, cos)");
    add_node(m, "rt = Transpose(r) {perm=[0; 2; 1]}");
    add_node(m, "s = MatMul(r, rt)");
    add_node(m, "sm = Add(s, mask)");
    add_node(m, "a = Softmax(sm)");
    add_node(m, "o = MatMul(a, n)");
    add_node(m, "sq = Mul(o, o)");
    add_node(m, "ms = ReduceMean(sq) {axes=[-1]}");
    add_node(m, "rt2 = Sqrt(ms)");
    add_node(m, "on = Div(o, rt2)");
    add_node(m, "og = Mul(on, rms)");
    add_node(m, "l = MatMul(og, head)");
    add_node(m, "lb = Add(l, head_bias)");
    add_node(m, "y = Softmax(lb)");
    add_output(m, "y");
    add_node(m, "is = Less(a, edge)");
    add_output(m, "is");
    return m;
}

static void what_trains_follows_from_the_use(void **state)
{
    Decision d = decide(make_block(*state), NULL);
    assert_int_equal(d.trained.n, 11);
    assert_row(&d, "tokens", true, "table of lookups");
    assert_row(&d, "places", true, "table of lookups");
    assert_row(&d, "gain", true, "scale of a norm");
    assert_row(&d, "shift", true, "bias of a norm");
    assert_row(&d, "w", true, "weight, node \"/h.0/q\"");
    assert_row(&d, "cos", false, "rotary");
    assert_row(&d, "mask", false, "mask");
    assert_row(&d, "rms", true, "scale");
    assert_row(&d, "head", true, "weight");
    assert_row(&d, "head_bias", true, "bias");
    assert_row(&d, "edge", false, "not reached by the gradient");
}

static void globs_overrule(void **state)
{
    const char *train[] = {"cos"}, *freeze[] = {"head*"}, *none[] = {"nothing*"};
    MotTrainOpts opts = {train, freeze, 1, 1};
    Decision d = decide(make_block(*state), &opts);
    assert_row(&d, "cos", true, "--train");
    assert_row(&d, "head_bias", false, "--freeze");
    assert_row(&d, "w", true, "weight");
    opts = (MotTrainOpts){none, NULL, 1, 0};
    assert_int_equal(try_decide(make_block(*state), &opts, &d), MOT_ERR_USAGE);
    mot_error_clear(*state);
    opts = (MotTrainOpts){train, train, 1, 1};
    assert_int_equal(try_decide(make_block(*state), &opts, &d), MOT_ERR_USAGE);
    mot_error_clear(*state);
}

static TestModel *make_tied(MotCtx *ctx, const char *head_values)
{
    TestModel *m = make_model(ctx, 17);
    add_input(m, "ids", MOT_I64, "3");
    add_floats(m, "table", "2,3", "1,2,3,4,5,6");
    add_floats(m, "head", "3,2", head_values);
    add_floats(m, "zeros", "2,2", "0");
    add_floats(m, "zeros2", "2,2", "0");
    add_node(m, "x = Gather(table, ids)");
    add_node(m, "y = MatMul(x, head)");
    add_node(m, "z = MatMul(y, zeros)");
    add_node(m, "a = MatMul(z, zeros2)");
    add_output(m, "a");
    return m;
}

static void equal_tables_look_tied(void **state)
{
    Decision d = decide(make_tied(*state, "1,4,2,5,3,6"), NULL);
    assert_string_equal(find_row(&d, "head")->looks_tied, "table");
    assert_true(find_row(&d, "head")->is_transposed);
    assert_null(find_row(&d, "zeros2")->looks_tied);
    d = decide(make_tied(*state, "1,4,2,5,3,7"), NULL);
    assert_null(find_row(&d, "head")->looks_tied);
}

static void what_is_frozen_becomes_constant(void **state)
{
    MotCtx *ctx = *state;
    Decision d = decide(make_block(ctx), NULL);
    assert_int_equal(mot_trained_freeze(ctx, d.g, d.file), MOT_OK);
    uint32_t n_params = 0;
    for (uint32_t i = 0; i < d.g->body.n; i++) {
        const MotOp *op = mot_graph_op(d.g, d.g->body.data[i]);
        n_params += op->kind == MOT_OP_PARAM;
        const char *name = op->n_out ? d.g->values.data[op->out[0]].name : NULL;
        if (name && strcmp(name, "mask") == 0)
            assert_true(mot_tensor_get(&mot_attrs(op, constant)->data, 1) == -1);
    }
    assert_int_equal(n_params, 8);
    assert_int_equal(mot_graph_verify(d.g), MOT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)
        T(what_trains_follows_from_the_use),
        T(globs_overrule),
        T(equal_tables_look_tied),
        T(what_is_frozen_becomes_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
