/*
 * runtime/checkpoint, the reading side: sound checkpoints, damaged ones, manifests that someone
 * sealed anew, and which one is found.
 */
#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"
#include "support/file.h"
#include "support/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
enum { N_FILES = sizeof files / sizeof *files };

typedef struct {
    MotCtx ctx;
    char dir[64];
} Fixture;

static int make_fixture(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    mot_ctx_init(&f->ctx);
    strcpy(f->dir, "/tmp/motley-checkpoint-XXXXXX");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int drop_fixture(void **state)
{
    Fixture *f = *state;
    const char *command = mot_arena_printf(&f->ctx.arena, "rm -rf %s", f->dir);
    int code = system(command);
    mot_ctx_deinit(&f->ctx);
    free(f);
    return code;
}

static void require(MotCtx *ctx, MotStatus status)
{
    if (status != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

static const char *path_in(Fixture *f, int step, const char *name)
{
    return mot_arena_printf(&f->ctx.arena, "%s/step-%06d/%s", f->dir, step, name);
}

static uint64_t hash_file(Fixture *f, const char *path)
{
    const MotFileMap *map;
    require(&f->ctx, mot_file_map(&f->ctx, path, &map));
    return mot_hash(map->data, map->n);
}

/* Writes a manifest with `fields`, the hashes of the files, and the seal. */
static void write_manifest(Fixture *f, int step, const char *fields)
{
    MotArena *arena = &f->ctx.arena;
    const char *text = mot_arena_printf(
        arena, "{%s, \"files\": {\"%s\": \"%016llx\", \"%s\": \"%016llx\"},\n", fields, files[0],
        (unsigned long long)hash_file(f, path_in(f, step, files[0])), files[1],
        (unsigned long long)hash_file(f, path_in(f, step, files[1])));
    text = mot_arena_printf(arena, "%s \"manifest\": \"%016llx\"}\n", text,
                            (unsigned long long)mot_hash(text, strlen(text)));
    require(&f->ctx, mot_file_write(&f->ctx, path_in(f, step, files[2]), text, strlen(text)));
}

static void write_checkpoint(Fixture *f, int step)
{
    float values[] = {1, 2, 3, 4};
    int64_t dims[] = {2, 2};
    MotNamedTensor tensors[] = {{"w", {mot_type_make(MOT_F32, 2, dims), values}}};
    require(&f->ctx, mot_file_make_dir(&f->ctx, path_in(f, step, "")));
    require(&f->ctx, mot_safetensors_write(&f->ctx, path_in(f, step, files[0]), tensors, 1));
    require(&f->ctx, mot_safetensors_write(&f->ctx, path_in(f, step, files[1]), tensors, 0));
    write_manifest(
        f, step,
        mot_arena_printf(&f->ctx.arena,
                         "\"motley\": 1, \"step\": %d, \"seed\": 5, \"batch\": 4, \"sample\": 28",
                         step));
}

static void check_refused(Fixture *f, int step, const char *text)
{
    MotCheckpointInfo info;
    if (mot_checkpoint_verify(&f->ctx, path_in(f, step, ""), &info) != MOT_ERR_DATA ||
        !strstr(mot_text_get(&f->ctx.error), text))
        fail_msg("refused with \"%s\", not \"%s\"", mot_text_get(&f->ctx.error), text);
    mot_error_clear(&f->ctx);
}

static void check_sound(Fixture *f, int step)
{
    MotCheckpointInfo info;
    require(&f->ctx, mot_checkpoint_verify(&f->ctx, path_in(f, step, ""), &info));
    assert_int_equal(info.step, step);
    assert_int_equal(info.seed, 5);
}

static void overwrite(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    bool is_written = file && fwrite(bytes, 1, n, file) == n;
    assert_true(file && fclose(file) == 0 && is_written);
}

static void any_damage_is_refused(void **state)
{
    Fixture *f = *state;
    write_checkpoint(f, 7);
    for (int i = 0; i < N_FILES; i++) {
        const char *path = path_in(f, 7, files[i]);
        const MotFileMap *map;
        require(&f->ctx, mot_file_map(&f->ctx, path, &map));
        size_t n = map->n;
        char *bytes = mot_arena_copy(&f->ctx.arena, map->data, n);
        for (size_t at = 0; at < n; at++) {
            bytes[at] = (char)(bytes[at] ^ (1 << at % 8)); /* a bit of every byte */
            overwrite(path, bytes, n);
            bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
            check_refused(f, 7, "was changed or cut off");
            overwrite(path, bytes, at); /* every length */
            check_refused(f, 7, "was changed or cut off");
        }
        unlink(path);
        check_refused(f, 7, i == 2 ? "it was not finished" : "is missing");
        overwrite(path, bytes, n);
        check_sound(f, 7);
    }
}

/* A seal shows damage, it does not make a manifest true. */
static void sealed_nonsense_is_refused(void **state)
{
    static const struct {
        const char *fields, *message;
    } cases[] = {
        {"\"motley\": 2, \"step\": 7, \"seed\": 5, \"batch\": 4, \"sample\": 28",
         "is of another version"},
        {"\"motley\": 1, \"step\": -7, \"seed\": 5, \"batch\": 4, \"sample\": 28",
         "has no sound step, seed, batch, sample and spent budget"},
        {"\"motley\": 1, \"step\": \"7\", \"seed\": 5, \"batch\": 4, \"sample\": 28",
         "has no sound step, seed, batch, sample and spent budget"},
        {"\"motley\": 1, \"step\": 7", "has no sound step, seed, batch, sample and spent budget"},
        {"\"motley\": 1, \"step\": 7, \"seed\": 5, \"batch\": 4, \"sample\": 28, \"vocabulary\": "
         "[4294967295]",
         "the vocabulary is no ascending list"},
        {"\"motley\": 1, \"step\": 7, \"seed\": 5, \"batch\": 4, \"sample\": 28, \"vocabulary\": "
         "[98, 97]",
         "the vocabulary is no ascending list"},
        {"\"motley\": 1, \"step\": 7, \"seed\": 5, \"batch\": 4, \"sample\": 28, \"files\": {}",
         ""},
        {"\"motley\"", ""},
    };
    Fixture *f = *state;
    write_checkpoint(f, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_manifest(f, 7, cases[i].fields);
        check_refused(f, 7, cases[i].message);
    }
    write_manifest(f, 7,
                   "\"motley\": 1, \"step\": 7, \"seed\": 5, \"batch\": 4, \"sample\": 28, "
                   "\"vocabulary\": [97, 98]");
    check_sound(f, 7);
}

static void the_newest_sound_one_is_found(void **state)
{
    Fixture *f = *state;
    const char *path;
    MotCheckpointInfo info;
    static const int order[] = {1000001, 999999, 7};
    for (int i = 0; i < 3; i++)
        write_checkpoint(f, order[i]);
    overwrite(mot_arena_printf(&f->ctx.arena, "%s/step-notes.txt", f->dir), "mine", 4);
    for (int i = 0; i < 3; i++) {
        require(&f->ctx, mot_checkpoint_find(&f->ctx, f->dir, &path, &info));
        assert_int_equal(info.step, order[i]);
        unlink(path_in(f, order[i], files[i]));
    }
    assert_int_equal(mot_checkpoint_find(&f->ctx, f->dir, &path, &info), MOT_ERR_DATA);
    assert_non_null(strstr(mot_text_get(&f->ctx.error), "holds no sound checkpoint"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_damage_is_refused, make_fixture, drop_fixture),
        cmocka_unit_test_setup_teardown(sealed_nonsense_is_refused, make_fixture, drop_fixture),
        cmocka_unit_test_setup_teardown(the_newest_sound_one_is_found, make_fixture, drop_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
