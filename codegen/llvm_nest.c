/*
 * LLVM IR of pointwise, row and column nests.
 *
 * Nodes are outer or inner: inner ones vary along the loops that are printed innermost (the lane
 * loop of a pointwise nest, the reduced loops of the others) and are computed at each of their
 * points; outer ones once before. A row or column nest passes through its reduced loops once a
 * phase; a saved node is written to scratch in the first phase that wants it and read in later
 * ones.
 *
 * Tasks. Pointwise: a block of BLOCK elements along the lanes at one point of the other loops. Row:
 * a row. Column: COLUMN_VECTORS vectors of columns. A lane sums at most CHUNK elements at a time
 * before they are added to its total, so that errors grow with the root of the number of chunks;
 * the totals of a row's lanes are combined in a fixed tree. Results don't depend on how tasks are
 * dealt out.
 */
#include "codegen/llvm.h"

#include <math.h>

enum { BLOCK = 4096, COLUMN_VECTORS = 4, CHUNK = 64, ALIGNMENT = 64 };

static const MotNodeInfo *info_of(const MotLlvm *l, MotNode node)
{
    return &l->nest->nodes.data[node];
}

static uint32_t find_reduced(const MotNest *nest)
{
    return ((1u << nest->n_loops) - 1) & ~((1u << nest->n_kept) - 1);
}

static uint32_t find_inner(const MotNest *nest)
{
    return nest->shape == MOT_SHAPE_POINTWISE ? 1u << nest->lane_loop : find_reduced(nest);
}

static MotExtent lane_extent(const MotLlvm *l)
{
    return l->nest->loop[l->nest->lane_loop].extent;
}

/* Whether the extent is known to be a multiple of n. */
static bool is_multiple(MotExtent e, int64_t n)
{
    return e.factor % n == 0;
}

/*
 * Computes the outer nodes that are known before phase `phase`, so that they stand before its
 * loops.
 */
static void compute_outer(MotLlvm *l, MotLanes *lanes, uint32_t phase)
{
    uint32_t inner = find_inner(l->nest);
    for (MotNode i = 1; i < l->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(l, i);
        if (!(node->loops & inner) && mot_node_ready(node) <= phase)
            mot_llvm_node(l, lanes, i);
    }
}

static void forget_inner(MotLlvm *l, MotLanes *lanes)
{
    for (MotNode i = 1; i < l->nest->nodes.n; i++)
        if (info_of(l, i)->loops & find_inner(l->nest))
            lanes->value[i] = NULL;
}

static bool is_inner_store(const MotNest *nest, const MotStore *store)
{
    uint32_t inner = find_inner(nest);
    for (int l = 0; l < nest->n_loops; l++)
        if (inner >> l & 1 && store->access.stride[l].factor)
            return true;
    return false;
}

/* ---- Saved nodes ---- */

static int64_t column_width(const MotLlvm *l)
{
    return (int64_t)COLUMN_VECTORS * l->lanes;
}

/*
 * Elements of one saved node's row of scratch: a point of the reduced loops is one element (row) or
 * COLUMN_VECTORS vectors.
 */
static LLVMValueRef saved_elements(MotLlvm *l)
{
    LLVMValueRef points = mot_llvm_points(l, l->nest->n_kept, l->nest->n_loops);
    if (l->nest->shape == MOT_SHAPE_COLUMN)
        return mot_llvm_mul(l, points, mot_llvm_int(l, column_width(l)));
    return mot_llvm_mul(l, mot_llvm_ceil_div(l, points, l->lanes), mot_llvm_int(l, l->lanes));
}

