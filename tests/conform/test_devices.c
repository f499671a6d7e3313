/*
 * The conformance suite: every backend computes every case of device_cases.h and is held against the reference. A row of the op table
 * without a case is a failure unless it is listed as one that launches nothing.
 */
#include "codegen/codegen.h"
#include "codegen/kernel.h"
#include "ir/eval.h"
#include "runtime/device.h"
#include "tests/conform/device_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_CASES = sizeof cases / sizeof cases[0], MAX_BUFS = 16 };

typedef struct {
    const char *name, *device;
    int isa; /* of its images; -1: it needs none */
    uint32_t threads;
} Backend;

static const Backend backends[] = {{"ref", "ref", -1, 1},
                                   {"cpu, AVX2", "cpu", MOT_ISA_AVX2, 1},
                                   {"cpu, AVX2, 3 threads", "cpu", MOT_ISA_AVX2, 3},
                                   {"cpu, AVX-512", "cpu", MOT_ISA_AVX512, 1},
                                   {"cpu, AVX-512, 2 threads", "cpu", MOT_ISA_AVX512, 2}};

/* ---- Numbers ---- */

static uint64_t random_state;

static double random_uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

static double random_normal(void)
{
    return sqrt(-2 * log(1 - random_uniform())) * cos(6.283185307179586 * random_uniform());
}

/* By the name of the input, see device_cases.h. */
static double random_number(const char *name)
{
    if (strcmp(name, "lr") == 0)
        return 0.01;
    if (strcmp(name, "step") == 0)
        return 3;
    switch (name[0]) {
    case 'p':
        return 0.1 + 2.9 * random_uniform();
    case 'm':
        return random_uniform() < 0.3 ? -INFINITY : random_normal();
    case 'n':
        return floor(random_uniform() * 101) - 50;
    case 'i':
        return floor(random_uniform() * atof(name + 1)) +
               (name[strlen(name) - 1] == 'd'); /* d: a divisor */
    default:
        return random_normal();
    }
}

/* ---- One case under one binding ---- */

typedef struct {
    MotGraph *graph;         /* bound */
    MotTensor buf[MAX_BUFS]; /* operands, then the reference's results */
    void *result[MAX_BUFS];  /* of the device */
    uint32_t n_in, n;
} Run;

static MotProgram *make_program(MotCtx *ctx, const Case *c)
{
    char *text =
        mot_arena_printf(&ctx->arena, "motley graph 1\ngraph @k%s {\n%s}\n", c->symbols, c->body);
    MotGraph *g = NULL;
    if (mot_graph_parse(ctx, c->name, text, &g) != MOT_OK)
        fail_msg("%s\n%s", text, mot_text_get(&ctx->error));
    MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
    p->ctx = ctx;
    mot_vec_push(&ctx->arena, &p->kernels, (MotKernel){.name = c->name, .graph = g});
    return p;
}

static MotTensor make_tensor(MotCtx *ctx, const MotType *type)
{
    return (MotTensor){*type, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(type) + 64)};
}

/* Attention's gradient takes what attention gave: random numbers there would be no softmax. */
static void fill_attention_results(MotCtx *ctx, const MotGraph *g, MotTensor *values)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_ATTENTION_GRAD)
            continue;
        bool has_mask = op->n_in > 6;
        MotTensor in[4] = {values[op->in[0]], values[op->in[1]], values[op->in[2]]};
        MotValue ids[4] = {op->in[0], op->in[1], op->in[2], has_mask ? op->in[6] : 0};
        if (has_mask)
            in[3] = values[op->in[6]];
        MotValue results[2] = {op->in[3], op->in[4]};
        MotTensor out[2] = {values[op->in[3]], values[op->in[4]]};
        MotOp forward = *op;
        forward.kind = MOT_OP_ATTENTION;
        forward.in = ids;
        forward.out = results;
        forward.n_in = has_mask ? 4 : 3;
        forward.n_out = 2;
        if (mot_eval_op(ctx, g, &forward, in, out) != MOT_OK)
            fail_msg("%s", mot_text_get(&ctx->error));
    }
}

