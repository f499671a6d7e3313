/*
 * LLVM IR: vectors of lanes. Loads and stores are of element alignment; masks NULL stand for all
 * lanes.
 */
#include "codegen/llvm.h"

LLVMTypeRef mot_llvm_vector(MotLlvm *l, LLVMTypeRef element)
{
    return LLVMVectorType(element, l->lanes);
}

LLVMTypeRef mot_llvm_type(MotLlvm *l, MotDtype dtype)
{
    const LLVMTypeRef types[MOT_N_DTYPES] = {
        [MOT_F32] = l->f32, [MOT_F64] = l->f64, [MOT_U8] = l->i8,
        [MOT_I32] = l->i32, [MOT_I64] = l->i64, [MOT_BOOL] = l->i1};
    return types[dtype];
}

static LLVMValueRef make_shuffle_mask(MotLlvm *l,
                                      unsigned (*lane_of)(unsigned lane, unsigned distance),
                                      unsigned distance)
{
    LLVMValueRef index[16];
    for (unsigned i = 0; i < l->lanes; i++)
        index[i] = LLVMConstInt(l->i32, lane_of(i, distance), false);
    return LLVMConstVector(index, l->lanes);
}

LLVMValueRef mot_llvm_splat(MotLlvm *l, LLVMValueRef scalar)
{
    LLVMTypeRef type = mot_llvm_vector(l, LLVMTypeOf(scalar));
    LLVMValueRef undef = LLVMGetPoison(type);
    LLVMValueRef one =
        LLVMBuildInsertElement(l->b, undef, scalar, LLVMConstInt(l->i32, 0, false), "");
    return LLVMBuildShuffleVector(l->b, one, undef, LLVMConstNull(mot_llvm_vector(l, l->i32)), "");
}

static LLVMValueRef splat_constant(MotLlvm *l, LLVMValueRef constant)
{
    LLVMValueRef all[16];
    for (unsigned i = 0; i < l->lanes; i++)
        all[i] = constant;
    return LLVMConstVector(all, l->lanes);
}

LLVMValueRef mot_llvm_splat_f32(MotLlvm *l, double value)
{
    return splat_constant(l, LLVMConstReal(l->f32, value));
}

LLVMValueRef mot_llvm_splat_int(MotLlvm *l, LLVMTypeRef type, int64_t value)
{
    return splat_constant(l, LLVMConstInt(type, (unsigned long long)value, true));
}

LLVMValueRef mot_llvm_lane_0(MotLlvm *l, LLVMValueRef vector)
{
    return LLVMBuildExtractElement(l->b, vector, LLVMConstInt(l->i32, 0, false), "");
}

LLVMValueRef mot_llvm_iota(MotLlvm *l, LLVMValueRef first)
{
    LLVMValueRef index[16];
    for (unsigned i = 0; i < l->lanes; i++)
        index[i] = LLVMConstInt(l->i64, i, false);
    return LLVMBuildAdd(l->b, mot_llvm_splat(l, first), LLVMConstVector(index, l->lanes), "");
}

/* Compared in i32, which is a vector of the same size as f32: what is left is capped first. */
LLVMValueRef mot_llvm_tail_mask(MotLlvm *l, LLVMValueRef first, LLVMValueRef end)
{
    LLVMValueRef index[16];
    for (unsigned i = 0; i < l->lanes; i++)
        index[i] = LLVMConstInt(l->i32, i, false);
    LLVMValueRef left = mot_llvm_min(l, mot_llvm_sub(l, end, first), mot_llvm_int(l, l->lanes));
    LLVMValueRef n = mot_llvm_splat(l, LLVMBuildTrunc(l->b, left, l->i32, ""));
    return LLVMBuildICmp(l->b, LLVMIntSLT, LLVMConstVector(index, l->lanes), n, "");
}

/* ---- Memory. Bools are bytes there and bits in a vector. ---- */

static LLVMTypeRef in_memory(MotLlvm *l, LLVMTypeRef element)
{
    return element == l->i1 ? l->i8 : element;
}

static unsigned align_of(MotLlvm *l, LLVMTypeRef element)
{
    return element == l->i8 ? 1 : element == l->i64 || element == l->f64 ? 8 : 4;
}

static LLVMValueRef from_memory(MotLlvm *l, LLVMTypeRef element, LLVMValueRef vector)
{
    if (element != l->i1)
        return vector;
    return LLVMBuildICmp(l->b, LLVMIntNE, vector, LLVMConstNull(LLVMTypeOf(vector)), "");
}

static LLVMValueRef to_memory(MotLlvm *l, LLVMValueRef vector)
{
    if (LLVMGetElementType(LLVMTypeOf(vector)) != l->i1)
        return vector;
    return LLVMBuildZExt(l->b, vector, mot_llvm_vector(l, l->i8), "");
}

static LLVMValueRef all_lanes(MotLlvm *l)
{
    return LLVMConstAllOnes(mot_llvm_vector(l, l->i1));
}

