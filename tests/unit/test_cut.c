/*
 * Contractions that are cut by a list (k_index): what they mean, what is refused, and what passes
 * and gradients keep of it.
 */
#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/factors.h"
#include "passes/graph/edit.h"
#include "passes/pipeline.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *print(const MotGraph *g)
{
    MotText text;
    mot_text_init(&text, &g->ctx->arena);
    mot_graph_print(g, &text);
    return mot_text_get(&text);
}

static MotGraph *parse(MotCtx *ctx, const char *body)
{
    MotGraph *g = NULL;
    if (mot_graph_parse(ctx, "test", mot_arena_printf(&ctx->arena, "graph @t {\n%s\n}\n", body),
                        &g) != MOT_OK ||
        mot_graph_verify(g) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return g;
}

static const MotOp *find_op(const MotGraph *g, MotOpKind kind)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind == kind)
            return mot_graph_op(g, g->body.data[i]);
    fail_msg("no %s in\n%s", mot_op_info(kind)->name, print(g));
    return NULL;
}

/* Evaluates a graph whose float inputs hold 1, 2, 3, ... and whose integer inputs are constants. */
static MotTensor *evaluate(const MotGraph *g)
{
    MotCtx *ctx = g->ctx;
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT && op->kind != MOT_OP_PARAM)
            continue;
        MotTensor *t = &values[op->out[0]];
        t->type = *mot_graph_type(g, op->out[0]);
        t->data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&t->type));
        for (int64_t k = 0; k < mot_type_elements(&t->type); k++)
            mot_tensor_set(t, k, (double)(k + 1));
    }
    if (mot_eval_graph(ctx, g, values, false) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return values;
}

/* ---- Meaning ---- */

/* The same as gathering the listed parts of both operands first, bit for bit. */
static void a_list_is_two_gathers(void **state)
{
    static const char *const lists[] = {"i64[0]", "i64[1]", "i64[3]", "i64[6]", "i64[4]"};
    static const char *const data[] = {"[]", "[4]", "[5, 0, 2]", "[0, 1, 2, 3, 4, 5]",
                                       "[3, 3, 1, 3]"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        MotCtx *ctx = *state;
        MotGraph *g = parse(
            ctx, mot_arena_printf(
                     &ctx->arena,
                     "%%x = input {name=\"x\"} : f32[4x6x2] %%w = input {name=\"w\"} : f32[2x3x6]\n"
                     "%%k = constant {data=%s} : %s\n"
                     "%%a = contract %%x %%w %%k {spec=\"mkh,hnk->nm\", cut=\"k\"}\n"
                     "%%xk = gather %%x %%k {axis=1} %%wk = gather %%w %%k {axis=2}\n"
                     "%%b = contract %%xk %%wk {spec=\"mkh,hnk->nm\"}\n"
                     "output %%a {name=\"a\"} output %%b {name=\"b\"}",
                     data[i], lists[i]));
        MotTensor *values = evaluate(g), *a = &values[mot_edit_find_output(g, "a")],
                  *b = &values[mot_edit_find_output(g, "b")];
        assert_true(mot_type_equal(&a->type, &b->type));
        assert_memory_equal(a->data, b->data, (size_t)mot_type_bytes(&a->type));
        assert_true((mot_tensor_get(a, 0) == 0) == (i == 0));
    }
}

static void flops_are_of_the_list(void **state)
{
    MotGraph *g =
        parse(*state, "%x = input {name=\"x\"} : f32[4x6] %w = input {name=\"w\"} : "
                      "f32[6x3] %k = input {name=\"k\"} : i64[5]\n"
                      "%y = contract %x %w %k {spec=\"mk,kn->mn\", cut=\"k\"}\noutput %y");
    assert_true(mot_op_flops(g, find_op(g, MOT_OP_CONTRACT)) == 2 * 4 * 5 * 3.0);
}

/* The letter is whole, the list can be dealt out: its parts give partial sums. */
static void the_list_is_a_factor(void **state)
{
    MotGraph *g =
        parse(*state, "%x = input {name=\"x\"} : f32[4x6] %w = input {name=\"w\"} : "
                      "f32[6x3] %k = input {name=\"k\"} : i64[5]\n"
                      "%y = contract %x %w %k {spec=\"mk,kn->mn\", cut=\"k\"}\noutput %y");
    MotFactors factors;
    assert_int_equal(mot_factors(g, find_op(g, MOT_OP_CONTRACT), &factors), MOT_OK);
    const MotFactor *k = &factors.factor[mot_factor_of_operand(&factors, 0, 1)],
                    *list = &factors.factor[mot_factor_of_operand(&factors, 2, 0)];
    assert_int_equal(k->kind, MOT_FACTOR_WHOLE);
    assert_int_equal(k->in_dim[1], 0);
    assert_int_equal(list->kind, MOT_FACTOR_SUM);
    assert_int_equal(list->size, 5);
    assert_true(list->partial[0]);
    assert_int_equal(list->in_dim[0], -1);
}

/* ---- Refusals ---- */

static void check_refuses(MotCtx *ctx, const char *op, const char *message)
{
    MotGraph *g;
    const char *text = mot_arena_printf(
        &ctx->arena,
        "graph @t { %%x = input {name=\"x\"} : f32[4x6] %%w = input {name=\"w\"} : f32[6x3]\n"
        "%%k = input {name=\"k\"} : i64[2] %%k32 = input {name=\"k32\"} : i32[2] %%k2 = input "
        "{name=\"k2\"} : i64[1x2]\n%%y = contract %s\noutput %%y }",
        op);
    assert_int_equal(mot_graph_parse(ctx, "t", text, &g), MOT_ERR_MODEL);
    if (!strstr(mot_text_get(&ctx->error), message))
        fail_msg("gives    %s\n  expected %s", mot_text_get(&ctx->error), message);
    mot_error_clear(ctx);
}

