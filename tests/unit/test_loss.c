/* passes/graph/loss: parsing, shapes of labels, values against formulas. */
#include "ir/eval.h"
#include "passes/graph/edit.h"
#include "passes/graph/loss.h"
#include "passes/pipeline.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/*
 * A model that shows its input, x of the given type, as "logits", and again as "a:b", "loss" and
 * "c,axis=1".
 */
static MotGraph *model(MotCtx *ctx, const char *type)
{
    MotGraph *g = NULL;
    const char *text = mot_arena_printf(&ctx->arena,
                                        "graph @t {\n"
                                        "%%x = input {name=\"x\"} : %s\n"
                                        "output %%x {name=\"logits\"}\n"
                                        "output %%x {name=\"a:b\"}\n"
                                        "output %%x {name=\"loss\"}\n"
                                        "output %%x {name=\"c,axis=1\"}\n}\n",
                                        type);
    if (mot_graph_parse(ctx, "test", text, &g) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return g;
}

static void check_error(MotCtx *ctx, MotStatus got, MotStatus expected, const char *text)
{
    assert_int_equal(got, expected);
    if (!strstr(mot_text_get(&ctx->error), text))
        fail_msg("expected \"%s\" in: %s", text, mot_text_get(&ctx->error));
    mot_error_clear(ctx);
}

static MotLoss parse(MotCtx *ctx, const MotGraph *g, const char *text)
{
    MotLoss loss;
    if (mot_loss_parse(ctx, g, text, &loss) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return loss;
}

/* ---- Parsing ---- */

static void names_may_hold_colons_commas_and_equals(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = model(ctx, "f32[2x4]");
    MotLoss loss = parse(ctx, g, "cross_entropy:logits:labels.npy,ignore=-1,smoothing=0.1,axis=1");
    assert_string_equal(loss.value, "logits");
    assert_string_equal(loss.source, "labels.npy");
    assert_string_equal(loss.input, "labels.npy");
    assert_int_equal(loss.ignore, -1);
    assert_true(loss.smoothing == 0.1);
    assert_int_equal(loss.axis, 1);
    loss = parse(ctx, g, "mse:a:b:c:d.npy");
    assert_string_equal(loss.value, "a:b");
    assert_string_equal(loss.source, "c:d.npy");
    loss = parse(ctx, g, "mse:logits:runs/a,b=2.npy"); /* a file's name */
    assert_string_equal(loss.source, "runs/a,b=2.npy");
    loss = parse(ctx, g, "mse:c,axis=1:t,2.npy");
    assert_string_equal(loss.value, "c,axis=1");
    assert_string_equal(loss.source, "t,2.npy");
    loss = parse(ctx, g, "output:a:b");
    assert_string_equal(loss.value, "a:b");
    assert_null(loss.source);
    loss = parse(ctx, g, "cross_entropy:x:labels");
    assert_int_equal(loss.ignore, -100);
    assert_int_equal(loss.axis, MOT_LOSS_FIND_AXIS);
}

static void spelling_is_no_matter(void **state)
{
    static const struct {
        const char *a, *b;
        bool is_same;
    } pairs[] = {
        {"cross_entropy:logits:y", "cross_entropy:logits:y,smoothing=0,ignore=-100", true},
        {"cross_entropy:logits:y,axis=1,ignore=-1", "cross_entropy:logits:y,ignore=-1,axis=1",
         true},
        {"cross_entropy:logits:y", "cross_entropy:logits:y,ignore=-1", false},
        {"cross_entropy:logits:y,smoothing=0.1", "cross_entropy:logits:y", false},
        {"cross_entropy:logits:y,axis=1", "cross_entropy:logits:y", false},
        {"cross_entropy:logits:y", "cross_entropy:logits:yy", false},
        {"cross_entropy:logits:y", "cross_entropy:logits:y,best=1", false},
        {"cross_entropy:logits:y", "cross_entropy:logits:y,smoothing=2", false},
        {"cross_entropy:logits:y", "cross_entropy:x:y", false},
        {"mse:logits:y", "bce:logits:y", false},
        {"output:a:b", "output:a:b", true},
        {"output:a:b", "output:a", false},
    };
    MotCtx *ctx = *state;
    MotGraph *g = model(ctx, "f32[2x4]");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        MotLoss loss = parse(ctx, g, pairs[i].a);
        assert_int_equal(mot_loss_is_spelled(ctx, &loss, pairs[i].b), pairs[i].is_same);
        assert_true(mot_loss_is_spelled(ctx, &loss, pairs[i].a));
        assert_int_equal(ctx->status, MOT_OK);
    }
}

static void bad_text_is_refused(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = model(ctx, "f32[2x4]");
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"nll:logits:labels", "unknown form"},
        {"mse", "unknown form"},
        {"mse:logits", "no NAME:TARGET"},
        {"mse:logits:", "no NAME:TARGET"},
        {"mse:other:t", "no NAME:TARGET"},
        {"output:other", "no value of that name"},
        {"cross_entropy:logits:l,smoothing=2", "bad option"},
        {"cross_entropy:logits:l,ignore=x", "bad option"},
        {"cross_entropy:logits:l,axis=9", "bad option"},
        {"cross_entropy:logits:l,foo=2", "there is no option \"foo\""},
        {"cross_entropy:logits:l,foo=0.5", "there is no option \"foo\""},
        {"cross_entropy:logits:l,foo=bar,axis=1", "there is no option \"foo\""},
        {"mse:logits:t,axis=1", "only cross_entropy has options"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        MotLoss loss;
        check_error(ctx, mot_loss_parse(ctx, g, bad[i].text, &loss), MOT_ERR_USAGE, bad[i].message);
    }
}

