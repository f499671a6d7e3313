/*
 * Batched launches of the update: what joins and what does not, what the verifier makes of sets of
 * buffers, and for random programs that every buffer gets the same value as in the program before.
 *
 *     test_batch [--seed N]      reproduces one failure
 */
#include "ir/graph_text.h"
#include "passes/lower/batch.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The kernels of the tests, over buffers of one shape that stands for %s, and scalars. */
#define KERNEL(body) "graph @kernel {\n" body "}\n"
#define X "%%x = input {name=\"i0\"} : f32[%s]\n"
#define Y "%%y = input {name=\"i1\"} : f32[%s]\n"
#define LR "%%l = input {name=\"i2\"} : f32\n"
static const char square[] = KERNEL(X "%%1 = mul %%x %%x : f32[%s]\noutput %%1 {name=\"o0\"}\n");
static const char norm[] = KERNEL(X "%%1 = mul %%x %%x : f32[%s]\n"
                                    "%%2 = reduce_sum %%1 {axes=[0, 1]} : f32\n"
                                    "output %%2 {name=\"o0\"}\n");
static const char descend[] = KERNEL(X Y LR "%%1 = sgd %%x %%y %%l {wd=0.1} : f32[%s]\n"
                                            "output %%1 {name=\"o0\"}\n");
static const char more_decay[] = KERNEL(X Y LR "%%1 = sgd %%x %%y %%l {wd=0.2} : f32[%s]\n"
                                               "output %%1 {name=\"o0\"}\n");
static const char rows[] = KERNEL(X "%%1 = reduce_sum %%x {axes=[1], keep} : f32[2x1]\n"
                                    "output %%1 {name=\"o0\"}\n");
static const char row_bias[] = KERNEL(X "%%b = input {name=\"i1\"} : f32[1x3]\n"
                                        "%%1 = add %%x %%b : f32[%s]\noutput %%1 {name=\"o0\"}\n");

/*
 * Buffers 0 to 9 are [2x3], 10 to 19 [5x4], 20 to 29 scalars, and then two [2x1] and a [1x3]; all
 * are parameters, so that none has to be written first.
 */
enum { SMALL, LARGE = 10, SCALAR = 20, COLUMN = 30, ROW = 32, N_BUFS };

static MotProgram *make_program(MotCtx *ctx)
{
    static int64_t one[] = {1};
    static const struct {
        uint32_t end;
        MotType type;
    } kinds[] = {{LARGE, {MOT_F32, 2, {2, 3}}},
                 {SCALAR, {MOT_F32, 2, {5, 4}}},
                 {COLUMN, {MOT_F32, 0, {0}}},
                 {ROW, {MOT_F32, 2, {2, 1}}},
                 {N_BUFS, {MOT_F32, 2, {1, 3}}}};
    MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
    *p = (MotProgram){.ctx = ctx, .name = "p", .n_micro = 1};
    p->mesh = (MotMesh){.axis = {{"x", 1, one}}, .n_axes = 1, .n_devices = 1};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        while (p->bufs.n < kinds[k].end) {
            MotType type = kinds[k].type;
            MotBuf buf = {.kind = MOT_BUF_PARAM, .global = type, .type = type, .copies = 1};
            mot_vec_push(&ctx->arena, &p->bufs, buf);
        }
    return p;
}

static uint32_t find_kernel(MotProgram *p, const char *text, const char *shape)
{
    MotCtx *ctx = p->ctx;
    MotGraph *g;
    MotText full, printed;
    mot_text_init(&full, &ctx->arena);
    for (const char *at = text; *at; at++) {
        bool is_shape = at[0] == '%' && at[1] == 's';
        mot_text_add(&full, is_shape ? shape : at, is_shape ? strlen(shape) : 1);
        at += *at == '%';
    }
    if (mot_graph_parse(ctx, "kernel", mot_text_get(&full), &g) != MOT_OK)
        fail_msg("%s\n%s", mot_text_get(&full), mot_text_get(&ctx->error));
    mot_text_init(&printed, &ctx->arena);
    mot_graph_print(g, &printed);
    for (uint32_t k = 0; k < p->kernels.n; k++)
        if (strcmp(p->kernels.data[k].name, mot_text_get(&printed)) == 0)
            return k;
    mot_vec_push(&ctx->arena, &p->kernels, (MotKernel){mot_text_get(&printed), g, NULL, 0});
    return p->kernels.n - 1;
}

