/* Axes by name, over the meshes of all stages. */
#include "job/shares.h"

#include <string.h>

static MotStatus refuse_axis(MotCtx *ctx, const MotPlan *plan, const MotShareList *list,
                             const char *option)
{
    MotArena *arena = &ctx->arena;
    if (list->axis)
        mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s: the plan has no axis %s, or several", option,
                 mot_quote(arena, list->axis));
    else
        mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                 "%s: the plan has several axes; name one: AXIS=8/4/2/1", option);
    for (uint32_t s = 0; s < plan->stages.n; s++)
        for (uint32_t a = 0; a < plan->stages.data[s].mesh.n_axes; a++) {
            const MotMeshAxis *axis = &plan->stages.data[s].mesh.axis[a];
            mot_note(ctx, "stage %u has the axis %s over %u devices", s,
                     mot_quote(arena, axis->name), axis->n);
        }
    return ctx->status;
}

MotStatus mot_shares_find_axis(MotCtx *ctx, const MotPlan *plan, const MotShareList *list,
                               const char *option, uint32_t *out_stage, uint32_t *out_axis)
{
    uint32_t n_found = 0;
    for (uint32_t s = 0; s < plan->stages.n; s++)
        for (uint32_t a = 0; a < plan->stages.data[s].mesh.n_axes; a++) {
            if (list->axis && strcmp(plan->stages.data[s].mesh.axis[a].name, list->axis) != 0)
                continue;
            *out_stage = s;
            *out_axis = a;
            n_found++;
        }
    if (n_found != 1)
        return refuse_axis(ctx, plan, list, option);
    const MotMeshAxis *axis = &plan->stages.data[*out_stage].mesh.axis[*out_axis];
    if (list->n == axis->n)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s: %u shares for the %u devices of axis %s",
                    option, list->n, axis->n, mot_quote(&ctx->arena, axis->name));
}

MotStatus mot_shares_set(MotCtx *ctx, const MotArgs *args, MotPlan *plan)
{
    uint32_t n;
    const char *const *texts = mot_args_list(args, "--shares", &n);
    for (uint32_t i = 0; i < n; i++) {
        MotShareList list;
        uint32_t stage = 0, axis = 0;
        MOT_TRY(mot_args_shares(ctx, texts[i], &list));
        MOT_TRY(mot_shares_find_axis(ctx, plan, &list,
                                     mot_arena_printf(&ctx->arena, "--shares %s", texts[i]), &stage,
                                     &axis));
        memcpy(plan->stages.data[stage].mesh.axis[axis].share, list.data,
               list.n * sizeof *list.data);
    }
    return MOT_OK;
}
