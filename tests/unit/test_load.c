/* job/load: the line of /proc/stat, and what is left of it for others. */
#include "job/load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void everything_but_idle_counts(void **state)
{
    (void)state;
    double ticks = 0;
    assert_true(mot_load_parse("cpu  10 20 30 1000 500 1 2 3 7 8\n", &ticks));
    assert_true(ticks == 66);
    assert_false(mot_load_parse("cpu  10 20 30 1000 500 1 2\n", &ticks));
    assert_false(mot_load_parse("intr 10 20 30 1000 500 1 2 3\n", &ticks));
}

static void others_are_what_is_not_ours(void **state)
{
    (void)state;
    MotLoad from = {.at_ns = 1000000000, .all = 50, .own = 2, .is_known = true};
    MotLoad to = {.at_ns = 3000000000, .all = 55, .own = 4, .is_known = true};
    assert_true(mot_load_others(&from, &to) == 1.5);
    to.own = 8; /* ticks are coarse */
    assert_true(mot_load_others(&from, &to) == 0);
    to = (MotLoad){.at_ns = 3000000000};
    assert_true(mot_load_others(&from, &to) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_but_idle_counts),
        cmocka_unit_test(others_are_what_is_not_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
