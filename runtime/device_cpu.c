/*
 * The cpu device: maps the images that codegen/ left in the Program and runs their nests on a
 * thread pool. Matrix products are oneDNN's, one thread a call. Images are mapped once; a binding
 * only counts tasks anew. A launch allocates nothing.
 */
#include "ir/sparse.h"
#include "runtime/device.h"
#include "runtime/pool.h"
#include "support/image.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { RANGES_A_THREAD = 4, SCRATCH_ALIGNMENT = 64 };
#define NO_INDEX INT64_MIN /* what no caller puts into an index */

typedef struct {
    const void *bytes; /* what was mapped */
    MotImage image;
} Mapped;

/* What a row of few entries was refused for; one of them is told after the launch. */
typedef struct {
    _Atomic int64_t peer;      /* whose message was bad, or -1 */
    _Atomic bool is_unordered; /* a list without ascending indices */
} RowFault;

typedef struct {
    MotServices api; /* first: kernels know no more */
    _Atomic int *failure;
    RowFault *fault;
} CpuServices;

typedef struct {
    MotCtx *ctx;
    MotPool *pool;
    CpuServices services;
    _Atomic int failure; /* dnnl_status_t of a product that was refused, or 0 */
    RowFault fault;
    int64_t bad_index; /* an index outside of its table, or NO_INDEX */
    Mapped *mapped;    /* own memory: the context's arena is rewound between bindings */
    uint32_t n_mapped, cap_mapped;
    char *scratch; /* [threads][scratch_bytes] */
    int64_t scratch_bytes;
} Cpu;

typedef struct {
    const char *name; /* of the kernel */
    MotImage image;
    uint32_t n_sets, n_bufs;              /* n_bufs: of a set */
    const int64_t *sizes;                 /* those of set s at [s] */
    int64_t *first_task[MOT_IMAGE_NESTS]; /* [n_sets + 1]: tasks are numbered set by set */
} CpuLaunch;

/*
 * oneDNN's row-major product. What it refuses, which is for want of memory, is told after the
 * launch.
 */
// NOLINTNEXTLINE(readability-function-size): compiled kernels pass their arguments one by one
static void multiply(const MotServices *self, int32_t trans_a, int32_t trans_b, int64_t m,
                     int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                     float beta, float *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        for (int64_t i = 0; i < m && beta == 0; i++)
            memset(c + i * ldc, 0, (size_t)n * sizeof *c);
        return;
    }
    dnnl_status_t status = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1, a, lda,
                                      b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        atomic_store(((const CpuServices *)(const void *)self)->failure, (int)status);
}

/* Rows of few entries: ir/sparse.c's. Arguments as support/image.h says. */
// NOLINTNEXTLINE(readability-function-size): as above
static void run_row(const MotServices *self, int64_t kind, int64_t wire, int64_t n, int64_t k,
                    int64_t parts, int64_t stride, int64_t row, void *a, void *b, void *c)
{
    RowFault *fault = ((const CpuServices *)(const void *)self)->fault;
    switch ((MotRowKind)kind) {
    case MOT_ROW_TOP_K:
        mot_sparse_top_k(a, n, k, b, c);
        break;
    case MOT_ROW_MEAN:
        if (!mot_sparse_mean(&(MotSparseRows){a, b, k, parts, stride}, n, c))
            atomic_store(&fault->is_unordered, true);
        break;
    case MOT_ROW_PACK:
        mot_sparse_pack((MotWireForm)wire, n, k, a, b, c);
        break;
    case MOT_ROW_UNPACK:
        if (!mot_sparse_unpack((MotWireForm)wire, n, k, a, b, c))
            atomic_store(&fault->peer, row / (stride / parts));
        break;
    }
}

/*
 * OpenMP's number of threads is set by thread; oneDNN is built on it, or on something that needs no
 * such call.
 */
