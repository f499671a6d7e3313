/* frontend/export: new weights in, all other bytes as they were. */
#include "frontend/export.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/test_ctx.h"
#include "tests/unit/onnx_model.h"

static MotOnnxFile *open_model(MotCtx *ctx, const char *path)
{
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    if (mot_onnx_open(ctx, path, &opts, &file) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return file;
}

/*
 * Two weights, of which the second is kept in float_data, a scalar, and an unknown field behind the
 * graph.
 */
static TestModel *make_two(MotCtx *ctx)
{
    static float typed[] = {7, 8, 9};
    TestModel *m = make_model(ctx, 17);
    add_input(m, "x", MOT_F32, "2,2");
    add_floats(m, "w", "2,2", "1,2,3,4");
    add_floats(m, "v", "3", "0");
    add_floats(m, "one", "", "1");
    Onnx__TensorProto *v = m->graph.initializer[1];
    v->has_raw_data = 0;
    v->n_float_data = 3;
    v->float_data = typed;
    add_node(m, "y = MatMul(x, w)");
    add_output(m, "y");
    m->model.producer_name = mot_arena_strdup(&ctx->arena, "a test");
    return m;
}

static MotExported make_floats(MotCtx *ctx, const char *name, int rank, const int64_t *dims,
                               float first)
{
    MotExported e = {name, {mot_type_make(MOT_F32, rank, dims), NULL}};
    e.tensor.data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&e.tensor.type));
    for (int64_t i = 0; i < mot_type_elements(&e.tensor.type); i++)
        mot_tensor_set(&e.tensor, i, first + (float)i);
    return e;
}

static void assert_initializer(MotCtx *ctx, const MotOnnxFile *file, size_t i,
                               const float *expected, size_t n)
{
    MotTensor t;
    assert_int_equal(
        mot_onnx_tensor(ctx, file, file->model->graph->initializer[i], MOT_NOWHERE, &t), MOT_OK);
    assert_int_equal(mot_type_elements(&t.type), n);
    assert_memory_equal(t.data, expected, n * sizeof *expected);
}

static void weights_are_replaced(void **state)
{
    MotCtx *ctx = *state;
    const char *from = save_model(make_two(ctx)),
               *to = mot_arena_printf(&ctx->arena, "%s.out", from);
    MotOnnxFile *file = open_model(ctx, from);
    MotExported new[] = {make_floats(ctx, "v", 1, (int64_t[]){3}, 30),
                         make_floats(ctx, "w", 2, (int64_t[]){2, 2}, 10)};
    assert_int_equal(mot_export(ctx, file, new, 2, to), MOT_OK);
    MotOnnxFile *out = open_model(ctx, to);
    assert_initializer(ctx, out, 0, (const float[]){10, 11, 12, 13}, 4);
    assert_initializer(ctx, out, 1, (const float[]){30, 31, 32}, 3);
    assert_initializer(ctx, out, 2, (const float[]){1}, 1);
    assert_string_equal(out->model->producer_name, "a test");
    assert_string_equal(out->model->graph->initializer[0]->name, "w");
    assert_int_equal(out->model->graph->n_node, 1);
    unlink(from);
    unlink(to);
}

static void the_same_raw_weights_give_the_same_bytes(void **state)
{
    MotCtx *ctx = *state;
    const char *from = save_model(make_two(ctx));
    MotOnnxFile *file = open_model(ctx, from);
    uint8_t *before = mot_arena_copy(&ctx->arena, file->wire.bytes, file->wire.n);
    size_t n = file->wire.n;
    MotExported same = make_floats(ctx, "w", 2, (int64_t[]){2, 2}, 1);
    assert_int_equal(mot_export(ctx, file, &same, 1, from), MOT_OK); /* over itself */
    MotOnnxFile *out = open_model(ctx, from);
    assert_int_equal(out->wire.n, n);
    assert_memory_equal(out->wire.bytes, before, n);
    unlink(from);
}

static void only_initializers_of_the_same_type_are_accepted(void **state)
{
    MotCtx *ctx = *state;
    const char *from = save_model(make_two(ctx)),
               *to = mot_arena_printf(&ctx->arena, "%s.out", from);
    MotOnnxFile *file = open_model(ctx, from);
    MotExported unknown = make_floats(ctx, "u", 1, (int64_t[]){3}, 0);
    MotExported other = make_floats(ctx, "v", 1, (int64_t[]){4}, 0);
    assert_int_equal(mot_export(ctx, file, &unknown, 1, to), MOT_ERR_MISMATCH);
    mot_error_clear(ctx);
    assert_int_equal(mot_export(ctx, file, &other, 1, to), MOT_ERR_MISMATCH);
    mot_error_clear(ctx);
    assert_int_not_equal(access(to, F_OK), 0);
    assert_int_equal(mot_export(ctx, file, NULL, 0, "/nowhere/at/all.onnx"), MOT_ERR_IO);
    mot_error_clear(ctx);
    unlink(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)
        T(weights_are_replaced),
        T(the_same_raw_weights_give_the_same_bytes),
        T(only_initializers_of_the_same_type_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
