/* Binding a Program: dims to numbers, buffers to offsets; and the names of its parts. */
#include "ir/program.h"

#include <stdlib.h>
#include <string.h>

const char *const mot_buf_kind_names[] = {"scratch",  "param", "input", "scalar",
                                          "constant", "step",  "local"};
const char *const mot_instr_names[] = {"launch",     "all_reduce", "reduce_scatter",
                                       "all_gather", "all_to_all", "part",
                                       "copy",       "send",       "recv"};
const char *const mot_section_names[] = {"count", "forward", "backward", "step", "eval"};

enum { BUFFER_ALIGNMENT = 64 };

static MotStatus refuse_units(MotCtx *ctx, const MotProgram *program, const MotDim *dim,
                              int64_t n_units)
{
    const char *outer = program->mesh.axis[program->dims.data[dim->parent - 1].axis].name,
               *inner = program->mesh.axis[dim->axis].name;
    mot_fail(
        ctx, MOT_ERR_USAGE, MOT_NOWHERE,
        "the shares of axis %s give a device %lld replicas, and axis %s splits the samples of one",
        mot_quote(&ctx->arena, outer), (long long)n_units, mot_quote(&ctx->arena, inner));
    mot_hint(ctx, "give each place of the axis %s as much as the others",
             mot_quote(&ctx->arena, outer));
    return ctx->status;
}

static MotStatus bind_dims(MotCtx *ctx, const MotProgram *program, MotBinding *binding)
{
    for (uint32_t i = 0; i < program->dims.n; i++) {
        const MotDim *dim = &program->dims.data[i];
        if (dim->cut) {
            mot_program_bind_cut(program, binding, i);
            continue;
        }
        const MotMeshAxis *axis = &program->mesh.axis[dim->axis];
        int64_t whole = dim->parent ? binding->size[dim->parent - 1] : dim->size;
        if (dim->of_one && whole > program->dims.data[dim->parent - 1].granule)
            return refuse_units(ctx, program, dim,
                                whole / program->dims.data[dim->parent - 1].granule);
        int64_t *parts = mot_arena_array(&ctx->arena, int64_t, axis->n);
        uint32_t own = mot_mesh_coordinate(&program->mesh, binding->position, dim->axis);
        mot_share_split(axis->share, axis->n, whole / dim->granule, parts);
        for (uint32_t k = 0; k < own; k++)
            binding->offset[i] += parts[k] * dim->granule;
        binding->size[i] = parts[own] * dim->granule;
    }
    return MOT_OK;
}

static MotType bind_type(const MotType *type, const int64_t *sizes)
{
    MotType bound = *type;
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] < 0)
            bound.dims[d] = sizes[-type->dims[d] - 1];
    return bound;
}

uint32_t mot_program_owner(const MotProgram *program, uint32_t buf)
{
    while (program->bufs.data[buf].alias)
        buf = program->bufs.data[buf].alias - 1;
    return buf;
}

/* Bytes from the start of the owner's memory to that of the view. */
static int64_t find_view_offset(const MotProgram *program, const MotBinding *binding, uint32_t buf)
{
    int64_t offset = 0;
    for (uint32_t in; program->bufs.data[buf].alias; buf = in) {
        in = program->bufs.data[buf].alias - 1;
        const MotType *whole = &binding->types[in];
        if (program->bufs.data[buf].alias_start && whole->dims[0])
            offset += mot_type_bytes(whole) / whole->dims[0] * program->bufs.data[buf].alias_start;
    }
    return offset;
}

bool mot_section_is_repeated(MotSection section)
{
    return section < MOT_SECTION_STEP;
}

static bool has_dim(const MotType *type)
{
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] < 0)
            return true;
    return false;
}

bool mot_instr_is_resizable(const MotProgram *program, const MotInstr *ins)
{
    for (uint32_t i = 0; ins->kind == MOT_INS_LAUNCH && i < ins->n_bufs; i++)
        if (has_dim(&program->bufs.data[ins->bufs[i]].type))
            return true;
    return false;
}

bool mot_instr_is_due(const MotInstr *ins, uint32_t micro)
{
    return ins->when == MOT_WHEN_ALL || (ins->when == MOT_WHEN_FIRST) == (micro == 0);
}

