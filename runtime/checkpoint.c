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
enum { N_FILES = 2, KEPT = 2, VERSION = 1 };

static const char *join(MotCtx *ctx, const char *dir, const char *name)
{
    return mot_arena_printf(&ctx->arena, "%s/%s", dir, name);
}

static const char *step_name(MotCtx *ctx, int64_t step)
{
    return mot_arena_printf(&ctx->arena, "step-%06lld", (long long)step);
}

/* 0: a parameter of the model, 1: optimizer state. */
static int file_of(const MotBuf *buf)
{
    return mot_attrs(buf->source, param)->state_of != NULL;
}

static const char *device_name(const MotSession *session, const MotMesh *mesh, uint32_t position)
{
    return mot_session_cluster(session)->devices.data[mesh->devices[position]].name;
}

/* ---- Saving ---- */

static MotStatus gather_tensors(MotCtx *ctx, MotSession *session, int file, MotNamedTensor *out,
                                uint32_t *out_n)
{
    const MotPipeline *p = mot_session_pipeline(session);
    *out_n = 0;
    for (uint32_t i = 0; i < p->vars.n; i++) {
        const MotBuf *buf = p->vars.data[i];
        if (buf->kind != MOT_BUF_PARAM || file_of(buf) != file)
            continue;
        MotTensor value;
        MOT_TRY(mot_session_read_param(session, buf, &value));
        out[(*out_n)++] = (MotNamedTensor){buf->name, value};
        MotTensor tied = mot_param_tied(&ctx->arena, buf->source, &value);
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

/* The last line of a manifest: a hash of all before it. */
static const char *make_seal(MotCtx *ctx, const void *text, size_t n)
{
    return mot_arena_printf(&ctx->arena, " \"manifest\": \"%016llx\"}\n",
                            (unsigned long long)mot_hash(text, n));
}

static bool is_sealed(MotCtx *ctx, const MotFileMap *map)
{
    size_t n_seal = strlen(make_seal(ctx, NULL, 0));
    if (map->n < n_seal)
        return false;
    const char *text = (const char *)map->data;
    size_t n = map->n - n_seal;
    return memcmp(text + n, make_seal(ctx, text, n), n_seal) == 0;
}

/* Which devices computed each stage, and the shares of the axes of its mesh. */
static void put_stages(MotJsonWriter *w, const MotSession *session)
{
    const MotPipeline *p = mot_session_pipeline(session);
    mot_json_open(w, "stages", '[');
    for (uint32_t s = 0; s < p->stages.n; s++) {
        const MotMesh *mesh = &p->stages.data[s]->mesh;
        mot_json_open(w, NULL, '{');
        mot_json_open(w, "devices", '[');
        for (uint32_t i = 0; i < mesh->n_devices; i++)
            mot_json_put_string(w, NULL, device_name(session, mesh, i));
        mot_json_close(w, ']');
        mot_json_open(w, "shares", '[');
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            mot_json_put_ints(w, NULL, mesh->axis[a].share, mesh->axis[a].n);
        mot_json_close(w, ']');
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

/* The second initializer that a parameter is trained for as well, or NULL. */
static const char *tied_of(const MotBuf *buf)
{
    bool is_weight = buf->kind == MOT_BUF_PARAM && file_of(buf) == 0;
    return is_weight ? mot_attrs(buf->source, param)->tied : NULL;
}

static void put_ties(MotJsonWriter *w, const MotPipeline *p)
{
    mot_json_open(w, "ties", '[');
    for (uint32_t i = 0; i < p->vars.n; i++) {
        const MotBuf *buf = p->vars.data[i];
        if (!tied_of(buf))
            continue;
        mot_json_open(w, NULL, '[');
        mot_json_put_string(w, NULL, buf->name);
        mot_json_put_string(w, NULL, tied_of(buf));
        mot_json_close(w, ']');
    }
    mot_json_close(w, ']');
}

static const char *write_manifest(MotCtx *ctx, const MotSession *session,
                                  const MotCheckpointInfo *info, const uint64_t *hash)
{
    MotArena *arena = &ctx->arena;
    MotJsonWriter w;
    mot_json_begin(&w, arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_int(&w, "motley", VERSION);
    mot_json_put_int(&w, "step", info->step);
    mot_json_put_int(&w, "seed", (int64_t)info->seed);
    mot_json_put_int(&w, "batch", info->batch);
    mot_json_put_int(&w, "sample", info->sample);
    if (info->cut_spent > 0)
        mot_json_put_number(&w, "cut_spent", info->cut_spent);
    mot_json_put_string(&w, "model", info->model);
    mot_json_put_string(&w, "structure", info->structure);
    mot_json_open(&w, "dims", '{');
    for (uint32_t i = 0; i < info->n_dims; i++)
        mot_json_put_int(&w, info->dims[i].name, info->dims[i].size);
    mot_json_close(&w, '}');
    mot_json_put_string(&w, "loss", info->loss);
    mot_json_put_string(&w, "optimizer", info->optimizer);
    mot_json_put_string(&w, "data", info->data);
    put_ties(&w, mot_session_pipeline(session));
    put_stages(&w, session);
    mot_json_open(&w, "vocabulary", '[');
    for (uint32_t i = 0; i < info->n_vocabulary; i++)
        mot_json_put_int(&w, NULL, info->vocabulary[i]);
    mot_json_close(&w, ']');
    mot_json_open(&w, "files", '{');
    for (int f = 0; f < N_FILES; f++)
        mot_json_put_string(&w, file_names[f],
                            mot_arena_printf(arena, "%016llx", (unsigned long long)hash[f]));
    mot_json_close(&w, '}');
    mot_text_puts(&w.text, ",\n");
    mot_text_puts(&w.text, make_seal(ctx, w.text.data, w.text.n));
    return mot_text_get(&w.text);
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

/* The names in a folder that begin with `prefix`. */
static MotStatus list_folder(MotCtx *ctx, const char *dir, const char *prefix,
                             const char ***out_names, uint32_t *out_n)
{
    MotVec(const char *) names = {0};
    DIR **d = mot_arena_new(&ctx->arena, DIR *);
    mot_ctx_defer(ctx, close_folder, d);
    *d = mot_fault(ctx->faults, MOT_FAULT_open) ? NULL : opendir(dir);
    if (!*d)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){dir, NULL}, "can't be read: %s", strerror(errno));
    for (const struct dirent *e; (e = readdir(*d));)
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            mot_vec_push(&ctx->arena, &names, mot_arena_strdup(&ctx->arena, e->d_name));
    close_folder(d);
    *out_names = names.data;
    *out_n = names.n;
    return MOT_OK;
}

static bool is_step_name(const char *name)
{
    if (strncmp(name, "step-", strlen("step-")) != 0)
        return false;
    const char *digits = name + strlen("step-");
    return *digits && digits[strspn(digits, "0123456789")] == '\0';
}

/* The checkpoints of a folder, newest first. */
static MotStatus list_checkpoints(MotCtx *ctx, const char *dir, const char ***out_names,
                                  uint32_t *out_n)
{
    const char **names;
    uint32_t n, n_steps = 0;
    MOT_TRY(list_folder(ctx, dir, "step-", &names, &n));
    for (uint32_t i = 0; i < n; i++)
        if (is_step_name(names[i]))
            names[n_steps++] = names[i];
    if (n_steps)
        qsort(names, n_steps, sizeof *names, compare_names);
    *out_names = names;
    *out_n = n_steps;
    return MOT_OK;
}

/*
 * Removes what was written into a checkpoint's folder, drafts of a run that was killed included,
 * and the folder.
 */
static void remove_checkpoint(MotCtx *ctx, const char *path)
{
    static const char *const prefixes[] = {"manifest.json", "model.safetensors",
                                           "optimizer.safetensors"};
    const char **names;
    uint32_t n;
    unlink(join(ctx, path, "manifest.json")); /* first: what is left is no checkpoint */
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
        if (list_folder(ctx, path, prefixes[p], &names, &n) != MOT_OK) {
            mot_warn(ctx, MOT_NOWHERE, "%s; it is not removed", mot_text_get(&ctx->error));
            mot_error_clear(ctx);
            return;
        }
        for (uint32_t i = 0; i < n; i++)
            unlink(join(ctx, path, names[i]));
    }
    rmdir(path);
}

/*
 * Leaves `newest` and the finished checkpoint before it. Later ones, which a run that resumes from
 * an earlier step may find, are not counted: they are damaged, or will be written again.
 */
static MotStatus remove_old(MotCtx *ctx, const char *dir, const char *newest)
{
    const char **names;
    uint32_t n, n_kept = 0;
    MOT_TRY(list_checkpoints(ctx, dir, &names, &n));
    for (uint32_t i = 0; i < n; i++) {
        const char *path = join(ctx, dir, names[i]);
        if (compare_names(&names[i], &newest) < 0)
            continue;
        if (n_kept < KEPT && access(join(ctx, path, "manifest.json"), F_OK) == 0)
            n_kept++;
        else
            remove_checkpoint(ctx, path);
    }
    return MOT_OK;
}

MotStatus mot_checkpoint_save(MotCtx *ctx, MotSession *session, const char *dir,
                              const MotCheckpointInfo *info)
{
    const MotPipeline *p = mot_session_pipeline(session);
    const char *name = step_name(ctx, info->step), *path = join(ctx, dir, name);
    MotNamedTensor *tensors = mot_arena_array(&ctx->arena, MotNamedTensor, 2 * p->vars.n);
    uint64_t hash[N_FILES];
    MOT_TRY(mot_session_check_copies(session));
    MOT_TRY(mot_file_make_dir(ctx, dir));
    MOT_TRY(mot_file_make_dir(ctx, path));
    for (int f = 0; f < N_FILES; f++) {
        uint32_t n;
        MOT_TRY(gather_tensors(ctx, session, f, tensors, &n));
        MOT_TRY(mot_safetensors_write(ctx, join(ctx, path, file_names[f]), tensors, n));
        MOT_TRY(hash_file(ctx, join(ctx, path, file_names[f]), &hash[f]));
    }
    const char *manifest = write_manifest(ctx, session, info, hash);
    MOT_TRY(mot_file_write(ctx, join(ctx, path, "manifest.json"), manifest, strlen(manifest)));
    MOT_TRY(mot_file_write(ctx, join(ctx, dir, "latest"), name, strlen(name)));
    return remove_old(ctx, dir, name);
}

/* ---- Loading ---- */

/* A number that may not be negative; -1 if it is none. */
static int64_t read_count(const MotJson *root, const char *key)
{
    return mot_json_int(mot_json_get(root, key), -1);
}

static const char *read_text(const MotJson *root, const char *key)
{
    return mot_json_string(mot_json_get(root, key), "");
}

static MotStatus read_vocabulary(MotCtx *ctx, const char *file, const MotJson *list,
                                 MotCheckpointInfo *info)
{
    uint32_t n = (uint32_t)mot_json_length(list),
             *codes = mot_arena_array(&ctx->arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        int64_t code = mot_json_int(mot_json_at(list, i), -1);
        if (code < 0 || code > 0x10ffff || (i && code <= codes[i - 1]))
            return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL},
                            "the vocabulary is no ascending list of characters (entry %u)", i);
        codes[i] = (uint32_t)code;
    }
    info->vocabulary = codes;
    info->n_vocabulary = n;
    return MOT_OK;
}

typedef struct {
    MotCtx *ctx;
    const char *file;
    MotVec(MotCheckpointDim) dims;
} DimReader;

static MotStatus read_dim(void *self, const char *key, const MotJson *value)
{
    DimReader *r = self;
    MotCheckpointDim dim = {key, mot_json_int(value, -1)};
    if (dim.size < 0)
        return mot_fail(r->ctx, MOT_ERR_DATA, (MotLoc){r->file, NULL}, "dim %s has no sound size",
                        mot_quote(&r->ctx->arena, key));
    mot_vec_push(&r->ctx->arena, &r->dims, dim);
    return MOT_OK;
}

static MotStatus read_dims(MotCtx *ctx, const char *file, const MotJson *object,
                           MotCheckpointInfo *info)
{
    DimReader reader = {.ctx = ctx, .file = file};
    MOT_TRY(mot_json_each(object, read_dim, &reader));
    info->dims = reader.dims.data;
    info->n_dims = reader.dims.n;
    return MOT_OK;
}

static bool is_missing(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

static MotStatus read_manifest(MotCtx *ctx, const char *path, const MotJson **out_root,
                               MotCheckpointInfo *out_info)
{
    const char *file = join(ctx, path, "manifest.json");
    const MotFileMap *map;
    if (is_missing(file))
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                        "has no manifest.json: it was not finished");
    MOT_TRY(mot_file_map(ctx, file, &map));
    if (!is_sealed(ctx, map))
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL}, "was changed or cut off");
    MOT_TRY(mot_json_parse(ctx, MOT_ERR_DATA, file, (const char *)map->data, map->n, out_root));
    const MotJson *root = *out_root;
    if (mot_json_int(mot_json_get(root, "motley"), 0) != VERSION)
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL}, "is of another version of Motley");
    int64_t step = read_count(root, "step"), seed = read_count(root, "seed"),
            batch = read_count(root, "batch"), sample = read_count(root, "sample");
    double spent = mot_json_number(mot_json_get(root, "cut_spent"), 0);
    if (step < 0 || step > INT32_MAX || seed < 0 || batch < 0 || sample < 0 || !(spent >= 0))
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL},
                        "has no sound step, seed, batch, sample and spent budget");
    *out_info = (MotCheckpointInfo){.step = step,
                                    .seed = (uint64_t)seed,
                                    .batch = batch,
                                    .sample = sample,
                                    .cut_spent = spent,
                                    .model = read_text(root, "model"),
                                    .structure = read_text(root, "structure"),
                                    .loss = read_text(root, "loss"),
                                    .optimizer = read_text(root, "optimizer"),
                                    .data = read_text(root, "data"),
                                    .ties = mot_json_get(root, "ties"),
                                    .stages = mot_json_get(root, "stages")};
    MOT_TRY(read_vocabulary(ctx, file, mot_json_get(root, "vocabulary"), out_info));
    return read_dims(ctx, file, mot_json_get(root, "dims"), out_info);
}

