/*
 * Ops that own a region: text, verifier, inference, evaluation by hand, passes, and who refuses
 * them.
 */
#include "codegen/kernel.h"
#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/factors.h"
#include "passes/graph/edit.h"
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

static const char *print(const MotGraph *g)
{
    MotText text;
    mot_text_init(&text, &g->ctx->arena);
    mot_graph_print(g, &text);
    return mot_text_get(&text);
}

static MotGraph *parse(MotCtx *ctx, const char *text)
{
    MotGraph *g = NULL;
    if (mot_graph_parse(ctx, "t.mot", text, &g) != MOT_OK || mot_graph_verify(g) != MOT_OK)
        fail_msg("%s\n%s", text, mot_text_get(&ctx->error));
    return g;
}

static void check_error(MotCtx *ctx, MotStatus status, MotStatus wanted, const char *message)
{
    assert_int_equal(status, wanted);
    if (!strstr(mot_text_get(&ctx->error), message))
        fail_msg("gives    %s\n  expected %s", mot_text_get(&ctx->error), message);
    mot_error_clear(ctx);
}

static void check_refuses(MotCtx *ctx, const char *text, MotStatus status, const char *message)
{
    MotGraph *g;
    check_error(ctx, mot_graph_parse(ctx, "t.mot", text, &g), status, message);
}

static MotOp *find_op(const MotGraph *g, MotOpKind kind)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind == kind)
            return mot_graph_op(g, g->body.data[i]);
    fail_msg("no %s in\n%s", mot_op_info(kind)->name, print(g));
    return NULL;
}

/*
 * A simple recurrent network over the middle dim of x: h = tanh(x w + h), and all x w + h stacked
 * last.
 */
static const char rnn[] =
    "motley graph 1\n"
    "graph @rnn {\n"
    "  %x = input {name=\"x\"} : f32[2x5x3]\n"
    "  %w = input {name=\"w\"} : f32[3x4]\n"
    "  %h0 = input {name=\"h0\"} : f32[2x4]\n"
    "  %h, %ys = scan %h0 %x %w {carried=1, axes=[1], out_axes=[2], origin=\"/Scan\"} : f32[2x4], "
    "f32[2x4x5] {\n"
    "    %h = input {name=\"h\"} : f32[2x4]\n"
    "    %x = input {name=\"x\"} : f32[2x3]\n"
    "    %w = input {name=\"w\"} : f32[3x4]\n"
    "    %4 = contract %x %w {spec=\"ab,bc->ac\"} : f32[2x4]\n"
    "    %y = add %4 %h : f32[2x4]\n"
    "    %6 = tanh %y : f32[2x4]\n"
    "    output %6 {name=\"next\"}\n"
    "    output %y {name=\"y\"}\n"
    "  }\n"
    "  output %h {name=\"h\"}\n"
    "  output %ys {name=\"ys\"}\n"
    "}\n";

/* ---- Text and verifier ---- */

static void a_region_prints_as_itself(void **state)
{
    MotGraph *g = parse(*state, rnn);
    assert_string_equal(print(g), rnn);
    mot_graph_compact(g);
    assert_string_equal(print(g), rnn);
    const MotOp *scan = find_op(g, MOT_OP_SCAN);
    assert_int_equal(scan->n_out, 2);
    assert_int_equal(scan->region->body.n, 8);
}

/* The text `depth` regions deep, around one scalar that is carried along. */
static const char *nest(MotCtx *ctx, int depth)
{
    MotText t;
    mot_text_init(&t, &ctx->arena);
    mot_text_puts(&t, "graph @t {\n");
    const char *dims = "2x2x2x2x2x2x2x2"; /* one fewer in each region */
    for (int i = 0; i <= depth; i++, dims += 2)
        mot_text_printf(&t, "%%a = input {name=\"a\"} : f32 %%x = input {name=\"x\"} : f32[%s]\n%s",
                        dims, i < depth ? "%b = scan %a %x {carried=1, axes=[0]} : f32 {\n" : "");
    mot_text_puts(&t, "%b = neg %a\n");
    for (int i = 0; i <= depth; i++)
        mot_text_puts(&t, "output %b {name=\"b\"}\n}\n");
    return mot_text_get(&t);
}