uint32_t mot_program_must_be_taken(const MotProgram *program, const MotInstr *send, MotRun run)
{
    uint32_t copies = program->bufs.data[mot_program_owner(program, send->bufs[0])].copies;
    bool is_last = !mot_section_is_repeated(run.section) || run.micro + 1 == program->n_micro;
    return is_last || send->when != MOT_WHEN_ALL || run.micro + 2 <= copies
               ? 0
               : run.micro + 2 - copies;
}

int64_t mot_program_offset(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                           uint32_t micro)
{
    uint32_t copies = program->bufs.data[mot_program_owner(program, buf)].copies;
    return binding->arena_offset[buf] + micro % copies * binding->stride[buf];
}

bool mot_instr_is_collective(const MotInstr *ins)
{
    return ins->kind >= MOT_INS_ALL_REDUCE && ins->kind <= MOT_INS_ALL_TO_ALL;
}

/*
 * First and last instruction that touches a buffer. Sections never overlap in time, so each has
 * positions of its own; but the runs of forward and backward of several micro-batches in flight
 * alternate, and what they share lives through both.
 */
typedef struct {
    uint32_t first, last;
    bool is_used;
} Lifetime;

static void note_use(Lifetime *life, uint32_t position)
{
    if (!life->is_used || position < life->first)
        life->first = position;
    if (!life->is_used || position > life->last)
        life->last = position;
    life->is_used = true;
}

/* The position of a section's first instruction. */
static uint32_t begin_of(const MotProgram *program, MotSection section)
{
    uint32_t position = 0;
    for (int s = 0; s < (int)section; s++)
        position += program->section[s].n;
    return position;
}

/* The host reads an output after the section. */
static void note_output(const MotProgram *program, Lifetime *life, uint32_t buf, MotSection section)
{
    if (buf != MOT_NO_BUF)
        note_use(&life[mot_program_owner(program, buf)],
                 begin_of(program, section) + program->section[section].n);
}

/*
 * Beyond the uses by this rank: what micro-batches in flight share, and what a rank of another
 * stage reads at its own time.
 */
static void extend_life(const MotProgram *program, uint32_t buf, Lifetime *life)
{
    const MotBuf *b = &program->bufs.data[buf];
    uint32_t step = begin_of(program, MOT_SECTION_STEP), eval = begin_of(program, MOT_SECTION_EVAL);
    if (b->copies > 1) {
        note_use(life, 0);
        note_use(life, step - 1);
    }
    if (b->is_sent)
        note_use(life,
                 (life->first < eval ? eval : eval + program->section[MOT_SECTION_EVAL].n) - 1);
}

uint32_t *mot_program_completions(MotCtx *ctx, const MotProgram *program, MotSection section)
{
    uint32_t n = program->section[section].n;
    uint32_t *done = mot_arena_array(&ctx->arena, uint32_t, n);
    /* By event: the first instruction that waits for it. */
    uint32_t *awaited = mot_arena_array(&ctx->arena, uint32_t, program->n_events + 1);
    for (uint32_t i = n; i-- > 0;) {
        const MotInstr *ins = &program->section[section].data[i];
        for (uint32_t k = 0; k < ins->wait.n; k++)
            awaited[ins->wait.data[k]] = i;
    }
    uint32_t issue[MOT_MAX_IN_FLIGHT]; /* of the collectives that follow, a ring */
    for (uint32_t k = 0; k < MOT_MAX_IN_FLIGHT; k++)
        issue[k] = n;
    for (uint32_t i = n, next = n, k = 0; i-- > 0;) {
        const MotInstr *ins = &program->section[section].data[i];
        if (!mot_instr_is_collective(ins))
            continue;
        if (ins->signal && awaited[ins->signal] && awaited[ins->signal] < next)
            next = awaited[ins->signal];
        uint32_t *last = &issue[k++ % MOT_MAX_IN_FLIGHT];
        next = *last < next ? *last : next;
        *last = i;
        done[i] = next;
    }
    return done;
}

