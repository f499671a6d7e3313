/*
 * Tables of seconds by instruction and rank, and a walk over them with a clock a rank and one for
 * what travels.
 */
#include "passes/plan/simulate.h"

#include "ir/balance.h"
#include "ir/count.h"

#include <math.h>
#include <string.h>

/* A section under the shares at hand. */
typedef struct {
    uint32_t *done_at;  /* [n]: before which position a collective is complete */
    bool *is_resizable; /* [n] */
    double *busy;       /* [n][ranks]: seconds of what meets nobody; 0 of a launch that idles */
    double *link;       /* [n]: seconds of a collective; negative: it idles */
} Section;

struct MotSimulation {
    MotCtx *ctx;
    const MotCost *cost;
    MotProgram program; /* with shares of its own */
    uint32_t n;         /* ranks */
    int64_t share[MOT_MAX_DEVICES];
    bool is_bound;
    MotLink *links; /* [n][n] */
    Section section[MOT_N_SECTIONS];
};

MotSimulation *mot_simulation_make(MotCtx *ctx, const MotProgram *program, const MotCost *cost)
{
    MotArena *arena = &ctx->arena;
    MotSimulation *s = mot_arena_new(arena, MotSimulation);
    *s = (MotSimulation){.ctx = ctx, .cost = cost, .program = *program, .n = cost->n};
    MOT_ASSERT(program->mesh.n_axes == 1 && s->n <= MOT_MAX_DEVICES);
    s->program.mesh.axis[0].share = s->share;
    s->links = mot_arena_array(arena, MotLink, (size_t)s->n * s->n);
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->n; k++)
            s->links[i * s->n + k] =
                mot_cost_link(cost->cluster, cost->mesh->devices[i], cost->mesh->devices[k]);
    for (int k = 0; k < MOT_N_SECTIONS; k++) {
        uint32_t n = program->section[k].n;
        s->section[k] = (Section){
            mot_program_completions(ctx, program, (MotSection)k), mot_arena_array(arena, bool, n),
            mot_arena_array(arena, double, (size_t)n * s->n), mot_arena_array(arena, double, n)};
        for (uint32_t i = 0; i < n; i++)
            s->section[k].is_resizable[i] =
                mot_instr_is_resizable(program, &program->section[k].data[i]);
    }
    return s;
}

/* ---- Shares ---- */

/* The slowest link that the rank has, for these bytes. */
static double seconds_of_link(const MotSimulation *s, uint32_t rank, double bytes)
{
    double seconds = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        const MotLink *link = &s->links[rank * s->n + k];
        if (k != rank)
            seconds = fmax(seconds, link->latency + bytes / link->bandwidth);
    }
    return seconds;
}

static void bind_instr(MotSimulation *s, const MotBinding *binding, MotSection section, uint32_t i)
{
    const MotInstr *ins = &s->program.section[section].data[i];
    Section *t = &s->section[section];
    bool is_idle = mot_instr_is_idle(&s->program, binding, ins);
    uint32_t rank = binding->position;
    double *link = &t->link[i], *busy = &t->busy[(size_t)i * s->n + rank];
    if (mot_instr_is_collective(ins)) {
        double bytes = is_idle ? 0 : (double)mot_count_received(&s->program, ins, binding);
        *link = is_idle ? -1 : fmax(rank ? *link : 0, seconds_of_link(s, rank, bytes));
        return;
    }
    MotCount count = {0};
    if (!is_idle)
        count = mot_count_instr(s->ctx, &s->program, ins, binding);
    *busy = mot_count_seconds(&count, &s->cost->rate[rank]);
}

static void bind(MotSimulation *s, const int64_t *share)
{
    memcpy(s->share, share, s->n * sizeof *share);
    MotArenaMark mark = mot_arena_mark(&s->ctx->arena);
    for (uint32_t rank = 0; rank < s->n; rank++) {
        MotBinding binding;
        MotStatus status = mot_program_bind(s->ctx, &s->program, rank, &binding);
        MOT_ASSERT(status == MOT_OK);
        for (int k = 0; k < MOT_N_SECTIONS; k++)
            for (uint32_t i = 0; k != MOT_SECTION_EVAL && i < s->program.section[k].n; i++)
                bind_instr(s, &binding, (MotSection)k, i);
        mot_arena_rewind(&s->ctx->arena, mark);
    }
    s->is_bound = true;
}

/* ---- The walk ---- */

typedef struct {
    const MotSimulation *s;
    const MotPace *pace;
    MotPace *busy;
    double *issued; /* by instruction: when the last rank issued a collective */
    double now[MOT_MAX_DEVICES], link;
} Walk;

static double find_latest(const Walk *w)
{
    double latest = 0;
    for (uint32_t i = 0; i < w->s->n; i++)
        latest = fmax(latest, w->now[i]);
    return latest;
}

/*
 * From collective `next` on, those that are to be complete before position `before`; returns the
 * next one.
 */
static uint32_t complete(Walk *w, MotRun run, uint32_t next, uint32_t before)
{
    const Section *t = &w->s->section[run.section];
    bool any = false;
    for (; next < before; next++) {
        const MotInstr *ins = &w->s->program.section[run.section].data[next];
        if (!mot_instr_is_collective(ins) || !mot_instr_is_due(ins, run.micro) || t->link[next] < 0)
            continue;
        if (t->done_at[next] > before)
            break;
        double start = w->s->cost->overlaps ? w->issued[next] : find_latest(w);
        w->link = fmax(w->link, start) + t->link[next];
        any = true;
    }
    for (uint32_t i = 0; any && i < w->s->n; i++)
        w->now[i] = fmax(w->now[i], w->link);
    return next;
}

static void work(Walk *w, const Section *t, uint32_t at)
{
    for (uint32_t i = 0; i < w->s->n; i++) {
        double seconds = t->busy[(size_t)at * w->s->n + i];
        seconds *= t->is_resizable[at] ? w->pace[i].resizable : w->pace[i].other;
        w->now[i] += seconds;
        if (w->busy)
            *(t->is_resizable[at] ? &w->busy[i].resizable : &w->busy[i].other) += seconds;
    }
}

static void run_section(Walk *w, MotRun run)
{
    const Section *t = &w->s->section[run.section];
    uint32_t n = w->s->program.section[run.section].n, next = 0;
    MotArena *arena = &w->s->ctx->arena;
    MotArenaMark mark = mot_arena_mark(arena);
    w->issued = mot_arena_array(arena, double, n);
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &w->s->program.section[run.section].data[i];
        next = complete(w, run, next, i);
        if (!mot_instr_is_due(ins, run.micro))
            continue;
        if (mot_instr_is_collective(ins))
            w->issued[i] = find_latest(w);
        else
            work(w, t, i);
    }
    complete(w, run, next, n);
    mot_arena_rewind(arena, mark);
}

double mot_simulation_run(MotSimulation *s, const int64_t *share, const MotPace *pace,
                          MotPace *out_busy)
{
    Walk w = {.s = s, .pace = pace, .busy = out_busy};
    if (!s->is_bound || memcmp(s->share, share, s->n * sizeof *share) != 0)
        bind(s, share);
    if (out_busy)
        memset(out_busy, 0, s->n * sizeof *out_busy);
    for (uint32_t i = 0; i < s->program.order.n; i++)
        run_section(&w, s->program.order.data[i]);
    return find_latest(&w);
}
