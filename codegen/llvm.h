/*
 * Printing nests as LLVM IR. A kernel is one module with three functions a nest, run<i>, tasks<i>
 * and scratch<i> (support/image.h). This header is what the printers of the shapes share: the
 * state, integers and loops, vectors of lanes, nodes, mathematics.
 *
 * Everything is explicit: a vector holds `lanes` elements along the nest's lane loop, tails are
 * masked, and nothing is left to LLVM's vectorizers. Values that don't vary along the lanes are
 * vectors of equal elements.
 */
#ifndef MOTLEY_CODEGEN_LLVM_H
#define MOTLEY_CODEGEN_LLVM_H

#include "codegen/kernel.h"
#include "support/image.h"

#include <llvm-c/Core.h>

enum { MOT_MAX_ARGS = 3 };

typedef struct MotLlvm {
    MotCtx *ctx;
    LLVMContextRef llvm;
    LLVMModuleRef module;
    LLVMBuilderRef b;
    LLVMBuilderRef
        entry; /* at the end of the entry block: allocas, dims, what holds for the whole call */
    MotIsa isa;
    unsigned lanes;
    LLVMTypeRef i1, i8, i32, i64, f32, f64, ptr, nothing;
    const MotKernelIr *kernel;
    const MotNest *nest;
    LLVMValueRef fn, bufs, dims, services, scratch;
    LLVMValueRef begin, end;           /* tasks of this call */
    LLVMValueRef index[MOT_MAX_LOOPS]; /* the point in the loops; the lane loop's is in MotLanes */
    LLVMValueRef saved_index; /* the point in the reduced loops, in vectors of saved nodes */
} MotLlvm;

/* The lanes at which nodes are computed now, and the values computed so far. */
typedef struct MotLanes {
    LLVMValueRef first;    /* i64: index along the lane loop of lane 0 */
    LLVMValueRef mask;     /* <lanes x i1>, or NULL: all lanes are inside */
    LLVMValueRef *value;   /* [nodes]; NULL: not computed in this place */
    LLVMValueRef *reduced; /* [nodes]: alloca of REDUCE nodes: partial results, then the results */
    LLVMValueRef *total;   /* [nodes]: the same, of complete chunks */
    unsigned number;       /* among the lanes that share a scratch row of saved nodes */
} MotLanes;

/* ---- llvm.c: integers, loops, functions ---- */

void mot_llvm_init(MotLlvm *l, MotCtx *ctx, const MotKernelIr *kernel, MotIsa isa);
void mot_llvm_deinit(MotLlvm *l);
/* Prints all nests of the kernel. */
MOT_CHECKED MotStatus mot_llvm_print(MotLlvm *l);

