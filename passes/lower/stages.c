/*
 * The two ends of what goes from stage to stage: a send at the value's op, a receive at the same
 * place of the body.
 */
#include "passes/lower/lowering.h"

/* The sharding in which the first user of v here needs it. */
static MotSharding first_need(const MotLowering *l, MotValue v)
{
    for (uint32_t i = l->first_user[v]; i < l->first_user[v + 1]; i++) {
        const MotOp *op = mot_graph_op(l->g, l->user[i]);
        uint32_t k = 0;
        if (!mot_lower_is_live(l, l->user[i]))
            continue;
        while (op->in[k] != v)
            k++;
        if (mot_op_info(op->kind)->class == MOT_SINK)
            return op->n_in == 2 ? l->values[op->in[0]] : mot_replicated;
        return mot_plan_operand(l->plan, l->user[i], &l->factors[l->user[i]], k);
    }
    return mot_replicated;
}

/*
 * The receiver takes its part from this buffer when it gets there: so nothing may be written to it
 * in the meantime, and a parameter is copied before it changes.
 */
static void send(MotLowering *l, const MotTransfer *t, uint32_t channel)
{
    const MotOp *op = mot_graph_def(l->g, t->value);
    MotSharding as = l->values[t->value];
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++)
        if (as.axis[a] < MOT_REPLICATED)
            as.axis[a] = MOT_REPLICATED;
    mot_lower_flush(l);
    uint32_t buf = mot_lower_get_form(l, op, t->value, as);
    if (op->kind == MOT_OP_PARAM && l->section != MOT_SECTION_EVAL) {
        uint32_t copy = mot_lower_add_buf(l, MOT_BUF_STEP, t->value, as);
        mot_lower_add_instr(l, MOT_INS_COPY, op, (uint32_t[]){buf, copy}, 2, 1)->when = t->when;
        buf = copy;
    }
    MotInstr *ins = mot_lower_add_instr(l, MOT_INS_SEND, op, &buf, 1, 1);
    ins->when = t->when;
    ins->channel = channel;
    l->channels[channel].source = buf;
}

static void receive(MotLowering *l, const MotTransfer *t, uint32_t channel)
{
    MotSharding as = first_need(l, t->value);
    MotBufKind kind = t->when == MOT_WHEN_FIRST ? MOT_BUF_STEP : MOT_BUF_SCRATCH;
    uint32_t buf = mot_lower_add_buf(l, kind, t->value, as);
    MotInstr *ins = mot_lower_add_instr(l, MOT_INS_RECV, mot_graph_def(l->g, t->value), &buf, 1, 0);
    ins->when = t->when;
    ins->channel = channel;
    l->channels[channel].target = buf;
    mot_lower_add_form(l, t->value, as, buf);
}

void mot_lower_transfers(MotLowering *l, MotOpId id)
{
    for (; l->next_transfer < l->transfers->n && l->ctx->status == MOT_OK; l->next_transfer++) {
        const MotTransfer *t = &l->transfers->data[l->next_transfer];
        if (t->section != l->section || l->g->values.data[t->value].def != id)
            return;
        if (t->from == l->stage)
            send(l, t, l->next_transfer);
        if (t->to == l->stage)
            receive(l, t, l->next_transfer);
    }
}