LLVMValueRef mot_llvm_load(MotLlvm *l, LLVMTypeRef element, LLVMValueRef address, LLVMValueRef mask)
{
    LLVMTypeRef stored = in_memory(l, element), type = mot_llvm_vector(l, stored);
    LLVMValueRef v;
    if (mask) {
        LLVMTypeRef types[] = {type, l->ptr};
        LLVMValueRef args[] = {address, LLVMConstInt(l->i32, align_of(l, stored), false), mask,
                               LLVMConstNull(type)};
        v = mot_llvm_call(l, "llvm.masked.load", types, 2, args, 4);
    } else {
        v = LLVMBuildLoad2(l->b, type, address, "");
        LLVMSetAlignment(v, align_of(l, stored));
    }
    return from_memory(l, element, v);
}

void mot_llvm_store(MotLlvm *l, LLVMValueRef vector, LLVMValueRef address, LLVMValueRef mask)
{
    LLVMValueRef v = to_memory(l, vector);
    LLVMTypeRef type = LLVMTypeOf(v);
    unsigned align = align_of(l, LLVMGetElementType(type));
    if (mask) {
        LLVMTypeRef types[] = {type, l->ptr};
        LLVMValueRef args[] = {v, address, LLVMConstInt(l->i32, align, false), mask};
        mot_llvm_call(l, "llvm.masked.store", types, 2, args, 4);
    } else {
        LLVMSetAlignment(LLVMBuildStore(l->b, v, address), align);
    }
}

LLVMValueRef mot_llvm_gather(MotLlvm *l, LLVMTypeRef element, LLVMValueRef base,
                             LLVMValueRef offsets, LLVMValueRef mask)
{
    LLVMTypeRef stored = in_memory(l, element), type = mot_llvm_vector(l, stored);
    LLVMTypeRef types[] = {type, mot_llvm_vector(l, l->ptr)};
    LLVMValueRef args[] = {mot_llvm_at(l, stored, base, offsets),
                           LLVMConstInt(l->i32, align_of(l, stored), false),
                           mask ? mask : all_lanes(l), LLVMConstNull(type)};
    return from_memory(l, element, mot_llvm_call(l, "llvm.masked.gather", types, 2, args, 4));
}

void mot_llvm_scatter(MotLlvm *l, LLVMValueRef vector, LLVMValueRef base, LLVMValueRef offsets,
                      LLVMValueRef mask)
{
    LLVMValueRef v = to_memory(l, vector);
    LLVMTypeRef stored = LLVMGetElementType(LLVMTypeOf(v));
    LLVMTypeRef types[] = {LLVMTypeOf(v), mot_llvm_vector(l, l->ptr)};
    LLVMValueRef args[] = {v, mot_llvm_at(l, stored, base, offsets),
                           LLVMConstInt(l->i32, align_of(l, stored), false),
                           mask ? mask : all_lanes(l)};
    mot_llvm_call(l, "llvm.masked.scatter", types, 2, args, 4);
}

/* ---- Arithmetic ---- */

static LLVMValueRef contracting(LLVMValueRef v)
{
    if (LLVMIsAInstruction(v) && LLVMCanValueUseFastMathFlags(v))
        LLVMSetFastMathFlags(v, LLVMFastMathAllowContract);
    return v;
}

LLVMValueRef mot_llvm_fadd(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return contracting(LLVMBuildFAdd(l->b, a, b, ""));
}

LLVMValueRef mot_llvm_fsub(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return contracting(LLVMBuildFSub(l->b, a, b, ""));
}

LLVMValueRef mot_llvm_fmul(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return contracting(LLVMBuildFMul(l->b, a, b, ""));
}

LLVMValueRef mot_llvm_select(MotLlvm *l, LLVMValueRef mask, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(l->b, mask, a, b, "");
}

LLVMValueRef mot_llvm_fmax(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef is_nan = LLVMBuildFCmp(l->b, LLVMRealUNO, a, a, "");
    LLVMValueRef is_more = LLVMBuildFCmp(l->b, LLVMRealOGT, a, b, "");
    return mot_llvm_select(l, LLVMBuildOr(l->b, is_nan, is_more, ""), a, b);
}

static unsigned exchange(unsigned lane, unsigned distance)
{
    return lane ^ distance;
}

LLVMValueRef mot_llvm_reduce_lanes(MotLlvm *l, LLVMValueRef vector,
                                   LLVMValueRef (*combine)(MotLlvm *, LLVMValueRef, LLVMValueRef))
{
    for (unsigned distance = l->lanes / 2; distance; distance /= 2) {
        LLVMValueRef mask = make_shuffle_mask(l, exchange, distance);
        LLVMValueRef other =
            LLVMBuildShuffleVector(l->b, vector, LLVMGetPoison(LLVMTypeOf(vector)), mask, "");
        vector = combine(l, vector, other);
    }
    return vector;
}
