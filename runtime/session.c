/* The host's side: the shared region, commands, scatter and gather, and naming the rank that died or hangs. */
#include "runtime/session.h"

#include "ir/layout.h"
#include "runtime/comm.h"
#include "runtime/move.h"
#include "runtime/spawn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct MotSession {
    MotCtx *ctx;
    MotPipeline *pipeline;
    const MotCluster *cluster;
    MotSessionOpts opts;
    MotShared *shared;
    MotBinding *bindings;
    MotSpawn rank[MOT_MAX_RANKS];
    uint32_t n_commands;
    MotCtx bound[2]; /* the bindings live in bound[n_bindings % 2], those before in the other one */
    uint32_t n_bindings;
};

/* A rank's stage, its position in the mesh of that, and its device. */
typedef struct {
    uint32_t stage, position, device;
    const MotProgram *program;
} Place;

static Place place_of(const MotSession *s, uint32_t rank)
{
    Place p = {.stage = mot_pipeline_stage(s->pipeline, rank)};
    p.program = s->pipeline->stages.data[p.stage];
    p.position = rank - mot_pipeline_first_rank(s->pipeline, p.stage);
    p.device = p.program->mesh.devices[p.position];
    return p;
}

/* `rank 2 (device b)`, with several stages `rank 2 (stage 1, device b)` */
static const char *rank_name(const MotSession *s, uint32_t i)
{
    MotArena *arena = &s->ctx->arena;
    Place p = place_of(s, i);
    const char *stage =
        s->pipeline->stages.n > 1 ? mot_arena_printf(arena, "stage %u, ", p.stage) : "";
    return mot_arena_printf(arena, "rank %u (%sdevice %s)", i, stage,
                            mot_escape(arena, s->cluster->devices.data[p.device].name, 64));
}

/* `in forward instruction 12 of micro-batch 3 (launch of node "/h.0/attn/MatMul")` */
static const char *describe_place(const MotSession *s, uint32_t rank)
{
    const MotRankState *state = &s->shared->rank[rank];
    const MotProgram *program = place_of(s, rank).program;
    MotSection section = (MotSection)atomic_load(&state->section);
    uint32_t i = atomic_load(&state->instruction);
    if (i >= program->section[section].n)
        return s->shared->command == MOT_CMD_REBIND ? "while it binds the program"
                                                    : "between two sections";
    const MotInstr *ins = &program->section[section].data[i];
    const char *micro =
        mot_section_is_repeated(section)
            ? mot_arena_printf(&s->ctx->arena, " of micro-batch %u", atomic_load(&state->micro))
            : "";
    return mot_arena_printf(&s->ctx->arena, "in %s instruction %u%s (%s of node %s)",
                            mot_section_names[section], i, micro, mot_instr_names[ins->kind],
                            ins->origin ? mot_quote(&s->ctx->arena, ins->origin)
                                        : "added by the compiler");
}

static void stop_ranks(MotSession *s)
{
    atomic_store(&s->shared->abort, 1);
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        if (s->rank[i].is_running) {
            mot_spawn_kill(&s->rank[i]);
            mot_spawn_join(&s->rank[i]);
        }
}

static MotStatus report_dead(MotSession *s, uint32_t i)
{
    const MotRankState *state = &s->shared->rank[i];
    const char *where = describe_place(s, i);
    int signal = mot_spawn_join(&s->rank[i]);
    stop_ranks(s);
    if (signal)
        return mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE, "%s was killed by signal %d (%s) %s",
                        rank_name(s, i), signal, strsignal(signal), where);
    if (state->status == MOT_OK || state->status == MOT_ERR_RANK)
        return mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE, "%s ended early %s", rank_name(s, i),
                        where);
    mot_fail(s->ctx, (MotStatus)state->status, MOT_NOWHERE, "%s: %s", rank_name(s, i),
             state->error);
    mot_note(s->ctx, "%s", where);
    return s->ctx->status;
}

