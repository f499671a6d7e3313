/*
 * The conformance suite: every backend computes every case of device_cases.h and is held against
 * the reference, also with results in the memory of operands, where lowering puts them there. A row
 * of the op table without a case is a failure unless it is listed as one that launches nothing.
 */
#include "codegen/codegen.h"
#include "codegen/kernel.h"
#include "passes/lower/in_place.h"
#include "tests/conform/case_run.h"
#include "tests/conform/cuda_host.h"

#include <stdio.h>

typedef struct {
    const char *name;
    const MotDeviceApi *api;
    int isa; /* of its images; -1: it needs none */
    uint32_t threads;
} Backend;

static MotIsa isa_of(const Backend *b)
{
    return b->isa == MOT_ISA_AVX512 ? MOT_ISA_AVX512 : MOT_ISA_AVX2;
}

static const Backend backends[] = {{"ref", &mot_device_ref, -1, 1},
                                   {"cpu, AVX2", &mot_device_cpu, MOT_ISA_AVX2, 1},
                                   {"cpu, AVX2, 3 threads", &mot_device_cpu, MOT_ISA_AVX2, 3},
                                   {"cpu, AVX-512", &mot_device_cpu, MOT_ISA_AVX512, 1},
                                   {"cpu, AVX-512, 2 threads", &mot_device_cpu, MOT_ISA_AVX512, 2},
                                   {"CUDA text on the host", &cuda_host_device, -1, 1}};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

/* Whether this machine has what the backend needs. */
static bool is_available(const Backend *b)
{
    if (b->api == &cuda_host_device)
        return cuda_host.library;
    return b->isa < 0 || mot_isa_is_supported(isa_of(b));
}

/* ---- One case under one binding ---- */

static void check_binding(MotCtx *ctx, const Backend *b, void *device, const Case *c, MotProgram *p,
                          int which)
{
    Run run, again;
    void *launch;
    make_case_run(ctx, p, c, which, &run);
    if (prepare_case(ctx, b->api, device, p, c, which, &run, &launch) != MOT_OK ||
        launch_runs(ctx, b->api, device, launch, &run, 1) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx->error));
    const char *difference = find_difference(ctx, &run);
    if (difference)
        fail_msg("%s: %s: %s", b->name, c->name, difference);
    again = run;
    assert_int_equal(launch_runs(ctx, b->api, device, launch, &again, 1), MOT_OK);
    if (!has_same_bits(&run, &again))
        fail_msg("%s: %s: a second launch gives other bits", b->name, c->name);
}

/* The program of one launch over the case's buffers. */
static MotInstr *make_launch(MotCtx *ctx, MotProgram *p, const Run *r)
{
    MotInstr *launch = mot_arena_new(&ctx->arena, MotInstr);
    *launch = (MotInstr){.kind = MOT_INS_LAUNCH,
                         .bufs = mot_arena_array(&ctx->arena, uint32_t, r->n),
                         .n_bufs = r->n,
                         .n_in = r->n_in};
    p->bufs.n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        launch->bufs[i] = i;
        mot_vec_push(&ctx->arena, &p->bufs, (MotBuf){.type = r->buf[i].type, .copies = 1});
    }
    return launch;
}

/* Result r in the memory of operand k. */
static void check_overlaid(MotCtx *ctx, const Backend *b, void *device, const Case *c,
                           const MotProgram *p, int which, uint32_t k, uint32_t r)
{
    Run run;
    void *launch, *bufs[RUN_MAX_BUFS];
    make_case_run(ctx, p, c, which, &run);
    MOT_ASSERT(k < run.n_in && run.n_in <= r && r < run.n);
    size_t bytes = (size_t)mot_type_bytes(&run.buf[k].type);
    assert_int_equal(prepare_case(ctx, b->api, device, p, c, which, &run, &launch), MOT_OK);
    for (uint32_t i = 0; i < run.n; i++)
        bufs[i] = i < run.n_in ? run.buf[i].data : make_tensor(ctx, &run.buf[i].type).data;
    for (uint32_t i = run.n_in; i < run.n; i++)
        memset(bufs[i], 0xa5, (size_t)mot_type_bytes(&run.buf[i].type) + RUN_MARGIN);
    memcpy(bufs[r], bufs[k], bytes);
    bufs[k] = bufs[r];
    assert_int_equal(b->api->launch(device, launch, bufs), MOT_OK);
    memcpy(run.result + run.n_in, bufs + run.n_in, (run.n - run.n_in) * sizeof *bufs);
    const char *difference = find_difference(ctx, &run);
    if (difference)
        fail_msg("%s: %s: over operand %u: %s", b->name, c->name, k, difference);
}

