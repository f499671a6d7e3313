/* frontend/import*: models from text, their graphs, values and errors. */
#include "frontend/import.h"
#include "ir/eval.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/onnx_model.h"

static char last_warning[1024];

static void keep_warning(void *self, MotLogLevel level, const char *line)
{
    (void)self;
    if (level == MOT_LOG_WARN)
        snprintf(last_warning, sizeof last_warning, "%s", line);
}

static int make_ctx(void **state)
{
    MotCtx *ctx = *state = calloc(1, sizeof(MotCtx));
    mot_ctx_init(ctx);
    ctx->log = keep_warning;
    last_warning[0] = 0;
    return 0;
}

static int drop_ctx(void **state)
{
    mot_ctx_deinit(*state);
    free(*state);
    return 0;
}

typedef struct {
    const char *path;
    const MotImportOpts *opts;
    MotGraph *g;
} Import;

static MotStatus import_body(MotCtx *ctx, void *arg)
{
    Import *i = arg;
    MotOnnxFile *file;
    MotOnnxOpts opts = mot_onnx_opts_default();
    MOT_TRY(mot_onnx_open(ctx, i->path, &opts, &file));
    return mot_import(ctx, file, i->opts, &i->g);
}

static MotStatus try_import(TestModel *m, const MotImportOpts *opts, MotGraph **out_graph)
{
    static const MotImportOpts none = {0};
    Import i = {save_model(m), opts ? opts : &none, NULL};
    MotStatus status = mot_ctx_run(m->ctx, import_body, &i);
    unlink(i.path);
    *out_graph = i.g;
    return status;
}

static MotGraph *import_ok(TestModel *m, const MotImportOpts *opts)
{
    MotGraph *g;
    if (try_import(m, opts, &g) != MOT_OK)
        fail_msg("%s", mot_text_get(&m->ctx->error));
    return g;
}

static void assert_fails(TestModel *m, const MotImportOpts *opts, MotStatus status,
                         const char *says)
{
    MotGraph *g;
    MotStatus got = try_import(m, opts, &g);
    if (got != status || !strstr(mot_text_get(&m->ctx->error), says))
        fail_msg("status %d, expected %d with '%s':\n%s", got, status, says,
                 mot_text_get(&m->ctx->error));
    mot_error_clear(m->ctx);
}

static uint32_t count_ops(const MotGraph *g, MotOpKind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        n += mot_graph_op(g, g->body.data[i])->kind == kind;
    return n;
}

static const MotOp *find_op(const MotGraph *g, MotOpKind kind)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind == kind)
            return mot_graph_op(g, g->body.data[i]);
    fail_msg("no %s", mot_op_info(kind)->name);
    return NULL;
}

static const MotType *output_type(const MotGraph *g)
{
    return mot_graph_type(g, find_op(g, MOT_OP_OUTPUT)->in[0]);
}

/* The first output, with every input filled by 0, 1, 2, … and parameters by 1, 2, 3, … */
static MotTensor evaluate(MotCtx *ctx, const MotGraph *g)
{
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT && op->kind != MOT_OP_PARAM)
            continue;
        MotTensor *t = &values[op->out[0]];
        t->type = *mot_graph_type(g, op->out[0]);
        t->data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&t->type));
        for (int64_t k = 0; k < mot_type_elements(&t->type); k++)
            mot_tensor_set(t, k, (double)(k + (op->kind == MOT_OP_PARAM)));
    }
    assert_int_equal(mot_eval_graph(ctx, g, values, false), MOT_OK);
    return values[find_op(g, MOT_OP_OUTPUT)->in[0]];
}

static void assert_values(const MotTensor *t, const double *expected, int64_t n)
{
    assert_int_equal(mot_type_elements(&t->type), n);
    for (int64_t i = 0; i < n; i++)
        if (!(mot_tensor_get(t, i) - expected[i] < 1e-5 &&
              expected[i] - mot_tensor_get(t, i) < 1e-5))
            fail_msg("element %lld is %g, expected %g", (long long)i, mot_tensor_get(t, i),
                     expected[i]);
}

/* ---- What is not supported ---- */

