/*
 * One kernel through LLVM: print, verify, a short list of passes, an object in memory, an image. 4
 * to 20 ms. Every call has an LLVM context of its own, so calls may run in parallel.
 */
#include "codegen/codegen.h"
#include "codegen/llvm.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>

/*
 * Vectors are explicit: what is left to do is registers for allocas, folding, and moving what does
 * not change out of loops.
 */
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

/*
 * One kernel on its way. What is LLVM's is disposed of at the end, also when memory runs out in
 * between.
 */
typedef struct {
    MotLlvm l;
    LLVMTargetMachineRef machine;
    LLVMMemoryBufferRef object;
    uint64_t key;
    MotImageBytes *out_image;
} Compilation;

static MotStatus optimize(const Compilation *c)
{
    const MotLlvm *l = &c->l;
    char *error = NULL;
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(c->machine);
    LLVMSetModuleDataLayout(l->module, layout);
    LLVMDisposeTargetData(layout);
    LLVMSetTarget(l->module, "x86_64-unknown-linux-gnu");
    if (LLVMVerifyModule(l->module, LLVMReturnStatusAction, &error))
        return fail_llvm(l->ctx, "a kernel is invalid", error);
    LLVMDisposeMessage(error);
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef failure = LLVMRunPasses(l->module, passes, c->machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!failure)
        return MOT_OK;
    char *message = LLVMGetErrorMessage(failure);
    MotStatus status = mot_fail(l->ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "LLVM: passes: %s", message);
    LLVMDisposeErrorMessage(message);
    return status;
}

static MotStatus emit(Compilation *c)
{
    const MotLlvm *l = &c->l;
    char *error = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(c->machine, l->module, LLVMObjectFile, &error,
                                            &c->object))
        return fail_llvm(l->ctx, "no object", error);
    return mot_image_layout(l->ctx, LLVMGetBufferStart(c->object), LLVMGetBufferSize(c->object),
                            l->isa, c->key, l->kernel->n_nests, c->out_image);
}

static MotStatus make_image(MotCtx *ctx, void *self)
{
    Compilation *c = self;
    const MotKernelIr *kernel = c->l.kernel;
    (void)ctx;
    MOT_TRY(mot_llvm_print(&c->l));
    MOT_TRY(optimize(c));
    MOT_TRY(emit(c));
    MotImageHeader *header = c->out_image->data;
    for (uint32_t i = 0; i < kernel->n_nests; i++)
        header->nest[i].is_coarse = kernel->nest[i]->shape == MOT_SHAPE_CONTRACT;
    mot_image_seal(header);
    return MOT_OK;
}

MotStatus mot_codegen_kernel(MotCtx *ctx, const MotGraph *graph, MotIsa isa, uint64_t key,
                             MotImageBytes *out_image)
{
    Compilation c = {.key = key, .out_image = out_image};
    MotKernelIr kernel;
    MOT_TRY(mot_kernel_build(ctx, graph, &kernel));
    MOT_TRY(make_machine(ctx, isa, &c.machine));
    mot_llvm_init(&c.l, ctx, &kernel, isa);
    MotStatus status = mot_ctx_run(ctx, make_image, &c);
    if (c.object)
        LLVMDisposeMemoryBuffer(c.object);
    mot_llvm_deinit(&c.l);
    LLVMDisposeTargetMachine(c.machine);
    return status;
}