static void make_run(MotCtx *ctx, const MotProgram *p, const MotBinding *binding, Run *r)
{
    const MotGraph *g = r->graph = mot_program_bind_kernel(ctx, p, 0, binding);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT)
            continue;
        MotTensor t = make_tensor(ctx, mot_graph_type(g, op->out[0]));
        for (int64_t k = 0; k < mot_type_elements(&t.type); k++)
            mot_tensor_set(&t, k, random_number(mot_attrs(op, input)->name));
        values[op->out[0]] = r->buf[r->n_in++] = t;
    }
    fill_attention_results(ctx, g, values);
    if (mot_eval_graph(ctx, g, values, false) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    r->n = r->n_in;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_OUTPUT)
            r->buf[r->n++] = values[op->in[0]];
    }
}

static void launch(MotCtx *ctx, const MotDeviceApi *api, void *device, void *kernel, Run *r)
{
    void *bufs[MAX_BUFS];
    for (uint32_t i = 0; i < r->n; i++) {
        if (i >= r->n_in) {
            r->result[i] = make_tensor(ctx, &r->buf[i].type).data;
            memset(r->result[i], 0xa5, (size_t)mot_type_bytes(&r->buf[i].type) + 64);
        }
        bufs[i] = i < r->n_in ? r->buf[i].data : r->result[i];
    }
    if (api->launch(device, kernel, bufs) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

static double root_mean_square(const MotTensor *t)
{
    double sum = 0;
    int64_t n = mot_type_elements(&t->type), n_finite = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(mot_tensor_get(t, i)) && fabs(mot_tensor_get(t, i)) < 1e30) {
            sum += mot_tensor_get(t, i) * mot_tensor_get(t, i);
            n_finite++;
        }
    return n_finite ? sqrt(sum / (double)n_finite) : 0;
}

/* Floats within 1e-5 of the value and of the tensor's root mean square; everything else equal; nothing written behind the end. */
static void compare(const Case *c, const Backend *b, const Run *r, uint32_t i)
{
    const MotTensor *expected = &r->buf[i];
    MotTensor got = {expected->type, r->result[i]};
    double scale = root_mean_square(expected);
    bool is_float = mot_dtype_class(expected->type.dtype) == MOT_CLASS_FLOAT;
    for (int64_t k = 0; k < mot_type_elements(&got.type); k++) {
        double e = mot_tensor_get(expected, k), g = mot_tensor_get(&got, k);
        bool is_close =
            e == g || (e != e && g != g) || (is_float && fabs(e - g) <= 1e-5 * (fabs(e) + scale));
        if (!is_close)
            fail_msg("%s: %s: result %u, element %lld is %.9g, not %.9g", b->name, c->name,
                     i - r->n_in, (long long)k, g, e);
    }
    const unsigned char *end = (const unsigned char *)r->result[i] + mot_type_bytes(&got.type);
    for (int k = 0; k < 64; k++)
        if (end[k] != 0xa5)
            fail_msg("%s: %s: wrote behind result %u", b->name, c->name, i - r->n_in);
}

static void check_binding(MotCtx *ctx, const Backend *b, void *device, const Case *c, MotProgram *p,
                          int which)
{
    const MotDeviceApi *api = mot_device_find(b->device);
    MotBinding binding = {.size =
                              mot_arena_copy(&ctx->arena, c->sizes[which], sizeof c->sizes[which])};
    Run run = {0}, again;
    void *kernel;
    random_state = 1234;
    make_run(ctx, p, &binding, &run);
    if (api->prepare(device, ctx, p, 0, &binding, &kernel) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx->error));
    launch(ctx, api, device, kernel, &run);
    for (uint32_t i = run.n_in; i < run.n; i++)
        compare(c, b, &run, i);
    again = run;
    launch(ctx, api, device, kernel, &again);
    for (uint32_t i = run.n_in; i < run.n; i++)
        if (memcmp(run.result[i], again.result[i], (size_t)mot_type_bytes(&run.buf[i].type)) != 0)
            fail_msg("%s: %s: a second launch gives other bits", b->name, c->name);
}

static void check_case(const Backend *b, const Case *c)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    void *device;
    MotProgram *p = make_program(&ctx, c);
    if (mot_device_find(b->device)->open(&ctx, b->threads, false, &device) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx.error));
    MotCodegenOpts opts = {.isa = (MotIsa)b->isa, .threads = 1, .cache_dir = ""};
    if (b->isa >= 0 && mot_codegen_program(&ctx, p, &opts) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx.error));
    for (int i = 0; i < (*c->symbols ? N_BINDINGS : 1); i++)
        check_binding(&ctx, b, device, c, p, i);
    mot_ctx_deinit(&ctx);
}