static void unsupported_operators_are_listed_all_at_once(void **state)
{
    TestModel *m = make_model(*state, 17);
    add_input(m, "x", MOT_F32, "1");
    add_node(m, "a = Conv(x) {} first");
    add_node(m, "b = Relu(a) {} relu");
    add_node(m, "c = Conv(b) {} second");
    add_node(m, "d = LSTM(c) {} third");
    add_output(m, "d");
    MotGraph *g;
    assert_int_equal(try_import(m, NULL, &g), MOT_ERR_UNSUPPORTED);
    const char *text = mot_text_get(&m->ctx->error);
    assert_non_null(strstr(text, "2 operators are not supported"));
    assert_non_null(
        strstr(text, "ai.onnx.Conv version 17: 2 nodes, the first is node 0 \"first\""));
    assert_non_null(strstr(text, "ai.onnx.LSTM version 17: 1 node, the first is node 3 \"third\""));
    assert_null(strstr(text, "Relu"));
}

static void an_operator_needs_its_version(void **state)
{
    TestModel *m = make_model(*state, 13);
    add_input(m, "x", MOT_F32, "2");
    add_node(m, "y = Mish(x)");
    add_output(m, "y");
    assert_fails(m, NULL, MOT_ERR_UNSUPPORTED, "1 operator is not supported");
    m->opset.version = 18;
    import_ok(m, NULL);
}

/* ---- Symbolic dims ---- */

static TestModel *make_dynamic(MotCtx *ctx)
{
    TestModel *m = make_model(ctx, 17);
    add_input(m, "x", MOT_F32, "batch,seq,4");
    add_input(m, "y", MOT_F32, "batch,1,4");
    add_node(m, "z = Add(x, y) {} add");
    add_output(m, "z");
    return m;
}

static void unbound_dims_are_listed(void **state)
{
    TestModel *m = make_dynamic(*state);
    assert_fails(m, NULL, MOT_ERR_USAGE, "2 symbolic dims have no size");
    assert_fails(m, NULL, MOT_ERR_USAGE, "\"batch\": dim 0 of input \"x\"");
    assert_fails(m, NULL, MOT_ERR_USAGE, "--dim batch=8 --dim seq=8");
}

static void bound_dims_become_sizes(void **state)
{
    const MotDimBinding dims[] = {{"batch", 2}, {"seq", 3}};
    MotImportOpts opts = {.dims = dims, .n_dims = 2};
    MotGraph *g = import_ok(make_dynamic(*state), &opts);
    assert_true(mot_dims_equal(output_type(g), &(MotType){.rank = 3, .dims = {2, 3, 4}}));
    const MotDimBinding wrong[] = {{"batch", 2}, {"seq", 3}, {"time", 3}};
    opts = (MotImportOpts){.dims = wrong, .n_dims = 3};
    assert_fails(make_dynamic(*state), &opts, MOT_ERR_USAGE,
                 "no input has a symbolic dim \"time\"");
}

static void offered_inputs_bind_dims(void **state)
{
    float data[24] = {0};
    MotInputTensor offered[] = {
        {.name = "x", .tensor = {{.dtype = MOT_F32, .rank = 3, .dims = {2, 3, 4}}, data}}};
    MotImportOpts opts = {.inputs = offered, .n_inputs = 1};
    MotGraph *g = import_ok(make_dynamic(*state), &opts);
    assert_int_equal(count_ops(g, MOT_OP_INPUT), 2);
    offered[0].tensor.type.dims[2] = 5;
    assert_fails(make_dynamic(*state), &opts, MOT_ERR_DATA,
                 "is f32[2x3x5], input \"x\" takes f32[");
}

/* ---- Folding ---- */

