/*
 * LLVM IR: pointwise rows on vectors of lanes. What a row computes is its expression in ir/ops.def,
 * C over a, b and c: it is read here by recursive descent. A value is a vector of the operands'
 * type or of i1; each becomes the other where C would convert it. Quotients of integers are no
 * expression: they have to stand a divisor of 0.
 */
#include "codegen/llvm.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    MotLlvm *l;
    const char *at;   /* what is left of the expression */
    MotDtype dtype;   /* of the operands */
    LLVMTypeRef type; /* theirs, as a vector */
    LLVMValueRef *arg;
} Reader;

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

/* ---- Expressions ---- */

static bool is_truth(const Reader *r, LLVMValueRef x)
{
    return LLVMGetElementType(LLVMTypeOf(x)) == r->l->i1;
}

static LLVMValueRef to_truth(Reader *r, LLVMValueRef x)
{
    if (is_truth(r, x))
        return x;
    return is_float(r->dtype) ? LLVMBuildFCmp(r->l->b, LLVMRealUNE, x, zero_like(x), "")
                              : LLVMBuildICmp(r->l->b, LLVMIntNE, x, zero_like(x), "");
}

static LLVMValueRef to_number(Reader *r, LLVMValueRef x)
{
    if (LLVMTypeOf(x) == r->type)
        return x;
    return is_float(r->dtype) ? LLVMBuildUIToFP(r->l->b, x, r->type, "")
                              : LLVMBuildZExt(r->l->b, x, r->type, "");
}

static void skip_blanks(Reader *r)
{
    r->at += strspn(r->at, " ");
}

/* Skips `token` if it comes next. */
static bool takes(Reader *r, const char *token)
{
    skip_blanks(r);
    size_t n = strlen(token);
    if (strncmp(r->at, token, n) != 0)
        return false;
    r->at += n;
    return true;
}

static LLVMValueRef read_choice(Reader *r);

static LLVMValueRef read_number(Reader *r)
{
    char *end;
    long value = strtol(r->at, &end, 10); /* the rows know no fractions */
    LLVMTypeRef element = LLVMGetElementType(r->type);
    r->at = end;
    return is_float(r->dtype) ? mot_llvm_splat(r->l, LLVMConstReal(element, (double)value))
                              : mot_llvm_splat_int(r->l, element, value);
}

static LLVMValueRef read_call(Reader *r)
{
    const char *name = r->at;
    size_t n = strcspn(name, "(");
    LLVMValueRef arg[2] = {NULL};
    r->at += n + 1;
    arg[0] = to_number(r, read_choice(r));
    if (takes(r, ","))
        arg[1] = to_number(r, read_choice(r));
    takes(r, ")");
    return mot_llvm_function(r->l, name, n, arg);
}

static LLVMValueRef read_unary(Reader *r)
{
    LLVMBuilderRef b = r->l->b;
    if (takes(r, "-")) {
        LLVMValueRef x = to_number(r, read_unary(r));
        return is_float(r->dtype) ? LLVMBuildFNeg(b, x, "") : LLVMBuildNeg(b, x, "");
    }
    if (takes(r, "!"))
        return LLVMBuildNot(b, to_truth(r, read_unary(r)), "");
    if (takes(r, "(")) {
        LLVMValueRef x = read_choice(r);
        takes(r, ")");
        return x;
    }
    bool is_operand = *r->at >= 'a' && *r->at <= 'c' && !(r->at[1] >= 'a' && r->at[1] <= 'z');
    if (is_operand)
        return r->arg[*r->at++ - 'a'];
    return *r->at >= 'a' && *r->at <= 'z' ? read_call(r) : read_number(r);
}

/* A binary operator: of truths, a comparison, or arithmetic. */
typedef struct {
    const char *token;
    int level; /* the higher, the tighter */
    LLVMValueRef (*of_truths)(LLVMBuilderRef, LLVMValueRef, LLVMValueRef, const char *);
    LLVMRealPredicate real;
    LLVMIntPredicate with_sign, without;
    LLVMValueRef (*of_floats)(MotLlvm *, LLVMValueRef, LLVMValueRef);
    LLVMValueRef (*of_ints)(LLVMBuilderRef, LLVMValueRef, LLVMValueRef, const char *);
} Operator;

static LLVMValueRef divide(MotLlvm *l, LLVMValueRef x, LLVMValueRef y)
{
    return LLVMBuildFDiv(l->b, x, y, "");
}

