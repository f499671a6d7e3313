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
    MotProgram *program;
    const MotCluster *cluster;
    MotSessionOpts opts;
    MotShared *shared;
    MotBinding *bindings;
    MotSpawn rank[MOT_MAX_RANKS];
    uint32_t n_commands;
    MotCtx bound[2]; /* the bindings live in bound[n_bindings % 2], those before in the other one */
    uint32_t n_bindings;
};

static const char *rank_name(const MotSession *s, uint32_t i)
{
    const MotDevice *device = &s->cluster->devices.data[s->program->mesh.devices[i]];
    return mot_arena_printf(&s->ctx->arena, "rank %u (device %s)", i,
                            mot_escape(&s->ctx->arena, device->name, 64));
}

/* `in forward instruction 12 of micro-batch 3 (launch of node "/h.0/attn/MatMul")` */
static const char *describe_place(const MotSession *s, uint32_t rank)
{
    const MotRankState *state = &s->shared->rank[rank];
    MotSection section = (MotSection)atomic_load(&state->section);
    uint32_t i = atomic_load(&state->instruction);
    if (i >= s->program->section[section].n)
        return s->shared->command == MOT_CMD_REBIND ? "while it binds the program"
                                                    : "between two sections";
    const MotInstr *ins = &s->program->section[section].data[i];
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
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        MOT_TRY(mot_program_bind(ctx, s->program, i, &s->bindings[i]));
    return MOT_OK;
}

static MotStatus check_memory(MotSession *s)
{
    for (uint32_t i = 0; i < s->shared->n_ranks; i++) {
        MOT_ASSERT(s->bindings[i].arena_bytes <= s->shared->rank[i].arena_capacity);
        const MotDevice *device = &s->cluster->devices.data[s->program->mesh.devices[i]];
        if (device->memory > 0 && (double)s->bindings[i].arena_bytes > device->memory) {
            mot_fail(s->ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE, "%s needs %s, its memory is %s",
                     rank_name(s, i),
                     mot_bytes_text(&s->ctx->arena, (double)s->bindings[i].arena_bytes),
                     mot_bytes_text(&s->ctx->arena, device->memory));
            mot_hint(s->ctx,
                     "give it a smaller share with --shares, or plan with smaller micro-batches");
            return s->ctx->status;
        }
    }
    return MOT_OK;
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

static MotStatus map_shared(MotSession *s)
{
    uint32_t n = s->program->mesh.n_devices;
    int64_t capacity = measure_capacity(s->program);
    size_t header = (sizeof(MotShared) + n * sizeof(MotRankState) + 4095) / 4096 * 4096;
    size_t bytes = header + n * (size_t)capacity;
    void *p = mot_fault(s->ctx->faults, MOT_FAULT_map)
                  ? MAP_FAILED
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return mot_fail(s->ctx, MOT_ERR_MEMORY, MOT_NOWHERE, "can't map %s for the ranks: %s",
                        mot_bytes_text(&s->ctx->arena, (double)bytes), strerror(errno));
    s->shared = p;
    s->shared->n_ranks = n;
    s->shared->bytes = bytes;
    uint32_t n_threads = 0;
    for (uint32_t i = 0; i < n; i++)
        n_threads += s->cluster->devices.data[s->program->mesh.devices[i]].threads;
    s->shared->spins = n_threads <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 0;
    for (uint32_t i = 0; i < n; i++) {
        s->shared->rank[i].arena = (char *)p + header + i * (size_t)capacity;
        s->shared->rank[i].arena_capacity = capacity;
        atomic_store(&s->shared->rank[i].instruction, MOT_NO_INSTRUCTION);
    }
    return MOT_OK;
}

static MotStatus start_ranks(MotSession *s)
{
    for (uint32_t i = 0; i < s->shared->n_ranks; i++) {
        MotRankArgs args = {s->ctx, s->shared, s->program, s->cluster, s->opts.backend, i};
        MOT_TRY(mot_spawn_start(s->ctx, &args, &s->rank[i]));
    }
    return MOT_OK;
}

/*
 * What stays in the ranks' arenas leaves the host's view of them once it was copied (the ranks keep it): each parameter would else
 * take memory in two processes.
 */
static void forget_part(const MotSession *s, uint32_t buf, char *part, int64_t bytes)
{
    MotBufKind kind = s->program->bufs.data[buf].kind;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)part % page;
    if (kind == MOT_BUF_PARAM || kind == MOT_BUF_CONSTANT)
        madvise(part - before, before + (size_t)bytes, MADV_DONTNEED);
}

