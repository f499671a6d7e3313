/* ir/record: the grammar, what it rejects and where, both printers. */
#include "ir/record.h"

#include "support/json.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static MotRecords parse(MotCtx *ctx, const char *text)
{
    MotRecords records = {0};
    if (mot_records_parse(ctx, "t.mot", text, &records) != MOT_OK)
        fail_msg("%s\n%s", text, mot_text_get(&ctx->error));
    return records;
}

static const char *print(MotCtx *ctx, const MotRecords *records)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_records_print(records, &text);
    return mot_text_get(&text);
}

/* `text` prints as `printed`, which prints as itself. */
static void check_prints(MotCtx *ctx, const char *text, const char *printed)
{
    MotRecords first = parse(ctx, text);
    assert_string_equal(print(ctx, &first), printed);
    MotRecords second = parse(ctx, printed);
    assert_string_equal(print(ctx, &second), printed);
}

static void check_refuses(MotCtx *ctx, const char *text, MotStatus status, const char *message)
{
    MotRecords records;
    assert_int_equal(mot_records_parse(ctx, "t.mot", text, &records), status);
    if (!strstr(mot_text_get(&ctx->error), message))
        fail_msg("%s\n  gives    %s\n  expected %s", text, mot_text_get(&ctx->error), message);
    mot_error_clear(ctx);
}

static void all_of_a_record_is_read(void **state)
{
    MotCtx *ctx = *state;
    MotRecords records = parse(
        ctx, "  %a, %b = op word @sym %\"a b\" -7 _ {n=3, keep, w=comm} : f32[8x@hx64], i64 {\n"
             "    inner\n  }\n");
    assert_int_equal(records.n, 1);
    const MotRecord *r = &records.data[0];
    assert_string_equal(r->op, "op");
    assert_int_equal(r->pos.line, 1);
    assert_int_equal(r->pos.column, 3);
    assert_int_equal(r->out.n, 2);
    assert_string_equal(r->out.data[1].text, "b");

    assert_int_equal(r->in.n, 5);
    assert_int_equal(r->in.data[0].kind, MOT_TERM_WORD);
    assert_int_equal(r->in.data[1].kind, MOT_TERM_SYMBOL);
    assert_string_equal(r->in.data[1].text, "sym");
    assert_string_equal(r->in.data[2].text, "a b");
    assert_int_equal(r->in.data[3].integer, -7);
    assert_int_equal(r->in.data[4].kind, MOT_TERM_NONE);

    assert_int_equal(mot_record_attr(r, "n")->integer, 3);
    assert_int_equal(mot_record_attr(r, "keep")->kind, MOT_TERM_NONE);
    assert_string_equal(mot_record_attr(r, "w")->text, "comm");
    assert_null(mot_record_attr(r, "m"));

    assert_int_equal(r->types.n, 2);
    assert_int_equal(r->types.data[0].dtype, MOT_F32);
    assert_int_equal(r->types.data[0].rank, 3);
    assert_int_equal(r->types.data[0].dims[0].size, 8);
    assert_string_equal(r->types.data[0].dims[1].symbol, "h");
    assert_int_equal(r->types.data[0].dims[2].size, 64);
    assert_int_equal(r->types.data[1].rank, 0);
    assert_true(r->has_body);
    assert_int_equal(r->body.n, 1);
    assert_int_equal(r->body.data[0].pos.line, 2);
}

static void texts_of_all_structures_print_as_themselves(void **state)
{
    static const char program[] =
        "motley program 1\n"
        "program @s0 {\n"
        "  dim @h {share=@heads, parts=\"8/4/2/1\"}\n"
        "  buf %q : f32[8x256x@hx64]\n"
        "  section step {\n"
        "    launch @k7 %x %wq %q {stream=compute, origin=\"h.0.attn\"}\n"
        "    allreduce %p {stream=comm, axis=\"tp\", wait=1, signal=2}\n"
        "    barrier\n"
        "    %y = scan _ %q {n=-3, list=[1, 2.5, [@a, %b, w, \"s\"], []]} : f32[0] {\n"
        "    }\n"
        "  }\n"
        "}\n";
    check_prints(*state, program, program);
}

