/* Opening ONNX files: the table of malformed ones, tensors, external data, orders, places. */
#include "frontend/onnx_check.h"
#include "frontend/onnx_sort.h"
#include "frontend/sha1.h"
#include "tests/test_ctx.h"
#include "tests/unit/onnx_bytes.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

static FILE *open_file(const char *path, const char *mode)
{
    FILE *f = fopen(path, mode);
    if (!f)
        abort();
    return f;
}

/* ---- The table of malformed files ---- */

typedef struct Row {
    char *cases, *name, *options, *text;
    int code;
    bool is_made;
} Row;

/* Fills *row from a line of malformed.tsv, which it cuts up. Returns false for a comment. */
static bool split_row(char *line, Row *row)
{
    char *columns[5];
    line[strcspn(line, "\n")] = 0;
    if (line[0] == '#')
        return false;
    for (int i = 0; i < 5; i++)
        assert_non_null(columns[i] = strsep(&line, "\t"));
    row->is_made = strncmp(columns[1], "made ", 5) == 0;
    *row = (Row){columns[0],       columns[1] + (row->is_made ? 5 : 0),
                 columns[2],       columns[4],
                 atoi(columns[3]), row->is_made};
    return true;
}

static MotOnnxOpts parse_options(MotCtx *ctx, char *text)
{
    MotOnnxOpts opts = mot_onnx_opts_default();
    for (char *word; (word = strsep(&text, " "));) {
        if (strcmp(word, "--strict") == 0)
            opts.is_strict = true;
        else if (strcmp(word, "--external-data-root") == 0)
            opts.external_data_root = strsep(&text, " ");
        else if (strcmp(word, "--limit") == 0)
            assert_int_equal(mot_onnx_limits_set(ctx, &opts.limits, strsep(&text, " ")), MOT_OK);
        else
            assert_string_equal(word, "-");
    }
    return opts;
}

typedef struct Opening {
    const char *path;
    const void *bytes; /* instead of the file */
    size_t n;
    MotOnnxOpts opts;
    MotOnnxFile *file;
} Opening;

/* What an importer does: opens the model and reads its initializers. */
static MotStatus open_and_read(MotCtx *ctx, void *arg)
{
    Opening *o = arg;
    if (o->bytes)
        MOT_TRY(mot_onnx_open_memory(ctx, "memory", o->bytes, o->n, &o->opts, &o->file));
    else
        MOT_TRY(mot_onnx_open(ctx, o->path, &o->opts, &o->file));
    const Onnx__GraphProto *graph = o->file->model->graph;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        MotTensorData data;
        MotLoc loc = {o->path, graph->initializer[i]->name};
        MOT_TRY(mot_onnx_tensor_data(ctx, o->file, graph->initializer[i], loc, &data));
    }
    return MOT_OK;
}

typedef struct Heard {
    char text[2000];
    size_t n;
} Heard;

/* Keeps its own copy: the context's arena is rewound behind it. */
static void note_warning(void *self, MotLogLevel level, const char *line)
{
    Heard *heard = self;
    if (level == MOT_LOG_WARN && heard->n < sizeof heard->text)
        heard->n +=
            (size_t)snprintf(heard->text + heard->n, sizeof heard->text - heard->n, "%s\n", line);
}

/* Opens the row's file. Returns what differs from the row, or NULL. */
static const char *try_row(MotCtx *ctx, Row *row)
{
    Heard warnings = {.n = 0};
    ctx->log = note_warning;
    ctx->log_self = &warnings;
    Opening o = {.path = row->name, .opts = parse_options(ctx, row->options)};
    MotStatus status = mot_ctx_run(ctx, open_and_read, &o);
    const char *heard = status == MOT_OK ? warnings.text : mot_text_get(&ctx->error);
    size_t first = status == MOT_OK ? strlen(heard) : strcspn(heard, "\n");
    bool is_as_told = strcmp(row->text, "-") == 0
                          ? first == 0
                          : strstr(mot_arena_strndup(&ctx->arena, heard, first), row->text) != NULL;
    if (mot_status_exit_code(status) == row->code && is_as_told)
        return NULL;
    return mot_arena_printf(&ctx->arena, "%s: exit %d, not %d with \"%s\": %s", row->name,
                            mot_status_exit_code(status), row->code, row->text, heard);
}