static LLVMValueRef saved_address(MotLlvm *l, const MotLanes *lanes, uint32_t slot)
{
    LLVMValueRef at = l->saved_index;
    if (l->nest->shape == MOT_SHAPE_COLUMN) {
        LLVMValueRef vector = mot_llvm_add(l, mot_llvm_mul(l, at, mot_llvm_int(l, COLUMN_VECTORS)),
                                           mot_llvm_int(l, lanes->number));
        at = mot_llvm_mul(l, vector, mot_llvm_int(l, l->lanes));
    }
    at = mot_llvm_add(l, at, mot_llvm_mul(l, saved_elements(l), mot_llvm_int(l, slot)));
    return mot_llvm_at(l, l->f32, l->scratch, at);
}

static LLVMValueRef saved_bytes(MotLlvm *l)
{
    int64_t n = 0;
    for (MotNode i = 1; i < l->nest->nodes.n; i++)
        n += info_of(l, i)->is_saved;
    LLVMValueRef bytes = mot_llvm_mul(l, saved_elements(l), mot_llvm_int(l, n * 4));
    return mot_llvm_mul(l, mot_llvm_ceil_div(l, bytes, ALIGNMENT), mot_llvm_int(l, ALIGNMENT));
}

/* Calls `visit` with the slot of each saved node. */
static void each_saved(MotLlvm *l, MotLanes *lanes, const bool *is_written,
                       void (*visit)(MotLlvm *, MotLanes *, MotNode, uint32_t slot,
                                     bool is_written))
{
    uint32_t slot = 0;
    for (MotNode i = 1; i < l->nest->nodes.n; i++)
        if (info_of(l, i)->is_saved)
            visit(l, lanes, i, slot++, is_written[i]);
}

static void read_saved(MotLlvm *l, MotLanes *lanes, MotNode node, uint32_t slot, bool is_written)
{
    if (is_written)
        lanes->value[node] = mot_llvm_load(l, l->f32, saved_address(l, lanes, slot), lanes->mask);
}

static void write_saved(MotLlvm *l, MotLanes *lanes, MotNode node, uint32_t slot, bool is_written)
{
    if (!is_written && lanes->value[node])
        mot_llvm_store(l, lanes->value[node], saved_address(l, lanes, slot), lanes->mask);
}

/* ---- Reductions ---- */

static LLVMValueRef identity_of(MotLlvm *l, const MotNodeInfo *node)
{
    bool is_max = node->op == MOT_OP_REDUCE_MAX,
         is_float = mot_dtype_class(node->dtype) == MOT_CLASS_FLOAT;
    LLVMTypeRef type = mot_llvm_type(l, node->dtype);
    if (is_float)
        return mot_llvm_splat(l, LLVMConstReal(type, is_max ? -INFINITY : 0.0));
    int64_t least = node->dtype == MOT_I64 ? INT64_MIN : node->dtype == MOT_I32 ? INT32_MIN : 0;
    return mot_llvm_splat_int(l, type, is_max ? least : 0);
}

static LLVMValueRef combine(MotLlvm *l, const MotNodeInfo *node, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef arg[] = {a, b};
    MotOpKind op = node->op == MOT_OP_REDUCE_MAX ? MOT_OP_MAX : MOT_OP_ADD;
    return mot_llvm_op(l, op, node->dtype, node->dtype, arg);
}

static void start_reductions(MotLlvm *l, MotLanes *lanes)
{
    for (MotNode i = 1; i < l->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(l, i);
        if (node->kind != MOT_NODE_REDUCE)
            continue;
        LLVMTypeRef type = mot_llvm_vector(l, mot_llvm_type(l, node->dtype));
        lanes->reduced[i] = LLVMBuildAlloca(l->entry, type, "");
        lanes->total[i] = LLVMBuildAlloca(l->entry, type, "");
        LLVMBuildStore(l->b, identity_of(l, node), lanes->reduced[i]);
        LLVMBuildStore(l->b, identity_of(l, node), lanes->total[i]);
    }
}