static void records_may_share_a_line(void **state)
{
    check_prints(
        *state,
        "graph @t { %x = input : f32[4x16]  %e = exp %x : f32[4x16] %f, %g = two %e  output %y "
        "output %z {name=\"z\"} end }",
        "graph @t {\n"
        "  %x = input : f32[4x16]\n"
        "  %e = exp %x : f32[4x16]\n"
        "  %f, %g = two %e\n"
        "  output %y\n"
        "  output %z {name=\"z\"}\n"
        "  end\n"
        "}\n");
}

static void line_ends_tell_a_flag_from_a_body(void **state)
{
    check_prints(*state, "a {word}\nb {word\n}\nc {\n}\nd {}",
                 "a {word}\nb {\n  word\n}\nc {\n}\nd {\n}\n");
    check_prints(*state, "a {\n  flag, // more\n  n =\n 3\n}", "a {flag, n=3}\n");
    check_prints(*state, "a {flag} {\n b }\n", "a {flag} {\n  b\n}\n");
}

static void comments_and_blanks_are_skipped(void **state)
{
    check_prints(*state, "// head\r\n\ta // b %c {\r\n//\n b//", "a\nb\n");
    check_prints(*state, "", "");
    check_prints(*state, "a {s=\"// no comment\"}", "a {s=\"// no comment\"}\n");
}

static void names_that_are_not_plain_are_quoted(void **state)
{
    check_prints(*state, "%\"plain\" = a @\"h.0\" %\"/h/0\" @\"\" %0 %a.b",
                 "%plain = a @h.0 %\"/h/0\" @\"\" %0 %a.b\n");
}

static void strings_keep_all_bytes(void **state)
{
    MotCtx *ctx = *state;
    MotRecords records = parse(ctx, "a {s=\"q\\\" b\\\\ \\x01\\x0a\\xff \xc3\xa9\"}");
    assert_string_equal(mot_record_attr(&records.data[0], "s")->text,
                        "q\" b\\ \x01\n\xff \xc3\xa9");
    assert_string_equal(print(ctx, &records), "a {s=\"q\\\" b\\\\ \\x01\\x0a\\xff \xc3\xa9\"}\n");
    check_refuses(ctx, "a {s=\"\\n\"}", MOT_ERR_MODEL, "line 1, column 6: bad escape");
    check_refuses(ctx, "a {s=\"\\x00\"}", MOT_ERR_MODEL, "bad escape");
    check_refuses(ctx, "a {s=\"\\x4\"}", MOT_ERR_MODEL, "bad escape");
    check_refuses(ctx, "a {s=\"open\n\"}", MOT_ERR_MODEL, "does not end on its line");
    check_refuses(ctx, "a {s=\"open\\", MOT_ERR_MODEL, "does not end on its line");
}

static void floats_read_back_to_the_same_bits(void **state)
{
    MotCtx *ctx = *state;
    static const double numbers[] = {0.0,         -0.0,
                                     1,           -3,
                                     0.1,         1e-5,
                                     1e22,        1.0 / 3,
                                     5e-324,      1.7976931348623157e308,
                                     123456789.0, 0.30000000000000004};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        MotText text;
        mot_text_init(&text, &ctx->arena);
        mot_text_puts(&text, "a {f=");
        mot_text_add_float(&text, numbers[i]);
        mot_text_puts(&text, "}");
        MotRecords records = parse(ctx, mot_text_get(&text));
        const MotTerm *f = mot_record_attr(&records.data[0], "f");
        assert_int_equal(f->kind, MOT_TERM_FLOAT);
        assert_memory_equal(&f->number, &numbers[i], sizeof f->number);
    }
    check_prints(ctx, "a {f=[1.0, 1e-05, 0.1, inf, -inf, +inf, nan, 1e5, -0.0]}",
                 "a {f=[1.0, 1e-05, 0.1, inf, -inf, inf, nan, 100000.0, -0.0]}\n");
    check_refuses(ctx, "a {f=1e999}", MOT_ERR_MODEL, "1e999 does not fit 64 bits");
}