/* Looks for ranks that ended; a rank that failed by itself comes before those that only followed. */
static MotStatus check_ranks(MotSession *s)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->shared->n_ranks; i++)
            if (s->rank[i].is_running && mot_spawn_has_ended(&s->rank[i]) &&
                (pass == 1 || s->shared->rank[i].status != MOT_ERR_RANK))
                return report_dead(s, i);
    return MOT_OK;
}

/* A rank that has not finished the command, though it waits for nobody, or what it waits for has come. */
static bool is_stuck(const MotSession *s, uint32_t i)
{
    const MotRankState *state = &s->shared->rank[i];
    const MotGate *gate = atomic_load(&state->awaited);
    return !mot_gate_has_reached(&state->finished, s->n_commands) &&
           (!gate || mot_gate_has_reached(gate, atomic_load(&state->target)));
}

/* Names the rank that the others wait for. All wait for one another only if our own order of collectives is wrong. */
static MotStatus report_hang(MotSession *s)
{
    uint32_t worst = 0;
    while (worst + 1 < s->shared->n_ranks && !is_stuck(s, worst))
        worst++;
    bool is_known = is_stuck(s, worst);
    const char *where = describe_place(s, worst);
    stop_ranks(s);
    return mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE,
                    "%s %s %s: no rank has retired an instruction for %.0f s", rank_name(s, worst),
                    is_known ? "hangs" : "and all others wait for one another", where,
                    s->opts.hang_seconds);
}

static uint32_t total_retired(const MotSession *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        n += atomic_load(&s->shared->rank[i].retired);
    return n;
}

/*
 * A rank hangs if none has retired an instruction while the host looked for hang_seconds. A look counts for LONGEST_LOOK at most: when
 * the whole job was stopped for an hour and goes on, nobody hangs.
 */
static MotStatus wait_finished(MotSession *s)
{
    static const double longest_look = 0.1;
    uint32_t retired = total_retired(s);
    int64_t before = mot_now_ns();
    double idle_seconds = 0;
    for (uint32_t i = 0; i < s->shared->n_ranks;) {
        MotGate *gate = &s->shared->rank[i].finished;
        uint32_t count = atomic_load_explicit(&gate->count, memory_order_acquire);
        if (count == s->n_commands) {
            i++;
            continue;
        }
        mot_gate_pause(gate, count);
        MOT_TRY(check_ranks(s));
        int64_t now = mot_now_ns();
        double look = (double)(now - before) * 1e-9;
        idle_seconds += look < longest_look ? look : longest_look;
        before = now;
        if (total_retired(s) != retired) {
            retired = total_retired(s);
            idle_seconds = 0;
        }
        if (s->opts.hang_seconds > 0 && idle_seconds > s->opts.hang_seconds)
            return report_hang(s);
    }
    return MOT_OK;
}

static void issue(MotSession *s, MotCommand what)
{
    s->shared->command = what;
    s->shared->command_ns = mot_now_ns();
    s->n_commands++;
    mot_gate_open(&s->shared->command_count);
}

static MotStatus command(MotSession *s, MotCommand what)
{
    issue(s, what);
    return wait_finished(s);
}

static MotStatus bind_ranks(MotCtx *ctx, void *self)
{
    MotSession *s = self;
    s->bindings = mot_arena_array(&ctx->arena, MotBinding, s->shared->n_ranks);
    return mot_pipeline_bind(ctx, s->pipeline, s->bindings);
}

/* The first rank whose device has less memory than its binding needs, or n. */
static uint32_t find_too_large(const MotSession *s, const MotBinding *bindings)
{
    uint32_t i = 0;
    for (; i < s->shared->n_ranks; i++) {
        MOT_ASSERT(bindings[i].arena_bytes <= s->shared->rank[i].arena_capacity);
        const MotDevice *device = &s->cluster->devices.data[place_of(s, i).device];
        if (device->memory > 0 && (double)bindings[i].arena_bytes > device->memory)
            break;
    }
    return i;
}

