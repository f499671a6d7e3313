/*
 * The CUDA text of every kernel of every committed model, on 1 and on 4 devices, and of what no
 * model has (cut contractions) compiles: a batch of them for sm_80, the next for sm_90, the next
 * for sm_100; with --all each for all three. No GPU is needed, but NVRTC: without it the test is
 * skipped.
 */
#include "codegen/kernel.h"
#include "codegen/nvrtc.h"
#include "tests/conform/cuda_text.h"
#include "tests/conform/device_cases.h"
#include "tests/conform/model_programs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* BATCH: kernels that NVRTC gets at once. */
enum { N_ARCHS = 3, BATCH = 32, N_THREADS = 2, SKIPPED = 77 };

static const int archs[N_ARCHS] = {80, 90, 100};

typedef struct {
    bool is_all;          /* every text for every architecture */
    MotMap names, bodies; /* of kernels, and their texts without them */
    MotVec(const char *) texts;
    uint32_t n_programs, n_kernels; /* with repetitions */
    uint32_t n_nests[MOT_N_SHAPES];
    uint32_t n_skipped;
    MotNvrtc *nvrtc;
    atomic_uint next; /* batch */
    atomic_size_t bytes[N_ARCHS];
} Test;

static MotStatus print_kernel(MotCtx *ctx, Test *t, const MotKernel *kernel)
{
    MotKernelIr nests;
    CudaText text;
    t->n_kernels++;
    if (mot_map_put_str(&t->names, kernel->name, 0))
        return MOT_OK;
    MOT_TRY(mot_kernel_build(ctx, kernel->graph, &nests));
    for (uint32_t i = 0; i < nests.n_nests; i++)
        t->n_nests[nests.nest[i]->shape]++;
    MOT_TRY(make_cuda_text(ctx, kernel->graph, &text));
    if (strcmp(text.name, kernel->name) != 0)
        return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "the text of %s is that of %s",
                        kernel->name, text.name);
    if (!mot_map_put(&t->bodies, text.nameless.data, text.nameless.n, 0))
        mot_vec_push(&ctx->arena, &t->texts, text.text);
    return MOT_OK;
}

static MotStatus print_program(MotCtx *ctx, void *self, const char *path, const MotProgram *program)
{
    (void)path;
    Test *t = self;
    t->n_programs++;
    for (uint32_t k = 0; k < program->kernels.n; k++)
        MOT_TRY(print_kernel(ctx, t, &program->kernels.data[k]));
    return MOT_OK;
}

static MotStatus print_cases(MotCtx *ctx, Test *t, const char *prefix)
{
    uint32_t before = t->n_kernels;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text =
            mot_arena_printf(&ctx->arena, "graph @k%s {\n%s}\n", cases[i].symbols, cases[i].body);
        MotGraph *g;
        if (strncmp(cases[i].name, prefix, strlen(prefix)) != 0)
            continue;
        MOT_TRY(mot_graph_parse(ctx, cases[i].name, text, &g));
        MOT_TRY(print_kernel(ctx, t, &(MotKernel){.name = mot_cuda_name(ctx, g), .graph = g}));
    }
    if (t->n_kernels == before)
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "no case is called %s", prefix);
    return MOT_OK;
}

/* ---- Compiling, on a few threads: NVRTC takes most of the time ---- */

static const char *join_texts(MotCtx *ctx, const Test *t, uint32_t from)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    for (uint32_t i = from; i < from + BATCH && i < t->texts.n; i++)
        mot_text_puts(&text, t->texts.data[i]);
    return mot_text_get(&text);
}

static MotStatus compile_batches(MotCtx *ctx, void *self)
{
    Test *t = self;
    uint32_t n_batches = (t->texts.n + BATCH - 1) / BATCH,
             n_jobs = n_batches * (t->is_all ? N_ARCHS : 1);
    for (uint32_t i; (i = atomic_fetch_add(&t->next, 1)) < n_jobs;) {
        uint32_t batch = i % n_batches, which = (batch + i / n_batches) % N_ARCHS;
        if (!mot_nvrtc_supports(t->nvrtc, archs[which]))
            which = 0;
        int arch = archs[which];
        const void *cubin;
        size_t n;
        MOT_TRY(
            mot_nvrtc_compile(ctx, t->nvrtc, join_texts(ctx, t, batch * BATCH), arch, &cubin, &n));
        if (n < 4 || memcmp(cubin, "\177ELF", 4) != 0)
            return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "sm_%d: NVRTC gave no cubin", arch);
        atomic_fetch_add(&t->bytes[which], n);
    }
    return MOT_OK;
}

