/*
 * The walker: the sections of a step in the program's order, and in each its instructions. Kernels run on the device backend, collectives on the communication
 * backend. All numbers were evaluated at binding: the walk itself neither allocates nor computes sizes.
 */
#include "runtime/rank.h"

#include "runtime/comm.h"

#include <stdio.h>

typedef struct {
    MotCtx *ctx;
    const MotRankArgs *args;
    MotProgram program; /* the host's, with the shares that stand in the shared region */
    const MotDeviceApi *api;
    void *device;
    MotClock clock;
    MotBinding *bindings; /* of all ranks */
    void **kernels;
    void ***buffers[MOT_N_SECTIONS]; /* by micro-batch and instruction: addresses of its buffers */
    MotComm comm;
    MotArenaMark unbound;
} Rank;

static void find_buffers(Rank *r, MotSection section, const MotBinding *own, char *base)
{
    MotArena *arena = &r->ctx->arena;
    const MotProgram *p = &r->program;
    uint32_t n = p->section[section].n, n_runs = mot_section_is_repeated(section) ? p->n_micro : 1;
    void ***at = r->buffers[section] = mot_arena_array(arena, void **, (size_t)n *n_runs);
    for (uint32_t m = 0; m < n_runs; m++)
        for (uint32_t i = 0; i < n; i++, at++) {
            const MotInstr *ins = &p->section[section].data[i];
            *at = mot_arena_array(arena, void *, ins->n_bufs);
            for (uint32_t k = 0; k < ins->n_bufs; k++)
                (*at)[k] = base + mot_program_offset(p, own, ins->bufs[k], m);
        }
}

static MotStatus bind(Rank *r)
{
    MotArena *arena = &r->ctx->arena;
    const MotProgram *p = &r->program;
    const MotShared *shared = r->args->shared;
    mot_arena_rewind(arena, r->unbound);
    r->bindings = mot_arena_array(arena, MotBinding, shared->n_ranks);
    for (uint32_t i = 0; i < shared->n_ranks; i++)
        MOT_TRY(mot_program_bind(r->ctx, p, i, &r->bindings[i]));
    const MotBinding *own = &r->bindings[r->args->position];
    char *base = shared->rank[r->args->position].arena;
    r->kernels = mot_arena_array(arena, void *, p->kernels.n);
    for (uint32_t k = 0; k < p->kernels.n; k++)
        MOT_TRY(r->api->prepare(r->device, r->ctx, p, k, own, &r->kernels[k]));
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        find_buffers(r, (MotSection)s, own, base);
    r->comm.bindings = r->bindings;
    return MOT_OK;
}

static MotStatus run_launch(Rank *r, const MotInstr *ins, void **buffers)
{
    /* A rank may be this much ahead of its device before it sleeps: few sleeps, and yet nobody who watches it takes it for hung. */
    enum { LEAD_NS = 20000000 };
    mot_clock_begin(&r->clock);
    MOT_TRY(r->api->launch(r->device, r->kernels[ins->kernel], buffers));
    mot_clock_compute(&r->clock, mot_clock_cpu(&r->clock));
    mot_clock_catch_up(&r->clock, LEAD_NS);
    return MOT_OK;
}

static MotStatus run_comm(Rank *r, const MotInstr *ins, int64_t *comm_ns)
{
    int64_t start = mot_clock_now(&r->clock);
    MOT_TRY(mot_comm_exec(&r->comm, ins));
    *comm_ns += mot_clock_now(&r->clock) - start;
    return MOT_OK;
}

/* Whether the instruction has a part in this micro-batch. */
static bool is_due(const MotInstr *ins, uint32_t micro)
{
    return ins->when == MOT_WHEN_ALL || (ins->when == MOT_WHEN_FIRST) == (micro == 0);
}

