/* Launches of the update wait for their like. */
#include "passes/lower/batch.h"

#include "ir/builder.h"

#include <string.h>

/* ---- Flat kernels ---- */

static const MotType *type_of(const MotGraph *g, MotValue v)
{
    return mot_graph_type(g, v);
}

/* The type of the first operand that is no scalar, or NULL. */
static const MotType *find_line(const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT && type_of(g, op->out[0])->rank)
            return type_of(g, op->out[0]);
    }
    return NULL;
}

static bool is_line_or_scalar(const MotGraph *g, MotValue v, const MotType *line)
{
    return type_of(g, v)->rank == 0 || mot_dims_equal(type_of(g, v), line);
}

/* Whether the op would do the same if the elements stood in a line. */
static bool is_flat(const MotGraph *g, const MotOp *op, const MotType *line)
{
    bool is_known = mot_op_is_elementwise(op) || mot_op_is_full_sum(g, op) ||
                    op->kind == MOT_OP_INPUT || op->kind == MOT_OP_OUTPUT ||
                    mot_op_is_immediate(g, op);
    for (uint32_t i = 0; i < op->n_in; i++)
        is_known = is_known && (!op->in[i] || is_line_or_scalar(g, op->in[i], line));
    for (uint32_t i = 0; i < op->n_out; i++)
        is_known = is_known && is_line_or_scalar(g, op->out[i], line);
    return is_known;
}

static void flatten_op(MotBuilder *b, const MotGraph *g, const MotOp *op, MotValue *map)
{
    static const int64_t only[] = {0};
    MotAttr_reduce sum = {.axes = {mot_arena_copy(&b->graph->ctx->arena, only, sizeof only), 1}};
    MotValue in[MOT_MAX_OPERANDS];
    MotType types[MOT_MAX_RESULTS];
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = map[op->in[i]];
    for (uint32_t i = 0; i < op->n_out; i++) {
        types[i] = *type_of(g, op->out[i]);
        if (types[i].rank)
            types[i] = mot_type_make(types[i].dtype, 1, (int64_t[]){-1});
    }
    MotOpId id = mot_build_typed(b, op->kind, in, op->n_in,
                                 mot_op_is_full_sum(g, op) ? (const void *)&sum : op->attrs, types);
    for (uint32_t i = 0; i < op->n_out; i++)
        map[op->out[i]] = mot_result(b, id, i);
}

/* The kernel over lines of @n elements, or NULL if it is more than that. */
static MotGraph *flatten(MotCtx *ctx, const MotGraph *g)
{
    const MotType *line = find_line(g);
    for (uint32_t i = 0; i < g->body.n; i++)
        if (!line || !is_flat(g, mot_graph_op(g, g->body.data[i]), line))
            return NULL;
    MotBuilder b = mot_builder_make(mot_graph_make(ctx, "kernel"));
    MotValue *map = mot_arena_array(&ctx->arena, MotValue, g->values.n);
    mot_vec_push(&ctx->arena, &b.graph->symbols, "n");
    for (uint32_t i = 0; i < g->body.n; i++)
        flatten_op(&b, g, mot_graph_op(g, g->body.data[i]), map);
    return b.graph;
}

/* ---- Batches ---- */

/* Launches that wait. */
typedef struct {
    uint32_t kernel; /* flat */
    MotVec(MotInstr) members;
} Batch;

/* What open batches do to a memory. */
enum { READ = 1, WRITTEN = 2 };

typedef struct {
    MotProgram *p;
    /* [kernels that lowering made]: the flat kernel + 1; 0: none, or not asked yet */
    uint32_t *flat;
    bool *is_known; /* asked */
    MotMap texts;   /* of flat kernels -> index */
    MotVec(MotInstr) out;
    MotVec(Batch) open;
    uint8_t *marks; /* by memory */
} Batcher;

/* The flat kernel + 1 of a kernel, or 0. */
static uint32_t find_flat(Batcher *b, uint32_t kernel)
{
    MotCtx *ctx = b->p->ctx;
    if (b->is_known[kernel])
        return b->flat[kernel];
    b->is_known[kernel] = true;
    MotGraph *graph = flatten(ctx, b->p->kernels.data[kernel].graph);
    if (!graph)
        return 0;
    MotText text;
    uint64_t index = b->p->kernels.n;
    mot_text_init(&text, &ctx->arena);
    mot_graph_print(graph, &text);
    if (!mot_map_get(&b->texts, text.data, text.n, &index)) {
        unsigned long long hash = mot_hash(text.data, text.n);
        MotKernel flat = {.name = mot_arena_printf(&ctx->arena, "k_%016llx", hash), .graph = graph};
        mot_vec_push(&ctx->arena, &b->p->kernels, flat);
        mot_map_put(&b->texts, text.data, text.n, index);
    }
    return b->flat[kernel] = (uint32_t)index + 1;
}

