/* The reference device: evaluates a kernel's graph with ir/eval.h, one op after the other. Slow, readable, the oracle. */
#include "ir/eval.h"
#include "runtime/device.h"

#include <string.h>

typedef struct {
    MotCtx *ctx;
    MotGraph *graph;
} RefKernel;

static MotStatus open_ref(MotCtx *ctx, uint32_t threads, bool may_spin, void **out_self)
{
    (void)threads, (void)may_spin;
    *out_self = ctx;
    return MOT_OK;
}

static MotStatus prepare_ref(void *self, MotCtx *ctx, const MotProgram *program, uint32_t kernel,
                             const MotBinding *binding, void **out_kernel)
{
    (void)self;
    RefKernel *k = mot_arena_new(&ctx->arena, RefKernel);
    *k = (RefKernel){ctx, mot_program_bind_kernel(ctx, program, kernel, binding)};
    *out_kernel = k;
    return MOT_OK;
}

static MotStatus launch_ref(void *self, void *kernel, void *const *bufs)
{
    (void)self;
    const RefKernel *k = kernel;
    const MotGraph *g = k->graph;
    MotArenaMark mark = mot_arena_mark(&k->ctx->arena);
    MotTensor *values = mot_arena_array(&k->ctx->arena, MotTensor, g->values.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT)
            values[op->out[0]] = (MotTensor){*mot_graph_type(g, op->out[0]), bufs[n++]};
    }
    MOT_TRY(mot_eval_graph(k->ctx, g, values, false));
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_OUTPUT)
            memcpy(bufs[n++], values[op->in[0]].data,
                   (size_t)mot_type_bytes(mot_graph_type(g, op->in[0])));
    }
    mot_arena_rewind(&k->ctx->arena, mark);
    return MOT_OK;
}

const MotDeviceApi mot_device_ref = {
    .name = "ref", .open = open_ref, .prepare = prepare_ref, .launch = launch_ref};
