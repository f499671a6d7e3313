/*
 * LLVM IR of attention and its gradient (FlashAttention-2, arXiv 2307.08691): tiles of ROWS queries
 * and KEYS keys, never T x T. The products of a tile are GEMM calls on strided heads; between them
 * the scores of a tile, in scratch, become probabilities, a row at a time with lanes along the
 * keys. Tiles behind the causal diagonal are skipped.
 *
 * Forward: a task is one tile of queries of one head, with a running maximum and sum for each row,
 * and the result rescaled when the maximum grows. Backward: a task is one key head; dk and dv add
 * up over its query heads and tiles in order, so results don't depend on how tasks are dealt out.
 */
#include "codegen/llvm.h"

#include <float.h>
#include <math.h>

enum { ROWS = 64, KEYS = 256 };
/* The buffers of attention_grad; of attention the first five. */
enum { Q, K, V, OUT, LSE, G, DQ, DK, DV };

/* Scratch, in floats: scores or probabilities, gradients of scores, and three numbers a row. */
enum {
    AT_P = 0,
    AT_DS = ROWS * KEYS,
    AT_MAX = 2 * ROWS * KEYS,
    AT_SUM = AT_MAX + ROWS,
    AT_DELTA = AT_SUM + ROWS,
    SCRATCH_FLOATS = AT_DELTA + ROWS
};

/* What a tile of queries of one head is worked on with. */
typedef struct {
    LLVMValueRef B, T, H, D, S, G, E; /* sizes */
    LLVMValueRef b, h, g;             /* batch, head, its key head */
    LLVMValueRef q0, rows;            /* queries [q0, q0 + rows) */
    LLVMValueRef k0, keys;            /* keys [k0, k0 + keys) of the present tile */
} Tile;

static const MotAttention *attention_of(const MotLlvm *l)
{
    return &l->nest->attention;
}

static Tile make_tile(MotLlvm *l)
{
    const MotAttention *a = attention_of(l);
    return (Tile){.B = mot_llvm_extent(l, a->B),
                  .T = mot_llvm_extent(l, a->T),
                  .H = mot_llvm_extent(l, a->H),
                  .D = mot_llvm_extent(l, a->D),
                  .S = mot_llvm_extent(l, a->S),
                  .G = mot_llvm_extent(l, a->G),
                  .E = mot_llvm_extent(l, a->E)};
}

static LLVMValueRef fixed(MotLlvm *l, int64_t value)
{
    return mot_llvm_int(l, value);
}

/* Row `row` of the scratch's part `part`, whose rows are `width` floats. */
static LLVMValueRef scratch_at(MotLlvm *l, int64_t part, LLVMValueRef row, int64_t width)
{
    LLVMValueRef at = mot_llvm_add(l, fixed(l, part), mot_llvm_mul(l, row, fixed(l, width)));
    return mot_llvm_at(l, l->f32, l->scratch, at);
}

/* Element [b, position, head, 0] of a tensor [B, n, heads, size]. */
static LLVMValueRef head_at(MotLlvm *l, const Tile *t, int buf, LLVMValueRef n, LLVMValueRef heads,
                            LLVMValueRef size, LLVMValueRef position, LLVMValueRef head)
{
    LLVMValueRef at = mot_llvm_add(l, mot_llvm_mul(l, t->b, n), position);
    at = mot_llvm_mul(l, mot_llvm_add(l, mot_llvm_mul(l, at, heads), head), size);
    return mot_llvm_at(l, l->f32, mot_llvm_buf(l, attention_of(l)->buf[buf]), at);
}

/* Rows of the query side (q, out and their gradients) and of the key side, at the tile's start. */
static LLVMValueRef query_rows(MotLlvm *l, const Tile *t, int buf, LLVMValueRef size,
                               LLVMValueRef position)
{
    return head_at(l, t, buf, t->T, t->H, size, position, t->h);
}

