/*
 * Map, scan, parse, check; every step leaves its handle in the file's record, which the context
 * releases.
 */
#include "frontend/onnx_file.h"

#include "frontend/onnx_check.h"

MotOnnxOpts mot_onnx_opts_default(void)
{
    return (MotOnnxOpts){.limits = mot_onnx_limits_default()};
}

void mot_onnx_forget(const MotOnnxFile *file)
{
    if (file->map)
        mot_file_forget(file->map);
    for (uint32_t i = 0; i < file->external->files.n; i++)
        mot_file_forget(file->external->files.data[i].map);
}

MotStatus mot_onnx_check_unchanged(MotCtx *ctx, const MotOnnxFile *file)
{
    if (file->map)
        MOT_TRY(mot_file_check_unchanged(ctx, file->path, file->map));
    for (uint32_t i = 0; i < file->external->files.n; i++) {
        const MotExternalFile *external = &file->external->files.data[i];
        MOT_TRY(mot_file_check_unchanged(ctx, external->path, external->map));
    }
    return MOT_OK;
}

static void release_file(void *handle)
{
    MotOnnxFile *file = handle;
    if (file->model)
        protobuf_c_message_free_unpacked((ProtobufCMessage *)file->model, NULL);
    if (file->tensor)
        protobuf_c_message_free_unpacked((ProtobufCMessage *)file->tensor, NULL);
    mot_wire_deinit(&file->wire);
}

static MotStatus parse(MotCtx *ctx, MotOnnxFile *file, MotWireRoot root)
{
    MotWire *wire = &file->wire;
    MOT_TRY(mot_wire_scan(ctx, wire, root, &file->limits));
    const ProtobufCMessageDescriptor *descriptor =
        root == MOT_WIRE_MODEL ? &onnx__model_proto__descriptor : &onnx__tensor_proto__descriptor;
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, NULL, wire->message_bytes, wire->message);
    if (!message)
        return mot_fail(ctx, MOT_ERR_MEMORY, (MotLoc){file->path, NULL},
                        "protobuf-c ran out of memory, or met a field above 2 GiB");
    if (root == MOT_WIRE_MODEL)
        file->model = (const Onnx__ModelProto *)message;
    else
        file->tensor = (const Onnx__TensorProto *)message;
    mot_wire_deinit(wire);
    return MOT_OK;
}

static MotOnnxFile *make_file(MotCtx *ctx, const char *name, const void *bytes, size_t n,
                              const MotOnnxOpts *opts)
{
    MotOnnxFile *file = mot_arena_new(&ctx->arena, MotOnnxFile);
    file->path = mot_arena_strdup(&ctx->arena, name);
    file->wire = (MotWire){.file = file->path, .bytes = bytes, .n = n};
    file->limits = opts->limits;
    file->external = mot_arena_new(&ctx->arena, MotExternal);
    file->converted = mot_arena_new(&ctx->arena, MotOnnxConverted);
    mot_map_init(&file->converted->by_tensor, &ctx->arena);
    mot_ctx_defer(ctx, release_file, file);
    return file;
}

static MotStatus open_path(MotCtx *ctx, const char *path, MotWireRoot root, const MotOnnxOpts *opts,
                           MotOnnxFile **out_file)
{
    const MotFileMap *map;
    MOT_TRY(mot_file_map(ctx, path, &map));
    *out_file = make_file(ctx, path, map->data, map->n, opts);
    (*out_file)->map = map;
    MOT_TRY(mot_external_init(ctx, (*out_file)->external, path, opts->external_data_root,
                              opts->is_strict));
    return parse(ctx, *out_file, root);
}

/* What exporters write begins with the version of the format, field 1. */
static bool begins_like_a_model(const MotFileMap *map)
{
    return map->n > 0 && map->data[0] == 1 << 3;
}

MotStatus mot_onnx_open(MotCtx *ctx, const char *path, const MotOnnxOpts *opts,
                        MotOnnxFile **out_file)
{
    *out_file = NULL;
    MotStatus status = open_path(ctx, path, MOT_WIRE_MODEL, opts, out_file);
    if (status == MOT_ERR_MODEL && *out_file && !begins_like_a_model((*out_file)->map))
        mot_hint(ctx, "it does not begin as ONNX files do: is it one?");
    MOT_TRY(status);
    return mot_onnx_check(ctx, *out_file);
}

MotStatus mot_onnx_open_tensor(MotCtx *ctx, const char *path, const MotOnnxOpts *opts,
                               MotOnnxFile **out_file)
{
    MOT_TRY(open_path(ctx, path, MOT_WIRE_TENSOR, opts, out_file));
    return mot_onnx_tensor_check(ctx, *out_file, (*out_file)->tensor,
                                 (MotLoc){(*out_file)->path, NULL});
}

MotStatus mot_onnx_open_memory(MotCtx *ctx, const char *name, const void *bytes, size_t n,
                               const MotOnnxOpts *opts, MotOnnxFile **out_file)
{
    *out_file = make_file(ctx, name, bytes, n, opts);
    MOT_TRY(mot_external_init(ctx, (*out_file)->external, NULL, opts->external_data_root,
                              opts->is_strict));
    MOT_TRY(parse(ctx, *out_file, MOT_WIRE_MODEL));
    return mot_onnx_check(ctx, *out_file);
}