static MotInstr *add(MotProgram *p, const char *kernel, uint32_t n_in, const uint32_t *bufs,
                     uint32_t n_bufs)
{
    MotArena *arena = &p->ctx->arena;
    MotInstr ins = {.kind = MOT_INS_LAUNCH,
                    .kernel = find_kernel(p, kernel, bufs[0] < LARGE ? "2x3" : "5x4"),
                    .n_in = n_in,
                    .n_bufs = n_bufs,
                    .bufs = mot_arena_copy(arena, bufs, n_bufs * sizeof *bufs),
                    .role = MOT_ROLE_UPDATE};
    mot_vec_push(arena, &p->section[MOT_SECTION_STEP], ins);
    return &p->section[MOT_SECTION_STEP].data[p->section[MOT_SECTION_STEP].n - 1];
}

#define BUFS(...)                                                                                  \
    (uint32_t[]){__VA_ARGS__}, (uint32_t)(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define LAUNCH(kernel, n_in, ...) add(p, kernel, n_in, BUFS(__VA_ARGS__))

/* The section's launches after the pass. */
static const char *finish(MotProgram *p)
{
    MotText text;
    mot_batch(p);
    if (mot_program_verify(p) != MOT_OK)
        fail_msg("%s", mot_text_get(&p->ctx->error));
    mot_text_init(&text, &p->ctx->arena);
    for (uint32_t i = 0; i < p->section[MOT_SECTION_STEP].n; i++) {
        const MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
        mot_text_printf(&text, "%u:", ins->n_sets);
        for (uint32_t k = 0; k < ins->n_bufs; k++)
            mot_text_printf(&text, "%s%u", k == ins->n_in ? " > " : " ", ins->bufs[k]);
        mot_text_printf(&text, "\n");
    }
    return mot_text_get(&text);
}

/* ---- What joins ---- */

static void shapes_do_not_matter(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(descend, 3, 0, 1, 20, 0);
    LAUNCH(descend, 3, 10, 11, 20, 10);
    LAUNCH(descend, 3, 2, 3, 20, 4);
    assert_string_equal(finish(p), "3: 0 1 20 10 11 20 2 3 20 > 0 10 4\n");
    assert_int_equal(p->kernels.n, 1);
    MotText text;
    mot_text_init(&text, &p->ctx->arena);
    mot_graph_print(p->kernels.data[0].graph, &text);
    assert_string_equal(mot_text_get(&text), "motley graph 1\ngraph @kernel {symbols=[@n]} {\n"
                                             "  %1 = input {name=\"i0\"} : f32[@n]\n"
                                             "  %2 = input {name=\"i1\"} : f32[@n]\n"
                                             "  %3 = input {name=\"i2\"} : f32\n"
                                             "  %4 = sgd %1 %2 %3 {wd=0.1} : f32[@n]\n"
                                             "  output %4 {name=\"o0\"}\n}\n");
    MotBinding binding;
    assert_int_equal(mot_program_bind(*state, p, 0, &binding), MOT_OK);
    const int64_t *sizes =
        mot_launch_sizes(*state, p, &p->section[MOT_SECTION_STEP].data[0], &binding);
    assert_int_equal(sizes[0], 6);
    assert_int_equal(sizes[1], 20);
    assert_int_equal(sizes[2], 6);
}

static void constants_do(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(descend, 3, 0, 1, 20, 0);
    LAUNCH(more_decay, 3, 2, 3, 20, 2);
    LAUNCH(descend, 3, 10, 11, 20, 10);
    LAUNCH(more_decay, 3, 12, 13, 20, 12);
    assert_string_equal(finish(p), "2: 0 1 20 10 11 20 > 0 10\n"
                                   "2: 2 3 20 12 13 20 > 2 12\n");
    assert_int_equal(p->kernels.n, 2);
}

static void sums_of_all_elements_join(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(norm, 1, 0, 20);
    LAUNCH(norm, 1, 10, 21);
    assert_string_equal(finish(p), "2: 0 10 > 20 21\n");
}

/* A lone launch keeps the kernel of its shape. */
static void what_is_alone_stays(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(square, 1, 0, 1);
    LAUNCH(norm, 1, 0, 20);
    assert_string_equal(finish(p), "0: 0 > 1\n0: 0 > 20\n");
    assert_int_equal(p->kernels.n, 2);
    assert_int_equal(mot_graph_type(p->kernels.data[0].graph, 1)->rank, 2);
}

/* Rows matter, dims are broadcast, or the work is no update's. */
static void other_kernels_stay(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(square, 1, 0, 1)->role = MOT_ROLE_FORWARD;
    LAUNCH(square, 1, 10, 11)->role = MOT_ROLE_FORWARD;
    assert_string_equal(finish(p), "0: 0 > 1\n0: 10 > 11\n");
    p = make_program(*state);
    LAUNCH(rows, 1, 0, COLUMN);
    LAUNCH(rows, 1, 2, COLUMN + 1);
    LAUNCH(row_bias, 2, 4, ROW, 6);
    LAUNCH(row_bias, 2, 7, ROW, 8);
    assert_string_equal(finish(p), "0: 0 > 30\n0: 2 > 31\n0: 4 32 > 6\n0: 7 32 > 8\n");
}

/* ---- Order ---- */

static void a_batch_stands_before_what_reads_it(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(norm, 1, 0, 20);
    LAUNCH(square, 1, 5, 6)->role = MOT_ROLE_FORWARD;
    LAUNCH(norm, 1, 10, 21);
    LAUNCH(descend, 3, 0, 1, 20, 0); /* reads a sum */
    LAUNCH(descend, 3, 10, 11, 21, 10);
    LAUNCH(norm, 1, 2, 22);
    LAUNCH(norm, 1, 3, 23);
    assert_string_equal(finish(p), "0: 5 > 6\n"
                                   "2: 0 10 > 20 21\n"
                                   "2: 0 1 20 10 11 21 > 0 10\n"
                                   "2: 2 3 > 22 23\n");
}

static void members_do_not_depend_on_each_other(void **state)
{
    MotProgram *p = make_program(*state);
    LAUNCH(square, 1, 0, 1);
    LAUNCH(square, 1, 10, 11);
    LAUNCH(square, 1, 1, 2); /* reads what the first wrote */
    LAUNCH(square, 1, 12, 13);
    LAUNCH(square, 1, 14, 12); /* writes what another one reads */
    assert_string_equal(finish(p), "2: 0 10 > 1 11\n"
                                   "2: 1 12 > 2 13\n"
                                   "0: 14 > 12\n");
}

/* ---- The verifier ---- */

static void refuse(MotProgram *p, const char *why)
{
    assert_int_equal(mot_program_verify(p), MOT_ERR_MISMATCH);
    if (!strstr(mot_text_get(&p->ctx->error), why))
        fail_msg("not \"%s\" but: %s", why, mot_text_get(&p->ctx->error));
    mot_error_clear(p->ctx);
}

static void wrong_sets_are_refused(void **state)
{
    static const struct {
        uint32_t place, buf;
        const char *why;
    } changes[] = {{1, 10, "are not what the kernel runs on"}, /* another shape than its set's */
                   {2, 4, "are not what the kernel runs on"},  /* no scalar */
                   {0, 20, "are not what the kernel runs on"}, /* no line */
                   {1, 2, "another set reads or writes"},      /* what the second set writes */
                   {7, 0, "another set reads or writes"}};     /* twice */
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        MotProgram *p = make_program(*state);
        LAUNCH(descend, 3, 0, 1, 20, 0);
        LAUNCH(descend, 3, 2, 3, 20, 2);
        assert_string_equal(finish(p), "2: 0 1 20 2 3 20 > 0 2\n");
        p->section[MOT_SECTION_STEP].data[0].bufs[changes[i].place] = changes[i].buf;
        refuse(p, changes[i].why);
    }
    MotProgram *p = make_program(*state);
    LAUNCH(square, 1, 0, 1)->n_sets = 1; /* its kernel is not over lines */
    refuse(p, "are not what the kernel runs on");
}

