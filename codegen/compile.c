/*
 * One kernel through LLVM: print, verify, a short list of passes, an object in memory, an image. 4 to 20 ms. Every call has an LLVM
 * context of its own, so calls may run in parallel.
 */
#include "codegen/codegen.h"
#include "codegen/llvm.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>

/* Vectors are explicit: what is left to do is registers for allocas, folding, and moving what does not change out of loops. */
static const char passes[] =
    "function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(licm),early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)";

static const struct {
    const char *cpu, *features;
} targets[MOT_N_ISAS] = {
    [MOT_ISA_AVX2] = {"x86-64-v3", ""}, [MOT_ISA_AVX512] = {"x86-64-v4", "-prefer-256-bit"}};

static void init_targets(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
}

/* `text` is LLVM's; it is copied and given back. */
static MotStatus fail_llvm(MotCtx *ctx, const char *what, char *text)
{
    MotStatus status = mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "LLVM: %s: %s", what,
                                text ? text : "no reason given");
    LLVMDisposeMessage(text);
    return status;
}

static MotStatus make_machine(MotCtx *ctx, MotIsa isa, LLVMTargetMachineRef *out_machine)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_targets);
    LLVMTargetRef target;
    char *error = NULL;
    if (LLVMGetTargetFromTriple("x86_64-unknown-linux-gnu", &target, &error))
        return fail_llvm(ctx, "target", error);
    *out_machine = LLVMCreateTargetMachine(target, "x86_64-unknown-linux-gnu", targets[isa].cpu,
                                           targets[isa].features, LLVMCodeGenLevelDefault,
                                           LLVMRelocPIC, LLVMCodeModelSmall);
    return MOT_OK;
}

static MotStatus optimize(MotLlvm *l, LLVMTargetMachineRef machine)
{
    char *error = NULL;
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetModuleDataLayout(l->module, layout);
    LLVMDisposeTargetData(layout);
    LLVMSetTarget(l->module, "x86_64-unknown-linux-gnu");
    if (LLVMVerifyModule(l->module, LLVMReturnStatusAction, &error))
        return fail_llvm(l->ctx, "a kernel is invalid", error);
    LLVMDisposeMessage(error);
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef failure = LLVMRunPasses(l->module, passes, machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!failure)
        return MOT_OK;
    char *message = LLVMGetErrorMessage(failure);
    MotStatus status = mot_fail(l->ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "LLVM: passes: %s", message);
    LLVMDisposeErrorMessage(message);
    return status;
}

static MotStatus emit(MotLlvm *l, LLVMTargetMachineRef machine, uint64_t key,
                      MotImageBytes *out_image)
{
    char *error = NULL;
    LLVMMemoryBufferRef object = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, l->module, LLVMObjectFile, &error, &object))
        return fail_llvm(l->ctx, "no object", error);
    MotStatus status =
        mot_image_layout(l->ctx, LLVMGetBufferStart(object), LLVMGetBufferSize(object), l->isa, key,
                         l->kernel->n_nests, out_image);
    LLVMDisposeMemoryBuffer(object);
    return status;
}

static MotStatus compile(MotLlvm *l, LLVMTargetMachineRef machine, uint64_t key,
                         MotImageBytes *out_image)
{
    MOT_TRY(mot_llvm_print(l));
    MOT_TRY(optimize(l, machine));
    MOT_TRY(emit(l, machine, key, out_image));
    MotImageHeader *header = out_image->data;
    for (uint32_t i = 0; i < l->kernel->n_nests; i++)
        header->nest[i].is_coarse = l->kernel->nest[i]->shape == MOT_SHAPE_CONTRACT;
    mot_image_seal(header);
    return MOT_OK;
}

MotStatus mot_codegen_kernel(MotCtx *ctx, const MotGraph *graph, MotIsa isa, uint64_t key,
                             MotImageBytes *out_image)
{
    MotKernelIr kernel;
    LLVMTargetMachineRef machine;
    MOT_TRY(mot_kernel_build(ctx, graph, &kernel));
    MOT_TRY(make_machine(ctx, isa, &machine));
    MotLlvm l;
    mot_llvm_init(&l, ctx, &kernel, isa);
    MotStatus status = compile(&l, machine, key, out_image);
    mot_llvm_deinit(&l);
    LLVMDisposeTargetMachine(machine);
    return status;
}

MotStatus mot_codegen_text(MotCtx *ctx, const MotGraph *graph, MotIsa isa, bool is_optimized,
                           const char **out_text)
{
    MotKernelIr kernel;
    LLVMTargetMachineRef machine;
    MOT_TRY(mot_kernel_build(ctx, graph, &kernel));
    MOT_TRY(make_machine(ctx, isa, &machine));
    MotLlvm l;
    mot_llvm_init(&l, ctx, &kernel, isa);
    MotStatus status = mot_llvm_print(&l);
    if (status == MOT_OK && is_optimized)
        status = optimize(&l, machine);
    char *text = LLVMPrintModuleToString(l.module);
    *out_text = mot_arena_strdup(&ctx->arena, text);
    LLVMDisposeMessage(text);
    mot_llvm_deinit(&l);
    LLVMDisposeTargetMachine(machine);
    return status;
}