/* ---- Shapes ---- */

static MotStatus attach(MotCtx *ctx, MotGraph *g, const char *text, const char *label_type)
{
    MotLoss loss = parse(ctx, g, text);
    if (label_type) {
        MotGraph *typed = NULL;
        const char *one =
            mot_arena_printf(&ctx->arena, "graph @t { %%l = input {name=\"l\"} : %s }", label_type);
        assert_int_equal(mot_graph_parse(ctx, "test", one, &typed), MOT_OK);
        loss.input_type = *mot_graph_type(typed, mot_edit_find_input(typed, "l"));
    }
    MotPassOpts opts = {.loss = &loss};
    return mot_passes_run_list(ctx, g, &opts, "loss");
}

static const MotOp *find_kind(const MotGraph *g, MotOpKind kind)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind == kind)
            return mot_graph_op(g, g->body.data[i]);
    return NULL;
}

/* Text of the logits' and labels' dims at the cross_entropy op. */
static const char *entropy_operands(MotCtx *ctx, const MotGraph *g)
{
    const MotOp *op = find_kind(g, MOT_OP_CROSS_ENTROPY);
    assert_non_null(op);
    const MotType *x = mot_graph_type(g, op->in[0]), *y = mot_graph_type(g, op->in[1]);
    return mot_arena_printf(&ctx->arena, "%s %s", mot_shape_text(&ctx->arena, x->dims, x->rank),
                            mot_shape_text(&ctx->arena, y->dims, y->rank));
}

