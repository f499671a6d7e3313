/*
 * Data from files that anyone may have written: npy, idx, csv. What they hold arrives as it is,
 * whatever the byte order, quotes or line ends; what is malformed is refused with file and place.
 * And the division of samples: validation is the last tenth, an epoch takes every training sample
 * once.
 */
#include "runtime/csv.h"
#include "runtime/data.h"
#include "runtime/idx.h"
#include "runtime/npy.h"
#include "support/writer.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_data.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static const char *path_of(MotCtx *ctx, const char *name)
{
    return mot_arena_printf(&ctx->arena, "%s/%s", folder, name);
}

static int drop_folder(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    static const char *const names[] = {"images", "labels", "table", "x.npy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(&ctx, names[i]));
    mot_ctx_deinit(&ctx);
    return rmdir(folder);
}

static const char *write_bytes(MotCtx *ctx, const char *name, const void *bytes, size_t n)
{
    const char *path = path_of(ctx, name);
    assert_int_equal(mot_file_write(ctx, path, bytes, n), MOT_OK);
    return path;
}

/* ---- idx ---- */

/* The array of a literal; the NUL at its end is none of it. */
#define READ_IDX(literal) read_idx(ctx, literal, sizeof(literal) - 1, &t)

static MotStatus read_idx(MotCtx *ctx, const char *bytes, size_t n, MotTensor *out)
{
    mot_error_clear(ctx);
    return mot_idx_read(ctx, write_bytes(ctx, "images", bytes, n), out);
}

static void idx_elements_are_big_endian(void **state)
{
    MotCtx *ctx = *state;
    MotTensor t;
    assert_int_equal(READ_IDX("\0\0\x08\x02\0\0\0\2\0\0\0\3\x00\x01\x02\x03\x04\xff"), MOT_OK);
    assert_int_equal(t.type.dtype, MOT_U8);
    assert_int_equal(t.type.rank, 2);
    assert_int_equal(t.type.dims[1], 3);
    assert_int_equal(mot_tensor_get_int(&t, 5), 255);
    assert_int_equal(READ_IDX("\0\0\x09\x01\0\0\0\2\x7f\x80"), MOT_OK);
    assert_int_equal(mot_tensor_get_int(&t, 1), -128);
    assert_int_equal(READ_IDX("\0\0\x0b\x01\0\0\0\1\xff\xfe"), MOT_OK);
    assert_int_equal(mot_tensor_get_int(&t, 0), -2);
    assert_int_equal(READ_IDX("\0\0\x0c\x01\0\0\0\1\x80\0\0\1"), MOT_OK);
    assert_int_equal(mot_tensor_get_int(&t, 0), INT32_MIN + 1);
    assert_int_equal(READ_IDX("\0\0\x0d\x01\0\0\0\1\x3f\xc0\0\0"), MOT_OK);
    assert_true(t.type.dtype == MOT_F32 && mot_tensor_get(&t, 0) == 1.5);
    assert_int_equal(READ_IDX("\0\0\x0e\x01\0\0\0\1\xc0\x04\0\0\0\0\0\0"), MOT_OK);
    assert_true(t.type.dtype == MOT_F64 && mot_tensor_get(&t, 0) == -2.5);
}

static void idx_headers_are_held_against_the_file(void **state)
{
    MotCtx *ctx = *state;
    MotTensor t;
    assert_int_equal(READ_IDX("\0\0\x08\x01\0\0\0\0"), MOT_OK); /* nothing is an array too */
    assert_int_equal(READ_IDX(""), MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\1\x08\x01\0\0\0\1\7"), MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\0\x0a\x01\0\0\0\1\7"), MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\0\x08\x00"), MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\0\x08\xff\0\0\0\1\7"), MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\0\x08\x02\0\0\0\1"), MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\0\x08\x01\0\0\0\2\7"), MOT_ERR_DATA);
    assert_non_null(strstr(mot_text_get(&ctx->error), "/images: holds 1 bytes of elements; its "
                                                      "header says [2]"));
    assert_int_equal(READ_IDX("\0\0\x08\x01\0\0\0\1\7\7"), MOT_ERR_DATA);
    /* 2^96 elements, which a product of 64 bits takes for 0 */
    assert_int_equal(READ_IDX("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                     MOT_ERR_DATA);
    assert_int_equal(READ_IDX("\0\0\x08\x04\x80\0\0\0\x80\0\0\0\0\0\0\4\0\0\0\1"), MOT_ERR_DATA);
}

/* ---- csv ---- */

static MotTensor features, labels;

static MotStatus read_csv(MotCtx *ctx, const char *text, MotDtype label_dtype)
{
    MotCsvOpts opts = {.label = "y",
                       .feature_dtype = MOT_F32,
                       .label_dtype = label_dtype,
                       .n_classes = 3,
                       .ignore = -100};
    mot_error_clear(ctx);
    return mot_csv_read(ctx, write_bytes(ctx, "table", text, strlen(text)), &opts, &features,
                        &labels);
}

static void assert_rows(int64_t n, const double *values, const double *wanted_labels)
{
    assert_int_equal(features.type.dims[0], n);
    assert_int_equal(labels.type.dims[0], n);
    for (int64_t i = 0; i < mot_type_elements(&features.type); i++)
        assert_true(mot_tensor_get(&features, i) == values[i]);
    for (int64_t i = 0; i < n; i++)
        assert_true(mot_tensor_get(&labels, i) == wanted_labels[i]);
}

static void csv_cells_arrive_as_they_are(void **state)
{
    MotCtx *ctx = *state;
    static const double values[] = {1, -2.5, 3e2, 0.125}, classes[] = {2, 0};
    static const char *const equal[] = {
        "a,y,b\n1,2,-2.5\n3e2,0,.125\n",
        "a,y,b\n1,2,-2.5\n3e2,0,.125", /* no line end at the end */
        "a,y,b\r\n1,2,-2.5\r\n3e2,0,.125\r\n",
        "\357\273\277a,y,b\n+1,2,-2.5\n3E+2,0,0.125\n", /* a byte order mark, in octal */
        "\"a\",\"y\",\"b\"\n\"1\",\"2\",\"-2.5\"\n3e2,\"0\",.125\n",
        "\"a \"\"quoted\"\",\nname\",y,b\n1,2,-2.5\n3e2,0,.125\n",
    };
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++) {
        assert_int_equal(read_csv(ctx, equal[i], MOT_I64), MOT_OK);
        assert_rows(2, values, classes);
    }
    assert_int_equal(read_csv(ctx, "a,y\n1,-100\n", MOT_I64), MOT_OK); /* the ignored label */
    static const double one[] = {1}, target[] = {0.75};
    assert_int_equal(read_csv(ctx, "y,a\n0.75,1\n", MOT_F32), MOT_OK);
    assert_rows(1, one, target);
    assert_int_equal(read_csv(ctx, "y,a\n", MOT_F32), MOT_OK);
    assert_int_equal(labels.type.dims[0], 0);
}

