/*
 * LLVM IR of contractions and of scatter_add.
 *
 * Contract: a task is SLAB rows, or columns if there are more of these, of the result of one point
 * of the kept loops; consecutive tasks of one matrix are one GEMM call, so that whoever deals out
 * long ranges pays for packing only once. Matrices along the reduced loops are added by calls with
 * beta = 1, in order. With nothing to sum, the one call has k = 0 and stores zeros.
 */
#include "codegen/llvm.h"

enum { SLAB = 32, STRIPE_VECTORS = 4 };

static LLVMValueRef address_of(MotLlvm *l, const MotAccess *access, int from, int to,
                               LLVMValueRef extra)
{
    LLVMValueRef at = extra;
    for (int i = from; i < to; i++)
        if (access->stride[i].factor)
            at = mot_llvm_add(l, at,
                              mot_llvm_mul(l, l->index[i], mot_llvm_extent(l, access->stride[i])));
    return mot_llvm_at(l, mot_llvm_type(l, access->dtype), mot_llvm_buf(l, access->buf), at);
}

static LLVMValueRef count_slabs(MotLlvm *l)
{
    const MotContract *c = &l->nest->contract;
    LLVMValueRef m = mot_llvm_extent(l, c->m), n = mot_llvm_extent(l, c->n);
    LLVMValueRef is_empty =
        LLVMBuildICmp(l->b, LLVMIntEQ, mot_llvm_min(l, m, n), mot_llvm_int(l, 0), "");
    LLVMValueRef slabs = mot_llvm_ceil_div(l, mot_llvm_max(l, m, n), SLAB);
    return LLVMBuildSelect(l->b, is_empty, mot_llvm_int(l, 0), slabs, "");
}

static LLVMValueRef count_contract_tasks(MotLlvm *l)
{
    return mot_llvm_mul(l, mot_llvm_points(l, 0, l->nest->n_kept), count_slabs(l));
}

/* The part of the result that slabs [first, last) are: rows [m0, m0 + m), columns [n0, n0 + n). */
typedef struct {
    LLVMValueRef m0, m, n0, n;
} Part;

static Part make_part(MotLlvm *l, LLVMValueRef first, LLVMValueRef last)
{
    const MotContract *c = &l->nest->contract;
    LLVMValueRef m = mot_llvm_extent(l, c->m), n = mot_llvm_extent(l, c->n),
                 zero = mot_llvm_int(l, 0);
    LLVMValueRef by_columns = mot_llvm_less(l, m, n), most = mot_llvm_max(l, m, n);
    LLVMValueRef from = mot_llvm_mul(l, first, mot_llvm_int(l, SLAB));
    LLVMValueRef to = mot_llvm_min(l, mot_llvm_mul(l, last, mot_llvm_int(l, SLAB)), most);
    LLVMValueRef size = mot_llvm_sub(l, to, from);
    return (Part){.m0 = LLVMBuildSelect(l->b, by_columns, zero, from, ""),
                  .m = LLVMBuildSelect(l->b, by_columns, m, size, ""),
                  .n0 = LLVMBuildSelect(l->b, by_columns, from, zero, ""),
                  .n = LLVMBuildSelect(l->b, by_columns, size, n, "")};
}

