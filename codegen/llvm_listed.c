/*
 * LLVM IR of a GEMM over listed positions of k: a prologue packs the listed columns of a and rows
 * of b into scratch, a tile at a time, and a GEMM with the list's length as k multiplies the tiles.
 *
 * A tile has at most ROWS rows and COLUMNS columns of the result, so that scratch is bounded
 * whatever m and n are. Where the positions of k lie behind each other a row of the tile is a
 * gather; else the tile is whole rows, copied. Both keep the order of the operand, and so the
 * GEMM's form. Cost: a copy of b for every tile of columns and of a for every tile: 1 / COLUMNS and
 * 1 / ROWS an operation.
 *
 * Scratch: the list, with positions that are outside, which are reported, replaced by 0; the tile
 * of a; the tile of b.
 */
#include "codegen/llvm.h"

enum { ROWS = 128, COLUMNS = 256, ALIGNMENT = 64 };

/* One operand: where it lies, how, and its tile. */
typedef struct {
    bool is_k_inner; /* positions of k lie behind each other: a line is a row of a, a column of b */
    LLVMValueRef from, ld, tile;
    int64_t width; /* lines of a full tile */
} Side;

typedef struct {
    LLVMValueRef positions, n; /* in scratch, and how many; n is 0 if there are none to read at */
    Side a, b;
} Listed;

/* The bytes of n elements, up to a multiple of the alignment. */
static LLVMValueRef aligned_bytes(MotLlvm *l, LLVMValueRef n, int64_t element_bytes)
{
    LLVMValueRef bytes = mot_llvm_mul(l, n, mot_llvm_int(l, element_bytes));
    return mot_llvm_mul(l, mot_llvm_ceil_div(l, bytes, ALIGNMENT), mot_llvm_int(l, ALIGNMENT));
}

static LLVMValueRef tile_bytes(MotLlvm *l, LLVMValueRef k, int64_t width)
{
    return aligned_bytes(l, mot_llvm_mul(l, k, mot_llvm_int(l, width)), 4);
}

LLVMValueRef mot_llvm_listed_scratch(MotLlvm *l)
{
    LLVMValueRef k = mot_llvm_extent(l, l->nest->contract.k);
    LLVMValueRef tiles = mot_llvm_add(l, tile_bytes(l, k, ROWS), tile_bytes(l, k, COLUMNS));
    return mot_llvm_add(l, aligned_bytes(l, k, 8), tiles);
}

/* Copies the list; positions outside are reported and become 0. */
static void print_positions(MotLlvm *l, const Listed *p, LLVMValueRef k)
{
    LLVMValueRef size = mot_llvm_extent(l, l->nest->contract.n_positions);
    LLVMValueRef zero = mot_llvm_int(l, 0), list = mot_llvm_buf(l, l->nest->contract.list);
    MotLlvmLoop loop = mot_llvm_loop_begin(l, zero, k, mot_llvm_int(l, 1));
    LLVMValueRef position =
        LLVMBuildLoad2(l->b, l->i64, mot_llvm_at(l, l->i64, list, loop.index), "");
    LLVMValueRef is_inside = LLVMBuildICmp(l->b, LLVMIntULT, position, size, "");
    LLVMBasicBlockRef after = mot_llvm_if_begin(l, LLVMBuildNot(l->b, is_inside, ""));
    mot_llvm_report_index(l, position);
    mot_llvm_if_end(l, after);
    LLVMBuildStore(l->b, LLVMBuildSelect(l->b, is_inside, position, zero, ""),
                   mot_llvm_at(l, l->i64, p->positions, loop.index));
    mot_llvm_loop_end(l, &loop);
}

static Listed make_listed(MotLlvm *l, const MotLlvmGemm *g)
{
    LLVMValueRef k = mot_llvm_extent(l, l->nest->contract.k), zero = mot_llvm_int(l, 0);
    LLVMValueRef size = mot_llvm_extent(l, l->nest->contract.n_positions);
    LLVMValueRef at_a = aligned_bytes(l, k, 8),
                 at_b = mot_llvm_add(l, at_a, tile_bytes(l, k, ROWS));
    Listed p = {.positions = mot_llvm_scratch(l, zero),
                .a = {!g->trans_a, g->a, g->lda, mot_llvm_scratch(l, at_a), ROWS},
                .b = {g->trans_b, g->b, g->ldb, mot_llvm_scratch(l, at_b), COLUMNS}};
    print_positions(l, &p, g->k);
    p.n = LLVMBuildSelect(l->b, mot_llvm_less(l, zero, size), g->k, zero, "");
    return p;
}