/*
 * Names order the checkpoints of a folder: under another step's one would be taken for newer or
 * older than it is.
 */
static MotStatus check_name(MotCtx *ctx, const char *path, int64_t step)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    const char *name = mot_arena_strndup(&ctx->arena, path, n), *slash = strrchr(name, '/'),
               *want = step_name(ctx, step);
    name = slash ? slash + 1 : name;
    if (!is_step_name(name) || strcmp(name, want) == 0)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                    "was renamed: by its manifest it is %s", want);
}

MotStatus mot_checkpoint_verify(MotCtx *ctx, const char *path, MotCheckpointInfo *out_info)
{
    const MotJson *root;
    MOT_TRY(read_manifest(ctx, path, &root, out_info));
    MOT_TRY(check_name(ctx, path, out_info->step));
    for (int f = 0; f < N_FILES; f++) {
        const char *want =
            mot_json_string(mot_json_get(mot_json_get(root, "files"), file_names[f]), "");
        const char *file = join(ctx, path, file_names[f]);
        uint64_t hash;
        if (is_missing(file))
            return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){file, NULL}, "is missing");
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

bool mot_checkpoint_is_finished(MotCtx *ctx, const char *path)
{
    return !is_missing(join(ctx, path, "manifest.json"));
}

MotStatus mot_checkpoint_list(MotCtx *ctx, const char *dir, const char ***out_paths,
                              uint32_t *out_n)
{
    if (mot_checkpoint_is_finished(ctx, dir)) {
        *out_paths = mot_arena_copy(&ctx->arena, &dir, sizeof dir);
        *out_n = 1;
        return MOT_OK;
    }
    MOT_TRY(list_checkpoints(ctx, dir, out_paths, out_n));
    for (uint32_t i = 0; i < *out_n; i++)
        (*out_paths)[i] = join(ctx, dir, (*out_paths)[i]);
    return MOT_OK;
}

