/*
 * Device backends: what runs the launches of a Program on one rank. A launch is prepared once a
 * binding and run in the step. Backends: `ref` (ir/eval.h, the oracle) and `cpu` (compiled kernels,
 * codegen/).
 */
#ifndef MOTLEY_RUNTIME_DEVICE_H
#define MOTLEY_RUNTIME_DEVICE_H

#include "ir/program.h"

typedef struct MotDeviceApi {
    const char *name;
    /*
     * Makes the backend's state for a rank with `threads` threads; it is released with ctx.
     * may_spin: waiting threads may burn cycles.
     */
    MotStatus (*open)(MotCtx *ctx, uint32_t threads, bool may_spin, void **out_self);
    /* Prepares a launch; what it makes lives in ctx's arena. */
    MotStatus (*prepare)(void *self, MotCtx *ctx, const MotProgram *program, const MotInstr *ins,
                         const MotBinding *binding, void **out_launch);
    /* Runs it: bufs are set by set, operands, then results. */
    MotStatus (*launch)(void *self, void *launch, void *const *bufs);
} MotDeviceApi;

extern const MotDeviceApi mot_device_ref, mot_device_cpu;
/* NULL if there is no backend of that name. */
const MotDeviceApi *mot_device_find(const char *name);

#endif