static void csv_faults_name_line_and_column(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "table: is empty"},
        {"a,b\n1,2\n", "line 1: there is no column \"y\""},
        {"y\n1\n", "line 1: there is no column beside the label \"y\""},
        {"a,y,y\n1,2,2\n", "line 1, column 3: is there twice"},
        {"a,y\n1,2\nx,2\n", "line 3, column \"a\": \"x\" is no finite number"},
        {"a,y\n,2\n", "line 2, column \"a\": \"\" is no finite number"},
        {"a,y\n 1,2\n", "line 2, column \"a\": \" 1\" is no finite number"},
        {"a,y\n0x10,2\n", "\"0x10\" is no finite number"},
        {"a,y\nnan,2\n", "\"nan\" is no finite number"},
        {"a,y\n1e999,2\n", "\"1e999\" is no finite number"},
        {"a,y\n1,2\n1,3\n", "line 3, column \"y\": \"3\" is none of the 3 classes from 0"},
        {"a,y\n1,-1\n", "\"-1\" is none of the 3 classes"},
        {"a,y\n1,2.0\n", "\"2.0\" is no integer"},
        {"a,y\n1,99999999999999999999\n", "is no integer"},
        {"a,y\n1\n", "line 2, column \"y\": is missing"},
        {"a,y\n1,2,3\n", "line 2, column 3: is one more than the header has"},
        {"a,y\n\n", "line 2, column \"a\": \"\" is no finite number"},
        {"a,y\n\"1,2\n3,2\n", "line 2, column \"a\": a quote is not closed"},
        {"a,y\n\"1\"0,2\n", "line 2, column \"a\": a quote stands inside of a cell"},
        {"a,y\n1\"0,2\n", "a quote stands inside of a cell"},
        {"\"a\n\",y\n1,2\nx,2\n", "line 4, column \"a\\x0a\": \"x\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_csv(ctx, cases[i].text, MOT_I64), MOT_ERR_DATA);
        if (!strstr(mot_text_get(&ctx->error), cases[i].message))
            fail_msg("%s: %s", cases[i].message, mot_text_get(&ctx->error));
    }
}

