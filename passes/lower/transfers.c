/* One sweep notes the foreign users of every value, a second one lists what they need. */
#include "passes/lower/transfers.h"

bool mot_is_everywhere(const MotOp *op)
{
    return mot_op_info(op->kind)->class == MOT_SOURCE && op->kind != MOT_OP_PARAM;
}

unsigned mot_sections_in_reach(MotSection section)
{
    unsigned passes = 1u << MOT_SECTION_FORWARD | 1u << MOT_SECTION_BACKWARD;
    return 1u << section & passes ? passes : 1u << section;
}

/* For every value and stage, the sections in which ops of that other stage read it. */
static uint8_t *find_readers(MotCtx *ctx, const MotPlan *plan, const MotSections *sections)
{
    const MotGraph *g = plan->graph;
    uint32_t n = plan->stages.n;
    uint8_t *readers = mot_arena_array(&ctx->arena, uint8_t, (size_t)g->values.n *n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        for (uint32_t k = 0; k < op->n_in; k++) {
            MotOpId def = g->values.data[op->in[k]].def;
            if (op->in[k] && plan->ops[def].stage != plan->ops[id].stage &&
                !mot_is_everywhere(mot_graph_op(g, def)))
                readers[(size_t)op->in[k] * n + plan->ops[id].stage] |= (uint8_t)sections->runs[id];
        }
    }
    return readers;
}

void mot_transfers_find(MotCtx *ctx, const MotPlan *plan, const MotSections *sections,
                        MotTransfers *out_transfers)
{
    const MotGraph *g = plan->graph;
    uint32_t n = plan->stages.n;
    if (n == 1)
        return;
    const uint8_t *readers = find_readers(ctx, plan, sections);
    for (uint32_t s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < g->body.n; i++) {
            MotOpId id = g->body.data[i];
            const MotOp *op = mot_graph_op(g, id);
            bool is_whole = sections->ready[id] >> s & 1;
            unsigned reach = is_whole ? 1u << s : mot_sections_in_reach((MotSection)s);
            bool is_made =
                sections->runs[id] >> s & 1 && (s == MOT_SECTION_EVAL || !mot_is_cut(plan, op));
            if (!is_whole && !is_made)
                continue;
            bool is_once =
                mot_section_is_repeated((MotSection)s) && (is_whole || op->kind == MOT_OP_PARAM);
            for (uint32_t k = 0; k < op->n_out * n; k++) {
                MotValue v = op->out[k / n];
                MotTransfer t = {(MotSection)s, v, plan->ops[id].stage, k % n,
                                 is_once ? MOT_WHEN_FIRST : MOT_WHEN_ALL};
                if (readers[(size_t)v * n + t.to] & reach)
                    mot_vec_push(&ctx->arena, out_transfers, t);
            }
        }
}