static void call_vendors_with_one_thread(uint32_t thread)
{
    (void)thread;
    void (*set_num_threads)(int);
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&set_num_threads, &symbol, sizeof symbol);
    if (symbol)
        set_num_threads(1);
}

static void close_cpu(void *self)
{
    Cpu *d = self;
    mot_pool_close(d->pool);
    for (uint32_t i = 0; i < d->n_mapped; i++)
        mot_image_unmap(&d->mapped[i].image);
    free(d->mapped);
    free(d->scratch);
}

/* Every thread gets at least `bytes` of scratch. */
static MotStatus reserve_scratch(Cpu *d, MotCtx *ctx, int64_t bytes)
{
    bytes = (bytes + SCRATCH_ALIGNMENT - 1) & ~(int64_t)(SCRATCH_ALIGNMENT - 1);
    if (bytes <= d->scratch_bytes)
        return MOT_OK;
    size_t n_threads = mot_pool_size(d->pool);
    char *scratch = mot_fault(ctx->faults, MOT_FAULT_alloc)
                        ? NULL
                        : aligned_alloc(SCRATCH_ALIGNMENT, (size_t)bytes * n_threads);
    if (!scratch)
        return mot_fail(ctx, MOT_ERR_MEMORY, MOT_NOWHERE, "no memory for %lld bytes of scratch",
                        (long long)bytes);
    free(d->scratch);
    d->scratch = scratch;
    d->scratch_bytes = bytes;
    return MOT_OK;
}

static MotStatus open_cpu(MotCtx *ctx, uint32_t threads, bool may_spin, void **out_self)
{
    if (mot_isa_best() < 0)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "the cpu backend needs AVX2, which this machine lacks");
    Cpu *d = mot_arena_new(&ctx->arena, Cpu);
    mot_ctx_defer(ctx, close_cpu, d);
    d->ctx = ctx;
    d->bad_index = NO_INDEX;
    d->fault.peer = -1;
    d->services = (CpuServices){
        {.sgemm = multiply, .bad_index = &d->bad_index, .row = run_row}, &d->failure, &d->fault};
    *out_self = d;
    MotPoolOpts opts = {
        .n_threads = threads, .may_spin = may_spin, .on_start = call_vendors_with_one_thread};
    MOT_TRY(mot_pool_open(ctx, &opts, &d->pool));
    return reserve_scratch(d, ctx, SCRATCH_ALIGNMENT);
}

static MotStatus map_image(Cpu *d, MotCtx *ctx, const MotKernel *kernel, MotImage *out_image)
{
    for (uint32_t i = 0; i < d->n_mapped; i++)
        if (d->mapped[i].bytes == kernel->image) {
            *out_image = d->mapped[i].image;
            return MOT_OK;
        }
    if (!kernel->image)
        return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                        "kernel %s was not compiled for the cpu backend", kernel->name);
    if (d->n_mapped == d->cap_mapped) {
        uint32_t cap = d->cap_mapped ? 2 * d->cap_mapped : 64;
        bool is_refused = mot_fault(ctx->faults, MOT_FAULT_alloc);
        Mapped *grown = is_refused ? NULL : realloc(d->mapped, cap * sizeof *grown);
        if (!grown)
            return mot_fail(ctx, MOT_ERR_MEMORY, MOT_NOWHERE, "no memory for %u kernels", cap);
        d->mapped = grown;
        d->cap_mapped = cap;
    }
    Mapped *m = &d->mapped[d->n_mapped];
    MOT_TRY(mot_image_map(ctx, kernel->image, kernel->image_bytes, &m->image));
    m->bytes = kernel->image;
    d->n_mapped++;
    *out_image = m->image;
    return MOT_OK;
}