static void shape_arithmetic_is_folded(void **state)
{
    TestModel *m = make_model(*state, 17);
    add_input(m, "x", MOT_F32, "2,3,4");
    add_ints(m, "zero", "", "0");
    add_ints(m, "minus", "1", "-1");
    add_ints(m, "axes", "1", "0");
    add_node(m, "s = Shape(x)");
    add_node(m, "b = Gather(s, zero) {axis=0}");
    add_node(m, "u = Unsqueeze(b, axes)");
    add_node(m, "t = Concat(u, minus) {axis=0}");
    add_node(m, "y = Reshape(x, t) {} reshape");
    add_output(m, "y");
    MotGraph *g = import_ok(m, NULL);
    assert_int_equal(g->body.n, 3); /* input, reshape, output */
    assert_true(mot_dims_equal(output_type(g), &(MotType){.rank = 2, .dims = {2, 12}}));
    assert_string_equal(find_op(g, MOT_OP_RESHAPE)->origin, "reshape");
    assert_string_equal(g->values.data[find_op(g, MOT_OP_RESHAPE)->out[0]].name, "y");
}

static void an_expanded_mask_is_stored_once(void **state)
{
    TestModel *m = make_model(*state, 17);
    add_input(m, "x", MOT_F32, "2,3,4,4");
    add_ints(m, "shape", "4", "2,3,4,4");
    add_node(m, "ones = ConstantOfShape(shape)");
    add_node(m, "cos = Cos(ones)");
    add_node(m, "low = Trilu(cos) {upper=0}");
    add_node(m, "y = Add(x, low)");
    add_output(m, "y");
    MotGraph *g = import_ok(m, NULL);
    const MotTensor *mask = &mot_attrs(find_op(g, MOT_OP_CONSTANT), constant)->data;
    assert_int_equal(count_ops(g, MOT_OP_CONSTANT), 1);
    assert_true(mot_dims_equal(&mask->type, &(MotType){.rank = 4, .dims = {1, 1, 4, 4}}));
    assert_true(mot_tensor_get(mask, 4) == 1 && mot_tensor_get(mask, 1) == 0);
    assert_int_equal(count_ops(g, MOT_OP_BROADCAST), 1);
}

static TestModel *make_reshape_by_input(MotCtx *ctx)
{
    TestModel *m = make_model(ctx, 17);
    add_input(m, "x", MOT_F32, "2,3");
    add_input(m, "shape", MOT_I64, "2");
    add_node(m, "y = Reshape(x, shape)");
    add_output(m, "y");
    return m;
}

static void an_input_that_decides_a_shape_becomes_a_constant(void **state)
{
    assert_fails(make_reshape_by_input(*state), NULL, MOT_ERR_UNSUPPORTED,
                 "it follows from input \"shape\"");
    int64_t data[] = {3, -1};
    MotInputTensor offered[] = {
        {.name = "shape", .tensor = {{.dtype = MOT_I64, .rank = 1, .dims = {2}}, data}}};
    MotImportOpts opts = {.inputs = offered, .n_inputs = 1};
    MotGraph *g = import_ok(make_reshape_by_input(*state), &opts);
    assert_int_equal(count_ops(g, MOT_OP_INPUT), 1);
    assert_true(mot_dims_equal(output_type(g), &(MotType){.rank = 2, .dims = {3, 2}}));
}

static void another_type_in_the_file_is_a_warning(void **state)
{
    TestModel *m = make_model(*state, 17);
    add_input(m, "x", MOT_F32, "2,3");
    add_node(m, "y = Relu(x)");
    add_node(m, "z = Relu(y)");
    add_value_info(m, "y", MOT_F32, "2,N");
    add_output(m, "z");
    import_ok(m, NULL);
    assert_string_equal(last_warning, "");
    add_value_info(m, "z", MOT_F32, "2,4");
    import_ok(m, NULL);
    assert_non_null(strstr(last_warning, "another type for 1 value; \"z\" is f32[2x3]"));
}

/* ---- Errors of nodes, each with a partner that is accepted ---- */

/* A node over x[2x3x4] and w[4x5] (f32), i (i64[2x3], 0 to 5), b (bool[2x3x4]), d (f64[4x5]). */
typedef struct {
    int64_t opset;
    const char *bad, *says, *good;
    MotStatus status; /* MOT_OK stands for MOT_ERR_MODEL */
} NodeCase;