LLVMValueRef mot_llvm_int(MotLlvm *l, int64_t value); /* an i64 */
LLVMValueRef mot_llvm_add(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_sub(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_mul(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_min(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_max(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_less(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_div(MotLlvm *l, LLVMValueRef a, LLVMValueRef b); /* both >= 0, b > 0 */
LLVMValueRef mot_llvm_rem(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_ceil_div(MotLlvm *l, LLVMValueRef a, int64_t b);
LLVMValueRef mot_llvm_extent(MotLlvm *l, MotExtent e);
/* Product of the extents of loops [from, to). */
LLVMValueRef mot_llvm_points(MotLlvm *l, int from, int to);
/* Sets index[from, to) to point number `n` of those loops, the last one fastest. */
void mot_llvm_set_point(MotLlvm *l, LLVMValueRef n, int from, int to);

/*
 * for (index = from; index < to; index += step). The body is printed between begin and end; nothing
 * happens if from >= to.
 */
typedef struct MotLlvmLoop {
    LLVMValueRef index, step;
    LLVMBasicBlockRef head, after;
} MotLlvmLoop;
MotLlvmLoop mot_llvm_loop_begin(MotLlvm *l, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step);
void mot_llvm_loop_end(MotLlvm *l, MotLlvmLoop *loop);
/* if (condition) { ... }: what is printed until mot_llvm_if_end(block). */
LLVMBasicBlockRef mot_llvm_if_begin(MotLlvm *l, LLVMValueRef condition);
void mot_llvm_if_end(MotLlvm *l, LLVMBasicBlockRef after);

/* An intrinsic, overloaded on the types given. */
LLVMValueRef mot_llvm_call(MotLlvm *l, const char *name, const LLVMTypeRef *types, unsigned n_types,
                           LLVMValueRef *args, unsigned n_args);
/* The sgemm of MotServices: i64 sizes and distances, trans as constants. */
typedef struct MotLlvmGemm {
    bool trans_a, trans_b;
    LLVMValueRef m, n, k, a, lda, b, ldb, beta, c, ldc;
} MotLlvmGemm;
void mot_llvm_gemm(MotLlvm *l, const MotLlvmGemm *g);
/* The same where k runs over the list of the nest's contraction: llvm_listed.c. */
void mot_llvm_listed_gemm(MotLlvm *l, const MotLlvmGemm *g);
LLVMValueRef mot_llvm_listed_scratch(MotLlvm *l);
/* The row service of MotServices. */
typedef struct MotLlvmRow {
    int64_t kind, wire, n, k, parts;
    LLVMValueRef stride, row, at[3];
} MotLlvmRow;
void mot_llvm_row_service(MotLlvm *l, const MotLlvmRow *r);
/* Tells the runtime of an index outside of its table. */
void mot_llvm_report_index(MotLlvm *l, LLVMValueRef index);

/* The address of a buffer, and of element `index` of elements of `type` behind it. */
LLVMValueRef mot_llvm_buf(MotLlvm *l, uint32_t buf);
LLVMValueRef mot_llvm_at(MotLlvm *l, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index);
/* The 64-byte aligned scratch at a constant or computed byte offset. */
LLVMValueRef mot_llvm_scratch(MotLlvm *l, LLVMValueRef byte_offset);

/* ---- llvm_vector.c: vectors of lanes ---- */

LLVMTypeRef mot_llvm_vector(MotLlvm *l, LLVMTypeRef element);
LLVMTypeRef mot_llvm_type(MotLlvm *l,
                          MotDtype dtype); /* of an element as it is computed with: bool is i1 */
LLVMValueRef mot_llvm_splat(MotLlvm *l, LLVMValueRef scalar);
LLVMValueRef mot_llvm_splat_f32(MotLlvm *l, double value);
LLVMValueRef mot_llvm_splat_int(MotLlvm *l, LLVMTypeRef type, int64_t value);
LLVMValueRef mot_llvm_lane_0(MotLlvm *l, LLVMValueRef vector);
/* <first, first + 1, ...> of i64. */
LLVMValueRef mot_llvm_iota(MotLlvm *l, LLVMValueRef first);
/* Lanes whose index, from `first` on, is below `end`. */
LLVMValueRef mot_llvm_tail_mask(MotLlvm *l, LLVMValueRef first, LLVMValueRef end);
/* NULL masks stand for all lanes. Lanes off give 0, or are not written. */
LLVMValueRef mot_llvm_load(MotLlvm *l, LLVMTypeRef element, LLVMValueRef address,
                           LLVMValueRef mask);
void mot_llvm_store(MotLlvm *l, LLVMValueRef vector, LLVMValueRef address, LLVMValueRef mask);
LLVMValueRef mot_llvm_gather(MotLlvm *l, LLVMTypeRef element, LLVMValueRef base,
                             LLVMValueRef offsets, LLVMValueRef mask);
void mot_llvm_scatter(MotLlvm *l, LLVMValueRef vector, LLVMValueRef base, LLVMValueRef offsets,
                      LLVMValueRef mask);
LLVMValueRef mot_llvm_fadd(MotLlvm *l, LLVMValueRef a,
                           LLVMValueRef b); /* these may contract to fused multiply-adds */
LLVMValueRef mot_llvm_fsub(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_fmul(MotLlvm *l, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef mot_llvm_select(MotLlvm *l, LLVMValueRef mask, LLVMValueRef a, LLVMValueRef b);
/* All lanes combined by `combine` in a fixed tree; in every lane of the result. */
LLVMValueRef mot_llvm_reduce_lanes(MotLlvm *l, LLVMValueRef vector,
                                   LLVMValueRef (*combine)(MotLlvm *, LLVMValueRef, LLVMValueRef));
LLVMValueRef mot_llvm_fmax(MotLlvm *l, LLVMValueRef a,
                           LLVMValueRef b); /* ops.def's max: NaN in, NaN out */

/* ---- llvm_row.c: pointwise rows ---- */

/* A pointwise row or CAST on operands of `from`; the result has dtype `to`. */
LLVMValueRef mot_llvm_op(MotLlvm *l, MotOpKind op, MotDtype from, MotDtype to, LLVMValueRef *arg);

/* ---- llvm_math.c: the functions of numbers, on vectors ---- */

/* The function whose name has these n letters, as expressions of ir/ops.def call it. */
LLVMValueRef mot_llvm_function(MotLlvm *l, const char *name, size_t n, LLVMValueRef *arg);
LLVMValueRef mot_llvm_exp(MotLlvm *l, LLVMValueRef x); /* exactly 0 below -87.3: no denormals */
LLVMValueRef mot_llvm_log(MotLlvm *l, LLVMValueRef x);

/* ---- llvm_node.c: nodes and stores ---- */

MotLanes mot_llvm_lanes_make(MotLlvm *l, LLVMValueRef first, LLVMValueRef mask);
/*
 * The value of a node at these lanes and the current point. REDUCE nodes must have been completed.
 */
LLVMValueRef mot_llvm_node(MotLlvm *l, MotLanes *lanes, MotNode node);
void mot_llvm_store_node(MotLlvm *l, MotLanes *lanes, const MotStore *store);

/* ---- One printer a shape: the body of run, and the counts ---- */

typedef struct MotLlvmShape {
    void (*run)(MotLlvm *l);
    LLVMValueRef (*tasks)(MotLlvm *l);
    LLVMValueRef (*scratch_bytes)(MotLlvm *l);
    bool is_coarse;
} MotLlvmShape;
extern const MotLlvmShape mot_llvm_pointwise, mot_llvm_row, mot_llvm_column, mot_llvm_contract,
    mot_llvm_scatter_add, mot_llvm_rows, mot_llvm_attention, mot_llvm_attention_grad;
LLVMValueRef mot_llvm_no_scratch(MotLlvm *l);

#endif
