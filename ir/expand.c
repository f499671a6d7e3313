/*
 * The meaning of every composite: its expansion into primitives. It is the oracle of the kernels,
 * the fallback of backends without one, and where types and factors of composites come from.
 *
 * One function a row, written as the formula. Rules check what they read of operand types; what
 * they build is checked by inference. Half-precision operands are widened to f32 first and results
 * rounded back, as PyTorch's kernels do.
 */
#include "ir/expand.h"

#include <float.h>
#include <math.h>

typedef void (*ExpandRule)(MotBuilder *b, const MotOp *op, MotValue *out);

static MotType type_of(const MotBuilder *b, MotValue v)
{
    return *mot_graph_type(b->graph, v);
}

/* Operand i, 0 if it is absent. */
static MotValue operand(const MotOp *op, uint32_t i)
{
    return i < op->n_in ? op->in[i] : 0;
}

/* Fails unless `ok`; returns it. */
static bool require(MotBuilder *b, const MotOp *op, bool ok, const char *what)
{
    if (!ok)
        mot_fail(b->graph->ctx, MOT_ERR_MODEL, mot_op_loc(b->graph, op), "%s: %s",
                 mot_op_info(op->kind)->name, what);
    return ok;
}

static bool require_same_dims(MotBuilder *b, const MotOp *op, uint32_t i, uint32_t k)
{
    MotType x = type_of(b, op->in[i]), y = type_of(b, op->in[k]);
    return require(b, op, mot_dims_equal(&x, &y), "operands must have the same dims");
}

static MotDtype wide_dtype(MotDtype dtype)
{
    return dtype == MOT_F16 || dtype == MOT_BF16 ? MOT_F32 : dtype;
}

static MotValue widen(MotBuilder *b, MotValue x)
{
    return mot_cast(b, x, wide_dtype(type_of(b, x).dtype));
}

/* x in the dtype of `like`. */
static MotValue cast_like(MotBuilder *b, MotValue x, MotValue like)
{
    return mot_cast(b, x, type_of(b, like).dtype);
}

static MotValue reshape_like(MotBuilder *b, MotValue x, MotValue like)
{
    MotType type = type_of(b, like);
    return mot_reshape(b, x, type.rank, type.dims);
}

static MotValue sum_over(MotBuilder *b, MotValue x, int64_t axis)
{
    return mot_reduce_sum(b, x, &axis, 1, MOT_KEEP);
}

static MotValue max_over(MotBuilder *b, MotValue x, int64_t axis)
{
    return mot_reduce_max(b, x, &axis, 1, MOT_KEEP);
}

static MotValue square(MotBuilder *b, MotValue x)
{
    return mot_mul(b, x, x);
}

/* ---- Softmax and cross-entropy ---- */

/* exp(x - max) / sum. The maximum is subtracted, so finite x gives finite results (a row of -inf
 * gives NaN). */
static void expand_softmax(MotBuilder *b, const MotOp *op, MotValue *out)
{
    int64_t axis = mot_attrs(op, softmax)->axis;
    MotValue x = widen(b, op->in[0]);
    MotValue e = mot_exp(b, mot_sub(b, x, max_over(b, x, axis)));
    out[0] = cast_like(b, mot_div(b, e, sum_over(b, e, axis)), op->in[0]);
}

/* dx = y * (g - sum(g * y)). */
static void expand_softmax_grad(MotBuilder *b, const MotOp *op, MotValue *out)
{
    if (!require_same_dims(b, op, 0, 1))
        return;
    MotValue y = widen(b, op->in[0]), g = widen(b, op->in[1]);
    MotValue dot = sum_over(b, mot_mul(b, g, y), mot_attrs(op, softmax)->axis);
    out[0] = cast_like(b, mot_mul(b, y, mot_sub(b, g, dot)), op->in[0]);
}

/* What loss and gradient of the cross-entropy share. Shapes: logits [..., V], rows [...]. */
typedef struct {
    MotValue e, sum; /* [..., V], [..., 1]: exp(logits - max), and its sum */
    MotValue log_p;  /* [..., V]: logits - log(sum(exp(logits))) */
    MotValue is_hit; /* [..., V] bool: v is the row's label */
    MotValue labels; /* [...] i64 */
    MotValue ignore; /* scalar i64 */
    int64_t v;
} CrossEntropy;

