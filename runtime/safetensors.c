/* Writing and checked reading of safetensors. */
#include "runtime/safetensors.h"

#include "support/file.h"
#include "support/json.h"
#include "support/writer.h"

#include <string.h>

static const struct {
    const char *name;
    MotDtype dtype;
} names[] = {{"F32", MOT_F32}, {"F64", MOT_F64}, {"F16", MOT_F16}, {"BF16", MOT_BF16},
             {"U8", MOT_U8},   {"I32", MOT_I32}, {"I64", MOT_I64}, {"BOOL", MOT_BOOL}};

static const char *find_name(MotDtype dtype)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].dtype == dtype)
            return names[i].name;
    return NULL;
}

MotStatus mot_safetensors_write(MotCtx *ctx, const char *path, const MotNamedTensor *tensors,
                                uint32_t n)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_text_puts(&text, "{");
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const MotType *type = &tensors[i].tensor.type;
        int64_t bytes = mot_type_bytes(type);
        mot_text_puts(&text, i ? "," : "");
        mot_json_quote(&text, tensors[i].name);
        mot_text_printf(&text, ":{\"dtype\":\"%s\",\"shape\":[", find_name(type->dtype));
        for (int d = 0; d < type->rank; d++)
            mot_text_printf(&text, "%s%lld", d ? "," : "", (long long)type->dims[d]);
        mot_text_printf(&text, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                        (long long)at + bytes);
        at += bytes;
    }
    mot_text_puts(&text, "}");
    while (text.n % 64)
        mot_text_puts(&text, " ");
    uint64_t length = text.n;
    MotWriter w;
    MOT_TRY(mot_writer_open(ctx, path, &w));
    MOT_TRY(mot_writer_add(&w, &length, sizeof length));
    MOT_TRY(mot_writer_add(&w, text.data, text.n));
    for (uint32_t i = 0; i < n; i++)
        MOT_TRY(mot_writer_add(&w, tensors[i].tensor.data,
                               (size_t)mot_type_bytes(&tensors[i].tensor.type)));
    return mot_writer_close(&w);
}

typedef struct {
    MotCtx *ctx;
    MotLoc loc;
    const char *data;
    size_t bytes;
    MotVec(MotNamedTensor) found;
} Reader;

static MotStatus read_entry(void *self, const char *name, const MotJson *entry)
{
    Reader *r = self;
    if (strcmp(name, "__metadata__") == 0)
        return MOT_OK;
    const char *quoted = mot_quote(&r->ctx->arena, name),
               *dtype = mot_json_string(mot_json_get(entry, "dtype"), "");
    const MotJson *shape = mot_json_get(entry, "shape"),
                  *offsets = mot_json_get(entry, "data_offsets");
    MotType type = {.rank = (int)mot_json_length(shape)};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, dtype) == 0)
            type.dtype = names[i].dtype;
    if (type.dtype == MOT_NO_DTYPE || type.rank > MOT_MAX_RANK)
        return mot_fail(r->ctx, MOT_ERR_DATA, r->loc,
                        "tensor %s: dtype %s or its rank is not supported", quoted,
                        mot_quote(&r->ctx->arena, dtype));
    int64_t bytes = mot_dtype_bytes(type.dtype);
    for (int d = 0; d < type.rank; d++) {
        type.dims[d] = mot_json_int(mot_json_at(shape, (size_t)d), -1);
        if (type.dims[d] < 0 || __builtin_mul_overflow(bytes, type.dims[d], &bytes))
            return mot_fail(r->ctx, MOT_ERR_DATA, r->loc, "tensor %s: bad shape", quoted);
    }
    int64_t begin = mot_json_int(mot_json_at(offsets, 0), -1),
            end = mot_json_int(mot_json_at(offsets, 1), -1);
    if (begin < 0 || end < begin || (uint64_t)end > r->bytes || end - begin != bytes)
        return mot_fail(r->ctx, MOT_ERR_DATA, r->loc,
                        "tensor %s: offsets do not fit its shape or the file", quoted);
    MotNamedTensor tensor = {mot_arena_strdup(&r->ctx->arena, name),
                             {type, (void *)(uintptr_t)(r->data + begin)}};
    mot_vec_push(&r->ctx->arena, &r->found, tensor);
    return MOT_OK;
}

MotStatus mot_safetensors_read(MotCtx *ctx, const char *path, MotNamedTensor **out_tensors,
                               uint32_t *out_n)
{
    const MotFileMap *file;
    MOT_TRY(mot_file_map(ctx, path, &file));
    Reader r = {.ctx = ctx, .loc = {path, NULL}};
    uint64_t length;
    if (file->n < sizeof length)
        return mot_fail(ctx, MOT_ERR_DATA, r.loc, "is cut off");
    memcpy(&length, (const char *)file->data, sizeof length);
    if (length > file->n - sizeof length)
        return mot_fail(ctx, MOT_ERR_DATA, r.loc, "is cut off in its header");
    const MotJson *root;
    MOT_TRY(mot_json_parse(ctx, MOT_ERR_DATA, path, (const char *)file->data + sizeof length,
                           (size_t)length, &root));
    r.data = (const char *)file->data + sizeof length + length;
    r.bytes = file->n - sizeof length - (size_t)length;
    MOT_TRY(mot_json_each(root, read_entry, &r));
    *out_tensors = r.found.data;
    *out_n = r.found.n;
    return MOT_OK;
}
