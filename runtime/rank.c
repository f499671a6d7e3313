/*
 * The walker: the sections of a step in the program's order, and in each its instructions. Kernels
 * run on the device backend, collectives on the communication backend. A collective is issued at
 * its place in the program, which only notes the time, and executed by this same thread when the
 * section needs it (mot_program_completions): over shared memory it is a copy, which another thread
 * would make no cheaper, while the time of an emulated link goes by since the issue. All numbers
 * were evaluated at binding: the walk itself neither allocates nor computes sizes.
 */
#include "runtime/rank.h"

#include "runtime/comm.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    MotCtx *ctx;
    const MotRankArgs *args;
    MotPipeline pipeline;      /* the host's, with the shares that stand in the shared region */
    const MotProgram *program; /* of the own stage */
    MotRankState *state;
    const MotDeviceApi *api;
    void *device;
    MotClock clock;
    MotBinding *bindings;            /* [ranks of all stages] */
    void **launches[MOT_N_SECTIONS]; /* by instruction: as the device prepared it */
    void ***buffers[MOT_N_SECTIONS]; /* by micro-batch and instruction: addresses of its buffers */
    bool *is_resizable[MOT_N_SECTIONS]; /* by instruction: a launch that the shares reach */
    bool *is_idle[MOT_N_SECTIONS];      /* by instruction: a launch for ranks that cut, or don't */
    MotCount *counts[MOT_N_SECTIONS];   /* by instruction: what it does, for a modelled clock */
    bool *is_update[MOT_N_SECTIONS];    /* by instruction: it writes parameters or states */
    uint32_t command;                   /* at work, counted from 1 */
    MotComm comm;
    uint32_t *done_at
        [MOT_N_SECTIONS]; /* by instruction: before which position a collective is complete */
    int64_t *issued_ns[MOT_N_SECTIONS]; /* by instruction: when a collective was issued */
    uint32_t next;                      /* up to here all collectives are complete */
    MotArenaMark unbound;
} Rank;

/* The addresses of an instruction's buffers in one micro-batch: of a launch set by set. */
static void **find_buffers(Rank *r, const MotInstr *ins, uint32_t micro)
{
    const MotBinding *own = &r->bindings[r->args->rank];
    char *base = r->state->arena;
    void **at = mot_arena_array(&r->ctx->arena, void *, ins->n_bufs);
    uint32_t n_sets = mot_launch_sets(ins), n = ins->n_bufs / n_sets;
    for (uint32_t set = 0; set < n_sets; set++)
        for (uint32_t k = 0; k < n; k++)
            at[set * n + k] =
                base + mot_program_offset(r->program, own, mot_launch_buf(ins, set, k), micro);
    return at;
}

static bool is_update(const MotProgram *p, const MotInstr *ins)
{
    for (uint32_t i = ins->n_in; i < ins->n_bufs; i++)
        if (p->bufs.data[mot_program_owner(p, ins->bufs[i])].kind == MOT_BUF_PARAM)
            return true;
    return false;
}

static MotStatus bind_section(Rank *r, MotSection section)
{
    MotArena *arena = &r->ctx->arena;
    const MotProgram *p = r->program;
    const MotBinding *own = &r->bindings[r->args->rank];
    uint32_t n = p->section[section].n, n_runs = mot_section_is_repeated(section) ? p->n_micro : 1;
    const MotInstr *ins = p->section[section].data;
    r->buffers[section] = mot_arena_array(arena, void **, (size_t)n *n_runs);
    r->launches[section] = mot_arena_array(arena, void *, n);
    r->is_resizable[section] = mot_arena_array(arena, bool, n);
    r->is_update[section] = mot_arena_array(arena, bool, n);
    r->is_idle[section] = mot_arena_array(arena, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        r->is_resizable[section][i] = mot_instr_is_resizable(p, &ins[i]);
        r->is_update[section][i] = is_update(p, &ins[i]);
        r->is_idle[section][i] = mot_instr_is_idle(p, own, &ins[i]);
    }
    r->counts[section] = mot_arena_array(arena, MotCount, n);
    for (uint32_t i = 0; r->clock.is_modelled && i < n; i++)
        r->counts[section][i] = mot_count_instr(r->ctx, p, &ins[i], own);
    for (uint32_t i = 0; i < n * n_runs; i++)
        r->buffers[section][i] = find_buffers(r, &ins[i % n], i / n);
    for (uint32_t i = 0; i < n; i++)
        if (ins[i].kind == MOT_INS_LAUNCH && !r->is_idle[section][i])
            MOT_TRY(r->api->prepare(r->device, r->ctx, p, &ins[i], own, &r->launches[section][i]));
    r->done_at[section] = mot_program_completions(r->ctx, p, section);
    r->issued_ns[section] = mot_arena_array(arena, int64_t, n);
    return MOT_OK;
}