static void print_part(MotLlvm *l, const Part *p)
{
    const MotNest *nest = l->nest;
    const MotContract *c = &nest->contract;
    LLVMValueRef zero = mot_llvm_int(l, 0), one = mot_llvm_int(l, 1);
    LLVMValueRef sums = mot_llvm_points(l, nest->n_kept, nest->n_loops);
    MotLlvmLoop loop = mot_llvm_loop_begin(l, zero, mot_llvm_max(l, sums, one), one);
    mot_llvm_set_point(l, loop.index, nest->n_kept, nest->n_loops);
    LLVMValueRef has_sums = mot_llvm_less(l, zero, sums),
                 is_first = LLVMBuildICmp(l->b, LLVMIntEQ, loop.index, zero, "");
    bool trans_a = !mot_extent_is(c->a_k, 1), trans_b = !mot_extent_is(c->b_n, 1);
    LLVMValueRef at_a = mot_llvm_mul(l, p->m0, mot_llvm_extent(l, c->a_m));
    LLVMValueRef at_b = mot_llvm_mul(l, p->n0, mot_llvm_extent(l, c->b_n));
    LLVMValueRef at_c = mot_llvm_add(l, mot_llvm_mul(l, p->m0, mot_llvm_extent(l, c->c_m)), p->n0);
    MotLlvmGemm gemm = {.trans_a = trans_a,
                        .trans_b = trans_b,
                        .m = p->m,
                        .n = p->n,
                        .k = LLVMBuildSelect(l->b, has_sums, mot_llvm_extent(l, c->k), zero, ""),
                        .a = address_of(l, &c->a, 0, nest->n_loops, at_a),
                        .lda = mot_llvm_extent(l, trans_a ? c->a_k : c->a_m),
                        .b = address_of(l, &c->b, 0, nest->n_loops, at_b),
                        .ldb = mot_llvm_extent(l, trans_b ? c->b_n : c->b_k),
                        .beta = LLVMBuildSelect(l->b, is_first, LLVMConstReal(l->f32, 0),
                                                LLVMConstReal(l->f32, 1), ""),
                        .c = address_of(l, &c->c, 0, nest->n_kept, at_c),
                        .ldc = mot_llvm_extent(l, c->c_m)};
    if (c->has_list)
        mot_llvm_listed_gemm(l, &gemm);
    else
        mot_llvm_gemm(l, &gemm);
    mot_llvm_loop_end(l, &loop);
}

/* Points of the kept loops that [begin, end) touches, each with the range of its slabs. */
static void print_contract(MotLlvm *l)
{
    LLVMValueRef one = mot_llvm_int(l, 1), slabs = count_slabs(l);
    LLVMBasicBlockRef after = mot_llvm_if_begin(l, mot_llvm_less(l, l->begin, l->end));
    LLVMValueRef first = mot_llvm_div(l, l->begin, slabs);
    LLVMValueRef last = mot_llvm_add(l, mot_llvm_div(l, mot_llvm_sub(l, l->end, one), slabs), one);
    MotLlvmLoop loop = mot_llvm_loop_begin(l, first, last, one);
    LLVMValueRef start = mot_llvm_mul(l, loop.index, slabs);
    mot_llvm_set_point(l, loop.index, 0, l->nest->n_kept);
    Part part = make_part(l, mot_llvm_max(l, mot_llvm_sub(l, l->begin, start), mot_llvm_int(l, 0)),
                          mot_llvm_min(l, mot_llvm_sub(l, l->end, start), slabs));
    print_part(l, &part);
    mot_llvm_loop_end(l, &loop);
    mot_llvm_if_end(l, after);
}

static LLVMValueRef contract_scratch(MotLlvm *l)
{
    return l->nest->contract.has_list ? mot_llvm_listed_scratch(l) : mot_llvm_no_scratch(l);
}

const MotLlvmShape mot_llvm_contract = {.run = print_contract,
                                        .tasks = count_contract_tasks,
                                        .scratch_bytes = contract_scratch,
                                        .is_coarse = true};

/* ---- Scatter ---- */

/* A task is a stripe of columns; it goes through the index in order: equal indices add up so. */

enum { PRE, POST, INDEX };

static LLVMValueRef count_stripes(MotLlvm *l)
{
    return mot_llvm_ceil_div(l, mot_llvm_extent(l, l->nest->loop[POST].extent),
                             STRIPE_VECTORS * (int64_t)l->lanes);
}

static LLVMValueRef count_scatter_tasks(MotLlvm *l)
{
    return mot_llvm_mul(l, mot_llvm_extent(l, l->nest->loop[PRE].extent), count_stripes(l));
}

typedef struct {
    LLVMValueRef column[STRIPE_VECTORS], mask[STRIPE_VECTORS];
} Stripe;

/* The vectors of `stripe` in the row that starts at `row`. */
static LLVMValueRef stripe_address(MotLlvm *l, LLVMValueRef row, const Stripe *s, unsigned i)
{
    return mot_llvm_at(l, l->f32, row, s->column[i]);
}