typedef struct {
    Test *test;
    MotCtx ctx;
    pthread_t thread;
} Worker;

static void *run_worker(void *self)
{
    Worker *w = self;
    if (mot_ctx_run(&w->ctx, compile_batches, w->test) != MOT_OK)
        atomic_store(&w->test->next, UINT32_MAX / 2); /* the others stop */
    return NULL;
}

static MotStatus compile_all(MotCtx *ctx, Test *t)
{
    Worker workers[N_THREADS];
    uint32_t n = 0;
    for (; n < N_THREADS; n++) {
        workers[n].test = t;
        mot_ctx_init(&workers[n].ctx);
        if (pthread_create(&workers[n].thread, NULL, run_worker, &workers[n]))
            return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "no thread");
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].ctx.status != MOT_OK)
            mot_fail(ctx, workers[i].ctx.status, MOT_NOWHERE, "%s",
                     mot_text_get(&workers[i].ctx.error));
        mot_ctx_deinit(&workers[i].ctx);
    }
    for (uint32_t i = 0; i < N_ARCHS && ctx->status == MOT_OK; i++) {
        bool is_done = mot_nvrtc_supports(t->nvrtc, archs[i]);
        if (is_done)
            printf("sm_%d: %zu bytes\n", archs[i], atomic_load(&t->bytes[i]));
        else
            printf("sm_%d: skipped: NVRTC %s does not compile for it\n", archs[i],
                   mot_nvrtc_version(t->nvrtc));
        t->n_skipped += !is_done;
    }
    return ctx->status;
}

/* Text that is wrong is refused, and the log says where. */
static MotStatus check_refusal(MotCtx *ctx, const MotNvrtc *nvrtc)
{
    const void *cubin;
    size_t n;
    MotStatus status = mot_nvrtc_compile(
        ctx, nvrtc, "__global__ void f(float *x) { *x = nonsense; }", archs[0], &cubin, &n);
    const char *error = mot_arena_strdup(&ctx->arena, mot_text_get(&ctx->error));
    mot_error_clear(ctx);
    if (status == MOT_ERR_INTERNAL && strstr(error, "nonsense"))
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "NVRTC's log is not in the error: %s",
                    error);
}

static MotStatus run(MotCtx *ctx, void *self)
{
    Test *t = self;
    mot_map_init(&t->names, &ctx->arena);
    mot_map_init(&t->bodies, &ctx->arena);
    MOT_TRY(visit_models(ctx, print_program, t));
    MOT_TRY(print_cases(ctx, t, "contract listed"));
    printf("%u programs, %u kernels, %u different, %u texts\n", t->n_programs, t->n_kernels,
           t->names.n, t->texts.n);
    for (int shape = 0; shape < MOT_N_SHAPES; shape++)
        printf("  %-14s %4u nests\n", mot_shape_names[shape], t->n_nests[shape]);
    if (mot_nvrtc_open(ctx, &t->nvrtc) != MOT_OK) {
        printf("skipped: %s\n", mot_text_get(&ctx->error));
        mot_error_clear(ctx);
        t->n_skipped++;
        return MOT_OK;
    }
    MOT_TRY(check_refusal(ctx, t->nvrtc));
    return compile_all(ctx, t);
}

int main(int argc, char **argv)
{
    MotCtx ctx;
    Test t = {.is_all = argc > 1 && strcmp(argv[1], "--all") == 0};
    mot_ctx_init(&ctx);
    MotStatus status = mot_ctx_run(&ctx, run, &t);
    if (status != MOT_OK)
        printf("failed: %s\n", mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
    return status != MOT_OK ? 1 : t.n_skipped ? SKIPPED : 0;
}