static LLVMValueRef key_rows(MotLlvm *l, const Tile *t, int buf, LLVMValueRef size,
                             LLVMValueRef position)
{
    return head_at(l, t, buf, t->S, t->G, size, position, t->g);
}

/* Element of lse[B, H, T]. */
static LLVMValueRef lse_at(MotLlvm *l, const Tile *t, LLVMValueRef position)
{
    LLVMValueRef at = mot_llvm_add(l, mot_llvm_mul(l, t->b, t->H), t->h);
    at = mot_llvm_add(l, mot_llvm_mul(l, at, t->T), position);
    return mot_llvm_at(l, l->f32, mot_llvm_buf(l, attention_of(l)->buf[LSE]), at);
}

/* ---- Pieces of a row ---- */

static MotLlvmLoop vector_loop_begin(MotLlvm *l, LLVMValueRef n)
{
    return mot_llvm_loop_begin(l, fixed(l, 0), n, fixed(l, l->lanes));
}

static LLVMValueRef make_slot(MotLlvm *l, LLVMValueRef start)
{
    LLVMValueRef slot = LLVMBuildAlloca(l->entry, mot_llvm_vector(l, l->f32), "");
    LLVMBuildStore(l->b, start, slot);
    return slot;
}

static LLVMValueRef get_slot(MotLlvm *l, LLVMValueRef slot)
{
    return LLVMBuildLoad2(l->b, mot_llvm_vector(l, l->f32), slot, "");
}

static LLVMValueRef load_splat(MotLlvm *l, LLVMValueRef address)
{
    return mot_llvm_splat(l, LLVMBuildLoad2(l->b, l->f32, address, ""));
}

static void store_lane_0(MotLlvm *l, LLVMValueRef vector, LLVMValueRef address)
{
    LLVMBuildStore(l->b, mot_llvm_lane_0(l, vector), address);
}

/*
 * How many keys of the tile query `row` of the tile sees: all, or those up to key q0 + row + S - T.
 */
static LLVMValueRef count_visible(MotLlvm *l, const Tile *t, LLVMValueRef row)
{
    if (!attention_of(l)->is_causal)
        return t->keys;
    LLVMValueRef last = mot_llvm_add(l, mot_llvm_add(l, t->q0, row), mot_llvm_sub(l, t->S, t->T));
    LLVMValueRef n = mot_llvm_sub(l, mot_llvm_add(l, last, fixed(l, 1)), t->k0);
    return mot_llvm_max(l, mot_llvm_min(l, n, t->keys), fixed(l, 0));
}

/* Keys that any query of the tile of queries sees. */
static LLVMValueRef count_keys(MotLlvm *l, const Tile *t)
{
    if (!attention_of(l)->is_causal)
        return t->S;
    LLVMValueRef n = mot_llvm_add(l, mot_llvm_add(l, t->q0, t->rows), mot_llvm_sub(l, t->S, t->T));
    return mot_llvm_max(l, mot_llvm_min(l, n, t->S), fixed(l, 0));
}

/* The mask of query `row`, from key k0 of the tile on; NULL without a mask. */
static LLVMValueRef mask_row(MotLlvm *l, const Tile *t, LLVMValueRef row)
{
    const MotAttention *a = attention_of(l);
    if (!a->has_mask)
        return NULL;
    LLVMValueRef index[] = {t->b, t->h, mot_llvm_add(l, t->q0, row), t->k0}, at = fixed(l, 0);
    for (int i = 0; i < 4; i++)
        if (a->mask_stride[i].factor)
            at = mot_llvm_add(l, at,
                              mot_llvm_mul(l, index[i], mot_llvm_extent(l, a->mask_stride[i])));
    return mot_llvm_at(l, l->f32, mot_llvm_buf(l, a->mask), at);
}