static void print_zeros(MotLlvm *l, const Stripe *s)
{
    const MotScatter *c = &l->nest->scatter;
    MotLlvmLoop row =
        mot_llvm_loop_begin(l, mot_llvm_int(l, 0), mot_llvm_extent(l, c->size), mot_llvm_int(l, 1));
    LLVMValueRef at = mot_llvm_mul(l, row.index, mot_llvm_extent(l, c->axis_stride));
    LLVMValueRef base = address_of(l, &c->result, PRE, POST, at);
    for (unsigned i = 0; i < STRIPE_VECTORS; i++)
        mot_llvm_store(l, mot_llvm_splat_f32(l, 0), stripe_address(l, base, s, i), s->mask[i]);
    mot_llvm_loop_end(l, &row);
}

static LLVMValueRef load_index(MotLlvm *l)
{
    const MotAccess *a = &l->nest->scatter.index;
    LLVMTypeRef type = mot_llvm_type(l, a->dtype);
    LLVMValueRef index =
        LLVMBuildLoad2(l->b, type, address_of(l, a, PRE, INDEX + 1, mot_llvm_int(l, 0)), "");
    return type == l->i64 ? index : LLVMBuildSExt(l->b, index, l->i64, "");
}

static void print_updates(MotLlvm *l, const Stripe *s)
{
    const MotScatter *c = &l->nest->scatter;
    LLVMValueRef n = mot_llvm_extent(l, l->nest->loop[INDEX].extent);
    MotLlvmLoop loop = mot_llvm_loop_begin(l, mot_llvm_int(l, 0), n, mot_llvm_int(l, 1));
    l->index[INDEX] = loop.index;
    LLVMValueRef index = load_index(l), size = mot_llvm_extent(l, c->size);
    LLVMValueRef is_inside = LLVMBuildICmp(l->b, LLVMIntULT, index, size, "");
    LLVMBasicBlockRef outside = mot_llvm_if_begin(l, LLVMBuildNot(l->b, is_inside, ""));
    mot_llvm_report_index(l, index);
    mot_llvm_if_end(l, outside);
    LLVMBasicBlockRef after = mot_llvm_if_begin(l, is_inside);
    LLVMValueRef from =
        address_of(l, &c->update, PRE, POST,
                   mot_llvm_mul(l, loop.index, mot_llvm_extent(l, c->update.stride[INDEX])));
    LLVMValueRef to = address_of(l, &c->result, PRE, POST,
                                 mot_llvm_mul(l, index, mot_llvm_extent(l, c->axis_stride)));
    for (unsigned i = 0; i < STRIPE_VECTORS; i++) {
        LLVMValueRef old = mot_llvm_load(l, l->f32, stripe_address(l, to, s, i), s->mask[i]);
        LLVMValueRef more = mot_llvm_load(l, l->f32, stripe_address(l, from, s, i), s->mask[i]);
        mot_llvm_store(l, mot_llvm_fadd(l, old, more), stripe_address(l, to, s, i), s->mask[i]);
    }
    mot_llvm_if_end(l, after);
    mot_llvm_loop_end(l, &loop);
}

static void print_scatter(MotLlvm *l)
{
    MotExtent post = l->nest->loop[POST].extent;
    int64_t width = STRIPE_VECTORS * (int64_t)l->lanes;
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, mot_llvm_int(l, 1));
    LLVMValueRef stripes = count_stripes(l);
    l->index[PRE] = mot_llvm_div(l, task.index, stripes);
    LLVMValueRef first =
        mot_llvm_mul(l, mot_llvm_rem(l, task.index, stripes), mot_llvm_int(l, width));
    Stripe s;
    for (unsigned i = 0; i < STRIPE_VECTORS; i++) {
        s.column[i] = mot_llvm_add(l, first, mot_llvm_int(l, i * (int64_t)l->lanes));
        s.mask[i] = post.factor % width == 0
                        ? NULL
                        : mot_llvm_tail_mask(l, s.column[i], mot_llvm_extent(l, post));
    }
    print_zeros(l, &s);
    print_updates(l, &s);
    mot_llvm_loop_end(l, &task);
}

const MotLlvmShape mot_llvm_scatter_add = {
    .run = print_scatter, .tasks = count_scatter_tasks, .scratch_bytes = mot_llvm_no_scratch};