static void labels_of_every_legal_shape_meet_the_logits(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *logits, *labels, *options, *operands;
    } legal[] = {
        {"f32[2x3x5]", NULL, "", "2x3x5 2x3"},
        {"f32[2x3x5]", "i64[2x3]", "", "2x3x5 2x3"},
        {"f32[6x5]", "i64[2x3]", "", "2x3x5 2x3"},
        {"f32[2x3x5]", "i64[6]", "", "2x3x5 2x3"},
        {"f32[2x5x3]", "i32[2x3]", "", "2x3x5 2x3"}, /* the axis the labels lack */
        {"f32[4x4]", "i64[4]", "", "4x4 4"},         /* ambiguous: the last */
        {"f32[4x4]", "i64[4]", ",axis=0", "4x4 4"},
        {"f32[5x2x3]", NULL, ",axis=0", "2x3x5 2x3"},
        {"f32[2x5x3]", NULL, ",axis=-2", "2x3x5 2x3"},
        {"f32[5]", "i64", "", "5 scalar"},
        {"f32[0x5]", NULL, "", "0x5 0"},
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        MotGraph *g = model(ctx, legal[i].logits);
        if (attach(ctx, g,
                   mot_arena_printf(&ctx->arena, "cross_entropy:logits:y%s", legal[i].options),
                   legal[i].labels) != MOT_OK)
            fail_msg("%s", mot_text_get(&ctx->error));
        assert_string_equal(entropy_operands(ctx, g), legal[i].operands);
        assert_int_equal(mot_graph_type(g, mot_edit_find_output(g, "loss"))->rank, 0);
        assert_true(mot_edit_find_output(g, "logits") == 0);
        assert_true(mot_edit_find_input(g, "y") != 0);
    }
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *logits, *text, *labels, *message;
    } bad[] = {
        {"f32[2x3x5]", "cross_entropy:logits:y", "i64[2x4]", "there must be one label a row"},
        {"f32[2x3x5]", "cross_entropy:logits:y", "f32[2x3]", "labels must be i64 or i32"},
        {"f32", "cross_entropy:logits:y", NULL, "no float tensor"},
        {"i64[2x5]", "cross_entropy:logits:y", NULL, "no float tensor"},
        {"f32[2x5]", "mse:logits:y", "f32[2]", "the target must be of the output's type"},
        {"f32[2x5]", "bce:logits:y", "i64[2x5]", "the target must be of the output's type"},
        {"f32[2]", "output:logits", NULL, "a loss has one element"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_error(ctx, attach(ctx, model(ctx, bad[i].logits), bad[i].text, bad[i].labels),
                    MOT_ERR_MODEL, bad[i].message);
    check_error(ctx, attach(ctx, model(ctx, "f32[2x5]"), "cross_entropy:logits:y,axis=2", NULL),
                MOT_ERR_USAGE, "axis=2: \"logits\" is [2x5], its axes are -2 to 1");
    MotPassOpts none = {0};
    check_error(ctx, mot_passes_run_list(ctx, model(ctx, "f32"), &none, "loss"), MOT_ERR_USAGE,
                "no loss to attach");
}

/* ---- Values ---- */

static double evaluate_loss(MotCtx *ctx, const MotGraph *g, const double *x, const void *y)
{
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT)
            continue;
        MotType type = *mot_graph_type(g, op->out[0]);
        type.dtype = mot_dtype_class(type.dtype) == MOT_CLASS_FLOAT ? MOT_F64 : type.dtype;
        const void *data = strcmp(mot_attrs(op, input)->name, "x") == 0 ? (const void *)x : y;
        values[op->out[0]] =
            (MotTensor){type, mot_arena_copy(&ctx->arena, data, (size_t)mot_type_bytes(&type))};
    }
    if (mot_eval_graph(ctx, g, values, true) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return mot_tensor_get(&values[mot_edit_find_output(g, "loss")], 0);
}

