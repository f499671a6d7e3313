/* ir/eval, ir/expand: every row against PyTorch's float64, in every float type; what must be
 * refused. */
#include "ir/eval.h"

#include "tests/op_cases.h"
#include "tests/test_ctx.h"

#include <math.h>

static const char *error_of(MotCtx *ctx)
{
    return mot_text_get(&ctx->error);
}

/* ---- The cases ---- */

static double largest(const MotTensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < mot_type_elements(&t->type); i++)
        if (isfinite(mot_tensor_get(t, i)))
            most = fmax(most, fabs(mot_tensor_get(t, i)));
    return most;
}

/* Floats within tolerance * the larger of 1 and the tensor's largest element; all else equal. */
static void compare(const OpCase *c, uint32_t k, const MotTensor *got, double tolerance)
{
    const MotTensor *wanted = &c->out[k];
    if (!mot_dims_equal(&got->type, &wanted->type))
        fail_msg("line %d: %s: result %u has other dims", c->line, c->title, k);
    if (!is_float_dtype(wanted->type.dtype) && got->type.dtype != wanted->type.dtype)
        fail_msg("line %d: %s: result %u has another dtype", c->line, c->title, k);
    double room = tolerance * fmax(1, largest(wanted));
    for (int64_t i = 0; i < mot_type_elements(&got->type); i++) {
        double x = mot_tensor_get(got, i), y = mot_tensor_get(wanted, i);
        bool is_same = x == y || (isnan(x) && isnan(y)) ||
                       (mot_tensor_get_int(got, i) == mot_tensor_get_int(wanted, i) &&
                        !is_float_dtype(wanted->type.dtype));
        if (!is_same && !(is_float_dtype(wanted->type.dtype) && fabs(x - y) <= room))
            fail_msg("line %d: %s: result %u, element %d is %.17g, not %.17g", c->line, c->title, k,
                     (int)i, x, y);
    }
}

/* The op in a graph whose floats are `dtype`. */
static void run_case(MotCtx *ctx, const OpCase *c, MotDtype dtype, bool in_f64, double tolerance)
{
    OneOpGraph one = build_case(ctx, c, dtype);
    if (!one.op) {
        fail_msg("line %d: %s: %s", c->line, c->title, error_of(ctx));
        return;
    }
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, one.graph->values.n);
    for (uint32_t i = 0; i < c->n_in; i++) {
        MotDtype given = c->in[i].type.dtype;
        if (is_float_dtype(given))
            given = in_f64 ? MOT_F64 : mot_graph_type(one.graph, one.in[i])->dtype;
        if (one.in[i])
            values[one.in[i]] = convert_tensor(ctx, &c->in[i], given);
    }
    if (mot_graph_verify(one.graph) != MOT_OK ||
        mot_eval_graph(ctx, one.graph, values, in_f64) != MOT_OK)
        fail_msg("line %d: %s: %s", c->line, c->title, error_of(ctx));
    for (uint32_t k = 0; k < c->n_out; k++)
        compare(c, k, &values[one.op->out[k]], tolerance);
}

static void run_all(MotCtx *ctx, MotDtype dtype, bool in_f64, double tolerance)
{
    OpCases cases = read_op_cases(ctx);
    for (uint32_t i = 0; i < cases.n; i++)
        run_case(ctx, &cases.data[i], dtype, in_f64, tolerance);
}

static void f64_equals_pytorch(void **state)
{
    run_all(*state, MOT_F64, false, 1e-12);
}

/* Whatever the types say, nothing is rounded to them. */
static void in_f64_ignores_the_float_types(void **state)
{
    run_all(*state, MOT_F32, true, 1e-12);
    run_all(*state, MOT_BF16, true, 1e-12);
}

static void f32_rounds_to_f32(void **state)
{
    run_all(*state, MOT_F32, false, 2e-6);
}

static void half_precision_is_as_good_as_its_digits(void **state)
{
    run_all(*state, MOT_F16, false, 2e-3);
    run_all(*state, MOT_BF16, false, 1.6e-2);
}

