/* motley ckpt: lists, checks and exports checkpoints. */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "frontend/export.h"
#include "job/job.h"
#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"

#include <stdio.h>
#include <string.h>

static const MotOption ckpt_options[] = {
    {"-o", "FILE.onnx", "export: the model with the checkpoint's weights"},
    {"--model", "FILE.onnx", "export: the model file, if it is not where it was"},
    {NULL, NULL, NULL}};

/* What every answer begins with: the checkpoint and its step. The caller closes the object. */
static void begin_answer(MotCtx *ctx, MotJsonWriter *w, const char *path,
                         const MotCheckpointInfo *info)
{
    mot_json_begin(w, &ctx->arena);
    mot_json_open(w, NULL, '{');
    mot_json_put_string(w, "checkpoint", path);
    mot_json_put_int(w, "step", info->step);
}

static void list_as_json(MotCtx *ctx, const char *path, const MotCheckpointInfo *info,
                         const MotNamedTensor *tensors, uint32_t n)
{
    MotJsonWriter w;
    begin_answer(ctx, &w, path, info);
    mot_json_put_int(&w, "seed", (int64_t)info->seed);
    mot_json_put_string(&w, "model", info->model);
    mot_json_put_string(&w, "loss", info->loss);
    mot_json_put_string(&w, "optimizer", info->optimizer);
    mot_json_put_string(&w, "data", info->data);
    mot_json_open(&w, "tensors", '[');
    for (uint32_t i = 0; i < n; i++) {
        mot_json_open(&w, NULL, '{');
        mot_json_put_string(&w, "name", tensors[i].name);
        mot_answer_put_type(&w, &tensors[i].tensor.type);
        mot_json_close(&w, '}');
    }
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

static MotStatus list(MotCtx *ctx, const MotArgs *args, const char *path,
                      const MotCheckpointInfo *info)
{
    MotNamedTensor *tensors;
    uint32_t n;
    MotArena *arena = &ctx->arena;
    MOT_TRY(mot_safetensors_read(ctx, mot_arena_printf(arena, "%s/model.safetensors", path),
                                 &tensors, &n));
    if (mot_args_has(args, "--json")) {
        list_as_json(ctx, path, info, tensors, n);
        return MOT_OK;
    }
    printf("%s: step %lld, seed %llu\nmodel     %s\nloss      %s\noptimizer %s\ndata      %s\n",
           path, (long long)info->step, (unsigned long long)info->seed,
           mot_escape(arena, info->model, SIZE_MAX), mot_escape(arena, info->loss, SIZE_MAX),
           mot_escape(arena, info->optimizer, SIZE_MAX), mot_escape(arena, info->data, SIZE_MAX));
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
    if (!mot_args_has(args, "--json")) {
        printf("%s: sound, step %lld\n", path, (long long)info->step);
        return MOT_OK;
    }
    MotJsonWriter w;
    begin_answer(ctx, &w, path, info);
    mot_json_put_bool(&w, "sound", true);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
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
    if (!mot_args_has(args, "--json")) {
        printf("%s\n", to);
        return MOT_OK;
    }
    MotJsonWriter w;
    begin_answer(ctx, &w, path, info);
    mot_json_put_string(&w, "model", to);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
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
