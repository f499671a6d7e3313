/*
 * LLVM IR of rows of which few entries count: a task is a row, for which the device's service is
 * called.
 */
#include "codegen/llvm.h"

#include "ir/sparse.h"

static LLVMValueRef count_rows(MotLlvm *l)
{
    return mot_llvm_extent(l, l->nest->loop[0].extent);
}

static void print_rows(MotLlvm *l)
{
    static const MotRowKind kinds[MOT_N_OPS] = {[MOT_OP_TOP_K] = MOT_ROW_TOP_K,
                                                [MOT_OP_SCATTER_MEAN] = MOT_ROW_MEAN,
                                                [MOT_OP_PACK] = MOT_ROW_PACK,
                                                [MOT_OP_UNPACK] = MOT_ROW_UNPACK};
    const MotRows *r = &l->nest->rows;
    LLVMValueRef rows = count_rows(l);
    bool is_mean = r->op == MOT_OP_SCATTER_MEAN;
    MotLlvmRow call = {.kind = kinds[r->op],
                       .wire = mot_wire_find(r->wire),
                       .n = r->n,
                       .k = r->k,
                       .parts = r->parts,
                       .stride = is_mean ? mot_llvm_mul(l, rows, mot_llvm_int(l, r->k)) : rows};
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, mot_llvm_int(l, 1));
    call.row = task.index;
    for (int i = 0; i < 3; i++)
        call.at[i] = mot_llvm_at(l, mot_llvm_type(l, r->dtype[i]), mot_llvm_buf(l, r->buf[i]),
                                 mot_llvm_mul(l, task.index, mot_llvm_int(l, r->step[i])));
    mot_llvm_row_service(l, &call);
    mot_llvm_loop_end(l, &task);
}

const MotLlvmShape mot_llvm_rows = {
    .run = print_rows, .tasks = count_rows, .scratch_bytes = mot_llvm_no_scratch};
