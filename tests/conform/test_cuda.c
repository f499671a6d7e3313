/*
 * The CUDA text of every kernel of every committed model, on 1 and on 4 devices, and of what no model
 * has (cut contractions) compiles for sm_80, sm_90 and sm_100. No GPU is needed, but NVRTC: without it
 * the test is skipped.
 */
#include "codegen/cuda.h"
#include "codegen/kernel.h"
#include "codegen/nvrtc.h"
#include "frontend/import.h"
#include "frontend/trained.h"
#include "passes/graph/loss.h"
#include "passes/graph/optimizer.h"
#include "passes/lower/lower.h"
#include "passes/pipeline.h"
#include "passes/plan/plan.h"
#include "tests/conform/device_cases.h"

#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    N_ARCHS = 3,
    BATCH = 32,
    N_THREADS = 2,
    LEAST_MODELS = 20,
    SKIPPED = 77
}; /* BATCH: kernels that NVRTC gets at once */

static const int archs[N_ARCHS] = {80, 90, 100};
static const uint32_t device_counts[] = {1, 4};

typedef struct {
    MotMap names, bodies; /* of kernels, and their texts without them */
    MotVec(const char *) texts;
    uint32_t n_models, n_kernels; /* with repetitions */
    uint32_t n_nests[MOT_N_SHAPES];
    uint32_t n_skipped;
    MotNvrtc *nvrtc;
    atomic_uint next; /* batch, over all archs */
    atomic_size_t bytes[N_ARCHS];
} Test;

/* The training graph of a model: with its loss, gradients and AdamW. */
static MotStatus make_graph(MotCtx *ctx, const char *path, MotGraph **out_graph)
{
    static const MotDimBinding batch = {"batch", 8};
    const MotOnnxOpts onnx = mot_onnx_opts_default();
    const MotImportOpts import = {.dims = &batch, .n_dims = 1};
    const MotTrainOpts train = {0};
    MotOnnxFile *file;
    MotTrained trained;
    MotLoss loss = {0};
    MotOptimizer optimizer = {0};
    MotGraph *g;
    MOT_TRY(mot_onnx_open(ctx, path, &onnx, &file));
    if (mot_import(ctx, file, &import, &g) == MOT_ERR_USAGE) { /* no dim is called batch */
        mot_error_clear(ctx);
        MOT_TRY(mot_import(ctx, file, &(MotImportOpts){0}, &g));
    }
    MOT_TRY(ctx->status);
    MOT_TRY(mot_trained_decide(ctx, g, &train, &trained));
    MOT_TRY(mot_loss_parse(
        ctx, g, strstr(path, "mse") ? "mse:y:labels" : "cross_entropy:logits:labels", &loss));
    MOT_TRY(mot_optimizer_parse(ctx, "adamw:lr=3e-4,clip=1", &optimizer));
    MOT_TRY(mot_trained_freeze(ctx, g, file));
    MOT_TRY(mot_passes_run(ctx, g, &(MotPassOpts){.loss = &loss, .optimizer = &optimizer}, NULL,
                           "optimizer"));
    *out_graph = g;
    return MOT_OK;
}

/*
 * Texts that differ in the kernel's name only are compiled once: operands of other names, dims that
 * the text does not use.
 */
static void add_text(MotCtx *ctx, Test *t, const char *text, const char *name)
{
    MotText nameless;
    size_t n = strlen(name);
    mot_text_init(&nameless, &ctx->arena);
    const char *from = text;
    for (const char *at; (at = strstr(from, name)); from = at + n)
        mot_text_add(&nameless, from, (size_t)(at - from));
    mot_text_puts(&nameless, from);
    if (!mot_map_put(&t->bodies, nameless.data, nameless.n, 0))
        mot_vec_push(&ctx->arena, &t->texts, text);
}

static MotStatus print_kernel(MotCtx *ctx, Test *t, const MotKernel *kernel)
{
    MotKernelIr nests;
    const char *text;
    t->n_kernels++;
    if (mot_map_put_str(&t->names, kernel->name, 0))
        return MOT_OK;
    MOT_TRY(mot_kernel_build(ctx, kernel->graph, &nests));
    for (uint32_t i = 0; i < nests.n_nests; i++)
        t->n_nests[nests.nest[i]->shape]++;
    MOT_TRY(mot_cuda_text(ctx, kernel->graph, &text));
    if (!strstr(text, kernel->name))
        return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE,
                        "the text of %s does not have that name", kernel->name);
    add_text(ctx, t, text, kernel->name);
    return MOT_OK;
}

