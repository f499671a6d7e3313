/*
 * The graph passes keep what a graph computes: `ref` results in float64 before and after each of
 * them, on every committed model and on random graphs; the verifier accepts what each leaves. What
 * raise and split-dims must find is counted.
 *
 *     test_passes              all
 *     test_passes --seed 0x2a  one random graph, printed before and after each pass
 */
#include "frontend/import.h"
#include "frontend/trained.h"
#include "ir/eval.h"
#include "ir/layout.h"
#include "passes/graph/raise.h"
#include "passes/graph/simplify.h"
#include "passes/pipeline.h"
#include "tests/prop/random_graph.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const passes[] = {"simplify", "split-dims", "simplify",
                                     "raise",    "simplify",   "unpack"};
enum { N_PASSES = sizeof passes / sizeof *passes, MAX_OUTPUTS = 8, N_SEEDS = 600 };
static const MotPassOpts no_opts = {0};
/* Float64; the files round 1/sqrt(2) and its like to float32. */
static const double tolerance = 1e-6;

/* ---- Evaluation ---- */

/* Element e of the tensor called `name`: the same whatever the layout. */
static double element(const char *name, int64_t e)
{
    uint64_t x = mot_hash(name, strlen(name)) + (uint64_t)e * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)(x >> 11) * 0x1p-53 * 2 - 1;
}

static MotTensor make_tensor(MotCtx *ctx, MotType type, const char *name)
{
    bool is_float = mot_dtype_class(type.dtype) == MOT_CLASS_FLOAT;
    type.dtype = is_float ? MOT_F64 : type.dtype;
    MotTensor t = {type, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&type))};
    for (int64_t e = 0; e < mot_type_elements(&type); e++)
        mot_tensor_set(&t, e, is_float ? element(name, e) : floor((element(name, e) + 1) * 3));
    return t;
}

/* A parameter's value: what stands in the file, in its layout of now. */
static MotTensor make_param(MotCtx *ctx, const MotType *type, const MotOp *op)
{
    MotType wide = *type;
    wide.dtype = MOT_F64;
    MotTensor file = make_tensor(ctx, mot_param_file_type(&wide, op), mot_attrs(op, param)->name);
    MotTensor value = {wide, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&wide))};
    int64_t stride[MOT_MAX_RANK];
    mot_param_strides(&wide, op, stride);
    for (int64_t e = 0; e < mot_type_elements(&wide); e++) {
        int64_t at = 0, rest = e;
        for (int d = wide.rank; d-- > 0; rest /= wide.dims[d])
            at += rest % wide.dims[d] * stride[d];
        mot_tensor_set(&value, e, mot_tensor_get(&file, at));
    }
    return value;
}

/* The outputs in the order of the body. */
typedef struct {
    const char *name[MAX_OUTPUTS];
    MotTensor tensor[MAX_OUTPUTS];
    uint32_t n;
} Outputs;

static Outputs evaluate(MotCtx *ctx, const MotGraph *g)
{
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    Outputs outputs = {.n = 0};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT)
            values[op->out[0]] =
                make_tensor(ctx, *mot_graph_type(g, op->out[0]), mot_attrs(op, input)->name);
        else if (op->kind == MOT_OP_PARAM)
            values[op->out[0]] = make_param(ctx, mot_graph_type(g, op->out[0]), op);
    }
    if (mot_eval_graph(ctx, g, values, true) != MOT_OK)
        fail_msg("evaluation: %s", mot_text_get(&ctx->error));
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_OUTPUT)
            continue;
        assert_true(outputs.n < MAX_OUTPUTS);
        outputs.name[outputs.n] = mot_attrs(op, output)->name;
        outputs.tensor[outputs.n++] = values[op->in[0]];
    }
    return outputs;
}

/*
 * The largest difference, as a part of 1 + the largest magnitude; infinite where one is NaN and the
 * other is not.
 */
static double distance(const MotTensor *a, const MotTensor *b)
{
    double most = 0, magnitude = 1;
    for (int64_t e = 0; e < mot_type_elements(&a->type); e++) {
        double x = mot_tensor_get(a, e), y = mot_tensor_get(b, e);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        most = fmax(most, fabs(x - y));
        magnitude = fmax(magnitude, 1 + fabs(x));
    }
    return most / magnitude;
}

static const char *print(MotCtx *ctx, const MotGraph *g)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_graph_print(g, &text);
    return mot_text_get(&text);
}