static void nesting_is_limited(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, nest(ctx, 7));
    assert_int_equal(mot_graph_region_depth(g), 7);
    int n = 0, deepest = 0;
    for (MotOpIter it = mot_op_iter(g); mot_op_iter_next(&it); n++)
        deepest = it.depth > deepest ? it.depth : deepest;
    assert_int_equal(deepest, 7);
    assert_int_equal(n, 8 * 4);
    MotText t;
    mot_text_init(&t, &ctx->arena);
    for (int i = 0; i < 9; i++)
        mot_text_printf(&t, "%s{\n", i ? "scan %x " : "graph @t ");
    for (int i = 0; i < 9; i++)
        mot_text_puts(&t, "}\n");
    check_refuses(ctx, mot_text_get(&t), MOT_ERR_MODEL, "%x is not defined above");
    mot_text_init(&t, &ctx->arena);
    for (int i = 0; i < 10; i++)
        mot_text_printf(&t, "%s{\n", i ? "scan %x " : "graph @t ");
    for (int i = 0; i < 10; i++)
        mot_text_puts(&t, "}\n");
    check_refuses(ctx, mot_text_get(&t), MOT_ERR_LIMIT, "scan: more than 8 regions in one another");
}

/* The scan of `rnn` with another text for one of its parts. */
static const char *replace(MotCtx *ctx, const char *part, const char *with)
{
    const char *at = strstr(rnn, part);
    assert_non_null(at);
    return mot_arena_printf(&ctx->arena, "%.*s%s%s", (int)(at - rnn), rnn, with, at + strlen(part));
}

static void what_a_region_breaks_is_named(void **state)
{
    static const struct {
        const char *part, *with, *message;
        MotStatus status;
    } cases[] = {
        {"add %4 %h", "add %4 %h0", "%h0 is not defined above", MOT_ERR_MODEL},
        {"output %ys", "output %y", "%y is not defined above", MOT_ERR_MODEL},
        {"axes=[1]", "axes=[3]", "axes out of range", MOT_ERR_MODEL},
        {"axes=[1]", "axes=[0]", "another type than its operand gives", MOT_ERR_MODEL},
        {"axes=[1], ", "", "needs `carried` initial values and one or more scanned", MOT_ERR_MODEL},
        {"carried=1, ", "carried=3, ", "needs `carried` initial values", MOT_ERR_MODEL},
        {"carried=1, ", "carried=-1, ", "needs `carried` initial values", MOT_ERR_MODEL},
        {"out_axes=[2], ", "", "one output a carried value and one an entry of out_axes",
         MOT_ERR_MODEL},
        {"out_axes=[2]", "out_axes=[3]", "out_axes out of range", MOT_ERR_MODEL},
        {"out_axes=[2]", "out_axes=[-1]", "out_axes out of range", MOT_ERR_MODEL},
        {"f32[2x4x5] {", "f32[2x5x4] {",
         "result 1 is declared as f32[2x5x4], the operands give f32[2x4x5]", MOT_ERR_MODEL},
        {"f32[2x4], f32", "f32", "scan has 2 result types, not 1", MOT_ERR_MODEL},
        {"output %6", "output %x", "a carried value changes its type", MOT_ERR_MODEL},
        {"    output %y {name=\"y\"}\n", "", "scan has 1 results, not 2", MOT_ERR_MODEL},
        {"scan %h0 %x %w", "scan %h0 %x", "the region needs one input an operand", MOT_ERR_MODEL},
        {"tanh %y : f32[2x4]", "tanh %y : f32[2x4] { }", "tanh has no body", MOT_ERR_MODEL},
        {"%x = input {name=\"x\"} : f32[2x3]", "%x = input {name=\"x\"} : f32[2x@n]",
         "a region has no symbolic dims, such as @n", MOT_ERR_UNSUPPORTED},
        {"graph @rnn", "graph @rnn {symbols=[@n]}", "a graph with symbolic dims has no regions",
         MOT_ERR_UNSUPPORTED},
    };
    MotCtx *ctx = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refuses(ctx, replace(ctx, cases[i].part, cases[i].with), cases[i].status,
                      cases[i].message);
    check_refuses(ctx, "graph @t { %x = input {name=\"x\"} : f32[2] scan %x {axes=[0]} }",
                  MOT_ERR_MODEL, "scan needs a region, { ... }");
    check_refuses(ctx,
                  "graph @t { %x = input {name=\"x\"} : f32[2]\n%1,%2,%3,%4,%5 = scan %x "
                  "{axes=[0], out_axes=[0, 0, 0, 0, 0]} { %x = input {name=\"x\"} : f32\noutput %x "
                  "output %x output %x output %x output %x } }",
                  MOT_ERR_LIMIT, "scan has more than 4 results");
    check_refuses(ctx,
                  "graph @t { %x = input {name=\"x\"} : f32[2] %z = input {name=\"z\"} : f32[3]\n"
                  "scan %x %z {axes=[0, 0]} { %x = input {name=\"x\"} : f32\n"
                  "%y = input {name=\"y\"} : f32 } }",
                  MOT_ERR_MODEL, "scanned operands differ in their number of steps");
}