static Lifetime *find_lifetimes(MotCtx *ctx, const MotProgram *program)
{
    Lifetime *life = mot_arena_array(&ctx->arena, Lifetime, program->bufs.n);
    uint32_t position = 0;
    for (int s = 0; s < MOT_N_SECTIONS; s++) {
        const uint32_t *done = mot_program_completions(ctx, program, (MotSection)s);
        for (uint32_t i = 0, begin = position; i < program->section[s].n; i++, position++) {
            const MotInstr *ins = &program->section[s].data[i];
            for (uint32_t k = 0; k < ins->n_bufs; k++) {
                Lifetime *of = &life[mot_program_owner(program, ins->bufs[k])];
                note_use(of, position);
                if (mot_instr_is_collective(ins))
                    note_use(of, begin + done[i]);
            }
        }
    }
    for (uint32_t i = 0; i < program->outputs.n; i++) {
        note_output(program, life, program->outputs.data[i].buf, MOT_SECTION_STEP);
        note_output(program, life, program->outputs.data[i].eval_buf, MOT_SECTION_EVAL);
    }
    for (uint32_t i = 0; i < program->bufs.n; i++)
        extend_life(program, i, &life[i]);
    return life;
}

int64_t mot_program_align(int64_t bytes)
{
    return (bytes + BUFFER_ALIGNMENT - 1) & ~(int64_t)(BUFFER_ALIGNMENT - 1);
}

/* A scratch memory to be placed, or placed. */
typedef struct {
    int64_t bytes, begin;
    uint32_t buf;
    Lifetime life;
} Block;

/* The largest first; of equal ones the one that is used first. */
static int compare_blocks(const void *a, const void *b)
{
    const Block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->life.first != y->life.first)
        return x->life.first < y->life.first ? -1 : 1;
    return (x->buf > y->buf) - (x->buf < y->buf);
}

/*
 * The lowest place where the block fits among those of `placed`, by their begin, that live at the
 * same time.
 */
static int64_t find_room(const Block *const *placed, uint32_t n, const Block *block, int64_t base)
{
    int64_t at = base;
    for (uint32_t i = 0; i < n; i++) {
        const Block *other = placed[i];
        if (other->life.last < block->life.first || other->life.first > block->life.last)
            continue;
        if (other->begin >= at + block->bytes)
            break;
        at = other->begin + other->bytes > at ? other->begin + other->bytes : at;
    }
    return at;
}

static uint32_t list_blocks(MotCtx *ctx, const MotProgram *program, const MotBinding *binding,
                            Block *out)
{
    const Lifetime *life = find_lifetimes(ctx, program);
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        const MotBuf *buf = &program->bufs.data[i];
        if (buf->kind == MOT_BUF_SCRATCH && !buf->alias && life[i].is_used)
            out[n++] =
                (Block){.bytes = binding->stride[i] * buf->copies, .buf = i, .life = life[i]};
    }
    qsort(out, n, sizeof *out, compare_blocks);
    return n;
}

/*
 * Greedy by size. Over the programs of the tests the median takes 0.4 % more than what lives at the
 * same time, the worst 22 %; placed in the order of the program it was 14 % and 50 %. Quadratic in
 * the buffers, milliseconds for thousands. Returns the bytes that they take together.
 */
static int64_t place_scratch(MotCtx *ctx, const MotProgram *program, MotBinding *binding)
{
    Block *block = mot_arena_array(&ctx->arena, Block, program->bufs.n);
    const Block **placed = mot_arena_array(&ctx->arena, const Block *, program->bufs.n);
    uint32_t n = list_blocks(ctx, program, binding, block);
    int64_t end = binding->room_bytes;
    for (uint32_t i = 0; i < n; i++) {
        Block *b = &block[i];
        b->begin = find_room(placed, i, b, binding->room_bytes);
        uint32_t k = i;
        for (; k > 0 && placed[k - 1]->begin > b->begin; k--)
            placed[k] = placed[k - 1];
        placed[k] = b;
        binding->arena_offset[b->buf] = b->begin;
        if (b->begin + b->bytes > end)
            end = b->begin + b->bytes;
    }
    return end - binding->room_bytes;
}

int64_t mot_program_part_offset(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                                int d)
{
    int64_t offset = 0, dim = program->bufs.data[buf].type.dims[d];
    for (uint32_t s = dim < 0 ? (uint32_t)-dim : 0; s; s = program->dims.data[s - 1].parent)
        offset += binding->offset[s - 1];
    return offset;
}