static MotValue make_integer(MotBuilder *b, int64_t value)
{
    MotTensor t = {mot_type_scalar(MOT_I64), mot_arena_new(&b->graph->ctx->arena, int64_t)};
    mot_tensor_set_int(&t, 0, value);
    return mot_constant(b, t);
}

/* log_p comes from exp(x - max), so that no finite logit overflows. */
static bool expand_rows(MotBuilder *b, const MotOp *op, CrossEntropy *ce)
{
    MotType x = type_of(b, op->in[0]), labels = type_of(b, op->in[1]);
    int last = x.rank - 1;
    if (!require(b, op, x.rank >= 1, "logits need a dim"))
        return false;
    MotType rows = mot_type_make(labels.dtype, last, x.dims);
    MotType column = mot_type_make(MOT_I64, x.rank, x.dims);
    column.dims[last] = 1;
    if (!require(b, op, mot_type_equal(&labels, &rows),
                 "labels need the dims of logits but for the last") ||
        !require(b, op, mot_dtype_class(labels.dtype) == MOT_CLASS_INT, "labels must be integers"))
        return false;
    MotValue wide = widen(b, op->in[0]);
    MotValue shifted = mot_sub(b, wide, max_over(b, wide, last));
    ce->v = x.dims[last];
    ce->e = mot_exp(b, shifted);
    ce->sum = sum_over(b, ce->e, last);
    ce->log_p = mot_sub(b, shifted, mot_log(b, ce->sum));
    ce->labels = mot_cast(b, op->in[1], MOT_I64);
    ce->ignore = make_integer(b, mot_attrs(op, cross_entropy)->ignore);
    ce->is_hit = mot_eq(b, mot_reshape(b, ce->labels, column.rank, column.dims),
                        mot_iota(b, MOT_I64, 1, &ce->v, 0));
    return true;
}

/*
 * Loss of a row = (1 - s) * -log_p[label] + s / V * sum(-log_p), 0 where the label is `ignore`. The
 * label's entry is selected by comparison, so a -inf elsewhere does no harm. In f32 for
 * half-precision logits.
 */
static void expand_cross_entropy(MotBuilder *b, const MotOp *op, MotValue *out)
{
    CrossEntropy ce;
    if (!expand_rows(b, op, &ce))
        return;
    double s = mot_attrs(op, cross_entropy)->smoothing;
    int64_t last = type_of(b, op->in[0]).rank - 1;
    MotValue zero = mot_scalar_like(b, ce.log_p, 0);
    MotValue picked = mot_select(b, ce.is_hit, ce.log_p, zero);
    MotValue loss = mot_neg(b, mot_reduce_sum(b, picked, &last, 1, MOT_DROP));
    if (s != 0) {
        MotValue all = mot_reduce_sum(b, ce.log_p, &last, 1, MOT_DROP);
        loss =
            mot_add(b, mot_mul_scalar(b, loss, 1 - s), mot_mul_scalar(b, all, -s / (double)ce.v));
    }
    out[0] = mot_select(b, mot_eq(b, ce.labels, ce.ignore), zero, loss);
}

/* dlogits = g * (p - (1 - s) * hit - s / V), 0 in ignored rows whatever g is. */
static void expand_cross_entropy_grad(MotBuilder *b, const MotOp *op, MotValue *out)
{
    CrossEntropy ce;
    if (!require_same_dims(b, op, 1, 2) || !expand_rows(b, op, &ce))
        return;
    double s = mot_attrs(op, cross_entropy)->smoothing, share = s / (double)ce.v;
    MotValue zero = mot_scalar_like(b, ce.log_p, 0);
    MotValue target = mot_select(b, ce.is_hit, mot_scalar_like(b, ce.log_p, 1 - s + share),
                                 mot_scalar_like(b, ce.log_p, share));
    MotValue g = cast_like(b, op->in[2], ce.log_p);
    g = mot_select(b, mot_eq(b, ce.labels, ce.ignore), zero, g);
    MotType column = type_of(b, op->in[0]);
    column.dims[column.rank - 1] = 1;
    MotValue p = mot_mul(b, ce.e, mot_div(b, mot_scalar_like(b, ce.sum, 1), ce.sum));
    MotValue dx = mot_mul(b, mot_sub(b, p, target), mot_reshape(b, g, column.rank, column.dims));
    out[0] = cast_like(b, dx, op->in[0]);
}

