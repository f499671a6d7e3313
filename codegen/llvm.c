/* LLVM IR: functions of a kernel, integers, counted loops, calls. Linear in the nests' nodes. */
#include "codegen/llvm.h"

#include <stdio.h>
#include <string.h>

static const MotLlvmShape *const shapes[MOT_N_SHAPES] = {
    [MOT_SHAPE_POINTWISE] = &mot_llvm_pointwise,
    [MOT_SHAPE_ROW] = &mot_llvm_row,
    [MOT_SHAPE_COLUMN] = &mot_llvm_column,
    [MOT_SHAPE_CONTRACT] = &mot_llvm_contract,
    [MOT_SHAPE_SCATTER] = &mot_llvm_scatter_add,
    [MOT_SHAPE_ROWS] = &mot_llvm_rows,
    [MOT_SHAPE_ATTENTION] = &mot_llvm_attention,
    [MOT_SHAPE_ATTENTION_GRAD] = &mot_llvm_attention_grad};

void mot_llvm_init(MotLlvm *l, MotCtx *ctx, const MotKernelIr *kernel, MotIsa isa)
{
    LLVMContextRef c = LLVMContextCreate();
    *l = (MotLlvm){.ctx = ctx,
                   .llvm = c,
                   .module = LLVMModuleCreateWithNameInContext("kernel", c),
                   .b = LLVMCreateBuilderInContext(c),
                   .entry = LLVMCreateBuilderInContext(c),
                   .isa = isa,
                   .lanes = isa == MOT_ISA_AVX512 ? 16 : 8,
                   .i1 = LLVMInt1TypeInContext(c),
                   .i8 = LLVMInt8TypeInContext(c),
                   .i32 = LLVMInt32TypeInContext(c),
                   .i64 = LLVMInt64TypeInContext(c),
                   .f32 = LLVMFloatTypeInContext(c),
                   .f64 = LLVMDoubleTypeInContext(c),
                   .ptr = LLVMPointerTypeInContext(c, 0),
                   .nothing = LLVMVoidTypeInContext(c),
                   .kernel = kernel};
}

void mot_llvm_deinit(MotLlvm *l)
{
    LLVMDisposeBuilder(l->b);
    LLVMDisposeBuilder(l->entry);
    LLVMDisposeModule(l->module);
    LLVMContextDispose(l->llvm);
}

/* ---- Integers ---- */

LLVMValueRef mot_llvm_int(MotLlvm *l, int64_t value)
{
    return LLVMConstInt(l->i64, (unsigned long long)value, true);
}

LLVMValueRef mot_llvm_add(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildNSWAdd(l->b, a, b, "");
}

LLVMValueRef mot_llvm_sub(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildNSWSub(l->b, a, b, "");
}

LLVMValueRef mot_llvm_mul(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildNSWMul(l->b, a, b, "");
}

LLVMValueRef mot_llvm_less(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildICmp(l->b, LLVMIntSLT, a, b, "");
}

LLVMValueRef mot_llvm_min(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(l->b, mot_llvm_less(l, a, b), a, b, "");
}

LLVMValueRef mot_llvm_max(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(l->b, mot_llvm_less(l, a, b), b, a, "");
}

LLVMValueRef mot_llvm_div(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildUDiv(l->b, a, b, "");
}

LLVMValueRef mot_llvm_rem(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildURem(l->b, a, b, "");
}

LLVMValueRef mot_llvm_ceil_div(MotLlvm *l, LLVMValueRef a, int64_t b)
{
    return mot_llvm_div(l, mot_llvm_add(l, a, mot_llvm_int(l, b - 1)), mot_llvm_int(l, b));
}

/* Computed in the entry block: an extent holds for the whole call. */
LLVMValueRef mot_llvm_extent(MotLlvm *l, MotExtent e)
{
    LLVMValueRef value = mot_llvm_int(l, e.factor);
    for (uint32_t i = 0; i < e.n; i++) {
        LLVMValueRef at = mot_llvm_int(l, e.dim[i]);
        LLVMValueRef dim = LLVMBuildLoad2(
            l->entry, l->i64, LLVMBuildInBoundsGEP2(l->entry, l->i64, l->dims, &at, 1, ""), "dim");
        value = i == 0 && e.factor == 1 ? dim : LLVMBuildNSWMul(l->entry, value, dim, "");
    }
    return value;
}

LLVMValueRef mot_llvm_points(MotLlvm *l, int from, int to)
{
    LLVMValueRef n = mot_llvm_int(l, 1);
    for (int i = from; i < to; i++)
        n = mot_llvm_mul(l, n, mot_llvm_extent(l, l->nest->loop[i].extent));
    return n;
}