/* Half a unit of the last of bf16's 8 digits, and a little for the f32 inside. */
static void composites_of_half_precision_round_once(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    for (uint32_t i = 0; i < cases.n; i++) {
        const OpCase *c = &cases.data[i];
        if (c->kind != MOT_OP_SOFTMAX && c->kind != MOT_OP_GELU && c->kind != MOT_OP_LAYER_NORM)
            continue;
        OneOpGraph one = build_case(ctx, c, MOT_BF16);
        MotTensor in[MAX_CASE_TENSORS], out[MAX_CASE_TENSORS];
        for (uint32_t k = 0; k < c->n_in; k++)
            in[k] = convert_tensor(ctx, &c->in[k], MOT_BF16);
        for (uint32_t k = 0; k < c->n_out; k++)
            out[k] = make_tensor(ctx, *mot_graph_type(one.graph, one.op->out[k]));
        assert_int_equal(mot_eval_op(ctx, one.graph, one.op, in, out), MOT_OK);
        for (uint32_t k = 0; k < c->n_out; k++) /* mean and rstd stay wide */
            assert_int_equal(out[k].type.dtype, k ? MOT_F32 : MOT_BF16);
        for (int64_t k = 0; k < mot_type_elements(&out[0].type); k++) {
            double x = mot_tensor_get(&out[0], k), y = mot_tensor_get(&c->out[0], k);
            if (!isnan(y) && fabs(x - y) > 0x1.01p-8 * fabs(y) + 1e-6)
                fail_msg("line %d: %s: element %d is %.9g, not %.9g", c->line, c->title, (int)k, x,
                         y);
        }
    }
}

/*
 * Inputs and parameters are given to mot_eval_graph and outputs shown by it: see below. Regions:
 * test_regions.c.
 */
static bool is_of_the_graph(MotOpKind kind)
{
    return kind == MOT_OP_INPUT || kind == MOT_OP_PARAM || mot_op_info(kind)->class == MOT_SINK ||
           mot_op_info(kind)->flags & MOT_FLAG_REGION;
}

static void every_row_has_a_case(void **state)
{
    OpCases cases = read_op_cases(*state);
    bool has_case[MOT_N_OPS] = {false};
    for (uint32_t i = 0; i < cases.n; i++)
        has_case[cases.data[i].kind] = true;
    for (int kind = 1; kind < MOT_N_OPS; kind++)
        if (has_case[kind] == is_of_the_graph((MotOpKind)kind))
            fail_msg("%s: a case in ops.txt is %s", mot_op_info((MotOpKind)kind)->name,
                     has_case[kind] ? "not expected" : "missing");
}

static void every_composite_has_an_expansion_of_primitives(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    for (uint32_t i = 0; i < cases.n; i++) {
        if (mot_op_info(cases.data[i].kind)->class != MOT_COMPOSITE)
            continue;
        OneOpGraph one = build_case(ctx, &cases.data[i], MOT_F32);
        uint32_t before = one.graph->ops.n;
        MotBuilder b = mot_builder_make(one.graph);
        MotValue results[MOT_MAX_RESULTS];
        MotOp op = *one.op;
        assert_int_equal(mot_expand(&b, &op, results), MOT_OK);
        for (MotOpId id = before; id < one.graph->ops.n; id++)
            assert_int_not_equal(mot_op_info(mot_graph_op(one.graph, id)->kind)->class,
                                 MOT_COMPOSITE);
        for (uint32_t k = 0; k < op.n_out; k++)
            assert_true(mot_type_equal(mot_graph_type(one.graph, results[k]),
                                       mot_graph_type(one.graph, op.out[k])));
    }
}

/* ---- Small cases by hand ---- */

typedef struct {
    MotCtx *ctx;
    MotGraph *graph;
    MotBuilder b;
    MotVec(MotTensor) values; /* a value id */
} Bench;

static Bench make_bench(MotCtx *ctx)
{
    MotGraph *g = mot_graph_make(ctx, "bench");
    return (Bench){.ctx = ctx, .graph = g, .b = mot_builder_make(g)};
}