/* scale * score + mask at keys [j, j + lanes) of the tile; `visible` says which of them count. */
static LLVMValueRef scaled_score(MotLlvm *l, LLVMValueRef raw, LLVMValueRef mask_address,
                                 LLVMValueRef j, LLVMValueRef visible)
{
    const MotAttention *a = attention_of(l);
    LLVMValueRef s = mot_llvm_fmul(l, raw, mot_llvm_splat_f32(l, a->scale));
    if (!mask_address)
        return s;
    LLVMValueRef mask =
        a->mask_stride[3].factor
            ? mot_llvm_load(l, l->f32, mot_llvm_at(l, l->f32, mask_address, j), visible)
            : load_splat(l, mask_address);
    return mot_llvm_fadd(l, s, mask);
}

/* row[0, n) *= factor, for n elements in memory. */
static void scale_row(MotLlvm *l, LLVMValueRef row, LLVMValueRef n, LLVMValueRef factor)
{
    MotLlvmLoop loop = vector_loop_begin(l, n);
    LLVMValueRef mask = mot_llvm_tail_mask(l, loop.index, n),
                 at = mot_llvm_at(l, l->f32, row, loop.index);
    mot_llvm_store(l, mot_llvm_fmul(l, mot_llvm_load(l, l->f32, at, mask), factor), at, mask);
    mot_llvm_loop_end(l, &loop);
}

/* ---- Products of a tile ---- */

/* scores[rows, keys] = queries keys^T: of q and k, or of the result's gradient and v. */
static void print_scores(MotLlvm *l, const Tile *t, int64_t part, int query_buf, int key_buf,
                         LLVMValueRef size)
{
    MotLlvmGemm gemm = {.trans_b = true,
                        .m = t->rows,
                        .n = t->keys,
                        .k = size,
                        .a = query_rows(l, t, query_buf, size, t->q0),
                        .lda = mot_llvm_mul(l, t->H, size),
                        .b = key_rows(l, t, key_buf, size, t->k0),
                        .ldb = mot_llvm_mul(l, t->G, size),
                        .beta = LLVMConstReal(l->f32, 0),
                        .c = scratch_at(l, part, fixed(l, 0), KEYS),
                        .ldc = fixed(l, KEYS)};
    mot_llvm_gemm(l, &gemm);
}

/* queries[rows, size] (+)= tile[rows, keys] keys[keys, size]; the first tile of keys stores. */
static void print_to_queries(MotLlvm *l, const Tile *t, int64_t part, int key_buf, int query_buf,
                             LLVMValueRef size)
{
    LLVMValueRef is_first = LLVMBuildICmp(l->b, LLVMIntEQ, t->k0, fixed(l, 0), "");
    MotLlvmGemm gemm = {.m = t->rows,
                        .n = size,
                        .k = t->keys,
                        .a = scratch_at(l, part, fixed(l, 0), KEYS),
                        .lda = fixed(l, KEYS),
                        .b = key_rows(l, t, key_buf, size, t->k0),
                        .ldb = mot_llvm_mul(l, t->G, size),
                        .beta = LLVMBuildSelect(l->b, is_first, LLVMConstReal(l->f32, 0),
                                                LLVMConstReal(l->f32, 1), ""),
                        .c = query_rows(l, t, query_buf, size, t->q0),
                        .ldc = mot_llvm_mul(l, t->H, size)};
    mot_llvm_gemm(l, &gemm);
}

/* keys[keys, size] += tile[rows, keys]^T queries[rows, size]. */
static void print_to_keys(MotLlvm *l, const Tile *t, int64_t part, int query_buf, int key_buf,
                          LLVMValueRef size)
{
    MotLlvmGemm gemm = {.trans_a = true,
                        .m = t->keys,
                        .n = size,
                        .k = t->rows,
                        .a = scratch_at(l, part, fixed(l, 0), KEYS),
                        .lda = fixed(l, KEYS),
                        .b = query_rows(l, t, query_buf, size, t->q0),
                        .ldb = mot_llvm_mul(l, t->H, size),
                        .beta = LLVMConstReal(l->f32, 1),
                        .c = key_rows(l, t, key_buf, size, t->k0),
                        .ldc = mot_llvm_mul(l, t->G, size)};
    mot_llvm_gemm(l, &gemm);
}