/* Between a whole tensor and the ranks' parts of micro-batch `micro`'s copy. */
static void copy_parts(const MotSession *s, uint32_t buf, uint32_t micro, MotWhole whole,
                       bool to_whole)
{
    for (uint32_t r = 0; r < s->shared->n_ranks; r++) {
        const MotBinding *binding = &s->bindings[r];
        char *part = s->shared->rank[r].arena + mot_program_offset(s->program, binding, buf, micro);
        mot_comm_copy_part(s->program, binding, buf, whole, part, to_whole);
        forget_part(s, buf, part, mot_type_bytes(&binding->types[buf]));
    }
}

/* For all micro-batches. */
static void scatter(const MotSession *s, uint32_t buf, void *whole)
{
    for (uint32_t m = 0; m < s->program->bufs.data[buf].copies; m++)
        copy_parts(s, buf, m, (MotWhole){whole, NULL}, false);
}

static void gather(const MotSession *s, uint32_t buf, void *whole)
{
    copy_parts(s, buf, 0, (MotWhole){whole, NULL}, true);
}

static void write_constants(const MotSession *s)
{
    for (uint32_t i = 0; i < s->program->bufs.n; i++)
        if (s->program->bufs.data[i].kind == MOT_BUF_CONSTANT)
            scatter(s, i, mot_attrs(s->program->bufs.data[i].source, constant)->data.data);
}

static void close_session(void *session)
{
    mot_session_close(session);
}

MotStatus mot_session_open(MotCtx *ctx, MotProgram *program, const MotCluster *cluster,
                           const MotSessionOpts *opts, MotSession **out_session)
{
    if (program->mesh.n_devices > MOT_MAX_RANKS)
        return mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "%u ranks on one machine; the most is %d",
                        program->mesh.n_devices, MOT_MAX_RANKS);
    MotSession *s = mot_arena_new(&ctx->arena, MotSession);
    *s = (MotSession){.ctx = ctx, .program = program, .cluster = cluster, .opts = *opts};
    for (int i = 0; i < 2; i++)
        mot_ctx_init(&s->bound[i]);
    mot_ctx_defer(ctx, close_session, s);
    MOT_TRY(map_shared(s));
    for (uint32_t a = 0; a < program->mesh.n_axes; a++)
        memcpy(s->shared->share[a], program->mesh.axis[a].share,
               program->mesh.axis[a].n * sizeof(int64_t));
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

static MotStatus find_buf(MotSession *s, const char *name, const MotType *type, uint32_t *out_buf)
{
    for (uint32_t i = 0; i < s->program->bufs.n; i++) {
        const MotBuf *buf = &s->program->bufs.data[i];
        if (!buf->name || strcmp(buf->name, name) != 0)
            continue;
        *out_buf = i;
        if (!type || mot_type_equal(type, &buf->global))
            return MOT_OK;
        return mot_fail(s->ctx, MOT_ERR_DATA, MOT_NOWHERE, "%s is %s[%s], the model has %s[%s]",
                        mot_quote(&s->ctx->arena, name), mot_dtype_name(type->dtype),
                        mot_shape_text(&s->ctx->arena, type->dims, type->rank),
                        mot_dtype_name(buf->global.dtype),
                        mot_shape_text(&s->ctx->arena, buf->global.dims, buf->global.rank));
    }
    return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the program has no input or parameter %s",
                    mot_quote(&s->ctx->arena, name));
}