/* An input of n elements with these values. */
static MotValue give(Bench *t, MotDtype dtype, int n, const double *data)
{
    MotValue v = mot_input(&t->b, mot_arena_printf(&t->ctx->arena, "x%u", t->graph->values.n),
                           mot_type_make(dtype, 1, (int64_t[]){n}));
    while (t->values.n <= v)
        mot_vec_push(&t->ctx->arena, &t->values, (MotTensor){{0}, NULL});
    t->values.data[v] = make_tensor(t->ctx, *mot_graph_type(t->graph, v));
    for (int i = 0; i < n; i++)
        mot_tensor_set(&t->values.data[v], i, data[i]);
    return v;
}

static MotStatus evaluate(Bench *t)
{
    while (t->values.n < t->graph->values.n)
        mot_vec_push(&t->ctx->arena, &t->values, (MotTensor){{0}, NULL});
    MOT_TRY(t->ctx->status);
    return mot_eval_graph(t->ctx, t->graph, t->values.data, false);
}

static void expect(Bench *t, MotValue v, int n, const double *wanted)
{
    if (evaluate(t) != MOT_OK)
        fail_msg("%s", error_of(t->ctx));
    assert_int_equal(mot_type_elements(mot_graph_type(t->graph, v)), n);
    for (int i = 0; i < n; i++)
        if (mot_tensor_get(&t->values.data[v], i) != wanted[i])
            fail_msg("element %d is %.17g, not %.17g", i, mot_tensor_get(&t->values.data[v], i),
                     wanted[i]);
}

#define LIST(...)                                                                                  \
    (sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[])                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void casts_saturate_from_floats_and_wrap_from_integers(void **state)
{
    Bench t = make_bench(*state);
    MotValue x = give(&t, MOT_F64, LIST(3e9, -3e9, NAN, 255.9, -0.9, 1e300));
    MotValue as_i32 = mot_cast(&t.b, x, MOT_I32), as_u8 = mot_cast(&t.b, x, MOT_U8);
    MotValue as_i64 = mot_cast(&t.b, x, MOT_I64), as_half = mot_cast(&t.b, x, MOT_F16);
    MotValue wrapped =
        mot_cast(&t.b, mot_cast(&t.b, give(&t, MOT_F64, LIST(4294967299.0)), MOT_I64), MOT_I32);
    expect(&t, as_i32, LIST(INT32_MAX, INT32_MIN, 0, 255, 0, INT32_MAX));
    expect(&t, as_u8, LIST(255, 0, 0, 255, 0, 255));
    expect(&t, wrapped, LIST(3));
    assert_int_equal(mot_tensor_get_int(&t.values.data[as_i64], 5), INT64_MAX);
    assert_true(isinf(mot_tensor_get(&t.values.data[as_half], 0)));
}

static void every_value_is_rounded_to_its_type(void **state)
{
    Bench t = make_bench(*state);
    MotValue x = give(&t, MOT_BF16, LIST(256, 1.0)), y = give(&t, MOT_F32, LIST(16777216, 0.5));
    /* 257 lies between 256 and 258. */
    MotValue bf16 = mot_add(&t.b, x, mot_scalar(&t.b, MOT_BF16, 1));
    MotValue f32 = mot_add(&t.b, y, mot_scalar(&t.b, MOT_F32, 1));
    expect(&t, bf16, LIST(256, 2));
    expect(&t, f32, LIST(16777216, 1.5));
}

/* 1 + 2^-30 + ... cancels in f32 but for the double that sums. */
static void sums_of_f32_accumulate_in_double(void **state)
{
    Bench t = make_bench(*state);
    MotValue x = give(&t, MOT_F32, LIST(1, 0x1p-30, -1)), ones = give(&t, MOT_F32, LIST(1, 1, 1));
    MotValue sum = mot_reduce_sum(&t.b, x, (int64_t[]){0}, 1, MOT_DROP);
    MotValue dot = mot_contract(&t.b, x, ones, "a,a->");
    expect(&t, sum, LIST(0x1p-30));
    expect(&t, dot, LIST(0x1p-30));
}