/*
 * Tiles of keys that the tile of queries sees; one, with no keys, if it sees none, as results must
 * be stored.
 */
static MotLlvmLoop key_loop_begin(MotLlvm *l, Tile *t)
{
    LLVMValueRef n = count_keys(l, t);
    MotLlvmLoop loop =
        mot_llvm_loop_begin(l, fixed(l, 0), mot_llvm_max(l, n, fixed(l, 1)), fixed(l, KEYS));
    t->k0 = loop.index;
    t->keys = mot_llvm_min(l, mot_llvm_sub(l, n, loop.index), fixed(l, KEYS));
    return loop;
}

/* ---- Forward ---- */

/* Scores of a row to scaled scores in scratch; gives their maximum over the visible keys. */
static LLVMValueRef print_row_max(MotLlvm *l, const Tile *t, LLVMValueRef row, LLVMValueRef visible,
                                  LLVMValueRef old)
{
    LLVMValueRef slot = make_slot(l, old), scores = scratch_at(l, AT_P, row, KEYS),
                 masks = mask_row(l, t, row);
    MotLlvmLoop loop = vector_loop_begin(l, visible);
    LLVMValueRef is_seen = mot_llvm_tail_mask(l, loop.index, visible),
                 at = mot_llvm_at(l, l->f32, scores, loop.index);
    LLVMValueRef s =
        scaled_score(l, mot_llvm_load(l, l->f32, at, NULL), masks, loop.index, is_seen);
    s = mot_llvm_select(l, is_seen, s, mot_llvm_splat_f32(l, -INFINITY));
    mot_llvm_store(l, s, at, NULL);
    LLVMBuildStore(l->b, mot_llvm_fmax(l, get_slot(l, slot), s), slot);
    mot_llvm_loop_end(l, &loop);
    return mot_llvm_reduce_lanes(l, get_slot(l, slot), mot_llvm_fmax);
}

/*
 * Scaled scores to exponentials; gives their sum. What isn't visible becomes 0, up to the tile's
 * keys.
 */
static LLVMValueRef print_row_exp(MotLlvm *l, const Tile *t, LLVMValueRef row, LLVMValueRef visible,
                                  LLVMValueRef max)
{
    LLVMValueRef zeros = mot_llvm_splat_f32(l, 0), slot = make_slot(l, zeros),
                 scores = scratch_at(l, AT_P, row, KEYS);
    MotLlvmLoop loop = vector_loop_begin(l, visible);
    LLVMValueRef at = mot_llvm_at(l, l->f32, scores, loop.index);
    LLVMValueRef e = mot_llvm_exp(l, mot_llvm_fsub(l, mot_llvm_load(l, l->f32, at, NULL), max));
    mot_llvm_store(l, e, at, NULL);
    LLVMBuildStore(l->b, mot_llvm_fadd(l, get_slot(l, slot), e), slot);
    mot_llvm_loop_end(l, &loop);
    LLVMValueRef next =
        mot_llvm_mul(l, mot_llvm_ceil_div(l, visible, l->lanes), fixed(l, l->lanes));
    loop = mot_llvm_loop_begin(l, next, t->keys, fixed(l, l->lanes));
    mot_llvm_store(l, zeros, mot_llvm_at(l, l->f32, scores, loop.index), NULL);
    mot_llvm_loop_end(l, &loop);
    return mot_llvm_reduce_lanes(l, get_slot(l, slot), mot_llvm_fadd);
}