static void check_backend(void **state)
{
    const Backend *b = *state;
    const char *only = getenv("MOTLEY_CASE");
    if (b->isa >= 0 && !mot_isa_is_supported((MotIsa)b->isa))
        skip();
    for (int i = 0; i < N_CASES; i++)
        if (!only || strncmp(cases[i].name, only, strlen(only)) == 0)
            check_case(b, &cases[i]);
}

/* ---- Coverage ---- */

/* What lowering never launches: values that the host fills, sinks, and what owns a region (refused, test_regions.c). */
static const MotOpKind without_kernel[] = {MOT_OP_NONE,     MOT_OP_INPUT,  MOT_OP_PARAM,
                                           MOT_OP_CONSTANT, MOT_OP_OUTPUT, MOT_OP_ASSIGN,
                                           MOT_OP_GRADIENT, MOT_OP_SCAN};

static void every_row_has_a_case(void **state)
{
    (void)state;
    bool is_covered[MOT_N_OPS] = {false};
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof without_kernel / sizeof without_kernel[0]; i++)
        is_covered[without_kernel[i]] = true;
    for (int i = 0; i < N_CASES; i++) {
        const MotGraph *g = make_program(&ctx, &cases[i])->kernels.data[0].graph;
        for (uint32_t k = 0; k < g->body.n; k++)
            is_covered[mot_graph_op(g, g->body.data[k])->kind] = true;
    }
    for (int k = 0; k < MOT_N_OPS; k++)
        if (!is_covered[k])
            fail_msg("no case for %s", mot_op_info((MotOpKind)k)->name);
    mot_ctx_deinit(&ctx);
}

/* ---- Shapes ---- */

/* Cut contractions whose matrices have unit strides are GEMMs behind a packing prologue, not sums of products. */
static void cut_matrices_are_gemms(void **state)
{
    (void)state;
    static const char *const specs[] = {"mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"};
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const char *x = specs[i][0] == 'm' ? "f32[5x17]" : "f32[17x5]",
                   *z = specs[i][3] == 'k' ? "f32[17x9]" : "f32[9x17]";
        char *body = mot_arena_printf(
            &ctx.arena,
            "%%x = input {name=\"x\"} : %s %%z = input {name=\"z\"} : %s %%i = input {name=\"i\"} "
            ": i64[@a]\n%%y = contract %%x %%z %%i {spec=\"%s\", cut=\"k\"} : f32[5x9]\noutput %%y "
            "{name=\"y\"}\n",
            x, z, specs[i]);
        Case c = {"cut", " {symbols=[@a]}", {{0}}, body};
        MotKernelIr kernel;
        assert_int_equal(
            mot_kernel_build(&ctx, make_program(&ctx, &c)->kernels.data[0].graph, &kernel), MOT_OK);
        assert_int_equal(kernel.n_nests, 1);
        assert_int_equal(kernel.nest[0]->shape, MOT_SHAPE_CONTRACT);
        assert_true(kernel.nest[0]->contract.has_list);
        assert_int_equal(kernel.nest[0]->contract.k.n, 1);
    }
    mot_ctx_deinit(&ctx);
}

/* ---- What is refused ---- */

typedef struct {
    const char *body, *message;
    const char *symbols;
} Refusal;

static const Refusal refusals[] = {
    {IN("x", "f16[4]") "%y = exp %x : f16[4]\n" OUT("y"), "f16", ""},
    {IN("x", "f32[6x4]") "%1 = exp %x : f32[6x4]\n%2 = reshape %1 {dims=[3, 8]} : f32[3x8]\n"
                         "%3 = reduce_sum %2 {axes=[1]} : f32[3]\n" OUT("3"),
     "regroups dims", ""},
    {IN("x", "f32[6x4]") IN("xz", "f32[4x4]") "%1 = exp %x : f32[6x4]\n%2 = contract %1 %xz "
                                              "{spec=\"mk,kn->mn\"} : f32[6x4]\n" OUT("2"),
     "follows other ops", ""},
    {IN("x", "f32[6x4]") "%1 = reduce_sum %x {axes=[1], keep} : f32[6x1]\n%2 = reduce_sum %x "
                         "{axes=[0], keep} : f32[1x4]\n"
                         "%3 = mul %1 %2 : f32[6x4]\n" OUT("3"),
     "reductions over different loops", ""},
    {IN("x", "f32[5x@a]") IN("xs", "f32[@a]") "%y, %m, %r = layer_norm %x %xs {axis=1, eps=1e-05} "
                                              ": f32[5x@a], f32[5x1], f32[5x1]\n" OUT("y"),
     "needs dim 1 whole", " {symbols=[@a]}"}};