/* Bytes from the start of a persistent buffer's room to its first row. */
static int64_t find_row_place(const MotProgram *program, const MotBinding *binding, uint32_t buf)
{
    const MotType *type = &binding->types[buf];
    if (type->rank == 0 || program->bufs.data[buf].kind == MOT_BUF_LOCAL)
        return 0;
    int64_t row = mot_dtype_bytes(type->dtype);
    for (int d = 1; d < type->rank; d++)
        row *= type->dims[d];
    return row * mot_program_part_offset(program, binding, buf, 0);
}

MotStatus mot_program_bind(MotCtx *ctx, const MotProgram *program, uint32_t position,
                           MotBinding *out_binding)
{
    MotBinding b = {.position = position,
                    .size = mot_arena_array(&ctx->arena, int64_t, program->dims.n),
                    .offset = mot_arena_array(&ctx->arena, int64_t, program->dims.n),
                    .types = mot_arena_array(&ctx->arena, MotType, program->bufs.n),
                    .arena_offset = mot_arena_array(&ctx->arena, int64_t, program->bufs.n),
                    .stride = mot_arena_array(&ctx->arena, int64_t, program->bufs.n)};
    MOT_TRY(bind_dims(ctx, program, &b));
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        const MotBuf *buf = &program->bufs.data[i];
        b.types[i] = bind_type(&buf->type, b.size);
        int64_t bytes = mot_program_align(mot_type_bytes(&b.types[i]));
        b.stride[i] = bytes;
        b.arena_offset[i] = -1;
        if (buf->kind == MOT_BUF_SCRATCH || buf->alias)
            continue;
        b.stride[i] = mot_program_align(mot_type_bytes(&buf->global));
        b.arena_offset[i] = b.room_bytes + find_row_place(program, &b, i);
        b.room_bytes += b.stride[i] * buf->copies;
        b.arena_bytes += bytes * buf->copies;
    }
    b.arena_bytes += place_scratch(ctx, program, &b);
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        uint32_t owner = mot_program_owner(program, i);
        if (i == owner)
            continue;
        b.arena_offset[i] = b.arena_offset[owner] + find_view_offset(program, &b, i);
        b.stride[i] = b.stride[owner];
    }
    *out_binding = b;
    return MOT_OK;
}

/*
 * reshape, broadcast, iota and slice state the dims of their result; a bound kernel states the
 * bound ones.
 */
static void bind_dims_attr(MotCtx *ctx, MotOp *op, const MotType *result)
{
    for (const MotAttrField *f = mot_op_info(op->kind)->fields; f->name; f++)
        if (f->kind == MOT_ATTR_INTS &&
            (strcmp(f->name, "dims") == 0 || strcmp(f->name, "size") == 0)) {
            MotInts *dims = (MotInts *)(void *)((char *)op->attrs + f->offset);
            dims->data =
                mot_arena_copy(&ctx->arena, result->dims, (size_t)result->rank * sizeof(int64_t));
        }
}

MotGraph *mot_program_bind_kernel(MotCtx *ctx, const MotProgram *program, uint32_t kernel,
                                  const int64_t *sizes)
{
    MotGraph *g = mot_graph_clone(ctx, program->kernels.data[kernel].graph);
    for (uint32_t v = 1; v < g->values.n; v++)
        g->values.data[v].type = bind_type(&g->values.data[v].type, sizes);
    for (uint32_t i = 1; i < g->ops.n; i++) {
        MotOp *op = &g->ops.data[i];
        if (op->n_out)
            bind_dims_attr(ctx, op, &g->values.data[op->out[0]].type);
    }
    return g;
}

/* ---- Launches ---- */

uint32_t mot_launch_sets(const MotInstr *launch)
{
    return launch->n_sets ? launch->n_sets : 1;
}

uint32_t mot_launch_buf(const MotInstr *launch, uint32_t set, uint32_t k)
{
    uint32_t n_sets = mot_launch_sets(launch), n_in = launch->n_in / n_sets,
             n_out = launch->n_bufs / n_sets - n_in;
    return launch->bufs[k < n_in ? set * n_in + k : launch->n_in + set * n_out + k - n_in];
}