/* Every result over every operand of which lowering believes that it may. */
static void check_all_overlaid(MotCtx *ctx, const Backend *b, void *device, const Case *c,
                               MotProgram *p, int which)
{
    Run run;
    make_case_run(ctx, p, c, which, &run);
    const MotInstr *launch = make_launch(ctx, p, &run);
    for (uint32_t r = run.n_in; r < run.n; r++)
        for (uint32_t k = 0; k < run.n_in; k++)
            if (mot_may_overwrite(p, launch, k, r))
                check_overlaid(ctx, b, device, c, p, which, k, r);
}

static void check_case(const Backend *b, const Case *c)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    void *device;
    MotProgram *p = make_case_program(&ctx, c);
    if (b->api->open(&ctx, b->threads, false, &device) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx.error));
    MotCodegenOpts opts = {.isa = isa_of(b), .threads = 1, .cache_dir = ""};
    if (b->isa >= 0 && mot_codegen_program(&ctx, p, &opts) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx.error));
    for (int i = 0; i < (*c->symbols ? N_BINDINGS : 1); i++) {
        check_binding(&ctx, b, device, c, p, i);
        check_all_overlaid(&ctx, b, device, c, p, i);
    }
    mot_ctx_deinit(&ctx);
}

static void check_backend(void **state)
{
    const Backend *b = *state;
    const char *only = getenv("MOTLEY_CASE");
    if (!is_available(b))
        skip();
    for (int i = 0; i < N_CASES; i++)
        if (!only || strncmp(cases[i].name, only, strlen(only)) == 0)
            check_case(b, &cases[i]);
}

/* ---- Batched launches ---- */

enum { N_BATCHED = sizeof batched_cases / sizeof *batched_cases, N_SETS = 6 };
static const int64_t set_sizes[N_SETS] = {SHAPED_ELEMENTS, 0, 7, 1, 70001, 64};

static MotProgram *make_batched_program(MotCtx *ctx, const Backend *b, const BatchedCase *c,
                                        bool is_flat)
{
    Case plain = {c->name, is_flat ? " {symbols=[@n]}" : "", {{0}}, is_flat ? c->flat : c->shaped};
    MotCodegenOpts opts = {.isa = isa_of(b), .threads = 1, .cache_dir = ""};
    MotProgram *p = make_case_program(ctx, &plain);
    if (b->isa >= 0 && mot_codegen_program(ctx, p, &opts) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx->error));
    return p;
}

/* A batched launch on these sets: all their operands, then all their results. */
static MotStatus prepare_sets(MotCtx *ctx, const Backend *b, void *device, const MotProgram *p,
                              const Run *runs, void **out_launch)
{
    uint32_t n = runs[0].n, n_in = runs[0].n_in, at = 0;
    MotBinding *binding = mot_arena_new(&ctx->arena, MotBinding);
    MotInstr *launch = mot_arena_new(&ctx->arena, MotInstr);
    *launch = (MotInstr){.kind = MOT_INS_LAUNCH,
                         .n_sets = N_SETS,
                         .n_bufs = N_SETS * n,
                         .n_in = N_SETS * n_in,
                         .bufs = mot_arena_array(&ctx->arena, uint32_t, N_SETS *n)};
    *binding = (MotBinding){.types = mot_arena_array(&ctx->arena, MotType, N_SETS * n)};
    for (int is_result = 0; is_result < 2; is_result++)
        for (uint32_t set = 0; set < N_SETS; set++)
            for (uint32_t k = is_result ? n_in : 0; k < (is_result ? n : n_in); k++, at++) {
                launch->bufs[at] = at;
                binding->types[at] = runs[set].buf[k].type;
            }
    return b->api->prepare(device, ctx, p, launch, binding, out_launch);
}

/* The first set again, by the kernel over its own dims. */
static void compare_with_shaped(MotCtx *ctx, const Backend *b, void *device, const BatchedCase *c,
                                const Run *first)
{
    MotProgram *p = make_batched_program(ctx, b, c, false);
    Case plain = {c->name, "", {{0}}, c->shaped};
    Run shaped = *first;
    void *launch;
    if (prepare_case(ctx, b->api, device, p, &plain, 0, &shaped, &launch) != MOT_OK ||
        launch_runs(ctx, b->api, device, launch, &shaped, 1) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx->error));
    if (!has_same_bits(first, &shaped))
        fail_msg("%s: %s: the batched launch gives other bits", b->name, c->name);
}