/* tile[line, j] = from[line * ld + positions[j]]. */
static void pack_gathered(MotLlvm *l, const Listed *p, const Side *s, LLVMValueRef first,
                          LLVMValueRef n)
{
    LLVMValueRef zero = mot_llvm_int(l, 0);
    MotLlvmLoop line = mot_llvm_loop_begin(l, zero, n, mot_llvm_int(l, 1));
    LLVMValueRef start = mot_llvm_mul(l, mot_llvm_add(l, first, line.index), s->ld);
    LLVMValueRef source = mot_llvm_at(l, l->f32, s->from, start);
    LLVMValueRef target = mot_llvm_at(l, l->f32, s->tile, mot_llvm_mul(l, line.index, p->n));
    MotLlvmLoop j = mot_llvm_loop_begin(l, zero, p->n, mot_llvm_int(l, l->lanes));
    LLVMValueRef mask = mot_llvm_tail_mask(l, j.index, p->n);
    LLVMValueRef at = mot_llvm_load(l, l->i64, mot_llvm_at(l, l->i64, p->positions, j.index), mask);
    mot_llvm_store(l, mot_llvm_gather(l, l->f32, source, at, mask),
                   mot_llvm_at(l, l->f32, target, j.index), mask);
    mot_llvm_loop_end(l, &j);
    mot_llvm_loop_end(l, &line);
}

/* tile[j, line] = from[positions[j] * ld + line]. */
static void pack_rows(MotLlvm *l, const Listed *p, const Side *s, LLVMValueRef first,
                      LLVMValueRef n)
{
    LLVMValueRef zero = mot_llvm_int(l, 0);
    MotLlvmLoop j = mot_llvm_loop_begin(l, zero, p->n, mot_llvm_int(l, 1));
    LLVMValueRef position =
        LLVMBuildLoad2(l->b, l->i64, mot_llvm_at(l, l->i64, p->positions, j.index), "");
    LLVMValueRef start = mot_llvm_add(l, mot_llvm_mul(l, position, s->ld), first);
    LLVMValueRef source = mot_llvm_at(l, l->f32, s->from, start);
    LLVMValueRef target =
        mot_llvm_at(l, l->f32, s->tile, mot_llvm_mul(l, j.index, mot_llvm_int(l, s->width)));
    MotLlvmLoop line = mot_llvm_loop_begin(l, zero, n, mot_llvm_int(l, l->lanes));
    LLVMValueRef mask = mot_llvm_tail_mask(l, line.index, n);
    LLVMValueRef row = mot_llvm_load(l, l->f32, mot_llvm_at(l, l->f32, source, line.index), mask);
    mot_llvm_store(l, row, mot_llvm_at(l, l->f32, target, line.index), mask);
    mot_llvm_loop_end(l, &line);
    mot_llvm_loop_end(l, &j);
}

/*
 * Packs lines [first, first + n), n up to the tile's width; gives the distance of the tile's rows.
 */
static LLVMValueRef pack(MotLlvm *l, const Listed *p, const Side *s, LLVMValueRef first,
                         LLVMValueRef n)
{
    (s->is_k_inner ? pack_gathered : pack_rows)(l, p, s, first, n);
    return s->is_k_inner ? mot_llvm_max(l, p->n, mot_llvm_int(l, 1)) : mot_llvm_int(l, s->width);
}

static MotLlvmLoop begin_tiles(MotLlvm *l, LLVMValueRef n, int64_t width, LLVMValueRef *out_n)
{
    MotLlvmLoop loop = mot_llvm_loop_begin(l, mot_llvm_int(l, 0), n, mot_llvm_int(l, width));
    *out_n = mot_llvm_min(l, mot_llvm_sub(l, n, loop.index), mot_llvm_int(l, width));
    return loop;
}

void mot_llvm_listed_gemm(MotLlvm *l, const MotLlvmGemm *g)
{
    Listed p = make_listed(l, g);
    MotLlvmGemm tile = *g;
    tile.k = p.n;
    tile.a = p.a.tile;
    tile.b = p.b.tile;
    MotLlvmLoop columns = begin_tiles(l, g->n, COLUMNS, &tile.n);
    tile.ldb = pack(l, &p, &p.b, columns.index, tile.n);
    MotLlvmLoop rows = begin_tiles(l, g->m, ROWS, &tile.m);
    tile.lda = pack(l, &p, &p.a, rows.index, tile.m);
    LLVMValueRef at = mot_llvm_add(l, mot_llvm_mul(l, rows.index, g->ldc), columns.index);
    tile.c = mot_llvm_at(l, l->f32, g->c, at);
    mot_llvm_gemm(l, &tile);
    mot_llvm_loop_end(l, &rows);
    mot_llvm_loop_end(l, &columns);
}
