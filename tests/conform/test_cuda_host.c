/*
 * The CUDA text, run on the CPU (cuda_host.h): every launch of the committed models' training
 * Programs against the reference, on one device and on four of uneven shares, one of them zero; and
 * that every barrier of the text is needed, which says that the host would tell of one that is
 * missing.
 */
#include "codegen/kernel.h"
#include "tests/conform/case_run.h"
#include "tests/conform/cuda_host.h"
#include "tests/conform/model_programs.h"

#include <stdio.h>

enum { SKIPPED = 77 };

/* ---- Operands by their use ---- */

/* What an operand of an op has to be. */
typedef enum { ANY, INDEX, POSITIVE, STEP } Use;

typedef struct {
    MotOpKind op;
    uint32_t operand;
    Use use;
} UseRow;

static const UseRow uses[] = {
    {MOT_OP_GATHER, 1, INDEX},        {MOT_OP_SCATTER_ADD, 0, INDEX},
    {MOT_OP_CROSS_ENTROPY, 1, INDEX}, {MOT_OP_CROSS_ENTROPY_GRAD, 1, INDEX},
    {MOT_OP_ADAM, 2, POSITIVE},       {MOT_OP_ADAM, 5, STEP},
    {MOT_OP_SQRT, 0, POSITIVE},       {MOT_OP_RSQRT, 0, POSITIVE},
    {MOT_OP_LOG, 0, POSITIVE},        {MOT_OP_DIV, 1, POSITIVE},
};

static Use find_use(const MotOp *op, uint32_t operand)
{
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (uses[i].op == op->kind && uses[i].operand == operand)
            return uses[i].use;
    return ANY;
}

/* Integers below which an index of the op has to stay. */
static int64_t find_limit(const MotGraph *g, const MotOp *op)
{
    const MotType *table = mot_graph_type(g, op->in[0]);
    if (op->kind == MOT_OP_GATHER)
        return table->dims[mot_attrs(op, gather)->axis];
    if (op->kind == MOT_OP_SCATTER_ADD)
        return mot_attrs(op, scatter)->size;
    return table->dims[table->rank - 1];
}

/*
 * The first use of a value that asks for something, through pointwise ops (such as the guard of
 * negative indices).
 */
static Use trace_use(const MotGraph *g, MotValue v, int64_t *out_limit)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++) {
            if (op->in[k] != v)
                continue;
            Use use = find_use(op, k);
            if (use == INDEX)
                *out_limit = find_limit(g, op);
            if (use == ANY && mot_op_info(op->kind)->class == MOT_POINTWISE)
                use = trace_use(g, op->out[0], out_limit);
            if (use != ANY)
                return use;
        }
    }
    return ANY;
}

static void fill_by_use(const MotGraph *g, const MotOp *input, const MotTensor *operand)
{
    int64_t limit = 2;
    Use use = trace_use(g, input->out[0], &limit);
    bool is_float = mot_dtype_class(operand->type.dtype) == MOT_CLASS_FLOAT;
    for (int64_t k = 0; k < mot_type_elements(&operand->type); k++) {
        double x = use == STEP       ? 3
                   : use == POSITIVE ? 0.1 + 2.9 * random_uniform()
                   : is_float        ? random_normal()
                                     : floor(random_uniform() * (double)limit);
        mot_tensor_set(operand, k, x);
    }
}

/* ---- Models ---- */

typedef struct {
    MotVec(const MotProgram *) programs;
    MotMap seen; /* kernels that ran, with their sizes */
    uint32_t n_launches;
} Models;

/* All but gpt_char: the kernels of the others over more rows. */
static MotStatus add_program(MotCtx *ctx, void *self, const char *path, const MotProgram *program)
{
    Models *m = self;
    if (strstr(path, "gpt_char"))
        return MOT_OK;
    mot_vec_push(&ctx->arena, &m->programs, program);
    for (uint32_t k = 0; k < program->kernels.n; k++)
        MOT_TRY(cuda_host_add(program->kernels.data[k].graph));
    return MOT_OK;
}

/* Whether the same graphs ran before. */
static bool has_run(MotCtx *ctx, Models *m, const MotProgram *p, const MotInstr *ins,
                    const int64_t *sizes)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    for (uint32_t set = 0; set < mot_launch_sets(ins); set++) {
        MotGraph *bound = mot_program_bind_kernel(ctx, p, ins->kernel, sizes + set);
        bound->symbols.n = 0; /* types name none any more */
        mot_graph_print(bound, &text);
    }
    return mot_map_put(&m->seen, text.data, text.n, 0);
}

