/* Three steps: the entries (text only), the file (resolve.c), the range in it. */
#include "frontend/external.h"

#include "frontend/sha1.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- Where to look ---- */

/*
 * Adds the real path of `folder`, unless it is there already. Returns false if there is no such
 * folder.
 */
static bool add_root(MotCtx *ctx, MotRoots *roots, const char *folder)
{
    char real[PATH_MAX];
    if (!realpath(folder, real))
        return false;
    for (size_t i = 0; i < roots->n; i++)
        if (strcmp(roots->paths[i], real) == 0)
            return true;
    roots->paths[roots->n++] = mot_arena_strdup(&ctx->arena, real);
    return true;
}

static bool add_folder_of(MotCtx *ctx, MotRoots *roots, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return add_root(ctx, roots, ".");
    return add_root(ctx, roots,
                    slash == path ? "/"
                                  : mot_arena_strndup(&ctx->arena, path, (size_t)(slash - path)));
}

MotStatus mot_external_init(MotCtx *ctx, MotExternal *external, const char *model_path,
                            const char *root, bool is_strict)
{
    *external = (MotExternal){.is_strict = is_strict};
    mot_map_init(&external->opened, &ctx->arena);
    char real[PATH_MAX];
    if (model_path) {
        if (!add_folder_of(ctx, &external->roots, model_path) || !realpath(model_path, real))
            return mot_fail(ctx, MOT_ERR_IO, (MotLoc){model_path, NULL}, "%s", strerror(errno));
        (void)add_folder_of(ctx, &external->roots, real);
    }
    if (root && !add_root(ctx, &external->roots, root))
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){root, NULL}, "%s", strerror(errno));
    return MOT_OK;
}

/* ---- The entries ---- */

/* What is wrong with a location, judged by its text; NULL if nothing is. */
static const char *find_fault(const char *location)
{
    bool has_name = false;
    if (location[0] == 0)
        return "is empty";
    if (location[0] == '/')
        return "is absolute; it must be relative to the model's folder";
    if (location[1] == ':')
        return "has a drive letter; it must be relative to the model's folder";
    for (const char *p = location; *p; p++) {
        if (*p == '\\')
            return "has a backslash; components are separated by \"/\"";
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return "has a control character";
    }
    for (const char *p = location; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && memcmp(p, "..", 2) == 0)
            return "has a \"..\"; it must stay in the model's folder";
        has_name = has_name || (n > 0 && !(n == 1 && *p == '.'));
        p += n + (p[n] == '/');
    }
    if (!has_name)
        return "names the folder itself";
    return location[strlen(location) - 1] == '/' ? "ends in \"/\"" : NULL;
}

/* Decimal digits only, below 2^63. */
static bool parse_size(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value) || value > INT64_MAX)
            return false;
    }
    *out = value;
    return true;
}

enum { KEY_LOCATION, KEY_OFFSET, KEY_LENGTH, KEY_CHECKSUM, KEY_BASEPATH, N_KEYS };
static const char *const keys[N_KEYS] = {"location", "offset", "length", "checksum", "basepath"};

static MotStatus read_entry(MotCtx *ctx, MotExternal *external,
                            const Onnx__StringStringEntryProto *entry, MotLoc loc,
                            const char *values[N_KEYS])
{
    const char *key = entry->key ? entry->key : "";
    for (int k = 0; k < N_KEYS; k++) {
        if (strcmp(key, keys[k]) != 0)
            continue;
        if (values[k])
            return mot_fail(ctx, MOT_ERR_MODEL, loc, "external_data gives %s twice", key);
        values[k] = entry->value ? entry->value : "";
        return MOT_OK;
    }
    if (!external->has_warned)
        mot_warn(ctx, loc, "external_data key %s is unknown and ignored",
                 mot_quote(&ctx->arena, key));
    external->has_warned = true;
    return MOT_OK;
}

MotStatus mot_external_parse(MotCtx *ctx, MotExternal *external, const Onnx__TensorProto *tensor,
                             MotLoc loc, MotExternalRef *out_ref)
{
    const char *values[N_KEYS] = {NULL};
    *out_ref = (MotExternalRef){0};
    for (size_t i = 0; i < tensor->n_external_data; i++)
        MOT_TRY(read_entry(ctx, external, tensor->external_data[i], loc, values));
    if (!values[KEY_LOCATION])
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "external_data has no location");
    const char *fault = find_fault(values[KEY_LOCATION]);
    if (fault)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "external_data location %s %s",
                        mot_quote(&ctx->arena, values[KEY_LOCATION]), fault);
    out_ref->location = values[KEY_LOCATION];
    out_ref->checksum = values[KEY_CHECKSUM];
    out_ref->has_length = values[KEY_LENGTH] != NULL;
    uint64_t *const sizes[] = {&out_ref->offset, &out_ref->length};
    for (int i = 0; i < 2; i++) {
        const char *text = values[KEY_OFFSET + i];
        if (text && !parse_size(text, sizes[i]))
            return mot_fail(ctx, MOT_ERR_MODEL, loc,
                            "external_data %s %s is not a decimal below 2^63", keys[KEY_OFFSET + i],
                            mot_quote(&ctx->arena, text));
    }
    return MOT_OK;
}

