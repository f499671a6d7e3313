/* Files that appear whole, with the permissions that the user wants, whatever else lies there. */
#include "support/file.h"
#include "support/writer.h"
#include "tests/test_ctx.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/motley-writer-XXXXXX";

static const char *path_of(MotCtx *ctx, const char *name)
{
    return mot_arena_printf(&ctx->arena, "%s/%s", folder, name);
}

static void write_text(MotCtx *ctx, const char *path, const char *text)
{
    assert_int_equal(mot_file_write(ctx, path, text, strlen(text)), MOT_OK);
}

static void check_text(MotCtx *ctx, const char *path, const char *text)
{
    const MotFileMap *map;
    assert_int_equal(mot_file_map(ctx, path, &map), MOT_OK);
    assert_int_equal(map->n, strlen(text));
    assert_memory_equal(map->data, text, map->n);
}

static void permissions_follow_the_umask(void **state)
{
    static const mode_t masks[] = {022, 077, 0};
    mode_t before = umask(0);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const char *path = path_of(*state, "permissions");
        struct stat st;
        umask(masks[i]);
        write_text(*state, path, "text");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~masks[i]);
        unlink(path);
    }
    umask(before);
}

static void names_that_are_taken_are_passed_over(void **state)
{
    const char *path = path_of(*state, "draft"),
               *draft = mot_arena_printf(&((MotCtx *)*state)->arena, "%s.%d-0", path, getpid());
    write_text(*state, draft, "of a killed run");
    write_text(*state, path, "first");
    write_text(*state, path, "second");
    check_text(*state, path, "second");
    check_text(*state, draft, "of a killed run");
    unlink(draft);
    unlink(path);
}

static void what_fails_leaves_nothing(void **state)
{
    MotCtx *ctx = *state;
    const char *path = path_of(ctx, "no/such/folder/file");
    assert_int_equal(mot_file_write(ctx, path, "x", 1), MOT_ERR_IO);
    assert_non_null(strstr(mot_text_get(&ctx->error), "can't be written: No such file"));
    mot_error_clear(ctx);
    MotWriter w;
    path = path_of(ctx, "half");
    assert_int_equal(mot_writer_open(ctx, path, &w), MOT_OK);
    assert_int_equal(mot_writer_add(&w, "half", 4), MOT_OK);
    mot_ctx_fail_at(ctx, MOT_FAULT_write, 1);
    assert_int_equal(mot_writer_add(&w, "more", 4), MOT_ERR_IO);
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    assert_int_equal(mkdir(folder, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(permissions_follow_the_umask, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(names_that_are_taken_are_passed_over, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(what_fails_leaves_nothing, make_ctx, drop_ctx)};
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(folder) == 0 ? n_failed : EXIT_FAILURE;
}