static MotStatus check_memory(MotSession *s)
{
    uint32_t i = find_too_large(s, s->bindings);
    if (i == s->shared->n_ranks)
        return MOT_OK;
    mot_fail(
        s->ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE, "%s needs %s, its memory is %s", rank_name(s, i),
        mot_bytes_text(&s->ctx->arena, (double)s->bindings[i].arena_bytes),
        mot_bytes_text(&s->ctx->arena, s->cluster->devices.data[place_of(s, i).device].memory));
    mot_hint(s->ctx, "give it a smaller share with --shares, or plan with smaller micro-batches");
    return s->ctx->status;
}

/* Binds all ranks; the bindings before stay until the next time. */
static MotStatus bind_all(MotSession *s)
{
    MotCtx *bound = &s->bound[++s->n_bindings % 2];
    mot_ctx_deinit(bound);
    mot_ctx_init(bound);
    mot_ctx_inherit(bound, s->ctx);
    MotStatus status = mot_ctx_run(bound, bind_ranks, s);
    if (status != MOT_OK)
        return mot_fail(s->ctx, status, MOT_NOWHERE, "%s", mot_text_get(&bound->error));
    return check_memory(s);
}

/*
 * The most that a rank can ever need under any shares: every buffer whole, none reusing another's place (packing is not monotone in the
 * sizes). Only address space is reserved by it; memory comes with use.
 */
static int64_t measure_capacity(const MotProgram *program)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < program->bufs.n; i++)
        bytes += mot_program_align(mot_type_bytes(&program->bufs.data[i].global)) *
                 program->bufs.data[i].copies;
    return (bytes + 4095) / 4096 * 4096;
}

/* A piece of the region that is to be mapped; multiples of a page. */
static size_t add_piece(size_t *bytes, size_t piece)
{
    size_t at = *bytes;
    *bytes += (piece + 4095) / 4096 * 4096;
    return at;
}

static MotStatus map_shared(MotSession *s)
{
    uint32_t n = mot_pipeline_ranks(s->pipeline), n_threads = 0;
    size_t bytes = 0, mail, *arena = mot_arena_array(&s->ctx->arena, size_t, n);
    add_piece(&bytes, sizeof(MotShared) + n * sizeof(MotRankState));
    mail = add_piece(&bytes, (size_t)s->pipeline->channels.n * n * sizeof(MotMail));
    for (uint32_t i = 0; i < n; i++)
        arena[i] = add_piece(&bytes, (size_t)measure_capacity(place_of(s, i).program));
    char *p = mot_fault(s->ctx->faults, MOT_FAULT_map)
                  ? MAP_FAILED
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return mot_fail(s->ctx, MOT_ERR_MEMORY, MOT_NOWHERE, "can't map %s for the ranks: %s",
                        mot_bytes_text(&s->ctx->arena, (double)bytes), strerror(errno));
    s->shared = (MotShared *)(void *)p;
    s->shared->n_ranks = n;
    s->shared->bytes = bytes;
    s->shared->mail = (MotMail *)(void *)(p + mail);
    for (uint32_t i = 0; i < n; i++) {
        n_threads += s->cluster->devices.data[place_of(s, i).device].threads;
        s->shared->rank[i].arena = p + arena[i];
        s->shared->rank[i].arena_capacity = measure_capacity(place_of(s, i).program);
        atomic_store(&s->shared->rank[i].instruction, MOT_NO_INSTRUCTION);
    }
    s->shared->spins = n_threads <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 0;
    return MOT_OK;
}

static MotStatus start_ranks(MotSession *s)
{
    for (uint32_t i = 0; i < s->shared->n_ranks; i++) {
        MotRankArgs args = {s->ctx, s->shared, s->pipeline, s->cluster, s->opts.backend, i};
        MOT_TRY(mot_spawn_start(s->ctx, &args, &s->rank[i]));
    }
    return MOT_OK;
}