static TestModel *make_one_node(MotCtx *ctx, int64_t opset, const char *node)
{
    TestModel *m = make_model(ctx, opset);
    add_input(m, "x", MOT_F32, "2,3,4");
    add_input(m, "w", MOT_F32, "4,5");
    add_input(m, "i", MOT_I64, "2,3");
    add_input(m, "b", MOT_BOOL, "2,3,4");
    add_input(m, "d", MOT_F64, "4,5");
    add_ints(m, "c0", "", "0");
    add_ints(m, "c1", "1", "1");
    add_ints(m, "c7", "1", "7");
    add_ints(m, "c9", "", "9");
    add_ints(m, "big", "2", "4000000000000,1");
    add_ints(m, "c2_12", "2", "2,12");
    add_ints(m, "c2_11", "2", "2,11");
    add_ints(m, "m1_m1", "2", "-1,-1");
    add_ints(m, "zeros4", "4", "0,0,0,0");
    add_ints(m, "c1_3", "2", "1,3");
    add_ints(m, "c1_4", "2", "1,4");
    add_ints(m, "c1_11", "1,1", "1");
    add_input(m, "w_11", MOT_F32, "1,1");
    add_input(m, "d_11", MOT_F64, "1,1");
    add_ints(m, "pad_few", "6", "0,1,2,0,2,3");
    add_ints(m, "pad_many", "6", "0,1,100000000,0,2,3");
    add_node(m, node);
    add_output(m, m->graph.node[0]->output[0]);
    return m;
}