static MotStatus prepare_cpu(void *self, MotCtx *ctx, const MotProgram *program,
                             const MotInstr *ins, const MotBinding *binding, void **out_launch)
{
    Cpu *d = self;
    const MotKernel *kernel = &program->kernels.data[ins->kernel];
    CpuLaunch *l = mot_arena_new(&ctx->arena, CpuLaunch);
    *l = (CpuLaunch){.name = kernel->name,
                     .n_sets = mot_launch_sets(ins),
                     .n_bufs = ins->n_bufs / mot_launch_sets(ins),
                     .sizes = mot_launch_sizes(ctx, program, ins, binding)};
    MOT_TRY(map_image(d, ctx, kernel, &l->image));
    for (uint32_t i = 0; i < l->image.n_nests; i++) {
        const MotNestCode *nest = &l->image.nest[i];
        int64_t *first = l->first_task[i] = mot_arena_array(&ctx->arena, int64_t, l->n_sets + 1);
        for (uint32_t set = 0; set < l->n_sets; set++) {
            first[set + 1] = first[set] + nest->tasks(l->sizes + set);
            MOT_TRY(reserve_scratch(d, ctx, nest->scratch_bytes(l->sizes + set)));
        }
    }
    *out_launch = l;
    return MOT_OK;
}

/* A nest on its way: what the threads share. */
typedef struct {
    const Cpu *device;
    const CpuLaunch *launch;
    MotNestRun *run;
    const int64_t *first_task;
    void *const *bufs;
} NestRun;

static void run_range(void *self, int64_t begin, int64_t end, uint32_t thread)
{
    const NestRun *r = self;
    void *scratch = r->device->scratch + (int64_t)thread * r->device->scratch_bytes;
    for (uint32_t set = 0; begin < end; set++) {
        int64_t first = r->first_task[set], after = r->first_task[set + 1];
        if (begin >= after)
            continue;
        int64_t stop = end < after ? end : after;
        r->run(r->bufs + (size_t)set * r->launch->n_bufs, r->launch->sizes + set, begin - first,
               stop - first, &r->device->services.api, scratch);
        begin = stop;
    }
}

static MotStatus check_rows(Cpu *d, const CpuLaunch *l)
{
    int64_t peer = atomic_exchange(&d->fault.peer, -1);
    if (atomic_exchange(&d->fault.is_unordered, false))
        return mot_fail(d->ctx, MOT_ERR_DATA, MOT_NOWHERE,
                        "kernel %s: scatter_mean: a row has no ascending indices", l->name);
    if (peer >= 0)
        return mot_fail(d->ctx, MOT_ERR_NUMERICS, MOT_NOWHERE,
                        "kernel %s: the message of replica %lld is bad: an index or a value",
                        l->name, (long long)peer);
    return MOT_OK;
}

static MotStatus launch_cpu(void *self, void *launch, void *const *bufs)
{
    Cpu *d = self;
    const CpuLaunch *l = launch;
    int64_t n_threads = mot_pool_size(d->pool);
    for (uint32_t i = 0; i < l->image.n_nests; i++) {
        NestRun run = {d, l, l->image.nest[i].run, l->first_task[i], bufs};
        int64_t ranges = n_threads * (l->image.nest[i].is_coarse ? 1 : RANGES_A_THREAD);
        mot_pool_run(d->pool, run_range, &run, l->first_task[i][l->n_sets], ranges);
    }
    int failure = atomic_exchange(&d->failure, 0);
    if (failure)
        return mot_fail(d->ctx, MOT_ERR_MEMORY, MOT_NOWHERE,
                        "kernel %s: oneDNN refused a product, status %d", l->name, failure);
    MOT_TRY(check_rows(d, l));
    int64_t bad = d->bad_index;
    if (bad == NO_INDEX)
        return MOT_OK;
    d->bad_index = NO_INDEX;
    return mot_fail(d->ctx, MOT_ERR_DATA, MOT_NOWHERE,
                    "kernel %s: index %lld is outside of its table", l->name, (long long)bad);
}

const MotDeviceApi mot_device_cpu = {
    .name = "cpu", .open = open_cpu, .prepare = prepare_cpu, .launch = launch_cpu};