static void print_softmax_row(MotLlvm *l, const Tile *t, LLVMValueRef row)
{
    LLVMValueRef at_max = scratch_at(l, AT_MAX, row, 1), at_sum = scratch_at(l, AT_SUM, row, 1);
    LLVMValueRef visible = count_visible(l, t, row), old = load_splat(l, at_max);
    LLVMValueRef max = print_row_max(l, t, row, visible, old);
    LLVMValueRef sum = print_row_exp(l, t, row, visible, max);
    LLVMValueRef shrink = mot_llvm_exp(l, mot_llvm_fsub(l, old, max));
    store_lane_0(l, mot_llvm_fadd(l, mot_llvm_fmul(l, load_splat(l, at_sum), shrink), sum), at_sum);
    store_lane_0(l, max, at_max);
    LLVMBasicBlockRef after = mot_llvm_if_begin(l, mot_llvm_less(l, fixed(l, 0), t->k0));
    LLVMValueRef position = mot_llvm_add(l, t->q0, row);
    scale_row(l, query_rows(l, t, OUT, t->E, position), t->E, shrink);
    mot_llvm_if_end(l, after);
}

/*
 * The maximum starts finite and the sum ends positive: a row that sees nothing gives 0 and a finite
 * lse.
 */
static void start_rows(MotLlvm *l)
{
    MotLlvmLoop loop = vector_loop_begin(l, fixed(l, ROWS));
    mot_llvm_store(l, mot_llvm_splat_f32(l, -FLT_MAX), scratch_at(l, AT_MAX, loop.index, 1), NULL);
    mot_llvm_store(l, mot_llvm_splat_f32(l, 0), scratch_at(l, AT_SUM, loop.index, 1), NULL);
    mot_llvm_loop_end(l, &loop);
}

static void finish_rows(MotLlvm *l, const Tile *t)
{
    MotLlvmLoop loop = vector_loop_begin(l, t->rows);
    LLVMValueRef at_sum = scratch_at(l, AT_SUM, loop.index, 1),
                 mask = mot_llvm_tail_mask(l, loop.index, t->rows);
    LLVMValueRef sum =
        mot_llvm_fmax(l, mot_llvm_load(l, l->f32, at_sum, NULL), mot_llvm_splat_f32(l, FLT_MIN));
    LLVMValueRef max = mot_llvm_load(l, l->f32, scratch_at(l, AT_MAX, loop.index, 1), NULL);
    LLVMValueRef lse = mot_llvm_fadd(l, max, mot_llvm_log(l, sum));
    mot_llvm_store(l, lse, lse_at(l, t, mot_llvm_add(l, t->q0, loop.index)), mask);
    mot_llvm_store(l, LLVMBuildFDiv(l->b, mot_llvm_splat_f32(l, 1), sum, ""), at_sum, NULL);
    mot_llvm_loop_end(l, &loop);
    loop = mot_llvm_loop_begin(l, fixed(l, 0), t->rows, fixed(l, 1));
    LLVMValueRef position = mot_llvm_add(l, t->q0, loop.index);
    scale_row(l, query_rows(l, t, OUT, t->E, position), t->E,
              load_splat(l, scratch_at(l, AT_SUM, loop.index, 1)));
    mot_llvm_loop_end(l, &loop);
}

static LLVMValueRef count_query_tiles(MotLlvm *l)
{
    return mot_llvm_ceil_div(l, mot_llvm_extent(l, attention_of(l)->T), ROWS);
}

static void set_queries(MotLlvm *l, Tile *t, LLVMValueRef tile)
{
    t->q0 = mot_llvm_mul(l, tile, fixed(l, ROWS));
    t->rows = mot_llvm_min(l, mot_llvm_sub(l, t->T, t->q0), fixed(l, ROWS));
}

