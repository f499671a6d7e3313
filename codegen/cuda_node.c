/*
 * CUDA C: nodes and stores of a nest. A node is a constant of the block in which it is first asked
 * for, after what it is made from; so blocks of the text are the places where values hold, and
 * nothing is said twice in one of them.
 */
#include "codegen/cuda_print.h"

#include <math.h>

/* Integers are computed in 64 bits and wrap where they are narrowed, as in the reference. */
static const MotCudaType types[MOT_N_DTYPES] = {
    [MOT_F32] = {"float", "float", "float", "0", "-MOT_INFINITY"},
    [MOT_F64] = {"double", "double", "double", "0", "-MOT_INFINITY"},
    [MOT_U8] = {"unsigned char", "unsigned char", "long long", "0", "0"},
    [MOT_I32] = {"int", "int", "long long", "0", "-2147483648LL"},
    [MOT_I64] = {"long long", "long long", "long long", "0", "-9223372036854775807LL - 1"},
    [MOT_BOOL] = {"bool", "unsigned char", "bool", "false", "false"},
};

const MotCudaType *mot_cuda_type(MotDtype dtype)
{
    MOT_ASSERT(types[dtype].value); /* mot_kernel_build lets no others pass */
    return &types[dtype];
}

void mot_cuda_print_rows(MotText *text)
{
    static const char *const operands[][3] = {{"T a"}, {"T a", ", T b"}, {"T a", ", T b", ", T c"}};
    for (int kind = 1; kind < MOT_N_OPS; kind++) {
        const MotOpInfo *row = mot_op_info((MotOpKind)kind);
        if (row->class != MOT_POINTWISE)
            continue;
        mot_text_printf(text, "template <typename T> __device__ %s mot_%s(",
                        row->gives_bool ? "bool" : "T", row->name);
        for (uint32_t i = 0; i < row->n_min; i++)
            mot_text_puts(text,
                          kind == MOT_OP_SELECT && i == 0 ? "bool a" : operands[row->n_min - 1][i]);
        mot_text_printf(text, ") { return %s; }\n", row->expression);
    }
}

/* ---- Places ---- */

static void add_term(MotCuda *c, MotText *sum, const char *index, MotExtent stride)
{
    if (!stride.factor)
        return;
    mot_text_printf(sum, "%s%s", sum->n ? " + " : "", index);
    if (!mot_extent_is(stride, 1))
        mot_text_printf(sum, " * %s", mot_cuda_extent(c, stride));
}

static void add_loops(MotCuda *c, MotText *sum, const MotAccess *a, int from, int to)
{
    for (int l = from; l < to; l++)
        add_term(c, sum, mot_arena_printf(&c->ctx->arena, "i%d", l), a->stride[l]);
}

const char *mot_cuda_loops_place(MotCuda *c, const MotAccess *access, int from, int to)
{
    MotText sum;
    mot_text_init(&sum, &c->ctx->arena);
    add_loops(c, &sum, access, from, to);
    return sum.n ? mot_text_get(&sum) : "0";
}

/* The element index of an access, whose indices are known or get known. */
static const char *print_place(MotCuda *c, const MotAccess *access)
{
    MotText sum;
    mot_text_init(&sum, &c->ctx->arena);
    for (uint32_t i = 0; i < access->n_indices; i++)
        mot_cuda_need(c, access->index[i]);
    add_loops(c, &sum, access, 0, c->nest->n_loops);
    for (uint32_t i = 0; i < access->n_offsets; i++)
        mot_text_printf(&sum, "%s%s", sum.n ? " + " : "", mot_cuda_extent(c, access->offset[i]));
    for (uint32_t i = 0; i < access->n_indices; i++)
        add_term(c, &sum, mot_arena_printf(&c->ctx->arena, "v%u", access->index[i]),
                 access->index_stride[i]);
    return sum.n ? mot_text_get(&sum) : "0";
}

/* ---- Nodes ---- */

/* Hexadecimal: the same bits on the other side. */
static const char *print_number(MotCuda *c, double value, const char *suffix)
{
    if (isnan(value))
        return "MOT_NAN";
    if (isinf(value))
        return value > 0 ? "MOT_INFINITY" : "-MOT_INFINITY";
    return mot_arena_printf(&c->ctx->arena, "%a%s", value, suffix);
}

const char *mot_cuda_float(MotCuda *c, double value)
{
    return print_number(c, (double)(float)value, "f");
}