/* ---- Layer norm ---- */

/* The normalised dims, axis..rank-1, of a norm; their product is n. */
typedef struct {
    int64_t axes[MOT_MAX_RANK];
    uint32_t n_axes;
    double n;
} NormDims;

static bool read_norm_dims(MotBuilder *b, const MotOp *op, NormDims *norm)
{
    MotType x = type_of(b, op->in[0]), scale = type_of(b, op->in[1]);
    int64_t axis = mot_attrs(op, norm)->axis;
    if (!require(b, op, axis >= 0 && axis < x.rank, "axis out of range"))
        return false;
    MotType part = mot_type_make(x.dtype, x.rank - (int)axis, x.dims + axis);
    *norm = (NormDims){.n = (double)mot_type_elements(&part)};
    for (int64_t d = axis; d < x.rank; d++)
        norm->axes[norm->n_axes++] = d;
    return require(b, op, mot_dims_equal(&scale, &part), "scale needs the normalised dims");
}

static MotValue mean_of(MotBuilder *b, MotValue x, const NormDims *norm)
{
    MotValue sum = mot_reduce_sum(b, x, norm->axes, norm->n_axes, MOT_KEEP);
    return mot_div(b, sum, mot_scalar_like(b, x, norm->n));
}

/* y = (x - mean) * rstd * scale + bias, rstd = 1 / sqrt(variance + eps); two passes, no
 * cancellation. mean and rstd in f32 for half-precision x. */
static void expand_layer_norm(MotBuilder *b, const MotOp *op, MotValue *out)
{
    NormDims norm;
    MotValue bias = operand(op, 2);
    if (!read_norm_dims(b, op, &norm) || (bias && !require_same_dims(b, op, 1, 2)))
        return;
    MotValue x = widen(b, op->in[0]);
    MotValue mean = mean_of(b, x, &norm);
    MotValue centered = mot_sub(b, x, mean);
    MotValue variance = mean_of(b, square(b, centered), &norm);
    MotValue rstd = mot_rsqrt(b, mot_add_scalar(b, variance, mot_attrs(op, norm)->eps));
    MotValue y = mot_mul(b, mot_mul(b, centered, rstd), cast_like(b, op->in[1], x));
    if (bias)
        y = mot_add(b, y, cast_like(b, bias, x));
    out[0] = cast_like(b, y, op->in[0]);
    out[1] = mean;
    out[2] = rstd;
}

/*
 * With n = (x - mean) * rstd and h = g * scale:  dx = rstd * (h - mean(h) - n * mean(h * n)),
 * dscale = sum of g * n and dbias = sum of g over the leading dims.
 */
static void expand_layer_norm_grad(MotBuilder *b, const MotOp *op, MotValue *out)
{
    NormDims norm;
    if (!read_norm_dims(b, op, &norm) || !require_same_dims(b, op, 0, 4) ||
        !require_same_dims(b, op, 2, 3))
        return;
    MotValue x = widen(b, op->in[0]);
    MotValue mean = cast_like(b, op->in[2], x), rstd = cast_like(b, op->in[3], x);
    MotValue g = cast_like(b, op->in[4], x);
    MotValue n = mot_mul(b, mot_sub(b, x, mean), rstd);
    MotValue h = mot_mul(b, g, cast_like(b, op->in[1], x));
    MotValue dn = mot_sub(b, mot_sub(b, h, mean_of(b, h, &norm)),
                          mot_mul(b, n, mean_of(b, mot_mul(b, h, n), &norm)));
    MotType scale = type_of(b, op->in[1]);
    out[0] = cast_like(b, mot_mul(b, rstd, dn), op->in[0]);
    out[1] = cast_like(b, mot_sum_to(b, mot_mul(b, g, n), scale.rank, scale.dims), op->in[1]);
    out[2] = cast_like(b, mot_sum_to(b, g, scale.rank, scale.dims), op->in[1]);
}

