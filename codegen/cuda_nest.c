/*
 * CUDA C of pointwise, column and row nests.
 *
 * Pointwise and column: a thread has a point of the kept loops and goes through the reduced ones,
 * if there are any, in order. Row: a block has a point of the kept loops; its threads share the
 * points of the reduced ones, and partial results meet in a tree of fixed form. Both go through the
 * reduced loops once a phase. Values that the CPU saves for later phases are computed again, which
 * is cheaper here than keeping them.
 */
#include "codegen/cuda_print.h"

static const MotNodeInfo *info_of(const MotCuda *c, MotNode node)
{
    return &c->nest->nodes.data[node];
}

/* Whether a node varies along the reduced loops. */
static bool is_inner(const MotCuda *c, MotNode node)
{
    return info_of(c, node)->loops >> c->nest->n_kept != 0;
}

static bool is_inner_store(const MotCuda *c, const MotStore *store)
{
    for (int l = c->nest->n_kept; l < c->nest->n_loops; l++)
        if (store->access.stride[l].factor)
            return true;
    return false;
}

/* The phase from which on a node can be had. */
static uint32_t ready_phase(const MotCuda *c, MotNode node)
{
    return info_of(c, node)->phase + (info_of(c, node)->kind == MOT_NODE_REDUCE);
}

static uint32_t count_phases(const MotCuda *c)
{
    uint32_t n = c->nest->n_kept < c->nest->n_loops ? c->nest->n_phases : 0;
    for (uint32_t i = 0; i < c->nest->stores.n; i++) {
        const MotStore *store = &c->nest->stores.data[i];
        if (is_inner_store(c, store) && ready_phase(c, store->value) + 1 > n)
            n = ready_phase(c, store->value) + 1;
    }
    return n;
}

/* Declares what is the same at all points of the reduced loops, so that it stands before them. */
static void print_outer(MotCuda *c, uint32_t phase)
{
    for (MotNode i = 1; i < c->nest->nodes.n; i++)
        if (!is_inner(c, i) && ready_phase(c, i) <= phase)
            mot_cuda_need(c, i);
}

/* ---- Reductions ---- */

static const char *combiner_of(const MotNodeInfo *node)
{
    return node->op == MOT_OP_REDUCE_MAX ? "mot_max" : "mot_add";
}

static void start_reductions(MotCuda *c)
{
    for (MotNode i = 1; i < c->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(c, i);
        const MotCudaType *type = mot_cuda_type(node->dtype ? node->dtype : MOT_F32);
        if (node->kind == MOT_NODE_REDUCE)
            mot_cuda_line(c, "%s r%u = %s;", type->number, i,
                          node->op == MOT_OP_REDUCE_MAX ? type->least : type->zero);
    }
}

static void add_to_reductions(MotCuda *c, uint32_t phase)
{
    for (MotNode i = 1; i < c->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(c, i);
        if (node->kind != MOT_NODE_REDUCE || node->phase != phase)
            continue;
        mot_cuda_need(c, node->arg[0]);
        mot_cuda_line(c, "r%u = %s<%s>(r%u, v%u);", i, combiner_of(node),
                      mot_cuda_type(node->dtype)->number, i, node->arg[0]);
    }
}

/*
 * Declares the results of this phase's REDUCE nodes; of a row, from the parts that the block's
 * threads have.
 */
static void finish_reductions(MotCuda *c, uint32_t phase, bool is_row)
{
    for (MotNode i = 1; i < c->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(c, i);
        if (node->kind != MOT_NODE_REDUCE || node->phase != phase)
            continue;
        const MotCudaType *type = mot_cuda_type(node->dtype);
        if (is_row)
            mot_cuda_line(c, "const %s v%u = (%s)mot_combine<%s, %s<%s> >(r%u);", type->value, i,
                          type->value, type->number, combiner_of(node), type->number, i);
        else
            mot_cuda_line(c, "const %s v%u = (%s)r%u;", type->value, i, type->value, i);
        c->is_known[i] = true;
    }
}

/* ---- Stores ---- */

/*
 * Stores, along the reduced loops in `phase` or of what is left; all values come first: results may
 * be operands.
 */
static void print_stores(MotCuda *c, bool wants_inner, uint32_t phase)
{
    for (int is_storing = 0; is_storing < 2; is_storing++)
        for (uint32_t i = 0; i < c->nest->stores.n; i++) {
            const MotStore *store = &c->nest->stores.data[i];
            if (is_inner_store(c, store) != wants_inner ||
                (wants_inner && ready_phase(c, store->value) != phase))
                continue;
            if (is_storing)
                mot_cuda_store(c, store);
            else
                mot_cuda_need(c, store->value);
        }
}

/* ---- The shapes ---- */

static void print_phases(MotCuda *c, bool is_row)
{
    start_reductions(c);
    for (uint32_t phase = 0; phase < count_phases(c); phase++) {
        print_outer(c, phase);
        mot_cuda_open(
            c, "for (long long point = %s; point < %s; point += %s)", is_row ? "threadIdx.x" : "0",
            mot_cuda_points(c, c->nest->n_kept, c->nest->n_loops), is_row ? "MOT_THREADS" : "1");
        mot_cuda_set_point(c, "point", c->nest->n_kept, c->nest->n_loops);
        add_to_reductions(c, phase);
        print_stores(c, true, phase);
        mot_cuda_close(c);
        finish_reductions(c, phase, is_row);
    }
}

static void print_points(MotCuda *c)
{
    mot_cuda_open_threads(c, mot_cuda_points(c, 0, c->nest->n_kept));
    mot_cuda_set_point(c, "task", 0, c->nest->n_kept);
    print_phases(c, false);
    print_stores(c, false, 0);
    mot_cuda_close(c);
}

static void print_row(MotCuda *c)
{
    mot_cuda_open_blocks(c, mot_cuda_points(c, 0, c->nest->n_kept));
    mot_cuda_set_point(c, "task", 0, c->nest->n_kept);
    print_phases(c, true);
    mot_cuda_open(c, "if (threadIdx.x == 0)");
    print_stores(c, false, 0);
    mot_cuda_close(c);
    mot_cuda_close(c);
}

/* clang-format off */
/* All threads of a block call it; all get the same result. */
static const char *const row_library[] = {
    "template <typename T, T (*combine)(T, T)> __device__ T mot_combine(T part)",
    "{",
    "    __shared__ T parts[MOT_THREADS];",
    "    parts[threadIdx.x] = part;",
    "    __syncthreads();",
    "    for (int n = MOT_THREADS / 2; n > 0; n /= 2) {",
    "        if (threadIdx.x < n)",
    "            parts[threadIdx.x] = combine(parts[threadIdx.x], parts[threadIdx.x + n]);",
    "        __syncthreads();",
    "    }",
    "    const T whole = parts[0];",
    "    __syncthreads();",
    "    return whole;",
    "}",
    NULL,
};
/* clang-format on */

const MotCudaShape mot_cuda_points_shape = {.print = print_points};
const MotCudaShape mot_cuda_row = {.library = {row_library}, .print = print_row};
