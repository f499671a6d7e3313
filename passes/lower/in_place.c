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

bool mot_write_in_place(MotProgram *p, MotSection section, uint32_t src, uint32_t dst)
{
    uint32_t n = p->section[section].n, maker = n;
    if (p->bufs.data[src].kind != MOT_BUF_SCRATCH || p->bufs.data[src].alias)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        if (touches(p, ins, src, 0, ins->n_in))
            return false;
        if (touches(p, ins, src, ins->n_in, ins->n_bufs)) {
            if (maker != n || !writes(ins, src))
                return false; /* its parts are made by several */
            maker = i;
        }
        if (i > maker && touches(p, ins, dst, 0, ins->n_bufs))
            return false;
    }
    for (uint32_t i = 0; i < p->outputs.n; i++)
        if (p->outputs.data[i].buf != MOT_NO_BUF &&
            mot_program_owner(p, p->outputs.data[i].buf) == src)
            return false;
    MotInstr *ins = &p->section[section].data[maker];
    if (maker == n || (touches(p, ins, dst, 0, ins->n_in) &&
                       (ins->kind != MOT_INS_LAUNCH ||
                        !is_elementwise_kernel(p->kernels.data[ins->kernel].graph))))
        return false;
    for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
        if (ins->bufs[k] == src)
            ins->bufs[k] = dst;
    return true;
}
