/* ir/graph_text and ir/verify: graphs to text and back, what either refuses. */
#include "ir/attrs.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
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
    if (mot_graph_parse(ctx, "t.mot", text, &g) != MOT_OK)
        fail_msg("%s\n%s", text, mot_text_get(&ctx->error));
    return g;
}

static void check_verifies(const MotGraph *g)
{
    if (mot_graph_verify(g) != MOT_OK)
        fail_msg("%s\n%s", print(g), mot_text_get(&g->ctx->error));
}

static void check_refuses(MotCtx *ctx, const char *text, MotStatus status, const char *message)
{
    MotGraph *g;
    assert_int_equal(mot_graph_parse(ctx, "t.mot", text, &g), status);
    if (!strstr(mot_text_get(&ctx->error), message))
        fail_msg("%s\n  gives    %s\n  expected %s", text, mot_text_get(&ctx->error), message);
    mot_error_clear(ctx);
}

/* Ops of a body, as in `graph @t { ... }`. */
static const char *in_graph(MotCtx *ctx, const char *body)
{
    return mot_arena_printf(&ctx->arena, "graph @t {\n%s\n}\n", body);
}

/* ---- Text ---- */

static void a_training_graph_prints_as_itself(void **state)
{
    static const char text[] =
        "motley graph 1\n"
        "graph @\"gpt/2\" {\n"
        "  %ids = input {name=\"ids\"} : i64[8x16]\n"
        "  %w = param {name=\"h.0.w\", file_dims=[384, 64], perm=[1, 0], trained} : f32[64x384]\n"
        "  %3 = gather %w %ids {origin=\"/wte/Gather\"} : f32[8x16x384]\n"
        "  %y = contract %3 %w {spec=\"btc,dc->btd\", accumulate=f32, origin=\"/h.0/MatMul\"} : "
        "f32[8x16x64]\n"
        "  %5 = constant {data=1.0} : f32\n"
        "  %6 = constant {data=[1, -2, 3]} : i32[3]\n"
        "  %7 = pad %y {lo=[0, 0, 1], hi=[0, 0, 1], value=-inf} : f32[8x16x66]\n"
        "  output %7 {name=\"logits\"}\n"
        "  %8 = contract %y %3 {spec=\"btd,btc->dc\", origin=\"/h.0/MatMul\", fwd=%y, role=dw} : "
        "f32[64x384]\n"
        "  %9 = mul %8 %5 {fwd=8, role=update} : f32[64x384]\n"
        "  output %9 {name=\"dw\"}\n"
        "  output %6 {name=\"ints\"}\n"
        "}\n";
    MotGraph *g = parse(*state, text);
    assert_string_equal(print(g), text);
    check_verifies(g);
    const MotOp *dw = mot_graph_op(g, g->body.data[8]);
    assert_int_equal(dw->role, MOT_ROLE_DW);
    assert_int_equal(dw->fwd, g->body.data[3]);
    assert_string_equal(dw->origin, "/h.0/MatMul");
    assert_int_equal(mot_graph_op(g, g->body.data[9])->fwd, g->body.data[7]);
    mot_graph_compact(g);
    assert_string_equal(print(g), text);
}

static void composites_and_absent_operands_print_as_themselves(void **state)
{
    static const char text[] = "motley graph 1\n"
                               "graph @t {\n"
                               "  %x = input {name=\"x\"} : f32[2x4x8]\n"
                               "  %s = param {name=\"s\", trained} : f32[8]\n"
                               "  %3, %4, %5 = layer_norm %x %s _ {axis=2, eps=1e-05} : "
                               "f32[2x4x8], f32[2x4x1], f32[2x4x1]\n"
                               "  %6 = softmax %3 {axis=2} : f32[2x4x8]\n"
                               "  output %6 {name=\"y\"}\n"
                               "}\n";
    MotGraph *g = parse(*state, text);
    assert_string_equal(print(g), text);
    check_verifies(g);
}

