/*
 * Buffers, and the collectives that bring a value from the sharding it has into the one that a user
 * needs.
 */
#include "passes/lower/lowering.h"

#include "ir/convert.h"

/* The program's dim for a split, made when first needed. */
static uint32_t find_dim(MotLowering *l, uint32_t axis, uint32_t parent, int64_t size,
                         int64_t granule)
{
    MotProgram *p = l->program;
    for (uint32_t i = 0; i < p->dims.n; i++) {
        const MotDim *d = &p->dims.data[i];
        if (!d->cut && d->axis == axis && d->parent == parent && d->size == size &&
            d->granule == granule)
            return i;
    }
    MotDim dim = {.name = mot_arena_printf(&l->ctx->arena, "d%u", p->dims.n),
                  .axis = axis,
                  .parent = parent,
                  .size = size,
                  .granule = granule};
    mot_vec_push(&l->ctx->arena, &p->dims, dim);
    return p->dims.n - 1;
}

MotType mot_lower_local_type(MotLowering *l, const MotType *global, MotSharding s)
{
    MotType type = *global;
    for (uint32_t a = 0; a < l->program->mesh.n_axes; a++) {
        int d = s.axis[a];
        if (d < 0)
            continue;
        uint32_t parent = type.dims[d] < 0 ? (uint32_t)-type.dims[d] : 0;
        int64_t granule = s.units[a] ? global->dims[d] / s.units[a] : 1;
        if (parent && l->program->dims.data[parent - 1].granule % granule != 0)
            mot_fail(
                l->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                "two mesh axes split a dim of %lld into pieces of %lld and %lld, which do not nest",
                (long long)global->dims[d], (long long)l->program->dims.data[parent - 1].granule,
                (long long)granule);
        type.dims[d] = -(int64_t)find_dim(l, a, parent, global->dims[d], granule) - 1;
    }
    return type;
}

uint32_t mot_lower_add_buf(MotLowering *l, MotBufKind kind, MotValue v, MotSharding s)
{
    const MotType *global = mot_graph_type(l->g, v);
    MotBuf buf = {.kind = kind,
                  .type = mot_lower_local_type(l, global, s),
                  .global = *global,
                  .sharding = s,
                  .copies = kind == MOT_BUF_INPUT ? l->plan->n_micro : 1};
    mot_vec_push(&l->ctx->arena, &l->program->bufs, buf);
    return l->program->bufs.n - 1;
}

void mot_lower_add_form(MotLowering *l, MotValue v, MotSharding s, uint32_t buf)
{
    mot_vec_push(&l->ctx->arena, &l->forms, (MotForm){s, buf, l->first_form[v]});
    l->first_form[v] = l->forms.n;
}

MotInstr *mot_lower_add_instr(MotLowering *l, MotInstrKind kind, const MotOp *op,
                              const uint32_t *bufs, uint32_t n_bufs, uint32_t n_in)
{
    MotInstr ins = {.kind = kind,
                    .stream = MOT_STREAM_COMPUTE,
                    .bufs = mot_arena_copy(&l->ctx->arena, bufs, n_bufs * sizeof *bufs),
                    .n_bufs = n_bufs,
                    .n_in = n_in,
                    .origin = op->origin,
                    .role = op->role};
    if (mot_instr_is_collective(&ins))
        ins.stream = MOT_STREAM_COMM;
    mot_vec_push(&l->ctx->arena, &l->program->section[l->section], ins);
    return &l->program->section[l->section].data[l->program->section[l->section].n - 1];
}

uint32_t mot_lower_get_form(MotLowering *l, const MotOp *user, MotValue v, MotSharding need)
{
    const MotForm *from = NULL;
    for (uint32_t i = l->first_form[v]; i; i = l->forms.data[i - 1].next) {
        from = &l->forms.data[i - 1]; /* the last one is the form that the defining op left */
        if (mot_sharding_equal(from->sharding, need))
            return from->buf;
    }
    if (!from) {
        mot_fail(l->ctx, MOT_ERR_INTERNAL, mot_op_loc(l->g, user),
                 "lower: operand %%%u has no buffer", v);
        return 0;
    }
    MotSharding have = from->sharding;
    uint32_t buf = from->buf;
    MotStep step;
    while (mot_convert_next(l->program->mesh.n_axes, &have, need, &step)) {
        uint32_t out = mot_lower_add_buf(l, MOT_BUF_SCRATCH, v, have);
        MotInstr *ins = mot_lower_add_instr(l, step.kind, user, (uint32_t[]){buf, out}, 2, 1);
        ins->axis = step.axis;
        ins->moves = mot_arena_copy(&l->ctx->arena, &step.move, sizeof step.move);
        ins->is_max = step.is_max;
        buf = out;
        mot_lower_add_form(l, v, have, buf);
    }
    return buf;
}