static void add_to_reduction(MotLlvm *l, MotLanes *lanes, MotNode id)
{
    const MotNodeInfo *node = info_of(l, id);
    LLVMValueRef x = mot_llvm_node(l, lanes, node->arg[0]);
    if (lanes->mask)
        x = mot_llvm_select(l, lanes->mask, x, identity_of(l, node));
    LLVMValueRef sum = LLVMBuildLoad2(l->b, LLVMTypeOf(x), lanes->reduced[id], "");
    LLVMBuildStore(l->b, combine(l, node, sum, x), lanes->reduced[id]);
}

static bool ends_in(const MotNodeInfo *node, uint32_t phase)
{
    return node->kind == MOT_NODE_REDUCE && node->phase == phase;
}

/* A chunk is complete: its partial results go into the totals and start anew. */
static void fold_reductions(MotLlvm *l, MotLanes *lanes, uint32_t phase)
{
    for (MotNode i = 1; i < l->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(l, i);
        if (!ends_in(node, phase))
            continue;
        LLVMTypeRef type = mot_llvm_vector(l, mot_llvm_type(l, node->dtype));
        LLVMValueRef part = LLVMBuildLoad2(l->b, type, lanes->reduced[i], "");
        LLVMValueRef total = LLVMBuildLoad2(l->b, type, lanes->total[i], "");
        LLVMBuildStore(l->b, combine(l, node, total, part), lanes->total[i]);
        LLVMBuildStore(l->b, identity_of(l, node), lanes->reduced[i]);
    }
}

static LLVMValueRef combine_sum(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildAdd(l->b, a, b, "");
}

static LLVMValueRef combine_max_int(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef arg[] = {a, b};
    return mot_llvm_op(l, MOT_OP_MAX, MOT_I64, MOT_I64, arg);
}

static LLVMValueRef combine_max_u8(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef arg[] = {a, b};
    return mot_llvm_op(l, MOT_OP_MAX, MOT_U8, MOT_U8, arg);
}

/* All lanes of a vector combined, in every lane. */
static LLVMValueRef combine_lanes(MotLlvm *l, const MotNodeInfo *node, LLVMValueRef vector)
{
    bool is_max = node->op == MOT_OP_REDUCE_MAX;
    if (mot_dtype_class(node->dtype) == MOT_CLASS_FLOAT)
        return mot_llvm_reduce_lanes(l, vector, is_max ? mot_llvm_fmax : mot_llvm_fadd);
    return mot_llvm_reduce_lanes(l, vector,
                                 !is_max                 ? combine_sum
                                 : node->dtype == MOT_U8 ? combine_max_u8
                                                         : combine_max_int);
}

/* The totals become the results: of a row in every lane, of columns as they are. */
static void finish_reductions(MotLlvm *l, MotLanes *lanes, uint32_t phase)
{
    for (MotNode i = 1; i < l->nest->nodes.n; i++) {
        const MotNodeInfo *node = info_of(l, i);
        if (!ends_in(node, phase))
            continue;
        LLVMValueRef total = LLVMBuildLoad2(l->b, mot_llvm_vector(l, mot_llvm_type(l, node->dtype)),
                                            lanes->total[i], "");
        LLVMBuildStore(l->b,
                       l->nest->shape == MOT_SHAPE_ROW ? combine_lanes(l, node, total) : total,
                       lanes->reduced[i]);
    }
}

/* ---- One point of the inner loops ---- */

static void print_point(MotLlvm *l, MotLanes *lanes, uint32_t phase, const bool *is_written)
{
    const MotNest *nest = l->nest;
    forget_inner(l, lanes);
    each_saved(l, lanes, is_written, read_saved);
    for (MotNode i = 1; i < nest->nodes.n; i++)
        if (ends_in(info_of(l, i), phase))
            add_to_reduction(l, lanes, i);
    for (uint32_t i = 0; i < nest->stores.n; i++)
        if (is_inner_store(nest, &nest->stores.data[i]) &&
            mot_node_ready(info_of(l, nest->stores.data[i].value)) == phase)
            mot_llvm_node(
                l, lanes,
                nest->stores.data[i]
                    .value); /* all values before the first store: results may be operands */
    for (uint32_t i = 0; i < nest->stores.n; i++)
        if (is_inner_store(nest, &nest->stores.data[i]) &&
            mot_node_ready(info_of(l, nest->stores.data[i].value)) == phase)
            mot_llvm_store_node(l, lanes, &nest->stores.data[i]);
    each_saved(l, lanes, is_written, write_saved);
}