static const NodeCase node_cases[] = {
    {17, "y = Add(x)", "has 1 inputs; it takes 2 to 2", "y = Add(x, x)", MOT_OK},
    {17, "y = Relu(x, x)", "has 2 inputs; it takes 1 to 1", "y = Relu(x)", MOT_OK},
    {17, "y, z = Relu(x)", "has 2 outputs; it gives 1 to 1", "y = Relu(x)", MOT_OK},
    {17, "y = Add(x, )", "input 1 is missing", "y = Clip(x, )", MOT_OK},
    {17, "y = Add(x, w)", "shapes [2x3x4] and [4x5] do not broadcast: 3 against 4", "y = Add(x, x)",
     MOT_OK},
    {17, "y = Add(w, d)", "differ in type", "y = Add(d, d)", MOT_OK},
    {17, "y = And(x, x)", "is not supported for f32", "y = And(b, b)", MOT_ERR_UNSUPPORTED},
    {17, "y = Where(x, x, x)", "must be bool", "y = Where(b, x, x)", MOT_OK},
    {17, "y = MatMul(x, x)", "inner dims differ", "y = MatMul(x, w)", MOT_OK},
    {17, "y = MatMul(x, d)", "differ in type", "y = MatMul(x, w)", MOT_OK},
    {17, "y = Gemm(w, w)", "inner dims differ", "y = Gemm(w, w) {transB=1}", MOT_OK},
    {17, "y = Cast(x)", "attribute to is missing", "y = Cast(x) {to=7}", MOT_OK},
    {17, "y = Cast(x) {to=1.5}", "attribute to must be an int", "y = Cast(x) {to=11}", MOT_OK},
    {17, "y = Cast(x) {to=1, to=1}", "is given twice", "y = Cast(x) {to=1}", MOT_OK},
    {17, "y = Cast(x) {to=14}", "data type", "y = Cast(x) {to=9}", MOT_ERR_UNSUPPORTED},
    {17, "y = Relu(x) {axis=1}", "has no attribute \"axis\"", "y = Relu(x) {}", MOT_OK},
    {17, "y = Softmax(x) {axis=3}", "axis 3 is out of range for rank 3", "y = Softmax(x) {axis=-3}",
     MOT_OK},
    {17, "y = ReduceMax(x) {axes=[1; -2]}", "axis 1 is given twice",
     "y = ReduceMax(x) {axes=[1; -1]}", MOT_OK},
    {17, "y = Transpose(x) {perm=[0; 1]}", "perm has 2 entries",
     "y = Transpose(x) {perm=[2; 0; 1]}", MOT_OK},
    {17, "y = Transpose(x) {perm=[0; 1; 1]}", "axis 1 is given twice", "y = Transpose(x)", MOT_OK},
    {17, "y = Reshape(x, c2_11)", "target shape [2x11] has 22 elements, the input has 24",
     "y = Reshape(x, c2_12)", MOT_OK},
    {17, "y = Reshape(x, m1_m1)", "second -1", "y = Reshape(x, c2_12)", MOT_OK},
    {17, "y = Reshape(x, zeros4)", "is 0 (copy), but the input has rank 3", "y = Reshape(x, c2_12)",
     MOT_OK},
    {17, "y = Squeeze(x, c1)", "axis 1 has size 3, not 1", "y = Unsqueeze(x, c1)", MOT_OK},
    {17, "y = Expand(w, c1_4)", "do not broadcast", "y = Expand(c1, c1_4)", MOT_OK},
    {17, "y = Slice(x, c1, c7, c1, c0)", "step 0 on axis 1", "y = Slice(x, c1, c7, c1, c1)",
     MOT_OK},
    {17, "y = Slice(x, d, c7)", "depends on the contents", "y = Slice(x, c1, c7)",
     MOT_ERR_UNSUPPORTED},
    {17, "y = Slice(x, c1_3, c7)", "differ in length", "y = Slice(x, c1_3, c1_4)", MOT_OK},
    {17, "y, z = Split(x, c1_3) {axis=1}", "do not sum to 3", "y, z = Split(x, c1_3) {axis=2}",
     MOT_OK},
    {17, "y, z, a = Split(x, c1_3) {axis=2}", "has 3 outputs for 2 parts",
     "y, z, a = Split(x) {axis=1}", MOT_OK},
    {17, "y = Gather(x, c9)", "index 9 is out of range for a dim of size 2", "y = Gather(x, c0)",
     MOT_OK},
    {17, "y = Gather(x, w)", "indices must be", "y = Gather(x, i)", MOT_OK},
    {17, "y = Concat(x, x)", "attribute axis is missing", "y = Concat(x, x) {axis=1}", MOT_OK},
    {17, "y = Concat(w, x) {axis=0}", "differ outside axis 0", "y = Concat(w, w) {axis=0}", MOT_OK},
    {17, "y = Range(c0, c9, c0)", "has no end", "y = Range(c0, c9, c9)", MOT_OK},
    {17, "y = ConstantOfShape(big)", "exceeds the limit", "y = ConstantOfShape(c1_4)",
     MOT_ERR_LIMIT},
    {17, "y = ConstantOfShape(m1_m1)", "dim 0 is -1", "y = ConstantOfShape(c1_4)", MOT_OK},
    {17, "y = Einsum(w) {equation=\"a.b->a\"}", "the equation is wrong",
     "y = Einsum(w) {equation=\"a...->a\"}", MOT_OK},
    {17, "y = Einsum(w) {equation=\"ab->ac\"}", "letter c of the result is unknown",
     "y = Einsum(w) {equation=\"ab->ba\"}", MOT_OK},
    {17, "y = Einsum(x) {equation=\"ab->a\"}", "has 2 letters for rank 3",
     "y = Einsum(x) {equation=\"abc->a\"}", MOT_OK},
    {17, "y = Dropout(x, , b)", "depends on the contents", "y = Dropout(x)", MOT_ERR_UNSUPPORTED},
    {23, "y = Attention(x, x, x) {q_num_heads=3, kv_num_heads=3}", "3 heads do not divide",
     "y = Attention(x, x, x) {q_num_heads=2, kv_num_heads=2}", MOT_OK},
    {17, "y = LayerNormalization(x, w)", "do not broadcast", "y = ReduceMean(x)", MOT_OK},
    {17, "y = Pad(x, c1_3)", "has 2 pads for 3 axes", "y = Relu(x)", MOT_OK},
    {17, "y = Pad(x, pad_many) {mode=\"reflect\"}", "pads axis 2 to 100000007 by mode reflect",
     "y = Pad(x, pad_few) {mode=\"reflect\"}", MOT_ERR_LIMIT},
    {17, "y = GatherND(x, i) {batch_dims=4294967297}", "do not fit data",
     "y = GatherND(x, i) {batch_dims=0}", MOT_OK},
    {17, "y = ScatterElements(w, c1_11, d_11) {axis=1}", "differ in type",
     "y = ScatterElements(w, c1_11, w_11) {axis=1}", MOT_OK},
    {17, "y = Tile(x, c1_3)", "repeats has 2 entries", "y = Tile(w, c1_3)", MOT_OK},
};

