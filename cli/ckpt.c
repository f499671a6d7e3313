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

static MotStatus list(MotCtx *ctx, const MotArgs *args, const char *dir)
{
    const char *path;
    MotCheckpointInfo info;
    MotNamedTensor *tensors;
    uint32_t n;
    MotArena *arena = &ctx->arena;
    MOT_TRY(mot_checkpoint_find(ctx, dir, &path, &info));
    MOT_TRY(mot_safetensors_read(ctx, mot_arena_printf(arena, "%s/model.safetensors", path),
                                 &tensors, &n));
    if (mot_args_has(args, "--json")) {
        list_as_json(ctx, path, &info, tensors, n);
        return MOT_OK;
    }
    printf("%s: step %lld, seed %llu\nmodel     %s\nloss      %s\noptimizer %s\ndata      %s\n",
           path, (long long)info.step, (unsigned long long)info.seed,
           mot_escape(arena, info.model, SIZE_MAX), mot_escape(arena, info.loss, SIZE_MAX),
           mot_escape(arena, info.optimizer, SIZE_MAX), mot_escape(arena, info.data, SIZE_MAX));
    for (uint32_t i = 0; i < n; i++)
        printf(
            "  %-40s %s[%s]\n", mot_quote(&ctx->arena, tensors[i].name),
            mot_dtype_name(tensors[i].tensor.type.dtype),
            mot_shape_text(&ctx->arena, tensors[i].tensor.type.dims, tensors[i].tensor.type.rank));
    return MOT_OK;
}

/* Every checkpoint of a folder: whether it is sound, and if not, why. */
typedef struct {
    const char *path, *error; /* NULL: none */
    int64_t step;
    bool is_finished;
} Verdict;

static MotStatus judge(MotCtx *ctx, const char *path, Verdict *out_verdict)
{
    MotCheckpointInfo info;
    *out_verdict = (Verdict){.path = path, .is_finished = mot_checkpoint_is_finished(ctx, path)};
    MotStatus status = mot_checkpoint_verify(ctx, path, &info);
    if (status == MOT_OK)
        out_verdict->step = info.step;
    if (status != MOT_ERR_DATA)
        return status; /* what the system refuses now may be sound */
    out_verdict->error = mot_arena_strdup(&ctx->arena, mot_text_get(&ctx->error));
    mot_error_clear(ctx);
    return MOT_OK;
}

static void print_verdict(const Verdict *v)
{
    if (v->error)
        printf("%s: %s\n", v->path, v->is_finished ? "damaged" : "not finished");
    else
        printf("%s: sound, step %lld\n", v->path, (long long)v->step);
}

static void print_verdicts_as_json(MotCtx *ctx, const Verdict *verdicts, uint32_t n, bool is_sound)
{
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_open(&w, "checkpoints", '[');
    for (uint32_t i = 0; i < n; i++) {
        const Verdict *v = &verdicts[i];
        mot_json_open(&w, NULL, '{');
        mot_json_put_string(&w, "checkpoint", v->path);
        if (!v->error)
            mot_json_put_int(&w, "step", v->step);
        mot_json_put_bool(&w, "finished", v->is_finished);
        mot_json_put_bool(&w, "sound", !v->error);
        mot_json_put_string(&w, "error", v->error);
        mot_json_close(&w, '}');
    }
    mot_json_close(&w, ']');
    mot_json_put_bool(&w, "sound", is_sound);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

/*
 * What a save that was cut short has left is told, but is no damage: the checkpoint before it is
 * there.
 */
static MotStatus verify(MotCtx *ctx, const MotArgs *args, const char *dir)
{
    const char **paths;
    uint32_t n, n_sound = 0, n_damaged = 0;
    MOT_TRY(mot_checkpoint_list(ctx, dir, &paths, &n));
    Verdict *verdicts = mot_arena_array(&ctx->arena, Verdict, n);
    for (uint32_t i = 0; i < n; i++) {
        MOT_TRY(judge(ctx, paths[i], &verdicts[i]));
        n_sound += !verdicts[i].error;
        n_damaged += verdicts[i].error && verdicts[i].is_finished;
    }
    if (mot_args_has(args, "--json"))
        print_verdicts_as_json(ctx, verdicts, n, n_sound && !n_damaged);
    for (uint32_t i = 0; i < n && !mot_args_has(args, "--json"); i++)
        print_verdict(&verdicts[i]);
    if (n_sound && !n_damaged)
        return MOT_OK;
    if (n_damaged)
        mot_fail(ctx, MOT_ERR_DATA, (MotLoc){dir, NULL}, "%u of %u checkpoints %s damaged",
                 n_damaged, n, n_damaged > 1 ? "are" : "is");
    else
        mot_fail(ctx, MOT_ERR_DATA, (MotLoc){dir, NULL}, "holds no sound checkpoint");
    for (uint32_t i = 0; i < n; i++)
        if (verdicts[i].error)
            mot_note(ctx, "%s", verdicts[i].error);
    return ctx->status;
}

static MotStatus export(MotCtx *ctx, const MotArgs *args, const char *dir)
{
    const char *path;
    MotCheckpointInfo info;
    const char *to = mot_args_get(args, "-o", NULL);
    if (!to)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "export needs -o FILE.onnx");
    MOT_TRY(mot_checkpoint_find(ctx, dir, &path, &info));
    MotOnnxOpts opts = mot_onnx_opts_default();
    MotOnnxFile *file;
    MotNamedTensor *tensors;
    uint32_t n;
    const char *model = mot_args_get(args, "--model", info.model);
    MOT_TRY(mot_answer_opened(ctx, args, mot_onnx_open(ctx, model, &opts, &file)));
    MOT_TRY(mot_safetensors_read(ctx, mot_arena_printf(&ctx->arena, "%s/model.safetensors", path),
                                 &tensors, &n));
    MotExported *exported = mot_arena_array(&ctx->arena, MotExported, n);
    for (uint32_t i = 0; i < n; i++)
        exported[i] = (MotExported){tensors[i].name, tensors[i].tensor};
    MOT_TRY(mot_file_check_output(ctx, to));
    MOT_TRY(mot_export(ctx, file, exported, n, to));
    if (!mot_args_has(args, "--json")) {
        printf("%s\n", to);
        return MOT_OK;
    }
    MotJsonWriter w;
    begin_answer(ctx, &w, path, &info);
    mot_json_put_string(&w, "model", to);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
    return MOT_OK;
}

static const struct {
    const char *name;
    MotStatus (*run)(MotCtx *ctx, const MotArgs *args, const char *dir);
} actions[] = {{"ls", list}, {"verify", verify}, {"export", export}};

static MotStatus run_ckpt(MotCtx *ctx, const MotArgs *args)
{
    const char *action, *dir;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &action));
    MOT_TRY(mot_args_need_operand(ctx, args, 1, &dir));
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, action) == 0)
            return actions[i].run(ctx, args, dir);
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "ckpt %s: it is ls, verify or export",
                    mot_quote(&ctx->arena, action));
}

const MotVerb mot_verb_ckpt = {.name = "ckpt",
                               .operands = "ls|verify|export DIR",
                               .summary = "list or export a checkpoint, check all of a run",
                               .options = (const MotOption *const[]){ckpt_options, NULL},
                               .run = run_ckpt};