static void check_batched(const Backend *b, const BatchedCase *c)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    MotProgram *p = make_batched_program(&ctx, b, c, true);
    Run runs[N_SETS];
    void *device, *launch;
    random_state = 77;
    for (int set = 0; set < N_SETS; set++)
        assert_int_equal(make_run(&ctx, p, 0, &set_sizes[set], fill_by_name, &runs[set]), MOT_OK);
    if (b->api->open(&ctx, b->threads, false, &device) != MOT_OK ||
        prepare_sets(&ctx, b, device, p, runs, &launch) != MOT_OK ||
        launch_runs(&ctx, b->api, device, launch, runs, N_SETS) != MOT_OK)
        fail_msg("%s: %s: %s", b->name, c->name, mot_text_get(&ctx.error));
    for (int set = 0; set < N_SETS; set++) {
        const char *difference = find_difference(&ctx, &runs[set]);
        if (difference)
            fail_msg("%s: %s: set %d: %s", b->name, c->name, set, difference);
    }
    if (c->is_elementwise)
        compare_with_shaped(&ctx, b, device, c, &runs[0]);
    mot_ctx_deinit(&ctx);
}

static void batched_launches(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_BACKENDS; k++)
        for (int i = 0; is_available(&backends[k]) && i < N_BATCHED; i++)
            check_batched(&backends[k], &batched_cases[i]);
}

/* ---- Coverage ---- */

/*
 * What lowering never launches: values that the host fills, sinks, and what owns a region (refused,
 * test_regions.c).
 */
static const MotOpKind without_kernel[] = {MOT_OP_NONE,     MOT_OP_INPUT,  MOT_OP_PARAM,
                                           MOT_OP_CONSTANT, MOT_OP_OUTPUT, MOT_OP_ASSIGN,
                                           MOT_OP_GRADIENT, MOT_OP_SCAN};

static void every_row_has_a_case(void **state)
{
    (void)state;
    bool is_covered[MOT_N_OPS] = {false};
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof without_kernel / sizeof without_kernel[0]; i++)
        is_covered[without_kernel[i]] = true;
    for (int i = 0; i < N_CASES; i++) {
        const MotGraph *g = make_case_program(&ctx, &cases[i])->kernels.data[0].graph;
        for (uint32_t k = 0; k < g->body.n; k++)
            is_covered[mot_graph_op(g, g->body.data[k])->kind] = true;
    }
    for (int k = 0; k < MOT_N_OPS; k++)
        if (!is_covered[k])
            fail_msg("no case for %s", mot_op_info((MotOpKind)k)->name);
    mot_ctx_deinit(&ctx);
}

/* ---- Shapes ---- */

/*
 * Cut contractions whose matrices have unit strides are GEMMs behind a packing prologue, not sums
 * of products.
 */
static void cut_matrices_are_gemms(void **state)
{
    (void)state;
    static const char *const specs[] = {"mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"};
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const char *x = specs[i][0] == 'm' ? "f32[5x17]" : "f32[17x5]",
                   *z = specs[i][3] == 'k' ? "f32[17x9]" : "f32[9x17]";
        char *body = mot_arena_printf(
            &ctx.arena,
            "%%x = input {name=\"x\"} : %s %%z = input {name=\"z\"} : %s %%i = input {name=\"i\"} "
            ": i64[@a]\n%%y = contract %%x %%z %%i {spec=\"%s\", cut=\"k\"} : f32[5x9]\noutput %%y "
            "{name=\"y\"}\n",
            x, z, specs[i]);
        Case c = {"cut", " {symbols=[@a]}", {{0}}, body};
        MotKernelIr kernel;
        assert_int_equal(
            mot_kernel_build(&ctx, make_case_program(&ctx, &c)->kernels.data[0].graph, &kernel),
            MOT_OK);
        assert_int_equal(kernel.n_nests, 1);
        assert_int_equal(kernel.nest[0]->shape, MOT_SHAPE_CONTRACT);
        assert_true(kernel.nest[0]->contract.has_list);
        assert_int_equal(kernel.nest[0]->contract.k.n, 1);
    }
    mot_ctx_deinit(&ctx);
}

/* ---- What is refused ---- */

typedef struct {
    const char *body, *message;
    const char *symbols;
} Refusal;

