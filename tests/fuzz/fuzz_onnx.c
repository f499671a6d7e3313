/*
 * The ONNX reader over memory: scan, parse, checks, tensors. Whatever the bytes, it ends with a
 * status, and with a text.
 */
#include "frontend/onnx_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

typedef struct Input {
    const uint8_t *bytes;
    size_t n;
} Input;

static MotStatus read_model(MotCtx *ctx, void *arg)
{
    const Input *input = arg;
    MotOnnxOpts opts = mot_onnx_opts_default();
    opts.limits.memory = 16 << 20;
    MotOnnxFile *file;
    MOT_TRY(mot_onnx_open_memory(ctx, "fuzz.onnx", input->bytes, input->n, &opts, &file));
    const Onnx__GraphProto *graph = file->model->graph;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        MotTensor tensor;
        if (mot_onnx_tensor(ctx, file, graph->initializer[i], MOT_NOWHERE, &tensor) != MOT_OK)
            mot_error_clear(ctx);
    }
    for (uint32_t s = 0; s < file->scopes->all.n; s++) {
        const MotOnnxScope *scope = &file->scopes->all.data[s];
        const void *owner =
            scope->graph ? (const void *)scope->graph : (const void *)scope->function;
        for (uint32_t i = 0; i < scope->n_nodes; i++) {
            uint32_t node = mot_onnx_order(file, owner)[i];
            if (!mot_onnx_node_loc(ctx, file, owner, node).place)
                __builtin_trap();
        }
    }
    return MOT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Input input = {bytes, n};
    MotStatus status = mot_ctx_run(&ctx, read_model, &input);
    if (status == MOT_ERR_INTERNAL || (status != MOT_OK && ctx.error.n == 0))
        __builtin_trap();
    mot_ctx_deinit(&ctx);
    return 0;
}
