/*
 * Finding sources and sinks, and taking ops out of the body. Linear sweeps: graphs have few
 * thousand ops.
 */
#include "passes/graph/edit.h"

#include <string.h>

MotValue mot_edit_find_input(const MotGraph *g, const char *name)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_INPUT && strcmp(mot_attrs(op, input)->name, name) == 0)
            return op->out[0];
    }
    return 0;
}

MotValue mot_edit_find_param(const MotGraph *g, const char *name)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_PARAM && strcmp(mot_attrs(op, param)->name, name) == 0)
            return op->out[0];
    }
    return 0;
}

MotValue mot_edit_find_output(const MotGraph *g, const char *name)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_OUTPUT && strcmp(mot_attrs(op, output)->name, name) == 0)
            return op->in[0];
    }
    return 0;
}

void mot_edit_drop(MotGraph *g, MotOpId id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        if (g->body.data[i] != id)
            g->body.data[n++] = g->body.data[i];
    g->body.n = n;
}

void mot_edit_drop_kind(MotGraph *g, MotOpKind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        if (mot_graph_op(g, g->body.data[i])->kind != kind)
            g->body.data[n++] = g->body.data[i];
    g->body.n = n;
}

void mot_edit_bring_forward(MotGraph *g, uint32_t first, uint32_t to)
{
    uint32_t n = g->body.n - first;
    MotOpId *body = g->body.data;
    const MotOpId *late = mot_arena_copy(&g->ctx->arena, body + first, n * sizeof *late);
    memmove(body + to + n, body + to, (first - to) * sizeof *body);
    memcpy(body + to, late, n * sizeof *body);
}