static void run_passes(MotCtx *ctx, MotGraph *g, const char *list)
{
    if (mot_passes_run_list(ctx, g, &no_opts, list) != MOT_OK || mot_graph_verify(g) != MOT_OK)
        fail_msg("%s: %s", list, mot_text_get(&ctx->error));
}

/* Runs the passes on g and compares after each. `what` names the graph in messages. */
static void check_passes_keep(MotCtx *ctx, MotGraph *g, const char *what, bool is_shown)
{
    Outputs before = evaluate(ctx, g);
    for (int p = 0; p < N_PASSES; p++) {
        if (is_shown)
            printf("// before %s\n%s\n", passes[p], print(ctx, g));
        const char *given = print(ctx, g);
        run_passes(ctx, g, passes[p]);
        Outputs after = evaluate(ctx, g);
        assert_int_equal(after.n, before.n);
        for (uint32_t i = 0; i < before.n; i++) {
            assert_string_equal(after.name[i], before.name[i]);
            assert_true(mot_type_equal(&after.tensor[i].type, &before.tensor[i].type));
            double d = distance(&before.tensor[i], &after.tensor[i]);
            if (!(d <= tolerance))
                fail_msg("%s: pass %s changes output %s by %g\n%s\nbecomes\n%s", what, passes[p],
                         before.name[i], d, given, print(ctx, g));
        }
    }
}

/* ---- Models ---- */

static MotCtx *new_ctx(void)
{
    static MotCtx ctx; /* one at a time */
    mot_ctx_init(&ctx);
    ctx.debug.verify = true;
    return &ctx;
}

static MotStatus import(MotCtx *ctx, const char *path, MotGraph **out_graph)
{
    static const MotDimBinding batch[] = {{"batch", 2}};
    MotImportOpts opts = {.dims = batch, .n_dims = strstr(path, "dynamic") ? 1 : 0};
    MotOnnxOpts onnx_opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    MotTrained trained;
    MOT_TRY(mot_onnx_open(ctx, path, &onnx_opts, &file));
    MOT_TRY(mot_import(ctx, file, &opts, out_graph));
    MOT_TRY(mot_trained_decide(ctx, *out_graph, &(MotTrainOpts){0}, &trained));
    MOT_TRY(mot_trained_freeze(ctx, *out_graph, file));
    mot_graph_compact(*out_graph);
    return MOT_OK;
}

/* Calls `check` for every committed model with "gpt" or "mlp" at the beginning of its name. */
static void for_each_model(void (*check)(MotCtx *, const char *path, MotGraph *))
{
    glob_t found;
    assert_int_equal(glob("models/*.onnx", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 24);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        MotCtx *ctx = new_ctx();
        MotGraph *g = NULL;
        if (import(ctx, found.gl_pathv[i], &g) != MOT_OK)
            fail_msg("%s", mot_text_get(&ctx->error));
        check(ctx, found.gl_pathv[i], g);
        mot_ctx_deinit(ctx);
    }
    globfree(&found);
}

static void check_model(MotCtx *ctx, const char *path, MotGraph *g)
{
    if (!strstr(path, "gpt_char")) /* as the other GPTs, but large for `ref` */
        check_passes_keep(ctx, g, path, false);
}

static void models_compute_the_same(void **state)
{
    (void)state;
    for_each_model(check_model);
}

static void count_ops(const MotGraph *g, int *n)
{
    for (uint32_t i = 0; i < g->body.n; i++)
        n[mot_graph_op(g, g->body.data[i])->kind]++;
}

static void run_all(MotCtx *ctx, MotGraph *g)
{
    for (int p = 0; p < N_PASSES; p++)
        run_passes(ctx, g, passes[p]);
}

static void check_gone(const char *path, const int *n, const MotOpKind *kinds, size_t n_kinds)
{
    for (size_t i = 0; i < n_kinds; i++)
        if (n[kinds[i]])
            fail_msg("%s: %s is left", path, mot_op_info(kinds[i])->name);
}