/* ---- GELU ---- */

static const double sqrt_half = 0.70710678118654752440;
static const double inverse_sqrt_2pi = 0.39894228040143267794;
/* The tanh form: Phi(x) = (1 + tanh(u)) / 2, u = c * (x + a * x^3), c = sqrt(2 / pi). */
static const double tanh_a = 0.044715;
static const double tanh_c = 0.79788456080286535588;

/* (1 + z) / 2. */
static MotValue half_of_one_plus(MotBuilder *b, MotValue z)
{
    return mot_mul_scalar(b, mot_add_scalar(b, z, 1), 0.5);
}

static MotValue tanh_argument(MotBuilder *b, MotValue x)
{
    MotValue inner = mot_add_scalar(b, mot_mul_scalar(b, square(b, x), tanh_a), 1);
    return mot_mul(b, mot_mul_scalar(b, x, tanh_c), inner);
}

static void expand_gelu(MotBuilder *b, const MotOp *op, MotValue *out)
{
    MotValue x = widen(b, op->in[0]);
    MotValue z = mot_attrs(op, gelu)->tanh ? mot_tanh(b, tanh_argument(b, x))
                                           : mot_erf(b, mot_mul_scalar(b, x, sqrt_half));
    out[0] = cast_like(b, mot_mul(b, x, half_of_one_plus(b, z)), op->in[0]);
}

/* dx = g * (Phi(x) + x * Phi'(x)). */
static void expand_gelu_grad(MotBuilder *b, const MotOp *op, MotValue *out)
{
    if (!require_same_dims(b, op, 0, 1))
        return;
    MotValue x = widen(b, op->in[0]), phi, slope;
    if (mot_attrs(op, gelu)->tanh) {
        MotValue t = mot_tanh(b, tanh_argument(b, x));
        MotValue du =
            mot_add_scalar(b, mot_mul_scalar(b, square(b, x), 3 * tanh_c * tanh_a), tanh_c);
        phi = half_of_one_plus(b, t);
        slope = mot_mul_scalar(b, mot_mul(b, mot_rsub(b, 1, square(b, t)), du), 0.5);
    } else {
        phi = half_of_one_plus(b, mot_erf(b, mot_mul_scalar(b, x, sqrt_half)));
        slope =
            mot_mul_scalar(b, mot_exp(b, mot_mul_scalar(b, square(b, x), -0.5)), inverse_sqrt_2pi);
    }
    MotValue dx = mot_mul(b, cast_like(b, op->in[1], x), mot_add(b, phi, mot_mul(b, x, slope)));
    out[0] = cast_like(b, dx, op->in[0]);
}

/* ---- Attention: query heads are split as [G, R], R = H / G query heads a key head ---- */

typedef struct {
    int64_t b, t, s, g, r, d, e; /* q [B,T,G*R,D], k [B,S,G,D], v [B,S,G,E] */
} Sizes;

static bool read_sizes(MotBuilder *b, const MotOp *op, Sizes *out_sizes)
{
    MotType q = type_of(b, op->in[0]), k = type_of(b, op->in[1]), v = type_of(b, op->in[2]);
    if (!require(b, op, q.rank == 4 && k.rank == 4 && v.rank == 4, "q, k and v need 4 dims"))
        return false;
    int64_t groups = k.dims[2];
    *out_sizes = (Sizes){.b = q.dims[0],
                         .t = q.dims[1],
                         .s = k.dims[1],
                         .g = groups,
                         .r = groups > 0 ? q.dims[2] / groups : 1, /* a rank without heads */
                         .d = q.dims[3],
                         .e = v.dims[3]};
    return require(b, op, q.dims[0] == k.dims[0] && k.dims[0] == v.dims[0], "batch sizes differ") &&
           require(b, op, k.dims[1] == v.dims[1] && k.dims[2] == v.dims[2], "k and v differ") &&
           require(b, op, q.dims[3] == k.dims[3], "q and k differ in the head size") &&
           require(b, op, q.dims[2] == groups * out_sizes->r,
                   "query heads must be a multiple of key heads");
}

