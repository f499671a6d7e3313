/*
 * Ops with a nest of their own: contractions that are GEMMs, scatter_add, rows of few entries,
 * attention and its gradient.
 *
 * A contraction's letters fall into four classes by where they occur: batch (both operands and the
 * result), m (the first operand and the result), n (the second and the result), k (both operands).
 * Letters of a class that lie behind each other in both tensors are one run. One run of m, n and k
 * each is the GEMM; the other runs are loops around it. What is left of m and n after the choice is
 * kept loops, of k reduced loops. No strided matrices, or one of m, n, k missing: no GEMM, but a
 * sum of products (kernel_dag.c). A letter that is cut is a run of its own, of the list's length,
 * and k.
 */
#include "codegen/kernel_dag.h"

#include <string.h>

/* ---- Contract ---- */

enum { A, B, C };
enum { BATCH, M, N, K, N_CLASSES };

/*
 * A letter, or several that are one loop: extent and the stride in each tensor (factor 0: not in
 * it).
 */
typedef struct {
    MotExtent extent, stride[3];
    bool is_listed;
} Run;

typedef struct {
    Run run[MOT_MAX_LOOPS];
    int n;
} Runs;

static void read_letters(const char *letters, const MotType *type, int tensor, Run *run)
{
    MotExtent stride = {.factor = 1};
    for (int d = type->rank; d-- > 0;) {
        run[(int)letters[d]].extent = mot_extent_make(type->dims[d]);
        run[(int)letters[d]].stride[tensor] = stride;
        stride = mot_extent_mul(stride, mot_extent_make(type->dims[d]));
    }
}

static bool is_in(const Run *run, int tensor)
{
    return run->stride[tensor].factor != 0;
}

/*
 * -1: the letter is in one tensor only, or in none. A dim of size 0 makes strides 0, and so no
 * GEMM.
 */
static int classify(const Run *r)
{
    int where = is_in(r, A) | is_in(r, B) << 1 | is_in(r, C) << 2;
    return where == 7 ? BATCH : where == 5 ? M : where == 6 ? N : where == 3 ? K : -1;
}

/*
 * Appends a letter to the runs of its class: to the last run if it continues that in every tensor.
 */
static void append_letter(Runs *runs, const Run *letter)
{
    Run *last = runs->n ? &runs->run[runs->n - 1] : NULL;
    bool continues = last && !last->is_listed && !letter->is_listed;
    for (int t = 0; t < 3 && continues; t++)
        continues =
            mot_extent_equal(last->stride[t], mot_extent_mul(letter->stride[t], letter->extent));
    if (!continues) {
        runs->run[runs->n++] = *letter;
        return;
    }
    last->extent = mot_extent_mul(last->extent, letter->extent);
    memcpy(last->stride, letter->stride, sizeof last->stride);
}

/*
 * Letters in the order of the tensor that leads their class: the result for batch, else the operand
 * with that letter.
 */
static bool classify_letters(const char *order, const Run *letters, Runs *runs)
{
    for (const char *p = order; *p; p++) {
        const Run *r = &letters[(int)*p];
        if (*p == ',' || *p == '-' || *p == '>' || (mot_extent_is(r->extent, 1) && !r->is_listed))
            continue;
        if (memchr(order, *p, (size_t)(p - order)))
            continue; /* second occurrence */
        int class = classify(r);
        if (class < 0)
            return false;
        append_letter(&runs[class], r);
    }
    return true;
}

static bool is_one(MotExtent e)
{
    return mot_extent_is(e, 1);
}

/*
 * How much work a GEMM of these runs does, as far as sizes are known; 0 if the matrices have no
 * unit strides.
 */
static double weigh(const Run *m, const Run *n, const Run *k)
{
    if (!is_one(n->stride[C]) || !(is_one(m->stride[A]) || is_one(k->stride[A])) ||
        !(is_one(n->stride[B]) || is_one(k->stride[B])))
        return 0;
    static const double typical_dim = 64;
    const Run *all[] = {m, n, k};
    double work = 1;
    for (int i = 0; i < 3; i++) {
        work *= (double)all[i]->extent.factor;
        for (uint32_t d = 0; d < all[i]->extent.n; d++)
            work *= typical_dim;
    }
    return work;
}