static void wrong_nodes_are_named(void **state)
{
    for (size_t i = 0; i < sizeof node_cases / sizeof *node_cases; i++) {
        const NodeCase *c = &node_cases[i];
        MotStatus status = c->status == MOT_OK ? MOT_ERR_MODEL : c->status;
        assert_fails(make_one_node(*state, c->opset, c->bad), NULL, status, c->says);
        assert_fails(make_one_node(*state, c->opset, c->bad), NULL, status, ": node 0 ");
        import_ok(make_one_node(*state, c->opset, c->good), NULL);
    }
}

/* An equation holds commas, which separate attributes in the text of a node. */
static TestModel *make_einsum(MotCtx *ctx, const char *inputs, const char *equation)
{
    TestModel *m = make_model(ctx, 17);
    add_input(m, "x", MOT_F32, "2,3,4");
    add_node(m, mot_arena_printf(&ctx->arena, "y = Einsum(%s) {equation=\"-\"}", inputs));
    m->graph.node[0]->attribute[0]->s.data = (uint8_t *)mot_arena_strdup(&ctx->arena, equation);
    m->graph.node[0]->attribute[0]->s.len = strlen(equation);
    add_output(m, "y");
    return m;
}

/* Beyond that letters were dropped, and summed over too early. */
static void products_have_up_to_eight_letters(void **state)
{
    static const struct {
        const char *inputs, *good, *bad;
    } cases[] = {{"x, x, x", "abc,def,gbc", "abc,def,ghi"},
                 {"x, x, x, x, x, x", "abc,def,abc,def,abc,def->", "abc,def,ghi,abc,def,ghi->"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        import_ok(make_einsum(*state, cases[i].inputs, cases[i].good), NULL);
        assert_fails(make_einsum(*state, cases[i].inputs, cases[i].bad), NULL, MOT_ERR_UNSUPPORTED,
                     "the result has rank 9");
    }
}

static void an_error_says_where_operands_come_from(void **state)
{
    TestModel *m = make_model(*state, 17);
    add_input(m, "x", MOT_F32, "2,3");
    add_ints(m, "s", "2", "2,4");
    add_node(m, "a = Relu(x) {} /h.0/relu");
    add_node(m, "y = Reshape(a, s) {} /h.0/reshape");
    add_output(m, "y");
    assert_fails(
        m, NULL, MOT_ERR_MODEL,
        ": node 1 \"/h.0/reshape\": Reshape: target shape [2x4] has 8 elements, the input has 6");
    assert_fails(m, NULL, MOT_ERR_MODEL, "input \"a\" : f32[2x3] comes from node 0 \"/h.0/relu\"");
}

/* ---- Meaning ---- */

static void matmul_drops_broadcast_batch_dims(void **state)
{
    TestModel *m = make_model(*state, 17);
    add_input(m, "x", MOT_F32, "2,1,1,2");
    add_input(m, "y", MOT_F32, "3,2,2");
    add_node(m, "z = MatMul(x, y)");
    add_output(m, "z");
    MotGraph *g = import_ok(m, NULL);
    assert_string_equal(mot_attrs(find_op(g, MOT_OP_CONTRACT), contract)->spec, "amk,bkn->abmn");
    MotTensor t = evaluate(*state, g);
    const double expected[] = {2, 3, 6, 7, 10, 11, 6, 11, 26, 31, 46, 51};
    assert_values(&t, expected, 12);
}

static void gemm_is_letters_scale_and_bias(void **state)
{
    TestModel *m = make_model(*state, 13);
    add_input(m, "x", MOT_F32, "1,2");
    add_floats(m, "w", "2,2", "1,2,3,4");
    add_floats(m, "c", "2", "10,20");
    add_node(m, "y = Gemm(x, w, c) {transB=1, alpha=2.0, beta=0.5}");
    add_output(m, "y");
    MotGraph *g = import_ok(m, NULL);
    assert_string_equal(mot_attrs(find_op(g, MOT_OP_CONTRACT), contract)->spec, "mk,nk->mn");
    MotTensor t = evaluate(*state, g); /* x = 0, 1; w = 1..4; c = 1, 2 */
    assert_values(&t, (const double[]){4.5, 9}, 2);
}

static void softmax_means_what_its_version_says(void **state)
{
    for (int64_t opset = 11; opset <= 13; opset += 2) {
        TestModel *m = make_model(*state, opset);
        add_input(m, "x", MOT_F32, "1,2,2");
        add_node(m, "y = Softmax(x) {axis=1}");
        add_output(m, "y");
        MotTensor t = evaluate(*state, import_ok(m, NULL));
        const double flat[] = {0.0320586, 0.0871443, 0.236883, 0.643914};
        const double single[] = {0.119203, 0.119203, 0.880797, 0.880797};
        assert_values(&t, opset == 11 ? flat : single, 4);
    }
}

static void slices_step_backwards(void **state)
{
    TestModel *m = make_model(*state, 13);
    add_input(m, "x", MOT_F32, "5");
    add_ints(m, "start", "1", "-1");
    add_ints(m, "end", "1", "-9223372036854775807");
    add_ints(m, "axis", "1", "0");
    add_ints(m, "step", "1", "-2");
    add_node(m, "y = Slice(x, start, end, axis, step)");
    add_output(m, "y");
    MotTensor t = evaluate(*state, import_ok(m, NULL));
    assert_values(&t, (const double[]){4, 2, 0}, 3);
}

static void sequences_live_at_import_only(void **state)
{
    TestModel *m = make_model(*state, 18);
    add_input(m, "x", MOT_F32, "6");
    add_ints(m, "two", "", "2");
    add_ints(m, "one", "", "1");
    add_node(m, "s = SplitToSequence(x, two) {axis=0}");
    add_node(m, "y = SequenceAt(s, one)");
    add_output(m, "y");
    MotTensor t = evaluate(*state, import_ok(m, NULL));
    assert_values(&t, (const double[]){2, 3}, 2);
    add_ints(m, "most", "", "9223372036854775807");
    add_node(m, "whole = SplitToSequence(x, most)");
    add_node(m, "count = SequenceLength(whole)");
    import_ok(m, NULL);
    add_node(m, "z = Relu(s)");
    assert_fails(m, NULL, MOT_ERR_MODEL, "input \"s\" is a sequence");
}

static void initializers_are_params_or_constants(void **state)
{
    TestModel *m = make_model(*state, 13);
    add_input(m, "x", MOT_F32, "2,2");
    add_floats(m, "w", "2,2", "1");
    add_floats(m, "eps", "", "0.5");
    add_node(m, "a = Mul(x, w)");
    add_node(m, "y = Add(a, eps)");
    add_output(m, "y");
    MotGraph *g = import_ok(m, NULL);
    assert_int_equal(count_ops(g, MOT_OP_PARAM), 1);
    assert_string_equal(mot_attrs(find_op(g, MOT_OP_PARAM), param)->name, "w");
    assert_int_equal(count_ops(g, MOT_OP_CONSTANT), 1);
    assert_int_equal(mot_graph_verify(g), MOT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)
        T(unsupported_operators_are_listed_all_at_once),
        T(an_operator_needs_its_version),
        T(unbound_dims_are_listed),
        T(bound_dims_become_sizes),
        T(offered_inputs_bind_dims),
        T(shape_arithmetic_is_folded),
        T(an_expanded_mask_is_stored_once),
        T(an_input_that_decides_a_shape_becomes_a_constant),
        T(another_type_in_the_file_is_a_warning),
        T(wrong_nodes_are_named),
        T(products_have_up_to_eight_letters),
        T(an_error_says_where_operands_come_from),
        T(matmul_drops_broadcast_batch_dims),
        T(gemm_is_letters_scale_and_bias),
        T(softmax_means_what_its_version_says),
        T(slices_step_backwards),
        T(sequences_live_at_import_only),
        T(initializers_are_params_or_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
