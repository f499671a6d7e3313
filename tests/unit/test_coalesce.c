/*
 * Joined collectives and the events between the streams: what joins and where it starts, and for
 * random programs that every buffer gets the same value as in the program before.
 *
 *     test_coalesce [--seed N]      reproduces one failure
 */
#include "ir/builder.h"
#include "passes/lower/coalesce.h"
#include "passes/lower/events.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Buffers 0 to 15 are whole, 16 to 31 the parts of two ranks. */
enum { WHOLE, SPLIT = 16, N_BUFS = 32 };

/* `elements` a buffer; all are parameters, so that none has to be written first. */
static MotProgram *make_program(MotCtx *ctx, int64_t elements)
{
    MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
    static int64_t even[] = {1, 1};
    *p = (MotProgram){.ctx = ctx, .name = "p", .n_micro = 1};
    p->mesh = (MotMesh){.axis = {{"x", 2, even}, {"y", 2, even}}, .n_axes = 2, .n_devices = 4};
    mot_vec_push(&ctx->arena, &p->dims, (MotDim){.name = "h", .size = elements, .granule = 1});
    for (int i = 0; i < N_BUFS; i++) {
        MotBuf buf = {
            .kind = MOT_BUF_PARAM, .global = mot_type_make(MOT_F32, 1, &elements), .copies = 1};
        buf.type = buf.global;
        if (i >= SPLIT)
            buf.type.dims[0] = -1;
        mot_vec_push(&ctx->arena, &p->bufs, buf);
    }
    return p;
}

/* A kernel that takes and gives what these buffers hold; what it computes is no matter here. */
static uint32_t add_kernel(MotProgram *p, const uint32_t *bufs, uint32_t n_in, uint32_t n_bufs)
{
    MotBuilder b = mot_builder_make(mot_graph_make(p->ctx, "k"));
    MotValue x = 0;
    for (uint32_t k = 0; k < n_in; k++)
        x = mot_input(&b, "x", p->bufs.data[bufs[k]].type);
    for (uint32_t k = n_in; k < n_bufs; k++) {
        MotOpId op = mot_build_typed(&b, MOT_OP_NEG, &x, 1, NULL, &p->bufs.data[bufs[k]].type);
        mot_output(&b, "y", mot_result(&b, op, 0));
    }
    mot_vec_push(&p->ctx->arena, &p->kernels, (MotKernel){"k", b.graph, NULL, 0});
    return p->kernels.n - 1;
}

static MotInstr *add(MotProgram *p, MotInstrKind kind, uint32_t n_in, const uint32_t *bufs,
                     uint32_t n_bufs)
{
    MotArena *arena = &p->ctx->arena;
    MotInstr ins = {.kind = kind, .n_in = n_in, .n_bufs = n_bufs};
    ins.bufs = mot_arena_copy(arena, bufs, n_bufs * sizeof *bufs);
    if (kind == MOT_INS_LAUNCH) {
        ins.kernel = add_kernel(p, bufs, n_in, n_bufs);
    } else {
        ins.stream = MOT_STREAM_COMM;
        ins.moves = mot_arena_array(arena, MotMove, n_in);
        ins.moves[0] = (MotMove){kind == MOT_INS_ALL_REDUCE ? -1 : 0, -1};
    }
    mot_vec_push(arena, &p->section[MOT_SECTION_STEP], ins);
    return &p->section[MOT_SECTION_STEP].data[p->section[MOT_SECTION_STEP].n - 1];
}