/* In a process of its own, whose memory and time are measured: at most 256 MiB and 1 s. */
static void try_row_apart(const char *folder_path, Row *row)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        const char *fault = chdir(folder_path) == 0 ? try_row(&ctx, row) : "no such folder";
        if (fault)
            fprintf(stderr, "%s\n", fault);
        mot_ctx_deinit(&ctx);
        _exit(fault != NULL);
    }
    int status;
    struct rusage use;
    assert_int_equal(wait4(child, &status, 0, &use), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: see above", row->name);
    double seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                     (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    if (!IS_SANITIZED && (seconds > 1 || use.ru_maxrss > 256 << 10))
        fail_msg("%s: %.2f s and %ld KiB", row->name, seconds, use.ru_maxrss);
}

static int try_rows(const char *folder_path, bool made)
{
    FILE *table = open_file("tests/fixtures/malformed.tsv", "r");
    char line[1000];
    int n = 0;
    while (fgets(line, sizeof line, table)) {
        Row row;
        if (!split_row(line, &row) || row.is_made != made)
            continue;
        try_row_apart(folder_path, &row);
        n++;
    }
    fclose(table);
    return n;
}

static void committed_files_end_as_the_table_says(void **state)
{
    (void)state;
    assert_true(try_rows("tests/fixtures/malformed", false) > 150);
}

static void run(const char *format, const char *argument)
{
    char command[500];
    snprintf(command, sizeof command, format, argument);
    assert_int_equal(system(command), 0);
}

static void made_files_end_as_the_table_says(void **state)
{
    (void)state;
    char place[] = "/tmp/motley-malformed-XXXXXX", files[100];
    assert_non_null(mkdtemp(place));
    snprintf(files, sizeof files, "%s/files", place);
    run("python3 tests/fixtures/malformed.py make %s", files);
    assert_true(try_rows(files, true) > 20);
    run("rm -r %s", place);
}

/* ---- Broken bytes ---- */

static size_t read_fixture(const char *name, uint8_t *out, size_t cap)
{
    char path[200];
    snprintf(path, sizeof path, "tests/fixtures/malformed/%s", name);
    FILE *f = open_file(path, "rb");
    size_t n = fread(out, 1, cap, f);
    assert_true(n > 0 && n < cap);
    fclose(f);
    return n;
}

static void expect_a_clear_end(const uint8_t *bytes, size_t n)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Opening o = {.path = "m", .bytes = bytes, .n = n, .opts = mot_onnx_opts_default()};
    MotStatus status = mot_ctx_run(&ctx, open_and_read, &o);
    if (status != MOT_OK && status != MOT_ERR_MODEL && status != MOT_ERR_LIMIT &&
        status != MOT_ERR_UNSUPPORTED)
        fail_msg("status %d: %s", status, mot_text_get(&ctx.error));
    if (status != MOT_OK)
        assert_true(ctx.error.n > 0);
    mot_ctx_deinit(&ctx);
}

/* Sound files with every byte changed in several ways. Memory errors show under ASan. */
static void changed_bytes_end_clearly(void **state)
{
    (void)state;
    static const char *const names[] = {"good.onnx",          "good-if.onnx",
                                        "good-function.onnx", "good-sparse.onnx",
                                        "good-devices.onnx",  "good-external.onnx"};
    static const uint8_t changes[] = {0x01, 0x02, 0x08, 0x40, 0x80, 0xff};
    for (size_t f = 0; f < sizeof names / sizeof names[0]; f++) {
        uint8_t bytes[1000];
        size_t n = read_fixture(names[f], bytes, sizeof bytes);
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < sizeof changes; c++) {
                bytes[i] ^= changes[c];
                expect_a_clear_end(bytes, n);
                bytes[i] ^= changes[c];
            }
    }
}