static void check_counts(MotCtx *ctx, const char *path, MotGraph *g)
{
    static const MotOpKind raised[] = {MOT_OP_SOFTMAX, MOT_OP_ERF,  MOT_OP_TANH,
                                       MOT_OP_EXP,     MOT_OP_SQRT, MOT_OP_RSQRT};
    static const MotOpKind absorbed[] = {MOT_OP_TRANSPOSE, MOT_OP_BROADCAST, MOT_OP_REDUCE_SUM,
                                         MOT_OP_MUL, MOT_OP_DIV};
    int n[MOT_N_OPS] = {0}, layers = strstr(path, "gpt_char") ? 3 : 2;
    run_all(ctx, g);
    if (strstr(path, "mlp"))
        return;
    count_ops(g, n);
    assert_int_equal(n[MOT_OP_ATTENTION], layers);
    assert_int_equal(n[MOT_OP_LAYER_NORM], 2 * layers + 1);
    assert_int_equal(n[MOT_OP_GELU], layers);
    check_gone(path, n, raised, sizeof raised / sizeof *raised);
    if (!strstr(path, "gpt"))
        return;
    assert_int_equal(n[MOT_OP_CONTRACT], 4 * layers + 1);
    assert_int_equal(n[MOT_OP_SLICE], 3 * layers);
    /* The slices' dim of size 1, and the bias where the packed dim is outermost. */
    assert_int_equal(n[MOT_OP_RESHAPE], 4 * layers);
    check_gone(path, n, absorbed, sizeof absorbed / sizeof *absorbed);
}

static void models_are_raised(void **state)
{
    (void)state;
    for_each_model(check_counts);
}

/*
 * All exports of one architecture: equal counts of everything but parameters (a tied head is one or
 * two).
 */
static void check_equal_counts(MotCtx *ctx, const char *path, MotGraph *g)
{
    static const char *const archs[] = {"gpt_char", "gpt_", "mlp_mse", "mlp_", "vit_"};
    static int first[sizeof archs / sizeof *archs][MOT_N_OPS];
    int n[MOT_N_OPS] = {0}, arch = 0;
    run_all(ctx, g);
    count_ops(g, n);
    n[MOT_OP_PARAM] = 0;
    while (!strstr(path, archs[arch]))
        arch++;
    if (first[arch][MOT_OP_INPUT] == 0)
        memcpy(first[arch], n, sizeof n);
    for (int kind = 1; kind < MOT_N_OPS; kind++)
        if (n[kind] != first[arch][kind])
            fail_msg("%s: %d %s, another export has %d", path, n[kind],
                     mot_op_info((MotOpKind)kind)->name, first[arch][kind]);
}

static void exports_of_one_model_agree(void **state)
{
    (void)state;
    for_each_model(check_equal_counts);
}

/* ---- raise(expand(op)) == op ---- */

typedef struct {
    MotOpKind kind;
    const char *attrs;  /* as in the text form */
    const char *types;  /* of operands, comma-separated */
    uint32_t n_results; /* that are outputs */
} Composite;

static const Composite composites[] = {
    {MOT_OP_SOFTMAX, "axis=1", "f32[4x16]", 1},
    {MOT_OP_SOFTMAX, "axis=1", "f32[4x16x3]", 1},
    {MOT_OP_SOFTMAX, "axis=0", "f16[4x16]", 1},
    {MOT_OP_GELU, "", "f32[4x16]", 1},
    {MOT_OP_GELU, "tanh", "f32[4x16]", 1},
    {MOT_OP_GELU, "tanh", "bf16[3]", 1},
    {MOT_OP_CROSS_ENTROPY, "ignore=-100", "f32[4x7],i64[4]", 1},
    {MOT_OP_CROSS_ENTROPY, "ignore=3", "f32[2x5x7],i64[2x5]", 1},
    {MOT_OP_CROSS_ENTROPY, "ignore=-1, smoothing=0.125", "f32[4x8],i64[4]", 1},
    {MOT_OP_LAYER_NORM, "axis=2, eps=0.5", "f32[2x3x8],f32[8],f32[8]", 1},
    {MOT_OP_LAYER_NORM, "axis=2, eps=0.5", "f32[2x3x8],f32[8],f32[8]", 3},
    {MOT_OP_LAYER_NORM, "axis=1, eps=0.5", "f32[2x3x8],f32[3x8],f32[3x8]", 1},
    {MOT_OP_LAYER_NORM, "axis=1, eps=0.5", "f32[5x8],f32[8]", 3},
    {MOT_OP_ATTENTION, "scale=0.25, causal", "f32[2x6x4x5],f32[2x6x4x5],f32[2x6x4x5]", 1},
    {MOT_OP_ATTENTION, "scale=0.25, causal", "f32[2x6x4x5],f32[2x6x4x5],f32[2x6x4x5]", 2},
    {MOT_OP_ATTENTION, "scale=0.25", "f32[2x6x4x5],f32[2x9x4x5],f32[2x9x4x3]", 1},
    {MOT_OP_ATTENTION, "scale=0.25, causal", "f32[2x6x4x5],f32[2x9x2x5],f32[2x9x2x3]", 2},
    {MOT_OP_ATTENTION, "scale=1.0", "f32[2x6x4x5],f32[2x9x1x5],f32[2x9x1x3]", 2},
    {MOT_OP_ATTENTION, "scale=0.25", "f32[2x6x4x5],f32[2x9x4x5],f32[2x9x4x3],f32[6x9]", 1},
    {MOT_OP_ATTENTION, "scale=0.25", "f32[2x6x4x5],f32[2x9x2x5],f32[2x9x2x3],f32[2x1x6x9]", 2},
    {MOT_OP_ATTENTION, "scale=0.25", "f32[2x6x4x5],f32[2x9x2x5],f32[2x9x2x3],f32[4x6x9]", 1},
    {MOT_OP_ATTENTION, "scale=0.5, causal", "f32[2x6x4x5],f32[2x9x4x5],f32[2x9x4x3],f32[2x1x1x9]",
     1},
};