/*
 * What stays in the ranks' arenas leaves the host's view of them once it was copied (the ranks keep it): each parameter would else
 * take memory in two processes.
 */
static void forget_part(MotBufKind kind, char *part, int64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)part % page;
    if (kind == MOT_BUF_PARAM || kind == MOT_BUF_CONSTANT)
        madvise(part - before, before + (size_t)bytes, MADV_DONTNEED);
}

/* A buffer of a stage's program. */
typedef struct {
    uint32_t stage, buf;
} Var;

static const MotBuf *info_of(const MotSession *s, Var var)
{
    return &s->pipeline->stages.data[var.stage]->bufs.data[var.buf];
}

/* Between a whole tensor and the ranks' parts of micro-batch `micro`'s copy. */
static void copy_parts(const MotSession *s, Var var, uint32_t micro, MotWhole whole, bool to_whole)
{
    const MotProgram *p = s->pipeline->stages.data[var.stage];
    uint32_t first = mot_pipeline_first_rank(s->pipeline, var.stage);
    for (uint32_t r = first; r < first + p->mesh.n_devices; r++) {
        const MotBinding *binding = &s->bindings[r];
        char *part = s->shared->rank[r].arena + mot_program_offset(p, binding, var.buf, micro);
        mot_comm_copy_part(p, binding, var.buf, whole, part, to_whole);
        forget_part(p->bufs.data[var.buf].kind, part, mot_type_bytes(&binding->types[var.buf]));
    }
}

/* For all micro-batches. */
static void scatter(const MotSession *s, Var var, void *whole)
{
    for (uint32_t m = 0; m < info_of(s, var)->copies; m++)
        copy_parts(s, var, m, (MotWhole){whole, NULL}, false);
}

static void gather(const MotSession *s, Var var, void *whole)
{
    copy_parts(s, var, 0, (MotWhole){whole, NULL}, true);
}

/* The rank whose part of the buffer differs from `whole`, or n_ranks. */
static uint32_t find_other_copy(const MotSession *s, Var var, void *whole)
{
    const MotProgram *p = s->pipeline->stages.data[var.stage];
    uint32_t first = mot_pipeline_first_rank(s->pipeline, var.stage);
    for (uint32_t r = first; r < first + p->mesh.n_devices; r++) {
        MotArenaMark mark = mot_arena_mark(&s->ctx->arena);
        const MotBinding *binding = &s->bindings[r];
        size_t bytes = (size_t)mot_type_bytes(&binding->types[var.buf]);
        char *part = s->shared->rank[r].arena + mot_program_offset(p, binding, var.buf, 0),
             *expected = mot_arena_alloc(&s->ctx->arena, bytes);
        mot_comm_copy_part(p, binding, var.buf, (MotWhole){whole, NULL}, expected, false);
        bool is_equal = memcmp(part, expected, bytes) == 0;
        forget_part(MOT_BUF_PARAM, part, (int64_t)bytes);
        mot_arena_rewind(&s->ctx->arena, mark);
        if (!is_equal)
            return r;
    }
    return s->shared->n_ranks;
}

static void write_constants(const MotSession *s)
{
    for (Var v = {0, 0}; v.stage < s->pipeline->stages.n; v.stage++)
        for (v.buf = 0; v.buf < s->pipeline->stages.data[v.stage]->bufs.n; v.buf++)
            if (info_of(s, v)->kind == MOT_BUF_CONSTANT)
                scatter(s, v, mot_attrs(info_of(s, v)->source, constant)->data.data);
}

static void close_session(void *session)
{
    mot_session_close(session);
}

/* The programs' shares, for the ranks. */
static void publish_shares(MotSession *s)
{
    for (uint32_t stage = 0; stage < s->pipeline->stages.n; stage++) {
        const MotMesh *mesh = &s->pipeline->stages.data[stage]->mesh;
        uint32_t first = mot_pipeline_first_rank(s->pipeline, stage);
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            memcpy(s->shared->share[a] + first, mesh->axis[a].share,
                   mesh->axis[a].n * sizeof(int64_t));
    }
}