static void what_no_shape_covers_is_refused(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        Case c = {"refusal", refusals[i].symbols, {{0}}, refusals[i].body};
        MotProgram *p = make_program(&ctx, &c);
        const char *reason = NULL;
        assert_false(mot_kernel_supports(&ctx, p->kernels.data[0].graph, &reason));
        if (!strstr(reason, refusals[i].message))
            fail_msg("refused because: %s\nexpected: %s", reason, refusals[i].message);
        assert_int_equal(ctx.status, MOT_OK);
        MotCodegenOpts opts = {.isa = MOT_ISA_AVX2, .cache_dir = ""};
        assert_int_equal(mot_codegen_program(&ctx, p, &opts), MOT_ERR_UNSUPPORTED);
        mot_error_clear(&ctx);
    }
    mot_ctx_deinit(&ctx);
}

/* An index outside of its table is told, and reads and writes nothing there. */
static void bad_indices_are_reported(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        IN("x", "f32[65x40]") IN("i", "i64[8]") "%y = gather %x %i {axis=0} : f32[8x40]\n" OUT("y"),
        IN("i", "i64[8]")
            IN("x", "f32[8x40]") "%y = scatter_add %i %x {axis=0, size=65} : f32[65x40]\n" OUT("y"),
        IN("x", "f32[65]") IN("i", "i64[8]") "%y = gather %x %i {axis=0} : f32[8]\n" OUT("y"),
        IN("x", "f32[65x40]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ka,kb->ab\", "
                                                "cut=\"k\"} : f32[40x40]\n" OUT("y"),
        IN("x", "f32[30x65]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ak,bk->ab\", "
                                                "cut=\"k\"} : f32[30x30]\n" OUT("y"),
        IN("x", "f32[30x65]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ak,ak->a\", "
                                                "cut=\"k\"} : f32[30]\n" OUT("y"),
        IN("x", "f32[30x0]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ak,bk->ab\", "
                                               "cut=\"k\"} : f32[30x30]\n" OUT("y")};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        for (int64_t bad = -1; bad < 1000; bad += 66) {
            MotCtx ctx;
            mot_ctx_init(&ctx);
            Case c = {"bad index", "", {{0}}, bodies[i]};
            MotProgram *p = make_program(&ctx, &c);
            MotCodegenOpts opts = {.isa = MOT_ISA_AVX2, .cache_dir = ""};
            MotBinding binding = {.size = NULL};
            static float x[65 * 40], y[65 * 40];
            int64_t index[8] = {0, 1, 64, bad, 3, 4, 5, 6};
            void *device, *kernel,
                *bufs[3] = {i == 1 ? (void *)index : x, i == 1 ? (void *)x : index, y};
            assert_int_equal(mot_codegen_program(&ctx, p, &opts), MOT_OK);
            assert_int_equal(mot_device_cpu.open(&ctx, 1, false, &device), MOT_OK);
            assert_int_equal(mot_device_cpu.prepare(device, &ctx, p, 0, &binding, &kernel), MOT_OK);
            bool is_inside = bad >= 0 && bad < 65 && !strstr(bodies[i], "x0]");
            assert_int_equal(mot_device_cpu.launch(device, kernel, bufs),
                             is_inside ? MOT_OK : MOT_ERR_DATA);
            if (!is_inside && !strstr(bodies[i], "x0]"))
                assert_non_null(strstr(mot_text_get(&ctx.error),
                                       mot_arena_printf(&ctx.arena, "index %lld", (long long)bad)));
            mot_ctx_deinit(&ctx);
        }
}

int main(void)
{
    struct CMUnitTest tests[sizeof backends / sizeof backends[0] + 4];
    size_t n = 0;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        union {
            const Backend *in;
            void *out;
        } u = {.in = &backends[i]};
        tests[n++] = (struct CMUnitTest){backends[i].name, check_backend, NULL, NULL, u.out};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_row_has_a_case);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(cut_matrices_are_gemms);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(what_no_shape_covers_is_refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bad_indices_are_reported);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