/* Saved nodes that the phase just printed has computed are in scratch from now on. */
static void note_written(MotLlvm *l, const MotLanes *lanes, bool *is_written)
{
    for (MotNode i = 1; i < l->nest->nodes.n; i++)
        is_written[i] = is_written[i] || (info_of(l, i)->is_saved && lanes->value[i]);
}

/*
 * Points [from, to) of the lane loop: whole vectors, then a masked rest unless `to - from` is a
 * multiple of the lanes.
 */
static void print_lane_loop(MotLlvm *l, MotLanes *lanes, LLVMValueRef from, LLVMValueRef to,
                            uint32_t phase, const bool *is_written)
{
    MotExtent extent = lane_extent(l);
    bool has_whole = extent.n || extent.factor >= l->lanes,
         has_rest = !is_multiple(extent, l->lanes);
    LLVMValueRef row = l->saved_index, whole = from;
    if (has_whole) {
        LLVMValueRef lanes_n = mot_llvm_int(l, l->lanes);
        LLVMValueRef n = mot_llvm_sub(l, to, from);
        whole = has_rest ? mot_llvm_sub(l, to, mot_llvm_rem(l, n, lanes_n)) : to;
        MotLlvmLoop loop = mot_llvm_loop_begin(l, from, whole, lanes_n);
        lanes->first = loop.index;
        lanes->mask = NULL;
        l->saved_index = row ? mot_llvm_add(l, row, loop.index) : NULL;
        print_point(l, lanes, phase, is_written);
        mot_llvm_loop_end(l, &loop);
    }
    if (has_rest) {
        LLVMBasicBlockRef after = mot_llvm_if_begin(l, mot_llvm_less(l, whole, to));
        lanes->first = whole;
        lanes->mask = mot_llvm_tail_mask(l, whole, to);
        l->saved_index = row ? mot_llvm_add(l, row, whole) : NULL;
        print_point(l, lanes, phase, is_written);
        mot_llvm_if_end(l, after);
    }
    lanes->mask = NULL;
    l->saved_index = row;
}

/* Stores that do not vary along the inner loops. */
static void print_kept_stores(MotLlvm *l, MotLanes *lanes)
{
    for (uint32_t i = 0; i < l->nest->stores.n; i++)
        if (!is_inner_store(l->nest, &l->nest->stores.data[i]))
            mot_llvm_store_node(l, lanes, &l->nest->stores.data[i]);
}

/* ---- Pointwise ---- */

static LLVMValueRef count_blocks(MotLlvm *l, int64_t block)
{
    return mot_llvm_ceil_div(l, mot_llvm_extent(l, lane_extent(l)), block);
}

static LLVMValueRef count_outer_points(MotLlvm *l)
{
    return mot_llvm_points(l, 0, l->nest->n_kept - 1); /* the lane loop is the last kept one */
}

static LLVMValueRef count_pointwise_tasks(MotLlvm *l)
{
    return mot_llvm_mul(l, count_outer_points(l), count_blocks(l, BLOCK));
}

