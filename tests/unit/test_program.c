/*
 * Programs: views of other buffers' memory, what the verifier makes of them, and the places that
 * binding gives.
 */
#include "ir/count.h"
#include "ir/graph_text.h"
#include "passes/lower/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Lowers a graph for one device. */
static MotProgram *lower(MotCtx *ctx, const char *text)
{
    MotGraph *g;
    MotPipeline *pipeline;
    MotCluster *cluster = mot_cluster_make(ctx, 1, 1);
    assert_int_equal(mot_graph_parse(ctx, "test", text, &g), MOT_OK);
    MotPlan *plan = mot_plan_new(ctx, g, cluster);
    MotStage stage = {.mesh = {.n_axes = 1, .n_devices = 1}};
    stage.mesh.axis[0] = (MotMeshAxis){"a", 1, mot_arena_array(&ctx->arena, int64_t, 1)};
    stage.mesh.axis[0].share[0] = 1;
    stage.mesh.devices = mot_arena_array(&ctx->arena, uint32_t, 1);
    mot_vec_push(&ctx->arena, &plan->stages, stage);
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotFactors factors;
        MotOpId id = g->body.data[i];
        memset(plan->ops[id].factor, -1, sizeof plan->ops[id].factor);
        assert_int_equal(mot_factors(g, mot_graph_op(g, id), &factors), MOT_OK);
        mot_plan_apply_factors(plan, id, &factors);
    }
    if (mot_lower(ctx, plan, &pipeline) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return pipeline->stages.data[0];
}

static uint32_t count_steps(const MotProgram *p)
{
    return p->section[MOT_SECTION_STEP].n;
}

static const char packed[] = "graph @t {\n"
                             "  %x = input {name=\"x\"} : f32[5x8]\n"
                             "  %w = input {name=\"w\"} : f32[3x4x8]\n"
                             "  %p = contract %x %w {spec=\"bc,sdc->sbd\"} : f32[3x5x4]\n"
                             "  %1 = slice %p {start=[1, 0, 0], size=[1, 5, 4], step=[1, 1, 1]} : "
                             "f32[1x5x4]\n"
                             "  %q = reshape %1 {dims=[5, 4]} : f32[5x4]\n"
                             "  %y = exp %q : f32[5x4]\n"
                             "  output %y {name=\"y\"}\n"
                             "}\n";

static void slices_of_the_outermost_dim_are_views(void **state)
{
    (void)state;
    MotCtx ctx;
    MotBinding binding;
    mot_ctx_init(&ctx);
    MotProgram *p = lower(&ctx, packed);
    assert_int_equal(mot_program_verify(p), MOT_OK);
    assert_int_equal(count_steps(p), 2); /* contract, exp */
    const MotInstr *contract = &p->section[MOT_SECTION_STEP].data[0], *exp = contract + 1;
    assert_int_equal(mot_program_bind(&ctx, p, 0, &binding), MOT_OK);
    assert_int_equal(binding.arena_offset[exp->bufs[0]] - binding.arena_offset[contract->bufs[2]],
                     5 * 4 * 4);
    mot_ctx_deinit(&ctx);
}

/* By hand: 2 * 3 * 4 * 5 * 8 FLOPs, every tensor read or written once; 20 exponentials. */
static void counts_what_instructions_do(void **state)
{
    (void)state;
    MotCtx ctx;
    MotBinding binding;
    mot_ctx_init(&ctx);
    MotProgram *p = lower(&ctx, packed);
    assert_int_equal(mot_program_bind(&ctx, p, 0, &binding), MOT_OK);
    const MotInstr *ins = p->section[MOT_SECTION_STEP].data;
    MotCount contract = mot_count_instr(&ctx, p, &ins[0], &binding),
             exp = mot_count_instr(&ctx, p, &ins[1], &binding);
    assert_true(contract.flops == 960 && contract.functions == 0 && contract.launches == 1);
    assert_true(contract.bytes == 4 * (5 * 8 + 3 * 4 * 8 + 3 * 5 * 4));
    assert_true(exp.flops == 0 && exp.functions == 20 && exp.bytes == 4 * 40 && exp.launches == 1);
    mot_ctx_deinit(&ctx);
}

static const char joined[] = "graph @t {\n"
                             "  %x = input {name=\"x\"} : f32[2x5]\n"
                             "  %a = exp %x : f32[2x5]\n"
                             "  %1 = neg %a : f32[2x5]\n"
                             "  %b = reshape %1 {dims=[2, 5]} : f32[2x5]\n"
                             "  %c = reduce_max %a {axes=[0], keep} : f32[1x5]\n"
                             "  %j = concat %a %b %c {axis=0} : f32[5x5]\n"
                             "  %y = reduce_sum %j {axes=[1]} : f32[5]\n"
                             "  output %y {name=\"y\"}\n"
                             "}\n";

