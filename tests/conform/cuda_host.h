/*
 * A device backend that runs the CUDA text of kernels on the CPU (cuda_shim.cpp says how). Texts
 * are collected, compiled as one library, and loaded; a kernel is launched with a few blocks, in
 * another order every time.
 *
 * Needs g++ when the tests run: which accesses the calls are for that -fsanitize=thread makes is
 * another matter in clang.
 */
#ifndef MOTLEY_TESTS_CONFORM_CUDA_HOST_H
#define MOTLEY_TESTS_CONFORM_CUDA_HOST_H

#include "codegen/kernel.h"
#include "runtime/device.h"
#include "tests/conform/cuda_text.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in cuda_shim.cpp. */
typedef void MotShimKernel(void *const *table, const long long *sizes, long long *bad_index);
typedef struct MotShimBuffer {
    const void *data;
    size_t bytes;
} MotShimBuffer;
typedef struct MotShimLaunch {
    MotShimKernel *kernel;
    void *const *table;
    const long long *sizes;
    long long *bad_index;
    const MotShimBuffer *buffers;
    unsigned n_buffers, n_common;
    unsigned n_blocks, n_sets;
    unsigned long long seed;
    int skipped_barrier;
    bool *is_met;
} MotShimLaunch;

typedef struct CudaHost {
    MotCtx *ctx;
    MotText text;
    MotMap texts, kernels;      /* without its name, and name: to the index in `names` */
    MotVec(const char *) names; /* of the functions */
    void *library;
    const char *(*launch)(const MotShimLaunch *);
    unsigned long long seed;
    int skipped_barrier; /* for tests of the tests: the line of one that is left out */
    int n_lines;         /* of the text */
    bool *is_met;        /* [n_lines + 1]: barriers, since it was cleared */
    const int *barriers; /* [n_barriers]: the lines of those that were compiled */
    size_t n_barriers;
} CudaHost;

static CudaHost cuda_host;

/* ---- Building ---- */

static void cuda_host_init(MotCtx *ctx)
{
    cuda_host = (CudaHost){.ctx = ctx, .seed = 1};
    mot_map_init(&cuda_host.texts, &ctx->arena);
    mot_map_init(&cuda_host.kernels, &ctx->arena);
    mot_text_init(&cuda_host.text, &ctx->arena);
    mot_text_puts(&cuda_host.text, "#include \"tests/conform/cuda_shim.h\"\n");
}

/* Adds a kernel, unless it is there under this or another name. */
static MotStatus cuda_host_add(const MotGraph *graph)
{
    MotCtx *ctx = cuda_host.ctx;
    CudaText text;
    uint64_t known = cuda_host.names.n;
    if (mot_map_get_str(&cuda_host.kernels, mot_cuda_name(ctx, graph), &known))
        return MOT_OK;
    MOT_TRY(make_cuda_text(ctx, graph, &text));
    if (!mot_map_get(&cuda_host.texts, text.nameless.data, text.nameless.n, &known)) {
        mot_map_put(&cuda_host.texts, text.nameless.data, text.nameless.n, known);
        mot_vec_push(&ctx->arena, &cuda_host.names, text.name);
        mot_text_puts(&cuda_host.text, text.text);
    }
    mot_map_put_str(&cuda_host.kernels, text.name, known);
    return MOT_OK;
}

/* Lines of the text so far. */
static inline int cuda_host_lines(void)
{
    int n = 0;
    for (size_t i = 0; i < cuda_host.text.n; i++)
        n += cuda_host.text.data[i] == '\n';
    return n;
}

static MotStatus run_compiler(MotCtx *ctx, const char *folder)
{
    static const char *const commands[] = {"g++ -std=c++17 -O1 -w -fPIC -ffp-contract=off "
                                           "-fsanitize=thread -I. -c %s/text.cpp -o %s/text.o",
                                           "g++ -std=c++17 -O2 -w -fPIC -Wl,-Bsymbolic -I. -shared "
                                           "tests/conform/cuda_shim.cpp %s/text.o -o %s/text.so"};
    if (system("g++ --version > /dev/null 2>&1") != 0)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "there is no g++");
    for (int i = 0; i < 2; i++) {
        char *command = NULL;
        if (asprintf(&command, commands[i], folder, folder) < 0 || system(command) != 0)
            mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "failed: %s", command);
        free(command);
    }
    return ctx->status;
}

static MotStatus load_library(MotCtx *ctx, const char *path)
{
    cuda_host.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!cuda_host.library)
        return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "%s", dlerror());
    *(void **)&cuda_host.launch = dlsym(cuda_host.library, "mot_shim_launch");
    size_t (*list_barriers)(const int **) = NULL;
    *(void **)&list_barriers = dlsym(cuda_host.library, "mot_shim_barriers");
    cuda_host.n_barriers = list_barriers(&cuda_host.barriers);
    cuda_host.n_lines = cuda_host_lines();
    cuda_host.is_met = mot_arena_array(&ctx->arena, bool, cuda_host.n_lines + 1);
    return MOT_OK;
}

