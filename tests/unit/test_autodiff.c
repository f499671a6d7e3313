/* passes/graph: tie, autodiff, expand; and what the pipeline does around a pass. */
#include "ir/builder.h"
#include "ir/eval.h"
#include "passes/graph/edit.h"
#include "passes/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A context whose log is kept. */
typedef struct {
    MotCtx ctx;
    MotText log;
} Fixture;

static void keep_line(void *self, MotLogLevel level, const char *line)
{
    (void)level;
    mot_text_printf(self, "%s\n", line);
}

static int make_ctx(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    mot_ctx_init(&f->ctx);
    mot_text_init(&f->log, &f->ctx.arena);
    f->ctx.log = keep_line;
    f->ctx.log_self = &f->log;
    f->ctx.debug.verify = true;
    *state = f;
    return 0;
}

static int drop_ctx(void **state)
{
    Fixture *f = *state;
    mot_ctx_deinit(&f->ctx);
    free(f);
    return 0;
}

static MotGraph *parse(MotCtx *ctx, const char *body)
{
    MotGraph *g = NULL;
    if (mot_graph_parse(ctx, "test", mot_arena_printf(&ctx->arena, "graph @t {\n%s\n}\n", body),
                        &g) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return g;
}

static const char *print(const MotGraph *g)
{
    MotText text;
    mot_text_init(&text, &g->ctx->arena);
    mot_graph_print(g, &text);
    return mot_text_get(&text);
}

static void run(MotCtx *ctx, MotGraph *g, const char *passes)
{
    MotPassOpts opts = {0};
    if (mot_passes_run_list(ctx, g, &opts, passes) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

static void check_fails(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, const char *passes,
                        MotStatus status, const char *text)
{
    assert_int_equal(mot_passes_run_list(ctx, g, opts, passes), status);
    if (!strstr(mot_text_get(&ctx->error), text))
        fail_msg("expected \"%s\" in: %s", text, mot_text_get(&ctx->error));
    mot_error_clear(ctx);
}

static void check_close(double got, double expected, double tolerance)
{
    double off = got < expected ? expected - got : got - expected;
    if (!(off <= tolerance))
        fail_msg("%.17g instead of %.17g", got, expected);
}

static void check_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in:\n%s", part, text);
}

static int count_kind(const MotGraph *g, MotOpKind kind)
{
    int n = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        n += mot_graph_op(g, g->body.data[i])->kind == kind;
    return n;
}

/*
 * The gradient bound to a parameter, evaluated in float64; inputs and parameters hold start, start
 * + 1, …
 */
static const double *evaluate_gradient(MotCtx *ctx, const MotGraph *g, const char *name,
                                       double start)
{
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    MotValue grad = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_GRADIENT &&
            strcmp(mot_attrs(mot_graph_def(g, op->in[0]), param)->name, name) == 0)
            grad = op->in[1];
        if (op->kind != MOT_OP_PARAM && op->kind != MOT_OP_INPUT)
            continue;
        MotType type = *mot_graph_type(g, op->out[0]);
        type.dtype = MOT_F64;
        double *data = mot_arena_array(&ctx->arena, double, mot_type_elements(&type) + 1);
        for (int64_t k = 0; k < mot_type_elements(&type); k++)
            data[k] = start + (double)k;
        values[op->out[0]] = (MotTensor){type, data};
    }
    assert_true(grad != 0);
    if (mot_eval_graph(ctx, g, values, true) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return values[grad].data;
}

static const char *differentiate_to_text(MotCtx *ctx, const char *body)
{
    MotGraph *g = parse(ctx, body);
    run(ctx, g, "autodiff");
    return print(g);
}

/* ---- autodiff ---- */

static void derived_ops_know_their_forward_op_and_role(void **state)
{
    MotCtx *ctx = *state;
    const char *text = differentiate_to_text(
        ctx, "%x = input {name=\"x\"} : f32[2x3]\n"
             "%v = param {name=\"v\", trained} : f32[3x3]\n"
             "%w = param {name=\"w\", trained} : f32[3x4]\n"
             "%b = param {name=\"b\", trained} : f32[4]\n"
             "%h = contract %x %v {spec=\"bi,ij->bj\", origin=\"/l0\"} : f32[2x3]\n"
             "%p = contract %h %w {spec=\"bj,jk->bk\", origin=\"/l1\"} : f32[2x4]\n"
             "%y = add %p %b {origin=\"/l1/bias\"} : f32[2x4]\n"
             "%loss = reduce_sum %y {axes=[0, 1]} : f32\n"
             "output %loss {name=\"loss\"}\n");
    check_has(text, "spec=\"bk,jk->bj\", origin=\"/l1\", fwd=%p, role=dx}");
    check_has(text, "spec=\"bk,bj->jk\", origin=\"/l1\", fwd=%p, role=dw}");
    check_has(text, "spec=\"bj,bi->ij\", origin=\"/l0\", fwd=%h, role=dw}");
    check_has(text, "{axes=[0], keep, origin=\"/l1/bias\", fwd=%y, role=dw}");
    check_has(text, "gradient %v ");
    assert_null(strstr(text, "bj,ij->bi")); /* nobody asks for the gradient of x */
}

/*
 * A parameter in f32 that is computed with in bf16 is two values, and sums have a dtype of their
 * own: the master's gradient is f32.
 */
static void a_master_has_a_gradient_of_its_own_dtype(void **state)
{
    const char *text = differentiate_to_text(
        *state, "%master = param {name=\"w\", trained} : f32[6x3] %w = cast %master {dtype=bf16}\n"
                "%x = input {name=\"x\"} : bf16[4x6]\n"
                "%y = contract %x %w {spec=\"mk,kn->mn\", accumulate=f32}\n"
                "%y32 = cast %y {dtype=f32} %loss = reduce_sum %y32 {axes=[0, 1]} output %loss "
                "{name=\"loss\"}");
    check_has(text, "accumulate=f32, fwd=");
    check_has(text, ": bf16[6x3]");
    check_has(text, "gradient %master");
}

static void contributions_add_up(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, "%w = param {name=\"w\", trained} : f32[3]\n"
                             "%a = mul %w %w : f32[3]\n"
                             "%b = mul %a %w : f32[3]\n"
                             "%c = add %b %w : f32[3]\n"
                             "%loss = reduce_sum %c {axes=[0]} : f32\n"
                             "output %loss {name=\"loss\"}\n");
    run(ctx, g, "autodiff");
    const double *grad = evaluate_gradient(ctx, g, "w", 1);
    for (int i = 0; i < 3; i++)
        check_close(grad[i], 3 * (i + 1) * (i + 1) + 1, 1e-12);
}