static void integers_keep_64_bits(void **state)
{
    check_prints(*state, "a 9223372036854775807 -9223372036854775808 +5",
                 "a 9223372036854775807 -9223372036854775808 5\n");
    check_refuses(*state, "a 9223372036854775808", MOT_ERR_MODEL, "does not fit 64 bits");
    check_refuses(*state, "a : f32[9223372036854775808]", MOT_ERR_MODEL,
                  "line 1, column 9: the size does not fit");
    check_prints(*state, "a : f32[9223372036854775807]", "a : f32[9223372036854775807]\n");
}

static void errors_name_place_and_expectation(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"a\n  %x = {}", "t.mot: line 2, column 8: expected an op, found \"{\""},
        {"a {x=}",
         "line 1, column 6: expected a number, string, word, value, symbol or list, found \"}\""},
        {"a {x=1 y=2}", "expected `=`, `,` or `}` after an attribute, found \"y\""},
        {"a {x=1,\n 2}", "line 2, column 2: expected the name of an attribute"},
        {"a {x=1, x}", "line 1, column 9: attribute x is given twice"},
        {"a {x=[1 2]}", "expected `,`, found \"2\""},
        {"a {x=[_]}", "found \"_\""},
        {"a {x=[1", "found the end of the text"},
        {"a {\n b", "expected an op, a result or `}`, found the end of the text"},
        {"}", "line 1, column 1: expected an op or a result, found \"}\""},
        {"%a, b = c", "line 1, column 5: expected a value %name"},
        {"%a b", "expected `=`"},
        {"_ %a", "expected an op or a result"},
        {"a : f33[1]", "expected a type such as f32[8x256], found \"f33\""},
        {"a : f33", "hint: the element types are f32 f64 f16 bf16 u8 i32 i64 bool"},
        {"a : f32[1,2]", "line 1, column 10: expected `x` or `]` in the shape"},
        {"a : f32[x2]", "line 1, column 9: expected a size or @name"},
        {"a : f32[2x]", "line 1, column 11: expected a size or @name"},
        {"a : f32[@]", "line 1, column 10: expected a size or @name"},
        {"a : f32[1x1x1x1x1x1x1x1x1]", "a shape has at most 8 dims"},
        {"a : f32[2", "expected `x` or `]`"},
        {"a inf", "inf and nan are numbers"},
        {"a 1.5", "expected an op or a result, found \"1.5\""},
        {"a 0x10", "\"0\", which begins no token"},
        {"a {x=1e}", "begins no token"},
        {"a ; b",
         "line 1, column 3: expected an op or a result, found \";\", which begins no token"},
        {"a %", "begins no token"},
        {"a \x01", "\"\\x01\", which begins no token"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_refuses(*state, bad[i].text, MOT_ERR_MODEL, bad[i].message);
    check_prints(*state, "a : f32[1x1x1x1x1x1x1x1]", "a : f32[1x1x1x1x1x1x1x1]\n");
}

/* `n` times `open`, then as often `close`. */
static const char *nest(MotCtx *ctx, const char *head, const char *open, const char *close, int n)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_text_puts(&text, head);
    for (int i = 0; i < n; i++)
        mot_text_puts(&text, open);
    for (int i = 0; i < n; i++)
        mot_text_puts(&text, close);
    return mot_text_get(&text);
}

