/* Saving and loading of checkpoints. */
#include "runtime/checkpoint.h"

#include "ir/layout.h"
#include "runtime/safetensors.h"
#include "support/file.h"
#include "support/json.h"
#include "support/writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const file_names[] = {"model.safetensors", "optimizer.safetensors"};
enum { N_FILES = 2, KEPT = 2 };

static const char *join(MotCtx *ctx, const char *dir, const char *name)
{
    return mot_arena_printf(&ctx->arena, "%s/%s", dir, name);
}

/* 0: a parameter of the model, 1: optimizer state. */
static int file_of(const MotBuf *buf)
{
    return mot_attrs(buf->source, param)->state_of != NULL;
}

/* ---- Saving ---- */

static MotStatus gather_tensors(MotCtx *ctx, MotSession *session, int file, MotNamedTensor *out,
                                uint32_t *out_n)
{
    const MotProgram *p = mot_session_program(session);
    *out_n = 0;
    for (uint32_t i = 0; i < p->bufs.n; i++) {
        const MotBuf *buf = &p->bufs.data[i];
        if (buf->kind != MOT_BUF_PARAM || file_of(buf) != file)
            continue;
        MotTensor value, *to = &out[*out_n].tensor;
        MOT_TRY(mot_session_read(session, buf->name, &value));
        to->type = mot_param_file_type(&value.type, buf->source);
        to->data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&to->type));
        mot_param_to_file(&value.type, buf->source, value.data, to->data);
        MotTensor tied = mot_param_tied(&ctx->arena, buf->source, to);
        out[(*out_n)++].name = buf->name;
        if (tied.data)
            out[(*out_n)++] = (MotNamedTensor){mot_attrs(buf->source, param)->tied, tied};
    }
    return MOT_OK;
}

static MotStatus hash_file(MotCtx *ctx, const char *path, uint64_t *out_hash)
{
    const MotFileMap *map;
    MOT_TRY(mot_file_map(ctx, path, &map));
    *out_hash = mot_hash(map->data, map->n);
    return MOT_OK;
}

static void add_string(MotText *text, const char *key, const char *value)
{
    mot_text_printf(text, ",\n \"%s\": ", key);
    mot_json_quote(text, value ? value : "");
}

static const char *write_manifest(MotCtx *ctx, const MotProgram *p, const MotCheckpointInfo *info,
                                  const uint64_t *hash)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_text_printf(&text, "{\"motley\": 1,\n \"step\": %lld,\n \"seed\": %llu",
                    (long long)info->step, (unsigned long long)info->seed);
    add_string(&text, "model", info->model);
    add_string(&text, "loss", info->loss);
    add_string(&text, "optimizer", info->optimizer);
    add_string(&text, "data", info->data);
    mot_text_puts(&text, ",\n \"shares\": [");
    for (uint32_t i = 0; i < p->mesh.axis[0].n; i++)
        mot_text_printf(&text, "%s%lld", i ? ", " : "", (long long)p->mesh.axis[0].share[i]);
    mot_text_puts(&text, "],\n \"vocabulary\": [");
    for (uint32_t i = 0; i < info->n_vocabulary; i++)
        mot_text_printf(&text, "%s%u", i ? ", " : "", info->vocabulary[i]);
    mot_text_puts(&text, "],\n \"files\": {");
    for (int f = 0; f < N_FILES; f++)
        mot_text_printf(&text, "%s\"%s\": \"%016llx\"", f ? ", " : "", file_names[f],
                        (unsigned long long)hash[f]);
    mot_text_puts(&text, "}}\n");
    return mot_text_get(&text);
}

static int compare_names(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t n = strlen(x), m = strlen(y); /* beyond a million steps the numbers get longer */
    return n != m ? (n < m) - (n > m) : strcmp(y, x);
}

/* Deferred before the folder is opened, so that running out of memory leaks nothing. */
static void close_folder(void *folder)
{
    DIR **d = folder;
    if (*d)
        closedir(*d);
    *d = NULL;
}