static const Operator operators[] = {
    {"||", 1, .of_truths = LLVMBuildOr},
    {"&&", 2, .of_truths = LLVMBuildAnd},
    {"==", 3, .real = LLVMRealOEQ, .with_sign = LLVMIntEQ, .without = LLVMIntEQ},
    {"!=", 3, .real = LLVMRealUNE, .with_sign = LLVMIntNE, .without = LLVMIntNE},
    {"<=", 4, .real = LLVMRealOLE, .with_sign = LLVMIntSLE, .without = LLVMIntULE},
    {">=", 4, .real = LLVMRealOGE, .with_sign = LLVMIntSGE, .without = LLVMIntUGE},
    {"<", 4, .real = LLVMRealOLT, .with_sign = LLVMIntSLT, .without = LLVMIntULT},
    {">", 4, .real = LLVMRealOGT, .with_sign = LLVMIntSGT, .without = LLVMIntUGT},
    {"+", 5, .of_floats = mot_llvm_fadd, .of_ints = LLVMBuildAdd},
    {"-", 5, .of_floats = mot_llvm_fsub, .of_ints = LLVMBuildSub},
    {"*", 6, .of_floats = mot_llvm_fmul, .of_ints = LLVMBuildMul},
    {"/", 6, .of_floats = divide},
};

static LLVMValueRef apply(Reader *r, const Operator *o, LLVMValueRef x, LLVMValueRef y)
{
    LLVMBuilderRef b = r->l->b;
    if (o->of_truths)
        return o->of_truths(b, to_truth(r, x), to_truth(r, y), "");
    if (o->real && is_truth(r, x) && is_truth(r, y))
        return LLVMBuildICmp(b, o->without, x, y, "");
    x = to_number(r, x);
    y = to_number(r, y);
    if (o->real)
        return is_float(r->dtype)
                   ? LLVMBuildFCmp(b, o->real, x, y, "")
                   : LLVMBuildICmp(b, is_unsigned(r->dtype) ? o->without : o->with_sign, x, y, "");
    return is_float(r->dtype) ? o->of_floats(r->l, x, y) : o->of_ints(b, x, y, "");
}

/* What binds at least as tightly as `level`; operators of one level from the left. */
static LLVMValueRef read_binary(Reader *r, int level)
{
    LLVMValueRef x = read_unary(r);
    for (size_t i = 0; i < sizeof operators / sizeof *operators;) {
        const Operator *o = &operators[i];
        if (o->level < level || !takes(r, o->token)) {
            i++;
            continue;
        }
        x = apply(r, o, x, read_binary(r, o->level + 1));
        i = 0;
    }
    return x;
}

static LLVMValueRef read_choice(Reader *r)
{
    LLVMValueRef condition = read_binary(r, 1);
    if (!takes(r, "?"))
        return condition;
    LLVMValueRef x = to_number(r, read_choice(r));
    takes(r, ":");
    return mot_llvm_select(r->l, to_truth(r, condition), x, to_number(r, read_choice(r)));
}

static LLVMValueRef print_expression(MotLlvm *l, const MotOpInfo *row, MotDtype from,
                                     LLVMValueRef *arg)
{
    Reader r = {l, row->expression, from, LLVMTypeOf(arg[row->n_max - 1]), arg};
    LLVMValueRef x = read_choice(&r);
    if (*r.at)
        mot_bug(__FILE__, __LINE__, "an expression of ir/ops.def is not understood");
    return row->gives_bool ? to_truth(&r, x) : to_number(&r, x);
}

/* ---- Integers ---- */

/*
 * Integers in i64, where -1 as the divisor can't overflow but for the least one, which wraps, as -1
 * is a negation. A divisor of 0, which the reference refuses, counts as 1: lanes that are off have
 * it.
 */
static LLVMValueRef divide_int(MotLlvm *l, LLVMValueRef a, LLVMValueRef b, bool wants_rest)
{
    LLVMTypeRef type = LLVMGetElementType(LLVMTypeOf(a));
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

static LLVMValueRef div_int(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
{
    LLVMValueRef a = widen_int(l, from, arg[0]), b = widen_int(l, from, arg[1]);
    return narrow_int(l, from, divide_int(l, a, b, false));
}

static LLVMValueRef mod_int(MotLlvm *l, MotDtype from, LLVMValueRef *arg)
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

static LLVMValueRef (*const int_rows[MOT_N_OPS])(MotLlvm *, MotDtype, LLVMValueRef *) = {
    [MOT_OP_DIV] = div_int, [MOT_OP_MOD] = mod_int};

/* ---- Rows ---- */

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
    if (op == MOT_OP_CAST)
        return cast(l, from, to, arg[0]);
    if (int_rows[op] && !is_float(from))
        return int_rows[op](l, from, arg);
    return print_expression(l, mot_op_info(op), from, arg);
}