/* ---- Samples ---- */

enum { BATCH = 4, ROWS = 45, PIXELS = 6 };

static MotData *open_samples(MotCtx *ctx, MotDtype label_dtype, int64_t n_classes)
{
    static MotDataField fields[2];
    const int64_t image[] = {BATCH, PIXELS}, label[] = {BATCH};
    fields[0] = (MotDataField){"x", mot_type_make(MOT_F32, 2, image), false};
    fields[1] = (MotDataField){"labels", mot_type_make(label_dtype, 1, label), true};
    MotDataOpts opts = {.fields = fields,
                        .n_fields = 2,
                        .batch = BATCH,
                        .n_classes = n_classes,
                        .ignore = -100,
                        .seed = 7};
    MotData *data = NULL;
    mot_error_clear(ctx);
    MotStatus status =
        mot_data_open(ctx, mot_arena_printf(&ctx->arena, "idx:%s/images,%s/labels", folder, folder),
                      &opts, &data);
    return status == MOT_OK ? data : NULL;
}

/* ROWS images of 2 x 3; pixel p of row r is r + p, its label r. */
static void write_images(MotCtx *ctx, int n_labels)
{
    unsigned char images[16 + ROWS * PIXELS] = {0, 0, 8, 3, 0, 0, 0, ROWS, 0, 0, 0, 2, 0, 0, 0, 3},
                                     names[8 + ROWS] = {0, 0, 8, 1,
                                                        0, 0, 0, (unsigned char)n_labels};
    for (int r = 0; r < ROWS; r++) {
        names[8 + r] = (unsigned char)r;
        for (int p = 0; p < PIXELS; p++)
            images[16 + r * PIXELS + p] = (unsigned char)(r + p);
    }
    write_bytes(ctx, "images", images, sizeof images);
    write_bytes(ctx, "labels", names, 8 + (size_t)n_labels);
}

static void bytes_of_images_are_divided_by_255(void **state)
{
    MotCtx *ctx = *state;
    write_images(ctx, ROWS);
    MotData *data = open_samples(ctx, MOT_I64, ROWS);
    assert_non_null(data);
    float x[BATCH][PIXELS];
    int64_t y[BATCH];
    mot_data_validation_batch(data, 0, (void *[]){x, y});
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(y[i], ROWS - 4 + i); /* the last tenth, rounded down */
        for (int p = 0; p < PIXELS; p++)
            assert_true(x[i][p] == (float)((double)(ROWS - 4 + i + p) / 255));
    }
    assert_int_equal(mot_data_validation_batches(data), 1);
}

static void an_epoch_takes_every_training_sample_once(void **state)
{
    MotCtx *ctx = *state;
    write_images(ctx, ROWS);
    MotData *data = open_samples(ctx, MOT_I64, ROWS);
    assert_non_null(data);
    assert_int_equal(mot_data_steps_per_epoch(data), 41 / BATCH);
    float x[BATCH][PIXELS];
    int64_t y[BATCH], order[2][40];
    for (int64_t step = 0; step < 20; step++) {
        mot_data_batch(data, step, (void *[]){x, y});
        for (int i = 0; i < BATCH; i++) {
            order[step / 10][step % 10 * BATCH + i] = y[i];
            assert_true(x[i][0] == (float)((double)y[i] / 255));
        }
    }
    int seen[2][ROWS] = {{0}};
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < 40; i++) {
            assert_true(order[e][i] < 41); /* none for validation */
            assert_int_equal(seen[e][order[e][i]]++, 0);
        }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    /*
     * What is asked for out of order is the same: a resumed run goes on with what it would have
     * seen.
     */
    mot_data_batch(data, 3, (void *[]){x, y});
    assert_memory_equal(y, order[0] + (ptrdiff_t)3 * BATCH, sizeof y);
}