static MotStatus check_launch(MotCtx *ctx, Models *m, const MotProgram *p, const MotInstr *ins,
                              const MotBinding *binding)
{
    const int64_t *sizes = mot_launch_sizes(ctx, p, ins, binding);
    uint32_t n_sets = mot_launch_sets(ins);
    if (has_run(ctx, m, p, ins, sizes))
        return MOT_OK;
    m->n_launches++;
    Run *runs = mot_arena_array(&ctx->arena, Run, n_sets);
    for (uint32_t set = 0; set < n_sets; set++)
        MOT_TRY(make_run(ctx, p, ins->kernel, sizes + set, fill_by_use, &runs[set]));
    void *launch;
    MOT_TRY(prepare_cuda_host(ctx, ctx, p, ins, binding, &launch));
    MOT_TRY(launch_runs(ctx, &cuda_host_device, ctx, launch, runs, n_sets));
    for (uint32_t set = 0; set < n_sets; set++) {
        const char *difference = find_difference(ctx, &runs[set]);
        if (difference)
            return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "set %u: %s", set, difference);
    }
    return MOT_OK;
}

static MotStatus check_program(MotCtx *ctx, Models *m, const MotProgram *p)
{
    for (uint32_t rank = 0; rank < p->mesh.n_devices; rank++) {
        MotBinding binding;
        MOT_TRY(mot_program_bind(ctx, p, rank, &binding));
        for (int s = 0; s < MOT_N_SECTIONS; s++)
            for (uint32_t i = 0; i < p->section[s].n; i++) {
                const MotInstr *ins = &p->section[s].data[i];
                if (ins->kind != MOT_INS_LAUNCH)
                    continue;
                MotStatus status = check_launch(ctx, m, p, ins, &binding);
                if (status != MOT_OK) {
                    mot_note(ctx, "rank %u, kernel %s", rank, p->kernels.data[ins->kernel].name);
                    return status;
                }
            }
    }
    return MOT_OK;
}

/* ---- What is told of ---- */

/* Kernels on x[256], b0, and their faults. */
#define KERNEL(name, body)                                                                         \
    "extern \"C\" __global__ void " name "(void *const *table, const long long *sizes, "           \
    "long long *bad_index)\n{\n"                                                                   \
    "    float *b0 = (float *)table[0];\n" body "}\n"
static int first_fault_line;
static const struct {
    const char *name, *text, *message;
} faults[] = {
    {"f_none", KERNEL("f_none", "b0[threadIdx.x] = b0[threadIdx.x] + 1;\n"), NULL},
    {"f_stray", KERNEL("f_stray", "b0[threadIdx.x + 1] += 1;\n"), "outside of operands"},
    {"f_threads", KERNEL("f_threads", "b0[threadIdx.x / 2] = 1;\n"), "another thread"},
    {"f_blocks", KERNEL("f_blocks", "if (threadIdx.x == 0)\nb0[0] = blockIdx.x;\n"),
     "another block"},
    {"f_empty",
     KERNEL(
         "f_empty",
         "__shared__ float s[2];\nif (threadIdx.x == 0) {\ns[0] = 1;\nb0[blockIdx.x] = s[1];\n}\n"),
     "has not written"},
    {"f_barriers", KERNEL("f_barriers", "if (threadIdx.x == 0)\n__syncthreads();\n"),
     "different barriers"},
};
enum { N_FAULTS = sizeof faults / sizeof *faults };

static void faults_are_told(void **state)
{
    (void)state;
    float x[256] = {0};
    void *table[] = {x};
    MotShimBuffer buffers[] = {{x, sizeof x}, {table, sizeof table}};
    for (int i = 0; i < N_FAULTS; i++) {
        MotShimLaunch launch = {.table = table,
                                .buffers = buffers,
                                .n_buffers = 1,
                                .n_common = 1,
                                .n_blocks = faults[i].message ? 2 : 1,
                                .n_sets = 1,
                                .seed = 7,
                                .is_met = cuda_host.is_met};
        *(void **)&launch.kernel = dlsym(cuda_host.library, faults[i].name);
        const char *error = cuda_host.launch(&launch);
        if (faults[i].message ? !error || !strstr(error, faults[i].message) : error != NULL)
            fail_msg("%s: %s", faults[i].name, error ? error : "nothing was told");
    }
}

/* ---- Barriers ---- */

typedef struct {
    MotCtx ctx;
    Run run;
    void *launch;
} CaseLaunch;

