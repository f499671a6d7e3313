/*
 * LLVM IR: pointwise rows on vectors of lanes. Own polynomials, fitted to the smallest weighted error by reweighted least squares.
 * Largest errors in ulp of f32, measured over the whole range by tests/unit/test_llvm_math.c:
 *
 *     exp 0.97, log 0.5, tanh 1.2, erf 1.2, sigmoid 2.2, rsqrt 1.5, sin and cos 0.5 (|x| <= 1e5), pow 0.5
 *
 * log, pow, sin and cos of f32 are computed in f64: they are rare in training, and so need no fits. Results below the normal range
 * are 0 in exp: denormals make every later multiplication slow.
 */
#include "codegen/llvm.h"

#include <math.h>

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

/* x - n * c, c in parts of which the first ones have trailing zeros, so that n times them is exact (Cody and Waite). */
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

/* exp(b log|a|), with the sign of a where b is odd; NaN for negative a and fractional b; 1 where a is 1 or b is 0. */
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

/* sin(x + quarter * pi / 2): x = n pi / 2 + r; n + quarter chooses among sin(r), cos(r) and their negatives. */
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

/* ---- One rule a row: operands of dtype `from` ---- */

typedef LLVMValueRef (*OpRule)(MotLlvm *l, MotDtype from, LLVMValueRef *arg);

static bool is_float(MotDtype dtype)
{
    return mot_dtype_class(dtype) == MOT_CLASS_FLOAT;
}

static bool is_unsigned(MotDtype dtype)
{
    return dtype == MOT_U8 || dtype == MOT_BOOL;
}

static LLVMValueRef zero_like(LLVMValueRef x)
{
    return LLVMConstNull(LLVMTypeOf(x));
}

static LLVMValueRef op_neg(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return is_float(from) ? LLVMBuildFNeg(l->b, arg[0], "") : LLVMBuildNeg(l->b, arg[0], "");
}

static LLVMValueRef compare(MotLlvm *l, MotDtype from, LLVMValueRef a, LLVMValueRef b,
                            LLVMRealPredicate real, LLVMIntPredicate with_sign,
                            LLVMIntPredicate without)
{
    return is_float(from) ? LLVMBuildFCmp(l->b, real, a, b, "")
                          : LLVMBuildICmp(l->b, is_unsigned(from) ? without : with_sign, a, b, "");
}

static LLVMValueRef op_lt(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return compare(l, from, arg[0], arg[1], LLVMRealOLT, LLVMIntSLT, LLVMIntULT);
}

static LLVMValueRef op_le(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return compare(l, from, arg[0], arg[1], LLVMRealOLE, LLVMIntSLE, LLVMIntULE);
}

static LLVMValueRef op_eq(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return compare(l, from, arg[0], arg[1], LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ);
}

static LLVMValueRef op_abs(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    if (is_float(from))
        return fabs_of(l, arg[0]);
    LLVMValueRef pair[] = {arg[0], zero_like(arg[0])};
    return mot_llvm_select(l, op_lt(l, from, pair), LLVMBuildNeg(l->b, arg[0], ""), arg[0]);
}

static LLVMValueRef op_sign(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    LLVMTypeRef type = LLVMTypeOf(arg[0]);
    LLVMValueRef zero = zero_like(arg[0]), below[] = {arg[0], zero}, above[] = {zero, arg[0]};
    LLVMValueRef negative = op_lt(l, from, below), positive = op_lt(l, from, above);
    if (is_float(from))
        return LLVMBuildFSub(l->b, LLVMBuildUIToFP(l->b, positive, type, ""),
                             LLVMBuildUIToFP(l->b, negative, type, ""), "");
    return LLVMBuildSub(l->b, LLVMBuildZExt(l->b, positive, type, ""),
                        LLVMBuildZExt(l->b, negative, type, ""), "");
}

static LLVMValueRef op_exp(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return mot_llvm_exp(l, arg[0]);
}

static LLVMValueRef op_log(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return mot_llvm_log(l, arg[0]);
}

static LLVMValueRef op_sqrt(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return call_1(l, "llvm.sqrt", arg[0]);
}

static LLVMValueRef op_rsqrt(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return divide(l, number(l, arg[0], 1), op_sqrt(l, from, arg));
}

