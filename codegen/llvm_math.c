/*
 * LLVM IR: functions of numbers, on vectors of lanes. Own polynomials, fitted to the smallest
 * weighted error by reweighted least squares. Largest errors in ulp of f32, measured over the whole
 * range by tests/unit/test_llvm_math.c:
 *
 *     exp 0.97, log 0.5, tanh 1.2, erf 1.2, sigmoid 2.2, softplus 1.3, rsqrt 1.5, sin and cos 0.5
 *     (|x| <= 1e5), pow 0.5
 *
 * log, log1p, pow, sin and cos of f32 are computed in f64: they are rare in training, and so need
 * no fits. Results below the normal range are 0 in exp: denormals make every later multiplication
 * slow.
 */
#include "codegen/llvm.h"

#include <math.h>
#include <string.h>

/* exp(r) = 1 + r + r^2 P(r), |r| <= ln(2) / 2. */
static const double exp_p[] = {4.999999345e-01, 1.666652064e-01, 4.166838793e-02, 8.368715412e-03,
                               1.381459987e-03};
/* erf(x) = x + x P(x^2), |x| < 0.93; 1 - exp(t Q(t)), t = |x| up to 4. */
static const double erf_p[] = {1.283791477e-01,  -3.761248110e-01, 1.128168253e-01,
                               -2.676171946e-02, 4.985940065e-03,  -5.953739237e-04};
static const double erf_q[] = {-1.128648492e+00, -6.351513087e-01, -1.062368911e-01,
                               2.376207505e-02,  -3.642465019e-03, 3.228053921e-04,
                               -1.123146543e-05};
/* tanh(x) = x + x^3 P(x^2), |x| < 0.625. */
static const double tanh_p[] = {-3.333328194e-01, 1.333144216e-01, -5.373971225e-02,
                                2.063907901e-02, -5.704978643e-03};