static bool has_list(const Runs *k)
{
    bool is_listed = false;
    for (int i = 0; i < k->n; i++)
        is_listed |= k->run[i].is_listed;
    return is_listed;
}

/*
 * The choice of runs with the most work; false if none is a GEMM. A list must be its k: loops
 * around it have strides only.
 */
static bool choose_runs(const Runs *runs, int *out)
{
    double best = 0;
    bool is_cut = has_list(&runs[K]);
    for (int m = 0; m < runs[M].n; m++)
        for (int n = 0; n < runs[N].n; n++)
            for (int k = 0; k < runs[K].n; k++) {
                double work = weigh(&runs[M].run[m], &runs[N].run[n], &runs[K].run[k]);
                if (work > best && runs[K].run[k].is_listed == is_cut) {
                    best = work;
                    out[M] = m;
                    out[N] = n;
                    out[K] = k;
                }
            }
    return best > 0;
}

static void add_outer_loops(MotCtx *ctx, MotNest *nest, const Runs *runs, int chosen)
{
    MotAccess *access[] = {&nest->contract.a, &nest->contract.b, &nest->contract.c};
    for (int i = 0; i < runs->n; i++) {
        if (i == chosen)
            continue;
        int loop = mot_nest_add_loop(ctx, nest, runs->run[i].extent);
        for (int t = 0; t < 3 && loop >= 0; t++)
            access[t]->stride[loop] = runs->run[i].stride[t];
    }
}

static MotNest *make_gemm(MotCtx *ctx, const Runs *runs, const int *chosen, const uint32_t *buf)
{
    MotNest *nest = mot_nest_make(ctx, MOT_SHAPE_CONTRACT);
    const Run *m = &runs[M].run[chosen[M]], *n = &runs[N].run[chosen[N]],
              *k = &runs[K].run[chosen[K]];
    nest->contract = (MotContract){.a = {.buf = buf[A], .dtype = MOT_F32},
                                   .b = {.buf = buf[B], .dtype = MOT_F32},
                                   .c = {.buf = buf[C], .dtype = MOT_F32},
                                   .m = m->extent,
                                   .n = n->extent,
                                   .k = k->extent,
                                   .a_m = m->stride[A],
                                   .a_k = k->stride[A],
                                   .b_k = k->stride[B],
                                   .b_n = n->stride[B],
                                   .c_m = m->stride[C]};
    add_outer_loops(ctx, nest, &runs[BATCH], -1);
    add_outer_loops(ctx, nest, &runs[M], chosen[M]);
    add_outer_loops(ctx, nest, &runs[N], chosen[N]);
    nest->n_kept = nest->n_loops;
    add_outer_loops(ctx, nest, &runs[K], chosen[K]);
    return nest;
}

/* Makes the letter that is cut run over the list. */
static bool read_list(const MotGraph *g, const MotOp *op, Run *letters)
{
    MotValue list = mot_contract_index(op);
    if (!list)
        return true;
    Run *cut = &letters[(int)mot_contract_cut(op)];
    cut->extent = mot_extent_make(mot_graph_type(g, list)->dims[0]);
    cut->is_listed = true;
    return classify(cut) == K;
}

static void set_list(MotContract *c, const MotGraph *g, const MotOp *op, const uint32_t *buf_of)
{
    MotValue list = mot_contract_index(op);
    if (!list)
        return;
    const char *spec = mot_attrs(op, contract)->spec;
    int64_t dim = strchr(spec, mot_contract_cut(op)) - spec;
    c->has_list = true;
    c->list = buf_of[list] - 1;
    c->n_positions = mot_extent_make(mot_graph_type(g, op->in[0])->dims[dim]);
}

/*
 * `first` and `second`: which operand plays A and which B; the result's inner dim must come from B.
 */