static void built_graphs_print_and_parse_back(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "t");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", mot_type_make(MOT_F32, 2, (int64_t[]){4, 16}));
    MotValue dead = mot_exp(&b, x);
    MotValue e = mot_exp(&b, x);
    MotValue sum = mot_reduce_sum(&b, e, (int64_t[]){1}, 1, MOT_KEEP);
    MotValue y = mot_div(&b, e, sum);
    mot_output(&b, "y", y);
    g->values.data[x].name = "x";
    g->values.data[dead].name = "twice";
    g->values.data[e].name = "twice";
    g->values.data[sum].name = "/Sum_output_0";
    g->values.data[y].name = "12";
    static const char text[] = "motley graph 1\n"
                               "graph @t {\n"
                               "  %x = input {name=\"x\"} : f32[4x16]\n"
                               "  %2 = exp %x : f32[4x16]\n"
                               "  %3 = exp %x : f32[4x16]\n"
                               "  %4 = reduce_sum %3 {axes=[1], keep} : f32[4x1]\n"
                               "  %5 = div %3 %4 : f32[4x16]\n"
                               "  output %5 {name=\"y\"}\n"
                               "}\n";
    assert_string_equal(print(g), text);
    assert_string_equal(print(parse(ctx, text)), text);
    mot_graph_compact(g); /* the other `twice` is gone: the name is unique */
    assert_non_null(strstr(print(g), "  %twice = exp %x : f32[4x16]\n  %3 = reduce_sum %twice "));
    assert_string_equal(print(parse(ctx, print(g))), print(g));
}

static void types_may_be_left_out_where_operands_give_them(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g =
        parse(ctx, in_graph(ctx, "%x = input {name=\"x\"} : f32[2x3]  %y = exp %x  output %y"));
    assert_non_null(strstr(print(g), "%y = exp %x : f32[2x3]\n"));
    check_refuses(ctx, in_graph(ctx, "%x = input {name=\"x\"}"), MOT_ERR_MODEL,
                  "t.mot: line 2, column 1: input: the type of the result is missing");
    check_refuses(ctx, in_graph(ctx, "%x = constant {data=1.0}"), MOT_ERR_MODEL,
                  "type of attribute data is missing");
}

static void constants_keep_every_bit(void **state)
{
    MotCtx *ctx = *state;
    static const char *const same[] = {
        "%c = constant {data=0.1} : f32[2x3]",
        "%c = constant {data=[0.1, 0.1]} : f64[2]", /* printed as a splat */
        "%c = constant {data=[0.1, 0.7071067811865476]} : f64[2]",
        "%c = constant {data=[0.1, -0.0, nan]} : f32[3]",
        "%c = constant {data=[0.333, 65500.0]} : f16[2]",
        "%c = constant {data=[0.334, 3.39e+38]} : bf16[2]",
        "%c = constant {data=[inf, -inf]} : f32[2]",
        "%c = constant {data=[0, 255]} : u8[2]",
        "%c = constant {data=[1, 0]} : bool[2]",
        "%c = constant {data=[-9223372036854775808, 9223372036854775807]} : i64[2]",
        "%c = constant {data=[-2147483648, 2147483647]} : i32[2]",
        "%c = constant {data=[]} : f32[0x4]",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const char *line = i == 1 ? "%c = constant {data=0.1} : f64[2]" : same[i];
        MotGraph *g = parse(ctx, in_graph(ctx, same[i]));
        assert_string_equal(
            print(g), mot_arena_printf(&ctx->arena, "motley graph 1\ngraph @t {\n  %s\n}\n", line));
        const MotTensor *a = &mot_attrs(mot_graph_op(g, 1), constant)->data;
        const MotTensor *b = &mot_attrs(mot_graph_op(parse(ctx, print(g)), 1), constant)->data;
        assert_memory_equal(a->data, b->data, (size_t)mot_type_bytes(&a->type));
    }
    MotGraph *g = parse(ctx, in_graph(ctx, same[0]));
    for (int64_t i = 0; i < 6; i++)
        assert_true(((const float *)mot_attrs(mot_graph_op(g, 1), constant)->data.data)[i] == 0.1f);
}