/* The types of a kernel's operands, then of its results. */
static const MotType **list_signature(MotCtx *ctx, const MotGraph *kernel, uint32_t *out_n_in,
                                      uint32_t *out_n)
{
    const MotType **types = mot_arena_array(&ctx->arena, const MotType *, kernel->body.n);
    uint32_t n = 0;
    for (int is_result = 0; is_result < 2; is_result++) {
        for (uint32_t i = 0; i < kernel->body.n; i++) {
            const MotOp *op = mot_graph_op(kernel, kernel->body.data[i]);
            if (op->kind == (is_result ? MOT_OP_OUTPUT : MOT_OP_INPUT))
                types[n++] = mot_graph_type(kernel, is_result ? op->in[0] : op->out[0]);
        }
        *(is_result ? out_n : out_n_in) = n;
    }
    return types;
}

/* The first operand or result that is no scalar, or n. */
static uint32_t find_line(const MotType *const *types, uint32_t n)
{
    uint32_t k = 0;
    while (k < n && types[k]->rank == 0)
        k++;
    return k;
}

const int64_t *mot_launch_sizes(MotCtx *ctx, const MotProgram *program, const MotInstr *launch,
                                const MotBinding *binding)
{
    if (!launch->n_sets)
        return binding->size;
    uint32_t n_in, n;
    const MotType **types =
        list_signature(ctx, program->kernels.data[launch->kernel].graph, &n_in, &n);
    uint32_t line = find_line(types, n);
    int64_t *sizes = mot_arena_array(&ctx->arena, int64_t, launch->n_sets);
    for (uint32_t set = 0; set < launch->n_sets; set++)
        sizes[set] = mot_type_elements(&binding->types[mot_launch_buf(launch, set, line)]);
    return sizes;
}

/* ---- The verifier ---- */

typedef struct {
    const MotProgram *program;
    uint32_t n;
} Checker;

static void complain_of(Checker *c, const char *place, const char *what)
{
    MotCtx *ctx = c->program->ctx;
    if (c->n++ == 0)
        mot_fail(ctx, MOT_ERR_MISMATCH, (MotLoc){NULL, place}, "program: %s", what);
    else
        mot_note(ctx, "%s: %s", place, what);
}

static void complain(Checker *c, MotSection section, uint32_t i, const char *what)
{
    const MotInstr *ins = &c->program->section[section].data[i];
    complain_of(c,
                mot_arena_printf(&c->program->ctx->arena, "%s instruction %u (%s)",
                                 mot_section_names[section], i, mot_instr_names[ins->kind]),
                what);
}

static bool is_split_by(const MotProgram *p, const MotBuf *buf, int dim, uint32_t axis)
{
    return dim >= 0 && dim < buf->type.rank && buf->type.dims[dim] < 0 &&
           p->dims.data[-buf->type.dims[dim] - 1].axis == axis;
}

static const char *find_misfit(const MotProgram *p, const MotInstr *ins, uint32_t i)
{
    const MotBuf *src = &p->bufs.data[ins->bufs[i]], *dst = &p->bufs.data[ins->bufs[ins->n_in + i]];
    if (!mot_type_equal(&src->global, &dst->global))
        return "source and destination are not the same value";
    if (ins->kind == MOT_INS_ALL_REDUCE || ins->kind == MOT_INS_COPY)
        return mot_dims_equal(&src->type, &dst->type) ? NULL
                                                      : "source and destination differ in shape";
    bool is_split_after = ins->kind == MOT_INS_REDUCE_SCATTER || ins->kind == MOT_INS_PART;
    if (is_split_by(p, is_split_after ? dst : src, ins->moves[i].dim, ins->axis))
        return NULL;
    return is_split_after ? "the destination is not split along the dim by the axis"
                          : "the source is not split along the dim by the axis";
}

/* The peers read the sources while this rank writes its destinations. */
static bool writes_what_it_reads(const MotProgram *p, const MotInstr *ins)
{
    for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
        for (uint32_t i = 0; i < k; i++)
            if (mot_program_owner(p, ins->bufs[i]) == mot_program_owner(p, ins->bufs[k]))
                return true;
    return false;
}