/* 256 + 1 is 256 in bf16, of which the operands and the result know nothing. */
static void contractions_keep_their_sums_as_they_are_told(void **state)
{
    Bench t = make_bench(*state);
    MotValue x[2] = {give(&t, MOT_F32, LIST(256, 1, 1)), give(&t, MOT_F32, LIST(1, 1, 1))};
    MotValue narrow = mot_build(&t.b, MOT_OP_CONTRACT, x, 2,
                                &(MotAttr_contract){.spec = "a,a->", .accumulate = MOT_BF16});
    expect(&t, narrow, LIST(256));
    expect(&t, mot_contract(&t.b, x[0], x[1], "a,a->"), LIST(258));
    assert_int_equal(mot_build(&t.b, MOT_OP_CONTRACT, x, 2,
                               &(MotAttr_contract){.spec = "a,a->", .accumulate = MOT_I32}),
                     0);
    mot_error_clear(*state);
}

/* Query head h reads key head h / (H/G): with values 1 and 10 a key head, heads 0 and 1 give 1,
 * heads 2 and 3 give 10. */
static void grouped_query_heads_share_a_key_head_in_order(void **state)
{
    Bench t = make_bench(*state);
    MotValue q = mot_reshape(&t.b, give(&t, MOT_F32, LIST(1, 2, 3, 4)), 4, (int64_t[]){1, 1, 4, 1});
    MotValue k = mot_reshape(&t.b, give(&t, MOT_F32, LIST(1, 1)), 4, (int64_t[]){1, 1, 2, 1});
    MotValue v = mot_reshape(&t.b, give(&t, MOT_F32, LIST(1, 10)), 4, (int64_t[]){1, 1, 2, 1});
    MotOpId op = mot_build(&t.b, MOT_OP_ATTENTION, (MotValue[]){q, k, v}, 3,
                           &(MotAttr_attention){.scale = 1});
    expect(&t, mot_result(&t.b, op, 0), LIST(1, 1, 10, 10));
    expect(&t, mot_result(&t.b, op, 1), LIST(1, 2, 3, 4)); /* one key: lse = q k */
}

/* T = 2, S = 1, causal: position 0 sees s <= -1, nothing. PyTorch gives NaN there. */
static void rows_that_see_nothing_are_zero_and_without_gradient(void **state)
{
    Bench t = make_bench(*state);
    const MotAttr_attention attrs = {.scale = 1, .causal = true};
    const int64_t two[4] = {1, 2, 1, 1}, one[4] = {1, 1, 1, 1};
    MotValue q = mot_reshape(&t.b, give(&t, MOT_F32, LIST(1, 2)), 4, two);
    MotValue k = mot_reshape(&t.b, give(&t, MOT_F32, LIST(3)), 4, one);
    MotValue v = mot_reshape(&t.b, give(&t, MOT_F32, LIST(7)), 4, one);
    MotValue g = mot_reshape(&t.b, give(&t, MOT_F32, LIST(1, 5)), 4, two);
    MotOpId fwd = mot_build(&t.b, MOT_OP_ATTENTION, (MotValue[]){q, k, v}, 3, &attrs);
    MotValue y = mot_result(&t.b, fwd, 0), lse = mot_result(&t.b, fwd, 1);
    MotOpId grad =
        mot_build(&t.b, MOT_OP_ATTENTION_GRAD, (MotValue[]){q, k, v, y, lse, g}, 6, &attrs);
    expect(&t, y, LIST(0, 7));
    assert_true(isfinite(mot_tensor_get(&t.values.data[lse], 0)));
    expect(&t, mot_result(&t.b, grad, 0), LIST(0, 0));
    expect(&t, mot_result(&t.b, grad, 1), LIST(0));
    expect(&t, mot_result(&t.b, grad, 2), LIST(5));
}

/* Even an infinite loss or gradient of an ignored row stays out. */
static void ignored_rows_have_no_loss_and_no_gradient(void **state)
{
    Bench t = make_bench(*state);
    const MotAttr_cross_entropy attrs = {.ignore = 1};
    MotValue x =
        mot_reshape(&t.b, give(&t, MOT_F32, LIST(0, -INFINITY, 0, 0)), 2, (int64_t[]){2, 2});
    MotValue labels = mot_cast(&t.b, give(&t, MOT_F32, LIST(1, 0)), MOT_I64);
    MotValue g = give(&t, MOT_F32, LIST(INFINITY, 1));
    MotOpId loss = mot_build(&t.b, MOT_OP_CROSS_ENTROPY, (MotValue[]){x, labels}, 2, &attrs);
    MotOpId dx = mot_build(&t.b, MOT_OP_CROSS_ENTROPY_GRAD, (MotValue[]){x, labels, g}, 3, &attrs);
    expect(&t, mot_result(&t.b, loss, 0), LIST(0, (float)log(2)));
    expect(&t, mot_result(&t.b, dx, 0), LIST(0, 0, -0.5, 0.5));
}

