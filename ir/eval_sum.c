/* Primitives that sum (or take the maximum): reductions, contraction, scatter-add. Floats
 * accumulate in double. */
#include "ir/eval_rules.h"

#include <math.h>
#include <string.h>

static bool is_float(const MotTensor *tensor)
{
    return mot_dtype_class(tensor->type.dtype) == MOT_CLASS_FLOAT;
}

/* Sums of integers wrap. */
static int64_t add_int(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t multiply_int(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* ---- Reductions ---- */

/* The start of a sum is 0; of a maximum the least value, which is also the maximum of nothing. */
typedef struct {
    double start;
    double (*step)(double, double);
    int64_t (*start_int)(MotDtype);
    int64_t (*step_int)(int64_t, int64_t);
} Reduction;

static double add(double a, double b)
{
    return a + b;
}

static int64_t zero(MotDtype dtype)
{
    (void)dtype;
    return 0;
}

/* NaN stays. */
static double greater(double a, double b)
{
    return a != a || a > b ? a : b;
}

static int64_t greater_int(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t least_int(MotDtype dtype)
{
    return dtype == MOT_U8 ? 0 : dtype == MOT_I32 ? INT32_MIN : INT64_MIN;
}

/* Loops over the operand; the result (tensor 1) stands still in reduced dims. */
static MotWalk walk_reduction(const MotEval *e)
{
    const MotAttr_reduce *a = mot_attrs(e->op, reduce);
    const MotType *x = &e->in[0].type;
    bool is_reduced[MOT_MAX_RANK] = {false};
    int64_t strides[MOT_MAX_RANK];
    MotWalk w = {.n_loops = x->rank};
    memcpy(w.size, x->dims, (size_t)x->rank * sizeof *x->dims);
    mot_eval_strides(x, w.step[0]);
    mot_eval_strides(&e->out[0].type, strides);
    for (uint32_t i = 0; i < a->axes.n; i++)
        is_reduced[a->axes.data[i]] = true;
    for (int d = 0, k = 0; d < x->rank; d++) {
        if (!is_reduced[d])
            w.step[1][d] = strides[k];
        k += a->keep || !is_reduced[d];
    }
    return w;
}

static MotStatus eval_reduction(MotEval *e, const Reduction *r)
{
    MotWalk w = walk_reduction(e);
    MotTensor *out = &e->out[0];
    int64_t n = mot_type_elements(&out->type);
    if (is_float(out)) {
        const double *x = mot_eval_load(e->ctx, &e->in[0]);
        double *y = mot_arena_array(&e->ctx->arena, double, n);
        for (int64_t i = 0; i < n; i++)
            y[i] = r->start;
        for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w))
            y[w.offset[1]] = r->step(y[w.offset[1]], x[w.offset[0]]);
        mot_eval_store(out, y);
    } else {
        const int64_t *x = mot_eval_load_int(e->ctx, &e->in[0]);
        int64_t *y = mot_arena_array(&e->ctx->arena, int64_t, n);
        for (int64_t i = 0; i < n; i++)
            y[i] = r->start_int(out->type.dtype);
        for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w))
            y[w.offset[1]] = r->step_int(y[w.offset[1]], x[w.offset[0]]);
        mot_eval_store_int(out, y);
    }
    return MOT_OK;
}

MotStatus mot_eval_reduce_sum(MotEval *e)
{
    static const Reduction sum = {0, add, zero, add_int};
    return eval_reduction(e, &sum);
}

MotStatus mot_eval_reduce_max(MotEval *e)
{
    static const Reduction max = {-INFINITY, greater, least_int, greater_int};
    return eval_reduction(e, &max);
}

/* ---- Contraction: z[results] += x[letters] * y[letters], one loop a letter ---- */

enum { X, Y, Z };

/* The listed positions of a dim, in a tensor of its own. The lists's range was checked. */
static MotTensor take_listed(MotCtx *ctx, const MotTensor *x, const MotTensor *list, int dim)
{
    MotTensor out = *x;
    size_t inner = (size_t)mot_dtype_bytes(x->type.dtype);
    int64_t outer = 1, n = out.type.dims[dim] = list->type.dims[0];
    for (int d = 0; d < dim; d++)
        outer *= x->type.dims[d];
    for (int d = dim + 1; d < x->type.rank; d++)
        inner *= (size_t)x->type.dims[d];
    out.data = mot_arena_alloc_array(&ctx->arena, (size_t)(outer * n), inner);
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < n; k++) {
            int64_t from = i * x->type.dims[dim] + mot_tensor_get_int(list, k);
            memcpy((char *)out.data + (size_t)(i * n + k) * inner,
                   (const char *)x->data + (size_t)from * inner, inner);
        }
    return out;
}