/* ---- Random programs ---- */

static unsigned random_state;

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

/*
 * What a launch computes, from what its operands are: a number for the operators, and one for every
 * operand.
 */
static uint64_t combine(const MotGraph *kernel, const uint64_t *operands, uint32_t n,
                        uint32_t result)
{
    uint64_t number = result;
    for (uint32_t i = 0; i < kernel->body.n; i++)
        number = number * 31 + mot_graph_op(kernel, kernel->body.data[i])->kind;
    for (uint32_t i = 0; i < n; i++)
        number = number * 1000003 + operands[i];
    return number ^ number >> 29;
}

static void evaluate(const MotProgram *p, uint64_t *values)
{
    for (uint32_t i = 0; i < N_BUFS; i++)
        values[i] = i + 1;
    for (uint32_t i = 0; i < p->section[MOT_SECTION_STEP].n; i++) {
        const MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
        uint32_t n_sets = mot_launch_sets(ins), n = ins->n_bufs / n_sets, n_in = ins->n_in / n_sets;
        uint64_t operands[4], before[N_BUFS];
        memcpy(before, values, sizeof before);
        for (uint32_t set = 0; set < n_sets; set++) {
            for (uint32_t k = 0; k < n_in; k++)
                operands[k] = before[mot_launch_buf(ins, set, k)];
            for (uint32_t k = n_in; k < n; k++)
                values[mot_launch_buf(ins, set, k)] =
                    combine(p->kernels.data[ins->kernel].graph, operands, n_in, k);
        }
    }
}