MotStatus mot_session_open(MotCtx *ctx, MotPipeline *pipeline, const MotCluster *cluster,
                           const MotSessionOpts *opts, MotSession **out_session)
{
    uint32_t n = mot_pipeline_ranks(pipeline);
    if (n > MOT_MAX_RANKS)
        return mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "%u ranks on one machine; the most is %d",
                        n, MOT_MAX_RANKS);
    MotSession *s = mot_arena_new(&ctx->arena, MotSession);
    *s = (MotSession){.ctx = ctx, .pipeline = pipeline, .cluster = cluster, .opts = *opts};
    for (int i = 0; i < 2; i++)
        mot_ctx_init(&s->bound[i]);
    mot_ctx_defer(ctx, close_session, s);
    MOT_TRY(map_shared(s));
    publish_shares(s);
    MotStatus status = bind_all(s);
    if (status == MOT_OK)
        status = start_ranks(s);
    if (status == MOT_OK)
        status = command(s, MOT_CMD_REBIND);
    if (status != MOT_OK) {
        mot_session_close(s);
        return status;
    }
    write_constants(s);
    *out_session = s;
    return MOT_OK;
}

void mot_session_close(MotSession *s)
{
    for (int i = 0; i < 2; i++)
        mot_ctx_deinit(&s->bound[i]);
    if (!s->shared)
        return;
    if (s->ctx->status != MOT_OK)
        stop_ranks(s); /* they may be in a section */
    s->shared->command = MOT_CMD_QUIT;
    mot_gate_open(&s->shared->command_count);
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        if (s->rank[i].is_running)
            mot_spawn_join(&s->rank[i]);
    munmap(s->shared, s->shared->bytes);
    s->shared = NULL;
}

/* The first stage that has the buffer, checked to be of this type if one is given. */
static MotStatus find_var(MotSession *s, const char *name, const MotType *type, Var *out_var)
{
    Var var = {0, 0};
    if (!mot_pipeline_find(s->pipeline, name, &var.stage, &var.buf))
        return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "the program has no input or parameter %s",
                        mot_quote(&s->ctx->arena, name));
    const MotBuf *buf = info_of(s, var);
    *out_var = var;
    if (!type || mot_type_equal(type, &buf->global))
        return MOT_OK;
    return mot_fail(s->ctx, MOT_ERR_DATA, MOT_NOWHERE, "%s is %s[%s], the model has %s[%s]",
                    mot_quote(&s->ctx->arena, name), mot_dtype_name(type->dtype),
                    mot_shape_text(&s->ctx->arena, type->dims, type->rank),
                    mot_dtype_name(buf->global.dtype),
                    mot_shape_text(&s->ctx->arena, buf->global.dims, buf->global.rank));
}

/* Writes one micro-batch's copy, or all, in every stage that has the buffer. */
static MotStatus write_var(MotSession *s, const char *name, const MotTensor *whole, bool to_all,
                           uint32_t micro)
{
    Var var = {0};
    MOT_TRY(find_var(s, name, &whole->type, &var));
    do {
        if (to_all)
            scatter(s, var, whole->data);
        else
            copy_parts(s, var, micro, (MotWhole){whole->data, NULL}, false);
        var.stage++;
    } while (mot_pipeline_find(s->pipeline, name, &var.stage, &var.buf));
    return MOT_OK;
}

MotStatus mot_session_write(MotSession *s, const char *name, const MotTensor *whole)
{
    return write_var(s, name, whole, true, 0);
}

MotStatus mot_session_write_batch(MotSession *s, const char *name, uint32_t micro,
                                  const MotTensor *whole)
{
    return write_var(s, name, whole, false, micro);
}