void mot_llvm_set_point(MotLlvm *l, LLVMValueRef n, int from, int to)
{
    for (int i = to; i-- > from;) {
        LLVMValueRef extent = mot_llvm_extent(l, l->nest->loop[i].extent);
        l->index[i] = i == from ? n : mot_llvm_rem(l, n, extent);
        if (i != from)
            n = mot_llvm_div(l, n, extent);
    }
}

/* ---- Control flow ---- */

static LLVMBasicBlockRef append_block(MotLlvm *l)
{
    return LLVMAppendBasicBlockInContext(l->llvm, l->fn, "");
}

MotLlvmLoop mot_llvm_loop_begin(MotLlvm *l, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step)
{
    MotLlvmLoop loop = {.step = step, .head = append_block(l), .after = NULL};
    LLVMBasicBlockRef before = LLVMGetInsertBlock(l->b), body = append_block(l);
    loop.after = append_block(l);
    LLVMBuildBr(l->b, loop.head);
    LLVMPositionBuilderAtEnd(l->b, loop.head);
    loop.index = LLVMBuildPhi(l->b, l->i64, "i");
    LLVMAddIncoming(loop.index, &from, &before, 1);
    LLVMBuildCondBr(l->b, mot_llvm_less(l, loop.index, to), body, loop.after);
    LLVMPositionBuilderAtEnd(l->b, body);
    return loop;
}

void mot_llvm_loop_end(MotLlvm *l, MotLlvmLoop *loop)
{
    LLVMValueRef next = mot_llvm_add(l, loop->index, loop->step);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(l->b);
    LLVMAddIncoming(loop->index, &next, &latch, 1);
    LLVMBuildBr(l->b, loop->head);
    LLVMPositionBuilderAtEnd(l->b, loop->after);
}

LLVMBasicBlockRef mot_llvm_if_begin(MotLlvm *l, LLVMValueRef condition)
{
    LLVMBasicBlockRef body = append_block(l), after = append_block(l);
    LLVMBuildCondBr(l->b, condition, body, after);
    LLVMPositionBuilderAtEnd(l->b, body);
    return after;
}

void mot_llvm_if_end(MotLlvm *l, LLVMBasicBlockRef after)
{
    LLVMBuildBr(l->b, after);
    LLVMPositionBuilderAtEnd(l->b, after);
}

/* ---- Calls and addresses ---- */

LLVMValueRef mot_llvm_call(MotLlvm *l, const char *name, const LLVMTypeRef *types, unsigned n_types,
                           LLVMValueRef *args, unsigned n_args)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    MOT_ASSERT(id != 0);
    LLVMTypeRef own[4];
    for (unsigned i = 0; i < n_types; i++)
        own[i] = types[i];
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(l->module, id, own, n_types);
    return LLVMBuildCall2(l->b, LLVMIntrinsicGetType(l->llvm, id, own, n_types), fn, args, n_args,
                          "");
}

static LLVMValueRef call_service(MotLlvm *l, unsigned index, LLVMTypeRef type, LLVMValueRef *args,
                                 unsigned n)
{
    LLVMValueRef fn = LLVMBuildLoad2(
        l->b, l->ptr, mot_llvm_at(l, l->ptr, l->services, mot_llvm_int(l, index)), "");
    return LLVMBuildCall2(l->b, type, fn, args, n, "");
}

void mot_llvm_gemm(MotLlvm *l, const MotLlvmGemm *g)
{
    enum { N_ARGS = 13 };
    LLVMTypeRef types[N_ARGS] = {l->ptr, l->i32, l->i32, l->i64, l->i64, l->i64, l->ptr,
                                 l->i64, l->ptr, l->i64, l->f32, l->ptr, l->i64};
    LLVMValueRef args[N_ARGS] = {l->services,
                                 LLVMConstInt(l->i32, g->trans_a, false),
                                 LLVMConstInt(l->i32, g->trans_b, false),
                                 g->m,
                                 g->n,
                                 g->k,
                                 g->a,
                                 g->lda,
                                 g->b,
                                 g->ldb,
                                 g->beta,
                                 g->c,
                                 g->ldc};
    enum { SGEMM = offsetof(MotServices, sgemm) / sizeof(void *) };
    call_service(l, SGEMM, LLVMFunctionType(l->nothing, types, N_ARGS, false), args, N_ARGS);
}

void mot_llvm_row_service(MotLlvm *l, const MotLlvmRow *r)
{
    enum { N_ARGS = 11, ROW = offsetof(MotServices, row) / sizeof(void *) };
    LLVMTypeRef types[N_ARGS] = {l->ptr, l->i64, l->i64, l->i64, l->i64, l->i64,
                                 l->i64, l->i64, l->ptr, l->ptr, l->ptr};
    LLVMValueRef args[N_ARGS] = {l->services,
                                 mot_llvm_int(l, r->kind),
                                 mot_llvm_int(l, r->wire),
                                 mot_llvm_int(l, r->n),
                                 mot_llvm_int(l, r->k),
                                 mot_llvm_int(l, r->parts),
                                 r->stride,
                                 r->row,
                                 r->at[0],
                                 r->at[1],
                                 r->at[2]};
    call_service(l, ROW, LLVMFunctionType(l->nothing, types, N_ARGS, false), args, N_ARGS);
}