static void the_verifier_sees_regions(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, rnn);
    MotGraph *region = find_op(g, MOT_OP_SCAN)->region;
    MotOp *add = find_op(region, MOT_OP_ADD), *scan = find_op(g, MOT_OP_SCAN);
    MotValue h = add->in[1];
    add->in[1] = 40; /* a value of another graph, if of any */
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL,
                "in a region of scan: op add (op 5, add): operand 1 is value 40 of 6");
    add->in[1] = h;
    region->values.data[add->out[0]].type.dims[0] = 3;
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL, "has type f32[3x4]");
    region->values.data[add->out[0]].type.dims[0] = 2;
    scan->region = NULL;
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL, "(op 4, scan): owns no region");
    scan->region = region;
    find_op(region, MOT_OP_TANH)->region = region;
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL, "owns a region");
    find_op(region, MOT_OP_TANH)->region = NULL;
    scan->region = mot_graph_clone(ctx, g); /* it fits nothing */
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL, "another type than its operand gives");
    scan->region = g; /* in itself */
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL, "lies in 8 regions: too deep");
    scan->region = region;
    assert_int_equal(mot_graph_verify(g), MOT_OK);
    MotBuilder b = mot_builder_make(region);
    mot_param(&b, &(MotAttr_param){.name = "p"}, mot_type_scalar(MOT_F32));
    check_error(ctx, mot_graph_verify(g), MOT_ERR_MODEL, "may not stand in a region");
}

/* ---- Evaluation ---- */

static MotTensor fill(MotCtx *ctx, const MotType *type, double first)
{
    MotTensor t = {*type, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(type))};
    for (int64_t i = 0; i < mot_type_elements(type); i++)
        mot_tensor_set(&t, i, sin(first + 0.7 * (double)i));
    return t;
}

/* The outputs of a graph whose inputs are drawn by place. */
static void evaluate(const MotGraph *g, bool in_f64, MotTensor *inputs, MotTensor *outputs)
{
    MotCtx *ctx = g->ctx;
    MotSignature s = mot_graph_signature(g);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < s.n_in; i++) {
        MotType type = *mot_graph_type(g, s.in[i]);
        if (in_f64 && mot_dtype_class(type.dtype) == MOT_CLASS_FLOAT)
            type.dtype = MOT_F64;
        values[s.in[i]] = inputs[i] = fill(ctx, &type, i);
    }
    if (mot_eval_graph(ctx, g, values, in_f64) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    for (uint32_t i = 0; i < s.n_out; i++)
        outputs[i] = values[s.out[i]];
}

static void a_scan_computes_its_steps(void **state)
{
    MotGraph *g = parse(*state, rnn);
    for (int in_f64 = 0; in_f64 <= 1; in_f64++) {
        MotTensor in[3], out[2];
        evaluate(g, in_f64, in, out);
        double tolerance = in_f64 ? 1e-14 : 1e-6;
        for (int b = 0; b < 2; b++)
            for (int n = 0; n < 4; n++) {
                double h[4];
                for (int k = 0; k < 4; k++)
                    h[k] = mot_tensor_get(&in[2], b * 4 + k);
                for (int t = 0; t < 5; t++) {
                    double y = h[n];
                    for (int k = 0; k < 3; k++)
                        y += mot_tensor_get(&in[0], (b * 5 + t) * 3 + k) *
                             mot_tensor_get(&in[1], k * 4 + n);
                    assert_true(fabs(mot_tensor_get(&out[1], (b * 4 + n) * 5 + t) - y) < tolerance);
                    h[n] = tanh(y);
                }
                assert_true(fabs(mot_tensor_get(&out[0], b * 4 + n) - h[n]) < tolerance);
            }
    }
}