static LLVMValueRef op_tanh(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    LLVMValueRef x = arg[0], t = fabs_of(l, x), one = number(l, x, 1), z = mot_llvm_fmul(l, x, x);
    LLVMValueRef near = mot_llvm_fmul(l, mot_llvm_fmul(l, z, x), HORNER(l, z, tanh_p));
    near = mot_llvm_fadd(l, near, x);
    LLVMValueRef e = mot_llvm_exp(l, mot_llvm_fadd(l, t, t));
    LLVMValueRef far = mot_llvm_fsub(l, one, divide(l, number(l, x, 2), mot_llvm_fadd(l, e, one)));
    return mot_llvm_select(l, is_less(l, t, number(l, x, 0.625)), near, copy_sign(l, far, x));
}

static LLVMValueRef op_erf(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    LLVMValueRef x = arg[0], t = clamp(l, fabs_of(l, x), 0, 4), one = number(l, x, 1);
    LLVMValueRef near = mot_llvm_fmul(l, x, HORNER(l, mot_llvm_fmul(l, x, x), erf_p));
    near = mot_llvm_fadd(l, near, x);
    LLVMValueRef far =
        mot_llvm_fsub(l, one, mot_llvm_exp(l, mot_llvm_fmul(l, t, HORNER(l, t, erf_q))));
    return mot_llvm_select(l, is_less(l, t, number(l, x, 0.93)), near, copy_sign(l, far, x));
}

static LLVMValueRef op_sigmoid(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    LLVMValueRef e = mot_llvm_exp(l, LLVMBuildFNeg(l->b, arg[0], "")), one = number(l, e, 1);
    return divide(l, one, mot_llvm_fadd(l, one, e));
}

static LLVMValueRef op_sin(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return in_f64(l, sin_f64, arg[0]);
}

static LLVMValueRef op_cos(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return in_f64(l, cos_f64, arg[0]);
}

static LLVMValueRef op_floor(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return call_1(l, "llvm.floor", arg[0]);
}

static LLVMValueRef op_ceil(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return call_1(l, "llvm.ceil", arg[0]);
}

static LLVMValueRef op_relu(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    LLVMValueRef zero = zero_like(arg[0]);
    return mot_llvm_select(l, LLVMBuildFCmp(l->b, LLVMRealUGT, arg[0], zero, ""), arg[0], zero);
}

static LLVMValueRef op_not(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return LLVMBuildNot(l->b, arg[0], "");
}

static LLVMValueRef op_accumulate(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)l;
    (void)from;
    return arg[0];
}

static LLVMValueRef op_add(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return is_float(from) ? mot_llvm_fadd(l, arg[0], arg[1])
                          : LLVMBuildAdd(l->b, arg[0], arg[1], "");
}

static LLVMValueRef op_sub(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return is_float(from) ? mot_llvm_fsub(l, arg[0], arg[1])
                          : LLVMBuildSub(l->b, arg[0], arg[1], "");
}

static LLVMValueRef op_mul(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    return is_float(from) ? mot_llvm_fmul(l, arg[0], arg[1])
                          : LLVMBuildMul(l->b, arg[0], arg[1], "");
}

/*
 * Integers in i64, where -1 as the divisor can't overflow but for the least one, which wraps, as -1 is a negation. A divisor of 0,
 * which the reference refuses, counts as 1: lanes that are off have it.
 */
static LLVMValueRef divide_int(MotLlvm *l, LLVMValueRef a, LLVMValueRef b, bool wants_rest)
{
    LLVMTypeRef type = element_of(a);
    LLVMValueRef one = mot_llvm_splat_int(l, type, 1), minus_one = mot_llvm_splat_int(l, type, -1);
    LLVMValueRef is_zero = LLVMBuildICmp(l->b, LLVMIntEQ, b, zero_like(b), "");
    LLVMValueRef is_negation = LLVMBuildICmp(l->b, LLVMIntEQ, b, minus_one, "");
    LLVMValueRef safe = mot_llvm_select(l, LLVMBuildOr(l->b, is_zero, is_negation, ""), one, b);
    if (wants_rest)
        return LLVMBuildSRem(l->b, a, safe, "");
    return mot_llvm_select(l, is_negation, LLVMBuildNeg(l->b, a, ""),
                           LLVMBuildSDiv(l->b, a, safe, ""));
}

static LLVMValueRef widen_int(MotLlvm *l, MotDtype from, LLVMValueRef x)
{
    LLVMTypeRef wide = mot_llvm_vector(l, l->i64);
    return from == MOT_I64     ? x
           : is_unsigned(from) ? LLVMBuildZExt(l->b, x, wide, "")
                               : LLVMBuildSExt(l->b, x, wide, "");
}

