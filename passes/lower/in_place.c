/* Instructions that write where their result is wanted. */
#include "passes/lower/in_place.h"

/* Whether the buffer itself, not a view of it, is among the results. */
static bool writes(const MotInstr *ins, uint32_t buf)
{
    for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
        if (ins->bufs[k] == buf)
            return true;
    return false;
}

/* Whether operands or results [begin, end) lie in the memory that `owner` owns. */
static bool touches(const MotProgram *p, const MotInstr *ins, uint32_t owner, uint32_t begin,
                    uint32_t end)
{
    for (uint32_t k = begin; k < end; k++)
        if (mot_program_owner(p, ins->bufs[k]) == owner)
            return true;
    return false;
}

static bool is_elementwise_kernel(const MotGraph *g)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (!mot_op_is_elementwise(op) && op->kind != MOT_OP_INPUT && op->kind != MOT_OP_OUTPUT &&
            op->kind != MOT_OP_CONSTANT)
            return false;
    }
    return true;
}

uint32_t mot_find_movable(const MotProgram *p, MotSection section, uint32_t buf)
{
    int64_t n = mot_type_elements(&p->bufs.data[buf].global);
    buf = mot_program_owner(p, buf);
    if (p->bufs.data[buf].kind != MOT_BUF_SCRATCH ||
        mot_type_elements(&p->bufs.data[buf].global) != n)
        return MOT_NO_BUF;
    for (uint32_t i = p->section[section].n; i-- > 0;) {
        const MotInstr *ins = &p->section[section].data[i];
        if (writes(ins, buf))
            return ins->kind == MOT_INS_LAUNCH ? buf : MOT_NO_BUF;
    }
    return MOT_NO_BUF;
}

/*
 * Whether the instruction may write its result, `src`, into `dst`: it reads that element by
 * element, or not at all.
 */
static bool may_write(const MotProgram *p, const MotInstr *ins, uint32_t src, uint32_t dst)
{
    return writes(ins, src) && (!touches(p, ins, dst, 0, ins->n_in) ||
                                (ins->kind == MOT_INS_LAUNCH &&
                                 is_elementwise_kernel(p->kernels.data[ins->kernel].graph)));
}

/* Whether the host reads it. */
static bool is_output(const MotProgram *p, uint32_t buf)
{
    for (uint32_t i = 0; i < p->outputs.n; i++)
        if (p->outputs.data[i].buf != MOT_NO_BUF &&
            mot_program_owner(p, p->outputs.data[i].buf) == buf)
            return true;
    return false;
}

bool mot_write_in_place(MotProgram *p, MotSection section, uint32_t src, uint32_t dst)
{
    uint32_t n = p->section[section].n, n_makers = 0;
    if (p->bufs.data[src].kind != MOT_BUF_SCRATCH || p->bufs.data[src].alias || is_output(p, src))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        if (touches(p, ins, src, 0, ins->n_in))
            return false;
        if (touches(p, ins, src, ins->n_in, ins->n_bufs)) {
            if ((n_makers && !ins->cut) || !may_write(p, ins, src, dst))
                return false; /* its parts are made by several */
            n_makers++;
        } else if (n_makers && touches(p, ins, dst, 0, ins->n_bufs)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        MotInstr *ins = &p->section[section].data[i];
        for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
            if (ins->bufs[k] == src)
                ins->bufs[k] = dst;
    }
    return n_makers > 0;
}

/* ---- Operands that die ---- */

/* Who touches a memory, as far as reuse has to know. */
typedef struct {
    MotSection section; /* of the last touch */
    uint32_t last;      /* instruction there */
    bool is_shared;     /* other sections, stages, the host, or the other stream may touch it */
} Touch;

static void note_touches(const MotProgram *p, Touch *touch, MotSection section)
{
    for (uint32_t i = 0; i < p->section[section].n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        for (uint32_t k = 0; k < ins->n_bufs; k++) {
            Touch *t = &touch[mot_program_owner(p, ins->bufs[k])];
            bool is_first = t->section == MOT_N_SECTIONS;
            t->is_shared |= ins->stream == MOT_STREAM_COMM || ins->kind == MOT_INS_SEND ||
                            ins->when != MOT_WHEN_ALL || (!is_first && t->section != section);
            t->section = section;
            t->last = i;
        }
    }
}