static const char *print_load(MotCuda *c, const MotNodeInfo *node)
{
    const char *guard =
        node->arg[0] ? mot_arena_printf(&c->ctx->arena, "v%u && ", node->arg[0]) : "";
    const char *place = print_place(c, node->access);
    if (node->dtype == MOT_BOOL)
        return mot_arena_printf(&c->ctx->arena, "%sb%u[%s] != 0", guard, node->access->buf, place);
    if (!node->arg[0])
        return mot_arena_printf(&c->ctx->arena, "b%u[%s]", node->access->buf, place);
    return mot_arena_printf(&c->ctx->arena, "v%u ? b%u[%s] : 0", node->arg[0], node->access->buf,
                            place);
}

static const char *print_const(MotCuda *c, const MotNodeInfo *node)
{
    if (node->dtype == MOT_F32)
        return mot_cuda_float(c, node->value);
    if (node->dtype == MOT_F64)
        return print_number(c, node->value, "");
    return mot_cuda_int(c, (int64_t)node->value);
}

static const char *print_index(MotCuda *c, const MotNodeInfo *node)
{
    const char *at = node->arg[0] ? mot_arena_printf(&c->ctx->arena, "v%u", node->arg[0])
                                  : mot_arena_printf(&c->ctx->arena, "i%d", node->loop);
    return mot_arena_printf(&c->ctx->arena, "%s + %s * %s", mot_cuda_int(c, node->start),
                            mot_cuda_int(c, node->step), at);
}

static const char *print_size(MotCuda *c, const MotNodeInfo *node)
{
    return mot_cuda_extent(c, node->extent);
}

static const char *print_check(MotCuda *c, const MotNodeInfo *node)
{
    return mot_arena_printf(&c->ctx->arena, "v%u >= 0 && v%u < v%u", node->arg[0], node->arg[0],
                            node->arg[1]);
}

static const char *print_cast(MotCuda *c, const MotNodeInfo *node)
{
    if (node->dtype == MOT_BOOL)
        return mot_arena_printf(&c->ctx->arena, "v%u != 0", node->arg[0]);
    return mot_arena_printf(&c->ctx->arena, "(%s)v%u", mot_cuda_type(node->dtype)->value,
                            node->arg[0]);
}

static const char *print_op(MotCuda *c, const MotNodeInfo *node)
{
    MotText text;
    if (node->op == MOT_OP_CAST)
        return print_cast(c, node);
    uint32_t n = mot_op_info(node->op)->n_min;
    /* The last operand's: a select's first is its condition. */
    MotDtype from = c->nest->nodes.data[node->arg[n - 1]].dtype;
    mot_text_init(&text, &c->ctx->arena);
    mot_text_printf(&text, "(%s)mot_%s<%s>(", mot_cuda_type(node->dtype)->value,
                    mot_op_info(node->op)->name, mot_cuda_type(from)->number);
    for (uint32_t i = 0; i < n; i++)
        mot_text_printf(&text, "%sv%u", i ? ", " : "", node->arg[i]);
    mot_text_puts(&text, ")");
    return mot_text_get(&text);
}

static const char *(*const printers[])(MotCuda *, const MotNodeInfo *) = {
    [MOT_NODE_LOAD] = print_load, [MOT_NODE_CONST] = print_const, [MOT_NODE_INDEX] = print_index,
    [MOT_NODE_SIZE] = print_size, [MOT_NODE_CHECK] = print_check, [MOT_NODE_OP] = print_op,
};

void mot_cuda_need(MotCuda *c, MotNode id)
{
    const MotNodeInfo *node = &c->nest->nodes.data[id];
    if (!id || c->is_known[id])
        return;
    MOT_ASSERT(node->kind != MOT_NODE_REDUCE); /* known once its phase is over */
    for (int i = 0; i < 3; i++)
        mot_cuda_need(c, node->arg[i]);
    const char *value = printers[node->kind](c, node);
    mot_cuda_line(c, "const %s v%u = %s;", mot_cuda_type(node->dtype)->value, id, value);
    c->is_known[id] = true;
    if (node->kind != MOT_NODE_CHECK)
        return;
    if (node->arg[2])
        mot_cuda_line(c, "if (!v%u && v%u)", id, node->arg[2]);
    else
        mot_cuda_line(c, "if (!v%u)", id);
    mot_cuda_line(c, "    *bad_index = v%u;", node->arg[0]);
}

void mot_cuda_store(MotCuda *c, const MotStore *store)
{
    mot_cuda_line(c, "b%u[%s] = v%u;", store->access.buf, print_place(c, &store->access),
                  store->value);
}