/* ---- Graphs ---- */

/* y = w * x, the parameter is assigned y: inputs, parameters, outputs and assignments, the rows
 * without a case. */
static MotGraph *make_update_graph(MotCtx *ctx, MotValue *x, MotValue *w, MotValue *y)
{
    MotGraph *g = mot_graph_make(ctx, "update");
    MotBuilder b = mot_builder_make(g);
    *x = mot_input(&b, "x", mot_type_make(MOT_F32, 1, (int64_t[]){2}));
    *w = mot_param(&b, &(MotAttr_param){.name = "w", .trained = true},
                   mot_type_make(MOT_F32, 1, (int64_t[]){2}));
    *y = mot_mul(&b, *w, *x);
    mot_output(&b, "y", *y);
    assert_int_not_equal(mot_build(&b, MOT_OP_ASSIGN, (MotValue[]){*w, *y}, 2, NULL), 0);
    return g;
}

static void graphs_evaluate_from_inputs_and_parameters(void **state)
{
    MotCtx *ctx = *state;
    MotValue x, w, y;
    MotGraph *g = make_update_graph(ctx, &x, &w, &y);
    float x_data[2] = {2, 3}, w_data[2] = {5, 7};
    MotTensor values[8] = {[0] = {{0}, NULL}};
    values[x] = (MotTensor){*mot_graph_type(g, x), x_data};
    values[w] = (MotTensor){*mot_graph_type(g, w), w_data};
    assert_int_equal(mot_eval_graph(ctx, g, values, false), MOT_OK);
    assert_true(mot_tensor_get(&values[y], 0) == 10 && mot_tensor_get(&values[y], 1) == 21);
    assert_true(w_data[0] == 5); /* an assignment takes effect after the step, by the caller */
}

static void graphs_refuse_what_does_not_fit(void **state)
{
    MotCtx *ctx = *state;
    MotValue x, w, y;
    MotGraph *g = make_update_graph(ctx, &x, &w, &y);
    float data[3] = {0};
    const MotTensor fits = {*mot_graph_type(g, x), data};
    const MotTensor wrong[] = {{{0}, NULL},
                               {mot_type_make(MOT_F32, 1, (int64_t[]){3}), data},
                               {mot_type_make(MOT_I32, 1, (int64_t[]){2}), data}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        MotTensor values[8] = {[0] = {{0}, NULL}};
        values[x] = fits;
        values[w] = wrong[i];
        assert_int_equal(mot_eval_graph(ctx, g, values, false), MOT_ERR_DATA);
        mot_error_clear(ctx);
    }
}

/* Doubles become integers toward zero, and stay at the ends of the range. */
static void integers_hold_what_fits(void **state)
{
    static const struct {
        MotDtype dtype;
        double given;
        int64_t wanted;
    } cases[] = {
        {MOT_I64, -2.75, -2},
        {MOT_I64, 1e300, INT64_MAX},
        {MOT_I64, -INFINITY, INT64_MIN},
        {MOT_I32, 2.75, 2},
        {MOT_I32, 3e9, INT32_MAX},
        {MOT_I32, -3e9, INT32_MIN},
        {MOT_I32, (double)NAN, 0},
        {MOT_U8, 255.5, 255},
        {MOT_U8, -1, 0},
        {MOT_BOOL, (double)NAN, 1},
        {MOT_BOOL, -0.0, 0},
        {MOT_BOOL, 0.25, 1},
        {MOT_I64, (double)NAN, 0},
        {MOT_U8, (double)INFINITY, 255},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t data = 0;
        MotTensor t = {mot_type_scalar(cases[i].dtype), &data};
        mot_tensor_set(&t, 0, cases[i].given);
        assert_int_equal(mot_tensor_get_int(&t, 0), cases[i].wanted);
    }
    float huge[] = {-1e30f, NAN};
    MotTensor t = {mot_type_make(MOT_F32, 1, (int64_t[]){2}), huge};
    assert_int_equal(mot_tensor_get_int(&t, 0), INT64_MIN);
    assert_int_equal(mot_tensor_get_int(&t, 1), 0);
}