static void labels_are_held_against_the_classes(void **state)
{
    MotCtx *ctx = *state;
    write_images(ctx, ROWS);
    assert_null(open_samples(ctx, MOT_I64, 40));
    assert_non_null(strstr(mot_text_get(&ctx->error), "/labels: label 40 at index 40 is none of"));
    assert_non_null(open_samples(ctx, MOT_F32, INT64_MAX)); /* a target: any number */
    write_images(ctx, ROWS - 1);
    assert_null(open_samples(ctx, MOT_I64, ROWS));
    char rows[64];
    snprintf(rows, sizeof rows, "has %d rows, the array before it has %d", ROWS - 1, ROWS);
    assert_non_null(strstr(mot_text_get(&ctx->error), rows));
}

/* ---- npy ---- */

static MotStatus read_npy(MotCtx *ctx, const char *header, const char *data, size_t n,
                          MotTensor *out)
{
    char start[10] = "\x93NUMPY\x01";
    start[8] = (char)strlen(header);
    MotText file;
    mot_text_init(&file, &ctx->arena);
    mot_text_add(&file, start, sizeof start);
    mot_text_puts(&file, header);
    mot_text_add(&file, data, n);
    mot_error_clear(ctx);
    return mot_npy_read(ctx, write_bytes(ctx, "x.npy", file.data, file.n), out);
}

/* Names hold '=': of fields "a" and "a=b" the longest that fits is meant. */
static void npy_goes_to_the_longest_name(void **state)
{
    MotCtx *ctx = *state;
    const int64_t dims[] = {2};
    const MotDataField fields[] = {{"a", mot_type_make(MOT_F32, 1, dims), false},
                                   {"a=b", mot_type_make(MOT_I32, 1, dims), true}};
    const MotDataOpts opts = {
        .fields = fields, .n_fields = 2, .batch = 2, .n_classes = 9, .ignore = -1};
    MotTensor t;
    MotData *data;
    for (int i = 0; i < 2; i++) {
        const char *text = mot_arena_printf(
            &ctx->arena, "{'descr': '<%s', 'fortran_order': False, 'shape': (2,), }",
            i ? "i4" : "f4");
        assert_int_equal(read_npy(ctx, text, "\0\0\0\0\0\0\0\0", 8, &t), MOT_OK);
        assert_int_equal(rename(path_of(ctx, "x.npy"), path_of(ctx, i ? "labels" : "images")), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            mot_data_open(ctx,
                          mot_arena_printf(&ctx->arena, "npy:%s%s/%s,%s%s/%s",
                                           i ? "a=b=" : "a=", folder, i ? "labels" : "images",
                                           i ? "a=" : "a=b=", folder, i ? "images" : "labels"),
                          &opts, &data),
            MOT_OK);
}

static void npy_orders_are_converted(void **state)
{
    MotCtx *ctx = *state;
    MotTensor t;
    assert_int_equal(read_npy(ctx, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }",
                              "\0\0\0\3\0\1\0\4\0\2\xff\xfb", 12, &t),
                     MOT_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(mot_tensor_get_int(&t, i), i < 5 ? i : -5);
}

static void npy_headers_are_held_against_the_file(void **state)
{
    MotCtx *ctx = *state;
    MotTensor t;
    static const char *const shapes[] = {"(5,)",
                                         "(-1,)",
                                         "(2, 4294967296, 4294967296)",
                                         "(9223372036854775807,)",
                                         "(1, 1, 1, 1, 1, 1, 1, 1, 1)",
                                         "(4",
                                         "4"};
    assert_int_equal(read_npy(ctx, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
                              "\0\0\0\0", 4, &t),
                     MOT_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_int_equal(
            read_npy(ctx,
                     mot_arena_printf(&ctx->arena,
                                      "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }",
                                      shapes[i]),
                     "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, &t),
            MOT_ERR_DATA);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(idx_elements_are_big_endian),
        TEST(idx_headers_are_held_against_the_file),
        TEST(csv_cells_arrive_as_they_are),
        TEST(csv_faults_name_line_and_column),
        TEST(bytes_of_images_are_divided_by_255),
        TEST(an_epoch_takes_every_training_sample_once),
        TEST(labels_are_held_against_the_classes),
        TEST(npy_goes_to_the_longest_name),
        TEST(npy_orders_are_converted),
        TEST(npy_headers_are_held_against_the_file),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