/* [B,T,H,X] to [B,T,G,R,X]. */
static MotValue split_heads(MotBuilder *b, MotValue x, const Sizes *z, int64_t head_size)
{
    return mot_reshape(b, widen(b, x), 5, (int64_t[]){z->b, z->t, z->g, z->r, head_size});
}

/* The mask, of at most 4 dims that broadcast to [B,H,T,S], as one that broadcasts to [B,G,R,T,S].
 */
static MotValue split_mask(MotBuilder *b, const MotOp *op, MotValue mask, const Sizes *z)
{
    MotType type = type_of(b, mask);
    int64_t full[4] = {z->b, z->g * z->r, z->t, z->s}, dims[4] = {1, 1, 1, 1};
    bool fits = type.rank <= 4;
    for (int i = 0; fits && i < type.rank; i++) {
        int at = 4 - type.rank + i;
        dims[at] = type.dims[i];
        fits = dims[at] == 1 || dims[at] == full[at];
    }
    if (!require(b, op, fits, "mask does not broadcast to [B,H,T,S]"))
        return 0;
    bool per_head = dims[1] != 1;
    return mot_reshape(
        b, mask, 5,
        (int64_t[]){dims[0], per_head ? z->g : 1, per_head ? z->r : 1, dims[2], dims[3]});
}

/* [T,S]: position t sees s <= t + S - T. */
static MotValue make_causal_mask(MotBuilder *b, const Sizes *z)
{
    MotValue t = mot_iota(b, MOT_I64, 2, (int64_t[]){z->t, 1}, 0);
    MotValue s = mot_iota(b, MOT_I64, 2, (int64_t[]){1, z->s}, 1);
    return mot_le(b, s, mot_add(b, t, make_integer(b, z->s - z->t)));
}

/* scale * q k^T + mask: [B,G,R,T,S], -inf at what a causal position does not see. */
static MotValue make_scores(MotBuilder *b, const MotOp *op, MotValue q, MotValue mask,
                            const Sizes *z)
{
    const MotAttr_attention *a = mot_attrs(op, attention);
    MotValue scores = mot_contract(b, q, widen(b, op->in[1]), "btgrd,bsgd->bgrts");
    scores = mot_mul_scalar(b, scores, a->scale);
    if (mask)
        scores = mot_add(b, scores, cast_like(b, split_mask(b, op, mask, z), scores));
    if (a->causal)
        scores =
            mot_select(b, make_causal_mask(b, z), scores, mot_scalar_like(b, scores, -INFINITY));
    return scores;
}

/*
 * The maximum is kept finite and the sum positive, which changes nothing in a row that sees
 * anything: there the largest exponential is 1. A row that sees nothing gives out = 0 and a finite
 * lse.
 */
static void expand_attention(MotBuilder *b, const MotOp *op, MotValue *out)
{
    Sizes z;
    if (!read_sizes(b, op, &z))
        return;
    MotValue scores = make_scores(b, op, split_heads(b, op->in[0], &z, z.d), operand(op, 3), &z);
    double lowest = type_of(b, scores).dtype == MOT_F64 ? -DBL_MAX : -FLT_MAX;
    MotValue max = mot_max(b, max_over(b, scores, 4), mot_scalar_like(b, scores, lowest));
    MotValue e = mot_exp(b, mot_sub(b, scores, max));
    MotValue sum = mot_max(b, sum_over(b, e, 4), mot_scalar_like(b, scores, FLT_MIN));
    MotValue y = mot_contract(b, mot_div(b, e, sum), widen(b, op->in[2]), "bgrts,bsge->btgre");
    y = mot_reshape(b, y, 4, (int64_t[]){z.b, z.t, z.g * z.r, z.e});
    out[0] = cast_like(b, y, op->in[0]);
    out[1] = mot_reshape(b, mot_add(b, max, mot_log(b, sum)), 3, (int64_t[]){z.b, z.g * z.r, z.t});
}