static void what_makes_no_cut_is_refused(void **state)
{
    MotCtx *ctx = *state;
    check_refuses(ctx, "%x %w %k {spec=\"mk,kn->mn\"}", "cut must name one letter");
    check_refuses(ctx, "%x %w %k {spec=\"mk,kn->mn\", cut=\"m\"}", "cut must name one letter");
    check_refuses(ctx, "%x %w %k {spec=\"mk,kn->mn\", cut=\"z\"}", "cut must name one letter");
    check_refuses(ctx, "%x %w %k {spec=\"mk,kn->mn\", cut=\"kk\"}", "cut must name one letter");
    check_refuses(ctx, "%x %w %k {spec=\"mk,kn->mn\", cut=\"\"}", "cut must name one letter");
    check_refuses(ctx, "%x %w %k {spec=\"mj,kn->mn\", cut=\"k\"}", "cut must name one letter");
    check_refuses(ctx, "%x %w {spec=\"mk,kn->mn\", cut=\"k\"}", "there is no k_index");
    check_refuses(ctx, "%x %w %k32 {spec=\"mk,kn->mn\", cut=\"k\"}",
                  "k_index must be i64 with one");
    check_refuses(ctx, "%x %w %k2 {spec=\"mk,kn->mn\", cut=\"k\"}", "k_index must be i64 with one");
}

static void positions_outside_are_named(void **state)
{
    static const struct {
        const char *data, *message;
    } cases[] = {{"[0, 6]", "contract: k_index 6 at element 1 is outside [0, 6)"},
                 {"[-1, 2]", "contract: k_index -1 at element 0 is outside [0, 6)"}};
    MotCtx *ctx = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotGraph *g = parse(
            ctx,
            mot_arena_printf(&ctx->arena,
                             "%%x = constant {data=1.0} : f32[4x6] %%w = constant {data=1.0} : "
                             "f32[6x3] %%k = constant {data=%s} : i64[2]\n"
                             "%%y = contract %%x %%w %%k {spec=\"mk,kn->mn\", cut=\"k\", "
                             "origin=\"/fc\"}\noutput %%y",
                             cases[i].data));
        MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
        assert_int_equal(mot_eval_graph(ctx, g, values, false), MOT_ERR_DATA);
        assert_non_null(strstr(mot_text_get(&ctx->error), cases[i].message));
        assert_non_null(strstr(mot_text_get(&ctx->error), "node \"/fc\""));
        mot_error_clear(ctx);
    }
}

/* ---- Passes and gradients ---- */

/*
 * Letters are named anew, transposes absorbed; the cut dim stays one although its neighbours and
 * its reshape split.
 */
static void passes_keep_the_cut(void **state)
{
    MotGraph *g = parse(
        *state,
        "%x = input {name=\"x\"} : f32[4x6] %w = param {name=\"w\", trained} : f32[12x6]\n"
        "%k = input {name=\"k\"} : i64[2]\n%t = transpose %w {perm=[1, 0]}\n"
        "%y = contract %x %t %k {spec=\"mk,kn->mn\", cut=\"k\"}\n%z = reshape %y {dims=[4, 3, 4]}\n"
        "%s = reshape %x {dims=[4, 2, 3]}\noutput %z {name=\"z\"} output %s {name=\"s\"}");
    assert_int_equal(
        mot_passes_run_list(*state, g, &(MotPassOpts){0}, "simplify,split-dims,simplify"), MOT_OK);
    const MotOp *op = find_op(g, MOT_OP_CONTRACT);
    assert_int_equal(op->n_in, 3);
    assert_string_equal(mot_attrs(op, contract)->cut, "b");
    assert_string_equal(mot_attrs(op, contract)->spec, "ab,cdb->acd");
    assert_int_equal(mot_graph_def(g, op->in[2])->kind, MOT_OP_INPUT);
}

static void unlisted_positions_get_no_gradient(void **state)
{
    MotGraph *g = parse(
        *state, "%x = param {name=\"x\", trained} : f32[2x4] %w = param {name=\"w\", trained} "
                ": f32[4x3] %k = constant {data=[3, 1]} : i64[2]\n"
                "%y = contract %x %w %k {spec=\"mk,kn->mn\", cut=\"k\"}\n"
                "%l = reduce_sum %y {axes=[0, 1]}\noutput %l {name=\"loss\"}");
    assert_int_equal(mot_passes_run_list(*state, g, &(MotPassOpts){0}, "autodiff"), MOT_OK);
    MotTensor *values = evaluate(g);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_GRADIENT)
            continue;
        const MotTensor *dx = &values[op->in[1]];
        bool is_x = strcmp(mot_attrs(mot_graph_def(g, op->in[0]), param)->name, "x") == 0;
        for (int64_t e = 0; e < mot_type_elements(&dx->type); e++) {
            int64_t k = is_x ? e % 4 : e / 3;
            double wanted = is_x ? (double)(9 * k + 6) : (double)(2 * k + 6);
            assert_true(mot_tensor_get(dx, e) == (k == 1 || k == 3 ? wanted : 0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(a_list_is_two_gathers),
        TEST(flops_are_of_the_list),
        TEST(the_list_is_a_factor),
        TEST(what_makes_no_cut_is_refused),
        TEST(positions_outside_are_named),
        TEST(passes_keep_the_cut),
        TEST(unlisted_positions_get_no_gradient),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