static const char *composite_text(MotCtx *ctx, const Composite *c)
{
    MotText t;
    mot_text_init(&t, &ctx->arena);
    mot_text_puts(&t, "motley graph 1\ngraph @g {\n");
    uint32_t n_in = 0;
    for (const char *p = c->types; *p; n_in++) {
        size_t n = strcspn(p, ",");
        mot_text_printf(&t, "%%x%u = input {name=\"x%u\"} : %.*s\n", n_in, n_in, (int)n, p);
        p += n + (p[n] == ',');
    }
    uint32_t n_out = mot_op_info(c->kind)->n_out;
    for (uint32_t i = 0; i < n_out; i++)
        mot_text_printf(&t, "%s%%y%u", i ? ", " : "", i);
    mot_text_printf(&t, " = %s", mot_op_info(c->kind)->name);
    for (uint32_t i = 0; i < n_in; i++)
        mot_text_printf(&t, " %%x%u", i);
    mot_text_printf(&t, *c->attrs ? " {%s}\n" : "%s\n", c->attrs);
    for (uint32_t i = 0; i < c->n_results; i++)
        mot_text_printf(&t, "output %%y%u {name=\"y%u\"}\n", i, i);
    mot_text_puts(&t, "}\n");
    return mot_text_get(&t);
}

static MotGraph *parse(MotCtx *ctx, const char *text)
{
    MotGraph *g;
    if (mot_graph_parse(ctx, "test", text, &g) != MOT_OK)
        fail_msg("%s\n%s", mot_text_get(&ctx->error), text);
    return g;
}

/* Runs `list` on the composite's expansion and wants the composite back. */
static void check_raised(MotCtx *ctx, const Composite *c, const char *list)
{
    MotGraph *g = parse(ctx, composite_text(ctx, c));
    int n[MOT_N_OPS] = {0};
    for (MotValue v = 1; v < g->values.n;
         v++) /* a result that nobody reads has no name in the expansion */
        if (mot_graph_def(g, v)->kind == c->kind && g->values.data[v].def_index >= c->n_results)
            g->values.data[v].name = NULL;
    const char *wanted = print(ctx, g);
    run_passes(ctx, g, "expand");
    count_ops(g, n);
    assert_int_equal(n[c->kind], 0);
    run_passes(ctx, g, list);
    const char *got = print(ctx, g);
    if (strcmp(got, wanted) != 0)
        fail_msg("after expand,%s:\n%s\nwanted\n%s", list, got, wanted);
}

static void expansions_are_raised(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof composites / sizeof *composites; i++) {
        MotCtx *ctx = new_ctx();
        check_raised(ctx, &composites[i], "simplify,raise,simplify");
        check_raised(ctx, &composites[i], "simplify,split-dims,simplify,raise,simplify");
        mot_ctx_deinit(ctx);
    }
}

/* ---- Rules ---- */

