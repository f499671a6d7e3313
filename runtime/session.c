/* The host's side: the shared region, commands, scatter and gather. */
#include "runtime/host.h"

#include "ir/layout.h"
#include "runtime/comm.h"
#include "runtime/fit.h"
#include "runtime/move.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

MotPlace mot_host_place(const MotSession *s, uint32_t rank)
{
    MotPlace p = {.stage = mot_pipeline_stage(s->pipeline, rank)};
    p.program = s->pipeline->stages.data[p.stage];
    p.position = rank - mot_pipeline_first_rank(s->pipeline, p.stage);
    p.device = p.program->mesh.devices[p.position];
    return p;
}

const char *mot_host_rank_name(const MotSession *s, uint32_t i)
{
    MotArena *arena = &s->ctx->arena;
    MotPlace p = mot_host_place(s, i);
    const char *stage =
        s->pipeline->stages.n > 1 ? mot_arena_printf(arena, "stage %u, ", p.stage) : "";
    return mot_arena_printf(arena, "rank %u (%sdevice %s)", i, stage,
                            mot_escape(arena, s->cluster->devices.data[p.device].name, 64));
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
    return mot_watch_wait(s);
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
        const MotDevice *device = &s->cluster->devices.data[mot_host_place(s, i).device];
        if (device->memory > 0 && (double)bindings[i].arena_bytes > device->memory)
            break;
    }
    return i;
}

static MotStatus check_memory(MotCtx *ctx, const MotSession *s, const MotBinding *bindings)
{
    uint32_t i = find_too_large(s, bindings);
    if (i == s->shared->n_ranks)
        return MOT_OK;
    mot_fail(
        ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE, "%s needs %s, its memory is %s",
        mot_host_rank_name(s, i), mot_bytes_text(&ctx->arena, (double)bindings[i].arena_bytes),
        mot_bytes_text(&ctx->arena, s->cluster->devices.data[mot_host_place(s, i).device].memory));
    mot_hint(ctx, "give it a smaller share, or plan with smaller micro-batches");
    return ctx->status;
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
    return check_memory(s->ctx, s, s->bindings);
}

/*
 * The most that a rank can ever need under any shares: every buffer whole, none reusing another's
 * place (packing is not monotone in the sizes). Only address space is reserved by it; memory comes
 * with use.
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
    uint32_t n_cuts = s->pipeline->stages.data[0]->cuts.n;
    size_t bytes = 0, mail, cuts, *arena = mot_arena_array(&s->ctx->arena, size_t, n);
    add_piece(&bytes, sizeof(MotShared) + n * sizeof(MotRankState));
    mail = add_piece(&bytes, (size_t)s->pipeline->channels.n * n * sizeof(MotMail));
    cuts = add_piece(&bytes, (size_t)n_cuts * n * 3 * sizeof(int64_t));
    for (uint32_t i = 0; i < n; i++)
        arena[i] = add_piece(&bytes, (size_t)measure_capacity(mot_host_place(s, i).program));
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
    s->shared->kept = (int64_t *)(void *)(p + cuts);
    s->shared->helped = s->shared->kept + (size_t)2 * n_cuts * n;
    for (uint32_t i = 0; i < n; i++) {
        n_threads += s->cluster->devices.data[mot_host_place(s, i).device].threads;
        s->shared->rank[i].cut_ns = s->shared->kept + (size_t)n_cuts * (n + i);
        s->shared->rank[i].arena = p + arena[i];
        s->shared->rank[i].arena_capacity = measure_capacity(mot_host_place(s, i).program);
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
 * What stays in the ranks' arenas leaves the host's view of them once it was copied (the ranks keep
 * it): each parameter would else take memory in two processes.
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

/*
 * Between a whole tensor and the ranks' parts of micro-batch `micro`'s copy. Torn parts are not
 * read: another rank holds the same.
 */