static void print_pointwise(MotLlvm *l)
{
    const bool *none = mot_arena_array(&l->ctx->arena, bool, l->nest->nodes.n);
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, mot_llvm_int(l, 1));
    LLVMValueRef blocks = count_blocks(l, BLOCK);
    mot_llvm_set_point(l, mot_llvm_div(l, task.index, blocks), 0, l->nest->n_kept - 1);
    LLVMValueRef from =
        mot_llvm_mul(l, mot_llvm_rem(l, task.index, blocks), mot_llvm_int(l, BLOCK));
    LLVMValueRef to = mot_llvm_min(l, mot_llvm_add(l, from, mot_llvm_int(l, BLOCK)),
                                   mot_llvm_extent(l, lane_extent(l)));
    MotLanes lanes = mot_llvm_lanes_make(l, from, NULL);
    compute_outer(l, &lanes, 0);
    l->saved_index = NULL;
    print_lane_loop(l, &lanes, from, to, 0, none);
    forget_inner(l, &lanes);
    print_kept_stores(l, &lanes); /* of a scalar: its line of one element has no stride */
    mot_llvm_loop_end(l, &task);
}

const MotLlvmShape mot_llvm_pointwise = {
    .run = print_pointwise, .tasks = count_pointwise_tasks, .scratch_bytes = mot_llvm_no_scratch};

/* ---- Row ---- */

static LLVMValueRef count_rows(MotLlvm *l)
{
    return mot_llvm_points(l, 0, l->nest->n_kept);
}

/* The lane loop of a row, in chunks. */
static void print_line(MotLlvm *l, MotLanes *lanes, uint32_t phase, const bool *is_written)
{
    MotExtent extent = lane_extent(l);
    int64_t most = (int64_t)CHUNK * l->lanes;
    LLVMValueRef zero = mot_llvm_int(l, 0), n = mot_llvm_extent(l, extent),
                 chunk = mot_llvm_int(l, most);
    if (extent.n == 0 && extent.factor <= most) {
        print_lane_loop(l, lanes, zero, n, phase, is_written);
        fold_reductions(l, lanes, phase);
        return;
    }
    MotLlvmLoop loop = mot_llvm_loop_begin(l, zero, n, chunk);
    print_lane_loop(l, lanes, loop.index, mot_llvm_min(l, mot_llvm_add(l, loop.index, chunk), n),
                    phase, is_written);
    fold_reductions(l, lanes, phase);
    mot_llvm_loop_end(l, &loop);
}

/* One pass through the row. */
static void print_row_phase(MotLlvm *l, MotLanes *lanes, uint32_t phase, const bool *is_written)
{
    const MotNest *nest = l->nest;
    l->saved_index = mot_llvm_int(l, 0);
    if (nest->n_loops - nest->n_kept == 1) {
        print_line(l, lanes, phase, is_written);
        return;
    }
    LLVMValueRef lines = mot_llvm_points(l, nest->n_kept, nest->n_loops - 1);
    MotLlvmLoop loop = mot_llvm_loop_begin(l, mot_llvm_int(l, 0), lines, mot_llvm_int(l, 1));
    mot_llvm_set_point(l, loop.index, nest->n_kept, nest->n_loops - 1);
    l->saved_index = mot_llvm_mul(l, loop.index, mot_llvm_extent(l, lane_extent(l)));
    print_line(l, lanes, phase, is_written);
    mot_llvm_loop_end(l, &loop);
}

static void print_row(MotLlvm *l)
{
    const MotNest *nest = l->nest;
    bool *is_written = mot_arena_array(&l->ctx->arena, bool, nest->nodes.n);
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, mot_llvm_int(l, 1));
    mot_llvm_set_point(l, task.index, 0, nest->n_kept);
    MotLanes lanes = mot_llvm_lanes_make(l, mot_llvm_int(l, 0), NULL);
    start_reductions(l, &lanes);
    for (uint32_t phase = 0; phase < nest->n_phases; phase++) {
        compute_outer(l, &lanes, phase);
        print_row_phase(l, &lanes, phase, is_written);
        note_written(l, &lanes, is_written);
        finish_reductions(l, &lanes, phase);
    }
    forget_inner(l, &lanes);
    print_kept_stores(l, &lanes);
    mot_llvm_loop_end(l, &task);
}