static MotStatus bind(Rank *r)
{
    MotArena *arena = &r->ctx->arena;
    const MotShared *shared = r->args->shared;
    mot_arena_rewind(arena, r->unbound);
    r->bindings = mot_arena_array(arena, MotBinding, shared->n_ranks);
    MOT_TRY(mot_pipeline_bind(r->ctx, &r->pipeline, r->bindings));
    for (int section = 0; section < MOT_N_SECTIONS; section++)
        MOT_TRY(bind_section(r, (MotSection)section));
    r->comm.all_bindings = r->bindings;
    r->comm.bindings = r->bindings + r->args->rank - r->comm.position;
    return MOT_OK;
}

/* Publishes what the rank is at, for whoever asks after its death. */
static void begin_instr(Rank *r, MotSection section, uint32_t i)
{
    atomic_store_explicit(&r->state->instruction, i, memory_order_relaxed);
    if (r->is_update[section][i])
        atomic_store(&r->state->updating, r->command); /* before it writes anything */
}

static MotStatus run_launch(Rank *r, MotSection section, uint32_t i, void **buffers)
{
    /*
     * A rank may be this much ahead of its device before it sleeps: few sleeps, and yet nobody who
     * watches it takes it for hung.
     */
    enum { LEAD_NS = 20000000 };
    int64_t start = mot_clock_now(&r->clock);
    mot_clock_begin(&r->clock);
    MOT_TRY(r->api->launch(r->device, r->launches[section][i], buffers));
    mot_clock_compute(&r->clock, mot_clock_took(&r->clock, &r->counts[section][i]));
    const MotInstr *ins = &r->program->section[section].data[i];
    int64_t took = mot_clock_now(&r->clock) - start;
    if (r->is_resizable[section][i])
        r->state->resizable_ns += took;
    if (ins->cut && ins->role != MOT_ROLE_UPDATE)
        r->state->cut_ns[ins->cut - 1] += took;
    mot_clock_catch_up(&r->clock, LEAD_NS);
    return MOT_OK;
}

static void run_local(Rank *r, MotSection section, uint32_t i)
{
    mot_clock_begin(&r->clock);
    mot_comm_exec_local(&r->comm, &r->program->section[section].data[i]);
    mot_clock_compute(&r->clock, mot_clock_took(&r->clock, &r->counts[section][i]));
}

/* Executes the collectives that are to be complete before position `before` of the section. */
static MotStatus complete(Rank *r, MotRun run, uint32_t before)
{
    MotRankState *state = r->state;
    int64_t start = mot_clock_now(&r->clock), busy = r->comm.busy_ns;
    bool any = false;
    r->comm.needed_ns = start;
    for (; r->next < before; r->next++) {
        const MotInstr *ins = &r->program->section[run.section].data[r->next];
        if (!mot_instr_is_collective(ins) || !mot_instr_is_due(ins, run.micro) ||
            r->is_idle[run.section][r->next])
            continue;
        if (r->done_at[run.section][r->next] > before)
            break;
        begin_instr(r, run.section, r->next);
        MOT_TRY(mot_comm_exec(&r->comm, ins, r->issued_ns[run.section][r->next]));
        atomic_fetch_add_explicit(&state->retired, 1, memory_order_relaxed);
        any = true;
    }
    if (any)
        mot_clock_wait(&r->clock, r->comm.clock.ns);
    state->wait_ns += mot_clock_now(&r->clock) - start - (r->comm.busy_ns - busy);
    return MOT_OK;
}

/* An instruction of the compute stream. */
static MotStatus run_instr(Rank *r, MotSection section, uint32_t i, void **buffers)
{
    const MotInstr *ins = &r->program->section[section].data[i];
    if (ins->kind == MOT_INS_LAUNCH)
        return run_launch(r, section, i, buffers);
    if (ins->kind == MOT_INS_SEND || ins->kind == MOT_INS_RECV)
        return mot_comm_exec_stage(&r->comm, ins, &r->clock);
    run_local(r, section, i);
    return MOT_OK;
}

static MotStatus run_section(Rank *r, MotRun run)
{
    MotRankState *state = r->state;
    const MotProgram *p = r->program;
    uint32_t n = p->section[run.section].n;
    void ***buffers = r->buffers[run.section] + (size_t)n * run.micro;
    r->comm.run = run;
    r->next = 0;
    atomic_store_explicit(&state->section, (uint32_t)run.section, memory_order_relaxed);
    atomic_store_explicit(&state->micro, run.micro, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &p->section[run.section].data[i];
        MOT_TRY(complete(r, run, i));
        if (!mot_instr_is_due(ins, run.micro) || r->is_idle[run.section][i])
            continue;
        if (mot_instr_is_collective(ins)) {
            r->issued_ns[run.section][i] = mot_clock_now(&r->clock);
            continue;
        }
        begin_instr(r, run.section, i);
        MOT_TRY(run_instr(r, run.section, i, buffers[i]));
        atomic_fetch_add_explicit(&state->retired, 1, memory_order_relaxed);
    }
    MOT_TRY(complete(r, run, n));
    atomic_store_explicit(&state->instruction, MOT_NO_INSTRUCTION, memory_order_relaxed);
    return MOT_OK;
}