static void symbolic_dims_follow_the_inputs(void **state)
{
    MotCtx *ctx = *state;
    MotGraph *g = mot_graph_make(ctx, "kernel");
    mot_vec_push(&ctx->arena, &g->symbols, "h");
    MotBuilder b = mot_builder_make(g);
    MotType rows = mot_type_make(MOT_F32, 2, (int64_t[]){-1, 2}),
            flat = mot_type_make(MOT_F32, 2, (int64_t[]){2, -1});
    MotValue x = mot_input(&b, "x", rows);
    MotOpId t = mot_build_typed(&b, MOT_OP_TRANSPOSE, &x, 1,
                                &(MotAttr_perm){.perm = {(int64_t[]){1, 0}, 2}}, &flat);
    float data[6] = {1, 2, 3, 4, 5, 6};
    for (int64_t h = 1; h <= 3; h++) {
        MotTensor values[4] = {[0] = {{0}, NULL}};
        values[x] = (MotTensor){mot_type_make(MOT_F32, 2, (int64_t[]){h, 2}), data};
        assert_int_equal(mot_eval_graph(ctx, g, values, false), MOT_OK);
        const MotTensor *y = &values[mot_result(&b, t, 0)];
        assert_int_equal(y->type.dims[1], h);
        assert_true(mot_tensor_get(y, h) == 2);
    }
    MotTensor values[4] = {[0] = {{0}, NULL}};
    MotBuilder lost = mot_builder_make(g);
    mot_vec_push(&ctx->arena, &g->symbols, "k");
    MotType unknown = mot_type_make(MOT_F32, 1, (int64_t[]){-2});
    mot_build_typed(&lost, MOT_OP_IOTA, NULL, 0,
                    &(MotAttr_iota){.dims = {(int64_t[]){-2}, 1}, .dtype = MOT_F32}, &unknown);
    values[x] = (MotTensor){mot_type_make(MOT_F32, 2, (int64_t[]){1, 2}), data};
    assert_int_equal(mot_eval_graph(ctx, g, values, false), MOT_ERR_MODEL);
    assert_non_null(strstr(error_of(ctx), "\"k\""));
}

/* Two hundred evaluations of a composite take no more of the arena than one. */
static void scratch_is_returned(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    const OpCase *c = cases.data;
    while (c->kind != MOT_OP_ATTENTION)
        c++;
    OneOpGraph one = build_case(ctx, c, MOT_F64);
    MotTensor out[2] = {make_tensor(ctx, c->out[0].type), make_tensor(ctx, c->out[1].type)};
    size_t used = 0;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(mot_eval_op(ctx, one.graph, one.op, c->in, out), MOT_OK);
        assert_true(i == 0 || ctx->arena.used_bytes == used);
        used = ctx->arena.used_bytes;
    }
}

/* ---- What must be refused ---- */

static void indices_out_of_range_are_named(void **state)
{
    MotCtx *ctx = *state;
    static const double good[] = {2, 0, 1}, high[] = {0, 3, 1}, low[] = {0, 1, -1};
    static const struct {
        const double *index;
        const char *told;
    } cases[] = {{good, NULL},
                 {high, "index 3 at element 1 is outside [0, 3)"},
                 {low, "index -1 at element 2"}};
    for (int is_scatter = 0; is_scatter < 2; is_scatter++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            Bench t = make_bench(ctx);
            MotValue x = give(&t, MOT_F32, LIST(1, 2, 3)),
                     index = give(&t, MOT_I32, 3, cases[i].index);
            if (is_scatter)
                mot_scatter_add(&t.b, index, x, 0, 3);
            else
                mot_gather(&t.b, x, index, 0);
            assert_int_equal(evaluate(&t), cases[i].told ? MOT_ERR_DATA : MOT_OK);
            assert_true(!cases[i].told || strstr(error_of(ctx), cases[i].told));
            mot_error_clear(ctx);
        }
}