/* Compiles and loads what was added. MOT_ERR_UNSUPPORTED: there is no compiler. */
static MotStatus cuda_host_build(void)
{
    MotCtx *ctx = cuda_host.ctx;
    const char *tmp = getenv("TMPDIR");
    char *folder = mot_arena_printf(&ctx->arena, "%s/motley-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "no folder %s", folder);
    const char *files[] = {mot_arena_printf(&ctx->arena, "%s/text.cpp", folder),
                           mot_arena_printf(&ctx->arena, "%s/text.o", folder),
                           mot_arena_printf(&ctx->arena, "%s/text.so", folder)};
    FILE *file = fopen(files[0], "w");
    MotStatus status = MOT_OK;
    if (!file || fputs(mot_text_get(&cuda_host.text), file) < 0 || fclose(file) != 0)
        status = mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "can't write %s", files[0]);
    if (status == MOT_OK)
        status = run_compiler(ctx, folder);
    if (status == MOT_OK)
        status = load_library(ctx, files[2]);
    for (int i = 0; i < 3; i++)
        unlink(files[i]);
    rmdir(folder);
    return status;
}

/* ---- The backend ---- */

typedef struct CudaHostLaunch {
    const char *name; /* of the kernel */
    uint32_t n_nests, n_bufs, n_sets;
    MotShimKernel *nest[MOT_MAX_NESTS];
    MotShimBuffer sizes;
    MotShimBuffer *buffers; /* [n_sets][n_bufs], the table, the sizes */
} CudaHostLaunch;

static MotStatus open_cuda_host(MotCtx *ctx, uint32_t threads, bool may_spin, void **out_self)
{
    (void)threads, (void)may_spin;
    *out_self = ctx;
    return MOT_OK;
}

static void size_buffers(MotShimBuffer *buffers, const MotGraph *bound)
{
    for (int is_result = 0; is_result < 2; is_result++)
        for (uint32_t i = 0; i < bound->body.n; i++) {
            const MotOp *op = mot_graph_op(bound, bound->body.data[i]);
            if (op->kind != (is_result ? MOT_OP_OUTPUT : MOT_OP_INPUT))
                continue;
            MotValue v = is_result ? op->in[0] : op->out[0];
            (buffers++)->bytes = (size_t)mot_type_bytes(mot_graph_type(bound, v));
        }
}

static MotStatus prepare_cuda_host(void *self, MotCtx *ctx, const MotProgram *program,
                                   const MotInstr *ins, const MotBinding *binding,
                                   void **out_launch)
{
    (void)self;
    MotKernelIr ir;
    const MotGraph *graph = program->kernels.data[ins->kernel].graph;
    MOT_TRY(mot_kernel_build(ctx, graph, &ir));
    const int64_t *sizes = mot_launch_sizes(ctx, program, ins, binding);
    uint32_t n_sets = mot_launch_sets(ins), n_sizes = ins->n_sets ? n_sets : graph->symbols.n;
    CudaHostLaunch *l = mot_arena_new(&ctx->arena, CudaHostLaunch);
    *l = (CudaHostLaunch){.name = mot_cuda_name(ctx, graph),
                          .n_nests = ir.n_nests,
                          .n_bufs = ir.n_bufs,
                          .n_sets = n_sets,
                          .sizes = {sizes, n_sizes * sizeof *sizes}};
    uint64_t index;
    if (!mot_map_get_str(&cuda_host.kernels, l->name, &index))
        return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "kernel %s was not added", l->name);
    for (uint32_t i = 0; i < ir.n_nests; i++)
        *(void **)&l->nest[i] =
            dlsym(cuda_host.library,
                  mot_arena_printf(&ctx->arena, "%s_%u", cuda_host.names.data[index], i));
    l->buffers = mot_arena_array(&ctx->arena, MotShimBuffer, n_sets * ir.n_bufs + 2);
    for (uint32_t set = 0; set < n_sets; set++)
        size_buffers(l->buffers + (size_t)set * ir.n_bufs,
                     mot_program_bind_kernel(ctx, program, ins->kernel, sizes + set));
    *out_launch = l;
    return MOT_OK;
}

static MotStatus launch_cuda_host(void *self, void *launch, void *const *bufs)
{
    static const unsigned n_blocks[] = {3, 1, 7};
    const long long no_index = INT64_MIN; /* what no caller puts into an index */
    CudaHostLaunch *l = launch;
    long long bad_index = no_index;
    uint32_t n = l->n_sets * l->n_bufs;
    for (uint32_t i = 0; i < n; i++)
        l->buffers[i].data = bufs[i];
    l->buffers[n] = (MotShimBuffer){bufs, n * sizeof *bufs};
    l->buffers[n + 1] = l->sizes;
    for (uint32_t i = 0; i < l->n_nests; i++) {
        MotShimLaunch what = {.kernel = l->nest[i],
                              .table = bufs,
                              .sizes = l->sizes.data,
                              .bad_index = &bad_index,
                              .buffers = l->buffers,
                              .n_buffers = l->n_bufs,
                              .n_common = 2,
                              .n_blocks = n_blocks[cuda_host.seed % 3],
                              .n_sets = l->n_sets,
                              .seed = cuda_host.seed,
                              .skipped_barrier = cuda_host.skipped_barrier,
                              .is_met = cuda_host.is_met};
        cuda_host.seed++;
        const char *error = cuda_host.launch(&what);
        if (error)
            return mot_fail(self, MOT_ERR_INTERNAL, MOT_NOWHERE, "kernel %s_%u, seed %llu: %s",
                            l->name, i, what.seed, error);
    }
    return bad_index == no_index
               ? MOT_OK
               : mot_fail(self, MOT_ERR_DATA, MOT_NOWHERE,
                          "kernel %s: index %lld is outside of its table", l->name, bad_index);
}

static const MotDeviceApi cuda_host_device = {.name = "cuda text on the host",
                                              .open = open_cuda_host,
                                              .prepare = prepare_cuda_host,
                                              .launch = launch_cuda_host};

#endif