MotStatus mot_checkpoint_find(MotCtx *ctx, const char *dir, const char **out_path,
                              MotCheckpointInfo *out_info)
{
    const char **paths;
    uint32_t n;
    MOT_TRY(mot_checkpoint_list(ctx, dir, &paths, &n));
    for (uint32_t i = 0; i < n; i++) {
        *out_path = paths[i];
        MotStatus status = mot_checkpoint_verify(ctx, *out_path, out_info);
        if (status != MOT_ERR_DATA || strcmp(*out_path, dir) == 0)
            return status; /* what the system refuses now may be sound */
        mot_warn(ctx, MOT_NOWHERE, "%s; trying the one before it", mot_text_get(&ctx->error));
        mot_error_clear(ctx);
    }
    return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){dir, NULL}, "holds no sound checkpoint");
}

/* Whether only dim 0 of a state differs: the number of replicas that have one each. */
static bool has_other_replicas(const MotBuf *buf, const MotType *want, const MotType *have)
{
    MotType as = *have;
    if (file_of(buf) == 0 || want->rank < 1 || have->rank != want->rank || have->dims[0] < 1 ||
        have->dims[0] == want->dims[0])
        return false;
    as.dims[0] = want->dims[0];
    return mot_type_equal(want, &as);
}

/*
 * Each replica starts with the mean of those there were: so the mean of all, which is what acts on
 * the parameters, stays.
 */