#define BUFS(...)                                                                                  \
    (uint32_t[]){__VA_ARGS__}, (uint32_t)(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define LAUNCH(n_in, ...) add(p, MOT_INS_LAUNCH, n_in, BUFS(__VA_ARGS__))
#define COLLECT(kind, from, to) add(p, MOT_INS_##kind, 1, BUFS(from, to))

/* The section's instructions, as in the program's text, without what is the same everywhere. */
static const char *finish(MotProgram *p)
{
    MotText text;
    mot_coalesce(p, MOT_SECTION_STEP);
    mot_add_events(p, MOT_SECTION_STEP);
    mot_text_init(&text, &p->ctx->arena);
    for (uint32_t i = 0; i < p->section[MOT_SECTION_STEP].n; i++) {
        const MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
        mot_text_printf(&text, "%s", mot_instr_names[ins->kind]);
        for (uint32_t k = 0; k < ins->n_bufs; k++)
            mot_text_printf(&text, "%s%u", k == ins->n_in ? " > " : " ", ins->bufs[k]);
        mot_text_printf(&text, "\n");
    }
    return mot_text_get(&text);
}

static void gradients_are_reduced_together_once_all_are_there(void **state)
{
    MotProgram *p = make_program(*state, 8);
    LAUNCH(1, 0, 1);
    LAUNCH(1, 0, 2);
    COLLECT(REDUCE_SCATTER, 1, SPLIT + 1);
    LAUNCH(1, SPLIT + 1, SPLIT + 3);
    COLLECT(REDUCE_SCATTER, 2, SPLIT + 2);
    LAUNCH(1, SPLIT + 2, SPLIT + 4);
    assert_string_equal(finish(p), "launch 0 > 1\n"
                                   "launch 0 > 2\n"
                                   "reduce_scatter 1 2 > 17 18\n"
                                   "launch 17 > 19\n"
                                   "launch 18 > 20\n");
    assert_int_equal(mot_program_verify(p), MOT_OK);
}

static void a_bucket_starts_where_its_sources_are_ready(void **state)
{
    MotProgram *p = make_program(*state, 8);
    LAUNCH(1, 0, 1);
    LAUNCH(1, 0, 2);
    LAUNCH(1, 0, 3);
    COLLECT(ALL_REDUCE, 1, 4);
    LAUNCH(1, 4, 5);
    assert_string_equal(finish(p), "launch 0 > 1\n"
                                   "all_reduce 1 > 4\n"
                                   "launch 0 > 2\n"
                                   "launch 0 > 3\n"
                                   "launch 4 > 5\n");
    const uint32_t *done = mot_program_completions(*state, p, MOT_SECTION_STEP);
    assert_int_equal(done[1], 4);
    assert_int_equal(mot_program_verify(p), MOT_OK);
}

/* What is ready early does not wait for what comes much later: 20 kernels of 22. */
static void a_bucket_waits_for_nothing_far_behind(void **state)
{
    MotProgram *p = make_program(*state, 8);
    LAUNCH(1, 0, 1);
    COLLECT(ALL_REDUCE, 1, 4);
    for (int i = 0; i < 20; i++)
        LAUNCH(1, 0, 2);
    COLLECT(ALL_REDUCE, 2, 5);
    LAUNCH(2, 4, 5, 6);
    assert_non_null(strstr(finish(p), "launch 0 > 1\n"
                                      "all_reduce 1 > 4\n"
                                      "launch 0 > 2\n"));
    assert_int_equal(mot_program_verify(p), MOT_OK);
}

static void what_depends_on_a_result_does_not_join_it(void **state)
{
    MotProgram *p = make_program(*state, 8);
    COLLECT(ALL_GATHER, SPLIT, 0);
    COLLECT(REDUCE_SCATTER, 0, SPLIT + 1);
    COLLECT(ALL_GATHER, SPLIT + 1, 1);
    assert_string_equal(finish(p), "all_gather 16 > 0\n"
                                   "reduce_scatter 0 > 17\n"
                                   "all_gather 17 > 1\n");
    const uint32_t *done = mot_program_completions(*state, p, MOT_SECTION_STEP);
    assert_int_equal(done[0], 3); /* nobody waits: the end of the section */
}

static void kinds_axes_and_reductions_do_not_mix(void **state)
{
    MotProgram *p = make_program(*state, 8);
    COLLECT(ALL_REDUCE, 0, 8);
    COLLECT(ALL_REDUCE, 1, 9)->is_max = true;
    COLLECT(ALL_REDUCE, 2, 10)->axis = 1;
    COLLECT(ALL_GATHER, SPLIT, 11);
    COLLECT(ALL_REDUCE, 3, 12);
    assert_string_equal(finish(p), "all_reduce 0 3 > 8 12\n"
                                   "all_reduce 1 > 9\n"
                                   "all_reduce 2 > 10\n"
                                   "all_gather 16 > 11\n");
}

static void full_buckets_are_closed(void **state)
{
    MotProgram *p = make_program(*state, 1 << 18); /* of one mebibyte */
    for (uint32_t i = 0; i < 12; i++)
        COLLECT(REDUCE_SCATTER, i, SPLIT + i);
    finish(p);
    assert_int_equal(p->section[MOT_SECTION_STEP].n, 6); /* an eighth of twelve is more than one */
}

static void the_verifier_misses_a_wait(void **state)
{
    MotCtx *ctx = *state;
    MotProgram *p = make_program(ctx, 8);
    LAUNCH(1, 0, 1);
    COLLECT(ALL_REDUCE, 1, 2);
    LAUNCH(1, 2, 3);
    finish(p);
    assert_int_equal(mot_program_verify(p), MOT_OK);
    for (uint32_t i = 1; i < 3; i++) {
        p->section[MOT_SECTION_STEP].data[i].wait.n--;
        assert_int_equal(mot_program_verify(p), MOT_ERR_MISMATCH);
        assert_non_null(strstr(mot_text_get(&ctx->error), "the other stream may still hold"));
        p->section[MOT_SECTION_STEP].data[i].wait.n++;
        mot_error_clear(ctx);
    }
    /* A destination in the memory of a source: the peers may still read it. */
    p->section[MOT_SECTION_STEP].data[1].bufs[1] = 1;
    assert_int_equal(mot_program_verify(p), MOT_ERR_MISMATCH);
    mot_error_clear(ctx);
}

/* ---- Random programs ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t words[] = {a, b};
    return mot_hash((const char *)words, sizeof words);
}

/* The value of each buffer after the section, as a hash of how it came about. */
static void interpret(const MotProgram *p, uint64_t *value)
{
    for (uint32_t b = 0; b < N_BUFS; b++)
        value[b] = b;
    for (uint32_t i = 0; i < p->section[MOT_SECTION_STEP].n; i++) {
        const MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
        bool is_launch = ins->kind == MOT_INS_LAUNCH;
        uint64_t made[N_BUFS], read = ins->channel; /* the launch's number */
        for (uint32_t k = 0; is_launch && k < ins->n_in; k++)
            read = mix(read, value[ins->bufs[k]]);
        for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
            made[k] = is_launch ? mix(read, k)
                                : mix(value[ins->bufs[k - ins->n_in]],
                                      (uint64_t)ins->kind + 16 * (uint64_t)ins->axis +
                                          64 * (uint64_t)ins->is_max);
        for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
            value[ins->bufs[k]] = made[k];
    }
}

static MotProgram *make_random(MotCtx *ctx, unsigned *seed)
{
    MotProgram *p = make_program(ctx, 1 << (rand_r(seed) % 3 * 9));
    for (uint32_t i = 0, n = 20 + (uint32_t)rand_r(seed) % 60; i < n; i++) {
        uint32_t whole = (uint32_t)rand_r(seed) % SPLIT, other = (uint32_t)rand_r(seed) % SPLIT;
        switch (rand_r(seed) % 5) {
        case 0:
            COLLECT(ALL_GATHER, SPLIT + whole, other);
            break;
        case 1:
            COLLECT(REDUCE_SCATTER, whole, SPLIT + other);
            break;
        case 2:
            if (whole != other) {
                MotInstr *ins = COLLECT(ALL_REDUCE, whole, other);
                ins->axis = (uint32_t)rand_r(seed) % 2;
                ins->is_max = rand_r(seed) % 4 == 0;
            }
            break;
        default:
            LAUNCH(2, (uint32_t)rand_r(seed) % N_BUFS, (uint32_t)rand_r(seed) % N_BUFS,
                   (uint32_t)rand_r(seed) % N_BUFS)
                ->channel = i;
        }
    }
    return p;
}

static unsigned first_seed = 1, n_seeds = 400;

static void random_programs_compute_the_same(void **state)
{
    MotCtx *ctx = *state;
    uint32_t n_joined = 0;
    for (unsigned s = first_seed; s < first_seed + n_seeds; s++) {
        MotScope scope = mot_scope_begin(ctx);
        uint64_t before[N_BUFS], after[N_BUFS];
        unsigned seed = s;
        MotProgram *p = make_random(ctx, &seed);
        uint32_t n = p->section[MOT_SECTION_STEP].n;
        interpret(p, before);
        finish(p);
        interpret(p, after);
        n_joined += n - p->section[MOT_SECTION_STEP].n;
        if (memcmp(before, after, sizeof before) != 0)
            fail_msg("seed %u: a buffer has another value (test_coalesce --seed %u)", s, s);
        if (mot_program_verify(p) != MOT_OK)
            fail_msg("seed %u: %s (test_coalesce --seed %u)", s, mot_text_get(&ctx->error), s);
        mot_scope_end(ctx, scope);
    }
    assert_true(n_joined > 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(gradients_are_reduced_together_once_all_are_there),
        TEST(a_bucket_starts_where_its_sources_are_ready),
        TEST(a_bucket_waits_for_nothing_far_behind),
        TEST(what_depends_on_a_result_does_not_join_it),
        TEST(kinds_axes_and_reductions_do_not_mix),
        TEST(full_buckets_are_closed),
        TEST(the_verifier_misses_a_wait),
        TEST(random_programs_compute_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