/*
 * Gradients of slices side by side are joined; where there is a gap between them, or overlap, they
 * are padded and added.
 */
static void gradients_of_slices_are_joined(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        int start[3], n_concat, n_pad;
        double expected[8];
    } cases[] = {{{0, 2, 4}, 1, 0, {1, 3, 5, 7, 9, 11, 0, 0}},
                 {{4, 2, 0}, 1, 0, {1, 3, 5, 7, 9, 11, 0, 0}},
                 {{2, 4, 6}, 1, 1, {0, 0, 5, 7, 9, 11, 13, 15}},
                 {{0, 3, 6}, 0, 3, {1, 3, 0, 7, 9, 0, 13, 15}},
                 {{0, 1, 2}, 0, 3, {1, 6, 10, 7, 0, 0, 0, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1024];
        int n = snprintf(body, sizeof body, "%%w = param {name=\"w\", trained} : f32[%d]\n",
                         i < 2 ? 6 : 8);
        for (int k = 0; k < 3; k++)
            n += snprintf(body + n, sizeof body - (size_t)n,
                          "%%s%d = slice %%w {start=[%d], size=[2], step=[1]} : f32[2]\n"
                          "%%q%d = mul %%s%d %%s%d : f32[2]\n",
                          k, cases[i].start[k], k, k, k);
        snprintf(body + n, sizeof body - (size_t)n,
                 "%%1 = add %%q0 %%q1 : f32[2]\n%%2 = add %%1 %%q2 : f32[2]\n"
                 "%%loss = reduce_sum %%2 {axes=[0]} : f32\noutput %%loss {name=\"loss\"}\n");
        MotGraph *g = parse(ctx, body);
        run(ctx, g, "autodiff");
        assert_int_equal(count_kind(g, MOT_OP_CONCAT), cases[i].n_concat);
        assert_int_equal(count_kind(g, MOT_OP_PAD), cases[i].n_pad);
        const double *grad = evaluate_gradient(ctx, g, "w", 0.5);
        for (int k = 0; k < (i < 2 ? 6 : 8); k++)
            check_close(grad[k], cases[i].expected[k], 1e-12);
    }
}