/* exp and neg, reduce_max and reduce_sum; no copy. */
static void what_a_concat_joins_is_written_in_place(void **state)
{
    (void)state;
    MotCtx ctx;
    MotBinding b;
    mot_ctx_init(&ctx);
    MotProgram *p = lower(&ctx, joined);
    assert_int_equal(mot_program_verify(p), MOT_OK);
    assert_int_equal(count_steps(p), 3);
    const MotInstr *first = &p->section[MOT_SECTION_STEP].data[0];
    assert_int_equal(mot_program_bind(&ctx, p, 0, &b), MOT_OK);
    int64_t whole = b.arena_offset[first[2].bufs[0]];
    assert_int_equal(b.arena_offset[first[0].bufs[1]], whole);
    assert_int_equal(b.arena_offset[first[0].bufs[2]], whole + 40);
    assert_int_equal(b.arena_offset[first[1].bufs[1]], whole + 80);
    mot_ctx_deinit(&ctx);
}

/* An operand that is a parameter, or comes twice, has a place already. */
static void other_concats_are_kernels(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "graph @t {\n  %x = input {name=\"x\"} : f32[2x5]\n  %a = exp %x : f32[2x5]\n"
        "  %j = concat %a %x {axis=0} : f32[4x5]\n  output %j {name=\"y\"}\n}\n",
        "graph @t {\n  %x = input {name=\"x\"} : f32[2x5]\n  %a = exp %x : f32[2x5]\n"
        "  %j = concat %a %a {axis=0} : f32[4x5]\n  output %j {name=\"y\"}\n}\n",
        "graph @t {\n  %x = input {name=\"x\"} : f32[2x5]\n  %a = exp %x : f32[2x5]\n"
        "  %j = concat %a {axis=1} : f32[2x5]\n  output %j {name=\"y\"}\n}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        MotProgram *p = lower(&ctx, texts[i]);
        assert_int_equal(mot_program_verify(p), MOT_OK);
        assert_int_equal(count_steps(p), 2);
        mot_ctx_deinit(&ctx);
    }
}

/* The number of results that lie in the memory of an operand. */
static uint32_t count_reused(const MotProgram *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count_steps(p); i++) {
        const MotInstr *ins = &p->section[MOT_SECTION_STEP].data[i];
        for (uint32_t r = ins->n_in; r < ins->n_bufs; r++)
            for (uint32_t k = 0; k < ins->n_in; k++)
                n += mot_program_owner(p, ins->bufs[r]) == mot_program_owner(p, ins->bufs[k]);
    }
    return n;
}

#define MAKE_A                                                                                     \
    "graph @t {\n  %x = input {name=\"x\"} : f32[5x5]\n"                                           \
    "  %a = contract %x %x {spec=\"ij,jk->ik\"} : f32[5x5]\n"

/* Only where the operand's last reader is elementwise, and the host does not read it after. */
static void elementwise_results_take_over_operands(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t n;
    } cases[] = {
        {MAKE_A "  %b = exp %a : f32[5x5]\n  output %b {name=\"y\"}\n}\n", 1},
        {MAKE_A "  %r = reshape %a {dims=[25]} : f32[25]\n  %b = exp %r : f32[25]\n"
                "  output %b {name=\"y\"}\n}\n",
         1},
        {MAKE_A "  %b = exp %x : f32[5x5]\n  output %b {name=\"y\"}\n  output %a {name=\"a\"}\n}\n",
         0},
        {MAKE_A "  %b = exp %a : f32[5x5]\n  output %b {name=\"y\"}\n  output %a {name=\"a\"}\n}\n",
         0},
        {MAKE_A "  %b = exp %a : f32[5x5]\n  %c = contract %a %b {spec=\"ij,jk->ik\"} : f32[5x5]\n"
                "  output %c {name=\"y\"}\n}\n",
         0},
        {MAKE_A "  %s = slice %a {start=[1, 0], size=[1, 5], step=[1, 1]} : f32[1x5]\n"
                "  %b = add %a %s : f32[5x5]\n  output %b {name=\"y\"}\n}\n",
         0},
        {MAKE_A "  %b = reduce_sum %a {axes=[1]} : f32[5]\n  output %b {name=\"y\"}\n}\n", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        MotProgram *p = lower(&ctx, cases[i].text);
        assert_int_equal(mot_program_verify(p), MOT_OK);
        if (count_reused(p) != cases[i].n)
            fail_msg("case %zu: %u results in place", i, count_reused(p));
        mot_ctx_deinit(&ctx);
    }
}

