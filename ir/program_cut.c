/* Layers that ranks cut or lend columns of: what each rank's dims are, and who runs what. */
#include "ir/program.h"

/* What helpers compute for the rank at `position`: columns, or with `is_count` each counts as 1. */
static int64_t sum_helped(const MotProgram *p, const MotCut *cut, uint32_t position, bool is_count)
{
    int64_t sum = 0;
    for (uint32_t h = 0; p->lender && h < p->mesh.n_devices; h++)
        if (p->lender[h] == (int64_t)position + 1 && cut->n_helped[h])
            sum += is_count ? 1 : cut->n_helped[h];
    return sum;
}

/* Where what the rank lends begins in the numbering of all that is lent. */
static int64_t find_lent(const MotProgram *p, const MotCut *cut, uint32_t position, bool is_count)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < position; i++)
        at += sum_helped(p, cut, i, is_count);
    return at;
}

/* Where what the rank computes for its lender begins there. */
static int64_t find_helped(const MotProgram *p, const MotCut *cut, uint32_t position, bool is_count)
{
    int64_t at = find_lent(p, cut, (uint32_t)p->lender[position] - 1, is_count);
    for (uint32_t h = 0; h < position; h++)
        if (p->lender[h] == p->lender[position] && cut->n_helped[h])
            at += is_count ? 1 : cut->n_helped[h];
    return at;
}

/*
 * The size that a dim which is split has at a position. Lendable layers are those of meshes with
 * one axis.
 */
static int64_t split_size(const MotProgram *p, uint32_t dim, uint32_t position)
{
    const MotDim *d = &p->dims.data[dim];
    const MotMeshAxis *axis = &p->mesh.axis[d->axis];
    MOT_ASSERT(!d->cut && !d->parent && axis->n <= MOT_MAX_DEVICES);
    int64_t parts[MOT_MAX_DEVICES];
    mot_share_split(axis->share, axis->n, d->size / d->granule, parts);
    return parts[position] * d->granule;
}

void mot_program_bind_cut(const MotProgram *p, MotBinding *b, uint32_t i)
{
    const MotDim *dim = &p->dims.data[i];
    const MotCut *cut = &p->cuts.data[dim->cut - 1];
    bool is_count = dim->what == MOT_DIM_HELPERS || dim->what == MOT_DIM_HELPS;
    bool helps = p->lender && p->lender[b->position] && cut->n_helped[b->position];
    switch (dim->what) {
    case MOT_DIM_KEPT:
        b->size[i] = cut->n_kept[b->position];
        break;
    case MOT_DIM_LENT:
    case MOT_DIM_HELPERS:
        b->size[i] = sum_helped(p, cut, b->position, is_count);
        b->offset[i] = find_lent(p, cut, b->position, is_count);
        break;
    case MOT_DIM_HELPED:
    case MOT_DIM_HELPS:
        b->size[i] = !helps ? 0 : is_count ? 1 : cut->n_helped[b->position];
        b->offset[i] = helps ? find_helped(p, cut, b->position, is_count) : 0;
        break;
    case MOT_DIM_LENDERS:
        b->size[i] =
            helps ? split_size(p, dim->parent - 1, (uint32_t)p->lender[b->position] - 1) : 0;
        break;
    }
}

bool mot_instr_is_idle(const MotProgram *program, const MotBinding *binding, const MotInstr *ins)
{
    if (!ins->cut)
        return false;
    const MotCut *cut = &program->cuts.data[ins->cut - 1];
    switch (ins->who) {
    case MOT_WHO_WHOLE:
        return binding->size[cut->dim] > 0;
    case MOT_WHO_CUTS:
        return binding->size[cut->dim] == 0;
    case MOT_WHO_LENDS:
        return binding->size[cut->dim_lent] == 0;
    case MOT_WHO_HELPS:
        return binding->size[cut->dim_helped] == 0;
    default:
        return find_lent(program, cut, program->mesh.n_devices, true) == 0;
    }
}