void mot_llvm_report_index(MotLlvm *l, LLVMValueRef index)
{
    enum { BAD_INDEX = offsetof(MotServices, bad_index) / sizeof(void *) };
    LLVMValueRef slot = mot_llvm_at(l, l->ptr, l->services, mot_llvm_int(l, BAD_INDEX));
    LLVMBuildStore(l->b, index, LLVMBuildLoad2(l->b, l->ptr, slot, ""));
}

LLVMValueRef mot_llvm_buf(MotLlvm *l, uint32_t buf)
{
    LLVMValueRef at = mot_llvm_int(l, buf);
    return LLVMBuildLoad2(l->entry, l->ptr,
                          LLVMBuildInBoundsGEP2(l->entry, l->ptr, l->bufs, &at, 1, ""), "buf");
}

LLVMValueRef mot_llvm_at(MotLlvm *l, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index)
{
    return LLVMBuildGEP2(l->b, type, base, &index, 1, "");
}

LLVMValueRef mot_llvm_scratch(MotLlvm *l, LLVMValueRef byte_offset)
{
    return mot_llvm_at(l, l->i8, l->scratch, byte_offset);
}

/* ---- Functions ---- */

static void add_attribute(MotLlvm *l, const char *key, const char *value)
{
    LLVMAttributeRef a = LLVMCreateStringAttribute(l->llvm, key, (unsigned)strlen(key), value,
                                                   (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(l->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

/* Kernels call nothing but services: `no-builtins` keeps LLVM from making memset of a loop. */
static void begin_function(MotLlvm *l, const char *name, uint32_t nest, LLVMTypeRef type)
{
    char full[32];
    snprintf(full, sizeof full, "%s%u", name, nest);
    l->fn = LLVMAddFunction(l->module, full, type);
    LLVMSetVisibility(l->fn, LLVMHiddenVisibility);
    unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(l->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(l->llvm, nounwind, 0));
    add_attribute(l, "no-builtins", "");
    add_attribute(l, "no-jump-tables", "true");
    add_attribute(l, "prefer-vector-width", l->isa == MOT_ISA_AVX512 ? "512" : "256");
    add_attribute(l, "min-legal-vector-width", l->isa == MOT_ISA_AVX512 ? "512" : "256");
    LLVMBasicBlockRef entry = append_block(l), body = append_block(l);
    LLVMPositionBuilderAtEnd(l->b, entry);
    LLVMPositionBuilderBefore(l->entry, LLVMBuildBr(l->b, body));
    LLVMPositionBuilderAtEnd(l->b, body);
}

static void print_run(MotLlvm *l, const MotLlvmShape *shape, uint32_t nest)
{
    LLVMTypeRef params[] = {l->ptr, l->ptr, l->i64, l->i64, l->ptr, l->ptr};
    begin_function(l, "run", nest, LLVMFunctionType(l->nothing, params, 6, false));
    l->bufs = LLVMGetParam(l->fn, 0);
    l->dims = LLVMGetParam(l->fn, 1);
    l->begin = LLVMGetParam(l->fn, 2);
    l->end = LLVMGetParam(l->fn, 3);
    l->services = LLVMGetParam(l->fn, 4);
    l->scratch = LLVMGetParam(l->fn, 5);
    shape->run(l);
    LLVMBuildRetVoid(l->b);
}

static void print_count(MotLlvm *l, const char *name, uint32_t nest,
                        LLVMValueRef (*count)(MotLlvm *))
{
    LLVMTypeRef params[] = {l->ptr};
    begin_function(l, name, nest, LLVMFunctionType(l->i64, params, 1, false));
    l->dims = LLVMGetParam(l->fn, 0);
    LLVMBuildRet(l->b, count(l));
}

LLVMValueRef mot_llvm_no_scratch(MotLlvm *l)
{
    return mot_llvm_int(l, 0);
}

MotStatus mot_llvm_print(MotLlvm *l)
{
    for (uint32_t i = 0; i < l->kernel->n_nests; i++) {
        l->nest = l->kernel->nest[i];
        const MotLlvmShape *shape = shapes[l->nest->shape];
        print_count(l, "tasks", i, shape->tasks);
        print_count(l, "scratch", i, shape->scratch_bytes);
        print_run(l, shape, i);
    }
    return l->ctx->status;
}
