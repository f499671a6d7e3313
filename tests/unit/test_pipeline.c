/*
 * Schedules against the bubbles of the literature, and the verifier of pipelines against programs
 * that can't work.
 */
#include "passes/lower/lower.h"
#include "passes/lower/schedule.h"
#include "support/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- Schedules ---- */

enum { MAX_STAGES = 6, MAX_MICRO = 12, T_FORWARD = 2, T_BACKWARD = 3 };

typedef struct {
    MotProgram *stage[MAX_STAGES];
    uint32_t n_stages, n_micro;
    long end[2][MAX_STAGES][MAX_MICRO]; /* of a forward or backward run; 0: not yet */
} Timeline;

/* The time when the run can begin as far as other stages matter; -1: not known yet. */
static long ready(const Timeline *t, uint32_t stage, const MotRun *run)
{
    bool is_forward = run->section == MOT_SECTION_FORWARD;
    if (is_forward && stage == 0)
        return 0;
    if (!is_forward && stage + 1 == t->n_stages)
        return t->end[0][stage][run->micro] ? 0 : -1;
    long end = is_forward ? t->end[0][stage - 1][run->micro] : t->end[1][stage + 1][run->micro];
    return end ? end : -1;
}

/* Runs all orders; the time of the last end. */
static long run_orders(Timeline *t)
{
    uint32_t at[MAX_STAGES] = {0}, n_done = 0;
    long now[MAX_STAGES] = {0}, last = 0;
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t s = 0; s < t->n_stages; s++)
            while (at[s] < t->stage[s]->order.n) {
                const MotRun *run = &t->stage[s]->order.data[at[s]];
                long begin = ready(t, s, run);
                if (begin < 0)
                    break;
                bool is_forward = run->section == MOT_SECTION_FORWARD;
                now[s] = (begin > now[s] ? begin : now[s]) + (is_forward ? T_FORWARD : T_BACKWARD);
                t->end[!is_forward][s][run->micro] = now[s];
                last = now[s] > last ? now[s] : last;
                at[s]++;
                n_done++;
                has_moved = true;
            }
    }
    assert_int_equal(n_done, 2 * t->n_stages * t->n_micro);
    return last;
}

/*
 * The most micro-batches that are between the beginning of their forward pass and the end of their
 * backward pass.
 */
static uint32_t count_in_flight(const MotProgram *p)
{
    uint32_t now = 0, most = 0;
    for (uint32_t i = 0; i < p->order.n; i++) {
        now += p->order.data[i].section == MOT_SECTION_FORWARD;
        most = now > most ? now : most;
        now -= p->order.data[i].section == MOT_SECTION_BACKWARD;
    }
    assert_int_equal(now, 0);
    return most;
}

/*
 * p stages and m micro-batches take (m + p - 1) forward and backward passes: the bubble is p - 1 of
 * them.
 */
static void schedules_have_the_bubble_and_the_memory_that_they_should(void **state)
{
    (void)state;
    for (uint32_t p = 1; p <= MAX_STAGES; p++)
        for (uint32_t m = 2; m <= MAX_MICRO; m++)
            for (int schedule = MOT_SCHEDULE_GPIPE; schedule <= MOT_SCHEDULE_1F1B; schedule++) {
                MotCtx ctx;
                Timeline t = {.n_stages = p, .n_micro = m};
                mot_ctx_init(&ctx);
                for (uint32_t i = 0; i < p; i++) {
                    t.stage[i] = mot_arena_new(&ctx.arena, MotProgram);
                    t.stage[i]->ctx = &ctx;
                    t.stage[i]->n_micro = m;
                    mot_schedule_order(t.stage[i], (MotSchedule)schedule, i, p);
                    uint32_t most = schedule == MOT_SCHEDULE_GPIPE ? m : p - i < m ? p - i : m;
                    assert_int_equal(count_in_flight(t.stage[i]), most);
                    assert_int_equal(mot_schedule_in_flight((MotSchedule)schedule, i, p, m), most);
                }
                assert_int_equal(run_orders(&t), (m + p - 1) * (T_FORWARD + T_BACKWARD));
                mot_ctx_deinit(&ctx);
            }
}

/* ---- Verifier ---- */