static MotNest *try_gemm(MotCtx *ctx, const MotGraph *g, const MotOp *op, const uint32_t *buf_of,
                         int first)
{
    const char *spec = mot_attrs(op, contract)->spec, *comma = strchr(spec, ','),
               *arrow = strstr(spec, "->");
    Run *letters = mot_arena_array(&ctx->arena, Run, 128);
    read_letters(spec, mot_graph_type(g, op->in[0]), first == 0 ? A : B, letters);
    read_letters(comma + 1, mot_graph_type(g, op->in[1]), first == 0 ? B : A, letters);
    read_letters(arrow + 2, mot_graph_type(g, op->out[0]), C, letters);
    Runs runs[N_CLASSES] = {0};
    int chosen[N_CLASSES] = {0};
    uint32_t buf[] = {buf_of[op->in[first]] - 1, buf_of[op->in[!first]] - 1,
                      buf_of[op->out[0]] - 1};
    if (!read_list(g, op, letters) || !classify_letters(spec, letters, runs) ||
        !choose_runs(runs, chosen))
        return NULL;
    MotNest *nest = make_gemm(ctx, runs, chosen, buf);
    set_list(&nest->contract, g, op, buf_of);
    return nest;
}

static MotNest *make_contract(MotCtx *ctx, const MotGraph *g, const MotOp *op,
                              const uint32_t *buf_of)
{
    if (mot_graph_type(g, op->out[0])->dtype != MOT_F32)
        return NULL;
    MotNest *nest = try_gemm(ctx, g, op, buf_of, 0);
    return nest ? nest : try_gemm(ctx, g, op, buf_of, 1);
}

/* ---- Scatter ---- */

static MotExtent multiply_dims(const MotType *type, int from, int to)
{
    MotExtent e = {.factor = 1};
    for (int d = from; d < to; d++)
        e = mot_extent_mul(e, mot_extent_make(type->dims[d]));
    return e;
}

/*
 * Three loops, each of which may be of extent 1: dims before the axis, dims after it, the index's
 * dims.
 */
static MotNest *make_scatter(MotCtx *ctx, const MotGraph *g, const MotOp *op,
                             const uint32_t *buf_of)
{
    const MotType *index = mot_graph_type(g, op->in[0]), *update = mot_graph_type(g, op->in[1]);
    const MotType *result = mot_graph_type(g, op->out[0]);
    if (result->dtype != MOT_F32) {
        mot_fail(ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(g, op),
                 "no kernel shape covers scatter_add of %s", mot_dtype_name(result->dtype));
        return NULL;
    }
    int axis = (int)mot_attrs(op, scatter)->axis;
    bool is_batched = mot_attrs(op, scatter)->batched;
    MotNest *nest = mot_nest_make(ctx, MOT_SHAPE_SCATTER);
    MotExtent pre = multiply_dims(result, 0, axis),
              post = multiply_dims(result, axis + 1, result->rank);
    MotExtent n = multiply_dims(index, is_batched ? axis : 0, index->rank), one = {.factor = 1};
    mot_nest_add_loop(ctx, nest, pre);
    mot_nest_add_loop(ctx, nest, post);
    mot_nest_add_loop(ctx, nest, n);
    nest->n_kept = 2;
    nest->lane_loop = 1;
    MotExtent size = mot_extent_make(result->dims[axis]);
    nest->scatter = (MotScatter){.index = {.buf = buf_of[op->in[0]] - 1,
                                           .dtype = index->dtype,
                                           .stride = {is_batched ? n : (MotExtent){0}, {0}, one}},
                                 .update = {.buf = buf_of[op->in[1]] - 1,
                                            .dtype = update->dtype,
                                            .stride = {mot_extent_mul(n, post), one, post}},
                                 .result = {.buf = buf_of[op->out[0]] - 1,
                                            .dtype = result->dtype,
                                            .stride = {mot_extent_mul(size, post), one}},
                                 .size = size,
                                 .axis_stride = post};
    return nest;
}

/* ---- Attention ---- */

