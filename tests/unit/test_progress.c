/*
 * cli/progress: the lines of a terminal stay within its columns, whatever the names are; what does
 * not fit is left out whole.
 */
#include "cli/progress.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"a", "a-device-with-a-very-long-name", "\x1b[31mred",
                                    "ger\xc3\xa4t"};
static const double busy[] = {1, 0.5, 0, 2};

static MotStepReport make_report(void)
{
    return (MotStepReport){.step = 120,
                           .steps = 5000,
                           .loss = 3.2104,
                           .norm = 0.82,
                           .lr = 3e-4,
                           .ms = 182.4,
                           .rate = 179664,
                           .unit = "tok",
                           .mfu = 0.412,
                           .balance = 0.97,
                           .busy = busy};
}

/* Characters, without sequences of colour. */
static uint32_t count_columns(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) {
        if (*text == '\x1b') {
            text += strcspn(text, "m");
            continue;
        }
        n += (*text & 0xc0) != 0x80;
    }
    return n;
}

static void the_line_is_that_of_the_manual(void **state)
{
    MotCtx *ctx = *state;
    MotStepReport r = make_report();
    assert_string_equal(
        mot_progress_line(&ctx->arena, &r, UINT32_MAX),
        "step 120/5000 | loss 3.2104 | norm 0.82 | lr 3.00e-04 | 182.4 ms | 179,664 tok/s | mfu "
        "41.2% | bal 97% | eta 00:14:50");
    r.norm = r.mfu = NAN;
    assert_string_equal(mot_progress_line(&ctx->arena, &r, 60),
                        "step 120/5000 | loss 3.2104 | lr 3.00e-04 | 182.4 ms");
}

static void nothing_is_wider_than_the_terminal(void **state)
{
    MotCtx *ctx = *state;
    MotStepReport r = make_report();
    for (uint32_t n = 1; n <= 4; n++)
        for (uint32_t columns = 1; columns <= 200; columns++) {
            MotProgress p = {.devices = names, .n_devices = n, .has_color = columns % 2};
            const char *line = mot_progress_line(&ctx->arena, &r, columns),
                       *strip = mot_progress_strip(&p, &ctx->arena, busy, columns);
            assert_true(count_columns(line) <= columns);
            assert_true(count_columns(strip) <= columns && count_columns(strip) > 0);
            assert_true(line[0] == 0 || line[strlen(line) - 1] != '|');
            assert_true(mot_utf8_is_valid(strip, strlen(strip)));
            assert_true((strchr(strip, '\x1b') != NULL) == p.has_color);
        }
}

static void bars_are_as_long_as_devices_were_busy(void **state)
{
    MotCtx *ctx = *state;
    MotProgress p = {.devices = names, .n_devices = 4};
    assert_string_equal(mot_progress_strip(&p, &ctx->arena, busy, 120),
                        "a            ██████████  ...long-name █████·····  "
                        "\\x1b[31mred  ··········  ger\xc3\xa4t        ██████████");
    assert_string_equal(mot_progress_strip(&p, &ctx->arena, busy, 30),
                        "██████  ███···  ······  ██████");
    assert_string_equal(mot_progress_strip(&p, &ctx->arena, busy, 10), "█▅▁█");
    assert_string_equal(mot_progress_strip(&p, &ctx->arena, busy, 3), "█▅▁");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_line_is_that_of_the_manual),
        TEST(nothing_is_wider_than_the_terminal),
        TEST(bars_are_as_long_as_devices_were_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