MotStatus mot_session_write_param(MotSession *s, const char *name, const void *file)
{
    Var var = {0};
    int64_t stride[MOT_MAX_RANK];
    MOT_TRY(find_var(s, name, NULL, &var));
    mot_param_strides(&info_of(s, var)->global, info_of(s, var)->source, stride);
    copy_parts(s, var, 0, (MotWhole){(char *)(uintptr_t)file, stride}, false);
    return MOT_OK;
}

/* Gathers the buffer into a new tensor. */
static void read_var(MotSession *s, Var var, MotTensor *out_whole)
{
    out_whole->type = info_of(s, var)->global;
    out_whole->data = mot_arena_alloc(&s->ctx->arena, (size_t)mot_type_bytes(&out_whole->type));
    gather(s, var, out_whole->data);
}

MotStatus mot_session_check_copies(MotSession *s)
{
    for (Var v = {0, 0}; v.stage < s->pipeline->stages.n; v.stage++)
        for (v.buf = 0; v.buf < s->pipeline->stages.data[v.stage]->bufs.n; v.buf++) {
            if (info_of(s, v)->kind != MOT_BUF_PARAM)
                continue;
            MotArenaMark mark = mot_arena_mark(&s->ctx->arena);
            MotTensor whole;
            read_var(s, v, &whole);
            uint32_t other = find_other_copy(s, v, whole.data);
            if (other < s->shared->n_ranks)
                return mot_fail(s->ctx, MOT_ERR_INTERNAL, MOT_NOWHERE,
                                "rank %u holds other bytes of %s than the last of its stage", other,
                                mot_quote(&s->ctx->arena, info_of(s, v)->name));
            mot_arena_rewind(&s->ctx->arena, mark);
        }
    return MOT_OK;
}

MotStatus mot_session_read(MotSession *s, const char *name, MotTensor *out_whole)
{
    Var var = {0};
    MOT_TRY(find_var(s, name, NULL, &var));
    read_var(s, var, out_whole);
    return MOT_OK;
}

static const MotOutput *find_output(const MotSession *s, const char *name, uint32_t *out_stage)
{
    for (uint32_t stage = 0; stage < s->pipeline->stages.n; stage++) {
        const MotProgram *p = s->pipeline->stages.data[stage];
        *out_stage = stage;
        for (uint32_t i = 0; i < p->outputs.n; i++)
            if (strcmp(p->outputs.data[i].name, name) == 0)
                return &p->outputs.data[i];
    }
    return NULL;
}

MotStatus mot_session_output(MotSession *s, const char *name, MotSection section,
                             MotTensor *out_value)
{
    Var var = {0};
    const MotOutput *output = find_output(s, name, &var.stage);
    if (!output)
        return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the program has no output %s",
                        mot_quote(&s->ctx->arena, name));
    var.buf = section == MOT_SECTION_STEP ? output->buf : output->eval_buf;
    if (var.buf == MOT_NO_BUF)
        return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is no result of section %s",
                        mot_quote(&s->ctx->arena, name), mot_section_names[section]);
    read_var(s, var, out_value);
    return MOT_OK;
}

void mot_session_set_step(MotSession *s, int64_t step)
{
    s->shared->step = step;
}

MotStatus mot_session_run(MotSession *s, MotSection section)
{
    mot_session_start(s, section);
    return mot_session_wait(s);
}

void mot_session_start(MotSession *s, MotSection section)
{
    s->shared->section = section;
    issue(s, MOT_CMD_RUN);
}

MotStatus mot_session_wait(MotSession *s)
{
    return wait_finished(s);
}