/* Every buffer of a set is a line of as many elements, or a scalar, as its kernel wants it. */
static bool sets_fit(const MotProgram *p, const MotInstr *ins)
{
    const MotGraph *kernel = p->kernels.data[ins->kernel].graph;
    uint32_t n_in, n, n_sets = ins->n_sets;
    const MotType **types = list_signature(p->ctx, kernel, &n_in, &n);
    uint32_t line = find_line(types, n);
    if (kernel->symbols.n != 1 || line == n || ins->n_in != n_sets * n_in ||
        ins->n_bufs != n_sets * n)
        return false;
    for (uint32_t set = 0; set < n_sets; set++)
        for (uint32_t k = 0; k < n; k++) {
            const MotType *type = &p->bufs.data[mot_launch_buf(ins, set, k)].type,
                          *of_line = &p->bufs.data[mot_launch_buf(ins, set, line)].type;
            if (type->dtype != types[k]->dtype ||
                (types[k]->rank ? !mot_dims_equal(type, of_line) : type->rank != 0))
                return false;
        }
    return true;
}

/* Every buffer is of the type that the kernel has there. */
static bool operands_fit(const MotProgram *p, const MotInstr *ins)
{
    uint32_t n_in, n;
    const MotType **types = list_signature(p->ctx, p->kernels.data[ins->kernel].graph, &n_in, &n);
    if (ins->n_in != n_in || ins->n_bufs != n)
        return false;
    for (uint32_t k = 0; k < n; k++)
        if (!mot_type_equal(types[k], &p->bufs.data[ins->bufs[k]].type))
            return false;
    return true;
}

/* Sets run at the same time: what one writes, no other one reads or writes. */
static bool sets_are_apart(const MotProgram *p, const MotInstr *ins)
{
    uint32_t *writer = mot_arena_array(&p->ctx->arena, uint32_t, p->bufs.n); /* set + 1 */
    uint32_t n = ins->n_bufs / ins->n_sets, n_in = ins->n_in / ins->n_sets;
    for (uint32_t i = 0; i < 2 * ins->n_bufs; i++) { /* all results, then everything */
        uint32_t set = i % ins->n_bufs / n, k = i % n;
        uint32_t *of = &writer[mot_program_owner(p, mot_launch_buf(ins, set, k))];
        if (*of && *of != set + 1)
            return false;
        if (k >= n_in)
            *of = set + 1;
    }
    return true;
}

static void check_shapes(Checker *c, MotSection section, uint32_t i)
{
    const MotProgram *p = c->program;
    const MotInstr *ins = &p->section[section].data[i];
    if ((ins->stream == MOT_STREAM_COMM) != mot_instr_is_collective(ins))
        complain(c, section, i, "collectives, and nothing else, are for the comm stream");
    if (ins->kind == MOT_INS_LAUNCH) {
        if (!(ins->n_sets ? sets_fit : operands_fit)(p, ins))
            complain(c, section, i, "the buffers are not what the kernel runs on");
        else if (ins->n_sets && !sets_are_apart(p, ins))
            complain(c, section, i, "a set writes what another set reads or writes");
        return;
    }
    if (ins->kind == MOT_INS_SEND || ins->kind == MOT_INS_RECV)
        return;
    if (ins->n_in == 0 || ins->n_bufs != 2 * ins->n_in) {
        complain(c, section, i, "it has not one destination a source");
        return;
    }
    if (ins->kind != MOT_INS_COPY && ins->axis >= p->mesh.n_axes)
        complain(c, section, i, "no such mesh axis");
    if (mot_instr_is_collective(ins) && writes_what_it_reads(p, ins))
        complain(c, section, i, "a destination lies in the memory of another buffer of it");
    for (uint32_t k = 0; k < ins->n_in; k++) {
        const char *misfit = find_misfit(p, ins, k);
        if (misfit)
            complain(c, section, i, misfit);
    }
}

static bool is_made_in_step(MotBufKind kind)
{
    return kind == MOT_BUF_SCRATCH || kind == MOT_BUF_STEP;
}

/* What each stream did last to each memory, as positions + 1, and how far it knows of the other. */
typedef struct {
    uint32_t *used[2], *written[2], known[2];
    uint32_t *signalled; /* by event: the position + 1 that signals it; 0 while nothing did */
} Streams;