static void running_out_of_memory_is_clean(void **state)
{
    (void)state;
    uint8_t bytes[1000];
    size_t n = read_fixture("good-function.onnx", bytes, sizeof bytes);
    MotStatus status = MOT_ERR_MEMORY;
    int failures = 0;
    for (long at = 1; status == MOT_ERR_MEMORY; at++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        mot_ctx_fail_at(&ctx, MOT_FAULT_alloc, at);
        Opening o = {.path = "m", .bytes = bytes, .n = n, .opts = mot_onnx_opts_default()};
        status = mot_ctx_run(&ctx, open_and_read, &o);
        failures += status == MOT_ERR_MEMORY;
        mot_ctx_deinit(&ctx);
    }
    assert_int_equal(status, MOT_OK);
    assert_true(failures > 20);
}

/* ---- Tensors ---- */

/* A model with one initializer, opened from memory. */
static MotOnnxFile *open_tensor(MotCtx *ctx, const Bytes *tensor)
{
    static Bytes model; /* the file refers to it */
    Bytes graph = {.n = 0};
    put_message(&graph, 5, tensor);
    model = make_model(&graph);
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    if (mot_onnx_open_memory(ctx, "memory", model.data, model.n, &opts, &file) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return file;
}

static void large_data_is_not_copied(void **state)
{
    MotCtx *ctx = *state;
    uint8_t raw[24];
    memset(raw, 7, sizeof raw);
    Bytes tensor = make_tensor("w", 2, (int64_t[]){4, 6}, 2);
    put_data(&tensor, 9, raw, sizeof raw);
    MotOnnxFile *file = open_tensor(ctx, &tensor);
    MotTensorData d;
    assert_int_equal(
        mot_onnx_tensor_data(ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &d),
        MOT_OK);
    assert_true(d.data > file->wire.bytes && d.data < file->wire.bytes + file->wire.n);
    assert_memory_equal(d.data, raw, sizeof raw);
    assert_int_equal(d.bytes, 24);
    assert_int_equal(d.elements, 24);
    assert_int_equal(d.rank, 2);
    assert_int_equal(d.dims[1], 6);
}

/* The typed fields, by the numbers of ONNX: entries in, packed bytes out. */
static void typed_fields_are_packed(void **state)
{
    static const struct {
        int data_type, elements;
        unsigned field;
        int64_t entries[3];
        int n_entries, n_bytes;
        uint8_t bytes[16];
    } cases[] = {
        {2, 2, 5, {1, 255}, 2, 2, {1, 255}},
        {3, 2, 5, {-1, 127}, 2, 2, {255, 127}},
        {4, 2, 5, {1, 65535}, 2, 4, {1, 0, 255, 255}},
        {5, 1, 5, {-2}, 1, 2, {254, 255}},
        {6, 1, 5, {-2}, 1, 4, {254, 255, 255, 255}},
        {7, 1, 7, {-2}, 1, 8, {254, 255, 255, 255, 255, 255, 255, 255}},
        {9, 2, 5, {1, 0}, 2, 2, {1, 0}},
        {10, 1, 5, {0x3c00}, 1, 2, {0, 0x3c}},
        {12, 1, 11, {0xfffffffe}, 1, 4, {254, 255, 255, 255}},
        {13, 1, 11, {-1}, 1, 8, {255, 255, 255, 255, 255, 255, 255, 255}},
        {16, 1, 5, {0x3f80}, 1, 2, {0x80, 0x3f}},
        {17, 1, 5, {0x38}, 1, 1, {0x38}},
        {21, 3, 5, {0x21, 3}, 2, 2, {0x21, 3}},
        {22, 3, 5, {0x21, -1}, 2, 2, {0x21, 255}},
        {25, 5, 5, {0xe4, 1}, 2, 2, {0xe4, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        Bytes tensor = make_tensor("w", cases[i].data_type, (int64_t[]){cases[i].elements}, 1),
              list = {.n = 0};
        for (int k = 0; k < cases[i].n_entries; k++)
            put_varint(&list, (uint64_t)cases[i].entries[k]);
        put_message(&tensor, cases[i].field, &list);
        MotOnnxFile *file = open_tensor(&ctx, &tensor);
        MotTensorData d;
        assert_int_equal(
            mot_onnx_tensor_data(&ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &d),
            MOT_OK);
        assert_int_equal(d.bytes, cases[i].n_bytes);
        assert_memory_equal(d.data, cases[i].bytes, d.bytes);
        mot_ctx_deinit(&ctx);
    }
    (void)state;
}

static void strings_and_empty_tensors_are_read(void **state)
{
    MotCtx *ctx = *state;
    Bytes tensor = make_tensor("w", 8, (int64_t[]){2}, 1);
    put_data(&tensor, 6, "a\0b", 3);
    put_data(&tensor, 6, "", 0);
    MotTensorData d;
    MotOnnxFile *file = open_tensor(ctx, &tensor);
    assert_int_equal(
        mot_onnx_tensor_data(ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &d),
        MOT_OK);
    assert_null(d.data);
    assert_int_equal(d.strings[0].len, 3);
    assert_memory_equal(d.strings[0].data, "a\0b", 3);
    assert_int_equal(d.strings[1].len, 0);
    Bytes empty = make_tensor("w", 1, (int64_t[]){3, 0}, 2);
    file = open_tensor(ctx, &empty);
    assert_int_equal(
        mot_onnx_tensor_data(ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &d),
        MOT_OK);
    assert_int_equal(d.elements, 0);
    assert_int_equal(d.bytes, 0);
}

/* One of the offsets is misaligned whatever the file begins at. */
static void host_tensors_are_aligned_and_made_once(void **state)
{
    static const char *const names[] = {"w", "ww", "www", "wwww"};
    for (int i = 0; i < 4; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        float values[] = {1, 2, 3, 4, 5};
        Bytes tensor = make_tensor(names[i], 1, (int64_t[]){5}, 1);
        put_data(&tensor, 9, values, sizeof values);
        MotOnnxFile *file = open_tensor(&ctx, &tensor);
        MotTensor t, again;
        assert_int_equal(
            mot_onnx_tensor(&ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &t),
            MOT_OK);
        assert_int_equal(
            mot_onnx_tensor(&ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &again),
            MOT_OK);
        assert_int_equal((uintptr_t)t.data % sizeof(float), 0);
        assert_ptr_equal(t.data, again.data);
        assert_memory_equal(t.data, values, sizeof values);
        assert_int_equal(t.type.dtype, MOT_F32);
        assert_int_equal(t.type.dims[0], 5);
        mot_ctx_deinit(&ctx);
    }
    (void)state;
}

static void types_that_motley_lacks_are_named(void **state)
{
    MotCtx *ctx = *state;
    Bytes tensor = make_tensor("w", 17, (int64_t[]){1}, 1);
    put_data(&tensor, 9, "x", 1);
    MotOnnxFile *file = open_tensor(ctx, &tensor);
    MotTensor t;
    MotLoc loc = {"m", "w"};
    assert_int_equal(mot_onnx_tensor(ctx, file, file->model->graph->initializer[0], loc, &t),
                     MOT_ERR_UNSUPPORTED);
    assert_string_equal(mot_text_get(&ctx->error), "m: w: data type float8e4m3fn is not supported");
    mot_error_clear(ctx);
    Bytes deep = make_tensor("w", 1, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 9);
    put_data(&deep, 9, "1234", 4);
    file = open_tensor(ctx, &deep);
    assert_int_equal(mot_onnx_tensor(ctx, file, file->model->graph->initializer[0], loc, &t),
                     MOT_ERR_UNSUPPORTED);
    assert_string_equal(mot_onnx_dtype_name(&ctx->arena, 10), "float16");
    assert_string_equal(mot_onnx_dtype_name(&ctx->arena, -5), "-5 (unknown)");
}

/* ---- Files around the model ---- */

static char folder[50];

static void make_folder(void)
{
    strcpy(folder, "/tmp/motley-onnx-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static const char *in_folder(MotCtx *ctx, const char *name)
{
    return mot_arena_printf(&ctx->arena, "%s/%s", folder, name);
}

static void write_file(MotCtx *ctx, const char *name, const void *bytes, size_t n)
{
    FILE *f = open_file(in_folder(ctx, name), "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static Bytes make_external(const char *location)
{
    Bytes entry = {.n = 0}, graph = {.n = 0};
    Bytes tensor = make_tensor("w", 2, (int64_t[]){4}, 1);
    put_text(&entry, 1, "location");
    put_text(&entry, 2, location);
    put_message(&tensor, 13, &entry);
    put_int(&tensor, 14, 1);
    put_message(&graph, 5, &tensor);
    return make_model(&graph);
}

static MotStatus read_external(MotCtx *ctx, Opening *o, const char *expected)
{
    MotTensorData d;
    MotOnnxFile *file;
    mot_error_clear(ctx);
    if (o->bytes)
        MOT_TRY(mot_onnx_open_memory(ctx, "memory", o->bytes, o->n, &o->opts, &file));
    else
        MOT_TRY(mot_onnx_open(ctx, o->path, &o->opts, &file));
    MOT_TRY(mot_onnx_tensor_data(ctx, file, file->model->graph->initializer[0], MOT_NOWHERE, &d));
    assert_memory_equal(d.data, expected, 4);
    return MOT_OK;
}

/* A download cache: model and data are links from a snapshot into a folder of blobs beside it. */
static void linked_snapshots_are_read(void **state)
{
    MotCtx *ctx = *state;
    make_folder();
    Bytes m = make_external("model.data");
    assert_int_equal(mkdir(in_folder(ctx, "blobs"), 0700), 0);
    assert_int_equal(mkdir(in_folder(ctx, "snapshot"), 0700), 0);
    write_file(ctx, "blobs/1", m.data, m.n);
    write_file(ctx, "blobs/2", "blob", 4);
    write_file(ctx, "secret", "secr", 4);
    assert_int_equal(symlink("../blobs/1", in_folder(ctx, "snapshot/model.onnx")), 0);
    assert_int_equal(symlink("../blobs/2", in_folder(ctx, "snapshot/model.data")), 0);
    Opening o = {.path = in_folder(ctx, "snapshot/model.onnx"), .opts = mot_onnx_opts_default()};
    assert_int_equal(read_external(ctx, &o, "blob"), MOT_OK);
    /* The link now leads out of both folders. */
    assert_int_equal(unlink(in_folder(ctx, "snapshot/model.data")), 0);
    assert_int_equal(symlink("../secret", in_folder(ctx, "snapshot/model.data")), 0);
    assert_int_equal(read_external(ctx, &o, "secr"), MOT_ERR_MODEL);
    assert_non_null(strstr(mot_text_get(&ctx->error), "outside of the model's folder"));
    o.opts.external_data_root = folder;
    assert_int_equal(read_external(ctx, &o, "secr"), MOT_OK);
    /* Not in the snapshot at all: beside the model itself. */
    assert_int_equal(unlink(in_folder(ctx, "snapshot/model.data")), 0);
    write_file(ctx, "blobs/model.data", "real", 4);
    assert_int_equal(read_external(ctx, &o, "real"), MOT_OK);
    run("rm -r %s", folder);
}

static void external_data_of_memory_needs_a_root(void **state)
{
    MotCtx *ctx = *state;
    Bytes m = make_external("w.bin");
    Opening o = {.bytes = m.data, .n = m.n, .opts = mot_onnx_opts_default()};
    assert_int_equal(read_external(ctx, &o, ""), MOT_ERR_MODEL);
    assert_string_equal(
        mot_text_get(&ctx->error),
        "external data \"w.bin\": a model that is not read from a file has no folder\n"
        "  hint: --external-data-root DIR says where it lies");
    o.opts.external_data_root = "tests/fixtures/malformed";
    assert_int_equal(read_external(ctx, &o, "\0\1\2\3"), MOT_OK);
    o.opts.external_data_root = "tests/no-such-folder";
    assert_int_equal(read_external(ctx, &o, ""), MOT_ERR_IO);
}

static int count_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        abort();
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void descriptors_do_not_leak(void **state)
{
    MotCtx *ctx = *state;
    static const char *const names[] = {"good-external.onnx", "external-missing.onnx",
                                        "external-through-file.onnx"};
    int before = count_descriptors();
    for (int i = 0; i < 3; i++) {
        Opening o = {.path = mot_arena_printf(&ctx->arena, "tests/fixtures/malformed/%s", names[i]),
                     .opts = mot_onnx_opts_default()};
        assert_int_equal(mot_ctx_run(ctx, open_and_read, &o) == MOT_OK, i == 0);
        mot_error_clear(ctx);
    }
    assert_int_equal(count_descriptors(), before);
}

static void bare_tensors_are_opened(void **state)
{
    MotCtx *ctx = *state;
    make_folder();
    Bytes tensor = make_tensor("x", 7, (int64_t[]){2}, 1);
    int64_t values[] = {-1, 5};
    put_data(&tensor, 9, values, sizeof values);
    write_file(ctx, "input_0.pb", tensor.data, tensor.n);
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    MotTensor t;
    assert_int_equal(mot_onnx_open_tensor(ctx, in_folder(ctx, "input_0.pb"), &opts, &file), MOT_OK);
    assert_int_equal(mot_onnx_tensor(ctx, file, file->tensor, MOT_NOWHERE, &t), MOT_OK);
    assert_memory_equal(t.data, values, sizeof values);
    assert_int_equal(mot_onnx_open_tensor(ctx, in_folder(ctx, "missing"), &opts, &file),
                     MOT_ERR_IO);
    mot_error_clear(ctx);
    assert_int_equal(mot_onnx_open_tensor(ctx, folder, &opts, &file), MOT_ERR_IO);
    assert_non_null(strstr(mot_text_get(&ctx->error), "is a folder, not a file"));
    run("rm -r %s", folder);
}

/* ---- Orders and places ---- */

static void nodes_are_sorted_where_they_must_be(void **state)
{
    MotCtx *ctx = *state;
    static const char *const nodes[][2] = {{"c", "d"}, {"x", "a"}, {"b", "c"}, {"a", "b"}};
    static const uint32_t expected[] = {1, 3, 2, 0};
    Bytes graph = {.n = 0};
    for (int i = 0; i < 4; i++) {
        Bytes n = make_node("Neg", nodes[i][0], nodes[i][1]);
        put_message(&graph, 1, &n);
    }
    put_value(&graph, 11, "x");
    put_value(&graph, 12, "d");
    Bytes m = make_model(&graph);
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    assert_int_equal(mot_onnx_open_memory(ctx, "m", m.data, m.n, &opts, &file), MOT_OK);
    assert_memory_equal(mot_onnx_order(file, file->model->graph), expected, sizeof expected);
    assert_null(mot_onnx_order(file, file->model));
}

static void places_lead_into_subgraphs(void **state)
{
    MotCtx *ctx = *state;
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    assert_int_equal(mot_onnx_open(ctx, "tests/fixtures/malformed/good-if.onnx", &opts, &file),
                     MOT_OK);
    const Onnx__GraphProto *inner = file->model->graph->node[0]->attribute[1]->g;
    MotLoc loc = mot_onnx_node_loc(ctx, file, inner, 0);
    assert_string_equal(loc.file, "tests/fixtures/malformed/good-if.onnx");
    assert_string_equal(loc.place, "node 0 \"choose\", \"else_branch\", node 0 (\"Abs\")");
    assert_string_equal(mot_onnx_node_loc(ctx, file, file->model->graph, 0).place,
                        "node 0 \"choose\"");
    assert_int_equal(mot_onnx_order(file, inner)[0], 0);
}

enum { N_SORTED = 60 };

/* Random acyclic edges: from a lower to a higher place in a random order of the items. */
static MotEdges make_edges(MotArena *arena)
{
    uint32_t names[N_SORTED] = {0};
    for (uint32_t i = 0; i < N_SORTED; i++) {
        uint32_t k = (uint32_t)rand() % (i + 1);
        names[i] = names[k];
        names[k] = i;
    }
    MotEdges edges = {0};
    while (edges.n < 100) {
        uint32_t a = (uint32_t)rand() % N_SORTED, b = (uint32_t)rand() % N_SORTED;
        if (a < b)
            mot_vec_push(arena, &edges, (MotEdge){names[a], names[b]});
    }
    return edges;
}

static bool has_edge(const MotEdges *edges, uint32_t used, uint32_t user)
{
    for (uint32_t i = 0; i < edges->n; i++)
        if (edges->data[i].used == used && edges->data[i].user == user)
            return true;
    return false;
}

static void sorting_keeps_every_edge(void **state)
{
    MotArena *arena = &((MotCtx *)*state)->arena;
    for (unsigned seed = 1; seed <= 200; seed++) {
        srand(seed);
        uint32_t order[N_SORTED], at[N_SORTED] = {0};
        MotEdges edges = make_edges(arena);
        MotCycle cycle = {0};
        assert_true(mot_onnx_sort(arena, N_SORTED, mot_onnx_group_edges(arena, N_SORTED, &edges),
                                  order, &cycle));
        for (uint32_t i = 0; i < N_SORTED; i++)
            at[order[i]] = i;
        for (uint32_t e = 0; e < edges.n; e++)
            if (at[edges.data[e].used] >= at[edges.data[e].user])
                fail_msg("seed %u: edge %u", seed, e);
    }
}

static void sorting_names_a_cycle(void **state)
{
    MotArena *arena = &((MotCtx *)*state)->arena;
    for (unsigned seed = 1; seed <= 200; seed++) {
        srand(seed);
        uint32_t order[N_SORTED];
        MotEdges edges = make_edges(arena);
        MotCycle cycle = {0};
        MotEdge back = {edges.data[0].user, edges.data[0].used};
        mot_vec_push(arena, &edges, back);
        assert_false(mot_onnx_sort(arena, N_SORTED, mot_onnx_group_edges(arena, N_SORTED, &edges),
                                   order, &cycle));
        assert_true(cycle.n >= 2);
        for (uint32_t i = 0; i < cycle.n; i++)
            if (!has_edge(&edges, cycle.items[(i + 1) % cycle.n], cycle.items[i]))
                fail_msg("seed %u: item %u of the cycle", seed, i);
    }
}

static void sorted_input_stays_as_it_is(void **state)
{
    MotArena *arena = &((MotCtx *)*state)->arena;
    MotEdge list[] = {{0, 2}, {1, 2}, {0, 3}, {2, 3}};
    MotEdges edges = {list, 4, 4};
    uint32_t order[5];
    MotCycle cycle;
    assert_true(mot_onnx_sort(arena, 5, mot_onnx_group_edges(arena, 5, &edges), order, &cycle));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(order[i], i);
}

static void sha1_gives_the_digests_of_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
    };
    char hex[MOT_SHA1_HEX + 1];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mot_sha1_hex(cases[i].text, strlen(cases[i].text), hex);
        assert_string_equal(hex, cases[i].digest);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(committed_files_end_as_the_table_says),
        TEST(made_files_end_as_the_table_says),
        TEST(changed_bytes_end_clearly),
        TEST(running_out_of_memory_is_clean),
        TEST(large_data_is_not_copied),
        TEST(typed_fields_are_packed),
        TEST(strings_and_empty_tensors_are_read),
        TEST(host_tensors_are_aligned_and_made_once),
        TEST(types_that_motley_lacks_are_named),
        TEST(linked_snapshots_are_read),
        TEST(external_data_of_memory_needs_a_root),
        TEST(descriptors_do_not_leak),
        TEST(bare_tensors_are_opened),
        TEST(nodes_are_sorted_where_they_must_be),
        TEST(places_lead_into_subgraphs),
        TEST(sorting_keeps_every_edge),
        TEST(sorting_names_a_cycle),
        TEST(sorted_input_stays_as_it_is),
        TEST(sha1_gives_the_digests_of_the_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
