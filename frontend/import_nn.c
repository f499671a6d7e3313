/* Softmax, normalisations and losses. */
#include "frontend/import_node.h"

#include <string.h>

/* ---- Softmax ---- */

static MotValue softmax(MotNode *n, MotValue x, int axis)
{
    MotAttr_softmax attrs = {.axis = axis};
    return mot_result(n->b, mot_build(n->b, MOT_OP_SOFTMAX, &x, 1, &attrs), 0);
}

typedef MotValue (*AlongAxis)(MotNode *n, MotValue x, int axis);

/* Since opset 13: over one axis. */
static void lower_along_axis(MotNode *n, AlongAxis function)
{
    int axis = mot_node_axis(n, mot_node_int(n, "axis", -1), mot_node_type(n, 0)->rank);
    n->out[0] = mot_node_ok(n) ? function(n, n->in[0], axis) : 0;
}

/* Up to opset 12: over all dims from the axis on, merged. */
static void lower_from_axis(MotNode *n, AlongAxis function)
{
    const MotType x = *mot_node_type(n, 0);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", 1), x.rank);
    if (!mot_node_ok(n))
        return;
    if (axis == x.rank - 1) {
        n->out[0] = function(n, n->in[0], axis);
        return;
    }
    int64_t dims[2] = {1, 1};
    for (int i = 0; i < x.rank; i++)
        dims[i >= axis] *= x.dims[i];
    MotValue y = function(n, mot_reshape(n->b, n->in[0], 2, dims), 1);
    n->out[0] = mot_reshape(n->b, y, x.rank, x.dims);
}

void mot_lower_softmax(MotNode *n)
{
    lower_along_axis(n, softmax);
}

void mot_lower_softmax_flat(MotNode *n)
{
    lower_from_axis(n, softmax);
}

void mot_lower_log_softmax(MotNode *n)
{
    lower_along_axis(n, mot_node_log_softmax);
}

void mot_lower_log_softmax_flat(MotNode *n)
{
    lower_from_axis(n, mot_node_log_softmax);
}

/* ---- Normalisation ---- */

/* Operand i (scale or bias) with exactly the dims of x from the axis on. */
static MotValue fit_to_normalized(MotNode *n, uint32_t i, int axis)
{
    MotType x = *mot_node_type(n, 0), normalized = {.dtype = x.dtype, .rank = x.rank - axis};
    memcpy(normalized.dims, x.dims + axis, (size_t)normalized.rank * sizeof *x.dims);
    MotType type = mot_node_broadcast(n, *mot_node_type(n, i), normalized);
    if (mot_node_ok(n) && !mot_dims_equal(&type, &normalized))
        mot_node_fail(n, MOT_ERR_MODEL, "input %s does not broadcast to the normalized dims",
                      mot_node_operand_text(n, i));
    return mot_node_ok(n) ? mot_node_expand(n, n->in[i], &normalized) : 0;
}

/*
 * stash_type=1: statistics in f32. Our composites keep them in f32 or better whatever the flag
 * says.
 */
void mot_lower_layer_norm(MotNode *n)
{
    int axis = mot_node_axis(n, mot_node_int(n, "axis", -1), mot_node_type(n, 0)->rank);
    MotAttr_norm attrs = {.axis = axis, .eps = mot_node_float(n, "epsilon", (double)1e-5f)};
    mot_node_check_dtypes(n, 0, n->n_in);
    MotValue in[3] = {n->in[0], fit_to_normalized(n, 1, axis), 0};
    uint32_t n_in = 2;
    if (mot_node_has(n, 2))
        in[n_in++] = fit_to_normalized(n, 2, axis);
    MotOpId op = mot_build(n->b, MOT_OP_LAYER_NORM, in, n_in, &attrs);
    for (uint32_t i = 0; i < n->n_out; i++)
        n->out[i] = mot_result(n->b, op, i);
}

/* x / sqrt(mean(x^2) + eps) * scale */
void mot_lower_rms_norm(MotNode *n)
{
    MotBuilder *b = n->b;
    const MotType x = *mot_node_type(n, 0);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", -1), x.rank);
    mot_node_float_operand(n, 0);
    int64_t axes[MOT_MAX_RANK];
    uint32_t n_axes = 0;
    double count = 1;
    for (int i = axis; i < x.rank; i++) {
        axes[n_axes++] = i;
        count *= (double)x.dims[i];
    }
    MotValue wide = mot_node_int(n, "stash_type", 1) == 1 && x.dtype != MOT_F64
                        ? mot_cast(b, n->in[0], MOT_F32)
                        : n->in[0];
    MotValue mean = mot_mul_scalar(
        b, mot_reduce_sum(b, mot_mul(b, wide, wide), axes, n_axes, MOT_KEEP), 1 / count);
    MotValue rstd =
        mot_rsqrt(b, mot_add_scalar(b, mean, mot_node_float(n, "epsilon", (double)1e-5f)));
    MotValue y = mot_mul(b, wide, rstd);
    n->out[0] = mot_node_ok(n) ? mot_mul(b, mot_cast(b, y, x.dtype), n->in[1]) : 0;
}

/* ---- Losses ---- */

enum { NO_REDUCTION, SUM, MEAN };

