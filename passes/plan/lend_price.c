/* Sizes of buffers as linear functions of the numbers of columns and helpers. */
#include "passes/plan/lend_price.h"

#include "ir/balance.h"

#include <math.h>
#include <string.h>

double mot_linear_at(const MotLinear *linear, const MotAmounts *amounts)
{
    return linear->any + linear->kept * (double)amounts->kept +
           linear->lent * (double)amounts->lent + linear->helped * (double)amounts->helped +
           linear->helpers * amounts->helpers;
}

/* The part of a dim that the shares give a rank. */
static double part_of(const MotProgram *p, const MotDim *dim, uint32_t rank)
{
    int64_t parts[MOT_MAX_DEVICES];
    const MotMeshAxis *axis = &p->mesh.axis[dim->axis];
    mot_share_split(axis->share, axis->n, dim->size / dim->granule, parts);
    return (double)(parts[rank] * dim->granule);
}

static const MotDim *dim_of(const MotProgram *p, const MotType *type, int d)
{
    return type->dims[d] < 0 ? &p->dims.data[-type->dims[d] - 1] : NULL;
}

/* The one of its dims that is a number of columns or helpers, or NULL. */
static const MotDim *find_amount(const MotProgram *p, const MotType *type)
{
    for (int d = 0; d < type->rank; d++) {
        const MotDim *dim = dim_of(p, type, d);
        if (dim && dim->cut && dim->what != MOT_DIM_HELPS && dim->what != MOT_DIM_LENDERS)
            return dim;
    }
    return NULL;
}

/*
 * Bytes of a buffer, but for that dim. Other dims are those of `rank`; what is a lender's at its
 * helper is taken for the same.
 */
static double count_bytes(const MotProgram *p, const MotType *type, uint32_t rank)
{
    double bytes = (double)mot_dtype_bytes(type->dtype);
    for (int d = 0; d < type->rank; d++) {
        const MotDim *dim = dim_of(p, type, d);
        if (!dim)
            bytes *= (double)type->dims[d];
        else if (!dim->cut)
            bytes *= part_of(p, dim, rank);
        else if (dim->what == MOT_DIM_LENDERS)
            bytes *= part_of(p, &p->dims.data[dim->parent - 1], rank);
    }
    return bytes;
}

static void add(MotLinear *linear, const MotDim *amount, double x)
{
    static const size_t member[] = {[MOT_DIM_KEPT] = offsetof(MotLinear, kept),
                                    [MOT_DIM_LENT] = offsetof(MotLinear, lent),
                                    [MOT_DIM_HELPED] = offsetof(MotLinear, helped),
                                    [MOT_DIM_HELPERS] = offsetof(MotLinear, helpers)};
    size_t at = amount ? member[amount->what] : offsetof(MotLinear, any);
    *(double *)(void *)((char *)linear + at) += x;
}

static void add_exchange(const MotProgram *p, const MotCost *cost, const MotInstr *ins,
                         uint32_t lender, MotLinear *travels)
{
    travels->any += cost->latency[0];
    for (uint32_t k = ins->n_in; k < ins->n_bufs; k++) {
        const MotType *type = &p->bufs.data[ins->bufs[k]].type;
        add(travels, find_amount(p, type), count_bytes(p, type, lender) / cost->bandwidth[0]);
    }
}

static bool is_product(const MotProgram *p, const MotInstr *ins)
{
    const MotGraph *kernel = p->kernels.data[ins->kernel].graph;
    for (uint32_t i = 0; i < kernel->body.n; i++)
        if (mot_graph_op(kernel, kernel->body.data[i])->kind == MOT_OP_CONTRACT)
            return true;
    return false;
}

/* A copy, in units of `whole` seconds. Of a tensor only the columns are read that are written. */
static void add_copy(const MotProgram *p, const MotCost *cost, const MotInstr *ins, uint32_t rank,
                     double whole, MotLinear *copies)
{
    const MotType *result = &p->bufs.data[ins->bufs[ins->n_bufs - 1]].type;
    const MotDim *written = find_amount(p, result);
    double unit = 1 / (cost->rate[rank].bandwidth * whole);
    copies->any += cost->rate[rank].launch / whole;
    for (uint32_t k = 0; k < ins->n_bufs; k++) {
        const MotType *type = &p->bufs.data[ins->bufs[k]].type;
        const MotDim *amount = find_amount(p, type);
        if (written && !amount)
            type = result;
        add(copies, written && !amount ? written : amount, count_bytes(p, type, rank) * unit);
    }
}

/* Seconds of the layer's products of a step on a rank. */
static double products_of(const MotProgram *p, const MotCost *cost, uint32_t layer, uint32_t rank)
{
    const MotMeshAxis *axis = &p->mesh.axis[0];
    double shares = 0;
    for (uint32_t i = 0; i < axis->n; i++)
        shares += (double)axis->share[i];
    return p->cuts.data[layer].flops * (double)axis->share[rank] / shares / cost->rate[rank].flops;
}

static void add_instr(const MotProgram *p, const MotCost *cost, const MotInstr *ins,
                      MotLendPrice *price)
{
    for (uint32_t i = 0; i < p->mesh.n_devices; i++) {
        MotLendPrice *own = &price[i * p->cuts.n + ins->cut - 1];
        MotLinear *copies[] = {[MOT_WHO_WHOLE] = NULL,
                               [MOT_WHO_CUTS] = &own->cuts,
                               [MOT_WHO_LENDS] = &own->lends,
                               [MOT_WHO_HELPS] = &own->helps,
                               [MOT_WHO_IF_LENT] = NULL};
        double whole = products_of(p, cost, ins->cut - 1, i);
        if (ins->who == MOT_WHO_IF_LENT)
            add_exchange(p, cost, ins, i, &own->travels);
        else if (copies[ins->who] && whole > 0 && !is_product(p, ins))
            add_copy(p, cost, ins, i, whole, copies[ins->who]);
    }
}

void mot_lend_price_find(const MotProgram *p, const MotCost *cost, MotLendPrice *out)
{
    uint32_t n = p->mesh.n_devices * p->cuts.n;
    memset(out, 0, n * sizeof *out);
    for (uint32_t k = 0; k < n; k++)
        out[k].travels.any = p->cuts.data[k % p->cuts.n].is_lendable ? 0 : INFINITY;
    for (uint32_t r = 0; r < p->order.n; r++) {
        const MotRun run = p->order.data[r];
        for (uint32_t i = 0; i < p->section[run.section].n; i++) {
            const MotInstr *ins = &p->section[run.section].data[i];
            if (ins->cut && ins->role != MOT_ROLE_UPDATE && mot_instr_is_due(ins, run.micro))
                add_instr(p, cost, ins, out);
        }
    }
}