static bool check_grad_operands(MotBuilder *b, const MotOp *op, const Sizes *z)
{
    MotType out = mot_type_make(MOT_F32, 4, (int64_t[]){z->b, z->t, z->g * z->r, z->e});
    MotType lse = mot_type_make(MOT_F32, 3, (int64_t[]){z->b, z->g * z->r, z->t});
    MotType given_out = type_of(b, op->in[3]), given_lse = type_of(b, op->in[4]);
    return require_same_dims(b, op, 3, 5) &&
           require(b, op, mot_dims_equal(&given_out, &out), "out must be [B,T,H,E]") &&
           require(b, op, mot_dims_equal(&given_lse, &lse), "lse must be [B,H,T]");
}

/*
 * With p = exp(scores - lse):  dv = p^T g,  ds = p * (g v^T - sum(out * g)),  dq = scale * ds k, dk
 * = scale * ds^T q (FlashAttention-2, arXiv 2307.08691 section 3.1). Rows that see nothing have p =
 * 0.
 */
static void expand_attention_grad(MotBuilder *b, const MotOp *op, MotValue *out)
{
    Sizes z;
    if (!read_sizes(b, op, &z) || !check_grad_operands(b, op, &z))
        return;
    double scale = mot_attrs(op, attention)->scale;
    int64_t row[5] = {z.b, z.g, z.r, z.t, 1};
    MotValue q = split_heads(b, op->in[0], &z, z.d), k = widen(b, op->in[1]),
             v = widen(b, op->in[2]);
    MotValue y = split_heads(b, op->in[3], &z, z.e), g = split_heads(b, op->in[5], &z, z.e);
    MotValue scores = make_scores(b, op, q, operand(op, 6), &z);
    MotValue lse = mot_reshape(b, cast_like(b, op->in[4], scores), 5, row);
    MotValue p = mot_exp(b, mot_sub(b, scores, lse));
    MotValue dot = mot_reshape(b, mot_contract(b, y, g, "btgre,btgre->bgrt"), 5, row);
    MotValue dp = mot_contract(b, g, v, "btgre,bsge->bgrts");
    MotValue ds = mot_mul_scalar(b, mot_mul(b, p, mot_sub(b, dp, dot)), scale);
    MotValue dq = reshape_like(b, mot_contract(b, ds, k, "bgrts,bsgd->btgrd"), op->in[0]);
    out[0] = cast_like(b, dq, op->in[0]);
    out[1] = cast_like(b, mot_contract(b, ds, q, "bgrts,btgrd->bsgd"), op->in[1]);
    out[2] = cast_like(b, mot_contract(b, p, g, "bgrts,btgre->bsge"), op->in[2]);
}

/* ---- Optimizers: PyTorch's updates, in the widened dtype of p ---- */

/* g + wd * p. */
static MotValue add_decay(MotBuilder *b, MotValue g, MotValue p, double wd)
{
    return wd != 0 ? mot_add(b, g, mot_mul_scalar(b, p, wd)) : g;
}

/* p - lr * step. */
static MotValue descend(MotBuilder *b, MotValue p, MotValue lr, MotValue step)
{
    return mot_sub(b, p, mot_mul(b, cast_like(b, lr, p), step));
}

static bool require_scalar(MotBuilder *b, const MotOp *op, uint32_t i)
{
    return require(b, op, type_of(b, op->in[i]).rank == 0, "lr and step must be scalars");
}

static void expand_sgd(MotBuilder *b, const MotOp *op, MotValue *out)
{
    if (!require_same_dims(b, op, 0, 1) || !require_scalar(b, op, 2))
        return;
    MotValue p = widen(b, op->in[0]);
    MotValue g = add_decay(b, cast_like(b, op->in[1], p), p, mot_attrs(op, sgd)->wd);
    out[0] = cast_like(b, descend(b, p, op->in[2], g), op->in[0]);
}

/* m = momentum * m + g, which PyTorch's first step (m = g) is for m = 0; no dampening, no Nesterov.
 */
static void expand_momentum(MotBuilder *b, const MotOp *op, MotValue *out)
{
    const MotAttr_sgd *a = mot_attrs(op, sgd);
    if (!require_same_dims(b, op, 0, 1) || !require_same_dims(b, op, 0, 2) ||
        !require_scalar(b, op, 3))
        return;
    MotValue p = widen(b, op->in[0]);
    MotValue g = add_decay(b, cast_like(b, op->in[2], p), p, a->wd);
    MotValue m = mot_add(b, mot_mul_scalar(b, cast_like(b, op->in[1], p), a->momentum), g);
    out[0] = cast_like(b, descend(b, p, op->in[3], m), op->in[0]);
    out[1] = cast_like(b, m, op->in[1]);
}