MotStatus mot_session_write(MotSession *s, const char *name, const MotTensor *whole)
{
    uint32_t buf = 0;
    MOT_TRY(find_buf(s, name, &whole->type, &buf));
    scatter(s, buf, whole->data);
    return MOT_OK;
}

MotStatus mot_session_write_param(MotSession *s, const char *name, const void *file)
{
    uint32_t buf = 0;
    int64_t stride[MOT_MAX_RANK];
    MOT_TRY(find_buf(s, name, NULL, &buf));
    mot_param_strides(&s->program->bufs.data[buf].global, s->program->bufs.data[buf].source,
                      stride);
    copy_parts(s, buf, 0, (MotWhole){(char *)(uintptr_t)file, stride}, false);
    return MOT_OK;
}

MotStatus mot_session_write_batch(MotSession *s, const char *name, uint32_t micro,
                                  const MotTensor *whole)
{
    uint32_t buf = 0;
    MOT_TRY(find_buf(s, name, &whole->type, &buf));
    copy_parts(s, buf, micro, (MotWhole){whole->data, NULL}, false);
    return MOT_OK;
}

MotStatus mot_session_read(MotSession *s, const char *name, MotTensor *out_whole)
{
    uint32_t buf = 0;
    MOT_TRY(find_buf(s, name, NULL, &buf));
    out_whole->type = s->program->bufs.data[buf].global;
    out_whole->data = mot_arena_alloc(&s->ctx->arena, (size_t)mot_type_bytes(&out_whole->type));
    gather(s, buf, out_whole->data);
    return MOT_OK;
}

MotStatus mot_session_output(MotSession *s, const char *name, MotSection section,
                             MotTensor *out_value)
{
    for (uint32_t i = 0; i < s->program->outputs.n; i++) {
        const MotOutput *output = &s->program->outputs.data[i];
        if (strcmp(output->name, name) != 0)
            continue;
        uint32_t buf = section == MOT_SECTION_STEP ? output->buf : output->eval_buf;
        if (buf == MOT_NO_BUF)
            return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is no result of section %s",
                            mot_quote(&s->ctx->arena, name), mot_section_names[section]);
        out_value->type = s->program->bufs.data[buf].global;
        out_value->data = mot_arena_alloc(&s->ctx->arena, (size_t)mot_type_bytes(&out_value->type));
        gather(s, buf, out_value->data);
        return MOT_OK;
    }
    return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the program has no output %s",
                    mot_quote(&s->ctx->arena, name));
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

/* Moves what outlives a step from the places of bindings `from` to those of the present ones. */
static MotStatus move_kept(MotSession *s, const MotBinding *from, int64_t *out_moved)
{
    MotMover mover = {s->shared, s->program, from, s->bindings};
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
    for (uint32_t r = 0; r < s->shared->n_ranks; r++)
        madvise(s->shared->rank[r].arena, (size_t)s->bindings[r].room_bytes, MADV_DONTNEED);
    return MOT_OK;
}

MotStatus mot_session_reshare(MotSession *s, uint32_t axis, const int64_t *share,
                              int64_t *out_moved)
{
    const MotProgram *p = s->program;
    const MotBinding *from = s->bindings;
    memcpy(p->mesh.axis[axis].share, share, p->mesh.axis[axis].n * sizeof *share);
    memcpy(s->shared->share[axis], share, p->mesh.axis[axis].n * sizeof *share);
    MOT_TRY(bind_all(s));
    MOT_TRY(move_kept(s, from, out_moved));
    return command(s, MOT_CMD_REBIND);
}

const MotRankState *mot_session_rank(const MotSession *s, uint32_t position)
{
    return &s->shared->rank[position];
}

double mot_session_rank_memory(const MotSession *s, uint32_t position)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status",
             (int)(s->rank[position].pid ? s->rank[position].pid : getpid()));
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %lf", &kib);
    if (file)
        fclose(file);
    return kib / 1024;
}

const MotProgram *mot_session_program(const MotSession *s)
{
    return s->program;
}