static Streams make_streams(const MotProgram *p)
{
    MotArena *arena = &p->ctx->arena;
    Streams s = {.signalled = mot_arena_array(arena, uint32_t, p->n_events + 1)};
    for (int i = 0; i < 2; i++) {
        s.used[i] = mot_arena_array(arena, uint32_t, p->bufs.n);
        s.written[i] = mot_arena_array(arena, uint32_t, p->bufs.n);
    }
    return s;
}

static void check_events(Checker *c, Streams *s, MotSection section, uint32_t i)
{
    const MotProgram *p = c->program;
    const MotInstr *ins = &p->section[section].data[i];
    int own = (int)ins->stream, other = !own;
    for (uint32_t k = 0; k < ins->wait.n; k++) {
        uint32_t event = ins->wait.data[k];
        if (event > p->n_events || !s->signalled[event])
            complain(c, section, i, "waits for an event that nothing before it signals");
        else if (s->signalled[event] > s->known[own])
            s->known[own] = s->signalled[event];
    }
    for (uint32_t k = 0; k < ins->n_bufs; k++) {
        uint32_t memory = mot_program_owner(p, ins->bufs[k]);
        if ((k < ins->n_in ? s->written : s->used)[other][memory] > s->known[own])
            complain(c, section, i, "touches a buffer that the other stream may still hold");
        s->used[own][memory] = i + 1;
        if (k >= ins->n_in)
            s->written[own][memory] = i + 1;
    }
    if (ins->signal)
        s->signalled[ins->signal] = i + 1;
}

/* Where a buffer lies in its owner's memory: elements [begin, begin + n) of the whole value. */
typedef struct {
    int64_t begin, n;
} Extent;

static Extent find_extent(const MotProgram *p, uint32_t buf)
{
    Extent e = {0, mot_type_elements(&p->bufs.data[buf].global)};
    for (uint32_t in; p->bufs.data[buf].alias; buf = in) {
        in = p->bufs.data[buf].alias - 1;
        const MotType *whole = &p->bufs.data[in].global;
        if (whole->rank && whole->dims[0])
            e.begin += mot_type_elements(whole) / whole->dims[0] * p->bufs.data[buf].alias_start;
    }
    return e;
}

/*
 * A view of a part must be one of whole entries of a dim that no axis splits: the same part on
 * every rank.
 */
static void check_view(Checker *c, uint32_t i)
{
    const MotProgram *p = c->program;
    const MotBuf *buf = &p->bufs.data[i], *in = &p->bufs.data[buf->alias - 1];
    int64_t n = mot_type_elements(&buf->global), n_whole = mot_type_elements(&in->global),
            entries = in->type.rank ? in->type.dims[0] : 1, start = buf->alias_start;
    if ((start == 0 && n == n_whole) || n_whole == 0)
        return;
    if (entries <= 0 || start < 0 || n % (n_whole / entries) != 0 ||
        start + n / (n_whole / entries) > entries)
        complain_of(c, mot_arena_printf(&p->ctx->arena, "buffer %u", i),
                    "is no view of whole entries of the buffer it lies in");
}

/* The host finds buffers by their names. */
static void check_names(Checker *c)
{
    const MotProgram *p = c->program;
    MotMap names;
    mot_map_init(&names, &p->ctx->arena);
    for (uint32_t i = 0; i < p->bufs.n; i++)
        if (p->bufs.data[i].name && mot_map_put_str(&names, p->bufs.data[i].name, i))
            complain_of(c, mot_arena_printf(&p->ctx->arena, "buffer %u", i),
                        "has the name of another one");
}

enum { BY_CUTTING = 1, BY_OTHERS = 2 }; /* ranks */

typedef struct {
    bool *is_written;  /* [bufs] */
    uint8_t *has_made; /* [bufs]: which ranks wrote it */
    uint32_t *next;    /* [bufs]: the next buffer + 1 with the same owner; the owner is the first */
    Extent *extent;    /* [bufs] */
} Memory;