/* beta * x + (1 - beta) * y. */
static MotValue blend(MotBuilder *b, MotValue x, MotValue y, double beta)
{
    return mot_add(b, mot_mul_scalar(b, x, beta), mot_mul_scalar(b, y, 1 - beta));
}

/* 1 - beta^step as an f64 scalar: in f32 the difference keeps three digits at beta = 0.999. */
static MotValue bias_correction(MotBuilder *b, double beta, MotValue step)
{
    MotValue t = mot_cast(b, step, MOT_F64);
    return mot_rsub(b, 1, mot_pow(b, mot_scalar(b, MOT_F64, beta), t));
}

/*
 * Adam with decay in the gradient, or AdamW (decoupled: p *= 1 - lr * wd first):
 * m = blend(m, g), v = blend(v, g^2), p -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps), c the bias
 * corrections.
 */
static void expand_adam(MotBuilder *b, const MotOp *op, MotValue *out)
{
    const MotAttr_adam *a = mot_attrs(op, adam);
    bool fits = require_scalar(b, op, 4) && require_scalar(b, op, 5);
    for (uint32_t i = 1; fits && i <= 3; i++)
        fits = require_same_dims(b, op, 0, i);
    if (!fits)
        return;
    MotValue p = widen(b, op->in[0]), g = cast_like(b, op->in[3], p);
    MotValue lr = mot_cast(b, op->in[4], MOT_F64), step = op->in[5];
    if (a->decoupled && a->wd != 0)
        p = mot_mul(b, p, cast_like(b, mot_rsub(b, 1, mot_mul_scalar(b, lr, a->wd)), p));
    else
        g = add_decay(b, g, p, a->wd);
    MotValue m = blend(b, cast_like(b, op->in[1], p), g, a->beta1);
    MotValue v = blend(b, cast_like(b, op->in[2], p), square(b, g), a->beta2);
    MotValue root = cast_like(b, mot_sqrt(b, bias_correction(b, a->beta2, step)), p);
    MotValue denominator = mot_add_scalar(b, mot_div(b, mot_sqrt(b, v), root), a->eps);
    MotValue rate = mot_div(b, lr, bias_correction(b, a->beta1, step));
    out[0] = cast_like(b, descend(b, p, rate, mot_div(b, m, denominator)), op->in[0]);
    out[1] = cast_like(b, m, op->in[1]);
    out[2] = cast_like(b, v, op->in[2]);
}

#define RULE_SOURCE(name) NULL
#define RULE_SINK(name) NULL
#define RULE_PRIMITIVE(name) NULL
#define RULE_COMPOSITE(name) expand_##name

static const ExpandRule rules[MOT_N_OPS] = {
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) [MOT_OP_##id] = RULE_##kind(name),
#include "ir/ops.def"
};

MotStatus mot_expand(MotBuilder *b, const MotOp *op, MotValue *out_results)
{
    MotCtx *ctx = b->graph->ctx;
    if (ctx->status != MOT_OK)
        return ctx->status;
    if (!rules[op->kind])
        return mot_fail(ctx, MOT_ERR_INTERNAL, mot_op_loc(b->graph, op), "%s is no composite",
                        mot_op_info(op->kind)->name);
    rules[op->kind](b, op, out_results);
    return ctx->status;
}

MotStatus mot_expand_alone(MotCtx *ctx, const MotOp *op, const MotType *in_types,
                           MotExpansion *out_expansion)
{
    MotExpansion *e = out_expansion;
    *e = (MotExpansion){.graph = mot_graph_make(ctx, "expansion")};
    MotBuilder b = mot_builder_make(e->graph);
    b.origin = op->origin;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (in_types[i].dtype != MOT_NO_DTYPE)
            e->in[i] = mot_input(&b, "operand", in_types[i]);
    MotOp alone = *op;
    alone.in = e->in;
    return mot_expand(&b, &alone, e->out);
}