static void depth_and_attributes_are_limited(void **state)
{
    MotCtx *ctx = *state;
    const int depth = MOT_RECORD_MAX_DEPTH;
    parse(ctx, nest(ctx, "", "a {\n", "}", depth));
    check_refuses(ctx, nest(ctx, "", "a {\n", "}", depth + 1), MOT_ERR_LIMIT,
                  "line 65, column 3: blocks and lists nest");
    parse(ctx, mot_arena_printf(&ctx->arena, "%s}", nest(ctx, "a {x=", "[", "]", depth)));
    check_refuses(ctx, nest(ctx, "a {x=", "[", "]", depth + 1), MOT_ERR_LIMIT,
                  "nest deeper than 64");
    check_refuses(ctx, nest(ctx, "", "a {\n", "}", 1000000), MOT_ERR_LIMIT, "nest deeper than 64");
    MotText text;
    mot_text_init(&text, &ctx->arena);
    for (int i = 0; i < MOT_RECORD_MAX_ATTRS; i++)
        mot_text_printf(&text, "%s%d", i ? ", a" : "a {a", i);
    parse(ctx, mot_arena_printf(&ctx->arena, "%s}", mot_text_get(&text)));
    check_refuses(ctx, mot_arena_printf(&ctx->arena, "%s, b}", mot_text_get(&text)), MOT_ERR_LIMIT,
                  "more than 64 attributes");
}

static void json_has_the_same_content(void **state)
{
    MotCtx *ctx = *state;
    MotRecords records =
        parse(ctx, "%y = op w %x @s _ 3 {f=0.1, i=inf, keep, l=[1, \"t\"]} : f32[2x@h], i64 {\n"
                   "  inner\n}\nempty {\n}\n");
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_records_print_json(&records, &text);
    assert_string_equal(
        mot_text_get(&text),
        "[\n"
        "  {\"op\": \"op\", \"results\": [\"%y\"], \"operands\": [\"w\", \"%x\", \"@s\", null, 3], "
        "\"attributes\": {\"f\": 0.1, \"i\": \"inf\", \"keep\": true, \"l\": [1, \"t\"]}, "
        "\"types\": [\"f32[2x@h]\", \"i64\"], \"body\": [\n"
        "    {\"op\": \"inner\"}\n"
        "  ]},\n"
        "  {\"op\": \"empty\", \"body\": []}\n"
        "]\n");
    const MotJson *root;
    assert_int_equal(mot_json_parse(ctx, MOT_ERR_DATA, "t.json", text.data, text.n, &root), MOT_OK);
    assert_int_equal(mot_json_length(root), 2);
}

static void headers_are_checked(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "expected the header `motley plan 2`"},
        {"motley 2", "expected the header `motley plan 2`"},
        {"motley graph 2", "this is a motley graph, not a motley plan"},
        {"motley plan 3", "plan version 3, this Motley reads version 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        MotRecords records = parse(ctx, bad[i].text);
        assert_int_equal(mot_records_check_header(ctx, "t.mot", &records, "plan", 2),
                         MOT_ERR_MISMATCH);
        assert_non_null(strstr(mot_text_get(&ctx->error), bad[i].message));
        mot_error_clear(ctx);
    }
    MotRecords made = {0};
    mot_vec_push(&ctx->arena, &made, mot_record_header(ctx, "plan", 2));
    assert_string_equal(print(ctx, &made), "motley plan 2\n");
    MotRecords records = parse(ctx, print(ctx, &made));
    assert_int_equal(mot_records_check_header(ctx, "t.mot", &records, "plan", 2), MOT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(all_of_a_record_is_read),
        TEST(texts_of_all_structures_print_as_themselves),
        TEST(records_may_share_a_line),
        TEST(line_ends_tell_a_flag_from_a_body),
        TEST(comments_and_blanks_are_skipped),
        TEST(names_that_are_not_plain_are_quoted),
        TEST(strings_keep_all_bytes),
        TEST(floats_read_back_to_the_same_bits),
        TEST(integers_keep_64_bits),
        TEST(errors_name_place_and_expectation),
        TEST(depth_and_attributes_are_limited),
        TEST(json_has_the_same_content),
        TEST(headers_are_checked),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