static void kinks_follow_pytorch(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *op;
        /* the gradient of w = 0 or, for those with two operands, of both together */
        double expected;
    } kinks[] = {
        {"relu %w", 0},     {"abs %w", 0},      {"sign %w", 0},   {"floor %w", 0},
        {"max %w %z", 0.5}, {"min %z %w", 0.5}, {"max %w %w", 1}, {"pow %w %z", 0},
    };
    for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++) {
        MotGraph *g = parse(ctx, mot_arena_printf(&ctx->arena,
                                                  "%%w = param {name=\"w\", trained} : f32\n"
                                                  "%%z = constant {data=0.0} : f32\n"
                                                  "%%y = %s : f32\n"
                                                  "output %%y {name=\"loss\"}\n",
                                                  kinks[i].op));
        run(ctx, g, "autodiff");
        check_close(evaluate_gradient(ctx, g, "w", 0)[0], kinks[i].expected, 0);
    }
}

static void equal_maxima_share_evenly(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, "%w = param {name=\"w\", trained} : f32[1]\n"
                             "%r = broadcast %w {dims=[4]} : f32[4]\n"
                             "%c = constant {data=[0, 1, 1, 0]} : f32[4]\n"
                             "%a = mul %r %c : f32[4]\n"
                             "%y = reduce_max %a {axes=[0]} : f32\n"
                             "output %y {name=\"loss\"}\n");
    run(ctx, g, "autodiff");
    check_close(evaluate_gradient(ctx, g, "w", 1)[0], 1, 1e-15);
}

static void an_unreached_parameter_has_gradient_zero_and_a_warning(void **state)
{
    Fixture *f = *state;
    MotGraph *g = parse(&f->ctx, "%w = param {name=\"w\", trained} : f32[2]\n"
                                 "%u = param {name=\"lost\", trained} : f32[2]\n"
                                 "%loss = reduce_sum %w {axes=[0]} : f32\n"
                                 "output %loss {name=\"loss\"}\n");
    run(&f->ctx, g, "autodiff");
    check_close(evaluate_gradient(&f->ctx, g, "lost", 1)[1], 0, 0);
    check_has(mot_text_get(&f->log), "the loss does not depend on parameter \"lost\"");
    assert_null(strstr(mot_text_get(&f->log), "\"w\""));
}

/* The second parameter reaches the loss through the update op only. */
static const char *const behind_an_update = "%%w = param {name=\"w\", trained} : f32[2]\n"
                                            "%%u = param {name=\"behind\"%s} : f32[2]\n"
                                            "%%lr = input {name=\"lr\"} : f32\n"
                                            "%%e = exp %%u : f32[2]\n"
                                            "%%s = sgd %%e %%e %%lr {origin=\"/odd\"} : f32[2]\n"
                                            "%%y = mul %%s %%w : f32[2]\n"
                                            "%%loss = reduce_sum %%y {axes=[0]} : f32\n"
                                            "output %%loss {name=\"loss\"}\n";

static void an_op_without_gradient_is_named_with_its_parameters(void **state)
{
    MotCtx *ctx = *state;
    MotPassOpts none = {0};
    MotGraph *g = parse(ctx, mot_arena_printf(&ctx->arena, behind_an_update, ", trained"));
    assert_int_equal(mot_passes_run_list(ctx, g, &none, "autodiff"), MOT_ERR_UNSUPPORTED);
    check_has(mot_text_get(&ctx->error), "node \"/odd\": sgd has no gradient");
    check_has(mot_text_get(&ctx->error), "parameter \"behind\"");
    assert_null(strstr(mot_text_get(&ctx->error), "parameter \"w\""));
    mot_error_clear(ctx);
    run(ctx, parse(ctx, mot_arena_printf(&ctx->arena, behind_an_update, "")), "autodiff");
}