static uint32_t draw_buf(uint32_t base)
{
    return base + draw(10);
}

static void add_random(MotProgram *p)
{
    uint32_t base = draw(2) ? SMALL : LARGE;
    MotInstr *ins;
    switch (draw(3)) {
    case 0:
        ins = LAUNCH(square, 1, draw_buf(base), draw_buf(base));
        break;
    case 1:
        ins = LAUNCH(norm, 1, draw_buf(base), draw_buf(SCALAR));
        break;
    default:
        ins = LAUNCH(descend, 3, draw_buf(base), draw_buf(base), draw_buf(SCALAR), draw_buf(base));
    }
    ins->role = draw(5) ? MOT_ROLE_UPDATE : MOT_ROLE_DW;
}

static unsigned first_seed = 1, n_seeds = 300;

static void every_buffer_gets_the_same_value(void **state)
{
    (void)state;
    uint32_t n_before = 0, n_after = 0;
    for (unsigned seed = first_seed; seed < first_seed + n_seeds; seed++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        random_state = seed;
        MotProgram *p = make_program(&ctx);
        uint64_t before[N_BUFS], after[N_BUFS];
        for (uint32_t n = 3 + draw(20); n > 0; n--)
            add_random(p);
        evaluate(p, before);
        n_before += p->section[MOT_SECTION_STEP].n;
        finish(p);
        n_after += p->section[MOT_SECTION_STEP].n;
        evaluate(p, after);
        if (memcmp(before, after, sizeof before) != 0)
            fail_msg("seed %u: a buffer differs (test_batch --seed %u)", seed, seed);
        mot_ctx_deinit(&ctx);
    }
    assert_true(n_seeds == 1 || n_after < n_before);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {TEST(shapes_do_not_matter),
                                       TEST(constants_do),
                                       TEST(sums_of_all_elements_join),
                                       TEST(what_is_alone_stays),
                                       TEST(other_kernels_stay),
                                       TEST(a_batch_stands_before_what_reads_it),
                                       TEST(members_do_not_depend_on_each_other),
                                       TEST(wrong_sets_are_refused),
                                       cmocka_unit_test(every_buffer_gets_the_same_value)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