/* The checkpoints of a folder, newest first. */
static MotStatus list_checkpoints(MotCtx *ctx, const char *dir, const char ***out_names,
                                  uint32_t *out_n)
{
    MotVec(const char *) names = {0};
    DIR **d = mot_arena_new(&ctx->arena, DIR *);
    mot_ctx_defer(ctx, close_folder, d);
    *d = opendir(dir);
    if (!*d)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){dir, NULL}, "can't be read: %s", strerror(errno));
    for (const struct dirent *e; (e = readdir(*d));)
        if (strncmp(e->d_name, "step-", 5) == 0 && !strchr(e->d_name, '.'))
            mot_vec_push(&ctx->arena, &names, mot_arena_strdup(&ctx->arena, e->d_name));
    close_folder(d);
    if (names.n)
        qsort(names.data, names.n, sizeof *names.data, compare_names);
    *out_names = names.data;
    *out_n = names.n;
    return MOT_OK;
}

static void remove_checkpoint(MotCtx *ctx, const char *path)
{
    unlink(join(ctx, path, "manifest.json")); /* first: what is left is no checkpoint */
    for (int f = 0; f < N_FILES; f++)
        unlink(join(ctx, path, file_names[f]));
    rmdir(path);
}

MotStatus mot_checkpoint_save(MotCtx *ctx, MotSession *session, const char *dir,
                              const MotCheckpointInfo *info)
{
    const MotProgram *p = mot_session_program(session);
    const char *name = mot_arena_printf(&ctx->arena, "step-%06lld", (long long)info->step),
               *path = join(ctx, dir, name);
    MotNamedTensor *tensors = mot_arena_array(&ctx->arena, MotNamedTensor, 2 * p->bufs.n);
    uint64_t hash[N_FILES];
    MOT_TRY(mot_file_make_dir(ctx, dir));
    MOT_TRY(mot_file_make_dir(ctx, path));
    for (int f = 0; f < N_FILES; f++) {
        uint32_t n;
        MOT_TRY(gather_tensors(ctx, session, f, tensors, &n));
        MOT_TRY(mot_safetensors_write(ctx, join(ctx, path, file_names[f]), tensors, n));
        MOT_TRY(hash_file(ctx, join(ctx, path, file_names[f]), &hash[f]));
    }
    const char *manifest = write_manifest(ctx, p, info, hash);
    MOT_TRY(mot_file_write(ctx, join(ctx, path, "manifest.json"), manifest, strlen(manifest)));
    MOT_TRY(mot_file_write(ctx, join(ctx, dir, "latest"), name, strlen(name)));
    const char **names;
    uint32_t n;
    MOT_TRY(list_checkpoints(ctx, dir, &names, &n));
    for (uint32_t i = KEPT; i < n; i++)
        remove_checkpoint(ctx, join(ctx, dir, names[i]));
    return MOT_OK;
}

/* ---- Loading ---- */

static MotStatus read_manifest(MotCtx *ctx, const char *path, const MotJson **out_root,
                               MotCheckpointInfo *out_info)
{
    const char *file = join(ctx, path, "manifest.json");
    const MotFileMap *map;
    MotStatus status = mot_file_map(ctx, file, &map);
    if (status == MOT_ERR_MEMORY)
        return status;
    if (status != MOT_OK) {
        mot_error_clear(ctx);
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                        "has no manifest.json: it was not finished");
    }
    MOT_TRY(mot_json_parse(ctx, MOT_ERR_DATA, file, (const char *)map->data, map->n, out_root));
    const MotJson *root = *out_root, *vocabulary = mot_json_get(root, "vocabulary");
    if (mot_json_int(mot_json_get(root, "motley"), 0) != 1)
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL}, "is of another version of Motley");
    int64_t step = mot_json_int(mot_json_get(root, "step"), -1),
            seed = mot_json_int(mot_json_get(root, "seed"), -1);
    if (step < 0 || step > INT32_MAX || seed < 0)
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL}, "has no sound step and seed");
    uint32_t n = (uint32_t)mot_json_length(vocabulary),
             *codes = mot_arena_array(&ctx->arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        int64_t code = mot_json_int(mot_json_at(vocabulary, i), -1);
        if (code < 0 || code > 0x10ffff || (i && code <= codes[i - 1]))
            return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL},
                            "the vocabulary is no ascending list of characters (entry %u)", i);
        codes[i] = (uint32_t)code;
    }
    *out_info =
        (MotCheckpointInfo){.step = step,
                            .seed = (uint64_t)seed,
                            .model = mot_json_string(mot_json_get(root, "model"), ""),
                            .loss = mot_json_string(mot_json_get(root, "loss"), ""),
                            .optimizer = mot_json_string(mot_json_get(root, "optimizer"), ""),
                            .data = mot_json_string(mot_json_get(root, "data"), ""),
                            .vocabulary = codes,
                            .n_vocabulary = n};
    return MOT_OK;
}