/* Replaces both operands of a contraction that is cut by their listed parts: what k_index means. */
static MotStatus take_listed_parts(MotEval *e, MotTensor *x)
{
    const MotTensor *list = &e->in[2];
    const char *spec = mot_attrs(e->op, contract)->spec;
    char cut = mot_contract_cut(e->op);
    int dim[2] = {(int)(strchr(spec, cut) - spec), 0};
    const char *second = strchr(spec, ',') + 1;
    dim[Y] = (int)(strchr(second, cut) - second);
    int64_t size = x[X].type.dims[dim[X]];
    for (int64_t i = 0; i < list->type.dims[0]; i++) {
        int64_t k = mot_tensor_get_int(list, i);
        if (k < 0 || k >= size)
            return mot_fail(e->ctx, MOT_ERR_DATA, mot_op_loc(e->g, e->op),
                            "contract: k_index %lld at element %lld is outside [0, %lld)",
                            (long long)k, (long long)i, (long long)size);
    }
    for (int i = X; i <= Y; i++)
        x[i] = take_listed(e->ctx, &x[i], list, dim[i]);
    return MOT_OK;
}

/* Adds a loop a letter, with the strides of each of the three tensors that have the letter. */
static MotWalk walk_letters(const MotEval *e, const MotTensor *x)
{
    const MotType *types[3] = {&x[X].type, &x[Y].type, &e->out[0].type};
    const char *p = mot_attrs(e->op, contract)->spec;
    int8_t loop_of[128];
    MotWalk w = {.n_loops = 0};
    memset(loop_of, -1, sizeof loop_of);
    for (int k = X; k <= Z; k++) {
        int64_t strides[MOT_MAX_RANK];
        mot_eval_strides(types[k], strides);
        for (int d = 0; d < types[k]->rank; d++, p++) {
            int8_t *loop = &loop_of[(int)*p];
            if (*loop < 0) {
                *loop = (int8_t)w.n_loops++;
                w.size[*loop] = types[k]->dims[d];
            }
            w.step[k][*loop] = strides[d];
        }
        p += k == X ? 1 : k == Y ? 2 : 0; /* past "," and "->" */
    }
    if (w.n_loops == 0)
        w.size[w.n_loops++] = 1; /* two scalars */
    return w;
}

static void swap_loops(MotWalk *w, int i, int k)
{
    int64_t size = w->size[i];
    w->size[i] = w->size[k];
    w->size[k] = size;
    for (int t = X; t <= Z; t++) {
        int64_t step = w->step[t][i];
        w->step[t][i] = w->step[t][k];
        w->step[t][k] = step;
    }
}

/* Makes the loop with the smallest steps the innermost: the only choice here that is for speed. */
static void choose_inner_loop(MotWalk *w)
{
    int best = w->n_loops - 1;
    int64_t best_steps = INT64_MAX;
    for (int i = 0; i < w->n_loops; i++) {
        int64_t steps = w->step[X][i] + w->step[Y][i] + w->step[Z][i];
        if (w->size[i] > 1 && steps < best_steps) {
            best = i;
            best_steps = steps;
        }
    }
    swap_loops(w, best, w->n_loops - 1);
}