static void integer_division_by_zero_is_an_error(void **state)
{
    MotCtx *ctx = *state;
    for (int is_mod = 0; is_mod < 2; is_mod++)
        for (int divisor = 0; divisor < 2; divisor++) {
            Bench t = make_bench(ctx);
            MotValue x = give(&t, MOT_I32, LIST(6, 7)), y = give(&t, MOT_I32, LIST(3, divisor));
            if (is_mod)
                mot_mod(&t.b, x, y);
            else
                mot_div(&t.b, x, y);
            assert_int_equal(evaluate(&t), divisor ? MOT_OK : MOT_ERR_DATA);
            assert_true(divisor || strstr(error_of(ctx), "division by zero, element 1"));
            mot_error_clear(ctx);
        }
}

/* Operands that do not fit a composite give an error of the model, never a crash: each good case
 * with one operand spoiled. */
static void composites_refuse_operands_that_do_not_fit(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    int n_refused = 0;
    for (uint32_t i = 0; i < cases.n; i++) {
        if (mot_op_info(cases.data[i].kind)->class != MOT_COMPOSITE)
            continue;
        for (uint32_t k = 0; k < cases.data[i].n_in; k++) {
            OpCase spoiled = cases.data[i];
            MotType *type = &spoiled.in[k].type;
            *type = mot_type_make(type->dtype, 2, (int64_t[]){7, 11});
            bool is_built = build_case(ctx, &spoiled, MOT_F32).op != NULL;
            assert_true(is_built == (ctx->status == MOT_OK));
            assert_true(is_built || ctx->status == MOT_ERR_MODEL);
            if (is_built && spoiled.n_in > 1)
                fail_msg("line %d: %s: operand %u may be 7x11", spoiled.line, spoiled.title, k);
            n_refused += !is_built;
            mot_error_clear(ctx);
        }
    }
    assert_true(n_refused > 100);
}

static void attributes_out_of_range_are_refused(void **state)
{
    MotCtx *ctx = *state;
    Bench t = make_bench(ctx);
    MotValue x = give(&t, MOT_F32, LIST(1, 2, 3));
    for (int64_t axis = -1; axis <= 1; axis++) {
        assert_true((mot_build(&t.b, MOT_OP_SOFTMAX, &x, 1, &(MotAttr_softmax){.axis = axis}) !=
                     0) == (axis == 0));
        mot_error_clear(ctx);
        assert_true((mot_build(&t.b, MOT_OP_LAYER_NORM, (MotValue[]){x, x}, 2,
                               &(MotAttr_norm){.axis = axis}) != 0) == (axis == 0));
        mot_error_clear(ctx);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(f64_equals_pytorch),
        TEST(in_f64_ignores_the_float_types),
        TEST(f32_rounds_to_f32),
        TEST(half_precision_is_as_good_as_its_digits),
        TEST(composites_of_half_precision_round_once),
        TEST(every_row_has_a_case),
        TEST(every_composite_has_an_expansion_of_primitives),
        TEST(casts_saturate_from_floats_and_wrap_from_integers),
        TEST(every_value_is_rounded_to_its_type),
        TEST(sums_of_f32_accumulate_in_double),
        TEST(contractions_keep_their_sums_as_they_are_told),
        TEST(grouped_query_heads_share_a_key_head_in_order),
        TEST(rows_that_see_nothing_are_zero_and_without_gradient),
        TEST(ignored_rows_have_no_loss_and_no_gradient),
        TEST(graphs_evaluate_from_inputs_and_parameters),
        TEST(graphs_refuse_what_does_not_fit),
        TEST(integers_hold_what_fits),
        TEST(symbolic_dims_follow_the_inputs),
        TEST(scratch_is_returned),
        TEST(indices_out_of_range_are_named),
        TEST(integer_division_by_zero_is_an_error),
        TEST(composites_refuse_operands_that_do_not_fit),
        TEST(attributes_out_of_range_are_refused),
    };
    return cmocka_run_group_tests_name("eval", tests, NULL, NULL);
}