static void constants_are_checked(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *line, *message;
        MotStatus status;
    } bad[] = {
        {"%c = constant {data=[1.0, 2.0]} : f32[3]",
         "attribute data has 2 elements, the type has 3", MOT_ERR_MODEL},
        {"%c = constant {data=256} : u8", "256 is no u8: those go from 0 to 255", MOT_ERR_MODEL},
        {"%c = constant {data=[0, 2]} : bool[2]", "2 is no bool: those go from 0 to 1",
         MOT_ERR_MODEL},
        {"%c = constant {data=2147483648} : i32", "go from -2147483648 to 2147483647",
         MOT_ERR_MODEL},
        {"%c = constant {data=1.0} : i32", "attribute data must be integers", MOT_ERR_MODEL},
        {"%c = constant {data=\"1\"} : f32", "attribute data must be numbers, not a string",
         MOT_ERR_MODEL},
        {"%c = constant {data=1.0} : f32[0]", "must be [], as the type has no elements",
         MOT_ERR_MODEL},
        {"%c = constant {data=1.0} : f32[1000000000000]", "take more than 256 MiB", MOT_ERR_LIMIT},
        {"%c = constant {data=1.0} : u8[200000000]  %d = constant {data=2.0} : u8[200000000]",
         "must be integers", MOT_ERR_MODEL},
        {"%c = constant {data=1} : u8[200000000]  %d = constant {data=2} : u8[200000000]",
         "take more than 256 MiB", MOT_ERR_LIMIT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_refuses(ctx, in_graph(ctx, bad[i].line), bad[i].status, bad[i].message);
}

static void symbolic_dims_keep_their_numbers(void **state)
{
    static const char text[] = "motley graph 1\n"
                               "graph @k7 {symbols=[@h, @t]} {\n"
                               "  %a = input {name=\"a\"} : f32[@tx@hx64]\n"
                               "  %b = broadcast %a {dims=[8, -2, -1, 64]} : f32[8x@tx@hx64]\n"
                               "  output %b {name=\"b\"}\n"
                               "}\n";
    MotGraph *g = parse(*state, text);
    assert_int_equal(mot_graph_type(g, 1)->dims[0], -2);
    assert_int_equal(mot_graph_type(g, 1)->dims[1], -1);
    assert_string_equal(print(g), text);
    check_verifies(g);
    check_refuses(*state, "graph @t { %a = input {name=\"a\"} : f32[@t] }", MOT_ERR_MODEL,
                  "no symbolic dim @t; the graph lists them: graph @t {symbols=[@t]}");
    check_refuses(*state, "graph @t {symbols=[@a, @a]} { }", MOT_ERR_MODEL,
                  "differs from the others");
    check_refuses(*state, "graph @t {symbols=[@x]} { }", MOT_ERR_MODEL, "letters except x");
    check_refuses(*state, "graph @t {depth=3} { }", MOT_ERR_MODEL,
                  "one attribute, symbols=[@name, ...], not depth");
}

static const struct {
    const char *lines, *message;
} broken_lines[] = {
    {"%y = foo %x", "t.mot: line 3, column 1: there is no op foo"},
    {"%y = exp %x {\n}", "exp has no body"},
    {"%y = exp %x %x", "exp has 1 operands, not 2"},
    {"%y = concat", "concat has 1 to 64 operands, not 0"},
    {"%y, %z = exp %x", "exp has 1 results, not 2"},
    {"exp %x", "exp has 1 results, not 0"},
    {"%y = exp %x : f32[2x3], f32", "exp has 1 result types, not 2"},
    {"%y = exp %z", "line 3, column 10: %z is not defined above"},
    {"%y = exp %\"a b\"", "%\"a b\" is not defined above"},
    {"%y = exp @x", "exp: operand 0 must be a value %name, not a symbol @name"},
    {"%y = exp _", "operand 0 must be a value %name, not `_`, as it is not optional"},
    {"%x = exp %x", "line 3, column 1: %x is defined twice"},
    {"%y = exp %x : f32[2x4]", "exp: result 0 is declared as f32[2x4], the operands give f32[2x3]"},
    {"%y = exp %x : f64[2x3]", "declared as f64[2x3], the operands give f32[2x3]"},
    {"%y = exp %x {axis=1}",
     "line 3, column 14: exp has no attribute axis; it has origin, fwd, role"},
    {"%y = softmax %x {axs=1}", "softmax has no attribute axs; it has axis, origin, fwd, role"},
    {"%y = softmax %x {axis=1.0}", "softmax: attribute axis must be an integer, not a float"},
    {"%y = pad %x {value=\"1\"}", "attribute value must be a number, not a string"},
    {"%y = reduce_sum %x {keep=1}", "attribute keep must be a flag, without `=`, not an integer"},
    {"%y = reduce_sum %x {axes=1}", "attribute axes must be a list of integers, not an integer"},
    {"%y = reduce_sum %x {axes=[1, 1.5]}",
     "line 3, column 30: reduce_sum: attribute axes must be a list of integers, not a float"},
    {"%y = contract %x %x {spec=ab}", "attribute spec must be a string, not a word"},
    {"%y = contract %x %x {spec}", "attribute spec must be a string, not a flag"},
    {"%y = cast %x {dtype=f33}", "attribute dtype must be an element type such as f32"},
    {"%y = exp %x {origin=3}", "attribute origin must be a string"},
    {"%y = exp %x {role=dz}", "attribute role must be forward, dx, dw or update"},
    {"%y = exp %x {fwd=%z}", "%z is not defined above"},
    {"%y = exp %x {fwd=3}", "attribute fwd must be a value, or the place of an op from 1 to 2"},
    {"%y = exp %x {fwd=0}", "attribute fwd must be a value"},
    {"%y = input {name=\"y\"} : f32[4294967296x2147483648]", "the shape has 2^62 elements or more"},
    {"%y = broadcast %x {dims=[-1, 2, 3]}", "broadcast: the result has a size below zero"},
    {"%y = concat %x %x {axis=2}", "at t.mot, line 3, column 1"},
    {"%l = input {name=\"l\"} : u8[4611686018427387903]\n%y = concat %l %l %l", "concat: too many"},
    {"%i = input {name=\"i\"} : i64\n%u = input {name=\"u\"} : f32[1x1x1x1x1x1x1x2]\n"
     "%y = scatter_add %i %u {axis=0, size=3}",
     "scatter_add: more than 8 dims"},
    {"%y = reshape %x {dims=[-9223372036854775808]}", "has another number of elements"},
    {"%y = iota {dims=[-1], dtype=i64}", "iota: the result has a size below zero"},
    {"%y = exp %x\nassign %y %x", "assign: the first operand is no parameter"},
    {"%w = param {name=\"w\"} : f32[3]\ngradient %w %x",
     "gradient: the value has another type than the parameter"},
};

static void errors_name_place_and_rule(void **state)
{
    MotCtx *ctx = *state;
    for (size_t i = 0; i < sizeof broken_lines / sizeof *broken_lines; i++) {
        const char *body = mot_arena_printf(&ctx->arena, "%%x = input {name=\"x\"} : f32[2x3]\n%s",
                                            broken_lines[i].lines);
        MotStatus status = strstr(broken_lines[i].message, "2^62") ? MOT_ERR_LIMIT : MOT_ERR_MODEL;
        check_refuses(ctx, in_graph(ctx, body), status, broken_lines[i].message);
    }
    check_refuses(ctx, "", MOT_ERR_MODEL, "expected one graph @name { ... }, found 0 records");
    check_refuses(ctx, "graph @a { } graph @b { }", MOT_ERR_MODEL, "found 2 records");
    check_refuses(ctx, "graph a { }", MOT_ERR_MODEL, "expected `graph @name { ... }`");
    check_refuses(ctx, "motley graph 2\ngraph @a { }", MOT_ERR_MISMATCH,
                  "this Motley reads version 1");
    check_refuses(ctx, "motley plan 1\ngraph @a { }", MOT_ERR_MISMATCH, "this is a motley plan");
    assert_string_equal(print(parse(ctx, "graph @a { }")), "motley graph 1\ngraph @a {\n}\n");
}

static void products_of_sizes_stay_below_the_limit(void **state)
{
    check_refuses(*state,
                  in_graph(*state, "%x = input {name=\"x\"} : bool[2147483648x1]  "
                                   "%y = input {name=\"y\"} : bool[1x2147483648]  %z = xor %x %y"),
                  MOT_ERR_LIMIT, "xor: the result has 2^62 elements or more");
}

/* ---- Verifier: each case breaks one thing of a graph that is accepted ---- */

typedef struct {
    MotGraph *g;
    MotOpId input, param, exp, add, output;
} Sample;

static Sample make_sample(MotCtx *ctx)
{
    Sample s = {
        .g = parse(ctx,
                   "graph @t {"
                   "  %x = input {name=\"x\"} : f32[2x3]"
                   "  %w = param {name=\"w\", file_dims=[3, 2], perm=[1, 0], trained} : f32[2x3]"
                   "  %e = exp %x {origin=\"/Exp\"}"
                   "  %a = add %e %w {fwd=%e, role=dx}"
                   "  output %a {name=\"a\"} }")};
    s.input = 1, s.param = 2, s.exp = 3, s.add = 4, s.output = 5;
    check_verifies(s.g);
    return s;
}

static void check_violates(const MotGraph *g, const char *message)
{
    assert_int_equal(mot_graph_verify(g), MOT_ERR_MODEL);
    if (!strstr(mot_text_get(&g->ctx->error), message))
        fail_msg("gives    %s\n  expected %s", mot_text_get(&g->ctx->error), message);
    mot_error_clear(g->ctx);
}

static MotValueInfo *result(Sample *s, MotOpId op)
{
    return &s->g->values.data[s->g->ops.data[op].out[0]];
}

#define CASE(message, ...)                                                                         \
    do {                                                                                           \
        Sample s = make_sample(*state);                                                            \
        MotOp *ops = s.g->ops.data;                                                                \
        (void)ops;                                                                                 \
        __VA_ARGS__;                                                                               \
        check_violates(s.g, message);                                                              \
    } while (0)

static void the_body_is_checked(void **state)
{
    CASE("place 2 of the body holds op 9 of 5", s.g->body.data[2] = 9);
    CASE("place 2 of the body holds op 0 of 5", s.g->body.data[2] = 0);
    CASE("op 2 stands twice in the body", s.g->body.data[2] = 2);
    CASE("op 3 has no kind", ops[s.exp].kind = MOT_OP_NONE);
    CASE("op 3 has no kind", ops[s.exp].kind = MOT_N_OPS);
    CASE("its forward op 7 is not in the body", ops[s.add].fwd = 7);
    CASE("operand 0, value 3, is not defined before", s.g->body.data[2] = s.add,
         s.g->body.data[3] = s.exp);
    CASE("graph \"t\": op add (op 4, add): ", ops[s.add].in[0] = ops[s.add].out[0]);
}

static void operands_and_results_are_checked(void **state)
{
    CASE("1 operands, there must be 2 to 2", ops[s.add].n_in = 1);
    CASE("operand 0 is value 99 of 4", ops[s.add].in[0] = 99);
    CASE("operand 1 is absent and not optional", ops[s.add].in[1] = 0);
    CASE("node \"/Exp\" (op 3, exp): 0 results, there must be 1", ops[s.exp].n_out = 0);
    CASE("result 0 is value 99 of 4", ops[s.exp].out[0] = 99);
    CASE("result 0, value 1, is defined twice", ops[s.exp].out[0] = 1);
    CASE("names result 0 of op 2 as its definition", result(&s, s.exp)->def = 2);
    CASE("names result 1 of op 3 as its definition", result(&s, s.exp)->def_index = 1);
}

static void types_are_checked(void **state)
{
    CASE("result 0 has type f32[2x4], the operands give f32[2x3]",
         result(&s, s.exp)->type.dims[1] = 4);
    CASE("result 0 has type f64[2x3], the operands give f32[2x3]",
         result(&s, s.exp)->type.dtype = MOT_F64);
    CASE("a result has no type: dtype 0, rank 2", result(&s, s.input)->type.dtype = MOT_NO_DTYPE);
    CASE("a result has no type: dtype 1, rank 9", result(&s, s.input)->type.rank = 9);
    CASE("dim 0 of a result is symbol 0 of 0", result(&s, s.input)->type.dims[0] = -1);
    CASE("a result has 2^62 elements or more", result(&s, s.input)->type.dims[0] = INT64_MAX);
    CASE("shapes do not broadcast",
         result(&s, s.exp)->type.dims[1] = result(&s, s.input)->type.dims[1] = 5);
    CASE("symbolic dim 0 has the name \"max\"",
         mot_vec_push(&s.g->ctx->arena, &s.g->symbols, "max"));
}

static void sources_are_checked(void **state)
{
    CASE("\"x\" names another input or parameter too", mot_attrs(&ops[s.param], param)->name = "x");
    CASE("has no name", mot_attrs(&ops[s.input], input)->name = NULL);
    CASE("perm is no permutation", mot_attrs(&ops[s.param], param)->perm.data[0] = 0);
    CASE("perm is no permutation", mot_attrs(&ops[s.param], param)->perm.data[0] = 2);
    CASE("perm is no permutation", mot_attrs(&ops[s.param], param)->perm.n = 1);
    CASE("file_dims have another number of elements than f32[2x3]",
         mot_attrs(&ops[s.param], param)->file_dims.data[0] = 4);
    CASE("file_dims have another number", mot_attrs(&ops[s.param], param)->file_dims.data[0] = -3);
}

static void all_violations_are_told_and_nothing_else(void **state)
{
    MotCtx *ctx = *state;
    Sample s = make_sample(ctx);
    result(&s, s.exp)->type.dims[1] = 4;
    mot_attrs(&s.g->ops.data[s.param], param)->name = "x";
    s.g->ops.data[s.output].fwd = 17;
    assert_int_equal(mot_graph_verify(s.g), MOT_ERR_MODEL);
    const char *text = mot_text_get(&ctx->error);
    assert_non_null(strstr(text, "names another input"));
    assert_non_null(strstr(text, "\n  node \"/Exp\" (op 3, exp): result 0 has type f32[2x4]"));
    assert_non_null(strstr(text, "shapes do not broadcast"));
    assert_non_null(strstr(text, "its forward op 17"));
    mot_error_clear(ctx);

    MotText many;
    mot_text_init(&many, &ctx->arena);
    mot_text_puts(&many, "graph @t {");
    for (int i = 0; i < 30; i++)
        mot_text_printf(&many, " %%v%d = input {name=\"same\"} : f32", i);
    mot_text_puts(&many, " }");
    check_violates(parse(ctx, mot_text_get(&many)), "\n  and 9 more");
}

static void a_failed_context_is_handed_on(void **state)
{
    MotCtx *ctx = *state;
    Sample s = make_sample(ctx);
    mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "earlier");
    assert_int_equal(mot_graph_verify(s.g), MOT_ERR_UNSUPPORTED);
    assert_string_equal(mot_text_get(&ctx->error), "earlier");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(a_training_graph_prints_as_itself),
        TEST(composites_and_absent_operands_print_as_themselves),
        TEST(built_graphs_print_and_parse_back),
        TEST(types_may_be_left_out_where_operands_give_them),
        TEST(constants_keep_every_bit),
        TEST(constants_are_checked),
        TEST(symbolic_dims_keep_their_numbers),
        TEST(errors_name_place_and_rule),
        TEST(products_of_sizes_stay_below_the_limit),
        TEST(the_body_is_checked),
        TEST(operands_and_results_are_checked),
        TEST(types_are_checked),
        TEST(sources_are_checked),
        TEST(all_violations_are_told_and_nothing_else),
        TEST(a_failed_context_is_handed_on),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