/* The innermost loop, over n elements with these steps; sz = 0 is a dot product. */
static void multiply_add(int64_t n, const double *x, int64_t sx, const double *y, int64_t sy,
                         double *z, int64_t sz)
{
    if (sz == 0) {
        double sum = *z;
        for (int64_t i = 0; i < n; i++)
            sum += x[i * sx] * y[i * sy];
        *z = sum;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        z[i * sz] += x[i * sx] * y[i * sy];
}

/* The same where every sum is kept in `sums`, by the attribute `accumulate`. */
static void multiply_add_in(MotDtype sums, int64_t n, const double *x, int64_t sx, const double *y,
                            int64_t sy, double *z, int64_t sz)
{
    for (int64_t i = 0; i < n; i++)
        z[i * sz] = mot_dtype_round(sums, z[i * sz] + x[i * sx] * y[i * sy]);
}

static void multiply_add_int(int64_t n, const int64_t *x, int64_t sx, const int64_t *y, int64_t sy,
                             int64_t *z, int64_t sz)
{
    for (int64_t i = 0; i < n; i++)
        z[i * sz] = add_int(z[i * sz], multiply_int(x[i * sx], y[i * sy]));
}

MotStatus mot_eval_contract(MotEval *e)
{
    MotCtx *ctx = e->ctx;
    MotTensor *out = &e->out[0], in[2] = {e->in[X], e->in[Y]};
    if (mot_contract_cut(e->op))
        MOT_TRY(take_listed_parts(e, in));
    MotWalk w = walk_letters(e, in);
    choose_inner_loop(&w);
    int last = --w.n_loops;
    int64_t n = w.size[last], sx = w.step[X][last], sy = w.step[Y][last], sz = w.step[Z][last];
    int64_t n_out = mot_type_elements(&out->type);
    if (is_float(out)) {
        const double *x = mot_eval_load(ctx, &in[X]), *y = mot_eval_load(ctx, &in[Y]);
        double *z = mot_arena_array(&ctx->arena, double, n_out);
        MotDtype sums = mot_attrs(e->op, contract)->accumulate;
        /* f64 mode makes float64 of any dtype. */
        bool in_double = !sums || out->type.dtype == MOT_F64;
        for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w)) {
            if (in_double)
                multiply_add(n, x + w.offset[X], sx, y + w.offset[Y], sy, z + w.offset[Z], sz);
            else
                multiply_add_in(sums, n, x + w.offset[X], sx, y + w.offset[Y], sy, z + w.offset[Z],
                                sz);
        }
        mot_eval_store(out, z);
    } else {
        const int64_t *x = mot_eval_load_int(ctx, &in[X]), *y = mot_eval_load_int(ctx, &in[Y]);
        int64_t *z = mot_arena_array(&ctx->arena, int64_t, n_out);
        for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w))
            multiply_add_int(n, x + w.offset[X], sx, y + w.offset[Y], sy, z + w.offset[Z], sz);
        mot_eval_store_int(out, z);
    }
    return MOT_OK;
}

/* ---- Scatter-add: the walk runs over the update (tensor 0), the result without its axis (1) and
 * the index (2) ---- */

static MotWalk walk_scatter(const MotEval *e, const int64_t *strides)
{
    const MotAttr_scatter *a = mot_attrs(e->op, scatter);
    const MotType *index = &e->in[0].type, *update = &e->in[1].type;
    int axis = (int)a->axis, first = a->batched ? 0 : axis, n_rows = index->rank - (axis - first);
    MotWalk w = {.n_loops = update->rank};
    memcpy(w.size, update->dims, (size_t)update->rank * sizeof *update->dims);
    mot_eval_strides(update, w.step[0]);
    mot_eval_strides(index, &w.step[2][first]);
    for (int d = 0; d < axis; d++)
        w.step[1][d] = strides[d];
    for (int d = axis + n_rows; d < update->rank; d++) {
        w.step[1][d] = strides[d - n_rows + 1];
        w.step[2][d] = 0;
    }
    return w;
}

MotStatus mot_eval_scatter_add(MotEval *e)
{
    const MotTensor *index = &e->in[0];
    MotTensor *out = &e->out[0];
    int64_t strides[MOT_MAX_RANK], axis = mot_attrs(e->op, scatter)->axis;
    mot_eval_strides(&out->type, strides);
    MotWalk w = walk_scatter(e, strides);
    bool in_double = is_float(out);
    int64_t n = mot_type_elements(&out->type);
    const double *x = in_double ? mot_eval_load(e->ctx, &e->in[1]) : NULL;
    const int64_t *x_int = in_double ? NULL : mot_eval_load_int(e->ctx, &e->in[1]);
    double *y = mot_arena_array(&e->ctx->arena, double, in_double ? n : 0);
    int64_t *y_int = mot_arena_array(&e->ctx->arena, int64_t, in_double ? 0 : n);
    for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w)) {
        int64_t row = mot_tensor_get_int(index, w.offset[2]);
        if (row < 0 || row >= out->type.dims[axis])
            return mot_fail(e->ctx, MOT_ERR_DATA, mot_op_loc(e->g, e->op),
                            "scatter_add: index %lld at element %lld is outside [0, %lld)",
                            (long long)row, (long long)w.offset[2],
                            (long long)out->type.dims[axis]);
        int64_t at = w.offset[1] + row * strides[axis];
        if (in_double)
            y[at] += x[w.offset[0]];
        else
            y_int[at] = add_int(y_int[at], x_int[w.offset[0]]);
    }
    if (in_double)
        mot_eval_store(out, y);
    else
        mot_eval_store_int(out, y_int);
    return MOT_OK;
}