static void check_loss(MotCtx *ctx, const char *type, const char *text, const double *x,
                       const void *y, double expected)
{
    MotGraph *g = model(ctx, type);
    if (attach(ctx, g, text, NULL) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    double got = evaluate_loss(ctx, g, x, y);
    if (!(fabs(got - expected) <= 1e-12))
        fail_msg("%s: %.17g instead of %.17g", text, got, expected);
}

static const double scores[6] = {0.5, -1, 2, 1.5, 0, -0.5}; /* [2x3] */

static double log_softmax(const double *row, int k)
{
    return row[k] - log(exp(row[0]) + exp(row[1]) + exp(row[2]));
}

static void cross_entropy_is_the_mean_over_labels_that_count(void **state)
{
    MotCtx *ctx = *state;
    double a = -log_softmax(scores, 2), b = -log_softmax(scores + 3, 1);
    check_loss(ctx, "f32[2x3]", "cross_entropy:logits:y", scores, (const int64_t[]){2, 1},
               (a + b) / 2);
    check_loss(ctx, "f32[2x3]", "cross_entropy:logits:y", scores, (const int64_t[]){2, -100}, a);
    check_loss(ctx, "f32[2x3]", "cross_entropy:logits:y,ignore=2", scores, (const int64_t[]){2, 1},
               b);
    check_loss(ctx, "f32[2x3]", "cross_entropy:logits:y", scores, (const int64_t[]){-100, -100}, 0);
    double uniform = 0;
    for (int k = 0; k < 3; k++)
        uniform -= (log_softmax(scores, k) + log_softmax(scores + 3, k)) / 3;
    check_loss(ctx, "f32[2x3]", "cross_entropy:logits:y,smoothing=0.3", scores,
               (const int64_t[]){2, 1}, (0.7 * (a + b) + 0.3 * uniform) / 2);
}

static void mse_and_bce_are_means_over_elements(void **state)
{
    MotCtx *ctx = *state;
    static const double target[6] = {1, 0, 0.25, 1, 0, 1};
    double mse = 0, bce = 0;
    for (int i = 0; i < 6; i++) {
        double p = 1 / (1 + exp(-scores[i])), d = scores[i] - target[i];
        mse += d * d / 6;
        bce -= (target[i] * log(p) + (1 - target[i]) * log(1 - p)) / 6;
    }
    check_loss(ctx, "f32[2x3]", "mse:logits:y", scores, target, mse);
    check_loss(ctx, "f32[2x3]", "bce:logits:y", scores, target, bce);
    check_loss(ctx, "f32[2]", "bce:logits:y", (const double[]){800, -800}, (const double[]){1, 1},
               400);
    check_loss(ctx, "f32[1x1]", "output:logits", (const double[]){2.5}, NULL, 2.5);
}

/* d bce / dx = sigmoid(x) - t, at the kink of its formula too. */
static void the_gradient_of_bce_has_no_kink(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = NULL;
    static const char text[] =
        "graph @t {\n%w = param {name=\"w\", trained} : f32[2]\noutput %w {name=\"y\"}\n}\n";
    assert_int_equal(mot_graph_parse(ctx, "test", text, &g), MOT_OK);
    MotLoss loss = parse(ctx, g, "bce:y:t");
    MotPassOpts opts = {.loss = &loss};
    assert_int_equal(mot_passes_run_list(ctx, g, &opts, "loss,autodiff"), MOT_OK);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    MotType type = mot_type_make(MOT_F64, 1, (int64_t[]){2});
    values[mot_edit_find_param(g, "w")] = (MotTensor){type, (double[]){0, 3}};
    values[mot_edit_find_input(g, "t")] = (MotTensor){type, (double[]){0.2, 1}};
    assert_int_equal(mot_eval_graph(ctx, g, values, true), MOT_OK);
    const double *grad = values[find_kind(g, MOT_OP_GRADIENT)->in[1]].data;
    assert_true(fabs(grad[0] - 0.3 / 2) < 1e-15);
    assert_true(fabs(grad[1] - (1 / (1 + exp(-3)) - 1) / 2) < 1e-15);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(names_may_hold_colons_commas_and_equals),
        TEST(spelling_is_no_matter),
        TEST(bad_text_is_refused),
        TEST(labels_of_every_legal_shape_meet_the_logits),
        TEST(shapes_that_do_not_fit_are_refused),
        TEST(cross_entropy_is_the_mean_over_labels_that_count),
        TEST(mse_and_bce_are_means_over_elements),
        TEST(the_gradient_of_bce_has_no_kink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