static void copy_parts(const MotSession *s, Var var, uint32_t micro, MotWhole whole, bool to_whole)
{
    const MotProgram *p = s->pipeline->stages.data[var.stage];
    uint32_t first = mot_pipeline_first_rank(s->pipeline, var.stage);
    for (uint32_t r = first; r < first + p->mesh.n_devices; r++) {
        const MotBinding *binding = &s->bindings[r];
        char *part = s->shared->rank[r].arena + mot_program_offset(p, binding, var.buf, micro);
        if (to_whole && s->is_torn[r])
            continue;
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
        if (s->is_torn[r])
            continue;
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

static void publish_cut(MotSession *s, uint32_t i, const MotCut *cut)
{
    size_t n = s->shared->n_ranks;
    memcpy(s->shared->kept + i * n, cut->n_kept, n * sizeof(int64_t));
    memcpy(s->shared->helped + i * n, cut->n_helped, n * sizeof(int64_t));
}

/* The programs' shares and cuts, for the ranks. */
static void publish(MotSession *s)
{
    /* Cuts are those of a pipeline of one stage. */
    const MotProgram *p = s->pipeline->stages.data[0];
    for (uint32_t i = 0; i < p->cuts.n; i++)
        publish_cut(s, i, &p->cuts.data[i]);
    if (p->lender)
        memcpy(s->shared->lender, p->lender, s->shared->n_ranks * sizeof *p->lender);
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
    MOT_TRY(mot_fit_check(ctx, pipeline, mot_fit_machine_bytes()));
    MotSession *s = mot_arena_new(&ctx->arena, MotSession);
    *s = (MotSession){.ctx = ctx, .pipeline = pipeline, .cluster = cluster, .opts = *opts};
    for (int i = 0; i < 2; i++)
        mot_ctx_init(&s->bound[i]);
    mot_ctx_defer(ctx, close_session, s);
    MOT_TRY(map_shared(s));
    publish(s);
    MotStatus status = bind_all(s);
    if (status == MOT_OK)
        status = start_ranks(s);
    if (status == MOT_OK)
        status = command(s, MOT_CMD_REBIND);
    if (status == MOT_ERR_RANK && s->is_halted && opts->is_elastic) {
        mot_warn(ctx, MOT_NOWHERE, "%s", mot_text_get(&ctx->error));
        mot_error_clear(ctx);
        status = MOT_OK;
    }
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
    enum { PATIENCE_MS = 2000 };
    for (int i = 0; i < 2; i++)
        mot_ctx_deinit(&s->bound[i]);
    if (!s->shared)
        return;
    if (s->ctx->status != MOT_OK)
        mot_watch_stop(s); /* they may be in a section */
    s->shared->command = MOT_CMD_QUIT;
    mot_gate_open(&s->shared->command_count);
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        if (s->rank[i].is_running)
            mot_spawn_finish(&s->rank[i], PATIENCE_MS);
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

MotStatus mot_session_read_param(MotSession *s, const MotBuf *buf, MotTensor *out_file)
{
    MotTensor value;
    MOT_TRY(mot_session_read(s, buf->name, &value));
    out_file->type = mot_param_file_type(&value.type, buf->source);
    out_file->data = mot_arena_alloc(&s->ctx->arena, (size_t)mot_type_bytes(&out_file->type));
    mot_param_to_file(&value.type, buf->source, value.data, out_file->data);
    return MOT_OK;
}

/* Gives back the memory of what the ranks hold of a buffer. */
static void release_parts(const MotSession *s, Var var)
{
    const MotProgram *p = s->pipeline->stages.data[var.stage];
    uint32_t first = mot_pipeline_first_rank(s->pipeline, var.stage);
    for (uint32_t r = first; r < first + p->mesh.n_devices; r++) {
        char *part = s->shared->rank[r].arena + mot_program_offset(p, &s->bindings[r], var.buf, 0);
        mot_mover_release(part, part + mot_type_bytes(&s->bindings[r].types[var.buf]));
    }
}

MotStatus mot_session_take(MotSession *s, MotSession *from)
{
    for (uint32_t i = 0; i < s->pipeline->vars.n; i++) {
        const MotBuf *buf = s->pipeline->vars.data[i];
        Var var = {0};
        MotTensor whole;
        if (buf->kind != MOT_BUF_PARAM)
            continue;
        MotArenaMark mark = mot_arena_mark(&from->ctx->arena);
        MOT_TRY(find_var(from, buf->name, &buf->global, &var));
        read_var(from, var, &whole);
        release_parts(from, var);
        MOT_TRY(mot_session_write(s, buf->name, &whole));
        mot_arena_rewind(&from->ctx->arena, mark);
    }
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
    return mot_watch_wait(s);
}

/*
 * Moves what outlives a step in a stage from the places of bindings `from` to those of the present
 * ones.
 */
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

/* The columns are others under other shares. */
static void drop_cuts(MotSession *s)
{
    const MotProgram *p = s->pipeline->stages.data[0];
    for (uint32_t i = 0; i < p->cuts.n; i++)
        for (uint32_t r = 0; r < s->shared->n_ranks; r++)
            p->cuts.data[i].n_kept[r] = p->cuts.data[i].n_helped[r] = 0;
    for (uint32_t i = 0; i < p->bufs.n; i++)
        for (uint32_t r = 0; p->bufs.data[i].kind == MOT_BUF_LOCAL && r < s->shared->n_ranks; r++)
            memset(s->shared->rank[r].arena + s->bindings[r].arena_offset[i], 0,
                   (size_t)mot_type_bytes(&s->bindings[r].types[i]));
}

MotStatus mot_session_reshare(MotSession *s, uint32_t stage, uint32_t axis, const int64_t *share,
                              int64_t *out_moved)
{
    const MotBinding *from = s->bindings;
    MotMeshAxis *changed = &s->pipeline->stages.data[stage]->mesh.axis[axis];
    memcpy(changed->share, share, changed->n * sizeof *share);
    drop_cuts(s);
    publish(s);
    MOT_TRY(bind_all(s));
    MOT_TRY(move_kept(s, stage, from, out_moved));
    return command(s, MOT_CMD_REBIND);
}

static const MotCut *cut_of(const MotSession *s, uint32_t cut)
{
    return &s->pipeline->stages.data[0]->cuts.data[cut];
}

static int64_t *local_of(const MotSession *s, uint32_t rank, uint32_t buf)
{
    return (int64_t *)(void *)(s->shared->rank[rank].arena + s->bindings[rank].arena_offset[buf]);
}

int64_t mot_session_columns(const MotSession *s, uint32_t cut, uint32_t rank)
{
    return s->bindings[rank].types[cut_of(s, cut)->place].dims[0];
}

int64_t mot_session_first_column(const MotSession *s, uint32_t cut, uint32_t rank)
{
    return mot_program_part_offset(s->pipeline->stages.data[0], &s->bindings[rank],
                                   cut_of(s, cut)->place, 0);
}

const int64_t *mot_session_uncomputed(const MotSession *s, uint32_t cut, uint32_t rank)
{
    return local_of(s, rank, cut_of(s, cut)->held);
}

void mot_session_cut(MotSession *s, uint32_t cut, uint32_t rank, const int64_t *list, int64_t n)
{
    const MotCut *c = cut_of(s, cut);
    int64_t columns = mot_session_columns(s, cut, rank), *place = local_of(s, rank, c->place);
    c->n_kept[rank] = n < columns ? n : 0;
    for (int64_t k = 0; n < columns && k < columns; k++)
        place[k] = -1;
    for (int64_t i = 0; n < columns && i < n; i++) {
        MOT_ASSERT(list[i] >= 0 && list[i] < columns);
        local_of(s, rank, c->list)[i] = list[i];
        place[list[i]] = i;
    }
}

void mot_session_help(MotSession *s, uint32_t cut, uint32_t helper, uint32_t lender,
                      const int64_t *list, int64_t n)
{
    const MotCut *c = cut_of(s, cut);
    int64_t columns = mot_session_columns(s, cut, helper),
            whole = s->pipeline->stages.data[0]->bufs.data[c->place].global.dims[0];
    MOT_ASSERT(c->is_lendable);
    s->pipeline->stages.data[0]->lender[helper] = (int64_t)lender + 1;
    c->n_helped[helper] = n;
    memcpy(local_of(s, helper, c->helped), list, (size_t)n * sizeof *list);
    for (int64_t k = 0; columns == whole && k < columns; k++)
        local_of(s, helper, c->helped_place)[k] = -1;
    for (int64_t i = 0; columns == whole && i < n; i++)
        local_of(s, helper, c->helped_place)[list[i]] = i;
}

/*
 * Of a rank's columns: which others compute, in the order of its helpers; and which are computed by
 * somebody.
 */
static void write_lent(MotSession *s, const MotCut *c, uint32_t rank, int64_t columns)
{
    const MotProgram *p = s->pipeline->stages.data[0];
    int64_t *held = local_of(s, rank, c->held), *place = local_of(s, rank, c->place), n = 0;
    for (int64_t k = 0; k < columns; k++)
        held[k] = c->n_kept[rank] && place[k] < 0 ? -1 : 0;
    for (int64_t k = 0; c->is_lendable && k < columns; k++)
        local_of(s, rank, c->lent_place)[k] = -1;
    for (uint32_t h = 0; c->is_lendable && h < s->shared->n_ranks; h++)
        for (int64_t i = 0; p->lender[h] == (int64_t)rank + 1 && i < c->n_helped[h]; i++, n++) {
            int64_t column = local_of(s, h, c->helped)[i];
            local_of(s, rank, c->lent)[n] = column;
            local_of(s, rank, c->lent_place)[column] = n;
            held[column] = 0;
        }
}

MotStatus mot_session_rebind(MotSession *s)
{
    const MotProgram *p = s->pipeline->stages.data[0];
    for (uint32_t i = 0; i < p->cuts.n; i++)
        for (uint32_t r = 0; r < s->shared->n_ranks; r++)
            write_lent(s, &p->cuts.data[i], r, mot_session_columns(s, i, r));
    publish(s);
    MOT_TRY(bind_all(s));
    return command(s, MOT_CMD_REBIND);
}

/* Binds in a context of its own. */
static MotStatus try_binding(MotCtx *ctx, void *self)
{
    const MotSession *s = self;
    MotBinding *bindings = mot_arena_array(&ctx->arena, MotBinding, s->shared->n_ranks);
    MOT_TRY(mot_pipeline_bind(ctx, s->pipeline, bindings));
    return check_memory(ctx, s, bindings);
}

static MotMeshAxis *axis_of(const MotSession *s, const MotReshare *change)
{
    return &s->pipeline->stages.data[change->stage]->mesh.axis[change->axis];
}

MotStatus mot_session_check_shares(MotSession *s, const MotReshare *changes, uint32_t n)
{
    MotCtx ctx;
    MotArenaMark mark = mot_arena_mark(&s->ctx->arena);
    int64_t **before = mot_arena_array(&s->ctx->arena, int64_t *, n);
    for (uint32_t i = 0; i < n; i++) {
        MotMeshAxis *axis = axis_of(s, &changes[i]);
        size_t bytes = axis->n * sizeof *axis->share;
        before[i] = mot_arena_copy(&s->ctx->arena, axis->share, bytes);
        memcpy(axis->share, changes[i].share, bytes);
    }
    mot_ctx_init(&ctx);
    mot_ctx_inherit(&ctx, s->ctx);
    MotStatus status = mot_ctx_run(&ctx, try_binding, s);
    for (uint32_t i = n; i-- > 0;) {
        MotMeshAxis *axis = axis_of(s, &changes[i]);
        memcpy(axis->share, before[i], axis->n * sizeof *axis->share);
    }
    mot_arena_rewind(&s->ctx->arena, mark);
    if (status != MOT_OK)
        mot_fail(s->ctx, status, MOT_NOWHERE, "%s", mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
    return status;
}

bool mot_session_fits(MotSession *s, uint32_t stage, uint32_t axis, const int64_t *share)
{
    bool fits = mot_session_check_shares(s, &(MotReshare){stage, axis, share}, 1) == MOT_OK;
    mot_error_clear(s->ctx);
    return fits;
}

bool mot_session_is_halted(const MotSession *s)
{
    return s->is_halted;
}

MotHeld mot_session_held(const MotSession *s)
{
    return s->held;
}

bool mot_session_is_lost(const MotSession *s, uint32_t rank)
{
    return s->is_lost[rank];
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
    MotPlace p = mot_host_place(s, rank);
    return p.program->mesh.axis[0].share[mot_mesh_coordinate(&p.program->mesh, p.position, 0)];
}

uint32_t mot_session_device(const MotSession *s, uint32_t rank)
{
    return mot_host_place(s, rank).device;
}

const MotCluster *mot_session_cluster(const MotSession *s)
{
    return s->cluster;
}

const MotPipeline *mot_session_pipeline(const MotSession *s)
{
    return s->pipeline;
}
