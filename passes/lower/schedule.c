/*
 * Both schedules are a warm-up of forward passes, pairs, and the rest: they differ in the warm-up's
 * length.
 */
#include "passes/lower/schedule.h"

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t find_warmup(MotSchedule schedule, uint32_t stage, uint32_t n_stages,
                            uint32_t n_micro)
{
    return schedule == MOT_SCHEDULE_GPIPE ? n_micro : min_u32(n_stages - 1 - stage, n_micro);
}

uint32_t mot_schedule_in_flight(MotSchedule schedule, uint32_t stage, uint32_t n_stages,
                                uint32_t n_micro)
{
    return min_u32(find_warmup(schedule, stage, n_stages, n_micro) + 1, n_micro);
}

static void push(MotProgram *p, MotSection section, uint32_t micro)
{
    mot_vec_push(&p->ctx->arena, &p->order, ((MotRun){section, micro}));
}

void mot_schedule_order(MotProgram *p, MotSchedule schedule, uint32_t stage, uint32_t n_stages)
{
    uint32_t m = p->n_micro, warmup = find_warmup(schedule, stage, n_stages, m);
    if (m == 1)
        return;
    for (uint32_t i = 0; i < warmup; i++)
        push(p, MOT_SECTION_FORWARD, i);
    for (uint32_t i = warmup; i < m; i++) {
        push(p, MOT_SECTION_FORWARD, i);
        push(p, MOT_SECTION_BACKWARD, i - warmup);
    }
    for (uint32_t i = m - warmup; i < m; i++)
        push(p, MOT_SECTION_BACKWARD, i);
}
