/*
 * The kernels of a Program: each from the cache, else by LLVM, on a few threads with a context
 * each.
 *
 * The cache is a folder of images named by the hash of the kernel's text, the instruction set and
 * this code generator. Files are written under another name and renamed; one that is damaged, or
 * was compiled from something else, is compiled and written again.
 */
#include "codegen/codegen.h"

#include "support/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MOT_CODEGEN_SOURCES
#define MOT_CODEGEN_SOURCES "1" /* a hash of codegen's sources, from CMake */
#endif

enum { DEFAULT_THREADS = 2, MAX_THREADS = 64 };

typedef struct {
    struct Work *work;
    MotCtx ctx; /* memory and error of this thread */
    pthread_t thread;
    bool is_started;
} Worker;

typedef struct Work {
    MotProgram *program;
    const MotCodegenOpts *opts;
    const char *folder; /* of the cache, or NULL */
    Worker *workers;
    uint32_t n_workers;
    atomic_uint next; /* kernel to be taken */
    atomic_bool has_failed;
} Work;

/* ---- Cache ---- */

/* Makes the folder and those above it. */
static bool make_folder(char *path)
{
    for (char *slash = path + 1; *slash; slash++)
        if (*slash == '/') {
            *slash = 0;
            bool is_there = mkdir(path, 0777) == 0 || errno == EEXIST;
            *slash = '/';
            if (!is_there)
                return false;
        }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static const char *find_folder(MotCtx *ctx, const char *wish)
{
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    char *path = NULL;
    if (wish)
        path = *wish ? mot_arena_strdup(&ctx->arena, wish) : NULL;
    else if (cache && *cache == '/') /* a relative one is to be ignored: XDG Base Directory */
        path = mot_arena_printf(&ctx->arena, "%s/motley", cache);
    else if (home && *home)
        path = mot_arena_printf(&ctx->arena, "%s/.cache/motley", home);
    return path && make_folder(path) ? path : NULL;
}

static const char *name_file(MotCtx *ctx, const Work *w, uint64_t key)
{
    return mot_arena_printf(&ctx->arena, "%s/%s-%016llx.img", w->folder,
                            mot_isa_names[w->opts->isa], (unsigned long long)key);
}

static bool read_cached(MotCtx *ctx, const Work *w, uint64_t key, MotImageBytes *out)
{
    const MotFileMap *map;
    if (!w->folder)
        return false;
    if (mot_file_map(ctx, name_file(ctx, w, key), &map) != MOT_OK) {
        mot_error_clear(ctx);
        return false;
    }
    const MotImageHeader *header = (const void *)map->data;
    if (!mot_image_is_valid(map->data, map->n) || header->key != key || header->isa != w->opts->isa)
        return false;
    *out = (MotImageBytes){mot_arena_copy(&ctx->arena, map->data, map->n), map->n};
    return true;
}

static void write_cached(MotCtx *ctx, const Work *w, uint64_t key, const MotImageBytes *image)
{
    if (!w->folder)
        return;
    const char *name = name_file(ctx, w, key);
    char *draft = mot_arena_printf(&ctx->arena, "%s/draft-XXXXXX", w->folder);
    int fd = mot_fault(ctx->faults, MOT_FAULT_write) ? -1 : mkstemp(draft);
    if (fd < 0)
        return;
    bool is_ok = write(fd, image->data, image->n) == (ssize_t)image->n;
    is_ok = close(fd) == 0 && is_ok;
    if (!is_ok || rename(draft, name) != 0)
        unlink(draft);
}

/* ---- Compiling ---- */

static uint64_t make_key(MotCtx *ctx, const MotGraph *graph, MotIsa isa)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_text_printf(&text, "%s %s %d\n", MOT_CODEGEN_SOURCES, mot_isa_names[isa],
                    MOT_IMAGE_VERSION);
    mot_graph_print(graph, &text);
    return mot_hash(text.data, text.n);
}

static MotStatus make_image(MotCtx *ctx, const Work *w, const MotKernel *kernel, MotImageBytes *out)
{
    /*
     * Printing and building allocate from the graph's own context, which is another thread's: work
     * on a copy.
     */
    const MotGraph *graph = mot_graph_clone(ctx, kernel->graph);
    uint64_t key = make_key(ctx, graph, w->opts->isa);
    if (read_cached(ctx, w, key, out))
        return MOT_OK;
    MOT_TRY(mot_codegen_kernel(ctx, graph, w->opts->isa, key, out));
    write_cached(ctx, w, key, out);
    return MOT_OK;
}

static MotStatus compile_kernels(MotCtx *ctx, void *arg)
{
    Work *w = arg;
    for (uint32_t i; (i = atomic_fetch_add(&w->next, 1)) < w->program->kernels.n &&
                     !atomic_load(&w->has_failed);) {
        MotImageBytes image;
        MotKernel *kernel = &w->program->kernels.data[i];
        MOT_TRY(make_image(ctx, w, kernel, &image));
        kernel->image = image.data;
        kernel->image_bytes = image.n;
    }
    return MOT_OK;
}

static void *run_worker(void *arg)
{
    Worker *worker = arg;
    if (mot_ctx_run(&worker->ctx, compile_kernels, worker->work) != MOT_OK)
        atomic_store(&worker->work->has_failed, true);
    return NULL;
}

/* Images move from the workers' arenas to the caller's; so does the first error. */
static MotStatus collect(MotCtx *ctx, void *arg)
{
    const Work *w = arg;
    for (uint32_t i = 0; i < w->n_workers; i++)
        if (w->workers[i].ctx.status != MOT_OK)
            mot_fail(ctx, w->workers[i].ctx.status, MOT_NOWHERE, "%s",
                     mot_text_get(&w->workers[i].ctx.error));
    for (uint32_t i = 0; i < w->program->kernels.n && ctx->status == MOT_OK; i++) {
        MotKernel *kernel = &w->program->kernels.data[i];
        kernel->image = mot_arena_copy(&ctx->arena, kernel->image, kernel->image_bytes);
    }
    return ctx->status;
}

MotStatus mot_codegen_program(MotCtx *ctx, MotProgram *program, const MotCodegenOpts *opts)
{
    Work work = {.program = program, .opts = opts, .folder = find_folder(ctx, opts->cache_dir)};
    uint32_t n = opts->threads ? opts->threads : DEFAULT_THREADS;
    n = n > MAX_THREADS ? MAX_THREADS : n > program->kernels.n ? program->kernels.n : n;
    Worker *workers = mot_arena_array(&ctx->arena, Worker, n);
    work.workers = workers;
    work.n_workers = n;
    for (uint32_t i = 0; i < n; i++) {
        workers[i].work = &work;
        mot_ctx_init(&workers[i].ctx);
        mot_ctx_inherit(&workers[i].ctx, ctx);
        workers[i].is_started =
            !mot_fault(ctx->faults, MOT_FAULT_start) &&
            pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0;
        if (!workers[i].is_started)
            run_worker(&workers[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (workers[i].is_started)
            pthread_join(workers[i].thread, NULL);
    /* It may run out of memory; the workers have theirs. */
    MotStatus status = mot_ctx_run(ctx, collect, &work);
    for (uint32_t i = 0; i < n; i++)
        mot_ctx_deinit(&workers[i].ctx);
    return status;
}
