/* motley ckpt: lists, checks and exports checkpoints. */
#include "cli/job.h"
#include "cli/verbs.h"
#include "frontend/export.h"
#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"

#include <stdio.h>
#include <string.h>

static const MotOption ckpt_options[] = {
    {"-o", "FILE.onnx", "export: the model with the checkpoint's weights"},
    {"--model", "FILE.onnx", "export: the model file, if it is not where it was"},
    {NULL, NULL, NULL}};

static MotStatus list(MotCtx *ctx, const MotArgs *args, const char *path,
                      const MotCheckpointInfo *info)
{
    (void)args;
    MotNamedTensor *tensors;
    uint32_t n;
    printf("%s: step %lld, seed %llu\nmodel     %s\nloss      %s\noptimizer %s\ndata      %s\n",
           path, (long long)info->step, (unsigned long long)info->seed, info->model, info->loss,
           info->optimizer, info->data);
    MOT_TRY(mot_safetensors_read(ctx, mot_arena_printf(&ctx->arena, "%s/model.safetensors", path),
                                 &tensors, &n));
    for (uint32_t i = 0; i < n; i++)
        printf(
            "  %-40s %s[%s]\n", mot_quote(&ctx->arena, tensors[i].name),
            mot_dtype_name(tensors[i].tensor.type.dtype),
            mot_shape_text(&ctx->arena, tensors[i].tensor.type.dims, tensors[i].tensor.type.rank));
    return MOT_OK;
}

static MotStatus verify(MotCtx *ctx, const MotArgs *args, const char *path,
                        const MotCheckpointInfo *info)
{
    (void)ctx;
    (void)args;
    printf("%s: sound, step %lld\n", path, (long long)info->step);
    return MOT_OK;
}

static MotStatus export(MotCtx *ctx, const MotArgs *args, const char *path,
                        const MotCheckpointInfo *info)
{
    const char *to = mot_args_get(args, "-o", NULL);
    if (!to)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "export needs -o FILE.onnx");
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    MotNamedTensor *tensors;
    uint32_t n;
    MOT_TRY(mot_onnx_open(ctx, mot_args_get(args, "--model", info->model), &opts, &file));
    MOT_TRY(mot_safetensors_read(ctx, mot_arena_printf(&ctx->arena, "%s/model.safetensors", path),
                                 &tensors, &n));
    MotExported *exported = mot_arena_array(&ctx->arena, MotExported, n);
    for (uint32_t i = 0; i < n; i++)
        exported[i] = (MotExported){tensors[i].name, tensors[i].tensor};
    MOT_TRY(mot_export(ctx, file, exported, n, to));
    printf("%s\n", to);
    return MOT_OK;
}

static const struct {
    const char *name;
    MotStatus (*run)(MotCtx *ctx, const MotArgs *args, const char *path,
                     const MotCheckpointInfo *info);
} actions[] = {{"ls", list}, {"verify", verify}, {"export", export}};

static MotStatus run_ckpt(MotCtx *ctx, const MotArgs *args)
{
    const char *action, *dir, *path;
    MotCheckpointInfo info;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &action));
    MOT_TRY(mot_args_need_operand(ctx, args, 1, &dir));
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, action) == 0) {
            MOT_TRY(mot_checkpoint_find(ctx, dir, &path, &info));
            return actions[i].run(ctx, args, path, &info);
        }
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "ckpt %s: it is ls, verify or export",
                    mot_quote(&ctx->arena, action));
}

const MotVerb mot_verb_ckpt = {.name = "ckpt",
                               .operands = "ls|verify|export DIR",
                               .summary = "list, check or export a checkpoint",
                               .options = (const MotOption *const[]){ckpt_options, NULL},
                               .run = run_ckpt};