static void note_host(const MotProgram *p, Touch *touch, uint32_t buf)
{
    if (buf != MOT_NO_BUF)
        touch[mot_program_owner(p, buf)].is_shared = true;
}

static Touch *find_touches(const MotProgram *p)
{
    Touch *touch = mot_arena_array(&p->ctx->arena, Touch, p->bufs.n);
    for (uint32_t i = 0; i < p->bufs.n; i++)
        touch[i].section = MOT_N_SECTIONS;
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        note_touches(p, touch, (MotSection)s);
    for (uint32_t i = 0; i < p->outputs.n; i++) {
        note_host(p, touch, p->outputs.data[i].buf);
        note_host(p, touch, p->outputs.data[i].eval_buf);
    }
    return touch;
}

/*
 * Whether nobody touches the operand's memory after instruction i, and that reads only like
 * elements of it.
 */
static bool dies(const MotProgram *p, const Touch *touch, MotSection section, uint32_t i,
                 uint32_t operand)
{
    const MotInstr *ins = &p->section[section].data[i];
    const MotBuf *buf = &p->bufs.data[ins->bufs[operand]];
    uint32_t owner = mot_program_owner(p, ins->bufs[operand]);
    for (uint32_t k = 0; k < ins->n_in; k++)
        if (mot_program_owner(p, ins->bufs[k]) == owner &&
            !mot_type_equal(&p->bufs.data[ins->bufs[k]].type, &buf->type))
            return false; /* a row, say, that is broadcast */
    return p->bufs.data[owner].kind == MOT_BUF_SCRATCH && !touch[owner].is_shared &&
           touch[owner].section == section && touch[owner].last == i &&
           mot_type_elements(&p->bufs.data[owner].global) == mot_type_elements(&buf->global);
}

/* The ops of the kernel's operands and results, in their order. */
static const MotOp **list_ends(const MotProgram *p, const MotInstr *launch)
{
    const MotGraph *g = p->kernels.data[launch->kernel].graph;
    const MotOp **ends = mot_arena_array(&p->ctx->arena, const MotOp *, launch->n_bufs);
    uint32_t in = 0, out = launch->n_in;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT)
            ends[in++] = op;
        else if (op->kind == MOT_OP_OUTPUT)
            ends[out++] = op;
    }
    return ends;
}

/*
 * All elementwise kernels do, and those of rows, which pass through a row in phases and store in
 * the last (codegen/kernel.h).
 */
bool mot_may_overwrite(const MotProgram *p, const MotInstr *launch, uint32_t operand,
                       uint32_t result)
{
    const MotGraph *g = p->kernels.data[launch->kernel].graph;
    if (!mot_type_equal(&p->bufs.data[launch->bufs[result]].type,
                        &p->bufs.data[launch->bufs[operand]].type))
        return false;
    if (is_elementwise_kernel(g))
        return true;
    const MotOp **ends = list_ends(p, launch);
    const MotOp *maker = mot_graph_def(g, ends[result]->in[0]);
    return maker->kind == MOT_OP_CROSS_ENTROPY_GRAD && maker->in[0] == ends[operand]->out[0];
}

static void reuse(MotProgram *p, Touch *touch, MotSection section, uint32_t i)
{
    const MotInstr *ins = &p->section[section].data[i];
    for (uint32_t r = ins->n_in; r < ins->n_bufs; r++) {
        MotBuf *result = &p->bufs.data[ins->bufs[r]];
        for (uint32_t k = 0; k < ins->n_in; k++)
            if (result->kind == MOT_BUF_SCRATCH && !result->alias &&
                dies(p, touch, section, i, k) && mot_may_overwrite(p, ins, k, r)) {
                result->alias = ins->bufs[k] + 1;
                touch[mot_program_owner(p, ins->bufs[k])] = touch[ins->bufs[r]];
            }
    }
}

void mot_reuse_operands(MotProgram *p)
{
    Touch *touch = find_touches(p);
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++) {
            const MotInstr *ins = &p->section[s].data[i];
            if (ins->kind == MOT_INS_LAUNCH && ins->when == MOT_WHEN_ALL && !ins->cut &&
                mot_launch_sets(ins) == 1)
                reuse(p, touch, (MotSection)s, i);
        }
}