static bool open_case(CaseLaunch *l, const Case *c, int which)
{
    mot_ctx_init(&l->ctx);
    MotProgram *p = make_case_program(&l->ctx, c);
    make_case_run(&l->ctx, p, c, which, &l->run);
    return prepare_case(&l->ctx, &cuda_host_device, &l->ctx, p, c, which, &l->run, &l->launch) ==
           MOT_OK;
}

static bool goes_wrong(CaseLaunch *l)
{
    bool is_wrong =
        launch_runs(&l->ctx, &cuda_host_device, &l->ctx, l->launch, &l->run, 1) != MOT_OK;
    mot_error_clear(&l->ctx);
    return is_wrong;
}

/*
 * Leaves out one by one the barriers that this case meets, but for those that are known to be
 * needed.
 */
static void skip_barriers(const Case *c, bool *is_needed)
{
    CaseLaunch l;
    if (!open_case(&l, c, 0))
        fail_msg("%s: %s", c->name, mot_text_get(&l.ctx.error));
    memset(cuda_host.is_met, 0, (size_t)cuda_host.n_lines + 1);
    if (goes_wrong(&l))
        fail_msg("%s: all barriers are there, but a race is reported", c->name);
    for (int line = 1; line <= cuda_host.n_lines; line++) {
        if (!cuda_host.is_met[line] || is_needed[line])
            continue;
        cuda_host.skipped_barrier = line;
        is_needed[line] = goes_wrong(&l);
        cuda_host.skipped_barrier = 0;
    }
    mot_ctx_deinit(&l.ctx);
}

/* The statement before a barrier, and the barrier. */
static const char *quote_barrier(MotCtx *ctx, int line)
{
    const char *before = mot_text_get(&cuda_host.text), *at = before;
    for (int i = 1; i < line; i++) {
        before = at;
        at = strchr(at, '\n') + 1;
    }
    return mot_arena_printf(&ctx->arena, "%.*s", (int)(strchr(at, '\n') - before), before);
}

static void barriers_are_needed(void **state)
{
    MotCtx *ctx = *state;
    bool *is_needed = mot_arena_array(&ctx->arena, bool, cuda_host.n_lines + 1);
    for (int i = 0; i < N_CASES; i++)
        skip_barriers(&cases[i], is_needed);
    assert_true(cuda_host.n_barriers > 0);
    for (size_t i = 0; i < cuda_host.n_barriers; i++)
        if (cuda_host.barriers[i] < first_fault_line && !is_needed[cuda_host.barriers[i]])
            fail_msg("nothing goes wrong without the barrier of line %d:\n%s",
                     cuda_host.barriers[i], quote_barrier(ctx, cuda_host.barriers[i]));
}

static Models models;

static void models_compute_the_same(void **state)
{
    MotCtx *ctx = *state;
    random_state = 99;
    for (uint32_t i = 0; i < models.programs.n; i++)
        if (check_program(ctx, &models, models.programs.data[i]) != MOT_OK)
            fail_msg("%s", mot_text_get(&ctx->error));
    printf("%u launches of %u kernels in %u programs\n", models.n_launches, cuda_host.names.n,
           models.programs.n);
}

/* ---- All of it ---- */

static MotStatus build(MotCtx *ctx)
{
    cuda_host_init(ctx);
    mot_map_init(&models.seen, &ctx->arena);
    for (int i = 0; i < N_CASES; i++)
        MOT_TRY(cuda_host_add(make_case_program(ctx, &cases[i])->kernels.data[0].graph));
    MOT_TRY(visit_models(ctx, add_program, &models));
    first_fault_line = cuda_host_lines() + 1;
    for (int i = 0; i < N_FAULTS; i++)
        mot_text_puts(&cuda_host.text, faults[i].text);
    return cuda_host_build();
}

int main(void)
{
    static MotCtx ctx;
    mot_ctx_init(&ctx);
    MotStatus status = build(&ctx);
    if (status != MOT_OK) {
        printf("%s: %s\n", status == MOT_ERR_UNSUPPORTED ? "skipped" : "failed",
               mot_text_get(&ctx.error));
        return status == MOT_ERR_UNSUPPORTED ? SKIPPED : 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults_are_told),
                                       cmocka_unit_test_prestate(barriers_are_needed, &ctx),
                                       cmocka_unit_test_prestate(models_compute_the_same, &ctx)};
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    mot_ctx_deinit(&ctx);
    return n_failed;
}