static const Refusal refusals[] = {
    {IN("x", "f16[4]") "%y = exp %x : f16[4]\n" OUT("y"), "f16", ""},
    {IN("x", "f32[6x4]") "%1 = exp %x : f32[6x4]\n%2 = reshape %1 {dims=[3, 8]} : f32[3x8]\n"
                         "%3 = reduce_sum %2 {axes=[1]} : f32[3]\n" OUT("3"),
     "regroups dims", ""},
    {IN("x", "f32[6x4]") IN("xz", "f32[4x4]") "%1 = exp %x : f32[6x4]\n%2 = contract %1 %xz "
                                              "{spec=\"mk,kn->mn\"} : f32[6x4]\n" OUT("2"),
     "follows other ops", ""},
    {IN("x", "f32[6x4]") "%1 = reduce_sum %x {axes=[1], keep} : f32[6x1]\n%2 = reduce_sum %x "
                         "{axes=[0], keep} : f32[1x4]\n"
                         "%3 = mul %1 %2 : f32[6x4]\n" OUT("3"),
     "reductions over different loops", ""},
    {IN("x", "f32[5x@a]") IN("xs", "f32[@a]") "%y, %m, %r = layer_norm %x %xs {axis=1, eps=1e-05} "
                                              ": f32[5x@a], f32[5x1], f32[5x1]\n" OUT("y"),
     "needs dim 1 whole", " {symbols=[@a]}"}};

static void what_no_shape_covers_is_refused(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        Case c = {"refusal", refusals[i].symbols, {{0}}, refusals[i].body};
        MotProgram *p = make_case_program(&ctx, &c);
        MotCodegenOpts opts = {.isa = MOT_ISA_AVX2, .cache_dir = ""};
        assert_int_equal(mot_codegen_program(&ctx, p, &opts), MOT_ERR_UNSUPPORTED);
        if (!strstr(mot_text_get(&ctx.error), refusals[i].message))
            fail_msg("refused because: %s\nexpected: %s", mot_text_get(&ctx.error),
                     refusals[i].message);
        mot_error_clear(&ctx);
    }
    mot_ctx_deinit(&ctx);
}

/* An index outside of its table is told, and reads and writes nothing there. */
static const char *const index_bodies[] = {
    IN("x", "f32[65x40]") IN("i", "i64[8]") "%y = gather %x %i {axis=0} : f32[8x40]\n" OUT("y"),
    IN("i", "i64[8]")
        IN("x", "f32[8x40]") "%y = scatter_add %i %x {axis=0, size=65} : f32[65x40]\n" OUT("y"),
    IN("x", "f32[65]") IN("i", "i64[8]") "%y = gather %x %i {axis=0} : f32[8]\n" OUT("y"),
    IN("x", "f32[65x40]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ka,kb->ab\", "
                                            "cut=\"k\"} : f32[40x40]\n" OUT("y"),
    IN("x", "f32[30x65]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ak,bk->ab\", "
                                            "cut=\"k\"} : f32[30x30]\n" OUT("y"),
    IN("x", "f32[30x65]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ak,ak->a\", "
                                            "cut=\"k\"} : f32[30]\n" OUT("y"),
    IN("x", "f32[30x0]") IN("i", "i64[8]") "%y = contract %x %x %i {spec=\"ak,bk->ab\", "
                                           "cut=\"k\"} : f32[30x30]\n" OUT("y")};
enum { N_INDEX_BODIES = sizeof index_bodies / sizeof *index_bodies };

static Case index_case(int i)
{
    return (Case){"bad index", "", {{0}}, index_bodies[i]};
}

static void check_bad_index(const Backend *b, int which, int64_t bad)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Case c = index_case(which);
    MotProgram *p = make_case_program(&ctx, &c);
    MotCodegenOpts opts = {.isa = isa_of(b), .cache_dir = ""};
    static float x[65 * 40], y[65 * 40];
    int64_t index[8] = {0, 1, 64, bad, 3, 4, 5, 6};
    void *device, *launch;
    void *bufs[3] = {which == 1 ? (void *)index : x, which == 1 ? (void *)x : index, y};
    Run run = {.n_in = 2, .n = 3};
    if (b->isa >= 0)
        assert_int_equal(mot_codegen_program(&ctx, p, &opts), MOT_OK);
    assert_int_equal(b->api->open(&ctx, 1, false, &device), MOT_OK);
    assert_int_equal(prepare_case(&ctx, b->api, device, p, &c, 0, &run, &launch), MOT_OK);
    bool is_empty = strstr(c.body, "x0]"), is_inside = bad >= 0 && bad < 65 && !is_empty;
    assert_int_equal(b->api->launch(device, launch, bufs), is_inside ? MOT_OK : MOT_ERR_DATA);
    if (!is_inside && !is_empty)
        assert_non_null(strstr(mot_text_get(&ctx.error),
                               mot_arena_printf(&ctx.arena, "index %lld", (long long)bad)));
    mot_ctx_deinit(&ctx);
}

static void bad_indices_are_reported(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_BACKENDS; k++)
        for (int i = 0; is_available(&backends[k]) && i < N_INDEX_BODIES; i++)
            for (int64_t bad = -1; bad < 1000; bad += 66)
                check_bad_index(&backends[k], i, bad);
}

/* A replica's message that nobody packed is told, and whose it is. */
static void check_bad_message(uint32_t bad)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Case c = {"bad message",
              "",
              {{0}},
              IN("w_sign", "u8[4x3x2]") "%i, %v = unpack %w_sign {size=20, k=2, wire=\"sign\"} : "
                                        "i32[4x3x2], f32[4x3x2]\n" OUT("i") OUT("v")};
    MotProgram *p = make_case_program(&ctx, &c);
    MotCodegenOpts opts = {.isa = MOT_ISA_AVX2, .cache_dir = ""};
    uint8_t message[4][3][2];
    int32_t index[4 * 3 * 2];
    float value[4 * 3 * 2];
    for (uint32_t i = 0; i < 12; i++)
        mot_sparse_pack(MOT_WIRE_SIGN, 20, 2, (int32_t[]){3, 17}, (float[]){1, -1},
                        message[i / 3][i % 3]);
    if (bad < 4) /* the first index above the second */
        mot_sparse_pack(MOT_WIRE_SIGN, 20, 2, (int32_t[]){18, 17}, (float[]){1, -1},
                        message[bad][1]);
    void *device, *launch, *bufs[3] = {message, index, value};
    Run run = {.n_in = 1, .n = 3};
    assert_int_equal(mot_codegen_program(&ctx, p, &opts), MOT_OK);
    assert_int_equal(mot_device_cpu.open(&ctx, 2, false, &device), MOT_OK);
    assert_int_equal(prepare_case(&ctx, &mot_device_cpu, device, p, &c, 0, &run, &launch), MOT_OK);
    assert_int_equal(mot_device_cpu.launch(device, launch, bufs),
                     bad < 4 ? MOT_ERR_NUMERICS : MOT_OK);
    if (bad < 4)
        assert_non_null(
            strstr(mot_text_get(&ctx.error), mot_arena_printf(&ctx.arena, "replica %u", bad)));
    mot_ctx_deinit(&ctx);
}

