/* Which columns a cut leaves: by priority, in a window, at random. */
#include "runtime/cuts.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check_list(const int64_t *list, const int64_t *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(list[i], wanted[i]);
}

static void the_highest_priorities_stay(void **state)
{
    MotArena *arena = &((MotCtx *)*state)->arena;
    const double p[] = {3, 1, 5, 5, 0, 4};
    int64_t list[6];
    mot_cut_pick(arena, MOT_PICK_PRIORITY, p, 6, 0, 3, list);
    check_list(list, (const int64_t[]){2, 3, 5}, 3);
    mot_cut_pick(arena, MOT_PICK_PRIORITY, p, 6, 0, 1, list); /* of equal ones the first */
    check_list(list, (const int64_t[]){2}, 1);
    mot_cut_pick(arena, MOT_PICK_PRIORITY, p, 6, 0, 6, list);
    check_list(list, (const int64_t[]){0, 1, 2, 3, 4, 5}, 6);
}

static void a_window_is_the_best_contiguous_one(void **state)
{
    MotArena *arena = &((MotCtx *)*state)->arena;
    const double p[] = {9, 0, 0, 5, 6, 1};
    int64_t list[6];
    mot_cut_pick(arena, MOT_PICK_WINDOW, p, 6, 0, 2, list);
    check_list(list, (const int64_t[]){3, 4}, 2);
    mot_cut_pick(arena, MOT_PICK_WINDOW, p, 6, 0, 1, list);
    check_list(list, (const int64_t[]){0}, 1);
    mot_cut_pick(arena, MOT_PICK_WINDOW, p, 6, 0, 6, list);
    check_list(list, (const int64_t[]){0, 1, 2, 3, 4, 5}, 6);
}

/* Ascending, of the right number, the same for a seed; over seeds every column as often. */
static void random_picks_are_uniform(void **state)
{
    enum { COLUMNS = 20, KEPT = 5, SEEDS = 4000 };
    MotArena *arena = &((MotCtx *)*state)->arena;
    int64_t list[COLUMNS], again[COLUMNS], times[COLUMNS] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        mot_cut_pick(arena, MOT_PICK_RANDOM, NULL, COLUMNS, seed, KEPT, list);
        mot_cut_pick(arena, MOT_PICK_RANDOM, NULL, COLUMNS, seed, KEPT, again);
        assert_memory_equal(list, again, KEPT * sizeof *list);
        for (int i = 0; i < KEPT; i++) {
            assert_true(list[i] < COLUMNS && list[i] > (i ? list[i - 1] : -1));
            times[list[i]]++;
        }
    }
    for (int k = 0; k < COLUMNS; k++) /* six standard deviations of 1000 */
        assert_true(llabs(times[k] - 1000) < 165);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(the_highest_priorities_stay),
        TEST(a_window_is_the_best_contiguous_one),
        TEST(random_picks_are_uniform),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