static int read_reduction(MotNode *n)
{
    static const char *const names[] = {"none", "sum", "mean"};
    const char *name = mot_node_string(n, "reduction", "mean");
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    mot_node_fail(n, MOT_ERR_MODEL, "reduction is %s, not \"none\", \"sum\" or \"mean\"",
                  mot_quote(&n->im->ctx->arena, name));
    return NO_REDUCTION;
}

static MotValue sum_all(MotNode *n, MotValue x)
{
    int64_t axes[MOT_MAX_RANK];
    int rank = mot_value_type(n, x)->rank;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    return mot_reduce_sum(n->b, x, axes, (uint32_t)rank, MOT_DROP);
}

/* Operands of a loss over scores [N, C, d...] and labels [N, d...]. */
typedef struct {
    MotValue scores; /* [N, d..., C] */
    MotValue labels; /* i64 */
    MotType type;    /* of a loss per label */
    int64_t ignore;
} Loss;

static Loss read_loss(MotNode *n)
{
    const MotType x = *mot_node_type(n, 0), labels = *mot_node_type(n, 1);
    Loss loss = {.ignore = mot_node_int(n, "ignore_index", INT64_MIN)};
    mot_node_check_rank(n, 0, 2, MOT_MAX_RANK);
    mot_node_float_operand(n, 0);
    MotType expected = x;
    expected.rank = x.rank - 1;
    for (int i = 1; i < expected.rank; i++)
        expected.dims[i] = x.dims[i + 1];
    if (mot_node_ok(n) && !mot_dims_equal(&expected, &labels))
        mot_node_fail(n, MOT_ERR_MODEL, "labels %s do not fit scores %s",
                      mot_node_operand_text(n, 1), mot_node_operand_text(n, 0));
    if (!mot_node_ok(n))
        return loss;
    loss.type = expected;
    loss.scores = mot_node_axis_last(n, n->in[0], 1);
    loss.labels = mot_cast(n->b, n->in[1], MOT_I64);
    return loss;
}

/* 1 for labels that count, their weight where there are weights, 0 for ignored ones. */
static MotValue label_weights(MotNode *n, const Loss *loss)
{
    MotBuilder *b = n->b;
    MotValue ignore = mot_scalar(b, MOT_I64, 0), zero = mot_scalar(b, loss->type.dtype, 0);
    mot_tensor_set_int(&mot_attrs(mot_graph_def(n->im->g, ignore), constant)->data, 0,
                       loss->ignore);
    MotValue is_ignored = mot_eq(b, loss->labels, ignore);
    if (!mot_node_has(n, 2))
        return mot_select(b, is_ignored, zero, mot_scalar(b, loss->type.dtype, 1));
    MotValue safe = mot_select(b, is_ignored, mot_scalar(b, MOT_I64, 0), loss->labels);
    return mot_select(b, is_ignored, zero, mot_gather(b, n->in[2], safe, 0));
}

/* The loss of every label, already weighted, reduced as the node says. */
static MotValue reduce_loss(MotNode *n, const Loss *loss, MotValue rows, MotValue weights)
{
    switch (read_reduction(n)) {
    case NO_REDUCTION:
        return rows;
    case SUM:
        return sum_all(n, rows);
    default:
        return mot_div(n->b, sum_all(n, rows),
                       sum_all(n, mot_node_expand(n, weights, &loss->type)));
    }
}

void mot_lower_softmax_cross_entropy(MotNode *n)
{
    Loss loss = read_loss(n);
    if (!mot_node_ok(n))
        return;
    MotAttr_cross_entropy attrs = {.ignore = loss.ignore};
    MotValue in[] = {loss.scores, loss.labels};
    MotValue rows = mot_result(n->b, mot_build(n->b, MOT_OP_CROSS_ENTROPY, in, 2, &attrs), 0);
    rows = mot_cast(n->b, rows, loss.type.dtype);
    MotValue weights = label_weights(n, &loss);
    rows = mot_node_has(n, 2) ? mot_mul(n->b, rows, weights) : rows;
    n->out[0] = reduce_loss(n, &loss, rows, weights);
    if (mot_node_wants(n, 1))
        n->out[1] = mot_node_log_softmax(n, n->in[0], 1);
}

/* -log_probability[label] * weight: the label's entry is picked from a flat view. */
void mot_lower_nll_loss(MotNode *n)
{
    MotBuilder *b = n->b;
    Loss loss = read_loss(n);
    if (!mot_node_ok(n))
        return;
    MotValue weights = label_weights(n, &loss), zero = mot_scalar(b, MOT_I64, 0);
    int64_t classes = mot_node_type(n, 0)->dims[1], rows = mot_type_elements(&loss.type),
            flat = rows * classes;
    MotValue is_counted = mot_lt(b, mot_scalar_like(b, weights, 0), mot_abs(b, weights));
    MotValue safe = mot_node_has(n, 2) || loss.ignore != INT64_MIN
                        ? mot_select(b, is_counted, loss.labels, zero)
                        : loss.labels;
    MotValue position =
        mot_add(b, mot_mul_scalar(b, mot_iota(b, MOT_I64, 1, &rows, 0), (double)classes),
                mot_reshape(b, safe, 1, &rows));
    MotValue picked = mot_gather(b, mot_reshape(b, loss.scores, 1, &flat), position, 0);
    picked = mot_neg(b, mot_reshape(b, picked, loss.type.rank, loss.type.dims));
    n->out[0] = reduce_loss(n, &loss, mot_mul(b, picked, weights), weights);
}