static MotTensor average_replicas(MotCtx *ctx, const MotType *want, const MotTensor *have)
{
    MotTensor to = {*want, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(want))};
    int64_t n = mot_type_elements(want) / (want->dims[0] > 0 ? want->dims[0] : 1);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t r = 0; r < have->type.dims[0]; r++)
            sum += mot_tensor_get(have, r * n + i);
        for (int64_t r = 0; r < want->dims[0]; r++)
            mot_tensor_set(&to, r * n + i, sum / (double)have->type.dims[0]);
    }
    return to;
}

static MotStatus load_tensor(MotCtx *ctx, MotSession *session, const MotBuf *buf,
                             const MotNamedTensor *tensors, uint32_t n, const char *file)
{
    MotType want = mot_param_file_type(&buf->global, buf->source);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(tensors[i].name, buf->name) != 0)
            continue;
        MotTensor tensor = tensors[i].tensor;
        if (has_other_replicas(buf, &want, &tensor.type))
            tensor = average_replicas(ctx, &want, &tensor);
        if (!mot_type_equal(&want, &tensor.type))
            return mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){file, NULL},
                            "tensor %s is %s[%s], the model has %s[%s]",
                            mot_quote(&ctx->arena, buf->name), mot_dtype_name(tensor.type.dtype),
                            mot_shape_text(&ctx->arena, tensor.type.dims, tensor.type.rank),
                            mot_dtype_name(want.dtype),
                            mot_shape_text(&ctx->arena, want.dims, want.rank));
        return mot_session_write_param(session, buf->name, tensor.data);
    }
    return mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){file, NULL}, "lacks tensor %s",
                    mot_quote(&ctx->arena, buf->name));
}