static void bad_messages_name_the_replica(void **state)
{
    (void)state;
    for (uint32_t bad = 0; bad < 5; bad++) /* 4: none */
        check_bad_message(bad);
}

/* ---- All of it ---- */

/* All CUDA texts become one library. */
static MotStatus build_cuda(MotCtx *ctx)
{
    cuda_host_init(ctx);
    for (int i = 0; i < N_CASES; i++)
        MOT_TRY(cuda_host_add(make_case_program(ctx, &cases[i])->kernels.data[0].graph));
    for (int i = 0; i < 2 * N_BATCHED; i++) {
        const BatchedCase *c = &batched_cases[i / 2];
        MOT_TRY(cuda_host_add(
            make_batched_program(ctx, &backends[0], c, i % 2)->kernels.data[0].graph));
    }
    for (int i = 0; i < N_INDEX_BODIES; i++) {
        Case c = index_case(i);
        MOT_TRY(cuda_host_add(make_case_program(ctx, &c)->kernels.data[0].graph));
    }
    return cuda_host_build();
}

int main(void)
{
    struct CMUnitTest tests[N_BACKENDS + 6];
    size_t n = 0;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    MotStatus status = build_cuda(&ctx);
    if (status != MOT_OK)
        printf("%s: %s\n", status == MOT_ERR_UNSUPPORTED ? "skipped" : "failed",
               mot_text_get(&ctx.error));
    for (size_t i = 0; i < N_BACKENDS; i++) {
        union {
            const Backend *in;
            void *out;
        } u = {.in = &backends[i]};
        tests[n++] = (struct CMUnitTest){backends[i].name, check_backend, NULL, NULL, u.out};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(batched_launches);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_row_has_a_case);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(cut_matrices_are_gemms);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(what_no_shape_covers_is_refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bad_indices_are_reported);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bad_messages_name_the_replica);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    mot_ctx_deinit(&ctx);
    return n_failed || (status != MOT_OK && status != MOT_ERR_UNSUPPORTED);
}