static MotNest *make_attention(MotCtx *ctx, const MotGraph *g, const MotOp *op,
                               const uint32_t *buf_of)
{
    bool is_grad = op->kind == MOT_OP_ATTENTION_GRAD;
    uint32_t n_plain = is_grad ? 6 : 3, n = 0;
    const MotType *q = mot_graph_type(g, op->in[0]), *k = mot_graph_type(g, op->in[1]);
    const MotType *v = mot_graph_type(g, op->in[2]);
    MotNest *nest = mot_nest_make(ctx, is_grad ? MOT_SHAPE_ATTENTION_GRAD : MOT_SHAPE_ATTENTION);
    MotAttention *a = &nest->attention;
    *a = (MotAttention){.B = mot_extent_make(q->dims[0]),
                        .T = mot_extent_make(q->dims[1]),
                        .H = mot_extent_make(q->dims[2]),
                        .D = mot_extent_make(q->dims[3]),
                        .S = mot_extent_make(k->dims[1]),
                        .G = mot_extent_make(k->dims[2]),
                        .E = mot_extent_make(v->dims[3]),
                        .scale = mot_attrs(op, attention)->scale,
                        .is_causal = mot_attrs(op, attention)->causal,
                        .has_mask = op->n_in > n_plain && op->in[n_plain]};
    for (uint32_t i = 0; i < n_plain; i++)
        a->buf[n++] = buf_of[op->in[i]] - 1;
    for (uint32_t i = 0; i < op->n_out; i++)
        a->buf[n++] = buf_of[op->out[i]] - 1;
    if (!a->has_mask)
        return nest;
    const MotType *mask = mot_graph_type(g, op->in[n_plain]);
    MotExtent stride = {.factor = 1};
    a->mask = buf_of[op->in[n_plain]] - 1;
    for (int d = mask->rank; d-- > 0;) {
        a->mask_stride[d + 4 - mask->rank] = mask->dims[d] == 1 ? (MotExtent){0} : stride;
        stride = mot_extent_mul(stride, mot_extent_make(mask->dims[d]));
    }
    return nest;
}

/* ---- Rows of which few entries count ---- */

static MotNest *make_rows(MotCtx *ctx, const MotGraph *g, const MotOp *op, const uint32_t *buf_of)
{
    const MotType *first = mot_graph_type(g, op->in[0]), *last;
    MotNest *nest = mot_nest_make(ctx, MOT_SHAPE_ROWS);
    MotRows *r = &nest->rows;
    bool is_mean = op->kind == MOT_OP_SCATTER_MEAN;
    last = mot_graph_type(g, op->out[op->n_out - 1]);
    mot_nest_add_loop(ctx, nest, multiply_dims(last, 0, last->rank - 1));
    nest->n_kept = 1;
    *r = (MotRows){.op = op->kind, .parts = first->dims[0]};
    for (uint32_t i = 0; i < 3; i++) {
        MotValue v = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
        const MotType *type = mot_graph_type(g, v);
        r->buf[i] = buf_of[v] - 1;
        r->dtype[i] = type->dtype;
        r->step[i] = type->dims[type->rank - 1];
        if (type->dtype == MOT_F64 || r->step[i] < 0 || (is_mean && r->parts < 0)) {
            mot_fail(ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(g, op),
                     "no kernel shape covers this %s: it needs whole rows of f32",
                     mot_op_info(op->kind)->name);
            return NULL;
        }
    }
    bool is_wire = op->kind == MOT_OP_PACK || op->kind == MOT_OP_UNPACK;
    r->wire = is_wire ? mot_attrs(op, wire)->wire : NULL;
    r->n = is_wire ? mot_attrs(op, wire)->size : is_mean ? r->step[2] : r->step[0];
    r->k = is_wire ? mot_attrs(op, wire)->k : is_mean ? r->step[0] : r->step[1];
    return nest;
}

static MotNest *(*const makers[MOT_N_OPS])(MotCtx *, const MotGraph *, const MotOp *,
                                           const uint32_t *) = {
    [MOT_OP_CONTRACT] = make_contract,   [MOT_OP_SCATTER_ADD] = make_scatter,
    [MOT_OP_TOP_K] = make_rows,          [MOT_OP_SCATTER_MEAN] = make_rows,
    [MOT_OP_PACK] = make_rows,           [MOT_OP_UNPACK] = make_rows,
    [MOT_OP_ATTENTION] = make_attention, [MOT_OP_ATTENTION_GRAD] = make_attention,
};

bool mot_op_has_nest(const MotOp *op)
{
    return makers[op->kind] != NULL;
}

MotNest *mot_nest_of_op(MotCtx *ctx, const MotGraph *g, const MotOp *op, const uint32_t *buf_of)
{
    return makers[op->kind](ctx, g, op, buf_of);
}