/*
 * A parameter of the checkpoint that the session holds as a constant would silently keep its first
 * values.
 */
static MotStatus check_trained(MotCtx *ctx, const MotPipeline *p, const MotNamedTensor *tensors,
                               uint32_t n, const char *file)
{
    for (uint32_t i = 0; i < n; i++) {
        bool is_known = false;
        for (uint32_t k = 0; k < p->vars.n && !is_known; k++) {
            const MotBuf *buf = p->vars.data[k];
            if (buf->kind != MOT_BUF_PARAM || file_of(buf) != 0)
                continue;
            const char *tied = mot_attrs(buf->source, param)->tied;
            is_known = strcmp(buf->name, tensors[i].name) == 0 ||
                       (tied && strcmp(tied, tensors[i].name) == 0);
        }
        if (is_known)
            continue;
        mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){file, NULL}, "holds %s, which is not trained here",
                 mot_quote(&ctx->arena, tensors[i].name));
        mot_hint(ctx, "give the same --train, --freeze and --tie as in training");
        return ctx->status;
    }
    return MOT_OK;
}

MotStatus mot_checkpoint_load(MotCtx *ctx, MotSession *session, const char *path)
{
    const MotPipeline *p = mot_session_pipeline(session);
    for (int f = 0; f < N_FILES; f++) {
        const char *file = join(ctx, path, file_names[f]);
        MotNamedTensor *tensors;
        uint32_t n;
        MOT_TRY(mot_safetensors_read(ctx, file, &tensors, &n));
        if (f == 0)
            MOT_TRY(check_trained(ctx, p, tensors, n, file));
        for (uint32_t i = 0; i < p->vars.n; i++)
            if (p->vars.data[i]->kind == MOT_BUF_PARAM && file_of(p->vars.data[i]) == f)
                MOT_TRY(load_tensor(ctx, session, p->vars.data[i], tensors, n, file));
    }
    return MOT_OK;
}