enum { N_BLOCKS = 400, N_SEEDS = 20 };

/* Instruction i makes buffer i of a random size out of some of the last 30. */
static MotProgram *make_random(MotCtx *ctx, unsigned *seed)
{
    MotProgram *p = lower(ctx, packed);
    p->bufs.n = p->outputs.n = 0;
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        p->section[s].n = 0;
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        int64_t size = (int64_t)1 << rand_r(seed) % 14;
        MotType type = mot_type_make(MOT_F32, 1, &(int64_t){size + rand_r(seed) % 100});
        MotBuf buf = {.type = type, .global = type, .copies = 1};
        MotInstr ins = {.n_in = i < 30 ? 0 : (uint32_t)rand_r(seed) % 4};
        ins.bufs = mot_arena_array(&ctx->arena, uint32_t, ins.n_in + 1);
        for (uint32_t k = 0; k < ins.n_in; k++)
            ins.bufs[k] = i - 1 - (uint32_t)rand_r(seed) % 30;
        ins.bufs[ins.n_in] = i;
        ins.n_bufs = ins.n_in + 1;
        mot_vec_push(&ctx->arena, &p->bufs, buf);
        mot_vec_push(&ctx->arena, &p->section[MOT_SECTION_STEP], ins);
    }
    return p;
}

/* Buffers that live at the same time lie apart, in little more memory than they take together. */
static void scratch_is_packed(void **state)
{
    (void)state;
    double ratio = 0;
    for (unsigned seed = 1; seed <= N_SEEDS; seed++) {
        MotCtx ctx;
        MotBinding b;
        unsigned random = seed;
        uint32_t last[N_BLOCKS];
        int64_t most = 0;
        mot_ctx_init(&ctx);
        const MotProgram *p = make_random(&ctx, &random);
        assert_int_equal(mot_program_bind(&ctx, p, 0, &b), MOT_OK);
        for (uint32_t i = 0; i < N_BLOCKS; i++)
            for (uint32_t k = 0; k < p->section[MOT_SECTION_STEP].data[i].n_bufs; k++)
                last[p->section[MOT_SECTION_STEP].data[i].bufs[k]] = i;
        for (uint32_t at = 0; at < N_BLOCKS; at++) {
            int64_t live = 0;
            for (uint32_t i = 0; i <= at; i++) {
                live += last[i] >= at ? b.stride[i] : 0;
                if (i < at && last[i] >= at &&
                    b.arena_offset[i] < b.arena_offset[at] + b.stride[at] &&
                    b.arena_offset[at] < b.arena_offset[i] + b.stride[i])
                    fail_msg("seed %u: buffers %u and %u overlap", seed, i, at);
            }
            most = live > most ? live : most;
        }
        ratio += (double)b.arena_bytes / (double)most / (double)N_SEEDS;
        mot_ctx_deinit(&ctx);
    }
    if (ratio > 1.07) /* 1.05; in the order of the program 1.11 */
        fail_msg("%.3f times the memory that lives at once", ratio);
}

static void expect_refused(MotCtx *ctx, const MotProgram *p, const char *why)
{
    assert_int_equal(mot_program_verify(p), MOT_ERR_MISMATCH);
    if (!strstr(mot_text_get(&ctx->error), why))
        fail_msg("not \"%s\" but: %s", why, mot_text_get(&ctx->error));
    mot_ctx_deinit(ctx);
}

static void views_beyond_their_buffer_are_refused(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    MotProgram *p = lower(&ctx, packed);
    for (uint32_t i = 0; i < p->bufs.n; i++)
        if (p->bufs.data[i].alias_start)
            p->bufs.data[i].alias_start = 3;
    expect_refused(&ctx, p, "is no view of whole entries");
}

/* Without the last part the sum reads what nothing wrote. */
static void parts_that_nothing_wrote_are_refused(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    MotProgram *p = lower(&ctx, joined);
    MotInstr *ins = p->section[MOT_SECTION_STEP].data;
    ins[1] = ins[2];
    p->section[MOT_SECTION_STEP].n = 2;
    expect_refused(&ctx, p, "reads a buffer that nothing wrote");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_the_outermost_dim_are_views),
        cmocka_unit_test(counts_what_instructions_do),
        cmocka_unit_test(what_a_concat_joins_is_written_in_place),
        cmocka_unit_test(other_concats_are_kernels),
        cmocka_unit_test(elementwise_results_take_over_operands),
        cmocka_unit_test(scratch_is_packed),
        cmocka_unit_test(views_beyond_their_buffer_are_refused),
        cmocka_unit_test(parts_that_nothing_wrote_are_refused),
    };
    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