static void what_cannot_be_a_loss_is_refused(void **state)
{
    MotCtx *ctx = *state;
    MotPassOpts none = {0};
    check_fails(ctx, parse(ctx, "%w = param {name=\"w\", trained} : f32\noutput %w {name=\"y\"}"),
                &none, "autodiff", MOT_ERR_USAGE, "no output \"loss\"");
    check_fails(ctx,
                parse(ctx, "%w = param {name=\"w\", trained} : f32[2]\noutput %w {name=\"loss\"}"),
                &none, "autodiff", MOT_ERR_MODEL, "f32[2], not a float scalar");
    check_fails(ctx, parse(ctx, "%w = param {name=\"w\"} : f32\noutput %w {name=\"loss\"}"), &none,
                "autodiff", MOT_ERR_MODEL, "no parameter of the model trains");
    run(ctx, parse(ctx, "%w = param {name=\"w\", trained} : f32\noutput %w {name=\"loss\"}"),
        "autodiff");
}

static const char layer_norm_loss[] =
    "%%x = param {name=\"x\", trained} : f64[2x4]\n"
    "%%s = param {name=\"s\", trained} : f64[4]\n"
    "%%y, %%m, %%r = layer_norm %%x %%s {axis=1, eps=1e-05} : f64[2x4], f64[2x1], f64[2x1]\n"
    "%%z = mul %%y %s : f64[2x4]\n"
    "%%loss = reduce_sum %%z {axes=[0, 1]} : f64\n"
    "output %%loss {name=\"loss\"}\n";

static void a_composite_is_expanded_only_where_its_rule_does_not_reach(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *plain = parse(ctx, mot_arena_printf(&ctx->arena, layer_norm_loss, "%y"));
    run(ctx, plain, "autodiff");
    assert_int_equal(count_kind(plain, MOT_OP_LAYER_NORM), 1);
    assert_int_equal(count_kind(plain, MOT_OP_LAYER_NORM_GRAD), 1);
    MotGraph *mean_used = parse(ctx, mot_arena_printf(&ctx->arena, layer_norm_loss, "%m"));
    run(ctx, mean_used, "autodiff");
    assert_int_equal(count_kind(mean_used, MOT_OP_LAYER_NORM), 0);
    assert_int_equal(count_kind(mean_used, MOT_OP_LAYER_NORM_GRAD), 0);
}

static void expand_leaves_primitives_and_the_same_gradient(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, mot_arena_printf(&ctx->arena, layer_norm_loss, "%y"));
    run(ctx, g, "autodiff");
    MotGraph *expanded = mot_graph_clone(ctx, g);
    run(ctx, expanded, "expand");
    for (uint32_t i = 0; i < expanded->body.n; i++)
        assert_int_not_equal(
            mot_op_info(mot_graph_op(expanded, expanded->body.data[i])->kind)->class,
            MOT_COMPOSITE);
    const double *before = evaluate_gradient(ctx, g, "x", 1),
                 *after = evaluate_gradient(ctx, expanded, "x", 1);
    for (int i = 0; i < 8; i++)
        check_close(before[i], after[i], 1e-12);
}

/* ---- tie ---- */

static const char two_tables[] = "%a = param {name=\"a\", trained} : f32[2x3]\n"
                                 "%b = param {name=\"b\", trained} : f32[3x2]\n"
                                 "%y = contract %a %b {spec=\"ij,jk->ik\"} : f32[2x2]\n"
                                 "%loss = reduce_sum %y {axes=[0, 1]} : f32\n"
                                 "output %loss {name=\"loss\"}\n";

static void tied_parameters_train_as_one(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, two_tables);
    MotTie tie = {"a", "b", true};
    MotPassOpts opts = {.ties = &tie, .n_ties = 1};
    assert_int_equal(mot_passes_run_list(ctx, g, &opts, "tie,autodiff"), MOT_OK);
    assert_int_equal(count_kind(g, MOT_OP_PARAM), 1);
    const MotAttr_param *attrs = mot_attrs(mot_graph_def(g, mot_edit_find_param(g, "a")), param);
    assert_string_equal(attrs->tied, "b");
    assert_true(attrs->tied_transposed);
    /* loss = sum over j of (sum over i of a_ij)^2; columns of 1..6 sum to 5, 7, 9 */
    const double *grad = evaluate_gradient(ctx, g, "a", 1);
    static const double expected[] = {10, 14, 18, 10, 14, 18};
    for (int i = 0; i < 6; i++)
        check_close(grad[i], expected[i], 1e-12);
}