static bool has_tie(const MotJson *ties, const char *first, const char *second)
{
    for (size_t i = 0; i < mot_json_length(ties); i++) {
        const MotJson *tie = mot_json_at(ties, i);
        if (strcmp(mot_json_string(mot_json_at(tie, 0), ""), first) == 0 &&
            strcmp(mot_json_string(mot_json_at(tie, 1), ""), second) == 0)
            return true;
    }
    return false;
}

MotStatus mot_checkpoint_check_ties(MotCtx *ctx, const MotSession *session, const char *path,
                                    const MotCheckpointInfo *info)
{
    const MotPipeline *p = mot_session_pipeline(session);
    size_t n = 0, n_known = 0;
    for (uint32_t i = 0; i < p->vars.n; i++) {
        const char *tied = tied_of(p->vars.data[i]);
        n += tied != NULL;
        n_known += tied && has_tie(info->ties, p->vars.data[i]->name, tied);
    }
    if (n_known == n && n == mot_json_length(info->ties))
        return MOT_OK;
    mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){path, NULL}, "was trained with other ties");
    mot_hint(ctx, "give the same --tie as in training");
    return ctx->status;
}

/* ---- Shares ---- */

static bool is_of_mesh(const MotJson *stage, const MotSession *session, const MotMesh *mesh)
{
    const MotJson *devices = mot_json_get(stage, "devices"), *axes = mot_json_get(stage, "shares");
    bool is_same =
        mot_json_length(devices) == mesh->n_devices && mot_json_length(axes) == mesh->n_axes;
    for (uint32_t i = 0; is_same && i < mesh->n_devices; i++)
        is_same = strcmp(mot_json_string(mot_json_at(devices, i), ""),
                         device_name(session, mesh, i)) == 0;
    for (uint32_t a = 0; is_same && a < mesh->n_axes; a++)
        is_same = mot_json_length(mot_json_at(axes, a)) == mesh->axis[a].n;
    return is_same;
}

static bool is_of_session(const MotJson *stages, const MotSession *session)
{
    const MotPipeline *p = mot_session_pipeline(session);
    bool is_same = mot_json_length(stages) == p->stages.n;
    for (uint32_t s = 0; is_same && s < p->stages.n; s++)
        is_same = is_of_mesh(mot_json_at(stages, s), session, &p->stages.data[s]->mesh);
    return is_same;
}

static MotStatus take_axis(MotCtx *ctx, MotSession *session, uint32_t stage, uint32_t axis,
                           const MotJson *list, const char *path)
{
    const MotMeshAxis *now = &mot_session_pipeline(session)->stages.data[stage]->mesh.axis[axis];
    int64_t share[MOT_MAX_RANKS], total = 0, moved;
    bool is_sound = true;
    for (uint32_t i = 0; i < now->n; i++) {
        share[i] = mot_json_int(mot_json_at(list, i), -1);
        is_sound = is_sound && share[i] >= 0 && share[i] <= INT32_MAX;
        total += is_sound ? share[i] : 0;
    }
    if (!is_sound || total == 0)
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){path, NULL}, "has no sound shares");
    if (memcmp(share, now->share, now->n * sizeof *share) == 0)
        return MOT_OK;
    MOT_TRY(mot_session_check_shares(session, &(MotReshare){stage, axis, share}, 1));
    return mot_session_reshare(session, stage, axis, share, &moved);
}

MotStatus mot_checkpoint_take_shares(MotCtx *ctx, MotSession *session, const char *path,
                                     const MotCheckpointInfo *info)
{
    const MotPipeline *p = mot_session_pipeline(session);
    if (!is_of_session(info->stages, session))
        return MOT_OK;
    for (uint32_t s = 0; s < p->stages.n; s++)
        for (uint32_t a = 0; a < p->stages.data[s]->mesh.n_axes; a++) {
            const MotJson *shares = mot_json_get(mot_json_at(info->stages, s), "shares");
            MOT_TRY(take_axis(ctx, session, s, a, mot_json_at(shares, a), path));
        }
    return MOT_OK;
}