static void rule_limit_stops_rewriting(void **state)
{
    (void)state;
    static const char text[] =
        "motley graph 1\ngraph @g {\n%x = input {name=\"x\"} : f32[4]\n%a = neg %x : f32[4]\n"
        "%b = neg %a : f32[4]\n%c = neg %b : f32[4]\n%d = neg %c : f32[4]\n"
        "output %d {name=\"y\"}\n}\n";
    for (long limit = 0; limit <= 2; limit++) {
        MotCtx *ctx = new_ctx();
        MotGraph *g = parse(ctx, text);
        int n[MOT_N_OPS] = {0};
        ctx->debug.rule_limit = limit;
        run_passes(ctx, g, "simplify");
        count_ops(g, n);
        assert_int_equal(n[MOT_OP_NEG], limit == 1 ? 2 : 0);
        assert_true(limit == 0 || ctx->rule_firings <= limit);
        mot_ctx_deinit(ctx);
    }
}

/* ---- Random graphs ---- */

static void check_seed(uint64_t seed, bool is_shown)
{
    MotCtx *ctx = new_ctx();
    MotGraph *g = random_graph(ctx, seed);
    char what[64];
    snprintf(what, sizeof what, "test_passes --seed 0x%llx", (unsigned long long)seed);
    if (ctx->status != MOT_OK || mot_graph_verify(g) != MOT_OK)
        fail_msg("%s: %s", what, mot_text_get(&ctx->error));
    const char *text = print(ctx, g);
    if (strcmp(print(ctx, parse(ctx, text)), text) != 0)
        fail_msg("%s: the graph reads back as another:\n%s", what, text);
    check_passes_keep(ctx, g, what, is_shown);
    mot_ctx_deinit(ctx);
}

static void random_graphs_compute_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
        check_seed(seed, false);
}

/* ---- Scans ---- */

/* The region's ops over these operands; gives what its outputs show. */
static void inline_region(MotBuilder *b, const MotGraph *region, const MotValue *operands,
                          MotValue *out)
{
    MotValue *map = mot_arena_array(&b->graph->ctx->arena, MotValue, region->values.n);
    uint32_t n_in = 0, n_out = 0;
    for (uint32_t i = 0; i < region->body.n; i++) {
        const MotOp *op = mot_graph_op(region, region->body.data[i]);
        MotValue in[MOT_MAX_OPERANDS] = {0};
        for (uint32_t k = 0; k < op->n_in; k++)
            in[k] = map[op->in[k]];
        if (op->kind == MOT_OP_INPUT) {
            map[op->out[0]] = operands[n_in++];
        } else if (op->kind == MOT_OP_OUTPUT) {
            out[n_out++] = in[0];
        } else {
            MotGraph *own = op->region ? mot_graph_clone(b->graph->ctx, op->region) : NULL;
            MotOpId id = mot_build_region(b, op->kind, in, op->n_in, op->attrs, own);
            for (uint32_t k = 0; k < op->n_out; k++)
                map[op->out[k]] = mot_result(b, id, k);
        }
    }
}

/* One carried value, one slice, one whole value, one stack, as random graphs have them. */
static void unroll(MotBuilder *b, const MotOp *scan, MotValue *out)
{
    const MotAttr_scan *a = mot_attrs(scan, scan);
    int axis = (int)a->axes.data[0], out_axis = (int)a->out_axes.data[0];
    MotType x = *mot_graph_type(b->graph, scan->in[1]), slice = x;
    MotValue step[2] = {scan->in[0]}, stack = 0;
    slice.rank--;
    for (int d = axis; d < slice.rank; d++)
        slice.dims[d] = x.dims[d + 1];
    for (int64_t t = 0; t < x.dims[axis]; t++) {
        MotValue row = mot_slice_axis(b, scan->in[1], axis, t, 1);
        MotValue in[3] = {step[0], mot_reshape(b, row, slice.rank, slice.dims), scan->in[2]};
        inline_region(b, scan->region, in, step);
        MotType y = *mot_graph_type(b->graph, step[1]);
        for (int d = y.rank++; d > out_axis; d--)
            y.dims[d] = y.dims[d - 1];
        y.dims[out_axis] = 1;
        MotValue one = mot_reshape(b, step[1], y.rank, y.dims);
        stack = stack ? mot_concat(b, (MotValue[]){stack, one}, 2, out_axis) : one;
    }
    out[0] = step[0];
    out[1] = stack;
}

