/*
 * Memory that is needed against memory that is there, before the first page is touched. Linear in
 * buffers.
 */
#include "runtime/fit.h"

#include <math.h>
#include <sys/sysinfo.h>

enum { N_NAMED = 3 };

double mot_fit_machine_bytes(void)
{
    struct sysinfo info;
    if (sysinfo(&info) != 0)
        return INFINITY;
    return ((double)info.totalram + (double)info.totalswap) * info.mem_unit;
}

/* What writes a buffer that has no name. */
static const char *find_origin(const MotProgram *p, uint32_t buf)
{
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++) {
            const MotInstr *ins = &p->section[s].data[i];
            for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
                if (ins->bufs[k] == buf && ins->origin)
                    return ins->origin;
        }
    return NULL;
}

static double bytes_of(const MotProgram *p, const MotBinding *b, uint32_t buf)
{
    return p->bufs.data[buf].alias
               ? 0
               : (double)mot_type_bytes(&b->types[buf]) * p->bufs.data[buf].copies;
}

static void note_buffer(MotCtx *ctx, const MotProgram *p, const MotBinding *b, uint32_t buf)
{
    const MotBuf *info = &p->bufs.data[buf];
    const MotType *type = &b->types[buf];
    const char *origin = info->name ? NULL : find_origin(p, buf);
    const char *copies =
        info->copies > 1 ? mot_arena_printf(&ctx->arena, ", %u copies", info->copies) : "";
    mot_note(ctx, "%s for %s[%s]%s: %s %s", mot_bytes_text(&ctx->arena, bytes_of(p, b, buf)),
             mot_dtype_name(type->dtype), mot_shape_text(&ctx->arena, type->dims, type->rank),
             copies, origin ? "node" : mot_buf_kind_names[info->kind],
             mot_quote(&ctx->arena, origin       ? origin
                                    : info->name ? info->name
                                                 : "added by the compiler"));
}

/* The largest buffers of a rank, in descending order. */
static void note_largest(MotCtx *ctx, const MotProgram *p, const MotBinding *b)
{
    double below = INFINITY;
    uint32_t last = 0;
    for (int k = 0; k < N_NAMED; k++) {
        uint32_t found = MOT_NO_BUF;
        for (uint32_t i = 0; i < p->bufs.n; i++) {
            double bytes = bytes_of(p, b, i);
            bool is_next = bytes < below || (bytes == below && i > last);
            if (is_next && (found == MOT_NO_BUF || bytes > bytes_of(p, b, found)))
                found = i;
        }
        if (found == MOT_NO_BUF || bytes_of(p, b, found) <= 0)
            return;
        note_buffer(ctx, p, b, found);
        below = bytes_of(p, b, found);
        last = found;
    }
}

MotStatus mot_fit_check(MotCtx *ctx, const MotPipeline *pipeline, double machine_bytes)
{
    uint32_t n = mot_pipeline_ranks(pipeline), largest = 0;
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    MotBinding *bindings = mot_arena_array(&ctx->arena, MotBinding, n);
    double bytes = 0;
    MOT_TRY(mot_pipeline_bind(ctx, pipeline, bindings));
    for (uint32_t i = 0; i < n; i++) {
        bytes += (double)bindings[i].arena_bytes;
        if (bindings[i].arena_bytes > bindings[largest].arena_bytes)
            largest = i;
    }
    if (bytes <= machine_bytes) {
        mot_arena_rewind(&ctx->arena, mark);
        return MOT_OK;
    }
    mot_fail(ctx, MOT_ERR_INFEASIBLE, MOT_NOWHERE,
             "the model takes %s, this machine has %s of memory",
             mot_bytes_text(&ctx->arena, bytes), mot_bytes_text(&ctx->arena, machine_bytes));
    note_largest(ctx, pipeline->stages.data[mot_pipeline_stage(pipeline, largest)],
                 &bindings[largest]);
    mot_hint(ctx, "take smaller batches (--dim, where the model leaves its batch open), and with "
                  "--accumulate more of them a step");
    return ctx->status;
}