static void print_attention(MotLlvm *l)
{
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, fixed(l, 1));
    Tile t = make_tile(l);
    LLVMValueRef tiles = count_query_tiles(l), head = mot_llvm_div(l, task.index, tiles);
    t.h = mot_llvm_rem(l, head, t.H);
    t.b = mot_llvm_div(l, head, t.H);
    t.g = mot_llvm_div(l, t.h, mot_llvm_div(l, t.H, t.G));
    set_queries(l, &t, mot_llvm_rem(l, task.index, tiles));
    start_rows(l);
    MotLlvmLoop keys = key_loop_begin(l, &t);
    print_scores(l, &t, AT_P, Q, K, t.D);
    MotLlvmLoop row = mot_llvm_loop_begin(l, fixed(l, 0), t.rows, fixed(l, 1));
    print_softmax_row(l, &t, row.index);
    mot_llvm_loop_end(l, &row);
    print_to_queries(l, &t, AT_P, V, OUT, t.E);
    mot_llvm_loop_end(l, &keys);
    finish_rows(l, &t);
    mot_llvm_loop_end(l, &task);
}

static LLVMValueRef count_attention_tasks(MotLlvm *l)
{
    const MotAttention *a = attention_of(l);
    LLVMValueRef heads = mot_llvm_mul(l, mot_llvm_extent(l, a->B), mot_llvm_extent(l, a->H));
    return mot_llvm_mul(l, heads, count_query_tiles(l));
}

static LLVMValueRef count_scratch(MotLlvm *l)
{
    return mot_llvm_int(l, SCRATCH_FLOATS * (int64_t)sizeof(float));
}

const MotLlvmShape mot_llvm_attention = {
    .run = print_attention, .tasks = count_attention_tasks, .scratch_bytes = count_scratch};

/* ---- Backward ---- */

/* delta[row] = sum of out * g over the row. */
static void print_deltas(MotLlvm *l, const Tile *t)
{
    MotLlvmLoop row = mot_llvm_loop_begin(l, fixed(l, 0), t->rows, fixed(l, 1));
    LLVMValueRef position = mot_llvm_add(l, t->q0, row.index),
                 slot = make_slot(l, mot_llvm_splat_f32(l, 0));
    LLVMValueRef out = query_rows(l, t, OUT, t->E, position),
                 g = query_rows(l, t, G, t->E, position);
    MotLlvmLoop loop = vector_loop_begin(l, t->E);
    LLVMValueRef mask = mot_llvm_tail_mask(l, loop.index, t->E);
    LLVMValueRef x = mot_llvm_load(l, l->f32, mot_llvm_at(l, l->f32, out, loop.index), mask);
    LLVMValueRef y = mot_llvm_load(l, l->f32, mot_llvm_at(l, l->f32, g, loop.index), mask);
    LLVMBuildStore(l->b, mot_llvm_fadd(l, get_slot(l, slot), mot_llvm_fmul(l, x, y)), slot);
    mot_llvm_loop_end(l, &loop);
    LLVMValueRef delta = mot_llvm_reduce_lanes(l, get_slot(l, slot), mot_llvm_fadd);
    store_lane_0(l, delta, scratch_at(l, AT_DELTA, row.index, 1));
    mot_llvm_loop_end(l, &row);
}

/*
 * Scores to p = exp(scale s + mask - lse), 0 where not visible, and g v^T to scale * p (g v^T -
 * delta).
 */
static void print_gradient_row(MotLlvm *l, const Tile *t, LLVMValueRef row)
{
    LLVMValueRef p_row = scratch_at(l, AT_P, row, KEYS), ds_row = scratch_at(l, AT_DS, row, KEYS);
    LLVMValueRef visible = count_visible(l, t, row), masks = mask_row(l, t, row);
    LLVMValueRef lse = load_splat(l, lse_at(l, t, mot_llvm_add(l, t->q0, row)));
    LLVMValueRef delta = load_splat(l, scratch_at(l, AT_DELTA, row, 1));
    MotLlvmLoop loop = vector_loop_begin(l, t->keys);
    LLVMValueRef is_seen = mot_llvm_tail_mask(l, loop.index, visible);
    LLVMValueRef at_p = mot_llvm_at(l, l->f32, p_row, loop.index),
                 at_ds = mot_llvm_at(l, l->f32, ds_row, loop.index);
    LLVMValueRef s =
        scaled_score(l, mot_llvm_load(l, l->f32, at_p, NULL), masks, loop.index, is_seen);
    LLVMValueRef p = mot_llvm_exp(l, mot_llvm_fsub(l, s, lse)), zeros = mot_llvm_splat_f32(l, 0);
    p = mot_llvm_select(l, is_seen, p, zeros);
    LLVMValueRef ds = mot_llvm_fsub(l, mot_llvm_load(l, l->f32, at_ds, NULL), delta);
    ds = mot_llvm_fmul(l, mot_llvm_fmul(l, p, ds), mot_llvm_splat_f32(l, attention_of(l)->scale));
    mot_llvm_store(l, p, at_p, NULL);
    mot_llvm_store(l, mot_llvm_select(l, is_seen, ds, zeros), at_ds, NULL);
    mot_llvm_loop_end(l, &loop);
}

