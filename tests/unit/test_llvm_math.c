/*
 * codegen/llvm_math: the largest error of the scalar functions against libm in f64, in units in the
 * last place of f32. The bounds are those that llvm_math.c states; the arguments step evenly
 * through a range, or through the bit patterns of all positive floats.
 */
#include "codegen/codegen.h"
#include "ir/builder.h"
#include "runtime/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1 << 17 };

typedef struct {
    const char *op;
    double (*reference)(double);
    double lo, hi; /* both 0: all positive floats */
    double most_ulps;
} Function;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double square_root(double x)
{
    return sqrt(x);
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static const Function functions[] = {{"exp", exp, -87.3, 88.7, 1},
                                     {"exp", exp, -1, 1, 1},
                                     {"log", log, 0, 0, 0.51},
                                     {"log", log, 0.5, 2, 0.51},
                                     {"tanh", tanh, -10, 10, 1.5},
                                     {"tanh", tanh, -0.01, 0.01, 1.5},
                                     {"erf", erf, -6, 6, 1.5},
                                     {"erf", erf, -0.01, 0.01, 1.5},
                                     {"sigmoid", sigmoid, -80, 80, 2.5},
                                     {"sin", sin, -1e5, 1e5, 0.51},
                                     {"cos", cos, -1e5, 1e5, 0.51},
                                     {"sin", sin, -1, 1, 0.51},
                                     {"sqrt", square_root, 0, 0, 0.51},
                                     {"rsqrt", rsqrt, 0, 0, 1.6},
                                     {"softplus", softplus, -87, 87, 1.5}};

static float nth_argument(const Function *f, int i)
{
    if (f->lo != f->hi)
        return (float)(f->lo + (f->hi - f->lo) * i / (N - 1));
    uint32_t bits = (uint32_t)(0x00800000 + (double)(0x7f7fffff - 0x00800000) * i / (N - 1));
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double count_ulps(double expected, double got)
{
    int exponent;
    double size = fabs(expected) < 0x1p-126 ? 0x1p-126 : fabs(expected);
    frexp(size, &exponent);
    return fabs(got - expected) / ldexp(1, exponent - 24);
}

/* y = op(x), or op(x, z) with z, on the cpu device. */
static void run_op(MotCtx *ctx, MotIsa isa, MotOpKind op, uint32_t arity, float *x, float *z,
                   float *y)
{
    MotGraph *g = mot_graph_make(ctx, "k");
    MotBuilder b = mot_builder_make(g);
    MotType type = mot_type_make(MOT_F32, 1, (int64_t[]){N});
    MotValue in[2] = {mot_input(&b, "x", type), arity > 1 ? mot_input(&b, "z", type) : 0};
    mot_output(&b, "y", mot_result(&b, mot_build(&b, op, in, arity, NULL), 0));
    MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
    p->ctx = ctx;
    mot_vec_push(&ctx->arena, &p->kernels, (MotKernel){.name = "k", .graph = g});
    MotBinding binding = {.size = NULL};
    MotInstr launch = {.n_bufs = arity + 1, .n_in = arity};
    void *device, *prepared, *bufs[] = {x, arity > 1 ? z : y, y};
    MotCodegenOpts opts = {.isa = isa, .cache_dir = ""};
    assert_int_equal(mot_codegen_program(ctx, p, &opts), MOT_OK);
    assert_int_equal(mot_device_cpu.open(ctx, 1, false, &device), MOT_OK);
    assert_int_equal(mot_device_cpu.prepare(device, ctx, p, &launch, &binding, &prepared), MOT_OK);
    assert_int_equal(mot_device_cpu.launch(device, prepared, bufs), MOT_OK);
}

static void check_function(MotIsa isa, const Function *f)
{
    static float x[N], y[N];
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (int i = 0; i < N; i++)
        x[i] = nth_argument(f, i);
    run_op(&ctx, isa, mot_op_find(f->op), 1, x, NULL, y);
    double worst = 0, worst_at = 0;
    for (int i = 0; i < N; i++) {
        double ulps = count_ulps(f->reference(x[i]), y[i]);
        if (!(ulps <= worst)) {
            worst = ulps;
            worst_at = x[i];
        }
    }
    print_message("%s: %-8s [%g, %g]: %.2f ulp, at %.9g\n", mot_isa_names[isa], f->op, f->lo, f->hi,
                  worst, worst_at);
    if (!(worst <= f->most_ulps))
        fail_msg("%s is off by %.2f ulp at %.9g; stated: %.2f", f->op, worst, worst_at,
                 f->most_ulps);
    mot_ctx_deinit(&ctx);
}

/* On every instruction set that this machine has. */
static void each_isa(void (*check)(MotIsa))
{
    int n = 0;
    for (int isa = 0; isa < MOT_N_ISAS; isa++)
        if (mot_isa_is_supported((MotIsa)isa)) {
            check((MotIsa)isa);
            n++;
        }
    if (n == 0)
        skip();
}

static void check_functions(MotIsa isa)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        check_function(isa, &functions[i]);
}

static void functions_are_as_exact_as_stated(void **state)
{
    (void)state;
    each_isa(check_functions);
}

static void check_pow(MotIsa isa)
{
    static float x[N], z[N], y[N];
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (int i = 0; i < N; i++) {
        double part = (double)i / (double)N, other = (double)(i * 79 % N) / (double)N;
        x[i] = (float)(i % 2 ? 0.001 + 4 * part : -3 + 6 * part);
        z[i] = (float)(i % 2 ? -20 + 40 * other : (i / 2) % 9 - 4);
    }
    run_op(&ctx, isa, MOT_OP_POW, 2, x, z, y);
    for (int i = 0; i < N; i++) {
        double expected = pow((double)x[i], (double)z[i]);
        if (!isinf((float)expected) && count_ulps(expected, y[i]) > 0.51)
            fail_msg("pow(%.9g, %.9g) is %.9g, not %.9g", x[i], z[i], y[i], expected);
    }
    mot_ctx_deinit(&ctx);
}

static void pow_is_rounded_correctly(void **state)
{
    (void)state;
    each_isa(check_pow);
}

typedef struct {
    const char *op;
    float x, y;
} Special;

/*
 * Zeros are exact where exp would be denormal: denormals cost a hundred cycles in every later
 * product.
 */
static const Special specials[] = {{"exp", -88, 0},
                                   {"exp", -INFINITY, 0},
                                   {"exp", INFINITY, INFINITY},
                                   {"exp", 100, INFINITY},
                                   {"exp", NAN, NAN},
                                   {"exp", 0, 1},
                                   {"log", 0, -INFINITY},
                                   {"log", INFINITY, INFINITY},
                                   {"log", -1, NAN},
                                   {"log", NAN, NAN},
                                   {"log", 1, 0},
                                   {"tanh", INFINITY, 1},
                                   {"tanh", -INFINITY, -1},
                                   {"tanh", NAN, NAN},
                                   {"tanh", 0, 0},
                                   {"erf", INFINITY, 1},
                                   {"erf", -INFINITY, -1},
                                   {"erf", NAN, NAN},
                                   {"sigmoid", INFINITY, 1},
                                   {"sigmoid", -INFINITY, 0},
                                   {"sigmoid", NAN, NAN},
                                   {"softplus", INFINITY, INFINITY},
                                   {"softplus", -INFINITY, 0},
                                   {"softplus", NAN, NAN},
                                   {"sqrt", -1, NAN},
                                   {"relu", NAN, NAN},
                                   {"relu", -0.0F, 0},
                                   {"sign", NAN, 0},
                                   {"sin", NAN, NAN},
                                   {"floor", -0.5F, -1}};

static void check_specials(MotIsa isa)
{
    static float x[N], y[N];
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        x[0] = specials[i].x;
        run_op(&ctx, isa, mot_op_find(specials[i].op), 1, x, NULL, y);
        bool is_right = y[0] == specials[i].y || (isnan(y[0]) && isnan(specials[i].y));
        if (!is_right)
            fail_msg("%s(%g) is %g, not %g", specials[i].op, specials[i].x, y[0], specials[i].y);
        mot_ctx_deinit(&ctx);
    }
}

static void special_arguments_give_special_values(void **state)
{
    (void)state;
    each_isa(check_specials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_are_as_exact_as_stated),
                                       cmocka_unit_test(pow_is_rounded_correctly),
                                       cmocka_unit_test(special_arguments_give_special_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