static void ties_that_cannot_be_are_refused(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        MotTie tie;
        const char *text;
    } bad[] = {
        {{"a", "b", false}, "[2x3] and \"b\" [3x2] are no copies"},
        {{"a", "a", false}, "no copies"},
        {{"a", "c", false}, "no initializer \"c\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        MotPassOpts opts = {.ties = &bad[i].tie, .n_ties = 1};
        check_fails(ctx, parse(ctx, two_tables), &opts, "tie", MOT_ERR_USAGE, bad[i].text);
    }
}

/* ---- The pipeline ---- */

static void passes_are_found_by_name(void **state)
{
    MotCtx *ctx = *state;
    uint32_t n;
    const MotPass *const *list = mot_passes_list(&n);
    for (uint32_t i = 0; i < n; i++)
        assert_ptr_equal(mot_pass_find(list[i]->name), list[i]);
    assert_null(mot_pass_find("nothing"));
    check_fails(ctx, parse(ctx, two_tables), &(MotPassOpts){0}, "tie,nothing", MOT_ERR_USAGE,
                "no pass \"nothing\"");
    assert_int_equal(
        mot_passes_run(ctx, parse(ctx, two_tables), &(MotPassOpts){0}, "nothing", NULL),
        MOT_ERR_USAGE);
}

static void debugging_switches_skip_dump_and_stop(void **state)
{
    Fixture *f = *state;
    MotPassOpts opts = {0};
    f->ctx.debug.skip = "tie,autodiff";
    MotGraph *g = parse(&f->ctx, two_tables);
    check_fails(&f->ctx, g, &opts, "autodiff", MOT_ERR_USAGE, "pass autodiff can't be left out");
    assert_int_equal(mot_passes_run(&f->ctx, g, &opts, "tie", "tie"), MOT_OK);
    assert_int_equal(count_kind(g, MOT_OP_GRADIENT), 0);
    f->ctx.debug.skip = NULL;
    f->ctx.debug.dump = "after:autodiff";
    f->ctx.debug.stop = "after:autodiff";
    assert_int_equal(mot_passes_run(&f->ctx, g, &opts, "autodiff", NULL), MOT_STOPPED);
    assert_int_equal(count_kind(g, MOT_OP_GRADIENT), 2);
    check_has(mot_text_get(&f->log), "// after autodiff\nmotley graph 1\n");
    check_has(mot_text_get(&f->log), "gradient %a ");
}

/*
 * The verifier's complaint comes with the pass and the graph before it: here one that was broken
 * all along.
 */
static void an_invalid_graph_is_reported_with_what_reproduces_it(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, two_tables);
    g->values.data[mot_edit_find_output(g, "loss")].type.dtype = MOT_F64;
    assert_int_not_equal(mot_passes_run(ctx, g, &(MotPassOpts){0}, "tie", "tie"), MOT_OK);
    check_has(mot_text_get(&ctx->error), "pass tie left an invalid graph");
    check_has(mot_text_get(&ctx->error), "motley opt --passes=tie");
    check_has(mot_text_get(&ctx->error), "motley graph 1");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(derived_ops_know_their_forward_op_and_role),
        TEST(a_master_has_a_gradient_of_its_own_dtype),
        TEST(contributions_add_up),
        TEST(gradients_of_slices_are_joined),
        TEST(kinks_follow_pytorch),
        TEST(equal_maxima_share_evenly),
        TEST(an_unreached_parameter_has_gradient_zero_and_a_warning),
        TEST(an_op_without_gradient_is_named_with_its_parameters),
        TEST(what_cannot_be_a_loss_is_refused),
        TEST(a_composite_is_expanded_only_where_its_rule_does_not_reach),
        TEST(expand_leaves_primitives_and_the_same_gradient),
        TEST(tied_parameters_train_as_one),
        TEST(ties_that_cannot_be_are_refused),
        TEST(passes_are_found_by_name),
        TEST(debugging_switches_skip_dump_and_stop),
        TEST(an_invalid_graph_is_reported_with_what_reproduces_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