MotStatus mot_checkpoint_verify(MotCtx *ctx, const char *path, MotCheckpointInfo *out_info)
{
    const MotJson *root;
    MOT_TRY(read_manifest(ctx, path, &root, out_info));
    for (int f = 0; f < N_FILES; f++) {
        const char *want =
            mot_json_string(mot_json_get(mot_json_get(root, "files"), file_names[f]), "");
        const char *file = join(ctx, path, file_names[f]);
        uint64_t hash;
        MOT_TRY(hash_file(ctx, file, &hash));
        char have[17];
        snprintf(have, sizeof have, "%016llx", (unsigned long long)hash);
        if (strcmp(have, want) != 0)
            return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL},
                            "was changed or cut off: its hash is %s, the manifest says %s", have,
                            mot_quote(&ctx->arena, want));
    }
    return MOT_OK;
}

bool mot_checkpoint_is_in(MotCtx *ctx, const char *dir)
{
    return access(join(ctx, dir, "latest"), F_OK) == 0;
}

MotStatus mot_checkpoint_find(MotCtx *ctx, const char *dir, const char **out_path,
                              MotCheckpointInfo *out_info)
{
    const char **names;
    uint32_t n;
    *out_path = dir;
    if (access(join(ctx, dir, "manifest.json"), F_OK) == 0)
        return mot_checkpoint_verify(ctx, dir, out_info);
    MOT_TRY(list_checkpoints(ctx, dir, &names, &n));
    for (uint32_t i = 0; i < n; i++) {
        *out_path = join(ctx, dir, names[i]);
        MotStatus status = mot_checkpoint_verify(ctx, *out_path, out_info);
        if (status == MOT_OK || status == MOT_ERR_MEMORY)
            return status;
        mot_warn(ctx, MOT_NOWHERE, "%s; trying the one before it", mot_text_get(&ctx->error));
        mot_error_clear(ctx);
    }
    return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){dir, NULL}, "holds no sound checkpoint");
}

static MotStatus load_tensor(MotCtx *ctx, MotSession *session, const MotBuf *buf,
                             const MotNamedTensor *tensors, uint32_t n, const char *file)
{
    MotType want = mot_param_file_type(&buf->global, buf->source);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(tensors[i].name, buf->name) != 0)
            continue;
        if (!mot_type_equal(&want, &tensors[i].tensor.type))
            return mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){file, NULL},
                            "tensor %s has another type than the model's",
                            mot_quote(&ctx->arena, buf->name));
        return mot_session_write_param(session, buf->name, tensors[i].tensor.data);
    }
    return mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){file, NULL}, "lacks tensor %s",
                    mot_quote(&ctx->arena, buf->name));
}

MotStatus mot_checkpoint_load(MotCtx *ctx, MotSession *session, const char *path)
{
    const MotProgram *p = mot_session_program(session);
    for (int f = 0; f < N_FILES; f++) {
        const char *file = join(ctx, path, file_names[f]);
        MotNamedTensor *tensors;
        uint32_t n;
        MOT_TRY(mot_safetensors_read(ctx, file, &tensors, &n));
        for (uint32_t i = 0; i < p->bufs.n; i++)
            if (p->bufs.data[i].kind == MOT_BUF_PARAM && file_of(&p->bufs.data[i]) == f)
                MOT_TRY(load_tensor(ctx, session, &p->bufs.data[i], tensors, n, file));
    }
    return MOT_OK;
}
