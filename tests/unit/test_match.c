/* passes/graph/match: what patterns match and what they do not. */
#include "passes/graph/match.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A graph of two inputs x and y of 4 elements and what `text` computes from them as %r. */
static const char *const head =
    "motley graph 1\ngraph @g {\n%x = input {name=\"x\"} : f32[4]\n"
    "%y = input {name=\"y\"} : f32[4]\n"
    "%one = constant {data=1.0} : f32\n%two = constant {data=2.0} : f32\n"
    "%ones = constant {data=[1.0, 1.0, 1.0, 1.0]} : f32[4]\n"
    "%mixed = constant {data=[1.0, 2.0, 1.0, 1.0]} : f32[4]\n";

typedef struct {
    MotGraph *g;
    MotMatch match;
} Found;

static MotValue value_named(const MotGraph *g, const char *name)
{
    for (MotValue v = 1; v < g->values.n; v++)
        if (g->values.data[v].name && strcmp(g->values.data[v].name, name) == 0)
            return v;
    fail_msg("no value %s", name);
    return 0;
}

/* Whether the pattern matches %r. */
static bool matches(MotCtx *ctx, const char *text, const char *pattern_text, Found *out)
{
    const char *file =
        mot_arena_printf(&ctx->arena, "%s%s\noutput %%r {name=\"r\"}\n}\n", head, text);
    MotPattern *pattern = NULL;
    if (mot_graph_parse(ctx, "test", file, &out->g) != MOT_OK ||
        mot_pattern_parse(ctx, pattern_text, &pattern) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    MotValue root = value_named(out->g, "r");
    out->match = (MotMatch){.graph = out->g};
    return mot_pattern_may_match(pattern, mot_graph_def(out->g, root)->kind) &&
           mot_pattern_match(pattern, &out->match, root);
}

typedef struct {
    const char *text, *pattern;
    bool is_match;
} Case;

static const Case cases[] = {
    {"%r = add %x %y : f32[4]", "add(?a, ?b)", true},
    {"%r = add %x %y : f32[4]", "add(?a, ?a)", false},
    {"%r = add %x %x : f32[4]", "add(?a, ?a)", true},
    {"%r = add %x %y : f32[4]", "mul(?a, ?b)", false},
    {"%r = add %x %y : f32[4]", "add", true},
    {"%r = add %x %y : f32[4]", "pointwise", true},
    {"%r = reshape %x {dims=[2, 2]} : f32[2x2]", "pointwise", false},
    {"%r = reshape %x {dims=[2, 2]} : f32[2x2]", "*", true},
    /* Numbers */
    {"%r = mul %x %one : f32[4]", "mul(?a, 1)", true},
    {"%r = mul %one %x : f32[4]", "mul(?a, 1)", true},
    {"%r = mul %x %ones : f32[4]", "mul(?a, 1)", true},
    {"%r = mul %x %mixed : f32[4]", "mul(?a, 1)", false},
    {"%r = mul %x %two : f32[4]", "mul(?a, 1)", false},
    {"%r = mul %x %two : f32[4]", "mul(?a, ~2.0001)", true},
    {"%r = mul %x %two : f32[4]", "mul(?a, 2.0001)", false},
    {"%r = mul %x %two : f32[4]", "mul(?a, ~2.001)", false},
    /* Orders: div has one, add two; a wrong choice is taken back */
    {"%r = div %one %x : f32[4]", "div(?a, 1)", false},
    {"%a = mul %x %y : f32[4]\n%r = add %a %y : f32[4]", "add(?b, mul(?b, ?c))", true},
    {"%a = mul %x %y : f32[4]\n%r = add %y %a : f32[4]", "add(mul(?b, ?c), ?c)", true},
    {"%a = mul %x %y : f32[4]\n%r = add %two %a : f32[4]", "add(mul(?b, ?c), ?c)", false},
    {"%a = exp %x : f32[4]\n%b = neg %a : f32[4]\n%r = add %b %a : f32[4]",
     "add(?e=exp(?a), neg(?e))", true},
    {"%a = exp %x : f32[4]\n%b = neg %y : f32[4]\n%r = add %b %a : f32[4]",
     "add(?e=exp(?a), neg(?e))", false},
    /* Products */
    {"%a = mul %x %two : f32[4]\n%r = mul %a %y : f32[4]", "product(?a, ?b, 2)", true},
    {"%a = mul %x %y : f32[4]\n%r = mul %two %a : f32[4]", "product(?a, ?b, 2)", true},
    {"%a = mul %x %y : f32[4]\n%r = div %a %two : f32[4]", "product(?a, ?b, 0.5)", true},
    {"%a = mul %x %y : f32[4]\n%r = div %a %two : f32[4]", "product(?a, 0.5)", true},
    {"%a = mul %x %y : f32[4]\n%r = div %a %two : f32[4]", "product(?a, ?b)", false},
    {"%a = mul %x %two : f32[4]\n%r = mul %a %two : f32[4]", "product(?a, 4)", true},
    {"%a = neg %x : f32[4]\n%r = mul %a %two : f32[4]", "product(?a, -2)", true},
    {"%a = exp %y : f32[4]\n%b = mul %a %x : f32[4]\n%r = mul %b %x : f32[4]",
     "product(?b, ?b, exp(?c))", true},
    {"%a = exp %y : f32[4]\n%b = mul %a %x : f32[4]\n%r = mul %b %y : f32[4]",
     "product(?b, ?b, exp(?c))", false},
    {"%a = mul %x %y : f32[4]\n%b = exp %a : f32[4]\n%r = mul %a %b : f32[4]",
     "product(?b, exp(?b))", true},
};

static void patterns_match_what_they_say(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Found found;
        if (matches(*state, cases[i].text, cases[i].pattern, &found) != cases[i].is_match)
            fail_msg("%s and %s", cases[i].text, cases[i].pattern);
    }
}

static void names_are_bound(void **state)
{
    Found f;
    assert_true(matches(*state,
                        "%e = exp %y : f32[4]\n%a = mul %two %e : f32[4]\n%r = add %a %x : f32[4]",
                        "add(?z, product(?e=exp(?w), #c))", &f));
    assert_int_equal(mot_match_value(&f.match, 'z'), value_named(f.g, "x"));
    assert_int_equal(mot_match_value(&f.match, 'w'), value_named(f.g, "y"));
    assert_int_equal(mot_match_value(&f.match, 'e'), value_named(f.g, "e"));
    assert_true(mot_match_number(&f.match, 'c') == 2);
    assert_int_equal(f.match.root, value_named(f.g, "r"));
}

static void a_broken_pattern_is_refused(void **state)
{
    static const char *const broken[] = {"",
                                         "add(?a",
                                         "nop(?a)",
                                         "add(?a,)",
                                         "add(?A, 1)",
                                         "add(~,)",
                                         "add(?a, ?b) ?",
                                         "?a=?b",
                                         "mul(1, 2, 3, 4, 5, 6, 7)"};
    MotCtx *ctx = *state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        MotPattern *pattern;
        if (mot_pattern_parse(ctx, broken[i], &pattern) != MOT_ERR_INTERNAL)
            fail_msg("\"%s\" was taken", broken[i]);
        mot_error_clear(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(patterns_match_what_they_say, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(names_are_bound, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(a_broken_pattern_is_refused, make_ctx, drop_ctx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
