/*
 * LLVM IR: nodes and stores of a nest. A node is computed when it is first asked for; whoever
 * prints the loops clears the values that no longer hold and asks early for those that shall stand
 * before a loop.
 */
#include "codegen/llvm.h"

MotLanes mot_llvm_lanes_make(MotLlvm *l, LLVMValueRef first, LLVMValueRef mask)
{
    uint32_t n = l->nest->nodes.n;
    return (MotLanes){.first = first,
                      .mask = mask,
                      .value = mot_arena_array(&l->ctx->arena, LLVMValueRef, n),
                      .reduced = mot_arena_array(&l->ctx->arena, LLVMValueRef, n),
                      .total = mot_arena_array(&l->ctx->arena, LLVMValueRef, n)};
}

static const MotNodeInfo *info_of(const MotLlvm *l, MotNode node)
{
    return &l->nest->nodes.data[node];
}

static bool varies_along_lanes(const MotLlvm *l, MotNode node)
{
    return l->nest->lane_loop >= 0 && info_of(l, node)->loops >> l->nest->lane_loop & 1;
}

static LLVMValueRef and_masks(MotLlvm *l, LLVMValueRef a, LLVMValueRef b)
{
    return !a ? b : !b ? a : LLVMBuildAnd(l->b, a, b, "");
}

static LLVMValueRef loop_index(MotLlvm *l, const MotLanes *lanes, int loop)
{
    return loop == l->nest->lane_loop ? lanes->first : l->index[loop];
}

/*
 * Where an access is: base plus `scalar` elements for lane 0; `vector` more for each lane, NULL if
 * they follow each other.
 */
typedef struct {
    LLVMValueRef scalar, vector;
    bool is_uniform; /* the same element for all lanes */
} Place;

static void add_scalar(MotLlvm *l, Place *p, LLVMValueRef index, MotExtent stride)
{
    p->scalar = mot_llvm_add(l, p->scalar, mot_llvm_mul(l, index, mot_llvm_extent(l, stride)));
}

static void add_vector(MotLlvm *l, Place *p, LLVMValueRef index, MotExtent stride)
{
    LLVMValueRef term =
        LLVMBuildMul(l->b, index, mot_llvm_splat(l, mot_llvm_extent(l, stride)), "");
    p->vector = p->vector ? LLVMBuildAdd(l->b, p->vector, term, "") : term;
}

static Place find_place(MotLlvm *l, MotLanes *lanes, const MotAccess *a)
{
    int lane_loop = l->nest->lane_loop;
    Place p = {.scalar = mot_llvm_int(l, 0),
               .is_uniform = lane_loop < 0 || !a->stride[lane_loop].factor};
    for (int i = 0; i < l->nest->n_loops; i++)
        if (a->stride[i].factor)
            add_scalar(l, &p, loop_index(l, lanes, i), a->stride[i]);
    for (uint32_t i = 0; i < a->n_offsets; i++)
        p.scalar = mot_llvm_add(l, p.scalar, mot_llvm_extent(l, a->offset[i]));
    bool is_scattered = !p.is_uniform && !mot_extent_is(a->stride[lane_loop], 1);
    for (uint32_t i = 0; i < a->n_indices; i++) {
        LLVMValueRef index = mot_llvm_node(l, lanes, a->index[i]);
        if (varies_along_lanes(l, a->index[i])) {
            add_vector(l, &p, index, a->index_stride[i]);
            is_scattered = is_scattered || !p.is_uniform;
            p.is_uniform = false;
        } else {
            add_scalar(l, &p, mot_llvm_lane_0(l, index), a->index_stride[i]);
        }
    }
    if (is_scattered)
        add_vector(l, &p, mot_llvm_iota(l, mot_llvm_int(l, 0)), a->stride[lane_loop]);
    return p;
}

static LLVMTypeRef stored_type(MotLlvm *l, MotDtype dtype)
{
    return dtype == MOT_BOOL ? l->i8 : mot_llvm_type(l, dtype);
}

static LLVMValueRef load_node(MotLlvm *l, MotLanes *lanes, const MotNodeInfo *node)
{
    Place p = find_place(l, lanes, node->access);
    LLVMTypeRef element = mot_llvm_type(l, node->dtype);
    LLVMValueRef guard = node->arg[0] ? mot_llvm_node(l, lanes, node->arg[0]) : NULL;
    LLVMValueRef base = mot_llvm_buf(l, node->access->buf);
    base = mot_llvm_at(l, stored_type(l, node->dtype), base, p.scalar);
    LLVMValueRef mask = and_masks(l, lanes->mask, guard);
    if (p.vector)
        return mot_llvm_gather(l, element, base, p.vector, mask);
    if (!p.is_uniform)
        return mot_llvm_load(l, element, base, mask);
    if (guard) /* one address for all lanes, that may be none */
        return mot_llvm_gather(l, element, base, mot_llvm_splat_int(l, l->i64, 0), guard);
    LLVMValueRef scalar = LLVMBuildLoad2(l->b, stored_type(l, node->dtype), base, "");
    if (node->dtype == MOT_BOOL)
        scalar = LLVMBuildICmp(l->b, LLVMIntNE, scalar, LLVMConstNull(l->i8), "");
    return mot_llvm_splat(l, scalar);
}