/* ---- The file ---- */

static MotStatus fail_open(MotCtx *ctx, const MotExternal *external, const char *location,
                           MotLoc loc, const MotResolved *resolved)
{
    MotStatus status = mot_fail(ctx, MOT_ERR_MODEL, loc, "external data %s cannot be used: %s",
                                mot_quote(&ctx->arena, location), resolved->problem);
    mot_note(ctx, "got as far as %s", mot_quote(&ctx->arena, resolved->path));
    for (size_t i = 0; i < external->roots.n; i++)
        mot_note(ctx, "looked in %s", mot_quote(&ctx->arena, external->roots.paths[i]));
    mot_hint(ctx, "--external-data-root DIR admits files beneath another folder");
    return status;
}

typedef struct MapCall {
    int fd;
    MotLoc loc;
    const MotFileMap *map;
} MapCall;

static MotStatus map_body(MotCtx *ctx, void *arg)
{
    MapCall *call = arg;
    return mot_file_map_fd(ctx, call->fd, call->loc, &call->map);
}

static MotStatus open_location(MotCtx *ctx, const MotExternal *external, const char *location,
                               MotLoc loc, MotExternalFile *out_file)
{
    MotResolved resolved = {.fd = -1, .is_missing = true};
    if (external->roots.n == 0) {
        (void)mot_fail(ctx, MOT_ERR_MODEL, loc,
                       "external data %s: a model that is not read from a file has no folder",
                       mot_quote(&ctx->arena, location));
        mot_hint(ctx, "--external-data-root DIR says where it lies");
        return MOT_ERR_MODEL;
    }
    for (size_t i = 0; i < external->roots.n && resolved.fd < 0 && resolved.is_missing; i++)
        mot_resolve(&external->roots, i, location, external->is_strict, &resolved);
    if (resolved.fd < 0)
        return fail_open(ctx, external, location, loc, &resolved);
    MapCall call = {resolved.fd, loc, NULL};
    MotStatus status = mot_ctx_run(ctx, map_body, &call);
    close(resolved.fd);
    *out_file =
        (MotExternalFile){.map = call.map, .path = mot_arena_strdup(&ctx->arena, resolved.path)};
    return status;
}

static MotStatus find_file(MotCtx *ctx, MotExternal *external, const char *location, MotLoc loc,
                           MotExternalFile **out_file)
{
    uint64_t index = external->files.n;
    if (!mot_map_get_str(&external->opened, location, &index)) {
        MotExternalFile file;
        MOT_TRY(open_location(ctx, external, location, loc, &file));
        mot_map_put_str(&external->opened, location, index);
        mot_vec_push(&ctx->arena, &external->files, file);
    }
    *out_file = &external->files.data[index];
    return MOT_OK;
}

static MotStatus verify_checksum(MotCtx *ctx, MotExternalFile *file, const MotExternalRef *ref,
                                 MotLoc loc)
{
    if (!ref->checksum)
        return MOT_OK;
    if (!file->checksum) {
        char *hex = mot_arena_alloc(&ctx->arena, MOT_SHA1_HEX + 1);
        mot_sha1_hex(file->map->data, file->map->n, hex);
        file->checksum = hex;
    }
    if (strcasecmp(file->checksum, ref->checksum) == 0)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_MODEL, loc, "external data %s has checksum %s, the model says %s",
                    mot_quote(&ctx->arena, ref->location), file->checksum,
                    mot_quote(&ctx->arena, ref->checksum));
}

MotStatus mot_external_read(MotCtx *ctx, MotExternal *external, const MotExternalRef *ref,
                            uint64_t bytes, MotLoc loc, const uint8_t **out_data)
{
    const char *name = mot_quote(&ctx->arena, ref->location);
    if (ref->has_length && ref->length != bytes)
        return mot_fail(ctx, MOT_ERR_MODEL, loc,
                        "external data %s: length %llu, the dims need %llu bytes", name,
                        (unsigned long long)ref->length, (unsigned long long)bytes);
    MotExternalFile *file;
    MOT_TRY(find_file(ctx, external, ref->location, loc, &file));
    uint64_t size = file->map->n;
    if (bytes > size || ref->offset > size - bytes)
        return mot_fail(
            ctx, MOT_ERR_MODEL, loc,
            "external data %s: %llu bytes from offset %llu exceed the file's %llu bytes", name,
            (unsigned long long)bytes, (unsigned long long)ref->offset, (unsigned long long)size);
    MOT_TRY(verify_checksum(ctx, file, ref, loc));
    *out_data = size ? file->map->data + ref->offset : NULL;
    return MOT_OK;
}