const MotLlvmShape mot_llvm_row = {
    .run = print_row, .tasks = count_rows, .scratch_bytes = saved_bytes};

/* ---- Column ---- */

static LLVMValueRef count_column_tasks(MotLlvm *l)
{
    return mot_llvm_mul(l, count_outer_points(l), count_blocks(l, column_width(l)));
}

/* Points [from, to) of the reduced loops. */
static void print_column_chunk(MotLlvm *l, MotLanes *lanes, LLVMValueRef from, LLVMValueRef to,
                               uint32_t phase, const bool *is_written)
{
    MotLlvmLoop loop = mot_llvm_loop_begin(l, from, to, mot_llvm_int(l, 1));
    mot_llvm_set_point(l, loop.index, l->nest->n_kept, l->nest->n_loops);
    l->saved_index = loop.index;
    for (unsigned i = 0; i < COLUMN_VECTORS; i++)
        print_point(l, &lanes[i], phase, is_written);
    mot_llvm_loop_end(l, &loop);
    for (unsigned i = 0; i < COLUMN_VECTORS; i++)
        fold_reductions(l, &lanes[i], phase);
}

static void print_column_phase(MotLlvm *l, MotLanes *lanes, uint32_t phase, bool *is_written)
{
    LLVMValueRef n = mot_llvm_points(l, l->nest->n_kept, l->nest->n_loops),
                 chunk = mot_llvm_int(l, CHUNK);
    MotLlvmLoop loop = mot_llvm_loop_begin(l, mot_llvm_int(l, 0), n, chunk);
    print_column_chunk(l, lanes, loop.index, mot_llvm_min(l, mot_llvm_add(l, loop.index, chunk), n),
                       phase, is_written);
    mot_llvm_loop_end(l, &loop);
    for (unsigned i = 0; i < COLUMN_VECTORS; i++)
        finish_reductions(l, &lanes[i], phase);
    note_written(l, &lanes[0], is_written);
}

static void print_column(MotLlvm *l)
{
    const MotNest *nest = l->nest;
    MotExtent extent = lane_extent(l);
    int64_t width = column_width(l);
    bool *is_written = mot_arena_array(&l->ctx->arena, bool, nest->nodes.n);
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, mot_llvm_int(l, 1));
    LLVMValueRef blocks = count_blocks(l, width);
    mot_llvm_set_point(l, mot_llvm_div(l, task.index, blocks), 0, nest->n_kept - 1);
    LLVMValueRef from =
        mot_llvm_mul(l, mot_llvm_rem(l, task.index, blocks), mot_llvm_int(l, width));
    MotLanes lanes[COLUMN_VECTORS];
    for (unsigned i = 0; i < COLUMN_VECTORS; i++) {
        LLVMValueRef first = mot_llvm_add(l, from, mot_llvm_int(l, (int64_t)i * l->lanes));
        LLVMValueRef mask = is_multiple(extent, width)
                                ? NULL
                                : mot_llvm_tail_mask(l, first, mot_llvm_extent(l, extent));
        lanes[i] = mot_llvm_lanes_make(l, first, mask);
        lanes[i].number = i;
        start_reductions(l, &lanes[i]);
    }
    for (uint32_t phase = 0; phase < nest->n_phases; phase++) {
        for (unsigned i = 0; i < COLUMN_VECTORS; i++)
            compute_outer(l, &lanes[i], phase);
        print_column_phase(l, lanes, phase, is_written);
    }
    for (unsigned i = 0; i < COLUMN_VECTORS; i++) {
        forget_inner(l, &lanes[i]);
        print_kept_stores(l, &lanes[i]);
    }
    mot_llvm_loop_end(l, &task);
}

const MotLlvmShape mot_llvm_column = {
    .run = print_column, .tasks = count_column_tasks, .scratch_bytes = saved_bytes};