static LLVMValueRef index_node(MotLlvm *l, MotLanes *lanes, const MotNodeInfo *node)
{
    LLVMValueRef at;
    if (node->arg[0])
        at = mot_llvm_node(l, lanes, node->arg[0]);
    else if (node->loop == l->nest->lane_loop)
        at = mot_llvm_iota(l, lanes->first);
    else
        at = mot_llvm_splat(l, l->index[node->loop]);
    at = LLVMBuildMul(l->b, at, mot_llvm_splat_int(l, l->i64, node->step), "");
    return LLVMBuildAdd(l->b, at, mot_llvm_splat_int(l, l->i64, node->start), "");
}

/*
 * Unsigned, so that one comparison serves for both ends. The first bad index of the vector is told;
 * the last vector wins.
 */
static LLVMValueRef check_node(MotLlvm *l, MotLanes *lanes, const MotNodeInfo *node)
{
    LLVMValueRef index = mot_llvm_node(l, lanes, node->arg[0]),
                 size = mot_llvm_node(l, lanes, node->arg[1]);
    LLVMValueRef guard = node->arg[2] ? mot_llvm_node(l, lanes, node->arg[2]) : NULL;
    LLVMValueRef is_inside = LLVMBuildICmp(l->b, LLVMIntULT, index, size, "");
    LLVMValueRef is_bad =
        and_masks(l, and_masks(l, LLVMBuildNot(l->b, is_inside, ""), lanes->mask), guard);
    LLVMTypeRef type = LLVMTypeOf(is_bad), bits = LLVMIntTypeInContext(l->llvm, l->lanes);
    LLVMValueRef any = mot_llvm_call(l, "llvm.vector.reduce.or", &type, 1, &is_bad, 1);
    LLVMBasicBlockRef after = mot_llvm_if_begin(l, any);
    LLVMValueRef args[] = {LLVMBuildBitCast(l->b, is_bad, bits, ""), LLVMConstInt(l->i1, 1, false)};
    LLVMValueRef lane = mot_llvm_call(l, "llvm.cttz", &bits, 1, args, 2);
    LLVMValueRef bad =
        LLVMBuildExtractElement(l->b, index, LLVMBuildZExt(l->b, lane, l->i32, ""), "");
    mot_llvm_report_index(l, bad);
    mot_llvm_if_end(l, after);
    return is_inside;
}

static LLVMValueRef const_node(MotLlvm *l, const MotNodeInfo *node)
{
    LLVMTypeRef type = mot_llvm_type(l, node->dtype);
    if (mot_dtype_class(node->dtype) == MOT_CLASS_FLOAT)
        return mot_llvm_splat(l, LLVMConstReal(type, node->value));
    return mot_llvm_splat_int(l, type, (int64_t)node->value);
}

static LLVMValueRef op_node(MotLlvm *l, MotLanes *lanes, const MotNodeInfo *node)
{
    LLVMValueRef arg[MOT_MAX_ARGS] = {NULL};
    MotDtype from = MOT_NO_DTYPE;
    for (int i = 0; i < MOT_MAX_ARGS && node->arg[i]; i++) {
        arg[i] = mot_llvm_node(l, lanes, node->arg[i]);
        from = info_of(l, node->arg[i])
                   ->dtype; /* the last operand's: a select's first is its condition */
    }
    return mot_llvm_op(l, node->op, from, node->dtype, arg);
}

static LLVMValueRef compute(MotLlvm *l, MotLanes *lanes, MotNode id)
{
    const MotNodeInfo *node = info_of(l, id);
    switch (node->kind) {
    case MOT_NODE_LOAD:
        return load_node(l, lanes, node);
    case MOT_NODE_CONST:
        return const_node(l, node);
    case MOT_NODE_INDEX:
        return index_node(l, lanes, node);
    case MOT_NODE_SIZE:
        return mot_llvm_splat(l, mot_llvm_extent(l, node->extent));
    case MOT_NODE_CHECK:
        return check_node(l, lanes, node);
    case MOT_NODE_OP:
        return op_node(l, lanes, node);
    case MOT_NODE_REDUCE:
        return LLVMBuildLoad2(l->b, mot_llvm_vector(l, mot_llvm_type(l, node->dtype)),
                              lanes->reduced[id], "");
    case MOT_NODE_NONE:
        break;
    }
    mot_bug(__FILE__, __LINE__, "a node without a kind");
}

LLVMValueRef mot_llvm_node(MotLlvm *l, MotLanes *lanes, MotNode node)
{
    if (!lanes->value[node])
        lanes->value[node] = compute(l, lanes, node);
    return lanes->value[node];
}

void mot_llvm_store_node(MotLlvm *l, MotLanes *lanes, const MotStore *store)
{
    LLVMValueRef value = mot_llvm_node(l, lanes, store->value);
    Place p = find_place(l, lanes, &store->access);
    LLVMTypeRef type = stored_type(l, store->access.dtype);
    LLVMValueRef at = mot_llvm_at(l, type, mot_llvm_buf(l, store->access.buf), p.scalar);
    if (p.vector) {
        mot_llvm_scatter(l, value, at, p.vector, lanes->mask);
    } else if (!p.is_uniform) {
        mot_llvm_store(l, value, at, lanes->mask);
    } else {
        LLVMValueRef scalar = mot_llvm_lane_0(l, value);
        LLVMBuildStore(
            l->b, store->access.dtype == MOT_BOOL ? LLVMBuildZExt(l->b, scalar, l->i8, "") : scalar,
            at);
    }
}