static MotStatus run_section(Rank *r, MotRun run, int64_t *comm_ns)
{
    MotRankState *state = &r->args->shared->rank[r->args->position];
    const MotProgram *p = &r->program;
    uint32_t n = p->section[run.section].n;
    void ***buffers = r->buffers[run.section] + (size_t)n * run.micro;
    r->comm.micro = run.micro;
    atomic_store_explicit(&state->section, (uint32_t)run.section, memory_order_relaxed);
    atomic_store_explicit(&state->micro, run.micro, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &p->section[run.section].data[i];
        if (!is_due(ins, run.micro))
            continue;
        atomic_store_explicit(&state->instruction, i, memory_order_relaxed);
        if (ins->kind == MOT_INS_LAUNCH)
            MOT_TRY(run_launch(r, ins, buffers[i]));
        else
            MOT_TRY(run_comm(r, ins, comm_ns));
        atomic_fetch_add_explicit(&state->retired, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&state->instruction, MOT_NO_INSTRUCTION, memory_order_relaxed);
    return MOT_OK;
}

/* A whole step, or one other section. */
static MotStatus run_command(Rank *r, MotSection section)
{
    MotRankState *state = &r->args->shared->rank[r->args->position];
    const MotProgram *p = &r->program;
    mot_clock_wait(&r->clock, r->args->shared->command_ns);
    int64_t start = mot_clock_now(&r->clock), comm_ns = 0;
    r->comm.wait_ns = 0;
    if (section != MOT_SECTION_STEP)
        MOT_TRY(run_section(r, (MotRun){section, 0}, &comm_ns));
    for (uint32_t i = 0; section == MOT_SECTION_STEP && i < p->order.n; i++)
        MOT_TRY(run_section(r, p->order.data[i], &comm_ns));
    mot_clock_catch_up(&r->clock, 0);
    state->wait_ns = r->comm.wait_ns;
    state->comm_ns = comm_ns - r->comm.wait_ns;
    state->busy_ns = mot_clock_now(&r->clock) - start - comm_ns;
    return MOT_OK;
}

static MotStatus open_device(Rank *r)
{
    const MotRankArgs *args = r->args;
    const MotDevice *device =
        &args->cluster->devices.data[args->program->mesh.devices[args->position]];
    const char *name = args->backend ? args->backend : device->backend;
    r->api = mot_device_find(name);
    if (!r->api)
        return mot_fail(r->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "device %s: there is no backend %s",
                        mot_quote(&r->ctx->arena, device->name), mot_quote(&r->ctx->arena, name));
    mot_clock_enter(&r->clock);
    return r->api->open(r->ctx, device->threads, args->shared->spins > 0, &r->device);
}

static MotStatus obey(MotCtx *ctx, void *self)
{
    Rank *r = self;
    MotShared *shared = r->args->shared;
    MotRankState *state = &shared->rank[r->args->position];
    MOT_TRY(open_device(r));
    r->unbound = mot_arena_mark(&ctx->arena);
    for (uint32_t n = 1;; n++) {
        MOT_TRY(mot_gate_wait(shared, &shared->command_count, n));
        if (shared->command == MOT_CMD_QUIT)
            return MOT_OK;
        MOT_TRY(shared->command == MOT_CMD_REBIND ? bind(r) : run_command(r, shared->section));
        mot_gate_open(&state->finished);
    }
}

MotStatus mot_rank_run(const MotRankArgs *args)
{
    MotShared *shared = args->shared;
    MotRankState *state = &shared->rank[args->position];
    MotCtx ctx;
    mot_ctx_init(&ctx);
    ctx.debug = args->host->debug;
    ctx.log = args->host->log;
    ctx.log_self = args->host->log_self;
    Rank r = {.ctx = &ctx, .args = args, .program = *args->program};
    for (uint32_t a = 0; a < r.program.mesh.n_axes; a++)
        r.program.mesh.axis[a].share = shared->share[a];
    r.clock = mot_clock_make(args->cluster, r.program.mesh.devices[args->position]);
    r.comm = (MotComm){.shared = shared,
                       .clock = &r.clock,
                       .program = &r.program,
                       .cluster = args->cluster,
                       .position = args->position};
    MotStatus status = mot_ctx_run(&ctx, obey, &r);
    state->status = (int)status;
    snprintf(state->error, sizeof state->error, "%s", mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
    return status;
}