/*
 * Fibonacci: each carried value is made of the others of the step before; what is stacked is an
 * input as it was given.
 */
static void carried_values_change_together(void **state)
{
    static const char text[] = "graph @t { %n = input {name=\"n\"} : f32[6]\n"
                               "%zero = constant {data=0} : i64 %one = constant {data=1} : i64\n"
                               "%a, %b, %as = scan %zero %one %n {carried=2, axes=[0], "
                               "out_axes=[0]} {\n"
                               "%a = input {name=\"a\"} : i64 %b = input {name=\"b\"} : i64\n"
                               "%n = input {name=\"n\"} : f32\n%c = add %a %b\noutput %b output %c "
                               "output %a }\noutput %a output %b output %as }";
    static const int64_t fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13};
    MotTensor in[1], out[3];
    evaluate(parse(*state, text), false, in, out);
    assert_int_equal(mot_tensor_get_int(&out[0], 0), fibonacci[6]);
    assert_int_equal(mot_tensor_get_int(&out[1], 0), fibonacci[7]);
    for (int i = 0; i < 6; i++)
        assert_int_equal(mot_tensor_get_int(&out[2], i), fibonacci[i]);
}

static void no_step_gives_the_initial_values(void **state)
{
    static const char text[] =
        "graph @t { %x = input {name=\"x\"} : f32[3x0] %s = input {name=\"s\"} : f32[3]\n"
        "%a, %b = scan %s %x {carried=1, axes=[1], out_axes=[0]} {\n"
        "%s = input {name=\"s\"} : f32[3] %x = input {name=\"x\"} : f32[3]\n"
        "%c = add %s %x\noutput %c output %c }\noutput %a output %b }";
    MotTensor in[2], out[2];
    evaluate(parse(*state, text), false, in, out);
    assert_int_equal(mot_type_elements(&out[1].type), 0);
    for (int i = 0; i < 3; i++)
        assert_true(mot_tensor_get(&out[0], i) == mot_tensor_get(&in[1], i));
}

static void a_failing_step_is_named(void **state)
{
    static const char text[] =
        "graph @t { %i = constant {data=[0, 1, 7]} : i64[3] %x = input {name=\"x\"} : f32[2]\n"
        "%y = scan %i %x {axes=[0], out_axes=[0]} {\n"
        "%i = input {name=\"i\"} : i64 %x = input {name=\"x\"} : f32[2]\n"
        "%y = gather %x %i {origin=\"/loop/Gather\"}\noutput %y }\noutput %y }";
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, text);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    MotValue x = mot_graph_signature(g).in[0];
    values[x] = fill(ctx, mot_graph_type(g, x), 0);
    check_error(ctx, mot_eval_graph(ctx, g, values, false), MOT_ERR_DATA,
                "node \"/loop/Gather\": gather: index 7 at element 0 is outside [0, 2)");
}

/* ---- Passes and structure ---- */

static void clones_share_nothing(void **state)
{
    MotCtx other;
    mot_ctx_init(&other);
    MotGraph *g = parse(*state, rnn), *copy = mot_graph_clone(&other, g);
    find_op(find_op(g, MOT_OP_SCAN)->region, MOT_OP_TANH)->kind = MOT_OP_EXP;
    assert_string_equal(print(copy), rnn);
    assert_ptr_equal(find_op(copy, MOT_OP_SCAN)->region->ctx, &other);
    mot_ctx_deinit(&other);
}

static uint32_t count_scans(const MotGraph *g)
{
    uint32_t n = 0;
    for (MotOpIter it = mot_op_iter(g); mot_op_iter_next(&it);)
        n += it.op->kind == MOT_OP_SCAN;
    return n;
}

/* Two scans over x, the second of which has `changed` in place of the constant 2. */
static MotGraph *two_scans(MotCtx *ctx, const char *name, const char *changed)
{
    static const char scan[] = "scan %%x {axes=[0], out_axes=[0]} {\n%%%s = input {name=\"%s\"} : "
                               "f32[2] %%c = constant {data=%s} : f32\n"
                               "%%r = mul %%%s %%c\noutput %%r {name=\"%s\"} }\n";
    MotText t;
    mot_text_init(&t, &ctx->arena);
    mot_text_puts(&t, "graph @t { %x = input {name=\"x\"} : f32[3x2]\n%y = ");
    mot_text_printf(&t, scan, "x", "x", "2.0", "x", "x");
    mot_text_puts(&t, "%z = ");
    mot_text_printf(&t, scan, name, name, changed, name, name);
    mot_text_puts(&t, "%s = add %y %z\noutput %s }");
    return parse(ctx, mot_text_get(&t));
}