/* Operands of all members, then results of all. */
static MotInstr join(MotCtx *ctx, const Batch *batch)
{
    uint32_t n = batch->members.n, at = 0;
    MotInstr joined = batch->members.data[0];
    uint32_t n_in = joined.n_in, n_out = joined.n_bufs - n_in, n_bufs = n * joined.n_bufs;
    joined.bufs = mot_arena_array(&ctx->arena, uint32_t, n_bufs);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n_in; k++)
            joined.bufs[at++] = batch->members.data[i].bufs[k];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n_out; k++)
            joined.bufs[at++] = batch->members.data[i].bufs[n_in + k];
    joined.n_in = n * n_in;
    joined.n_bufs = n_bufs;
    joined.n_sets = n;
    joined.kernel = batch->kernel;
    if (joined.origin)
        joined.origin = mot_arena_printf(&ctx->arena, "%s and %u more", joined.origin, n - 1);
    return joined;
}

/* Issues what waits. Batches don't depend on each other. */
static void flush(Batcher *b)
{
    MotArena *arena = &b->p->ctx->arena;
    for (uint32_t i = 0; i < b->open.n; i++) {
        const Batch *batch = &b->open.data[i];
        bool is_alone = batch->members.n == 1; /* keeps the kernel of its shape */
        mot_vec_push(arena, &b->out, is_alone ? batch->members.data[0] : join(b->p->ctx, batch));
    }
    b->open.n = 0;
    memset(b->marks, 0, b->p->bufs.n * sizeof *b->marks);
}

static bool depends_on_open(const Batcher *b, const MotInstr *ins)
{
    for (uint32_t k = 0; k < ins->n_bufs; k++)
        if (b->marks[mot_program_owner(b->p, ins->bufs[k])] &
            (k < ins->n_in ? WRITTEN : READ | WRITTEN))
            return true;
    return false;
}

static void put(Batcher *b, const MotInstr *ins, uint32_t kernel)
{
    MotArena *arena = &b->p->ctx->arena;
    uint32_t i = 0;
    while (i < b->open.n &&
           (b->open.data[i].kernel != kernel || b->open.data[i].members.data[0].when != ins->when))
        i++;
    if (i == b->open.n)
        mot_vec_push(arena, &b->open, (Batch){.kernel = kernel});
    mot_vec_push(arena, &b->open.data[i].members, *ins);
    for (uint32_t k = 0; k < ins->n_bufs; k++)
        b->marks[mot_program_owner(b->p, ins->bufs[k])] |= k < ins->n_in ? READ : WRITTEN;
}

static void batch_section(Batcher *b, MotSection section)
{
    MotProgram *p = b->p;
    uint32_t n = p->section[section].n;
    b->out.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        bool may_wait = ins->kind == MOT_INS_LAUNCH && ins->role == MOT_ROLE_UPDATE && !ins->cut;
        uint32_t flat = may_wait ? find_flat(b, ins->kernel) : 0;
        if (depends_on_open(b, ins))
            flush(b);
        if (flat)
            put(b, ins, flat - 1);
        else
            mot_vec_push(&p->ctx->arena, &b->out, *ins);
    }
    flush(b);
    for (uint32_t i = 0; i < b->out.n; i++)
        p->section[section].data[i] = b->out.data[i];
    p->section[section].n = b->out.n;
}

static void drop_kernels(MotProgram *p)
{
    uint32_t *number = mot_arena_array(&p->ctx->arena, uint32_t, p->kernels.n), n = 0;
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++)
            if (p->section[s].data[i].kind == MOT_INS_LAUNCH)
                number[p->section[s].data[i].kernel] = 1;
    for (uint32_t k = 0; k < p->kernels.n; k++)
        if (number[k]) {
            p->kernels.data[n] = p->kernels.data[k];
            number[k] = n++;
        }
    p->kernels.n = n;
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++)
            if (p->section[s].data[i].kind == MOT_INS_LAUNCH)
                p->section[s].data[i].kernel = number[p->section[s].data[i].kernel];
}

void mot_batch(MotProgram *program)
{
    MotArena *arena = &program->ctx->arena;
    Batcher b = {.p = program,
                 .flat = mot_arena_array(arena, uint32_t, program->kernels.n),
                 .is_known = mot_arena_array(arena, bool, program->kernels.n),
                 .marks = mot_arena_array(arena, uint8_t, program->bufs.n)};
    mot_map_init(&b.texts, arena);
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        batch_section(&b, (MotSection)s);
    drop_kernels(program);
}