/* A whole step, or one other section. */
static MotStatus run_command(Rank *r, MotSection section)
{
    MotRankState *state = r->state;
    const MotProgram *p = r->program;
    mot_clock_set_step(&r->clock, r->args->shared->step);
    mot_clock_wait(&r->clock, r->args->shared->command_ns);
    int64_t start = mot_clock_now(&r->clock);
    r->comm.busy_ns = state->wait_ns = state->resizable_ns = 0;
    memset(state->cut_ns, 0, p->cuts.n * sizeof *state->cut_ns);
    if (section != MOT_SECTION_STEP)
        MOT_TRY(run_section(r, (MotRun){section, 0}));
    for (uint32_t i = 0; section == MOT_SECTION_STEP && i < p->order.n; i++)
        MOT_TRY(run_section(r, p->order.data[i]));
    atomic_store(&state->executed, r->command);
    mot_clock_catch_up(&r->clock, 0);
    state->comm_ns = r->comm.busy_ns;
    state->busy_ns = mot_clock_now(&r->clock) - start - state->wait_ns - state->comm_ns;
    return MOT_OK;
}

static MotStatus open_device(Rank *r)
{
    const MotRankArgs *args = r->args;
    const MotDevice *device =
        &args->cluster->devices.data[r->program->mesh.devices[r->comm.position]];
    const char *name = args->backend ? args->backend : device->backend;
    r->api = mot_device_find(name);
    if (!r->api)
        return mot_fail(r->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "device %s: there is no backend %s",
                        mot_quote(&r->ctx->arena, device->name), mot_quote(&r->ctx->arena, name));
    mot_clock_enter(&r->clock);
    return r->api->open(r->ctx, device->threads, args->shared->spins > 0, &r->device);
}

static MotStatus obey(Rank *r)
{
    MotShared *shared = r->args->shared;
    r->unbound = mot_arena_mark(&r->ctx->arena);
    for (uint32_t n = 1;; n++) {
        MOT_TRY(mot_gate_wait(shared, &shared->command_count, n));
        if (shared->command == MOT_CMD_QUIT)
            return MOT_OK;
        r->command = n;
        MOT_TRY(shared->command == MOT_CMD_REBIND ? bind(r) : run_command(r, shared->section));
        mot_gate_open(&r->state->finished);
    }
}

/* The cuts of a program, whose numbers are those in the shared region. */
static void share_cuts(MotCtx *ctx, MotShared *shared, MotProgram *p)
{
    p->cuts.data = mot_arena_copy(&ctx->arena, p->cuts.data, p->cuts.n * sizeof *p->cuts.data);
    for (uint32_t i = 0; i < p->cuts.n; i++) {
        p->cuts.data[i].n_kept = shared->kept + (size_t)i * shared->n_ranks;
        p->cuts.data[i].n_helped = shared->helped + (size_t)i * shared->n_ranks;
    }
    if (p->lender)
        p->lender = shared->lender;
}

/*
 * The host's pipeline with programs of its own, whose shares and cuts are those in the shared
 * region.
 */
static MotPipeline share_pipeline(MotCtx *ctx, const MotRankArgs *args)
{
    MotPipeline pipeline = *args->pipeline;
    pipeline.stages.data = mot_arena_array(&ctx->arena, MotProgram *, pipeline.stages.n);
    for (uint32_t s = 0; s < pipeline.stages.n; s++) {
        MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
        *p = *args->pipeline->stages.data[s];
        for (uint32_t a = 0; a < p->mesh.n_axes; a++)
            p->mesh.axis[a].share =
                args->shared->share[a] + mot_pipeline_first_rank(args->pipeline, s);
        share_cuts(ctx, args->shared, p);
        pipeline.stages.data[s] = p;
    }
    return pipeline;
}

static MotStatus run_rank(MotCtx *ctx, void *self)
{
    Rank *r = self;
    const MotRankArgs *args = r->args;
    uint32_t stage = mot_pipeline_stage(args->pipeline, args->rank),
             first = mot_pipeline_first_rank(args->pipeline, stage);
    r->pipeline = share_pipeline(ctx, args);
    r->program = r->pipeline.stages.data[stage];
    r->clock = mot_clock_make(args->cluster, r->program->mesh.devices[args->rank - first]);
    r->comm = (MotComm){.shared = args->shared,
                        .clock = r->clock,
                        .pipeline = &r->pipeline,
                        .cluster = args->cluster,
                        .stage = stage,
                        .position = args->rank - first,
                        .program = r->program,
                        .ranks = &args->shared->rank[first]};
    MOT_TRY(open_device(r));
    return obey(r);
}

MotStatus mot_rank_run(const MotRankArgs *args)
{
    MotRankState *state = &args->shared->rank[args->rank];
    MotCtx ctx;
    mot_ctx_init(&ctx);
    mot_ctx_inherit(&ctx, args->host);
    Rank r = {.ctx = &ctx, .args = args, .state = state};
    MotStatus status = mot_ctx_run(&ctx, run_rank, &r);
    state->status = (int)status;
    snprintf(state->error, sizeof state->error, "%s", mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
    return status;
}