static MotPipeline *lower_two_stages(MotCtx *ctx)
{
    const MotFileMap *map;
    MotPlan *plan;
    MotPipeline *pipeline;
    const char *path = "tests/plans/mlp_two_stages.mot";
    assert_int_equal(mot_file_map(ctx, path, &map), MOT_OK);
    const char *text = mot_arena_strndup(&ctx->arena, (const char *)map->data, map->n);
    assert_int_equal(mot_plan_parse(ctx, path, text, &plan), MOT_OK);
    assert_int_equal(mot_lower(ctx, plan, &pipeline), MOT_OK);
    assert_int_equal(mot_pipeline_verify(pipeline), MOT_OK);
    return pipeline;
}

static MotInstr *find_instr(MotProgram *p, MotSection section, MotInstrKind kind)
{
    for (uint32_t i = 0; i < p->section[section].n; i++)
        if (p->section[section].data[i].kind == kind)
            return &p->section[section].data[i];
    fail_msg("no %s in section %s", mot_instr_names[kind], mot_section_names[section]);
    return NULL;
}

static void receive_twice(MotPipeline *pipeline)
{
    MotProgram *p = pipeline->stages.data[1];
    MotInstr again = *find_instr(p, MOT_SECTION_FORWARD, MOT_INS_RECV);
    mot_vec_push(&p->ctx->arena, &p->section[MOT_SECTION_FORWARD], again);
}

static void send_once(MotPipeline *pipeline)
{
    find_instr(pipeline->stages.data[0], MOT_SECTION_FORWARD, MOT_INS_SEND)->when = MOT_WHEN_FIRST;
}

static void send_something_else(MotPipeline *pipeline)
{
    pipeline->channels.data[0].source++;
}

static void go_backward_first(MotPipeline *pipeline)
{
    MotProgram *p = pipeline->stages.data[1];
    for (uint32_t i = 0; i + 1 < p->order.n; i++)
        if (p->order.data[i].section == MOT_SECTION_FORWARD &&
            p->order.data[i + 1].section == MOT_SECTION_BACKWARD) {
            MotRun run = p->order.data[i];
            p->order.data[i] = p->order.data[i + 1];
            p->order.data[i + 1] = run;
            return;
        }
}

static void forget_the_update(MotPipeline *pipeline)
{
    pipeline->stages.data[0]->order.n--;
}

static void set_copies(MotProgram *p, uint32_t copies)
{
    for (uint32_t i = 0; i < p->bufs.n; i++)
        if (p->bufs.data[i].kind == MOT_BUF_SCRATCH)
            p->bufs.data[i].copies = copies;
}

/* Two micro-batches are in flight in stage 0. */
static void keep_one_copy(MotPipeline *pipeline)
{
    set_copies(pipeline->stages.data[0], 1);
}

/*
 * All forward passes first in stage 1, while stage 0 waits for the first gradient before its third.
 */
static void mix_schedules(MotPipeline *pipeline)
{
    MotProgram *p = pipeline->stages.data[1];
    set_copies(p, p->n_micro);
    p->order.n = p->n_micro; /* the counts */
    mot_schedule_order(p, MOT_SCHEDULE_GPIPE, 1, 2);
    mot_vec_push(&p->ctx->arena, &p->order, ((MotRun){MOT_SECTION_STEP, 0}));
}

static void pipelines_that_cannot_work_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*edit)(MotPipeline *);
        const char *cause;
    } cases[] = {
        {receive_twice, "not one send and one receive"},
        {send_once, "do not run equally often"},
        {send_something_else, "not the same value"},
        {go_backward_first, "before its forward pass"},
        {forget_the_update, "does not end with its step"},
        {keep_one_copy, "than a buffer has copies"},
        {mix_schedules, "wait for one another"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        MotPipeline *pipeline = lower_two_stages(&ctx);
        cases[i].edit(pipeline);
        MotStatus status = mot_pipeline_verify(pipeline);
        if (status != MOT_ERR_MISMATCH || !strstr(mot_text_get(&ctx.error), cases[i].cause))
            fail_msg("case %zu: status %d, %s", i, status, mot_text_get(&ctx.error));
        mot_ctx_deinit(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_have_the_bubble_and_the_memory_that_they_should),
        cmocka_unit_test(pipelines_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