/* Moves what outlives a step in a stage from the places of bindings `from` to those of the present ones. */
static MotStatus move_kept(MotSession *s, uint32_t stage, const MotBinding *from,
                           int64_t *out_moved)
{
    const MotProgram *p = s->pipeline->stages.data[stage];
    uint32_t first = mot_pipeline_first_rank(s->pipeline, stage);
    MotMover mover = {&s->shared->rank[first], p->mesh.n_devices, p, from + first,
                      s->bindings + first};
    size_t bytes = mot_mover_room(&mover) + 1;
    char *room =
        mot_fault(s->ctx->faults, MOT_FAULT_map)
            ? MAP_FAILED
            : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return mot_fail(s->ctx, MOT_ERR_MEMORY, MOT_NOWHERE, "no memory to move %s",
                        mot_bytes_text(&s->ctx->arena, (double)bytes));
    *out_moved = mot_mover_run(&mover, room);
    munmap(room, bytes);
    /* Their pages need not stay mapped here too. */
    for (uint32_t r = first; r < first + p->mesh.n_devices; r++)
        madvise(s->shared->rank[r].arena, (size_t)s->bindings[r].room_bytes, MADV_DONTNEED);
    return MOT_OK;
}

MotStatus mot_session_reshare(MotSession *s, uint32_t stage, uint32_t axis, const int64_t *share,
                              int64_t *out_moved)
{
    const MotBinding *from = s->bindings;
    MotMeshAxis *changed = &s->pipeline->stages.data[stage]->mesh.axis[axis];
    memcpy(changed->share, share, changed->n * sizeof *share);
    publish_shares(s);
    MOT_TRY(bind_all(s));
    MOT_TRY(move_kept(s, stage, from, out_moved));
    return command(s, MOT_CMD_REBIND);
}

/* A session as it would be bound, in a context of its own. */
typedef struct {
    const MotSession *session;
    bool fits;
} Fitting;

static MotStatus try_binding(MotCtx *ctx, void *self)
{
    Fitting *f = self;
    const MotSession *s = f->session;
    MotBinding *bindings = mot_arena_array(&ctx->arena, MotBinding, s->shared->n_ranks);
    MOT_TRY(mot_pipeline_bind(ctx, s->pipeline, bindings));
    f->fits = find_too_large(s, bindings) == s->shared->n_ranks;
    return MOT_OK;
}

bool mot_session_fits(MotSession *s, uint32_t stage, uint32_t axis, const int64_t *share)
{
    MotMeshAxis *tried = &s->pipeline->stages.data[stage]->mesh.axis[axis];
    int64_t now[MOT_MAX_RANKS];
    size_t bytes = tried->n * sizeof *share;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    mot_ctx_inherit(&ctx, s->ctx);
    memcpy(now, tried->share, bytes);
    memcpy(tried->share, share, bytes);
    Fitting fitting = {s, false};
    MotStatus status = mot_ctx_run(&ctx, try_binding, &fitting);
    memcpy(tried->share, now, bytes);
    mot_ctx_deinit(&ctx);
    return status == MOT_OK && fitting.fits;
}

const MotRankState *mot_session_rank(const MotSession *s, uint32_t rank)
{
    return &s->shared->rank[rank];
}

int64_t mot_session_pid(const MotSession *s, uint32_t rank)
{
    return s->rank[rank].pid ? s->rank[rank].pid : getpid();
}

double mot_session_rank_memory(const MotSession *s, uint32_t rank)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)mot_session_pid(s, rank));
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %lf", &kib);
    if (file)
        fclose(file);
    return kib / 1024;
}

uint32_t mot_session_ranks(const MotSession *s)
{
    return s->shared->n_ranks;
}

int64_t mot_session_share(const MotSession *s, uint32_t rank)
{
    Place p = place_of(s, rank);
    return p.program->mesh.axis[0].share[mot_mesh_coordinate(&p.program->mesh, p.position, 0)];
}

uint32_t mot_session_device(const MotSession *s, uint32_t rank)
{
    return place_of(s, rank).device;
}

const MotCluster *mot_session_cluster(const MotSession *s)
{
    return s->cluster;
}

const MotPipeline *mot_session_pipeline(const MotSession *s)
{
    return s->pipeline;
}