/* A scan gives what its steps, written one after another, give. */
static void scans_are_their_steps(void **state)
{
    (void)state;
    int n = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        MotCtx *ctx = new_ctx();
        MotGraph *g = random_graph(ctx, seed);
        Outputs before = evaluate(ctx, g);
        MotBuilder b = mot_builder_make(g);
        for (uint32_t i = 0, n_ops = g->body.n; i < n_ops; i++) {
            const MotOp op = *mot_graph_op(g, g->body.data[i]);
            MotValue steps[2];
            if (op.kind != MOT_OP_SCAN)
                continue;
            unroll(&b, &op, steps);
            mot_graph_replace(g, op.out, steps, 2);
            n++;
        }
        mot_graph_compact(g);
        if (mot_graph_verify(g) != MOT_OK)
            fail_msg("seed %d: %s", (int)seed, mot_text_get(&ctx->error));
        Outputs after = evaluate(ctx, g);
        for (uint32_t i = 0; i < before.n; i++)
            if (!(distance(&before.tensor[i], &after.tensor[i]) <= 1e-12))
                fail_msg("seed %d: output %s differs by %g:\n%s", (int)seed, before.name[i],
                         distance(&before.tensor[i], &after.tensor[i]),
                         print(ctx, random_graph(ctx, seed)));
        mot_ctx_deinit(ctx);
    }
    assert_true(n > N_SEEDS / 4);
}

/* ---- Coverage ---- */

/* Rules for what the builders never make: golden tests have them. */
static const char *const rare[] = {"cast-same", "reshape-same", "broadcast-same"};

typedef struct {
    MotMap fired;
} Firings;

static void note_firing(void *self, MotLogLevel level, const char *line)
{
    Firings *f = self;
    char name[64];
    if (level == MOT_LOG_DEBUG && sscanf(line, "rule %63s fired", name) == 1)
        mot_map_put_str(&f->fired, name, 1);
}

static void run_with_firings(Firings *f, MotGraph *g)
{
    g->ctx->log = note_firing;
    g->ctx->log_self = f;
    run_all(g->ctx, g);
}

static void check_all_fired(const Firings *f, const MotRules *tables, size_t n)
{
    for (size_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < tables[t].n; i++) {
            const char *name = tables[t].data[i].name;
            bool is_rare = false;
            for (size_t k = 0; k < sizeof rare / sizeof *rare; k++)
                is_rare |= strcmp(rare[k], name) == 0;
            if (!is_rare && !mot_map_get_str(&f->fired, name, NULL))
                fail_msg("rule %s never fired", name);
        }
}

/*
 * What was compared above must have been rewritten: every rule fires on a random graph or an
 * expansion.
 */
static void every_rule_fires(void **state)
{
    (void)state;
    const MotRules tables[] = {
        mot_rules_fold,         mot_rules_algebra,    mot_rules_shape,          mot_rules_transpose,
        mot_rules_raise_layers, mot_rules_raise_loss, mot_rules_raise_attention};
    MotCtx own;
    mot_ctx_init(&own);
    Firings f = {0};
    mot_map_init(&f.fired, &own.arena);
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        MotCtx *ctx = new_ctx();
        run_with_firings(&f, random_graph(ctx, seed));
        mot_ctx_deinit(ctx);
    }
    for (size_t i = 0; i < sizeof composites / sizeof *composites; i++) {
        MotCtx *ctx = new_ctx();
        MotGraph *g = parse(ctx, composite_text(ctx, &composites[i]));
        run_passes(ctx, g, "expand");
        run_with_firings(&f, g);
        mot_ctx_deinit(ctx);
    }
    check_all_fired(&f, tables, sizeof tables / sizeof *tables);
    mot_ctx_deinit(&own);
}

static uint64_t one_seed;

static void one_random_graph(void **state)
{
    (void)state;
    check_seed(one_seed, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(models_compute_the_same),
        cmocka_unit_test(models_are_raised),
        cmocka_unit_test(exports_of_one_model_agree),
        cmocka_unit_test(expansions_are_raised),
        cmocka_unit_test(rule_limit_stops_rewriting),
        cmocka_unit_test(random_graphs_compute_the_same),
        cmocka_unit_test(scans_are_their_steps),
        cmocka_unit_test(every_rule_fires),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(one_random_graph)};
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        one_seed = strtoull(argv[2], NULL, 0);
        return cmocka_run_group_tests(one, NULL, NULL);
    }
    return cmocka_run_group_tests(all, NULL, NULL);
}