static void print_tile_gradient(MotLlvm *l, const Tile *t)
{
    print_scores(l, t, AT_P, Q, K, t->D);
    print_scores(l, t, AT_DS, G, V, t->E);
    MotLlvmLoop row = mot_llvm_loop_begin(l, fixed(l, 0), t->rows, fixed(l, 1));
    print_gradient_row(l, t, row.index);
    mot_llvm_loop_end(l, &row);
    print_to_keys(l, t, AT_P, G, DV, t->E);
    print_to_keys(l, t, AT_DS, Q, DK, t->D);
    print_to_queries(l, t, AT_DS, K, DQ, t->D);
}

static void print_zero_keys(MotLlvm *l, const Tile *t, int buf, LLVMValueRef size)
{
    MotLlvmLoop key = mot_llvm_loop_begin(l, fixed(l, 0), t->S, fixed(l, 1));
    LLVMValueRef row = key_rows(l, t, buf, size, key.index);
    MotLlvmLoop loop = vector_loop_begin(l, size);
    mot_llvm_store(l, mot_llvm_splat_f32(l, 0), mot_llvm_at(l, l->f32, row, loop.index),
                   mot_llvm_tail_mask(l, loop.index, size));
    mot_llvm_loop_end(l, &loop);
    mot_llvm_loop_end(l, &key);
}

static void print_attention_grad(MotLlvm *l)
{
    LLVMValueRef one = fixed(l, 1);
    MotLlvmLoop task = mot_llvm_loop_begin(l, l->begin, l->end, one);
    Tile t = make_tile(l);
    t.g = mot_llvm_rem(l, task.index, t.G);
    t.b = mot_llvm_div(l, task.index, t.G);
    print_zero_keys(l, &t, DK, t.D);
    print_zero_keys(l, &t, DV, t.E);
    LLVMValueRef per_key_head = mot_llvm_div(l, t.H, t.G),
                 first = mot_llvm_mul(l, t.g, per_key_head);
    MotLlvmLoop head = mot_llvm_loop_begin(l, first, mot_llvm_add(l, first, per_key_head), one);
    t.h = head.index;
    MotLlvmLoop queries = mot_llvm_loop_begin(l, fixed(l, 0), count_query_tiles(l), one);
    set_queries(l, &t, queries.index);
    print_deltas(l, &t);
    MotLlvmLoop keys = key_loop_begin(l, &t);
    print_tile_gradient(l, &t);
    mot_llvm_loop_end(l, &keys);
    mot_llvm_loop_end(l, &queries);
    mot_llvm_loop_end(l, &head);
    mot_llvm_loop_end(l, &task);
}

static LLVMValueRef count_attention_grad_tasks(MotLlvm *l)
{
    return mot_llvm_mul(l, mot_llvm_extent(l, attention_of(l)->B),
                        mot_llvm_extent(l, attention_of(l)->G));
}

const MotLlvmShape mot_llvm_attention_grad = {.run = print_attention_grad,
                                              .tasks = count_attention_grad_tasks,
                                              .scratch_bytes = count_scratch};