/* log((1 + s) / (1 - s)) = 2 s sum(s^2i / (2i + 1)). */
static const double log_p[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                               1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
/* Taylor, for f64: exp(r), |r| <= ln(2) / 2; sin(r) / r and cos(r) in r^2, |r| <= pi / 4. */
static const double exp_taylor[] = {1.0,
                                    1.0,
                                    1.0 / 2,
                                    1.0 / 6,
                                    1.0 / 24,
                                    1.0 / 120,
                                    1.0 / 720,
                                    1.0 / 5040,
                                    1.0 / 40320,
                                    1.0 / 362880,
                                    1.0 / 3628800,
                                    1.0 / 39916800,
                                    1.0 / 479001600,
                                    1.0 / 6227020800.0};
static const double sin_taylor[] = {1.0,         -1.0 / 6,     1.0 / 120,
                                    -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
static const double cos_taylor[] = {1.0,        -1.0 / 2,    1.0 / 24,
                                    -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};

static LLVMTypeRef element_of(LLVMValueRef x)
{
    return LLVMGetElementType(LLVMTypeOf(x));
}

/* A vector of x's element type with this value in all lanes. */
static LLVMValueRef number(MotLlvm *l, LLVMValueRef x, double value)
{
    LLVMValueRef all[16];
    for (unsigned i = 0; i < l->lanes; i++)
        all[i] = LLVMConstReal(element_of(x), value);
    return LLVMConstVector(all, l->lanes);
}

/* c[0] + c[1] x + ... + c[n-1] x^(n-1). */
static LLVMValueRef horner(MotLlvm *l, LLVMValueRef x, const double *c, size_t n)
{
    LLVMValueRef r = number(l, x, c[n - 1]);
    for (size_t i = n - 1; i-- > 0;)
        r = mot_llvm_fadd(l, mot_llvm_fmul(l, r, x), number(l, x, c[i]));
    return r;
}
#define HORNER(l, x, c) horner((l), (x), (c), sizeof(c) / sizeof((c)[0]))

static LLVMValueRef call_1(MotLlvm *l, const char *name, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    return mot_llvm_call(l, name, &type, 1, &x, 1);
}

static LLVMValueRef fabs_of(MotLlvm *l, LLVMValueRef x)
{
    return call_1(l, "llvm.fabs", x);
}

static LLVMValueRef is_less(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildFCmp(l->b, LLVMRealOLT, a, b, "");
}

static LLVMValueRef divide(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildFDiv(l->b, a, b, "");
}

/* The magnitude of x with the sign of y. */
static LLVMValueRef copy_sign(MotLlvm *l, LLVMValueRef x, LLVMValueRef y)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef args[] = {x, y};
    return mot_llvm_call(l, "llvm.copysign", &type, 1, args, 2);
}

/* x, but at least lo and at most hi; NaN stays. */
static LLVMValueRef clamp(MotLlvm *l, LLVMValueRef x, double lo, double hi)
{
    LLVMValueRef low = number(l, x, lo), high = number(l, x, hi);
    x = mot_llvm_select(l, is_less(l, x, low), low, x);
    return mot_llvm_select(l, is_less(l, high, x), high, x);
}

/* Whole-numbered n to i32; any value where n is NaN. */
static LLVMValueRef to_i32(MotLlvm *l, LLVMValueRef n)
{
    return LLVMBuildFreeze(l->b, LLVMBuildFPToSI(l->b, n, mot_llvm_vector(l, l->i32), ""), "");
}

/* 2^k in the type of `like`: k is a vector of integers of its size. */
static LLVMValueRef power_of_two(MotLlvm *l, LLVMValueRef k, LLVMValueRef like)
{
    bool is_double = element_of(like) == l->f64;
    LLVMTypeRef type = element_of(k);
    LLVMValueRef biased =
        LLVMBuildAdd(l->b, k, mot_llvm_splat_int(l, type, is_double ? 1023 : 127), "");
    LLVMValueRef bits =
        LLVMBuildShl(l->b, biased, mot_llvm_splat_int(l, type, is_double ? 52 : 23), "");
    return LLVMBuildBitCast(l->b, bits, LLVMTypeOf(like), "");
}

/* x * 2^n by the instruction for it. */
static LLVMValueRef scale_avx512(MotLlvm *l, LLVMValueRef x, LLVMValueRef n)
{
    enum { PRESENT_ROUNDING = 4 };
    LLVMValueRef all = LLVMConstAllOnes(LLVMInt16TypeInContext(l->llvm));
    LLVMValueRef args[] = {x, n, x, all, LLVMConstInt(l->i32, PRESENT_ROUNDING, false)};
    return mot_llvm_call(l, "llvm.x86.avx512.mask.scalef.ps.512", NULL, 0, args, 5);
}

/* x * 2^n, in two factors as one would overflow the exponent at the ends. */
static LLVMValueRef scale_by_power(MotLlvm *l, LLVMValueRef x, LLVMValueRef n)
{
    if (l->isa == MOT_ISA_AVX512 && element_of(x) == l->f32)
        return scale_avx512(l, x, n);
    LLVMValueRef k = to_i32(l, n);
    if (element_of(x) == l->f64)
        k = LLVMBuildSExt(l->b, k, mot_llvm_vector(l, l->i64), "");
    LLVMValueRef half = LLVMBuildAShr(l->b, k, mot_llvm_splat_int(l, element_of(k), 1), "");
    LLVMValueRef rest = LLVMBuildSub(l->b, k, half, "");
    return mot_llvm_fmul(l, mot_llvm_fmul(l, x, power_of_two(l, half, x)),
                         power_of_two(l, rest, x));
}

/*
 * x - n * c, c in parts of which the first ones have trailing zeros, so that n times them is exact
 * (Cody and Waite).
 */
static LLVMValueRef subtract_multiple(MotLlvm *l, LLVMValueRef x, LLVMValueRef n, double c_high,
                                      double c_low)
{
    x = mot_llvm_fsub(l, x, mot_llvm_fmul(l, n, number(l, x, c_high)));
    return mot_llvm_fsub(l, x, mot_llvm_fmul(l, n, number(l, x, c_low)));
}

/* Outside of [lowest, highest] the result is 0 or infinite. */
static LLVMValueRef finish_exp(MotLlvm *l, LLVMValueRef x, LLVMValueRef p, double lowest,
                               double highest)
{
    p = mot_llvm_select(l, is_less(l, x, number(l, x, lowest)), number(l, x, 0), p);
    return mot_llvm_select(l, is_less(l, number(l, x, highest), x), number(l, x, INFINITY), p);
}

static LLVMValueRef exp_f64(MotLlvm *l, LLVMValueRef x)
{
    LLVMValueRef c = clamp(l, x, -708.0, 709.78);
    LLVMValueRef n = call_1(l, "llvm.rint", mot_llvm_fmul(l, c, number(l, x, M_LOG2E)));
    LLVMValueRef r =
        subtract_multiple(l, c, n, 6.93147180369123816490e-01, 1.90821492927058770002e-10);
    return finish_exp(l, x, scale_by_power(l, HORNER(l, r, exp_taylor), n), -708.0, 709.78);
}

LLVMValueRef mot_llvm_exp(MotLlvm *l, LLVMValueRef x)
{
    static const double lowest = -87.33654, highest = 88.72283;
    if (element_of(x) == l->f64)
        return exp_f64(l, x);
    LLVMValueRef c = clamp(l, x, lowest, highest);
    LLVMValueRef n = call_1(l, "llvm.rint", mot_llvm_fmul(l, c, number(l, x, M_LOG2E)));
    LLVMValueRef r = subtract_multiple(l, c, n, 0.693145752, 1.42860677e-6);
    LLVMValueRef p = mot_llvm_fmul(l, mot_llvm_fmul(l, r, r), HORNER(l, r, exp_p));
    p = mot_llvm_fadd(l, mot_llvm_fadd(l, p, r), number(l, x, 1));
    return finish_exp(l, x, scale_by_power(l, p, n), lowest, highest);
}

/* A positive normal x = 2^e m, m in [sqrt(1/2), sqrt(2)). */
static LLVMValueRef log_f64(MotLlvm *l, LLVMValueRef x)
{
    LLVMTypeRef ints = mot_llvm_vector(l, l->i64);
    LLVMValueRef bits = LLVMBuildBitCast(l->b, x, ints, "");
    LLVMValueRef mantissa =
        LLVMBuildAnd(l->b, bits, mot_llvm_splat_int(l, l->i64, 0xfffffffffffff), "");
    mantissa = LLVMBuildOr(l->b, mantissa, mot_llvm_splat_int(l, l->i64, (int64_t)1023 << 52), "");
    LLVMValueRef m = LLVMBuildBitCast(l->b, mantissa, LLVMTypeOf(x), "");
    LLVMValueRef e = LLVMBuildLShr(l->b, bits, mot_llvm_splat_int(l, l->i64, 52), "");
    e = LLVMBuildSIToFP(l->b, LLVMBuildTrunc(l->b, e, mot_llvm_vector(l, l->i32), ""),
                        LLVMTypeOf(x), "");
    LLVMValueRef is_big = is_less(l, number(l, x, M_SQRT2), m);
    m = mot_llvm_select(l, is_big, mot_llvm_fmul(l, m, number(l, x, 0.5)), m);
    e = mot_llvm_fsub(l, e, mot_llvm_select(l, is_big, number(l, x, 1022), number(l, x, 1023)));
    LLVMValueRef s =
        divide(l, mot_llvm_fsub(l, m, number(l, x, 1)), mot_llvm_fadd(l, m, number(l, x, 1)));
    LLVMValueRef series =
        mot_llvm_fmul(l, HORNER(l, mot_llvm_fmul(l, s, s), log_p), number(l, x, 2));
    LLVMValueRef y =
        mot_llvm_fadd(l, mot_llvm_fmul(l, s, series), mot_llvm_fmul(l, e, number(l, x, M_LN2)));
    y = mot_llvm_select(l, is_less(l, x, number(l, x, INFINITY)), y, x); /* inf and NaN stay */
    y = mot_llvm_select(l, is_less(l, x, number(l, x, 0)), number(l, x, NAN), y);
    return mot_llvm_select(l, LLVMBuildFCmp(l->b, LLVMRealOEQ, x, number(l, x, 0), ""),
                           number(l, x, -INFINITY), y);
}

/* f(x) in f64, rounded to the type of x. */
static LLVMValueRef in_f64(MotLlvm *l, LLVMValueRef (*f)(MotLlvm *, LLVMValueRef), LLVMValueRef x)
{
    if (element_of(x) == l->f64)
        return f(l, x);
    LLVMValueRef y = f(l, LLVMBuildFPExt(l->b, x, mot_llvm_vector(l, l->f64), ""));
    return LLVMBuildFPTrunc(l->b, y, LLVMTypeOf(x), "");
}

LLVMValueRef mot_llvm_log(MotLlvm *l, LLVMValueRef x)
{
    return in_f64(l, log_f64, x);
}

/*
 * log w, w = 1 + x, and to first order what rounding took from w; that is NaN where w is 0 or
 * infinite.
 */
static LLVMValueRef log1p_f64(MotLlvm *l, LLVMValueRef x)
{
    LLVMValueRef one = number(l, x, 1), w = mot_llvm_fadd(l, one, x), y = log_f64(l, w);
    LLVMValueRef lost = divide(l, mot_llvm_fsub(l, x, mot_llvm_fsub(l, w, one)), w);
    LLVMValueRef is_number = LLVMBuildFCmp(l->b, LLVMRealORD, lost, lost, "");
    return mot_llvm_select(l, is_number, mot_llvm_fadd(l, y, lost), y);
}

/*
 * exp(b log|a|), with the sign of a where b is odd; NaN for negative a and fractional b; 1 where a
 * is 1 or b is 0.
 */
static LLVMValueRef pow_f64(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef zero = number(l, a, 0), one = number(l, a, 1), half = number(l, a, 0.5);
    LLVMValueRef size = exp_f64(l, mot_llvm_fmul(l, b, log_f64(l, fabs_of(l, a))));
    LLVMValueRef halved = mot_llvm_fmul(l, b, half);
    LLVMValueRef is_whole = LLVMBuildFCmp(l->b, LLVMRealOEQ, call_1(l, "llvm.floor", b), b, "");
    LLVMValueRef is_even =
        LLVMBuildFCmp(l->b, LLVMRealOEQ, call_1(l, "llvm.floor", halved), halved, "");
    LLVMValueRef is_odd = LLVMBuildAnd(l->b, is_whole, LLVMBuildNot(l->b, is_even, ""), "");
    LLVMValueRef y = mot_llvm_select(l, is_odd, copy_sign(l, size, a), size);
    LLVMValueRef is_negative =
        LLVMBuildAnd(l->b, is_less(l, a, zero), is_less(l, number(l, a, -INFINITY), a), "");
    LLVMValueRef is_nan = LLVMBuildAnd(l->b, is_negative, LLVMBuildNot(l->b, is_whole, ""), "");
    y = mot_llvm_select(l, is_nan, number(l, a, NAN), y);
    LLVMValueRef is_one = LLVMBuildOr(l->b, LLVMBuildFCmp(l->b, LLVMRealOEQ, b, zero, ""),
                                      LLVMBuildFCmp(l->b, LLVMRealOEQ, a, one, ""), "");
    return mot_llvm_select(l, is_one, one, y);
}

/*
 * sin(x + quarter * pi / 2): x = n pi / 2 + r; n + quarter chooses among sin(r), cos(r) and their
 * negatives.
 */
static LLVMValueRef wave_f64(MotLlvm *l, LLVMValueRef x, int64_t quarter)
{
    LLVMValueRef n = call_1(l, "llvm.rint", mot_llvm_fmul(l, x, number(l, x, M_2_PI)));
    LLVMValueRef r =
        subtract_multiple(l, x, n, 1.57079632673412561417e+00, 6.07710050650619224932e-11);
    LLVMValueRef z = mot_llvm_fmul(l, r, r);
    LLVMValueRef sine = mot_llvm_fmul(l, r, HORNER(l, z, sin_taylor)),
                 cosine = HORNER(l, z, cos_taylor);
    LLVMValueRef k = LLVMBuildAdd(l->b, to_i32(l, n), mot_llvm_splat_int(l, l->i32, quarter), "");
    LLVMValueRef none = mot_llvm_splat_int(l, l->i32, 0);
    LLVMValueRef bit_0 = LLVMBuildAnd(l->b, k, mot_llvm_splat_int(l, l->i32, 1), "");
    LLVMValueRef bit_1 = LLVMBuildAnd(l->b, k, mot_llvm_splat_int(l, l->i32, 2), "");
    LLVMValueRef y =
        mot_llvm_select(l, LLVMBuildICmp(l->b, LLVMIntEQ, bit_0, none, ""), sine, cosine);
    return mot_llvm_select(l, LLVMBuildICmp(l->b, LLVMIntEQ, bit_1, none, ""), y,
                           LLVMBuildFNeg(l->b, y, ""));
}

static LLVMValueRef sin_f64(MotLlvm *l, LLVMValueRef x)
{
    return wave_f64(l, x, 0);
}

static LLVMValueRef cos_f64(MotLlvm *l, LLVMValueRef x)
{
    return wave_f64(l, x, 1);
}

/* ---- The functions that expressions of ir/ops.def may call ---- */

static LLVMValueRef exp_of(MotLlvm *l, LLVMValueRef *arg)
{
    return mot_llvm_exp(l, arg[0]);
}

static LLVMValueRef log_of(MotLlvm *l, LLVMValueRef *arg)
{
    return mot_llvm_log(l, arg[0]);
}

static LLVMValueRef log1p_of(MotLlvm *l, LLVMValueRef *arg)
{
    return in_f64(l, log1p_f64, arg[0]);
}

static LLVMValueRef sqrt_of(MotLlvm *l, LLVMValueRef *arg)
{
    return call_1(l, "llvm.sqrt", arg[0]);
}

static LLVMValueRef tanh_of(MotLlvm *l, LLVMValueRef *arg)
{
    LLVMValueRef x = arg[0], t = fabs_of(l, x), one = number(l, x, 1), z = mot_llvm_fmul(l, x, x);
    LLVMValueRef near = mot_llvm_fmul(l, mot_llvm_fmul(l, z, x), HORNER(l, z, tanh_p));
    near = mot_llvm_fadd(l, near, x);
    LLVMValueRef e = mot_llvm_exp(l, mot_llvm_fadd(l, t, t));
    LLVMValueRef far = mot_llvm_fsub(l, one, divide(l, number(l, x, 2), mot_llvm_fadd(l, e, one)));
    return mot_llvm_select(l, is_less(l, t, number(l, x, 0.625)), near, copy_sign(l, far, x));
}

static LLVMValueRef erf_of(MotLlvm *l, LLVMValueRef *arg)
{
    LLVMValueRef x = arg[0], t = clamp(l, fabs_of(l, x), 0, 4), one = number(l, x, 1);
    LLVMValueRef near = mot_llvm_fmul(l, x, HORNER(l, mot_llvm_fmul(l, x, x), erf_p));
    near = mot_llvm_fadd(l, near, x);
    LLVMValueRef far =
        mot_llvm_fsub(l, one, mot_llvm_exp(l, mot_llvm_fmul(l, t, HORNER(l, t, erf_q))));
    return mot_llvm_select(l, is_less(l, t, number(l, x, 0.93)), near, copy_sign(l, far, x));
}

static LLVMValueRef sin_of(MotLlvm *l, LLVMValueRef *arg)
{
    return in_f64(l, sin_f64, arg[0]);
}

static LLVMValueRef cos_of(MotLlvm *l, LLVMValueRef *arg)
{
    return in_f64(l, cos_f64, arg[0]);
}

static LLVMValueRef floor_of(MotLlvm *l, LLVMValueRef *arg)
{
    return call_1(l, "llvm.floor", arg[0]);
}

static LLVMValueRef ceil_of(MotLlvm *l, LLVMValueRef *arg)
{
    return call_1(l, "llvm.ceil", arg[0]);
}

static LLVMValueRef pow_of(MotLlvm *l, LLVMValueRef *arg)
{
    if (element_of(arg[0]) == l->f64)
        return pow_f64(l, arg[0], arg[1]);
    LLVMTypeRef wide = mot_llvm_vector(l, l->f64);
    LLVMValueRef y =
        pow_f64(l, LLVMBuildFPExt(l->b, arg[0], wide, ""), LLVMBuildFPExt(l->b, arg[1], wide, ""));
    return LLVMBuildFPTrunc(l->b, y, LLVMTypeOf(arg[0]), "");
}

static const struct {
    const char *name;
    LLVMValueRef (*print)(MotLlvm *l, LLVMValueRef *arg);
} functions[] = {
    {"exp", exp_of},     {"log", log_of},   {"log1p", log1p_of}, {"sqrt", sqrt_of},
    {"tanh", tanh_of},   {"erf", erf_of},   {"sin", sin_of},     {"cos", cos_of},
    {"floor", floor_of}, {"ceil", ceil_of}, {"pow", pow_of},
};

LLVMValueRef mot_llvm_function(MotLlvm *l, const char *name, size_t n, LLVMValueRef *arg)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == n && memcmp(functions[i].name, name, n) == 0)
            return functions[i].print(l, arg);
    mot_bug(__FILE__, __LINE__, "an expression of ir/ops.def calls a function that is not here");
}