static Memory find_memory(const MotProgram *p)
{
    MotArena *arena = &p->ctx->arena;
    Memory m = {.is_written = mot_arena_array(arena, bool, p->bufs.n),
                .has_made = mot_arena_array(arena, uint8_t, p->bufs.n),
                .next = mot_arena_array(arena, uint32_t, p->bufs.n),
                .extent = mot_arena_array(arena, Extent, p->bufs.n)};
    for (uint32_t i = 0; i < p->bufs.n; i++) {
        uint32_t owner = mot_program_owner(p, i);
        m.extent[i] = find_extent(p, i);
        if (i != owner) {
            m.next[i] = m.next[owner];
            m.next[owner] = i + 1;
        }
    }
    return m;
}

/*
 * Whether what was written covers the buffer. Parts of one memory that are written do not overlap,
 * but for the whole.
 */
static bool is_defined(const MotProgram *p, const Memory *m, uint32_t buf)
{
    const Extent *own = &m->extent[buf];
    int64_t n = 0;
    for (uint32_t i = mot_program_owner(p, buf) + 1; i; i = m->next[i - 1]) {
        const Extent *e = &m->extent[i - 1];
        int64_t begin = e->begin > own->begin ? e->begin : own->begin;
        int64_t end = e->begin + e->n < own->begin + own->n ? e->begin + e->n : own->begin + own->n;
        n += m->is_written[i - 1] && begin < end ? end - begin : 0;
    }
    return n >= own->n;
}

/*
 * Who lends cuts as well. Helpers and those who meet them have made what is theirs in sizes that
 * are 0 for the others.
 */
static unsigned who_runs(const MotInstr *ins)
{
    return ins->cut && ins->who == MOT_WHO_WHOLE  ? BY_OTHERS
           : ins->cut && ins->who == MOT_WHO_CUTS ? BY_CUTTING
                                                  : BY_CUTTING | BY_OTHERS;
}

/* A launch for some ranks reads what they have made, and only those. */
static void check_cut(Checker *c, MotSection section, uint32_t i, Memory *m)
{
    const MotProgram *p = c->program;
    const MotInstr *ins = &p->section[section].data[i];
    unsigned ranks = who_runs(ins);
    if (ins->cut > p->cuts.n ||
        (ins->cut && ins->kind != MOT_INS_LAUNCH && ins->who != MOT_WHO_IF_LENT)) {
        complain(c, section, i,
                 "only a launch is for ranks that cut a layer, or for those that don't");
        return;
    }
    for (uint32_t k = 0; k < ins->n_in; k++)
        if (is_made_in_step(p->bufs.data[ins->bufs[k]].kind) && m->has_made[ins->bufs[k]] &&
            (ranks & ~(unsigned)m->has_made[ins->bufs[k]]))
            complain(c, section, i, "reads what only ranks that cut, or that don't, have made");
    for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
        m->has_made[ins->bufs[k]] |= (uint8_t)ranks;
}

static void check_instr(Checker *c, MotSection section, uint32_t i, Memory *m)
{
    const MotProgram *p = c->program;
    const MotInstr *ins = &p->section[section].data[i];
    check_cut(c, section, i, m);
    for (uint32_t k = 0; k < ins->n_in; k++) {
        MotBufKind kind = p->bufs.data[mot_program_owner(p, ins->bufs[k])].kind;
        if (is_made_in_step(kind) && !is_defined(p, m, ins->bufs[k]))
            complain(c, section, i, "reads a buffer that nothing wrote");
    }
    for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
        m->is_written[ins->bufs[k]] = true;
    check_shapes(c, section, i);
}

MotStatus mot_program_verify(const MotProgram *program)
{
    Checker c = {.program = program};
    check_names(&c);
    for (uint32_t i = 0; i < program->bufs.n; i++)
        if (program->bufs.data[i].alias)
            check_view(&c, i);
    Memory memory = find_memory(program);
    for (int s = 0; s < MOT_N_SECTIONS; s++) {
        if (s == MOT_SECTION_EVAL) {
            memset(memory.is_written, 0, program->bufs.n * sizeof *memory.is_written);
            memset(memory.has_made, 0, program->bufs.n * sizeof *memory.has_made);
        }
        Streams streams = make_streams(program);
        for (uint32_t i = 0; i < program->section[s].n; i++) {
            check_instr(&c, (MotSection)s, i, &memory);
            check_events(&c, &streams, (MotSection)s, i);
        }
    }
    return program->ctx->status;
}