static void equal_regions_are_shared(void **state)
{
    static const struct {
        const char *name, *constant;
        uint32_t n;
    } cases[] = {{"x", "2.0", 1}, {"another", "2.0", 1}, {"x", "3.0", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotGraph *g = two_scans(*state, cases[i].name, cases[i].constant);
        assert_int_equal(count_scans(g), 2);
        assert_int_equal(mot_passes_run_list(*state, g, &(MotPassOpts){0}, "simplify"), MOT_OK);
        assert_int_equal(count_scans(g), cases[i].n);
    }
}

/* Dead code goes, an input that nobody reads stays: operands go by place. */
static void passes_reach_regions(void **state)
{
    static const char text[] =
        "graph @t { %x = input {name=\"x\"} : f32[3x2] %w = input {name=\"w\"} : f32[4]\n"
        "%y = scan %x %w {axes=[0], out_axes=[0]} {\n"
        "%x = input {name=\"x\"} : f32[2] %w = input {name=\"w\"} : f32[4]\n"
        "%a = neg %x %b = neg %a %c = exp %b %d = exp %c %s = softmax %b {axis=0}\noutput %s }\n"
        "output %y }";
    MotGraph *g = parse(*state, text);
    assert_int_equal(mot_passes_run_list(*state, g, &(MotPassOpts){0}, "simplify,split-dims"),
                     MOT_OK);
    const MotGraph *region = find_op(g, MOT_OP_SCAN)->region;
    assert_int_equal(region->body.n, 4); /* two inputs, softmax, output */
    assert_int_equal(region->ops.n, 5);
    assert_int_equal(mot_passes_run_list(*state, g, &(MotPassOpts){0}, "expand,simplify,raise"),
                     MOT_OK);
    find_op(find_op(g, MOT_OP_SCAN)->region, MOT_OP_SOFTMAX);
}

static void flops_count_every_step(void **state)
{
    MotGraph *g = parse(*state, rnn);
    assert_true(mot_op_flops(g, find_op(g, MOT_OP_SCAN)) == 5 * 2 * 2 * 3 * 4.0);
}

/* ---- Who has no rule for regions says so ---- */

static void what_has_no_rule_refuses(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = parse(ctx, rnn);
    MotFactors factors;
    MotKernelIr kernel;
    check_error(ctx, mot_factors(g, find_op(g, MOT_OP_SCAN), &factors), MOT_ERR_UNSUPPORTED,
                "node \"/Scan\": scan: an operator with a region can be neither planned");
    check_error(ctx, mot_kernel_build(ctx, g, &kernel), MOT_ERR_UNSUPPORTED,
                "node \"/Scan\": scan: an operator with a region");
    static const char trained[] =
        "graph @t { %w = param {name=\"w\", trained} : f32[3] %y = scan %w {carried=0, axes=[0], "
        "out_axes=[0], origin=\"/Loop\"} { %w = input {name=\"w\"} : f32 output %w }\n"
        "%l = reduce_sum %y {axes=[0]}\noutput %l {name=\"loss\"} }";
    check_error(ctx, mot_passes_run_list(ctx, parse(ctx, trained), &(MotPassOpts){0}, "autodiff"),
                MOT_ERR_UNSUPPORTED,
                "node \"/Loop\": scan has no gradient: a region is not differentiated yet");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_graph_signature(g).in[0];
    assert_int_equal(mot_build(&b, MOT_OP_SCAN, &x, 1, NULL), 0);
    check_error(ctx, ctx->status, MOT_ERR_MODEL, "scan needs a region");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(a_region_prints_as_itself),
        TEST(nesting_is_limited),
        TEST(what_a_region_breaks_is_named),
        TEST(the_verifier_sees_regions),
        TEST(a_scan_computes_its_steps),
        TEST(carried_values_change_together),
        TEST(no_step_gives_the_initial_values),
        TEST(a_failing_step_is_named),
        TEST(clones_share_nothing),
        TEST(equal_regions_are_shared),
        TEST(passes_reach_regions),
        TEST(flops_count_every_step),
        TEST(what_has_no_rule_refuses),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