static MotStatus print_model(MotCtx *ctx, Test *t, const char *path)
{
    MotGraph *graph;
    MOT_TRY(make_graph(ctx, path, &graph));
    t->n_models++;
    for (size_t i = 0; i < sizeof device_counts / sizeof *device_counts; i++) {
        MotPlan *plan;
        MotPipeline *pipeline;
        MOT_TRY(mot_plan_make(ctx, graph, mot_cluster_make(ctx, device_counts[i], 1), NULL, &plan));
        MOT_TRY(mot_lower(ctx, plan, &pipeline));
        const MotProgram *program = pipeline->stages.data[0];
        for (uint32_t k = 0; k < program->kernels.n; k++)
            MOT_TRY(print_kernel(ctx, t, &program->kernels.data[k]));
    }
    return MOT_OK;
}

static MotStatus print_models(MotCtx *ctx, Test *t)
{
    glob_t found;
    if (glob("models/*.onnx", 0, NULL, &found))
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "no models/*.onnx here");
    MotStatus status = MOT_OK;
    for (size_t i = 0; i < found.gl_pathc && status == MOT_OK; i++) {
        status = print_model(ctx, t, found.gl_pathv[i]);
        if (status != MOT_OK)
            mot_note(ctx, "in %s", found.gl_pathv[i]);
    }
    globfree(&found);
    if (status == MOT_OK && t->n_models < LEAST_MODELS)
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "only %u models were found", t->n_models);
    return status;
}

static MotStatus print_cases(MotCtx *ctx, Test *t, const char *prefix)
{
    uint32_t before = t->n_kernels;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text =
            mot_arena_printf(&ctx->arena, "graph @k%s {\n%s}\n", cases[i].symbols, cases[i].body);
        MotGraph *g;
        MotText printed;
        if (strncmp(cases[i].name, prefix, strlen(prefix)) != 0)
            continue;
        MOT_TRY(mot_graph_parse(ctx, cases[i].name, text, &g));
        mot_text_init(&printed, &ctx->arena);
        mot_graph_print(g, &printed);
        unsigned long long hash = mot_hash(printed.data, printed.n);
        const char *name = mot_arena_printf(&ctx->arena, "k_%016llx", hash); /* ir/program.h */
        MOT_TRY(print_kernel(ctx, t, &(MotKernel){.name = name, .graph = g}));
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
    uint32_t n_batches = (t->texts.n + BATCH - 1) / BATCH;
    for (uint32_t i; (i = atomic_fetch_add(&t->next, 1)) < n_batches * N_ARCHS;) {
        int arch = archs[i / n_batches];
        const void *cubin;
        size_t n;
        if (!mot_nvrtc_supports(t->nvrtc, arch))
            continue;
        MOT_TRY(mot_nvrtc_compile(ctx, t->nvrtc, join_texts(ctx, t, i % n_batches * BATCH), arch,
                                  &cubin, &n));
        if (n < 4 || memcmp(cubin, "\177ELF", 4) != 0)
            return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "sm_%d: NVRTC gave no cubin", arch);
        atomic_fetch_add(&t->bytes[i / n_batches], n);
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
            printf("sm_%d: %u texts, %zu bytes\n", archs[i], t->texts.n, atomic_load(&t->bytes[i]));
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
    bool is_named = status == MOT_ERR_INTERNAL && strstr(mot_text_get(&ctx->error), "nonsense");
    mot_error_clear(ctx);
    return is_named
               ? MOT_OK
               : mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "NVRTC's log is not in the error");
}

static MotStatus run(MotCtx *ctx, void *self)
{
    Test *t = self;
    mot_map_init(&t->names, &ctx->arena);
    mot_map_init(&t->bodies, &ctx->arena);
    MOT_TRY(print_models(ctx, t));
    MOT_TRY(print_cases(ctx, t, "contract listed"));
    printf("%u models, %u kernels, %u different, %u texts\n", t->n_models, t->n_kernels, t->names.n,
           t->texts.n);
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

int main(void)
{
    MotCtx ctx;
    Test t = {0};
    mot_ctx_init(&ctx);
    MotStatus status = mot_ctx_run(&ctx, run, &t);
    if (status != MOT_OK)
        printf("failed: %s\n", mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
    return status != MOT_OK ? 1 : t.n_skipped ? SKIPPED : 0;
}
