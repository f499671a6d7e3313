/* Kernels that nobody waits for run while a collective travels. */
#include "passes/lower/delay.h"

enum {
    MAX_HELD = 4,
    FAR = 24,     /* instructions to the first use of what a kernel makes: nobody waits for it */
    HORIZON = 16, /* instructions to the next exposed collective: it is worth holding a kernel */
};

typedef struct {
    const MotProgram *program;
    const MotInstr *ins;
    uint32_t n;
    bool *is_far;           /* [n]: a kernel that nobody waits for */
    bool *is_exposed;       /* [n]: a collective of what the instruction before it made */
    uint32_t *held, n_held; /* by age */
    uint32_t *order, n_order;
} Delayer;

static uint32_t owner_of(const Delayer *d, uint32_t i, uint32_t k)
{
    return mot_program_owner(d->program, d->ins[i].bufs[k]);
}

static void find_far(Delayer *d)
{
    /* By memory: the next instruction that touches it. */
    uint32_t *next = mot_arena_array(&d->program->ctx->arena, uint32_t, d->program->bufs.n);
    for (uint32_t b = 0; b < d->program->bufs.n; b++)
        next[b] = UINT32_MAX;
    for (uint32_t i = d->n; i-- > 0;) {
        const MotInstr *ins = &d->ins[i];
        d->is_far[i] = ins->kind == MOT_INS_LAUNCH && ins->when == MOT_WHEN_ALL;
        for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
            d->is_far[i] = d->is_far[i] && next[owner_of(d, i, k)] - i >= FAR;
        for (uint32_t k = 0; k < ins->n_bufs; k++)
            next[owner_of(d, i, k)] = i;
    }
}

/* Whether instruction i writes what j touches, or touches what j writes. */
static bool conflicts(const Delayer *d, uint32_t i, uint32_t j)
{
    for (uint32_t k = 0; k < d->ins[i].n_bufs; k++)
        for (uint32_t l = 0; l < d->ins[j].n_bufs; l++)
            if ((k >= d->ins[i].n_in || l >= d->ins[j].n_in) &&
                owner_of(d, i, k) == owner_of(d, j, l))
                return true;
    return false;
}

static void find_exposed(Delayer *d)
{
    for (uint32_t i = 1, before = 0; i < d->n; i++)
        if (!mot_instr_is_collective(&d->ins[i]))
            before = i;
        else
            d->is_exposed[i] = d->ins[before].kind == MOT_INS_LAUNCH && conflicts(d, before, i);
}

static void release(Delayer *d, uint32_t n)
{
    for (uint32_t i = 0; i < d->n_held; i++)
        if (i < n)
            d->order[d->n_order++] = d->held[i];
        else
            d->held[i - n] = d->held[i];
    d->n_held -= n;
}

/* Held kernels that have to come before instruction i. */
static void release_for(Delayer *d, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t h = 0; h < d->n_held; h++)
        if (conflicts(d, d->held[h], i))
            n = h + 1;
    release(d, n);
}

static bool is_worth_holding(const Delayer *d, uint32_t i)
{
    for (uint32_t j = i + 1; d->is_far[i] && j < d->n && j <= i + HORIZON; j++)
        if (d->is_exposed[j])
            return true;
    return false;
}

void mot_delay_kernels(MotProgram *program, MotSection section)
{
    MotArena *arena = &program->ctx->arena;
    uint32_t n = program->section[section].n;
    if (n == 0)
        return;
    MotInstr *out = program->section[section].data;
    Delayer d = {.program = program,
                 .ins = mot_arena_copy(arena, out, n * sizeof *out),
                 .n = n,
                 .is_far = mot_arena_array(arena, bool, n),
                 .is_exposed = mot_arena_array(arena, bool, n),
                 .held = mot_arena_array(arena, uint32_t, MAX_HELD + 1),
                 .order = mot_arena_array(arena, uint32_t, n)};
    find_far(&d);
    find_exposed(&d);
    for (uint32_t i = 0; i < n; i++) {
        release_for(&d, i);
        if (is_worth_holding(&d, i)) {
            d.held[d.n_held++] = i;
            if (d.n_held > MAX_HELD)
                release(&d, 1);
            continue;
        }
        /* Several collectives of one kernel's results start together: one kernel for all. */
        if (d.is_exposed[i] && !(i && d.is_exposed[i - 1]) && d.n_held)
            release(&d, 1);
        d.order[d.n_order++] = i;
    }
    release(&d, d.n_held);
    for (uint32_t i = 0; i < n; i++)
        out[i] = d.ins[d.order[i]];
}
