/* support/json: what is written reads back equal, whatever the strings and numbers are. */
#include "support/json.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const MotJson *read_back(MotCtx *ctx, const MotJsonWriter *w)
{
    const MotJson *root = NULL;
    assert_int_equal(mot_json_parse(ctx, MOT_ERR_DATA, "written", w->text.data, w->text.n, &root),
                     MOT_OK);
    return root;
}

static void commas_and_nesting(void **state)
{
    MotCtx *ctx = *state;
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_open(&w, "empty", '[');
    mot_json_close(&w, ']');
    mot_json_put_ints(&w, "ints", (const int64_t[]){1, -2, INT64_MAX}, 3);
    mot_json_open(&w, "objects", '[');
    for (int i = 0; i < 2; i++) {
        mot_json_open(&w, NULL, '{');
        mot_json_put_bool(&w, "b", i == 1);
        mot_json_put_string(&w, "s", i ? "x" : NULL);
        mot_json_close(&w, '}');
    }
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    assert_string_equal(mot_text_get(&w.text),
                        "{\"empty\": [], \"ints\": [1, -2, 9223372036854775807], \"objects\": "
                        "[{\"b\": false, \"s\": null}, {\"b\": true, \"s\": \"x\"}]}");
    read_back(ctx, &w);
}

static void numbers_read_back_equal(void **state)
{
    MotCtx *ctx = *state;
    static const double numbers[] = {0,      1,    -0.1,    1.0 / 3, 1e300, 5e-324, 123456789012.0,
                                     2.5e-7, 1e22, 0x1p-126};
    enum { N = sizeof numbers / sizeof *numbers };
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '[');
    for (int i = 0; i < N; i++)
        mot_json_put_number(&w, NULL, numbers[i]);
    mot_json_put_number(&w, NULL, (double)0.1f); /* reads back equal as a float */
    mot_json_put_number(&w, NULL, (double)NAN);
    mot_json_put_number(&w, NULL, -(double)INFINITY);
    mot_json_close(&w, ']');
    const MotJson *root = read_back(ctx, &w);
    for (int i = 0; i < N; i++) {
        double back = mot_json_number(mot_json_at(root, (size_t)i), -1);
        assert_true(back == numbers[i] || (float)back == (float)numbers[i]);
        if ((double)(float)numbers[i] != numbers[i])
            assert_true(back == numbers[i]);
    }
    assert_true((float)mot_json_number(mot_json_at(root, N), 0) == 0.1f);
    assert_true(mot_json_number(mot_json_at(root, N + 1), -7) == -7); /* null */
    assert_true(mot_json_number(mot_json_at(root, N + 2), -7) == -7);
}

static void integers_are_written_as_such(void **state)
{
    MotCtx *ctx = *state;
    static const double numbers[] = {0, -3, 0x1p31, 1e9, 0x1p53 - 1, 1.5};
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '[');
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mot_json_put_number(&w, NULL, numbers[i]);
    mot_json_close(&w, ']');
    assert_string_equal(mot_text_get(&w.text),
                        "[0, -3, 2147483648, 1000000000, 9007199254740991, 1.5]");
}

static void strings_of_any_bytes_make_valid_json(void **state)
{
    MotCtx *ctx = *state;
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "quote\"\\\x1b[31m\n", "\x07 \xc3\xa4 \xff\xfe \xe2\x82 end");
    mot_json_close(&w, '}');
    const MotJson *root = read_back(ctx, &w);
    assert_string_equal(mot_json_string(mot_json_get(root, "quote\"\\\x1b[31m\n"), ""),
                        "\x07 \xc3\xa4 \xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd end");
    for (size_t i = 0; i < w.text.n; i++)
        assert_true((unsigned char)w.text.data[i] >= 0x20);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(commas_and_nesting),
        TEST(numbers_read_back_equal),
        TEST(integers_are_written_as_such),
        TEST(strings_of_any_bytes_make_valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