static LLVMValueRef narrow_int(MotLlvm *l, MotDtype to, LLVMValueRef x)
{
    return to == MOT_I64 ? x
                         : LLVMBuildTrunc(l->b, x, mot_llvm_vector(l, mot_llvm_type(l, to)), "");
}

static LLVMValueRef op_div(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    if (is_float(from))
        return divide(l, arg[0], arg[1]);
    LLVMValueRef a = widen_int(l, from, arg[0]), b = widen_int(l, from, arg[1]);
    return narrow_int(l, from, divide_int(l, a, b, false));
}

static LLVMValueRef op_mod(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    LLVMValueRef a = widen_int(l, from, arg[0]), b = widen_int(l, from, arg[1]);
    LLVMValueRef rest = divide_int(l, a, b, true), zero = zero_like(rest);
    /* The rest has the sign of a; the result that of b. */
    LLVMValueRef differs =
        LLVMBuildICmp(l->b, LLVMIntSLT, LLVMBuildXor(l->b, rest, b, ""), zero, "");
    LLVMValueRef is_some = LLVMBuildICmp(l->b, LLVMIntNE, rest, zero, "");
    LLVMValueRef wraps = LLVMBuildAnd(l->b, differs, is_some, "");
    return narrow_int(l, from, mot_llvm_select(l, wraps, LLVMBuildAdd(l->b, rest, b, ""), rest));
}

static LLVMValueRef op_pow(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    if (from == MOT_F64)
        return pow_f64(l, arg[0], arg[1]);
    LLVMTypeRef wide = mot_llvm_vector(l, l->f64);
    LLVMValueRef y =
        pow_f64(l, LLVMBuildFPExt(l->b, arg[0], wide, ""), LLVMBuildFPExt(l->b, arg[1], wide, ""));
    return LLVMBuildFPTrunc(l->b, y, LLVMTypeOf(arg[0]), "");
}

static LLVMValueRef op_max(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    if (is_float(from))
        return mot_llvm_fmax(l, arg[0], arg[1]);
    return mot_llvm_select(l, op_lt(l, from, arg), arg[1], arg[0]);
}

static LLVMValueRef op_min(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    LLVMValueRef is_less_than = op_lt(l, from, arg);
    if (is_float(from))
        is_less_than = LLVMBuildOr(l->b, is_less_than,
                                   LLVMBuildFCmp(l->b, LLVMRealUNO, arg[0], arg[0], ""), "");
    return mot_llvm_select(l, is_less_than, arg[0], arg[1]);
}

static LLVMValueRef op_and(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return LLVMBuildAnd(l->b, arg[0], arg[1], "");
}

static LLVMValueRef op_or(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return LLVMBuildOr(l->b, arg[0], arg[1], "");
}

static LLVMValueRef op_xor(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return LLVMBuildXor(l->b, arg[0], arg[1], "");
}

static LLVMValueRef op_select(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    (void)from;
    return mot_llvm_select(l, arg[0], arg[1], arg[2]);
}

static const OpRule rules[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = op_##name,
#include "ir/ops.def"
};

static LLVMValueRef cast(MotLlvm *l, MotDtype from, MotDtype to, LLVMValueRef x)
{
    LLVMTypeRef type = mot_llvm_vector(l, mot_llvm_type(l, to));
    if (from == to)
        return x;
    if (to == MOT_BOOL)
        return is_float(from) ? LLVMBuildFCmp(l->b, LLVMRealUNE, x, zero_like(x), "")
                              : LLVMBuildICmp(l->b, LLVMIntNE, x, zero_like(x), "");
    if (is_float(from) && is_float(to))
        return to == MOT_F64 ? LLVMBuildFPExt(l->b, x, type, "")
                             : LLVMBuildFPTrunc(l->b, x, type, "");
    if (is_float(from))
        return LLVMBuildFreeze(l->b, LLVMBuildFPToSI(l->b, x, type, ""), "");
    if (is_float(to))
        return is_unsigned(from) ? LLVMBuildUIToFP(l->b, x, type, "")
                                 : LLVMBuildSIToFP(l->b, x, type, "");
    return narrow_int(l, to, widen_int(l, from, x));
}

LLVMValueRef mot_llvm_op(MotLlvm *l, MotOpKind op, MotDtype from, MotDtype to, LLVMValueRef *arg)
{
    return op == MOT_OP_CAST ? cast(l, from, to, arg[0]) : rules[op](l, from, arg);
}
