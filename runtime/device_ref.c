/*
 * The reference device: evaluates a kernel's graph with ir/eval.h, one op after the other. Slow,
 * readable, the oracle.
 */
#include "ir/eval.h"
#include "runtime/device.h"

#include <string.h>

typedef struct {
    MotCtx *ctx;
    MotGraph **graph;        /* [n_sets]: bound */
    uint32_t n_sets, n_bufs; /* n_bufs: of a set */
} RefLaunch;

static MotStatus open_ref(MotCtx *ctx, uint32_t threads, bool may_spin, void **out_self)
{
    (void)threads, (void)may_spin;
    *out_self = ctx;
    return MOT_OK;
}

static MotStatus prepare_ref(void *self, MotCtx *ctx, const MotProgram *program,
                             const MotInstr *ins, const MotBinding *binding, void **out_launch)
{
    (void)self;
    RefLaunch *l = mot_arena_new(&ctx->arena, RefLaunch);
    uint32_t n = mot_launch_sets(ins);
    *l = (RefLaunch){ctx, mot_arena_array(&ctx->arena, MotGraph *, n), n, ins->n_bufs / n};
    const int64_t *sizes = mot_launch_sizes(ctx, program, ins, binding);
    for (uint32_t set = 0; set < n; set++)
        l->graph[set] = mot_program_bind_kernel(ctx, program, ins->kernel, sizes + set);
    *out_launch = l;
    return MOT_OK;
}

static MotStatus run_set(MotCtx *ctx, const MotGraph *g, void *const *bufs)
{
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT)
            values[op->out[0]] = (MotTensor){*mot_graph_type(g, op->out[0]), bufs[n++]};
    }
    MOT_TRY(mot_eval_graph(ctx, g, values, false));
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_OUTPUT)
            memcpy(bufs[n++], values[op->in[0]].data,
                   (size_t)mot_type_bytes(mot_graph_type(g, op->in[0])));
    }
    mot_arena_rewind(&ctx->arena, mark);
    return MOT_OK;
}

static MotStatus launch_ref(void *self, void *launch, void *const *bufs)
{
    (void)self;
    const RefLaunch *l = launch;
    for (uint32_t set = 0; set < l->n_sets; set++)
        MOT_TRY(run_set(l->ctx, l->graph[set], bufs + (size_t)set * l->n_bufs));
    return MOT_OK;
}

const MotDeviceApi mot_device_ref = {
    .name = "ref", .open = open_ref, .prepare = prepare_ref, .launch = launch_ref};
